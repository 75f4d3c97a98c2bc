//! The tool calls of one session, merged field by field.

use std::sync::Arc;

use agent_client_protocol_schema::v1::{
    ContentBlock, Meta, ToolCall, ToolCallContent, ToolCallId, ToolCallLocation, ToolCallStatus,
    ToolCallUpdate, ToolKind,
};
use serde_json::Value;

use super::bounded_list::{BoundedList, ItemKey, ListItem};
use super::content::json_size;
use super::{IdKind, SessionChange, SessionViolation};

/// The current state of a tool call. Each field is shared with earlier snapshots, so a status change does not copy the
/// content.
#[derive(Debug, Clone)]
pub struct ToolCallView {
    /// Its id.
    pub id: ToolCallId,
    /// What it does, in the agent's words.
    pub title: Arc<str>,
    /// The name of the tool, if the agent sent it.
    pub name: Option<Arc<str>>,
    /// The kind of tool.
    pub kind: ToolKind,
    /// Its progress.
    pub status: ToolCallStatus,
    /// Whether its turn was cancelled before it finished. A later status from the agent clears it.
    pub cancelled: bool,
    /// The content produced so far.
    pub content: Arc<[ToolCallContent]>,
    /// The files it works on.
    pub locations: Arc<[ToolCallLocation]>,
    /// The tool's input.
    pub raw_input: Option<Arc<Value>>,
    /// The tool's output.
    pub raw_output: Option<Arc<Value>>,
    /// The agent's `_meta`.
    pub meta: Option<Arc<Meta>>,
    pub(super) order: u64,
    // Invariant: the sum of the sizes of the fields above.
    bytes: u64,
}

impl ToolCallView {
    /// Returns whether the call has finished.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        is_finished(self.status)
    }

    /// Returns the call as the protocol's type.
    #[must_use]
    pub fn to_tool_call(&self) -> ToolCall {
        ToolCall::new(self.id.clone(), self.title.to_string())
            .name(self.name.as_deref().map(str::to_owned))
            .kind(self.kind)
            .status(self.status)
            .content(self.content.to_vec())
            .locations(self.locations.to_vec())
            .raw_input(self.raw_input.as_deref().cloned())
            .raw_output(self.raw_output.as_deref().cloned())
            .meta(self.meta.as_deref().cloned())
    }

    /// Returns the call that an update describes: the known fields, overlaid with those of the update. A permission
    /// request may contain nothing but the id.
    #[must_use]
    pub fn from_update(known: Option<&Self>, update: &ToolCallUpdate) -> Self {
        let mut call = known.cloned().unwrap_or_else(|| Self::new(update.tool_call_id.clone(), 0));
        // kimi-code announces a call with its input as the content, which its permission request replaces with a
        // sentence.
        call.raw_input =
            call.raw_input.take().or_else(|| parse_input_from_content(&call.content).map(Arc::new));
        call.merge(update);
        call
    }

    fn new(id: ToolCallId, order: u64) -> Self {
        let bytes = CALL_OVERHEAD_BYTES + id.0.len() as u64;
        Self {
            id,
            title: Arc::from(""),
            name: None,
            kind: ToolKind::default(),
            status: ToolCallStatus::default(),
            cancelled: false,
            content: Arc::from([]),
            locations: Arc::from([]),
            raw_input: None,
            raw_output: None,
            meta: None,
            order,
            bytes,
        }
    }

    /// Overwrites the fields that the update contains; the others remain.
    fn merge(&mut self, update: &ToolCallUpdate) {
        let fields = &update.fields;
        self.kind = fields.kind.unwrap_or(self.kind);
        self.status = fields.status.unwrap_or(self.status);
        self.cancelled &= fields.status.is_none();
        if let Some(title) = &fields.title {
            self.bytes = self.bytes - self.title.len() as u64 + title.len() as u64;
            self.title = title.as_str().into();
        }
        if let Some(name) = &fields.name {
            self.bytes =
                self.bytes - self.name.as_ref().map_or(0, |old| old.len() as u64) + name.len() as u64;
            self.name = Some(name.as_str().into());
        }
        if let Some(content) = &fields.content {
            self.bytes = self.bytes - content_size(&self.content) + content_size(content);
            self.content = content.as_slice().into();
        }
        if let Some(locations) = &fields.locations {
            self.bytes = self.bytes - locations_size(&self.locations) + locations_size(locations);
            self.locations = locations.as_slice().into();
        }
        if let Some(input) = &fields.raw_input {
            self.bytes = self.bytes - self.raw_input.as_deref().map_or(0, value_size) + value_size(input);
            self.raw_input = Some(Arc::new(input.clone()));
        }
        if let Some(output) = &fields.raw_output {
            self.bytes = self.bytes - self.raw_output.as_deref().map_or(0, value_size) + value_size(output);
            self.raw_output = Some(Arc::new(output.clone()));
        }
        if let Some(meta) = &update.meta {
            self.bytes = self.bytes - self.meta.as_deref().map_or(0, meta_size) + meta_size(meta);
            self.meta = Some(Arc::new(meta.clone()));
        }
    }
}

