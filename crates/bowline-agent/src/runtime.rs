//! The backends of a session's files and commands: the client, a workspace server of the client, or this machine.
//!
//! Each session chooses once, method by method, from the capabilities that the client advertised. Where the client
//! serves a method, it is the only way: an operation that it refuses is not done behind its back. Searching, which no
//! client serves, happens here, with the client's text of the files that the session has read from it, and so do the
//! methods of the file extension where the client does not offer it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bowline_mcp::client::McpServers;
use bowline_policy::operation::{Operation, OperationKind, OperationTarget};
use bowline_policy::paths::{self, Access, AdmissionError, LexicalPath, PathError, Root, RootMode};
use bowline_protocol::capabilities::{ClientCapabilityGate, ClientMethod};
use bowline_protocol::file_extension::{BATCH_METHOD, LIST_METHOD, STAT_METHOD};
use bowline_protocol::quirks::{PeerRole, Quirk, Workaround};
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::SessionId;
use bowline_task::spawn_blocking;
use bowline_text::lines::LineWindow;
use bowline_wire::ClientHandle;
use bowline_workspace::files::{FileBackend, LocalFiles, Requester, TextWriteOutcome};
use bowline_workspace::roots::{AdmitError, RootSpec, Roots};
use bowline_workspace::terminals::LocalTerminals;
use bowline_workspace::workspace::{TextSource, Workspace};
use tokio::sync::OnceCell;

pub(crate) mod batch;
mod client;
mod client_texts;
mod disk_checks;
pub(crate) mod disk_comparison;
mod error;
mod search;
mod terminals;
mod workspace_server;

pub use batch::{BatchFailure, BatchWrite, ClientContent, LocalPreview, WrittenText};
pub use client::{ClientFiles, ClientTerminals, ClientTimeouts, CommandEnd};
pub use disk_comparison::DiskComparison;
pub use error::{FileAbsence, RuntimeError};
pub use search::OverlaySearchResult;
pub use terminals::{RuntimeTerminalOutput, RuntimeTerminals};
pub use workspace_server::AdoptedWorkspace;

use crate::agent_options::{AgentOptions, AgentPaths, ToolSet};
use client_texts::ClientTexts;
use disk_checks::DiskChecks;
use disk_comparison::DiskContent;

/// The backend that serves an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Backend {
    /// The client, on the user's machine.
    Client,
    /// A workspace server of the client, over MCP.
    Workspace,
    /// This machine.
    Local,
}

impl Backend {
    /// Returns the name shown to models and users.
    #[must_use]
    pub fn display_name(self) -> &'static str {
        match self {
            Self::Client => "the editor",
            Self::Workspace => "the client's workspace server",
            Self::Local => "the agent's own machine",
        }
    }

    /// Returns the phrase that says an operation was done by this backend.
    #[must_use]
    pub fn via_phrase(self) -> &'static str {
        match self {
            Self::Client => "through the editor",
            Self::Workspace => "through the client's workspace server",
            Self::Local => "on the agent's own machine",
        }
    }

    /// Returns the identifier used in raw output and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Workspace => "workspace",
            Self::Local => "local",
        }
    }
}

/// The backends of a session, by method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackendChoice {
    /// Reading files.
    pub read: Backend,
    /// Writing files.
    pub write: Backend,
    /// Running commands.
    pub terminal: Backend,
    /// Listing directories.
    pub list: Backend,
    /// Describing files.
    pub stat: Backend,
    /// Changing several files at once, and moving and deleting them.
    pub batch: Backend,
}

impl BackendChoice {
    /// Returns the choice for a client with these capabilities.
    #[must_use]
    pub fn from_gate(client: &ClientCapabilityGate) -> Self {
        let backend_for =
            |method| if client.check(method).is_ok() { Backend::Client } else { Backend::Local };
        Self {
            read: backend_for(ClientMethod::ReadTextFile),
            write: backend_for(ClientMethod::WriteTextFile),
            terminal: backend_for(ClientMethod::CreateTerminal),
            list: backend_for(ClientMethod::ListDirectory),
            stat: backend_for(ClientMethod::StatFile),
            batch: backend_for(ClientMethod::BatchFiles),
        }
    }

