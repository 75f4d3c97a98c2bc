//! What the tests of the web page need: the npm packages of `tests/web`, and Chromium.

use super::{NODE_REQUIREMENT, PeerDirs, has_node, install_typescript, is_current};
use crate::RepoContext;
use crate::summary::StepOutcome;
use std::path::{Path, PathBuf};

/// Where systems have Chromium. `tests/web/harness.mjs` looks there, too.
const CHROMIUM_PATHS: [&str; 3] =
    ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const CHROMIUM_REQUIREMENT: &str =
    "Chromium: install the system's package, as with `apt-get install chromium`";

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
        let files = [packages, find_chromium().unwrap_or_else(|| CHROMIUM_PATHS[0].into())];
        files.iter().map(|file| file.display().to_string()).collect()
    }

    fn dirs(root: &Path) -> PeerDirs {
        PeerDirs { source: root.join("tests/web"), target: root.join("target/peers").join(Self::NAME) }
    }

    /// Installs the packages, unless they are up to date. Chromium comes from the system: this installs nothing outside of
    /// the repository.
    pub fn install(world: &RepoContext) -> StepOutcome {
        let missing = match (has_node(), find_chromium()) {
            (false, _) => NODE_REQUIREMENT,
            (true, None) => CHROMIUM_REQUIREMENT,
            (true, Some(_)) => return StepOutcome::from_result(install_typescript(&Self::dirs(&world.root))),
        };
        StepOutcome::missing(format!("needs {missing}"), world.is_ci)
    }

    /// Returns whether the tests can run.
    pub(super) fn is_installed(root: &Path) -> bool {
        is_current(&Self::dirs(root), "package-lock.json") && find_chromium().is_some() && has_node()
    }
}

fn find_chromium() -> Option<PathBuf> {
    CHROMIUM_PATHS.iter().map(PathBuf::from).find(|path| path.exists())
}
