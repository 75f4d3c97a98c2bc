//! The hub: connects clients, sessions and agents, and owns all their state.
//!
//! ```text
//!  client ─► receive ─► session open? ─► agent's input          (from_client.rs; open.rs opens a session)
//!  agent ─► route_agent_line ─► event log ─► commit ─► streams  (from_agent.rs, ../log.rs)
//! ```
//!
//! A client's request gets a new id on its way to the agent, and its response gets the client's id back. An agent's
//! request gets an id that is the same for all clients, so the first answer wins wherever it comes from. Everything
//! that clients are sent about a session is an event of its log; what concerns only a connection is in its outbox.
//!
//! One lock guards all state and is never held while waiting. Lock order: hub, then log, then outbox.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bowline_protocol::remote;
use bowline_protocol::schema::v1::RequestId;
use bowline_storage::clock;
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore, oneshot};

use crate::event::{ConnectionId, Event, EventKind, Recipient, SessionId};
use crate::log::EventLog;
use crate::metrics::{Gauges, Metrics};
use crate::store::{Mutation, PendingQuestion, PendingWork, ServerStore, SessionChange, StoredSession};
use crate::token::{Principal, Role};

mod activity;
mod attachment;
mod connection;
mod from_agent;
mod from_client;
mod lease;
mod message;
mod open;
mod rate;
mod servers;
mod start;
mod streams;
mod worker;

pub use activity::{HubEvent, SessionActivity, SessionState};
use connection::{Outbox, OutboxItem, OutboxStep};
pub use start::{ConnectError, ConnectionReservation};
pub use streams::{ConnectionStream, MergedStream, SessionStream, StreamMessage};
pub use worker::{AgentLauncher, AgentStreams};

use attachment::Attachment;
use connection::Connection;
use message::InheritedEvent;
use start::WorkerStart;
use worker::{OpenRequest, Worker, WorkerId, WorkerKey};

/// How often deadlines and tokens are checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long the last events may take to be stored.
const LAST_COMMIT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long clients may take at the end to read what was sent to them.
const LAST_READ_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest id of a request, a session or a connection, in bytes.
pub(crate) const MAX_ID_BYTES: usize = 256;

/// The limits of a hub.
#[derive(Debug, Clone)]
pub struct HubOptions {
    /// The directories below which sessions may work, canonical.
    pub roots: Vec<PathBuf>,
    /// How long a question waits for an answer.
    pub question_timeout: Duration,
    /// How long an agent's request waits for a client that can serve it.
    pub client_timeout: Duration,
    /// How long a connection without streams is kept.
    pub connection_timeout: Duration,
    /// How long an agent without work is kept, if it can load its sessions again.
    pub agent_timeout: Duration,
    /// The most connections of a principal.
    pub max_connections: usize,
    /// The most open sessions of a principal.
    pub max_sessions: usize,
    /// The most agents of a principal: one runs for each kind of client.
    pub max_agents: usize,
    /// The most messages of a principal in a second; for a short time, ten times as many.
    pub max_rate: u32,
}

impl Default for HubOptions {
    fn default() -> Self {
        Self {
            roots: Vec::new(),
            question_timeout: Duration::from_secs(60 * 60),
            client_timeout: Duration::from_secs(60),
            connection_timeout: Duration::from_secs(5 * 60),
            agent_timeout: Duration::from_secs(30 * 60),
            max_connections: 256,
            max_sessions: 4096,
            max_agents: 8,
            max_rate: 1000,
        }
    }
}

/// Why a message was not accepted. Each has an HTTP status.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReceiveError {
    /// The connection is unknown.
    #[error("this connection is unknown or has ended: send `initialize` again")]
    UnknownConnection,
    /// The message cannot be used.
    #[error("{0}")]
    Invalid(String),
    /// It is a batch.
    #[error("batches of messages are not supported")]
    Batch,
    /// Too much waits already.
    #[error("{0}")]
    Overloaded(String),
    /// The server is stopping.
    #[error("the server is stopping")]
    Draining,
    /// The server has no lease in the database at the moment.
    #[error("the server has lost the database and its sessions: try again in a moment, or at another server")]
    Fenced,
}

