//! Handles for admitted paths: a file to read, a directory to list, a name to write.
//!
//! All are opened by the canonical path, in which a link is an error: a directory that was replaced by a link after the
//! path was resolved is detected here and refused.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use bowline_policy::paths::Access;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::{AdmitError, AdmittedPath, Resolver, Roots, kernel, walk};
use bowline_storage::disk_calls::{DiskCall, DiskCalls};

/// A name in an open directory.
#[derive(Debug)]
pub(crate) struct FileLocation {
    // Shared by the files of a group that lie in the same directory.
    directory: Arc<OwnedFd>,
    file_name: String,
    // Directories that were created for it, outermost first: the parent directory of each, and its name.
    created_directories: Vec<(Arc<OwnedFd>, String)>,
}

pub(super) const READ_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
const DIRECTORY_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A file that cannot be read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpecialFile {
    /// A directory.
    Directory,
    /// A pipe, a socket or a device.
    Other,
}

/// What became of a directory that was to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DirectoryRemoval {
    /// It is gone.
    Done,
    /// It is not empty, did not exist, is no longer a directory at this path, or may not be removed.
    Skipped,
}

impl Roots {
    /// Opens the file at an admitted path for reading, without blocking.
    ///
    /// # Errors
    /// Returns [`AdmitError::NotFound`] if it does not exist, or the system's error.
    pub(crate) fn open_file(
        &self,
        admitted: &AdmittedPath,
    ) -> Result<Result<(File, Stat), SpecialFile>, AdmitError> {
        let file = match self.open_file_only(admitted)? {
            Ok(file) => file,
            Err(special) => return Ok(Err(special)),
        };
        let stat = rustix::fs::fstat(&file);
        let stat =
            stat.map_err(|why| AdmitError::System { path: admitted.requested.clone(), why: why.into() })?;
        Ok(Ok((file, stat)))
    }

    /// Like [`Roots::open_file`], without the file's current metadata.
    pub(crate) fn open_file_only(
        &self,
        admitted: &AdmittedPath,
    ) -> Result<Result<File, SpecialFile>, AdmitError> {
        let Some(found) = admitted.target() else {
            return Err(AdmitError::NotFound(admitted.requested.clone()));
        };
        match found.file_type() {
            FileType::RegularFile => {}
            FileType::Directory => return Ok(Err(SpecialFile::Directory)),
            _ => return Ok(Err(SpecialFile::Other)),
        }
        let system = |why: Errno| AdmitError::System { path: admitted.requested.clone(), why: why.into() };
        let file = match kernel::reopen(found.handle.as_fd(), READ_FLAGS) {
            // Without `/proc` the file is opened by its path, which must lead to the same file.
            Err(Errno::NOENT) => {
                let file = self.open_canonical(admitted, READ_FLAGS).map_err(system)?;
                let stat = rustix::fs::fstat(&file).map_err(system)?;
                if !kernel::is_same_file(&stat, &found.stat) {
                    return Err(AdmitError::KeepsChanging(admitted.requested.clone()));
                }
                file
            }
            opened => opened.map_err(system)?,
        };
        Ok(Ok(file.into()))
    }

    /// Opens an admitted directory.
    pub(crate) fn open_directory(&self, admitted: &AdmittedPath) -> Result<OwnedFd, AdmitError> {
        let Some(found) = admitted.target() else {
            return Err(AdmitError::NotFound(admitted.requested.clone()));
        };
        if found.file_type() != FileType::Directory {
            return Err(AdmitError::NotADirectory(admitted.requested.clone()));
        }
        let directory = self
            .open_canonical(admitted, DIRECTORY_FLAGS)
            .map_err(|why| moved_or_system_error(admitted, why))?;
        let stat = rustix::fs::fstat(&directory).map_err(|why| moved_or_system_error(admitted, why))?;
        if kernel::is_same_file(&stat, &found.stat) {
            Ok(directory)
        } else {
            Err(AdmitError::KeepsChanging(admitted.requested.clone()))
        }
    }

    /// Opens the parent directory of an admitted path, if it exists.
    pub(crate) fn locate(&self, admitted: &AdmittedPath) -> Result<Option<FileLocation>, AdmitError> {
        let (parent, leaf) = self.split_parent(admitted)?;
        match self.open_below(admitted.root, parent, DIRECTORY_FLAGS) {
            Ok(directory) => Ok(Some(FileLocation {
                directory: Arc::new(directory),
                file_name: leaf.to_owned(),
                created_directories: Vec::new(),
            })),
            Err(Errno::NOENT) => Ok(None),
            Err(why) => Err(moved_or_system_error(admitted, why)),
        }
    }

