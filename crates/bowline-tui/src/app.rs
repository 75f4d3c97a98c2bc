//! The state of a conversation and its transitions.
//!
//! [`App`] is plain data, owned by one task. [`App::handle_event`] decides; the caller carries out the actions and
//! reports their results as further events.

mod config_options;
mod keys;

use std::collections::VecDeque;
use std::time::Duration;

use bowline_policy::question::QuestionId;
use bowline_protocol::schema::v1::{
    NoticeSeverity, SessionConfigOption, SessionId, SessionInfo, SessionModeId, StopReason,
};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::event::{
    ChatAction, ChatEvent, OpenedChatSession, PermissionSummary, RestartTarget, SessionFeatures,
};
use super::input::PromptInput;
use crate::panes::approval::ApprovalPane;
use crate::panes::changes::ChangesPane;
use crate::panes::completion::Completion;
use crate::panes::conversation::{Conversation, NoteLevel};
use crate::panes::elicitation::ElicitationPane;
use crate::panes::picker::Picker;
use crate::view::widgets::line_editor::LineEditor;
use bowline_client::ApprovedChanges;
use config_options::ConfigChoice;
pub(crate) use keys::KEY_HELP;

/// How long a flash message is shown.
const FLASH_DURATION: Duration = Duration::from_secs(5);

/// The time within which a second Ctrl-C quits.
const QUIT_WINDOW: Duration = Duration::from_secs(3);

/// A user who typed text within this time keeps typing when a question appears.
const TYPING_WINDOW: Duration = Duration::from_secs(2);

/// The pause required after any other key before a key may answer a question.
const ANSWER_QUIET_TIME: Duration = Duration::from_millis(300);

/// The time in which the key that answered a question answers no other. It is longer than most keyboards' delay before
/// a held key repeats.
const KEY_REPEAT_WINDOW: Duration = Duration::from_millis(700);

/// The time for which a question must be visible before a key may answer it: no one reacts faster.
const REACTION_TIME: Duration = Duration::from_millis(100);

/// How long a cancelled turn may run on before the user may stop the agent.
const CANCEL_PATIENCE: Duration = Duration::from_secs(5);

/// The pause required before a letter acts as a command: a user who is typing when the agent exits keeps typing.
const RESTART_QUIET_TIME: Duration = Duration::from_millis(600);

/// The maximum number of lines of an agent's last output kept in the conversation: the first and the last ones.
const MAX_EXIT_LINES: usize = 40;

/// The maximum number of queued prompts.
const MAX_QUEUED: usize = 8;

