//! Text of others, made safe to show to a person.
//!
//! What is shown was written by an agent or stands in a file. It must not steer a terminal, hide a part of itself, or
//! look like something else; and whatever is cut, its end stays in sight as well as its start.

mod confusable;

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::operation::Invocation;

pub use confusable::{Warning, confusables, foreign_letters};

/// So many marks may stand on one letter. More are escaped: they would be drawn over the lines above and below.
const MAX_MARKS: usize = 4;
/// The longest line of a [`Block`], in bytes.
pub const MAX_BLOCK_LINE: usize = 2000;
/// Room for what stands in place of text that was cut out.
const MARK_BYTES: usize = 40;

/// Says whether nobody sees the character, or sees others in another order for it.
#[must_use]
pub fn is_hidden(character: char) -> bool {
    matches!(character, '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}'
        | '\u{feff}' | '\u{e0000}'..='\u{e0fff}')
}

/// Returns `text` on one line of at most about `cap` bytes, unable to steer a terminal or to hide a part of itself.
///
/// Control characters, those that reorder text, those that nobody sees, and piles of marks are escaped, like
/// `\u{202e}`. Of longer text the start and the end are kept, and how many characters are left out is said between
/// them.
#[must_use]
pub fn line(text: &str, cap: usize) -> String {
    shown(text, cap, Tabs::Escaped)
}

/// Several lines, fit to be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The lines.
    pub text: String,
    /// How many lines were left out between the first and the last.
    pub cut: usize,
}

/// Returns `text` as at most `cap_lines` lines of together about `cap_bytes` bytes, made safe as by [`line()`]; tabs stay.
///
/// Of longer text the first and the last lines are kept, and of lines longer than [`MAX_BLOCK_LINE`] their start and
/// end.
#[must_use]
pub fn block(text: &str, cap_lines: usize, cap_bytes: usize) -> Block {
    let per_line = cap_bytes.min(MAX_BLOCK_LINE);
    let (body, end) = match text.strip_suffix('\n') {
        Some(body) => (body, "\n"),
        None => (text, ""),
    };
    let all = Room { lines: cap_lines, bytes: cap_bytes };
    let (lines, more) = all.fill(body.split('\n'), per_line);
    if !more {
        return Block { text: lines.join("\n") + end, cut: 0 };
    }
    let total = body.split('\n').count();
    let half = Room { lines: cap_lines.div_ceil(2), bytes: cap_bytes / 2 };
    let (mut lines, _) = half.fill(body.split('\n'), per_line);
    let rest = Room { lines: cap_lines / 2, bytes: cap_bytes / 2 };
    let (last, _) = rest.fill(body.split('\n').rev().take(total - lines.len()), per_line);
    let cut = total - lines.len() - last.len();
    if cut > 0 {
        lines.push(format!("…[{cut} more {}]…", if cut == 1 { "line" } else { "lines" }));
    }
    lines.extend(last.into_iter().rev());
    Block { text: lines.join("\n") + end, cut }
}

/// Returns a command as one text: a line for a shell as it is, a program with its arguments quoted as a shell would
/// need them.
#[must_use]
pub fn invocation(invocation: &Invocation) -> Cow<'_, str> {
    match invocation {
        Invocation::Shell(line) => line.as_str().into(),
        Invocation::Argv(words) => {
            let mut line = String::new();
            for word in words {
                if !line.is_empty() {
                    line.push(' ');
                }
                line.push_str(&quoted(word));
            }
            line.into()
        }
    }
}

/// Returns a command as a person types it: of a shell that does nothing but read a line, the line.
#[must_use]
pub fn typed(invocation: &Invocation) -> Cow<'_, str> {
    if let Invocation::Argv(words) = invocation
        && let [shell, flag, line] = words.as_slice()
        && flag == "-c"
        && matches!(shell.rsplit('/').next(), Some("sh" | "bash" | "dash" | "zsh"))
    {
        return line.as_str().into();
    }
    self::invocation(invocation)
}

/// More blanks than this in a row are told by their number, and so are more at the start of a line, and more empty lines.
const MAX_BLANKS: usize = 20;
const MAX_INDENT: usize = 60;
const MAX_EMPTY: usize = 8;

