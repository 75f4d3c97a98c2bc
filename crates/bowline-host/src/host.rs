//! A host: a workspace with its rules, its audit log and its front end, ready to be served to agents.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bowline_state::capabilities;
use bowline_state::policy::{Preset, Rule};
use bowline_state::quirks::QuirkMode;
use bowline_state::schema::v1::{
    AuthCapabilities, BooleanConfigOptionCapabilities, ClientCapabilities, ClientSessionCapabilities,
    CompactionCapabilities, ElicitationCapabilities, ElicitationFormCapabilities, ElicitationUrlCapabilities,
    FileSystemCapabilities, Implementation, InitializeRequest, NoticeCapabilities,
    SessionConfigOptionsCapabilities, SessionId,
};
use bowline_wire::{
    HeadReader, LastWords, Limits, Tap, connect_client, connect_client_tapped, spawn_agent_tapped,
};
use bowline_workspace::approvals::{Approvals, Fallback, Rulebook};
use bowline_workspace::audit::{self, AuditLog};
use bowline_workspace::policy::PolicyFile;
use bowline_workspace::roots::{RootSpec, Roots};
use bowline_workspace::terminals::{self, Companion, Program};
use bowline_workspace::workspace::{self, SharedNews, Workspace};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::process::Command;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Semaphore, watch};

use crate::connection::Connection;
use crate::error::HostError;
use crate::face::Face;
use crate::front_end::{Event, FrontEnd};
use crate::operations::first_look::FirstLook;
use crate::process::{Process, Supervised};

/// Where a host keeps what is the user's own. None of it may lie inside a workspace.
#[derive(Debug, Clone)]
pub struct Places {
    /// The user's directory for Bowline's state: journals and audit logs.
    pub state: PathBuf,
    /// The file of rules.
    pub policy: PathBuf,
    /// The directory for the anchors of audit logs: elsewhere than the logs, so that one cannot be cut without the other.
    pub anchors: PathBuf,
}

impl Places {
    /// Returns places that are all below one directory of the user's.
    #[must_use]
    pub fn below(directory: &Path) -> Self {
        Self {
            state: directory.join("state"),
            policy: directory.join("config").join("policy.toml"),
            anchors: directory.join("anchors"),
        }
    }
}

/// What an agent is told that it may ask for. What is left out answers -32601; forms and pages, as the protocol has it,
/// -32602.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// Reading files.
    pub read: bool,
    /// Writing files.
    pub write: bool,
    /// Running commands.
    pub terminal: bool,
    /// Forms and pages for the person.
    pub elicitation: bool,
    /// Running the agent's program in a terminal of the person's, to log in. The program that embeds the host does that.
    pub terminal_login: bool,
}

impl Default for Offer {
    fn default() -> Self {
        Self { read: true, write: true, terminal: true, elicitation: true, terminal_login: false }
    }
}

impl Offer {
    /// Returns how an agent is told of it.
    #[must_use]
    pub fn capabilities(self) -> ClientCapabilities {
        let files = FileSystemCapabilities::new().read_text_file(self.read).write_text_file(self.write);
        let options = SessionConfigOptionsCapabilities::new().boolean(BooleanConfigOptionCapabilities::new());
        let session = ClientSessionCapabilities::new()
            .config_options(options)
            .notices(NoticeCapabilities::new())
            .compaction(CompactionCapabilities::new());
        let mut capabilities = ClientCapabilities::new()
            .fs(files)
            .terminal(self.terminal)
            .auth(AuthCapabilities::new().terminal(self.terminal_login))
            .session(session)
            .meta(capabilities::decides_meta());
        if self.elicitation {
            capabilities = capabilities.elicitation(
                ElicitationCapabilities::new()
                    .form(ElicitationFormCapabilities::new())
                    .url(ElicitationUrlCapabilities::new()),
            );
        }
        capabilities
    }
}

