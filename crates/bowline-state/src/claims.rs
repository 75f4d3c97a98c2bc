//! What a tool call says it is going to do, read out of what the agent tells of it.
//!
//! The protocol has no field for it. There are diffs, a kind, locations and the tool's raw input, whose names differ from
//! agent to agent. What can be told from them is a [`Claim`]: enough to judge by rules and to bind an approval to, where
//! it names files and texts; else only something to show to a person.

use agent_client_protocol_schema::v1::{ToolCallContent, ToolKind};
use memchr::memmem;
use serde_json::Value;

use crate::accumulator::{Snapshot, ToolCallView};
use crate::operation::{Invocation, Kind};

/// One tool call is taken to claim at most this much; what goes beyond it is [`Claim::Described`], and a person is asked.
pub const MAX_CLAIMS: usize = 256;

/// So many of the newest calls are looked at to find the one that an operation belongs to.
const MAX_LOOKED_AT: usize = 64;

/// What a tool call says it is going to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// To read a file.
    Read {
        /// As the agent names it.
        path: String,
    },
    /// To write a file.
    Write {
        /// As the agent names it.
        path: String,
        /// The text: shown whole, or only the part that changes.
        text: Option<NewText>,
    },
    /// To delete a file.
    Delete {
        /// As the agent names it.
        path: String,
    },
    /// To run a command.
    Run {
        /// The command.
        invocation: Invocation,
        /// Where, if it says so.
        cwd: Option<String>,
    },
    /// To fetch something.
    Fetch {
        /// From where.
        url: String,
    },
    /// Something that only its description tells.
    Described {
        /// What it is most like; where the agent does not say, what should be asked about with most care.
        kind: Kind,
        /// In the agent's words.
        title: String,
    },
}

/// The text of a diff.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewText {
    /// What is replaced; none for a new file.
    pub old: Option<String>,
    /// What it is replaced by.
    pub new: String,
}

impl NewText {
    /// Returns the whole text that the file would hold after this, given what it holds; none if that cannot be told.
    ///
    /// An agent may show the whole file or only the part that changes, and does not say which. It is a part where the old
    /// text stands in the file just once; where it stands nowhere or more than once, nobody knows what is meant.
    #[must_use]
    pub fn whole(&self, current: Option<&str>) -> Option<String> {
        let (Some(old), Some(current)) = (self.old.as_deref(), current) else {
            return Some(self.new.clone());
        };
        if old.is_empty() || old == current {
            return Some(self.new.clone());
        }
        let mut places = memmem::find_iter(current.as_bytes(), old.as_bytes());
        let (Some(_), None) = (places.next(), places.next()) else { return None };
        Some(current.replacen(old, &self.new, 1))
    }
}

/// Returns what a tool call says it is going to do. There is always something: if nothing else, what it is called.
#[must_use]
pub fn claims(call: &ToolCallView) -> Vec<Claim> {
    let mut claims: Vec<Claim> = call.content.iter().filter_map(diff).collect();
    if claims.is_empty() {
        claims = from_kind(call);
    } else if !matches!(call.kind, ToolKind::Edit | ToolKind::Delete | ToolKind::Move) {
        // A call that shows a diff and says that it does something else does both.
        claims.push(described(call));
    }
    // What carries a command may run it, whatever it calls itself.
    claims.extend(command(call));
    if claims.is_empty() {
        claims.push(described(call));
    }
    if claims.len() > MAX_CLAIMS {
        claims.truncate(MAX_CLAIMS - 1);
        claims.push(described(call));
    }
    claims
}

fn diff(content: &ToolCallContent) -> Option<Claim> {
    let ToolCallContent::Diff(diff) = content else { return None };
    let text = NewText { old: diff.old_text.clone(), new: diff.new_text.clone() };
    Some(Claim::Write { path: diff.path.to_string_lossy().into_owned(), text: Some(text) })
}

fn from_kind(call: &ToolCallView) -> Vec<Claim> {
    let paths = || paths(call);
    match call.kind {
        ToolKind::Read | ToolKind::Search => paths().map(|path| Claim::Read { path }).collect(),
        ToolKind::Edit => {
            let paths: Vec<String> = paths().collect();
            // Of several files nobody could say whose text it is.
            let text = if paths.len() == 1 { whole_text(call) } else { None };
            paths.into_iter().map(|path| Claim::Write { path, text: text.clone() }).collect()
        }
        ToolKind::Delete => paths().map(|path| Claim::Delete { path }).collect(),
        // Which name is the old one nobody says: both may be gone or overwritten.
        ToolKind::Move => paths()
            .flat_map(|path| [Claim::Delete { path: path.clone() }, Claim::Write { path, text: None }])
            .collect(),
        ToolKind::Execute if command(call).is_some() => Vec::new(),
        ToolKind::Fetch => input(call, URL_KEYS).map(|url| Claim::Fetch { url }).into_iter().collect(),
        // What may be anything is judged as a description, beside the command that it seems to run.
        _ => vec![described(call)],
    }
}

