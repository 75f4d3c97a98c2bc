//! Slash commands that a user gives an agent.
//!
//! A prompt is a command if its text begins with a slash and one word. Prose may begin that way too (`/etc is full`,
//! `//`, a path) and goes to the model. An unknown word that looks like a command is answered with the nearest known
//! one.

use std::fmt::Write as _;

use agent_client_protocol_schema::v1::{ContentBlock, EmbeddedResourceResource};

use bowline_text::display::quote;

/// The maximum length of a command's input, in bytes; longer input is truncated.
pub const MAX_INPUT_BYTES: usize = 4096;

/// The maximum length of a command's name, in bytes.
const MAX_NAME_BYTES: usize = 32;

/// A command with its input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SlashCommand {
    /// Lists the commands.
    Help,
    /// Shows the state of the session: model, mode, who serves files and commands, how full the context window is.
    Status,
    /// Lists the tools offered to the model.
    Tools,
    /// Shows the current model and the available ones, or switches the model.
    Model(Option<String>),
    /// Shows the current mode and the available ones, or switches the mode.
    Mode(Option<String>),
    /// Shows the MCP servers and their state, or restarts them.
    Mcp(McpCommand),
    /// Summarises the conversation; the input names what to preserve with care.
    Compact(Option<String>),
    /// Undoes changes.
    Undo(UndoTarget),
    /// Has the model write instructions for the project.
    Init,
}

/// An action on MCP servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum McpCommand {
    /// Shows their state.
    Show,
    /// Restarts one, or all.
    Restart(Option<String>),
}

/// The changes to undo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UndoTarget {
    /// Those of this many of the last turns that changed something, at least one.
    Turns(u64),
    /// The session's changes to one file, as the user named it.
    File(String),
    /// All changes of the session.
    Session,
}

/// A command as clients list it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlashCommandInfo {
    /// Its name, without the slash.
    pub name: &'static str,
    /// Its description.
    pub description: &'static str,
    /// A hint about its input, if it takes any.
    pub hint: Option<&'static str>,
}

/// Every command, in the order in which clients list them.
pub const SLASH_COMMANDS: [SlashCommandInfo; 9] = [
    command_info("help", "Shows the commands", None),
    command_info(
        "status",
        "Shows model, mode, who serves files and commands, and how full the context is",
        None,
    ),
    command_info("tools", "Shows the tools that the model is offered", None),
    command_info("model", "Shows or switches the model", Some("name of a model")),
    command_info(
        "mode",
        "Shows or switches what is done without asking",
        Some("read-only, ask, accept-edits or full"),
    ),
    command_info(
        "mcp",
        "Shows the MCP servers and their tools, or starts them anew",
        Some("restart, or restart NAME"),
    ),
    command_info("compact", "Sums up the conversation to make room", Some("what to keep in particular")),
    command_info("undo", "Takes back what the last turn changed", Some("number of turns, a file, or all")),
    command_info("init", "Writes AGENTS.md for this project", None),
];

/// A prompt that looks like a command but cannot be executed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SlashCommandError {
    /// There is no such command.
    #[error("there is no command /{}{}", quote(.name), suggest_nearest(*.nearest))]
    Unknown {
        /// The word after the slash.
        name: String,
        /// The command that was probably meant.
        nearest: Option<&'static str>,
    },
    /// The command takes no input, but some was given.
    #[error("/{name} takes nothing: send it by itself")]
    UnexpectedInput {
        /// The command.
        name: &'static str,
    },
    /// `/mcp` with an unknown action.
    #[error("/mcp takes nothing, or restart and the name of a server")]
    UnknownMcpAction,
    /// `/undo` with 0 turns.
    #[error("there is nothing to undo in 0 turns: give a number from 1 on")]
    ZeroTurns,
}

/// Parses a prompt as a command. Returns `None` for a prompt that goes to the model.
///
/// The first text decides, regardless of what precedes it: clients put the user's context in front. Files attached
/// after the command are named in its input.
#[must_use]
pub fn parse(prompt: &[ContentBlock]) -> Option<Result<SlashCommand, SlashCommandError>> {
    let is_text =
        |block: &ContentBlock| matches!(block, ContentBlock::Text(text) if !text.text.trim().is_empty());
    let first = prompt.iter().position(is_text)?;
    let ContentBlock::Text(text) = &prompt[first] else { return None };
    let (name, rest) = split_command(&text.text)?;
    let lower = name.to_ascii_lowercase();
    let Some(entry) = SLASH_COMMANDS.iter().find(|entry| entry.name == lower) else {
        let nearest = nearest_command(&lower);
        // `/tmp is full` is prose.
        let prose = ROOT_DIRECTORIES.contains(&lower.as_str());
        return (!prose).then(|| Err(SlashCommandError::Unknown { name: name.to_owned(), nearest }));
    };
    let input = collect_input(rest, &prompt[first + 1..]);
    Some(parse_named_command(entry.name, input))
}

/// Returns the commands that a session offers, without `/undo` where nothing can be undone here.
pub fn available_commands(can_undo: bool) -> impl Iterator<Item = &'static SlashCommandInfo> {
    SLASH_COMMANDS.iter().filter(move |entry| can_undo || entry.name != "undo")
}