/// The state of a conversation.
#[derive(Debug)]
pub(crate) struct App {
    /// Its messages, tool calls and notes.
    pub(crate) conversation: Conversation,
    /// The prompt being written.
    pub(crate) input: PromptInput,
    /// The open completion list.
    pub(crate) completion: Option<Completion>,
    /// Where keys go.
    pub(crate) focus: KeyFocus,
    /// The pane over the conversation.
    pub(crate) pane: Option<OverlayPane>,
    /// Pending questions; the first is shown.
    pub(crate) pending_approvals: VecDeque<PendingApproval>,
    /// Pending forms; the first is shown.
    pub(crate) elicitations: VecDeque<(u64, ElicitationPane)>,
    /// Whether the agent is starting, ready or gone.
    pub(crate) status: AgentStatus,
    /// The running turn.
    pub(crate) turn: Option<RunningTurn>,
    /// The text being searched for in the conversation.
    pub(crate) search_input: Option<LineEditor>,
    /// The user's running shell command, and when it started.
    pub(crate) shell_command: Option<(String, Duration)>,
    /// Prompts to send after the turn, oldest first.
    pub(crate) queued_prompts: VecDeque<String>,
    /// The agent's name for itself.
    pub(crate) agent: String,
    /// The workspace directory, for display.
    pub(crate) cwd: String,
    /// The options of the session.
    pub(crate) config_options: Vec<SessionConfigOption>,
    /// The mode of the session.
    pub(crate) mode: Option<SessionModeId>,
    /// The session's title, if the agent has sent one.
    pub(crate) title: Option<String>,
    /// Whether the whole plan is shown.
    pub(crate) shows_whole_plan: bool,
    /// What the agent can do.
    pub(crate) session_features: SessionFeatures,
    /// What Bowline itself allows the agent to do.
    pub(crate) permissions: PermissionSummary,
    /// Whether the agent is Bowline's own, whose modes are Bowline's permission levels.
    pub(crate) is_own_agent: bool,
    /// The time limit of a turn.
    pub(crate) turn_timeout: Option<Duration>,
    /// The time, counted from the start.
    pub(crate) now: Duration,
    session: Option<SessionId>,
    flash: Option<(String, Duration)>,
    // When Ctrl-C was last pressed.
    interrupted_at: Option<Duration>,
    // When a key was last pressed, for any purpose; when one last typed text; and when the key before the one being
    // handled was pressed.
    last_key_at: Option<Duration>,
    last_typed_at: Option<Duration>,
    previous_key_at: Option<Duration>,
    // The key that answered the last question, and when it was last pressed since.
    answer_key: Option<(KeyCode, Duration)>,
    // Whether the screen was too small for the last frame.
    is_too_small: bool,
    files: Vec<String>,
    files_truncated: bool,
    files_requested_at: Option<Duration>,
    notices_shown: u64,
    approved_changes: ApprovedChanges,
    awaits_changes: bool,
    awaits_sessions: bool,
    // Whether a prompt was sent in the session from here.
    has_prompted: bool,
    // When the status last changed.
    status_since: Duration,
}

/// A question, and whether it may be answered yet.
#[derive(Debug)]
pub(crate) struct PendingApproval {
    /// Its id.
    pub(crate) id: QuestionId,
    /// The pane that shows it.
    pub(crate) approval: ApprovalPane,
    // Whether it is on the screen, and the latest time at which it appeared.
    is_drawn: bool,
    visible_since: Option<Duration>,
    // Whether it could already be answered: from then on, all keys go to it.
    has_been_ready: bool,
}

/// Where keys go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyFocus {
    /// The prompt input.
    Input,
    /// The conversation, to select items.
    Conversation,
}

/// A pane over the conversation.
#[derive(Debug)]
pub(crate) enum OverlayPane {
    /// The key help, scrolled to a line.
    Help(usize),
    /// The changes made here.
    Changes(Box<ChangesPane>),
    /// The known sessions; the first row opens a new one.
    Sessions(Vec<SessionInfo>, Picker),
    /// Values to choose from.
    ConfigOptions(Vec<ConfigChoice>, Picker),
}

/// The state of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AgentStatus {
    /// An agent is starting or a session is opening, with a description.
    Opening(String),
    /// A session is open.
    Ready,
    /// The agent has exited, with its last output.
    Exited(String),
}

/// A running turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunningTurn {
    /// When it began.
    pub(crate) started_at: Duration,
    /// When it was cancelled.
    pub(crate) cancelled_at: Option<Duration>,
}

impl App {
    /// Returns the state of a new conversation with an agent. `root` is the workspace directory, `cwd` its display
    /// form.
    pub(crate) fn new(agent: String, root: String, cwd: String) -> Self {
        Self {
            conversation: Conversation::new(root),
            input: PromptInput::default(),
            completion: None,
            focus: KeyFocus::Input,
            pane: None,
            pending_approvals: VecDeque::new(),
            elicitations: VecDeque::new(),
            status: AgentStatus::Opening(format!("starting {agent}")),
            turn: None,
            search_input: None,
            shell_command: None,
            queued_prompts: VecDeque::new(),
            agent,
            cwd,
            config_options: Vec::new(),
            mode: None,
            title: None,
            shows_whole_plan: false,
            session_features: SessionFeatures::default(),
            permissions: PermissionSummary::default(),
            is_own_agent: false,
            turn_timeout: None,
            now: Duration::ZERO,
            session: None,
            flash: None,
            interrupted_at: None,
            last_key_at: None,
            last_typed_at: None,
            previous_key_at: None,
            answer_key: None,
            is_too_small: false,
            files: Vec::new(),
            files_truncated: false,
            files_requested_at: None,
            notices_shown: 0,
            approved_changes: ApprovedChanges::default(),
            awaits_changes: false,
            awaits_sessions: false,
            has_prompted: false,
            status_since: Duration::ZERO,
        }
    }

