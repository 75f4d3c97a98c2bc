//! The agent's protocol methods, as the client calls them.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_mcp::client::{McpNotificationRouter, McpOverAcp};
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::{
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
use bowline_wire::message::methods::{SetSessionModelRequest, SetSessionModelResponse};
use bowline_wire::{Agent, AgentContext, ClientHandle};

use crate::agent_options::AgentOptions;
use crate::model::catalogue::ModelCatalogue;
use crate::model::keys::Keyring;
use crate::session::config_options;
use crate::session::{AgentResources, AgentSession, OpenMethod, SessionDirectories};
use crate::store::{
    PostgresSessionStore, SessionMeta, SessionQuery, SessionRetention, SessionStore, SqliteSessionStore,
};
use bowline_storage::clock::format_iso8601;

mod auth;

/// The most sessions open at once on one connection.
pub const MAX_SESSIONS: usize = 4096;

/// The number of sessions on one page of a list.
const SESSIONS_PER_PAGE: usize = 50;

/// Bowline's agent, for one client. Clones share their state.
#[derive(Clone)]
pub struct BowlineAgent {
    resources: Arc<AgentResources>,
    sessions: Arc<Mutex<HashMap<SessionId, Arc<AgentSession>>>>,
    // Routes notifications from the client's MCP servers.
    mcp_notifications: McpNotificationRouter,
}

impl std::fmt::Debug for BowlineAgent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BowlineAgent").finish_non_exhaustive()
    }
}

impl BowlineAgent {
    /// Returns an agent without a client. Resources are opened when they are needed.
    #[must_use]
    pub fn new(options: AgentOptions, models: ModelCatalogue, keys: Keyring) -> Self {
        let retention = SessionRetention::default();
        let store: Arc<dyn SessionStore> = match &options.session_database {
            Some(url) => Arc::new(PostgresSessionStore::new(url.clone(), retention)),
            None => Arc::new(SqliteSessionStore::new(&options.paths.state_dir, retention)),
        };
        let resources = AgentResources::new(options, models, keys, store);
        Self {
            resources: Arc::new(resources),
            sessions: Arc::default(),
            mcp_notifications: McpNotificationRouter::default(),
        }
    }

