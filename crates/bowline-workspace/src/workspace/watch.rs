//! The watches of a session: which files changed, on disk or as unsaved text, and by whom.
//!
//! The kernel's events only say where to look. A watch keeps the metadata of everything that it covers, and compares it
//! with the disk, so that it can name what changed, several changes count as one, and a change is reported even if its
//! event was lost. The decisions are in [`bowline_history::watch`].
//!
//! The journal says who wrote the content that is now on disk. It is queried while no write of this process is in
//! progress, together with the file, so that a file never appears without its author.
//!
//! All watches of a session share one queue of events, because the system allows few queues. Nothing here waits: the
//! owner waits for the [`WatchSignal`], and then collects what changed.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use bowline_history::changes::ChangeId;
use bowline_history::watch::{WatchExtent, WatchScope, WatchedEntry, page_ranges, to_changes};
use bowline_policy::paths::LexicalPath;
use bowline_protocol::file_extension::operations::WatchOperation;
use bowline_protocol::file_extension::{ChangeAuthor, FileChange, FileError, FileLimits, WatchId};
use bowline_protocol::rpc_error::RpcError;
use bowline_storage::file_clock::now_ns;
use rustix::fs::FileType;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::notifications::WorkspaceNotification;
use super::session::WorkspaceSession;
use crate::journal::ChangeFilter;
use crate::observer::file_watcher::{FileWatcher, FileWatcherError, FileWatcherOptions};
use crate::roots::AdmittedPath;
use crate::walker::IgnoreRulesCache;

mod collector;
mod tree;

use collector::{Collector, DirtyScope, unsaved_revisions};
use tree::{TreeError, TreeScan, parent_directory};

/// The limits of a session's watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchOptions {
    /// The maximum number of watches.
    pub max_watches: u64,
    /// The maximum number of changes in a report.
    pub max_changes: usize,
    /// The maximum number of changes of one watch that are reported at a time; beyond it, changes are left out.
    pub max_pending_changes: usize,
    /// The maximum number of directories, over all watches.
    pub max_directories: usize,
    /// The maximum number of files and directories, over all watches.
    pub max_entries: usize,
}

impl WatchOptions {
    /// Returns the default options, with the limits that a client advertises.
    #[must_use]
    pub fn with_limits(limits: &FileLimits) -> Self {
        Self {
            max_watches: limits.watches,
            max_changes: usize::try_from(limits.changes).unwrap_or(usize::MAX),
            max_pending_changes: 4096,
            max_directories: FileWatcherOptions::default().max_directories,
            max_entries: 200_000,
        }
    }
}

/// A path to watch.
#[derive(Debug, Clone)]
pub struct WatchTarget {
    // The path as requested, in normal form: changes are reported below it.
    requested: String,
    scope: WatchScope,
}

impl WatchTarget {
    /// Returns the target of a watch of an admitted path.
    ///
    /// # Errors
    /// Fails if nothing exists there, or neither a file nor a directory.
    pub fn new(
        session: &WorkspaceSession,
        admitted: &AdmittedPath,
        operation: &WatchOperation,
    ) -> Result<Self, FileError> {
        let path = admitted.requested_path();
        let extent = match admitted.target().map(|target| target.file_type()) {
            Some(FileType::Directory) if operation.recursive => WatchExtent::Recursive,
            Some(FileType::Directory) => WatchExtent::Entries,
            Some(FileType::RegularFile) => WatchExtent::File,
            Some(_) => return Err(FileError::NotFile { path: path.to_owned() }),
            // A document that was never saved exists for the agent.
            None if session.has_unsaved_text(admitted) => WatchExtent::File,
            None => return Err(FileError::NotFound { path: path.to_owned() }),
        };
        let requested = LexicalPath::parse(path).map(|path| path.as_str().to_owned());
        Ok(Self {
            requested: requested.unwrap_or_else(|_| admitted.canonical().to_owned()),
            scope: WatchScope { path: admitted.canonical().to_owned(), extent, glob: operation.glob.clone() },
        })
    }
}

/// What a session's watches need to know about the session.
pub struct WatchContext<'c> {
    /// Returns whether the session may read a canonical path. The second argument is whether the user approved the watch
    /// itself.
    pub can_read: &'c dyn Fn(&str, bool) -> bool,
    /// Returns whether a command of the session is running, or its changes have not been recorded yet.
    pub is_command_running: &'c dyn Fn() -> bool,
}

/// Changes of one watch. There may be several reports of one watch in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchReport {
    /// The watch.
    pub watch_id: WatchId,
    /// The changes, by path.
    pub changes: Vec<FileChange>,
    /// Whether changes were left out.
    pub overflow: bool,
}

