//! The peers: programs on the official SDKs, and agents and clients of others, installed at pinned versions under
//! `target/peers`.
//!
//! Once installed they are started like this, from the root of the repository:
//!
//! | peer | agent | client |
//! |---|---|---|
//! | `rust` | `target/peers/rust/release/peer-rust-agent` | `target/peers/rust/release/peer-rust-client` |
//! | `python` | `target/peers/python/bin/python tests/peers/python/agent.py` | the same with `client.py` |
//! | `typescript` | `node target/peers/typescript/agent.mjs` | the same with `client.mjs` |
//!
//! Tests and benchmarks that `cargo xtask` starts find the installed peers' names in the variable [`VARIABLE`],
//! separated by commas. A test of a named peer must run; one of a peer that is not named says that it was skipped.
//! Without the variable, as in a plain `cargo test`, a test looks whether the peer's program is there.

use crate::World;
use crate::command::{cargo, run_as_progress, succeeds};
use crate::summary::{Outcome, Row};
use anyhow::Context;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

mod agents;
mod clients;
mod conductor;
mod mcp;

pub use agents::OtherAgent;
pub use clients::{OtherClient, python_example, typescript_example};
pub use conductor::Conductor;
pub use mcp::{McpCheck, McpClient};

/// The environment variable that names the installed peers.
pub const VARIABLE: &str = "BOWLINE_PEERS";

/// Holds the text that a peer's packages were installed from; while it stays the same there is nothing to do.
const STAMP: &str = "installed-from";

/// Succeeds on an interpreter that can make the environment.
const PYTHON_WILL_DO: &str = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))";
const PYTHON: &str = "Python 3.11 or later with venv: install it so that `python3` finds it";
const NODE_WILL_DO: &str = "process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)";
const NODE: &str = "Node 20 or later with npm: install them so that `node` and `npm` find them";

/// One of the official SDKs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// The crate `agent-client-protocol`.
    Rust,
    /// The Python package `agent-client-protocol`.
    Python,
    /// The npm package `@agentclientprotocol/sdk`.
    TypeScript,
}

impl Peer {
    /// Every peer.
    pub const ALL: [Self; 3] = [Self::Rust, Self::Python, Self::TypeScript];

    /// Returns its name, which is also that of its folders.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::Python => "python",
            Self::TypeScript => "typescript",
        }
    }

    /// Returns the version of the SDK that it is built on.
    pub fn sdk_version(self) -> &'static str {
        match self {
            Self::Rust => "5.0.0",
            Self::Python => "0.12.1",
            Self::TypeScript => "2.4.0",
        }
    }

    /// Returns the command that starts its agent.
    pub fn agent(self, root: &Path) -> Vec<String> {
        self.program(root, "agent")
    }

    /// Returns the command that starts its client, to which the client's own arguments are added.
    pub fn client(self, root: &Path) -> Vec<String> {
        self.program(root, "client")
    }

    fn program(self, root: &Path, end: &str) -> Vec<String> {
        let Places { source, target } = Places::of(self, root);
        let words = match self {
            Self::Rust => vec![target.join(format!("release/peer-rust-{end}"))],
            Self::Python => vec![target.join("bin/python"), source.join(format!("{end}.py"))],
            Self::TypeScript => vec!["node".into(), target.join(format!("{end}.mjs"))],
        };
        words.iter().map(|word| word.display().to_string()).collect()
    }

    /// Installs or builds it, unless that was done before.
    pub fn install(self, world: &World) -> Outcome {
        if let Some(missing) = self.missing_interpreter() {
            return Outcome::missing(format!("needs {missing}"), world.ci);
        }
        let places = Places::of(self, &world.root);
        Outcome::of(match self {
            Self::Rust => build_rust(&world.root, &places),
            Self::Python => install_python(&places),
            Self::TypeScript => install_typescript(&places),
        })
    }

    /// Returns what must be installed on this machine before the peer can be, if anything.
    fn missing_interpreter(self) -> Option<&'static str> {
        match self {
            Self::Rust => None,
            Self::Python => missing_python(),
            Self::TypeScript => (!has_node()).then_some(NODE),
        }
    }

    /// Whether it is built, or its packages are those that are pinned now.
    fn is_installed(self, root: &Path) -> bool {
        let places = Places::of(self, root);
        match self {
            Self::Rust => places.target.join("release/peer-rust-agent").is_file(),
            Self::Python => {
                is_current(&places, "requirements.txt")
                    && places.target.join("bin/python").exists()
                    && clients::has_examples(&places)
            }
            Self::TypeScript => {
                is_current(&places, "package-lock.json") && places.target.join("agent.mjs").is_file()
            }
        }
    }
}

