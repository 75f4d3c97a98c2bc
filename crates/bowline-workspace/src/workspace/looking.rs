//! Looking around: listing and searching through the truth, where open documents with unsaved text count as what they
//! show, and directories for commands to work in.

use std::os::fd::OwnedFd;

use bowline_state::paths::Access;
use rustix::fs::fstat;

use super::Session;
use crate::error::FilesError;
use crate::listing::{self, ListEntry, ListOptions, Listing};
use crate::search::{self, SearchQuery, SearchResult, Unsaved};
use crate::walker::Kind;

/// A directory that a command may work in.
#[derive(Debug)]
pub struct WorkingDirectory {
    /// Its own name, with no link on the way.
    pub path: String,
    /// Itself: what the name leads to may have changed by the time the command starts.
    pub handle: OwnedFd,
}

impl Session {
    /// Says whether the name of a directory still leads to it, by no link: it was moved or replaced if not.
    #[must_use]
    pub fn leads_to(&self, directory: &WorkingDirectory) -> bool {
        let same = |now: &WorkingDirectory| {
            let (Ok(one), Ok(other)) = (fstat(&now.handle), fstat(&directory.handle)) else { return false };
            (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino) && now.path == directory.path
        };
        self.working_directory(&directory.path).is_ok_and(|now| same(&now))
    }

    /// Opens a directory for a command to work in.
    ///
    /// # Errors
    /// Returns why there is no such directory for this session.
    pub fn working_directory(&self, path: &str) -> Result<WorkingDirectory, FilesError> {
        let admitted = self.roots.admit(path, Access::Read)?;
        let handle = self.roots.open_directory(&admitted)?;
        Ok(WorkingDirectory { path: admitted.canonical().to_owned(), handle })
    }

    /// Lists a directory. A document with unsaved text is listed as the file that it will be.
    ///
    /// # Errors
    /// Returns why there is no such directory for this session.
    pub fn list(&self, path: &str, options: &ListOptions) -> Result<Listing, FilesError> {
        let directory = self.roots.admit(path, Access::Read)?;
        let mut listing = listing::list(&self.roots, &directory, options)?;
        for (document, text) in self.workspace.unsaved() {
            let way = document.strip_prefix(directory.canonical()).and_then(|rest| rest.strip_prefix('/'));
            let Some(way) = way.filter(|way| way.split('/').count() <= options.depth.max(1)) else {
                continue;
            };
            let place = listing.entries.partition_point(|entry| entry.path.split('/').lt(way.split('/')));
            if let Some(entry) = listing.entries.get_mut(place).filter(|entry| entry.path == way) {
                entry.size = text.len() as u64;
                continue;
            }
            // A file that rules hide, or that another root has, is not listed either.
            if self.roots.admit(&document, Access::Read).is_ok_and(|found| !found.exists()) {
                let entry = ListEntry {
                    path: way.to_owned(),
                    kind: Kind::File,
                    size: text.len() as u64,
                    mtime_ns: 0,
                };
                listing.entries.insert(place, entry);
            }
        }
        Ok(listing)
    }

    /// Searches the files of the session's roots, or those below one directory, and the unsaved texts among them.
    ///
    /// # Errors
    /// Returns what is wrong with the query, or why there is no such directory for this session.
    pub fn search(&self, query: &SearchQuery, below: Option<&str>) -> Result<SearchResult, FilesError> {
        self.roots.verify()?;
        let under = below.map(|path| self.roots.admit(path, Access::Read)).transpose()?;
        let unsaved: Unsaved = self.workspace.unsaved().into_iter().collect();
        Ok(search::search(&self.roots, query, under.as_ref(), &unsaved)?)
    }
}
