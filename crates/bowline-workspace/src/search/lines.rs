//! The lines of one text that match, with the lines around them.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io;

use bowline_state::text::decode;
use grep_matcher::{LineTerminator, Matcher as _};
use grep_regex::RegexMatcher;
use grep_searcher::{MmapChoice, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};

use super::{MAX_CONTEXT, MAX_LINE_BYTES, MAX_MATCHES, Match, SearchQuery};

/// A pattern, and how its matches are shown.
pub(super) struct Lines {
    matcher: RegexMatcher,
    searcher: Searcher,
    context: usize,
    max_matches: usize,
    max_line_bytes: usize,
}

/// What one text has.
pub(super) struct Found {
    pub(super) matches: Vec<Match>,
    /// Whether there is one more than may be shown.
    pub(super) more: bool,
}

impl Lines {
    pub(super) fn new(matcher: RegexMatcher, query: &SearchQuery) -> Self {
        let context = query.context.min(MAX_CONTEXT);
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

    /// Searches a text, while `so_far` matches are there from others. Returns nothing if it is binary.
    pub(super) fn search(&mut self, path: &str, bytes: &[u8], so_far: usize) -> Option<Found> {
        // UTF-16 is full of NULs; of other bytes one is enough to tell.
        let bytes = if std::str::from_utf8(bytes).is_ok() {
            if memchr::memchr(0, bytes).is_some() {
                return None;
            }
            Cow::Borrowed(bytes)
        } else {
            Cow::Owned(decode(bytes.to_owned()).ok()?.text.into_bytes())
        };
        let mut sink = Collector {
            path,
            matcher: &self.matcher,
            context: self.context,
            room: self.max_matches.saturating_sub(so_far),
            max_line_bytes: self.max_line_bytes,
            recent: VecDeque::new(),
            found: Found { matches: Vec::new(), more: false },
        };
        // From memory, nothing can fail but the sink, which does not.
        match self.searcher.search_slice(&self.matcher, &bytes, &mut sink) {
            Ok(()) => Some(sink.found),
            Err(_) => None,
        }
    }
}

struct Collector<'c> {
    path: &'c str,
    matcher: &'c RegexMatcher,
    context: usize,
    room: usize,
    max_line_bytes: usize,
    // The last lines before this one with none left out in between, at most `context`.
    recent: VecDeque<String>,
    found: Found,
}

impl Collector<'_> {
    /// Takes in a line that is shown, be it a match or not.
    fn take_in(&mut self, line: &[u8]) {
        if self.context == 0 {
            return;
        }
        let (text, _) = shown(line, 0, self.max_line_bytes);
        // Only the last matches can still be short of lines, as each line after them was given to all.
        for found in self.found.matches.iter_mut().rev().take(self.context) {
            if found.after.len() < self.context {
                found.after.push(text.clone());
            }
        }
        if self.recent.len() == self.context {
            self.recent.pop_front();
        }
        self.recent.push_back(text);
    }
}

impl Sink for Collector<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        if self.found.matches.len() >= self.room {
            self.found.more = true;
            return Ok(false);
        }
        let line = without_end(found.bytes());
        // The line matches, so there is a match; one of its end alone is at its end.
        let at = self.matcher.find(line)?;
        let start = at.map_or(line.len(), |at| at.start());
        let before = self.recent.iter().cloned().collect();
        self.take_in(line);
        let (text, cut) = shown(line, start, self.max_line_bytes);
        self.found.matches.push(Match {
            path: self.path.to_owned(),
            line: found.line_number().unwrap_or_default(),
            column: String::from_utf8_lossy(&line[..start]).chars().count() as u64 + 1,
            text,
            cut,
            before,
            after: Vec::new(),
        });
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, line: &SinkContext<'_>) -> Result<bool, io::Error> {
        self.take_in(without_end(line.bytes()));
        Ok(true)
    }

    fn context_break(&mut self, _: &Searcher) -> Result<bool, io::Error> {
        self.recent.clear();
        Ok(true)
    }
}

fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Returns a line, or the part of it that begins a little before `start`, and whether it is only a part.
fn shown(line: &[u8], start: usize, max_bytes: usize) -> (String, bool) {
    if line.len() <= max_bytes {
        return (String::from_utf8_lossy(line).into_owned(), false);
    }
    let last = line.len() - max_bytes;
    let mut from = start.saturating_sub(max_bytes / 4).min(last);
    let mut to = from + max_bytes;
    // Between characters: a byte that goes on from another does not begin one.
    let goes_on = |at: usize| line.get(at).is_some_and(|byte| byte & 0xc0 == 0x80);
    while from < to && goes_on(from) {
        from += 1;
    }
    while to > from && goes_on(to) {
        to -= 1;
    }
    (String::from_utf8_lossy(&line[from..to]).into_owned(), true)
}
