//! The pane of changes: what was changed here, and undo and redo by hunk.

mod listed;
mod listing;

use bowline_state::changes::{Change, ChangeId, Reversal};
use bowline_state::diff::{Stat, hunks, stat};
use bowline_state::undo::{Selection, Who};
use bowline_workspace::workspace::Changed;
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Clear;

use super::diff::{self, Drawn, Layout};
use super::parts::cells::{self, Stays};
use super::parts::view::View;
use super::parts::{keys, put, put_all, ruled, split_bottom, split_left, split_top, theme};
pub(crate) use listed::{Listed, newest};
use listing::{Listing, Row, State};

/// From so many columns on the list stands beside the diff, so wide.
const LIST_BESIDE: (u16, u16) = (110, 42);

/// So many rows are for what came of an undo.
const MESSAGE_ROWS: usize = 3;

/// One change with its texts.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// The change, as the workspace tells it. Undos and redos belong to a list too: what is taken back is told by them.
    pub(crate) changed: Changed,
    /// The text before; none if there was no file, or it is no text or not kept.
    pub(crate) before: Option<String>,
    /// The text after, likewise.
    pub(crate) after: Option<String>,
}

impl Entry {
    fn change(&self) -> &Change {
        &self.changed.change
    }

    fn texts(&self) -> [&str; 2] {
        [&self.before, &self.after].map(|text| text.as_deref().unwrap_or_default())
    }

    fn stat(&self) -> Stat {
        let [before, after] = self.texts();
        stat(before, after)
    }

    fn hunks(&self) -> usize {
        let [before, after] = self.texts();
        hunks(before, after).len()
    }

    /// Returns whether the texts are known where there was a file.
    fn is_text(&self) -> bool {
        let Change { before, after, .. } = self.change();
        (self.before.is_some() || before.is_none()) && (self.after.is_some() || after.is_none())
    }
}

/// What the person wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// To leave the pane.
    Close,
    /// To take back changes. [`Changes::done`] tells what came of it.
    Undo(Selection),
    /// To have back what was taken back.
    Redo(Selection),
    /// To see what is there now.
    Refresh,
}

/// The changes, and where the person is in them.
#[derive(Debug)]
pub(crate) struct Changes {
    entries: Vec<Entry>,
    older: usize,
    listing: Listing,
    // Which of the listing's edits, and which of its hunks.
    selected: usize,
    hunk: usize,
    focus: Focus,
    layout: Option<Layout>,
    list: View,
    view: View,
    message: Option<String>,
    // Whether something is being taken back or done again.
    busy: bool,
    help: Option<View>,
    drawn: Option<Shown>,
    // Whether the hunk under the cursor should come into sight.
    follow: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Focus {
    List,
    Diff,
}

/// The diff of a change, and what it was drawn for.
#[derive(Debug)]
struct Shown {
    key: (ChangeId, u16, Layout),
    drawn: Drawn,
}

impl Changes {
    /// Returns the pane, at the newest change.
    pub(crate) fn new(listed: Listed) -> Self {
        let Listed { entries, older } = listed;
        let listing = Listing::of(&entries);
        let selected = listing.newest(&entries);
        Self {
            entries,
            older,
            listing,
            selected,
            hunk: 0,
            focus: Focus::List,
            layout: None,
            list: View::default(),
            view: View::default(),
            message: None,
            busy: false,
            help: None,
            drawn: None,
            follow: false,
        }
    }

    /// Shows what is there now. The person stays at the same change, or near where it was.
    pub(crate) fn update(&mut self, listed: Listed) {
        let was = self.entry().map(|entry| entry.change().id);
        (self.entries, self.older) = (listed.entries, listed.older);
        self.listing = Listing::of(&self.entries);
        let same = self.listing.edits.iter().position(|at| Some(self.entries[*at].change().id) == was);
        self.selected = same.unwrap_or(self.selected).min(self.listing.edits.len().saturating_sub(1));
        if same.is_none() {
            self.hunk = 0;
            self.view.reset();
        }
        (self.drawn, self.follow) = (None, true);
    }

    /// Tells what came of an undo or redo, until the next key.
    pub(crate) fn done(&mut self, text: String) {
        self.busy = false;
        self.say(text);
    }

    fn say(&mut self, text: String) {
        self.message = Some(text);
        // What is said takes room from the diff.
        self.follow = true;
    }

