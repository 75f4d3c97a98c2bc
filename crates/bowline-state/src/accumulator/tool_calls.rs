//! The tool calls of one session, merged field by field.

use std::sync::Arc;

use agent_client_protocol_schema::v1::{
    ContentBlock, Meta, ToolCall, ToolCallContent, ToolCallId, ToolCallLocation, ToolCallStatus,
    ToolCallUpdate, ToolKind,
};
use serde_json::Value;

use super::body::json_size;
use super::shelf::{Item, Key, Shelf};
use super::{Breach, Change, Named};

/// A tool call as it stands. Each field is shared with the snapshots before it, so that a change of the status does
/// not copy the content.
#[derive(Debug, Clone)]
pub struct ToolCallView {
    /// Its id.
    pub id: ToolCallId,
    /// What it does, in the agent's words.
    pub title: Arc<str>,
    /// The name of the tool, if the agent told it.
    pub name: Option<Arc<str>>,
    /// What sort of tool it is.
    pub kind: ToolKind,
    /// How far it is.
    pub status: ToolCallStatus,
    /// Whether its turn was cancelled before it finished. An agent that still says how it goes on with it, says so.
    pub cancelled: bool,
    /// What it gave so far.
    pub content: Arc<[ToolCallContent]>,
    /// The files it works on.
    pub locations: Arc<[ToolCallLocation]>,
    /// What the tool was given.
    pub raw_input: Option<Arc<Value>>,
    /// What the tool answered.
    pub raw_output: Option<Arc<Value>>,
    /// What the agent attached to it.
    pub meta: Option<Arc<Meta>>,
    pub(super) order: u64,
    // Invariant: the sum of the sizes of the fields above.
    bytes: u64,
}

impl ToolCallView {
    /// Says whether the call has come to its end.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        is_finished(self.status)
    }

    /// Returns the call as the protocol's own type.
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

    /// Returns a call as a message about it means it: what is known of it already, with what the message says on top. A
    /// permission request may name nothing but the id.
    #[must_use]
    pub fn described(known: Option<&Self>, update: &ToolCallUpdate) -> Self {
        let mut call = known.cloned().unwrap_or_else(|| Self::announced(update.tool_call_id.clone(), 0));
        // kimi-code announces a call with its input as the content, which its request replaces by a sentence.
        call.raw_input = call.raw_input.take().or_else(|| input_in_content(&call.content).map(Arc::new));
        call.merge(update);
        call
    }

    fn announced(id: ToolCallId, order: u64) -> Self {
        let bytes = CALL_BYTES + id.0.len() as u64;
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

    /// Takes over each field that the update has, and leaves the others.
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
            self.bytes = self.bytes - bytes_of_content(&self.content) + bytes_of_content(content);
            self.content = content.as_slice().into();
        }
        if let Some(locations) = &fields.locations {
            self.bytes = self.bytes - bytes_of_locations(&self.locations) + bytes_of_locations(locations);
            self.locations = locations.as_slice().into();
        }
        if let Some(input) = &fields.raw_input {
            self.bytes = self.bytes - self.raw_input.as_deref().map_or(0, bytes_of) + bytes_of(input);
            self.raw_input = Some(Arc::new(input.clone()));
        }
        if let Some(output) = &fields.raw_output {
            self.bytes = self.bytes - self.raw_output.as_deref().map_or(0, bytes_of) + bytes_of(output);
            self.raw_output = Some(Arc::new(output.clone()));
        }
        if let Some(meta) = &update.meta {
            self.bytes = self.bytes - self.meta.as_deref().map_or(0, bytes_of_meta) + bytes_of_meta(meta);
            self.meta = Some(Arc::new(meta.clone()));
        }
    }
}

/// Returns the input of a tool that an agent shows as the content of its call: a single text that is an object.
fn input_in_content(content: &[ToolCallContent]) -> Option<Value> {
    let [ToolCallContent::Content(content)] = content else { return None };
    let ContentBlock::Text(text) = &content.content else { return None };
    serde_json::from_str(&text.text).ok().filter(Value::is_object)
}

