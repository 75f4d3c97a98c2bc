//! The directories of a session as open handles, and the one resolver that every operation goes through.
//!
//! A path is first judged by its text ([`bowline_state::paths`]), then resolved beneath its root: by the kernel where
//! it can (`openat2`), else by a walk that opens one name after the other and follows no link by itself. Where it ended
//! up is judged again, by the name without links. Nothing is ever resolved a second time from a text that may lead
//! elsewhere by then: what follows works on handles, and on names below them in which a link is an error.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use bowline_state::grants::FileId;
use bowline_state::operation::{Kind, Operation, Target};
use bowline_state::paths::{
    self, Access, LexicalPath, LexicallyAdmitted, MAX_ROOTS, PathFault, Protection, Refusal, Root, RootMode,
};
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use crate::replace::is_temp_name;

mod identity;
mod kernel;
mod place;
mod repository;
mod walk;

pub(crate) use kernel::is_system_files;
pub(crate) use place::{Place, Special};
use repository::Repository;

/// A directory that a session may work in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootSpec {
    /// Where it is, in any spelling.
    pub path: String,
    /// What may be done below it.
    pub mode: RootMode,
}

impl RootSpec {
    /// Returns a root that may be written.
    #[must_use]
    pub fn writable(path: impl Into<String>) -> Self {
        Self { path: path.into(), mode: RootMode::Writable }
    }

    /// Returns a root that may only be read.
    #[must_use]
    pub fn read_only(path: impl Into<String>) -> Self {
        Self { path: path.into(), mode: RootMode::ReadOnly }
    }
}

/// Why a directory cannot be a root.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    /// Its path is none.
    #[error(transparent)]
    Path(#[from] PathFault),
    /// There are too many.
    #[error(transparent)]
    TooMany(#[from] paths::TooManyRoots),
    /// It cannot be opened.
    #[error("cannot open the directory {path}: {why}")]
    Open {
        /// The directory.
        path: String,
        /// What the system says.
        why: std::io::Error,
    },
}

/// Why a path is not admitted. It names the path as it was asked for and nothing outside.
#[derive(Debug, thiserror::Error)]
pub enum Denied {
    /// By its text, or by where it leads.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// There is nothing there, and nothing can be created there.
    #[error("{0} does not exist")]
    NotFound(String),
    /// A name on the way is a file.
    #[error("a name on the way to {0} is not a directory")]
    NotADirectory(String),
    /// Links lead to one another.
    #[error("{0} leads through too many links")]
    TooManyLinks(String),
    /// It belongs to Bowline itself: its journal, its rules.
    #[error("{0} belongs to Bowline itself, agents cannot reach it")]
    Own(String),
    /// It has a name of the form that temporary files of Bowline have.
    #[error("{0} is named as Bowline's temporary files are: choose another name")]
    TemporaryName(String),
    /// It is on a file system that the system makes up, such as `/proc`.
    #[error("{0} is on a system file system, which holds no files of a project")]
    SystemFiles(String),
    /// The directory of the session that it is in is no longer where it was opened.
    #[error(
        "the project directory {0} was moved, deleted, replaced or unmounted: restart Bowline where it is now"
    )]
    RootMoved(String),
    /// The names on the way changed again and again while it was looked for.
    #[error("{0} keeps changing places, try again")]
    Unsteady(String),
    /// The system refuses.
    #[error("cannot open {path}: {why}")]
    System {
        /// The path as it was asked for.
        path: String,
        /// What the system says.
        why: std::io::Error,
    },
}

/// One root: its handle, and the names it goes by.
#[derive(Debug)]
struct Open {
    // As it was given; it may lead through links.
    given: LexicalPath,
    // Without links.
    canonical: LexicalPath,
    mode: RootMode,
    directory: OwnedFd,
    device: u64,
    inode: u64,
}

/// A root as a handle that names below it can be opened from; it cannot be read itself (`O_PATH`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct RootHandle<'a> {
    pub(crate) canonical: &'a LexicalPath,
    pub(crate) directory: &'a OwnedFd,
    pub(crate) device: u64,
}

