//! The tools for files and commands, carried out by a workspace server of the client.
//!
//! Such a server has the same tools with the same inputs: it tracks what its model has seen, merges, and applies its
//! own policy. So a call is authorized here like any other and forwarded unchanged, with absolute paths.

use bowline_conversation::conversation::ToolUseInput;
use bowline_history::ledger::{Knowledge, TextVersion};
use bowline_mcp::client::McpError;
use bowline_policy::audit::AuditAction;
use bowline_policy::operation::{Operation, OperationKind, OperationTarget};
use bowline_policy::paths::LexicalPath;
use bowline_policy::question::QuestionItem;
use bowline_protocol::builders;
use bowline_protocol::schema::v1::{ToolCallContent, ToolKind};
use bowline_text::display;
use bowline_text::edits::SearchReplaceEdit;
use bowline_text::lines::LineWindow;
use bowline_tools::mcp_tools::McpCallOutput;
use bowline_tools::mcp_tools::workspace::{
    EDIT_TOOL, KILL_TOOL, LIST_TOOL, OUTPUT_TOOL, READ_TOOL, RUN_TOOL, SEARCH_TOOL, WRITE_TOOL,
};
use bowline_tools::tools::input::ToolInputFields;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use super::active_call::{ActiveCall, CallStop, ToolOutput, excerpt, location};
use super::mcp::show_progress_until;
use super::specs::BuiltinTool;
use super::{commands, preview, write};
use crate::permission::{OperationOutcome, OperationRequest};
use crate::runtime::disk_comparison::{DiskContent, is_equivalent_text};
use crate::runtime::{AdoptedWorkspace, Backend, BackendChoice};

/// The longest query or command in a title, in bytes.
const MAX_LABEL_BYTES: usize = 80;

/// Returns the name of a tool at the workspace server, if the server provides it.
pub(crate) fn workspace_tool_name(tool: BuiltinTool, choice: BackendChoice) -> Option<&'static str> {
    let (name, by) = match tool {
        BuiltinTool::Read(_) => (READ_TOOL, choice.read),
        BuiltinTool::List => (LIST_TOOL, choice.read),
        BuiltinTool::Search => (SEARCH_TOOL, choice.read),
        BuiltinTool::Write(_) => (WRITE_TOOL, choice.write),
        BuiltinTool::Edit(_) => (EDIT_TOOL, choice.write),
        BuiltinTool::Execute(_) => (RUN_TOOL, choice.terminal),
        BuiltinTool::Output => (OUTPUT_TOOL, choice.terminal),
        BuiltinTool::Kill => (KILL_TOOL, choice.terminal),
        BuiltinTool::Plan => return None,
    };
    (by == Backend::Workspace).then_some(name)
}

/// The parts of a call.
struct WorkspaceCall {
    title: String,
    kind: ToolKind,
    // The file or directory it acts on, if any.
    path: Option<LexicalPath>,
    // The preview for the user.
    preview: Vec<ToolCallContent>,
    // The operation to authorize; `None` if no authorization is needed.
    request: Option<OperationRequest>,
    arguments: Map<String, Value>,
}

/// Runs a tool at the workspace server, under the name `name`.
pub(crate) async fn call_workspace_tool(
    work: &ActiveCall<'_>,
    adopted: &AdoptedWorkspace,
    name: &'static str,
) -> Result<ToolOutput, CallStop> {
    let about = plan_call(work, name).await?;
    let WorkspaceCall { title, kind, path, preview: shown, request: wish, arguments } = about;
    let locations = path.iter().map(|path| location(path, None)).collect();
    let input = Value::Object(arguments.clone());
    work.announce(&title, kind, |call| call.raw_input(input).locations(locations).content(shown.clone()))
        .await?;
    let mut pass = match wish {
        Some(wish) => {
            let pass = work.toolbox.permissions.authorize(Backend::Workspace, work.call, work.cx, wish).await;
            Some(pass.map_err(|no| CallStop::from(no).with_content(shown))?)
        }
        None => None,
    };
    if let (WRITE_TOOL, Some(path)) = (name, &path) {
        check_seen_text(work, path).await?;
    }
    if let Some(pass) = pass.as_mut().filter(|_| kind != ToolKind::Read && kind != ToolKind::Search) {
        pass.record_start().await?;
    }
    work.mark_running().await;
    if name == RUN_TOOL {
        work.runtime().record_command();
    }
    let answer = call_with_progress(work, adopted, name, arguments).await;
    let (text, failed) = match answer {
        Ok(output) => (output.text, output.is_error),
        Err(why) => (why.to_string(), true),
    };
    if let Some(pass) = pass {
        let why = failed.then(|| text.clone());
        pass.record_outcome(OperationOutcome {
            bytes: Some(text.len()),
            failure: why,
            ..OperationOutcome::default()
        })
        .await?;
    }
    let server = &adopted.server().name;
    let output = json!({ "servedBy": Backend::Workspace.as_str(), "server": server, "text": text });
    // A successful edit keeps showing its diff; otherwise the server's text is more useful.
    let content = if kind == ToolKind::Edit && !failed { None } else { Some(excerpt(&text)) };
    let text = format!("[{}, the MCP server {server:?}]\n{text}", Backend::Workspace.via_phrase());
    Ok(ToolOutput { text, failed, content, raw_output: Some(output), ..ToolOutput::default() })
}

