//! The runner of a conversation's actions: prompts, sessions, undo. Everything that takes time is a task that reports
//! its end through the inbox.

mod config_options;
mod queries;
mod shell;
mod turn_summary;
mod undo;

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bowline_conversation::slash_command::UndoTarget;
use bowline_history::undo::ChangeSelection;
use bowline_host::{Connection, HostSession};
use bowline_policy::policy::RuleSource;
use bowline_protocol::capabilities::AgentMethod;
use bowline_protocol::schema::v1::{PromptCapabilities, SessionId};
use bowline_wire::ShutdownGrace;
use bowline_workspace::list::ListOptions;
use bowline_workspace::walker::EntryKind;
use tokio::sync::{Mutex, Notify};
use tokio::task::{AbortHandle, JoinSet};

use super::conversation::NoteLevel;
use super::event::{ChatEvent, OpenedChatSession, PermissionSummary, RestartTarget, SessionFeatures};
use super::front_end::Inbox;
use crate::client::{AgentLauncher, LaunchedAgent, prompt};
use crate::error::CliError;
use queries::{describe_ending, describe_timeout, describe_undo, list_changes, list_sessions};
use turn_summary::describe_turn;
use undo::undo_turns;

/// The time limit for opening another session.
const OPEN_TIMEOUT: Duration = Duration::from_secs(60);

/// The time limit for listing sessions and for setting an option.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// The time limit for closing a session.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum number of files known for completion.
const MAX_FILES: u64 = 100_000;

/// The maximum depth of the file listing.
const MAX_DEPTH: usize = 12;

/// The agent, the session, and the tasks of the conversation.
pub(crate) struct ActionRunner {
    launcher: Arc<AgentLauncher>,
    inbox: Inbox,
    // The running agent. Tasks that open or end something hold the lock meanwhile, so that they run one after the
    // other.
    agent: Arc<Mutex<AgentSlot>>,
    // The open session, kept apart so that prompts and cancellations never wait for `agent`.
    current_session: Arc<std::sync::Mutex<Option<CurrentSession>>>,
    start_error: Arc<std::sync::Mutex<Option<CliError>>>,
    // Notified when the session being opened is no longer wanted.
    abandon_opening: Arc<Notify>,
    tasks: JoinSet<()>,
    // The user's shell command that was started last.
    shell_task: Option<AbortHandle>,
}

/// The running agent, if any, and how many ran before it.
#[derive(Default)]
struct AgentSlot {
    agent: Option<LaunchedAgent>,
    generation: u64,
}

/// The open session, and the prompt capabilities of its agent.
#[derive(Clone)]
struct CurrentSession {
    session: HostSession,
    prompt_capabilities: PromptCapabilities,
}

impl ActionRunner {
    /// Returns an idle runner.
    pub(crate) fn new(launch: AgentLauncher, inbox: Inbox) -> Self {
        Self {
            launcher: Arc::new(launch),
            inbox,
            agent: Arc::default(),
            current_session: Arc::default(),
            start_error: Arc::default(),
            abandon_opening: Arc::default(),
            tasks: JoinSet::new(),
            shell_task: None,
        }
    }

    fn task_context(&self) -> TaskContext {
        TaskContext {
            launcher: self.launcher.clone(),
            inbox: self.inbox.clone(),
            agent: self.agent.clone(),
            current_session: self.current_session.clone(),
            start_error: self.start_error.clone(),
            abandon_opening: self.abandon_opening.clone(),
        }
    }

    fn current_session(&self) -> Option<CurrentSession> {
        self.current_session.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn session(&self) -> Option<HostSession> {
        self.current_session().map(|current| current.session)
    }

    fn spawn<F: Future<Output = ()> + Send + 'static>(&mut self, task: impl FnOnce(TaskContext) -> F) {
        // Finished tasks are dropped.
        while self.tasks.try_join_next().is_some() {}
        let task = task(self.task_context());
        self.tasks.spawn(task);
    }

    /// Returns whether the agent is Bowline's own.
    pub(crate) fn is_own_agent(&self) -> bool {
        self.launcher.agent.is_own
    }

    /// Returns what Bowline itself currently allows.
    pub(crate) fn permission_summary(&self, read_only: bool) -> PermissionSummary {
        // Unreadable rules are reported when they are needed.
        let policy = self.launcher.host.approvals().policy().ok();
        let rules = policy.as_ref().map_or(0, |policy| {
            policy.rules.iter().filter(|rule| rule.spec().source != RuleSource::CommandLine).count()
        });
        PermissionSummary {
            preset: policy.map(|policy| policy.preset).unwrap_or_default(),
            is_read_only: read_only,
            rule_count: rules,
        }
    }

