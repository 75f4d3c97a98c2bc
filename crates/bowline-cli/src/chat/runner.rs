//! Does what a conversation wants done: prompts, sessions, undo. Everything that takes time is a task that tells of its
//! end through the inbox.

mod finding;
mod settings;
mod shell;
mod summary;
mod undo;

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bowline_host::{Connection, Session};
use bowline_state::capabilities::AgentMethod;
use bowline_state::policy::Source;
use bowline_state::schema::v1::{PromptCapabilities, SessionId};
use bowline_state::slash::Undo;
use bowline_state::undo::Selection;
use bowline_wire::Grace;
use bowline_workspace::listing::ListOptions;
use bowline_workspace::walker::Kind;
use tokio::sync::{Mutex, Notify};
use tokio::task::{AbortHandle, JoinSet};

use super::conversation::Tone;
use super::event::{Allowed, Can, Event, Opened, Restart};
use super::front_end::Inbox;
use crate::client::{Client, Launch, prompt};
use crate::ending::Ending;
use finding::{changes, list_sessions, silent, taken_back, why};
use summary::describe_turn;
use undo::undo_turns;

/// How long an agent may take to open another session.
const OPEN: Duration = Duration::from_secs(60);

/// How long an agent may take to list its sessions, and to set something.
const ANSWER: Duration = Duration::from_secs(20);

/// How long an agent may take to leave a session.
const LEAVE: Duration = Duration::from_secs(5);

/// So many files are known to be completed to.
const MAX_FILES: u64 = 100_000;

/// How deep files are looked for.
const MAX_DEPTH: usize = 12;

/// The agent, the session, and what is being done for the conversation.
pub(crate) struct Runner {
    launch: Arc<Launch>,
    inbox: Inbox,
    // What is open. Tasks that open or end something hold it meanwhile, so that they come one after the other.
    client: Arc<Mutex<Running>>,
    // The session that is open: prompts and cancels do not wait for anybody.
    current: Arc<std::sync::Mutex<Option<Current>>>,
    refused: Arc<std::sync::Mutex<Option<Ending>>>,
    // Told when a session that is being opened is not wanted any more.
    given_up: Arc<Notify>,
    tasks: JoinSet<()>,
    // The command of the person's own that was started last.
    shell: Option<AbortHandle>,
}

/// The agent that runs, if one does, and how many ran before it.
#[derive(Default)]
struct Running {
    client: Option<Client>,
    count: u64,
}

/// The session that is open, and what its agent takes in prompts.
#[derive(Clone)]
struct Current {
    session: Session,
    takes: PromptCapabilities,
}

impl Runner {
    /// Returns somebody who can do things, with nothing done.
    pub(crate) fn new(launch: Launch, inbox: Inbox) -> Self {
        Self {
            launch: Arc::new(launch),
            inbox,
            client: Arc::default(),
            current: Arc::default(),
            refused: Arc::default(),
            given_up: Arc::default(),
            tasks: JoinSet::new(),
            shell: None,
        }
    }

    fn hands(&self) -> Hands {
        Hands {
            launch: self.launch.clone(),
            inbox: self.inbox.clone(),
            client: self.client.clone(),
            current: self.current.clone(),
            refused: self.refused.clone(),
            given_up: self.given_up.clone(),
        }
    }

    fn current(&self) -> Option<Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn session(&self) -> Option<Session> {
        self.current().map(|current| current.session)
    }

