//! Decides the operations of a batch: the resulting files and directories, without changing any.
//!
//! Every operation sees the files as they are before the batch, except that directories which earlier operations create
//! exist. Operations that overlap once links are resolved are refused.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use bowline_history::changes::ChangeOrigin;
use bowline_history::ledger::{Knowledge, WriteRejectedError, WriteVerdict, decide_insertion};
use bowline_policy::grants::FileId;
use bowline_policy::paths::{Access, LexicalPath, Protection};
use bowline_protocol::file_extension::data::{check_position, check_text_position};
use bowline_protocol::file_extension::overlap::{OverlapChecker, PathEffect};
use bowline_protocol::file_extension::{
    DestinationPolicy, Etag, FileData, FileError, FileOperation, MkdirOperation, RemoveOperation,
    TransferOperation, WriteCondition, WriteOperation, WritePlacement,
};
use bowline_text::text;
use rustix::fs::FileType;

use super::super::WorkspaceSession;
use super::super::apply::{CurrentFile, FileBytes, NewFile, TailChange, check_writable, read_current};
use super::super::documents::Documents;
use super::super::editor::merge_with_disk;
use super::super::merged_writes::MergedWrite;
use super::super::write::{SETUID_SETGID, encode_shared, unprivileged_mode};
use super::append::decide_append;
use super::directories::{DirectoryChanges, DirectoryEntry};
use super::tree::{TreeBudget, join_path, list_tree};
use super::{BatchEditError, BatchPreview, FileContent, FileEditError, FilePreview};
use crate::disk::content_scan::ContentScan;
use crate::error::FilesError;
use crate::roots::{AdmitError, AdmittedPath, GitRepositories};
use crate::walker::find_root;

/// The maximum size of all files of a batch in bytes, before and after together.
const MAX_TOTAL_BYTES: u64 = 512 << 20;

/// The mode of a directory that an operation creates by its name, limited by the user's umask.
const DEFAULT_DIRECTORY_MODE: u32 = 0o777;

/// What the session knows of a file after a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LedgerEffect {
    /// As much as before.
    Keep,
    /// This text.
    Known(Arc<String>),
    /// The file as it is on disk after the change.
    AsOnDisk,
    /// That there is no file.
    Absent,
    /// Nothing.
    Forget,
}

/// Unsaved text of the user that is saved before a write.
#[derive(Debug)]
pub(super) struct UnsavedText {
    // The base for merging once it is saved, if only the user has seen the text.
    pub(super) base: Option<Arc<String>>,
    // The whole text that the session sent, if it replaces the text.
    pub(super) sent: Option<String>,
}

/// One file of a decided batch.
#[derive(Debug)]
pub(super) struct DecidedFile {
    pub(super) operation: usize,
    pub(super) admitted: AdmittedPath,
    pub(super) file: Option<FileId>,
    pub(super) current: Option<CurrentFile>,
    // The path of its open document.
    pub(super) document: Option<String>,
    pub(super) before: Option<FileContent>,
    pub(super) after: Option<FileContent>,
    // `None` removes the file.
    pub(super) new: Option<NewFile>,
    // Only the end of the file changes: there is neither `current` nor `new`.
    pub(super) tail: Option<TailChange>,
    // The scan of a file after a change of its end.
    pub(super) scan: Option<ContentScan>,
    pub(super) drops_privileges: bool,
    pub(super) moved_from: Option<String>,
    pub(super) copied_from: Option<String>,
    pub(super) source_protection: Option<Protection>,
    pub(super) ledger: LedgerEffect,
    pub(super) unsaved: Option<UnsavedText>,
    pub(super) merged: Option<MergedWrite>,
    pub(super) is_merged: bool,
}

