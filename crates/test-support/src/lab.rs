//! A host, an agent and a person in one process: the agent does what a test tells it over a real connection, the person
//! answers by a function, and everything that is shown is kept.

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
use bowline_host::{Connection, Event, FrontEnd, Host, Places, Session, SessionOptions, Settings};
use bowline_state::audit::Record;
use bowline_state::question::{Question, Reply};
use bowline_wire::{Agent, AgentContext, ClientHandle, Limits, connect_agent};
use bowline_workspace::approvals::{BoxFuture, Person};
use bowline_workspace::audit::{self, AuditLog, Filter};
use bowline_workspace::terminals::{self, Supervisor};
use bowline_workspace::workspace::Workspace;
use tempfile::TempDir;

/// What the agent of a lab does in one turn.
pub type Act =
    Box<dyn FnOnce(Turn) -> Pin<Box<dyn Future<Output = Result<StopReason, Error>> + Send>> + Send>;

/// A turn of the agent: whom to call, and for which session.
#[derive(Debug, Clone)]
pub struct Turn {
    /// The host, as the agent reaches it.
    pub client: ClientHandle,
    /// The session.
    pub session: SessionId,
    /// The prompt's surroundings: whether it is cancelled.
    pub cx: AgentContext,
}

/// A project with a host that serves it.
pub struct Lab {
    /// The host.
    pub host: Host,
    /// The person and the screen.
    pub desk: Arc<Desk>,
    base: TempDir,
}

impl Lab {
    /// Opens an empty project. `supervisor` is a program that runs the supervisor of terminals; `set` may change what the
    /// host is opened with.
    ///
    /// # Errors
    /// Fails if the files cannot be made or the host not be opened.
    pub fn open(supervisor: &str, set: impl FnOnce(&mut Settings)) -> Result<Self> {
        let base = tempfile::tempdir()?;
        let project = base.path().join("project");
        std::fs::create_dir(&project)?;
        let supervisor = Supervisor { program: supervisor.into(), args: Vec::new() };
        let mut terminals = terminals::Settings::new(supervisor);
        terminals.inherited.insert("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned());
        terminals.temporary = base.path().to_owned();
        let mut settings = Settings::new(terminals);
        set(&mut settings);
        let desk = Arc::new(Desk::default());
        let places = places(base.path());
        let host = Host::open(&project, &places, desk.clone(), settings)?;
        Ok(Self { host, desk, base })
    }

    /// Returns the directory that holds the project and all else of the lab.
    pub fn base(&self) -> &Path {
        self.base.path()
    }

    /// Returns the absolute name of a file of the project.
    pub fn path(&self, name: &str) -> String {
        self.base.path().join("project").join(name).display().to_string()
    }

    /// Writes a file of the project behind the host's back.
    ///
    /// # Errors
    /// Fails if the system does.
    pub fn put(&self, name: &str, text: &str) -> Result<()> {
        let path = PathBuf::from(self.path(name));
        std::fs::create_dir_all(path.parent().context("a directory")?)?;
        Ok(std::fs::write(path, text)?)
    }

    /// Reads a file of the project behind the host's back.
    ///
    /// # Errors
    /// Fails if the system does.
    pub fn get(&self, name: &str) -> Result<String> {
        Ok(std::fs::read_to_string(self.path(name))?)
    }

    /// Writes the user's rules.
    ///
    /// # Errors
    /// Fails if the system does.
    pub fn rules(&self, toml: &str) -> Result<()> {
        use std::os::unix::fs::PermissionsExt;
        let path = places(self.base.path()).policy;
        let directory = path.parent().context("a directory")?;
        std::fs::create_dir_all(directory)?;
        std::fs::set_permissions(directory, PermissionsExt::from_mode(0o700))?;
        std::fs::write(&path, toml)?;
        Ok(std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600))?)
    }

    /// Returns where the host keeps the user's own things.
    pub fn places(&self) -> Places {
        places(self.base.path())
    }

    /// Returns the directory of the audit log, and its anchor.
    pub fn audit(&self) -> (PathBuf, PathBuf) {
        let places = self.places();
        let journal = Workspace::journal_directory(&places.state, self.host.workspace().roots());
        AuditLog::locate(&journal, &places.anchors)
    }

    /// Returns what the audit log says.
    ///
    /// # Errors
    /// Fails if it cannot be read.
    pub fn log(&self) -> Result<Vec<Record>> {
        Ok(audit::entries(&self.audit().0, Filter::default())?.collect::<Result<_, _>>()?)
    }

    /// Connects an agent that takes its turns from a list of acts, each for one prompt.
    ///
    /// # Errors
    /// Fails if the two cannot agree.
    pub async fn connect(&self, acts: Vec<Act>) -> Result<Connection> {
        self.connect_agent(Puppet::new(acts)).await
    }

    /// Connects any agent.
    ///
    /// # Errors
    /// Fails if the two cannot agree.
    pub async fn connect_agent(&self, agent: impl Agent) -> Result<Connection> {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let (reader, writer) = tokio::io::split(theirs);
        let (_, serving) = connect_agent(Arc::new(agent), reader, writer, Limits::DEFAULT);
        tokio::spawn(serving);
        let (reader, writer) = tokio::io::split(ours);
        Ok(self.host.connect(reader, writer).await?)
    }

    /// Runs one act as one turn of a new session of a new connection, and returns why the agent stopped.
    ///
    /// # Errors
    /// Fails if the turn does.
    pub async fn turn<F>(&self, act: impl FnOnce(Turn) -> F + Send + 'static) -> Result<StopReason>
    where
        F: Future<Output = Result<StopReason, Error>> + Send + 'static,
    {
        let (connection, session) = self.session(vec![boxed(act)]).await?;
        let end = session.prompt_text("go").await?;
        connection.close_session(&session).await?;
        Ok(end.stop)
    }

    /// Opens a session of a new connection.
    ///
    /// # Errors
    /// Fails if the agent does.
    pub async fn session(&self, acts: Vec<Act>) -> Result<(Connection, Session)> {
        let connection = self.connect(acts).await?;
        let session = connection.new_session(SessionOptions::default()).await?;
        Ok((connection, session))
    }
}