    /// Starts the agent with the session that the command line requests.
    pub(crate) fn start_agent(&mut self) {
        self.spawn(|hands| async move { hands.start_agent(StartTarget::FromArguments).await });
    }

    /// Restarts the agent.
    pub(crate) fn restart_agent(&mut self, restart: RestartTarget) {
        let before = self.session().map(|session| session.id().clone());
        let start = match (restart, before) {
            (RestartTarget::SameSession, Some(id)) => StartTarget::Previous(id),
            // No session was open yet: the command line's request still applies, instead of just any session.
            (RestartTarget::SameSession, None) => StartTarget::FromArguments,
            (RestartTarget::NewSession, _) => StartTarget::New,
        };
        self.spawn(|hands| async move { hands.start_agent(start).await });
    }

    /// Opens another session.
    pub(crate) fn open_session(&mut self, session: Option<SessionId>) {
        self.spawn(|hands| async move { hands.open_session(session).await });
    }

    /// Sends a prompt, and reports the end of its turn.
    pub(crate) fn send_prompt(&mut self, text: String) {
        let current = self.current_session();
        self.spawn(|hands| async move {
            let Some(CurrentSession { session, prompt_capabilities: takes }) = current else {
                return hands.inbox.push(ChatEvent::TurnEnded(Err("no session is open".to_owned())));
            };
            let (launch, asked) = (hands.launcher.clone(), session.clone());
            let making = tokio::task::spawn_blocking(move || {
                launch.remember_session(&asked);
                prompt::build_prompt(
                    &[prompt::PromptPart::Typed(text)],
                    asked.files(),
                    launch.host.approvals(),
                    &takes,
                )
            });
            let made = making.await;
            let made = match made {
                Ok(made) => made,
                Err(error) => return hands.inbox.push(ChatEvent::TurnEnded(Err(error.to_string()))),
            };
            for attached in made.attachments {
                hands.inbox.push(ChatEvent::Note(NoteLevel::Info, attached));
            }
            for note in made.warnings {
                hands.inbox.push(ChatEvent::Note(NoteLevel::Warning, note));
            }
            let end = session.prompt(made.blocks).await;
            let caller = session.agent().caller();
            if end.is_err() && caller.is_remote_closed() {
                // The agent will not answer any pending request.
                caller.close();
            }
            let turn = end.as_ref().ok().map(|end| end.turn);
            let end = end.map(|end| end.stop_reason).map_err(|error| error.to_string());
            let (files, workspace) = (session.files().clone(), hands.launcher.host.workspace().clone());
            let changed = tokio::task::spawn_blocking(move || describe_turn(&workspace, files.id(), turn?));
            let changed = changed.await.ok().flatten();
            // The last changes, such as cancelled tool calls, were not reported as updates.
            hands.inbox.push(ChatEvent::SessionUpdated(session.id().clone(), session.snapshot()));
            if let Some(changed) = changed {
                hands.inbox.push(ChatEvent::Note(NoteLevel::Info, changed));
            }
            hands.inbox.push(ChatEvent::TurnEnded(end));
        });
    }

    /// Cancels the turn.
    pub(crate) fn cancel_turn(&self) {
        if let Some(session) = self.session() {
            session.cancel();
            self.inbox.push(ChatEvent::SessionUpdated(session.id().clone(), session.snapshot()));
        }
    }

    /// Ends an unresponsive agent. Its exit is reported as if it had exited by itself.
    pub(crate) fn end_agent(&self) {
        if let Some(session) = self.session() {
            session.agent().caller().close();
        }
    }

    /// Abandons the session being opened, if any.
    pub(crate) fn abandon_opening(&self) {
        self.abandon_opening.notify_waiters();
    }

    /// Asks the agent for its sessions.
    pub(crate) fn list_sessions(&mut self) {
        let session = self.session();
        let cwd = self.launcher.cwd().to_owned();
        self.spawn(|hands| async move {
            let found = match session {
                Some(session) => {
                    match tokio::time::timeout(ANSWER_TIMEOUT, list_sessions(&session, cwd)).await {
                        Ok(found) => found,
                        Err(_) => Err(describe_timeout("list its sessions", ANSWER_TIMEOUT)),
                    }
                }
                None => Err("no session is open".to_owned()),
            };
            hands.inbox.push(ChatEvent::SessionsListed(found));
        });
    }

    /// Lists the changes made here.
    pub(crate) fn list_changes(&mut self) {
        let workspace = self.launcher.host.workspace().clone();
        self.spawn_blocking(move || ChatEvent::ChangesListed(list_changes(&workspace)));
    }

