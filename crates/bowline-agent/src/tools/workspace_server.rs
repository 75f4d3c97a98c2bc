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
use bowline_text::unsaved_text::is_equivalent_text;
use bowline_tools::mcp_tools::McpCallOutput;
use bowline_tools::mcp_tools::workspace::{
    APPEND_TOOL, DELETE_TOOL, EDIT_TOOL, KILL_TOOL, LIST_TOOL, MOVE_TOOL, OUTPUT_TOOL, READ_TOOL, RUN_TOOL,
    SEARCH_TOOL, STAT_TOOL, WRITE_FILES_TOOL, WRITE_TOOL,
};
use bowline_tools::tools::describe::count_noun;
use bowline_tools::tools::input::ToolInputFields;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use super::active_call::{ActiveCall, CallStop, ToolOutput, excerpt, location};
use super::mcp::show_progress_until;
use super::specs::BuiltinTool;
use super::{commands, preview, write};
use crate::permission::{OperationOutcome, OperationRequest};
use crate::runtime::disk_comparison::DiskContent;
use crate::runtime::{AdoptedWorkspace, Backend, BackendChoice};

/// The longest query or command in a title, in bytes.
const MAX_LABEL_BYTES: usize = 80;

/// Returns the name of a tool at the workspace server, if the server provides it.
pub(crate) fn workspace_tool_name(tool: BuiltinTool, choice: BackendChoice) -> Option<&'static str> {
    let (name, backend) = match tool {
        BuiltinTool::Read(_) => (READ_TOOL, choice.read),
        BuiltinTool::List => (LIST_TOOL, choice.list),
        BuiltinTool::Search => (SEARCH_TOOL, choice.read),
        BuiltinTool::Write(_) => (WRITE_TOOL, choice.write),
        BuiltinTool::Edit(_) => (EDIT_TOOL, choice.write),
        BuiltinTool::Stat => (STAT_TOOL, choice.stat),
        BuiltinTool::WriteFiles => (WRITE_FILES_TOOL, choice.batch),
        BuiltinTool::Append(_) => (APPEND_TOOL, choice.batch),
        BuiltinTool::Delete => (DELETE_TOOL, choice.batch),
        BuiltinTool::Move => (MOVE_TOOL, choice.batch),
        BuiltinTool::Execute(_) => (RUN_TOOL, choice.terminal),
        BuiltinTool::Output => (OUTPUT_TOOL, choice.terminal),
        BuiltinTool::Kill => (KILL_TOOL, choice.terminal),
        BuiltinTool::Plan => return None,
    };
    (backend == Backend::Workspace).then_some(name)
}

/// The parts of a call.
struct WorkspaceCall {
    title: String,
    kind: ToolKind,
    // The files or directories it acts on.
    paths: Vec<LexicalPath>,
    // The preview for the user.
    preview: Vec<ToolCallContent>,
    // The operation to authorize; `None` if no authorization is needed.
    request: Option<OperationRequest>,
    arguments: Map<String, Value>,
}

/// Runs a tool at the workspace server, under the name `name`.
pub(crate) async fn call_workspace_tool(
    active_call: &ActiveCall<'_>,
    workspace: &AdoptedWorkspace,
    name: &'static str,
) -> Result<ToolOutput, CallStop> {
    let workspace_call = plan_call(active_call, name).await?;
    let WorkspaceCall { title, kind, paths, preview, request, arguments } = workspace_call;
    let locations = paths.iter().map(|path| location(path, None)).collect();
    let input = Value::Object(arguments.clone());
    active_call
        .announce(&title, kind, |call| call.raw_input(input).locations(locations).content(preview.clone()))
        .await?;
    let mut authorization = match request {
        Some(request) => {
            let authorization = active_call
                .toolbox
                .permissions
                .authorize(Backend::Workspace, active_call.call, active_call.cx, request)
                .await;
            Some(authorization.map_err(|denial| CallStop::from(denial).with_content(preview))?)
        }
        None => None,
    };
    if matches!(name, WRITE_TOOL | WRITE_FILES_TOOL) {
        for path in &paths {
            check_seen_text(active_call, path).await?;
        }
    }
    if let Some(authorization) =
        authorization.as_mut().filter(|_| kind != ToolKind::Read && kind != ToolKind::Search)
    {
        authorization.record_start().await?;
    }
    active_call.mark_running().await;
    if name == RUN_TOOL {
        active_call.runtime().record_command();
    }
    let answer = call_with_progress(active_call, workspace, name, arguments).await;
    let (text, failed) = match answer {
        Ok(output) => (output.text, output.is_error),
        Err(error) => (error.to_string(), true),
    };
    if let Some(authorization) = authorization {
        let failure = failed.then(|| text.clone());
        authorization
            .record_outcome(OperationOutcome {
                bytes: Some(text.len()),
                failure,
                ..OperationOutcome::default()
            })
            .await?;
    }
    let server = &workspace.server().name;
    let output = json!({ "servedBy": Backend::Workspace.as_str(), "server": server, "text": text });
    // A successful edit keeps showing its diff; otherwise the server's text is more useful.
    let content = if kind == ToolKind::Edit && !failed { None } else { Some(excerpt(&text)) };
    let text = format!("[{}, the MCP server {server:?}]\n{text}", Backend::Workspace.via_phrase());
    Ok(ToolOutput { text, failed, content, raw_output: Some(output), ..ToolOutput::default() })
}

