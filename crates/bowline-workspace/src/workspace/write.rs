//! Writing: decided against what the session has read, recorded in the journal, then applied.
//!
//! Unsaved text of an open document is saved first, as the user's own change, so that undoing the agent's write keeps
//! it. A `WriteAgreement` is checked again under the writer lock, when nothing can change any more. If the user edited
//! the text before it was written, the ledger keeps the text that the session sent, so that its next write is merged
//! with the user's edits.
//!
//! Writes that an editor behind a proxy performs itself are recorded, so that they can be undone. The change is
//! recorded in the journal before the editor is asked to write, as for any write. Its old side is the editor's text,
//! saved or not, so that undoing it restores what the user typed. If the disk held something else, a change from that
//! to the user's text is recorded first. If the editor refuses, the record is withdrawn. If it writes something else,
//! the next scan detects that. A scan that runs before the editor has finished still expects its write.

use std::borrow::Cow;
use std::sync::{Arc, MutexGuard};

use bowline_history::changes::{ChangeId, ChangeOrigin, ChangeSource, FileState, Reversal};
use bowline_history::documents::{Document, DocumentTextSource, resolve_text_source};
use bowline_history::ledger::{
    Knowledge, LedgerDecision, TextVersion, WriteContext, WriteVerdict, decide_deletion, decide_write,
};
use bowline_policy::grants::FileId;
use bowline_policy::paths::{Access, Protection};
use bowline_protocol::file_extension::FileOperation;
use bowline_text::hash::ContentHash;
use bowline_text::text::{self, DecodedText, Encoding, NotTextError, TextFormat};

use super::apply::{
    ApplyError, ChangeGroup, CurrentFile, FileBytes, NewFile, PlannedChange, apply_changes,
    check_risky_write, default_mode, read_current,
};
use super::batch::{self, BatchAgreement, BatchEditError, BatchOutcome, BatchPreview};
use super::documents::Documents;
use super::merged_writes::{MergedWrite, adopt_repeated_write, restore_merged};
use super::recover::recover_interrupted;
use super::session::document_version;
use super::undo::record_unchanged_reversal;
use super::{KeptText, WorkspaceSession, WorkspaceWriter};
use crate::disk;
use crate::disk::writers::{self, WaitPurpose, WriterState};
use crate::error::FilesError;
use crate::journal::{ChangeDraft, DraftSide};
use crate::roots::AdmittedPath;
use bowline_storage::clock::now;
use bowline_storage::file_clock::now_ns;

/// How many times a write is decided while the file keeps changing.
pub(super) const MAX_ATTEMPTS: usize = 8;

/// The mode bits that let a program run as its owner or group.
pub(super) const SETUID_SETGID: u32 = 0o6000;

/// The note on a write to a file with these bits.
pub const PRIVILEGES_DROPPED: &str = "the file had setuid or setgid, which the write removed";

const EDITED_NOTE: &str =
    "the user changed the text before it was written: read the file again to see what it holds";

pub(super) const UNGUARDED_NOTE: &str = "the file system grants no leases here: a program that was writing the file at the same moment may not \
    have been noticed, look at the file if you edited it elsewhere";

/// The result of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteOutcome {
    /// The file's canonical path.
    pub path: String,
    /// How the text was determined; `None` if the file already held it.
    pub verdict: Option<WriteVerdict>,
    /// The change in the journal, if the file changed.
    pub change: Option<ChangeId>,
    /// The file's text now. It differs from what was sent if it was merged or its line endings were kept.
    pub text: Arc<String>,
    /// Whether the write removed the file's setuid or setgid bit.
    pub drops_privileges: bool,
    /// Whether the system cannot detect if another program has the file open for writing.
    pub is_unguarded: bool,
    /// Whether a person edited the text before it was written.
    pub is_edited: bool,
    /// Texts that other programs wrote to the file in the meantime and that could not be merged: only the journal has
    /// them.
    pub kept_texts: Vec<KeptText>,
}

impl WriteOutcome {
    /// Returns notes for the writer, one per line.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.is_edited {
            notes.push(EDITED_NOTE.to_owned());
        }
        if self.drops_privileges {
            notes.push(PRIVILEGES_DROPPED.to_owned());
        }
        if self.is_unguarded {
            notes.push(UNGUARDED_NOTE.to_owned());
        }
        notes.extend(self.kept_texts.iter().map(ToString::to_string));
        notes
    }
}

