//! The handle by which a client calls the agent.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use agent_client_protocol_schema::v1::{
    AuthenticateRequest, CancelNotification, CloseSessionRequest, DeleteSessionRequest, ExtNotification,
    ExtRequest, ExtResponse, ForkSessionRequest, ForkSessionResponse, InitializeRequest, InitializeResponse,
    ListSessionsRequest, LoadSessionRequest, LoadSessionResponse, LogoutRequest, McpServer,
    MessageMcpNotification, NewSessionRequest, NewSessionResponse, PromptRequest, PromptResponse,
    ResumeSessionRequest, ResumeSessionResponse, SessionId, SetSessionConfigOptionRequest,
    SetSessionModeRequest,
};
use bowline_protocol::capabilities::version;
use bowline_protocol::capabilities::{
    AgentCapabilityGate, AgentMethod, CapabilityError, ClientCapabilityGate, ClientMethod,
};
use bowline_protocol::file_extension::FilesChangedNotification;

use crate::caller::{CallError, Caller};
use crate::client::handle::{call_extension, notify_extension};
use crate::message::methods::{RpcRequest, SetSessionModelRequest};
use crate::service::dispatch::{calls, with_gate};

/// The agent at the other end. Using a capability that it did not advertise fails before anything is sent.
#[derive(Debug, Clone)]
pub struct AgentHandle {
    inner: Arc<AgentHandleInner>,
}

#[derive(Debug)]
struct AgentHandleInner {
    caller: Caller,
    gate: OnceLock<AgentCapabilityGate>,
    advertised: OnceLock<ClientCapabilityGate>,
}

impl AgentHandle {
    pub(crate) fn new(caller: Caller) -> Self {
        AgentHandle {
            inner: Arc::new(AgentHandleInner { caller, gate: OnceLock::new(), advertised: OnceLock::new() }),
        }
    }

    /// Returns the capabilities that we advertised; none before `initialize`.
    pub(crate) fn advertised(&self) -> ClientCapabilityGate {
        self.inner.advertised.get().cloned().unwrap_or_default()
    }

    /// Checks that we advertised a method.
    pub(crate) fn check_advertised(&self, method: ClientMethod) -> Result<(), CapabilityError> {
        with_gate(&self.inner.advertised, |gate| gate.check(method))
    }

    /// Returns the capabilities that the agent advertised; none before it answered `initialize`.
    #[must_use]
    pub fn gate(&self) -> AgentCapabilityGate {
        self.inner.gate.get().cloned().unwrap_or_default()
    }

    /// Checks that the agent serves a method.
    ///
    /// # Errors
    /// Returns the missing capability.
    pub fn check(&self, method: AgentMethod) -> Result<(), CapabilityError> {
        with_gate(&self.inner.gate, |gate| gate.check(method))
    }

