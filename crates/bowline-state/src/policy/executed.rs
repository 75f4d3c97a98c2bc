//! Files of a project that tools execute, or that tell tools what to execute.
//!
//! Who allows `make` allows what the project's Makefile does. What an agent has written into that file meanwhile, by
//! itself, is another thing: until a person has agreed to it, the command is asked about. Ordinary code is none of this:
//! who allows `cargo test` allows the code of the project to run, the agent's with it.

use super::seen::fits;
use super::{Context, Ground, Law, Policy, Reason};
use crate::operation::{Command, Kind, Leads, Operation, Target};
use crate::paths::Access;

/// Tools, and the files that they execute or obey. Both in lower case; `*` stands for any letters.
type Tools = (&'static [&'static str], &'static [&'static str]);

const TABLE: &[Tools] = &[
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
        NODE,
    ),
    (
        &[
            "node",
            "deno",
            "tsc",
            "tsx",
            "ts-node",
            "jest",
            "vitest",
            "mocha",
            "ava",
            "eslint",
            "prettier",
            "stylelint",
            "webpack",
            "vite",
            "rollup",
            "esbuild",
            "babel",
            "next",
            "nuxt",
            "astro",
            "playwright",
            "cypress",
            "lint-staged",
            "biome",
            "gulp",
            "grunt",
        ],
        NODE,
    ),
    (
        &[
            "pytest",
            "py.test",
            "python",
            "python3",
            "pypy",
            "pypy3",
            "tox",
            "nox",
            "hatch",
            "pdm",
            "poetry",
            "pipenv",
            "uv",
            "uvx",
            "pip",
            "pip3",
            "pipx",
            "mypy",
            "pylint",
            "flake8",
            "coverage",
            "sphinx-build",
            "mkdocs",
        ],
        &[
            "conftest.py",
            "pytest.ini",
            ".pytest.ini",
            "pyproject.toml",
            "setup.py",
            "setup.cfg",
            "tox.ini",
            "noxfile.py",
            "mypy.ini",
            ".mypy.ini",
            "pylintrc",
            ".pylintrc",
            ".flake8",
            ".coveragerc",
            "conf.py",
            "mkdocs.yml",
            "hatch_build.py",
            "*.pth",
        ],
    ),
    (
        &["go", "mage", "golangci-lint", "buf"],
        &["go.mod", "go.work", "magefile*.go", ".golangci.*", "buf*.yaml"],
    ),
    (
        &["mvn", "mvnw", "gradle", "gradlew", "ant", "sbt"],
        &[
            "pom.xml",
            "*.gradle",
            "*.gradle.kts",
            "gradle*.properties",
            "gradlew*",
            "mvnw*",
            "build.xml",
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

const NODE: &[&str] = &[
    "package.json",
    "pnpm-workspace.yaml",
    "*.config.js",
    "*.config.cjs",
    "*.config.mjs",
    "*.config.ts",
    "*.config.cts",
    "*.config.mts",
    ".*rc.js",
    ".*rc.cjs",
    ".*rc.mjs",
    ".*rc.json",
    ".eslintrc*",
    ".prettierrc*",
    ".babelrc*",
    ".mocharc*",
    ".stylelintrc*",
    ".lintstagedrc*",
    "deno.json*",
    "lerna.json",
    "nx.json",
    "project.json",
    "turbo.json",
    "gulpfile*",
    "gruntfile*",
    "tsconfig*.json",
];

/// Says whether some tool executes files of this name, or obeys them in what it executes.
fn is_executed(path: &str) -> bool {
    let leaf = leaf(path);
    TABLE.iter().any(|(_, files)| files.iter().any(|pattern| fits(pattern, &leaf)))
}

/// Says whether a program, by its name in lower case, may execute a file, or obey it in what it executes.
pub(super) fn executes(program: &str, path: &str) -> bool {
    // Versions are joined to the names of some programs.
    let stem = program.trim_end_matches(|last: char| last.is_ascii_digit() || last == '.');
    let leaf = leaf(path);
    let is_tool = |tools: &[&str]| tools.contains(&program) || tools.contains(&stem);
    TABLE.iter().any(|(tools, files)| is_tool(tools) && files.iter().any(|pattern| fits(pattern, &leaf)))
}

fn leaf(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_lowercase()
}

impl Policy {
    /// Returns the files that tools execute and that an operation writes, as far as no rule names them letter for letter.
    /// If rules let it pass, these are the ones that no person has agreed to.
    #[must_use]
    pub fn unreviewed_writes(&self, operation: &Operation, context: &Context) -> Vec<String> {
        let written = match &operation.target {
            Target::File { resolved, .. } if matches!(operation.kind, Kind::Write | Kind::Delete) => {
                vec![resolved.as_str()]
            }
            Target::Command(command) => written(command).collect(),
            _ => Vec::new(),
        };
        self.unnamed(written.into_iter(), context)
    }

    /// Returns the files in [`unreviewed`](Policy::unreviewed) that an operation may execute.
    #[must_use]
    pub fn unreviewed_runs(&self, operation: &Operation, context: &Context) -> Vec<String> {
        let reasons = self.judge(operation, context).because.into_iter();
        let file = |reason: Reason| match reason.ground {
            Ground::Law(Law::Unreviewed(file)) => Some(file),
            _ => None,
        };
        reasons.filter_map(file).collect()
    }

    /// Returns those of the files that tools execute and no rule names.
    fn unnamed<'f>(&self, files: impl Iterator<Item = &'f str>, context: &Context) -> Vec<String> {
        let is_named = |path: &str| {
            self.live(Kind::Write, context).any(|(_, rule)| rule.names_path(path, Access::Write, &self.roots))
        };
        files.filter(|path| is_executed(path) && !is_named(path)).map(ToOwned::to_owned).collect()
    }

    /// Returns what a command must not execute unasked: what agents wrote before, and what it writes itself.
    pub(super) fn unreviewed_by(&self, command: &Command, context: &Context) -> Vec<String> {
        let mut files = self.unnamed(written(command), context);
        files.extend(self.unreviewed.iter().cloned());
        files
    }
}

/// Returns the files of the workspace that a command is seen to write.
fn written(command: &Command) -> impl Iterator<Item = &str> {
    command.reaches.iter().filter_map(|reached| match &reached.leads {
        Leads::Inside { resolved, .. } if reached.access == Access::Write => Some(resolved.as_str()),
        _ => None,
    })
}
