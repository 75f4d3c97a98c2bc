//! Files and directories that only their owner can use.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::error::FileError;
use crate::calls::{Call, Calls};

/// How a private file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// To be read. It has to be there.
    Read,
    /// To be read, and written at its end. It is made if there is none.
    Append,
    /// To be read and written anywhere. It is made if there is none.
    Overwrite,
}

/// Makes a directory that only its owner can enter, and those above it, unless it is there.
///
/// # Errors
/// Fails if it cannot be made.
pub fn create_directory(path: &Path, calls: &Calls) -> Result<(), FileError> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    let made = calls.pass(Call::CreateDirectory).and_then(|()| builder.create(path));
    made.map_err(FileError::of("make the directory", path))
}

/// Makes a directory if there is none, takes it from everyone but its owner, and returns its name without links.
pub(super) fn open_directory(path: &Path) -> Result<PathBuf, FileError> {
    let calls = Calls::default();
    if !path.is_dir() {
        create_directory(path, &calls)?;
        // The names of what was just made last no longer than their directory's own; its parent is the likely one.
        if let Some(parent) = path.parent().filter(|parent| parent.is_dir()) {
            sync_directory(parent, &calls)?;
        }
    }
    let path = path.canonicalize().map_err(FileError::of("find", path))?;
    restrict(&path, &calls)?;
    Ok(path)
}

/// Takes a file or directory from everyone but its owner. The path is no link.
pub(crate) fn restrict(path: &Path, calls: &Calls) -> Result<(), FileError> {
    let found = path.symlink_metadata().map_err(FileError::of("look at", path))?;
    let Some(private) = private_mode(&found) else { return Ok(()) };
    let made = calls.pass(Call::SetMode).and_then(|()| fs::set_permissions(path, private));
    made.map_err(FileError::of("make private", path))
}

/// Opens a plain file that is no link; a new one is private, and one that is written is made so.
pub(crate) fn open_private(path: &Path, mode: OpenMode, calls: &Calls) -> Result<File, FileError> {
    if mode != OpenMode::Read {
        calls.pass(Call::OpenInPlace).map_err(FileError::of("open", path))?;
    }
    let mut options = OpenOptions::new();
    options.read(true).mode(0o600);
    match mode {
        OpenMode::Read => {}
        OpenMode::Append => _ = options.append(true).create(true),
        OpenMode::Overwrite => _ = options.write(true).create(true).truncate(false),
    }
    // A pipe in the place of a file would keep one waiting.
    options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
    let not_plain = || FileError::NotPlain { path: path.to_owned(), what: "file" };
    let file = options.open(path).map_err(|error| match error.raw_os_error() {
        Some(code) if code == rustix::io::Errno::LOOP.raw_os_error() => not_plain(),
        _ => FileError::of("open", path)(error),
    })?;
    let found = file.metadata().map_err(FileError::of("look at", path))?;
    if !found.is_file() {
        return Err(not_plain());
    }
    if let Some(private) = private_mode(&found).filter(|_| mode != OpenMode::Read) {
        let made = calls.pass(Call::SetMode).and_then(|()| file.set_permissions(private));
        made.map_err(FileError::of("make private", path))?;
    }
    Ok(file)
}

/// Replaces a file by a private one: a reader finds the old one or the new one, whole. Only this call uses `temporary`, a name
/// in the same directory, at the same time.
///
/// # Errors
/// Fails if it cannot be written. The file is as it was then, unless only its directory could not be synced.
pub fn replace_file(path: &Path, temporary: &Path, content: &[u8]) -> Result<(), FileError> {
    // What is there was left behind by a process that was killed.
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
        FileError::of("write", path)(error)
    })?;
    sync_directory(temporary.parent().unwrap_or(Path::new("/")), &Calls::default())
}

/// Removes a file, if it is there.
pub(super) fn remove_file(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(FileError::of("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Makes the names in a directory durable.
pub(crate) fn sync_directory(path: &Path, calls: &Calls) -> Result<(), FileError> {
    let opened = calls.pass(Call::SyncDirectory).and_then(|()| File::open(path));
    opened.and_then(|directory| directory.sync_all()).map_err(FileError::of("sync", path))
}

/// Returns what tells a file from all others.
pub(super) fn identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

/// Returns the mode that something should have for its owner alone; none if it has that.
fn private_mode(found: &Metadata) -> Option<Permissions> {
    let private = found.mode() & if found.is_dir() { 0o700 } else { 0o600 };
    (found.mode() & 0o7777 != private).then(|| Permissions::from_mode(private))
}

/// Returns the name of a file beside another.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}