/// The hub of a server.
pub struct Hub {
    state: Mutex<HubState>,
    log: Arc<EventLog>,
    store: Arc<dyn ServerStore>,
    launcher: Arc<dyn AgentLauncher>,
    metrics: Arc<Metrics>,
    options: HubOptions,
    // Always valid if the store is this server's own.
    lease: lease::Lease,
    // Places for what waits for the database on its way to other servers.
    unforwarded: Arc<Semaphore>,
    // Wakes who waits for requests to be answered and for streams to end.
    progress: Notify,
    events: tokio::sync::broadcast::Sender<HubEvent>,
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hub").finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct HubState {
    connections: HashMap<ConnectionId, Connection>,
    sessions: HashMap<SessionId, Session>,
    workers: HashMap<WorkerId, Worker>,
    worker_ids: HashMap<WorkerKey, WorkerId>,
    // The agents that are being started, one at a time for each key.
    starts: HashMap<WorkerKey, WorkerStart>,
    last_worker: WorkerId,
    agent_requests: HashMap<String, AgentRequest>,
    // The number of the last id that an agent's request was given, and what makes these ids unguessable.
    last_request_id: u64,
    request_id_key: RandomState,
    // The number of the last request that was given to a client.
    last_request: u64,
    last_stream: u64,
    rates: rate::MessageRates,
    // How many connections of each principal are being made.
    connecting: HashMap<String, usize>,
    is_draining: bool,
    // Everything is stored, and streams end once they have sent it.
    has_ended: bool,
    // Whether it has ended its lease in a shared store.
    has_left: bool,
}

/// A session that this server has acquired, or is acquiring.
#[derive(Debug)]
struct Session {
    principal: String,
    generation: u64,
    stage: Stage,
    title: Option<String>,
    setup: Value,
    pending: PendingWork,
    attached: HashSet<ConnectionId>,
    // The number of the last request about it that was given to a client.
    last_request: u64,
}

impl Session {
    /// Returns a session that is being opened; these messages wait.
    fn opening(waiting: Vec<WaitingMessage>) -> Self {
        Self {
            principal: String::new(),
            generation: 0,
            stage: Stage::Opening(waiting),
            title: None,
            setup: Value::Null,
            pending: PendingWork::default(),
            attached: HashSet::new(),
            last_request: 0,
        }
    }
}

#[derive(Debug)]
enum Stage {
    /// Being opened, or closed; these messages wait.
    Opening(Vec<WaitingMessage>),
    /// Open at an agent.
    Open(WorkerId),
}

/// A client's message that waits for its session.
#[derive(Debug)]
struct WaitingMessage {
    connection: ConnectionId,
    message: Bytes,
    // Of a message that came through another server.
    receipt: Option<servers::InboxReceipt>,
}

/// A request of an agent that is not answered yet.
#[derive(Debug)]
struct AgentRequest {
    worker: WorkerId,
    // Its id at the agent.
    id: RequestId,
    method: String,
    session: SessionId,
    // The message as clients see it.
    body: Bytes,
    // The number of a question's event, or of the last event before another request; `None` while no client can serve it.
    seq: Option<u64>,
    // The client that serves it; `None` for a question to all.
    target: Option<ConnectionId>,
    // Counts the requests that were given to clients. Such a request is no event: it ends with its agent, and would wait
    // for a commit.
    number: u64,
    is_question: bool,
    deadline: Instant,
}

impl Hub {
    /// Returns a hub. [`Hub::run`] must be running.
    #[must_use]
    pub fn new(
        store: Arc<dyn ServerStore>,
        launcher: Arc<dyn AgentLauncher>,
        metrics: Arc<Metrics>,
        options: HubOptions,
    ) -> Arc<Self> {
        let log = EventLog::new(Arc::clone(&store), Arc::clone(&metrics));
        Arc::new(Self {
            state: Mutex::default(),
            log,
            store,
            launcher,
            metrics,
            options,
            lease: lease::Lease::default(),
            unforwarded: Arc::new(Semaphore::new(servers::MAX_UNFORWARDED)),
            progress: Notify::new(),
            events: tokio::sync::broadcast::Sender::new(activity::MAX_WAITING_EVENTS),
        })
    }

