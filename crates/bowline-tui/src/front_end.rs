//! The host's connection to the conversation: an inbox that one task drains.
//!
//! An agent may send far more than a user can read. For a session only the newest state is queued, for a command's
//! output its end, for notes the newest; questions are queued in full, and the host limits their number.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_history::ledger::WriteVerdict;
use bowline_host::{Approver, BoxFuture, FrontEnd, HostEvent, Question, QuestionReply};
use bowline_policy::policy::Rule;
use bowline_policy::question::QuestionId;
use bowline_protocol::accumulator::SessionSnapshot;
use bowline_protocol::schema::v1::{CreateElicitationRequest, ElicitationAction, SessionId, TerminalId};
use bowline_workspace::terminals::{LocalTerminals, OutputEvent};
use tokio::sync::{Notify, oneshot};

use super::event::ChatEvent;
use crate::panes::conversation::NoteLevel;
use bowline_client::common::rules::describe_saved_rule;

/// The maximum number of queued events besides states and output. The oldest notes are dropped.
const MAX_QUEUED_EVENTS: usize = 1000;

/// The maximum number of queued bytes of one command's output; the oldest are dropped.
const MAX_OUTPUT: usize = 256 << 10;

/// The maximum number of lines shown of it: earlier ones would scroll out unseen.
const MAX_LINES: usize = crate::terminal::emulator::MAX_SCROLLBACK + crate::terminal::emulator::SCREEN_ROWS;

/// The queued events for the task that owns the conversation. Clones share one queue.
#[derive(Debug, Clone, Default)]
pub(crate) struct Inbox(Arc<InboxShared>);

#[derive(Debug, Default)]
struct InboxShared {
    state: Mutex<InboxState>,
    notify: Notify,
    next_elicitation_id: AtomicU64,
}

#[derive(Debug, Default)]
struct InboxState {
    events: VecDeque<ChatEvent>,
    // The newest state of each session that has sent updates.
    snapshots: HashMap<SessionId, SessionSnapshot>,
    output: HashMap<TerminalId, Vec<u8>>,
    progress: Option<(String, u64)>,
    permission_replies: HashMap<QuestionId, oneshot::Sender<QuestionReply>>,
    elicitation_replies: HashMap<u64, oneshot::Sender<ElicitationAction>>,
}

impl Inbox {
    fn lock_state(&self) -> MutexGuard<'_, InboxState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues an event.
    pub(crate) fn push(&self, event: ChatEvent) {
        let mut state = self.lock_state();
        if let ChatEvent::SessionUpdated(session, snapshot) = event {
            state.snapshots.insert(session, snapshot);
            drop(state);
            return self.0.notify.notify_one();
        }
        if state.events.len() >= MAX_QUEUED_EVENTS {
            // Only an agent that sends nothing but errors gets here.
            let oldest = state.events.iter().position(|event| matches!(event, ChatEvent::Note(..)));
            oldest.and_then(|index| state.events.remove(index));
        }
        state.events.push_back(event);
        drop(state);
        self.0.notify.notify_one();
    }

    /// Waits until an event is queued.
    pub(crate) async fn wait_for_event(&self) {
        self.0.notify.notified().await;
    }

    /// Takes all queued events.
    pub(crate) fn take_events(&self) -> Vec<ChatEvent> {
        let mut state = self.lock_state();
        let queued = state.events.drain(..).collect::<Vec<_>>();
        // The order matters: a session opens before its first state, a tool call precedes its terminal, a session's
        // last update precedes the end of its turn, and a command's last output precedes its end.
        let (mut events, rest): (Vec<ChatEvent>, Vec<ChatEvent>) =
            queued.into_iter().partition(|event| matches!(event, ChatEvent::SessionOpened(_)));
        events.extend(
            state.snapshots.drain().map(|(session, snapshot)| ChatEvent::SessionUpdated(session, snapshot)),
        );
        let (rest, last): (Vec<ChatEvent>, Vec<ChatEvent>) =
            rest.into_iter().partition(|event| !matches!(event, ChatEvent::TerminalEnded(..)));
        events.extend(rest);
        events.extend(state.output.drain().map(|(terminal, mut bytes)| {
            bytes.drain(..hidden_prefix_len(&bytes));
            ChatEvent::TerminalOutput(terminal, bytes)
        }));
        events.extend(last);
        events.extend(state.progress.take().map(|(operation, done)| ChatEvent::Progress(operation, done)));
        events
    }

    /// Answers a question, if the agent still waits for it.
    pub(crate) fn answer_permission(&self, id: QuestionId, reply: QuestionReply) {
        if let Some(sender) = self.lock_state().permission_replies.remove(&id) {
            // An asker that has gone needs no answer.
            sender.send(reply).ok();
        }
    }

    /// Answers an elicitation, if the agent still waits for it.
    pub(crate) fn answer_elicitation(&self, id: u64, action: ElicitationAction) {
        if let Some(sender) = self.lock_state().elicitation_replies.remove(&id) {
            sender.send(action).ok();
        }
    }

