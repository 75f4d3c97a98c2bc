//! The agent's end: a trait to implement, and what turns messages into calls of it.

use std::collections::HashMap;
use std::future::{Future, ready};
use std::sync::Arc;

use agent_client_protocol_schema::v1::{
    AGENT_METHOD_NAMES, AuthenticateRequest, AuthenticateResponse, CancelNotification, CloseSessionRequest,
    CloseSessionResponse, DeleteSessionRequest, DeleteSessionResponse, Error, ExtNotification, ExtRequest,
    ExtResponse, ForkSessionRequest, ForkSessionResponse, InitializeRequest, InitializeResponse,
    ListSessionsRequest, ListSessionsResponse, LoadSessionRequest, LoadSessionResponse, LogoutRequest,
    LogoutResponse, MessageMcpNotification, NewSessionRequest, NewSessionResponse, PromptRequest,
    PromptResponse, ResumeSessionRequest, ResumeSessionResponse, SessionId, SetSessionConfigOptionRequest,
    SetSessionConfigOptionResponse, SetSessionModeRequest, SetSessionModeResponse,
};
use bowline_state::capabilities::ClientGate;
use bowline_state::failure::Failure;
use bowline_state::quirks::misplaced_client_info;
use bowline_state::version;

use crate::client_handle::ClientHandle;
use crate::context::Context;
use crate::dispatch::{self, answer, answer_raw, answer_with, is_extension, raw_params, refuse, unknown};
use crate::methods::{self, Request, SetSessionModelRequest, SetSessionModelResponse};
use crate::peer::Breach;
use crate::service::{Answer, BoxFuture, CancelSignal, Incoming, Params, Service, Unproven, WeakSignal};

/// The client, and whether the request is still wanted.
pub type AgentContext = Context<ClientHandle>;

/// An agent. A method that is left out answers -32601.
///
/// Handlers may call the client through their context. They run at the same time; only notifications are handled one
/// after the other.
#[expect(unused_variables, reason = "the names of the parameters are documentation")]
pub trait Agent: Send + Sync + 'static {
    /// Agrees on capabilities. The version is negotiated by the library, whatever the answer says. It is called once, even
    /// if it fails.
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

    /// Takes a turn. The context's signal fires on `session/cancel`, on `session/close` and on `$/cancel_request`; the
    /// answer is then the stop reason `cancelled`, not an error.
    fn prompt(
        &self,
        request: PromptRequest,
        cx: AgentContext,
    ) -> impl Future<Output = Result<PromptResponse, Error>> + Send;

    /// Learns that the turn of a session is cancelled. The signals of its prompts have fired already.
    fn cancel(
        &self,
        notification: CancelNotification,
        client: ClientHandle,
    ) -> impl Future<Output = ()> + Send {
        ready(())
    }

    /// Takes what an MCP server of the client tells while it answers a request.
    fn mcp_notification(
        &self,
        notification: MessageMcpNotification,
        client: ClientHandle,
    ) -> impl Future<Output = ()> + Send {
        ready(())
    }

    /// Logs in.
    fn authenticate(
        &self,
        request: AuthenticateRequest,
        cx: AgentContext,
    ) -> impl Future<Output = Result<AuthenticateResponse, Error>> + Send {
        ready(unknown(AuthenticateRequest::METHOD))
    }

    /// Logs out.
    fn logout(
        &self,
        request: LogoutRequest,
        cx: AgentContext,
    ) -> impl Future<Output = Result<LogoutResponse, Error>> + Send {
        ready(unknown(LogoutRequest::METHOD))
    }

    /// Loads a session: sends all that was said in it as updates, then answers.
    fn load_session(
        &self,
        request: LoadSessionRequest,
        cx: AgentContext,
    ) -> impl Future<Output = Result<LoadSessionResponse, Error>> + Send {
        ready(unknown(LoadSessionRequest::METHOD))
    }

    /// Resumes a session and sends nothing of what was said in it.
    fn resume_session(
        &self,
        request: ResumeSessionRequest,
        cx: AgentContext,
    ) -> impl Future<Output = Result<ResumeSessionResponse, Error>> + Send {
        ready(unknown(ResumeSessionRequest::METHOD))
    }

    /// Lists the sessions that are kept.
    fn list_sessions(
        &self,
        request: ListSessionsRequest,
        cx: AgentContext,
    ) -> impl Future<Output = Result<ListSessionsResponse, Error>> + Send {
        ready(unknown(ListSessionsRequest::METHOD))
    }

    /// Copies a session.
    fn fork_session(
        &self,
        request: ForkSessionRequest,
        cx: AgentContext,
    ) -> impl Future<Output = Result<ForkSessionResponse, Error>> + Send {
        ready(unknown(ForkSessionRequest::METHOD))
    }

    /// Ends a session. The signals of its prompts have fired already.
    fn close_session(
        &self,
        request: CloseSessionRequest,
        cx: AgentContext,
    ) -> impl Future<Output = Result<CloseSessionResponse, Error>> + Send {
        ready(unknown(CloseSessionRequest::METHOD))
    }

    /// Deletes a session.
    fn delete_session(
        &self,
        request: DeleteSessionRequest,
        cx: AgentContext,
    ) -> impl Future<Output = Result<DeleteSessionResponse, Error>> + Send {
        ready(unknown(DeleteSessionRequest::METHOD))
    }

    /// Switches the mode of a session.
    fn set_session_mode(
        &self,
        request: SetSessionModeRequest,
        cx: AgentContext,
    ) -> impl Future<Output = Result<SetSessionModeResponse, Error>> + Send {
        ready(unknown(SetSessionModeRequest::METHOD))
    }

    /// Sets a config option of a session.
    fn set_session_config_option(
        &self,
        request: SetSessionConfigOptionRequest,
        cx: AgentContext,
    ) -> impl Future<Output = Result<SetSessionConfigOptionResponse, Error>> + Send {
        ready(unknown(SetSessionConfigOptionRequest::METHOD))
    }

    /// Switches the model of a session in the older way.
    fn set_session_model(
        &self,
        request: SetSessionModelRequest,
        cx: AgentContext,
    ) -> impl Future<Output = Result<SetSessionModelResponse, Error>> + Send {
        ready(unknown(SetSessionModelRequest::METHOD))
    }

    /// Answers an extension method; its name starts with `_`.
    fn ext_request(
        &self,
        request: ExtRequest,
        cx: AgentContext,
    ) -> impl Future<Output = Result<ExtResponse, Error>> + Send {
        ready(unknown(&request.method))
    }

    /// Takes an extension notification.
    fn ext_notification(
        &self,
        notification: ExtNotification,
        client: ClientHandle,
    ) -> impl Future<Output = ()> + Send {
        ready(())
    }

    /// Sees the params of every request and notification of the client that could be read, as they came, before its handler
    /// runs; `{}` if there were none. Fields that the schema does not have are still in them. This runs on the
    /// connection's task and should be quick.
    fn inspect(&self, method: &str, params: &str) {}

    /// Learns that the client sent something that the protocol forbids. What can be answered has been.
    fn breach(&self, breach: Breach) {}
}

