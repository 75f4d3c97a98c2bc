//! The read ledger: what a session last saw of each file, and which writes that permits.
//!
//! A write is based on the text that the session *knows*, not on the file's content. After its own write a session
//! knows the text it sent, even if that was merged with the user's changes: were the merged text its base, its next
//! write, which lacks the user's lines, would look like their removal.
//!
//! Windows that together cover a file count as reading it whole. A session that read a part may change only lines of
//! that part.

use std::borrow::Cow;
use std::iter;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use indexmap::IndexMap;

use crate::documents::Document;
use bowline_text::diff;
use bowline_text::hash::ContentHash;
use bowline_text::merge::{MergeConflict, merge};
use bowline_text::text::fit_line_endings;

/// The maximum total size of the held texts in bytes. Beyond it, only the identity of the oldest texts is kept.
pub const MAX_HELD_BYTES: usize = 64 << 20;

/// The maximum number of files in a ledger; the least recently seen is dropped first.
pub const MAX_FILES: usize = 10_000;

/// The maximum number of separate ranges remembered for a file that is read in windows.
pub const MAX_READ_RANGES: usize = 256;

/// The version of a text: equal numbers mean equal texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TextVersion(pub u64);

/// The files that one session saw.
#[derive(Debug, Default)]
pub struct Ledger {
    // Invariant: ordered by the last access, oldest first.
    files: IndexMap<String, LedgerEntry>,
    // Invariant: the total bytes of all texts in `files`.
    held_bytes: usize,
}

/// What was seen of one file: a whole text, and windows read after it.
#[derive(Debug, Default)]
struct LedgerEntry {
    whole: Option<WholeFile>,
    windows: Option<ReadWindows>,
}

#[derive(Debug)]
enum WholeFile {
    // With the version of the file, if the text was one.
    Text(Arc<String>, Option<TextVersion>),
    // The text was too large to hold.
    Hashed(ContentHash),
    // There was no file.
    Absent,
}

/// The ranges of a text that were read in windows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadWindows {
    version: TextVersion,
    size: u64,
    // Invariant: sorted and disjoint, at most `MAX_READ_RANGES`.
    ranges: Vec<Range<u64>>,
}

impl LedgerEntry {
    fn held_bytes(&self) -> usize {
        match &self.whole {
            Some(WholeFile::Text(text, _)) => text.len(),
            Some(WholeFile::Hashed(_) | WholeFile::Absent) | None => 0,
        }
    }
}

impl ReadWindows {
    fn covers_all(&self) -> bool {
        matches!(self.ranges.as_slice(), [all] if (all.start, all.end) == (0, self.size))
    }

    /// Returns the first lines, counted from 1, that a write would change or remove although they were never read.
    fn find_unread_change(
        &self,
        version: TextVersion,
        live: &str,
        content: &str,
    ) -> Option<RangeInclusive<usize>> {
        // Ranges of another version, or of a text of another size, do not count.
        let is_same_text = self.version == version && self.size == live.len() as u64;
        let ranges = if is_same_text { self.ranges.as_slice() } else { &[] };
        let ends = || {
            live.split_inclusive('\n').scan(0, |end, line| Some(std::mem::replace(end, *end + line.len())))
        };
        let starts: Vec<usize> = ends().chain([live.len()]).collect();
        let is_read = |line: &usize| {
            let (start, end) = (starts[*line] as u64, starts[line + 1] as u64);
            ranges.iter().any(|range| range.start <= start && end <= range.end)
        };
        let lost = diff::compute_hunks(live, content).into_iter().map(|hunk| hunk.old);
        lost.filter_map(|mut lines| {
            let first = lines.clone().find(|line| !is_read(line))?;
            let last = lines.rfind(|line| !is_read(line))?;
            Some(first + 1..=last + 1)
        })
        .next()
    }
}

/// How much of a file a session knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Knowledge {
    /// All of it: this text.
    Whole(Arc<String>),
    /// All of it: a text with this hash.
    Hashed(ContentHash),
    /// All of it, window by window: the text of this version.
    Windows(TextVersion),
    /// The absence of the file.
    Absent,
    /// Some lines.
    Partial(ReadWindows),
    /// Nothing.
    Nothing,
}

impl Ledger {
    /// Records that the session saw all of a file, and its version.
    pub fn record_read(&mut self, path: &str, text: Arc<String>, version: TextVersion) {
        self.insert(path, LedgerEntry { whole: Some(WholeFile::Text(text, Some(version))), windows: None });
    }

