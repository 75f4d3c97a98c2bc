//! The editor as the workspace backend of an MCP server: the server's tools act through the editor.
//!
//! The editor reads and writes texts and runs commands in its terminals, and its user is asked before either changes
//! anything. The protocol has no methods for listing and searching, so these use this machine's disk; files that the
//! session has read are searched in the editor's version.
//!
//! The session's engine serves what the editor lacks, if it may act as a host. Where rules apply, the engine judges
//! each request before the editor sees it, and it does the listing and searching.

use std::collections::{BTreeSet, HashMap};
use std::future::{Future, ready};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_mcp::server::{ResourceProvider, WorkspaceBackend};
use bowline_policy::paths::Access;
use bowline_protocol::file_extension::{
    BatchError, BatchOperation, BatchResult, FileError, ReadFileResponse, ReadParams, StatFileResponse,
};
use bowline_protocol::relay::mcp_servers::EditorTools;
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::{
    CreateTerminalRequest, EnvVariable, KillTerminalRequest, ReadTextFileRequest, ReleaseTerminalRequest,
    SessionId, TerminalExitStatus, TerminalId, TerminalOutputRequest, WaitForTerminalExitRequest,
    WriteTextFileRequest,
};
use bowline_protocol::terminal::CommandExit;
use bowline_task::spawn_blocking;
use bowline_text::lines::{LineWindow, slice_lines};
use bowline_text::text;
use bowline_wire::{CallError, ClientHandle};
use bowline_workspace::BoxFuture;
use bowline_workspace::disk_snapshot::{DiskSnapshot, take_disk_snapshot};
use bowline_workspace::error::FilesError;
use bowline_workspace::files::{FileBackend, Requester, TextReadOutcome, TextWriteOutcome};
use bowline_workspace::list::{self, ListOptions, Listing};
use bowline_workspace::roots::{RootError, RootSpec, Roots};
use bowline_workspace::search::{self, SearchQuery, SearchResult, UnsavedTexts};
use bowline_workspace::terminals::{CommandRequest, TerminalBackend, TerminalSnapshot};
use bowline_workspace::workspace::TextSource;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::engine::RelayedOperation;
use crate::permission::{PermissionPrompt, run_with_permission};

mod engine_fallback;
mod file_extension;
mod resources;
mod session;
mod write;

use resources::EngineResources;
pub(crate) use session::BackendSession;

/// The editor's deadline for requests that need no person.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The most files that are searched in the editor's version; later ones are searched on disk.
const MAX_READ_FILES: usize = 64;

/// The largest file on disk that is compared with the editor's text.
const MAX_COMPARED_BYTES: u64 = 64 << 20;

/// The editor, for one session.
#[derive(Clone)]
pub(crate) struct EditorBackend {
    pub(crate) client: ClientHandle,
    // The prefix of its tool call ids: the server's name, because a session may have had several servers.
    pub(crate) call_id_prefix: String,
    session: BackendSession,
    // The operations that the editor performs itself.
    editor_tools: EditorTools,
    roots: Arc<Roots>,
    // Files that were read through the editor. Invariant: at most `MAX_READ_FILES`.
    read_files: Arc<Mutex<BTreeSet<String>>>,
    pub(crate) approvals: Arc<SessionApprovals>,
    // Terminals that no request has waited for yet, with the number of cancellations at the time of their creation.
    // Invariant: an entry is removed when its terminal is released, so there are no more than commands of the session.
    unawaited_terminals: Arc<Mutex<HashMap<TerminalId, u64>>>,
    resources: Arc<EngineResources>,
}

/// The user's approvals for the rest of the session, the number of prompts, and the editor's cancellations.
#[derive(Debug, Default)]
pub(crate) struct SessionApprovals {
    // How often the editor has cancelled a turn.
    cancellations: watch::Sender<u64>,
    pub(crate) allow_writes: AtomicBool,
    pub(crate) allow_commands: AtomicBool,
    pub(crate) prompt_count: AtomicU64,
}

impl SessionApprovals {
    /// Records that the editor cancels the turn.
    pub(crate) fn cancel(&self) {
        self.cancellations.send_modify(|count| *count += 1);
    }

    /// Returns how often the editor has cancelled so far.
    pub(crate) fn cancellations(&self) -> u64 {
        *self.cancellations.borrow()
    }

    /// Waits until the editor has cancelled more than `count` times.
    pub(crate) async fn wait_for_cancellation(&self, count: u64) {
        // The channel stays open: the waiting task holds the sender.
        self.cancellations.subscribe().wait_for(|now| *now > count).await.map(drop).unwrap_or_default();
    }
}

