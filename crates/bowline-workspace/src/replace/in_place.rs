//! Writing new bytes over the old ones, for files whose identity has to stay: they have several names, belong to
//! another user, or a program keeps them open for writing.
//!
//! Nothing can keep another program from writing at the same moment. Text that it appends meanwhile ends up behind the new
//! text, and the file is read back, so that a difference is known.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};

use super::{Failed, Late, New, Old, is_unchanged, set_mode, sync, take_late, write_at};
use crate::calls::{Call, Calls};
use crate::roots::Place;
use crate::writers::PATIENCE;

/// How long to wait before a file is opened again that is being read under a lease.
const PAUSE: Duration = Duration::from_millis(1);

/// Writes new bytes over the old ones. Text that another program wrote meanwhile is in the file and goes to `late`, too.
pub(crate) fn in_place(
    place: &Place,
    old: Old<'_>,
    new: New<'_>,
    calls: &Calls,
    late: &mut Vec<Late>,
) -> Result<rustix::fs::Stat, Failed> {
    let file = open(place, calls).map_err(Failed::Undone)?;
    if !is_unchanged(&file, old).map_err(Failed::Undone)? {
        return Err(Failed::Raced);
    }
    let write = || -> io::Result<()> {
        // Before the bytes: if the mode cannot be set, nothing has been touched.
        if let Some(mode) = new.mode.filter(|mode| mode & 0o7777 != old.stat.st_mode & 0o7777) {
            set_mode(&file, mode, calls)?;
        }
        overwrite(&file, old.bytes, new.bytes, calls)
    };
    if let Err(why) = write() {
        let back = || -> io::Result<()> {
            restore(&file, new.bytes.len() as u64, old.bytes, calls)?;
            if new.mode.is_some() { set_mode(&file, old.stat.st_mode, calls) } else { Ok(()) }
        };
        return Err(match back() {
            Ok(()) => Failed::Undone(why),
            Err(_) => Failed::Interrupted(why),
        });
    }
    let before = late.len();
    take_late(&file, new.bytes, late).map_err(Failed::Interrupted)?;
    late[before..].iter_mut().for_each(|late| late.is_back = true);
    rustix::fs::fstat(&file).map_err(|why| Failed::Interrupted(why.into()))
}

fn open(place: &Place, calls: &Calls) -> io::Result<File> {
    calls.pass(Call::OpenInPlace)?;
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let began = Instant::now();
    loop {
        match rustix::fs::openat(place.directory(), place.leaf(), flags, Mode::empty()) {
            // It is being read under a lease, which does not take long.
            Err(Errno::WOULDBLOCK) if began.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
            opened => return Ok(opened?.into()),
        }
    }
}

/// Writes the old bytes over a file that could not be written to the end.
fn restore(file: &File, length: u64, old: &[u8], calls: &Calls) -> io::Result<()> {
    let grown = old.get(length as usize..).unwrap_or_default();
    write_at(file, length, grown, calls)?;
    write_at(file, 0, &old[..old.len() - grown.len()], calls)?;
    calls.pass(Call::Truncate)?;
    rustix::fs::ftruncate(file, old.len() as u64)?;
    sync(file, calls)
}

/// Writes new bytes over the old ones while another program may append to the file: its text ends up behind the new one.
fn overwrite(file: &File, old: &[u8], new: &[u8], calls: &Calls) -> io::Result<()> {
    let same = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let grown = new.get(old.len()..).unwrap_or_default();
    // What makes the file longer comes first: if there is no room for it, nothing else has been touched. And appending
    // cannot overwrite what another program appends.
    append(file, grown, calls)?;
    if same == old.len() {
        return sync(file, calls);
    }
    let mut others = read_from(file, old.len() as u64)?;
    if let Some(at) = find(&others, grown) {
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
            calls.pass(Call::Truncate)?;
            rustix::fs::ftruncate(file, wanted)?;
            break;
        }
        write_at(file, wanted, &more, calls)?;
        wanted += more.len() as u64;
        end += more.len() as u64;
    }
    sync(file, calls)
}

fn append(file: &File, mut bytes: &[u8], calls: &Calls) -> io::Result<()> {
    while !bytes.is_empty() {
        let allowed = calls.pass_bytes(bytes.len())?;
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

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    if part.is_empty() { None } else { memchr::memmem::find(bytes, part) }
}
