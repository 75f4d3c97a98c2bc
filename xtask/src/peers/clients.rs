//! Clients that others have written, as they publish them, installed at pinned versions under `target/peers`.
//!
//! They drive our agent in tests. acpx brings an older version of the TypeScript SDK, with the SDK's example client;
//! those of the Python SDK come with its sources.

use super::agents::{Built, install_crate};
use super::{Extent, Peer, Places, copy_files, is_current, stamp};
use crate::World;
use crate::command::run_as_progress;
use crate::summary::Outcome;
use anyhow::Context;
use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Has no lock file of its own here: the crate carries one.
const YOPO: &str = "yopo@11.0.0";

const ACPX: &str = "node_modules/acpx/dist/cli.js";

/// The package whose sources hold the examples, as `tests/peers/python/requirements.txt` has it, and its sources' name.
const PYTHON_SDK: &str = "agent-client-protocol==0.12.1";
const PYTHON_SOURCES: &str = "agent_client_protocol-0.12.1";

/// A client that others have written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherClient {
    /// The npm package `acpx`: a program for scripts, with files, terminals and sessions.
    Acpx,
    /// The crate `yopo`: sends one prompt, and serves nothing but permission.
    Yopo,
}

impl OtherClient {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::Acpx, Self::Yopo];

    /// Returns its name, which is also that of its folders.
    pub fn name(self) -> &'static str {
        match self {
            Self::Acpx => "acpx",
            Self::Yopo => "yopo",
        }
    }

    /// Returns the command that starts it, to which its own arguments are added.
    pub fn command(self, root: &Path) -> Vec<String> {
        let target = self.places(root).target;
        let words = match self {
            Self::Acpx => vec![node(&target), target.join(ACPX)],
            Self::Yopo => vec![target.join("bin/yopo")],
        };
        words.iter().map(|word| word.display().to_string()).collect()
    }

    fn places(self, root: &Path) -> Places {
        Places::named(self.name(), root)
    }

    /// Installs it, unless that was done before, or takes too long for what is to be installed.
    pub(super) fn install(self, world: &World, extent: Extent) -> Outcome {
        let places = self.places(&world.root);
        match self {
            Self::Acpx if !super::has_node() => Outcome::missing(format!("needs {}", super::NODE), world.ci),
            Self::Acpx => Outcome::of(install_for_this_machine(&places, ACPX, &[])),
            // Its two minutes of building are not worth it in every run.
            Self::Yopo if extent == Extent::Usual && !self.is_installed(&world.root) => {
                Outcome::Skipped("takes minutes to build: `cargo xtask peers --all` installs it".into())
            }
            Self::Yopo => Outcome::of(install_crate(&world.root, &places, YOPO, Built::Quickly)),
        }
    }

    /// Whether it can be started, at the version that is pinned now.
    pub(super) fn is_installed(self, root: &Path) -> bool {
        let places = self.places(root);
        match self {
            Self::Acpx => is_current(&places, "package-lock.json") && places.target.join(ACPX).is_file(),
            // Cargo itself knows what is there.
            Self::Yopo => places.target.join("bin/yopo").is_file(),
        }
    }
}

/// Returns the command of an example client of the Python SDK, `client` or `gemini`.
pub fn python_example(root: &Path, name: &str) -> Vec<String> {
    let Places { target, .. } = Places::of(Peer::Python, root);
    let words = [target.join("bin/python"), target.join("examples").join(format!("{name}.py"))];
    words.iter().map(|word| word.display().to_string()).collect()
}

/// Returns the command of the example client of the TypeScript SDK, which starts `npx tsx agent.ts` as its agent.
pub fn typescript_example(root: &Path) -> Vec<String> {
    let Places { target, .. } = OtherClient::Acpx.places(root);
    let client = target.join("node_modules/@agentclientprotocol/sdk/dist/examples/client.js");
    [node(&target), client].iter().map(|word| word.display().to_string()).collect()
}