/// The watches of a session.
#[derive(Debug)]
pub struct FileWatches {
    session: WorkspaceSession,
    options: WatchOptions,
    watcher: FileWatcher,
    // Invariant: at most `max_watches`, with at most `max_entries` entries together when they are added. By number.
    watches: BTreeMap<u64, Watch>,
    next_number: u64,
    last_collect_ns: i64,
}

#[derive(Debug)]
struct Watch {
    target: WatchTarget,
    // Whether the user approved the watch.
    was_asked: bool,
    // What was there, without the entries that the glob leaves out.
    entries: BTreeMap<String, WatchedEntry>,
    // The revisions of unsaved texts, by path.
    unsaved: BTreeMap<String, u64>,
    // The newest change in the journal when the watch began.
    since: Option<ChangeId>,
    // The newest record of directories that was taken into account.
    last_directory: u64,
    // There are too many entries or directories by now, so that changes may be missed.
    is_incomplete: bool,
}

impl FileWatches {
    /// Returns a session's watches, none yet.
    ///
    /// # Errors
    /// Fails if the system does not provide a queue of events.
    pub fn new(session: &WorkspaceSession, options: WatchOptions) -> Result<Self, FileError> {
        let limits =
            FileWatcherOptions { max_directories: options.max_directories, ..FileWatcherOptions::default() };
        let watcher = FileWatcher::new(&session.roots, limits).map_err(|error| to_internal_error(&error))?;
        let session = session.clone();
        let last_collect_ns = now_ns();
        Ok(Self { session, options, watcher, watches: BTreeMap::new(), next_number: 1, last_collect_ns })
    }

    /// Returns the signal that something may have changed.
    ///
    /// # Errors
    /// Fails if the runtime cannot wait for events.
    pub fn signal(&self) -> Result<WatchSignal, FileError> {
        let queue = self.watcher.queue().try_clone_to_owned().and_then(wait_for_reads);
        let queue = queue.map_err(|why| to_internal_error(&FileWatcherError::System(why)))?;
        Ok(WatchSignal { queue, notifications: self.session.workspace.subscribe() })
    }

    /// Begins a watch: changes from now on are reported. Collect once afterwards: the signal may have been consumed. `was_asked` is whether the user approved this very watch.
    ///
    /// # Errors
    /// Fails if there are too many watches, directories or files, or if the system's limit of watches is reached.
    pub fn add(&mut self, target: WatchTarget, was_asked: bool) -> Result<WatchId, FileError> {
        if self.watches.len() as u64 >= self.options.max_watches {
            let limit = self.options.max_watches;
            return Err(FileError::TooMany { items: "watches".to_owned(), limit });
        }
        let workspace = &self.session.workspace;
        let (since, last_directory) = {
            let writer = workspace.writer();
            let newest = ChangeFilter { limit: Some(1), ..ChangeFilter::default() };
            let newest = writer.journal.changes(&newest).unwrap_or_default();
            (newest.last().map(|entry| entry.change.id), writer.recent_directories.last_number())
        };
        let unsaved = unsaved_revisions(workspace, &target.scope);
        let room = self.options.max_entries.saturating_sub(self.entry_count());
        let tree = TreeScan { roots: &self.session.roots, scope: &target.scope, room };
        let scanned = tree.scan_all(&mut self.watcher, &mut IgnoreRulesCache::default());
        let entries = match scanned {
            Ok(entries) => entries,
            Err(error) => {
                self.release_directories();
                return Err(to_file_error(error, &target.requested, &self.options));
            }
        };
        let number = self.next_number;
        self.next_number += 1;
        let watch =
            Watch { target, was_asked, entries, unsaved, since, last_directory, is_incomplete: false };
        self.watches.insert(number, watch);
        Ok(watch_id(number))
    }

    /// Ends a watch. Collect once afterwards: the signal may have been consumed.
    ///
    /// # Errors
    /// Fails if there is no such watch.
    pub fn remove(&mut self, id: &WatchId) -> Result<(), FileError> {
        let number = self.watches.keys().copied().find(|number| watch_id(*number) == *id);
        let Some(number) = number else { return Err(FileError::UnknownWatch { watch_id: id.clone() }) };
        self.watches.remove(&number);
        self.release_directories();
        Ok(())
    }