    /// Returns the location of an admitted path, if its parent directory is that of another location.
    pub(crate) fn locate_beside(
        &self,
        admitted: &AdmittedPath,
        (neighbour, place): (&AdmittedPath, &FileLocation),
    ) -> Option<FileLocation> {
        let (parent, leaf) = self.split_parent(admitted).ok()?;
        let is_same = admitted.root == neighbour.root && parent == self.split_parent(neighbour).ok()?.0;
        is_same.then(|| FileLocation {
            directory: place.directory.clone(),
            file_name: leaf.to_owned(),
            created_directories: Vec::new(),
        })
    }

    /// Opens the parent directory of an admitted path, and creates it if necessary.
    pub(crate) fn locate_or_create(
        &self,
        admitted: &AdmittedPath,
        calls: &DiskCalls,
    ) -> Result<FileLocation, AdmitError> {
        if let Some(place) = self.locate(admitted)? {
            return Ok(place);
        }
        let (parent, leaf) = self.split_parent(admitted)?;
        let here = self
            .open_below(admitted.root, "", DIRECTORY_FLAGS)
            .map_err(|why| moved_or_system_error(admitted, why))?;
        let mut place = FileLocation {
            directory: Arc::new(here),
            file_name: leaf.to_owned(),
            created_directories: Vec::new(),
        };
        for name in parent.split('/') {
            if let Err(why) = place.enter_or_create(name, calls) {
                place.remove_created(calls);
                return Err(match Errno::from_io_error(&why) {
                    Some(error) => moved_or_system_error(admitted, error),
                    None => AdmitError::System { path: admitted.requested.clone(), why },
                });
            }
        }
        Ok(place)
    }

    /// Returns whether the parent path of an admitted path still leads to the directory of a location.
    pub(crate) fn is_current_location(&self, admitted: &AdmittedPath, place: &FileLocation) -> bool {
        let Ok((parent, _)) = self.split_parent(admitted) else { return false };
        let there =
            self.open_below(admitted.root, parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC);
        let there = there.and_then(rustix::fs::fstat);
        let here = rustix::fs::fstat(&place.directory);
        matches!((here, there), (Ok(here), Ok(there)) if kernel::is_same_file(&here, &there))
    }

    /// Returns the handle of the root that contains an admitted path.
    pub(crate) fn root_handle(&self, admitted: &AdmittedPath) -> BorrowedFd<'_> {
        self.open_roots[admitted.root].directory.as_fd()
    }

    /// Creates a directory in an existing one, durably. Its mode is limited by the user's umask.
    ///
    /// # Errors
    /// Returns the system's error: [`io::ErrorKind::AlreadyExists`] if something exists there. After any other error
    /// the directory may exist.
    pub(crate) fn create_directory(
        &self,
        admitted: &AdmittedPath,
        mode: u32,
        calls: &DiskCalls,
    ) -> io::Result<()> {
        let place = self.locate(admitted).map_err(io::Error::other)?.ok_or(io::ErrorKind::NotFound)?;
        calls.check(DiskCall::CreateDirectory)?;
        rustix::fs::mkdirat(place.directory(), place.file_name(), Mode::from_raw_mode(mode & 0o777))?;
        calls.check(DiskCall::SyncDirectory)?;
        Ok(rustix::fs::fsync(place.directory())?)
    }

    /// Removes a directory by its canonical path, if it is empty. Returns whether it was removed.
    pub(crate) fn remove_empty_directory(&self, path: &str, calls: &DiskCalls) -> bool {
        matches!(self.try_remove_directory(path, calls), Ok(DirectoryRemoval::Done))
    }

    /// Removes a directory by its canonical path, if it is empty.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(crate) fn try_remove_directory(&self, path: &str, calls: &DiskCalls) -> io::Result<DirectoryRemoval> {
        // A path that leads elsewhere by now is not the directory.
        let Ok(admitted) = self.admit(path, Access::Write) else { return Ok(DirectoryRemoval::Skipped) };
        let Ok(Some(place)) = self.locate(&admitted) else { return Ok(DirectoryRemoval::Skipped) };
        if admitted.canonical() != path || !place.is_directory() {
            return Ok(DirectoryRemoval::Skipped);
        }
        calls.check(DiskCall::Remove)?;
        match rustix::fs::unlinkat(place.directory(), place.file_name(), AtFlags::REMOVEDIR) {
            Ok(()) => Ok(DirectoryRemoval::Done),
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR | Errno::NOENT) => {
                Ok(DirectoryRemoval::Skipped)
            }
            // Trying again would not help.
            Err(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::BUSY) => Ok(DirectoryRemoval::Skipped),
            Err(why) => Err(why.into()),
        }
    }

    fn split_parent<'a>(&self, admitted: &'a AdmittedPath) -> Result<(&'a str, &'a str), AdmitError> {
        let below =
            admitted.canonical.strip_root(&self.open_roots[admitted.root].canonical).unwrap_or_default();
        let (parent, leaf) = below.rsplit_once('/').unwrap_or(("", below));
        // The root itself is a directory, never a file to write.
        if leaf.is_empty() {
            Err(AdmitError::NotADirectory(admitted.requested.clone()))
        } else {
            Ok((parent, leaf))
        }
    }

    fn open_canonical(&self, admitted: &AdmittedPath, flags: OFlags) -> Result<OwnedFd, Errno> {
        let root = &self.open_roots[admitted.root];
        self.open_below(
            admitted.root,
            admitted.canonical.strip_root(&root.canonical).unwrap_or_default(),
            flags,
        )
    }

    fn open_below(&self, root: usize, rest: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let directory = &self.open_roots[root].directory;
        match self.resolver {
            Resolver::Kernel => kernel::open_without_links(directory.as_fd(), rest, flags),
            Resolver::Walk => walk::open_without_links(directory, rest, flags),
        }
    }
}

