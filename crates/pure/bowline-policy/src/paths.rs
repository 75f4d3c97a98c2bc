//! Lexical path checks: whether a path is well formed and inside a session's directories.
//!
//! This is the lexical half of admission. It resolves `..` without touching the disk, so an admitted path may still
//! lead elsewhere through a link; the engine opens the normal form beneath its root and makes the final check. A
//! lexical refusal is final.

use std::fmt;
use std::path::Path;

use bowline_protocol::rpc_error::RpcError;
use bowline_text::display::quote;

mod protection;

pub(crate) use protection::{PatternComponent, find_protected_components};
pub use protection::{Protection, find_possible_repositories, find_protection};

/// The maximum length of a path, in bytes: the `PATH_MAX` of Linux.
pub const MAX_PATH_BYTES: usize = 4096;
/// The maximum number of components in a path, `.` and `..` included.
pub const MAX_COMPONENTS: usize = 256;
/// The maximum number of directories in a session.
pub const MAX_ROOTS: usize = 64;

/// An absolute path in normal form: no `.`, no `..`, no doubled or trailing `/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LexicalPath {
    requested: String,
    // Invariant: starts with `/`; every component is non-empty and neither `.` nor `..`.
    normal: String,
}

/// What is wrong with the text of a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It is empty.
    #[error("the path is empty, send an absolute path")]
    Empty,
    /// It is longer than [`MAX_PATH_BYTES`].
    #[error("the path is {bytes} bytes long, at most {MAX_PATH_BYTES} are allowed")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// It has more than [`MAX_COMPONENTS`] components.
    #[error("the path has {components} components, at most {MAX_COMPONENTS} are allowed")]
    TooDeep {
        /// The number of components.
        components: usize,
    },
    /// It is not UTF-8, which the protocol requires.
    #[error("the path is not UTF-8")]
    NotUtf8,
    /// It has a NUL character, which would end it early.
    #[error("the path {0:?} has a NUL character")]
    ContainsNul(String),
    /// It starts with `~`, which only a shell understands.
    #[error("{} starts with ~, send an absolute path", quote(.0))]
    HomeRelative(String),
    /// It is a URL.
    #[error("{} is a URL, send an absolute path", quote(.0))]
    FileUrl(String),
    /// It does not start with `/`.
    #[error("{} is relative, send an absolute path", quote(.0))]
    Relative(String),
    /// It climbs above `/`, outside every root.
    #[error("{} is outside the session's directories", quote(.0))]
    AboveRoot(String),
}

impl LexicalPath {
    /// Parses a path.
    ///
    /// # Errors
    /// Returns what is wrong with the text. `Empty`, `TooLong` and `TooDeep` do not quote it, because it may be long.
    pub fn parse(path: impl AsRef<Path>) -> Result<Self, PathError> {
        let requested = path.as_ref().as_os_str();
        if requested.is_empty() {
            return Err(PathError::Empty);
        }
        if requested.len() > MAX_PATH_BYTES {
            return Err(PathError::TooLong { bytes: requested.len() });
        }
        let requested = requested.to_str().ok_or(PathError::NotUtf8)?;
        if requested.contains('\0') {
            return Err(PathError::ContainsNul(requested.to_owned()));
        }
        if requested.starts_with('~') {
            return Err(PathError::HomeRelative(requested.to_owned()));
        }
        if requested.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("file:")) {
            return Err(PathError::FileUrl(requested.to_owned()));
        }
        if !requested.starts_with('/') {
            return Err(PathError::Relative(requested.to_owned()));
        }
        let components = components(requested).count();
        if components > MAX_COMPONENTS {
            return Err(PathError::TooDeep { components });
        }
        let normal = normalise_path(requested).ok_or_else(|| PathError::AboveRoot(requested.to_owned()))?;
        Ok(Self { requested: requested.to_owned(), normal })
    }

    /// Returns the path as it was requested.
    #[must_use]
    pub fn requested(&self) -> &str {
        &self.requested
    }

    /// Returns the normal form.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.normal
    }

    /// Returns the components, starting below `/`.
    pub fn components(&self) -> impl Iterator<Item = &str> {
        components(&self.normal)
    }

    /// Returns the rest of the path below `root`, if it is `root` or lies below it. Whole components are compared, so
    /// `/project-evil` is not below `/project`.
    #[must_use]
    pub fn strip_root(&self, root: &LexicalPath) -> Option<&str> {
        path_below(&self.normal, &root.normal)
    }
}

/// Returns a normalised path relative to a directory that it lies below; empty if it is the directory itself.
#[must_use]
pub fn path_below<'p>(path: &'p str, directory: &str) -> Option<&'p str> {
    let rest = path.strip_prefix(directory.trim_end_matches('/'))?;
    if rest.is_empty() { Some("") } else { rest.strip_prefix('/') }
}

impl fmt::Display for LexicalPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.normal)
    }
}

/// The access requested for a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// Reading it.
    Read,
    /// Creating, changing or removing it.
    Write,
}

/// The access that a root permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RootMode {
    /// Reading.
    ReadOnly,
    /// Reading and writing.
    Writable,
}

/// A directory of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// Its path.
    pub path: LexicalPath,
    /// The access it permits.
    pub mode: RootMode,
}

/// The directories of a session: its cwd and any additional directories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    // Invariant: at least one, the cwd, which comes first; at most `MAX_ROOTS`; no duplicate paths.
    roots: Vec<Root>,
}