    /// Ends all sessions: stops their commands and saves their state.
    pub async fn shut_down(&self) {
        let sessions: Vec<Arc<AgentSession>> = self.sessions().drain().map(|(_, session)| session).collect();
        let mut tasks = tokio::task::JoinSet::new();
        for session in sessions {
            tasks.spawn(async move { session.close().await });
        }
        tasks.join_all().await;
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<AgentSession>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find_session(&self, id: &SessionId) -> Result<Arc<AgentSession>, RpcError> {
        let session = self.sessions().get(id).cloned();
        session.ok_or_else(|| RpcError::SessionNotFound { session_id: id.clone() })
    }

    fn log_line(&self, line: impl AsRef<str>) {
        self.resources.options.log.write_line(line);
    }

    /// Opens a session and adds it to the connection.
    async fn open_session(
        &self,
        cx: &AgentContext,
        method: OpenMethod,
        (cwd, additional_directories): (PathBuf, Vec<PathBuf>),
        servers: &[McpServer],
    ) -> Result<Arc<AgentSession>, RpcError> {
        let directories =
            SessionDirectories::from_request(cwd, additional_directories, &self.resources.options)?;
        match &method {
            OpenMethod::New => directories.check_exists(cx.client(), servers).await?,
            // An open session of this connection is opened again.
            OpenMethod::Load(id) | OpenMethod::Resume(id) => self.close_and_forget(id).await,
            OpenMethod::Fork(_) => {}
        }
        if self.sessions().len() >= MAX_SESSIONS {
            return Err(RpcError::Busy { limit: MAX_SESSIONS as u64 });
        }
        let replayed = matches!(method, OpenMethod::Load(_));
        let over_acp = McpOverAcp::new(cx.client().clone(), self.mcp_notifications.clone());
        let opened =
            AgentSession::open(&self.resources, cx.client(), method, directories, (servers, over_acp))
                .await?;
        let session = Arc::new(opened.session);
        for notice in self.resources.store.take_notices() {
            session.add_note(notice.to_string());
        }
        if replayed {
            session.replay_history(opened.history).await;
            // The client knows this session, having asked for it: all of its state is sent before the answer.
            send_available_commands(&session).await;
        }
        self.sessions().insert(session.id().clone(), session.clone());
        if !replayed {
            announce_commands(session.clone(), cx.clone());
        }
        Ok(session)
    }

    /// Closes a session of this connection, so that it can be reopened.
    async fn close_and_forget(&self, id: &SessionId) {
        let session = self.sessions().remove(id);
        if let Some(session) = session {
            session.close().await;
        }
    }
}

/// Returns the session's turn count, for a host with a journal of its own: both should number turns alike.
async fn turn_count_meta(session: &AgentSession) -> serde_json::Map<String, serde_json::Value> {
    let count = session.turn_count().await;
    serde_json::Map::from_iter([("bowline".to_owned(), serde_json::json!({ "turns": count }))])
}

/// Sends the available commands after the answer: some clients ignore updates of a session they do not know yet.
fn announce_commands(session: Arc<AgentSession>, cx: AgentContext) {
    bowline_task::spawn(async move {
        tokio::select! {
            () = cx.answered() => {}
            () = cx.client().caller().closed() => return,
        }
        send_available_commands(&session).await;
    });
}

async fn send_available_commands(session: &AgentSession) {
    let commands = config_options::available_commands(session.toolbox().can_undo());
    session.send_update(SessionUpdate::AvailableCommandsUpdate(commands)).await;
}

impl Agent for BowlineAgent {
    async fn initialize(
        &self,
        request: InitializeRequest,
        cx: AgentContext,
    ) -> Result<InitializeResponse, Error> {
        let client_name = request.client_info.as_ref().map_or_else(
            || "a client that does not say its name".to_owned(),
            |client| format!("{} {}", client.name, client.version),
        );
        let advertised = serde_json::to_string(&request.client_capabilities).unwrap_or_default();
        self.log_line(format!("initialized by {client_name}, which advertises {advertised}"));
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
            .auth_methods(auth::auth_methods(&cx.client().gate()))
            .agent_info(Implementation::new("bowline", env!("CARGO_PKG_VERSION")).title("Bowline")))
    }

    async fn authenticate(
        &self,
        request: AuthenticateRequest,
        _: AgentContext,
    ) -> Result<AuthenticateResponse, Error> {
        auth::authenticate(&self.resources, &request.method_id).await?;
        Ok(AuthenticateResponse::new())
    }

    async fn logout(&self, _: LogoutRequest, _: AgentContext) -> Result<LogoutResponse, Error> {
        auth::logout(&self.resources).await?;
        Ok(LogoutResponse::new())
    }

    async fn new_session(
        &self,
        request: NewSessionRequest,
        cx: AgentContext,
    ) -> Result<NewSessionResponse, Error> {
        let directories = (request.cwd, request.additional_directories);
        let session = self.open_session(&cx, OpenMethod::New, directories, &request.mcp_servers).await?;
        Ok(session.with_config_view(|view| {
            NewSessionResponse::new(session.id().clone())
                .modes(view.mode_state())
                .config_options(view.config_options())
        }))
    }

    async fn load_session(
        &self,
        request: LoadSessionRequest,
        cx: AgentContext,
    ) -> Result<LoadSessionResponse, Error> {
        let directories = (request.cwd, request.additional_directories);
        let session = self
            .open_session(&cx, OpenMethod::Load(request.session_id), directories, &request.mcp_servers)
            .await?;
        let turns = turn_count_meta(&session).await;
        Ok(session.with_config_view(|view| {
            LoadSessionResponse::new()
                .modes(view.mode_state())
                .config_options(view.config_options())
                .meta(turns)
        }))
    }

    async fn resume_session(
        &self,
        request: ResumeSessionRequest,
        cx: AgentContext,
    ) -> Result<ResumeSessionResponse, Error> {
        let directories = (request.cwd, request.additional_directories);
        let session = self
            .open_session(&cx, OpenMethod::Resume(request.session_id), directories, &request.mcp_servers)
            .await?;
        let turns = turn_count_meta(&session).await;
        Ok(session.with_config_view(|view| {
            ResumeSessionResponse::new()
                .modes(view.mode_state())
                .config_options(view.config_options())
                .meta(turns)
        }))
    }

