//! Opening, creating, listing and deleting sessions.

use super::*;
use std::collections::VecDeque;

use bowline_storage::clock::format_iso8601;
use bowline_text::time::Timestamp;

use crate::store::{AcquiredSession, Acquisition, SessionQuery, StoredSession};

use super::from_client::unknown_session;

/// How long an agent may take to close a session before another server may open it.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);
/// The most sessions on one page of a list.
const PAGE_SIZE: usize = 100;
/// The most bytes of history that a fork begins with, and how much of it is read at a time.
const MAX_FORK_BYTES: usize = 4 << 20;
const FORK_PAGE_BYTES: usize = 256 << 10;

/// Why a session cannot be opened.
enum OpenError {
    NotFound,
    /// Another server has it.
    Elsewhere,
    /// No client that may open it waits for it.
    NotAllowed,
    Failed(String),
}

/// Opens a stored session at an agent, then handles the messages that waited for it.
pub(super) async fn open_session(hub: Arc<Hub>, connection: ConnectionId, session: SessionId) {
    let outcome = try_open(&hub, &connection, &session).await;
    if let Err(OpenError::Elsewhere) = outcome {
        return servers::use_elsewhere(hub, session).await;
    }
    let mut state = hub.lock();
    hub.progress.notify_waiters();
    let Some(opening) = state.sessions.remove(&session) else { return };
    let Stage::Opening(waiting) = opening.stage else { return };
    let outcome = outcome.and_then(|(open, worker)| {
        if state.workers.contains_key(&worker) {
            return Ok(open);
        }
        hub.log.release(&session, open.generation);
        Err(OpenError::Failed("the agent ended while it opened the session".to_owned()))
    });
    match outcome {
        Ok(open) => {
            // Clients are attached since before, or attached meanwhile, and the agent may have asked already.
            let attached =
                state.connections.iter().filter(|(_, found)| found.attached.contains_key(&session));
            let attached = attached.map(|(id, _)| id.clone()).collect();
            let mut open = Session { attached, ..open };
            if !opening.pending.questions.is_empty() {
                open.pending.questions.extend(opening.pending.questions);
                hub.save_pending(&session, &open);
            }
            state.sessions.insert(session.clone(), open);
            hub.assign_requests(&mut state, &session);
            for WaitingMessage { connection, message, receipt } in waiting {
                hub.route_open(&mut state, &connection, &session, &message);
                drop(receipt);
            }
        }
        Err(error) => {
            let mut others = Vec::new();
            for waiting in waiting {
                let WaitingMessage { connection, message, .. } = &waiting;
                let found = state.connections.get(connection);
                // Before the session was found, its owner is not known.
                let may_see = opening.principal.is_empty()
                    || found.is_some_and(|found| found.principal.may_see(&opening.principal));
                if may_see && matches!(error, OpenError::NotAllowed) {
                    others.push(waiting);
                    continue;
                }
                let Ok(remote::MessageHead { id: Some(id), .. }) = remote::MessageHead::parse(message) else {
                    continue;
                };
                let response = match &error {
                    OpenError::Failed(why) if may_see => message::error(&id, message::INTERNAL, why),
                    _ => unknown_session(&id, &session),
                };
                hub.respond(&mut state, connection, None, &id, response);
            }
            // They came after the look for a client that may open it.
            hub.open_for_waiting(&mut state, &session, others);
        }
    }
}

/// Gives up a session once its agent has closed it, or has ended. Messages that came meanwhile open it again.
pub(super) async fn release_when_closed(
    hub: Arc<Hub>,
    session: SessionId,
    generation: u64,
    closed: oneshot::Receiver<Result<Value, Value>>,
) {
    if tokio::time::timeout(CLOSE_TIMEOUT, closed).await.is_err() {
        tracing::warn!(%session, "the agent did not close a session in time");
    }
    let mut state = hub.lock();
    hub.log.release(&session, generation);
    if let Some(Session { stage: Stage::Opening(waiting), .. }) = state.sessions.remove(&session) {
        hub.open_for_waiting(&mut state, &session, waiting);
    }
    hub.progress.notify_waiters();
}

