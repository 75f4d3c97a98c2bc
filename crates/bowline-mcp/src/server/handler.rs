//! The protocol side of a session: dispatches a client's requests to the session, with deadlines.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bowline_tools::tools::input::ToolInputFields;
use rmcp::ErrorData;
use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CustomRequest, CustomResult, Implementation,
    InitializeRequestParams, InitializeResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, Resource,
    ResourceUpdatedNotificationParam, ServerCapabilities, ServerConfig, SubscribeRequestParams, Tool,
    UnsubscribeRequestParams,
};
use rmcp::service::{Peer, RequestContext, RoleServer, ServiceError};
use serde_json::json;
use tokio::sync::OnceCell;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::client_peer::ClientPeer;
use super::http::ClientPresence;
use super::outcome::ToolOutcome;
use super::resources::{
    MAX_LISTED, MAX_SUBSCRIBED, ResourceEvent, ResourceInfo, ResourceProvider, to_contents,
};
use super::session::{CallContext, McpSession};
use super::tool_specs::SessionTools;
use super::{McpWorkspaceServer, binary, invalid_message, tool_specs};

/// How long calls may continue after the client's input has ended: it may still read their answers.
const INPUT_END_GRACE: Duration = Duration::from_secs(2);

/// The description of the server for a model.
const INSTRUCTIONS: &str = "The user's workspace, with unsaved text of the editor. Use these tools for its files in place \
                            of others: what the user changes meanwhile is kept, every change can be undone, and rules of \
                            the user's hold. Paths may be relative to the workspace. Read a file before you write it.";

/// The open sessions, kept so that the remaining ones can be closed at the end.
#[derive(Default)]
pub(crate) struct OpenMcpSessions {
    // Invariant: closed sessions are removed whenever one is added.
    sessions: Mutex<Vec<Weak<McpSession>>>,
}

impl OpenMcpSessions {
    fn add(&self, session: &Arc<McpSession>) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|session| session.strong_count() > 0);
        sessions.push(Arc::downgrade(session));
    }

    /// Closes every session, and returns when all have ended.
    pub(crate) async fn close_all(&self) {
        let sessions: Vec<Arc<McpSession>> = {
            let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
            sessions.iter().filter_map(Weak::upgrade).collect()
        };
        futures_util::future::join_all(sessions.iter().map(|session| session.close())).await;
    }
}

/// The handler of one session.
pub(crate) struct SessionHandler {
    server: McpWorkspaceServer,
    session: OnceCell<Arc<McpSession>>,
    open_sessions: Arc<OpenMcpSessions>,
    // Cancelled when the client's input has ended.
    input_ended: CancellationToken,
}

impl SessionHandler {
    pub(crate) fn new(
        server: McpWorkspaceServer,
        open_sessions: Arc<OpenMcpSessions>,
        input_ended: CancellationToken,
    ) -> Self {
        Self { server, session: OnceCell::new(), open_sessions, input_ended }
    }

    fn session(&self) -> Result<&Arc<McpSession>, ErrorData> {
        self.session.get().ok_or_else(|| ErrorData::invalid_request("send initialize first", None))
    }

    async fn open_session(&self, name: &str, peer: &Peer<RoleServer>) -> Result<Arc<McpSession>, String> {
        let backend = (self.server.open_backend)(ClientPeer::new(name, peer.clone())).await?;
        let session = Arc::new(McpSession::new(backend, self.server.options.clone()));
        self.open_sessions.add(&session);
        if let Some(resources) = session.backend.resources() {
            bowline_task::spawn(forward_resource_events(
                Arc::downgrade(&session),
                resources.subscribe(),
                peer.clone(),
            ));
        }
        Ok(session)
    }

    /// Returns the tools of the session: all that the server may have, until it is open.
    fn tools(&self) -> SessionTools {
        let session = self.session.get();
        SessionTools {
            offered_tools: self.server.options.offered_tools,
            has_file_extension: session.is_none_or(|session| session.backend.files().serves_file_extension()),
        }
    }

    fn resources(&self) -> Result<Option<&dyn ResourceProvider>, ErrorData> {
        Ok(self.session()?.backend.resources())
    }

    /// Returns the resource with a URI, or a not-found error.
    async fn find_resource(&self, uri: &str) -> Result<(&dyn ResourceProvider, ResourceInfo), ErrorData> {
        let missing = || {
            let uri = bowline_text::display::escape_line(uri, 300);
            let text = format!("there is no resource {uri}: list the resources to see which there are");
            ErrorData::resource_not_found(text, Some(json!({ "uri": uri })))
        };
        let resources = self.resources()?.ok_or_else(missing)?;
        let infos = resources.list().await;
        let info = infos.into_iter().find(|info| info.uri == uri).ok_or_else(missing)?;
        Ok((resources, info))
    }
}

impl Drop for SessionHandler {
    fn drop(&mut self) {
        let session = self.session.get().cloned();
        if let (Some(session), Ok(runtime)) = (session, tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move { session.close().await });
        }
    }
}

