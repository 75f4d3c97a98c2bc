//! Resolution by the kernel: `openat2` beneath a root, without magic links.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use bowline_policy::paths::LexicalPath;
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use rustix::path::DecInt;

use super::{FileHandle, OpenRoot, ResolveError, ResolveOutcome};

/// How many times the kernel is asked again because the path changed, before the walk takes over.
const MAX_RETRIES: usize = 8;

const RESOLVE_BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// Returns whether this system has `openat2` and a `/proc` that names handles.
pub(super) fn is_available() -> bool {
    open_directory("/").is_ok_and(|root| {
        openat2(root.as_fd(), ".", OFlags::PATH, RESOLVE_BENEATH).is_ok_and(|dot| handle_path(&dot).is_some())
    })
}

/// Opens a root by its path.
pub(super) fn open_directory(path: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::io::retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))
}

/// Resolves a path below a root, if the kernel can decide it: paths that leave the root, or lack more than the last
/// name, are left to the walk.
pub(super) fn resolve(root: &OpenRoot, rest: &str) -> Option<Result<ResolveOutcome, ResolveError>> {
    match openat2(root.directory.as_fd(), or_dot(rest), OFlags::PATH, RESOLVE_BENEATH) {
        Ok(handle) => resolve_handle(root, handle),
        Err(Errno::NOENT) => resolve_missing(root, rest),
        Err(_) => None,
    }
}

/// Resolves a path below a root to an existing file, if the kernel has its names cached and none of them is a link. Its
/// canonical path is then its own text, and `/proc` need not be asked.
pub(super) fn resolve_cached(root: &OpenRoot, rest: &str) -> Option<(FileHandle, LexicalPath)> {
    let how = RESOLVE_BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::CACHED;
    let handle = openat2(root.directory.as_fd(), or_dot(rest), OFlags::PATH, how).ok()?;
    let canonical =
        LexicalPath::parse(format!("{}/{rest}", root.canonical.as_str().trim_end_matches('/'))).ok()?;
    let stat = rustix::fs::fstat(&handle).ok().filter(|stat| stat.st_nlink > 0)?;
    Some((FileHandle { handle, stat }, canonical))
}

/// Returns whether the kernel says that nothing exists at a path below a root.
pub(super) fn is_missing(root: &OpenRoot, rest: &str) -> bool {
    openat2(root.directory.as_fd(), or_dot(rest), OFlags::PATH, RESOLVE_BENEATH)
        .is_err_and(|why| why == Errno::NOENT)
}

/// Resolves a path whose last name does not exist, in a directory that does.
fn resolve_missing(root: &OpenRoot, rest: &str) -> Option<Result<ResolveOutcome, ResolveError>> {
    let (parent, name) = rest.rsplit_once('/').unwrap_or(("", rest));
    if matches!(name, "" | "." | "..") {
        return None;
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let directory = openat2(root.directory.as_fd(), or_dot(parent), flags, RESOLVE_BENEATH).ok()?;
    // The last name may also be a link that leads nowhere.
    let found = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW);
    if !matches!(found, Err(Errno::NOENT)) {
        return None;
    }
    match resolve_handle(root, directory)? {
        Ok(ResolveOutcome::Existing(_, directory)) => {
            let missing = LexicalPath::parse(format!("{}/{name}", directory.as_str().trim_end_matches('/')));
            Some(Ok(ResolveOutcome::Missing(missing.ok()?)))
        }
        _ => None,
    }
}

fn resolve_handle(root: &OpenRoot, handle: OwnedFd) -> Option<Result<ResolveOutcome, ResolveError>> {
    let canonical = LexicalPath::parse(handle_path(&handle)?).ok()?;
    let stat = match rustix::fs::fstat(&handle) {
        // The file was removed in the meantime, so `/proc` appends a suffix to its path.
        Ok(stat) if stat.st_nlink == 0 => return Some(Err(ResolveError::Raced)),
        Ok(stat) => stat,
        Err(error) => return Some(Err(ResolveError::System(error))),
    };
    // If the root itself was moved, its handle is still valid; its files keep their previous paths.
    let canonical = if canonical.strip_root(&root.canonical).is_some() {
        canonical
    } else {
        let moved = LexicalPath::parse(handle_path(&root.directory)?).ok()?;
        let rest = canonical.strip_root(&moved)?;
        LexicalPath::parse(format!("{}/{rest}", root.canonical)).ok()?
    };
    Some(Ok(ResolveOutcome::Existing(FileHandle { handle, stat }, canonical)))
}

/// Opens a path below a directory, without following any link.
pub(super) fn open_without_links(
    directory: BorrowedFd<'_>,
    rest: &str,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    openat2(directory, or_dot(rest), flags, RESOLVE_BENEATH | ResolveFlags::NO_SYMLINKS)
}

/// Returns whether a handle is on a virtual file system.
pub(crate) fn is_system_file_system(handle: BorrowedFd<'_>) -> bool {
    // The numbers are from Linux's `magic.h`: proc, sysfs, debugfs, tracefs, cgroup 1 and 2, securityfs, bpf, pstore,
    // configfs, devpts, efivarfs, binfmt_misc, mqueue, nsfs.
    const SYSTEM_FILE_SYSTEMS: &[u64] = &[
        0x9fa0, 0x6265_6572, 0x6462_6720, 0x7472_6163, 0x27_e0eb, 0x6367_7270, 0x7363_6673, 0xcafe_4a11,
        0x6165_676c, 0x6265_6570, 0x1cd1, 0xde5e_81e4, 0x4249_4e4d, 0x1980_0202, 0x6e73_6673,
    ];
    // A file system that cannot be queried is not treated as a project's.
    rustix::fs::fstatfs(handle).map_or(true, |stat| SYSTEM_FILE_SYSTEMS.contains(&(stat.f_type as u64)))
}

/// Returns the current path of a handle.
pub(super) fn handle_path(handle: &OwnedFd) -> Option<String> {
    let link = rustix::fs::readlinkat(descriptors().ok()?, DecInt::from_fd(handle), Vec::new()).ok()?;
    link.into_string().ok()
}

/// Opens the file of a handle.
///
/// # Errors
/// Returns [`Errno::NOENT`] without `/proc`, or the system's error.
pub(super) fn reopen(handle: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
    let directory = descriptors()?;
    rustix::io::retry_on_intr(|| rustix::fs::openat(directory, DecInt::from_fd(handle), flags, Mode::empty()))
}

/// Returns the directory of this process's descriptors in `/proc`. It is held open because the kernel looks up the way
/// through `/proc/self` anew each time, which takes longer than reading a small file.
fn descriptors() -> Result<&'static OwnedFd, Errno> {
    static DESCRIPTORS: OnceLock<OwnedFd> = OnceLock::new();
    match DESCRIPTORS.get() {
        Some(directory) => Ok(directory),
        None => {
            let directory = open_directory("/proc/self/fd")?;
            Ok(DESCRIPTORS.get_or_init(|| directory))
        }
    }
}

/// Returns whether both belong to the same file.
pub(crate) fn is_same_file(one: &Stat, other: &Stat) -> bool {
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
    for _ in 0..MAX_RETRIES {
        match rustix::fs::openat2(directory, rest, flags, Mode::empty(), resolve) {
            Err(error @ (Errno::AGAIN | Errno::INTR)) => last = error,
            decided => return decided,
        }
    }
    Err(last)
}
