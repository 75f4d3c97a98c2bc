//! Plans for undo and redo: the changes to revert, and the resulting content of a file.
//!
//! A change that reverts nothing is an *edit*, one that reverts edits is an *undo*, one that reverts undos is a
//! *redo*. A change is *in effect* unless a later one that is in effect reverts it as a whole. So an edit that was
//! undone and redone is in effect again, and can be undone again.
//!
//! Reverting never loses later text: if a file is exactly as the change left it, it becomes exactly what it was
//! before; otherwise the two are merged, or the reversal is refused. A plan that changes nothing should be recorded
//! all the same: otherwise the next undo of the last change finds the same one again.
//!
//! An undo is a three-way merge whose base is the change's text *after*. Where it conflicts, the user may have both
//! sides marked in the file, or force it (`undo/resolution.rs`); consecutive changes of a file are then reverted as
//! one.

mod moves;
mod nested_paths;
mod resolution;
mod tail;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use crate::changes::{Change, ChangeId, ChangeSource, Reversal};
use bowline_policy::paths::path_below;
use bowline_text::diff::{self, NoSuchHunkError};
use bowline_text::display::quote;
use bowline_text::merge::MergeConflict;
use bowline_text::text::{DecodedText, Encoding, TextFormat, UnencodableError, decode, decode_as, encode};

pub use moves::{FileMove, FileMoves};
pub use nested_paths::{find_emptied_directories, find_nested_paths};
pub use resolution::ConflictResolution;
pub use tail::{TailPlan, TailStep, plan_moved_tail_reversal, plan_tail_reversal, sum_tails};

use resolution::ConflictResolver;

/// A selection of changes. A change has to match every field that is set; the default selects every change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangeSelection {
    /// The file that was changed, or a directory above it.
    pub path: Option<String>,
    /// Who changed it.
    pub owner: ChangeOwner,
    /// How it was detected.
    pub source: Option<ChangeSource>,
    /// Whether unexplained changes that were merely found on disk are excluded.
    pub only_explained: bool,
    /// This change and all later ones.
    pub since: Option<ChangeId>,
    /// A single change, as a whole or only some of its hunks.
    pub change: Option<Reversal>,
    /// The maximum number of changes, counted back from the newest; `None` means all.
    pub limit: Option<usize>,
}

/// What a reversal reverts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReversalDirection {
    /// Reverts edits.
    Undo,
    /// Reverts undos.
    Redo,
}

impl ReversalDirection {
    /// Returns its verb.
    #[must_use]
    pub fn verb(self) -> &'static str {
        match self {
            Self::Undo => "undo",
            Self::Redo => "redo",
        }
    }

    /// Returns its participle.
    #[must_use]
    pub fn participle(self) -> &'static str {
        match self {
            Self::Undo => "undone",
            Self::Redo => "redone",
        }
    }
}

/// The owner of the selected changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ChangeOwner {
    /// Any owner, known or not.
    #[default]
    Anyone,
    /// Any session: agents, but not the user or other programs.
    Agents,
    /// A session.
    Session(String),
    /// A turn.
    Turn {
        /// The session.
        session: String,
        /// The turn, counted from 1.
        turn: u64,
    },
    /// A tool call. Its id is only meaningful within its session.
    Call {
        /// The session.
        session: String,
        /// The tool call.
        call: String,
    },
}

impl ChangeSelection {
    /// Selects the changes of a session in one of its turns.
    #[must_use]
    pub fn turn(session: &str, turn: u64) -> Self {
        Self { owner: ChangeOwner::Turn { session: session.to_owned(), turn }, ..Self::default() }
    }

    /// Returns whether a change is selected, apart from [`ChangeSelection::limit`].
    #[must_use]
    pub fn matches(&self, change: &Change) -> bool {
        self.matches_moved(change, &FileMoves::default())
    }

    /// Returns the same. The selected path also selects changes of a file that has been moved there since.
    #[must_use]
    pub fn matches_moved(&self, change: &Change, moves: &FileMoves<'_>) -> bool {
        self.matches_id(change.id) && self.matches_origin(change, moves)
    }

    fn matches_id(&self, id: ChangeId) -> bool {
        self.change.as_ref().is_none_or(|reversal| reversal.change == id)
    }

