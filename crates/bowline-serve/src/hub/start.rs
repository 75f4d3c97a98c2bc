//! Connecting a client, and starting and ending the agents that serve clients.

use super::*;
use bowline_protocol::remote::resumed_connection;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use worker::{InputEnd, LineQueue, LineReader};

/// Why an agent that ended before it answered `initialize` cannot be used.
const ENDED_EARLY: &str = "the agent did not start: it ended at once; see the server's log";

/// How long an agent may take to answer `initialize`.
const INITIALIZE_TIMEOUT: Duration = Duration::from_secs(60);

/// The longest description of a client's capabilities, in bytes.
const MAX_CAPABILITIES_BYTES: usize = 64 << 10;

/// How long an agent may take to end after its input is closed.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// How many requests of an agent are taken before clients are sent them. An agent that reads many files makes many at
/// once: clients can work on the first while the server handles the rest.
const REQUEST_GROUP: usize = 32;
/// How long an agent may take to exit after it has closed its output.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// An agent that is being started: completes with the agent, or with the reason why there is none. It goes on if
/// no one waits for it.
pub(super) type WorkerStart = Shared<BoxFuture<'static, Result<WorkerId, String>>>;

/// Why a client could not be connected.
#[derive(Debug)]
pub enum ConnectError {
    /// The message was not accepted.
    Receive(ReceiveError),
    /// The agent refused: the response for the client.
    Refused(Bytes),
}

/// A connection that is being made.
#[derive(Debug)]
pub struct ConnectionReservation {
    hub: Arc<Hub>,
    principal: String,
}

impl Drop for ConnectionReservation {
    fn drop(&mut self) {
        let mut state = self.hub.lock();
        if let Some(count) = state.connecting.get_mut(&self.principal) {
            *count -= 1;
            if *count == 0 {
                state.connecting.remove(&self.principal);
            }
        }
    }
}

impl Hub {
    /// Connects a client that sent `initialize`, under an id that no other connection has. Returns the response. A client
    /// with merged streams gets everything on one.
    ///
    /// # Errors
    /// Fails if the message is not `initialize`, if the principal has too many connections, or if the agent does not
    /// start.
    pub async fn connect(
        self: &Arc<Self>,
        principal: &Principal,
        message: &[u8],
        has_merged_streams: bool,
        connection: ConnectionId,
    ) -> Result<Bytes, ConnectError> {
        let invalid = |why: &str| ConnectError::Receive(ReceiveError::Invalid(why.to_owned()));
        let message: Value = serde_json::from_slice(message).map_err(|_| invalid("this is not JSON"))?;
        let id: RequestId = match serde_json::from_value(message["id"].clone()) {
            Ok(id) if message["method"] == "initialize" && id != RequestId::Null => id,
            _ => return Err(invalid("the first message of a connection must be the request `initialize`")),
        };
        let params = &message["params"];
        let capabilities = params["clientCapabilities"].clone();
        let key = WorkerKey {
            principal: principal.name.clone(),
            capabilities: capabilities.to_string(),
            agent: None,
        };
        if key.capabilities.len() > MAX_CAPABILITIES_BYTES {
            return Err(invalid("clientCapabilities has more than 64 KiB"));
        }
        // Until it is connected.
        let _reservation = self.reserve_connection(principal).map_err(ConnectError::Receive)?;
        let worker = self
            .ensure_worker(&key, params)
            .await
            .map_err(|why| ConnectError::Refused(message::error(&id, message::INTERNAL, &why)))?;
        let mut state = self.lock();
        let mut ids = vec![connection.clone()];
        if let Some(earlier) = resumed_connection(params).filter(|earlier| earlier.len() <= MAX_ID_BYTES) {
            // What was addressed to the earlier connection is sent to this one; only sessions that the principal may
            // see are sent at all.
            ids.push(earlier.into());
        }
        let description = state.workers.get(&worker).map(|worker| describe(&worker.description));
        let Some(description) = description else {
            return Err(ConnectError::Refused(message::error(
                &id,
                message::INTERNAL,
                "the agent ended at once",
            )));
        };
        let mut connected = Connection::new(principal.clone(), capabilities, key, ids);
        connected.has_merged_streams = has_merged_streams;
        state.connections.insert(connection.clone(), connected);
        tracing::info!(principal = principal.name, %connection, "a client connected");
        Ok(message::result(&id, &description))
    }

