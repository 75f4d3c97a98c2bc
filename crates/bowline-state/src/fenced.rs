//! Calls of tools that a model wrote as text, because it knows no better.
//!
//! Small local models are told of tools and answer with a fenced block of JSON, a bare object, or tags such as `<tool_call>` and
//! `<tools>`. A [`Sieve`] stands in the stream of such a model: text that may become a call is held back from the moment that it
//! begins until it is decided, and everything else passes at once.
//!
//! A model may also quote a call: from a file, a web page, the user. So only what a reply ends with is a call, and only if
//! the model was not just told the same text.

mod shape;

use std::ops::Range;

use self::shape::Scan;
pub use self::shape::calls;

/// Text that is held back is text after all when it becomes longer than this, in bytes.
pub const MAX_HELD: usize = 1 << 20;
/// No reply has more calls; what follows is left out.
pub const MAX_CALLS: usize = 64;

/// A call that was written as text.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The tool, one of those that the sieve knows.
    pub name: String,
    /// What it is called with: an object.
    pub input: serde_json::Value,
}

/// What is left when a reply has ended.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ending {
    /// Text that was held back and is no call.
    pub text: String,
    /// The calls.
    pub calls: Vec<Call>,
    /// The calls as they were written, with what the model made up as their results. A reply that has real calls too
    /// meant all of it as text.
    pub withheld: String,
}

/// Lets the text of a reply pass and keeps the calls in it back.
#[derive(Debug)]
pub struct Sieve {
    known: Vec<String>,
    pending: String,
    // So much of it is decided; what is pending begins there.
    done: usize,
    at: At,
    ending: Ending,
    // What the model was told before: a call in it is a quote.
    told: Vec<String>,
    // The beginning of what follows the last call, without blanks before it.
    behind: String,
    // Whether that is a result that the model made up. What follows is withheld too.
    made_up: bool,
}

/// Where in the text the pending part begins.
#[derive(Debug)]
enum At {
    /// The beginning of a line.
    Line,
    /// Inside of a line that passes.
    Passing,
    /// The beginning of a line in a fenced block that passes.
    Code(Fence),
    /// Inside of a line of such a block.
    CodePassing(Fence),
    /// The beginning of a fenced block that may be a call: how much was looked at.
    Fenced { fence: Fence, body: Option<usize>, looked: usize },
    /// The beginning of a JSON value that may be a call.
    Json(Scan),
    /// A tag that may enclose calls: how much was looked at.
    Tagged { looked: usize },
}

#[derive(Debug, Clone, Copy)]
struct Fence {
    mark: char,
    length: usize,
}

/// So much of what follows a call is looked at, in bytes.
const LOOKED_AT: usize = 64;
/// What results begin with that models make up, without marks and in lower case.
const MADE_UP: [&str; 11] = [
    "tool response",
    "tool result",
    "tool output",
    "function response",
    "function result",
    "function output",
    "observation:",
    "output:",
    "result:",
    "results:",
    "response:",
];
/// What a tag that encloses calls is called. Models close one with the name of another.
const TAGS: [&str; 5] = ["tools", "tool_call", "tool_calls", "function_call", "function_calls"];
/// As long as the longest closing tag is, in bytes.
const LONGEST_CLOSE: usize = "</function_calls>".len();

impl Sieve {
    /// Returns a sieve that knows these tools.
    #[must_use]
    pub fn new(known: Vec<String>) -> Self {
        Self {
            known,
            pending: String::new(),
            done: 0,
            at: At::Line,
            ending: Ending::default(),
            told: Vec::new(),
            behind: String::new(),
            made_up: false,
        }
    }

    /// Takes what the model was told before: what it repeats of that is a quote, and no call.
    #[must_use]
    pub fn quoting(mut self, told: impl IntoIterator<Item = String>) -> Self {
        self.told.extend(told.into_iter().map(|text| without_blanks(&text)));
        self
    }

