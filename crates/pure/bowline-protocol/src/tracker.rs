//! The open tool calls of an agent, and the updates that report them to the client.
//!
//! An agent names its calls freely, by an *external id*, such as its model's id. [`ToolCallTracker`] assigns each
//! call its id in the session, keeps the state that the client knows, and reduces each update to what changed. It
//! sends nothing: every method returns the message to send.
//!
//! ```
//! use bowline_protocol::builders::start_read;
//! use bowline_protocol::schema::v1::{ToolCallStatus, ToolCallUpdateFields};
//! use bowline_protocol::tracker::ToolCallTracker;
//!
//! # fn main() -> Result<(), bowline_protocol::tracker::TrackerError> {
//! let mut tracker = ToolCallTracker::new();
//! let announced = tracker.start("toolu_7", |id| start_read(id, "Read the settings", "/app/settings.json"))?;
//! let running = tracker.progress("toolu_7", ToolCallUpdateFields::new().status(ToolCallStatus::InProgress))?;
//! let output = tracker.append_stream_text("toolu_7", "debug = true\n")?;
//! let done = tracker.complete("toolu_7")?;
//! tracker.forget("toolu_7")?;
//! # Ok(())
//! # }
//! ```

use std::collections::HashSet;
use std::fmt;

use agent_client_protocol_schema::v1::{
    Content, ContentBlock, ToolCall, ToolCallContent, ToolCallId, ToolCallStatus, ToolCallUpdate,
    ToolCallUpdateFields,
};
use indexmap::IndexMap;

use crate::builders;
use bowline_text::display::quote;

/// The maximum number of tracked calls. Finished calls count until they are forgotten.
pub const MAX_TRACKED_CALLS: usize = 1024;

/// The maximum length of a call's streamed text, in bytes, including the marker. Older text is dropped.
///
/// The protocol replaces a call's content as a whole, so each update repeats the text so far: one appended chunk,
/// however short, costs up to this much on the wire besides the call's other content, and `n` chunks cost `n` times
/// as much. Batch small chunks.
pub const MAX_STREAM_TEXT: usize = 65_536;

/// The prefix of streamed text whose beginning was dropped.
pub const OMITTED_MARKER: &str = "[earlier output omitted]\n";

/// The minimum number of ids of forgotten calls that a tracker recognises when its factory repeats one.
pub const MIN_REMEMBERED_IDS: usize = 16_384;

/// The agent's tool calls, in the order they were started.
#[derive(Debug)]
pub struct ToolCallTracker {
    ids: IdSource,
    // Invariant: at most `MAX_TRACKED_CALLS`, keyed by external id.
    calls: IndexMap<String, TrackedCall>,
}

/// A misuse of the tracker. The tracker is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrackerError {
    /// No call was started under this external id, or it was forgotten.
    #[error("no tool call is tracked as {}", quote(.0))]
    Unknown(String),
    /// A call was started under this external id and not forgotten since.
    #[error("a tool call is already tracked as {}", quote(.0))]
    AlreadyStarted(String),
    /// The call is over, so it cannot change any more.
    #[error("the tool call tracked as {} is already {status:?}", quote(.external_id))]
    Finished {
        /// The agent's name for the call.
        external_id: String,
        /// How it ended.
        status: ToolCallStatus,
    },
    /// The factory repeated the id of another call.
    #[error("the tool call id {} was given out before", quote(&.0.0))]
    RepeatedId(ToolCallId),
    /// Too many calls are tracked.
    #[error("{MAX_TRACKED_CALLS} tool calls are tracked, forget those that are finished")]
    Full,
}

impl ToolCallTracker {
    /// Creates a tracker whose calls are named `call_1`, `call_2` and so on in the session.
    #[must_use]
    pub fn new() -> Self {
        Self::with_prefix("call")
    }

    /// Creates a tracker whose calls are named by `prefix` and a number.
    ///
    /// Ids are unique in a session. If a session has several trackers, in sequence when it is loaded again or in
    /// parallel, each needs its own prefix.
    #[must_use]
    pub fn with_prefix(prefix: impl Into<String>) -> Self {
        Self { ids: IdSource::Counted { prefix: prefix.into(), last: 0 }, calls: IndexMap::new() }
    }

    /// Creates a tracker whose calls are named by `factory`, which has to return a new id each time.
    #[must_use]
    pub fn with_ids(factory: impl FnMut() -> String + Send + Sync + 'static) -> Self {
        Self {
            ids: IdSource::Factory { factory: Box::new(factory), recent: RecentIds::default() },
            calls: IndexMap::new(),
        }
    }

