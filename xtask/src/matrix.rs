//! The compatibility matrix: every installed agent and client against Bowline, written to `docs/compatibility.md`.

use crate::RepoContext;
use crate::bench::target_dir;
use crate::command::{cargo, run, run_as_progress};
use std::process::Command;

/// Which peers to take through the script.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct MatrixOptions {
    /// Only these peers, by the names in the table; then the page is not written
    #[arg(long, value_name = "PEER", num_args = 1.., value_delimiter = ',')]
    only: Vec<String>,
}

/// Builds Bowline and the `matrix` program, which drives the peers, and runs it.
///
/// # Errors
/// Fails when a program cannot be built or started, or when a cell of the table shows a failure that is not the peer's
/// fault.
pub fn run_matrix(world: &RepoContext, plan: &MatrixOptions) -> anyhow::Result<()> {
    let build = "build --locked --package bowline-cli --package bowline-tests --bin bowline --bin matrix";
    run_as_progress(&mut cargo(&world.root, &build.split(' ').collect::<Vec<_>>()))?;
    let programs = target_dir(&world.root).join("debug");
    let date = Command::new("date").arg("+%Y-%m-%d").output()?;
    let mut command = Command::new(programs.join("matrix"));
    command.arg(&world.root).arg(programs.join("bowline"));
    run(command.arg(String::from_utf8_lossy(&date.stdout).trim()).args(&plan.only))
}
