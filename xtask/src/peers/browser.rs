//! What the tests of the web page need: the npm packages of `tests/web`, and Chromium.

use super::{NODE_REQUIREMENT, PeerDirs, has_node, install_typescript, is_current};
use crate::RepoContext;
use crate::summary::StepOutcome;
use std::path::{Path, PathBuf};

/// Where systems have Chromium. `tests/web/harness.mjs` looks there, too.
const CHROMIUM_PATHS: [&str; 3] =
    ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
/// The npm package with a Chromium, for systems that have none.
const CHROMIUM_PACKAGE: &str = "node_modules/@sparticuz/chromium";
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
        let packages = Self::packages_dir(root);
        let chromium = find_chromium(&packages).unwrap_or_else(|| CHROMIUM_PATHS[0].into());
        let files = [packages.join("node_modules/playwright-core"), chromium];
        files.iter().map(|file| file.display().to_string()).collect()
    }

    fn dirs(root: &Path) -> PeerDirs {
        PeerDirs { source: root.join("tests/web"), target: root.join("target/peers").join(Self::NAME) }
    }

    /// Installs the packages, unless they are up to date.
    pub fn install(world: &RepoContext) -> StepOutcome {
        if !has_node() {
            return StepOutcome::missing(format!("needs {NODE_REQUIREMENT}"), world.is_ci);
        }
        let dirs = Self::dirs(&world.root);
        match install_typescript(&dirs) {
            Ok(()) if find_chromium(&dirs.target).is_none() => {
                StepOutcome::missing(format!("needs {CHROMIUM_REQUIREMENT}"), world.is_ci)
            }
            installed => StepOutcome::from_result(installed),
        }
    }

    /// Returns whether the tests can run.
    pub(super) fn is_installed(root: &Path) -> bool {
        let dirs = Self::dirs(root);
        is_current(&dirs, "package-lock.json") && find_chromium(&dirs.target).is_some() && has_node()
    }
}

/// Returns the system's Chromium, or else the one among the packages.
fn find_chromium(packages: &Path) -> Option<PathBuf> {
    let systems = CHROMIUM_PATHS.iter().map(PathBuf::from);
    systems.chain([packages.join(CHROMIUM_PACKAGE)]).find(|path| path.exists())
}

#[cfg(test)]
mod tests {
    use super::{CHROMIUM_PACKAGE, find_chromium};

    #[test]
    fn a_package_replaces_the_browser_of_the_system() {
        let packages = tempfile::tempdir().unwrap();
        let system = find_chromium(packages.path());
        std::fs::create_dir_all(packages.path().join(CHROMIUM_PACKAGE)).unwrap();
        let found = find_chromium(packages.path()).unwrap();
        assert_eq!(found, system.unwrap_or_else(|| packages.path().join(CHROMIUM_PACKAGE)));
    }
}
