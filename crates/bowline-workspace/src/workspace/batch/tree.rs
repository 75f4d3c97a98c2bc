//! Everything in a directory, for moves, copies and removals.
//!
//! Only files and directories can be moved, copied and removed: the journal has no other entries, so anything else
//! could not be restored.

use bowline_policy::paths::Access;
use bowline_protocol::file_extension::FileError;
use rustix::fs::{AtFlags, Dir, FileType};

use super::FileEditError;
use crate::error::FilesError;
use crate::roots::{AdmittedPath, Roots};

/// The maximum number of files that the operations of a batch find in directories.
pub(super) const MAX_FILES: usize = 1000;
/// The maximum number of directories that they find.
pub(super) const MAX_DIRECTORIES: usize = 1000;

/// The content of a directory: paths relative to it.
#[derive(Debug, Default)]
pub(super) struct DirectoryTree {
    /// The directories with their modes, parents first. The first one is the directory itself, with an empty path.
    pub(super) directories: Vec<(String, u32)>,
    pub(super) files: Vec<String>,
}

/// How many more files and directories the batch may find.
#[derive(Debug)]
pub(super) struct TreeBudget {
    files: usize,
    directories: usize,
}

impl Default for TreeBudget {
    fn default() -> Self {
        Self { files: MAX_FILES, directories: MAX_DIRECTORIES }
    }
}

/// Lists everything in a directory.
///
/// # Errors
/// Fails if there is too much, or anything but files and directories.
pub(super) fn list_tree(
    roots: &Roots,
    directory: &AdmittedPath,
    access: Access,
    budget: &mut TreeBudget,
) -> Result<DirectoryTree, FileEditError> {
    let mut tree = DirectoryTree::default();
    let mut waiting = vec![String::new()];
    while let Some(relative) = waiting.pop() {
        spend(&mut budget.directories, "directories", MAX_DIRECTORIES)?;
        let path = join_path(directory.canonical(), &relative);
        let admitted = roots.admit(&path, access)?;
        let handle = roots.open_directory(&admitted)?;
        let failed = |why: rustix::io::Errno| FilesError::io_error(&path)(why.into());
        let mode = rustix::fs::fstat(&handle).map_err(failed)?.st_mode & 0o7777;
        let mut names = Vec::new();
        for entry in Dir::read_from(&handle).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            if name.to_bytes() == b"." || name.to_bytes() == b".." {
                continue;
            }
            let Ok(name) = name.to_str() else {
                let name = name.to_string_lossy().into_owned();
                return Err(FilesError::NotRegularFile(join_path(&path, &name)).into());
            };
            names.push(name.to_owned());
        }
        names.sort_unstable();
        // The stack returns the last one first.
        for name in names.into_iter().rev() {
            let stat = rustix::fs::statat(&handle, &*name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
            let below = if relative.is_empty() { name } else { join_path(&relative, &name) };
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => waiting.push(below),
                FileType::RegularFile => {
                    spend(&mut budget.files, "files", MAX_FILES)?;
                    tree.files.push(below);
                }
                _ => {
                    let path = join_path(directory.requested_path(), &below);
                    return Err(FilesError::NotRegularFile(path).into());
                }
            }
        }
        tree.directories.push((relative, mode));
    }
    tree.files.sort_unstable();
    Ok(tree)
}

fn spend(left: &mut usize, items: &str, limit: usize) -> Result<(), FileEditError> {
    let limit = limit as u64;
    *left = left.checked_sub(1).ok_or_else(|| FileError::TooMany { items: items.to_owned(), limit })?;
    Ok(())
}

/// Returns a path below a directory; the directory itself if `relative` is empty.
pub(super) fn join_path(directory: &str, relative: &str) -> String {
    if relative.is_empty() {
        return directory.to_owned();
    }
    format!("{}/{relative}", directory.trim_end_matches('/'))
}
