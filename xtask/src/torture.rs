//! The torture run: programs save in every known style, against an agent, undos and kills, and no line may be lost.
//!
//! A run is a sequence of rounds, each with its own project and journal, so that disk and memory use stay bounded.
//! Round `r` of seed `s` equals round 0 of seed `s + r`: a loss can be reproduced with the seed in its report.

mod acp;
mod agent;
mod checker;
mod editor;
mod mcp;
mod random;
mod record;
mod report;
mod round;
mod round_dir;
mod saver;
mod style;
mod wire;

pub use agent::{AgentFiles, ReadOutcome, TortureAgent, TortureAgentOptions, WriteOutcome};
pub use saver::SaverOptions;
pub use style::{EntryPoint, SaveStyle};

use crate::RepoContext;
use crate::bench::target_dir;
use crate::command::{cargo, run, run_as_progress};
use anyhow::Context as _;
use clap::{Parser, Subcommand, ValueEnum};
use report::TortureReport;
use round_dir::{RoundDir, TorturePrograms};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// The maximum number of saves per program and round: the file of a program that only appends grows with every save.
const MAX_SAVES_PER_ROUND: usize = 600;

/// How long and how to torture.
#[derive(Debug, Clone, clap::Args)]
pub struct TortureOptions {
    /// Begin no new round after so many seconds; without it and --saves, 60
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Save so often in each style, over all rounds
    #[arg(long, value_name = "N")]
    saves: Option<usize>,
    /// What the random choices are made from
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Only these styles
    #[arg(long, value_name = "STYLE", value_delimiter = ',')]
    style: Vec<SaveStyle>,
    /// Only these ways of the agent to the files; rounds take them in turn
    #[arg(long, value_name = "FRONT", value_delimiter = ',')]
    front: Vec<EntryPoint>,
    /// Where the rounds take place; `torture` beside what cargo makes if not given
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
}

impl TortureOptions {
    fn to_arguments(&self) -> Vec<String> {
        let names = |names: Vec<&str>| (!names.is_empty()).then(|| names.join(","));
        let pairs = [
            ("--seconds", self.seconds.map(|seconds| seconds.to_string())),
            ("--saves", self.saves.map(|saves| saves.to_string())),
            ("--seed", Some(self.seed.to_string())),
            ("--style", names(self.style.iter().map(|style| style.name()).collect())),
            ("--front", names(self.front.iter().map(|front| front.name()).collect())),
            ("--directory", self.directory.as_ref().map(|directory| directory.display().to_string())),
        ];
        let given = pairs.into_iter().filter_map(|(name, value)| Some([name.to_owned(), value?]));
        given.flatten().collect()
    }
}

/// Builds Bowline and the torture program, and runs it.
///
/// # Errors
/// Fails when a build fails or a line is not accounted for.
pub fn run_torture(world: &RepoContext, plan: &TortureOptions, release: bool) -> anyhow::Result<()> {
    let profile = if release { "release" } else { "dev" };
    let build = format!(
        "build --profile {profile} --locked --package bowline-cli --package bowline-tests --bin bowline --bin torture"
    );
    run_as_progress(&mut cargo(&world.root, &build.split(' ').collect::<Vec<_>>()))?;
    let target = target_dir(&world.root);
    let programs = target.join(if release { "release" } else { "debug" });
    let directory = plan.directory.clone().unwrap_or_else(|| target.join("torture"));
    let plan = TortureOptions { directory: Some(directory), ..plan.clone() };
    let mut command = Command::new(programs.join("torture"));
    run(command.arg("run").arg("--bowline").arg(programs.join("bowline")).args(plan.to_arguments()))
}

#[derive(Parser)]
#[command(name = "torture")]
struct TortureCli {
    #[command(subcommand)]
    command: TortureCommand,
}

