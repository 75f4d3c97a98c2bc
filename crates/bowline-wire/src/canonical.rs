//! A message written anew, so that every reader takes it for the same.
//!
//! Readers of JSON differ in which of two equal names counts, in what ends a line, and in how much they let pass. A program
//! that judges messages which others act upon has to pass on the message that it judged, not the bytes that it read.

use std::borrow::Cow;

use bowline_state::relay::is_lookalike_name;
use indexmap::IndexMap;
use serde_json::value::RawValue;

use crate::peek::unescaped;
use crate::salvage::Cursor;

/// The deepest nesting that is read, as `serde_json` has it.
const MAX_DEPTH: usize = 128;

/// The names that make a message.
const NAMES: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

/// Writes the one message of a line anew, with a newline behind it.
///
/// Of equal names the last counts, at any depth. Names and strings are escaped only where they have to be; a string that is
/// no text, such as half a surrogate pair, stays as it is. Numbers keep their text, and names their order. Returns `None`
/// if the line is anything but one object, is neither a call nor an answer or both, or has names that no reader should have
/// to tell apart: some pass over capitals, others end a name at a control character.
#[must_use]
pub fn canonical(line: &[u8]) -> Option<Vec<u8>> {
    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
    // From here on the line is known to be JSON.
    serde_json::from_slice::<&RawValue>(line).ok()?;
    let node = read(&mut Cursor::new(line), MAX_DEPTH)?;
    let Node::Object(members) = &node else { return None };
    let is_answer = members.contains_key("result") || members.contains_key("error");
    let is_call = match members.get("method") {
        Some(Node::Scalar(method)) => unescaped(method).map(|_| true)?,
        Some(_) => return None,
        None => false,
    };
    if is_call == is_answer || members.keys().any(|name| is_lookalike_name(name, &NAMES)) {
        return None;
    }
    let mut written = Vec::with_capacity(line.len() + 1);
    write(&node, &mut written)?;
    written.push(b'\n');
    Some(written)
}

/// A value, as far as it has to be known to be written again.
enum Node<'a> {
    Object(IndexMap<Cow<'a, str>, Node<'a>>),
    Array(Vec<Node<'a>>),
    // As it stands in the line.
    Scalar(&'a [u8]),
}

/// Reads a value of a line that is known to be JSON; `None` if it is nested too deep, or a name is no text.
fn read<'a>(text: &mut Cursor<'a>, depth: usize) -> Option<Node<'a>> {
    if text.take(b'{').is_some() {
        let depth = depth.checked_sub(1)?;
        let mut members = IndexMap::new();
        while text.take(b'}').is_none() {
            let name = unescaped(text.value()?)?;
            text.take(b':')?;
            members.insert(name, read(text, depth)?);
            text.take(b',');
        }
        return Some(Node::Object(members));
    }
    if text.take(b'[').is_some() {
        let depth = depth.checked_sub(1)?;
        let mut items = Vec::new();
        while text.take(b']').is_none() {
            items.push(read(text, depth)?);
            text.take(b',');
        }
        return Some(Node::Array(items));
    }
    text.value().map(Node::Scalar)
}

fn write(node: &Node<'_>, to: &mut Vec<u8>) -> Option<()> {
    match node {
        Node::Object(members) => {
            to.push(b'{');
            for (at, (name, value)) in members.iter().enumerate() {
                if at > 0 {
                    to.push(b',');
                }
                serde_json::to_writer(&mut *to, name).ok()?;
                to.push(b':');
                write(value, to)?;
            }
            to.push(b'}');
        }
        Node::Array(items) => {
            to.push(b'[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    to.push(b',');
                }
                write(item, to)?;
            }
            to.push(b']');
        }
        Node::Scalar(raw) => match unescaped(raw) {
            Some(Cow::Owned(text)) => serde_json::to_writer(to, &text).ok()?,
            Some(Cow::Borrowed(_)) | None => to.extend_from_slice(raw),
        },
    }
    Some(())
}

#[cfg(test)]
mod tests;
