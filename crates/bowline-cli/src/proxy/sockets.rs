//! The socket directory of one proxy: created when the first socket is needed, and removed at exit.
//!
//! A killed program leaves its directory behind, and the next proxy removes it. A lock on a file in the directory shows
//! that its owner is alive; the system releases it however the program ends. After taking the lock, the creator of a
//! directory checks that the file was not removed in the meantime, and otherwise creates another directory.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bowline_storage::{FileLock, LockMode, lock_with_timeout};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, unlinkat};

/// The prefix of directory names.
const DIR_PREFIX: &str = "bowline-proxy-";

/// The file that the owner locks.
const OWNER_FILE: &str = "owner";

/// The maximum number of attempts to create a directory that is not removed at once.
const MAX_ATTEMPTS: usize = 1000;

/// The maximum number of entries scanned in the directory for temporary files.
const MAX_SCANNED: usize = 100_000;

/// The maximum number of directories removed at once; the next start removes the rest.
const MAX_REMOVED: usize = 256;

/// The socket directory of this program, once created.
pub(super) struct SocketDir {
    base: PathBuf,
    created: Arc<Mutex<Option<OwnedSocketDir>>>,
}

struct OwnedSocketDir {
    path: PathBuf,
    // Its lock marks the directory as in use.
    _owner_lock: FileLock,
}

impl Drop for OwnedSocketDir {
    fn drop(&mut self) {
        // If this fails, the next proxy removes it.
        fs::remove_dir_all(&self.path).ok();
    }
}

impl SocketDir {
    /// Returns a directory that is not created yet, and starts to remove stale ones. Must be called within a runtime.
    pub(super) fn new_in(base: PathBuf) -> Self {
        let directory = base.clone();
        bowline_task::spawn_blocking(move || remove_stale_dirs(&directory));
        Self { base, created: Arc::default() }
    }

    /// Returns a function that creates the directory at its first use. The directory is removed with `self`.
    pub(super) fn create_on_demand(&self) -> Box<dyn Fn() -> io::Result<PathBuf> + Send> {
        let (base, created) = (self.base.clone(), Arc::downgrade(&self.created));
        Box::new(move || {
            let shutdown_error = || io::Error::other("the program ends");
            let created = created.upgrade().ok_or_else(shutdown_error)?;
            let mut created = created.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(created) = &*created {
                return Ok(created.path.clone());
            }
            let new = create_socket_dir(&base)?;
            let path = new.path.clone();
            *created = Some(new);
            Ok(path)
        })
    }
}

/// Creates a directory with mode 0700, and a lock that marks it as in use.
fn create_socket_dir(base: &Path) -> io::Result<OwnedSocketDir> {
    for _ in 0..MAX_ATTEMPTS {
        let permissions = Permissions::from_mode(0o700);
        let path =
            tempfile::Builder::new().prefix(DIR_PREFIX).permissions(permissions).tempdir_in(base)?.keep();
        match lock_owner_file(&path) {
            Ok(Some(owner)) => return Ok(OwnedSocketDir { path, _owner_lock: owner }),
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

/// Takes the lock; `None` if the directory is being removed.
fn lock_owner_file(path: &Path) -> io::Result<Option<FileLock>> {
    Ok(FileLock::acquire(&path.join(OWNER_FILE), LockMode::Exclusive, Duration::ZERO)?)
}

/// Removes the directories whose owners are dead.
fn remove_stale_dirs(base: &Path) {
    let Ok(names) = fs::read_dir(base) else { return };
    let names = names.take(MAX_SCANNED).filter_map(|entry| Some(entry.ok()?.file_name()));
    let own_names = names.filter(|name| name.to_str().is_some_and(|name| name.starts_with(DIR_PREFIX)));
    for name in own_names.take(MAX_REMOVED) {
        // A failure means that the directory belongs to another user, is in use, or was not created by a proxy.
        remove_stale_dir(&base.join(name)).ok();
    }
}

/// Removes a directory if it belongs to the user and its owner is dead. Links are not followed, and only files that a
/// proxy creates are removed.
fn remove_stale_dir(path: &Path) -> io::Result<()> {
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let directory = File::from(openat(CWD, path, flags | OFlags::DIRECTORY, Mode::empty())?);
    if directory.metadata()?.uid() != rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let owner = match openat(&directory, OWNER_FILE, flags | OFlags::RDWR, Mode::empty()) {
        Ok(owner) => File::from(owner),
        // The owner was killed before it created the file, or is about to create it and will then use another
        // directory.
        Err(rustix::io::Errno::NOENT) => return fs::remove_dir(path),
        Err(error) => return Err(error.into()),
    };
    if !owner.metadata()?.is_file() || !lock_with_timeout(&owner, LockMode::Exclusive, Duration::ZERO)? {
        return Ok(());
    }
    for entry in rustix::fs::Dir::read_from(&directory)? {
        let entry = entry?;
        if entry.file_name().to_bytes().ends_with(b".sock") {
            unlinkat(&directory, entry.file_name(), AtFlags::empty())?;
        }
    }
    unlinkat(&directory, OWNER_FILE, AtFlags::empty())?;
    fs::remove_dir(path)
}

#[cfg(test)]
mod tests;
