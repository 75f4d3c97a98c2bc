//! Text search over the same content as reads: the unsaved text of a document takes precedence over its file.
//!
//! The walker finds and opens the files, so ignore rules apply and no link is followed. A file is searched as a whole
//! in memory, so its size is capped; a file with a NUL counts as binary.

use std::collections::{BTreeMap, HashSet};
use std::io::Read as _;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::roots::{AdmittedPath, Roots};
use crate::walker::{
    self, EntryKind, IgnoreRulesCache, StartVisibility, WalkEntry, WalkOptions, WalkOrder, WalkStartOutcome,
    path_below,
};

mod lines;
mod query;

pub use crate::walker::IgnoredFiles;
pub use query::SearchError;

/// How a pattern is interpreted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatternKind {
    /// As literal text.
    Literal,
    /// As a regular expression, within one line.
    Regex,
}

/// Whether upper and lower case are distinguished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaseMode {
    /// Case matters.
    Sensitive,
    /// Case does not matter.
    Insensitive,
    /// Case matters only if the pattern has an upper-case letter.
    Smart,
}

/// How to treat secret files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretFiles {
    /// Skip and count them.
    Skip,
    /// Search them.
    Search,
}

/// The maximum number of matches of any search.
pub const MAX_MATCHES: usize = 100_000;
/// The maximum number of context lines on each side of a match.
pub const MAX_CONTEXT_LINES: usize = 50;
/// The maximum number of bytes shown of a line.
pub const MAX_LINE_BYTES: usize = 64 * 1024;

/// A search query.
#[derive(Debug, Clone)]
pub struct SearchQuery {
    /// The pattern.
    pub pattern: String,
    /// How it is interpreted.
    pub kind: PatternKind,
    /// Whether upper and lower case are distinguished.
    pub case: CaseMode,
    /// Globs, at least one of which a file has to match, unless there are none. A glob without `/` matches the file
    /// name, one with `/` the path relative to the root; one that ends in `/` matches everything in a directory.
    pub include: Vec<String>,
    /// Globs, none of which a file may match.
    pub exclude: Vec<String>,
    /// The number of context lines before and after a match; at most [`MAX_CONTEXT_LINES`].
    pub context: usize,
    /// The maximum number of matches; at most [`MAX_MATCHES`].
    pub max_matches: usize,
    /// The maximum number of bytes shown of a line; at most [`MAX_LINE_BYTES`].
    pub max_line_bytes: usize,
    /// The maximum size of a file.
    pub max_file_size: u64,
    /// How to treat ignored files.
    pub ignored: IgnoredFiles,
    /// How to treat secret files.
    pub secrets: SecretFiles,
    /// Stops the search early when it becomes true.
    pub stop: Option<Arc<AtomicBool>>,
}

impl SearchQuery {
    /// Returns a query for literal text, with the default limits.
    #[must_use]
    pub fn literal(pattern: impl Into<String>) -> Self {
        Self {
            pattern: pattern.into(),
            kind: PatternKind::Literal,
            case: CaseMode::Sensitive,
            include: Vec::new(),
            exclude: Vec::new(),
            context: 0,
            max_matches: 1_000,
            max_line_bytes: 1_000,
            max_file_size: 16 << 20,
            ignored: IgnoredFiles::Skip,
            secrets: SecretFiles::Skip,
            stop: None,
        }
    }

    /// Returns a query for a regular expression, with the default limits.
    #[must_use]
    pub fn regex(pattern: impl Into<String>) -> Self {
        Self { kind: PatternKind::Regex, ..Self::literal(pattern) }
    }
}

/// The unsaved texts of documents by canonical path, whether or not a file exists.
pub type UnsavedTexts = BTreeMap<String, Arc<String>>;

/// A matching line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchMatch {
    /// The file.
    pub path: String,
    /// The line, counted from 1.
    pub line: u64,
    /// The column of the first match, in characters counted from 1.
    pub column: u64,
    /// The line without its line end, or an excerpt around the match.
    pub text: String,
    /// Whether the text is an excerpt.
    pub is_truncated: bool,
    /// The lines before.
    pub before: Vec<String>,
    /// The lines after.
    pub after: Vec<String>,
}

/// The numbers of files skipped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SkippedFiles {
    /// Binary files.
    pub binary: u64,
    /// Files that are too large.
    pub too_large: u64,
    /// Secret files.
    pub secret: u64,
    /// Files that could not be read.
    pub unreadable: u64,
}

/// The result of a search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SearchResult {
    /// The matching lines, by path and line.
    pub matches: Vec<SearchMatch>,
    /// The number of files and documents searched.
    pub files_searched: u64,
    /// Whether there may be more matches.
    pub truncated: bool,
    /// The numbers of files skipped.
    pub skipped: SkippedFiles,
}

