//! Batches: several operations on files, of which all happen or none.
//!
//! A batch is decided as a whole under the writer lock (`batch/decide.rs`), from the files as they are before it, and
//! then applied as one group of changes: the journal has them under one time and origin, they are undone together, and
//! after a crash all of them are completed or none. Unsaved text that a write meets is saved first, as the user's own
//! change. A write by itself is a batch of one.
//!
//! Moved and copied files are written anew, with their bytes and their mode but without setuid and setgid. Directories
//! have no content in the journal; `batch/directories.rs` keeps them in step with the files.

use std::io::{self, ErrorKind};
use std::sync::{Arc, MutexGuard};

use bowline_history::changes::{ChangeId, ChangeOrigin};
use bowline_policy::grants::FileId;
use bowline_policy::operation::{Operation, OperationKind, OperationTarget};
use bowline_policy::paths::{Access, Protection, path_below};
use bowline_policy::question::{QuestionItem, TextChange};
use bowline_protocol::file_extension::{BatchError, Etag, FileData, FileError, FileOperation};
use bowline_text::hash::ContentHash;
use bowline_text::text;

use super::apply::{AppliedChange, ApplyError, ChangeGroup, PlannedChange, apply_changes};
use super::documents::Documents;
use super::merged_writes::{MergedWrite, restore_merged};
use super::recover::recover_interrupted;
use super::undo::update_document;
use super::write::{MAX_ATTEMPTS, PRIVILEGES_DROPPED, UNGUARDED_NOTE, UnsavedWrite};
use super::{KeptText, WorkspaceSession, WorkspaceWriter};
use crate::disk::content_scan::ContentScan;
use crate::disk::file_version;
use crate::disk::writers::WriterState;
use crate::error::FilesError;
use crate::journal::JournalError;
use crate::roots::AdmitError;

mod append;
mod decide;
pub(super) mod directories;
mod tree;

use decide::{ConditionCheck, DecidedBatch, DecidedFile, LedgerEffect, decide_batch};
use directories::{BatchResult, create_directories, finish_without_files, record_intent, settle_records};

/// The content of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileContent {
    /// A text, whatever the encoding of the file is.
    Text(Arc<String>),
    /// Bytes that are not text.
    Binary {
        /// Their hash.
        hash: ContentHash,
        /// Their number.
        size: u64,
    },
    /// A file that is not held in memory, because only its end changes.
    Large {
        /// The hash of its text, or of its bytes if they are not text. A file that is too large to be written as a
        /// whole is not hashed: this is the hash of its size and its end.
        hash: ContentHash,
        /// Its size in bytes.
        size: u64,
        /// The text that is added to its end; `None` before that, or if it is not text.
        added: Option<Arc<String>>,
    },
}

impl FileContent {
    fn from_bytes(bytes: &[u8]) -> Self {
        match text::decode(bytes.to_owned()) {
            Ok(decoded) => Self::Text(Arc::new(decoded.text)),
            Err(_) => Self::Binary { hash: ContentHash::digest(bytes), size: bytes.len() as u64 },
        }
    }

    /// Returns the etag of a file with this content.
    #[must_use]
    pub fn etag(&self) -> Etag {
        match self {
            Self::Text(text) => Etag::digest(text.as_bytes()),
            Self::Binary { hash, .. } | Self::Large { hash, .. } => (*hash).into(),
        }
    }
}

/// The effect of a batch on one file, for approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePreview {
    /// The operation, from 0. A moved file has two entries, one for each path.
    pub operation: usize,
    /// The file's canonical path.
    pub path: String,
    /// The path as it was requested; in a directory, as it was found there.
    pub requested: String,
    /// The file's identity, if it exists.
    pub file: Option<FileId>,
    /// The content of the file or of its open document; `None` if there is neither.
    pub before: Option<FileContent>,
    /// The content after the batch; `None` if the file is removed.
    pub after: Option<FileContent>,
    /// Why the path is protected from writing.
    pub protection: Option<Protection>,
    /// Whether the batch would remove the file's setuid or setgid bit.
    pub drops_privileges: bool,
    /// The canonical path from which the file is moved.
    pub moved_from: Option<String>,
    /// The canonical path from which the file is copied.
    pub copied_from: Option<String>,
    /// Why the source is protected: from writing for a move, from reading for a copy.
    pub source_protection: Option<Protection>,
}

