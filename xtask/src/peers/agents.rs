//! Agents that others have written, as they publish them, installed at pinned versions under `target/peers`.
//!
//! They drive our host in tests. Each is started in a home of its own, and needs no network: fast-agent's model repeats
//! what it is told, elizacp has none, and the models of the others are a server of the test.

use super::clients::{OtherClient, install_for_this_machine, newer_node};
use super::{Extent, Places, copy_files, install_requirements, is_current, stamp, works};
use crate::World;
use crate::command::{cargo, run_as_progress};
use crate::summary::Outcome;
use anyhow::Context;
use std::env::consts::{ARCH, OS};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Has no lock file of its own here: the crate carries one.
const ELIZA: &str = "elizacp@12.0.0";

const PYTHON_WILL_DO: &str = "import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != (3, 13))";
const GEMINI: &str = "node_modules/@google/gemini-cli/bundle/gemini.js";

const CLAUDE: &str = "node_modules/@agentclientprotocol/claude-agent-acp/dist/index.js";
const CODEX: &str = "node_modules/@agentclientprotocol/codex-acp/dist/index.js";

const QWEN: &str = "node_modules/@qwen-code/qwen-code/cli-entry.js";
const KIMI: &str = "node_modules/@moonshot-ai/kimi-code/dist/main.mjs";

// Its makers publish one for each kind of machine.
const OPENCODE: &str = "node_modules/opencode-linux-x64/bin/opencode";

/// An agent that others have written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherAgent {
    /// The Python package `fast-agent-mcp`: asks for permission, and runs commands in the client's terminals.
    FastAgent,
    /// The npm package `@google/gemini-cli`: asks for permission, and reads and writes files through the client.
    Gemini,
    /// The crate `elizacp`: only talks.
    Eliza,
    /// The npm package `opencode-ai`, for one kind of machine: works on the files by itself, and asks before it does.
    OpenCode,
    /// The npm package `@agentclientprotocol/claude-agent-acp`: works on the files by itself, and asks before it does.
    Claude,
    /// The npm package `@agentclientprotocol/codex-acp`: works on the files by itself, in a sandbox of its own.
    Codex,
    /// The npm package `@qwen-code/qwen-code`: asks for permission, and reads and writes files through the client.
    Qwen,
    /// The npm package `@moonshot-ai/kimi-code`: uses the client's files and terminals.
    Kimi,
}

impl OtherAgent {
    /// Every one.
    pub const ALL: [Self; 8] = [
        Self::FastAgent,
        Self::Gemini,
        Self::Eliza,
        Self::OpenCode,
        Self::Claude,
        Self::Codex,
        Self::Qwen,
        Self::Kimi,
    ];