    /// Records that the session saw a window of a text of `size` bytes.
    pub fn record_window_read(&mut self, path: &str, version: TextVersion, window: Range<u64>, size: u64) {
        let LedgerEntry { whole, windows } = self.take(path);
        let same = |windows: &ReadWindows| (windows.version, windows.size) == (version, size);
        let mut ranges = windows.filter(same).map(|windows| windows.ranges).unwrap_or_default();
        add_range(&mut ranges, window);
        self.insert(path, LedgerEntry { whole, windows: Some(ReadWindows { version, size, ranges }) });
    }

    /// Records a write by the session, which knows that text from then on.
    pub fn record_write(&mut self, path: &str, text: Arc<String>) {
        self.insert(path, LedgerEntry { whole: Some(WholeFile::Text(text, None)), windows: None });
    }

    /// Records that the session looked and the file did not exist.
    pub fn record_absent(&mut self, path: &str) {
        self.insert(path, LedgerEntry { whole: Some(WholeFile::Absent), windows: None });
    }

    /// Forgets a file whose text was replaced by one that the session may not know.
    pub fn forget(&mut self, path: &str) {
        self.take(path);
    }

    /// Records that a file or directory was removed, or moved to another path: a moved text stays known.
    pub fn record_transfer(&mut self, from: &str, to: Option<&str>) {
        let rest = |known: &str| match known.strip_prefix(from) {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => Some(rest.to_owned()),
            _ => None,
        };
        let affected: Vec<String> = self.files.keys().filter_map(|known| rest(known)).collect();
        if let Some(to) = to {
            self.take(to);
        }
        for rest in affected {
            let entry = self.take(&format!("{from}{rest}"));
            if let Some(to) = to {
                self.insert(&format!("{to}{rest}"), entry);
            }
        }
        self.record_absent(from);
    }

    /// Returns the files known to the session, the most recently seen first.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().rev().map(String::as_str)
    }

    /// Returns what the session knows of a file whose current text is version `now`.
    ///
    /// Windows that cover the whole text count while it is still that version. After a change, the last text that the
    /// session saw whole is the base for merging.
    #[must_use]
    pub fn knowledge(&self, path: &str, now: TextVersion) -> Knowledge {
        let Some(entry) = self.files.get(path) else { return Knowledge::Nothing };
        match (&entry.windows, &entry.whole) {
            (Some(windows), _) if windows.version == now && windows.covers_all() => Knowledge::Windows(now),
            (_, Some(WholeFile::Text(text, _))) => Knowledge::Whole(text.clone()),
            (_, Some(WholeFile::Hashed(hash))) => Knowledge::Hashed(*hash),
            (_, Some(WholeFile::Absent)) => Knowledge::Absent,
            (Some(windows), None) if windows.covers_all() => Knowledge::Windows(windows.version),
            (Some(windows), None) => Knowledge::Partial(windows.clone()),
            (None, None) => Knowledge::Nothing,
        }
    }

    fn take(&mut self, path: &str) -> LedgerEntry {
        let entry = self.files.shift_remove(path).unwrap_or_default();
        self.held_bytes -= entry.held_bytes();
        entry
    }

    fn insert(&mut self, path: &str, entry: LedgerEntry) {
        self.take(path);
        self.held_bytes += entry.held_bytes();
        self.files.insert(path.to_owned(), entry);
        if self.files.len() > MAX_FILES
            && let Some((_, oldest)) = self.files.shift_remove_index(0)
        {
            self.held_bytes -= oldest.held_bytes();
        }
        for entry in self.files.values_mut() {
            if self.held_bytes <= MAX_HELD_BYTES {
                break;
            }
            if let Some(WholeFile::Text(text, version)) = &entry.whole {
                self.held_bytes -= text.len();
                // Having read all of that version identifies the text as well as a hash, at no cost.
                let size = text.len() as u64;
                let all = version.map(|version| ReadWindows {
                    version,
                    size,
                    ranges: iter::once(0..size).collect(),
                });
                let hash = all.is_none().then(|| WholeFile::Hashed(ContentHash::digest(text.as_bytes())));
                entry.whole = hash;
                entry.windows = entry.windows.take().filter(ReadWindows::covers_all).or(all);
            }
        }
    }
}

/// Adds a range to sorted disjoint ranges, and keeps them so.
fn add_range(ranges: &mut Vec<Range<u64>>, new: Range<u64>) {
    let first = ranges.partition_point(|known| known.end < new.start);
    let after = ranges.partition_point(|known| known.start <= new.end);
    let joined = ranges[first..after]
        .iter()
        .fold(new, |joined, known| joined.start.min(known.start)..joined.end.max(known.end));
    // Beyond the limit the range is dropped: the session then knows less than it saw, never more.
    if first < after || ranges.len() < MAX_READ_RANGES {
        ranges.splice(first..after, [joined]);
    }
}

