//! What a conversation is at any moment, and what each event makes of it.
//!
//! [`App`] is plain data, owned by one task. [`App::handle`] decides; whoever calls it does what the actions say and
//! tells what became of them as further events.

mod gone;
mod keys;
mod queue;
mod search;
mod settings;
mod shell;
mod waiting;
mod writing;

use std::collections::VecDeque;
use std::time::Duration;

use bowline_state::question::QuestionId;
use bowline_state::schema::v1::{
    NoticeSeverity, SessionConfigOption, SessionId, SessionInfo, SessionModeId, StopReason,
};

use crossterm::event::KeyCode;

use super::approval::Approval;
use super::changes::Changes;
use super::completion::Completion;
use super::conversation::{Conversation, Tone};
use super::event::{Action, Allowed, Can, Event, Opened};
use super::form::FormView;
use super::input::Input;
use super::parts::entry::Entry;
use super::picker::Picker;
use crate::client::ApprovedChanges;
pub(crate) use keys::HELP;
use settings::Setting;

/// How long a short message is shown.
const FLASH: Duration = Duration::from_secs(5);

/// How long a second Ctrl-C means that the person wants to leave.
const TWICE: Duration = Duration::from_secs(3);

/// Who wrote something less than so long ago goes on with that when a question comes.
const TYPING: Duration = Duration::from_secs(2);

/// After any other key, so long none is pressed before one answers a question.
const QUIET: Duration = Duration::from_millis(300);

/// So long the key that answered a question answers no other. Longer than most keyboards wait before a key that is held
/// repeats itself.
const HELD: Duration = Duration::from_millis(700);

/// So long a question is in sight before a key answers it: nobody sees it sooner and presses one for it.
const REACTION: Duration = Duration::from_millis(100);

/// A conversation.
#[derive(Debug)]
pub(crate) struct App {
    /// What was said and done.
    pub(crate) conversation: Conversation,
    /// What is being written.
    pub(crate) input: Input,
    /// What it could be completed to.
    pub(crate) completion: Option<Completion>,
    /// Where keys go.
    pub(crate) focus: Focus,
    /// What lies over the conversation.
    pub(crate) pane: Option<Pane>,
    /// The questions that wait, the first in sight.
    pub(crate) questions: VecDeque<Asked>,
    /// The forms that wait, the first in sight.
    pub(crate) forms: VecDeque<(u64, FormView)>,
    /// How far things are.
    pub(crate) stage: Stage,
    /// The turn that goes on.
    pub(crate) turn: Option<Turn>,
    /// What is looked for in the conversation.
    pub(crate) search: Option<Entry>,
    /// The command of the person's own that runs, and since when.
    pub(crate) shell: Option<(String, Duration)>,
    /// What is sent when the turn is over, the first first.
    pub(crate) queued: VecDeque<String>,
    /// How the agent calls itself.
    pub(crate) agent: String,
    /// The directory of the workspace, for people.
    pub(crate) cwd: String,
    /// The options of the session.
    pub(crate) options: Vec<SessionConfigOption>,
    /// The mode of the session.
    pub(crate) mode: Option<SessionModeId>,
    /// What the session is about, if the agent ever said.
    pub(crate) title: Option<String>,
    /// Whether the whole plan is shown.
    pub(crate) whole_plan: bool,
    /// What the agent can do.
    pub(crate) can: Can,
    /// What Bowline itself allows the agent.
    pub(crate) allowed: Allowed,
    /// Whether the agent is Bowline's own, whose modes are what Bowline allows.
    pub(crate) is_own: bool,
    /// How long a turn may take.
    pub(crate) limit: Option<Duration>,
    /// The time, counted from the start.
    pub(crate) now: Duration,
    session: Option<SessionId>,
    flash: Option<(String, Duration)>,
    // When Ctrl-C was pressed last with nothing to cancel, or to cancel.
    interrupted: Option<Duration>,
    // When a key was pressed last, whatever for; and when one wrote text. The last: before the one that is looked at.
    touched: Option<Duration>,
    typed: Option<Duration>,
    pressed: Option<Duration>,
    // The key that answered a question last, and when it was pressed last since.
    answered: Option<(KeyCode, Duration)>,
    // Whether the screen was too small to show anything when it was drawn last.
    too_small: bool,
    files: Vec<String>,
    files_truncated: bool,
    files_asked: Option<Duration>,
    notices: u64,
    approved: ApprovedChanges,
    wants_changes: bool,
    wants_sessions: bool,
    // Whether something was said in the session, here.
    said: bool,
    // When the stage was another one last.
    staged: Duration,
}