    fn matches_origin(&self, change: &Change, moves: &FileMoves<'_>) -> bool {
        let origin = &change.origin;
        let is_session = |session: &String| origin.session.as_ref() == Some(session);
        let is_owner = match &self.owner {
            ChangeOwner::Anyone => true,
            ChangeOwner::Agents => origin.session.is_some(),
            ChangeOwner::Session(session) => is_session(session),
            ChangeOwner::Turn { session, turn } => is_session(session) && origin.turn == Some(*turn),
            ChangeOwner::Call { session, call } => is_session(session) && origin.call.as_ref() == Some(call),
        };
        let has_source = self.source.is_none_or(|source| source == change.source)
            && !(self.only_explained && change.is_unattributed());
        let is_recent = self.since.is_none_or(|since| change.id >= since);
        let has_path = |path: &String| {
            [change.path.as_str(), moves.current_path(change)]
                .into_iter()
                .any(|file| path_below(file, path).is_some())
        };
        is_owner && has_source && is_recent && self.path.as_ref().is_none_or(has_path)
    }

    /// Returns whether a reversal is within the selection.
    fn covers(&self, reversal: &Reversal) -> bool {
        match (self.change.as_ref().and_then(|selected| selected.hunks.as_ref()), &reversal.hunks) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(selected_hunks), Some(hunks)) => hunks.iter().all(|hunk| selected_hunks.contains(hunk)),
        }
    }
}

/// Returns the edits that an undo reverts, newest first: the selected ones that are in effect, and with one change of a
/// move the other one.
///
/// The history is in the journal's order. An undo makes one change to each file.
#[must_use]
pub fn changes_to_undo(history: &[Change], selection: &ChangeSelection) -> Vec<ChangeId> {
    let (reversed, moves) = (changes_reversed(history), FileMoves::find(history));
    let hunks = selection.change.as_ref().and_then(|selected| selected.hunks.as_ref());
    // Hunks that are already reverted cannot be reverted again.
    let is_left = |change: &Change| {
        let is_undone = |hunk: &usize| {
            let undos = history.iter().filter(|undo| !reversed.contains(&undo.id));
            undos.flat_map(|undo| &undo.reverses).any(|reversal| {
                let named = reversal.hunks.as_ref().is_some_and(|hunks| hunks.contains(hunk));
                reversal.change == change.id && named
            })
        };
        hunks.is_none_or(|hunks| hunks.is_empty() || !hunks.iter().all(is_undone))
    };
    let is_selected = |change: &&Change| {
        let is_edit = change.reverses.is_empty() && !reversed.contains(&change.id);
        is_edit && selection.matches_moved(change, &moves) && is_left(change)
    };
    let edits = history.iter().rev().filter(is_selected).take(selection.limit.unwrap_or(usize::MAX));
    let mut chosen = edits.map(|edit| edit.id).collect();
    if hunks.is_none() {
        moves.complete(&mut chosen, |id| !reversed.contains(&id));
    }
    chosen
}

/// Returns the undos that a redo reverts, newest first: those in effect that reverted only selected changes. An undo
/// that also reverted others is excluded, because it is redone as a whole or not at all. A selection may also name
/// the undo itself. With one change of a move, the other one is redone as well.
///
/// [`ChangeSelection::limit`] counts the changes of one undo as one, however many files it changed: changes by one
/// origin, at one moment, each to another file.
#[must_use]
pub fn changes_to_redo(history: &[Change], selection: &ChangeSelection) -> Vec<ChangeId> {
    let (reversed, moves) = (changes_reversed(history), FileMoves::find(history));
    let edits: BTreeMap<ChangeId, &Change> =
        history.iter().filter(|change| change.reverses.is_empty()).map(|edit| (edit.id, edit)).collect();
    let is_selected = |undo: &&Change| {
        let named = |reversal: &Reversal| {
            selection.matches_id(undo.id)
                || selection.matches_id(reversal.change) && selection.covers(reversal)
        };
        let is_selected = |reversal: &Reversal| {
            edits.get(&reversal.change).is_some_and(|edit| selection.matches_origin(edit, &moves))
                && named(reversal)
        };
        !undo.reverses.is_empty() && !reversed.contains(&undo.id) && undo.reverses.iter().all(is_selected)
    };
    let gestures = group_undos(history.iter().rev().filter(is_selected));
    let undos = gestures.iter().take(selection.limit.unwrap_or(usize::MAX)).flatten();
    let mut chosen = undos.map(|undo| undo.id).collect();
    moves.complete(&mut chosen, |id| !reversed.contains(&id));
    chosen
}

