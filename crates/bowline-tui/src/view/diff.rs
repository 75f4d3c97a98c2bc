//! A diff as lines on a screen: unified, or side by side.

use std::ops::Range;

use bowline_text::diff::{Hunk, compute_hunks};
use bowline_text::display;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::widgets::{cells, theme};
use super::wrap::LineBreak;

/// The maximum number of rows of a diff. The last row reports how many changed lines are missing.
pub(crate) const MAX_ROWS: usize = 10_000;

/// The maximum number of bytes shown of one line; of longer ones, the start and the end are shown.
const MAX_LINE: usize = 8 << 10;

/// The number of context lines around a change.
const CONTEXT_LINES: usize = 3;

/// The minimum layout width. A narrower diff is laid out at this width and cut by the caller.
const MIN_WIDTH: u16 = 8;

/// The minimum width for two texts side by side.
const SPLIT_WIDTH: u16 = 120;

/// The minimum number of cells for text beside line numbers.
const MIN_NUMBERED_TEXT: usize = 24;

/// How the two texts are arranged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiffLayout {
    /// Removed lines above added ones.
    Unified,
    /// The old text on the left, the new one on the right.
    Split,
}

impl DiffLayout {
    /// Returns the layout that suits a width.
    pub(crate) fn for_width(width: u16) -> Self {
        if width < SPLIT_WIDTH { Self::Unified } else { Self::Split }
    }

    /// Returns the other layout.
    pub(crate) fn toggled(self) -> Self {
        match self {
            Self::Unified => Self::Split,
            Self::Split => Self::Unified,
        }
    }
}

/// A diff, ready to be shown.
#[derive(Debug)]
pub(crate) struct RenderedDiff {
    /// Its rows.
    pub(crate) lines: Vec<Line<'static>>,
    /// The rows of each hunk, in the order of [`compute_hunks`]; hunks that are not shown are left out.
    pub(crate) hunks: Vec<Range<usize>>,
    /// The number of changed lines that are hidden or truncated.
    pub(crate) hidden_lines: usize,
}

/// Returns the diff of two texts, with control characters escaped, in rows of `width` cells; `None` means no file.
pub(crate) fn render_diff_lines(
    before: Option<&str>,
    after: Option<&str>,
    width: u16,
    layout: DiffLayout,
) -> Vec<Line<'static>> {
    render_diff(before, after, width, layout).lines
}

/// Returns the diff with the positions of its hunks, for navigation.
pub(crate) fn render_diff(
    before: Option<&str>,
    after: Option<&str>,
    width: u16,
    layout: DiffLayout,
) -> RenderedDiff {
    let (old, new) = (before.unwrap_or_default(), after.unwrap_or_default());
    let hunks = compute_hunks(old, new);
    let texts = DiffTexts {
        old: old.split_inclusive('\n').collect(),
        new: new.split_inclusive('\n').collect(),
        line_endings: DiffLineEndings::detect(old, new),
    };
    let longest = texts.old.len().max(texts.new.len());
    let mut renderer = DiffRenderer {
        texts,
        width: usize::from(width.max(MIN_WIDTH)),
        layout,
        digits: longest.to_string().len(),
        rendered: RenderedDiff { lines: Vec::new(), hunks: Vec::new(), hidden_lines: 0 },
    };
    match (before, after) {
        (None, Some("")) => renderer.push_note("new file, empty"),
        (None, Some(_)) => renderer.push_note("new file"),
        (Some(_), None) => renderer.push_note("deleted"),
        _ if hunks.is_empty() => renderer.push_note("no difference"),
        _ => {}
    }
    if renderer.texts.line_endings == DiffLineEndings::AllCrLf {
        renderer.push_note(r"all lines end with \r\n");
    }
    for group in hunks.chunk_by(|previous, next| next.old.start - previous.old.end <= 2 * CONTEXT_LINES) {
        renderer.render_group(group);
    }
    let RenderedDiff { hidden_lines: hidden, .. } = renderer.rendered;
    if hidden > 0 {
        let subject = if hidden == 1 { "changed line is" } else { "changed lines are" };
        let text = format!("… {hidden} {subject} not shown, or not whole: too long");
        let rows = cells::wrap_prose(&text, renderer.width).into_iter();
        renderer.rendered.lines.extend(rows.map(|row| Line::styled(row, theme::danger())));
    }
    renderer.rendered
}