    /// Handles an event that happened at `now`, and returns the actions to carry out.
    pub(crate) fn handle_event(&mut self, event: ChatEvent, now: Duration) -> Vec<ChatAction> {
        self.now = now;
        let mut actions = Vec::new();
        self.update_readiness();
        match event {
            ChatEvent::Key(key) => (actions, self.previous_key_at) = (self.handle_key(key), Some(now)),
            ChatEvent::Paste(text) => self.paste(&text),
            ChatEvent::MouseWheel(lines) => self.scroll_wheel(lines),
            ChatEvent::Tick => actions = self.check_turn_timeout(),
            ChatEvent::SessionOpened(opened) => actions = self.handle_session_opened(*opened),
            ChatEvent::SessionOpenFailed { reason, is_agent_running } => {
                self.handle_open_failed(reason, is_agent_running)
            }
            ChatEvent::StartRefused(reason) => actions = self.handle_start_refused(reason),
            ChatEvent::SessionUpdated(session, snapshot) => {
                // A session that was left may still send updates.
                if self.session.as_ref() == Some(&session) {
                    self.apply_snapshot(snapshot);
                }
            }
            ChatEvent::Note(level, text) => self.conversation.add_note(level, text),
            ChatEvent::PermissionRequested(question) => {
                let differences = self.approved_changes.differences(&question);
                let (id, approval) = (question.id, ApprovalPane::new(question, differences));
                self.pending_approvals.push_back(PendingApproval {
                    id,
                    approval,
                    is_drawn: false,
                    visible_since: None,
                    has_been_ready: false,
                });
                actions.push(ChatAction::RingBell);
            }
            ChatEvent::PermissionWithdrawn(id) => self.pending_approvals.retain(|pending| pending.id != id),
            ChatEvent::ElicitationRequested { id, agent, request } => {
                self.elicitations.push_back((id, ElicitationPane::new(agent, request)));
                actions.push(ChatAction::RingBell);
            }
            ChatEvent::ElicitationWithdrawn(id) => self.elicitations.retain(|(known, _)| *known != id),
            ChatEvent::ElicitationCompleted => self.show_flash("the page has done its work"),
            ChatEvent::TurnEnded(result) => actions = self.handle_turn_ended(result),
            ChatEvent::AgentExited(output) => self.handle_agent_exit(output),
            ChatEvent::SessionsListed(result) => self.show_sessions(result),
            ChatEvent::ChangesListed(result) => match result {
                Ok(recent) => match &mut self.pane {
                    Some(OverlayPane::Changes(changes)) => changes.update(recent),
                    None if self.awaits_changes => {
                        self.pane = Some(OverlayPane::Changes(Box::new(ChangesPane::new(recent))));
                    }
                    // The user has closed the pane meanwhile.
                    Some(_) | None => {}
                },
                Err(error) => self.show_flash(error),
            },
            ChatEvent::UndoFinished(result) => {
                let is_failure = result.is_err();
                let (Ok(text) | Err(text)) = result;
                match &mut self.pane {
                    Some(OverlayPane::Changes(changes)) => {
                        changes.finish_action(text);
                        actions.push(ChatAction::ListChanges);
                    }
                    _ if is_failure => self.conversation.add_note(NoteLevel::Error, text),
                    _ => self.conversation.add_note(NoteLevel::Info, text),
                }
            }
            ChatEvent::FilesListed { names, truncated } => {
                (self.files, self.files_truncated) = (names, truncated);
                self.update_completion();
                self.warn_of_truncated_files();
            }
            ChatEvent::ShellEnded(result) => self.handle_shell_ended(result),
            ChatEvent::ConfigOptionsChanged(options) => self.config_options = options,
            ChatEvent::ModeChanged(mode) => self.mode = Some(mode),
            ChatEvent::TerminalStarted(id) => self.conversation.terminals_mut().add(id),
            ChatEvent::TerminalOutput(id, bytes) => self.conversation.terminals_mut().feed(&id, &bytes),
            ChatEvent::TerminalEnded(id, exit) => self.conversation.terminals_mut().set_exit(&id, exit),
            ChatEvent::Progress(operation, done) => self.show_flash(format!("{operation}: {done}")),
        }
        self.conversation.set_time(now, self.turn.is_some());
        self.update_readiness();
        actions
    }

