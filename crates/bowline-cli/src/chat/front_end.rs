//! How the host reaches the conversation: everything goes into an inbox that one task empties.
//!
//! An agent may send far more than anybody can look at. Of a session only the newest state waits here, of a command's
//! output its end, of remarks the last; questions wait in full, and the host lets only so many come.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_host::{BoxFuture, FrontEnd, Person, Question, Reply};
use bowline_state::accumulator::Snapshot;
use bowline_state::ledger::Verdict;
use bowline_state::policy::Rule;
use bowline_state::question::QuestionId;
use bowline_state::schema::v1::{CreateElicitationRequest, ElicitationAction, SessionId, TerminalId};
use bowline_workspace::terminals::{Live, LocalTerminals};
use tokio::sync::{Notify, oneshot};

use super::conversation::Tone;
use super::event::Event;
use crate::policy::describe_saved_rule;

/// So many events wait at most beside states and output. The oldest remarks go.
const MAX_WAITING: usize = 1000;

/// So many bytes of one command's output wait at most; the oldest go.
const MAX_OUTPUT: usize = 256 << 10;

/// So many lines of it are shown: more than that push the others out of it unseen.
const MAX_LINES: usize = super::output::MAX_SCROLLBACK + super::output::ROWS;

/// What has happened, for the task that owns the conversation. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Inbox(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    came: Notify,
    elicitations: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    events: VecDeque<Event>,
    // The newest state of each session that said something.
    snapshots: HashMap<SessionId, Snapshot>,
    output: HashMap<TerminalId, Vec<u8>>,
    progress: Option<(String, u64)>,
    questions: HashMap<QuestionId, oneshot::Sender<Reply>>,
    elicitations: HashMap<u64, oneshot::Sender<ElicitationAction>>,
}

impl Inbox {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts in an event.
    pub(crate) fn push(&self, event: Event) {
        let mut waiting = self.waiting();
        if let Event::Updated(session, snapshot) = event {
            waiting.snapshots.insert(session, snapshot);
            drop(waiting);
            return self.0.came.notify_one();
        }
        if waiting.events.len() >= MAX_WAITING {
            // Only an agent that does nothing but complain gets here.
            let oldest = waiting.events.iter().position(|event| matches!(event, Event::Remark(..)));
            oldest.and_then(|at| waiting.events.remove(at));
        }
        waiting.events.push_back(event);
        drop(waiting);
        self.0.came.notify_one();
    }

    /// Waits until something has happened.
    pub(crate) async fn came(&self) {
        self.0.came.notified().await;
    }

    /// Takes out all that has happened.
    pub(crate) fn take(&self) -> Vec<Event> {
        let mut waiting = self.waiting();
        let came = waiting.events.drain(..).collect::<Vec<_>>();
        // A session is open before it has a state, a call known before its terminal, a session's last words before its
        // turn has ended, and a command's before it has.
        let (mut events, rest): (Vec<Event>, Vec<Event>) =
            came.into_iter().partition(|event| matches!(event, Event::Opened(_)));
        events.extend(waiting.snapshots.drain().map(|(session, snapshot)| Event::Updated(session, snapshot)));
        let (rest, last): (Vec<Event>, Vec<Event>) =
            rest.into_iter().partition(|event| !matches!(event, Event::TerminalEnded(..)));
        events.extend(rest);
        events.extend(waiting.output.drain().map(|(terminal, mut bytes)| {
            bytes.drain(..unseen(&bytes));
            Event::TerminalOutput(terminal, bytes)
        }));
        events.extend(last);
        events.extend(waiting.progress.take().map(|(what, done)| Event::Progress(what, done)));
        events
    }

    /// Answers a question, if somebody still waits for the answer.
    pub(crate) fn answer(&self, id: QuestionId, reply: Reply) {
        if let Some(asker) = self.waiting().questions.remove(&id) {
            // Who has gone needs no answer.
            asker.send(reply).ok();
        }
    }

    /// Answers an elicitation, if somebody still waits for the answer.
    pub(crate) fn fill(&self, number: u64, action: ElicitationAction) {
        if let Some(asker) = self.waiting().elicitations.remove(&number) {
            asker.send(action).ok();
        }
    }

    /// Passes on what a command writes until it has ended.
    fn watch(&self, terminals: LocalTerminals, terminal: TerminalId) {
        let inbox = self.clone();
        tokio::spawn(async move {
            // One that is gone already has its output in the call.
            let Ok(mut watcher) = terminals.watch(&terminal).await else { return };
            drop(terminals);
            inbox.output(&terminal, watcher.shown.text.as_bytes());
            while let Some(live) = watcher.next().await {
                match live {
                    Live::Bytes(bytes) => inbox.output(&terminal, &bytes),
                    Live::Skipped(count) => {
                        inbox
                            .output(&terminal, format!("\r\n… {count} bytes are not shown …\r\n").as_bytes());
                    }
                }
            }
        });
    }