    /// Returns what changed since the last call. Waits for the disk, and for the engine's write in progress.
    pub fn collect(&mut self, context: &WatchContext<'_>) -> Vec<WatchReport> {
        let started_ns = now_ns();
        let was_running = (context.is_command_running)();
        let last_directory = self.session.workspace.writer().recent_directories.last_number();
        let dirty = DirtyScope::new(self.watcher.take_events(), self.last_collect_ns);
        let mut reports = Vec::new();
        let mut rules = IgnoreRulesCache::default();
        let mut count = self.entry_count();
        for (number, watch) in &mut self.watches {
            let room = (self.options.max_entries + watch.entries.len()).saturating_sub(count);
            count -= watch.entries.len();
            let mut collector =
                Collector { session: &self.session, watch, dirty: &dirty, room, options: &self.options };
            let (mut differences, overflow) = collector.find_differences(&mut self.watcher, &mut rules);
            count += watch.entries.len();
            watch.last_directory = last_directory;
            differences.retain(|seen| (context.can_read)(&seen.path, watch.was_asked));
            let is_running = was_running || (context.is_command_running)();
            let fallback = if is_running { ChangeAuthor::Command } else { ChangeAuthor::User };
            let mut changes = to_changes(differences, fallback);
            for change in &mut changes {
                change.path = watch.target.requested_path(&change.path);
                change.from = change.from.as_deref().map(|from| watch.target.requested_path(from));
            }
            let overflow = overflow || (watch.is_incomplete && !changes.is_empty());
            let pages = page_ranges(changes.len(), self.options.max_changes, overflow);
            let last = pages.len().saturating_sub(1);
            for (index, page) in pages.into_iter().enumerate() {
                let (watch_id, overflow) = (watch_id(*number), overflow && index == last);
                reports.push(WatchReport { watch_id, changes: changes[page].to_vec(), overflow });
            }
        }
        self.last_collect_ns = started_ns;
        reports
    }

    fn entry_count(&self) -> usize {
        self.watches.values().map(|watch| watch.entries.len()).sum()
    }

    /// Stops watching directories that no watch covers.
    fn release_directories(&mut self) {
        let watches = &self.watches;
        self.watcher.retain_directories(|directory| {
            watches.values().any(|Watch { target: WatchTarget { scope, .. }, .. }| {
                let is_recursive = scope.extent == WatchExtent::Recursive;
                parent_directory(&scope.path) == Some(directory)
                    || scope.path == directory
                    || is_recursive && scope.contains(directory)
            })
        });
    }
}

/// Fires when something may have changed that a session watches.
#[derive(Debug)]
pub struct WatchSignal {
    queue: AsyncFd<OwnedFd>,
    notifications: Receiver<WorkspaceNotification>,
}

impl WatchSignal {
    /// Waits until something may have changed on disk, or in an open document.
    pub async fn wait(&mut self) {
        loop {
            tokio::select! {
                readable = self.queue.readable() => match readable {
                    // The queue is read by the collector, up to its end; later events fire again.
                    Ok(mut readable) => return readable.clear_ready(),
                    // The runtime is shutting down.
                    Err(_) => std::future::pending::<()>().await,
                },
                notification = self.notifications.recv() => match notification {
                    Ok(WorkspaceNotification::Document(_) | WorkspaceNotification::Documents)
                    | Err(RecvError::Lagged(_)) => return,
                    Ok(
                        WorkspaceNotification::Diagnostics(_)
                        | WorkspaceNotification::Changes
                        | WorkspaceNotification::TextsKept,
                    ) => {}
                    // The workspace outlives its sessions' watches.
                    Err(RecvError::Closed) => std::future::pending::<()>().await,
                },
            }
        }
    }
}

impl WatchTarget {
    /// Returns a canonical path of the scope as the agent spells it.
    fn requested_path(&self, path: &Path) -> PathBuf {
        match path.strip_prefix(&self.scope.path) {
            Ok(way) if way.as_os_str().is_empty() => PathBuf::from(&self.requested),
            Ok(way) => Path::new(&self.requested).join(way),
            Err(_) => path.to_owned(),
        }
    }
}

fn watch_id(number: u64) -> WatchId {
    format!("w{number}").into()
}

/// Registers a file descriptor with the runtime.
#[expect(
    deprecated,
    reason = "its successor is unsafe, for the sake of types that do not own their descriptor"
)]
fn wait_for_reads(queue: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(queue, Interest::READABLE)
}

fn to_file_error(error: TreeError, path: &str, options: &WatchOptions) -> FileError {
    let too_many =
        |items: &str, limit: usize| FileError::TooMany { items: items.to_owned(), limit: limit as u64 };
    match error {
        TreeError::TooManyEntries => too_many("files", options.max_entries),
        TreeError::Watcher(FileWatcherError::TooManyDirectories(limit)) => too_many("directories", limit),
        TreeError::Watcher(error) => to_internal_error(&error),
        TreeError::VersionControlStore => {
            let reason = format!("{path} is in a version control store, which is not watched");
            RpcError::InvalidParams { reason }.into()
        }
        TreeError::Hidden => {
            let reason = format!("{path} is on a file system that is not watched");
            RpcError::InvalidParams { reason }.into()
        }
    }
}

fn to_internal_error(error: &FileWatcherError) -> FileError {
    RpcError::Internal { reason: error.to_string() }.into()
}

#[cfg(test)]
mod tests;