/// Returns the text that `/help` shows, as Markdown.
#[must_use]
pub fn help_text(can_undo: bool) -> String {
    let mut text = String::new();
    for SlashCommandInfo { name, description, hint } in available_commands(can_undo) {
        let hint = hint.map(|hint| format!(" *{hint}*")).unwrap_or_default();
        // Writing to a string cannot fail.
        writeln!(text, "- `/{name}`{hint}: {description}").unwrap_or_default();
    }
    text
}

const fn command_info(
    name: &'static str,
    description: &'static str,
    hint: Option<&'static str>,
) -> SlashCommandInfo {
    SlashCommandInfo { name, description, hint }
}

/// Top-level directories of most systems, in lower case: a sentence that begins with one means the directory.
const ROOT_DIRECTORIES: [&str; 25] = [
    "applications", "bin", "boot", "data", "dev", "etc", "home", "lib", "lib64", "library", "media", "mnt",
    "nix", "opt", "proc", "root", "run", "sbin", "srv", "sys", "system", "tmp", "usr", "users", "var",
];

/// Returns the word after the slash and the rest, if the text begins like a command.
fn split_command(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start().strip_prefix('/')?;
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_name = name.len() <= MAX_NAME_BYTES
        && name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.bytes().all(word);
    is_name.then_some((name, rest))
}

fn collect_input(rest: &str, more: &[ContentBlock]) -> Option<String> {
    let mut input = String::new();
    let mut add = |text: &str| {
        let room = MAX_INPUT_BYTES.saturating_sub(input.len());
        input.push_str(&text[..text.floor_char_boundary(room)]);
    };
    add(rest.trim_start());
    for block in more {
        match block {
            ContentBlock::Text(text) => add(&text.text),
            ContentBlock::ResourceLink(link) => add(path_from_uri(&link.uri)),
            ContentBlock::Resource(resource) => match &resource.resource {
                EmbeddedResourceResource::TextResourceContents(text) => add(path_from_uri(&text.uri)),
                EmbeddedResourceResource::BlobResourceContents(blob) => add(path_from_uri(&blob.uri)),
                // A kind of resource that only newer peers know has no readable name.
                _ => {}
            },
            // Images and audio mean nothing to a command.
            _ => {}
        }
    }
    let input = input.trim();
    (!input.is_empty()).then(|| input.to_owned())
}

fn path_from_uri(uri: &str) -> &str {
    uri.strip_prefix("file://").unwrap_or(uri)
}

fn parse_named_command(name: &'static str, input: Option<String>) -> Result<SlashCommand, SlashCommandError> {
    let plain = |command| match &input {
        None => Ok(command),
        Some(_) => Err(SlashCommandError::UnexpectedInput { name }),
    };
    match name {
        "status" => plain(SlashCommand::Status),
        "tools" => plain(SlashCommand::Tools),
        "mcp" => parse_mcp(input).map(SlashCommand::Mcp),
        "init" => plain(SlashCommand::Init),
        "model" => Ok(SlashCommand::Model(input)),
        "mode" => Ok(SlashCommand::Mode(input)),
        "compact" => Ok(SlashCommand::Compact(input)),
        "undo" => parse_undo(input).map(SlashCommand::Undo),
        // `/help` ignores its input.
        _ => Ok(SlashCommand::Help),
    }
}

fn parse_mcp(input: Option<String>) -> Result<McpCommand, SlashCommandError> {
    let Some(input) = input else { return Ok(McpCommand::Show) };
    let (verb, name) = input.split_once(char::is_whitespace).unwrap_or((&input, ""));
    if !verb.eq_ignore_ascii_case("restart") {
        return Err(SlashCommandError::UnknownMcpAction);
    }
    let name = name.trim();
    Ok(McpCommand::Restart((!name.is_empty()).then(|| name.to_owned())))
}

fn parse_undo(input: Option<String>) -> Result<UndoTarget, SlashCommandError> {
    let Some(input) = input else { return Ok(UndoTarget::Turns(1)) };
    match input.parse() {
        Ok(0) => Err(SlashCommandError::ZeroTurns),
        Ok(turns) => Ok(UndoTarget::Turns(turns)),
        Err(_) if input.eq_ignore_ascii_case("all") => Ok(UndoTarget::Session),
        Err(_) => Ok(UndoTarget::File(input)),
    }
}

/// Returns the command that begins with `name`, or else the closest one within a few letters.
fn nearest_command(name: &str) -> Option<&'static str> {
    let by_prefix = SLASH_COMMANDS.iter().find(|entry| entry.name.starts_with(name));
    let by_distance = || {
        let distance = |entry: &&SlashCommandInfo| edit_distance(entry.name.as_bytes(), name.as_bytes());
        let is_close = |entry: &&SlashCommandInfo| distance(entry) <= (entry.name.len() / 3).max(1);
        SLASH_COMMANDS.iter().filter(is_close).min_by_key(distance)
    };
    by_prefix.or_else(by_distance).map(|entry| entry.name)
}

/// Returns the number of letters to change, add or remove to turn one word into the other; any reordering counts as
/// one.
fn edit_distance(a: &[u8], b: &[u8]) -> usize {
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

fn suggest_nearest(nearest: Option<&str>) -> String {
    match nearest {
        Some(name) => format!(": did you mean /{name}?"),
        None => ": /help shows those there are".to_owned(),
    }
}

#[cfg(test)]
mod tests;
