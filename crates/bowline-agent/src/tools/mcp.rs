//! Tools of MCP servers, called like all others: reported and authorized.

use std::sync::Arc;
use std::time::Duration;

use bowline_conversation::conversation::{ToolSpec, ToolUseInput};
use bowline_mcp::client::{McpError, WorkspaceServer};
use bowline_policy::audit::AuditAction;
use bowline_policy::operation::{Operation, OperationKind, OperationTarget};
use bowline_policy::question::QuestionItem;
use bowline_protocol::schema::v1::{ToolCallUpdateFields, ToolKind};
use bowline_tools::mcp_tools::McpCallOutput;
use bowline_workspace::approvals::BoxFuture;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use super::active_call::{ActiveCall, CallStop, ToolOutput, excerpt};
use super::preview;
use crate::permission::{OperationOutcome, OperationRequest};

/// The shortest interval between progress reports: a server may send progress as often as it likes.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// The prefix of these tools' names.
pub const TOOL_PREFIX: &str = "mcp__";

/// The MCP servers of a session.
pub trait McpSource: Send + Sync + 'static {
    /// Returns the current tools, by their names for the model; each begins with [`TOOL_PREFIX`].
    fn specs(&self) -> Vec<ToolSpec>;

    /// Calls a tool, and reports its progress in lines. Dropping the future cancels the call.
    fn call_tool<'a>(
        &'a self,
        name: &'a str,
        input: &'a Value,
        progress: &'a (dyn Fn(String) + Send + Sync),
    ) -> BoxFuture<'a, McpAnswer>;

    /// Returns the server that is a workspace, if there is one now.
    fn workspace_server(&self) -> Option<WorkspaceServer> {
        None
    }

    /// Calls a tool of a workspace server by the server's name for it. Dropping the future cancels the call.
    fn call_workspace_tool<'a>(
        &'a self,
        server: &'a WorkspaceServer,
        tool: &'a str,
        _: Map<String, Value>,
        _: &'a (dyn Fn(String) + Send + Sync),
    ) -> BoxFuture<'a, Result<McpCallOutput, McpError>> {
        let why = format!("it has no tool {tool}");
        let server = server.name.clone();
        Box::pin(std::future::ready(Err(McpError::NotReady { server, why })))
    }
}

/// The answer of an MCP server's tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct McpAnswer {
    /// The text for the model.
    pub text: String,
    /// Images: media type and base64.
    pub images: Vec<(String, Arc<str>)>,
    /// Whether the call failed.
    pub failed: bool,
}

/// Runs a tool of an MCP server. An approval holds for the tool's definition at that moment.
pub(crate) async fn call_mcp_tool(
    work: &ActiveCall<'_>,
    source: &dyn McpSource,
    spec: &ToolSpec,
) -> Result<ToolOutput, CallStop> {
    // The server validates the fields, but the input has to be an object.
    work.fields()?;
    let ToolUseInput::Value(input) = &work.call.input else {
        return Err("the input is not JSON".to_owned().into());
    };
    let name = &work.call.name;
    let title = format!("Call {}", name.strip_prefix(TOOL_PREFIX).unwrap_or(name).replace("__", ": "));
    let shown = preview::preview_arguments(input);
    work.announce(&title, ToolKind::Other, |call| call.raw_input(input.clone()).content(shown.clone()))
        .await?;
    let operation =
        Operation { kind: OperationKind::Execute, target: OperationTarget::Described(name.clone()) };
    let wish =
        OperationRequest { action: AuditAction::from("mcp/call"), title, item: QuestionItem::new(operation) };
    let definition = spec.definition_hash();
    let pass = work.toolbox.permissions.authorize_mcp_tool(work.call, work.cx, wish, definition).await;
    let mut pass = pass.map_err(|no| CallStop::from(no).with_content(shown.clone()))?;
    let is_same = |other: &ToolSpec| other.name == *name && other.definition_hash() == definition;
    if !source.specs().iter().any(is_same) {
        let told =
            "the tool's server changed or removed it while permission was asked for; look at the tools again";
        return Err(CallStop::from(pass.deny(told.to_owned(), None).await).with_content(shown));
    }
    pass.record_start().await?;
    work.mark_running().await;
    let McpAnswer { text, images, failed } = call_with_progress(work, source, input).await;
    let why = failed.then(|| text.clone());
    if let Err(why) = pass
        .record_outcome(OperationOutcome {
            bytes: Some(text.len()),
            failure: why,
            ..OperationOutcome::default()
        })
        .await
    {
        work.runtime().options().log.write_line(why);
    }
    let output = json!({ "text": text, "images": images.len() });
    Ok(ToolOutput {
        content: Some(excerpt(&text)),
        text,
        failed,
        images,
        raw_output: Some(output),
        ..ToolOutput::default()
    })
}

/// Calls a tool, and shows its progress.
async fn call_with_progress(work: &ActiveCall<'_>, source: &dyn McpSource, input: &Value) -> McpAnswer {
    let (latest, told) = watch::channel(String::new());
    let progress = move |line: String| drop(latest.send_replace(line));
    show_progress_until(work, told, source.call_tool(&work.call.name, input, &progress)).await
}

/// Waits for an answer, and shows the progress meanwhile.
pub(crate) async fn show_progress_until<T>(
    work: &ActiveCall<'_>,
    mut told: watch::Receiver<String>,
    mut answer: BoxFuture<'_, T>,
) -> T {
    loop {
        let shown = async {
            told.changed().await.ok();
            let line = told.borrow_and_update().clone();
            work.update(ToolCallUpdateFields::new().content(excerpt(&line))).await;
            sleep(PROGRESS_INTERVAL).await;
        };
        tokio::select! {
            biased;
            answer = &mut answer => return answer,
            () = shown => {}
        }
    }
}
