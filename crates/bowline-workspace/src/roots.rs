//! The directories of a session as open handles, and the single path resolver for all operations.
//!
//! A path is first checked by its text ([`bowline_policy::paths`]), then resolved beneath its root: by the kernel where
//! possible (`openat2`), else by a walk that opens one component at a time without following links implicitly. The
//! canonical result is checked again. No path is ever resolved a second time from text that could lead elsewhere by
//! then: later operations use handles, and names below them in which a link is an error.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use bowline_policy::grants::FileId;
use bowline_policy::operation::{Operation, OperationKind, OperationTarget};
use bowline_policy::paths::{
    self, Access, AdmissionError, LexicalPath, LexicallyAdmittedPath, MAX_ROOTS, PathError, Protection, Root,
    RootMode,
};
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use crate::disk::replace::is_temp_name;

mod handles;
mod identity;
mod kernel;
mod repository;
mod walk;

pub(crate) use handles::{FileLocation, SpecialFile};
pub(crate) use kernel::{is_same_file, is_system_file_system};
pub(crate) use repository::{GitRepositories, find_git_objects};

/// A directory that a session may work in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootSpec {
    /// Its path, in any spelling.
    pub path: String,
    /// The access it allows.
    pub mode: RootMode,
}

impl RootSpec {
    /// Returns a writable root.
    #[must_use]
    pub fn writable(path: impl Into<String>) -> Self {
        Self { path: path.into(), mode: RootMode::Writable }
    }

    /// Returns a read-only root.
    #[must_use]
    pub fn read_only(path: impl Into<String>) -> Self {
        Self { path: path.into(), mode: RootMode::ReadOnly }
    }
}

/// Why a directory cannot be a root.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    /// Its path is invalid.
    #[error(transparent)]
    Path(#[from] PathError),
    /// There are too many roots.
    #[error(transparent)]
    TooMany(#[from] paths::TooManyRootsError),
    /// It cannot be opened.
    #[error("cannot open the directory {path}: {why}")]
    Open {
        /// The directory.
        path: String,
        /// The system's error.
        why: std::io::Error,
    },
}

/// Why a path is not admitted. The error names only the requested path.
#[derive(Debug, thiserror::Error)]
pub enum AdmitError {
    /// Refused by its text, or by where it leads.
    #[error(transparent)]
    Refused(#[from] AdmissionError),
    /// Nothing exists there, and nothing can be created there.
    #[error("{0} does not exist")]
    NotFound(String),
    /// An intermediate component is a file.
    #[error("a name on the way to {0} is not a directory")]
    NotADirectory(String),
    /// Its links form a loop or are too many.
    #[error("{0} leads through too many links")]
    TooManyLinks(String),
    /// It belongs to Bowline: its journal or its policy.
    #[error("{0} belongs to Bowline itself, agents cannot reach it")]
    BowlineOwned(String),
    /// Its name has the form of Bowline's temporary files.
    #[error("{0} is named as Bowline's temporary files are: choose another name")]
    TemporaryName(String),
    /// It is on a virtual file system, such as `/proc`.
    #[error("{0} is on a system file system, which holds no files of a project")]
    SystemFileSystem(String),
    /// Its root is no longer where it was opened.
    #[error(
        "the project directory {0} was moved, deleted, replaced or unmounted: restart Bowline where it is now"
    )]
    RootMoved(String),
    /// The path kept changing while it was being resolved.
    #[error("{0} keeps changing places, try again")]
    KeepsChanging(String),
    /// A system call failed.
    #[error("cannot open {path}: {why}")]
    System {
        /// The requested path.
        path: String,
        /// The system's error.
        why: std::io::Error,
    },
}

/// One root: its handle and its paths.
#[derive(Debug)]
struct OpenRoot {
    // As given; it may contain links.
    given: LexicalPath,
    canonical: LexicalPath,
    mode: RootMode,
    directory: OwnedFd,
    device: u64,
    inode: u64,
}

/// A root as a handle from which paths below it can be opened; it cannot itself be read (`O_PATH`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct RootHandle<'a> {
    pub(crate) canonical: &'a LexicalPath,
    pub(crate) directory: &'a OwnedFd,
    pub(crate) device: u64,
}

/// The directories of a session, held open.
#[derive(Debug, Clone)]
pub struct Roots {
    // Invariant: never empty; the cwd is the first.
    open_roots: Arc<Vec<OpenRoot>>,
    // The same roots for lexical checks, as given and canonical.
    given: paths::Roots,
    canonical: paths::Roots,
    // Canonical paths of Bowline's own files.
    reserved_paths: Arc<Vec<LexicalPath>>,
    resolver: Resolver,
}

