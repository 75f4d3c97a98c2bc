//! Edits of a text by search and replace: each place is found once, and all are made or none.
//!
//! All edits are looked for in the text as it is, not in what others of them make of it. A model sees lines that end in
//! `\n`, whatever the file has: what it looks for is found whichever way the lines end, and what it puts there takes the
//! ending of its surroundings. A byte order mark belongs to the file and is never part of an edit.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memmem;

use crate::text::fit;

mod nearest;

pub use nearest::{Likeness, Nearest};

/// So many edits are made at once.
pub const MAX_EDITS: usize = 500;

/// So many places are made of all edits together; only those that replace every match can come to it.
pub const MAX_PLACES: usize = 100_000;

/// Of the lines at which a text is found more than once, so many are named.
pub const MAX_LINES_NAMED: usize = 10;

const BOM: char = '\u{feff}';

/// A text to be found and what takes its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// What is there.
    pub old: String,
    /// What is to be there.
    pub new: String,
    /// Where.
    pub which: Which,
}

/// Which of the matches are replaced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Which {
    /// The only one; if there are several, none.
    #[default]
    Only,
    /// Every one.
    All,
}

/// A text after its edits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edited {
    /// The text.
    pub text: String,
    /// How many places were replaced.
    pub places: usize,
    /// The line of the first of them, counted from 1; the same before and after.
    pub line: u64,
}

/// Why no edit was made. Edits are named by their places in the list, counted from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditFault {
    /// There is nothing to do.
    #[error("there are no edits: give at least one")]
    None,
    /// There are too many.
    #[error("{0} edits are too many at once, the limit is {MAX_EDITS}: make them in several calls")]
    TooMany(usize),
    /// It replaces nothing.
    #[error("old_text of edit {edit} is empty: give the text to replace, with some lines around it")]
    Empty {
        /// Which edit.
        edit: usize,
    },
    /// It would leave the text as it is.
    #[error("edit {edit} changes nothing: old_text and new_text are the same")]
    Same {
        /// Which edit.
        edit: usize,
    },
    /// Its text is not there.
    #[error("old_text of edit {edit} is not in the file{}", after(.made_by))]
    NotFound {
        /// Which edit.
        edit: usize,
        /// The edit whose new text has it, if there is one.
        made_by: Option<usize>,
        /// The place that is most like it, if one is.
        nearest: Option<Nearest>,
    },
    /// Its text is there more than once.
    #[error(
        "old_text of edit {edit} is in the file {total} times, at lines {}: give more of the text around the place, \
         or set replace_all to true if all of them are meant", listed(.lines, *.total)
    )]
    Ambiguous {
        /// Which edit.
        edit: usize,
        /// The first of the lines, counted from 1.
        lines: Vec<u64>,
        /// How often.
        total: usize,
    },
    /// Two edits are for the same text.
    #[error("edits {first} and {second} overlap at line {line}: make one of them")]
    Overlap {
        /// One edit.
        first: usize,
        /// The other.
        second: usize,
        /// Where, counted from 1.
        line: u64,
    },
    /// Everything would be replaced everywhere.
    #[error("the edits would replace more than {MAX_PLACES} places: write the whole file")]
    TooManyPlaces,
}

/// Returns the text with all edits made.
///
/// No byte outside of the places that were found is another one afterwards.
///
/// # Errors
/// Returns the first reason why none was made.
pub fn apply(text: &str, edits: &[Edit]) -> Result<Edited, EditFault> {
    check(edits)?;
    let view = View::of(text);
    let mut places: Vec<Place> = Vec::new();
    for (index, edit) in edits.iter().enumerate() {
        find(&view, edits, index, edit, &mut places)?;
    }
    places.sort_by_key(|place| (place.range.start, place.range.end));
    let overlaps = |pair: &&[Place]| pair[1].range.start < pair[0].range.end;
    if let Some([one, other]) = places.windows(2).find(overlaps) {
        let (first, second) = (one.edit.min(other.edit) + 1, one.edit.max(other.edit) + 1);
        return Err(EditFault::Overlap { first, second, line: line_at(text, other.range.start) });
    }
    let endings = Endings::of(text);
    let mut edited = String::with_capacity(text.len());
    let mut done = 0;
    for Place { range, edit } in &places {
        edited.push_str(&text[done..range.start]);
        edited.push_str(&with_endings(&edits[*edit].new, text, range.clone(), endings));
        done = range.end;
    }
    edited.push_str(&text[done..]);
    let line = places.first().map_or(1, |place| line_at(text, place.range.start));
    Ok(Edited { text: edited, places: places.len(), line })
}

/// A place in the text, in bytes, and the edit that it is for.
struct Place {
    range: Range<usize>,
    edit: usize,
}

/// A text with every line ending as one `\n`, and the way back to where things are in the text itself.
struct View<'t> {
    normal: Cow<'t, str>,
    // Where an ending was longer than `\n`: its place in `normal`, and how many bytes are missing up to its end.
    // Invariant: sorted by both.
    missing: Vec<(usize, usize)>,
}

impl<'t> View<'t> {
    fn of(text: &'t str) -> Self {
        if !text.contains("\r\n") {
            return Self { normal: Cow::Borrowed(text), missing: Vec::new() };
        }
        let mut normal = String::with_capacity(text.len());
        let mut missing = Vec::new();
        let mut gone = 0;
        for line in text.split_inclusive('\n') {
            match line.strip_suffix('\n').map(|body| (body, body.trim_end_matches('\r'))) {
                Some((with, without)) => {
                    normal.push_str(without);
                    if with.len() > without.len() {
                        gone += with.len() - without.len();
                        missing.push((normal.len(), gone));
                    }
                    normal.push('\n');
                }
                None => normal.push_str(line),
            }
        }
        Self { normal: Cow::Owned(normal), missing }
    }

