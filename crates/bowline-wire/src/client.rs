//! The client's end: the [`Client`] trait, and the dispatcher that turns messages into calls of it.

pub(crate) mod handle;

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
use bowline_protocol::capabilities::ClientMethod;
use bowline_protocol::file_extension::{
    BatchFilesRequest, BatchFilesResponse, ListDirectoryRequest, ListDirectoryResponse, ReadFileRequest,
    ReadFileResponse, StatFileRequest, StatFileResponse, UnwatchFilesRequest, UnwatchFilesResponse,
    WatchFilesRequest, WatchFilesResponse, WriteFileRequest, WriteFileResponse,
};
use bowline_protocol::rpc_error::RpcError;
use serde_json::value::RawValue;

use crate::agent::handle::AgentHandle;
use crate::message::methods::{self, RpcNotification, RpcRequest};
use crate::peer::RpcViolation;
use crate::service::context::RequestContext;
use crate::service::dispatch::{
    handle_request, is_extension, method_not_found, respond_error, respond_raw, to_raw_params,
};
use crate::service::{BoxFuture, IncomingRequest, RawParams, Service, ServiceResponse, UncheckedParamsError};

/// The context of a request: the agent, and the cancel signal.
pub type ClientContext = RequestContext<AgentHandle>;

/// A client. Methods that are not implemented or were not advertised answer -32601.
///
/// Handlers may call the agent through their context. They run concurrently; only notifications are handled one after
/// the other, and a turn's answer comes after its updates.
#[expect(unused_variables, reason = "the names of the parameters are documentation")]
pub trait Client: Send + Sync + 'static {
    /// Asks the user.
    fn request_permission(
        &self,
        request: RequestPermissionRequest,
        cx: ClientContext,
    ) -> impl Future<Output = Result<RequestPermissionResponse, Error>> + Send;

    /// Handles an update of a session. The next one waits until this completes, which is how a slow client slows the
    /// agent down.
    fn session_update(
        &self,
        notification: SessionNotification,
        agent: AgentHandle,
    ) -> impl Future<Output = ()> + Send;

    /// Handles an update that the schema does not know, as it came.
    fn unknown_update(&self, update: UnknownUpdate, agent: AgentHandle) -> impl Future<Output = ()> + Send {
        ready(())
    }

    /// Reads a text file, including unsaved changes in the editor.
    fn read_text_file(
        &self,
        request: ReadTextFileRequest,
        cx: ClientContext,
    ) -> impl Future<Output = Result<ReadTextFileResponse, Error>> + Send {
        ready(method_not_found(ReadTextFileRequest::METHOD))
    }

    /// Writes a text file.
    fn write_text_file(
        &self,
        request: WriteTextFileRequest,
        cx: ClientContext,
    ) -> impl Future<Output = Result<WriteTextFileResponse, Error>> + Send {
        ready(method_not_found(WriteTextFileRequest::METHOD))
    }

    /// Starts a command and returns immediately.
    fn create_terminal(
        &self,
        request: CreateTerminalRequest,
        cx: ClientContext,
    ) -> impl Future<Output = Result<CreateTerminalResponse, Error>> + Send {
        ready(method_not_found(CreateTerminalRequest::METHOD))
    }

    /// Returns the output of a terminal so far.
    fn terminal_output(
        &self,
        request: TerminalOutputRequest,
        cx: ClientContext,
    ) -> impl Future<Output = Result<TerminalOutputResponse, Error>> + Send {
        ready(method_not_found(TerminalOutputRequest::METHOD))
    }

    /// Waits until the command of a terminal ends.
    fn wait_for_terminal_exit(
        &self,
        request: WaitForTerminalExitRequest,
        cx: ClientContext,
    ) -> impl Future<Output = Result<WaitForTerminalExitResponse, Error>> + Send {
        ready(method_not_found(WaitForTerminalExitRequest::METHOD))
    }

    /// Kills the command of a terminal; the terminal stays.
    fn kill_terminal(
        &self,
        request: KillTerminalRequest,
        cx: ClientContext,
    ) -> impl Future<Output = Result<KillTerminalResponse, Error>> + Send {
        ready(method_not_found(KillTerminalRequest::METHOD))
    }

    /// Kills the command of a terminal if it is running, and releases the terminal.
    fn release_terminal(
        &self,
        request: ReleaseTerminalRequest,
        cx: ClientContext,
    ) -> impl Future<Output = Result<ReleaseTerminalResponse, Error>> + Send {
        ready(method_not_found(ReleaseTerminalRequest::METHOD))
    }

    /// Asks the user to fill in a form or to visit a page.
    fn create_elicitation(
        &self,
        request: CreateElicitationRequest,
        cx: ClientContext,
    ) -> impl Future<Output = Result<CreateElicitationResponse, Error>> + Send {
        ready(method_not_found(CreateElicitationRequest::METHOD))
    }

    /// Handles the end of an elicitation by URL.
    fn complete_elicitation(
        &self,
        notification: CompleteElicitationNotification,
        agent: AgentHandle,
    ) -> impl Future<Output = ()> + Send {
        ready(())
    }

    /// Answers a message to an MCP server that this client serves over the connection itself, as announced when it
    /// opened the session.
    fn mcp_message(
        &self,
        request: MessageMcpRequest,
        cx: ClientContext,
    ) -> impl Future<Output = Result<MessageMcpResponse, Error>> + Send {
        ready(method_not_found(MessageMcpRequest::METHOD))
    }

    /// Lists a directory. This and the following six methods are the file extension `_bowline/fs`.
    fn list_directory(
        &self,
        request: ListDirectoryRequest,
        cx: ClientContext,
    ) -> impl Future<Output = Result<ListDirectoryResponse, Error>> + Send {
        ready(method_not_found(ListDirectoryRequest::METHOD))
    }

    /// Returns the metadata of a path.
    fn stat_file(
        &self,
        request: StatFileRequest,
        cx: ClientContext,
    ) -> impl Future<Output = Result<StatFileResponse, Error>> + Send {
        ready(method_not_found(StatFileRequest::METHOD))
    }

    /// Reads a file as text or bytes, including unsaved changes in the editor.
    fn read_file(
        &self,
        request: ReadFileRequest,
        cx: ClientContext,
    ) -> impl Future<Output = Result<ReadFileResponse, Error>> + Send {
        ready(method_not_found(ReadFileRequest::METHOD))
    }

    /// Writes a file, or a part of it, as text or bytes.
    fn write_file(
        &self,
        request: WriteFileRequest,
        cx: ClientContext,
    ) -> impl Future<Output = Result<WriteFileResponse, Error>> + Send {
        ready(method_not_found(WriteFileRequest::METHOD))
    }

    /// Runs several file operations, all or none.
    fn batch_files(
        &self,
        request: BatchFilesRequest,
        cx: ClientContext,
    ) -> impl Future<Output = Result<BatchFilesResponse, Error>> + Send {
        ready(method_not_found(BatchFilesRequest::METHOD))
    }

    /// Starts to report changes by [`AgentHandle::notify_files_changed`].
    fn watch_files(
        &self,
        request: WatchFilesRequest,
        cx: ClientContext,
    ) -> impl Future<Output = Result<WatchFilesResponse, Error>> + Send {
        ready(method_not_found(WatchFilesRequest::METHOD))
    }

    /// Stops reporting changes.
    fn unwatch_files(
        &self,
        request: UnwatchFilesRequest,
        cx: ClientContext,
    ) -> impl Future<Output = Result<UnwatchFilesResponse, Error>> + Send {
        ready(method_not_found(UnwatchFilesRequest::METHOD))
    }

    /// Answers another extension method; its name starts with `_`.
    fn ext_request(
        &self,
        request: ExtRequest,
        cx: ClientContext,
    ) -> impl Future<Output = Result<ExtResponse, Error>> + Send {
        ready(method_not_found(&request.method))
    }

    /// Handles an extension notification.
    fn ext_notification(
        &self,
        notification: ExtNotification,
        agent: AgentHandle,
    ) -> impl Future<Output = ()> + Send {
        ready(())
    }

    /// Inspects the raw params of every readable request and notification of the agent, before its handler runs; `{}`
    /// if there are none. They still contain fields unknown to the schema. This runs on the connection's task and
    /// should be quick.
    fn inspect(&self, method: &str, params: &str) {}

    /// Handles a protocol violation by the agent. Any possible answer has already been sent.
    fn on_violation(&self, violation: RpcViolation) {}
}

