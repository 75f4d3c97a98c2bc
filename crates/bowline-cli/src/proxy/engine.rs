//! The engine beside a proxy: a host for each directory that the editor's sessions have.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;
use bowline_host::{Host, HostError, Places, Settings};
use bowline_proxy::{BoxFuture, Engine, EngineSession, Line};
use bowline_state::display;
use bowline_state::foreign_files::ForeignFiles;
use bowline_state::policy::Preset;
use bowline_state::relay::{Method, Opened, Opening};
use bowline_workspace::roots::RootSpec;
use bowline_workspace::terminals::{self, Supervisor};
use tokio::sync::OnceCell;

use super::asking::Desk;
use super::session::Beside;

/// So many directories are looked after.
const MAX_HOSTS: usize = 64;

/// How the engine works.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// The user's own places, if they are known.
    pub(super) places: Option<Places>,
    /// What holds where no rule matches, if the command line says so.
    pub(super) preset: Option<Preset>,
    /// Who starts commands.
    pub(super) supervisor: Supervisor,
    /// Whose changes on disk are not the agent's.
    pub(super) foreign_files: ForeignFiles,
    /// Whether changes on disk are looked for.
    pub(super) observe: bool,
}

/// The engine beside a proxy. Clones are the same one.
#[derive(Clone)]
pub(super) struct LocalEngine {
    inner: Arc<Inner>,
}

type Directories = (PathBuf, Vec<PathBuf>);

struct Inner {
    plan: Plan,
    desk: Arc<Desk>,
    // Invariant: at most `MAX_HOSTS`.
    hosts: Mutex<HashMap<Directories, Arc<OnceCell<Option<Host>>>>>,
    sessions: Mutex<Vec<Arc<Beside>>>,
}

impl LocalEngine {
    pub(super) fn new(plan: Plan, line: Line) -> Self {
        let (desk, hosts, sessions) = (Arc::new(Desk::new(line)), Mutex::default(), Mutex::default());
        Self { inner: Arc::new(Inner { plan, desk, hosts, sessions }) }
    }

    /// Ends every session, once what the agent changed last is recorded.
    pub(super) async fn end(&self) {
        let sessions = std::mem::take(&mut *self.sessions());
        for session in sessions {
            session.end().await;
        }
    }

    fn sessions(&self) -> MutexGuard<'_, Vec<Arc<Beside>>> {
        self.inner.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the host of a session's directories. That there is none is said once.
    async fn host(&self, opening: &Opening) -> Option<Host> {
        let key = (opening.cwd.clone(), opening.more.clone());
        let cell = {
            let mut hosts = self.inner.hosts.lock().unwrap_or_else(PoisonError::into_inner);
            if hosts.len() >= MAX_HOSTS && !hosts.contains_key(&key) {
                return None;
            }
            hosts.entry(key).or_default().clone()
        };
        let open = || async {
            match self.open(&opening.cwd, &opening.more).await {
                Ok(host) => Some(host),
                Err(error) => {
                    say(&format!(
                        "{}: changes here are neither followed nor undone, and everything else is passed on: {error:#}",
                        opening.cwd.display()
                    ));
                    None
                }
            }
        };
        cell.get_or_init(open).await.clone()
    }

    async fn open(&self, cwd: &Path, more: &[PathBuf]) -> anyhow::Result<Host> {
        let Plan { places, preset, supervisor, observe, foreign_files } = self.inner.plan.clone();
        let places = places.context("there is no place for the journal: set HOME")?;
        let mut terminals = terminals::Settings::inheriting(supervisor, std::env::vars_os());
        terminals.temporary = std::env::temp_dir();
        let mut settings = Settings::new(terminals);
        (settings.preset, settings.observe) = (preset, observe);
        settings.workspace.foreign_files = foreign_files;
        settings.more_roots = more.iter().map(|path| RootSpec::writable(path.to_string_lossy())).collect();
        let (cwd, desk) = (cwd.to_owned(), self.inner.desk.clone());
        let opened = tokio::task::spawn_blocking(move || {
            let project = cwd.canonicalize().context("the session's directory cannot be used")?;
            Host::open(&project, &places, desk, settings).map_err(|error: HostError| error.into())
        });
        opened.await.context("opening the workspace ended early")?
    }
}

/// Says something to whoever reads the editor's log of this program.
pub(super) fn say(text: &str) {
    writeln!(std::io::stderr(), "bowline: {}", display::line(text, 1000)).ok();
}

impl Engine for LocalEngine {
    fn notes(&self, line: &str) {
        say(line);
    }

    fn prepares(&self, opening: &Opening) {
        let (engine, opening) = (self.clone(), opening.clone());
        tokio::spawn(async move { engine.host(&opening).await.map(drop) });
    }

    fn opens(&self, opened: &Opened) -> BoxFuture<Option<Arc<dyn EngineSession>>> {
        let (engine, opened) = (self.clone(), opened.clone());
        Box::pin(async move {
            let host = engine.host(&opened.opening).await?;
            let is_old = matches!(opened.opening.method, Method::Load | Method::Resume);
            let session = match host.passing_session(&opened.session, is_old, None).await {
                Ok(session) => session,
                Err(error) => {
                    say(&format!("session {}: {error}", opened.session.0));
                    return None;
                }
            };
            engine.inner.desk.sits(session.name(), &opened.session);
            let asked = opened.opening.cwd.to_string_lossy().into_owned();
            let beside =
                Arc::new(Beside::new(session, host.workspace().clone(), asked, engine.inner.desk.clone()));
            beside.starts();
            let mut sessions = engine.sessions();
            sessions.retain(|session| !session.is_over());
            sessions.push(beside.clone());
            Some(beside as Arc<dyn EngineSession>)
        })
    }
}
