//! Files and directories that only their owner can use.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::error::FileError;
use crate::disk_calls::{DiskCall, DiskCalls};

/// How a private file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// For reading. It must exist.
    Read,
    /// For reading and appending. It is created if necessary.
    Append,
    /// For reading and writing anywhere. It is created if necessary.
    Overwrite,
}

/// Creates a directory that only its owner can enter, with its parents, unless it exists.
///
/// # Errors
/// Fails if it cannot be created.
pub fn create_directory(path: &Path, calls: &DiskCalls) -> Result<(), FileError> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    let made = calls.check(DiskCall::CreateDirectory).and_then(|()| builder.create(path));
    made.map_err(FileError::io_error("make the directory", path))
}

/// Creates a directory if necessary, makes it private, and returns its canonical path.
pub(super) fn open_private_directory(path: &Path) -> Result<PathBuf, FileError> {
    let calls = DiskCalls::default();
    if !path.is_dir() {
        create_directory(path, &calls)?;
        // The new directory is durable only once its parent is synced; further ancestors usually exist already.
        if let Some(parent) = path.parent().filter(|parent| parent.is_dir()) {
            sync_directory(parent, &calls)?;
        }
    }
    let path = path.canonicalize().map_err(FileError::io_error("find", path))?;
    make_private(&path, &calls)?;
    Ok(path)
}

/// Removes all permissions except the owner's. The path must not be a link.
pub fn make_private(path: &Path, calls: &DiskCalls) -> Result<(), FileError> {
    let found = path.symlink_metadata().map_err(FileError::io_error("look at", path))?;
    let Some(private) = private_mode(&found) else { return Ok(()) };
    let made = calls.check(DiskCall::SetMode).and_then(|()| fs::set_permissions(path, private));
    made.map_err(FileError::io_error("make private", path))
}

/// Opens a regular file that is not a link; a new one is private, and one that is opened for writing is made private.
pub fn open_private(path: &Path, mode: OpenMode, calls: &DiskCalls) -> Result<File, FileError> {
    if mode != OpenMode::Read {
        calls.check(DiskCall::OpenInPlace).map_err(FileError::io_error("open", path))?;
    }
    let mut options = OpenOptions::new();
    options.read(true).mode(0o600);
    match mode {
        OpenMode::Read => {}
        OpenMode::Append => _ = options.append(true).create(true),
        OpenMode::Overwrite => _ = options.write(true).create(true).truncate(false),
    }
    // A pipe at this path would otherwise block.
    options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
    let not_plain = || FileError::NotPlain { path: path.to_owned(), what: "file" };
    let file = options.open(path).map_err(|error| match error.raw_os_error() {
        Some(code) if code == rustix::io::Errno::LOOP.raw_os_error() => not_plain(),
        _ => FileError::io_error("open", path)(error),
    })?;
    let found = file.metadata().map_err(FileError::io_error("look at", path))?;
    if !found.is_file() {
        return Err(not_plain());
    }
    if let Some(private) = private_mode(&found).filter(|_| mode != OpenMode::Read) {
        let made = calls.check(DiskCall::SetMode).and_then(|()| file.set_permissions(private));
        made.map_err(FileError::io_error("make private", path))?;
    }
    Ok(file)
}

/// Replaces a file atomically with a private one: a reader finds the old or the new content, complete. `temporary` is a
/// path in the same directory that no concurrent call uses.
///
/// # Errors
/// Fails if it cannot be written. The file is unchanged then, unless only its directory could not be synced.
pub fn replace_file(path: &Path, temporary: &Path, content: &[u8]) -> Result<(), FileError> {
    // A killed process may have left this file behind.
    remove_file(temporary)?;
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(temporary, path)
    };
    write().map_err(|error| {
        // The first failure is the one to report.
        drop(fs::remove_file(temporary));
        FileError::io_error("write", path)(error)
    })?;
    sync_directory(temporary.parent().unwrap_or(Path::new("/")), &DiskCalls::default())
}

/// Removes a file, if it exists.
pub(super) fn remove_file(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(FileError::io_error("remove", path)(error))
        }
        _ => Ok(()),
    }
}

/// Makes the entries of a directory durable.
pub fn sync_directory(path: &Path, calls: &DiskCalls) -> Result<(), FileError> {
    let opened = calls.check(DiskCall::SyncDirectory).and_then(|()| File::open(path));
    opened.and_then(|directory| directory.sync_all()).map_err(FileError::io_error("sync", path))
}

/// Returns the device and inode of a file.
pub(super) fn file_identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

/// Returns the mode that makes it private; `None` if it already is.
fn private_mode(found: &Metadata) -> Option<Permissions> {
    let private = found.mode() & if found.is_dir() { 0o700 } else { 0o600 };
    (found.mode() & 0o7777 != private).then(|| Permissions::from_mode(private))
}

/// Returns the path of a sibling file with a suffix.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}
