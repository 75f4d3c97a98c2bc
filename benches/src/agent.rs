//! The agent benchmark: how fast an agent starts, acts and opens sessions, and what its sessions cost, compared with
//! fast-agent doing the same in the same run.
//!
//! Neither waits for a model: ours takes commands, and fast-agent's model echoes its input. Both run a command in a
//! terminal that the client only simulates, so the benchmark measures the agents' own work. Both have their state in a
//! directory of their own, and read nothing.

mod agent_under_test;
mod options;
mod report;

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::files::{BenchProgress, Comparison};
use crate::host::ScratchDir;
use crate::wire::machine::CpuUsage;
use crate::wire::median;
use agent_under_test::AgentUnderTest;

pub use options::{AgentBenchOptions, BenchAgent};
pub use report::{AgentBenchReport, AgentMeasurements};

/// The size of a run.
#[derive(Debug, Clone, Copy)]
struct AgentBenchSize {
    /// The number of times that each agent is started.
    starts: usize,
    /// The number of measured turns with one call, alternating between the agents.
    turns: usize,
    /// The number of calls that our agent makes in one turn; 200 is the limit.
    calls: usize,
    /// The number of turns in the session of ours that is loaded.
    loaded_turns: usize,
    /// The number of sessions opened in one process: ours, and theirs.
    sessions: [usize; 2],
}

const FULL: AgentBenchSize =
    AgentBenchSize { starts: 9, turns: 101, calls: 150, loaded_turns: 2000, sessions: [1000, 1000] };
const QUICK: AgentBenchSize =
    AgentBenchSize { starts: 3, turns: 21, calls: 150, loaded_turns: 200, sessions: [1000, 50] };

/// The number of unmeasured turns at the beginning.
const WARM_UP: usize = 3;

/// The number of sessions that run a turn once all are open.
const LATE_TURNS: usize = 20;

/// Measures everything and returns the report; writes messages to `progress`.
///
/// # Errors
/// Fails if an agent does not do what it is asked.
pub fn run(options: &AgentBenchOptions, progress: &mut dyn Write) -> Result<AgentBenchReport> {
    let extent = if options.quick { QUICK } else { FULL };
    let mut progress = BenchProgress { started: Instant::now(), output: progress };
    let scratch = ScratchDir::make(&options.data)?;
    let usage = CpuUsage::now()?;
    let mut measured = AgentMeasurements::default();
    let [ours, theirs] = &options.agents;
    progress.report("starts")?;
    // The first start of a program measures the disk, so it is not counted.
    for agent in &options.agents {
        measure_start(agent, &scratch.0)?;
    }
    measured.starts = Comparison::measure_alternately(
        extent.starts,
        || measure_start(ours, &scratch.0),
        || measure_start(theirs, &scratch.0),
    )?;
    progress.report("turns with one command")?;
    measure_turns(&options.agents, &scratch.0, extent, &mut measured)?;
    progress.report("one turn with many commands")?;
    measured.command_us = measure_many_calls(ours, &scratch.0, extent.calls)?;
    progress.report(&format!("loading {} turns", extent.loaded_turns))?;
    measured.load_ms = measure_load(ours, &scratch.0, extent.loaded_turns)?;
    for (at, agent) in options.agents.iter().enumerate() {
        progress.report(&format!("{}: {} sessions", agent.name, extent.sessions[at]))?;
        let sessions = measure_sessions(agent, &scratch.0, extent.sessions[at])?;
        measured.set_sessions(at, sessions);
    }
    measured.other_cores = usage.other_cores_since()?;
    progress.report("done")?;
    Ok(AgentBenchReport::new(options.agents.clone().map(|agent| agent.name), measured))
}

/// Returns the milliseconds from starting an agent to its response to `initialize`.
fn measure_start(agent: &BenchAgent, scratch: &Path) -> Result<f64> {
    let begun = Instant::now();
    AgentUnderTest::start(agent, scratch).with_context(|| agent.name.clone())?;
    Ok(begun.elapsed().as_secs_f64() * 1e3)
}

/// Measures the time to the first call and to the end of turns that run one command.
fn measure_turns(
    agents: &[BenchAgent; 2],
    scratch: &Path,
    extent: AgentBenchSize,
    measured: &mut AgentMeasurements,
) -> Result<()> {
    let open = |agent: &BenchAgent| -> Result<_> {
        let mut served = AgentUnderTest::start(agent, scratch)?;
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

/// Returns the microseconds per call, in one turn with many.
fn measure_many_calls(agent: &BenchAgent, scratch: &Path, calls: usize) -> Result<f64> {
    let mut served = AgentUnderTest::start(agent, scratch)?;
    let session = served.new_session()?;
    let prompt = vec![agent.prompt.as_str(); calls].join("\n");
    let turn = served.turn(&session, &prompt, calls)?;
    Ok(turn.ms * 1e3 / calls as f64)
}

/// Returns the milliseconds in which a new process loads a session with many turns.
fn measure_load(agent: &BenchAgent, scratch: &Path, turns: usize) -> Result<f64> {
    let mut served = AgentUnderTest::start(agent, scratch)?;
    let session = served.new_session()?;
    for _ in 0..turns {
        served.turn(&session, &agent.prompt, 1)?;
    }
    drop(served);
    AgentUnderTest::start(agent, scratch)?.load_session(&session, turns)
}

/// The cost of many sessions in one process.
#[derive(Debug, Clone, Copy)]
pub struct SessionCosts {
    /// The number of sessions.
    pub count: usize,
    /// The milliseconds to open one session.
    pub open_ms: f64,
    /// The KiB of an open, idle session.
    pub idle_kib: f64,
    /// The MiB of the process with all sessions open.
    pub process_mib: f64,
    /// The milliseconds of a turn with one command while all sessions are open.
    pub turn_ms: f64,
}

fn measure_sessions(agent: &BenchAgent, scratch: &Path, count: usize) -> Result<SessionCosts> {
    let mut served = AgentUnderTest::start(agent, scratch)?;
    // The first session also pays for what all sessions share, so it is not counted.
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
    Ok(SessionCosts {
        count,
        open_ms,
        idle_kib: with_all.saturating_sub(before) as f64 / count as f64,
        process_mib: with_all as f64 / 1024.0,
        turn_ms: median(took.into_iter()).context("no turn")?,
    })
}
