//! The files of the store: their names, who may use them, and how one database takes the place of another.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::WAIT;
use super::error::{StoreError, io};

/// At most so many damaged databases lie aside. Nobody removes them but the user, who was told of each.
const MAX_SET_ASIDE: u32 = 100;
/// How long one waits before one tries again to lock.
const PAUSE: Duration = Duration::from_millis(2);

/// Where the sessions are.
#[derive(Debug, Clone)]
pub(super) struct Place {
    // Invariant: canonical and private to the user.
    directory: PathBuf,
}

/// Which file a name leads to: device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity(u64, u64);

/// What is found where the database should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    /// A log that waits for its database, or a database without a byte: neither is ever left by this program.
    Remains,
    Database {
        bytes: u64,
    },
}

/// How the database is used: by many at once, or by one that may put another in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sharing {
    Shared,
    Alone,
}

impl Place {
    /// Makes the directory if there is none.
    pub(super) fn prepare(directory: &Path) -> Result<Self, StoreError> {
        if !directory.is_dir() {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
            made.map_err(io("make", directory))?;
        }
        let directory = directory.canonicalize().map_err(io("find", directory))?;
        let place = Self { directory };
        let locks = place.locks();
        match DirBuilder::new().mode(0o700).create(&locks) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(io("make", &locks)(error)),
            _ => Ok(place),
        }
    }

    pub(super) fn database(&self) -> PathBuf {
        self.directory.join("sessions.db")
    }

    /// A database that is being made.
    pub(super) fn draft(&self) -> PathBuf {
        self.directory.join("sessions.db.new")
    }

    /// A database that is made, and only has to be put in its place.
    fn ready(&self) -> PathBuf {
        self.directory.join("sessions.db.ready")
    }

    fn suspicion(&self) -> PathBuf {
        self.directory.join("sessions.db.suspect")
    }

    /// The directory of the locks of sessions.
    pub(super) fn locks(&self) -> PathBuf {
        self.directory.join("sessions.locks")
    }

    /// Says whether damage was met, so that all of the database has to be looked at when it is opened.
    pub(super) fn is_suspect(&self) -> bool {
        self.suspicion().exists()
    }

    /// Leaves word of damage for whoever opens the database next.
    pub(super) fn suspect(&self) {
        // Without it a small database is looked at all the same, and a large one when the damage is met again.
        drop(open_private(&self.suspicion()));
    }

    pub(super) fn trust(&self) -> Result<(), StoreError> {
        remove(&self.suspicion())
    }

    /// Waits for the right to use the database. It is given back when the file is dropped.
    pub(super) fn lock(&self, sharing: Sharing) -> Result<File, StoreError> {
        let path = self.directory.join("sessions.lock");
        let file = open_private(&path)?;
        let deadline = Instant::now() + WAIT;
        loop {
            let taken = match sharing {
                Sharing::Shared => file.try_lock_shared(),
                Sharing::Alone => file.try_lock(),
            };
            match taken {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(error)) => return Err(io("lock", &path)(error)),
                Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                    return Err(StoreError::Held { path });
                }
                Err(TryLockError::WouldBlock) => thread::sleep(PAUSE),
            }
        }
    }

    /// Says what is there, without opening it: to close a database that this process has open elsewhere would let go of
    /// SQLite's locks on it.
    pub(super) fn look(&self) -> Result<Found, StoreError> {
        let path = self.database();
        let size = |path: &Path| match path.symlink_metadata() {
            Ok(found) if found.is_file() => Ok(Some(found.len())),
            Ok(_) => Err(io("open", path)(io::Error::other("it is not a plain file"))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io("look at", path)(error)),
        };
        Ok(match (size(&path)?, size(&beside(&path, "-wal"))?) {
            (None, None | Some(0)) => Found::Nothing,
            (None | Some(0), _) => Found::Remains,
            (Some(bytes), _) => Found::Database { bytes },
        })
    }

    pub(super) fn identity(&self) -> Result<Identity, StoreError> {
        let path = self.database();
        let found = path.symlink_metadata().map_err(io("look at", &path))?;
        Ok(Identity(found.dev(), found.ino()))
    }

    /// Keeps a copy of the database and of its log, to the byte, and returns where it is.
    pub(super) fn set_aside(&self) -> Result<PathBuf, StoreError> {
        let from = self.database();
        let taken = |path: &Path| path.symlink_metadata().is_ok();
        let to = (1..=MAX_SET_ASIDE)
            .map(|number| beside(&from, &format!(".set-aside-{number}")))
            .find(|to| !taken(to) && !taken(&beside(to, "-wal")))
            .ok_or_else(|| {
                let why = format!("{MAX_SET_ASIDE} lie aside already, remove some");
                io("set aside", &from)(io::Error::other(why))
            })?;
        // The database gets a second name: opening it here would let go of SQLite's locks on it.
        for (suffix, link) in [("", true), ("-wal", false)] {
            let (from, to) = (beside(&from, suffix), beside(&to, suffix));
            let kept = if link { fs::hard_link(&from, &to) } else { fs::copy(&from, &to).map(drop) };
            match kept {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(_) if link => drop(fs::copy(&from, &to).map_err(io("set aside", &from))?),
                Err(error) => return Err(io("set aside", &from)(error)),
            }
        }
        self.sync()?;
        Ok(to)
    }

    /// Removes what is left of a database that was being made.
    pub(super) fn discard_draft(&self) -> Result<(), StoreError> {
        ["", "-wal", "-shm", "-journal"].iter().try_for_each(|suffix| remove(&beside(&self.draft(), suffix)))
    }

    /// Puts the draft, which is durable, in the place of the database. From the first step on it is decided: whoever comes
    /// next does the rest.
    pub(super) fn replace(&self) -> Result<(), StoreError> {
        let (draft, ready) = (self.draft(), self.ready());
        fs::rename(&draft, &ready).map_err(io("rename", &draft))?;
        self.sync()?;
        self.finish_replacing()
    }

    /// Does what is left to do of a replacement that was decided. The old log goes first: SQLite would take it for the new
    /// database's.
    pub(super) fn finish_replacing(&self) -> Result<(), StoreError> {
        let (ready, database) = (self.ready(), self.database());
        if !ready.exists() {
            return Ok(());
        }
        for suffix in ["-wal", "-shm", "-journal"] {
            remove(&beside(&database, suffix))?;
        }
        self.sync()?;
        fs::rename(&ready, &database).map_err(io("rename", &ready))?;
        self.sync()
    }

    fn sync(&self) -> Result<(), StoreError> {
        let synced = File::open(&self.directory).and_then(|directory| directory.sync_all());
        synced.map_err(io("sync", &self.directory))
    }
}

/// Opens a file that only the user can read, and makes it if there is none.
pub(super) fn open_private(path: &Path) -> Result<File, StoreError> {
    let opened =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    opened.map_err(io("open", path))
}

/// Takes from everybody but the user what they may do with a file.
pub(super) fn make_private(path: &Path) -> Result<(), StoreError> {
    let mode = fs::metadata(path).map_err(io("look at", path))?.mode();
    if mode & 0o177 == 0 {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(io("make private", path))
}

pub(super) fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io("remove", path)(error)),
        _ => Ok(()),
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}
