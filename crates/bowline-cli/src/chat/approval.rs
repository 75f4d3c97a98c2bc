//! The approval pane: every file of a request, the whole command, the dangers, and the keys to answer. It takes as many
//! rows as it needs below the conversation, or the whole screen.
//!
//! There is no default answer: Enter never answers, nor does any key while the user types
//! ([`ApprovalPane::set_ready`]), nor a key that repeats because it is held, nor one pressed with Control or Alt.

mod body;
mod detail;
mod edit;
mod footer;
mod header;
mod scope_picker;

use std::ops::Range;
use std::sync::Arc;

use bowline_policy::question::{AnswerChoice, AnswerLifetime, Question, QuestionAnswer, QuestionReply};
use bowline_text::diff::DiffStat;
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::Clear;

use super::diff::DiffLayout;
use super::widgets::cells::{self, Truncation};
use super::widgets::line_editor::LineEditor;
use super::widgets::viewport::Viewport;
use super::widgets::{draw_line, draw_lines, split_bottom, split_top, theme};
use crate::client::ApprovalDifference;
pub(crate) use edit::EditableText;
use header::{ApprovalHeader, help_lines};
use scope_picker::{ScopePicker, ScopePickerOutcome};

/// The maximum length of a title or a reason that is shown, in bytes.
const MAX_TEXT: usize = 4096;

/// The maximum number of header rows for the agent's own words, so that they cannot push the warnings out of sight.
const TITLE_ROWS: usize = 2;

/// The minimum screen width for showing the list of operations beside the selected one, and the width of that list.
const SIDE_LIST: (u16, u16) = (110, 38);

/// With fewer rows than this, the parts are shown one at a time.
const SMALL_HEIGHT: u16 = 12;

/// With fewer rows than this, the screen is not shared with the conversation.
const MIN_SHARED_HEIGHT: u16 = 18;

/// The minimum number of rows left for the conversation.
const CONVERSATION_ROWS: u16 = 6;

