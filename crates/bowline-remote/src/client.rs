//! The decisions of a client of a remote agent: what to post, open, resend and answer. No IO; the time is passed in.
//!
//! The caller's messages are posted one at a time, so they keep their order. A message is posted only while the stream
//! that will carry its answer is open. Messages of the server are taken from any stream.
//!
//! If the server no longer knows the connection, the client makes a new one. A server with Bowline's extensions takes
//! over what belongs to the old one. With any other server, open requests fail, and the sessions are resumed or loaded.
//! On a new connection the requests of the server get new ids, because its ids may start again while the caller still
//! knows the old ones: an answer must never reach another question.

mod receive;
mod recovery;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use agent_client_protocol_schema::v1::RequestId;
use bowline_protocol::remote::{self, MessageHead, MessageHeadError};
use bowline_text::display::escape_line;
use bytes::Bytes;
use serde_json::{Value, json};

use crate::backoff::Backoff;
use crate::message::{self, INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR};
use crate::refusal::Refusal;

/// The most messages of the caller that wait to be posted, and their size in bytes. No more are read then.
const MAX_QUEUED: usize = 64;
const MAX_QUEUED_BYTES: usize = 1 << 20;
/// The most unanswered requests of each side.
const MAX_OPEN_REQUESTS: usize = 4096;
/// The most answered requests of the server that are remembered, to recognize them if they come again.
const MAX_ANSWERED: usize = 4096;
/// How often the stream of a session that was open may be refused as unknown before its requests fail. The session is
/// also unknown if the whole connection is, which the connection's own stream tells within this time.
const MAX_UNKNOWN_SESSION: u32 = 5;
/// The longest id or text of a server in a report, in bytes.
const MAX_SHOWN_BYTES: usize = 200;

/// An event stream.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StreamKey {
    /// The connection's own.
    Connection,
    /// That of a session.
    Session(String),
}

/// What the client is told about the server.
#[derive(Debug)]
pub(crate) struct ClientOptions {
    /// The server's URL, for messages.
    pub(crate) url: String,
    /// How long to try to reach the server again.
    pub(crate) reconnect_for: Duration,
    /// Whether sessions have streams of their own.
    pub(crate) has_session_streams: bool,
    /// Makes delays differ between clients.
    pub(crate) seed: u64,
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Write a line to the caller.
    Deliver(Bytes),
    /// Post a message. There is at most one at a time.
    Post(Post),
    /// Open a stream.
    OpenStream { key: StreamKey, connection: String, last_event_id: Option<String> },
    /// Close a stream.
    CloseStream(StreamKey),
    /// Tell the user.
    Report(String),
    /// End, because the caller has ended or for a reason. A connection that is still known is deleted.
    End { connection: Option<String>, reason: Option<String> },
}

/// A message to post.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Post {
    /// The connection; `None` for `initialize`, which creates one.
    pub(crate) connection: Option<String>,
    /// The session that the message belongs to.
    pub(crate) session: Option<String>,
    /// The message.
    pub(crate) body: Bytes,
}

/// What came of a post.
#[derive(Debug)]
pub(crate) enum PostOutcome {
    /// The server has the message.
    Accepted,
    /// The server has answered with a message.
    Answered { connection: Option<String>, body: Bytes },
    /// The server has refused it.
    Refused(Refusal),
    /// No answer came.
    Lost { reason: String, delivery: Delivery },
    /// The answer is not one of this protocol, or the server cannot be used.
    Unusable(String),
}

/// Whether a message without an answer may have reached the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// It has not.
    Impossible,
    /// It may have.
    Possible,
}

/// Why a stream ended.
#[derive(Debug)]
pub(crate) enum StreamEnd {
    /// It was not opened.
    Refused(Refusal),
    /// It ended, or could not be reached.
    Dropped(String),
    /// What it carries is not usable.
    Unusable(String),
}

