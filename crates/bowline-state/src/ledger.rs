//! What a session last saw of each file, and what that allows it to write.
//!
//! A write is made against what the session *knows*, not against what the file holds. After its own write a session
//! knows the text that it sent, even if that was merged with the user's: were the merged text its base, the next write,
//! which has none of the user's lines, would read as their removal.

use std::borrow::Cow;
use std::iter;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use indexmap::IndexMap;

use crate::changes::ContentHash;
use crate::diff;
use crate::documents::Document;
use crate::merge::{Conflict, merge};
use crate::text::fit;

/// The texts that a ledger holds have at most this many bytes together. Of the oldest ones it is only kept then which
/// they were.
pub const MAX_HELD_BYTES: usize = 64 << 20;

/// A ledger knows at most this many files; the oldest is forgotten first.
pub const MAX_FILES: usize = 10_000;

/// Of a file that is read in windows at most this many separate stretches are remembered.
pub const MAX_STRETCHES: usize = 256;

/// Which text a window was cut from: the same number means the same text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Version(pub u64);

/// What one session saw.
#[derive(Debug, Default)]
pub struct Ledger {
    // Invariant: in the order of the last look, the oldest first.
    files: IndexMap<String, Seen>,
    // Invariant: the bytes of all texts in `files`.
    held: usize,
}

/// What was seen of one file: all of a text, and windows that were read after that.
#[derive(Debug, Default)]
struct Seen {
    whole: Option<Whole>,
    windows: Option<Windows>,
}

#[derive(Debug)]
enum Whole {
    // Which version of the file it was, if it was one.
    Text(Arc<String>, Option<Version>),
    // The text was too much to hold.
    Hashed(ContentHash),
    // There was no file.
    Absent,
}

/// The stretches of a text that were read in windows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Windows {
    version: Version,
    size: u64,
    // Invariant: sorted and apart, at most `MAX_STRETCHES`.
    stretches: Vec<Range<u64>>,
}

impl Seen {
    fn held(&self) -> usize {
        match &self.whole {
            Some(Whole::Text(text, _)) => text.len(),
            Some(Whole::Hashed(_) | Whole::Absent) | None => 0,
        }
    }
}

impl Windows {
    fn cover_all(&self) -> bool {
        matches!(self.stretches.as_slice(), [all] if (all.start, all.end) == (0, self.size))
    }

    /// Returns the first lines, counted from 1, that a write would change or remove although they were not read.
    fn unread_loss(&self, version: Version, live: &str, content: &str) -> Option<RangeInclusive<usize>> {
        // Of another text, or of one that is counted in other bytes, nothing was read.
        let is_this = self.version == version && self.size == live.len() as u64;
        let stretches = if is_this { self.stretches.as_slice() } else { &[] };
        let ends = || {
            live.split_inclusive('\n').scan(0, |end, line| Some(std::mem::replace(end, *end + line.len())))
        };
        let starts: Vec<usize> = ends().chain([live.len()]).collect();
        let is_read = |line: &usize| {
            let (start, end) = (starts[*line] as u64, starts[line + 1] as u64);
            stretches.iter().any(|stretch| stretch.start <= start && end <= stretch.end)
        };
        let lost = diff::hunks(live, content).into_iter().map(|hunk| hunk.old);
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
    Windows(Version),
    /// That there was no file.
    Absent,
    /// Some lines.
    Part(Windows),
    /// Nothing.
    Nothing,
}

impl Ledger {
    /// Notes that the session saw all of a file, and which version of it.
    pub fn saw(&mut self, path: &str, text: Arc<String>, version: Version) {
        self.put(path, Seen { whole: Some(Whole::Text(text, Some(version))), windows: None });
    }

    /// Notes that the session saw a window of a text that has `size` bytes.
    pub fn saw_window(&mut self, path: &str, version: Version, window: Range<u64>, size: u64) {
        let Seen { whole, windows } = self.take(path);
        let same = |windows: &Windows| (windows.version, windows.size) == (version, size);
        let mut stretches = windows.filter(same).map(|windows| windows.stretches).unwrap_or_default();
        add_stretch(&mut stretches, window);
        self.put(path, Seen { whole, windows: Some(Windows { version, size, stretches }) });
    }

    /// Notes what the session wrote: from then on it knows that text.
    pub fn wrote(&mut self, path: &str, text: Arc<String>) {
        self.put(path, Seen { whole: Some(Whole::Text(text, None)), windows: None });
    }

    /// Notes that the session looked and there was no file.
    pub fn saw_nothing(&mut self, path: &str) {
        self.put(path, Seen { whole: Some(Whole::Absent), windows: None });
    }

    /// Returns the files that the session knows something of, the last seen first.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().rev().map(String::as_str)
    }

