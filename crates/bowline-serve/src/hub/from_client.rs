//! Messages from clients.

use super::*;
use bowline_protocol::message_id::replace_id;
use bowline_protocol::remote::{MessageHead, MessageHeadError};
use futures_util::future::BoxFuture;

/// The most messages that wait for a session to be opened.
const MAX_WAITING_MESSAGES: usize = 256;
const MAX_WAITING_BYTES: usize = 64 << 20;
/// The most requests of clients about one session that its agent has not answered.
const MAX_SESSION_REQUESTS: usize = 256;
/// The most requests that one agent has not answered, before those about no session are refused.
const MAX_AGENT_OPEN_REQUESTS: usize = 4096;
/// The methods that change nothing, which observers may use.
const OBSERVER_METHODS: [&str; 4] = ["session/list", "session/load", "session/resume", "session/close"];

impl Hub {
    /// Takes a message from a client. `header` is the session that its header names.
    ///
    /// # Errors
    /// Fails if the message was not accepted. An accepted request is answered later, on a stream.
    pub fn receive(
        self: &Arc<Self>,
        connection: &ConnectionId,
        header: Option<&str>,
        message: Bytes,
    ) -> Result<(), ReceiveError> {
        // After a suspension, nothing reaches an agent of a session that another server may have.
        if !self.lease.is_valid() {
            return Err(ReceiveError::Fenced);
        }
        let message = message::one_line(message);
        let head = read_head(&message)?;
        if let (Some(header), Some(session)) = (header, head.session_id.as_deref())
            && header != session
        {
            return Err(ReceiveError::Invalid(
                "the session in the header is not the one in the params".to_owned(),
            ));
        }
        let mut state = self.lock();
        let is_draining = state.is_draining;
        let found = state.connections.get_mut(connection).ok_or(ReceiveError::UnknownConnection)?;
        found.idle_since = Instant::now();
        let (role, principal) = (found.principal.role, found.principal.name.clone());
        let Some(method) = head.method.as_deref() else {
            let Some(id) = head.id.as_ref().filter(|_| role != Role::Observer) else { return Ok(()) };
            // As many answers as questions are right, however many they are.
            if !state.is_asked(id) {
                state.check_rate(&principal, self.options.max_rate)?;
            }
            return self.take_answer(&mut state, connection, id, head.raw_id, &message);
        };
        state.check_rate(&principal, self.options.max_rate)?;
        let found = state.connections.get_mut(connection).ok_or(ReceiveError::UnknownConnection)?;
        if method == "initialize" {
            return Err(ReceiveError::Invalid("this connection is initialized already".to_owned()));
        }
        if head.is_request() && is_draining {
            return Err(ReceiveError::Draining);
        }
        if let Some(id) = &head.id
            && !found.seen.insert(id)
        {
            // The client did not learn that it had arrived, and sent it again.
            return Ok(());
        }
        if role == Role::Observer && !OBSERVER_METHODS.contains(&method) {
            if let Some(id) = &head.id {
                let error =
                    message::error(id, message::INVALID_PARAMS, "an observer may not change anything");
                self.respond(&mut state, connection, None, id, error);
            }
            return Ok(());
        }
        match (method, &head.id, &head.session_id) {
            ("$/cancel_request", None, _) => return self.cancel_request(&mut state, connection, &message),
            ("session/new", Some(id), _) => {
                let (id, hub, connection) = (id.clone(), Arc::clone(self), connection.clone());
                drop(state);
                bowline_task::spawn(
                    async move { open::new_session(hub, connection, id, message, None).await },
                );
            }
            ("session/list", Some(id), _) => {
                let (id, hub, connection) = (id.clone(), Arc::clone(self), connection.clone());
                drop(state);
                bowline_task::spawn(async move { open::list_sessions(hub, connection, id, message).await });
            }
            ("session/delete", Some(id), Some(session)) => {
                let session: SessionId = session.as_ref().into();
                let (id, hub, connection) = (id.clone(), Arc::clone(self), connection.clone());
                drop(state);
                bowline_task::spawn(async move {
                    open::delete_session(hub, connection, id, session, message).await
                });
            }
            (_, id, None) if method.starts_with("session/") => {
                if let Some(id) = id {
                    let why = format!("{method} needs the text `sessionId` in its params");
                    let error = message::error(id, message::INVALID_PARAMS, &why);
                    self.respond(&mut state, connection, None, id, error);
                }
            }
            (_, _, Some(session)) => {
                let session: SessionId = session.as_ref().into();
                let waiting = WaitingMessage {
                    connection: connection.clone(),
                    message: message.clone(),
                    receipt: None,
                };
                return self.receive_for_session(state, session, waiting);
            }
            (_, _, None) => {
                let hub = Arc::clone(self);
                let connection = connection.clone();
                drop(state);
                bowline_task::spawn(async move { hub.forward_for_connection(connection, message).await });
            }
        }
        Ok(())
    }

