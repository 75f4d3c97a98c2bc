//! Making what was recorded fit a peer that gave other names to the same things.

use std::collections::HashMap;

use serde_json::Value;

/// Names that one side gives and the other repeats.
const NAMES: [&str; 2] = ["sessionId", "terminalId"];

/// What the recording calls something, and what the peer calls it.
#[derive(Debug, Default)]
pub(super) struct Fitting {
    names: HashMap<String, String>,
    directories: Vec<(String, String)>,
}

impl Fitting {
    /// Learns the names of two messages that are the same one, then and now.
    pub(super) fn pair(&mut self, recorded: &Value, real: &Value) {
        for name in NAMES {
            if let (Some(then), Some(now)) = (recorded[name].as_str(), real[name].as_str()) {
                self.names.insert(then.to_owned(), now.to_owned());
            }
        }
        if let (Some(then), Some(now)) = (recorded["cwd"].as_str(), real["cwd"].as_str()) {
            self.directory(then, now);
        }
    }

    /// Learns what stands in place of a recorded directory.
    pub(super) fn directory(&mut self, then: &str, now: &str) {
        self.directories.retain(|(known, _)| known != then);
        if then != now && then.len() > 1 {
            self.directories.push((then.to_owned(), now.to_owned()));
            // Of one directory in another the inner is meant.
            self.directories.sort_by_key(|(known, _)| std::cmp::Reverse(known.len()));
        }
    }

    /// Returns what the peer calls something.
    pub(super) fn known(&self, recorded: &str) -> Option<&str> {
        self.names.get(recorded).map(String::as_str)
    }

    /// Puts the peer's names and directories in place of the recorded ones. Says whether there were any.
    pub(super) fn fit(&self, value: &mut Value) -> bool {
        match value {
            Value::String(text) => self.fit_path(text),
            Value::Array(values) => values.iter_mut().fold(false, |changed, value| self.fit(value) | changed),
            Value::Object(map) => map.iter_mut().fold(false, |changed, (key, value)| {
                let known = value
                    .as_str()
                    .filter(|_| NAMES.contains(&key.as_str()))
                    .and_then(|name| self.known(name));
                match known.filter(|known| value != known).map(str::to_owned) {
                    Some(known) => {
                        *value = Value::String(known);
                        true
                    }
                    None => self.fit(value) | changed,
                }
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }

    /// Puts the peer's directory in place of the one that a path or an address begins with.
    fn fit_path(&self, text: &mut String) -> bool {
        let (scheme, path) = match text.strip_prefix("file://") {
            Some(path) => ("file://", path),
            None => ("", text.as_str()),
        };
        let begins =
            |then: &str| path.strip_prefix(then).filter(|rest| rest.is_empty() || rest.starts_with('/'));
        let found = self.directories.iter().find_map(|(then, now)| begins(then).map(|rest| (now, rest)));
        let Some(fitted) = found.map(|(now, rest)| format!("{scheme}{now}{rest}")) else { return false };
        *text = fitted;
        true
    }
}

/// Puts the peer's option of the same kind in place of a recorded one that the peer does not offer. Says whether it did.
pub(super) fn choice(outcome: &mut Value, recorded: &Value, real: &Value) -> bool {
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
