//! Canonical form of a message, which every parser reads the same way.
//!
//! JSON parsers differ in which of two duplicate names counts, in what ends a line, and in how lenient they are. A
//! program that evaluates messages on which others act has to forward the message that it evaluated, not the bytes
//! that it read.

use std::borrow::Cow;

use bowline_protocol::relay::is_lookalike_member;
use indexmap::IndexMap;
use serde_json::value::RawValue;

use crate::message::peek::unescape;
use crate::message::salvage::JsonCursor;

/// The maximum nesting depth, the same as in `serde_json`.
const MAX_DEPTH: usize = 128;

/// The member names of an envelope.
const ENVELOPE_NAMES: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

/// Rewrites the single message of a line, followed by a newline.
///
/// Of duplicate names the last counts, at any depth. Names and strings are escaped only where necessary; a string
/// that is not valid text, such as an unpaired surrogate, stays as it is. Numbers keep their text, and names their
/// order. Returns `None` if the line is not exactly one object, if it is neither a call nor an answer or both, or if
/// it has names that lenient parsers confuse: some ignore case, others end a name at a control character.
#[must_use]
pub fn canonicalize(line: &[u8]) -> Option<Vec<u8>> {
    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
    // From here on the line is known to be JSON.
    serde_json::from_slice::<&RawValue>(line).ok()?;
    let node = read_node(&mut JsonCursor::new(line), MAX_DEPTH)?;
    let JsonNode::Object(members) = &node else { return None };
    let is_answer = members.contains_key("result") || members.contains_key("error");
    let is_call = match members.get("method") {
        Some(JsonNode::Scalar(method)) => unescape(method).map(|_| true)?,
        Some(_) => return None,
        None => false,
    };
    if is_call == is_answer || members.keys().any(|name| is_lookalike_member(name, &ENVELOPE_NAMES)) {
        return None;
    }
    let mut written = Vec::with_capacity(line.len() + 1);
    write_node(&node, &mut written)?;
    written.push(b'\n');
    Some(written)
}

/// A value, parsed as far as rewriting requires.
enum JsonNode<'a> {
    Object(IndexMap<Cow<'a, str>, JsonNode<'a>>),
    Array(Vec<JsonNode<'a>>),
    // As written in the line.
    Scalar(&'a [u8]),
}

/// Parses a value of a line that is known to be JSON; returns `None` if it is nested too deep, or a name is not valid
/// text.
fn read_node<'a>(text: &mut JsonCursor<'a>, depth: usize) -> Option<JsonNode<'a>> {
    if text.take_byte(b'{').is_some() {
        let depth = depth.checked_sub(1)?;
        let mut members = IndexMap::new();
        while text.take_byte(b'}').is_none() {
            let name = unescape(text.take_value()?)?;
            text.take_byte(b':')?;
            members.insert(name, read_node(text, depth)?);
            text.take_byte(b',');
        }
        return Some(JsonNode::Object(members));
    }
    if text.take_byte(b'[').is_some() {
        let depth = depth.checked_sub(1)?;
        let mut items = Vec::new();
        while text.take_byte(b']').is_none() {
            items.push(read_node(text, depth)?);
            text.take_byte(b',');
        }
        return Some(JsonNode::Array(items));
    }
    text.take_value().map(JsonNode::Scalar)
}

fn write_node(node: &JsonNode<'_>, to: &mut Vec<u8>) -> Option<()> {
    match node {
        JsonNode::Object(members) => {
            to.push(b'{');
            for (at, (name, value)) in members.iter().enumerate() {
                if at > 0 {
                    to.push(b',');
                }
                serde_json::to_writer(&mut *to, name).ok()?;
                to.push(b':');
                write_node(value, to)?;
            }
            to.push(b'}');
        }
        JsonNode::Array(items) => {
            to.push(b'[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    to.push(b',');
                }
                write_node(item, to)?;
            }
            to.push(b']');
        }
        JsonNode::Scalar(raw) => match unescape(raw) {
            Some(Cow::Owned(text)) => serde_json::to_writer(to, &text).ok()?,
            Some(Cow::Borrowed(_)) | None => to.extend_from_slice(raw),
        },
    }
    Some(())
}

#[cfg(test)]
mod tests;