    /// Starts a call and returns its announcement.
    ///
    /// `build` makes the call from the given id, as the functions in [`builders`] do; any other id that it puts in is
    /// overwritten.
    ///
    /// # Errors
    /// Fails if the external id is taken, the tracker is full, or the factory repeats an id.
    pub fn start(
        &mut self,
        external_id: impl Into<String>,
        build: impl FnOnce(ToolCallId) -> ToolCall,
    ) -> Result<ToolCall, TrackerError> {
        let external_id = external_id.into();
        if self.calls.contains_key(&external_id) {
            return Err(TrackerError::AlreadyStarted(external_id));
        }
        if self.calls.len() >= MAX_TRACKED_CALLS {
            return Err(TrackerError::Full);
        }
        let id = self.ids.next_id()?;
        if self.calls.values().any(|tracked| tracked.call.tool_call_id == id) {
            return Err(TrackerError::RepeatedId(id));
        }
        let mut call = build(id.clone());
        call.tool_call_id = id;
        self.calls.insert(external_id, TrackedCall { call: call.clone(), is_streaming: false });
        Ok(call)
    }

    /// Updates a call and returns the changed fields, or `None` if nothing changed.
    ///
    /// # Errors
    /// Fails if the call is unknown or finished.
    pub fn progress(
        &mut self,
        external_id: &str,
        fields: ToolCallUpdateFields,
    ) -> Result<Option<ToolCallUpdate>, TrackerError> {
        let tracked = self.open_call_mut(external_id)?;
        let changed = changed_fields(&tracked.call, fields);
        if changed == ToolCallUpdateFields::new() {
            return Ok(None);
        }
        if changed.content.is_some() {
            tracked.is_streaming = false;
        }
        tracked.call.update(changed.clone());
        Ok(Some(builders::update_tool_call(tracked.call.tool_call_id.clone(), changed)))
    }

    /// Appends text to a call's streamed text and returns the update, or `None` if the text is empty.
    ///
    /// The streamed text is one item of the call's content, after the content that existed when it began. Content set
    /// by [`progress`](Self::progress) replaces it, and later text begins a new item. An item keeps the last
    /// [`MAX_STREAM_TEXT`] bytes of its text, which also bounds the cost of an update.
    ///
    /// # Errors
    /// Fails if the call is unknown or finished.
    pub fn append_stream_text(
        &mut self,
        external_id: &str,
        text: &str,
    ) -> Result<Option<ToolCallUpdate>, TrackerError> {
        let tracked = self.open_call_mut(external_id)?;
        if text.is_empty() {
            return Ok(None);
        }
        let mut streamed = tracked.take_stream_text();
        append_tail(&mut streamed, text);
        tracked.call.content.push(builders::text(streamed));
        tracked.is_streaming = true;
        let fields = ToolCallUpdateFields::new().content(tracked.call.content.clone());
        Ok(Some(builders::update_tool_call(tracked.call.tool_call_id.clone(), fields)))
    }

    /// Ends a call that succeeded and returns the update.
    ///
    /// # Errors
    /// Fails if the call is unknown or finished.
    pub fn complete(&mut self, external_id: &str) -> Result<ToolCallUpdate, TrackerError> {
        Ok(self.open_call_mut(external_id)?.finish(ToolCallStatus::Completed))
    }

    /// Ends a call that failed and returns the update.
    ///
    /// # Errors
    /// Fails if the call is unknown or finished.
    pub fn fail(&mut self, external_id: &str) -> Result<ToolCallUpdate, TrackerError> {
        Ok(self.open_call_mut(external_id)?.finish(ToolCallStatus::Failed))
    }

    /// Ends every open call as failed, as at the end of a cancelled turn, and returns the updates.
    #[must_use]
    pub fn fail_open(&mut self) -> Vec<ToolCallUpdate> {
        let open = self.calls.values_mut().filter(|tracked| !is_finished(tracked.call.status));
        open.map(|tracked| tracked.finish(ToolCallStatus::Failed)).collect()
    }

    /// Stops tracking a call and returns its last state. Its external id may then be reused, its id may not.
    ///
    /// # Errors
    /// Fails if the call is unknown.
    pub fn forget(&mut self, external_id: &str) -> Result<ToolCall, TrackerError> {
        let forgotten = self.calls.shift_remove(external_id);
        forgotten.map(|tracked| tracked.call).ok_or_else(|| TrackerError::Unknown(external_id.to_owned()))
    }

    /// Returns a call as the client knows it.
    ///
    /// # Errors
    /// Fails if the call is unknown.
    pub fn tool_call(&self, external_id: &str) -> Result<&ToolCall, TrackerError> {
        let tracked = self.calls.get(external_id);
        tracked.map(|tracked| &tracked.call).ok_or_else(|| TrackerError::Unknown(external_id.to_owned()))
    }

    /// Returns every call with its external id, in the order they were started.
    pub fn calls(&self) -> impl Iterator<Item = (&str, &ToolCall)> {
        self.calls.iter().map(|(external_id, tracked)| (external_id.as_str(), &tracked.call))
    }

