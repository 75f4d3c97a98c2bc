//! The plan of an undo or a redo: which changes it takes back, and what that makes of a file.
//!
//! A change that takes back nothing is an *edit*, one that takes back edits is an *undo*, one that takes back undos is
//! a *redo*. A change is *in effect* unless a later one that is in effect takes it back whole. So an edit that was
//! undone and redone is in effect again, and can be undone again.
//!
//! Taking back never loses text that came later: a file is exactly as the change left it and becomes exactly what it
//! was before, or the two are merged, or it is refused. A plan that changes nothing should be recorded all the same:
//! otherwise the next undo of the last change finds the same one again.

mod nesting;
mod resolution;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use crate::changes::{Change, ChangeId, Reversal, Source};
use crate::diff::{self, NoSuchHunk};
use crate::failure::quote;
use crate::merge::Conflict;
use crate::text::{Decoded, Encoding, Format, Unencodable, decode, decode_as, encode};

pub use nesting::{emptied, nested};
pub use resolution::Resolution;

use resolution::Resolver;

/// Which changes are meant. All that is said must be true of a change; the default means every change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// The file that was changed, or a directory above it.
    pub path: Option<String>,
    /// Who changed it.
    pub who: Who,
    /// How it was learnt.
    pub source: Option<Source>,
    /// Whether changes that were merely found on disk, and that nothing explains, are left out.
    pub explained: bool,
    /// This change and those after it.
    pub since: Option<ChangeId>,
    /// One change, whole or only some hunks of it.
    pub change: Option<Reversal>,
    /// How many, counted back from the newest; nothing means all.
    pub last: Option<usize>,
}

/// What is taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Edits are.
    Undo,
    /// Undos are.
    Redo,
}

impl Direction {
    /// Returns what it is called.
    #[must_use]
    pub fn verb(self) -> &'static str {
        match self {
            Self::Undo => "undo",
            Self::Redo => "redo",
        }
    }

    /// Returns what was done.
    #[must_use]
    pub fn participle(self) -> &'static str {
        match self {
            Self::Undo => "undone",
            Self::Redo => "redone",
        }
    }
}

/// Whose changes are meant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Who {
    /// Anyone's, known or not.
    #[default]
    Anyone,
    /// Those of any session: what agents did, and not what the user and other programs did beside them.
    Agents,
    /// A session's.
    Session(String),
    /// One turn's.
    Turn {
        /// The session.
        session: String,
        /// The turn, counted from 1.
        turn: u64,
    },
    /// One tool call's. Its id means nothing without its session.
    Call {
        /// The session.
        session: String,
        /// The tool call.
        call: String,
    },
}

impl Selection {
    /// Returns what a session changed in one of its turns.
    #[must_use]
    pub fn turn(session: &str, turn: u64) -> Self {
        Self { who: Who::Turn { session: session.to_owned(), turn }, ..Self::default() }
    }

    /// Says whether a change is meant, [`Selection::last`] apart.
    #[must_use]
    pub fn matches(&self, change: &Change) -> bool {
        self.names(change.id) && self.fits(change)
    }

    fn names(&self, id: ChangeId) -> bool {
        self.change.as_ref().is_none_or(|one| one.change == id)
    }

    fn fits(&self, change: &Change) -> bool {
        let origin = &change.origin;
        let by = |session: &String| origin.session.as_ref() == Some(session);
        let who = match &self.who {
            Who::Anyone => true,
            Who::Agents => origin.session.is_some(),
            Who::Session(session) => by(session),
            Who::Turn { session, turn } => by(session) && origin.turn == Some(*turn),
            Who::Call { session, call } => by(session) && origin.call.as_ref() == Some(call),
        };
        let learnt = self.source.is_none_or(|source| source == change.source)
            && !(self.explained && change.is_unexplained());
        let is_late = self.since.is_none_or(|since| change.id >= since);
        who && learnt && is_late && self.path.as_ref().is_none_or(|path| is_at(&change.path, path))
    }

    /// Says whether taking back a change in this way is within what is meant.
    fn covers(&self, reversal: &Reversal) -> bool {
        match (self.change.as_ref().and_then(|one| one.hunks.as_ref()), &reversal.hunks) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(meant), Some(hunks)) => hunks.iter().all(|hunk| meant.contains(hunk)),
        }
    }
}

