//! Displaced files: files replaced by a new version, kept until no program can still be writing to them.
//!
//! A program that saves a file looks up its name and then opens the inode it found. If the file is replaced in between,
//! or while a lease makes the program wait, it writes to the old file. An old file is therefore not removed at once: it
//! moves to a private directory and stays there for [`GRACE_PERIOD`]. Writes to it in that time are merged into the
//! file that replaced it.
//!
//! The directory is the only record of displaced files, so that none is forgotten when the process dies. The file's
//! modification time shows whether it was written to: it is set to [`UNTOUCHED_MTIME`] on displacement, and every write
//! changes it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, Stat, Timespec, Timestamps};
use rustix::io::Errno;

use crate::disk::replace::is_temp_name;
use crate::journal::is_secret;
use crate::roots::FileLocation;
use bowline_storage::disk_calls::{DiskCall, DiskCalls};

/// How long a displaced file is kept. This has to exceed the time a program takes from looking up a name to opening the
/// file, on a machine under load.
pub(crate) const GRACE_PERIOD: Duration = Duration::from_secs(2);

/// If displaced files exceed this total, those older than [`SHORT_GRACE_PERIOD`] may be removed.
const MAX_TOTAL_BYTES: u64 = 256 << 20;
const SHORT_GRACE_PERIOD: Duration = Duration::from_millis(100);

/// The name of the directory: next to the journal, or in the file's root if that is on another file system or the file
/// is a secret.
const DIRECTORY: &str = "displaced";
const DIRECTORY_IN_ROOT: &str = ".bowline-displaced";

/// The modification time of a displaced file that was not written to: one nanosecond after the epoch.
const UNTOUCHED_MTIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 1 };

/// The directory for displaced files: next to the journal, or in the root of the file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DisplacedDir<'a> {
    journal: &'a Path,
    root: BorrowedFd<'a>,
    // The file is a secret, which must not leave the project.
    is_secret: bool,
}

/// A displaced file.
#[derive(Debug)]
pub(crate) struct DisplacedFile {
    /// The temporary name it got when it was replaced, which the journal records.
    pub(crate) temp: String,
    pub(crate) stat: Stat,
    directory: Rc<OwnedFd>,
}

impl<'a> DisplacedDir<'a> {
    /// Returns the directory for a file, given the directory of the workspace's journal and the root of the file.
    pub(crate) fn new(journal: &'a Path, root: BorrowedFd<'a>, path: &str) -> Self {
        Self { journal, root, is_secret: is_secret(path) }
    }

    /// Moves a file with a temporary name to the directory. A file on a file system of its own is removed.
    pub(crate) fn move_in(self, place: &FileLocation, temp: &str, calls: &DiskCalls) -> io::Result<()> {
        let take = |directory: io::Result<OwnedFd>| move_file(&directory?, place, temp, calls);
        if !self.is_secret {
            match take(open_directory(CWD, &self.journal.join(DIRECTORY), calls)) {
                Err(why) if is_cross_device(&why) => {}
                taken => return taken,
            }
        }
        match take(open_directory(self.root, Path::new(DIRECTORY_IN_ROOT), calls)) {
            Err(why) if is_cross_device(&why) => crate::disk::replace::remove_temp(place, temp, calls),
            taken => taken,
        }
    }
}

/// Returns the displaced files of a workspace, and removes empty directories from its roots.
pub(crate) fn list<'a>(journal: &Path, roots: impl Iterator<Item = BorrowedFd<'a>>) -> Vec<DisplacedFile> {
    let mut files = Vec::new();
    collect_files(CWD, &journal.join(DIRECTORY), &mut files);
    for root in roots {
        let before = files.len();
        let is_there = collect_files(root, Path::new(DIRECTORY_IN_ROOT), &mut files);
        if is_there && files.len() == before {
            // If another process adds a file at this moment, the directory is not empty, and stays.
            rustix::fs::unlinkat(root, DIRECTORY_IN_ROOT, AtFlags::REMOVEDIR).ok();
        }
    }
    files
}

