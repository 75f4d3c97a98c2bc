//! Where questions go that rules leave to a person: to the editor's user.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bowline_host::{BoxFuture, Event, FrontEnd, Person};
use bowline_proxy::Line;
use bowline_state::builders::IntoSessionUpdate;
use bowline_state::question::{Question, Reply};
use bowline_state::schema::v1::{ErrorCode, SessionId, SessionNotification};
use bowline_wire::{CallError, Caller};

use super::engine::say;

/// Who is asked, by the names that journal and rules know sessions by.
pub(super) struct Desk {
    line: Line,
    sessions: Mutex<HashMap<String, SessionId>>,
}

impl Desk {
    pub(super) fn new(line: Line) -> Self {
        Self { line, sessions: Mutex::default() }
    }

    pub(super) fn sits(&self, name: &str, session: &SessionId) {
        self.sessions().insert(name.to_owned(), session.clone());
    }

    pub(super) fn leaves(&self, name: &str) {
        self.sessions().remove(name);
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<String, SessionId>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn show(caller: &Caller, session: &SessionId, update: impl IntoSessionUpdate) {
    let notification = SessionNotification::new(session.clone(), update.into_session_update());
    // If the editor is gone, the update has no reader.
    caller.notify(&notification).await.ok();
}

impl Person for Desk {
    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Reply> {
        let session = self.sessions().get(&question.holder.session).cloned();
        let asked = session.zip(self.line.caller().cloned());
        Box::pin(async move {
            let Some((session, caller)) = asked else { return Reply::Nobody };
            show(&caller, &session, question.tool_call()).await;
            // Whatever ends this, the call is closed.
            let mut open = Open { caller: caller.clone(), session: session.clone(), question, is_open: true };
            let reply = match caller.call(&question.request(session.clone())).await {
                Ok(answer) => Reply::of_editor(&answer.outcome),
                // The agent is gone, for whom it was asked.
                Err(CallError::Refused(error)) if error.code == ErrorCode::RequestCancelled => Reply::Nobody,
                Err(error) => {
                    say(&format!("the editor could not be asked: {error}"));
                    Reply::Nobody
                }
            };
            open.is_open = false;
            show(&caller, &session, question.told(&reply)).await;
            reply
        })
    }

    fn tell(&self, text: &str) {
        say(text);
    }
}

/// A question that the editor shows. If it is withdrawn, it is shown as failed.
struct Open<'a> {
    caller: Caller,
    session: SessionId,
    question: &'a Question,
    is_open: bool,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if !self.is_open {
            return;
        }
        let (caller, session) = (self.caller.clone(), self.session.clone());
        let told = self.question.told(&Reply::Nobody);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { show(&caller, &session, told).await });
        }
    }
}

impl FrontEnd for Desk {
    fn show(&self, event: Event<'_>) {
        if let Event::Notice { text } = event {
            say(text);
        }
    }
}