/// The effect of a write, for approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WritePreview {
    /// The file's canonical path.
    pub path: String,
    /// The file's identity, if it exists.
    pub file: Option<FileId>,
    /// The text of the file or of its open document; `None` if there is neither.
    pub before: Option<Arc<String>>,
    /// The text after the write.
    pub after: Arc<String>,
    /// How the text is determined; `None` if the file already holds it.
    pub verdict: Option<WriteVerdict>,
    /// Why the path is protected from writing.
    pub protection: Option<Protection>,
    /// Whether the write would remove the file's setuid or setgid bit.
    pub drops_privileges: bool,
}

/// A write that was decided but not applied yet.
pub(super) struct DecidedWrite {
    pub(super) admitted: AdmittedPath,
    pub(super) current: Option<CurrentFile>,
    // The document's unsaved text.
    pub(super) unsaved: Option<Arc<String>>,
    // The base for merging once the document is saved, if only the user has seen its text.
    pub(super) base: Option<Arc<String>>,
    pub(super) format: TextFormat,
    pub(super) decision: LedgerDecision,
}

/// The text of a file and of its open document, and how much of it a session knows.
pub(super) struct LiveText<'a> {
    pub(super) format: TextFormat,
    // The text on disk.
    pub(super) disk: Option<Cow<'a, str>>,
    pub(super) document: Option<&'a Document>,
    pub(super) version: TextVersion,
    pub(super) knowledge: Knowledge,
}

impl<'a> LiveText<'a> {
    /// Returns the document, if it has unsaved text.
    pub(super) fn dirty_document(&self) -> Option<&'a Document> {
        self.document.filter(|document| document.is_dirty())
    }

    /// Returns the base for merging once the document is saved: the text on disk, if only the user has seen the
    /// unsaved text.
    pub(super) fn merge_base(&self) -> Option<Arc<String>> {
        self.dirty_document()?;
        let is_unseen = match &self.knowledge {
            Knowledge::Whole(_) | Knowledge::Hashed(_) | Knowledge::Absent => false,
            Knowledge::Windows(seen) => *seen != self.version,
            Knowledge::Partial(_) | Knowledge::Nothing => true,
        };
        is_unseen.then(|| Arc::new(self.disk.clone().unwrap_or_default().into_owned()))
    }
}

/// A write to a document with unsaved text, before that text is saved.
pub(super) struct UnsavedWrite<'a> {
    pub(super) admitted: &'a AdmittedPath,
    pub(super) current: Option<&'a CurrentFile>,
    // As in `DecidedWrite`.
    pub(super) base: Option<Arc<String>>,
    // The whole text that the session sent, if it did, and its merge.
    pub(super) sent: Option<(&'a str, Option<MergedWrite>)>,
}

/// What was approved: the write does no more than this, even if the file changed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteAgreement<'a> {
    /// Writing to this canonical path, with any resulting text.
    Path(&'a str),
    /// Exactly the preview.
    Preview(&'a WritePreview),
    /// A text that a person edited, starting from exactly the preview.
    Edited(&'a WritePreview, &'a Arc<String>),
}

/// A write by an editor, as recorded in the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditorWrite {
    /// The file's canonical path.
    pub path: String,
    /// The change itself; `None` if the file already has the text.
    pub change: Option<ChangeId>,
    // The change from the text on disk to the user's unsaved text.
    saved_change: Option<ChangeId>,
}

impl WorkspaceSession {
    /// Writes a file: replaces what the session has seen, merges with the changes of others, or refuses.
    ///
    /// # Errors
    /// Returns why nothing was written.
    pub fn write(
        &self,
        path: &str,
        content: &str,
        origin: &ChangeOrigin,
    ) -> Result<WriteOutcome, FilesError> {
        self.write_with_agreement(path, content, origin, None)
    }

