//! An agent with more features than the harness's: it loads and forks sessions, logs in, stalls, and records the calls.

use std::collections::VecDeque;
use std::sync::Mutex;

use bowline_host::{Connection, Host};
use bowline_wire::message::peek::{PeekedMessage, peek};
use bowline_wire::schema::v1::{
    AgentCapabilities, AuthMethod, AuthMethodAgent, AuthMethodTerminal, AuthenticateRequest,
    AuthenticateResponse, Error, ForkSessionRequest, ForkSessionResponse, InitializeRequest,
    InitializeResponse, LoadSessionRequest, LoadSessionResponse, NewSessionRequest, NewSessionResponse,
    PromptRequest, PromptResponse, SessionCapabilities, SessionForkCapabilities, StopReason,
};
use bowline_wire::{
    Agent, AgentContext, ConnectionLimits, Direction, RecordedStream, WireRecorder, connect_agent,
};
use test_support::host_harness::{AgentTurn, TurnScript};

use super::host_fixture::SeenLog;

/// The agent. All its new sessions have the id `s1`, and its forks `f1`.
#[derive(Default)]
pub(crate) struct SessionAgent {
    pub(crate) turns: Mutex<VecDeque<TurnScript>>,
    /// The methods that were called, one per line.
    pub(crate) received_methods: SeenLog,
    /// Whether it never responds to `session/load`.
    pub(crate) stalls_on_load: bool,
}

impl SessionAgent {
    pub(crate) fn new(acts: Vec<TurnScript>) -> Self {
        Self { turns: Mutex::new(acts.into()), ..Self::default() }
    }

    /// Connects the agent to a host.
    pub(crate) async fn connect(self, host: &Host) -> Connection {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let (reader, writer) = tokio::io::split(theirs);
        let limits = ConnectionLimits::DEFAULT;
        let log = std::sync::Arc::new(self.received_methods.clone());
        let reader = RecordedStream::new(reader, Some(log), Direction::Received, limits.max_line);
        let (_, serving) = connect_agent(std::sync::Arc::new(self), reader, writer, limits);
        tokio::spawn(serving);
        let (reader, writer) = tokio::io::split(ours);
        host.connect(reader, writer).await.unwrap()
    }
}

impl WireRecorder for SeenLog {
    fn record_line(&self, _: Direction, line: &[u8]) {
        if let PeekedMessage::Request { method, .. } | PeekedMessage::Notification { method } = peek(line) {
            self.add(&method);
        }
    }
}

impl Agent for SessionAgent {
    async fn initialize(
        &self,
        request: InitializeRequest,
        _: AgentContext,
    ) -> Result<InitializeResponse, Error> {
        let session = SessionCapabilities::new().fork(SessionForkCapabilities::new());
        let capabilities = AgentCapabilities::new().load_session(true).session_capabilities(session);
        Ok(InitializeResponse::new(request.protocol_version).agent_capabilities(capabilities).auth_methods(
            vec![
                AuthMethod::Agent(AuthMethodAgent::new("key", "A key")),
                AuthMethod::Terminal(AuthMethodTerminal::new("tty", "In a terminal")),
            ],
        ))
    }

    async fn new_session(&self, _: NewSessionRequest, _: AgentContext) -> Result<NewSessionResponse, Error> {
        Ok(NewSessionResponse::new("s1"))
    }

    async fn load_session(
        &self,
        _: LoadSessionRequest,
        _: AgentContext,
    ) -> Result<LoadSessionResponse, Error> {
        if self.stalls_on_load {
            std::future::pending::<()>().await;
        }
        Ok(LoadSessionResponse::new())
    }

    async fn fork_session(
        &self,
        _: ForkSessionRequest,
        _: AgentContext,
    ) -> Result<ForkSessionResponse, Error> {
        Ok(ForkSessionResponse::new("f1"))
    }

    async fn authenticate(
        &self,
        _: AuthenticateRequest,
        _: AgentContext,
    ) -> Result<AuthenticateResponse, Error> {
        Ok(AuthenticateResponse::new())
    }

    async fn prompt(&self, request: PromptRequest, cx: AgentContext) -> Result<PromptResponse, Error> {
        let act = self.turns.lock().unwrap().pop_front();
        let Some(act) = act else { return Ok(PromptResponse::new(StopReason::EndTurn)) };
        let turn = AgentTurn { client: cx.client().clone(), session: request.session_id, cx };
        Ok(PromptResponse::new(act(turn).await?))
    }
}