    /// Commits events and checks deadlines, for as long as it is polled.
    pub async fn run(self: Arc<Self>) {
        let lost = {
            let hub = Arc::clone(&self);
            move |session: &SessionId, generation| hub.lose_session(session, generation)
        };
        let checks = async {
            let mut interval = tokio::time::interval(CHECK_INTERVAL);
            interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                interval.tick().await;
                servers::check_lease(&self);
                self.check_deadlines();
                self.check_tokens().await;
            }
        };
        tokio::join!(Arc::clone(&self.log).run(lost), checks, servers::share_store(&self));
    }

    fn lock(&self) -> MutexGuard<'_, HubState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the event log.
    #[must_use]
    pub fn log(&self) -> &Arc<EventLog> {
        &self.log
    }

    /// Returns the store.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn ServerStore> {
        &self.store
    }

    /// Returns the counters.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Returns what the server has at the moment.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        let state = self.lock();
        Gauges {
            connections: state.connections.values().filter(|connection| !connection.is_remote()).count(),
            sessions: state.sessions.len(),
            turns: state.sessions.values().map(|session| session.pending.requests.len()).sum(),
            open_questions: state.agent_requests.values().filter(|request| request.is_question).count(),
            agents: state.workers.len(),
        }
    }

    /// Accepts nothing new. Returns once every turn has ended or `timeout` has passed, and everything is stored.
    pub async fn drain(&self, timeout: Duration) {
        self.lock().is_draining = true;
        servers::announce_draining(self).await;
        if tokio::time::timeout(timeout, self.wait_until(|state| !state.is_working())).await.is_err() {
            tracing::warn!("turns still run; they end with an error");
        }
        let workers: Vec<WorkerId> = self.lock().workers.keys().copied().collect();
        for worker in workers {
            self.end_worker(worker, "the server stopped");
        }
        // Also what follows from the last commit. The store may be what fails; what it has is consistent without the rest.
        if tokio::time::timeout(LAST_COMMIT_TIMEOUT, self.log.flush()).await.is_err() {
            tracing::error!("the last events could not be stored");
        }
        servers::leave_store(self).await;
        {
            let mut state = self.lock();
            state.has_ended = true;
            for connection in state.connections.values() {
                connection.outbox.finish();
                connection.attach_changed.notify_waiters();
            }
        }
        let has_streams =
            |state: &HubState| state.connections.values().any(|connection| connection.open_streams > 0);
        let read = self.wait_until(|state| !has_streams(state));
        if tokio::time::timeout(LAST_READ_TIMEOUT, read).await.is_err() {
            tracing::warn!("some clients did not read the last messages");
        }
        let connections: Vec<ConnectionId> = self.lock().connections.keys().cloned().collect();
        for connection in connections {
            self.disconnect(&connection);
        }
        // There may be no subscriber.
        drop(self.events.send(HubEvent::Stopped));
    }

    /// Waits until the state is as wanted.
    async fn wait_until(&self, is_reached: impl Fn(&HubState) -> bool) {
        loop {
            let progress = self.progress.notified();
            tokio::pin!(progress);
            // Registered before the look, so that no change is missed.
            progress.as_mut().enable();
            if is_reached(&self.lock()) {
                return;
            }
            progress.await;
        }
    }

    /// Returns whether it still accepts work.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.metrics.is_store_ok() && !self.lock().is_draining
    }

    /// Returns the principal of a connection.
    #[must_use]
    pub fn principal_of(&self, connection: &str) -> Option<Principal> {
        let state = self.lock();
        let connection = state.connections.get(connection).filter(|connection| !connection.is_remote())?;
        Some(connection.principal.clone())
    }

    /// Counts a message of a principal.
    ///
    /// # Errors
    /// Fails if it has sent too many lately.
    pub fn check_rate(&self, principal: &Principal) -> Result<(), ReceiveError> {
        self.lock().check_rate(&principal.name, self.options.max_rate)
    }

    /// Ends a connection. Its sessions go on.
    pub fn disconnect(&self, id: &ConnectionId) {
        let mut state = self.lock();
        let Some(connection) = state.connections.remove(id) else { return };
        connection.outbox.close();
        connection.attach_changed.notify_waiters();
        for session in connection.attached.keys() {
            if let Some(session) = state.sessions.get_mut(session) {
                session.attached.remove(id);
            }
        }
        let served = state.agent_requests.values().filter(|request| request.target.as_ref() == Some(id));
        let served: HashSet<SessionId> = served.map(|request| request.session.clone()).collect();
        for session in served {
            self.release_requests(&mut state, id, &session);
        }
    }

    /// Takes the requests about a session away from the client that serves them. Another one may serve them until the
    /// deadline.
    fn release_requests(&self, state: &mut HubState, connection: &ConnectionId, session: &SessionId) {
        for request in state.agent_requests.values_mut() {
            if request.session == *session && request.target.as_ref() == Some(connection) {
                (request.target, request.seq) = (None, None);
                request.deadline = Instant::now() + self.options.client_timeout;
            }
        }
        self.assign_requests(state, session);
    }

    /// Attaches a connection to a session. A response that waited for an earlier history is sent now, unless the new
    /// attachment keeps it.
    fn attach(
        &self,
        state: &mut HubState,
        connection: &ConnectionId,
        session: &SessionId,
        attachment: Attachment,
    ) {
        let Some(found) = state.connections.get_mut(connection) else { return };
        let kept = attachment.held_response.clone();
        let earlier = found.attached.insert(session.clone(), attachment);
        let held = earlier.and_then(|earlier| earlier.held_response);
        if let Some(response) = held.filter(|response| kept.as_ref() != Some(response)) {
            found.outbox.push(OutboxItem::Message(response));
        }
        found.attach_changed.notify_waiters();
        if let Some(session) = state.sessions.get_mut(session) {
            session.attached.insert(connection.clone());
        }
        self.assign_requests(state, session);
    }

    /// Gives requests that no client could serve to one that can.
    fn assign_requests(&self, state: &mut HubState, session: &SessionId) {
        let waiting = state.agent_requests.iter().filter(|(_, request)| {
            request.session == *session && !request.is_question && request.seq.is_none()
        });
        for name in waiting.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.assign_request(state, &name);
        }
    }

    /// Gives a request to a client that can serve it, if there is one.
    fn assign_request(&self, state: &mut HubState, name: &str) {
        let HubState { agent_requests, sessions, connections, last_request, .. } = state;
        let Some(request) = agent_requests.get_mut(name) else { return };
        let Some(open) = sessions.get_mut(&request.session) else { return };
        let able = open.attached.iter().find(|id| {
            connections.get(*id).is_some_and(|connection| {
                !connection.is_remote()
                    && connection.principal.may_use(&open.principal)
                    && can_serve(connection, &request.method)
            })
        });
        let Some(able) = able.cloned() else { return };
        // Its streams look for it after that event.
        request.seq = self.log.call_subscribers(&request.session);
        if request.seq.is_some() {
            *last_request += 1;
            (request.number, open.last_request) = (*last_request, *last_request);
            request.target = Some(able);
        }
    }

    /// Returns whether a session may belong to another server.
    fn is_elsewhere(&self, session: &SessionId) -> bool {
        self.store.shared().is_some() && !self.log.is_open(session)
    }

    /// Returns the open questions of a session that a connection may answer, among its events up to a number. They
    /// are sent again, with the same ids, to a client that may have missed them.
    async fn open_questions(&self, connection: &str, session: &SessionId, until: u64) -> Vec<Bytes> {
        if self.is_elsewhere(session) {
            return servers::open_questions_elsewhere(self, connection, session, until).await;
        }
        let state = self.lock();
        let Some(connection) = state.connections.get(connection) else { return Vec::new() };
        if connection.principal.role == Role::Observer {
            return Vec::new();
        }
        let mut open: Vec<(u64, Bytes)> = state
            .agent_requests
            .values()
            .filter(|request| request.session == *session && request.is_question)
            .filter_map(|request| Some((request.seq.filter(|seq| *seq <= until)?, request.body.clone())))
            .collect();
        open.sort_by_key(|(seq, _)| *seq);
        open.into_iter().map(|(_, body)| body).collect()
    }

    /// Stores what a session waits for.
    fn save_pending(&self, id: &SessionId, session: &Session) {
        let pending = Some(session.pending.clone());
        self.update_session(id, SessionChange { pending, ..SessionChange::default() });
    }

    /// Changes the row of a session that this server has acquired.
    fn update_session(&self, session: &SessionId, change: SessionChange) {
        let Some(generation) = self.log.generation(session) else { return };
        let generation = Some(generation);
        self.log.mutate(Mutation::Update { session: session.clone(), generation, change });
        self.announce_change(session);
    }

    /// Returns what a session is doing.
    #[must_use]
    pub fn activity(&self, stored: &StoredSession) -> SessionActivity {
        self.lock().activity(stored)
    }

    /// Returns what an agent of a principal says of itself, if one runs.
    #[must_use]
    pub fn agent_info(&self, principal: &str) -> Option<Value> {
        let state = self.lock();
        let worker = state
            .workers
            .values()
            .find(|worker| worker.key.principal == principal && worker.key.agent.is_none())?;
        Some(worker.description["agentInfo"].clone()).filter(Value::is_object)
    }

    /// Returns what happens from now on.
    #[must_use]
    pub fn subscribe(&self) -> tokio::sync::broadcast::Receiver<HubEvent> {
        self.events.subscribe()
    }

    /// Archives a session, or brings it back.
    pub async fn archive(&self, session: &SessionId, is_archived: bool) {
        let change = SessionChange { archived: Some(is_archived), ..SessionChange::default() };
        self.log.mutate(Mutation::Update { session: session.clone(), generation: None, change });
        self.announce_change(session);
        self.log.flush().await;
    }

    /// Tells subscribers that a session changed, once the store has the change.
    pub fn announce_change(&self, session: &SessionId) {
        if self.events.receiver_count() > 0 {
            let (events, event) = (self.events.clone(), HubEvent::SessionChanged(session.clone()));
            // The last subscriber may be gone by then.
            self.log.after_commit(move || drop(events.send(event)));
        }
    }

    fn check_deadlines(self: &Arc<Self>) {
        let now = Instant::now();
        let mut expired = Vec::new();
        let mut idle_connections = Vec::new();
        let mut idle_workers = Vec::new();
        {
            let mut state = self.lock();
            state.rates.forget_idle(now);
            for connection in state.connections.values_mut() {
                connection.release_responses(now, self.options.client_timeout);
            }
            for (id, request) in &state.agent_requests {
                if now >= request.deadline && (request.is_question || request.seq.is_none()) {
                    expired.push(id.clone());
                }
            }
            for (id, connection) in &state.connections {
                let is_idle = connection.open_streams == 0
                    && now.duration_since(connection.idle_since) >= self.options.connection_timeout;
                if is_idle || connection.outbox.is_closed() {
                    idle_connections.push(id.clone());
                }
            }
            for (id, worker) in &state.workers {
                let is_used = !worker.open.is_empty()
                    || worker.sessions.iter().any(|session| {
                        state.sessions.get(session).is_some_and(|session| !session.attached.is_empty())
                    })
                    || state.connections.values().any(|connection| connection.worker_key == worker.key);
                let is_idle = now.duration_since(worker.idle_since) >= self.options.agent_timeout;
                if !is_used && is_idle && (worker.can_load() || worker.sessions.is_empty()) {
                    idle_workers.push(*id);
                }
            }
        }
        for id in expired {
            self.expire_request(&mut self.lock(), &id);
        }
        for id in idle_connections {
            self.disconnect(&id);
        }
        for id in idle_workers {
            tracing::info!(worker = id, "stopping an agent without work");
            self.end_worker(id, "the agent was stopped because it had no work");
        }
    }

    /// Ends the connections whose token was removed or has expired.
    async fn check_tokens(&self) {
        let connections: Vec<(ConnectionId, String)> = {
            let state = self.lock();
            let token = |(id, connection): (&ConnectionId, &Connection)| {
                (id.clone(), connection.principal.token.clone())
            };
            // The client of another server is checked there.
            state.connections.iter().filter(|(_, connection)| !connection.is_remote()).map(token).collect()
        };
        if connections.is_empty() {
            return;
        }
        // While the store cannot be read, nothing is known to have been removed.
        let Ok(tokens) = self.store.tokens().await else { return };
        let now = clock::now();
        let valid = tokens.iter().filter(|token| token.principal(now).is_some());
        let valid: HashSet<&str> = valid.map(|token| token.id.as_str()).collect();
        for (connection, _) in connections.iter().filter(|(_, token)| !valid.contains(token.as_str())) {
            tracing::info!(%connection, "a connection ended with its token");
            self.disconnect(connection);
        }
    }
}

