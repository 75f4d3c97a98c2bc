//! An agent that can do more than the one of the lab: load and fork sessions, log in, stall, and tell what it heard.

use std::collections::VecDeque;
use std::sync::Mutex;

use bowline_host::{Connection, Host};
use bowline_wire::schema::v1::{
    AgentCapabilities, AuthMethod, AuthMethodAgent, AuthMethodTerminal, AuthenticateRequest,
    AuthenticateResponse, Error, ForkSessionRequest, ForkSessionResponse, InitializeRequest,
    InitializeResponse, LoadSessionRequest, LoadSessionResponse, NewSessionRequest, NewSessionResponse,
    PromptRequest, PromptResponse, SessionCapabilities, SessionForkCapabilities, StopReason,
};
use bowline_wire::{Agent, AgentContext, Limits, connect_agent};
use test_support::lab::{Act, Turn};

use super::stage::Seen;

/// The agent. Its new sessions are all called `s1`, its forks `f1`.
#[derive(Default)]
pub(crate) struct Player {
    pub(crate) acts: Mutex<VecDeque<Act>>,
    /// The methods that were called, one a line.
    pub(crate) heard: Seen,
    /// Whether it never answers who loads a session.
    pub(crate) stalls: bool,
}

impl Player {
    pub(crate) fn new(acts: Vec<Act>) -> Self {
        Self { acts: Mutex::new(acts.into()), ..Self::default() }
    }

    /// Connects the agent to a host.
    pub(crate) async fn connect(self, host: &Host) -> Connection {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let (reader, writer) = tokio::io::split(theirs);
        let (_, serving) = connect_agent(std::sync::Arc::new(self), reader, writer, Limits::DEFAULT);
        tokio::spawn(serving);
        let (reader, writer) = tokio::io::split(ours);
        host.connect(reader, writer).await.unwrap()
    }
}

impl Agent for Player {
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
        if self.stalls {
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
        let act = self.acts.lock().unwrap().pop_front();
        let Some(act) = act else { return Ok(PromptResponse::new(StopReason::EndTurn)) };
        let turn = Turn { client: cx.client().clone(), session: request.session_id, cx };
        Ok(PromptResponse::new(act(turn).await?))
    }

    fn inspect(&self, method: &str, _: &str) {
        self.heard.add(method);
    }
}
