//! Diffs and conflicts as shown to a model, truncated if they are long.

use bowline_text::diff::{DiffContent, DiffSide, FileDiff, format_unified_diff};
use bowline_text::display::is_hidden;
use bowline_text::lines::LineCounter;
use bowline_text::merge::ConflictHunk;

/// The maximum size of a diff, in lines and bytes.
const MAX_DIFF_LINES: usize = 120;
const MAX_DIFF_BYTES: usize = 8 << 10;

/// The maximum size of the conflicts shown, in bytes.
const MAX_CONFLICT_BYTES: usize = 8 << 10;

/// Returns a warning about a text with invisible characters. The text itself stays unchanged, because an edit has to
/// match it.
pub fn hidden_character_warning(text: &str) -> &'static str {
    if text.chars().any(is_hidden) { "; it contains invisible characters" } else { "" }
}

/// Returns a diff, and whether it is truncated.
pub fn describe_diff(old: &str, new: &str) -> (String, bool) {
    let side = |text| Some(DiffSide { content: DiffContent::Text(text), mode: 0o644 });
    let patch = format_unified_diff(&FileDiff { path: "", before: side(old), after: side(new) }, 1);
    // A model sees lines without `\r`, so the diff has none either.
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

/// Describes how a file differs from what a model sent, given their diff and whether it is truncated.
#[must_use]
pub fn describe_later_changes(diff: &str, is_cut: bool) -> String {
    let more = if is_cut { "\nThere is more: read the file again before you edit it." } else { "" };
    format!(
        "The file differs from what you sent, because its user or the editor's formatting changed it:\n{diff}{more}"
    )
}

/// Returns the conflicting hunks, as text that continues a sentence.
pub fn describe_conflicts(hunks: &[ConflictHunk]) -> String {
    let mut text = String::new();
    for hunk in hunks {
        let excerpt = format!(
            "\nAt line {}:\n--- you saw\n{}--- the file has now\n{}--- you would write\n{}",
            hunk.line,
            with_final_newline(&hunk.base),
            with_final_newline(&hunk.ours),
            with_final_newline(&hunk.theirs)
        );
        if text.len() + excerpt.len() > MAX_CONFLICT_BYTES {
            text.push_str("\nThere are more places: read the file again.");
            break;
        }
        text.push_str(&excerpt);
    }
    text
}

fn with_final_newline(text: &str) -> String {
    if text.is_empty() || text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") }
}

/// Returns the first line of the new text that differs, counted from 1.
pub fn first_different_line(old: &str, new: &str) -> u64 {
    let same = old.split_inclusive('\n').zip(new.split_inclusive('\n')).take_while(|(old, new)| old == new);
    let same = same.count() as u64;
    // Where only lines at the end were removed, this is the last line.
    (same + 1).min(count_lines(new).max(1))
}

/// Returns a count with its noun.
pub fn count_noun(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Returns the number of lines of a text.
pub fn count_lines(text: &str) -> u64 {
    let mut counter = LineCounter::default();
    counter.feed(text.as_bytes());
    counter.lines()
}