/// How a host works.
#[derive(Clone)]
pub struct Settings {
    /// What agents are offered.
    pub offer: Offer,
    /// How terminals work.
    pub terminals: terminals::Settings,
    /// What the engine may do.
    pub workspace: workspace::Settings,
    /// What the audit log keeps.
    pub audit: audit::Settings,
    /// What holds where no rule matches, in place of what the user's file says, unless that is `read-only` or `deny`.
    pub preset: Option<Preset>,
    /// Rules beside the user's, from a command line for one.
    pub rules: Vec<Rule>,
    /// More directories that every session of the host may use.
    pub more_roots: Vec<RootSpec>,
    /// How the host calls itself.
    pub name: Implementation,
    /// Whether changes on disk that did not pass through the host are looked for.
    pub observe: bool,
    /// Whether whoever works here can change files only through the host and its commands: Bowline's own agent, for one, or
    /// the client of an MCP server of ours. Then what is found changed on disk while no command runs is the user's doing and
    /// belongs to no turn. Of other agents nobody can say that: what changes in their turns is laid to the turn, as observed.
    pub writes_here_only: bool,
    /// What one message may take, and how much may wait.
    pub limits: Limits,
    /// Who hears every message between the host and the agents that it starts.
    pub tap: Option<Arc<dyn Tap>>,
    /// How long an agent may take to answer `initialize`, if there is a limit.
    pub greeting: Option<Duration>,
    /// Whether known faults of agents are worked around.
    pub quirks: QuirkMode,
}

impl Settings {
    /// Returns the settings that hold if nothing is said.
    #[must_use]
    pub fn new(terminals: terminals::Settings) -> Self {
        Self {
            offer: Offer::default(),
            terminals,
            workspace: workspace::Settings::default(),
            audit: audit::Settings::default(),
            preset: None,
            rules: Vec::new(),
            more_roots: Vec::new(),
            name: Implementation::new("bowline", env!("CARGO_PKG_VERSION")),
            observe: true,
            writes_here_only: false,
            limits: Limits::DEFAULT,
            tap: None,
            greeting: None,
            quirks: QuirkMode::On,
        }
    }
}

/// A host. Clones are the same one.
#[derive(Clone)]
pub struct Host {
    pub(crate) shared: Arc<Shared>,
    offer: Offer,
}

/// What all sessions of all connections share.
pub(crate) struct Shared {
    pub(crate) workspace: Workspace,
    pub(crate) approvals: Approvals,
    pub(crate) front_end: Arc<dyn FrontEnd>,
    pub(crate) settings: Settings,
    pub(crate) first_look: watch::Sender<FirstLook>,
    // Whether a command or an agent went on before the first look was over.
    pub(crate) went_on: AtomicBool,
    // How many permission requests are looked into at once: each may have many files to read.
    pub(crate) describing: Semaphore,
    // How many turns go on.
    pub(crate) turns: AtomicUsize,
    // How many commands run whose changes were not looked for yet.
    pub(crate) commands: AtomicUsize,
    // The names of the sessions that are open.
    names: Mutex<HashSet<String>>,
}

/// So many permission requests are looked into at once.
const MAX_DESCRIBING: usize = 4;

/// So many sessions of one id are told apart; who opens more shares the last name.
const MAX_NAMESAKES: usize = 10_000;

impl Shared {
    /// Returns a name for a new session that no other has had in this workspace: its id, if that is free. Waits for the
    /// disk.
    pub(crate) fn new_name(&self, id: &SessionId) -> Result<String, HostError> {
        for number in 1..MAX_NAMESAKES {
            let name = if number == 1 { id.0.to_string() } else { format!("{}~{number}", id.0) };
            let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
            if !names.contains(&name) && self.workspace.last_turn(&name)?.is_none() {
                names.insert(name.clone());
                return Ok(name);
            }
        }
        Ok(format!("{}~{MAX_NAMESAKES}", id.0))
    }