/// The directories of a session, held open.
#[derive(Debug, Clone)]
pub struct Roots {
    // Invariant: one at least; the cwd is the first.
    open: Arc<Vec<Open>>,
    // The same roots for judging texts, in both spellings.
    given: paths::Roots,
    canonical: paths::Roots,
    // Canonical names of what is Bowline's own.
    own: Arc<Vec<LexicalPath>>,
    resolver: Resolver,
}

/// Who resolves paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolver {
    /// The kernel, by `openat2`; the walk for what it cannot decide.
    Kernel,
    /// The walk alone.
    Walk,
}

impl Resolver {
    /// Returns the one that this system has.
    #[must_use]
    pub fn of_this_system() -> Self {
        if kernel::available() { Self::Kernel } else { Self::Walk }
    }
}

/// A path that may be used for what it was admitted for, resolved. Only [`Roots::admit`] makes one.
#[derive(Debug)]
pub struct Admitted {
    asked: String,
    access: Access,
    // Invariant: below a root that allows `access`, with no link on the way when it was resolved.
    canonical: LexicalPath,
    root: usize,
    found: Option<Found>,
    protection: Option<Protection>,
}

/// What a path led to.
#[derive(Debug)]
pub struct Found {
    /// A handle that reads nothing (`O_PATH`).
    pub(crate) handle: OwnedFd,
    /// What it is.
    pub(crate) stat: Stat,
}

impl Found {
    pub(crate) fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }
}

impl Admitted {
    /// Returns the path as it was asked for.
    #[must_use]
    pub fn asked(&self) -> &str {
        &self.asked
    }

    /// Returns what it was admitted for.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// Returns the path with no link on the way: the name that journal, ledger and documents know the file by.
    #[must_use]
    pub fn canonical(&self) -> &str {
        self.canonical.as_str()
    }

    /// Says whether there is something.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.found.is_some()
    }

    /// Returns the file itself, if there is one.
    #[must_use]
    pub fn file_id(&self) -> Option<FileId> {
        let stat = &self.found.as_ref()?.stat;
        Some(FileId { device: stat.st_dev, inode: stat.st_ino })
    }

    /// Returns how many names (hard links) the file has; 1 if there is none.
    #[must_use]
    pub fn link_count(&self) -> u64 {
        self.found.as_ref().map_or(1, |found| found.stat.st_nlink)
    }

    /// Returns what is to be done to it, as rules judge it.
    #[must_use]
    pub fn operation(&self, kind: Kind) -> Operation {
        let target = Target::File {
            asked: self.asked.clone(),
            resolved: self.canonical().to_owned(),
            protection: self.protection,
        };
        Operation { kind, target }
    }

    /// Returns why a person should be asked first: by the name asked for, or by the name it leads to.
    #[must_use]
    pub fn protection(&self) -> Option<Protection> {
        self.protection
    }

    /// Lets go of the handle, once what it led to has been looked at: many paths may wait for their turn.
    pub(crate) fn let_go(&mut self) {
        self.found = None;
    }

    pub(crate) fn found(&self) -> Option<&Found> {
        self.found.as_ref()
    }
}

/// How often a resolution is begun anew when names change under it.
const ATTEMPTS: usize = 16;

/// Where a path led.
pub(crate) enum Resolved {
    /// To something.
    Found(Found, LexicalPath),
    /// To nothing, in a directory that may be there: this is the name it would have.
    Missing(LexicalPath),
}

/// Why it led nowhere.
pub(crate) enum Lost {
    Outside,
    NotFound,
    NotADirectory,
    TooManyLinks,
    // Names changed while they were looked at.
    Raced,
    System(Errno),
}

impl Roots {
    /// Opens the directories of a session: the cwd first, then those it was given besides.
    ///
    /// # Errors
    /// Returns what is wrong with the first directory that cannot be a root.
    pub fn open(cwd: &RootSpec, more: &[RootSpec]) -> Result<Self, RootError> {
        Self::open_with(cwd, more, Resolver::of_this_system())
    }

