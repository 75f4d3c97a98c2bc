//! The registry of a session's terminals, and the snapshots of released ones.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bowline_protocol::schema::v1::TerminalId;
use tokio::sync::{mpsc, watch};

use super::spawn::SupervisorPool;
use super::terminal_task::{CommandProgress, TerminalTaskRequest};
use super::{TerminalError, TerminalOptions, TerminalSnapshot};
use crate::workspace::WorkspaceSession;

/// The maximum number of snapshots of released terminals; older ones are evicted.
pub const MAX_RELEASED_TERMINALS: usize = 64;

/// The maximum total text of released terminals, in bytes; beyond it, older ones are evicted.
pub const MAX_RELEASED_BYTES: usize = 32 * 1024 * 1024;

/// The terminals of a session, by id.
#[derive(Debug)]
pub(super) struct TerminalRegistry {
    pub(super) session: WorkspaceSession,
    pub(super) options: TerminalOptions,
    pub(super) pool: Arc<SupervisorPool>,
    created_count: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    terminals: HashMap<TerminalId, TerminalHandle>,
    // Oldest first. Invariant: at most `MAX_RELEASED_TERMINALS`, with at most `MAX_RELEASED_BYTES` in total.
    released: VecDeque<(TerminalId, TerminalSnapshot)>,
    // Whether the session has ended: no terminal is created after that.
    closed: bool,
}

/// The handle of a terminal.
#[derive(Debug, Clone)]
pub(super) struct TerminalHandle {
    /// Increases with each new terminal.
    pub(super) number: u64,
    pub(super) requests: mpsc::Sender<TerminalTaskRequest>,
    pub(super) progress: watch::Receiver<CommandProgress>,
    pub(super) released: bool,
}

impl TerminalHandle {
    /// Returns whether nothing runs in the terminal and no request for it is pending.
    fn is_finished(&self) -> bool {
        self.released && self.progress.borrow().is_gone
    }
}

impl State {
    fn is_full(&self, limit: usize) -> bool {
        // Terminals that are being released count as long as they run.
        self.terminals.values().filter(|handle| !handle.is_finished()).count() >= limit
    }

    /// Releases the oldest terminal whose command has exited, because agents forget to. Returns the progress of its
    /// remaining processes, which are being killed, or `None` if every command still runs.
    ///
    /// Goes by exits, which callers see, rather than by the end of the last process, which they do not.
    fn release_oldest_exited(&mut self) -> Option<watch::Receiver<CommandProgress>> {
        let is_exited =
            |handle: &&mut TerminalHandle| !handle.released && handle.progress.borrow().exit.is_some();
        let oldest = self.terminals.values_mut().filter(is_exited).min_by_key(|handle| handle.number)?;
        oldest.released = true;
        // A full queue contains a release, or requests that are answered first; at the latest, the task ends with the
        // session.
        oldest.requests.try_send(TerminalTaskRequest::Release).unwrap_or_default();
        Some(oldest.progress.clone())
    }
}