impl EditorBackend {
    /// Returns the backend for a session. `editor_tools` lists what the editor serves itself. Must be called within a
    /// runtime.
    ///
    /// # Errors
    /// Fails if its directory is unusable.
    pub(crate) fn new(
        client: ClientHandle,
        name: String,
        (session, editor_tools): (BackendSession, EditorTools),
        cwd: &str,
        additional: &[String],
    ) -> Result<Self, RootError> {
        let additional: Vec<RootSpec> = additional.iter().map(RootSpec::writable).collect();
        let roots = Roots::open(&RootSpec::writable(cwd), &additional)?;
        Ok(Self {
            client,
            call_id_prefix: name,
            editor_tools,
            resources: Arc::new(EngineResources::new(session.clone())),
            session,
            roots: Arc::new(roots),
            read_files: Arc::default(),
            approvals: Arc::default(),
            unawaited_terminals: Arc::default(),
        })
    }

    /// Returns the session's id.
    pub(crate) async fn session_id(&self) -> Result<SessionId, RpcError> {
        self.session.session_id().await
    }

    async fn read_text(&self, path: &str, window: LineWindow) -> Result<String, RpcError> {
        let request =
            ReadTextFileRequest::new(self.session_id().await?, path).line(window.line).limit(window.limit);
        let read = call_with_timeout(ANSWER_TIMEOUT, self.client.read_text_file(request)).await;
        match read {
            Ok(read) => Ok(read.content),
            // Not every editor returns the right error code. Whether the file exists and is text can be checked here.
            Err(failure @ (RpcError::ResourceNotFound { .. } | RpcError::Cancelled)) => Err(failure),
            Err(failure) => match self.take_disk_snapshot(path).await {
                DiskSnapshot::Missing => Err(RpcError::ResourceNotFound { uri: Some(path.to_owned()) }),
                DiskSnapshot::File { bytes, .. } => match text::decode(bytes) {
                    Ok(_) => Err(failure),
                    Err(_) => {
                        let reason = "the editor cannot read it".to_owned();
                        Err(RpcError::NotText { path: path.to_owned(), reason })
                    }
                },
                DiskSnapshot::Unknown => Err(failure),
            },
        }
    }

    /// Returns the state of a file on disk, if it is not too large to be compared with the editor's text.
    async fn take_disk_snapshot(&self, path: &str) -> DiskSnapshot {
        let (roots, path) = (self.roots.clone(), path.to_owned());
        let snapshot = spawn_blocking(move || take_disk_snapshot(&roots, &path, MAX_COMPARED_BYTES)).await;
        snapshot.unwrap_or(DiskSnapshot::Unknown)
    }

    fn unawaited_terminals(&self) -> MutexGuard<'_, HashMap<TerminalId, u64>> {
        self.unawaited_terminals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_files(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.read_files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the editor's texts of the files that were read.
    async fn read_unsaved_texts(&self) -> UnsavedTexts {
        let paths: Vec<String> = self.read_files().iter().cloned().collect();
        let mut texts = UnsavedTexts::new();
        for path in paths {
            if let Ok(text) = self.read_text(&path, LineWindow::default()).await {
                let roots = self.roots.clone();
                let admitted = spawn_blocking(move || roots.admit(&path, Access::Read)).await;
                if let Ok(Ok(admitted)) = admitted {
                    texts.insert(admitted.canonical().to_owned(), Arc::new(text));
                }
            }
        }
        texts
    }

    /// Returns whether the engine lists and searches: if it serves files, or if rules restrict which files may be read.
    fn is_searched_by_engine(&self) -> bool {
        !self.editor_tools.can_read || self.session.options().enforce_policy
    }

    async fn run_blocking<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&Roots) -> Result<T, FilesError> + Send + 'static,
    ) -> Result<T, RpcError> {
        let roots = self.roots.clone();
        let result = spawn_blocking(move || operation(&roots)).await;
        let to_rpc_error = |_| RpcError::Internal { reason: "a file operation ended early".to_owned() };
        Ok(result.map_err(to_rpc_error)??)
    }
}

/// Waits for a call up to a deadline, and converts its error.
async fn call_with_timeout<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, CallError>>,
) -> Result<T, RpcError> {
    match timeout(limit, call).await {
        Ok(answer) => answer.map_err(to_failure),
        Err(_) => Err(RpcError::Internal { reason: "the editor does not answer".to_owned() }),
    }
}