    /// Returns the connection itself, for messages that the protocol does not define.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        &self.inner.caller
    }

    /// Agrees on a version and capabilities. It has to be the first call, and is made once. It requests the latest
    /// version that we support, regardless of the one in `request`.
    ///
    /// # Errors
    /// Returns a [`CallError`] if the call fails, or if the agent answers with an unsupported version: then the
    /// connection is closed.
    pub async fn initialize(&self, mut request: InitializeRequest) -> Result<InitializeResponse, CallError> {
        request.protocol_version = version::LATEST;
        // The first advertised capabilities stay: an agent may rely on them.
        self.inner.advertised.get_or_init(|| ClientCapabilityGate::new(request.client_capabilities.clone()));
        let response = self.inner.caller.call(&request).await?;
        if let Err(unsupported) = version::check_version(response.protocol_version) {
            self.inner.caller.close();
            return Err(unsupported.into());
        }
        self.inner.gate.get_or_init(|| AgentCapabilityGate::new(response.agent_capabilities.clone()));
        Ok(response)
    }

    calls! {
        "Returns a [`CallError`] if the call fails.";
        /// Logs in with a method that the agent offered.
        authenticate(AuthenticateRequest), AgentMethod::Authenticate;
        /// Logs out.
        logout(LogoutRequest), AgentMethod::Logout;
    }

    /// Starts a session.
    ///
    /// # Errors
    /// Returns a [`CallError`] if the call fails.
    pub async fn new_session(&self, request: NewSessionRequest) -> Result<NewSessionResponse, CallError> {
        self.check_setup(AgentMethod::NewSession, &request.mcp_servers, &request.additional_directories)?;
        self.inner.caller.call(&request).await
    }

    /// Loads a session. Its history arrives as updates, all of which are handled before this returns.
    ///
    /// # Errors
    /// Returns a [`CallError`] if the call fails.
    pub async fn load_session(&self, request: LoadSessionRequest) -> Result<LoadSessionResponse, CallError> {
        self.check_setup(AgentMethod::LoadSession, &request.mcp_servers, &request.additional_directories)?;
        self.inner.caller.call(&request).await
    }

    /// Resumes a session without receiving its history.
    ///
    /// # Errors
    /// Returns a [`CallError`] if the call fails.
    pub async fn resume_session(
        &self,
        request: ResumeSessionRequest,
    ) -> Result<ResumeSessionResponse, CallError> {
        self.check_setup(AgentMethod::ResumeSession, &request.mcp_servers, &request.additional_directories)?;
        self.inner.caller.call(&request).await
    }

    /// Copies a session.
    ///
    /// # Errors
    /// Returns a [`CallError`] if the call fails.
    pub async fn fork_session(&self, request: ForkSessionRequest) -> Result<ForkSessionResponse, CallError> {
        self.check_setup(AgentMethod::ForkSession, &request.mcp_servers, &request.additional_directories)?;
        self.inner.caller.call(&request).await
    }

    calls! {
        "Returns a [`CallError`] if the call fails.";
        /// Lists the sessions that the agent has stored.
        list_sessions(ListSessionsRequest), AgentMethod::ListSessions;
        /// Ends a session and everything that runs in it.
        close_session(CloseSessionRequest), AgentMethod::CloseSession;
        /// Deletes a session.
        delete_session(DeleteSessionRequest), AgentMethod::DeleteSession;
        /// Switches the mode of a session.
        set_session_mode(SetSessionModeRequest), AgentMethod::SetMode;
        /// Sets a config option of a session.
        set_session_config_option(SetSessionConfigOptionRequest), AgentMethod::SetConfigOption;
        /// Switches the model of a session by the older method.
        set_session_model(SetSessionModelRequest), AgentMethod::SetMode;
    }

    /// Sends a prompt and waits for the end of the turn. Every update of the turn is handled before this returns.
    ///
    /// # Errors
    /// Returns a [`CallError`] if the call fails.
    pub async fn prompt(&self, request: PromptRequest) -> Result<PromptResponse, CallError> {
        self.check(AgentMethod::Prompt)?;
        self.gate().check_prompt(&request.prompt)?;
        self.inner.caller.call(&request).await
    }

    /// Cancels the turn of a session. The agent then answers the prompt with the stop reason `cancelled`.
    ///
    /// # Errors
    /// Fails when the agent is gone.
    pub async fn cancel(&self, session_id: impl Into<SessionId>) -> Result<(), CallError> {
        self.check(AgentMethod::Cancel)?;
        self.inner.caller.notify(&CancelNotification::new(session_id)).await
    }

    /// Reports changes of watched files. Send the first ones after the answer to the watch
    /// ([`RequestContext::answered`](crate::RequestContext::answered)), which names it.
    ///
    /// # Errors
    /// Fails if we did not advertise watches, or the agent is gone.
    pub async fn notify_files_changed(
        &self,
        notification: &FilesChangedNotification,
    ) -> Result<(), CallError> {
        self.check_advertised(ClientMethod::WatchFiles)?;
        self.inner.caller.notify(notification).await
    }

    /// Calls an extension method.
    ///
    /// # Errors
    /// Returns a [`CallError`] if the call fails.
    pub async fn ext_request(&self, request: ExtRequest) -> Result<ExtResponse, CallError> {
        call_extension(&self.inner.caller, request).await
    }

    /// Sends a notification while an MCP server of this client answers the agent's request.
    ///
    /// # Errors
    /// Fails when the agent is gone.
    pub async fn mcp_notification(&self, notification: &MessageMcpNotification) -> Result<(), CallError> {
        self.inner.caller.notify(notification).await
    }

    /// Sends an extension notification.
    ///
    /// # Errors
    /// Fails when the agent is gone.
    pub async fn ext_notification(&self, notification: ExtNotification) -> Result<(), CallError> {
        notify_extension(&self.inner.caller, notification).await
    }

    /// Checks the requirements shared by all methods that start a session.
    fn check_setup(
        &self,
        method: AgentMethod,
        servers: &[McpServer],
        directories: &[PathBuf],
    ) -> Result<(), CapabilityError> {
        let gate = self.gate();
        gate.check(method)?;
        gate.check_mcp_servers(servers)?;
        gate.check_additional_directories(directories)
    }
}
