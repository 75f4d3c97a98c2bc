//! Files of a project that tools execute, or that tell tools what to execute.
//!
//! Allowing `make` allows what the project's Makefile does, but not what an agent has since written into that file
//! without approval: until a person approves that change, the command is asked about. Ordinary code is exempt:
//! allowing `cargo test` allows the project's code to run, including the agent's.

use super::visible_commands::glob_matches;
use super::{BuiltInRule, Policy, PolicyContext, PolicyReason, ReasonBasis};
use crate::operation::{CommandSpec, Operation, OperationKind, OperationTarget, PathResolution};
use crate::paths::Access;

/// Tools, and the files that they execute or take instructions from, in lower case; `*` matches any text.
type ToolFiles = (&'static [&'static str], &'static [&'static str]);

const TOOL_FILES: &[ToolFiles] = &[
    (&["make", "gmake", "bmake"], &["makefile", "gnumakefile", "bsdmakefile", "*.mk", "*.mak"]),
    (&["just"], &["justfile", ".justfile", "*.just"]),
    (&["task", "go-task"], &["taskfile*.yml", "taskfile*.yaml"]),
    (
        &["cmake", "ctest", "cpack", "ninja", "meson"],
        &["cmakelists.txt", "*.cmake", "cmake*presets.json", "build.ninja", "meson.build", "meson*options*"],
    ),
    (&["cargo", "cargo-clippy", "rustdoc"], &["cargo.toml", "build.rs"]),
    (
        &["npm", "npx", "pnpm", "pnpx", "yarn", "yarnpkg", "bun", "bunx", "corepack", "lerna", "nx", "turbo"],
        NODE_FILES,
    ),
    (
        &[
            "node", "deno", "tsc", "tsx", "ts-node", "jest", "vitest", "mocha", "ava", "eslint", "prettier",
            "stylelint", "webpack", "vite", "rollup", "esbuild", "babel", "next", "nuxt", "astro",
            "playwright", "cypress", "lint-staged", "biome", "gulp", "grunt",
        ],
        NODE_FILES,
    ),
    (
        &[
            "pytest", "py.test", "python", "python3", "pypy", "pypy3", "tox", "nox", "hatch", "pdm",
            "poetry", "pipenv", "uv", "uvx", "pip", "pip3", "pipx", "mypy", "pylint", "flake8", "coverage",
            "sphinx-build", "mkdocs",
        ],
        &[
            "conftest.py", "pytest.ini", ".pytest.ini", "pyproject.toml", "setup.py", "setup.cfg", "tox.ini",
            "noxfile.py", "mypy.ini", ".mypy.ini", "pylintrc", ".pylintrc", ".flake8", ".coveragerc",
            "conf.py", "mkdocs.yml", "hatch_build.py", "*.pth",
        ],
    ),
    (
        &["go", "mage", "golangci-lint", "buf"],
        &["go.mod", "go.work", "magefile*.go", ".golangci.*", "buf*.yaml"],
    ),
    (
        &["mvn", "mvnw", "gradle", "gradlew", "ant", "sbt"],
        &[
            "pom.xml", "*.gradle", "*.gradle.kts", "gradle*.properties", "gradlew*", "mvnw*", "build.xml",
            "*.sbt",
        ],
    ),
    (
        &["rake", "bundle", "bundler", "rails", "rspec", "rubocop", "ruby", "gem"],
        &["rakefile*", "*.rake", "gemfile*", "*.gemspec", ".rspec", ".rubocop*.yml"],
    ),
    (&["mix", "elixir"], &["mix.exs"]),
    (&["dotnet", "msbuild"], &["*.csproj", "*.fsproj", "*.vbproj", "*.props", "*.targets", "nuget.config"]),
    (&["composer", "php", "phpunit"], &["composer.json", "phpunit*.xml*"]),
    (&["swift"], &["package*.swift"]),
    (&["zig"], &["build.zig*"]),
    (
        &["docker", "docker-compose", "podman", "podman-compose", "buildah"],
        &["dockerfile*", "*.dockerfile", "containerfile*", "compose*.y*ml", "docker-compose*.y*ml"],
    ),
    (
        &["bazel", "bazelisk", "buck", "buck2"],
        &["build", "build.bazel", "workspace*", "module.bazel", "*.bzl", "buck"],
    ),
    (&["terraform", "tofu"], &["*.tf", "*.tf.json"]),
    (&["nix", "nix-build", "nix-shell"], &["*.nix"]),
    // By the hooks that a project has its users install.
    (&["git", "jj"], &["package.json", ".lintstagedrc*", "lint-staged.config.*", "commitlint.config.*"]),
];

