//! The journal of a workspace: every change of its files, with the contents before and after.
//!
//! The journal is one SQLite file in a separate directory. A change is first recorded as pending, durably, before the
//! user's file is touched; then it is applied; then it is settled. After a crash, the outcome of a pending change
//! follows from the file and the record: [`Journal::pending_changes`].
//!
//! Several processes may have the same journal open; [`Journal::lock`] serialises their changes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bowline_history::changes::{Change, ChangeId, ChangeOrigin, ChangeOutcome, ChangeSource, Reversal};
use bowline_text::hash::ContentHash;
use bowline_text::time::Timestamp;
use rusqlite::{Connection, Transaction};

mod baseline;
mod blobs;
mod delta;
mod encryption;
mod error;
mod examine;
mod live_sessions;
mod prune;
mod recent_hashes;
mod rows;
#[cfg(test)]
mod tests;

pub use crate::git_objects::GitObjectId;
pub use baseline::BaselineRow;
pub use error::{JournalError, JournalNotice};
pub use examine::{JournalCondition, examine, is_in_use, recent_changes};
pub use prune::PruneReport;

use encryption::JournalKey;
pub(crate) use encryption::is_secret;
use error::JournalTransactionError;
pub(crate) use live_sessions::LiveSessions;
use prune::RoomEstimate;
use recent_hashes::RecentHashes;

use bowline_storage::{Database, DatabaseFile, Durability, FileLock, LockMode};

/// The name of the database in a journal's directory.
pub const FILE_NAME: &str = "journal.sqlite";
/// The maximum size of a content: 256 MiB. Of a larger file only the hash can be recorded.
pub const MAX_CONTENT_BYTES: usize = 256 << 20;
/// The maximum length of a path, a file name or an id.
pub const MAX_TEXT_BYTES: usize = 16 << 10;
/// How much of a command is kept.
pub const MAX_COMMAND_BYTES: usize = 4 << 10;
/// How long to wait for the lock, or for another process to finish a transaction.
pub const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// The limits of a journal. Beyond them the texts of changes are dropped, oldest first; changes beyond `max_changes`
/// are removed entirely. What undo still needs is kept: the latest turn of every running session and of the most
/// recently active one, and texts that exist only in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// The maximum size of contents in bytes, compressed. Contents that the baseline refers to do not count: pruning
    /// changes does not remove them, and the observer limits their size.
    pub max_bytes: u64,
    /// The maximum age of changes, in milliseconds.
    pub max_age_ms: i64,
    /// The maximum number of changes.
    pub max_changes: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self { max_bytes: 512 << 20, max_age_ms: 30 * 24 * 60 * 60 * 1000, max_changes: 200_000 }
    }
}

/// A change that is about to be made, or that was observed.
#[derive(Debug, Clone)]
pub struct ChangeDraft<'a> {
    /// The origin of the change.
    pub origin: &'a ChangeOrigin,
    /// How the change became known.
    pub source: ChangeSource,
    /// The canonical path.
    pub path: &'a str,
    /// The file before; `None` if it does not exist.
    pub before: Option<DraftSide<'a>>,
    /// The file after; `None` if it is deleted.
    pub after: Option<DraftSide<'a>>,
    /// The path from which it moves the file here. Another draft of the batch removes the file there.
    pub moved_from: Option<&'a str>,
    /// The changes that it reverses.
    pub reverses: &'a [Reversal],
    /// How it is applied to the disk.
    pub method: ApplyMethod,
}

impl<'a> ChangeDraft<'a> {
    /// Returns a change that is already on the disk.
    pub(crate) fn applied(
        (origin, source): (&'a ChangeOrigin, ChangeSource),
        path: &'a str,
        before: Option<DraftSide<'a>>,
        after: Option<DraftSide<'a>>,
    ) -> Self {
        let method = ApplyMethod::AlreadyApplied;
        Self { origin, source, path, before, after, moved_from: None, reverses: &[], method }
    }
}

/// A file before or after a change.
#[derive(Debug, Clone, Copy)]
pub struct DraftSide<'a> {
    /// The bytes.
    pub content: DraftContent<'a>,
    /// The permission bits.
    pub mode: u32,
}

