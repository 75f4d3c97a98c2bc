//! Calls of tools that a model wrote as text, because it knows no better.
//!
//! Small local models are told of tools and answer with a fenced block of JSON, a bare object, or tags such as `<tool_call>` and
//! `<tools>`. A [`Sieve`] stands in the stream of such a model: text that may become a call is held back from the moment that it
//! begins until it is decided, and everything else passes at once.
//!
//! A model may also quote a call: from a file, a web page, the user. So only what a reply ends with is a call, and only if
//! the model was not just told the same text.
//!
//! Models that are told in words how to call ([`Sieve::by_words`]) also call tools that there are none of, and go on and on
//! with calls whose results they have not seen. Of those the first block of calls counts, and then the reply is over.

mod marks;
mod shape;

use std::ops::Range;

use self::marks::{
    Fence, LONGEST_CLOSE, TAGS, closing_tag, is_made_up, may_hold_calls, unfenced, without_cut_tag,
};
use self::shape::Scan;
pub use self::shape::repaired;

/// Text that is held back is text after all when it becomes longer than this, in bytes.
pub const MAX_HELD: usize = 1 << 20;
/// No reply has more calls; what follows is left out.
pub const MAX_CALLS: usize = 64;

/// A call that was written as text.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The tool: one of those that the sieve knows, unless the model calls by words.
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
    // Whether the model was told in words how to call.
    by_words: bool,
    // What the last call was in.
    block: Block,
    // Whether there are words before the calls.
    said: bool,
    // Whether nothing more of the reply counts.
    over: bool,
}

/// What calls are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block {
    /// Bare objects, one after the other.
    Bare,
    /// Between marks.
    Marked,
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

/// So much of what follows a call is looked at, in bytes.
const LOOKED_AT: usize = 64;

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
            by_words: false,
            block: Block::Bare,
            said: false,
            over: false,
        }
    }

    /// Is for a model that was told in words how to call.
    #[must_use]
    pub fn by_words(self) -> Self {
        Self { by_words: true, ..self }
    }

    /// Says whether nothing that follows counts: the model goes on as if it had seen results. It need not be listened to.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over || self.made_up
    }

    /// Takes what the model was told before: what it repeats of that is a quote, and no call.
    #[must_use]
    pub fn quoting(mut self, told: impl IntoIterator<Item = String>) -> Self {
        self.told.extend(told.into_iter().map(|text| without_blanks(&text)));
        self
    }

    /// Takes more of a reply's text and returns what can be shown of it now.
    pub fn push(&mut self, text: &str) -> String {
        if self.over {
            self.ending.withheld.push_str(text);
            return String::new();
        }
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
        if self.over {
            let rest = self.pending.len() - self.done;
            self.pass(out, rest);
        }
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
            self.said |= !text.trim().is_empty();
            return out.push_str(text);
        }
        self.ending.withheld.push_str(text);
        if !self.made_up && !self.over {
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
        } else if self.behind.trim().chars().all(|c| matches!(c, '`' | '~')) {
            // A fence that was never opened.
            self.behind.clear();
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
                return self.decide(out, begin..line.start, through, Block::Marked);
            }
        }
        if last {
            // The closing line may have no end of its own, or may be missing.
            let line = *looked..rest.len();
            let end = if fence.is_closed_by(&rest[line.clone()]) { line.start } else { line.end };
            let through = rest.len();
            return self.decide(out, begin..end, through, Block::Marked);
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
                self.decide(out, value, through, Block::Bare)
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
            return self.decide(out, body, close.end, Block::Marked);
        }
        if last {
            let (end, through) = (begin + without_cut_tag(&rest[begin..]).len(), rest.len());
            let body = unfenced(rest, begin..end);
            return self.decide(out, body, through, Block::Marked);
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
    fn decide(&mut self, out: &mut String, body: Range<usize>, through: usize, block: Block) -> bool {
        let rest = &self.pending[self.done..];
        let knows = |name: &str| self.known.iter().any(|known| known == name);
        let found = shape::read(&rest[body.clone()], &knows, self.by_words);
        let found = found.filter(|_| !self.made_up && !self.quotes(&rest[body]));
        let then = if rest[..through].ends_with('\n') { At::Line } else { At::Passing };
        match found {
            Some(found) => {
                let is_next =
                    self.ending.calls.is_empty() || (block, self.block) == (Block::Bare, Block::Bare);
                let is_again = found.iter().any(|call| self.ending.calls.contains(call));
                // Who explains calls writes several, with words before them and behind.
                self.over = self.by_words && !self.said && (!is_next || is_again);
                if !self.over {
                    self.block = block;
                    self.ending.calls.extend(found);
                    self.ending.calls.truncate(MAX_CALLS);
                }
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

#[cfg(test)]
mod tests;
