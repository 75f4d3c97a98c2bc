//! The cost of a message in the process between client and agent: processor time, as counted by the system, and memory.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::BenchRoute;
use crate::wire::raw::RawAgent;

/// The size of a large payload.
const LARGE_BYTES: usize = 10_000_000;
/// The number of large payloads.
const LARGE_COUNT: usize = 5;

/// The measured costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MessageCost {
    /// The microseconds of processor time per streamed update.
    pub update_us: f64,
    /// The microseconds of processor time per message of sequential reads.
    pub message_us: f64,
    /// The milliseconds of processor time for a message of 10 MB.
    pub large_ms: f64,
    /// The peak memory in MiB: after the small messages, and after the large ones.
    pub peak_mib: [f64; 2],
}

/// Measures the costs of a route.
pub(super) fn measure(
    way: &BenchRoute,
    updates: usize,
    reads: usize,
    limit: Duration,
) -> Result<MessageCost> {
    let (program, arguments) = way.agent.split_first().context("no command")?;
    let mut command = Command::new(program);
    command.args(arguments);
    let mut agent = RawAgent::start(command, limit)?;
    agent.initialize()?;
    let session = agent.call("session/new", json!({"cwd": std::env::current_dir()?, "mcpServers": []}))?;
    let session = session.get("sessionId").context("session/new gave no id")?.clone();
    let read = |count, bytes: usize| json!({"do": "read", "path": format!("/bench/{bytes}"), "count": count, "inflight": 1});
    let stream = |count| json!({"do": "stream", "count": count, "size": 200});
    run_turn(&mut agent, &session, &stream(updates / 10), 0)?;
    let mut spent = agent.cpu_us()?;
    let mut since = |agent: &RawAgent| -> Result<f64> {
        let now = agent.cpu_us()?;
        let took = now - spent;
        spent = now;
        Ok(took)
    };
    run_turn(&mut agent, &session, &stream(updates), 0)?;
    let update_us = since(&agent)? / updates as f64;
    run_turn(&mut agent, &session, &read(reads, 200), 200)?;
    // Each read is a request and a response.
    let message_us = since(&agent)? / (2 * reads) as f64;
    let small = agent.peak_kib()?;
    run_turn(&mut agent, &session, &read(LARGE_COUNT, LARGE_BYTES), LARGE_BYTES)?;
    let large_ms = since(&agent)? / 1e3 / LARGE_COUNT as f64;
    let peak_mib = [small, agent.peak_kib()?].map(|kib| kib as f64 / 1024.0);
    agent.end()?;
    Ok(MessageCost { update_us, message_us, large_ms, peak_mib })
}

/// Runs one turn, and answers every read with a text of this size.
fn run_turn(agent: &mut RawAgent, session: &Value, task: &Value, bytes: usize) -> Result<()> {
    let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": task.to_string()}]});
    let id = agent.send("session/prompt", prompt)?;
    let content = "x".repeat(bytes);
    loop {
        let line = agent.read()?;
        // Most lines are updates, and parsing them would only slow this end, which is not measured.
        if line.contains("\"session/update\"") {
            continue;
        }
        let message: Value = serde_json::from_str(line).with_context(|| format!("cannot read {line}"))?;
        if message.get("method").is_some() {
            let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": {"content": content}});
            agent.write(&answer)?;
            continue;
        }
        ensure!(message["id"] == id && message["result"]["stopReason"] == "end_turn", "got {line}");
        return Ok(());
    }
}
