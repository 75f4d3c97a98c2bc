//! Untrusted text, escaped for display.
//!
//! The text comes from an agent or a file. It must not control the terminal, hide a part of itself, or imitate other
//! text; where it is truncated, both its start and its end stay visible.

mod confusable;

use std::borrow::Cow;
use std::fmt::Write as _;

pub use confusable::{ConfusableWarning, check_mixed_scripts, check_non_ascii};

/// The maximum number of combining marks on one letter. More are escaped: they would overlap the lines above and below.
const MAX_COMBINING_MARKS: usize = 4;
/// The maximum length of a line of an [`EscapedBlock`], in bytes.
pub const MAX_BLOCK_LINE_BYTES: usize = 2000;
/// The room for the mark that replaces omitted text.
const OMISSION_MARK_BYTES: usize = 40;

/// Returns whether the character is invisible or reorders others.
#[must_use]
pub fn is_hidden(character: char) -> bool {
    matches!(character, '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}'
        | '\u{feff}' | '\u{e0000}'..='\u{e0fff}')
}

/// Returns `text` on one line of at most about `cap` bytes, unable to control a terminal or to hide a part of itself.
///
/// Control, reordering and invisible characters and excess combining marks are escaped, like `\u{202e}`. Longer text
/// keeps its start and its end, with the number of omitted characters between them.
#[must_use]
pub fn escape_line(text: &str, cap: usize) -> String {
    escape_text(text, cap, TabMode::Escaped)
}

/// Several lines, escaped for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EscapedBlock {
    /// The lines.
    pub text: String,
    /// The number of lines omitted between the first and the last.
    pub omitted_lines: usize,
}

/// Returns `text` as at most `cap_lines` lines of about `cap_bytes` bytes in total, escaped as by [`escape_line`]
/// except for tabs.
///
/// Longer text keeps its first and last lines, and lines longer than [`MAX_BLOCK_LINE_BYTES`] keep their start and end.
#[must_use]
pub fn escape_block(text: &str, cap_lines: usize, cap_bytes: usize) -> EscapedBlock {
    let per_line = cap_bytes.min(MAX_BLOCK_LINE_BYTES);
    let (body, end) = match text.strip_suffix('\n') {
        Some(body) => (body, "\n"),
        None => (text, ""),
    };
    let all = BlockLimits { lines: cap_lines, bytes: cap_bytes };
    let (lines, has_more) = all.take_lines(body.split('\n'), per_line);
    if !has_more {
        return EscapedBlock { text: lines.join("\n") + end, omitted_lines: 0 };
    }
    let total = body.split('\n').count();
    let half = BlockLimits { lines: cap_lines.div_ceil(2), bytes: cap_bytes / 2 };
    let (mut lines, _) = half.take_lines(body.split('\n'), per_line);
    let rest = BlockLimits { lines: cap_lines / 2, bytes: cap_bytes / 2 };
    let (last, _) = rest.take_lines(body.split('\n').rev().take(total - lines.len()), per_line);
    let omitted_lines = total - lines.len() - last.len();
    if omitted_lines > 0 {
        lines.push(format!("…[{omitted_lines} more {}]…", if omitted_lines == 1 { "line" } else { "lines" }));
    }
    lines.extend(last.into_iter().rev());
    EscapedBlock { text: lines.join("\n") + end, omitted_lines }
}

/// Longer runs of blanks, deeper indentation and more empty lines are replaced by their count.
const MAX_BLANK_RUN: usize = 20;
const MAX_INDENT: usize = 60;
const MAX_EMPTY_LINES: usize = 8;

/// Returns `text` with each long run of blanks or empty lines replaced by a mark with its count, like `␣×3000`, so that
/// a run cannot push the following text out of sight.
#[must_use]
pub fn collapse_whitespace(text: &str) -> Cow<'_, str> {
    let mut short = String::new();
    // The end of the part already copied to `short`.
    let mut done = 0;
    let mut at = 0;
    while let Some(start) = text[at..].find(char::is_whitespace).map(|found| at + found) {
        let run = &text[start..];
        let run = &run[..run.find(|character: char| !character.is_whitespace()).unwrap_or(run.len())];
        at = start + run.len();
        let breaks = run.matches('\n').count();
        let blanks = run.chars().count() - breaks;
        let indented = if breaks > 0 { MAX_INDENT } else { MAX_BLANK_RUN };
        if blanks <= indented && breaks <= MAX_EMPTY_LINES {
            continue;
        }
        short.push_str(&text[done..start]);
        // Writing to a string cannot fail.
        if blanks > 0 {
            _ = write!(short, "␣×{blanks}");
        }
        if breaks > 0 {
            _ = writeln!(short, "⏎×{breaks}");
        }
        done = at;
    }
    if done == 0 {
        return text.into();
    }
    short.push_str(&text[done..]);
    short.into()
}

/// Returns `text` on one line, unable to control a terminal, truncated to at most `limit` bytes including the ellipsis.
/// Idempotent.
#[must_use]
pub fn escape_truncated(text: &str, limit: usize) -> String {
    let mut clean = String::new();
    let mut cut = 0;
    for character in text.chars() {
        if is_steering(character) {
            clean.extend(character.escape_default());
        } else {
            clean.push(character);
        }
        if clean.len() > limit {
            clean.truncate(cut);
            clean.push_str(ELLIPSIS);
            return clean;
        }
        // The cut point if a later character does not fit: it leaves room for the ellipsis and splits no escape.
        if clean.len() + ELLIPSIS.len() <= limit {
            cut = clean.len();
        }
    }
    clean
}

/// The longest text, in bytes, that a message quotes from a peer.
pub const MAX_QUOTED_BYTES: usize = 200;

