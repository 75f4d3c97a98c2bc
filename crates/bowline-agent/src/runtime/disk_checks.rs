//! Comparisons of the client's texts with this machine's disk, and their results.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::SystemTime;

use bowline_task::spawn_blocking;
use bowline_text::unsaved_text::is_equivalent_text;
use bowline_workspace::disk_snapshot::{DiskSnapshot, take_disk_snapshot};

use super::SessionRuntime;
use super::disk_comparison::{
    CommandTimes, ComparisonBase, DiskComparison, DiskContent, compare_with_disk, decode_text,
};

/// Larger files are not compared: the client's text is taken as it is.
const MAX_COMPARED_BYTES: u64 = 4 << 20;

/// The most texts kept for comparison; the oldest are evicted first.
const MAX_BASES: usize = 256;

/// The most bytes of these texts together.
const MAX_BYTES: usize = 32 << 20;

/// The most files remembered as written through the client; beyond it all are forgotten.
const MAX_WRITTEN_PATHS: usize = 10_000;

/// The results of comparisons with the disk.
#[derive(Debug, Default)]
pub(super) struct DiskChecks {
    // Invariant: newest first, each path once; at most `MAX_BASES` with at most `MAX_BYTES`, which `bytes` counts.
    bases: VecDeque<(String, ComparisonBase)>,
    bytes: usize,
    command_times: CommandTimes,
    // Invariant: at most `MAX_WRITTEN_PATHS`.
    written_paths: HashSet<String>,
    // A file of the client was found on this machine with the same text.
    is_project_local: bool,
    // A file that the client has and this machine lacked when it was checked.
    absent_file: Option<String>,
}

impl DiskChecks {
    fn find_base(&self, path: &str) -> Option<ComparisonBase> {
        self.bases.iter().find(|(known, _)| known == path).map(|(_, base)| base.clone())
    }

    fn remove_base(&mut self, path: &str) {
        if let Some(index) = self.bases.iter().position(|(known, _)| known == path)
            && let Some((_, base)) = self.bases.remove(index)
        {
            self.bytes -= base.text.len();
        }
    }

    fn insert_base(&mut self, path: &str, base: ComparisonBase) {
        self.remove_base(path);
        self.bytes += base.text.len();
        self.bases.push_front((path.to_owned(), base));
        while self.bases.len() > MAX_BASES || self.bytes > MAX_BYTES {
            let Some((_, oldest)) = self.bases.pop_back() else { return };
            self.bytes -= oldest.text.len();
        }
    }
}

impl SessionRuntime {
    /// Records that a command runs, which may change files on this machine.
    pub fn record_command(&self) {
        self.disk_checks().command_times.record_run(SystemTime::now());
    }

    /// Records that a file is written through the client.
    pub(super) fn record_client_write(&self, path: &str) {
        let mut checks = self.disk_checks();
        if checks.written_paths.len() >= MAX_WRITTEN_PATHS {
            checks.written_paths.clear();
        }
        checks.written_paths.insert(path.to_owned());
    }

    /// Compares the client's text with this machine's disk, and returns which of them is the file's.
    pub(super) async fn check_disk(&self, path: &str, client: &Arc<String>) -> DiskComparison {
        // Taken before the read: a command that runs later may change the file after it.
        let checked_at = SystemTime::now();
        let disk = self.read_disk(path).await;
        let mut checks = self.disk_checks();
        let comparison =
            compare_with_disk(client, &disk, checks.find_base(path).as_ref(), checks.command_times);
        match &disk {
            DiskContent::File(bytes, _) => {
                let text = decode_text(bytes);
                // Empty files match everywhere.
                checks.is_project_local |=
                    text.as_ref().is_some_and(|text| !text.is_empty() && is_equivalent_text(text, client));
                if comparison == DiskComparison::UpToDate
                    && let Some(text) = text
                {
                    let text = if text == **client { client.clone() } else { Arc::new(text) };
                    checks.command_times.record_clock(SystemTime::now());
                    checks.insert_base(path, ComparisonBase { text, checked_at });
                }
            }
            DiskContent::Missing if !checks.written_paths.contains(path) => {
                checks.absent_file = Some(path.to_owned())
            }
            DiskContent::Missing | DiskContent::Unknown => {}
        }
        comparison
    }

    /// Returns the content on this machine's disk.
    pub(crate) async fn read_disk(&self, path: &str) -> DiskContent {
        let Ok(roots) = self.roots().await.cloned() else { return DiskContent::Unknown };
        let path = path.to_owned();
        match spawn_blocking(move || take_disk_snapshot(&roots, &path, MAX_COMPARED_BYTES)).await {
            Ok(DiskSnapshot::File { bytes, changed_at }) => DiskContent::File(bytes, changed_at),
            Ok(DiskSnapshot::Missing) => DiskContent::Missing,
            Ok(DiskSnapshot::Unknown) | Err(_) => DiskContent::Unknown,
        }
    }

    /// Returns a file that the client has and this machine lacks, if no other file of the client was found here: then
    /// the client's files are on another machine, even though directories of the same names exist on this one.
    pub async fn find_absent_file(&self) -> Option<String> {
        let absent = {
            let checks = self.disk_checks();
            checks.absent_file.clone().filter(|_| !checks.is_project_local)
        }?;
        (self.read_disk(&absent).await == DiskContent::Missing).then_some(absent)
    }

    fn disk_checks(&self) -> MutexGuard<'_, DiskChecks> {
        self.inner.disk_checks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