    /// Returns the name of a session of before: its id, unless a session that is open has it. Waits for the disk.
    pub(crate) fn old_name(&self, id: &SessionId) -> Result<String, HostError> {
        let name = id.0.to_string();
        let is_free = self.names.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone());
        if is_free { Ok(name) } else { self.new_name(id) }
    }

    /// Tells the user of texts that could only be kept in the journal.
    pub(crate) fn tell_kept_texts(&self) {
        self.workspace.tell_kept_texts(|text| self.front_end.show(Event::Notice { text: &text.to_string() }));
    }

    /// Gives up the name of a session that has ended.
    pub(crate) fn free_name(&self, name: &str) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host")
            .field("workspace", &self.shared.workspace.roots().cwd())
            .finish_non_exhaustive()
    }
}

impl Host {
    /// Opens a project to serve it. Waits for the disk: call it where that is allowed.
    ///
    /// # Errors
    /// Returns what cannot be used: the project, the journal, the rules or the audit log.
    pub fn open(
        project: &Path,
        places: &Places,
        front_end: Arc<dyn FrontEnd>,
        settings: Settings,
    ) -> Result<Self, HostError> {
        // By another name it would be another directory.
        let name = project.to_str().ok_or_else(|| HostError::NotUtf8(project.to_owned()))?;
        let cwd = RootSpec::writable(name);
        let roots = Roots::open(&cwd, &settings.more_roots)?;
        for own in [&places.state, &places.anchors] {
            if lies_in(own, &roots) {
                return Err(HostError::InsideWorkspace(own.clone()));
            }
        }
        let roots = roots.keeping_out([&places.state, &places.anchors]);
        // The directory of the rules, unless the project lies in it: then the file alone.
        let rules = match places.policy.parent() {
            Some(directory) if !Path::new(roots.cwd()).starts_with(directory) => directory,
            _ => &places.policy,
        };
        let roots = roots.keeping_out([rules]);
        let names: Vec<String> = roots.iter().map(|(path, _)| path.to_owned()).collect();
        let directories: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
        let file = PolicyFile::open(&places.policy, &directories)?;
        let journal = Workspace::journal_directory(&places.state, &roots);
        let (log, anchor) = AuditLog::locate(&journal, &places.anchors);
        let opened = Workspace::open(roots, &journal, settings.workspace.clone())?;
        let log = AuditLog::open(&log, &anchor, settings.audit)?;
        for notice in &opened.notices {
            front_end.show(Event::Notice { text: &notice.to_string() });
        }
        for recovered in &opened.recovered {
            front_end.show(Event::Notice { text: &recovered.to_string() });
        }
        let rules = Rulebook {
            file: Some(file),
            fallback: settings.preset.map_or(Fallback::File, Fallback::Unless),
            rules: settings.rules.clone(),
            roots: names,
        };
        let approvals = Approvals::new(rules, log, front_end.clone());
        Ok(Self::new(opened.workspace, approvals, front_end, settings))
    }

