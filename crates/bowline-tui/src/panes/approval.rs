//! The approval pane: every file of a request, the whole command, the dangers, and the keys to answer. It takes as many
//! rows as it needs below the conversation, or the whole screen.
//!
//! There is no default answer: Enter never answers, nor does any key while the user types
//! ([`ApprovalPane::set_ready`]), nor a key that repeats because it is held, nor one pressed with Control or Alt.

mod detail;
mod draw;
mod edit;
mod scope_picker;

use std::ops::Range;
use std::sync::Arc;

use bowline_policy::question::{AnswerChoice, AnswerLifetime, Question, QuestionAnswer, QuestionReply};
use bowline_text::diff::DiffStat;
use bowline_text::display;
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::text::Line;

use crate::view::diff::DiffLayout;
use crate::view::widgets::line_editor::LineEditor;
use crate::view::widgets::viewport::Viewport;
use bowline_client::ApprovalDifference;
pub(crate) use edit::EditableText;
use scope_picker::{ScopePicker, ScopePickerOutcome};

/// The maximum length of a question's title in the conversation, in bytes.
const MAX_TITLE_BYTES: usize = 300;

/// A question that is shown to the user.
#[derive(Debug)]
pub(crate) struct ApprovalPane {
    question: Arc<Question>,
    // How each operation differs from what was approved.
    differences: Vec<Option<ApprovalDifference>>,
    is_ready: bool,
    selected: usize,
    // Whether each operation has been shown in full, and how many rows of the selected one, counted from its first.
    seen_items: Vec<bool>,
    seen_rows: usize,
    // How many rows of warnings did not fit, and whether the user has seen all of them.
    hidden_warning_rows: usize,
    has_read_header: bool,
    // How many of the agent's own answers are visible.
    visible_offers: usize,
    // What was not visible when the user pressed yes; shown until there is an answer.
    unseen_warning: Option<String>,
    stats: Vec<Option<DiffStat>>,
    // The agent's original text, once the user has edited it.
    original_text: Option<Arc<String>>,
    // Whether the user wants to edit the text in an editor.
    wants_editor: bool,
    // `None` chooses the layout by width.
    layout: Option<DiffLayout>,
    viewport: Viewport,
    mode: ApprovalMode,
    // Whether the pane has the whole screen, and whether that is small.
    is_full_screen: bool,
    is_small: bool,
    rendered: Option<RenderedItem>,
}

#[derive(Debug)]
enum ApprovalMode {
    Review,
    ScopePicker(ScopePicker),
    Reason(LineEditor),
    // Text over everything else: the help, or the full header.
    Reader { is_help: bool, viewport: Viewport },
}

/// The rendered lines of an operation, and what they were rendered for.
#[derive(Debug)]
struct RenderedItem {
    key: (usize, u16, DiffLayout),
    lines: Vec<Line<'static>>,
    // The rows of each hunk.
    hunks: Vec<Range<usize>>,
}

impl ApprovalPane {
    /// Returns a pane that cannot be answered before [`ApprovalPane::set_ready`].
    pub(crate) fn new(question: Arc<Question>, differences: Vec<Option<ApprovalDifference>>) -> Self {
        let item_count = question.items.len();
        Self {
            question,
            differences,
            is_ready: false,
            selected: 0,
            seen_items: vec![false; item_count],
            seen_rows: 0,
            hidden_warning_rows: 0,
            has_read_header: false,
            visible_offers: 0,
            unseen_warning: None,
            stats: vec![None; item_count],
            original_text: None,
            wants_editor: false,
            layout: None,
            viewport: Viewport::default(),
            mode: ApprovalMode::Review,
            is_full_screen: false,
            is_small: false,
            rendered: None,
        }
    }

    /// Returns the question.
    pub(crate) fn question(&self) -> &Question {
        &self.question
    }

    /// Sets whether keys answer: a user who is still typing has not seen the question.
    pub(crate) fn set_ready(&mut self, is_ready: bool) {
        self.is_ready = is_ready;
    }

    /// Returns, once, whether the user wants to edit the text in an editor.
    pub(crate) fn take_wants_editor(&mut self) -> bool {
        std::mem::take(&mut self.wants_editor)
    }