/// The effect of a batch, for approval.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BatchPreview {
    /// The files, in the order of the operations.
    pub files: Vec<FilePreview>,
    /// The canonical paths of directories that would be created, parents first.
    pub created_directories: Vec<String>,
    /// The canonical paths of directories that would be removed, contents first.
    pub removed_directories: Vec<String>,
}

impl FilePreview {
    /// Returns the file as a person is asked about it, with its text before and after as far as it is text.
    #[must_use]
    pub fn question_item(&self) -> QuestionItem {
        let kind = if self.after.is_some() { OperationKind::Write } else { OperationKind::Delete };
        let (requested, resolved) = (self.requested.clone(), self.path.clone());
        let target = OperationTarget::File { requested, resolved, protection: self.protection };
        let operation = Operation { kind, target };
        let before = match &self.before {
            None => None,
            Some(FileContent::Text(text)) => Some(text.clone()),
            Some(FileContent::Binary { .. }) => return QuestionItem::new(operation),
            // Of a large file only what is appended is shown.
            Some(FileContent::Large { .. }) => Some(Arc::default()),
        };
        match &self.after {
            Some(FileContent::Text(after) | FileContent::Large { added: Some(after), .. }) => {
                QuestionItem::with_change(operation, TextChange { before, after: after.clone() })
            }
            None => QuestionItem::with_change(operation, TextChange { before, after: Arc::default() }),
            Some(FileContent::Binary { .. } | FileContent::Large { added: None, .. }) => {
                QuestionItem::new(operation)
            }
        }
    }
}

impl BatchPreview {
    /// Returns the batch as a person is asked about it: an item for every file that it changes or copies, and for every
    /// directory without one.
    ///
    /// # Errors
    /// Fails if a directory may not be changed.
    pub fn question_items(&self, session: &WorkspaceSession) -> Result<Vec<QuestionItem>, FilesError> {
        let mut items = Vec::new();
        for file in &self.files {
            if let Some(source) = &file.copied_from {
                let (requested, resolved) = (source.clone(), source.clone());
                let target =
                    OperationTarget::File { requested, resolved, protection: file.source_protection };
                items.push(QuestionItem::new(Operation { kind: OperationKind::Read, target }));
            }
            items.push(file.question_item());
        }
        // The directories above a changed file go without saying.
        let has_files = |directory: &str| {
            let mut files = self.files.iter().filter_map(|file| path_below(&file.path, directory));
            files.any(|rest| !rest.is_empty())
        };
        let created = self.created_directories.iter().map(|path| (OperationKind::Write, path));
        let removed = self.removed_directories.iter().map(|path| (OperationKind::Delete, path));
        for (kind, path) in created.chain(removed).filter(|(_, path)| !has_files(path)) {
            items.push(QuestionItem::new(session.admit(path, Access::Write)?.operation(kind)));
        }
        Ok(items)
    }

    /// Returns the path of a file or directory on which another preview has another effect, if there is one.
    fn find_difference(&self, now: &Self) -> Option<String> {
        let file = find_difference(&self.files, &now.files).map(|file| &file.requested);
        let created = || find_difference(&self.created_directories, &now.created_directories);
        let removed = || find_difference(&self.removed_directories, &now.removed_directories);
        file.or_else(created).or_else(removed).cloned()
    }

    /// Returns every path that the batch changes or copies from.
    #[must_use]
    pub fn paths(&self) -> Vec<String> {
        let files = self.files.iter().flat_map(|file| {
            let sources = file.moved_from.iter().chain(&file.copied_from);
            std::iter::once(&file.path).chain(sources)
        });
        let directories = self.created_directories.iter().chain(&self.removed_directories);
        files.chain(directories).cloned().collect()
    }
}

/// Returns the first element that only one of two lists has at its place.
fn find_difference<'a, T: PartialEq>(before: &'a [T], now: &'a [T]) -> Option<&'a T> {
    let index = (0..before.len().max(now.len())).find(|&index| before.get(index) != now.get(index))?;
    now.get(index).or(before.get(index))
}

/// What was approved: the batch does no more than this, even if files changed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchAgreement<'a> {
    /// Changing these canonical paths, with any resulting content. They cover the directories above them.
    Paths(&'a [String]),
    /// Exactly the preview.
    Preview(&'a BatchPreview),
}

/// A written file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenFile {
    /// The file's canonical path.
    pub path: String,
    /// The file's text now; `None` if it is not text, or only its end was read.
    pub text: Option<Arc<String>>,
    /// The file's etag now.
    pub etag: Etag,
    /// Whether the text has changes by others, besides what the session knew and wrote.
    pub is_merged: bool,
    /// Notes for the writer, one per line.
    pub notes: Vec<String>,
}

