//! One turn: what the prompt's text asks for, done over the connection.

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

/// What a prompt asks for.
#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum Task {
    Read { path: String, count: usize, inflight: usize },
    Stream { count: usize, size: usize },
    Flow { path: String, new_path: String },
    Wait,
}

/// Runs one turn to its end.
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

    /// The SDK's queue takes all of them at once: "sends never wait" is its contract.
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

        let answer = self.ask().await?;
        self.chunk(format!("permission:{}", answer.as_deref().unwrap_or("cancelled")))?;
        if answer.as_deref() == Some("allow") {
            self.call(ToolCallUpdateFields::new().status(ToolCallStatus::InProgress))?;
            let text = format!("{whole}written by {}\n", crate::NAME);
            let write = WriteTextFileRequest::new(self.session.clone(), new_path, text.clone());
            self.connection.send_request(write).block_task().await?;
            let diff = Diff::new(new_path, text);
            self.call(
                ToolCallUpdateFields::new().status(ToolCallStatus::Completed).content(vec![diff.into()]),
            )?;
            self.chunk("wrote")?;
        } else {
            self.call(ToolCallUpdateFields::new().status(ToolCallStatus::Failed))?;
        }

        let missing = self.read_file(self.file(&format!("{path}.missing"))).await;
        let code = missing.err().map_or_else(|| "none".to_owned(), |error| i32::from(error.code).to_string());
        self.chunk(format!("missing:{code}"))?;
        self.run_echo().await?;
        self.kill_sleep().await?;

        self.update(SessionUpdate::Plan(Plan::new(vec![
            PlanEntry::new("Read the file", PlanEntryPriority::High, PlanEntryStatus::Completed),
            PlanEntry::new("Write the file", PlanEntryPriority::Medium, PlanEntryStatus::InProgress),
        ])))?;
        Ok(StopReason::EndTurn)
    }

    /// Returns the option that the user chose, `None` if the client answered that the turn is cancelled.
    async fn ask(&self) -> Result<Option<String>> {
        let request = RequestPermissionRequest::new(
            self.session.clone(),
            ToolCallUpdate::new(CALL, ToolCallUpdateFields::new()),
            vec![
                PermissionOption::new("allow", "Allow", PermissionOptionKind::AllowOnce),
                PermissionOption::new("reject", "Reject", PermissionOptionKind::RejectOnce),
            ],
        );
        match self.connection.send_request(request).block_task().await?.outcome {
            RequestPermissionOutcome::Selected(chosen) => Ok(Some(chosen.option_id.to_string())),
            // The enum is open; an outcome that is not a choice gives no permission.
            _ => Ok(None),
        }
    }

    async fn run_echo(&self) -> Result<()> {
        let (cx, session) = (self.connection, || self.session.clone());
        let create = CreateTerminalRequest::new(session(), "echo").args(vec!["hello".to_owned()]);
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

    fn call(&self, fields: ToolCallUpdateFields) -> Result<()> {
        self.update(SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(CALL, fields)))
    }

    fn update(&self, update: SessionUpdate) -> Result<()> {
        self.connection.send_notification(SessionNotification::new(self.session.clone(), update))
    }
}
