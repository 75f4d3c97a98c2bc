//! The agent, as a client sees it.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use agent_client_protocol_schema::v1::{
    AuthenticateRequest, AuthenticateResponse, CancelNotification, CloseSessionRequest, CloseSessionResponse,
    DeleteSessionRequest, DeleteSessionResponse, ExtNotification, ExtRequest, ExtResponse,
    ForkSessionRequest, ForkSessionResponse, InitializeRequest, InitializeResponse, ListSessionsRequest,
    ListSessionsResponse, LoadSessionRequest, LoadSessionResponse, LogoutRequest, LogoutResponse, McpServer,
    MessageMcpNotification, NewSessionRequest, NewSessionResponse, PromptRequest, PromptResponse,
    ResumeSessionRequest, ResumeSessionResponse, SessionId, SetSessionConfigOptionRequest,
    SetSessionConfigOptionResponse, SetSessionModeRequest, SetSessionModeResponse,
};
use bowline_state::capabilities::{AgentGate, AgentMethod, ClientGate, ClientMethod, NotAdvertised};
use bowline_state::version;

use crate::caller::{CallError, Caller};
use crate::client_handle::{extension_call, extension_notify};
use crate::methods::{SetSessionModelRequest, SetSessionModelResponse};

/// The agent at the other end. What it did not advertise is an error before anything is sent.
#[derive(Debug, Clone)]
pub struct AgentHandle {
    end: Arc<AgentEnd>,
}

#[derive(Debug)]
struct AgentEnd {
    caller: Caller,
    gate: OnceLock<AgentGate>,
    advertised: OnceLock<ClientGate>,
}

impl AgentHandle {
    pub(crate) fn new(caller: Caller) -> Self {
        AgentHandle { end: Arc::new(AgentEnd { caller, gate: OnceLock::new(), advertised: OnceLock::new() }) }
    }

    /// What we told the agent that we serve; nothing before `initialize`.
    pub(crate) fn advertised(&self) -> ClientGate {
        self.end.advertised.get().cloned().unwrap_or_default()
    }

    /// Checks that we told the agent that we serve a method.
    pub(crate) fn check_advertised(&self, method: ClientMethod) -> Result<(), NotAdvertised> {
        match self.end.advertised.get() {
            Some(gate) => gate.check(method),
            None => ClientGate::default().check(method),
        }
    }

    /// What the agent advertised; nothing before `initialize` was answered.
    #[must_use]
    pub fn gate(&self) -> AgentGate {
        self.end.gate.get().cloned().unwrap_or_default()
    }

    /// Checks that the agent serves a method.
    ///
    /// # Errors
    /// Returns the capability that is missing.
    pub fn check(&self, method: AgentMethod) -> Result<(), NotAdvertised> {
        match self.end.gate.get() {
            Some(gate) => gate.check(method),
            None => AgentGate::default().check(method),
        }
    }