/// The inputs to the decision on a write.
#[derive(Debug)]
pub struct WriteContext<'a> {
    /// The session's knowledge of the file.
    pub knowledge: Knowledge,
    /// The text on disk; `None` if there is no file.
    pub disk_text: Option<&'a str>,
    /// The version of the current text.
    pub version: TextVersion,
    /// The open document, if there is one.
    pub document: Option<&'a Document>,
    /// The content to write.
    pub content: &'a str,
}

/// The kind of a permitted write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteVerdict {
    /// The file did not exist.
    Created,
    /// It replaced the text that the session knew.
    Replaced,
    /// The text had changed since the session read it; both changes were merged.
    Merged,
    /// It replaced lines of a file that the session had seen only in part.
    ReplacedPartlySeen,
    /// It replaced text that the session had not seen.
    ReplacedUnseen,
}

/// A permitted write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerDecision {
    /// The text for the document and the disk.
    pub text: Arc<String>,
    /// The text that the session knows from now on; the same if nothing was merged.
    pub known_text: Arc<String>,
    /// The kind of the write.
    pub verdict: WriteVerdict,
}

/// Why a write is refused. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteRejectedError {
    /// A concurrent change touches the same lines.
    #[error(
        "the text was changed since this session read it, and both changes touch the same lines: read it again"
    )]
    Conflict(MergeConflict),
    /// The text has changed, and the session's base text is no longer held.
    #[error("the text was changed since this session read it: read it again")]
    Stale,
    /// The file has been deleted since the session read it.
    #[error("the file was deleted since this session read it: read it again, then write it")]
    Deleted,
    /// The session saw some lines and would change others.
    #[error(
        "this session has read only a part of the text and would change or remove {}, which it has not read: \
         read the rest of the text first, or change only lines that it has read", format_line_range(.0)
    )]
    UnreadLines(RangeInclusive<usize>),
    /// The document has unsaved text, and the file has changed since the document was loaded.
    #[error(
        "the file on disk and the editor's unsaved text were both changed on the same lines: save or reload it"
    )]
    DiskConflict(MergeConflict),
}

fn format_line_range(lines: &RangeInclusive<usize>) -> String {
    match (lines.start(), lines.end()) {
        (first, last) if first == last => format!("line {first}"),
        (first, last) => format!("lines {first} to {last}"),
    }
}

/// Decides whether and how a write is performed.
///
/// # Errors
/// Returns why it is refused.
pub fn decide_write(context: &WriteContext<'_>) -> Result<LedgerDecision, WriteRejectedError> {
    let content = context.content;
    let dirty = context.document.filter(|document| document.is_dirty());
    let Some(live) = dirty.map(|document| document.text().as_str()).or(context.disk_text) else {
        return match context.knowledge {
            Knowledge::Nothing | Knowledge::Absent => {
                Ok(unmerged_decision(content.into(), WriteVerdict::Created))
            }
            // The session knows a text that is gone: writing it would undo the deletion.
            _ => Err(WriteRejectedError::Deleted),
        };
    };
    let replace = |verdict| unmerged_decision(fit_line_endings(content, live), verdict);
    // A partial read does not permit overwriting the rest.
    if let Knowledge::Partial(windows) = &context.knowledge
        && let Some(lines) =
            windows.find_unread_change(context.version, live, &fit_line_endings(content, live))
    {
        return Err(WriteRejectedError::UnreadLines(lines));
    }
    let decision = match &context.knowledge {
        Knowledge::Whole(base) => merge_decision(base, live, content)?,
        Knowledge::Hashed(hash) if *hash == ContentHash::digest(live.as_bytes()) => {
            replace(WriteVerdict::Replaced)
        }
        Knowledge::Hashed(_) => return Err(WriteRejectedError::Stale),
        // The file was created in the meantime: all of its text is new to the session.
        Knowledge::Absent => merge_decision("", live, content)?,
        Knowledge::Windows(version) if *version == context.version => replace(WriteVerdict::Replaced),
        Knowledge::Windows(_) | Knowledge::Partial(_) | Knowledge::Nothing if dirty.is_some() => {
            // Only the user has seen the unsaved text; a session can have known only the text on disk.
            merge_decision(context.disk_text.unwrap_or_default(), live, content)?
        }
        Knowledge::Windows(_) => return Err(WriteRejectedError::Stale),
        Knowledge::Partial(_) => replace(WriteVerdict::ReplacedPartlySeen),
        Knowledge::Nothing => replace(WriteVerdict::ReplacedUnseen),
    };
    match dirty {
        Some(document) => merge_with_disk(decision, document, context.disk_text),
        None => Ok(decision),
    }
}

