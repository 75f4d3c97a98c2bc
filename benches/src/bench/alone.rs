//! An agent without its client: how fast it starts, and what it holds while its reader stops.

use std::io::{BufRead, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use agent_client_protocol_schema::v1::{ContentBlock, SessionNotification, SessionUpdate};
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::child::{Pipes, Watched};

/// How often the memory of an agent is looked at.
const SAMPLE: Duration = Duration::from_millis(20);

/// The bytes of one streamed chunk.
const CHUNK: usize = 200;

/// Returns the time from starting an agent to its answer to `initialize`.
pub(super) fn start(agent: &[String], limit: Duration) -> Result<Duration> {
    let begun = Instant::now();
    let mut agent = Agent::start(agent, limit)?;
    agent.initialize()?;
    let took = begun.elapsed();
    agent.end()?;
    Ok(took)
}

/// Streams `chunks` to a reader that first stops for `stall`, and returns the MiB that the agent grew by
/// in that time. All chunks must come once it reads again.
pub(super) fn stalled(agent: &[String], chunks: usize, stall: Duration, limit: Duration) -> Result<f64> {
    let mut agent = Agent::start(agent, limit)?;
    agent.initialize()?;
    let session = agent.call("session/new", json!({"cwd": std::env::current_dir()?, "mcpServers": []}))?;
    let session = session.get("sessionId").context("session/new gave no id")?;
    let before = agent.resident_kib()?;
    let task = json!({"do": "stream", "count": chunks, "size": CHUNK}).to_string();
    let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": task}]});
    let id = agent.send("session/prompt", prompt)?;

    let stalled = Instant::now();
    let mut most = before;
    while stalled.elapsed() < stall {
        std::thread::sleep(SAMPLE);
        most = most.max(agent.resident_kib()?);
    }

    let mut came = 0;
    loop {
        let line = agent.read().with_context(|| format!("after {came} of {chunks} chunks"))?;
        match serde_json::from_str(line).with_context(|| format!("cannot read the line {line}"))? {
            Incoming { method: Some("session/update"), params: Some(update), .. } => {
                let SessionUpdate::AgentMessageChunk(chunk) = update.update else {
                    bail!("an update came that is no chunk: {line}");
                };
                let ContentBlock::Text(text) = chunk.content else {
                    bail!("a chunk came that is no text: {line}")
                };
                ensure!(text.text.len() == CHUNK, "a chunk of {} bytes came", text.text.len());
                came += 1;
            }
            Incoming { method: None, id: Some(answered), result: Some(_), .. } if answered == id => break,
            _ => bail!("an unexpected line came: {line}"),
        }
    }
    ensure!(came == chunks, "{came} chunks came before the answer, instead of {chunks}");
    agent.end()?;
    Ok(most.saturating_sub(before) as f64 / 1024.0)
}

/// A line from the agent, of which the stalled reader needs no more than this.
#[derive(Deserialize)]
struct Incoming<'a> {
    method: Option<&'a str>,
    id: Option<u64>,
    params: Option<SessionNotification>,
    result: Option<IgnoredAny>,
}

/// A running agent and the raw ends of its pipes.
struct Agent {
    child: Watched,
    pipes: Pipes,
    line: String,
    requests: u64,
}

impl Agent {
    fn start(command: &[String], limit: Duration) -> Result<Self> {
        let (program, arguments) = command.split_first().context("no agent")?;
        let (child, pipes) =
            Watched::start(Command::new(program).args(arguments).stdin(Stdio::piped()), limit)?;
        Ok(Self { child, pipes, line: String::new(), requests: 0 })
    }

    fn initialize(&mut self) -> Result<()> {
        let capabilities = json!({"fs": {"readTextFile": true, "writeTextFile": true}, "terminal": true});
        let params = json!({"protocolVersion": 1, "clientCapabilities": capabilities});
        let answer = self.call("initialize", params)?;
        ensure!(answer.get("protocolVersion") == Some(&json!(1)), "initialize was answered with {answer}");
        Ok(())
    }

    /// Sends a request and returns the result, which must be the next line.
    fn call(&mut self, method: &str, params: Value) -> Result<Value> {
        let id = self.send(method, params)?;
        let line = self.read().with_context(|| format!("no answer to {method}"))?;
        let mut answer: Value =
            serde_json::from_str(line).with_context(|| format!("cannot read the line {line}"))?;
        ensure!(answer.get("id") == Some(&json!(id)), "{method} was answered with {line}");
        answer.get_mut("result").map(Value::take).with_context(|| format!("{method} failed: {line}"))
    }

    fn send(&mut self, method: &str, params: Value) -> Result<u64> {
        self.requests += 1;
        let line = json!({"jsonrpc": "2.0", "id": self.requests, "method": method, "params": params});
        let stdin = self.pipes.stdin.as_mut().context("no pipe to the agent")?;
        stdin.write_all(format!("{line}\n").as_bytes()).context("cannot write to the agent")?;
        Ok(self.requests)
    }

    fn read(&mut self) -> Result<&str> {
        self.line.clear();
        let count = self.pipes.stdout.read_line(&mut self.line).context("cannot read from the agent")?;
        if count == 0 { Err(self.child.early_end()) } else { Ok(self.line.trim_end()) }
    }

    fn resident_kib(&self) -> Result<u64> {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok());
        kib.with_context(|| self.child.early_end())
    }

    /// Closes the agent's stdin, upon which it must end.
    fn end(self) -> Result<()> {
        drop(self.pipes);
        self.child.end()
    }
}