#[derive(Debug)]
struct Outgoing {
    body: Bytes,
    session: Option<String>,
    kind: OutgoingKind,
    // The connection that an answer belongs to.
    generation: u32,
    // Whether the server did not know the connection when it was posted before.
    was_unknown: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum OutgoingKind {
    Initialize(RequestId),
    Request(RequestId),
    /// The answer to a request of the server, by the id that the server gave it.
    Response(RequestId),
    Notification,
}

/// An unanswered request of the caller.
#[derive(Debug)]
struct OpenRequest {
    method: String,
    session: Option<String>,
    // The params of a request that opens a session.
    params: Option<Value>,
    is_sent: bool,
}

/// An unanswered request of the server.
#[derive(Debug)]
struct ServerRequest {
    original_id: RequestId,
    session: Option<String>,
    // Recognizes it if it comes again on another connection.
    digest: u64,
}

/// An unanswered request of the client itself, after a connection was lost.
#[derive(Debug)]
enum OwnRequest {
    Initialize,
    Resume(String),
    Load(String),
}

#[derive(Debug)]
struct Stream {
    state: StreamState,
    last_event_id: Option<String>,
    was_open: bool,
    failures: u32,
    failing_since: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamState {
    Opening,
    Open,
    /// The server does not know the session yet. Opened again after the next response about it.
    Unknown,
    /// Opened again at this time.
    Waiting(Duration),
    /// Closed until the connection is known again.
    Closed,
}

/// The ways to continue a session on a new connection.
#[derive(Debug, Clone, Copy, Default)]
struct SessionSupport {
    can_resume: bool,
    can_load: bool,
}

/// The state of the client.
#[derive(Debug)]
pub(crate) struct Client {
    options: ClientOptions,
    backoff: Backoff,
    actions: VecDeque<Action>,
    // The params of the caller's `initialize`, from when it is sent.
    initialize: Option<Value>,
    connection: Option<String>,
    has_extensions: bool,
    session_support: SessionSupport,
    // The number of connections whose state was lost.
    generation: u32,
    queue: VecDeque<Outgoing>,
    queued_bytes: usize,
    own_queue: VecDeque<Outgoing>,
    in_flight: Option<Outgoing>,
    post_failures: u32,
    post_failing_since: Option<Duration>,
    next_post_at: Option<Duration>,
    recovery_deadline: Option<Duration>,
    open_requests: HashMap<RequestId, OpenRequest>,
    own_requests: HashMap<RequestId, OwnRequest>,
    own_request_count: u64,
    server_requests: HashMap<RequestId, ServerRequest>,
    answered: VecDeque<RequestId>,
    // Unanswered requests of the connection that was taken over, until they come again.
    carried_requests: HashMap<RequestId, ServerRequest>,
    streams: BTreeMap<StreamKey, Stream>,
    // The params that each open session was opened with.
    sessions: BTreeMap<String, Value>,
    has_input_ended: bool,
    has_ended: bool,
}

impl Client {
    pub(crate) fn new(options: ClientOptions) -> Self {
        Self {
            backoff: Backoff::new(options.seed),
            options,
            actions: VecDeque::new(),
            initialize: None,
            connection: None,
            has_extensions: false,
            session_support: SessionSupport::default(),
            generation: 0,
            queue: VecDeque::new(),
            queued_bytes: 0,
            own_queue: VecDeque::new(),
            in_flight: None,
            post_failures: 0,
            post_failing_since: None,
            next_post_at: None,
            recovery_deadline: None,
            open_requests: HashMap::new(),
            own_requests: HashMap::new(),
            own_request_count: 0,
            server_requests: HashMap::new(),
            answered: VecDeque::new(),
            carried_requests: HashMap::new(),
            streams: BTreeMap::new(),
            sessions: BTreeMap::new(),
            has_input_ended: false,
            has_ended: false,
        }
    }