impl HubState {
    /// Returns whether a client waits for an agent.
    fn is_working(&self) -> bool {
        let mut requests = self.workers.values().flat_map(|worker| worker.open.values());
        requests.any(|open| !matches!(open, OpenRequest::Own { .. }))
            || self.sessions.values().any(|session| matches!(session.stage, Stage::Opening(_)))
    }

    /// Returns whether an agent here waits for the answer with an id.
    fn is_asked(&self, id: &RequestId) -> bool {
        matches!(id, RequestId::Str(id) if self.agent_requests.contains_key(&**id))
    }

    /// Returns a new id for an agent's request, which no client can guess.
    fn new_request_id(&mut self) -> String {
        self.last_request_id += 1;
        let number = self.last_request_id;
        format!("{:016x}{number:x}", self.request_id_key.hash_one(number))
    }

    fn check_rate(&mut self, principal: &str, rate: u32) -> Result<(), ReceiveError> {
        if self.rates.take(principal, rate, Instant::now()) {
            return Ok(());
        }
        Err(ReceiveError::Overloaded(format!("{principal} sends more than {rate} messages a second")))
    }

    /// Checks that a principal may have another agent.
    fn check_agents(&self, principal: &str, limit: usize) -> Result<(), String> {
        let keys = self.workers.values().map(|worker| &worker.key).chain(self.starts.keys());
        let keys: HashSet<&WorkerKey> = keys.filter(|key| key.principal == principal).collect();
        if keys.len() < limit {
            return Ok(());
        }
        Err(format!(
            "{principal} has {} agents already, one for each kind of client: close clients of other kinds and wait \
             until their agents have stopped, or start the server with a larger --max-agents",
            keys.len()
        ))
    }