/// Serves an [`Agent`].
pub(crate) struct AgentService<A> {
    agent: Arc<A>,
    client: ClientHandle,
    /// The signals of the prompts that run, by session.
    turns: HashMap<SessionId, Vec<WeakSignal>>,
}

impl<A: Agent> AgentService<A> {
    pub(crate) fn new(agent: Arc<A>, client: ClientHandle) -> Self {
        AgentService { agent, client, turns: HashMap::new() }
    }

    fn call<R, F>(
        &self,
        incoming: Incoming<'_>,
        handle: impl FnOnce(Arc<A>, R, AgentContext) -> F,
    ) -> Result<Answer, Unproven>
    where
        R: Request,
        F: Future<Output = Result<R::Response, Error>> + Send + 'static,
    {
        let (params, cx) = Context::of(incoming, self.client.clone());
        answer(params, |request| handle(Arc::clone(&self.agent), request, cx))
    }

    fn initialize(&self, incoming: Incoming<'_>) -> Result<Answer, Unproven> {
        let params = incoming.params.checked()?;
        let mut request = match read_initialize(params) {
            Ok(request) => request,
            Err(failure) => return Ok(refuse(failure)),
        };
        if request.client_info.is_none() {
            request.client_info = misplaced_client_info(params.text());
        }
        if !self.client.open(ClientGate::new(request.client_capabilities.clone())) {
            return Ok(refuse(Failure::InvalidRequest { reason: "initialize comes once".to_owned() }));
        }
        self.client.meet(request.client_info.clone());
        let agent = Arc::clone(&self.agent);
        let (_, cx) = Context::of(incoming, self.client.clone());
        Ok(answer_with(async move {
            let agreed = version::negotiate(request.protocol_version);
            let mut response = agent.initialize(request, cx).await?;
            response.protocol_version = agreed;
            Ok(response)
        }))
    }

    fn prompt(&mut self, incoming: Incoming<'_>) -> Result<Answer, Unproven> {
        let Self { agent, client, turns } = self;
        let (params, cx) = Context::of(incoming, client.clone());
        answer(params, |request: PromptRequest| {
            turns.retain(|_, signals| {
                signals.retain(|signal| signal.upgrade().is_some());
                !signals.is_empty()
            });
            turns.entry(request.session_id.clone()).or_default().push(cx.cancel.downgrade());
            let agent = Arc::clone(agent);
            async move { agent.prompt(request, cx).await }
        })
    }

    fn stop_turns(&mut self, session: &SessionId) {
        let signals = self.turns.remove(session).unwrap_or_default();
        signals.iter().filter_map(WeakSignal::upgrade).for_each(|signal| CancelSignal::fire(&signal));
    }
}

/// Hands a request to the method of the agent that serves it.
macro_rules! handle {
    ($service:expr, $incoming:expr, $request:ty, $method:ident) => {
        $service
            .call($incoming, |agent, request: $request, cx| async move { agent.$method(request, cx).await })
    };
}

