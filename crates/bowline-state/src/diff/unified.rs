//! Differences of files as text, in the format that `git diff` writes and `git apply` reads.

use std::ops::Range;

use super::{Hunk, Lines, hunks_of};
use crate::changes::ContentHash;

/// What became of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileDiff<'a> {
    /// The file, relative to the directory that the difference is for, with `/` between its components.
    pub path: &'a str,
    /// The file before; none if there was none.
    pub before: Option<Side<'a>>,
    /// The file after; none if there is none.
    pub after: Option<Side<'a>>,
}

/// A file on one side of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Side<'a> {
    /// What is in it.
    pub body: Body<'a>,
    /// Its permission bits. Of these the format knows only whether the owner may execute the file.
    pub mode: u32,
}

/// What is in a file, as far as a difference can show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body<'a> {
    /// Text.
    Text(&'a str),
    /// Bytes that are not text or not at hand. Their hash tells whether they changed.
    Opaque(ContentHash),
}

/// Returns the difference with some lines of context around each change, or nothing if there is none that the format
/// can show.
///
/// Bodies that are not text are only said to differ, and `git apply` refuses that.
#[must_use]
pub fn unified(file: &FileDiff<'_>, context: usize) -> String {
    let lines = [mode_lines(file), body_lines(file, context)].concat();
    if lines.is_empty() {
        return lines;
    }
    format!("diff --git {} {}\n{lines}", quoted("a/", file.path), quoted("b/", file.path))
}

fn mode_lines(file: &FileDiff<'_>) -> String {
    match (file.before.map(git_mode), file.after.map(git_mode)) {
        (Some(old), Some(new)) if old != new => format!("old mode {old}\nnew mode {new}\n"),
        (None, Some(new)) => format!("new file mode {new}\n"),
        (Some(old), None) => format!("deleted file mode {old}\n"),
        (Some(_), Some(_)) | (None, None) => String::new(),
    }
}

fn body_lines(file: &FileDiff<'_>, context: usize) -> String {
    let [before, after] = [file.before, file.after].map(|side| side.map_or(Body::Text(""), |side| side.body));
    if before == after {
        return String::new();
    }
    let name = |side: Option<Side<'_>>, prefix| {
        side.map_or_else(|| "/dev/null".to_owned(), |_| quoted(prefix, file.path))
    };
    let (a, b) = (name(file.before, "a/"), name(file.after, "b/"));
    let (Body::Text(old), Body::Text(new)) = (before, after) else {
        return format!("Binary files {a} and {b} differ\n");
    };
    // A name with a space is followed by a tab, so that a reader that expects a date after the name finds its end.
    let tab = |name: &str| if name.contains(' ') { "\t" } else { "" };
    let mut out = format!("--- {a}{}\n+++ {b}{}\n", tab(&a), tab(&b));
    let (old, new) = (Lines::of(old), Lines::of(new));
    for group in grouped(&hunks_of(&old, &new), context) {
        push_group(&mut out, &old, &new, group, context);
    }
    out
}

/// Cuts hunks into groups that are shown together because their contexts meet.
fn grouped(hunks: &[Hunk], context: usize) -> impl Iterator<Item = &[Hunk]> {
    hunks.chunk_by(move |one, next| next.old.start - one.old.end <= context.saturating_mul(2))
}

fn push_group(out: &mut String, old: &Lines<'_>, new: &Lines<'_>, group: &[Hunk], context: usize) {
    let (Some(first), Some(last)) = (group.first(), group.last()) else { return };
    let before = context.min(first.old.start);
    let after = context.min(old.len() - last.old.end);
    let old_lines = first.old.start - before..last.old.end + after;
    let new_lines = first.new.start - before..last.new.end + after;
    out.push_str(&format!("@@ -{} +{} @@\n", position(&old_lines), position(&new_lines)));
    let mut done = old_lines.start;
    for hunk in group {
        push_lines(out, ' ', old, done..hunk.old.start);
        push_lines(out, '-', old, hunk.old.clone());
        push_lines(out, '+', new, hunk.new.clone());
        done = hunk.old.end;
    }
    push_lines(out, ' ', old, done..old_lines.end);
}

fn push_lines(out: &mut String, sign: char, text: &Lines<'_>, lines: Range<usize>) {
    for line in lines {
        let line = text.slice(line..line + 1);
        out.push(sign);
        out.push_str(line);
        if !line.ends_with('\n') {
            out.push_str("\n\\ No newline at end of file\n");
        }
    }
}

/// Returns lines as the format counts them: from 1, but no lines are at the one before them, and one line needs no
/// count.
fn position(lines: &Range<usize>) -> String {
    match lines.len() {
        0 => format!("{},0", lines.start),
        1 => format!("{}", lines.start + 1),
        count => format!("{},{count}", lines.start + 1),
    }
}

fn git_mode(side: Side<'_>) -> &'static str {
    if side.mode & 0o100 == 0 { "100644" } else { "100755" }
}

/// Returns a name as git writes it: in quotes and with escapes if it has quotes, backslashes, control characters or
/// anything but ASCII.
fn quoted(prefix: &str, path: &str) -> String {
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
