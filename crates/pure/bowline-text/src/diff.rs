//! The line-based difference between two texts.
//!
//! Lines are those of [`crate::lines`], with their terminators: `a` and `a\n` differ, and so do `a\n` and `a\r\n`. Only
//! the last line of a text can lack a terminator, so combining whole regions of two texts never joins two lines.

use std::collections::BTreeSet;
use std::ops::Range;

use indexmap::IndexSet;
use similar::DiffTag;
use similar::algorithms::{Capture, Compact, Replace, myers};

pub use unified::{DiffContent, DiffSide, FileDiff, format_unified_diff, format_unified_diff_from};

mod unified;

/// One maximal region that differs, without any line common to both texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hunk {
    /// Its lines in the old text, counted from 0; empty if lines were only added.
    pub old: Range<usize>,
    /// Its lines in the new text, counted from 0; empty if lines were only removed.
    pub new: Range<usize>,
}

/// Returns the differing regions, in order.
#[must_use]
pub fn compute_hunks(old: &str, new: &str) -> Vec<Hunk> {
    compute_line_hunks(&TextLines::new(old), &TextLines::new(new))
}

/// The number of lines that differ.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiffStat {
    /// Lines that only the new text has.
    pub added: usize,
    /// Lines that only the old text has.
    pub removed: usize,
}

/// Counts the lines that differ. A changed line counts as one removed and one added.
#[must_use]
pub fn compute_stat(old: &str, new: &str) -> DiffStat {
    compute_hunks(old, new).iter().fold(DiffStat::default(), |stat, hunk| DiffStat {
        added: stat.added + hunk.new.len(),
        removed: stat.removed + hunk.old.len(),
    })
}

/// The requested hunk does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no hunk {index}: the change has {count}, numbered from 0")]
pub struct NoSuchHunkError {
    /// The requested hunk.
    pub index: usize,
    /// The number of hunks.
    pub count: usize,
}

/// Returns the new text with the given hunks (indices into [`compute_hunks`]) reverted to the old text.
///
/// # Errors
/// Returns [`NoSuchHunkError`] if an index is out of range.
pub fn revert_hunks(old: &str, new: &str, indices: &[usize]) -> Result<String, NoSuchHunkError> {
    let (old, new) = (TextLines::new(old), TextLines::new(new));
    let hunks = compute_line_hunks(&old, &new);
    if let Some(&index) = indices.iter().find(|index| **index >= hunks.len()) {
        return Err(NoSuchHunkError { index, count: hunks.len() });
    }
    let mut text = String::new();
    let mut done = 0;
    for index in indices.iter().copied().collect::<BTreeSet<usize>>() {
        let hunk = &hunks[index];
        text.push_str(new.slice(done..hunk.new.start));
        text.push_str(old.slice(hunk.old.clone()));
        done = hunk.new.end;
    }
    text.push_str(new.slice(done..new.len()));
    Ok(text)
}

/// The replacement of a part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextEdit {
    /// The replaced bytes, as offsets into the original text on character boundaries.
    pub range: Range<usize>,
    /// The replacement.
    pub text: String,
}

/// Returns the edits that turn the old text into the new one, in order: one per hunk, without the unchanged characters
/// at its start and end, so that an open document keeps its cursors and marks. No edit starts or ends between `\r` and
/// `\n`, where an editor has no position.
#[must_use]
pub fn compute_edits(old: &str, new: &str) -> Vec<TextEdit> {
    let (old, new) = (TextLines::new(old), TextLines::new(new));
    let edit = |hunk: Hunk| {
        let (from, to) = (old.slice(hunk.old.clone()), new.slice(hunk.new));
        let prefix = common_prefix(from, to);
        let suffix = common_suffix(&from[prefix..], &to[prefix..]);
        let start = old.line_start(hunk.old.start);
        TextEdit {
            range: start + prefix..start + from.len() - suffix,
            text: to[prefix..to.len() - suffix].to_owned(),
        }
    };
    compute_line_hunks(&old, &new).into_iter().map(edit).collect()
}

/// An edit is out of range or out of order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the edit of bytes {} to {} does not fit: edits go from start to end without overlap, and split no character",
    .0.start, .0.end
)]
pub struct EditRangeError(pub Range<usize>);

