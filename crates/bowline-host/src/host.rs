//! A host: a workspace with its policy, its audit log and its front end, ready to serve agents.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bowline_access::approvals::{Approvals, PolicyFallback, PolicySources};
use bowline_access::audit::{self, AuditLog};
use bowline_access::policy::PolicyFile;
use bowline_policy::policy::{Preset, Rule};
use bowline_protocol::capabilities;
use bowline_protocol::file_extension::FileCapabilities;
use bowline_protocol::quirks::QuirkMode;
use bowline_protocol::schema::v1::{
    AuthCapabilities, BooleanConfigOptionCapabilities, ClientCapabilities, ClientSessionCapabilities,
    CompactionCapabilities, ElicitationCapabilities, ElicitationFormCapabilities, ElicitationUrlCapabilities,
    FileSystemCapabilities, Implementation, InitializeRequest, NoticeCapabilities,
    SessionConfigOptionsCapabilities, SessionId,
};
use bowline_wire::{
    ConnectionLimits, HeadReader, StreamTail, WireRecorder, connect_client, connect_client_recorded,
    spawn_agent_recorded,
};
use bowline_workspace::roots::{RootSpec, Roots};
use bowline_workspace::terminals::{self, ProgramSpec, SupervisedProgram};
use bowline_workspace::workspace::{self, Workspace, WorkspaceNotification};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::process::Command;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Semaphore, watch};

use crate::client_service::ClientService;
use crate::connection::Connection;
use crate::error::HostError;
use crate::front_end::{FrontEnd, HostEvent};
use crate::operations::file_extension;
use crate::operations::initial_scan::InitialScan;
use crate::process::{SpawnedAgent, SupervisedAgent};

/// The paths of a host's private files. None of them may be inside a workspace.
#[derive(Debug, Clone)]
pub struct HostPaths {
    /// The user's directory for Bowline's state: journals and audit logs.
    pub state: PathBuf,
    /// The policy file.
    pub policy: PathBuf,
    /// The directory for the anchors of audit logs: separate from the logs, so that neither can be truncated unnoticed.
    pub anchors: PathBuf,
}

impl HostPaths {
    /// Returns paths that are all below one directory.
    #[must_use]
    pub fn in_directory(directory: &Path) -> Self {
        Self {
            state: directory.join("state"),
            policy: directory.join("config").join("policy.toml"),
            anchors: directory.join("anchors"),
        }
    }
}

/// The capabilities announced to an agent. Requests beyond them are answered with -32601, or, for forms and pages, with
/// -32602 as the protocol requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostCapabilities {
    /// Read files.
    pub read: bool,
    /// Write files.
    pub write: bool,
    /// Run commands.
    pub terminal: bool,
    /// Show forms and pages to the user.
    pub elicitation: bool,
    /// Run the agent's program in a terminal of the user's, to log in. The embedding program implements this.
    pub terminal_login: bool,
}

impl Default for HostCapabilities {
    fn default() -> Self {
        Self { read: true, write: true, terminal: true, elicitation: true, terminal_login: false }
    }
}

impl HostCapabilities {
    /// Returns the methods of the file extension that are offered.
    #[must_use]
    pub fn file_capabilities(self) -> FileCapabilities {
        let all = FileCapabilities::with_limits(&file_extension::LIMITS);
        FileCapabilities {
            list: all.list.filter(|_| self.read),
            stat: all.stat.filter(|_| self.read),
            read: all.read.filter(|_| self.read),
            write: all.write.filter(|_| self.write),
            // A batch may read as well.
            batch: all.batch.filter(|_| self.read && self.write),
            watch: all.watch.filter(|_| self.read),
        }
    }