/// Says whether a file is this one, or lies below it.
fn is_at(file: &str, path: &str) -> bool {
    let rest = file.strip_prefix(path.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the edits that an undo takes back, newest first: those in effect that are meant.
///
/// The history is in the journal's order. One undo makes one change of each file.
#[must_use]
pub fn to_undo(history: &[Change], selection: &Selection) -> Vec<ChangeId> {
    let reversed = reversed(history);
    let hunks = selection.change.as_ref().and_then(|one| one.hunks.as_ref());
    // Hunks that are taken back already are not there to be taken back.
    let is_left = |change: &Change| {
        let taken = |hunk: &usize| {
            let undos = history.iter().filter(|undo| !reversed.contains(&undo.id));
            undos.flat_map(|undo| &undo.reverses).any(|reversal| {
                let named = reversal.hunks.as_ref().is_some_and(|hunks| hunks.contains(hunk));
                reversal.change == change.id && named
            })
        };
        hunks.is_none_or(|hunks| hunks.is_empty() || !hunks.iter().all(taken))
    };
    let meant = |change: &&Change| {
        let is_edit = change.reverses.is_empty() && !reversed.contains(&change.id);
        is_edit && selection.matches(change) && is_left(change)
    };
    history
        .iter()
        .rev()
        .filter(meant)
        .take(selection.last.unwrap_or(usize::MAX))
        .map(|edit| edit.id)
        .collect()
}

/// Returns the undos that a redo takes back, newest first: those in effect that took back nothing but what is meant.
/// An undo that took back more at once is not among them, because it comes back whole or not at all. A selection may
/// also name the undo itself.
///
/// [`Selection::last`] counts what was undone at once as one, however many files it changed: changes by one origin, at
/// one moment, each of another file.
#[must_use]
pub fn to_redo(history: &[Change], selection: &Selection) -> Vec<ChangeId> {
    let reversed = reversed(history);
    let edits: BTreeMap<ChangeId, &Change> =
        history.iter().filter(|change| change.reverses.is_empty()).map(|edit| (edit.id, edit)).collect();
    let meant = |undo: &&Change| {
        let named = |reversal: &Reversal| {
            selection.names(undo.id) || selection.names(reversal.change) && selection.covers(reversal)
        };
        let meant = |reversal: &Reversal| {
            edits.get(&reversal.change).is_some_and(|edit| selection.fits(edit)) && named(reversal)
        };
        !undo.reverses.is_empty() && !reversed.contains(&undo.id) && undo.reverses.iter().all(meant)
    };
    let gestures = gestures(history.iter().rev().filter(meant));
    gestures.iter().take(selection.last.unwrap_or(usize::MAX)).flatten().map(|undo| undo.id).collect()
}

/// Puts together what was undone at once.
fn gestures<'a>(undos: impl Iterator<Item = &'a Change>) -> Vec<Vec<&'a Change>> {
    let mut gestures: Vec<Vec<&Change>> = Vec::new();
    let mut paths = BTreeSet::new();
    for undo in undos {
        let belongs = |other: &&Change| other.at == undo.at && other.origin == undo.origin;
        match gestures.last_mut() {
            Some(gesture) if gesture.first().is_some_and(belongs) && paths.insert(&undo.path) => {
                gesture.push(undo)
            }
            _ => {
                paths = BTreeSet::from([&undo.path]);
                gestures.push(vec![undo]);
            }
        }
    }
    gestures
}

/// Returns the changes that are in effect, whether they are edits, undos or redos.
#[must_use]
pub fn in_effect(history: &[Change]) -> BTreeSet<ChangeId> {
    let reversed = reversed(history);
    history.iter().map(|change| change.id).filter(|id| !reversed.contains(id)).collect()
}

/// Returns the changes that are not in effect.
fn reversed(history: &[Change]) -> BTreeSet<ChangeId> {
    let mut reversed = BTreeSet::new();
    for change in history.iter().rev() {
        if !reversed.contains(&change.id) {
            let whole = change.reverses.iter().filter(|reversal| reversal.hunks.is_none());
            reversed.extend(whole.map(|reversal| reversal.change));
        }
    }
    reversed
}

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content<'a> {
    /// No file.
    Absent,
    /// A file.
    Bytes {
        /// What is in it.
        bytes: &'a [u8],
        /// Its permission bits.
        mode: u32,
    },
    /// A file whose bytes are not kept any longer, or never were.
    Unknown,
}

/// One change to take back.
#[derive(Debug, Clone, Copy)]
pub struct Step<'a> {
    /// The change.
    pub change: &'a Change,
    /// The file before it.
    pub before: Content<'a>,
    /// The file after it.
    pub after: Content<'a>,
    /// Which of its hunks, as [`diff::hunks`] counts them; none means the whole.
    pub hunks: Option<&'a [usize]>,
}

/// What has to be done to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Planned {
    /// Nothing: it is so already.
    Unchanged,
    /// It gets these bytes, and is created if it is not there.
    Write {
        /// The bytes.
        bytes: Vec<u8>,
        /// The permission bits.
        mode: u32,
    },
    /// It is deleted.
    Delete,
}