    /// Takes more of a reply's text and returns what can be shown of it now.
    pub fn push(&mut self, text: &str) -> String {
        self.pending.push_str(text);
        let mut out = String::new();
        while self.step(&mut out, false) {}
        self.pending.drain(..self.done);
        self.done = 0;
        out
    }

    /// Takes the end of the reply.
    #[must_use]
    pub fn finish(mut self) -> Ending {
        let mut out = String::new();
        while self.step(&mut out, true) {}
        let rest = self.pending.len() - self.done;
        self.pass(&mut out, rest);
        self.judge(&mut out);
        Ending { text: out, ..self.ending }
    }

    /// Decides about the beginning of what is pending; says whether there may be more to decide.
    fn step(&mut self, out: &mut String, last: bool) -> bool {
        if self.pending.len() == self.done {
            return false;
        }
        match &mut self.at {
            At::Passing => self.rest_of_line(out, At::Line),
            At::CodePassing(fence) => {
                let fence = *fence;
                self.rest_of_line(out, At::Code(fence))
            }
            At::Code(fence) => {
                let fence = *fence;
                self.code_line(out, fence, last)
            }
            At::Line => self.line(out, last),
            At::Fenced { .. } => self.fenced(out, last),
            At::Json(_) => self.json(out, last),
            At::Tagged { .. } => self.tagged(out, last),
        }
    }

    /// Lets `length` bytes pass; after a call they are withheld, until it is clear what they are.
    fn pass(&mut self, out: &mut String, length: usize) {
        let text = &self.pending[self.done..self.done + length];
        self.done += length;
        if self.ending.calls.is_empty() {
            return out.push_str(text);
        }
        self.ending.withheld.push_str(text);
        if !self.made_up {
            let text = if self.behind.is_empty() { text.trim_start() } else { text };
            let room = LOOKED_AT.saturating_sub(self.behind.len());
            self.behind.push_str(&text[..text.ceil_char_boundary(room)]);
            if self.behind.len() >= LOOKED_AT || text.contains('\n') {
                self.judge(out);
            }
        }
    }

    /// Judges what follows the last call. If that is neither blank nor made up, the call was part of what is said.
    fn judge(&mut self, out: &mut String) {
        if self.behind.is_empty() || self.made_up {
            return;
        }
        if is_made_up(&self.behind) {
            self.made_up = true;
        } else {
            out.push_str(&std::mem::take(&mut self.ending.withheld));
            self.ending.calls.clear();
            self.behind.clear();
        }
    }

    fn rest_of_line(&mut self, out: &mut String, then: At) -> bool {
        let rest = &self.pending[self.done..];
        let end = memchr::memchr(b'\n', rest.as_bytes());
        self.pass(out, end.map_or(rest.len(), |end| end + 1));
        if end.is_some() {
            self.at = then;
        }
        end.is_some()
    }

    fn code_line(&mut self, out: &mut String, fence: Fence, last: bool) -> bool {
        let rest = &self.pending[self.done..];
        let end = memchr::memchr(b'\n', rest.as_bytes());
        let line = &rest[..end.unwrap_or(rest.len())];
        let closes = fence.is_closed_by(line);
        // A line that may still become the closing one is waited for.
        if end.is_none() && !last && line.len() < 64 && line.trim().chars().all(|c| c == fence.mark) {
            return false;
        }
        let length = end.map_or(rest.len(), |end| end + 1);
        self.pass(out, length);
        self.at = match (end, closes) {
            (Some(_), true) => At::Line,
            (Some(_), false) => At::Code(fence),
            (None, _) => At::CodePassing(fence),
        };
        true
    }

