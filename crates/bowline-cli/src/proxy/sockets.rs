//! The directory for the sockets of one proxy: made when the first is needed, and gone with the program.
//!
//! A program that is killed leaves its directory behind, and the next one removes it. Whose owner lives is told by a lock on
//! a file in it, which the system takes back however a program ends. Whoever makes a directory checks, once it has the lock,
//! that nobody has swept the file away before, and makes another if so.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bowline_workspace::storage::{FileLock, Sharing};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, unlinkat};

/// How the names of the directories begin.
const PREFIX: &str = "bowline-proxy-";

/// The file whose lock the owner has.
const OWNER: &str = "owner";

/// How often a directory is made that somebody sweeps away at once.
const ATTEMPTS: usize = 1000;

/// So many names in the directory for temporary files are looked at.
const MAX_LOOKED_AT: usize = 100_000;

/// So many directories are swept in one go; the next start sweeps the rest.
const MAX_SWEPT: usize = 256;

/// The directory of this program, if there is one yet.
pub(super) struct Sockets {
    base: PathBuf,
    made: Arc<Mutex<Option<Made>>>,
}

struct Made {
    path: PathBuf,
    // Its lock says that the directory is in use.
    _owner: FileLock,
}

impl Drop for Made {
    fn drop(&mut self) {
        // What cannot be removed now is swept by the next.
        fs::remove_dir_all(&self.path).ok();
    }
}

impl Sockets {
    /// Returns that there is none yet, and begins to remove what others left who are dead. To be called within a runtime.
    pub(super) fn below(base: PathBuf) -> Self {
        let its = base.clone();
        tokio::task::spawn_blocking(move || sweep(&its));
        Self { base, made: Arc::default() }
    }

    /// Returns what makes the directory at its first use. It goes with `self`.
    pub(super) fn lent(&self) -> Box<dyn Fn() -> io::Result<PathBuf> + Send> {
        let (base, made) = (self.base.clone(), Arc::downgrade(&self.made));
        Box::new(move || {
            let gone = || io::Error::other("the program ends");
            let made = made.upgrade().ok_or_else(gone)?;
            let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(made) = &*made {
                return Ok(made.path.clone());
            }
            let new = make(&base)?;
            let path = new.path.clone();
            *made = Some(new);
            Ok(path)
        })
    }
}

/// Makes a directory for the user alone, with a lock that says that somebody has it.
fn make(base: &Path) -> io::Result<Made> {
    for _ in 0..ATTEMPTS {
        let its_own = Permissions::from_mode(0o700);
        let path = tempfile::Builder::new().prefix(PREFIX).permissions(its_own).tempdir_in(base)?.keep();
        match own(&path) {
            Ok(Some(owner)) => return Ok(Made { path, _owner: owner }),
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                fs::remove_dir(&path).ok();
                return Err(error);
            }
        }
    }
    Err(io::Error::other("the directory for sockets is swept away as often as it is made"))
}

/// Takes the lock; none if the directory is being swept.
fn own(path: &Path) -> io::Result<Option<FileLock>> {
    Ok(FileLock::acquire(&path.join(OWNER), Sharing::Alone, Duration::ZERO)?)
}

/// Removes the directories whose owners are dead.
fn sweep(base: &Path) {
    let Ok(names) = fs::read_dir(base) else { return };
    let names = names.take(MAX_LOOKED_AT).filter_map(|entry| Some(entry.ok()?.file_name()));
    let ours = names.filter(|name| name.to_str().is_some_and(|name| name.starts_with(PREFIX)));
    for name in ours.take(MAX_SWEPT) {
        // What cannot be removed is of somebody else, or in use, or nothing of ours.
        sweep_one(&base.join(name)).ok();
    }
}

/// Removes a directory, if it is the user's own and its owner is dead. Links are not followed, and nothing is removed that a
/// proxy does not make.
fn sweep_one(path: &Path) -> io::Result<()> {
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let directory = File::from(openat(CWD, path, flags | OFlags::DIRECTORY, Mode::empty())?);
    if directory.metadata()?.uid() != rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let owner = match openat(&directory, OWNER, flags | OFlags::RDWR, Mode::empty()) {
        Ok(owner) => File::from(owner),
        // Killed before it had one, or about to have one: then it makes another directory.
        Err(rustix::io::Errno::NOENT) => return fs::remove_dir(path),
        Err(error) => return Err(error.into()),
    };
    if !owner.metadata()?.is_file() || owner.try_lock().is_err() {
        return Ok(());
    }
    for entry in rustix::fs::Dir::read_from(&directory)? {
        let entry = entry?;
        if entry.file_name().to_bytes().ends_with(b".sock") {
            unlinkat(&directory, entry.file_name(), AtFlags::empty())?;
        }
    }
    unlinkat(&directory, OWNER, AtFlags::empty())?;
    fs::remove_dir(path)
}

#[cfg(test)]
mod tests;