/// The outcome of one operation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OperationOutcome {
    /// The changes in the journal.
    pub changes: Vec<ChangeId>,
    /// The file, if the operation is a write.
    pub written: Option<WrittenFile>,
}

/// The outcome of a batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BatchOutcome {
    /// The outcome of each operation, in their order. That of a read is empty.
    pub operations: Vec<OperationOutcome>,
    /// The changes of directories in the journal, if there are none of files.
    pub directory_changes: Vec<ChangeId>,
    /// Texts that other programs wrote to the files in the meantime and that could not be merged: only the journal has
    /// them.
    pub kept_texts: Vec<KeptText>,
}

/// Why an operation of a batch failed.
#[derive(Debug, thiserror::Error)]
pub enum FileEditError {
    /// As for any file operation.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// As the file extension defines it.
    #[error(transparent)]
    File(#[from] FileError),
}

impl FileEditError {
    fn at(self, operation: usize) -> BatchEditError {
        BatchEditError { operation: Some(operation), error: Box::new(self) }
    }

    /// Returns the error with the current etag of a file in conflict.
    fn with_etag(self, current: Option<&FileContent>) -> Self {
        match self {
            Self::Files(error @ FilesError::WriteRejected { .. }) => match error.into() {
                FileError::Conflict { path, reason, hunks, .. } => {
                    FileError::Conflict { path, reason, etag: current.map(FileContent::etag), hunks }.into()
                }
                other => other.into(),
            },
            other => other,
        }
    }
}

impl From<AdmitError> for FileEditError {
    fn from(error: AdmitError) -> Self {
        Self::Files(error.into())
    }
}

impl From<FileEditError> for FileError {
    fn from(error: FileEditError) -> Self {
        match error {
            FileEditError::Files(error) => error.into(),
            FileEditError::File(error) => error,
        }
    }
}

/// Why a batch failed. Nothing was changed, except for [`FilesError::Interrupted`]: then recovery completes it or
/// restores the files.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct BatchEditError {
    /// The failed operation, from 0; `None` if the batch as a whole failed.
    pub operation: Option<usize>,
    /// Why it failed.
    pub error: Box<FileEditError>,
}

impl From<FilesError> for BatchEditError {
    fn from(error: FilesError) -> Self {
        Self { operation: None, error: Box::new(error.into()) }
    }
}

impl From<JournalError> for BatchEditError {
    fn from(error: JournalError) -> Self {
        FilesError::from(error).into()
    }
}

impl From<BatchEditError> for BatchError {
    fn from(failure: BatchEditError) -> Self {
        Self { index: failure.operation.map(|index| index as u64), error: (*failure.error).into() }
    }
}

/// Why an attempt at a batch failed. Nothing was changed.
enum AttemptError {
    /// The file at this path changed in the meantime: decide again.
    Raced(String),
    Failed(BatchEditError),
}

impl From<ApplyError> for AttemptError {
    fn from(error: ApplyError) -> Self {
        match error {
            ApplyError::Raced(path) => Self::Raced(path),
            ApplyError::Failed(error) => Self::Failed(error.into()),
        }
    }
}

impl From<BatchEditError> for AttemptError {
    fn from(error: BatchEditError) -> Self {
        Self::Failed(error)
    }
}

impl From<FilesError> for AttemptError {
    fn from(error: FilesError) -> Self {
        Self::Failed(error.into())
    }
}

/// Returns the effect of a batch, without performing it.
pub(super) fn preview_batch(
    session: &WorkspaceSession,
    operations: &[FileOperation],
) -> Result<BatchPreview, BatchEditError> {
    wait_for_writers(session, operations);
    let documents = session.workspace.documents();
    let origin = ChangeOrigin::default();
    Ok(decide_batch(session, &documents, operations, &origin, ConditionCheck::Needed)?.preview())
}

/// Performs all operations of a batch, or none.
pub(super) fn apply_batch(
    session: &WorkspaceSession,
    operations: &[FileOperation],
    origin: &ChangeOrigin,
    agreed: Option<BatchAgreement<'_>>,
) -> Result<BatchOutcome, BatchEditError> {
    let workspace = &session.workspace;
    wait_for_writers(session, operations);
    let mut writer = workspace.writer();
    writer.kept_texts.clear();
    recover_interrupted(workspace, &mut writer, &session.roots)?;
    let _lock = writer.journal.lock()?;
    let mut raced_path = String::new();
    for _ in 0..MAX_ATTEMPTS {
        match attempt_batch(session, &mut writer, operations, origin, agreed) {
            Ok(outcome) => {
                return Ok(BatchOutcome { kept_texts: std::mem::take(&mut writer.kept_texts), ..outcome });
            }
            Err(AttemptError::Raced(path)) => raced_path = path,
            Err(AttemptError::Failed(error)) => return Err(error),
        }
    }
    Err(FilesError::KeepsChanging(raced_path).into())
}

