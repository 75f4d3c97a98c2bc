//! Verification that each root is still the directory at its path.
//!
//! The handle of a root follows the directory when it is moved, and stays usable after the directory was deleted,
//! replaced or unmounted. Writes through it would then land in an unintended place. So before a path is admitted the
//! root's path is looked up again. The components of an open directory are in the kernel's cache, so this takes about a
//! microsecond.

use bowline_policy::paths::{AdmissionError, LexicalPath};

use super::{AdmitError, ResolveError, Roots};

impl Roots {
    /// Checks that every root is still where it was opened.
    ///
    /// # Errors
    /// Names the first root that was moved, deleted, replaced or unmounted.
    pub fn verify(&self) -> Result<(), AdmitError> {
        (0..self.open_roots.len()).try_for_each(|root| self.verify_root(root))
    }

    pub(super) fn verify_root(&self, root: usize) -> Result<(), AdmitError> {
        let root = &self.open_roots[root];
        let name = root.canonical.as_str();
        match rustix::fs::stat(name) {
            Ok(stat) if (stat.st_dev, stat.st_ino) == (root.device, root.inode) => Ok(()),
            _ => Err(AdmitError::RootMoved(name.to_owned())),
        }
    }

    /// Converts a resolve error. A root that is gone explains any missing path below it.
    pub(super) fn explain_resolve_error(&self, path: &LexicalPath, lost: ResolveError) -> AdmitError {
        if let Some((root, _)) = self.innermost_root(path)
            && let Err(moved) = self.verify_root(root)
        {
            return moved;
        }
        let asked = path.requested().to_owned();
        match lost {
            ResolveError::Outside => AdmissionError::OutsideRoots(asked).into(),
            ResolveError::NotFound => AdmitError::NotFound(asked),
            ResolveError::NotADirectory => AdmitError::NotADirectory(asked),
            ResolveError::TooManyLinks => AdmitError::TooManyLinks(asked),
            ResolveError::Raced => AdmitError::KeepsChanging(asked),
            ResolveError::System(why) => AdmitError::System { path: asked, why: why.into() },
        }
    }
}
