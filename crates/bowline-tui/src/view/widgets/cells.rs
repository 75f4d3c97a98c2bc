//! Text measured in screen cells: escaped, wrapped, truncated.

use std::ops::Range;

use bowline_text::display;
use ratatui::buffer::CellWidth;
use ratatui::style::Style;
use ratatui::text::Span;

use crate::view::wrap::LineBreak;

/// The distance between tab stops.
const TAB_WIDTH: usize = 4;

/// Which end of a long text is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Truncation {
    /// The start.
    KeepStart,
    /// The end: for paths, which are distinguished by their ends.
    KeepEnd,
}

/// Returns `text` on one line, complete and safe to show: control characters and zero-width characters are escaped.
pub(crate) fn escape_line(text: &str) -> String {
    let line = display::escape_line(text, usize::MAX);
    if line.is_ascii() || grapheme_sizes(&line).iter().all(|(_, cells)| *cells > 0) {
        return line;
    }
    let mut escaped = String::new();
    let mut start = 0;
    for (bytes, cells) in grapheme_sizes(&line) {
        let piece = &line[start..start + bytes];
        match cells {
            0 => escaped.extend(piece.chars().flat_map(char::escape_unicode)),
            _ => escaped.push_str(piece),
        }
        start += bytes;
    }
    escaped
}

/// Returns `text` escaped as by [`escape_line`], with tabs expanded to the next stop.
pub(crate) fn expand_tabs(text: &str) -> String {
    let mut expanded = String::new();
    let mut cells = 0;
    for (index, part) in text.split('\t').enumerate() {
        if index > 0 {
            let blanks = TAB_WIDTH - cells % TAB_WIDTH;
            expanded.extend(std::iter::repeat_n(' ', blanks));
            cells += blanks;
        }
        let part = escape_line(part);
        cells += text_width(&part);
        expanded.push_str(&part);
    }
    expanded
}

/// Returns how many cells an escaped text takes.
pub(crate) fn text_width(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { grapheme_sizes(text).iter().map(|(_, cells)| cells).sum() }
}

/// Returns the graphemes of an escaped text: the bytes and the cells of each.
pub(crate) fn grapheme_sizes(text: &str) -> Vec<(usize, usize)> {
    if text.is_ascii() {
        return vec![(1, 1); text.len()];
    }
    let span = Span::raw(text);
    let pieces = span.styled_graphemes(Style::new());
    pieces.map(|piece| (piece.symbol.len(), usize::from(piece.symbol.cell_width()))).collect()
}

/// Returns the rows of an escaped text as byte ranges, each of at most `cells` cells unless a single grapheme is wider.
/// There is at least one row.
pub(crate) fn wrap_ranges(text: &str, cells: usize, mode: LineBreak) -> Vec<Range<usize>> {
    let mut rows = Vec::new();
    let mut row = 0..0;
    let mut used = 0;
    // The last possible break of the row, and the cells up to it.
    let mut space: Option<(usize, usize)> = None;
    for (bytes, width) in grapheme_sizes(text) {
        while used + width > cells && row.end > row.start {
            match space.filter(|_| mode == LineBreak::Words) {
                Some((end, used_before)) => {
                    rows.push(row.start..end);
                    row.start = end;
                    used -= used_before;
                }
                None => {
                    rows.push(row.clone());
                    row.start = row.end;
                    used = 0;
                }
            }
            space = None;
        }
        row.end += bytes;
        used += width;
        if text[..row.end].ends_with(' ') {
            space = Some((row.end, used));
        }
    }
    rows.push(row);
    rows
}

/// Returns untrusted text as rows of prose, escaped and at most `cells` cells wide.
pub(crate) fn wrap_prose(text: &str, cells: usize) -> Vec<String> {
    let text = escape_line(text);
    wrap_ranges(&text, cells.max(2), LineBreak::Words).into_iter().map(|row| text[row].to_owned()).collect()
}

/// Returns an escaped text truncated to `cells` cells, with `…` for the missing part.
pub(crate) fn truncate(text: &str, cells: usize, truncation: Truncation) -> String {
    if text_width(text) <= cells {
        return text.to_owned();
    }
    let Some(room) = cells.checked_sub(1) else { return String::new() };
    let pieces = grapheme_sizes(text);
    let kept_length = |pieces: &mut dyn Iterator<Item = &(usize, usize)>| {
        let mut used = 0;
        let kept = pieces.take_while(|(_, cells)| {
            used += cells;
            used <= room
        });
        kept.map(|(bytes, _)| bytes).sum::<usize>()
    };
    match truncation {
        Truncation::KeepStart => format!("{}…", &text[..kept_length(&mut pieces.iter())]),
        Truncation::KeepEnd => format!("…{}", &text[text.len() - kept_length(&mut pieces.iter().rev())..]),
    }
}

#[cfg(test)]
mod tests;
