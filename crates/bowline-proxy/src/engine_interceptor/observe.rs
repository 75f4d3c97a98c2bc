//! The scanner of one session: a task that scans the disk sequentially, alongside the messages.

use std::sync::Arc;

use bowline_history::attribution::AttributedChange;
use bowline_protocol::schema::v1::{SessionNotification, SessionUpdate, ToolCallId, ToolCallUpdate};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use super::route_writes::{self, ChangeQueue};
use super::{CallerSlot, EditorUpdateSender, SessionContext};

/// The most queued scans; further ones are dropped, because a queued scan finds the same changes.
const MAX_JOBS: usize = 64;

/// A job for the scanner.
pub(super) enum ScanJob {
    /// A turn begins.
    TurnStart {
        /// The text of the prompt.
        prompt: Option<String>,
        done: oneshot::Sender<()>,
    },
    /// This tool call began or ended.
    ToolCall(ToolCallId),
    /// The turn has ended.
    TurnEnd(oneshot::Sender<()>),
}

/// Starts the task, which ends when all senders are dropped. With `routes`, the agent's changes are sent through the
/// editor.
pub(super) fn spawn_scanner(
    session: Arc<SessionContext>,
    updates: EditorUpdateSender,
    routes: Option<CallerSlot>,
) -> mpsc::Sender<ScanJob> {
    let (jobs, waiting) = mpsc::channel(MAX_JOBS);
    bowline_task::spawn(run_scanner(session, updates, routes, waiting));
    jobs
}

async fn run_scanner(
    session: Arc<SessionContext>,
    updates: EditorUpdateSender,
    routes: Option<CallerSlot>,
    mut jobs: mpsc::Receiver<ScanJob>,
) {
    let Some(engine) = session.engine().await else {
        // Dropping the jobs releases their waiters.
        return;
    };
    let mut waiting = ChangeQueue::default();
    while let Some(job) = jobs.recv().await {
        match job {
            ScanJob::TurnStart { prompt, done } => {
                session.attribution().start_turn();
                engine.begin_turn(prompt).await;
                // The waiter may have given up.
                done.send(()).ok();
            }
            ScanJob::ToolCall(call) => {
                let before = session.attribution().idle_call_count();
                let owners = session.attribution().take_attribution(Some(&call));
                let found = engine.scan(owners).await;
                waiting.add(&found);
                // The agent's work in progress, such as the temporary file of an edit, is not touched.
                if before.is_some() && before == session.attribution().idle_call_count() {
                    route_writes::route_changes(&session, &engine, routes.as_ref(), &waiting.take()).await;
                }
                send_updates(&session, &updates, &found).await;
            }
            ScanJob::TurnEnd(done) => {
                let owners = session.attribution().take_attribution(None);
                let found = engine.scan(owners.clone()).await;
                waiting.add(&found);
                route_writes::route_changes(&session, &engine, routes.as_ref(), &waiting.take()).await;
                send_updates(&session, &updates, &found).await;
                let found = engine.end_turn(owners).await;
                send_updates(&session, &updates, &found).await;
                done.send(()).ok();
            }
        }
    }
}

/// Shows changes on the tool calls that they are attributed to.
async fn send_updates(session: &SessionContext, updates: &EditorUpdateSender, found: &[AttributedChange]) {
    let mut calls: Vec<&str> = found.iter().filter_map(|found| found.call.as_deref()).collect();
    calls.sort_unstable();
    calls.dedup();
    for call in calls {
        let changes: Vec<&AttributedChange> =
            found.iter().filter(|found| found.call.as_deref() == Some(call)).collect();
        // If the editor is gone, the update has no reader.
        let Ok(permit) = updates.reserve().await else { return };
        // Sent under the lock, so that the agent's next update of the call follows it and includes these diffs.
        let mut attribution = session.attribution();
        if let Some(update) = attribution.report_changes(&ToolCallId::new(call), &changes) {
            permit.send(update_notification(session, update));
        }
    }
}

fn update_notification(session: &SessionContext, update: ToolCallUpdate) -> Vec<u8> {
    let update = SessionUpdate::ToolCallUpdate(update);
    let notification = SessionNotification::new(session.id.clone(), update);
    json!({ "jsonrpc": "2.0", "method": "session/update", "params": notification }).to_string().into_bytes()
}
