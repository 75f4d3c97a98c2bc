//! Telling the client what happens in a turn, and keeping what was told for the session's record.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_state::builders::IntoSessionUpdate;
use bowline_state::permission::{Ask, AskError, PermissionBroker};
use bowline_state::schema::v1::{
    ContentBlock, ContentChunk, MessageId, RequestPermissionRequest, SessionId, SessionUpdate, ToolCall,
    ToolCallId, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields,
};
use bowline_state::tracker::{MAX_TRACKED_CALLS, ToolCallTracker, TrackerError};
use bowline_wire::{CallError, ClientHandle};

/// So many bytes of text may wait to be saved before the runner has to save them.
pub const MAX_UNSAVED: usize = 4 << 20;

/// Tells the client of one turn. Clones are the same one.
///
/// Calls are named by the model's ids here, and by the session's own on the wire: those are unique in the session.
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
    unsaved: Vec<SessionUpdate>,
    // Invariant: about the bytes of `unsaved`, and those of its last one.
    unsaved_bytes: usize,
    last_bytes: usize,
}

impl Reporter {
    /// Returns a reporter of a turn. Its tool calls are named by `turn`, which no other turn of the session has.
    #[must_use]
    pub fn new(client: ClientHandle, session: SessionId, turn: u64) -> Self {
        let calls = ToolCallTracker::with_prefix(format!("turn{turn}"));
        let state = State { calls, unsaved: Vec::new(), unsaved_bytes: 0, last_bytes: 0 };
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

    /// Sends an update and keeps it for the record.
    ///
    /// # Errors
    /// Returns why it was not sent: the client is gone, or did not advertise this kind of update.
    pub async fn update(&self, update: impl IntoSessionUpdate) -> Result<(), CallError> {
        let update = update.into_session_update();
        self.state().keep(&update);
        self.inner.client.update(self.inner.session.clone(), update).await
    }

    /// Keeps an update for the record without sending it: what the client knows already.
    pub fn keep(&self, update: SessionUpdate) {
        self.state().keep(&update);
    }

    /// Sends a piece of the model's text.
    ///
    /// # Errors
    /// See [`update`](Self::update).
    pub async fn text(&self, message: &MessageId, text: impl Into<String>) -> Result<(), CallError> {
        self.update(SessionUpdate::AgentMessageChunk(chunk(message, text))).await
    }

    /// Sends a piece of the model's thoughts.
    ///
    /// # Errors
    /// See [`update`](Self::update).
    pub async fn thought(&self, message: &MessageId, text: impl Into<String>) -> Result<(), CallError> {
        self.update(SessionUpdate::AgentThoughtChunk(chunk(message, text))).await
    }

    /// Announces a call: pending, unless `build` says otherwise.
    ///
    /// # Errors
    /// Returns what is wrong with the call, or why the client was not told.
    pub async fn start(
        &self,
        call: &str,
        build: impl FnOnce(ToolCallId) -> ToolCall,
    ) -> Result<(), ReportError> {
        let started = self.state().start(call, build)?;
        Ok(self.update(started).await?)
    }

    /// Tells what changed about a call; nothing is sent if nothing did.
    ///
    /// # Errors
    /// Returns what is wrong with the call, or why the client was not told.
    pub async fn progress(&self, call: &str, fields: ToolCallUpdateFields) -> Result<(), ReportError> {
        let changed = self.state().calls.progress(call, fields)?;
        match changed {
            Some(update) => Ok(self.update(update).await?),
            None => Ok(()),
        }
    }

    /// Ends a call with its last changes.
    ///
    /// # Errors
    /// Returns what is wrong with the call, or why the client was not told.
    pub async fn finish(
        &self,
        call: &str,
        status: ToolCallStatus,
        fields: ToolCallUpdateFields,
    ) -> Result<(), ReportError> {
        self.progress(call, fields.status(status)).await
    }

    /// Returns the call's id on the wire.
    ///
    /// # Errors
    /// Returns that there is no such call.
    pub fn id(&self, call: &str) -> Result<ToolCallId, ReportError> {
        Ok(self.state().calls.view(call)?.tool_call_id.clone())
    }

    /// Says whether a call is being carried out: it was allowed, and has not ended.
    #[must_use]
    pub fn is_running(&self, call: &str) -> bool {
        self.state().calls.view(call).is_ok_and(|call| call.status == ToolCallStatus::InProgress)
    }

    /// Returns a request for permission that describes a call as the client knows it.
    ///
    /// # Errors
    /// Returns what is wrong with the call or the options.
    pub fn ask(
        &self,
        broker: &PermissionBroker,
        call: &str,
        ask: Ask,
    ) -> Result<RequestPermissionRequest, AskError> {
        broker.request_for(&self.state().calls, call, ask)
    }

    /// Ends every open call as failed, as a cancelled turn does. The record has it also if the client does not take it.
    pub async fn fail_open(&self) {
        let updates: Vec<SessionUpdate> = {
            let mut state = self.state();
            let failed = state.calls.fail_open();
            failed
                .into_iter()
                .map(IntoSessionUpdate::into_session_update)
                .inspect(|update| state.keep(update))
                .collect()
        };
        for update in updates {
            // A client that is gone need not be told.
            if self.inner.client.update(self.inner.session.clone(), update).await.is_err() {
                return;
            }
        }
    }

    /// Returns what was told since the last time, for the record, and how many bytes it has.
    #[must_use]
    pub fn take_unsaved(&self) -> Vec<SessionUpdate> {
        let mut state = self.state();
        (state.unsaved_bytes, state.last_bytes) = (0, 0);
        std::mem::take(&mut state.unsaved)
    }

    /// Says whether so much waits to be saved that it should be.
    #[must_use]
    pub fn should_save(&self) -> bool {
        self.state().unsaved_bytes >= MAX_UNSAVED
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Starts a call. Those that are finished are forgotten where there would be too many.
    fn start(
        &mut self,
        call: &str,
        build: impl FnOnce(ToolCallId) -> ToolCall,
    ) -> Result<ToolCall, TrackerError> {
        if self.calls.calls().count() >= MAX_TRACKED_CALLS {
            let is_over = |status| matches!(status, ToolCallStatus::Completed | ToolCallStatus::Failed);
            let over =
                self.calls.calls().filter(|(_, call)| is_over(call.status)).map(|(id, _)| id.to_owned());
            for id in over.collect::<Vec<_>>() {
                self.calls.forget(&id)?;
            }
        }
        self.calls.start(call, build)
    }

    fn keep(&mut self, update: &SessionUpdate) {
        let text = text_of(update);
        let bytes = text.map_or_else(|| size_of(update), str::len);
        self.unsaved_bytes += bytes;
        if let (Some(text), Some(last)) = (text, self.unsaved.last_mut())
            && continues(last, update)
        {
            add(last, text);
            self.last_bytes += bytes;
            return;
        }
        // What a running command shows now takes the place of what it showed before.
        if let Some(last) = self.unsaved.last_mut()
            && replaces(last, update)
        {
            *last = update.clone();
            self.unsaved_bytes -= self.last_bytes;
        } else {
            self.unsaved.push(update.clone());
        }
        self.last_bytes = bytes;
    }
}

/// Why a call could not be reported.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// There is no such call, or it is over.
    #[error(transparent)]
    Call(#[from] TrackerError),
    /// The client was not told.
    #[error(transparent)]
    Client(#[from] CallError),
}

fn chunk(message: &MessageId, text: impl Into<String>) -> ContentChunk {
    ContentChunk::new(ContentBlock::from(text.into())).message_id(message.clone())
}

fn chunk_of(update: &SessionUpdate) -> Option<&ContentChunk> {
    match update {
        SessionUpdate::UserMessageChunk(chunk)
        | SessionUpdate::AgentMessageChunk(chunk)
        | SessionUpdate::AgentThoughtChunk(chunk) => Some(chunk),
        _ => None,
    }
}

fn text_of(update: &SessionUpdate) -> Option<&str> {
    match &chunk_of(update)?.content {
        ContentBlock::Text(text) => Some(&text.text),
        _ => None,
    }
}

/// Returns how many bytes an update has in the record.
fn size_of(update: &SessionUpdate) -> usize {
    let mut counted = Counted(0);
    // Whatever cannot be written takes no room.
    serde_json::to_writer(&mut counted, update).ok();
    counted.0
}

/// Counts what is written to it.
struct Counted(usize);

impl std::io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Says whether both tell only what the same call shows, so that a record of the second is enough.
fn replaces(last: &SessionUpdate, next: &SessionUpdate) -> bool {
    let (SessionUpdate::ToolCallUpdate(last), SessionUpdate::ToolCallUpdate(next)) = (last, next) else {
        return false;
    };
    let shows_only = |update: &ToolCallUpdate| {
        let content = update.fields.content.clone();
        content.is_some() && update.fields == ToolCallUpdateFields::new().content(content)
    };
    last.tool_call_id == next.tool_call_id && shows_only(last) && shows_only(next)
}

/// Says whether `next` is more of the same message, so that one record can hold both.
fn continues(last: &SessionUpdate, next: &SessionUpdate) -> bool {
    let same_kind = std::mem::discriminant(last) == std::mem::discriminant(next);
    let id = |update| chunk_of(update).and_then(|chunk: &ContentChunk| chunk.message_id.clone());
    same_kind && text_of(last).is_some() && id(last).is_some() && id(last) == id(next)
}

fn add(last: &mut SessionUpdate, text: &str) {
    if let SessionUpdate::UserMessageChunk(chunk)
    | SessionUpdate::AgentMessageChunk(chunk)
    | SessionUpdate::AgentThoughtChunk(chunk) = last
        && let ContentBlock::Text(known) = &mut chunk.content
    {
        known.text.push_str(text);
    }
}
