//! Tools of MCP servers, called like all others: reported and authorized.

use std::sync::Arc;
use std::time::Duration;

use bowline_access::approvals::BoxFuture;
use bowline_conversation::conversation::{ToolSpec, ToolUseInput};
use bowline_policy::audit::AuditAction;
use bowline_policy::operation::{Operation, OperationKind, OperationTarget};
use bowline_policy::question::QuestionItem;
use bowline_protocol::schema::v1::{ToolCallUpdateFields, ToolKind};
use serde_json::{Value, json};
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
    active_call: &ActiveCall<'_>,
    source: &dyn McpSource,
    spec: &ToolSpec,
) -> Result<ToolOutput, CallStop> {
    // The server validates the fields, but the input has to be an object.
    active_call.fields()?;
    let ToolUseInput::Value(input) = &active_call.call.input else {
        return Err("the input is not JSON".to_owned().into());
    };
    let name = &active_call.call.name;
    let title = format!("Call {}", name.strip_prefix(TOOL_PREFIX).unwrap_or(name).replace("__", ": "));
    let preview = preview::preview_arguments(input);
    active_call
        .announce(&title, ToolKind::Other, |call| call.raw_input(input.clone()).content(preview.clone()))
        .await?;
    let operation =
        Operation { kind: OperationKind::Execute, target: OperationTarget::Described(name.clone()) };
    let request = OperationRequest {
        action: AuditAction::from("mcp/call"),
        title,
        items: vec![QuestionItem::new(operation)],
    };
    let definition = spec.definition_hash();
    let authorization = active_call
        .toolbox
        .permissions
        .authorize_with_definition(active_call.call, active_call.cx, request, Some(definition))
        .await;
    let mut authorization =
        authorization.map_err(|denial| CallStop::from(denial).with_content(preview.clone()))?;
    let is_same = |other: &ToolSpec| other.name == *name && other.definition_hash() == definition;
    if !source.specs().iter().any(is_same) {
        let message =
            "the tool's server changed or removed it while permission was asked for; look at the tools again";
        return Err(CallStop::from(authorization.deny(message.to_owned(), None).await).with_content(preview));
    }
    authorization.record_start().await?;
    active_call.mark_running().await;
    let McpAnswer { text, images, failed } = call_with_progress(active_call, source, input).await;
    let failure = failed.then(|| text.clone());
    let outcome = OperationOutcome { bytes: Some(text.len()), failure, ..OperationOutcome::default() };
    authorization.log_outcome(outcome).await;
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
async fn call_with_progress(
    active_call: &ActiveCall<'_>,
    source: &dyn McpSource,
    input: &Value,
) -> McpAnswer {
    let (sender, receiver) = watch::channel(String::new());
    let progress = move |line: String| drop(sender.send_replace(line));
    show_progress_until(active_call, receiver, source.call_tool(&active_call.call.name, input, &progress))
        .await
}

/// Waits for an answer, and shows the progress meanwhile.
pub(crate) async fn show_progress_until<T>(
    active_call: &ActiveCall<'_>,
    mut receiver: watch::Receiver<String>,
    mut answer: BoxFuture<'_, T>,
) -> T {
    loop {
        let show = async {
            receiver.changed().await.ok();
            let line = receiver.borrow_and_update().clone();
            active_call.update(ToolCallUpdateFields::new().content(excerpt(&line))).await;
            sleep(PROGRESS_INTERVAL).await;
        };
        tokio::select! {
            biased;
            answer = &mut answer => return answer,
            () = show => {}
        }
    }
}
