//! Drawing of the changes pane: the list, the diff of the selected change, and the keys.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Clear;

use super::change_list::{self, ListRow, ListScope, ListedChangeStatus};
use super::{ChangesFocus, ChangesPane, RenderedChange};
use crate::view::diff::{self, DiffLayout};
use crate::view::widgets::cells::{self, Truncation};
use crate::view::widgets::{
    draw_line, draw_lines, key_help, key_hints, rule_line, split_bottom, split_left, split_top, theme,
};

/// The minimum screen width for showing the list beside the diff, and the width of that list.
const SIDE_LIST: (u16, u16) = (110, 42);

/// The maximum number of rows for the result of an undo.
const MESSAGE_ROWS: usize = 3;

impl ChangesPane {
    /// Draws the pane over the area.
    pub(crate) fn draw(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let area = area.intersection(frame.area());
        if area.is_empty() {
            return;
        }
        frame.render_widget(Clear, area);
        if let Some(viewport) = &mut self.help_viewport {
            let (body, last) = split_bottom(area, 1);
            viewport.draw(frame, body, &help_lines(area.width));
            draw_line(frame, last, &Line::styled(" any other key: back", theme::secondary()));
            return;
        }
        let footer = self.footer_lines(area);
        let (body, bottom) = split_bottom(area, footer.len());
        draw_lines(frame, bottom, &footer);
        if self.change_list.edits.is_empty() {
            let text = match self.change_list.hidden_count {
                0 => "Nothing was changed here.".to_owned(),
                1 => "No agent changed anything here. 1 other change may be yours: a".to_owned(),
                count => format!("No agent changed anything here. {count} other changes may be yours: a"),
            };
            let rows = cells::wrap_prose(&text, usize::from(body.width));
            let rows: Vec<_> = rows.into_iter().map(|row| Line::styled(row, theme::title())).collect();
            draw_lines(frame, body, &rows);
            return;
        }
        let rows = self.change_list.rows.len() + 1;
        let (list, rest) = match area.width >= SIDE_LIST.0 {
            true => split_left(body, SIDE_LIST.1),
            false => split_top(body, rows.min(usize::from(body.height) * 2 / 5).max(2)),
        };
        self.draw_list(frame, list);
        self.draw_diff(frame, rest);
    }

