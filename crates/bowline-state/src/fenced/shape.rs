//! The shapes in which models write calls.

use std::ops::Range;

use serde_json::{Map, Value, json};

use super::{Call, MAX_CALLS};

/// Returns the calls that a text is made of, or nothing if any part of it is something else.
///
/// `{"name": TOOL, "arguments": {…}}` counts, with `parameters`, `input` or `args` for the arguments, which may be JSON in
/// a string; also inside of `{"function": …}`, of `{"tool_calls": […]}` and of arrays, and several one after the other; and
/// `<function name="TOOL" arguments='{…}'/>` and `<function=TOOL>{…}</function>`.
/// `knows` says which tools there are; with `any`, those that there are none of count too, if what they are called with is called
/// `arguments`.
pub(super) fn read(text: &str, knows: &impl Fn(&str) -> bool, any: bool) -> Option<Vec<Call>> {
    let read = |text: &str| values(text).or_else(|| element(text).map(|value| vec![value]));
    let values = read(text).or_else(|| read(&repaired(text)))?;
    let mut found = Vec::new();
    for value in values {
        collect(value, &|object, name| knows(name) || any && object.contains_key("arguments"), &mut found)?;
    }
    found.truncate(MAX_CALLS);
    (!found.is_empty()).then_some(found)
}

fn values(text: &str) -> Option<Vec<Value>> {
    let values = serde_json::Deserializer::from_str(text).into_iter::<Value>().take(MAX_CALLS);
    values.collect::<Result<_, _>>().ok()
}

/// Says whether an object with such a name calls a tool.
type Knows<'k> = dyn Fn(&Map<String, Value>, &str) -> bool + 'k;

/// Returns a call that is written as an element, as an object.
fn element(text: &str) -> Option<Value> {
    let text = text.trim().strip_prefix("<function")?;
    if let Some(rest) = text.strip_prefix('=') {
        let (name, rest) = rest.split_once('>')?;
        let input = rest.trim_end().strip_suffix("</function>").unwrap_or(rest);
        return Some(json!({ "name": name.trim(), "arguments": input }));
    }
    let name = attribute(text, "name")?;
    let input = attribute(text, "arguments").or_else(|| attribute(text, "parameters"))?;
    Some(json!({ "name": name, "arguments": input }))
}

/// Returns what stands between the quotes of an attribute. The same quotes may stand in it if another attribute or the
/// element's end follows the last of them.
fn attribute<'a>(text: &'a str, name: &str) -> Option<&'a str> {
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

fn collect(value: Value, knows: &Knows<'_>, found: &mut Vec<Call>) -> Option<()> {
    match value {
        Value::Array(values) if !values.is_empty() => {
            values.into_iter().try_for_each(|value| collect(value, knows, found))
        }
        Value::Object(mut object) => {
            if let Some(calls @ Value::Array(_)) = object.get_mut("tool_calls") {
                return collect(calls.take(), knows, found);
            }
            if let Some(Value::Object(function)) = object.get_mut("function") {
                object = std::mem::take(function);
            }
            found.push(call(object, knows)?);
            Some(())
        }
        _ => None,
    }
}

fn call(mut object: Map<String, Value>, knows: &Knows<'_>) -> Option<Call> {
    let name = ["name", "tool", "tool_name", "function"]
        .iter()
        .find_map(|key| object.get(*key).and_then(Value::as_str))?;
    let name = name.strip_prefix("functions.").unwrap_or(name);
    if !knows(&object, name) {
        return None;
    }
    let name = name.to_owned();
    // Something that only has a name is more likely an answer than a call.
    let input = ["arguments", "parameters", "input", "args"].iter().find_map(|key| object.remove(*key))?;
    let input = match input {
        Value::String(text) => {
            let read = |text: &str| serde_json::from_str(text).ok();
            read(&text).or_else(|| read(&repaired(&text)))?
        }
        Value::Null => Value::Object(Map::new()),
        input => input,
    };
    input.is_object().then_some(Call { name, input })
}

/// Returns JSON whose strings have no bare line breaks and tabs, and no escapes that JSON does not know: models forget to
/// escape the first, and write `\$` or `\'` as in a shell.
#[must_use]
pub fn repaired(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let (mut in_string, mut escaped) = (false, false);
    for c in text.chars() {
        match c {
            '\n' if in_string => out.push_str("\\n"),
            '\r' if in_string => out.push_str("\\r"),
            '\t' if in_string => out.push_str("\\t"),
            '\'' if escaped => {
                out.pop();
                out.push(c);
            }
            c if escaped && !matches!(c, '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't' | 'u') => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
        in_string ^= c == '"' && !escaped;
        escaped = in_string && c == '\\' && !escaped;
    }
    out
}

/// Looks for the end of a JSON value, going on where it stopped when there was no more text.
#[derive(Debug)]
pub(super) struct Scan {
    begin: usize,
    looked: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
    // The first byte after the opening one that is no blank was seen, and may begin a call.
    begun: bool,
}

/// What was seen.
#[derive(Debug)]
pub(super) enum Seen {
    /// A whole value, and where it is.
    Whole(Range<usize>),
    /// No call.
    No,
    /// More text is needed.
    More,
}

impl Scan {
    /// Returns a scan of a value that begins at this byte.
    pub(super) fn new(begin: usize) -> Self {
        Self { begin, looked: begin, depth: 0, in_string: false, escaped: false, begun: false }
    }

    /// Looks at what has come since. The text only grows between calls.
    pub(super) fn look(&mut self, text: &str) -> Seen {
        let bytes = text.as_bytes();
        while let Some(&byte) = bytes.get(self.looked) {
            if self.looked > self.begin && !self.begun && !byte.is_ascii_whitespace() {
                self.begun = matches!((bytes[self.begin], byte), (b'{', b'"') | (b'[', b'{'));
                if !self.begun {
                    return Seen::No;
                }
            }
            self.looked += 1;
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
                        return Seen::Whole(self.begin..self.looked);
                    }
                }
                _ => (),
            }
        }
        Seen::More
    }
}
