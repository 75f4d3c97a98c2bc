//! The protocol's side of a session: what a client asks, given to the session, within its time.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bowline_state::tooling::input::Fields;
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

use super::asking::Client;
use super::http::Lifeline;
use super::resources::{Described, MAX_LISTED, MAX_SUBSCRIBED, News, Resources, contents};
use super::session::{Calling, Session};
use super::told::Done;
use super::{Place, Server, specs, unreadable};

/// How long calls may go on after the client's side of a pipe has ended: their answers may still be read.
const AFTER_INPUT: Duration = Duration::from_secs(2);

/// What a model is told of the server as a whole.
const INSTRUCTIONS: &str = "The user's workspace, with unsaved text of the editor. Use these tools for its files in place \
                            of others: what the user changes meanwhile is kept, every change can be undone, and rules of \
                            the user's hold. Paths may be relative to the workspace. Read a file before you write it.";

/// Every session that is open, to close what is left at the end.
pub(crate) struct Live<P: Place> {
    // Invariant: sessions that are gone are dropped when one is added.
    sessions: Mutex<Vec<Weak<Session<P>>>>,
}

impl<P: Place> Default for Live<P> {
    fn default() -> Self {
        Self { sessions: Mutex::default() }
    }
}

impl<P: Place> Live<P> {
    fn add(&self, session: &Arc<Session<P>>) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|session| session.strong_count() > 0);
        sessions.push(Arc::downgrade(session));
    }

    /// Closes every session, and returns when nothing of them runs.
    pub(crate) async fn close_all(&self) {
        let sessions: Vec<Arc<Session<P>>> = {
            let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
            sessions.iter().filter_map(Weak::upgrade).collect()
        };
        futures_util::future::join_all(sessions.iter().map(|session| session.close())).await;
    }
}

/// The handler of one session.
pub(crate) struct Handler<P: Place> {
    server: Server<P>,
    session: OnceCell<Arc<Session<P>>>,
    live: Arc<Live<P>>,
    // Fires when nothing more can come from the client.
    input_ended: CancellationToken,
}

impl<P: Place> Handler<P> {
    pub(crate) fn new(server: Server<P>, live: Arc<Live<P>>, input_ended: CancellationToken) -> Self {
        Self { server, session: OnceCell::new(), live, input_ended }
    }

    fn session(&self) -> Result<&Arc<Session<P>>, ErrorData> {
        self.session.get().ok_or_else(|| ErrorData::invalid_request("send initialize first", None))
    }

    async fn opened(&self, name: &str, peer: &Peer<RoleServer>) -> Result<Arc<Session<P>>, String> {
        let place = (self.server.open)(Client::new(name, peer.clone())).await?;
        let session = Arc::new(Session::new(place, self.server.settings.clone()));
        self.live.add(&session);
        if let Some(resources) = session.place.resources() {
            tokio::spawn(pass_on(Arc::downgrade(&session), resources.news(), peer.clone()));
        }
        Ok(session)
    }

    fn resources(&self) -> Result<Option<&dyn Resources>, ErrorData> {
        Ok(self.session()?.place.resources())
    }

    /// Returns a resource of a URI, or that there is none.
    async fn described(&self, uri: &str) -> Result<(&dyn Resources, Described), ErrorData> {
        let missing = || {
            let uri = bowline_state::display::line(uri, 300);
            let text = format!("there is no resource {uri}: list the resources to see which there are");
            ErrorData::resource_not_found(text, Some(json!({ "uri": uri })))
        };
        let resources = self.resources()?.ok_or_else(missing)?;
        let listed = resources.list().await;
        let described = listed.into_iter().find(|described| described.uri == uri).ok_or_else(missing)?;
        Ok((resources, described))
    }
}

impl<P: Place> Drop for Handler<P> {
    fn drop(&mut self) {
        let session = self.session.get().cloned();
        if let (Some(session), Ok(runtime)) = (session, tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move { session.close().await });
        }
    }
}