/// How paths are resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolver {
    /// By the kernel, with `openat2`; by the walk where the kernel cannot decide.
    Kernel,
    /// By the walk alone.
    Walk,
}

impl Resolver {
    /// Returns the best resolver that this system supports.
    #[must_use]
    pub fn detect() -> Self {
        if kernel::is_available() { Self::Kernel } else { Self::Walk }
    }
}

/// A resolved path, admitted for one kind of access. Only [`Roots::admit`] makes one.
#[derive(Debug)]
pub struct AdmittedPath {
    requested: String,
    // Invariant: below a root that allows the access, and free of links when it was resolved.
    canonical: LexicalPath,
    root: usize,
    target: Option<FileHandle>,
    protection: Option<Protection>,
}

/// The file that a path led to.
#[derive(Debug)]
pub struct FileHandle {
    /// A handle without read access (`O_PATH`).
    pub(crate) handle: OwnedFd,
    /// Its metadata.
    pub(crate) stat: Stat,
}

impl FileHandle {
    pub(crate) fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }
}

impl AdmittedPath {
    /// Returns the requested path.
    #[must_use]
    pub fn requested_path(&self) -> &str {
        &self.requested
    }

    /// Returns the canonical path, by which journal, ledger and documents identify the file.
    #[must_use]
    pub fn canonical(&self) -> &str {
        self.canonical.as_str()
    }

    /// Returns whether the file exists.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.target.is_some()
    }

    /// Returns the file's identity, if it exists.
    #[must_use]
    pub fn file_id(&self) -> Option<FileId> {
        let stat = &self.target.as_ref()?.stat;
        Some(FileId { device: stat.st_dev, inode: stat.st_ino })
    }

    /// Returns how many hard links the file has; 1 if it does not exist.
    #[must_use]
    pub fn link_count(&self) -> u64 {
        self.target.as_ref().map_or(1, |found| found.stat.st_nlink)
    }

    /// Returns an operation on this path, for the policy to judge.
    #[must_use]
    pub fn operation(&self, kind: OperationKind) -> Operation {
        let target = OperationTarget::File {
            requested: self.requested.clone(),
            resolved: self.canonical().to_owned(),
            protection: self.protection,
        };
        Operation { kind, target }
    }

    /// Returns why the path is protected, so that a person must be asked first: by the requested path, or by the
    /// canonical one.
    #[must_use]
    pub fn protection(&self) -> Option<Protection> {
        self.protection
    }

    /// Closes the handle once the target has been inspected: many admitted paths may be waiting.
    pub(crate) fn close_handle(&mut self) {
        self.target = None;
    }

    pub(crate) fn target(&self) -> Option<&FileHandle> {
        self.target.as_ref()
    }
}

/// How many times a resolution is restarted because the path changed.
const MAX_RESOLVE_ATTEMPTS: usize = 16;

/// The result of resolving a path.
pub(crate) enum ResolveOutcome {
    /// An existing file, with its canonical path.
    Existing(FileHandle, LexicalPath),
    /// A missing file, with the canonical path that it would have.
    Missing(LexicalPath),
}

/// Why a path could not be resolved.
pub(crate) enum ResolveError {
    Outside,
    NotFound,
    NotADirectory,
    TooManyLinks,
    // The path changed during resolution.
    Raced,
    System(Errno),
}

impl Roots {
    /// Opens the directories of a session: the cwd first, then additional ones.
    ///
    /// # Errors
    /// Returns what is wrong with the first directory that cannot be a root.
    pub fn open(cwd: &RootSpec, more: &[RootSpec]) -> Result<Self, RootError> {
        Self::open_with(cwd, more, Resolver::detect())
    }

