//! Which server is a workspace: one whose tools read, look around, write and run as Bowline's own do.
//!
//! A name proves nothing, so a server is known by the schemas of its tools: what they have to be called with, and what
//! they may be. A tool that may be called with more than that is still the same.

use serde_json::Value;

use super::Listed;
use crate::tooling::schema::{
    edit_schema, list_schema, number, object, read_schema, run_schema, search_schema, string, write_schema,
};

/// Reads a file.
pub const READ: &str = "read_text_file";
/// Writes a file.
pub const WRITE: &str = "write_text_file";
/// Edits a file.
pub const EDIT: &str = "edit_text_file";
/// Lists a directory.
pub const LIST: &str = "list_directory";
/// Searches texts.
pub const SEARCH: &str = "search_text";
/// Runs a command.
pub const RUN: &str = "execute";
/// Returns what a command in the background has put out.
pub const OUTPUT: &str = "terminal_output";
/// Ends a command in the background.
pub const KILL: &str = "kill_terminal";

/// The names of all tools that a workspace may have.
pub const ALL: [&str; 8] = [READ, WRITE, EDIT, LIST, SEARCH, RUN, OUTPUT, KILL];

/// What a workspace does beside reading and looking around, which each of them does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Workspace {
    /// It writes and edits files.
    pub writes: bool,
    /// It runs commands, in the background too.
    pub runs: bool,
}

/// Says what a server with these tools does as a workspace; nothing if it is none.
#[must_use]
pub fn recognise(tools: &[Listed]) -> Option<Workspace> {
    let has = |name: &str, schema: &Value| {
        tools.iter().any(|tool| tool.tool == name && is_called_alike(schema, &tool.schema))
    };
    let is_workspace =
        has(READ, &read_schema()) && has(LIST, &list_schema()) && has(SEARCH, &search_schema());
    let id = || [("id", string(""))];
    is_workspace.then(|| Workspace {
        writes: has(WRITE, &write_schema()) && has(EDIT, &edit_schema()),
        runs: has(RUN, &run_schema())
            && has(OUTPUT, &object(&id(), &[("wait_seconds", number(""))]))
            && has(KILL, &object(&id(), &[])),
    })
}

/// Says whether what is called by one schema can be called by the other.
fn is_called_alike(ours: &Value, theirs: &Value) -> bool {
    let names = |schema: &Value| {
        let mut names: Vec<String> = required(schema).map(str::to_owned).collect();
        names.sort_unstable();
        names
    };
    let there = &theirs["properties"];
    let mut fields = ours["properties"].as_object().into_iter().flat_map(|fields| fields.keys());
    names(ours) == names(theirs) && fields.all(|field| there.get(field).is_some())
}

fn required(schema: &Value) -> impl Iterator<Item = &str> {
    schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests;