    /// Returns the next thing to do.
    pub(crate) fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Returns whether another line of the caller may be read.
    pub(crate) fn accepts_input(&self) -> bool {
        !self.has_input_ended && self.queue.len() < MAX_QUEUED && self.queued_bytes < MAX_QUEUED_BYTES
    }

    /// Returns when to call [`Self::on_timer`].
    pub(crate) fn next_timer(&self) -> Option<Duration> {
        let waiting = self.streams.values().filter_map(|stream| match stream.state {
            StreamState::Waiting(at) => Some(at),
            _ => None,
        });
        waiting.chain(self.next_post_at).chain(self.recovery_deadline).min()
    }

    /// Takes a line of the caller.
    pub(crate) fn on_line(&mut self, now: Duration, line: Bytes) {
        if line.trim_ascii().is_empty() || self.has_ended {
            return;
        }
        let head = match MessageHead::parse(&line) {
            Ok(head) => head,
            Err(error) => {
                let code = match error {
                    MessageHeadError::Batch => INVALID_REQUEST,
                    MessageHeadError::Malformed => PARSE_ERROR,
                };
                return self.deliver(message::error_response(&RequestId::Null, code, &error.to_string()));
            }
        };
        let session = head.session_id.as_deref().map(str::to_owned);
        match (head.id, head.method) {
            (Some(id), Some(method)) => self.queue_request(id, &method, session, line.clone()),
            (Some(id), None) => self.queue_response(&id, &line),
            (None, _) if self.initialize.is_none() => {
                self.report("a notification before `initialize` was dropped".to_owned());
            }
            (None, _) => self.enqueue(Outgoing::new(
                line.clone(),
                session,
                OutgoingKind::Notification,
                self.generation,
            )),
        }
        self.proceed(now);
    }

    /// Refuses a line of the caller that is longer than a message may be.
    pub(crate) fn on_long_line(&mut self, limit: usize) {
        let text = format!("a message has more than {limit} bytes");
        self.deliver(message::error_response(&RequestId::Null, INVALID_REQUEST, &text));
    }

    /// Takes note that the caller has ended. What it sent before is still posted, unless the server cannot be reached.
    pub(crate) fn on_input_end(&mut self, now: Duration) {
        self.has_input_ended = true;
        self.proceed(now);
    }

    /// Takes note that the caller is gone.
    pub(crate) fn on_caller_lost(&mut self) {
        if !self.has_ended {
            self.end(None);
        }
    }

    /// Takes what came of the post.
    pub(crate) fn on_post(&mut self, now: Duration, outcome: PostOutcome) {
        let Some(sent) = self.in_flight.take() else { return };
        match outcome {
            PostOutcome::Accepted | PostOutcome::Answered { .. } => {
                (self.post_failures, self.post_failing_since) = (0, None);
                self.finish_post(now, sent, outcome);
            }
            PostOutcome::Refused(refusal) => self.refuse_post(now, sent, &refusal),
            PostOutcome::Unusable(reason) => match &sent.kind {
                OutgoingKind::Initialize(id) if self.own_requests.contains_key(id) => self.fail(reason),
                _ => self.reject(sent, &reason),
            },
            PostOutcome::Lost { reason, delivery } => self.lose_post(now, sent, reason, delivery),
        }
        self.proceed(now);
    }

    /// Takes note that a stream is open, or only seems to be, because the server has not refused it yet.
    pub(crate) fn on_stream_open(&mut self, now: Duration, key: &StreamKey, is_certain: bool) {
        if let Some(stream) = self.streams.get_mut(key)
            && matches!(stream.state, StreamState::Opening | StreamState::Open)
        {
            (stream.state, stream.failing_since) = (StreamState::Open, None);
            stream.was_open |= is_certain;
        }
        self.proceed(now);
    }

