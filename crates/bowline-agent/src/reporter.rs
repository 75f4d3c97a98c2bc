//! Reporting a turn to the client, and recording the updates for the stored session.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_conversation::transcript::CondensedUpdates;
use bowline_protocol::builders::IntoSessionUpdate;
use bowline_protocol::permission::{PermissionBroker, PermissionRequestDetails, PermissionRequestError};
use bowline_protocol::schema::v1::{
    ContentBlock, ContentChunk, MessageId, RequestPermissionRequest, SessionId, SessionUpdate, ToolCall,
    ToolCallId, ToolCallStatus, ToolCallUpdateFields,
};
use bowline_protocol::tracker::{MAX_TRACKED_CALLS, ToolCallTracker, TrackerError};
use bowline_wire::{CallError, ClientHandle};

/// The most bytes of unsaved text before the turn has to save it.
pub const MAX_UNSAVED_BYTES: usize = 4 << 20;

/// Reports one turn to the client. Clones share their state.
///
/// Callers name calls by the model's ids; on the wire they have ids that are unique in the session.
#[derive(Debug, Clone)]
pub struct Reporter {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    session: SessionId,
    client: ClientHandle,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    calls: ToolCallTracker,
    unsaved: CondensedUpdates,
    // Invariant: at least the bytes of `unsaved`.
    unsaved_bytes: usize,
}

impl Reporter {
    /// Returns the reporter of a turn. The ids of its tool calls contain `turn`, which is unique in the session.
    #[must_use]
    pub fn new(client: ClientHandle, session: SessionId, turn: u64) -> Self {
        let calls = ToolCallTracker::with_prefix(format!("turn{turn}"));
        let state = State { calls, unsaved: CondensedUpdates::default(), unsaved_bytes: 0 };
        Self { inner: Arc::new(Inner { session, client, state: Mutex::new(state) }) }
    }

    /// Returns the client.
    #[must_use]
    pub fn client(&self) -> &ClientHandle {
        &self.inner.client
    }

    /// Returns the session.
    #[must_use]
    pub fn session(&self) -> &SessionId {
        &self.inner.session
    }

    /// Sends an update and records it.
    ///
    /// # Errors
    /// Fails if the client has disconnected, or did not advertise this kind of update.
    pub async fn send_update(&self, update: impl IntoSessionUpdate) -> Result<(), CallError> {
        let update = update.into_session_update();
        self.state().record_update(&update);
        self.inner.client.update(self.inner.session.clone(), update).await
    }

    /// Records an update without sending it, because the client knows it already.
    pub fn record_update(&self, update: SessionUpdate) {
        self.state().record_update(&update);
    }

    /// Sends a piece of the model's text.
    ///
    /// # Errors
    /// See [`send_update`](Self::send_update).
    pub async fn send_text(&self, message: &MessageId, text: impl Into<String>) -> Result<(), CallError> {
        self.send_update(SessionUpdate::AgentMessageChunk(text_chunk(message, text))).await
    }

    /// Sends a piece of the model's thoughts.
    ///
    /// # Errors
    /// See [`send_update`](Self::send_update).
    pub async fn send_thought(&self, message: &MessageId, text: impl Into<String>) -> Result<(), CallError> {
        self.send_update(SessionUpdate::AgentThoughtChunk(text_chunk(message, text))).await
    }

    /// Announces a call: pending, unless `build` changes that.
    ///
    /// # Errors
    /// Fails if the call is invalid, or if the client could not be notified.
    pub async fn start_call(
        &self,
        call: &str,
        build: impl FnOnce(ToolCallId) -> ToolCall,
    ) -> Result<(), ReportError> {
        let update = self.state().start_call(call, build)?;
        Ok(self.send_update(update).await?)
    }

    /// Reports changes of a call; sends nothing if nothing changed.
    ///
    /// # Errors
    /// Fails if the call is invalid, or if the client could not be notified.
    pub async fn update_call(&self, call: &str, fields: ToolCallUpdateFields) -> Result<(), ReportError> {
        let changed = self.state().calls.progress(call, fields)?;
        match changed {
            Some(update) => Ok(self.send_update(update).await?),
            None => Ok(()),
        }
    }