/// Returns the input that an agent sends as the content of its call: a single text block that holds a JSON object.
fn parse_input_from_content(content: &[ToolCallContent]) -> Option<Value> {
    let [ToolCallContent::Content(content)] = content else { return None };
    let ContentBlock::Text(text) = &content.content else { return None };
    serde_json::from_str(&text.text).ok().filter(Value::is_object)
}

impl ListItem for ToolCallView {
    fn key(&self) -> Option<ItemKey> {
        Some(ItemKey { tag: 0, id: self.id.0.clone() })
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Applies a `tool_call`, which announces a call.
pub(super) fn apply_tool_call(
    calls: &mut BoundedList<ToolCallView>,
    call: &ToolCall,
    order: u64,
) -> Result<SessionChange, SessionViolation> {
    let id = &call.tool_call_id;
    if id.0.is_empty() {
        return Err(SessionViolation::EmptyId(IdKind::ToolCall));
    }
    if calls.find(0, &id.0).is_some() {
        return Err(SessionViolation::AnnouncedTwice(id.clone()));
    }
    let mut view = ToolCallView::new(id.clone(), order);
    view.merge(&ToolCallUpdate::from(call.clone()));
    calls.push(view);
    Ok(SessionChange::ToolCallAdded(id.clone()))
}

/// Applies a `tool_call_update`.
///
/// Some agents send no `tool_call` and start with an update. An update with a title contains everything that an
/// announcement must and is treated as one. An update of an evicted call is not the agent's fault.
pub(super) fn apply_tool_call_update(
    calls: &mut BoundedList<ToolCallView>,
    update: &ToolCallUpdate,
    order: u64,
) -> Result<SessionChange, SessionViolation> {
    let id = &update.tool_call_id;
    if id.0.is_empty() {
        return Err(SessionViolation::EmptyId(IdKind::ToolCall));
    }
    let Some((position, call)) = calls.find(0, &id.0).and_then(|at| Some((at, calls.get(at)?))) else {
        if update.fields.title.is_some() {
            let mut view = ToolCallView::new(id.clone(), order);
            view.merge(update);
            calls.push(view);
            return Ok(SessionChange::ToolCallAdded(id.clone()));
        }
        if calls.evicted().items > 0 {
            return Ok(SessionChange::ToolCallEvicted(id.clone()));
        }
        return Err(SessionViolation::NotAnnounced(id.clone()));
    };
    let status = call.status;
    let requested = update.fields.status.unwrap_or(status);
    if is_finished(status) && !is_finished(requested) {
        return Err(SessionViolation::AlreadyFinished { id: id.clone(), status, requested });
    }
    calls.update(position, |call| call.merge(update));
    Ok(if is_finished(requested) && !is_finished(status) {
        SessionChange::ToolCallFinished(id.clone())
    } else {
        SessionChange::ToolCallUpdated(id.clone())
    })
}

/// Marks every unfinished call as cancelled.
pub(super) fn cancel_open_calls(calls: &mut BoundedList<ToolCallView>) {
    let open: Vec<ToolCallId> =
        calls.iter().filter(|call| !call.is_finished()).map(|call| call.id.clone()).collect();
    for id in open {
        if let Some(position) = calls.find(0, &id.0) {
            calls.update(position, |call| call.cancelled = true);
        }
    }
}

/// The size of a call beyond its fields.
const CALL_OVERHEAD_BYTES: u64 = 256;

fn is_finished(status: ToolCallStatus) -> bool {
    match status {
        ToolCallStatus::Completed | ToolCallStatus::Failed => true,
        ToolCallStatus::Pending | ToolCallStatus::InProgress => false,
        // A status of a later protocol: a call that may still be running is never shown as finished.
        _ => false,
    }
}

fn content_size(content: &[ToolCallContent]) -> u64 {
    json_size(|writer| serde_json::to_writer(writer, content))
}

fn locations_size(locations: &[ToolCallLocation]) -> u64 {
    json_size(|writer| serde_json::to_writer(writer, locations))
}

fn value_size(value: &Value) -> u64 {
    json_size(|writer| serde_json::to_writer(writer, value))
}

fn meta_size(meta: &Meta) -> u64 {
    json_size(|writer| serde_json::to_writer(writer, meta))
}
