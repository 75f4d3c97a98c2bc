//! The mapping from recorded names to those of a real peer.

use std::collections::HashMap;

use serde_json::Value;

/// Fields with names that one side assigns and the other repeats.
const MAPPED_FIELDS: [&str; 2] = ["sessionId", "terminalId"];

/// Recorded names, and the peer's names for the same things.
#[derive(Debug, Default)]
pub(super) struct NameMapping {
    names: HashMap<String, String>,
    directories: Vec<(String, String)>,
}

impl NameMapping {
    /// Learns the names from a recorded message and its real counterpart.
    pub(super) fn learn_pair(&mut self, recorded: &Value, real: &Value) {
        for name in MAPPED_FIELDS {
            if let (Some(old), Some(new)) = (recorded[name].as_str(), real[name].as_str()) {
                self.names.insert(old.to_owned(), new.to_owned());
            }
        }
        if let (Some(old), Some(new)) = (recorded["cwd"].as_str(), real["cwd"].as_str()) {
            self.map_directory(old, new);
        }
    }

    /// Learns the replacement for a recorded directory.
    pub(super) fn map_directory(&mut self, recorded: &str, real: &str) {
        self.directories.retain(|(known, _)| known != recorded);
        if recorded != real && recorded.len() > 1 {
            self.directories.push((recorded.to_owned(), real.to_owned()));
            // Of nested directories the inner one takes precedence.
            self.directories.sort_by_key(|(known, _)| std::cmp::Reverse(known.len()));
        }
    }

    /// Returns the peer's name for a recorded one.
    pub(super) fn mapped_name(&self, recorded: &str) -> Option<&str> {
        self.names.get(recorded).map(String::as_str)
    }

    /// Replaces recorded names and directories with the peer's. Returns whether there were any.
    pub(super) fn apply(&self, value: &mut Value) -> bool {
        match value {
            Value::String(text) => self.apply_to_path(text),
            Value::Array(values) => {
                values.iter_mut().fold(false, |changed, value| self.apply(value) | changed)
            }
            Value::Object(map) => map.iter_mut().fold(false, |changed, (key, value)| {
                let known = value
                    .as_str()
                    .filter(|_| MAPPED_FIELDS.contains(&key.as_str()))
                    .and_then(|name| self.mapped_name(name));
                match known.filter(|known| value != known).map(str::to_owned) {
                    Some(known) => {
                        *value = Value::String(known);
                        true
                    }
                    None => self.apply(value) | changed,
                }
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }

    /// Replaces the directory at the start of a path or a URL with the peer's.
    fn apply_to_path(&self, text: &mut String) -> bool {
        let (scheme, path) = match text.strip_prefix("file://") {
            Some(path) => ("file://", path),
            None => ("", text.as_str()),
        };
        let strip_directory = |recorded: &str| {
            path.strip_prefix(recorded).filter(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let found = self
            .directories
            .iter()
            .find_map(|(recorded, real)| strip_directory(recorded).map(|rest| (real, rest)));
        let Some(mapped) = found.map(|(real, rest)| format!("{scheme}{real}{rest}")) else { return false };
        *text = mapped;
        true
    }
}

/// Replaces a recorded option that the peer does not offer with the peer's option of the same kind. Returns whether
/// it did.
pub(super) fn map_option(outcome: &mut Value, recorded: &Value, real: &Value) -> bool {
    let offered = |request: &Value, key: &str, value: &Value| {
        let options = request["options"].as_array().map_or(&[][..], Vec::as_slice);
        options.iter().find(|option| option[key] == *value).cloned()
    };
    let chosen = outcome["optionId"].clone();
    if !chosen.is_string() || offered(real, "optionId", &chosen).is_some() {
        return false;
    }
    let kind = offered(recorded, "optionId", &chosen).map(|option| option["kind"].clone());
    match kind.and_then(|kind| offered(real, "kind", &kind)) {
        Some(option) => {
            outcome["optionId"] = option["optionId"].clone();
            true
        }
        None => false,
    }
}
