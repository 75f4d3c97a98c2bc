//! The matrix: every installed agent and client against Bowline, written to `docs/compatibility.md`.

use crate::World;
use crate::bench::target_folder;
use crate::command::{cargo, run, run_as_progress};
use std::process::Command;

/// Which peers to take through the script.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct MatrixPlan {
    /// Only these peers, by the names in the table; then the page is not written
    #[arg(long, value_name = "PEER", num_args = 1.., value_delimiter = ',')]
    only: Vec<String>,
}

/// Builds Bowline and the program that drives the peers, and runs it.
///
/// # Errors
/// Fails when something cannot be built or started, or a cell of the table is wrong and no fault of a peer.
pub fn run_matrix(world: &World, plan: &MatrixPlan) -> anyhow::Result<()> {
    let build = "build --locked --package bowline-cli --package bowline-tests --bin bowline --bin matrix";
    run_as_progress(&mut cargo(&world.root, &build.split(' ').collect::<Vec<_>>()))?;
    let programs = target_folder(&world.root).join("debug");
    let date = Command::new("date").arg("+%Y-%m-%d").output()?;
    let mut command = Command::new(programs.join("matrix"));
    command.arg(&world.root).arg(programs.join("bowline"));
    run(command.arg(String::from_utf8_lossy(&date.stdout).trim()).args(&plan.only))
}
