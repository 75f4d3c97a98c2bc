//! Diagnostics that an editor shares, for sessions and MCP clients.
//!
//! They are kept by the file's canonical name, within limits, and marked outdated when the engine writes the file or a
//! scan finds it changed. An embedding editor calls [`Workspace::share_diagnostics`]; one behind a proxy sends
//! `_bowline/diagnostics`, which the proxy forwards and copies.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{MutexGuard, PoisonError};

use bowline_policy::paths::Access;
use bowline_protocol::diagnostics::{Diagnostic, Diagnostics, FileDiagnostics};

use super::Workspace;
use super::notifications::{Notifier, WorkspaceNotification};
use crate::error::FilesError;

/// How many paths are queued for a slow listener; a listener that falls further behind is dropped.
const MAX_EVENTS: usize = 256;

/// The shared diagnostics and their listeners.
#[derive(Debug, Default)]
pub(super) struct SharedDiagnostics {
    diagnostics: Diagnostics,
    listeners: Vec<SyncSender<String>>,
}

impl SharedDiagnostics {
    fn notify(&mut self, path: &str, bell: &Notifier) {
        bell.notify(WorkspaceNotification::Diagnostics(path.to_owned()));
        self.listeners.retain(|listener| listener.try_send(path.to_owned()).is_ok());
    }
}

impl Workspace {
    /// Replaces the diagnostics of a file with those that an editor reports. They are stored under the file's canonical
    /// path, which is returned.
    ///
    /// # Errors
    /// Returns why the path is not in this workspace.
    pub fn share_diagnostics(&self, path: &str, diagnostics: Vec<Diagnostic>) -> Result<String, FilesError> {
        let admitted = self.inner.roots.admit(path, Access::Read)?;
        let own = admitted.canonical().to_owned();
        let mut diagnosed = self.lock_diagnostics();
        let changed = diagnosed.diagnostics.replace_file(&own, diagnostics);
        changed.iter().for_each(|path| diagnosed.notify(path, &self.inner.notifier));
        Ok(own)
    }

    /// Returns all diagnostics, by file.
    #[must_use]
    pub fn diagnostics(&self) -> Vec<(String, FileDiagnostics)> {
        self.lock_diagnostics()
            .diagnostics
            .iter()
            .map(|(path, of_file)| (path.clone(), of_file.clone()))
            .collect()
    }

    /// Returns the diagnostics of a file.
    ///
    /// # Errors
    /// Returns why the path is not in this workspace.
    pub fn file_diagnostics(&self, path: &str) -> Result<Option<FileDiagnostics>, FilesError> {
        let admitted = self.inner.roots.admit(path, Access::Read)?;
        Ok(self.lock_diagnostics().diagnostics.get(admitted.canonical()).cloned())
    }

    /// Subscribes to the paths of files whose diagnostics change, disappear or become outdated from now on. A listener
    /// that falls 256 paths behind is dropped; it should query [`diagnostics`](Workspace::diagnostics) again.
    #[must_use]
    pub fn diagnostic_events(&self) -> Receiver<String> {
        let (sender, receiver) = sync_channel(MAX_EVENTS);
        self.lock_diagnostics().listeners.push(sender);
        receiver
    }

    /// Marks the diagnostics of changed files as outdated.
    pub(super) fn mark_diagnostics_stale<'p>(&self, paths: impl IntoIterator<Item = &'p str>) {
        let mut diagnosed = self.lock_diagnostics();
        for path in paths {
            if diagnosed.diagnostics.mark_stale(path) {
                diagnosed.notify(path, &self.inner.notifier);
            }
        }
    }

    fn lock_diagnostics(&self) -> MutexGuard<'_, SharedDiagnostics> {
        self.inner.diagnostics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