    /// Describes each method's backend and the reason for it, one per line. Without `shell`, no backend runs commands.
    #[must_use]
    pub fn describe(self, shell: bool) -> Vec<String> {
        let line = |operations: &str, backend: Backend, capability: &str| match backend {
            Backend::Client => format!("{operations}: the editor (it advertises {capability})"),
            Backend::Workspace => format!(
                "{operations}: the client's workspace server, over MCP (the editor does not advertise {capability})"
            ),
            Backend::Local => {
                format!("{operations}: the agent's own machine (the editor does not advertise {capability})")
            }
        };
        let without_method = |backend: Backend| match backend {
            Backend::Workspace => "the client's workspace server, over MCP (it reads the files)",
            _ => "the agent's own machine (the protocol has no such method)",
        };
        let commands = if shell {
            line("commands", self.terminal, "terminal")
        } else {
            "commands: none (the agent was started without --shell, as --no-terminal has it)".to_owned()
        };
        let mut lines = vec![
            line("reading files", self.read, "fs.readTextFile"),
            line("writing files", self.write, "fs.writeTextFile"),
            commands,
        ];
        if self.list == Backend::Client {
            lines.push(line("listing", self.list, LIST_METHOD));
            lines.push(format!("searching: {}", without_method(self.read)));
        } else {
            lines.push(format!("listing and searching: {}", without_method(self.read)));
        }
        lines.push(line("file metadata", self.stat, STAT_METHOD));
        lines.push(line("moving, deleting, writing several files", self.batch, BATCH_METHOD));
        lines
    }
}

/// The backends of a session. Clones share their state.
#[derive(Debug, Clone)]
pub struct SessionRuntime {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    client: ClientHandle,
    session: SessionId,
    cwd: LexicalPath,
    additional_directories: Vec<LexicalPath>,
    // Chosen from the client's capabilities.
    backend_choice: BackendChoice,
    adopted_workspace: OnceLock<AdoptedWorkspace>,
    options: Arc<AgentOptions>,
    roots: OnceCell<Roots>,
    local: OnceCell<LocalRuntime>,
    client_texts: Mutex<ClientTexts>,
    disk_checks: Mutex<DiskChecks>,
}

/// Files and terminals of this machine.
#[derive(Debug)]
pub struct LocalRuntime {
    /// The workspace, with its journal: changes, undo.
    pub workspace: Workspace,
    /// The session's files.
    pub files: LocalFiles,
    /// The session's terminals.
    pub terminals: LocalTerminals,
}

/// A text, and the backend that served it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedText {
    /// The requested lines.
    pub text: Arc<String>,
    /// Whether this is the whole file, if known.
    pub whole: Option<bool>,
    /// The backend that served it.
    pub backend: Backend,
    /// Whether it is the file's current text, as far as this machine's disk can tell.
    pub disk_comparison: DiskComparison,
}