/// Makes an act of an async closure.
pub fn boxed<F>(act: impl FnOnce(Turn) -> F + Send + 'static) -> Act
where
    F: Future<Output = Result<StopReason, Error>> + Send + 'static,
{
    Box::new(move |turn| Box::pin(act(turn)))
}

fn places(base: &Path) -> Places {
    Places::below(base)
}

/// An agent that takes its turns from a list.
pub struct Puppet {
    acts: Mutex<std::collections::VecDeque<Act>>,
    sessions: AtomicUsize,
    info: Implementation,
}

impl Puppet {
    /// Returns an agent with these turns.
    pub fn new(acts: Vec<Act>) -> Self {
        let info = Implementation::new("puppet", "1");
        Self { acts: Mutex::new(acts.into()), sessions: AtomicUsize::new(0), info }
    }

    /// Gives it another name.
    #[must_use]
    pub fn named(mut self, info: Implementation) -> Self {
        self.info = info;
        self
    }
}

impl Agent for Puppet {
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
        let act = self.acts.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let Some(act) = act else { return Ok(PromptResponse::new(StopReason::EndTurn)) };
        let turn = Turn { client: cx.client().clone(), session: request.session_id, cx };
        Ok(PromptResponse::new(act(turn).await?))
    }
}

type Answers = Box<dyn FnMut(&Question) -> BoxFuture<'static, Reply> + Send>;
type Forms = Box<dyn FnMut(&CreateElicitationRequest) -> BoxFuture<'static, ElicitationAction> + Send>;

/// The person and the screen of a lab. Nobody sits there until [`Desk::answer`] is called.
#[derive(Default)]
pub struct Desk {
    answers: Mutex<Option<Answers>>,
    forms: Mutex<Option<Forms>>,
    asked: Mutex<Vec<Question>>,
    shown: Mutex<Vec<String>>,
    changed: tokio::sync::Notify,
    progress: Mutex<Option<OnProgress>>,
}

/// Is told of progress, and may hold it up.
type OnProgress = Box<dyn FnMut() + Send>;

impl Desk {
    /// Has a function called whenever something that takes long goes on.
    pub fn on_progress(&self, act: impl FnMut() + Send + 'static) {
        *lock(&self.progress) = Some(Box::new(act));
    }

    /// Lets a person sit down who answers by a function.
    pub fn answer(&self, mut answers: impl FnMut(&Question) -> Reply + Send + 'static) {
        self.answer_later(move |question| {
            let reply = answers(question);
            Box::pin(std::future::ready(reply))
        });
    }

    /// Lets a person sit down who takes time.
    pub fn answer_later(&self, answers: impl FnMut(&Question) -> BoxFuture<'static, Reply> + Send + 'static) {
        *lock(&self.answers) = Some(Box::new(answers));
    }

    /// Lets a person fill in forms by a function.
    pub fn fill_in(
        &self,
        mut forms: impl FnMut(&CreateElicitationRequest) -> ElicitationAction + Send + 'static,
    ) {
        self.fill_in_later(move |request| Box::pin(std::future::ready(forms(request))));
    }

    /// Lets a person fill in forms who takes time.
    pub fn fill_in_later(
        &self,
        forms: impl FnMut(&CreateElicitationRequest) -> BoxFuture<'static, ElicitationAction> + Send + 'static,
    ) {
        *lock(&self.forms) = Some(Box::new(forms));
    }

    /// Returns every question so far.
    pub fn asked(&self) -> Vec<Question> {
        lock(&self.asked).clone()
    }

    /// Returns what was shown so far, as the debug text of each event.
    pub fn shown(&self) -> Vec<String> {
        lock(&self.shown).clone()
    }

    /// Waits until something that was asked or shown fulfils a condition.
    pub async fn until(&self, mut condition: impl FnMut(&[Question], &[String]) -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if condition(&lock(&self.asked), &lock(&self.shown)) {
                return;
            }
            changed.await;
        }
    }
}

impl Person for Desk {
    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Reply> {
        lock(&self.asked).push(question.clone());
        self.changed.notify_waiters();
        match &mut *lock(&self.answers) {
            Some(answers) => answers(question),
            None => Box::pin(std::future::ready(Reply::Nobody)),
        }
    }
}

impl FrontEnd for Desk {
    fn show(&self, event: Event<'_>) {
        lock(&self.shown).push(format!("{event:?}"));
        self.changed.notify_waiters();
    }

    fn progress(&self, _: &str, _: u64) {
        if let Some(act) = &mut *lock(&self.progress) {
            act();
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
