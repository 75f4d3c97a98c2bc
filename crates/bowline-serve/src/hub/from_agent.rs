//! Messages from agents.

use std::sync::LazyLock;

use super::*;
use bowline_protocol::message_id::replace_id;
use bowline_protocol::remote::MessageHead;
use bowline_storage::clock::now;
use memchr::memmem;

/// The updates that change what a client is told when it opens the session, or its title.
const SETUP_UPDATES: [&str; 3] = ["current_mode_update", "config_option_update", "session_info_update"];
/// What the names of all updates end with that change a session's state: those above, and `usage_update`.
static IS_STATE_UPDATE: LazyLock<memmem::Finder<'_>> = LazyLock::new(|| memmem::Finder::new("_update\""));
/// The most requests of one agent that wait for answers.
const MAX_AGENT_REQUESTS: usize = 4096;

/// Handles a line of an agent, and returns whether it was a request. Lines that are no messages are skipped: some agents
/// print to stdout.
pub(super) fn route_agent_line(hub: &Hub, worker: WorkerId, line: &Bytes) -> bool {
    let line = &message::clean_line(line);
    let Ok(head) = MessageHead::parse(line) else {
        tracing::debug!(worker, "an agent printed a line that is no message");
        return false;
    };
    match (&head.id, &head.method) {
        // Most lines are notifications.
        (None, _) => route_notification(hub, worker, &head, line),
        (Some(id), Some(method)) => {
            route_request(hub, worker, id, method, &head, line);
            return true;
        }
        (Some(id), None) => {
            let mut state = hub.lock();
            let number = match id {
                RequestId::Number(number) => u64::try_from(*number).ok(),
                _ => None,
            };
            let open = number.and_then(|number| state.workers.get_mut(&worker)?.open.remove(&number));
            if let Some(open) = open {
                route_response(hub, &mut state, worker, open, &head, line);
                hub.progress.notify_waiters();
            }
        }
    }
    false
}

fn route_notification(hub: &Hub, worker: WorkerId, head: &MessageHead<'_>, line: &Bytes) {
    let method = head.method.as_deref();
    let mut state = hub.lock();
    let state = &mut *state;
    if method == Some("$/cancel_request") {
        return withdraw_by_agent(hub, state, worker, line);
    }
    let Some(session) = head.session_id.as_deref() else {
        let Some(agent) = state.workers.get(&worker) else { return };
        // A copy: the line keeps what was read with it alive, and this may wait for long.
        let message = Bytes::copy_from_slice(line);
        for connection in state.connections.values() {
            if connection.worker_key == agent.key {
                connection.outbox.push(OutboxItem::Message(message.clone()));
            }
        }
        return;
    };
    let Some(agent) = state.workers.get_mut(&worker) else { return };
    if agent.loading.contains(session) {
        return;
    }
    let Some(session) = agent.sessions.get(session).cloned() else {
        return agent.keep_early_update(session.into(), line);
    };
    let is_update = method == Some("session/update");
    let kind = if is_update { EventKind::Update } else { EventKind::Notification };
    hub.log.append(&session, kind, Recipient::All, line.clone());
    // Most updates are chunks of a message.
    if !is_update || IS_STATE_UPDATE.find(line).is_none() {
        return;
    }
    if memmem::find(line, b"usage_update").is_some() {
        activity::note_usage(hub, state, &session, line);
    }
    if SETUP_UPDATES.iter().any(|kind| memmem::find(line, kind.as_bytes()).is_some())
        && let Some(open) = state.sessions.get_mut(&session)
        && let Ok(message) = serde_json::from_slice::<Value>(line)
    {
        let update = &message["params"]["update"];
        let title = (update["sessionUpdate"] == "session_info_update")
            .then(|| update["title"].as_str().map(str::to_owned))
            .flatten();
        let has_changed = message::apply_update(&mut open.setup, update);
        if has_changed || title.is_some() {
            open.title = title.clone().or(open.title.take());
            let setup = has_changed.then(|| open.setup.clone());
            let change = SessionChange { title, setup, ..SessionChange::default() };
            hub.update_session(&session, change);
        }
    }
}

/// Withdraws a request that its agent cancelled.
fn withdraw_by_agent(hub: &Hub, state: &mut HubState, worker: WorkerId, line: &[u8]) {
    let Ok(message) = serde_json::from_slice::<Value>(line) else { return };
    let Ok(id) = serde_json::from_value::<RequestId>(message["params"]["requestId"].clone()) else {
        return;
    };
    let Some(name) = state.workers.get_mut(&worker).and_then(|worker| worker.agent_requests.remove(&id))
    else {
        return;
    };
    if let Some(request) = state.agent_requests.remove(&name) {
        hub.withdraw(state, &name, &request, None);
    }
}

