//! The user's input: key bindings, pasted text, completions, search, and edits of an agent's text.

use std::time::Duration;

use bowline_policy::question::QuestionId;
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::config_options::ConfigCategory;
use super::{AgentStatus, App, KEY_REPEAT_WINDOW, KeyFocus, OverlayPane, QUIT_WINDOW};
use crate::command::{self, ChatCommand};
use crate::event::ChatAction;
use crate::input::InputOutcome;
use crate::panes::approval::EditableText;
use crate::panes::changes::ChangesAction;
use crate::panes::completion::{Completion, CompletionToken};
use crate::panes::conversation::{NoteLevel, SearchDirection};
use crate::panes::picker::PickerOutcome;
use crate::view::widgets::line_editor::LineEditor;

/// The interval after which the list of files is requested again.
const FILES_REFRESH_INTERVAL: Duration = Duration::from_secs(10);

/// The key bindings for the help screen: keys and descriptions.
pub(crate) const KEY_HELP: &[(&str, &str)] = &[
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

/// Returns whether a key types or deletes a character.
fn is_text_key(key: KeyEvent) -> bool {
    let plain = key.modifiers.difference(KeyModifiers::SHIFT).is_empty();
    plain && matches!(key.code, KeyCode::Char(_) | KeyCode::Backspace)
}

impl App {
    pub(super) fn handle_key(&mut self, key: KeyEvent) -> Vec<ChatAction> {
        if key.kind == KeyEventKind::Release {
            return Vec::new();
        }
        self.last_key_at = Some(self.now);
        let control = key.modifiers == KeyModifiers::CONTROL;
        if control && key.code == KeyCode::Char('c') {
            return self.interrupt();
        }
        if self.is_too_small {
            return Vec::new();
        }
        (self.interrupted_at, self.flash) = (None, None);
        if self.is_still_typing() && is_text_key(key) {
            self.continue_typing(key);
            return Vec::new();
        }
        if self.is_held_answer_key(key.code) {
            return Vec::new();
        }
        if let Some(pending) = self.pending_approvals.front_mut() {
            let Some(reply) = pending.approval.handle_key(key) else {
                let wants_editor = pending.approval.take_wants_editor();
                return wants_editor.then_some(ChatAction::OpenEditor).into_iter().collect();
            };
            let (id, note) = (pending.id, pending.approval.describe_reply(&reply));
            self.approved_changes.remember(pending.approval.question(), &reply);
            self.answer_key = Some((key.code, self.now));
            self.pending_approvals.pop_front();
            if let Some(text) = note {
                self.conversation.add_note(NoteLevel::Info, text);
            }
            return vec![ChatAction::AnswerPermission(id, reply)];
        }
        if let Some((id, form)) = self.elicitations.front_mut() {
            if is_text_key(key) {
                self.last_typed_at = Some(self.now);
            }
            let Some(answer) = form.handle_key(key) else { return Vec::new() };
            let id = *id;
            self.elicitations.pop_front();
            return vec![ChatAction::AnswerElicitation(id, answer)];
        }
        if self.pane.is_some() {
            return self.handle_pane_key(key);
        }
        if let AgentStatus::Exited(_) = self.status
            && let Some(actions) = self.handle_exited_key(key)
        {
            return actions;
        }
        if self.search_input.is_some() {
            self.handle_search_key(key);
            return Vec::new();
        }
        match key.code {
            KeyCode::Char('f') if control => self.begin_search(),
            KeyCode::Char('d') if control && self.input.is_empty() => return vec![ChatAction::Quit],
            KeyCode::F(1) => self.pane = Some(OverlayPane::Help(0)),
            KeyCode::F(2) => return self.request_changes(),
            KeyCode::Char('g') if control => return self.request_changes(),
            KeyCode::F(3) => return self.request_sessions(),
            KeyCode::Char('s') if control => return self.request_sessions(),
            KeyCode::F(4) => self.show_config_picker(ConfigCategory::Model),
            KeyCode::F(5) => self.show_config_picker(ConfigCategory::Mode),
            KeyCode::F(6) => self.shows_whole_plan = !self.shows_whole_plan,
            KeyCode::F(7) => self.show_config_picker(ConfigCategory::All),
            KeyCode::PageUp => self.conversation.scroll_page(-1),
            KeyCode::PageDown => self.conversation.scroll_page(1),
            KeyCode::Home if control || self.focus == KeyFocus::Conversation => {
                self.conversation.scroll_to_start()
            }
            KeyCode::End if control || self.focus == KeyFocus::Conversation => {
                self.conversation.scroll_to_end()
            }
            KeyCode::Char('q') if control => self.unqueue_last(),
            KeyCode::Char('o') if control => return vec![ChatAction::OpenEditor],
            _ => {
                return match self.focus {
                    KeyFocus::Input => self.handle_input_key(key),
                    KeyFocus::Conversation => self.handle_conversation_key(key),
                };
            }
        }
        Vec::new()
    }

    /// Returns whether a key may be the one that answered the last question and is still held, since not every terminal
    /// reports repeats. Such a key answers no other question.
    fn is_held_answer_key(&mut self, code: KeyCode) -> bool {
        let now = self.now;
        let answer_key = self.answer_key.as_mut().filter(|_| !self.pending_approvals.is_empty());
        let held = answer_key
            .filter(|(key, pressed_at)| *key == code && now.saturating_sub(*pressed_at) < KEY_REPEAT_WINDOW);
        held.map(|(_, pressed_at)| *pressed_at = now).is_some()
    }

    /// Passes a key on to the prompt although a question has appeared.
    fn continue_typing(&mut self, key: KeyEvent) {
        if let Some((_, form)) = self.elicitations.front_mut() {
            form.handle_key(key);
        } else if self.pane.is_none() {
            self.input.handle_key(key);
            self.update_completion();
        }
        self.last_typed_at = Some(self.now);
    }

    /// Handles Ctrl-C: cancels the running activity; if there is none, or on a second press, quits.
    fn interrupt(&mut self) -> Vec<ChatAction> {
        let is_second =
            self.interrupted_at.is_some_and(|previous| self.now.saturating_sub(previous) < QUIT_WINDOW);
        if is_second {
            return vec![ChatAction::Quit];
        }
        self.interrupted_at = Some(self.now);
        if self.turn.is_some() {
            self.show_flash("cancelling; Ctrl-C again quits");
            return self.cancel_turn();
        }
        if !self.input.is_empty() {
            self.input.set_text("");
            self.completion = None;
        }
        self.show_flash("Ctrl-C again quits");
        Vec::new()
    }

    fn cancel_turn(&mut self) -> Vec<ChatAction> {
        if self.is_agent_unresponsive() {
            // Restarts the wait, so that the agent is ended only once.
            if let Some(turn) = &mut self.turn {
                turn.cancelled_at = Some(self.now);
            }
            self.show_flash("ending the agent");
            return vec![ChatAction::EndAgent];
        }
        match &mut self.turn {
            Some(turn) if turn.cancelled_at.is_none() => {
                turn.cancelled_at = Some(self.now);
                vec![ChatAction::CancelTurn]
            }
            _ => Vec::new(),
        }
    }

    /// Handles Esc: abandons what is pending, or cancels the turn.
    fn handle_escape(&mut self) -> Vec<ChatAction> {
        if std::mem::take(&mut self.awaits_sessions) {
            return Vec::new();
        }
        if self.turn.is_none() && self.end_shell() {
            return vec![ChatAction::EndShell];
        }
        // The previous session is still open. Without one there is nothing to go back to.
        if matches!(self.status, AgentStatus::Opening(_)) && self.session.is_some() {
            return vec![ChatAction::AbandonOpening];
        }
        self.cancel_turn()
    }

    fn handle_input_key(&mut self, key: KeyEvent) -> Vec<ChatAction> {
        if let Some(completion) = &mut self.completion {
            match key.code {
                KeyCode::Tab => return self.accept_completion(),
                KeyCode::Enter if key.modifiers.is_empty() => return self.accept_completion(),
                KeyCode::Up => {
                    completion.move_selection(false);
                    return Vec::new();
                }
                KeyCode::Down => {
                    completion.move_selection(true);
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
            KeyCode::Esc => return self.handle_escape(),
            KeyCode::Tab | KeyCode::BackTab => {
                if self.conversation.move_selection(true) {
                    self.focus = KeyFocus::Conversation;
                } else {
                    self.show_flash("there is nothing to open yet");
                }
                return Vec::new();
            }
            KeyCode::Home | KeyCode::End => {
                self.input.move_to_line_edge(key.code == KeyCode::End);
                return Vec::new();
            }
            KeyCode::Char('?') if self.input.is_empty() && self.conversation.is_empty() => {
                self.pane = Some(OverlayPane::Help(0));
                return Vec::new();
            }
            _ => {}
        }
        match self.input.handle_key(key) {
            InputOutcome::Submitted(text) => {
                (self.last_typed_at, self.completion) = (None, None);
                return match ChatCommand::parse(&text) {
                    _ if text.trim_start().starts_with('!') && text.trim().len() > 1 => self.run_shell(&text),
                    Some(command) => self.run_command(command),
                    None => {
                        let is_help = text.trim() == "/help";
                        let actions = self.submit_prompt(text);
                        if is_help {
                            self.conversation.add_note(NoteLevel::Info, command::describe_chat_commands());
                        }
                        actions
                    }
                };
            }
            InputOutcome::Edited => {
                self.last_typed_at = Some(self.now);
                self.update_completion();
            }
            InputOutcome::Full => {
                self.show_flash("that is too long: put it into a file and mention it with @")
            }
            InputOutcome::Ignored => {}
        }
        self.request_files().into_iter().collect()
    }

    /// Runs one of the chat's own commands.
    fn run_command(&mut self, command: ChatCommand) -> Vec<ChatAction> {
        match command {
            ChatCommand::Quit => vec![ChatAction::Quit],
            ChatCommand::Changes => self.request_changes(),
            ChatCommand::Sessions => self.request_sessions(),
            ChatCommand::New | ChatCommand::Undo(_) if self.turn.is_some() => {
                self.show_flash("a turn goes on: cancel it first, with Esc");
                Vec::new()
            }
            ChatCommand::New if self.status != AgentStatus::Ready => {
                self.show_flash("no session is open yet");
                Vec::new()
            }
            ChatCommand::New => self.open_session(None),
            ChatCommand::Undo(target) => vec![ChatAction::UndoTurns(target)],
        }
    }

    fn accept_completion(&mut self) -> Vec<ChatAction> {
        if let Some(completion) = self.completion.take()
            && let Some(item) = completion.selected_item()
        {
            self.input.replace_before_cursor(completion.token.char_count(), &item.text);
            self.update_completion();
        }
        Vec::new()
    }

    fn handle_conversation_key(&mut self, key: KeyEvent) -> Vec<ChatAction> {
        match key.code {
            KeyCode::Up | KeyCode::Char('k') => {
                self.conversation.move_selection(false);
            }
            KeyCode::Down | KeyCode::Char('j') => {
                self.conversation.move_selection(true);
            }
            KeyCode::Enter | KeyCode::Char(' ') => self.conversation.toggle_selected(),
            KeyCode::Char('?') => self.pane = Some(OverlayPane::Help(0)),
            KeyCode::Tab | KeyCode::BackTab | KeyCode::Esc => self.focus_input(),
            // Typing returns to the prompt.
            KeyCode::Char(_) if key.modifiers.difference(KeyModifiers::SHIFT).is_empty() => {
                self.focus_input();
                return self.handle_input_key(key);
            }
            _ => {}
        }
        Vec::new()
    }

    fn focus_input(&mut self) {
        self.focus = KeyFocus::Input;
        self.conversation.deselect();
    }

    fn request_changes(&mut self) -> Vec<ChatAction> {
        self.awaits_changes = true;
        vec![ChatAction::ListChanges]
    }

    fn request_sessions(&mut self) -> Vec<ChatAction> {
        if self.turn.is_some() {
            self.show_flash("a turn goes on: cancel it first, with Esc");
            return Vec::new();
        }
        if self.status != AgentStatus::Ready {
            self.show_flash("no session is open yet");
            return Vec::new();
        }
        self.awaits_sessions = true;
        if !self.session_features.can_list {
            // Every agent can open a new session.
            self.show_sessions(Ok(Vec::new()));
            return Vec::new();
        }
        self.show_flash("asking the agent for its sessions");
        vec![ChatAction::ListSessions]
    }

    fn handle_pane_key(&mut self, key: KeyEvent) -> Vec<ChatAction> {
        match &mut self.pane {
            Some(OverlayPane::Help(first_line)) => match key.code {
                KeyCode::Up => *first_line = first_line.saturating_sub(1),
                KeyCode::Down => *first_line = (*first_line + 1).min(KEY_HELP.len().saturating_sub(1)),
                KeyCode::PageUp => *first_line = first_line.saturating_sub(10),
                KeyCode::PageDown => *first_line = (*first_line + 10).min(KEY_HELP.len().saturating_sub(1)),
                _ => self.pane = None,
            },
            Some(OverlayPane::Changes(changes)) => match changes.handle_key(key) {
                Some(ChangesAction::Close) => (self.pane, self.awaits_changes) = (None, false),
                Some(ChangesAction::Undo(selection)) => return vec![ChatAction::Undo(selection)],
                Some(ChangesAction::Redo(selection)) => return vec![ChatAction::Redo(selection)],
                Some(ChangesAction::Refresh) => return vec![ChatAction::ListChanges],
                None => {}
            },
            Some(OverlayPane::Sessions(sessions, picker)) => match picker.handle_key(key) {
                Some(PickerOutcome::Closed) => self.pane = None,
                Some(PickerOutcome::Chosen(row)) => {
                    let selected = row.checked_sub(1).and_then(|index| sessions.get(index));
                    let selected = selected.map(|info| info.session_id.clone());
                    self.pane = None;
                    return self.open_session(selected);
                }
                None => {}
            },
            Some(OverlayPane::ConfigOptions(choices, picker)) => match picker.handle_key(key) {
                Some(PickerOutcome::Closed) => self.pane = None,
                Some(PickerOutcome::Chosen(row)) => {
                    let selected = choices.get(row).cloned();
                    self.pane = None;
                    if let Some(choice) = selected {
                        return self.apply_config_choice(choice);
                    }
                }
                None => {}
            },
            None => {}
        }
        Vec::new()
    }

    fn open_session(&mut self, session: Option<bowline_protocol::schema::v1::SessionId>) -> Vec<ChatAction> {
        if session.is_some() && session.as_ref() == self.session() {
            return Vec::new();
        }
        if session.is_some() && !self.session_features.can_reopen {
            self.show_flash("this agent cannot open sessions of before");
            return Vec::new();
        }
        self.begin_opening("opening the session".to_owned());
        vec![ChatAction::OpenSession(session)]
    }

    /// Opens the search, or moves to the next match above the last one.
    fn begin_search(&mut self) {
        match self.search_input {
            None => self.search_input = Some(LineEditor::default()),
            Some(_) => self.find_next(SearchDirection::Older),
        }
    }

    /// Handles a key while the search is open.
    fn handle_search_key(&mut self, key: KeyEvent) {
        let control = key.modifiers == KeyModifiers::CONTROL;
        match key.code {
            KeyCode::Esc => {
                self.search_input = None;
                self.conversation.end_search();
            }
            KeyCode::Enter | KeyCode::Up => self.find_next(SearchDirection::Older),
            KeyCode::Down => self.find_next(SearchDirection::Newer),
            KeyCode::Char('f') if control => self.begin_search(),
            KeyCode::PageUp => self.conversation.scroll_page(-1),
            KeyCode::PageDown => self.conversation.scroll_page(1),
            _ => {
                if let Some(search) = &mut self.search_input {
                    search.handle_key(key);
                }
            }
        }
    }

    fn find_next(&mut self, direction: SearchDirection) {
        let text = self.search_input.as_ref().map(|search| search.text().to_owned()).unwrap_or_default();
        if !text.is_empty() && !self.conversation.find_text(&text, direction) {
            self.show_flash("nothing more was found");
        }
    }

    /// Returns the text that an agent asks to write, if the user may edit it, and the id of the question.
    pub(crate) fn editable_text(&self) -> Option<(QuestionId, EditableText)> {
        let pending = self.pending_approvals.front()?;
        Some((pending.id, pending.approval.editable_text()?))
    }

    /// Applies the user's edit of a question's text.
    pub(crate) fn apply_edit(&mut self, question: QuestionId, text: String) {
        match self.pending_approvals.iter_mut().find(|pending| pending.id == question) {
            Some(pending) => pending.approval.apply_edit(text),
            None => self.show_flash("the agent does not ask any more: what you edited was not written"),
        }
    }

    pub(super) fn paste(&mut self, text: &str) {
        let is_typing = self.is_still_typing();
        self.last_key_at = Some(self.now);
        if self.is_too_small {
            return;
        }
        if let Some(pending) = self.pending_approvals.front_mut().filter(|_| !is_typing) {
            pending.approval.paste(text);
        } else if let Some((_, form)) = self.elicitations.front_mut() {
            form.paste(text);
        } else if let Some(search) = self.search_input.as_mut().filter(|_| self.pane.is_none()) {
            search.paste(text);
        } else if self.pane.is_none() {
            self.focus = KeyFocus::Input;
            self.last_typed_at = Some(self.now);
            if self.input.insert(text) == InputOutcome::Full {
                self.show_flash("that is too long to paste: put it into a file and mention it with @");
            }
            self.update_completion();
        }
    }

    /// Updates the completion list for the prompt being written.
    pub(super) fn update_completion(&mut self) {
        let token = CompletionToken::at_cursor(&self.input.text_before_cursor(), self.input.cursor().0);
        let commands = self.conversation.snapshot().map_or(&[][..], |snapshot| snapshot.commands());
        let previous = self.completion.take();
        let new = token
            .and_then(|token| Completion::for_token(token, &command::all_commands(commands), &self.files));
        self.completion = new.map(|mut new| {
            // Newly listed files keep the current selection.
            if let Some(previous) = previous.filter(|previous| previous.token == new.token) {
                let index = previous
                    .selected_item()
                    .and_then(|selected| new.items.iter().position(|item| item == selected));
                new.selected = index.unwrap_or(0);
            }
            new
        });
    }

    /// If nothing is offered, warns that a name may be missing because the list is truncated.
    pub(super) fn warn_of_truncated_files(&mut self) {
        if self.files_truncated && self.completion.is_none() && self.is_at_file_token() {
            let count = self.files.len();
            self.show_flash(format!("@ knows the first {count} names of this workspace: write others whole"));
        }
    }

    fn is_at_file_token(&self) -> bool {
        matches!(
            CompletionToken::at_cursor(&self.input.text_before_cursor(), 1),
            Some(CompletionToken::File(_) | CompletionToken::QuotedFile(_))
        )
    }

    /// Requests the list of files if it is needed and missing or outdated.
    fn request_files(&mut self) -> Option<ChatAction> {
        let is_known = self
            .files_requested_at
            .is_some_and(|requested_at| self.now.saturating_sub(requested_at) < FILES_REFRESH_INTERVAL);
        if !self.is_at_file_token() || is_known || self.session.is_none() {
            return None;
        }
        self.files_requested_at = Some(self.now);
        Some(ChatAction::ListFiles)
    }
}
