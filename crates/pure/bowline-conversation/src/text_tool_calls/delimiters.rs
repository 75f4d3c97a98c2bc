//! The delimiters of calls, and the results that models make up after them: fences, tags, phrases.

use std::ops::Range;

/// A fence: its character and its length.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CodeFence {
    pub(crate) mark: char,
    pub(crate) length: usize,
}

/// The beginnings of results that models make up, without punctuation and in lower case.
const INVENTED_RESULT_PREFIXES: [&str; 12] = [
    "tool response", "tool result", "tool output", "function response", "function result", "function output",
    "observation:", "output:", "result:", "result of ", "results:", "response:",
];
/// The names of tags that enclose calls. Models close one with the name of another.
pub(super) const CALL_TAGS: [&str; 5] =
    ["tools", "tool_call", "tool_calls", "function_call", "function_calls"];
/// The length of the longest closing tag, in bytes.
pub(super) const MAX_CLOSING_TAG_BYTES: usize = "</function_calls>".len();

/// Returns the range of the first closing tag after an offset.
pub(super) fn find_closing_tag(text: &str, from: usize) -> Option<Range<usize>> {
    let find = |tag: &str| {
        let close = format!("</{tag}>");
        let at = memchr::memmem::find(&text.as_bytes()[from..], close.as_bytes())?;
        Some(from + at..from + at + close.len())
    };
    CALL_TAGS.iter().filter_map(|tag| find(tag)).min_by_key(|close| close.start)
}

/// Returns a text without a partial closing tag at its end, where the reply was cut off.
pub(super) fn strip_partial_closing_tag(text: &str) -> &str {
    let text = text.trim_end();
    let Some(at) = text.rfind('<') else { return text };
    let is_cut = CALL_TAGS.iter().any(|tag| format!("</{tag}>").starts_with(&text[at..]));
    if is_cut { &text[..at] } else { text }
}

/// Returns the content of a fence inside a range of a text, if there is one; else the range itself.
pub(super) fn strip_fence(text: &str, range: Range<usize>) -> Range<usize> {
    let body = &text[range.clone()];
    let begin = range.start + (body.len() - body.trim_start().len());
    let end = range.start + body.trim_end().len();
    let mark = body.trim_start().chars().next().filter(|mark| matches!(mark, '`' | '~'));
    let Some(mark) = mark else { return range };
    let inner = &text[begin..end];
    let length = inner.len() - inner.trim_start_matches(mark).len();
    let (Some(first), Some(last)) = (inner.find('\n'), inner.rfind('\n')) else { return range };
    let fence = CodeFence { mark, length };
    let opens = length >= 3 && can_hold_calls(&inner[..first], fence);
    if opens && last > first && fence.is_closed_by(&inner[last..]) {
        begin + first + 1..begin + last
    } else {
        range
    }
}

/// Returns whether a text begins like a result that a model made up.
pub(super) fn is_invented_result(text: &str) -> bool {
    let line = text.lines().next().unwrap_or_default();
    let is_markup = |c: char| matches!(c, '<' | '>' | '[' | ']' | '`' | '~' | '#' | '*');
    let plain: String = line.chars().filter(|c| !is_markup(*c)).collect();
    let plain = plain.trim().to_lowercase().replace('_', " ");
    INVENTED_RESULT_PREFIXES.iter().any(|prefix| plain.starts_with(prefix))
}

impl CodeFence {
    /// Returns whether a line closes it.
    pub(crate) fn is_closed_by(self, line: &str) -> bool {
        let line = line.trim();
        line.len() >= self.length && line.chars().all(|c| c == self.mark)
    }
}

/// Returns whether a fence that opens with this line may hold calls, by its language.
pub(super) fn can_hold_calls(line: &str, fence: CodeFence) -> bool {
    const LANGUAGES: [&str; 9] =
        ["", "json", "jsonc", "json5", "tool_call", "tool_calls", "tool_code", "tool", "function_call"];
    let language = line.trim().trim_start_matches(fence.mark).trim();
    LANGUAGES.iter().any(|known| language.eq_ignore_ascii_case(known))
}
