//! Claims: the actions that a tool call announces, extracted from the agent's messages.
//!
//! The protocol has no field for them. A call has diffs, a kind, locations and the tool's raw input, whose keys differ
//! between agents. A [`ToolCallClaim`] that names files and texts is precise enough to match rules and to bind an
//! approval; any other is only a description for a person.

use agent_client_protocol_schema::v1::{ToolCallContent, ToolKind};
use memchr::memmem;
use serde_json::Value;

use crate::operation::OperationKind;
use bowline_protocol::accumulator::{SessionSnapshot, ToolCallView};
use bowline_protocol::terminal::Invocation;

/// The maximum number of claims per tool call; the excess becomes one [`ToolCallClaim::Described`], and a person is
/// asked.
pub const MAX_CLAIMS: usize = 256;

/// The number of recent calls searched for the one to which an operation belongs.
const MAX_SEARCHED_CALLS: usize = 64;

/// An action that a tool call announces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolCallClaim {
    /// To read a file.
    Read {
        /// The path in the agent's words.
        path: String,
    },
    /// To write a file.
    Write {
        /// The path in the agent's words.
        path: String,
        /// The text: the whole file, or only the changed part.
        text: Option<TextReplacement>,
    },
    /// To delete a file.
    Delete {
        /// The path in the agent's words.
        path: String,
    },
    /// To run a command.
    Run {
        /// The command.
        invocation: Invocation,
        /// The working directory, if given.
        cwd: Option<String>,
    },
    /// To fetch a URL.
    Fetch {
        /// The URL.
        url: String,
    },
    /// An action known only by its description.
    Described {
        /// The closest kind; if the agent gives none, the most dangerous one.
        kind: OperationKind,
        /// The agent's title.
        title: String,
    },
}

/// The text of a diff.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextReplacement {
    /// The replaced text; `None` for a new file.
    pub old: Option<String>,
    /// The new text.
    pub new: String,
}

impl TextReplacement {
    /// Returns the whole text of the file after the replacement, given its current text; `None` if the result is
    /// ambiguous.
    ///
    /// An agent may send the whole file or only the changed part, without saying which. The old text is a part if it
    /// occurs in the file exactly once; with no occurrence or several, the result is unknown.
    #[must_use]
    pub fn apply_to(&self, current: Option<&str>) -> Option<String> {
        let (Some(old), Some(current)) = (self.old.as_deref(), current) else {
            return Some(self.new.clone());
        };
        if old.is_empty() || old == current {
            return Some(self.new.clone());
        }
        let mut matches = memmem::find_iter(current.as_bytes(), old.as_bytes());
        let (Some(_), None) = (matches.next(), matches.next()) else { return None };
        Some(current.replacen(old, &self.new, 1))
    }
}

/// Returns the claims of a tool call, at least one: a description if nothing else is known.
#[must_use]
pub fn extract_claims(call: &ToolCallView) -> Vec<ToolCallClaim> {
    let mut claims: Vec<ToolCallClaim> = call.content.iter().filter_map(claim_from_diff).collect();
    if claims.is_empty() {
        claims = claims_from_kind(call);
    } else if !matches!(call.kind, ToolKind::Edit | ToolKind::Delete | ToolKind::Move) {
        // A call with a diff but a different kind does both.
        claims.push(description_claim(call));
    }
    // A call that carries a command may run it, regardless of its kind.
    claims.extend(command_claim(call));
    if claims.is_empty() {
        claims.push(description_claim(call));
    }
    if claims.len() > MAX_CLAIMS {
        claims.truncate(MAX_CLAIMS - 1);
        claims.push(description_claim(call));
    }
    claims
}

fn claim_from_diff(content: &ToolCallContent) -> Option<ToolCallClaim> {
    let ToolCallContent::Diff(diff) = content else { return None };
    let text = TextReplacement { old: diff.old_text.clone(), new: diff.new_text.clone() };
    Some(ToolCallClaim::Write { path: diff.path.to_string_lossy().into_owned(), text: Some(text) })
}

fn claims_from_kind(call: &ToolCallView) -> Vec<ToolCallClaim> {
    let paths = || claimed_paths(call);
    match call.kind {
        ToolKind::Read | ToolKind::Search => paths().map(|path| ToolCallClaim::Read { path }).collect(),
        ToolKind::Edit => {
            let paths: Vec<String> = paths().collect();
            // With several files it is unknown to which the text belongs.
            let text = if paths.len() == 1 { text_from_input(call) } else { None };
            paths.into_iter().map(|path| ToolCallClaim::Write { path, text: text.clone() }).collect()
        }
        ToolKind::Delete => paths().map(|path| ToolCallClaim::Delete { path }).collect(),
        // The agent does not say which name is the source: either may be removed or overwritten.
        ToolKind::Move => paths()
            .flat_map(|path| {
                [ToolCallClaim::Delete { path: path.clone() }, ToolCallClaim::Write { path, text: None }]
            })
            .collect(),
        ToolKind::Execute if command_claim(call).is_some() => Vec::new(),
        ToolKind::Fetch => {
            input_string(call, URL_KEYS).map(|url| ToolCallClaim::Fetch { url }).into_iter().collect()
        }
        // A call that could do anything is judged by its description, in addition to its apparent command.
        _ => vec![description_claim(call)],
    }
}