/// Converts the error of a failed call.
pub(crate) fn to_failure(error: CallError) -> RpcError {
    match error {
        CallError::ErrorResponse(error) => RpcError::from_error(&error),
        CallError::NotAdvertised(missing) => missing.into(),
        CallError::Closed => RpcError::Internal { reason: "the editor is gone".to_owned() },
        other => RpcError::Internal { reason: other.to_string() },
    }
}

/// Treats an unreadable success response as success.
fn ignore_unreadable<T>(result: Result<T, CallError>) -> Result<(), CallError> {
    match result {
        Ok(_) | Err(CallError::Unreadable { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

impl FileBackend for EditorBackend {
    fn read<'a>(
        &'a self,
        path: &'a str,
        window: LineWindow,
    ) -> BoxFuture<'a, Result<TextReadOutcome, RpcError>> {
        Box::pin(async move {
            let is_whole = (window == LineWindow::default()).then_some(true);
            if !self.editor_tools.can_read {
                let request = ReadTextFileRequest::new(self.session_id().await?, path)
                    .line(window.line)
                    .limit(window.limit);
                let read = self.call_engine(&request, None).await?;
                return Ok(TextReadOutcome {
                    text: Arc::new(read.content),
                    source: TextSource::Disk,
                    is_whole,
                });
            }
            self.session.authorize(RelayedOperation::Read { path: path.to_owned() }, None).await?;
            let text = self.read_text(path, window).await?;
            {
                let mut read = self.read_files();
                if read.len() < MAX_READ_FILES {
                    read.insert(path.to_owned());
                }
            }
            let is_longer = window.limit.is_some_and(|limit| text.lines().count() as u64 > u64::from(limit));
            // An editor that returns more lines than requested has ignored the window.
            let text =
                if is_longer { slice_lines(&text, window).map_err(RpcError::from)?.to_owned() } else { text };
            Ok(TextReadOutcome { text: Arc::new(text), source: TextSource::Document, is_whole })
        })
    }

    fn write<'a>(
        &'a self,
        path: &'a str,
        content: String,
        _: &'a Requester,
    ) -> BoxFuture<'a, Result<TextWriteOutcome, RpcError>> {
        Box::pin(async move {
            if self.editor_tools.can_write {
                return write::write_file(self, path, content).await;
            }
            let request = WriteTextFileRequest::new(self.session_id().await?, path, content);
            self.call_engine(&request, Some(path)).await?;
            Ok(TextWriteOutcome::default())
        })
    }

    fn list<'a>(&'a self, path: &'a str, options: ListOptions) -> BoxFuture<'a, Result<Listing, RpcError>> {
        Box::pin(async move {
            let path = path.to_owned();
            if self.is_searched_by_engine() {
                return self.session.engine().await?.list(path, options).await;
            }
            self.run_blocking(move |roots| {
                let directory = roots.admit(&path, Access::Read)?;
                Ok(list::list(roots, &directory, &options)?)
            })
            .await
        })
    }

    fn search(
        &self,
        query: SearchQuery,
        directory: Option<String>,
    ) -> BoxFuture<'_, Result<SearchResult, RpcError>> {
        Box::pin(async move {
            if self.is_searched_by_engine() {
                return self.session.engine().await?.search(query, directory).await;
            }
            let texts = self.read_unsaved_texts().await;
            self.run_blocking(move |roots| {
                let admitted = directory.map(|path| roots.admit(&path, Access::Read)).transpose()?;
                Ok(search::search(roots, &query, admitted.as_ref(), &texts)?)
            })
            .await
        })
    }

    fn serves_file_extension(&self) -> bool {
        true
    }

    fn stat<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<StatFileResponse, FileError>> {
        Box::pin(file_extension::stat(self, path))
    }

    fn read_data(&self, params: ReadParams) -> BoxFuture<'_, Result<ReadFileResponse, FileError>> {
        Box::pin(file_extension::read_data(self, params))
    }

    fn batch<'a>(
        &'a self,
        operations: Vec<BatchOperation>,
        _: &'a Requester,
    ) -> BoxFuture<'a, Result<Vec<BatchResult>, BatchError>> {
        Box::pin(file_extension::batch(self, operations))
    }
}

