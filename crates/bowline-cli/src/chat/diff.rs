//! A diff as lines on a screen: unified, or side by side.

use std::ops::Range;

use bowline_state::diff::{Hunk, hunks};
use bowline_state::display;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::parts::cells::{self, Break};
use super::parts::theme;

/// So many rows a diff has on a screen. How many changed lines are missing is said in its last row.
pub(crate) const MAX_ROWS: usize = 10_000;

/// As many bytes of one line are shown; of longer ones the start and the end.
const MAX_LINE: usize = 8 << 10;

/// How many lines are shown around a change.
const CONTEXT: usize = 3;

/// Below this a diff is drawn as if there were so much room, and cut by whoever shows it.
const MIN_WIDTH: u16 = 8;

/// From so many columns on there is room for two texts side by side.
const WIDE: u16 = 120;

/// So many cells of text there must be beside line numbers.
const TEXT_BESIDE_NUMBERS: usize = 24;

/// How the two texts are arranged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Removed lines above added ones.
    Unified,
    /// The old text on the left, the new one on the right.
    Split,
}

impl Layout {
    /// Returns what suits a width.
    pub(crate) fn for_width(width: u16) -> Self {
        if width < WIDE { Self::Unified } else { Self::Split }
    }

    /// Returns the other one.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Unified => Self::Split,
            Self::Split => Self::Unified,
        }
    }
}

/// A diff, ready to be shown.
#[derive(Debug)]
pub(crate) struct Drawn {
    /// Its rows.
    pub(crate) lines: Vec<Line<'static>>,
    /// The rows of each hunk, in the order of [`hunks`]; none of those that are not shown.
    pub(crate) hunks: Vec<Range<usize>>,
    /// How many changed lines are not shown, or not whole.
    pub(crate) unshown: usize,
}

/// Returns the difference between two texts, safe to show, in rows of `width` cells; no text means no file.
pub(crate) fn lines(
    before: Option<&str>,
    after: Option<&str>,
    width: u16,
    layout: Layout,
) -> Vec<Line<'static>> {
    draw(before, after, width, layout).lines
}

/// Returns the same with what somebody needs who wants to move about in it.
pub(crate) fn draw(before: Option<&str>, after: Option<&str>, width: u16, layout: Layout) -> Drawn {
    let (old, new) = (before.unwrap_or_default(), after.unwrap_or_default());
    let found = hunks(old, new);
    let texts = Texts {
        old: old.split_inclusive('\n').collect(),
        new: new.split_inclusive('\n').collect(),
        ends: Ends::of(old, new),
    };
    let longest = texts.old.len().max(texts.new.len());
    let mut sheet = Sheet {
        texts,
        width: usize::from(width.max(MIN_WIDTH)),
        layout,
        digits: longest.to_string().len(),
        drawn: Drawn { lines: Vec::new(), hunks: Vec::new(), unshown: 0 },
    };
    match (before, after) {
        (None, Some("")) => sheet.note("new file, empty"),
        (None, Some(_)) => sheet.note("new file"),
        (Some(_), None) => sheet.note("deleted"),
        _ if found.is_empty() => sheet.note("no difference"),
        _ => {}
    }
    if sheet.texts.ends == Ends::AllCrLf {
        sheet.note(r"all lines end with \r\n");
    }
    for group in found.chunk_by(|one, next| next.old.start - one.old.end <= 2 * CONTEXT) {
        sheet.group(group);
    }
    let Drawn { unshown, .. } = sheet.drawn;
    if unshown > 0 {
        let what = if unshown == 1 { "changed line is" } else { "changed lines are" };
        let text = format!("… {unshown} {what} not shown, or not whole: too long");
        let rows = cells::prose(&text, sheet.width).into_iter();
        sheet.drawn.lines.extend(rows.map(|row| Line::styled(row, theme::danger())));
    }
    sheet.drawn
}

/// How the lines of both texts end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// All with `\r\n`, so that it is enough to say it once.
    AllCrLf,
    /// In any other way: each `\r` is shown.
    Others,
}

impl Ends {
    fn of(old: &str, new: &str) -> Self {
        let ends = || old.split_inclusive('\n').chain(new.split_inclusive('\n'));
        let mut whole = ends().filter(|line| line.ends_with('\n')).peekable();
        let is_some = whole.peek().is_some();
        if is_some && whole.all(|line| line.ends_with("\r\n")) { Self::AllCrLf } else { Self::Others }
    }
}

struct Texts<'a> {
    old: Vec<&'a str>,
    new: Vec<&'a str>,
    ends: Ends,
}

/// One line, as it is shown.
struct Shown {
    text: String,
    // Whether something of it is left out.
    cut: bool,
    // Whether it is the last line and has no end.
    open: bool,
    different: Range<usize>,
}

