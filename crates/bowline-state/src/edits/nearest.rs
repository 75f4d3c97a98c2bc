//! The place in a text that is most like one that is not there, so that whoever looked for it sees what is.

use std::collections::HashSet;

/// In longer texts nothing is looked for, in lines.
const MAX_LINES: usize = 200_000;

/// Of a text that is looked for, so many lines are compared.
const MAX_WANTED: usize = 400;

/// So many places are compared line by line.
const MAX_TRIED: usize = 200;

/// So many lines around the place are shown on each side, and so many bytes in all.
const AROUND: usize = 3;
const MAX_SHOWN: usize = 4000;

/// A place that is like a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nearest {
    /// Its first line, counted from 1.
    pub line: u64,
    /// How like it is.
    pub likeness: Likeness,
    /// The first line of what is shown, counted from 1.
    pub shown_from: u64,
    /// The place with some lines around it, as it is in the text but for its line endings.
    pub shown: String,
}

/// How like a place is to a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Likeness {
    /// It differs in nothing but blanks at the start or end of lines.
    Blanks,
    /// So many of its lines are the same, of so many.
    Lines(usize, usize),
    /// It has words in common.
    Words,
}

/// Finds the place, in a text whose lines end in `\n`.
pub(super) fn find(text: &str, wanted: &str) -> Option<Nearest> {
    let lines: Vec<&str> = text.lines().take(MAX_LINES + 1).collect();
    if lines.len() > MAX_LINES {
        return None;
    }
    let all: Vec<&str> = wanted.lines().map(str::trim).take(MAX_WANTED).collect();
    let first = all.iter().position(|line| !line.is_empty())?;
    let wanted = all.get(first..)?;
    let last = wanted.iter().rposition(|line| !line.is_empty())?;
    let wanted = wanted.get(..=last)?;
    let (start, likeness) = by_lines(&lines, wanted).or_else(|| by_words(&lines, wanted))?;
    let from = start.saturating_sub(AROUND);
    let to = (start + wanted.len() + AROUND).min(lines.len());
    let mut shown = String::new();
    for line in &lines[from..to] {
        if shown.len() + line.len() > MAX_SHOWN {
            let room = MAX_SHOWN.saturating_sub(shown.len());
            shown.push_str(&line[..line.floor_char_boundary(room)]);
            shown.push_str("…\n");
            break;
        }
        shown.push_str(line);
        shown.push('\n');
    }
    Some(Nearest { line: start as u64 + 1, likeness, shown_from: from as u64 + 1, shown })
}

/// Finds the place with the most equal lines, tried wherever the line is that says most.
fn by_lines(lines: &[&str], wanted: &[&str]) -> Option<(usize, Likeness)> {
    let there: HashSet<&str> = lines.iter().map(|line| line.trim()).collect();
    let (anchor, telling) = wanted
        .iter()
        .enumerate()
        .filter(|(_, line)| there.contains(*line))
        .max_by_key(|(at, line)| (line.len(), usize::MAX - at))?;
    // A line of little more than a bracket is everywhere.
    if telling.len() < 4 && wanted.len() > 1 {
        return None;
    }
    let tried = lines
        .iter()
        .enumerate()
        .filter(|(_, line)| line.trim() == *telling)
        .filter_map(|(at, _)| at.checked_sub(anchor))
        .take(MAX_TRIED);
    let equal = |start: usize| {
        let there = lines.get(start..).unwrap_or_default();
        there.iter().zip(wanted).filter(|(line, wanted)| line.trim() == **wanted).count()
    };
    let (start, equal) =
        tried.map(|start| (start, equal(start))).max_by_key(|(start, equal)| (*equal, usize::MAX - start))?;
    let likeness =
        if equal == wanted.len() { Likeness::Blanks } else { Likeness::Lines(equal, wanted.len()) };
    Some((start, likeness))
}

/// Finds the line that has the most words of the first line that is wanted: half of them at least.
fn by_words(lines: &[&str], wanted: &[&str]) -> Option<(usize, Likeness)> {
    let words: HashSet<&str> = wanted.first().map(|line| words_of(line).collect())?;
    let common =
        |line: &str| words_of(line).filter(|word| words.contains(word)).collect::<HashSet<_>>().len();
    let (start, common) = lines
        .iter()
        .enumerate()
        .map(|(at, line)| (at, common(line)))
        .max_by_key(|(at, common)| (*common, usize::MAX - at))?;
    (common > 0 && common * 2 >= words.len()).then_some((start, Likeness::Words))
}

fn words_of(line: &str) -> impl Iterator<Item = &str> {
    line.split(|letter: char| !letter.is_alphanumeric() && letter != '_').filter(|word| !word.is_empty())
}
