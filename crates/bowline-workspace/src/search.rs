//! Text search over the same content as reads: the unsaved text of a document takes precedence over its file.
//!
//! The walker finds and opens the files, so ignore rules apply and no link is followed. A file is searched as a whole
//! in memory, so its size is capped; a file with a NUL counts as binary.
//!
//! One thread walks and opens, another reads and matches, in the same order.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{self, Read as _};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use bowline_policy::paths::path_below;

use crate::roots::{AdmittedPath, Roots};
use crate::walker::{
    self, EntryKind, EntryMetadata, IgnoreRulesCache, StartVisibility, WalkEntry, WalkOptions, WalkOrder,
    WalkStartOutcome,
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
    /// Case matters only if the pattern has an upper-case letter.
    Smart,
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
    let selector = FileSelector { roots, query, under, unsaved, globs };
    let mut search = TextSearch { query, lines, result: SearchResult::default() };
    selector.search_unsaved_documents(&mut search);
    selector.search_files(&mut search);
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

/// How many files one thread hands to the other at a time.
const BATCH_FILES: usize = 32;
/// How many batches may wait; their files are open.
const MAX_WAITING_BATCHES: usize = 3;

/// A file to be searched.
struct SelectedFile {
    path: String,
    // Where the path below its root begins.
    below: usize,
    source: TextSource,
}

/// Where the text of a file is.
enum TextSource {
    Unsaved(Arc<String>),
    File(io::Result<File>),
}

/// Selects the files to be searched.
struct FileSelector<'s> {
    roots: &'s Roots,
    query: &'s SearchQuery,
    under: Option<&'s AdmittedPath>,
    unsaved: &'s UnsavedTexts,
    globs: query::SearchGlobs,
}

impl FileSelector<'_> {
    fn walk_options(&self) -> WalkOptions {
        WalkOptions {
            ignored: self.query.ignored,
            order: WalkOrder::ByName,
            metadata: EntryMetadata::Type,
            ..WalkOptions::default()
        }
    }

    fn search_files(&self, search: &mut TextSearch<'_>) {
        let (roots, options) = (self.roots, self.walk_options());
        let (sender, receiver) = mpsc::sync_channel::<Vec<SelectedFile>>(MAX_WAITING_BATCHES);
        let matcher = &mut *search;
        let report = thread::scope(|scope| {
            // When the search ends early, the receiver is dropped, and sending fails.
            scope.spawn(move || {
                receiver.into_iter().flatten().try_for_each(|file| matcher.search_selected(file)).is_break()
            });
            let mut batch = Vec::new();
            let mut visit = |entry: &WalkEntry<'_>| {
                batch.extend(self.select_entry(entry));
                if batch.len() < BATCH_FILES {
                    return ControlFlow::Continue(());
                }
                match sender.send(std::mem::take(&mut batch)) {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(_) => ControlFlow::Break(()),
                }
            };
            let report = match self.under {
                Some(under) => walker::walk_below(roots, under, &options, &mut visit),
                None => walker::walk(roots, &options, &mut visit),
            };
            sender.send(batch).ok();
            drop(sender);
            report
        });
        search.result.truncated |= report.truncated;
    }

    /// Searches documents that the walk does not reach: those never saved, or whose file is gone.
    fn search_unsaved_documents(&self, search: &mut TextSearch<'_>) {
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
        for path in unsaved.keys().filter(|path| new.contains(path.as_str())) {
            let selected = self.select(path, || Err(io::ErrorKind::NotFound.into()));
            if selected.is_some_and(|file| search.search_selected(file).is_break()) {
                return;
            }
        }
    }

    fn select_entry(&self, entry: &WalkEntry<'_>) -> Option<SelectedFile> {
        if entry.kind() != EntryKind::File {
            return None;
        }
        self.select(entry.path(), || entry.open_unchecked())
    }

    /// Selects a file by its path, unless no glob matches. An unsaved text takes precedence over the file.
    fn select(&self, path: &str, open: impl FnOnce() -> io::Result<File>) -> Option<SelectedFile> {
        let (_, way) = walker::find_root(self.roots, path)?;
        if !self.globs.matches(way) {
            return None;
        }
        let unsaved = self.unsaved.get(path).cloned();
        let source = unsaved.map_or_else(|| TextSource::File(open()), TextSource::Unsaved);
        Some(SelectedFile { path: path.to_owned(), below: path.len() - way.len(), source })
    }
}

/// Searches the selected files, one after the other.
struct TextSearch<'s> {
    query: &'s SearchQuery,
    lines: lines::LineSearcher,
    result: SearchResult,
}

impl TextSearch<'_> {
    fn search_selected(&mut self, SelectedFile { path, below, source }: SelectedFile) -> ControlFlow<()> {
        let skipped = &mut self.result.skipped;
        // Directories above the root do not make a file secret: the user chose the root. This is checked here rather
        // than when the file is selected, because the walk is what takes longest.
        if walker::is_secret(&path[below..]) {
            skipped.secret += 1;
            return ControlFlow::Continue(());
        }
        match source {
            TextSource::Unsaved(text) => return self.search_text(&path, text.as_bytes()),
            TextSource::File(opened) => {
                let limit = self.query.max_file_size;
                let read =
                    |file: File| read_at_most(&file, walker::stamp_of_regular_file(&file)?.size, limit);
                match opened.and_then(read) {
                    Ok(Some(bytes)) => return self.search_text(&path, &bytes),
                    Ok(None) => skipped.too_large += 1,
                    Err(_) => skipped.unreadable += 1,
                }
            }
        }
        ControlFlow::Continue(())
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

/// Reads a file whose expected size is given, or returns `None` if it has more than `limit` bytes.
fn read_at_most(mut file: &File, size: u64, limit: u64) -> io::Result<Option<Vec<u8>>> {
    if size > limit {
        return Ok(None);
    }
    // One byte more than expected: then one read usually finds the end as well.
    let mut bytes = vec![0; usize::try_from(size + 1).unwrap_or_default()];
    let mut length = 0;
    while length < bytes.len() {
        match file.read(&mut bytes[length..]) {
            Ok(read) => {
                length += read;
                // A regular file is read in part only at its end.
                if read == 0 || length as u64 == size {
                    break;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let has_grown = length == bytes.len();
    bytes.truncate(length);
    if has_grown {
        file.take((limit + 1).saturating_sub(length as u64)).read_to_end(&mut bytes)?;
    }
    Ok(Some(bytes).filter(|bytes| bytes.len() as u64 <= limit))
}

#[cfg(test)]
mod tests;