    fn attachment(&mut self, connection: &str, session: &SessionId) -> Option<&mut Attachment> {
        self.connections.get_mut(connection)?.attached.get_mut(session)
    }

    /// Returns the agent's requests that a connection has to answer after an event, and has not been sent since the one
    /// with the number `sent`: each with the event it follows. `sent` becomes the number of the last one.
    fn due_requests(
        &self,
        connection: &Connection,
        session: &SessionId,
        after: u64,
        sent: &mut u64,
    ) -> Vec<(u64, Bytes)> {
        let newest = self.sessions.get(session).map_or(0, |open| open.last_request);
        if newest <= *sent {
            return Vec::new();
        }
        let mut due = Vec::new();
        let mut last = newest;
        for request in self.agent_requests.values() {
            let is_own = request.target.as_ref().is_some_and(|target| connection.ids.contains(target));
            let Some(seq) = request.seq.filter(|_| is_own && request.session == *session) else { continue };
            if seq > after {
                last = last.min(request.number - 1);
            } else if request.number > *sent {
                due.push((request.number, seq, request.body.clone()));
            }
        }
        *sent = last;
        due.sort_unstable_by_key(|(number, ..)| *number);
        due.into_iter().map(|(_, seq, body)| (seq, body)).collect()
    }

    /// Returns what a connection is sent for events on the session's stream, up to the event `until`; `sent` is the
    /// number of the last request that it was sent.
    fn deliverable(
        &self,
        connection: &str,
        session: &SessionId,
        (events, until): (&[Event], u64),
        is_elsewhere: bool,
        sent: &mut u64,
    ) -> Vec<StreamMessage> {
        let Some(connection) = self.connections.get(connection) else { return Vec::new() };
        let Some(attachment) = connection.attached.get(session) else { return Vec::new() };
        let is_observer = connection.principal.role == Role::Observer;
        let mut open_questions = HashMap::new();
        if events.iter().any(|event| event.kind == EventKind::Question) {
            let questions = self.agent_requests.values();
            let questions = questions.filter(|request| request.is_question && request.session == *session);
            open_questions.extend(questions.filter_map(|request| Some((request.seq?, &request.body))));
        }
        let deliver = |event: &Event| {
            let is_recipient = match attachment.is_history(event.seq, event.kind) {
                true => event.recipient.includes_in_history(&connection.ids),
                false => event.recipient.includes(&connection.ids),
            };
            if !is_recipient || !attachment.includes(event.seq, event.kind) {
                return None;
            }
            let body = match event.kind {
                EventKind::Update | EventKind::Notification | EventKind::Response => &event.body,
                EventKind::TurnEnd if connection.wants_turn_ends() => &event.body,
                EventKind::TurnEnd | EventKind::ClientMessage | EventKind::Answer => return None,
                EventKind::Withdrawal | EventKind::Question if is_observer => return None,
                EventKind::Withdrawal => &event.body,
                // The subscription has left out those that are answered.
                EventKind::Question if is_elsewhere => &event.body,
                EventKind::Question => *open_questions.get(&event.seq)?,
                EventKind::ClientRequest => return None,
            };
            Some(StreamMessage { id: attachment.number(event.seq), body: body.clone() })
        };
        // What is asked while the history is shown follows it.
        let requests = match until >= attachment.history_until {
            true => self.due_requests(connection, session, until, sent),
            false => Vec::new(),
        };
        let mut requests = requests.into_iter().peekable();
        let mut messages = Vec::with_capacity(events.len() + requests.len());
        for event in events {
            while let Some((_, body)) = requests.next_if(|(after, _)| *after < event.seq) {
                messages.push(StreamMessage { id: None, body });
            }
            messages.extend(deliver(event));
        }
        messages.extend(requests.map(|(_, body)| StreamMessage { id: None, body }));
        messages
    }
}