impl SessionRuntime {
    /// Returns the runtime of a session in these directories. Resources are opened when they are needed.
    ///
    /// # Errors
    /// Fails if a directory's path is invalid.
    pub fn new(
        client: ClientHandle,
        session: SessionId,
        cwd: &str,
        additional_directories: &[String],
        options: Arc<AgentOptions>,
    ) -> Result<Self, PathError> {
        let cwd = LexicalPath::parse(cwd)?;
        let additional_directories =
            additional_directories.iter().map(LexicalPath::parse).collect::<Result<_, _>>()?;
        let backend_choice = BackendChoice::from_gate(&client.gate());
        let inner = Inner {
            client,
            session,
            cwd,
            additional_directories,
            backend_choice,
            adopted_workspace: OnceLock::new(),
            options,
            roots: OnceCell::new(),
            local: OnceCell::new(),
            client_texts: Mutex::default(),
            disk_checks: Mutex::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns the backend of each method.
    #[must_use]
    pub fn backend_choice(&self) -> BackendChoice {
        let (choice, shell) = (self.inner.backend_choice, self.inner.options.is_shell_enabled);
        self.adopted_workspace()
            .map_or(choice, |workspace| choice.with_workspace(workspace.server().serves, shell))
    }

    /// Returns the session's directory.
    #[must_use]
    pub fn cwd(&self) -> &str {
        self.inner.cwd.as_str()
    }

    /// Returns the session.
    #[must_use]
    pub fn session(&self) -> &SessionId {
        &self.inner.session
    }

    /// Returns the client.
    #[must_use]
    pub fn client(&self) -> &ClientHandle {
        &self.inner.client
    }

    /// Returns the settings.
    #[must_use]
    pub fn options(&self) -> &Arc<AgentOptions> {
        &self.inner.options
    }

    /// Describes each method's backend and the reason for it, one per line.
    #[must_use]
    pub fn describe(&self) -> Vec<String> {
        let mut lines = self.backend_choice().describe(self.inner.options.is_shell_enabled);
        if let Some(workspace) = self.adopted_workspace() {
            let server = workspace.server();
            lines.push(format!(
                "the client's workspace server: the MCP server {:?} (its tools are those of one)",
                server.name
            ));
        }
        lines
    }

    /// Adopts a workspace server of the client, if it has one, for methods that the client does not serve itself.
    /// Returns the description of the backends the first time. Dual tool sets name their machine, so they are not
    /// redirected.
    pub fn adopt_workspace(&self, servers: &Arc<McpServers>) -> Option<Vec<String>> {
        if self.adopted_workspace().is_some() || self.options().tool_set == ToolSet::Dual {
            return None;
        }
        let base = self.inner.backend_choice;
        let server = servers.workspace()?;
        if base.with_workspace(server.serves, self.options().is_shell_enabled) == base {
            return None;
        }
        let workspace = AdoptedWorkspace::new(server, servers.clone());
        // A concurrent call has adopted the same server.
        self.inner.adopted_workspace.set(workspace).ok()?;
        Some(self.describe())
    }

    /// Returns the adopted workspace server, if any.
    #[must_use]
    pub fn adopted_workspace(&self) -> Option<&AdoptedWorkspace> {
        self.inner.adopted_workspace.get()
    }

    /// Resolves a path given by a model: relative paths are below the session's directory.
    ///
    /// # Errors
    /// Fails if the path is invalid.
    pub fn resolve_path(&self, path: &str) -> Result<LexicalPath, PathError> {
        match LexicalPath::parse(path) {
            Err(PathError::Relative(path)) => LexicalPath::parse(format!("{}/{path}", self.cwd())),
            parsed => parsed,
        }
    }

    /// Returns a path relative to the session's directory, if it lies inside.
    #[must_use]
    pub fn display_path<'p>(&self, path: &'p str) -> &'p str {
        let relative = path.strip_prefix(self.cwd()).and_then(|rest| rest.strip_prefix('/'));
        relative.filter(|rest| !rest.is_empty()).unwrap_or(path)
    }

    /// Reads a file, or some lines of it, through a given backend.
    ///
    /// # Errors
    /// Fails if the backend returns no text.
    pub async fn read(
        &self,
        backend: Backend,
        path: &str,
        window: LineWindow,
    ) -> Result<ServedText, RuntimeError> {
        let wants_whole_file = window == LineWindow::default();
        let (text, whole, disk_comparison) = match backend {
            Backend::Client => {
                let read = match self.client_files().read(path, window).await {
                    Ok(text) if text.is_empty() => self.check_empty_text(path, text).await,
                    read => read,
                };
                match &read {
                    Ok(text) if wants_whole_file => self.client_texts().insert(path, text.clone()),
                    Err(error) if error.is_file_missing() => self.client_texts().remove(path),
                    _ => {}
                }
                let text = read?;
                let disk_comparison = if wants_whole_file {
                    self.check_disk(path, &text).await
                } else {
                    DiskComparison::UpToDate
                };
                (text, wants_whole_file.then_some(true), disk_comparison)
            }
            Backend::Workspace => {
                let Some(workspace) = self.adopted_workspace() else {
                    return Err(RuntimeError::EngineUnavailable("there is no workspace server".to_owned()));
                };
                let (text, whole) = workspace.read(path, window).await?;
                (text, Some(whole), DiskComparison::UpToDate)
            }
            Backend::Local => {
                let read = self.local().await?.files.read(path, window).await?;
                if read.source == TextSource::DirtyDocumentOverChangedFile {
                    self.inner
                        .options
                        .log
                        .write_line(format!("{path} was changed on disk beside its document"));
                }
                (read.text, read.is_whole, DiskComparison::UpToDate)
            }
        };
        Ok(ServedText { text, whole, backend, disk_comparison })
    }

