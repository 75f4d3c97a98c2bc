//! Putting new bytes in a file's place: all or nothing, durable, and with everything else about the file as it was.
//!
//! The new bytes go to a temporary file in the same directory, which then *changes places* with the old file. So the
//! old one is still there to be looked at: if it is not the text that the write was decided on, they change back and
//! nothing has happened. A plain rename would have thrown that text away.
//!
//! A file that another program has open for writing is not replaced: a lease tells ([`crate::writers`]), and keeps others
//! from opening it until the new file has its place. A program that then opens the old one writes to a file that has just
//! lost its place. Such a text is [`Late`]: it is handed on, to be merged into the file. The old file is kept for a while
//! ([`crate::displaced`]), for what arrives later still.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use file_lease::{Lease, LeaseError};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use crate::calls::{Call, Calls};
use crate::displaced::{self, DisplacedFiles};
use crate::roots::Place;
use crate::writers::{self, Purpose, WriterState};

mod in_place;
mod metadata;

pub(crate) use in_place::in_place;
use metadata::carry_over;

/// How many bytes are written at a time.
const CHUNK: usize = 1 << 20;

/// How many bytes are compared at a time: so few that they are at hand when they were just read.
const LOOK: usize = 64 << 10;

/// Of a text that came late at most this much is read.
const MAX_LATE: u64 = 64 << 20;

/// The file as the write was decided on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Old<'a> {
    pub(crate) stat: &'a Stat,
    pub(crate) bytes: &'a [u8],
}

/// The file as it is to be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct New<'a> {
    pub(crate) bytes: &'a [u8],
    // None: as the old file has it; or, for a new one, as the user's mask has it.
    pub(crate) mode: Option<u32>,
}

/// Why a file was not replaced.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    /// Somebody changed it after the write was decided. Nothing was done.
    #[error("somebody else changed the file at the same moment")]
    Raced,
    /// Owner, attributes or access list cannot be given to a new file. Nothing was done.
    #[error("the file's owner or attributes cannot be kept: {0}")]
    Metadata(io::Error),
    /// The system refused a step. Nothing was done.
    #[error(transparent)]
    Undone(io::Error),
    /// The system refused a step, and then the way back. The journal knows both texts; it is put right when the journal
    /// is opened next.
    #[error(transparent)]
    Interrupted(io::Error),
}

/// What somebody wrote into a file at the moment that it lost its place.
#[derive(Debug)]
pub(crate) struct Late {
    /// What the file held before that.
    pub(crate) base: Vec<u8>,
    /// What it held then.
    pub(crate) bytes: Vec<u8>,
    /// Whether the file has its place again. Who looked in between saw the new one, and may write over it what it made
    /// of that.
    pub(crate) is_back: bool,
}

/// Returns a name for a temporary file that nobody can guess.
pub(crate) fn temp_name() -> io::Result<String> {
    let mut bytes = [0; 16];
    let length = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())?;
    if length != bytes.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(format!(".bowline-{:032x}.tmp", u128::from_ne_bytes(bytes)))
}