    async fn fork_session(
        &self,
        request: ForkSessionRequest,
        cx: AgentContext,
    ) -> Result<ForkSessionResponse, Error> {
        let directories = (request.cwd, request.additional_directories);
        let session = self
            .open_session(&cx, OpenMethod::Fork(request.session_id), directories, &request.mcp_servers)
            .await?;
        Ok(session.with_config_view(|view| {
            ForkSessionResponse::new(session.id().clone())
                .modes(view.mode_state())
                .config_options(view.config_options())
        }))
    }

    async fn list_sessions(
        &self,
        request: ListSessionsRequest,
        _: AgentContext,
    ) -> Result<ListSessionsResponse, Error> {
        let query = SessionQuery { cwd: request.cwd, cursor: request.cursor, page_size: SESSIONS_PER_PAGE };
        let page = self.resources.store.list(query).await.map_err(RpcError::from)?;
        let session_info = |meta: SessionMeta| {
            let mut info = SessionInfo::new(meta.id, meta.cwd).updated_at(format_iso8601(meta.updated_at));
            info.additional_directories = meta.additional_directories;
            info.title = meta.title;
            info
        };
        let sessions = page.sessions.into_iter().map(session_info).collect();
        let mut response = ListSessionsResponse::new(sessions);
        response.next_cursor = page.next_cursor;
        Ok(response)
    }

    async fn close_session(
        &self,
        request: CloseSessionRequest,
        _: AgentContext,
    ) -> Result<CloseSessionResponse, Error> {
        self.find_session(&request.session_id)?;
        self.close_and_forget(&request.session_id).await;
        Ok(CloseSessionResponse::new())
    }

    async fn delete_session(
        &self,
        request: DeleteSessionRequest,
        _: AgentContext,
    ) -> Result<DeleteSessionResponse, Error> {
        self.close_and_forget(&request.session_id).await;
        self.resources.store.delete(&request.session_id).await.map_err(RpcError::from)?;
        Ok(DeleteSessionResponse::new())
    }

    async fn set_session_mode(
        &self,
        request: SetSessionModeRequest,
        _: AgentContext,
    ) -> Result<SetSessionModeResponse, Error> {
        let session = self.find_session(&request.session_id)?;
        let change =
            session.with_config_view(|view| view.parse_mode(&request.mode_id.0)).map_err(RpcError::from)?;
        session.apply_config_change(change).await?;
        Ok(SetSessionModeResponse::new())
    }

    async fn set_session_model(
        &self,
        request: SetSessionModelRequest,
        _: AgentContext,
    ) -> Result<SetSessionModelResponse, Error> {
        let session = self.find_session(&request.session_id)?;
        let change =
            session.with_config_view(|view| view.parse_model(&request.model_id)).map_err(RpcError::from)?;
        session.apply_config_change(change).await?;
        Ok(SetSessionModelResponse {})
    }

    async fn set_session_config_option(
        &self,
        request: SetSessionConfigOptionRequest,
        _: AgentContext,
    ) -> Result<SetSessionConfigOptionResponse, Error> {
        let session = self.find_session(&request.session_id)?;
        let change = session.with_config_view(|view| view.parse_option(&request.config_id.0, &request.value));
        session.apply_config_change(change.map_err(RpcError::from)?).await?;
        Ok(SetSessionConfigOptionResponse::new(session.with_config_view(|view| view.config_options())))
    }

    async fn prompt(&self, request: PromptRequest, cx: AgentContext) -> Result<PromptResponse, Error> {
        let session = self.find_session(&request.session_id)?;
        Ok(session.prompt(request.prompt, cx.cancel_signal()).await?)
    }

    async fn cancel(&self, notification: bowline_protocol::schema::v1::CancelNotification, _: ClientHandle) {
        // The wire layer cancels the turns themselves.
        self.log_line(format!("session {}: cancelled", notification.session_id.0));
    }

    async fn mcp_notification(&self, notification: MessageMcpNotification, _: ClientHandle) {
        let server = notification.server_id.clone();
        if !self.mcp_notifications.route(notification) {
            self.log_line(format!(
                "the MCP server {} of the client tells of a request that there is not",
                server.0
            ));
        }
    }
}
