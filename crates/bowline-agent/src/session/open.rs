//! Opening sessions: new, loaded, resumed and forked.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bowline_conversation::conversation::{ThinkingLevel, ToolSpec};
use bowline_conversation::transcript;
use bowline_mcp::client::{self as mcp, McpOverAcp, McpServers, ServerSpec, ServerSpecError};
use bowline_protocol::capabilities::ClientMethod;
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::{McpServer, SessionId, SessionUpdate};
use bowline_wire::ClientHandle;
use bowline_wire::service::CancelSignal;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::mcp_servers::SessionMcpSource;
use super::unavailable_model::UnavailableModel;
use super::{AgentSession, MAX_WAITING_PROMPTS, SessionConfig, SessionConversation};
use crate::agent_options::AgentOptions;
use crate::instructions::{self, Instructions};
use crate::keys::Keyring;
use crate::model::catalogue::ModelCatalogue;
use crate::model::offline::NAME as OFFLINE;
use crate::model::provider::Provider;
use crate::model::{Model, ModelError, ModelInfo};
use crate::runtime::{self, SessionRuntime};
use crate::store::{SessionLease, SessionMeta, SessionStore, StoreError, StoredSession, new_session_id};
use crate::system_prompt::{self, PromptLength, SystemPromptContext, ToolMachine};
use crate::tools::{Toolbox, ToolboxParts};
use bowline_workspace::clock::{format_iso8601, now};

/// The resources that all sessions share.
pub(crate) struct AgentResources {
    pub(crate) options: Arc<AgentOptions>,
    pub(crate) models: ModelCatalogue,
    pub(crate) keys: Keyring,
    pub(crate) store: Arc<dyn SessionStore>,
    // Whether the user has chosen to work without an API key.
    is_offline_preferred: AtomicBool,
    // Whether the user has logged out: keys are not used then.
    is_signed_out: AtomicBool,
}

impl AgentResources {
    pub(crate) fn new(
        settings: AgentOptions,
        models: ModelCatalogue,
        keys: Keyring,
        store: Arc<dyn SessionStore>,
    ) -> Self {
        if let Some(problem) = keys.problem() {
            settings.log.write_line(problem.to_string());
        }
        Self {
            options: Arc::new(settings),
            models,
            keys,
            store,
            is_offline_preferred: AtomicBool::new(false),
            is_signed_out: AtomicBool::new(false),
        }
    }

    /// Sets whether new sessions begin with the offline model.
    pub(crate) fn prefer_offline(&self, offline: bool) {
        self.is_offline_preferred.store(offline, Ordering::Relaxed);
    }

    /// Sets whether keys may be used.
    pub(crate) fn set_signed_in(&self, signed_in: bool) {
        self.is_signed_out.store(!signed_in, Ordering::Relaxed);
    }

    /// Opens a model for a session.
    ///
    /// # Errors
    /// Fails if it cannot be used.
    pub(crate) fn open_model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        self.check_key_usable(name)?;
        self.models.open(name)
    }

    /// Checks that a session's model may still be used: the user may have logged out since.
    ///
    /// # Errors
    /// Fails if it needs an API key that may not be used.
    pub(crate) fn check_model_usable(&self, info: &ModelInfo) -> Result<(), ModelError> {
        self.check_key_usable(&info.name)
    }

    fn check_key_usable(&self, name: &str) -> Result<(), ModelError> {
        match self.locked_provider(name) {
            Some(provider) => Err(ModelError::NoKey {
                provider: provider.id().to_owned(),
                variable: provider.key_variable().to_owned(),
            }),
            None => Ok(()),
        }
    }

    /// Returns the models that a client can choose.
    pub(crate) fn offered_models(&self) -> Vec<ModelInfo> {
        let mut offered = self.models.offered_models();
        offered.retain(|info| self.locked_provider(&info.name).is_none());
        offered
    }

    /// Returns the provider of a model whose key may not be used, because the user has logged out.
    fn locked_provider(&self, name: &str) -> Option<Provider> {
        let provider = Provider::from_id(name.split('/').next()?)?;
        let has_key = || provider.needs_key() || self.keys.key(provider).is_ok_and(|key| key.is_some());
        (self.is_signed_out.load(Ordering::Relaxed) && has_key()).then_some(provider)
    }
}