    /// Undoes or redoes changes.
    pub(crate) fn undo_or_redo(&mut self, selection: ChangeSelection, again: bool) {
        let workspace = self.launcher.host.workspace().clone();
        self.spawn_blocking(move || {
            let done = if again { workspace.redo(&selection) } else { workspace.undo(&selection) };
            let what = if again { "redone" } else { "undone" };
            ChatEvent::UndoFinished(
                done.map(|done| describe_undo(what, &done)).map_err(|error| error.to_string()),
            )
        });
    }

    /// Undoes the session's changes: by turns, one file or all.
    pub(crate) fn undo_turns(&mut self, undo: UndoTarget) {
        let Some(session) = self.session() else {
            return self.inbox.push(ChatEvent::UndoFinished(Err("no session is open".to_owned())));
        };
        self.spawn_blocking(move || {
            ChatEvent::UndoFinished(undo_turns(session.files(), &undo).map_err(|error| error.to_string()))
        });
    }

    /// Lists the workspace's files.
    pub(crate) fn list_files(&mut self) {
        let Some(session) = self.session() else { return };
        self.spawn_blocking(move || {
            let files = session.files();
            let options = ListOptions { depth: MAX_DEPTH, max_entries: MAX_FILES, ..ListOptions::default() };
            // Without a list there is no completion; nothing else depends on it.
            let listing = files.list(files.roots().cwd(), &options).unwrap_or_default();
            let named = listing.entries.into_iter().map(|entry| match entry.kind {
                EntryKind::Directory => entry.path + "/",
                _ => entry.path,
            });
            ChatEvent::FilesListed { names: named.collect(), truncated: listing.truncated }
        });
    }

    fn spawn_blocking(&mut self, work: impl FnOnce() -> ChatEvent + Send + 'static) {
        self.spawn(|hands| async move {
            match tokio::task::spawn_blocking(work).await {
                Ok(event) => hands.inbox.push(event),
                Err(error) => hands.inbox.push(ChatEvent::Note(NoteLevel::Error, error.to_string())),
            }
        });
    }

