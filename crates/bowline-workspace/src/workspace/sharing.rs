//! What a workspace shows beside its files, and that it is another now: open documents, diagnostics, changes taken back.
//!
//! [`DocumentEvent`](super::DocumentEvent) tells an editor what to change in what it shows. This tells whoever only reads:
//! also of what the editor itself did.

use tokio::sync::broadcast::{Receiver, Sender};

use super::Workspace;

/// So much news waits for a listener that does not take it; the oldest is dropped, and the listener is told so.
const MAX_NEWS: usize = 256;

/// What is another now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SharedNews {
    /// The text of an open document, whoever changed it.
    Document(String),
    /// Which documents are open, or which of them are saved.
    Documents,
    /// What is known to be wrong in a file.
    Diagnostics(String),
    /// Which changes hold: some were taken back, or done again.
    Changes,
    /// Texts of the user's are only in the journal: [`Workspace::tell_kept_texts`] tells which.
    TextsKept,
}

/// Where news is told.
#[derive(Debug, Clone)]
pub(super) struct Bell(Sender<SharedNews>);

impl Default for Bell {
    fn default() -> Self {
        Self(Sender::new(MAX_NEWS))
    }
}

impl Bell {
    /// Tells whoever listens. That nobody does is usual.
    pub(super) fn tell(&self, news: SharedNews) {
        self.0.send(news).ok();
    }
}

impl Workspace {
    /// Tells from now on which documents and diagnostics are others, and that changes were taken back. Who falls behind is told how much was missed, and
    /// looks at everything.
    #[must_use]
    pub fn shared_news(&self) -> Receiver<SharedNews> {
        self.inner.bell.0.subscribe()
    }
}

#[cfg(test)]
mod tests;
