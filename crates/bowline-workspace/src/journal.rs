//! The journal of a workspace: every change of its files, with what was there before and after.
//!
//! It is one SQLite file in a directory of its own. A change is first an intent, which is on the disk before the user's
//! file is touched, then it is made, then it is settled. Whoever finds an intent without an outcome after a crash can
//! tell from the file and from the intent what became of it: [`Journal::pending`].
//!
//! Several processes may have the same journal open; [`Journal::lock`] says whose turn it is to change files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bowline_state::changes::{Change, ChangeId, ContentHash, Moment, Origin, Reversal, Source};
use rusqlite::{Connection, Transaction};

mod baseline;
mod blobs;
mod delta;
mod error;
mod live;
mod open;
mod prune;
mod recent;
mod rows;
mod seal;
#[cfg(test)]
mod tests;

pub use baseline::BaselineRow;
pub use error::{JournalError, Notice};
pub use open::{Condition, examine, is_in_use};
pub use prune::Pruned;

use error::Fault;
pub(crate) use live::LiveSessions;
use prune::Room;
use recent::Recent;
use seal::Seal;
pub(crate) use seal::is_secret;

use crate::storage::{Database, DatabaseFile, Durability, FileLock, Sharing};

/// The name of the database in a journal's directory.
pub const FILE_NAME: &str = "journal.sqlite";
/// A content is at most this large: 256 MiB. Of a larger file only the hash can be recorded.
pub const MAX_CONTENT_BYTES: usize = 256 << 20;
/// A path, a file's name or an id is at most this long.
pub const MAX_TEXT_BYTES: usize = 16 << 10;
/// So much of a command is kept.
pub const MAX_COMMAND_BYTES: usize = 4 << 10;
/// How long one waits for the lock, or for another process to finish a transaction.
pub const LOCK_WAIT: Duration = Duration::from_secs(10);

/// How much a journal keeps. Beyond that the texts of changes are dropped, the oldest first; of changes beyond
/// `max_changes` nothing is left. What undo still promises stays: the latest turn of every running session and of the one
/// that worked last, and texts that only the journal has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// So many bytes of contents, compressed. Contents that the baseline refers to do not count: they do not go with
    /// the changes, and how much of them there is is for the observation to limit.
    pub max_bytes: u64,
    /// Changes that are at most this old.
    pub max_age_ms: i64,
    /// So many changes.
    pub max_changes: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self { max_bytes: 512 << 20, max_age_ms: 30 * 24 * 60 * 60 * 1000, max_changes: 200_000 }
    }
}

/// A change that is about to be made, or that was found.
#[derive(Debug, Clone)]
pub struct Draft<'a> {
    /// Who does it.
    pub origin: &'a Origin,
    /// How it was learnt.
    pub source: Source,
    /// The file: absolute, with no link on the way.
    pub path: &'a str,
    /// The file before; none if there is none.
    pub before: Option<Side<'a>>,
    /// The file after; none if it is deleted.
    pub after: Option<Side<'a>>,
    /// What it takes back.
    pub reverses: &'a [Reversal],
    /// What is done on the disk.
    pub manner: Manner,
}

/// A file before or after a change.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// Its bytes.
    pub content: SideContent<'a>,
    /// Its permission bits.
    pub mode: u32,
}

/// The bytes of a file, to be kept or not.
#[derive(Debug, Clone, Copy)]
pub enum SideContent<'a> {
    /// These, at most [`MAX_CONTENT_BYTES`]; the journal keeps them.
    Bytes(&'a [u8]),
    /// Only what identifies them. If the journal has them for another reason, it keeps them for this one too.
    Known {
        /// Their hash.
        hash: ContentHash,
        /// How many they are.
        size: u64,
    },
}

/// What is done on the disk to make a change: what recovery has to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Manner {
    /// A new file takes the place of the old one.
    Rename {
        /// The name it has until then, in the same directory.
        temp: String,
    },
    /// The file itself is written.
    InPlace,
    /// Nothing: the change was there already, or an agent said so.
    Found,
}

