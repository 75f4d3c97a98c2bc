//! What belongs to a file besides its bytes: owner, access lists and other extended attributes.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{Gid, Stat, Uid, XattrFlags};
use rustix::io::Errno;

use crate::calls::{Call, Calls};

/// Extended attributes of a file have at most this many bytes in all, names and values each; more than Linux allows.
const MAX_ATTRIBUTES: usize = 1 << 20;

/// The attribute that gives a program rights of the superuser.
const CAPABILITIES: &str = "security.capability";

/// Gives a new file the owner and the extended attributes (access lists among them) of an old one.
pub(super) fn carry_over(from: &File, old: &Stat, to: &File, calls: &Calls) -> io::Result<()> {
    let new = rustix::fs::fstat(to)?;
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid) {
        calls.pass(Call::SetOwner)?;
        rustix::fs::fchown(to, Some(Uid::from_raw(old.st_uid)), Some(Gid::from_raw(old.st_gid)))?;
    }
    let mut names = attributes(from)?;
    // Every write takes a program's capabilities away; one that replaces it does, too.
    names.retain(|name| name != CAPABILITIES);
    // A directory may give its new files attributes that the old one does not have.
    for name in attributes(to)?.iter().filter(|name| !names.contains(name)) {
        calls.pass(Call::SetAttribute)?;
        rustix::fs::fremovexattr(to, &**name)?;
    }
    for name in &names {
        let value = attribute(from, name)?;
        if attribute(to, name).is_ok_and(|there| there == value) {
            continue;
        }
        calls.pass(Call::SetAttribute)?;
        rustix::fs::fsetxattr(to, &**name, &value, XattrFlags::empty())?;
    }
    Ok(())
}

fn attributes(file: &File) -> io::Result<Vec<String>> {
    let read = |buffer: &mut Vec<u8>| {
        let length = rustix::fs::flistxattr(file.as_fd(), &mut buffer[..])?;
        buffer.truncate(length);
        Ok(())
    };
    let names = match grow(read) {
        Err(Errno::NOTSUP | Errno::NOSYS) => return Ok(Vec::new()),
        names => names?,
    };
    let name =
        |name: &[u8]| String::from_utf8(name.to_owned()).map_err(|_| io::ErrorKind::InvalidData.into());
    names.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(name).collect()
}

fn attribute(file: &File, name: &str) -> io::Result<Vec<u8>> {
    let read = |buffer: &mut Vec<u8>| {
        let length = rustix::fs::fgetxattr(file.as_fd(), name, &mut buffer[..])?;
        buffer.truncate(length);
        Ok(())
    };
    Ok(grow(read)?)
}

/// Reads into a buffer that grows until it is large enough.
fn grow(read: impl Fn(&mut Vec<u8>) -> Result<(), Errno>) -> Result<Vec<u8>, Errno> {
    let mut size = 1 << 10;
    loop {
        let mut buffer = vec![0; size];
        match read(&mut buffer) {
            Err(Errno::RANGE) if size < MAX_ATTRIBUTES => size *= 4,
            Err(why) => return Err(why),
            Ok(()) => return Ok(buffer),
        }
    }
}
