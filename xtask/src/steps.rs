//! The steps of `cargo xtask test`: the commands of each, and the effect of a failed step on the steps after it.

use crate::RepoContext;
use crate::command::{cargo, run, succeeds};
use crate::peers::{self, InstallScope};
use crate::summary::{RunSummary, StepOutcome, SummaryRow};
use clap::ValueEnum;
use std::path::Path;
use std::process::Command;
use std::thread;

/// One check, or something that later checks need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TestStep {
    /// The format of every Rust file
    Fmt,
    /// The documentation builds; a warning is an error (only with --full, or by name)
    Docs,
    /// The binary `bowline`, and everything else, with clippy as the compiler; a warning is an error
    Build,
    /// The programs on the official SDKs, and the agents and clients of others, at pinned versions
    Peers,
    /// Unit, property, tidy and end-to-end tests
    Test,
    /// The tests in the documentation
    Doctest,
}

impl TestStep {
    /// Returns the name that `--only` takes.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Returns its description in one line.
    pub fn about(self) -> String {
        self.to_possible_value()
            .and_then(|value| value.get_help().map(ToString::to_string))
            .unwrap_or_default()
    }

    /// Returns whether the step runs by default.
    pub fn is_usual(self) -> bool {
        self != Self::Docs
    }

    /// Returns whether the step would only repeat the errors of a failed build.
    fn needs_build(self) -> bool {
        matches!(self, Self::Test | Self::Doctest)
    }

    fn run(self, world: &RepoContext, extent: TestExtent) -> Vec<SummaryRow> {
        if self == Self::Peers {
            return peers::install_peers(world, extent.peers());
        }
        let nextest = succeeds(&mut cargo(&world.root, &["nextest", "--version"]));
        let run_all = || self.commands(&world.root, extent, nextest).iter_mut().try_for_each(run);
        vec![SummaryRow::timed(self.name(), || StepOutcome::from_result(run_all()))]
    }

    fn commands(self, root: &Path, extent: TestExtent, nextest: bool) -> Vec<Command> {
        let cargo = |args: &str| cargo(root, &args.split(' ').collect::<Vec<_>>());
        let cargo_for_tests = |args: &str| {
            let mut command = cargo(args);
            command.envs(TEST_PROFILE);
            // The documentation is checked, not compiled.
            if self != Self::Docs {
                command.envs(CLIPPY_AS_COMPILER);
            }
            command
        };
        match self {
            Self::Fmt => vec![cargo("fmt --all --check")],
            Self::Docs => {
                let mut doc = cargo_for_tests("doc --release --workspace --no-deps --locked");
                doc.env("RUSTDOCFLAGS", "-D warnings");
                vec![doc]
            }
            Self::Build => vec![cargo_for_tests("build --release --workspace --all-targets --locked")],
            Self::Test => {
                let mut test = cargo_for_tests(if nextest {
                    "nextest run --release --workspace --locked --no-fail-fast"
                } else {
                    "test --release --workspace --locked --no-fail-fast --lib --bins --tests --examples"
                });
                test.env(peers::PEERS_VARIABLE, peers::installed_names(root, extent.peers()))
                    .env(BUILT_VARIABLE, "1");
                if extent == TestExtent::Full {
                    test.env(FULL_VARIABLE, "1");
                }
                // Does nothing after the build step, and builds everything where that step was left out.
                vec![cargo_for_tests("build --release --workspace --all-targets --locked"), test]
            }
            Self::Doctest => vec![cargo_for_tests("test --release --workspace --doc --locked")],
            Self::Peers => Vec::new(),
        }
    }
}

/// How much is tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestExtent {
    /// What every change needs.
    Usual,
    /// Also what takes long: the documentation, all installed peers, a fault at every call of SQLite, races of full length.
    Full,
}

impl TestExtent {
    fn peers(self) -> InstallScope {
        match self {
            Self::Usual => InstallScope::Sdk,
            Self::Full => InstallScope::Usual,
        }
    }
}

/// The profile of all steps: `release`, which the README's commands use, so that build scripts, macros and programs are
/// built once; but without optimisation, and with the checks of a debug build.
const TEST_PROFILE: [(&str, &str); 5] = [
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
    ("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true"),
    ("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "true"),
    ("CARGO_PROFILE_RELEASE_STRIP", "none"),
];

/// The variables that lint the workspace while it is compiled, as `cargo clippy` does while it is checked: a second pass
/// would look at every dependency again. One word, because clippy has its own separator for several.
const CLIPPY_AS_COMPILER: [(&str, &str); 2] =
    [("RUSTC_WORKSPACE_WRAPPER", "clippy-driver"), ("CLIPPY_ARGS", "-Dwarnings")];

/// The variable that makes tests run at full length.
const FULL_VARIABLE: &str = "BOWLINE_FULL";

/// The variable that tells tests that all programs of the workspace are built.
const BUILT_VARIABLE: &str = "BOWLINE_BUILT";

/// Runs the steps in order, and continues after a failure except where a later step would fail for the same reason.
/// Peers are downloaded from registries, so they are installed in parallel with the steps before them.
pub fn run_steps(steps: &[TestStep], world: &RepoContext, extent: TestExtent) -> RunSummary {
    run_each(steps, |step| step.run(world, extent))
}

fn run_each(steps: &[TestStep], take: impl Fn(TestStep) -> Vec<SummaryRow> + Sync) -> RunSummary {
    thread::scope(|scope| {
        let installing = steps.contains(&TestStep::Peers).then(|| scope.spawn(|| take(TestStep::Peers)));
        run_in_order(steps, &take, || installing.and_then(|peers| peers.join().ok()))
    })
}

fn run_in_order(
    steps: &[TestStep],
    take: impl Fn(TestStep) -> Vec<SummaryRow>,
    wait_for_peers: impl FnOnce() -> Option<Vec<SummaryRow>>,
) -> RunSummary {
    let mut summary = RunSummary::default();
    let mut build_failed = false;
    let mut wait_for_peers = Some(wait_for_peers);
    for (index, &step) in steps.iter().enumerate() {
        eprintln!("\n== {} ({} of {}): {}", step.name(), index + 1, steps.len(), step.about());
        let rows = if build_failed && step.needs_build() {
            vec![SummaryRow::timed(step.name(), || StepOutcome::Skipped("the build failed".into()))]
        } else if step == TestStep::Peers {
            let installed = wait_for_peers.take().and_then(|wait| wait());
            let panicked =
                || vec![SummaryRow::timed(step.name(), || StepOutcome::Failed("it panicked".into()))];
            installed.unwrap_or_else(panicked)
        } else {
            take(step)
        };
        for SummaryRow { name, outcome, time } in &rows {
            match outcome {
                StepOutcome::Passed => eprintln!("ok: {name}, {:.1} s", time.as_secs_f64()),
                StepOutcome::Failed(why) => eprintln!("FAILED: {name}: {why}"),
                StepOutcome::Skipped(why) => eprintln!("SKIPPED: {name}: {why}"),
            }
            build_failed |= step == TestStep::Build && matches!(outcome, StepOutcome::Failed(_));
        }
        summary.rows.extend(rows);
    }
    summary
}

#[cfg(test)]
mod tests;
