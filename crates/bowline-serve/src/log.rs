//! The event log: numbers events, commits them in batches, and hands committed events to subscribers.
//!
//! One task writes: it takes everything that waits, commits it in one transaction, and only then publishes it. So a
//! subscriber never sees an event that a crash could take back. Subscribers pull: each keeps the number of the last
//! event it has, reads from the recent events in memory or else from the store, and costs no memory when it is slow.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, watch};

use crate::event::{Event, EventKind, Recipient, SessionId};
use crate::metrics::Metrics;
use crate::store::{Mutation, ServerStore, StoreError};

#[cfg(test)]
mod tests;

/// The most bytes that wait for a commit before agents are no longer read.
const MAX_PENDING_BYTES: usize = 8 << 20;
/// The most bytes of recent events in memory, for each session.
const MAX_TAIL_BYTES: usize = 32 << 10;
/// About how many bytes a subscriber reads from the store at a time.
const PAGE_BYTES: usize = 256 << 10;
/// The pause before a failed commit is tried again; it doubles up to the longest.
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LONGEST_RETRY: Duration = Duration::from_secs(5);

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
    pending: Vec<PendingItem>,
    pending_bytes: usize,
    // Whether a batch is being committed, or what follows from it is still to be done.
    is_writing: bool,
}

enum PendingItem {
    Event(SessionId, u64, Event),
    Mutation(Mutation),
    AfterCommit(AfterCommit),
}

struct SessionLog {
    // `None` while this server has not acquired the session.
    generation: Option<u64>,
    last_seq: u64,
    // Committed events, the newest at the back.
    tail: VecDeque<Event>,
    tail_bytes: usize,
    committed: watch::Sender<u64>,
}

impl Default for SessionLog {
    fn default() -> Self {
        let (committed, _) = watch::channel(0);
        Self { generation: None, last_seq: 0, tail: VecDeque::new(), tail_bytes: 0, committed }
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
        (log.tail, log.tail_bytes) = (VecDeque::new(), 0);
        log.committed.send_replace(last_seq);
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
            (log.tail, log.tail_bytes) = (VecDeque::new(), 0);
        }
        if log.committed.receiver_count() == 0 {
            state.sessions.remove(session);
        } else {
            // Another server may have appended already.
            log.committed.send_modify(|_| {});
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
            log.committed.send_modify(|_| {});
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
                log.committed.send_if_modified(|seen| std::mem::replace(seen, *last) != *last);
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
        let log = state.sessions.get_mut(session)?;
        let generation = log.generation?;
        log.last_seq += 1;
        let seq = log.last_seq;
        state.pending_bytes += body.len();
        let event = Event { seq, kind, recipient, body };
        state.pending.push(PendingItem::Event(session.clone(), generation, event));
        drop(state);
        self.has_work.notify_one();
        Some(seq)
    }

    /// Queues a change of the store, in order with events.
    pub fn mutate(&self, mutation: Mutation) {
        self.lock().pending.push(PendingItem::Mutation(mutation));
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
                state.is_writing = !items.is_empty();
                (items, state.pending_bytes)
            };
            if items.is_empty() {
                // Waits for work that came after the look.
                work.await;
                continue;
            }
            let mutations = to_mutations(&items);
            let generations = generations(&mutations);
            let lost = if mutations.is_empty() { Vec::new() } else { self.commit(mutations).await };
            let generation_of =
                |session: SessionId| generations.get(&session).map(|generation| (session, *generation));
            let lost: HashMap<SessionId, u64> = lost.into_iter().filter_map(generation_of).collect();
            let actions = self.publish(items, bytes, &lost);
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

    /// Hands committed events to subscribers, and returns what happens next.
    fn publish(
        &self,
        items: Vec<PendingItem>,
        bytes: usize,
        lost: &HashMap<SessionId, u64>,
    ) -> Vec<AfterCommit> {
        let is_shared = self.store.shared().is_some();
        let mut state = self.lock();
        state.pending_bytes -= bytes;
        let mut actions = Vec::new();
        let mut published = 0;
        let mut changed = HashSet::new();
        for item in items {
            match item {
                PendingItem::Event(session, generation, event) => {
                    let Some(log) = state.sessions.get_mut(&session) else { continue };
                    if lost.contains_key(&session) || log.generation.is_some_and(|newer| newer != generation)
                    {
                        continue;
                    }
                    published += 1;
                    log.publish(event, is_shared);
                    changed.insert(session);
                }
                PendingItem::Mutation(_) => {}
                PendingItem::AfterCommit(action) => actions.push(action),
            }
        }
        self.metrics.add_events(published);
        for log in changed.iter().filter_map(|session| state.sessions.get(session)) {
            log.committed.send_modify(|_| {});
        }
        actions
    }