    /// Returns where a place of the view is in the text: before an ending if it is before its `\n`, else behind it.
    fn place(&self, at: usize) -> usize {
        let before = self.missing.partition_point(|(ending, _)| *ending < at);
        at + before.checked_sub(1).map_or(0, |last| self.missing[last].1)
    }
}

fn check(edits: &[Edit]) -> Result<(), EditFault> {
    if edits.is_empty() {
        return Err(EditFault::None);
    }
    if edits.len() > MAX_EDITS {
        return Err(EditFault::TooMany(edits.len()));
    }
    for (index, edit) in edits.iter().enumerate() {
        let edit_number = index + 1;
        if wanted(&edit.old).is_empty() {
            return Err(EditFault::Empty { edit: edit_number });
        }
        if wanted(&edit.old) == wanted(&edit.new) {
            return Err(EditFault::Same { edit: edit_number });
        }
    }
    Ok(())
}

/// Returns what a model's text stands for: lines that end in `\n`, without the mark that is the file's.
fn wanted(text: &str) -> Cow<'_, str> {
    let text = text.trim_start_matches(BOM);
    match View::of(text).normal {
        Cow::Borrowed(_) => Cow::Borrowed(text),
        Cow::Owned(normal) => Cow::Owned(normal),
    }
}

fn find(
    view: &View<'_>,
    edits: &[Edit],
    index: usize,
    edit: &Edit,
    places: &mut Vec<Place>,
) -> Result<(), EditFault> {
    let old = wanted(&edit.old);
    let (text, finder) = (view.normal.as_ref(), memmem::Finder::new(old.as_bytes()));
    let place = |start: usize| Place { range: view.place(start)..view.place(start + old.len()), edit: index };
    let number = index + 1;
    let first = finder.find(text.as_bytes()).ok_or_else(|| {
        let makes = |other: &Edit| wanted(&other.new).contains(old.as_ref());
        let made_by = edits.iter().position(makes).filter(|by| *by != index).map(|by| by + 1);
        EditFault::NotFound { edit: number, made_by, nearest: nearest::find(text, &old) }
    })?;
    if edit.which == Which::All {
        for start in finder.find_iter(text.as_bytes()) {
            if places.len() >= MAX_PLACES {
                return Err(EditFault::TooManyPlaces);
            }
            places.push(place(start));
        }
        return Ok(());
    }
    // Matches that overlap are two as well.
    let step = text[first..].chars().next().map_or(1, char::len_utf8);
    if let Some(second) = finder.find(&text.as_bytes()[first + step..]).map(|at| first + step + at) {
        let total = finder.find_iter(text.as_bytes()).count().max(2);
        let mut lines: Vec<u64> =
            finder.find_iter(text.as_bytes()).take(MAX_LINES_NAMED).map(|at| line_at(text, at)).collect();
        if lines.len() < 2 {
            lines.push(line_at(text, second));
        }
        return Err(EditFault::Ambiguous { edit: number, lines, total });
    }
    places.push(place(first));
    Ok(())
}

/// How the lines of a text end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Endings {
    /// There is one line.
    None,
    /// With `\n`.
    Lf,
    /// Some, or all, with `\r\n`.
    CrLf,
}

impl Endings {
    fn of(text: &str) -> Self {
        match (text.contains("\r\n"), text.contains('\n')) {
            (true, _) => Self::CrLf,
            (false, true) => Self::Lf,
            (false, false) => Self::None,
        }
    }
}

/// Returns a text with the line endings that belong to a place: those that are replaced, else those around.
fn with_endings<'n>(new: &'n str, text: &str, place: Range<usize>, endings: Endings) -> Cow<'n, str> {
    if !new.contains('\n') || endings == Endings::None {
        return Cow::Borrowed(new.trim_start_matches(BOM));
    }
    let new = wanted(new);
    if endings == Endings::Lf {
        return new;
    }
    let replaced = &text[place.clone()];
    if replaced.contains('\n') {
        return Cow::Owned(fit(&new, replaced).into_owned());
    }
    let ending_of = |line: &str| if line.ends_with("\r\n") { "\r\n" } else { "\n" };
    let after = text[place.end..].split_inclusive('\n').next().filter(|line| line.ends_with('\n'));
    let before = || text[..place.start].split_inclusive('\n').rfind(|line| line.ends_with('\n'));
    match after.or_else(before).map(ending_of) {
        Some("\r\n") => Cow::Owned(new.replace('\n', "\r\n")),
        _ => new,
    }
}

/// Returns the line that a byte is in, counted from 1.
fn line_at(text: &str, at: usize) -> u64 {
    memchr::memchr_iter(b'\n', &text.as_bytes()[..at]).count() as u64 + 1
}

fn listed(lines: &[u64], total: usize) -> String {
    let named: Vec<String> = lines.iter().map(u64::to_string).collect();
    let more = if total > lines.len() { ", …" } else { "" };
    format!("{}{more}", named.join(", "))
}

fn after(made_by: &Option<usize>) -> String {
    made_by.map_or_else(String::new, |by| {
        format!(": edit {by} puts it there, but all edits are made on the text as it is now, so join the two")
    })
}

#[cfg(test)]
mod tests;
