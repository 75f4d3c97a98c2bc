//! An in-memory editor that serves an agent as real editors do, and as bad ones do: it formats on save, its user types
//! and refuses, it stalls, sends malformed responses and dies. It logs every request and notification.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_client_protocol_schema::v1::{
    ClientCapabilities, CreateTerminalRequest, CreateTerminalResponse, Error, FileSystemCapabilities,
    InitializeRequest, KillTerminalRequest, KillTerminalResponse, Meta, PermissionOptionKind,
    ReadTextFileRequest, ReadTextFileResponse, ReleaseTerminalRequest, ReleaseTerminalResponse,
    RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse, SelectedPermissionOutcome,
    SessionNotification, TerminalExitStatus, TerminalId, TerminalOutputRequest, TerminalOutputResponse,
    WaitForTerminalExitRequest, WaitForTerminalExitResponse, WriteTextFileRequest, WriteTextFileResponse,
};
use anyhow::Result;
use bowline_protocol::capabilities::version;
use bowline_protocol::file_extension::{
    BatchFilesRequest, BatchFilesResponse, DirectoryEntry, FileCapabilities, FileError, FileLimits, FileType,
    ListDirectoryRequest, ListDirectoryResponse, StatFileRequest, StatFileResponse,
};
use bowline_protocol::rpc_error::RpcError;
use bowline_text::lines::{LineWindow, slice_lines};
use bowline_wire::{
    Agent, AgentHandle, Client, ClientContext, ClientHandle, ConnectionLimits, connect_agent, connect_client,
};
use serde_json::json;
use tokio::sync::Notify;

mod batch;
mod format;

/// The client capabilities of an editor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EditorCapabilities {
    /// Reading files.
    pub read: bool,
    /// Writing files.
    pub write: bool,
    /// Terminals.
    pub terminal: bool,
    /// Listing directories, by the file extension.
    pub list: bool,
    /// Metadata and batches, by the file extension.
    pub batch: bool,
}

impl EditorCapabilities {
    /// Every capability of ACP itself.
    pub const ALL: Self = Self { read: true, write: true, terminal: true, list: false, batch: false };
    /// No capability.
    pub const NONE: Self = Self { read: false, write: false, terminal: false, list: false, batch: false };
}

/// The number of entries on a page of a listing.
const PAGE_ENTRIES: usize = 2;

/// A fault: what an editor does instead of serving a request.
#[derive(Debug, Clone)]
pub enum EditorFault {
    /// Responds with an error.
    Refuse(Error),
    /// Never responds; logs the cancellation of the request.
    Stall,
    /// Disconnects before it acts.
    Disconnect,
    /// Acts on the request, and disconnects before it responds.
    DisconnectAfterActing,
    /// Acts on the request, and never responds.
    StallAfterActing,
    /// Does nothing until the request is cancelled, then acts on it and responds.
    ActAfterCancel,
    /// None: serves the request, so that a later one meets the next fault.
    Serve,
}

