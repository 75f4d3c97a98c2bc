//! Opening sessions: new ones, and those that were there before.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bowline_mcp::client::{self as mcp, OverAcp, ServerSpec, Servers, SpecError};
use bowline_state::capabilities::ClientMethod;
use bowline_state::conversation::{Thinking, ToolSpec};
use bowline_state::failure::Failure;
use bowline_state::schema::v1::{McpServer, SessionId, SessionUpdate};
use bowline_state::transcript;
use bowline_wire::ClientHandle;
use bowline_wire::service::CancelSignal;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::servers::Source;
use super::unavailable::Unavailable;
use super::{Choice, MAX_WAITING_PROMPTS, Session, Talk};
use crate::instructions::{self, Instructions};
use crate::keys::Keyring;
use crate::model::catalogue::Models;
use crate::model::offline::NAME as OFFLINE;
use crate::model::provider::Provider;
use crate::model::{Model, ModelError, ModelInfo};
use crate::runtime::{self, Runtimes};
use crate::settings::Settings;
use crate::store::{Meta, SessionLease, SessionStore, StoreError, Stored, new_session_id};
use crate::system_prompt::{self, Facts, Length, Server};
use crate::tools::{ToolParts, Toolbox};
use bowline_workspace::clock::{iso8601, now};

/// What all sessions of all connections share.
pub(crate) struct Shared {
    pub(crate) settings: Arc<Settings>,
    pub(crate) models: Models,
    pub(crate) keys: Keyring,
    pub(crate) store: Arc<dyn SessionStore>,
    // Whether the user has chosen to work without a key.
    offline: AtomicBool,
    // Whether the user has logged out: keys are not used then.
    signed_out: AtomicBool,
}

impl Shared {
    pub(crate) fn new(
        settings: Settings,
        models: Models,
        keys: Keyring,
        store: Arc<dyn SessionStore>,
    ) -> Self {
        if let Some(problem) = keys.problem() {
            settings.log.line(problem.to_string());
        }
        Self {
            settings: Arc::new(settings),
            models,
            keys,
            store,
            offline: AtomicBool::new(false),
            signed_out: AtomicBool::new(false),
        }
    }

    /// Lets new sessions begin with the offline model, or not.
    pub(crate) fn prefer_offline(&self, offline: bool) {
        self.offline.store(offline, Ordering::Relaxed);
    }

    /// Lets keys be used, or not.
    pub(crate) fn sign(&self, signed_in: bool) {
        self.signed_out.store(!signed_in, Ordering::Relaxed);
    }

    /// Opens a model for a session.
    ///
    /// # Errors
    /// Returns why it cannot be used.
    pub(crate) fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        self.unlocked(name)?;
        self.models.open(name)
    }

    /// Says whether a model that a session has may still be asked: the user may have logged out since.
    ///
    /// # Errors
    /// Returns that there is no key.
    pub(crate) fn may_use(&self, info: &ModelInfo) -> Result<(), ModelError> {
        self.unlocked(&info.name)
    }

    fn unlocked(&self, name: &str) -> Result<(), ModelError> {
        match self.locked(name) {
            Some(provider) => Err(ModelError::NoKey {
                provider: provider.id().to_owned(),
                variable: provider.variable().to_owned(),
            }),
            None => Ok(()),
        }
    }

    /// Returns the models that a client can choose from.
    pub(crate) fn offered(&self) -> Vec<ModelInfo> {
        let mut offered = self.models.offered();
        offered.retain(|info| self.locked(&info.name).is_none());
        offered
    }

    /// Returns the provider of a model whose key may not be used, because the user has logged out.
    fn locked(&self, name: &str) -> Option<Provider> {
        let provider = Provider::of(name.split('/').next()?)?;
        let has_key = || provider.needs_key() || self.keys.key(provider).is_ok_and(|key| key.is_some());
        (self.signed_out.load(Ordering::Relaxed) && has_key()).then_some(provider)
    }
}

/// Where a session works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) cwd: PathBuf,
    pub(crate) additional: Vec<PathBuf>,
}

impl Place {
    /// Returns the place that a client names.
    ///
    /// # Errors
    /// Returns which path is not absolute.
    pub(crate) fn of(cwd: PathBuf, additional: Vec<PathBuf>, settings: &Settings) -> Result<Self, Failure> {
        let cwd = match &settings.relative_to {
            Some(own) if cwd.is_relative() => own.join(cwd).components().collect(),
            _ => cwd,
        };
        if let Some(relative) = std::iter::once(&cwd).chain(&additional).find(|path| path.is_relative()) {
            return Err(Failure::RelativePath { path: relative.display().to_string() });
        }
        Ok(Self { cwd, additional })
    }

