//! Where questions to a person go, and what happens is heard, while nobody sits at the program: to the clients.

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bowline_host::{BoxFuture, Event, FrontEnd, Person};
use bowline_mcp::server::{CHANGES, Client, Decision, News};
use bowline_state::display;
use bowline_state::question::{Choice, Keep, Question, Reply};
use tokio::sync::broadcast;

/// So much news waits for a client that does not take it; then it is told to look at everything.
const MAX_NEWS: usize = 256;

/// Who is there, by session.
#[derive(Default)]
pub(crate) struct Desk {
    clients: Mutex<HashMap<String, Sitting>>,
}

struct Sitting {
    client: Client,
    news: broadcast::Sender<News>,
}

impl Desk {
    fn clients(&self) -> MutexGuard<'_, HashMap<String, Sitting>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes who is asked for a session, and returns where it hears what happens.
    pub(super) fn sits(&self, session: &str, client: Client) -> broadcast::Sender<News> {
        let news = broadcast::Sender::new(MAX_NEWS);
        self.clients().insert(session.to_owned(), Sitting { client, news: news.clone() });
        news
    }

    pub(super) fn leaves(&self, session: &str) {
        self.clients().remove(session);
    }

    fn tell_changed(&self, session: &str) {
        if let Some(sitting) = self.clients().get(session) {
            sitting.news.send(News::Updated(CHANGES.to_owned())).ok();
        }
    }
}

impl Person for Desk {
    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Reply> {
        let client = self.clients().get(&question.holder.session).map(|sitting| sitting.client.clone());
        Box::pin(async move {
            let Some(client) = client else { return Reply::Nobody };
            match client.ask(question.text()).await {
                None => Reply::Nobody,
                Some(Decision::Once) => Reply::answer(Choice::Allow, Keep::Once),
                Some(Decision::Session) => Reply::answer(Choice::Allow, Keep::Session),
                Some(Decision::Deny) => Reply::answer(Choice::Deny, Keep::Once),
            }
        })
    }

    fn tell(&self, text: &str) {
        writeln!(std::io::stderr(), "bowline: {}", display::line(text, 1000)).ok();
    }
}

impl FrontEnd for Desk {
    fn show(&self, event: Event<'_>) {
        match event {
            Event::Written { session, .. } | Event::TerminalEnded { session, .. } => {
                self.tell_changed(&session.0)
            }
            Event::Notice { text } => self.tell(text),
            // All else is for somebody who watches.
            _ => {}
        }
    }
}
