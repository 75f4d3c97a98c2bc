//! Tool schemas of MCP servers, reduced to what model providers accept.
//!
//! A single schema that a provider rejects makes it refuse the whole request, with all tools. So keywords without
//! universal support are dropped: the tool then accepts more than its server does, and the server reports an error when
//! it is called.

use serde_json::{Map, Value, json};

use super::clean_text;

/// The maximum size of a schema, in bytes of JSON. A larger one first loses its texts, then everything.
pub const MAX_SCHEMA_BYTES: usize = 32 * 1024;
/// The maximum nesting depth of a schema.
pub const MAX_SCHEMA_DEPTH: usize = 24;

/// The maximum length of a text in a schema, in bytes.
const MAX_TEXT_BYTES: usize = 1024;
/// The maximum length of a property name that every provider accepts, in bytes.
const MAX_PROPERTY_NAME_BYTES: usize = 64;
/// The maximum number of values examined per schema.
const MAX_NODES: usize = 10_000;

/// Keywords that are dropped everywhere: they describe the schema itself, not the values it accepts.
const DROPPED_KEYWORDS: [&str; 5] = ["$schema", "$id", "$anchor", "$comment", "$vocabulary"];
/// Keywords that providers reject at the top level.
const FORBIDDEN_TOP_KEYWORDS: [&str; 7] = ["anyOf", "oneOf", "allOf", "not", "if", "then", "else"];
/// Keywords with a text for the reader of the schema.
const TEXT_KEYWORDS: [&str; 2] = ["description", "title"];
/// Keywords whose members have names chosen by the schema's author.
const MAP_KEYWORDS: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];
/// Keywords whose values are data, not schemas.
const DATA_KEYWORDS: [&str; 4] = ["enum", "const", "default", "examples"];

/// Returns a valid object schema for a provider. A schema that cannot be converted becomes an object with any members.
#[must_use]
pub fn clean_schema(schema: &Value) -> Value {
    let fallback = || json!({ "type": "object", "properties": {} });
    let Value::Object(schema) = schema else { return fallback() };
    let is_object = match schema.get("type") {
        None => true,
        Some(Value::String(name)) => name == "object",
        Some(Value::Array(several)) => several.iter().any(|name| name == "object"),
        Some(_) => false,
    };
    let fits = |schema: &Value| serde_json::to_vec(schema).is_ok_and(|bytes| bytes.len() <= MAX_SCHEMA_BYTES);
    for texts in [SchemaTexts::Kept, SchemaTexts::Dropped] {
        let mut cleaner = SchemaCleaner { texts, nodes: 0 };
        let Some(mut clean) = cleaner.clean_object(schema, 1).filter(|_| is_object) else {
            return fallback();
        };
        clean.retain(|key, _| !FORBIDDEN_TOP_KEYWORDS.contains(&key.as_str()));
        clean.insert("type".to_owned(), "object".into());
        if !clean.get("properties").is_some_and(Value::is_object) {
            clean.insert("properties".to_owned(), json!({}));
        }
        let clean = Value::Object(clean);
        if fits(&clean) {
            return clean;
        }
    }
    fallback()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SchemaTexts {
    Kept,
    Dropped,
}

struct SchemaCleaner {
    texts: SchemaTexts,
    nodes: usize,
}

impl SchemaCleaner {
    /// Returns a schema without superfluous keywords; `None` if it is too deep or too large.
    fn clean_object(&mut self, schema: &Map<String, Value>, depth: usize) -> Option<Map<String, Value>> {
        self.count_node(depth)?;
        let mut clean = Map::new();
        for (key, value) in schema {
            let word = key.as_str();
            let cleaned = if DROPPED_KEYWORDS.contains(&word) {
                continue;
            } else if TEXT_KEYWORDS.contains(&word) {
                match value {
                    Value::String(text) if self.texts == SchemaTexts::Kept => {
                        clean_text(text, MAX_TEXT_BYTES).into()
                    }
                    _ => continue,
                }
            } else if MAP_KEYWORDS.contains(&word) {
                let Value::Object(members) = value else { continue };
                Value::Object(self.clean_members(members, depth + 1)?)
            } else if word == "$ref" {
                // Remote references are never fetched.
                if !value.as_str().is_some_and(|reference| reference.starts_with('#')) {
                    continue;
                }
                value.clone()
            } else if DATA_KEYWORDS.contains(&word) {
                if self.texts == SchemaTexts::Dropped && matches!(word, "default" | "examples") {
                    continue;
                }
                self.copy_data(value, depth + 1)?
            } else {
                self.clean_value(value, depth + 1)?
            };
            clean.insert(key.clone(), cleaned);
        }
        if let (Some(Value::Array(required)), Some(Value::Object(properties))) =
            (schema.get("required"), clean.get("properties"))
        {
            let known = |name: &&Value| name.as_str().is_some_and(|name| properties.contains_key(name));
            let required: Vec<Value> = required.iter().filter(known).cloned().collect();
            clean.insert("required".to_owned(), required.into());
        } else {
            clean.remove("required");
        }
        Some(clean)
    }

    /// Returns schemas by name, without those whose names providers reject.
    fn clean_members(&mut self, members: &Map<String, Value>, depth: usize) -> Option<Map<String, Value>> {
        self.count_node(depth)?;
        let mut clean = Map::new();
        for (name, schema) in members.iter().filter(|(name, _)| is_property_name(name)) {
            clean.insert(name.clone(), self.clean_value(schema, depth + 1)?);
        }
        Some(clean)
    }

    fn clean_value(&mut self, value: &Value, depth: usize) -> Option<Value> {
        Some(match value {
            Value::Object(schema) => Value::Object(self.clean_object(schema, depth)?),
            Value::Array(several) => {
                self.count_node(depth)?;
                let clean: Option<Vec<Value>> =
                    several.iter().map(|value| self.clean_value(value, depth + 1)).collect();
                Value::Array(clean?)
            }
            scalar => self.copy_data(scalar, depth)?,
        })
    }

    /// Returns data unchanged: any change would alter its meaning.
    fn copy_data(&mut self, value: &Value, depth: usize) -> Option<Value> {
        self.count_node(depth)?;
        match value {
            Value::Object(members) => {
                members.values().try_for_each(|value| self.copy_data(value, depth + 1).map(drop))?
            }
            Value::Array(several) => {
                several.iter().try_for_each(|value| self.copy_data(value, depth + 1).map(drop))?
            }
            _ => {}
        }
        Some(value.clone())
    }

    fn count_node(&mut self, depth: usize) -> Option<()> {
        self.nodes += 1;
        (depth <= MAX_SCHEMA_DEPTH && self.nodes <= MAX_NODES).then_some(())
    }
}

fn is_property_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    (1..=MAX_PROPERTY_NAME_BYTES).contains(&name.len()) && name.bytes().all(fits)
}
