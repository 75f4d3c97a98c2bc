//! A workspace: its documents, its journal, and the sessions that work in it.
//!
//! Three locks protect the state: one for the open documents, one for the ledgers (what each session has read), one for
//! the writer (journal and observation). Reads hold the first two briefly and read the disk without them. Writes hold
//! the writer lock, one at a time, and a lock file that other Bowline processes honour. A write to an open document
//! also holds the documents lock until it finishes, so that it cannot interleave with typing. The lock order is always
//! writer, documents, ledgers.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_history::changes::ChangeOrigin;
use bowline_history::foreign_files::ForeignFiles;
use bowline_history::ledger::Ledger;
use bowline_text::time::Timestamp;
use tokio::sync::broadcast::Receiver;

use crate::disk::LineIndexCache;
pub use crate::disk::bulk_sync::BulkSyncCondition;
use crate::disk::content_scan::ContentScanCache;
use crate::error::FilesError;
use crate::journal::{Journal, JournalNotice, LiveSessions, Retention};
use crate::observer::ObserverOptions;
use crate::roots::Roots;
use bowline_storage::clock::now;
use bowline_storage::disk_calls::DiskCalls;

mod apply;
mod batch;
mod changes;
mod diagnostics;
mod documents;
mod editor;
mod file_extension;
#[cfg(test)]
mod fixture;
mod kept_texts;
mod late_writes;
mod location;
mod merged_writes;
mod notifications;
mod observe;
mod reaper;
mod recent_directories;
mod recover;
mod reversal;
mod session;
mod turn_titles;
mod undo;
mod watch;
mod write;

pub use batch::{
    BatchAgreement, BatchEditError, BatchOutcome, BatchPreview, FileContent, FileEditError, FilePreview,
    OperationOutcome, WrittenFile,
};
pub use changes::{FilePatch, ListedChange};
pub use documents::DocumentEvent;
pub use editor::OpenDocument;
pub use kept_texts::KeptText;
pub use notifications::WorkspaceNotification;
pub use observe::{ObserveReport, ObserveStartReport, ScanProgress, WatchMode};
pub use recover::RecoveredWrite;
pub use session::{ReadText, TextSource, WorkingDirectory, WorkspaceSession};
pub use turn_titles::TurnTitles;
pub use undo::{FileUndoPreview, ReversedFile, UndoOutcome, UndoPreview};
pub use watch::{FileWatches, WatchContext, WatchOptions, WatchReport, WatchSignal, WatchTarget};
pub use write::{EditorWrite, PRIVILEGES_DROPPED, WriteAgreement, WriteOutcome, WritePreview};

use documents::Documents;

/// The settings of a workspace.
#[derive(Debug, Clone)]
pub struct WorkspaceOptions {
    /// The maximum size of a read, in bytes. Defaults to 10 MiB.
    pub max_read_bytes: u64,
    /// The maximum size of a write, and of the file that it replaces, in bytes. Defaults to 64 MiB.
    pub max_write_bytes: u64,
    /// The size in bytes from which on a file is appended to in place, at the cost of what is appended. A smaller file
    /// is written anew, so that its journal entries have whole texts. Defaults to 1 MiB.
    pub append_in_place_bytes: u64,
    /// When many new files are made durable at once. Defaults to [`BulkSyncCondition::IfCheap`].
    pub bulk_sync: BulkSyncCondition,
    /// How to handle a write to a file with several hard links.
    pub hard_links: RiskyWriteBehavior,
    /// How to handle a write to a read-only file.
    pub read_only_files: RiskyWriteBehavior,
    /// How much the journal keeps, and for how long.
    pub retention: Retention,
    /// Files that belong to other programs: observed changes to them are not recorded.
    pub foreign_files: ForeignFiles,
    /// How often a background thread checks replaced files for late writes. Defaults to 100 ms.
    pub reap_interval: Duration,
}

impl Default for WorkspaceOptions {
    fn default() -> Self {
        Self {
            max_read_bytes: 10 << 20,
            max_write_bytes: 64 << 20,
            append_in_place_bytes: 1 << 20,
            bulk_sync: BulkSyncCondition::IfCheap,
            hard_links: RiskyWriteBehavior::Refuse,
            read_only_files: RiskyWriteBehavior::Refuse,
            retention: Retention::default(),
            foreign_files: ForeignFiles::default(),
            reap_interval: Duration::from_millis(100),
        }
    }
}

/// How to handle a write that the system allows but that may be unintended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RiskyWriteBehavior {
    /// Refuse the write.
    Refuse,
    /// Perform the write.
    Allow,
}

