//! A workspace: its documents, its journal, and the sessions that work in it.
//!
//! Who owns what: one lock holds the open documents, one what the sessions saw, one the writer (journal and
//! observation). Reads take the first two for a moment and read the disk beside them. Writes take the writer's, one at a
//! time, and a lock file that other processes of Bowline honour; a write to an open document keeps the documents locked
//! until it is done, so that typing and writing never pass each other unseen. They are always taken in the order writer,
//! documents, ledgers.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_state::changes::{Moment, Origin};
use bowline_state::foreign_files::ForeignFiles;
use bowline_state::ledger::{Ledger, Unseen};
use bowline_state::paths::Access;

use crate::calls::Calls;
use crate::clock::now;
use crate::disk::Indexes;
use crate::error::FilesError;
use crate::journal::{Journal, LiveSessions, Notice, Retention};
use crate::roots::{Admitted, Roots};

mod applying;
mod diagnosing;
mod documents;
mod editor;
mod editor_writing;
#[cfg(test)]
mod fixture;
mod foreseeing;
mod kept;
mod late;
mod location;
mod looking;
mod making_room;
mod merged_writes;
mod observing;
mod reading;
mod reaper;
mod recovering;
mod reversal;
mod reverted;
mod sharing;
mod telling;
mod turn_titles;
mod undoing;
mod writing;

pub use documents::DocumentEvent;
pub use editor::OpenDocument;
pub use editor_writing::EditorWrite;
pub use foreseeing::{Foreseen, Foresight};
pub use kept::KeptText;
pub use looking::WorkingDirectory;
pub use observing::{Observed, Progress, Started, Watching};
pub use reading::{ReadText, Served};
pub use recovering::Recovered;
pub use sharing::SharedNews;
pub use telling::{Changed, FilePatch};
pub use turn_titles::TurnTitles;
pub use undoing::{Reversed, TakenBack};
pub use writing::{Agreed, PRIVILEGES_DROPPED, Preview, Written};

use documents::Documents;

/// What may be set.
#[derive(Debug, Clone)]
pub struct Settings {
    /// A read gives at most this many bytes. 10 MiB if nothing else is said.
    pub max_read: u64,
    /// A write takes, and replaces, at most this many bytes. 64 MiB if nothing else is said.
    pub max_write: u64,
    /// What becomes of a write to a file that the session did not see, or not all of.
    pub unseen: Unseen,
    /// What becomes of a write to a file that has other names.
    pub hard_links: Guard,
    /// What becomes of a write to a file that nobody may write.
    pub read_only_files: Guard,
    /// What the journal keeps, and for how long.
    pub retention: Retention,
    /// Files that are other programs': found changed, they are not recorded.
    pub foreign_files: ForeignFiles,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_read: 10 << 20,
            max_write: 64 << 20,
            unseen: Unseen::Overwrite,
            hard_links: Guard::Refuse,
            read_only_files: Guard::Refuse,
            retention: Retention::default(),
            foreign_files: ForeignFiles::default(),
        }
    }
}

/// What becomes of a write that is allowed by the system but may not be meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// It is refused.
    Refuse,
    /// It is done.
    Allow,
}

/// A workspace. Clones are the same one.
///
/// What its methods and those of a [`Session`] do they do at once, and wait for the disk: call them from a thread that may
/// block. [`LocalFiles`](crate::files::LocalFiles) does so for asynchronous code.
#[derive(Debug, Clone)]
pub struct Workspace {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    roots: Roots,
    settings: Settings,
    // The journal's directory.
    journal: PathBuf,
    calls: Calls,
    indexes: Indexes,
    reaper: reaper::Reaper,
    writer: Mutex<Writer>,
    documents: Mutex<Documents>,
    diagnosed: Mutex<diagnosing::Diagnosed>,
    bell: sharing::Bell,
    ledgers: Mutex<HashMap<String, Ledger>>,
    live: Arc<LiveSessions>,
    kept: kept::WaitingTexts,
}

#[derive(Debug)]
struct Writer {
    journal: Journal,
    // A write of ours was interrupted and not put right yet.
    interrupted: bool,
    lookout: observing::Lookout,
    // When what the journal need not keep was last dropped, and how many bytes of texts were put in since.
    pruned: Moment,
    put_since_prune: u64,
    // Texts that were kept in the journal in the course of the operation that is going on, or that was last.
    kept: Vec<KeptText>,
}

/// A session's view of a workspace. It may have other roots than the workspace itself.
#[derive(Debug, Clone)]
pub struct Session {
    workspace: Workspace,
    id: Arc<str>,
    roots: Roots,
}

/// A workspace that was opened, and what its owner should be told.
#[derive(Debug)]
pub struct Opened {
    /// The workspace.
    pub workspace: Workspace,
    /// What the journal has to say.
    pub notices: Vec<Notice>,
    /// Writes that a crash had interrupted.
    pub recovered: Vec<Recovered>,
}

