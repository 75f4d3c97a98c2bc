//! Third-party agents, as published, installed at pinned versions under `target/peers`.
//!
//! They drive our host in tests. Each runs with its own home directory and needs no network: fast-agent's model echoes
//! its input, elizacp has no model, and the other agents use a model server of the test.

use super::clients::{PublishedClient, acpx_node, npm_install_for_platform};
use super::{
    InstallScope, PeerDirs, copy_files, install_requirements, is_current, runs_successfully, write_stamp,
};
use crate::RepoContext;
use crate::command::{cargo, run_as_progress};
use crate::summary::StepOutcome;
use anyhow::Context;
use std::env::consts::{ARCH, OS};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Needs no lock file here: the published crate contains one.
const ELIZA: &str = "elizacp@12.0.0";

const PYTHON_CHECK: &str = "import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != (3, 13))";

/// The message for a machine without the Python of the pinned packages.
pub(super) const PYTHON_MISSING: &str =
    "needs Python 3.13 with venv: install it so that `python3.13` finds it";

const GEMINI: &str = "node_modules/@google/gemini-cli/bundle/gemini.js";

const CLAUDE: &str = "node_modules/@agentclientprotocol/claude-agent-acp/dist/index.js";
const CODEX: &str = "node_modules/@agentclientprotocol/codex-acp/dist/index.js";

const QWEN: &str = "node_modules/@qwen-code/qwen-code/cli-entry.js";
const KIMI: &str = "node_modules/@moonshot-ai/kimi-code/dist/main.mjs";

// opencode is published as one package for each platform.
const OPENCODE: &str = "node_modules/opencode-linux-x64/bin/opencode";

/// A third-party agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishedAgent {
    /// The Python package `fast-agent-mcp`: asks for permission, and runs commands in the client's terminals.
    FastAgent,
    /// The npm package `@google/gemini-cli`: asks for permission, and reads and writes files through the client.
    Gemini,
    /// The crate `elizacp`: only talks.
    Eliza,
    /// The npm package `opencode-ai`, for one platform: accesses files directly, and asks for permission first.
    OpenCode,
    /// The npm package `@agentclientprotocol/claude-agent-acp`: accesses files directly, and asks for permission first.
    Claude,
    /// The npm package `@agentclientprotocol/codex-acp`: accesses files directly, in its own sandbox.
    Codex,
    /// The npm package `@qwen-code/qwen-code`: asks for permission, and reads and writes files through the client.
    Qwen,
    /// The npm package `@moonshot-ai/kimi-code`: uses the client's files and terminals.
    Kimi,
    /// The Python package `mistral-vibe`: accesses files directly, and asks for permission before commands.
    Vibe,
}

impl PublishedAgent {
    /// Every agent.
    pub const ALL: [Self; 9] = [
        Self::FastAgent,
        Self::Gemini,
        Self::Eliza,
        Self::OpenCode,
        Self::Claude,
        Self::Codex,
        Self::Qwen,
        Self::Kimi,
        Self::Vibe,
    ];

