//! The open connections of the HTTP server, and which of them is closed to make room for another.
//!
//! A connection costs a client nothing before it has shown the secret. So where there is no room, the oldest connection that
//! never showed it is closed, then the one that has been idle for longest. One with a request under way is never closed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The open connections, at most so many.
#[derive(Debug)]
pub(crate) struct Connections {
    most: usize,
    state: Mutex<State>,
    // Woken when a connection ends or becomes idle.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    // Invariant: at most `most`.
    open: BTreeMap<u64, Open>,
    // Grows with every connection and request: a later one has a greater number.
    now: u64,
}

#[derive(Debug)]
struct Open {
    closed: CancellationToken,
    is_authenticated: bool,
    requests: usize,
    used: u64,
}

impl State {
    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// Returns the connection that is closed first, if one may be closed.
    fn first_to_close(&self) -> Option<u64> {
        let idle = self.open.iter().filter(|(_, open)| open.requests == 0);
        idle.min_by_key(|(_, open)| (open.is_authenticated, open.used)).map(|(id, _)| *id)
    }
}

impl Connections {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, state: Mutex::default(), changed: Notify::new() })
    }

    /// Waits until a connection can be admitted, if need be in place of another.
    pub(crate) async fn wait_for_room(&self) {
        loop {
            let changed = self.changed.notified();
            {
                let state = self.state();
                if state.open.len() < self.most || state.first_to_close().is_some() {
                    return;
                }
            }
            changed.await;
        }
    }

    /// Admits a connection, if need be in place of another; returns nothing if every other has a request under way.
    pub(crate) fn admit(self: &Arc<Self>) -> Option<Admission> {
        if self.state().open.len() >= self.most {
            self.close_one()?;
        }
        let mut state = self.state();
        let (id, closed) = (state.tick(), CancellationToken::new());
        let open = Open { closed: closed.clone(), is_authenticated: false, requests: 0, used: id };
        state.open.insert(id, open);
        Some(Admission { connections: self.clone(), id, closed })
    }

    /// Closes the connection that is the first to go, if there is one.
    pub(crate) fn close_one(&self) -> Option<()> {
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

/// A connection that is open. Dropping it makes room.
#[derive(Debug)]
pub(crate) struct Admission {
    connections: Arc<Connections>,
    id: u64,
    closed: CancellationToken,
}

impl Admission {
    /// Waits until the connection is to be closed for another.
    pub(crate) async fn wait_until_closed(&self) {
        self.closed.cancelled().await;
    }

    /// Notes that a request with the secret is under way, as long as what is returned lives.
    pub(crate) fn begin_request(self: &Arc<Self>) -> RequestGuard {
        let mut state = self.connections.state();
        let used = state.tick();
        if let Some(open) = state.open.get_mut(&self.id) {
            (open.is_authenticated, open.used) = (true, used);
            open.requests += 1;
        }
        RequestGuard(self.clone())
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.connections.state().open.remove(&self.id);
        self.connections.changed.notify_one();
    }
}

/// A request that is under way on a connection.
#[derive(Debug)]
pub(crate) struct RequestGuard(Arc<Admission>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let connections = &self.0.connections;
        let mut state = connections.state();
        let used = state.tick();
        if let Some(open) = state.open.get_mut(&self.0.id) {
            open.used = used;
            open.requests -= 1;
        }
        drop(state);
        connections.changed.notify_one();
    }
}

#[cfg(test)]
mod tests;