impl<'a> DraftSide<'a> {
    pub(crate) fn bytes(bytes: &'a [u8], mode: u32) -> Self {
        Self { content: DraftContent::Bytes(bytes), mode }
    }
}

/// The content of a file, stored or only identified.
#[derive(Debug, Clone, Copy)]
pub enum DraftContent<'a> {
    /// The bytes, at most [`MAX_CONTENT_BYTES`], which the journal stores.
    Bytes(&'a [u8]),
    /// Only the hash. If the journal stores the bytes for another change, it keeps them for this one as well.
    HashOnly {
        /// The hash of the bytes.
        hash: ContentHash,
        /// The number of bytes.
        size: u64,
    },
}

/// How a change is applied to the disk, for recovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApplyMethod {
    /// A new file replaces the old one.
    Rename {
        /// The new file's name until then, in the same directory.
        temp: String,
    },
    /// The file is written in place.
    InPlace,
    /// The file grows or shrinks in place: these bytes are added to its end or removed from there, depending on its
    /// sizes. The contents before and after are only identified.
    Tail(Vec<u8>),
    /// Nothing to apply: the change is already on disk, or an agent reported it.
    AlreadyApplied,
}

/// A change as recorded in the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalEntry {
    /// The change.
    pub change: Change,
    /// The outcome; `None` while it is pending.
    pub outcome: Option<ChangeOutcome>,
}

/// A change without an outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingChange {
    /// The change.
    pub change: Change,
    /// How it was to be applied.
    pub method: ApplyMethod,
}

/// Selects the changes that match every given field.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChangeFilter<'a> {
    /// By this session.
    pub session: Option<&'a str>,
    /// In this turn.
    pub turn: Option<u64>,
    /// By this tool call.
    pub call: Option<&'a str>,
    /// Of this file.
    pub path: Option<&'a str>,
    /// Later than this one.
    pub after: Option<ChangeId>,
    /// Earlier than this one.
    pub before: Option<ChangeId>,
    /// At most this many, the newest ones.
    pub limit: Option<usize>,
}

/// An open handle to a workspace's journal.
#[derive(Debug)]
pub struct Journal {
    database: Database,
    retention: Retention,
    recent_hashes: RecentHashes,
    live_sessions: Arc<LiveSessions>,
    room_estimate: RoomEstimate,
}

impl Journal {
    /// Opens the journal in its own directory, which is created if necessary and made private.
    ///
    /// An unusable journal (damaged, of a newer format, or not a journal) is set aside and replaced by a new one; a
    /// notice reports it. Then the journal is pruned to its [`Retention`]. Opening holds the lock throughout, so the
    /// caller must not hold it.
    ///
    /// A journal of up to 4 MiB is always checked completely. A larger one is checked if damage was found since it was
    /// last opened.
    ///
    /// # Errors
    /// Fails if the directory or a file in it cannot be read and written, if the disk is full, or if another process
    /// holds the lock. Nothing is moved then.
    pub fn open(
        directory: &Path,
        retention: Retention,
        now: Timestamp,
    ) -> Result<(Self, Vec<JournalNotice>), JournalError> {
        let file = DatabaseFile::prepare(directory, &examine::JOURNAL_DATABASE)?;
        let _lock = file.lock(LockMode::Exclusive, LOCK_TIMEOUT)?;
        let live = Arc::new(LiveSessions::new(file.directory()));
        let (database, set_aside) = file.open(|_, _| Ok(()))?;
        let mut notices: Vec<JournalNotice> = set_aside
            .map(|aside| JournalNotice::SetAside { path: aside.path, why: aside.why })
            .into_iter()
            .collect();
        let (recent, room) = (RecentHashes::default(), RoomEstimate::default());
        let mut journal =
            Self { database, retention, recent_hashes: recent, live_sessions: live, room_estimate: room };
        // A full disk must not keep the user from the journal's contents.
        if let Err(error) = journal.prune(now) {
            notices.push(JournalNotice::NotPruned { why: error.to_string() });
        }
        Ok((journal, notices))
    }