    /// Takes in a key, and returns what the person wants.
    pub(crate) fn key(&mut self, key: KeyEvent) -> Option<Outcome> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        self.message = None;
        if let Some(view) = &mut self.help {
            if !view.key(key.code) {
                self.help = None;
            }
            return None;
        }
        if key.code == KeyCode::Char('r') && key.modifiers == KeyModifiers::CONTROL {
            return Some(Outcome::Refresh);
        }
        if !(key.modifiers - KeyModifiers::SHIFT).is_empty() {
            return None;
        }
        match key.code {
            KeyCode::Esc | KeyCode::Char('q') => return Some(Outcome::Close),
            KeyCode::F(5) => return Some(Outcome::Refresh),
            KeyCode::Char('?') | KeyCode::F(1) => self.help = Some(View::default()),
            KeyCode::Char('u' | 'U' | 'T' | 'S' | 'r' | 'R') if self.busy => {
                self.say("wait: what was asked for before is still being done".to_owned());
            }
            KeyCode::Char('u') => return self.undo_hunk().map(|what| self.undo(what)),
            KeyCode::Char('U') => return self.of_file().map(|what| self.undo(what)),
            KeyCode::Char('T') => return self.of_turn().map(|what| self.undo(what)),
            KeyCode::Char('S') => return self.of_session().map(|what| self.undo(what)),
            KeyCode::Char('r') => return self.redo_here().map(|what| self.redo(what)),
            KeyCode::Char('R') => return self.redo_last().map(|what| self.redo(what)),
            KeyCode::Char('v') => self.layout = self.drawn.as_ref().map(|shown| shown.key.2.other()),
            KeyCode::Tab | KeyCode::BackTab | KeyCode::Enter => {
                self.focus = match self.focus {
                    Focus::List => Focus::Diff,
                    Focus::Diff => Focus::List,
                };
            }
            KeyCode::Left | KeyCode::Char('h') => self.focus = Focus::List,
            KeyCode::Right | KeyCode::Char('l') => self.focus = Focus::Diff,
            KeyCode::Char('n') => self.go_to_hunk(self.hunk + 1),
            KeyCode::Char('p') => self.go_to_hunk(self.hunk.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') if self.focus == Focus::List => self.select(self.selected + 1),
            KeyCode::Up | KeyCode::Char('k') if self.focus == Focus::List => {
                self.select(self.selected.saturating_sub(1));
            }
            KeyCode::Down | KeyCode::Char('j') => self.go_to_hunk(self.hunk + 1),
            KeyCode::Up | KeyCode::Char('k') => self.go_to_hunk(self.hunk.saturating_sub(1)),
            KeyCode::Home if self.focus == Focus::List => self.select(0),
            KeyCode::End if self.focus == Focus::List => self.select(usize::MAX),
            code => {
                self.view.key(code);
            }
        }
        None
    }

    fn undo(&mut self, what: Selection) -> Outcome {
        self.busy = true;
        self.say("undoing …".to_owned());
        Outcome::Undo(what)
    }

    fn redo(&mut self, what: Selection) -> Outcome {
        self.busy = true;
        self.say("redoing …".to_owned());
        Outcome::Redo(what)
    }

    fn entry(&self) -> Option<&Entry> {
        self.entries.get(*self.listing.edits.get(self.selected)?)
    }

    fn select(&mut self, edit: usize) {
        let edit = edit.min(self.listing.edits.len().saturating_sub(1));
        if edit != self.selected {
            (self.selected, self.hunk) = (edit, 0);
            self.view.reset();
        }
    }

    /// Returns how many hunks the chosen change has, also if it was not drawn since it was chosen.
    fn hunks(&self) -> usize {
        let Some(entry) = self.entry().filter(|entry| entry.is_text()) else { return 0 };
        match &self.drawn {
            Some(shown) if shown.key.0 == entry.change().id => shown.drawn.hunks.len(),
            _ => entry.hunks(),
        }
    }

    fn go_to_hunk(&mut self, hunk: usize) {
        self.hunk = hunk.min(self.hunks().saturating_sub(1));
        self.follow = true;
    }

    fn undo_hunk(&self) -> Option<Selection> {
        let entry = self.entry()?;
        // What has no hunks can only be taken back whole: a file that is no text, or new bits.
        let hunks = self.hunks().checked_sub(1).map(|last| vec![self.hunk.min(last)]);
        let change = Some(Reversal { change: entry.change().id, hunks });
        Some(Selection { change, ..Selection::default() })
    }

