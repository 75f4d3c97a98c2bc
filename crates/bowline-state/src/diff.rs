//! The difference between two texts, by lines.
//!
//! A line is what [`crate::lines`] says, with its end: `a` and `a\n` differ, and so do `a\n` and `a\r\n`. Only the last
//! line of a text can be without an end, so no way of putting whole regions of two texts together glues two lines into
//! one.

use std::collections::BTreeSet;
use std::ops::Range;

use indexmap::IndexSet;
use similar::{Algorithm, DiffTag, capture_diff_slices};

pub use unified::{Body, FileDiff, Side, unified};

mod unified;

/// One region that differs, as large as it gets without taking in a line that both texts have there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hunk {
    /// Its lines in the old text, counted from 0; empty if lines were only added.
    pub old: Range<usize>,
    /// Its lines in the new text, counted from 0; empty if lines were only removed.
    pub new: Range<usize>,
}

/// Returns what differs, in order.
#[must_use]
pub fn hunks(old: &str, new: &str) -> Vec<Hunk> {
    hunks_of(&Lines::of(old), &Lines::of(new))
}

/// How many lines differ.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stat {
    /// Lines that only the new text has.
    pub added: usize,
    /// Lines that only the old text has.
    pub removed: usize,
}

/// Counts the lines that differ. A line that was changed is one removed and one added.
#[must_use]
pub fn stat(old: &str, new: &str) -> Stat {
    hunks(old, new).iter().fold(Stat::default(), |stat, hunk| Stat {
        added: stat.added + hunk.new.len(),
        removed: stat.removed + hunk.old.len(),
    })
}

/// A hunk was named that the difference does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is no hunk {asked}, they are counted from 0 and there are this many: {hunks}")]
pub struct NoSuchHunk {
    /// The hunk that was named.
    pub asked: usize,
    /// How many there are.
    pub hunks: usize,
}

/// Returns the new text with some of its [`hunks`], named by their places, as they are in the old one.
///
/// # Errors
/// Returns [`NoSuchHunk`] if one is named that is not there.
pub fn take_back(old: &str, new: &str, which: &[usize]) -> Result<String, NoSuchHunk> {
    let (old, new) = (Lines::of(old), Lines::of(new));
    let hunks = hunks_of(&old, &new);
    if let Some(&asked) = which.iter().find(|asked| **asked >= hunks.len()) {
        return Err(NoSuchHunk { asked, hunks: hunks.len() });
    }
    let mut text = String::new();
    let mut done = 0;
    for place in which.iter().copied().collect::<BTreeSet<usize>>() {
        let hunk = &hunks[place];
        text.push_str(new.slice(done..hunk.new.start));
        text.push_str(old.slice(hunk.old.clone()));
        done = hunk.new.end;
    }
    text.push_str(new.slice(done..new.len()));
    Ok(text)
}

/// The replacement of a part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// The bytes that are replaced, as the text is before any edit: from one character's start to another's.
    pub range: Range<usize>,
    /// What they are replaced with.
    pub text: String,
}

/// Returns the edits that turn the old text into the new one, in order, such that an open document keeps its cursors
/// and marks: one for each hunk, without the characters that stay at its start and end. No edit starts or ends between
/// `\r` and `\n`, where an editor has no position.
#[must_use]
pub fn edits(old: &str, new: &str) -> Vec<Edit> {
    let (old, new) = (Lines::of(old), Lines::of(new));
    let edit = |hunk: Hunk| {
        let (from, to) = (old.slice(hunk.old.clone()), new.slice(hunk.new));
        let prefix = common_prefix(from, to);
        let suffix = common_suffix(&from[prefix..], &to[prefix..]);
        let start = old.start(hunk.old.start);
        Edit {
            range: start + prefix..start + from.len() - suffix,
            text: to[prefix..to.len() - suffix].to_owned(),
        }
    };
    hunks_of(&old, &new).into_iter().map(edit).collect()
}