    /// Reserves a place for a client's connection, which counts until it is dropped.
    ///
    /// # Errors
    /// Fails if the principal has too many connections, or sends too much.
    pub fn reserve_connection(
        self: &Arc<Self>,
        principal: &Principal,
    ) -> Result<ConnectionReservation, ReceiveError> {
        let mut state = self.lock();
        if state.is_draining {
            return Err(ReceiveError::Draining);
        }
        let made = state.connections.values().filter(|other| other.is_client_of(principal)).count();
        let own = made + state.connecting.get(&principal.name).copied().unwrap_or(0);
        if own >= self.options.max_connections {
            let why = format!("{} has {own} connections already: close some", principal.name);
            return Err(ReceiveError::Overloaded(why));
        }
        state.check_rate(&principal.name, self.options.max_rate)?;
        *state.connecting.entry(principal.name.clone()).or_default() += 1;
        Ok(ConnectionReservation { hub: Arc::clone(self), principal: principal.name.clone() })
    }

    /// Returns the agent for a key, and starts it if necessary.
    pub(super) async fn ensure_worker(
        self: &Arc<Self>,
        key: &WorkerKey,
        initialize: &Value,
    ) -> Result<WorkerId, String> {
        let start = {
            let mut state = self.lock();
            if let Some(worker) = state.worker_ids.get(key) {
                return Ok(*worker);
            }
            if let Some(start) = state.starts.get(key) {
                start.clone()
            } else {
                state.check_agents(&key.principal, self.options.max_agents)?;
                // A task of its own: a client that hangs up must not leave an agent behind that is half started.
                let task = tokio::spawn(Arc::clone(self).start_worker(key.clone(), initialize.clone()));
                let start =
                    task.map(|started| started.unwrap_or_else(|_| Err("the server is stopping".to_owned())));
                let start = start.boxed().shared();
                state.starts.insert(key.clone(), start.clone());
                start
            }
        };
        start.await
    }

    async fn start_worker(self: Arc<Self>, key: WorkerKey, initialize: Value) -> Result<WorkerId, String> {
        let started = self.launch_worker(&key, &initialize).await;
        let mut state = self.lock();
        state.starts.remove(&key);
        let (id, description) = started?;
        let Some(worker) = state.workers.get_mut(&id) else {
            return Err(ENDED_EARLY.to_owned());
        };
        worker.description = Arc::new(description);
        state.worker_ids.insert(key, id);
        Ok(id)
    }

    /// Starts an agent, and returns it with its answer to `initialize`.
    async fn launch_worker(
        self: &Arc<Self>,
        key: &WorkerKey,
        initialize: &Value,
    ) -> Result<(WorkerId, Value), String> {
        let streams = self.launcher.launch(&key.principal, key.agent.as_deref()).await?;
        self.metrics.add_agent_start();
        let input = Arc::new(LineQueue::default());
        let id = {
            let mut state = self.lock();
            state.last_worker += 1;
            let id = state.last_worker;
            state.workers.insert(id, Worker::new(key.clone(), Arc::clone(&input)));
            id
        };
        bowline_task::spawn(Arc::clone(self).serve_worker(id, input, streams));
        let mut params = initialize.clone();
        if let Some(params) = params.as_object_mut() {
            // An extension between the client and this server.
            params.remove("_meta");
        }
        let answer = self.call(id, "initialize", &params).map_err(|_| ENDED_EARLY.to_owned())?;
        match tokio::time::timeout(INITIALIZE_TIMEOUT, answer).await {
            Ok(Ok(Ok(description))) => Ok((id, description)),
            Ok(Ok(Err(error))) => {
                self.end_worker(id, "the agent did not start");
                let why = error["message"].as_str().unwrap_or("no reason was given");
                Err(format!("the agent did not start: {why}"))
            }
            Ok(Err(_)) => Err(ENDED_EARLY.to_owned()),
            Err(_) => {
                self.end_worker(id, "the agent did not start");
                let limit = INITIALIZE_TIMEOUT.as_secs();
                Err(format!("the agent did not start: it did not answer `initialize` within {limit} seconds"))
            }
        }
    }

    /// Sends a request of the server's own to an agent.
    pub(super) fn call(
        &self,
        worker: WorkerId,
        method: &str,
        params: &Value,
    ) -> Result<oneshot::Receiver<Result<Value, Value>>, String> {
        self.call_opening(worker, method, params, None)
    }