/// Returns the names of the installed peers, as [`VARIABLE`] carries them.
pub fn installed(root: &Path) -> String {
    let startable = |peer: &&Peer| peer.is_installed(root) && peer.missing_interpreter().is_none();
    let peers = Peer::ALL.iter().filter(startable).map(|peer| peer.name());
    let agents = OtherAgent::ALL.iter().filter(|agent| agent.is_installed(root)).map(|agent| agent.name());
    let clients =
        OtherClient::ALL.iter().filter(|client| client.is_installed(root)).map(|client| client.name());
    let mcp = McpClient::ALL.iter().filter(|client| client.is_installed(root)).map(|client| client.name());
    let checks = McpCheck::are_installed(root).then_some(McpCheck::NAME);
    peers.chain(agents).chain(clients).chain(mcp).chain(checks).collect::<Vec<_>>().join(",")
}

/// Which peers to install.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Those that every run of the tests has.
    Usual,
    /// Also those that take long to build, or much room.
    All,
}

/// Installs peers, and says of each how that went.
pub fn install(world: &World, extent: Extent) -> Vec<Row> {
    let row = |name: &str, install: &dyn Fn() -> Outcome| Row::timed(format!("peers: {name}"), install);
    let mut rows: Vec<Row> = Peer::ALL.iter().map(|peer| row(peer.name(), &|| peer.install(world))).collect();
    rows.extend(OtherAgent::ALL.iter().map(|agent| row(agent.name(), &|| agent.install(world, extent))));
    rows.extend(OtherClient::ALL.iter().map(|client| row(client.name(), &|| client.install(world, extent))));
    rows.extend(McpClient::ALL.iter().map(|client| row(client.name(), &|| client.install(world))));
    rows.push(row(McpCheck::NAME, &|| McpCheck::install(world, extent)));
    rows.push(row(Conductor::NAME, &|| Conductor::install(world, extent)));
    rows
}

/// Returns whether a peer can be tested here. One that was installed for this run must be.
pub fn is_there(name: &str, command: &[String]) -> bool {
    let there = match std::env::var(VARIABLE) {
        Ok(installed) => installed.split(',').any(|installed| installed == name),
        Err(_) => are_files(command),
    };
    if !there {
        println!("SKIPPED: the {name} peer is not installed; run `cargo xtask peers`");
    }
    there
}

/// Returns whether every file that a command names is there.
pub fn are_files(command: &[String]) -> bool {
    command.iter().filter(|word| word.contains('/')).all(|word| Path::new(word).exists())
}

/// Returns what Python must be installed, if there is none that can make the environments.
pub(crate) fn missing_python() -> Option<&'static str> {
    (!works("python3".as_ref(), &["-c", PYTHON_WILL_DO])).then_some(PYTHON)
}

fn works(program: &Path, args: &[&str]) -> bool {
    succeeds(Command::new(program).args(args))
}

fn has_node() -> bool {
    works("node".as_ref(), &["-e", NODE_WILL_DO]) && works("npm".as_ref(), &["--version"])
}

/// Where a peer is written down, and where it is installed.
struct Places {
    source: PathBuf,
    target: PathBuf,
}

impl Places {
    fn of(peer: Peer, root: &Path) -> Self {
        Self::named(peer.name(), root)
    }

    fn named(name: &str, root: &Path) -> Self {
        Self { source: root.join("tests/peers").join(name), target: root.join("target/peers").join(name) }
    }
}

fn build_rust(root: &Path, places: &Places) -> anyhow::Result<()> {
    // Cargo itself knows whether there is anything to do.
    let mut build = cargo(root, &["build", "--release", "--locked", "--manifest-path"]);
    build.arg(places.source.join("Cargo.toml")).arg("--target-dir").arg(&places.target);
    run_as_progress(&mut build)
}

fn install_python(places: &Places) -> anyhow::Result<()> {
    install_requirements("python3".as_ref(), &places.source.join("requirements.txt"), &places.target, &[])?;
    clients::unpack_examples(places)
}

/// Makes an environment with the packages that `requirements` pins, unless it is there; `how` goes to pip.
pub(crate) fn install_requirements(
    python: &Path,
    requirements: &Path,
    target: &Path,
    how: &[&str],
) -> anyhow::Result<()> {
    let installed = target.join("bin/python");
    if is_copy(requirements, &target.join(STAMP)) && installed.exists() {
        return Ok(());
    }
    run_as_progress(Command::new(python).args(["-m", "venv", "--clear"]).arg(target))?;
    let mut pip = Command::new(installed);
    pip.args(["-m", "pip", "install", "--no-input", "--progress-bar", "off"]).args(how);
    run_as_progress(pip.arg("--requirement").arg(requirements))?;
    keep_copy(requirements, &target.join(STAMP))
}