    /// Forwards a command's output until the command ends.
    fn follow_terminal(&self, terminals: LocalTerminals, terminal: TerminalId) {
        let inbox = self.clone();
        bowline_task::spawn(async move {
            // The output of a released terminal is in its tool call.
            let Ok(mut watcher) = terminals.subscribe(&terminal).await else { return };
            drop(terminals);
            inbox.push_output(&terminal, watcher.snapshot.text.as_bytes());
            while let Some(event) = watcher.next().await {
                match event {
                    OutputEvent::Bytes(bytes) => inbox.push_output(&terminal, &bytes),
                    OutputEvent::Skipped(count) => {
                        inbox.push_output(
                            &terminal,
                            format!("\r\n… {count} bytes are not shown …\r\n").as_bytes(),
                        );
                    }
                }
            }
        });
    }

    fn push_output(&self, terminal: &TerminalId, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let mut state = self.lock_state();
        let output = state.output.entry(terminal.clone()).or_default();
        output.extend_from_slice(bytes);
        let excess = output.len().saturating_sub(MAX_OUTPUT);
        output.drain(..excess);
        drop(state);
        self.0.notify.notify_one();
    }
}

/// Returns how many bytes of output precede the visible lines.
fn hidden_prefix_len(output: &[u8]) -> usize {
    let line_ends = output.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    line_ends.map(|(index, _)| index + 1).nth(MAX_LINES).unwrap_or(0)
}

/// Withdraws a question when its asker stops waiting.
struct WithdrawOnDrop<'a> {
    inbox: &'a Inbox,
    request: Option<InputRequestId>,
}

enum InputRequestId {
    Permission(QuestionId),
    Elicitation(u64),
}

impl Drop for WithdrawOnDrop<'_> {
    fn drop(&mut self) {
        match self.request.take() {
            Some(InputRequestId::Permission(id)) => {
                self.inbox.lock_state().permission_replies.remove(&id);
                self.inbox.push(ChatEvent::PermissionWithdrawn(id));
            }
            Some(InputRequestId::Elicitation(id)) => {
                self.inbox.lock_state().elicitation_replies.remove(&id);
                self.inbox.push(ChatEvent::ElicitationWithdrawn(id));
            }
            None => {}
        }
    }
}

impl Approver for Inbox {
    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, QuestionReply> {
        Box::pin(async move {
            let (sender, receiver) = oneshot::channel();
            let id = question.id;
            self.lock_state().permission_replies.insert(id, sender);
            let mut withdraw = WithdrawOnDrop { inbox: self, request: Some(InputRequestId::Permission(id)) };
            self.push(ChatEvent::PermissionRequested(Arc::new(question.clone())));
            let reply = receiver.await;
            if reply.is_ok() {
                withdraw.request = None;
            }
            reply.unwrap_or(QuestionReply::NoUser)
        })
    }

    fn notify(&self, text: &str) {
        self.push(ChatEvent::Note(NoteLevel::Warning, text.to_owned()));
    }

    fn notify_rule_saved(&self, rule: &Rule) {
        self.push(ChatEvent::Note(NoteLevel::Info, describe_saved_rule(rule)));
    }
}

impl FrontEnd for Inbox {
    fn show(&self, event: HostEvent<'_>) {
        match event {
            HostEvent::Update { notification, snapshot, .. } => {
                self.push(ChatEvent::SessionUpdated(notification.session_id.clone(), snapshot));
            }
            HostEvent::Violation { description, .. } => {
                self.push(ChatEvent::Note(
                    NoteLevel::Info,
                    format!("the agent broke the protocol: {description}"),
                ));
            }
            HostEvent::FileWritten { path, verdict: Some(WriteVerdict::Merged), .. } => {
                self.push(ChatEvent::Note(NoteLevel::Info, format!("merged with your own changes: {path}")));
            }
            HostEvent::TerminalStarted { terminal, terminals, .. } => {
                self.push(ChatEvent::TerminalStarted(terminal.clone()));
                self.follow_terminal(terminals.clone(), terminal.clone());
            }
            HostEvent::TerminalEnded { terminal, exit, .. } => {
                self.push(ChatEvent::TerminalEnded(terminal.clone(), exit.to_string()));
            }
            HostEvent::ElicitationCompleted { .. } => self.push(ChatEvent::ElicitationCompleted),
            HostEvent::Notice { text } => self.push(ChatEvent::Note(NoteLevel::Warning, text.to_owned())),
            // The code that starts turns and sessions receives their results; unknown events have nothing to show.
            _ => {}
        }
    }

    fn show_progress(&self, operation: &str, done: Option<u64>) {
        let Some(done) = done else { return };
        self.lock_state().progress = Some((operation.to_owned(), done));
        self.0.notify.notify_one();
    }

    fn elicit<'a>(
        &'a self,
        agent: Option<&'a str>,
        request: &'a CreateElicitationRequest,
    ) -> BoxFuture<'a, ElicitationAction> {
        Box::pin(async move {
            let (sender, receiver) = oneshot::channel();
            let id = self.0.next_elicitation_id.fetch_add(1, Ordering::Relaxed);
            self.lock_state().elicitation_replies.insert(id, sender);
            let mut withdraw = WithdrawOnDrop { inbox: self, request: Some(InputRequestId::Elicitation(id)) };
            let request = Arc::new(request.clone());
            self.push(ChatEvent::ElicitationRequested { id, agent: agent.map(str::to_owned), request });
            let action = receiver.await;
            if action.is_ok() {
                withdraw.request = None;
            }
            action.unwrap_or(ElicitationAction::Cancel)
        })
    }
}

#[cfg(test)]
mod tests;
