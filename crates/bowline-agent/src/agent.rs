//! The agent as its client sees it: every method of the protocol.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_mcp::client::{OverAcp, Told};
use bowline_state::failure::Failure;
use bowline_state::schema::v1::{
    AgentAuthCapabilities, AgentCapabilities, AuthenticateRequest, AuthenticateResponse, CloseSessionRequest,
    CloseSessionResponse, DeleteSessionRequest, DeleteSessionResponse, Error, ForkSessionRequest,
    ForkSessionResponse, Implementation, InitializeRequest, InitializeResponse, ListSessionsRequest,
    ListSessionsResponse, LoadSessionRequest, LoadSessionResponse, LogoutCapabilities, LogoutRequest,
    LogoutResponse, McpCapabilities, McpServer, MessageMcpNotification, NewSessionRequest,
    NewSessionResponse, PromptCapabilities, PromptRequest, PromptResponse, ResumeSessionRequest,
    ResumeSessionResponse, SessionAdditionalDirectoriesCapabilities, SessionCapabilities,
    SessionCloseCapabilities, SessionDeleteCapabilities, SessionForkCapabilities, SessionId, SessionInfo,
    SessionListCapabilities, SessionResumeCapabilities, SessionUpdate, SetSessionConfigOptionRequest,
    SetSessionConfigOptionResponse, SetSessionModeRequest, SetSessionModeResponse,
};
use bowline_wire::methods::{SetSessionModelRequest, SetSessionModelResponse};
use bowline_wire::{Agent, AgentContext, ClientHandle};

use crate::keys::Keyring;
use crate::model::catalogue::Models;
use crate::options;
use crate::session::{How, Place, Session, Shared};
use crate::settings::Settings;
use crate::store::{ListQuery, Meta, Retention, SqliteSessionStore};
use bowline_workspace::clock::iso8601;

mod auth;

/// So many sessions may be open at once on one connection.
pub const MAX_SESSIONS: usize = 4096;

/// So many sessions are listed at once.
const PAGE: usize = 50;

/// Bowline's agent, for one client. Clones are the same one.
#[derive(Clone)]
pub struct BowlineAgent {
    shared: Arc<Shared>,
    sessions: Arc<Mutex<HashMap<SessionId, Arc<Session>>>>,
    // What MCP servers of the client tell.
    told: Told,
}

impl std::fmt::Debug for BowlineAgent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BowlineAgent").finish_non_exhaustive()
    }
}

impl BowlineAgent {
    /// Returns an agent that no client talks to yet. Nothing is opened before it is needed.
    #[must_use]
    pub fn new(settings: Settings, models: Models, keys: Keyring) -> Self {
        let store = Arc::new(SqliteSessionStore::new(&settings.places.state, Retention::default()));
        let shared = Shared::new(settings, models, keys, store);
        Self { shared: Arc::new(shared), sessions: Arc::default(), told: Told::default() }
    }

