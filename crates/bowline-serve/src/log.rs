//! The event log: numbers events, notes their time, commits them in batches, and hands committed events to subscribers.
//!
//! One task writes: it takes everything that waits, commits it in one transaction, and only then publishes it. So a
//! subscriber never sees an event that a crash could take back. Subscribers pull: each keeps the number of the last
//! event it has, reads from the recent events in memory or else from the store, and costs no memory when it is slow.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_storage::clock::now;
use bytes::Bytes;
use tokio::sync::{Notify, watch};

use crate::event::{Event, EventKind, Recipient, SessionId};
use crate::metrics::Metrics;
use crate::store::{Mutation, ServerStore, StoreError};

#[cfg(test)]
mod tests;

/// The most bytes that wait for a commit before agents are no longer read.
const MAX_PENDING_BYTES: usize = 8 << 20;
/// The most bytes of recent events in memory, of all sessions together.
const MAX_RECENT_BYTES: usize = 16 << 20;
/// About how many bytes a subscriber reads at a time.
const PAGE_BYTES: usize = 256 << 10;
/// The pause before what the store refused is tried again; it doubles up to the longest.
pub(crate) const FIRST_RETRY: Duration = Duration::from_millis(50);
pub(crate) const LONGEST_RETRY: Duration = Duration::from_secs(5);

/// What happens once everything before it is committed.
type AfterCommit = Box<dyn FnOnce() + Send>;

/// The log of all open sessions.
pub struct EventLog {
    store: Arc<dyn ServerStore>,
    metrics: Arc<Metrics>,
    state: Mutex<LogState>,
    has_work: Notify,
    has_room: Notify,
}

#[derive(Default)]
struct LogState {
    sessions: HashMap<SessionId, SessionLog>,
    // The runs of events in memory, of all sessions, the oldest at the front.
    recent: VecDeque<RecentRun>,
    recent_bytes: usize,
    pending: Vec<PendingItem>,
    // Counts the batches, so that a session knows whether its run is in this one.
    batch: u64,
    pending_bytes: usize,
    // Whether a batch is being committed, or what follows from it is still to be done.
    is_writing: bool,
}

enum PendingItem {
    /// Consecutive events of a session in a generation.
    Events(SessionId, u64, Vec<Event>),
    Mutation(Mutation),
    AfterCommit(AfterCommit),
}

/// Where a run of events in memory belongs.
struct RecentRun {
    session: SessionId,
    last_seq: u64,
    bytes: usize,
}

struct SessionLog {
    // `None` while this server has not acquired the session.
    generation: Option<u64>,
    last_seq: u64,
    // Committed events in runs without gaps, the newest at the back. Runs are not empty.
    tail: VecDeque<Arc<[Event]>>,
    // The batch and the position of the pending run that takes the next event.
    pending_run: Option<(u64, usize)>,
    progress: watch::Sender<Progress>,
}

/// What the subscribers of a session wait for.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    /// The last committed event, as far as this server knows.
    committed: u64,
    /// How often subscribers were called without an event.
    calls: u64,
}

impl Default for SessionLog {
    fn default() -> Self {
        let (progress, _) = watch::channel(Progress::default());
        Self { generation: None, last_seq: 0, tail: VecDeque::new(), pending_run: None, progress }
    }
}

impl std::fmt::Debug for EventLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventLog").finish_non_exhaustive()
    }
}