    /// Returns the agent's name, which is also the name of its folders.
    pub fn name(self) -> &'static str {
        match self {
            Self::FastAgent => "fast-agent",
            Self::Gemini => "gemini",
            Self::Eliza => "elizacp",
            Self::OpenCode => "opencode",
            Self::Claude => "claude-agent-acp",
            Self::Codex => "codex-acp",
            Self::Qwen => "qwen",
            Self::Kimi => "kimi-code",
            Self::Vibe => "vibe",
        }
    }

    /// Returns the command that starts the agent.
    pub fn command(self, root: &Path) -> Vec<String> {
        let program = self.program(root).display().to_string();
        let newer_node = acpx_node(root).display().to_string();
        let words: &[&str] = match self {
            Self::FastAgent => &[&program, "--model", "passthrough", "--shell"],
            Self::Gemini => &["node", &program, "--acp", "--skip-trust"],
            Self::Eliza => &[&program, "--deterministic", "acp"],
            Self::OpenCode => &[&program, "acp"],
            Self::Claude | Self::Codex => &["node", &program],
            Self::Qwen => &[&newer_node, &program, "--acp", "--auth-type", "openai"],
            Self::Kimi => &[&newer_node, &program, "acp"],
            Self::Vibe => &[&program],
        };
        words.iter().map(ToString::to_string).collect()
    }

    /// Returns the command that starts qwen's server of remote sessions, on a port; `0` is a free one. Its token is in
    /// `QWEN_SERVER_TOKEN`, and its address in the first line that it prints.
    pub fn qwen_server_command(root: &Path, port: &str) -> Vec<String> {
        let program = Self::Qwen.program(root).display().to_string();
        let node = acpx_node(root).display().to_string();
        let words =
            ["serve", "--port", port, "--no-web", "--require-auth", "--initialize-timeout-ms", "120000"];
        [&*node, &*program].into_iter().chain(words).map(str::to_owned).collect()
    }

    fn program(self, root: &Path) -> PathBuf {
        self.dirs(root).target.join(match self {
            Self::FastAgent => "bin/fast-agent-acp",
            Self::Gemini => GEMINI,
            Self::Eliza => "bin/elizacp",
            Self::OpenCode => OPENCODE,
            Self::Claude => CLAUDE,
            Self::Codex => CODEX,
            Self::Qwen => QWEN,
            Self::Kimi => KIMI,
            Self::Vibe => "bin/vibe-acp",
        })
    }

    /// Returns the cost of the installation, if it is too high for every test run.
    fn install_cost(self) -> Option<&'static str> {
        match self {
            Self::FastAgent | Self::Gemini | Self::Qwen => None,
            Self::Eliza => Some("minutes to build"),
            Self::OpenCode => Some("180 MB"),
            Self::Claude => Some("350 MB"),
            Self::Codex => Some("450 MB"),
            Self::Kimi => Some("60 MB"),
            Self::Vibe => Some("350 MB"),
        }
    }

    fn dirs(self, root: &Path) -> PeerDirs {
        PeerDirs::for_name(self.name(), root)
    }

    /// Installs the agent, unless it is up to date or too costly for `extent`.
    pub fn install(self, world: &RepoContext, extent: InstallScope) -> StepOutcome {
        let places = self.dirs(&world.root);
        if let (Some(much), InstallScope::Usual) = (self.install_cost(), extent)
            && !self.is_installed(&world.root)
        {
            let reason = format!("takes {much}: `cargo xtask peers --all` installs it");
            return StepOutcome::Skipped(reason);
        }
        let installed = match self {
            Self::FastAgent | Self::Vibe => match find_python() {
                Some(python) => install_pinned_packages(&python, &places, &[]),
                None => return StepOutcome::missing(PYTHON_MISSING, world.is_ci),
            },
            Self::OpenCode if (OS, ARCH) != ("linux", "x86_64") => {
                return StepOutcome::missing("is pinned for Linux on x86-64 alone", world.is_ci);
            }
            Self::Gemini | Self::OpenCode | Self::Claude | Self::Codex | Self::Qwen | Self::Kimi
                if !super::has_node() =>
            {
                return StepOutcome::missing(format!("needs {}", super::NODE_REQUIREMENT), world.is_ci);
            }
            Self::Gemini => install_npm(&places, GEMINI, &["--omit=optional"]),
            Self::OpenCode => install_npm(&places, OPENCODE, &[]),
            Self::Claude => install_npm(&places, CLAUDE, &[]),
            Self::Codex => install_npm(&places, CODEX, &[]),
            Self::Qwen => npm_install_for_platform(&places, QWEN, &["--omit=optional"]),
            Self::Kimi => install_npm(&places, KIMI, &["--omit=optional"]),
            Self::Eliza => install_crate(&world.root, &places, ELIZA, BuildProfile::Debug),
        };
        StepOutcome::from_result(installed)
    }

    /// Returns whether the agent can be started, at the pinned version.
    pub(super) fn is_installed(self, root: &Path) -> bool {
        let places = self.dirs(root);
        let current = match self {
            Self::FastAgent | Self::Vibe => is_current(&places, "requirements.txt"),
            Self::Gemini | Self::Claude | Self::Codex => {
                is_current(&places, "package-lock.json") && super::has_node()
            }
            // Their Node is installed with acpx.
            Self::Qwen | Self::Kimi => {
                is_current(&places, "package-lock.json") && PublishedClient::Acpx.is_installed(root)
            }
            Self::OpenCode => is_current(&places, "package-lock.json"),
            // Cargo decides whether the build is up to date.
            Self::Eliza => true,
        };
        current && self.program(root).is_file()
    }
}

/// Returns an interpreter of the one Python version that fast-agent supports and that the packages of others are pinned
/// for, including one that pyenv has installed but not activated.
pub(super) fn find_python() -> Option<PathBuf> {
    let will_do = |program: &Path| runs_successfully(program, &["-c", PYTHON_CHECK]);
    let by_name = ["python3.13", "python3"].map(PathBuf::from);
    by_name.into_iter().find(|program| will_do(program)).or_else(|| {
        let prefix = Command::new("pyenv").args(["prefix", "3.13"]).output().ok()?;
        let prefix = String::from_utf8(prefix.stdout).ok()?;
        Some(Path::new(prefix.trim()).join("bin/python3.13")).filter(|program| will_do(program))
    })
}

