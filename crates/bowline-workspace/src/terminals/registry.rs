//! Which terminals a session has, and what those showed that it had.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bowline_state::schema::v1::TerminalId;
use tokio::sync::{mpsc, watch};

use super::running::{Progress, Request};
use super::{Settings, Shown, TerminalError};
use crate::workspace::Session;

/// As many released terminals can be shown; older ones are forgotten.
pub const MAX_RELEASED: usize = 64;

/// As many bytes of text released terminals have together; beyond that older ones are forgotten.
pub const MAX_RELEASED_BYTES: usize = 32 * 1024 * 1024;

/// The terminals of a session, by id.
#[derive(Debug)]
pub(super) struct Registry {
    pub(super) session: Session,
    pub(super) settings: Settings,
    created: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    terminals: HashMap<TerminalId, Handle>,
    // Oldest first. Invariant: at most `MAX_RELEASED`, with `MAX_RELEASED_BYTES` together.
    released: VecDeque<(TerminalId, Shown)>,
    // Whether the session has ended: no terminal comes after that.
    closed: bool,
}

/// How a terminal is reached.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) requests: mpsc::Sender<Request>,
    pub(super) progress: watch::Receiver<Progress>,
    pub(super) released: bool,
}

impl Registry {
    pub(super) fn new(session: Session, settings: Settings) -> Self {
        Self { session, settings, created: AtomicU64::new(0), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an id that nobody can guess.
    pub(super) fn new_id(&self) -> Result<TerminalId, TerminalError> {
        let mut random = [0; 8];
        let filled = rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty());
        filled.map_err(|why| TerminalError::Supervisor(why.to_string()))?;
        let number = self.created.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(TerminalId::new(format!("term-{number}-{:016x}", u64::from_ne_bytes(random))))
    }

    pub(super) fn enter(
        self: &Arc<Self>,
        id: &TerminalId,
        handle: Handle,
    ) -> Result<Unstarted, TerminalError> {
        let mut state = self.state();
        if state.closed {
            return Err(TerminalError::Ended);
        }
        // Those that are being released count: they still run.
        if state.terminals.len() >= self.settings.limits.terminals {
            return Err(TerminalError::TooMany { limit: self.settings.limits.terminals });
        }
        state.terminals.insert(id.clone(), handle);
        Ok(Unstarted { registry: Arc::downgrade(self), id: Some(id.clone()) })
    }

    pub(super) fn find(
        &self,
        id: &TerminalId,
    ) -> Result<(mpsc::Sender<Request>, watch::Receiver<Progress>), TerminalError> {
        let state = self.state();
        let handle = state.terminals.get(id).filter(|handle| !handle.released);
        let handle = handle.ok_or_else(|| TerminalError::Unknown(id.clone()))?;
        Ok((handle.requests.clone(), handle.progress.clone()))
    }

    pub(super) fn release(
        &self,
        id: &TerminalId,
    ) -> Result<(mpsc::Sender<Request>, watch::Receiver<Progress>), TerminalError> {
        let mut state = self.state();
        let handle = state.terminals.get_mut(id).filter(|handle| !handle.released);
        let handle = handle.ok_or_else(|| TerminalError::Unknown(id.clone()))?;
        handle.released = true;
        Ok((handle.requests.clone(), handle.progress.clone()))
    }

    /// Releases every terminal, also those that are only about to run, and lets no other be created ever after.
    pub(super) fn close(&self) -> Vec<(mpsc::Sender<Request>, watch::Receiver<Progress>)> {
        let mut state = self.state();
        state.closed = true;
        let release = |handle: &mut Handle| {
            handle.released = true;
            (handle.requests.clone(), handle.progress.clone())
        };
        state.terminals.values_mut().map(release).collect()
    }

    /// Returns how a terminal is asked, also while it is being released.
    pub(super) fn requests(&self, id: &TerminalId) -> Option<mpsc::Sender<Request>> {
        self.state().terminals.get(id).map(|handle| handle.requests.clone())
    }

    /// Returns what a terminal showed that was put away.
    pub(super) fn released(&self, id: &TerminalId) -> Option<Shown> {
        let state = self.state();
        state.released.iter().find(|(released, _)| released == id).map(|(_, shown)| shown.clone())
    }

    /// Puts a terminal away whose task has ended.
    pub(super) fn leave(&self, id: TerminalId, shown: Shown) {
        let mut state = self.state();
        state.terminals.remove(&id);
        state.released.push_back((id, shown));
        let mut bytes: usize = state.released.iter().map(|(_, shown)| shown.text.len()).sum();
        while state.released.len() > MAX_RELEASED || bytes > MAX_RELEASED_BYTES {
            bytes -= state.released.pop_front().map_or(0, |(_, shown)| shown.text.len());
        }
    }
}

/// A place for a terminal that is not known to run. Unless it comes to that, the place is given back, and whatever
/// runs in it ends.
pub(super) struct Unstarted {
    registry: Weak<Registry>,
    id: Option<TerminalId>,
}

impl Unstarted {
    /// Leaves the terminal its place, unless the session has ended meanwhile.
    pub(super) fn has_started(mut self) -> Result<(), TerminalError> {
        let registry = self.registry.upgrade();
        if registry.is_none_or(|registry| registry.state().closed) {
            return Err(TerminalError::Ended);
        }
        self.id = None;
        Ok(())
    }
}

impl Drop for Unstarted {
    fn drop(&mut self) {
        if let (Some(registry), Some(id)) = (self.registry.upgrade(), &self.id) {
            registry.state().terminals.remove(id);
        }
    }
}
