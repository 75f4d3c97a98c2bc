//! An agent controlled by its prompt, and the other end of its connection as plain lines.

use std::sync::Arc;

use bowline_wire::schema::v1::{
    CancelNotification, CloseSessionRequest, CloseSessionResponse, ContentBlock, ContentChunk, Error,
    ExtRequest, ExtResponse, InitializeRequest, InitializeResponse, NewSessionRequest, NewSessionResponse,
    PromptRequest, PromptResponse, ReadTextFileRequest, SessionUpdate, StopReason,
};
use bowline_wire::{Agent, AgentContext, ClientHandle, ConnectionLimits, connect_agent};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};

/// Understands `say TEXT`, `after TEXT` (sent once the turn is answered), `later TEXT` (the same, with a wait in the
/// turn), `read PATH`, `panic`, `wait` (for the cancel signal) and `stream COUNT`.
pub(crate) struct ProbeAgent;

impl Agent for ProbeAgent {
    async fn initialize(
        &self,
        request: InitializeRequest,
        _: AgentContext,
    ) -> Result<InitializeResponse, Error> {
        // An agent that echoes the version: the library must prevent that.
        Ok(InitializeResponse::new(request.protocol_version))
    }

    async fn new_session(&self, _: NewSessionRequest, _: AgentContext) -> Result<NewSessionResponse, Error> {
        Ok(NewSessionResponse::new("s"))
    }

    async fn prompt(&self, request: PromptRequest, cx: AgentContext) -> Result<PromptResponse, Error> {
        let (client, session) = (cx.client(), request.session_id.clone());
        let Some(ContentBlock::Text(text)) = request.prompt.first() else {
            return Err(Error::invalid_params());
        };
        match text.text.split_once(' ').unwrap_or((&text.text, "")) {
            ("say", text) => client.update(session, chunk(text)).await?,
            (when @ ("after" | "later"), text) => {
                let (update, cx) = (chunk(text), cx.clone());
                tokio::spawn(async move {
                    cx.answered().await;
                    cx.client().update(session, update).await.expect("the client is there");
                });
                if when == "later" {
                    tokio::task::yield_now().await;
                }
            }
            ("read", path) => {
                let read = client.read_text_file(ReadTextFileRequest::new(session.clone(), path)).await?;
                client.update(session, chunk(&read.content)).await?;
            }
            ("panic", _) => panic!("secret of the agent"),
            ("wait", _) => {
                client.update(session, chunk("waiting")).await?;
                cx.cancelled().await;
                return Ok(PromptResponse::new(StopReason::Cancelled));
            }
            ("stream", count) => {
                for number in 0..count.parse().unwrap_or(0) {
                    client.update(session.clone(), chunk(&format!("{number}"))).await?;
                }
            }
            _ => return Err(Error::invalid_params()),
        }
        Ok(PromptResponse::new(StopReason::EndTurn))
    }

    async fn cancel(&self, notification: CancelNotification, client: ClientHandle) {
        client.update(notification.session_id, chunk("cancel seen")).await.expect("the client is there");
    }

    async fn close_session(
        &self,
        _: CloseSessionRequest,
        _: AgentContext,
    ) -> Result<CloseSessionResponse, Error> {
        Ok(CloseSessionResponse::new())
    }

    async fn ext_request(&self, request: ExtRequest, _: AgentContext) -> Result<ExtResponse, Error> {
        match &*request.method {
            "_echo" => Ok(ExtResponse::new(request.params)),
            _ => Err(Error::method_not_found()),
        }
    }
}

pub(crate) fn chunk(text: &str) -> SessionUpdate {
    SessionUpdate::AgentMessageChunk(ContentChunk::new(text.into()))
}

/// The other end of an agent's connection.
pub(crate) struct LineClient {
    pub(crate) lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    pub(crate) writer: WriteHalf<DuplexStream>,
    pub(crate) serve_task: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl LineClient {
    /// Connects to `agent` by a pipe that holds `pipe` bytes each way.
    pub(crate) fn connect(agent: impl Agent, limits: ConnectionLimits, pipe: usize) -> Self {
        let (client_stream, agent_stream) = tokio::io::duplex(pipe);
        let (reader, writer) = tokio::io::split(agent_stream);
        let (_client, serving) = connect_agent(Arc::new(agent), reader, writer, limits);
        let (reader, writer) = tokio::io::split(client_stream);
        LineClient { lines: BufReader::new(reader).lines(), writer, serve_task: tokio::spawn(serving) }
    }

    pub(crate) async fn send(&mut self, line: &[u8]) {
        self.writer.write_all(line).await.expect("the agent reads");
        self.writer.write_all(b"\n").await.expect("the agent reads");
    }

    pub(crate) async fn receive(&mut self) -> String {
        let line = self.lines.next_line().await.expect("the agent writes text");
        line.unwrap_or_else(|| "(closed)".to_owned())
    }
}
