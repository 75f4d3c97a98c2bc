//! Adding to and removing from JSON with comments, as people write it by hand: the rest stays as it is, to the byte.
//!
//! Comments, trailing commas, odd spacing and a byte order mark are understood. What cannot be understood is refused.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstObject, CstObjectProp, CstRootNode};
use serde_json::Value;

/// A longer text is no configuration that a person wrote, in bytes.
pub(super) const MAX_BYTES: usize = 4 << 20;

const BOM: &str = "\u{feff}";

/// What adding or removing a value came to.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Edited {
    /// The text is as it should be already.
    Same,
    /// The new text.
    Text(String),
}

/// Why the text cannot be edited.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
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
    /// What should hold the value is something else than an object.
    #[error("{0} is no JSON object")]
    NoObject(String),
    /// A name on the way is there more than once.
    #[error("\"{0}\" is there more than once")]
    Twice(String),
    /// Something else is there under that name.
    #[error("\"{0}\" is there already, and says something else: remove it, or choose another --agent-name")]
    Differs(String),
}

/// Adds `value` under `name` to the object that the text has under `group`, making that too if there is none.
pub(super) fn add(text: &str, group: &str, name: &str, value: &Value) -> Result<Edited, Refused> {
    let root = parse(text)?;
    let object = match root.value() {
        Some(found) => found.as_object().ok_or_else(|| Refused::NoObject("it".to_owned()))?,
        None => root.object_value_or_set(),
    };
    let members = match member(&object, group)? {
        None => {
            let members = CstInputValue::Object(vec![(name.to_owned(), input(value))]);
            object.append(group, members);
            return Ok(Edited::Text(written(text, &root)));
        }
        Some(found) => object_of(&found, group)?,
    };
    match member(&members, name)? {
        Some(found) if found.to_serde_value().as_ref() == Some(value) => Ok(Edited::Same),
        Some(_) => Err(Refused::Differs(name.to_owned())),
        None => {
            members.append(name, input(value));
            Ok(Edited::Text(written(text, &root)))
        }
    }
}

/// Removes what is under `name` in the object that the text has under `group`, and that object if nothing else is in it.
pub(super) fn remove(text: &str, group: &str, name: &str) -> Result<Edited, Refused> {
    let root = parse(text)?;
    let Some(found) = root.value() else { return Ok(Edited::Same) };
    let object = found.as_object().ok_or_else(|| Refused::NoObject("it".to_owned()))?;
    let Some(holder) = member(&object, group)? else { return Ok(Edited::Same) };
    let members = object_of(&holder, group)?;
    let Some(found) = member(&members, name)? else { return Ok(Edited::Same) };
    found.remove();
    let is_empty = members
        .children()
        .iter()
        .all(|child| child.is_whitespace() || child.is_newline() || child.is_token());
    if is_empty {
        holder.remove();
    }
    Ok(Edited::Text(written(text, &root)))
}

/// Returns what a text says, if it can be understood.
pub(super) fn read(text: &str) -> Option<Value> {
    parse(text).ok()?.to_serde_value()
}

/// Returns a value as people write it: members on lines of their own, lists on one.
pub(super) fn pretty(value: &Value) -> String {
    match CstRootNode::parse("", &OPTIONS) {
        Ok(root) => {
            root.set_value(input(value));
            root.to_string().trim_end().to_owned()
        }
        Err(_) => value.to_string(),
    }
}

/// What is understood: what editors understand.
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

fn parse(text: &str) -> Result<CstRootNode, Refused> {
    if text.len() > MAX_BYTES {
        return Err(Refused::TooLong);
    }
    CstRootNode::parse(text.strip_prefix(BOM).unwrap_or(text), &OPTIONS).map_err(|error| Refused::NotJson {
        line: error.line_display(),
        column: error.column_display(),
        why: error.kind().to_string(),
    })
}

fn written(text: &str, root: &CstRootNode) -> String {
    let bom = if text.starts_with(BOM) { BOM } else { "" };
    format!("{bom}{root}")
}

/// Returns the member of a name. Which one counts if there are two is for every reader to say, so none is taken.
fn member(object: &CstObject, name: &str) -> Result<Option<CstObjectProp>, Refused> {
    let mut found =
        object.properties().into_iter().filter(|member| member.decoded_name().as_deref() == Some(name));
    match (found.next(), found.next()) {
        (one, None) => Ok(one),
        (_, Some(_)) => Err(Refused::Twice(name.to_owned())),
    }
}

fn object_of(member: &CstObjectProp, name: &str) -> Result<CstObject, Refused> {
    member.object_value().ok_or_else(|| Refused::NoObject(format!("\"{name}\"")))
}

fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(*value),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(items) => CstInputValue::Array(items.iter().map(input).collect()),
        Value::Object(members) => {
            CstInputValue::Object(members.iter().map(|(name, value)| (name.clone(), input(value))).collect())
        }
    }
}

#[cfg(test)]
mod tests;