    /// Cancels a turn that exceeds its time limit.
    fn check_turn_timeout(&mut self) -> Vec<ChatAction> {
        match (&mut self.turn, self.turn_timeout) {
            (Some(turn), Some(limit))
                if turn.cancelled_at.is_none() && self.now.saturating_sub(turn.started_at) >= limit =>
            {
                turn.cancelled_at = Some(self.now);
                let text = format!(
                    "the turn took longer than {}: cancelling it",
                    crate::view::item_lines::format_elapsed(limit)
                );
                self.conversation.add_note(NoteLevel::Warning, text);
                vec![ChatAction::CancelTurn]
            }
            _ => Vec::new(),
        }
    }

    /// Marks the visible question as answerable once it has been drawn and the user is not typing. Keys that were
    /// queued when it was drawn were pressed before, so the time counts from the first event after that.
    fn update_readiness(&mut self) {
        let (now, last_key_at) = (self.now, self.last_key_at);
        if let Some(pending) = self.pending_approvals.front_mut() {
            let since = pending.is_drawn.then(|| *pending.visible_since.get_or_insert(now));
            let is_visible = since.is_some_and(|since| now.saturating_sub(since) >= REACTION_TIME);
            let is_ready = is_visible
                && last_key_at.is_none_or(|pressed_at| now.saturating_sub(pressed_at) >= ANSWER_QUIET_TIME);
            pending.approval.set_ready(is_ready);
            pending.has_been_ready |= is_ready;
        }
    }

    /// Records that a frame was drawn, or that the screen was too small for it.
    pub(crate) fn record_drawn(&mut self, fits: bool) {
        self.is_too_small = !fits;
        if let Some(pending) = self.pending_approvals.front_mut()
            && pending.is_drawn != fits
        {
            (pending.is_drawn, pending.visible_since) = (fits, None);
        }
    }

    /// Returns whether the user is typing and has not had time to notice a question.
    fn is_still_typing(&self) -> bool {
        let is_new = self.pending_approvals.front().is_some_and(|pending| !pending.has_been_ready);
        is_new && self.last_typed_at.is_some_and(|typed_at| self.now.saturating_sub(typed_at) < TYPING_WINDOW)
    }

    /// Scrolls the topmost pane.
    fn scroll_wheel(&mut self, lines: isize) {
        if let Some(pending) = self.pending_approvals.front_mut() {
            pending.approval.scroll(lines);
        } else if let Some(OverlayPane::Changes(changes)) = &mut self.pane {
            changes.scroll(lines);
        } else if self.elicitations.is_empty() && self.pane.is_none() {
            self.conversation.scroll(lines);
        }
    }

    /// Returns whether the screen changes without events.
    pub(crate) fn is_animated(&self) -> bool {
        let is_opening = matches!(self.status, AgentStatus::Opening(_));
        is_opening
            || self.turn.is_some()
            || self.shell_command.is_some()
            || self.flash_text().is_some()
            || !self.pending_approvals.is_empty()
    }