    /// Takes a message about a session: now if it is open, else once it is.
    pub(super) fn receive_for_session(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, HubState>,
        session: SessionId,
        received: WaitingMessage,
    ) -> Result<(), ReceiveError> {
        match state.sessions.get_mut(&session) {
            Some(Session { stage: Stage::Open(_), .. }) => {
                self.route_open(&mut state, &received.connection, &session, &received.message);
            }
            Some(Session { stage: Stage::Opening(waiting), .. }) => {
                let bytes: usize = waiting.iter().map(|waiting| waiting.message.len()).sum();
                if waiting.len() >= MAX_WAITING_MESSAGES || bytes > MAX_WAITING_BYTES {
                    if let (Ok(head), Some(found)) = (
                        MessageHead::parse(&received.message),
                        state.connections.get_mut(&received.connection),
                    ) {
                        // It may be sent again.
                        found.seen.forget(head.id.as_ref());
                    }
                    return Err(ReceiveError::Overloaded(
                        "too many messages wait for this session".to_owned(),
                    ));
                }
                waiting.push(received);
            }
            None => self.open_for_waiting(&mut state, &session, vec![received]),
        }
        Ok(())
    }

    /// Begins to open a session for a client; these messages wait for it.
    pub(super) fn begin_opening(
        self: &Arc<Self>,
        state: &mut HubState,
        connection: &ConnectionId,
        session: &SessionId,
        waiting: Vec<WaitingMessage>,
    ) {
        state.sessions.insert(session.clone(), Session::opening(waiting));
        let opening: BoxFuture<'static, ()> =
            Box::pin(open::open_session(Arc::clone(self), connection.clone(), session.clone()));
        bowline_task::spawn(opening);
    }

    /// Begins to open a session for the clients of these messages, if there are any.
    pub(super) fn open_for_waiting(
        self: &Arc<Self>,
        state: &mut HubState,
        session: &SessionId,
        waiting: Vec<WaitingMessage>,
    ) {
        if let Some(connection) = waiting.first().map(|first| first.connection.clone()) {
            self.begin_opening(state, &connection, session, waiting);
        }
    }

    /// Handles a message about an open session.
    pub(super) fn route_open(
        self: &Arc<Self>,
        state: &mut HubState,
        connection: &ConnectionId,
        session: &SessionId,
        message: &Bytes,
    ) {
        let Ok(head @ MessageHead { method: Some(method), .. }) = &MessageHead::parse(message) else {
            return;
        };
        let id = head.id.clone();
        let Some(open) = state.sessions.get(session) else { return };
        let Stage::Open(worker) = open.stage else { return };
        let Some(found) = state.connections.get(connection) else { return };
        let is_allowed = if OBSERVER_METHODS.contains(&&**method) {
            found.principal.may_see(&open.principal)
        } else {
            found.principal.may_use(&open.principal)
        };
        if !is_allowed {
            if let Some(id) = id {
                let error = unknown_session(&id, session);
                self.respond(state, connection, None, &id, error);
            }
            return;
        }
        match (&**method, id) {
            (remote::AWAIT_METHOD, Some(id)) => self.answer_lost_request(state, connection, session, &id),
            ("session/load", Some(id)) => {
                let response = message::result(&id, &setup_for_client(&open.setup));
                let last = self.log.last_seq(session);
                self.attach_with_history(state, connection, session, response, last);
            }
            ("session/resume", Some(id)) => {
                let response = message::result(&id, &setup_for_client(&open.setup));
                let last = self.log.last_seq(session);
                self.attach_without_history(state, connection, session, response, last);
            }
            ("session/fork", Some(id)) => {
                if state.workers.get(&worker).is_some_and(|worker| worker.session_capability("fork")) {
                    let (hub, connection) = (Arc::clone(self), connection.clone());
                    let (parent, message) = (Some((session.clone(), worker)), message.clone());
                    bowline_task::spawn(async move {
                        open::new_session(hub, connection, id, message, parent).await
                    });
                } else {
                    let error =
                        message::error(&id, message::METHOD_NOT_FOUND, "this agent does not fork sessions");
                    self.respond(state, connection, None, &id, error);
                }
            }
            ("session/close", Some(id)) => {
                self.detach(state, connection, session);
                let response = message::result(&id, &json!({}));
                self.respond(state, connection, None, &id, response);
            }
            _ => {
                self.ensure_attached(state, connection, session, self.log.last_seq(session));
                self.forward(state, connection, session, worker, head, message);
            }
        }
    }