    /// Converts the capabilities to ACP's.
    #[must_use]
    pub fn to_client_capabilities(self) -> ClientCapabilities {
        let files = FileSystemCapabilities::new().read_text_file(self.read).write_text_file(self.write);
        let options = SessionConfigOptionsCapabilities::new().boolean(BooleanConfigOptionCapabilities::new());
        let session = ClientSessionCapabilities::new()
            .config_options(options)
            .notices(NoticeCapabilities::new())
            .compaction(CompactionCapabilities::new());
        let mut meta = capabilities::authorizes_operations_meta();
        if self.read || self.write {
            self.file_capabilities().insert_into(&mut meta);
        }
        let mut capabilities = ClientCapabilities::new()
            .fs(files)
            .terminal(self.terminal)
            .auth(AuthCapabilities::new().terminal(self.terminal_login))
            .session(session)
            .meta(meta);
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

/// The options of a host.
#[derive(Clone)]
pub struct HostOptions {
    /// The capabilities announced to agents.
    pub capabilities: HostCapabilities,
    /// The options of terminals.
    pub terminals: terminals::TerminalOptions,
    /// The options of the engine.
    pub workspace: workspace::WorkspaceOptions,
    /// The options of the audit log.
    pub audit: audit::AuditOptions,
    /// The remote user for whom the agents work, named in the audit log.
    pub principal: Option<String>,
    /// The preset that applies where no rule matches, instead of the user's, unless that is `read-only` or `deny`.
    pub preset: Option<Preset>,
    /// Rules in addition to the user's, for example from the command line.
    pub rules: Vec<Rule>,
    /// Additional directories for every session of the host.
    pub additional_roots: Vec<RootSpec>,
    /// The name and version announced to agents.
    pub client_info: Implementation,
    /// Whether to scan for changes on disk that did not pass through the host.
    pub observe: bool,
    /// How long a command, or the turn of an agent that may change files unseen, waits for the initial scan.
    pub initial_scan_timeout: Duration,
    /// Whether the agent can change files only through the host and its commands: Bowline's own agent, for example, or
    /// the client of our MCP server. Changes found on disk while no command runs are then the user's and belong to no
    /// turn. For other agents this is unknown: changes during their turns are attributed to the turn, as observed.
    pub writes_through_host_only: bool,
    /// The limits of message sizes and queues.
    pub limits: ConnectionLimits,
    /// Records every message between the host and the agents that it starts.
    pub recorder: Option<Arc<dyn WireRecorder>>,
    /// The timeout for an agent's answer to `initialize`, if any.
    pub initialize_timeout: Option<Duration>,
    /// Whether to work around known quirks of agents.
    pub quirk_mode: QuirkMode,
}

impl HostOptions {
    /// Returns the default options.
    #[must_use]
    pub fn new(terminals: terminals::TerminalOptions) -> Self {
        Self {
            capabilities: HostCapabilities::default(),
            terminals,
            workspace: workspace::WorkspaceOptions::default(),
            audit: audit::AuditOptions::default(),
            principal: None,
            preset: None,
            rules: Vec::new(),
            additional_roots: Vec::new(),
            client_info: Implementation::new("bowline", env!("CARGO_PKG_VERSION")),
            observe: true,
            initial_scan_timeout: Duration::from_secs(30),
            writes_through_host_only: false,
            limits: ConnectionLimits::DEFAULT,
            recorder: None,
            initialize_timeout: None,
            quirk_mode: QuirkMode::On,
        }
    }
}

/// A host. Clones share their state.
#[derive(Clone)]
pub struct Host {
    pub(crate) inner: Arc<HostInner>,
    capabilities: HostCapabilities,
}

/// The state shared by all sessions of all connections.
pub(crate) struct HostInner {
    pub(crate) workspace: Workspace,
    pub(crate) approvals: Approvals,
    pub(crate) front_end: Arc<dyn FrontEnd>,
    pub(crate) options: HostOptions,
    pub(crate) initial_scan: watch::Sender<InitialScan>,
    // Whether a command or an agent proceeded before the initial scan was done.
    pub(crate) proceeded_without_scan: AtomicBool,
    // Limits how many permission requests are described concurrently, since each may read many files.
    pub(crate) description_permits: Semaphore,
    // The number of turns in progress.
    pub(crate) active_turns: AtomicUsize,
    // The number of commands whose changes have not been scanned yet.
    pub(crate) unscanned_commands: AtomicUsize,
    // The names of the open sessions.
    session_names: Mutex<HashSet<String>>,
}

/// The maximum number of permission requests described concurrently.
const MAX_CONCURRENT_DESCRIPTIONS: usize = 4;

/// The maximum number of sessions with the same id that get distinct names; any more share the last name.
const MAX_NAMESAKES: usize = 10_000;

impl HostInner {
    /// Returns a name for a new session that no other has had in this workspace: its id, if that is free. Blocks on the
    /// disk.
    pub(crate) fn reserve_new_name(&self, id: &SessionId) -> Result<String, HostError> {
        for number in 1..MAX_NAMESAKES {
            let name = if number == 1 { id.0.to_string() } else { format!("{}~{number}", id.0) };
            let mut names = self.session_names.lock().unwrap_or_else(PoisonError::into_inner);
            if !names.contains(&name) && self.workspace.last_turn(&name)?.is_none() {
                names.insert(name.clone());
                return Ok(name);
            }
        }
        Ok(format!("{}~{MAX_NAMESAKES}", id.0))
    }

    /// Returns the name of an existing session: its id, unless an open session has it. Blocks on the disk.
    pub(crate) fn reserve_existing_name(&self, id: &SessionId) -> Result<String, HostError> {
        let name = id.0.to_string();
        let is_free = self.session_names.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone());
        if is_free { Ok(name) } else { self.reserve_new_name(id) }
    }

    /// Reports to the user the texts that could only be kept in the journal.
    pub(crate) fn report_kept_texts(&self) {
        self.workspace
            .report_kept_texts(|text| self.front_end.show(HostEvent::Notice { text: &text.to_string() }));
    }

    /// Releases the name of a session that has ended.
    pub(crate) fn release_name(&self, name: &str) {
        self.session_names.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("workspace", &self.inner.workspace.roots().cwd()).finish_non_exhaustive()
    }
}

impl Host {
    /// Opens a project to serve it. Blocks on the disk.
    ///
    /// # Errors
    /// Returns an error if the project, the journal, the policy or the audit log cannot be used.
    pub fn open(
        project: &Path,
        paths: &HostPaths,
        front_end: Arc<dyn FrontEnd>,
        settings: HostOptions,
    ) -> Result<Self, HostError> {
        // A lossy conversion would name another directory.
        let name = project.to_str().ok_or_else(|| HostError::NotUtf8(project.to_owned()))?;
        let cwd = RootSpec::writable(name);
        let roots = Roots::open(&cwd, &settings.additional_roots)?;
        for directory in [&paths.state, &paths.anchors] {
            if is_inside_roots(directory, &roots) {
                return Err(HostError::InsideWorkspace(directory.clone()));
            }
        }
        let roots = roots.with_reserved_paths([&paths.state, &paths.anchors]);
        // The directory of the policy file, or only the file if the project is inside that directory.
        let rules = match paths.policy.parent() {
            Some(directory) if !Path::new(roots.cwd()).starts_with(directory) => directory,
            _ => &paths.policy,
        };
        let roots = roots.with_reserved_paths([rules]);
        let names: Vec<String> = roots.iter().map(|(path, _)| path.to_owned()).collect();
        let directories: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
        let file = PolicyFile::open(&paths.policy, &directories)?;
        let journal = Workspace::journal_directory(&paths.state, &roots);
        let (log, anchor) = AuditLog::locate(&journal, &paths.anchors);
        let opened = Workspace::open(roots, &journal, settings.workspace.clone())?;
        let log = AuditLog::open(&log, &anchor, settings.audit)?.with_principal(settings.principal.clone());
        for notice in &opened.notices {
            front_end.show(HostEvent::Notice { text: &notice.to_string() });
        }
        for recovered in &opened.recovered {
            front_end.show(HostEvent::Notice { text: &recovered.to_string() });
        }
        let rules = PolicySources {
            file: Some(file),
            fallback: settings.preset.map_or(PolicyFallback::File, PolicyFallback::UnlessRestricted),
            rules: settings.rules.clone(),
            roots: names,
        };
        let approvals = Approvals::new(rules, log, front_end.clone());
        Ok(Self::new(opened.workspace, approvals, front_end, settings))
    }