/// Installs Python packages of which every one is pinned; `how` is passed to pip.
pub(super) fn install_pinned_packages(python: &Path, places: &PeerDirs, how: &[&str]) -> anyhow::Result<()> {
    let requirements = places.source.join("requirements.txt");
    // There is nothing to resolve, and most modules are never imported.
    let how = [&["--no-deps", "--no-compile"], how].concat();
    install_requirements(python, &requirements, &places.target, &how)
}

fn install_npm(places: &PeerDirs, program: &str, how: &[&str]) -> anyhow::Result<()> {
    if is_current(places, "package-lock.json") && places.target.join(program).is_file() {
        return Ok(());
    }
    copy_files(&places.source, &places.target)?;
    let mut npm = Command::new("npm");
    npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).args(how);
    run_as_progress(npm.current_dir(&places.target))?;
    write_stamp(places, "package-lock.json")
}

/// The build profile of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BuildProfile {
    /// For tests.
    Debug,
    /// For measurements.
    Release,
}

/// Builds a program from its published crate, with the lock file in that crate.
pub(super) fn install_crate(
    root: &Path,
    places: &PeerDirs,
    version: &str,
    built: BuildProfile,
) -> anyhow::Result<()> {
    let build = places.target.join("build");
    // Cargo does nothing if the program is up to date.
    let mut install = cargo(root, &["install", "--locked", version]);
    if built == BuildProfile::Debug {
        install.arg("--debug");
    }
    install.arg("--root").arg(&places.target).arg("--target-dir").arg(&build);
    // The program is built once and never debugged.
    install.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_INCREMENTAL", "0");
    run_as_progress(&mut install)?;
    if build.exists() {
        // The build directory takes hundreds of megabytes and is not needed again.
        fs::remove_dir_all(&build).with_context(|| format!("cannot remove {}", build.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{PeerDirs, PublishedAgent};
    use crate::RepoContext;
    use crate::peers::{InstallScope, write_stamp};
    use expect_test::expect;
    use std::fs;
    use std::path::Path;

    #[test]
    fn an_agent_is_started_as_its_makers_say() {
        let commands = PublishedAgent::ALL.map(|agent| agent.command(Path::new("/my repo")).join(" "));
        expect![[r#"
            /my repo/target/peers/fast-agent/bin/fast-agent-acp --model passthrough --shell
            node /my repo/target/peers/gemini/node_modules/@google/gemini-cli/bundle/gemini.js --acp --skip-trust
            /my repo/target/peers/elizacp/bin/elizacp --deterministic acp
            /my repo/target/peers/opencode/node_modules/opencode-linux-x64/bin/opencode acp
            node /my repo/target/peers/claude-agent-acp/node_modules/@agentclientprotocol/claude-agent-acp/dist/index.js
            node /my repo/target/peers/codex-acp/node_modules/@agentclientprotocol/codex-acp/dist/index.js
            node /my repo/target/peers/qwen/node_modules/@qwen-code/qwen-code/cli-entry.js --acp --auth-type openai
            node /my repo/target/peers/kimi-code/node_modules/@moonshot-ai/kimi-code/dist/main.mjs acp
            /my repo/target/peers/vibe/bin/vibe-acp"#]]
        .assert_eq(&commands.join("\n"));
    }

    #[test]
    fn what_takes_much_room_is_left_out_and_said_so() {
        let root = tempfile::tempdir().unwrap();
        let world = RepoContext { root: root.path().to_owned(), is_ci: true };
        let much = [PublishedAgent::OpenCode, PublishedAgent::Claude, PublishedAgent::Codex];
        let outcomes = much.map(|agent| format!("{:?}", agent.install(&world, InstallScope::Usual)));
        expect![[r#"
            Skipped("takes 180 MB: `cargo xtask peers --all` installs it")
            Skipped("takes 350 MB: `cargo xtask peers --all` installs it")
            Skipped("takes 450 MB: `cargo xtask peers --all` installs it")"#]]
        .assert_eq(&outcomes.join("\n"));
    }

    #[test]
    fn an_agent_is_installed_once_its_program_and_packages_are_there() {
        let root = tempfile::tempdir().unwrap();
        let PeerDirs { source, target } = PublishedAgent::FastAgent.dirs(root.path());
        fs::create_dir_all(&source).unwrap();
        fs::create_dir_all(target.join("bin")).unwrap();
        fs::write(source.join("requirements.txt"), "fast-agent-mcp==1\n").unwrap();
        fs::write(target.join("bin/fast-agent-acp"), "").unwrap();
        assert!(!PublishedAgent::FastAgent.is_installed(root.path()), "its packages are not all there");
        write_stamp(&PeerDirs { source, target }, "requirements.txt").unwrap();
        assert!(PublishedAgent::FastAgent.is_installed(root.path()));
        assert!(!PublishedAgent::Eliza.is_installed(root.path()));
    }
}