    fn footer_lines(&self, area: Rect) -> Vec<Line<'static>> {
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
        let edits = if self.change_list.edits.is_empty() { &[] } else { EDITS };
        let scope: &[(&str, &str)] = match self.list_scope {
            ListScope::Agents if self.change_list.hidden_count == 0 => &[],
            ListScope::Agents => &[("a", "all")],
            ListScope::All => &[("a", "agents only")],
        };
        let mut lines =
            vec![key_hints(&[edits, scope, &[("Esc", "close"), ("?", "help")]].concat(), area.width)];
        if let Some(message) = &self.message {
            let rows = cells::wrap_prose(message, usize::from(area.width)).into_iter();
            let message_rows = rows.take(MESSAGE_ROWS).map(|row| Line::styled(row, theme::title()));
            lines.splice(0..0, message_rows);
        }
        lines.truncate(usize::from(area.height.div_ceil(2)));
        lines
    }

    /// Returns the pending confirmation of an undo that may revert the user's own work.
    fn confirmation_lines(&self, width: u16) -> Option<Vec<Line<'static>>> {
        self.confirmation.as_ref()?;
        let change = self.selected_entry()?.change();
        let name = self.change_list.display_name(&change.path);
        let effect = match (&change.before, &change.after) {
            (None, Some(_)) => format!("Undoing deletes {name}."),
            (Some(_), None) => format!("Undoing brings {name} back."),
            _ => format!("Undoing changes {name}."),
        };
        let text = format!("{effect} No agent is known to have changed it: it may be your own work.");
        let rows = cells::wrap_prose(&text, usize::from(width)).into_iter();
        let mut lines: Vec<_> = rows.map(|row| Line::styled(row, theme::danger())).collect();
        let undo_label = format!("undo {name}");
        lines.push(key_hints(&[("y", &undo_label), ("any other key", "keep it")], width));
        Some(lines)
    }

    fn draw_list(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let (rule, rows) = split_top(area, 1);
        let selected_row = self
            .change_list
            .rows
            .iter()
            .position(|row| matches!(row, ListRow::Edit(edit) if *edit == self.selected_edit));
        self.list_viewport.set_size(rows.height, self.change_list.rows.len());
        let selected_row = selected_row.unwrap_or(0);
        self.list_viewport.reveal(selected_row..selected_row + 1);
        let (scope, older_count) = match self.list_scope {
            ListScope::Agents => ("changes by agents", self.older_counts.agents),
            ListScope::All => ("all changes", self.older_counts.agents + self.older_counts.others),
        };
        let hidden_note = match (older_count, self.change_list.hidden_count) {
            (0, 0) => String::new(),
            (0, hidden) => format!(" {hidden} more may be yours: a "),
            (count, _) => format!(" {count} older: bowline changes "),
        };
        let title = format!(" {scope} in {} ", cells::escape_line(&self.change_list.common_directory));
        let room = usize::from(rule.width).saturating_sub(cells::text_width(&hidden_note) + 3);
        let title = cells::truncate(&title, room, Truncation::KeepStart);
        draw_line(frame, rule, &self.rule_line(ChangesFocus::List, &title, &hidden_note, rule.width));
        let visible_rows = self.change_list.rows.iter().skip(self.list_viewport.top());
        for (y, row) in (rows.y..rows.bottom()).zip(visible_rows) {
            let line =
                self.change_list.render_row(row, &self.entries, usize::from(rows.width), self.selected_edit);
            draw_line(frame, Rect { y, height: 1, ..rows }, &line);
        }
    }

    fn rule_line(&self, pane: ChangesFocus, start: &str, end: &str, width: u16) -> Line<'static> {
        let rule = rule_line(start, end, width);
        if self.focus == pane { rule.style(theme::title()) } else { rule }
    }

    fn draw_diff(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let (rule, rest) = split_top(area, 1);
        let Some(entry) =
            self.change_list.edits.get(self.selected_edit).and_then(|index| self.entries.get(*index))
        else {
            return;
        };
        let layout = self.layout.unwrap_or_else(|| DiffLayout::for_width(rest.width));
        let id = entry.change().id;
        let key = (id, rest.width, layout);
        let rendered = match self.rendered.take() {
            Some(rendered) if rendered.key == key => rendered,
            _ => {
                let (before, after) = (entry.before.as_deref(), entry.after.as_deref());
                // One column for the cursor, and one for the undone mark.
                let rendered_diff = diff::render_diff(before, after, rest.width.saturating_sub(2), layout);
                RenderedChange { key, diff: rendered_diff }
            }
        };
        let status = self.change_list.status(entry);
        let header = change_list::describe_change(entry, status, rest.width);
        let (lines, hunks) = match entry.has_texts() {
            true => (rendered.diff.lines.as_slice(), rendered.diff.hunks.as_slice()),
            false => (&[][..], &[][..]),
        };
        self.selected_hunk = self.selected_hunk.min(hunks.len().saturating_sub(1));
        let hunk_status = |hunk: usize| match status {
            ListedChangeStatus::Undone => ListedChangeStatus::Undone,
            _ if self.change_list.find_undo(id, Some(hunk)).is_some() => ListedChangeStatus::Undone,
            _ => ListedChangeStatus::InEffect,
        };
        self.diff_viewport.set_size(rest.height, header.len() + lines.len());
        if std::mem::take(&mut self.reveals_hunk)
            && let Some(hunk) = hunks.get(self.selected_hunk)
        {
            self.diff_viewport.reveal(header.len() + hunk.start..header.len() + hunk.end);
        }
        let rows = header
            .iter()
            .map(|line| (None, line))
            .chain(lines.iter().enumerate().map(|(index, line)| (Some(index), line)));
        for (y, (index, line)) in (rest.y..rest.bottom()).zip(rows.skip(self.diff_viewport.top())) {
            let row = Rect { y, height: 1, ..rest };
            let Some(index) = index else {
                draw_line(frame, row, line);
                continue;
            };
            let next_hunk = hunks.partition_point(|hunk| hunk.start <= index);
            let hunk = next_hunk.checked_sub(1).filter(|hunk| hunks[*hunk].contains(&index));
            let is_undone = hunk.is_some_and(|hunk| hunk_status(hunk) == ListedChangeStatus::Undone);
            let mut marked = Line::from(vec![
                Span::styled(if hunk == Some(self.selected_hunk) { "▌" } else { " " }, theme::key()),
                Span::styled(if is_undone { "u" } else { " " }, theme::title()),
            ]);
            let style = if is_undone { theme::secondary() } else { Style::new() };
            marked.spans.extend(line.spans.iter().cloned().map(|span| span.patch_style(style)));
            draw_line(frame, row, &marked.style(line.style));
        }
        let label = match hunks.len() {
            0 => String::new(),
            count => format!(" hunk {} of {count} ", self.selected_hunk + 1),
        };
        let position =
            self.diff_viewport.describe_position().map_or_else(String::new, |text| format!(" lines {text} "));
        draw_line(frame, rule, &self.rule_line(ChangesFocus::Diff, &label, &position, rule.width));
        self.rendered = Some(rendered);
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
    key_help(HELP, width)
}