    /// Writes a file, if the result is still what was approved. That is checked when nothing can change any more.
    ///
    /// # Errors
    /// Returns why nothing was written; [`FilesError::ChangedSinceApproval`] if the result would now differ.
    pub fn write_with_agreement(
        &self,
        path: &str,
        content: &str,
        origin: &ChangeOrigin,
        agreed: Option<WriteAgreement<'_>>,
    ) -> Result<WriteOutcome, FilesError> {
        let workspace = &self.workspace;
        self.wait_for_writers(path);
        let mut writer = workspace.writer();
        writer.kept_texts.clear();
        recover_interrupted(workspace, &mut writer, &self.roots)?;
        let _lock = writer.journal.lock()?;
        for _ in 0..MAX_ATTEMPTS {
            match self.attempt_write(&mut writer, path, content, origin, agreed) {
                Ok(written) => {
                    return Ok(WriteOutcome {
                        kept_texts: std::mem::take(&mut writer.kept_texts),
                        ..written
                    });
                }
                Err(ApplyError::Raced(_)) => {}
                Err(ApplyError::Failed(error)) => return Err(error),
            }
        }
        Err(FilesError::KeepsChanging(path.to_owned()))
    }

    /// Waits for a program that is saving the file, without holding a lock. The check is repeated under the lock, and
    /// errors are reported there.
    pub(super) fn wait_for_writers(&self, path: &str) {
        if !self.roots.is_missing(path)
            && let Ok(admitted) = self.roots.admit(path, Access::Read)
            && let Ok(Ok((file, _))) = self.roots.open_file(&admitted)
        {
            drop(writers::wait_for_writers(&file, WaitPurpose::Read));
        }
    }

    fn attempt_write(
        &self,
        writer: &mut WorkspaceWriter,
        path: &str,
        content: &str,
        origin: &ChangeOrigin,
        agreed: Option<WriteAgreement<'_>>,
    ) -> Result<WriteOutcome, ApplyError> {
        restore_merged(&self.workspace, writer, &self.roots, path, origin)?;
        let mut documents = self.workspace.documents();
        let mut decided = self.decide_write(path, content, &documents)?;
        if let Some(agreed) = agreed
            && !agreed.covers(&decided)?
        {
            return Err(ApplyError::Failed(FilesError::ChangedSinceApproval(path.to_owned())));
        }
        if decided.unsaved.is_some() {
            // Nothing is saved for a write that cannot succeed.
            encode_text(&decided.decision.text, decided.format, path)?;
            let merged = decided.merged_write(content, origin);
            let before = UnsavedWrite {
                admitted: &decided.admitted,
                current: decided.current.as_ref(),
                base: decided.base.take(),
                sent: Some((content, merged)),
            };
            let saved = self.save_unsaved_text(writer, &mut documents, before, origin)?;
            decided = self.decide_write(path, content, &documents)?;
            if *saved != *content && decided.has_content(content) {
                // The agent's own copy arrived in the meantime: the next attempt starts from the user's text.
                return Err(ApplyError::Raced(path.to_owned()));
            }
        }
        let edited = match agreed {
            Some(WriteAgreement::Edited(_, text)) => Some(text.clone()),
            _ => None,
        };
        let is_edited = edited.is_some();
        // The ledger keeps the text that the session sent: its next write is merged with the person's edits.
        decided.decision.text = edited.unwrap_or(decided.decision.text);
        let (open, merged) = (documents.find(&decided.admitted), decided.merged_write(content, origin));
        // If no document is open, the documents are unlocked while the disk is written.
        let mut documents = open.map(|open| (documents, open));
        let written = self.apply_decision(writer, decided, documents.as_mut(), origin)?;
        writer.observer_state.merged_writes.record(&written.path, merged);
        Ok(WriteOutcome { is_edited, ..written })
    }

    /// Saves unsaved text before its document is written: it is the user's change, and undoing the agent's write keeps
    /// it. Returns the saved text.
    pub(super) fn save_unsaved_text(
        &self,
        writer: &mut WorkspaceWriter,
        documents: &mut Documents,
        before: UnsavedWrite<'_>,
        origin: &ChangeOrigin,
    ) -> Result<Arc<String>, ApplyError> {
        let UnsavedWrite { admitted, current, base, sent } = before;
        let (path, canonical) = (admitted.requested_path(), admitted.canonical());
        if let Some((content, _)) = &sent {
            adopt_repeated_write(&self.workspace, writer, (canonical, current), content, origin)?;
        }
        let saved = self.workspace.save_locked_document(writer, documents, &self.roots, path)?.text;
        if let Some((_, merged)) = sent {
            writer.observer_state.merged_writes.record(canonical, merged);
        }
        if let Some(base) = base {
            self.with_ledger(|ledger| ledger.record_write(canonical, base));
        }
        Ok(saved)
    }