    /// Takes an event of a stream.
    pub(crate) fn on_event(
        &mut self,
        now: Duration,
        key: &StreamKey,
        id: Option<String>,
        data: Option<Bytes>,
    ) {
        let has_extensions = self.has_extensions;
        if let Some(stream) = self.streams.get_mut(key) {
            stream.failures = 0;
            if let Some(id) = id {
                if stream.last_event_id.as_deref().is_some_and(|last| is_repeated(last, &id, has_extensions))
                {
                    return;
                }
                // The specification of events excludes ids with this character.
                if !id.contains('\0') {
                    stream.last_event_id = Some(id);
                }
            }
        }
        if let Some(data) = data.filter(|data| !data.trim_ascii().is_empty()) {
            self.receive(now, key, &data);
        }
        self.proceed(now);
    }

    /// Takes note that a stream has ended.
    pub(crate) fn on_stream_end(&mut self, now: Duration, key: &StreamKey, end: StreamEnd) {
        // The end of a stream that was closed here, or of an earlier connection, says nothing.
        let is_current =
            |stream: &mut Stream| matches!(stream.state, StreamState::Opening | StreamState::Open);
        if self.streams.get_mut(key).is_some_and(is_current)
            && let Some(mut stream) = self.streams.remove(key)
        {
            stream.failures = stream.failures.saturating_add(1);
            self.handle_stream_end(now, key, stream, end);
        }
        self.proceed(now);
    }

    /// Does what is due.
    pub(crate) fn on_timer(&mut self, now: Duration) {
        self.next_post_at = self.next_post_at.filter(|at| *at > now);
        let due = self
            .streams
            .iter()
            .filter(|(_, stream)| matches!(stream.state, StreamState::Waiting(at) if at <= now));
        for key in due.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.open_stream(key);
        }
        if self.recovery_deadline.is_some_and(|deadline| deadline <= now) {
            self.fail(format!(
                "{} did not restore the sessions within {} s",
                self.options.url,
                self.options.reconnect_for.as_secs()
            ));
        }
        self.proceed(now);
    }

    fn queue_request(&mut self, id: RequestId, method: &str, session: Option<String>, line: Bytes) {
        let refusal = if self.open_requests.contains_key(&id) {
            Some(format!("the request id {id} is already in use"))
        } else if self.open_requests.len() >= MAX_OPEN_REQUESTS {
            Some(format!("{MAX_OPEN_REQUESTS} requests are already open"))
        } else if self.initialize.is_none() && method != "initialize" {
            Some("the first message must be `initialize`".to_owned())
        } else {
            None
        };
        if let Some(refusal) = refusal {
            return self.deliver(message::error_response(&id, INVALID_REQUEST, &refusal));
        }
        let is_opening = matches!(method, "session/new" | "session/fork" | "session/load" | "session/resume");
        let is_first = self.initialize.is_none();
        let params = (is_first || is_opening).then(|| params_of(&line));
        let kind = match is_first {
            true => OutgoingKind::Initialize(id.clone()),
            false => OutgoingKind::Request(id.clone()),
        };
        if is_first {
            self.initialize.clone_from(&params);
        }
        let request =
            OpenRequest { method: method.to_owned(), session: session.clone(), params, is_sent: false };
        self.open_requests.insert(id, request);
        self.enqueue(Outgoing::new(line, session, kind, self.generation));
    }

    fn queue_response(&mut self, id: &RequestId, line: &Bytes) {
        let Some(ServerRequest { original_id, session, .. }) = self.server_requests.remove(id) else {
            // If the server sends it again, the caller is asked again.
            self.carried_requests.remove(id);
            return self.report(format!(
                "the answer to request {id} was dropped: the server no longer waits for it"
            ));
        };
        let body = if original_id == *id { Some(line.clone()) } else { message::with_id(line, &original_id) };
        if self.has_extensions {
            if self.answered.len() >= MAX_ANSWERED {
                self.answered.pop_front();
            }
            self.answered.push_back(original_id.clone());
        }
        if let Some(body) = body {
            self.enqueue(Outgoing::new(body, session, OutgoingKind::Response(original_id), self.generation));
        }
    }

