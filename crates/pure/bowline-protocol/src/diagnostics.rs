//! Diagnostics that an editor shares: bounded, grouped by file, and marked stale once the file changes.

use agent_client_protocol_schema::v1::SessionId;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

mod pending;

pub use pending::PendingDiagnostics;

/// The notification with which an editor shares diagnostics with the agent:
///
/// ```json
/// {"jsonrpc":"2.0","method":"_bowline/diagnostics","params":{
///   "sessionId":"s","path":"/project/src/main.rs","diagnostics":[
///     {"range":{"start":{"line":3,"character":8},"end":{"line":3,"character":13}},
///      "severity":1,"message":"cannot find value `count`","source":"rustc","code":"E0425"}]}}
/// ```
///
/// Diagnostics use the format of the language server protocol; [`DiagnosticsNotification`] lists the optional fields.
/// Each message replaces the file's previous diagnostics, so an empty list clears them.
pub const DIAGNOSTICS_METHOD: &str = "_bowline/diagnostics";

/// The maximum number of files with diagnostics; the least recently updated file is evicted.
pub const MAX_FILES: usize = 512;
/// The maximum number of diagnostics kept per file; the rest are only counted.
pub const MAX_PER_FILE: usize = 200;
/// The maximum length of a message in bytes; longer ones are truncated and marked.
pub const MAX_MESSAGE_BYTES: usize = 2048;
/// The maximum length of the name of a source or code.
const MAX_NAME_BYTES: usize = 128;
/// The maximum total size of the kept texts in bytes.
pub const MAX_TOTAL_BYTES: usize = 4 << 20;
/// The maximum size of a notification.
pub const MAX_NOTIFICATION_BYTES: usize = 8 << 20;

const ELLIPSIS: &str = "…";

/// A position in a text, counted from 0 as in the language server protocol.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextPosition {
    /// The line.
    pub line: u32,
    /// The offset in the line, in UTF-16 code units.
    pub character: u32,
}

/// A range of a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextRange {
    /// Its start.
    pub start: TextPosition,
    /// Its end.
    pub end: TextPosition,
}

/// The severity, numbered as in the language server protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(from = "u8")]
pub enum DiagnosticSeverity {
    /// An error.
    Error,
    /// A warning.
    Warning,
    /// Information.
    Information,
    /// A hint.
    Hint,
}

impl From<u8> for DiagnosticSeverity {
    fn from(number: u8) -> Self {
        match number {
            // A number below the protocol's most severe one counts as an error.
            0 | 1 => Self::Error,
            2 => Self::Warning,
            3 => Self::Information,
            _ => Self::Hint,
        }
    }
}

impl DiagnosticSeverity {
    /// Returns its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Information => "information",
            Self::Hint => "hint",
        }
    }
}

/// One diagnostic. Without a severity it is an error.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Diagnostic {
    /// Its range.
    #[serde(default)]
    pub range: TextRange,
    /// Its severity.
    #[serde(default = "default_severity")]
    pub severity: DiagnosticSeverity,
    /// Its text.
    pub message: String,
    /// Its source: a compiler or linter.
    #[serde(default)]
    pub source: Option<String>,
    /// The source's code for it.
    #[serde(default, deserialize_with = "deserialize_code")]
    pub code: Option<String>,
}

fn default_severity() -> DiagnosticSeverity {
    DiagnosticSeverity::Error
}

/// Reads a code, which may be a number or a text.
fn deserialize_code<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(match Option::<serde_json::Value>::deserialize(from)? {
        Some(serde_json::Value::String(text)) => Some(text),
        Some(serde_json::Value::Number(number)) => Some(number.to_string()),
        _ => None,
    })
}

/// The parameters of the notification ([`DIAGNOSTICS_METHOD`]): all diagnostics of one file, which replace the previous
/// ones.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiagnosticsNotification {
    /// The session; `None` means all open ones.
    #[serde(default)]
    pub session_id: Option<SessionId>,
    /// The absolute path of the file.
    pub path: String,
    /// Its diagnostics; an empty list clears them.
    pub diagnostics: Vec<Diagnostic>,
}

/// The notification is invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseDiagnosticsError {
    /// It is too large.
    #[error("diagnostics of {0} bytes are more than {MAX_NOTIFICATION_BYTES}, share fewer at once")]
    TooLong(usize),
    /// It is malformed.
    #[error("diagnostics have path and diagnostics: {0}")]
    Malformed(String),
}