/// The directories of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionDirectories {
    pub(crate) cwd: PathBuf,
    pub(crate) additional_directories: Vec<PathBuf>,
}

impl SessionDirectories {
    /// Returns the directories that a client names.
    ///
    /// # Errors
    /// Fails if a path is not absolute.
    pub(crate) fn from_request(
        cwd: PathBuf,
        additional: Vec<PathBuf>,
        settings: &AgentOptions,
    ) -> Result<Self, RpcError> {
        let cwd = match &settings.relative_cwd_base {
            Some(own) if cwd.is_relative() => own.join(cwd).components().collect(),
            _ => cwd,
        };
        if let Some(relative) = std::iter::once(&cwd).chain(&additional).find(|path| path.is_relative()) {
            return Err(RpcError::RelativePath { path: relative.display().to_string() });
        }
        Ok(Self { cwd, additional_directories: additional })
    }

    /// Checks that the directory of a new session exists. It may be on another machine if the client serves its files,
    /// by itself or through an MCP server of its own.
    ///
    /// # Errors
    /// Fails if the directory does not exist.
    pub(crate) async fn check_exists(
        &self,
        client: &ClientHandle,
        servers: &[McpServer],
    ) -> Result<(), RpcError> {
        let is_elsewhere = client.check(ClientMethod::ReadTextFile).is_ok()
            || servers.iter().any(|server| matches!(server, McpServer::Acp(_)));
        let cwd = self.cwd.clone();
        // A directory that cannot be checked is not known to be missing.
        if is_elsewhere || spawn_blocking(move || cwd.is_dir()).await.unwrap_or(true) {
            return Ok(());
        }
        let cwd = self.cwd.display();
        let reason =
            format!("cwd {cwd} is no directory of this machine: open the session in one that exists");
        Err(RpcError::InvalidParams { reason })
    }
}

/// How to open a session.
pub(crate) enum OpenMethod {
    /// Create a new one.
    New,
    /// Restore it, and replay its history to the client.
    Load(SessionId),
    /// Restore it without a replay.
    Resume(SessionId),
    /// Copy another one.
    Fork(SessionId),
}

/// An opened session, and its history.
pub(crate) struct OpenedSession {
    pub(crate) session: AgentSession,
    pub(crate) history: Vec<SessionUpdate>,
}

