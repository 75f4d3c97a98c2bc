//! Handles to work with once a path is admitted: a file to read, a directory to list, a name to write.
//!
//! All of them are opened by the canonical name, in which a link is an error: what was a directory when the path was
//! resolved and is a link now is found here and refused.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bowline_state::paths::Access;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::{Admitted, Denied, Resolver, Roots, kernel, walk};
use crate::calls::{Call, Calls};

/// A name in an open directory.
#[derive(Debug)]
pub(crate) struct Place {
    directory: OwnedFd,
    leaf: String,
    // Directories that were created on the way, outermost first: the directory each is in, and its name.
    created: Vec<(OwnedFd, String)>,
}

pub(super) const READ: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// What is not a file that can be read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Special {
    /// A directory.
    Directory,
    /// A pipe, a socket, a device.
    Other,
}

impl Roots {
    /// Opens what an admitted path led to, to be read. Nothing is waited for.
    ///
    /// # Errors
    /// Returns [`Denied::NotFound`] if there is nothing, or what the system says.
    pub(crate) fn open_file(&self, admitted: &Admitted) -> Result<Result<(File, Stat), Special>, Denied> {
        let Some(found) = admitted.found() else { return Err(Denied::NotFound(admitted.asked.clone())) };
        match found.kind() {
            FileType::RegularFile => {}
            FileType::Directory => return Ok(Err(Special::Directory)),
            _ => return Ok(Err(Special::Other)),
        }
        let system = |why: Errno| Denied::System { path: admitted.asked.clone(), why: why.into() };
        let anew = rustix::io::retry_on_intr(|| {
            rustix::fs::open(kernel::in_proc(found.handle.as_fd()), READ, Mode::empty())
        });
        let file = match anew {
            // Without `/proc` the name has to do, and lead to the same file.
            Err(Errno::NOENT) => {
                let file = self.open_canonical(admitted, READ).map_err(system)?;
                let stat = rustix::fs::fstat(&file).map_err(system)?;
                if !kernel::same(&stat, &found.stat) {
                    return Err(Denied::Unsteady(admitted.asked.clone()));
                }
                file
            }
            opened => opened.map_err(system)?,
        };
        let stat = rustix::fs::fstat(&file).map_err(system)?;
        Ok(Ok((file.into(), stat)))
    }

    /// Opens an admitted directory.
    pub(crate) fn open_directory(&self, admitted: &Admitted) -> Result<OwnedFd, Denied> {
        let Some(found) = admitted.found() else { return Err(Denied::NotFound(admitted.asked.clone())) };
        if found.kind() != FileType::Directory {
            return Err(Denied::NotADirectory(admitted.asked.clone()));
        }
        let directory = self.open_canonical(admitted, DIRECTORY).map_err(|why| moved_or(admitted, why))?;
        let stat = rustix::fs::fstat(&directory).map_err(|why| moved_or(admitted, why))?;
        if kernel::same(&stat, &found.stat) {
            Ok(directory)
        } else {
            Err(Denied::Unsteady(admitted.asked.clone()))
        }
    }

    /// Opens the directory that an admitted path is in, if it exists.
    pub(crate) fn place(&self, admitted: &Admitted) -> Result<Option<Place>, Denied> {
        let (parent, leaf) = self.split(admitted)?;
        match self.open_below(admitted.root, parent, DIRECTORY) {
            Ok(directory) => Ok(Some(Place { directory, leaf: leaf.to_owned(), created: Vec::new() })),
            Err(Errno::NOENT) => Ok(None),
            Err(why) => Err(moved_or(admitted, why)),
        }
    }

    /// Opens the directory that an admitted path is in, and creates what is missing of it.
    pub(crate) fn create_place(&self, admitted: &Admitted, calls: &Calls) -> Result<Place, Denied> {
        if let Some(place) = self.place(admitted)? {
            return Ok(place);
        }
        let (parent, leaf) = self.split(admitted)?;
        let here = self.open_below(admitted.root, "", DIRECTORY).map_err(|why| moved_or(admitted, why))?;
        let mut place = Place { directory: here, leaf: leaf.to_owned(), created: Vec::new() };
        for name in parent.split('/') {
            if let Err(why) = place.descend(name, calls) {
                place.remove_created(calls);
                return Err(match Errno::from_io_error(&why) {
                    Some(error) => moved_or(admitted, error),
                    None => Denied::System { path: admitted.asked.clone(), why },
                });
            }
        }
        Ok(place)
    }

    /// Says whether the name that an admitted path is in still leads to the directory of a place.
    pub(crate) fn leads_to(&self, admitted: &Admitted, place: &Place) -> bool {
        let Ok((parent, _)) = self.split(admitted) else { return false };
        let there =
            self.open_below(admitted.root, parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC);
        let there = there.and_then(rustix::fs::fstat);
        let here = rustix::fs::fstat(&place.directory);
        matches!((here, there), (Ok(here), Ok(there)) if kernel::same(&here, &there))
    }

