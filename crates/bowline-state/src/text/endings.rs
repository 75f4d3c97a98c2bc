//! Line endings belong to the file: a text that is written takes those of the text that was there.
//!
//! An agent reads a file that ends its lines with `\r\n` and writes lines that end in `\n`. The ending of a line is
//! here its `\n` with all `\r` that come directly before it, so that `\r\r\n`, which a careless conversion leaves
//! behind, is one ending as well. Any other `\r` is an ordinary character.

use std::borrow::Cow;
use std::convert::Infallible;

use memchr::{memchr, memchr_iter};
use similar::Algorithm;
use similar::algorithms::{DiffHook, diff_slices};

const LF: &str = "\n";
const CRLF: &str = "\r\n";
const BOM: char = '\u{feff}';

/// Returns `new` with the line endings of `old`, the text of the file that it is to replace.
///
/// A line that `old` has too takes the ending it has there, so that untouched lines keep theirs even where they are
/// mixed. A line that replaces another one takes the kind of that one's ending, other lines that of the closest line
/// before them that `old` has too, else of the first one after them, else the kind that most lines of `old` have.
/// Whether the last line has an ending is up to `new`.
///
/// A U+FEFF that `new` starts with and `old` does not is dropped: the byte order mark belongs to the file as well. If
/// `old` has no line ending, those of `new` are taken as they are, and if it is empty, all of `new`.
#[must_use]
pub fn fit<'a>(new: &'a str, old: &str) -> Cow<'a, str> {
    if old.is_empty() {
        return Cow::Borrowed(new);
    }
    let new = if old.starts_with(BOM) { new } else { new.strip_prefix(BOM).unwrap_or(new) };
    match Endings::of(old) {
        Endings::None => Cow::Borrowed(new),
        Endings::All(ending) => with_all(new, ending),
        Endings::Mixed => Cow::Owned(with_those_of(new, old)),
    }
}

enum Endings {
    None,
    All(&'static str),
    Mixed,
}

impl Endings {
    fn of(text: &str) -> Self {
        let bytes = text.as_bytes();
        if memchr(b'\r', bytes).is_none() {
            return if memchr(b'\n', bytes).is_none() { Self::None } else { Self::All(LF) };
        }
        let mut all = None;
        for line in lines(text) {
            match (line.ending, all) {
                ("", _) => {}
                (LF, None) => all = Some(LF),
                (CRLF, None) => all = Some(CRLF),
                (ending, Some(all)) if ending == all => {}
                _ => return Self::Mixed,
            }
        }
        all.map_or(Self::None, Self::All)
    }
}

#[derive(Clone, Copy)]
struct Line<'a> {
    content: &'a str,
    // Invariant: nothing, or any number of `\r` and a `\n`.
    ending: &'a str,
}

impl Line<'_> {
    /// Returns the ending that a line takes after this one. It is not copied as it is, because it may be very long.
    fn kind(&self) -> Option<&'static str> {
        match self.ending {
            "" => None,
            LF => Some(LF),
            _ => Some(CRLF),
        }
    }
}

fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    let mut start = 0;
    let ended = memchr_iter(b'\n', text.as_bytes()).map(move |at| {
        let content = text[start..at].trim_end_matches('\r');
        let line = Line { content, ending: &text[start + content.len()..=at] };
        start = at + 1;
        line
    });
    let last = &text[text.rfind('\n').map_or(0, |at| at + 1)..];
    ended.chain((!last.is_empty()).then_some(Line { content: last, ending: "" }))
}

fn with_all<'a>(text: &'a str, ending: &str) -> Cow<'a, str> {
    // Without this, the common case of a file with `\n` alone would look at every line.
    let none_to_change = ending == LF && memchr(b'\r', text.as_bytes()).is_none();
    if none_to_change || lines(text).all(|line| line.ending.is_empty() || line.ending == ending) {
        return Cow::Borrowed(text);
    }
    let mut fitted = String::with_capacity(text.len() + text.len() / 16);
    for line in lines(text) {
        fitted.push_str(line.content);
        fitted.push_str(if line.ending.is_empty() { "" } else { ending });
    }
    Cow::Owned(fitted)
}

fn with_those_of(new: &str, old: &str) -> String {
    let new_lines: Vec<Line<'_>> = lines(new).collect();
    let old_lines: Vec<Line<'_>> = lines(old).collect();
    let partners = partners(&new_lines, &old_lines);
    let same_ending = |partner: &Partner| match partner {
        Partner::Same(at) => old_lines[*at].kind(),
        Partner::Replaced(_) | Partner::None => None,
    };
    let mut nearest = partners.iter().find_map(same_ending).unwrap_or_else(|| usual(&old_lines));
    let mut fitted = String::with_capacity(new.len() + new_lines.len());
    for (line, partner) in new_lines.iter().zip(&partners) {
        nearest = same_ending(partner).unwrap_or(nearest);
        fitted.push_str(line.content);
        if line.ending.is_empty() {
            continue;
        }
        fitted.push_str(match partner {
            Partner::Same(at) if !old_lines[*at].ending.is_empty() => old_lines[*at].ending,
            Partner::Replaced(at) => old_lines[*at].kind().unwrap_or(nearest),
            Partner::Same(_) | Partner::None => nearest,
        });
    }
    fitted
}

/// What a line of the new text was in the old one, by its place there.
#[derive(Clone, Copy)]
enum Partner {
    Same(usize),
    Replaced(usize),
    None,
}

/// Returns the partner of each new line.
fn partners(new: &[Line<'_>], old: &[Line<'_>]) -> Vec<Partner> {
    let mut pairing = Pairing { partners: Vec::with_capacity(new.len()), old_end: 0 };
    let Ok(()) = diff_slices(Algorithm::Myers, &mut pairing, &contents(old), &contents(new));
    pairing.pass_to(old.len(), new.len());
    pairing.partners
}

fn contents<'a>(lines: &[Line<'a>]) -> Vec<&'a str> {
    lines.iter().map(|line| line.content).collect()
}

/// Pairs lines while a diff finds those that are the same.
struct Pairing {
    // Invariant: one for each line of the new text that was passed.
    partners: Vec<Partner>,
    old_end: usize,
}

impl Pairing {
    /// Passes lines that differ. As many new ones as old ones have replaced them one by one.
    fn pass_to(&mut self, old: usize, new: usize) {
        let added = new.saturating_sub(self.partners.len());
        let one_by_one = added == old.saturating_sub(self.old_end);
        let start = self.old_end;
        self.partners.extend(
            (0..added).map(|nth| if one_by_one { Partner::Replaced(start + nth) } else { Partner::None }),
        );
        self.old_end = old;
    }
}

impl DiffHook for Pairing {
    type Error = Infallible;

    fn equal(&mut self, old: usize, new: usize, len: usize) -> Result<(), Infallible> {
        self.pass_to(old, new);
        self.partners.extend((old..old + len).map(Partner::Same));
        self.old_end = old + len;
        Ok(())
    }
}

/// Returns the kind of ending that most lines have.
fn usual(lines: &[Line<'_>]) -> &'static str {
    let crlf = lines.iter().filter(|line| line.kind() == Some(CRLF)).count();
    let lf = lines.iter().filter(|line| line.kind() == Some(LF)).count();
    if crlf > lf { CRLF } else { LF }
}

#[cfg(test)]
mod tests;