const NODE_FILES: &[&str] = &[
    "package.json", "pnpm-workspace.yaml", "*.config.js", "*.config.cjs", "*.config.mjs", "*.config.ts",
    "*.config.cts", "*.config.mts", ".*rc.js", ".*rc.cjs", ".*rc.mjs", ".*rc.json", ".eslintrc*",
    ".prettierrc*", ".babelrc*", ".mocharc*", ".stylelintrc*", ".lintstagedrc*", "deno.json*", "lerna.json",
    "nx.json", "project.json", "turbo.json", "gulpfile*", "gruntfile*", "tsconfig*.json",
];

/// Returns whether some tool executes files of this name, or takes instructions from them.
fn is_executed_file(path: &str) -> bool {
    let leaf = file_name(path);
    TOOL_FILES.iter().any(|(_, files)| files.iter().any(|pattern| glob_matches(pattern, &leaf)))
}

/// Returns whether a program, given in lower case, may execute a file or take instructions from it.
pub(super) fn may_execute(program: &str, path: &str) -> bool {
    // The names of some programs include their version.
    let stem = program.trim_end_matches(|last: char| last.is_ascii_digit() || last == '.');
    let leaf = file_name(path);
    let is_tool = |tools: &[&str]| tools.contains(&program) || tools.contains(&stem);
    TOOL_FILES
        .iter()
        .any(|(tools, files)| is_tool(tools) && files.iter().any(|pattern| glob_matches(pattern, &leaf)))
}

fn file_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_lowercase()
}

impl Policy {
    /// Returns the files executed by tools that an operation writes and that no rule names literally. If the rules
    /// allow the operation, no person has approved these writes.
    #[must_use]
    pub fn unreviewed_writes(&self, operation: &Operation, context: &PolicyContext) -> Vec<String> {
        let written = match &operation.target {
            OperationTarget::File { resolved, .. }
                if matches!(operation.kind, OperationKind::Write | OperationKind::Delete) =>
            {
                vec![resolved.as_str()]
            }
            OperationTarget::Command(command) => written_files(command).collect(),
            _ => Vec::new(),
        };
        self.executed_files_without_rule(written.into_iter(), context)
    }

    /// Returns the files in [`unreviewed_files`](Policy::unreviewed_files) that an operation may execute.
    #[must_use]
    pub fn unreviewed_executions(&self, operation: &Operation, context: &PolicyContext) -> Vec<String> {
        let reasons = self.evaluate(operation, context).reasons.into_iter();
        let file = |reason: PolicyReason| match reason.basis {
            ReasonBasis::BuiltIn(BuiltInRule::ExecutesUnreviewedFile(file)) => Some(file),
            _ => None,
        };
        reasons.filter_map(file).collect()
    }

    /// Returns the files that tools execute and that no rule names.
    fn executed_files_without_rule<'f>(
        &self,
        files: impl Iterator<Item = &'f str>,
        context: &PolicyContext,
    ) -> Vec<String> {
        let is_named = |path: &str| {
            self.active_rules(OperationKind::Write, context)
                .any(|(_, rule)| rule.names_path_explicitly(path, Access::Write, &self.roots))
        };
        files.filter(|path| is_executed_file(path) && !is_named(path)).map(ToOwned::to_owned).collect()
    }

    /// Returns the files that a command must not execute without approval: those that agents wrote earlier, and those
    /// that it writes itself.
    pub(super) fn unreviewed_for_command(
        &self,
        command: &CommandSpec,
        context: &PolicyContext,
    ) -> Vec<String> {
        let mut files = self.executed_files_without_rule(written_files(command), context);
        files.extend(self.unreviewed_files.iter().cloned());
        files
    }
}

/// Returns the files of the workspace that a command visibly writes.
fn written_files(command: &CommandSpec) -> impl Iterator<Item = &str> {
    command.named_paths.iter().filter_map(|reached| match &reached.resolution {
        PathResolution::InsideRoot { resolved, .. } if reached.access == Access::Write => {
            Some(resolved.as_str())
        }
        _ => None,
    })
}
