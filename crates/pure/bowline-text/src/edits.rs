//! Search-and-replace edits of a text: each match must be unique, and either all edits apply or none.
//!
//! All edits are searched for in the original text, not in the result of other edits. A model sees lines that end in
//! `\n`, regardless of the file's line endings: matching ignores the kind of line ending, and replacements adopt that
//! of their surroundings. A byte order mark belongs to the file and is never part of an edit.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memmem;

use crate::text::fit_line_endings;

mod nearest;

pub use nearest::{NearestMatch, Similarity};

/// The maximum number of edits per call.
pub const MAX_EDITS: usize = 500;

/// The maximum number of replacements of all edits together; only edits that replace all matches can reach it.
pub const MAX_REPLACEMENTS: usize = 100_000;

/// The maximum number of lines named for an ambiguous match.
pub const MAX_LISTED_LINES: usize = 10;

const BOM: char = '\u{feff}';

/// A text to find and its replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchReplaceEdit {
    /// The text to find.
    pub old: String,
    /// Its replacement.
    pub new: String,
    /// Which matches to replace.
    pub selection: MatchSelection,
}

/// The matches that an edit replaces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MatchSelection {
    /// The only match; several are an error.
    #[default]
    Only,
    /// Every match.
    All,
}

/// The result of applying edits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditOutcome {
    /// The text.
    pub text: String,
    /// The number of replacements.
    pub replacements: usize,
    /// The line of the first replacement, counted from 1; the same before and after.
    pub first_line: u64,
}

/// Why no edit was applied. Edits are numbered by their position in the list, from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The list is empty.
    #[error("there are no edits: give at least one")]
    NoEdits,
    /// There are too many edits.
    #[error("{0} edits are too many at once, the limit is {MAX_EDITS}: make them in several calls")]
    TooManyEdits(usize),
    /// The old text is empty.
    #[error("old_text of edit {edit} is empty: give the text to replace, with some lines around it")]
    EmptyOldText {
        /// The edit.
        edit: usize,
    },
    /// The old and the new text are the same.
    #[error("edit {edit} changes nothing: old_text and new_text are the same")]
    NoChange {
        /// The edit.
        edit: usize,
    },
    /// The old text is not in the file.
    #[error("old_text of edit {edit} is not in the file{}", describe_producer(.produced_by))]
    NotFound {
        /// The edit.
        edit: usize,
        /// The edit whose new text contains it, if any.
        produced_by: Option<usize>,
        /// The most similar place, if any.
        nearest: Option<NearestMatch>,
    },
    /// The old text occurs more than once.
    #[error(
        "old_text of edit {edit} is in the file {total} times, at lines {}: give more of the text around the place, \
         or set replace_all to true if all of them are meant", format_line_list(.lines, *.total)
    )]
    Ambiguous {
        /// The edit.
        edit: usize,
        /// The first matching lines, counted from 1.
        lines: Vec<u64>,
        /// The number of matches.
        total: usize,
    },
    /// Two edits overlap.
    #[error("edits {first} and {second} overlap at line {line}: make one of them")]
    Overlap {
        /// One edit.
        first: usize,
        /// The other.
        second: usize,
        /// The line, counted from 1.
        line: u64,
    },
    /// There are too many replacements.
    #[error("the edits would replace more than {MAX_REPLACEMENTS} places: write the whole file")]
    TooManyReplacements,
}