impl DiagnosticsNotification {
    /// Parses the parameters of the notification.
    ///
    /// # Errors
    /// Returns why they are invalid.
    pub fn parse(params: &str) -> Result<Self, ParseDiagnosticsError> {
        if params.len() > MAX_NOTIFICATION_BYTES {
            return Err(ParseDiagnosticsError::TooLong(params.len()));
        }
        serde_json::from_str(params).map_err(|error| ParseDiagnosticsError::Malformed(error.to_string()))
    }
}

/// The diagnostics of one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileDiagnostics {
    /// Sorted by severity, then by position.
    pub diagnostics: Vec<Diagnostic>,
    /// The number of diagnostics left out.
    pub omitted: usize,
    /// Whether the file has changed since, so that the diagnostics may be outdated.
    pub is_stale: bool,
}

impl FileDiagnostics {
    fn text_bytes(&self) -> usize {
        let name = |name: &Option<String>| name.as_ref().map_or(0, String::len);
        let texts = self
            .diagnostics
            .iter()
            .map(|diagnostic| diagnostic.message.len() + name(&diagnostic.source) + name(&diagnostic.code));
        texts.sum()
    }
}

/// The diagnostics of all files.
#[derive(Debug, Default)]
pub struct Diagnostics {
    // Invariant: at most `MAX_FILES` with `bytes` in all, at most `MAX_TOTAL_BYTES`; the most recently updated file
    // last.
    files: IndexMap<String, FileDiagnostics>,
    bytes: usize,
}

impl Diagnostics {
    /// Replaces the diagnostics of a file. Returns the files whose diagnostics changed.
    pub fn replace_file(&mut self, path: &str, diagnostics: Vec<Diagnostic>) -> Vec<String> {
        let known = self.remove(path);
        let new = limit_diagnostics(diagnostics);
        if new.diagnostics.is_empty() {
            return known.map(|_| path.to_owned()).into_iter().collect();
        }
        let mut changed = Vec::new();
        if known.as_ref() != Some(&new) {
            changed.push(path.to_owned());
        }
        self.bytes += new.text_bytes();
        self.files.insert(path.to_owned(), new);
        // A single file always fits.
        while self.files.len() > MAX_FILES || self.bytes > MAX_TOTAL_BYTES {
            let Some((dropped, file)) = self.files.shift_remove_index(0) else { break };
            self.bytes -= file.text_bytes();
            changed.push(dropped);
        }
        changed
    }

    /// Marks the diagnostics of a file as stale. Returns whether this changed anything.
    pub fn mark_stale(&mut self, path: &str) -> bool {
        self.files.get_mut(path).is_some_and(|file| !std::mem::replace(&mut file.is_stale, true))
    }

    /// Returns the diagnostics of a file.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&FileDiagnostics> {
        self.files.get(path)
    }

    /// Returns all diagnostics, by file.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &FileDiagnostics)> {
        self.files.iter()
    }

    fn remove(&mut self, path: &str) -> Option<FileDiagnostics> {
        let known = self.files.shift_remove(path)?;
        self.bytes -= known.text_bytes();
        Some(known)
    }
}

fn limit_diagnostics(mut diagnostics: Vec<Diagnostic>) -> FileDiagnostics {
    diagnostics.sort_by_key(|diagnostic| {
        (diagnostic.severity, diagnostic.range.start.line, diagnostic.range.start.character)
    });
    let omitted = diagnostics.len().saturating_sub(MAX_PER_FILE);
    diagnostics.truncate(MAX_PER_FILE);
    for diagnostic in &mut diagnostics {
        truncate(&mut diagnostic.message, MAX_MESSAGE_BYTES);
        diagnostic
            .source
            .as_mut()
            .into_iter()
            .chain(diagnostic.code.as_mut())
            .for_each(|name| truncate(name, MAX_NAME_BYTES));
    }
    FileDiagnostics { diagnostics, omitted, is_stale: false }
}

fn truncate(text: &mut String, limit: usize) {
    if text.len() > limit {
        text.truncate(text.floor_char_boundary(limit - ELLIPSIS.len()));
        text.push_str(ELLIPSIS);
    }
}

#[cfg(test)]
mod tests;