    fn retain_queued(&mut self, is_kept: impl Fn(&Outgoing) -> bool) {
        self.queue.retain(is_kept);
        self.queued_bytes = self.queue.iter().map(|message| message.body.len()).sum();
    }

    fn enqueue(&mut self, outgoing: Outgoing) {
        self.queued_bytes += outgoing.body.len();
        self.queue.push_back(outgoing);
    }

    /// Posts the next message if that is possible now, and ends if nothing is left to do.
    fn proceed(&mut self, now: Duration) {
        if self.has_ended {
            return;
        }
        self.post_next(now);
        let is_idle = self.queue.is_empty() && self.in_flight.is_none();
        let is_failing = self.next_post_at.is_some()
            || self.streams.values().any(|stream| stream.failing_since.is_some())
            || !self.own_requests.is_empty();
        if self.has_input_ended && (is_idle || is_failing) {
            self.end(None);
        }
    }

    fn post_next(&mut self, now: Duration) {
        if self.in_flight.is_some() || self.next_post_at.is_some_and(|at| at > now) {
            return;
        }
        let is_own = !self.own_queue.is_empty();
        let next = match is_own {
            true => self.own_queue.front(),
            // The caller waits until its sessions are restored.
            false if !self.own_requests.is_empty() => None,
            false => self.queue.front(),
        };
        let Some(next) = next else { return };
        if !matches!(next.kind, OutgoingKind::Initialize(_)) {
            let session = next.session.clone();
            if self.connection.is_none() || !self.are_streams_ready(session) {
                return;
            }
        }
        let next = if is_own { self.own_queue.pop_front() } else { self.queue.pop_front() };
        let Some(next) = next else { return };
        if !is_own {
            self.queued_bytes -= next.body.len();
        }
        if let OutgoingKind::Initialize(id) | OutgoingKind::Request(id) = &next.kind
            && let Some(request) = self.open_requests.get_mut(id)
        {
            request.is_sent = true;
        }
        let connection = match next.kind {
            OutgoingKind::Initialize(_) => None,
            _ => self.connection.clone(),
        };
        self.next_post_at = None;
        let post = Post { connection, session: next.session.clone(), body: next.body.clone() };
        self.actions.push_back(Action::Post(post));
        self.in_flight = Some(next);
    }

    /// Returns whether the streams for the answer to a message are open. Opens the session's if it is missing.
    fn are_streams_ready(&mut self, session: Option<String>) -> bool {
        let state = |stream: &Stream| stream.state;
        if self.streams.get(&StreamKey::Connection).map(state) != Some(StreamState::Open) {
            return false;
        }
        let Some(session) = session.filter(|_| self.options.has_session_streams) else { return true };
        let key = StreamKey::Session(session);
        match self.streams.get(&key).map(state) {
            None => {
                self.open_stream(key);
                false
            }
            Some(StreamState::Open | StreamState::Unknown) => true,
            Some(StreamState::Opening | StreamState::Waiting(_) | StreamState::Closed) => false,
        }
    }

    fn open_stream(&mut self, key: StreamKey) {
        let Some(connection) = self.connection.clone() else { return };
        let stream = self.streams.entry(key.clone()).or_insert_with(|| Stream::new(StreamState::Opening));
        stream.state = StreamState::Opening;
        let last_event_id = stream.last_event_id.clone();
        self.actions.push_back(Action::OpenStream { key, connection, last_event_id });
    }

    fn finish_post(&mut self, now: Duration, sent: Outgoing, outcome: PostOutcome) {
        match (sent.kind.clone(), outcome) {
            (OutgoingKind::Initialize(id), PostOutcome::Answered { connection, body }) => {
                self.finish_initialize(now, sent, &id, connection, &body);
            }
            (OutgoingKind::Initialize(_), _) => {
                let text = format!(
                    "{} did not answer `initialize`: it does not speak ACP over HTTP",
                    self.options.url
                );
                self.reject(sent, &text);
            }
            (_, PostOutcome::Answered { body, .. }) => self.receive(now, &StreamKey::Connection, &body),
            _ => {}
        }
    }