/// A question, and when it may be answered.
#[derive(Debug)]
pub(crate) struct Asked {
    /// Its number.
    pub(crate) id: QuestionId,
    /// What is shown of it.
    pub(crate) approval: Approval,
    // Whether it is on the screen, and since when at the latest.
    drawn: bool,
    since: Option<Duration>,
    // Whether a key could have answered it: from then on no key is meant for anything else.
    was_ready: bool,
}

/// Where keys go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Focus {
    /// To what is being written.
    Input,
    /// To the conversation: to look at what can be opened.
    Conversation,
}

/// What lies over the conversation.
#[derive(Debug)]
pub(crate) enum Pane {
    /// The keys, from a line on.
    Help(usize),
    /// What was changed here.
    Changes(Box<Changes>),
    /// The sessions there are; the first row is a new one.
    Sessions(Vec<SessionInfo>, Picker),
    /// Values to choose from.
    Settings(Vec<Setting>, Picker),
}

/// How far things are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stage {
    /// An agent is being started, or a session opened: what is said of it.
    Opening(String),
    /// A session is open.
    Ready,
    /// The agent is gone, with these last words.
    Dead(String),
}

/// A turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn {
    /// When it began.
    pub(crate) since: Duration,
    /// When it was cancelled.
    pub(crate) cancelled: Option<Duration>,
}

impl App {
    /// Returns a conversation that has not begun, with an agent, in a directory: its name, and its name for people.
    pub(crate) fn new(agent: String, root: String, cwd: String) -> Self {
        Self {
            conversation: Conversation::new(root),
            input: Input::default(),
            completion: None,
            focus: Focus::Input,
            pane: None,
            questions: VecDeque::new(),
            forms: VecDeque::new(),
            stage: Stage::Opening(format!("starting {agent}")),
            turn: None,
            search: None,
            shell: None,
            queued: VecDeque::new(),
            agent,
            cwd,
            options: Vec::new(),
            mode: None,
            title: None,
            whole_plan: false,
            can: Can::default(),
            allowed: Allowed::default(),
            is_own: false,
            limit: None,
            now: Duration::ZERO,
            session: None,
            flash: None,
            interrupted: None,
            touched: None,
            typed: None,
            pressed: None,
            answered: None,
            too_small: false,
            files: Vec::new(),
            files_truncated: false,
            files_asked: None,
            notices: 0,
            approved: ApprovedChanges::default(),
            wants_changes: false,
            wants_sessions: false,
            said: false,
            staged: Duration::ZERO,
        }
    }

    /// Takes in what happened at a time, and returns what is to be done.
    pub(crate) fn handle(&mut self, event: Event, now: Duration) -> Vec<Action> {
        self.now = now;
        let mut actions = Vec::new();
        self.arm();
        match event {
            Event::Key(key) => (actions, self.pressed) = (self.key(key), Some(now)),
            Event::Paste(text) => self.paste(&text),
            Event::Wheel(lines) => self.wheel(lines),
            Event::Tick => actions = self.out_of_time(),
            Event::Opened(opened) => actions = self.opened(*opened),
            Event::NotOpened { why, alive } => self.not_opened(why, alive),
            Event::Refused(why) => actions = self.refused(why),
            Event::Updated(session, snapshot) => {
                // Another session may still have something to say after it was left.
                if self.session.as_ref() == Some(&session) {
                    self.updated(snapshot);
                }
            }
            Event::Remark(tone, text) => self.conversation.note(tone, text),
            Event::Asked(question) => {
                let differences = self.approved.differences(&question);
                let (id, approval) = (question.id, Approval::new(question, differences));
                let (drawn, since, was_ready) = (false, None, false);
                self.questions.push_back(Asked { id, approval, drawn, since, was_ready });
                actions.push(Action::Bell);
            }
            Event::Withdrawn(id) => self.questions.retain(|asked| asked.id != id),
            Event::Elicited { number, agent, request } => {
                self.forms.push_back((number, FormView::new(agent, request)));
                actions.push(Action::Bell);
            }
            Event::ElicitationWithdrawn(number) => self.forms.retain(|(known, _)| *known != number),
            Event::ElicitationCompleted => self.flash("the page has done its work"),
            Event::TurnEnded(end) => actions = self.turn_ended(end),
            Event::Died(words) => self.died(words),
            Event::Sessions(found) => self.show_sessions(found),
            Event::Changes(found) => match found {
                Ok(listed) => match &mut self.pane {
                    Some(Pane::Changes(changes)) => changes.update(listed),
                    None if self.wants_changes => {
                        self.pane = Some(Pane::Changes(Box::new(Changes::new(listed))));
                    }
                    // Whoever left the pane meanwhile does not want it back.
                    Some(_) | None => {}
                },
                Err(why) => self.flash(why),
            },
            Event::TakenBack(result) => {
                let failed = result.is_err();
                let (Ok(text) | Err(text)) = result;
                match &mut self.pane {
                    Some(Pane::Changes(changes)) => {
                        changes.done(text);
                        actions.push(Action::ListChanges);
                    }
                    _ if failed => self.conversation.note(Tone::Error, text),
                    _ => self.conversation.note(Tone::Quiet, text),
                }
            }
            Event::Files { names, truncated } => {
                (self.files, self.files_truncated) = (names, truncated);
                self.look_for_completion();
                self.tell_of_more_files();
            }
            Event::ShellEnded(result) => self.shell_ended(result),
            Event::Options(options) => self.options = options,
            Event::Mode(mode) => self.mode = Some(mode),
            Event::TerminalStarted(id) => self.conversation.terminals().started(id),
            Event::TerminalOutput(id, bytes) => self.conversation.terminals().output(&id, &bytes),
            Event::TerminalEnded(id, exit) => self.conversation.terminals().ended(&id, exit),
            Event::Progress(what, done) => self.flash(format!("{what}: {done}")),
        }
        self.conversation.tick(now, self.turn.is_some());
        self.arm();
        actions
    }

