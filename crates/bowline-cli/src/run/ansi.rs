//! Coloured patches, durations for people, and escaping of untrusted text.

use std::time::Duration;

use bowline_client::common::console::{OutputStyle, TextStyle};
use bowline_text::diff::{DiffContent, DiffSide, FileDiff, format_unified_diff};
use bowline_text::display;

/// The maximum size of a diff that is shown, in lines and bytes.
const MAX_DIFF_SIZE: (usize, usize) = (120, 32 << 10);

/// Colours a line of a patch, which may be indented.
pub(super) fn paint_patch_line(style: OutputStyle, line: &str) -> String {
    match line.trim_start_matches(' ').as_bytes().first() {
        Some(b'+') => style.paint(TextStyle::Good, line),
        Some(b'-') => style.paint(TextStyle::Bad, line),
        Some(b'@') => style.paint(TextStyle::Highlight, line),
        Some(b'!') => style.paint(TextStyle::Warning, line),
        _ => line.to_owned(),
    }
}

/// Renders a change as an indented patch without its header.
pub(super) fn render_diff(style: OutputStyle, before: Option<&str>, after: &str) -> String {
    let side = |text| Some(DiffSide { content: DiffContent::Text(text), mode: 0o644 });
    let patch = format_unified_diff(
        &FileDiff { path: "", before: side(before.unwrap_or("")), after: side(after) },
        3,
    );
    let start = patch.find("@@").unwrap_or(patch.len());
    let block = display::escape_block(&patch[start..], MAX_DIFF_SIZE.0, MAX_DIFF_SIZE.1);
    // The first column determines the colour, so a line is coloured before it is indented.
    block.text.lines().map(|line| format!("    {}\n", paint_patch_line(style, line))).collect()
}

/// Escapes text for a terminal. Line ends and tabs stay.
pub(super) fn escape_text(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for piece in text.split_inclusive(['\n', '\t']) {
        let (body, end) = match piece.char_indices().next_back() {
            Some((index, '\n' | '\t')) => piece.split_at(index),
            _ => (piece, ""),
        };
        let body = if end == "\n" { body.strip_suffix('\r').unwrap_or(body) } else { body };
        escaped += &display::escape_line(body, usize::MAX);
        escaped += end;
    }
    escaped
}

/// Formats a duration.
pub(super) fn format_duration(duration: Duration) -> String {
    match duration.as_millis() {
        millis @ 0..1000 => format!("{millis} ms"),
        millis @ 1000..60_000 => format!("{}.{} s", millis / 1000, millis % 1000 / 100),
        _ => format!("{} min {} s", duration.as_secs() / 60, duration.as_secs() % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_shown_instead() {
        assert_eq!(escape_text("a\tb\r\nc\x1b[31m\u{202e}d\n"), "a\tb\nc\\u{1b}[31m\\u{202e}d\n");
        let long = "word ".repeat(10_000);
        assert_eq!(escape_text(&long), long);
    }

    #[test]
    fn times_are_short() {
        let times =
            [3, 1234, 59_999, 61_000, 3_600_000].map(|millis| format_duration(Duration::from_millis(millis)));
        assert_eq!(times, ["3 ms", "1.2 s", "59.9 s", "1 min 1 s", "60 min 0 s"]);
    }

    #[test]
    fn a_change_is_painted_by_its_first_column() {
        let plain = render_diff(OutputStyle::PLAIN, Some("a\nb\n"), "a\n- c\n");
        assert_eq!(plain, "    @@ -1,2 +1,2 @@\n     a\n    -b\n    +- c\n");
        let colours = render_diff(OutputStyle { is_terminal: true, has_colour: true }, None, "x\n");
        assert_eq!(colours, "    \x1b[36m@@ -0,0 +1 @@\x1b[0m\n    \x1b[32m+x\x1b[0m\n");
    }
}