    /// Returns a host built from open parts.
    #[must_use]
    pub fn new(
        workspace: Workspace,
        approvals: Approvals,
        front_end: Arc<dyn FrontEnd>,
        settings: HostOptions,
    ) -> Self {
        let capabilities = settings.capabilities;
        let shared = HostInner {
            workspace,
            approvals,
            front_end,
            options: settings,
            initial_scan: watch::Sender::default(),
            proceeded_without_scan: AtomicBool::new(false),
            description_permits: Semaphore::new(MAX_CONCURRENT_DESCRIPTIONS),
            active_turns: AtomicUsize::new(0),
            unscanned_commands: AtomicUsize::new(0),
            session_names: Mutex::default(),
        };
        let shared = Arc::new(shared);
        shared.report_kept_texts();
        // A late write to a displaced file may arrive when no write is in progress any more.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(follow_kept_texts(shared.workspace.subscribe(), Arc::downgrade(&shared)));
        }
        Self { inner: shared, capabilities }
    }

    /// Returns the same host with other capabilities, for an agent that should be able to do less.
    #[must_use]
    pub fn with_capabilities(&self, capabilities: HostCapabilities) -> Self {
        Self { inner: self.inner.clone(), capabilities }
    }

    pub(crate) fn capabilities(&self) -> HostCapabilities {
        self.capabilities
    }

