//! The difference of two texts, as lines with marked words.
//!
//! Each differing region is a hunk of its own, numbered as undo numbers them, with the lines around it. Lines between
//! two hunks appear once.

use std::ops::Range;

use bowline_text::diff::{self, Hunk};
use serde::Serialize;

#[cfg(test)]
mod tests;

/// How many lines are shown before and after a hunk.
const CONTEXT_LINES: usize = 3;
/// The most words of a hunk that are compared. In larger hunks no words are marked.
const MAX_HUNK_WORDS: usize = 4000;
/// The part of a hunk that must be the same on both sides for its words to be marked, in percent.
const MIN_COMMON_PERCENT: usize = 30;

/// How two texts are compared.
#[derive(Debug, Clone, Copy)]
pub struct DiffViewOptions {
    /// Whether lines that differ only in white space count as equal.
    pub ignore_whitespace: bool,
    /// The most lines that are shown.
    pub max_lines: usize,
    /// The most bytes that are shown.
    pub max_bytes: usize,
    /// The most words that are compared; in further hunks no words are marked.
    pub max_words: usize,
}

impl Default for DiffViewOptions {
    fn default() -> Self {
        Self { ignore_whitespace: false, max_lines: 5000, max_bytes: 1 << 20, max_words: 20_000 }
    }
}

/// The difference of two texts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DiffView {
    /// The number of lines that only the new text has.
    pub added: usize,
    /// The number of lines that only the old text has.
    pub removed: usize,
    /// The hunks that are shown.
    pub hunks: Vec<HunkView>,
    /// Whether lines are left out.
    pub truncated: bool,
    /// How many changed lines are left out.
    pub omitted_lines: usize,
}

/// One differing region, with the lines around it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HunkView {
    /// Its number, from 0; `None` if white space is ignored, because undo counts other hunks.
    #[serde(skip)]
    pub index: Option<usize>,
    /// The number of its first line in the old text, from 1.
    pub old_start: usize,
    /// The number of its first line in the new text, from 1.
    pub new_start: usize,
    /// Its lines.
    pub lines: Vec<LineView>,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LineView {
    /// ` `, `-` or `+`, as in a patch.
    pub kind: char,
    /// Its number in the old text, from 1.
    pub old: Option<usize>,
    /// Its number in the new text, from 1.
    pub new: Option<usize>,
    /// Its text, without the line feed.
    pub parts: Vec<LinePart>,
    /// Whether it lacks the line feed that a last line should have.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_newline: bool,
}

/// A part of a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LinePart {
    /// Its text.
    pub text: String,
    /// Whether only this side has it.
    pub changed: bool,
}

/// Compares two texts.
#[must_use]
pub fn compare(old: &str, new: &str, options: DiffViewOptions) -> DiffView {
    let hunks = if options.ignore_whitespace {
        diff::compute_hunks(&normalize(old), &normalize(new))
    } else {
        diff::compute_hunks(old, new)
    };
    let sum = |range: fn(&Hunk) -> usize| hunks.iter().map(range).sum();
    let (added, removed) = (sum(|hunk| hunk.new.len()), sum(|hunk| hunk.old.len()));
    let (old, new): (Vec<&str>, Vec<&str>) =
        (old.split_inclusive('\n').collect(), new.split_inclusive('\n').collect());
    let mut views = Vec::new();
    let (mut lines, mut bytes, mut omitted_lines) = (0, 0, 0);
    let mut shown_until = 0;
    let mut words_left = options.max_words;
    for (index, hunk) in hunks.iter().enumerate() {
        let next = hunks.get(index + 1).map_or(old.len(), |next| next.old.start);
        let before = hunk.old.start.saturating_sub(CONTEXT_LINES).max(shown_until)..hunk.old.start;
        let after = hunk.old.end..next.min(hunk.old.end + CONTEXT_LINES);
        let size = |text: &[&str], range: Range<usize>| -> usize {
            text.get(range).unwrap_or_default().iter().map(|line| line.len()).sum()
        };
        lines += before.len() + hunk.old.len() + hunk.new.len() + after.len();
        bytes += size(&old, before.start..after.end) + size(&new, hunk.new.clone());
        if lines > options.max_lines || bytes > options.max_bytes {
            omitted_lines += hunk.old.len() + hunk.new.len();
            continue;
        }
        shown_until = after.end;
        let index = (!options.ignore_whitespace).then_some(index);
        let removed = old.get(hunk.old.clone()).unwrap_or_default();
        let added = new.get(hunk.new.clone()).unwrap_or_default();
        let marked = mark_words(removed, added, &mut words_left);
        views.push(view_hunk(&old, &new, index, hunk, marked, before, after));
    }
    DiffView { added, removed, hunks: views, truncated: omitted_lines > 0, omitted_lines }
}

/// Returns a text whose lines have single spaces only, line for line.
fn normalize(text: &str) -> String {
    let line = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n";
    text.split_inclusive('\n').map(line).collect()
}

