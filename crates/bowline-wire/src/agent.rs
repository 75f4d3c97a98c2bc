//! The agent's end: the [`Agent`] trait, and the dispatcher that turns messages into calls of it.

pub(crate) mod handle;

use std::collections::HashMap;
use std::future::{Future, ready};
use std::sync::Arc;

use agent_client_protocol_schema::v1::{
    AGENT_METHOD_NAMES, AuthenticateRequest, CancelNotification, CloseSessionRequest, DeleteSessionRequest,
    Error, ExtNotification, ExtRequest, ExtResponse, ForkSessionRequest, InitializeRequest,
    InitializeResponse, ListSessionsRequest, LoadSessionRequest, LogoutRequest, MessageMcpNotification,
    NewSessionRequest, NewSessionResponse, PromptRequest, PromptResponse, ResumeSessionRequest, SessionId,
    SetSessionConfigOptionRequest, SetSessionModeRequest,
};
use bowline_protocol::capabilities::ClientCapabilityGate;
use bowline_protocol::capabilities::version;
use bowline_protocol::file_extension::FilesChangedNotification;
use bowline_protocol::quirks::misplaced_client_info;
use bowline_protocol::rpc_error::RpcError;

use crate::client::handle::ClientHandle;
use crate::message::methods::{self, RpcNotification, RpcRequest, SetSessionModelRequest};
use crate::peer::RpcViolation;
use crate::service::context::RequestContext;
use crate::service::dispatch::{
    default_handlers, dispatch, handle_notification, handle_request, is_extension, method_not_found,
    respond_error, respond_raw, respond_with, to_raw_params,
};
use crate::service::{
    BoxFuture, CancelSignal, IncomingRequest, RawParams, Service, ServiceResponse, UncheckedParamsError,
};

/// The context of a request: the client, and the cancel signal.
pub type AgentContext = RequestContext<ClientHandle>;

/// An agent. Methods that are not implemented answer -32601.
///
/// Handlers may call the client through their context. They run concurrently; only notifications are handled one
/// after the other.
#[expect(unused_variables, reason = "the names of the parameters are documentation")]
pub trait Agent: Send + Sync + 'static {
    /// Agrees on capabilities. The library negotiates the version and overwrites the one in the answer. It is called
    /// once, even if it fails.
    fn initialize(
        &self,
        request: InitializeRequest,
        cx: AgentContext,
    ) -> impl Future<Output = Result<InitializeResponse, Error>> + Send;

    /// Starts a session and gives it a fresh id.
    fn new_session(
        &self,
        request: NewSessionRequest,
        cx: AgentContext,
    ) -> impl Future<Output = Result<NewSessionResponse, Error>> + Send;

    /// Runs a turn. The context's signal fires on `session/cancel`, on `session/close` and on `$/cancel_request`; the
    /// answer is then the stop reason `cancelled`, not an error.
    fn prompt(
        &self,
        request: PromptRequest,
        cx: AgentContext,
    ) -> impl Future<Output = Result<PromptResponse, Error>> + Send;

    /// Handles the cancellation of a session's turn. The signals of its prompts have already fired.
    fn cancel(
        &self,
        notification: CancelNotification,
        client: ClientHandle,
    ) -> impl Future<Output = ()> + Send {
        ready(())
    }

    /// Handles a notification from an MCP server of the client while it answers a request.
    fn mcp_notification(
        &self,
        notification: MessageMcpNotification,
        client: ClientHandle,
    ) -> impl Future<Output = ()> + Send {
        ready(())
    }

    /// Handles changes of files that the agent watches.
    fn files_changed(
        &self,
        notification: FilesChangedNotification,
        client: ClientHandle,
    ) -> impl Future<Output = ()> + Send {
        ready(())
    }

    default_handlers! {
        AgentContext;
        /// Logs in.
        authenticate(AuthenticateRequest);
        /// Logs out.
        logout(LogoutRequest);
        /// Loads a session: sends its whole history as updates, then answers.
        load_session(LoadSessionRequest);
        /// Resumes a session without sending its history.
        resume_session(ResumeSessionRequest);
        /// Lists the stored sessions.
        list_sessions(ListSessionsRequest);
        /// Copies a session.
        fork_session(ForkSessionRequest);
        /// Ends a session. The signals of its prompts have already fired.
        close_session(CloseSessionRequest);
        /// Deletes a session.
        delete_session(DeleteSessionRequest);
        /// Switches the mode of a session.
        set_session_mode(SetSessionModeRequest);
        /// Sets a config option of a session.
        set_session_config_option(SetSessionConfigOptionRequest);
        /// Switches the model of a session by the older method.
        set_session_model(SetSessionModelRequest);
    }

    /// Answers an extension method; its name starts with `_`.
    fn ext_request(
        &self,
        request: ExtRequest,
        cx: AgentContext,
    ) -> impl Future<Output = Result<ExtResponse, Error>> + Send {
        ready(method_not_found(&request.method))
    }

    /// Handles an extension notification.
    fn ext_notification(
        &self,
        notification: ExtNotification,
        client: ClientHandle,
    ) -> impl Future<Output = ()> + Send {
        ready(())
    }

    /// Handles a protocol violation by the client. Any possible answer has already been sent.
    fn on_violation(&self, violation: RpcViolation) {}
}

