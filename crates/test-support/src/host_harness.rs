//! A host, an agent and a user in one process: the agent runs a test's closures over a real connection, the user
//! answers with a function, and everything shown is recorded.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use agent_client_protocol_schema::v1::{
    AgentCapabilities, CreateElicitationRequest, ElicitationAction, Error, Implementation, InitializeRequest,
    InitializeResponse, NewSessionRequest, NewSessionResponse, PromptRequest, PromptResponse, SessionId,
    StopReason,
};
use anyhow::{Context as _, Result};
use bowline_access::approvals::{Approver, BoxFuture};
use bowline_access::audit::{self, AuditFilter, AuditLog};
use bowline_host::{
    Connection, FrontEnd, Host, HostEvent, HostOptions, HostPaths, HostSession, SessionOptions,
};
use bowline_policy::audit::AuditRecord;
use bowline_policy::question::{Question, QuestionReply};
use bowline_wire::{Agent, AgentContext, ClientHandle, ConnectionLimits, connect_agent};
use bowline_workspace::terminals::{self, SupervisorProgram};
use bowline_workspace::workspace::Workspace;
use tempfile::TempDir;

/// The agent's actions in one turn.
pub type TurnScript =
    Box<dyn FnOnce(AgentTurn) -> Pin<Box<dyn Future<Output = Result<StopReason, Error>> + Send>> + Send>;

/// A turn of the agent: the client to call, and the session.
#[derive(Debug, Clone)]
pub struct AgentTurn {
    /// The host, as the agent reaches it.
    pub client: ClientHandle,
    /// The session.
    pub session: SessionId,
    /// The context of the prompt, which reports cancellation.
    pub cx: AgentContext,
}

/// A project, and a host that serves it.
pub struct HostHarness {
    /// The host.
    pub host: Host,
    /// The user and the front end.
    pub user: Arc<TestUser>,
    base: TempDir,
}

