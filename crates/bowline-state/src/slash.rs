//! Commands that a user gives an agent by a slash.
//!
//! A prompt is a command if its text begins with a slash and one word. Prose may begin so too (`/etc is full`, `//`, a
//! path): that goes to the model. A word that is no command and looks like one is answered with the nearest that is.

use std::fmt::Write as _;

use agent_client_protocol_schema::v1::{ContentBlock, EmbeddedResourceResource};

use crate::failure::quote;

/// What follows a command is cut after this many bytes.
pub const MAX_INPUT: usize = 4096;

/// The longest word after a slash that can be a command, in bytes.
const MAX_NAME: usize = 32;

/// A command, with what was said to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Says which commands there are.
    Help,
    /// Says how the session stands: model, mode, who serves files and commands, how full the window is.
    Status,
    /// Says which tools the model is offered.
    Tools,
    /// Says which model answers and which there are, or takes another one.
    Model(Option<String>),
    /// Says which mode holds and which there are, or takes another one.
    Mode(Option<String>),
    /// Says which MCP servers there are and how they are, or starts them anew.
    Mcp(Servers),
    /// Sums up the conversation; what is named is to be kept with care.
    Compact(Option<String>),
    /// Takes back changes.
    Undo(Undo),
    /// Has the model write instructions for the project.
    Init,
}

/// What is done with MCP servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Servers {
    /// It is said how they are.
    Show,
    /// One is started anew, or all.
    Restart(Option<String>),
}

/// Which changes are to be taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undo {
    /// Those of so many of the last turns that changed something, one at least.
    Turns(u64),
    /// Those of the session to one file, as the user named it.
    File(String),
    /// All of the session's.
    Session,
}

/// A command as clients list it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Its name, without the slash.
    pub name: &'static str,
    /// What it does.
    pub description: &'static str,
    /// What can be said to it, if anything can.
    pub hint: Option<&'static str>,
}

/// Every command, in the order that clients list them.
pub const TABLE: [Entry; 9] = [
    entry("help", "Shows the commands", None),
    entry("status", "Shows model, mode, who serves files and commands, and how full the context is", None),
    entry("tools", "Shows the tools that the model is offered", None),
    entry("model", "Shows or switches the model", Some("name of a model")),
    entry(
        "mode",
        "Shows or switches what is done without asking",
        Some("read-only, ask, accept-edits or full"),
    ),
    entry(
        "mcp",
        "Shows the MCP servers and their tools, or starts them anew",
        Some("restart, or restart NAME"),
    ),
    entry("compact", "Sums up the conversation to make room", Some("what to keep in particular")),
    entry("undo", "Takes back what the last turn changed", Some("number of turns, a file, or all")),
    entry("init", "Writes AGENTS.md for this project", None),
];

/// Something that looks like a command and cannot be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SlashError {
    /// There is no such command.
    #[error("there is no command /{}{}", quote(.name), instead(*.nearest))]
    Unknown {
        /// The word after the slash.
        name: String,
        /// The command that was probably meant.
        nearest: Option<&'static str>,
    },
    /// The command takes nothing, and something was said to it.
    #[error("/{name} takes nothing: send it by itself")]
    TakesNothing {
        /// The command.
        name: &'static str,
    },
    /// `/mcp` with something that cannot be done with servers.
    #[error("/mcp takes nothing, or restart and the name of a server")]
    NoServerVerb,
    /// `/undo` with a number that is none.
    #[error("there is nothing to undo in 0 turns: give a number from 1 on")]
    NoTurns,
}

/// Reads a prompt as a command. Returns nothing if it is none, and goes to the model.
///
/// The first text decides, whatever stands before it: clients put what the user looks at in front. Files that are
/// attached after the command are named in its input.
#[must_use]
pub fn parse(prompt: &[ContentBlock]) -> Option<Result<Command, SlashError>> {
    let is_text =
        |block: &ContentBlock| matches!(block, ContentBlock::Text(text) if !text.text.trim().is_empty());
    let first = prompt.iter().position(is_text)?;
    let ContentBlock::Text(text) = &prompt[first] else { return None };
    let (name, rest) = split(&text.text)?;
    let lower = name.to_ascii_lowercase();
    let Some(entry) = TABLE.iter().find(|entry| entry.name == lower) else {
        let nearest = nearest(&lower);
        // `/tmp is full` is prose; so is a slash before a word that nobody would type for a command.
        let prose = DIRECTORIES.contains(&lower.as_str());
        return (!prose).then(|| Err(SlashError::Unknown { name: name.to_owned(), nearest }));
    };
    let input = input(rest, &prompt[first + 1..]);
    Some(command(entry.name, input))
}

/// Returns the commands that a session offers: without `/undo` where nothing can be taken back here.
pub fn offered(can_undo: bool) -> impl Iterator<Item = &'static Entry> {
    TABLE.iter().filter(move |entry| can_undo || entry.name != "undo")
}

