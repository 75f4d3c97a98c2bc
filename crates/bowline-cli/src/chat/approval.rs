//! A question: every file of a request, the whole command, what is dangerous, and the keys to answer. It takes as many rows
//! of the screen as it needs, below the conversation, or all of them.
//!
//! Nothing is an answer by default: Enter never is, no key is while somebody types ([`Approval::ready`]), none that repeats
//! because it is held, and none that is held with Control or Alt.

mod body;
mod choice;
mod detail;
mod edit;
mod footer;
mod words;

use std::ops::Range;
use std::sync::Arc;

use bowline_state::diff::Stat;
use bowline_state::question::{Answer, Choice, Keep, Question, Reply};
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::Clear;

use super::diff::Layout;
use super::parts::cells::{self, Stays};
use super::parts::entry::Entry;
use super::parts::view::View;
use super::parts::{put, put_all, split_bottom, split_top, theme};
use crate::client::Difference;
use choice::{Chosen, Keeping};
pub(crate) use edit::EditableText;
use words::{Words, help_lines};

/// As much of a title or a reason is shown, in bytes.
const MAX_TEXT: usize = 4096;

/// So many rows of the head are for the agent's own words, which must not push the warnings out of sight.
const TITLE_ROWS: usize = 2;

/// From so many columns on the list of operations stands beside what is chosen in it, so wide.
const LIST_BESIDE: (u16, u16) = (110, 38);

/// With fewer rows than this, one thing after the other has the screen.
const SMALL: u16 = 12;

/// A screen with fewer rows than this is not shared with the conversation.
const LEAST_SHARED: u16 = 18;

/// So many rows of a screen are for the conversation at least.
const CONVERSATION_ROWS: u16 = 6;

/// With fewer columns than this there are fewer words.
const LEAST_WORDS: u16 = 26;

/// A question that a person looks at.
#[derive(Debug)]
pub(crate) struct Approval {
    question: Arc<Question>,
    // What of each operation is not as it was approved.
    differences: Vec<Option<Difference>>,
    armed: bool,
    selected: usize,
    // Whether all of an operation was in sight, and how many rows from the first on of the one that is chosen.
    looked_at: Vec<bool>,
    covered: usize,
    // How many rows of warnings there was no room for, and whether somebody looked at all of them.
    hidden: usize,
    read: bool,
    // How many of the agent's own answers are in sight.
    offered: usize,
    // What was not in sight when a yes was said; that is said until there is an answer.
    warned: Option<String>,
    stats: Vec<Option<Stat>>,
    // What the agent wants to write, once the person has changed that.
    agents_text: Option<Arc<String>>,
    // Whether the person wants to change it in an editor.
    wants_editor: bool,
    // None means what suits the width.
    layout: Option<Layout>,
    view: View,
    mode: Mode,
    // Whether it has the whole screen, and whether that is a small one.
    whole: bool,
    small: bool,
    drawn: Option<Drawn>,
}

#[derive(Debug)]
enum Mode {
    Looking,
    Keeping(Keeping),
    Reason(Entry),
    // Text over all else: help, or all words of the head.
    Reading { help: bool, view: View },
}

/// The lines of an operation, and what they were drawn for.
#[derive(Debug)]
struct Drawn {
    key: (usize, u16, Layout),
    lines: Vec<Line<'static>>,
    // The rows of each hunk.
    hunks: Vec<Range<usize>>,
}

impl Approval {
    /// Returns a question that cannot be answered before [`Approval::ready`].
    pub(crate) fn new(question: Arc<Question>, differences: Vec<Option<Difference>>) -> Self {
        let items = question.items.len();
        Self {
            question,
            differences,
            armed: false,
            selected: 0,
            looked_at: vec![false; items],
            covered: 0,
            hidden: 0,
            read: false,
            offered: 0,
            warned: None,
            stats: vec![None; items],
            agents_text: None,
            wants_editor: false,
            layout: None,
            view: View::default(),
            mode: Mode::Looking,
            whole: false,
            small: false,
            drawn: None,
        }
    }

    /// Returns what is asked.
    pub(crate) fn question(&self) -> &Question {
        &self.question
    }

    /// Takes answers from now on, or not: only whoever has stopped typing has seen the question.
    pub(crate) fn ready(&mut self, ready: bool) {
        self.armed = ready;
    }

    /// Says, once, that the person wants to change the text in an editor.
    pub(crate) fn take_wants_editor(&mut self) -> bool {
        std::mem::take(&mut self.wants_editor)
    }