/// A `session/update` that the schema cannot parse: its kind, or a part of it, is from a newer protocol.
#[derive(Debug, Clone)]
pub struct UnknownUpdate {
    /// The session, if given.
    pub session_id: Option<SessionId>,
    /// The kind (`sessionUpdate`), if given.
    pub kind: Option<String>,
    /// The params as they came.
    pub params: String,
}

/// Serves a [`Client`].
pub(crate) struct ClientDispatcher<C> {
    client: Arc<C>,
    agent: AgentHandle,
}

impl<C: Client> ClientDispatcher<C> {
    pub(crate) fn new(client: Arc<C>, agent: AgentHandle) -> Self {
        ClientDispatcher { client, agent }
    }

    fn call<R, F>(
        &self,
        method: ClientMethod,
        incoming: IncomingRequest<'_>,
        handle: impl FnOnce(Arc<C>, R, ClientContext) -> F,
    ) -> Result<ServiceResponse, UncheckedParamsError>
    where
        R: RpcRequest,
        F: Future<Output = Result<R::Response, Error>> + Send + 'static,
    {
        if let Err(missing) = self.agent.check_advertised(method) {
            incoming.params.require_checked()?;
            return Ok(respond_error(missing.into()));
        }
        let (params, cx) = RequestContext::from_request(incoming, self.agent.clone());
        handle_request(params, |request| handle(Arc::clone(&self.client), request, cx))
    }

