//! The tools by name: those of a session, their descriptions for the model, and explanations for missing ones.

use bowline_conversation::conversation::ToolSpec;
use bowline_policy::mode::AgentMode;
use bowline_tools::tools::schema::{
    APPEND_DESCRIPTION, DELETE_DESCRIPTION, EDIT_DESCRIPTION, LIST_DESCRIPTION, MOVE_DESCRIPTION,
    READ_DESCRIPTION, RUN_DESCRIPTION, STAT_DESCRIPTION, WRITE_DESCRIPTION, WRITE_FILES_DESCRIPTION,
    append_schema, delete_schema, edit_schema, integer, list_schema, move_schema, object, read_schema,
    run_schema, search_schema, stat_schema, string, string_enum, write_files_schema, write_schema,
};
use serde_json::{Value, json};

use super::FileBackends;
use crate::agent_options::ToolSet;
use crate::runtime::{Backend, BackendChoice};

/// A built-in tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BuiltinTool {
    Read(Backend),
    Write(FileBackends),
    Edit(FileBackends),
    WriteFiles,
    Append(FileBackends),
    Delete,
    Move,
    Stat,
    List,
    Search,
    Execute(Backend),
    Output,
    Kill,
    Plan,
}

impl BuiltinTool {
    /// Returns whether it changes or runs something. Killing a running command is always allowed.
    pub(crate) fn is_mutating(self) -> bool {
        match self {
            Self::Write(_) | Self::Edit(_) | Self::Execute(_) => true,
            Self::WriteFiles | Self::Append(_) | Self::Delete | Self::Move => true,
            Self::Read(_) | Self::Stat | Self::List | Self::Search => false,
            Self::Output | Self::Kill | Self::Plan => false,
        }
    }

    /// Returns whether the file extension serves it, where the client offers that.
    pub(crate) fn uses_file_extension(self) -> bool {
        matches!(self, Self::WriteFiles | Self::Append(_) | Self::Delete | Self::Move | Self::Stat)
    }
}

/// A tool with its name.
pub(crate) struct NamedTool {
    pub(crate) name: &'static str,
    pub(crate) tool: BuiltinTool,
    // The description for the model.
    description: String,
    schema: Value,
}

impl NamedTool {
    pub(crate) fn to_spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.name.to_owned(),
            description: self.description.clone(),
            schema: self.schema.clone(),
        }
    }
}

/// Returns the tools of a session, for all modes.
pub(crate) fn build_tools(set: ToolSet, choice: BackendChoice, shell: bool) -> Vec<NamedTool> {
    let mut tools = match set {
        ToolSet::Transparent => transparent_tools(choice, shell),
        ToolSet::Dual => dual_tools(choice, shell),
    };
    tools.extend(batch_tools(set, choice));
    tools.push(named_tool("list_directory", BuiltinTool::List, LIST_DESCRIPTION, list_schema()));
    tools.push(named_tool("stat_file", BuiltinTool::Stat, STAT_DESCRIPTION, stat_schema()));
    tools.push(named_tool(
        "search_text",
        BuiltinTool::Search,
        "Searches the text of the project's files, and tells the lines that match with their numbers. Unsaved text of \
         files that were read through the editor is searched as the editor has it.",
        search_schema(),
    ));
    if shell {
        tools.push(named_tool(
            "execute_output",
            BuiltinTool::Output,
            "Returns what a command in the background has put out since the last look, and whether it has ended.",
            object(&[("id", string("The command's id, like bg1."))], &[("wait_seconds", integer("How long to wait for its end; not at all if left out."))]),
        ));
        tools.push(named_tool(
            "execute_kill",
            BuiltinTool::Kill,
            "Ends a command that runs in the background, and returns its last output.",
            object(&[("id", string("The command's id, like bg1."))], &[]),
        ));
    }
    let entry = object(
        &[
            ("content", string("What is to be done.")),
            ("status", string_enum(&["pending", "in_progress", "completed"])),
            ("priority", string_enum(&["high", "medium", "low"])),
        ],
        &[],
    );
    tools.push(named_tool(
        "update_plan",
        BuiltinTool::Plan,
        "Shows the user the plan for a task of several steps. Always give the whole plan; have one entry in progress, and \
         mark what is done at once.",
        object(&[("entries", json!({ "type": "array", "items": entry }))], &[]),
    ));
    tools
}

