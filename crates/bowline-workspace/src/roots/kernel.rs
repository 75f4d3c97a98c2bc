//! Resolution by the kernel: `openat2` beneath a root, with no magic links.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bowline_state::paths::LexicalPath;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::{Found, Lost, Open, Resolved};

/// How often the kernel is asked again when names changed under it, before the walk takes over.
const RETRIES: usize = 8;

const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// Says whether this system has `openat2` and a `/proc` that names handles.
pub(super) fn available() -> bool {
    open_directory("/").is_ok_and(|root| {
        openat2(root.as_fd(), ".", OFlags::PATH, BENEATH).is_ok_and(|dot| name(&dot).is_some())
    })
}

/// Opens a directory by its name: a root, once.
pub(super) fn open_directory(path: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::io::retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))
}

/// Resolves the way from a root, if the kernel can decide it: what leaves the root, or is missing, is for the walk.
pub(super) fn resolve(root: &Open, rest: &str) -> Option<Result<Resolved, Lost>> {
    let handle = openat2(root.directory.as_fd(), or_dot(rest), OFlags::PATH, BENEATH).ok()?;
    let canonical = LexicalPath::parse(name(&handle)?).ok()?;
    let stat = match rustix::fs::fstat(&handle) {
        // A name that was removed meanwhile is not the file's name any more, and is told with a word behind it.
        Ok(stat) if stat.st_nlink == 0 => return Some(Err(Lost::Raced)),
        Ok(stat) => stat,
        Err(error) => return Some(Err(Lost::System(error))),
    };
    // If the root itself was moved, its handle still holds; its files keep the names that they had.
    let canonical = if canonical.below(&root.canonical).is_some() {
        canonical
    } else {
        let moved = LexicalPath::parse(name(&root.directory)?).ok()?;
        let rest = canonical.below(&moved)?;
        LexicalPath::parse(format!("{}/{rest}", root.canonical)).ok()?
    };
    Some(Ok(Resolved::Found(Found { handle, stat }, canonical)))
}

/// Opens a name below a directory in which no link is allowed.
pub(super) fn open_without_links(
    directory: BorrowedFd<'_>,
    rest: &str,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    openat2(directory, or_dot(rest), flags, BENEATH | ResolveFlags::NO_SYMLINKS)
}

/// Says whether a handle is on a file system that the system makes up.
pub(crate) fn is_system_files(handle: BorrowedFd<'_>) -> bool {
    // The numbers are from Linux's `magic.h`: proc, sysfs, debugfs, tracefs, cgroup 1 and 2, securityfs, bpf, pstore,
    // configfs, devpts, efivarfs, binfmt_misc, mqueue, nsfs.
    const MADE_UP: &[u64] = &[
        0x9fa0,
        0x6265_6572,
        0x6462_6720,
        0x7472_6163,
        0x27_e0eb,
        0x6367_7270,
        0x7363_6673,
        0xcafe_4a11,
        0x6165_676c,
        0x6265_6570,
        0x1cd1,
        0xde5e_81e4,
        0x4249_4e4d,
        0x1980_0202,
        0x6e73_6673,
    ];
    // One that cannot be asked is not taken for a project's.
    rustix::fs::fstatfs(handle).map_or(true, |stat| MADE_UP.contains(&(stat.f_type as u64)))
}

/// Returns the name of what a handle holds, as it is now.
pub(super) fn name(handle: &OwnedFd) -> Option<String> {
    let link = rustix::fs::readlinkat(CWD, in_proc(handle.as_fd()), Vec::new()).ok()?;
    link.into_string().ok()
}

/// Returns the name under which a handle can be opened anew.
pub(super) fn in_proc(handle: BorrowedFd<'_>) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", handle.as_raw_fd())
}

/// Says whether two looks saw the same file.
pub(super) fn same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

fn or_dot(rest: &str) -> &str {
    if rest.is_empty() { "." } else { rest }
}

fn openat2(
    directory: BorrowedFd<'_>,
    rest: &str,
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC;
    let mut last = Errno::AGAIN;
    for _ in 0..RETRIES {
        match rustix::fs::openat2(directory, rest, flags, Mode::empty(), resolve) {
            Err(error @ (Errno::AGAIN | Errno::INTR)) => last = error,
            decided => return decided,
        }
    }
    Err(last)
}
