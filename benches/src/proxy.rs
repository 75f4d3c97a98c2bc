//! The benchmark of the proxy: messages through nothing, through Bowline's proxy and through the official conductor, with
//! the same client and the same agent, in one run.
//!
//! Rates are those of `bench-wire`'s phases, with the floor's two ends, so that what stands between them is what takes the
//! time. What a message costs the process between is counted in a run of its own, by the system.

mod cost;
mod options;
mod report;

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::bench::machine::Usage;
use crate::bench::{Pair, Phase, client};
use crate::files::Progress;

pub use options::{Options, Way};
pub use report::{Measured, Report};

/// How much a run does.
#[derive(Debug, Clone, Copy)]
struct Extent {
    rounds: usize,
    /// What one phase of one round is to take.
    phase: Duration,
    /// How many updates are streamed, and how many reads made one after the other, to count what one costs.
    updates: usize,
    reads: usize,
    /// A process that takes longer is a failure.
    limit: Duration,
}

const FULL: Extent = Extent {
    rounds: 5,
    phase: Duration::from_secs(1),
    updates: 500_000,
    reads: 50_000,
    limit: Duration::from_secs(600),
};

const QUICK: Extent = Extent {
    rounds: 3,
    phase: Duration::from_millis(150),
    updates: 100_000,
    reads: 10_000,
    limit: Duration::from_secs(120),
};

/// Measures every way and reports; `progress` is told what goes on.
///
/// # Errors
/// Fails if a message does not come through as it should.
pub fn run(options: &Options, progress: &mut dyn Write) -> Result<Report> {
    let extent = if options.quick { QUICK } else { FULL };
    let mut progress = Progress { begun: Instant::now(), to: progress };
    let pairs: Vec<Pair> = options.ways.iter().map(|way| way.pair(&options.client)).collect();
    let mut measured: Vec<_> = options.ways.iter().map(|way| Measured::new(&way.name)).collect();
    let usage = Usage::now()?;
    let mut counts: Vec<[usize; Phase::ALL.len()]> = Vec::new();
    for pair in &pairs {
        progress.tell(&format!("calibrate {}", pair.name))?;
        counts.push(client::calibrate(pair, extent.phase, 1, extent.limit)?.counts);
    }
    for round in 1..=extent.rounds {
        for ((pair, counts), measured) in pairs.iter().zip(&counts).zip(&mut measured) {
            progress.tell(&format!("round {round}/{} {}", extent.rounds, pair.name))?;
            measured.rounds.push(client::measure(pair, counts, extent.limit)?.rates);
        }
    }
    for (way, measured) in options.ways.iter().zip(&mut measured).filter(|(way, _)| way.is_between) {
        progress.tell(&format!("cost of {}", way.name))?;
        measured.cost = Some(cost::measure(way, extent.updates, extent.reads, extent.limit)?);
    }
    Ok(Report::new(measured, usage.others_since()?))
}