fn description_claim(call: &ToolCallView) -> ToolCallClaim {
    let kind = match call.kind {
        ToolKind::Read | ToolKind::Search | ToolKind::Think => OperationKind::Read,
        ToolKind::Edit | ToolKind::Move => OperationKind::Write,
        ToolKind::Delete => OperationKind::Delete,
        ToolKind::Fetch => OperationKind::Fetch,
        // Unknown kinds are treated as the most dangerous.
        _ => OperationKind::Execute,
    };
    let title =
        if call.title.is_empty() { call.name.as_deref().unwrap_or("a tool call") } else { &call.title };
    ToolCallClaim::Described { kind, title: title.to_owned() }
}

/// Returns the id of the tool call to which an operation most likely belongs; the protocol does not say. For files it
/// is the newest unfinished call that mentions one of them, for a command the newest unfinished call that runs one.
#[must_use]
pub fn find_call_for_operation(session: &SessionSnapshot, paths: Option<&[&str]>) -> Option<String> {
    let is_match = |call: &&ToolCallView| match paths {
        None => call.kind == ToolKind::Execute,
        Some(paths) => paths.iter().any(|path| mentions_path(call, path)),
    };
    let open = session.tool_calls().rev().take(MAX_SEARCHED_CALLS).filter(|call| !call.is_finished());
    let call = { open }.find(is_match)?;
    Some(call.id.0.to_string())
}

fn mentions_path(call: &ToolCallView, path: &str) -> bool {
    let path = std::path::Path::new(path);
    call.locations.iter().any(|location| location.path == path)
        || call
            .content
            .iter()
            .any(|content| matches!(content, ToolCallContent::Diff(diff) if diff.path == path))
}

// The keys that agents use in the raw input of their tools.
const COMMAND_KEYS: &[&str] = &["command", "cmd", "script", "shell_command", "commandLine"];
const CWD_KEYS: &[&str] =
    &["cwd", "workdir", "working_directory", "workingDirectory", "directory", "dir_path"];
const PATH_KEYS: &[&str] =
    &["path", "file_path", "filePath", "abs_path", "absolute_path", "filename", "file", "target_file"];
const URL_KEYS: &[&str] = &["url", "uri"];
const TEXT_KEYS: &[&str] = &["content", "contents", "file_text", "fileText", "new_content", "newContent"];

fn input_string(call: &ToolCallView, keys: &[&str]) -> Option<String> {
    let input = call.raw_input.as_deref()?.as_object()?;
    keys.iter().find_map(|key| input.get(*key)?.as_str()).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Returns the whole text that a tool is to write. Tools that replace a part use other keys; if one does not, the text
/// it writes differs from the approved one, and the write is asked about.
fn text_from_input(call: &ToolCallView) -> Option<TextReplacement> {
    let input = call.raw_input.as_deref()?.as_object()?;
    let text = TEXT_KEYS.iter().find_map(|key| input.get(*key)?.as_str())?;
    Some(TextReplacement { old: None, new: text.to_owned() })
}

fn claimed_paths(call: &ToolCallView) -> impl Iterator<Item = String> {
    let mut paths: Vec<String> =
        call.locations.iter().map(|location| location.path.to_string_lossy().into_owned()).collect();
    paths.extend(input_string(call, PATH_KEYS));
    paths.dedup();
    paths.into_iter()
}

fn command_claim(call: &ToolCallView) -> Option<ToolCallClaim> {
    let input_object = call.raw_input.as_deref()?.as_object()?;
    let command = COMMAND_KEYS.iter().find_map(|key| input_object.get(*key))?;
    let args = input_object.get("args").and_then(string_list);
    let invocation = match (command, args) {
        (Value::String(program), Some(args)) if !args.is_empty() => {
            Invocation::Argv(std::iter::once(program.clone()).chain(args).collect())
        }
        (Value::String(line), _) if !line.is_empty() => Invocation::Shell(line.clone()),
        (command, _) => Invocation::Argv(string_list(command).filter(|argv| !argv.is_empty())?),
    };
    Some(ToolCallClaim::Run { invocation, cwd: input_string(call, CWD_KEYS) })
}

/// Returns the items of a list that contains only strings.
fn string_list(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|item| item.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests;