    /// Opens them with a resolver of choice.
    ///
    /// # Errors
    /// As [`Roots::open`].
    pub fn open_with(cwd: &RootSpec, more: &[RootSpec], resolver: Resolver) -> Result<Self, RootError> {
        let first = open_root(cwd)?;
        let entry = |path: &LexicalPath, mode| Root { path: path.clone(), mode };
        let mut given = paths::Roots::new(entry(&first.given, first.mode));
        let mut canonical = paths::Roots::new(entry(&first.canonical, first.mode));
        let mut open = vec![first];
        for spec in more {
            let root = open_root(spec)?;
            if open.len() >= MAX_ROOTS {
                return Err(paths::TooManyRoots.into());
            }
            given.add(entry(&root.given, root.mode))?;
            canonical.add(entry(&root.canonical, root.mode))?;
            open.push(root);
        }
        Ok(Self { open: Arc::new(open), given, canonical, own: Arc::default(), resolver })
    }

    /// Returns the roots with these directories or files kept out of reach, whatever root they are in: what Bowline
    /// itself keeps there. Names that do not exist are kept out too.
    #[must_use]
    pub fn keeping_out(mut self, own: impl IntoIterator<Item = impl AsRef<Path>>) -> Self {
        let canonical = |path: &Path| {
            let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
            LexicalPath::parse(real).ok()
        };
        let own = own.into_iter().filter_map(|path| canonical(path.as_ref()));
        self.own = Arc::new(self.own.iter().cloned().chain(own).collect());
        // What is known of texts was found with other names kept out.
        self
    }

    /// Returns what is kept out of reach.
    pub(crate) fn own(&self) -> Vec<String> {
        self.own.iter().map(|path| path.as_str().to_owned()).collect()
    }

    /// Returns the cwd without links.
    #[must_use]
    pub fn cwd(&self) -> &str {
        self.open[0].canonical.as_str()
    }

    /// Returns the roots without links, the cwd first.
    pub fn iter(&self) -> impl Iterator<Item = (&str, RootMode)> {
        self.open.iter().map(|root| (root.canonical.as_str(), root.mode))
    }