/// A change cannot be taken back. The file is as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot take back change {change} of {}: {why}", quote(.path))]
pub struct CannotReverse {
    /// The file.
    pub path: String,
    /// The change.
    pub change: ChangeId,
    /// Why.
    pub why: Why,
}

/// Why a change cannot be taken back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// Bytes that are needed are not there.
    #[error("its text is not kept")]
    Forgotten,
    /// The journal dropped its texts.
    #[error(
        "its text was pruned, because the journal keeps only so much, and for so long: the file stays as it is"
    )]
    Pruned,
    /// The file is not text, so that neither hunks nor later changes can be told apart.
    #[error("the file is not text, so the change can only be taken back whole and before another one")]
    Binary,
    /// The change created the file, which has been edited since.
    #[error("it created the file, which was edited since; delete the file if it is not needed")]
    Edited,
    /// The change deleted the file, and there is another one now.
    #[error("it deleted the file and there is another one now, move that away first")]
    Occupied,
    /// The change edited the file, which has been deleted since.
    #[error("the file was deleted since, restore it first")]
    Deleted,
    /// The lines that it changed have been changed since: the file as it is now is `ours`, as it was before the change
    /// is `theirs`.
    #[error("its lines were changed since: {0}")]
    Conflict(Conflict),
    /// It has no such hunk.
    #[error("{0}")]
    NoSuchHunk(NoSuchHunk),
    /// The file is in another encoding now, which has no place for a character of the text that would come back.
    #[error("the file's encoding was changed since: {0}")]
    Unencodable(Unencodable),
}

// A `Why` tells all in its own text: as a source, the cause would be told twice.
impl From<Conflict> for Why {
    fn from(conflict: Conflict) -> Self {
        Self::Conflict(conflict)
    }
}

impl From<NoSuchHunk> for Why {
    fn from(fault: NoSuchHunk) -> Self {
        Self::NoSuchHunk(fault)
    }
}

impl From<Unencodable> for Why {
    fn from(fault: Unencodable) -> Self {
        Self::Unencodable(fault)
    }
}

/// Plans to take back some changes of one file, the newest first, whatever else has happened to it.
///
/// Permission bits go back with the change unless they were changed since. Taking back all hunks of a change is taking
/// it back whole; fewer leave the permission bits alone.
///
/// # Errors
/// Returns [`CannotReverse`] if that could lose text, or too little is known.
pub fn reverse(current: Content<'_>, steps_newest_first: &[Step<'_>]) -> Result<Planned, CannotReverse> {
    reverse_resolving(current, steps_newest_first, Resolution::Refuse).map(|(planned, _)| planned)
}

/// Does the same, and resolves the places that were changed since. Returns how many there were, too.
///
/// # Errors
/// Returns [`CannotReverse`] if that cannot be resolved in this way, or too little is known.
pub fn reverse_resolving(
    current: Content<'_>,
    steps_newest_first: &[Step<'_>],
    resolution: Resolution,
) -> Result<(Planned, usize), CannotReverse> {
    let Some(first) = steps_newest_first.first() else { return Ok((Planned::Unchanged, 0)) };
    let start = known(current).map_err(|why| first.refuse(why))?;
    let mut file = start.clone();
    let mut resolver = Resolver::new(resolution);
    for step in steps_newest_first {
        file = step.reverse(file, &mut resolver).map_err(|why| step.refuse(why))?;
    }
    let planned = match file {
        file if file == start => Planned::Unchanged,
        Some(file) => Planned::Write { bytes: file.bytes.into_owned(), mode: file.mode },
        None => Planned::Delete,
    };
    Ok((planned, resolver.resolved))
}

/// A file on its way back.
#[derive(Debug, Clone, PartialEq, Eq)]
struct File<'a> {
    bytes: Cow<'a, [u8]>,
    mode: u32,
}

impl<'a> Step<'a> {
    /// Returns what the journal has to know of it, once it is done. All hunks of a change are the whole of it.
    #[must_use]
    pub fn reversal(&self) -> Reversal {
        let part = || self.part(&known(self.before)?, &known(self.after)?);
        let hunks = if part() == Ok(None) { None } else { self.hunks.map(<[usize]>::to_vec) };
        Reversal { change: self.change.id, hunks }
    }

    fn refuse(&self, why: Why) -> CannotReverse {
        let why = if why == Why::Forgotten && self.change.is_pruned() { Why::Pruned } else { why };
        CannotReverse { path: self.change.path.clone(), change: self.change.id, why }
    }

