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
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bowline_protocol::remote;
use bowline_protocol::schema::v1::RequestId;
use bytes::Bytes;
use serde_json::{Value, json};

use crate::event::{ConnectionId, Event, EventKind, Recipient, SessionId};
use crate::log::EventLog;
use crate::metrics::{Gauges, Metrics};
use crate::store::{Mutation, PendingQuestion, PendingWork, ServerStore, SessionChange};
use crate::token::{Principal, Role, random_hex};

mod connection;
mod from_agent;
mod from_client;
mod message;
mod open;
mod servers;
mod start;
mod streams;
mod worker;

use connection::{Outbox, OutboxItem, OutboxStep};
pub use start::ConnectError;
pub use streams::{ConnectionStream, MergedStream, SessionStream, StreamMessage};
pub use worker::{AgentLauncher, AgentStreams};

use connection::{Attachment, Connection};
use worker::{Worker, WorkerId, WorkerKey};

/// How often deadlines are checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

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
}

/// The hub of a server.
pub struct Hub {
    state: Mutex<HubState>,
    log: Arc<EventLog>,
    store: Arc<dyn ServerStore>,
    launcher: Arc<dyn AgentLauncher>,
    metrics: Arc<Metrics>,
    options: HubOptions,
    // One start of an agent at a time for each key.
    starts: tokio::sync::Mutex<()>,
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
    last_worker: WorkerId,
    agent_requests: HashMap<String, AgentRequest>,
    last_stream: u64,
    is_draining: bool,
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
}

impl Session {
    /// Returns a session that is being opened; these messages wait.
    fn opening(waiting: Vec<(ConnectionId, Bytes)>) -> Self {
        Self {
            principal: String::new(),
            generation: 0,
            stage: Stage::Opening(waiting),
            title: None,
            setup: Value::Null,
            pending: PendingWork::default(),
            attached: HashSet::new(),
        }
    }
}

#[derive(Debug)]
enum Stage {
    /// Being opened; these messages wait.
    Opening(Vec<(ConnectionId, Bytes)>),
    /// Open at an agent.
    Open(WorkerId),
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
    // The number of its event; `None` while no client can serve it.
    seq: Option<u64>,
    // The client that serves it; `None` for a question to all.
    target: Option<ConnectionId>,
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
            starts: tokio::sync::Mutex::default(),
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
                self.check_deadlines();
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
        let idle = async {
            while self.gauges().turns > 0 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        if tokio::time::timeout(timeout, idle).await.is_err() {
            tracing::warn!("turns still run; they end with an error");
        }
        let workers: Vec<WorkerId> = self.lock().workers.keys().copied().collect();
        for worker in workers {
            self.end_worker(worker, "the server stopped");
        }
        // The store may be what fails; what it has is consistent without the rest.
        if tokio::time::timeout(Duration::from_secs(5), self.log.flush()).await.is_err() {
            tracing::error!("the last events could not be stored");
        }
        servers::leave_store(self).await;
        let connections: Vec<ConnectionId> = self.lock().connections.keys().cloned().collect();
        for connection in connections {
            self.disconnect(&connection);
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
        for request in state.agent_requests.values_mut() {
            if request.target.as_ref() == Some(id) {
                // Another client may serve it until the deadline.
                (request.target, request.seq) = (None, None);
                request.deadline = Instant::now() + self.options.client_timeout;
            }
        }
        let waiting: HashSet<SessionId> = state
            .agent_requests
            .values()
            .filter(|request| request.seq.is_none())
            .map(|request| request.session.clone())
            .collect();
        for session in waiting {
            self.assign_requests(&mut state, &session);
        }
    }

    /// Attaches a connection to an open session.
    fn attach(
        &self,
        state: &mut HubState,
        connection: &ConnectionId,
        session: &SessionId,
        attachment: Attachment,
    ) {
        let Some(found) = state.connections.get_mut(connection) else { return };
        found.attached.insert(session.clone(), attachment);
        found.attach_changed.notify_waiters();
        if let Some(session) = state.sessions.get_mut(session) {
            session.attached.insert(connection.clone());
        }
        self.assign_requests(state, session);
    }

    /// Gives requests that no client could serve to one that can.
    fn assign_requests(&self, state: &mut HubState, session: &SessionId) {
        let HubState { agent_requests, sessions, connections, .. } = state;
        let Some(open) = sessions.get(session) else { return };
        for request in agent_requests.values_mut() {
            if request.session == *session && !request.is_question && request.seq.is_none() {
                let able = open.attached.iter().find(|id| {
                    connections.get(*id).is_some_and(|connection| {
                        connection.principal.may_use(&open.principal)
                            && can_serve(connection, &request.method)
                    })
                });
                if let Some(able) = able {
                    let recipient = Recipient::Only(able.clone());
                    request.seq =
                        self.log.append(session, EventKind::ClientRequest, recipient, request.body.clone());
                    request.target = Some(able.clone());
                }
            }
        }
    }

    /// Returns what a connection is sent for an event, if anything.
    #[must_use]
    pub fn deliverable(&self, connection: &str, session: &SessionId, event: &Event) -> Option<Bytes> {
        let state = self.lock();
        let connection = state.connections.get(connection)?;
        let history_until = connection.attached.get(session).map_or(0, |attachment| attachment.history_until);
        if !event.recipient.includes(&connection.ids) {
            return None;
        }
        let is_history = event.seq <= history_until;
        match event.kind {
            EventKind::Update => Some(event.body.clone()),
            _ if is_history => None,
            EventKind::Notification | EventKind::Response => Some(event.body.clone()),
            EventKind::Withdrawal => {
                (connection.principal.role != Role::Observer).then(|| event.body.clone())
            }
            EventKind::Question if connection.principal.role == Role::Observer => None,
            // Of another server's session: the subscription has left out those that are answered.
            EventKind::Question if self.store.shared().is_some() && !self.log.is_open(session) => {
                Some(event.body.clone())
            }
            EventKind::Question | EventKind::ClientRequest => {
                let mut requests = state.agent_requests.values();
                let open =
                    requests.find(|request| request.session == *session && request.seq == Some(event.seq));
                open.map(|request| request.body.clone())
            }
        }
    }

    /// Returns the open requests of a session that a connection has to answer, among its events up to a number. They
    /// are sent again, with the same ids, to a client that may have missed them.
    #[must_use]
    pub async fn open_requests(&self, connection: &str, session: &SessionId, until: u64) -> Vec<Bytes> {
        if self.store.shared().is_some() && !self.log.is_open(session) {
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
            .filter(|request| request.session == *session)
            .filter(|request| request.target.as_ref().is_none_or(|target| connection.ids.contains(target)))
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
        let (session, generation) = (session.clone(), Some(generation));
        self.log.mutate(Mutation::Update { session, generation, change });
    }

    fn check_deadlines(self: &Arc<Self>) {
        let now = Instant::now();
        let mut expired = Vec::new();
        let mut idle_connections = Vec::new();
        let mut idle_workers = Vec::new();
        {
            let state = self.lock();
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
            self.expire_request(&id);
        }
        for id in idle_connections {
            self.disconnect(&id);
        }
        for id in idle_workers {
            tracing::info!(worker = id, "stopping an agent without work");
            self.end_worker(id, "the agent was stopped because it had no work");
        }
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
    let offered = json!({ "list": {}, "resume": {}, "close": {}, "delete": {} });
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