    /// Answers a request of a client's earlier connection with an error, unless the agent works on it. If it was answered,
    /// that answer comes earlier on the session's stream.
    fn answer_lost_request(
        &self,
        state: &mut HubState,
        connection: &ConnectionId,
        session: &SessionId,
        id: &RequestId,
    ) {
        let (Some(found), Some(open)) = (state.connections.get(connection), state.sessions.get(session))
        else {
            return;
        };
        let is_open = open.pending.waits_for(&found.ids, &json!(id));
        self.ensure_attached(state, connection, session, self.log.last_seq(session));
        if !is_open {
            let error = message::error(id, message::INTERNAL, activity::INTERRUPTED);
            self.respond(state, connection, Some(session), id, error);
        }
    }

    /// Attaches a client that uses a session without having opened it. It gets what comes from now on.
    pub(super) fn ensure_attached(
        &self,
        state: &mut HubState,
        connection: &ConnectionId,
        session: &SessionId,
        after: u64,
    ) {
        // A client of another server is attached there.
        let is_attached = state
            .connections
            .get(connection)
            .is_none_or(|found| found.is_remote() || found.attached.contains_key(session));
        if !is_attached {
            self.attach(state, connection, session, Attachment::after(after));
            self.push(state, connection, OutboxItem::Subscribe { session: session.clone(), after });
        }
    }

    /// Attaches a client that loads a session: it gets the updates so far, then the response, then what follows.
    pub(super) fn attach_with_history(
        &self,
        state: &mut HubState,
        connection: &ConnectionId,
        session: &SessionId,
        response: Bytes,
        last: u64,
    ) {
        let Some(found) = state.connections.get(connection) else { return };
        let earlier = found.attached.get(session);
        if !found.has_merged_streams && found.session_streams.contains_key(session) {
            // The session's stream sends the history and then releases the response.
            let attachment = Attachment::load(earlier, last, response);
            self.attach(state, connection, session, attachment);
            return;
        }
        let attachment = Attachment::load_on_connection(earlier, last);
        self.attach(state, connection, session, attachment);
        self.push(state, connection, OutboxItem::History { session: session.clone(), until: last });
        self.push(state, connection, OutboxItem::Message(response));
        self.push(state, connection, OutboxItem::Subscribe { session: session.clone(), after: last });
    }

    /// Attaches a client that resumes a session: it gets the response, then what follows.
    pub(super) fn attach_without_history(
        &self,
        state: &mut HubState,
        connection: &ConnectionId,
        session: &SessionId,
        response: Bytes,
        last: u64,
    ) {
        let is_attached =
            state.connections.get(connection).is_some_and(|found| found.attached.contains_key(session));
        if !is_attached {
            self.attach(state, connection, session, Attachment::after(last));
        }
        self.push(state, connection, OutboxItem::Message(response));
        self.push(state, connection, OutboxItem::Subscribe { session: session.clone(), after: last });
    }

    /// Detaches a client from a session. The last one closes it at the agent, unless a turn runs.
    pub(super) fn detach(
        self: &Arc<Self>,
        state: &mut HubState,
        connection: &ConnectionId,
        session: &SessionId,
    ) {
        if let Some(found) = state.connections.get_mut(connection) {
            let attachment = found.attached.remove(session);
            if let Some(response) = attachment.and_then(|attachment| attachment.held_response) {
                found.outbox.push(OutboxItem::Message(response));
            }
            found.attach_changed.notify_waiters();
        }
        if let Some(open) = state.sessions.get_mut(session) {
            open.attached.remove(connection);
        }
        self.release_requests(state, connection, session);
        // The client has left on purpose: the agent need not wait for it to come back.
        self.end_requests(state, session, |request| !request.is_question && request.seq.is_none());
        let Some(open) = state.sessions.get_mut(session) else { return };
        let (is_used, generation) = (!open.attached.is_empty() || !open.pending.is_empty(), open.generation);
        let Stage::Open(worker) = open.stage else { return };
        let Some(worker) = state.workers.get_mut(&worker) else { return };
        if is_used || !worker.session_capability("close") || !worker.can_load() {
            return;
        }
        let (sender, closed) = oneshot::channel();
        let id = worker.add_request(OpenRequest::Own { sender, opens: None });
        worker.input.push(message::request(id, "session/close", &json!({ "sessionId": session })));
        worker.sessions.remove(session);
        // Until the agent has closed it, no other server may open it, and messages about it wait.
        state.sessions.insert(session.clone(), Session::opening(Vec::new()));
        bowline_task::spawn(open::release_when_closed(Arc::clone(self), session.clone(), generation, closed));
    }

