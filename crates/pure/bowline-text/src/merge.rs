//! Three-way line merges: two versions of a base text combined into one, or the regions where they conflict.
//!
//! Changes are separate if at least one line that neither side touched lies between them. Where changes of the two
//! sides overlap or touch (including two insertions at the same place, or a changed line next to a removed one), they
//! are either equal or a conflict: nothing is guessed. Lines are compared with their terminators, so terminating the
//! last line counts as a change of that line, and two lines are never joined.

use crate::diff::{Hunk, TextLines, compute_line_hunks};

/// The maximum number of hunks that a [`MergeConflict`] lists.
pub const MAX_CONFLICT_HUNKS: usize = 16;

/// The maximum length in bytes of each text in a [`ConflictHunk`]; a longer one is truncated and ends in an ellipsis,
/// which counts.
pub const MAX_HUNK_TEXT_BYTES: usize = 4096;

/// Both sides changed the same region differently.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("conflicting changes in {total} {}, first at line {}", region_noun(.total), first_line(.hunks))]
pub struct MergeConflict {
    /// The first conflicting regions, at most [`MAX_CONFLICT_HUNKS`].
    pub hunks: Vec<ConflictHunk>,
    /// The number of conflicting regions.
    pub total: usize,
}

/// One region that both sides changed, with its three texts, each of at most [`MAX_HUNK_TEXT_BYTES`] bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConflictHunk {
    /// Its first line in `ours`, counted from 1; one past the last line if it is empty and at the end.
    pub line: u64,
    /// The original text.
    pub base: String,
    /// Our version.
    pub ours: String,
    /// Their version.
    pub theirs: String,
}

/// Merges the changes that `ours` and `theirs` made to `base`.
///
/// A region that only one side changed is taken from that side; unchanged regions stay. Swapping the sides affects
/// neither the success of the merge nor its text.
///
/// # Errors
/// Returns [`MergeConflict`] if both sides changed the same or adjacent regions differently.
pub fn merge(base: &str, ours: &str, theirs: &str) -> Result<String, MergeConflict> {
    let mut conflict = MergeConflict { hunks: Vec::new(), total: 0 };
    let merged = merge_with_resolver(base, ours, theirs, &mut |region| {
        conflict.add_region(region);
        String::new()
    });
    if conflict.total > 0 { Err(conflict) } else { Ok(merged) }
}

/// A region that both sides changed differently, with its three full texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConflictRegion<'a> {
    /// Its first line in `ours`, counted from 0.
    pub line: usize,
    /// The original text.
    pub base: &'a str,
    /// Our version.
    pub ours: &'a str,
    /// Their version.
    pub theirs: &'a str,
}

/// Merges the changes that `ours` and `theirs` made to `base`; `resolve` supplies the text of each conflicting region.
pub fn merge_with_resolver(
    base: &str,
    ours: &str,
    theirs: &str,
    resolve: &mut dyn FnMut(ConflictRegion<'_>) -> String,
) -> String {
    if ours == base || theirs == base || ours == theirs {
        return if ours == base { theirs } else { ours }.to_owned();
    }
    let base = TextLines::new(base);
    let mut ours = MergeSide::new(&base, ours);
    let mut theirs = MergeSide::new(&base, theirs);
    let mut merged = String::new();
    let mut done = 0;
    while let Some(start) = ours.next_start().into_iter().chain(theirs.next_start()).min() {
        let mut end = start;
        let (ours_start, theirs_start) = (ours.map_base_line(start), theirs.map_base_line(start));
        while ours.take_touching_hunk(&mut end) || theirs.take_touching_hunk(&mut end) {}
        let in_base = base.slice(start..end);
        let in_ours = ours.lines.slice(ours_start..ours.map_base_line(end));
        let in_theirs = theirs.lines.slice(theirs_start..theirs.map_base_line(end));
        merged.push_str(base.slice(done..start));
        done = end;
        if in_ours == in_theirs || in_theirs == in_base {
            merged.push_str(in_ours);
        } else if in_ours == in_base {
            merged.push_str(in_theirs);
        } else {
            let region = ConflictRegion { line: ours_start, base: in_base, ours: in_ours, theirs: in_theirs };
            merged.push_str(&resolve(region));
        }
    }
    merged.push_str(base.slice(done..base.len()));
    merged
}

impl MergeConflict {
    fn add_region(&mut self, region: ConflictRegion<'_>) {
        let ConflictRegion { line, base, ours, theirs } = region;
        self.total += 1;
        if self.hunks.len() < MAX_CONFLICT_HUNKS {
            let line = line as u64 + 1;
            self.hunks.push(ConflictHunk {
                line,
                base: truncate(base),
                ours: truncate(ours),
                theirs: truncate(theirs),
            });
        }
    }
}

/// One side of a merge, and its progress.
struct MergeSide<'a> {
    lines: TextLines<'a>,
    hunks: std::vec::IntoIter<Hunk>,
    // The end of the last taken hunk: from here to the next hunk, both texts are equal.
    base_line: usize,
    line: usize,
}

impl<'a> MergeSide<'a> {
    fn new(base: &TextLines<'_>, text: &'a str) -> Self {
        let lines = TextLines::new(text);
        let hunks = compute_line_hunks(base, &lines).into_iter();
        Self { lines, hunks, base_line: 0, line: 0 }
    }

    /// Returns the base line at which the next change starts.
    fn next_start(&self) -> Option<usize> {
        self.hunks.as_slice().first().map(|hunk| hunk.old.start)
    }

    /// Maps a line of the base to this side. Every change before it must have been taken, and it must lie in none.
    fn map_base_line(&self, base: usize) -> usize {
        self.line + (base - self.base_line)
    }

    /// Takes the next change if it starts no later than `end`, and extends `end` to the end of that change. Returns
    /// whether it took one.
    fn take_touching_hunk(&mut self, end: &mut usize) -> bool {
        let Some(hunk) = self.hunks.as_slice().first().filter(|hunk| hunk.old.start <= *end) else {
            return false;
        };
        *end = hunk.old.end.max(*end);
        (self.base_line, self.line) = (hunk.old.end, hunk.new.end);
        self.hunks.next();
        true
    }
}

fn truncate(text: &str) -> String {
    const ELLIPSIS: &str = "…";
    if text.len() <= MAX_HUNK_TEXT_BYTES {
        return text.to_owned();
    }
    let kept = &text[..text.floor_char_boundary(MAX_HUNK_TEXT_BYTES - ELLIPSIS.len())];
    [kept, ELLIPSIS].concat()
}

fn region_noun(total: &usize) -> &'static str {
    if *total == 1 { "place" } else { "places" }
}

fn first_line(hunks: &[ConflictHunk]) -> u64 {
    hunks.first().map_or(0, |hunk| hunk.line)
}

#[cfg(test)]
mod tests;
