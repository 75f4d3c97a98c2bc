//! The shapes in which models write calls.

use std::ops::Range;

use serde_json::{Map, Value, json};

use super::{MAX_CALLS, TextToolCall};
use crate::json_repair::repair_json;

/// Returns the calls that a text consists of, or `None` if any part of it is something else.
///
/// `{"name": TOOL, "arguments": {…}}` counts, with `parameters`, `input` or `args` for the arguments, which may be
/// JSON in a string; also inside `{"function": …}`, `{"tool_calls": […]}` and arrays, and several in sequence; and
/// `<function name="TOOL" arguments='{…}'/>` and `<function=TOOL>{…}</function>`. `is_known` recognises the known tools;
/// with `any`, unknown tools count too, if their input is named `arguments`.
pub(super) fn parse_calls(
    text: &str,
    is_known: &impl Fn(&str) -> bool,
    any: bool,
) -> Option<Vec<TextToolCall>> {
    let read = |text: &str| parse_values(text).or_else(|| parse_element(text).map(|value| vec![value]));
    let values = read(text).or_else(|| read(&repair_json(text)))?;
    let mut found = Vec::new();
    for value in values {
        collect_calls(
            value,
            &|object, name| is_known(name) || any && object.contains_key("arguments"),
            &mut found,
        )?;
    }
    found.truncate(MAX_CALLS);
    (!found.is_empty()).then_some(found)
}

fn parse_values(text: &str) -> Option<Vec<Value>> {
    let values = serde_json::Deserializer::from_str(text).into_iter::<Value>().take(MAX_CALLS);
    values.collect::<Result<_, _>>().ok()
}

/// Returns whether an object with this name is a tool call.
type CallPredicate<'k> = dyn Fn(&Map<String, Value>, &str) -> bool + 'k;

/// Returns a call written as an element, as an object.
fn parse_element(text: &str) -> Option<Value> {
    let text = text.trim().strip_prefix("<function")?;
    if let Some(rest) = text.strip_prefix('=') {
        let (name, rest) = rest.split_once('>')?;
        let input = rest.trim_end().strip_suffix("</function>").unwrap_or(rest);
        return Some(json!({ "name": name.trim(), "arguments": input }));
    }
    let name = parse_attribute(text, "name")?;
    let input = parse_attribute(text, "arguments").or_else(|| parse_attribute(text, "parameters"))?;
    Some(json!({ "name": name, "arguments": input }))
}

/// Returns the quoted value of an attribute. It may contain the same quotes if another attribute or the element's end
/// follows the last of them.
fn parse_attribute<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let at = text.find(&format!(" {name}="))? + name.len() + 2;
    let value = &text[at..];
    let quote = value.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    let value = &value[1..];
    if !value.trim_start().starts_with('{') {
        return value.split_once(quote).map(|(value, _)| value);
    }
    let ends = |at: &usize| value[..*at].trim_end().ends_with('}');
    let end = value.match_indices(quote).map(|(at, _)| at).rfind(ends)?;
    Some(&value[..end])
}

fn collect_calls(value: Value, is_call: &CallPredicate<'_>, found: &mut Vec<TextToolCall>) -> Option<()> {
    match value {
        Value::Array(values) if !values.is_empty() => {
            values.into_iter().try_for_each(|value| collect_calls(value, is_call, found))
        }
        Value::Object(mut object) => {
            if let Some(calls @ Value::Array(_)) = object.get_mut("tool_calls") {
                return collect_calls(calls.take(), is_call, found);
            }
            if let Some(Value::Object(function)) = object.get_mut("function") {
                object = std::mem::take(function);
            }
            found.push(parse_call(object, is_call)?);
            Some(())
        }
        _ => None,
    }
}

fn parse_call(mut object: Map<String, Value>, is_call: &CallPredicate<'_>) -> Option<TextToolCall> {
    let name = ["name", "tool", "tool_name", "function"]
        .iter()
        .find_map(|key| object.get(*key).and_then(Value::as_str))?;
    let name = name.strip_prefix("functions.").unwrap_or(name);
    if !is_call(&object, name) {
        return None;
    }
    let name = name.to_owned();
    // An object with only a name is more likely an answer than a call.
    let input = ["arguments", "parameters", "input", "args"].iter().find_map(|key| object.remove(*key))?;
    let input = match input {
        Value::String(text) => {
            let read = |text: &str| serde_json::from_str(text).ok();
            read(&text).or_else(|| read(&repair_json(&text)))?
        }
        Value::Null => Value::Object(Map::new()),
        input => input,
    };
    input.is_object().then_some(TextToolCall { name, input })
}

/// Finds the end of a JSON value incrementally, resuming where the text ended.
#[derive(Debug)]
pub(super) struct JsonScanner {
    start: usize,
    scanned: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
    // Whether the first non-blank byte after the opening one was seen and may begin a call.
    has_call_start: bool,
}

/// The result of a scan.
#[derive(Debug)]
pub(super) enum JsonScanOutcome {
    /// A whole value, and its range.
    Complete(Range<usize>),
    /// Not a call.
    NotACall,
    /// More text is needed.
    Incomplete,
}

impl JsonScanner {
    /// Creates a scan of a value that begins at this byte.
    pub(super) fn new(begin: usize) -> Self {
        Self {
            start: begin,
            scanned: begin,
            depth: 0,
            in_string: false,
            escaped: false,
            has_call_start: false,
        }
    }

    /// Scans the new text. The text only grows between calls.
    pub(super) fn scan(&mut self, text: &str) -> JsonScanOutcome {
        let bytes = text.as_bytes();
        while let Some(&byte) = bytes.get(self.scanned) {
            if self.scanned > self.start && !self.has_call_start && !byte.is_ascii_whitespace() {
                self.has_call_start = matches!((bytes[self.start], byte), (b'{', b'"') | (b'[', b'{'));
                if !self.has_call_start {
                    return JsonScanOutcome::NotACall;
                }
            }
            self.scanned += 1;
            if self.in_string {
                self.in_string = byte != b'"' || self.escaped;
                self.escaped = byte == b'\\' && !self.escaped;
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return JsonScanOutcome::Complete(self.start..self.scanned);
                    }
                }
                _ => (),
            }
        }
        JsonScanOutcome::Incomplete
    }
}