    /// Forwards a message about a session to its agent.
    fn forward(
        &self,
        state: &mut HubState,
        connection: &ConnectionId,
        session: &SessionId,
        worker: WorkerId,
        head: &MessageHead<'_>,
        message: &Bytes,
    ) {
        let (id, method) = (head.id.clone(), head.method.as_deref().unwrap_or_default());
        let HubState { workers, sessions, connections, .. } = state;
        let (Some(agent), Some(open)) = (workers.get_mut(&worker), sessions.get_mut(session)) else {
            if let Some(id) = id {
                let error = message::error(&id, message::INTERNAL, "the agent has ended: try again");
                self.respond(state, connection, Some(session), &id, error);
            }
            return;
        };
        agent.idle_since = Instant::now();
        let recorded = message::record_of(message, method, id.as_ref());
        let record = || {
            self.log.append(session, EventKind::ClientMessage, Recipient::Agent(connection.clone()), recorded)
        };
        let Some(id) = id else {
            if agent.input.push(message.clone()) {
                record();
            }
            return;
        };
        let Some(found) = connections.get(connection) else { return };
        if open.pending.knows(&found.ids, &json!(id)) {
            // It came on an earlier connection, and the client did not learn that it had arrived.
            return;
        }
        if open.pending.requests.len() >= MAX_SESSION_REQUESTS {
            let why =
                format!("{MAX_SESSION_REQUESTS} requests about this session wait for the agent already");
            let error = message::error(&id, message::OVERLOADED, &why);
            return self.respond(state, connection, Some(session), &id, error);
        }
        let is_setting =
            matches!(method, "session/set_mode" | "session/set_model" | "session/set_config_option");
        let params = (is_setting || method == "session/prompt")
            .then(|| serde_json::from_slice::<Value>(message).map(|mut message| message["params"].take()))
            .and_then(Result::ok);
        let kept = params.clone().filter(|_| is_setting);
        let number = agent.add_request(OpenRequest::Client {
            connection: connection.clone(),
            id: id.clone(),
            method: method.to_owned(),
            session: Some(session.clone()),
            params: kept,
        });
        if !agent.input.push(replace_id(message, head.raw_id, &number.to_string()).into()) {
            agent.open.remove(&number);
            let error = message::error(&id, message::OVERLOADED, "the agent does not read its input");
            return self.respond(state, connection, Some(session), &id, error);
        }
        record();
        open.pending.requests.push((connection.clone(), json!(id)));
        if let (true, Some(params)) = (method == "session/prompt", params) {
            self.metrics.add_prompt();
            if open.title.is_none() {
                open.title = message::title_of_prompt(&params);
            }
            for update in message::prompt_updates(session, &params) {
                self.log.append(session, EventKind::Update, Recipient::AllBut(connection.clone()), update);
            }
            let (title, pending) = (open.title.clone(), Some(open.pending.clone()));
            let change = SessionChange { title, pending, ..SessionChange::default() };
            self.update_session(session, change);
        } else {
            self.save_pending(session, open);
        }
    }

    /// Forwards a message that concerns no session to the agent of the client's connection.
    async fn forward_for_connection(self: Arc<Self>, connection: ConnectionId, message: Bytes) {
        let Ok(MessageHead { id, raw_id, method: Some(method), .. }) = MessageHead::parse(&message) else {
            return;
        };
        let worker = open::worker_of(&self, &connection, None).await;
        let mut state = self.lock();
        let worker = match worker {
            Ok(worker) => worker,
            Err(why) => {
                if let Some(id) = id {
                    let error = message::error(&id, message::INTERNAL, &why);
                    self.respond(&mut state, &connection, None, &id, error);
                }
                return;
            }
        };
        let Some(agent) = state.workers.get_mut(&worker) else { return };
        let Some(id) = id else {
            agent.input.push(message.clone());
            return;
        };
        if agent.open.len() >= MAX_AGENT_OPEN_REQUESTS {
            let error =
                message::error(&id, message::OVERLOADED, "too many requests wait for the agent already");
            return self.respond(&mut state, &connection, None, &id, error);
        }
        let number = agent.add_request(OpenRequest::Client {
            connection: connection.clone(),
            id: id.clone(),
            method: method.into_owned(),
            session: None,
            params: None,
        });
        if !agent.input.push(replace_id(&message, raw_id, &number.to_string()).into()) {
            agent.open.remove(&number);
            let error = message::error(&id, message::OVERLOADED, "the agent does not read its input");
            self.respond(&mut state, &connection, None, &id, error);
        }
    }

