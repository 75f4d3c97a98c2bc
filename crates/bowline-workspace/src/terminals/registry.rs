//! Which terminals a session has, and what those showed that it had.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bowline_state::schema::v1::TerminalId;
use tokio::sync::{mpsc, watch};

use super::running::{Progress, Request};
use super::spawn::SupervisorPool;
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
    pub(super) pool: Arc<SupervisorPool>,
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
    /// Those that were created before have smaller ones.
    pub(super) number: u64,
    pub(super) requests: mpsc::Sender<Request>,
    pub(super) progress: watch::Receiver<Progress>,
    pub(super) released: bool,
}

impl Handle {
    /// Says whether nothing runs in it and no request for it is open.
    fn is_put_away(&self) -> bool {
        self.released && self.progress.borrow().gone
    }
}

impl State {
    fn is_full(&self, limit: usize) -> bool {
        // Those that are being released count as long as they run.
        self.terminals.values().filter(|handle| !handle.is_put_away()).count() >= limit
    }

    /// Releases the oldest of the terminals in which nothing runs any more: agents forget to. Says whether there was one.
    fn put_away_oldest(&mut self) -> bool {
        let ended =
            self.terminals.values_mut().filter(|handle| !handle.released && handle.progress.borrow().gone);
        let Some(oldest) = ended.min_by_key(|handle| handle.number) else { return false };
        oldest.released = true;
        // A full queue has a release in it, or a request that is answered first; the task ends with the session at last.
        oldest.requests.try_send(Request::Release).unwrap_or_default();
        true
    }
}

impl Registry {
    pub(super) fn new(session: Session, settings: Settings) -> Self {
        let pool = Arc::new(SupervisorPool::new(settings.supervisor.clone(), settings.supervisor_patience));
        Self { session, settings, pool, created: AtomicU64::new(0), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of a new terminal, and an id that cannot be guessed.
    pub(super) fn new_id(&self) -> Result<(u64, TerminalId), TerminalError> {
        let mut random = [0; 8];
        let filled = rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty());
        filled.map_err(|why| TerminalError::Supervisor(why.to_string()))?;
        let number = self.created.fetch_add(1, Ordering::Relaxed) + 1;
        Ok((number, TerminalId::new(format!("term-{number}-{:016x}", u64::from_ne_bytes(random)))))
    }

    /// Returns the terminals that will make room for a new one in a moment, if there is none: their commands have ended, and
    /// what these started is about to.
    pub(super) fn ending(&self) -> Vec<watch::Receiver<Progress>> {
        let state = self.state();
        let is_ended = |handle: &&Handle| handle.progress.borrow().exit.is_some();
        let ended: Vec<&Handle> = state.terminals.values().filter(is_ended).collect();
        let has_room = !state.is_full(self.settings.limits.terminals);
        if has_room || ended.iter().any(|handle| handle.progress.borrow().gone) {
            return Vec::new();
        }
        ended.into_iter().map(|handle| handle.progress.clone()).collect()
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
        let limit = self.settings.limits.terminals;
        if state.is_full(limit) && !state.put_away_oldest() {
            return Err(TerminalError::TooMany { limit });
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
