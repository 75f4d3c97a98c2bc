//! The peers: programs on the official SDKs, and third-party agents and clients, at pinned versions.
//!
//! They are installed under `target/peers`. The SDK peers are started like this, from the root of the repository:
//!
//! | peer | agent | client |
//! |---|---|---|
//! | `rust` | `target/peers/rust/release/peer-rust-agent` | `target/peers/rust/release/peer-rust-client` |
//! | `python` | `target/peers/python/bin/python tests/peers/python/agent.py` | the same with `client.py` |
//! | `python-web` | `target/peers/python-web/bin/python tests/peers/python/agent.py` | the same with `client.py` |
//! | `typescript` | `node target/peers/typescript/agent.mjs` | the same with `client.mjs` |
//!
//! Tests and benchmarks that `cargo xtask` starts read the names of the installed peers, separated by commas, from the
//! variable [`PEERS_VARIABLE`]. A test of a named peer must run; a test of any other peer reports that it was skipped.
//! Without the variable, as in a plain `cargo test`, a test checks whether the peer's program exists.

use crate::RepoContext;
use crate::command::{cargo, run_as_progress, succeeds};
use crate::summary::{StepOutcome, SummaryRow};
use anyhow::Context;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

mod agents;
mod browser;
mod clients;
mod conductor;
mod mcp;
mod postgres;
mod python_web;

pub use agents::PublishedAgent;
pub use browser::WebBrowser;
pub use clients::{PublishedClient, python_example_command, typescript_example_command};
pub use conductor::Conductor;
pub use mcp::{McpCheck, McpClient};
pub use postgres::{PgBouncer, Postgres};
pub use python_web::PythonWeb;

/// The environment variable that lists the installed peers.
pub const PEERS_VARIABLE: &str = "BOWLINE_PEERS";

/// The file with a copy of the lock file that a peer was installed from. While the two are equal, the installation is
/// current.
const STAMP_FILE: &str = "installed-from";

/// A script that succeeds on an interpreter that can create the virtual environment.
const PYTHON_CHECK: &str = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))";
const PYTHON_REQUIREMENT: &str = "Python 3.11 or later with venv: install it so that `python3` finds it";
const NODE_CHECK: &str = "process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)";
const NODE_REQUIREMENT: &str = "Node 20 or later with npm: install them so that `node` and `npm` find them";

/// One of the official SDKs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SdkPeer {
    /// The crate `agent-client-protocol`.
    Rust,
    /// The Python package `agent-client-protocol`.
    Python,
    /// The npm package `@agentclientprotocol/sdk`.
    TypeScript,
}

impl SdkPeer {
    /// Every peer.
    pub const ALL: [Self; 3] = [Self::Rust, Self::Python, Self::TypeScript];

    /// Returns whether installing these peers includes this one. Rust's takes a minute to build, and Python's tests a minute
    /// to run.
    fn is_in(self, scope: InstallScope) -> bool {
        scope != InstallScope::Sdk || self == Self::TypeScript
    }

    /// Returns the peer's name, which is also the name of its folders.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::Python => "python",
            Self::TypeScript => "typescript",
        }
    }

    /// Returns the version of the SDK that the peer is built on.
    pub fn sdk_version(self) -> &'static str {
        match self {
            Self::Rust => "5.0.0",
            Self::Python => "0.12.1",
            Self::TypeScript => "2.4.0",
        }
    }

    /// Returns the command that starts the peer's agent.
    pub fn agent_command(self, root: &Path) -> Vec<String> {
        self.program(root, "agent")
    }

    /// Returns the command that starts the peer's client. Callers append the client's own arguments.
    pub fn client_command(self, root: &Path) -> Vec<String> {
        self.program(root, "client")
    }

    fn program(self, root: &Path, end: &str) -> Vec<String> {
        let PeerDirs { source, target } = PeerDirs::for_sdk(self, root);
        let words = match self {
            Self::Rust => vec![target.join(format!("release/peer-rust-{end}"))],
            Self::Python => vec![target.join("bin/python"), source.join(format!("{end}.py"))],
            Self::TypeScript => vec!["node".into(), target.join(format!("{end}.mjs"))],
        };
        words.iter().map(|word| word.display().to_string()).collect()
    }

    /// Installs or builds the peer, unless it is up to date.
    pub fn install(self, world: &RepoContext, speed: PeerSpeed) -> StepOutcome {
        if let Some(missing) = self.missing_interpreter() {
            return StepOutcome::missing(format!("needs {missing}"), world.is_ci);
        }
        let places = PeerDirs::for_sdk(self, &world.root);
        StepOutcome::from_result(match self {
            Self::Rust => build_rust(&world.root, &places, speed),
            Self::Python => install_python(&places),
            Self::TypeScript => install_typescript(&places),
        })
    }

    /// Returns the interpreter that is missing on this machine and that the peer needs, if any.
    fn missing_interpreter(self) -> Option<&'static str> {
        match self {
            Self::Rust => None,
            Self::Python => missing_python(),
            Self::TypeScript => (!has_node()).then_some(NODE_REQUIREMENT),
        }
    }

    /// Returns whether the peer is built, or its installed packages match the pinned ones.
    fn is_installed(self, root: &Path) -> bool {
        let places = PeerDirs::for_sdk(self, root);
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

/// Returns the names of the installed peers that a test run uses, as [`PEERS_VARIABLE`] carries them.
pub fn installed_names(root: &Path, extent: InstallScope) -> String {
    let startable = |peer: &&SdkPeer| {
        peer.is_in(extent) && peer.is_installed(root) && peer.missing_interpreter().is_none()
    };
    let peers = SdkPeer::ALL.iter().filter(startable).map(|peer| peer.name());
    let peers = peers.chain(PythonWeb::is_installed(root).then_some(PythonWeb::NAME));
    let peers = peers.chain(WebBrowser::is_installed(root).then_some(WebBrowser::NAME));
    if extent == InstallScope::Sdk {
        return peers.collect::<Vec<_>>().join(",");
    }
    let agents =
        PublishedAgent::ALL.iter().filter(|agent| agent.is_installed(root)).map(|agent| agent.name());
    let clients =
        PublishedClient::ALL.iter().filter(|client| client.is_installed(root)).map(|client| client.name());
    let mcp = McpClient::ALL.iter().filter(|client| client.is_installed(root)).map(|client| client.name());
    let checks = McpCheck::are_installed(root).then_some(McpCheck::NAME);
    peers.chain(agents).chain(clients).chain(mcp).chain(checks).collect::<Vec<_>>().join(",")
}

/// How a peer in Rust is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerSpeed {
    /// Quickly, for tests.
    Unoptimised,
    /// With optimisation, to be measured.
    Optimised,
}