fn described(call: &ToolCallView) -> Claim {
    let kind = match call.kind {
        ToolKind::Read | ToolKind::Search | ToolKind::Think => Kind::Read,
        ToolKind::Edit | ToolKind::Move => Kind::Write,
        ToolKind::Delete => Kind::Delete,
        ToolKind::Fetch => Kind::Fetch,
        // Of what is unknown the worst is assumed.
        _ => Kind::Execute,
    };
    let title =
        if call.title.is_empty() { call.name.as_deref().unwrap_or("a tool call") } else { &call.title };
    Claim::Described { kind, title: title.to_owned() }
}

/// Returns the id of the tool call that an operation belongs to, as far as it can be told: the protocol does not say it. For
/// a file it is the newest call that is not finished and names it; for a command the newest that runs one.
#[must_use]
pub fn call_for(session: &Snapshot, path: Option<&str>) -> Option<String> {
    let is_its = |call: &&ToolCallView| match path {
        None => call.kind == ToolKind::Execute,
        Some(path) => names(call, path),
    };
    let open = session.tool_calls().rev().take(MAX_LOOKED_AT).filter(|call| !call.is_finished());
    let call = { open }.find(is_its)?;
    Some(call.id.0.to_string())
}

fn names(call: &ToolCallView, path: &str) -> bool {
    let path = std::path::Path::new(path);
    call.locations.iter().any(|location| location.path == path)
        || call
            .content
            .iter()
            .any(|content| matches!(content, ToolCallContent::Diff(diff) if diff.path == path))
}

// How agents call these things in the raw input of their tools.
const COMMAND_KEYS: &[&str] = &["command", "cmd", "script", "shell_command", "commandLine"];
const CWD_KEYS: &[&str] =
    &["cwd", "workdir", "working_directory", "workingDirectory", "directory", "dir_path"];
const PATH_KEYS: &[&str] =
    &["path", "file_path", "filePath", "abs_path", "absolute_path", "filename", "file", "target_file"];
const URL_KEYS: &[&str] = &["url", "uri"];
const TEXT_KEYS: &[&str] = &["content", "contents", "file_text", "fileText", "new_content", "newContent"];

fn input(call: &ToolCallView, keys: &[&str]) -> Option<String> {
    let input = call.raw_input.as_deref()?.as_object()?;
    keys.iter().find_map(|key| input.get(*key)?.as_str()).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Returns the whole text that a tool is to write. A tool that replaces a part calls it otherwise, and if it does not: what
/// is written then is another text than the one that was agreed to, and is asked about.
fn whole_text(call: &ToolCallView) -> Option<NewText> {
    let input = call.raw_input.as_deref()?.as_object()?;
    let text = TEXT_KEYS.iter().find_map(|key| input.get(*key)?.as_str())?;
    Some(NewText { old: None, new: text.to_owned() })
}

fn paths(call: &ToolCallView) -> impl Iterator<Item = String> {
    let mut paths: Vec<String> =
        call.locations.iter().map(|location| location.path.to_string_lossy().into_owned()).collect();
    paths.extend(input(call, PATH_KEYS));
    paths.dedup();
    paths.into_iter()
}

fn command(call: &ToolCallView) -> Option<Claim> {
    let input_object = call.raw_input.as_deref()?.as_object()?;
    let given = COMMAND_KEYS.iter().find_map(|key| input_object.get(*key))?;
    let args = input_object.get("args").and_then(strings);
    let invocation = match (given, args) {
        (Value::String(program), Some(args)) if !args.is_empty() => {
            Invocation::Argv(std::iter::once(program.clone()).chain(args).collect())
        }
        (Value::String(line), _) if !line.is_empty() => Invocation::Shell(line.clone()),
        (given, _) => Invocation::Argv(strings(given).filter(|argv| !argv.is_empty())?),
    };
    Some(Claim::Run { invocation, cwd: input(call, CWD_KEYS) })
}

/// Returns a list of nothing but strings.
fn strings(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|item| item.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests;
