//! Tools of MCP servers under names and texts that a model can be given.
//!
//! A server says what it likes about its tools, and a model believes what it reads. So nothing of a server's words goes
//! on as it came: names are made of a few letters, texts are cut and stripped of what nobody sees, schemas are brought
//! to what providers of models accept, and whatever a tool answers is marked as data with its origin.

mod output;
mod schema;
pub mod workspace;

use std::collections::HashSet;

use agent_client_protocol_schema::v1::ToolKind;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::display;

pub use output::{
    CallOutput, Link, MAX_IMAGE_BYTES, MAX_IMAGES, MAX_LINKS, MAX_STRUCTURED_BYTES, MAX_TEXT_BYTES, labelled,
    progress_title, read_output,
};
pub use schema::{MAX_SCHEMA_BYTES, MAX_SCHEMA_DEPTH, clean_schema};

/// So many tools of one server are taken; the rest is left out.
pub const MAX_SERVER_TOOLS: usize = 128;
/// So many tools of all servers are taken together.
pub const MAX_TOOLS: usize = 512;
/// The longest name that every provider of models takes, in bytes.
pub const MAX_NAME: usize = 64;
/// The longest description, in bytes.
pub const MAX_DESCRIPTION: usize = 4096;
/// The longest title, in bytes.
pub const MAX_TITLE: usize = 120;
/// The longest name that a server may give a tool, in bytes. Tools with longer ones are left out.
pub const MAX_LISTED_NAME: usize = 512;

/// How deep what a server says of a tool may be nested. A tool that is nested deeper is left out.
pub const MAX_TOOL_DEPTH: usize = 64;

/// The most lines that a description has.
const DESCRIPTION_LINES: usize = 120;
/// What names of tools begin with, so that none is taken for one of the agent's own.
const PREFIX: &str = "mcp";
/// The longest part of a name that says the server, in bytes.
const SERVER_PART: usize = 24;
/// How many bytes of a hash tell apart what would have the same name.
const HASH_BYTES: usize = 4;

/// What a server hints at about a tool. It may be wrong or a lie: nothing is allowed because of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hints {
    /// It changes nothing.
    pub read_only: Option<bool>,
    /// It may destroy something.
    pub destructive: Option<bool>,
    /// It reaches out to others.
    pub open_world: Option<bool>,
}

/// A tool as its server lists it, cleaned.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    /// The name that the server knows it by, as it came.
    pub tool: String,
    /// What a person is shown.
    pub title: String,
    /// What a model is told.
    pub description: String,
    /// A schema of an object.
    pub schema: Value,
    /// What the server hints at.
    pub hints: Hints,
}

/// One page of a server's list of tools.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Page {
    /// The tools that can be used.
    pub tools: Vec<Listed>,
    /// How many could not be, because they have no proper name or are nested too deep.
    pub unusable: usize,
    /// The names of those that are nested deeper than [`MAX_TOOL_DEPTH`].
    pub too_deep: Vec<String>,
    /// What to ask for the next page with.
    pub next: Option<String>,
}

/// Reads a page of a server's list of tools. What cannot be read of one tool does not cost the others.
#[must_use]
pub fn read_page(page: &Value) -> Page {
    let mut read =
        Page { next: page.get("nextCursor").and_then(non_empty).map(str::to_owned), ..Page::default() };
    for tool in page.get("tools").and_then(Value::as_array).into_iter().flatten() {
        // More than a server may have cannot be meant for anybody.
        if read.tools.len() == MAX_SERVER_TOOLS {
            read.unusable += 1;
            continue;
        }
        match read_tool(tool) {
            Some(listed) if is_within(tool, MAX_TOOL_DEPTH) => read.tools.push(listed),
            Some(listed) => {
                read.unusable += 1;
                read.too_deep.push(listed.title);
            }
            None => read.unusable += 1,
        }
    }
    read
}

fn read_tool(tool: &Value) -> Option<Listed> {
    let name = tool.get("name").and_then(non_empty).filter(|name| name.len() <= MAX_LISTED_NAME)?;
    let annotations = tool.get("annotations");
    let hint = |key: &str| annotations?.get(key)?.as_bool();
    let title = tool.get("title").or_else(|| annotations?.get("title")).and_then(non_empty).unwrap_or(name);
    let description = tool.get("description").and_then(non_empty).unwrap_or_default();
    Some(Listed {
        tool: name.to_owned(),
        title: display::clean(&without_hidden(title).0, MAX_TITLE),
        description: clean_description(description),
        schema: clean_schema(tool.get("inputSchema").unwrap_or(&Value::Null)),
        hints: Hints {
            read_only: hint("readOnlyHint"),
            destructive: hint("destructiveHint"),
            open_world: hint("openWorldHint"),
        },
    })
}

/// Says whether a value is nested at most so deep.
fn is_within(value: &Value, depth: usize) -> bool {
    match value {
        Value::Array(several) => depth > 0 && several.iter().all(|value| is_within(value, depth - 1)),
        Value::Object(members) => depth > 0 && members.values().all(|value| is_within(value, depth - 1)),
        _ => true,
    }
}

