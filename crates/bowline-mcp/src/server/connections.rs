//! The open connections of the HTTP server, and which of them is closed to make room for another.
//!
//! A connection costs a client nothing until it has presented the secret. At the limit, the oldest unauthenticated
//! connection is closed first, then the one that has been idle for longest. A connection with an active request is
//! never closed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The open connections, up to a limit.
#[derive(Debug)]
pub(crate) struct Connections {
    limit: usize,
    state: Mutex<State>,
    // Woken when a connection ends or becomes idle.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    // Invariant: at most `limit` entries.
    open: BTreeMap<u64, OpenConnection>,
    // Grows with every connection and request: a later one has a greater number.
    clock: u64,
}

#[derive(Debug)]
struct OpenConnection {
    closed: CancellationToken,
    is_authenticated: bool,
    active_requests: usize,
    last_used: u64,
}

impl State {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Returns the connection to close first, if one may be closed.
    fn first_to_close(&self) -> Option<u64> {
        let idle = self.open.iter().filter(|(_, open)| open.active_requests == 0);
        idle.min_by_key(|(_, open)| (open.is_authenticated, open.last_used)).map(|(id, _)| *id)
    }
}

impl Connections {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, state: Mutex::default(), changed: Notify::new() })
    }

    /// Waits until a connection can be admitted, if necessary in place of another.
    pub(crate) async fn wait_for_room(&self) {
        loop {
            let changed = self.changed.notified();
            {
                let state = self.state();
                if state.open.len() < self.limit || state.first_to_close().is_some() {
                    return;
                }
            }
            changed.await;
        }
    }

    /// Admits a connection, if necessary in place of another. Returns `None` if every other one has an active request.
    pub(crate) fn admit(self: &Arc<Self>) -> Option<ConnectionPermit> {
        if self.state().open.len() >= self.limit {
            self.close_idle_connection()?;
        }
        let mut state = self.state();
        let (id, closed) = (state.tick(), CancellationToken::new());
        let open = OpenConnection {
            closed: closed.clone(),
            is_authenticated: false,
            active_requests: 0,
            last_used: id,
        };
        state.open.insert(id, open);
        Some(ConnectionPermit { connections: self.clone(), id, closed })
    }

    /// Closes the connection that `State::first_to_close` selects. Returns `None` if none may be closed.
    pub(crate) fn close_idle_connection(&self) -> Option<()> {
        let mut state = self.state();
        let first = state.first_to_close()?;
        let open = state.open.remove(&first)?;
        open.closed.cancel();
        Some(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An open connection. Dropping it makes room.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    connections: Arc<Connections>,
    id: u64,
    closed: CancellationToken,
}

impl ConnectionPermit {
    /// Waits until the connection must be closed in favour of another.
    pub(crate) async fn wait_until_closed(&self) {
        self.closed.cancelled().await;
    }

    /// Marks the connection as authenticated and busy until the guard is dropped.
    pub(crate) fn begin_request(self: &Arc<Self>) -> RequestGuard {
        let mut state = self.connections.state();
        let used = state.tick();
        if let Some(open) = state.open.get_mut(&self.id) {
            (open.is_authenticated, open.last_used) = (true, used);
            open.active_requests += 1;
        }
        RequestGuard(self.clone())
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.connections.state().open.remove(&self.id);
        self.connections.changed.notify_one();
    }
}

/// An active request on a connection.
#[derive(Debug)]
pub(crate) struct RequestGuard(Arc<ConnectionPermit>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let connections = &self.0.connections;
        let mut state = connections.state();
        let used = state.tick();
        if let Some(open) = state.open.get_mut(&self.0.id) {
            open.last_used = used;
            open.active_requests -= 1;
        }
        drop(state);
        connections.changed.notify_one();
    }
}

#[cfg(test)]
mod tests;