    fn output(&self, terminal: &TerminalId, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let mut waiting = self.waiting();
        let output = waiting.output.entry(terminal.clone()).or_default();
        output.extend_from_slice(bytes);
        let excess = output.len().saturating_sub(MAX_OUTPUT);
        output.drain(..excess);
        drop(waiting);
        self.0.came.notify_one();
    }
}

/// Returns how many bytes of output are before the lines that can be seen.
fn unseen(output: &[u8]) -> usize {
    let ends = output.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    ends.map(|(at, _)| at + 1).nth(MAX_LINES).unwrap_or(0)
}

/// Tells that nobody waits for an answer any more.
struct Withdraw<'a> {
    inbox: &'a Inbox,
    what: Option<Asked>,
}

enum Asked {
    Question(QuestionId),
    Elicitation(u64),
}

impl Drop for Withdraw<'_> {
    fn drop(&mut self) {
        match self.what.take() {
            Some(Asked::Question(id)) => {
                self.inbox.waiting().questions.remove(&id);
                self.inbox.push(Event::Withdrawn(id));
            }
            Some(Asked::Elicitation(number)) => {
                self.inbox.waiting().elicitations.remove(&number);
                self.inbox.push(Event::ElicitationWithdrawn(number));
            }
            None => {}
        }
    }
}

impl Person for Inbox {
    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Reply> {
        Box::pin(async move {
            let (asker, answered) = oneshot::channel();
            let id = question.id;
            self.waiting().questions.insert(id, asker);
            let mut withdraw = Withdraw { inbox: self, what: Some(Asked::Question(id)) };
            self.push(Event::Asked(Arc::new(question.clone())));
            let reply = answered.await;
            if reply.is_ok() {
                withdraw.what = None;
            }
            reply.unwrap_or(Reply::Nobody)
        })
    }

    fn tell(&self, text: &str) {
        self.push(Event::Remark(Tone::Warning, text.to_owned()));
    }

    fn rule_saved(&self, rule: &Rule) {
        self.push(Event::Remark(Tone::Quiet, describe_saved_rule(rule)));
    }
}

impl FrontEnd for Inbox {
    fn show(&self, event: bowline_host::Event<'_>) {
        use bowline_host::Event as Shown;
        match event {
            Shown::Update { notification, snapshot, .. } => {
                self.push(Event::Updated(notification.session_id.clone(), snapshot));
            }
            Shown::Breach { what, .. } => {
                self.push(Event::Remark(Tone::Quiet, format!("the agent broke the protocol: {what}")));
            }
            Shown::Written { path, verdict: Some(Verdict::Merged), .. } => {
                self.push(Event::Remark(Tone::Quiet, format!("merged with your own changes: {path}")));
            }
            Shown::TerminalStarted { terminal, terminals, .. } => {
                self.push(Event::TerminalStarted(terminal.clone()));
                self.watch(terminals.clone(), terminal.clone());
            }
            Shown::TerminalEnded { terminal, exit, .. } => {
                self.push(Event::TerminalEnded(terminal.clone(), exit.to_string()));
            }
            Shown::ElicitationCompleted { .. } => self.push(Event::ElicitationCompleted),
            Shown::Notice { text } => self.push(Event::Remark(Tone::Warning, text.to_owned())),
            // Of turns and sessions, whoever began them hears; what is not known here has nothing to show.
            _ => {}
        }
    }

    fn progress(&self, what: &str, done: u64) {
        self.waiting().progress = Some((what.to_owned(), done));
        self.0.came.notify_one();
    }

    fn elicit<'a>(
        &'a self,
        agent: Option<&'a str>,
        request: &'a CreateElicitationRequest,
    ) -> BoxFuture<'a, ElicitationAction> {
        Box::pin(async move {
            let (asker, answered) = oneshot::channel();
            let number = self.0.elicitations.fetch_add(1, Ordering::Relaxed);
            self.waiting().elicitations.insert(number, asker);
            let mut withdraw = Withdraw { inbox: self, what: Some(Asked::Elicitation(number)) };
            let request = Arc::new(request.clone());
            self.push(Event::Elicited { number, agent: agent.map(str::to_owned), request });
            let action = answered.await;
            if action.is_ok() {
                withdraw.what = None;
            }
            action.unwrap_or(ElicitationAction::Cancel)
        })
    }
}

#[cfg(test)]
mod tests;
