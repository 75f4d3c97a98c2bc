//! The client's end: a trait to implement, and what turns messages into calls of it.

use std::future::{Future, ready};
use std::sync::Arc;

use agent_client_protocol_schema::v1::{
    CLIENT_METHOD_NAMES, CompleteElicitationNotification, CreateElicitationRequest,
    CreateElicitationResponse, CreateTerminalRequest, CreateTerminalResponse, Error, ExtNotification,
    ExtRequest, ExtResponse, KillTerminalRequest, KillTerminalResponse, MessageMcpRequest,
    MessageMcpResponse, ReadTextFileRequest, ReadTextFileResponse, ReleaseTerminalRequest,
    ReleaseTerminalResponse, RequestPermissionRequest, RequestPermissionResponse, SessionId,
    SessionNotification, TerminalOutputRequest, TerminalOutputResponse, WaitForTerminalExitRequest,
    WaitForTerminalExitResponse, WriteTextFileRequest, WriteTextFileResponse,
};
use bowline_state::capabilities::ClientMethod;
use bowline_state::failure::Failure;
use serde_json::value::RawValue;

use crate::agent_handle::AgentHandle;
use crate::context::Context;
use crate::dispatch::{answer, answer_raw, is_extension, raw_params, refuse, unknown};
use crate::methods::Request;
use crate::peer::Breach;
use crate::service::{Answer, BoxFuture, Incoming, Params, Service, Unproven};

/// The agent, and whether the request is still wanted.
pub type ClientContext = Context<AgentHandle>;

/// A client. A method that is left out answers -32601, and so does one that was not advertised.
///
/// Handlers may call the agent through their context. They run at the same time; only notifications are handled one
/// after the other, and a turn's answer comes after its updates.
#[expect(unused_variables, reason = "the names of the parameters are documentation")]
pub trait Client: Send + Sync + 'static {
    /// Asks the user.
    fn request_permission(
        &self,
        request: RequestPermissionRequest,
        cx: ClientContext,
    ) -> impl Future<Output = Result<RequestPermissionResponse, Error>> + Send;

    /// Takes an update of a session. The next one waits until this is done, which is how a slow client slows the agent
    /// down.
    fn session_update(
        &self,
        notification: SessionNotification,
        agent: AgentHandle,
    ) -> impl Future<Output = ()> + Send;

    /// Takes an update that the schema does not have, as it came.
    fn unknown_update(&self, update: UnknownUpdate, agent: AgentHandle) -> impl Future<Output = ()> + Send {
        ready(())
    }

    /// Reads a text file, with what is unsaved in the editor.
    fn read_text_file(
        &self,
        request: ReadTextFileRequest,
        cx: ClientContext,
    ) -> impl Future<Output = Result<ReadTextFileResponse, Error>> + Send {
        ready(unknown(ReadTextFileRequest::METHOD))
    }

    /// Writes a text file.
    fn write_text_file(
        &self,
        request: WriteTextFileRequest,
        cx: ClientContext,
    ) -> impl Future<Output = Result<WriteTextFileResponse, Error>> + Send {
        ready(unknown(WriteTextFileRequest::METHOD))
    }

    /// Starts a command and returns at once.
    fn create_terminal(
        &self,
        request: CreateTerminalRequest,
        cx: ClientContext,
    ) -> impl Future<Output = Result<CreateTerminalResponse, Error>> + Send {
        ready(unknown(CreateTerminalRequest::METHOD))
    }

    /// Returns what a terminal has put out so far.
    fn terminal_output(
        &self,
        request: TerminalOutputRequest,
        cx: ClientContext,
    ) -> impl Future<Output = Result<TerminalOutputResponse, Error>> + Send {
        ready(unknown(TerminalOutputRequest::METHOD))
    }

    /// Waits until the command of a terminal ends.
    fn wait_for_terminal_exit(
        &self,
        request: WaitForTerminalExitRequest,
        cx: ClientContext,
    ) -> impl Future<Output = Result<WaitForTerminalExitResponse, Error>> + Send {
        ready(unknown(WaitForTerminalExitRequest::METHOD))
    }

    /// Kills the command of a terminal; the terminal stays.
    fn kill_terminal(
        &self,
        request: KillTerminalRequest,
        cx: ClientContext,
    ) -> impl Future<Output = Result<KillTerminalResponse, Error>> + Send {
        ready(unknown(KillTerminalRequest::METHOD))
    }

    /// Kills the command of a terminal if it runs, and forgets the terminal.
    fn release_terminal(
        &self,
        request: ReleaseTerminalRequest,
        cx: ClientContext,
    ) -> impl Future<Output = Result<ReleaseTerminalResponse, Error>> + Send {
        ready(unknown(ReleaseTerminalRequest::METHOD))
    }

    /// Asks the user to fill in a form or to visit a page.
    fn create_elicitation(
        &self,
        request: CreateElicitationRequest,
        cx: ClientContext,
    ) -> impl Future<Output = Result<CreateElicitationResponse, Error>> + Send {
        ready(unknown(CreateElicitationRequest::METHOD))
    }

    /// Learns that an elicitation by URL has ended.
    fn complete_elicitation(
        &self,
        notification: CompleteElicitationNotification,
        agent: AgentHandle,
    ) -> impl Future<Output = ()> + Send {
        ready(())
    }

    /// Answers a message to an MCP server that this client serves over the connection itself, as it said when it opened the
    /// session.
    fn mcp_message(
        &self,
        request: MessageMcpRequest,
        cx: ClientContext,
    ) -> impl Future<Output = Result<MessageMcpResponse, Error>> + Send {
        ready(unknown(MessageMcpRequest::METHOD))
    }

    /// Answers an extension method; its name starts with `_`.
    fn ext_request(
        &self,
        request: ExtRequest,
        cx: ClientContext,
    ) -> impl Future<Output = Result<ExtResponse, Error>> + Send {
        ready(unknown(&request.method))
    }

    /// Takes an extension notification.
    fn ext_notification(
        &self,
        notification: ExtNotification,
        agent: AgentHandle,
    ) -> impl Future<Output = ()> + Send {
        ready(())
    }

    /// Sees the params of every request and notification of the agent that could be read, as they came, before its handler
    /// runs; `{}` if there were none. Fields that the schema does not have are still in them. This runs on the
    /// connection's task and should be quick.
    fn inspect(&self, method: &str, params: &str) {}

    /// Learns that the agent sent something that the protocol forbids. What can be answered has been.
    fn breach(&self, breach: Breach) {}
}