    /// Returns the session.
    pub(crate) fn session(&self) -> Option<&SessionId> {
        self.session.as_ref()
    }

    /// Shows a short message for a few seconds.
    pub(crate) fn show_flash(&mut self, text: impl Into<String>) {
        self.flash = Some((text.into(), self.now + FLASH_DURATION));
    }

    /// Returns the short message that is currently shown.
    pub(crate) fn flash_text(&self) -> Option<&str> {
        self.flash.as_ref().filter(|(_, until)| self.now < *until).map(|(text, _)| text.as_str())
    }

    fn handle_session_opened(&mut self, opened: OpenedChatSession) -> Vec<ChatAction> {
        match (opened.keeps_transcript, &self.session) {
            (true, _) => self.conversation.continue_in_new_session(),
            (false, Some(_)) => self.conversation.clear(),
            // Notes from opening the session are kept.
            (false, None) => {}
        }
        // After a restart, the user's previous settings still apply.
        let is_same_session = self.session.as_ref() == Some(&opened.session);
        let previous_config =
            is_same_session.then(|| (self.mode.take(), std::mem::take(&mut self.config_options)));
        self.has_prompted &= is_same_session;
        self.title.take_if(|_| !is_same_session);
        self.session = Some(opened.session);
        self.agent = opened.agent;
        self.session_features = opened.session_features;
        self.status = AgentStatus::Ready;
        (self.turn, self.pane) = (None, None);
        (self.mode, self.config_options) = (None, Vec::new());
        self.notices_shown = 0;
        self.apply_snapshot(opened.snapshot);
        if let Some(note) = opened.note {
            self.conversation.add_note(NoteLevel::Info, note);
        }
        self.conversation.scroll_to_end();
        let mut actions =
            previous_config.map_or_else(Vec::new, |(mode, options)| self.restore_config(mode, &options));
        actions.extend(self.send_next_queued());
        actions
    }

    fn handle_open_failed(&mut self, reason: String, is_agent_running: bool) {
        if is_agent_running {
            self.status = AgentStatus::Ready;
            // The queued prompts were for another session.
            self.unqueue_all();
            self.conversation.add_note(NoteLevel::Error, reason);
        } else {
            self.handle_agent_exit(reason);
        }
    }

    fn apply_snapshot(&mut self, snapshot: bowline_protocol::accumulator::SessionSnapshot) {
        let previous = self.conversation.snapshot();
        // Values set here hold until the agent reports others.
        if previous.map(|previous| previous.config_options()) != Some(snapshot.config_options())
            && !snapshot.config_options().is_empty()
        {
            self.config_options = snapshot.config_options().to_vec();
        }
        if previous.and_then(|previous| previous.current_mode()) != snapshot.current_mode() {
            self.mode = snapshot.current_mode().cloned();
        }
        let title = snapshot.title().filter(|title| !title.trim().is_empty());
        self.title = title.map(ToOwned::to_owned).or(self.title.take());
        let total = snapshot.notice_count();
        let new_count = usize::try_from(total.saturating_sub(self.notices_shown)).unwrap_or(usize::MAX);
        self.notices_shown = total;
        let notices: Vec<(NoteLevel, String)> = snapshot
            .notices()
            .rev()
            .take(new_count)
            .map(|notice| {
                let level = match notice.severity {
                    NoticeSeverity::Error => NoteLevel::Error,
                    NoticeSeverity::Warning => NoteLevel::Warning,
                    // Lower levels, and levels unknown here.
                    _ => NoteLevel::Info,
                };
                let description =
                    notice.description.as_deref().map(|text| format!(": {text}")).unwrap_or_default();
                (level, format!("{}{description}", notice.title))
            })
            .collect();
        self.conversation.update(snapshot, self.now);
        for (level, text) in notices.into_iter().rev() {
            self.conversation.add_note(level, text);
        }
    }