    fn spawn<F: Future<Output = ()> + Send + 'static>(&mut self, task: impl FnOnce(Hands) -> F) {
        // What is done is forgotten.
        while self.tasks.try_join_next().is_some() {}
        let task = task(self.hands());
        self.tasks.spawn(task);
    }

    /// Says whether the agent is Bowline's own.
    pub(crate) fn is_own(&self) -> bool {
        self.launch.agent.is_own
    }

    /// Returns what Bowline itself allows now.
    pub(crate) fn allowed(&self, read_only: bool) -> Allowed {
        // Rules that cannot be read are told when they are needed.
        let policy = self.launch.host.approvals().policy().ok();
        let rules = policy.as_ref().map_or(0, |policy| {
            policy.rules.iter().filter(|rule| rule.spec().source != Source::Flag).count()
        });
        Allowed { preset: policy.map(|policy| policy.preset).unwrap_or_default(), read_only, rules }
    }

    /// Starts the agent with the session that the command line asks for.
    pub(crate) fn start(&mut self) {
        self.spawn(|hands| async move { hands.start(Start::AsAsked).await });
    }

    /// Starts the agent again.
    pub(crate) fn restart(&mut self, restart: Restart) {
        let before = self.session().map(|session| session.id().clone());
        let start = match (restart, before) {
            (Restart::SameSession, Some(id)) => Start::Again(id),
            // Nothing was open yet: what was asked for still is, and not just any session.
            (Restart::SameSession, None) => Start::AsAsked,
            (Restart::NewSession, _) => Start::New,
        };
        self.spawn(|hands| async move { hands.start(start).await });
    }

    /// Opens another session.
    pub(crate) fn open(&mut self, session: Option<SessionId>) {
        self.spawn(|hands| async move { hands.open(session).await });
    }

    /// Sends a prompt, and tells when its turn has ended.
    pub(crate) fn prompt(&mut self, text: String) {
        let current = self.current();
        self.spawn(|hands| async move {
            let Some(Current { session, takes }) = current else {
                return hands.inbox.push(Event::TurnEnded(Err("no session is open".to_owned())));
            };
            let (launch, asked) = (hands.launch.clone(), session.clone());
            let making = tokio::task::spawn_blocking(move || {
                launch.remember(&asked);
                prompt::prompt(&[prompt::Part::Typed(text)], asked.files(), launch.host.approvals(), &takes)
            });
            let made = making.await;
            let made = match made {
                Ok(made) => made,
                Err(error) => return hands.inbox.push(Event::TurnEnded(Err(error.to_string()))),
            };
            for attached in made.attached {
                hands.inbox.push(Event::Remark(Tone::Quiet, attached));
            }
            for note in made.notes {
                hands.inbox.push(Event::Remark(Tone::Warning, note));
            }
            let end = session.prompt(made.blocks).await;
            let caller = session.agent().caller();
            if end.is_err() && caller.is_deaf() {
                // It will never answer anything again.
                caller.close();
            }
            let turn = end.as_ref().ok().map(|end| end.turn);
            let end = end.map(|end| end.stop).map_err(|error| error.to_string());
            let (files, workspace) = (session.files().clone(), hands.launch.host.workspace().clone());
            let changed = tokio::task::spawn_blocking(move || describe_turn(&workspace, files.id(), turn?));
            let changed = changed.await.ok().flatten();
            // What it changed last, such as calls that were cancelled, was not told.
            hands.inbox.push(Event::Updated(session.id().clone(), session.snapshot()));
            if let Some(changed) = changed {
                hands.inbox.push(Event::Remark(Tone::Quiet, changed));
            }
            hands.inbox.push(Event::TurnEnded(end));
        });
    }

    /// Cancels the turn.
    pub(crate) fn cancel(&self) {
        if let Some(session) = self.session() {
            session.cancel();
            self.inbox.push(Event::Updated(session.id().clone(), session.snapshot()));
        }
    }

    /// Ends the agent, which does not do what it is told. That it is gone is told as if it had gone by itself.
    pub(crate) fn end_agent(&self) {
        if let Some(session) = self.session() {
            session.agent().caller().close();
        }
    }

    /// Gives up the session that is being opened, if one is.
    pub(crate) fn give_up(&self) {
        self.given_up.notify_waiters();
    }

    /// Asks the agent which sessions there are.
    pub(crate) fn list_sessions(&mut self) {
        let session = self.session();
        let cwd = self.launch.cwd().to_owned();
        self.spawn(|hands| async move {
            let found = match session {
                Some(session) => match tokio::time::timeout(ANSWER, list_sessions(&session, cwd)).await {
                    Ok(found) => found,
                    Err(_) => Err(silent("list its sessions", ANSWER)),
                },
                None => Err("no session is open".to_owned()),
            };
            hands.inbox.push(Event::Sessions(found));
        });
    }

    /// Finds out what was changed here.
    pub(crate) fn list_changes(&mut self) {
        let workspace = self.launch.host.workspace().clone();
        self.blocking(move || Event::Changes(changes(&workspace)));
    }

    /// Takes changes back, or does them again.
    pub(crate) fn take_back(&mut self, selection: Selection, again: bool) {
        let workspace = self.launch.host.workspace().clone();
        self.blocking(move || {
            let done = if again { workspace.redo(&selection) } else { workspace.undo(&selection) };
            let what = if again { "redone" } else { "undone" };
            Event::TakenBack(done.map(|done| taken_back(what, &done)).map_err(|error| error.to_string()))
        });
    }

    /// Takes back what the session changed, by turns, a file or all.
    pub(crate) fn undo_turns(&mut self, undo: Undo) {
        let Some(session) = self.session() else {
            return self.inbox.push(Event::TakenBack(Err("no session is open".to_owned())));
        };
        self.blocking(move || {
            Event::TakenBack(undo_turns(session.files(), &undo).map_err(|error| error.to_string()))
        });
    }

    /// Finds out which files there are.
    pub(crate) fn list_files(&mut self) {
        let Some(session) = self.session() else { return };
        self.blocking(move || {
            let files = session.files();
            let options = ListOptions { depth: MAX_DEPTH, max_entries: MAX_FILES, ..ListOptions::default() };
            // Without a list there is nothing to complete to, and that is all.
            let listing = files.list(files.roots().cwd(), &options).unwrap_or_default();
            let named = listing.entries.into_iter().map(|entry| match entry.kind {
                Kind::Directory => entry.path + "/",
                _ => entry.path,
            });
            Event::Files { names: named.collect(), truncated: listing.truncated }
        });
    }

    fn blocking(&mut self, work: impl FnOnce() -> Event + Send + 'static) {
        self.spawn(|hands| async move {
            match tokio::task::spawn_blocking(work).await {
                Ok(event) => hands.inbox.push(event),
                Err(error) => hands.inbox.push(Event::Remark(Tone::Error, error.to_string())),
            }
        });
    }

    /// Ends everything: what goes on is cancelled, the agent ends, and so does what it started. Returns why there never
    /// was anything, if that is so.
    pub(crate) async fn end(mut self) -> Option<Ending> {
        if let Some(session) = self.session() {
            session.cancel();
        }
        self.tasks.abort_all();
        while self.tasks.join_next().await.is_some() {}
        if let Some(client) = self.client.lock().await.client.take() {
            client.connection.shutdown(Grace::default()).await;
        }
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// What an agent is started for.
enum Start {
    /// The session that the command line asks for.
    AsAsked,
    /// A session that was open when the agent died.
    Again(SessionId),
    /// A new session.
    New,
}

/// What came of starting an agent.
struct Attempt {
    started: Result<Client, Ending>,
    /// Whether what the agent does not tell again is to stay on the screen.
    goes_on: bool,
    remark: Option<String>,
    /// Whether it was started for what the command line asks for.
    is_first: bool,
}

impl Attempt {
    fn failed(why: &'static str) -> Self {
        let started = Err(Ending::Failed(anyhow::anyhow!(why)));
        Self { started, goes_on: false, remark: None, is_first: false }
    }
}

/// What a task needs.
struct Hands {
    launch: Arc<Launch>,
    inbox: Inbox,
    client: Arc<Mutex<Running>>,
    current: Arc<std::sync::Mutex<Option<Current>>>,
    refused: Arc<std::sync::Mutex<Option<Ending>>>,
    given_up: Arc<Notify>,
}

impl Hands {
    async fn start(self, start: Start) {
        let mut open = self.client.lock().await;
        if let Some(client) = open.client.take() {
            client.connection.shutdown(Grace::default()).await;
        }
        let given_up = self.given_up.clone();
        let attempt = tokio::select! {
            attempt = self.attempt(start) => attempt,
            () = given_up.notified() => Attempt::failed("starting it was given up"),
        };
        match attempt.started {
            Ok(client) => {
                *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = None;
                self.tell(&client.connection, &client.session, attempt.goes_on, attempt.remark);
                open.count += 1;
                self.watch(&client.connection, open.count);
                open.client = Some(client);
            }
            Err(ending) if attempt.is_first => {
                let why = why(&ending);
                *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(ending);
                self.inbox.push(Event::Refused(why));
            }
            Err(ending) => self.inbox.push(Event::NotOpened { why: why(&ending), alive: false }),
        }
    }

    async fn attempt(&self, start: Start) -> Attempt {
        let (goes_on, is_first) = (false, matches!(start, Start::AsAsked));
        match start {
            Start::AsAsked => Attempt { started: self.launch.start().await, goes_on, remark: None, is_first },
            Start::New => {
                Attempt { started: self.launch.start_with(None).await, goes_on, remark: None, is_first }
            }
            Start::Again(id) => match self.launch.start_with(Some(&id.0)).await {
                Ok(client) => {
                    let goes_on = client.connection.agent().check(AgentMethod::LoadSession).is_err();
                    let remark = Some("the agent was started again".to_owned());
                    Attempt { started: Ok(client), goes_on, remark, is_first }
                }
                Err(Ending::Interrupted) => {
                    Attempt { started: Err(Ending::Interrupted), goes_on, remark: None, is_first }
                }
                // It may not have it any more, or not be able to open it.
                Err(ending) => {
                    let why = why(&ending);
                    let remark = format!("the session could not be opened again ({why}): this is a new one");
                    let started = self.launch.start_with(None).await;
                    Attempt { started, goes_on: true, remark: Some(remark), is_first }
                }
            },
        }
    }

    /// Opens another session at the same agent, and leaves the one before.
    async fn open(self, id: Option<SessionId>) {
        let mut open = self.client.lock().await;
        let Some(client) = open.client.as_mut() else {
            return self
                .inbox
                .push(Event::NotOpened { why: "the agent is not running".to_owned(), alive: false });
        };
        let (connection, options) = (&client.connection, self.launch.options.clone());
        let opening = async {
            match id {
                None => connection.new_session(options).await,
                Some(id) if connection.agent().check(AgentMethod::LoadSession).is_ok() => {
                    connection.load_session(id, options).await
                }
                Some(id) => connection.resume_session(id, options).await,
            }
        };
        let opened = tokio::select! {
            opened = tokio::time::timeout(OPEN, opening) => match opened {
                Ok(opened) => opened.map_err(|why| why.to_string()),
                Err(_) => Err(silent("open the session", OPEN)),
            },
            () = self.given_up.notified() => Err("the session was not opened: it was given up".to_owned()),
        };
        match opened {
            Ok(session) => {
                let before = std::mem::replace(&mut client.session, session);
                self.tell(connection, &client.session, false, None);
                // It is left, whatever the agent says to that, or if it says nothing.
                tokio::time::timeout(LEAVE, connection.close_session(&before)).await.ok();
            }
            Err(why) => self.inbox.push(Event::NotOpened { why, alive: true }),
        }
    }

    fn tell(&self, connection: &Connection, session: &Session, goes_on: bool, remark: Option<String>) {
        let initialized = connection.initialized();
        let takes = initialized.agent_capabilities.prompt_capabilities.clone();
        let current = Current { session: session.clone(), takes };
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(current);
        let info = initialized.agent_info.as_ref();
        let agent = info.map(|info| info.title.clone().unwrap_or_else(|| info.name.clone()));
        let can = |method| connection.agent().check(method).is_ok();
        let opened = Opened {
            session: session.id().clone(),
            agent: agent.unwrap_or_else(|| self.launch.agent.name.clone()),
            snapshot: session.snapshot(),
            goes_on,
            remark,
            can: Can {
                list: can(AgentMethod::ListSessions),
                reopen: can(AgentMethod::LoadSession) || can(AgentMethod::ResumeSession),
            },
        };
        self.inbox.push(Event::Opened(Box::new(opened)));
    }

    /// Tells when the agent is gone, with its last words.
    fn watch(&self, connection: &Connection, number: u64) {
        let (agent, inbox, client) = (connection.agent().clone(), self.inbox.clone(), self.client.clone());
        tokio::spawn(async move {
            agent.caller().closed().await;
            let mut open = client.lock().await;
            // Whoever ended it on purpose has taken it, and may have started another.
            let Some(client) = (open.count == number).then(|| open.client.take()).flatten() else { return };
            let exit = client.connection.shutdown(Grace::default()).await;
            inbox.push(Event::Died(
                exit.map_or_else(|| "the connection was closed".to_owned(), |exit| exit.to_string()),
            ));
        });
    }
}
