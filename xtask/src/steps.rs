//! The steps of `cargo xtask test`: what each runs, and what happens to the rest when one fails.

use crate::World;
use crate::command::{cargo, run, succeeds};
use crate::peers::{self, Extent};
use crate::summary::{Outcome, Row, Summary};
use clap::ValueEnum;
use std::path::Path;
use std::process::Command;
use std::thread;

/// One check, or something that later checks need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Step {
    /// The format of every Rust file
    Fmt,
    /// Clippy on every target; a warning is an error
    Clippy,
    /// The documentation builds; a warning is an error
    Docs,
    /// The release binary `bowline`, and everything else in debug
    Build,
    /// The programs on the official SDKs, and the agents and clients of others, at pinned versions
    Peers,
    /// Unit, property, tidy and end-to-end tests
    Test,
    /// The tests in the documentation
    Doctest,
}

impl Step {
    /// Returns the name that `--only` takes.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Returns what it is about, in a line.
    pub fn about(self) -> String {
        self.to_possible_value()
            .and_then(|value| value.get_help().map(ToString::to_string))
            .unwrap_or_default()
    }

    /// Whether it would only repeat the errors of a failed build.
    fn needs_build(self) -> bool {
        matches!(self, Self::Test | Self::Doctest)
    }

    fn take(self, world: &World) -> Vec<Row> {
        if self == Self::Peers {
            return peers::install(world, Extent::Usual);
        }
        let nextest = succeeds(&mut cargo(&world.root, &["nextest", "--version"]));
        let run_all = || self.commands(&world.root, nextest).iter_mut().try_for_each(run);
        vec![Row::timed(self.name(), || Outcome::of(run_all()))]
    }

    fn commands(self, root: &Path, nextest: bool) -> Vec<Command> {
        let cargo = |args: &str| cargo(root, &args.split(' ').collect::<Vec<_>>());
        match self {
            Self::Fmt => vec![cargo("fmt --all --check")],
            Self::Clippy => vec![cargo("clippy --workspace --all-targets --locked -- -D warnings")],
            Self::Docs => {
                let mut doc = cargo("doc --workspace --no-deps --locked");
                doc.env("RUSTDOCFLAGS", "-D warnings");
                vec![doc]
            }
            Self::Build => {
                let mut release = cargo("build --release --locked --package bowline-cli --bin bowline");
                release.env(OPTIMISED, "0");
                vec![release, cargo("build --workspace --all-targets --locked")]
            }
            Self::Test => {
                let mut test = cargo(if nextest {
                    "nextest run --workspace --locked --no-fail-fast"
                } else {
                    "test --workspace --locked --no-fail-fast --lib --bins --tests --examples"
                });
                test.env(peers::VARIABLE, peers::installed(root)).env(BUILT, "1").env(OPTIMISED, "0");
                // Nothing is left to do after the step before, unless that was left out.
                vec![cargo("build --workspace --all-targets --locked"), test]
            }
            Self::Doctest => vec![cargo("test --workspace --doc --locked")],
            Self::Peers => Vec::new(),
        }
    }
}

/// The README's commands are tested for what they do, not for how fast: the release build need not take its whole time.
const OPTIMISED: &str = "CARGO_PROFILE_RELEASE_OPT_LEVEL";

/// Tells tests that all programs of the workspace are built.
const BUILT: &str = "BOWLINE_BUILT";

/// Takes the steps in order and goes on after a failure, except where the rest could only fail alike. Peers come from
/// registries, so they are installed while the steps before them build.
pub fn take(steps: &[Step], world: &World) -> Summary {
    take_each(steps, |step| step.take(world))
}

fn take_each(steps: &[Step], take: impl Fn(Step) -> Vec<Row> + Sync) -> Summary {
    thread::scope(|scope| {
        let installing = steps.contains(&Step::Peers).then(|| scope.spawn(|| take(Step::Peers)));
        take_in_order(steps, &take, || installing.and_then(|peers| peers.join().ok()))
    })
}

fn take_in_order(
    steps: &[Step],
    take: impl Fn(Step) -> Vec<Row>,
    wait_for_peers: impl FnOnce() -> Option<Vec<Row>>,
) -> Summary {
    let mut summary = Summary::default();
    let mut build_failed = false;
    let mut wait_for_peers = Some(wait_for_peers);
    for (index, &step) in steps.iter().enumerate() {
        eprintln!("\n== {} ({} of {}): {}", step.name(), index + 1, steps.len(), step.about());
        let rows = if build_failed && step.needs_build() {
            vec![Row::timed(step.name(), || Outcome::Skipped("the build failed".into()))]
        } else if step == Step::Peers {
            let installed = wait_for_peers.take().and_then(|wait| wait());
            let panicked = || vec![Row::timed(step.name(), || Outcome::Failed("it panicked".into()))];
            installed.unwrap_or_else(panicked)
        } else {
            take(step)
        };
        for Row { name, outcome, time } in &rows {
            match outcome {
                Outcome::Passed => eprintln!("ok: {name}, {:.1} s", time.as_secs_f64()),
                Outcome::Failed(why) => eprintln!("FAILED: {name}: {why}"),
                Outcome::Skipped(why) => eprintln!("SKIPPED: {name}: {why}"),
            }
            build_failed |= step == Step::Build && matches!(outcome, Outcome::Failed(_));
        }
        summary.rows.extend(rows);
    }
    summary
}

#[cfg(test)]
mod tests;
