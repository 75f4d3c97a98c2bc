//! The tools of MCP servers, under names and texts that are safe for a model.
//!
//! A server can describe its tools as it likes, and a model believes what it reads. So no server text is passed on
//! verbatim: names are reduced to a few characters, texts are truncated and stripped of hidden characters, schemas are
//! reduced to what model providers accept, and tool output is marked as data with its origin.

mod output;
mod schema;
pub mod workspace;

use std::collections::HashSet;

use serde_json::Value;

use bowline_text::display;
use bowline_text::hash::ContentHasher;

pub use output::{
    MAX_IMAGE_BYTES, MAX_IMAGES, MAX_TEXT_BYTES, McpCallOutput, format_progress_title, label_output,
    parse_call_output,
};
pub use schema::{MAX_SCHEMA_BYTES, MAX_SCHEMA_DEPTH, clean_schema};

/// The maximum number of tools per server; the rest are left out.
pub const MAX_SERVER_TOOLS: usize = 128;
/// The maximum number of tools of all servers together.
pub const MAX_TOOLS: usize = 512;
/// The maximum length of a tool name that every model provider accepts, in bytes.
pub const MAX_NAME_BYTES: usize = 64;
/// The maximum length of a description, in bytes.
pub const MAX_DESCRIPTION_BYTES: usize = 4096;
/// The maximum length of a title, in bytes.
pub const MAX_TITLE_BYTES: usize = 120;
/// The maximum length of a server's name for a tool, in bytes. Tools with longer names are left out.
pub const MAX_LISTED_NAME_BYTES: usize = 512;

/// The maximum nesting depth of a tool definition. More deeply nested tools are left out.
pub const MAX_TOOL_DEPTH: usize = 64;

/// The maximum number of lines in a description.
const MAX_DESCRIPTION_LINES: usize = 120;
/// The prefix of tool names, which separates them from the agent's own tools.
const NAME_PREFIX: &str = "mcp";
/// The maximum length of the server part of a name, in bytes.
const MAX_SERVER_NAME_BYTES: usize = 24;
/// The number of hash bytes that distinguish otherwise equal names.
const NAME_HASH_BYTES: usize = 4;

/// A tool from a server's list, sanitised.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedTool {
    /// The server's name for it, verbatim.
    pub name: String,
    /// The title for people.
    pub title: String,
    /// The description for the model.
    pub description: String,
    /// The JSON schema of its input, an object.
    pub schema: Value,
}

/// One page of a server's list of tools.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolListPage {
    /// The usable tools.
    pub tools: Vec<ListedTool>,
    /// The number of unusable tools: beyond the limit, without a valid name, or too deeply nested.
    pub unusable_count: usize,
    /// The titles of tools nested deeper than [`MAX_TOOL_DEPTH`].
    pub too_deep: Vec<String>,
    /// The cursor of the next page.
    pub next_cursor: Option<String>,
}

/// Parses a page of a server's list of tools. An unreadable tool does not affect the others.
#[must_use]
pub fn parse_tool_page(page: &Value) -> ToolListPage {
    let mut read = ToolListPage {
        next_cursor: page.get("nextCursor").and_then(non_empty_str).map(str::to_owned),
        ..ToolListPage::default()
    };
    for tool in page.get("tools").and_then(Value::as_array).into_iter().flatten() {
        // Tools beyond the limit of a server are unusable.
        if read.tools.len() == MAX_SERVER_TOOLS {
            read.unusable_count += 1;
            continue;
        }
        match parse_tool(tool) {
            Some(listed) if is_within_depth(tool, MAX_TOOL_DEPTH) => read.tools.push(listed),
            Some(listed) => {
                read.unusable_count += 1;
                read.too_deep.push(listed.title);
            }
            None => read.unusable_count += 1,
        }
    }
    read
}

fn parse_tool(tool: &Value) -> Option<ListedTool> {
    let name = tool.get("name").and_then(non_empty_str).filter(|name| name.len() <= MAX_LISTED_NAME_BYTES)?;
    let annotations = tool.get("annotations");
    let title =
        tool.get("title").or_else(|| annotations?.get("title")).and_then(non_empty_str).unwrap_or(name);
    let description = tool.get("description").and_then(non_empty_str).unwrap_or_default();
    Some(ListedTool {
        name: name.to_owned(),
        title: display::escape_truncated(&strip_hidden(title).0, MAX_TITLE_BYTES),
        description: clean_description(description),
        schema: clean_schema(tool.get("inputSchema").unwrap_or(&Value::Null)),
    })
}

/// Returns whether a value is nested at most `depth` levels deep.
fn is_within_depth(value: &Value, depth: usize) -> bool {
    match value {
        Value::Array(several) => depth > 0 && several.iter().all(|value| is_within_depth(value, depth - 1)),
        Value::Object(members) => {
            depth > 0 && members.values().all(|value| is_within_depth(value, depth - 1))
        }
        _ => true,
    }
}