/// Says whether a name is one of [`temp_name`].
pub(crate) fn is_temp_name(name: &str) -> bool {
    name.strip_prefix(".bowline-")
        .and_then(|rest| rest.strip_suffix(".tmp"))
        .is_some_and(|id| id.len() == 32 && id.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

/// Writes a new file beside the one whose place it is to take. Its bytes are not durable yet.
pub(crate) fn write_beside(
    place: &Place,
    old: Option<Old<'_>>,
    new: New<'_>,
    temp: &str,
    calls: &Calls,
) -> Result<File, Failed> {
    write_temp(place, old, new, temp, calls).map_err(|failed| clear(place, temp, calls, failed))
}

/// Lets the system begin to write a file's bytes to the disk. Where it does so for many before the first of them is waited
/// for, all of them take little longer than one.
pub(crate) fn begin_sync(file: &File) {
    // That nobody needs the bytes soon is what has them written now. It is advice: who does not take it takes longer.
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).ok();
}

/// Puts a new file that lies beside in its place. The old one, if there is one, bears the temporary name from then on.
pub(crate) fn put(
    place: &Place,
    old: Option<Old<'_>>,
    new: (&File, &[u8]),
    temp: &str,
    calls: &Calls,
    late: &mut Vec<Late>,
) -> Result<Stat, Failed> {
    let placed = match old {
        Some(old) => change_places(place, old, new, temp, calls, late),
        None => name_new(place, temp, calls),
    };
    placed.map_err(|failed| clear(place, temp, calls, failed))?;
    rustix::fs::fstat(new.0).map_err(|why| Failed::Interrupted(why.into()))
}

/// Takes a file away: it bears the temporary name from then on, until that is removed, or it comes back.
pub(crate) fn take_away(place: &Place, old: Old<'_>, temp: &str, calls: &Calls) -> Result<(), Failed> {
    match rename_new(place, place.leaf(), temp, calls) {
        Ok(()) => {}
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Err(Failed::Raced),
        Err(why) => return Err(Failed::Undone(why)),
    }
    let failed = match is_as_taken(place, old, temp) {
        Ok(true) => return Ok(()),
        Ok(false) => Failed::Raced,
        Err(why) => Failed::Undone(why),
    };
    match rename_new(place, temp, place.leaf(), calls) {
        Ok(()) => Err(failed),
        Err(why) => Err(Failed::Interrupted(why)),
    }
}

/// Says whether a file that was taken away is what it was. Who had opened it before may write to it until it is gone.
pub(crate) fn is_as_taken(place: &Place, old: Old<'_>, temp: &str) -> io::Result<bool> {
    place.open(temp).map_err(io::Error::from).and_then(|file| is_unchanged(&file, old))
}

/// Gives the file that bears a temporary name its place, where a new one is now, and displaces the new one.
pub(crate) fn exchange_back(
    place: &Place,
    temp: &str,
    displaced: DisplacedFiles<'_>,
    calls: &Calls,
) -> io::Result<()> {
    calls.pass(Call::Exchange)?;
    rustix::fs::renameat_with(
        place.directory(),
        temp,
        place.directory(),
        place.leaf(),
        RenameFlags::EXCHANGE,
    )?;
    displaced.take_in(place, temp, calls)?;
    sync_directory(place, calls)
}

/// Gives a file its name again, if the name is free.
pub(crate) fn rename_back(place: &Place, temp: &str, calls: &Calls) -> io::Result<()> {
    rename_new(place, temp, place.leaf(), calls)?;
    sync_directory(place, calls)
}

/// Removes a temporary file.
pub(crate) fn remove(place: &Place, temp: &str, calls: &Calls) -> io::Result<()> {
    let once = || -> io::Result<()> {
        calls.pass(Call::Remove)?;
        match rustix::fs::unlinkat(place.directory(), temp, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(why) => Err(why.into()),
        }
    };
    once().or_else(|_| once())
}

/// Says whether a file holds exactly these bytes.
pub(crate) fn holds(file: &File, bytes: &[u8]) -> io::Result<bool> {
    let mut buffer = vec![0; LOOK.min(bytes.len() + 1)];
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

fn is_unchanged(file: &File, old: Old<'_>) -> io::Result<bool> {
    let stat = rustix::fs::fstat(file)?;
    let same = is_same(&stat, old.stat) && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    Ok(same && holds(file, old.bytes)?)
}

fn write_temp(
    place: &Place,
    old: Option<Old<'_>>,
    new: New<'_>,
    temp: &str,
    calls: &Calls,
) -> Result<File, Failed> {
    let is_private = old.is_some() || new.mode.is_some();
    let file = create_temp(place, is_private, temp, calls).map_err(Failed::Undone)?;
    write_at(&file, 0, new.bytes, calls).map_err(Failed::Undone)?;
    if let Some(old) = old {
        let from = place.open(place.leaf()).map_err(|why| match why {
            Errno::NOENT | Errno::LOOP | Errno::NXIO => Failed::Raced,
            why => Failed::Undone(why.into()),
        })?;
        carry_over(&from, old.stat, &file, calls).map_err(Failed::Metadata)?;
    }
    if let Some(mode) = new.mode.or(old.map(|old| old.stat.st_mode)) {
        set_mode(&file, mode, calls).map_err(Failed::Metadata)?;
    }
    Ok(file)
}

fn create_temp(place: &Place, private: bool, temp: &str, calls: &Calls) -> io::Result<File> {
    calls.pass(Call::CreateTemp)?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // A new file has the mode that the user's mask gives; one that is to have another mode shows nothing before it has.
    let mode = Mode::from_raw_mode(if private { 0o600 } else { 0o666 });
    Ok(rustix::io::retry_on_intr(|| rustix::fs::openat(place.directory(), temp, flags, mode))?.into())
}

/// Lets the temporary file and the old one change places, if the old one is still what the write was decided on.
fn change_places(
    place: &Place,
    old: Old<'_>,
    (file, new): (&File, &[u8]),
    temp: &str,
    calls: &Calls,
    late: &mut Vec<Late>,
) -> Result<(), Failed> {
    // Most changes are found before anybody can see the new file.
    if !place.is_as_it_was(old.stat) {
        return Err(Failed::Raced);
    }
    let directory = place.directory();
    let replaced = place.open(place.leaf()).map_err(|_| Failed::Raced)?;
    let lease = match Lease::try_shared(replaced.as_fd()) {
        Err(LeaseError::Contended) => return Err(Failed::Raced),
        lease => lease.ok(),
    };
    // Under the lease it stays as it is.
    if lease.is_some() && !is_unchanged(&replaced, old).map_err(Failed::Undone)? {
        return Err(Failed::Raced);
    }
    let exchange = || -> io::Result<()> {
        calls.pass(Call::Exchange)?;
        Ok(rustix::fs::renameat_with(directory, temp, directory, place.leaf(), RenameFlags::EXCHANGE)?)
    };
    match exchange() {
        Ok(()) => {}
        Err(why) => {
            return match Errno::from_io_error(&why) {
                Some(Errno::NOENT) => Err(Failed::Raced),
                // Some file systems cannot exchange. What is left is a look right before the rename.
                Some(Errno::INVAL | Errno::NOSYS) => rename_over(place, old, temp, calls),
                _ => Err(Failed::Undone(why)),
            };
        }
    }
    let is_expected = || -> io::Result<bool> {
        let displaced = place.open(temp)?;
        if lease.is_some() {
            return Ok(is_same(&rustix::fs::fstat(&displaced)?, old.stat));
        }
        is_unchanged(&displaced, old)
    };
    let failed = match is_expected() {
        Ok(true) => return Ok(()),
        Ok(false) => Failed::Raced,
        // A link or a directory that took the file's place cannot be opened as a file.
        Err(why) if Errno::from_io_error(&why) == Some(Errno::LOOP) => Failed::Raced,
        Err(why) => Failed::Undone(why),
    };
    exchange().map_err(Failed::Interrupted)?;
    let there = rustix::fs::statat(directory, temp, AtFlags::SYMLINK_NOFOLLOW);
    let ours = rustix::fs::fstat(file);
    let same = there.and_then(|there| Ok(is_same(&there, &ours?)));
    if same.map_err(|why| Failed::Interrupted(why.into()))? {
        take_late(file, new, late).map_err(Failed::Interrupted)?;
        if let Ok(back) = place.open(place.leaf()) {
            let before = late.len();
            take_late(&back, old.bytes, late).map_err(Failed::Interrupted)?;
            late[before..].iter_mut().for_each(|late| late.is_back = true);
        }
        return Err(failed);
    }
    // An editor has put a file of its own in the place of the new one for just that moment: it gets that place, and the
    // text that it replaced is late.
    exchange().map_err(Failed::Interrupted)?;
    let replaced = place.open(temp).map_err(|why| Failed::Interrupted(why.into()))?;
    take_late(&replaced, old.bytes, late).map_err(Failed::Interrupted)?;
    Err(failed)
}

/// Takes the text of a file that has lost its place, if it is not what it was.
fn take_late(file: &File, base: &[u8], late: &mut Vec<Late>) -> io::Result<()> {
    if !holds(file, base)? {
        let mut bytes = Vec::new();
        (&mut &*file).seek(SeekFrom::Start(0))?;
        file.take(MAX_LATE).read_to_end(&mut bytes)?;
        late.push(Late { base: base.to_owned(), bytes, is_back: false });
    }
    Ok(())
}

fn is_same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

fn rename_over(place: &Place, old: Old<'_>, temp: &str, calls: &Calls) -> Result<(), Failed> {
    let now = place.open(place.leaf()).map_err(|_| Failed::Raced)?;
    if !is_unchanged(&now, old).map_err(Failed::Undone)? {
        return Err(Failed::Raced);
    }
    calls.pass(Call::Rename).map_err(Failed::Undone)?;
    rustix::fs::renameat(place.directory(), temp, place.directory(), place.leaf())
        .map_err(|why| Failed::Undone(why.into()))
}

fn name_new(place: &Place, temp: &str, calls: &Calls) -> Result<(), Failed> {
    rename_new(place, temp, place.leaf(), calls).map_err(|why| match why.kind() {
        io::ErrorKind::AlreadyExists => Failed::Raced,
        _ => Failed::Undone(why),
    })
}

/// Renames, but never over something.
fn rename_new(place: &Place, from: &str, to: &str, calls: &Calls) -> io::Result<()> {
    let directory = place.directory();
    calls.pass(Call::Rename)?;
    match rustix::fs::renameat_with(directory, from, directory, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => {
            rustix::fs::linkat(directory, from, directory, to, AtFlags::empty())?;
            calls.pass(Call::Remove)?;
            Ok(rustix::fs::unlinkat(directory, from, AtFlags::empty())?)
        }
        renamed => Ok(renamed?),
    }
}

/// What became of a temporary name.
#[derive(Debug)]
pub(crate) enum Removed {
    /// There is no such file any more.
    Yes,
    /// It could not be removed.
    Left(io::Error),
}

/// Moves the old file out of the way, now that the new one has its place for good, or there is none.
pub(crate) fn displace(
    place: &Place,
    old: Old<'_>,
    temp: &str,
    to: DisplacedFiles<'_>,
    calls: &Calls,
    late: &mut Vec<Late>,
) -> io::Result<Removed> {
    let replaced = match place.open(temp) {
        Ok(replaced) => replaced,
        // Where names cannot be exchanged the old file is gone.
        Err(Errno::NOENT) => return Ok(Removed::Yes),
        Err(why) => return Err(why.into()),
    };
    // A program that waited for the lease has opened it by now, and will soon be done.
    let waited = writers::wait(&replaced, Purpose::Write);
    match waited.state {
        WriterState::None => {
            take_late(&replaced, old.bytes, late)?;
            displaced::mark_untouched(&replaced);
        }
        WriterState::Unknown => {
            displaced::mark_untouched(&replaced);
            take_late(&replaced, old.bytes, late)?;
        }
        // What it has written when it is done is found later.
        WriterState::Idle | WriterState::Busy => {}
    }
    drop(waited);
    Ok(to.take_in(place, temp, calls).map_or_else(Removed::Left, |()| Removed::Yes))
}

/// Takes a new file out of its place again, and gives that back to the one that was there. If somebody has changed the new
/// one already, it stays.
pub(crate) fn put_back(
    place: &Place,
    now: Old<'_>,
    was: Option<Old<'_>>,
    temp: &str,
    displaced: DisplacedFiles<'_>,
    calls: &Calls,
    late: &mut Vec<Late>,
) -> Result<(), Failed> {
    let let_go = |late: &mut Vec<Late>| match displace(place, now, temp, displaced, calls, late) {
        Ok(Removed::Yes) => Ok(()),
        Ok(Removed::Left(why)) | Err(why) => Err(Failed::Interrupted(why)),
    };
    let Some(was) = was else {
        take_away(place, now, temp, calls)?;
        sync_directory(place, calls).map_err(Failed::Interrupted)?;
        return let_go(late);
    };
    if let Ok(file) = place.open(place.leaf()) {
        drop(writers::wait(&file, Purpose::Write));
    }
    let file = match place.open(temp) {
        // Where names cannot be exchanged the old file is gone, and its bytes have to do.
        Err(Errno::NOENT) => {
            let new = New { bytes: was.bytes, mode: Some(was.stat.st_mode) };
            let file = write_beside(place, Some(now), new, temp, calls)?;
            sync(&file, calls).map_err(Failed::Interrupted)?;
            file
        }
        opened => opened.map_err(|why| Failed::Interrupted(why.into()))?,
    };
    change_places(place, now, (&file, was.bytes), temp, calls, late)?;
    sync_directory(place, calls).map_err(Failed::Interrupted)?;
    let_go(late)
}

/// Removes the temporary file of a write that is not done.
fn clear(place: &Place, temp: &str, calls: &Calls, failed: Failed) -> Failed {
    match (failed, remove(place, temp, calls)) {
        (failed @ Failed::Interrupted(_), _) | (failed, Ok(())) => failed,
        (_, Err(why)) => Failed::Interrupted(why),
    }
}

fn write_at(file: &File, mut offset: u64, mut bytes: &[u8], calls: &Calls) -> io::Result<()> {
    while !bytes.is_empty() {
        let allowed = calls.pass_bytes(bytes.len().min(CHUNK))?;
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
pub(crate) fn sync(file: &File, calls: &Calls) -> io::Result<()> {
    calls.pass(Call::Sync)?;
    Ok(rustix::io::retry_on_intr(|| rustix::fs::fsync(file))?)
}

/// Makes the names in a directory durable.
pub(crate) fn sync_directory(place: &Place, calls: &Calls) -> io::Result<()> {
    calls.pass(Call::SyncDirectory)?;
    Ok(rustix::io::retry_on_intr(|| rustix::fs::fsync(place.directory()))?)
}

fn set_mode(file: &File, mode: u32, calls: &Calls) -> io::Result<()> {
    calls.pass(Call::SetMode)?;
    Ok(rustix::fs::fchmod(file, Mode::from_raw_mode(mode & 0o7777))?)
}