/// Marks a file as not written to.
pub(crate) fn mark_untouched(file: &File) {
    let times = Timestamps { last_access: UNTOUCHED_MTIME, last_modification: UNTOUCHED_MTIME };
    // Without the mark, its text is compared with the journal's.
    rustix::fs::futimens(file, &times).ok();
}

/// Returns whether a file has not been written to since it was marked.
pub(crate) fn is_untouched(stat: &Stat) -> bool {
    (stat.st_mtime, stat.st_mtime_nsec.cast_signed()) == (UNTOUCHED_MTIME.tv_sec, UNTOUCHED_MTIME.tv_nsec)
}

/// Returns the displaced files to examine: those that were written to, and those whose grace period is over.
pub(crate) fn select_due(mut files: Vec<DisplacedFile>, now: SystemTime) -> Vec<DisplacedFile> {
    let mut bytes: u64 = files.iter().map(|file| file.stat.st_size.max(0).cast_unsigned()).sum();
    files.sort_by_key(|file| (file.stat.st_ctime, file.stat.st_ctime_nsec));
    files.retain(|file| {
        let grace = if bytes > MAX_TOTAL_BYTES { SHORT_GRACE_PERIOD } else { GRACE_PERIOD };
        let is_due = !is_untouched(&file.stat) || file.age(now) >= grace;
        if is_due {
            bytes = bytes.saturating_sub(file.stat.st_size.max(0).cast_unsigned());
        }
        is_due
    });
    files
}

impl DisplacedFile {
    /// Opens the file, if it still exists.
    pub(crate) fn open(&self) -> Option<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::openat(&*self.directory, &*self.temp, flags, Mode::empty()).ok().map(File::from)
    }

    /// Removes the file.
    pub(crate) fn remove(&self) {
        // A file that remains is found by the next listing.
        rustix::fs::unlinkat(&*self.directory, &*self.temp, AtFlags::empty()).ok();
    }

    fn age(&self, now: SystemTime) -> Duration {
        let moved = Duration::new(self.stat.st_ctime.max(0).cast_unsigned(), self.stat.st_ctime_nsec as u32);
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        // A clock that was set back would keep the file for ever.
        if moved > now + GRACE_PERIOD { GRACE_PERIOD } else { now.saturating_sub(moved) }
    }
}

/// Returns whether a move failed because the new directory is on another file system.
fn is_cross_device(why: &io::Error) -> bool {
    Errno::from_io_error(why) == Some(Errno::XDEV)
}

fn open_directory(at: impl AsFd, path: &Path, calls: &DiskCalls) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || rustix::fs::openat(&at, path, flags, Mode::empty());
    match open() {
        Err(Errno::NOENT) => {
            calls.check(DiskCall::CreateDirectory)?;
            match rustix::fs::mkdirat(&at, path, Mode::from_raw_mode(0o700)) {
                Ok(()) | Err(Errno::EXIST) => Ok(open()?),
                Err(why) => Err(why.into()),
            }
        }
        opened => Ok(opened?),
    }
}

fn move_file(directory: &OwnedFd, place: &FileLocation, temp: &str, calls: &DiskCalls) -> io::Result<()> {
    calls.check(DiskCall::Rename)?;
    match rustix::fs::renameat(place.directory(), temp, directory, temp) {
        // Where names cannot be exchanged, the old file is already gone.
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(why) => Err(why.into()),
    }
}

/// Collects the files of a directory. Returns whether the directory exists.
fn collect_files(at: impl AsFd, path: &Path, files: &mut Vec<DisplacedFile>) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(directory) = rustix::fs::openat(at, path, flags, Mode::empty()) else { return false };
    let Ok(entries) = Dir::read_from(&directory) else { return true };
    let directory = Rc::new(directory);
    for entry in entries.flatten() {
        let Some(temp) = entry.file_name().to_str().ok().filter(|name| is_temp_name(name)) else { continue };
        if let Ok(stat) = rustix::fs::statat(&*directory, temp, AtFlags::SYMLINK_NOFOLLOW) {
            files.push(DisplacedFile { temp: temp.to_owned(), stat, directory: directory.clone() });
        }
    }
    true
}
