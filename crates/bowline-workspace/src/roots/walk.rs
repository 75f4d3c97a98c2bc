//! Resolution by walking: one name after the other, each opened without following links, links read and followed here.
//!
//! It serves where the kernel cannot: systems without `openat2`, links that lead back inside by an absolute path, links
//! from one root to another, and names that are missing. It can never leave a root, because it opens names only below a
//! handle that it already holds. Its one weakness against the kernel: a directory that is moved out of the root after it
//! was opened goes on being used; where `/proc` names handles, that is found out at the end.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use bowline_state::paths::LexicalPath;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::{Found, Lost, Resolved, Roots, kernel};

/// As many links as Linux follows in one path.
const MAX_LINKS: usize = 40;

/// More names than any path has; links can add to them.
const MAX_STEPS: usize = 4096;

struct Walk<'a> {
    roots: &'a Roots,
    root: usize,
    // The directories on the way from the root, each in the one before it.
    way: Vec<(OwnedFd, String)>,
    // Names still to be gone through.
    ahead: VecDeque<String>,
    links: usize,
}

pub(super) fn resolve(roots: &Roots, root: usize, rest: &str) -> Result<Resolved, Lost> {
    let ahead = names(rest).collect();
    Walk { roots, root, way: Vec::new(), ahead, links: 0 }.run()
}

fn names(path: &str) -> impl DoubleEndedIterator<Item = String> + '_ {
    path.split('/').filter(|name| !name.is_empty() && *name != ".").map(str::to_owned)
}

