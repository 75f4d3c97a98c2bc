//! The state of a conversation and its transitions.
//!
//! [`App`] is plain data, owned by one task. [`App::handle_event`] decides; the caller carries out the actions and
//! reports their results as further events.

mod agent_exit;
mod compose;
mod config_options;
mod keys;
mod lifecycle;
mod queue;
mod search;
mod shell;

use std::collections::VecDeque;
use std::time::Duration;

use bowline_policy::question::QuestionId;
use bowline_protocol::schema::v1::{
    NoticeSeverity, SessionConfigOption, SessionId, SessionInfo, SessionModeId, StopReason,
};

use crossterm::event::KeyCode;

use super::approval::ApprovalPane;
use super::changes::ChangesPane;
use super::completion::Completion;
use super::conversation::{Conversation, NoteLevel};
use super::elicitation::ElicitationPane;
use super::event::{ChatAction, ChatEvent, OpenedChatSession, PermissionSummary, SessionFeatures};
use super::input::PromptInput;
use super::picker::Picker;
use super::widgets::line_editor::LineEditor;
use crate::client::ApprovedChanges;
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
            ChatEvent::SessionOpenFailed { reason: why, is_agent_running: alive } => {
                self.handle_open_failed(why, alive)
            }
            ChatEvent::StartRefused(why) => actions = self.handle_start_refused(why),
            ChatEvent::SessionUpdated(session, snapshot) => {
                // A session that was left may still send updates.
                if self.session.as_ref() == Some(&session) {
                    self.apply_snapshot(snapshot);
                }
            }
            ChatEvent::Note(tone, text) => self.conversation.add_note(tone, text),
            ChatEvent::PermissionRequested(question) => {
                let differences = self.approved_changes.differences(&question);
                let (id, approval) = (question.id, ApprovalPane::new(question, differences));
                let (drawn, since, was_ready) = (false, None, false);
                self.pending_approvals.push_back(PendingApproval {
                    id,
                    approval,
                    is_drawn: drawn,
                    visible_since: since,
                    has_been_ready: was_ready,
                });
                actions.push(ChatAction::RingBell);
            }
            ChatEvent::PermissionWithdrawn(id) => self.pending_approvals.retain(|asked| asked.id != id),
            ChatEvent::ElicitationRequested { id: number, agent, request } => {
                self.elicitations.push_back((number, ElicitationPane::new(agent, request)));
                actions.push(ChatAction::RingBell);
            }
            ChatEvent::ElicitationWithdrawn(number) => {
                self.elicitations.retain(|(known, _)| *known != number)
            }
            ChatEvent::ElicitationCompleted => self.show_flash("the page has done its work"),
            ChatEvent::TurnEnded(end) => actions = self.handle_turn_ended(end),
            ChatEvent::AgentExited(words) => self.handle_agent_exit(words),
            ChatEvent::SessionsListed(found) => self.show_sessions(found),
            ChatEvent::ChangesListed(found) => match found {
                Ok(listed) => match &mut self.pane {
                    Some(OverlayPane::Changes(changes)) => changes.update(listed),
                    None if self.awaits_changes => {
                        self.pane = Some(OverlayPane::Changes(Box::new(ChangesPane::new(listed))));
                    }
                    // The user has closed the pane meanwhile.
                    Some(_) | None => {}
                },
                Err(why) => self.show_flash(why),
            },
            ChatEvent::UndoFinished(result) => {
                let failed = result.is_err();
                let (Ok(text) | Err(text)) = result;
                match &mut self.pane {
                    Some(OverlayPane::Changes(changes)) => {
                        changes.finish_action(text);
                        actions.push(ChatAction::ListChanges);
                    }
                    _ if failed => self.conversation.add_note(NoteLevel::Error, text),
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
            ChatEvent::Progress(what, done) => self.show_flash(format!("{what}: {done}")),
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
                    super::item_lines::format_elapsed(limit)
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
        let (now, touched) = (self.now, self.last_key_at);
        if let Some(asked) = self.pending_approvals.front_mut() {
            let since = asked.is_drawn.then(|| *asked.visible_since.get_or_insert(now));
            let in_sight = since.is_some_and(|since| now.saturating_sub(since) >= REACTION_TIME);
            let ready =
                in_sight && touched.is_none_or(|touched| now.saturating_sub(touched) >= ANSWER_QUIET_TIME);
            asked.approval.set_ready(ready);
            asked.has_been_ready |= ready;
        }
    }

    /// Records that a frame was drawn, or that the screen was too small for it.
    pub(crate) fn record_drawn(&mut self, fits: bool) {
        self.is_too_small = !fits;
        if let Some(asked) = self.pending_approvals.front_mut()
            && asked.is_drawn != fits
        {
            (asked.is_drawn, asked.visible_since) = (fits, None);
        }
    }

    /// Returns whether the user is typing and has not had time to notice a question.
    fn is_still_typing(&self) -> bool {
        let fresh = self.pending_approvals.front().is_some_and(|asked| !asked.has_been_ready);
        fresh && self.last_typed_at.is_some_and(|typed| self.now.saturating_sub(typed) < TYPING_WINDOW)
    }

    /// Scrolls the topmost pane.
    fn scroll_wheel(&mut self, lines: isize) {
        if let Some(asked) = self.pending_approvals.front_mut() {
            asked.approval.scroll(lines);
        } else if let Some(OverlayPane::Changes(changes)) = &mut self.pane {
            changes.scroll(lines);
        } else if self.elicitations.is_empty() && self.pane.is_none() {
            self.conversation.scroll(lines);
        }
    }

    /// Returns whether the screen changes without events.
    pub(crate) fn is_animated(&self) -> bool {
        let opens = matches!(self.status, AgentStatus::Opening(_));
        opens
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
        let is_same = self.session.as_ref() == Some(&opened.session);
        let before = is_same.then(|| (self.mode.take(), std::mem::take(&mut self.config_options)));
        self.has_prompted &= is_same;
        self.title.take_if(|_| !is_same);
        self.session = Some(opened.session);
        self.agent = opened.agent;
        self.session_features = opened.session_features;
        self.status = AgentStatus::Ready;
        (self.turn, self.pane) = (None, None);
        (self.mode, self.config_options) = (None, Vec::new());
        self.notices_shown = 0;
        self.apply_snapshot(opened.snapshot);
        if let Some(remark) = opened.note {
            self.conversation.add_note(NoteLevel::Info, remark);
        }
        self.conversation.scroll_to_end();
        let mut actions = before.map_or_else(Vec::new, |(mode, options)| self.restore_config(mode, &options));
        actions.extend(self.send_next_queued());
        actions
    }

    fn handle_open_failed(&mut self, why: String, alive: bool) {
        if alive {
            self.status = AgentStatus::Ready;
            // The queued prompts were for another session.
            self.unqueue_all();
            self.conversation.add_note(NoteLevel::Error, why);
        } else {
            self.handle_agent_exit(why);
        }
    }

    fn apply_snapshot(&mut self, snapshot: bowline_protocol::accumulator::SessionSnapshot) {
        let before = self.conversation.snapshot();
        // Values set here hold until the agent reports others.
        if before.map(|before| before.config_options()) != Some(snapshot.config_options())
            && !snapshot.config_options().is_empty()
        {
            self.config_options = snapshot.config_options().to_vec();
        }
        if before.and_then(|before| before.current_mode()) != snapshot.current_mode() {
            self.mode = snapshot.current_mode().cloned();
        }
        let title = snapshot.title().filter(|title| !title.trim().is_empty());
        self.title = title.map(ToOwned::to_owned).or(self.title.take());
        let total = snapshot.notice_count();
        let new = usize::try_from(total.saturating_sub(self.notices_shown)).unwrap_or(usize::MAX);
        self.notices_shown = total;
        let notices: Vec<(NoteLevel, String)> = snapshot
            .notices()
            .rev()
            .take(new)
            .map(|notice| {
                let tone = match notice.severity {
                    NoticeSeverity::Error => NoteLevel::Error,
                    NoticeSeverity::Warning => NoteLevel::Warning,
                    // Lower levels, and levels unknown here.
                    _ => NoteLevel::Info,
                };
                let more = notice.description.as_deref().map(|text| format!(": {text}")).unwrap_or_default();
                (tone, format!("{}{more}", notice.title))
            })
            .collect();
        self.conversation.update(snapshot, self.now);
        for (tone, text) in notices.into_iter().rev() {
            self.conversation.add_note(tone, text);
        }
    }

    fn handle_turn_ended(&mut self, end: Result<StopReason, String>) -> Vec<ChatAction> {
        let Some(turn) = self.turn.take() else { return Vec::new() };
        let took = super::item_lines::format_elapsed(self.now.saturating_sub(turn.started_at));
        match &end {
            Ok(StopReason::EndTurn) => {}
            Ok(StopReason::Cancelled) => {
                self.conversation.add_note(NoteLevel::Warning, format!("cancelled after {took}"))
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
            Ok(other) => self.conversation.add_note(NoteLevel::Warning, format!("stopped: {other:?}")),
            Err(why) => self.conversation.add_note(NoteLevel::Error, why.clone()),
        }
        if matches!(end, Ok(StopReason::EndTurn)) {
            return self.send_next_queued();
        }
        // The prompts queued behind it may no longer be wanted.
        self.unqueue_all();
        Vec::new()
    }
}

#[cfg(test)]
pub(crate) mod tests;