    fn handle_turn_ended(&mut self, result: Result<StopReason, String>) -> Vec<ChatAction> {
        let Some(turn) = self.turn.take() else { return Vec::new() };
        let elapsed = crate::view::item_lines::format_elapsed(self.now.saturating_sub(turn.started_at));
        match &result {
            Ok(StopReason::EndTurn) => {}
            Ok(StopReason::Cancelled) => {
                self.conversation.add_note(NoteLevel::Warning, format!("cancelled after {elapsed}"))
            }
            Ok(StopReason::MaxTokens) => {
                self.conversation
                    .add_note(NoteLevel::Warning, "stopped: the answer became too long for the model");
            }
            Ok(StopReason::MaxTurnRequests) => {
                self.conversation.add_note(
                    NoteLevel::Warning,
                    "stopped: the turn took too many steps; say \"go on\" to go on",
                );
            }
            Ok(StopReason::Refusal) => {
                self.conversation.add_note(NoteLevel::Warning, "the agent refused to go on")
            }
            // A stop reason of a later protocol version.
            Ok(reason) => self.conversation.add_note(NoteLevel::Warning, format!("stopped: {reason:?}")),
            Err(error) => self.conversation.add_note(NoteLevel::Error, error.clone()),
        }
        if matches!(result, Ok(StopReason::EndTurn)) {
            return self.send_next_queued();
        }
        // The prompts queued behind it may no longer be wanted.
        self.unqueue_all();
        Vec::new()
    }

    /// Sends the next queued prompt, if it can be sent now.
    fn send_next_queued(&mut self) -> Vec<ChatAction> {
        if self.turn.is_some() || self.status != AgentStatus::Ready {
            return Vec::new();
        }
        match self.queued_prompts.pop_front() {
            Some(text) => self.send_prompt(text),
            None => Vec::new(),
        }
    }

    fn send_prompt(&mut self, text: String) -> Vec<ChatAction> {
        self.has_prompted = true;
        self.conversation.add_prompt(text.clone());
        self.turn = Some(RunningTurn { started_at: self.now, cancelled_at: None });
        vec![ChatAction::SendPrompt(text)]
    }

    /// Sends a prompt, queues it, or reports why neither is possible.
    fn submit_prompt(&mut self, text: String) -> Vec<ChatAction> {
        if let AgentStatus::Exited(_) = self.status {
            self.input.set_text(&text);
            self.show_flash("the agent is not running: Ctrl-R starts it again");
            return Vec::new();
        }
        if self.turn.is_none() && self.status == AgentStatus::Ready {
            return self.send_prompt(text);
        }
        if self.queued_prompts.len() >= MAX_QUEUED {
            self.input.set_text(&text);
            self.show_flash(format!(
                "{MAX_QUEUED} prompts wait already: Esc cancels the turn, Ctrl-Q takes one back"
            ));
            return Vec::new();
        }
        self.queued_prompts.push_back(text);
        Vec::new()
    }

    /// Moves the last queued prompt back to the input, for editing.
    fn unqueue_last(&mut self) {
        if let Some(text) = self.queued_prompts.pop_back() {
            let combined = match self.input.is_empty() {
                true => text,
                false => format!("{text}\n{}", self.input.text()),
            };
            self.input.set_text(&combined);
        }
    }

    /// Moves all queued prompts back to the input.
    fn unqueue_all(&mut self) {
        while !self.queued_prompts.is_empty() {
            self.unqueue_last();
        }
    }

    /// Returns whether a cancelled turn has run on for so long that the user may stop the agent.
    pub(crate) fn is_agent_unresponsive(&self) -> bool {
        let cancelled_at = self.turn.and_then(|turn| turn.cancelled_at);
        cancelled_at.is_some_and(|cancelled_at| self.now.saturating_sub(cancelled_at) >= CANCEL_PATIENCE)
    }

    /// Starts waiting for an agent or a session.
    fn begin_opening(&mut self, description: String) {
        (self.status, self.status_since) = (AgentStatus::Opening(description), self.now);
    }