/// Applies edits to a text.
///
/// # Errors
/// Returns [`EditRangeError`] if an edit starts before the end of the previous one, or is not on character boundaries.
pub fn apply_edits(old: &str, edits: &[TextEdit]) -> Result<String, EditRangeError> {
    let mut text = String::new();
    let mut done = 0;
    for edit in edits {
        let does_not_fit = || EditRangeError(edit.range.clone());
        text.push_str(old.get(done..edit.range.start).ok_or_else(does_not_fit)?);
        old.get(edit.range.clone()).ok_or_else(does_not_fit)?;
        text.push_str(&edit.text);
        done = edit.range.end;
    }
    text.push_str(&old[done..]);
    Ok(text)
}

/// Returns the differences between two texts that are split into lines.
pub(crate) fn compute_line_hunks(old: &TextLines<'_>, new: &TextLines<'_>) -> Vec<Hunk> {
    compute_sequence_hunks(old.iter(), new.iter())
}

/// Returns the differing regions of two sequences of lines or words, in order.
///
/// Uses Myers' algorithm with limits that depend only on the texts, never on a clock: the result is deterministic, and
/// texts with little in common take no longer than others of their size.
pub fn compute_sequence_hunks<'a>(
    old: impl Iterator<Item = &'a str>,
    new: impl Iterator<Item = &'a str>,
) -> Vec<Hunk> {
    // The search compares texts repeatedly; interned ids make each comparison independent of their length.
    let mut known = IndexSet::new();
    let old: Vec<usize> = old.map(|text| known.insert_full(text).0).collect();
    let new: Vec<usize> = new.map(|text| known.insert_full(text).0).collect();
    compute_id_hunks(&old, &new)
}

fn compute_id_hunks(old: &[usize], new: &[usize]) -> Vec<Hunk> {
    // As `similar::capture_diff_slices` does, but without its other algorithms, which take a while to compile.
    let mut compact = Compact::new(Replace::new(Capture::new()), old, new);
    let Ok(()) = myers::diff(&mut compact, old, 0..old.len(), new, 0..new.len());
    let mut hunks: Vec<Hunk> = Vec::new();
    for op in compact.into_inner().into_inner().into_ops() {
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

/// A text split into lines.
pub(crate) struct TextLines<'a> {
    text: &'a str,
    // The end of each line; the last is the end of the text.
    ends: Vec<usize>,
}

impl<'a> TextLines<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let mut ends: Vec<usize> = memchr::memchr_iter(b'\n', text.as_bytes()).map(|at| at + 1).collect();
        if ends.last().copied().unwrap_or(0) < text.len() {
            ends.push(text.len());
        }
        Self { text, ends }
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the start of a line; for the line past the last, the end of the text.
    fn line_start(&self, line: usize) -> usize {
        line.checked_sub(1).map_or(0, |before| self.ends[before])
    }

    /// Returns the text of a range of lines, which must exist.
    pub(crate) fn slice(&self, lines: Range<usize>) -> &'a str {
        &self.text[self.line_start(lines.start)..self.line_start(lines.end)]
    }

    fn iter(&self) -> impl Iterator<Item = &'a str> {
        (0..self.len()).map(|line| self.slice(line..line + 1))
    }
}

/// Returns the length of the common prefix in bytes, in whole characters. It does not split `\r\n`.
fn common_prefix(left: &str, right: &str) -> usize {
    let common = left.bytes().zip(right.bytes()).take_while(|(left, right)| left == right).count();
    let prefix = left.floor_char_boundary(common);
    let splits = |text: &str| text[..prefix].ends_with('\r') && text[prefix..].starts_with('\n');
    if splits(left) || splits(right) { prefix - 1 } else { prefix }
}

/// Returns the length of the common suffix in bytes, in whole characters. It does not split `\r\n`.
fn common_suffix(left: &str, right: &str) -> usize {
    let common =
        left.bytes().rev().zip(right.bytes().rev()).take_while(|(left, right)| left == right).count();
    let suffix = left.len() - left.ceil_char_boundary(left.len() - common);
    let splits = |text: &str| {
        let (rest, end) = text.split_at(text.len() - suffix);
        rest.ends_with('\r') && end.starts_with('\n')
    };
    if splits(left) || splits(right) { suffix - 1 } else { suffix }
}

#[cfg(test)]
mod tests;
