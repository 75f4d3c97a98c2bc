//! The matching lines of one text, with their context.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io;

use bowline_text::text::decode;
use grep_matcher::{LineTerminator, Matcher as _};
use grep_regex::RegexMatcher;
use grep_searcher::{MmapChoice, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};

use super::{MAX_CONTEXT_LINES, MAX_LINE_BYTES, MAX_MATCHES, SearchMatch, SearchQuery};

/// A pattern, and the limits of its matches.
pub(super) struct LineSearcher {
    matcher: RegexMatcher,
    searcher: Searcher,
    context: usize,
    max_matches: usize,
    max_line_bytes: usize,
}

/// The matches of one text.
pub(super) struct TextMatches {
    pub(super) matches: Vec<SearchMatch>,
    /// Whether there is at least one more match than the limit.
    pub(super) has_more: bool,
}

impl LineSearcher {
    pub(super) fn new(matcher: RegexMatcher, query: &SearchQuery) -> Self {
        let context = query.context.min(MAX_CONTEXT_LINES);
        let searcher = SearcherBuilder::new()
            .line_terminator(LineTerminator::crlf())
            .line_number(true)
            .before_context(context)
            .after_context(context)
            .memory_map(MmapChoice::never())
            .build();
        Self {
            matcher,
            searcher,
            context,
            max_matches: query.max_matches.min(MAX_MATCHES),
            max_line_bytes: query.max_line_bytes.min(MAX_LINE_BYTES),
        }
    }

    /// Searches a text, given the number of matches in earlier texts. Returns `None` if it is binary.
    pub(super) fn search(&mut self, path: &str, bytes: &[u8], so_far: usize) -> Option<TextMatches> {
        // UTF-16 is full of NULs, so it is decoded first; in UTF-8, a single NUL means binary.
        let bytes = if std::str::from_utf8(bytes).is_ok() {
            if memchr::memchr(0, bytes).is_some() {
                return None;
            }
            Cow::Borrowed(bytes)
        } else {
            Cow::Owned(decode(bytes.to_owned()).ok()?.text.into_bytes())
        };
        let mut sink = MatchCollector {
            path,
            matcher: &self.matcher,
            context: self.context,
            max_matches: self.max_matches.saturating_sub(so_far),
            max_line_bytes: self.max_line_bytes,
            context_before: VecDeque::new(),
            result: TextMatches { matches: Vec::new(), has_more: false },
        };
        // A search in memory fails only if the sink does, and this one does not.
        match self.searcher.search_slice(&self.matcher, &bytes, &mut sink) {
            Ok(()) => Some(sink.result),
            Err(_) => None,
        }
    }
}

struct MatchCollector<'c> {
    path: &'c str,
    matcher: &'c RegexMatcher,
    context: usize,
    max_matches: usize,
    max_line_bytes: usize,
    // The preceding consecutive lines, at most `context`.
    context_before: VecDeque<String>,
    result: TextMatches,
}

impl MatchCollector<'_> {
    /// Adds a line, matching or not, to the context of its neighbours.
    fn add_context_line(&mut self, line: &[u8]) {
        if self.context == 0 {
            return;
        }
        let (text, _) = truncate_line(line, 0, self.max_line_bytes);
        // Only the last `context` matches can still lack lines after them.
        for found in self.result.matches.iter_mut().rev().take(self.context) {
            if found.after.len() < self.context {
                found.after.push(text.clone());
            }
        }
        if self.context_before.len() == self.context {
            self.context_before.pop_front();
        }
        self.context_before.push_back(text);
    }
}

impl Sink for MatchCollector<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        if self.result.matches.len() >= self.max_matches {
            self.result.has_more = true;
            return Ok(false);
        }
        let line = strip_line_end(found.bytes());
        // The line matches, so there is a match; a match of the line end alone is at the end.
        let at = self.matcher.find(line)?;
        let start = at.map_or(line.len(), |at| at.start());
        let before = self.context_before.iter().cloned().collect();
        self.add_context_line(line);
        let (text, cut) = truncate_line(line, start, self.max_line_bytes);
        self.result.matches.push(SearchMatch {
            path: self.path.to_owned(),
            line: found.line_number().unwrap_or_default(),
            column: String::from_utf8_lossy(&line[..start]).chars().count() as u64 + 1,
            text,
            is_truncated: cut,
            before,
            after: Vec::new(),
        });
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, line: &SinkContext<'_>) -> Result<bool, io::Error> {
        self.add_context_line(strip_line_end(line.bytes()));
        Ok(true)
    }

    fn context_break(&mut self, _: &Searcher) -> Result<bool, io::Error> {
        self.context_before.clear();
        Ok(true)
    }
}

fn strip_line_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Returns a line, or an excerpt that begins a little before `start`, and whether it is an excerpt.
fn truncate_line(line: &[u8], start: usize, max_bytes: usize) -> (String, bool) {
    if line.len() <= max_bytes {
        return (String::from_utf8_lossy(line).into_owned(), false);
    }
    let last = line.len() - max_bytes;
    let mut from = start.saturating_sub(max_bytes / 4).min(last);
    let mut to = from + max_bytes;
    // Cuts between characters: a continuation byte does not begin one.
    let goes_on = |at: usize| line.get(at).is_some_and(|byte| byte & 0xc0 == 0x80);
    while from < to && goes_on(from) {
        from += 1;
    }
    while to > from && goes_on(to) {
        to -= 1;
    }
    (String::from_utf8_lossy(&line[from..to]).into_owned(), true)
}