impl EventLog {
    /// Returns the log of a store. [`EventLog::run`] must be running for anything to be committed.
    #[must_use]
    pub fn new(store: Arc<dyn ServerStore>, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            store,
            metrics,
            state: Mutex::default(),
            has_work: Notify::new(),
            has_room: Notify::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts events for a session that this server has acquired.
    pub fn open(&self, session: &SessionId, generation: u64, last_seq: u64) {
        let mut state = self.lock();
        let log = state.sessions.entry(session.clone()).or_default();
        (log.generation, log.last_seq) = (Some(generation), last_seq);
        (log.tail, log.pending_run) = (VecDeque::new(), None);
        log.progress.send_modify(|progress| progress.committed = last_seq);
    }

    /// Accepts no more events for a session in a generation. Subscribers still read what is stored.
    pub fn close(&self, session: &SessionId, generation: u64) {
        let mut state = self.lock();
        let Some(log) = state.sessions.get_mut(session) else { return };
        if log.generation != Some(generation) {
            return;
        }
        log.generation = None;
        if self.store.shared().is_some() {
            log.tail = VecDeque::new();
        }
        if log.progress.receiver_count() == 0 {
            state.sessions.remove(session);
        } else {
            // Another server may have appended already.
            log.progress.send_modify(|_| {});
        }
    }

    /// Gives up a session once everything before is committed, so that another server can acquire it.
    pub fn release(self: &Arc<Self>, session: &SessionId, generation: u64) {
        self.mutate(Mutation::Release { session: session.clone(), generation });
        let (log, session) = (Arc::clone(self), session.clone());
        self.after_commit(move || log.close(&session, generation));
    }

    /// Returns the generation in which this server has acquired a session.
    pub fn generation(&self, session: &SessionId) -> Option<u64> {
        self.lock().sessions.get(session)?.generation
    }

    /// Lets subscribers look again at sessions that another server may have.
    pub fn wake(&self, sessions: &[SessionId]) {
        let state = self.lock();
        let logs = sessions.iter().filter_map(|session| state.sessions.get(session));
        for log in logs.filter(|log| log.generation.is_none()) {
            log.progress.send_modify(|_| {});
        }
    }

    /// Returns the sessions with subscribers that this server has not acquired.
    pub fn followed(&self) -> Vec<SessionId> {
        let state = self.lock();
        let followed = state.sessions.iter().filter(|(_, log)| log.generation.is_none());
        followed.map(|(session, _)| session.clone()).collect()
    }

    /// Lets subscribers look again at followed sessions whose last event is newer than the last look.
    pub fn wake_newer(&self, last_seqs: &BTreeMap<SessionId, u64>) {
        let state = self.lock();
        for (session, last) in last_seqs {
            if let Some(log) = state.sessions.get(session).filter(|log| log.generation.is_none()) {
                log.progress
                    .send_if_modified(|progress| std::mem::replace(&mut progress.committed, *last) != *last);
            }
        }
    }

    /// Returns whether a session is open.
    pub fn is_open(&self, session: &SessionId) -> bool {
        self.lock().sessions.get(session).is_some_and(|log| log.generation.is_some())
    }

    /// Returns the number of the last event, committed or not, of an open session.
    pub fn last_seq(&self, session: &SessionId) -> u64 {
        self.lock().sessions.get(session).map_or(0, |log| log.last_seq)
    }

    /// Appends an event, which is published once it is committed. Returns its number; `None` if the session is not
    /// open.
    pub fn append(
        &self,
        session: &SessionId,
        kind: EventKind,
        recipient: Recipient,
        body: Bytes,
    ) -> Option<u64> {
        let mut state = self.lock();
        let LogState { sessions, pending, pending_bytes, batch, .. } = &mut *state;
        let log = sessions.get_mut(session)?;
        let generation = log.generation?;
        log.last_seq += 1;
        let seq = log.last_seq;
        *pending_bytes += body.len();
        let event = |at| Event { seq, at, kind, recipient, body };
        let run = log.pending_run.filter(|(of, _)| of == batch).and_then(|(_, index)| pending.get_mut(index));
        match run {
            Some(PendingItem::Events(_, same, events)) if *same == generation => {
                // Looking at the clock for each one, and storing it, would cost more than it tells.
                let at = events.last().and_then(|last| last.at);
                events.push(event(at));
            }
            _ => {
                log.pending_run = Some((*batch, pending.len()));
                let events = vec![event(Some(now()))];
                pending.push(PendingItem::Events(session.clone(), generation, events));
            }
        }
        drop(state);
        self.has_work.notify_one();
        Some(seq)
    }

    /// Lets the subscribers of an open session look at what else it has for them. Returns the number of its last event,
    /// committed or not; `None` if the session is not open.
    pub fn call_subscribers(&self, session: &SessionId) -> Option<u64> {
        let state = self.lock();
        let log = state.sessions.get(session).filter(|log| log.generation.is_some())?;
        log.progress.send_modify(|progress| progress.calls += 1);
        Some(log.last_seq)
    }

    /// Queues a change of the store, in order with events.
    pub fn mutate(&self, mutation: Mutation) {
        let mut state = self.lock();
        // Later events of the session form another run.
        if let Some(log) = mutation.session().and_then(|session| state.sessions.get_mut(session)) {
            log.pending_run = None;
        }
        state.pending.push(PendingItem::Mutation(mutation));
        drop(state);
        self.has_work.notify_one();
    }

    /// Runs `action` once everything before it is committed and published.
    pub fn after_commit(&self, action: impl FnOnce() + Send + 'static) {
        self.lock().pending.push(PendingItem::AfterCommit(Box::new(action)));
        self.has_work.notify_one();
    }

    /// Waits while too much waits to be committed.
    pub async fn wait_for_room(&self) {
        loop {
            let room = self.has_room.notified();
            if self.has_room() {
                return;
            }
            room.await;
        }
    }

    /// Returns whether more may wait to be committed.
    pub(crate) fn has_room(&self) -> bool {
        self.lock().pending_bytes <= MAX_PENDING_BYTES
    }

    /// Waits until everything is committed.
    pub async fn flush(&self) {
        loop {
            let room = self.has_room.notified();
            let is_done = {
                let state = self.lock();
                state.pending.is_empty() && !state.is_writing
            };
            if is_done {
                return;
            }
            room.await;
        }
    }

    /// Commits and publishes, for as long as it is polled. `on_lost` learns of each session that another server has,
    /// and of the generation that ended with it.
    pub async fn run(self: Arc<Self>, on_lost: impl Fn(&SessionId, u64)) {
        loop {
            let work = self.has_work.notified();
            let (items, bytes) = {
                let mut state = self.lock();
                let items = std::mem::take(&mut state.pending);
                state.batch += 1;
                state.is_writing = !items.is_empty();
                (items, state.pending_bytes)
            };
            if items.is_empty() {
                // Waits for work that came after the look.
                work.await;
                continue;
            }
            let Batch { mutations, runs, actions } = Batch::new(items);
            let generations = generations(&mutations);
            let lost = if mutations.is_empty() { Vec::new() } else { self.commit(mutations).await };
            let generation_of =
                |session: SessionId| generations.get(&session).map(|generation| (session, *generation));
            let lost: HashMap<SessionId, u64> = lost.into_iter().filter_map(generation_of).collect();
            self.publish(runs, bytes, &lost);
            for (session, generation) in &lost {
                self.close(session, *generation);
                on_lost(session, *generation);
            }
            for action in actions {
                action();
            }
            self.lock().is_writing = false;
            self.has_room.notify_waiters();
        }
    }

    /// Commits until it succeeds. Meanwhile, agents wait as soon as too much is pending.
    async fn commit(&self, mutations: Vec<Mutation>) -> Vec<SessionId> {
        let mut pause = FIRST_RETRY;
        loop {
            match self.store.commit(mutations.clone()).await {
                Ok(lost) => {
                    self.metrics.set_store_ok(true);
                    return lost;
                }
                Err(error) => {
                    self.metrics.set_store_ok(false);
                    tracing::error!(%error, "cannot store events; trying again");
                    tokio::time::sleep(pause).await;
                    pause = (2 * pause).min(LONGEST_RETRY);
                }
            }
        }
    }

    /// Hands committed events to subscribers.
    fn publish(&self, runs: Vec<Run>, bytes: usize, lost: &HashMap<SessionId, u64>) {
        let is_shared = self.store.shared().is_some();
        let mut state = self.lock();
        state.pending_bytes -= bytes;
        let mut published = 0;
        let mut changed = HashSet::new();
        for Run { session, generation, events } in runs {
            let Some(log) = state.sessions.get_mut(&session) else { continue };
            if lost.contains_key(&session) || log.generation.is_some_and(|newer| newer != generation) {
                continue;
            }
            published += events.len();
            let last_seq = events.last().map_or(0, |event| event.seq);
            log.progress.send_if_modified(|progress| {
                progress.committed = last_seq;
                false
            });
            changed.insert(session.clone());
            // Subscribers of a session that this server has not acquired read the store, because another server may
            // append, too.
            if log.generation.is_some() || !is_shared {
                let bytes = events.iter().map(Event::size).sum();
                log.tail.push_back(events);
                state.recent_bytes += bytes;
                state.recent.push_back(RecentRun { session, last_seq, bytes });
            }
        }
        state.drop_oldest_runs();
        self.metrics.add_events(published as u64);
        for log in changed.iter().filter_map(|session| state.sessions.get(session)) {
            log.progress.send_modify(|_| {});
        }
    }

    /// Returns the committed events of a session after a number: now if there are any, otherwise as soon as there are.
    #[must_use]
    pub fn subscribe(self: &Arc<Self>, session: &SessionId, after: u64) -> Subscription {
        let mut state = self.lock();
        let log = state.sessions.entry(session.clone()).or_default();
        let progress = log.progress.subscribe();
        Subscription { log: Arc::clone(self), session: session.clone(), cursor: after, calls: 0, progress }
    }
}

impl LogState {
    /// Drops the oldest runs of events from memory, beyond the limit.
    fn drop_oldest_runs(&mut self) {
        while self.recent_bytes > MAX_RECENT_BYTES
            && let Some(RecentRun { session, last_seq, bytes }) = self.recent.pop_front()
        {
            self.recent_bytes -= bytes;
            let Some(log) = self.sessions.get_mut(&session) else { continue };
            while log.tail.front().and_then(|run| run.last()).is_some_and(|event| event.seq <= last_seq) {
                log.tail.pop_front();
            }
        }
    }
}

/// Consecutive events of a session that are committed together.
struct Run {
    session: SessionId,
    generation: u64,
    events: Arc<[Event]>,
}

/// What is committed at once, and what happens then.
#[derive(Default)]
struct Batch {
    mutations: Vec<Mutation>,
    runs: Vec<Run>,
    actions: Vec<AfterCommit>,
}

impl Batch {
    fn new(items: Vec<PendingItem>) -> Self {
        let mut batch = Self::default();
        for item in items {
            match item {
                PendingItem::Events(session, generation, events) => {
                    let events: Arc<[Event]> = events.into();
                    batch.mutations.push(Mutation::Append {
                        session: session.clone(),
                        generation,
                        events: Arc::clone(&events),
                    });
                    batch.runs.push(Run { session, generation, events });
                }
                PendingItem::Mutation(Mutation::Received(ids)) => match batch.mutations.last_mut() {
                    Some(Mutation::Received(earlier)) => earlier.extend(ids),
                    _ => batch.mutations.push(Mutation::Received(ids)),
                },
                PendingItem::Mutation(mutation) => batch.mutations.push(mutation),
                PendingItem::AfterCommit(action) => batch.actions.push(action),
            }
        }
        batch
    }
}

/// Returns the generation in which each session is changed.
fn generations(mutations: &[Mutation]) -> HashMap<SessionId, u64> {
    let changed = mutations.iter().filter_map(|mutation| match mutation {
        Mutation::Create(session) => Some((session.id.clone(), 1)),
        Mutation::Append { session, generation, .. } => Some((session.clone(), *generation)),
        Mutation::Update { session, generation, .. } => {
            generation.map(|generation| (session.clone(), generation))
        }
        Mutation::Release { .. } | Mutation::Delete(_) | Mutation::Send(_) | Mutation::Received(_) => None,
    });
    changed.collect()
}

/// The committed events of a session, from a number on.
#[derive(Debug)]
pub struct Subscription {
    log: Arc<EventLog>,
    session: SessionId,
    cursor: u64,
    // The calls that it has answered.
    calls: u64,
    progress: watch::Receiver<Progress>,
}

impl Subscription {
    /// Returns the session.
    #[must_use]
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// Returns the number of the last event that was returned.
    #[must_use]
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Waits for the next events, or for [`EventLog::call_subscribers`]: then there may be none. Nothing is lost if it is
    /// dropped while it waits.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    pub async fn next(&mut self) -> Result<Vec<Event>, StoreError> {
        loop {
            let calls = self.progress.borrow_and_update().calls;
            let mut events = match self.recent() {
                Some(events) => events,
                None => self.log.store.events_after(&self.session, self.cursor, PAGE_BYTES).await?,
            };
            if let Some(last) = events.last() {
                let last = last.seq;
                self.drop_answered_questions(&mut events).await?;
                (self.cursor, self.calls) = (last, calls);
                return Ok(events);
            }
            if self.calls != calls {
                self.calls = calls;
                return Ok(events);
            }
            if self.progress.changed().await.is_err() {
                // The log is gone with the server.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits for the next events up to a number; `None` if there are none left, because they were dropped or the session
    /// was deleted.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    pub async fn next_until(&mut self, until: u64) -> Result<Option<Vec<Event>>, StoreError> {
        loop {
            let committed = self.progress.borrow_and_update().committed;
            let is_final = committed >= until || !self.log.is_open(&self.session);
            let events = self.log.store.events_after(&self.session, self.cursor, PAGE_BYTES).await?;
            if let Some(last) = events.last() {
                self.cursor = last.seq;
                return Ok(Some(events));
            }
            if is_final || self.progress.changed().await.is_err() {
                return Ok(None);
            }
        }
    }

    /// Drops questions of another server's session that are answered already. A question is in the session's row before
    /// its event is stored, so one that is missing there has been answered.
    async fn drop_answered_questions(&self, events: &mut Vec<Event>) -> Result<(), StoreError> {
        let has_questions = events.iter().any(|event| event.kind == EventKind::Question);
        if !has_questions || self.log.store.shared().is_none() || self.log.is_open(&self.session) {
            return Ok(());
        }
        let stored = self.log.store.session(&self.session).await?;
        let open = stored.map(|stored| stored.pending.questions).unwrap_or_default();
        events.retain(|event| {
            event.kind != EventKind::Question || open.iter().any(|question| question.seq == event.seq)
        });
        Ok(())
    }

    /// Returns the next events after the cursor, if memory has all of them.
    fn recent(&mut self) -> Option<Vec<Event>> {
        let state = self.log.lock();
        let log = state.sessions.get(&self.session)?;
        match log.generation {
            // A number that the session does not have yet, perhaps because the last events were lost.
            Some(_) if self.cursor >= log.last_seq => {
                self.cursor = log.last_seq;
                return Some(Vec::new());
            }
            Some(_) => {}
            // Another server may append to it.
            None if self.log.store.shared().is_some() => return None,
            None => {}
        }
        let next = self.cursor.saturating_add(1);
        if log.tail.front()?.first()?.seq > next {
            return None;
        }
        let start = log.tail.partition_point(|run| run.last().is_some_and(|event| event.seq < next));
        let events = log.tail.range(start..).flat_map(|run| run.iter()).skip_while(|event| event.seq < next);
        let mut bytes = 0;
        let page = events.take_while(|event| {
            let is_room = bytes < PAGE_BYTES;
            bytes += event.body.len();
            is_room
        });
        Some(page.cloned().collect())
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut state = self.log.lock();
        if let Some(log) = state.sessions.get(&self.session)
            && log.generation.is_none()
            && log.progress.receiver_count() <= 1
        {
            state.sessions.remove(&self.session);
        }
    }
}