    /// Returns its name, which is also that of its folders.
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
        }
    }

    /// Returns the command that starts it.
    pub fn command(self, root: &Path) -> Vec<String> {
        let program = self.program(root).display().to_string();
        let newer_node = newer_node(root).display().to_string();
        let words: &[&str] = match self {
            Self::FastAgent => &[&program, "--model", "passthrough", "--shell"],
            Self::Gemini => &["node", &program, "--acp", "--skip-trust"],
            Self::Eliza => &[&program, "--deterministic", "acp"],
            Self::OpenCode => &[&program, "acp"],
            Self::Claude | Self::Codex => &["node", &program],
            Self::Qwen => &[&newer_node, &program, "--acp", "--auth-type", "openai"],
            Self::Kimi => &[&newer_node, &program, "acp"],
        };
        words.iter().map(ToString::to_string).collect()
    }

    fn program(self, root: &Path) -> PathBuf {
        self.places(root).target.join(match self {
            Self::FastAgent => "bin/fast-agent-acp",
            Self::Gemini => GEMINI,
            Self::Eliza => "bin/elizacp",
            Self::OpenCode => OPENCODE,
            Self::Claude => CLAUDE,
            Self::Codex => CODEX,
            Self::Qwen => QWEN,
            Self::Kimi => KIMI,
        })
    }

    /// Returns what it takes, if that is too much for every run of the tests.
    fn much(self) -> Option<&'static str> {
        match self {
            Self::FastAgent | Self::Gemini => None,
            Self::Eliza => Some("minutes to build"),
            Self::OpenCode => Some("180 MB"),
            Self::Claude => Some("350 MB"),
            Self::Codex => Some("450 MB"),
            Self::Qwen => Some("110 MB"),
            Self::Kimi => Some("60 MB"),
        }
    }

    fn places(self, root: &Path) -> Places {
        Places::named(self.name(), root)
    }

    /// Installs it, unless that was done before, or takes too much for what is to be installed.
    pub fn install(self, world: &World, extent: Extent) -> Outcome {
        let places = self.places(&world.root);
        if let (Some(much), Extent::Usual) = (self.much(), extent)
            && !self.is_installed(&world.root)
        {
            let reason = format!("takes {much}: `cargo xtask peers --all` installs it");
            return Outcome::Skipped(reason);
        }
        let installed = match self {
            Self::FastAgent => match python() {
                Some(python) => install_fast_agent(&python, &places),
                None => {
                    let missing = "needs Python 3.13 with venv: install it so that `python3.13` finds it";
                    return Outcome::missing(missing, world.ci);
                }
            },
            Self::OpenCode if (OS, ARCH) != ("linux", "x86_64") => {
                return Outcome::missing("is pinned for Linux on x86-64 alone", world.ci);
            }
            Self::Gemini | Self::OpenCode | Self::Claude | Self::Codex | Self::Qwen | Self::Kimi
                if !super::has_node() =>
            {
                return Outcome::missing(format!("needs {}", super::NODE), world.ci);
            }
            Self::Gemini => install_npm(&places, GEMINI, &["--omit=optional"]),
            Self::OpenCode => install_npm(&places, OPENCODE, &[]),
            Self::Claude => install_npm(&places, CLAUDE, &[]),
            Self::Codex => install_npm(&places, CODEX, &[]),
            Self::Qwen => install_for_this_machine(&places, QWEN, &["--omit=optional"]),
            Self::Kimi => install_npm(&places, KIMI, &["--omit=optional"]),
            Self::Eliza => install_crate(&world.root, &places, ELIZA, Built::Quickly),
        };
        Outcome::of(installed)
    }

    /// Whether it can be started, at the version that is pinned now.
    pub(super) fn is_installed(self, root: &Path) -> bool {
        let places = self.places(root);
        let current = match self {
            Self::FastAgent => is_current(&places, "requirements.txt"),
            Self::Gemini | Self::Claude | Self::Codex => {
                is_current(&places, "package-lock.json") && super::has_node()
            }
            // The Node that they need comes with acpx.
            Self::Qwen | Self::Kimi => {
                is_current(&places, "package-lock.json") && OtherClient::Acpx.is_installed(root)
            }
            Self::OpenCode => is_current(&places, "package-lock.json"),
            // Cargo itself knows what is there.
            Self::Eliza => true,
        };
        current && self.program(root).is_file()
    }
}

/// Returns an interpreter of the one version that fast-agent runs on, also if pyenv keeps it beside the one in use.
fn python() -> Option<PathBuf> {
    let will_do = |program: &Path| works(program, &["-c", PYTHON_WILL_DO]);
    let by_name = ["python3.13", "python3"].map(PathBuf::from);
    by_name.into_iter().find(|program| will_do(program)).or_else(|| {
        let prefix = Command::new("pyenv").args(["prefix", "3.13"]).output().ok()?;
        let prefix = String::from_utf8(prefix.stdout).ok()?;
        Some(Path::new(prefix.trim()).join("bin/python3.13")).filter(|program| will_do(program))
    })
}

fn install_fast_agent(python: &Path, places: &Places) -> anyhow::Result<()> {
    let requirements = places.source.join("requirements.txt");
    // Every package is pinned, so there is nothing to resolve; and most are never imported.
    install_requirements(python, &requirements, &places.target, &["--no-deps", "--no-compile"])
}