async fn try_open(
    hub: &Arc<Hub>,
    connection: &ConnectionId,
    session: &SessionId,
) -> Result<(Session, WorkerId), OpenError> {
    let failed = |error: crate::store::StoreError| OpenError::Failed(error.to_string());
    // What is still on its way to the store belongs to an earlier generation.
    hub.log.flush().await;
    let stored = hub.store.session(session).await.map_err(failed)?.ok_or(OpenError::NotFound)?;
    let capabilities = {
        let mut state = hub.lock();
        let HubState { sessions, connections, .. } = &mut *state;
        let opening = sessions.get_mut(session).ok_or(OpenError::NotFound)?;
        // From here on it is known who may see the session.
        opening.principal.clone_from(&stored.principal);
        let waiting = match &opening.stage {
            Stage::Opening(waiting) => &waiting[..],
            Stage::Open(_) => &[],
        };
        let clients = waiting.iter().map(|waiting| &waiting.connection).chain([connection]);
        let clients: Vec<&Connection> = clients.filter_map(|client| connections.get(client)).collect();
        let user = clients.iter().find(|client| client.principal.may_use(&stored.principal));
        match user {
            Some(user) => user.capabilities.clone(),
            // What an observer says it can do has no effect on the session.
            None if clients.iter().any(|client| client.principal.may_see(&stored.principal)) => json!({}),
            None => return Err(OpenError::NotAllowed),
        }
    };
    // The directory may have been replaced by a link since the session was created.
    let cwd = stored.cwd.to_string_lossy().into_owned();
    message::check_directory(&cwd, &hub.options.roots)
        .map_err(|error| OpenError::Failed(error.to_string()))?;
    let acquired = match hub.store.acquire(session).await.map_err(failed)? {
        Acquisition::Acquired(acquired) => *acquired,
        Acquisition::NotFound => return Err(OpenError::NotFound),
        Acquisition::OwnedElsewhere => return Err(OpenError::Elsewhere),
    };
    let AcquiredSession { session: stored, generation, last_seq } = acquired;
    hub.log.open(session, generation, last_seq);
    let pending = settle(hub, session, stored.pending.clone());
    let opened = open_at_agent(hub, session, &stored, capabilities).await;
    let (worker, result) = opened.inspect_err(|_| hub.log.release(session, generation))?;
    let mut setup = if result.is_object() { result } else { stored.setup };
    if let Some(worker) = hub.lock().workers.get(&worker) {
        worker.note_agent(&mut setup);
    }
    let open = Session {
        principal: stored.principal,
        generation,
        stage: Stage::Open(worker),
        title: stored.title,
        setup,
        pending,
        attached: HashSet::new(),
        last_request: 0,
    };
    Ok((open, worker))
}

/// Answers what an earlier server left unanswered, and returns what is left to remember.
pub(super) fn settle(hub: &Hub, session: &SessionId, mut pending: PendingWork) -> PendingWork {
    if pending.is_empty() {
        return pending;
    }
    if !pending.requests.is_empty() {
        activity::append_turn_end(hub, session, Recipient::All, Err(activity::INTERRUPTED));
    }
    for (connection, request) in pending.requests.clone() {
        let Ok(id) = serde_json::from_value::<RequestId>(request.clone()) else { continue };
        let recipient = Recipient::Only(connection.clone());
        let error = message::error(&id, message::INTERNAL, activity::INTERRUPTED);
        hub.log.append(session, EventKind::Response, recipient, error);
        pending.mark_answered(&connection, request);
        pending.last_turn.failure = Some(activity::INTERRUPTED.to_owned());
    }
    for question in pending.questions.drain(..) {
        let cancellation = message::cancellation(&json!(question.id));
        hub.log.append(session, EventKind::Withdrawal, Recipient::All, cancellation);
    }
    let change = SessionChange { pending: Some(pending.clone()), ..SessionChange::default() };
    hub.update_session(session, change);
    pending
}