/// Groups the changes that were undone together.
fn group_undos<'a>(undos: impl Iterator<Item = &'a Change>) -> Vec<Vec<&'a Change>> {
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

/// Returns the changes that are in effect: edits, undos and redos.
#[must_use]
pub fn changes_in_effect(history: &[Change]) -> BTreeSet<ChangeId> {
    let reversed = changes_reversed(history);
    history.iter().map(|change| change.id).filter(|id| !reversed.contains(id)).collect()
}

/// Returns the changes that are not in effect.
fn changes_reversed(history: &[Change]) -> BTreeSet<ChangeId> {
    let mut reversed = BTreeSet::new();
    for change in history.iter().rev() {
        if !reversed.contains(&change.id) {
            let complete = change.reverses.iter().filter(|reversal| reversal.hunks.is_none());
            reversed.extend(complete.map(|reversal| reversal.change));
        }
    }
    reversed
}

/// The content of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileContent<'a> {
    /// No file.
    Absent,
    /// A file.
    Bytes {
        /// Its content.
        bytes: &'a [u8],
        /// Its permission bits.
        mode: u32,
    },
    /// A file whose bytes are no longer kept, or never were.
    Unknown,
}

/// One change to revert.
#[derive(Debug, Clone, Copy)]
pub struct ReversalStep<'a> {
    /// The change.
    pub change: &'a Change,
    /// The file before it.
    pub before: FileContent<'a>,
    /// The file after it.
    pub after: FileContent<'a>,
    /// The hunks to revert, as [`diff::compute_hunks`] numbers them; `None` means the whole change.
    pub hunks: Option<&'a [usize]>,
}

/// What to do with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReversalPlan {
    /// Nothing: it already has the content.
    Unchanged,
    /// Write these bytes, and create the file if it is missing.
    Write {
        /// The bytes.
        bytes: Vec<u8>,
        /// The permission bits.
        mode: u32,
    },
    /// Delete it.
    Delete,
}

/// A change that cannot be reverted. The file is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot take back change {change} of {}: {reason}", quote(.path))]
pub struct ReversalError {
    /// The file.
    pub path: String,
    /// The change.
    pub change: ChangeId,
    /// The reason.
    pub reason: ReversalErrorReason,
}

/// Why a change cannot be reverted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReversalErrorReason {
    /// Required bytes are missing.
    #[error("its text is not kept")]
    ContentUnavailable,
    /// The journal pruned its texts.
    #[error(
        "its text was pruned, because the journal keeps only so much, and for so long: the file stays as it is"
    )]
    Pruned,
    /// The change appended bytes, and what stood before them has been changed since.
    #[error("it appended to the file, whose other text was changed since: remove what it appended by hand")]
    AppendedElsewhere,
    /// The file is not text, so hunks and later changes cannot be told apart.
    #[error("the file is not text, so the change can only be taken back whole and before another one")]
    Binary,
    /// The change created the file, which has been edited since.
    #[error("it created the file, which was edited since; delete the file if it is not needed")]
    EditedSince,
    /// The change deleted the file, and another file exists now.
    #[error("it deleted the file and there is another one now, move that away first")]
    PathOccupied,
    /// The change moved the file, which has been moved again since.
    #[error("it moved the file, which was moved to {} since; take that back first", quote(.0))]
    MovedSince(String),
    /// The change edited the file, which has been deleted since.
    #[error("the file was deleted since, restore it first")]
    DeletedSince,
    /// The changed lines have been changed again: `ours` is the current file, `theirs` is the file before the change.
    #[error("its lines were changed since: {0}")]
    Conflict(MergeConflict),
    /// It has no such hunk.
    #[error("{0}")]
    NoSuchHunk(NoSuchHunkError),
    /// The file now has another encoding, which cannot represent a character of the restored text.
    #[error("the file's encoding was changed since: {0}")]
    Unencodable(UnencodableError),
}

// The text of a `ReversalErrorReason` is complete: with the cause as its source, the cause would be printed twice.
impl From<MergeConflict> for ReversalErrorReason {
    fn from(conflict: MergeConflict) -> Self {
        Self::Conflict(conflict)
    }
}