    fn of_file(&self) -> Option<Selection> {
        let change = self.entry()?.change();
        let Some(session) = change.origin.session.clone() else {
            // What others changed in the file is not meant.
            let change = Some(Reversal { change: change.id, hunks: None });
            return Some(Selection { change, ..Selection::default() });
        };
        Some(Selection {
            path: Some(change.path.clone()),
            who: Who::Session(session),
            ..Selection::default()
        })
    }

    fn of_turn(&mut self) -> Option<Selection> {
        let origin = &self.entry()?.change().origin;
        let selection = origin
            .session
            .as_deref()
            .zip(origin.turn)
            .map(|(session, turn)| Selection { explained: true, ..Selection::turn(session, turn) });
        if selection.is_none() {
            self.say("this change belongs to no turn: u and U take back it alone".to_owned());
        }
        selection
    }

    fn of_session(&mut self) -> Option<Selection> {
        let session = self.entry()?.change().origin.session.clone();
        if session.is_none() {
            self.say("this change belongs to no session: u and U take back it alone".to_owned());
        }
        Some(Selection { who: Who::Session(session?), explained: true, ..Selection::default() })
    }

    /// Returns the undo that took back the hunk under the cursor, to be taken back itself.
    fn redo_here(&mut self) -> Option<Selection> {
        let id = self.entry()?.change().id;
        let undo = self.listing.undo_of(id, Some(self.hunk)).or_else(|| self.listing.undo_of(id, None));
        if undo.is_none() {
            self.say("this is not undone".to_owned());
        }
        let change = Some(Reversal { change: undo?, hunks: None });
        Some(Selection { change, ..Selection::default() })
    }

    fn redo_last(&self) -> Option<Selection> {
        let session = self.entry()?.change().origin.session.clone();
        let who = session.map_or(Who::Anyone, Who::Session);
        Some(Selection { who, last: Some(1), ..Selection::default() })
    }

    /// Draws all of it, over whatever is there.
    pub(crate) fn draw(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let area = area.intersection(frame.area());
        if area.is_empty() {
            return;
        }
        frame.render_widget(Clear, area);
        if let Some(view) = &mut self.help {
            let (body, last) = split_bottom(area, 1);
            view.draw(frame, body, &help_lines(area.width));
            put(frame, last, &Line::styled(" any other key: back", theme::aside()));
            return;
        }
        let footer = self.footer(area);
        let (body, bottom) = split_bottom(area, footer.len());
        put_all(frame, bottom, &footer);
        if self.listing.edits.is_empty() {
            put(frame, body, &Line::styled("Nothing was changed here.", theme::title()));
            return;
        }
        let rows = self.listing.rows.len() + 1;
        let (list, rest) = match area.width >= LIST_BESIDE.0 {
            true => split_left(body, LIST_BESIDE.1),
            false => split_top(body, rows.min(usize::from(body.height) * 2 / 5).max(2)),
        };
        self.draw_list(frame, list);
        self.draw_diff(frame, rest);
    }

    fn footer(&self, area: Rect) -> Vec<Line<'static>> {
        const EDITS: &[(&str, &str)] = &[
            ("u", "undo"),
            ("r", "redo"),
            ("U", "file"),
            ("T", "turn"),
            ("S", "session"),
            ("Tab", "diff"),
            ("n p", "hunk"),
        ];
        let edits = if self.listing.edits.is_empty() { &[] } else { EDITS };
        let mut lines = vec![keys(&[edits, &[("Esc", "close"), ("?", "help")]].concat(), area.width)];
        if let Some(message) = &self.message {
            let rows = cells::prose(message, usize::from(area.width)).into_iter();
            let said = rows.take(MESSAGE_ROWS).map(|row| Line::styled(row, theme::title()));
            lines.splice(0..0, said);
        }
        lines.truncate(usize::from(area.height.div_ceil(2)));
        lines
    }

    fn draw_list(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let (rule, rows) = split_top(area, 1);
        let at =
            self.listing.rows.iter().position(|row| matches!(row, Row::Edit(edit) if *edit == self.selected));
        self.list.fit(rows.height, self.listing.rows.len());
        let at = at.unwrap_or(0);
        self.list.reveal(at..at + 1);
        let older = match self.older {
            0 => String::new(),
            count => format!(" {count} older: bowline changes "),
        };
        let title = format!(" changes in {} ", cells::visible(&self.listing.directory));
        let room = usize::from(rule.width).saturating_sub(cells::width(&older) + 3);
        let title = cells::fit(&title, room, Stays::Start);
        put(frame, rule, &self.rule(Focus::List, &title, &older, rule.width));
        let shown = self.listing.rows.iter().skip(self.list.top());
        for (y, row) in (rows.y..rows.bottom()).zip(shown) {
            let line = self.listing.line(row, &self.entries, usize::from(rows.width), self.selected);
            put(frame, Rect { y, height: 1, ..rows }, &line);
        }
    }