    fn dispatch_elicitation(
        &self,
        incoming: IncomingRequest<'_>,
    ) -> Result<ServiceResponse, UncheckedParamsError> {
        let advertised = self.agent.advertised();
        let (params, cx) = RequestContext::from_request(incoming, self.agent.clone());
        let client = Arc::clone(&self.client);
        handle_request(params, |request: CreateElicitationRequest| async move {
            if let Err(missing) = advertised.check_elicitation(&request.mode) {
                return Err(RpcError::InvalidParams { reason: missing.to_string() }.into());
            }
            client.create_elicitation(request, cx).await
        })
    }

    fn dispatch_update(&self, params: RawParams<'_>) -> Result<BoxFuture<'static, ()>, UncheckedParamsError> {
        let (client, agent) = (Arc::clone(&self.client), self.agent.clone());
        // An update is large; on the heap it is not copied on its way to the handler.
        Ok(match params.parse_with(methods::decode_update)? {
            Ok(notification) => Box::pin(async move { client.session_update(*notification, agent).await }),
            Err(_) => {
                let update = parse_unknown_update(params);
                Box::pin(async move { client.unknown_update(update, agent).await })
            }
        })
    }
}

/// Passes a request to the client's method for it, if that method was advertised.
macro_rules! handle {
    ($service:expr, $incoming:expr, $gate:ident, $request:ty, $method:ident) => {
        $service.call(ClientMethod::$gate, $incoming, |client, request: $request, cx| async move {
            client.$method(request, cx).await
        })
    };
}

impl<C: Client> ClientDispatcher<C> {
    /// Dispatches a request to the client's method for it.
    fn dispatch_request(
        &mut self,
        incoming: IncomingRequest<'_>,
    ) -> Result<ServiceResponse, UncheckedParamsError> {
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
            CreateElicitationRequest::METHOD => self.dispatch_elicitation(incoming),
            ListDirectoryRequest::METHOD => {
                handle!(self, incoming, ListDirectory, ListDirectoryRequest, list_directory)
            }
            StatFileRequest::METHOD => handle!(self, incoming, StatFile, StatFileRequest, stat_file),
            ReadFileRequest::METHOD => handle!(self, incoming, ReadFile, ReadFileRequest, read_file),
            WriteFileRequest::METHOD => handle!(self, incoming, WriteFile, WriteFileRequest, write_file),
            BatchFilesRequest::METHOD => handle!(self, incoming, BatchFiles, BatchFilesRequest, batch_files),
            WatchFilesRequest::METHOD => handle!(self, incoming, WatchFiles, WatchFilesRequest, watch_files),
            UnwatchFilesRequest::METHOD => {
                handle!(self, incoming, UnwatchFiles, UnwatchFilesRequest, unwatch_files)
            }
            MessageMcpRequest::METHOD => {
                let client = Arc::clone(&self.client);
                let (params, cx) = RequestContext::from_request(incoming, self.agent.clone());
                handle_request(params, |request| async move { client.mcp_message(request, cx).await })
            }
            method if is_extension(method) => {
                let client = Arc::clone(&self.client);
                let (params, cx) = RequestContext::from_request(incoming, self.agent.clone());
                let request = ExtRequest::new(method, to_raw_params(params)?);
                Ok(respond_raw(async move { client.ext_request(request, cx).await }))
            }
            method => {
                incoming.params.require_checked()?;
                Ok(respond_error(RpcError::UnknownMethod { method: Some(method.to_owned()) }))
            }
        }
    }