    /// Returns the client's empty text, or an error if a known quirk of the client explains it: the file is missing.
    async fn check_empty_text(&self, path: &str, text: Arc<String>) -> Result<Arc<String>, RuntimeError> {
        let (options, client) = (self.options(), self.client().info());
        let meant = Workaround::MissingFileForEmptyText;
        match Quirk::find(options.quirks, PeerRole::Client, client, meant) {
            Some(quirk) if self.read_disk(path).await == DiskContent::Missing => {
                options.log.write_line(quirk.log_line(path));
                Err(RuntimeError::Failed(RpcError::ResourceNotFound { uri: Some(path.to_owned()) }))
            }
            _ => Ok(text),
        }
    }

    /// Writes a file through a given backend.
    ///
    /// # Errors
    /// Fails if the file was not written, or if the outcome is unknown.
    pub async fn write(
        &self,
        backend: Backend,
        path: &str,
        content: String,
        requester: &Requester,
    ) -> Result<TextWriteOutcome, RuntimeError> {
        match backend {
            Backend::Client => {
                self.record_client_write(path);
                self.client_files().write(path, content).await?;
                Ok(TextWriteOutcome::default())
            }
            Backend::Workspace => Err(workspace_tools_only()),
            Backend::Local => Ok(self.local().await?.files.write(path, content, requester).await?),
        }
    }

    /// Returns the terminals of a given backend.
    ///
    /// # Errors
    /// Fails if the backend has no terminals.
    pub async fn terminals(&self, backend: Backend) -> Result<RuntimeTerminals, RuntimeError> {
        let Inner { client, session, options, .. } = &*self.inner;
        Ok(match backend {
            Backend::Client => RuntimeTerminals::Client(ClientTerminals::new(
                client.clone(),
                session.clone(),
                ClientTimeouts::for_client(options, client),
            )),
            Backend::Workspace => return Err(workspace_tools_only()),
            Backend::Local => RuntimeTerminals::Local(self.local().await?.terminals.clone()),
        })
    }

    /// Returns the client's files, even if it does not serve them: it then fails by itself.
    #[must_use]
    pub fn client_files(&self) -> ClientFiles {
        let Inner { client, session, options, .. } = &*self.inner;
        ClientFiles::new(client.clone(), session.clone(), options)
    }

    /// Returns this machine's engine, opened on first use.
    ///
    /// # Errors
    /// Fails if it cannot be opened. The next call tries again.
    pub async fn local(&self) -> Result<&LocalRuntime, RuntimeError> {
        let roots = self.roots().await?.clone();
        let open = || async {
            let (options, name) = (self.inner.options.clone(), self.inner.session.0.to_string());
            let opened = spawn_blocking(move || {
                let journal = Workspace::journal_directory(&options.paths.state_dir, &roots);
                let opened = Workspace::open(roots, &journal, options.workspace.clone())
                    .map_err(|error| RuntimeError::EngineUnavailable(error.to_string()))?;
                let notices = opened.notices.iter().map(ToString::to_string);
                for line in notices.chain(opened.recovered.iter().map(ToString::to_string)) {
                    options.log.write_line(line);
                }
                let session = opened.workspace.session(&name);
                let terminals = LocalTerminals::new(session.clone(), options.terminals.clone());
                Ok(LocalRuntime { workspace: opened.workspace, files: LocalFiles::new(session), terminals })
            });
            opened.await.map_err(|error| RuntimeError::EngineUnavailable(error.to_string()))?
        };
        self.inner.local.get_or_try_init(open).await
    }

    /// Returns the session's directories on this machine, opened on first use.
    ///
    /// # Errors
    /// Fails if they cannot be opened: they may exist only on the user's machine.
    pub async fn roots(&self) -> Result<&Roots, RuntimeError> {
        let open = || async {
            let cwd = RootSpec::writable(self.inner.cwd.as_str());
            let additional_roots: Vec<RootSpec> = self
                .inner
                .additional_directories
                .iter()
                .map(|path| RootSpec::writable(path.as_str()))
                .collect();
            let paths = self.inner.options.paths.clone();
            let opened = spawn_blocking(move || {
                Roots::open(&cwd, &additional_roots).map(|roots| protect_own_files(roots, &paths))
            });
            let opened = opened.await.map_err(|error| RuntimeError::EngineUnavailable(error.to_string()))?;
            opened.map_err(|error| RuntimeError::EngineUnavailable(error.to_string()))
        };
        self.inner.roots.get_or_try_init(open).await
    }

