//! Leases on open files, which detect whether another program has a file open for writing.
//!
//! Linux grants a shared lease on a file only while no program has it open for writing. While a lease is held, a
//! program that opens the file for writing blocks until the lease is released, or for 45 seconds. Hold a lease only for
//! the duration of one read or one rename.
//!
//! An exclusive lease is granted only while no other program has the file open at all, and blocks those that open it to
//! read as well.
//!
//! A program that opens the file with `O_NONBLOCK` does not block: its `open` fails with `EWOULDBLOCK`.

use std::io;
use std::os::fd::BorrowedFd;

/// A lease, released when it is dropped.
#[derive(Debug)]
#[must_use = "a lease that is dropped protects nothing"]
pub struct Lease<'a> {
    file: BorrowedFd<'a>,
}

/// Why a lease was not granted.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// A program has the file open; for a shared lease, only a program that writes counts.
    #[error("a program has the file open")]
    Contended,
    /// The system grants no lease on this file: it belongs to another user, or its file system does not support leases.
    #[error("leases are unavailable: {0}")]
    Unavailable(io::Error),
}

impl<'a> Lease<'a> {
    /// Takes a shared lease, which guarantees that no program has the file open for writing. The file must be open for
    /// reading only.
    ///
    /// # Errors
    /// Returns [`LeaseError::Contended`] if a program has the file open for writing, and [`LeaseError::Unavailable`] if
    /// the system grants no lease.
    pub fn try_shared(file: BorrowedFd<'a>) -> Result<Self, LeaseError> {
        system::set_lease(file, system::SHARED)?;
        Ok(Self { file })
    }

    /// Leaves the release to the closing of the file, which saves a system call.
    pub fn release_on_close(self) {
        std::mem::forget(self);
    }

    /// Takes an exclusive lease, which guarantees that the file is not open elsewhere, not even in this process. The
    /// file may be open for writing.
    ///
    /// # Errors
    /// Returns [`LeaseError::Contended`] if the file is open elsewhere, and [`LeaseError::Unavailable`] if the system
    /// grants no lease.
    pub fn try_exclusive(file: BorrowedFd<'a>) -> Result<Self, LeaseError> {
        system::set_lease(file, system::EXCLUSIVE)?;
        Ok(Self { file })
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        // This cannot fail: the descriptor is open and owns the lease.
        system::set_lease(self.file, system::NONE).ok();
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::io;
    use std::os::fd::{AsRawFd, BorrowedFd};

    use super::LeaseError;

    pub(super) const SHARED: libc::c_int = libc::F_RDLCK;
    pub(super) const EXCLUSIVE: libc::c_int = libc::F_WRLCK;
    pub(super) const NONE: libc::c_int = libc::F_UNLCK;

    /// `F_SETSIG`, which the libc crate does not define for every target.
    const F_SETSIG: libc::c_int = 10;

    pub(super) fn set_lease(file: BorrowedFd<'_>, lease: libc::c_int) -> Result<(), LeaseError> {
        if lease != NONE {
            // When another program opens the file, the kernel signals the lease holder with SIGIO, which terminates the
            // process. SIGURG is ignored by default. Releasing a lease resets this.
            fcntl_retrying(file, F_SETSIG, libc::SIGURG).map_err(LeaseError::Unavailable)?;
        }
        fcntl_retrying(file, libc::F_SETLEASE, lease).map_err(|error| match error.raw_os_error() {
            Some(libc::EAGAIN) => LeaseError::Contended,
            _ => LeaseError::Unavailable(error),
        })
    }

    fn fcntl_retrying(file: BorrowedFd<'_>, command: libc::c_int, argument: libc::c_int) -> io::Result<()> {
        loop {
            // SAFETY: the descriptor is open for as long as it is borrowed, and these commands take an integer.
            if unsafe { libc::fcntl(file.as_raw_fd(), command, argument) } != -1 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::io;
    use std::os::fd::BorrowedFd;

    use super::LeaseError;

    pub(super) const SHARED: i32 = 0;
    pub(super) const NONE: i32 = 1;
    pub(super) const EXCLUSIVE: i32 = 2;

    pub(super) fn set_lease(_: BorrowedFd<'_>, _: i32) -> Result<(), LeaseError> {
        Err(LeaseError::Unavailable(io::ErrorKind::Unsupported.into()))
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs::{File, OpenOptions};
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::fs::OpenOptionsExt;

    use super::{Lease, LeaseError};

    #[test]
    fn a_shared_lease_needs_a_file_that_no_program_writes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let reader = File::open(file.path()).unwrap();
        let lease = Lease::try_shared(reader.as_fd());
        assert!(matches!(lease, Err(LeaseError::Contended)), "the temporary file is open for writing");
        let path = file.into_temp_path();
        let other = File::open(&path).unwrap();
        drop(Lease::try_shared(reader.as_fd()).unwrap());
        drop(other);
    }

    #[test]
    fn an_exclusive_lease_needs_a_file_that_is_open_nowhere_else() {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let writer = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let other = OpenOptions::new().append(true).open(&path).unwrap();
        let lease = Lease::try_exclusive(writer.as_fd());
        assert!(matches!(lease, Err(LeaseError::Contended)), "another writer is there");
        drop(other);
        let lease = Lease::try_exclusive(writer.as_fd()).unwrap();
        let open_other = || OpenOptions::new().append(true).custom_flags(libc::O_NONBLOCK).open(&path);
        assert!(open_other().is_err(), "a lease is held");
        writer.set_len(3).unwrap();
        drop(lease);
        open_other().unwrap().write_all(b"later").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"\0\0\0later");
    }

    /// With the default signal the process would be terminated here.
    #[test]
    fn a_program_that_wants_the_file_waits_for_the_lease() {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let reader = File::open(&path).unwrap();
        for _ in 0..2 {
            let lease = Lease::try_shared(reader.as_fd()).unwrap();
            let (opens, waits) = std::sync::mpsc::sync_channel(1);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let is_refused =
                        OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&path);
                    opens.send(is_refused.is_err()).unwrap();
                    OpenOptions::new().write(true).open(&path).unwrap().write_all(b"later").unwrap();
                });
                assert!(waits.recv().unwrap(), "a lease is held");
                drop(lease);
            });
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"later");
    }
}