    fn finish_initialize(
        &mut self,
        now: Duration,
        sent: Outgoing,
        id: &RequestId,
        connection: Option<String>,
        body: &Bytes,
    ) {
        let url = self.options.url.clone();
        let response: Value = serde_json::from_slice(body).unwrap_or_default();
        let answers =
            MessageHead::parse(body).is_ok_and(|head| head.is_response() && head.id.as_ref() == Some(id));
        let line = message::to_line(body).filter(|_| answers);
        let Some(line) = line else {
            return self
                .reject(sent, &format!("{url} answered `initialize` with something else than its response"));
        };
        let is_own = self.own_requests.contains_key(id);
        let Some(result) = response.get("result") else {
            if is_own {
                let text = response["error"]["message"].as_str().unwrap_or_default();
                return self
                    .fail(format!("{url} refused to connect again: {}", escape_line(text, MAX_SHOWN_BYTES)));
            }
            self.initialize = None;
            self.open_requests.remove(id);
            return self.deliver(line);
        };
        let Some(connection) = connection else {
            return self
                .reject(sent, &format!("{url} did not name the connection (header Acp-Connection-Id)"));
        };
        let had_extensions = self.has_extensions;
        let has_extensions = self.options.has_session_streams && remote::offers_extensions(result);
        (self.connection, self.has_extensions) = (Some(connection), has_extensions);
        let capabilities = &result["agentCapabilities"];
        self.session_support = SessionSupport {
            can_resume: !capabilities["sessionCapabilities"]["resume"].is_null(),
            can_load: capabilities["loadSession"] == true,
        };
        if is_own {
            self.own_requests.remove(id);
            self.report(format!("connected to {url} again"));
            if had_extensions && has_extensions {
                let keys: Vec<StreamKey> = self.streams.keys().cloned().collect();
                keys.into_iter().for_each(|key| self.open_stream(key));
                self.await_sent_requests();
                self.recovery_deadline = None;
            } else {
                if had_extensions {
                    self.forget_connection();
                }
                self.open_stream(StreamKey::Connection);
                self.restore_sessions(now);
            }
        } else {
            self.open_requests.remove(id);
            self.deliver(line);
            self.open_stream(StreamKey::Connection);
        }
    }

    fn refuse_post(&mut self, now: Duration, sent: Outgoing, refusal: &Refusal) {
        let text = refusal.describe(&self.options.url);
        match &sent.kind {
            OutgoingKind::Initialize(id) if self.own_requests.contains_key(id) => {
                // A server that is starting may not offer the endpoint yet: qwen answers 406 then.
                match refusal.denies_access() {
                    true => self.fail(text),
                    false => self.retry_post(now, sent, text),
                }
            }
            OutgoingKind::Initialize(_) => self.reject(sent, &text),
            _ if refusal.status == 404 && !sent.was_unknown => {
                self.put_back(Outgoing { was_unknown: true, ..sent });
                self.lose_connection(now);
            }
            _ if refusal.is_from_gateway() && self.has_extensions => self.retry_post(now, sent, text),
            OutgoingKind::Response(id) if refusal.status == 413 => {
                // The agent must not wait for an answer that its server does not take.
                let body = message::error_response(
                    id,
                    INTERNAL_ERROR,
                    "the answer is larger than the server accepts",
                );
                self.report(format!("{text}: an answer to the agent became an error"));
                self.put_back(Outgoing { body, kind: OutgoingKind::Notification, ..sent });
            }
            _ => self.reject(sent, &text),
        }
    }