    /// Handles a key, and returns the reply if it was an answer.
    pub(crate) fn handle_key(&mut self, key: KeyEvent) -> Option<QuestionReply> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        self.handle_mode_key(key).map(|reply| self.add_edited_text(reply))
    }

    fn handle_mode_key(&mut self, key: KeyEvent) -> Option<QuestionReply> {
        match &mut self.mode {
            ApprovalMode::Review => self.handle_review_key(key),
            ApprovalMode::Reason(editor) => match key.code {
                KeyCode::Esc => {
                    self.mode = ApprovalMode::Review;
                    None
                }
                KeyCode::Enter if key.kind == KeyEventKind::Press => {
                    let reason = Some(editor.text().trim().to_owned()).filter(|text| !text.is_empty());
                    Some(QuestionReply::deny_because(reason))
                }
                _ => {
                    editor.handle_key(key);
                    None
                }
            },
            _ if !is_plain(key) || key.kind != KeyEventKind::Press => None,
            ApprovalMode::ScopePicker(picker) if self.is_ready || !picker.is_answer_key(key.code) => {
                match picker.handle_key(key.code) {
                    ScopePickerOutcome::Pending => None,
                    ScopePickerOutcome::Cancelled => {
                        self.mode = ApprovalMode::Review;
                        None
                    }
                    ScopePickerOutcome::Reply(reply) => Some(reply),
                }
            }
            ApprovalMode::ScopePicker(_) => None,
            ApprovalMode::Reader { viewport, .. } => {
                if !viewport.handle_key(key.code) {
                    self.mode = ApprovalMode::Review;
                }
                None
            }
        }
    }

    /// Scrolls the visible text by some lines.
    pub(crate) fn scroll(&mut self, lines: isize) {
        match &mut self.mode {
            ApprovalMode::Reader { viewport, .. } => viewport.scroll(lines),
            _ => self.viewport.scroll(lines),
        }
    }

    /// Handles pasted text, which never answers.
    pub(crate) fn paste(&mut self, text: &str) {
        if let ApprovalMode::Reason(editor) = &mut self.mode {
            editor.paste(text);
        }
    }

    fn handle_review_key(&mut self, key: KeyEvent) -> Option<QuestionReply> {
        if !is_plain(key) {
            return None;
        }
        // A held key repeats a press that was meant for something else.
        let can_answer = self.is_ready && key.kind == KeyEventKind::Press;
        match key.code {
            KeyCode::Char('y') if can_answer => {
                return self.answer(AnswerChoice::Allow, AnswerLifetime::Once);
            }
            KeyCode::Char('s') if can_answer => {
                return self.answer(AnswerChoice::Allow, AnswerLifetime::Session);
            }
            KeyCode::Char('p') if can_answer => {
                return self.answer(AnswerChoice::Allow, AnswerLifetime::Project);
            }
            KeyCode::Char('n') if can_answer => return self.answer(AnswerChoice::Deny, AnswerLifetime::Once),
            KeyCode::Char('N') if can_answer => {
                return self.answer(AnswerChoice::Deny, AnswerLifetime::Project);
            }
            KeyCode::Char(digit @ '1'..='9') if can_answer => return self.choose_offer(digit),
            KeyCode::Char('r') if can_answer => self.mode = ApprovalMode::Reason(LineEditor::default()),
            KeyCode::Char('m') if can_answer => self.open_scope_picker(),
            KeyCode::Char('e') if can_answer => self.wants_editor = self.editable_text().is_some(),
            KeyCode::Char('x') if can_answer => self.exclude_hunk(),
            KeyCode::Char('z') if can_answer => self.restore_original(),
            KeyCode::Char('v') => {
                let (_, width, layout) =
                    self.rendered.as_ref().map_or((0, 0, DiffLayout::Unified), |rendered| rendered.key);
                self.layout = Some(self.layout.unwrap_or(layout).toggled()).filter(|_| width > 0);
            }
            KeyCode::Char('?') | KeyCode::F(1) => self.open_reader(true),
            KeyCode::Char('w') => self.open_reader(false),
            KeyCode::Char('f') => self.is_full_screen = !self.is_full_screen,
            KeyCode::Tab | KeyCode::Right => self.select_item(self.selected + 1),
            KeyCode::BackTab | KeyCode::Left => self.select_item(self.selected.saturating_sub(1)),
            code => {
                self.viewport.handle_key(code);
            }
        }
        None
    }

    fn open_reader(&mut self, is_help: bool) {
        self.has_read_header |= !is_help;
        self.mode = ApprovalMode::Reader { is_help, viewport: Viewport::default() };
    }

    /// Chooses one of the agent's own answers, if it was visible.
    fn choose_offer(&mut self, digit: char) -> Option<QuestionReply> {
        let number = usize::try_from(digit.to_digit(10)?).ok()?;
        let option = self.question.selectable_options().get(number.checked_sub(1)?)?;
        let answer = QuestionAnswer::from_agent_option(option);
        let is_visible = self.has_read_header || number <= self.visible_offers;
        (is_visible && (answer.choice == AnswerChoice::Deny || !self.advance_to_unseen()))
            .then_some(QuestionReply::Answered(answer))
    }

    /// The first time, moves on to a part that was not visible yet, and returns whether there was one: then a yes does
    /// not count yet.
    fn advance_to_unseen(&mut self) -> bool {
        let is_answer_hidden = self
            .question
            .default_option_number(AnswerChoice::Allow)
            .is_some_and(|number| number > self.visible_offers);
        let is_header_unread = (self.hidden_warning_rows > 0 || is_answer_hidden) && !self.has_read_header;
        let unseen = self.seen_items.iter().position(|is_seen| !is_seen);
        if self.unseen_warning.is_some() || (unseen.is_none() && !is_header_unread) {
            return false;
        }
        let unseen_count = self.seen_items.iter().filter(|is_seen| !**is_seen).count();
        self.unseen_warning = Some(match self.seen_items.len() {
            _ if is_header_unread && self.hidden_warning_rows == 0 => "there are several answers".to_owned(),
            _ if is_header_unread => "there are warnings".to_owned(),
            1 => "there is more of it".to_owned(),
            count => format!("{unseen_count} of {count} were not all in sight"),
        });
        match unseen {
            _ if is_header_unread => self.open_reader(false),
            Some(_) if !self.seen_items[self.selected] => {
                self.viewport.handle_key(KeyCode::PageDown);
            }
            Some(item) => self.select_item(item),
            None => {}
        }
        true
    }

    /// Returns a reply, unless it allows something that was not visible and the user has not been warned yet. A lasting
    /// reply covers the narrowest scope that a rule can express.
    fn answer(&mut self, choice: AnswerChoice, lifetime: AnswerLifetime) -> Option<QuestionReply> {
        let reply = match lifetime {
            AnswerLifetime::Once => QuestionReply::answer(choice, lifetime),
            _ => ScopePicker::new(&self.question, choice)?.to_reply(lifetime)?,
        };
        (choice == AnswerChoice::Deny || !self.advance_to_unseen()).then_some(reply)
    }

    /// Lets the user choose the scope and the lifetime of an answer.
    fn open_scope_picker(&mut self) {
        if let Some(picker) = ScopePicker::new(&self.question, AnswerChoice::Allow)
            && !self.advance_to_unseen()
        {
            self.mode = ApprovalMode::ScopePicker(picker);
        }
    }

    fn select_item(&mut self, item: usize) {
        let item = item.min(self.question.items.len().saturating_sub(1));
        if item != self.selected {
            (self.selected, self.seen_rows) = (item, 0);
            self.viewport.reset();
        }
    }

    /// Returns the note on a reply for the conversation: that something was rejected, and which rule applies from now
    /// on.
    pub(crate) fn describe_reply(&self, reply: &QuestionReply) -> Option<String> {
        let QuestionReply::Answered(QuestionAnswer { choice, lifetime, reason, edited_text, .. }) = reply
        else {
            return None;
        };
        if edited_text.is_some() && *lifetime == AnswerLifetime::Once {
            return Some(format!(
                "you changed “{}”",
                display::escape_line(&self.question.title, MAX_TITLE_BYTES)
            ));
        }
        let verb = match choice {
            // The result is visible, and saved rules are reported when they are saved.
            AnswerChoice::Allow
                if matches!(
                    lifetime,
                    AnswerLifetime::Once | AnswerLifetime::Project | AnswerLifetime::Always
                ) =>
            {
                return None;
            }
            AnswerChoice::Allow => "allowed",
            AnswerChoice::Deny => "rejected",
        };
        let duration = match lifetime {
            AnswerLifetime::Once | AnswerLifetime::Project | AnswerLifetime::Always => "",
            AnswerLifetime::Turn => ", for this turn",
            AnswerLifetime::Session => ", for this session",
        };
        let title = display::escape_line(&self.question.title, MAX_TITLE_BYTES);
        let reason =
            reason.as_ref().map(|reason| format!(": {}", display::escape_line(reason, MAX_TITLE_BYTES)));
        Some(format!("you {verb} “{title}”{duration}{}", reason.unwrap_or_default()))
    }
}

/// Returns whether a key is pressed without modifiers other than Shift.
fn is_plain(key: KeyEvent) -> bool {
    (key.modifiers - KeyModifiers::SHIFT).is_empty()
}

#[cfg(test)]
mod tests;
