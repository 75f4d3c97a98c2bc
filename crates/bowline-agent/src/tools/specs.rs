//! The tools by name: which there are in a session, what a model is told of each, and what is said of those that are not.

use bowline_state::conversation::ToolSpec;
use bowline_state::mode::Mode;
use bowline_state::tooling::schema::{
    EDIT, LIST, READ, RUN, WRITE, edit_schema, list_schema, number, object, one_of, read_schema, run_schema,
    search_schema, string, write_schema,
};
use serde_json::{Value, json};

use super::Side;
use crate::runtime::{Choice, Server};
use crate::settings::ToolSet;

/// What a tool does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    Read(Server),
    Write(Side),
    Edit(Side),
    List,
    Search,
    Execute(Server),
    Output,
    Kill,
    Plan,
}

impl Tool {
    /// Says whether it changes or runs something. To end a command that runs may always be done.
    pub(crate) fn changes(self) -> bool {
        match self {
            Self::Write(_) | Self::Edit(_) | Self::Execute(_) => true,
            Self::Read(_) | Self::List | Self::Search | Self::Output | Self::Kill | Self::Plan => false,
        }
    }
}

/// A tool with its name.
pub(crate) struct Named {
    pub(crate) name: &'static str,
    pub(crate) tool: Tool,
    // What the model is told.
    text: String,
    schema: Value,
}

impl Named {
    pub(crate) fn spec(&self) -> ToolSpec {
        ToolSpec { name: self.name.to_owned(), description: self.text.clone(), schema: self.schema.clone() }
    }
}

/// Returns the tools of a session, whatever its mode.
pub(crate) fn tools(set: ToolSet, choice: Choice, shell: bool) -> Vec<Named> {
    let mut tools = match set {
        ToolSet::Transparent => transparent(choice, shell),
        ToolSet::Dual => dual(choice, shell),
    };
    tools.push(named("list_directory", Tool::List, LIST, list_schema()));
    tools.push(named(
        "search_text",
        Tool::Search,
        "Searches the text of the project's files, and tells the lines that match with their numbers. Unsaved text of \
         files that were read through the editor is searched as the editor has it.",
        search_schema(),
    ));
    if shell {
        tools.push(named(
            "execute_output",
            Tool::Output,
            "Returns what a command in the background has put out since the last look, and whether it has ended.",
            object(&[("id", string("The command's id, like bg1."))], &[("wait_seconds", number("How long to wait for its end; not at all if left out."))]),
        ));
        tools.push(named(
            "execute_kill",
            Tool::Kill,
            "Ends a command that runs in the background, and returns its last output.",
            object(&[("id", string("The command's id, like bg1."))], &[]),
        ));
    }
    let entry = object(
        &[
            ("content", string("What is to be done.")),
            ("status", one_of(&["pending", "in_progress", "completed"])),
            ("priority", one_of(&["high", "medium", "low"])),
        ],
        &[],
    );
    tools.push(named(
        "update_plan",
        Tool::Plan,
        "Shows the user the plan for a task of several steps. Always give the whole plan; have one entry in progress, and \
         mark what is done at once.",
        object(&[("entries", json!({ "type": "array", "items": entry }))], &[]),
    ));
    tools
}

fn transparent(Choice { read, write, terminal }: Choice, shell: bool) -> Vec<Named> {
    let side = Side { read: Some(read), write };
    let mut tools = vec![
        named("read_text_file", Tool::Read(read), READ, read_schema()),
        named("write_text_file", Tool::Write(side), WRITE, write_schema()),
        named("edit_text_file", Tool::Edit(side), EDIT, edit_schema()),
    ];
    if shell {
        tools.push(named("execute", Tool::Execute(terminal), RUN, run_schema()));
    }
    tools
}

/// Whose machine the tools of the editor act on, and whose the others do: a model mixes them up if nobody says.
const USERS: &str = "On the USER'S machine, in the user's editor: sees unsaved text, and the user sees what is done. Use it \
                     for all files of the user's project.";
const OWN: &str = "On the AGENT'S OWN machine, not in the user's editor: unsaved text is not seen there.";

fn dual(choice: Choice, shell: bool) -> Vec<Named> {
    let has = |by: Server| by == Server::Client;
    let (reads, writes, runs) = (has(choice.read), has(choice.write), has(choice.terminal));
    let ide = Side { read: reads.then_some(Server::Client), write: Server::Client };
    let own = Side { read: Some(Server::Local), write: Server::Local };
    let on = |where_: &str, text: &str, else_: &str| format!("{where_} {text} {else_}");
    let mut tools = Vec::new();
    let instead = |there: bool, name: &str| {
        if there { format!("For the user's project use {name} instead.") } else { String::new() }
    };
    if reads {
        let text = on(USERS, READ, "");
        tools.push(named("ide_read_file", Tool::Read(Server::Client), text.trim(), read_schema()));
    }
    if writes {
        let text = on(USERS, WRITE, "");
        tools.push(named("ide_write_file", Tool::Write(ide), text.trim(), write_schema()));
    }
    if reads && writes {
        let text = on(USERS, EDIT, "");
        tools.push(named("ide_edit_file", Tool::Edit(ide), text.trim(), edit_schema()));
    }
    if runs && shell {
        let text = on(USERS, RUN, "");
        tools.push(named("ide_terminal", Tool::Execute(Server::Client), text.trim(), run_schema()));
    }
    let text = on(OWN, READ, &instead(reads, "ide_read_file"));
    tools.push(named("read_file", Tool::Read(Server::Local), text.trim(), read_schema()));
    let text = on(OWN, WRITE, &instead(writes, "ide_write_file"));
    tools.push(named("write_file", Tool::Write(own), text.trim(), write_schema()));
    let text = on(OWN, EDIT, &instead(reads && writes, "ide_edit_file"));
    tools.push(named("edit_file", Tool::Edit(own), text.trim(), edit_schema()));
    if shell {
        let text = on(OWN, RUN, &instead(runs, "ide_terminal"));
        tools.push(named("bash", Tool::Execute(Server::Local), text.trim(), run_schema()));
    }
    tools
}

/// Says why there is no tool of a name, and what to do instead.
pub(crate) fn missing(name: &str, tools: &[Named], mode: Mode, others: &[ToolSpec]) -> String {
    if let Some(there) = tools.iter().find(|tool| tool.name == name) {
        return format!(
            "{} changes or runs something, which the mode {} does not allow",
            there.name,
            mode.id()
        );
    }
    let other = match name {
        "ide_read_file" => Some(("reading files", "read_file")),
        "ide_write_file" => Some(("writing files", "write_file")),
        "ide_edit_file" => Some(("reading and writing files", "edit_file")),
        "ide_terminal" => Some(("terminals", "bash")),
        _ => None,
    };
    if let Some((what, other)) = other.filter(|(_, other)| tools.iter().any(|tool| tool.name == *other)) {
        return format!(
            "the user's editor does not offer {what}: use {other}, which acts on the agent's own machine"
        );
    }
    let names = tools.iter().filter(|tool| mode.may_change() || !tool.tool.changes()).map(|tool| tool.name);
    let names: Vec<&str> = names.chain(others.iter().map(|other| other.name.as_str())).collect();
    let hint = match name {
        "execute" | "bash" | "ide_terminal" | "shell" | "run" => "; commands may not be run in this session",
        _ => "",
    };
    format!("there is no tool {name:?}{hint}: the tools are {}", names.join(", "))
}

fn named(name: &'static str, tool: Tool, text: &str, schema: Value) -> Named {
    Named { name, tool, text: text.to_owned(), schema }
}