    fn lose_post(&mut self, now: Duration, sent: Outgoing, reason: String, delivery: Delivery) {
        // To repeat an answer or a cancellation does no harm, nor does a second connection.
        let can_repeat = match &sent.kind {
            OutgoingKind::Initialize(id) => self.own_requests.contains_key(id),
            OutgoingKind::Request(_) => delivery == Delivery::Impossible || self.has_extensions,
            OutgoingKind::Response(_) | OutgoingKind::Notification => true,
        };
        if can_repeat {
            return self.retry_post(now, sent, reason);
        }
        let advice = match sent.kind {
            OutgoingKind::Request(_) => {
                "; the agent may have received the request: check before you repeat it"
            }
            _ => "",
        };
        self.reject(sent, &format!("{reason}{advice}"));
    }

    fn retry_post(&mut self, now: Duration, sent: Outgoing, reason: String) {
        self.post_failures = self.post_failures.saturating_add(1);
        let since = *self.post_failing_since.get_or_insert(now);
        self.put_back(sent);
        match self.retry_time(now, since, self.post_failures) {
            Some(at) => self.next_post_at = Some(at),
            None => self.fail(self.outage(&reason)),
        }
    }

    fn put_back(&mut self, sent: Outgoing) {
        match &sent.kind {
            OutgoingKind::Initialize(id) | OutgoingKind::Request(id) => {
                if self.own_requests.contains_key(id) {
                    return self.own_queue.push_front(sent);
                }
                // It may have failed with its connection in the meantime.
                let Some(request) = self.open_requests.get_mut(id) else { return };
                request.is_sent = false;
            }
            OutgoingKind::Response(_) if sent.generation != self.generation => return,
            OutgoingKind::Response(_) | OutgoingKind::Notification => {}
        }
        self.queued_bytes += sent.body.len();
        self.queue.push_front(sent);
    }

    /// Returns when to try again; `None` if that has taken too long.
    fn retry_time(&mut self, now: Duration, since: Duration, failures: u32) -> Option<Duration> {
        let at = now + self.backoff.delay(failures);
        (at <= since.saturating_add(self.options.reconnect_for)).then_some(at)
    }

    fn outage(&self, reason: &str) -> String {
        let seconds = self.options.reconnect_for.as_secs();
        format!("{} could not be reached again within {seconds} s: {reason}", self.options.url)
    }

    /// Gives up a message that the server has not taken.
    fn reject(&mut self, sent: Outgoing, text: &str) {
        match &sent.kind {
            OutgoingKind::Initialize(id) | OutgoingKind::Request(id) => {
                if let Some(own) = self.own_requests.remove(id) {
                    return match own {
                        OwnRequest::Initialize => self.fail(text.to_owned()),
                        OwnRequest::Resume(session) | OwnRequest::Load(session) => {
                            self.lose_session(&session, text)
                        }
                    };
                }
                if matches!(sent.kind, OutgoingKind::Initialize(_)) {
                    self.initialize = None;
                }
                // It may have failed with its connection in the meantime.
                if self.open_requests.remove(id).is_some() {
                    self.deliver(message::error_response(id, INTERNAL_ERROR, text));
                }
            }
            OutgoingKind::Response(_) => self.report(format!("an answer was not delivered: {text}")),
            OutgoingKind::Notification => self.report(format!("a notification was not delivered: {text}")),
        }
    }

