//! The metadata of a file: owner, access lists and other extended attributes.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{Gid, Stat, Uid, XattrFlags};
use rustix::io::Errno;

use bowline_storage::disk_calls::{DiskCall, DiskCalls};

/// The maximum size of a file's extended attributes in bytes, for names and values each; more than Linux allows.
const MAX_ATTRIBUTE_BYTES: usize = 1 << 20;

/// The attribute that grants a program superuser privileges.
const CAPABILITY_ATTRIBUTE: &str = "security.capability";

/// Copies the owner and the extended attributes (including access lists) from an old file to a new one.
pub(super) fn copy_metadata(from: &File, old: &Stat, to: &File, calls: &DiskCalls) -> io::Result<()> {
    let new = rustix::fs::fstat(to)?;
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid) {
        calls.check(DiskCall::SetOwner)?;
        rustix::fs::fchown(to, Some(Uid::from_raw(old.st_uid)), Some(Gid::from_raw(old.st_gid)))?;
    }
    let mut names = list_attributes(from)?;
    // Every write removes a program's capabilities, and so does a replacement.
    names.retain(|name| name != CAPABILITY_ATTRIBUTE);
    // A directory may give its new files attributes that the old file lacks.
    for name in list_attributes(to)?.iter().filter(|name| !names.contains(name)) {
        calls.check(DiskCall::SetAttribute)?;
        rustix::fs::fremovexattr(to, &**name)?;
    }
    for name in &names {
        let value = read_attribute(from, name)?;
        if read_attribute(to, name).is_ok_and(|there| there == value) {
            continue;
        }
        calls.check(DiskCall::SetAttribute)?;
        rustix::fs::fsetxattr(to, &**name, &value, XattrFlags::empty())?;
    }
    Ok(())
}

fn list_attributes(file: &File) -> io::Result<Vec<String>> {
    let read = |buffer: &mut Vec<u8>| {
        let length = rustix::fs::flistxattr(file.as_fd(), &mut buffer[..])?;
        buffer.truncate(length);
        Ok(())
    };
    let names = match read_growing(read) {
        Err(Errno::NOTSUP | Errno::NOSYS) => return Ok(Vec::new()),
        names => names?,
    };
    let name =
        |name: &[u8]| String::from_utf8(name.to_owned()).map_err(|_| io::ErrorKind::InvalidData.into());
    names.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(name).collect()
}

fn read_attribute(file: &File, name: &str) -> io::Result<Vec<u8>> {
    let read = |buffer: &mut Vec<u8>| {
        let length = rustix::fs::fgetxattr(file.as_fd(), name, &mut buffer[..])?;
        buffer.truncate(length);
        Ok(())
    };
    Ok(read_growing(read)?)
}

/// Reads into a buffer that grows until it is large enough.
fn read_growing(read: impl Fn(&mut Vec<u8>) -> Result<(), Errno>) -> Result<Vec<u8>, Errno> {
    let mut size = 1 << 10;
    loop {
        let mut buffer = vec![0; size];
        match read(&mut buffer) {
            Err(Errno::RANGE) if size < MAX_ATTRIBUTE_BYTES => size *= 4,
            Err(why) => return Err(why),
            Ok(()) => return Ok(buffer),
        }
    }
}
