//! The reaper of displaced files: merges late writes to a displaced file into its replacement, and removes the
//! displaced file when its retention ends.
//!
//! A thread does so while there are displaced files. If the process ends first, the next process that opens the
//! workspace continues.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use bowline_history::changes::{Change, ChangeOutcome};
use bowline_policy::paths::Access;
use bowline_text::hash::ContentHash;
use file_lease::{Lease, LeaseError};

use super::late_writes::merge_late_write;
use super::{Workspace, WorkspaceWriter};
use crate::disk;
use crate::disk::displaced_files::{self, DisplacedFile};
use crate::disk::replace::LateWrite;
use crate::error::FilesError;
use crate::journal::JournalEntry;

/// How much of a displaced file is read.
const MAX_TEXT_BYTES: u64 = 64 << 20;

/// Whether a reaper thread is running.
#[derive(Debug, Default)]
pub(super) struct DisplacedReaper {
    is_running: Mutex<bool>,
}

/// As [`Workspace::merge_displaced`].
pub(super) fn merge_displaced(workspace: &Workspace) -> usize {
    for file in displaced_files::select_due(list_displaced(workspace), SystemTime::now()) {
        reap_displaced(workspace, &file);
    }
    list_displaced(workspace).len()
}

/// Starts the reaper thread, if there are displaced files and it is not running.
pub(super) fn start_reaper(workspace: &Workspace) {
    let mut is_running = workspace.inner.reaper.is_running.lock().unwrap_or_else(PoisonError::into_inner);
    if *is_running || list_displaced(workspace).is_empty() {
        return;
    }
    let inner = Arc::downgrade(&workspace.inner);
    let interval = workspace.inner.options.reap_interval;
    let look_after = move || {
        loop {
            std::thread::sleep(interval);
            let Some(inner) = inner.upgrade() else { return };
            let workspace = Workspace { inner };
            if merge_displaced(&workspace) == 0 && is_reaper_done(&workspace) {
                return;
            }
        }
    };
    // If no thread can be started, the next write tries again.
    *is_running = std::thread::Builder::new().name("displaced-files".to_owned()).spawn(look_after).is_ok();
}

fn is_reaper_done(workspace: &Workspace) -> bool {
    // A file displaced at this moment is seen here, or by the caller that starts the reaper after it.
    let mut is_running = workspace.inner.reaper.is_running.lock().unwrap_or_else(PoisonError::into_inner);
    *is_running = !list_displaced(workspace).is_empty();
    !*is_running
}

fn list_displaced(workspace: &Workspace) -> Vec<DisplacedFile> {
    displaced_files::list(
        &workspace.inner.journal_directory,
        workspace.inner.roots.handles().map(|root| root.directory.as_fd()),
    )
}

/// Removes a displaced file, or merges late writes from it. Does nothing while a program has it open for writing.
fn reap_displaced(workspace: &Workspace, displaced: &DisplacedFile) {
    let Some(file) = displaced.open() else { return };
    let lease = match Lease::try_shared(file.as_fd()) {
        Err(LeaseError::Contended) => return,
        lease => lease.ok(),
    };
    // Under the lease no more writes can arrive.
    let is_untouched = rustix::fs::fstat(&file).is_ok_and(|stat| displaced_files::is_untouched(&stat));
    if is_untouched || merge_displaced_text(workspace, displaced, &file).is_ok_and(|is_merged| is_merged) {
        displaced.remove();
    }
    drop(lease);
}

/// Merges the text of a displaced file into its replacement. Returns whether the displaced file may be removed.
fn merge_displaced_text(
    workspace: &Workspace,
    displaced: &DisplacedFile,
    file: &File,
) -> Result<bool, FilesError> {
    let mut writer = workspace.writer();
    let _lock = writer.journal.lock()?;
    // Another process may have handled it already.
    if displaced.open().is_none() {
        return Ok(true);
    }
    let Some(entry) = writer.journal.change_by_temp(&displaced.temp)? else { return Ok(false) };
    let (bytes, _) = disk::read_bytes(file, MAX_TEXT_BYTES)
        .map_err(|fault| FilesError::from_read_error(&entry.change.path, fault))?;
    let Some(base) = displaced_base(&writer, &entry, &bytes)? else { return Ok(true) };
    let roots = &workspace.inner.roots;
    let admitted = roots.admit(&entry.change.path, Access::Write)?;
    let late = LateWrite { base, bytes, is_restored: false };
    merge_late_write(workspace, &mut writer, roots, &admitted, late).map(|()| true).or(Ok(false))
}

/// Returns the content of a displaced file when it was displaced; `None` if it is unchanged.
fn displaced_base(
    writer: &WorkspaceWriter,
    entry: &JournalEntry,
    bytes: &[u8],
) -> Result<Option<Vec<u8>>, FilesError> {
    let Change { before, after, .. } = &entry.change;
    let hash = ContentHash::digest(bytes);
    if [before, after].into_iter().flatten().any(|side| side.hash == hash) {
        return Ok(None);
    }
    // An abandoned change displaced the file that it had created.
    let side = if entry.outcome == Some(ChangeOutcome::Abandoned) { after } else { before };
    let kept = side.map(|side| writer.journal.content(&side.hash)).transpose()?;
    Ok(Some(kept.flatten().unwrap_or_default()))
}