/// Serves an [`Agent`].
pub(crate) struct AgentDispatcher<A> {
    agent: Arc<A>,
    client: ClientHandle,
    /// The signals of the running prompts, by session.
    prompt_signals: HashMap<SessionId, Vec<CancelSignal>>,
}

impl<A: Agent> AgentDispatcher<A> {
    pub(crate) fn new(agent: Arc<A>, client: ClientHandle) -> Self {
        AgentDispatcher { agent, client, prompt_signals: HashMap::new() }
    }

    fn call<R, F>(
        &self,
        incoming: IncomingRequest<'_>,
        handle: impl FnOnce(Arc<A>, R, AgentContext) -> F,
    ) -> Result<ServiceResponse, UncheckedParamsError>
    where
        R: RpcRequest,
        F: Future<Output = Result<R::Response, Error>> + Send + 'static,
    {
        let (params, cx) = RequestContext::from_request(incoming, self.client.clone());
        handle_request(params, |request| handle(Arc::clone(&self.agent), request, cx))
    }

    fn initialize(&self, incoming: IncomingRequest<'_>) -> Result<ServiceResponse, UncheckedParamsError> {
        let params = incoming.params.require_checked()?;
        let mut request = match parse_initialize(params) {
            Ok(request) => request,
            Err(failure) => return Ok(respond_error(failure)),
        };
        if request.client_info.is_none() {
            request.client_info = misplaced_client_info(params.text());
        }
        if !self.client.set_gate(ClientCapabilityGate::new(request.client_capabilities.clone())) {
            return Ok(respond_error(RpcError::InvalidRequest {
                reason: "initialize comes once".to_owned(),
            }));
        }
        self.client.set_info(request.client_info.clone());
        let agent = Arc::clone(&self.agent);
        let (_, cx) = RequestContext::from_request(incoming, self.client.clone());
        let handler = async move {
            let negotiated = version::negotiate(request.protocol_version);
            let mut response = agent.initialize(request, cx).await?;
            response.protocol_version = negotiated;
            Ok(response)
        };
        Ok(respond_with(handler, InitializeRequest::response_to_body))
    }

    fn prompt(&mut self, incoming: IncomingRequest<'_>) -> Result<ServiceResponse, UncheckedParamsError> {
        let Self { agent, client, prompt_signals: turns } = self;
        let (params, cx) = RequestContext::from_request(incoming, client.clone());
        handle_request(params, |request: PromptRequest| {
            turns.retain(|_, signals| {
                signals.retain(|signal| !signal.is_answered());
                !signals.is_empty()
            });
            turns.entry(request.session_id.clone()).or_default().push(cx.cancel_signal.clone());
            let agent = Arc::clone(agent);
            async move { agent.prompt(request, cx).await }
        })
    }