/// Which peers to install.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstallScope {
    /// The programs on the official SDK for TypeScript, the pre-release of that for Python, PostgreSQL, and the browser of the
    /// web page, which every test run has.
    Sdk,
    /// Also those on the SDKs for Rust and Python, and the agents and clients of others that are quick to install.
    Usual,
    /// Also the peers that take long to build or much disk space.
    All,
}

/// Installs peers, and returns the outcome of each.
pub fn install_peers(world: &RepoContext, extent: InstallScope) -> Vec<SummaryRow> {
    let row =
        |name: &str, install: &dyn Fn() -> StepOutcome| SummaryRow::timed(format!("peers: {name}"), install);
    let mut rows: Vec<SummaryRow> = SdkPeer::ALL
        .iter()
        .filter(|peer| peer.is_in(extent))
        .map(|peer| row(peer.name(), &|| peer.install(world, PeerSpeed::Unoptimised)))
        .collect();
    rows.push(row(PythonWeb::NAME, &|| PythonWeb::install(world)));
    rows.push(row(WebBrowser::NAME, &|| WebBrowser::install(world)));
    rows.push(row(Postgres::NAME, &|| Postgres::install(world)));
    rows.push(row(PgBouncer::NAME, &|| PgBouncer::install(world)));
    if extent == InstallScope::Sdk {
        return rows;
    }
    rows.extend(PublishedAgent::ALL.iter().map(|agent| row(agent.name(), &|| agent.install(world, extent))));
    rows.extend(
        PublishedClient::ALL.iter().map(|client| row(client.name(), &|| client.install(world, extent))),
    );
    rows.extend(McpClient::ALL.iter().map(|client| row(client.name(), &|| client.install(world))));
    rows.push(row(McpCheck::NAME, &|| McpCheck::install(world, extent)));
    rows.push(row(Conductor::NAME, &|| Conductor::install(world, extent)));
    rows
}

/// Returns whether a peer can be tested here. A peer that was installed for this run must be testable.
pub fn is_available(name: &str, command: &[String]) -> bool {
    let there = match std::env::var(PEERS_VARIABLE) {
        Ok(installed) => installed.split(',').any(|installed| installed == name),
        Err(_) => all_files_exist(command),
    };
    if !there {
        println!("SKIPPED: the {name} peer is not installed; run `cargo xtask peers`");
    }
    there
}

/// Returns whether every file named in a command exists.
pub fn all_files_exist(command: &[String]) -> bool {
    command.iter().filter(|word| word.contains('/')).all(|word| Path::new(word).exists())
}

/// Returns a description of the Python to install, if no interpreter here can create the virtual environments.
pub(crate) fn missing_python() -> Option<&'static str> {
    (!runs_successfully("python3".as_ref(), &["-c", PYTHON_CHECK])).then_some(PYTHON_REQUIREMENT)
}

fn runs_successfully(program: &Path, args: &[&str]) -> bool {
    succeeds(Command::new(program).args(args))
}

fn has_node() -> bool {
    runs_successfully("node".as_ref(), &["-e", NODE_CHECK])
        && runs_successfully("npm".as_ref(), &["--version"])
}

/// A peer's sources in the repository, and its installation directory.
struct PeerDirs {
    source: PathBuf,
    target: PathBuf,
}

impl PeerDirs {
    fn for_sdk(peer: SdkPeer, root: &Path) -> Self {
        Self::for_name(peer.name(), root)
    }

    fn for_name(name: &str, root: &Path) -> Self {
        Self { source: root.join("tests/peers").join(name), target: root.join("target/peers").join(name) }
    }
}

