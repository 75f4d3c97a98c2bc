//! Which key does what.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::settings::Which;
use super::{App, Focus, HELD, Pane, Stage, TWICE};
use crate::chat::changes::Outcome;
use crate::chat::command::{self, Command};
use crate::chat::conversation::Tone;
use crate::chat::event::Action;
use crate::chat::input::Typed;
use crate::chat::picker::Picked;

/// The keys, for the help screen: what to press, and what it does.
pub(crate) const HELP: &[(&str, &str)] = &[
    ("Enter", "send what is written"),
    ("Ctrl-J, Alt+Enter", "a new line; Shift+Enter too, where terminals tell it"),
    ("Up, Down", "at the first and last line: what was sent before"),
    ("/", "commands, of the agent too; Tab or Enter completes"),
    ("/undo", "take back the last turn; /undo 2, /undo FILE, /undo all"),
    ("/new, /sessions, /quit", "a new session; all of them; leave"),
    ("@", "a file of the workspace, to attach it"),
    ("!COMMAND", "run a command of your own, in the workspace's directory"),
    ("Ctrl-O", "write the prompt in your editor ($VISUAL, $EDITOR)"),
    ("Esc, Ctrl-C", "cancel the turn; Esc also gives up opening a session"),
    ("Ctrl-C twice, Ctrl-D", "quit"),
    ("Ctrl-Q", "take back the prompt that waits"),
    ("", ""),
    ("PgUp, PgDn, wheel", "move in the conversation; Ctrl-Home, Ctrl-End"),
    ("Shift+drag", "select text; F8 leaves the mouse to the terminal"),
    ("Ctrl-F", "find text in the conversation; Enter older, Down newer, Esc ends"),
    ("Tab", "go to the conversation and back"),
    ("  Up, Down, j, k", "the tool call or thought before, the next"),
    ("  Enter, Space", "open or close it"),
    ("", ""),
    ("F2, Ctrl-G", "what was changed here; undo and redo"),
    ("F3, Ctrl-S", "sessions"),
    ("F4", "the model"),
    ("F5", "the mode"),
    ("F6", "the whole plan, or one line of it"),
    ("F7", "all options of the session"),
    ("F1", "this help"),
    ("Ctrl-L", "draw everything anew"),
    ("Ctrl-Z", "stop, until the shell has it go on"),
    ("", ""),
    ("When you are asked", ""),
    ("  y, s, p", "allow it once, for this session, in this project"),
    ("  n, N", "reject it once, always in this project"),
    ("  r, m", "reject it and say why; choose what for and how long"),
    ("  x, e, z", "leave a hunk out, edit the text, go back to the agent's"),
    ("  v", "diff in one column, or side by side"),
    ("  Ctrl-C", "cancel the turn; Esc does nothing there"),
];

/// Returns whether a key writes or removes a character.
fn writes(key: KeyEvent) -> bool {
    let plain = key.modifiers.difference(KeyModifiers::SHIFT).is_empty();
    plain && matches!(key.code, KeyCode::Char(_) | KeyCode::Backspace)
}