/// With fewer columns than this, labels are shortened.
const MIN_LABEL_WIDTH: u16 = 26;

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
        let items = question.items.len();
        Self {
            question,
            differences,
            is_ready: false,
            selected: 0,
            seen_items: vec![false; items],
            seen_rows: 0,
            hidden_warning_rows: 0,
            has_read_header: false,
            visible_offers: 0,
            unseen_warning: None,
            stats: vec![None; items],
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
    pub(crate) fn set_ready(&mut self, ready: bool) {
        self.is_ready = ready;
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
            ApprovalMode::Reason(entry) => match key.code {
                KeyCode::Esc => {
                    self.mode = ApprovalMode::Review;
                    None
                }
                KeyCode::Enter if key.kind == KeyEventKind::Press => {
                    let reason = Some(entry.text().trim().to_owned()).filter(|text| !text.is_empty());
                    let (choice, keep, scope) = (AnswerChoice::Deny, AnswerLifetime::Once, Vec::new());
                    Some(QuestionReply::Answered(QuestionAnswer {
                        choice,
                        lifetime: keep,
                        scope,
                        reason,
                        option_id: None,
                        edited_text: None,
                    }))
                }
                _ => {
                    entry.handle_key(key);
                    None
                }
            },
            _ if !is_plain(key) || key.kind != KeyEventKind::Press => None,
            ApprovalMode::ScopePicker(keeping) if self.is_ready || !keeping.is_answer_key(key.code) => {
                match keeping.handle_key(key.code) {
                    ScopePickerOutcome::Pending => None,
                    ScopePickerOutcome::Cancelled => {
                        self.mode = ApprovalMode::Review;
                        None
                    }
                    ScopePickerOutcome::Reply(reply) => Some(reply),
                }
            }
            ApprovalMode::ScopePicker(_) => None,
            ApprovalMode::Reader { viewport: view, .. } => {
                if !view.handle_key(key.code) {
                    self.mode = ApprovalMode::Review;
                }
                None
            }
        }
    }

    /// Scrolls the visible text by some lines.
    pub(crate) fn scroll(&mut self, lines: isize) {
        match &mut self.mode {
            ApprovalMode::Reader { viewport: view, .. } => view.scroll(lines),
            _ => self.viewport.scroll(lines),
        }
    }

    /// Handles pasted text, which never answers.
    pub(crate) fn paste(&mut self, text: &str) {
        if let ApprovalMode::Reason(entry) = &mut self.mode {
            entry.paste(text);
        }
    }

    fn handle_review_key(&mut self, key: KeyEvent) -> Option<QuestionReply> {
        if !is_plain(key) {
            return None;
        }
        // A held key repeats a press that was meant for something else.
        let answers = self.is_ready && key.kind == KeyEventKind::Press;
        match key.code {
            KeyCode::Char('y') if answers => return self.answer(AnswerChoice::Allow, AnswerLifetime::Once),
            KeyCode::Char('s') if answers => {
                return self.answer(AnswerChoice::Allow, AnswerLifetime::Session);
            }
            KeyCode::Char('p') if answers => {
                return self.answer(AnswerChoice::Allow, AnswerLifetime::Project);
            }
            KeyCode::Char('n') if answers => return self.answer(AnswerChoice::Deny, AnswerLifetime::Once),
            KeyCode::Char('N') if answers => return self.answer(AnswerChoice::Deny, AnswerLifetime::Project),
            KeyCode::Char(digit @ '1'..='9') if answers => return self.choose_offer(digit),
            KeyCode::Char('r') if answers => self.mode = ApprovalMode::Reason(LineEditor::default()),
            KeyCode::Char('m') if answers => self.open_scope_picker(),
            KeyCode::Char('e') if answers => self.wants_editor = self.editable_text().is_some(),
            KeyCode::Char('x') if answers => self.exclude_hunk(),
            KeyCode::Char('z') if answers => self.restore_original(),
            KeyCode::Char('v') => {
                let (_, width, layout) =
                    self.rendered.as_ref().map_or((0, 0, DiffLayout::Unified), |drawn| drawn.key);
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

    fn open_reader(&mut self, help: bool) {
        self.has_read_header |= !help;
        self.mode = ApprovalMode::Reader { is_help: help, viewport: Viewport::default() };
    }

    /// Chooses one of the agent's own answers, if it was visible.
    fn choose_offer(&mut self, digit: char) -> Option<QuestionReply> {
        let number = usize::try_from(digit.to_digit(10)?).ok()?;
        let offer = self.question.selectable_options().get(number.checked_sub(1)?)?;
        let answer = QuestionAnswer::from_agent_option(offer);
        let in_sight = self.has_read_header || number <= self.visible_offers;
        (in_sight && (answer.choice == AnswerChoice::Deny || !self.advance_to_unseen()))
            .then_some(QuestionReply::Answered(answer))
    }

    /// The first time, moves on to a part that was not visible yet, and returns whether there was one: then a yes does
    /// not count yet.
    fn advance_to_unseen(&mut self) -> bool {
        let is_answer_hidden = self
            .question
            .default_option_number(AnswerChoice::Allow)
            .is_some_and(|number| number > self.visible_offers);
        let unread = (self.hidden_warning_rows > 0 || is_answer_hidden) && !self.has_read_header;
        let unseen = self.seen_items.iter().position(|looked_at| !looked_at);
        if self.unseen_warning.is_some() || (unseen.is_none() && !unread) {
            return false;
        }
        let missing = self.seen_items.iter().filter(|looked_at| !**looked_at).count();
        self.unseen_warning = Some(match self.seen_items.len() {
            _ if unread && self.hidden_warning_rows == 0 => "there are several answers".to_owned(),
            _ if unread => "there are warnings".to_owned(),
            1 => "there is more of it".to_owned(),
            items => format!("{missing} of {items} were not all in sight"),
        });
        match unseen {
            _ if unread => self.open_reader(false),
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
    fn answer(&mut self, choice: AnswerChoice, keep: AnswerLifetime) -> Option<QuestionReply> {
        let reply = match keep {
            AnswerLifetime::Once => QuestionReply::answer(choice, keep),
            _ => ScopePicker::new(&self.question, choice)?.to_reply(keep)?,
        };
        (choice == AnswerChoice::Deny || !self.advance_to_unseen()).then_some(reply)
    }

    /// Lets the user choose the scope and the lifetime of an answer.
    fn open_scope_picker(&mut self) {
        if let Some(keeping) = ScopePicker::new(&self.question, AnswerChoice::Allow)
            && !self.advance_to_unseen()
        {
            self.mode = ApprovalMode::ScopePicker(keeping);
        }
    }

    fn select_item(&mut self, item: usize) {
        let item = item.min(self.question.items.len().saturating_sub(1));
        if item != self.selected {
            (self.selected, self.seen_rows) = (item, 0);
            self.viewport.reset();
        }
    }

    /// Returns how many rows of the screen the pane takes: as many as it needs, if that leaves some for the
    /// conversation.
    pub(crate) fn needed_rows(&mut self, screen: Rect) -> u16 {
        if self.is_full_screen
            || screen.height < MIN_SHARED_HEIGHT
            || matches!(self.mode, ApprovalMode::Reader { .. })
        {
            return screen.height;
        }
        self.is_small = false;
        let ApprovalHeader { title, dangers, reason: because, .. } =
            ApprovalHeader::new(&self.question, screen.width);
        let head = title.len().min(TITLE_ROWS + 1) + dangers.len() + because.len();
        let needed = head + self.body_rows(screen.width) + self.footer_lines(screen).len();
        u16::try_from(needed).unwrap_or(u16::MAX).min(screen.height - CONVERSATION_ROWS)
    }

    /// Draws the pane over the area. `waiting` is the number of questions behind it.
    pub(crate) fn draw(&mut self, frame: &mut Frame<'_>, area: Rect, waiting: usize) {
        let area = area.intersection(frame.area());
        if area.is_empty() {
            return;
        }
        frame.render_widget(Clear, area);
        let screen = frame.area();
        self.is_small = screen.height < SMALL_HEIGHT;
        if let ApprovalMode::Reader { is_help: help, viewport: view } = &mut self.mode {
            let lines = if *help {
                help_lines(area.width)
            } else {
                ApprovalHeader::new(&self.question, area.width).into_lines()
            };
            let (body, last) = split_bottom(area, 1);
            view.draw(frame, body, &lines);
            let position =
                view.describe_position().map_or_else(String::new, |position| format!(" {position} ·"));
            draw_line(
                frame,
                last,
                &Line::styled(format!("{position} any other key: back"), theme::secondary()),
            );
            return;
        }
        let footer = self.footer_lines(Rect { height: screen.height, ..area });
        let (rest, bottom) = split_bottom(area, footer.len());
        let head = self.header_lines(rest);
        let (top, body) = split_top(rest, head.len());
        draw_lines(frame, top, &head);
        draw_lines(frame, bottom, &footer);
        self.draw_body(frame, body, waiting);
    }

    /// Returns the header: the agent's words, the dangers, the reason for asking. It is cut to leave room for the rest,
    /// and says what is missing.
    fn header_lines(&mut self, area: Rect) -> Vec<Line<'static>> {
        let (width, height) = (usize::from(area.width), usize::from(area.height));
        let body = self.body_rows(area.width).min(height / 2).min(8);
        let room = height.saturating_sub(body).max(1);
        let note = |text: String, style: Style| {
            Line::styled(cells::truncate(&text, width, Truncation::KeepStart), style)
        };
        let ApprovalHeader { mut title, dangers, reason: because, .. } =
            ApprovalHeader::new(&self.question, area.width);
        if title.len() > TITLE_ROWS {
            let text = format!("… {} more lines of its words: w shows all", title.len() - TITLE_ROWS);
            title.splice(TITLE_ROWS.., [note(text, theme::secondary())]);
        }
        let (first, end) = (title.len(), title.len() + dangers.len());
        let mut lines = [title, dangers, because].concat();
        self.hidden_warning_rows = 0;
        if lines.len() > room {
            let missing = lines.split_off(room - 1).len();
            self.hidden_warning_rows = end.saturating_sub(lines.len().max(first));
            let dangers = self.hidden_warning_rows;
            lines.push(match dangers {
                0 => note(format!("… {missing} more: w"), theme::secondary()),
                _ => note(format!("! more warnings: w ({dangers} lines)"), theme::danger()),
            });
        }
        lines
    }
}

/// Returns whether a key is pressed without modifiers other than Shift.
fn is_plain(key: KeyEvent) -> bool {
    (key.modifiers - KeyModifiers::SHIFT).is_empty()
}

#[cfg(test)]
mod tests;