/// The line endings of both texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DiffLineEndings {
    /// All `\r\n`, so that it is enough to say so once.
    AllCrLf,
    /// Anything else: each `\r` is shown.
    Mixed,
}

impl DiffLineEndings {
    fn detect(old: &str, new: &str) -> Self {
        let lines = || old.split_inclusive('\n').chain(new.split_inclusive('\n'));
        let mut ended_lines = lines().filter(|line| line.ends_with('\n')).peekable();
        let has_lines = ended_lines.peek().is_some();
        if has_lines && ended_lines.all(|line| line.ends_with("\r\n")) { Self::AllCrLf } else { Self::Mixed }
    }
}

struct DiffTexts<'a> {
    old: Vec<&'a str>,
    new: Vec<&'a str>,
    line_endings: DiffLineEndings,
}

/// A line, as displayed.
struct DiffLine {
    text: String,
    // Whether part of it is left out.
    is_truncated: bool,
    // Whether it is the last line and lacks a newline.
    lacks_newline: bool,
    changed_range: Range<usize>,
}

impl DiffLine {
    fn new(line: &str, line_endings: DiffLineEndings) -> Self {
        let text = line.strip_suffix('\n');
        let lacks_newline = text.is_none();
        let text = text.unwrap_or(line);
        let text = match line_endings {
            DiffLineEndings::AllCrLf if !lacks_newline => text.strip_suffix('\r').unwrap_or(text),
            DiffLineEndings::AllCrLf | DiffLineEndings::Mixed => text,
        };
        let is_truncated = text.len() > MAX_LINE;
        let text = if is_truncated {
            cells::escape_line(&display::escape_line(text, MAX_LINE))
        } else {
            cells::expand_tabs(text)
        };
        Self { text, is_truncated, lacks_newline, changed_range: 0..0 }
    }
}

/// The role of a line in a diff.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineSign {
    Context,
    Removed,
    Added,
}

impl LineSign {
    fn mark(self) -> &'static str {
        match self {
            Self::Context => " ",
            Self::Removed => "-",
            Self::Added => "+",
        }
    }

    fn style(self) -> Style {
        match self {
            Self::Context => Style::new(),
            Self::Removed => theme::removed(),
            Self::Added => theme::added(),
        }
    }
}

struct DiffRenderer<'a> {
    texts: DiffTexts<'a>,
    width: usize,
    layout: DiffLayout,
    digits: usize,
    rendered: RenderedDiff,
}