    /// Returns what the session knows of a file, whose text is of some version now.
    ///
    /// Windows that together are the whole text count as long as it is that text. Once it is another, what the session
    /// saw whole before is what a change can be merged with.
    #[must_use]
    pub fn knowledge(&self, path: &str, now: Version) -> Knowledge {
        let Some(seen) = self.files.get(path) else { return Knowledge::Nothing };
        match (&seen.windows, &seen.whole) {
            (Some(windows), _) if windows.version == now && windows.cover_all() => Knowledge::Windows(now),
            (_, Some(Whole::Text(text, _))) => Knowledge::Whole(text.clone()),
            (_, Some(Whole::Hashed(hash))) => Knowledge::Hashed(*hash),
            (_, Some(Whole::Absent)) => Knowledge::Absent,
            (Some(windows), None) if windows.cover_all() => Knowledge::Windows(windows.version),
            (Some(windows), None) => Knowledge::Part(windows.clone()),
            (None, None) => Knowledge::Nothing,
        }
    }

    fn take(&mut self, path: &str) -> Seen {
        let seen = self.files.shift_remove(path).unwrap_or_default();
        self.held -= seen.held();
        seen
    }

    fn put(&mut self, path: &str, seen: Seen) {
        self.take(path);
        self.held += seen.held();
        self.files.insert(path.to_owned(), seen);
        if self.files.len() > MAX_FILES
            && let Some((_, oldest)) = self.files.shift_remove_index(0)
        {
            self.held -= oldest.held();
        }
        for seen in self.files.values_mut() {
            if self.held <= MAX_HELD_BYTES {
                break;
            }
            if let Some(Whole::Text(text, version)) = &seen.whole {
                self.held -= text.len();
                // That it was all of that version is as good as a hash, and costs nothing.
                let size = text.len() as u64;
                let all = version.map(|version| Windows {
                    version,
                    size,
                    stretches: iter::once(0..size).collect(),
                });
                let hash = all.is_none().then(|| Whole::Hashed(ContentHash::of(text.as_bytes())));
                seen.whole = hash;
                seen.windows = seen.windows.take().filter(Windows::cover_all).or(all);
            }
        }
    }
}

/// Adds a stretch to others that are sorted and apart, and keeps them so.
fn add_stretch(stretches: &mut Vec<Range<u64>>, new: Range<u64>) {
    let first = stretches.partition_point(|known| known.end < new.start);
    let after = stretches.partition_point(|known| known.start <= new.end);
    let joined = stretches[first..after]
        .iter()
        .fold(new, |joined, known| joined.start.min(known.start)..joined.end.max(known.end));
    // Past the cap the stretch is not remembered: the session knows less than it saw, never more.
    if first < after || stretches.len() < MAX_STRETCHES {
        stretches.splice(first..after, [joined]);
    }
}

/// What becomes of a write to a file that the session did not see. Of a file that it saw in part, it may change no line that
/// it did not see, in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unseen {
    /// It is done, and the answer says so.
    #[default]
    Overwrite,
    /// It is refused.
    Refuse,
}

/// Everything that a write is decided by.
#[derive(Debug)]
pub struct Situation<'a> {
    /// What the session knows.
    pub knowledge: Knowledge,
    /// The text on disk; none if there is no file.
    pub disk: Option<&'a str>,
    /// Which version of the text is the live one now.
    pub version: Version,
    /// The open document, if there is one.
    pub document: Option<&'a Document>,
    /// What is to be written.
    pub content: &'a str,
    /// What becomes of a write without a look.
    pub unseen: Unseen,
}

/// What a write came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// There was no file.
    Created,
    /// The text that the session knew was replaced.
    Replaced,
    /// Somebody changed the text since the session looked: both changes are in it now.
    Merged,
    /// The session had seen only some lines of the file: those that were replaced.
    ReplacedPartlySeen,
    /// The session had not seen what was replaced.
    ReplacedUnseen,
}

/// A decided write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The text that document and disk get.
    pub text: Arc<String>,
    /// The text that the session knows from now on; the same one if nothing was merged into it.
    pub known: Arc<String>,
    /// How it came about.
    pub verdict: Verdict,
}

/// Why a write is not done. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// The same lines were changed by somebody else.
    #[error(
        "the text was changed since this session read it, and both changes touch the same lines: read it again"
    )]
    Conflict(Conflict),
    /// It was changed by somebody else, and what the session read is not remembered.
    #[error("the text was changed since this session read it: read it again")]
    Stale,
    /// Somebody deleted the file that the session read.
    #[error("the file was deleted since this session read it: read it again, then write it")]
    Deleted,
    /// The session saw some lines, and would change others.
    #[error(
        "this session has read only a part of the text and would change or remove {}, which it has not read: \
         read the rest of the text first, or change only lines that it has read", named(.0)
    )]
    PartlySeen(RangeInclusive<usize>),
    /// The session never saw it.
    #[error("this session has not read all of the text that it would replace: read it first")]
    NotSeen,
    /// The document holds unsaved text, and the disk other text than the document was loaded from.
    #[error(
        "the file on disk and the editor's unsaved text were both changed on the same lines: save or reload it"
    )]
    DiskDiffers(Conflict),
}