impl TerminalBackend for EditorBackend {
    fn create(&self, command: CommandRequest) -> BoxFuture<'_, Result<TerminalId, RpcError>> {
        Box::pin(async move {
            let prompt = PermissionPrompt::for_command(&command);
            let relayed = command.clone();
            let env = command.env.into_iter().map(|(name, value)| EnvVariable::new(name, value)).collect();
            let request = CreateTerminalRequest::new(self.session_id().await?, command.command)
                .args(command.args)
                .env(env)
                .cwd(command.cwd.map(Into::into))
                .output_byte_limit(command.output_limit);
            if !self.editor_tools.can_run {
                return Ok(self.call_engine(&request, None).await?.terminal_id);
            }
            let cancellations = self.approvals.cancellations();
            let create = async { self.client.create_terminal(request).await.map_err(to_failure) };
            let created = if self.session.options().enforce_policy {
                self.session.authorize(RelayedOperation::Run(relayed), None).await?;
                create.await?
            } else {
                run_with_permission(self, prompt, create).await?
            };
            if self.approvals.cancellations() > cancellations {
                // The editor reports its own failure to release it; the command is abandoned in any case.
                self.release(&created.terminal_id).await.unwrap_or_default();
                return Err(RpcError::Cancelled);
            }
            self.unawaited_terminals().insert(created.terminal_id.clone(), cancellations);
            Ok(created.terminal_id)
        })
    }

    fn output<'a>(&'a self, id: &'a TerminalId) -> BoxFuture<'a, Result<TerminalSnapshot, RpcError>> {
        Box::pin(async move {
            let request = TerminalOutputRequest::new(self.session_id().await?, id.clone());
            let response = match self.editor_tools.can_run {
                true => call_with_timeout(ANSWER_TIMEOUT, self.client.terminal_output(request)).await?,
                false => self.call_engine(&request, None).await?,
            };
            let exit = response.exit_status.as_ref().map(to_exit);
            Ok(TerminalSnapshot { text: response.output, truncated: response.truncated, exit })
        })
    }

    fn wait<'a>(&'a self, id: &'a TerminalId) -> BoxFuture<'a, Result<CommandExit, RpcError>> {
        Box::pin(async move {
            let cancellations =
                self.unawaited_terminals().remove(id).unwrap_or_else(|| self.approvals.cancellations());
            let request = WaitForTerminalExitRequest::new(self.session_id().await?, id.clone());
            let waiting = async {
                match self.editor_tools.can_run {
                    true => self.client.wait_for_terminal_exit(request).await.map_err(to_failure),
                    false => self.call_engine(&request, None).await,
                }
            };
            tokio::select! {
                biased;
                // Not every agent tells its servers that a call was cancelled with its turn: gemini does not.
                () = self.approvals.wait_for_cancellation(cancellations) => Err(RpcError::Cancelled),
                waited = waiting => Ok(to_exit(&waited?.exit_status)),
            }
        })
    }

    fn kill<'a>(&'a self, id: &'a TerminalId) -> BoxFuture<'a, Result<(), RpcError>> {
        Box::pin(async move {
            let request = KillTerminalRequest::new(self.session_id().await?, id.clone());
            if !self.editor_tools.can_run {
                return self.call_engine(&request, None).await.map(drop);
            }
            call_with_timeout(ANSWER_TIMEOUT, async {
                ignore_unreadable(self.client.kill_terminal(request).await)
            })
            .await
        })
    }

    fn release<'a>(&'a self, id: &'a TerminalId) -> BoxFuture<'a, Result<(), RpcError>> {
        Box::pin(async move {
            self.unawaited_terminals().remove(id);
            let request = ReleaseTerminalRequest::new(self.session_id().await?, id.clone());
            if !self.editor_tools.can_run {
                return self.call_engine(&request, None).await.map(drop);
            }
            call_with_timeout(ANSWER_TIMEOUT, async {
                ignore_unreadable(self.client.release_terminal(request).await)
            })
            .await
        })
    }
}

/// Returns how a command ended. A status without details counts as exit code 0.
fn to_exit(status: &TerminalExitStatus) -> CommandExit {
    match (&status.signal, status.exit_code) {
        (Some(signal), _) => CommandExit::Signal(signal.clone()),
        (None, code) => CommandExit::Code(code.and_then(|code| i32::try_from(code).ok()).unwrap_or_default()),
    }
}

impl WorkspaceBackend for EditorBackend {
    fn root(&self) -> &str {
        self.roots.cwd()
    }

    fn files(&self) -> &dyn FileBackend {
        self
    }

    fn terminals(&self) -> &dyn TerminalBackend {
        self
    }

    fn resources(&self) -> Option<&dyn ResourceProvider> {
        Some(&*self.resources)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(ready(()))
    }
}
