//! The sessions with an engine, for the servers that are added to them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_protocol::schema::v1::SessionId;

use super::{EngineInterceptorOptions, SessionContext};

/// The sessions with an engine. Clones share the same state.
#[derive(Clone, Default)]
pub struct EngineSessions {
    pub(crate) options: EngineInterceptorOptions,
    // Invariant: the sessions of the one `EngineInterceptor` that holds a clone.
    sessions: Arc<Mutex<HashMap<SessionId, Arc<SessionContext>>>>,
}

impl EngineSessions {
    /// Returns an empty set of sessions, with the interceptor's options.
    #[must_use]
    pub fn new(options: EngineInterceptorOptions) -> Self {
        Self { options, sessions: Arc::default() }
    }

    /// Returns an open session.
    pub(crate) fn get(&self, id: &SessionId) -> Option<Arc<SessionContext>> {
        self.lock().get(id).cloned()
    }

    pub(super) fn insert(&self, session: &Arc<SessionContext>) {
        self.lock().insert(session.id.clone(), session.clone());
    }

    pub(super) fn remove(&self, id: &SessionId) {
        self.lock().remove(id);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<SessionContext>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