/// A workspace. Clones share the same state.
///
/// The methods of this type and of [`WorkspaceSession`] are synchronous and wait for the disk: call them from a thread
/// that may block. [`LocalFiles`](crate::files::LocalFiles) does so for asynchronous code.
#[derive(Debug, Clone)]
pub struct Workspace {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    roots: Roots,
    options: WorkspaceOptions,
    journal_directory: PathBuf,
    calls: DiskCalls,
    line_indexes: LineIndexCache,
    content_scans: ContentScanCache,
    reaper: reaper::DisplacedReaper,
    writer: Mutex<WorkspaceWriter>,
    documents: Mutex<Documents>,
    diagnostics: Mutex<diagnostics::SharedDiagnostics>,
    notifier: notifications::Notifier,
    ledgers: Mutex<HashMap<String, Ledger>>,
    live_sessions: Arc<LiveSessions>,
    unreported_texts: kept_texts::UnreportedTexts,
}

#[derive(Debug)]
struct WorkspaceWriter {
    journal: Journal,
    // One of our writes was interrupted and has not been recovered yet.
    needs_recovery: bool,
    observer_state: observe::ObserverState,
    // When the journal was last pruned, and how many bytes of text were added since.
    pruned_at: Timestamp,
    bytes_since_prune: u64,
    // Texts kept in the journal by the current operation, or by the last one.
    kept_texts: Vec<KeptText>,
    // The directories that sessions created and removed, which the journal does not record.
    recent_directories: recent_directories::RecentDirectories,
    // The last time of several changes that were made together.
    last_group_time: Timestamp,
}

impl WorkspaceWriter {
    /// Returns the time for changes that are made together, by which they are found: no other ones have it.
    fn next_group_time(&mut self) -> Timestamp {
        self.last_group_time = now().max(Timestamp(self.last_group_time.0 + 1));
        self.last_group_time
    }
}

/// An opened workspace, and what to report to its owner.
#[derive(Debug)]
pub struct OpenedWorkspace {
    /// The workspace.
    pub workspace: Workspace,
    /// Notices from the journal.
    pub notices: Vec<JournalNotice>,
    /// Writes that a crash interrupted.
    pub recovered: Vec<RecoveredWrite>,
}

impl Workspace {
    /// Opens a workspace, with its journal in a separate directory. Recovers interrupted writes.
    ///
    /// # Errors
    /// Fails if the journal cannot be used at all. A damaged journal is set aside and reported in the notices.
    pub fn open(
        roots: Roots,
        journal: &Path,
        settings: WorkspaceOptions,
    ) -> Result<OpenedWorkspace, FilesError> {
        Self::open_with(roots, journal, settings, DiskCalls::default())
    }

    /// Opens a workspace whose disk-changing calls go through a gate.
    ///
    /// # Errors
    /// As [`Workspace::open`].
    pub fn open_with(
        roots: Roots,
        journal: &Path,
        settings: WorkspaceOptions,
        calls: DiskCalls,
    ) -> Result<OpenedWorkspace, FilesError> {
        let (opened, notices) = Journal::open(journal, settings.retention, now())?;
        let own: PathBuf = opened.path().parent().unwrap_or(journal).to_owned();
        location::record_root(&own, roots.cwd());
        let (bell, live) = (notifications::Notifier::default(), opened.live_sessions().clone());
        let max_write_bytes = settings.max_write_bytes;
        let inner = Inner {
            roots: roots.with_reserved_paths([&own]),
            options: settings,
            journal_directory: own,
            calls,
            line_indexes: LineIndexCache::default(),
            content_scans: ContentScanCache::new(max_write_bytes),
            reaper: reaper::DisplacedReaper::default(),
            writer: Mutex::new(WorkspaceWriter {
                journal: opened,
                needs_recovery: true,
                observer_state: observe::ObserverState::default(),
                pruned_at: now(),
                bytes_since_prune: 0,
                kept_texts: Vec::new(),
                recent_directories: recent_directories::RecentDirectories::default(),
                last_group_time: Timestamp(0),
            }),
            documents: Mutex::new(Documents::new(bell.clone())),
            diagnostics: Mutex::default(),
            notifier: bell,
            ledgers: Mutex::default(),
            live_sessions: live,
            unreported_texts: Mutex::default(),
        };
        let workspace = Self { inner: Arc::new(inner) };
        let recovered = recover::recover_writes(&workspace, &mut workspace.writer(), &workspace.inner.roots)?;
        reaper::start_reaper(&workspace);
        Ok(OpenedWorkspace { workspace, notices, recovered })
    }

