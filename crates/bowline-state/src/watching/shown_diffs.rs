//! An agent's message about a tool call, with the diffs that were shown on the call before.
//!
//! The content of an update replaces what the call had, so an agent that reports its result last would wipe out what the
//! proxy has found on disk and shown.

use agent_client_protocol_schema::v1::{Meta, ToolCallContent};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::ShownDiff;
use crate::relay::servers::offset;

/// Returns the message with the diffs behind its content, but for those that the agent shows itself. Every other byte stays.
/// `None` if there is nothing to add, or nothing to add it to.
pub(super) fn with_diffs(line: &[u8], shown: &[ShownDiff]) -> Option<Vec<u8>> {
    let text = str::from_utf8(line).ok()?;
    let message: Message<'_> = serde_json::from_str(text).ok()?;
    let list = message.params.update.content?.get();
    let inner = list.strip_prefix('[')?.strip_suffix(']')?;
    // Content of a kind that is not known is no diff.
    let items: Vec<&RawValue> = serde_json::from_str(list).ok()?;
    let content: Vec<ToolCallContent> =
        items.iter().filter_map(|item| serde_json::from_str(item.get()).ok()).collect();
    let added: Vec<String> = shown.iter().filter(|shown| !shown.is_in(&content)).map(marked).collect();
    if added.is_empty() {
        return None;
    }
    let comma = if inner.trim().is_empty() { "" } else { "," };
    let at = offset(text, list)? + list.len() - 1;
    Some([&text[..at], comma, &added.join(","), &text[at..]].concat().into_bytes())
}

/// Returns a diff as content that says who has added it.
fn marked(shown: &ShownDiff) -> String {
    let mut meta = Meta::new();
    meta.insert("bowline".to_owned(), json!({ "observed": true }));
    json!(ToolCallContent::Diff(shown.diff.clone().meta(meta))).to_string()
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    params: Params<'a>,
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow)]
    update: Update<'a>,
}

#[derive(Deserialize)]
struct Update<'a> {
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
}
