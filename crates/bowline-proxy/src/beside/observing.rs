//! Looking at the disk for one session, beside the messages: one task that does one look after the other.

use std::sync::Arc;

use bowline_state::schema::v1::{SessionNotification, SessionUpdate, ToolCallId, ToolCallUpdate};
use bowline_state::watching::Found;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use super::routing::{self, Waiting};
use super::{Line, Shared, Telling};

/// So many looks wait; further ones are left out, as one of those finds what they would.
const MAX_JOBS: usize = 64;

/// What there is to do.
pub(super) enum Job {
    /// A turn begins.
    TurnBegins {
        /// What is asked for.
        prompt: Option<String>,
        done: oneshot::Sender<()>,
    },
    /// This call began, or has ended.
    Look(ToolCallId),
    /// The turn has ended.
    TurnEnds(oneshot::Sender<()>),
}

/// Starts the task. It ends when nobody has jobs for it any more.
/// With `routes`, what was changed is sent through the editor.
pub(super) fn start(session: Arc<Shared>, telling: Telling, routes: Option<Line>) -> mpsc::Sender<Job> {
    let (jobs, waiting) = mpsc::channel(MAX_JOBS);
    tokio::spawn(run(session, telling, routes, waiting));
    jobs
}

async fn run(session: Arc<Shared>, telling: Telling, routes: Option<Line>, mut jobs: mpsc::Receiver<Job>) {
    let Some(engine) = session.engine().await else {
        // Nobody waits for what is dropped.
        return;
    };
    let mut waiting = Waiting::default();
    while let Some(job) = jobs.recv().await {
        match job {
            Job::TurnBegins { prompt, done } => {
                session.watching().turn_begins();
                engine.turn_begins(prompt).await;
                // Whoever waited may have given up.
                done.send(()).ok();
            }
            Job::Look(call) => {
                let before = session.watching().at_rest();
                let owners = session.watching().owners(Some(&call));
                let found = engine.looks(owners).await;
                waiting.add(&found);
                // What an agent is in the middle of, such as the temporary file of an edit, is not touched.
                if before.is_some() && before == session.watching().at_rest() {
                    routing::route(&session, &engine, routes.as_ref(), &waiting.take()).await;
                }
                tell(&session, &telling, &found).await;
            }
            Job::TurnEnds(done) => {
                let owners = session.watching().owners(None);
                let found = engine.looks(owners.clone()).await;
                waiting.add(&found);
                routing::route(&session, &engine, routes.as_ref(), &waiting.take()).await;
                tell(&session, &telling, &found).await;
                let found = engine.turn_ends(owners).await;
                tell(&session, &telling, &found).await;
                done.send(()).ok();
            }
        }
    }
}

/// Shows changes on the calls that they were laid to.
async fn tell(session: &Shared, telling: &Telling, found: &[Found]) {
    let mut calls: Vec<&str> = found.iter().filter_map(|found| found.call.as_deref()).collect();
    calls.sort_unstable();
    calls.dedup();
    for call in calls {
        let its: Vec<&Found> = found.iter().filter(|found| found.call.as_deref() == Some(call)).collect();
        // If the editor is gone, the update has no reader.
        let Ok(place) = telling.reserve().await else { return };
        // Under the lock: what the agent tells of the call next is passed on after this, with these diffs.
        let mut watching = session.watching();
        if let Some(update) = watching.report(&ToolCallId::new(call), &its) {
            place.send(message(session, update));
        }
    }
}

fn message(session: &Shared, update: ToolCallUpdate) -> Vec<u8> {
    let update = SessionUpdate::ToolCallUpdate(update);
    let notification = SessionNotification::new(session.id.clone(), update);
    json!({ "jsonrpc": "2.0", "method": "session/update", "params": notification }).to_string().into_bytes()
}
