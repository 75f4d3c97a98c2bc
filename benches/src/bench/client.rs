//! A pair's client, run with a plan; every line that it prints is checked.

use std::io::{BufRead, BufReader};
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::child::Watched;
use super::machine::{children, cpu_us_of};
use super::options::Pair;
use super::phase::Phase;

/// One part in so many of a phase's count goes before it, unmeasured.
const WARM_UP: usize = 5;

/// One value for each phase.
type Each<T> = [T; Phase::ALL.len()];

/// What a first short run tells of a pair.
pub(crate) struct Calibrated {
    /// How many of each phase take the time that a phase is to take.
    pub(crate) counts: Each<usize>,
    /// The rates of the short run.
    pub(crate) rates: Each<f64>,
}

/// Finds the counts with which each phase takes about `time`, but `chunks` at least.
pub(crate) fn calibrate(pair: &Pair, time: Duration, chunks: usize, limit: Duration) -> Result<Calibrated> {
    let steps = Phase::ALL.map(|phase| [(phase, phase.first_count()); 2]);
    let taken = take(pair, steps.as_flattened(), limit)?;
    let counts = std::array::from_fn(|at| {
        let (phase, first) = steps[at][1];
        let count = phase.count_for(time, first, taken[2 * at + 1].seconds);
        if phase == Phase::Stream { count.max(chunks) } else { count }
    });
    let rates = std::array::from_fn(|at| {
        let (phase, first) = steps[at][1];
        phase.rate(first, taken[2 * at + 1].seconds)
    });
    Ok(Calibrated { counts, rates })
}

/// What one round of a pair came to.
pub(crate) struct Round {
    /// The rate of each phase.
    pub(crate) rates: Each<f64>,
    /// The processor time of each phase, `None` if the system did not tell.
    pub(crate) cpu: Each<Option<Cpu>>,
}

/// The processor time that one message takes at both ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cpu {
    /// The microseconds at the client's end.
    pub client_us: f64,
    /// The microseconds at the agent's end.
    pub agent_us: f64,
}

/// Measures each phase, each after a warm-up.
pub(crate) fn measure(pair: &Pair, counts: &Each<usize>, limit: Duration) -> Result<Round> {
    let steps: Each<[_; 2]> = std::array::from_fn(|at| {
        let phase = Phase::ALL[at];
        [(phase, counts[at].div_ceil(WARM_UP)), (phase, counts[at])]
    });
    // The processes are asked for their time after a step, when they are at the next: they must not end with the last.
    let all = [steps.as_flattened(), &steps[0][..1]].concat();
    let taken = take(pair, &all, limit)?;
    let rates = std::array::from_fn(|at| {
        let (phase, count) = steps[at][1];
        phase.rate(count, taken[2 * at + 1].seconds)
    });
    let cpu = std::array::from_fn(|at| {
        let (phase, count) = steps[at][1];
        let ([client, agent], before) = (taken[2 * at + 1].spent_us?, taken[2 * at].spent_us?);
        let messages = phase.messages(count) as f64;
        Some(Cpu { client_us: (client - before[0]) / messages, agent_us: (agent - before[1]) / messages })
    });
    Ok(Round { rates, cpu })
}

/// A step that was taken.
struct Taken {
    seconds: f64,
    /// The microseconds of processor time that client and agent had used by then, `None` if the system did not tell.
    spent_us: Option<[f64; 2]>,
}

/// Runs the client with a step for each phase and count.
fn take(pair: &Pair, steps: &[(Phase, usize)], limit: Duration) -> Result<Vec<Taken>> {
    let plan: Vec<_> = steps.iter().map(|(phase, count)| json!({"prompt": phase.prompt(*count)})).collect();
    let mut run = Run::start(pair, &Value::from(plan).to_string(), limit).context(pair.name.clone())?;
    let hello: Hello = run.line().with_context(|| format!("{}: initialize", pair.name))?;
    ensure!(hello.protocol_version == 1, "{}: speaks version {}", pair.name, hello.protocol_version);
    let agents = children(run.child.id())?;
    let mut taken = Vec::new();
    for &(phase, count) in steps {
        let line = run.line().and_then(|line: Line| line.check(phase, count));
        let seconds = line.with_context(|| format!("{}: {}", pair.name, phase.name()))?;
        taken.push(Taken { seconds, spent_us: spent_us(run.child.id(), &agents) });
    }
    run.end().with_context(|| format!("{}: end", pair.name))?;
    Ok(taken)
}

/// Returns what a client and its agent have used, if both are there.
fn spent_us(client: u32, agents: &[u32]) -> Option<[f64; 2]> {
    let [agent] = agents else { return None };
    Some([cpu_us_of(client).ok()?, cpu_us_of(*agent).ok()?])
}

/// A client's first line.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Hello {
    protocol_version: u16,
}

/// A client's line for one step.
#[derive(Deserialize)]
struct Line {
    stop: String,
    seconds: f64,
    chunks: Vec<String>,
    kinds: serde_json::Map<String, Value>,
}

impl Line {
    /// Returns the seconds, if the step did what the phase asks for.
    fn check(self, phase: Phase, count: usize) -> Result<f64> {
        ensure!(self.stop == "end_turn", "the turn ended with {}", self.stop);
        let chunks = self.kinds.get("agent_message_chunk").and_then(Value::as_u64).unwrap_or(0);
        let expected = phase.chunks(count);
        ensure!(chunks == expected as u64, "{chunks} chunks came instead of {expected}");
        if let Some(expected) = phase.outcome(count) {
            let outcome = self.chunks.last().and_then(|text| serde_json::from_str::<Value>(text).ok());
            ensure!(outcome.as_ref() == Some(&expected), "got {:?} instead of {expected}", self.chunks);
        }
        ensure!(self.seconds > 0.0, "took {} seconds", self.seconds);
        Ok(self.seconds)
    }
}

/// A running client.
struct Run {
    child: Watched,
    stdout: BufReader<ChildStdout>,
}

impl Run {
    fn start(pair: &Pair, plan: &str, limit: Duration) -> Result<Self> {
        let (program, arguments) = pair.client.split_first().context("no client")?;
        let mut command = Command::new(program);
        command.args(arguments).args(["--approve", "allow", "--plan", plan, "--"]).args(&pair.agent);
        let (child, pipes) = Watched::start(command.stdin(Stdio::null()), limit)?;
        Ok(Self { child, stdout: pipes.stdout })
    }

    fn line<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        if self.stdout.read_line(&mut line).context("cannot read the client's stdout")? == 0 {
            return Err(self.child.early_end());
        }
        serde_json::from_str(&line).with_context(|| format!("cannot read the client's line {line}"))
    }

    fn end(mut self) -> Result<()> {
        let mut line = String::new();
        self.stdout.read_line(&mut line).context("cannot read the client's stdout")?;
        ensure!(line.is_empty(), "an unexpected line came: {line}");
        self.child.end()
    }
}
