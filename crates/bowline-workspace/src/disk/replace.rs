//! Replacing the bytes of a file: atomically, durably, and with all of its metadata kept.
//!
//! The new bytes are written to a temporary file in the same directory, which is then *exchanged* with the old file.
//! The old file can thus still be inspected: if it is not the text that the write was decided on, the files are
//! exchanged back and nothing has happened. A plain rename would have discarded that text.
//!
//! A file that another program has open for writing is not replaced: a lease detects that ([`crate::disk::writers`]), and
//! keeps others from opening it until the new file is in place. A program that then opens the old file writes to one
//! that was just replaced. Such a text is a [`LateWrite`], which the caller merges into the file. The old file is kept
//! for a while ([`crate::disk::displaced_files`]) for writes that arrive even later.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use file_lease::{Lease, LeaseError};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use crate::disk::displaced_files::{self, DisplacedDir};
use crate::disk::writers::{self, WaitPurpose, WriterState};
use crate::roots::{FileLocation, is_same_file};
use bowline_storage::disk_calls::{DiskCall, DiskCalls};

mod metadata;
pub(crate) mod tail;
mod write_in_place;

use metadata::copy_metadata;
pub(crate) use write_in_place::write_in_place;

/// How many bytes are written at a time.
const WRITE_CHUNK_BYTES: usize = 1 << 20;

/// How many bytes are compared at a time: few enough to stay in the CPU cache after being read.
const COMPARE_CHUNK_BYTES: usize = 64 << 10;

/// How much of a late text is read.
const MAX_LATE_BYTES: u64 = 64 << 20;

/// The file that the write was decided on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExpectedFile<'a> {
    pub(crate) stat: &'a Stat,
    pub(crate) bytes: &'a [u8],
}

/// The intended state of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Replacement<'a> {
    pub(crate) bytes: &'a [u8],
    // `None` keeps the mode of the old file or, for a new one, applies the user's umask.
    pub(crate) mode: Option<u32>,
}

/// Why a file was not replaced.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplaceError {
    /// The file changed after the write was decided. Nothing was done.
    #[error("another program changed the file at the same moment")]
    Raced,
    /// Owner, attributes or access list cannot be transferred to a new file. Nothing was done.
    #[error("the file's owner or attributes cannot be kept: {0}")]
    Metadata(io::Error),
    /// A system call failed. Nothing was done.
    #[error(transparent)]
    System(io::Error),
    /// A system call failed, and so did the rollback. The journal has both texts, and recovery uses them when it is
    /// next opened.
    #[error(transparent)]
    Interrupted(io::Error),
}

/// A text that another program wrote to a file just as it was replaced.
#[derive(Debug)]
pub(crate) struct LateWrite {
    /// The file's content before that.
    pub(crate) base: Vec<u8>,
    /// The late content.
    pub(crate) bytes: Vec<u8>,
    /// Whether the old file is back in place. A program that read the new file in between may overwrite the old one
    /// with its edit of the new one.
    pub(crate) is_restored: bool,
}

/// Returns an unguessable name for a temporary file.
pub(crate) fn temp_name() -> io::Result<String> {
    let mut bytes = [0; 16];
    let length = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())?;
    if length != bytes.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(format!(".bowline-{:032x}.tmp", u128::from_ne_bytes(bytes)))
}