impl Shown {
    fn of(line: &str, ends: Ends) -> Self {
        let text = line.strip_suffix('\n');
        let open = text.is_none();
        let text = text.unwrap_or(line);
        let text = match ends {
            Ends::AllCrLf if !open => text.strip_suffix('\r').unwrap_or(text),
            Ends::AllCrLf | Ends::Others => text,
        };
        let cut = text.len() > MAX_LINE;
        let text = if cut { cells::visible(&display::line(text, MAX_LINE)) } else { cells::expanded(text) };
        Self { text, cut, open, different: 0..0 }
    }
}

/// What a line is in a diff.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    Same,
    Removed,
    Added,
}

impl Sign {
    fn mark(self) -> &'static str {
        match self {
            Self::Same => " ",
            Self::Removed => "-",
            Self::Added => "+",
        }
    }

    fn style(self) -> Style {
        match self {
            Self::Same => Style::new(),
            Self::Removed => theme::removed(),
            Self::Added => theme::added(),
        }
    }
}

struct Sheet<'a> {
    texts: Texts<'a>,
    width: usize,
    layout: Layout,
    digits: usize,
    drawn: Drawn,
}

impl Sheet<'_> {
    fn note(&mut self, text: &str) {
        let text = cells::fit(text, self.width, cells::Stays::Start);
        self.drawn.lines.push(Line::styled(text, theme::aside()));
    }

    fn is_full(&self) -> bool {
        self.drawn.lines.len() >= MAX_ROWS
    }

    /// Draws hunks whose surroundings meet.
    fn group(&mut self, group: &[Hunk]) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { return };
        let before = CONTEXT.min(first.old.start);
        let after = CONTEXT.min(self.texts.old.len() - last.old.end);
        if !self.is_full() {
            let place = |start: usize, lines: usize| match lines {
                0 => format!("{start},0"),
                1 => format!("{}", start + 1),
                _ => format!("{},{lines}", start + 1),
            };
            let old = first.old.start - before..last.old.end + after;
            let new = first.new.start - before..last.new.end + after;
            self.note(&format!("@@ -{} +{} @@", place(old.start, old.len()), place(new.start, new.len())));
        }
        let (mut old, mut new) = (first.old.start - before, first.new.start - before);
        for hunk in group {
            self.same(old..hunk.old.start, new);
            let start = self.drawn.lines.len();
            match self.layout {
                Layout::Unified => self.above(hunk),
                Layout::Split => self.beside(hunk),
            }
            self.drawn.hunks.push(start..self.drawn.lines.len());
            (old, new) = (hunk.old.end, hunk.new.end);
        }
        self.same(old..last.old.end + after, new);
    }

    /// Draws lines that both texts have, by their places in the old one and that of the first in the new one.
    fn same(&mut self, old: Range<usize>, new: usize) {
        for (old, new) in old.zip(new..) {
            if self.is_full() {
                return;
            }
            let line = Shown::of(self.texts.old[old], self.texts.ends);
            let rows = match self.layout {
                Layout::Unified => self.rows(&[Some(old), Some(new)], Sign::Same, &line, self.width),
                Layout::Split => {
                    let [left, right] = self.halves();
                    let left = self.rows(&[Some(old)], Sign::Same, &line, left);
                    let right = self.rows(&[Some(new)], Sign::Same, &line, right);
                    self.joined(left, right)
                }
            };
            self.drawn.lines.extend(rows);
        }
    }

    fn above(&mut self, hunk: &Hunk) {
        for (sign, places) in [(Sign::Removed, hunk.old.clone()), (Sign::Added, hunk.new.clone())] {
            for at in 0..places.len() {
                if self.is_full() {
                    self.drawn.unshown += places.len() - at;
                    break;
                }
                let place = places.start + at;
                let (numbers, line) = match sign {
                    Sign::Removed | Sign::Same => ([Some(place), None], self.pair(hunk, at)[0].take()),
                    Sign::Added => ([None, Some(place)], self.pair(hunk, at)[1].take()),
                };
                let Some(line) = line else { continue };
                self.drawn.unshown += usize::from(line.cut);
                let rows = self.rows(&numbers, sign, &line, self.width);
                self.drawn.lines.extend(rows);
            }
        }
    }

    fn beside(&mut self, hunk: &Hunk) {
        let [left, right] = self.halves();
        for at in 0..hunk.old.len().max(hunk.new.len()) {
            if self.is_full() {
                self.drawn.unshown += hunk.old.len().saturating_sub(at) + hunk.new.len().saturating_sub(at);
                return;
            }
            let [old, new] = self.pair(hunk, at);
            self.drawn.unshown += [&old, &new].into_iter().flatten().filter(|line| line.cut).count();
            let rows = |line: Option<Shown>, place, sign, width| {
                line.map_or_else(Vec::new, |line| self.rows(&[Some(place)], sign, &line, width))
            };
            let old = rows(old, hunk.old.start + at, Sign::Removed, left);
            let new = rows(new, hunk.new.start + at, Sign::Added, right);
            let joined = self.joined(old, new);
            self.drawn.lines.extend(joined);
        }
    }

    /// Returns the lines of both sides at a place in a hunk, with what is different in them.
    fn pair(&self, hunk: &Hunk, at: usize) -> [Option<Shown>; 2] {
        let shown = |lines: &[&str], places: &Range<usize>| {
            let place = places.start + at;
            (place < places.end).then(|| Shown::of(lines[place], self.texts.ends))
        };
        let mut pair = [shown(&self.texts.old, &hunk.old), shown(&self.texts.new, &hunk.new)];
        if let [Some(old), Some(new)] = &mut pair {
            (old.different, new.different) = different(&old.text, &new.text);
        }
        pair
    }

    /// Returns the widths of the two sides.
    fn halves(&self) -> [usize; 2] {
        let left = (self.width - 1) / 2;
        [left, self.width - 1 - left]
    }

    fn joined(&self, left: Vec<Line<'static>>, right: Vec<Line<'static>>) -> Vec<Line<'static>> {
        let [width, _] = self.halves();
        let (mut left, mut right) = (left.into_iter(), right.into_iter());
        let mut rows = Vec::new();
        loop {
            let (one, other) = (left.next(), right.next());
            if one.is_none() && other.is_none() {
                return rows;
            }
            let mut row = one.unwrap_or_default();
            let used: usize = row.spans.iter().map(|span| cells::width(&span.content)).sum();
            row.push_span(Span::raw(" ".repeat(width.saturating_sub(used))));
            row.push_span(Span::styled("│", theme::aside()));
            row.spans.extend(other.unwrap_or_default().spans);
            rows.push(row);
        }
    }

    /// Returns the rows of a line: numbers where there is room for them, sign, text.
    fn rows(&self, numbers: &[Option<usize>], sign: Sign, line: &Shown, width: usize) -> Vec<Line<'static>> {
        let mut gutter = String::new();
        if numbers.len() * (self.digits + 1) + 1 + TEXT_BESIDE_NUMBERS <= width {
            for number in numbers {
                let number = number.map_or_else(String::new, |number| (number + 1).to_string());
                gutter.push_str(&format!("{number:>digits$} ", digits = self.digits));
            }
        }
        let style = sign.style();
        let blank = " ".repeat(gutter.len());
        let room = width.saturating_sub(gutter.len() + 1).max(2);
        let mut rows = Vec::new();
        for (at, row) in cells::wrap(&line.text, room, Break::Anywhere).into_iter().enumerate() {
            // What goes on in the next row has a mark of its own: it must not look like a line that is the same.
            let (numbers, mark) = if at == 0 { (&gutter, sign.mark()) } else { (&blank, "┊") };
            let mut spans = vec![Span::styled(numbers.clone(), theme::aside()), Span::styled(mark, style)];
            let cut = |at: usize| at.clamp(row.start, row.end);
            let Range { start, end } = &line.different;
            for (part, style) in [
                (row.start..cut(*start), style),
                (cut(*start)..cut(*end), theme::different(style)),
                (cut(*end)..row.end, style),
            ] {
                if !part.is_empty() {
                    spans.push(Span::styled(line.text[part].to_owned(), style));
                }
            }
            rows.push(Line::from(spans));
        }
        if line.open {
            let text = cells::fit(r"\ No newline at end of file", room + 1, cells::Stays::Start);
            rows.push(Line::from(vec![Span::raw(blank), Span::styled(text, theme::aside())]));
        }
        rows
    }
}

/// Returns the parts of two lines that differ, nothing if they have too little in common for that to tell anything. No
/// part starts or ends within what is one piece on the screen.
fn different(old: &str, new: &str) -> (Range<usize>, Range<usize>) {
    let nothing = (0..0, 0..0);
    let (olds, news) = (cells::pieces(old), cells::pieces(new));
    let (mut start, mut same) = (0, 0);
    for ((bytes, _), _) in olds.iter().zip(&news) {
        let end = start + bytes;
        if new.get(start..end) != Some(&old[start..end]) || news[same].0 != *bytes {
            break;
        }
        (start, same) = (end, same + 1);
    }
    let mut tail = 0;
    for ((bytes, _), (other, _)) in olds[same..].iter().rev().zip(news[same..].iter().rev()) {
        let from = |text: &str| text.len() - tail - bytes;
        if bytes != other || old[from(old)..old.len() - tail] != new[from(new)..new.len() - tail] {
            break;
        }
        tail += bytes;
    }
    let common = start + tail;
    if common * 3 < old.trim().len().max(new.trim().len()) || old == new {
        return nothing;
    }
    (start..old.len() - tail, start..new.len() - tail)
}

#[cfg(test)]
mod tests;
