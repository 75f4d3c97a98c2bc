//! Tool calls that a model writes as text.
//!
//! Small local models are given tools and answer with a fenced block of JSON, a bare object, or tags such as
//! `<tool_call>` and `<tools>`. A [`ToolCallExtractor`] filters the stream of such a model: text that may become a
//! call is held back from its first character until it is decided, and all other text passes at once.
//!
//! A model may also quote a call: from a file, a web page, the user. So only a call at the end of a reply counts, and
//! only if the same text is not in the prompt.
//!
//! Models that get their instructions for calls as text ([`ToolCallExtractor::with_text_instructions`]) also call
//! tools that do not exist, and continue with calls whose results they have not seen. For those only the first block
//! of calls counts, and then the reply is over.

mod delimiters;
mod parse;

use std::ops::Range;

pub(crate) use self::delimiters::CodeFence;
use self::delimiters::{
    CALL_TAGS, MAX_CLOSING_TAG_BYTES, can_hold_calls, find_closing_tag, is_invented_result, strip_fence,
    strip_partial_closing_tag,
};
use self::parse::JsonScanner;

/// The maximum length of held-back text, in bytes; longer text is not a call.
pub const MAX_HELD_BYTES: usize = 1 << 20;
/// The maximum number of calls in a reply; further ones are dropped.
pub const MAX_CALLS: usize = 64;

/// A tool call that was written as text.
#[derive(Debug, Clone, PartialEq)]
pub struct TextToolCall {
    /// The tool: one of the extractor's known tools, unless the model has text instructions.
    pub name: String,
    /// Its input: an object.
    pub input: serde_json::Value,
}

/// The result of extraction at the end of a reply.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ExtractionOutcome {
    /// Held-back text that is not a call.
    pub text: String,
    /// The calls.
    pub calls: Vec<TextToolCall>,
    /// The calls as written, with the results that the model made up. If the reply also has real calls, all of this
    /// was meant as text.
    pub withheld: String,
}

/// Passes the text of a reply through and holds back the calls in it.
#[derive(Debug)]
pub struct ToolCallExtractor {
    known_tools: Vec<String>,
    pending: String,
    // The length of the decided part of `pending`.
    consumed: usize,
    state: ExtractorState,
    outcome: ExtractionOutcome,
    // The texts of the prompt: a call found in them is a quote.
    prompt_texts: Vec<String>,
    // The beginning of the text after the last call, without leading blanks.
    trailing_text: String,
    // Whether that text is a result that the model made up. The rest is then withheld too.
    has_invented_result: bool,
    // Whether the model has text instructions for calls.
    is_text_instructed: bool,
    // The enclosure of the last call.
    last_enclosure: CallEnclosure,
    // Whether text precedes the calls.
    has_text_before_calls: bool,
    // Whether the rest of the reply is ignored.
    ignores_rest: bool,
}

/// The enclosure of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallEnclosure {
    /// Bare objects, one after the other.
    Bare,
    /// Between fences or tags.
    Delimited,
}

/// The state at the beginning of the pending text.
#[derive(Debug)]
enum ExtractorState {
    /// The beginning of a line.
    LineStart,
    /// Inside a line that passes.
    TextLine,
    /// The beginning of a line in a fenced block that passes.
    CodeLineStart(CodeFence),
    /// Inside a line of such a block.
    CodeLine(CodeFence),
    /// The beginning of a fenced block that may be a call, and how much of it was scanned.
    Fenced { fence: CodeFence, body: Option<usize>, scanned: usize },
    /// The beginning of a JSON value that may be a call.
    Json(JsonScanner),
    /// A tag that may enclose calls, and how much was scanned.
    Tagged { scanned: usize },
}

/// The number of marks after which a fence is taken as it is.
const MAX_FENCE_MARKS: usize = 256;

/// The maximum length of the text after a call that is examined, in bytes.
const MAX_TRAILING_BYTES: usize = 64;

impl ToolCallExtractor {
    /// Creates an extractor that knows these tools.
    #[must_use]
    pub fn new(known_tools: Vec<String>) -> Self {
        Self {
            known_tools,
            pending: String::new(),
            consumed: 0,
            state: ExtractorState::LineStart,
            outcome: ExtractionOutcome::default(),
            prompt_texts: Vec::new(),
            trailing_text: String::new(),
            has_invented_result: false,
            is_text_instructed: false,
            last_enclosure: CallEnclosure::Bare,
            has_text_before_calls: false,
            ignores_rest: false,
        }
    }