fn route_request(
    hub: &Hub,
    worker: WorkerId,
    id: &RequestId,
    method: &str,
    head: &MessageHead<'_>,
    line: &Bytes,
) {
    let mut state = hub.lock();
    let state = &mut *state;
    let refuse = |state: &HubState, code, why: &str| {
        if let Some(worker) = state.workers.get(&worker) {
            worker.input.push(message::error(id, code, why));
        }
    };
    let Some(session) = head.session_id.as_deref() else {
        return refuse(state, message::METHOD_NOT_FOUND, "requests to a remote client need a session");
    };
    let session: SessionId = session.into();
    let name = state.new_request_id();
    let Some(agent) = state.workers.get_mut(&worker) else { return };
    if !agent.sessions.contains(&session) {
        return refuse(state, message::INVALID_PARAMS, "this session is not open");
    }
    if head.raw_id.len() > MAX_ID_BYTES {
        return refuse(state, message::INVALID_PARAMS, &format!("an id has at most {MAX_ID_BYTES} bytes"));
    }
    if agent.agent_requests.contains_key(id) {
        return refuse(state, message::INVALID_PARAMS, "this id belongs to a request that is still open");
    }
    if agent.agent_requests.len() >= MAX_AGENT_REQUESTS {
        return refuse(state, message::OVERLOADED, "too many requests wait for an answer");
    }
    agent.agent_requests.insert(id.clone(), name.clone());
    let is_question = matches!(method, "session/request_permission" | "elicitation/create");
    let timeout = if is_question { hub.options.question_timeout } else { hub.options.client_timeout };
    let body: Bytes = replace_id(line, head.raw_id, &format!("\"{name}\"")).into();
    let mut request = AgentRequest {
        worker,
        id: id.clone(),
        method: method.to_owned(),
        session: session.clone(),
        body: body.clone(),
        seq: None,
        target: None,
        number: 0,
        is_question,
        deadline: Instant::now() + timeout,
    };
    if is_question {
        hub.metrics.add_question();
        // Stored before its event: where another server finds the event, it also finds whether the question is open.
        // Events are appended only under the hub's lock.
        let seq = hub.log.last_seq(&session) + 1;
        if let Some(open) = state.sessions.get_mut(&session) {
            open.pending.questions.push(PendingQuestion { id: name.clone(), seq });
            hub.save_pending(&session, open);
        }
        request.seq = hub.log.append(&session, EventKind::Question, Recipient::All, body);
    }
    state.agent_requests.insert(name.clone(), request);
    if !is_question {
        hub.assign_request(state, &name);
    }
}

fn route_response(
    hub: &Hub,
    state: &mut HubState,
    worker: WorkerId,
    open: OpenRequest,
    head: &MessageHead<'_>,
    line: &Bytes,
) {
    match open {
        OpenRequest::Own { sender, opens } => {
            let message: Value = serde_json::from_slice(line).unwrap_or_default();
            if let (Some(session), Some(agent)) = (opens, state.workers.get_mut(&worker)) {
                agent.loading.remove(&session);
                if message.get("error").is_none_or(Value::is_null) {
                    agent.sessions.insert(session);
                }
            }
            let outcome = match message.get("error") {
                Some(error) if !error.is_null() => Err(error.clone()),
                _ => Ok(message["result"].clone()),
            };
            // The caller may have given up.
            sender.send(outcome).ok();
        }
        OpenRequest::Client { connection, id, method, session, params } => {
            let response: Bytes = replace_id(line, head.raw_id, &message::id_text(&id)).into();
            if let (Some(session), "session/prompt") = (&session, &*method) {
                let message: Value = serde_json::from_slice(line).unwrap_or_default();
                let outcome = if head.is_error {
                    Err(message["error"]["message"].as_str().unwrap_or("no reason was given"))
                } else {
                    Ok(message["result"]["stopReason"].as_str())
                };
                activity::note_turn(hub, state, session, &connection, outcome);
            }
            if let (Some(session), Some(params)) = (&session, &params) {
                note_setting(hub, state, session, &connection, &method, params, line);
            }
            hub.respond(state, &connection, session.as_ref(), &id, response);
        }
        OpenRequest::NewSession { connection, id, cwd, history } => {
            let mut message: Value = serde_json::from_slice(line).unwrap_or_default();
            let created = message["result"]["sessionId"].as_str().map(SessionId::from);
            let Some(session) = created else {
                let response: Bytes = replace_id(line, head.raw_id, &message::id_text(&id)).into();
                return hub.respond(state, &connection, None, &id, response);
            };
            if let Some(worker) = state.workers.get(&worker) {
                worker.note_agent(&mut message["result"]);
            }
            register_session(hub, state, worker, &connection, id, session, cwd, &message["result"], &history);
        }
    }
}