impl Workspace {
    /// Opens a workspace, with its journal in a directory of its own. Writes that were interrupted are put right.
    ///
    /// # Errors
    /// Fails if the journal cannot be used at all; a damaged one is set aside, and the notices say so.
    pub fn open(roots: Roots, journal: &Path, settings: Settings) -> Result<Opened, FilesError> {
        Self::open_with(roots, journal, settings, Calls::default())
    }

    /// Opens a workspace whose calls that change the disk go through a gate.
    ///
    /// # Errors
    /// As [`Workspace::open`].
    pub fn open_with(
        roots: Roots,
        journal: &Path,
        settings: Settings,
        calls: Calls,
    ) -> Result<Opened, FilesError> {
        let (opened, notices) = Journal::open(journal, settings.retention, now())?;
        let own: PathBuf = opened.path().parent().unwrap_or(journal).to_owned();
        location::remember(&own, roots.cwd());
        let (bell, live) = (sharing::Bell::default(), opened.live_sessions().clone());
        let inner = Inner {
            roots: roots.keeping_out([&own]),
            settings,
            journal: own,
            calls,
            indexes: Indexes::default(),
            reaper: reaper::Reaper::default(),
            writer: Mutex::new(Writer {
                journal: opened,
                interrupted: true,
                lookout: observing::Lookout::default(),
                pruned: now(),
                put_since_prune: 0,
                kept: Vec::new(),
            }),
            documents: Mutex::new(Documents::new(bell.clone())),
            diagnosed: Mutex::default(),
            bell,
            ledgers: Mutex::default(),
            live,
            kept: Mutex::default(),
        };
        let workspace = Self { inner: Arc::new(inner) };
        let recovered = workspace.recover(&mut workspace.writer(), &workspace.inner.roots)?;
        workspace.start_reaper();
        Ok(Opened { workspace, notices, recovered })
    }

    /// Returns the directory for the journal of a workspace, given the user's directory for state: the same for every
    /// program that opens the same project.
    #[must_use]
    pub fn journal_directory(state: &Path, roots: &Roots) -> PathBuf {
        let root = roots.cwd();
        let name = root.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("root");
        // For people who look; the hash tells workspaces apart.
        let name: String =
            name.chars().filter(|c| c.is_ascii_alphanumeric() || "-_.".contains(*c)).take(40).collect();
        location::named(state, &name, root)
    }

    /// Returns the directory for the audit log of a workspace that is not on this machine, given the names of its roots.
    #[must_use]
    pub fn remote_directory(state: &Path, roots: &[String]) -> PathBuf {
        location::named(state, "elsewhere", &roots.concat())
    }

    /// Returns the workspace's own roots.
    #[must_use]
    pub fn roots(&self) -> &Roots {
        &self.inner.roots
    }

    /// Returns what may be set, as it is.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// Returns a session's view. Asking for the same id again continues its ledger.
    #[must_use]
    pub fn session(&self, id: &str) -> Session {
        self.session_within(id, self.inner.roots.clone())
    }

    /// Returns the view of a session that has other roots: additional directories, or those granted to its agent.
    ///
    /// Documents and observation are the workspace's and stay within its own roots: what a command does elsewhere is not
    /// found.
    #[must_use]
    pub fn session_within(&self, id: &str, roots: Roots) -> Session {
        let own = self.inner.roots.own();
        if !id.is_empty() {
            // If it cannot be marked as running now, its first change does it or fails.
            self.inner.live.claim(id).ok();
        }
        Session { workspace: self.clone(), id: id.into(), roots: roots.keeping_out(own) }
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
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

impl Session {
    /// Returns the session's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the session's roots.
    #[must_use]
    pub fn roots(&self) -> &Roots {
        &self.roots
    }

    /// Returns the workspace.
    #[must_use]
    pub fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    /// Finds out what a path leads to, for whoever has to judge it before anything is done.
    ///
    /// # Errors
    /// Returns why the path is not for this session.
    pub fn admit(&self, path: &str, access: Access) -> Result<Admitted, FilesError> {
        Ok(self.roots.admit(path, access)?)
    }

    /// Ends the session: what it saw is forgotten. The journal keeps what it did, within its limits.
    pub fn end(&self) {
        self.workspace.inner.live.release(&self.id);
        let mut ledgers = self.workspace.inner.ledgers.lock().unwrap_or_else(PoisonError::into_inner);
        ledgers.remove(&*self.id);
    }

    fn with_ledger<T>(&self, act: impl FnOnce(&mut Ledger) -> T) -> T {
        self.workspace.with_ledger(&self.id, act)
    }

    /// Returns who does something in this session.
    #[must_use]
    pub fn origin(&self, turn: Option<u64>, call: Option<&str>) -> Origin {
        Origin { session: Some(self.id.to_string()), turn, call: call.map(str::to_owned), command: None }
    }
}
