//! What the panes are made of: measured text, looks, windows on lines, rows and rules.

pub(crate) mod cells;
pub(crate) mod entry;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod theme;
pub(crate) mod view;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

/// Cuts an area into its first rows and the rest.
pub(crate) fn split_top(area: Rect, rows: usize) -> (Rect, Rect) {
    let height = u16::try_from(rows).unwrap_or(u16::MAX).min(area.height);
    let rest = Rect { y: area.y + height, height: area.height - height, ..area };
    (Rect { height, ..area }, rest)
}

/// Cuts an area into all but its last rows, and these.
pub(crate) fn split_bottom(area: Rect, rows: usize) -> (Rect, Rect) {
    let height = u16::try_from(rows).unwrap_or(u16::MAX).min(area.height);
    split_top(area, usize::from(area.height - height))
}

/// Cuts an area into its first columns and the rest, with a line between them.
pub(crate) fn split_left(area: Rect, columns: u16) -> (Rect, Rect) {
    let width = columns.min(area.width);
    let x = (area.x + width + 1).min(area.right());
    (Rect { width, ..area }, Rect { x, width: area.right() - x, ..area })
}

/// Draws a line in the first row of an area, if it has one.
pub(crate) fn put(frame: &mut Frame<'_>, area: Rect, line: &Line<'_>) {
    if !area.is_empty() {
        frame.buffer_mut().set_line(area.x, area.y, line, area.width);
    }
}

/// Draws lines in the rows of an area, as many as it has.
pub(crate) fn put_all(frame: &mut Frame<'_>, area: Rect, lines: &[Line<'_>]) {
    for (y, line) in (area.y..area.bottom()).zip(lines) {
        put(frame, Rect { y, height: 1, ..area }, line);
    }
}

/// Returns a rule with a text at its start and another at its end, so far as there is room.
pub(crate) fn ruled(start: &str, end: &str, width: u16) -> Line<'static> {
    let width = usize::from(width);
    let start = cells::fit(start, width.saturating_sub(2), cells::Stays::Start);
    let end = if cells::width(&start) + cells::width(end) + 3 > width { "" } else { end };
    let between = width.saturating_sub(2 + cells::width(&start) + cells::width(end));
    let text = format!("─{start}{}{end}─", "─".repeat(between));
    Line::styled(text, theme::aside())
}

/// Returns keys with what they do: the first ones if there is no room for all, and the last one always, without words if
/// need be.
pub(crate) fn keys(keys: &[(&str, &str)], width: u16) -> Line<'static> {
    let Some(((last, what), others)) = keys.split_last() else { return Line::default() };
    let words = |key: &str, what: &str| cells::width(key) + 1 + cells::width(what);
    let mut left = usize::from(width).saturating_sub(cells::width(last));
    let mut line = Line::default();
    let mut push = |key: &str, what: &str| {
        line.push_span(Span::styled(key.to_owned(), theme::key()));
        line.push_span(Span::raw(what.to_owned()));
    };
    for (key, what) in others {
        let Some(rest) = left.checked_sub(words(key, what) + GAP.len()) else { break };
        left = rest;
        push(key, &format!(" {what}{GAP}"));
    }
    let fits = left > cells::width(what);
    push(last, &if fits { format!(" {what}") } else { String::new() });
    line
}

/// Returns keys with what they do, in as many rows as they need.
pub(crate) fn key_rows(keys: &[(&str, &str)], width: u16) -> Vec<Line<'static>> {
    let (width, mut used) = (usize::from(width), 0);
    let mut rows = vec![Line::default()];
    for (key, what) in keys {
        let needed = cells::width(key) + 1 + cells::width(what);
        if used > 0 && used + needed > width {
            rows.push(Line::default());
            used = 0;
        }
        used += needed + GAP.len();
        if let Some(row) = rows.last_mut() {
            row.push_span(Span::styled((*key).to_owned(), theme::key()));
            row.push_span(Span::raw(format!(" {what}{GAP}")));
        }
    }
    rows
}

/// What stands between two keys.
const GAP: &str = "  ";