/// Returns the text that `/help` shows, as Markdown.
#[must_use]
pub fn help(can_undo: bool) -> String {
    let mut text = String::new();
    for Entry { name, description, hint } in offered(can_undo) {
        let hint = hint.map(|hint| format!(" *{hint}*")).unwrap_or_default();
        // Writing to a string cannot fail.
        writeln!(text, "- `/{name}`{hint}: {description}").unwrap_or_default();
    }
    text
}

const fn entry(name: &'static str, description: &'static str, hint: Option<&'static str>) -> Entry {
    Entry { name, description, hint }
}

/// Directories that lie at the top of most systems, in lower case: who begins a sentence with one means it.
const DIRECTORIES: [&str; 25] = [
    "applications",
    "bin",
    "boot",
    "data",
    "dev",
    "etc",
    "home",
    "lib",
    "lib64",
    "library",
    "media",
    "mnt",
    "nix",
    "opt",
    "proc",
    "root",
    "run",
    "sbin",
    "srv",
    "sys",
    "system",
    "tmp",
    "usr",
    "users",
    "var",
];

/// Returns the word after the slash and all that follows it, if the text begins as a command does.
fn split(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start().strip_prefix('/')?;
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_name = name.len() <= MAX_NAME
        && name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.bytes().all(word);
    is_name.then_some((name, rest))
}

fn input(rest: &str, more: &[ContentBlock]) -> Option<String> {
    let mut input = String::new();
    let mut add = |text: &str| {
        let room = MAX_INPUT.saturating_sub(input.len());
        input.push_str(&text[..text.floor_char_boundary(room)]);
    };
    add(rest.trim_start());
    for block in more {
        match block {
            ContentBlock::Text(text) => add(&text.text),
            ContentBlock::ResourceLink(link) => add(named(&link.uri)),
            ContentBlock::Resource(resource) => match &resource.resource {
                EmbeddedResourceResource::TextResourceContents(text) => add(named(&text.uri)),
                EmbeddedResourceResource::BlobResourceContents(blob) => add(named(&blob.uri)),
                // A kind of resource that only newer peers know has no name that could be read.
                _ => {}
            },
            // Pictures and sounds say nothing to a command.
            _ => {}
        }
    }
    let input = input.trim();
    (!input.is_empty()).then(|| input.to_owned())
}

fn named(uri: &str) -> &str {
    uri.strip_prefix("file://").unwrap_or(uri)
}

fn command(name: &'static str, input: Option<String>) -> Result<Command, SlashError> {
    let plain = |command| match &input {
        None => Ok(command),
        Some(_) => Err(SlashError::TakesNothing { name }),
    };
    match name {
        "status" => plain(Command::Status),
        "tools" => plain(Command::Tools),
        "mcp" => mcp(input).map(Command::Mcp),
        "init" => plain(Command::Init),
        "model" => Ok(Command::Model(input)),
        "mode" => Ok(Command::Mode(input)),
        "compact" => Ok(Command::Compact(input)),
        "undo" => undo(input).map(Command::Undo),
        // Who asks for help with something is helped all the same.
        _ => Ok(Command::Help),
    }
}

fn mcp(input: Option<String>) -> Result<Servers, SlashError> {
    let Some(input) = input else { return Ok(Servers::Show) };
    let (verb, name) = input.split_once(char::is_whitespace).unwrap_or((&input, ""));
    if !verb.eq_ignore_ascii_case("restart") {
        return Err(SlashError::NoServerVerb);
    }
    let name = name.trim();
    Ok(Servers::Restart((!name.is_empty()).then(|| name.to_owned())))
}

fn undo(input: Option<String>) -> Result<Undo, SlashError> {
    let Some(input) = input else { return Ok(Undo::Turns(1)) };
    match input.parse() {
        Ok(0) => Err(SlashError::NoTurns),
        Ok(turns) => Ok(Undo::Turns(turns)),
        Err(_) if input.eq_ignore_ascii_case("all") => Ok(Undo::Session),
        Err(_) => Ok(Undo::File(input)),
    }
}

/// Returns the command whose beginning it is, or that is a few letters from it.
fn nearest(name: &str) -> Option<&'static str> {
    let begins = TABLE.iter().find(|entry| entry.name.starts_with(name));
    let near = || {
        let far = |entry: &&Entry| distance(entry.name.as_bytes(), name.as_bytes());
        let close = |entry: &&Entry| far(entry) <= (entry.name.len() / 3).max(1);
        TABLE.iter().filter(close).min_by_key(far)
    };
    begins.or_else(near).map(|entry| entry.name)
}

/// Returns how many letters have to be changed, added or removed to make one word of the other; that they stand in
/// another order counts as one.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let sorted = |word: &[u8]| {
        let mut letters = word.to_vec();
        letters.sort_unstable();
        letters
    };
    if a != b && sorted(a) == sorted(b) {
        return 1;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let changed = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

fn instead(nearest: Option<&str>) -> String {
    match nearest {
        Some(name) => format!(": did you mean /{name}?"),
        None => ": /help shows those there are".to_owned(),
    }
}

#[cfg(test)]
mod tests;
