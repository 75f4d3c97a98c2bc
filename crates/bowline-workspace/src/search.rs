//! Searches texts through the same truth as reads: the unsaved text of a document goes before its file.
//!
//! Files are found and opened by the walk, so ignore rules count and no link is followed. A file is searched whole, from
//! memory, so it has a largest size; one with a NUL in it is taken for binary.

use std::collections::{BTreeMap, HashSet};
use std::io::Read as _;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::roots::{Admitted, Roots};
use crate::walker::{self, Arrival, Entry, Kind, Order, RulesCache, Start, WalkOptions, below};

mod lines;
mod query;

pub use crate::walker::Ignored;
pub use query::SearchError;

/// How a pattern is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// As it is written.
    Literal,
    /// As a regular expression, within one line.
    Regex,
}

/// Whether upper and lower case are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// They are not.
    Sensitive,
    /// They are.
    Insensitive,
    /// They are, if the pattern has no letter in upper case.
    Smart,
}

/// What to do with files that are protected from being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secrets {
    /// They are left out, and counted.
    Skip,
    /// They are searched.
    Search,
}

/// A search has at most this many matches, whatever it asks for.
pub const MAX_MATCHES: usize = 100_000;
/// A match has at most this many lines around it on each side, whatever it asks for.
pub const MAX_CONTEXT: usize = 50;
/// A line is shown up to this many bytes, whatever it asks for.
pub const MAX_LINE_BYTES: usize = 64 * 1024;

/// What is searched for, and where.
#[derive(Debug, Clone)]
pub struct SearchQuery {
    /// The pattern.
    pub pattern: String,
    /// How it is meant.
    pub kind: Pattern,
    /// Whether upper and lower case are the same.
    pub case: Case,
    /// Globs, one of which a file has to match if there are any. One without `/` is for the name alone, one with `/`
    /// for the way from the root; one that ends in `/` is for all that is in a directory.
    pub include: Vec<String>,
    /// Globs, none of which a file may match.
    pub exclude: Vec<String>,
    /// How many lines before and after a match are shown; at most [`MAX_CONTEXT`].
    pub context: usize,
    /// How many matches are shown; at most [`MAX_MATCHES`].
    pub max_matches: usize,
    /// How many bytes of a line are shown; at most [`MAX_LINE_BYTES`].
    pub max_line_bytes: usize,
    /// How large a file may be.
    pub max_file_size: u64,
    /// What to do with what ignore rules hide.
    pub ignored: Ignored,
    /// What to do with files that are protected from being read.
    pub secrets: Secrets,
    /// Ends the search early when it becomes true.
    pub stop: Option<Arc<AtomicBool>>,
}

impl SearchQuery {
    /// Returns a search for a text as it is written, with the usual bounds.
    #[must_use]
    pub fn literal(pattern: impl Into<String>) -> Self {
        Self {
            pattern: pattern.into(),
            kind: Pattern::Literal,
            case: Case::Sensitive,
            include: Vec::new(),
            exclude: Vec::new(),
            context: 0,
            max_matches: 1_000,
            max_line_bytes: 1_000,
            max_file_size: 16 << 20,
            ignored: Ignored::Skip,
            secrets: Secrets::Skip,
            stop: None,
        }
    }

    /// Returns a search for a regular expression, with the usual bounds.
    #[must_use]
    pub fn regex(pattern: impl Into<String>) -> Self {
        Self { kind: Pattern::Regex, ..Self::literal(pattern) }
    }
}

/// The unsaved texts of documents, by path without links, whether or not there is a file.
pub type Unsaved = BTreeMap<String, Arc<String>>;

/// A line that matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    /// The file.
    pub path: String,
    /// The line, counted from 1.
    pub line: u64,
    /// Where the first match in it begins, in characters counted from 1.
    pub column: u64,
    /// The line without its end, or the part of it around the match.
    pub text: String,
    /// Whether it is only a part.
    pub cut: bool,
    /// The lines before.
    pub before: Vec<String>,
    /// The lines after.
    pub after: Vec<String>,
}

/// How many files were left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Because they are binary.
    pub binary: u64,
    /// Because they are too large.
    pub too_large: u64,
    /// Because they are protected from being read.
    pub secret: u64,
    /// Because the system refuses.
    pub unreadable: u64,
}

/// What a search found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SearchResult {
    /// The lines that match, by path and line.
    pub matches: Vec<Match>,
    /// How many files and documents were searched.
    pub files_searched: u64,
    /// Whether there may be more.
    pub truncated: bool,
    /// How many files were left out.
    pub skipped: Skipped,
}