    /// Returns a host of parts that are open already.
    #[must_use]
    pub fn new(
        workspace: Workspace,
        approvals: Approvals,
        front_end: Arc<dyn FrontEnd>,
        settings: Settings,
    ) -> Self {
        let offer = settings.offer;
        let shared = Shared {
            workspace,
            approvals,
            front_end,
            settings,
            first_look: watch::Sender::default(),
            went_on: AtomicBool::new(false),
            describing: Semaphore::new(MAX_DESCRIBING),
            turns: AtomicUsize::new(0),
            commands: AtomicUsize::new(0),
            names: Mutex::default(),
        };
        let shared = Arc::new(shared);
        shared.tell_kept_texts();
        // Texts may come late to a file when no write is going on any more.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(follow_kept_texts(shared.workspace.shared_news(), Arc::downgrade(&shared)));
        }
        Self { shared, offer }
    }

    /// Returns the same host with another offer, for an agent that should be able to ask for less.
    #[must_use]
    pub fn offering(&self, offer: Offer) -> Self {
        Self { shared: self.shared.clone(), offer }
    }

    pub(crate) fn offer(&self) -> Offer {
        self.offer
    }

    /// Returns the workspace: documents, changes, undo, and what an editor knows to be wrong in its files
    /// ([`Workspace::share_diagnostics`]), which clients of an MCP server over it read and hear of.
    #[must_use]
    pub fn workspace(&self) -> &Workspace {
        &self.shared.workspace
    }

    /// Returns what stands before every operation.
    #[must_use]
    pub fn approvals(&self) -> &Approvals {
        &self.shared.approvals
    }

    /// Starts an agent and connects to it.
    ///
    /// # Errors
    /// Returns why it cannot be started, or does not speak our protocol.
    pub async fn spawn(&self, command: Command) -> Result<Connection, HostError> {
        let face = Arc::new(Face::new(self.shared.clone()));
        let settings = &self.shared.settings;
        let (agent, process) =
            spawn_agent_tapped(command, face.clone(), settings.limits, settings.tap.clone())?;
        let process = Process::Child(Box::new(process));
        Connection::open(self.clone(), face, agent, Some(process), None).await
    }

    /// Starts an agent under the supervisor that commands have, and connects to it: whatever it starts, and however this
    /// process dies, nothing of it stays behind.
    ///
    /// # Errors
    /// Returns why it cannot be started, or does not speak our protocol.
    pub async fn spawn_supervised(&self, program: Program) -> Result<Connection, HostError> {
        let settings = &self.shared.settings;
        let supervisor = &settings.terminals.supervisor;
        let (companion, streams, writer) = Companion::start_piped(supervisor, program).await?;
        let face = Arc::new(Face::new(self.shared.clone()));
        let (reader, stdout) = HeadReader::of(streams.talk);
        let (agent, serving) = match &settings.tap {
            None => {
                let (agent, serving) = connect_client(face.clone(), reader, writer, settings.limits);
                (agent, tokio::spawn(serving))
            }
            Some(tap) => {
                let tap = tap.clone();
                let connected = connect_client_tapped(face.clone(), reader, writer, settings.limits, tap);
                (connected.0, tokio::spawn(connected.1))
            }
        };
        let stderr = LastWords::of(streams.errors);
        let supervised = Supervised { companion, agent: agent.clone(), serving, stderr, stdout };
        let process = Process::Supervised(Box::new(supervised));
        Connection::open(self.clone(), face, agent, Some(process), None).await
    }

    /// Connects to an agent at the other end of a pair of pipes.
    ///
    /// # Errors
    /// Returns why it does not speak our protocol.
    pub async fn connect<R, W>(&self, reader: R, writer: W) -> Result<Connection, HostError>
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let face = Arc::new(Face::new(self.shared.clone()));
        let (agent, serving) = connect_client(face.clone(), reader, writer, self.shared.settings.limits);
        let serving = tokio::spawn(serving);
        Connection::open(self.clone(), face, agent, None, Some(serving)).await
    }

    /// Returns what is said to an agent first.
    pub(crate) fn greeting(&self) -> InitializeRequest {
        let (capabilities, name) = (self.offer.capabilities(), &self.shared.settings.name);
        InitializeRequest::new(bowline_state::version::LATEST)
            .client_capabilities(capabilities)
            .client_info(name.clone())
    }
}

/// Says whether a place lies in a root, by its own name as far as it exists.
fn lies_in(place: &Path, roots: &Roots) -> bool {
    let existing = place.ancestors().find_map(|part| Some((part, part.canonicalize().ok()?)));
    let own = match existing {
        Some((part, canonical)) => canonical.join(place.strip_prefix(part).unwrap_or(Path::new(""))),
        None => place.to_owned(),
    };
    roots.iter().any(|(root, _)| own.starts_with(root))
}

/// Tells of texts that could only be kept in the journal as long as there is the host.
async fn follow_kept_texts(mut news: Receiver<SharedNews>, host: Weak<Shared>) {
    loop {
        match news.recv().await {
            Ok(SharedNews::TextsKept) | Err(RecvError::Lagged(_)) => {
                let Some(shared) = host.upgrade() else { return };
                shared.tell_kept_texts();
            }
            Ok(_) => {}
            Err(RecvError::Closed) => return,
        }
    }
}