    /// Ends a call with its last changes.
    ///
    /// # Errors
    /// Fails if the call is invalid, or if the client could not be notified.
    pub async fn finish_call(
        &self,
        call: &str,
        status: ToolCallStatus,
        fields: ToolCallUpdateFields,
    ) -> Result<(), ReportError> {
        self.update_call(call, fields.status(status)).await
    }

    /// Returns the call's id on the wire.
    ///
    /// # Errors
    /// Fails if no such call exists.
    pub fn wire_id(&self, call: &str) -> Result<ToolCallId, ReportError> {
        Ok(self.state().calls.tool_call(call)?.tool_call_id.clone())
    }

    /// Returns whether a call is running: it was allowed, and has not ended.
    #[must_use]
    pub fn is_call_running(&self, call: &str) -> bool {
        self.state().calls.tool_call(call).is_ok_and(|call| call.status == ToolCallStatus::InProgress)
    }

    /// Returns a request for permission that describes a call as the client knows it.
    ///
    /// # Errors
    /// Fails if the call or the options are invalid.
    pub fn permission_request(
        &self,
        broker: &PermissionBroker,
        call: &str,
        details: PermissionRequestDetails,
    ) -> Result<RequestPermissionRequest, PermissionRequestError> {
        broker.build_request_for(&self.state().calls, call, details)
    }

    /// Marks every open call as failed, at the end of a cancelled turn. Recorded even if the client cannot be notified.
    pub async fn fail_open_calls(&self) {
        let updates: Vec<SessionUpdate> = {
            let mut state = self.state();
            let failed = state.calls.fail_open();
            failed
                .into_iter()
                .map(IntoSessionUpdate::into_session_update)
                .inspect(|update| state.record_update(update))
                .collect()
        };
        for update in updates {
            // A disconnected client need not be notified.
            if self.inner.client.update(self.inner.session.clone(), update).await.is_err() {
                return;
            }
        }
    }

    /// Takes the updates recorded since the last time, condensed.
    #[must_use]
    pub fn take_unsaved(&self) -> Vec<SessionUpdate> {
        let mut state = self.state();
        state.unsaved_bytes = 0;
        std::mem::take(&mut state.unsaved).into_updates()
    }

    /// Returns whether enough updates are unsaved that they should be saved now.
    #[must_use]
    pub fn should_save(&self) -> bool {
        self.state().unsaved_bytes >= MAX_UNSAVED_BYTES
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Starts a call. Forgets finished ones if there are too many.
    fn start_call(
        &mut self,
        call: &str,
        build: impl FnOnce(ToolCallId) -> ToolCall,
    ) -> Result<ToolCall, TrackerError> {
        if self.calls.calls().count() >= MAX_TRACKED_CALLS {
            let is_finished = |status| matches!(status, ToolCallStatus::Completed | ToolCallStatus::Failed);
            let finished =
                self.calls.calls().filter(|(_, call)| is_finished(call.status)).map(|(id, _)| id.to_owned());
            for id in finished.collect::<Vec<_>>() {
                self.calls.forget(&id)?;
            }
        }
        self.calls.start(call, build)
    }

    fn record_update(&mut self, update: &SessionUpdate) {
        // An update that cannot be serialised takes no space.
        self.unsaved_bytes += serde_json::to_vec(update).map_or(0, |json| json.len());
        self.unsaved.push(update.clone());
    }
}

/// Why a call could not be reported.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The call does not exist, or has ended.
    #[error(transparent)]
    Call(#[from] TrackerError),
    /// The client could not be notified.
    #[error(transparent)]
    Client(#[from] CallError),
}

fn text_chunk(message: &MessageId, text: impl Into<String>) -> ContentChunk {
    ContentChunk::new(ContentBlock::from(text.into())).message_id(message.clone())
}