    /// Returns how long the agent has been starting or the session opening.
    pub(crate) fn opening_duration(&self) -> Duration {
        self.now.saturating_sub(self.status_since)
    }

    /// Returns the session, if the agent can reopen it and a prompt was sent in it.
    pub(crate) fn resumable_session(&self) -> Option<&SessionId> {
        let snapshot = self.conversation.snapshot();
        let was_used =
            self.has_prompted || snapshot.is_some_and(|snapshot| snapshot.messages().next().is_some());
        self.session().filter(|_| self.session_features.can_reopen && was_used)
    }

    /// Quits because the command line's request cannot be met. If the user has typed something meanwhile, it is kept
    /// and the user can retry.
    fn handle_start_refused(&mut self, reason: String) -> Vec<ChatAction> {
        if self.input.is_empty() && self.queued_prompts.is_empty() {
            return vec![ChatAction::Quit];
        }
        self.handle_agent_exit(reason);
        Vec::new()
    }

    fn handle_agent_exit(&mut self, output: String) {
        self.turn = None;
        self.pane = None;
        self.unqueue_all();
        // The exit window disappears when the agent is restarted.
        let lines: Vec<&str> = output.trim().lines().collect();
        let tail_start = lines.len().saturating_sub(MAX_EXIT_LINES).max(1);
        let kept: Vec<&str> = lines.iter().take(1).chain(lines.iter().skip(tail_start)).copied().collect();
        self.conversation.add_note(NoteLevel::Error, format!("the agent is gone: {}", kept.join("\n")));
        self.status = AgentStatus::Exited(output);
        self.focus = KeyFocus::Input;
        // A user who was not typing has not seen the window yet, either.
        self.previous_key_at = Some(self.now);
    }

    /// Handles a key that has a meaning after the agent has exited. All other keys work as usual, so that typing
    /// continues.
    fn handle_exited_key(&mut self, key: KeyEvent) -> Option<Vec<ChatAction>> {
        let is_quiet = self
            .previous_key_at
            .is_none_or(|pressed_at| self.now.saturating_sub(pressed_at) >= RESTART_QUIET_TIME);
        let is_command = match key.modifiers {
            KeyModifiers::CONTROL => true,
            KeyModifiers::NONE => is_quiet && self.input.is_empty(),
            _ => false,
        };
        let target = match key.code {
            KeyCode::Char('r') if is_command => RestartTarget::SameSession,
            KeyCode::Char('n') if is_command => RestartTarget::NewSession,
            KeyCode::Char('q') if is_command && key.modifiers.is_empty() => {
                return Some(vec![ChatAction::Quit]);
            }
            _ => return None,
        };
        self.begin_opening(format!("starting {} again", self.agent));
        Some(vec![ChatAction::Restart(target)])
    }

    /// Runs a shell command of the user, one at a time.
    fn run_shell(&mut self, text: &str) -> Vec<ChatAction> {
        if self.shell_command.is_some() {
            self.input.set_text(text);
            self.show_flash("a command of yours runs: Esc ends it");
            return Vec::new();
        }
        let line = text.trim().trim_start_matches('!').trim().to_owned();
        self.conversation.add_prompt(text.to_owned());
        self.shell_command = Some((line.clone(), self.now));
        vec![ChatAction::RunShell(line)]
    }

    /// Ends the running command, and returns whether there was one.
    fn end_shell(&mut self) -> bool {
        let command = self.shell_command.take();
        if command.is_some() {
            self.conversation.add_note(NoteLevel::Warning, "your command was ended");
        }
        command.is_some()
    }

    fn handle_shell_ended(&mut self, result: Result<String, String>) {
        if self.shell_command.take().is_some() {
            match result {
                Ok(text) => self.conversation.add_note(NoteLevel::Output, text),
                Err(error) => self.conversation.add_note(NoteLevel::Error, error),
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
