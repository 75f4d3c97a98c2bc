//! The directory of a journal: its files, their permissions, the lock between processes, and setting a journal aside.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Access, FlockOperation, access, flock};

use super::error::{self, Fault, JournalError};

/// How many journals can lie aside in one directory. Nobody removes them but the user, who was told of each.
const MAX_SET_ASIDE: u32 = 10_000;
/// What SQLite keeps beside a database, in the order in which it is moved after it.
const COMPANIONS: [&str; 3] = ["-wal", "-shm", "-journal"];
/// The first pause between two tries to lock; each is twice the one before, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// The directory a journal lives in.
#[derive(Debug, Clone)]
pub(super) struct Place {
    // Invariant: canonical, so that no link on the way leads SQLite elsewhere later.
    directory: PathBuf,
}

/// Which file a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
}

/// What lies where the database should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    OrphanedLog,
    Database { bytes: u64 },
}

/// The exclusive right to change what a journal tells of, given back when dropped.
///
/// A writer holds it from intent to outcome, so that nobody takes its intents for those of the dead; who recovers those
/// holds it too.
#[derive(Debug)]
#[must_use = "the lock is given back as soon as it is dropped"]
pub struct JournalLock {
    _file: File,
}

impl Place {
    /// Makes the directory if there is none, and makes it private.
    pub(super) fn prepare(directory: &Path) -> Result<Self, JournalError> {
        if !directory.is_dir() {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
            made.map_err(io_error("make the journal's directory", directory))?;
            // The names of what was just made last no longer than their directory's own; its parent is the likely one.
            if let Some(parent) = directory.parent().filter(|parent| parent.is_dir()) {
                sync_directory(parent)?;
            }
        }
        let found = directory.canonicalize();
        let place = Self { directory: found.map_err(io_error("find the journal's directory", directory))? };
        make_private(&place.directory, 0o700)?;
        Ok(place)
    }

    /// Returns the directory as it is, if there is one.
    pub(super) fn existing(directory: &Path) -> Result<Option<Self>, JournalError> {
        match directory.canonicalize() {
            Ok(directory) => Ok(Some(Self { directory })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io_error("find the journal's directory", directory)(error)),
        }
    }