    /// Returns the handle of the root that an admitted path is in.
    pub(crate) fn root_of(&self, admitted: &Admitted) -> BorrowedFd<'_> {
        self.open[admitted.root].directory.as_fd()
    }

    /// Removes a directory by its own name, if it is empty. Says whether it did.
    pub(crate) fn remove_empty(&self, path: &str, calls: &Calls) -> bool {
        let Ok(admitted) = self.admit(path, Access::Write) else { return false };
        if admitted.canonical() == path
            && let Ok(Some(place)) = self.place(&admitted)
        {
            return calls.pass(Call::Remove).is_ok()
                && rustix::fs::unlinkat(place.directory(), place.leaf(), AtFlags::REMOVEDIR).is_ok();
        }
        false
    }

    fn split<'a>(&self, admitted: &'a Admitted) -> Result<(&'a str, &'a str), Denied> {
        let below = admitted.canonical.below(&self.open[admitted.root].canonical).unwrap_or_default();
        let (parent, leaf) = below.rsplit_once('/').unwrap_or(("", below));
        // The root itself is a directory, never a file to be written.
        if leaf.is_empty() { Err(Denied::NotADirectory(admitted.asked.clone())) } else { Ok((parent, leaf)) }
    }

    fn open_canonical(&self, admitted: &Admitted, flags: OFlags) -> Result<OwnedFd, Errno> {
        let root = &self.open[admitted.root];
        self.open_below(admitted.root, admitted.canonical.below(&root.canonical).unwrap_or_default(), flags)
    }

    fn open_below(&self, root: usize, rest: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let directory = &self.open[root].directory;
        match self.resolver {
            Resolver::Kernel => kernel::open_without_links(directory.as_fd(), rest, flags),
            Resolver::Walk => walk::open_without_links(directory, rest, flags),
        }
    }
}

/// A link, or a file, where a directory was: the path leads elsewhere by now.
fn moved_or(admitted: &Admitted, why: Errno) -> Denied {
    match why {
        Errno::LOOP | Errno::XDEV | Errno::NOTDIR | Errno::AGAIN => Denied::Unsteady(admitted.asked.clone()),
        why => Denied::System { path: admitted.asked.clone(), why: why.into() },
    }
}

impl Place {
    /// Returns the directory.
    pub(crate) fn directory(&self) -> &OwnedFd {
        &self.directory
    }

    /// Returns the name in it.
    pub(crate) fn leaf(&self) -> &str {
        &self.leaf
    }

    /// Says whether the name leads to the same file as at an earlier look, and that file has not been touched since.
    pub(crate) fn is_as_it_was(&self, earlier: &Stat) -> bool {
        let key = |stat: &Stat| {
            let times = (stat.st_mtime, stat.st_mtime_nsec, stat.st_ctime, stat.st_ctime_nsec);
            (stat.st_dev, stat.st_ino, stat.st_size, times)
        };
        rustix::fs::statat(&self.directory, &*self.leaf, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|now| key(&now) == key(earlier))
    }

    /// Says whether the name is that of a directory.
    pub(crate) fn is_directory(&self) -> bool {
        rustix::fs::statat(&self.directory, &*self.leaf, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
    }

    /// Opens what the name is, to be read; never a link.
    pub(crate) fn open(&self, name: &str) -> Result<File, Errno> {
        let flags = READ | OFlags::NOFOLLOW;
        rustix::io::retry_on_intr(|| rustix::fs::openat(&self.directory, name, flags, Mode::empty()))
            .map(File::from)
    }

    /// Returns how many directories were created for it.
    pub(crate) fn created(&self) -> usize {
        self.created.len()
    }

    /// Removes the directories that were created for this place, as far as they are empty.
    fn remove_created(&mut self, calls: &Calls) {
        while let Some((parent, name)) = self.created.pop() {
            // One that somebody put something into meanwhile stays, and so do those around it.
            let removed = calls.pass(Call::Remove).is_ok()
                && rustix::fs::unlinkat(&parent, &*name, AtFlags::REMOVEDIR).is_ok();
            if !removed {
                self.created.clear();
            }
        }
    }

    fn descend(&mut self, name: &str, calls: &Calls) -> std::io::Result<()> {
        let open = |directory: &OwnedFd| {
            rustix::fs::openat(directory, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())
        };
        let child = match open(&self.directory) {
            Err(Errno::NOENT) => {
                calls.pass(Call::CreateDirectory)?;
                match rustix::fs::mkdirat(&self.directory, name, Mode::from_raw_mode(0o777)) {
                    Ok(()) => {
                        self.created.push((self.directory.try_clone()?, name.to_owned()));
                        calls.pass(Call::SyncDirectory)?;
                        rustix::fs::fsync(&self.directory)?;
                    }
                    // Somebody else was quicker.
                    Err(Errno::EXIST) => {}
                    Err(why) => return Err(why.into()),
                }
                open(&self.directory)?
            }
            opened => opened?,
        };
        self.directory = child;
        Ok(())
    }
}
