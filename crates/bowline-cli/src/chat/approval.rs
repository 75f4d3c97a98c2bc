//! The full-screen question: every file of a request, the whole command, what is dangerous, and the keys to answer.
//!
//! Nothing is an answer by default: Enter never is, no key is before the question was in sight for a moment without any
//! ([`Approval::ready`]), none that repeats because it is held, and none that is held with Control or Alt.

mod choice;
mod detail;
mod words;

use std::sync::Arc;

use bowline_state::diff::{Stat, stat};
use bowline_state::display;
use bowline_state::operation::Target;
use bowline_state::question::{Answer, Choice, Item, Keep, Question, Reply};
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Clear;

use super::diff::Layout;
use super::parts::cells::{self, Stays};
use super::parts::entry::Entry;
use super::parts::view::View;
use super::parts::{keys, put, put_all, ruled, split_bottom, split_left, split_top, theme};
use choice::{Chosen, Keeping};
use words::{Words, help_lines};

/// As much of a title or a reason is shown, in bytes.
const MAX_TEXT: usize = 4096;

/// So many rows of the head are for the agent's own words, which must not push the warnings out of sight.
const TITLE_ROWS: usize = 2;

/// From so many columns on the list of operations stands beside what is chosen in it, so wide.
const LIST_BESIDE: (u16, u16) = (110, 38);

/// With fewer rows than this, one thing after the other has the screen.
const SMALL: u16 = 12;

/// With fewer columns than this there are fewer words.
const LEAST_WORDS: u16 = 26;

/// A question that a person looks at.
#[derive(Debug)]
pub(crate) struct Approval {
    question: Arc<Question>,
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
    // None means what suits the width.
    layout: Option<Layout>,
    view: View,
    mode: Mode,
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
}

impl Approval {
    /// Returns a question that cannot be answered before [`Approval::ready`].
    pub(crate) fn new(question: Arc<Question>) -> Self {
        let items = question.items.len();
        Self {
            question,
            armed: false,
            selected: 0,
            looked_at: vec![false; items],
            covered: 0,
            hidden: 0,
            read: false,
            offered: 0,
            warned: None,
            stats: vec![None; items],
            layout: None,
            view: View::default(),
            mode: Mode::Looking,
            drawn: None,
        }
    }

    /// Takes answers from now on, or not: only whoever has stopped typing has seen the question.
    pub(crate) fn ready(&mut self, ready: bool) {
        self.armed = ready;
    }