    /// Cancels a turn that takes longer than it may.
    fn out_of_time(&mut self) -> Vec<Action> {
        match (&mut self.turn, self.limit) {
            (Some(turn), Some(limit))
                if turn.cancelled.is_none() && self.now.saturating_sub(turn.since) >= limit =>
            {
                turn.cancelled = Some(self.now);
                let text = format!("the turn took longer than {}: cancelling it", super::entry::took(limit));
                self.conversation.note(Tone::Warning, text);
                vec![Action::Cancel]
            }
            _ => Vec::new(),
        }
    }

    /// Lets the question in sight be answered once it was drawn, and nobody types. What is in the queue of keys when it is
    /// drawn was pressed before: the time counts from the first event after that.
    fn arm(&mut self) {
        let (now, touched) = (self.now, self.touched);
        if let Some(asked) = self.questions.front_mut() {
            let since = asked.drawn.then(|| *asked.since.get_or_insert(now));
            let in_sight = since.is_some_and(|since| now.saturating_sub(since) >= REACTION);
            let ready = in_sight && touched.is_none_or(|touched| now.saturating_sub(touched) >= QUIET);
            asked.approval.ready(ready);
            asked.was_ready |= ready;
        }
    }

    /// Takes in that everything was drawn, or that there was no room for it.
    pub(crate) fn was_drawn(&mut self, fits: bool) {
        self.too_small = !fits;
        if let Some(asked) = self.questions.front_mut()
            && asked.drawn != fits
        {
            (asked.drawn, asked.since) = (fits, None);
        }
    }

    /// Says whether somebody is in the middle of writing something, and has not had the time to see a question.
    fn goes_on_typing(&self) -> bool {
        let fresh = self.questions.front().is_some_and(|asked| !asked.was_ready);
        fresh && self.typed.is_some_and(|typed| self.now.saturating_sub(typed) < TYPING)
    }

    /// Scrolls whatever is in sight.
    fn wheel(&mut self, lines: isize) {
        if let Some(asked) = self.questions.front_mut() {
            asked.approval.scroll(lines);
        } else if let Some(Pane::Changes(changes)) = &mut self.pane {
            changes.scroll(lines);
        } else if self.forms.is_empty() && self.pane.is_none() {
            self.conversation.scroll(lines);
        }
    }

    /// Says whether something moves even if nothing happens.
    pub(crate) fn is_moving(&self) -> bool {
        let opens = matches!(self.stage, Stage::Opening(_));
        opens
            || self.turn.is_some()
            || self.shell.is_some()
            || self.flashing().is_some()
            || !self.questions.is_empty()
    }

    /// Returns the session.
    pub(crate) fn session(&self) -> Option<&SessionId> {
        self.session.as_ref()
    }

    /// Shows a short message for a while.
    pub(crate) fn flash(&mut self, text: impl Into<String>) {
        self.flash = Some((text.into(), self.now + FLASH));
    }

