//! The tools by name: which there are, and what a model and its user are told of each.

use std::sync::Arc;

use bowline_state::relay::own_tools::{Care, OwnTool};
use bowline_state::tooling::schema::{
    EDIT, LIST, READ, RUN, WRITE, edit_schema, list_schema, number, object, one_of, read_schema, run_schema,
    search_schema, string, truth, write_schema,
};
use rmcp::model::{MetaObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

/// What a server offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// Reading, listing and searching.
    Reading,
    /// That, and changing files.
    Files,
    /// That, and running commands.
    Everything,
    /// Reading and running commands, and changing nothing.
    ReadingAndCommands,
    /// Running commands alone.
    Commands,
}

/// What a tool does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Does {
    Read,
    Write,
    Edit,
    List,
    Search,
    Execute,
    Output,
    Kill,
}

const ALL: &[(&str, Does)] = &[
    ("read_text_file", Does::Read),
    ("write_text_file", Does::Write),
    ("edit_text_file", Does::Edit),
    ("list_directory", Does::List),
    ("search_text", Does::Search),
    ("execute", Does::Execute),
    ("terminal_output", Does::Output),
    ("kill_terminal", Does::Kill),
];

const SEARCH: &str = "Searches the text of the project's files, and tells the lines that match with their numbers. Unsaved \
                      text of open documents is searched as the editor has it.";

const OUTPUT: &str =
    "Returns what a command in the background has put out since the last look, and whether it has ended.";

const KILL: &str =
    "Ends a command that runs in the background, with all that it started, and returns its last output.";

const ID: &str = "The command's id, like bg1.";

/// By this Claude Code shows a tool to its model from the beginning. It hides tools of MCP servers behind a search otherwise, and
/// a model that does not search uses its own, past the editor. qwen 0.24.4 hides them too, and has a setting of its own for it
/// that nothing in the protocol or in a tool can set.
const ALWAYS_LOAD: &str = "anthropic/alwaysLoad";

impl Offer {
    fn has(self, does: Does) -> bool {
        match does {
            Does::Read | Does::List | Does::Search => self != Self::Commands,
            Does::Write | Does::Edit => matches!(self, Self::Files | Self::Everything),
            Does::Execute | Does::Output | Does::Kill => !matches!(self, Self::Reading | Self::Files),
        }
    }
}

impl Offer {
    /// Returns the tools that are offered, for whoever has to know them when an agent speaks of them.
    #[must_use]
    pub fn tools(self) -> Vec<OwnTool> {
        let offered = ALL.iter().filter(|(_, does)| self.has(*does));
        let described = offered.map(|(name, does)| {
            let care = match does {
                Does::Write | Does::Edit => Care::AsksToWrite,
                Does::Execute => Care::AsksToRun,
                Does::Read | Does::List | Does::Search | Does::Output | Does::Kill => Care::Looks,
            };
            let mut arguments = Vec::new();
            named(tool(name, *does).input_schema.get("properties"), &mut arguments);
            OwnTool { name, care, arguments }
        });
        described.collect()
    }
}

/// Collects the names of what a schema describes. What is in a list may be given without the list.
fn named(properties: Option<&Value>, into: &mut Vec<String>) {
    for (name, schema) in properties.and_then(Value::as_object).into_iter().flatten() {
        into.push(name.clone());
        named(schema["items"].get("properties"), into);
    }
}

/// Returns what a tool of that name does, if it is offered.
pub(crate) fn find(offer: Offer, name: &str) -> Option<Does> {
    ALL.iter().find(|(its, _)| *its == name).map(|(_, does)| *does).filter(|does| offer.has(*does))
}

/// Says why there is no tool of a name, and which there are.
pub(crate) fn missing(offer: Offer, name: &str) -> String {
    let name = bowline_state::display::line(name, 100);
    let names: Vec<&str> = ALL.iter().filter(|(_, does)| offer.has(*does)).map(|(name, _)| *name).collect();
    let is_known = ALL.iter().any(|(its, _)| *its == name);
    let why = if is_known { "is not offered here" } else { "is no tool of this server" };
    format!("{name} {why}: the tools are {}", names.join(", "))
}

/// Returns the tools that are offered.
pub(crate) fn tools(offer: Offer) -> Vec<Tool> {
    ALL.iter().filter(|(_, does)| offer.has(*does)).map(|(name, does)| tool(name, *does)).collect()
}

