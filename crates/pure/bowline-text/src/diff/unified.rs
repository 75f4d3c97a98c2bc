//! Unified diffs, in the format that `git diff` writes and `git apply` reads.

use std::ops::Range;

use super::{Hunk, TextLines, compute_line_hunks};
use crate::hash::ContentHash;

/// The difference of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileDiff<'a> {
    /// The path relative to the root of the diff, with `/` as separator.
    pub path: &'a str,
    /// The file before; `None` if it did not exist.
    pub before: Option<DiffSide<'a>>,
    /// The file after; `None` if it was deleted.
    pub after: Option<DiffSide<'a>>,
}

/// One side of a file's difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiffSide<'a> {
    /// Its content.
    pub content: DiffContent<'a>,
    /// Its permission bits. The format records only whether the owner may execute the file.
    pub mode: u32,
}

/// The content of a file, as far as a diff can show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiffContent<'a> {
    /// Text.
    Text(&'a str),
    /// Binary or unavailable content. Its hash shows whether it changed.
    Opaque(ContentHash),
}

/// Returns the diff with `context` lines around each change; empty if the format can show no difference.
///
/// Content that is not text is only reported to differ, which `git apply` rejects.
#[must_use]
pub fn format_unified_diff(file: &FileDiff<'_>, context: usize) -> String {
    format_unified_diff_from(file, context, 0)
}

/// As [`format_unified_diff`], for the rest of a file: both sides lack this many lines at the beginning.
#[must_use]
pub fn format_unified_diff_from(file: &FileDiff<'_>, context: usize, skipped_lines: usize) -> String {
    let lines = [format_mode_lines(file), format_content_lines(file, context, skipped_lines)].concat();
    if lines.is_empty() {
        return lines;
    }
    format!("diff --git {} {}\n{lines}", quote_path("a/", file.path), quote_path("b/", file.path))
}

fn format_mode_lines(file: &FileDiff<'_>) -> String {
    match (file.before.map(git_mode), file.after.map(git_mode)) {
        (Some(old), Some(new)) if old != new => format!("old mode {old}\nnew mode {new}\n"),
        (None, Some(new)) => format!("new file mode {new}\n"),
        (Some(old), None) => format!("deleted file mode {old}\n"),
        (Some(_), Some(_)) | (None, None) => String::new(),
    }
}

fn format_content_lines(file: &FileDiff<'_>, context: usize, skipped_lines: usize) -> String {
    let [before, after] =
        [file.before, file.after].map(|side| side.map_or(DiffContent::Text(""), |side| side.content));
    if before == after {
        return String::new();
    }
    let name = |side: Option<DiffSide<'_>>, prefix| {
        side.map_or_else(|| "/dev/null".to_owned(), |_| quote_path(prefix, file.path))
    };
    let (a, b) = (name(file.before, "a/"), name(file.after, "b/"));
    let (DiffContent::Text(old), DiffContent::Text(new)) = (before, after) else {
        return format!("Binary files {a} and {b} differ\n");
    };
    // A name with a space is followed by a tab, so that a reader that expects a date after the name finds its end.
    let tab = |name: &str| if name.contains(' ') { "\t" } else { "" };
    let mut out = format!("--- {a}{}\n+++ {b}{}\n", tab(&a), tab(&b));
    let (old, new) = (TextLines::new(old), TextLines::new(new));
    for group in group_hunks(&compute_line_hunks(&old, &new), context) {
        push_group(&mut out, (&old, &new), group, context, skipped_lines);
    }
    out
}

/// Groups hunks whose contexts overlap or touch.
fn group_hunks(hunks: &[Hunk], context: usize) -> impl Iterator<Item = &[Hunk]> {
    hunks.chunk_by(move |previous, next| next.old.start - previous.old.end <= context.saturating_mul(2))
}

fn push_group(
    out: &mut String,
    (old, new): (&TextLines<'_>, &TextLines<'_>),
    group: &[Hunk],
    context: usize,
    skipped_lines: usize,
) {
    let (Some(first), Some(last)) = (group.first(), group.last()) else { return };
    let before = context.min(first.old.start);
    let after = context.min(old.len() - last.old.end);
    let old_lines = first.old.start - before..last.old.end + after;
    let new_lines = first.new.start - before..last.new.end + after;
    let [old_range, new_range] =
        [&old_lines, &new_lines].map(|lines| format_line_range(lines, skipped_lines));
    out.push_str(&format!("@@ -{old_range} +{new_range} @@\n"));
    let mut done = old_lines.start;
    for hunk in group {
        push_lines(out, ' ', old, done..hunk.old.start);
        push_lines(out, '-', old, hunk.old.clone());
        push_lines(out, '+', new, hunk.new.clone());
        done = hunk.old.end;
    }
    push_lines(out, ' ', old, done..old_lines.end);
}

fn push_lines(out: &mut String, sign: char, text: &TextLines<'_>, lines: Range<usize>) {
    for line in lines {
        let line = text.slice(line..line + 1);
        out.push(sign);
        out.push_str(line);
        if !line.ends_with('\n') {
            out.push_str("\n\\ No newline at end of file\n");
        }
    }
}

/// Returns a line range in the format's notation: counted from 1, an empty range at the line before it, and without a
/// count for a single line.
fn format_line_range(lines: &Range<usize>, skipped: usize) -> String {
    let start = skipped + lines.start;
    match lines.len() {
        0 => format!("{start},0"),
        1 => format!("{}", start + 1),
        count => format!("{},{count}", start + 1),
    }
}

fn git_mode(side: DiffSide<'_>) -> &'static str {
    if side.mode & 0o100 == 0 { "100644" } else { "100755" }
}

/// Returns a path as git writes it: quoted and escaped if it contains quotes, backslashes, control characters or
/// non-ASCII characters.
fn quote_path(prefix: &str, path: &str) -> String {
    let plain = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    if path.bytes().all(plain) {
        return [prefix, path].concat();
    }
    let mut out = format!("\"{prefix}");
    for byte in path.bytes() {
        match byte {
            _ if plain(byte) => out.push(char::from(byte)),
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            0x07 => out.push_str("\\a"),
            0x08 => out.push_str("\\b"),
            b'\t' => out.push_str("\\t"),
            b'\n' => out.push_str("\\n"),
            0x0b => out.push_str("\\v"),
            0x0c => out.push_str("\\f"),
            b'\r' => out.push_str("\\r"),
            _ => out.push_str(&format!("\\{byte:03o}")),
        }
    }
    out.push('"');
    out
}
