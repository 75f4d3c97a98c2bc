//! The engine of a proxy: a host for each set of directories of the editor's sessions.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;
use bowline_history::foreign_files::ForeignFiles;
use bowline_host::{Host, HostError, HostOptions, HostPaths};
use bowline_policy::policy::Preset;
use bowline_protocol::relay::{Method, RelayedSession, SessionOpening};
use bowline_proxy::{BoxFuture, CallerSlot, Engine, EngineSession};
use bowline_text::display;
use bowline_workspace::roots::RootSpec;
use bowline_workspace::terminals::{self, SupervisorProgram};
use tokio::sync::OnceCell;

use super::permission::PermissionForwarder;
use super::session::LocalEngineSession;

/// The maximum number of hosts.
const MAX_HOSTS: usize = 64;

/// The options of the engine.
#[derive(Debug, Clone)]
pub(super) struct LocalEngineOptions {
    /// The user's directories, if known.
    pub(super) places: Option<HostPaths>,
    /// The preset that the command line sets for requests that no rule matches.
    pub(super) preset: Option<Preset>,
    /// The program that starts commands.
    pub(super) supervisor: SupervisorProgram,
    /// Files whose changes on disk are not attributed to the agent.
    pub(super) foreign_files: ForeignFiles,
    /// Whether changes on disk are observed.
    pub(super) is_observing: bool,
    /// The remote user for whom the agent works.
    pub(super) principal: Option<String>,
}

/// The engine of a proxy. Clones share their state.
#[derive(Clone)]
pub(super) struct LocalEngine {
    inner: Arc<Inner>,
}

type SessionDirectories = (PathBuf, Vec<PathBuf>);

struct Inner {
    options: LocalEngineOptions,
    permissions: Arc<PermissionForwarder>,
    // Invariant: at most `MAX_HOSTS`.
    hosts: Mutex<HashMap<SessionDirectories, Arc<OnceCell<Option<Host>>>>>,
    sessions: Mutex<Vec<Arc<LocalEngineSession>>>,
}

impl LocalEngine {
    pub(super) fn new(options: LocalEngineOptions, caller_slot: CallerSlot) -> Self {
        let (permissions, hosts, sessions) =
            (Arc::new(PermissionForwarder::new(caller_slot)), Mutex::default(), Mutex::default());
        Self { inner: Arc::new(Inner { options, permissions, hosts, sessions }) }
    }

    /// Ends every session, once the agent's last changes are recorded.
    pub(super) async fn end_sessions(&self) {
        let sessions = std::mem::take(&mut *self.sessions());
        for session in sessions {
            session.end().await;
        }
    }

    fn sessions(&self) -> MutexGuard<'_, Vec<Arc<LocalEngineSession>>> {
        self.inner.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the host of a session's directories. A failure to open it is logged once.
    async fn host_for(&self, opening: &SessionOpening) -> Option<Host> {
        let key = (opening.cwd.clone(), opening.additional_directories.clone());
        let cell = {
            let mut hosts = self.inner.hosts.lock().unwrap_or_else(PoisonError::into_inner);
            if hosts.len() >= MAX_HOSTS && !hosts.contains_key(&key) {
                return None;
            }
            hosts.entry(key).or_default().clone()
        };
        let open = || async {
            match self.open_host(&opening.cwd, &opening.additional_directories).await {
                Ok(host) => Some(host),
                Err(error) => {
                    log_to_stderr(&format!(
                        "{}: changes here are neither followed nor undone, and everything else is passed on: {error:#}",
                        opening.cwd.display()
                    ));
                    None
                }
            }
        };
        cell.get_or_init(open).await.clone()
    }

    async fn open_host(&self, cwd: &Path, additional_directories: &[PathBuf]) -> anyhow::Result<Host> {
        let LocalEngineOptions {
            places: paths,
            preset,
            supervisor,
            is_observing: observe,
            foreign_files,
            principal,
        } = self.inner.options.clone();
        let paths = paths.context("there is no place for the journal: set HOME")?;
        let mut terminals = terminals::TerminalOptions::with_environment(supervisor, std::env::vars_os());
        terminals.temp_directory = std::env::temp_dir();
        let mut settings = HostOptions::new(terminals);
        (settings.preset, settings.observe) = (preset, observe);
        settings.workspace.foreign_files = foreign_files;
        settings.principal = principal;
        settings.additional_roots =
            additional_directories.iter().map(|path| RootSpec::writable(path.to_string_lossy())).collect();
        let (cwd, permissions) = (cwd.to_owned(), self.inner.permissions.clone());
        let opened = bowline_task::spawn_blocking(move || {
            let project = cwd.canonicalize().context("the session's directory cannot be used")?;
            Host::open(&project, &paths, permissions, settings).map_err(|error: HostError| error.into())
        });
        opened.await.context("opening the workspace ended early")?
    }
}

/// Writes to stderr, which editors show as this program's log.
pub(super) fn log_to_stderr(text: &str) {
    writeln!(std::io::stderr(), "bowline: {}", display::escape_line(text, 1000)).ok();
}

impl Engine for LocalEngine {
    fn log(&self, line: &str) {
        log_to_stderr(line);
    }

    fn prepare(&self, opening: &SessionOpening) {
        let (engine, opening) = (self.clone(), opening.clone());
        tokio::spawn(async move { engine.host_for(&opening).await.map(drop) });
    }

    fn open_session(&self, opened: &RelayedSession) -> BoxFuture<'static, Option<Arc<dyn EngineSession>>> {
        let (engine, opened) = (self.clone(), opened.clone());
        Box::pin(async move {
            let host = engine.host_for(&opened.opening).await?;
            let is_old = matches!(opened.opening.method, Method::Load | Method::Resume);
            let session = match host.relayed_session(&opened.session, is_old, None).await {
                Ok(session) => session,
                Err(error) => {
                    log_to_stderr(&format!("session {}: {error}", opened.session.0));
                    return None;
                }
            };
            engine.inner.permissions.register(session.name(), &opened.session);
            let requested_cwd = opened.opening.cwd.to_string_lossy().into_owned();
            let engine_session = Arc::new(LocalEngineSession::new(
                session,
                host.workspace().clone(),
                requested_cwd,
                engine.inner.permissions.clone(),
            ));
            engine_session.start_scan();
            let mut sessions = engine.sessions();
            sessions.retain(|session| !session.is_over());
            sessions.push(engine_session.clone());
            Some(engine_session as Arc<dyn EngineSession>)
        })
    }
}
