//! The runner: every pair through every phase, round by round, then what came out.

mod alone;
mod child;
mod client;
mod options;
mod phase;
mod report;

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

pub use options::{Options, Pair};
pub use phase::Phase;
pub use report::{Measured, Report};

/// How much a run does.
#[derive(Debug, Clone, Copy)]
struct Extent {
    rounds: usize,
    /// A pair that takes longer than this to calibrate is in the first round only: an interpreter's start
    /// would take the time of everything else.
    slow: Duration,
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
    /// After this no further round begins.
    budget: Duration,
    /// A process that takes longer is a failure.
    limit: Duration,
}

const FULL: Extent = Extent {
    rounds: 5,
    slow: Duration::MAX,
    phase: Duration::from_secs(1),
    chunks: 100_000,
    starts: 9,
    stall: Duration::from_secs(3),
    stalled_chunks: 500_000,
    budget: Duration::MAX,
    limit: Duration::from_secs(180),
};

const QUICK: Extent = Extent {
    rounds: 5,
    slow: Duration::from_secs(1),
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

    let mut plans = Vec::new();
    for pair in &options.pairs {
        tell(format!("calibrate {}", pair.name))?;
        let calibrating = Instant::now();
        let counts = client::calibrate(pair, extent.phase, extent.chunks, extent.limit)?;
        let rounds = if calibrating.elapsed() > extent.slow { 1 } else { extent.rounds };
        plans.push((counts, rounds));
    }
    let mut longest = Duration::ZERO;
    for round in 1..=extent.rounds {
        if round > 1 && begun.elapsed().saturating_add(longest) > extent.budget {
            tell(format!("no time for round {round}: the machine is busy"))?;
            break;
        }
        let round_begun = Instant::now();
        for ((pair, (counts, rounds)), measured) in options.pairs.iter().zip(&plans).zip(&mut measured) {
            if round <= *rounds {
                tell(format!("round {round}/{rounds} {}", pair.name))?;
                measured.rounds.push(client::measure(pair, counts, extent.limit)?);
            }
        }
        longest = longest.max(round_begun.elapsed());
    }
    Ok(Report::new(measured))
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
