//! The place in a text that is most similar to one that was not found, as a hint for the caller.

use std::collections::HashSet;

/// The maximum number of lines in a searched text; longer texts are not searched.
const MAX_SEARCHED_LINES: usize = 200_000;

/// The maximum number of lines of the wanted text that are compared.
const MAX_COMPARED_LINES: usize = 400;

/// The maximum number of places compared line by line.
const MAX_CANDIDATES: usize = 200;

/// The number of lines shown on each side of the place, and the maximum size of the excerpt.
const CONTEXT_LINES: usize = 3;
const MAX_EXCERPT_BYTES: usize = 4000;

/// A place that is similar to a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NearestMatch {
    /// Its first line, counted from 1.
    pub line: u64,
    /// How similar it is.
    pub similarity: Similarity,
    /// The first line of the excerpt, counted from 1.
    pub excerpt_start: u64,
    /// The place with its surrounding lines, verbatim except for line endings.
    pub excerpt: String,
}

/// How similar a place is to a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Similarity {
    /// It differs only in whitespace at the start or end of lines.
    WhitespaceOnly,
    /// The number of equal lines, and the number compared.
    Lines(usize, usize),
    /// It has words in common.
    Words,
}

/// Finds the most similar place, in a text whose lines end in `\n`.
pub(super) fn find_nearest(text: &str, needle: &str) -> Option<NearestMatch> {
    let lines: Vec<&str> = text.lines().take(MAX_SEARCHED_LINES + 1).collect();
    if lines.len() > MAX_SEARCHED_LINES {
        return None;
    }
    let all: Vec<&str> = needle.lines().map(str::trim).take(MAX_COMPARED_LINES).collect();
    let first = all.iter().position(|line| !line.is_empty())?;
    let needle = all.get(first..)?;
    let last = needle.iter().rposition(|line| !line.is_empty())?;
    let needle = needle.get(..=last)?;
    let (start, similarity) = find_by_lines(&lines, needle).or_else(|| find_by_words(&lines, needle))?;
    let from = start.saturating_sub(CONTEXT_LINES);
    let to = (start + needle.len() + CONTEXT_LINES).min(lines.len());
    let mut excerpt = String::new();
    for line in &lines[from..to] {
        if excerpt.len() + line.len() > MAX_EXCERPT_BYTES {
            let room = MAX_EXCERPT_BYTES.saturating_sub(excerpt.len());
            excerpt.push_str(&line[..line.floor_char_boundary(room)]);
            excerpt.push_str("…\n");
            break;
        }
        excerpt.push_str(line);
        excerpt.push('\n');
    }
    Some(NearestMatch { line: start as u64 + 1, similarity, excerpt_start: from as u64 + 1, excerpt })
}

/// Finds the place with the most equal lines, aligned at each occurrence of the longest wanted line that exists.
fn find_by_lines(lines: &[&str], needle: &[&str]) -> Option<(usize, Similarity)> {
    let present: HashSet<&str> = lines.iter().map(|line| line.trim()).collect();
    let (anchor, anchor_line) = needle
        .iter()
        .enumerate()
        .filter(|(_, line)| present.contains(*line))
        .max_by_key(|(at, line)| (line.len(), usize::MAX - at))?;
    // A line with little more than a bracket occurs everywhere.
    if anchor_line.len() < 4 && needle.len() > 1 {
        return None;
    }
    let starts = lines
        .iter()
        .enumerate()
        .filter(|(_, line)| line.trim() == *anchor_line)
        .filter_map(|(at, _)| at.checked_sub(anchor))
        .take(MAX_CANDIDATES);
    let equal = |start: usize| {
        let candidate = lines.get(start..).unwrap_or_default();
        candidate.iter().zip(needle).filter(|(line, expected)| line.trim() == **expected).count()
    };
    let (start, equal) = starts
        .map(|start| (start, equal(start)))
        .max_by_key(|(start, equal)| (*equal, usize::MAX - start))?;
    let similarity = if equal == needle.len() {
        Similarity::WhitespaceOnly
    } else {
        Similarity::Lines(equal, needle.len())
    };
    Some((start, similarity))
}

/// Finds the line that shares the most words with the first wanted line, at least half of them.
fn find_by_words(lines: &[&str], needle: &[&str]) -> Option<(usize, Similarity)> {
    let words: HashSet<&str> = needle.first().map(|line| split_words(line).collect())?;
    let common =
        |line: &str| split_words(line).filter(|word| words.contains(word)).collect::<HashSet<_>>().len();
    let (start, common) = lines
        .iter()
        .enumerate()
        .map(|(at, line)| (at, common(line)))
        .max_by_key(|(at, common)| (*common, usize::MAX - at))?;
    (common > 0 && common * 2 >= words.len()).then_some((start, Similarity::Words))
}

fn split_words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|letter: char| !letter.is_alphanumeric() && letter != '_').filter(|word| !word.is_empty())
}