    fn line(&mut self, out: &mut String, last: bool) -> bool {
        let rest = &self.pending[self.done..];
        let indent = rest.len() - rest.trim_start_matches([' ', '\t']).len();
        let text = &rest[indent..];
        let begins_with = |word: &str| text.starts_with(word);
        let may_become = |word: &str| !last && text.len() < word.len() && word.starts_with(text);
        let mark = text.chars().next().filter(|mark| matches!(mark, '`' | '~'));
        let length = mark.map_or(0, |mark| text.len() - text.trim_start_matches(mark).len());
        if let Some(mark) = mark
            && length >= 3
        {
            self.at = At::Fenced { fence: Fence { mark, length }, body: None, looked: 0 };
        } else if begins_with("{") || begins_with("[") {
            self.at = At::Json(Scan::new(indent));
        } else if TAGS.iter().any(|tag| begins_with(&format!("<{tag}>"))) {
            self.at = At::Tagged { looked: 0 };
        } else if !last && (text.is_empty() || (mark.is_some() && length == text.len()))
            || TAGS.iter().any(|tag| may_become(&format!("<{tag}>")))
        {
            // Blanks before a line are held back too, but not more of them than an indentation has.
            if indent > 256 {
                self.pass(out, indent);
            }
            return false;
        } else {
            self.at = At::Passing;
        }
        true
    }

    fn fenced(&mut self, out: &mut String, last: bool) -> bool {
        let rest = &self.pending[self.done..];
        let At::Fenced { fence, body, looked } = &mut self.at else { return false };
        let fence = *fence;
        let begin = match *body {
            Some(begin) => begin,
            None => match memchr::memchr(b'\n', rest.as_bytes()) {
                Some(end) if may_hold_calls(&rest[..end], fence) => {
                    (*body, *looked) = (Some(end + 1), end + 1);
                    end + 1
                }
                // A language that no call is written in.
                Some(end) => return self.plain(out, end + 1, At::Code(fence)),
                None if last || rest.len() > 256 => return self.plain(out, 0, At::Passing),
                None => return false,
            },
        };
        let text = rest[begin..].trim_start();
        // Blanks alone are no call either, and are not looked through again and again.
        let blank = text.is_empty() && rest.len() - begin > 256;
        if blank || !text.is_empty() && !text.starts_with(['{', '[']) {
            return self.plain(out, begin, At::Code(fence));
        }
        while let Some(end) = memchr::memchr(b'\n', &rest.as_bytes()[*looked..]) {
            let line = *looked..*looked + end;
            *looked = line.end + 1;
            if fence.is_closed_by(&rest[line.clone()]) {
                let through = line.end + 1;
                return self.decide(out, begin..line.start, through);
            }
        }
        if last {
            // The closing line may have no end of its own, or may be missing.
            let line = *looked..rest.len();
            let end = if fence.is_closed_by(&rest[line.clone()]) { line.start } else { line.end };
            let through = rest.len();
            return self.decide(out, begin..end, through);
        }
        if rest.len() > MAX_HELD {
            return self.plain(out, begin, At::Code(fence));
        }
        false
    }

    fn json(&mut self, out: &mut String, last: bool) -> bool {
        let rest = &self.pending[self.done..];
        let At::Json(scan) = &mut self.at else { return false };
        match scan.look(rest) {
            shape::Seen::Whole(value) => {
                let through = value.end;
                self.decide(out, value, through)
            }
            shape::Seen::No => self.plain(out, 0, At::Passing),
            shape::Seen::More if last || rest.len() > MAX_HELD => self.plain(out, 0, At::Passing),
            shape::Seen::More => false,
        }
    }

    fn tagged(&mut self, out: &mut String, last: bool) -> bool {
        let rest = &self.pending[self.done..];
        let At::Tagged { looked } = &mut self.at else { return false };
        let begin = rest.find('>').map_or(0, |end| end + 1);
        let from = (*looked).max(begin);
        if let Some(close) = closing_tag(rest, from) {
            let body = unfenced(rest, begin..close.start);
            return self.decide(out, body, close.end);
        }
        if last {
            let (end, through) = (begin + without_cut_tag(&rest[begin..]).len(), rest.len());
            let body = unfenced(rest, begin..end);
            return self.decide(out, body, through);
        }
        if rest.len() > MAX_HELD {
            return self.plain(out, 0, At::Passing);
        }
        // A closing tag is ASCII, so a cut before any of its bytes is found again; the place need not be a character's.
        *looked = rest.len().saturating_sub(LONGEST_CLOSE);
        false
    }