/// An edit is not for the text, or not in order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the edit of bytes {} to {} does not fit: edits go from start to end without overlap, and split no character",
    .0.start, .0.end
)]
pub struct DoesNotFit(pub Range<usize>);

/// Returns the text with some edits done.
///
/// # Errors
/// Returns [`DoesNotFit`] if an edit starts before another one's end that came first, or is not at the text's
/// characters.
pub fn apply(old: &str, edits: &[Edit]) -> Result<String, DoesNotFit> {
    let mut text = String::new();
    let mut done = 0;
    for edit in edits {
        let does_not_fit = || DoesNotFit(edit.range.clone());
        text.push_str(old.get(done..edit.range.start).ok_or_else(does_not_fit)?);
        old.get(edit.range.clone()).ok_or_else(does_not_fit)?;
        text.push_str(&edit.text);
        done = edit.range.end;
    }
    text.push_str(&old[done..]);
    Ok(text)
}

/// Returns what differs between texts that are cut into lines.
///
/// This is Myers' search with limits that depend on the texts alone, never on a clock: the same texts always differ in
/// the same way, and texts that have little in common take no longer than others of their size.
pub(crate) fn hunks_of(old: &Lines<'_>, new: &Lines<'_>) -> Vec<Hunk> {
    // The search compares lines again and again; numbers make that independent of their lengths.
    let mut known = IndexSet::new();
    let old: Vec<usize> = old.iter().map(|line| known.insert_full(line).0).collect();
    let new: Vec<usize> = new.iter().map(|line| known.insert_full(line).0).collect();
    let mut hunks: Vec<Hunk> = Vec::new();
    for op in capture_diff_slices(Algorithm::Myers, &old, &new) {
        let (old, new) = (op.old_range(), op.new_range());
        match hunks.last_mut() {
            _ if op.tag() == DiffTag::Equal => {}
            Some(last) if last.old.end == old.start && last.new.end == new.start => {
                (last.old.end, last.new.end) = (old.end, new.end);
            }
            _ => hunks.push(Hunk { old, new }),
        }
    }
    hunks
}

/// A text cut into lines.
pub(crate) struct Lines<'a> {
    text: &'a str,
    // Where each line ends, the last one at the text's end.
    ends: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub(crate) fn of(text: &'a str) -> Self {
        let mut ends: Vec<usize> = memchr::memchr_iter(b'\n', text.as_bytes()).map(|at| at + 1).collect();
        if ends.last().copied().unwrap_or(0) < text.len() {
            ends.push(text.len());
        }
        Self { text, ends }
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns where a line starts: at the text's end for one past the last.
    fn start(&self, line: usize) -> usize {
        line.checked_sub(1).map_or(0, |before| self.ends[before])
    }

    /// Returns the text of some lines, which must be there.
    pub(crate) fn slice(&self, lines: Range<usize>) -> &'a str {
        &self.text[self.start(lines.start)..self.start(lines.end)]
    }

    fn iter(&self) -> impl Iterator<Item = &'a str> {
        (0..self.len()).map(|line| self.slice(line..line + 1))
    }
}

/// Returns how many bytes of whole characters two texts start with in common. It does not split `\r\n`.
fn common_prefix(one: &str, other: &str) -> usize {
    let common = one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count();
    let prefix = one.floor_char_boundary(common);
    let splits = |text: &str| text[..prefix].ends_with('\r') && text[prefix..].starts_with('\n');
    if splits(one) || splits(other) { prefix - 1 } else { prefix }
}

/// Returns how many bytes of whole characters two texts end with in common. It does not split `\r\n`.
fn common_suffix(one: &str, other: &str) -> usize {
    let common = one.bytes().rev().zip(other.bytes().rev()).take_while(|(one, other)| one == other).count();
    let suffix = one.len() - one.ceil_char_boundary(one.len() - common);
    let splits = |text: &str| {
        let (rest, end) = text.split_at(text.len() - suffix);
        rest.ends_with('\r') && end.starts_with('\n')
    };
    if splits(one) || splits(other) { suffix - 1 } else { suffix }
}

#[cfg(test)]
mod tests;
