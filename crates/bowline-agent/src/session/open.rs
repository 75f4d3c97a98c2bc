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
use bowline_task::spawn_blocking;
use bowline_wire::ClientHandle;
use bowline_wire::service::CancelSignal;
use tokio::sync::Semaphore;

use super::mcp_servers::SessionMcpSource;
use super::unavailable_model::UnavailableModel;
use super::{AgentSession, MAX_WAITING_PROMPTS, SessionConfig, SessionConversation};
use crate::agent_options::AgentOptions;
use crate::model::catalogue::ModelCatalogue;
use crate::model::keys::Keyring;
use crate::model::offline::NAME as OFFLINE;
use crate::model::provider::Provider;
use crate::model::{Model, ModelError, ModelInfo};
use crate::prompt::instructions::{self, Instructions};
use crate::prompt::system::{self, PromptLength, SystemPromptContext, ToolMachine};
use crate::runtime::{self, SessionRuntime};
use crate::store::{SessionLease, SessionMeta, SessionStore, StoreError, StoredSession, new_session_id};
use crate::tools::Toolbox;
use bowline_storage::clock::{format_iso8601, now};

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
        options: AgentOptions,
        models: ModelCatalogue,
        keys: Keyring,
        store: Arc<dyn SessionStore>,
    ) -> Self {
        if let Some(problem) = keys.problem() {
            options.log.write_line(problem.to_string());
        }
        Self {
            options: Arc::new(options),
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
        let mut models = self.models.offered_models();
        models.retain(|info| self.locked_provider(&info.name).is_none());
        models
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
        options: &AgentOptions,
    ) -> Result<Self, RpcError> {
        let cwd = match &options.relative_cwd_base {
            Some(base) if cwd.is_relative() => base.join(cwd).components().collect(),
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
        let is_remote = client.check(ClientMethod::ReadTextFile).is_ok()
            || servers.iter().any(|server| matches!(server, McpServer::Acp(_)));
        let cwd = self.cwd.clone();
        // A directory that cannot be checked is not known to be missing.
        if is_remote || spawn_blocking(move || cwd.is_dir()).await.unwrap_or(true) {
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
        resources: &Arc<AgentResources>,
        client: &ClientHandle,
        method: OpenMethod,
        directories: SessionDirectories,
        (servers, over_acp): (&[McpServer], McpOverAcp),
    ) -> Result<OpenedSession, RpcError> {
        let (specs, rejected) = server_specs(servers);
        let (id, lease, config, conversation, history) = match method {
            OpenMethod::New => {
                let config = initial_config(resources)?;
                let id = new_session_id();
                let lease = resources.store.create(initial_meta(&id, &directories, &config)).await?;
                (id, lease, config, SessionConversation::default(), Vec::new())
            }
            OpenMethod::Load(id) | OpenMethod::Resume(id) => {
                let (lease, stored) = resources.store.claim(&id).await?;
                let SessionDirectories { cwd, additional_directories: additional } = directories.clone();
                lease
                    .update_meta(Box::new(move |meta| {
                        (meta.cwd, meta.additional_directories) = (cwd, additional)
                    }))
                    .await?;
                restore_session(resources, id, lease, stored)
            }
            OpenMethod::Fork(parent) => {
                let stored = resources.store.read(&parent).await?;
                let id = new_session_id();
                let fresh = SessionMeta::new(id.clone(), directories.cwd.clone());
                let copy = SessionMeta {
                    id: fresh.id,
                    cwd: fresh.cwd,
                    additional_directories: directories.additional_directories.clone(),
                    created_at: fresh.created_at,
                    updated_at: fresh.updated_at,
                    ..stored.meta
                };
                let (lease, stored) = resources.store.fork(&parent, copy).await?;
                restore_session(resources, id, lease, stored)
            }
        };
        let text = |path: &PathBuf| path.display().to_string();
        let additional_directories: Vec<String> =
            directories.additional_directories.iter().map(text).collect();
        let runtime = SessionRuntime::new(
            client.clone(),
            id.clone(),
            &text(&directories.cwd),
            &additional_directories,
            resources.options.clone(),
        )?;
        let mut servers =
            mcp::McpClientOptions::from_terminal_options(&resources.options.terminals, &directories.cwd);
        servers.over_acp = Some(over_acp);
        let servers = Arc::new(McpServers::connect(specs, servers).with_refused(rejected));
        let source = Arc::new(SessionMcpSource(servers.clone()));
        let toolbox = Toolbox::new(runtime, Some(source));
        toolbox.permissions().set_mode(config.mode);
        let session = Self {
            id,
            directories,
            resources: resources.clone(),
            client: client.clone(),
            toolbox,
            mcp_servers: servers,
            lease: Mutex::new(Some(Arc::new(lease))),
            config: Mutex::new(config),
            instructions: Mutex::default(),
            conversation: tokio::sync::Mutex::new(conversation),
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
    resources: &AgentResources,
    id: SessionId,
    lease: Box<dyn SessionLease>,
    stored: StoredSession,
) -> (SessionId, Box<dyn SessionLease>, SessionConfig, SessionConversation, Vec<SessionUpdate>) {
    let StoredSession { meta, updates, messages, dropped_updates: dropped } = stored;
    if dropped > 0 {
        resources
            .options
            .log
            .write_line(format!("session {}: {dropped} updates are not kept any more", id.0));
    }
    let messages = transcript::repair_conversation(messages);
    let conversation = SessionConversation {
        messages,
        turn: meta.turns,
        total_usage: meta.usage,
        cost: meta.cost,
        ..SessionConversation::default()
    };
    // A model that is no longer available fails when it is used; the session can be read, and another model chosen.
    let model_name = meta.model.map_or_else(|| resources.models.default_name(), Ok);
    let name = model_name.clone().unwrap_or_else(|_| OFFLINE.to_owned());
    let model = model_name.and_then(|name| resources.open_model(&name));
    let model = model.unwrap_or_else(|error| Arc::new(UnavailableModel::new(name, error)) as Arc<dyn Model>);
    // A stored mode must not exceed the mode that the agent is started with.
    let mode = meta.mode.min(resources.options.mode);
    let config = SessionConfig { mode, model, thinking: meta.thinking, title: meta.title };
    (id, lease, config, conversation, transcript::replay(updates))
}

fn initial_config(resources: &AgentResources) -> Result<SessionConfig, RpcError> {
    let name = match &resources.options.model {
        _ if resources.is_offline_preferred.load(Ordering::Relaxed) => OFFLINE.to_owned(),
        Some(name) => name.clone(),
        None => resources.models.default_name().map_err(model_failure)?,
    };
    let model = resources.open_model(&name).map_err(model_failure)?;
    Ok(SessionConfig { mode: resources.options.mode, model, thinking: ThinkingLevel::default(), title: None })
}

fn initial_meta(id: &SessionId, directories: &SessionDirectories, config: &SessionConfig) -> SessionMeta {
    SessionMeta {
        additional_directories: directories.additional_directories.clone(),
        mode: config.mode,
        model: Some(config.model.info().name.clone()),
        thinking: config.thinking,
        ..SessionMeta::new(id.clone(), directories.cwd.clone())
    }
}

/// Returns the servers that a client names, and those that cannot be used with the reason.
fn server_specs(servers: &[McpServer]) -> (Vec<ServerSpec>, Vec<(String, ServerSpecError)>) {
    let (mut specs, mut rejected) = (Vec::new(), Vec::new());
    for server in servers {
        match ServerSpec::try_from(server) {
            Ok(spec) => specs.push(spec),
            Err(error) => rejected.push((server_name(server), error)),
        }
    }
    (specs, rejected)
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
pub(crate) fn auth_required(reason: &str) -> RpcError {
    RpcError::AuthRequired { reason: Some(reason.to_owned()) }
}

/// Loads the instructions of the project and the user.
pub(super) async fn load_instructions(session: &AgentSession) -> Instructions {
    let directories: Vec<String> = session.directories.all().map(|path| path.display().to_string()).collect();
    let instructions = instructions::read_instructions(
        &session.toolbox.files_by_rules(),
        &directories,
        &session.options().instructions,
    )
    .await;
    for note in &instructions.notes {
        session.log_line(note);
    }
    instructions
}

/// Builds the session's system prompt.
pub(super) fn build_system_prompt(
    session: &AgentSession,
    config: &SessionConfig,
    tools: &[ToolSpec],
    instructions: &Instructions,
) -> String {
    let server = |server| match server {
        runtime::Backend::Client | runtime::Backend::Workspace => ToolMachine::Editor,
        runtime::Backend::Local => ToolMachine::Local,
    };
    let served = session.toolbox.runtime().backend_choice();
    let additional_directories: Vec<String> =
        session.directories.additional_directories.iter().map(|path| path.display().to_string()).collect();
    let today = format_iso8601(now());
    system::build_system_prompt(&SystemPromptContext {
        cwd: &session.directories.cwd.display().to_string(),
        additional_directories: &additional_directories,
        platform: std::env::consts::OS,
        date: today.split('T').next().unwrap_or_default(),
        tools,
        tool_set: session.options().tool_set,
        file_machine: server(served.read),
        command_machine: session.options().is_shell_enabled.then(|| server(served.terminal)),
        mode: config.mode,
        instructions: &instructions.files,
        length: PromptLength::for_model(config.model.info()),
    })
}