    /// Takes in a key, and returns the answer if it was one.
    pub(crate) fn key(&mut self, key: KeyEvent) -> Option<Reply> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        self.press(key).map(|reply| self.with_text(reply))
    }

    fn press(&mut self, key: KeyEvent) -> Option<Reply> {
        match &mut self.mode {
            Mode::Looking => self.look(key),
            Mode::Reason(entry) => match key.code {
                KeyCode::Esc => {
                    self.mode = Mode::Looking;
                    None
                }
                KeyCode::Enter if key.kind == KeyEventKind::Press => {
                    let reason = Some(entry.text().trim().to_owned()).filter(|text| !text.is_empty());
                    let (choice, keep, scope) = (Choice::Deny, Keep::Once, Vec::new());
                    Some(Reply::Answered(Answer { choice, keep, scope, reason, option: None, text: None }))
                }
                _ => {
                    entry.key(key);
                    None
                }
            },
            _ if !is_plain(key) || key.kind != KeyEventKind::Press => None,
            Mode::Keeping(keeping) if self.armed || !keeping.answers(key.code) => match keeping.key(key.code)
            {
                Chosen::Open => None,
                Chosen::Back => {
                    self.mode = Mode::Looking;
                    None
                }
                Chosen::Reply(reply) => Some(reply),
            },
            Mode::Keeping(_) => None,
            Mode::Reading { view, .. } => {
                if !view.key(key.code) {
                    self.mode = Mode::Looking;
                }
                None
            }
        }
    }

    /// Scrolls what is in sight by some lines.
    pub(crate) fn scroll(&mut self, lines: isize) {
        match &mut self.mode {
            Mode::Reading { view, .. } => view.scroll(lines),
            _ => self.view.scroll(lines),
        }
    }

    /// Takes in pasted text, which answers nothing.
    pub(crate) fn paste(&mut self, text: &str) {
        if let Mode::Reason(entry) = &mut self.mode {
            entry.paste(text);
        }
    }

    fn look(&mut self, key: KeyEvent) -> Option<Reply> {
        if !is_plain(key) {
            return None;
        }
        // A key that is held repeats what was meant for something else.
        let answers = self.armed && key.kind == KeyEventKind::Press;
        match key.code {
            KeyCode::Char('y') if answers => return self.answer(Choice::Allow, Keep::Once),
            KeyCode::Char('s') if answers => return self.answer(Choice::Allow, Keep::Session),
            KeyCode::Char('p') if answers => return self.answer(Choice::Allow, Keep::Project),
            KeyCode::Char('n') if answers => return self.answer(Choice::Deny, Keep::Once),
            KeyCode::Char('N') if answers => return self.answer(Choice::Deny, Keep::Project),
            KeyCode::Char(digit @ '1'..='9') if answers => return self.choose(digit),
            KeyCode::Char('r') if answers => self.mode = Mode::Reason(Entry::default()),
            KeyCode::Char('m') if answers => self.keep(),
            KeyCode::Char('e') if answers => self.wants_editor = self.editable().is_some(),
            KeyCode::Char('x') if answers => self.leave_out_hunk(),
            KeyCode::Char('z') if answers => self.restore(),
            KeyCode::Char('v') => {
                let (_, width, layout) =
                    self.drawn.as_ref().map_or((0, 0, Layout::Unified), |drawn| drawn.key);
                self.layout = Some(self.layout.unwrap_or(layout).other()).filter(|_| width > 0);
            }
            KeyCode::Char('?') | KeyCode::F(1) => self.read(true),
            KeyCode::Char('w') => self.read(false),
            KeyCode::Char('f') => self.whole = !self.whole,
            KeyCode::Tab | KeyCode::Right => self.select(self.selected + 1),
            KeyCode::BackTab | KeyCode::Left => self.select(self.selected.saturating_sub(1)),
            code => {
                self.view.key(code);
            }
        }
        None
    }

    fn read(&mut self, help: bool) {
        self.read |= !help;
        self.mode = Mode::Reading { help, view: View::default() };
    }

    /// Takes one of the agent's own answers, if it was in sight.
    fn choose(&mut self, digit: char) -> Option<Reply> {
        let number = usize::try_from(digit.to_digit(10)?).ok()?;
        let offer = self.question.choices().get(number.checked_sub(1)?)?;
        let answer = Answer::chosen(offer);
        let in_sight = self.read || number <= self.offered;
        (in_sight && (answer.choice == Choice::Deny || !self.goes_on())).then_some(Reply::Answered(answer))
    }

    /// Goes on to what was not in sight yet, once; and says whether there was such a thing: then a yes is none yet.
    fn goes_on(&mut self) -> bool {
        let is_answer_hidden =
            self.question.default_number(Choice::Allow).is_some_and(|number| number > self.offered);
        let unread = (self.hidden > 0 || is_answer_hidden) && !self.read;
        let unseen = self.looked_at.iter().position(|looked_at| !looked_at);
        if self.warned.is_some() || (unseen.is_none() && !unread) {
            return false;
        }
        let missing = self.looked_at.iter().filter(|looked_at| !**looked_at).count();
        self.warned = Some(match self.looked_at.len() {
            _ if unread && self.hidden == 0 => "there are several answers".to_owned(),
            _ if unread => "there are warnings".to_owned(),
            1 => "there is more of it".to_owned(),
            items => format!("{missing} of {items} were not all in sight"),
        });
        match unseen {
            _ if unread => self.read(false),
            Some(_) if !self.looked_at[self.selected] => {
                self.view.key(KeyCode::PageDown);
            }
            Some(item) => self.select(item),
            None => {}
        }
        true
    }

    /// Returns an answer, if all of what is allowed was in sight. One that lasts holds for the narrowest that a rule can be
    /// made for.
    fn answer(&mut self, choice: Choice, keep: Keep) -> Option<Reply> {
        let reply = match keep {
            Keep::Once => Reply::answer(choice, keep),
            _ => Keeping::new(&self.question, choice)?.reply(keep)?,
        };
        (choice == Choice::Deny || !self.goes_on()).then_some(reply)
    }

    /// Lets the person choose what an answer holds for, and how long.
    fn keep(&mut self) {
        if let Some(keeping) = Keeping::new(&self.question, Choice::Allow)
            && !self.goes_on()
        {
            self.mode = Mode::Keeping(keeping);
        }
    }

    fn select(&mut self, item: usize) {
        let item = item.min(self.question.items.len().saturating_sub(1));
        if item != self.selected {
            (self.selected, self.covered) = (item, 0);
            self.view.reset();
        }
    }

    /// Returns how many rows of a screen it takes: as many as it needs, if that leaves the conversation some.
    pub(crate) fn rows(&mut self, screen: Rect) -> u16 {
        if self.whole || screen.height < LEAST_SHARED || matches!(self.mode, Mode::Reading { .. }) {
            return screen.height;
        }
        self.small = false;
        let Words { title, dangers, because, .. } = Words::of(&self.question, screen.width);
        let head = title.len().min(TITLE_ROWS + 1) + dangers.len() + because.len();
        let needed = head + self.body_rows(screen.width) + self.footer(screen).len();
        u16::try_from(needed).unwrap_or(u16::MAX).min(screen.height - CONVERSATION_ROWS)
    }

    /// Draws all of it, over whatever is there. So many questions wait behind it.
    pub(crate) fn draw(&mut self, frame: &mut Frame<'_>, area: Rect, waiting: usize) {
        let area = area.intersection(frame.area());
        if area.is_empty() {
            return;
        }
        frame.render_widget(Clear, area);
        let screen = frame.area();
        self.small = screen.height < SMALL;
        if let Mode::Reading { help, view } = &mut self.mode {
            let lines =
                if *help { help_lines(area.width) } else { Words::of(&self.question, area.width).all() };
            let (body, last) = split_bottom(area, 1);
            view.draw(frame, body, &lines);
            let position = view.position().map_or_else(String::new, |position| format!(" {position} ·"));
            put(frame, last, &Line::styled(format!("{position} any other key: back"), theme::aside()));
            return;
        }
        let footer = self.footer(Rect { height: screen.height, ..area });
        let (rest, bottom) = split_bottom(area, footer.len());
        let head = self.head(rest);
        let (top, body) = split_top(rest, head.len());
        put_all(frame, top, &head);
        put_all(frame, bottom, &footer);
        self.body(frame, body, waiting);
    }

    /// Returns what stands above: the agent's words, the dangers, why it is asked. As much as leaves room for the rest,
    /// and what is missing is said.
    fn head(&mut self, area: Rect) -> Vec<Line<'static>> {
        let (width, height) = (usize::from(area.width), usize::from(area.height));
        let body = self.body_rows(area.width).min(height / 2).min(8);
        let room = height.saturating_sub(body).max(1);
        let note = |text: String, style: Style| Line::styled(cells::fit(&text, width, Stays::Start), style);
        let Words { mut title, dangers, because, .. } = Words::of(&self.question, area.width);
        if title.len() > TITLE_ROWS {
            let text = format!("… {} more lines of its words: w shows all", title.len() - TITLE_ROWS);
            title.splice(TITLE_ROWS.., [note(text, theme::aside())]);
        }
        let (first, end) = (title.len(), title.len() + dangers.len());
        let mut lines = [title, dangers, because].concat();
        self.hidden = 0;
        if lines.len() > room {
            let missing = lines.split_off(room - 1).len();
            self.hidden = end.saturating_sub(lines.len().max(first));
            let dangers = self.hidden;
            lines.push(match dangers {
                0 => note(format!("… {missing} more: w"), theme::aside()),
                _ => note(format!("! more warnings: w ({dangers} lines)"), theme::danger()),
            });
        }
        lines
    }
}

/// Returns whether a key is pressed by itself, Shift apart.
fn is_plain(key: KeyEvent) -> bool {
    (key.modifiers - KeyModifiers::SHIFT).is_empty()
}

#[cfg(test)]
mod tests;
