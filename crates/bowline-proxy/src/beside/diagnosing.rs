//! What the editor shares of what is wrong in its files, taken on its way to the agent.
//!
//! The engine looks at the disk for each file, and the message does not wait for that: of each file the newest does.

use std::sync::{Arc, PoisonError};

use bowline_state::diagnostics::{self, Waiting};

use super::{Beside, Shared};

/// What waits for the engine of a session.
#[derive(Default)]
pub(super) struct Diagnosing {
    waiting: Waiting,
    // Whether somebody gives it to the engine until nothing waits.
    is_given: bool,
}

impl Beside {
    /// Gives what the editor shares to the session that it names, or to all.
    pub(super) fn diagnosed(&self, told: &diagnostics::Shared) {
        let is_its = |id| told.session_id.as_ref().is_none_or(|named| named == id);
        for (_, session) in self.sessions.iter().filter(|(id, _)| is_its(*id)) {
            session.beside.diagnosed(told);
        }
    }
}

impl Shared {
    fn diagnosed(self: &Arc<Self>, told: &diagnostics::Shared) {
        let is_given = self.diagnosing(|diagnosing| {
            diagnosing.waiting.put(told.path.clone(), told.diagnostics.clone());
            std::mem::replace(&mut diagnosing.is_given, true)
        });
        if !is_given {
            tokio::spawn(give(self.clone()));
        }
    }

    fn diagnosing<T>(&self, act: impl FnOnce(&mut Diagnosing) -> T) -> T {
        act(&mut self.diagnosing.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn give(session: Arc<Shared>) {
    let engine = session.engine().await;
    loop {
        let next = session.diagnosing(|diagnosing| {
            let next = diagnosing.waiting.take();
            diagnosing.is_given = next.is_some();
            next
        });
        let Some((path, diagnostics)) = next else { return };
        if let Some(engine) = &engine {
            engine.diagnosed(path, diagnostics).await;
        }
    }
}
