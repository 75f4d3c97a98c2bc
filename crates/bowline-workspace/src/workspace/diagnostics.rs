//! Diagnostics that an editor shares, for sessions and MCP clients.
//!
//! They are kept by the file's canonical name, within limits, and marked outdated when the engine writes the file or a
//! scan finds it changed. An embedding editor calls
//! [`Workspace::share_diagnostics`](super::Workspace::share_diagnostics); one behind a proxy sends
//! `_bowline/diagnostics`, which the proxy forwards and copies.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use bowline_protocol::diagnostics::{Diagnostic, Diagnostics, FileDiagnostics};

use super::notifications::{Notifier, WorkspaceNotification};

/// How many paths are queued for a slow listener; a listener that falls further behind is dropped.
const MAX_EVENTS: usize = 256;

/// The shared diagnostics and their listeners.
#[derive(Debug, Default)]
pub(super) struct SharedDiagnostics {
    diagnostics: Diagnostics,
    listeners: Vec<SyncSender<String>>,
}

impl SharedDiagnostics {
    /// Replaces the diagnostics of a file, given by its canonical path.
    pub(super) fn replace_file(&mut self, path: &str, diagnostics: Vec<Diagnostic>, bell: &Notifier) {
        let changed = self.diagnostics.replace_file(path, diagnostics);
        changed.iter().for_each(|path| self.notify(path, bell));
    }

    /// Marks the diagnostics of changed files as outdated.
    pub(super) fn mark_stale<'p>(&mut self, paths: impl IntoIterator<Item = &'p str>, bell: &Notifier) {
        for path in paths {
            if self.diagnostics.mark_stale(path) {
                self.notify(path, bell);
            }
        }
    }

    pub(super) fn get(&self, path: &str) -> Option<&FileDiagnostics> {
        self.diagnostics.get(path)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &FileDiagnostics)> {
        self.diagnostics.iter()
    }

    pub(super) fn subscribe(&mut self) -> Receiver<String> {
        let (sender, receiver) = sync_channel(MAX_EVENTS);
        self.listeners.push(sender);
        receiver
    }

    fn notify(&mut self, path: &str, bell: &Notifier) {
        bell.notify(WorkspaceNotification::Diagnostics(path.to_owned()));
        self.listeners.retain(|listener| listener.try_send(path.to_owned()).is_ok());
    }
}

#[cfg(test)]
mod tests;