    /// Checks that the directory of a new session is there. It may be elsewhere if the client serves its files, by itself or
    /// by an MCP server of its own.
    ///
    /// # Errors
    /// Returns that there is no such directory.
    pub(crate) async fn check(&self, client: &ClientHandle, servers: &[McpServer]) -> Result<(), Failure> {
        let is_elsewhere = client.check(ClientMethod::ReadTextFile).is_ok()
            || servers.iter().any(|server| matches!(server, McpServer::Acp(_)));
        let cwd = self.cwd.clone();
        // What cannot be looked at is not known to be missing.
        if is_elsewhere || spawn_blocking(move || cwd.is_dir()).await.unwrap_or(true) {
            return Ok(());
        }
        let cwd = self.cwd.display();
        let reason =
            format!("cwd {cwd} is no directory of this machine: open the session in one that exists");
        Err(Failure::InvalidParams { reason })
    }
}

/// How a session is opened.
pub(crate) enum How {
    /// As a new one.
    New,
    /// As it was, and its client is shown what was.
    Load(SessionId),
    /// As it was.
    Resume(SessionId),
    /// As a copy of another.
    Fork(SessionId),
}

/// A session that was opened, and what its client was shown before.
pub(crate) struct Opened {
    pub(crate) session: Session,
    pub(crate) history: Vec<SessionUpdate>,
}

impl Session {
    /// Opens a session.
    ///
    /// # Errors
    /// Returns why it cannot be used.
    pub(crate) async fn open(
        shared: &Arc<Shared>,
        client: &ClientHandle,
        how: How,
        place: Place,
        (servers, over_acp): (&[McpServer], OverAcp),
    ) -> Result<Opened, Failure> {
        let (specs, refused) = specs(servers);
        let (id, lease, choice, talk, history) = match how {
            How::New => {
                let choice = first_choice(shared)?;
                let id = new_session_id();
                let lease = shared.store.create(meta(&id, &place, &choice)).await?;
                (id, lease, choice, Talk::default(), Vec::new())
            }
            How::Load(id) | How::Resume(id) => {
                let (lease, known) = shared.store.claim(&id).await?;
                let Place { cwd, additional } = place.clone();
                lease.set_meta(Box::new(move |meta| (meta.cwd, meta.additional) = (cwd, additional))).await?;
                again(shared, id, lease, known)
            }
            How::Fork(from) => {
                let known = shared.store.read(&from).await?;
                let id = new_session_id();
                let fresh = Meta::new(id.clone(), place.cwd.clone());
                let copy = Meta {
                    id: fresh.id,
                    cwd: fresh.cwd,
                    additional: place.additional.clone(),
                    created: fresh.created,
                    updated: fresh.updated,
                    ..known.meta
                };
                let (lease, known) = shared.store.fork(&from, copy).await?;
                again(shared, id, lease, known)
            }
        };
        let text = |path: &PathBuf| path.display().to_string();
        let more: Vec<String> = place.additional.iter().map(text).collect();
        let runtimes =
            Runtimes::new(client.clone(), id.clone(), &text(&place.cwd), &more, shared.settings.clone())?;
        let mut servers = mcp::Settings::like(&shared.settings.terminals, &place.cwd);
        servers.over_acp = Some(over_acp);
        let servers = Arc::new(Servers::connect(specs, servers).and_refused(refused));
        let source = Arc::new(Source(servers.clone()));
        let toolbox = Toolbox::new(ToolParts { runtimes, mcp: Some(source) });
        toolbox.permissions().set_mode(choice.mode);
        let session = Self {
            id,
            place,
            shared: shared.clone(),
            client: client.clone(),
            toolbox,
            servers,
            lease: Mutex::new(Some(Arc::new(lease))),
            choice: Mutex::new(choice),
            instructions: Mutex::default(),
            talk: tokio::sync::Mutex::new(talk),
            prompts: Semaphore::new(MAX_WAITING_PROMPTS + 1),
            closed: CancelSignal::new(),
            notes: Mutex::default(),
        };
        for line in session.toolbox.runtimes().describe() {
            session.log(&line);
        }
        Ok(Opened { session, history })
    }
}

