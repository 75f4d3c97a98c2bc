//! Builders for tool calls and their content.
//!
//! The schema's types have chained setters; these builders add the boilerplate: the kind, the location and the raw
//! input of a read or an edit, and the wrapping of content. Further fields are chained on:
//!
//! ```
//! use bowline_protocol::builders::{IntoSessionUpdate, diff, start_edit};
//!
//! let call = start_edit("call_1", "Turn on debug", "/app/config.json", "{\"debug\":true}")
//!     .content(vec![diff("/app/config.json", Some("{}"), "{\"debug\":true}")]);
//! let update = call.into_session_update();
//! ```

use std::path::Path;

use agent_client_protocol_schema::v1::{
    ContentBlock, Diff, SessionUpdate, Terminal, TerminalId, ToolCall, ToolCallContent, ToolCallId,
    ToolCallLocation, ToolCallUpdate, ToolCallUpdateFields, ToolKind,
};
use serde_json::{Value, json};

/// Starts a pending tool call of no particular kind.
#[must_use]
pub fn start_tool_call(id: impl Into<ToolCallId>, title: impl Into<String>) -> ToolCall {
    ToolCall::new(id, title)
}

/// Starts a pending read of `path`, which is also its location and its raw input.
///
/// A non-UTF-8 path is converted with replacement characters, since JSON cannot carry it.
#[must_use]
pub fn start_read(id: impl Into<ToolCallId>, title: impl Into<String>, path: impl AsRef<Path>) -> ToolCall {
    let path = wire_path(path.as_ref());
    ToolCall::new(id, title)
        .kind(ToolKind::Read)
        .raw_input(json!({ "path": path }))
        .locations(vec![ToolCallLocation::new(path)])
}

/// Starts a pending edit of `path` whose raw input holds the path and the new content, as text or any other value.
///
/// A non-UTF-8 path is converted with replacement characters, since JSON cannot carry it.
#[must_use]
pub fn start_edit(
    id: impl Into<ToolCallId>,
    title: impl Into<String>,
    path: impl AsRef<Path>,
    content: impl Into<Value>,
) -> ToolCall {
    let path = wire_path(path.as_ref());
    ToolCall::new(id, title)
        .kind(ToolKind::Edit)
        .raw_input(json!({ "path": path, "content": content.into() }))
        .locations(vec![ToolCallLocation::new(path)])
}

/// Updates the named fields of an existing tool call. A list given here replaces the earlier one.
#[must_use]
pub fn update_tool_call(id: impl Into<ToolCallId>, fields: ToolCallUpdateFields) -> ToolCallUpdate {
    ToolCallUpdate::new(id, fields)
}

/// Wraps a content block (text, image, audio, resource) as the output of a tool call.
#[must_use]
pub fn content(block: impl Into<ContentBlock>) -> ToolCallContent {
    ToolCallContent::from(block)
}

/// Wraps text as the output of a tool call.
#[must_use]
pub fn text(text: impl Into<String>) -> ToolCallContent {
    content(text.into())
}

/// Returns the diff of a change to the file at `path`. A new file has no old text.
///
/// A non-UTF-8 path is converted with replacement characters, since JSON cannot carry it.
#[must_use]
pub fn diff(path: impl AsRef<Path>, old: Option<&str>, new: impl Into<String>) -> ToolCallContent {
    Diff::new(wire_path(path.as_ref()), new).old_text(old.map(str::to_owned)).into()
}

/// Embeds the output of a terminal, which the client keeps showing after the terminal is released.
#[must_use]
pub fn terminal(id: impl Into<TerminalId>) -> ToolCallContent {
    ToolCallContent::Terminal(Terminal::new(id))
}

/// A value that can be sent as a `session/update`: a call, an update of one, or any other update.
pub trait IntoSessionUpdate {
    /// Returns the update to put into the notification.
    fn into_session_update(self) -> SessionUpdate;
}

impl IntoSessionUpdate for ToolCall {
    fn into_session_update(self) -> SessionUpdate {
        SessionUpdate::ToolCall(self)
    }
}

impl IntoSessionUpdate for ToolCallUpdate {
    fn into_session_update(self) -> SessionUpdate {
        SessionUpdate::ToolCallUpdate(self)
    }
}

impl IntoSessionUpdate for SessionUpdate {
    fn into_session_update(self) -> SessionUpdate {
        self
    }
}

/// Returns `path` as a JSON-safe string. The schema's path fields accept any path, but a non-UTF-8 path makes
/// serialising the whole message fail.
fn wire_path(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