    /// Returns the committed events of a session after a number: now if there are any, otherwise as soon as there are.
    #[must_use]
    pub fn subscribe(self: &Arc<Self>, session: &SessionId, after: u64) -> Subscription {
        let mut state = self.lock();
        let log = state.sessions.entry(session.clone()).or_default();
        let committed = log.committed.subscribe();
        Subscription { log: Arc::clone(self), session: session.clone(), cursor: after, committed }
    }
}

impl SessionLog {
    fn publish(&mut self, event: Event, is_shared: bool) {
        self.committed.send_if_modified(|seq| {
            *seq = event.seq;
            false
        });
        if self.generation.is_none() && is_shared {
            // Subscribers read the store, because another server may append, too.
            return;
        }
        self.tail_bytes += event.body.len();
        self.tail.push_back(event);
        while self.tail_bytes > MAX_TAIL_BYTES && self.tail.len() > 1 {
            let dropped = self.tail.pop_front();
            self.tail_bytes -= dropped.map_or(0, |event| event.body.len());
        }
    }
}

/// Turns what waits into changes of the store. Events of a session form one run, unless another change of that session
/// comes between.
fn to_mutations(items: &[PendingItem]) -> Vec<Mutation> {
    let mut mutations: Vec<Mutation> = Vec::new();
    let mut runs: HashMap<&SessionId, usize> = HashMap::new();
    for item in items {
        match item {
            PendingItem::Event(session, generation, event) => {
                let run = runs.get(session).and_then(|index| mutations.get_mut(*index));
                match run {
                    Some(Mutation::Append { generation: same, events, .. }) if same == generation => {
                        events.push(event.clone());
                    }
                    _ => {
                        runs.insert(session, mutations.len());
                        mutations.push(Mutation::Append {
                            session: session.clone(),
                            generation: *generation,
                            events: vec![event.clone()],
                        });
                    }
                }
            }
            PendingItem::Mutation(mutation) => {
                if let (Mutation::Received(ids), Some(Mutation::Received(earlier))) =
                    (mutation, mutations.last_mut())
                {
                    earlier.extend(ids);
                    continue;
                }
                match mutation {
                    Mutation::Create(session) => runs.remove(&session.id),
                    Mutation::Append { session, .. }
                    | Mutation::Update { session, .. }
                    | Mutation::Release { session, .. }
                    | Mutation::Delete(session) => runs.remove(session),
                    Mutation::Send(_) | Mutation::Received(_) => None,
                };
                mutations.push(mutation.clone());
            }
            PendingItem::AfterCommit(_) => {}
        }
    }
    mutations
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
    committed: watch::Receiver<u64>,
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

    /// Waits for the next events. Nothing is lost if it is dropped while it waits.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    pub async fn next(&mut self) -> Result<Vec<Event>, StoreError> {
        loop {
            self.committed.mark_unchanged();
            let mut events = match self.recent() {
                Some(events) => events,
                None => self.log.store.events_after(&self.session, self.cursor, PAGE_BYTES).await?,
            };
            if let Some(last) = events.last() {
                let last = last.seq;
                self.drop_answered_questions(&mut events).await?;
                self.cursor = last;
                return Ok(events);
            }
            if self.committed.changed().await.is_err() {
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
            self.committed.mark_unchanged();
            let is_final = *self.committed.borrow() >= until || !self.log.is_open(&self.session);
            let events = self.log.store.events_after(&self.session, self.cursor, PAGE_BYTES).await?;
            if let Some(last) = events.last() {
                self.cursor = last.seq;
                return Ok(Some(events));
            }
            if is_final || self.committed.changed().await.is_err() {
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

    /// Returns the events after the cursor, if memory has all of them.
    fn recent(&mut self) -> Option<Vec<Event>> {
        let state = self.log.lock();
        let log = state.sessions.get(&self.session)?;
        match log.generation {
            // A number that the session does not have yet, perhaps because the last events were lost.
            Some(_) => self.cursor = self.cursor.min(log.last_seq),
            // Another server may append to it.
            None if self.log.store.shared().is_some() => return None,
            None => {}
        }
        let first = log.tail.front()?;
        let next = self.cursor.saturating_add(1);
        if first.seq > next {
            return None;
        }
        let skipped = usize::try_from(next - first.seq).unwrap_or(usize::MAX);
        Some(log.tail.iter().skip(skipped).cloned().collect())
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut state = self.log.lock();
        if let Some(log) = state.sessions.get(&self.session)
            && log.generation.is_none()
            && log.committed.receiver_count() <= 1
        {
            state.sessions.remove(&self.session);
        }
    }
}
