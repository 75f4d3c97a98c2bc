//! Paths by their text alone: well formed, and inside a session's directories.
//!
//! This is the lexical half of admission. It resolves `..` without a look at the disk, so what it lets through may
//! still lead elsewhere through a link; the engine opens the normal form beneath its root and has the last word. What
//! it refuses is refused for good.

use std::fmt;
use std::path::Path;

use crate::failure::quote;

mod protected;

pub(crate) use protected::{PatternName, protecting};
pub use protected::{Protection, maybe_repositories, protected};

/// A path is at most this long, in bytes: the `PATH_MAX` of Linux.
pub const MAX_PATH_BYTES: usize = 4096;
/// A path has at most this many components, `.` and `..` among them.
pub const MAX_COMPONENTS: usize = 256;
/// A session has at most this many directories.
pub const MAX_ROOTS: usize = 64;

/// An absolute path in normal form: no `.`, no `..`, no doubled or trailing `/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LexicalPath {
    asked: String,
    // Invariant: starts with `/`; every component is non-empty and neither `.` nor `..`.
    normal: String,
}

/// What is wrong with the text of a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathFault {
    /// There is no text.
    #[error("the path is empty, send an absolute path")]
    Empty,
    /// It is longer than [`MAX_PATH_BYTES`].
    #[error("the path is {bytes} bytes long, at most {MAX_PATH_BYTES} are allowed")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// It has more than [`MAX_COMPONENTS`].
    #[error("the path has {components} components, at most {MAX_COMPONENTS} are allowed")]
    TooDeep {
        /// How many it has.
        components: usize,
    },
    /// It is not UTF-8, which no path of the protocol can be.
    #[error("the path is not UTF-8")]
    NotUtf8,
    /// It has a NUL character, which would end it early.
    #[error("the path {0:?} has a NUL character")]
    Nul(String),
    /// It starts with `~`, which only a shell understands.
    #[error("{} starts with ~, send an absolute path", quote(.0))]
    Home(String),
    /// It is a URL.
    #[error("{} is a URL, send an absolute path", quote(.0))]
    FileUrl(String),
    /// It does not start with `/`.
    #[error("{} is relative, send an absolute path", quote(.0))]
    Relative(String),
    /// It goes above `/`, and so out of everything.
    #[error("{} is outside the session's directories", quote(.0))]
    AboveRoot(String),
}

impl LexicalPath {
    /// Reads a path.
    ///
    /// # Errors
    /// Returns what is wrong with the text. The first three faults do not repeat it, because it may be long.
    pub fn parse(path: impl AsRef<Path>) -> Result<Self, PathFault> {
        let asked = path.as_ref().as_os_str();
        if asked.is_empty() {
            return Err(PathFault::Empty);
        }
        if asked.len() > MAX_PATH_BYTES {
            return Err(PathFault::TooLong { bytes: asked.len() });
        }
        let asked = asked.to_str().ok_or(PathFault::NotUtf8)?;
        if asked.contains('\0') {
            return Err(PathFault::Nul(asked.to_owned()));
        }
        if asked.starts_with('~') {
            return Err(PathFault::Home(asked.to_owned()));
        }
        if asked.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("file:")) {
            return Err(PathFault::FileUrl(asked.to_owned()));
        }
        if !asked.starts_with('/') {
            return Err(PathFault::Relative(asked.to_owned()));
        }
        let components = components(asked).count();
        if components > MAX_COMPONENTS {
            return Err(PathFault::TooDeep { components });
        }
        let normal = normalise(asked).ok_or_else(|| PathFault::AboveRoot(asked.to_owned()))?;
        Ok(Self { asked: asked.to_owned(), normal })
    }

    /// Returns the path as it was asked for.
    #[must_use]
    pub fn asked(&self) -> &str {
        &self.asked
    }

    /// Returns the normal form.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.normal
    }

    /// Returns the names on the way from `/`.
    pub fn components(&self) -> impl Iterator<Item = &str> {
        components(&self.normal)
    }

    /// Returns what is left of the path below another, if it is the other or lies below it: names, not letters, are
    /// compared, so `/project-evil` is not below `/project`.
    #[must_use]
    pub fn below(&self, root: &LexicalPath) -> Option<&str> {
        let rest = self.normal.strip_prefix(root.normal.trim_end_matches('/'))?;
        if rest.is_empty() { Some("") } else { rest.strip_prefix('/') }
    }
}