    /// What was held back is text.
    fn plain(&mut self, out: &mut String, length: usize, then: At) -> bool {
        self.pass(out, length);
        self.at = then;
        true
    }

    /// Takes the calls out of what was held back, if it is calls; else lets it pass.
    fn decide(&mut self, out: &mut String, body: Range<usize>, through: usize) -> bool {
        let rest = &self.pending[self.done..];
        let found = calls(&rest[body.clone()], |name| self.known.iter().any(|known| known == name));
        let found = found.filter(|_| !self.made_up && !self.quotes(&rest[body]));
        let then = if rest[..through].ends_with('\n') { At::Line } else { At::Passing };
        match found {
            Some(found) => {
                self.ending.calls.extend(found);
                self.ending.calls.truncate(MAX_CALLS);
                self.ending.withheld.push_str(&rest[..through]);
                self.done += through;
                self.behind.clear();
                // Another call may stand on the same line.
                self.at = At::Line;
            }
            None => {
                self.pass(out, through);
                self.at = then;
            }
        }
        true
    }
}

impl Sieve {
    fn quotes(&self, body: &str) -> bool {
        if self.told.is_empty() {
            return false;
        }
        let body = without_blanks(body);
        self.told.iter().any(|told| memchr::memmem::find(told.as_bytes(), body.as_bytes()).is_some())
    }
}

/// Returns a text without its blanks: whoever quotes may indent.
fn without_blanks(text: &str) -> String {
    text.split_whitespace().collect()
}

/// Returns where the first closing tag is, from a byte on.
fn closing_tag(text: &str, from: usize) -> Option<Range<usize>> {
    let find = |tag: &str| {
        let close = format!("</{tag}>");
        let at = memchr::memmem::find(&text.as_bytes()[from..], close.as_bytes())?;
        Some(from + at..from + at + close.len())
    };
    TAGS.iter().filter_map(|tag| find(tag)).min_by_key(|close| close.start)
}

/// Returns a text without the beginning of a closing tag at its end: the reply was over before the tag was.
fn without_cut_tag(text: &str) -> &str {
    let text = text.trim_end();
    let Some(at) = text.rfind('<') else { return text };
    let is_cut = TAGS.iter().any(|tag| format!("</{tag}>").starts_with(&text[at..]));
    if is_cut { &text[..at] } else { text }
}

/// Returns what a fence in a range of a text encloses, if there is one; else the range itself.
fn unfenced(text: &str, range: Range<usize>) -> Range<usize> {
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

fn is_made_up(text: &str) -> bool {
    let line = text.lines().next().unwrap_or_default();
    let mark = |c: char| matches!(c, '<' | '>' | '[' | ']' | '`' | '~' | '#' | '*');
    let plain: String = line.chars().filter(|c| !mark(*c)).collect();
    let plain = plain.trim().to_lowercase().replace('_', " ");
    MADE_UP.iter().any(|begins| plain.starts_with(begins))
}

impl Fence {
    fn is_closed_by(self, line: &str) -> bool {
        let line = line.trim();
        line.len() >= self.length && line.chars().all(|c| c == self.mark)
    }
}

fn may_hold_calls(line: &str, fence: Fence) -> bool {
    const LANGUAGES: [&str; 9] =
        ["", "json", "jsonc", "json5", "tool_call", "tool_calls", "tool_code", "tool", "function_call"];
    let language = line.trim().trim_start_matches(fence.mark).trim();
    LANGUAGES.iter().any(|known| language.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests;