    /// Returns the roots as handles to go through what is below them, the cwd first; each directory once.
    pub(crate) fn handles(&self) -> impl Iterator<Item = RootHandle<'_>> {
        let first = |at: usize| !self.open[..at].iter().any(|root| root.canonical == self.open[at].canonical);
        self.open.iter().enumerate().filter(move |(at, _)| first(*at)).map(|(_, root)| RootHandle {
            canonical: &root.canonical,
            directory: &root.directory,
            device: root.device,
        })
    }

    /// Says whether a name without links is kept out of reach.
    pub(crate) fn keeps_out(&self, canonical: &str) -> bool {
        self.own.iter().any(|own| own.as_str() == canonical)
    }

    /// Admits a path and resolves it.
    ///
    /// # Errors
    /// Returns why not; the error names nothing but the path as it was asked for.
    pub fn admit(&self, path: &str, access: Access) -> Result<Admitted, Denied> {
        let path = LexicalPath::parse(path).map_err(Refusal::from)?;
        let by_text = self.admit_text(&path, access)?;
        for _ in 0..ATTEMPTS {
            return match self.resolve(&path) {
                Ok(Resolved::Found(found, canonical)) => {
                    self.admit_resolved(&path, by_text.protection(), access, canonical, Some(found))
                }
                Ok(Resolved::Missing(canonical)) => {
                    self.admit_resolved(&path, by_text.protection(), access, canonical, None)
                }
                Err(Lost::Raced) => continue,
                Err(lost) => Err(self.describe_lost(&path, lost)),
            };
        }
        Err(Denied::Unsteady(path.asked().to_owned()))
    }

    /// Admits by the text, in either spelling of the roots. What one spelling refuses to be written the other does not
    /// allow: a root has one mode.
    fn admit_text(&self, path: &LexicalPath, access: Access) -> Result<LexicallyAdmitted, Refusal> {
        match self.given.admit(path, access) {
            Err(Refusal::Outside(_)) => self.canonical.admit(path, access),
            decided => decided,
        }
    }

    fn admit_resolved(
        &self,
        path: &LexicalPath,
        by_text: Option<Protection>,
        access: Access,
        canonical: LexicalPath,
        found: Option<Found>,
    ) -> Result<Admitted, Denied> {
        let asked = || path.asked().to_owned();
        let by_name = self.canonical.admit(&canonical, access).map_err(|refusal| match refusal {
            // The refusal would name where the path leads.
            Refusal::ReadOnly(_) => Refusal::ReadOnly(asked()),
            _ => Refusal::Outside(asked()),
        })?;
        // What bears the name of a temporary file of ours would not be seen by anybody.
        let is_temporary = access == Access::Write && canonical.components().last().is_some_and(is_temp_name);
        if self.own.iter().any(|own| canonical.below(own).is_some()) {
            return Err(Denied::Own(asked()));
        }
        if is_temporary {
            return Err(Denied::TemporaryName(asked()));
        }
        let root = self
            .open
            .iter()
            .position(|root| root.canonical == by_name.root().path)
            .ok_or_else(|| Refusal::Outside(asked()))?;
        self.verify_root(root)?;
        if let Some(found) = &found
            && found.stat.st_dev != self.open[root].device
            && kernel::is_system_files(found.handle.as_fd())
        {
            return Err(Denied::SystemFiles(asked()));
        }
        let in_repository = || {
            // Looked at each time: the user may make a repository, or change its settings, at any time.
            let repository = |root: &Open| Repository::find(&root.directory, root.canonical.as_str());
            let pointed = self.open.iter().find_map(|root| repository(root).protection(&canonical));
            let changes = || {
                let below = canonical.below(&self.open[root].canonical)?;
                let changes = repository::changes_repository(&self.open[root].directory, below);
                changes.then_some(Protection::Repository)
            };
            pointed.or_else(changes)
        };
        let in_repository = || (access == Access::Write).then(in_repository).flatten();
        let protection = by_text.or_else(|| by_name.protection()).or_else(in_repository);
        Ok(Admitted { asked: asked(), access, canonical, root, found, protection })
    }

    fn resolve(&self, path: &LexicalPath) -> Result<Resolved, Lost> {
        let Some((root, rest)) = self.enter(path) else { return Err(Lost::Outside) };
        if self.resolver == Resolver::Kernel
            && let Some(resolved) = kernel::resolve(&self.open[root], rest)
        {
            return resolved;
        }
        walk::resolve(self, root, rest)
    }

    /// Returns the innermost root that a path is in by its text, and the way from there.
    fn enter<'a>(&self, path: &'a LexicalPath) -> Option<(usize, &'a str)> {
        let below = |root: &Open| path.below(&root.canonical).or_else(|| path.below(&root.given));
        self.open
            .iter()
            .enumerate()
            .filter_map(|(index, root)| Some((index, below(root)?)))
            .min_by_key(|(_, rest)| rest.len())
    }
}

fn open_root(spec: &RootSpec) -> Result<Open, RootError> {
    let given = LexicalPath::parse(&spec.path)?;
    let failed = |why: std::io::Error| RootError::Open { path: given.asked().to_owned(), why };
    let real = std::fs::canonicalize(given.as_str()).map_err(failed)?;
    let canonical = LexicalPath::parse(&real)?;
    let directory = kernel::open_directory(canonical.as_str()).map_err(|why| failed(why.into()))?;
    let stat = rustix::fs::fstat(&directory).map_err(|why| failed(why.into()))?;
    Ok(Open { given, canonical, mode: spec.mode, directory, device: stat.st_dev, inode: stat.st_ino })
}
