//! Overwriting files in place, if their inode must be kept: they have several hard links, belong to another user, or
//! are held open for writing by a program.
//!
//! Another program cannot be kept from writing at the same moment. Text that it appends ends up after the new text, and
//! the file is read back, so that a difference is detected.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};

use super::{
    ExpectedFile, LateWrite, ReplaceError, Replacement, collect_late_write, is_unchanged, set_mode, sync,
    write_at,
};
use crate::disk::writers::MAX_WAIT;
use crate::roots::FileLocation;
use bowline_storage::disk_calls::{DiskCall, DiskCalls};

/// How long to wait before reopening a file that is being read under a lease.
const OPEN_RETRY_PAUSE: Duration = Duration::from_millis(1);

/// Overwrites a file with new bytes. Text that another program wrote in the meantime stays in the file and is also
/// added to `late`.
pub(crate) fn write_in_place(
    place: &FileLocation,
    old: ExpectedFile<'_>,
    new: Replacement<'_>,
    calls: &DiskCalls,
    late: &mut Vec<LateWrite>,
) -> Result<rustix::fs::Stat, ReplaceError> {
    let file = open_for_writing(place, calls).map_err(ReplaceError::System)?;
    if !is_unchanged(&file, old).map_err(ReplaceError::System)? {
        return Err(ReplaceError::Raced);
    }
    let write = || -> io::Result<()> {
        // The mode is set before the bytes: if that fails, nothing has been touched.
        if let Some(mode) = new.mode.filter(|mode| mode & 0o7777 != old.stat.st_mode & 0o7777) {
            set_mode(&file, mode, calls)?;
        }
        overwrite(&file, old.bytes, new.bytes, calls)
    };
    if let Err(why) = write() {
        let back = || -> io::Result<()> {
            restore_bytes(&file, new.bytes.len() as u64, old.bytes, calls)?;
            if new.mode.is_some() { set_mode(&file, old.stat.st_mode, calls) } else { Ok(()) }
        };
        return Err(match back() {
            Ok(()) => ReplaceError::System(why),
            Err(_) => ReplaceError::Interrupted(why),
        });
    }
    let before = late.len();
    collect_late_write(&file, new.bytes, late).map_err(ReplaceError::Interrupted)?;
    late[before..].iter_mut().for_each(|late| late.is_restored = true);
    rustix::fs::fstat(&file).map_err(|why| ReplaceError::Interrupted(why.into()))
}

pub(super) fn open_for_writing(place: &FileLocation, calls: &DiskCalls) -> io::Result<File> {
    calls.check(DiskCall::OpenInPlace)?;
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let began = Instant::now();
    loop {
        match rustix::fs::openat(place.directory(), place.file_name(), flags, Mode::empty()) {
            // The file is being read under a lease, which is brief.
            Err(Errno::WOULDBLOCK) if began.elapsed() < MAX_WAIT => std::thread::sleep(OPEN_RETRY_PAUSE),
            opened => return Ok(opened?.into()),
        }
    }
}

/// Restores the old bytes of a file after an incomplete write.
fn restore_bytes(file: &File, length: u64, old: &[u8], calls: &DiskCalls) -> io::Result<()> {
    let grown = old.get(length as usize..).unwrap_or_default();
    write_at(file, length, grown, calls)?;
    write_at(file, 0, &old[..old.len() - grown.len()], calls)?;
    calls.check(DiskCall::Truncate)?;
    rustix::fs::ftruncate(file, old.len() as u64)?;
    sync(file, calls)
}

/// Overwrites the old bytes while another program may append to the file: its text ends up after the new text.
fn overwrite(file: &File, old: &[u8], new: &[u8], calls: &DiskCalls) -> io::Result<()> {
    let same = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let grown = new.get(old.len()..).unwrap_or_default();
    // The bytes that extend the file are written first: if the disk is full, nothing else has been touched. They are
    // appended, so that they cannot overwrite what another program appends.
    append(file, grown, calls)?;
    if same == old.len() {
        return sync(file, calls);
    }
    let mut others = read_from(file, old.len() as u64)?;
    if let Some(at) = find_bytes(&others, grown) {
        others.drain(at..at + grown.len());
    }
    let mut rest = new[same..].to_vec();
    rest.extend_from_slice(&others);
    write_at(file, same as u64, &rest, calls)?;
    let mut end = (old.len() + grown.len() + others.len()) as u64;
    let mut wanted = (new.len() + others.len()) as u64;
    while wanted < end {
        let more = read_from(file, end)?;
        if more.is_empty() {
            calls.check(DiskCall::Truncate)?;
            rustix::fs::ftruncate(file, wanted)?;
            break;
        }
        write_at(file, wanted, &more, calls)?;
        wanted += more.len() as u64;
        end += more.len() as u64;
    }
    sync(file, calls)
}

pub(super) fn append(file: &File, mut bytes: &[u8], calls: &DiskCalls) -> io::Result<()> {
    while !bytes.is_empty() {
        let allowed = calls.check_write(bytes.len())?;
        let slices = [io::IoSlice::new(&bytes[..allowed])];
        let written =
            rustix::io::retry_on_intr(|| rustix::io::pwritev2(file, &slices, 0, ReadWriteFlags::APPEND))?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = &bytes[written..];
    }
    Ok(())
}

fn read_from(file: &File, mut offset: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read_at(&mut buffer, offset) {
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) => return Err(why),
            Ok(0) => return Ok(bytes),
            Ok(read) => {
                bytes.extend_from_slice(&buffer[..read]);
                offset += read as u64;
            }
        }
    }
}

fn find_bytes(bytes: &[u8], part: &[u8]) -> Option<usize> {
    if part.is_empty() { None } else { memchr::memmem::find(bytes, part) }
}
