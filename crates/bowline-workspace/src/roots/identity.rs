//! Whether each root is still the directory that its name leads to.
//!
//! The handle of a root follows the directory wherever it is moved, and stays usable after it was deleted, replaced or
//! unmounted. What is written through it then would land in a place that nobody has in mind. So before anything is admitted
//! the name is looked up once more: the names of an open directory are in the kernel's cache, which takes about a microsecond.

use bowline_state::paths::{LexicalPath, Refusal};

use super::{Denied, Lost, Roots};

impl Roots {
    /// Checks that every root is still where it was opened.
    ///
    /// # Errors
    /// Names the first that was moved, deleted, replaced or unmounted.
    pub fn verify(&self) -> Result<(), Denied> {
        (0..self.open.len()).try_for_each(|root| self.verify_root(root))
    }

    pub(super) fn verify_root(&self, root: usize) -> Result<(), Denied> {
        let root = &self.open[root];
        let name = root.canonical.as_str();
        match rustix::fs::stat(name) {
            Ok(stat) if (stat.st_dev, stat.st_ino) == (root.device, root.inode) => Ok(()),
            _ => Err(Denied::RootMoved(name.to_owned())),
        }
    }

    /// Says why a path led nowhere: a root that is gone explains whatever is missing below it.
    pub(super) fn describe_lost(&self, path: &LexicalPath, lost: Lost) -> Denied {
        if let Some((root, _)) = self.enter(path)
            && let Err(moved) = self.verify_root(root)
        {
            return moved;
        }
        let asked = path.asked().to_owned();
        match lost {
            Lost::Outside => Refusal::Outside(asked).into(),
            Lost::NotFound => Denied::NotFound(asked),
            Lost::NotADirectory => Denied::NotADirectory(asked),
            Lost::TooManyLinks => Denied::TooManyLinks(asked),
            Lost::Raced => Denied::Unsteady(asked),
            Lost::System(why) => Denied::System { path: asked, why: why.into() },
        }
    }
}