    /// Returns the short message that is shown.
    pub(crate) fn flashing(&self) -> Option<&str> {
        self.flash.as_ref().filter(|(_, until)| self.now < *until).map(|(text, _)| text.as_str())
    }

    fn opened(&mut self, opened: Opened) -> Vec<Action> {
        match (opened.goes_on, &self.session) {
            (true, _) => self.conversation.go_on(),
            (false, Some(_)) => self.conversation.clear(),
            // What was remarked while it was opened is still of interest.
            (false, None) => {}
        }
        // The agent was started again: what was set before is what the person wants.
        let is_same = self.session.as_ref() == Some(&opened.session);
        let before = is_same.then(|| (self.mode.take(), std::mem::take(&mut self.options)));
        self.said &= is_same;
        self.title.take_if(|_| !is_same);
        self.session = Some(opened.session);
        self.agent = opened.agent;
        self.can = opened.can;
        self.stage = Stage::Ready;
        (self.turn, self.pane) = (None, None);
        (self.mode, self.options) = (None, Vec::new());
        self.notices = 0;
        self.updated(opened.snapshot);
        if let Some(remark) = opened.remark {
            self.conversation.note(Tone::Quiet, remark);
        }
        self.conversation.go_to_end();
        let mut actions = before.map_or_else(Vec::new, |(mode, options)| self.restore(mode, &options));
        actions.extend(self.next_prompt());
        actions
    }

    fn not_opened(&mut self, why: String, alive: bool) {
        if alive {
            self.stage = Stage::Ready;
            // What was to be said was for another session.
            self.unqueue_all();
            self.conversation.note(Tone::Error, why);
        } else {
            self.died(why);
        }
    }

    fn updated(&mut self, snapshot: bowline_state::accumulator::Snapshot) {
        let before = self.conversation.snapshot();
        // What was set here holds until the agent says otherwise.
        if before.map(|before| before.config_options()) != Some(snapshot.config_options())
            && !snapshot.config_options().is_empty()
        {
            self.options = snapshot.config_options().to_vec();
        }
        if before.and_then(|before| before.current_mode()) != snapshot.current_mode() {
            self.mode = snapshot.current_mode().cloned();
        }
        let title = snapshot.title().filter(|title| !title.trim().is_empty());
        self.title = title.map(ToOwned::to_owned).or(self.title.take());
        let total = snapshot.notices_total();
        let new = usize::try_from(total.saturating_sub(self.notices)).unwrap_or(usize::MAX);
        self.notices = total;
        let notices: Vec<(Tone, String)> = snapshot
            .notices()
            .rev()
            .take(new)
            .map(|notice| {
                let tone = match notice.severity {
                    NoticeSeverity::Error => Tone::Error,
                    NoticeSeverity::Warning => Tone::Warning,
                    // Whatever is less, or not known here.
                    _ => Tone::Quiet,
                };
                let more = notice.description.as_deref().map(|text| format!(": {text}")).unwrap_or_default();
                (tone, format!("{}{more}", notice.title))
            })
            .collect();
        self.conversation.update(snapshot, self.now);
        for (tone, text) in notices.into_iter().rev() {
            self.conversation.note(tone, text);
        }
    }

    fn turn_ended(&mut self, end: Result<StopReason, String>) -> Vec<Action> {
        let Some(turn) = self.turn.take() else { return Vec::new() };
        let took = super::entry::took(self.now.saturating_sub(turn.since));
        match &end {
            Ok(StopReason::EndTurn) => {}
            Ok(StopReason::Cancelled) => {
                self.conversation.note(Tone::Warning, format!("cancelled after {took}"))
            }
            Ok(StopReason::MaxTokens) => {
                self.conversation.note(Tone::Warning, "stopped: the answer became too long for the model");
            }
            Ok(StopReason::MaxTurnRequests) => {
                self.conversation
                    .note(Tone::Warning, "stopped: the turn took too many steps; say \"go on\" to go on");
            }
            Ok(StopReason::Refusal) => self.conversation.note(Tone::Warning, "the agent refused to go on"),
            // A reason of a later protocol.
            Ok(other) => self.conversation.note(Tone::Warning, format!("stopped: {other:?}")),
            Err(why) => self.conversation.note(Tone::Error, why.clone()),
        }
        if matches!(end, Ok(StopReason::EndTurn)) {
            return self.next_prompt();
        }
        // What was to come after it may not be wanted any more.
        self.unqueue_all();
        Vec::new()
    }
}

#[cfg(test)]
pub(crate) mod tests;
