//! The editor's diagnostics, intercepted on their way to the agent.
//!
//! The engine reads each file from disk, and the message does not wait for that: the newest diagnostics of each file
//! are queued.

use std::sync::{Arc, PoisonError};

use bowline_protocol::diagnostics::{self, PendingDiagnostics};

use super::{EngineInterceptor, SessionContext};

/// The diagnostics that wait for a session's engine.
#[derive(Default)]
pub(super) struct DiagnosticsQueue {
    queued: PendingDiagnostics,
    // Whether a task is forwarding the queue to the engine.
    is_forwarding: bool,
}

impl EngineInterceptor {
    /// Forwards diagnostics to the session that they name, or to all sessions.
    pub(super) fn forward_diagnostics(&self, told: &diagnostics::DiagnosticsNotification) {
        let is_its = |id| told.session_id.as_ref().is_none_or(|named| named == id);
        for (_, session) in self.sessions.iter().filter(|(id, _)| is_its(*id)) {
            session.context.queue_diagnostics(told);
        }
    }
}

impl SessionContext {
    fn queue_diagnostics(self: &Arc<Self>, told: &diagnostics::DiagnosticsNotification) {
        let is_given = self.with_diagnostics(|diagnosing| {
            diagnosing.queued.insert(told.path.clone(), told.diagnostics.clone());
            std::mem::replace(&mut diagnosing.is_forwarding, true)
        });
        if !is_given {
            tokio::spawn(forward_queued(self.clone()));
        }
    }

    fn with_diagnostics<T>(&self, act: impl FnOnce(&mut DiagnosticsQueue) -> T) -> T {
        act(&mut self.diagnostics.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn forward_queued(session: Arc<SessionContext>) {
    let engine = session.engine().await;
    loop {
        let next = session.with_diagnostics(|diagnosing| {
            let next = diagnosing.queued.take_oldest();
            diagnosing.is_forwarding = next.is_some();
            next
        });
        let Some((path, diagnostics)) = next else { return };
        if let Some(engine) = &engine {
            engine.set_diagnostics(path, diagnostics).await;
        }
    }
}