/// Returns the Node that acpx brings, for whoever else needs a newer one than most systems have.
pub(super) fn newer_node(root: &Path) -> PathBuf {
    node(&OtherClient::Acpx.places(root).target)
}

/// acpx needs a newer Node than most systems have, which comes as a package where there is one for this machine.
fn node(target: &Path) -> PathBuf {
    let machine = match ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    };
    let packaged = target.join(format!("node_modules/node-linux-{machine}/bin/node"));
    if packaged.is_file() { packaged } else { "node".into() }
}

/// Installs packages of which some are for other machines: `npm ci` wants those to be in the lock file, and not every
/// registry has them. `how` goes to npm.
pub(super) fn install_for_this_machine(places: &Places, program: &str, how: &[&str]) -> anyhow::Result<()> {
    if is_current(places, "package-lock.json") && places.target.join(program).is_file() {
        return Ok(());
    }
    copy_files(&places.source, &places.target)?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"]).args(how);
    run_as_progress(npm.current_dir(&places.target))?;
    stamp(places, "package-lock.json")
}

/// Whether the examples of the Python SDK are there.
pub(super) fn has_examples(places: &Places) -> bool {
    places.target.join("examples/gemini.py").is_file()
}

/// Fetches the sources of the Python SDK and takes the examples out of them, unless that was done before.
pub(super) fn unpack_examples(places: &Places) -> anyhow::Result<()> {
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
    use super::{OtherClient, PYTHON_SDK, PYTHON_SOURCES, python_example, typescript_example};
    use crate::World;
    use crate::peers::{Extent, Places, stamp};
    use expect_test::expect;
    use std::fs;
    use std::path::Path;

    #[test]
    fn a_client_is_started_as_its_makers_say() {
        let root = Path::new("/my repo");
        let mut commands = OtherClient::ALL.map(|client| client.command(root).join(" ")).to_vec();
        commands.extend([python_example(root, "gemini").join(" "), typescript_example(root).join(" ")]);
        expect![[r#"
            node /my repo/target/peers/acpx/node_modules/acpx/dist/cli.js
            /my repo/target/peers/yopo/bin/yopo
            /my repo/target/peers/python/bin/python /my repo/target/peers/python/examples/gemini.py
            node /my repo/target/peers/acpx/node_modules/@agentclientprotocol/sdk/dist/examples/client.js"#]]
        .assert_eq(&commands.join("\n"));
    }

    #[test]
    fn a_client_is_installed_once_its_program_and_packages_are_there() {
        let root = tempfile::tempdir().unwrap();
        let Places { source, target } = OtherClient::Acpx.places(root.path());
        fs::create_dir_all(&source).unwrap();
        fs::create_dir_all(target.join("node_modules/acpx/dist")).unwrap();
        fs::write(source.join("package-lock.json"), "{}").unwrap();
        fs::write(target.join("node_modules/acpx/dist/cli.js"), "").unwrap();
        assert!(!OtherClient::Acpx.is_installed(root.path()), "its packages are not all there");
        stamp(&Places { source, target }, "package-lock.json").unwrap();
        assert!(OtherClient::Acpx.is_installed(root.path()));
    }

    #[test]
    fn what_takes_long_to_build_is_left_out_and_said_so() {
        let root = tempfile::tempdir().unwrap();
        let world = World { root: root.path().to_owned(), ci: true };
        let outcome = OtherClient::Yopo.install(&world, Extent::Usual);
        expect![[r#"Skipped("takes minutes to build: `cargo xtask peers --all` installs it")"#]]
            .assert_eq(&format!("{outcome:?}"));
    }

    #[test]
    fn the_examples_are_of_the_version_that_is_installed() {
        let requirements = include_str!("../../../tests/peers/python/requirements.txt");
        assert!(requirements.lines().any(|line| line == PYTHON_SDK));
        assert_eq!(PYTHON_SDK.replace('-', "_").replace("==", "-"), PYTHON_SOURCES);
    }
}
