//! Resolution by walking: one component at a time, each opened without following links; links are read and followed
//! here.
//!
//! The walk serves where the kernel cannot: systems without `openat2`, links that lead back inside by an absolute path,
//! links from one root to another, and missing components. It can never leave a root, because it opens names only below
//! a handle that it already holds. Its one weakness compared with the kernel: it keeps using a directory that was moved
//! out of the root after being opened; where `/proc` names handles, that is detected at the end.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use bowline_policy::paths::LexicalPath;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::{FileHandle, ResolveError, ResolveOutcome, Roots, kernel};

/// The maximum number of links in one path, as in Linux.
const MAX_LINKS: usize = 40;

/// The maximum number of components, more than any path has; links can add some.
const MAX_NAMES: usize = 4096;

struct PathWalk<'a> {
    roots: &'a Roots,
    root: usize,
    // The directories from the root down, each in the previous one.
    ancestors: Vec<(OwnedFd, String)>,
    // The components still to be resolved.
    remaining: VecDeque<String>,
    links_followed: usize,
}

pub(super) fn resolve(roots: &Roots, root: usize, rest: &str) -> Result<ResolveOutcome, ResolveError> {
    let ahead = path_names(rest).collect();
    PathWalk { roots, root, ancestors: Vec::new(), remaining: ahead, links_followed: 0 }.run()
}

fn path_names(path: &str) -> impl DoubleEndedIterator<Item = String> + '_ {
    path.split('/').filter(|name| !name.is_empty() && *name != ".").map(str::to_owned)
}

