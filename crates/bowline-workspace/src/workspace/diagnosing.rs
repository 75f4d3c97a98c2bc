//! What the editor shares of what is wrong in the files, for whoever works here.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{MutexGuard, PoisonError};

use bowline_state::diagnostics::{Diagnostic, Diagnostics, OfFile};
use bowline_state::paths::Access;

use super::Workspace;
use super::sharing::{Bell, SharedNews};
use crate::error::FilesError;

/// How many names wait for a listener that does not take them; one that falls behind loses its place.
const MAX_EVENTS: usize = 256;

/// What is shared, and who wants to hear of it.
#[derive(Debug, Default)]
pub(super) struct Diagnosed {
    known: Diagnostics,
    listeners: Vec<SyncSender<String>>,
}

impl Diagnosed {
    fn tell(&mut self, path: &str, bell: &Bell) {
        bell.tell(SharedNews::Diagnostics(path.to_owned()));
        self.listeners.retain(|listener| listener.try_send(path.to_owned()).is_ok());
    }
}

impl Workspace {
    /// Takes what an editor knows to be wrong in a file, in place of what it said of it before. The file is known by its
    /// own name from then on, by whatever name it was told of. Returns that name.
    ///
    /// # Errors
    /// Returns why the path is none of this workspace.
    pub fn share_diagnostics(&self, path: &str, diagnostics: Vec<Diagnostic>) -> Result<String, FilesError> {
        let admitted = self.inner.roots.admit(path, Access::Read)?;
        let own = admitted.canonical().to_owned();
        let mut diagnosed = self.diagnosed();
        let changed = diagnosed.known.share(&own, diagnostics);
        changed.iter().for_each(|path| diagnosed.tell(path, &self.inner.bell));
        Ok(own)
    }

    /// Returns what is known to be wrong, by file.
    #[must_use]
    pub fn diagnostics(&self) -> Vec<(String, OfFile)> {
        self.diagnosed().known.iter().map(|(path, of_file)| (path.clone(), of_file.clone())).collect()
    }

    /// Returns what is known to be wrong in a file.
    ///
    /// # Errors
    /// Returns why the path is none of this workspace.
    pub fn diagnostics_of(&self, path: &str) -> Result<Option<OfFile>, FilesError> {
        let admitted = self.inner.roots.admit(path, Access::Read)?;
        Ok(self.diagnosed().known.of(admitted.canonical()).cloned())
    }

    /// Tells the names of files of which something else is known from now on: other diagnostics, none, or that they are
    /// old. A listener that falls 256 names behind is dropped; it asks for [`diagnostics`](Workspace::diagnostics) anew.
    #[must_use]
    pub fn diagnostic_events(&self) -> Receiver<String> {
        let (sender, receiver) = sync_channel(MAX_EVENTS);
        self.diagnosed().listeners.push(sender);
        receiver
    }

    /// Notes that files are others now than those that diagnostics were told of.
    pub(super) fn outdate<'p>(&self, paths: impl IntoIterator<Item = &'p str>) {
        let mut diagnosed = self.diagnosed();
        for path in paths {
            if diagnosed.known.is_changed(path) {
                diagnosed.tell(path, &self.inner.bell);
            }
        }
    }

    fn diagnosed(&self) -> MutexGuard<'_, Diagnosed> {
        self.inner.diagnosed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
