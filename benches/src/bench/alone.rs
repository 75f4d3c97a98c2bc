//! An agent without its client: how fast it starts, and what it holds while its reader stops.

use std::process::Command;
use std::time::{Duration, Instant};

use agent_client_protocol_schema::v1::{ContentBlock, SessionNotification, SessionUpdate};
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;

use super::raw::RawAgent;

/// How often the memory of an agent is looked at.
const SAMPLE: Duration = Duration::from_millis(20);

/// The bytes of one streamed chunk.
const CHUNK: usize = 200;

/// Returns the time from starting an agent to its answer to `initialize`.
pub(super) fn start(agent: &[String], limit: Duration) -> Result<Duration> {
    let begun = Instant::now();
    let mut agent = RawAgent::start(command(agent)?, limit)?;
    agent.initialize()?;
    let took = begun.elapsed();
    agent.end()?;
    Ok(took)
}

/// Streams `chunks` to a reader that first stops for `stall`, and returns the MiB that the agent grew by
/// in that time. All chunks must come once it reads again.
pub(super) fn stalled(agent: &[String], chunks: usize, stall: Duration, limit: Duration) -> Result<f64> {
    let mut agent = RawAgent::start(command(agent)?, limit)?;
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

fn command(words: &[String]) -> Result<Command> {
    let (program, arguments) = words.split_first().context("no agent")?;
    let mut command = Command::new(program);
    command.args(arguments);
    Ok(command)
}