impl PathWalk<'_> {
    fn run(mut self) -> Result<ResolveOutcome, ResolveError> {
        for _ in 0..MAX_NAMES {
            let Some(next) = self.remaining.pop_front() else { return self.finish() };
            if next == ".." {
                self.go_to_parent()?;
                continue;
            }
            let handle = match self.open(&next) {
                Ok(handle) => handle,
                Err(Errno::NOENT) => return self.finish_missing(next),
                Err(Errno::NOTDIR) => return Err(ResolveError::NotADirectory),
                Err(error) => return Err(ResolveError::System(error)),
            };
            let stat = rustix::fs::fstat(&handle).map_err(ResolveError::System)?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Symlink => self.follow_link(&handle)?,
                FileType::Directory => self.ancestors.push((handle, next)),
                _ if self.remaining.is_empty() => {
                    let canonical = self.canonical_path(Some(&next))?;
                    self.check_not_moved(&handle, &canonical)?;
                    return Ok(ResolveOutcome::Existing(FileHandle { handle, stat }, canonical));
                }
                _ => return Err(ResolveError::NotADirectory),
            }
        }
        Err(ResolveError::TooManyLinks)
    }

    fn open(&self, name: &str) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let here = self.current_directory();
        rustix::io::retry_on_intr(|| rustix::fs::openat(here, name, flags, Mode::empty()))
    }

    fn current_directory(&self) -> &OwnedFd {
        self.ancestors.last().map_or(&self.roots.open_roots[self.root].directory, |(handle, _)| handle)
    }

    /// Goes to the parent. Above the root there may be another root that the remaining components lead into.
    fn go_to_parent(&mut self) -> Result<(), ResolveError> {
        if self.ancestors.pop().is_some() {
            return Ok(());
        }
        // The root's canonical path has no links, so its parent can be taken lexically. A component outside of every
        // root may be a link, so `..` is not allowed after one.
        let mut outside: Vec<String> =
            self.roots.open_roots[self.root].canonical.components().map(str::to_owned).collect();
        outside.pop().ok_or(ResolveError::Outside)?;
        while self.remaining.front().is_some_and(|next| next == "..") {
            self.remaining.pop_front();
            outside.pop().ok_or(ResolveError::Outside)?;
        }
        let rest: Vec<String> = outside.into_iter().chain(self.remaining.drain(..)).collect();
        self.enter_root(&rest)
    }

    /// Restarts at the root that an absolute path leads into.
    fn enter_root(&mut self, path: &[String]) -> Result<(), ResolveError> {
        let into = |root: &LexicalPath| {
            let mut rest = path.iter();
            root.components().all(|name| rest.next().is_some_and(|next| next == name)).then(|| rest.len())
        };
        let innermost = self
            .roots
            .open_roots
            .iter()
            .enumerate()
            .filter_map(|(index, root)| Some((index, into(&root.canonical).or_else(|| into(&root.given))?)))
            .min_by_key(|(_, rest)| *rest);
        let (root, rest) = innermost.ok_or(ResolveError::Outside)?;
        self.root = root;
        self.ancestors.clear();
        self.remaining = path[path.len() - rest..].iter().cloned().collect();
        Ok(())
    }

    fn follow_link(&mut self, link: &OwnedFd) -> Result<(), ResolveError> {
        self.links_followed += 1;
        if self.links_followed > MAX_LINKS {
            return Err(ResolveError::TooManyLinks);
        }
        let target = rustix::fs::readlinkat(link, "", Vec::new()).map_err(ResolveError::System)?;
        // Paths in the protocol and of roots are UTF-8; any other target lies outside.
        let target = target.into_string().map_err(|_| ResolveError::Outside)?;
        if target.starts_with('/') {
            let path: Vec<String> = path_names(&target).chain(self.remaining.drain(..)).collect();
            return self.enter_root(&path);
        }
        for name in path_names(&target).rev() {
            self.remaining.push_front(name);
        }
        Ok(())
    }

    fn finish(self) -> Result<ResolveOutcome, ResolveError> {
        let canonical = self.canonical_path(None)?;
        let handle =
            rustix::io::fcntl_dupfd_cloexec(self.current_directory(), 0).map_err(ResolveError::System)?;
        self.check_not_moved(&handle, &canonical)?;
        let stat = rustix::fs::fstat(&handle).map_err(ResolveError::System)?;
        Ok(ResolveOutcome::Existing(FileHandle { handle, stat }, canonical))
    }

    fn finish_missing(self, name: String) -> Result<ResolveOutcome, ResolveError> {
        // The parent of a directory that does not exist does not exist either.
        if self.remaining.iter().any(|name| name == "..") {
            return Err(ResolveError::NotFound);
        }
        let canonical = self.canonical_path(None)?;
        self.check_not_moved(self.current_directory(), &canonical)?;
        let rest: Vec<String> = std::iter::once(name).chain(self.remaining.iter().cloned()).collect();
        let missing = LexicalPath::parse(format!("{canonical}/{}", rest.join("/")));
        missing.map(ResolveOutcome::Missing).map_err(|_| ResolveError::System(Errno::NAMETOOLONG))
    }

    fn canonical_path(&self, last: Option<&str>) -> Result<LexicalPath, ResolveError> {
        let mut name = self.roots.open_roots[self.root].canonical.as_str().trim_end_matches('/').to_owned();
        for part in self.ancestors.iter().map(|(_, name)| name.as_str()).chain(last) {
            name.push('/');
            name.push_str(part);
        }
        if name.is_empty() {
            name.push('/');
        }
        LexicalPath::parse(name).map_err(|_| ResolveError::System(Errno::NAMETOOLONG))
    }

    /// Checks that no directory on the path was moved during the walk.
    fn check_not_moved(&self, handle: &OwnedFd, canonical: &LexicalPath) -> Result<(), ResolveError> {
        let Some(now) = kernel::handle_path(handle) else { return Ok(()) };
        if now == canonical.as_str() {
            return Ok(());
        }
        let root = &self.roots.open_roots[self.root];
        // A root that was moved as a whole keeps its previous paths.
        let moved = kernel::handle_path(&root.directory).filter(|moved| *moved != root.canonical.as_str());
        let rest = canonical.strip_root(&root.canonical).unwrap_or_default();
        let expected = |moved: String| format!("{}/{rest}", moved.trim_end_matches('/'));
        let fine = moved.map(expected).is_some_and(|there| there.trim_end_matches('/') == now);
        if fine { Ok(()) } else { Err(ResolveError::Raced) }
    }
}

/// Opens a path below a directory, without following any link.
pub(super) fn open_without_links(directory: impl AsFd, rest: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut here = rustix::io::fcntl_dupfd_cloexec(directory, 0)?;
    let mut ahead = path_names(rest).peekable();
    if ahead.peek().is_none() {
        return rustix::fs::openat(&here, ".", flags | OFlags::CLOEXEC, Mode::empty());
    }
    while let Some(name) = ahead.next() {
        if name == ".." {
            return Err(Errno::XDEV);
        }
        let last = ahead.peek().is_none();
        let flags = if last { flags } else { OFlags::PATH | OFlags::DIRECTORY };
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        here = rustix::io::retry_on_intr(|| rustix::fs::openat(&here, &*name, flags, Mode::empty()))?;
    }
    Ok(here)
}