fn install_typescript(places: &Places) -> anyhow::Result<()> {
    // Node looks for packages from a program's own folder upwards, so the programs go beside them.
    copy_files(&places.source, &places.target)?;
    if is_current(places, "package-lock.json") && places.target.join("node_modules").is_dir() {
        return Ok(());
    }
    let mut npm = Command::new("npm");
    npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(&places.target);
    run_as_progress(&mut npm)?;
    stamp(places, "package-lock.json")
}

fn copy_files(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot list {}", from.display()))? {
        let file = entry?.path();
        if let Some(name) = file.file_name().filter(|_| file.is_file()) {
            fs::copy(&file, to.join(name)).with_context(|| format!("cannot copy {}", file.display()))?;
        }
    }
    Ok(())
}

/// Whether the packages that `lock` pins are those installed.
fn is_current(places: &Places, lock: &str) -> bool {
    is_copy(&places.source.join(lock), &places.target.join(STAMP))
}

fn is_copy(pinned: &Path, installed: &Path) -> bool {
    matches!((fs::read(pinned), fs::read(installed)), (Ok(pinned), Ok(installed)) if pinned == installed)
}

fn stamp(places: &Places, lock: &str) -> anyhow::Result<()> {
    keep_copy(&places.source.join(lock), &places.target.join(STAMP))
}

fn keep_copy(lock: &Path, stamp: &Path) -> anyhow::Result<()> {
    fs::copy(lock, stamp).with_context(|| format!("cannot keep a copy of {}", lock.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Peer, Places, copy_files, installed, is_current, stamp};
    use std::fs;

    #[test]
    fn packages_are_current_until_what_pins_them_changes() {
        let root = tempfile::tempdir().unwrap();
        let places = Places::of(Peer::Python, root.path());
        fs::create_dir_all(&places.source).unwrap();
        fs::create_dir_all(&places.target).unwrap();
        assert!(!is_current(&places, "requirements.txt"), "nothing is pinned");

        fs::write(places.source.join("requirements.txt"), "acp==1\n").unwrap();
        assert!(!is_current(&places, "requirements.txt"), "nothing is installed");

        stamp(&places, "requirements.txt").unwrap();
        assert!(is_current(&places, "requirements.txt"));

        fs::write(places.source.join("requirements.txt"), "acp==2\n").unwrap();
        assert!(!is_current(&places, "requirements.txt"), "another version is pinned");
    }

    #[test]
    fn the_versions_are_those_that_are_pinned() {
        let pinned = [
            include_str!("../../tests/peers/rust/Cargo.toml"),
            include_str!("../../tests/peers/python/requirements.txt"),
            include_str!("../../tests/peers/typescript/package.json"),
        ];
        let words =
            ["agent-client-protocol = { version = \"=$\"", "agent-client-protocol==$", "/sdk\": \"$\""];
        for ((peer, pinned), words) in Peer::ALL.into_iter().zip(pinned).zip(words) {
            assert!(pinned.contains(&words.replace('$', peer.sdk_version())), "{}", peer.name());
        }
    }

    #[test]
    fn a_peer_is_installed_once_its_program_and_packages_are_there() {
        let root = tempfile::tempdir().unwrap();
        let typescript = Places::of(Peer::TypeScript, root.path());
        fs::create_dir_all(&typescript.source).unwrap();
        fs::write(typescript.source.join("agent.mjs"), "").unwrap();
        fs::write(typescript.source.join("package-lock.json"), "{}").unwrap();
        copy_files(&typescript.source, &typescript.target).unwrap();
        assert!(!Peer::TypeScript.is_installed(root.path()), "its packages are not there yet");
        stamp(&typescript, "package-lock.json").unwrap();
        assert!(Peer::TypeScript.is_installed(root.path()));

        assert!(!Peer::Rust.is_installed(root.path()));
        let rust = Places::of(Peer::Rust, root.path()).target.join("release");
        fs::create_dir_all(&rust).unwrap();
        fs::write(rust.join("peer-rust-agent"), "").unwrap();
        assert!(Peer::Rust.is_installed(root.path()));
        assert_eq!(installed(root.path()).split(',').next(), Some("rust"));
    }
}
