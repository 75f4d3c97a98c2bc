//! Bowline's scripted agent: it performs the task in its prompt, as `tests/peers/README.md` describes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agent_client_protocol_schema::v1::{
    ContentBlock, ContentChunk, CreateTerminalRequest, Diff, Error, Implementation, InitializeRequest,
    InitializeResponse, KillTerminalRequest, NewSessionRequest, NewSessionResponse, PermissionOption,
    PermissionOptionKind, Plan, PlanEntry, PlanEntryPriority, PlanEntryStatus, PromptRequest, PromptResponse,
    ReadTextFileRequest, ReleaseTerminalRequest, RequestPermissionOutcome, RequestPermissionRequest,
    SessionId, SessionUpdate, StopReason, TerminalOutputRequest, ToolCall, ToolCallContent, ToolCallLocation,
    ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, ToolKind, WaitForTerminalExitRequest,
    WriteTextFileRequest,
};
use bowline_wire::{Agent, AgentContext, CallError, ClientHandle, run_agent};
use serde_json::json;
use tokio::task::JoinSet;

use crate::contract::PeerTask;

/// The agent's name.
const NAME: &str = "bowline-peer";

/// Serves the client on stdin and stdout until it disconnects.
///
/// # Errors
/// Fails on an error of stdin or stdout.
pub fn run() -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run_agent(ScriptedAgent::default()))
}

/// The agent, with its sessions.
#[derive(Default)]
struct ScriptedAgent {
    sessions: AtomicUsize,
}

impl Agent for ScriptedAgent {
    async fn initialize(
        &self,
        request: InitializeRequest,
        _: AgentContext,
    ) -> Result<InitializeResponse, Error> {
        let info = Implementation::new(NAME, env!("CARGO_PKG_VERSION"));
        Ok(InitializeResponse::new(request.protocol_version).agent_info(info))
    }

    async fn new_session(&self, _: NewSessionRequest, _: AgentContext) -> Result<NewSessionResponse, Error> {
        let number = self.sessions.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(NewSessionResponse::new(format!("session_{number}")))
    }

    async fn prompt(&self, request: PromptRequest, cx: AgentContext) -> Result<PromptResponse, Error> {
        let turn = ScriptedTurn { client: cx.client().clone(), session: request.session_id };
        let text = match request.prompt.into_iter().next() {
            Some(ContentBlock::Text(text)) => text.text,
            _ => String::new(),
        };
        match PeerTask::from_text(&text) {
            None => turn.send_text(text).await?,
            Some(PeerTask::Read { path, count, inflight }) => {
                turn.read_repeatedly(&path, count, inflight).await?
            }
            Some(PeerTask::Stream { count, size }) => turn.stream_chunks(count, size).await?,
            Some(PeerTask::Flow { path, new_path }) => turn.run_flow(&path, &new_path).await?,
            Some(PeerTask::Wait) => {
                turn.send_text("waiting".to_owned()).await?;
                cx.cancelled().await;
                return Ok(PromptResponse::new(StopReason::Cancelled));
            }
        }
        Ok(PromptResponse::new(StopReason::EndTurn))
    }
}

/// One turn of a session.
#[derive(Clone)]
struct ScriptedTurn {
    client: ClientHandle,
    session: SessionId,
}

impl ScriptedTurn {
    async fn update(&self, update: SessionUpdate) -> Result<(), CallError> {
        self.client.update(self.session.clone(), update).await
    }

    async fn send_text(&self, text: String) -> Result<(), CallError> {
        self.update(SessionUpdate::AgentMessageChunk(ContentChunk::new(text.into()))).await
    }

    async fn stream_chunks(&self, count: usize, size: usize) -> Result<(), CallError> {
        let text = "x".repeat(size);
        for _ in 0..count {
            self.send_text(text.clone()).await?;
        }
        Ok(())
    }

    async fn read_repeatedly(&self, path: &str, count: usize, inflight: usize) -> Result<(), Error> {
        let started = Arc::new(AtomicUsize::new(0));
        let mut readers = JoinSet::new();
        for _ in 0..inflight {
            let (turn, path, started) = (self.clone(), path.to_owned(), Arc::clone(&started));
            readers.spawn(async move {
                let mut bytes = 0;
                while started.fetch_add(1, Ordering::Relaxed) < count {
                    bytes += turn.read_text(&path).await?.len();
                }
                Ok::<_, CallError>(bytes)
            });
        }
        let mut bytes = 0;
        while let Some(read) = readers.join_next().await {
            bytes += read.map_err(Error::into_internal_error)??;
        }
        Ok(self.send_text(json!({"reads": count, "bytes": bytes}).to_string()).await?)
    }

