//! What the tests of the web page need: the npm packages of `tests/web`, one of which contains Chromium.

use super::{NODE_REQUIREMENT, PeerDirs, has_node, install_typescript, is_current};
use crate::RepoContext;
use crate::command::{run_as_progress, succeeds};
use crate::summary::StepOutcome;
use std::path::{Path, PathBuf};
use std::process::Command;

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
        vec![Self::packages_dir(root).join("node_modules/playwright-core").display().to_string()]
    }

    fn dirs(root: &Path) -> PeerDirs {
        PeerDirs { source: root.join("tests/web"), target: root.join("target/peers").join(Self::NAME) }
    }

    /// Installs the packages, unless they are up to date. One of them contains Chromium, for systems without it.
    pub fn install(world: &RepoContext) -> StepOutcome {
        if !has_node() {
            return StepOutcome::missing(format!("needs {NODE_REQUIREMENT}"), world.is_ci);
        }
        if let Err(error) = install_typescript(&Self::dirs(&world.root)) {
            return StepOutcome::from_result(Err(error));
        }
        match run_as_progress(&mut Self::check(&world.root)) {
            Ok(()) => StepOutcome::Passed,
            Err(error) => {
                StepOutcome::missing(format!("needs a Chromium that starts: {error:#}"), world.is_ci)
            }
        }
    }

    /// Returns the command that unpacks the browser, if that is necessary, and starts it.
    fn check(root: &Path) -> Command {
        let mut check = Command::new("node");
        check.arg(root.join("tests/web/browser.mjs")).env("BOWLINE_WEB_PACKAGES", Self::packages_dir(root));
        check
    }

    /// Returns whether the tests can run.
    pub(super) fn is_installed(root: &Path) -> bool {
        is_current(&Self::dirs(root), "package-lock.json") && succeeds(&mut Self::check(root))
    }
}