    /// Returns the names of the session's directories: canonical if they exist on this machine, otherwise as given.
    pub async fn root_names(&self) -> Vec<String> {
        match self.roots().await {
            Ok(roots) => roots.iter().map(|(path, _)| path.to_owned()).collect(),
            Err(_) => {
                let directories = std::iter::once(&self.inner.cwd).chain(&self.inner.additional_directories);
                directories.map(|path| path.as_str().to_owned()).collect()
            }
        }
    }

    /// Returns a file operation as the policy judges it. The target is the path resolved on this machine, for every
    /// backend, or the path's text where it cannot be resolved.
    ///
    /// # Errors
    /// Fails if the operation is never allowed.
    pub async fn file_operation(
        &self,
        kind: OperationKind,
        path: &LexicalPath,
    ) -> Result<Operation, RpcError> {
        let access = if kind == OperationKind::Read { Access::Read } else { Access::Write };
        let outside_roots = || Operation {
            kind,
            target: OperationTarget::OutsideRoots { requested: path.as_str().to_owned() },
        };
        if let Ok(roots) = self.roots().await {
            let (roots, requested) = (roots.clone(), path.as_str().to_owned());
            let admission = spawn_blocking(move || {
                roots.admit(&requested, access).map(|admitted| admitted.operation(kind))
            });
            match admission.await.map_err(|error| RpcError::Internal { reason: error.to_string() })? {
                Ok(operation) => return Ok(operation),
                Err(AdmitError::Refused(refusal @ AdmissionError::ReadOnlyRoot(_))) => {
                    return Err(refusal.into());
                }
                Err(error @ AdmitError::BowlineOwned(_)) => {
                    return Err(RpcError::Denied { reason: error.to_string() });
                }
                Err(error @ AdmitError::RootMoved(_)) => {
                    return Err(RpcError::Internal { reason: error.to_string() });
                }
                Err(AdmitError::Refused(_) | AdmitError::SystemFileSystem(_)) => return Ok(outside_roots()),
                // The client may have a file that this machine lacks.
                Err(_) => {}
            }
        }
        let root = |path: &LexicalPath| Root { path: path.clone(), mode: RootMode::Writable };
        let mut roots = paths::Roots::new(root(&self.inner.cwd));
        for path in &self.inner.additional_directories {
            roots.add(root(path)).map_err(|error| RpcError::InvalidParams { reason: error.to_string() })?;
        }
        Ok(roots.admit(path, access).map_or_else(
            |_| outside_roots(),
            |admitted| Operation {
                kind,
                target: OperationTarget::File {
                    requested: path.as_str().to_owned(),
                    resolved: path.as_str().to_owned(),
                    protection: admitted.protection(),
                },
            },
        ))
    }

    /// Records the title of a turn next to its changes, if this machine's engine is in use.
    pub async fn record_turn_title(&self, turn: u64, title: String) {
        let Some(engine) = self.inner.local.get() else { return };
        let (workspace, name) = (engine.workspace.clone(), self.inner.session.0.to_string());
        // Titles are only shown: one that cannot be saved is missing.
        spawn_blocking(move || workspace.record_turn_title(&name, turn, &title)).await.ok();
    }

    /// Ends this machine's part of the session. The journal is kept.
    pub async fn end_session(&self) {
        if let Some(engine) = self.inner.local.get() {
            engine.terminals.release_all().await;
            let session = engine.files.session().clone();
            // The session forgets what it saw; if the thread cannot run, the process end does the same.
            spawn_blocking(move || session.end()).await.ok();
        }
    }

    fn client_texts(&self) -> MutexGuard<'_, ClientTexts> {
        self.inner.client_texts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A workspace server has its own tools with more functions, so it is reached only through them.
fn workspace_tools_only() -> RuntimeError {
    RuntimeError::EngineUnavailable(
        "the client's workspace server writes and runs by its own tools".to_owned(),
    )
}

/// Denies access to Bowline's own files.
fn protect_own_files(roots: Roots, paths: &AgentPaths) -> Roots {
    let AgentPaths { state_dir: state, policy_file: policy, anchors_dir: anchors, keys_file: keys } = paths;
    let cwd = PathBuf::from(roots.cwd());
    // The file's directory, unless the project lies in it: then the file alone.
    let protected_path = |file: &Path| match file.parent() {
        Some(directory) if !cwd.starts_with(directory) => directory.to_owned(),
        _ => file.to_owned(),
    };
    let reserved = [state.clone(), anchors.clone(), protected_path(policy), protected_path(keys)];
    roots.with_reserved_paths(reserved)
}