/// The parts that the program plays.
#[derive(Subcommand)]
enum TortureCommand {
    /// All rounds; exits with 1 if a line is not accounted for
    Run {
        /// The program under torture
        #[arg(long)]
        bowline: PathBuf,
        #[command(flatten)]
        plan: TortureOptions,
    },
    /// A saving program
    Saver(SaverOptions),
    /// An agent that speaks ACP
    Agent(TortureAgentOptions),
    /// An agent on the engine itself
    Engine(TortureAgentOptions),
}

/// Runs the role that the command line names. The caller provides the engine, because this crate depends on no crate of
/// Bowline.
pub fn torture_main(engine: fn(&TortureAgentOptions) -> anyhow::Result<()>) -> ExitCode {
    let played = match TortureCli::parse().command {
        TortureCommand::Run { bowline, plan } => run_rounds(bowline, &plan),
        TortureCommand::Saver(plan) => saver::run(&plan).map(|()| ExitCode::SUCCESS),
        // An agent ends when its client disconnects.
        TortureCommand::Agent(plan) => {
            Ok(if acp::run(&plan).is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        TortureCommand::Engine(plan) => engine(&plan).map(|()| ExitCode::SUCCESS),
    };
    played.unwrap_or_else(|error| {
        eprintln!("torture: {error:#}");
        ExitCode::FAILURE
    })
}

fn run_rounds(bowline: PathBuf, plan: &TortureOptions) -> anyhow::Result<ExitCode> {
    let itself = std::env::current_exe().context("cannot find the torture program")?;
    let programs = TorturePrograms { bowline: std::path::absolute(bowline)?, torture: itself };
    let scratch = plan.directory.clone().unwrap_or_else(std::env::temp_dir);
    let styles = given_or_all(&plan.style);
    let fronts = given_or_all(&plan.front);
    let seconds = plan.seconds.or(plan.saves.is_none().then_some(60));
    let begun = Instant::now();
    let is_time_left = || seconds.is_none_or(|seconds| begun.elapsed() < Duration::from_secs(seconds));
    let mut left = plan.saves.unwrap_or(usize::MAX);
    let mut report = TortureReport::default();
    // If the saves are few, they are divided among all fronts.
    let a_round = MAX_SAVES_PER_ROUND.min(left.div_ceil(fronts.len()));
    for (round, front) in (0_u64..).zip(fronts.iter().cycle()) {
        if left == 0 || !is_time_left() {
            break;
        }
        let seed = plan.seed.wrapping_add(round);
        let saves = a_round.min(left);
        let scene = RoundDir::create(&scratch, &programs, seed, &styles)?;
        let round = round::run(&scene, *front, saves);
        let round = round.with_context(|| format!("front {}, seed {seed}", front.name()))?;
        print!("{}", report.add(*front, seed, round));
        left -= saves;
        eprintln!("{} (seed {seed}): {} unaccounted so far", front.name(), report.lost());
    }
    println!("{}", report.format_tables());
    println!("seed {}: {} lines unaccounted for", plan.seed, report.lost());
    Ok(if report.lost() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn given_or_all<T: ValueEnum + Copy>(given: &[T]) -> Vec<T> {
    if given.is_empty() { T::value_variants().to_vec() } else { given.to_vec() }
}

#[cfg(test)]
mod tests {
    use super::{TortureCli, TortureCommand, TortureOptions};
    use clap::{CommandFactory as _, Parser as _};
    use expect_test::expect;

    #[test]
    fn the_program_understands_what_the_chore_passes_on() {
        TortureCli::command().debug_assert();
        let given =
            "torture run --bowline b --saves 9 --seed 2 --style in-place,held --front mcp --directory /d";
        let TortureCommand::Run { plan, .. } = TortureCli::parse_from(given.split(' ')).command else {
            panic!("not run")
        };
        expect!["--saves 9 --seed 2 --style in-place,held --front mcp --directory /d"]
            .assert_eq(&TortureOptions::to_arguments(&plan).join(" "));
    }
}