impl HostHarness {
    /// Opens an empty project. `supervisor` is the program that supervises terminals; `set` may change the host's
    /// options.
    ///
    /// # Errors
    /// Fails if the files cannot be created or the host cannot be opened.
    pub fn open(supervisor: &str, set: impl FnOnce(&mut HostOptions)) -> Result<Self> {
        let base = tempfile::tempdir()?;
        let project = base.path().join("project");
        std::fs::create_dir(&project)?;
        let supervisor = SupervisorProgram { program: supervisor.into(), args: Vec::new() };
        let mut terminals = terminals::TerminalOptions::new(supervisor);
        terminals.inherited_env.insert("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned());
        terminals.temp_directory = base.path().to_owned();
        let mut options = HostOptions::new(terminals);
        set(&mut options);
        let user = Arc::new(TestUser::default());
        let paths = host_paths(base.path());
        let host = Host::open(&project, &paths, user.clone(), options)?;
        Ok(Self { host, user, base })
    }

    /// Returns the directory that contains the project and all other files of the harness.
    pub fn base(&self) -> &Path {
        self.base.path()
    }

    /// Returns the absolute path of a file in the project.
    pub fn path(&self, name: &str) -> String {
        self.base.path().join("project").join(name).display().to_string()
    }

    /// Writes a file in the project behind the host's back.
    ///
    /// # Errors
    /// Fails on an error of the file system.
    pub fn write_file(&self, name: &str, text: &str) -> Result<()> {
        let path = PathBuf::from(self.path(name));
        std::fs::create_dir_all(path.parent().context("a directory")?)?;
        Ok(std::fs::write(path, text)?)
    }

    /// Reads a file in the project behind the host's back.
    ///
    /// # Errors
    /// Fails on an error of the file system.
    pub fn read_file(&self, name: &str) -> Result<String> {
        Ok(std::fs::read_to_string(self.path(name))?)
    }

    /// Writes the user's rules.
    ///
    /// # Errors
    /// Fails on an error of the file system.
    pub fn write_rules(&self, toml: &str) -> Result<()> {
        use std::os::unix::fs::PermissionsExt;
        let path = host_paths(self.base.path()).policy;
        let directory = path.parent().context("a directory")?;
        std::fs::create_dir_all(directory)?;
        std::fs::set_permissions(directory, PermissionsExt::from_mode(0o700))?;
        std::fs::write(&path, toml)?;
        Ok(std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600))?)
    }

    /// Returns the paths of the host's files.
    pub fn paths(&self) -> HostPaths {
        host_paths(self.base.path())
    }

    /// Returns the directory of the audit log, and its anchor.
    pub fn audit_paths(&self) -> (PathBuf, PathBuf) {
        let paths = self.paths();
        let journal = Workspace::journal_directory(&paths.state, self.host.workspace().roots());
        AuditLog::locate(&journal, &paths.anchors)
    }

    /// Returns the records of the audit log.
    ///
    /// # Errors
    /// Fails if the log cannot be read.
    pub fn audit_records(&self) -> Result<Vec<AuditRecord>> {
        Ok(audit::read_entries(&self.audit_paths().0, AuditFilter::default())?.collect::<Result<_, _>>()?)
    }

    /// Connects an agent that runs one script for each prompt.
    ///
    /// # Errors
    /// Fails if the initialisation fails.
    pub async fn connect(&self, scripts: Vec<TurnScript>) -> Result<Connection> {
        self.connect_agent(PuppetAgent::new(scripts)).await
    }

    /// Connects any agent.
    ///
    /// # Errors
    /// Fails if the initialisation fails.
    pub async fn connect_agent(&self, agent: impl Agent) -> Result<Connection> {
        let (host_end, agent_end) = tokio::io::duplex(64 << 10);
        let (reader, writer) = tokio::io::split(agent_end);
        let (_, serving) = connect_agent(Arc::new(agent), reader, writer, ConnectionLimits::DEFAULT);
        tokio::spawn(serving);
        let (reader, writer) = tokio::io::split(host_end);
        Ok(self.host.connect(reader, writer).await?)
    }

    /// Runs one script as one turn in a new session of a new connection, and returns the stop reason.
    ///
    /// # Errors
    /// Fails if the turn fails.
    pub async fn run_turn<F>(
        &self,
        script: impl FnOnce(AgentTurn) -> F + Send + 'static,
    ) -> Result<StopReason>
    where
        F: Future<Output = Result<StopReason, Error>> + Send + 'static,
    {
        let (connection, session) = self.open_session(vec![turn_script(script)]).await?;
        let end = session.prompt_text("go").await?;
        connection.close_session(&session).await?;
        Ok(end.stop_reason)
    }

    /// Opens a session in a new connection.
    ///
    /// # Errors
    /// Fails if the agent fails.
    pub async fn open_session(&self, scripts: Vec<TurnScript>) -> Result<(Connection, HostSession)> {
        let connection = self.connect(scripts).await?;
        let session = connection.new_session(SessionOptions::default()).await?;
        Ok((connection, session))
    }
}