    fn handle_stream_end(&mut self, now: Duration, key: &StreamKey, mut stream: Stream, end: StreamEnd) {
        let url = &self.options.url;
        let (reason, is_final) = match (key, end) {
            (StreamKey::Connection, StreamEnd::Refused(Refusal { status: 404, .. })) => {
                self.streams.insert(key.clone(), stream);
                return self.lose_connection(now);
            }
            // Some servers refuse it (403) instead, until the session is loaded on this connection.
            (StreamKey::Session(_), StreamEnd::Refused(Refusal { status: 403 | 404, .. }))
                if !stream.was_open && stream.state == StreamState::Opening =>
            {
                stream.state = StreamState::Unknown;
                self.streams.insert(key.clone(), stream);
                return;
            }
            // The refusal came late: the session may have been loaded since.
            (StreamKey::Session(_), StreamEnd::Refused(refusal @ Refusal { status: 403 | 404, .. }))
                if !stream.was_open =>
            {
                (refusal.describe(url), false)
            }
            (StreamKey::Session(_), StreamEnd::Refused(refusal)) if refusal.status == 404 => (
                format!("{url} no longer knows the session: load it again"),
                stream.failures > MAX_UNKNOWN_SESSION,
            ),
            (_, StreamEnd::Refused(refusal)) => (refusal.describe(url), !refusal.is_temporary()),
            (_, StreamEnd::Unusable(reason)) => (reason, true),
            (_, StreamEnd::Dropped(reason)) => (reason, false),
        };
        let since = *stream.failing_since.get_or_insert(now);
        let retry_time = self.retry_time(now, since, stream.failures);
        match (key, retry_time) {
            (_, Some(at)) if !is_final => {
                if stream.state == StreamState::Open {
                    let loss = match stream.last_event_id {
                        Some(_) => "",
                        None if self.has_extensions => "",
                        None => "; messages may be missing, because the server does not number them",
                    };
                    self.report(format!("a stream was interrupted and is opened again ({reason}){loss}"));
                }
                stream.state = StreamState::Waiting(at);
                self.streams.insert(key.clone(), stream);
            }
            (StreamKey::Session(session), _) => {
                self.retain_queued(|message| message.session.as_ref() != Some(session));
                self.fail_open_requests(&reason, |request| request.session.as_ref() == Some(session));
                self.report(format!("session {}: {reason}", escape_line(session, MAX_SHOWN_BYTES)));
            }
            _ if is_final => self.fail(reason),
            _ => self.fail(self.outage(&reason)),
        }
    }

    fn fail_open_requests(&mut self, text: &str, is_affected: impl Fn(&OpenRequest) -> bool) {
        let affected = self.open_requests.iter().filter(|(_, request)| is_affected(request));
        let mut ids: Vec<RequestId> = affected.map(|(id, _)| id.clone()).collect();
        ids.sort();
        for id in ids {
            self.open_requests.remove(&id);
            self.deliver(message::error_response(&id, INTERNAL_ERROR, text));
        }
    }

    /// Answers everything with an error, and ends.
    fn fail(&mut self, reason: String) {
        if !self.has_ended {
            self.fail_open_requests(&reason, |_| true);
            self.end(Some(reason));
        }
    }

    fn end(&mut self, reason: Option<String>) {
        self.has_ended = true;
        self.queue.clear();
        self.own_queue.clear();
        self.streams.clear();
        (self.next_post_at, self.recovery_deadline) = (None, None);
        self.actions.push_back(Action::End { connection: self.connection.take(), reason });
    }

    fn deliver(&mut self, line: Bytes) {
        self.actions.push_back(Action::Deliver(line));
    }

    fn report(&mut self, text: String) {
        self.actions.push_back(Action::Report(text));
    }
}

impl Outgoing {
    fn new(body: Bytes, session: Option<String>, kind: OutgoingKind, generation: u32) -> Self {
        Self { body, session, kind, generation, was_unknown: false }
    }
}

impl Stream {
    fn new(state: StreamState) -> Self {
        Self { state, last_event_id: None, was_open: false, failures: 0, failing_since: None }
    }
}

/// Returns whether an event was already received. Only the extensions promise that ids are numbers that grow.
fn is_repeated(last: &str, id: &str, has_extensions: bool) -> bool {
    match (last.parse::<u64>(), id.parse::<u64>()) {
        (Ok(last), Ok(id)) if has_extensions => id <= last,
        _ => last == id,
    }
}

/// Returns the params of a message as an object.
fn params_of(line: &[u8]) -> Value {
    let mut message: Value = serde_json::from_slice(line).unwrap_or_default();
    message.get_mut("params").map(Value::take).filter(Value::is_object).unwrap_or_else(|| json!({}))
}

#[cfg(test)]
mod tests;