    /// As [`Roots::open`], with a given resolver.
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
                return Err(paths::TooManyRootsError.into());
            }
            given.add(entry(&root.given, root.mode))?;
            canonical.add(entry(&root.canonical, root.mode))?;
            open.push(root);
        }
        Ok(Self { open_roots: Arc::new(open), given, canonical, reserved_paths: Arc::default(), resolver })
    }

    /// Returns the roots with these directories or files excluded from access, in whichever root they lie: Bowline's
    /// own state. They need not exist yet.
    #[must_use]
    pub fn with_reserved_paths(mut self, own: impl IntoIterator<Item = impl AsRef<Path>>) -> Self {
        let canonical = |path: &Path| {
            let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
            LexicalPath::parse(real).ok()
        };
        let own = own.into_iter().filter_map(|path| canonical(path.as_ref()));
        self.reserved_paths = Arc::new(self.reserved_paths.iter().cloned().chain(own).collect());
        self
    }

    /// Returns the excluded paths.
    pub(crate) fn reserved_paths(&self) -> Vec<String> {
        self.reserved_paths.iter().map(|path| path.as_str().to_owned()).collect()
    }

    /// Returns the canonical cwd.
    #[must_use]
    pub fn cwd(&self) -> &str {
        self.open_roots[0].canonical.as_str()
    }

    /// Returns the canonical roots, the cwd first.
    pub fn iter(&self) -> impl Iterator<Item = (&str, RootMode)> {
        self.open_roots.iter().map(|root| (root.canonical.as_str(), root.mode))
    }

    /// Returns the roots as handles for walking, the cwd first; each directory once.
    pub(crate) fn handles(&self) -> impl Iterator<Item = RootHandle<'_>> {
        let first = |at: usize| {
            !self.open_roots[..at].iter().any(|root| root.canonical == self.open_roots[at].canonical)
        };
        self.open_roots.iter().enumerate().filter(move |(at, _)| first(*at)).map(|(_, root)| RootHandle {
            canonical: &root.canonical,
            directory: &root.directory,
            device: root.device,
        })
    }

    /// Returns whether a canonical path is excluded from access.
    pub(crate) fn is_reserved(&self, canonical: &str) -> bool {
        self.reserved_paths.iter().any(|own| own.as_str() == canonical)
    }

    /// Admits a path and resolves it.
    ///
    /// # Errors
    /// Returns why it was not admitted; the error names only the requested path.
    pub fn admit(&self, path: &str, access: Access) -> Result<AdmittedPath, AdmitError> {
        // Read each time: the user may create a repository, or change its configuration, at any time.
        self.admit_with(path, access, &GitRepositories::default())
    }

    /// As [`Roots::admit`], for many paths at once: the repositories are read for the first one only.
    pub(crate) fn admit_with(
        &self,
        path: &str,
        access: Access,
        repositories: &GitRepositories,
    ) -> Result<AdmittedPath, AdmitError> {
        let path = LexicalPath::parse(path).map_err(AdmissionError::from)?;
        let by_text = self.admit_text(&path, access)?;
        for _ in 0..MAX_RESOLVE_ATTEMPTS {
            return match self.resolve(&path) {
                Ok(ResolveOutcome::Existing(found, canonical)) => {
                    let names = (by_text.protection(), canonical);
                    self.admit_resolved(&path, access, names, Some(found), repositories)
                }
                Ok(ResolveOutcome::Missing(canonical)) => {
                    let names = (by_text.protection(), canonical);
                    self.admit_resolved(&path, access, names, None, repositories)
                }
                Err(ResolveError::Raced) => continue,
                Err(lost) => Err(self.explain_resolve_error(&path, lost)),
            };
        }
        Err(AdmitError::KeepsChanging(path.requested().to_owned()))
    }

    /// Admits a path for reading if that needs no disk access: the file exists, and the kernel has its path cached,
    /// without links.
    pub(crate) fn try_admit(&self, path: &str) -> Option<AdmittedPath> {
        if self.resolver != Resolver::Kernel {
            return None;
        }
        let path = LexicalPath::parse(path).ok()?;
        let by_text = self.admit_text(&path, Access::Read).ok()?;
        let (root, rest) = self.innermost_root(&path)?;
        let (found, canonical) = kernel::resolve_cached(&self.open_roots[root], rest)?;
        let (names, repositories) = ((by_text.protection(), canonical), GitRepositories::default());
        self.admit_resolved(&path, Access::Read, names, Some(found), &repositories).ok()
    }

    /// Returns whether nothing exists at a path below a root, if one system call can tell.
    pub(crate) fn is_missing(&self, path: &str) -> bool {
        self.resolver == Resolver::Kernel
            && LexicalPath::parse(path).is_ok_and(|path| {
                let below = self.innermost_root(&path);
                below.is_some_and(|(root, rest)| kernel::is_missing(&self.open_roots[root], rest))
            })
    }

    /// Returns an operation on a canonical path whose file is gone, perhaps with its directory, for the policy to judge;
    /// `None` if a path like it is not accessible. The path is judged by its text alone.
    #[must_use]
    pub fn removed_path_operation(&self, canonical: &str, kind: OperationKind) -> Option<Operation> {
        let path = LexicalPath::parse(canonical).ok()?;
        let admitted = self.canonical.admit(&path, Access::Read).ok()?;
        let is_reserved = self.reserved_paths.iter().any(|own| path.strip_root(own).is_some());
        let target = OperationTarget::File {
            requested: canonical.to_owned(),
            resolved: canonical.to_owned(),
            protection: admitted.protection(),
        };
        (!is_reserved).then_some(Operation { kind, target })
    }

    /// Admits by the text, with the roots as given or canonical. Both spellings agree on writability, since a root has
    /// one mode.
    fn admit_text<'a>(
        &'a self,
        path: &'a LexicalPath,
        access: Access,
    ) -> Result<LexicallyAdmittedPath<'a>, AdmissionError> {
        match self.given.admit(path, access) {
            Err(AdmissionError::OutsideRoots(_)) => self.canonical.admit(path, access),
            decided => decided,
        }
    }

    fn admit_resolved(
        &self,
        path: &LexicalPath,
        access: Access,
        (by_text, canonical): (Option<Protection>, LexicalPath),
        found: Option<FileHandle>,
        repositories: &GitRepositories,
    ) -> Result<AdmittedPath, AdmitError> {
        let asked = || path.requested().to_owned();
        let by_name = self.canonical.admit(&canonical, access).map_err(|refusal| match refusal {
            // The original error would reveal where the path leads.
            AdmissionError::ReadOnlyRoot(_) => AdmissionError::ReadOnlyRoot(asked()),
            _ => AdmissionError::OutsideRoots(asked()),
        })?;
        // A file with the name form of our temporary files would be invisible to scans.
        let is_temporary = access == Access::Write && canonical.components().last().is_some_and(is_temp_name);
        if self.reserved_paths.iter().any(|own| canonical.strip_root(own).is_some()) {
            return Err(AdmitError::BowlineOwned(asked()));
        }
        if is_temporary {
            return Err(AdmitError::TemporaryName(asked()));
        }
        let root = self
            .open_roots
            .iter()
            .position(|root| root.canonical == by_name.root().path)
            .ok_or_else(|| AdmissionError::OutsideRoots(asked()))?;
        self.verify_root(root)?;
        if let Some(found) = &found
            && found.stat.st_dev != self.open_roots[root].device
            && kernel::is_system_file_system(found.handle.as_fd())
        {
            return Err(AdmitError::SystemFileSystem(asked()));
        }
        let in_repository = || {
            let pointed = repositories.of(&self.open_roots).iter();
            let pointed = pointed.filter_map(|repository| repository.protection(&canonical)).next();
            let changes = || {
                let below = canonical.strip_root(&self.open_roots[root].canonical)?;
                let changes = repository::changes_repository(&self.open_roots[root].directory, below);
                changes.then_some(Protection::Repository)
            };
            pointed.or_else(changes)
        };
        let in_repository = || (access == Access::Write).then(in_repository).flatten();
        // The same name is not classified twice.
        let by_canonical_name =
            || if canonical.as_str() == path.as_str() { None } else { by_name.protection() };
        let protection = by_text.or_else(by_canonical_name).or_else(in_repository);
        Ok(AdmittedPath { requested: asked(), canonical, root, target: found, protection })
    }

    fn resolve(&self, path: &LexicalPath) -> Result<ResolveOutcome, ResolveError> {
        let Some((root, rest)) = self.innermost_root(path) else { return Err(ResolveError::Outside) };
        if self.resolver == Resolver::Kernel
            && let Some(resolved) = kernel::resolve(&self.open_roots[root], rest)
        {
            return resolved;
        }
        walk::resolve(self, root, rest)
    }

    /// Returns the innermost root that lexically contains a path, and the rest of the path.
    fn innermost_root<'a>(&self, path: &'a LexicalPath) -> Option<(usize, &'a str)> {
        let below =
            |root: &OpenRoot| path.strip_root(&root.canonical).or_else(|| path.strip_root(&root.given));
        self.open_roots
            .iter()
            .enumerate()
            .filter_map(|(index, root)| Some((index, below(root)?)))
            .min_by_key(|(_, rest)| rest.len())
    }
}

fn open_root(spec: &RootSpec) -> Result<OpenRoot, RootError> {
    let given = LexicalPath::parse(&spec.path)?;
    let failed = |why: std::io::Error| RootError::Open { path: given.requested().to_owned(), why };
    let real = std::fs::canonicalize(given.as_str()).map_err(failed)?;
    let canonical = LexicalPath::parse(&real)?;
    let directory = kernel::open_directory(canonical.as_str()).map_err(|why| failed(why.into()))?;
    let stat = rustix::fs::fstat(&directory).map_err(|why| failed(why.into()))?;
    Ok(OpenRoot { given, canonical, mode: spec.mode, directory, device: stat.st_dev, inode: stat.st_ino })
}
