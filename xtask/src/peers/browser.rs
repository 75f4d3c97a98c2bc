//! What the tests of the web page need: the npm packages of `tests/web`, and Chromium.

use super::{NODE_REQUIREMENT, PeerDirs, has_node, install_typescript, is_current};
use crate::RepoContext;
use crate::command::run_as_progress;
use crate::summary::StepOutcome;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where systems have Chromium. `tests/web/harness.mjs` looks there, too.
const CHROMIUM_PATHS: [&str; 3] =
    ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const CHROMIUM_REQUIREMENT: &str = "Chromium: install it, as with `apt-get install chromium`";

/// The browser and the packages that drive it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WebBrowser;

impl WebBrowser {
    /// The name of the tests, which is also the name of their folders.
    pub const NAME: &'static str = "web";

    /// Returns the directory that has the npm packages.
    pub fn packages_dir(root: &Path) -> PathBuf {
        Self::dirs(root).target
    }

    /// Returns the files that must exist for the tests to run.
    pub fn required_files(root: &Path) -> Vec<String> {
        let packages = Self::packages_dir(root).join("node_modules/playwright-core");
        let chromium = find_chromium().unwrap_or_else(|| CHROMIUM_PATHS[0].into());
        vec![packages.display().to_string(), chromium.display().to_string()]
    }

    fn dirs(root: &Path) -> PeerDirs {
        PeerDirs { source: root.join("tests/web"), target: root.join("target/peers/web") }
    }

    /// Installs the packages, unless they are up to date. Chromium comes from the system: an unattended run installs
    /// the package of Debian, a person does it.
    pub fn install(world: &RepoContext) -> StepOutcome {
        if !has_node() {
            return StepOutcome::missing(format!("needs {NODE_REQUIREMENT}"), world.is_ci);
        }
        if find_chromium().is_none() && world.is_ci {
            let mut apt = Command::new("apt-get");
            apt.args(["install", "--yes", "--no-install-recommends", "chromium"]);
            if let Err(error) = run_as_progress(&mut apt) {
                return StepOutcome::missing(
                    format!("needs {CHROMIUM_REQUIREMENT} ({error:#})"),
                    world.is_ci,
                );
            }
        }
        if find_chromium().is_none() {
            return StepOutcome::missing(format!("needs {CHROMIUM_REQUIREMENT}"), world.is_ci);
        }
        StepOutcome::from_result(install_typescript(&Self::dirs(&world.root)))
    }

    /// Returns whether the tests can run.
    pub(super) fn is_installed(root: &Path) -> bool {
        is_current(&Self::dirs(root), "package-lock.json") && find_chromium().is_some() && has_node()
    }
}

fn find_chromium() -> Option<PathBuf> {
    CHROMIUM_PATHS.iter().map(PathBuf::from).find(|path| path.exists())
}
