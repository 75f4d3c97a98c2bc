//! The output of commands that are served here (`--host`), sent while they run to an editor that displays terminals of
//! agents: `_meta.terminal_info`, `terminal_output` and `terminal_exit` on the tool call that shows the terminal.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bowline_protocol::schema::v1::{SessionUpdate, TerminalId, ToolCallContent, ToolCallId};
use bowline_protocol::terminal::{CommandExit, LiveOutput};
use bowline_workspace::terminals::OutputEvent;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{MissedTickBehavior, interval};

use super::{EditorUpdateSender, SessionContext};

/// The most terminals of all sessions that are followed at once; the output of others is shown when they end.
const MAX_FOLLOWED_TERMINALS: usize = 64;

/// The most terminals per session that are remembered as followed.
const MAX_REMEMBERED_TERMINALS: usize = 4096;

/// The pause between two updates of a terminal.
const SEND_INTERVAL: Duration = Duration::from_millis(100);

/// Follows the terminals that tool calls show.
pub(super) struct OutputFollower {
    permits: Arc<Semaphore>,
    updates: EditorUpdateSender,
}

impl OutputFollower {
    pub(super) fn new(updates: EditorUpdateSender) -> Self {
        Self { permits: Arc::new(Semaphore::new(MAX_FOLLOWED_TERMINALS)), updates }
    }

    /// Follows the terminals of an update that are not yet in `followed`.
    pub(super) fn follow_terminals(
        &self,
        context: &Arc<SessionContext>,
        followed: &mut HashSet<TerminalId>,
        update: &SessionUpdate,
    ) {
        let (call, content) = match update {
            SessionUpdate::ToolCall(call) => (&call.tool_call_id, call.content.as_slice()),
            SessionUpdate::ToolCallUpdate(update) => {
                (&update.tool_call_id, update.fields.content.as_deref().unwrap_or_default())
            }
            _ => return,
        };
        for content in content {
            let ToolCallContent::Terminal(terminal) = content else { continue };
            let id = &terminal.terminal_id;
            if followed.len() >= MAX_REMEMBERED_TERMINALS || followed.contains(id) {
                continue;
            }
            let Ok(permit) = self.permits.clone().try_acquire_owned() else { return };
            followed.insert(id.clone());
            let target = FollowTarget {
                context: context.clone(),
                call: call.clone(),
                terminal: id.clone(),
                updates: self.updates.clone(),
            };
            bowline_task::spawn(target.follow(permit));
        }
    }
}

/// A terminal, and the tool call that shows it.
struct FollowTarget {
    context: Arc<SessionContext>,
    call: ToolCallId,
    terminal: TerminalId,
    updates: EditorUpdateSender,
}

impl FollowTarget {
    /// Sends the output until the command has ended, or the editor is gone.
    async fn follow(self, _permit: OwnedSemaphorePermit) {
        let Some(engine) = self.context.engine().await else { return };
        // A terminal of the agent's own is displayed by the agent.
        let Some(mut followed) = engine.follow_terminal(self.terminal.clone()).await else { return };
        let mut output = LiveOutput::default();
        output.push(followed.output.snapshot.text.as_bytes());
        if !self.send(json!({ "terminal_info": { "terminal_id": self.terminal } })).await {
            return;
        }
        let mut ticks = interval(SEND_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_open = true;
        let exit = loop {
            tokio::select! {
                // All output is read when the exit is known.
                biased;
                _ = ticks.tick(), if output.has_pending() => {
                    let text = output.take_pending();
                    if !text.is_empty() && !self.send_output(&text).await {
                        return;
                    }
                }
                event = followed.output.next(), if is_open => match event {
                    Some(OutputEvent::Bytes(bytes)) => output.push(&bytes),
                    Some(OutputEvent::Skipped(bytes)) => output.skip(bytes),
                    None => is_open = false,
                },
                exit = &mut followed.exit => break exit,
            }
        };
        let rest = output.into_rest();
        if !rest.is_empty() && !self.send_output(&rest).await {
            return;
        }
        let (code, signal) = match exit {
            Some(CommandExit::Code(code)) => (Some(code), None),
            Some(CommandExit::Signal(name)) => (None, Some(name)),
            // The terminal was released before its command ended.
            None => (None, None),
        };
        let exit = json!({ "terminal_id": self.terminal, "exit_code": code, "signal": signal });
        self.send(json!({ "terminal_exit": exit })).await;
    }

    async fn send_output(&self, text: &str) -> bool {
        self.send(json!({ "terminal_output": { "terminal_id": self.terminal, "data": text } })).await
    }

    /// Sends an update of the call, and returns whether the editor is still there.
    async fn send(&self, meta: Value) -> bool {
        let update = json!({ "sessionUpdate": "tool_call_update", "toolCallId": self.call, "_meta": meta });
        let params = json!({ "sessionId": self.context.id, "update": update });
        let line = json!({ "jsonrpc": "2.0", "method": "session/update", "params": params });
        self.updates.send(line.to_string().into_bytes()).await.is_ok()
    }
}
