//! The client's end: the [`Client`] trait, and the dispatcher that turns messages into calls of it.

pub(crate) mod handle;

use std::future::{Future, ready};
use std::sync::Arc;

use agent_client_protocol_schema::v1::{
    CLIENT_METHOD_NAMES, CompleteElicitationNotification, CreateElicitationRequest, CreateTerminalRequest,
    Error, ExtNotification, ExtRequest, ExtResponse, KillTerminalRequest, MessageMcpRequest,
    ReadTextFileRequest, ReleaseTerminalRequest, RequestPermissionRequest, RequestPermissionResponse,
    SessionId, SessionNotification, TerminalOutputRequest, WaitForTerminalExitRequest, WriteTextFileRequest,
};
use bowline_protocol::capabilities::ClientMethod;
use bowline_protocol::file_extension::{
    BatchFilesRequest, ListDirectoryRequest, ReadFileRequest, StatFileRequest, UnwatchFilesRequest,
    WatchFilesRequest, WriteFileRequest,
};
use bowline_protocol::rpc_error::RpcError;
use serde_json::value::RawValue;

use crate::agent::handle::AgentHandle;
use crate::message::methods::{self, RpcRequest};
use crate::peer::RpcViolation;
use crate::service::context::RequestContext;
use crate::service::dispatch::{
    default_handlers, dispatch, handle_notification, handle_request, is_extension, method_not_found,
    respond_error, respond_raw, to_raw_params,
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

    default_handlers! {
        ClientContext;
        /// Reads a text file, including unsaved changes in the editor.
        read_text_file(ReadTextFileRequest);
        /// Writes a text file.
        write_text_file(WriteTextFileRequest);
        /// Starts a command and returns immediately.
        create_terminal(CreateTerminalRequest);
        /// Returns the output of a terminal so far.
        terminal_output(TerminalOutputRequest);
        /// Waits until the command of a terminal ends.
        wait_for_terminal_exit(WaitForTerminalExitRequest);
        /// Kills the command of a terminal; the terminal stays.
        kill_terminal(KillTerminalRequest);
        /// Kills the command of a terminal if it is running, and releases the terminal.
        release_terminal(ReleaseTerminalRequest);
        /// Asks the user to fill in a form or to visit a page.
        create_elicitation(CreateElicitationRequest);
        /// Answers a message to an MCP server that this client serves over the connection itself, as announced when it
        /// opened the session.
        mcp_message(MessageMcpRequest);
        /// Lists a directory. This and the following six methods are the file extension `_bowline/fs`.
        list_directory(ListDirectoryRequest);
        /// Returns the metadata of a path.
        stat_file(StatFileRequest);
        /// Reads a file as text or bytes, including unsaved changes in the editor.
        read_file(ReadFileRequest);
        /// Writes a file, or a part of it, as text or bytes.
        write_file(WriteFileRequest);
        /// Runs several file operations, all or none.
        batch_files(BatchFilesRequest);
        /// Starts to report changes by [`AgentHandle::notify_files_changed`].
        watch_files(WatchFilesRequest);
        /// Stops reporting changes.
        unwatch_files(UnwatchFilesRequest);
    }

    /// Handles the end of an elicitation by URL.
    fn complete_elicitation(
        &self,
        notification: CompleteElicitationNotification,
        agent: AgentHandle,
    ) -> impl Future<Output = ()> + Send {
        ready(())
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

impl<C: Client> Service for ClientDispatcher<C> {
    fn handle_request(
        &mut self,
        incoming: IncomingRequest<'_>,
    ) -> Result<ServiceResponse, UncheckedParamsError> {
        dispatch! {
            self.client, agent, incoming
            {
                ReadTextFileRequest => read_text_file, ClientMethod::ReadTextFile;
                WriteTextFileRequest => write_text_file, ClientMethod::WriteTextFile;
                RequestPermissionRequest => request_permission, ClientMethod::RequestPermission;
                CreateTerminalRequest => create_terminal, ClientMethod::CreateTerminal;
                TerminalOutputRequest => terminal_output, ClientMethod::TerminalOutput;
                WaitForTerminalExitRequest => wait_for_terminal_exit, ClientMethod::WaitForTerminalExit;
                KillTerminalRequest => kill_terminal, ClientMethod::KillTerminal;
                ReleaseTerminalRequest => release_terminal, ClientMethod::ReleaseTerminal;
                ListDirectoryRequest => list_directory, ClientMethod::ListDirectory;
                StatFileRequest => stat_file, ClientMethod::StatFile;
                ReadFileRequest => read_file, ClientMethod::ReadFile;
                WriteFileRequest => write_file, ClientMethod::WriteFile;
                BatchFilesRequest => batch_files, ClientMethod::BatchFiles;
                WatchFilesRequest => watch_files, ClientMethod::WatchFiles;
                UnwatchFilesRequest => unwatch_files, ClientMethod::UnwatchFiles;
            }
            CreateElicitationRequest::METHOD => self.dispatch_elicitation(incoming),
            // The client announced the server itself.
            MessageMcpRequest::METHOD => {
                let client = Arc::clone(&self.client);
                let (params, cx) = RequestContext::from_request(incoming, self.agent.clone());
                handle_request(params, |request| async move { client.mcp_message(request, cx).await })
            }
        }
    }

    fn handle_notification(
        &mut self,
        method: &str,
        params: RawParams<'_>,
    ) -> Result<Option<BoxFuture<'static, ()>>, UncheckedParamsError> {
        if method == CLIENT_METHOD_NAMES.session_update {
            return self.dispatch_update(params).map(Some);
        }
        let (client, agent) = (Arc::clone(&self.client), self.agent.clone());
        if method == CLIENT_METHOD_NAMES.elicitation_complete {
            return handle_notification(params, |notification| async move {
                client.complete_elicitation(notification, agent).await
            });
        }
        if is_extension(method) {
            let notification = ExtNotification::new(method, to_raw_params(params)?);
            return Ok(Some(Box::pin(async move { client.ext_notification(notification, agent).await })));
        }
        // A notification that is neither defined nor an extension is ignored, as the protocol requires.
        params.require_checked().map(|_| None)
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