/// Notifies a client of changes to resources until its session ends.
async fn forward_resource_events(
    session: Weak<McpSession>,
    mut events: tokio::sync::broadcast::Receiver<ResourceEvent>,
    peer: Peer<RoleServer>,
) {
    loop {
        let event = events.recv().await;
        let Some(session) = session.upgrade() else { return };
        let result = match event {
            Ok(ResourceEvent::Updated(uri)) if session.is_subscribed(&uri) => {
                peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri)).await
            }
            Ok(ResourceEvent::Updated(_)) => Ok(()),
            Ok(ResourceEvent::ListChanged) => peer.notify_resource_list_changed().await,
            Ok(ResourceEvent::Lagged) | Err(RecvError::Lagged(_)) => {
                notify_all_changed(&session, &peer).await
            }
            Err(RecvError::Closed) => return,
        };
        if result.is_err() {
            return;
        }
    }
}

/// Notifies a client that any resource may have changed, because some events were missed.
async fn notify_all_changed(session: &McpSession, peer: &Peer<RoleServer>) -> Result<(), ServiceError> {
    for uri in session.subscriptions() {
        peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri)).await?;
    }
    peer.notify_resource_list_changed().await
}

/// Waits until the client can no longer receive the answer of a call.
async fn wait_until_abandoned(input_ended: &CancellationToken, presence: Option<ClientPresence>) {
    let input = async {
        input_ended.cancelled().await;
        sleep(INPUT_END_GRACE).await;
    };
    match presence {
        Some(presence) => tokio::select! {
            () = input => (),
            () = presence.wait_until_gone() => (),
        },
        None => input.await,
    }
}

impl ServerHandler for SessionHandler {
    fn get_info(&self) -> ServerConfig {
        let settings = &self.server.options;
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_resources_list_changed()
            .build();
        InitializeResult::new(capabilities)
            .with_protocol_version(ProtocolVersion::V_2025_11_25)
            .with_server_info(Implementation::new(settings.name.clone(), settings.version.clone()))
            .with_instructions(INSTRUCTIONS)
    }

    /// The next revision has no sessions over HTTP. The session records what a model has seen, and merging depends on
    /// that.
    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(ProtocolVersion::known_up_to(&ProtocolVersion::V_2025_11_25))
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        context.peer.set_peer_info(request.clone());
        let answer = self.negotiate_initialize(&request)?;
        let open = || self.open_session(&request.client_info.name, &context.peer);
        let opened = self.session.get_or_try_init(open).await;
        opened.map_err(|reason| ErrorData::internal_error(reason, None))?;
        Ok(answer)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tool_specs::list_tools(self.tools())))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tool_specs::list_tools(self.tools()).into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let session = self.session()?;
        let tools = self.tools();
        let action = tool_specs::find_tool(tools, &request.name).ok_or_else(|| {
            ErrorData::invalid_params(tool_specs::describe_missing_tool(tools, &request.name), None)
        })?;
        let arguments = request.arguments.unwrap_or_default();
        let token = context.meta.get_progress_token();
        let progress = token.map(|token| (context.peer.clone(), token));
        let call_context = CallContext { id: context.id.to_string(), progress };
        let presence = context.extensions.get::<http::request::Parts>();
        let presence = presence.and_then(|parts| parts.extensions.get::<ClientPresence>()).cloned();
        // Cancelling means dropping: everything the call has started ends with it.
        let outcome = tokio::select! {
            biased;
            () = context.ct.cancelled() => ToolOutcome::error("the call was cancelled"),
            () = session.wait_until_closed() => ToolOutcome::error("the session has ended: connect again"),
            () = wait_until_abandoned(&self.input_ended, presence) => ToolOutcome::error("the client is gone"),
            outcome = session.call(action, ToolInputFields::from_object(&arguments), call_context) => outcome,
        };
        Ok(CallToolResponse::from(outcome.into_result()))
    }

    /// Answers requests that the SDK cannot parse: an unknown method, or invalid parameters.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        Err(invalid_message::invalid_params_error(&request.method))
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let resources = match self.resources()? {
            Some(resources) => resources.list().await,
            None => Vec::new(),
        };
        let resources: Vec<Resource> = resources.into_iter().take(MAX_LISTED).map(Resource::from).collect();
        Ok(ListResourcesResult::with_all_items(resources))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let (resources, info) = match self.find_resource(&request.uri).await {
            Ok(found) => found,
            // Files of the workspace can be read without being listed.
            Err(missing) if !self.tools().can_read() => return Err(missing),
            Err(missing) => {
                let session = self.session()?;
                return match binary::read_file_resource(session, &request.uri).await {
                    Some(Ok(contents)) => Ok(ReadResourceResult::new(vec![contents]).into()),
                    Some(Err(reason)) => Err(ErrorData::internal_error(reason, None)),
                    None => Err(missing),
                };
            }
        };
        match resources.read(&request.uri).await {
            Ok(Some(text)) => Ok(ReadResourceResult::new(vec![to_contents(info, text)]).into()),
            Ok(None) => {
                Err(ErrorData::resource_not_found("the resource is gone: list the resources again", None))
            }
            Err(reason) => Err(ErrorData::internal_error(reason, None)),
        }
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.find_resource(&request.uri).await?;
        if self.session()?.subscribe(request.uri) {
            return Ok(());
        }
        let text =
            format!("{MAX_SUBSCRIBED} resources are subscribed to already: unsubscribe from one first");
        Err(ErrorData::invalid_request(text, None))
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.session()?.unsubscribe(&request.uri);
        Ok(())
    }
}