/// Waits for programs that are saving the files to be written, without holding a lock.
fn wait_for_writers(session: &WorkspaceSession, operations: &[FileOperation]) {
    for operation in operations {
        if let FileOperation::Write(write) = operation {
            session.wait_for_writers(write.path.as_str());
        }
    }
}

fn attempt_batch(
    session: &WorkspaceSession,
    writer: &mut WorkspaceWriter,
    operations: &[FileOperation],
    origin: &ChangeOrigin,
    agreed: Option<BatchAgreement<'_>>,
) -> Result<BatchOutcome, AttemptError> {
    for operation in operations {
        if let FileOperation::Write(write) = operation
            && matches!(write.data, FileData::Text(_))
        {
            restore_merged(&session.workspace, writer, &session.roots, write.path.as_str(), origin)?;
        }
    }
    let mut documents = session.workspace.documents();
    let mut decided = decide_batch(session, &documents, operations, origin, ConditionCheck::Needed)?;
    if let Some(path) = agreed.and_then(|agreed| agreed.find_uncovered(&decided)) {
        return Err(FilesError::ChangedSinceApproval(path).into());
    }
    if decided.files.iter().any(|file| file.unsaved.is_some()) {
        let saved = save_unsaved_texts(session, writer, &mut documents, &mut decided, origin)?;
        let conditions = ConditionCheck::Done(&decided.known);
        let again = decide_batch(session, &documents, operations, origin, conditions)?;
        for SentText { operation, sent, saved } in saved {
            let Some(file) = again.files.iter().find(|file| file.operation == operation) else { continue };
            let current = file.current.as_ref();
            if *sent != **saved && current.is_some_and(|current| current.bytes == sent.as_bytes()) {
                // The agent's own copy arrived in the meantime: the next attempt starts from the user's text.
                return Err(AttemptError::Raced(file.admitted.requested_path().to_owned()));
            }
        }
        decided = again;
    }
    // If no document is open, the documents are unlocked while the disk is written.
    let is_open = decided.files.iter().any(|file| file.document.is_some());
    apply_decided(session, writer, is_open.then_some(documents), decided, origin, operations.len())
}

/// A text that an operation replaces unsaved text with, and the unsaved text as it was saved.
struct SentText {
    operation: usize,
    sent: String,
    saved: Arc<String>,
}

/// Saves the unsaved texts that a batch meets.
fn save_unsaved_texts(
    session: &WorkspaceSession,
    writer: &mut WorkspaceWriter,
    documents: &mut MutexGuard<'_, Documents>,
    decided: &mut DecidedBatch,
    origin: &ChangeOrigin,
) -> Result<Vec<SentText>, AttemptError> {
    let mut texts = Vec::new();
    for file in &mut decided.files {
        let Some(unsaved) = file.unsaved.take() else { continue };
        let before = UnsavedWrite {
            admitted: &file.admitted,
            current: file.current.as_ref(),
            base: unsaved.base,
            sent: unsaved.sent.as_deref().map(|sent| (sent, file.merged.take())),
        };
        let saved = session.save_unsaved_text(writer, documents, before, origin)?;
        texts.extend(unsaved.sent.map(|sent| SentText { operation: file.operation, sent, saved }));
    }
    Ok(texts)
}

