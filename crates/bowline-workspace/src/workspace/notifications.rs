//! Notifications about open documents, diagnostics, and changes that were undone.
//!
//! [`DocumentEvent`](super::DocumentEvent) tells an editor which edits to make. These notifications are for readers,
//! and also cover the editor's own edits.

use tokio::sync::broadcast::{Receiver, Sender};

use super::Workspace;

/// How many notifications are queued for a slow subscriber; beyond that the oldest are dropped, and it learns how many.
const MAX_NOTIFICATIONS: usize = 256;

/// What has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkspaceNotification {
    /// The text of an open document, whether the editor or the engine changed it.
    Document(String),
    /// The set of open documents, or of saved ones.
    Documents,
    /// The diagnostics of a file.
    Diagnostics(String),
    /// The set of changes in effect: some were undone or redone.
    Changes,
    /// Texts of the user that exist only in the journal: [`Workspace::report_kept_texts`] lists them.
    TextsKept,
}

/// Sends notifications to all subscribers.
#[derive(Debug, Clone)]
pub(super) struct Notifier(Sender<WorkspaceNotification>);

impl Default for Notifier {
    fn default() -> Self {
        Self(Sender::new(MAX_NOTIFICATIONS))
    }
}

impl Notifier {
    /// Notifies the subscribers. It is normal that there are none.
    pub(super) fn notify(&self, news: WorkspaceNotification) {
        self.0.send(news).ok();
    }
}

impl Workspace {
    /// Subscribes to changes of documents and diagnostics, and to undone changes, from now on. A subscriber that falls
    /// behind learns how many notifications it missed, and should query everything again.
    #[must_use]
    pub fn subscribe(&self) -> Receiver<WorkspaceNotification> {
        self.inner.notifier.0.subscribe()
    }
}

#[cfg(test)]
mod tests;