    /// Returns the effect of a write, without performing it.
    ///
    /// # Errors
    /// Returns why the write would be refused.
    pub fn preview_write(&self, path: &str, content: &str) -> Result<WritePreview, FilesError> {
        self.wait_for_writers(path);
        let documents = self.workspace.documents();
        let decided = self.decide_write(path, content, &documents)?;
        let bytes = encode_text(&decided.decision.text, decided.format, path)?;
        let held = decided.unsaved.is_none()
            && decided.current.as_ref().is_some_and(|current| current.bytes == bytes);
        Ok(WritePreview {
            path: decided.admitted.canonical().to_owned(),
            file: decided.admitted.file_id(),
            before: decided.previous_text()?,
            after: decided.decision.text,
            verdict: (!held).then_some(decided.decision.verdict),
            protection: decided.admitted.protection(),
            drops_privileges: !held && unprivileged_mode(decided.current.as_ref()).is_some(),
        })
    }

    /// Returns the effect of the operations of a batch, without performing them. Reads have no effect.
    ///
    /// # Errors
    /// Returns why the batch would be refused, and the operation at fault.
    pub fn preview_batch(&self, operations: &[FileOperation]) -> Result<BatchPreview, BatchEditError> {
        batch::preview_batch(self, operations)
    }

    /// Performs all operations of a batch, or none, if the result is still what was approved. Reads are skipped: they
    /// get the content before the batch, so the caller performs them first.
    ///
    /// # Errors
    /// Returns why nothing was changed, and the operation at fault; [`FilesError::ChangedSinceApproval`] if the result
    /// would now differ.
    pub fn apply_batch(
        &self,
        operations: &[FileOperation],
        origin: &ChangeOrigin,
        agreed: Option<BatchAgreement<'_>>,
    ) -> Result<BatchOutcome, BatchEditError> {
        batch::apply_batch(self, operations, origin, agreed)
    }

    /// Records that an editor is about to write a file: its previous and its new text. Call it before asking the
    /// editor. `had` is `None` if the file exists neither in the editor nor on disk.
    ///
    /// # Errors
    /// Returns why nothing was recorded. Then do not ask the editor to write.
    pub fn record_editor_write(
        &self,
        path: &str,
        had: Option<&str>,
        written: &str,
        origin: &ChangeOrigin,
    ) -> Result<EditorWrite, FilesError> {
        let workspace = &self.workspace;
        let cap = workspace.inner.options.max_write_bytes;
        let size = written.len().max(had.map_or(0, str::len)) as u64;
        if size > cap {
            return Err(FilesError::ContentTooLarge { path: path.to_owned(), size, cap });
        }
        let mut writer = workspace.writer();
        recover_interrupted(workspace, &mut writer, &self.roots)?;
        let _lock = writer.journal.lock()?;
        let admitted = self.roots.admit(path, Access::Write)?;
        let current = read_current(workspace, &self.roots, &admitted)?;
        let format = match &current {
            None => TextFormat::default(),
            Some(current) => {
                let decoded = text::decode(current.bytes.clone());
                decoded.map_err(|why| FilesError::NotText { path: path.to_owned(), why })?.format
            }
        };
        let mode = current.as_ref().map_or_else(default_mode, CurrentFile::mode);
        let bytes = |text: &str| {
            let text = text.strip_prefix('\u{feff}').unwrap_or(text);
            encode_text(text, format, path)
        };
        let (had, written) = (had.map(bytes).transpose()?, bytes(written)?);
        let disk = current.as_ref().map(|current| current.bytes.as_slice());
        let unattributed = ChangeOrigin::default();
        let mut drafts = Vec::new();
        let mut draft = |origin, before: Option<&'_ [u8]>, after: Option<&'_ [u8]>| {
            let differs = before != after;
            drafts.extend(differs.then(|| (origin, before.map(<[u8]>::to_vec), after.map(<[u8]>::to_vec))));
            differs
        };
        let is_saved = draft(&unattributed, disk, had.as_deref());
        let is_changed = draft(origin, had.as_deref(), Some(&written));
        let path = admitted.canonical();
        let drafts: Vec<ChangeDraft<'_>> = drafts
            .iter()
            .map(|(origin, before, after)| {
                let [before, after] =
                    [before, after].map(|bytes| bytes.as_ref().map(|bytes| DraftSide::bytes(bytes, mode)));
                ChangeDraft::applied((origin, ChangeSource::Written), path, before, after)
            })
            .collect();
        let recorded = writer.journal.record(&drafts, now())?;
        let mut recorded = recorded.into_iter();
        let saved = if is_saved { recorded.next() } else { None };
        let change = if is_changed { recorded.next() } else { None };
        let path = admitted.canonical().to_owned();
        if disk != Some(written.as_slice()) {
            let (hash, size) = (ContentHash::digest(&written), written.len() as u64);
            writer.observer_state.expect_editor_write(&path, FileState { hash, size, mode });
        }
        workspace.mark_diagnostics_stale([path.as_str()]);
        Ok(EditorWrite { path, change, saved_change: saved })
    }

