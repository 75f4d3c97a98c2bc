//! The runner: every pair through every phase, round by round, then what came out.

mod alone;
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

use machine::Usage;

pub(crate) use report::{align, median};

pub use client::Cpu;
pub use options::{Options, Pair};
pub use phase::Phase;
pub use report::{Measured, Report};

/// How much a run does.
#[derive(Debug, Clone, Copy)]
struct Extent {
    rounds: usize,
    /// A pair whose agent takes longer than this to start is in the first round only: two interpreters'
    /// starts would take the time of everything else.
    slow_ms: f64,
    /// What one phase of one round is to take.
    phase: Duration,
    /// The least number of streamed chunks.
    chunks: usize,
    /// How often each agent is started to time it.
    starts: usize,
    /// How long the reader stops.
    stall: Duration,
    /// How many chunks are streamed to the reader that stops.
    stalled_chunks: usize,
    /// After this no further round begins, and a pair that had none is judged by its calibration.
    budget: Duration,
    /// A process that takes longer is a failure.
    limit: Duration,
}

const FULL: Extent = Extent {
    rounds: 5,
    slow_ms: f64::INFINITY,
    phase: Duration::from_secs(1),
    chunks: 100_000,
    starts: 9,
    stall: Duration::from_secs(3),
    stalled_chunks: 500_000,
    budget: Duration::MAX,
    limit: Duration::from_secs(600),
};

const QUICK: Extent = Extent {
    rounds: 5,
    slow_ms: 150.0,
    phase: Duration::from_millis(150),
    chunks: 1,
    starts: 3,
    stall: Duration::from_millis(1500),
    stalled_chunks: 50_000,
    budget: Duration::from_secs(40),
    limit: Duration::from_secs(30),
};

/// Measures every pair and reports; `progress` is told what goes on.
pub fn run(options: &Options, progress: &mut impl Write) -> Result<Report> {
    let extent = if options.quick { QUICK } else { FULL };
    let begun = Instant::now();
    let mut tell = |text: String| writeln!(progress, "{:5.1} s  {text}", begun.elapsed().as_secs_f64());
    let mut measured: Vec<_> = options.pairs.iter().map(|pair| Measured::new(&pair.name)).collect();

    for start in 1..=extent.starts {
        tell(format!("start {start}/{}", extent.starts))?;
        for (pair, measured) in options.pairs.iter().zip(&mut measured) {
            let took = alone::start(&pair.agent, extent.limit);
            measured.starts.push(took.with_context(|| format!("{}: start", pair.name))?.as_secs_f64() * 1e3);
        }
    }

    tell("stalled reader, all agents at once".to_owned())?;
    for (growth, measured) in stalled(&options.pairs, extent).into_iter().zip(&mut measured) {
        measured.stalled_mib = Some(growth.with_context(|| format!("{}: stalled", measured.name))?);
    }

    let usage = Usage::now()?;
    let mut plans = Vec::new();
    for (pair, measured) in options.pairs.iter().zip(&measured) {
        tell(format!("calibrate {}", pair.name))?;
        let calibrated = client::calibrate(pair, extent.phase, extent.chunks, extent.limit)?;
        let slow = measured.start_ms().is_some_and(|start| start > extent.slow_ms);
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
    Ok(Report::new(measured, usage.others_since()?))
}

/// Returns what each agent grew by. They run at once, because memory does not depend on who else runs.
fn stalled(pairs: &[Pair], extent: Extent) -> Vec<Result<f64>> {
    let Extent { stalled_chunks, stall, limit, .. } = extent;
    std::thread::scope(|scope| {
        let threads: Vec<_> = pairs
            .iter()
            .map(|pair| scope.spawn(move || alone::stalled(&pair.agent, stalled_chunks, stall, limit)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| bail!("the reader panicked")))
            .collect()
    })
}
