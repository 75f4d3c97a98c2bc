//! Listing and searching, with the unsaved text of open documents in place of their files; and working directories for
//! commands.

use std::os::fd::OwnedFd;

use bowline_policy::paths::Access;
use rustix::fs::fstat;

use super::WorkspaceSession;
use crate::error::FilesError;
use crate::list::{self, ListEntry, ListOptions, Listing};
use crate::search::{self, SearchQuery, SearchResult, UnsavedTexts};
use crate::walker::EntryKind;

/// A directory for a command to work in.
#[derive(Debug)]
pub struct WorkingDirectory {
    /// The canonical path.
    pub path: String,
    /// An open handle: the path may lead elsewhere by the time the command starts.
    pub handle: OwnedFd,
}

impl WorkspaceSession {
    /// Returns whether the directory's path still leads to it without links, that is, whether it was neither moved nor
    /// replaced.
    #[must_use]
    pub fn is_current_directory(&self, directory: &WorkingDirectory) -> bool {
        let same = |now: &WorkingDirectory| {
            let (Ok(one), Ok(other)) = (fstat(&now.handle), fstat(&directory.handle)) else { return false };
            (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino) && now.path == directory.path
        };
        self.working_directory(&directory.path).is_ok_and(|now| same(&now))
    }

    /// Opens a directory for a command to work in.
    ///
    /// # Errors
    /// Returns why the directory is not accessible to this session.
    pub fn working_directory(&self, path: &str) -> Result<WorkingDirectory, FilesError> {
        let admitted = self.roots.admit(path, Access::Read)?;
        let handle = self.roots.open_directory(&admitted)?;
        Ok(WorkingDirectory { path: admitted.canonical().to_owned(), handle })
    }

    /// Lists a directory. A document with unsaved text is listed as the file that saving it would create.
    ///
    /// # Errors
    /// Returns why the directory is not accessible to this session.
    pub fn list(&self, path: &str, options: &ListOptions) -> Result<Listing, FilesError> {
        let directory = self.roots.admit(path, Access::Read)?;
        let mut listing = list::list(&self.roots, &directory, options)?;
        for (document, text) in self.workspace.unsaved_texts() {
            let way = document.strip_prefix(directory.canonical()).and_then(|rest| rest.strip_prefix('/'));
            let Some(way) = way.filter(|way| way.split('/').count() <= options.depth.max(1)) else {
                continue;
            };
            let place = listing.entries.partition_point(|entry| entry.path.split('/').lt(way.split('/')));
            if let Some(entry) = listing.entries.get_mut(place).filter(|entry| entry.path == way) {
                entry.size = text.len() as u64;
                continue;
            }
            // A file that ignore rules hide, or that lies in another root, is not listed either.
            if self.roots.admit(&document, Access::Read).is_ok_and(|found| !found.exists()) {
                let entry = ListEntry {
                    path: way.to_owned(),
                    kind: EntryKind::File,
                    size: text.len() as u64,
                    mtime_ns: 0,
                };
                listing.entries.insert(place, entry);
            }
        }
        Ok(listing)
    }

    /// Searches the files of the session's roots, or those below one directory, including unsaved texts.
    ///
    /// # Errors
    /// Returns what is wrong with the query, or why the directory is not accessible to this session.
    pub fn search(&self, query: &SearchQuery, below: Option<&str>) -> Result<SearchResult, FilesError> {
        self.roots.verify()?;
        let under = below.map(|path| self.roots.admit(path, Access::Read)).transpose()?;
        let unsaved: UnsavedTexts = self.workspace.unsaved_texts().into_iter().collect();
        Ok(search::search(&self.roots, query, under.as_ref(), &unsaved)?)
    }
}
