//! The benchmark of the agent: how fast it starts, acts and opens sessions, and what they take, against fast-agent doing
//! the same in one run.
//!
//! Neither has a model to wait for: ours takes commands, theirs repeats what it is told. Both run a command in a terminal
//! that the client only pretends to have, so what is measured is the agents' own work. Both are asked to read nothing and
//! have their state in a directory of their own.

mod options;
mod report;
mod served;

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::bench::machine::Usage;
use crate::bench::median;
use crate::files::{Progress, Sides};
use crate::host::Scratch;
use served::Served;

pub use options::{Agent, Options};
pub use report::{Measured, Report};

/// How much a run does.
#[derive(Debug, Clone, Copy)]
struct Extent {
    /// How often each agent is started.
    starts: usize,
    /// How many turns with one call are measured, by turns.
    turns: usize,
    /// How many calls our agent makes in one turn, which may have 200 at most.
    calls: usize,
    /// How many sessions are opened in one process: ours, and theirs.
    sessions: [usize; 2],
}

const FULL: Extent = Extent { starts: 9, turns: 101, calls: 150, sessions: [1000, 1000] };
const QUICK: Extent = Extent { starts: 3, turns: 21, calls: 150, sessions: [1000, 50] };

/// The turns that go before those that are measured.
const WARM_UP: usize = 3;

/// How many of the many sessions take a turn in the end.
const LATE_TURNS: usize = 20;

/// Measures everything and reports; `progress` is told what goes on.
///
/// # Errors
/// Fails if an agent does not do what it is asked.
pub fn run(options: &Options, progress: &mut dyn Write) -> Result<Report> {
    let extent = if options.quick { QUICK } else { FULL };
    let mut progress = Progress { begun: Instant::now(), to: progress };
    let scratch = Scratch::make(&options.data)?;
    let usage = Usage::now()?;
    let mut measured = Measured::default();
    let [ours, theirs] = &options.agents;
    progress.tell("starts")?;
    // The first start of a program is the disk's.
    for agent in &options.agents {
        start(agent, &scratch.0)?;
    }
    measured.starts =
        Sides::by_turns(extent.starts, || start(ours, &scratch.0), || start(theirs, &scratch.0))?;
    progress.tell("turns with one command")?;
    turns(&options.agents, &scratch.0, extent, &mut measured)?;
    progress.tell("one turn with many commands")?;
    measured.call_us = many_calls(ours, &scratch.0, extent.calls)?;
    for (at, agent) in options.agents.iter().enumerate() {
        progress.tell(&format!("{}: {} sessions", agent.name, extent.sessions[at]))?;
        let sessions = sessions(agent, &scratch.0, extent.sessions[at])?;
        measured.push_sessions(at, sessions);
    }
    measured.others = usage.others_since()?;
    progress.tell("done")?;
    Ok(Report::new(options.agents.clone().map(|agent| agent.name), measured))
}

/// Returns the milliseconds from starting an agent to its answer to `initialize`.
fn start(agent: &Agent, scratch: &Path) -> Result<f64> {
    let begun = Instant::now();
    Served::start(agent, scratch).with_context(|| agent.name.clone())?;
    Ok(begun.elapsed().as_secs_f64() * 1e3)
}

/// Measures the first call and the end of turns that run one command.
fn turns(agents: &[Agent; 2], scratch: &Path, extent: Extent, measured: &mut Measured) -> Result<()> {
    let open = |agent: &Agent| -> Result<_> {
        let mut served = Served::start(agent, scratch)?;
        let session = served.new_session()?;
        for _ in 0..WARM_UP {
            served.turn(&session, &agent.prompt, 1)?;
        }
        Ok((served, session))
    };
    let mut both = agents.iter().map(open).collect::<Result<Vec<_>>>()?;
    for round in 0..extent.turns {
        for at in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
            let (served, session) = &mut both[at];
            let turn =
                served.turn(session, &agents[at].prompt, 1).with_context(|| agents[at].name.clone())?;
            let (first, whole) = if at == 0 {
                (&mut measured.first_call.ours, &mut measured.turns.ours)
            } else {
                (&mut measured.first_call.theirs, &mut measured.turns.theirs)
            };
            first.push(turn.first_call_ms);
            whole.push(turn.ms);
        }
    }
    Ok(())
}

/// Returns the microseconds of each of many calls of one turn.
fn many_calls(agent: &Agent, scratch: &Path, calls: usize) -> Result<f64> {
    let mut served = Served::start(agent, scratch)?;
    let session = served.new_session()?;
    let prompt = vec![agent.prompt.as_str(); calls].join("\n");
    let turn = served.turn(&session, &prompt, calls)?;
    Ok(turn.ms * 1e3 / calls as f64)
}

/// What many sessions in one process come to.
#[derive(Debug, Clone, Copy)]
pub struct Sessions {
    /// How many.
    pub count: usize,
    /// The milliseconds that one takes to open.
    pub open_ms: f64,
    /// The KiB that one takes, once it is open and nothing goes on.
    pub idle_kib: f64,
    /// The MiB that the process has with all of them.
    pub process_mib: f64,
    /// The milliseconds of a turn with one command while all of them are open.
    pub turn_ms: f64,
}

fn sessions(agent: &Agent, scratch: &Path, count: usize) -> Result<Sessions> {
    let mut served = Served::start(agent, scratch)?;
    // What the first takes that all share is no part of one.
    let first = served.new_session()?;
    served.turn(&first, &agent.prompt, 1)?;
    let before = served.resident_kib()?;
    let begun = Instant::now();
    let mut open = Vec::with_capacity(count);
    for _ in 0..count {
        open.push(served.new_session()?);
    }
    let open_ms = begun.elapsed().as_secs_f64() * 1e3 / count as f64;
    let with_all = served.resident_kib()?;
    let step = (count / LATE_TURNS).max(1);
    let mut took = Vec::new();
    for session in open.iter().step_by(step) {
        took.push(served.turn(session, &agent.prompt, 1)?.ms);
    }
    Ok(Sessions {
        count,
        open_ms,
        idle_kib: with_all.saturating_sub(before) as f64 / count as f64,
        process_mib: with_all as f64 / 1024.0,
        turn_ms: median(took.into_iter()).context("no turn")?,
    })
}
