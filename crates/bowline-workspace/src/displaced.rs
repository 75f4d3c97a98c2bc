//! Files that lost their place to a new one, kept until no program can be writing to them any more.
//!
//! A program that saves a file looks up its name and then opens what it found. If the file is replaced in between, or
//! while a lease makes the program wait, it writes to the old file. So an old file is not removed at once: it moves to a
//! private directory and stays there for [`GRACE`]. What arrives in it meanwhile is merged into the file that has its
//! place.
//!
//! The directory is the only record of what waits there, so that nothing is forgotten when the process dies. Whether
//! something arrived can be told from the file's time of modification, which is set to [`UNTOUCHED`] when it moves in:
//! every write sets another one.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, Stat, Timespec, Timestamps};
use rustix::io::Errno;

use crate::calls::{Call, Calls};
use crate::journal::is_secret;
use crate::replace::is_temp_name;
use crate::roots::Place;

/// For so long a displaced file is kept. It has to be longer than a program takes from looking up a name to opening the
/// file, on a machine under load.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// If the displaced files are larger in all, those that are [`SHORT_GRACE`] old may go.
const MAX_BYTES: u64 = 256 << 20;
const SHORT_GRACE: Duration = Duration::from_millis(100);

/// The name of the directory: beside the journal, or in the root that the file is in if that is on another file system or
/// the file is a secret.
const DIRECTORY: &str = "displaced";
const DIRECTORY_IN_ROOT: &str = ".bowline-displaced";

/// The time of modification of a displaced file that nothing was written to: a nanosecond after 1970 began.
const UNTOUCHED: Timespec = Timespec { tv_sec: 0, tv_nsec: 1 };

/// Where displaced files go: beside the journal, or to the root of their workspace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DisplacedFiles<'a> {
    journal: &'a Path,
    root: BorrowedFd<'a>,
    // The file is a secret, which never leaves the project.
    is_secret: bool,
}

/// A displaced file.
#[derive(Debug)]
pub(crate) struct DisplacedFile {
    /// The temporary name that it was replaced under, which the journal knows.
    pub(crate) temp: String,
    pub(crate) stat: Stat,
    directory: Rc<OwnedFd>,
}

impl<'a> DisplacedFiles<'a> {
    /// Returns where a file goes, given the directory of the workspace's journal and the root that the file is in.
    pub(crate) fn new(journal: &'a Path, root: BorrowedFd<'a>, path: &str) -> Self {
        Self { journal, root, is_secret: is_secret(path) }
    }

    /// Moves a file that has a temporary name out of the way. One that is on a file system of its own is removed.
    pub(crate) fn take_in(self, place: &Place, temp: &str, calls: &Calls) -> io::Result<()> {
        let take = |directory: io::Result<OwnedFd>| move_to(&directory?, place, temp, calls);
        if !self.is_secret {
            match take(open_directory(CWD, &self.journal.join(DIRECTORY), calls)) {
                Err(why) if is_elsewhere(&why) => {}
                taken => return taken,
            }
        }
        match take(open_directory(self.root, Path::new(DIRECTORY_IN_ROOT), calls)) {
            Err(why) if is_elsewhere(&why) => crate::replace::remove(place, temp, calls),
            taken => taken,
        }
    }
}

/// Returns the displaced files of a workspace, and removes directories in its roots that have none.
pub(crate) fn list<'a>(journal: &Path, roots: impl Iterator<Item = BorrowedFd<'a>>) -> Vec<DisplacedFile> {
    let mut files = Vec::new();
    collect(CWD, &journal.join(DIRECTORY), &mut files);
    for root in roots {
        let before = files.len();
        let is_there = collect(root, Path::new(DIRECTORY_IN_ROOT), &mut files);
        if is_there && files.len() == before {
            // Another process may put a file in at this moment: then it is not empty, and stays.
            rustix::fs::unlinkat(root, DIRECTORY_IN_ROOT, AtFlags::REMOVEDIR).ok();
        }
    }
    files
}

/// Marks a file as one that nothing was written to since.
pub(crate) fn mark_untouched(file: &File) {
    let times = Timestamps { last_access: UNTOUCHED, last_modification: UNTOUCHED };
    // Without the mark its text is compared with the journal's.
    rustix::fs::futimens(file, &times).ok();
}

/// Says whether nothing was written to a file since it was marked.
pub(crate) fn is_untouched(stat: &Stat) -> bool {
    (stat.st_mtime, stat.st_mtime_nsec.cast_signed()) == (UNTOUCHED.tv_sec, UNTOUCHED.tv_nsec)
}

/// Returns which of the displaced files need a look: those that were written to, and those whose time is up.
pub(crate) fn due(mut files: Vec<DisplacedFile>, now: SystemTime) -> Vec<DisplacedFile> {
    let mut bytes: u64 = files.iter().map(|file| file.stat.st_size.max(0).cast_unsigned()).sum();
    files.sort_by_key(|file| (file.stat.st_ctime, file.stat.st_ctime_nsec));
    files.retain(|file| {
        let grace = if bytes > MAX_BYTES { SHORT_GRACE } else { GRACE };
        let is_due = !is_untouched(&file.stat) || file.age(now) >= grace;
        if is_due {
            bytes = bytes.saturating_sub(file.stat.st_size.max(0).cast_unsigned());
        }
        is_due
    });
    files
}

impl DisplacedFile {
    /// Opens it, if it is still there.
    pub(crate) fn open(&self) -> Option<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::openat(&*self.directory, &*self.temp, flags, Mode::empty()).ok().map(File::from)
    }

    /// Removes it.
    pub(crate) fn remove(&self) {
        // What stays is found at the next look.
        rustix::fs::unlinkat(&*self.directory, &*self.temp, AtFlags::empty()).ok();
    }

    fn age(&self, now: SystemTime) -> Duration {
        let moved = Duration::new(self.stat.st_ctime.max(0).cast_unsigned(), self.stat.st_ctime_nsec as u32);
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        // A clock that was set back would keep it for ever.
        if moved > now + GRACE { GRACE } else { now.saturating_sub(moved) }
    }
}

/// Says whether a file could not be moved because its new directory is on another file system.
fn is_elsewhere(why: &io::Error) -> bool {
    Errno::from_io_error(why) == Some(Errno::XDEV)
}

fn open_directory(at: impl AsFd, path: &Path, calls: &Calls) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || rustix::fs::openat(&at, path, flags, Mode::empty());
    match open() {
        Err(Errno::NOENT) => {
            calls.pass(Call::CreateDirectory)?;
            match rustix::fs::mkdirat(&at, path, Mode::from_raw_mode(0o700)) {
                Ok(()) | Err(Errno::EXIST) => Ok(open()?),
                Err(why) => Err(why.into()),
            }
        }
        opened => Ok(opened?),
    }
}

fn move_to(directory: &OwnedFd, place: &Place, temp: &str, calls: &Calls) -> io::Result<()> {
    calls.pass(Call::Rename)?;
    match rustix::fs::renameat(place.directory(), temp, directory, temp) {
        // Where names cannot be exchanged the old file is gone already.
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(why) => Err(why.into()),
    }
}

/// Says whether there is such a directory.
fn collect(at: impl AsFd, path: &Path, files: &mut Vec<DisplacedFile>) -> bool {
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