impl DiffRenderer<'_> {
    fn push_note(&mut self, text: &str) {
        let text = cells::truncate(text, self.width, cells::Truncation::KeepStart);
        self.rendered.lines.push(Line::styled(text, theme::secondary()));
    }

    fn is_full(&self) -> bool {
        self.rendered.lines.len() >= MAX_ROWS
    }

    /// Draws a group of hunks whose context lines meet.
    fn render_group(&mut self, group: &[Hunk]) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { return };
        let before = CONTEXT_LINES.min(first.old.start);
        let after = CONTEXT_LINES.min(self.texts.old.len() - last.old.end);
        if !self.is_full() {
            let format_range = |start: usize, lines: usize| match lines {
                0 => format!("{start},0"),
                1 => format!("{}", start + 1),
                _ => format!("{},{lines}", start + 1),
            };
            let old = first.old.start - before..last.old.end + after;
            let new = first.new.start - before..last.new.end + after;
            self.push_note(&format!(
                "@@ -{} +{} @@",
                format_range(old.start, old.len()),
                format_range(new.start, new.len())
            ));
        }
        let (mut old, mut new) = (first.old.start - before, first.new.start - before);
        for hunk in group {
            self.render_context(old..hunk.old.start, new);
            let start = self.rendered.lines.len();
            match self.layout {
                DiffLayout::Unified => self.render_unified(hunk),
                DiffLayout::Split => self.render_split(hunk),
            }
            self.rendered.hunks.push(start..self.rendered.lines.len());
            (old, new) = (hunk.old.end, hunk.new.end);
        }
        self.render_context(old..last.old.end + after, new);
    }

    /// Draws context lines, by their indices in the old text and the index of the first in the new text.
    fn render_context(&mut self, old: Range<usize>, new: usize) {
        for (old, new) in old.zip(new..) {
            if self.is_full() {
                return;
            }
            let line = DiffLine::new(self.texts.old[old], self.texts.line_endings);
            let rows = match self.layout {
                DiffLayout::Unified => {
                    self.render_line(&[Some(old), Some(new)], LineSign::Context, &line, self.width)
                }
                DiffLayout::Split => {
                    let [left, right] = self.column_widths();
                    let left = self.render_line(&[Some(old)], LineSign::Context, &line, left);
                    let right = self.render_line(&[Some(new)], LineSign::Context, &line, right);
                    self.join_columns(left, right)
                }
            };
            self.rendered.lines.extend(rows);
        }
    }

    fn render_unified(&mut self, hunk: &Hunk) {
        for (sign, range) in [(LineSign::Removed, hunk.old.clone()), (LineSign::Added, hunk.new.clone())] {
            for offset in 0..range.len() {
                if self.is_full() {
                    self.rendered.hidden_lines += range.len() - offset;
                    break;
                }
                let line_index = range.start + offset;
                let (numbers, line) = match sign {
                    LineSign::Removed | LineSign::Context => {
                        ([Some(line_index), None], self.line_pair(hunk, offset)[0].take())
                    }
                    LineSign::Added => ([None, Some(line_index)], self.line_pair(hunk, offset)[1].take()),
                };
                let Some(line) = line else { continue };
                self.rendered.hidden_lines += usize::from(line.is_truncated);
                let rows = self.render_line(&numbers, sign, &line, self.width);
                self.rendered.lines.extend(rows);
            }
        }
    }

    fn render_split(&mut self, hunk: &Hunk) {
        let [left, right] = self.column_widths();
        for offset in 0..hunk.old.len().max(hunk.new.len()) {
            if self.is_full() {
                self.rendered.hidden_lines +=
                    hunk.old.len().saturating_sub(offset) + hunk.new.len().saturating_sub(offset);
                return;
            }
            let [old, new] = self.line_pair(hunk, offset);
            self.rendered.hidden_lines +=
                [&old, &new].into_iter().flatten().filter(|line| line.is_truncated).count();
            let rows = |line: Option<DiffLine>, line_index, sign, width| {
                line.map_or_else(Vec::new, |line| self.render_line(&[Some(line_index)], sign, &line, width))
            };
            let old = rows(old, hunk.old.start + offset, LineSign::Removed, left);
            let new = rows(new, hunk.new.start + offset, LineSign::Added, right);
            let joined = self.join_columns(old, new);
            self.rendered.lines.extend(joined);
        }
    }

    /// Returns the lines of both sides at an index of a hunk, with their differing parts.
    fn line_pair(&self, hunk: &Hunk, offset: usize) -> [Option<DiffLine>; 2] {
        let line_at = |lines: &[&str], range: &Range<usize>| {
            let line_index = range.start + offset;
            (line_index < range.end).then(|| DiffLine::new(lines[line_index], self.texts.line_endings))
        };
        let mut pair = [line_at(&self.texts.old, &hunk.old), line_at(&self.texts.new, &hunk.new)];
        if let [Some(old), Some(new)] = &mut pair {
            (old.changed_range, new.changed_range) = changed_ranges(&old.text, &new.text);
        }
        pair
    }

    /// Returns the widths of the two sides.
    fn column_widths(&self) -> [usize; 2] {
        let left = (self.width - 1) / 2;
        [left, self.width - 1 - left]
    }

    fn join_columns(&self, left: Vec<Line<'static>>, right: Vec<Line<'static>>) -> Vec<Line<'static>> {
        let [width, _] = self.column_widths();
        let (mut left, mut right) = (left.into_iter(), right.into_iter());
        let mut rows = Vec::new();
        loop {
            let (left_row, right_row) = (left.next(), right.next());
            if left_row.is_none() && right_row.is_none() {
                return rows;
            }
            let mut row = left_row.unwrap_or_default();
            let used: usize = row.spans.iter().map(|span| cells::text_width(&span.content)).sum();
            row.push_span(Span::raw(" ".repeat(width.saturating_sub(used))));
            row.push_span(Span::styled("│", theme::secondary()));
            row.spans.extend(right_row.unwrap_or_default().spans);
            rows.push(row);
        }
    }

    /// Returns the rows of a line: line numbers if they fit, sign, text.
    fn render_line(
        &self,
        numbers: &[Option<usize>],
        sign: LineSign,
        line: &DiffLine,
        width: usize,
    ) -> Vec<Line<'static>> {
        let mut gutter = String::new();
        if numbers.len() * (self.digits + 1) + 1 + MIN_NUMBERED_TEXT <= width {
            for number in numbers {
                let number = number.map_or_else(String::new, |number| (number + 1).to_string());
                gutter.push_str(&format!("{number:>digits$} ", digits = self.digits));
            }
        }
        let style = sign.style();
        let empty_gutter = " ".repeat(gutter.len());
        let room = width.saturating_sub(gutter.len() + 1).max(2);
        let mut rows = Vec::new();
        for (index, row) in cells::wrap_ranges(&line.text, room, LineBreak::Anywhere).into_iter().enumerate()
        {
            // A continuation row has a mark of its own, so that it cannot pass for an unchanged line.
            let (numbers, mark) = if index == 0 { (&gutter, sign.mark()) } else { (&empty_gutter, "┊") };
            let mut spans =
                vec![Span::styled(numbers.clone(), theme::secondary()), Span::styled(mark, style)];
            let clamp = |offset: usize| offset.clamp(row.start, row.end);
            let Range { start, end } = &line.changed_range;
            for (part, style) in [
                (row.start..clamp(*start), style),
                (clamp(*start)..clamp(*end), theme::changed_part(style)),
                (clamp(*end)..row.end, style),
            ] {
                if !part.is_empty() {
                    spans.push(Span::styled(line.text[part].to_owned(), style));
                }
            }
            rows.push(Line::from(spans));
        }
        if line.lacks_newline {
            let text =
                cells::truncate(r"\ No newline at end of file", room + 1, cells::Truncation::KeepStart);
            rows.push(Line::from(vec![Span::raw(empty_gutter), Span::styled(text, theme::secondary())]));
        }
        rows
    }
}

