//! Appending to a large file in place: decided from a scan of the file that continues from one append to the next, and
//! from its end, so that an append costs what is appended.
//!
//! Everything else is appended as it is inserted, by writing the file anew: to a file that is open in an editor, has
//! another encoding, holds ignore rules or runs with its owner's privileges, and together with other operations.

use std::sync::Arc;

use bowline_history::ledger::{Knowledge, TextVersion};
use bowline_policy::paths::Access;
use bowline_protocol::file_extension::{FileData, WriteCondition, WriteOperation, WritePlacement};
use bowline_text::hash::ContentHash;
use bowline_text::text::fit_line_endings;
use rustix::fs::FileType;

use super::super::WorkspaceSession;
use super::super::apply::{TailChange, check_risky_write};
use super::super::documents::Documents;
use super::super::file_extension::MAX_WHOLE_BYTES;
use super::super::write::SETUID_SETGID;
use super::decide::{DecidedFile, LedgerEffect};
use super::{FileContent, FileEditError};
use crate::disk;
use crate::disk::content_scan::{ContentScan, ScanFreshness};
use crate::disk::replace::tail::TailEdit;
use crate::disk::writers::{self, WaitPurpose, WriterState};
use crate::error::FilesError;
use crate::walker::ignore_file_directory;

/// How much of the end of a file decides which line endings an appended text gets.
const SAMPLE_BYTES: u64 = 64 << 10;

/// Decides the only operation of a batch, if it appends to a file in place.
///
/// # Errors
/// Returns why the append is refused.
pub(super) fn decide_append(
    session: &WorkspaceSession,
    documents: &Documents,
    write: &WriteOperation,
) -> Result<Option<DecidedFile>, FileEditError> {
    if write.placement != WritePlacement::Append || write.condition != WriteCondition::Unconditional {
        return Ok(None);
    }
    let workspace = &session.workspace;
    let path = write.path.as_str();
    let mut admitted = session.roots.admit(path, Access::Write)?;
    let min_bytes = workspace.inner.options.append_in_place_bytes;
    let is_candidate = admitted.target().is_some_and(|found| {
        let mode = found.stat.st_mode;
        FileType::from_raw_mode(mode) == FileType::RegularFile
            && mode & SETUID_SETGID == 0
            && found.stat.st_size as u64 >= min_bytes
    });
    if !is_candidate
        || documents.find(&admitted).is_some()
        || ignore_file_directory(admitted.canonical()).is_some()
    {
        return Ok(None);
    }
    let Ok((file, _)) = session.roots.open_file(&admitted)? else { return Ok(None) };
    let writer_state = writers::wait_for_writers(&file, WaitPurpose::Write).state;
    if writer_state == WriterState::Busy {
        return Err(FilesError::BeingWritten(path.to_owned()).into());
    }
    let failed = FilesError::io_error(path);
    let stat = rustix::fs::fstat(&file).map_err(|why| failed(why.into()))?;
    check_risky_write(workspace, &session.roots, &admitted, &stat)?;
    let scans = &workspace.inner.content_scans;
    let Some(before) = scans.scan(&file, &stat, ScanFreshness::SinceOwnAppend).map_err(&failed)? else {
        return Err(FilesError::KeepsChanging(path.to_owned()).into());
    };
    let (bytes, text) = match &write.data {
        FileData::Bytes(bytes) => (bytes.clone(), None),
        FileData::Text(_) if !before.is_text() => return Ok(None),
        FileData::Text(text) => {
            let start = before.size().saturating_sub(SAMPLE_BYTES);
            let sample = disk::read_part(&file, start, SAMPLE_BYTES as usize).map_err(&failed)?;
            let text = fit_line_endings(text, &String::from_utf8_lossy(&sample)).into_owned();
            (text.clone().into_bytes(), Some(text))
        }
    };
    session.check_size(path, bytes.len() as u64)?;
    let mut after = before.clone();
    after.feed(&bytes);
    // A text in another encoding, or a NUL in a text. The content of a large file that is not UTF-8 is just its bytes.
    if !after.is_text() && (text.is_some() || after.size() <= MAX_WHOLE_BYTES) {
        return Ok(None);
    }
    let (ledger, is_merged) = match &text {
        Some(text) => {
            let version = disk::file_version(&stat);
            let known = session.with_ledger(|ledger| ledger.knowledge(admitted.canonical(), version));
            decide_knowledge(&known, &before, version, text)
        }
        None => (LedgerEffect::Keep, false),
    };
    let tail = TailChange {
        stat,
        writer_state,
        edit: TailEdit::Append,
        bytes,
        hashes: (before.hash(), after.hash()),
    };
    let file = admitted.file_id();
    admitted.close_handle();
    Ok(Some(DecidedFile {
        file,
        before: Some(to_content(&before, None)),
        after: Some(to_content(&after, text)),
        ledger,
        is_merged,
        tail: Some(tail),
        scan: Some(after),
        ..DecidedFile::removed(0, admitted, None)
    }))
}

fn to_content(scan: &ContentScan, added: Option<String>) -> FileContent {
    FileContent::Large { hash: scan.text_hash(), size: scan.size(), added: added.map(Arc::new) }
}

/// Returns what a session knows after it appended a text, and whether the file has text of others besides.
fn decide_knowledge(
    knowledge: &Knowledge,
    before: &ContentScan,
    version: TextVersion,
    text: &str,
) -> (LedgerEffect, bool) {
    match knowledge {
        Knowledge::Windows(seen) if *seen == version => (LedgerEffect::AsOnDisk, false),
        Knowledge::Hashed(hash) if *hash == before.text_hash() => (LedgerEffect::AsOnDisk, false),
        Knowledge::Whole(known) => {
            let is_current = known.len() as u64 == before.size() - before.mark_bytes()
                && ContentHash::digest(known.as_bytes()) == before.text_hash();
            (LedgerEffect::Known(Arc::new([known, text].concat())), !is_current)
        }
        Knowledge::Windows(_)
        | Knowledge::Hashed(_)
        | Knowledge::Absent
        | Knowledge::Partial(_)
        | Knowledge::Nothing => (LedgerEffect::Keep, false),
    }
}