/// Searches the files below the roots, and the documents.
///
/// # Errors
/// Returns an error if the pattern or a glob is invalid, or if there is nothing to search.
pub fn search(
    roots: &Roots,
    query: &SearchQuery,
    under: Option<&AdmittedPath>,
    unsaved: &UnsavedTexts,
) -> Result<SearchResult, SearchError> {
    let matcher = query::compile_pattern(query)?;
    let globs = query::SearchGlobs::new(&query.include, &query.exclude)?;
    let lines = lines::LineSearcher::new(matcher, query);
    let mut search = Search { roots, query, under, unsaved, globs, lines, result: SearchResult::default() };
    search.search_unsaved_documents();
    search.search_files();
    let mut result = search.result;
    if let Some(under) = under
        && result.files_searched == 0
        && !under.exists()
    {
        return Err(SearchError::NotFound(under.canonical().to_owned()));
    }
    result.matches.sort_by(|one, other| {
        let key = |found: &SearchMatch| found.line;
        one.path.split('/').cmp(other.path.split('/')).then(key(one).cmp(&key(other)))
    });
    Ok(result)
}

struct Search<'s> {
    roots: &'s Roots,
    query: &'s SearchQuery,
    under: Option<&'s AdmittedPath>,
    unsaved: &'s UnsavedTexts,
    globs: query::SearchGlobs,
    lines: lines::LineSearcher,
    result: SearchResult,
}

impl Search<'_> {
    fn walk_options(&self) -> WalkOptions {
        WalkOptions { ignored: self.query.ignored, order: WalkOrder::ByName, ..WalkOptions::default() }
    }

    fn search_files(&mut self) {
        let (roots, under, options) = (self.roots, self.under, self.walk_options());
        let mut visit = |entry: &WalkEntry<'_>| self.search_entry(entry);
        let report = match under {
            Some(under) => walker::walk_below(roots, under, &options, &mut visit),
            None => walker::walk(roots, &options, &mut visit),
        };
        self.result.truncated |= report.truncated;
    }

    /// Searches documents that the walk does not reach: those never saved, or whose file is gone.
    fn search_unsaved_documents(&mut self) {
        let (unsaved, options) = (self.unsaved, WalkOptions { max_entries: 1, ..self.walk_options() });
        let mut rules = IgnoreRulesCache::default();
        let mut shows = |path: &str| {
            let inside = self.under.is_none_or(|under| path_below(path, under.canonical()).is_some());
            let mut keep_on = |_: &WalkEntry<'_>| ControlFlow::Continue(());
            inside
                && walker::walk_from(
                    self.roots,
                    path,
                    StartVisibility::RulesApply,
                    &options,
                    &mut rules,
                    &mut keep_on,
                )
                .0 == WalkStartOutcome::Missing
        };
        let new: HashSet<&str> = unsaved.keys().map(String::as_str).filter(|path| shows(path)).collect();
        for (path, text) in unsaved {
            if new.contains(path.as_str())
                && self.should_search(path)
                && self.search_text(path, text.as_bytes()).is_break()
            {
                return;
            }
        }
    }

    fn search_entry(&mut self, entry: &WalkEntry<'_>) -> ControlFlow<()> {
        if entry.kind() != EntryKind::File || !self.should_search(entry.path()) {
            return ControlFlow::Continue(());
        }
        if let Some(text) = self.unsaved.get(entry.path()) {
            return self.search_text(entry.path(), text.as_bytes());
        }
        if entry.stamp().size > self.query.max_file_size {
            self.result.skipped.too_large += 1;
            return ControlFlow::Continue(());
        }
        let Some(bytes) = self.read_entry(entry) else { return ControlFlow::Continue(()) };
        self.search_text(entry.path(), &bytes)
    }

    /// Returns whether a path is to be searched, judging by its name.
    fn should_search(&mut self, path: &str) -> bool {
        let Some((_, way)) = walker::find_root(self.roots, path) else { return false };
        if !self.globs.matches(way) {
            return false;
        }
        // Directories above the root do not make a file secret: the user chose the root.
        let secret = self.query.secrets == SecretFiles::Skip && walker::is_secret(way);
        self.result.skipped.secret += u64::from(secret);
        !secret
    }

    fn read_entry(&mut self, entry: &WalkEntry<'_>) -> Option<Vec<u8>> {
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

    fn search_text(&mut self, path: &str, bytes: &[u8]) -> ControlFlow<()> {
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
        self.result.truncated |= found.has_more;
        if found.has_more { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

#[cfg(test)]
mod tests;