    /// Returns an update with everything known about an open call, as a permission request describes it.
    ///
    /// # Errors
    /// Fails if the call is unknown or finished: a finished call needs no permission.
    pub fn full_update(&self, external_id: &str) -> Result<ToolCallUpdate, TrackerError> {
        let call = self.tool_call(external_id)?;
        if is_finished(call.status) {
            return Err(TrackerError::Finished { external_id: external_id.to_owned(), status: call.status });
        }
        let mut model = ToolCallUpdate::from(call.clone());
        model.fields.content = model.fields.content.filter(|content| !content.is_empty());
        model.fields.locations = model.fields.locations.filter(|locations| !locations.is_empty());
        Ok(model)
    }

    fn open_call_mut(&mut self, external_id: &str) -> Result<&mut TrackedCall, TrackerError> {
        match self.calls.get_mut(external_id) {
            None => Err(TrackerError::Unknown(external_id.to_owned())),
            Some(tracked) if is_finished(tracked.call.status) => Err(TrackerError::Finished {
                external_id: external_id.to_owned(),
                status: tracked.call.status,
            }),
            Some(tracked) => Ok(tracked),
        }
    }
}

impl Default for ToolCallTracker {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Debug)]
struct TrackedCall {
    call: ToolCall,
    // Invariant: if true, the last item of the call's content is its streamed text.
    is_streaming: bool,
}

impl TrackedCall {
    fn finish(&mut self, status: ToolCallStatus) -> ToolCallUpdate {
        self.call.status = status;
        builders::update_tool_call(self.call.tool_call_id.clone(), ToolCallUpdateFields::new().status(status))
    }

    /// Takes the streamed text out of the content; returns an empty string if there is none yet.
    fn take_stream_text(&mut self) -> String {
        if !self.is_streaming {
            return String::new();
        }
        match self.call.content.pop() {
            Some(ToolCallContent::Content(Content { content: ContentBlock::Text(text), .. })) => text.text,
            other => {
                self.call.content.extend(other);
                String::new()
            }
        }
    }
}

/// Returns the fields that would change the call.
fn changed_fields(call: &ToolCall, mut fields: ToolCallUpdateFields) -> ToolCallUpdateFields {
    fields.title = fields.title.filter(|title| *title != call.title);
    fields.name = fields.name.filter(|name| call.name.as_ref() != Some(name));
    fields.kind = fields.kind.filter(|kind| *kind != call.kind);
    fields.status = fields.status.filter(|status| *status != call.status);
    fields.content = fields.content.filter(|content| *content != call.content);
    fields.locations = fields.locations.filter(|locations| *locations != call.locations);
    fields.raw_input = fields.raw_input.filter(|input| call.raw_input.as_ref() != Some(input));
    fields.raw_output = fields.raw_output.filter(|output| call.raw_output.as_ref() != Some(output));
    fields
}

fn is_finished(status: ToolCallStatus) -> bool {
    matches!(status, ToolCallStatus::Completed | ToolCallStatus::Failed)
}

/// Appends `text` to `kept` and drops the front beyond [`MAX_STREAM_TEXT`].
fn append_tail(kept: &mut String, text: &str) {
    if kept.len().saturating_add(text.len()) <= MAX_STREAM_TEXT {
        kept.push_str(text);
        return;
    }
    let room = MAX_STREAM_TEXT - OMITTED_MARKER.len();
    match room.checked_sub(text.len()) {
        // More than the marker's length is dropped, so an earlier marker is dropped as a whole.
        Some(room) => {
            kept.replace_range(..kept.ceil_char_boundary(kept.len().saturating_sub(room)), OMITTED_MARKER);
            kept.push_str(text);
        }
        None => {
            kept.clear();
            kept.push_str(OMITTED_MARKER);
            kept.push_str(&text[text.ceil_char_boundary(text.len() - room)..]);
        }
    }
}

/// The source of the session's call ids.
enum IdSource {
    Counted { prefix: String, last: u64 },
    Factory { factory: Box<dyn FnMut() -> String + Send + Sync>, recent: RecentIds },
}

impl IdSource {
    fn next_id(&mut self) -> Result<ToolCallId, TrackerError> {
        match self {
            Self::Counted { prefix, last } => {
                *last += 1;
                Ok(ToolCallId::new(format!("{prefix}_{last}")))
            }
            Self::Factory { factory, recent } => {
                let id = ToolCallId::new(factory());
                if recent.insert(id.clone()) { Ok(id) } else { Err(TrackerError::RepeatedId(id)) }
            }
        }
    }
}

impl fmt::Debug for IdSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Counted { prefix, last } => write!(f, "{prefix}_{last}"),
            Self::Factory { .. } => f.write_str("made by a factory"),
        }
    }
}

/// The recent ids of a factory, in two generations: when the newer one is full it replaces the older one.
#[derive(Default)]
struct RecentIds {
    newer: HashSet<ToolCallId>,
    older: HashSet<ToolCallId>,
}

impl RecentIds {
    /// Remembers the id and returns whether it is new.
    fn insert(&mut self, id: ToolCallId) -> bool {
        if self.newer.contains(&id) || self.older.contains(&id) {
            return false;
        }
        if self.newer.len() >= MIN_REMEMBERED_IDS {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(id)
    }
}

#[cfg(test)]
mod tests;
