//! Diagnostics that an editor shares, for sessions and MCP clients.
//!
//! They are kept by the file's canonical name, within limits, and marked outdated when the engine writes the file or a
//! scan finds it changed. An embedding editor calls
//! [`Workspace::share_diagnostics`](super::Workspace::share_diagnostics); one behind a proxy sends
//! `_bowline/diagnostics`, which the proxy forwards and copies.

use bowline_protocol::diagnostics::{Diagnostic, Diagnostics, FileDiagnostics};

use super::notifications::{Notifier, WorkspaceNotification};

/// The shared diagnostics.
#[derive(Debug, Default)]
pub(super) struct SharedDiagnostics {
    diagnostics: Diagnostics,
}

impl SharedDiagnostics {
    /// Replaces the diagnostics of a file, given by its canonical path.
    pub(super) fn replace_file(&mut self, path: &str, diagnostics: Vec<Diagnostic>, bell: &Notifier) {
        let changed = self.diagnostics.replace_file(path, diagnostics);
        changed.into_iter().for_each(|path| bell.notify(WorkspaceNotification::Diagnostics(path)));
    }

    /// Marks the diagnostics of changed files as outdated.
    pub(super) fn mark_stale<'p>(&mut self, paths: impl IntoIterator<Item = &'p str>, bell: &Notifier) {
        for path in paths {
            if self.diagnostics.mark_stale(path) {
                bell.notify(WorkspaceNotification::Diagnostics(path.to_owned()));
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &FileDiagnostics)> {
        self.diagnostics.iter()
    }
}

#[cfg(test)]
mod tests;