    /// Forwards the cancellation of a request, with the id that the request has at the agent.
    ///
    /// # Errors
    /// Fails if too much waits for the database.
    pub(super) fn cancel_request(
        self: &Arc<Self>,
        state: &mut HubState,
        connection: &ConnectionId,
        message: &Bytes,
    ) -> Result<(), ReceiveError> {
        let Ok(value) = serde_json::from_slice::<Value>(message) else { return Ok(()) };
        let cancelled = &value["params"]["requestId"];
        for worker in state.workers.values() {
            let found = worker.open.iter().find(|(_, open)| match open {
                OpenRequest::Client { connection: of, id, .. }
                | OpenRequest::NewSession { connection: of, id, .. } => {
                    of == connection && json!(id) == *cancelled
                }
                OpenRequest::Own { .. } => false,
            });
            if let Some((number, open)) = found {
                worker.input.push(message::cancellation(&json!(number)));
                if let OpenRequest::Client { session: Some(session), .. } = open {
                    let recorded = message::record_of(message, "$/cancel_request", None);
                    let sender = Recipient::Agent(connection.clone());
                    self.log.append(session, EventKind::ClientMessage, sender, recorded);
                }
                return Ok(());
            }
        }
        // The request may be at another server: there, its session waits for this connection.
        servers::forward_to_waiting(self, state, connection, connection, message)
    }

    /// Takes a client's answer to a request of an agent. Only the first counts.
    ///
    /// # Errors
    /// Fails if too much waits for the database.
    pub(super) fn take_answer(
        self: &Arc<Self>,
        state: &mut HubState,
        connection: &ConnectionId,
        id: &RequestId,
        raw_id: &[u8],
        message: &Bytes,
    ) -> Result<(), ReceiveError> {
        let RequestId::Str(id) = id else { return Ok(()) };
        let Some(request) = state.agent_requests.get(&**id) else {
            return servers::forward_to_waiting(self, state, connection, id, message);
        };
        let (Some(found), Some(open)) =
            (state.connections.get(connection), state.sessions.get(&request.session))
        else {
            return Ok(());
        };
        let is_asked = request.target.as_ref().is_none_or(|target| found.ids.contains(target));
        if !is_asked || !found.principal.may_use(&open.principal) {
            return Ok(());
        }
        let answerer = request.is_question.then(|| found.principal.name.clone());
        let other = answerer.clone().filter(|name| *name != open.principal);
        let Some(request) = state.agent_requests.remove(&**id) else { return Ok(()) };
        let mut answer: Bytes = replace_id(message, raw_id, &message::id_text(&request.id)).into();
        if request.is_question {
            answer = message::note_answerer(&answer, other.as_ref());
        }
        if let Some(worker) = state.workers.get_mut(&request.worker) {
            worker.agent_requests.remove(&request.id);
            worker.input.push_always(answer);
        }
        if let Some(principal) = answerer {
            tracing::info!(session = %request.session, principal, method = request.method, "a question was answered");
            let noted = message::note_answerer(message, other.as_ref());
            let recorded = message::record_of_answer(&noted, &request.method);
            let sender = Recipient::Agent(connection.clone());
            self.log.append(&request.session, EventKind::Answer, sender, recorded);
            self.withdraw(state, id, &request, Some(connection));
        }
        Ok(())
    }

    /// Tells clients that a request of an agent needs no answer any more, except the one that answered it.
    pub(super) fn withdraw(
        &self,
        state: &mut HubState,
        id: &str,
        request: &AgentRequest,
        answered_by: Option<&ConnectionId>,
    ) {
        if request.seq.is_none() {
            return;
        }
        let recipient = match (&request.target, answered_by) {
            (Some(target), _) => Recipient::Only(target.clone()),
            (None, Some(connection)) => Recipient::AllBut(connection.clone()),
            (None, None) => Recipient::All,
        };
        self.log.append(
            &request.session,
            EventKind::Withdrawal,
            recipient,
            message::cancellation(&json!(id)),
        );
        if let Some(session) = state.sessions.get_mut(&request.session) {
            session.pending.questions.retain(|question| question.id != id);
            self.save_pending(&request.session, session);
        }
    }