async fn open_at_agent(
    hub: &Arc<Hub>,
    session: &SessionId,
    stored: &StoredSession,
    capabilities: Value,
) -> Result<(WorkerId, Value), OpenError> {
    let key = WorkerKey {
        principal: stored.principal.clone(),
        capabilities: capabilities.to_string(),
        agent: stored.agent().map(str::to_owned),
    };
    let initialize = json!({ "protocolVersion": 1, "clientCapabilities": capabilities });
    let worker = hub.ensure_worker(&key, &initialize).await.map_err(OpenError::Failed)?;
    let (method, servers) = {
        let mut state = hub.lock();
        let servers = match state.sessions.get(session) {
            Some(Session { stage: Stage::Opening(waiting), .. }) => {
                requested_servers(&state, waiting, &stored.principal)
            }
            _ => json!([]),
        };
        let Some(agent) = state.workers.get_mut(&worker) else {
            return Err(OpenError::Failed("the agent ended at once".to_owned()));
        };
        let method = if agent.can_resume() {
            "session/resume"
        } else if agent.can_load() {
            "session/load"
        } else {
            let why = "the agent that had this session has ended, and this agent cannot load sessions";
            return Err(OpenError::Failed(why.to_owned()));
        };
        agent.loading.insert(session.clone());
        (method, servers)
    };
    let params = json!({ "sessionId": session, "cwd": stored.cwd, "mcpServers": servers });
    let answer = match hub.call_opening(worker, method, &params, Some(session.clone())) {
        Ok(answer) => answer.await.map_err(|_| "the agent ended while it loaded the session".to_owned()),
        Err(why) => Err(why),
    };
    if let Some(agent) = hub.lock().workers.get_mut(&worker) {
        agent.loading.remove(session);
    }
    match answer {
        Ok(Ok(result)) => Ok((worker, result)),
        Ok(Err(error)) => {
            let why = error["message"].as_str().unwrap_or("no reason was given");
            Err(OpenError::Failed(format!("the agent cannot open this session: {why}")))
        }
        Err(why) => Err(OpenError::Failed(why)),
    }
}

/// Returns the agent of a connection that has a name, or its usual one, started again if it has ended.
pub(super) async fn worker_of(
    hub: &Arc<Hub>,
    connection: &ConnectionId,
    agent: Option<String>,
) -> Result<WorkerId, String> {
    let (key, capabilities) = {
        let state = hub.lock();
        let found = state.connections.get(connection).ok_or("the connection has ended")?;
        (WorkerKey { agent, ..found.worker_key.clone() }, found.capabilities.clone())
    };
    let initialize = json!({ "protocolVersion": 1, "clientCapabilities": capabilities });
    hub.ensure_worker(&key, &initialize).await
}

/// Creates a session, or a fork of one that an agent has open.
pub(super) async fn new_session(
    hub: Arc<Hub>,
    connection: ConnectionId,
    id: RequestId,
    message: Bytes,
    parent: Option<(SessionId, WorkerId)>,
) {
    if let Err((code, why)) = try_new_session(&hub, &connection, &id, &message, parent).await {
        let error = message::error(&id, code, &why);
        hub.respond(&mut hub.lock(), &connection, None, &id, error);
    }
}