/// Returns whether a client offers what an agent's request needs.
fn can_serve(connection: &Connection, method: &str) -> bool {
    let offered = &connection.capabilities;
    match method {
        "fs/read_text_file" => offered["fs"]["readTextFile"] == true,
        "fs/write_text_file" => offered["fs"]["writeTextFile"] == true,
        _ if method.starts_with("terminal/") => offered["terminal"] == true,
        _ if method.starts_with("_bowline/fs/") => offered["_meta"]["bowline"]["fs"].is_object(),
        _ => true,
    }
}

/// Returns what the server answers to `initialize`: the agent's result, with what the server adds and leaves out.
fn describe(agent: &Value) -> Value {
    let mut result = agent.clone();
    if !result["agentCapabilities"].is_object() {
        result["agentCapabilities"] = json!({});
    }
    let capabilities = &mut result["agentCapabilities"];
    capabilities["loadSession"] = json!(true);
    let mut offered = json!({ "list": {}, "resume": {}, "close": {}, "delete": {} });
    if let Some(fork) = capabilities["sessionCapabilities"].get("fork").filter(|fork| !fork.is_null()) {
        offered["fork"] = fork.clone();
    }
    capabilities["sessionCapabilities"] = offered;
    if !capabilities["_meta"].is_object() {
        capabilities["_meta"] = json!({});
    }
    let meta = &mut capabilities["_meta"];
    if !meta["bowline"].is_object() {
        meta["bowline"] = json!({});
    }
    meta["bowline"]["remote"] = remote::offered_extensions();
    result
}