fn tool(name: &'static str, does: Does) -> Tool {
    let (title, text, schema) = match does {
        Does::Read => ("Read file", READ, read_schema()),
        Does::Write => ("Write file", WRITE, write_schema()),
        Does::Edit => ("Edit file", EDIT, edit_schema()),
        Does::List => ("List directory", LIST, list_schema()),
        Does::Search => ("Search text", SEARCH, search_schema()),
        Does::Execute => ("Run command", RUN, run_schema()),
        Does::Output => {
            let wait = number("How long to wait for its end; not at all if left out.");
            ("Output of a command", OUTPUT, object(&[("id", string(ID))], &[("wait_seconds", wait)]))
        }
        Does::Kill => ("End a command", KILL, object(&[("id", string(ID))], &[])),
    };
    let mut tool = Tool::new(name, text, fields(schema));
    tool.title = Some(title.to_owned());
    tool.output_schema = output(does).map(|schema| Arc::new(fields(schema)));
    tool.annotations = Some(annotations(title, does));
    tool.meta = Some(MetaObject(fields(json!({ ALWAYS_LOAD: true }))));
    tool
}

/// Returns hints for the client's user. An edit can be taken back and is merged with what the user did, but what was in
/// the file is replaced: that counts as destructive. A command may do anything.
fn annotations(title: &str, does: Does) -> ToolAnnotations {
    let reads = matches!(does, Does::Read | Does::List | Does::Search | Does::Output);
    let mut hints = ToolAnnotations::new();
    hints.title = Some(title.to_owned());
    hints.read_only_hint = Some(reads);
    hints.open_world_hint = Some(does == Does::Execute);
    if !reads {
        hints.destructive_hint = Some(true);
        hints.idempotent_hint = Some(matches!(does, Does::Write | Does::Kill));
    }
    hints
}

/// Returns what the structured output of a tool is, if it has one.
fn output(does: Does) -> Option<Value> {
    let list = |what: &str, item: Value| json!({ "type": "array", "items": item, "description": what });
    let changed = || {
        let mut outcome = one_of(&["created", "replaced", "merged", "unchanged"]);
        outcome["description"] =
            json!("What became of it; merged: with what somebody else changed meanwhile.");
        object(
            &[
                ("path", string("The file.")),
                ("outcome", outcome),
                ("message", string("The same as the text of the answer.")),
            ],
            &[],
        )
    };
    let ran = || {
        object(
            &[
                ("status", string("What became of the command.")),
                ("output", string("Its output: the new part of it, if there was a look before.")),
            ],
            &[
                ("exitCode", number("If it ended by itself.")),
                ("signal", string("If a signal ended it.")),
                ("running", truth("Whether it runs on.")),
                ("timedOut", truth("Whether it was ended because it took too long.")),
                ("truncated", truth("Whether some of its output is missing.")),
                ("id", string("Of a command in the background.")),
            ],
        )
    };
    match does {
        // Its text is the answer. Some clients show a model nothing but structured output if there is any.
        Does::Read => None,
        Does::Write | Does::Edit => Some(changed()),
        Does::List => {
            let mut kind = one_of(&["file", "directory", "other"]);
            kind["description"] = json!("What it is.");
            let entry = object(
                &[("path", string("From the directory on.")), ("kind", kind), ("size", number("In bytes."))],
                &[],
            );
            let entries = list("What is there.", entry);
            Some(object(&[("entries", entries), ("truncated", truth("Whether there are more."))], &[]))
        }
        Does::Search => {
            let hit = object(
                &[
                    ("path", string("The file.")),
                    ("line", number("Counted from 1.")),
                    ("column", number("Where the match begins, in bytes of the line.")),
                    ("text", string("The line, or as much of it as can be shown.")),
                ],
                &[],
            );
            let matches = list("The lines that match.", hit);
            let files = number("How many files were searched.");
            let truncated = truth("Whether there may be more.");
            Some(object(&[("matches", matches), ("filesSearched", files), ("truncated", truncated)], &[]))
        }
        Does::Execute | Does::Output | Does::Kill => Some(ran()),
    }
}

fn fields(schema: Value) -> serde_json::Map<String, Value> {
    match schema {
        Value::Object(fields) => fields,
        // Every schema here is an object.
        _ => serde_json::Map::new(),
    }
}