impl Walk<'_> {
    fn run(mut self) -> Result<Resolved, Lost> {
        for _ in 0..MAX_STEPS {
            let Some(next) = self.ahead.pop_front() else { return self.arrived() };
            if next == ".." {
                self.up()?;
                continue;
            }
            let handle = match self.open(&next) {
                Ok(handle) => handle,
                Err(Errno::NOENT) => return self.missing(next),
                Err(Errno::NOTDIR) => return Err(Lost::NotADirectory),
                Err(error) => return Err(Lost::System(error)),
            };
            let stat = rustix::fs::fstat(&handle).map_err(Lost::System)?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Symlink => self.follow(&handle)?,
                FileType::Directory => self.way.push((handle, next)),
                _ if self.ahead.is_empty() => {
                    let canonical = self.name_of(Some(&next))?;
                    self.check_place(&handle, &canonical)?;
                    return Ok(Resolved::Found(Found { handle, stat }, canonical));
                }
                _ => return Err(Lost::NotADirectory),
            }
        }
        Err(Lost::TooManyLinks)
    }

    fn open(&self, name: &str) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let here = self.here();
        rustix::io::retry_on_intr(|| rustix::fs::openat(here, name, flags, Mode::empty()))
    }

    fn here(&self) -> &OwnedFd {
        self.way.last().map_or(&self.roots.open[self.root].directory, |(handle, _)| handle)
    }

    /// Goes to the parent. Above the root there may be another root that the names ahead lead into.
    fn up(&mut self) -> Result<(), Lost> {
        if self.way.pop().is_some() {
            return Ok(());
        }
        // The root's canonical name has no links, so going up in it by its text is right; but a name outside of every
        // root may be a link, so nothing may be gone up again after one.
        let mut outside: Vec<String> =
            self.roots.open[self.root].canonical.components().map(str::to_owned).collect();
        outside.pop().ok_or(Lost::Outside)?;
        while self.ahead.front().is_some_and(|next| next == "..") {
            self.ahead.pop_front();
            outside.pop().ok_or(Lost::Outside)?;
        }
        let rest: Vec<String> = outside.into_iter().chain(self.ahead.drain(..)).collect();
        self.enter(&rest)
    }

    /// Starts again at the root that an absolute path leads into.
    fn enter(&mut self, path: &[String]) -> Result<(), Lost> {
        let into = |root: &LexicalPath| {
            let mut rest = path.iter();
            root.components().all(|name| rest.next().is_some_and(|next| next == name)).then(|| rest.len())
        };
        let innermost = self
            .roots
            .open
            .iter()
            .enumerate()
            .filter_map(|(index, root)| Some((index, into(&root.canonical).or_else(|| into(&root.given))?)))
            .min_by_key(|(_, rest)| *rest);
        let (root, rest) = innermost.ok_or(Lost::Outside)?;
        self.root = root;
        self.way.clear();
        self.ahead = path[path.len() - rest..].iter().cloned().collect();
        Ok(())
    }

    fn follow(&mut self, link: &OwnedFd) -> Result<(), Lost> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(Lost::TooManyLinks);
        }
        let target = rustix::fs::readlinkat(link, "", Vec::new()).map_err(Lost::System)?;
        // A path of the protocol is UTF-8, and so are the names of roots; what is not leads elsewhere.
        let target = target.into_string().map_err(|_| Lost::Outside)?;
        if target.starts_with('/') {
            let path: Vec<String> = names(&target).chain(self.ahead.drain(..)).collect();
            return self.enter(&path);
        }
        for name in names(&target).rev() {
            self.ahead.push_front(name);
        }
        Ok(())
    }

    fn arrived(self) -> Result<Resolved, Lost> {
        let canonical = self.name_of(None)?;
        let handle = rustix::io::fcntl_dupfd_cloexec(self.here(), 0).map_err(Lost::System)?;
        self.check_place(&handle, &canonical)?;
        let stat = rustix::fs::fstat(&handle).map_err(Lost::System)?;
        Ok(Resolved::Found(Found { handle, stat }, canonical))
    }

    fn missing(self, name: String) -> Result<Resolved, Lost> {
        // To go up from a directory that does not exist leads nowhere.
        if self.ahead.iter().any(|name| name == "..") {
            return Err(Lost::NotFound);
        }
        let canonical = self.name_of(None)?;
        self.check_place(self.here(), &canonical)?;
        let rest: Vec<String> = std::iter::once(name).chain(self.ahead.iter().cloned()).collect();
        let missing = LexicalPath::parse(format!("{canonical}/{}", rest.join("/")));
        missing.map(Resolved::Missing).map_err(|_| Lost::System(Errno::NAMETOOLONG))
    }

    fn name_of(&self, last: Option<&str>) -> Result<LexicalPath, Lost> {
        let mut name = self.roots.open[self.root].canonical.as_str().trim_end_matches('/').to_owned();
        for part in self.way.iter().map(|(_, name)| name.as_str()).chain(last) {
            name.push('/');
            name.push_str(part);
        }
        if name.is_empty() {
            name.push('/');
        }
        LexicalPath::parse(name).map_err(|_| Lost::System(Errno::NAMETOOLONG))
    }

    /// Finds out whether a directory on the way was moved while it was walked through.
    fn check_place(&self, handle: &OwnedFd, canonical: &LexicalPath) -> Result<(), Lost> {
        let Some(now) = kernel::name(handle) else { return Ok(()) };
        if now == canonical.as_str() {
            return Ok(());
        }
        let root = &self.roots.open[self.root];
        // A root that was moved as a whole goes on under the names that it had.
        let moved = kernel::name(&root.directory).filter(|moved| *moved != root.canonical.as_str());
        let rest = canonical.below(&root.canonical).unwrap_or_default();
        let expected = |moved: String| format!("{}/{rest}", moved.trim_end_matches('/'));
        let fine = moved.map(expected).is_some_and(|there| there.trim_end_matches('/') == now);
        if fine { Ok(()) } else { Err(Lost::Raced) }
    }
}

/// Opens a name below a directory in which no link is allowed.
pub(super) fn open_without_links(directory: impl AsFd, rest: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut here = rustix::io::fcntl_dupfd_cloexec(directory, 0)?;
    let mut ahead = names(rest).peekable();
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