    /// Returns the workspace: documents, changes, undo, and an editor's diagnostics ([`Workspace::share_diagnostics`]),
    /// which clients of an MCP server on this host read and are notified of.
    #[must_use]
    pub fn workspace(&self) -> &Workspace {
        &self.inner.workspace
    }

    /// Returns the approvals, which authorize every operation.
    #[must_use]
    pub fn approvals(&self) -> &Approvals {
        &self.inner.approvals
    }

    /// Starts an agent and connects to it.
    ///
    /// # Errors
    /// Returns an error if the agent cannot be started, or the handshake fails.
    pub async fn spawn(&self, command: Command) -> Result<Connection, HostError> {
        let service = Arc::new(ClientService::new(self.inner.clone()));
        let settings = &self.inner.options;
        let (agent, process) =
            spawn_agent_recorded(command, service.clone(), settings.limits, settings.recorder.clone())?;
        let process = SpawnedAgent::Child(Box::new(process));
        Connection::open(self.clone(), service, agent, Some(process), None).await
    }

    /// Starts an agent under a supervisor, as commands are, and connects to it: however this process dies, no process
    /// of the agent is left behind.
    ///
    /// # Errors
    /// Returns an error if the agent cannot be started, or the handshake fails.
    pub async fn spawn_supervised(&self, program: ProgramSpec) -> Result<Connection, HostError> {
        let settings = &self.inner.options;
        let supervisor = &settings.terminals.supervisor;
        let (companion, streams, writer) =
            SupervisedProgram::start_with_piped_input(supervisor, program).await?;
        let service = Arc::new(ClientService::new(self.inner.clone()));
        let (reader, stdout) = HeadReader::new(streams.stdio);
        let recorder = settings.recorder.clone();
        let (agent, serving) =
            connect_client_recorded(service.clone(), reader, writer, settings.limits, recorder);
        let serve_task = tokio::spawn(serving);
        let stderr = StreamTail::spawn(streams.stderr);
        let supervised = SupervisedAgent { companion, agent: agent.clone(), serve_task, stderr, stdout };
        let process = SpawnedAgent::Supervised(Box::new(supervised));
        Connection::open(self.clone(), service, agent, Some(process), None).await
    }

    /// Connects to an agent at the other end of a pair of pipes.
    ///
    /// # Errors
    /// Returns an error if the handshake fails.
    pub async fn connect<R, W>(&self, reader: R, writer: W) -> Result<Connection, HostError>
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let service = Arc::new(ClientService::new(self.inner.clone()));
        let (agent, serve_task) = connect_client(service.clone(), reader, writer, self.inner.options.limits);
        let serve_task = tokio::spawn(serve_task);
        Connection::open(self.clone(), service, agent, None, Some(serve_task)).await
    }

    /// Returns the host's `initialize` request.
    pub(crate) fn initialize_request(&self) -> InitializeRequest {
        let (capabilities, name) =
            (self.capabilities.to_client_capabilities(), &self.inner.options.client_info);
        InitializeRequest::new(bowline_protocol::capabilities::version::LATEST)
            .client_capabilities(capabilities)
            .client_info(name.clone())
    }
}

/// Returns whether a path is inside a root, after resolving the part of it that exists.
fn is_inside_roots(path: &Path, roots: &Roots) -> bool {
    let existing = path.ancestors().find_map(|part| Some((part, part.canonicalize().ok()?)));
    let canonical_path = match existing {
        Some((part, canonical)) => canonical.join(path.strip_prefix(part).unwrap_or(Path::new(""))),
        None => path.to_owned(),
    };
    roots.iter().any(|(root, _)| canonical_path.starts_with(root))
}

/// Reports texts that could only be kept in the journal, for as long as the host exists.
async fn follow_kept_texts(mut notifications: Receiver<WorkspaceNotification>, host: Weak<HostInner>) {
    loop {
        match notifications.recv().await {
            Ok(WorkspaceNotification::TextsKept) | Err(RecvError::Lagged(_)) => {
                let Some(shared) = host.upgrade() else { return };
                shared.report_kept_texts();
            }
            Ok(_) => {}
            Err(RecvError::Closed) => return,
        }
    }
}