    /// Returns the directory for a workspace's journal below the user's state directory. It is the same for every
    /// program that opens the same project.
    #[must_use]
    pub fn journal_directory(state: &Path, roots: &Roots) -> PathBuf {
        let root = roots.cwd();
        let name = root.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("root");
        // The name is for human readers; the hash identifies the workspace.
        let name: String =
            name.chars().filter(|c| c.is_ascii_alphanumeric() || "-_.".contains(*c)).take(40).collect();
        location::workspace_directory(state, &name, root)
    }

    /// Returns the directory for the audit log of a workspace on another machine, given the names of its roots.
    #[must_use]
    pub fn remote_directory(state: &Path, roots: &[String]) -> PathBuf {
        location::workspace_directory(state, "elsewhere", &roots.concat())
    }

    /// Returns the roots of all workspaces that were opened with a journal below the user's state directory, sorted.
    #[must_use]
    pub fn known_roots(state: &Path) -> Vec<String> {
        location::known_roots(state)
    }

    /// Returns the workspace's own roots.
    #[must_use]
    pub fn roots(&self) -> &Roots {
        &self.inner.roots
    }

    /// Returns the workspace's settings.
    #[must_use]
    pub fn options(&self) -> &WorkspaceOptions {
        &self.inner.options
    }

    /// Returns the view of a session. A repeated id continues the same ledger.
    #[must_use]
    pub fn session(&self, id: &str) -> WorkspaceSession {
        self.session_with_roots(id, self.inner.roots.clone())
    }

    /// Returns the view of a session with different roots: additional directories, or those granted to its agent.
    ///
    /// Documents and observation belong to the workspace and stay within its own roots: what a command does elsewhere
    /// is not detected.
    #[must_use]
    pub fn session_with_roots(&self, id: &str, roots: Roots) -> WorkspaceSession {
        let own = self.inner.roots.reserved_paths();
        if !id.is_empty() {
            // If it cannot be marked as running now, its first change marks it, or fails.
            self.inner.live_sessions.mark_running(id).ok();
        }
        WorkspaceSession { workspace: self.clone(), id: id.into(), roots: roots.with_reserved_paths(own) }
    }

    /// Starts observing: learns the existing files, and stores small ones so that later changes can be undone. Changes
    /// since the workspace was last observed are learned but not recorded, because they cannot be attributed.
    ///
    /// This takes long for a large tree. Reads and writes continue meanwhile; scans find nothing until this has
    /// returned.
    ///
    /// # Errors
    /// Fails if the journal cannot be used. A stopped scan is not an error; the report says so.
    pub fn start_observing(
        &self,
        options: ObserverOptions,
        watching: WatchMode,
        progress: &mut ScanProgress<'_>,
    ) -> Result<ObserveStartReport, FilesError> {
        observe::start_observing(self, options, watching, progress)
    }

    /// Detects files that changed on disk without passing through the engine since the last scan, and records the
    /// changes as observed. Returns nothing if observation was not started.
    ///
    /// # Errors
    /// Fails if the journal cannot be used.
    pub fn observe(
        &self,
        origin: &ChangeOrigin,
        progress: &mut ScanProgress<'_>,
    ) -> Result<ObserveReport, FilesError> {
        self.observe_with_origins(&|_| origin.clone(), progress)
    }

    /// As [`Workspace::observe`], with the origin of a change determined by its file.
    ///
    /// # Errors
    /// Fails if the journal cannot be used.
    pub fn observe_with_origins(
        &self,
        origin: &dyn Fn(&str) -> ChangeOrigin,
        progress: &mut ScanProgress<'_>,
    ) -> Result<ObserveReport, FilesError> {
        observe::scan_workspace(self, origin, progress)
    }

    /// Merges what other programs wrote to files just as they were replaced, as far as it is known by now. A background
    /// thread does this anyway; call it before the program ends. Returns how many replaced files are still kept for
    /// late writes.
    pub fn merge_displaced(&self) -> usize {
        reaper::merge_displaced(self)
    }

    /// Subscribes to changes of documents and diagnostics, and to undone changes, from now on. A subscriber that falls
    /// behind learns how many notifications it missed, and should query everything again.
    #[must_use]
    pub fn subscribe(&self) -> Receiver<WorkspaceNotification> {
        self.inner.notifier.subscribe()
    }

    fn writer(&self) -> MutexGuard<'_, WorkspaceWriter> {
        self.inner.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn documents(&self) -> MutexGuard<'_, Documents> {
        self.inner.documents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_ledger<T>(&self, session: &str, act: impl FnOnce(&mut Ledger) -> T) -> T {
        let mut ledgers = self.inner.ledgers.lock().unwrap_or_else(PoisonError::into_inner);
        act(ledgers.entry(session.to_owned()).or_default())
    }
}