    fn dispatch_notification(
        &self,
        method: &str,
        params: RawParams<'_>,
    ) -> Result<Option<BoxFuture<'static, ()>>, UncheckedParamsError> {
        if method == CLIENT_METHOD_NAMES.session_update {
            return self.dispatch_update(params).map(Some);
        }
        let (client, agent) = (Arc::clone(&self.client), self.agent.clone());
        if method == CLIENT_METHOD_NAMES.elicitation_complete {
            let Ok(notification) = params.parse_with(CompleteElicitationNotification::from_json)? else {
                return Ok(None);
            };
            return Ok(Some(Box::pin(async move { client.complete_elicitation(notification, agent).await })));
        }
        if is_extension(method) {
            let notification = ExtNotification::new(method, to_raw_params(params)?);
            return Ok(Some(Box::pin(async move { client.ext_notification(notification, agent).await })));
        }
        // A notification that is neither defined nor an extension is ignored, as the protocol requires.
        params.require_checked().map(|_| None)
    }
}

impl<C: Client> Service for ClientDispatcher<C> {
    fn handle_request(
        &mut self,
        incoming: IncomingRequest<'_>,
    ) -> Result<ServiceResponse, UncheckedParamsError> {
        let IncomingRequest { method, params, .. } = incoming;
        let answer = self.dispatch_request(incoming)?;
        self.client.inspect(method, params.text());
        Ok(answer)
    }

    fn handle_notification(
        &mut self,
        method: &str,
        params: RawParams<'_>,
    ) -> Result<Option<BoxFuture<'static, ()>>, UncheckedParamsError> {
        let handler = self.dispatch_notification(method, params)?;
        self.client.inspect(method, params.text());
        Ok(handler)
    }

    fn handle_violation(&mut self, violation: RpcViolation) {
        self.client.on_violation(violation);
    }
}

/// Extracts what it can from an update that cannot be parsed.
fn parse_unknown_update(params: RawParams<'_>) -> UnknownUpdate {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct UpdateOutline<'a> {
        session_id: Option<SessionId>,
        #[serde(borrow)]
        update: Option<&'a RawValue>,
    }

    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct UpdateKind {
        session_update: Option<String>,
    }

    let outline: Option<UpdateOutline<'_>> = serde_json::from_str(params.text()).ok();
    let (session_id, update) = outline.map_or((None, None), |outline| (outline.session_id, outline.update));
    let kind: Option<UpdateKind> = update.and_then(|update| serde_json::from_str(update.get()).ok());
    UnknownUpdate {
        session_id,
        kind: kind.and_then(|kind| kind.session_update),
        params: params.text().to_owned(),
    }
}