/// What became of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It was made.
    Done,
    /// It was not made: the file is as it was before.
    Abandoned,
    /// Nobody can tell: the file is neither as before nor as after.
    Unknown,
}

/// A change as the journal has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The change.
    pub change: Change,
    /// What became of it; none if it is not settled.
    pub outcome: Option<Outcome>,
}

/// An intent without an outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// The change.
    pub change: Change,
    /// What was to be done on the disk.
    pub manner: Manner,
}

/// Which changes to list: those that fit everything that is given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Filter<'a> {
    /// Of this session.
    pub session: Option<&'a str>,
    /// Of this turn.
    pub turn: Option<u64>,
    /// Of this tool call.
    pub call: Option<&'a str>,
    /// Of this file.
    pub path: Option<&'a str>,
    /// Later than this one.
    pub after: Option<ChangeId>,
    /// Earlier than this one.
    pub before: Option<ChangeId>,
    /// At most so many: the newest of them.
    pub limit: Option<usize>,
}

/// The journal of a workspace, as one of its users has it open.
#[derive(Debug)]
pub struct Journal {
    database: Database,
    retention: Retention,
    recent: Recent,
    live: Arc<LiveSessions>,
    room: Room,
}

impl Journal {
    /// Opens the journal in a directory that is its own: it is made if it does not exist, and made private.
    ///
    /// A journal that cannot be used (damaged, newer, or not a journal) is moved out of the way and a new one is begun;
    /// the notice says so. Then what [`Retention`] does not cover is dropped. Opening takes the lock for as long as it
    /// lasts, so the caller must not hold it.
    ///
    /// A journal of up to 4 MiB is checked as a whole. A larger one is when damage was met since it was opened last.
    ///
    /// # Errors
    /// Fails if the directory or a file in it cannot be read and written, if there is no room, or if another process
    /// holds the lock. Nothing is moved then.
    pub fn open(
        directory: &Path,
        retention: Retention,
        now: Moment,
    ) -> Result<(Self, Vec<Notice>), JournalError> {
        let file = DatabaseFile::prepare(directory, &open::JOURNAL)?;
        let _lock = file.lock(Sharing::Alone, LOCK_WAIT)?;
        let live = Arc::new(LiveSessions::new(file.directory()));
        let (database, set_aside) = file.open(|_, _| Ok(()))?;
        let mut notices: Vec<Notice> = set_aside
            .map(|aside| Notice::SetAside { path: aside.path, why: aside.why })
            .into_iter()
            .collect();
        let (recent, room) = (Recent::default(), Room::default());
        let mut journal = Self { database, retention, recent, live, room };
        // A full disk is no reason to keep the user from what the journal holds.
        if let Err(error) = journal.prune(now) {
            notices.push(Notice::NotPruned { why: error.to_string() });
        }
        Ok((journal, notices))
    }

