//! Many sessions that work at once: how late updates arrive, and how much memory a session takes.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use bowline_wire::message::peek::{PeekedMessage, peek};
use futures_util::future::try_join_all;
use serde_json::Value;

use super::ServeBenchSize;
use super::client::{BenchClient, Endpoint};
use super::report::SessionTimes;
use crate::wire::machine::kib_of;

/// Lets each session run a task that sends updates at a steady pace.
pub(super) async fn measure(
    endpoint: &Endpoint,
    server: u32,
    size: ServeBenchSize,
    cwd: &Path,
    task: &Value,
) -> Result<SessionTimes> {
    let mut clients = Vec::new();
    for _ in 0..size.connections {
        let client = BenchClient::connect(endpoint, cwd).await?;
        let sessions = vec![client.session().to_owned()];
        clients.push((client, sessions));
    }
    let before = kib_of(server, "VmRSS:")?;
    for (client, sessions) in &mut clients {
        while sessions.len() < size.sessions_each {
            sessions.push(client.open_session(cwd).await?);
        }
    }
    let turns = clients.iter_mut().map(|(client, sessions)| run_turns(client, sessions, task));
    let late: Vec<f64> = try_join_all(turns).await?.into_iter().flatten().collect();
    let after = kib_of(server, "VmRSS:")?;
    let sessions = size.connections * (size.sessions_each - 1);
    Ok(SessionTimes { late_ms: late, session_kib: after.saturating_sub(before) as f64 / sessions as f64 })
}

/// Runs the task in each session of a client, and returns how many milliseconds each update took.
async fn run_turns(client: &mut BenchClient, sessions: &[String], task: &Value) -> Result<Vec<f64>> {
    for session in sessions {
        client.prompt(session, task).await?;
    }
    let (mut late, mut answered) = (Vec::new(), 0);
    while answered < sessions.len() {
        let message = client.next().await?;
        match peek(&message) {
            PeekedMessage::Notification { .. } => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros();
                let message: Value = serde_json::from_slice(&message)?;
                // Other updates, such as of commands, have no time.
                let sent = message["params"]["update"]["content"]["text"].as_str();
                if let Some(sent) = sent {
                    let sent: u128 = sent.parse().context("an update has no time")?;
                    late.push(now.saturating_sub(sent) as f64 / 1e3);
                }
            }
            PeekedMessage::Response { is_error, .. } => {
                ensure!(!is_error, "a turn failed: {}", String::from_utf8_lossy(&message));
                answered += 1;
            }
            PeekedMessage::Request { .. } | PeekedMessage::Other => {}
        }
    }
    Ok(late)
}
