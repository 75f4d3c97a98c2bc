//! One turn: the task in the prompt's text, performed over the connection.

use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    ContentBlock, ContentChunk, CreateTerminalRequest, Diff, KillTerminalRequest, PermissionOption,
    PermissionOptionKind, Plan, PlanEntry, PlanEntryPriority, PlanEntryStatus, PromptRequest, PromptResponse,
    ReadTextFileRequest, ReleaseTerminalRequest, RequestPermissionOutcome, RequestPermissionRequest,
    SessionId, SessionNotification, SessionUpdate, StopReason, TerminalOutputRequest, ToolCall,
    ToolCallLocation, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, ToolKind,
    WaitForTerminalExitRequest, WriteTextFileRequest,
};
use agent_client_protocol::{Client, Error, Result};
use futures::{StreamExt, TryStreamExt};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Notify;

/// The only tool call of the flow.
const CALL: &str = "call_1";
/// The two tool calls of an edit.
const EDIT: &str = "call_edit";
const RUN: &str = "call_run";

/// The task in a prompt.
#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum Task {
    Read { path: String, count: usize, inflight: usize },
    Stream { count: usize, size: usize },
    Flow { path: String, new_path: String },
    Edit { path: String, old: String, new: String, command: String },
    Wait,
}

/// Runs one turn to completion.
pub(crate) async fn run(
    connection: &ConnectionTo<Client>,
    prompt: PromptRequest,
    cancel: &Notify,
) -> Result<PromptResponse> {
    let Some(ContentBlock::Text(text)) =
        prompt.prompt.into_iter().find(|b| matches!(b, ContentBlock::Text(_)))
    else {
        return Err(Error::invalid_params().data(json!("the prompt has no text block")));
    };
    let turn = Turn { connection, session: prompt.session_id };
    let stop = match serde_json::from_str(&text.text) {
        Ok(Task::Read { path, count, inflight }) => turn.read(&path, count, inflight).await?,
        Ok(Task::Stream { count, size }) => turn.stream(count, size)?,
        Ok(Task::Flow { path, new_path }) => turn.flow(&path, &new_path).await?,
        Ok(Task::Edit { path, old, new, command }) => {
            turn.edit(&path, &old, &new).await?;
            turn.run_command(&command).await?;
            StopReason::EndTurn
        }
        Ok(Task::Wait) => {
            turn.chunk("waiting")?;
            cancel.notified().await;
            StopReason::Cancelled
        }
        Err(_) => {
            turn.chunk(text.text)?;
            StopReason::EndTurn
        }
    };
    Ok(PromptResponse::new(stop))
}

struct Turn<'a> {
    connection: &'a ConnectionTo<Client>,
    session: SessionId,
}