/// Calls the server, and shows its progress.
async fn call_with_progress(
    active_call: &ActiveCall<'_>,
    workspace: &AdoptedWorkspace,
    name: &'static str,
    arguments: Map<String, Value>,
) -> Result<McpCallOutput, McpError> {
    let (sender, receiver) = watch::channel(String::new());
    let progress = move |line: String| drop(sender.send_replace(line));
    show_progress_until(active_call, receiver, workspace.call_tool(name, arguments, &progress)).await
}

/// Makes the server read a file that the model has read through the editor, so that it does not refuse to replace a
/// text unseen by its model. If its text differs from the editor's, the model has not seen it either.
async fn check_seen_text(active_call: &ActiveCall<'_>, path: &LexicalPath) -> Result<(), CallStop> {
    let backend = active_call.runtime().backend_choice().read;
    let key = active_call.toolbox.ledger_key(backend, path.as_str());
    let knowledge = active_call.toolbox.ledger().knowledge(&key, TextVersion(0));
    let (Backend::Client, Knowledge::Whole(seen)) = (backend, knowledge) else { return Ok(()) };
    match active_call.runtime().read(Backend::Workspace, path.as_str(), LineWindow::default()).await {
        Ok(current) if !is_equivalent_text(&current.text, &seen) => Err(format!(
            "nothing was written: {} is not as it was read through the editor: edit it instead, or read it again",
            active_call.display_path(path)
        )
        .into()),
        // If the file is missing or unreadable, the server reports it for the write itself.
        Ok(_) | Err(_) => Ok(()),
    }
}

