//! The registry of MCP clients: with no user at the program, questions and events go to the clients.

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bowline_host::{Approver, BoxFuture, FrontEnd, HostEvent};
use bowline_mcp::server::{CHANGES_URI, ClientPeer, ResourceEvent, UserDecision};
use bowline_policy::question::{AnswerChoice, AnswerLifetime, Question, QuestionReply};
use bowline_text::display;
use tokio::sync::broadcast;

/// The maximum number of events queued for a client that does not read; a client that lags is told to reread
/// everything.
const MAX_NEWS: usize = 256;

/// The connected clients, by session.
#[derive(Default)]
pub(crate) struct ClientRegistry {
    clients: Mutex<HashMap<String, RegisteredClient>>,
}

struct RegisteredClient {
    client: ClientPeer,
    news: broadcast::Sender<ResourceEvent>,
}

impl ClientRegistry {
    fn clients(&self) -> MutexGuard<'_, HashMap<String, RegisteredClient>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers the client of a session, and returns the sender of its events.
    pub(super) fn register(&self, session: &str, client: ClientPeer) -> broadcast::Sender<ResourceEvent> {
        let events = broadcast::Sender::new(MAX_NEWS);
        self.clients().insert(session.to_owned(), RegisteredClient { client, news: events.clone() });
        events
    }

    pub(super) fn unregister(&self, session: &str) {
        self.clients().remove(session);
    }

    fn notify_changes(&self, session: &str) {
        if let Some(registered) = self.clients().get(session) {
            registered.news.send(ResourceEvent::Updated(CHANGES_URI.to_owned())).ok();
        }
    }
}

impl Approver for ClientRegistry {
    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, QuestionReply> {
        let client = self.clients().get(&question.holder.session).map(|registered| registered.client.clone());
        Box::pin(async move {
            let Some(client) = client else { return QuestionReply::NoUser };
            match client.ask_user(question.to_text()).await {
                None => QuestionReply::NoUser,
                Some(UserDecision::AllowOnce) => {
                    QuestionReply::answer(AnswerChoice::Allow, AnswerLifetime::Once)
                }
                Some(UserDecision::AllowSession) => {
                    QuestionReply::answer(AnswerChoice::Allow, AnswerLifetime::Session)
                }
                Some(UserDecision::Deny) => QuestionReply::answer(AnswerChoice::Deny, AnswerLifetime::Once),
            }
        })
    }

    fn notify(&self, text: &str) {
        writeln!(std::io::stderr(), "bowline: {}", display::escape_line(text, 1000)).ok();
    }
}

impl FrontEnd for ClientRegistry {
    fn show(&self, event: HostEvent<'_>) {
        match event {
            HostEvent::FileWritten { session, .. } | HostEvent::TerminalEnded { session, .. } => {
                self.notify_changes(&session.0)
            }
            HostEvent::Notice { text } => self.notify(text),
            // All other events are for interactive front ends.
            _ => {}
        }
    }
}