impl<A: Agent> AgentService<A> {
    /// Finds the method of the agent that serves a request.
    fn route(&mut self, incoming: Incoming<'_>) -> Result<Answer, Unproven> {
        if incoming.method == InitializeRequest::METHOD {
            return self.initialize(incoming);
        }
        if !self.client.is_open() {
            incoming.params.checked()?;
            return Ok(refuse(Failure::InvalidRequest { reason: "initialize must come first".to_owned() }));
        }
        match incoming.method {
            NewSessionRequest::METHOD => handle!(self, incoming, NewSessionRequest, new_session),
            PromptRequest::METHOD => self.prompt(incoming),
            AuthenticateRequest::METHOD => handle!(self, incoming, AuthenticateRequest, authenticate),
            LogoutRequest::METHOD => handle!(self, incoming, LogoutRequest, logout),
            LoadSessionRequest::METHOD => handle!(self, incoming, LoadSessionRequest, load_session),
            ResumeSessionRequest::METHOD => handle!(self, incoming, ResumeSessionRequest, resume_session),
            ListSessionsRequest::METHOD => handle!(self, incoming, ListSessionsRequest, list_sessions),
            ForkSessionRequest::METHOD => handle!(self, incoming, ForkSessionRequest, fork_session),
            CloseSessionRequest::METHOD => {
                if let Ok(request) = incoming.params.read::<CloseSessionRequest>()? {
                    self.stop_turns(&request.session_id);
                }
                handle!(self, incoming, CloseSessionRequest, close_session)
            }
            DeleteSessionRequest::METHOD => handle!(self, incoming, DeleteSessionRequest, delete_session),
            SetSessionModeRequest::METHOD => handle!(self, incoming, SetSessionModeRequest, set_session_mode),
            SetSessionConfigOptionRequest::METHOD => {
                handle!(self, incoming, SetSessionConfigOptionRequest, set_session_config_option)
            }
            SetSessionModelRequest::METHOD => {
                handle!(self, incoming, SetSessionModelRequest, set_session_model)
            }
            method if is_extension(method) => {
                let agent = Arc::clone(&self.agent);
                let (params, cx) = Context::of(incoming, self.client.clone());
                let request = ExtRequest::new(method, raw_params(params)?);
                Ok(answer_raw(async move { agent.ext_request(request, cx).await }))
            }
            method => {
                incoming.params.checked()?;
                Ok(refuse(Failure::UnknownMethod { method: Some(method.to_owned()) }))
            }
        }
    }

    fn take(&mut self, method: &str, params: Params<'_>) -> Result<Option<BoxFuture<()>>, Unproven> {
        let (agent, client) = (Arc::clone(&self.agent), self.client.clone());
        if method == AGENT_METHOD_NAMES.session_cancel {
            let Ok(cancel) = params.read::<CancelNotification>()? else { return Ok(None) };
            self.stop_turns(&cancel.session_id);
            return Ok(Some(Box::pin(async move { agent.cancel(cancel, client).await })));
        }
        if method == AGENT_METHOD_NAMES.mcp_message {
            let Ok(told) = params.read::<MessageMcpNotification>()? else { return Ok(None) };
            return Ok(Some(Box::pin(async move { agent.mcp_notification(told, client).await })));
        }
        if is_extension(method) {
            let notification = ExtNotification::new(method, raw_params(params)?);
            return Ok(Some(Box::pin(async move { agent.ext_notification(notification, client).await })));
        }
        // What is neither defined nor an extension is ignored, as the protocol wants it.
        params.checked().map(|_| None)
    }
}

impl<A: Agent> Service for AgentService<A> {
    fn request(&mut self, incoming: Incoming<'_>) -> Result<Answer, Unproven> {
        let Incoming { method, params, .. } = incoming;
        let answer = self.route(incoming)?;
        self.agent.inspect(method, params.text());
        Ok(answer)
    }

    fn notification(&mut self, method: &str, params: Params<'_>) -> Result<Option<BoxFuture<()>>, Unproven> {
        let handler = self.take(method, params)?;
        self.agent.inspect(method, params.text());
        Ok(handler)
    }

    fn breach(&mut self, breach: Breach) {
        self.agent.breach(breach);
    }
}

/// Reads the params of `initialize`. A version that is too large for the schema's number is one that we do not speak, which
/// is answered with one that we do.
fn read_initialize(params: Params<'_>) -> Result<InitializeRequest, Failure> {
    let invalid = |error: &serde_json::Error| dispatch::invalid_params(InitializeRequest::METHOD, error);
    methods::decode(params.text()).or_else(|error| {
        let mut value: serde_json::Value = methods::decode(params.text()).map_err(|_| invalid(&error))?;
        match value.get_mut("protocolVersion") {
            Some(version)
                if version.as_f64().is_some_and(|number| number >= 0.0 && number.fract() == 0.0) =>
            {
                *version = u16::MAX.into();
            }
            Some(version) if version.is_number() => {
                let reason = format!("protocolVersion is {version}: a version is a whole number, 0 or more");
                return Err(Failure::InvalidParams { reason });
            }
            _ => return Err(invalid(&error)),
        }
        serde_json::from_value(value).map_err(|error| invalid(&error))
    })
}