    /// Returns where the database is.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.database.file().path()
    }

    /// Returns the sessions that are running, to mark more of them.
    pub(crate) fn live_sessions(&self) -> &Arc<LiveSessions> {
        &self.live
    }

    /// Takes the lock: the right to change files of the workspace and to record it, or to decide what became of an
    /// intent. Nobody else has it until it is dropped, no other process and no other owner in this one.
    ///
    /// # Errors
    /// Fails if somebody else holds it for [`LOCK_WAIT`], or if the directory cannot be written.
    pub fn lock(&self) -> Result<FileLock, JournalError> {
        self.lock_within(LOCK_WAIT)
    }

    /// Takes the lock as [`lock`](Self::lock) does, and waits for it no longer than it is told to.
    ///
    /// # Errors
    /// Fails if another process holds it for so long, or if the directory cannot be written.
    pub fn lock_within(&self, wait: Duration) -> Result<FileLock, JournalError> {
        Ok(self.database.file().lock(Sharing::Alone, wait)?)
    }

    /// Records what is about to be done, with the contents before and after. When this returns, it is on the disk. The
    /// caller holds the lock from before this until everything is settled.
    ///
    /// # Errors
    /// Fails if the journal cannot be written, if a draft is larger than it may be, or if an agent's draft leaves no room
    /// for what undo still promises. Nothing is recorded then.
    pub fn begin(&mut self, drafts: &[Draft<'_>], now: Moment) -> Result<Vec<ChangeId>, JournalError> {
        self.insert(drafts, None, now)
    }

    /// Records what became of intents. A crash of the machine may undo this: then they are pending again, and recovery
    /// comes to the same conclusion.
    ///
    /// # Errors
    /// Fails if there is no such change, if it has another outcome already, or if the journal cannot be written. No
    /// outcome is recorded then.
    pub fn settle(&mut self, outcomes: &[(ChangeId, Outcome)]) -> Result<(), JournalError> {
        self.write(Durability::Soon, |transaction| {
            outcomes.iter().try_for_each(|&(id, outcome)| rows::settle(transaction, id, outcome))
        })
    }

    /// Records changes that were found: there is nothing to do, so they are settled at once. When this returns, they
    /// are on the disk.
    ///
    /// # Errors
    /// Fails if a draft is of a change that still has to be made, and as [`begin`](Self::begin) does.
    pub fn record(&mut self, drafts: &[Draft<'_>], now: Moment) -> Result<Vec<ChangeId>, JournalError> {
        if let Some(draft) = drafts.iter().find(|draft| draft.manner != Manner::Found) {
            return Err(JournalError::ToBeMade { path: draft.path.to_owned() });
        }
        self.insert(drafts, Some(Outcome::Done), now)
    }

    /// Returns the intents without an outcome, in order. Unless the caller holds the lock, they may be those of somebody
    /// who is at work.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub fn pending(&self) -> Result<Vec<Pending>, JournalError> {
        self.read(rows::pending)
    }

    /// Returns changes in order: those that were made, and those of which nobody can tell.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub fn changes(&self, filter: &Filter<'_>) -> Result<Vec<Entry>, JournalError> {
        self.read(|connection| rows::list(connection, filter))
    }

    /// Returns one change, whatever became of it.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub fn change(&self, id: ChangeId) -> Result<Option<Entry>, JournalError> {
        self.read(|connection| rows::one(connection, id))
    }

    /// Returns the change whose temporary file has a name, whatever became of it.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub fn change_by_temp(&self, temp: &str) -> Result<Option<Entry>, JournalError> {
        self.read(|connection| rows::by_temp(connection, temp))
    }

    /// Says whether a content is kept, without giving it back.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub fn has(&self, hash: &ContentHash) -> Result<bool, JournalError> {
        self.read(|connection| blobs::has(connection, hash))
    }

    /// Returns a content, or none if the journal does not keep it.
    ///
    /// # Errors
    /// Returns [`JournalError::Damaged`] if the bytes that are kept do not have that hash, and fails if the journal
    /// cannot be read.
    pub fn blob(&self, hash: &ContentHash) -> Result<Option<Vec<u8>>, JournalError> {
        self.read(|connection| blobs::get(connection, hash, || Seal::find(self.database.file().directory())))
    }

    /// Keeps contents that no change has yet. They go when the journal is pruned unless the baseline refers to them by
    /// then: the caller holds the lock until it does.
    ///
    /// # Errors
    /// Fails if one is larger than [`MAX_CONTENT_BYTES`] or the journal cannot be written. None is kept then.
    pub fn keep(&mut self, contents: &[&[u8]]) -> Result<Vec<ContentHash>, JournalError> {
        self.room = Room::default();
        self.write(Durability::Soon, |transaction| {
            let mut keeper = blobs::Keeper::new(transaction)?;
            let keep = |bytes: &&[u8]| {
                let hash = ContentHash::of(bytes);
                if bytes.len() > MAX_CONTENT_BYTES {
                    let path = format!("the content {hash}");
                    return Err(JournalError::TooLarge { path, bytes: bytes.len() }.into());
                }
                keeper.put(&hash, bytes).map(|()| hash)
            };
            contents.iter().map(keep).collect()
        })
    }

    /// Returns what the files looked like when they were last looked at, by path.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub fn baseline(&self) -> Result<Vec<BaselineRow>, JournalError> {
        self.read(baseline::all)
    }

    /// Removes some files from the baseline, then puts others in, in place of what it had of them.
    ///
    /// # Errors
    /// Fails if the journal cannot be written. The baseline is as it was then.
    pub fn update_baseline(&mut self, upsert: &[BaselineRow], remove: &[String]) -> Result<(), JournalError> {
        // What the baseline refers to no longer counts from now on.
        self.room = Room::default();
        self.write(Durability::Soon, |transaction| baseline::update(transaction, upsert, remove))
    }

    /// Drops what [`Retention`] does not cover, the oldest first, and every content that neither a change nor the
    /// baseline refers to and that none of those is built on. A change loses both of its texts or none. Those that are
    /// pending stay, and so do those that were begun or recorded last, and what undo still promises. Then the space is
    /// given back. The caller holds the lock, so that what another has kept for the baseline does not go before the
    /// baseline refers to it.
    ///
    /// # Errors
    /// Fails if the journal cannot be written.
    pub fn prune(&mut self, now: Moment) -> Result<Pruned, JournalError> {
        let (retention, live) = (self.retention, self.live.clone());
        let pruned = self.write(Durability::Soon, |transaction| {
            prune::drop_old(transaction, &retention, || live.find(), now)
        })?;
        self.read(prune::give_back)?;
        Ok(pruned)
    }

    fn insert(
        &mut self,
        drafts: &[Draft<'_>],
        outcome: Option<Outcome>,
        now: Moment,
    ) -> Result<Vec<ChangeId>, JournalError> {
        for session in drafts.iter().filter_map(|draft| draft.origin.session.as_deref()) {
            self.live.claim(session)?;
        }
        // An undo, and what is the user's, is never refused for want of room; nor is what was found on the disk, if only
        // its hash is told.
        let may_refuse = drafts.iter().any(|draft| {
            let is_text = matches!(draft.after, Some(Side { content: SideContent::Bytes(_), .. }));
            let is_agents = draft.reverses.is_empty() && draft.origin.session.is_some();
            is_agents && (draft.source == Source::Written || is_text)
        });
        let (retention, mut room, live) = (self.retention, self.room, self.live.clone());
        let has_secrets = drafts.iter().any(|draft| is_secret(draft.path));
        let seal = has_secrets.then(|| Seal::find_or_make(self.database.file().directory())).transpose()?;
        let mut recent = std::mem::take(&mut self.recent);
        let inserted = self.write(Durability::Now, |transaction| {
            let (ids, added) = rows::insert(transaction, &mut recent, drafts, outcome, now, seal.as_ref())?;
            prune::make_room(transaction, &retention, &mut room, added, || live.find(), may_refuse)?;
            Ok(ids)
        });
        // Hashes are true whether or not something was recorded.
        self.recent = recent;
        if inserted.is_ok() {
            self.room = room;
        }
        inserted
    }

    fn read<T>(&self, body: impl FnOnce(&Connection) -> Result<T, Fault>) -> Result<T, JournalError> {
        self.database.read(body)?
    }

    fn write<T>(
        &mut self,
        durability: Durability,
        body: impl FnOnce(&Transaction<'_>) -> Result<T, Fault>,
    ) -> Result<T, JournalError> {
        self.database.write(durability, body)?
    }
}
