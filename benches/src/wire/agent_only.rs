//! An agent without its client: its start-up time, and its memory while its reader stalls.

use std::process::Command;
use std::time::{Duration, Instant};

use agent_client_protocol_schema::v1::{ContentBlock, SessionNotification, SessionUpdate};
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;

use super::raw::RawAgent;

/// The interval at which an agent's memory is sampled.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);

/// The size of one streamed chunk.
const CHUNK_BYTES: usize = 200;

/// Returns the time from starting an agent to its response to `initialize`.
pub(super) fn measure_start(agent: &[String], limit: Duration) -> Result<Duration> {
    let begun = Instant::now();
    let mut agent = RawAgent::start(command(agent)?, limit)?;
    agent.initialize()?;
    let took = begun.elapsed();
    agent.end()?;
    Ok(took)
}

/// Streams `chunks` to a reader that first stalls for `stall`, and returns the agent's growth in that time, in MiB. All
/// chunks must arrive once the reader continues.
pub(super) fn measure_stalled_growth(
    agent: &[String],
    chunks: usize,
    stall: Duration,
    limit: Duration,
) -> Result<f64> {
    let mut agent = RawAgent::start(command(agent)?, limit)?;
    agent.initialize()?;
    let session = agent.call("session/new", json!({"cwd": std::env::current_dir()?, "mcpServers": []}))?;
    let session = session.get("sessionId").context("session/new gave no id")?;
    let before = agent.resident_kib()?;
    let task = json!({"do": "stream", "count": chunks, "size": CHUNK_BYTES}).to_string();
    let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": task}]});
    let id = agent.send("session/prompt", prompt)?;

    let stalled = Instant::now();
    let mut most = before;
    while stalled.elapsed() < stall {
        std::thread::sleep(SAMPLE_INTERVAL);
        most = most.max(agent.resident_kib()?);
    }

    let mut came = 0;
    loop {
        let line = agent.read().with_context(|| format!("after {came} of {chunks} chunks"))?;
        match serde_json::from_str(line).with_context(|| format!("cannot read the line {line}"))? {
            AgentLine { method: Some("session/update"), params: Some(update), .. } => {
                let SessionUpdate::AgentMessageChunk(chunk) = update.update else {
                    bail!("an update came that is no chunk: {line}");
                };
                let ContentBlock::Text(text) = chunk.content else {
                    bail!("a chunk came that is no text: {line}")
                };
                ensure!(text.text.len() == CHUNK_BYTES, "a chunk of {} bytes came", text.text.len());
                came += 1;
            }
            AgentLine { method: None, id: Some(answered), result: Some(_), .. } if answered == id => break,
            _ => bail!("an unexpected line came: {line}"),
        }
    }
    ensure!(came == chunks, "{came} chunks came before the answer, instead of {chunks}");
    agent.end()?;
    Ok(most.saturating_sub(before) as f64 / 1024.0)
}

/// The part of an agent's line that the stalled reader needs.
#[derive(Deserialize)]
struct AgentLine<'a> {
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
