//! What stands around calls and behind them: fences, tags, and results that models make up.

use std::ops::Range;

/// A fence: what it is made of, and how long it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fence {
    pub(super) mark: char,
    pub(super) length: usize,
}

/// What results begin with that models make up, without marks and in lower case.
const MADE_UP: [&str; 12] = [
    "tool response",
    "tool result",
    "tool output",
    "function response",
    "function result",
    "function output",
    "observation:",
    "output:",
    "result:",
    "result of ",
    "results:",
    "response:",
];
/// What a tag that encloses calls is called. Models close one with the name of another.
pub(super) const TAGS: [&str; 5] = ["tools", "tool_call", "tool_calls", "function_call", "function_calls"];
/// As long as the longest closing tag is, in bytes.
pub(super) const LONGEST_CLOSE: usize = "</function_calls>".len();

/// Returns where the first closing tag is, from a byte on.
pub(super) fn closing_tag(text: &str, from: usize) -> Option<Range<usize>> {
    let find = |tag: &str| {
        let close = format!("</{tag}>");
        let at = memchr::memmem::find(&text.as_bytes()[from..], close.as_bytes())?;
        Some(from + at..from + at + close.len())
    };
    TAGS.iter().filter_map(|tag| find(tag)).min_by_key(|close| close.start)
}

/// Returns a text without the beginning of a closing tag at its end: the reply was over before the tag was.
pub(super) fn without_cut_tag(text: &str) -> &str {
    let text = text.trim_end();
    let Some(at) = text.rfind('<') else { return text };
    let is_cut = TAGS.iter().any(|tag| format!("</{tag}>").starts_with(&text[at..]));
    if is_cut { &text[..at] } else { text }
}

/// Returns what a fence in a range of a text encloses, if there is one; else the range itself.
pub(super) fn unfenced(text: &str, range: Range<usize>) -> Range<usize> {
    let body = &text[range.clone()];
    let begin = range.start + (body.len() - body.trim_start().len());
    let end = range.start + body.trim_end().len();
    let mark = body.trim_start().chars().next().filter(|mark| matches!(mark, '`' | '~'));
    let Some(mark) = mark else { return range };
    let inner = &text[begin..end];
    let length = inner.len() - inner.trim_start_matches(mark).len();
    let (Some(first), Some(last)) = (inner.find('\n'), inner.rfind('\n')) else { return range };
    let fence = Fence { mark, length };
    let opens = length >= 3 && may_hold_calls(&inner[..first], fence);
    if opens && last > first && fence.is_closed_by(&inner[last..]) {
        begin + first + 1..begin + last
    } else {
        range
    }
}

/// Says whether a text begins as results do that models make up.
pub(super) fn is_made_up(text: &str) -> bool {
    let line = text.lines().next().unwrap_or_default();
    let mark = |c: char| matches!(c, '<' | '>' | '[' | ']' | '`' | '~' | '#' | '*');
    let plain: String = line.chars().filter(|c| !mark(*c)).collect();
    let plain = plain.trim().to_lowercase().replace('_', " ");
    MADE_UP.iter().any(|begins| plain.starts_with(begins))
}

impl Fence {
    /// Says whether a line closes it.
    pub(super) fn is_closed_by(self, line: &str) -> bool {
        let line = line.trim();
        line.len() >= self.length && line.chars().all(|c| c == self.mark)
    }
}

/// Says whether a fence that opens with this line may hold calls, by the language it names.
pub(super) fn may_hold_calls(line: &str, fence: Fence) -> bool {
    const LANGUAGES: [&str; 9] =
        ["", "json", "jsonc", "json5", "tool_call", "tool_calls", "tool_code", "tool", "function_call"];
    let language = line.trim().trim_start_matches(fence.mark).trim();
    LANGUAGES.iter().any(|known| language.eq_ignore_ascii_case(known))
}