impl TerminalRegistry {
    pub(super) fn new(session: WorkspaceSession, settings: TerminalOptions) -> Self {
        let pool =
            Arc::new(SupervisorPool::new(settings.supervisor.clone(), settings.supervisor_idle_timeout));
        Self { session, options: settings, pool, created_count: AtomicU64::new(0), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of a new terminal, and an unguessable id.
    pub(super) fn new_id(&self) -> Result<(u64, TerminalId), TerminalError> {
        let mut random = [0; 8];
        let filled = rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty());
        filled.map_err(|why| TerminalError::Supervisor(why.to_string()))?;
        let number = self.created_count.fetch_add(1, Ordering::Relaxed) + 1;
        Ok((number, TerminalId::new(format!("term-{number}-{:016x}", u64::from_ne_bytes(random)))))
    }

    /// Registers a terminal, or begins to release another one if the limit is reached.
    pub(super) fn register(
        self: &Arc<Self>,
        id: &TerminalId,
        handle: TerminalHandle,
    ) -> Result<Registration, TerminalError> {
        let mut state = self.state();
        if state.closed {
            return Err(TerminalError::SessionEnded);
        }
        let limit = self.options.limits.terminals;
        if state.is_full(limit) {
            let released = state.release_oldest_exited().ok_or(TerminalError::TooMany { limit })?;
            return Ok(Registration::MakingRoom(released));
        }
        state.terminals.insert(id.clone(), handle);
        Ok(Registration::Registered(PendingTerminal { registry: Arc::downgrade(self), id: Some(id.clone()) }))
    }

    pub(super) fn find(
        &self,
        id: &TerminalId,
    ) -> Result<(mpsc::Sender<TerminalTaskRequest>, watch::Receiver<CommandProgress>), TerminalError> {
        let state = self.state();
        let handle = state.terminals.get(id).filter(|handle| !handle.released);
        let handle = handle.ok_or_else(|| TerminalError::UnknownTerminal(id.clone()))?;
        Ok((handle.requests.clone(), handle.progress.clone()))
    }

    pub(super) fn release(
        &self,
        id: &TerminalId,
    ) -> Result<(mpsc::Sender<TerminalTaskRequest>, watch::Receiver<CommandProgress>), TerminalError> {
        let mut state = self.state();
        let handle = state.terminals.get_mut(id).filter(|handle| !handle.released);
        let handle = handle.ok_or_else(|| TerminalError::UnknownTerminal(id.clone()))?;
        handle.released = true;
        Ok((handle.requests.clone(), handle.progress.clone()))
    }

    /// Releases every terminal, including those about to start, and prevents new ones.
    pub(super) fn close(&self) -> Vec<(mpsc::Sender<TerminalTaskRequest>, watch::Receiver<CommandProgress>)> {
        let mut state = self.state();
        state.closed = true;
        let release = |handle: &mut TerminalHandle| {
            handle.released = true;
            (handle.requests.clone(), handle.progress.clone())
        };
        state.terminals.values_mut().map(release).collect()
    }

    /// Returns the request channel of a terminal, even while it is being released.
    pub(super) fn request_sender(&self, id: &TerminalId) -> Option<mpsc::Sender<TerminalTaskRequest>> {
        self.state().terminals.get(id).map(|handle| handle.requests.clone())
    }

    /// Returns the snapshot of a released terminal.
    pub(super) fn released_snapshot(&self, id: &TerminalId) -> Option<TerminalSnapshot> {
        let state = self.state();
        state.released.iter().find(|(released, _)| released == id).map(|(_, shown)| shown.clone())
    }

    /// Stores the snapshot of a terminal whose task has ended.
    pub(super) fn store_released(&self, id: TerminalId, shown: TerminalSnapshot) {
        let mut state = self.state();
        state.terminals.remove(&id);
        state.released.push_back((id, shown));
        let mut bytes: usize = state.released.iter().map(|(_, shown)| shown.text.len()).sum();
        while state.released.len() > MAX_RELEASED_TERMINALS || bytes > MAX_RELEASED_BYTES {
            bytes -= state.released.pop_front().map_or(0, |(_, shown)| shown.text.len());
        }
    }
}

/// The outcome of registering a terminal.
pub(super) enum Registration {
    /// It is registered.
    Registered(PendingTerminal),
    /// There is room for it when this terminal, which has been released, is gone.
    MakingRoom(watch::Receiver<CommandProgress>),
}

/// A registered terminal whose command has not started yet. Dropping it unregisters the terminal, which ends the
/// command.
pub(super) struct PendingTerminal {
    registry: Weak<TerminalRegistry>,
    id: Option<TerminalId>,
}

impl PendingTerminal {
    /// Keeps the terminal registered, unless the session has ended meanwhile.
    pub(super) fn confirm_started(mut self) -> Result<(), TerminalError> {
        let registry = self.registry.upgrade();
        if registry.is_none_or(|registry| registry.state().closed) {
            return Err(TerminalError::SessionEnded);
        }
        self.id = None;
        Ok(())
    }
}

impl Drop for PendingTerminal {
    fn drop(&mut self) {
        if let (Some(registry), Some(id)) = (self.registry.upgrade(), &self.id) {
            registry.state().terminals.remove(id);
        }
    }
}