impl fmt::Display for LexicalPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.normal)
    }
}

/// What is to be done with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// Reading it.
    Read,
    /// Creating, changing or removing it.
    Write,
}

/// What may be done below a root.
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
    /// Where it is.
    pub path: LexicalPath,
    /// What may be done below it.
    pub mode: RootMode,
}

/// The directories of a session: its cwd, and those it was given besides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    // Invariant: one at least, the cwd, which comes first; at most `MAX_ROOTS`; no path twice.
    roots: Vec<Root>,
}

/// A session cannot have more than [`MAX_ROOTS`] directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a session has at most {MAX_ROOTS} directories")]
pub struct TooManyRoots;

/// Why a path is refused. It names the path as it was asked for and nothing else: an agent learns from it neither where
/// the roots are nor what lies outside.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The path is none.
    #[error(transparent)]
    Fault(#[from] PathFault),
    /// It is below no root.
    #[error("{} is outside the session's directories", quote(.0))]
    Outside(String),
    /// It is to be written, and the root it is in may only be read.
    #[error("{} is in a directory that this session may only read", quote(.0))]
    ReadOnly(String),
}

/// A path that the text alone does not keep out of a session's directories. Only [`Roots::admit`] makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LexicallyAdmitted {
    path: LexicalPath,
    root: Root,
    access: Access,
}

impl Roots {
    /// Returns the roots of a session that has only a cwd.
    #[must_use]
    pub fn new(cwd: Root) -> Self {
        Self { roots: vec![cwd] }
    }

    /// Adds a directory. One that is there already stays one; it is read-only if either says so.
    ///
    /// # Errors
    /// Returns [`TooManyRoots`] if there are [`MAX_ROOTS`] already.
    pub fn add(&mut self, root: Root) -> Result<(), TooManyRoots> {
        if let Some(known) = self.roots.iter_mut().find(|known| known.path.normal == root.path.normal) {
            if root.mode == RootMode::ReadOnly {
                known.mode = RootMode::ReadOnly;
            }
            return Ok(());
        }
        if self.roots.len() >= MAX_ROOTS {
            return Err(TooManyRoots);
        }
        self.roots.push(root);
        Ok(())
    }

    /// Returns the directories, the cwd first.
    pub fn iter(&self) -> impl Iterator<Item = &Root> {
        self.roots.iter()
    }

    /// Admits a path that is in one of the directories. Where they lie in one another, the innermost decides.
    ///
    /// # Errors
    /// Returns the [`Refusal`] if the path is in none, or in one that may only be read while it is to be written.
    pub fn admit(&self, path: &LexicalPath, access: Access) -> Result<LexicallyAdmitted, Refusal> {
        let innermost = self
            .roots
            .iter()
            .filter(|root| path.below(&root.path).is_some())
            .max_by_key(|root| root.path.components().count());
        let Some(root) = innermost else {
            return Err(Refusal::Outside(path.asked.clone()));
        };
        if access == Access::Write && root.mode == RootMode::ReadOnly {
            return Err(Refusal::ReadOnly(path.asked.clone()));
        }
        Ok(LexicallyAdmitted { path: path.clone(), root: root.clone(), access })
    }
}

impl LexicallyAdmitted {
    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> &LexicalPath {
        &self.path
    }

    /// Returns the root that admitted it.
    #[must_use]
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// Returns the way from the root to the path; nothing if it is the root itself.
    #[must_use]
    pub fn below_root(&self) -> &str {
        self.path.below(&self.root.path).unwrap_or_default()
    }

    /// Returns what it was admitted for.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// Returns what protects the path from what it was admitted for. Only names below the root count: a session in
    /// `~/.claude/worktrees/x` works there as anywhere else, because the user chose it.
    #[must_use]
    pub fn protection(&self) -> Option<Protection> {
        protected::classify(self.below_root(), self.access)
    }
}

fn components(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty())
}

/// Returns the normal form, or nothing if the path goes above `/`.
fn normalise(path: &str) -> Option<String> {
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

#[cfg(test)]
mod tests;
