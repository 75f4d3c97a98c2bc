//! Texts of paths by which files were read and that are the files' own names, so that they need not be taken apart again.
//!
//! What a text means depends on the disk and is looked at each time: the kernel resolves the name once more, with no link
//! allowed on the way, and it has to lead to the same file. What follows from the text alone, that it is in normal form,
//! which root it is in and what protects it, stays true as long as the roots are the same. A file that was read is opened
//! to be read again at once: whether it may be is asked before a byte of it is.

use std::os::fd::AsFd;
use std::sync::Mutex;

use bowline_state::grants::FileId;
use bowline_state::paths::{Access, LexicalPath, Protection};
use indexmap::IndexMap;

use super::place::READ;
use super::{Admitted, Found, Roots, kernel};

/// So many texts are remembered; each is no longer than a path can be.
const MAX_KNOWN: usize = 256;

/// Texts that are files' own names, as far as they were read lately.
#[derive(Debug, Default)]
pub(super) struct Plain {
    // Invariant: at most `MAX_KNOWN`.
    known: Mutex<IndexMap<String, Known>>,
}

/// What follows from a text, and the file it led to.
#[derive(Debug)]
struct Known {
    // Invariant: the text as it was asked for is this, and this is its own normal form.
    path: LexicalPath,
    root: usize,
    protection: Option<Protection>,
    file: FileId,
}

impl Plain {
    /// Admits a path to be read whose text is known, if it still leads to the same file with no link on the way, and nobody
    /// has to be waited for.
    pub(super) fn admit(&self, roots: &Roots, text: &str, access: Access) -> Option<Admitted> {
        if access != Access::Read {
            return None;
        }
        let known = self.known.try_lock().ok()?;
        let Known { path, root, protection, file } = known.get(text)?;
        let open = &roots.open[*root];
        let handle = kernel::open_at_hand(open.directory.as_fd(), path.below(&open.canonical)?, READ).ok()?;
        let stat = rustix::fs::fstat(&handle).ok()?;
        let is_same = (stat.st_dev, stat.st_ino) == (file.device, file.inode) && stat.st_nlink > 0;
        is_same.then(|| Admitted {
            asked: text.to_owned(),
            access,
            canonical: path.clone(),
            root: *root,
            found: Some(Found { handle, is_open: true, stat }),
            protection: *protection,
        })
    }

    /// Remembers what a text came to that is a file's own name below its root.
    pub(super) fn learn(&self, roots: &Roots, admitted: &Admitted) {
        let Admitted { asked, access, canonical, root, protection, .. } = admitted;
        let Some(file) = admitted.file_id() else { return };
        let is_below = canonical.below(&roots.open[*root].canonical).is_some_and(|rest| !rest.is_empty());
        if *access != Access::Read || canonical.as_str() != asked || !is_below {
            return;
        }
        let Ok(mut known) = self.known.try_lock() else { return };
        if known.len() >= MAX_KNOWN {
            known.swap_remove_index(0);
        }
        let path = canonical.clone();
        known.insert(asked.clone(), Known { path, root: *root, protection: *protection, file });
    }
}