/// Searches the files below the roots, and the documents.
///
/// # Errors
/// Returns what is wrong with the pattern or a glob, or that there is nothing to search.
pub fn search(
    roots: &Roots,
    query: &SearchQuery,
    under: Option<&Admitted>,
    unsaved: &Unsaved,
) -> Result<SearchResult, SearchError> {
    let matcher = query::matcher(query)?;
    let globs = query::Globs::new(&query.include, &query.exclude)?;
    let lines = lines::Lines::new(matcher, query);
    let mut search = Search { roots, query, under, unsaved, globs, lines, result: SearchResult::default() };
    search.documents_without_files();
    search.files();
    let mut result = search.result;
    if let Some(under) = under
        && result.files_searched == 0
        && !under.exists()
    {
        return Err(SearchError::NotFound(under.canonical().to_owned()));
    }
    result.matches.sort_by(|one, other| {
        let key = |found: &Match| found.line;
        one.path.split('/').cmp(other.path.split('/')).then(key(one).cmp(&key(other)))
    });
    Ok(result)
}

struct Search<'s> {
    roots: &'s Roots,
    query: &'s SearchQuery,
    under: Option<&'s Admitted>,
    unsaved: &'s Unsaved,
    globs: query::Globs,
    lines: lines::Lines,
    result: SearchResult,
}

impl Search<'_> {
    fn options(&self) -> WalkOptions {
        WalkOptions { ignored: self.query.ignored, order: Order::ByName, ..WalkOptions::default() }
    }

    fn files(&mut self) {
        let (roots, under, options) = (self.roots, self.under, self.options());
        let mut visit = |entry: &Entry<'_>| self.entry(entry);
        let report = match under {
            Some(under) => walker::walk_below(roots, under, &options, &mut visit),
            None => walker::walk(roots, &options, &mut visit),
        };
        self.result.truncated |= report.truncated;
    }

    /// Searches what no walk comes by: documents that were never saved, or whose file is gone.
    fn documents_without_files(&mut self) {
        let (unsaved, options) = (self.unsaved, WalkOptions { max_entries: 1, ..self.options() });
        let mut rules = RulesCache::default();
        let mut shows = |path: &str| {
            let inside = self.under.is_none_or(|under| below(path, under.canonical()).is_some());
            let mut keep_on = |_: &Entry<'_>| ControlFlow::Continue(());
            inside
                && walker::walk_from(self.roots, path, Start::Found, &options, &mut rules, &mut keep_on).0
                    == Arrival::Missing
        };
        let new: HashSet<&str> = unsaved.keys().map(String::as_str).filter(|path| shows(path)).collect();
        for (path, text) in unsaved {
            if new.contains(path.as_str()) && self.wants(path) && self.text(path, text.as_bytes()).is_break()
            {
                return;
            }
        }
    }

    fn entry(&mut self, entry: &Entry<'_>) -> ControlFlow<()> {
        if entry.kind() != Kind::File || !self.wants(entry.path()) {
            return ControlFlow::Continue(());
        }
        if let Some(text) = self.unsaved.get(entry.path()) {
            return self.text(entry.path(), text.as_bytes());
        }
        if entry.stamp().size > self.query.max_file_size {
            self.result.skipped.too_large += 1;
            return ControlFlow::Continue(());
        }
        let Some(bytes) = self.read(entry) else { return ControlFlow::Continue(()) };
        self.text(entry.path(), &bytes)
    }

    /// Says whether a path is to be searched, by its name.
    fn wants(&mut self, path: &str) -> bool {
        let Some((_, way)) = walker::root_of(self.roots, path) else { return false };
        if !self.globs.want(way) {
            return false;
        }
        // Names above the root do not count: the user chose it.
        let secret = self.query.secrets == Secrets::Skip && walker::is_secret(way);
        self.result.skipped.secret += u64::from(secret);
        !secret
    }

    fn read(&mut self, entry: &Entry<'_>) -> Option<Vec<u8>> {
        let limit = self.query.max_file_size;
        let read = entry.open().and_then(|(file, stamp)| {
            let mut bytes = Vec::with_capacity(usize::try_from(stamp.size.min(limit)).unwrap_or_default());
            file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
            Ok(bytes)
        });
        match read {
            Ok(bytes) if bytes.len() as u64 > limit => {
                self.result.skipped.too_large += 1;
                None
            }
            Ok(bytes) => Some(bytes),
            Err(_) => {
                self.result.skipped.unreadable += 1;
                None
            }
        }
    }

    fn text(&mut self, path: &str, bytes: &[u8]) -> ControlFlow<()> {
        if self.query.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            self.result.truncated = true;
            return ControlFlow::Break(());
        }
        let Some(found) = self.lines.search(path, bytes, self.result.matches.len()) else {
            self.result.skipped.binary += 1;
            return ControlFlow::Continue(());
        };
        self.result.files_searched += 1;
        self.result.matches.extend(found.matches);
        self.result.truncated |= found.more;
        if found.more { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

#[cfg(test)]
mod tests;
