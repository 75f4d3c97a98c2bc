//! Styled text, escaped for a terminal and wrapped to a given width.

use bowline_text::display;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::widgets::cells::{self, Truncation};

/// The spaces shown for a tab.
const TAB_BLANKS: &str = "    ";

/// Where a text may be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineBreak {
    /// Between words, and inside words that are too long for a line. The space at a break is not shown.
    Words,
    /// Anywhere: every space counts, as in code.
    Anywhere,
}

/// Escapes untrusted text for display: on one line, without control sequences, tabs as spaces.
pub(crate) fn escape_line(text: &str) -> String {
    let is_plain = |byte: u8| (0x20..0x7f).contains(&byte);
    if text.bytes().all(is_plain) {
        return text.to_owned();
    }
    display::escape_line(&text.replace('\t', TAB_BLANKS), usize::MAX)
}

/// Escapes untrusted prose for display. Legitimate joiners stay: those of emoji and keycaps, and those between letters
/// of scripts that need them. Elsewhere they hide something, and are escaped as by [`escape_line`].
pub(crate) fn escape_prose(text: &str) -> String {
    if text.is_ascii() || !text.contains(is_joiner) {
        return escape_line(text);
    }
    let characters: Vec<char> = text.chars().collect();
    let mut escaped = String::new();
    let mut rest = String::new();
    for (index, character) in characters.iter().copied().enumerate() {
        if is_joiner(character)
            && is_joiner_in_place(&characters[..index], character, &characters[index + 1..])
        {
            escaped.push_str(&escape_line(&std::mem::take(&mut rest)));
            escaped.push(character);
        } else {
            rest.push(character);
        }
    }
    escaped + &escape_line(&rest)
}

fn is_joiner(character: char) -> bool {
    matches!(character, '\u{200c}' | '\u{200d}' | '\u{fe0f}' | '\u{20e3}')
}

/// Returns whether a joiner is legitimate between its neighbours.
fn is_joiner_in_place(before: &[char], joiner: char, after: &[char]) -> bool {
    let is_key = |character: char| character.is_ascii_digit() || matches!(character, '#' | '*');
    let needs_joiners = |character: char| {
        matches!(character, '\u{600}'..='\u{7bf}' | '\u{840}'..='\u{dff}' | '\u{f00}'..='\u{109f}' | '\u{1780}'..='\u{18af}'
            | '\u{fb50}'..='\u{fdff}' | '\u{fe70}'..='\u{fefc}')
    };
    match (before, joiner, after) {
        ([.., key], '\u{fe0f}', ['\u{20e3}', ..]) | ([.., key, '\u{fe0f}'], '\u{20e3}', _) => is_key(*key),
        ([.., emoji, '\u{fe0f}'] | [.., emoji], '\u{200d}', [next, ..]) if is_emoji(*emoji) => {
            is_emoji(*next)
        }
        ([.., letter], '\u{200c}' | '\u{200d}', [next, ..]) => needs_joiners(*letter) && needs_joiners(*next),
        _ => false,
    }
}

fn is_emoji(character: char) -> bool {
    matches!(character, '\u{2190}'..='\u{27ff}' | '\u{2900}'..='\u{2bff}' | '\u{1f000}'..='\u{1faff}')
}

/// Returns the start of untrusted text that fits a width, with a mark where it was cut.
pub(crate) fn truncate_end(text: &str, width: usize) -> String {
    cells::truncate(&escape_line(text), width, Truncation::KeepStart)
}

/// Returns the end of untrusted text that fits a width, with a mark where it was cut.
pub(crate) fn truncate_start(text: &str, width: usize) -> String {
    cells::truncate(&escape_line(text), width, Truncation::KeepEnd)
}