/// A `session/update` that the schema cannot read: its kind, or something in it, is from a newer protocol.
#[derive(Debug, Clone)]
pub struct UnknownUpdate {
    /// The session, if it says one.
    pub session_id: Option<SessionId>,
    /// The kind (`sessionUpdate`), if it says one.
    pub kind: Option<String>,
    /// The params as they came.
    pub params: String,
}

/// Serves a [`Client`].
pub(crate) struct ClientService<C> {
    client: Arc<C>,
    agent: AgentHandle,
}

impl<C: Client> ClientService<C> {
    pub(crate) fn new(client: Arc<C>, agent: AgentHandle) -> Self {
        ClientService { client, agent }
    }

    fn call<R, F>(
        &self,
        method: ClientMethod,
        incoming: Incoming<'_>,
        handle: impl FnOnce(Arc<C>, R, ClientContext) -> F,
    ) -> Result<Answer, Unproven>
    where
        R: Request,
        F: Future<Output = Result<R::Response, Error>> + Send + 'static,
    {
        if let Err(missing) = self.agent.check_advertised(method) {
            incoming.params.checked()?;
            return Ok(refuse(missing.into()));
        }
        let (params, cx) = Context::of(incoming, self.agent.clone());
        answer(params, |request| handle(Arc::clone(&self.client), request, cx))
    }

    fn elicit(&self, incoming: Incoming<'_>) -> Result<Answer, Unproven> {
        let advertised = self.agent.advertised();
        let (params, cx) = Context::of(incoming, self.agent.clone());
        let client = Arc::clone(&self.client);
        answer(params, |request: CreateElicitationRequest| async move {
            if let Err(missing) = advertised.check_elicitation(&request.mode) {
                return Err(Failure::InvalidParams { reason: missing.to_string() }.into());
            }
            client.create_elicitation(request, cx).await
        })
    }

    fn update(&self, params: Params<'_>) -> Result<BoxFuture<()>, Unproven> {
        let (client, agent) = (Arc::clone(&self.client), self.agent.clone());
        // An update is large; on the heap it is not copied on its way to the handler.
        Ok(match params.read::<Box<SessionNotification>>()? {
            Ok(notification) => Box::pin(async move { client.session_update(*notification, agent).await }),
            Err(_) => {
                let update = unknown_update(params);
                Box::pin(async move { client.unknown_update(update, agent).await })
            }
        })
    }
}

/// Hands a request to the method of the client that serves it, if we said that we serve it.
macro_rules! handle {
    ($service:expr, $incoming:expr, $gate:ident, $request:ty, $method:ident) => {
        $service.call(ClientMethod::$gate, $incoming, |client, request: $request, cx| async move {
            client.$method(request, cx).await
        })
    };
}

