//! The input of a tool call, parsed leniently, with clear errors.
//!
//! Fields unknown to the tool are ignored. Weak models write numbers and booleans as strings: these are accepted
//! where they are unambiguous.

use bowline_conversation::conversation::ToolUseInput;
use bowline_text::display;
use serde_json::{Map, Value};

/// The maximum length of invalid input shown to the model, in bytes.
const MAX_QUOTED_BYTES: usize = 300;

/// The fields of a call.
#[derive(Debug, Clone, Copy)]
pub struct ToolInputFields<'i>(&'i Map<String, Value>);

impl<'i> ToolInputFields<'i> {
    /// Returns the fields of an input.
    ///
    /// # Errors
    /// Returns what is wrong with it.
    pub fn from_input(input: &'i ToolUseInput) -> Result<Self, String> {
        match input {
            ToolUseInput::Value(Value::Object(fields)) => Ok(Self(fields)),
            ToolUseInput::Value(other) => Err(format!(
                "the input has to be a JSON object, and is {}: call the tool again",
                json_type_name(other)
            )),
            ToolUseInput::Broken { text, why } => Err(format!(
                "the input is not JSON ({why}): call the tool again with a JSON object; what came was {}",
                display::escape_line(text, MAX_QUOTED_BYTES)
            )),
        }
    }

    /// Returns the fields of an object.
    #[must_use]
    pub fn from_object(fields: &'i Map<String, Value>) -> Self {
        Self(fields)
    }

    fn get(self, key: &str) -> Option<&'i Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    /// Returns a required text.
    ///
    /// # Errors
    /// Returns what is wrong with it.
    pub fn required_text(self, key: &str) -> Result<&'i str, String> {
        self.optional_text(key)?.ok_or_else(|| missing_error(key, "a string"))
    }

    /// Returns an optional text.
    ///
    /// # Errors
    /// Returns what is wrong with it.
    pub fn optional_text(self, key: &str) -> Result<Option<&'i str>, String> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(type_error(key, "a string", other)),
        }
    }

    /// Returns a required text under any of its names; an error names the first.
    ///
    /// # Errors
    /// Returns what is wrong with it.
    pub fn required_text_of(self, keys: &[&str]) -> Result<&'i str, String> {
        let key = keys.iter().find(|key| self.get(key).is_some()).or(keys.first());
        self.required_text(key.copied().unwrap_or_default())
    }

    /// Returns whether any of these fields is present.
    #[must_use]
    pub fn has_any(self, keys: &[&str]) -> bool {
        keys.iter().any(|key| self.get(key).is_some())
    }

    /// Returns an optional whole number.
    ///
    /// # Errors
    /// Returns what is wrong with it.
    pub fn number(self, key: &str) -> Result<Option<u32>, String> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = match value {
            Value::Number(number) => number.as_u64().or_else(|| {
                // Some models write 10.0.
                number
                    .as_f64()
                    .filter(|number| number.fract() == 0.0 && (0.0..4e9).contains(number))
                    .map(|number| number as u64)
            }),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        let number = number.and_then(|number| u32::try_from(number).ok());
        number.map(Some).ok_or_else(|| match value {
            Value::Number(number) => {
                format!("`{key}` has to be a whole number from 0 to {}, and is {number}", u32::MAX)
            }
            other => type_error(key, "a whole number from 0 on", other),
        })
    }

    /// Returns a boolean; false if it is absent.
    ///
    /// # Errors
    /// Returns what is wrong with it.
    pub fn flag(self, key: &str) -> Result<bool, String> {
        match self.get(key) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(Value::String(text)) if text.eq_ignore_ascii_case("true") => Ok(true),
            Some(Value::String(text)) if text.eq_ignore_ascii_case("false") => Ok(false),
            Some(other) => Err(type_error(key, "true or false", other)),
        }
    }

    /// Returns a list of texts; empty if it is absent.
    ///
    /// # Errors
    /// Returns what is wrong with it.
    pub fn texts(self, key: &str) -> Result<Vec<String>, String> {
        let Some(value) = self.get(key) else { return Ok(Vec::new()) };
        let text = |item: &Value| match item {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let list = value.as_array().and_then(|items| items.iter().map(text).collect());
        list.ok_or_else(|| type_error(key, "a list of strings", value))
    }

    /// Returns the objects of a required list; a single object counts as a list of one.
    ///
    /// # Errors
    /// Returns what is wrong with it.
    pub fn objects(self, key: &str) -> Result<Vec<ToolInputFields<'i>>, String> {
        let value = self.get(key).ok_or_else(|| missing_error(key, "a list of objects"))?;
        let list: Option<Vec<ToolInputFields<'i>>> = match value {
            Value::Array(items) => items.iter().map(|item| item.as_object().map(ToolInputFields)).collect(),
            Value::Object(object) => Some(vec![ToolInputFields(object)]),
            _ => None,
        };
        list.ok_or_else(|| type_error(key, "a list of objects", value))
    }

    /// Returns names with values: an object of texts, or a list of objects with `name` and `value`.
    ///
    /// # Errors
    /// Returns what is wrong with it.
    pub fn pairs(self, key: &str) -> Result<Vec<(String, String)>, String> {
        let Some(value) = self.get(key) else { return Ok(Vec::new()) };
        let text = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(flag) => Some(flag.to_string()),
            _ => None,
        };
        let pairs: Option<Vec<(String, String)>> = match value {
            Value::Object(pairs) => {
                pairs.iter().map(|(name, value)| Some((name.clone(), text(value)?))).collect()
            }
            Value::Array(items) => items
                .iter()
                .map(|item| Some((item.get("name").and_then(text)?, item.get("value").and_then(text)?)))
                .collect(),
            _ => None,
        };
        pairs.ok_or_else(|| type_error(key, "an object of strings", value))
    }
}

fn missing_error(key: &str, expected: &str) -> String {
    format!("`{key}` is missing: give {expected}")
}

fn type_error(key: &str, expected: &str, found: &Value) -> String {
    format!("`{key}` has to be {expected}, and is {}", json_type_name(found))
}

fn json_type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
