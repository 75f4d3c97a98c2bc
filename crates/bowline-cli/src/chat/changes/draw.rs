//! The pane of changes, drawn: the list, the diff of the chosen change, and what the keys do.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Clear;

use super::listing::{self, Row, Scope, State};
use super::{Changes, Focus, Shown};
use crate::chat::diff::{self, Layout};
use crate::chat::parts::cells::{self, Stays};
use crate::chat::parts::{keys, put, put_all, ruled, split_bottom, split_left, split_top, theme};

/// From so many columns on the list stands beside the diff, so wide.
const LIST_BESIDE: (u16, u16) = (110, 42);

/// So many rows are for what came of an undo.
const MESSAGE_ROWS: usize = 3;

impl Changes {
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
            let text = match self.listing.hidden {
                0 => "Nothing was changed here.".to_owned(),
                1 => "No agent changed anything here. 1 other change may be yours: a".to_owned(),
                count => format!("No agent changed anything here. {count} other changes may be yours: a"),
            };
            let rows = cells::prose(&text, usize::from(body.width));
            let rows: Vec<_> = rows.into_iter().map(|row| Line::styled(row, theme::title())).collect();
            put_all(frame, body, &rows);
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
        if let Some(lines) = self.confirmation_lines(area.width) {
            return lines;
        }
        let edits = if self.listing.edits.is_empty() { &[] } else { EDITS };
        let scope: &[(&str, &str)] = match self.scope {
            Scope::Agents if self.listing.hidden == 0 => &[],
            Scope::Agents => &[("a", "all")],
            Scope::All => &[("a", "agents only")],
        };
        let mut lines = vec![keys(&[edits, scope, &[("Esc", "close"), ("?", "help")]].concat(), area.width)];
        if let Some(message) = &self.message {
            let rows = cells::prose(message, usize::from(area.width)).into_iter();
            let said = rows.take(MESSAGE_ROWS).map(|row| Line::styled(row, theme::title()));
            lines.splice(0..0, said);
        }
        lines.truncate(usize::from(area.height.div_ceil(2)));
        lines
    }

    /// Returns the question whether something is to be undone that may be the user's own work, if there is one.
    fn confirmation_lines(&self, width: u16) -> Option<Vec<Line<'static>>> {
        self.confirmation.as_ref()?;
        let change = self.entry()?.change();
        let name = self.listing.name(&change.path);
        let what = match (&change.before, &change.after) {
            (None, Some(_)) => format!("Undoing deletes {name}."),
            (Some(_), None) => format!("Undoing brings {name} back."),
            _ => format!("Undoing changes {name}."),
        };
        let text = format!("{what} No agent is known to have changed it: it may be your own work.");
        let rows = cells::prose(&text, usize::from(width)).into_iter();
        let mut lines: Vec<_> = rows.map(|row| Line::styled(row, theme::danger())).collect();
        let yes = format!("undo {name}");
        lines.push(keys(&[("y", &yes), ("any other key", "keep it")], width));
        Some(lines)
    }

    fn draw_list(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let (rule, rows) = split_top(area, 1);
        let at =
            self.listing.rows.iter().position(|row| matches!(row, Row::Edit(edit) if *edit == self.selected));
        self.list.fit(rows.height, self.listing.rows.len());
        let at = at.unwrap_or(0);
        self.list.reveal(at..at + 1);
        let (whose, older) = match self.scope {
            Scope::Agents => ("changes by agents", self.older.agents),
            Scope::All => ("all changes", self.older.agents + self.older.others),
        };
        let older = match (older, self.listing.hidden) {
            (0, 0) => String::new(),
            (0, hidden) => format!(" {hidden} more may be yours: a "),
            (count, _) => format!(" {count} older: bowline changes "),
        };
        let title = format!(" {whose} in {} ", cells::visible(&self.listing.directory));
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
        ("a", "show all changes, also those that may be yours; agents' only"),
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
