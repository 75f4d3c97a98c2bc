//! An agent with many sessions, each of which sends updates at a steady pace. Each update says when it was sent.

use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::time::{Instant, MissedTickBehavior};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let started = now()?.as_nanos();
    let mut sessions = 0u32;
    while let Some(line) = lines.next_line().await? {
        let message: Value = serde_json::from_str(&line)?;
        let result = match message["method"].as_str() {
            Some("initialize") => json!({ "protocolVersion": 1 }),
            Some("session/new") => {
                sessions += 1;
                json!({ "sessionId": format!("{started}-{sessions}") })
            }
            Some("session/prompt") => {
                tokio::spawn(run_turn(message, sessions));
                continue;
            }
            _ => continue,
        };
        send(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))?;
    }
    Ok(())
}

/// Sends `count` updates of a session, `perSecond` of them each second.
async fn run_turn(message: Value, sessions: u32) -> Result<()> {
    let params = &message["params"];
    let text = params["prompt"][0]["text"].as_str().context("the prompt has no text")?;
    let task: Value = serde_json::from_str(text)?;
    let (count, rate) = (task["count"].as_u64(), task["perSecond"].as_u64());
    let (count, rate) = count.zip(rate).context("the prompt needs count and perSecond")?;
    let period = Duration::from_secs(1) / u32::try_from(rate)?;
    // Sessions must not send all at the same moment.
    let session = params["sessionId"].as_str().unwrap_or_default();
    let number: u32 = session.rsplit('-').next().unwrap_or_default().parse().unwrap_or(0);
    let start = Instant::now() + period * number / sessions.max(1);
    let mut ticks = tokio::time::interval_at(start, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for _ in 0..count {
        ticks.tick().await;
        let content = json!({ "type": "text", "text": now()?.as_micros().to_string() });
        let update = json!({ "sessionUpdate": "agent_message_chunk", "content": content });
        let params = json!({ "sessionId": session, "update": update });
        send(&json!({ "jsonrpc": "2.0", "method": "session/update", "params": params }))?;
    }
    let result = json!({ "stopReason": "end_turn" });
    send(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))
}

fn now() -> Result<Duration> {
    SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")
}

/// Writes a message at once, without another thread: the time that it takes is measured, too.
fn send(message: &Value) -> Result<()> {
    let mut output = std::io::stdout().lock();
    output.write_all((message.to_string() + "\n").as_bytes())?;
    output.flush().context("cannot write to the client")
}