    pub(super) fn database(&self) -> PathBuf {
        self.directory.join("journal.sqlite")
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns where a file of that name is, or would be.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn lock_file(&self) -> PathBuf {
        self.file("lock")
    }

    /// Where it is noted that the database should be looked at as a whole when it is opened next.
    fn suspicion(&self) -> PathBuf {
        self.directory.join("suspect")
    }

    pub(super) fn is_suspect(&self) -> bool {
        self.suspicion().exists()
    }

    pub(super) fn clear_suspicion(&self) -> Result<(), JournalError> {
        let path = self.suspicion();
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error("remove", &path)(error)),
            _ => Ok(()),
        }
    }

    /// Says what an error means, and leaves a note for whoever opens the journal next if it is damaged.
    pub(super) fn explain(&self, fault: impl Into<Fault>) -> JournalError {
        match fault.into() {
            Fault::Known(error) => error,
            Fault::Sql(error) => {
                if error::is_corruption(&error) {
                    // Without the note a large journal is not looked at as a whole when it is opened. Nothing is lost
                    // by that, and the damage itself is what the caller has to hear of.
                    drop(create_private(&self.suspicion()));
                }
                error::explain(error, self.database())
            }
        }
    }

    /// Takes the lock, waiting for it no longer than `wait`.
    pub(super) fn lock(&self, wait: Duration) -> Result<JournalLock, JournalError> {
        let path = self.lock_file();
        let deadline = Instant::now() + wait;
        let mut pause = FIRST_PAUSE;
        loop {
            let file = create_private(&path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                // A lock on a file that is gone from the directory excludes nobody who comes later: try again.
                Ok(()) if identity_of(&file).ok() == identity(&path).ok() => {
                    return Ok(JournalLock { _file: file });
                }
                Ok(()) | Err(rustix::io::Errno::WOULDBLOCK) => {}
                Err(error) => return Err(io_error("lock", &path)(error.into())),
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(JournalError::Held { path });
            }
            thread::sleep(pause.min(left));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Returns what lies where the database should be. Nothing is opened: closing a database that another connection
    /// of this process has open would let go of its locks.
    pub(super) fn look(&self) -> Result<Found, JournalError> {
        let path = self.database();
        let bytes = match path.symlink_metadata() {
            Ok(found) if found.is_file() => found.len(),
            Ok(_) => return Err(io_error("open", &path)(io::Error::other("it is not a plain file"))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(io_error("look at", &path)(error)),
        };
        let log = companion(&path, "-wal");
        match log.symlink_metadata() {
            _ if bytes > 0 => Ok(Found::Database { bytes }),
            // SQLite itself would delete this log without a word.
            Ok(log) if log.len() > 0 => Ok(Found::OrphanedLog),
            Ok(_) => Ok(Found::Nothing),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Found::Nothing),
            Err(error) => Err(io_error("look at", &log)(error)),
        }
    }

    /// Makes an empty database that only its owner can read, unless one is there already. SQLite gives what it puts
    /// beside a database the permissions of the database.
    pub(super) fn create(&self) -> Result<(), JournalError> {
        let path = self.database();
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(_) => sync_directory(&self.directory),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(io_error("make", &path)(error)),
        }
    }

    /// Makes sure that the database is private and can be written.
    pub(super) fn claim(&self) -> Result<(), JournalError> {
        let path = self.database();
        make_private(&path, 0o600)?;
        access(&path, Access::READ_OK | Access::WRITE_OK).map_err(|error| match error {
            rustix::io::Errno::ACCESS | rustix::io::Errno::ROFS => JournalError::ReadOnly { path },
            other => io_error("open", &path)(other.into()),
        })
    }

    pub(super) fn identity(&self) -> Result<Identity, JournalError> {
        let path = self.database();
        identity(&path).map_err(io_error("look at", &path))
    }

    /// Makes sure that the database is still the file that was opened. SQLite would go on writing to one that was moved
    /// or removed, and nobody would ever see it.
    pub(super) fn expect(&self, opened: Identity) -> Result<(), JournalError> {
        let path = self.database();
        match identity(&path) {
            Ok(found) if found == opened => Ok(()),
            Ok(_) => Err(JournalError::Moved { path }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(JournalError::Moved { path }),
            Err(error) => Err(io_error("look at", &path)(error)),
        }
    }

    /// Moves the database and what lies beside it out of the way and returns where it is now. The caller holds the lock.
    ///
    /// The database goes first: if this is cut short, what is left is a log without a database, which the next one who
    /// opens the journal notices and moves too.
    pub(super) fn set_aside(&self) -> Result<PathBuf, JournalError> {
        let from = self.database();
        let to = self.free_name()?;
        for suffix in [""].into_iter().chain(COMPANIONS) {
            let (from, to) = (companion(&from, suffix), companion(&to, suffix));
            match fs::rename(&from, &to) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(io_error("set aside", &from)(error));
                }
                _ => {}
            }
        }
        self.clear_suspicion()?;
        sync_directory(&self.directory)?;
        Ok(to)
    }

    fn free_name(&self) -> Result<PathBuf, JournalError> {
        let database = self.database();
        let taken = |path: &Path| path.symlink_metadata().is_ok();
        (1..=MAX_SET_ASIDE)
            .map(|number| companion(&database, &format!(".set-aside-{number}")))
            .find(|name| !taken(name) && !COMPANIONS.iter().any(|suffix| taken(&companion(name, suffix))))
            .ok_or_else(|| {
                let why = format!("there are {MAX_SET_ASIDE} already, remove some");
                io_error("set aside", &database)(io::Error::other(why))
            })
    }
}

fn companion(database: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(database);
    name.push(suffix);
    PathBuf::from(name)
}

pub(super) fn identity(path: &Path) -> io::Result<Identity> {
    path.symlink_metadata().map(|found| Identity { device: found.dev(), inode: found.ino() })
}

pub(super) fn identity_of(file: &File) -> io::Result<Identity> {
    file.metadata().map(|found| Identity { device: found.dev(), inode: found.ino() })
}

pub(super) fn create_private(path: &Path) -> Result<File, JournalError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    let file = options.open(path).map_err(io_error("open", path))?;
    make_private(path, 0o600)?;
    Ok(file)
}

fn make_private(path: &Path, mode: u32) -> Result<(), JournalError> {
    let found = fs::metadata(path).map_err(io_error("look at", path))?;
    if found.mode() & 0o7777 == mode {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(io_error("make private", path))
}

pub(super) fn sync_directory(path: &Path) -> Result<(), JournalError> {
    File::open(path).and_then(|directory| directory.sync_all()).map_err(io_error("sync", path))
}

pub(super) fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> JournalError {
    move |why| JournalError::Io { doing, path: path.to_owned(), why }
}
