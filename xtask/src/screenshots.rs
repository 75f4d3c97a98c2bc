//! The pictures of the web page, taken from the real page in Chromium.

use crate::RepoContext;
use crate::bench::target_dir;
use crate::command::{cargo, run, run_as_progress};
use crate::peers::WebBrowser;
use crate::summary::StepOutcome;
use anyhow::bail;
use std::process::Command;

/// Builds Bowline, plays the scenes of `tests/web/screenshots.mjs` and writes `docs/images/web-*.png`.
///
/// # Errors
/// Fails when Chromium is missing, or when a scene does not appear on the page.
pub fn take_screenshots(world: &RepoContext) -> anyhow::Result<()> {
    if let StepOutcome::Failed(why) | StepOutcome::Skipped(why) = WebBrowser::install(world) {
        bail!(why);
    }
    run_as_progress(&mut cargo(&world.root, &["build", "--locked", "--package", "bowline-cli"]))?;
    let mut scenes = Command::new("node");
    scenes
        .arg(world.root.join("tests/web/screenshots.mjs"))
        .arg(world.root.join("docs/images"))
        .env("BOWLINE_BIN", target_dir(&world.root).join("debug/bowline"))
        .env("BOWLINE_WEB_PACKAGES", WebBrowser::packages_dir(&world.root));
    run(&mut scenes)
}
