//! An editor in memory that serves an agent as real ones do, and as bad ones do: it formats on save, its user types and
//! refuses, it stalls, answers nonsense and dies. Everything that it is asked and told is written down.

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
use bowline_state::failure::Failure;
use bowline_state::lines::{Window, slice};
use bowline_state::version;
use bowline_wire::{
    Agent, AgentHandle, Client, ClientContext, ClientHandle, Limits, connect_agent, connect_client,
};
use serde_json::json;
use tokio::sync::Notify;

mod told;

/// What an editor offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offers {
    /// Reading files.
    pub read: bool,
    /// Writing files.
    pub write: bool,
    /// Terminals.
    pub terminal: bool,
}

impl Offers {
    /// Everything.
    pub const ALL: Self = Self { read: true, write: true, terminal: true };
    /// Nothing.
    pub const NONE: Self = Self { read: false, write: false, terminal: false };
}

/// What an editor does in place of what it is asked.
#[derive(Debug, Clone)]
pub enum Trouble {
    /// It answers an error.
    Refuses(Error),
    /// It never answers; that the request is cancelled is written down.
    Stalls,
    /// It is gone before it does anything.
    Dies,
    /// It does what it is asked, and is gone before it answers.
    DiesAfterwards,
    /// It does what it is asked, and never says so.
    StallsAfterwards,
    /// It does nothing until the request is cancelled, and then does what it was asked, and says so.
    ActsLate,
}