    /// Denies a question that no user answered in time, or fails a request that no client could serve.
    pub(super) fn expire_request(&self, state: &mut HubState, id: &str) {
        let Some(request) = state.agent_requests.remove(id) else { return };
        let answer = if request.is_question {
            self.metrics.add_expired_question();
            tracing::warn!(session = %request.session, method = request.method, "no user answered: denied");
            let asked: Value = serde_json::from_slice(&request.body).unwrap_or_default();
            let why = match Instant::now() >= request.deadline {
                true => format!("no user answered within {} s", self.options.question_timeout.as_secs()),
                false => "the session ended before a user answered".to_owned(),
            };
            message::result(&request.id, &message::denial(&request.method, &asked["params"], &why))
        } else {
            let why = format!("no client that offers {} is connected to this session", request.method);
            message::error(&request.id, message::INTERNAL, &why)
        };
        if let Some(worker) = state.workers.get_mut(&request.worker) {
            worker.agent_requests.remove(&request.id);
            worker.input.push_always(answer);
        }
        self.withdraw(state, id, &request, None);
    }

    /// Denies or fails some requests of an agent about a session at once.
    pub(super) fn end_requests(
        &self,
        state: &mut HubState,
        session: &SessionId,
        is_ended: impl Fn(&AgentRequest) -> bool,
    ) {
        let requests = state.agent_requests.iter();
        let ended = requests.filter(|(_, request)| request.session == *session && is_ended(request));
        for id in ended.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            self.expire_request(state, &id);
        }
    }

    /// Sends a response to a client's request: as an event of its session, or on the connection's own stream.
    pub(super) fn respond(
        &self,
        state: &mut HubState,
        connection: &ConnectionId,
        session: Option<&SessionId>,
        id: &RequestId,
        response: Bytes,
    ) {
        if let Some(session) = session {
            let recipient = Recipient::Only(connection.clone());
            if self.log.append(session, EventKind::Response, recipient, response.clone()).is_some() {
                if let Some(open) = state.sessions.get_mut(session) {
                    open.pending.mark_answered(connection, json!(id));
                    self.save_pending(session, open);
                }
                return;
            }
        }
        self.push(state, connection, OutboxItem::Message(response));
    }

    /// Adds to what is sent on a connection's own stream.
    pub(super) fn push(&self, state: &HubState, connection: &ConnectionId, item: OutboxItem) {
        if let Some(connection) = state.connections.get(connection) {
            connection.outbox.push(item);
        }
    }
}

/// Reads what decides where a message goes, and refuses messages that an agent could read in another way.
fn read_head(message: &[u8]) -> Result<MessageHead<'_>, ReceiveError> {
    let invalid = |why: String| Err(ReceiveError::Invalid(why));
    if str::from_utf8(message).is_err() {
        return invalid("the message is not UTF-8".to_owned());
    }
    let head = match MessageHead::parse(message) {
        Ok(head) => head,
        Err(MessageHeadError::Batch) => return Err(ReceiveError::Batch),
        Err(error @ MessageHeadError::Malformed) => return invalid(error.to_string()),
    };
    if head.is_response() && !head.has_outcome {
        return invalid(MessageHeadError::Malformed.to_string());
    }
    let request_id = match &head.id {
        Some(RequestId::Str(id)) => id.len(),
        _ => 0,
    };
    let session_id = head.session_id.as_ref().map_or(0, |id| id.len());
    if request_id.max(session_id) > MAX_ID_BYTES {
        return invalid(format!("an id has at most {MAX_ID_BYTES} bytes"));
    }
    Ok(head)
}

/// Returns the error for a session that does not exist, or that the client must not know of.
pub(super) fn unknown_session(id: &RequestId, session: &str) -> Bytes {
    let why = format!("there is no session {session}; `session/list` lists yours");
    message::error(id, message::NOT_FOUND, &why)
}

/// Returns what a client is told when it opens a session that exists.
pub(super) fn setup_for_client(setup: &Value) -> Value {
    let mut setup = setup.clone();
    if let Some(members) = setup.as_object_mut() {
        members.remove("sessionId");
    }
    if setup.is_null() { json!({}) } else { setup }
}
