//! Growing and shrinking a file at its end, in place: the cost is that of the bytes added or removed.
//!
//! Bytes are appended, so that they never overwrite what another program appends at the same moment. Bytes are removed
//! only under an exclusive lease, which keeps other programs from opening the file until they are gone. A file that
//! another program has open is not cut. Where the system grants no leases, a comparison right before has to suffice.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use file_lease::{Lease, LeaseError};
use rustix::fs::{FileType, Stat};

use super::write_in_place::{append, open_for_writing};
use super::{ReplaceError, sync};
use crate::disk::{file_version, read_part};
use crate::roots::FileLocation;
use bowline_storage::disk_calls::{DiskCall, DiskCalls};

/// How long to wait for programs that have the file open: many only read it at this moment, as a scan does.
const MAX_WAIT_FOR_OTHERS: Duration = Duration::from_millis(500);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(5);

/// What happens to the bytes at the end of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TailEdit {
    /// They are added.
    Append,
    /// They are removed.
    Cut,
}

impl TailEdit {
    /// Returns the edit that takes this one back.
    pub(crate) fn inverse(self) -> Self {
        match self {
            Self::Append => Self::Cut,
            Self::Cut => Self::Append,
        }
    }
}

/// Adds bytes to the end of a file or removes them from there, if the file is still as in `old`. Returns its new state.
pub(crate) fn write_tail(
    place: &FileLocation,
    old: &Stat,
    (edit, bytes): (TailEdit, &[u8]),
    calls: &DiskCalls,
) -> Result<Stat, ReplaceError> {
    let file = open_for_writing(place, calls).map_err(ReplaceError::System)?;
    let now = rustix::fs::fstat(&file).map_err(|why| ReplaceError::System(why.into()))?;
    let is_same = file_version(&now) == file_version(old)
        && FileType::from_raw_mode(now.st_mode) == FileType::RegularFile;
    if !is_same {
        return Err(ReplaceError::Raced);
    }
    match edit {
        TailEdit::Append => append_bytes(&file, old.st_size as u64, bytes, calls)?,
        TailEdit::Cut => cut_bytes(&file, old.st_size as u64, bytes, calls)?,
    }
    rustix::fs::fstat(&file).map_err(|why| ReplaceError::Interrupted(why.into()))
}

/// Returns whether no other program has a file open, as far as the system tells, so that bytes can be removed.
pub(crate) fn can_cut(place: &FileLocation) -> io::Result<bool> {
    // Nothing is written.
    let file = open_for_writing(place, &DiskCalls::default())?;
    Ok(lock_out_others(&file).is_ok())
}

/// Appends the bytes that are missing after the first ones, if these are still all that follows an offset.
pub(crate) fn complete_tail(
    place: &FileLocation,
    (offset, found): (u64, &[u8]),
    missing: &[u8],
    calls: &DiskCalls,
) -> io::Result<()> {
    let file = open_for_writing(place, calls)?;
    if read_part(&file, offset, found.len() + 1)? != found {
        return Err(io::Error::other("another program wrote to the file"));
    }
    append(&file, missing, calls)?;
    sync(&file, calls)
}

fn append_bytes(file: &File, size: u64, bytes: &[u8], calls: &DiskCalls) -> Result<(), ReplaceError> {
    let Err(why) = append(file, bytes, calls).and_then(|()| sync(file, calls)) else { return Ok(()) };
    let take_back = || -> io::Result<()> {
        let _lease = lock_out_others(file).map_err(io::Error::other)?;
        let found = read_part(file, size, bytes.len() + 1)?;
        if !bytes.starts_with(&found) {
            return Err(io::Error::other("another program wrote to the file"));
        }
        cut_to(file, size, calls)
    };
    Err(match take_back() {
        Ok(()) => ReplaceError::System(why),
        Err(_) => ReplaceError::Interrupted(why),
    })
}

fn cut_bytes(file: &File, size: u64, bytes: &[u8], calls: &DiskCalls) -> Result<(), ReplaceError> {
    let start = size.checked_sub(bytes.len() as u64).ok_or(ReplaceError::Raced)?;
    let _lease = lock_out_others(file)?;
    if read_part(file, start, bytes.len() + 1).map_err(ReplaceError::System)? != bytes {
        return Err(ReplaceError::Raced);
    }
    let Err(why) = cut_to(file, start, calls) else { return Ok(()) };
    let put_back = || -> io::Result<()> {
        // The cut may have failed altogether.
        if read_part(file, start, bytes.len())? != bytes {
            append(file, bytes, calls)?;
        }
        sync(file, calls)
    };
    Err(match put_back() {
        Ok(()) => ReplaceError::System(why),
        Err(_) => ReplaceError::Interrupted(why),
    })
}

fn lock_out_others(file: &File) -> Result<Option<Lease<'_>>, ReplaceError> {
    let deadline = Instant::now() + MAX_WAIT_FOR_OTHERS;
    loop {
        match Lease::try_exclusive(file.as_fd()) {
            Ok(lease) => return Ok(Some(lease)),
            Err(LeaseError::Contended) if Instant::now() < deadline => std::thread::sleep(PAUSE),
            Err(LeaseError::Contended) => return Err(ReplaceError::Raced),
            Err(LeaseError::Unavailable(_)) => return Ok(None),
        }
    }
}

fn cut_to(file: &File, length: u64, calls: &DiskCalls) -> io::Result<()> {
    calls.check(DiskCall::Truncate)?;
    rustix::fs::ftruncate(file, length)?;
    sync(file, calls)
}