/// Calls the server, and shows its progress.
async fn call_with_progress(
    work: &ActiveCall<'_>,
    adopted: &AdoptedWorkspace,
    name: &'static str,
    arguments: Map<String, Value>,
) -> Result<McpCallOutput, McpError> {
    let (latest, told) = watch::channel(String::new());
    let progress = move |line: String| drop(latest.send_replace(line));
    show_progress_until(work, told, adopted.call_tool(name, arguments, &progress)).await
}

/// Makes the server read a file that the model has read through the editor, so that it does not refuse to replace a
/// text unseen by its model. If its text differs from the editor's, the model has not seen it either.
async fn check_seen_text(work: &ActiveCall<'_>, path: &LexicalPath) -> Result<(), CallStop> {
    let by = work.runtime().backend_choice().read;
    let key = work.toolbox.ledger_key(by, path.as_str());
    let known = work.toolbox.ledger().knowledge(&key, TextVersion(0));
    let (Backend::Client, Knowledge::Whole(seen)) = (by, known) else { return Ok(()) };
    match work.runtime().read(Backend::Workspace, path.as_str(), LineWindow::default()).await {
        Ok(now) if !is_equivalent_text(&now.text, &seen) => Err(format!(
            "nothing was written: {} is not as it was read through the editor: edit it instead, or read it again",
            work.display_path(path)
        )
        .into()),
        // If the file is missing or unreadable, the server reports it for the write itself.
        Ok(_) | Err(_) => Ok(()),
    }
}

async fn plan_call(work: &ActiveCall<'_>, name: &'static str) -> Result<WorkspaceCall, CallStop> {
    let fields = work.fields()?;
    let ToolUseInput::Value(Value::Object(arguments)) = &work.call.input else {
        return Err("the input is not JSON".to_owned().into());
    };
    let mut about = WorkspaceCall {
        title: name.replace('_', " "),
        kind: ToolKind::Execute,
        path: None,
        preview: Vec::new(),
        request: None,
        arguments: arguments.clone(),
    };
    match name {
        RUN_TOOL => plan_command(work, fields, &mut about).await?,
        WRITE_TOOL | EDIT_TOOL => {
            let path = work.resolve_path(fields.required_text("path")?)?;
            let verb = if name == WRITE_TOOL { "Write" } else { "Edit" };
            about.title = format!("{verb} {}", work.display_path(&path));
            about.kind = ToolKind::Edit;
            about.preview = preview_changes(work, fields, name, &path).await?;
            let item = QuestionItem::new(work.file_operation(OperationKind::Write, &path).await?);
            about.request =
                Some(OperationRequest { action: AuditAction::Write, title: about.title.clone(), item });
            about.set_path(path);
        }
        READ_TOOL | LIST_TOOL | SEARCH_TOOL => {
            let path = work.resolve_path(fields.optional_text("path")?.unwrap_or("."))?;
            let shown = if path.as_str() == work.runtime().cwd() { "." } else { work.display_path(&path) };
            (about.title, about.kind) = match name {
                READ_TOOL => (format!("Read {shown}"), ToolKind::Read),
                LIST_TOOL => (format!("List {shown}"), ToolKind::Read),
                _ => {
                    let pattern = display::escape_line(fields.required_text("pattern")?, MAX_LABEL_BYTES);
                    (format!("Search for {pattern} in {shown}"), ToolKind::Search)
                }
            };
            about.request = Some(work.read_request(Backend::Workspace, &path, &about.title).await?);
            about.set_path(path);
        }
        // Reading the output of the model's own commands, and killing them, is always allowed.
        _ => {
            about.title = format!(
                "{}: {}",
                about.title,
                display::escape_line(fields.required_text("id")?, MAX_LABEL_BYTES)
            )
        }
    }
    Ok(about)
}

/// Returns the preview of a change, as far as the arguments tell. The file is not read: the server would count its text
/// as seen by the model, and let the model replace it.
async fn preview_changes(
    work: &ActiveCall<'_>,
    fields: ToolInputFields<'_>,
    name: &'static str,
    path: &LexicalPath,
) -> Result<Vec<ToolCallContent>, CallStop> {
    if name == EDIT_TOOL {
        let edits = write::parse_edits(fields)?;
        let diff = |edit: SearchReplaceEdit| {
            builders::diff(path.as_str(), Some(edit.old.as_str()), edit.new.as_str())
        };
        return Ok(edits.into_iter().map(diff).collect());
    }
    let content = fields.required_text("content")?;
    Ok(match work.runtime().read_disk(path.as_str()).await {
        DiskContent::Missing => vec![builders::diff(path.as_str(), None, content)],
        DiskContent::File(..) | DiskContent::Unknown => {
            preview::preview_replacement(work.display_path(path), content)
        }
    })
}

impl WorkspaceCall {
    fn set_path(&mut self, path: LexicalPath) {
        self.arguments.insert("path".to_owned(), path.as_str().into());
        self.path = Some(path);
    }
}

async fn plan_command(
    work: &ActiveCall<'_>,
    fields: ToolInputFields<'_>,
    about: &mut WorkspaceCall,
) -> Result<(), CallStop> {
    let cwd = work.resolve_path(fields.optional_text("cwd")?.unwrap_or("."))?;
    let (given, label) = commands::parse_command(&fields, &cwd)?;
    about.title = format!("Run {label}");
    about.preview = preview::preview_command(given.clone());
    let target = OperationTarget::Command(commands::inspect_command(work, given).await);
    let item = QuestionItem::new(Operation { kind: OperationKind::Execute, target });
    about.request =
        Some(OperationRequest { action: AuditAction::TerminalCreate, title: about.title.clone(), item });
    about.arguments.insert("cwd".to_owned(), cwd.as_str().into());
    Ok(())
}
