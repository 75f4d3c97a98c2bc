//! What a message costs the process that stands between: processor time by the system's count, and memory.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::Way;
use crate::bench::raw::RawAgent;

/// The bytes of a large payload.
const LARGE: usize = 10_000_000;
/// How many large payloads go through.
const LARGE_COUNT: usize = 5;

/// What was counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// The microseconds of processor time for each streamed update.
    pub update_us: f64,
    /// The microseconds of processor time for each message of reads that come one after the other.
    pub message_us: f64,
    /// The milliseconds of processor time for a message of 10 MB.
    pub large_ms: f64,
    /// The most memory, in MiB, while small messages went through, and after the large ones.
    pub peak_mib: [f64; 2],
}

/// Counts it.
pub(super) fn measure(way: &Way, updates: usize, reads: usize, limit: Duration) -> Result<Cost> {
    let (program, arguments) = way.agent.split_first().context("no command")?;
    let mut command = Command::new(program);
    command.args(arguments);
    let mut agent = RawAgent::start(command, limit)?;
    agent.initialize()?;
    let session = agent.call("session/new", json!({"cwd": std::env::current_dir()?, "mcpServers": []}))?;
    let session = session.get("sessionId").context("session/new gave no id")?.clone();
    let read = |count, bytes: usize| json!({"do": "read", "path": format!("/bench/{bytes}"), "count": count, "inflight": 1});
    let stream = |count| json!({"do": "stream", "count": count, "size": 200});
    turn(&mut agent, &session, &stream(updates / 10), 0)?;
    let mut spent = agent.cpu_us()?;
    let mut since = |agent: &RawAgent| -> Result<f64> {
        let now = agent.cpu_us()?;
        let took = now - spent;
        spent = now;
        Ok(took)
    };
    turn(&mut agent, &session, &stream(updates), 0)?;
    let update_us = since(&agent)? / updates as f64;
    turn(&mut agent, &session, &read(reads, 200), 200)?;
    // A question and an answer.
    let message_us = since(&agent)? / (2 * reads) as f64;
    let small = agent.peak_kib()?;
    turn(&mut agent, &session, &read(LARGE_COUNT, LARGE), LARGE)?;
    let large_ms = since(&agent)? / 1e3 / LARGE_COUNT as f64;
    let peak_mib = [small, agent.peak_kib()?].map(|kib| kib as f64 / 1024.0);
    agent.end()?;
    Ok(Cost { update_us, message_us, large_ms, peak_mib })
}

/// Takes one turn, and answers every read with so many bytes.
fn turn(agent: &mut RawAgent, session: &Value, task: &Value, bytes: usize) -> Result<()> {
    let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": task.to_string()}]});
    let id = agent.send("session/prompt", prompt)?;
    let content = "x".repeat(bytes);
    loop {
        let line = agent.read()?;
        // Most lines are updates, and this end is not what is measured.
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
