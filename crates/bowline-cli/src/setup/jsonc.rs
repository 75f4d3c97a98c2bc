//! Edits of hand-written JSON with comments: everything else stays unchanged, to the byte.
//!
//! Comments, trailing commas, odd spacing and a byte order mark are accepted. Text that cannot be parsed is refused.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstObject, CstObjectProp, CstRootNode};
use serde_json::Value;

/// The maximum size of a configuration, in bytes; a longer text was not written by hand.
pub(super) const MAX_BYTES: usize = 4 << 20;

const BOM: &str = "\u{feff}";

/// The result of adding or removing a value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum JsoncEdit {
    /// The text needs no change.
    Unchanged,
    /// The new text.
    Changed(String),
}

/// Why the text cannot be edited.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum JsoncError {
    /// It is too long.
    #[error("it has more than {} MiB", MAX_BYTES >> 20)]
    TooLong,
    /// It is not JSON, even with comments.
    #[error("line {line}, column {column}: {why}")]
    NotJson {
        /// The line, from 1.
        line: usize,
        /// The column in characters, from 1.
        column: usize,
        /// What is wrong.
        why: String,
    },
    /// The value that should contain the entry is not an object.
    #[error("{0} is no JSON object")]
    NotAnObject(String),
    /// A key on the path occurs more than once.
    #[error("\"{0}\" is there more than once")]
    DuplicateKey(String),
    /// The key exists with another value.
    #[error("\"{0}\" is there already, and says something else: remove it, or choose another --agent-name")]
    ExistingDiffers(String),
}

/// Adds `value` under `name` to the object under `group`, which is created if missing.
pub(super) fn add(text: &str, group: &str, name: &str, value: &Value) -> Result<JsoncEdit, JsoncError> {
    let root = parse(text)?;
    let object = match root.value() {
        Some(found) => found.as_object().ok_or_else(|| JsoncError::NotAnObject("it".to_owned()))?,
        None => root.object_value_or_set(),
    };
    let members = match find_member(&object, group)? {
        None => {
            let members = CstInputValue::Object(vec![(name.to_owned(), to_input_value(value))]);
            object.append(group, members);
            return Ok(JsoncEdit::Changed(render(text, &root)));
        }
        Some(found) => member_object(&found, group)?,
    };
    match find_member(&members, name)? {
        Some(found) if found.to_serde_value().as_ref() == Some(value) => Ok(JsoncEdit::Unchanged),
        Some(_) => Err(JsoncError::ExistingDiffers(name.to_owned())),
        None => {
            members.append(name, to_input_value(value));
            Ok(JsoncEdit::Changed(render(text, &root)))
        }
    }
}

/// Removes `name` from the object under `group`, and that object if it is then empty.
pub(super) fn remove(text: &str, group: &str, name: &str) -> Result<JsoncEdit, JsoncError> {
    let root = parse(text)?;
    let Some(found) = root.value() else { return Ok(JsoncEdit::Unchanged) };
    let object = found.as_object().ok_or_else(|| JsoncError::NotAnObject("it".to_owned()))?;
    let Some(holder) = find_member(&object, group)? else { return Ok(JsoncEdit::Unchanged) };
    let members = member_object(&holder, group)?;
    let Some(found) = find_member(&members, name)? else { return Ok(JsoncEdit::Unchanged) };
    found.remove();
    let is_empty = members
        .children()
        .iter()
        .all(|child| child.is_whitespace() || child.is_newline() || child.is_token());
    if is_empty {
        holder.remove();
    }
    Ok(JsoncEdit::Changed(render(text, &root)))
}

/// Parses a text, if it is valid.
pub(super) fn parse_value(text: &str) -> Option<Value> {
    parse(text).ok()?.to_serde_value()
}

/// Formats a value as people write it: members on their own lines, arrays on one.
pub(super) fn format_pretty(value: &Value) -> String {
    match CstRootNode::parse("", &OPTIONS) {
        Ok(root) => {
            root.set_value(to_input_value(value));
            root.to_string().trim_end().to_owned()
        }
        Err(_) => value.to_string(),
    }
}

/// The accepted syntax: the same as in editors.
const OPTIONS: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

fn parse(text: &str) -> Result<CstRootNode, JsoncError> {
    if text.len() > MAX_BYTES {
        return Err(JsoncError::TooLong);
    }
    CstRootNode::parse(text.strip_prefix(BOM).unwrap_or(text), &OPTIONS).map_err(|error| {
        JsoncError::NotJson {
            line: error.line_display(),
            column: error.column_display(),
            why: error.kind().to_string(),
        }
    })
}

fn render(text: &str, root: &CstRootNode) -> String {
    let bom = if text.starts_with(BOM) { BOM } else { "" };
    format!("{bom}{root}")
}

/// Returns the member of a name. Readers disagree on which of two members counts, so a duplicate is refused.
fn find_member(object: &CstObject, name: &str) -> Result<Option<CstObjectProp>, JsoncError> {
    let mut members =
        object.properties().into_iter().filter(|member| member.decoded_name().as_deref() == Some(name));
    match (members.next(), members.next()) {
        (member, None) => Ok(member),
        (_, Some(_)) => Err(JsoncError::DuplicateKey(name.to_owned())),
    }
}

fn member_object(member: &CstObjectProp, name: &str) -> Result<CstObject, JsoncError> {
    member.object_value().ok_or_else(|| JsoncError::NotAnObject(format!("\"{name}\"")))
}

fn to_input_value(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(*value),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(items) => CstInputValue::Array(items.iter().map(to_input_value).collect()),
        Value::Object(members) => CstInputValue::Object(
            members.iter().map(|(name, value)| (name.clone(), to_input_value(value))).collect(),
        ),
    }
}

#[cfg(test)]
mod tests;