    /// Returns the path of the database.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.database.file().path()
    }

    /// Returns the registry of running sessions.
    pub(crate) fn live_sessions(&self) -> &Arc<LiveSessions> {
        &self.live_sessions
    }

    /// Takes the lock: the exclusive right, across processes and within this one, to change files of the workspace and
    /// record it, or to decide the outcome of a pending change.
    ///
    /// # Errors
    /// Fails if the lock is contended for [`LOCK_TIMEOUT`], or if the directory cannot be written.
    pub fn lock(&self) -> Result<FileLock, JournalError> {
        self.lock_with_timeout(LOCK_TIMEOUT)
    }

    /// Takes the lock as [`lock`](Self::lock) does, with a custom timeout.
    ///
    /// # Errors
    /// Fails if the lock is contended until the timeout, or if the directory cannot be written.
    pub fn lock_with_timeout(&self, wait: Duration) -> Result<FileLock, JournalError> {
        Ok(self.database.file().lock(LockMode::Exclusive, wait)?)
    }

    /// Records changes that are about to be made, with their contents before and after. They are durable when this
    /// returns. The caller holds the lock from before this call until everything is settled.
    ///
    /// # Errors
    /// Fails if the journal cannot be written, if a draft is too large, or if an agent's draft leaves no room for what
    /// undo still needs. Nothing is recorded then.
    pub fn begin(
        &mut self,
        drafts: &[ChangeDraft<'_>],
        now: Timestamp,
    ) -> Result<Vec<ChangeId>, JournalError> {
        self.insert(drafts, None, now)
    }

    /// Records the outcomes of pending changes. A machine crash may revert this: then they are pending again, and
    /// recovery reaches the same conclusion.
    ///
    /// # Errors
    /// Fails if there is no such change, if it already has a different outcome, or if the journal cannot be written. No
    /// outcome is recorded then.
    pub fn settle(&mut self, outcomes: &[(ChangeId, ChangeOutcome)]) -> Result<(), JournalError> {
        self.write(Durability::Deferred, |transaction| {
            outcomes.iter().try_for_each(|&(id, outcome)| rows::settle_change(transaction, id, outcome))
        })
    }

    /// Records observed changes. They are already applied, so they are settled at once. They are durable when this
    /// returns.
    ///
    /// # Errors
    /// Fails if a draft is still to be applied, and as [`begin`](Self::begin) does.
    pub fn record(
        &mut self,
        drafts: &[ChangeDraft<'_>],
        now: Timestamp,
    ) -> Result<Vec<ChangeId>, JournalError> {
        if let Some(draft) = drafts.iter().find(|draft| draft.method != ApplyMethod::AlreadyApplied) {
            return Err(JournalError::NotYetApplied { path: draft.path.to_owned() });
        }
        self.insert(drafts, Some(ChangeOutcome::Done), now)
    }

    /// Returns the pending changes, in order. Unless the caller holds the lock, they may belong to a write in progress.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub fn pending_changes(&self) -> Result<Vec<PendingChange>, JournalError> {
        self.read(|connection| rows::list_pending(connection, || self.find_key()))
    }

    /// Returns changes in order: those that were applied, and those whose outcome is unknown.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub fn changes(&self, filter: &ChangeFilter<'_>) -> Result<Vec<JournalEntry>, JournalError> {
        self.read(|connection| rows::list_changes(connection, filter))
    }

    /// Returns the newest change that was applied, or whose outcome is unknown.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub fn last_change(&self) -> Result<Option<ChangeId>, JournalError> {
        self.read(rows::find_last_change)
    }

    /// Returns one change, regardless of its outcome.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub fn change(&self, id: ChangeId) -> Result<Option<JournalEntry>, JournalError> {
        self.read(|connection| rows::find_change(connection, id))
    }

    /// Returns the newest change of a file that was applied, or may have been or may yet be.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub fn newest_change(&self, path: &str) -> Result<Option<JournalEntry>, JournalError> {
        self.read(|connection| rows::find_newest_change(connection, path))
    }

    /// Returns the change with the given temporary file name, regardless of its outcome.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub fn change_by_temp(&self, temp: &str) -> Result<Option<JournalEntry>, JournalError> {
        self.read(|connection| rows::find_change_by_temp(connection, temp))
    }

    /// Returns whether a content is stored, without reading it.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub fn has_content(&self, hash: &ContentHash) -> Result<bool, JournalError> {
        self.read(|connection| blobs::has_blob(connection, hash))
    }

    /// Returns a content, or `None` if the journal does not store it.
    ///
    /// # Errors
    /// Returns [`JournalError::Damaged`] if the stored bytes do not have that hash, and fails if the journal cannot be
    /// read.
    pub fn content(&self, hash: &ContentHash) -> Result<Option<Vec<u8>>, JournalError> {
        self.read(|connection| blobs::get_blob(connection, hash, || self.find_key()))
    }

    /// Returns the bytes that a change added to the end of its file or removed from there, if only these are stored.
    ///
    /// # Errors
    /// As [`content`](Self::content).
    pub fn tail(&self, id: ChangeId) -> Result<Option<Vec<u8>>, JournalError> {
        self.read(|connection| rows::find_tail(connection, id, || self.find_key()))
    }

    /// Stores contents that no change refers to yet. Pruning removes them unless the baseline refers to them by then,
    /// so the caller holds the lock until it does.
    ///
    /// # Errors
    /// Fails if one is larger than [`MAX_CONTENT_BYTES`] or the journal cannot be written. None is stored then.
    pub fn store_contents(&mut self, contents: &[&[u8]]) -> Result<Vec<ContentHash>, JournalError> {
        self.room_estimate = RoomEstimate::default();
        self.write(Durability::Deferred, |transaction| {
            let mut keeper = blobs::BlobWriter::new(transaction)?;
            let keep = |bytes: &&[u8]| {
                let hash = ContentHash::digest(bytes);
                if bytes.len() > MAX_CONTENT_BYTES {
                    let path = format!("the content {hash}");
                    return Err(JournalError::TooLarge { path, bytes: bytes.len() }.into());
                }
                keeper.store(&hash, bytes).map(|()| hash)
            };
            contents.iter().map(keep).collect()
        })
    }

    /// Returns the state of each file at the last scan, by path.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub fn baseline(&self) -> Result<Vec<BaselineRow>, JournalError> {
        let mut rows = Vec::new();
        self.visit_baseline(|row| rows.push(row))?;
        Ok(rows)
    }

    /// Passes on the state of each file at the last scan, by path, without collecting it.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub fn visit_baseline(&self, visit: impl FnMut(BaselineRow)) -> Result<(), JournalError> {
        self.read(|connection| baseline::visit_baseline(connection, visit))
    }

    /// Returns the git object that has a text of the baseline, if the journal does not store the text.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub fn git_object(&self, path: &str, hash: &ContentHash) -> Result<Option<GitObjectId>, JournalError> {
        self.read(|connection| baseline::find_git_object(connection, path, hash))
    }

    /// Returns the packs that have the git objects of the baseline.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub fn git_packs(&self) -> Result<Vec<String>, JournalError> {
        self.read(baseline::read_git_packs)
    }

    /// Adds packs that have git objects of the baseline.
    ///
    /// # Errors
    /// Fails if the journal cannot be written. None is added then.
    pub fn add_git_packs(&mut self, paths: &[String]) -> Result<(), JournalError> {
        self.write(Durability::Deferred, |transaction| baseline::add_git_packs(transaction, paths))
    }

    /// Replaces the packs that have the git objects of the baseline, and removes the files whose objects none of them
    /// has.
    ///
    /// # Errors
    /// Fails if the journal cannot be written. Nothing is changed then.
    pub fn replace_git_packs(&mut self, paths: &[String], lost: &[String]) -> Result<(), JournalError> {
        self.room_estimate = RoomEstimate::default();
        self.write(Durability::Deferred, |transaction| {
            baseline::update_baseline(transaction, &[], lost)?;
            transaction.execute("DELETE FROM git_packs", [])?;
            baseline::add_git_packs(transaction, paths)
        })
    }

    /// Removes some files from the baseline, then inserts or replaces others. A row without a git object keeps that of
    /// the row it replaces, if the hash is the same.
    ///
    /// # Errors
    /// Fails if the journal cannot be written. The baseline is unchanged then.
    pub fn update_baseline(&mut self, upsert: &[BaselineRow], remove: &[String]) -> Result<(), JournalError> {
        if upsert.is_empty() && remove.is_empty() {
            return Ok(());
        }
        // Contents that the baseline refers to no longer count towards the limit.
        self.room_estimate = RoomEstimate::default();
        self.write(Durability::Deferred, |transaction| baseline::update_baseline(transaction, upsert, remove))
    }

    /// Prunes the journal to its [`Retention`], oldest first, and drops every content that neither a change nor the
    /// baseline refers to and that no other content is based on. A change loses both of its texts or none. Pending
    /// changes, the most recent batch, and what undo still needs are kept. Then free space is returned to the file
    /// system. The caller holds the lock, so that contents stored for the baseline by another process are not dropped
    /// before the baseline refers to them.
    ///
    /// # Errors
    /// Fails if the journal cannot be written.
    pub fn prune(&mut self, now: Timestamp) -> Result<PruneReport, JournalError> {
        let (retention, live) = (self.retention, self.live_sessions.clone());
        let pruned = self.write(Durability::Deferred, |transaction| {
            prune::drop_old(transaction, &retention, || live.find_running(), now)
        })?;
        self.read(prune::release_free_pages)?;
        Ok(pruned)
    }

    fn insert(
        &mut self,
        drafts: &[ChangeDraft<'_>],
        outcome: Option<ChangeOutcome>,
        now: Timestamp,
    ) -> Result<Vec<ChangeId>, JournalError> {
        for session in drafts.iter().filter_map(|draft| draft.origin.session.as_deref()) {
            self.live_sessions.mark_running(session)?;
        }
        // Undos and the user's own changes are never refused for lack of room, nor are observed changes without their
        // text.
        let may_refuse = drafts.iter().any(|draft| {
            let is_text = matches!(draft.after, Some(DraftSide { content: DraftContent::Bytes(_), .. }));
            let is_agents = draft.reverses.is_empty() && draft.origin.session.is_some();
            is_agents && (draft.source == ChangeSource::Written || is_text)
        });
        let (retention, mut room, live) = (self.retention, self.room_estimate, self.live_sessions.clone());
        let has_secrets = drafts.iter().any(|draft| is_secret(draft.path));
        let seal =
            has_secrets.then(|| JournalKey::find_or_create(self.database.file().directory())).transpose()?;
        let mut recent = std::mem::take(&mut self.recent_hashes);
        let inserted = self.write(Durability::Synced, |transaction| {
            let (ids, added) =
                rows::insert_drafts(transaction, &mut recent, drafts, outcome, now, seal.as_ref())?;
            prune::make_room(transaction, &retention, &mut room, added, || live.find_running(), may_refuse)?;
            Ok(ids)
        });
        // The hashes are valid even if recording failed.
        self.recent_hashes = recent;
        if inserted.is_ok() {
            self.room_estimate = room;
        }
        inserted
    }

    fn find_key(&self) -> Option<JournalKey> {
        JournalKey::find(self.database.file().directory())
    }

    fn read<T>(
        &self,
        body: impl FnOnce(&Connection) -> Result<T, JournalTransactionError>,
    ) -> Result<T, JournalError> {
        self.database.read(body)?
    }

    fn write<T>(
        &mut self,
        durability: Durability,
        body: impl FnOnce(&Transaction<'_>) -> Result<T, JournalTransactionError>,
    ) -> Result<T, JournalError> {
        self.database.write(durability, body)?
    }
}
