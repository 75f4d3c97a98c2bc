//! The path of a policy file: its owner, whether an agent could reach it, and its replacement.

use std::fs::Metadata;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bowline_history::observation::{FileStamp, KnownFile};
use rustix::io::Errno;

use super::{MAX_POLICY_BYTES, PolicyError, to_absolute_utf8};
use bowline_storage::disk_calls::DiskCalls;
use bowline_storage::file_clock;
use bowline_storage::file_clock::file_stamp;
use bowline_storage::{
    FileError, FileLock, LockMode, OpenMode, create_directory, open_private, replace_file, with_suffix,
};

/// Write permission for the group and for others.
const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// The path of a policy file.
#[derive(Debug)]
pub(super) struct PolicyPath {
    // Invariant: absolute, and ends with a file name.
    path: PathBuf,
}

impl PolicyPath {
    pub(super) fn new(path: &Path) -> Result<Self, PolicyError> {
        to_absolute_utf8(path)?;
        if path.file_name().is_none() || path.parent().is_none() {
            return Err(PolicyError::InvalidPath(path.to_string_lossy().into_owned()));
        }
        Ok(Self { path: path.to_owned() })
    }

    pub(super) fn display(&self) -> String {
        display_path(&self.path)
    }

    /// Returns the stamp of the file, or `None` if it does not exist.
    pub(super) fn stamp(&self) -> Result<Option<FileStamp>, PolicyError> {
        match rustix::fs::stat(&self.path) {
            Ok(found) => Ok(Some(file_stamp(&found))),
            // A dangling link is not a missing file: it was meant to lead to rules.
            Err(Errno::NOENT) if self.path.symlink_metadata().is_err() => Ok(None),
            Err(error) => Err(io_error("look at", &self.path)(error.into())),
        }
    }

    /// Reads the file, if it belongs to the user and is out of an agent's reach. A missing file counts as empty.
    pub(super) fn read(&self, roots: &[String]) -> Result<(Option<KnownFile>, String), PolicyError> {
        self.check_outside_workspace(roots)?;
        if self.stamp()?.is_none() {
            return Ok((None, String::new()));
        }
        let real = self.path.canonicalize().map_err(io_error("find", &self.path))?;
        check_outside(&real, roots)?;
        let now = file_clock::now_ns();
        let file = open_private(&real, OpenMode::Read, &DiskCalls::default())?;
        let found = file.metadata().map_err(io_error("look at", &real))?;
        let stamp =
            file_stamp(&rustix::fs::fstat(&file).map_err(|error| io_error("look at", &real)(error.into()))?);
        check_owner(&real, &found)?;
        if let Some(directory) = real.parent() {
            check_owner(directory, &directory.metadata().map_err(io_error("look at", directory))?)?;
        }
        if found.len() > MAX_POLICY_BYTES {
            return Err(PolicyError::TooLarge { path: display_path(&real), bytes: found.len() });
        }
        let mut bytes = Vec::new();
        // The file may grow during the read.
        let read =
            file.take(MAX_POLICY_BYTES + 1).read_to_end(&mut bytes).map_err(io_error("read", &real))?;
        if read as u64 > MAX_POLICY_BYTES {
            return Err(PolicyError::TooLarge { path: display_path(&real), bytes: read as u64 });
        }
        let text = String::from_utf8(bytes).map_err(|_| PolicyError::NotUtf8(display_path(&real)))?;
        Ok((Some(KnownFile::new(stamp, None, now)), text))
    }

    /// Checks that neither the path nor its target is inside a workspace.
    fn check_outside_workspace(&self, roots: &[String]) -> Result<(), PolicyError> {
        check_outside(&self.path, roots)?;
        // If the directory does not exist yet, its nearest existing ancestor decides.
        let nearest = self.path.ancestors().skip(1).find_map(|directory| directory.canonicalize().ok());
        nearest.map_or(Ok(()), |directory| check_outside(&directory, roots))
    }

    /// Locks the file against other processes that edit it, and creates its directory if it is missing.
    pub(super) fn lock(&self, wait: Duration, roots: &[String]) -> Result<FileLock, PolicyError> {
        self.check_outside_workspace(roots)?;
        create_directory(self.path.parent().unwrap_or(Path::new("/")), &DiskCalls::default())?;
        let lock = FileLock::acquire(&with_suffix(&self.path, ".lock"), LockMode::Exclusive, wait)?;
        lock.ok_or_else(|| PolicyError::Locked(self.display()))
    }

    /// Replaces the file atomically: readers see the whole old text or the whole new one. The caller holds the lock.
    pub(super) fn replace(&self, text: &str) -> Result<(), PolicyError> {
        // A link is kept: its target is replaced.
        let real = match self.stamp()? {
            Some(_) => self.path.canonicalize().map_err(io_error("find", &self.path))?,
            None => self.path.clone(),
        };
        Ok(replace_file(&real, &with_suffix(&real, ".new"), text.as_bytes())?)
    }
}

fn check_outside(path: &Path, roots: &[String]) -> Result<(), PolicyError> {
    match roots.iter().find(|root| path.starts_with(root)) {
        Some(root) => Err(PolicyError::InsideWorkspace { path: display_path(path), root: root.clone() }),
        None => Ok(()),
    }
}

/// Checks that no other user can change a file, or the entries of a directory.
fn check_owner(path: &Path, found: &Metadata) -> Result<(), PolicyError> {
    let user = rustix::process::geteuid().as_raw();
    if found.uid() != user && found.uid() != 0 {
        return Err(PolicyError::NotOwned(display_path(path)));
    }
    let is_shared = found.mode() & OTHERS_WRITE != 0 && !(found.is_dir() && found.mode() & STICKY != 0);
    if is_shared { Err(PolicyError::WritableByOthers(display_path(path))) } else { Ok(()) }
}

fn display_path(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PolicyError {
    move |why| FileError::io_error(what, path)(why).into()
}

impl From<FileError> for PolicyError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::NotPlain { path, .. } => Self::NotRegularFile(display_path(&path)),
            FileError::Io { action: doing, path, why } => {
                Self::System { action: doing, path: display_path(&path), why }
            }
        }
    }
}