    async fn read_text(&self, path: &str) -> Result<String, CallError> {
        let request = ReadTextFileRequest::new(self.session.clone(), path);
        Ok(self.client.read_text_file(request).await?.content)
    }

    async fn run_flow(&self, path: &str, new_path: &str) -> Result<(), Error> {
        let call = ToolCall::new("call_1", "Update config")
            .kind(ToolKind::Edit)
            .status(ToolCallStatus::Pending)
            .locations(vec![ToolCallLocation::new(path)])
            .raw_input(json!({ "path": path }));
        self.update(SessionUpdate::ToolCall(call)).await?;
        let text = self.read_text(path).await?;
        self.send_text(format!("read:{}", json!(text))).await?;
        let window = ReadTextFileRequest::new(self.session.clone(), path).line(2).limit(1);
        self.send_text(format!("window:{}", json!(self.client.read_text_file(window).await?.content)))
            .await?;
        self.write_with_permission(new_path, format!("{text}written by {NAME}\n")).await?;
        match self.read_text(&format!("{path}.missing")).await {
            Err(CallError::ErrorResponse(error)) => {
                self.send_text(format!("missing:{}", i32::from(error.code))).await?
            }
            other => self.send_text(format!("missing:{other:?}")).await?,
        }
        self.run_terminals().await?;
        let plan = Plan::new(vec![
            PlanEntry::new("Read the file", PlanEntryPriority::High, PlanEntryStatus::Completed),
            PlanEntry::new("Write the file", PlanEntryPriority::Medium, PlanEntryStatus::InProgress),
        ]);
        Ok(self.update(SessionUpdate::Plan(plan)).await?)
    }

    async fn write_with_permission(&self, path: &str, text: String) -> Result<(), Error> {
        let options = vec![
            PermissionOption::new("allow", "Allow", PermissionOptionKind::AllowOnce),
            PermissionOption::new("reject", "Reject", PermissionOptionKind::RejectOnce),
        ];
        let call = ToolCallUpdate::new("call_1", ToolCallUpdateFields::new());
        let request = RequestPermissionRequest::new(self.session.clone(), call, options);
        let answer = match self.client.request_permission(request).await?.outcome {
            RequestPermissionOutcome::Selected(selected) => selected.option_id.to_string(),
            _ => "cancelled".to_owned(),
        };
        self.send_text(format!("permission:{answer}")).await?;
        if answer != "allow" {
            return Ok(self.update_call(ToolCallUpdateFields::new().status(ToolCallStatus::Failed)).await?);
        }
        self.update_call(ToolCallUpdateFields::new().status(ToolCallStatus::InProgress)).await?;
        let request = WriteTextFileRequest::new(self.session.clone(), path, text.clone());
        self.client.write_text_file(request).await?;
        let diff = vec![ToolCallContent::Diff(Diff::new(path, text))];
        self.update_call(ToolCallUpdateFields::new().status(ToolCallStatus::Completed).content(diff)).await?;
        Ok(self.send_text("wrote".to_owned()).await?)
    }

    async fn update_call(&self, fields: ToolCallUpdateFields) -> Result<(), CallError> {
        self.update(SessionUpdate::ToolCallUpdate(ToolCallUpdate::new("call_1", fields))).await
    }

    async fn run_terminals(&self) -> Result<(), Error> {
        let (session, client) = (&self.session, &self.client);
        let echo = CreateTerminalRequest::new(session.clone(), "echo").args(vec!["hello".to_owned()]);
        let id = client.create_terminal(echo).await?.terminal_id;
        let exit = WaitForTerminalExitRequest::new(session.clone(), id.clone());
        let exit = client.wait_for_terminal_exit(exit).await?.exit_status.exit_code.unwrap_or(u32::MAX);
        let output =
            client.terminal_output(TerminalOutputRequest::new(session.clone(), id.clone())).await?.output;
        client.release_terminal(ReleaseTerminalRequest::new(session.clone(), id)).await?;
        self.send_text(format!("terminal:{exit}:{}", json!(output))).await?;

        let sleep = CreateTerminalRequest::new(session.clone(), "sleep").args(vec!["600".to_owned()]);
        let id = client.create_terminal(sleep).await?.terminal_id;
        client.kill_terminal(KillTerminalRequest::new(session.clone(), id.clone())).await?;
        client.wait_for_terminal_exit(WaitForTerminalExitRequest::new(session.clone(), id.clone())).await?;
        client.release_terminal(ReleaseTerminalRequest::new(session.clone(), id)).await?;
        Ok(self.send_text("killed".to_owned()).await?)
    }
}
