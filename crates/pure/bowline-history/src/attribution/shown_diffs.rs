//! Appending the shown diffs to an agent's message about a tool call.
//!
//! The content of an update replaces the call's content, so an agent that reports its result last would erase the diffs
//! that the proxy found on disk and displayed.

use agent_client_protocol_schema::v1::{Meta, ToolCallContent};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::ShownDiff;
use bowline_protocol::relay::mcp_servers::substring_offset;

/// Returns the message with the diffs appended to its content, except those that the agent shows itself. All other
/// bytes stay the same. Returns `None` if there is nothing to append, or no content to append to.
pub(super) fn append_diffs(line: &[u8], shown: &[ShownDiff]) -> Option<Vec<u8>> {
    let text = str::from_utf8(line).ok()?;
    let message: UpdateMessage<'_> = serde_json::from_str(text).ok()?;
    let list = message.params.update.content?.get();
    let inner = list.strip_prefix('[')?.strip_suffix(']')?;
    // Content of an unknown kind is not a diff.
    let items: Vec<&RawValue> = serde_json::from_str(list).ok()?;
    let content: Vec<ToolCallContent> =
        items.iter().filter_map(|item| serde_json::from_str(item.get()).ok()).collect();
    let added: Vec<String> =
        shown.iter().filter(|shown| !shown.is_shown_in(&content)).map(diff_content).collect();
    if added.is_empty() {
        return None;
    }
    let comma = if inner.trim().is_empty() { "" } else { "," };
    let at = substring_offset(text, list)? + list.len() - 1;
    Some([&text[..at], comma, &added.join(","), &text[at..]].concat().into_bytes())
}

/// Returns a diff as content that is marked as observed by Bowline.
fn diff_content(shown: &ShownDiff) -> String {
    let mut meta = Meta::new();
    meta.insert("bowline".to_owned(), json!({ "observed": true }));
    json!(ToolCallContent::Diff(shown.diff.clone().meta(meta))).to_string()
}

#[derive(Deserialize)]
struct UpdateMessage<'a> {
    #[serde(borrow)]
    params: UpdateMessageParams<'a>,
}

#[derive(Deserialize)]
struct UpdateMessageParams<'a> {
    #[serde(borrow)]
    update: UpdateContent<'a>,
}

#[derive(Deserialize)]
struct UpdateContent<'a> {
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
}