    /// The connection itself, for messages that the protocol does not define.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        &self.end.caller
    }

    /// Agrees on a version and capabilities. This comes first, and once. The latest version that we speak is asked
    /// for, whatever the request says.
    ///
    /// # Errors
    /// Fails as [`CallError`] says, and if the agent answers with a version that we do not speak: then the
    /// connection is closed.
    pub async fn initialize(&self, mut request: InitializeRequest) -> Result<InitializeResponse, CallError> {
        request.protocol_version = version::LATEST;
        // What was advertised first stays: an agent may rely on it.
        self.end.advertised.get_or_init(|| ClientGate::new(request.client_capabilities.clone()));
        let response = self.end.caller.call(&request).await?;
        if let Err(unsupported) = version::accept(response.protocol_version) {
            self.end.caller.close();
            return Err(unsupported.into());
        }
        self.end.gate.get_or_init(|| AgentGate::new(response.agent_capabilities.clone()));
        Ok(response)
    }

    /// Logs in with a method that the agent offered.
    ///
    /// # Errors
    /// Fails as [`CallError`] says.
    pub async fn authenticate(
        &self,
        request: AuthenticateRequest,
    ) -> Result<AuthenticateResponse, CallError> {
        self.check(AgentMethod::Authenticate)?;
        self.end.caller.call(&request).await
    }

    /// Logs out.
    ///
    /// # Errors
    /// Fails as [`CallError`] says.
    pub async fn logout(&self, request: LogoutRequest) -> Result<LogoutResponse, CallError> {
        self.check(AgentMethod::Logout)?;
        self.end.caller.call(&request).await
    }

    /// Starts a session.
    ///
    /// # Errors
    /// Fails as [`CallError`] says.
    pub async fn new_session(&self, request: NewSessionRequest) -> Result<NewSessionResponse, CallError> {
        self.check_setup(AgentMethod::NewSession, &request.mcp_servers, &request.additional_directories)?;
        self.end.caller.call(&request).await
    }

    /// Loads a session. What was said in it comes as updates, all of them handled before this returns.
    ///
    /// # Errors
    /// Fails as [`CallError`] says.
    pub async fn load_session(&self, request: LoadSessionRequest) -> Result<LoadSessionResponse, CallError> {
        self.check_setup(AgentMethod::LoadSession, &request.mcp_servers, &request.additional_directories)?;
        self.end.caller.call(&request).await
    }

    /// Resumes a session without hearing again what was said in it.
    ///
    /// # Errors
    /// Fails as [`CallError`] says.
    pub async fn resume_session(
        &self,
        request: ResumeSessionRequest,
    ) -> Result<ResumeSessionResponse, CallError> {
        self.check_setup(AgentMethod::ResumeSession, &request.mcp_servers, &request.additional_directories)?;
        self.end.caller.call(&request).await
    }

    /// Copies a session.
    ///
    /// # Errors
    /// Fails as [`CallError`] says.
    pub async fn fork_session(&self, request: ForkSessionRequest) -> Result<ForkSessionResponse, CallError> {
        self.check_setup(AgentMethod::ForkSession, &request.mcp_servers, &request.additional_directories)?;
        self.end.caller.call(&request).await
    }

    /// Lists the sessions that the agent keeps.
    ///
    /// # Errors
    /// Fails as [`CallError`] says.
    pub async fn list_sessions(
        &self,
        request: ListSessionsRequest,
    ) -> Result<ListSessionsResponse, CallError> {
        self.check(AgentMethod::ListSessions)?;
        self.end.caller.call(&request).await
    }

    /// Ends a session and what runs in it.
    ///
    /// # Errors
    /// Fails as [`CallError`] says.
    pub async fn close_session(
        &self,
        request: CloseSessionRequest,
    ) -> Result<CloseSessionResponse, CallError> {
        self.check(AgentMethod::CloseSession)?;
        self.end.caller.call(&request).await
    }

    /// Deletes a session.
    ///
    /// # Errors
    /// Fails as [`CallError`] says.
    pub async fn delete_session(
        &self,
        request: DeleteSessionRequest,
    ) -> Result<DeleteSessionResponse, CallError> {
        self.check(AgentMethod::DeleteSession)?;
        self.end.caller.call(&request).await
    }

    /// Switches the mode of a session.
    ///
    /// # Errors
    /// Fails as [`CallError`] says.
    pub async fn set_session_mode(
        &self,
        request: SetSessionModeRequest,
    ) -> Result<SetSessionModeResponse, CallError> {
        self.check(AgentMethod::SetMode)?;
        self.end.caller.call(&request).await
    }

    /// Sets a config option of a session.
    ///
    /// # Errors
    /// Fails as [`CallError`] says.
    pub async fn set_session_config_option(
        &self,
        request: SetSessionConfigOptionRequest,
    ) -> Result<SetSessionConfigOptionResponse, CallError> {
        self.check(AgentMethod::SetConfigOption)?;
        self.end.caller.call(&request).await
    }

    /// Switches the model of a session in the older way.
    ///
    /// # Errors
    /// Fails as [`CallError`] says.
    pub async fn set_session_model(
        &self,
        request: SetSessionModelRequest,
    ) -> Result<SetSessionModelResponse, CallError> {
        self.check(AgentMethod::SetMode)?;
        self.end.caller.call(&request).await
    }

    /// Sends a prompt and waits for the end of the turn. Every update of the turn is handled before this returns.
    ///
    /// # Errors
    /// Fails as [`CallError`] says.
    pub async fn prompt(&self, request: PromptRequest) -> Result<PromptResponse, CallError> {
        self.check(AgentMethod::Prompt)?;
        self.gate().check_prompt(&request.prompt)?;
        self.end.caller.call(&request).await
    }

    /// Cancels the turn of a session. The prompt is then answered with the stop reason `cancelled`.
    ///
    /// # Errors
    /// Fails when the agent is gone.
    pub async fn cancel(&self, session_id: impl Into<SessionId>) -> Result<(), CallError> {
        self.check(AgentMethod::Cancel)?;
        self.end.caller.notify(&CancelNotification::new(session_id)).await
    }

    /// Calls an extension method.
    ///
    /// # Errors
    /// Fails as [`CallError`] says.
    pub async fn ext_request(&self, request: ExtRequest) -> Result<ExtResponse, CallError> {
        extension_call(&self.end.caller, request).await
    }

    /// Tells the agent something while an MCP server of this client answers its request.
    ///
    /// # Errors
    /// Fails when the agent is gone.
    pub async fn mcp_notification(&self, notification: &MessageMcpNotification) -> Result<(), CallError> {
        self.end.caller.notify(notification).await
    }

    /// Sends an extension notification.
    ///
    /// # Errors
    /// Fails when the agent is gone.
    pub async fn ext_notification(&self, notification: ExtNotification) -> Result<(), CallError> {
        extension_notify(&self.end.caller, notification).await
    }

    /// Checks what every way to start a session has in common.
    fn check_setup(
        &self,
        method: AgentMethod,
        servers: &[McpServer],
        directories: &[PathBuf],
    ) -> Result<(), NotAdvertised> {
        let gate = self.gate();
        gate.check(method)?;
        gate.check_mcp_servers(servers)?;
        gate.check_additional_directories(directories)
    }
}
