//! The tools by name, with the schemas and descriptions for a model and its user.

use std::sync::Arc;

use bowline_policy::own_tools::{OwnTool, PromptBehavior};
use bowline_tools::tools::schema::{
    APPEND_DESCRIPTION, DELETE_DESCRIPTION, EDIT_DESCRIPTION, LIST_DESCRIPTION, MOVE_DESCRIPTION,
    READ_DESCRIPTION, RUN_DESCRIPTION, STAT_DESCRIPTION, WRITE_DESCRIPTION, WRITE_FILES_DESCRIPTION,
    append_schema, boolean, delete_schema, edit_schema, integer, list_schema, move_schema, object,
    read_schema, run_schema, search_schema, stat_schema, string, string_enum, write_files_schema,
    write_schema,
};
use rmcp::model::{MetaObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

/// The set of tools that a server offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfferedTools {
    /// Reading, listing and searching.
    ReadOnly,
    /// The above, and changing files.
    Files,
    /// The above, and running commands.
    Everything,
    /// Reading and running commands, without changing files.
    ReadOnlyAndCommands,
    /// Only running commands.
    Commands,
}

/// The action of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToolAction {
    Read,
    Write,
    Edit,
    WriteFiles,
    Append,
    Delete,
    Move,
    List,
    Stat,
    Search,
    Execute,
    Output,
    Kill,
}

const TOOLS: &[(&str, ToolAction)] = &[
    ("read_text_file", ToolAction::Read),
    ("write_text_file", ToolAction::Write),
    ("edit_text_file", ToolAction::Edit),
    ("write_files", ToolAction::WriteFiles),
    ("append_file", ToolAction::Append),
    ("delete_file", ToolAction::Delete),
    ("move_file", ToolAction::Move),
    ("list_directory", ToolAction::List),
    ("stat_file", ToolAction::Stat),
    ("search_text", ToolAction::Search),
    ("execute", ToolAction::Execute),
    ("terminal_output", ToolAction::Output),
    ("kill_terminal", ToolAction::Kill),
];

const BINARY_DESCRIPTION: &str = "An image comes as an image, and other bytes as a resource.";

const SEARCH_DESCRIPTION: &str = "Searches the text of the project's files, and tells the lines that match with their numbers. Unsaved \
                      text of open documents is searched as the editor has it.";

const OUTPUT_DESCRIPTION: &str =
    "Returns what a command in the background has put out since the last look, and whether it has ended.";

const KILL_DESCRIPTION: &str =
    "Ends a command that runs in the background, with all that it started, and returns its last output.";

const ID_DESCRIPTION: &str = "The command's id, like bg1.";

/// With this key, Claude Code shows a tool to its model from the start. Otherwise it hides the tools of MCP servers
/// behind a search, and a model that does not search uses its built-in tools, bypassing the editor. qwen 0.24.4 hides
/// them too, but only its own settings can change that, not the protocol or a tool.
const ALWAYS_LOAD: &str = "anthropic/alwaysLoad";

impl ToolAction {
    fn is_read_only(self) -> bool {
        matches!(self, Self::Read | Self::List | Self::Stat | Self::Search | Self::Output)
    }

    fn changes_files(self) -> bool {
        match self {
            Self::Write | Self::Edit | Self::WriteFiles | Self::Append | Self::Delete | Self::Move => true,
            Self::Read | Self::List | Self::Stat | Self::Search => false,
            Self::Execute | Self::Output | Self::Kill => false,
        }
    }

    /// Returns whether it needs the methods of the file extension.
    fn needs_file_extension(self) -> bool {
        matches!(self, Self::WriteFiles | Self::Delete | Self::Move | Self::Stat)
    }
}

/// The tools that a session has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SessionTools {
    /// The tools of the server.
    pub(crate) offered_tools: OfferedTools,
    /// Whether the session's files have the methods of the file extension.
    pub(crate) has_file_extension: bool,
}

impl SessionTools {
    /// Returns whether files can be read.
    pub(crate) fn can_read(self) -> bool {
        self.includes(ToolAction::Read)
    }

    fn includes(self, action: ToolAction) -> bool {
        self.offered_tools.includes(action) && (self.has_file_extension || !action.needs_file_extension())
    }
}