fn non_empty_str(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

/// Returns the description for the model: at most [`MAX_DESCRIPTION_BYTES`] bytes, without hidden characters.
#[must_use]
pub fn clean_description(description: &str) -> String {
    clean_text(description, MAX_DESCRIPTION_BYTES)
}

/// Returns server text of at most `cap` bytes, without hidden characters. Truncation keeps the start and the end.
fn clean_text(text: &str, cap: usize) -> String {
    // Only the two ends of an overlong text are examined, since nothing else can remain.
    let text = if text.len() > 16 * cap {
        let (head, tail) = (text.floor_char_boundary(4 * cap), text.ceil_char_boundary(text.len() - 4 * cap));
        format!("{}\n…\n{}", &text[..head], &text[tail..])
    } else {
        text.to_owned()
    };
    let (text, _) = strip_hidden(&text.replace("\r\n", "\n"));
    // The truncation mark takes room as well.
    let mut text = display::escape_block(text.trim(), MAX_DESCRIPTION_LINES, cap.saturating_sub(96)).text;
    if text.len() > cap {
        text.truncate(text.floor_char_boundary(cap));
    }
    text
}

/// Returns text without characters that encode invisible data, and the number removed.
///
/// Joiners stay, since several scripts need them. Escaping reordering characters is left to the display.
fn strip_hidden(text: &str) -> (String, usize) {
    let hidden = |character: &char| matches!(character, '\u{e0000}'..='\u{e0fff}' | '\u{200b}' | '\u{2060}'..='\u{2064}' | '\u{206a}'..='\u{206f}');
    let count = text.chars().filter(hidden).count();
    (text.chars().filter(|character| !hidden(character)).collect(), count)
}

/// Returns a server's name for use in tool names: a few characters, different from all of `taken`.
#[must_use]
pub fn unique_server_name(server: &str, taken: &[String]) -> String {
    let mut plain = to_name_letters(server);
    plain.truncate(MAX_SERVER_NAME_BYTES);
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

/// Assigns the names by which a model calls tools.
///
/// A name is `mcp__SERVER__TOOL` where possible. A name that is too long or already taken gets a hash of the original
/// names as a suffix; tools whose names need no change come first. So an unchanged name keeps its meaning when a server
/// lists its tools in another order.
#[derive(Debug, Default)]
pub struct ToolNameAllocator {
    taken: HashSet<String>,
}

impl ToolNameAllocator {
    /// Returns names for the tools of a server, in order. `server` is the result of [`unique_server_name`].
    pub fn assign(&mut self, server: &str, tools: &[&str]) -> Vec<String> {
        let candidates: Vec<(String, bool)> = tools.iter().map(|tool| make_tool_name(server, tool)).collect();
        let mut names = vec![None; tools.len()];
        // Tools that keep their exact names take precedence.
        for exact in [true, false] {
            for (at, (name, is_exact)) in candidates.iter().enumerate() {
                if *is_exact == exact {
                    names[at] = Some(self.take_unique(name, server, tools[at]));
                }
            }
        }
        names.into_iter().flatten().collect()
    }

    fn take_unique(&mut self, name: &str, server: &str, tool: &str) -> String {
        let mut unique = name.to_owned();
        let mut number = 1;
        while !self.taken.insert(unique.clone()) {
            unique = hashed_name(name, server, tool, number);
            number += 1;
        }
        unique
    }
}

/// Returns the name of a tool, and whether it contains both parts unchanged.
fn make_tool_name(server: &str, tool: &str) -> (String, bool) {
    let letters = to_name_letters(tool);
    let exact = letters == tool;
    let plain = format!("{NAME_PREFIX}__{server}__{}", if letters.is_empty() { "tool" } else { &letters });
    if plain.len() <= MAX_NAME_BYTES { (plain, exact) } else { (hashed_name(&plain, server, tool, 1), false) }
}

fn hashed_name(plain: &str, server: &str, tool: &str, number: usize) -> String {
    let mut hasher = ContentHasher::default();
    for part in [server.as_bytes(), b"\0", tool.as_bytes(), b"\0", number.to_string().as_bytes()] {
        hasher.update(part);
    }
    let suffix = to_hex(&hasher.finish().as_bytes()[..NAME_HASH_BYTES]);
    // Names contain only ASCII characters.
    format!("{}_{suffix}", &plain[..plain.len().min(MAX_NAME_BYTES - suffix.len() - 1)])
}

fn to_name_letters(text: &str) -> String {
    let fits = |character: char| character.is_ascii_alphanumeric() || "_-".contains(character);
    let kept = text.chars().take(MAX_LISTED_NAME_BYTES);
    kept.map(|character| if fits(character) { character } else { '_' }).collect()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