fn install_npm(places: &Places, program: &str, how: &[&str]) -> anyhow::Result<()> {
    if is_current(places, "package-lock.json") && places.target.join(program).is_file() {
        return Ok(());
    }
    copy_files(&places.source, &places.target)?;
    let mut npm = Command::new("npm");
    npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).args(how);
    run_as_progress(npm.current_dir(&places.target))?;
    stamp(places, "package-lock.json")
}

/// How a program is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Built {
    /// To be talked to.
    Quickly,
    /// To be measured.
    ToBeFast,
}

/// Builds a program that its makers publish as a crate, which brings its lock file.
pub(super) fn install_crate(root: &Path, places: &Places, version: &str, built: Built) -> anyhow::Result<()> {
    let build = places.target.join("build");
    // Cargo itself knows whether there is anything to do.
    let mut install = cargo(root, &["install", "--locked", version]);
    if built == Built::Quickly {
        install.arg("--debug");
    }
    install.arg("--root").arg(&places.target).arg("--target-dir").arg(&build);
    // Nobody debugs it, and it is built once.
    install.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_INCREMENTAL", "0");
    run_as_progress(&mut install)?;
    if build.exists() {
        // Some hundred megabytes that are not needed again.
        fs::remove_dir_all(&build).with_context(|| format!("cannot remove {}", build.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{OtherAgent, Places};
    use crate::World;
    use crate::peers::{Extent, stamp};
    use expect_test::expect;
    use std::fs;
    use std::path::Path;

    #[test]
    fn an_agent_is_started_as_its_makers_say() {
        let commands = OtherAgent::ALL.map(|agent| agent.command(Path::new("/my repo")).join(" "));
        expect![[r#"
            /my repo/target/peers/fast-agent/bin/fast-agent-acp --model passthrough --shell
            node /my repo/target/peers/gemini/node_modules/@google/gemini-cli/bundle/gemini.js --acp --skip-trust
            /my repo/target/peers/elizacp/bin/elizacp --deterministic acp
            /my repo/target/peers/opencode/node_modules/opencode-linux-x64/bin/opencode acp
            node /my repo/target/peers/claude-agent-acp/node_modules/@agentclientprotocol/claude-agent-acp/dist/index.js
            node /my repo/target/peers/codex-acp/node_modules/@agentclientprotocol/codex-acp/dist/index.js
            node /my repo/target/peers/qwen/node_modules/@qwen-code/qwen-code/cli-entry.js --acp --auth-type openai
            node /my repo/target/peers/kimi-code/node_modules/@moonshot-ai/kimi-code/dist/main.mjs acp"#]]
        .assert_eq(&commands.join("\n"));
    }

    #[test]
    fn what_takes_much_room_is_left_out_and_said_so() {
        let root = tempfile::tempdir().unwrap();
        let world = World { root: root.path().to_owned(), ci: true };
        let much = [OtherAgent::OpenCode, OtherAgent::Claude, OtherAgent::Codex];
        let outcomes = much.map(|agent| format!("{:?}", agent.install(&world, Extent::Usual)));
        expect![[r#"
            Skipped("takes 180 MB: `cargo xtask peers --all` installs it")
            Skipped("takes 350 MB: `cargo xtask peers --all` installs it")
            Skipped("takes 450 MB: `cargo xtask peers --all` installs it")"#]]
        .assert_eq(&outcomes.join("\n"));
    }

    #[test]
    fn an_agent_is_installed_once_its_program_and_packages_are_there() {
        let root = tempfile::tempdir().unwrap();
        let Places { source, target } = OtherAgent::FastAgent.places(root.path());
        fs::create_dir_all(&source).unwrap();
        fs::create_dir_all(target.join("bin")).unwrap();
        fs::write(source.join("requirements.txt"), "fast-agent-mcp==1\n").unwrap();
        fs::write(target.join("bin/fast-agent-acp"), "").unwrap();
        assert!(!OtherAgent::FastAgent.is_installed(root.path()), "its packages are not all there");
        stamp(&Places { source, target }, "requirements.txt").unwrap();
        assert!(OtherAgent::FastAgent.is_installed(root.path()));
        assert!(!OtherAgent::Eliza.is_installed(root.path()));
    }
}