/// The user's answer to a permission request.
#[derive(Debug, Clone)]
pub enum UserAnswer {
    /// Selects the first option of this kind.
    OptionKind(PermissionOptionKind),
    /// Selects the option with this id, offered or not.
    OptionId(&'static str),
    /// Rejects with a reason, in the form that our own host uses.
    RejectWithReason(&'static str),
    /// Reports that the turn is cancelled.
    Cancelled,
    /// Fails to ask the user.
    Failed(Error),
    /// Never answers.
    NoAnswer,
}

/// A simulated command.
#[derive(Debug, Clone)]
pub struct FakeCommand {
    /// The output.
    pub output: String,
    /// How the command ends; `None` for a command that runs until it is killed.
    pub exit: Option<TerminalExitStatus>,
    /// Whether the editor reports the output as truncated.
    pub truncated: bool,
}

impl FakeCommand {
    /// Creates a command that exits with a code.
    pub fn exited(output: &str, code: u32) -> Self {
        let exit = Some(TerminalExitStatus::new().exit_code(code));
        Self { output: output.to_owned(), exit, truncated: false }
    }

    /// Creates a command that runs until it is killed.
    pub fn endless(output: &str) -> Self {
        Self { output: output.to_owned(), exit: None, truncated: false }
    }
}

/// The text of files, by path.
pub type EditorDocuments = BTreeMap<String, String>;

type FormatFn = Box<dyn Fn(&str, &str) -> String + Send>;
type AfterHook = Box<dyn FnOnce(&mut EditorDocuments) + Send>;

/// An editor with documents in memory.
pub struct FakeEditor {
    capabilities: EditorCapabilities,
    state: Mutex<State>,
    changed: Notify,
    disconnect: Notify,
}

#[derive(Default)]
struct State {
    documents: EditorDocuments,
    formatter: Option<FormatFn>,
    faults: Vec<(&'static str, EditorFault)>,
    hooks: Vec<(&'static str, AfterHook)>,
    answers: VecDeque<UserAnswer>,
    commands: VecDeque<FakeCommand>,
    terminals: HashMap<TerminalId, FakeCommand>,
    terminals_created: u32,
    is_empty_past_end: bool,
    log: Vec<String>,
    replacements: Vec<(String, String)>,
}

impl FakeEditor {
    /// Creates an editor without documents, whose user allows every request once.
    pub fn new(capabilities: EditorCapabilities) -> Arc<Self> {
        let (state, changed, disconnect) = (Mutex::default(), Notify::new(), Notify::new());
        Arc::new(Self { capabilities, state, changed, disconnect })
    }

    /// Connects an agent in the same process, and initialises the connection. Returns both ends: the client as the
    /// agent sees it, and the agent as the editor sees it.
    ///
    /// # Errors
    /// Fails if the initialisation fails.
    pub async fn connect(self: &Arc<Self>, agent: impl Agent) -> Result<(ClientHandle, AgentHandle)> {
        let (client_end, agent_end) = tokio::io::duplex(64 << 10);
        let (reader, writer) = tokio::io::split(agent_end);
        let (client, serving) = connect_agent(Arc::new(agent), reader, writer, ConnectionLimits::DEFAULT);
        tokio::spawn(serving);
        let (reader, writer) = tokio::io::split(client_end);
        let (agent, serving) = connect_client(self.clone(), reader, writer, ConnectionLimits::DEFAULT);
        let editor = self.clone();
        tokio::spawn(async move {
            tokio::select! {
                ended = serving => drop(ended),
                () = editor.disconnect.notified() => {}
            }
        });
        agent.initialize(self.initialize_request()).await?;
        Ok((client, agent))
    }

    /// Returns the editor's `initialize` request.
    pub fn initialize_request(&self) -> InitializeRequest {
        let EditorCapabilities { read, write, terminal, list, batch } = self.capabilities;
        let files = FileSystemCapabilities::new().read_text_file(read).write_text_file(write);
        let mut capabilities = ClientCapabilities::new().fs(files).terminal(terminal);
        if list || batch {
            let all = FileCapabilities::with_limits(&FileLimits::DEFAULT);
            let offered = FileCapabilities {
                list: all.list.filter(|_| list),
                stat: all.stat.filter(|_| batch),
                batch: all.batch.filter(|_| batch),
                ..FileCapabilities::default()
            };
            offered.insert_into(capabilities.meta.get_or_insert_default());
        }
        InitializeRequest::new(version::LATEST).client_capabilities(capabilities)
    }

    /// Opens a document, or changes it as its user would.
    pub fn set_document(&self, path: &str, text: &str) {
        self.state().documents.insert(path.to_owned(), text.to_owned());
    }

    /// Returns the text of a document.
    pub fn document(&self, path: &str) -> Option<String> {
        self.state().documents.get(path).cloned()
    }

    /// Formats every written text with a function.
    pub fn set_formatter(&self, formatter: impl Fn(&str, &str) -> String + Send + 'static) {
        self.state().formatter = Some(Box::new(formatter));
    }

    /// Responds with an empty text instead of an error to reads past the end of a document.
    pub fn return_empty_past_end(&self) {
        self.state().is_empty_past_end = true;
    }

    /// Makes the next call of this method fail with a fault.
    pub fn queue_fault(&self, method: &'static str, fault: EditorFault) {
        self.state().faults.push((method, fault));
    }

    /// Runs a hook on the documents, such as the user's typing, right after the next response to this method.
    pub fn run_after(&self, method: &'static str, hook: impl FnOnce(&mut EditorDocuments) + Send + 'static) {
        self.state().hooks.push((method, Box::new(hook)));
    }

    /// Queues the user's answer to a permission request.
    pub fn queue_answer(&self, answer: UserAnswer) {
        self.state().answers.push_back(answer);
    }

    /// Queues a command for the next terminal; without one, a command ends at once with no output.
    pub fn queue_command(&self, run: FakeCommand) {
        self.state().commands.push_back(run);
    }

    /// Changes the command of a terminal: its output, or how it ends.
    pub fn update_terminal(&self, id: &str, change: impl FnOnce(&mut FakeCommand)) {
        if let Some(run) = self.state().terminals.get_mut(&TerminalId::new(id)) {
            change(run);
        }
        self.changed.notify_waiters();
    }

    /// Returns the number of terminals that are not released.
    pub fn open_terminals(&self) -> usize {
        self.state().terminals.len()
    }

    /// Replaces a text everywhere in the log, such as a directory whose name differs between runs.
    pub fn replace_in_log(&self, text: &str, name: &str) {
        self.state().replacements.push((text.to_owned(), name.to_owned()));
    }

    /// Closes the connection at once.
    pub fn disconnect(&self) {
        self.disconnect.notify_one();
    }

    /// Returns the log since the last call, line by line.
    pub fn take_log(&self) -> String {
        let lines = std::mem::take(&mut self.state().log);
        lines.into_iter().map(|line| line + "\n").collect()
    }

    /// Waits until a line of the log contains this text.
    pub async fn wait_for_log(&self, text: &str) {
        self.wait_until(|state| state.log.iter().any(|line| line.contains(text))).await;
    }

    async fn wait_until(&self, condition: impl Fn(&State) -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if condition(&self.state()) {
                return;
            }
            changed.await;
        }
    }

    fn log_line(&self, line: String) {
        let mut state = self.state();
        let line = state.replacements.iter().fold(line, |line, (text, name)| line.replace(text, name));
        state.log.push(line);
        drop(state);
        self.changed.notify_waiters();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Acts on a request, unless a fault is queued.
    async fn serve<T>(
        &self,
        method: &'static str,
        cx: &ClientContext,
        line: String,
        operation: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        self.log_line(format!("< {method} {line}"));
        let fault = {
            let mut state = self.state();
            let at = state.faults.iter().position(|(name, _)| *name == method);
            at.map(|at| state.faults.remove(at).1)
        };
        match fault {
            Some(EditorFault::Refuse(error)) => return Err(error),
            Some(EditorFault::Stall) => return Err(self.wait_for_cancel(method, cx).await),
            Some(EditorFault::Disconnect) => {
                self.disconnect();
                return Err(self.wait_for_cancel(method, cx).await);
            }
            Some(EditorFault::DisconnectAfterActing) => {
                operation.await?;
                self.disconnect();
                return Err(self.wait_for_cancel(method, cx).await);
            }
            Some(EditorFault::StallAfterActing) => {
                operation.await?;
                return Err(self.wait_for_cancel(method, cx).await);
            }
            Some(EditorFault::ActAfterCancel) => {
                // This fault ignores the cancellation.
                drop(self.wait_for_cancel(method, cx).await);
                return operation.await;
            }
            Some(EditorFault::Serve) | None => {}
        }
        let answer = tokio::select! {
            biased;
            error = self.wait_for_cancel(method, cx) => Err(error),
            answer = operation => answer,
        };
        let mut state = self.state();
        if let Some(at) = state.hooks.iter().position(|(name, _)| *name == method) {
            let (_, hook) = state.hooks.remove(at);
            hook(&mut state.documents);
        }
        answer
    }

    async fn wait_for_cancel(&self, method: &str, cx: &ClientContext) -> Error {
        cx.cancelled().await;
        self.log_line(format!("< $/cancel_request for {method}"));
        RpcError::Cancelled.into()
    }

    fn find_terminal(&self, id: &TerminalId) -> Result<FakeCommand, Error> {
        let run = self.state().terminals.get(id).cloned();
        run.ok_or_else(|| RpcError::ResourceNotFound { uri: Some(id.to_string()) }.into())
    }

    fn answer_permission(
        &self,
        request: &RequestPermissionRequest,
    ) -> Option<Result<RequestPermissionResponse, Error>> {
        let answer = self.state().answers.pop_front();
        let find_option = |kind| request.options.iter().find(|option| option.kind == kind);
        let selected =
            |id: &str| RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(id.to_owned()));
        let outcome = |kind| {
            find_option(kind)
                .map_or(RequestPermissionOutcome::Cancelled, |option| selected(&option.option_id.0))
        };
        Some(Ok(match answer.unwrap_or(UserAnswer::OptionKind(PermissionOptionKind::AllowOnce)) {
            UserAnswer::OptionKind(kind) => RequestPermissionResponse::new(outcome(kind)),
            UserAnswer::OptionId(id) => RequestPermissionResponse::new(selected(id)),
            UserAnswer::RejectWithReason(reason) => {
                let mut meta = Meta::new();
                meta.insert("bowline".to_owned(), json!({ "reason": reason }));
                RequestPermissionResponse::new(outcome(PermissionOptionKind::RejectOnce)).meta(meta)
            }
            UserAnswer::Cancelled => RequestPermissionResponse::new(RequestPermissionOutcome::Cancelled),
            UserAnswer::Failed(error) => return Some(Err(error)),
            UserAnswer::NoAnswer => return None,
        }))
    }
}

impl Client for FakeEditor {
    async fn request_permission(
        &self,
        request: RequestPermissionRequest,
        cx: ClientContext,
    ) -> Result<RequestPermissionResponse, Error> {
        let line = format::format_permission(&request);
        let answer = async {
            match self.answer_permission(&request) {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        };
        self.serve("session/request_permission", &cx, line, answer).await
    }

    async fn session_update(&self, notification: SessionNotification, _: AgentHandle) {
        self.log_line(format::format_update(&notification.update));
    }

    async fn list_directory(
        &self,
        request: ListDirectoryRequest,
        cx: ClientContext,
    ) -> Result<ListDirectoryResponse, Error> {
        let directory = format!("{}/", request.path.display());
        let after = request.cursor.clone().map(|cursor| format!(" after {cursor}")).unwrap_or_default();
        let list = async {
            let state = self.state();
            let names = state.documents.iter().filter_map(|(path, text)| {
                let name = path.strip_prefix(&directory)?;
                Some((name.to_owned(), text.len() as u64))
            });
            let rest: Vec<_> = names
                .filter(|(name, _)| request.cursor.as_ref().is_none_or(|cursor| name > cursor))
                .collect();
            let entries: Vec<DirectoryEntry> = rest
                .iter()
                .take(PAGE_ENTRIES)
                .map(|(name, size)| DirectoryEntry {
                    name: name.clone(),
                    file_type: FileType::File,
                    size: Some(*size),
                    modified_at_ms: None,
                })
                .collect();
            let is_last = rest.len() <= PAGE_ENTRIES;
            let next_cursor = entries.last().filter(|_| !is_last).map(|last| last.name.clone());
            Ok(ListDirectoryResponse { truncated: !is_last, next_cursor, entries })
        };
        self.serve("_bowline/fs/list", &cx, format!("{}{after}", request.path.display()), list).await
    }

    async fn stat_file(
        &self,
        request: StatFileRequest,
        cx: ClientContext,
    ) -> Result<StatFileResponse, Error> {
        let path = request.path.display().to_string();
        let stat = async {
            let missing = || FileError::NotFound { path: path.clone() };
            let text = self.document(&path).ok_or_else(missing)?;
            let mut stat = StatFileResponse::new(FileType::File, text.len() as u64);
            (stat.encoding, stat.dirty) = (Some("UTF-8".to_owned()), true);
            Ok(stat)
        };
        self.serve("_bowline/fs/stat", &cx, path.clone(), stat).await
    }

    async fn batch_files(
        &self,
        request: BatchFilesRequest,
        cx: ClientContext,
    ) -> Result<BatchFilesResponse, Error> {
        let line = batch::format_operations(&request.operations);
        let run = async {
            let operations = request.into_operations(&FileLimits::DEFAULT)?;
            let mut state = self.state();
            let (documents, results) =
                batch::apply_operations(&state.documents, operations, state.formatter.as_deref())?;
            state.documents = documents;
            Ok(BatchFilesResponse::new(results))
        };
        self.serve("_bowline/fs/batch", &cx, line, run).await
    }

    async fn read_text_file(
        &self,
        request: ReadTextFileRequest,
        cx: ClientContext,
    ) -> Result<ReadTextFileResponse, Error> {
        let path = request.path.to_string_lossy().into_owned();
        let window = LineWindow { line: request.line, limit: request.limit };
        let part = |name: &str, value: Option<u32>| {
            value.map(|value| format!(" {name}={value}")).unwrap_or_default()
        };
        let line = format!("{path}{}{}", part("line", window.line), part("limit", window.limit));
        let read = async {
            let text =
                self.document(&path).ok_or_else(|| RpcError::ResourceNotFound { uri: Some(path.clone()) })?;
            let part = match slice_lines(&text, window) {
                Err(_) if self.state().is_empty_past_end => "",
                part => part.map_err(RpcError::from)?,
            };
            Ok(ReadTextFileResponse::new(part))
        };
        self.serve("fs/read_text_file", &cx, line, read).await
    }

    async fn write_text_file(
        &self,
        request: WriteTextFileRequest,
        cx: ClientContext,
    ) -> Result<WriteTextFileResponse, Error> {
        let path = request.path.to_string_lossy().into_owned();
        let line = format!("{path} {:?}", request.content);
        let write = async {
            let mut state = self.state();
            let text = match &state.formatter {
                Some(format) => format(&path, &request.content),
                None => request.content.clone(),
            };
            state.documents.insert(path.clone(), text);
            Ok(WriteTextFileResponse::new())
        };
        self.serve("fs/write_text_file", &cx, line, write).await
    }

    async fn create_terminal(
        &self,
        request: CreateTerminalRequest,
        cx: ClientContext,
    ) -> Result<CreateTerminalResponse, Error> {
        let create = async {
            let mut state = self.state();
            state.terminals_created += 1;
            let id = TerminalId::new(format!("t{}", state.terminals_created));
            let run = state.commands.pop_front().unwrap_or_else(|| FakeCommand::exited("", 0));
            state.terminals.insert(id.clone(), run);
            Ok(CreateTerminalResponse::new(id))
        };
        self.serve("terminal/create", &cx, format::format_command(&request), create).await
    }

    async fn terminal_output(
        &self,
        request: TerminalOutputRequest,
        cx: ClientContext,
    ) -> Result<TerminalOutputResponse, Error> {
        let id = &request.terminal_id;
        let output = async {
            let FakeCommand { output, exit, truncated } = self.find_terminal(id)?;
            Ok(TerminalOutputResponse::new(output, truncated).exit_status(exit))
        };
        self.serve("terminal/output", &cx, id.to_string(), output).await
    }

    async fn wait_for_terminal_exit(
        &self,
        request: WaitForTerminalExitRequest,
        cx: ClientContext,
    ) -> Result<WaitForTerminalExitResponse, Error> {
        let id = &request.terminal_id;
        let waiting = async {
            self.find_terminal(id)?;
            self.wait_until(|state| state.terminals.get(id).is_none_or(|run| run.exit.is_some())).await;
            let exit = self.find_terminal(id)?.exit.unwrap_or_default();
            Ok(WaitForTerminalExitResponse::new(exit))
        };
        self.serve("terminal/wait_for_exit", &cx, id.to_string(), waiting).await
    }

    async fn kill_terminal(
        &self,
        request: KillTerminalRequest,
        cx: ClientContext,
    ) -> Result<KillTerminalResponse, Error> {
        let id = &request.terminal_id;
        let kill = async {
            self.find_terminal(id)?;
            self.update_terminal(&id.0, |run| {
                run.exit.get_or_insert_with(|| TerminalExitStatus::new().signal("SIGKILL".to_owned()));
            });
            Ok(KillTerminalResponse::new())
        };
        self.serve("terminal/kill", &cx, id.to_string(), kill).await
    }

    async fn release_terminal(
        &self,
        request: ReleaseTerminalRequest,
        cx: ClientContext,
    ) -> Result<ReleaseTerminalResponse, Error> {
        let id = &request.terminal_id;
        let release = async {
            self.find_terminal(id)?;
            self.state().terminals.remove(id);
            self.changed.notify_waiters();
            Ok(ReleaseTerminalResponse::new())
        };
        self.serve("terminal/release", &cx, id.to_string(), release).await
    }
}
