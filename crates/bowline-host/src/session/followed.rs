//! The commands of a session whose changes are still to be looked for.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_state::schema::v1::TerminalId;
use bowline_workspace::terminals::LocalTerminals;
use tokio::sync::watch;
use tokio::time::timeout;

/// How long one waits for a look at what a command changed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Commands, each with what is closed once its changes were looked for.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    // Invariant: at most as many as there may be terminals, but for those that are being looked after.
    all: Mutex<Vec<(TerminalId, watch::Receiver<()>)>>,
}

impl Followed {
    /// Notes a command. Whoever looks for its changes drops the sender then.
    pub(crate) fn add(&self, terminal: TerminalId) -> watch::Sender<()> {
        let (looking, followed) = watch::channel(());
        let mut all = self.all();
        all.retain(|(_, followed)| followed.has_changed().is_ok());
        all.push((terminal, followed));
        looking
    }

    /// Waits until what commands changed that have ended was looked for, so that it is theirs and nobody else's.
    pub(crate) async fn settle(&self, terminals: &LocalTerminals) {
        let followed = std::mem::take(&mut *self.all());
        for (terminal, mut looking) in followed {
            // One that is released has ended, too.
            if timeout(Duration::ZERO, terminals.wait(&terminal)).await.is_ok() {
                timeout(PATIENCE, looking.changed()).await.ok();
            } else {
                self.all().push((terminal, looking));
            }
        }
    }

    fn all(&self) -> MutexGuard<'_, Vec<(TerminalId, watch::Receiver<()>)>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
