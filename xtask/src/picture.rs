//! The picture in the README, drawn from the screen of the real `bowline chat`.

use crate::RepoContext;
use crate::bench::target_dir;
use crate::command::{cargo, run, run_as_progress};
use std::process::Command;

/// Builds Bowline and the program `picture`, which plays the scene, and writes `docs/images/chat.svg`.
///
/// # Errors
/// Fails when a program cannot be built or started, or when the scene does not appear on the screen.
pub fn draw_picture(world: &RepoContext) -> anyhow::Result<()> {
    let build = "build --locked --package bowline-cli --package bowline-tests --bin bowline --bin picture";
    run_as_progress(&mut cargo(&world.root, &build.split(' ').collect::<Vec<_>>()))?;
    let programs = target_dir(&world.root).join("debug");
    run(Command::new(programs.join("picture")).arg(&world.root).arg(programs.join("bowline")))
}
