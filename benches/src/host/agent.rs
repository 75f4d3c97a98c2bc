//! The benchmark's agent: runs one step for each prompt, and reports its duration.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use agent_client_protocol_schema::v1::{
    ContentBlock, ContentChunk, CreateTerminalRequest, Error, Implementation, InitializeRequest,
    InitializeResponse, NewSessionRequest, NewSessionResponse, PromptRequest, PromptResponse,
    ReadTextFileRequest, ReleaseTerminalRequest, SessionId, SessionUpdate, StopReason, TerminalOutputRequest,
    WaitForTerminalExitRequest, WriteTextFileRequest,
};
use anyhow::{Context as _, Result};
use bowline_wire::{Agent, AgentContext, CallError, ClientHandle, run_agent};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

/// The size of a written file.
pub(super) const WRITTEN_BYTES: usize = 4 << 10;

/// An agent's work in one turn.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AgentStep {
    /// Makes `count` reads, `inflight` of them concurrently, cycling through the files.
    Read { paths: Vec<String>, count: usize, inflight: usize },
    /// Writes a file `count` times, each time with another text.
    Write { path: String, count: usize },
    /// Runs a command `count` times in sequence: create, wait, get the output, release.
    Run { command: String, args: Vec<String>, count: usize },
}

/// The result of a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct StepResult {
    /// The duration.
    pub(super) seconds: f64,
    /// The total size of the texts read, written or output.
    pub(super) bytes: usize,
}

/// Serves the client on stdin and stdout until it disconnects.
///
/// # Errors
/// Fails on an error of stdin or stdout.
pub fn run_step_agent() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run_agent(StepAgent)).context("the agent's pipes failed")
}

struct StepAgent;

impl Agent for StepAgent {
    async fn initialize(
        &self,
        request: InitializeRequest,
        _: AgentContext,
    ) -> Result<InitializeResponse, Error> {
        let info = Implementation::new("bench-host", env!("CARGO_PKG_VERSION"));
        Ok(InitializeResponse::new(request.protocol_version).agent_info(info))
    }

    async fn new_session(&self, _: NewSessionRequest, _: AgentContext) -> Result<NewSessionResponse, Error> {
        Ok(NewSessionResponse::new("bench"))
    }

    async fn prompt(&self, request: PromptRequest, cx: AgentContext) -> Result<PromptResponse, Error> {
        let turn = StepTurn { client: cx.client().clone(), session: request.session_id };
        let Some(ContentBlock::Text(text)) = request.prompt.first() else {
            return Err(Error::invalid_params());
        };
        let step: AgentStep = serde_json::from_str(&text.text).map_err(Error::into_internal_error)?;
        let begun = Instant::now();
        let bytes = match step {
            AgentStep::Read { paths, count, inflight } => turn.read(paths.into(), count, inflight).await?,
            AgentStep::Write { path, count } => turn.write(&path, count).await?,
            AgentStep::Run { command, args, count } => turn.run(&command, &args, count).await?,
        };
        let done = StepResult { seconds: begun.elapsed().as_secs_f64(), bytes };
        let text = serde_json::to_string(&done).map_err(Error::into_internal_error)?;
        let chunk = SessionUpdate::AgentMessageChunk(ContentChunk::new(text.into()));
        turn.client.update(turn.session.clone(), chunk).await?;
        Ok(PromptResponse::new(StopReason::EndTurn))
    }
}

/// A turn: the client to call, and the session.
#[derive(Clone)]
struct StepTurn {
    client: ClientHandle,
    session: SessionId,
}

impl StepTurn {
    async fn read(&self, paths: Arc<[String]>, count: usize, inflight: usize) -> Result<usize, Error> {
        let started = Arc::new(AtomicUsize::new(0));
        let mut readers = JoinSet::new();
        for _ in 0..inflight {
            let (turn, paths, started) = (self.clone(), Arc::clone(&paths), Arc::clone(&started));
            readers.spawn(async move {
                let mut bytes = 0;
                loop {
                    let at = started.fetch_add(1, Ordering::Relaxed);
                    if at >= count {
                        break;
                    }
                    let request = ReadTextFileRequest::new(turn.session.clone(), &paths[at % paths.len()]);
                    bytes += turn.client.read_text_file(request).await?.content.len();
                }
                Ok::<_, CallError>(bytes)
            });
        }
        let mut bytes = 0;
        while let Some(read) = readers.join_next().await {
            bytes += read.map_err(Error::into_internal_error)??;
        }
        Ok(bytes)
    }

    async fn write(&self, path: &str, count: usize) -> Result<usize, Error> {
        for number in 0..count {
            let content = numbered_text(number);
            let request = WriteTextFileRequest::new(self.session.clone(), path, content);
            self.client.write_text_file(request).await?;
        }
        Ok(count * WRITTEN_BYTES)
    }

    async fn run(&self, command: &str, args: &[String], count: usize) -> Result<usize, Error> {
        let mut bytes = 0;
        for _ in 0..count {
            let (client, session) = (&self.client, &self.session);
            let request = CreateTerminalRequest::new(session.clone(), command).args(args.to_vec());
            let id = client.create_terminal(request).await?.terminal_id;
            let wait = WaitForTerminalExitRequest::new(session.clone(), id.clone());
            let exit = client.wait_for_terminal_exit(wait).await?.exit_status;
            if exit.exit_code != Some(0) {
                return Err(Error::internal_error().data(format!("{command} ended with {exit:?}")));
            }
            let output = TerminalOutputRequest::new(session.clone(), id.clone());
            bytes += client.terminal_output(output).await?.output.len();
            client.release_terminal(ReleaseTerminalRequest::new(session.clone(), id)).await?;
        }
        Ok(bytes)
    }
}

/// Returns a text of [`WRITTEN_BYTES`] bytes that differs from its neighbours in one line.
fn numbered_text(number: usize) -> String {
    let line = "a line that stays as it is, whatever is written\n";
    let mut text = format!("{number:<47}\n");
    while text.len() < WRITTEN_BYTES {
        text.push_str(&line[..line.len().min(WRITTEN_BYTES - text.len())]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{WRITTEN_BYTES, numbered_text};

    #[test]
    fn texts_have_the_same_length_and_differ() {
        assert_eq!([0, 1, 99_999].map(|number| numbered_text(number).len()), [WRITTEN_BYTES; 3]);
        assert_ne!(numbered_text(1), numbered_text(2));
    }
}