async fn try_new_session(
    hub: &Arc<Hub>,
    connection: &ConnectionId,
    id: &RequestId,
    message: &[u8],
    parent: Option<(SessionId, WorkerId)>,
) -> Result<(), (i64, String)> {
    let mut message: Value =
        serde_json::from_slice(message).map_err(|error| (message::INVALID_PARAMS, error.to_string()))?;
    let params = &mut message["params"];
    let requested = params["cwd"].as_str().unwrap_or_default().to_owned();
    let roots = hub.options.roots.clone();
    let checked = bowline_task::spawn_blocking(move || message::check_directory(&requested, &roots)).await;
    let cwd = checked
        .map_err(|_| (message::INTERNAL, "the server is stopping".to_owned()))?
        .map_err(|error| (message::INVALID_PARAMS, error.to_string()))?;
    // The agent gets the directory that was checked, not a link that may change.
    params["cwd"] = json!(cwd);
    if let Some(others) = params.get_mut("additionalDirectories").and_then(Value::as_array_mut) {
        for other in others {
            let checked = message::check_directory(other.as_str().unwrap_or_default(), &hub.options.roots);
            *other = json!(checked.map_err(|error| (message::INVALID_PARAMS, error.to_string()))?);
        }
    }
    let (method, worker, history) = match parent {
        None => {
            let agent = message::take_agent(params);
            if agent.as_ref().is_some_and(|name| name.len() > MAX_ID_BYTES) {
                let why = format!("the name of an agent has at most {MAX_ID_BYTES} bytes");
                return Err((message::INVALID_PARAMS, why));
            }
            let worker = worker_of(hub, connection, agent).await.map_err(|why| (message::INTERNAL, why))?;
            ("session/new", worker, Vec::new())
        }
        Some((parent, worker)) => {
            let history = read_history(hub, &parent).await;
            let history = history.map_err(|error| (message::INTERNAL, error.to_string()))?;
            ("session/fork", worker, history)
        }
    };
    let mut state = hub.lock();
    let Some(found) = state.connections.get(connection) else { return Ok(()) };
    let name = &found.principal.name;
    let open = state.sessions.values().filter(|session| session.principal == *name).count();
    if open >= hub.options.max_sessions {
        return Err((message::OVERLOADED, format!("{name} has {open} open sessions already: close some")));
    }
    let Some(agent) = state.workers.get_mut(&worker) else {
        return Err((message::INTERNAL, "the agent ended at once".to_owned()));
    };
    let request = OpenRequest::NewSession { connection: connection.clone(), id: id.clone(), cwd, history };
    let number = agent.add_request(request);
    if !agent.input.push(message::request(number, method, params)) {
        agent.open.remove(&number);
        return Err((message::OVERLOADED, "the agent does not read its input".to_owned()));
    }
    Ok(())
}

/// Returns the updates of a session and the ends of its turns, for a fork of it; the newest, if they are many.
async fn read_history(
    hub: &Hub,
    session: &SessionId,
) -> Result<Vec<InheritedEvent>, crate::store::StoreError> {
    hub.log.flush().await;
    let (mut history, mut bytes, mut after) = (VecDeque::new(), 0, 0);
    loop {
        let events = hub.store.events_after(session, after, FORK_PAGE_BYTES).await?;
        let Some(last) = events.last() else { return Ok(history.into()) };
        after = last.seq;
        for event in events.iter().filter_map(InheritedEvent::from_event) {
            bytes += event.size();
            history.push_back(event);
        }
        while bytes > MAX_FORK_BYTES
            && let Some(dropped) = history.pop_front()
        {
            bytes -= dropped.size();
        }
    }
}

/// Lists the sessions that a client's principal may see.
pub(super) async fn list_sessions(hub: Arc<Hub>, connection: ConnectionId, id: RequestId, message: Bytes) {
    let Some(principal) = hub.principal_of(&connection) else { return };
    let message: Value = serde_json::from_slice(&message).unwrap_or_default();
    let params = &message["params"];
    let query = SessionQuery {
        principal: (principal.role == Role::User).then(|| principal.name.clone()),
        cwd: params["cwd"].as_str().map(PathBuf::from),
        archived: false,
        after: params["cursor"].as_str().and_then(parse_cursor),
        limit: PAGE_SIZE,
    };
    let is_wrong = params["cursor"].is_string() && query.after.is_none();
    let page = hub.store.sessions(query).await;
    let mut state = hub.lock();
    let response = match page {
        _ if is_wrong => message::error(&id, message::INVALID_PARAMS, "the cursor is not from this server"),
        Err(error) => message::error(&id, message::INTERNAL, &error.to_string()),
        Ok(sessions) => {
            let next = sessions
                .last()
                .filter(|_| sessions.len() == PAGE_SIZE)
                .map(|last| format!("{}:{}", last.updated_at.0, last.id));
            let is_shared = hub.store.shared().is_some();
            let describe = |stored| state.describe_session(stored, is_shared);
            let sessions: Vec<Value> = sessions.iter().map(describe).collect();
            message::result(&id, &json!({ "sessions": sessions, "nextCursor": next }))
        }
    };
    hub.respond(&mut state, &connection, None, &id, response);
}