fn again(
    shared: &Shared,
    id: SessionId,
    lease: Box<dyn SessionLease>,
    known: Stored,
) -> (SessionId, Box<dyn SessionLease>, Choice, Talk, Vec<SessionUpdate>) {
    let Stored { meta, updates, messages, dropped } = known;
    if dropped > 0 {
        shared.settings.log.line(format!("session {}: {dropped} updates are not kept any more", id.0));
    }
    let messages = transcript::mend(messages);
    let talk = Talk { messages, turn: meta.turns, total: meta.usage, cost: meta.cost, ..Talk::default() };
    // A model that cannot be used any more says so when it is asked; the session can be read and another chosen.
    let named = meta.model.map_or_else(|| shared.models.default_name(), Ok);
    let name = named.clone().unwrap_or_else(|_| OFFLINE.to_owned());
    let model = named.and_then(|name| shared.model(&name));
    let model = model.unwrap_or_else(|error| Arc::new(Unavailable::new(name, error)) as Arc<dyn Model>);
    // What was chosen once does not go beyond what the agent is started with.
    let mode = meta.mode.min(shared.settings.mode);
    let choice = Choice { mode, model, thinking: meta.thinking, title: meta.title };
    (id, lease, choice, talk, transcript::replay(updates))
}

fn first_choice(shared: &Shared) -> Result<Choice, Failure> {
    let name = match &shared.settings.model {
        _ if shared.offline.load(Ordering::Relaxed) => OFFLINE.to_owned(),
        Some(name) => name.clone(),
        None => shared.models.default_name().map_err(refused)?,
    };
    let model = shared.model(&name).map_err(refused)?;
    Ok(Choice { mode: shared.settings.mode, model, thinking: Thinking::default(), title: None })
}

fn meta(id: &SessionId, place: &Place, choice: &Choice) -> Meta {
    Meta {
        additional: place.additional.clone(),
        mode: choice.mode,
        model: Some(choice.model.info().name.clone()),
        thinking: choice.thinking,
        ..Meta::new(id.clone(), place.cwd.clone())
    }
}

/// Returns the servers that a client names; those that cannot be connected to as they are given with the reason.
fn specs(servers: &[McpServer]) -> (Vec<ServerSpec>, Vec<(String, SpecError)>) {
    let (mut specs, mut refused) = (Vec::new(), Vec::new());
    for server in servers {
        match ServerSpec::try_from(server) {
            Ok(spec) => specs.push(spec),
            Err(why) => refused.push((name_of(server), why)),
        }
    }
    (specs, refused)
}

fn name_of(server: &McpServer) -> String {
    match server {
        McpServer::Stdio(stdio) => stdio.name.clone(),
        McpServer::Http(http) => http.name.clone(),
        McpServer::Sse(sse) => sse.name.clone(),
        McpServer::Acp(acp) => acp.name.clone(),
        // A later protocol may know more ways.
        _ => "an MCP server".to_owned(),
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotFound(session_id) => Self::SessionNotFound { session_id },
            busy @ StoreError::Busy { .. } => Self::InvalidRequest { reason: busy.to_string() },
            cursor @ StoreError::BadCursor => Self::InvalidParams { reason: cursor.to_string() },
            error => Self::Internal { reason: error.to_string() },
        }
    }
}

/// Returns why a model cannot be used, as a client is told.
pub(crate) fn refused(error: ModelError) -> Failure {
    match error {
        ModelError::NoKey { .. } | ModelError::Keys(_) | ModelError::Unauthorized { .. } => {
            auth_required(&error.to_string())
        }
        error => Failure::InvalidParams { reason: error.to_string() },
    }
}

/// Returns that the user has to see to a key first, and how.
pub(crate) fn auth_required(why: &str) -> Failure {
    Failure::AuthRequired { why: Some(why.to_owned()) }
}

/// Returns what the project and the user want models to know.
pub(super) async fn instructions(session: &Session) -> Instructions {
    let directories: Vec<String> =
        session.place.directories().map(|path| path.display().to_string()).collect();
    let read =
        instructions::read(&session.toolbox.unasked(), &directories, &session.settings().instructions).await;
    for note in &read.notes {
        session.log(note);
    }
    read
}

/// Returns what a model is told first.
pub(super) fn system_prompt(
    session: &Session,
    choice: &Choice,
    tools: &[ToolSpec],
    instructions: &Instructions,
) -> String {
    let server = |server| match server {
        runtime::Server::Client | runtime::Server::Workspace => Server::Editor,
        runtime::Server::Local => Server::Here,
    };
    let served = session.toolbox.runtimes().choice();
    let more: Vec<String> = session.place.additional.iter().map(|path| path.display().to_string()).collect();
    let today = iso8601(now());
    system_prompt::system_prompt(&Facts {
        cwd: &session.place.cwd.display().to_string(),
        more: &more,
        platform: std::env::consts::OS,
        date: today.split('T').next().unwrap_or_default(),
        tools,
        tool_set: session.settings().tools,
        files: server(served.read),
        commands: session.settings().shell.then(|| server(served.terminal)),
        mode: choice.mode,
        instructions: &instructions.texts,
        length: Length::of_model(choice.model.info()),
    })
}
