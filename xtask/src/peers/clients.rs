//! Third-party clients, as published, installed at pinned versions under `target/peers`.
//!
//! They drive our agent in tests. acpx depends on an older version of the TypeScript SDK, which contains the SDK's
//! example client; the example clients of the Python SDK are in its source distribution.

use super::agents::{BuildProfile, PYTHON_MISSING, find_python, install_crate, install_pinned_packages};
use super::{InstallScope, PeerDirs, SdkPeer, copy_files, is_current, write_stamp};
use crate::RepoContext;
use crate::command::run_as_progress;
use crate::summary::StepOutcome;
use anyhow::Context;
use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Needs no lock file here: the published crate contains one.
const YOPO: &str = "yopo@11.0.0";

const ACPX: &str = "node_modules/acpx/dist/cli.js";

/// The Python SDK, whose source distribution contains the examples, as pinned in `tests/peers/python/requirements.txt`.
const PYTHON_SDK: &str = "agent-client-protocol==0.12.1";
const PYTHON_SOURCES: &str = "agent_client_protocol-0.12.1";

/// A third-party client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishedClient {
    /// The npm package `acpx`: a scriptable client with files, terminals and sessions.
    Acpx,
    /// The crate `yopo`: sends one prompt, and handles only permission requests.
    Yopo,
    /// The Python package `batrachian-toad`: a terminal interface with files and terminals. A script presses its keys.
    Toad,
}

impl PublishedClient {
    /// Every client.
    pub const ALL: [Self; 3] = [Self::Acpx, Self::Yopo, Self::Toad];

    /// Returns the client's name, which is also the name of its folders.
    pub fn name(self) -> &'static str {
        match self {
            Self::Acpx => "acpx",
            Self::Yopo => "yopo",
            Self::Toad => "toad",
        }
    }

    /// Returns the command that starts the client. Callers append the client's own arguments.
    pub fn command(self, root: &Path) -> Vec<String> {
        let PeerDirs { source, target } = self.dirs(root);
        let words = match self {
            Self::Acpx => vec![node_program(&target), target.join(ACPX)],
            Self::Yopo => vec![target.join("bin/yopo")],
            Self::Toad => vec![target.join("bin/python"), source.join("drive.py")],
        };
        words.iter().map(|word| word.display().to_string()).collect()
    }

    fn dirs(self, root: &Path) -> PeerDirs {
        PeerDirs::for_name(self.name(), root)
    }

    /// Installs the client, unless it is up to date or takes too long for `extent`.
    pub(super) fn install(self, world: &RepoContext, extent: InstallScope) -> StepOutcome {
        let places = self.dirs(&world.root);
        match self {
            Self::Acpx if !super::has_node() => {
                StepOutcome::missing(format!("needs {}", super::NODE_REQUIREMENT), world.is_ci)
            }
            Self::Acpx => StepOutcome::from_result(npm_install_for_platform(&places, ACPX, &[])),
            // Two minutes of building are too long for every test run.
            Self::Yopo if extent == InstallScope::Usual && !self.is_installed(&world.root) => {
                StepOutcome::Skipped("takes minutes to build: `cargo xtask peers --all` installs it".into())
            }
            Self::Yopo => {
                StepOutcome::from_result(install_crate(&world.root, &places, YOPO, BuildProfile::Debug))
            }
            Self::Toad if extent == InstallScope::Usual && !self.is_installed(&world.root) => {
                StepOutcome::Skipped("takes 60 MB: `cargo xtask peers --all` installs it".into())
            }
            Self::Toad => match find_python() {
                // Toad declares Python 3.14; its script makes up for what an older one lacks.
                Some(python) => StepOutcome::from_result(install_pinned_packages(
                    &python,
                    &places,
                    &["--ignore-requires-python"],
                )),
                None => StepOutcome::missing(PYTHON_MISSING, world.is_ci),
            },
        }
    }

    /// Returns whether the client can be started, at the pinned version.
    pub(super) fn is_installed(self, root: &Path) -> bool {
        let places = self.dirs(root);
        match self {
            Self::Acpx => is_current(&places, "package-lock.json") && places.target.join(ACPX).is_file(),
            // Cargo decides whether the build is up to date.
            Self::Yopo => places.target.join("bin/yopo").is_file(),
            Self::Toad => is_current(&places, "requirements.txt") && places.target.join("bin/toad").is_file(),
        }
    }
}

/// Returns the command of an example client of the Python SDK, `client` or `gemini`.
pub fn python_example_command(root: &Path, name: &str) -> Vec<String> {
    let PeerDirs { target, .. } = PeerDirs::for_sdk(SdkPeer::Python, root);
    let words = [target.join("bin/python"), target.join("examples").join(format!("{name}.py"))];
    words.iter().map(|word| word.display().to_string()).collect()
}

/// Returns the command of the TypeScript SDK's example client, which starts `npx tsx agent.ts` as its agent.
pub fn typescript_example_command(root: &Path) -> Vec<String> {
    let PeerDirs { target, .. } = PublishedClient::Acpx.dirs(root);
    let client = target.join("node_modules/@agentclientprotocol/sdk/dist/examples/client.js");
    [node_program(&target), client].iter().map(|word| word.display().to_string()).collect()
}