/// Deletes a session, here and at the agent.
pub(super) async fn delete_session(
    hub: Arc<Hub>,
    connection: ConnectionId,
    id: RequestId,
    session: SessionId,
    message: Bytes,
) {
    let stored = hub.store.session(&session).await;
    if let Ok(Some(stored)) = &stored
        && servers::forward_deletion(&hub, &connection, stored, &message).await
    {
        return;
    }
    // It may be about to be opened or closed.
    let is_settled = |state: &HubState| {
        !matches!(state.sessions.get(&session), Some(Session { stage: Stage::Opening(_), .. }))
    };
    let is_late = tokio::time::timeout(CLOSE_TIMEOUT, hub.wait_until(is_settled)).await.is_err();
    let mut state = hub.lock();
    let Some(found) = state.connections.get(&connection) else { return };
    let response = match stored {
        Err(error) => message::error(&id, message::INTERNAL, &error.to_string()),
        Ok(Some(_)) if is_late || !is_settled(&state) => {
            message::error(&id, message::INTERNAL, "the session is being opened: try again")
        }
        Ok(Some(stored)) if found.principal.may_use(&stored.principal) => {
            remove_session(&hub, &mut state, &session);
            message::result(&id, &json!({}))
        }
        // As for any session that does not exist: deleting it is no error.
        Ok(_) => message::result(&id, &json!({})),
    };
    let outbox = state.connections.get(&connection).map(|found| Arc::clone(&found.outbox));
    drop(state);
    hub.log.after_commit(move || {
        if let Some(outbox) = outbox {
            outbox.push(OutboxItem::Message(response));
        }
    });
}

fn remove_session(hub: &Hub, state: &mut HubState, session: &SessionId) {
    let params = json!({ "sessionId": session });
    hub.end_requests(state, session, |_| true);
    if let Some(Session { stage: Stage::Open(worker), generation, .. }) = state.sessions.remove(session) {
        if let Some(agent) = state.workers.get_mut(&worker) {
            agent.sessions.remove(session);
            agent.input.push_always(message::notification("session/cancel", &params));
            if agent.session_capability("delete") {
                let (sender, _) = tokio::sync::oneshot::channel();
                let number = agent.add_request(OpenRequest::Own { sender, opens: None });
                agent.input.push(message::request(number, "session/delete", &params));
            }
        }
        let (log, closed) = (Arc::clone(&hub.log), session.clone());
        hub.log.after_commit(move || log.close(&closed, generation));
    }
    for connection in state.connections.values_mut() {
        connection.attached.remove(session);
    }
    hub.log.mutate(Mutation::Delete(session.clone()));
    hub.announce_change(session);
}

impl HubState {
    /// Describes a session in a list, with what it is doing.
    fn describe_session(&self, stored: &StoredSession, is_shared: bool) -> Value {
        let open = self.sessions.get(&stored.id).map(|open| &open.pending);
        // What another server's session waits for is in the store.
        let state = match open.or(is_shared.then_some(&stored.pending)) {
            Some(pending) if !pending.questions.is_empty() => "waiting",
            Some(pending) if !pending.requests.is_empty() => "working",
            _ => "idle",
        };
        json!({
            "sessionId": stored.id,
            "cwd": stored.cwd,
            "title": stored.title,
            "updatedAt": format_iso8601(stored.updated_at),
            "_meta": { "bowline": { "state": state, "principal": stored.principal } },
        })
    }
}

/// Returns the MCP servers in the request that opens a session of `owner`.
fn requested_servers(state: &HubState, waiting: &[WaitingMessage], owner: &str) -> Value {
    let servers = waiting.iter().find_map(|WaitingMessage { connection, message, .. }| {
        // Servers are programs that run: only those who may use the session may name them.
        state.connections.get(connection).filter(|found| found.principal.may_use(owner))?;
        let mut message: Value = serde_json::from_slice(message).ok()?;
        Some(message["params"]["mcpServers"].take()).filter(Value::is_array)
    });
    servers.unwrap_or_else(|| json!([]))
}

/// Parses a cursor: the time and the id of the last session on the page before.
fn parse_cursor(cursor: &str) -> Option<(Timestamp, SessionId)> {
    let (at, id) = cursor.split_once(':')?;
    Some((Timestamp(at.parse().ok()?), id.into()))
}