impl OfferedTools {
    fn includes(self, action: ToolAction) -> bool {
        match action {
            ToolAction::Read | ToolAction::List | ToolAction::Stat | ToolAction::Search => {
                self != Self::Commands
            }
            action if action.changes_files() => matches!(self, Self::Files | Self::Everything),
            _ => !matches!(self, Self::ReadOnly | Self::Files),
        }
    }

    /// Returns the offered tools, for code that must recognise them in an agent's messages.
    #[must_use]
    pub fn tools(self) -> Vec<OwnTool> {
        let offered = TOOLS.iter().filter(|(_, action)| self.includes(*action));
        let tools = offered.map(|(name, action)| {
            let prompt_behavior = match action {
                action if action.changes_files() => PromptBehavior::BeforeWrite,
                ToolAction::Execute => PromptBehavior::BeforeRun,
                _ => PromptBehavior::Never,
            };
            let mut arguments = Vec::new();
            collect_property_names(build_tool(name, *action).input_schema.get("properties"), &mut arguments);
            OwnTool { name, prompt_behavior, arguments }
        });
        tools.collect()
    }
}

/// Collects the property names of a schema. Those of list items are included, because a single item may be given
/// without the list.
fn collect_property_names(properties: Option<&Value>, names: &mut Vec<String>) {
    for (name, schema) in properties.and_then(Value::as_object).into_iter().flatten() {
        names.push(name.clone());
        collect_property_names(schema["items"].get("properties"), names);
    }
}

/// Returns the action of a tool, if it is offered.
pub(crate) fn find_tool(tools: SessionTools, name: &str) -> Option<ToolAction> {
    TOOLS
        .iter()
        .find(|(known_name, _)| *known_name == name)
        .map(|(_, action)| *action)
        .filter(|action| tools.includes(*action))
}

/// Describes why a tool is not available, and names those that are.
pub(crate) fn describe_missing_tool(tools: SessionTools, name: &str) -> String {
    let name = bowline_text::display::escape_line(name, 100);
    let names: Vec<&str> =
        TOOLS.iter().filter(|(_, action)| tools.includes(*action)).map(|(name, _)| *name).collect();
    let is_known = TOOLS.iter().any(|(known_name, _)| *known_name == name);
    let reason = if is_known { "is not offered here" } else { "is no tool of this server" };
    format!("{name} {reason}: the tools are {}", names.join(", "))
}

/// Returns the offered tools.
pub(crate) fn list_tools(tools: SessionTools) -> Vec<Tool> {
    TOOLS
        .iter()
        .filter(|(_, action)| tools.includes(*action))
        .map(|(name, action)| {
            let mut tool = build_tool(name, *action);
            if tools.has_file_extension && *action == ToolAction::Read {
                tool.description = Some(format!("{READ_DESCRIPTION} {BINARY_DESCRIPTION}").into());
            }
            tool
        })
        .collect()
}

fn build_tool(name: &'static str, action: ToolAction) -> Tool {
    let (title, text, schema) = match action {
        ToolAction::Read => ("Read file", READ_DESCRIPTION, read_schema()),
        ToolAction::Write => ("Write file", WRITE_DESCRIPTION, write_schema()),
        ToolAction::Edit => ("Edit file", EDIT_DESCRIPTION, edit_schema()),
        ToolAction::WriteFiles => ("Write files", WRITE_FILES_DESCRIPTION, write_files_schema()),
        ToolAction::Append => ("Append to file", APPEND_DESCRIPTION, append_schema()),
        ToolAction::Delete => ("Delete file", DELETE_DESCRIPTION, delete_schema()),
        ToolAction::Move => ("Move file", MOVE_DESCRIPTION, move_schema()),
        ToolAction::Stat => ("Describe file", STAT_DESCRIPTION, stat_schema()),
        ToolAction::List => ("List directory", LIST_DESCRIPTION, list_schema()),
        ToolAction::Search => ("Search text", SEARCH_DESCRIPTION, search_schema()),
        ToolAction::Execute => ("Run command", RUN_DESCRIPTION, run_schema()),
        ToolAction::Output => {
            let wait = integer("How long to wait for its end; not at all if left out.");
            (
                "Output of a command",
                OUTPUT_DESCRIPTION,
                object(&[("id", string(ID_DESCRIPTION))], &[("wait_seconds", wait)]),
            )
        }
        ToolAction::Kill => {
            ("End a command", KILL_DESCRIPTION, object(&[("id", string(ID_DESCRIPTION))], &[]))
        }
    };
    let mut tool = Tool::new(name, text, into_fields(schema));
    tool.title = Some(title.to_owned());
    tool.output_schema = output_schema(action).map(|schema| Arc::new(into_fields(schema)));
    tool.annotations = Some(annotations(title, action));
    tool.meta = Some(MetaObject(into_fields(json!({ ALWAYS_LOAD: true }))));
    tool
}

