//! The proxy benchmark: messages sent directly, through Bowline's proxy and through the official conductor, with the
//! same client and the same agent, in one run.
//!
//! The rates are those of `bench-wire`'s phases with the two floor programs, so that the program between them
//! dominates. The cost of a message is measured in a separate run, as processor time counted by the system.

mod cost;
mod options;
mod report;

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::files::BenchProgress;
use crate::wire::machine::CpuUsage;
use crate::wire::{BenchPair, BenchPhase, client};

pub use options::{BenchRoute, ProxyBenchOptions};
pub use report::{ProxyBenchReport, RouteMeasurements};

/// The size of a run.
#[derive(Debug, Clone, Copy)]
struct ProxyBenchSize {
    rounds: usize,
    /// The target duration of one phase in one round.
    phase_time: Duration,
    /// The numbers of streamed updates and sequential reads for the cost measurement.
    updates: usize,
    reads: usize,
    /// The time after which a process counts as failed.
    limit: Duration,
}

const FULL: ProxyBenchSize = ProxyBenchSize {
    rounds: 5,
    phase_time: Duration::from_secs(1),
    updates: 500_000,
    reads: 50_000,
    limit: Duration::from_secs(600),
};

const QUICK: ProxyBenchSize = ProxyBenchSize {
    rounds: 3,
    phase_time: Duration::from_millis(150),
    updates: 100_000,
    reads: 10_000,
    limit: Duration::from_secs(120),
};

/// Measures every route and returns the report; writes messages to `progress`.
///
/// # Errors
/// Fails if a message does not arrive intact.
pub fn run(options: &ProxyBenchOptions, progress: &mut dyn Write) -> Result<ProxyBenchReport> {
    let extent = if options.quick { QUICK } else { FULL };
    let mut progress = BenchProgress { started: Instant::now(), output: progress };
    let pairs: Vec<BenchPair> = options.routes.iter().map(|way| way.to_pair(&options.client)).collect();
    let mut measured: Vec<_> = options.routes.iter().map(|way| RouteMeasurements::new(&way.name)).collect();
    let usage = CpuUsage::now()?;
    let mut counts: Vec<[usize; BenchPhase::ALL.len()]> = Vec::new();
    for pair in &pairs {
        progress.report(&format!("calibrate {}", pair.name))?;
        counts.push(client::calibrate(pair, extent.phase_time, 1, extent.limit)?.counts);
    }
    for round in 1..=extent.rounds {
        for ((pair, counts), measured) in pairs.iter().zip(&counts).zip(&mut measured) {
            progress.report(&format!("round {round}/{} {}", extent.rounds, pair.name))?;
            measured.rounds.push(client::measure(pair, counts, extent.limit)?.rates);
        }
    }
    for (way, measured) in options.routes.iter().zip(&mut measured).filter(|(way, _)| way.has_proxy) {
        progress.report(&format!("cost of {}", way.name))?;
        measured.cost = Some(cost::measure(way, extent.updates, extent.reads, extent.limit)?);
    }
    Ok(ProxyBenchReport::new(measured, usage.other_cores_since()?))
}