impl AgentSession {
    /// Opens a session.
    ///
    /// # Errors
    /// Fails if the session cannot be opened.
    pub(crate) async fn open(
        shared: &Arc<AgentResources>,
        client: &ClientHandle,
        how: OpenMethod,
        place: SessionDirectories,
        (servers, over_acp): (&[McpServer], McpOverAcp),
    ) -> Result<OpenedSession, RpcError> {
        let (specs, refused) = server_specs(servers);
        let (id, lease, choice, talk, history) = match how {
            OpenMethod::New => {
                let choice = initial_config(shared)?;
                let id = new_session_id();
                let lease = shared.store.create(initial_meta(&id, &place, &choice)).await?;
                (id, lease, choice, SessionConversation::default(), Vec::new())
            }
            OpenMethod::Load(id) | OpenMethod::Resume(id) => {
                let (lease, known) = shared.store.claim(&id).await?;
                let SessionDirectories { cwd, additional_directories: additional } = place.clone();
                lease
                    .update_meta(Box::new(move |meta| {
                        (meta.cwd, meta.additional_directories) = (cwd, additional)
                    }))
                    .await?;
                restore_session(shared, id, lease, known)
            }
            OpenMethod::Fork(from) => {
                let known = shared.store.read(&from).await?;
                let id = new_session_id();
                let fresh = SessionMeta::new(id.clone(), place.cwd.clone());
                let copy = SessionMeta {
                    id: fresh.id,
                    cwd: fresh.cwd,
                    additional_directories: place.additional_directories.clone(),
                    created_at: fresh.created_at,
                    updated_at: fresh.updated_at,
                    ..known.meta
                };
                let (lease, known) = shared.store.fork(&from, copy).await?;
                restore_session(shared, id, lease, known)
            }
        };
        let text = |path: &PathBuf| path.display().to_string();
        let more: Vec<String> = place.additional_directories.iter().map(text).collect();
        let runtimes = SessionRuntime::new(
            client.clone(),
            id.clone(),
            &text(&place.cwd),
            &more,
            shared.options.clone(),
        )?;
        let mut servers = mcp::McpClientOptions::from_terminal_options(&shared.options.terminals, &place.cwd);
        servers.over_acp = Some(over_acp);
        let servers = Arc::new(McpServers::connect(specs, servers).with_refused(refused));
        let source = Arc::new(SessionMcpSource(servers.clone()));
        let toolbox = Toolbox::new(ToolboxParts { runtime: runtimes, mcp: Some(source) });
        toolbox.permissions().set_mode(choice.mode);
        let session = Self {
            id,
            directories: place,
            resources: shared.clone(),
            client: client.clone(),
            toolbox,
            mcp_servers: servers,
            lease: Mutex::new(Some(Arc::new(lease))),
            config: Mutex::new(choice),
            instructions: Mutex::default(),
            conversation: tokio::sync::Mutex::new(talk),
            prompt_slots: Semaphore::new(MAX_WAITING_PROMPTS + 1),
            closed: CancelSignal::new(),
            notes: Mutex::default(),
        };
        for line in session.toolbox.runtime().describe() {
            session.log_line(&line);
        }
        Ok(OpenedSession { session, history })
    }
}

fn restore_session(
    shared: &AgentResources,
    id: SessionId,
    lease: Box<dyn SessionLease>,
    known: StoredSession,
) -> (SessionId, Box<dyn SessionLease>, SessionConfig, SessionConversation, Vec<SessionUpdate>) {
    let StoredSession { meta, updates, messages, dropped_updates: dropped } = known;
    if dropped > 0 {
        shared.options.log.write_line(format!("session {}: {dropped} updates are not kept any more", id.0));
    }
    let messages = transcript::repair_conversation(messages);
    let talk = SessionConversation {
        messages,
        turn: meta.turns,
        total_usage: meta.usage,
        cost: meta.cost,
        ..SessionConversation::default()
    };
    // A model that is no longer available fails when it is used; the session can be read, and another model chosen.
    let named = meta.model.map_or_else(|| shared.models.default_name(), Ok);
    let name = named.clone().unwrap_or_else(|_| OFFLINE.to_owned());
    let model = named.and_then(|name| shared.open_model(&name));
    let model = model.unwrap_or_else(|error| Arc::new(UnavailableModel::new(name, error)) as Arc<dyn Model>);
    // A stored mode must not exceed the mode that the agent is started with.
    let mode = meta.mode.min(shared.options.mode);
    let choice = SessionConfig { mode, model, thinking: meta.thinking, title: meta.title };
    (id, lease, choice, talk, transcript::replay(updates))
}

fn initial_config(shared: &AgentResources) -> Result<SessionConfig, RpcError> {
    let name = match &shared.options.model {
        _ if shared.is_offline_preferred.load(Ordering::Relaxed) => OFFLINE.to_owned(),
        Some(name) => name.clone(),
        None => shared.models.default_name().map_err(model_failure)?,
    };
    let model = shared.open_model(&name).map_err(model_failure)?;
    Ok(SessionConfig { mode: shared.options.mode, model, thinking: ThinkingLevel::default(), title: None })
}