impl DecidedFile {
    /// Returns whether the disk already has the result.
    pub(super) fn is_held(&self) -> bool {
        match (&self.current, &self.new) {
            (Some(current), Some(new)) => {
                *current.bytes == *new.bytes && new.mode.is_none_or(|mode| mode == current.mode())
            }
            (None, None) => self.tail.as_ref().is_none_or(|tail| tail.bytes.is_empty()),
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    fn bytes(&self) -> u64 {
        let current = self.current.as_ref().map_or(0, |current| current.bytes.len());
        (current + self.new.as_ref().map_or(0, |new| new.bytes.len())) as u64
    }
}

/// A decided batch.
#[derive(Debug, Default)]
pub(super) struct DecidedBatch {
    pub(super) files: Vec<DecidedFile>,
    pub(super) directories: DirectoryChanges,
    /// What the session knows of files whose required state was checked, by operation.
    pub(super) known: BTreeMap<usize, Knowledge>,
}

impl DecidedBatch {
    pub(super) fn preview(&self) -> BatchPreview {
        let files = self.files.iter().map(|decided| FilePreview {
            operation: decided.operation,
            path: decided.admitted.canonical().to_owned(),
            requested: decided.admitted.requested_path().to_owned(),
            file: decided.file,
            before: decided.before.clone(),
            after: decided.after.clone(),
            protection: decided.admitted.protection(),
            drops_privileges: decided.drops_privileges,
            moved_from: decided.moved_from.clone(),
            copied_from: decided.copied_from.clone(),
            source_protection: decided.source_protection,
        });
        let paths = |directories: &[DirectoryEntry]| {
            directories.iter().map(|directory| directory.path.clone()).collect::<Vec<_>>()
        };
        BatchPreview {
            files: files.collect(),
            created_directories: paths(&self.directories.created),
            removed_directories: paths(&self.directories.removed),
        }
    }
}

/// Whether the required states of files are checked.
#[derive(Debug, Clone, Copy)]
pub(super) enum ConditionCheck<'a> {
    /// They are.
    Needed,
    /// They were, before unsaved texts were saved: what the session knew then, by operation.
    Done(&'a BTreeMap<usize, Knowledge>),
}

/// Decides a batch.
///
/// # Errors
/// Returns why it is refused, and the operation at fault.
pub(super) fn decide_batch(
    session: &WorkspaceSession,
    documents: &Documents,
    operations: &[FileOperation],
    origin: &ChangeOrigin,
    conditions: ConditionCheck<'_>,
) -> Result<DecidedBatch, BatchEditError> {
    let missing = check_overlaps(session, operations)?;
    if let [FileOperation::Write(write)] = operations
        && let Some(file) = decide_append(session, documents, write).map_err(|error| error.at(0))?
    {
        return Ok(DecidedBatch { files: vec![file], ..DecidedBatch::default() });
    }
    let mut decider = BatchDecider {
        session,
        documents,
        origin,
        conditions,
        batch: DecidedBatch::default(),
        missing,
        created: HashSet::new(),
        existing: HashSet::new(),
        budget: TreeBudget::default(),
        bytes: 0,
    };
    for (index, operation) in operations.iter().enumerate() {
        let decided = match operation {
            FileOperation::Read(_) => Ok(()),
            FileOperation::Write(write) => decider.decide_write(index, write),
            FileOperation::Move(transfer) => decider.decide_transfer(index, transfer, TransferKind::Move),
            FileOperation::Copy(transfer) => decider.decide_transfer(index, transfer, TransferKind::Copy),
            FileOperation::Remove(removal) => decider.decide_removal(index, removal),
            FileOperation::Mkdir(mkdir) => decider.decide_mkdir(mkdir),
        };
        decided.map_err(|error| error.at(index))?;
    }
    Ok(decider.batch)
}

/// Checks that no operations overlap, by their canonical paths. Errors name the requested ones. Returns the paths of
/// writes that do not exist, by operation; those that do would each hold a file open.
fn check_overlaps(
    session: &WorkspaceSession,
    operations: &[FileOperation],
) -> Result<HashMap<usize, AdmittedPath>, BatchEditError> {
    let effects: Vec<_> = operations.iter().map(FileOperation::effects).collect();
    let mut resolved = Vec::new();
    let mut missing = HashMap::new();
    let repositories = GitRepositories::default();
    for (index, effects) in effects.iter().enumerate() {
        let mut paths = Vec::new();
        for effect in effects {
            let access = match effect {
                PathEffect::Read(_) => Access::Read,
                PathEffect::Change(_) | PathEffect::CreateDirectory(_) => Access::Write,
            };
            let admitted = session.roots.admit_with(&requested_path(effect), access, &repositories);
            let admitted = admitted.map_err(|error| FileEditError::from(error).at(index))?;
            paths.push(PathBuf::from(admitted.canonical()));
            if matches!(operations[index], FileOperation::Write(_)) && !admitted.exists() {
                missing.insert(index, admitted);
            }
        }
        if let ([from, to], [source, target]) = (paths.as_slice(), effects.as_slice())
            && (from.starts_with(to) || to.starts_with(from))
        {
            let error = FileError::OntoItself { from: requested_path(source), to: requested_path(target) };
            return Err(FileEditError::from(error).at(index));
        }
        resolved.push(paths);
    }
    let mut checker = OverlapChecker::default();
    for (index, (paths, effects)) in resolved.iter().zip(&effects).enumerate() {
        let canonical: Vec<_> = paths
            .iter()
            .zip(effects)
            .map(|(path, effect)| match effect {
                PathEffect::Read(_) => PathEffect::Read(path),
                PathEffect::Change(_) => PathEffect::Change(path),
                PathEffect::CreateDirectory(_) => PathEffect::CreateDirectory(path),
            })
            .collect();
        checker.add(&canonical).map_err(|overlap| {
            let error = match overlap.error {
                FileError::Overlap { path, other } => {
                    let at = paths.iter().position(|own| own.to_string_lossy() == path);
                    let path = at.and_then(|at| effects.get(at)).map_or(path, requested_path);
                    FileError::Overlap { path, other }
                }
                error => error,
            };
            FileEditError::from(error).at(index)
        })?;
    }
    Ok(missing)
}

/// Returns the path of an effect as it was requested.
fn requested_path(effect: &PathEffect<'_>) -> String {
    effect.path().to_string_lossy().into_owned()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TransferKind {
    Move,
    Copy,
}

/// The resulting content of a write.
struct NewContent {
    bytes: FileBytes,
    content: FileContent,
    ledger: LedgerEffect,
    unsaved: Option<UnsavedText>,
    merged: Option<MergedWrite>,
    is_merged: bool,
}

struct BatchDecider<'a> {
    session: &'a WorkspaceSession,
    documents: &'a Documents,
    origin: &'a ChangeOrigin,
    conditions: ConditionCheck<'a>,
    batch: DecidedBatch,
    // The paths of writes that do not exist, by operation.
    missing: HashMap<usize, AdmittedPath>,
    // The directories that the batch creates, and those that were found to exist.
    created: HashSet<String>,
    existing: HashSet<String>,
    budget: TreeBudget,
    bytes: u64,
}

impl BatchDecider<'_> {
    fn decide_write(&mut self, index: usize, write: &WriteOperation) -> Result<(), FileEditError> {
        let session = self.session;
        let path = write.path.as_str();
        let admitted = match self.missing.remove(&index) {
            // If a file has appeared since, it is not replaced, and the batch is decided again.
            Some(admitted) => admitted,
            None => session.roots.admit(path, Access::Write)?,
        };
        let current = read_current(&session.workspace, &session.roots, &admitted)?;
        let document = self.documents.find(&admitted);
        let before = self.find_content(document.as_deref(), current.as_ref());
        let known = self.check_condition(index, write, before.as_ref())?;
        if before.is_none() && matches!(write.placement, WritePlacement::Insert { .. }) {
            return Err(FileError::NotFound { path: path.to_owned() }.into());
        }
        self.add_parents(&admitted, write.create_parents)?;
        let file = admitted.file_id();
        let decided = match &write.data {
            FileData::Text(text) if write.placement == WritePlacement::Truncate => {
                self.replace_text(admitted, current, text, known)
            }
            FileData::Text(text) => self
                .insert_text(&admitted, current.as_ref(), text, (write.placement, known))
                .map(|new| (admitted, current, new)),
            FileData::Bytes(bytes) => self
                .write_bytes(&admitted, current.as_ref(), bytes, (write.placement, known.is_some()))
                .map(|new| (admitted, current, new)),
        };
        let (admitted, current, new) = decided.map_err(|error| error.with_etag(before.as_ref()))?;
        let mode = unprivileged_mode(current.as_ref());
        let mut decided = DecidedFile {
            file,
            document,
            before,
            after: Some(new.content),
            new: Some(NewFile { bytes: new.bytes, mode: None }),
            ledger: new.ledger,
            unsaved: new.unsaved,
            merged: new.merged,
            is_merged: new.is_merged,
            ..DecidedFile::removed(index, admitted, current)
        };
        decided.drops_privileges = mode.is_some() && !decided.is_held();
        if let (true, Some(new)) = (decided.drops_privileges, &mut decided.new) {
            new.mode = mode;
        }
        self.add_file(decided)
    }

    /// Returns the content that the session sees: unsaved text, or the file.
    fn find_content(&self, document: Option<&str>, current: Option<&CurrentFile>) -> Option<FileContent> {
        let document = document.and_then(|path| self.documents.get(path));
        match document.filter(|document| document.is_dirty()) {
            Some(document) => Some(FileContent::Text(document.text().clone())),
            None => current.map(|current| FileContent::from_bytes(&current.bytes)),
        }
    }

    /// Checks the required state of a file, and returns what the session thereby knows of it.
    fn check_condition(
        &mut self,
        index: usize,
        write: &WriteOperation,
        before: Option<&FileContent>,
    ) -> Result<Option<Knowledge>, FileEditError> {
        if let ConditionCheck::Done(known) = self.conditions {
            return Ok(known.get(&index).cloned());
        }
        let path = write.path.as_str().to_owned();
        let known = match &write.condition {
            WriteCondition::Unconditional => return Ok(None),
            WriteCondition::CreateOnly if before.is_some() => {
                return Err(FileError::AlreadyExists { path }.into());
            }
            WriteCondition::CreateOnly => Knowledge::Absent,
            WriteCondition::IfMatch(etag) => {
                let current = before.map(FileContent::etag);
                if current.as_ref() != Some(etag) {
                    let reason = match current {
                        Some(_) => "the file has changed, read it again",
                        None => "the file does not exist",
                    };
                    let (reason, hunks) = (reason.to_owned(), Vec::new());
                    return Err(FileError::Conflict { path, reason, etag: current, hunks }.into());
                }
                match before {
                    Some(FileContent::Text(text)) => Knowledge::Whole(text.clone()),
                    Some(FileContent::Binary { hash, .. } | FileContent::Large { hash, .. }) => {
                        Knowledge::Hashed(*hash)
                    }
                    None => Knowledge::Absent,
                }
            }
        };
        self.batch.known.insert(index, known.clone());
        Ok(Some(known))
    }

    fn replace_text(
        &self,
        admitted: AdmittedPath,
        current: Option<CurrentFile>,
        content: &str,
        known: Option<Knowledge>,
    ) -> Result<(AdmittedPath, Option<CurrentFile>, NewContent), FileEditError> {
        self.session.check_size(admitted.requested_path(), content.len() as u64)?;
        let decided = self.session.decide_read_write(admitted, current, content, self.documents, known)?;
        let merged = decided.merged_write(content, self.origin);
        let decision = decided.decision;
        let bytes = encode_shared(&decision.text, decided.format, decided.admitted.requested_path())?;
        let sent = || UnsavedText { base: decided.base, sent: Some(content.to_owned()) };
        let new = NewContent {
            bytes,
            unsaved: decided.unsaved.map(|_| sent()),
            merged,
            is_merged: decision.verdict == WriteVerdict::Merged || decision.known_text != decision.text,
            content: FileContent::Text(decision.text),
            ledger: LedgerEffect::Known(decision.known_text),
        };
        Ok((decided.admitted, decided.current, new))
    }

    fn insert_text(
        &self,
        admitted: &AdmittedPath,
        current: Option<&CurrentFile>,
        content: &str,
        (placement, known): (WritePlacement, Option<Knowledge>),
    ) -> Result<NewContent, FileEditError> {
        let path = admitted.requested_path();
        if let Some(current) = current {
            self.session.check_replaceable(admitted, current)?;
        }
        let live = self.session.live_text(admitted, current, self.documents, known)?;
        let dirty = live.dirty_document();
        // The text that saving the document would write.
        let saved = dirty.map(|document| match &live.disk {
            Some(disk) => merge_with_disk(document, disk),
            None => Ok(document.text().to_string()),
        });
        let saved = saved.transpose().map_err(|why| FilesError::WriteRejected {
            path: path.to_owned(),
            why: WriteRejectedError::DiskConflict(why),
        })?;
        let now = saved.as_deref().or(live.disk.as_deref());
        let mut format = live.format;
        let mut content = content;
        if now.is_none_or(str::is_empty)
            && let Some(rest) = content.strip_prefix('\u{feff}')
        {
            format.has_bom = true;
            content = rest;
        }
        let position = match placement {
            WritePlacement::Insert { position } => check_text_position(position, now.unwrap_or_default())?,
            WritePlacement::Truncate | WritePlacement::Append => now.map_or(0, str::len),
        };
        self.session.check_size(path, (now.map_or(0, str::len) + content.len()) as u64)?;
        let decision = decide_insertion(&live.knowledge, live.version, now, position, content);
        let is_merged = decision.known_text.as_ref().is_some_and(|known| *known != decision.text);
        Ok(NewContent {
            bytes: encode_shared(&decision.text, format, path)?,
            content: FileContent::Text(decision.text),
            ledger: decision.known_text.map_or(LedgerEffect::Keep, LedgerEffect::Known),
            unsaved: dirty.map(|_| UnsavedText { base: live.merge_base(), sent: None }),
            merged: None,
            is_merged,
        })
    }

    fn write_bytes(
        &self,
        admitted: &AdmittedPath,
        current: Option<&CurrentFile>,
        content: &[u8],
        (placement, is_checked): (WritePlacement, bool),
    ) -> Result<NewContent, FileEditError> {
        let path = admitted.requested_path();
        let rejected = |why| FilesError::WriteRejected { path: path.to_owned(), why };
        if self.has_unsaved_text(admitted) {
            return Err(rejected(WriteRejectedError::Stale).into());
        }
        if let Some(current) = current {
            self.session.check_replaceable(admitted, current)?;
        }
        let old = current.map_or(&[][..], |current| &current.bytes);
        let (start, end) = match placement {
            WritePlacement::Truncate => (&[][..], &[][..]),
            WritePlacement::Append => (old, &[][..]),
            WritePlacement::Insert { position } => {
                let position = check_position(position, old.len() as u64)?;
                old.split_at(usize::try_from(position).unwrap_or(old.len()))
            }
        };
        let mut ledger = LedgerEffect::Keep;
        if placement == WritePlacement::Truncate {
            match current {
                _ if is_checked => {}
                // Changes of others are not overwritten, as if the file were deleted.
                Some(current) => self.session.check_deletion(admitted, current, self.documents)?,
                None => {
                    let live = self.session.live_text(admitted, None, self.documents, None)?;
                    if !matches!(live.knowledge, Knowledge::Nothing | Knowledge::Absent) {
                        return Err(rejected(WriteRejectedError::Deleted).into());
                    }
                }
            }
            let text = text::decode(content.to_owned()).ok();
            ledger = text.map_or(LedgerEffect::Keep, |text| LedgerEffect::Known(Arc::new(text.text)));
        }
        self.session.check_size(path, (start.len() + content.len() + end.len()) as u64)?;
        let bytes = [start, content, end].concat();
        Ok(NewContent {
            content: FileContent::from_bytes(&bytes),
            bytes: FileBytes::Owned(bytes),
            ledger,
            unsaved: None,
            merged: None,
            is_merged: false,
        })
    }

    fn decide_transfer(
        &mut self,
        index: usize,
        transfer: &TransferOperation,
        kind: TransferKind,
    ) -> Result<(), FileEditError> {
        let access = match kind {
            TransferKind::Move => Access::Write,
            TransferKind::Copy => Access::Read,
        };
        let from = self.admit_entry(transfer.from.as_str(), access)?;
        let to = self.admit_entry(transfer.to.as_str(), Access::Write)?;
        let root = |path: &AdmittedPath| {
            let found = find_root(&self.session.roots, path.canonical());
            found.map(|(root, _)| root.canonical.as_str().to_owned())
        };
        if root(&from) != root(&to) {
            let (from, to) = (transfer.from.as_str().to_owned(), transfer.to.as_str().to_owned());
            return Err(FileError::AcrossRoots { from, to }.into());
        }
        let source_type = from.target().map(|found| found.file_type());
        let source_type = source_type.ok_or_else(|| not_found(&from))?;
        self.check_destination(&to, transfer.destination, source_type)?;
        self.add_parents(&to, false)?;
        match source_type {
            FileType::RegularFile => self.transfer_file(index, from, to, kind),
            FileType::Directory => {
                self.check_no_root(&from)?;
                let tree = list_tree(&self.session.roots, &from, access, &mut self.budget)?;
                for (relative, mode) in &tree.directories {
                    self.add_directory(join_path(to.canonical(), relative), *mode);
                }
                for relative in &tree.files {
                    let source = self.session.roots.admit(&join_path(from.canonical(), relative), access)?;
                    let target = join_path(to.canonical(), relative);
                    let target = self.session.roots.admit(&target, Access::Write)?;
                    self.transfer_file(index, source, target, kind)?;
                }
                if kind == TransferKind::Move {
                    self.remove_directories(&from, &tree.directories);
                }
                Ok(())
            }
            _ => Err(FilesError::NotRegularFile(from.requested_path().to_owned()).into()),
        }
    }

    /// Checks that nothing is at the destination, or a file that may be replaced.
    fn check_destination(
        &self,
        to: &AdmittedPath,
        policy: DestinationPolicy,
        source_type: FileType,
    ) -> Result<(), FileEditError> {
        let is_free = !to.exists() && !self.has_unsaved_text(to) && !self.created.contains(to.canonical());
        let is_file = to.target().is_some_and(|found| found.file_type() == FileType::RegularFile);
        let is_replaceable = policy == DestinationPolicy::Overwrite
            && source_type == FileType::RegularFile
            && (is_file || self.has_unsaved_text(to));
        if is_free || is_replaceable {
            return Ok(());
        }
        Err(FileError::AlreadyExists { path: to.requested_path().to_owned() }.into())
    }

    fn transfer_file(
        &mut self,
        index: usize,
        from: AdmittedPath,
        to: AdmittedPath,
        kind: TransferKind,
    ) -> Result<(), FileEditError> {
        let source = self.read_existing(&from)?;
        let content = FileContent::from_bytes(&source.bytes);
        match kind {
            TransferKind::Move => self.check_removable(&from, &source)?,
            TransferKind::Copy if self.has_unsaved_text(&from) => {
                let path = from.requested_path().to_owned();
                let why = WriteRejectedError::Stale;
                let document = self.documents.find(&from);
                let shown = self.find_content(document.as_deref(), Some(&source));
                return Err(
                    FileEditError::from(FilesError::WriteRejected { path, why }).with_etag(shown.as_ref())
                );
            }
            TransferKind::Copy => {}
        }
        let target = read_current(&self.session.workspace, &self.session.roots, &to)?;
        let document = self.documents.find(&to);
        let before = self.find_content(document.as_deref(), target.as_ref());
        if let Some(target) = &target {
            self.session.check_replaceable(&to, target)?;
            self.check_removable(&to, target)?;
        } else if self.has_unsaved_text(&to) {
            let (path, why) = (to.requested_path().to_owned(), WriteRejectedError::Stale);
            let error = FileEditError::from(FilesError::WriteRejected { path, why });
            return Err(error.with_etag(before.as_ref()));
        }
        let mode = source.mode();
        let source_path = Some(from.canonical().to_owned());
        let (moved_from, copied_from) = match kind {
            TransferKind::Move => (source_path, None),
            TransferKind::Copy => (None, source_path),
        };
        let bytes = FileBytes::Owned(source.bytes.clone());
        let ledger = self.find_transferred_knowledge(&from, &source, &content);
        self.add_file(DecidedFile {
            file: to.file_id(),
            document,
            before,
            after: Some(content.clone()),
            new: Some(NewFile { bytes, mode: Some(mode & !SETUID_SETGID) }),
            drops_privileges: mode & SETUID_SETGID != 0,
            moved_from,
            copied_from,
            source_protection: from.protection(),
            ledger,
            ..DecidedFile::removed(index, to, target)
        })?;
        if kind == TransferKind::Move {
            self.add_removal(index, from, source, content)?;
        }
        Ok(())
    }

    /// Returns what the session knows of a moved or copied file: its text, if it knew the source.
    fn find_transferred_knowledge(
        &self,
        from: &AdmittedPath,
        source: &CurrentFile,
        content: &FileContent,
    ) -> LedgerEffect {
        let FileContent::Text(text) = content else { return LedgerEffect::Forget };
        let Ok(live) = self.session.live_text(from, Some(source), self.documents, None) else {
            return LedgerEffect::Forget;
        };
        let is_known = match &live.knowledge {
            Knowledge::Whole(known) => known == text,
            Knowledge::Hashed(hash) => Etag::from(*hash) == content.etag(),
            Knowledge::Windows(version) => *version == live.version,
            Knowledge::Absent | Knowledge::Partial(_) | Knowledge::Nothing => false,
        };
        if is_known { LedgerEffect::Known(text.clone()) } else { LedgerEffect::Forget }
    }

    fn decide_removal(&mut self, index: usize, removal: &RemoveOperation) -> Result<(), FileEditError> {
        let admitted = self.admit_entry(removal.path.as_str(), Access::Write)?;
        match admitted.target().map(|found| found.file_type()) {
            None => Err(not_found(&admitted)),
            Some(FileType::RegularFile) => self.remove_file(index, admitted),
            Some(FileType::Directory) => {
                self.check_no_root(&admitted)?;
                if !removal.recursive && !self.is_empty_directory(&admitted)? {
                    let path = admitted.requested_path().to_owned();
                    return Err(FileError::NotEmpty { path }.into());
                }
                let tree = list_tree(&self.session.roots, &admitted, Access::Write, &mut self.budget)?;
                for relative in &tree.files {
                    let path = join_path(admitted.canonical(), relative);
                    self.remove_file(index, self.session.roots.admit(&path, Access::Write)?)?;
                }
                self.remove_directories(&admitted, &tree.directories);
                Ok(())
            }
            Some(_) => Err(FilesError::NotRegularFile(admitted.requested_path().to_owned()).into()),
        }
    }

    fn is_empty_directory(&self, admitted: &AdmittedPath) -> Result<bool, FileEditError> {
        let handle = self.session.roots.open_directory(admitted)?;
        let failed = |why: rustix::io::Errno| FilesError::io_error(admitted.requested_path())(why.into());
        for entry in rustix::fs::Dir::read_from(&handle).map_err(failed)? {
            if !matches!(entry.map_err(failed)?.file_name().to_bytes(), b"." | b"..") {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn remove_file(&mut self, index: usize, admitted: AdmittedPath) -> Result<(), FileEditError> {
        let current = self.read_existing(&admitted)?;
        self.check_removable(&admitted, &current)?;
        let content = FileContent::from_bytes(&current.bytes);
        self.add_removal(index, admitted, current, content)
    }

    fn add_removal(
        &mut self,
        index: usize,
        admitted: AdmittedPath,
        current: CurrentFile,
        content: FileContent,
    ) -> Result<(), FileEditError> {
        self.add_file(DecidedFile {
            file: admitted.file_id(),
            document: self.documents.find(&admitted),
            before: Some(content),
            ledger: LedgerEffect::Absent,
            ..DecidedFile::removed(index, admitted, Some(current))
        })
    }

    fn decide_mkdir(&mut self, mkdir: &MkdirOperation) -> Result<(), FileEditError> {
        let admitted = self.session.roots.admit(mkdir.path.as_str(), Access::Write)?;
        let is_directory = admitted.target().is_some_and(|found| found.file_type() == FileType::Directory);
        let is_there = admitted.exists() || self.created.contains(admitted.canonical());
        if is_there || self.has_unsaved_text(&admitted) {
            if mkdir.parents && (is_directory || self.created.contains(admitted.canonical())) {
                return Ok(());
            }
            return Err(FileError::AlreadyExists { path: mkdir.path.as_str().to_owned() }.into());
        }
        self.add_parents(&admitted, mkdir.parents)?;
        self.add_directory(admitted.canonical().to_owned(), DEFAULT_DIRECTORY_MODE);
        Ok(())
    }

    /// Admits a path whose last name is not a link: an operation on a link would affect its target.
    fn admit_entry(&self, path: &str, access: Access) -> Result<AdmittedPath, FileEditError> {
        let admitted = self.session.roots.admit(path, access)?;
        if self.session.roots.iter().any(|(root, _)| root == admitted.canonical()) {
            return Err(is_root(&admitted));
        }
        let lexical = LexicalPath::parse(path).map_err(|error| AdmitError::Refused(error.into()))?;
        let (parent, name) = lexical.as_str().rsplit_once('/').unwrap_or_default();
        let parent = self.session.roots.admit(if parent.is_empty() { "/" } else { parent }, Access::Read)?;
        if join_path(parent.canonical(), name) != admitted.canonical() {
            return Err(FilesError::NotRegularFile(path.to_owned()).into());
        }
        Ok(admitted)
    }

    /// Refuses to move or remove a directory that contains one of the session's.
    fn check_no_root(&self, directory: &AdmittedPath) -> Result<(), FileEditError> {
        let prefix = join_path(directory.canonical(), "");
        let is_below = |root: &str| root.strip_prefix(&prefix).is_some_and(|rest| rest.starts_with('/'));
        match self.session.roots.iter().any(|(root, _)| is_below(root)) {
            true => Err(is_root(directory)),
            false => Ok(()),
        }
    }

    /// Checks that the directory of a path exists or is created by the batch, or adds it.
    fn add_parents(&mut self, admitted: &AdmittedPath, create: bool) -> Result<(), FileEditError> {
        let roots = &self.session.roots;
        let mut missing = Vec::new();
        let mut path = admitted.canonical();
        while let Some((parent, _)) = path.rsplit_once('/') {
            if roots.iter().any(|(root, _)| root == parent)
                || self.created.contains(parent)
                || self.existing.contains(parent)
            {
                break;
            }
            match roots.admit(parent, Access::Write) {
                Ok(found) if found.exists() => {
                    self.existing.insert(parent.to_owned());
                    break;
                }
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
            missing.push(parent.to_owned());
            path = parent;
        }
        match missing.first() {
            Some(parent) if !create => {
                // The error names the directory as it was requested.
                let requested = admitted.requested_path().trim_end_matches('/').rsplit_once('/');
                let path = requested.map_or(parent.as_str(), |(parent, _)| parent).to_owned();
                Err(FileError::NotFound { path }.into())
            }
            _ => {
                missing.into_iter().rev().for_each(|path| self.add_directory(path, DEFAULT_DIRECTORY_MODE));
                Ok(())
            }
        }
    }

    fn add_directory(&mut self, path: String, mode: u32) {
        if self.created.insert(path.clone()) {
            self.batch.directories.created.push(DirectoryEntry { path, mode });
        }
    }

    fn remove_directories(&mut self, directory: &AdmittedPath, found: &[(String, u32)]) {
        let entries = found.iter().rev().map(|(relative, mode)| DirectoryEntry {
            path: join_path(directory.canonical(), relative),
            mode: *mode,
        });
        self.batch.directories.removed.extend(entries);
    }

    fn read_existing(&self, admitted: &AdmittedPath) -> Result<CurrentFile, FileEditError> {
        let current = read_current(&self.session.workspace, &self.session.roots, admitted)?;
        current.ok_or_else(|| not_found(admitted))
    }

    /// Checks that a file is writable and in the state that the session knows, without unsaved text.
    fn check_removable(&self, admitted: &AdmittedPath, current: &CurrentFile) -> Result<(), FileEditError> {
        let session = self.session;
        check_writable(&session.workspace, &session.roots, admitted, &current.stat)?;
        session.check_deletion(admitted, current, self.documents).map_err(|error| {
            let document = self.documents.find(admitted);
            let shown = self.find_content(document.as_deref(), Some(current));
            FileEditError::from(error).with_etag(shown.as_ref())
        })
    }

    fn has_unsaved_text(&self, admitted: &AdmittedPath) -> bool {
        let document = self.documents.find(admitted).and_then(|path| self.documents.get(&path));
        document.is_some_and(|document| document.is_dirty())
    }

    fn add_file(&mut self, mut decided: DecidedFile) -> Result<(), FileEditError> {
        self.bytes += decided.bytes();
        if self.bytes > MAX_TOTAL_BYTES {
            let (bytes, limit) = (self.bytes, MAX_TOTAL_BYTES);
            return Err(FileError::TooLarge { path: None, bytes, limit }.into());
        }
        decided.admitted.close_handle();
        self.batch.files.push(decided);
        Ok(())
    }
}

impl DecidedFile {
    /// Returns a file that an operation removes; other fields are to be filled in.
    pub(super) fn removed(operation: usize, admitted: AdmittedPath, current: Option<CurrentFile>) -> Self {
        Self {
            operation,
            admitted,
            file: None,
            current,
            document: None,
            before: None,
            after: None,
            new: None,
            tail: None,
            scan: None,
            drops_privileges: false,
            moved_from: None,
            copied_from: None,
            source_protection: None,
            ledger: LedgerEffect::Keep,
            unsaved: None,
            merged: None,
            is_merged: false,
        }
    }
}

fn not_found(admitted: &AdmittedPath) -> FileEditError {
    FileError::NotFound { path: admitted.requested_path().to_owned() }.into()
}

fn is_root(admitted: &AdmittedPath) -> FileEditError {
    let path = bowline_text::display::quote(admitted.requested_path());
    FileError::PermissionDenied { reason: format!("{path} is or contains a directory of the session") }.into()
}