impl From<NoSuchHunkError> for ReversalErrorReason {
    fn from(error: NoSuchHunkError) -> Self {
        Self::NoSuchHunk(error)
    }
}

impl From<UnencodableError> for ReversalErrorReason {
    fn from(error: UnencodableError) -> Self {
        Self::Unencodable(error)
    }
}

/// Plans the reversal of some changes of one file, newest first, regardless of other changes to it.
///
/// Permission bits are restored with the change unless they were changed since. Reverting all hunks of a change
/// reverts it as a whole; fewer leave the permission bits alone.
///
/// # Errors
/// Returns [`ReversalError`] if that could lose text, or too little is known.
pub fn plan_reversal(
    current: FileContent<'_>,
    steps_newest_first: &[ReversalStep<'_>],
) -> Result<ReversalPlan, ReversalError> {
    plan_resolved_reversal(current, steps_newest_first, ConflictResolution::Refuse).map(|(plan, _)| plan)
}

/// Does the same, and resolves conflicts with later changes. Also returns their number.
///
/// # Errors
/// Returns [`ReversalError`] if the conflicts cannot be resolved in this way, or too little is known.
pub fn plan_resolved_reversal(
    current: FileContent<'_>,
    steps_newest_first: &[ReversalStep<'_>],
    resolution: ConflictResolution,
) -> Result<(ReversalPlan, usize), ReversalError> {
    let Some(first) = steps_newest_first.first() else { return Ok((ReversalPlan::Unchanged, 0)) };
    let start = to_snapshot(current).map_err(|reason| first.reversal_error(reason))?;
    let mut file = start.clone();
    let mut resolver = ConflictResolver::new(resolution);
    for step in steps_newest_first {
        file = step.reverse(file, &mut resolver).map_err(|reason| step.reversal_error(reason))?;
    }
    let plan = match file {
        file if file == start => ReversalPlan::Unchanged,
        Some(file) => ReversalPlan::Write { bytes: file.bytes.into_owned(), mode: file.mode },
        None => ReversalPlan::Delete,
    };
    Ok((plan, resolver.resolved_count))
}

/// The state of a file during a reversal.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileSnapshot<'a> {
    bytes: Cow<'a, [u8]>,
    mode: u32,
}

impl<'a> ReversalStep<'a> {
    /// Returns the reversal to record in the journal. All hunks of a change are the whole change.
    #[must_use]
    pub fn reversal(&self) -> Reversal {
        let part = || self.text_without_hunks(&to_snapshot(self.before)?, &to_snapshot(self.after)?);
        let hunks = if part() == Ok(None) { None } else { self.hunks.map(<[usize]>::to_vec) };
        Reversal { change: self.change.id, hunks }
    }

    fn reversal_error(&self, reason: ReversalErrorReason) -> ReversalError {
        let reason = if reason == ReversalErrorReason::ContentUnavailable && self.change.is_pruned() {
            ReversalErrorReason::Pruned
        } else {
            reason
        };
        ReversalError { path: self.change.path.clone(), change: self.change.id, reason }
    }

    fn reverse(
        &self,
        file: Option<FileSnapshot<'a>>,
        resolver: &mut ConflictResolver,
    ) -> Result<Option<FileSnapshot<'a>>, ReversalErrorReason> {
        let (before, after) = (to_snapshot(self.before)?, to_snapshot(self.after)?);
        let Some(part) = self.text_without_hunks(&before, &after)? else {
            return match reverse_whole(file.clone(), before.clone(), after, resolver) {
                Err(reason) => resolver.replace(file, before, reason),
                reversed => reversed,
            };
        };
        let (Some(file), Some(after)) = (file, after) else { return Err(ReversalErrorReason::DeletedSince) };
        let now = decode_alongside(&file, &before.iter().chain([&after]).collect::<Vec<_>>())?;
        let merged = resolver.merge(&decode_snapshot(&after, Some(now.format))?.text, &now.text, &part)?;
        Ok(Some(FileSnapshot { bytes: encode(&merged, now.format)?.into(), ..file }))
    }

    /// Returns the text with some hunks reverted, or `None` if that is the whole change.
    fn text_without_hunks(
        &self,
        before: &Option<FileSnapshot<'_>>,
        after: &Option<FileSnapshot<'_>>,
    ) -> Result<Option<String>, ReversalErrorReason> {
        let Some(hunks) = self.hunks else { return Ok(None) };
        let read = |file: &Option<FileSnapshot<'_>>| match file {
            Some(file) => decode_snapshot(file, None).map(|read| read.text),
            None => Ok(String::new()),
        };
        let (old, new) = (read(before)?, read(after)?);
        let part = diff::revert_hunks(&old, &new, hunks)?;
        // Where only the mode changed there are no hunks, and an empty list of hunks does not name the change.
        Ok((part != old || hunks.is_empty()).then_some(part))
    }
}

