//! The wire benchmark: runs every pair through every phase, round by round, and returns the report.

mod agent_only;
pub(crate) mod child;
pub(crate) mod client;
pub(crate) mod machine;
mod options;
mod phase;
pub(crate) mod raw;
mod report;

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use machine::CpuUsage;

pub(crate) use report::{align, median};

pub use client::MessageCpuTime;
pub use options::{BenchPair, WireBenchOptions};
pub use phase::BenchPhase;
pub use report::{PairMeasurements, WireBenchReport};

/// The size of a run.
#[derive(Debug, Clone, Copy)]
struct WireBenchSize {
    rounds: usize,
    /// A pair whose agent takes longer than this to start takes part in the first round only: the starts of two
    /// interpreters would take as long as everything else.
    slow_start_ms: f64,
    /// The target duration of one phase in one round.
    phase_time: Duration,
    /// The minimum number of streamed chunks.
    chunks: usize,
    /// The number of timed starts of each agent.
    starts: usize,
    /// How long the reader stalls.
    stall_time: Duration,
    /// The number of chunks streamed to the stalled reader.
    stalled_chunks: usize,
    /// The time after which no further round begins. A pair without a round is reported by its calibration.
    budget: Duration,
    /// The time after which a process counts as failed.
    limit: Duration,
}

const FULL: WireBenchSize = WireBenchSize {
    rounds: 5,
    slow_start_ms: f64::INFINITY,
    phase_time: Duration::from_secs(1),
    chunks: 100_000,
    starts: 9,
    stall_time: Duration::from_secs(3),
    stalled_chunks: 500_000,
    budget: Duration::MAX,
    limit: Duration::from_secs(600),
};

const QUICK: WireBenchSize = WireBenchSize {
    rounds: 5,
    slow_start_ms: 150.0,
    phase_time: Duration::from_millis(150),
    chunks: 1,
    starts: 3,
    stall_time: Duration::from_millis(1500),
    stalled_chunks: 50_000,
    budget: Duration::from_secs(40),
    limit: Duration::from_secs(30),
};

/// Measures every pair and returns the report; writes messages to `progress`.
pub fn run(options: &WireBenchOptions, progress: &mut impl Write) -> Result<WireBenchReport> {
    let extent = if options.quick { QUICK } else { FULL };
    let begun = Instant::now();
    let mut tell = |text: String| writeln!(progress, "{:5.1} s  {text}", begun.elapsed().as_secs_f64());
    let mut measured: Vec<_> = options.pairs.iter().map(|pair| PairMeasurements::new(&pair.name)).collect();

    for start in 1..=extent.starts {
        tell(format!("start {start}/{}", extent.starts))?;
        for (pair, measured) in options.pairs.iter().zip(&mut measured) {
            let took = agent_only::measure_start(&pair.agent, extent.limit);
            measured.starts.push(took.with_context(|| format!("{}: start", pair.name))?.as_secs_f64() * 1e3);
        }
    }

    tell("stalled reader, all agents at once".to_owned())?;
    for (growth, measured) in measure_stalled_growth(&options.pairs, extent).into_iter().zip(&mut measured) {
        measured.stalled_mib = Some(growth.with_context(|| format!("{}: stalled", measured.name))?);
    }

    let usage = CpuUsage::now()?;
    let mut plans = Vec::new();
    for (pair, measured) in options.pairs.iter().zip(&measured) {
        tell(format!("calibrate {}", pair.name))?;
        let calibrated = client::calibrate(pair, extent.phase_time, extent.chunks, extent.limit)?;
        let slow = measured.start_ms().is_some_and(|start| start > extent.slow_start_ms);
        plans.push((calibrated, if slow { 1 } else { extent.rounds }));
    }
    for round in 1..=extent.rounds {
        for ((pair, (calibrated, rounds)), measured) in options.pairs.iter().zip(&plans).zip(&mut measured) {
            if round > *rounds {
                continue;
            }
            let in_time = begun.elapsed() < extent.budget;
            tell(format!(
                "round {round}/{rounds} {}{}",
                pair.name,
                if in_time { "" } else { ": no time left" }
            ))?;
            if in_time {
                let round = client::measure(pair, &calibrated.counts, extent.limit)?;
                measured.rounds.push(round.rates);
                measured.cpu.push(round.cpu);
            } else if round == 1 {
                measured.rounds.push(calibrated.rates);
            }
        }
    }
    Ok(WireBenchReport::new(measured, usage.other_cores_since()?))
}

/// Returns the memory growth of each agent. They run concurrently, because memory does not depend on other processes.
fn measure_stalled_growth(pairs: &[BenchPair], extent: WireBenchSize) -> Vec<Result<f64>> {
    let WireBenchSize { stalled_chunks, stall_time: stall, limit, .. } = extent;
    std::thread::scope(|scope| {
        let threads: Vec<_> = pairs
            .iter()
            .map(|pair| {
                scope.spawn(move || {
                    agent_only::measure_stalled_growth(&pair.agent, stalled_chunks, stall, limit)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| bail!("the reader panicked")))
            .collect()
    })
}
