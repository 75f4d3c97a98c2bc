//! Looking after displaced files: what arrives in one is merged into the file that took its place, and when its time is
//! up it is removed.
//!
//! A thread does so while there are any. What it does not get to, because the process ends, the next process that opens
//! the workspace does.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bowline_state::changes::{Change, ContentHash};
use bowline_state::paths::Access;
use file_lease::{Lease, LeaseError};

use super::{Workspace, Writer};
use crate::disk;
use crate::displaced::{self, DisplacedFile};
use crate::error::FilesError;
use crate::journal::{Entry, Outcome};
use crate::replace::Late;

/// How long to wait between two looks.
const INTERVAL: Duration = Duration::from_millis(100);

/// Of a displaced file at most this much is read.
const MAX_TEXT: u64 = 64 << 20;

/// Whether a thread looks after the displaced files.
#[derive(Debug, Default)]
pub(super) struct Reaper {
    is_running: Mutex<bool>,
}

impl Workspace {
    /// Merges what other programs wrote into files at the moment that these were replaced, as far as that is known by now.
    /// It is done without being asked for; this is for programs that are about to end. Returns how many replaced files are
    /// still kept, in case something is written to them.
    pub fn merge_displaced(&self) -> usize {
        for file in displaced::due(self.displaced_files(), SystemTime::now()) {
            self.reap(&file);
        }
        self.displaced_files().len()
    }

    /// Starts a thread that looks after displaced files, if there are any and none does.
    pub(super) fn start_reaper(&self) {
        let mut is_running = self.inner.reaper.is_running.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_running || self.displaced_files().is_empty() {
            return;
        }
        let inner = Arc::downgrade(&self.inner);
        let look_after = move || {
            loop {
                std::thread::sleep(INTERVAL);
                let Some(inner) = inner.upgrade() else { return };
                let workspace = Self { inner };
                if workspace.merge_displaced() == 0 && workspace.is_reaper_done() {
                    return;
                }
            }
        };
        // Where there is no thread to be had, the next write tries again.
        *is_running =
            std::thread::Builder::new().name("displaced-files".to_owned()).spawn(look_after).is_ok();
    }

    fn is_reaper_done(&self) -> bool {
        // A file that is displaced at this moment is seen here, or by whoever starts the reaper after it.
        let mut is_running = self.inner.reaper.is_running.lock().unwrap_or_else(PoisonError::into_inner);
        *is_running = !self.displaced_files().is_empty();
        !*is_running
    }

    fn displaced_files(&self) -> Vec<DisplacedFile> {
        displaced::list(&self.inner.journal, self.inner.roots.handles().map(|root| root.directory.as_fd()))
    }

    /// Removes a displaced file, or merges what arrived in it. Does nothing while a program has it open for writing.
    fn reap(&self, displaced: &DisplacedFile) {
        let Some(file) = displaced.open() else { return };
        let lease = match Lease::try_shared(file.as_fd()) {
            Err(LeaseError::Contended) => return,
            lease => lease.ok(),
        };
        // Under the lease nothing can arrive any more.
        let is_untouched = rustix::fs::fstat(&file).is_ok_and(|stat| displaced::is_untouched(&stat));
        if is_untouched || self.merge_arrived(displaced, &file).is_ok_and(|is_merged| is_merged) {
            displaced.remove();
        }
        drop(lease);
    }

    /// Merges the text of a displaced file into the file that took its place. Says whether the displaced one may go.
    fn merge_arrived(&self, displaced: &DisplacedFile, file: &File) -> Result<bool, FilesError> {
        let mut writer = self.writer();
        let _lock = writer.journal.lock()?;
        // Another process may have been quicker.
        if displaced.open().is_none() {
            return Ok(true);
        }
        let Some(entry) = writer.journal.change_by_temp(&displaced.temp)? else { return Ok(false) };
        let (bytes, _) =
            disk::read_bytes(file, MAX_TEXT).map_err(|fault| FilesError::read(&entry.change.path, fault))?;
        let Some(base) = base(&writer, &entry, &bytes)? else { return Ok(true) };
        let roots = &self.inner.roots;
        let admitted = roots.admit(&entry.change.path, Access::Write)?;
        let late = Late { base, bytes, is_back: false };
        self.bring_in(&mut writer, roots, &admitted, late).map(|()| true).or(Ok(false))
    }
}

/// Returns what a displaced file held when it was displaced; none if it still holds that.
fn base(writer: &Writer, entry: &Entry, bytes: &[u8]) -> Result<Option<Vec<u8>>, FilesError> {
    let Change { before, after, .. } = &entry.change;
    let hash = ContentHash::of(bytes);
    if [before, after].into_iter().flatten().any(|side| side.hash == hash) {
        return Ok(None);
    }
    // A change that was given up displaced the file that it had made.
    let side = if entry.outcome == Some(Outcome::Abandoned) { after } else { before };
    let kept = side.map(|side| writer.journal.blob(&side.hash)).transpose()?;
    Ok(Some(kept.flatten().unwrap_or_default()))
}