    /// Records that an editor did not perform a write.
    ///
    /// # Errors
    /// Fails if the journal cannot be used. The next scan then records what is on disk.
    pub fn cancel_editor_write(&self, write: &EditorWrite, origin: &ChangeOrigin) -> Result<(), FilesError> {
        let changes = [write.change, write.saved_change];
        let reverses: Vec<Reversal> =
            changes.into_iter().flatten().map(|change| Reversal { change, hunks: None }).collect();
        if reverses.is_empty() {
            return Ok(());
        }
        let mut writer = self.workspace.writer();
        writer.observer_state.clear_expected_write(&write.path);
        let _lock = writer.journal.lock()?;
        let admitted = self.roots.admit(&write.path, Access::Write)?;
        let current = read_current(&self.workspace, &self.roots, &admitted)?;
        record_unchanged_reversal(&mut writer, &admitted, current.as_ref(), &reverses, origin, now())
            .map(drop)
    }

    /// Refuses to delete changes by others that the session has not seen, and unsaved text.
    pub(super) fn check_deletion(
        &self,
        admitted: &AdmittedPath,
        current: &CurrentFile,
        documents: &Documents,
    ) -> Result<(), FilesError> {
        let document = documents.find(admitted).and_then(|path| documents.get(&path));
        let version = disk::file_version(&current.stat);
        // A file that is not text has no text that a session could have seen.
        let disk = text::decode(current.bytes.clone()).ok().map(|decoded| decoded.text);
        let situation = WriteContext {
            knowledge: self.with_ledger(|ledger| ledger.knowledge(admitted.canonical(), version)),
            disk_text: disk.as_deref(),
            version,
            document,
            content: "",
        };
        decide_deletion(&situation)
            .map_err(|why| FilesError::WriteRejected { path: admitted.requested_path().to_owned(), why })
    }

    /// Decides a write against what the session has seen.
    fn decide_write(
        &self,
        path: &str,
        content: &str,
        documents: &Documents,
    ) -> Result<DecidedWrite, FilesError> {
        let admitted = self.roots.admit(path, Access::Write)?;
        self.check_size(path, content.len() as u64)?;
        let current = read_current(&self.workspace, &self.roots, &admitted)?;
        self.decide_read_write(admitted, current, content, documents, None)
    }

    /// Refuses content that is too large to write.
    pub(super) fn check_size(&self, path: &str, size: u64) -> Result<(), FilesError> {
        let cap = self.workspace.inner.options.max_write_bytes;
        if size > cap {
            return Err(FilesError::ContentTooLarge { path: path.to_owned(), size, cap });
        }
        Ok(())
    }

    /// Refuses to write a file that another program is writing, or that may not be meant.
    pub(super) fn check_replaceable(
        &self,
        admitted: &AdmittedPath,
        current: &CurrentFile,
    ) -> Result<(), FilesError> {
        if current.writer_state == WriterState::Busy {
            return Err(FilesError::BeingWritten(admitted.requested_path().to_owned()));
        }
        check_risky_write(&self.workspace, &self.roots, admitted, &current.stat)
    }

