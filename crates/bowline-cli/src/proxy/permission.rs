//! Permission questions that rules leave to a person: forwarded to the editor's user.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bowline_host::{Approver, BoxFuture, FrontEnd, HostEvent};
use bowline_policy::question::{Question, QuestionReply};
use bowline_protocol::builders::IntoSessionUpdate;
use bowline_protocol::schema::v1::{ErrorCode, SessionId, SessionNotification};
use bowline_proxy::CallerSlot;
use bowline_wire::{CallError, Caller};

use super::engine::log_to_stderr;

/// The editor's sessions, by their names in the journal and the rules.
pub(super) struct PermissionForwarder {
    caller_slot: CallerSlot,
    sessions: Mutex<HashMap<String, SessionId>>,
}

impl PermissionForwarder {
    pub(super) fn new(caller_slot: CallerSlot) -> Self {
        Self { caller_slot, sessions: Mutex::default() }
    }

    pub(super) fn register(&self, name: &str, session: &SessionId) {
        self.sessions().insert(name.to_owned(), session.clone());
    }

    pub(super) fn unregister(&self, name: &str) {
        self.sessions().remove(name);
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<String, SessionId>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn send_update(caller: &Caller, session: &SessionId, update: impl IntoSessionUpdate) {
    let notification = SessionNotification::new(session.clone(), update.into_session_update());
    // If the editor is gone, the update has no reader.
    caller.notify(&notification).await.ok();
}

impl Approver for PermissionForwarder {
    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, QuestionReply> {
        let session = self.sessions().get(&question.holder.session).cloned();
        let target = session.zip(self.caller_slot.caller().cloned());
        Box::pin(async move {
            let Some((session, caller)) = target else { return QuestionReply::NoUser };
            send_update(&caller, &session, question.tool_call()).await;
            // On every exit path, the tool call is closed.
            let mut guard = ShownRequestGuard {
                caller: caller.clone(),
                session: session.clone(),
                question,
                is_open: true,
            };
            let reply = match caller.call(&question.permission_request(session.clone())).await {
                Ok(response) => question.reply_from_editor(&response),
                // The agent that the question was asked for is gone.
                Err(CallError::ErrorResponse(error)) if error.code == ErrorCode::RequestCancelled => {
                    QuestionReply::NoUser
                }
                Err(error) => {
                    log_to_stderr(&format!("the editor could not be asked: {error}"));
                    QuestionReply::NoUser
                }
            };
            guard.is_open = false;
            send_update(&caller, &session, question.outcome_update(&reply)).await;
            reply
        })
    }

    fn notify(&self, text: &str) {
        log_to_stderr(text);
    }
}

/// A question that the editor shows. If it is withdrawn, it is shown as failed.
struct ShownRequestGuard<'a> {
    caller: Caller,
    session: SessionId,
    question: &'a Question,
    is_open: bool,
}

impl Drop for ShownRequestGuard<'_> {
    fn drop(&mut self) {
        if !self.is_open {
            return;
        }
        let (caller, session) = (self.caller.clone(), self.session.clone());
        let update = self.question.outcome_update(&QuestionReply::NoUser);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { send_update(&caller, &session, update).await });
        }
    }
}

impl FrontEnd for PermissionForwarder {
    fn show(&self, event: HostEvent<'_>) {
        if let HostEvent::Notice { text } = event {
            log_to_stderr(text);
        }
    }
}