fn build_rust(root: &Path, places: &PeerDirs, speed: PeerSpeed) -> anyhow::Result<()> {
    // Cargo does nothing if the build is up to date.
    let mut build = cargo(root, &["build", "--release", "--locked", "--manifest-path"]);
    build.arg(places.source.join("Cargo.toml")).arg("--target-dir").arg(&places.target);
    if speed == PeerSpeed::Unoptimised {
        // A benchmark builds it again, because it sets no such variable.
        build.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0");
    }
    run_as_progress(&mut build)
}

fn install_python(places: &PeerDirs) -> anyhow::Result<()> {
    install_requirements("python3".as_ref(), &places.source.join("requirements.txt"), &places.target, &[])?;
    clients::unpack_examples(places)
}

/// Creates a virtual environment with the packages that `requirements` pins, unless it exists; `how` is passed to pip.
pub(crate) fn install_requirements(
    python: &Path,
    requirements: &Path,
    target: &Path,
    how: &[&str],
) -> anyhow::Result<()> {
    let installed = target.join("bin/python");
    if have_same_content(requirements, &target.join(STAMP_FILE)) && installed.exists() {
        return Ok(());
    }
    run_as_progress(Command::new(python).args(["-m", "venv", "--clear"]).arg(target))?;
    let mut pip = Command::new(installed);
    pip.args(["-m", "pip", "install", "--no-input", "--progress-bar", "off"]).args(how);
    run_as_progress(pip.arg("--requirement").arg(requirements))?;
    copy_lock(requirements, &target.join(STAMP_FILE))
}

fn install_typescript(places: &PeerDirs) -> anyhow::Result<()> {
    // Node resolves packages from a program's own folder upwards, so the programs are copied next to `node_modules`.
    copy_files(&places.source, &places.target)?;
    if is_current(places, "package-lock.json") && places.target.join("node_modules").is_dir() {
        return Ok(());
    }
    let mut npm = Command::new("npm");
    npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(&places.target);
    run_as_progress(&mut npm)?;
    write_stamp(places, "package-lock.json")
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

/// Returns whether the installed packages are those that `lock` pins.
fn is_current(places: &PeerDirs, lock: &str) -> bool {
    have_same_content(&places.source.join(lock), &places.target.join(STAMP_FILE))
}

fn have_same_content(pinned: &Path, installed: &Path) -> bool {
    matches!((fs::read(pinned), fs::read(installed)), (Ok(pinned), Ok(installed)) if pinned == installed)
}

fn write_stamp(places: &PeerDirs, lock: &str) -> anyhow::Result<()> {
    copy_lock(&places.source.join(lock), &places.target.join(STAMP_FILE))
}

fn copy_lock(lock: &Path, stamp: &Path) -> anyhow::Result<()> {
    fs::copy(lock, stamp).with_context(|| format!("cannot keep a copy of {}", lock.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{InstallScope, PeerDirs, SdkPeer, copy_files, installed_names, is_current, write_stamp};
    use std::fs;

    #[test]
    fn packages_are_current_until_what_pins_them_changes() {
        let root = tempfile::tempdir().unwrap();
        let places = PeerDirs::for_sdk(SdkPeer::Python, root.path());
        fs::create_dir_all(&places.source).unwrap();
        fs::create_dir_all(&places.target).unwrap();
        assert!(!is_current(&places, "requirements.txt"), "nothing is pinned");

        fs::write(places.source.join("requirements.txt"), "acp==1\n").unwrap();
        assert!(!is_current(&places, "requirements.txt"), "nothing is installed");

        write_stamp(&places, "requirements.txt").unwrap();
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
        for ((peer, pinned), words) in SdkPeer::ALL.into_iter().zip(pinned).zip(words) {
            assert!(pinned.contains(&words.replace('$', peer.sdk_version())), "{}", peer.name());
        }
    }

    #[test]
    fn a_peer_is_installed_once_its_program_and_packages_are_there() {
        let root = tempfile::tempdir().unwrap();
        let typescript = PeerDirs::for_sdk(SdkPeer::TypeScript, root.path());
        fs::create_dir_all(&typescript.source).unwrap();
        fs::write(typescript.source.join("agent.mjs"), "").unwrap();
        fs::write(typescript.source.join("package-lock.json"), "{}").unwrap();
        copy_files(&typescript.source, &typescript.target).unwrap();
        assert!(!SdkPeer::TypeScript.is_installed(root.path()), "its packages are not there yet");
        write_stamp(&typescript, "package-lock.json").unwrap();
        assert!(SdkPeer::TypeScript.is_installed(root.path()));

        assert!(!SdkPeer::Rust.is_installed(root.path()));
        let rust = PeerDirs::for_sdk(SdkPeer::Rust, root.path()).target.join("release");
        fs::create_dir_all(&rust).unwrap();
        fs::write(rust.join("peer-rust-agent"), "").unwrap();
        assert!(SdkPeer::Rust.is_installed(root.path()));
        assert_eq!(installed_names(root.path(), InstallScope::All).split(',').next(), Some("rust"));
    }
}