/// Tells a client what happens to resources, as long as its session lasts.
async fn pass_on<P: Place>(
    session: Weak<Session<P>>,
    mut news: tokio::sync::broadcast::Receiver<News>,
    peer: Peer<RoleServer>,
) {
    loop {
        let heard = news.recv().await;
        let Some(session) = session.upgrade() else { return };
        let sent = match heard {
            Ok(News::Updated(uri)) if session.is_subscribed(&uri) => {
                peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri)).await
            }
            Ok(News::Updated(_)) => Ok(()),
            Ok(News::Listed) => peer.notify_resource_list_changed().await,
            Ok(News::Missed) | Err(RecvError::Lagged(_)) => tell_all(&session, &peer).await,
            Err(RecvError::Closed) => return,
        };
        if sent.is_err() {
            return;
        }
    }
}

/// Tells a client that anything may be another now: who missed some news looks at all that there is.
async fn tell_all<P: Place>(session: &Session<P>, peer: &Peer<RoleServer>) -> Result<(), ServiceError> {
    for uri in session.subscriptions() {
        peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri)).await?;
    }
    peer.notify_resource_list_changed().await
}

/// Waits until nobody can take the answer of a call any more.
async fn abandoned(input_ended: &CancellationToken, lifeline: Option<Lifeline>) {
    let input = async {
        input_ended.cancelled().await;
        sleep(AFTER_INPUT).await;
    };
    match lifeline {
        Some(lifeline) => tokio::select! {
            () = input => (),
            () = lifeline.cut() => (),
        },
        None => input.await,
    }
}

impl<P: Place> ServerHandler for Handler<P> {
    fn get_info(&self) -> ServerConfig {
        let settings = &self.server.settings;
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

    /// The revision after these has no sessions over HTTP, and a session is what a model has seen: without it nothing could
    /// be merged.
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
        let open = || self.opened(&request.client_info.name, &context.peer);
        let opened = self.session.get_or_try_init(open).await;
        opened.map_err(|why| ErrorData::internal_error(why, None))?;
        Ok(answer)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(specs::tools(self.server.settings.offer)))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        specs::tools(self.server.settings.offer).into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let session = self.session()?;
        let offer = self.server.settings.offer;
        let does = specs::find(offer, &request.name)
            .ok_or_else(|| ErrorData::invalid_params(specs::missing(offer, &request.name), None))?;
        let arguments = request.arguments.unwrap_or_default();
        let token = context.meta.get_progress_token();
        let progress = token.map(|token| (context.peer.clone(), token));
        let calling = Calling { id: context.id.to_string(), progress };
        let lifeline = context.extensions.get::<http::request::Parts>();
        let lifeline = lifeline.and_then(|parts| parts.extensions.get::<Lifeline>()).cloned();
        // To cancel is to drop: what the call has under way ends with it.
        let done = tokio::select! {
            biased;
            () = context.ct.cancelled() => Done::failed("the call was cancelled"),
            () = session.closed() => Done::failed("the session has ended: connect again"),
            () = abandoned(&self.input_ended, lifeline) => Done::failed("the client is gone"),
            done = session.call(does, Fields::of_object(&arguments), calling) => done,
        };
        Ok(CallToolResponse::from(done.result()))
    }

    /// Whatever has no form that the protocol knows: a method that there is none of, or wrong parameters.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        Err(unreadable::parameters(&request.method))
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let listed = match self.resources()? {
            Some(resources) => resources.list().await,
            None => Vec::new(),
        };
        let listed: Vec<Resource> = listed.into_iter().take(MAX_LISTED).map(Resource::from).collect();
        Ok(ListResourcesResult::with_all_items(listed))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let (resources, described) = self.described(&request.uri).await?;
        match resources.read(&request.uri).await {
            Ok(Some(text)) => Ok(ReadResourceResult::new(vec![contents(described, text)]).into()),
            Ok(None) => {
                Err(ErrorData::resource_not_found("the resource is gone: list the resources again", None))
            }
            Err(why) => Err(ErrorData::internal_error(why, None)),
        }
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.described(&request.uri).await?;
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