/// A session would have more than [`MAX_ROOTS`] directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a session has at most {MAX_ROOTS} directories")]
pub struct TooManyRootsError;

/// Why a path is refused. It names only the requested path, so an agent learns neither where the roots are nor what
/// lies outside them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionError {
    /// The path is malformed.
    #[error(transparent)]
    InvalidPath(#[from] PathError),
    /// The path is below no root.
    #[error("{} is outside the session's directories", quote(.0))]
    OutsideRoots(String),
    /// The access is a write and the root is read-only.
    #[error("{} is in a directory that this session may only read", quote(.0))]
    ReadOnlyRoot(String),
}

/// A path that passed the lexical check against a session's roots. Only [`Roots::admit`] makes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LexicallyAdmittedPath<'a> {
    path: &'a LexicalPath,
    root: &'a Root,
    access: Access,
}

impl Roots {
    /// Creates the roots of a session that has only a cwd.
    #[must_use]
    pub fn new(cwd: Root) -> Self {
        Self { roots: vec![cwd] }
    }

    /// Adds a directory. A directory that is already present is not duplicated; it becomes read-only if either entry
    /// is.
    ///
    /// # Errors
    /// Returns [`TooManyRootsError`] if there are [`MAX_ROOTS`] already.
    pub fn add(&mut self, root: Root) -> Result<(), TooManyRootsError> {
        if let Some(known) = self.roots.iter_mut().find(|known| known.path.normal == root.path.normal) {
            if root.mode == RootMode::ReadOnly {
                known.mode = RootMode::ReadOnly;
            }
            return Ok(());
        }
        if self.roots.len() >= MAX_ROOTS {
            return Err(TooManyRootsError);
        }
        self.roots.push(root);
        Ok(())
    }

    /// Returns the directories, the cwd first.
    pub fn iter(&self) -> impl Iterator<Item = &Root> {
        self.roots.iter()
    }

    /// Admits a path inside one of the directories. Where directories are nested, the innermost decides.
    ///
    /// # Errors
    /// Returns an [`AdmissionError`] if the path is inside no directory, or if the access is a write and the
    /// directory is read-only.
    pub fn admit<'a>(
        &'a self,
        path: &'a LexicalPath,
        access: Access,
    ) -> Result<LexicallyAdmittedPath<'a>, AdmissionError> {
        // Of several directories that contain the path, the innermost has the longest name.
        let innermost = self
            .roots
            .iter()
            .filter(|root| path.strip_root(&root.path).is_some())
            .max_by_key(|root| root.path.normal.len());
        let Some(root) = innermost else {
            return Err(AdmissionError::OutsideRoots(path.requested.clone()));
        };
        if access == Access::Write && root.mode == RootMode::ReadOnly {
            return Err(AdmissionError::ReadOnlyRoot(path.requested.clone()));
        }
        Ok(LexicallyAdmittedPath { path, root, access })
    }
}

impl LexicallyAdmittedPath<'_> {
    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> &LexicalPath {
        self.path
    }

    /// Returns the root that admitted it.
    #[must_use]
    pub fn root(&self) -> &Root {
        self.root
    }

    /// Returns the path relative to the root; empty if it is the root itself.
    #[must_use]
    pub fn relative_path(&self) -> &str {
        self.path.strip_root(&self.root.path).unwrap_or_default()
    }

    /// Returns the access it was admitted for.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// Returns the protection that guards the path against its access. Only names below the root count: a session in
    /// `~/.claude/worktrees/x` works there as anywhere else, because the user chose it.
    #[must_use]
    pub fn protection(&self) -> Option<Protection> {
        protection::classify(self.relative_path(), self.access)
    }
}

fn components(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty())
}

/// Returns the normal form, or `None` if the path climbs above `/`.
fn normalise_path(path: &str) -> Option<String> {
    let is_normal = path.len() > 1 && path.split('/').skip(1).all(|name| !matches!(name, "" | "." | ".."));
    if is_normal {
        return Some(path.to_owned());
    }
    let mut names = Vec::new();
    for name in components(path) {
        match name {
            "." => {}
            ".." => {
                names.pop()?;
            }
            name => names.push(name),
        }
    }
    Some(format!("/{}", names.join("/")))
}

impl From<PathError> for RpcError {
    fn from(error: PathError) -> Self {
        match error {
            PathError::Relative(path) | PathError::HomeRelative(path) | PathError::FileUrl(path) => {
                RpcError::RelativePath { path }
            }
            PathError::AboveRoot(path) => RpcError::OutsideRoots { path },
            error @ (PathError::Empty
            | PathError::TooLong { .. }
            | PathError::TooDeep { .. }
            | PathError::NotUtf8
            | PathError::ContainsNul(_)) => RpcError::InvalidParams { reason: error.to_string() },
        }
    }
}

impl From<AdmissionError> for RpcError {
    fn from(refusal: AdmissionError) -> Self {
        match refusal {
            AdmissionError::InvalidPath(error) => error.into(),
            AdmissionError::OutsideRoots(path) => RpcError::OutsideRoots { path },
            refusal @ AdmissionError::ReadOnlyRoot(_) => {
                RpcError::InvalidParams { reason: refusal.to_string() }
            }
        }
    }
}

#[cfg(test)]
mod tests;
