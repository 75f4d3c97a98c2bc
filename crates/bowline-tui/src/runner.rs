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

use super::event::{ChatEvent, OpenedChatSession, PermissionSummary, RestartTarget, SessionFeatures};
use super::front_end::Inbox;
use crate::panes::conversation::NoteLevel;
use bowline_client::error::CliError;
use bowline_client::{AgentLauncher, LaunchedAgent, prompt};
use queries::{describe_timeout, describe_undo, list_changes, list_sessions};
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
    pub(crate) fn new(launcher: AgentLauncher, inbox: Inbox) -> Self {
        Self {
            launcher: Arc::new(launcher),
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
        self.spawn(|context| async move { context.start_agent(StartTarget::FromArguments).await });
    }

    /// Restarts the agent.
    pub(crate) fn restart_agent(&mut self, target: RestartTarget) {
        let previous = self.session().map(|session| session.id().clone());
        let start_target = match (target, previous) {
            (RestartTarget::SameSession, Some(id)) => StartTarget::Previous(id),
            // No session was open yet: the command line's request still applies, instead of just any session.
            (RestartTarget::SameSession, None) => StartTarget::FromArguments,
            (RestartTarget::NewSession, _) => StartTarget::New,
        };
        self.spawn(|context| async move { context.start_agent(start_target).await });
    }

    /// Opens another session.
    pub(crate) fn open_session(&mut self, session: Option<SessionId>) {
        self.spawn(|context| async move { context.open_session(session).await });
    }

    /// Sends a prompt, and reports the end of its turn.
    pub(crate) fn send_prompt(&mut self, text: String) {
        let current = self.current_session();
        self.spawn(|context| async move {
            let Some(CurrentSession { session, prompt_capabilities }) = current else {
                return context.inbox.push(ChatEvent::TurnEnded(Err("no session is open".to_owned())));
            };
            let (launcher, prompted_session) = (context.launcher.clone(), session.clone());
            let task = bowline_task::spawn_blocking(move || {
                launcher.remember_session(&prompted_session);
                prompt::build_prompt(
                    &[prompt::PromptPart::Typed(text)],
                    prompted_session.files(),
                    launcher.host.approvals(),
                    &prompt_capabilities,
                )
            });
            let built = task.await;
            let built = match built {
                Ok(built) => built,
                Err(error) => return context.inbox.push(ChatEvent::TurnEnded(Err(error.to_string()))),
            };
            for attachment in built.attachments {
                context.inbox.push(ChatEvent::Note(NoteLevel::Info, attachment));
            }
            for warning in built.warnings {
                context.inbox.push(ChatEvent::Note(NoteLevel::Warning, warning));
            }
            let result = session.prompt(built.blocks).await;
            let caller = session.agent().caller();
            if result.is_err() && caller.is_remote_closed() {
                // The agent will not answer any pending request.
                caller.close();
            }
            let turn = result.as_ref().ok().map(|result| result.turn);
            let result = result.map(|result| result.stop_reason).map_err(|error| error.to_string());
            let (files, workspace) = (session.files().clone(), context.launcher.host.workspace().clone());
            let summary = bowline_task::spawn_blocking(move || describe_turn(&workspace, files.id(), turn?));
            let summary = summary.await.ok().flatten();
            // The last changes, such as cancelled tool calls, were not reported as updates.
            context.inbox.push(ChatEvent::SessionUpdated(session.id().clone(), session.snapshot()));
            if let Some(summary) = summary {
                context.inbox.push(ChatEvent::Note(NoteLevel::Info, summary));
            }
            context.inbox.push(ChatEvent::TurnEnded(result));
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
        self.spawn(|context| async move {
            let sessions = match session {
                Some(session) => {
                    match tokio::time::timeout(ANSWER_TIMEOUT, list_sessions(&session, cwd)).await {
                        Ok(sessions) => sessions,
                        Err(_) => Err(describe_timeout("list its sessions", ANSWER_TIMEOUT)),
                    }
                }
                None => Err("no session is open".to_owned()),
            };
            context.inbox.push(ChatEvent::SessionsListed(sessions));
        });
    }

    /// Lists the changes made here.
    pub(crate) fn list_changes(&mut self) {
        let workspace = self.launcher.host.workspace().clone();
        self.spawn_blocking(move || ChatEvent::ChangesListed(list_changes(&workspace)));
    }

    /// Undoes or redoes changes.
    pub(crate) fn undo_or_redo(&mut self, selection: ChangeSelection, is_redo: bool) {
        let workspace = self.launcher.host.workspace().clone();
        self.spawn_blocking(move || {
            let outcome = if is_redo { workspace.redo(&selection) } else { workspace.undo(&selection) };
            let verb = if is_redo { "redone" } else { "undone" };
            ChatEvent::UndoFinished(
                outcome.map(|outcome| describe_undo(verb, &outcome)).map_err(|error| error.to_string()),
            )
        });
    }

    /// Undoes the session's changes: by turns, one file or all.
    pub(crate) fn undo_turns(&mut self, target: UndoTarget) {
        let Some(session) = self.session() else {
            return self.inbox.push(ChatEvent::UndoFinished(Err("no session is open".to_owned())));
        };
        self.spawn_blocking(move || {
            ChatEvent::UndoFinished(undo_turns(session.files(), &target).map_err(|error| error.to_string()))
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
            let names = listing.entries.into_iter().map(|entry| match entry.kind {
                EntryKind::Directory => entry.path + "/",
                _ => entry.path,
            });
            ChatEvent::FilesListed { names: names.collect(), truncated: listing.truncated }
        });
    }

    fn spawn_blocking(&mut self, work: impl FnOnce() -> ChatEvent + Send + 'static) {
        self.spawn(|context| async move {
            match bowline_task::spawn_blocking(work).await {
                Ok(event) => context.inbox.push(event),
                Err(error) => context.inbox.push(ChatEvent::Note(NoteLevel::Error, error.to_string())),
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
        if let Some(agent) = self.agent.lock().await.agent.take() {
            agent.connection.shutdown(ShutdownGrace::default()).await;
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
    fn failed(reason: &'static str) -> Self {
        let result = Err(CliError::Failed(anyhow::anyhow!(reason)));
        Self { result, keeps_transcript: false, note: None, is_from_arguments: false }
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
    async fn start_agent(self, target: StartTarget) {
        let mut slot = self.agent.lock().await;
        if let Some(agent) = slot.agent.take() {
            agent.connection.shutdown(ShutdownGrace::default()).await;
        }
        let abandon_opening = self.abandon_opening.clone();
        let attempt = tokio::select! {
            attempt = self.attempt_start(target) => attempt,
            () = abandon_opening.notified() => StartAttempt::failed("starting it was given up"),
        };
        match attempt.result {
            Ok(agent) => {
                *self.start_error.lock().unwrap_or_else(PoisonError::into_inner) = None;
                self.publish_session(
                    &agent.connection, &agent.session, attempt.keeps_transcript, attempt.note,
                );
                slot.generation += 1;
                self.watch_agent(&agent.connection, slot.generation);
                slot.agent = Some(agent);
            }
            Err(error) if attempt.is_from_arguments => {
                let reason = error.to_string();
                *self.start_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                self.inbox.push(ChatEvent::StartRefused(reason));
            }
            Err(error) => self
                .inbox
                .push(ChatEvent::SessionOpenFailed { reason: error.to_string(), is_agent_running: false }),
        }
    }

    async fn attempt_start(&self, target: StartTarget) -> StartAttempt {
        let (keeps_transcript, is_from_arguments) = (false, matches!(target, StartTarget::FromArguments));
        match target {
            StartTarget::FromArguments => StartAttempt {
                result: self.launcher.start().await,
                keeps_transcript,
                note: None,
                is_from_arguments,
            },
            StartTarget::New => StartAttempt {
                result: self.launcher.start_with_session(None).await,
                keeps_transcript,
                note: None,
                is_from_arguments,
            },
            StartTarget::Previous(id) => match self.launcher.start_with_session(Some(&id.0)).await {
                Ok(agent) => {
                    let keeps_transcript = agent.connection.agent().check(AgentMethod::LoadSession).is_err();
                    let note = Some("the agent was started again".to_owned());
                    StartAttempt { result: Ok(agent), keeps_transcript, note, is_from_arguments }
                }
                Err(CliError::Interrupted) => StartAttempt {
                    result: Err(CliError::Interrupted),
                    keeps_transcript,
                    note: None,
                    is_from_arguments,
                },
                // The agent may no longer have the session, or be unable to open it.
                Err(error) => {
                    let reason = error.to_string();
                    let note = format!("the session could not be opened again ({reason}): this is a new one");
                    let result = self.launcher.start_with_session(None).await;
                    StartAttempt { result, keeps_transcript: true, note: Some(note), is_from_arguments }
                }
            },
        }
    }

    /// Opens another session with the same agent, and closes the previous one.
    async fn open_session(self, id: Option<SessionId>) {
        let mut slot = self.agent.lock().await;
        let Some(agent) = slot.agent.as_mut() else {
            return self.inbox.push(ChatEvent::SessionOpenFailed {
                reason: "the agent is not running".to_owned(),
                is_agent_running: false,
            });
        };
        let (connection, options) = (&agent.connection, self.launcher.options.clone());
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
                Ok(opened) => opened.map_err(|error| error.to_string()),
                Err(_) => Err(describe_timeout("open the session", OPEN_TIMEOUT)),
            },
            () = self.abandon_opening.notified() => Err("the session was not opened: it was given up".to_owned()),
        };
        match opened {
            Ok(session) => {
                let previous = std::mem::replace(&mut agent.session, session);
                self.publish_session(connection, &agent.session, false, None);
                // The session is left even if the agent refuses or does not answer.
                tokio::time::timeout(CLOSE_TIMEOUT, connection.close_session(&previous)).await.ok();
            }
            Err(reason) => self.inbox.push(ChatEvent::SessionOpenFailed { reason, is_agent_running: true }),
        }
    }

    fn publish_session(
        &self,
        connection: &Connection,
        session: &HostSession,
        keeps_transcript: bool,
        note: Option<String>,
    ) {
        let initialized = connection.initialize_response();
        let prompt_capabilities = initialized.agent_capabilities.prompt_capabilities.clone();
        let current = CurrentSession { session: session.clone(), prompt_capabilities };
        *self.current_session.lock().unwrap_or_else(PoisonError::into_inner) = Some(current);
        let info = initialized.agent_info.as_ref();
        let agent = info.map(|info| info.title.clone().unwrap_or_else(|| info.name.clone()));
        let supports = |method| connection.agent().check(method).is_ok();
        let opened = OpenedChatSession {
            session: session.id().clone(),
            agent: agent.unwrap_or_else(|| self.launcher.agent.name.clone()),
            snapshot: session.snapshot(),
            keeps_transcript,
            note,
            session_features: SessionFeatures {
                can_list: supports(AgentMethod::ListSessions),
                can_reopen: supports(AgentMethod::LoadSession) || supports(AgentMethod::ResumeSession),
            },
        };
        self.inbox.push(ChatEvent::SessionOpened(Box::new(opened)));
    }

    /// Reports the exit of the agent, with its last output.
    fn watch_agent(&self, connection: &Connection, generation: u64) {
        let (agent, inbox, agent_slot) = (connection.agent().clone(), self.inbox.clone(), self.agent.clone());
        bowline_task::spawn(async move {
            agent.caller().closed().await;
            let mut slot = agent_slot.lock().await;
            // A deliberate end takes the agent from the slot first, and may have started another.
            let Some(launched) = (slot.generation == generation).then(|| slot.agent.take()).flatten() else {
                return;
            };
            let exit = launched.connection.shutdown(ShutdownGrace::default()).await;
            inbox.push(ChatEvent::AgentExited(
                exit.map_or_else(|| "the connection was closed".to_owned(), |exit| exit.to_string()),
            ));
        });
    }
}