impl<C: Client> ClientService<C> {
    /// Finds the method of the client that serves a request.
    fn route(&mut self, incoming: Incoming<'_>) -> Result<Answer, Unproven> {
        match incoming.method {
            ReadTextFileRequest::METHOD => {
                handle!(self, incoming, ReadTextFile, ReadTextFileRequest, read_text_file)
            }
            WriteTextFileRequest::METHOD => {
                handle!(self, incoming, WriteTextFile, WriteTextFileRequest, write_text_file)
            }
            RequestPermissionRequest::METHOD => {
                handle!(self, incoming, RequestPermission, RequestPermissionRequest, request_permission)
            }
            CreateTerminalRequest::METHOD => {
                handle!(self, incoming, CreateTerminal, CreateTerminalRequest, create_terminal)
            }
            TerminalOutputRequest::METHOD => {
                handle!(self, incoming, TerminalOutput, TerminalOutputRequest, terminal_output)
            }
            WaitForTerminalExitRequest::METHOD => {
                handle!(
                    self,
                    incoming,
                    WaitForTerminalExit,
                    WaitForTerminalExitRequest,
                    wait_for_terminal_exit
                )
            }
            KillTerminalRequest::METHOD => {
                handle!(self, incoming, KillTerminal, KillTerminalRequest, kill_terminal)
            }
            ReleaseTerminalRequest::METHOD => {
                handle!(self, incoming, ReleaseTerminal, ReleaseTerminalRequest, release_terminal)
            }
            CreateElicitationRequest::METHOD => self.elicit(incoming),
            MessageMcpRequest::METHOD => {
                let client = Arc::clone(&self.client);
                let (params, cx) = Context::of(incoming, self.agent.clone());
                answer(params, |request| async move { client.mcp_message(request, cx).await })
            }
            method if is_extension(method) => {
                let client = Arc::clone(&self.client);
                let (params, cx) = Context::of(incoming, self.agent.clone());
                let request = ExtRequest::new(method, raw_params(params)?);
                Ok(answer_raw(async move { client.ext_request(request, cx).await }))
            }
            method => {
                incoming.params.checked()?;
                Ok(refuse(Failure::UnknownMethod { method: Some(method.to_owned()) }))
            }
        }
    }

    fn take(&self, method: &str, params: Params<'_>) -> Result<Option<BoxFuture<()>>, Unproven> {
        if method == CLIENT_METHOD_NAMES.session_update {
            return self.update(params).map(Some);
        }
        let (client, agent) = (Arc::clone(&self.client), self.agent.clone());
        if method == CLIENT_METHOD_NAMES.elicitation_complete {
            let Ok(notification) = params.read()? else { return Ok(None) };
            return Ok(Some(Box::pin(async move { client.complete_elicitation(notification, agent).await })));
        }
        if is_extension(method) {
            let notification = ExtNotification::new(method, raw_params(params)?);
            return Ok(Some(Box::pin(async move { client.ext_notification(notification, agent).await })));
        }
        // What is neither defined nor an extension is ignored, as the protocol wants it.
        params.checked().map(|_| None)
    }
}

impl<C: Client> Service for ClientService<C> {
    fn request(&mut self, incoming: Incoming<'_>) -> Result<Answer, Unproven> {
        let Incoming { method, params, .. } = incoming;
        let answer = self.route(incoming)?;
        self.client.inspect(method, params.text());
        Ok(answer)
    }

    fn notification(&mut self, method: &str, params: Params<'_>) -> Result<Option<BoxFuture<()>>, Unproven> {
        let handler = self.take(method, params)?;
        self.client.inspect(method, params.text());
        Ok(handler)
    }

    fn breach(&mut self, breach: Breach) {
        self.client.breach(breach);
    }
}

/// Makes out what it can of an update that cannot be read.
fn unknown_update(params: Params<'_>) -> UnknownUpdate {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Outline<'a> {
        session_id: Option<SessionId>,
        #[serde(borrow)]
        update: Option<&'a RawValue>,
    }

    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Kind {
        session_update: Option<String>,
    }

    let outline: Option<Outline<'_>> = serde_json::from_str(params.text()).ok();
    let (session_id, update) = outline.map_or((None, None), |outline| (outline.session_id, outline.update));
    let kind: Option<Kind> = update.and_then(|update| serde_json::from_str(update.get()).ok());
    UnknownUpdate {
        session_id,
        kind: kind.and_then(|kind| kind.session_update),
        params: params.text().to_owned(),
    }
}