/// Returns the text with all edits applied.
///
/// No byte outside the matches changes.
///
/// # Errors
/// Returns the first reason why no edit was applied.
pub fn apply_search_replace(text: &str, edits: &[SearchReplaceEdit]) -> Result<EditOutcome, EditError> {
    validate_edits(edits)?;
    let view = NormalisedText::new(text);
    let mut matches: Vec<EditMatch> = Vec::new();
    for (index, edit) in edits.iter().enumerate() {
        find_matches(&view, edits, index, edit, &mut matches)?;
    }
    matches.sort_by_key(|edit_match| (edit_match.range.start, edit_match.range.end));
    let overlaps = |pair: &&[EditMatch]| pair[1].range.start < pair[0].range.end;
    if let Some([earlier, later]) = matches.windows(2).find(overlaps) {
        let (first, second) =
            (earlier.edit_index.min(later.edit_index) + 1, earlier.edit_index.max(later.edit_index) + 1);
        return Err(EditError::Overlap { first, second, line: line_number_at(text, later.range.start) });
    }
    let endings = LineEndingStyle::detect(text);
    let mut edited = String::with_capacity(text.len());
    let mut done = 0;
    for EditMatch { range, edit_index: edit } in &matches {
        edited.push_str(&text[done..range.start]);
        edited.push_str(&adapt_line_endings(&edits[*edit].new, text, range.clone(), endings));
        done = range.end;
    }
    edited.push_str(&text[done..]);
    let first_line = matches.first().map_or(1, |edit_match| line_number_at(text, edit_match.range.start));
    Ok(EditOutcome { text: edited, replacements: matches.len(), first_line })
}

/// A match in the text, as a byte range, and its edit.
struct EditMatch {
    range: Range<usize>,
    edit_index: usize,
}

/// A text with every line ending normalised to `\n`, and a mapping back to the original offsets.
struct NormalisedText<'t> {
    text: Cow<'t, str>,
    // For each ending longer than `\n`: its offset in `text`, and the number of bytes removed up to its end. Invariant:
    // sorted by both.
    removed_bytes: Vec<(usize, usize)>,
}

impl<'t> NormalisedText<'t> {
    fn new(text: &'t str) -> Self {
        if !text.contains("\r\n") {
            return Self { text: Cow::Borrowed(text), removed_bytes: Vec::new() };
        }
        let mut normal = String::with_capacity(text.len());
        let mut removed_bytes = Vec::new();
        let mut removed = 0;
        for line in text.split_inclusive('\n') {
            match line.strip_suffix('\n').map(|body| (body, body.trim_end_matches('\r'))) {
                Some((untrimmed, trimmed)) => {
                    normal.push_str(trimmed);
                    if untrimmed.len() > trimmed.len() {
                        removed += untrimmed.len() - trimmed.len();
                        removed_bytes.push((normal.len(), removed));
                    }
                    normal.push('\n');
                }
                None => normal.push_str(line),
            }
        }
        Self { text: Cow::Owned(normal), removed_bytes }
    }

    /// Returns the original offset of an offset in the normalised text: before an ending if it is before the `\n`,
    /// otherwise after it.
    fn original_offset(&self, at: usize) -> usize {
        let before = self.removed_bytes.partition_point(|(offset, _)| *offset < at);
        at + before.checked_sub(1).map_or(0, |last| self.removed_bytes[last].1)
    }
}

fn validate_edits(edits: &[SearchReplaceEdit]) -> Result<(), EditError> {
    if edits.is_empty() {
        return Err(EditError::NoEdits);
    }
    if edits.len() > MAX_EDITS {
        return Err(EditError::TooManyEdits(edits.len()));
    }
    for (index, edit) in edits.iter().enumerate() {
        let edit_number = index + 1;
        if normalise(&edit.old).is_empty() {
            return Err(EditError::EmptyOldText { edit: edit_number });
        }
        if normalise(&edit.old) == normalise(&edit.new) {
            return Err(EditError::NoChange { edit: edit_number });
        }
    }
    Ok(())
}

/// Returns a model's text in normalised form: lines end in `\n`, without a byte order mark.
fn normalise(text: &str) -> Cow<'_, str> {
    let text = text.trim_start_matches(BOM);
    match NormalisedText::new(text).text {
        Cow::Borrowed(_) => Cow::Borrowed(text),
        Cow::Owned(normal) => Cow::Owned(normal),
    }
}