impl App {
    pub(super) fn key(&mut self, key: KeyEvent) -> Vec<Action> {
        if key.kind == KeyEventKind::Release {
            return Vec::new();
        }
        self.touched = Some(self.now);
        let control = key.modifiers == KeyModifiers::CONTROL;
        if control && key.code == KeyCode::Char('c') {
            return self.interrupt();
        }
        if self.too_small {
            return Vec::new();
        }
        (self.interrupted, self.flash) = (None, None);
        if self.goes_on_typing() && writes(key) {
            self.type_on(key);
            return Vec::new();
        }
        if self.is_held(key.code) {
            return Vec::new();
        }
        if let Some(asked) = self.questions.front_mut() {
            let Some(reply) = asked.approval.key(key) else {
                let wants_editor = asked.approval.take_wants_editor();
                return wants_editor.then_some(Action::Edit).into_iter().collect();
            };
            let (id, remembered) = (asked.id, asked.approval.remembered(&reply));
            self.approved.remember(asked.approval.question(), &reply);
            self.answered = Some((key.code, self.now));
            self.questions.pop_front();
            if let Some(text) = remembered {
                self.conversation.note(Tone::Quiet, text);
            }
            return vec![Action::Answer(id, reply)];
        }
        if let Some((number, form)) = self.forms.front_mut() {
            if writes(key) {
                self.typed = Some(self.now);
            }
            let Some(answer) = form.key(key) else { return Vec::new() };
            let number = *number;
            self.forms.pop_front();
            return vec![Action::Elicitation(number, answer)];
        }
        if self.pane.is_some() {
            return self.pane_key(key);
        }
        if let Stage::Dead(_) = self.stage
            && let Some(actions) = self.gone_key(key)
        {
            return actions;
        }
        if self.search.is_some() {
            self.search_key(key);
            return Vec::new();
        }
        match key.code {
            KeyCode::Char('f') if control => self.begin_search(),
            KeyCode::Char('d') if control && self.input.is_empty() => return vec![Action::Quit],
            KeyCode::F(1) => self.pane = Some(Pane::Help(0)),
            KeyCode::F(2) => return self.ask_changes(),
            KeyCode::Char('g') if control => return self.ask_changes(),
            KeyCode::F(3) => return self.ask_sessions(),
            KeyCode::Char('s') if control => return self.ask_sessions(),
            KeyCode::F(4) => self.choose(Which::Model),
            KeyCode::F(5) => self.choose(Which::Mode),
            KeyCode::F(6) => self.whole_plan = !self.whole_plan,
            KeyCode::F(7) => self.choose(Which::All),
            KeyCode::PageUp => self.conversation.scroll_page(-1),
            KeyCode::PageDown => self.conversation.scroll_page(1),
            KeyCode::Home if control || self.focus == Focus::Conversation => self.conversation.go_to_start(),
            KeyCode::End if control || self.focus == Focus::Conversation => self.conversation.go_to_end(),
            KeyCode::Char('q') if control => self.unqueue(),
            KeyCode::Char('o') if control => return vec![Action::Edit],
            _ => {
                return match self.focus {
                    Focus::Input => self.input_key(key),
                    Focus::Conversation => self.conversation_key(key),
                };
            }
        }
        Vec::new()
    }

    /// Says whether a key may be the one that answered the last question and is held since: not every terminal tells. Then it
    /// answers no other.
    fn is_held(&mut self, code: KeyCode) -> bool {
        let now = self.now;
        let answered = self.answered.as_mut().filter(|_| !self.questions.is_empty());
        let held = answered.filter(|(key, at)| *key == code && now.saturating_sub(*at) < HELD);
        held.map(|(_, at)| *at = now).is_some()
    }

    /// Writes on where a question has come over it.
    fn type_on(&mut self, key: KeyEvent) {
        if let Some((_, form)) = self.forms.front_mut() {
            form.key(key);
        } else if self.pane.is_none() {
            self.input.key(key);
            self.look_for_completion();
        }
        self.typed = Some(self.now);
    }

    /// Ctrl-C: cancels what goes on; if there is nothing, or it comes twice, leaves.
    fn interrupt(&mut self) -> Vec<Action> {
        let again = self.interrupted.is_some_and(|before| self.now.saturating_sub(before) < TWICE);
        if again {
            return vec![Action::Quit];
        }
        self.interrupted = Some(self.now);
        if self.turn.is_some() {
            self.flash("cancelling; Ctrl-C again quits");
            return self.cancel();
        }
        if !self.input.is_empty() {
            self.input.set("");
            self.completion = None;
        }
        self.flash("Ctrl-C again quits");
        Vec::new()
    }

