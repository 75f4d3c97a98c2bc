//! Line endings: a written text takes those of the text that it replaces.
//!
//! An agent reads a file whose lines end in `\r\n` and writes lines that end in `\n`. The ending of a line is its
//! `\n` with all directly preceding `\r`, so that `\r\r\n`, which a careless conversion leaves behind, is one ending
//! as well. Any other `\r` is an ordinary character.

use std::borrow::Cow;

use memchr::{memchr, memchr_iter};

use crate::diff::compute_sequence_hunks;

const LF: &str = "\n";
const CRLF: &str = "\r\n";
const BOM: char = '\u{feff}';

/// Returns `new` with the line endings of `old`, the text that it replaces.
///
/// A line that is also in `old` keeps its ending there, so that untouched lines keep theirs even where they are
/// mixed. A line that replaces another takes the kind of that line's ending. Other lines take the ending of the
/// closest preceding line that is also in `old`, else of the first such line after them, else the most common ending
/// of `old`. Whether the last line has an ending is up to `new`.
///
/// A U+FEFF at the start of `new` that `old` lacks is dropped, because the byte order mark belongs to the file as
/// well. If `old` has no line ending, those of `new` are kept; if `old` is empty, all of `new` is kept.
#[must_use]
pub fn fit_line_endings<'a>(new: &'a str, old: &str) -> Cow<'a, str> {
    if old.is_empty() {
        return Cow::Borrowed(new);
    }
    let new = if old.starts_with(BOM) { new } else { new.strip_prefix(BOM).unwrap_or(new) };
    match LineEndings::detect(old) {
        LineEndings::None => Cow::Borrowed(new),
        LineEndings::Uniform(ending) => with_uniform_endings(new, ending),
        LineEndings::Mixed => Cow::Owned(with_endings_of(new, old)),
    }
}

enum LineEndings {
    None,
    Uniform(&'static str),
    Mixed,
}

impl LineEndings {
    fn detect(text: &str) -> Self {
        let bytes = text.as_bytes();
        if memchr(b'\r', bytes).is_none() {
            return if memchr(b'\n', bytes).is_none() { Self::None } else { Self::Uniform(LF) };
        }
        let mut all = None;
        for line in split_lines(text) {
            match (line.ending, all) {
                ("", _) => {}
                (LF, None) => all = Some(LF),
                (CRLF, None) => all = Some(CRLF),
                (ending, Some(all)) if ending == all => {}
                _ => return Self::Mixed,
            }
        }
        all.map_or(Self::None, Self::Uniform)
    }
}

#[derive(Clone, Copy)]
struct EndedLine<'a> {
    content: &'a str,
    // Invariant: empty, or any number of `\r` and a `\n`.
    ending: &'a str,
}

impl EndedLine<'_> {
    /// Returns the ending for a line that follows this one. It is not copied verbatim, because it may be very long.
    fn ending_kind(&self) -> Option<&'static str> {
        match self.ending {
            "" => None,
            LF => Some(LF),
            _ => Some(CRLF),
        }
    }
}

fn split_lines(text: &str) -> impl Iterator<Item = EndedLine<'_>> {
    let mut start = 0;
    let ended = memchr_iter(b'\n', text.as_bytes()).map(move |at| {
        let content = text[start..at].trim_end_matches('\r');
        let line = EndedLine { content, ending: &text[start + content.len()..=at] };
        start = at + 1;
        line
    });
    let last = &text[text.rfind('\n').map_or(0, |at| at + 1)..];
    ended.chain((!last.is_empty()).then_some(EndedLine { content: last, ending: "" }))
}

fn with_uniform_endings<'a>(text: &'a str, ending: &str) -> Cow<'a, str> {
    // Without this check, the common case of a file with only `\n` would examine every line.
    let none_to_change = ending == LF && memchr(b'\r', text.as_bytes()).is_none();
    if none_to_change || split_lines(text).all(|line| line.ending.is_empty() || line.ending == ending) {
        return Cow::Borrowed(text);
    }
    let mut fitted = String::with_capacity(text.len() + text.len() / 16);
    for line in split_lines(text) {
        fitted.push_str(line.content);
        fitted.push_str(if line.ending.is_empty() { "" } else { ending });
    }
    Cow::Owned(fitted)
}

fn with_endings_of(new: &str, old: &str) -> String {
    let new_lines: Vec<EndedLine<'_>> = split_lines(new).collect();
    let old_lines: Vec<EndedLine<'_>> = split_lines(old).collect();
    let partners = pair_lines(&new_lines, &old_lines);
    let same_ending = |partner: &LinePartner| match partner {
        LinePartner::Same(at) => old_lines[*at].ending_kind(),
        LinePartner::Replaced(_) | LinePartner::None => None,
    };
    let mut nearest = partners.iter().find_map(same_ending).unwrap_or_else(|| most_common_ending(&old_lines));
    let mut fitted = String::with_capacity(new.len() + new_lines.len());
    for (line, partner) in new_lines.iter().zip(&partners) {
        nearest = same_ending(partner).unwrap_or(nearest);
        fitted.push_str(line.content);
        if line.ending.is_empty() {
            continue;
        }
        fitted.push_str(match partner {
            LinePartner::Same(at) if !old_lines[*at].ending.is_empty() => old_lines[*at].ending,
            LinePartner::Replaced(at) => old_lines[*at].ending_kind().unwrap_or(nearest),
            LinePartner::Same(_) | LinePartner::None => nearest,
        });
    }
    fitted
}

/// The line of the old text that corresponds to a new line, by its index.
#[derive(Clone, Copy)]
enum LinePartner {
    Same(usize),
    Replaced(usize),
    None,
}

/// Returns the partner of each new line. If as many new lines replace as many old ones, they do so one by one.
fn pair_lines(new: &[EndedLine<'_>], old: &[EndedLine<'_>]) -> Vec<LinePartner> {
    let mut partners = Vec::with_capacity(new.len());
    let mut old_end = 0;
    for hunk in compute_sequence_hunks(line_contents(old), line_contents(new)) {
        partners.extend((old_end..hunk.old.start).map(LinePartner::Same));
        if hunk.old.len() == hunk.new.len() {
            partners.extend(hunk.old.clone().map(LinePartner::Replaced));
        } else {
            partners.extend(hunk.new.map(|_| LinePartner::None));
        }
        old_end = hunk.old.end;
    }
    partners.extend((old_end..old.len()).map(LinePartner::Same));
    partners
}

fn line_contents<'a>(lines: &[EndedLine<'a>]) -> impl Iterator<Item = &'a str> {
    lines.iter().map(|line| line.content)
}

/// Returns the most common kind of ending.
fn most_common_ending(lines: &[EndedLine<'_>]) -> &'static str {
    let crlf = lines.iter().filter(|line| line.ending_kind() == Some(CRLF)).count();
    let lf = lines.iter().filter(|line| line.ending_kind() == Some(LF)).count();
    if crlf > lf { CRLF } else { LF }
}

#[cfg(test)]
mod tests;