    /// Configures it for a model with text instructions for calls.
    #[must_use]
    pub fn with_text_instructions(self) -> Self {
        Self { is_text_instructed: true, ..self }
    }

    /// Returns whether the rest of the reply is ignored, because the model continues as if it had seen results.
    /// Reading it can stop.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.ignores_rest || self.has_invented_result
    }

    /// Adds texts of the prompt: a call that repeats them is a quote.
    #[must_use]
    pub fn with_prompt_texts(mut self, texts: impl IntoIterator<Item = String>) -> Self {
        self.prompt_texts.extend(texts.into_iter().map(|text| remove_whitespace(&text)));
        self
    }

    /// Adds text of a reply and returns the part that can be shown now.
    pub fn push(&mut self, text: &str) -> String {
        if self.ignores_rest {
            self.outcome.withheld.push_str(text);
            return String::new();
        }
        self.pending.push_str(text);
        let mut out = String::new();
        while self.advance(&mut out, false) {}
        self.pending.drain(..self.consumed);
        self.consumed = 0;
        out
    }

    /// Ends the reply.
    #[must_use]
    pub fn finish(mut self) -> ExtractionOutcome {
        let mut out = String::new();
        while self.advance(&mut out, true) {}
        let rest = self.pending.len() - self.consumed;
        self.pass_through(&mut out, rest);
        self.judge_trailing_text(&mut out);
        ExtractionOutcome { text: out, ..self.outcome }
    }

    /// Decides on the beginning of the pending text; returns whether there may be more to decide.
    fn advance(&mut self, out: &mut String, last: bool) -> bool {
        if self.ignores_rest {
            let rest = self.pending.len() - self.consumed;
            self.pass_through(out, rest);
        }
        if self.pending.len() == self.consumed {
            return false;
        }
        match &mut self.state {
            ExtractorState::TextLine => self.pass_line(out, ExtractorState::LineStart),
            ExtractorState::CodeLine(fence) => {
                let fence = *fence;
                self.pass_line(out, ExtractorState::CodeLineStart(fence))
            }
            ExtractorState::CodeLineStart(fence) => {
                let fence = *fence;
                self.pass_code_line(out, fence, last)
            }
            ExtractorState::LineStart => self.classify_line(out, last),
            ExtractorState::Fenced { .. } => self.scan_fence(out, last),
            ExtractorState::Json(_) => self.scan_json(out, last),
            ExtractorState::Tagged { .. } => self.scan_tag(out, last),
        }
    }

    /// Passes `length` bytes through; after a call they are withheld until it is clear what they are.
    fn pass_through(&mut self, out: &mut String, length: usize) {
        let text = &self.pending[self.consumed..self.consumed + length];
        self.consumed += length;
        if self.outcome.calls.is_empty() {
            self.has_text_before_calls |= !text.trim().is_empty();
            return out.push_str(text);
        }
        self.outcome.withheld.push_str(text);
        if !self.has_invented_result && !self.ignores_rest {
            let text = if self.trailing_text.is_empty() { text.trim_start() } else { text };
            let room = MAX_TRAILING_BYTES.saturating_sub(self.trailing_text.len());
            self.trailing_text.push_str(&text[..text.ceil_char_boundary(room)]);
            if self.trailing_text.len() >= MAX_TRAILING_BYTES || text.contains('\n') {
                self.judge_trailing_text(out);
            }
        }
    }

    /// Examines the text after the last call. If it is neither blank nor a made-up result, the call was part of the
    /// prose.
    fn judge_trailing_text(&mut self, out: &mut String) {
        if self.trailing_text.is_empty() || self.has_invented_result {
            return;
        }
        if is_invented_result(&self.trailing_text) {
            self.has_invented_result = true;
        } else if self.trailing_text.trim().chars().all(|c| matches!(c, '`' | '~')) {
            // A closing fence that was never opened.
            self.trailing_text.clear();
        } else {
            out.push_str(&std::mem::take(&mut self.outcome.withheld));
            self.outcome.calls.clear();
            self.trailing_text.clear();
        }
    }

    fn pass_line(&mut self, out: &mut String, next_state: ExtractorState) -> bool {
        let rest = &self.pending[self.consumed..];
        let end = memchr::memchr(b'\n', rest.as_bytes());
        self.pass_through(out, end.map_or(rest.len(), |end| end + 1));
        if end.is_some() {
            self.state = next_state;
        }
        end.is_some()
    }

    fn pass_code_line(&mut self, out: &mut String, fence: CodeFence, last: bool) -> bool {
        let rest = &self.pending[self.consumed..];
        let end = memchr::memchr(b'\n', rest.as_bytes());
        let line = &rest[..end.unwrap_or(rest.len())];
        let closes = fence.is_closed_by(line);
        // Waits for a line that may still become the closing one.
        if end.is_none() && !last && line.len() < 64 && line.trim().chars().all(|c| c == fence.mark) {
            return false;
        }
        let length = end.map_or(rest.len(), |end| end + 1);
        self.pass_through(out, length);
        self.state = match (end, closes) {
            (Some(_), true) => ExtractorState::LineStart,
            (Some(_), false) => ExtractorState::CodeLineStart(fence),
            (None, _) => ExtractorState::CodeLine(fence),
        };
        true
    }

    fn classify_line(&mut self, out: &mut String, last: bool) -> bool {
        let rest = &self.pending[self.consumed..];
        let indent = rest.len() - rest.trim_start_matches([' ', '\t']).len();
        let text = &rest[indent..];
        let begins_with = |word: &str| text.starts_with(word);
        let may_become = |word: &str| !last && text.len() < word.len() && word.starts_with(text);
        let mark = text.chars().next().filter(|mark| matches!(mark, '`' | '~'));
        let length = mark.map_or(0, |mark| text.len() - text.trim_start_matches(mark).len());
        // A fence that more marks may still follow is not complete.
        let is_complete = last || length < text.len() || length > MAX_FENCE_MARKS;
        if let Some(mark) = mark
            && length >= 3
            && is_complete
        {
            self.state = ExtractorState::Fenced { fence: CodeFence { mark, length }, body: None, scanned: 0 };
        } else if begins_with("{") || begins_with("[") {
            self.state = ExtractorState::Json(JsonScanner::new(indent));
        } else if CALL_TAGS.iter().any(|tag| begins_with(&format!("<{tag}>"))) {
            self.state = ExtractorState::Tagged { scanned: 0 };
        } else if !last && (text.is_empty() || (mark.is_some() && length == text.len()))
            || CALL_TAGS.iter().any(|tag| may_become(&format!("<{tag}>")))
        {
            // Blanks before a line are held back too, up to a plausible indentation.
            if indent > 256 {
                self.pass_through(out, indent);
            }
            return false;
        } else {
            self.state = ExtractorState::TextLine;
        }
        true
    }

    fn scan_fence(&mut self, out: &mut String, last: bool) -> bool {
        let rest = &self.pending[self.consumed..];
        let ExtractorState::Fenced { fence, body, scanned } = &mut self.state else { return false };
        let fence = *fence;
        let begin = match *body {
            Some(begin) => begin,
            None => match memchr::memchr(b'\n', rest.as_bytes()) {
                Some(end) if can_hold_calls(&rest[..end], fence) => {
                    (*body, *scanned) = (Some(end + 1), end + 1);
                    end + 1
                }
                // A language that no call is written in.
                Some(end) => return self.pass_as_text(out, end + 1, ExtractorState::CodeLineStart(fence)),
                None if last || rest.len() > 256 => {
                    return self.pass_as_text(out, 0, ExtractorState::TextLine);
                }
                None => return false,
            },
        };
        let text = rest[begin..].trim_start();
        // Blanks alone are not a call either, and are not scanned repeatedly.
        let blank = text.is_empty() && rest.len() - begin > 256;
        if blank || !text.is_empty() && !text.starts_with(['{', '[']) {
            return self.pass_as_text(out, begin, ExtractorState::CodeLineStart(fence));
        }
        while let Some(end) = memchr::memchr(b'\n', &rest.as_bytes()[*scanned..]) {
            let line = *scanned..*scanned + end;
            *scanned = line.end + 1;
            if fence.is_closed_by(&rest[line.clone()]) {
                let through = line.end + 1;
                return self.extract_calls(out, begin..line.start, through, CallEnclosure::Delimited);
            }
        }
        if last {
            // The closing line may lack its line end, or be missing.
            let line = *scanned..rest.len();
            let end = if fence.is_closed_by(&rest[line.clone()]) { line.start } else { line.end };
            let through = rest.len();
            return self.extract_calls(out, begin..end, through, CallEnclosure::Delimited);
        }
        if rest.len() > MAX_HELD_BYTES {
            return self.pass_as_text(out, begin, ExtractorState::CodeLineStart(fence));
        }
        false
    }

    fn scan_json(&mut self, out: &mut String, last: bool) -> bool {
        let rest = &self.pending[self.consumed..];
        let ExtractorState::Json(scan) = &mut self.state else { return false };
        match scan.scan(rest) {
            parse::JsonScanOutcome::Complete(value) => {
                let through = value.end;
                self.extract_calls(out, value, through, CallEnclosure::Bare)
            }
            parse::JsonScanOutcome::NotACall => self.pass_as_text(out, 0, ExtractorState::TextLine),
            parse::JsonScanOutcome::Incomplete if last || rest.len() > MAX_HELD_BYTES => {
                self.pass_as_text(out, 0, ExtractorState::TextLine)
            }
            parse::JsonScanOutcome::Incomplete => false,
        }
    }

    fn scan_tag(&mut self, out: &mut String, last: bool) -> bool {
        let rest = &self.pending[self.consumed..];
        let ExtractorState::Tagged { scanned } = &mut self.state else { return false };
        let begin = rest.find('>').map_or(0, |end| end + 1);
        let from = (*scanned).max(begin);
        if let Some(close) = find_closing_tag(rest, from) {
            let body = strip_fence(rest, begin..close.start);
            return self.extract_calls(out, body, close.end, CallEnclosure::Delimited);
        }
        if last {
            let (end, through) = (begin + strip_partial_closing_tag(&rest[begin..]).len(), rest.len());
            let body = strip_fence(rest, begin..end);
            return self.extract_calls(out, body, through, CallEnclosure::Delimited);
        }
        if rest.len() > MAX_HELD_BYTES {
            return self.pass_as_text(out, 0, ExtractorState::TextLine);
        }
        // A closing tag is ASCII, so one that is split anywhere is found again; the offset need not be a character
        // boundary.
        *scanned = rest.len().saturating_sub(MAX_CLOSING_TAG_BYTES);
        false
    }

    /// Passes held-back text through as ordinary text.
    fn pass_as_text(&mut self, out: &mut String, length: usize, next_state: ExtractorState) -> bool {
        self.pass_through(out, length);
        self.state = next_state;
        true
    }

    /// Extracts the calls from held-back text, if it consists of calls; otherwise passes it through.
    fn extract_calls(
        &mut self,
        out: &mut String,
        body: Range<usize>,
        through: usize,
        block: CallEnclosure,
    ) -> bool {
        let rest = &self.pending[self.consumed..];
        let is_known = |name: &str| self.known_tools.iter().any(|known| known == name);
        let found = parse::parse_calls(&rest[body.clone()], &is_known, self.is_text_instructed);
        let found = found.filter(|_| !self.has_invented_result && !self.is_quoted(&rest[body]));
        let next_state = if rest[..through].ends_with('\n') {
            ExtractorState::LineStart
        } else {
            ExtractorState::TextLine
        };
        match found {
            Some(found) => {
                let is_next = self.outcome.calls.is_empty()
                    || (block, self.last_enclosure) == (CallEnclosure::Bare, CallEnclosure::Bare);
                let is_again = found.iter().any(|call| self.outcome.calls.contains(call));
                // A model that explains calls writes several, with prose before and after them.
                self.ignores_rest =
                    self.is_text_instructed && !self.has_text_before_calls && (!is_next || is_again);
                if !self.ignores_rest {
                    self.last_enclosure = block;
                    self.outcome.calls.extend(found);
                    self.outcome.calls.truncate(MAX_CALLS);
                }
                self.outcome.withheld.push_str(&rest[..through]);
                self.consumed += through;
                self.trailing_text.clear();
                // Another call may follow on the same line.
                self.state = ExtractorState::LineStart;
            }
            None => {
                self.pass_through(out, through);
                self.state = next_state;
            }
        }
        true
    }

    fn is_quoted(&self, body: &str) -> bool {
        if self.prompt_texts.is_empty() {
            return false;
        }
        let body = remove_whitespace(body);
        self.prompt_texts.iter().any(|text| memchr::memmem::find(text.as_bytes(), body.as_bytes()).is_some())
    }
}

/// Returns a text without white space: a quote may be indented.
fn remove_whitespace(text: &str) -> String {
    text.split_whitespace().collect()
}

#[cfg(test)]
mod tests;
