//! What an editor knows to be wrong in its files and shares: bounded, by file, marked old once the file is another one.

use agent_client_protocol_schema::v1::SessionId;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

mod waiting;

pub use waiting::Waiting;

/// The notification by which an editor shares diagnostics, from its side of the wire to the agent's:
///
/// ```json
/// {"jsonrpc":"2.0","method":"_bowline/diagnostics","params":{
///   "sessionId":"s","path":"/project/src/main.rs","diagnostics":[
///     {"range":{"start":{"line":3,"character":8},"end":{"line":3,"character":13}},
///      "severity":1,"message":"cannot find value `count`","source":"rustc","code":"E0425"}]}}
/// ```
///
/// Diagnostics have the form that language servers give them; [`Shared`] says what may be left out. Each message stands in
/// place of what was said of the file before, so one with none says that nothing is wrong any more.
pub const METHOD: &str = "_bowline/diagnostics";

/// Diagnostics are kept of at most so many files; the one that was told of longest ago makes room.
pub const MAX_FILES: usize = 512;
/// So many are kept of one file; more are counted.
pub const MAX_PER_FILE: usize = 200;
/// The longest message, in bytes; longer ones are cut and marked.
pub const MAX_MESSAGE_BYTES: usize = 2048;
/// The longest name of a source or code.
const MAX_NAME_BYTES: usize = 128;
/// So many bytes are kept of texts in all.
pub const MAX_BYTES: usize = 4 << 20;
/// The longest notification that is read.
pub const MAX_SHARED_BYTES: usize = 8 << 20;

const CUT: &str = "…";

/// A place in a text, counted from 0 as language servers do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The line.
    pub line: u32,
    /// The place in the line, in UTF-16 units.
    pub character: u32,
}

/// A part of a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// Where it begins.
    pub start: Position,
    /// Where it ends.
    pub end: Position,
}

/// How bad it is, by the numbers of the language server protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(from = "u8")]
pub enum Severity {
    /// An error.
    Error,
    /// A warning.
    Warning,
    /// Something to know.
    Information,
    /// A hint.
    Hint,
}

impl From<u8> for Severity {
    fn from(number: u8) -> Self {
        match number {
            // A protocol that knows worse will mean an error.
            0 | 1 => Self::Error,
            2 => Self::Warning,
            3 => Self::Information,
            _ => Self::Hint,
        }
    }
}

impl Severity {
    /// Returns the word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Information => "information",
            Self::Hint => "hint",
        }
    }
}

/// One thing that is wrong. One without a severity is an error.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Diagnostic {
    /// Where.
    #[serde(default)]
    pub range: Range,
    /// How bad.
    #[serde(default = "error")]
    pub severity: Severity,
    /// What.
    pub message: String,
    /// Who says so: a compiler or linter.
    #[serde(default)]
    pub source: Option<String>,
    /// Its own name for it.
    #[serde(default, deserialize_with = "code")]
    pub code: Option<String>,
}

fn error() -> Severity {
    Severity::Error
}

/// A code is a number or a text.
fn code<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(match Option::<serde_json::Value>::deserialize(from)? {
        Some(serde_json::Value::String(text)) => Some(text),
        Some(serde_json::Value::Number(number)) => Some(number.to_string()),
        _ => None,
    })
}

/// What a client says in the notification ([`METHOD`]): all that it has of one file, in place of what it had.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shared {
    /// The session it is for; none means all that are open.
    #[serde(default)]
    pub session_id: Option<SessionId>,
    /// The file, absolute.
    pub path: String,
    /// What is wrong in it; nothing if it is empty.
    pub diagnostics: Vec<Diagnostic>,
}

/// The notification cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// It is too long.
    #[error("diagnostics of {0} bytes are more than {MAX_SHARED_BYTES}, share fewer at once")]
    TooLong(usize),
    /// It has another form.
    #[error("diagnostics have path and diagnostics: {0}")]
    Form(String),
}

impl Shared {
    /// Reads the parameters of the notification.
    ///
    /// # Errors
    /// Returns why they cannot be used.
    pub fn read(params: &str) -> Result<Self, Unusable> {
        if params.len() > MAX_SHARED_BYTES {
            return Err(Unusable::TooLong(params.len()));
        }
        serde_json::from_str(params).map_err(|error| Unusable::Form(error.to_string()))
    }
}

/// What is known of one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OfFile {
    /// The worst first, and in the order of the text.
    pub diagnostics: Vec<Diagnostic>,
    /// How many more there were.
    pub left_out: usize,
    /// The file was changed since: they may not be true any more.
    pub is_old: bool,
}

impl OfFile {
    fn bytes(&self) -> usize {
        let name = |name: &Option<String>| name.as_ref().map_or(0, String::len);
        let texts =
            self.diagnostics.iter().map(|one| one.message.len() + name(&one.source) + name(&one.code));
        texts.sum()
    }
}

/// What is known of all files.
#[derive(Debug, Default)]
pub struct Diagnostics {
    // Invariant: at most `MAX_FILES` with `bytes` in all, at most `MAX_BYTES`; the one told of last at the end.
    files: IndexMap<String, OfFile>,
    bytes: usize,
}

impl Diagnostics {
    /// Takes what is wrong in a file, in place of what was. Returns the files of which something else is known now.
    pub fn share(&mut self, path: &str, diagnostics: Vec<Diagnostic>) -> Vec<String> {
        let known = self.remove(path);
        let new = bounded(diagnostics);
        if new.diagnostics.is_empty() {
            return known.map(|_| path.to_owned()).into_iter().collect();
        }
        let mut changed = Vec::new();
        if known.as_ref() != Some(&new) {
            changed.push(path.to_owned());
        }
        self.bytes += new.bytes();
        self.files.insert(path.to_owned(), new);
        // One file alone always fits.
        while self.files.len() > MAX_FILES || self.bytes > MAX_BYTES {
            let Some((dropped, of_file)) = self.files.shift_remove_index(0) else { break };
            self.bytes -= of_file.bytes();
            changed.push(dropped);
        }
        changed
    }

    /// Marks what is known of a file as old. Says whether something is known now that was not.
    pub fn is_changed(&mut self, path: &str) -> bool {
        self.files.get_mut(path).is_some_and(|of_file| !std::mem::replace(&mut of_file.is_old, true))
    }

    /// Returns what is known of a file.
    #[must_use]
    pub fn of(&self, path: &str) -> Option<&OfFile> {
        self.files.get(path)
    }

    /// Returns what is known, by file.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &OfFile)> {
        self.files.iter()
    }

    fn remove(&mut self, path: &str) -> Option<OfFile> {
        let known = self.files.shift_remove(path)?;
        self.bytes -= known.bytes();
        Some(known)
    }
}

fn bounded(mut diagnostics: Vec<Diagnostic>) -> OfFile {
    diagnostics.sort_by_key(|one| (one.severity, one.range.start.line, one.range.start.character));
    let left_out = diagnostics.len().saturating_sub(MAX_PER_FILE);
    diagnostics.truncate(MAX_PER_FILE);
    for one in &mut diagnostics {
        cut(&mut one.message, MAX_MESSAGE_BYTES);
        one.source.as_mut().into_iter().chain(one.code.as_mut()).for_each(|name| cut(name, MAX_NAME_BYTES));
    }
    OfFile { diagnostics, left_out, is_old: false }
}

fn cut(text: &mut String, limit: usize) {
    if text.len() > limit {
        text.truncate(text.floor_char_boundary(limit - CUT.len()));
        text.push_str(CUT);
    }
}

#[cfg(test)]
mod tests;