    /// Returns the text of a file that was read, and how much of it the session knows: as the ledger has it, or as
    /// given.
    pub(super) fn live_text<'a>(
        &self,
        admitted: &AdmittedPath,
        current: Option<&'a CurrentFile>,
        documents: &'a Documents,
        known: Option<Knowledge>,
    ) -> Result<LiveText<'a>, FilesError> {
        let mut format = TextFormat::default();
        let mut disk = None;
        if let Some(current) = current {
            let (found, text) = decode_file(&current.bytes, admitted.requested_path())?;
            (format, disk) = (found, Some(text));
        }
        let known_by = documents.find(admitted);
        let document = known_by.as_ref().and_then(|path| documents.get(path));
        let on_disk = current.map(|current| disk::file_version(&current.stat));
        let version = match (&known_by, document) {
            // The same version as a read of this text records.
            (Some(path), Some(shown))
                if shown.is_dirty()
                    || resolve_text_source(document, on_disk) == DocumentTextSource::Document =>
            {
                document_version(path, shown.revision())
            }
            _ => on_disk.unwrap_or(TextVersion(0)),
        };
        let in_ledger = || self.with_ledger(|ledger| ledger.knowledge(admitted.canonical(), version));
        let knowledge = known.unwrap_or_else(in_ledger);
        Ok(LiveText { format, disk, document, version, knowledge })
    }

    /// Decides a write to a file that was read, against what the session has seen or is known to have seen.
    pub(super) fn decide_read_write(
        &self,
        admitted: AdmittedPath,
        current: Option<CurrentFile>,
        content: &str,
        documents: &Documents,
        known: Option<Knowledge>,
    ) -> Result<DecidedWrite, FilesError> {
        if let Some(current) = &current {
            self.check_replaceable(&admitted, current)?;
        }
        let live = self.live_text(&admitted, current.as_ref(), documents, known)?;
        let mut format = live.format;
        // The byte order mark of a new file belongs to the format, as when the file is read.
        let mut content = content;
        if live.disk.as_ref().is_none_or(|disk| disk.is_empty())
            && let Some(rest) = content.strip_prefix('\u{feff}')
        {
            format.has_bom = true;
            content = rest;
        }
        let unsaved = live.dirty_document().map(|document| document.text().clone());
        let base = live.merge_base();
        let situation = WriteContext {
            knowledge: live.knowledge,
            disk_text: live.disk.as_deref(),
            version: live.version,
            document: live.document,
            content,
        };
        let decision = decide_write(&situation)
            .map_err(|why| FilesError::WriteRejected { path: admitted.requested_path().to_owned(), why })?;
        Ok(DecidedWrite { admitted, current, unsaved, base, format, decision })
    }

    fn apply_decision(
        &self,
        writer: &mut WorkspaceWriter,
        decided: DecidedWrite,
        documents: Option<&mut (MutexGuard<'_, Documents>, String)>,
        origin: &ChangeOrigin,
    ) -> Result<WriteOutcome, ApplyError> {
        let DecidedWrite { admitted, current, format, decision, .. } = decided;
        let text = decision.text;
        let bytes = encode_shared(&text, format, admitted.requested_path())?;
        let path = admitted.canonical().to_owned();
        let held = current.as_ref().is_some_and(|current| *current.bytes == *bytes);
        let mut change = None;
        let mut stat = current.as_ref().map(|current| current.stat);
        let mode = unprivileged_mode(current.as_ref()).filter(|_| !held);
        let is_unguarded =
            current.as_ref().is_some_and(|current| current.writer_state == WriterState::Unknown);
        if !held {
            let new = Some(NewFile { bytes, mode });
            let planned = PlannedChange::replace(admitted, current, new);
            let group = ChangeGroup::single(&self.roots, origin, &planned);
            let applied = apply_changes(&self.workspace, writer, &group)?;
            for applied in applied {
                change = Some(applied.change);
                stat = applied.stat;
            }
        } else if let Some(current) = &current {
            let WorkspaceWriter { journal, observer_state: lookout, .. } = writer;
            change =
                lookout.adopt_write(journal, &self.workspace.inner.roots, (&path, &current.bytes), origin)?;
        }
        if let Some((documents, known_by)) = documents {
            documents.show_saved_text(known_by, &text, stat.as_ref());
        }
        self.with_ledger(|ledger| ledger.record_write(&path, decision.known_text));
        // Also if nothing of the sent text is left after the merge.
        let is_change = !held || change.is_some();
        let verdict = (is_change || decision.verdict == WriteVerdict::Merged).then_some(decision.verdict);
        let (drops_privileges, kept) = (mode.is_some(), Vec::new());
        Ok(WriteOutcome {
            path,
            verdict,
            change,
            text,
            drops_privileges,
            is_unguarded,
            is_edited: false,
            kept_texts: kept,
        })
    }
}