/// The result of an insertion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InsertionDecision {
    /// The text for the document and the disk.
    pub text: Arc<String>,
    /// The text that the session knows from now on; `None` if it knows no more than before.
    pub known_text: Option<Arc<String>>,
}

/// Returns the outcome of an insertion into a text of version `now`, which a session may make without having read the
/// text. `live` is `None` if there is no file. `position` is an index between two characters of `live`.
///
/// The session then knows what it knew before, with its own insertion. Text that it has not read stays unknown, so
/// that a later write is merged with it.
#[must_use]
pub fn decide_insertion(
    knowledge: &Knowledge,
    now: TextVersion,
    live: Option<&str>,
    position: usize,
    insertion: &str,
) -> InsertionDecision {
    let Some(live) = live else {
        let text = Arc::new(insertion.to_owned());
        return InsertionDecision { known_text: Some(text.clone()), text };
    };
    let insertion = fit_line_endings(insertion, live);
    // A position that is not between two characters is taken for the end.
    let (start, end) = live.split_at_checked(position).unwrap_or((live, ""));
    let text = Arc::new([start, &insertion, end].concat());
    let at_end = |known: &str| Some(Arc::new([known, &insertion].concat()));
    let known_text = match knowledge {
        Knowledge::Whole(known) if known.as_str() == live => Some(text.clone()),
        Knowledge::Hashed(hash) if *hash == ContentHash::digest(live.as_bytes()) => Some(text.clone()),
        Knowledge::Windows(version) if *version == now => Some(text.clone()),
        Knowledge::Whole(known) if end.is_empty() => at_end(known),
        Knowledge::Absent if end.is_empty() => at_end(""),
        // The insertion alone, without the changes of others.
        Knowledge::Whole(known) => merge(live, known, &text).ok().map(Arc::new),
        Knowledge::Hashed(_)
        | Knowledge::Windows(_)
        | Knowledge::Absent
        | Knowledge::Partial(_)
        | Knowledge::Nothing => None,
    };
    InsertionDecision { text, known_text }
}

/// Decides whether a session may delete a file: only in the state that it knows, if it has read all of it.
///
/// The content in the context is ignored.
///
/// # Errors
/// Returns why the file must stay: it has changed since, or has unsaved text.
pub fn decide_deletion(context: &WriteContext<'_>) -> Result<(), WriteRejectedError> {
    if context.document.is_some_and(Document::is_dirty) {
        return Err(WriteRejectedError::Stale);
    }
    let live = context.disk_text;
    let is_known = match &context.knowledge {
        Knowledge::Whole(text) => live == Some(text.as_str()),
        Knowledge::Hashed(hash) => live.is_some_and(|live| *hash == ContentHash::digest(live.as_bytes())),
        Knowledge::Windows(version) => *version == context.version,
        Knowledge::Absent => false,
        Knowledge::Partial(_) | Knowledge::Nothing => true,
    };
    if is_known { Ok(()) } else { Err(WriteRejectedError::Stale) }
}

fn unmerged_decision(text: Cow<'_, str>, verdict: WriteVerdict) -> LedgerDecision {
    let text = Arc::new(text.into_owned());
    LedgerDecision { known_text: text.clone(), text, verdict }
}

fn merge_decision(base: &str, live: &str, content: &str) -> Result<LedgerDecision, WriteRejectedError> {
    let theirs = fit_line_endings(content, base);
    if live == base {
        return Ok(unmerged_decision(theirs, WriteVerdict::Replaced));
    }
    let merged = merge(base, live, &theirs).map_err(WriteRejectedError::Conflict)?;
    let verdict = if merged == theirs { WriteVerdict::Replaced } else { WriteVerdict::Merged };
    Ok(LedgerDecision { text: Arc::new(merged), known_text: Arc::new(theirs.into_owned()), verdict })
}

/// Merges a decision with the file on disk, because saving a document over a file that has changed would lose that
/// change.
fn merge_with_disk(
    decision: LedgerDecision,
    document: &Document,
    disk: Option<&str>,
) -> Result<LedgerDecision, WriteRejectedError> {
    let Some(disk) = disk else { return Ok(decision) };
    let loaded = document.saved_text().map_or("", |text| text.as_str());
    if disk == loaded || disk == *decision.text {
        return Ok(decision);
    }
    let merged = merge(loaded, &decision.text, disk).map_err(WriteRejectedError::DiskConflict)?;
    Ok(LedgerDecision { text: Arc::new(merged), verdict: WriteVerdict::Merged, ..decision })
}

#[cfg(test)]
mod tests;
