//! Schemas of servers' tools, brought to what providers of models accept.
//!
//! One schema that a provider does not like makes it refuse the whole request, with all tools. So what is not understood
//! everywhere is left out: a tool then takes more than its server does, and the server says so when it is called.

use serde_json::{Map, Value, json};

use super::clean_text;

/// The largest schema of a tool, in bytes of JSON. A larger one first loses its texts, and then everything.
pub const MAX_SCHEMA_BYTES: usize = 32 * 1024;
/// How deep a schema may be.
pub const MAX_SCHEMA_DEPTH: usize = 24;

/// The longest text within a schema, in bytes.
const MAX_TEXT: usize = 1024;
/// The longest name of a property that every provider takes, in bytes.
const MAX_PROPERTY: usize = 64;
/// So many values are looked at in one schema.
const MAX_NODES: usize = 10_000;

/// Words that are dropped wherever they stand: they say who made the schema, not what fits it.
const DROPPED: [&str; 5] = ["$schema", "$id", "$anchor", "$comment", "$vocabulary"];
/// Words that providers do not take at the top.
const NOT_AT_TOP: [&str; 7] = ["anyOf", "oneOf", "allOf", "not", "if", "then", "else"];
/// Words with a text for whoever reads the schema.
const TEXTS: [&str; 2] = ["description", "title"];
/// Words whose names are the schema maker's own.
const MAPS: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];
/// Words whose values are data, not schemas.
const DATA: [&str; 4] = ["enum", "const", "default", "examples"];

/// Returns a schema of an object that a provider takes. What cannot be made one becomes an object with any members.
#[must_use]
pub fn clean_schema(schema: &Value) -> Value {
    let fallback = || json!({ "type": "object", "properties": {} });
    let Value::Object(schema) = schema else { return fallback() };
    let is_object = match schema.get("type") {
        None => true,
        Some(Value::String(one)) => one == "object",
        Some(Value::Array(several)) => several.iter().any(|one| one == "object"),
        Some(_) => false,
    };
    let fits = |schema: &Value| serde_json::to_vec(schema).is_ok_and(|bytes| bytes.len() <= MAX_SCHEMA_BYTES);
    for texts in [Texts::Kept, Texts::Dropped] {
        let mut cleaner = Cleaner { texts, nodes: 0 };
        let Some(mut clean) = cleaner.schema(schema, 1).filter(|_| is_object) else { return fallback() };
        clean.retain(|key, _| !NOT_AT_TOP.contains(&key.as_str()));
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
enum Texts {
    Kept,
    Dropped,
}

struct Cleaner {
    texts: Texts,
    nodes: usize,
}

impl Cleaner {
    /// Returns a schema without what nobody needs, or nothing if it is too deep or too large.
    fn schema(&mut self, schema: &Map<String, Value>, depth: usize) -> Option<Map<String, Value>> {
        self.count(depth)?;
        let mut clean = Map::new();
        for (key, value) in schema {
            let word = key.as_str();
            let cleaned = if DROPPED.contains(&word) {
                continue;
            } else if TEXTS.contains(&word) {
                match value {
                    Value::String(text) if self.texts == Texts::Kept => clean_text(text, MAX_TEXT).into(),
                    _ => continue,
                }
            } else if MAPS.contains(&word) {
                let Value::Object(members) = value else { continue };
                Value::Object(self.members(members, depth + 1)?)
            } else if word == "$ref" {
                // What lies elsewhere is not fetched, by nobody.
                if !value.as_str().is_some_and(|to| to.starts_with('#')) {
                    continue;
                }
                value.clone()
            } else if DATA.contains(&word) {
                if self.texts == Texts::Dropped && matches!(word, "default" | "examples") {
                    continue;
                }
                self.data(value, depth + 1)?
            } else {
                self.value(value, depth + 1)?
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

    /// Returns schemas by name. Those with names that providers refuse are left out.
    fn members(&mut self, members: &Map<String, Value>, depth: usize) -> Option<Map<String, Value>> {
        self.count(depth)?;
        let mut clean = Map::new();
        for (name, schema) in members.iter().filter(|(name, _)| is_property(name)) {
            clean.insert(name.clone(), self.value(schema, depth + 1)?);
        }
        Some(clean)
    }

    fn value(&mut self, value: &Value, depth: usize) -> Option<Value> {
        Some(match value {
            Value::Object(schema) => Value::Object(self.schema(schema, depth)?),
            Value::Array(several) => {
                self.count(depth)?;
                let clean: Option<Vec<Value>> =
                    several.iter().map(|value| self.value(value, depth + 1)).collect();
                Value::Array(clean?)
            }
            scalar => self.data(scalar, depth)?,
        })
    }

    /// Returns data as it is: changed, it would mean something else.
    fn data(&mut self, value: &Value, depth: usize) -> Option<Value> {
        self.count(depth)?;
        match value {
            Value::Object(members) => {
                members.values().try_for_each(|value| self.data(value, depth + 1).map(drop))?
            }
            Value::Array(several) => {
                several.iter().try_for_each(|value| self.data(value, depth + 1).map(drop))?
            }
            _ => {}
        }
        Some(value.clone())
    }

    fn count(&mut self, depth: usize) -> Option<()> {
        self.nodes += 1;
        (depth <= MAX_SCHEMA_DEPTH && self.nodes <= MAX_NODES).then_some(())
    }
}

fn is_property(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    (1..=MAX_PROPERTY).contains(&name.len()) && name.bytes().all(fits)
}