/// Returns the differing parts of two lines; empty if they have too little in common for that to help. No part starts
/// or ends within a grapheme.
fn changed_ranges(old: &str, new: &str) -> (Range<usize>, Range<usize>) {
    let no_ranges = (0..0, 0..0);
    let (old_sizes, new_sizes) = (cells::grapheme_sizes(old), cells::grapheme_sizes(new));
    let (mut start, mut same_count) = (0, 0);
    for ((bytes, _), _) in old_sizes.iter().zip(&new_sizes) {
        let end = start + bytes;
        if new.get(start..end) != Some(&old[start..end]) || new_sizes[same_count].0 != *bytes {
            break;
        }
        (start, same_count) = (end, same_count + 1);
    }
    let mut tail = 0;
    for ((bytes, _), (other_bytes, _)) in
        old_sizes[same_count..].iter().rev().zip(new_sizes[same_count..].iter().rev())
    {
        let from = |text: &str| text.len() - tail - bytes;
        if bytes != other_bytes || old[from(old)..old.len() - tail] != new[from(new)..new.len() - tail] {
            break;
        }
        tail += bytes;
    }
    let common = start + tail;
    if common * 3 < old.trim().len().max(new.trim().len()) || old == new {
        return no_ranges;
    }
    (start..old.len() - tail, start..new.len() - tail)
}

#[cfg(test)]
mod tests;
