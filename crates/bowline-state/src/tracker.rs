//! The tool calls that an agent has under way, and the updates that tell the client about them.
//!
//! An agent names its calls as it likes, by an *external id*: what its model calls them, say. [`ToolCallTracker`]
//! gives each one the id that the session knows it by, keeps what the client was told, and makes each update carry
//! only what changed. Nothing is sent from here: every method returns the message to send.
//!
//! ```
//! use bowline_state::builders::start_read;
//! use bowline_state::schema::v1::{ToolCallStatus, ToolCallUpdateFields};
//! use bowline_state::tracker::ToolCallTracker;
//!
//! # fn main() -> Result<(), bowline_state::tracker::TrackerError> {
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
use crate::failure::quote;

/// How many calls a tracker holds at once. Finished calls count until they are forgotten.
pub const MAX_TRACKED_CALLS: usize = 1024;

/// How many bytes of streamed text a call keeps, the marker included. What is older is dropped.
///
/// The protocol replaces a call's content as a whole, so each update repeats the text so far: one appended chunk costs
/// up to this much on the wire besides the call's other content, however short it is, and `n` chunks cost `n` times as
/// much. Gather small chunks.
pub const MAX_STREAM_TEXT: usize = 65_536;

/// What streamed text begins with once its beginning was dropped.
pub const OMITTED_MARKER: &str = "[earlier output omitted]\n";

/// How many ids of forgotten calls a tracker recognises, at least, when its factory repeats one.
pub const MIN_REMEMBERED_IDS: usize = 16_384;

/// The agent's tool calls, in the order they were started.
#[derive(Debug)]
pub struct ToolCallTracker {
    ids: Ids,
    // Invariant: at most `MAX_TRACKED_CALLS`, keyed by external id.
    calls: IndexMap<String, Tracked>,
}