/// Converts an async closure to a turn script.
pub fn turn_script<F>(script: impl FnOnce(AgentTurn) -> F + Send + 'static) -> TurnScript
where
    F: Future<Output = Result<StopReason, Error>> + Send + 'static,
{
    Box::new(move |turn| Box::pin(script(turn)))
}

fn host_paths(base: &Path) -> HostPaths {
    HostPaths::in_directory(base)
}

/// An agent that takes its turns from a list of scripts.
pub struct PuppetAgent {
    turn_scripts: Mutex<std::collections::VecDeque<TurnScript>>,
    sessions: AtomicUsize,
    info: Implementation,
}

impl PuppetAgent {
    /// Creates an agent with these turns.
    pub fn new(scripts: Vec<TurnScript>) -> Self {
        let info = Implementation::new("puppet", "1");
        Self { turn_scripts: Mutex::new(scripts.into()), sessions: AtomicUsize::new(0), info }
    }

    /// Changes the agent's name and version.
    #[must_use]
    pub fn with_info(mut self, info: Implementation) -> Self {
        self.info = info;
        self
    }
}

impl Agent for PuppetAgent {
    async fn initialize(
        &self,
        request: InitializeRequest,
        _: AgentContext,
    ) -> Result<InitializeResponse, Error> {
        Ok(InitializeResponse::new(request.protocol_version)
            .agent_capabilities(AgentCapabilities::new())
            .agent_info(self.info.clone()))
    }

    async fn new_session(&self, _: NewSessionRequest, _: AgentContext) -> Result<NewSessionResponse, Error> {
        let number = self.sessions.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(NewSessionResponse::new(format!("s{number}")))
    }

    async fn prompt(&self, request: PromptRequest, cx: AgentContext) -> Result<PromptResponse, Error> {
        let script = self.turn_scripts.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let Some(script) = script else { return Ok(PromptResponse::new(StopReason::EndTurn)) };
        let turn = AgentTurn { client: cx.client().clone(), session: request.session_id, cx };
        Ok(PromptResponse::new(script(turn).await?))
    }
}

type AnswerFn = Box<dyn FnMut(&Question) -> BoxFuture<'static, QuestionReply> + Send>;
type FormFn = Box<dyn FnMut(&CreateElicitationRequest) -> BoxFuture<'static, ElicitationAction> + Send>;

/// The user and the front end of a harness. The user is absent until [`TestUser::answer_with`] is called.
#[derive(Default)]
pub struct TestUser {
    answers: Mutex<Option<AnswerFn>>,
    forms: Mutex<Option<FormFn>>,
    questions: Mutex<Vec<Question>>,
    events: Mutex<Vec<String>>,
    changed: tokio::sync::Notify,
    on_progress: Mutex<Option<ProgressFn>>,
}

/// A function that receives progress, and may block it.
type ProgressFn = Box<dyn FnMut() + Send>;

impl TestUser {
    /// Calls a function on every progress report of a long operation.
    pub fn on_progress(&self, callback: impl FnMut() + Send + 'static) {
        *lock(&self.on_progress) = Some(Box::new(callback));
    }

    /// Answers questions with a function.
    pub fn answer_with(&self, mut answers: impl FnMut(&Question) -> QuestionReply + Send + 'static) {
        self.answer_with_async(move |question| {
            let reply = answers(question);
            Box::pin(std::future::ready(reply))
        });
    }

    /// Answers questions with an asynchronous function.
    pub fn answer_with_async(
        &self,
        answers: impl FnMut(&Question) -> BoxFuture<'static, QuestionReply> + Send + 'static,
    ) {
        *lock(&self.answers) = Some(Box::new(answers));
    }

    /// Fills in forms with a function.
    pub fn fill_forms_with(
        &self,
        mut forms: impl FnMut(&CreateElicitationRequest) -> ElicitationAction + Send + 'static,
    ) {
        self.fill_forms_with_async(move |request| Box::pin(std::future::ready(forms(request))));
    }

    /// Fills in forms with an asynchronous function.
    pub fn fill_forms_with_async(
        &self,
        forms: impl FnMut(&CreateElicitationRequest) -> BoxFuture<'static, ElicitationAction> + Send + 'static,
    ) {
        *lock(&self.forms) = Some(Box::new(forms));
    }

    /// Returns all questions so far.
    pub fn questions(&self) -> Vec<Question> {
        lock(&self.questions).clone()
    }

    /// Returns the events shown so far, as debug texts.
    pub fn events(&self) -> Vec<String> {
        lock(&self.events).clone()
    }

    /// Waits until the questions and events satisfy a condition.
    pub async fn wait_until(&self, mut condition: impl FnMut(&[Question], &[String]) -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if condition(&lock(&self.questions), &lock(&self.events)) {
                return;
            }
            changed.await;
        }
    }
}

impl Approver for TestUser {
    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, QuestionReply> {
        lock(&self.questions).push(question.clone());
        self.changed.notify_waiters();
        match &mut *lock(&self.answers) {
            Some(answers) => answers(question),
            None => Box::pin(std::future::ready(QuestionReply::NoUser)),
        }
    }
}

impl FrontEnd for TestUser {
    fn show(&self, event: HostEvent<'_>) {
        lock(&self.events).push(format!("{event:?}"));
        self.changed.notify_waiters();
    }

    fn show_progress(&self, _: &str, done: Option<u64>) {
        if let (Some(_), Some(callback)) = (done, &mut *lock(&self.on_progress)) {
            callback();
        }
    }

    fn elicit<'a>(
        &'a self,
        _: Option<&'a str>,
        request: &'a CreateElicitationRequest,
    ) -> BoxFuture<'a, ElicitationAction> {
        match &mut *lock(&self.forms) {
            Some(forms) => forms(request),
            None => Box::pin(std::future::ready(ElicitationAction::Cancel)),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
