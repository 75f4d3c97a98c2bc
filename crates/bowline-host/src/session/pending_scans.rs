//! The commands of a session whose changes have not been scanned yet.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_protocol::schema::v1::TerminalId;
use bowline_workspace::terminals::LocalTerminals;
use tokio::sync::watch;
use tokio::time::timeout;

/// The timeout for the scan of a command's changes.
const SCAN_TIMEOUT: Duration = Duration::from_secs(10);

/// Commands, each with a channel that is closed once its changes have been scanned.
#[derive(Debug, Default)]
pub(crate) struct PendingScans {
    // Invariant: apart from those being scanned, at most the limit of terminals.
    commands: Mutex<Vec<(TerminalId, watch::Receiver<()>)>>,
}

impl PendingScans {
    /// Adds a command. The caller drops the sender once its changes have been scanned.
    pub(crate) fn add(&self, terminal: TerminalId) -> watch::Sender<()> {
        let (guard, receiver) = watch::channel(());
        let mut all = self.lock_commands();
        all.retain(|(_, receiver)| receiver.has_changed().is_ok());
        all.push((terminal, receiver));
        guard
    }

    /// Waits until the changes of ended commands have been scanned, so that they are attributed to those commands.
    pub(crate) async fn wait_for_ended(&self, terminals: &LocalTerminals) {
        let commands = std::mem::take(&mut *self.lock_commands());
        for (terminal, mut receiver) in commands {
            // A released command has ended, too.
            if timeout(Duration::ZERO, terminals.wait(&terminal)).await.is_ok() {
                timeout(SCAN_TIMEOUT, receiver.changed()).await.ok();
            } else {
                self.lock_commands().push((terminal, receiver));
            }
        }
    }

    fn lock_commands(&self) -> MutexGuard<'_, Vec<(TerminalId, watch::Receiver<()>)>> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