/// Changes the files and directories of a decided batch.
fn apply_decided(
    session: &WorkspaceSession,
    writer: &mut WorkspaceWriter,
    documents: Option<MutexGuard<'_, Documents>>,
    decided: DecidedBatch,
    origin: &ChangeOrigin,
    count: usize,
) -> Result<BatchOutcome, AttemptError> {
    let DecidedBatch { files, directories, .. } = decided;
    let (held, changed): (Vec<_>, Vec<_>) = files.into_iter().partition(DecidedFile::is_held);
    let (held, unchanged): (Vec<_>, Vec<_>) = held.into_iter().map(FinishedFile::split).unzip();
    let (changed, changes): (Vec<_>, Vec<_>) = changed.into_iter().map(FinishedFile::split).unzip();
    let at = writer.next_group_time();
    let group = ChangeGroup { roots: &session.roots, origin, changes: &changes, at, progress: None };
    let (applied, directory_changes) = apply_with_directories(session, writer, &group, &directories)?;
    let mut outcomes = vec![OperationOutcome::default(); count];
    let mut documents = documents;
    let mut finish = |writer: &mut WorkspaceWriter, mut file: FinishedFile, planned, change, stat| {
        file.finish(session, writer, documents.as_deref_mut(), planned, stat);
        file.update_etag(stat);
        let outcome = &mut outcomes[file.operation];
        outcome.changes.extend::<Option<ChangeId>>(change);
        outcome.written = outcome.written.take().or(file.written);
    };
    for (file, planned) in held.into_iter().zip(&unchanged) {
        // The batch is done: what cannot be attributed now is found by the next scan.
        let change = adopt_held_write(session, writer, planned, origin).unwrap_or_default();
        finish(writer, file, planned, change, planned.current.as_ref().map(|current| &current.stat));
    }
    for ((file, planned), AppliedChange { change, stat }) in changed.into_iter().zip(&changes).zip(&applied) {
        finish(writer, file, planned, Some(*change), stat.as_ref());
    }
    Ok(BatchOutcome { operations: outcomes, directory_changes, kept_texts: Vec::new() })
}

/// Attributes a text to the session that it wrote to the disk before asking the engine to write the same.
fn adopt_held_write(
    session: &WorkspaceSession,
    writer: &mut WorkspaceWriter,
    planned: &PlannedChange,
    origin: &ChangeOrigin,
) -> Result<Option<ChangeId>, FilesError> {
    let Some(current) = &planned.current else { return Ok(None) };
    let WorkspaceWriter { journal, observer_state, .. } = writer;
    let file = (planned.admitted.canonical(), current.bytes.as_slice());
    observer_state.adopt_write(journal, &session.workspace.inner.roots, file, origin)
}

/// Creates directories, changes files and removes directories: all or none. Returns the changes of files, or else those of
/// directories.
fn apply_with_directories(
    session: &WorkspaceSession,
    writer: &mut WorkspaceWriter,
    group: &ChangeGroup<'_>,
    directories: &directories::DirectoryChanges,
) -> Result<(Vec<AppliedChange>, Vec<ChangeId>), AttemptError> {
    let workspace = &session.workspace;
    let apply_group = |writer: &mut WorkspaceWriter| {
        Ok(if group.changes.is_empty() { Vec::new() } else { apply_changes(workspace, writer, group)? })
    };
    if directories.is_empty() {
        return Ok((apply_group(writer)?, Vec::new()));
    }
    if let Err(error) = record_intent(workspace, &writer.journal, directories, group.at) {
        // The record may have been written nevertheless.
        writer.needs_recovery = true;
        return Err(error.into());
    }
    let changed = directories.created.iter().chain(&directories.removed);
    writer.recent_directories.record(changed.map(|directory| &*directory.path), group.origin);
    let applied = match create_directories(&session.roots, &directories.created, &workspace.inner.calls) {
        Ok(()) if group.changes.is_empty() => {
            let (place, effect) = ((workspace, &session.roots), (group.origin, group.at));
            let finished = finish_without_files(place, &mut writer.journal, directories, effect);
            finished.map(|changes| (Vec::new(), changes)).map_err(AttemptError::from)
        }
        Ok(()) => apply_group(writer).map(|applied| (applied, Vec::new())),
        Err(FilesError::System { path, why }) if is_directory_race(&why) => Err(AttemptError::Raced(path)),
        Err(error) => Err(error.into()),
    };
    match applied {
        // The outcome of the files decides that of the directories.
        Err(AttemptError::Failed(error)) if error.is_interrupted() => Err(AttemptError::Failed(error)),
        Err(error) => {
            writer.needs_recovery |= !settle_records(workspace, &session.roots, BatchResult::Abandoned);
            Err(error)
        }
        Ok((applied, changes)) => {
            // Leftover files may keep a directory from being removed until they are recovered.
            if !writer.needs_recovery {
                let last = applied.iter().map(|applied| applied.change).chain(changes.iter().copied()).max();
                let is_settled = settle_records(workspace, &session.roots, BatchResult::Done { last });
                writer.needs_recovery = !is_settled;
            }
            Ok((applied, changes))
        }
    }
}

/// Returns whether a directory appeared or disappeared after it was decided to create one.
fn is_directory_race(why: &io::Error) -> bool {
    matches!(why.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound)
}