    fn reverse(&self, file: Option<File<'a>>, resolver: &mut Resolver) -> Result<Option<File<'a>>, Why> {
        let (before, after) = (known(self.before)?, known(self.after)?);
        let Some(part) = self.part(&before, &after)? else {
            return match reverse_whole(file.clone(), before.clone(), after, resolver) {
                Err(why) => resolver.replace(file, before, why),
                reversed => reversed,
            };
        };
        let (Some(file), Some(after)) = (file, after) else { return Err(Why::Deleted) };
        let now = text_beside(&file, &before.iter().chain([&after]).collect::<Vec<_>>())?;
        let merged = resolver.merge(&text(&after, Some(now.format))?.text, &now.text, &part)?;
        Ok(Some(File { bytes: encode(&merged, now.format)?.into(), ..file }))
    }

    /// Returns the text with some hunks taken back, or nothing if that is the whole change.
    fn part(&self, before: &Option<File<'_>>, after: &Option<File<'_>>) -> Result<Option<String>, Why> {
        let Some(hunks) = self.hunks else { return Ok(None) };
        let read = |file: &Option<File<'_>>| match file {
            Some(file) => text(file, None).map(|read| read.text),
            None => Ok(String::new()),
        };
        let (old, new) = (read(before)?, read(after)?);
        let part = diff::take_back(&old, &new, hunks)?;
        // Where only the mode changed there are no hunks, and naming none of them is not naming the change.
        Ok((part != old || hunks.is_empty()).then_some(part))
    }
}

fn reverse_whole<'a>(
    file: Option<File<'a>>,
    before: Option<File<'a>>,
    after: Option<File<'a>>,
    resolver: &mut Resolver,
) -> Result<Option<File<'a>>, Why> {
    if bytes(&file) == bytes(&after) {
        let Some(before) = before else { return Ok(None) };
        let mode = match (file, after) {
            (Some(file), Some(after)) => going_back(file.mode, after.mode, before.mode),
            _ => before.mode,
        };
        return Ok(Some(File { mode, ..before }));
    }
    let nothing_to_do = bytes(&file) == bytes(&before) || bytes(&before) == bytes(&after);
    match (file, before, after) {
        (Some(file), Some(before), Some(after)) => {
            let mode = going_back(file.mode, after.mode, before.mode);
            if nothing_to_do {
                return Ok(Some(File { mode, ..file }));
            }
            let now = text_beside(&file, &[&before, &after])?;
            let known = |file: &File<'_>| text(file, Some(now.format)).map(|read| read.text);
            let merged = resolver.merge(&known(&after)?, &now.text, &known(&before)?)?;
            Ok(Some(File { bytes: encode(&merged, now.format)?.into(), mode }))
        }
        (file, ..) if nothing_to_do => Ok(file),
        (_, None, _) => Err(Why::Edited),
        (_, _, None) => Err(Why::Occupied),
        (None, ..) => Err(Why::Deleted),
    }
}

/// Returns the mode of a file after taking back a change of its mode.
fn going_back(current: u32, after: u32, before: u32) -> u32 {
    if current == after { before } else { current }
}

fn known(content: Content<'_>) -> Result<Option<File<'_>>, Why> {
    match content {
        Content::Absent => Ok(None),
        Content::Bytes { bytes, mode } => Ok(Some(File { bytes: bytes.into(), mode })),
        Content::Unknown => Err(Why::Forgotten),
    }
}

fn bytes<'f>(file: &'f Option<File<'_>>) -> Option<&'f [u8]> {
    file.as_ref().map(|file| &*file.bytes)
}

/// Reads a file as text. Where its bytes are all ASCII they do not say which encoding the file is in, but other states of
/// it may.
fn text_beside(file: &File<'_>, others: &[&File<'_>]) -> Result<Decoded, Why> {
    let own = text(file, None)?;
    if own.format != Format::default() || !own.text.is_ascii() {
        return Ok(own);
    }
    let format = |other: &&File<'_>| text(other, None).ok().map(|read| read.format);
    let legacy = |format: &Format| matches!(format.encoding, Encoding::Legacy(_));
    match others.iter().filter_map(format).find(legacy) {
        Some(format) => text(file, Some(format)),
        None => Ok(own),
    }
}

/// Reads a file as text: in the format of another state of it if that is how it can be read, else in its own.
fn text(file: &File<'_>, format: Option<Format>) -> Result<Decoded, Why> {
    if let Some(format) = format
        && let Ok(text) = decode_as(file.bytes.to_vec(), format)
    {
        return Ok(Decoded { text, format });
    }
    decode(file.bytes.to_vec()).map_err(|_| Why::Binary)
}

#[cfg(test)]
mod tests;