fn transparent_tools(choice: BackendChoice, shell: bool) -> Vec<NamedTool> {
    let BackendChoice { read, write, terminal, .. } = choice;
    let backends = FileBackends { read: Some(read), write };
    let mut tools = vec![
        named_tool("read_text_file", BuiltinTool::Read(read), READ_DESCRIPTION, read_schema()),
        named_tool("write_text_file", BuiltinTool::Write(backends), WRITE_DESCRIPTION, write_schema()),
        named_tool("edit_text_file", BuiltinTool::Edit(backends), EDIT_DESCRIPTION, edit_schema()),
    ];
    if shell {
        tools.push(named_tool("execute", BuiltinTool::Execute(terminal), RUN_DESCRIPTION, run_schema()));
    }
    tools
}

/// The machine that the tools act on, for the model, which confuses them otherwise.
const USER_MACHINE: &str = "On the USER'S machine, in the user's editor: sees unsaved text, and the user sees what is done. Use it \
                     for all files of the user's project.";
const AGENT_MACHINE: &str =
    "On the AGENT'S OWN machine, not in the user's editor: unsaved text is not seen there.";

fn dual_tools(choice: BackendChoice, shell: bool) -> Vec<NamedTool> {
    let is_client = |backend: Backend| backend == Backend::Client;
    let (client_reads, client_writes, client_runs) =
        (is_client(choice.read), is_client(choice.write), is_client(choice.terminal));
    let client_files = FileBackends { read: client_reads.then_some(Backend::Client), write: Backend::Client };
    let local_files = FileBackends { read: Some(Backend::Local), write: Backend::Local };
    let describe = |machine: &str, text: &str, alternative: &str| format!("{machine} {text} {alternative}");
    let mut tools = Vec::new();
    let suggest = |is_available: bool, name: &str| {
        if is_available { format!("For the user's project use {name} instead.") } else { String::new() }
    };
    if client_reads {
        let text = describe(USER_MACHINE, READ_DESCRIPTION, "");
        tools.push(named_tool(
            "ide_read_file",
            BuiltinTool::Read(Backend::Client),
            text.trim(),
            read_schema(),
        ));
    }
    if client_writes {
        let text = describe(USER_MACHINE, WRITE_DESCRIPTION, "");
        tools.push(named_tool(
            "ide_write_file",
            BuiltinTool::Write(client_files),
            text.trim(),
            write_schema(),
        ));
    }
    if client_reads && client_writes {
        let text = describe(USER_MACHINE, EDIT_DESCRIPTION, "");
        tools.push(named_tool("ide_edit_file", BuiltinTool::Edit(client_files), text.trim(), edit_schema()));
    }
    if client_runs && shell {
        let text = describe(USER_MACHINE, RUN_DESCRIPTION, "");
        tools.push(named_tool(
            "ide_terminal",
            BuiltinTool::Execute(Backend::Client),
            text.trim(),
            run_schema(),
        ));
    }
    let text = describe(AGENT_MACHINE, READ_DESCRIPTION, &suggest(client_reads, "ide_read_file"));
    tools.push(named_tool("read_file", BuiltinTool::Read(Backend::Local), text.trim(), read_schema()));
    let text = describe(AGENT_MACHINE, WRITE_DESCRIPTION, &suggest(client_writes, "ide_write_file"));
    tools.push(named_tool("write_file", BuiltinTool::Write(local_files), text.trim(), write_schema()));
    let text =
        describe(AGENT_MACHINE, EDIT_DESCRIPTION, &suggest(client_reads && client_writes, "ide_edit_file"));
    tools.push(named_tool("edit_file", BuiltinTool::Edit(local_files), text.trim(), edit_schema()));
    if shell {
        let text = describe(AGENT_MACHINE, RUN_DESCRIPTION, &suggest(client_runs, "ide_terminal"));
        tools.push(named_tool("bash", BuiltinTool::Execute(Backend::Local), text.trim(), run_schema()));
    }
    tools
}