/// What the user says.
#[derive(Debug, Clone)]
pub enum Says {
    /// The first option of this kind.
    Kind(PermissionOptionKind),
    /// The option of this id, offered or not.
    Id(&'static str),
    /// No, and why: as our own host tells it.
    NoBecause(&'static str),
    /// The turn is cancelled.
    Cancelled,
    /// The editor cannot ask.
    Fails(Error),
    /// Nothing.
    Nothing,
}

/// A command as it will run.
#[derive(Debug, Clone)]
pub struct Run {
    /// What it puts out.
    pub output: String,
    /// How it ends; if nothing is said, only when it is killed.
    pub exit: Option<TerminalExitStatus>,
    /// Whether the editor says that some output is missing.
    pub truncated: bool,
}

impl Run {
    /// A command that ends with a code.
    pub fn ended(output: &str, code: u32) -> Self {
        let exit = Some(TerminalExitStatus::new().exit_code(code));
        Self { output: output.to_owned(), exit, truncated: false }
    }

    /// A command that runs until it is killed.
    pub fn endless(output: &str) -> Self {
        Self { output: output.to_owned(), exit: None, truncated: false }
    }
}

/// What files hold, by path.
pub type Documents = BTreeMap<String, String>;

type Formatter = Box<dyn Fn(&str, &str) -> String + Send>;
type Hook = Box<dyn FnOnce(&mut Documents) + Send>;

/// An editor with documents in memory.
pub struct Editor {
    offers: Offers,
    state: Mutex<State>,
    changed: Notify,
    death: Notify,
}

#[derive(Default)]
struct State {
    documents: Documents,
    formatter: Option<Formatter>,
    troubles: Vec<(&'static str, Trouble)>,
    hooks: Vec<(&'static str, Hook)>,
    says: VecDeque<Says>,
    runs: VecDeque<Run>,
    terminals: HashMap<TerminalId, Run>,
    created: u32,
    is_empty_past_end: bool,
    log: Vec<String>,
    hidden: Vec<(String, String)>,
}

impl Editor {
    /// Returns an editor that has no document, and whose user allows everything once.
    pub fn new(offers: Offers) -> Arc<Self> {
        let (state, changed, death) = (Mutex::default(), Notify::new(), Notify::new());
        Arc::new(Self { offers, state, changed, death })
    }

    /// Connects an agent in the same process, and greets it. Returns both ends: the client as the agent sees it, and the
    /// agent as the editor does.
    ///
    /// # Errors
    /// Fails if the two cannot agree.
    pub async fn connect(self: &Arc<Self>, agent: impl Agent) -> Result<(ClientHandle, AgentHandle)> {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let (reader, writer) = tokio::io::split(theirs);
        let (client, serving) = connect_agent(Arc::new(agent), reader, writer, Limits::DEFAULT);
        tokio::spawn(serving);
        let (reader, writer) = tokio::io::split(ours);
        let (agent, serving) = connect_client(self.clone(), reader, writer, Limits::DEFAULT);
        let its = self.clone();
        tokio::spawn(async move {
            tokio::select! {
                ended = serving => drop(ended),
                () = its.death.notified() => {}
            }
        });
        agent.initialize(self.greeting()).await?;
        Ok((client, agent))
    }

    /// Returns what the editor says first.
    pub fn greeting(&self) -> InitializeRequest {
        let Offers { read, write, terminal } = self.offers;
        let files = FileSystemCapabilities::new().read_text_file(read).write_text_file(write);
        let capabilities = ClientCapabilities::new().fs(files).terminal(terminal);
        InitializeRequest::new(version::LATEST).client_capabilities(capabilities)
    }

    /// Opens a document, or changes it as its user would.
    pub fn put(&self, path: &str, text: &str) {
        self.state().documents.insert(path.to_owned(), text.to_owned());
    }

    /// Returns what a document holds.
    pub fn get(&self, path: &str) -> Option<String> {
        self.state().documents.get(path).cloned()
    }

    /// Formats every text that is written.
    pub fn format(&self, formatter: impl Fn(&str, &str) -> String + Send + 'static) {
        self.state().formatter = Some(Box::new(formatter));
    }

    /// Gives nothing, in place of an error, where lines are asked for that a document does not have.
    pub fn be_empty_past_end(&self) {
        self.state().is_empty_past_end = true;
    }

    /// Does something else than it is asked, the next time that this method is called.
    pub fn trouble(&self, method: &'static str, trouble: Trouble) {
        self.state().troubles.push((method, trouble));
    }

    /// Lets the user type something, right after this method is answered the next time.
    pub fn after(&self, method: &'static str, act: impl FnOnce(&mut Documents) + Send + 'static) {
        self.state().hooks.push((method, Box::new(act)));
    }

    /// Says what the user says to the next question that has no answer yet.
    pub fn say(&self, says: Says) {
        self.state().says.push_back(says);
    }

    /// Says how the next command runs that nothing was said of yet; others end at once, with no output.
    pub fn run(&self, run: Run) {
        self.state().runs.push_back(run);
    }

    /// Changes what a terminal shows, and lets its command end.
    pub fn terminal(&self, id: &str, change: impl FnOnce(&mut Run)) {
        if let Some(run) = self.state().terminals.get_mut(&TerminalId::new(id)) {
            change(run);
        }
        self.changed.notify_waiters();
    }

    /// Returns the terminals that were not given up.
    pub fn open_terminals(&self) -> usize {
        self.state().terminals.len()
    }

    /// Writes something else in place of a text, wherever it comes: a directory that has another name each time.
    pub fn hide(&self, text: &str, name: &str) {
        self.state().hidden.push((text.to_owned(), name.to_owned()));
    }

    /// Closes the connection at once.
    pub fn die(&self) {
        self.death.notify_one();
    }

    /// Returns what was asked and told since the last time, line by line.
    pub fn take_log(&self) -> String {
        let lines = std::mem::take(&mut self.state().log);
        lines.into_iter().map(|line| line + "\n").collect()
    }

    /// Waits until something that was asked or told has this text in it.
    pub async fn until(&self, text: &str) {
        self.wait(|state| state.log.iter().any(|line| line.contains(text))).await;
    }

    async fn wait(&self, condition: impl Fn(&State) -> bool) {
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

    fn note(&self, line: String) {
        let mut state = self.state();
        let line = state.hidden.iter().fold(line, |line, (text, name)| line.replace(text, name));
        state.log.push(line);
        drop(state);
        self.changed.notify_waiters();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what was asked, unless there is trouble.
    async fn serve<T>(
        &self,
        method: &'static str,
        cx: &ClientContext,
        line: String,
        act: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        self.note(format!("< {method} {line}"));
        let trouble = {
            let mut state = self.state();
            let at = state.troubles.iter().position(|(its, _)| *its == method);
            at.map(|at| state.troubles.remove(at).1)
        };
        match trouble {
            Some(Trouble::Refuses(error)) => return Err(error),
            Some(Trouble::Stalls) => return Err(self.stall(method, cx).await),
            Some(Trouble::Dies) => {
                self.die();
                return Err(self.stall(method, cx).await);
            }
            Some(Trouble::DiesAfterwards) => {
                act.await?;
                self.die();
                return Err(self.stall(method, cx).await);
            }
            Some(Trouble::StallsAfterwards) => {
                act.await?;
                return Err(self.stall(method, cx).await);
            }
            Some(Trouble::ActsLate) => {
                // That it is cancelled is no reason for such an editor.
                drop(self.stall(method, cx).await);
                return act.await;
            }
            None => {}
        }
        let answer = tokio::select! {
            biased;
            error = self.stall(method, cx) => Err(error),
            answer = act => answer,
        };
        let mut state = self.state();
        if let Some(at) = state.hooks.iter().position(|(its, _)| *its == method) {
            let (_, hook) = state.hooks.remove(at);
            hook(&mut state.documents);
        }
        answer
    }

    async fn stall(&self, method: &str, cx: &ClientContext) -> Error {
        cx.cancelled().await;
        self.note(format!("< $/cancel_request for {method}"));
        Failure::Cancelled.into()
    }

    fn known(&self, id: &TerminalId) -> Result<Run, Error> {
        let run = self.state().terminals.get(id).cloned();
        run.ok_or_else(|| Failure::ResourceNotFound { uri: Some(id.to_string()) }.into())
    }

    fn answer(&self, request: &RequestPermissionRequest) -> Option<Result<RequestPermissionResponse, Error>> {
        let says = self.state().says.pop_front();
        let of_kind = |kind| request.options.iter().find(|option| option.kind == kind);
        let selected =
            |id: &str| RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(id.to_owned()));
        let kind = |kind| {
            of_kind(kind).map_or(RequestPermissionOutcome::Cancelled, |option| selected(&option.option_id.0))
        };
        Some(Ok(match says.unwrap_or(Says::Kind(PermissionOptionKind::AllowOnce)) {
            Says::Kind(wanted) => RequestPermissionResponse::new(kind(wanted)),
            Says::Id(id) => RequestPermissionResponse::new(selected(id)),
            Says::NoBecause(why) => {
                let mut meta = Meta::new();
                meta.insert("bowline".to_owned(), json!({ "reason": why }));
                RequestPermissionResponse::new(kind(PermissionOptionKind::RejectOnce)).meta(meta)
            }
            Says::Cancelled => RequestPermissionResponse::new(RequestPermissionOutcome::Cancelled),
            Says::Fails(error) => return Some(Err(error)),
            Says::Nothing => return None,
        }))
    }
}

impl Client for Editor {
    async fn request_permission(
        &self,
        request: RequestPermissionRequest,
        cx: ClientContext,
    ) -> Result<RequestPermissionResponse, Error> {
        let line = told::permission(&request);
        let answer = async {
            match self.answer(&request) {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        };
        self.serve("session/request_permission", &cx, line, answer).await
    }

    async fn session_update(&self, notification: SessionNotification, _: AgentHandle) {
        self.note(told::update(&notification.update));
    }

    async fn read_text_file(
        &self,
        request: ReadTextFileRequest,
        cx: ClientContext,
    ) -> Result<ReadTextFileResponse, Error> {
        let path = request.path.to_string_lossy().into_owned();
        let window = Window { line: request.line, limit: request.limit };
        let part = |name: &str, value: Option<u32>| {
            value.map(|value| format!(" {name}={value}")).unwrap_or_default()
        };
        let line = format!("{path}{}{}", part("line", window.line), part("limit", window.limit));
        let read = async {
            let text =
                self.get(&path).ok_or_else(|| Failure::ResourceNotFound { uri: Some(path.clone()) })?;
            let part = match slice(&text, window) {
                Err(_) if self.state().is_empty_past_end => "",
                part => part.map_err(Failure::from)?,
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
            state.created += 1;
            let id = TerminalId::new(format!("t{}", state.created));
            let run = state.runs.pop_front().unwrap_or_else(|| Run::ended("", 0));
            state.terminals.insert(id.clone(), run);
            Ok(CreateTerminalResponse::new(id))
        };
        self.serve("terminal/create", &cx, told::command(&request), create).await
    }

    async fn terminal_output(
        &self,
        request: TerminalOutputRequest,
        cx: ClientContext,
    ) -> Result<TerminalOutputResponse, Error> {
        let id = &request.terminal_id;
        let output = async {
            let Run { output, exit, truncated } = self.known(id)?;
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
            self.known(id)?;
            self.wait(|state| state.terminals.get(id).is_none_or(|run| run.exit.is_some())).await;
            let exit = self.known(id)?.exit.unwrap_or_default();
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
            self.known(id)?;
            self.terminal(&id.0, |run| {
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
            self.known(id)?;
            self.state().terminals.remove(id);
            self.changed.notify_waiters();
            Ok(ReleaseTerminalResponse::new())
        };
        self.serve("terminal/release", &cx, id.to_string(), release).await
    }
}