    fn cancel_turns(&mut self, session: &SessionId) {
        self.prompt_signals.remove(session).unwrap_or_default().iter().for_each(CancelSignal::fire);
    }
}

impl<A: Agent> Service for AgentDispatcher<A> {
    fn handle_request(
        &mut self,
        incoming: IncomingRequest<'_>,
    ) -> Result<ServiceResponse, UncheckedParamsError> {
        if incoming.method == InitializeRequest::METHOD {
            return self.initialize(incoming);
        }
        if !self.client.is_initialized() {
            incoming.params.require_checked()?;
            return Ok(respond_error(RpcError::InvalidRequest {
                reason: "initialize must come first".to_owned(),
            }));
        }
        if incoming.method == CloseSessionRequest::METHOD
            && let Ok(request) = incoming.params.parse_with(CloseSessionRequest::from_json)?
        {
            self.cancel_turns(&request.session_id);
        }
        dispatch! {
            self.agent, client, incoming
            {
                NewSessionRequest => new_session;
                AuthenticateRequest => authenticate;
                LogoutRequest => logout;
                LoadSessionRequest => load_session;
                ResumeSessionRequest => resume_session;
                ListSessionsRequest => list_sessions;
                ForkSessionRequest => fork_session;
                CloseSessionRequest => close_session;
                DeleteSessionRequest => delete_session;
                SetSessionModeRequest => set_session_mode;
                SetSessionConfigOptionRequest => set_session_config_option;
                SetSessionModelRequest => set_session_model;
            }
            PromptRequest::METHOD => self.prompt(incoming),
        }
    }

    fn handle_notification(
        &mut self,
        method: &str,
        params: RawParams<'_>,
    ) -> Result<Option<BoxFuture<'static, ()>>, UncheckedParamsError> {
        let (agent, client) = (Arc::clone(&self.agent), self.client.clone());
        if method == AGENT_METHOD_NAMES.session_cancel {
            let Ok(cancel) = params.parse_with(CancelNotification::from_json)? else { return Ok(None) };
            self.cancel_turns(&cancel.session_id);
            return Ok(Some(Box::pin(async move { agent.cancel(cancel, client).await })));
        }
        if method == AGENT_METHOD_NAMES.mcp_message {
            return handle_notification(params, |notification| async move {
                agent.mcp_notification(notification, client).await
            });
        }
        if method == FilesChangedNotification::METHOD {
            return handle_notification(params, |notification| async move {
                agent.files_changed(notification, client).await
            });
        }
        if is_extension(method) {
            let notification = ExtNotification::new(method, to_raw_params(params)?);
            return Ok(Some(Box::pin(async move { agent.ext_notification(notification, client).await })));
        }
        // A notification that is neither defined nor an extension is ignored, as the protocol requires.
        params.require_checked().map(|_| None)
    }

    fn handle_violation(&mut self, violation: RpcViolation) {
        self.agent.on_violation(violation);
    }
}

/// Parses the params of `initialize`. A version too large for the schema's number is unsupported, and is answered
/// with a supported one.
fn parse_initialize(params: RawParams<'_>) -> Result<InitializeRequest, RpcError> {
    let invalid = |error: &serde_json::Error| RpcError::invalid_params(InitializeRequest::METHOD, error);
    InitializeRequest::from_json(params.text()).or_else(|error| {
        let mut value: serde_json::Value = methods::decode(params.text()).map_err(|_| invalid(&error))?;
        match value.get_mut("protocolVersion") {
            Some(version)
                if version.as_f64().is_some_and(|number| number >= 0.0 && number.fract() == 0.0) =>
            {
                *version = u16::MAX.into();
            }
            Some(version) if version.is_number() => {
                let reason = format!("protocolVersion is {version}: a version is a whole number, 0 or more");
                return Err(RpcError::InvalidParams { reason });
            }
            _ => return Err(invalid(&error)),
        }
        serde_json::from_value(value).map_err(|error| invalid(&error))
    })
}