impl Item for ToolCallView {
    fn key(&self) -> Option<Key> {
        Some(Key { tag: 0, id: self.id.0.clone() })
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Takes in a `tool_call`, which announces a call.
pub(super) fn announce(
    calls: &mut Shelf<ToolCallView>,
    call: &ToolCall,
    order: u64,
) -> Result<Change, Breach> {
    let id = &call.tool_call_id;
    if id.0.is_empty() {
        return Err(Breach::EmptyId(Named::ToolCall));
    }
    if calls.find(0, &id.0).is_some() {
        return Err(Breach::AnnouncedTwice(id.clone()));
    }
    let mut view = ToolCallView::announced(id.clone(), order);
    view.merge(&ToolCallUpdate::from(call.clone()));
    calls.push(view);
    Ok(Change::ToolCallAdded(id.clone()))
}

/// Takes in a `tool_call_update`.
///
/// Some agents send no `tool_call` and start with an update. One that has a title says all that an announcement
/// must, and is taken as one. An update of a call that was driven out by the cap is no fault of the agent's.
pub(super) fn update(
    calls: &mut Shelf<ToolCallView>,
    update: &ToolCallUpdate,
    order: u64,
) -> Result<Change, Breach> {
    let id = &update.tool_call_id;
    if id.0.is_empty() {
        return Err(Breach::EmptyId(Named::ToolCall));
    }
    let Some((position, call)) = calls.find(0, &id.0).and_then(|at| Some((at, calls.get(at)?))) else {
        if update.fields.title.is_some() {
            let mut view = ToolCallView::announced(id.clone(), order);
            view.merge(update);
            calls.push(view);
            return Ok(Change::ToolCallAdded(id.clone()));
        }
        if calls.lost().items > 0 {
            return Ok(Change::Forgotten(id.clone()));
        }
        return Err(Breach::NotAnnounced(id.clone()));
    };
    let was = call.status;
    let becomes = update.fields.status.unwrap_or(was);
    if is_finished(was) && !is_finished(becomes) {
        return Err(Breach::Finished { id: id.clone(), status: was, wanted: becomes });
    }
    calls.update(position, |call| call.merge(update));
    Ok(if is_finished(becomes) && !is_finished(was) {
        Change::ToolCallFinished(id.clone())
    } else {
        Change::ToolCallUpdated(id.clone())
    })
}

/// Marks every call that has not finished as cancelled.
pub(super) fn cancel(calls: &mut Shelf<ToolCallView>) {
    let open: Vec<ToolCallId> =
        calls.iter().filter(|call| !call.is_finished()).map(|call| call.id.clone()).collect();
    for id in open {
        if let Some(position) = calls.find(0, &id.0) {
            calls.update(position, |call| call.cancelled = true);
        }
    }
}

/// What a call counts beside its fields.
const CALL_BYTES: u64 = 256;

fn is_finished(status: ToolCallStatus) -> bool {
    match status {
        ToolCallStatus::Completed | ToolCallStatus::Failed => true,
        ToolCallStatus::Pending | ToolCallStatus::InProgress => false,
        // A status of a later protocol: a call that may still go on is never shown as ended.
        _ => false,
    }
}

fn bytes_of_content(content: &[ToolCallContent]) -> u64 {
    json_size(|to| serde_json::to_writer(to, content))
}

fn bytes_of_locations(locations: &[ToolCallLocation]) -> u64 {
    json_size(|to| serde_json::to_writer(to, locations))
}

fn bytes_of(value: &Value) -> u64 {
    json_size(|to| serde_json::to_writer(to, value))
}

fn bytes_of_meta(meta: &Meta) -> u64 {
    json_size(|to| serde_json::to_writer(to, meta))
}