/// Wraps spans into lines of at most `width` columns. `first` and `rest` are the prefixes of the first line and the
/// others; a prefix that leaves no room for text is omitted.
pub(crate) fn wrap_spans(
    spans: &[Span<'_>],
    width: usize,
    breaks: LineBreak,
    first: &[Span<'static>],
    rest: &[Span<'static>],
) -> Vec<Line<'static>> {
    let mut lines = LineWrapper::new(width.max(1), first, rest);
    for span in spans {
        for grapheme in span.styled_graphemes(Style::default()) {
            let symbol = grapheme.symbol;
            lines.push(symbol, grapheme.style, symbol.width(), breaks);
        }
    }
    lines.finish()
}

/// The state of a wrapping.
struct LineWrapper<'a> {
    width: usize,
    next_prefix: &'a [Span<'static>],
    lines: Vec<Line<'static>>,
    // The current line: its prefix, and the cells that can be broken.
    prefix: Vec<Span<'static>>,
    room: usize,
    used: usize,
    cells: Vec<(String, Style, usize)>,
    // Where the last word begins in `cells`, if there is a space before it.
    word_start: Option<usize>,
}

impl<'a> LineWrapper<'a> {
    fn new(width: usize, first: &[Span<'static>], rest: &'a [Span<'static>]) -> Self {
        let (prefix, room) = Self::fit_prefix(width, first);
        Self {
            width,
            next_prefix: rest,
            lines: Vec::new(),
            prefix,
            room,
            used: 0,
            cells: Vec::new(),
            word_start: None,
        }
    }

    fn fit_prefix(width: usize, prefix: &[Span<'static>]) -> (Vec<Span<'static>>, usize) {
        let prefix_width: usize = prefix.iter().map(Span::width).sum();
        // The rest must have room for the widest character.
        if prefix_width + 2 <= width { (prefix.to_vec(), width - prefix_width) } else { (Vec::new(), width) }
    }

    fn push(&mut self, symbol: &str, style: Style, width: usize, breaks: LineBreak) {
        // A wide character on a line of one column.
        let (symbol, width) = if width > self.room { ("…", 1) } else { (symbol, width) };
        let is_space = symbol.chars().all(|character| character == ' ');
        if self.used + width > self.room {
            if breaks == LineBreak::Words && is_space {
                self.break_line(self.cells.len());
                return;
            }
            let index = match self.word_start {
                Some(index) if breaks == LineBreak::Words => index,
                _ => self.cells.len(),
            };
            self.break_line(index);
            // The word carried over may leave no room either.
            if self.used + width > self.room {
                self.break_line(self.cells.len());
            }
        }
        if breaks == LineBreak::Words && is_space && self.cells.is_empty() && !self.lines.is_empty() {
            return;
        }
        self.cells.push((symbol.to_owned(), style, width));
        self.used += width;
        if is_space {
            self.word_start = Some(self.cells.len());
        }
    }

    /// Ends the line before the cell `index`; the rest moves to the next line.
    fn break_line(&mut self, index: usize) {
        let tail = self.cells.split_off(index.min(self.cells.len()));
        self.flush();
        (self.prefix, self.room) = Self::fit_prefix(self.width, self.next_prefix);
        self.used = 0;
        self.word_start = None;
        for (symbol, style, width) in tail {
            if self.used + width > self.room {
                self.flush();
                (self.prefix, self.room) = Self::fit_prefix(self.width, self.next_prefix);
                self.used = 0;
            }
            self.used += width;
            self.cells.push((symbol, style, width));
        }
    }

    fn flush(&mut self) {
        let mut spans = std::mem::take(&mut self.prefix);
        let mut current: Option<(String, Style)> = None;
        for (symbol, style, _) in self.cells.drain(..) {
            match &mut current {
                Some((text, current_style)) if *current_style == style => text.push_str(&symbol),
                _ => {
                    spans.extend(current.take().map(|(text, style)| Span::styled(text, style)));
                    current = Some((symbol, style));
                }
            }
        }
        spans.extend(current.map(|(text, style)| Span::styled(text, style)));
        self.lines.push(Line::from(spans));
    }

    fn finish(mut self) -> Vec<Line<'static>> {
        self.flush();
        self.lines
    }
}

#[cfg(test)]
mod tests;
