//! The sessions of HTTP clients, and which of them is evicted to make room for another.
//!
//! Few clients end their sessions: they crash or restart. At the limit, the session that has been idle for longest is
//! evicted. A session with an active request or stream is never evicted.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::events::EmptyEventSupport;

/// The open sessions, up to a limit.
#[derive(Debug)]
pub(crate) struct HttpSessions {
    limit: usize,
    table: Mutex<SessionTable>,
}

#[derive(Debug, Default)]
struct SessionTable {
    // Invariant: together with `opening`, at most `limit`.
    sessions: HashMap<String, HttpSession>,
    opening: usize,
    // Grows with every use: a later use has a greater number.
    clock: u64,
}

#[derive(Debug, Default)]
struct HttpSession {
    last_used: u64,
    active_requests: usize,
    empty_events: EmptyEventSupport,
}

impl SessionTable {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }
}

impl HttpSessions {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, table: Mutex::default() })
    }

    fn table(&self) -> MutexGuard<'_, SessionTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves room for a session, and returns the reservation with the session to end in exchange, if any. Returns
    /// `None` if every session is in use.
    pub(crate) fn reserve(self: &Arc<Self>) -> Option<(SessionReservation, Option<String>)> {
        let mut table = self.table();
        let mut evicted = None;
        if table.sessions.len() + table.opening >= self.limit {
            let idle = table.sessions.iter().filter(|(_, session)| session.active_requests == 0);
            let oldest = idle.min_by_key(|(_, session)| session.last_used).map(|(id, _)| id.clone())?;
            table.sessions.remove(&oldest);
            evicted = Some(oldest);
        }
        table.opening += 1;
        Some((SessionReservation { sessions: self.clone() }, evicted))
    }

    /// Marks a session as in use until the guard is dropped. The guard of an unknown session has no effect.
    pub(crate) fn begin_use(self: &Arc<Self>, id: &str) -> SessionUseGuard {
        let mut table = self.table();
        let now = table.tick();
        if let Some(session) = table.sessions.get_mut(id) {
            (session.last_used, session.active_requests) = (now, session.active_requests + 1);
        }
        SessionUseGuard { sessions: self.clone(), id: id.to_owned() }
    }

    /// Returns whether the client of a session supports empty events.
    pub(crate) fn empty_event_support(&self, id: &str) -> EmptyEventSupport {
        self.table().sessions.get(id).map(|session| session.empty_events).unwrap_or_default()
    }

    /// Removes a session that has ended.
    pub(crate) fn remove(&self, id: &str) {
        self.table().sessions.remove(id);
    }
}

/// The reservation of a session that is being opened.
#[derive(Debug)]
pub(crate) struct SessionReservation {
    sessions: Arc<HttpSessions>,
}

impl SessionReservation {
    /// Records the session as open, with its id and its client's support for empty events.
    pub(crate) fn commit(self, id: &str, events: EmptyEventSupport) {
        let mut table = self.sessions.table();
        let used = table.tick();
        table
            .sessions
            .insert(id.to_owned(), HttpSession { last_used: used, active_requests: 0, empty_events: events });
    }
}

impl Drop for SessionReservation {
    fn drop(&mut self) {
        self.sessions.table().opening -= 1;
    }
}

/// A use of a session.
#[derive(Debug)]
pub(crate) struct SessionUseGuard {
    sessions: Arc<HttpSessions>,
    id: String,
}

impl Drop for SessionUseGuard {
    fn drop(&mut self) {
        let mut table = self.sessions.table();
        let now = table.tick();
        if let Some(session) = table.sessions.get_mut(&self.id) {
            (session.last_used, session.active_requests) = (now, session.active_requests.saturating_sub(1));
        }
    }
}

#[cfg(test)]
mod tests;
