//! The sessions that an engine is beside, for servers that are added to them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_state::schema::v1::SessionId;

use super::{Options, Shared};

/// The sessions that an engine is beside. Clones are the same.
#[derive(Clone, Default)]
pub struct Sessions {
    pub(crate) options: Options,
    // Invariant: those of the one `Beside` that it was given to.
    known: Arc<Mutex<HashMap<SessionId, Arc<Shared>>>>,
}

impl Sessions {
    /// Returns that there are none yet; with what is done beside them.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options, known: Arc::default() }
    }

    /// Returns a session that is open.
    pub(crate) fn of(&self, id: &SessionId) -> Option<Arc<Shared>> {
        self.known().get(id).cloned()
    }

    pub(super) fn opened(&self, session: &Arc<Shared>) {
        self.known().insert(session.id.clone(), session.clone());
    }

    pub(super) fn closed(&self, id: &SessionId) {
        self.known().remove(id);
    }

    fn known(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Shared>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