fn initial_meta(id: &SessionId, place: &SessionDirectories, choice: &SessionConfig) -> SessionMeta {
    SessionMeta {
        additional_directories: place.additional_directories.clone(),
        mode: choice.mode,
        model: Some(choice.model.info().name.clone()),
        thinking: choice.thinking,
        ..SessionMeta::new(id.clone(), place.cwd.clone())
    }
}

/// Returns the servers that a client names, and those that cannot be used with the reason.
fn server_specs(servers: &[McpServer]) -> (Vec<ServerSpec>, Vec<(String, ServerSpecError)>) {
    let (mut specs, mut refused) = (Vec::new(), Vec::new());
    for server in servers {
        match ServerSpec::try_from(server) {
            Ok(spec) => specs.push(spec),
            Err(why) => refused.push((server_name(server), why)),
        }
    }
    (specs, refused)
}

fn server_name(server: &McpServer) -> String {
    match server {
        McpServer::Stdio(stdio) => stdio.name.clone(),
        McpServer::Http(http) => http.name.clone(),
        McpServer::Sse(sse) => sse.name.clone(),
        McpServer::Acp(acp) => acp.name.clone(),
        // A later protocol may have more transports.
        _ => "an MCP server".to_owned(),
    }
}

impl From<StoreError> for RpcError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotFound(session_id) => Self::SessionNotFound { session_id },
            busy @ StoreError::Busy { .. } => Self::InvalidRequest { reason: busy.to_string() },
            cursor @ StoreError::BadCursor => Self::InvalidParams { reason: cursor.to_string() },
            error => Self::Internal { reason: error.to_string() },
        }
    }
}

/// Converts a model's error for the client.
pub(crate) fn model_failure(error: ModelError) -> RpcError {
    match error {
        ModelError::NoKey { .. } | ModelError::Keys(_) | ModelError::Unauthorized { .. } => {
            auth_required(&error.to_string())
        }
        error => RpcError::InvalidParams { reason: error.to_string() },
    }
}

/// Returns the error that asks the user for an API key.
pub(crate) fn auth_required(why: &str) -> RpcError {
    RpcError::AuthRequired { reason: Some(why.to_owned()) }
}

/// Loads the instructions of the project and the user.
pub(super) async fn load_instructions(session: &AgentSession) -> Instructions {
    let directories: Vec<String> = session.directories.all().map(|path| path.display().to_string()).collect();
    let read = instructions::read_instructions(
        &session.toolbox.files_by_rules(),
        &directories,
        &session.options().instructions,
    )
    .await;
    for note in &read.notes {
        session.log_line(note);
    }
    read
}

/// Builds the session's system prompt.
pub(super) fn build_system_prompt(
    session: &AgentSession,
    choice: &SessionConfig,
    tools: &[ToolSpec],
    instructions: &Instructions,
) -> String {
    let server = |server| match server {
        runtime::Backend::Client | runtime::Backend::Workspace => ToolMachine::Editor,
        runtime::Backend::Local => ToolMachine::Local,
    };
    let served = session.toolbox.runtime().backend_choice();
    let more: Vec<String> =
        session.directories.additional_directories.iter().map(|path| path.display().to_string()).collect();
    let today = format_iso8601(now());
    system_prompt::build_system_prompt(&SystemPromptContext {
        cwd: &session.directories.cwd.display().to_string(),
        additional_directories: &more,
        platform: std::env::consts::OS,
        date: today.split('T').next().unwrap_or_default(),
        tools,
        tool_set: session.options().tool_set,
        file_machine: server(served.read),
        command_machine: session.options().is_shell_enabled.then(|| server(served.terminal)),
        mode: choice.mode,
        instructions: &instructions.files,
        length: PromptLength::for_model(choice.model.info()),
    })
}