/// Returns hints for the client's user. An edit can be undone and is merged with the user's changes, but it replaces
/// text in the file and so counts as destructive. A command may do anything.
fn annotations(title: &str, action: ToolAction) -> ToolAnnotations {
    let is_read_only = action.is_read_only();
    let mut hints = ToolAnnotations::new();
    hints.title = Some(title.to_owned());
    hints.read_only_hint = Some(is_read_only);
    hints.open_world_hint = Some(action == ToolAction::Execute);
    if !is_read_only {
        hints.destructive_hint = Some(action != ToolAction::Append);
        hints.idempotent_hint =
            Some(matches!(action, ToolAction::Write | ToolAction::WriteFiles | ToolAction::Kill));
    }
    hints
}

/// Returns the schema of a tool's structured output, if it has any.
fn output_schema(action: ToolAction) -> Option<Value> {
    let list = |description: &str, item: Value| json!({ "type": "array", "items": item, "description": description });
    let outcome = || {
        let mut outcome = string_enum(&["created", "replaced", "merged", "unchanged"]);
        outcome["description"] = json!("What became of it; merged: with changes that others made meanwhile.");
        outcome
    };
    let path = || ("path", string("The file."));
    let message = || ("message", string("The same as the text of the answer."));
    let changed = || object(&[path(), ("outcome", outcome()), message()], &[]);
    let command_result = || {
        object(
            &[
                ("status", string("What became of the command.")),
                ("output", string("Its output: the new part of it, if there was a look before.")),
            ],
            &[
                ("exitCode", integer("If it ended by itself.")),
                ("signal", string("If a signal ended it.")),
                ("running", boolean("Whether it runs on.")),
                ("timedOut", boolean("Whether it was ended because it took too long.")),
                ("truncated", boolean("Whether some of its output is missing.")),
                ("id", string("Of a command in the background.")),
            ],
        )
    };
    match action {
        // Its answer is text. Some clients show a model only the structured output if there is any.
        ToolAction::Read | ToolAction::Stat | ToolAction::Delete | ToolAction::Move => None,
        ToolAction::Write | ToolAction::Edit | ToolAction::Append => Some(changed()),
        ToolAction::WriteFiles => {
            let files = list("The files.", object(&[path(), ("outcome", outcome())], &[]));
            Some(object(&[("files", files), message()], &[]))
        }
        ToolAction::List => {
            let mut kind = string_enum(&["file", "directory", "other"]);
            kind["description"] = json!("What it is.");
            let entry = object(
                &[("path", string("From the directory on.")), ("kind", kind), ("size", integer("In bytes."))],
                &[],
            );
            let entries = list("What is there.", entry);
            Some(object(&[("entries", entries), ("truncated", boolean("Whether there are more."))], &[]))
        }
        ToolAction::Search => {
            let hit = object(
                &[
                    ("path", string("The file.")),
                    ("line", integer("Counted from 1.")),
                    ("column", integer("Where the match begins, in bytes of the line.")),
                    ("text", string("The line, or as much of it as can be shown.")),
                ],
                &[],
            );
            let matches = list("The lines that match.", hit);
            let files = integer("How many files were searched.");
            let truncated = boolean("Whether there may be more.");
            Some(object(&[("matches", matches), ("filesSearched", files), ("truncated", truncated)], &[]))
        }
        ToolAction::Execute | ToolAction::Output | ToolAction::Kill => Some(command_result()),
    }
}

fn into_fields(schema: Value) -> serde_json::Map<String, Value> {
    match schema {
        Value::Object(fields) => fields,
        // Every schema here is an object.
        _ => serde_json::Map::new(),
    }
}
