//! Torture: programs that save in every known style against an agent, a user who undoes, and kills. No line may get lost.
//!
//! A run is a sequence of rounds, each in a project and with a journal of its own, so that disk and memory stay bounded.
//! Round `r` of seed `s` is round 0 of seed `s + r`: a loss is looked at again with the seed that its story names.

mod acp;
mod agent;
mod checker;
mod editor;
mod mcp;
mod random;
mod record;
mod report;
mod round;
mod saver;
mod scene;
mod style;
mod wire;

pub use agent::{Agent, AgentPlan, Files, ReadOutcome, WriteOutcome};
pub use saver::SaverPlan;
pub use style::{Front, Style};

use crate::World;
use crate::bench::target_folder;
use crate::command::{cargo, run, run_as_progress};
use anyhow::Context as _;
use clap::{Parser, Subcommand, ValueEnum};
use report::Report;
use scene::{Programs, Scene};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// A program of a round saves at most so often: the file of one that only appends grows with every save.
const SAVES_A_ROUND: usize = 600;

/// How long and how to torture.
#[derive(Debug, Clone, clap::Args)]
pub struct TorturePlan {
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
    style: Vec<Style>,
    /// Only these ways of the agent to the files; rounds take them in turn
    #[arg(long, value_name = "FRONT", value_delimiter = ',')]
    front: Vec<Front>,
    /// Where the rounds take place; `torture` beside what cargo makes if not given
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
}

impl TorturePlan {
    fn arguments(&self) -> Vec<String> {
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
/// Fails when something cannot be built or a line is not accounted for.
pub fn run_torture(world: &World, plan: &TorturePlan, release: bool) -> anyhow::Result<()> {
    let profile = if release { "release" } else { "dev" };
    let build = format!(
        "build --profile {profile} --locked --package bowline-cli --package bowline-tests --bin bowline --bin torture"
    );
    run_as_progress(&mut cargo(&world.root, &build.split(' ').collect::<Vec<_>>()))?;
    let target = target_folder(&world.root);
    let programs = target.join(if release { "release" } else { "debug" });
    let directory = plan.directory.clone().unwrap_or_else(|| target.join("torture"));
    let plan = TorturePlan { directory: Some(directory), ..plan.clone() };
    let mut command = Command::new(programs.join("torture"));
    run(command.arg("run").arg("--bowline").arg(programs.join("bowline")).args(plan.arguments()))
}

#[derive(Parser)]
#[command(name = "torture")]
struct Cli {
    #[command(subcommand)]
    part: Part,
}

/// The parts that the program plays.
#[derive(Subcommand)]
enum Part {
    /// All rounds; exits with 1 if a line is not accounted for
    Run {
        /// The program under torture
        #[arg(long)]
        bowline: PathBuf,
        #[command(flatten)]
        plan: TorturePlan,
    },
    /// A saving program
    Saver(SaverPlan),
    /// An agent that speaks ACP
    Agent(AgentPlan),
    /// An agent on the engine itself
    Engine(AgentPlan),
}

/// Plays the part that the command line names. The engine is given: this crate uses none of Bowline's.
pub fn play_part(engine: fn(&AgentPlan) -> anyhow::Result<()>) -> ExitCode {
    let played = match Cli::parse().part {
        Part::Run { bowline, plan } => run_rounds(bowline, &plan),
        Part::Saver(plan) => saver::run(&plan).map(|()| ExitCode::SUCCESS),
        // That the client is gone is how an agent ends.
        Part::Agent(plan) => Ok(if acp::run(&plan).is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
        Part::Engine(plan) => engine(&plan).map(|()| ExitCode::SUCCESS),
    };
    played.unwrap_or_else(|error| {
        eprintln!("torture: {error:#}");
        ExitCode::FAILURE
    })
}

fn run_rounds(bowline: PathBuf, plan: &TorturePlan) -> anyhow::Result<ExitCode> {
    let itself = std::env::current_exe().context("cannot find the torture program")?;
    let programs = Programs { bowline: std::path::absolute(bowline)?, torture: itself };
    let scratch = plan.directory.clone().unwrap_or_else(std::env::temp_dir);
    let styles = chosen(&plan.style);
    let fronts = chosen(&plan.front);
    let seconds = plan.seconds.or(plan.saves.is_none().then_some(60));
    let begun = Instant::now();
    let is_time_left = || seconds.is_none_or(|seconds| begun.elapsed() < Duration::from_secs(seconds));
    let mut left = plan.saves.unwrap_or(usize::MAX);
    let mut report = Report::default();
    // With a few saves only, every front gets its part of them.
    let a_round = SAVES_A_ROUND.min(left.div_ceil(fronts.len()));
    for (round, front) in (0_u64..).zip(fronts.iter().cycle()) {
        if left == 0 || !is_time_left() {
            break;
        }
        let seed = plan.seed.wrapping_add(round);
        let saves = a_round.min(left);
        let scene = Scene::create(&scratch, &programs, seed, &styles)?;
        let round = round::run(&scene, *front, saves);
        let round = round.with_context(|| format!("front {}, seed {seed}", front.name()))?;
        print!("{}", report.add(*front, seed, round));
        left -= saves;
        eprintln!("{} (seed {seed}): {} unaccounted so far", front.name(), report.lost());
    }
    println!("{}", report.tables());
    println!("seed {}: {} lines unaccounted for", plan.seed, report.lost());
    Ok(if report.lost() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn chosen<T: ValueEnum + Copy>(given: &[T]) -> Vec<T> {
    if given.is_empty() { T::value_variants().to_vec() } else { given.to_vec() }
}

#[cfg(test)]
mod tests {
    use super::{Cli, Part, TorturePlan};
    use clap::{CommandFactory as _, Parser as _};
    use expect_test::expect;

    #[test]
    fn the_program_understands_what_the_chore_passes_on() {
        Cli::command().debug_assert();
        let given =
            "torture run --bowline b --saves 9 --seed 2 --style in-place,held --front mcp --directory /d";
        let Part::Run { plan, .. } = Cli::parse_from(given.split(' ')).part else { panic!("not run") };
        expect!["--saves 9 --seed 2 --style in-place,held --front mcp --directory /d"]
            .assert_eq(&TorturePlan::arguments(&plan).join(" "));
    }
}