/// Returns whether a name was made by [`temp_name`].
pub(crate) fn is_temp_name(name: &str) -> bool {
    name.strip_prefix(".bowline-")
        .and_then(|rest| rest.strip_suffix(".tmp"))
        .is_some_and(|id| id.len() == 32 && id.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

/// Writes a new file beside the one that it will replace. Its bytes are not durable yet.
pub(crate) fn write_replacement(
    place: &FileLocation,
    old: Option<ExpectedFile<'_>>,
    new: Replacement<'_>,
    temp: &str,
    calls: &DiskCalls,
) -> Result<File, ReplaceError> {
    write_temp(place, old, new, temp, calls).map_err(|failed| discard_temp(place, temp, calls, failed))
}

/// Starts writing a file's bytes to the disk. If this is done for many files before waiting for the first, all of them
/// take little longer than one.
pub(crate) fn begin_sync(file: &File) {
    // `DontNeed` makes the kernel start writing now. It is only advice: a system that ignores it takes longer.
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).ok();
}

/// Puts a new file in place. The old one, if there is one, gets the temporary name.
pub(crate) fn install(
    place: &FileLocation,
    old: Option<ExpectedFile<'_>>,
    new: (&File, &[u8]),
    temp: &str,
    calls: &DiskCalls,
    late: &mut Vec<LateWrite>,
) -> Result<Stat, ReplaceError> {
    let placed = match old {
        Some(old) => exchange_files(place, old, new, temp, calls, late),
        None => install_new(place, temp, calls),
    };
    placed.map_err(|failed| discard_temp(place, temp, calls, failed))?;
    rustix::fs::fstat(new.0).map_err(|why| ReplaceError::Interrupted(why.into()))
}

/// Renames a file to the temporary name, until it is removed or renamed back.
pub(crate) fn move_aside(
    place: &FileLocation,
    old: ExpectedFile<'_>,
    temp: &str,
    calls: &DiskCalls,
) -> Result<(), ReplaceError> {
    match rename_no_replace(place, place.file_name(), temp, calls) {
        Ok(()) => {}
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Err(ReplaceError::Raced),
        Err(why) => return Err(ReplaceError::System(why)),
    }
    let failed = match is_unchanged_aside(place, old, temp) {
        Ok(true) => return Ok(()),
        Ok(false) => ReplaceError::Raced,
        Err(why) => ReplaceError::System(why),
    };
    match rename_no_replace(place, temp, place.file_name(), calls) {
        Ok(()) => Err(failed),
        Err(why) => Err(ReplaceError::Interrupted(why)),
    }
}

/// Returns whether a file that was moved aside is unchanged. A program that opened it earlier may write to it until it
/// is removed.
pub(crate) fn is_unchanged_aside(
    place: &FileLocation,
    old: ExpectedFile<'_>,
    temp: &str,
) -> io::Result<bool> {
    place.open(temp).map_err(io::Error::from).and_then(|file| is_unchanged(&file, old))
}

/// Exchanges the file under a temporary name with the new one at its path, and displaces the new one.
pub(crate) fn exchange_back(
    place: &FileLocation,
    temp: &str,
    displaced: DisplacedDir<'_>,
    calls: &DiskCalls,
) -> io::Result<()> {
    calls.check(DiskCall::Exchange)?;
    rustix::fs::renameat_with(
        place.directory(),
        temp,
        place.directory(),
        place.file_name(),
        RenameFlags::EXCHANGE,
    )?;
    displaced.move_in(place, temp, calls)?;
    sync_directory(place, calls)
}

/// Renames a file back to its original name, if that is free.
pub(crate) fn rename_back(place: &FileLocation, temp: &str, calls: &DiskCalls) -> io::Result<()> {
    rename_no_replace(place, temp, place.file_name(), calls)?;
    sync_directory(place, calls)
}

/// Removes a temporary file.
pub(crate) fn remove_temp(place: &FileLocation, temp: &str, calls: &DiskCalls) -> io::Result<()> {
    let once = || -> io::Result<()> {
        calls.check(DiskCall::Remove)?;
        match rustix::fs::unlinkat(place.directory(), temp, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(why) => Err(why.into()),
        }
    };
    once().or_else(|_| once())
}

/// Returns whether a file holds exactly these bytes.
pub(crate) fn has_content(file: &File, bytes: &[u8]) -> io::Result<bool> {
    let mut buffer = vec![0; COMPARE_CHUNK_BYTES.min(bytes.len() + 1)];
    let mut offset = 0;
    loop {
        let read = match file.read_at(&mut buffer, offset as u64) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if read == 0 {
            return Ok(offset == bytes.len());
        }
        if bytes.get(offset..offset + read) != Some(&buffer[..read]) {
            return Ok(false);
        }
        offset += read;
    }
}

fn is_unchanged(file: &File, old: ExpectedFile<'_>) -> io::Result<bool> {
    let stat = rustix::fs::fstat(file)?;
    let same =
        is_same_file(&stat, old.stat) && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    Ok(same && has_content(file, old.bytes)?)
}

fn write_temp(
    place: &FileLocation,
    old: Option<ExpectedFile<'_>>,
    new: Replacement<'_>,
    temp: &str,
    calls: &DiskCalls,
) -> Result<File, ReplaceError> {
    let is_private = old.is_some() || new.mode.is_some();
    let file = create_temp(place, is_private, temp, calls).map_err(ReplaceError::System)?;
    write_at(&file, 0, new.bytes, calls).map_err(ReplaceError::System)?;
    if let Some(old) = old {
        let from = place.open(place.file_name()).map_err(|why| match why {
            Errno::NOENT | Errno::LOOP | Errno::NXIO => ReplaceError::Raced,
            why => ReplaceError::System(why.into()),
        })?;
        copy_metadata(&from, old.stat, &file, calls).map_err(ReplaceError::Metadata)?;
    }
    if let Some(mode) = new.mode.or(old.map(|old| old.stat.st_mode)) {
        set_mode(&file, mode, calls).map_err(ReplaceError::Metadata)?;
    }
    Ok(file)
}

fn create_temp(place: &FileLocation, private: bool, temp: &str, calls: &DiskCalls) -> io::Result<File> {
    calls.check(DiskCall::CreateTemp)?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // A new file gets the mode that the user's umask gives; one that will get another mode starts out private.
    let mode = Mode::from_raw_mode(if private { 0o600 } else { 0o666 });
    Ok(rustix::io::retry_on_intr(|| rustix::fs::openat(place.directory(), temp, flags, mode))?.into())
}

/// Exchanges the temporary file with the old one, if the old one is still what the write was decided on.
fn exchange_files(
    place: &FileLocation,
    old: ExpectedFile<'_>,
    (file, new): (&File, &[u8]),
    temp: &str,
    calls: &DiskCalls,
    late: &mut Vec<LateWrite>,
) -> Result<(), ReplaceError> {
    // This detects most changes before the new file becomes visible.
    if !place.is_unchanged_since(old.stat) {
        return Err(ReplaceError::Raced);
    }
    let directory = place.directory();
    let replaced = place.open(place.file_name()).map_err(|_| ReplaceError::Raced)?;
    let lease = match Lease::try_shared(replaced.as_fd()) {
        Err(LeaseError::Contended) => return Err(ReplaceError::Raced),
        lease => lease.ok(),
    };
    // Under the lease the file cannot change.
    if lease.is_some() && !is_unchanged(&replaced, old).map_err(ReplaceError::System)? {
        return Err(ReplaceError::Raced);
    }
    let exchange = || -> io::Result<()> {
        calls.check(DiskCall::Exchange)?;
        Ok(rustix::fs::renameat_with(directory, temp, directory, place.file_name(), RenameFlags::EXCHANGE)?)
    };
    match exchange() {
        Ok(()) => {}
        Err(why) => {
            return match Errno::from_io_error(&why) {
                Some(Errno::NOENT) => Err(ReplaceError::Raced),
                // Some file systems cannot exchange files. The fallback is a check right before the rename.
                Some(Errno::INVAL | Errno::NOSYS) => rename_over(place, old, temp, calls),
                _ => Err(ReplaceError::System(why)),
            };
        }
    }
    let is_expected = || -> io::Result<bool> {
        let displaced = place.open(temp)?;
        if lease.is_some() {
            return Ok(is_same_file(&rustix::fs::fstat(&displaced)?, old.stat));
        }
        is_unchanged(&displaced, old)
    };
    let failed = match is_expected() {
        Ok(true) => return Ok(()),
        Ok(false) => ReplaceError::Raced,
        // A link or a directory at the file's path cannot be opened as a file.
        Err(why) if Errno::from_io_error(&why) == Some(Errno::LOOP) => ReplaceError::Raced,
        Err(why) => ReplaceError::System(why),
    };
    exchange().map_err(ReplaceError::Interrupted)?;
    let there = rustix::fs::statat(directory, temp, AtFlags::SYMLINK_NOFOLLOW);
    let ours = rustix::fs::fstat(file);
    let same = there.and_then(|there| Ok(is_same_file(&there, &ours?)));
    if same.map_err(|why| ReplaceError::Interrupted(why.into()))? {
        collect_late_write(file, new, late).map_err(ReplaceError::Interrupted)?;
        if let Ok(back) = place.open(place.file_name()) {
            let before = late.len();
            collect_late_write(&back, old.bytes, late).map_err(ReplaceError::Interrupted)?;
            late[before..].iter_mut().for_each(|late| late.is_restored = true);
        }
        return Err(failed);
    }
    // An editor replaced the new file at just that moment: its file goes back into place, and the text that it replaced
    // is late.
    exchange().map_err(ReplaceError::Interrupted)?;
    let replaced = place.open(temp).map_err(|why| ReplaceError::Interrupted(why.into()))?;
    collect_late_write(&replaced, old.bytes, late).map_err(ReplaceError::Interrupted)?;
    Err(failed)
}

/// Collects the text of a replaced file, if it changed.
fn collect_late_write(file: &File, base: &[u8], late: &mut Vec<LateWrite>) -> io::Result<()> {
    if !has_content(file, base)? {
        let mut bytes = Vec::new();
        (&mut &*file).seek(SeekFrom::Start(0))?;
        file.take(MAX_LATE_BYTES).read_to_end(&mut bytes)?;
        late.push(LateWrite { base: base.to_owned(), bytes, is_restored: false });
    }
    Ok(())
}

fn rename_over(
    place: &FileLocation,
    old: ExpectedFile<'_>,
    temp: &str,
    calls: &DiskCalls,
) -> Result<(), ReplaceError> {
    let now = place.open(place.file_name()).map_err(|_| ReplaceError::Raced)?;
    if !is_unchanged(&now, old).map_err(ReplaceError::System)? {
        return Err(ReplaceError::Raced);
    }
    calls.check(DiskCall::Rename).map_err(ReplaceError::System)?;
    rustix::fs::renameat(place.directory(), temp, place.directory(), place.file_name())
        .map_err(|why| ReplaceError::System(why.into()))
}

fn install_new(place: &FileLocation, temp: &str, calls: &DiskCalls) -> Result<(), ReplaceError> {
    rename_no_replace(place, temp, place.file_name(), calls).map_err(|why| match why.kind() {
        io::ErrorKind::AlreadyExists => ReplaceError::Raced,
        _ => ReplaceError::System(why),
    })
}

/// Renames without replacing an existing file.
fn rename_no_replace(place: &FileLocation, from: &str, to: &str, calls: &DiskCalls) -> io::Result<()> {
    let directory = place.directory();
    calls.check(DiskCall::Rename)?;
    match rustix::fs::renameat_with(directory, from, directory, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => {
            rustix::fs::linkat(directory, from, directory, to, AtFlags::empty())?;
            calls.check(DiskCall::Remove)?;
            Ok(rustix::fs::unlinkat(directory, from, AtFlags::empty())?)
        }
        renamed => Ok(renamed?),
    }
}

/// What happened to a temporary file.
#[derive(Debug)]
pub(crate) enum TempRemoval {
    /// It no longer exists.
    Done,
    /// It could not be removed.
    Failed(io::Error),
}

/// Moves the old file out of the way, after the new one is in place permanently or the file was deleted.
pub(crate) fn displace(
    place: &FileLocation,
    old: ExpectedFile<'_>,
    temp: &str,
    to: DisplacedDir<'_>,
    calls: &DiskCalls,
    late: &mut Vec<LateWrite>,
) -> io::Result<TempRemoval> {
    let replaced = match place.open(temp) {
        Ok(replaced) => replaced,
        // On file systems that cannot exchange files, the old file is gone.
        Err(Errno::NOENT) => return Ok(TempRemoval::Done),
        Err(why) => return Err(why.into()),
    };
    // A program that waited for the lease has opened the file by now, and will finish soon.
    let waited = writers::wait_for_writers(&replaced, WaitPurpose::Write);
    match waited.state {
        WriterState::None => {
            collect_late_write(&replaced, old.bytes, late)?;
            displaced_files::mark_untouched(&replaced);
        }
        WriterState::Unknown => {
            displaced_files::mark_untouched(&replaced);
            collect_late_write(&replaced, old.bytes, late)?;
        }
        // The program's text is collected once it has finished.
        WriterState::Idle | WriterState::Busy => {}
    }
    drop(waited);
    Ok(to.move_in(place, temp, calls).map_or_else(TempRemoval::Failed, |()| TempRemoval::Done))
}

/// Removes a new file from its path, and restores the old one. If the new one was changed in the meantime, it stays.
pub(crate) fn restore_old(
    place: &FileLocation,
    now: ExpectedFile<'_>,
    was: Option<ExpectedFile<'_>>,
    temp: &str,
    displaced: DisplacedDir<'_>,
    calls: &DiskCalls,
    late: &mut Vec<LateWrite>,
) -> Result<(), ReplaceError> {
    let let_go = |late: &mut Vec<LateWrite>| match displace(place, now, temp, displaced, calls, late) {
        Ok(TempRemoval::Done) => Ok(()),
        Ok(TempRemoval::Failed(why)) | Err(why) => Err(ReplaceError::Interrupted(why)),
    };
    let Some(was) = was else {
        move_aside(place, now, temp, calls)?;
        sync_directory(place, calls).map_err(ReplaceError::Interrupted)?;
        return let_go(late);
    };
    if let Ok(file) = place.open(place.file_name()) {
        drop(writers::wait_for_writers(&file, WaitPurpose::Write));
    }
    let file = match place.open(temp) {
        // On file systems that cannot exchange files, the old file is gone and is recreated from its bytes.
        Err(Errno::NOENT) => {
            let new = Replacement { bytes: was.bytes, mode: Some(was.stat.st_mode) };
            let file = write_replacement(place, Some(now), new, temp, calls)?;
            sync(&file, calls).map_err(ReplaceError::Interrupted)?;
            file
        }
        opened => opened.map_err(|why| ReplaceError::Interrupted(why.into()))?,
    };
    exchange_files(place, now, (&file, was.bytes), temp, calls, late)?;
    sync_directory(place, calls).map_err(ReplaceError::Interrupted)?;
    let_go(late)
}

/// Removes the temporary file of a failed write.
fn discard_temp(place: &FileLocation, temp: &str, calls: &DiskCalls, failed: ReplaceError) -> ReplaceError {
    match (failed, remove_temp(place, temp, calls)) {
        (failed @ ReplaceError::Interrupted(_), _) | (failed, Ok(())) => failed,
        (_, Err(why)) => ReplaceError::Interrupted(why),
    }
}

fn write_at(file: &File, mut offset: u64, mut bytes: &[u8], calls: &DiskCalls) -> io::Result<()> {
    while !bytes.is_empty() {
        let allowed = calls.check_write(bytes.len().min(WRITE_CHUNK_BYTES))?;
        let written = match file.write_at(&bytes[..allowed], offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            written => written?,
        };
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = &bytes[written..];
        offset += written as u64;
    }
    Ok(())
}

/// Makes a file's bytes durable.
pub(crate) fn sync(file: &File, calls: &DiskCalls) -> io::Result<()> {
    calls.check(DiskCall::Sync)?;
    Ok(rustix::io::retry_on_intr(|| rustix::fs::fsync(file))?)
}

/// Makes the entries of a directory durable.
pub(crate) fn sync_directory(place: &FileLocation, calls: &DiskCalls) -> io::Result<()> {
    calls.check(DiskCall::SyncDirectory)?;
    Ok(rustix::io::retry_on_intr(|| rustix::fs::fsync(place.directory()))?)
}

fn set_mode(file: &File, mode: u32, calls: &DiskCalls) -> io::Result<()> {
    calls.check(DiskCall::SetMode)?;
    Ok(rustix::fs::fchmod(file, Mode::from_raw_mode(mode & 0o7777))?)
}