fn named(lines: &RangeInclusive<usize>) -> String {
    match (lines.start(), lines.end()) {
        (first, last) if first == last => format!("line {first}"),
        (first, last) => format!("lines {first} to {last}"),
    }
}

/// Decides a write.
///
/// # Errors
/// Returns why nothing is to be written.
pub fn decide(situation: &Situation<'_>) -> Result<Decision, Rejected> {
    let content = situation.content;
    let dirty = situation.document.filter(|document| document.is_dirty());
    let Some(live) = dirty.map(|document| document.text().as_str()).or(situation.disk) else {
        return match situation.knowledge {
            Knowledge::Nothing | Knowledge::Absent => Ok(same_for_all(content.into(), Verdict::Created)),
            // It knows a text that is gone: to write it anew would undo the deletion.
            _ => Err(Rejected::Deleted),
        };
    };
    let replace = |verdict| same_for_all(fit(content, live), verdict);
    // A partial read is no licence to overwrite the rest.
    if let (Knowledge::Part(windows), Unseen::Overwrite) = (&situation.knowledge, situation.unseen)
        && let Some(lines) = windows.unread_loss(situation.version, live, &fit(content, live))
    {
        return Err(Rejected::PartlySeen(lines));
    }
    let decision = match &situation.knowledge {
        Knowledge::Whole(base) => merged(base, live, content)?,
        Knowledge::Hashed(hash) if *hash == ContentHash::of(live.as_bytes()) => replace(Verdict::Replaced),
        Knowledge::Hashed(_) => return Err(Rejected::Stale),
        // Somebody created the file since: to the session, all of its text is new.
        Knowledge::Absent => merged("", live, content)?,
        Knowledge::Windows(version) if *version == situation.version => replace(Verdict::Replaced),
        Knowledge::Windows(_) | Knowledge::Part(_) | Knowledge::Nothing
            if situation.unseen == Unseen::Refuse =>
        {
            return Err(Rejected::NotSeen);
        }
        Knowledge::Windows(_) | Knowledge::Part(_) | Knowledge::Nothing if dirty.is_some() => {
            // Nobody but the user has seen the unsaved text; the disk's text is what a session may have known.
            merged(situation.disk.unwrap_or_default(), live, content)?
        }
        Knowledge::Windows(_) => return Err(Rejected::Stale),
        Knowledge::Part(_) => replace(Verdict::ReplacedPartlySeen),
        Knowledge::Nothing => replace(Verdict::ReplacedUnseen),
    };
    match dirty {
        Some(document) => with_the_disk(decision, document, situation.disk),
        None => Ok(decision),
    }
}

/// Decides whether a session may delete a file: only what it knows, or does not know at all.
///
/// The content of the situation does not matter.
///
/// # Errors
/// Returns why the file is to stay: it was changed since, or holds unsaved text.
pub fn decide_deletion(situation: &Situation<'_>) -> Result<(), Rejected> {
    if situation.document.is_some_and(Document::is_dirty) {
        return Err(Rejected::Stale);
    }
    let live = situation.disk;
    let is_known = match &situation.knowledge {
        Knowledge::Whole(text) => live == Some(text.as_str()),
        Knowledge::Hashed(hash) => live.is_some_and(|live| *hash == ContentHash::of(live.as_bytes())),
        Knowledge::Windows(version) => *version == situation.version,
        Knowledge::Absent => false,
        Knowledge::Part(_) | Knowledge::Nothing => {
            return match situation.unseen {
                Unseen::Overwrite => Ok(()),
                Unseen::Refuse => Err(Rejected::NotSeen),
            };
        }
    };
    if is_known { Ok(()) } else { Err(Rejected::Stale) }
}

fn same_for_all(text: Cow<'_, str>, verdict: Verdict) -> Decision {
    let text = Arc::new(text.into_owned());
    Decision { known: text.clone(), text, verdict }
}

fn merged(base: &str, live: &str, content: &str) -> Result<Decision, Rejected> {
    let theirs = fit(content, base);
    if live == base {
        return Ok(same_for_all(theirs, Verdict::Replaced));
    }
    let merged = merge(base, live, &theirs).map_err(Rejected::Conflict)?;
    let verdict = if merged.text == theirs { Verdict::Replaced } else { Verdict::Merged };
    Ok(Decision { text: Arc::new(merged.text), known: Arc::new(theirs.into_owned()), verdict })
}

/// To save a document over a file that was changed beside it would lose that change.
fn with_the_disk(decision: Decision, document: &Document, disk: Option<&str>) -> Result<Decision, Rejected> {
    let Some(disk) = disk else { return Ok(decision) };
    let loaded = document.saved().map_or("", |text| text.as_str());
    if disk == loaded || disk == *decision.text {
        return Ok(decision);
    }
    let merged = merge(loaded, &decision.text, disk).map_err(Rejected::DiskDiffers)?;
    Ok(Decision { text: Arc::new(merged.text), verdict: Verdict::Merged, ..decision })
}

#[cfg(test)]
mod tests;
