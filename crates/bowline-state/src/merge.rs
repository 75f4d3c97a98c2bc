//! Three-way merges by lines: what two people made of one text, in one text, or the places where that cannot be.
//!
//! Changes are kept apart by at least one line that neither side touched. Where the two sides' changes overlap or touch
//! (also two insertions at one place, or a changed line next to a removed one), they are either equal, or a conflict:
//! nothing is guessed. Lines are compared with their ends, so giving the last line an end is a change of that line, and
//! no two lines are ever glued into one.

use crate::diff::{Hunk, Lines, hunks_of};

/// The most hunks that a [`Conflict`] lists.
pub const MAX_HUNKS: usize = 16;

/// The longest text, in bytes, that a [`ConflictHunk`] carries of each side; what is longer is cut, and an ellipsis,
/// which counts, tells of it.
pub const MAX_HUNK_TEXT: usize = 4096;

/// A text with the changes of both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    /// The text.
    pub text: String,
    /// Whether a change in it is from `ours` alone. If not, the text is `theirs`.
    pub took_ours: bool,
    /// Whether a change in it is from `theirs` alone. If not, the text is `ours`.
    pub took_theirs: bool,
}

/// Both sides changed the same place, each in its own way.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("conflicting changes in {total} {}, first at line {}", places(.total), first_line(.hunks))]
pub struct Conflict {
    /// The first of the places, [`MAX_HUNKS`] at most.
    pub hunks: Vec<ConflictHunk>,
    /// How many places there are.
    pub total: usize,
}

/// One place that both sides changed, with its text in all three, each of [`MAX_HUNK_TEXT`] bytes at most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConflictHunk {
    /// Where it starts in `ours`, counted from 1; one past the last line if it is at the end and empty.
    pub line: u64,
    /// What was there.
    pub base: String,
    /// What one side made of it.
    pub ours: String,
    /// What the other side made of it.
    pub theirs: String,
}

/// Merges what `ours` and `theirs` made of `base`.
///
/// Whatever only one side changed is in the result as that side has it, and whatever neither side changed as it was.
/// Which side is `ours` makes no difference to whether the merge succeeds, nor to its text.
///
/// # Errors
/// Returns [`Conflict`] if both sides changed a place, or places that touch, and not in the same way.
pub fn merge(base: &str, ours: &str, theirs: &str) -> Result<Merged, Conflict> {
    let mut conflict = Conflict { hunks: Vec::new(), total: 0 };
    let merged = merge_resolving(base, ours, theirs, &mut |place| {
        conflict.add(place);
        String::new()
    });
    if conflict.total > 0 { Err(conflict) } else { Ok(merged) }
}

/// A place that both sides changed, each in its own way, with the whole of its text in all three.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConflictPlace<'a> {
    /// The line at which it starts in `ours`, counted from 0.
    pub line: usize,
    /// What was there.
    pub base: &'a str,
    /// What one side made of it.
    pub ours: &'a str,
    /// What the other side made of it.
    pub theirs: &'a str,
}

/// Merges what `ours` and `theirs` made of `base`, with a text of the caller's in each place where both changed it, and not
/// in the same way.
pub fn merge_resolving(
    base: &str,
    ours: &str,
    theirs: &str,
    resolve: &mut dyn FnMut(ConflictPlace<'_>) -> String,
) -> Merged {
    if ours == base || theirs == base || ours == theirs {
        let text = if ours == base { theirs } else { ours };
        let alone = |side: &str| side != base && ours != theirs;
        return Merged { text: text.to_owned(), took_ours: alone(ours), took_theirs: alone(theirs) };
    }
    let base = Lines::of(base);
    let mut ours = Side::new(&base, ours);
    let mut theirs = Side::new(&base, theirs);
    let mut merged = Merged { text: String::new(), took_ours: false, took_theirs: false };
    let mut done = 0;
    while let Some(start) = ours.next_start().into_iter().chain(theirs.next_start()).min() {
        let mut end = start;
        let (ours_start, theirs_start) = (ours.line_at(start), theirs.line_at(start));
        while ours.take_touching(&mut end) || theirs.take_touching(&mut end) {}
        let in_base = base.slice(start..end);
        let in_ours = ours.lines.slice(ours_start..ours.line_at(end));
        let in_theirs = theirs.lines.slice(theirs_start..theirs.line_at(end));
        merged.text.push_str(base.slice(done..start));
        done = end;
        if in_ours == in_theirs {
            merged.text.push_str(in_ours);
        } else if in_theirs == in_base {
            merged.text.push_str(in_ours);
            merged.took_ours = true;
        } else if in_ours == in_base {
            merged.text.push_str(in_theirs);
            merged.took_theirs = true;
        } else {
            let place = ConflictPlace { line: ours_start, base: in_base, ours: in_ours, theirs: in_theirs };
            merged.text.push_str(&resolve(place));
            (merged.took_ours, merged.took_theirs) = (true, true);
        }
    }
    merged.text.push_str(base.slice(done..base.len()));
    merged
}

impl Conflict {
    fn add(&mut self, place: ConflictPlace<'_>) {
        let ConflictPlace { line, base, ours, theirs } = place;
        self.total += 1;
        if self.hunks.len() < MAX_HUNKS {
            let line = line as u64 + 1;
            self.hunks.push(ConflictHunk { line, base: cut(base), ours: cut(ours), theirs: cut(theirs) });
        }
    }
}

/// One side of a merge, and how far it has been merged.
struct Side<'a> {
    lines: Lines<'a>,
    hunks: std::vec::IntoIter<Hunk>,
    // Where the last hunk that was taken ends: the lines from here to the next hunk are the same in both.
    base: usize,
    line: usize,
}

impl<'a> Side<'a> {
    fn new(base: &Lines<'_>, text: &'a str) -> Self {
        let lines = Lines::of(text);
        let hunks = hunks_of(base, &lines).into_iter();
        Self { lines, hunks, base: 0, line: 0 }
    }

    /// Returns the line of the base at which the next change starts.
    fn next_start(&self) -> Option<usize> {
        self.hunks.as_slice().first().map(|hunk| hunk.old.start)
    }

    /// Returns the line that a line of the base has become. Every change before it is taken, and it is in none.
    fn line_at(&self, base: usize) -> usize {
        self.line + (base - self.base)
    }

    /// Takes the next change if it starts no later than at `end`, and moves that to where the change ends. Says
    /// whether there was one.
    fn take_touching(&mut self, end: &mut usize) -> bool {
        let Some(hunk) = self.hunks.as_slice().first().filter(|hunk| hunk.old.start <= *end) else {
            return false;
        };
        *end = hunk.old.end.max(*end);
        (self.base, self.line) = (hunk.old.end, hunk.new.end);
        self.hunks.next();
        true
    }
}

fn cut(text: &str) -> String {
    const ELLIPSIS: &str = "…";
    if text.len() <= MAX_HUNK_TEXT {
        return text.to_owned();
    }
    let kept = &text[..text.floor_char_boundary(MAX_HUNK_TEXT - ELLIPSIS.len())];
    [kept, ELLIPSIS].concat()
}

fn places(total: &usize) -> &'static str {
    if *total == 1 { "place" } else { "places" }
}

fn first_line(hunks: &[ConflictHunk]) -> u64 {
    hunks.first().map_or(0, |hunk| hunk.line)
}

#[cfg(test)]
mod tests;