fn non_empty(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

/// Returns what a model is told of a tool: at most [`MAX_DESCRIPTION`] bytes, without anything hidden.
#[must_use]
pub fn clean_description(description: &str) -> String {
    clean_text(description, MAX_DESCRIPTION)
}

/// Returns text of a server with at most `cap` bytes, its start and its end kept, without anything hidden.
fn clean_text(text: &str, cap: usize) -> String {
    // Text that is far too long is not looked at in full: only its ends can stay.
    let text = if text.len() > 16 * cap {
        let (head, tail) = (text.floor_char_boundary(4 * cap), text.ceil_char_boundary(text.len() - 4 * cap));
        format!("{}\n…\n{}", &text[..head], &text[tail..])
    } else {
        text.to_owned()
    };
    let (text, _) = without_hidden(&text.replace("\r\n", "\n"));
    // What says that something was cut takes room as well.
    let mut text = display::block(text.trim(), DESCRIPTION_LINES, cap.saturating_sub(96)).text;
    if text.len() > cap {
        text.truncate(text.floor_char_boundary(cap));
    }
    text
}

/// Returns text without characters that carry letters nobody sees, and how many there were.
///
/// Joiners stay: several scripts need them. What reorders text is left to whoever shows it.
fn without_hidden(text: &str) -> (String, usize) {
    let hidden = |character: &char| matches!(character, '\u{e0000}'..='\u{e0fff}' | '\u{200b}' | '\u{2060}'..='\u{2064}' | '\u{206a}'..='\u{206f}');
    let count = text.chars().filter(hidden).count();
    (text.chars().filter(|character| !hidden(character)).collect(), count)
}

/// Returns what a client is told a tool's kind is.
///
/// A server that says nothing may do anything. The kind chooses a picture and a word; whether somebody is asked does not
/// depend on it.
#[must_use]
pub fn kind(hints: Hints) -> ToolKind {
    match hints {
        Hints { read_only: Some(true), open_world: Some(true), .. } => ToolKind::Fetch,
        Hints { read_only: Some(true), .. } => ToolKind::Read,
        Hints { destructive: Some(true), .. } => ToolKind::Delete,
        Hints { .. } => ToolKind::Other,
    }
}

/// Returns what a server is called in names: a few letters, unlike any of `taken`.
#[must_use]
pub fn server_name(server: &str, taken: &[String]) -> String {
    let mut plain = letters(server);
    plain.truncate(SERVER_PART);
    if plain.is_empty() {
        plain.push_str("server");
    }
    let mut name = plain.clone();
    let mut number = 2;
    while taken.contains(&name) {
        name = format!("{plain}-{number}");
        number += 1;
    }
    name
}

/// Gives tools names that a model calls them by.
///
/// A name is `mcp__SERVER__TOOL` where that can be; tools whose names had to be changed or cut to fit, and would then be
/// called as another, have a hash of their own name at the end. So a name does not come to mean another tool when a
/// server lists its tools in another order.
#[derive(Debug, Default)]
pub struct Names {
    taken: HashSet<String>,
}

impl Names {
    /// Returns names for the tools of a server, in their order. `server` is what [`server_name`] made of its name.
    pub fn assign(&mut self, server: &str, tools: &[&str]) -> Vec<String> {
        let wanted: Vec<(String, bool)> = tools.iter().map(|tool| full_name(server, tool)).collect();
        let mut names = vec![None; tools.len()];
        // Those that are called as the server calls them come first.
        for exact in [true, false] {
            for (at, (name, is_exact)) in wanted.iter().enumerate() {
                if *is_exact == exact {
                    names[at] = Some(self.take(name, server, tools[at]));
                }
            }
        }
        names.into_iter().flatten().collect()
    }

    fn take(&mut self, name: &str, server: &str, tool: &str) -> String {
        let mut unique = name.to_owned();
        let mut number = 1;
        while !self.taken.insert(unique.clone()) {
            unique = hashed(name, server, tool, number);
            number += 1;
        }
        unique
    }
}

/// Returns the name of a tool, and whether both parts are in it as they are.
fn full_name(server: &str, tool: &str) -> (String, bool) {
    let letters = letters(tool);
    let exact = letters == tool;
    let plain = format!("{PREFIX}__{server}__{}", if letters.is_empty() { "tool" } else { &letters });
    if plain.len() <= MAX_NAME { (plain, exact) } else { (hashed(&plain, server, tool, 1), false) }
}

fn hashed(plain: &str, server: &str, tool: &str, number: usize) -> String {
    let mut hash = Sha256::new();
    for part in [server.as_bytes(), b"\0", tool.as_bytes(), b"\0", number.to_string().as_bytes()] {
        hash.update(part);
    }
    let suffix = hex(&hash.finalize()[..HASH_BYTES]);
    // Names have nothing but ASCII letters in them.
    format!("{}_{suffix}", &plain[..plain.len().min(MAX_NAME - suffix.len() - 1)])
}

fn letters(text: &str) -> String {
    let fits = |character: char| character.is_ascii_alphanumeric() || "_-".contains(character);
    let kept = text.chars().take(MAX_LISTED_NAME);
    kept.map(|character| if fits(character) { character } else { '_' }).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