impl BatchEditError {
    fn is_interrupted(&self) -> bool {
        matches!(*self.error, FileEditError::Files(FilesError::Interrupted { .. }))
    }
}

/// A file of a batch after its change: what to tell documents, ledger and caller.
struct FinishedFile {
    operation: usize,
    document: Option<String>,
    ledger: LedgerEffect,
    scan: Option<ContentScan>,
    merged: Option<MergedWrite>,
    written: Option<WrittenFile>,
}

impl FinishedFile {
    fn split(file: DecidedFile) -> (Self, PlannedChange) {
        let mut notes = Vec::new();
        if file.drops_privileges {
            notes.push(PRIVILEGES_DROPPED.to_owned());
        }
        let current = file.current.as_ref().map(|current| current.writer_state);
        if current.or(file.tail.as_ref().map(|tail| tail.writer_state)) == Some(WriterState::Unknown) {
            notes.push(UNGUARDED_NOTE.to_owned());
        }
        let is_write = file.moved_from.is_none() && file.copied_from.is_none();
        let written = file.after.filter(|_| is_write).map(|content| WrittenFile {
            path: file.admitted.canonical().to_owned(),
            etag: content.etag(),
            text: match content {
                FileContent::Text(text) => Some(text),
                FileContent::Binary { .. } | FileContent::Large { .. } => None,
            },
            is_merged: file.is_merged,
            notes,
        });
        let finished = Self {
            operation: file.operation,
            document: file.document,
            ledger: file.ledger,
            scan: file.scan,
            merged: file.merged,
            written,
        };
        let change = PlannedChange {
            admitted: file.admitted,
            current: file.current,
            new: file.new,
            tail: file.tail,
            moved_from: file.moved_from,
            reverses: Vec::new(),
        };
        (finished, change)
    }

    /// Gives a file that was appended to the etag that a read of it gives.
    fn update_etag(&mut self, stat: Option<&rustix::fs::Stat>) {
        if let (Some(written), Some(scan), Some(stat)) = (&mut self.written, &self.scan, stat) {
            written.etag = scan.etag(stat);
        }
    }

    /// Updates the open document, the ledger and the merged writes.
    fn finish(
        &self,
        session: &WorkspaceSession,
        writer: &mut WorkspaceWriter,
        documents: Option<&mut Documents>,
        planned: &PlannedChange,
        stat: Option<&rustix::fs::Stat>,
    ) {
        let path = planned.admitted.canonical();
        if let (Some(documents), Some(known_by)) = (documents, &self.document) {
            update_document(documents, known_by, planned.new.as_ref(), stat);
        }
        if let (Some(scan), Some(stat)) = (&self.scan, stat) {
            session.workspace.inner.content_scans.record_append(stat, scan.clone());
        }
        session.with_ledger(|ledger| match &self.ledger {
            LedgerEffect::Keep => {}
            LedgerEffect::AsOnDisk => {
                if let (Some(scan), Some(stat)) = (&self.scan, stat) {
                    let size = scan.size() - scan.mark_bytes();
                    ledger.record_window_read(path, file_version(stat), 0..size, size);
                }
            }
            LedgerEffect::Known(text) => ledger.record_write(path, text.clone()),
            LedgerEffect::Absent => ledger.record_absent(path),
            LedgerEffect::Forget => ledger.forget(path),
        });
        writer.observer_state.merged_writes.record(path, self.merged.clone());
    }
}

impl BatchAgreement<'_> {
    /// Returns the path of a change that was not approved, if there is one.
    fn find_uncovered(self, decided: &DecidedBatch) -> Option<String> {
        match self {
            Self::Preview(shown) => shown.find_difference(&decided.preview()),
            Self::Paths(paths) => {
                let is_agreed = |path: &String| paths.contains(path);
                let is_above =
                    |directory: &str| paths.iter().any(|agreed| path_below(agreed, directory).is_some());
                let files = decided.files.iter().find(|file| {
                    let mut sources = file.moved_from.iter().chain(&file.copied_from);
                    !paths.iter().any(|path| path == file.admitted.canonical()) || !sources.all(is_agreed)
                });
                let directories = decided.directories.created.iter().chain(&decided.directories.removed);
                let mut directories = directories.map(|directory| &directory.path);
                let file = files.map(|file| file.admitted.requested_path());
                file.or_else(|| directories.find(|path| !is_above(path)).map(String::as_str))
                    .map(str::to_owned)
            }
        }
    }
}

#[cfg(test)]
mod tests;
