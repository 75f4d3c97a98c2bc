//! Differences and conflicts as a model reads them: small, and cut where they are not.

use crate::diff::{Body, FileDiff, Side, unified};
use crate::display::is_hidden;
use crate::lines::LineCounter;
use crate::merge::ConflictHunk;

/// A difference is shown up to so many lines and bytes.
const MAX_DIFF_LINES: usize = 120;
const MAX_DIFF_BYTES: usize = 8 << 10;

/// So many bytes of conflicts are shown.
const MAX_CONFLICT: usize = 8 << 10;

/// Returns what is said of a text that has characters in it that nobody sees: it stays as it is, because whoever edits it
/// needs it so.
pub fn warning(text: &str) -> &'static str {
    if text.chars().any(is_hidden) { "; there are characters in it that nobody sees" } else { "" }
}

/// Returns a difference, and whether it is cut.
pub fn small_diff(old: &str, new: &str) -> (String, bool) {
    let side = |text| Some(Side { body: Body::Text(text), mode: 0o644 });
    let patch = unified(&FileDiff { path: "", before: side(old), after: side(new) }, 1);
    // A model sees lines without `\r`, so it is told of them so.
    let hunks = patch.find("@@").map_or("", |start| &patch[start..]).replace("\r\n", "\n");
    let mut shown = String::new();
    for (count, line) in hunks.split_inclusive('\n').enumerate() {
        if count >= MAX_DIFF_LINES || shown.len() + line.len() > MAX_DIFF_BYTES {
            shown.push_str("[the rest of the difference is left out]\n");
            return (shown, true);
        }
        shown.push_str(line);
    }
    (shown, false)
}

/// Returns the places that two sides changed, as text that goes on from a sentence.
pub fn conflict(hunks: &[ConflictHunk]) -> String {
    let mut text = String::new();
    for hunk in hunks {
        let told = format!(
            "\nAt line {}:\n--- you saw\n{}--- the file has now\n{}--- you would write\n{}",
            hunk.line,
            ended(&hunk.base),
            ended(&hunk.ours),
            ended(&hunk.theirs)
        );
        if text.len() + told.len() > MAX_CONFLICT {
            text.push_str("\nThere are more places: read the file again.");
            break;
        }
        text.push_str(&told);
    }
    text
}

fn ended(text: &str) -> String {
    if text.is_empty() || text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") }
}

/// Returns the line of the new text at which it begins to differ, counted from 1.
pub fn first_difference(old: &str, new: &str) -> u64 {
    let same = old.split_inclusive('\n').zip(new.split_inclusive('\n')).take_while(|(old, new)| old == new);
    let same = same.count() as u64;
    // Where lines were only removed at the end, the last line is shown.
    (same + 1).min(lines_of(new).max(1))
}

/// Returns so many of something, in words.
pub fn plural(count: u64, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}

/// Returns how many lines a text has.
pub fn lines_of(text: &str) -> u64 {
    let mut counter = LineCounter::default();
    counter.feed(text.as_bytes());
    counter.lines()
}