    /// Takes in a key, and returns the answer if it was one.
    pub(crate) fn key(&mut self, key: KeyEvent) -> Option<Reply> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
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
                    Some(Reply::Answered(Answer { choice, keep, scope, reason, option: None }))
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
            KeyCode::Char('a') if answers && self.question.is_plain(Choice::Allow) => {
                return (!self.goes_on()).then(Reply::allow);
            }
            KeyCode::Char('r') if answers && self.question.is_plain(Choice::Deny) => {
                return Some(Reply::deny());
            }
            KeyCode::Char('A') if answers && self.question.is_plain(Choice::Allow) && !self.goes_on() => {
                self.keep(Choice::Allow);
            }
            KeyCode::Char('R') if answers && self.question.is_plain(Choice::Deny) => self.keep(Choice::Deny),
            KeyCode::Char(digit @ '1'..='9') if answers => return self.choose(digit),
            KeyCode::Char('e') if answers => self.mode = Mode::Reason(Entry::default()),
            KeyCode::Char('u') => {
                let (_, width, layout) =
                    self.drawn.as_ref().map_or((0, 0, Layout::Unified), |drawn| drawn.key);
                self.layout = Some(self.layout.unwrap_or(layout).other()).filter(|_| width > 0);
            }
            KeyCode::Char('?') | KeyCode::F(1) => self.read(true),
            KeyCode::Char('w') => self.read(false),
            KeyCode::Tab | KeyCode::Right | KeyCode::Char('n') => self.select(self.selected + 1),
            KeyCode::BackTab | KeyCode::Left | KeyCode::Char('p') => {
                self.select(self.selected.saturating_sub(1));
            }
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
        let unread = self.hidden > 0 && !self.read;
        let unseen = self.looked_at.iter().position(|looked_at| !looked_at);
        if self.warned.is_some() || (unseen.is_none() && !unread) {
            return false;
        }
        let missing = self.looked_at.iter().filter(|looked_at| !**looked_at).count();
        self.warned = Some(match self.looked_at.len() {
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

    fn keep(&mut self, choice: Choice) {
        if let Some(keeping) = Keeping::new(&self.question, choice) {
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

    /// Draws all of it, over whatever is there. So many questions wait behind it.
    pub(crate) fn draw(&mut self, frame: &mut Frame<'_>, area: Rect, waiting: usize) {
        let area = area.intersection(frame.area());
        if area.is_empty() {
            return;
        }
        frame.render_widget(Clear, area);
        if let Mode::Reading { help, view } = &mut self.mode {
            let lines =
                if *help { help_lines(area.width) } else { Words::of(&self.question, area.width).all() };
            let (body, last) = split_bottom(area, 1);
            view.draw(frame, body, &lines);
            let position = view.position().map_or_else(String::new, |position| format!(" {position} ·"));
            put(frame, last, &Line::styled(format!("{position} any other key: back"), theme::aside()));
            return;
        }
        let footer = self.footer(area);
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
        let room = height.saturating_sub((height / 2).min(8)).max(1);
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

    /// Returns what stands below: the keys, or what is being answered.
    fn footer(&mut self, area: Rect) -> Vec<Line<'static>> {
        // Whoever makes a rule has to see what for, if only that.
        let half = if area.height < SMALL { area.height } else { area.height * 2 / 3 };
        match &self.mode {
            Mode::Keeping(keeping) => keeping.lines(area.width, half),
            Mode::Reason(entry) => {
                let mut lines = vec![
                    Line::styled("Reject. What should the agent know?", theme::title()),
                    entry.line(area.width, true),
                    keys(&[("Enter", "reject"), ("Esc", "back")], area.width),
                ];
                lines.drain(..lines.len().saturating_sub(usize::from(half).max(2)));
                lines
            }
            Mode::Looking | Mode::Reading { .. } => {
                let mut lines = self.offers(area);
                if let Some(what) = &self.warned {
                    let text = format!("! {what}: once more to {}", self.allow(area.width));
                    let text = cells::fit(&text, usize::from(area.width), Stays::Start);
                    lines.push(Line::styled(text, theme::danger()));
                }
                if self.armed {
                    lines.extend(self.answers(area));
                } else {
                    lines.push(Line::styled("a moment: no key answers yet", theme::aside()));
                }
                lines
            }
        }
    }

    /// Returns the agent's own answers, as many as there is room for.
    fn offers(&mut self, area: Rect) -> Vec<Line<'static>> {
        let width = usize::from(area.width);
        let choices = self.question.choices();
        let room = usize::from(area.height / 3).max(1);
        self.offered = if choices.len() > room { room - 1 } else { choices.len() };
        let row = |text: String| Line::raw(cells::fit(&cells::visible(&text), width, Stays::Start));
        let shown = choices.iter().zip(1..).take(self.offered);
        let mut lines: Vec<Line<'static>> =
            shown.map(|(offer, number)| row(format!("{number} {}", offer.text()))).collect();
        if self.offered < choices.len() {
            lines.push(row(format!("… {} answers to choose from: w", choices.len())));
        }
        lines
    }

    fn allow(&self, width: u16) -> String {
        match self.question.items.len() {
            0 | 1 => "allow".to_owned(),
            items if width < LEAST_WORDS => format!("all {items}"),
            items => format!("allow all {items}"),
        }
    }

    /// Returns the keys that answer and those that look, in one row or two.
    fn answers(&self, area: Rect) -> Vec<Line<'static>> {
        let items = self.question.items.len();
        let allow = self.allow(area.width);
        let mut lines = Vec::new();
        let rules = !self.question.suggestions.is_empty();
        let [yes, no] = [Choice::Allow, Choice::Deny].map(|choice| self.question.is_plain(choice));
        let answers = [
            ("a", allow.as_str(), yes),
            ("r", "reject", no),
            ("A", "always…", yes && rules),
            ("R", "never…", no && rules),
            ("e", "reject, why…", true),
        ];
        let change = self.question.items.get(self.selected).is_some_and(|item| item.change.is_some());
        let looks = [
            ("Tab", "next", items > 1),
            ("u", "split", change),
            ("Ctrl-C", "cancel", true),
            ("?", "help", true),
        ];
        let of = |keys: &[(&'static str, &str, bool)]| {
            let shown = keys.iter().filter(|(_, _, shown)| *shown);
            shown.map(|(key, what, _)| (*key, (*what).to_owned())).collect::<Vec<_>>()
        };
        let (mut answers, looks) = (of(&answers), of(&looks));
        let cells = |keys: &[(&str, String)]| {
            keys.iter().map(|(key, what)| cells::width(key) + cells::width(what) + 3).sum::<usize>()
        };
        let fits = cells(&answers) + cells(&looks) <= usize::from(area.width) + 2;
        let row = |shown: &[(&'static str, String)]| {
            let shown: Vec<(&str, &str)> = shown.iter().map(|(key, what)| (*key, what.as_str())).collect();
            keys(&shown, area.width)
        };
        if fits || area.height < SMALL {
            answers.extend(looks);
            lines.push(row(&answers));
        } else {
            lines.extend([row(&answers), row(&looks)]);
        }
        lines
    }

    fn body(&mut self, frame: &mut Frame<'_>, area: Rect, waiting: usize) {
        let items = self.question.items.len();
        if area.is_empty() || items == 0 {
            return;
        }
        let (list, rest) = match area.width >= LIST_BESIDE.0 {
            _ if items == 1 || area.height < SMALL / 2 => (Rect::default(), area),
            true => split_left(area, LIST_BESIDE.1),
            false => split_top(area, (items + 1).min(usize::from(area.height / 3).max(2))),
        };
        let (rule, rest) = split_top(rest, 1);
        let layout = self.layout.unwrap_or_else(|| Layout::for_width(rest.width));
        let key = (self.selected, rest.width, layout);
        let drawn = match self.drawn.take() {
            Some(drawn) if drawn.key == key => drawn,
            _ => {
                self.covered = 0;
                Drawn { key, lines: detail::lines(&self.question.items[self.selected], rest.width, layout) }
            }
        };
        self.view.draw(frame, rest, &drawn.lines);
        // What was jumped over was not in sight.
        if self.view.top() <= self.covered {
            self.covered = self.covered.max(self.view.end());
        }
        self.looked_at[self.selected] |= self.covered >= drawn.lines.len();
        self.list(frame, list);
        self.drawn = Some(drawn);
        let more = match waiting {
            0 => None,
            1 => Some("1 more question".to_owned()),
            several => Some(format!("{several} more questions")),
        };
        let number = (items > 1).then(|| format!("{} of {items}", self.selected + 1));
        let place: Vec<String> = number.into_iter().chain(more).collect();
        let place = if place.is_empty() { String::new() } else { format!(" {} ", place.join(" · ")) };
        let position = self.view.position().map_or_else(String::new, |text| format!(" lines {text} "));
        put(frame, rule, &ruled(&place, &position, rule.width));
    }

    fn list(&mut self, frame: &mut Frame<'_>, area: Rect) {
        if area.is_empty() {
            return;
        }
        let width = usize::from(area.width);
        let (rule, rows) = split_top(area, 1);
        let items = self.question.items.len();
        let looked_at = self.looked_at.iter().filter(|looked_at| **looked_at).count();
        let place = format!(" {items} operations, {looked_at} looked at ");
        put(frame, rule, &ruled(&place, "", rule.width));
        let height = usize::from(rows.height);
        let top = (self.selected + 1).saturating_sub(height.max(1));
        for (y, at) in (rows.y..rows.bottom()).zip(top..items) {
            let item = &self.question.items[at];
            let stat = match (&item.change, self.stats[at]) {
                (None, _) => None,
                (Some(_), Some(stat)) => Some(stat),
                (Some(change), None) => {
                    let before = change.before.as_ref().map_or("", |before| before.as_str());
                    Some(*self.stats[at].insert(stat(before, &change.after)))
                }
            };
            let style = if at == self.selected { theme::chosen() } else { Style::new() };
            let row = Rect { y, height: 1, ..rows };
            put(frame, row, &entry(item, stat, style, width));
        }
    }
}

/// Returns a row of the list: kind, target, how many lines.
fn entry(item: &Item, stat: Option<Stat>, style: Style, width: usize) -> Line<'static> {
    let kind = item.operation.kind.word();
    let (name, stays) = match &item.operation.target {
        Target::File { asked, .. } | Target::Elsewhere { asked } => {
            (display::line(asked, MAX_TEXT), Stays::End)
        }
        Target::Command(command) => {
            (display::line(&display::invocation(&command.invocation), MAX_TEXT), Stays::Start)
        }
        Target::Url(text) | Target::Described(text) => (display::line(text, MAX_TEXT), Stays::Start),
    };
    let counts = stat.map(|stat| [format!(" +{}", stat.added), format!(" −{}", stat.removed)]);
    let used = counts.iter().flatten().map(|text| cells::width(text)).sum::<usize>() + kind.len() + 1;
    let name = cells::fit(&cells::visible(&name), width.saturating_sub(used), stays);
    let blank = " ".repeat(width.saturating_sub(used + cells::width(&name)));
    let mut line = Line::styled(format!("{kind} {name}{blank}"), style);
    if let Some([added, removed]) = counts {
        line.push_span(Span::styled(added, theme::added()));
        line.push_span(Span::styled(removed, theme::removed()));
    }
    line
}

/// Returns whether a key is pressed by itself, Shift apart.
fn is_plain(key: KeyEvent) -> bool {
    (key.modifiers - KeyModifiers::SHIFT).is_empty()
}

#[cfg(test)]
mod tests;