    /// Ends everything: running tasks are cancelled, and the agent ends with all its processes. If no session was ever
    /// opened, returns the reason.
    pub(crate) async fn shut_down(mut self) -> Option<CliError> {
        if let Some(session) = self.session() {
            session.cancel();
        }
        self.tasks.abort_all();
        while self.tasks.join_next().await.is_some() {}
        if let Some(client) = self.agent.lock().await.agent.take() {
            client.connection.shutdown(ShutdownGrace::default()).await;
        }
        self.start_error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The session that an agent is started for.
enum StartTarget {
    /// The session that the command line requests.
    FromArguments,
    /// The session that was open when the agent died.
    Previous(SessionId),
    /// A new session.
    New,
}

/// The result of starting an agent.
struct StartAttempt {
    result: Result<LaunchedAgent, CliError>,
    /// Whether items that the agent does not replay stay on the screen.
    keeps_transcript: bool,
    note: Option<String>,
    /// Whether it was started for the command line's request.
    is_from_arguments: bool,
}

impl StartAttempt {
    fn failed(why: &'static str) -> Self {
        let started = Err(CliError::Failed(anyhow::anyhow!(why)));
        Self { result: started, keeps_transcript: false, note: None, is_from_arguments: false }
    }
}

/// The context of a task.
struct TaskContext {
    launcher: Arc<AgentLauncher>,
    inbox: Inbox,
    agent: Arc<Mutex<AgentSlot>>,
    current_session: Arc<std::sync::Mutex<Option<CurrentSession>>>,
    start_error: Arc<std::sync::Mutex<Option<CliError>>>,
    abandon_opening: Arc<Notify>,
}

impl TaskContext {
    async fn start_agent(self, start: StartTarget) {
        let mut open = self.agent.lock().await;
        if let Some(client) = open.agent.take() {
            client.connection.shutdown(ShutdownGrace::default()).await;
        }
        let given_up = self.abandon_opening.clone();
        let attempt = tokio::select! {
            attempt = self.attempt_start(start) => attempt,
            () = given_up.notified() => StartAttempt::failed("starting it was given up"),
        };
        match attempt.result {
            Ok(client) => {
                *self.start_error.lock().unwrap_or_else(PoisonError::into_inner) = None;
                self.publish_session(
                    &client.connection,
                    &client.session,
                    attempt.keeps_transcript,
                    attempt.note,
                );
                open.generation += 1;
                self.watch_agent(&client.connection, open.generation);
                open.agent = Some(client);
            }
            Err(ending) if attempt.is_from_arguments => {
                let why = describe_ending(&ending);
                *self.start_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(ending);
                self.inbox.push(ChatEvent::StartRefused(why));
            }
            Err(ending) => self.inbox.push(ChatEvent::SessionOpenFailed {
                reason: describe_ending(&ending),
                is_agent_running: false,
            }),
        }
    }

    async fn attempt_start(&self, start: StartTarget) -> StartAttempt {
        let (goes_on, is_first) = (false, matches!(start, StartTarget::FromArguments));
        match start {
            StartTarget::FromArguments => StartAttempt {
                result: self.launcher.start().await,
                keeps_transcript: goes_on,
                note: None,
                is_from_arguments: is_first,
            },
            StartTarget::New => StartAttempt {
                result: self.launcher.start_with_session(None).await,
                keeps_transcript: goes_on,
                note: None,
                is_from_arguments: is_first,
            },
            StartTarget::Previous(id) => match self.launcher.start_with_session(Some(&id.0)).await {
                Ok(client) => {
                    let goes_on = client.connection.agent().check(AgentMethod::LoadSession).is_err();
                    let remark = Some("the agent was started again".to_owned());
                    StartAttempt {
                        result: Ok(client),
                        keeps_transcript: goes_on,
                        note: remark,
                        is_from_arguments: is_first,
                    }
                }
                Err(CliError::Interrupted) => StartAttempt {
                    result: Err(CliError::Interrupted),
                    keeps_transcript: goes_on,
                    note: None,
                    is_from_arguments: is_first,
                },
                // The agent may no longer have the session, or be unable to open it.
                Err(ending) => {
                    let why = describe_ending(&ending);
                    let remark = format!("the session could not be opened again ({why}): this is a new one");
                    let started = self.launcher.start_with_session(None).await;
                    StartAttempt {
                        result: started,
                        keeps_transcript: true,
                        note: Some(remark),
                        is_from_arguments: is_first,
                    }
                }
            },
        }
    }

    /// Opens another session with the same agent, and closes the previous one.
    async fn open_session(self, id: Option<SessionId>) {
        let mut open = self.agent.lock().await;
        let Some(client) = open.agent.as_mut() else {
            return self.inbox.push(ChatEvent::SessionOpenFailed {
                reason: "the agent is not running".to_owned(),
                is_agent_running: false,
            });
        };
        let (connection, options) = (&client.connection, self.launcher.options.clone());
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
            opened = tokio::time::timeout(OPEN_TIMEOUT, opening) => match opened {
                Ok(opened) => opened.map_err(|why| why.to_string()),
                Err(_) => Err(describe_timeout("open the session", OPEN_TIMEOUT)),
            },
            () = self.abandon_opening.notified() => Err("the session was not opened: it was given up".to_owned()),
        };
        match opened {
            Ok(session) => {
                let before = std::mem::replace(&mut client.session, session);
                self.publish_session(connection, &client.session, false, None);
                // The session is left even if the agent refuses or does not answer.
                tokio::time::timeout(CLOSE_TIMEOUT, connection.close_session(&before)).await.ok();
            }
            Err(why) => self.inbox.push(ChatEvent::SessionOpenFailed { reason: why, is_agent_running: true }),
        }
    }

    fn publish_session(
        &self,
        connection: &Connection,
        session: &HostSession,
        goes_on: bool,
        remark: Option<String>,
    ) {
        let initialized = connection.initialize_response();
        let takes = initialized.agent_capabilities.prompt_capabilities.clone();
        let current = CurrentSession { session: session.clone(), prompt_capabilities: takes };
        *self.current_session.lock().unwrap_or_else(PoisonError::into_inner) = Some(current);
        let info = initialized.agent_info.as_ref();
        let agent = info.map(|info| info.title.clone().unwrap_or_else(|| info.name.clone()));
        let can = |method| connection.agent().check(method).is_ok();
        let opened = OpenedChatSession {
            session: session.id().clone(),
            agent: agent.unwrap_or_else(|| self.launcher.agent.name.clone()),
            snapshot: session.snapshot(),
            keeps_transcript: goes_on,
            note: remark,
            session_features: SessionFeatures {
                can_list: can(AgentMethod::ListSessions),
                can_reopen: can(AgentMethod::LoadSession) || can(AgentMethod::ResumeSession),
            },
        };
        self.inbox.push(ChatEvent::SessionOpened(Box::new(opened)));
    }

    /// Reports the exit of the agent, with its last output.
    fn watch_agent(&self, connection: &Connection, number: u64) {
        let (agent, inbox, client) = (connection.agent().clone(), self.inbox.clone(), self.agent.clone());
        tokio::spawn(async move {
            agent.caller().closed().await;
            let mut open = client.lock().await;
            // A deliberate end takes the agent from the slot first, and may have started another.
            let Some(client) = (open.generation == number).then(|| open.agent.take()).flatten() else {
                return;
            };
            let exit = client.connection.shutdown(ShutdownGrace::default()).await;
            inbox.push(ChatEvent::AgentExited(
                exit.map_or_else(|| "the connection was closed".to_owned(), |exit| exit.to_string()),
            ));
        });
    }
}
