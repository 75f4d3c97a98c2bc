//! Text measured in the cells of a screen: made safe, wrapped, cut.

use std::ops::Range;

use bowline_state::display;
use ratatui::buffer::CellWidth;
use ratatui::style::Style;
use ratatui::text::Span;

/// How far apart tab stops are.
const TAB: usize = 4;

/// Where a line that is too long may be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Break {
    /// Anywhere: for code, of which nothing may look different.
    Anywhere,
    /// After a space where there is one: for prose.
    Words,
}

/// Which part of a text stays if there is no room for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stays {
    /// Its start.
    Start,
    /// Its end: for paths, which end in what tells them apart.
    End,
}

/// Returns `text` on one line, whole and safe to show: no character of it steers the terminal, and none is drawn on no
/// cell at all.
pub(crate) fn visible(text: &str) -> String {
    let line = display::line(text, usize::MAX);
    if line.is_ascii() || pieces(&line).iter().all(|(_, cells)| *cells > 0) {
        return line;
    }
    let mut shown = String::new();
    let mut at = 0;
    for (bytes, cells) in pieces(&line) {
        let piece = &line[at..at + bytes];
        match cells {
            0 => shown.extend(piece.chars().flat_map(char::escape_unicode)),
            _ => shown.push_str(piece),
        }
        at += bytes;
    }
    shown
}

/// Returns `text` as [`visible`] does, with tabs as the blanks up to the next stop.
pub(crate) fn expanded(text: &str) -> String {
    let mut shown = String::new();
    let mut cells = 0;
    for (at, part) in text.split('\t').enumerate() {
        if at > 0 {
            let blanks = TAB - cells % TAB;
            shown.extend(std::iter::repeat_n(' ', blanks));
            cells += blanks;
        }
        let part = visible(part);
        cells += width(&part);
        shown.push_str(&part);
    }
    shown
}

/// Returns how many cells a safe text takes.
pub(crate) fn width(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { pieces(text).iter().map(|(_, cells)| cells).sum() }
}

/// Returns what a safe text consists of on a screen: for each piece that cannot be split its bytes and its cells.
pub(crate) fn pieces(text: &str) -> Vec<(usize, usize)> {
    if text.is_ascii() {
        return vec![(1, 1); text.len()];
    }
    let span = Span::raw(text);
    let pieces = span.styled_graphemes(Style::new());
    pieces.map(|piece| (piece.symbol.len(), usize::from(piece.symbol.cell_width()))).collect()
}

/// Returns the rows of a safe text, as ranges of its bytes, each of at most `cells` cells unless a single piece is wider.
/// There is at least one row.
pub(crate) fn wrap(text: &str, cells: usize, at: Break) -> Vec<Range<usize>> {
    let mut rows = Vec::new();
    let mut row = 0..0;
    let mut used = 0;
    // Where the row could end, and the cells up to there.
    let mut space: Option<(usize, usize)> = None;
    for (bytes, width) in pieces(text) {
        while used + width > cells && row.end > row.start {
            match space.filter(|_| at == Break::Words) {
                Some((end, before)) => {
                    rows.push(row.start..end);
                    row.start = end;
                    used -= before;
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

/// Returns a text of others as rows of prose, safe and within `cells` cells.
pub(crate) fn prose(text: &str, cells: usize) -> Vec<String> {
    let text = visible(text);
    wrap(&text, cells.max(2), Break::Words).into_iter().map(|row| text[row].to_owned()).collect()
}

/// Returns a safe text cut to `cells` cells, with `…` where something is missing.
pub(crate) fn fit(text: &str, cells: usize, stays: Stays) -> String {
    if width(text) <= cells {
        return text.to_owned();
    }
    let Some(room) = cells.checked_sub(1) else { return String::new() };
    let pieces = pieces(text);
    let taken = |pieces: &mut dyn Iterator<Item = &(usize, usize)>| {
        let mut used = 0;
        let fitting = pieces.take_while(|(_, cells)| {
            used += cells;
            used <= room
        });
        fitting.map(|(bytes, _)| bytes).sum::<usize>()
    };
    match stays {
        Stays::Start => format!("{}…", &text[..taken(&mut pieces.iter())]),
        Stays::End => format!("…{}", &text[text.len() - taken(&mut pieces.iter().rev())..]),
    }
}

#[cfg(test)]
mod tests;