impl Turn<'_> {
    async fn read(&self, path: &str, count: usize, inflight: usize) -> Result<StopReason> {
        let bytes = futures::stream::iter(0..count)
            .map(|_| self.read_file(ReadTextFileRequest::new(self.session.clone(), path)))
            .buffer_unordered(inflight.max(1))
            .try_fold(0, async |bytes, content| Ok(bytes + content.len()))
            .await?;
        self.chunk(json!({"reads": count, "bytes": bytes}).to_string())?;
        Ok(StopReason::EndTurn)
    }

    /// The SDK queues all of them at once: "sends never wait" is its contract.
    fn stream(&self, count: usize, size: usize) -> Result<StopReason> {
        let text = "x".repeat(size);
        for _ in 0..count {
            self.chunk(text.as_str())?;
        }
        Ok(StopReason::EndTurn)
    }

    async fn flow(&self, path: &str, new_path: &str) -> Result<StopReason> {
        self.update(SessionUpdate::ToolCall(
            ToolCall::new(CALL, "Update config")
                .kind(ToolKind::Edit)
                .status(ToolCallStatus::Pending)
                .locations(vec![ToolCallLocation::new(path)])
                .raw_input(json!({"path": path})),
        ))?;
        let whole = self.read_file(self.file(path)).await?;
        self.chunk(format!("read:{}", json!(whole)))?;
        let window = self.read_file(self.file(path).line(2).limit(1)).await?;
        self.chunk(format!("window:{}", json!(window)))?;

        if self.is_allowed(CALL).await? {
            self.write(CALL, new_path, format!("{whole}written by {}\n", crate::NAME)).await?;
        } else {
            self.status(CALL, ToolCallStatus::Failed)?;
        }

        let missing = self.read_file(self.file(&format!("{path}.missing"))).await;
        let code = missing.err().map_or_else(|| "none".to_owned(), |error| i32::from(error.code).to_string());
        self.chunk(format!("missing:{code}"))?;
        self.run_to_end("echo", &["hello"]).await?;
        self.kill_sleep().await?;

        self.update(SessionUpdate::Plan(Plan::new(vec![
            PlanEntry::new("Read the file", PlanEntryPriority::High, PlanEntryStatus::Completed),
            PlanEntry::new("Write the file", PlanEntryPriority::Medium, PlanEntryStatus::InProgress),
        ])))?;
        Ok(StopReason::EndTurn)
    }

    async fn edit(&self, path: &str, old: &str, new: &str) -> Result<()> {
        let content = self.read_file(self.file(path)).await?;
        self.chunk(format!("read:{}", json!(content)))?;
        let text = content.replacen(old, new, 1);
        self.update(SessionUpdate::ToolCall(
            ToolCall::new(EDIT, "Edit the file")
                .kind(ToolKind::Edit)
                .status(ToolCallStatus::Pending)
                .content(vec![Diff::new(path, text.clone()).old_text(content).into()])
                .locations(vec![ToolCallLocation::new(path)]),
        ))?;
        if self.is_allowed(EDIT).await? {
            self.write(EDIT, path, text).await
        } else {
            self.status(EDIT, ToolCallStatus::Failed)
        }
    }

    async fn run_command(&self, command: &str) -> Result<()> {
        self.update(SessionUpdate::ToolCall(
            ToolCall::new(RUN, command)
                .kind(ToolKind::Execute)
                .status(ToolCallStatus::Pending)
                .raw_input(json!({"command": command})),
        ))?;
        if self.is_allowed(RUN).await? {
            self.run_to_end(command, &[]).await?;
            self.status(RUN, ToolCallStatus::Completed)
        } else {
            self.status(RUN, ToolCallStatus::Failed)
        }
    }

    async fn is_allowed(&self, call: &'static str) -> Result<bool> {
        let answer = self.ask(call).await?;
        let answer = answer.as_deref().unwrap_or("cancelled");
        self.chunk(format!("permission:{answer}"))?;
        Ok(answer == "allow")
    }

    async fn write(&self, call: &'static str, path: &str, text: String) -> Result<()> {
        self.status(call, ToolCallStatus::InProgress)?;
        let write = WriteTextFileRequest::new(self.session.clone(), path, text.clone());
        self.connection.send_request(write).block_task().await?;
        let fields = ToolCallUpdateFields::new().status(ToolCallStatus::Completed);
        self.call(call, fields.content(vec![Diff::new(path, text).into()]))?;
        self.chunk("wrote")
    }

    /// Returns the option that the user selected, or `None` if the client answered that the turn is cancelled.
    async fn ask(&self, call: &'static str) -> Result<Option<String>> {
        let request = RequestPermissionRequest::new(
            self.session.clone(),
            ToolCallUpdate::new(call, ToolCallUpdateFields::new()),
            vec![
                PermissionOption::new("allow", "Allow", PermissionOptionKind::AllowOnce),
                PermissionOption::new("reject", "Reject", PermissionOptionKind::RejectOnce),
            ],
        );
        match self.connection.send_request(request).block_task().await?.outcome {
            RequestPermissionOutcome::Selected(chosen) => Ok(Some(chosen.option_id.to_string())),
            // The enum is non-exhaustive; an outcome other than a selection gives no permission.
            _ => Ok(None),
        }
    }

    async fn run_to_end(&self, command: &str, args: &[&str]) -> Result<()> {
        let (cx, session) = (self.connection, || self.session.clone());
        let args = args.iter().map(ToString::to_string).collect::<Vec<_>>();
        let create = CreateTerminalRequest::new(session(), command).args(args);
        let id = cx.send_request(create).block_task().await?.terminal_id;
        let exit =
            cx.send_request(WaitForTerminalExitRequest::new(session(), id.clone())).block_task().await?;
        let output = cx.send_request(TerminalOutputRequest::new(session(), id.clone())).block_task().await?;
        cx.send_request(ReleaseTerminalRequest::new(session(), id)).block_task().await?;
        let code = exit.exit_status.exit_code.map_or_else(|| "none".to_owned(), |code| code.to_string());
        self.chunk(format!("terminal:{code}:{}", json!(output.output)))
    }

    async fn kill_sleep(&self) -> Result<()> {
        let (cx, session) = (self.connection, || self.session.clone());
        let create = CreateTerminalRequest::new(session(), "sleep").args(vec!["600".to_owned()]);
        let id = cx.send_request(create).block_task().await?.terminal_id;
        cx.send_request(KillTerminalRequest::new(session(), id.clone())).block_task().await?;
        cx.send_request(WaitForTerminalExitRequest::new(session(), id.clone())).block_task().await?;
        cx.send_request(ReleaseTerminalRequest::new(session(), id)).block_task().await?;
        self.chunk("killed")
    }

    fn file(&self, path: &str) -> ReadTextFileRequest {
        ReadTextFileRequest::new(self.session.clone(), path)
    }

    async fn read_file(&self, request: ReadTextFileRequest) -> Result<String> {
        Ok(self.connection.send_request(request).block_task().await?.content)
    }

    fn chunk(&self, text: impl Into<String>) -> Result<()> {
        self.update(SessionUpdate::AgentMessageChunk(ContentChunk::new(text.into().into())))
    }

    fn status(&self, call: &'static str, status: ToolCallStatus) -> Result<()> {
        self.call(call, ToolCallUpdateFields::new().status(status))
    }

    fn call(&self, call: &'static str, fields: ToolCallUpdateFields) -> Result<()> {
        self.update(SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(call, fields)))
    }

    fn update(&self, update: SessionUpdate) -> Result<()> {
        self.connection.send_notification(SessionNotification::new(self.session.clone(), update))
    }
}