fn reverse_whole<'a>(
    file: Option<FileSnapshot<'a>>,
    before: Option<FileSnapshot<'a>>,
    after: Option<FileSnapshot<'a>>,
    resolver: &mut ConflictResolver,
) -> Result<Option<FileSnapshot<'a>>, ReversalErrorReason> {
    if snapshot_bytes(&file) == snapshot_bytes(&after) {
        let Some(before) = before else { return Ok(None) };
        let mode = match (file, after) {
            (Some(file), Some(after)) => reversed_mode(file.mode, after.mode, before.mode),
            _ => before.mode,
        };
        return Ok(Some(FileSnapshot { mode, ..before }));
    }
    let nothing_to_do =
        snapshot_bytes(&file) == snapshot_bytes(&before) || snapshot_bytes(&before) == snapshot_bytes(&after);
    match (file, before, after) {
        (Some(file), Some(before), Some(after)) => {
            let mode = reversed_mode(file.mode, after.mode, before.mode);
            if nothing_to_do {
                return Ok(Some(FileSnapshot { mode, ..file }));
            }
            let now = decode_alongside(&file, &[&before, &after])?;
            let known =
                |file: &FileSnapshot<'_>| decode_snapshot(file, Some(now.format)).map(|read| read.text);
            let merged = resolver.merge(&known(&after)?, &now.text, &known(&before)?)?;
            Ok(Some(FileSnapshot { bytes: encode(&merged, now.format)?.into(), mode }))
        }
        (file, ..) if nothing_to_do => Ok(file),
        (_, None, _) => Err(ReversalErrorReason::EditedSince),
        (_, _, None) => Err(ReversalErrorReason::PathOccupied),
        (None, ..) => Err(ReversalErrorReason::DeletedSince),
    }
}

/// Returns the mode of a file after a change of its mode is reverted.
fn reversed_mode(current: u32, after: u32, before: u32) -> u32 {
    if current == after { before } else { current }
}

fn to_snapshot(content: FileContent<'_>) -> Result<Option<FileSnapshot<'_>>, ReversalErrorReason> {
    match content {
        FileContent::Absent => Ok(None),
        FileContent::Bytes { bytes, mode } => Ok(Some(FileSnapshot { bytes: bytes.into(), mode })),
        FileContent::Unknown => Err(ReversalErrorReason::ContentUnavailable),
    }
}

fn snapshot_bytes<'f>(file: &'f Option<FileSnapshot<'_>>) -> Option<&'f [u8]> {
    file.as_ref().map(|file| &*file.bytes)
}

/// Decodes a file as text. If its bytes are all ASCII they do not show the file's encoding, but its other states may.
fn decode_alongside(
    file: &FileSnapshot<'_>,
    others: &[&FileSnapshot<'_>],
) -> Result<DecodedText, ReversalErrorReason> {
    let decoded = decode_snapshot(file, None)?;
    if decoded.format != TextFormat::default() || !decoded.text.is_ascii() {
        return Ok(decoded);
    }
    let format = |other: &&FileSnapshot<'_>| decode_snapshot(other, None).ok().map(|read| read.format);
    let legacy = |format: &TextFormat| matches!(format.encoding, Encoding::Legacy(_));
    match others.iter().filter_map(format).find(legacy) {
        Some(format) => decode_snapshot(file, Some(format)),
        None => Ok(decoded),
    }
}

/// Decodes a file as text: in the format of another state of it if possible, else in its own.
fn decode_snapshot(
    file: &FileSnapshot<'_>,
    format: Option<TextFormat>,
) -> Result<DecodedText, ReversalErrorReason> {
    if let Some(format) = format
        && let Ok(text) = decode_as(file.bytes.to_vec(), format)
    {
        return Ok(DecodedText { text, format });
    }
    decode(file.bytes.to_vec()).map_err(|_| ReversalErrorReason::Binary)
}

#[cfg(test)]
mod tests;