/// Notes a client's change of mode, model or option, and tells the other clients.
fn note_setting(
    hub: &Hub,
    state: &mut HubState,
    session: &SessionId,
    connection: &ConnectionId,
    method: &str,
    params: &Value,
    line: &[u8],
) {
    let Ok(message) = serde_json::from_slice::<Value>(line) else { return };
    let (Some(result), Some(open)) = (message.get("result"), state.sessions.get_mut(session)) else {
        return;
    };
    if !message::apply_request(&mut open.setup, method, params, result) {
        return;
    }
    let change = SessionChange { setup: Some(open.setup.clone()), ..SessionChange::default() };
    hub.update_session(session, change);
    let update = match method {
        "session/set_mode" => {
            json!({ "sessionUpdate": "current_mode_update", "currentModeId": params["modeId"] })
        }
        "session/set_config_option" => {
            json!({ "sessionUpdate": "config_option_update", "configOptions": result["configOptions"] })
        }
        _ => return,
    };
    let update = message::notification("session/update", &json!({ "sessionId": session, "update": update }));
    hub.log.append(session, EventKind::Notification, Recipient::AllBut(connection.clone()), update);
}

/// Registers a session that an agent has created. The client learns of it once it is stored.
#[expect(clippy::too_many_arguments, reason = "the parts of one new session")]
fn register_session(
    hub: &Hub,
    state: &mut HubState,
    worker: WorkerId,
    connection: &ConnectionId,
    id: RequestId,
    session: SessionId,
    cwd: PathBuf,
    setup: &Value,
    history: &[InheritedEvent],
) {
    let taken = || {
        let why = "the agent gave a new session the id of an earlier one: this server needs agents whose ids are unique";
        message::error(&id, message::INTERNAL, why)
    };
    let Some(found) = state.connections.get(connection) else {
        // The client is gone; the session without any content is of no use to anyone.
        return;
    };
    let principal = found.principal.name.clone();
    if session.len() > MAX_ID_BYTES {
        let why = format!("the agent gave a new session an id of more than {MAX_ID_BYTES} bytes");
        let error = message::error(&id, message::INTERNAL, &why);
        return hub.respond(state, connection, None, &id, error);
    }
    if state.sessions.contains_key(&session) {
        let error = taken();
        return hub.respond(state, connection, None, &id, error);
    }
    let now = now();
    hub.log.mutate(Mutation::Create(Box::new(StoredSession {
        id: session.clone(),
        principal: principal.clone(),
        cwd,
        title: None,
        setup: setup.clone(),
        pending: PendingWork::default(),
        created_at: now,
        updated_at: now,
        archived_at: None,
    })));
    hub.announce_change(&session);
    hub.log.open(&session, 1, 0);
    state.sessions.insert(
        session.clone(),
        Session {
            principal,
            generation: 1,
            stage: Stage::Open(worker),
            title: None,
            setup: setup.clone(),
            pending: PendingWork::default(),
            attached: HashSet::new(),
            last_request: 0,
        },
    );
    for event in history {
        hub.log.append(&session, event.kind, Recipient::All, event.message(&session));
    }
    // A client that forks a session has its history.
    let after = history.len() as u64;
    if let Some(worker) = state.workers.get_mut(&worker) {
        worker.sessions.insert(session.clone());
        let early = worker.early_updates.extract_if(.., |(of, _)| *of == session);
        for (_, update) in early {
            hub.log.append(&session, EventKind::Update, Recipient::All, update);
        }
    }
    hub.attach(state, connection, &session, Attachment::after(after));
    let Some(found) = state.connections.get(connection) else { return };
    let outbox = Arc::clone(&found.outbox);
    let (response, error) = (message::result(&id, setup), taken());
    // The log closes a session whose id is taken before it gets here.
    let (log, created) = (Arc::clone(&hub.log), session.clone());
    hub.log.after_commit(move || {
        if log.is_open(&created) {
            outbox.push(OutboxItem::Message(response));
            outbox.push(OutboxItem::Subscribe { session: created, after });
        } else {
            outbox.push(OutboxItem::Message(error));
        }
    });
}