/// A use of the tracker that makes no sense. The tracker is as it was before.
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
    /// The factory made an id that the session knows another call by.
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
    /// Ids are unique in a session. Where one has several trackers, one after the other when it is loaded again or side
    /// by side, each needs a prefix of its own.
    #[must_use]
    pub fn with_prefix(prefix: impl Into<String>) -> Self {
        Self { ids: Ids::Counted { prefix: prefix.into(), last: 0 }, calls: IndexMap::new() }
    }

    /// Creates a tracker whose calls are named by `factory`, which has to make a new id each time.
    #[must_use]
    pub fn with_ids(factory: impl FnMut() -> String + Send + Sync + 'static) -> Self {
        Self {
            ids: Ids::Made { factory: Box::new(factory), given: Given::default() },
            calls: IndexMap::new(),
        }
    }

    /// Starts a call and returns what announces it.
    ///
    /// `build` makes the call from the id it is given, as the functions in [`builders`] do; whatever id it puts in, the
    /// call has the given one.
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
        let id = self.ids.next()?;
        if self.calls.values().any(|tracked| tracked.call.tool_call_id == id) {
            return Err(TrackerError::RepeatedId(id));
        }
        let mut call = build(id.clone());
        call.tool_call_id = id;
        self.calls.insert(external_id, Tracked { call: call.clone(), streaming: false });
        Ok(call)
    }

    /// Changes a call and returns the update with the fields that are now different, or nothing if none is.
    ///
    /// # Errors
    /// Fails if the call is unknown or finished.
    pub fn progress(
        &mut self,
        external_id: &str,
        fields: ToolCallUpdateFields,
    ) -> Result<Option<ToolCallUpdate>, TrackerError> {
        let tracked = self.open(external_id)?;
        let changed = changed(&tracked.call, fields);
        if changed == ToolCallUpdateFields::new() {
            return Ok(None);
        }
        if changed.content.is_some() {
            tracked.streaming = false;
        }
        tracked.call.update(changed.clone());
        Ok(Some(builders::update(tracked.call.tool_call_id.clone(), changed)))
    }

    /// Adds text to what a call has streamed and returns the update, or nothing if the text is empty.
    ///
    /// The streamed text is one item of the call's content, behind what was there when it began. Content set by
    /// [`progress`](Self::progress) replaces it, and text that comes later begins a new item. Of the text of one item
    /// the last [`MAX_STREAM_TEXT`] bytes are kept, which also says what an update costs.
    ///
    /// # Errors
    /// Fails if the call is unknown or finished.
    pub fn append_stream_text(
        &mut self,
        external_id: &str,
        text: &str,
    ) -> Result<Option<ToolCallUpdate>, TrackerError> {
        let tracked = self.open(external_id)?;
        if text.is_empty() {
            return Ok(None);
        }
        let mut streamed = tracked.take_stream_text();
        append_tail(&mut streamed, text);
        tracked.call.content.push(builders::text(streamed));
        tracked.streaming = true;
        let fields = ToolCallUpdateFields::new().content(tracked.call.content.clone());
        Ok(Some(builders::update(tracked.call.tool_call_id.clone(), fields)))
    }

    /// Ends a call that did what it was to do and returns the update.
    ///
    /// # Errors
    /// Fails if the call is unknown or finished.
    pub fn complete(&mut self, external_id: &str) -> Result<ToolCallUpdate, TrackerError> {
        Ok(self.open(external_id)?.finish(ToolCallStatus::Completed))
    }

    /// Ends a call that did not do what it was to do and returns the update.
    ///
    /// # Errors
    /// Fails if the call is unknown or finished.
    pub fn fail(&mut self, external_id: &str) -> Result<ToolCallUpdate, TrackerError> {
        Ok(self.open(external_id)?.finish(ToolCallStatus::Failed))
    }

    /// Ends every call that is still open as failed, as at the end of a cancelled turn, and returns the updates.
    #[must_use]
    pub fn fail_open(&mut self) -> Vec<ToolCallUpdate> {
        let open = self.calls.values_mut().filter(|tracked| !is_finished(tracked.call.status));
        open.map(|tracked| tracked.finish(ToolCallStatus::Failed)).collect()
    }

    /// Stops tracking a call and returns it as it was last. Its external id may then be used again, its id may not.
    ///
    /// # Errors
    /// Fails if the call is unknown.
    pub fn forget(&mut self, external_id: &str) -> Result<ToolCall, TrackerError> {
        let forgotten = self.calls.shift_remove(external_id);
        forgotten.map(|tracked| tracked.call).ok_or_else(|| TrackerError::Unknown(external_id.to_owned()))
    }

    /// Returns a call as the client was told of it.
    ///
    /// # Errors
    /// Fails if the call is unknown.
    pub fn view(&self, external_id: &str) -> Result<&ToolCall, TrackerError> {
        let tracked = self.calls.get(external_id);
        tracked.map(|tracked| &tracked.call).ok_or_else(|| TrackerError::Unknown(external_id.to_owned()))
    }

    /// Returns every call with its external id, in the order they were started.
    pub fn calls(&self) -> impl Iterator<Item = (&str, &ToolCall)> {
        self.calls.iter().map(|(external_id, tracked)| (external_id.as_str(), &tracked.call))
    }

    /// Returns an update with everything known of an open call, which is how a permission request describes it.
    ///
    /// # Errors
    /// Fails if the call is unknown or finished: what is over needs no permission.
    pub fn tool_call_model(&self, external_id: &str) -> Result<ToolCallUpdate, TrackerError> {
        let call = self.view(external_id)?;
        if is_finished(call.status) {
            return Err(TrackerError::Finished { external_id: external_id.to_owned(), status: call.status });
        }
        let mut model = ToolCallUpdate::from(call.clone());
        model.fields.content = model.fields.content.filter(|content| !content.is_empty());
        model.fields.locations = model.fields.locations.filter(|locations| !locations.is_empty());
        Ok(model)
    }

    fn open(&mut self, external_id: &str) -> Result<&mut Tracked, TrackerError> {
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
struct Tracked {
    call: ToolCall,
    // Invariant: if true, the last item of the call's content is its streamed text.
    streaming: bool,
}

impl Tracked {
    fn finish(&mut self, status: ToolCallStatus) -> ToolCallUpdate {
        self.call.status = status;
        builders::update(self.call.tool_call_id.clone(), ToolCallUpdateFields::new().status(status))
    }

    /// Takes the streamed text out of the content; it is empty if there is none yet.
    fn take_stream_text(&mut self) -> String {
        if !self.streaming {
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

/// Returns the fields that would make the call another one.
fn changed(call: &ToolCall, mut fields: ToolCallUpdateFields) -> ToolCallUpdateFields {
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

/// Adds `text` to `kept` and drops from the front what goes beyond [`MAX_STREAM_TEXT`].
fn append_tail(kept: &mut String, text: &str) {
    if kept.len().saturating_add(text.len()) <= MAX_STREAM_TEXT {
        kept.push_str(text);
        return;
    }
    let room = MAX_STREAM_TEXT - OMITTED_MARKER.len();
    match room.checked_sub(text.len()) {
        // More than the marker's length goes, so an earlier marker goes as a whole.
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

/// Where the session's ids of calls come from.
enum Ids {
    Counted { prefix: String, last: u64 },
    Made { factory: Box<dyn FnMut() -> String + Send + Sync>, given: Given },
}

impl Ids {
    fn next(&mut self) -> Result<ToolCallId, TrackerError> {
        match self {
            Self::Counted { prefix, last } => {
                *last += 1;
                Ok(ToolCallId::new(format!("{prefix}_{last}")))
            }
            Self::Made { factory, given } => {
                let id = ToolCallId::new(factory());
                if given.insert(id.clone()) { Ok(id) } else { Err(TrackerError::RepeatedId(id)) }
            }
        }
    }
}

impl fmt::Debug for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Counted { prefix, last } => write!(f, "{prefix}_{last}"),
            Self::Made { .. } => f.write_str("made by a factory"),
        }
    }
}

/// The ids that a factory made lately, in two generations: when the newer one is full it becomes the older, and what
/// was the older is dropped.
#[derive(Default)]
struct Given {
    newer: HashSet<ToolCallId>,
    older: HashSet<ToolCallId>,
}

impl Given {
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