/// Returns the tools that change several files, or move and delete them. They are the same in both sets: the client's
/// machine is used where it can be.
fn batch_tools(set: ToolSet, choice: BackendChoice) -> Vec<NamedTool> {
    let append_backends = match set {
        ToolSet::Transparent => FileBackends { read: Some(choice.read), write: choice.write },
        ToolSet::Dual if choice.read == Backend::Client && choice.write == Backend::Client => {
            FileBackends { read: Some(Backend::Client), write: Backend::Client }
        }
        ToolSet::Dual => FileBackends { read: Some(Backend::Local), write: Backend::Local },
    };
    let machine = |backend: Backend| match set {
        ToolSet::Transparent => "",
        ToolSet::Dual if backend == Backend::Client => USER_MACHINE,
        ToolSet::Dual => AGENT_MACHINE,
    };
    let append_machine =
        if choice.batch == Backend::Client { Backend::Client } else { append_backends.write };
    [
        ("write_files", BuiltinTool::WriteFiles, choice.batch, WRITE_FILES_DESCRIPTION, write_files_schema()),
        (
            "append_file",
            BuiltinTool::Append(append_backends),
            append_machine,
            APPEND_DESCRIPTION,
            append_schema(),
        ),
        ("delete_file", BuiltinTool::Delete, choice.batch, DELETE_DESCRIPTION, delete_schema()),
        ("move_file", BuiltinTool::Move, choice.batch, MOVE_DESCRIPTION, move_schema()),
    ]
    .into_iter()
    .map(|(name, tool, backend, text, schema)| {
        named_tool(name, tool, format!("{} {text}", machine(backend)).trim(), schema)
    })
    .collect()
}

/// Explains why no tool has this name, and what to use instead.
pub(crate) fn explain_missing_tool(
    name: &str,
    tools: &[NamedTool],
    mode: AgentMode,
    mcp_specs: &[ToolSpec],
) -> String {
    if let Some(tool) = tools.iter().find(|tool| tool.name == name) {
        return format!(
            "{} changes or runs something, which the mode {} does not allow",
            tool.name,
            mode.id()
        );
    }
    let alternative = match name {
        "ide_read_file" => Some(("reading files", "read_file")),
        "ide_write_file" => Some(("writing files", "write_file")),
        "ide_edit_file" => Some(("reading and writing files", "edit_file")),
        "ide_terminal" => Some(("terminals", "bash")),
        _ => None,
    };
    if let Some((capability, alternative)) =
        alternative.filter(|(_, alternative)| tools.iter().any(|tool| tool.name == *alternative))
    {
        return format!(
            "the user's editor does not offer {capability}: use {alternative}, which acts on the agent's own machine"
        );
    }
    let names =
        tools.iter().filter(|tool| mode.can_change() || !tool.tool.is_mutating()).map(|tool| tool.name);
    let names: Vec<&str> = names.chain(mcp_specs.iter().map(|spec| spec.name.as_str())).collect();
    let hint = match name {
        "execute" | "bash" | "ide_terminal" | "shell" | "run" => "; commands may not be run in this session",
        _ => "",
    };
    format!("there is no tool {name:?}{hint}: the tools are {}", names.join(", "))
}

fn named_tool(name: &'static str, tool: BuiltinTool, text: &str, schema: Value) -> NamedTool {
    NamedTool { name, tool, description: text.to_owned(), schema }
}