    fn cancel(&mut self) -> Vec<Action> {
        if self.is_stubborn() {
            // Once is enough: it is on its way out.
            if let Some(turn) = &mut self.turn {
                turn.cancelled = Some(self.now);
            }
            self.flash("ending the agent");
            return vec![Action::EndAgent];
        }
        match &mut self.turn {
            Some(turn) if turn.cancelled.is_none() => {
                turn.cancelled = Some(self.now);
                vec![Action::Cancel]
            }
            _ => Vec::new(),
        }
    }

    /// Esc: gives up what is waited for, or cancels the turn.
    fn escape(&mut self) -> Vec<Action> {
        if std::mem::take(&mut self.wants_sessions) {
            return Vec::new();
        }
        if self.turn.is_none() && self.end_shell() {
            return vec![Action::EndShell];
        }
        // What was open before still is. Without that there is nothing to go back to.
        if matches!(self.stage, Stage::Opening(_)) && self.session.is_some() {
            return vec![Action::GiveUp];
        }
        self.cancel()
    }

    fn input_key(&mut self, key: KeyEvent) -> Vec<Action> {
        if let Some(completion) = &mut self.completion {
            match key.code {
                KeyCode::Tab => return self.complete(),
                KeyCode::Enter if key.modifiers.is_empty() => return self.complete(),
                KeyCode::Up => {
                    completion.select(false);
                    return Vec::new();
                }
                KeyCode::Down => {
                    completion.select(true);
                    return Vec::new();
                }
                KeyCode::Esc => {
                    self.completion = None;
                    return Vec::new();
                }
                _ => {}
            }
        }
        match key.code {
            KeyCode::Esc => return self.escape(),
            KeyCode::Tab | KeyCode::BackTab => {
                if self.conversation.select(true) {
                    self.focus = Focus::Conversation;
                } else {
                    self.flash("there is nothing to open yet");
                }
                return Vec::new();
            }
            KeyCode::Home | KeyCode::End => {
                self.input.go_to_edge(key.code == KeyCode::End);
                return Vec::new();
            }
            KeyCode::Char('?') if self.input.is_empty() && self.conversation.is_empty() => {
                self.pane = Some(Pane::Help(0));
                return Vec::new();
            }
            _ => {}
        }
        match self.input.key(key) {
            Typed::Sent(text) => {
                (self.typed, self.completion) = (None, None);
                return match Command::parse(&text) {
                    _ if text.trim_start().starts_with('!') && text.trim().len() > 1 => self.run_shell(&text),
                    Some(command) => self.command(command),
                    None => {
                        let is_help = text.trim() == "/help";
                        let actions = self.say(text);
                        if is_help {
                            self.conversation.note(Tone::Quiet, command::own());
                        }
                        actions
                    }
                };
            }
            Typed::Edited => {
                self.typed = Some(self.now);
                self.look_for_completion();
            }
            Typed::Full => self.flash("that is too long: put it into a file and mention it with @"),
            Typed::Ignored => {}
        }
        self.want_files().into_iter().collect()
    }

    /// Does a command of the conversation's own.
    fn command(&mut self, command: Command) -> Vec<Action> {
        match command {
            Command::Quit => vec![Action::Quit],
            Command::Changes => self.ask_changes(),
            Command::Sessions => self.ask_sessions(),
            Command::New | Command::Undo(_) if self.turn.is_some() => {
                self.flash("a turn goes on: cancel it first, with Esc");
                Vec::new()
            }
            Command::New if self.stage != Stage::Ready => {
                self.flash("no session is open yet");
                Vec::new()
            }
            Command::New => self.open(None),
            Command::Undo(undo) => vec![Action::UndoTurns(undo)],
        }
    }

    fn complete(&mut self) -> Vec<Action> {
        if let Some(completion) = self.completion.take()
            && let Some(offer) = completion.chosen()
        {
            self.input.complete(completion.token.characters(), &offer.text);
            self.look_for_completion();
        }
        Vec::new()
    }