fn view_hunk(
    old: &[&str],
    new: &[&str],
    index: Option<usize>,
    hunk: &Hunk,
    (removed, added): (MarkedLines, MarkedLines),
    before: Range<usize>,
    after: Range<usize>,
) -> HunkView {
    let context = |range: Range<usize>, new_start: usize| {
        range.enumerate().map(move |(offset, line)| {
            let text = old.get(line).copied().unwrap_or_default();
            line_view(' ', Some(line), Some(new_start + offset), vec![plain(text)], text)
        })
    };
    let new_start = hunk.new.start - before.len();
    let mut lines: Vec<LineView> = context(before.clone(), new_start).collect();
    let sides = [('-', removed, hunk.old.start), ('+', added, hunk.new.start)];
    for (kind, marked, first) in sides {
        for (offset, parts) in marked.into_iter().enumerate() {
            let number = Some(first + offset);
            let (text, of_old, of_new) = match kind {
                '-' => (old.get(first + offset), number, None),
                _ => (new.get(first + offset), None, number),
            };
            lines.push(line_view(kind, of_old, of_new, parts, text.copied().unwrap_or_default()));
        }
    }
    lines.extend(context(after, hunk.new.end));
    HunkView { index, old_start: before.start + 1, new_start: new_start + 1, lines }
}

fn line_view(
    kind: char,
    old: Option<usize>,
    new: Option<usize>,
    mut parts: Vec<LinePart>,
    text: &str,
) -> LineView {
    if let Some(last) = parts.last_mut() {
        last.text.truncate(last.text.trim_end_matches('\n').len());
    }
    parts.retain(|part| !part.text.is_empty());
    let from_one = |number: Option<usize>| number.map(|number| number + 1);
    LineView { kind, old: from_one(old), new: from_one(new), parts, no_newline: !text.ends_with('\n') }
}

fn plain(text: &str) -> LinePart {
    LinePart { text: text.to_owned(), changed: false }
}

/// Lines, each as parts.
type MarkedLines = Vec<Vec<LinePart>>;

/// Marks the words that only one side has, if the sides have enough in common.
fn mark_words(removed: &[&str], added: &[&str], words_left: &mut usize) -> (MarkedLines, MarkedLines) {
    let unmarked = || {
        let side = |lines: &[&str]| lines.iter().map(|line| vec![plain(line)]).collect();
        (side(removed), side(added))
    };
    let words = |lines: &[&str]| -> Vec<(usize, String)> {
        let split = |(line, text): (usize, &&str)| {
            split_words(text).map(move |word| (line, word.to_owned())).collect::<Vec<_>>()
        };
        lines.iter().enumerate().flat_map(split).collect()
    };
    if removed.is_empty() || added.is_empty() {
        return unmarked();
    }
    let (old, new) = (words(removed), words(added));
    let count = old.len() + new.len();
    if count > MAX_HUNK_WORDS.min(*words_left) {
        return unmarked();
    }
    *words_left -= count;
    let (mut old_changed, mut new_changed) = (vec![false; old.len()], vec![false; new.len()]);
    for hunk in diff::compute_sequence_hunks(texts(&old), texts(&new)) {
        old_changed[hunk.old].fill(true);
        new_changed[hunk.new].fill(true);
    }
    let same = old.iter().zip(&old_changed).filter(|(_, changed)| !**changed);
    let common = same.map(|((_, word), _)| 2 * word.trim().len()).sum::<usize>();
    let length = |words: &[(usize, String)]| words.iter().map(|(_, word)| word.trim().len()).sum::<usize>();
    if common * 100 < MIN_COMMON_PERCENT * (length(&old) + length(&new)) {
        return unmarked();
    }
    let join = |words: &[(usize, String)], changed: &[bool], lines: usize| {
        let mut marked: MarkedLines = vec![Vec::new(); lines];
        for ((line, word), changed) in words.iter().zip(changed) {
            match marked[*line].last_mut() {
                Some(part) if part.changed == *changed => part.text.push_str(word),
                _ => marked[*line].push(LinePart { text: word.clone(), changed: *changed }),
            }
        }
        marked
    };
    (join(&old, &old_changed, removed.len()), join(&new, &new_changed, added.len()))
}

fn texts(words: &[(usize, String)]) -> impl Iterator<Item = &str> {
    words.iter().map(|(_, word)| word.as_str())
}

/// Splits a line into words, spaces and other characters.
fn split_words(line: &str) -> impl Iterator<Item = &str> {
    #[derive(PartialEq)]
    enum Class {
        Word,
        Space,
        Other,
    }
    let class = |char: char| match char {
        _ if char.is_alphanumeric() || char == '_' => Class::Word,
        '\n' => Class::Other,
        _ if char.is_whitespace() => Class::Space,
        _ => Class::Other,
    };
    let mut rest = line;
    std::iter::from_fn(move || {
        let first = class(rest.chars().next()?);
        let is_same = |char: char| class(char) == first && first != Class::Other;
        let end = rest.char_indices().skip(1).find(|(_, char)| !is_same(*char));
        let (word, left) = rest.split_at(end.map_or(rest.len(), |(at, _)| at));
        rest = left;
        Some(word)
    })
}
