//! The editor's diagnostics, intercepted on their way to the agent.
//!
//! The engine reads each file from disk, and the message does not wait for that: the newest diagnostics of each file
//! are queued.

use std::sync::{Arc, PoisonError};

use bowline_protocol::diagnostics::{self, PendingDiagnostics};

use super::SessionContext;

/// The diagnostics that wait for a session's engine.
#[derive(Default)]
pub(super) struct DiagnosticsQueue {
    queued: PendingDiagnostics,
    // Whether a task is forwarding the queue to the engine.
    is_forwarding: bool,
}

impl SessionContext {
    pub(super) fn queue_diagnostics(self: &Arc<Self>, notification: &diagnostics::DiagnosticsNotification) {
        let was_forwarding = self.with_diagnostics(|queue| {
            queue.queued.insert(notification.path.clone(), notification.diagnostics.clone());
            std::mem::replace(&mut queue.is_forwarding, true)
        });
        if !was_forwarding {
            bowline_task::spawn(forward_queued(self.clone()));
        }
    }

    fn with_diagnostics<T>(&self, f: impl FnOnce(&mut DiagnosticsQueue) -> T) -> T {
        f(&mut self.diagnostics.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn forward_queued(session: Arc<SessionContext>) {
    let engine = session.engine().await;
    loop {
        let next = session.with_diagnostics(|queue| {
            let next = queue.queued.take_oldest();
            queue.is_forwarding = next.is_some();
            next
        });
        let Some((path, diagnostics)) = next else { return };
        if let Some(engine) = &engine {
            engine.set_diagnostics(path, diagnostics).await;
        }
    }
}