    fn conversation_key(&mut self, key: KeyEvent) -> Vec<Action> {
        match key.code {
            KeyCode::Up | KeyCode::Char('k') => {
                self.conversation.select(false);
            }
            KeyCode::Down | KeyCode::Char('j') => {
                self.conversation.select(true);
            }
            KeyCode::Enter | KeyCode::Char(' ') => self.conversation.toggle(),
            KeyCode::Char('?') => self.pane = Some(Pane::Help(0)),
            KeyCode::Tab | KeyCode::BackTab | KeyCode::Esc => self.back_to_input(),
            // Whoever types wants to say something.
            KeyCode::Char(_) if key.modifiers.difference(KeyModifiers::SHIFT).is_empty() => {
                self.back_to_input();
                return self.input_key(key);
            }
            _ => {}
        }
        Vec::new()
    }

    fn back_to_input(&mut self) {
        self.focus = Focus::Input;
        self.conversation.deselect();
    }

    fn ask_changes(&mut self) -> Vec<Action> {
        self.wants_changes = true;
        vec![Action::ListChanges]
    }

    fn ask_sessions(&mut self) -> Vec<Action> {
        if self.turn.is_some() {
            self.flash("a turn goes on: cancel it first, with Esc");
            return Vec::new();
        }
        if self.stage != Stage::Ready {
            self.flash("no session is open yet");
            return Vec::new();
        }
        self.wants_sessions = true;
        if !self.can.list {
            // A new one can be had from every agent.
            self.show_sessions(Ok(Vec::new()));
            return Vec::new();
        }
        self.flash("asking the agent for its sessions");
        vec![Action::ListSessions]
    }

    fn pane_key(&mut self, key: KeyEvent) -> Vec<Action> {
        match &mut self.pane {
            Some(Pane::Help(from)) => match key.code {
                KeyCode::Up => *from = from.saturating_sub(1),
                KeyCode::Down => *from = (*from + 1).min(HELP.len().saturating_sub(1)),
                KeyCode::PageUp => *from = from.saturating_sub(10),
                KeyCode::PageDown => *from = (*from + 10).min(HELP.len().saturating_sub(1)),
                _ => self.pane = None,
            },
            Some(Pane::Changes(changes)) => match changes.key(key) {
                Some(Outcome::Close) => (self.pane, self.wants_changes) = (None, false),
                Some(Outcome::Undo(selection)) => return vec![Action::Undo(selection)],
                Some(Outcome::Redo(selection)) => return vec![Action::Redo(selection)],
                Some(Outcome::Refresh) => return vec![Action::ListChanges],
                None => {}
            },
            Some(Pane::Sessions(sessions, picker)) => match picker.key(key) {
                Some(Picked::Closed) => self.pane = None,
                Some(Picked::Row(row)) => {
                    let chosen = row.checked_sub(1).and_then(|at| sessions.get(at));
                    let chosen = chosen.map(|info| info.session_id.clone());
                    self.pane = None;
                    return self.open(chosen);
                }
                None => {}
            },
            Some(Pane::Settings(settings, picker)) => match picker.key(key) {
                Some(Picked::Closed) => self.pane = None,
                Some(Picked::Row(row)) => {
                    let chosen = settings.get(row).cloned();
                    self.pane = None;
                    if let Some(setting) = chosen {
                        return self.set(setting);
                    }
                }
                None => {}
            },
            None => {}
        }
        Vec::new()
    }

    fn open(&mut self, session: Option<bowline_state::schema::v1::SessionId>) -> Vec<Action> {
        if session.is_some() && session.as_ref() == self.session() {
            return Vec::new();
        }
        if session.is_some() && !self.can.reopen {
            self.flash("this agent cannot open sessions of before");
            return Vec::new();
        }
        self.begin("opening the session".to_owned());
        vec![Action::Open(session)]
    }
}