/// Encodes a text in its file's format, without a copy where the bytes are the text.
pub(super) fn encode_shared(
    text: &Arc<String>,
    format: TextFormat,
    path: &str,
) -> Result<FileBytes, FilesError> {
    if format == TextFormat::default() && memchr::memchr(0, text.as_bytes()).is_none() {
        return Ok(FileBytes::Text(text.clone()));
    }
    Ok(FileBytes::Owned(encode_text(text, format, path)?))
}

/// Returns the mode of a file without setuid and setgid, if it has them: what an agent writes must not run as another
/// user.
pub(super) fn unprivileged_mode(current: Option<&CurrentFile>) -> Option<u32> {
    let mode = current?.mode();
    (mode & SETUID_SETGID != 0).then_some(mode & !SETUID_SETGID)
}

/// Decodes the bytes of a file. For most files the bytes are the text.
fn decode_file<'a>(bytes: &'a [u8], path: &str) -> Result<(TextFormat, Cow<'a, str>), FilesError> {
    if let Some(text) = text::as_plain_utf8(bytes) {
        return Ok((TextFormat::default(), Cow::Borrowed(text)));
    }
    let decoded =
        text::decode(bytes.to_owned()).map_err(|why| FilesError::NotText { path: path.to_owned(), why })?;
    Ok((decoded.format, Cow::Owned(decoded.text)))
}

impl DecidedWrite {
    /// Returns the merged write that the agent may overwrite, if the file's new text differs from what was sent.
    pub(super) fn merged_write(&self, content: &str, origin: &ChangeOrigin) -> Option<MergedWrite> {
        let LedgerDecision { known_text: known, text, .. } = &self.decision;
        let encoded = |text: &str| encode_text(text, self.format, self.admitted.requested_path()).ok();
        let merged = (known != text).then(|| encoded(text))??;
        let sent = [content.as_bytes(), &encoded(known)?].map(ContentHash::digest);
        Some(MergedWrite { sent_hashes: sent, merged, origin: origin.clone(), at_ns: now_ns() })
    }

    /// Returns whether the file holds exactly this text.
    fn has_content(&self, content: &str) -> bool {
        self.current.as_ref().is_some_and(|current| current.bytes == content.as_bytes())
    }

    /// Returns the text to be replaced.
    pub(super) fn previous_text(&self) -> Result<Option<Arc<String>>, FilesError> {
        Ok(match (&self.unsaved, &self.current) {
            (Some(unsaved), _) => Some(unsaved.clone()),
            (None, Some(current)) => {
                Some(Arc::new(decode_file(&current.bytes, self.admitted.requested_path())?.1.into_owned()))
            }
            (None, None) => None,
        })
    }
}

impl WriteAgreement<'_> {
    fn covers(self, decided: &DecidedWrite) -> Result<bool, FilesError> {
        let path = decided.admitted.canonical();
        Ok(match self {
            Self::Path(agreed) => path == agreed,
            Self::Preview(shown) | Self::Edited(shown, _) => {
                (path, decided.admitted.file_id()) == (shown.path.as_str(), shown.file)
                    && *decided.decision.text == *shown.after
                    && decided.previous_text()? == shown.before
            }
        })
    }
}

/// Encodes a text in its file's format, and verifies that it decodes to the same text.
pub(super) fn encode_text(text: &str, format: TextFormat, path: &str) -> Result<Vec<u8>, FilesError> {
    let bytes =
        text::encode(text, format).map_err(|why| FilesError::Unencodable { path: path.to_owned(), why })?;
    let not_text = |why| FilesError::NotText { path: path.to_owned(), why };
    // UTF-8 always decodes to the same text, and there is no NUL in it.
    if format.encoding == Encoding::Utf8 {
        return Ok(bytes);
    }
    // Other encodings are guessed, and the guess may differ for another text.
    match text::decode(bytes.clone()) {
        Ok(DecodedText { text: back, .. }) if back == text => Ok(bytes),
        Ok(_) => Err(not_text(NotTextError::NotReversible)),
        Err(why) => Err(not_text(why)),
    }
}

#[cfg(test)]
mod tests;