async fn plan_call(active_call: &ActiveCall<'_>, name: &'static str) -> Result<WorkspaceCall, CallStop> {
    let fields = active_call.fields()?;
    let ToolUseInput::Value(Value::Object(arguments)) = &active_call.call.input else {
        return Err("the input is not JSON".to_owned().into());
    };
    let mut workspace_call = WorkspaceCall {
        title: name.replace('_', " "),
        kind: ToolKind::Execute,
        paths: Vec::new(),
        preview: Vec::new(),
        request: None,
        arguments: arguments.clone(),
    };
    match name {
        RUN_TOOL => plan_command(active_call, fields, &mut workspace_call).await?,
        WRITE_TOOL | EDIT_TOOL => {
            let path = active_call.resolve_path(fields.required_text("path")?)?;
            let verb = if name == WRITE_TOOL { "Write" } else { "Edit" };
            workspace_call.title = format!("{verb} {}", active_call.display_path(&path));
            workspace_call.kind = ToolKind::Edit;
            workspace_call.preview = preview_changes(active_call, fields, name, &path).await?;
            let item = QuestionItem::new(active_call.file_operation(OperationKind::Write, &path).await?);
            workspace_call.set_request(vec![item]);
            workspace_call.set_path("path", path);
        }
        WRITE_FILES_TOOL => {
            let mut items = Vec::new();
            let mut files = Vec::new();
            for file in fields.objects("files")? {
                let path = active_call.resolve_path(file.required_text("path")?)?;
                workspace_call.preview.extend(preview_changes(active_call, file, name, &path).await?);
                let operation = active_call.file_operation(OperationKind::Write, &path).await?;
                items.push(QuestionItem::new(operation));
                files.push(json!({ "path": path.as_str(), "content": file.required_text("content")? }));
                workspace_call.paths.push(path);
            }
            if items.is_empty() {
                return Err("`files` is empty: give at least one file".to_owned().into());
            }
            workspace_call.title = format!("Write {}", count_noun(items.len() as u64, "file"));
            workspace_call.kind = ToolKind::Edit;
            workspace_call.arguments.insert("files".to_owned(), files.into());
            workspace_call.set_request(items);
        }
        APPEND_TOOL => {
            let path = active_call.resolve_path(fields.required_text("path")?)?;
            workspace_call.title = format!("Append to {}", active_call.display_path(&path));
            workspace_call.kind = ToolKind::Edit;
            workspace_call.preview = preview::preview_addition(fields.required_text("content")?);
            let operation = active_call.file_operation(OperationKind::Write, &path).await?;
            workspace_call.set_request(vec![QuestionItem::new(operation)]);
            workspace_call.set_path("path", path);
        }
        DELETE_TOOL => {
            let path = active_call.resolve_path(fields.required_text("path")?)?;
            workspace_call.title = format!("Delete {}", active_call.display_path(&path));
            workspace_call.kind = ToolKind::Delete;
            let operation = active_call.file_operation(OperationKind::Delete, &path).await?;
            workspace_call.set_request(vec![QuestionItem::new(operation)]);
            workspace_call.set_path("path", path);
        }
        MOVE_TOOL => {
            let from = active_call.resolve_path(fields.required_text("from")?)?;
            let to = active_call.resolve_path(fields.required_text("to")?)?;
            workspace_call.title =
                format!("Move {} to {}", active_call.display_path(&from), active_call.display_path(&to));
            workspace_call.kind = ToolKind::Move;
            let source = active_call.file_operation(OperationKind::Delete, &from).await?;
            let target = active_call.file_operation(OperationKind::Write, &to).await?;
            workspace_call.set_request(vec![QuestionItem::new(source), QuestionItem::new(target)]);
            workspace_call.set_path("from", from);
            workspace_call.set_path("to", to);
        }
        READ_TOOL | LIST_TOOL | SEARCH_TOOL | STAT_TOOL => {
            let path = active_call.resolve_path(fields.optional_text("path")?.unwrap_or("."))?;
            let display_path = if path.as_str() == active_call.runtime().cwd() {
                "."
            } else {
                active_call.display_path(&path)
            };
            (workspace_call.title, workspace_call.kind) = match name {
                READ_TOOL => (format!("Read {display_path}"), ToolKind::Read),
                LIST_TOOL => (format!("List {display_path}"), ToolKind::Read),
                STAT_TOOL => (format!("Look at {display_path}"), ToolKind::Read),
                _ => {
                    let pattern = display::escape_line(fields.required_text("pattern")?, MAX_LABEL_BYTES);
                    (format!("Search for {pattern} in {display_path}"), ToolKind::Search)
                }
            };
            workspace_call.request =
                Some(active_call.read_request(Backend::Workspace, &path, &workspace_call.title).await?);
            workspace_call.set_path("path", path);
        }
        // Reading the output of the model's own commands, and killing them, is always allowed.
        _ => {
            workspace_call.title = format!(
                "{}: {}",
                workspace_call.title,
                display::escape_line(fields.required_text("id")?, MAX_LABEL_BYTES)
            )
        }
    }
    Ok(workspace_call)
}

/// Returns the preview of a change, as far as the arguments tell. The file is not read: the server would count its text
/// as seen by the model, and let the model replace it.
async fn preview_changes(
    active_call: &ActiveCall<'_>,
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
    Ok(match active_call.runtime().read_disk(path.as_str()).await {
        DiskContent::Missing => vec![builders::diff(path.as_str(), None, content)],
        DiskContent::File(..) | DiskContent::Unknown => {
            preview::preview_replacement(active_call.display_path(path), content)
        }
    })
}

impl WorkspaceCall {
    fn set_path(&mut self, argument: &str, path: LexicalPath) {
        self.arguments.insert(argument.to_owned(), path.as_str().into());
        self.paths.push(path);
    }

    fn set_request(&mut self, items: Vec<QuestionItem>) {
        let title = self.title.clone();
        self.request = Some(OperationRequest { action: AuditAction::Write, title, items });
    }
}

async fn plan_command(
    active_call: &ActiveCall<'_>,
    fields: ToolInputFields<'_>,
    workspace_call: &mut WorkspaceCall,
) -> Result<(), CallStop> {
    let cwd = active_call.resolve_path(fields.optional_text("cwd")?.unwrap_or("."))?;
    let (spec, label) = commands::parse_command(&fields, &cwd)?;
    workspace_call.title = format!("Run {label}");
    workspace_call.preview = preview::preview_command(spec.clone());
    let target = OperationTarget::Command(commands::inspect_command(active_call, spec).await);
    let item = QuestionItem::new(Operation { kind: OperationKind::Execute, target });
    workspace_call.request = Some(OperationRequest {
        action: AuditAction::TerminalCreate,
        title: workspace_call.title.clone(),
        items: vec![item],
    });
    workspace_call.arguments.insert("cwd".to_owned(), cwd.as_str().into());
    Ok(())
}
