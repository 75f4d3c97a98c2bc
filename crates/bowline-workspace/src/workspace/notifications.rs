//! Notifications about open documents, diagnostics, and changes that were undone.
//!
//! [`DocumentEvent`](super::DocumentEvent) tells an editor which edits to make. These notifications are for readers,
//! and also cover the editor's own edits.

use tokio::sync::broadcast::{Receiver, Sender};

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
    /// Texts of the user that exist only in the journal:
    /// [`Workspace::report_kept_texts`](super::Workspace::report_kept_texts) lists them.
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

    pub(super) fn subscribe(&self) -> Receiver<WorkspaceNotification> {
        self.0.subscribe()
    }
}

#[cfg(test)]
mod tests;