/// Converts an error of opening a canonical path. A link or a file where a directory was means that the path changed.
fn moved_or_system_error(admitted: &AdmittedPath, why: Errno) -> AdmitError {
    match why {
        Errno::LOOP | Errno::XDEV | Errno::NOTDIR | Errno::AGAIN => {
            AdmitError::KeepsChanging(admitted.requested.clone())
        }
        why => AdmitError::System { path: admitted.requested.clone(), why: why.into() },
    }
}

impl FileLocation {
    pub(crate) fn directory(&self) -> &OwnedFd {
        &self.directory
    }

    pub(crate) fn file_name(&self) -> &str {
        &self.file_name
    }

    /// Returns whether the name still leads to the same file as in an earlier `stat`, unchanged since.
    pub(crate) fn is_unchanged_since(&self, earlier: &Stat) -> bool {
        let key = |stat: &Stat| {
            let times = (stat.st_mtime, stat.st_mtime_nsec, stat.st_ctime, stat.st_ctime_nsec);
            (stat.st_dev, stat.st_ino, stat.st_size, times)
        };
        rustix::fs::statat(&self.directory, &*self.file_name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|now| key(&now) == key(earlier))
    }

    /// Returns whether the name is that of a directory.
    pub(crate) fn is_directory(&self) -> bool {
        rustix::fs::statat(&self.directory, &*self.file_name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
    }

    /// Opens a file in the directory for reading, without following a link.
    pub(crate) fn open(&self, name: &str) -> Result<File, Errno> {
        let flags = READ_FLAGS | OFlags::NOFOLLOW;
        rustix::io::retry_on_intr(|| rustix::fs::openat(&self.directory, name, flags, Mode::empty()))
            .map(File::from)
    }

    /// Returns whether both are in the same open directory.
    pub(crate) fn shares_directory(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.directory, &other.directory)
    }

    /// Returns how many directories were created for it.
    pub(crate) fn created_count(&self) -> usize {
        self.created_directories.len()
    }

    /// Removes the directories that were created for this location, as far as they are empty.
    fn remove_created(&mut self, calls: &DiskCalls) {
        while let Some((parent, name)) = self.created_directories.pop() {
            // A directory that is in use by now stays, and so do its parents.
            let removed = calls.check(DiskCall::Remove).is_ok()
                && rustix::fs::unlinkat(&parent, &*name, AtFlags::REMOVEDIR).is_ok();
            if !removed {
                self.created_directories.clear();
            }
        }
    }

    fn enter_or_create(&mut self, name: &str, calls: &DiskCalls) -> io::Result<()> {
        let open = |directory: &OwnedFd| {
            rustix::fs::openat(directory, name, DIRECTORY_FLAGS | OFlags::NOFOLLOW, Mode::empty())
        };
        let child = match open(&self.directory) {
            Err(Errno::NOENT) => {
                calls.check(DiskCall::CreateDirectory)?;
                match rustix::fs::mkdirat(&self.directory, name, Mode::from_raw_mode(0o777)) {
                    Ok(()) => {
                        self.created_directories.push((self.directory.clone(), name.to_owned()));
                        calls.check(DiskCall::SyncDirectory)?;
                        rustix::fs::fsync(&self.directory)?;
                    }
                    // Another process created it first.
                    Err(Errno::EXIST) => {}
                    Err(why) => return Err(why.into()),
                }
                open(&self.directory)?
            }
            opened => opened?,
        };
        self.directory = Arc::new(child);
        Ok(())
    }
}