/// Returns `text` with every long run of blanks or empty lines as a mark that tells how many there are, like `␣×3000`:
/// what comes after it cannot be pushed out of sight.
#[must_use]
pub fn shortened(text: &str) -> Cow<'_, str> {
    let mut short = String::new();
    // Up to where the text is in `short`.
    let mut done = 0;
    let mut at = 0;
    while let Some(start) = text[at..].find(char::is_whitespace).map(|found| at + found) {
        let run = &text[start..];
        let run = &run[..run.find(|character: char| !character.is_whitespace()).unwrap_or(run.len())];
        at = start + run.len();
        let breaks = run.matches('\n').count();
        let blanks = run.chars().count() - breaks;
        let indented = if breaks > 0 { MAX_INDENT } else { MAX_BLANKS };
        if blanks <= indented && breaks <= MAX_EMPTY {
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

/// Returns `text` on one line, unable to steer a terminal, and cut to at most `limit` bytes, the ellipsis included.
/// Doing so again changes nothing.
pub(crate) fn clean(text: &str, limit: usize) -> String {
    let mut clean = String::new();
    let mut cut = 0;
    for character in text.chars() {
        if steers(character) {
            clean.extend(character.escape_default());
        } else {
            clean.push(character);
        }
        if clean.len() > limit {
            clean.truncate(cut);
            clean.push_str(ELLIPSIS);
            return clean;
        }
        // Where to cut, should a later character not fit: there is room for the ellipsis, and no escape is split.
        if clean.len() + ELLIPSIS.len() <= limit {
            cut = clean.len();
        }
    }
    clean
}

/// What stands at the end of a text that was cut.
pub(crate) const ELLIPSIS: &str = "…";

/// Returns whether the character makes a terminal or an editor show text in another order or on another line.
pub(crate) fn reorders(character: char) -> bool {
    matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn steers(character: char) -> bool {
    character.is_control() || reorders(character)
}

/// Returns whether nobody sees the character, or takes it for a blank.
fn hides(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2065}' | '\u{206a}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
        | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

fn is_mark(character: char) -> bool {
    matches!(character,
        '\u{300}'..='\u{36f}' | '\u{483}'..='\u{489}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}'
        | '\u{20d0}'..='\u{20ff}' | '\u{fe20}'..='\u{fe2f}')
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tabs {
    Kept,
    Escaped,
}

fn shown(text: &str, cap: usize, tabs: Tabs) -> String {
    let mut pieces = Pieces::new(text, tabs);
    let mut whole = String::new();
    loop {
        let Some((_, character, escaped)) = pieces.next() else { return whole };
        push(&mut whole, character, escaped);
        if whole.len() > cap {
            break;
        }
    }
    let half = cap.saturating_sub(MARK_BYTES) / 2;
    let mut head = String::new();
    let mut start = text.len();
    for (at, character, escaped) in Pieces::new(text, tabs) {
        let before = head.len();
        push(&mut head, character, escaped);
        if head.len() > half {
            head.truncate(before);
            start = at;
            break;
        }
    }
    // Whether a mark or a selector is escaped depends on what stands before it, so the end is read forwards, from
    // where it must begin at the latest: a character is at least one byte when it is shown.
    let from = text.floor_char_boundary(text.len().saturating_sub(half)).max(start);
    let tail: Vec<(usize, char, bool)> = Pieces::new(&text[from..], tabs)
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
    let left_out = text[start..end].chars().count();
    // Writing to a string cannot fail.
    _ = write!(head, "…[{left_out} more]…");
    tail[kept..].iter().for_each(|(_, character, escaped)| push(&mut head, *character, *escaped));
    head
}

fn push(to: &mut String, character: char, escaped: bool) {
    if escaped {
        to.extend(character.escape_default());
    } else {
        to.push(character);
    }
}

/// The characters of a text, each with its place and whether it is to be escaped.
struct Pieces<'a> {
    characters: std::str::CharIndices<'a>,
    tabs: Tabs,
    marks: usize,
    /// The last character, if it was shown as it is.
    base: Option<char>,
}

impl<'a> Pieces<'a> {
    fn new(text: &'a str, tabs: Tabs) -> Self {
        Self { characters: text.char_indices(), tabs, marks: 0, base: None }
    }
}

impl Iterator for Pieces<'_> {
    type Item = (usize, char, bool);

    fn next(&mut self) -> Option<Self::Item> {
        let (at, character) = self.characters.next()?;
        let escaped = match character {
            '\t' => self.tabs == Tabs::Escaped,
            // One selector chooses how a symbol looks. After a letter, or after another, it only carries hidden data.
            '\u{fe00}'..='\u{fe0f}' => self.base.is_none_or(|base| base < '\u{a9}' || base.is_alphabetic()),
            _ if is_mark(character) && !hides(character) => {
                self.marks += 1;
                self.base.is_none() || self.marks > MAX_MARKS
            }
            _ => steers(character) || hides(character),
        };
        if !is_mark(character) {
            self.marks = 0;
            let is_base = !escaped && !matches!(character, '\u{fe00}'..='\u{fe0f}');
            self.base = is_base.then_some(character);
        }
        Some((at, character, escaped))
    }
}

#[derive(Debug, Clone, Copy)]
struct Room {
    lines: usize,
    bytes: usize,
}

impl Room {
    /// Takes lines as long as there is room, and says whether there are more.
    fn fill<'a>(self, lines: impl Iterator<Item = &'a str>, per_line: usize) -> (Vec<String>, bool) {
        let mut taken = Vec::new();
        let mut bytes = 0;
        for line in lines {
            if taken.len() == self.lines {
                return (taken, true);
            }
            let line = shown(line, per_line, Tabs::Kept);
            bytes += line.len() + 1;
            if bytes > self.bytes && !taken.is_empty() {
                return (taken, true);
            }
            taken.push(line);
        }
        (taken, false)
    }
}

fn quoted(word: &str) -> Cow<'_, str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:=@%+,".contains(&byte) || byte >= 0x80;
    if !word.is_empty() && word.bytes().all(plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', r"'\''")).into()
}

#[cfg(test)]
mod tests;