/// Returns the Node that is installed with acpx, for programs that need a newer one than most systems have.
pub(super) fn acpx_node(root: &Path) -> PathBuf {
    node_program(&PublishedClient::Acpx.dirs(root).target)
}

/// Returns the Node that runs acpx. acpx needs a newer one than most systems have; it comes as a package, if one exists
/// for this platform.
fn node_program(target: &Path) -> PathBuf {
    let machine = match ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    };
    let packaged = target.join(format!("node_modules/node-linux-{machine}/bin/node"));
    if packaged.is_file() { packaged } else { "node".into() }
}

/// Installs packages of which some are for other platforms: `npm ci` requires those in the lock file, and not every
/// registry has them. `how` is passed to npm.
pub(super) fn npm_install_for_platform(places: &PeerDirs, program: &str, how: &[&str]) -> anyhow::Result<()> {
    if is_current(places, "package-lock.json") && places.target.join(program).is_file() {
        return Ok(());
    }
    copy_files(&places.source, &places.target)?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"]).args(how);
    run_as_progress(npm.current_dir(&places.target))?;
    write_stamp(places, "package-lock.json")
}

/// Returns whether the examples of the Python SDK are unpacked.
pub(super) fn has_examples(places: &PeerDirs) -> bool {
    places.target.join("examples/gemini.py").is_file()
}

/// Downloads the source distribution of the Python SDK and extracts the examples, unless that is done.
pub(super) fn unpack_examples(places: &PeerDirs) -> anyhow::Result<()> {
    if has_examples(places) {
        return Ok(());
    }
    let (sources, examples) = (places.target.join("sources"), places.target.join("examples"));
    fs::create_dir_all(&examples).with_context(|| format!("cannot make {}", examples.display()))?;
    let mut pip = Command::new(places.target.join("bin/python"));
    pip.args(["-m", "pip", "download", "--no-input", "--progress-bar", "off", "--no-deps"]);
    run_as_progress(pip.args(["--no-binary", ":all:", PYTHON_SDK, "--dest"]).arg(&sources))?;
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(sources.join(format!("{PYTHON_SOURCES}.tar.gz"))).arg("-C").arg(examples);
    run_as_progress(tar.args(["--strip-components", "2", &format!("{PYTHON_SOURCES}/examples")]))
}

#[cfg(test)]
mod tests {
    use super::{
        PYTHON_SDK, PYTHON_SOURCES, PublishedClient, python_example_command, typescript_example_command,
    };
    use crate::RepoContext;
    use crate::peers::{InstallScope, PeerDirs, write_stamp};
    use expect_test::expect;
    use std::fs;
    use std::path::Path;

    #[test]
    fn a_client_is_started_as_its_makers_say() {
        let root = Path::new("/my repo");
        let mut commands = PublishedClient::ALL.map(|client| client.command(root).join(" ")).to_vec();
        commands.extend([
            python_example_command(root, "gemini").join(" "),
            typescript_example_command(root).join(" "),
        ]);
        expect![[r#"
            node /my repo/target/peers/acpx/node_modules/acpx/dist/cli.js
            /my repo/target/peers/yopo/bin/yopo
            /my repo/target/peers/toad/bin/python /my repo/tests/peers/toad/drive.py
            /my repo/target/peers/python/bin/python /my repo/target/peers/python/examples/gemini.py
            node /my repo/target/peers/acpx/node_modules/@agentclientprotocol/sdk/dist/examples/client.js"#]]
        .assert_eq(&commands.join("\n"));
    }

    #[test]
    fn a_client_is_installed_once_its_program_and_packages_are_there() {
        let root = tempfile::tempdir().unwrap();
        let PeerDirs { source, target } = PublishedClient::Acpx.dirs(root.path());
        fs::create_dir_all(&source).unwrap();
        fs::create_dir_all(target.join("node_modules/acpx/dist")).unwrap();
        fs::write(source.join("package-lock.json"), "{}").unwrap();
        fs::write(target.join("node_modules/acpx/dist/cli.js"), "").unwrap();
        assert!(!PublishedClient::Acpx.is_installed(root.path()), "its packages are not all there");
        write_stamp(&PeerDirs { source, target }, "package-lock.json").unwrap();
        assert!(PublishedClient::Acpx.is_installed(root.path()));
    }

    #[test]
    fn what_takes_long_or_much_room_is_left_out_and_said_so() {
        let root = tempfile::tempdir().unwrap();
        let world = RepoContext { root: root.path().to_owned(), is_ci: true };
        let costly = [PublishedClient::Yopo, PublishedClient::Toad];
        let outcomes = costly.map(|client| format!("{:?}", client.install(&world, InstallScope::Usual)));
        expect![[r#"
            Skipped("takes minutes to build: `cargo xtask peers --all` installs it")
            Skipped("takes 60 MB: `cargo xtask peers --all` installs it")"#]]
        .assert_eq(&outcomes.join("\n"));
    }

    #[test]
    fn the_examples_are_of_the_version_that_is_installed() {
        let requirements = include_str!("../../../tests/peers/python/requirements.txt");
        assert!(requirements.lines().any(|line| line == PYTHON_SDK));
        assert_eq!(PYTHON_SDK.replace('-', "_").replace("==", "-"), PYTHON_SOURCES);
    }
}