    /// Ends all sessions: whatever they run is stopped, what they are is on disk.
    pub async fn shut_down(&self) {
        let sessions: Vec<Arc<Session>> = self.sessions().drain().map(|(_, session)| session).collect();
        let mut closing = tokio::task::JoinSet::new();
        for session in sessions {
            closing.spawn(async move { session.close().await });
        }
        closing.join_all().await;
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Session>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn session(&self, id: &SessionId) -> Result<Arc<Session>, Failure> {
        let session = self.sessions().get(id).cloned();
        session.ok_or_else(|| Failure::SessionNotFound { session_id: id.clone() })
    }

    fn log(&self, line: impl AsRef<str>) {
        self.shared.settings.log.line(line);
    }

    /// Opens a session and makes it one of the connection's.
    async fn open(
        &self,
        cx: &AgentContext,
        how: How,
        place: Place,
        servers: &[McpServer],
    ) -> Result<Arc<Session>, Failure> {
        if self.sessions().len() >= MAX_SESSIONS {
            return Err(Failure::Busy { limit: MAX_SESSIONS as u64 });
        }
        let replayed = matches!(how, How::Load(_));
        let over_acp = OverAcp::new(cx.client().clone(), self.told.clone());
        let opened = Session::open(&self.shared, cx.client(), how, place, (servers, over_acp)).await?;
        let session = Arc::new(opened.session);
        for notice in self.shared.store.take_notices() {
            session.note(notice.to_string());
        }
        if replayed {
            session.replay(opened.history).await;
            // The client has asked for this session, so it knows it: all of its state comes before the answer.
            tell_commands(&session).await;
        }
        self.sessions().insert(session.id().clone(), session.clone());
        if !replayed {
            announce(session.clone(), cx.clone());
        }
        Ok(session)
    }

    /// Lets go of a session of this connection, so that it can be opened anew.
    async fn let_go(&self, id: &SessionId) {
        let session = self.sessions().remove(id);
        if let Some(session) = session {
            session.close().await;
        }
    }
}

/// Returns how many turns a session has had, for a host that journals beside it: a turn should have one number in both.
async fn turns(session: &Session) -> serde_json::Map<String, serde_json::Value> {
    let count = session.turns().await;
    serde_json::Map::from_iter([("bowline".to_owned(), serde_json::json!({ "turns": count }))])
}

/// Tells the client what it may choose from, once it knows the session: some cannot take it before.
fn announce(session: Arc<Session>, cx: AgentContext) {
    tokio::spawn(async move {
        tokio::select! {
            () = cx.answered() => {}
            () = cx.client().caller().closed() => return,
        }
        tell_commands(&session).await;
    });
}

async fn tell_commands(session: &Session) {
    let commands = options::commands(session.toolbox().can_undo());
    session.tell(SessionUpdate::AvailableCommandsUpdate(commands)).await;
}

impl Agent for BowlineAgent {
    async fn initialize(
        &self,
        request: InitializeRequest,
        cx: AgentContext,
    ) -> Result<InitializeResponse, Error> {
        let who = request.client_info.as_ref().map_or_else(
            || "a client that does not say its name".to_owned(),
            |client| format!("{} {}", client.name, client.version),
        );
        let advertised = serde_json::to_string(&request.client_capabilities).unwrap_or_default();
        self.log(format!("initialized by {who}, which advertises {advertised}"));
        let sessions = SessionCapabilities::new()
            .list(SessionListCapabilities::new())
            .delete(SessionDeleteCapabilities::new())
            .additional_directories(SessionAdditionalDirectoriesCapabilities::new())
            .fork(SessionForkCapabilities::new())
            .resume(SessionResumeCapabilities::new())
            .close(SessionCloseCapabilities::new());
        let capabilities = AgentCapabilities::new()
            .load_session(true)
            .prompt_capabilities(PromptCapabilities::new().image(true).embedded_context(true))
            .mcp_capabilities(McpCapabilities::new().http(true).sse(true).acp(true))
            .session_capabilities(sessions)
            .auth(AgentAuthCapabilities::new().logout(LogoutCapabilities::new()));
        Ok(InitializeResponse::new(request.protocol_version)
            .agent_capabilities(capabilities)
            .auth_methods(auth::methods(&cx.client().gate()))
            .agent_info(Implementation::new("bowline", env!("CARGO_PKG_VERSION")).title("Bowline")))
    }

    async fn authenticate(
        &self,
        request: AuthenticateRequest,
        _: AgentContext,
    ) -> Result<AuthenticateResponse, Error> {
        auth::authenticate(&self.shared, &request.method_id).await?;
        Ok(AuthenticateResponse::new())
    }

    async fn logout(&self, _: LogoutRequest, _: AgentContext) -> Result<LogoutResponse, Error> {
        auth::logout(&self.shared).await?;
        Ok(LogoutResponse::new())
    }

    async fn new_session(
        &self,
        request: NewSessionRequest,
        cx: AgentContext,
    ) -> Result<NewSessionResponse, Error> {
        let place = Place::of(request.cwd, request.additional_directories, &self.shared.settings)?;
        place.check(cx.client(), &request.mcp_servers).await?;
        let session = self.open(&cx, How::New, place, &request.mcp_servers).await?;
        Ok(session.choices(|choices| {
            NewSessionResponse::new(session.id().clone())
                .modes(choices.modes())
                .config_options(choices.config_options())
        }))
    }

    async fn load_session(
        &self,
        request: LoadSessionRequest,
        cx: AgentContext,
    ) -> Result<LoadSessionResponse, Error> {
        let place = Place::of(request.cwd, request.additional_directories, &self.shared.settings)?;
        self.let_go(&request.session_id).await;
        let session = self.open(&cx, How::Load(request.session_id), place, &request.mcp_servers).await?;
        let turns = turns(&session).await;
        Ok(session.choices(|choices| {
            LoadSessionResponse::new()
                .modes(choices.modes())
                .config_options(choices.config_options())
                .meta(turns)
        }))
    }