/// Returns `text` made safe to quote in a message or a log line: at most [`MAX_QUOTED_BYTES`] bytes, on one line,
/// without terminal control.
///
/// Control characters and those that reorder text are escaped. Longer text is cut at a character boundary and ends in
/// an ellipsis, which counts. Quoting is idempotent.
#[must_use]
pub fn quote(text: &str) -> String {
    escape_truncated(text, MAX_QUOTED_BYTES)
}

/// The mark at the end of a truncated text.
pub const ELLIPSIS: &str = "…";

/// Returns whether the character makes a terminal or an editor display text in another order or on another line.
pub fn is_reordering(character: char) -> bool {
    matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn is_steering(character: char) -> bool {
    character.is_control() || is_reordering(character)
}

/// Returns whether the character is invisible or looks like a blank.
fn is_invisible(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2065}' | '\u{206a}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
        | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

fn is_combining_mark(character: char) -> bool {
    matches!(character,
        '\u{300}'..='\u{36f}' | '\u{483}'..='\u{489}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}'
        | '\u{20d0}'..='\u{20ff}' | '\u{fe20}'..='\u{fe2f}')
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TabMode {
    Kept,
    Escaped,
}

fn escape_text(text: &str, cap: usize, tabs: TabMode) -> String {
    let mut pieces = EscapedChars::new(text, tabs);
    let mut full = String::new();
    loop {
        let Some((_, character, escaped)) = pieces.next() else { return full };
        push_escaped(&mut full, character, escaped);
        if full.len() > cap {
            break;
        }
    }
    let half = cap.saturating_sub(OMISSION_MARK_BYTES) / 2;
    let mut head = String::new();
    let mut start = text.len();
    for (at, character, escaped) in EscapedChars::new(text, tabs) {
        let before = head.len();
        push_escaped(&mut head, character, escaped);
        if head.len() > half {
            head.truncate(before);
            start = at;
            break;
        }
    }
    // Whether a mark or a selector is escaped depends on the preceding character, so the end is read forwards from the
    // earliest possible start: each displayed character has at least one byte.
    let from = text.floor_char_boundary(text.len().saturating_sub(half)).max(start);
    let tail: Vec<(usize, char, bool)> = EscapedChars::new(&text[from..], tabs)
        .map(|(at, character, escaped)| (from + at, character, escaped))
        .collect();
    let mut end = text.len();
    let mut room = half;
    let mut kept = tail.len();
    for (at, character, escaped) in tail.iter().rev() {
        let width = if *escaped { character.escape_default().len() } else { character.len_utf8() };
        if width > room {
            break;
        }
        room -= width;
        end = *at;
        kept -= 1;
    }
    let omitted = text[start..end].chars().count();
    // Writing to a string cannot fail.
    _ = write!(head, "…[{omitted} more]…");
    tail[kept..].iter().for_each(|(_, character, escaped)| push_escaped(&mut head, *character, *escaped));
    head
}

fn push_escaped(out: &mut String, character: char, escaped: bool) {
    if escaped {
        out.extend(character.escape_default());
    } else {
        out.push(character);
    }
}

/// The characters of a text, each with its offset and whether it needs escaping.
struct EscapedChars<'a> {
    characters: std::str::CharIndices<'a>,
    tabs: TabMode,
    mark_count: usize,
    /// The last character, if it was displayed unescaped.
    base_char: Option<char>,
}

impl<'a> EscapedChars<'a> {
    fn new(text: &'a str, tabs: TabMode) -> Self {
        Self { characters: text.char_indices(), tabs, mark_count: 0, base_char: None }
    }
}

impl Iterator for EscapedChars<'_> {
    type Item = (usize, char, bool);

    fn next(&mut self) -> Option<Self::Item> {
        let (at, character) = self.characters.next()?;
        let escaped = match character {
            '\t' => self.tabs == TabMode::Escaped,
            // One selector chooses the look of a symbol. After a letter or another selector it only carries hidden
            // data.
            '\u{fe00}'..='\u{fe0f}' => {
                self.base_char.is_none_or(|base| base < '\u{a9}' || base.is_alphabetic())
            }
            _ if is_combining_mark(character) && !is_invisible(character) => {
                self.mark_count += 1;
                self.base_char.is_none() || self.mark_count > MAX_COMBINING_MARKS
            }
            _ => is_steering(character) || is_invisible(character),
        };
        if !is_combining_mark(character) {
            self.mark_count = 0;
            let is_base = !escaped && !matches!(character, '\u{fe00}'..='\u{fe0f}');
            self.base_char = is_base.then_some(character);
        }
        Some((at, character, escaped))
    }
}

#[derive(Debug, Clone, Copy)]
struct BlockLimits {
    lines: usize,
    bytes: usize,
}

impl BlockLimits {
    /// Takes lines while there is room. Also returns whether lines remain.
    fn take_lines<'a>(self, lines: impl Iterator<Item = &'a str>, per_line: usize) -> (Vec<String>, bool) {
        let mut kept = Vec::new();
        let mut bytes = 0;
        for line in lines {
            if kept.len() == self.lines {
                return (kept, true);
            }
            let line = escape_text(line, per_line, TabMode::Kept);
            bytes += line.len() + 1;
            if bytes > self.bytes && !kept.is_empty() {
                return (kept, true);
            }
            kept.push(line);
        }
        (kept, false)
    }
}

/// Returns a word quoted as a shell needs it.
#[must_use]
pub fn quote_shell_word(word: &str) -> Cow<'_, str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:=@%+,".contains(&byte) || byte >= 0x80;
    if !word.is_empty() && word.bytes().all(plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', r"'\''")).into()
}

#[cfg(test)]
mod tests;