fn find_matches(
    view: &NormalisedText<'_>,
    edits: &[SearchReplaceEdit],
    index: usize,
    edit: &SearchReplaceEdit,
    matches: &mut Vec<EditMatch>,
) -> Result<(), EditError> {
    let old = normalise(&edit.old);
    let (text, finder) = (view.text.as_ref(), memmem::Finder::new(old.as_bytes()));
    let edit_match = |start: usize| EditMatch {
        range: view.original_offset(start)..view.original_offset(start + old.len()),
        edit_index: index,
    };
    let number = index + 1;
    let first = finder.find(text.as_bytes()).ok_or_else(|| {
        let produces = |other: &SearchReplaceEdit| normalise(&other.new).contains(old.as_ref());
        let produced_by = edits
            .iter()
            .position(produces)
            .filter(|position| *position != index)
            .map(|position| position + 1);
        EditError::NotFound { edit: number, produced_by, nearest: nearest::find_nearest(text, &old) }
    })?;
    if edit.selection == MatchSelection::All {
        for start in finder.find_iter(text.as_bytes()) {
            if matches.len() >= MAX_REPLACEMENTS {
                return Err(EditError::TooManyReplacements);
            }
            matches.push(edit_match(start));
        }
        return Ok(());
    }
    // Overlapping matches count as two as well.
    let step = text[first..].chars().next().map_or(1, char::len_utf8);
    if let Some(second) = finder.find(&text.as_bytes()[first + step..]).map(|at| first + step + at) {
        let total = finder.find_iter(text.as_bytes()).count().max(2);
        let mut lines: Vec<u64> = finder
            .find_iter(text.as_bytes())
            .take(MAX_LISTED_LINES)
            .map(|at| line_number_at(text, at))
            .collect();
        if lines.len() < 2 {
            lines.push(line_number_at(text, second));
        }
        return Err(EditError::Ambiguous { edit: number, lines, total });
    }
    matches.push(edit_match(first));
    Ok(())
}

/// The line endings of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineEndingStyle {
    /// The text is a single line.
    None,
    /// Only `\n`.
    Lf,
    /// At least one `\r\n`.
    CrLf,
}

impl LineEndingStyle {
    fn detect(text: &str) -> Self {
        match (text.contains("\r\n"), text.contains('\n')) {
            (true, _) => Self::CrLf,
            (false, true) => Self::Lf,
            (false, false) => Self::None,
        }
    }
}

/// Returns a text with the line endings of a place: those of the replaced text, otherwise those around it.
fn adapt_line_endings<'n>(
    new: &'n str,
    text: &str,
    range: Range<usize>,
    endings: LineEndingStyle,
) -> Cow<'n, str> {
    if !new.contains('\n') || endings == LineEndingStyle::None {
        return Cow::Borrowed(new.trim_start_matches(BOM));
    }
    let new = normalise(new);
    if endings == LineEndingStyle::Lf {
        return new;
    }
    let replaced = &text[range.clone()];
    if replaced.contains('\n') {
        return Cow::Owned(fit_line_endings(&new, replaced).into_owned());
    }
    let ending_of = |line: &str| if line.ends_with("\r\n") { "\r\n" } else { "\n" };
    let after = text[range.end..].split_inclusive('\n').next().filter(|line| line.ends_with('\n'));
    let before = || text[..range.start].split_inclusive('\n').rfind(|line| line.ends_with('\n'));
    match after.or_else(before).map(ending_of) {
        Some("\r\n") => Cow::Owned(new.replace('\n', "\r\n")),
        _ => new,
    }
}

/// Returns the line that contains a byte, counted from 1.
fn line_number_at(text: &str, at: usize) -> u64 {
    memchr::memchr_iter(b'\n', &text.as_bytes()[..at]).count() as u64 + 1
}

fn format_line_list(lines: &[u64], total: usize) -> String {
    let named: Vec<String> = lines.iter().map(u64::to_string).collect();
    let ellipsis = if total > lines.len() { ", …" } else { "" };
    format!("{}{ellipsis}", named.join(", "))
}

fn describe_producer(produced_by: &Option<usize>) -> String {
    produced_by.map_or_else(String::new, |number| {
        format!(
            ": edit {number} puts it there, but all edits are made on the text as it is now, so join the two"
        )
    })
}

#[cfg(test)]
mod tests;
