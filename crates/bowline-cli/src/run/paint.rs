//! Colours for a terminal, times for people, and text of others made safe for both.

use std::time::Duration;

use bowline_state::diff::{Body, FileDiff, Side, unified};
use bowline_state::display;

/// So much of one diff is shown: lines, and bytes.
const MAX_DIFF: (usize, usize) = (120, 32 << 10);

/// Whether there are colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Paint {
    /// As a terminal has them.
    Colours,
    /// None: a file, a pipe, or somebody who wants none.
    Plain,
}

impl Paint {
    /// Returns what a stream gets.
    pub(super) fn of(is_terminal: bool) -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        if is_terminal && !refused && !dumb { Self::Colours } else { Self::Plain }
    }

    fn with(self, code: &str, text: &str) -> String {
        match self {
            Self::Colours if !text.is_empty() => format!("\x1b[{code}m{text}\x1b[0m"),
            _ => text.to_owned(),
        }
    }

    pub(super) fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    pub(super) fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    pub(super) fn red(self, text: &str) -> String {
        self.with("31", text)
    }

    pub(super) fn green(self, text: &str) -> String {
        self.with("32", text)
    }

    pub(super) fn yellow(self, text: &str) -> String {
        self.with("33", text)
    }

    pub(super) fn cyan(self, text: &str) -> String {
        self.with("36", text)
    }

    /// Paints the lines of a patch, which may be indented.
    pub(super) fn patch_line(self, line: &str) -> String {
        match line.trim_start_matches(' ').as_bytes().first() {
            Some(b'+') => self.green(line),
            Some(b'-') => self.red(line),
            Some(b'@') => self.cyan(line),
            Some(b'!') => self.yellow(line),
            _ => line.to_owned(),
        }
    }

    /// Returns a change as the lines of a patch without its head, indented.
    pub(super) fn diff(self, before: Option<&str>, after: &str) -> String {
        let side = |text| Some(Side { body: Body::Text(text), mode: 0o644 });
        let patch =
            unified(&FileDiff { path: "", before: side(before.unwrap_or("")), after: side(after) }, 3);
        let start = patch.find("@@").unwrap_or(patch.len());
        let block = display::block(&patch[start..], MAX_DIFF.0, MAX_DIFF.1);
        // The first column says what a line is, so it is painted before it is indented.
        block.text.lines().map(|line| format!("    {}\n", self.patch_line(line))).collect()
    }
}

/// Returns text that a terminal shows as it is: nothing in it steers it. Lines and tabs stay.
pub(super) fn safe(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for piece in text.split_inclusive(['\n', '\t']) {
        let (body, end) = match piece.char_indices().next_back() {
            Some((at, '\n' | '\t')) => piece.split_at(at),
            _ => (piece, ""),
        };
        let body = if end == "\n" { body.strip_suffix('\r').unwrap_or(body) } else { body };
        safe += &display::line(body, usize::MAX);
        safe += end;
    }
    safe
}

/// Returns a time as a person reads it.
pub(super) fn time(duration: Duration) -> String {
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
        assert_eq!(safe("a\tb\r\nc\x1b[31m\u{202e}d\n"), "a\tb\nc\\u{1b}[31m\\u{202e}d\n");
        let long = "word ".repeat(10_000);
        assert_eq!(safe(&long), long);
    }

    #[test]
    fn times_are_short() {
        let times = [3, 1234, 59_999, 61_000, 3_600_000].map(|millis| time(Duration::from_millis(millis)));
        assert_eq!(times, ["3 ms", "1.2 s", "59.9 s", "1 min 1 s", "60 min 0 s"]);
    }

    #[test]
    fn a_change_is_painted_by_its_first_column() {
        let plain = Paint::Plain.diff(Some("a\nb\n"), "a\n- c\n");
        assert_eq!(plain, "    @@ -1,2 +1,2 @@\n     a\n    -b\n    +- c\n");
        let colours = Paint::Colours.diff(None, "x\n");
        assert_eq!(colours, "    \x1b[36m@@ -0,0 +1 @@\x1b[0m\n    \x1b[32m+x\x1b[0m\n");
    }
}