    /// Sends a request of the server's own to an agent. The session that it opens is the agent's as soon as it answers,
    /// before anything that the agent sends afterwards.
    pub(super) fn call_opening(
        &self,
        worker: WorkerId,
        method: &str,
        params: &Value,
        opens: Option<SessionId>,
    ) -> Result<oneshot::Receiver<Result<Value, Value>>, String> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.lock();
        let worker = state.workers.get_mut(&worker).ok_or("the agent has ended")?;
        let id = worker.add_request(OpenRequest::Own { sender, opens });
        if !worker.input.push(message::request(id, method, params)) {
            worker.open.remove(&id);
            return Err("the agent does not read its input".to_owned());
        }
        Ok(receiver)
    }

    /// Reads and writes an agent's pipes until it ends.
    async fn serve_worker(self: Arc<Self>, id: WorkerId, input: Arc<LineQueue>, streams: AgentStreams) {
        let AgentStreams { reader, writer, exit, process } = streams;
        let write = async {
            // An agent whose output waits for the store need not read.
            let end = input.write_to(writer, || self.log.has_room()).await;
            if end == InputEnd::Closed {
                // It should end now.
                tokio::time::sleep(END_TIMEOUT).await;
            }
            end
        };
        tokio::pin!(write);
        let mut reader = LineReader::new(reader);
        let served = async {
            'served: loop {
                let lines = tokio::select! {
                    lines = reader.next() => lines,
                    end = &mut write => break end,
                };
                if lines.is_empty() {
                    break InputEnd::Closed;
                }
                let mut requests = 0;
                for line in lines {
                    requests += usize::from(from_agent::route_agent_line(&self, id, &line));
                    if requests == REQUEST_GROUP {
                        requests = 0;
                        tokio::select! {
                            () = tokio::task::yield_now() => {}
                            end = &mut write => break 'served end,
                        }
                    }
                }
                // The agent's input is written meanwhile: it may read before it goes on.
                tokio::select! {
                    () = self.log.wait_for_room() => {}
                    end = &mut write => break end,
                }
            }
        };
        let input_end = tokio::select! {
            biased;
            () = input.killed() => InputEnd::Killed,
            end = served => end,
        };
        let how = match input_end {
            InputEnd::Stuck => {
                "the agent did not read its input and was stopped; the session can be opened again".to_owned()
            }
            InputEnd::Closed => {
                let how = tokio::time::timeout(EXIT_TIMEOUT, exit).await;
                let closed = || "the agent closed its output; the session can be opened again".to_owned();
                how.unwrap_or_else(|_| closed())
            }
            // What ended it has said why.
            InputEnd::Killed => String::new(),
        };
        drop(process);
        let is_unexpected = self.lock().workers.contains_key(&id);
        if is_unexpected {
            self.metrics.add_agent_exit();
            tracing::warn!(worker = id, how, "an agent ended");
        }
        self.end_worker(id, &how);
    }

    /// Forgets an agent and closes its input. Its open requests are answered, and its sessions can be opened again.
    pub(super) fn end_worker(&self, id: WorkerId, how: &str) {
        let mut state = self.lock();
        let Some(worker) = state.workers.remove(&id) else { return };
        worker.input.close();
        if state.worker_ids.get(&worker.key) == Some(&id) {
            state.worker_ids.remove(&worker.key);
        }
        let requests: Vec<String> = worker.agent_requests.into_values().collect();
        for request in requests {
            if let Some(request_state) = state.agent_requests.remove(&request) {
                self.withdraw(&mut state, &request, &request_state, None);
            }
        }
        for request in worker.open.into_values() {
            match request {
                OpenRequest::Client { connection, id, session, method, .. } => {
                    if let (Some(session), "session/prompt") = (&session, &*method) {
                        activity::note_turn(self, &mut state, session, &connection, Err(how));
                    }
                    let error = message::error(&id, message::INTERNAL, how);
                    self.respond(&mut state, &connection, session.as_ref(), &id, error);
                }
                OpenRequest::NewSession { connection, id, .. } => {
                    let error = message::error(&id, message::INTERNAL, how);
                    self.respond(&mut state, &connection, None, &id, error);
                }
                // The caller sees that the sender is gone.
                OpenRequest::Own { .. } => {}
            }
        }
        for session in worker.sessions {
            let generation = match state.sessions.get(&session) {
                Some(Session { stage: Stage::Open(worker), generation, .. }) if *worker == id => *generation,
                _ => continue,
            };
            state.sessions.remove(&session);
            // After what was just appended.
            self.log.release(&session, generation);
        }
        drop(state);
        self.progress.notify_waiters();
    }

    /// Forgets a session that another server has acquired, and stops its work here.
    pub(super) fn lose_session(&self, session: &SessionId, generation: u64) {
        let mut state = self.lock();
        if state.sessions.get(session).is_none_or(|session| session.generation != generation) {
            return;
        }
        tracing::warn!(%session, "another server has this session now");
        self.end_requests(&mut state, session, |_| true);
        let state = &mut *state;
        if let Some(Session { stage: Stage::Open(worker), .. }) = state.sessions.remove(session)
            && let Some(worker) = state.workers.get_mut(&worker)
        {
            worker.sessions.remove(session);
            // Another server answers its open requests.
            worker.open.retain(
                |_, open| !matches!(open, OpenRequest::Client { session: Some(of), .. } if of == session),
            );
            worker.agent_requests.retain(|_, name| {
                let is_lost =
                    state.agent_requests.get(name).is_some_and(|request| request.session == *session);
                if is_lost {
                    state.agent_requests.remove(name);
                }
                !is_lost
            });
            worker.input.push(message::notification("session/cancel", &json!({ "sessionId": session })));
        }
    }
}
