//! Workspace detection: which server has tools that read, list, search, write and run as Bowline's own do.
//!
//! A name proves nothing, so a server is recognised by the schemas of its tools: the required arguments must be the
//! same, and every property of ours must exist. Additional optional properties do not matter.

use serde_json::Value;

use super::ListedTool;
use crate::tools::schema::{
    append_schema, delete_schema, edit_schema, integer, list_schema, move_schema, object, read_schema,
    run_schema, search_schema, stat_schema, string, write_files_schema, write_schema,
};

/// Reads a file.
pub const READ_TOOL: &str = "read_text_file";
/// Writes a file.
pub const WRITE_TOOL: &str = "write_text_file";
/// Edits a file.
pub const EDIT_TOOL: &str = "edit_text_file";
/// Lists a directory.
pub const LIST_TOOL: &str = "list_directory";
/// Describes a file.
pub const STAT_TOOL: &str = "stat_file";
/// Writes several files.
pub const WRITE_FILES_TOOL: &str = "write_files";
/// Appends to a file.
pub const APPEND_TOOL: &str = "append_file";
/// Deletes a file.
pub const DELETE_TOOL: &str = "delete_file";
/// Moves a file.
pub const MOVE_TOOL: &str = "move_file";
/// Searches texts.
pub const SEARCH_TOOL: &str = "search_text";
/// Runs a command.
pub const RUN_TOOL: &str = "execute";
/// Returns the output of a background command.
pub const OUTPUT_TOOL: &str = "terminal_output";
/// Kills a background command.
pub const KILL_TOOL: &str = "kill_terminal";

/// The names of all tools that a workspace may have.
pub const ALL_TOOLS: [&str; 13] = [
    READ_TOOL, WRITE_TOOL, EDIT_TOOL, LIST_TOOL, SEARCH_TOOL, STAT_TOOL, WRITE_FILES_TOOL, APPEND_TOOL,
    DELETE_TOOL, MOVE_TOOL, RUN_TOOL, OUTPUT_TOOL, KILL_TOOL,
];

/// The abilities of a workspace beyond reading, listing and searching, which every workspace has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkspaceToolset {
    /// Writing and editing files.
    pub can_write: bool,
    /// Describing files.
    pub can_stat: bool,
    /// Writing several files at once, appending, deleting and moving.
    pub can_batch: bool,
    /// Running commands, including in the background.
    pub can_run: bool,
}

/// Returns the abilities of a server as a workspace; `None` if it is not one.
#[must_use]
pub fn recognise_workspace(tools: &[ListedTool]) -> Option<WorkspaceToolset> {
    let has_tool = |name: &str, schema: &Value| {
        tools.iter().any(|tool| tool.name == name && accepts_same_arguments(schema, &tool.schema))
    };
    let is_workspace = has_tool(READ_TOOL, &read_schema())
        && has_tool(LIST_TOOL, &list_schema())
        && has_tool(SEARCH_TOOL, &search_schema());
    let id = || [("id", string(""))];
    is_workspace.then(|| WorkspaceToolset {
        can_write: has_tool(WRITE_TOOL, &write_schema()) && has_tool(EDIT_TOOL, &edit_schema()),
        can_stat: has_tool(STAT_TOOL, &stat_schema()),
        can_batch: has_tool(WRITE_FILES_TOOL, &write_files_schema())
            && has_tool(APPEND_TOOL, &append_schema())
            && has_tool(DELETE_TOOL, &delete_schema())
            && has_tool(MOVE_TOOL, &move_schema()),
        can_run: has_tool(RUN_TOOL, &run_schema())
            && has_tool(OUTPUT_TOOL, &object(&id(), &[("wait_seconds", integer(""))]))
            && has_tool(KILL_TOOL, &object(&id(), &[])),
    })
}

/// Returns whether `theirs` requires the same arguments as `ours` and knows all properties of `ours`.
fn accepts_same_arguments(ours: &Value, theirs: &Value) -> bool {
    let names = |schema: &Value| {
        let mut names: Vec<String> = required_names(schema).map(str::to_owned).collect();
        names.sort_unstable();
        names
    };
    let properties = &theirs["properties"];
    let mut fields = ours["properties"].as_object().into_iter().flat_map(|fields| fields.keys());
    names(ours) == names(theirs) && fields.all(|field| properties.get(field).is_some())
}

fn required_names(schema: &Value) -> impl Iterator<Item = &str> {
    schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests;
