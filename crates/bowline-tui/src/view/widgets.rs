//! The building blocks of the panes: measured text, styles, viewports, rows and rules.

pub(crate) mod cells;
pub(crate) mod line_editor;
#[cfg(test)]
pub(crate) mod test_util;
pub(crate) mod theme;
pub(crate) mod viewport;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

/// Splits an area into its first rows and the rest.
pub(crate) fn split_top(area: Rect, rows: usize) -> (Rect, Rect) {
    let height = u16::try_from(rows).unwrap_or(u16::MAX).min(area.height);
    let rest = Rect { y: area.y + height, height: area.height - height, ..area };
    (Rect { height, ..area }, rest)
}

/// Splits an area into all but its last rows, and these.
pub(crate) fn split_bottom(area: Rect, rows: usize) -> (Rect, Rect) {
    let height = u16::try_from(rows).unwrap_or(u16::MAX).min(area.height);
    split_top(area, usize::from(area.height - height))
}

/// Splits an area into its first columns and the rest, with a gap of one column.
pub(crate) fn split_left(area: Rect, columns: u16) -> (Rect, Rect) {
    let width = columns.min(area.width);
    let x = (area.x + width + 1).min(area.right());
    (Rect { width, ..area }, Rect { x, width: area.right() - x, ..area })
}

/// Draws a line in the first row of an area, if it has one.
pub(crate) fn draw_line(frame: &mut Frame<'_>, area: Rect, line: &Line<'_>) {
    if !area.is_empty() {
        frame.buffer_mut().set_line(area.x, area.y, line, area.width);
    }
}

/// Draws lines in the rows of an area, as many as fit.
pub(crate) fn draw_lines(frame: &mut Frame<'_>, area: Rect, lines: &[Line<'_>]) {
    for (y, line) in (area.y..area.bottom()).zip(lines) {
        draw_line(frame, Rect { y, height: 1, ..area }, line);
    }
}

/// Returns the help on keys, each with its description.
pub(crate) fn key_help(keys: &[(&str, &str)], width: u16) -> Vec<Line<'static>> {
    let rows = keys.iter().flat_map(|(key, description)| {
        cells::wrap_prose(&format!("{key:<16} {description}"), usize::from(width))
    });
    std::iter::once(Line::styled("Keys", theme::title())).chain(rows.map(Line::raw)).collect()
}

/// Returns a rule with a text at its start and another at its end, as far as they fit.
pub(crate) fn rule_line(start: &str, end: &str, width: u16) -> Line<'static> {
    let width = usize::from(width);
    let start = cells::truncate(start, width.saturating_sub(2), cells::Truncation::KeepStart);
    let end = if cells::text_width(&start) + cells::text_width(end) + 3 > width { "" } else { end };
    let between = width.saturating_sub(2 + cells::text_width(&start) + cells::text_width(end));
    let text = format!("─{start}{}{end}─", "─".repeat(between));
    Line::styled(text, theme::secondary())
}

/// Returns key hints: the first ones that fit, and always the last one, without its description if necessary.
pub(crate) fn key_hints(keys: &[(&str, &str)], width: u16) -> Line<'static> {
    let Some(((last, description), others)) = keys.split_last() else { return Line::default() };
    let hint_width =
        |key: &str, description: &str| cells::text_width(key) + 1 + cells::text_width(description);
    let mut room = usize::from(width).saturating_sub(cells::text_width(last));
    let mut line = Line::default();
    let mut push = |key: &str, description: &str| {
        line.push_span(Span::styled(key.to_owned(), theme::key()));
        line.push_span(Span::raw(description.to_owned()));
    };
    for (key, description) in others {
        let Some(rest) = room.checked_sub(hint_width(key, description) + KEY_GAP.len()) else { break };
        room = rest;
        push(key, &format!(" {description}{KEY_GAP}"));
    }
    let fits = room > cells::text_width(description);
    push(last, &if fits { format!(" {description}") } else { String::new() });
    line
}

/// Returns key hints in as many rows as they need.
pub(crate) fn key_hint_rows(keys: &[(&str, &str)], width: u16) -> Vec<Line<'static>> {
    let (width, mut used) = (usize::from(width), 0);
    let mut rows = vec![Line::default()];
    for (key, description) in keys {
        let needed = cells::text_width(key) + 1 + cells::text_width(description);
        if used > 0 && used + needed > width {
            rows.push(Line::default());
            used = 0;
        }
        used += needed + KEY_GAP.len();
        if let Some(row) = rows.last_mut() {
            row.push_span(Span::styled((*key).to_owned(), theme::key()));
            row.push_span(Span::raw(format!(" {description}{KEY_GAP}")));
        }
    }
    rows
}

/// The gap between two hints.
const KEY_GAP: &str = "  ";
