//! A pair's client, run with a plan. Every line that it prints is checked.

use std::io::{BufRead, BufReader};
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::child::TimedChild;
use super::machine::{child_pids, cpu_us_of};
use super::options::BenchPair;
use super::phase::BenchPhase;

/// The fraction of a phase's count that runs first, unmeasured, is one in this many.
const WARM_UP_DIVISOR: usize = 5;

/// One value for each phase.
type PerPhase<T> = [T; BenchPhase::ALL.len()];

/// The result of a first short run of a pair.
pub(crate) struct Calibration {
    /// The count of each phase that takes the target duration.
    pub(crate) counts: PerPhase<usize>,
    /// The rates of the short run.
    pub(crate) rates: PerPhase<f64>,
}

/// Finds the counts with which each phase takes about `time`, with at least `chunks` chunks.
pub(crate) fn calibrate(
    pair: &BenchPair,
    time: Duration,
    chunks: usize,
    limit: Duration,
) -> Result<Calibration> {
    let steps = BenchPhase::ALL.map(|phase| [(phase, phase.first_count()); 2]);
    let taken = run_steps(pair, steps.as_flattened(), limit)?;
    let counts = std::array::from_fn(|at| {
        let (phase, first) = steps[at][1];
        let count = phase.count_for(time, first, taken[2 * at + 1].seconds);
        if phase == BenchPhase::Stream { count.max(chunks) } else { count }
    });
    let rates = std::array::from_fn(|at| {
        let (phase, first) = steps[at][1];
        phase.rate(first, taken[2 * at + 1].seconds)
    });
    Ok(Calibration { counts, rates })
}

/// The measurements of one round of a pair.
pub(crate) struct RoundMeasurements {
    /// The rate of each phase.
    pub(crate) rates: PerPhase<f64>,
    /// The processor time of each phase, or `None` if the system did not provide it.
    pub(crate) cpu: PerPhase<Option<MessageCpuTime>>,
}

/// The processor time of one message at both ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MessageCpuTime {
    /// The microseconds at the client's end.
    pub client_us: f64,
    /// The microseconds at the agent's end.
    pub agent_us: f64,
}

/// Measures each phase, each after a warm-up.
pub(crate) fn measure(
    pair: &BenchPair,
    counts: &PerPhase<usize>,
    limit: Duration,
) -> Result<RoundMeasurements> {
    let steps: PerPhase<[_; 2]> = std::array::from_fn(|at| {
        let phase = BenchPhase::ALL[at];
        [(phase, counts[at].div_ceil(WARM_UP_DIVISOR)), (phase, counts[at])]
    });
    // Processor times are read after a step, while the processes run the next one, so they must not end with the last
    // step.
    let all = [steps.as_flattened(), &steps[0][..1]].concat();
    let taken = run_steps(pair, &all, limit)?;
    let rates = std::array::from_fn(|at| {
        let (phase, count) = steps[at][1];
        phase.rate(count, taken[2 * at + 1].seconds)
    });
    let cpu = std::array::from_fn(|at| {
        let (phase, count) = steps[at][1];
        let ([client, agent], before) = (taken[2 * at + 1].used_cpu_us?, taken[2 * at].used_cpu_us?);
        let messages = phase.messages(count) as f64;
        Some(MessageCpuTime {
            client_us: (client - before[0]) / messages,
            agent_us: (agent - before[1]) / messages,
        })
    });
    Ok(RoundMeasurements { rates, cpu })
}

/// The timing of a completed step.
struct StepTiming {
    seconds: f64,
    /// The total processor time of client and agent by then, in microseconds, or `None` if the system did not provide
    /// it.
    used_cpu_us: Option<[f64; 2]>,
}

/// Runs the client with a step for each phase and count.
fn run_steps(pair: &BenchPair, steps: &[(BenchPhase, usize)], limit: Duration) -> Result<Vec<StepTiming>> {
    let plan: Vec<_> = steps.iter().map(|(phase, count)| json!({"prompt": phase.prompt(*count)})).collect();
    let mut run = ClientRun::start(pair, &Value::from(plan).to_string(), limit).context(pair.name.clone())?;
    let hello: InitializeLine = run.read_line().with_context(|| format!("{}: initialize", pair.name))?;
    ensure!(hello.protocol_version == 1, "{}: speaks version {}", pair.name, hello.protocol_version);
    let agents = child_pids(run.child.id())?;
    let mut taken = Vec::new();
    for &(phase, count) in steps {
        let line = run.read_line().and_then(|line: StepLine| line.checked_seconds(phase, count));
        let seconds = line.with_context(|| format!("{}: {}", pair.name, phase.name()))?;
        taken.push(StepTiming { seconds, used_cpu_us: used_cpu_us(run.child.id(), &agents) });
    }
    run.end().with_context(|| format!("{}: end", pair.name))?;
    Ok(taken)
}

/// Returns the processor time of a client and its agent, if both are running.
fn used_cpu_us(client: u32, agents: &[u32]) -> Option<[f64; 2]> {
    let [agent] = agents else { return None };
    Some([cpu_us_of(client).ok()?, cpu_us_of(*agent).ok()?])
}

/// A client's first line.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InitializeLine {
    protocol_version: u16,
}

/// A client's line for one step.
#[derive(Deserialize)]
struct StepLine {
    stop: String,
    seconds: f64,
    chunks: Vec<String>,
    kinds: serde_json::Map<String, Value>,
}

impl StepLine {
    /// Returns the seconds, if the step did what the phase requires.
    fn checked_seconds(self, phase: BenchPhase, count: usize) -> Result<f64> {
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
struct ClientRun {
    child: TimedChild,
    stdout: BufReader<ChildStdout>,
}

impl ClientRun {
    fn start(pair: &BenchPair, plan: &str, limit: Duration) -> Result<Self> {
        let (program, arguments) = pair.client.split_first().context("no client")?;
        let mut command = Command::new(program);
        command.args(arguments).args(["--approve", "allow", "--plan", plan, "--"]).args(&pair.agent);
        let (child, pipes) = TimedChild::start(command.stdin(Stdio::null()), limit)?;
        Ok(Self { child, stdout: pipes.stdout })
    }

    fn read_line<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        if self.stdout.read_line(&mut line).context("cannot read the client's stdout")? == 0 {
            return Err(self.child.early_end_error());
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