    async fn resume_session(
        &self,
        request: ResumeSessionRequest,
        cx: AgentContext,
    ) -> Result<ResumeSessionResponse, Error> {
        let place = Place::of(request.cwd, request.additional_directories, &self.shared.settings)?;
        self.let_go(&request.session_id).await;
        let session = self.open(&cx, How::Resume(request.session_id), place, &request.mcp_servers).await?;
        let turns = turns(&session).await;
        Ok(session.choices(|choices| {
            ResumeSessionResponse::new()
                .modes(choices.modes())
                .config_options(choices.config_options())
                .meta(turns)
        }))
    }

    async fn fork_session(
        &self,
        request: ForkSessionRequest,
        cx: AgentContext,
    ) -> Result<ForkSessionResponse, Error> {
        let place = Place::of(request.cwd, request.additional_directories, &self.shared.settings)?;
        let session = self.open(&cx, How::Fork(request.session_id), place, &request.mcp_servers).await?;
        Ok(session.choices(|choices| {
            ForkSessionResponse::new(session.id().clone())
                .modes(choices.modes())
                .config_options(choices.config_options())
        }))
    }

    async fn list_sessions(
        &self,
        request: ListSessionsRequest,
        _: AgentContext,
    ) -> Result<ListSessionsResponse, Error> {
        let query = ListQuery { cwd: request.cwd, cursor: request.cursor, page: PAGE };
        let page = self.shared.store.list(query).await.map_err(Failure::from)?;
        let told = |meta: Meta| {
            let mut info = SessionInfo::new(meta.id, meta.cwd).updated_at(iso8601(meta.updated));
            info.additional_directories = meta.additional;
            info.title = meta.title;
            info
        };
        let sessions = page.sessions.into_iter().map(told).collect();
        let mut response = ListSessionsResponse::new(sessions);
        response.next_cursor = page.next;
        Ok(response)
    }

    async fn close_session(
        &self,
        request: CloseSessionRequest,
        _: AgentContext,
    ) -> Result<CloseSessionResponse, Error> {
        self.session(&request.session_id)?;
        self.let_go(&request.session_id).await;
        Ok(CloseSessionResponse::new())
    }

    async fn delete_session(
        &self,
        request: DeleteSessionRequest,
        _: AgentContext,
    ) -> Result<DeleteSessionResponse, Error> {
        self.let_go(&request.session_id).await;
        self.shared.store.delete(&request.session_id).await.map_err(Failure::from)?;
        Ok(DeleteSessionResponse::new())
    }

    async fn set_session_mode(
        &self,
        request: SetSessionModeRequest,
        _: AgentContext,
    ) -> Result<SetSessionModeResponse, Error> {
        let session = self.session(&request.session_id)?;
        let change =
            session.choices(|choices| choices.choose_mode(&request.mode_id.0)).map_err(Failure::from)?;
        session.choose(change).await?;
        Ok(SetSessionModeResponse::new())
    }

    async fn set_session_model(
        &self,
        request: SetSessionModelRequest,
        _: AgentContext,
    ) -> Result<SetSessionModelResponse, Error> {
        let session = self.session(&request.session_id)?;
        let change =
            session.choices(|choices| choices.choose_model(&request.model_id)).map_err(Failure::from)?;
        session.choose(change).await?;
        Ok(SetSessionModelResponse {})
    }

    async fn set_session_config_option(
        &self,
        request: SetSessionConfigOptionRequest,
        _: AgentContext,
    ) -> Result<SetSessionConfigOptionResponse, Error> {
        let session = self.session(&request.session_id)?;
        let change = session.choices(|choices| choices.choose(&request.config_id.0, &request.value));
        session.choose(change.map_err(Failure::from)?).await?;
        Ok(SetSessionConfigOptionResponse::new(session.choices(|choices| choices.config_options())))
    }

    async fn prompt(&self, request: PromptRequest, cx: AgentContext) -> Result<PromptResponse, Error> {
        let session = self.session(&request.session_id)?;
        Ok(session.prompt(request.prompt, cx.cancel()).await?)
    }

    async fn cancel(&self, notification: bowline_state::schema::v1::CancelNotification, _: ClientHandle) {
        // The turns themselves were told by the wire.
        self.log(format!("session {}: cancelled", notification.session_id.0));
    }

    async fn mcp_notification(&self, notification: MessageMcpNotification, _: ClientHandle) {
        let server = notification.server_id.clone();
        if !self.told.take(notification) {
            self.log(format!(
                "the MCP server {} of the client tells of a request that there is not",
                server.0
            ));
        }
    }
}