    fn rule(&self, of: Focus, start: &str, end: &str, width: u16) -> Line<'static> {
        let rule = ruled(start, end, width);
        if self.focus == of { rule.style(theme::title()) } else { rule }
    }

    fn draw_diff(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let (rule, rest) = split_top(area, 1);
        let Some(entry) = self.listing.edits.get(self.selected).and_then(|at| self.entries.get(*at)) else {
            return;
        };
        let layout = self.layout.unwrap_or_else(|| Layout::for_width(rest.width));
        let id = entry.change().id;
        let key = (id, rest.width, layout);
        let shown = match self.drawn.take() {
            Some(shown) if shown.key == key => shown,
            _ => {
                let (before, after) = (entry.before.as_deref(), entry.after.as_deref());
                // A column for the cursor, and one for what is undone.
                let drawn = diff::draw(before, after, rest.width.saturating_sub(2), layout);
                Shown { key, drawn }
            }
        };
        let whole = self.listing.state(entry);
        let head = listing::about(entry, whole, rest.width);
        let (lines, hunks) = match entry.is_text() {
            true => (shown.drawn.lines.as_slice(), shown.drawn.hunks.as_slice()),
            false => (&[][..], &[][..]),
        };
        self.hunk = self.hunk.min(hunks.len().saturating_sub(1));
        let state = |hunk: usize| match whole {
            State::Undone => State::Undone,
            _ if self.listing.undo_of(id, Some(hunk)).is_some() => State::Undone,
            _ => State::InEffect,
        };
        self.view.fit(rest.height, head.len() + lines.len());
        if std::mem::take(&mut self.follow)
            && let Some(hunk) = hunks.get(self.hunk)
        {
            self.view.reveal(head.len() + hunk.start..head.len() + hunk.end);
        }
        let all = head
            .iter()
            .map(|line| (None, line))
            .chain(lines.iter().enumerate().map(|(at, line)| (Some(at), line)));
        for (y, (at, line)) in (rest.y..rest.bottom()).zip(all.skip(self.view.top())) {
            let row = Rect { y, height: 1, ..rest };
            let Some(at) = at else {
                put(frame, row, line);
                continue;
            };
            let after = hunks.partition_point(|hunk| hunk.start <= at);
            let hunk = after.checked_sub(1).filter(|hunk| hunks[*hunk].contains(&at));
            let undone = hunk.is_some_and(|hunk| state(hunk) == State::Undone);
            let mut marked = Line::from(vec![
                Span::styled(if hunk == Some(self.hunk) { "▌" } else { " " }, theme::key()),
                Span::styled(if undone { "u" } else { " " }, theme::title()),
            ]);
            let faded = if undone { theme::aside() } else { Style::new() };
            marked.spans.extend(line.spans.iter().cloned().map(|span| span.patch_style(faded)));
            put(frame, row, &marked.style(line.style));
        }
        let place = match hunks.len() {
            0 => String::new(),
            count => format!(" hunk {} of {count} ", self.hunk + 1),
        };
        let position = self.view.position().map_or_else(String::new, |text| format!(" lines {text} "));
        put(frame, rule, &self.rule(Focus::Diff, &place, &position, rule.width));
        self.drawn = Some(shown);
    }
}

fn help_lines(width: u16) -> Vec<Line<'static>> {
    const HELP: &[(&str, &str)] = &[
        ("u", "undo the hunk under the cursor; your own later edits stay"),
        ("U", "undo what the session changed in this file; of no session, this change"),
        ("T", "undo the whole turn"),
        ("S", "undo the whole session"),
        ("r", "redo what is undone here"),
        ("R", "redo what was undone last"),
        ("Tab ← →", "from the list to the diff and back"),
        ("↑ ↓ j k", "another change, or in the diff another hunk"),
        ("n p", "the next hunk, the one before"),
        ("PgUp PgDn Space", "scroll the diff"),
        ("v", "unified or side by side"),
        ("F5, ^R", "look again"),
        ("Esc, q", "close"),
    ];
    let mut lines = vec![Line::styled("Keys", theme::title())];
    for (key, what) in HELP {
        let text = format!("{key:<16} {what}");
        lines.extend(cells::prose(&text, usize::from(width)).into_iter().map(Line::raw));
    }
    lines
}

#[cfg(test)]
mod tests;
