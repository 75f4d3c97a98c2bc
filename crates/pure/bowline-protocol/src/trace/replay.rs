//! Replay of one side of a recorded connection to a real peer.
//!
//! The peer differs from the recorded one, so its requests are matched by method and session, then by their params,
//! then by their order. The recorded side's messages are sent in their order, each once the peer has sent what
//! preceded it: an agent waits for requests, answers and notifications, a client for answers. An answer that the
//! recorded side gave at once is given at once. Ids of requests, sessions and terminals, and the working directory,
//! are mapped to the peer's.

mod name_mapping;

use std::collections::HashMap;

use serde_json::{Value, json};

use super::{TraceEntry, TraceSide, summary};
use name_mapping::NameMapping;

/// The error code for a request that the recording does not have.
const NOT_RECORDED: i32 = -32603;

/// The next action of the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplayAction {
    /// Send this line, followed by a newline.
    Send(Vec<u8>),
    /// Report to the user that the peer behaves differently from the recorded one.
    Diverged(String),
}

/// Plays one side of a recording.
#[derive(Debug)]
pub struct ReplayPlayer {
    // The role to play: agent or client.
    role: TraceSide,
    // The sender and the recipient of the played messages.
    sides: (TraceSide, TraceSide),
    own_messages: Vec<RecordedMessage>,
    // Invariant: every earlier message was sent, or is an answer that waits only for its request.
    next: usize,
    requests: Vec<RecordedRequest>,
    // Whether the peer gave each answer of the recording, in recorded order.
    received_answers: Vec<bool>,
    // Our requests that the peer has not answered: from id to the index in `own_messages`.
    outstanding: HashMap<String, usize>,
    // The number of notifications from the peer, and how many of them preceded our last message.
    notification_count: usize,
    notifications_before_send: usize,
    names: NameMapping,
    has_diverged: bool,
}

/// A message of the played side.
#[derive(Debug)]
struct RecordedMessage {
    bytes: Vec<u8>,
    kind: RecordedMessageKind,
    prerequisites: Prerequisites,
    // Whether it is an answer that waits only for its request.
    is_immediate: bool,
    is_sent: bool,
}

#[derive(Debug)]
enum RecordedMessageKind {
    /// The method, the id, and the recorded answer: its number among the peer's answers, and its content.
    Request { method: String, id: String, answer: Option<(usize, Value)> },
    /// The answer to a request, by its index in `requests`.
    Answer { to: usize },
    /// A notification, or a line that is not a message.
    Other { name: String },
}

/// What the peer has to send before a message.
#[derive(Debug, Default)]
struct Prerequisites {
    /// The number of its requests.
    requests: usize,
    /// The number of its answers.
    answers: usize,
    /// The number of its notifications.
    notifications: usize,
    /// Whether a notification has to follow our last message.
    new_notification: bool,
}

/// A request of the recorded peer.
#[derive(Debug)]
struct RecordedRequest {
    method: String,
    params: Value,
    // The index in `own_messages` of its answer.
    answer: Option<usize>,
    // The matching request of the real peer.
    live: Option<LiveRequest>,
}

#[derive(Debug)]
struct LiveRequest {
    id: Value,
    params: Value,
}

impl ReplayPlayer {
    /// Creates a player of one side of a recording. A client names `cwd`, if given, instead of the recorded working
    /// directory.
    #[must_use]
    pub fn new(entries: &[TraceEntry], role: TraceSide, cwd: Option<&str>) -> Self {
        let mut player = Self {
            role,
            sides: played_sides(entries, role),
            own_messages: Vec::new(),
            next: 0,
            requests: Vec::new(),
            received_answers: Vec::new(),
            outstanding: HashMap::new(),
            notification_count: 0,
            notifications_before_send: 0,
            names: NameMapping::default(),
            has_diverged: false,
        };
        player.load_recording(entries, cwd);
        player
    }

    /// Returns the number of messages that the recording has for this side.
    #[must_use]
    pub fn message_count(&self) -> usize {
        self.own_messages.len()
    }

    /// Returns the messages to send before the peer's first.
    pub fn start(&mut self) -> Vec<ReplayAction> {
        let mut actions = Vec::new();
        self.send_due(&mut actions);
        actions
    }

    /// Handles a line from the peer, without its newline.
    pub fn receive(&mut self, line: &[u8]) -> Vec<ReplayAction> {
        let mut actions = Vec::new();
        match serde_json::from_slice::<Value>(line) {
            Ok(Value::Array(batch)) => {
                batch.into_iter().for_each(|message| self.receive_message(message, &mut actions))
            }
            Ok(message) => self.receive_message(message, &mut actions),
            // Output of the peer between its messages is ignored.
            Err(_) => {}
        }
        self.send_due(&mut actions);
        actions
    }

    /// Returns whether all messages were sent and all answers received. Further requests of the peer are still
    /// answered where the recording has an answer.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.own_messages.iter().all(|message| message.is_sent || message.is_immediate)
            && self.received_answers.iter().all(|answered| *answered)
    }

    /// Returns whether the peer deviated from the recording.
    #[must_use]
    pub fn has_diverged(&self) -> bool {
        self.has_diverged
    }

    /// Describes what was not played, and what it waits for.
    #[must_use]
    pub fn describe_remaining(&self) -> Option<String> {
        let left = self.own_messages.iter().filter(|message| !message.is_sent).count();
        let Some(first) = self.own_messages.iter().find(|message| !message.is_sent) else {
            let open = self.outstanding.values().min().map(|at| self.message_name(&self.own_messages[*at]));
            return (!self.is_finished())
                .then(|| format!("there was no answer to {}", open.unwrap_or_default()));
        };
        let messages = if left == 1 { "message was" } else { "messages were" };
        let waits = self.describe_wait(first).unwrap_or_else(|| "what is before it".to_owned());
        Some(format!(
            "{left} {messages} not played: the next, {}, waits for {waits}",
            self.message_name(first)
        ))
    }

    /// Loads the messages of this side, with what the other side sent before each.
    fn load_recording(&mut self, entries: &[TraceEntry], cwd: Option<&str>) {
        // By id: the index in `own_messages`; the index in `requests` and the number of our messages before it.
        let mut own_requests: HashMap<String, usize> = HashMap::new();
        let mut other_requests: HashMap<String, (usize, usize)> = HashMap::new();
        let (mut answers, mut notifications, mut notifications_before) = (0, 0, 0);
        let (own_side, other_side) = self.sides;
        let is_between = |entry: &&TraceEntry| {
            [(own_side, other_side), (other_side, own_side)].contains(&(entry.from, entry.to))
        };
        for entry in entries.iter().filter(is_between) {
            let message = serde_json::from_slice::<Value>(&entry.bytes).unwrap_or_default();
            let method = message.get("method").and_then(Value::as_str).map(str::to_owned);
            let id = message.get("id").map(Value::to_string);
            if entry.from != own_side {
                match (method, id) {
                    (Some(method), Some(id)) => {
                        other_requests.insert(id, (self.requests.len(), self.own_messages.len()));
                        let params = message["params"].clone();
                        self.requests.push(RecordedRequest { method, params, answer: None, live: None });
                    }
                    (Some(_), None) => notifications += 1,
                    (None, Some(id)) => {
                        if let Some(at) = own_requests.remove(&id)
                            && let RecordedMessageKind::Request { answer, .. } =
                                &mut self.own_messages[at].kind
                        {
                            *answer = Some((answers, message));
                            self.received_answers.push(false);
                            answers += 1;
                        }
                    }
                    (None, None) => {}
                }
                continue;
            }
            let at_once = |before: usize| before == self.own_messages.len();
            let (kind, is_immediate) = match (method, id) {
                (Some(method), Some(id)) => {
                    own_requests.insert(id.clone(), self.own_messages.len());
                    (RecordedMessageKind::Request { method, id, answer: None }, false)
                }
                (Some(method), None) => (RecordedMessageKind::Other { name: method }, false),
                (None, Some(id)) => match other_requests.remove(&id) {
                    Some((to, before)) => {
                        self.requests[to].answer = Some(self.own_messages.len());
                        (
                            RecordedMessageKind::Answer { to },
                            at_once(before) || self.role == TraceSide::Client,
                        )
                    }
                    // The request that it answers was not recorded, so it is unknown when it is due.
                    None => continue,
                },
                (None, None) => (
                    RecordedMessageKind::Other {
                        name: summary::shorten(&String::from_utf8_lossy(&entry.bytes)),
                    },
                    false,
                ),
            };
            let prerequisites = match (self.role, &kind) {
                _ if is_immediate => Prerequisites::default(),
                (TraceSide::Client, RecordedMessageKind::Other { .. }) => Prerequisites {
                    answers,
                    new_notification: notifications > notifications_before,
                    ..Prerequisites::default()
                },
                (TraceSide::Client, _) => Prerequisites { answers, ..Prerequisites::default() },
                (_, RecordedMessageKind::Answer { .. }) => {
                    Prerequisites { answers, notifications, ..Prerequisites::default() }
                }
                _ => Prerequisites {
                    requests: self.requests.len(),
                    answers,
                    notifications,
                    new_notification: false,
                },
            };
            notifications_before = notifications;
            if let (Some(cwd), Some(recorded)) = (cwd, message["params"]["cwd"].as_str()) {
                self.names.map_directory(recorded, cwd);
            }
            self.own_messages.push(RecordedMessage {
                bytes: entry.bytes.clone(),
                kind,
                prerequisites,
                is_immediate,
                is_sent: false,
            });
        }
    }

    fn receive_message(&mut self, message: Value, actions: &mut Vec<ReplayAction>) {
        let method = message.get("method").and_then(Value::as_str);
        match (method, message.get("id")) {
            (Some(method), Some(id)) => self.handle_request(method, id.clone(), &message["params"], actions),
            (Some(_), None) => self.notification_count += 1,
            (None, Some(id)) => self.handle_answer(&id.to_string(), &message, actions),
            (None, None) => {}
        }
    }

    fn handle_request(&mut self, method: &str, id: Value, params: &Value, actions: &mut Vec<ReplayAction>) {
        let Some(at) = self.find_recorded_request(method, params) else {
            let has_method = self.requests.iter().any(|request| request.method == method);
            let reason = match has_method {
                true => format!("the recording has no further {}", summary::shorten(method)),
                false => format!("the recording has no {}", summary::shorten(method)),
            };
            return self.refuse_request(&id, reason, actions);
        };
        self.names.learn_pair(&self.requests[at].params, params);
        self.requests[at].live = Some(LiveRequest { id: id.clone(), params: params.clone() });
        match self.requests[at].answer {
            Some(answer) if self.own_messages[answer].is_immediate => self.send_message(answer, actions),
            Some(_) => {}
            None => {
                self.refuse_request(
                    &id,
                    format!("the recording has no answer to {}", summary::shorten(method)),
                    actions,
                );
            }
        }
    }

    /// Returns the index of the matching recorded request: the first that is equal, or the first of its session.
    fn find_recorded_request(&self, method: &str, params: &Value) -> Option<usize> {
        let session = &params["sessionId"];
        let is_candidate = |request: &RecordedRequest| {
            let recorded_session = &request.params["sessionId"];
            let is_same_session = match (recorded_session.as_str(), session.as_str()) {
                (Some(recorded_session), Some(session)) => {
                    self.names.mapped_name(recorded_session).is_none_or(|known| known == session)
                }
                (recorded_session, session) => recorded_session.is_none() && session.is_none(),
            };
            request.live.is_none() && request.method == method && is_same_session
        };
        let candidates: Vec<usize> = self
            .requests
            .iter()
            .enumerate()
            .filter(|(_, request)| is_candidate(request))
            .map(|(at, _)| at)
            .collect();
        let equal = |at: &&usize| {
            let mut recorded = self.requests[**at].params.clone();
            self.names.apply(&mut recorded);
            recorded == *params
        };
        candidates.iter().find(equal).or_else(|| candidates.first()).copied()
    }

    fn refuse_request(&mut self, id: &Value, reason: String, actions: &mut Vec<ReplayAction>) {
        let error = json!({"code": NOT_RECORDED, "message": reason});
        let answer = json!({"jsonrpc": "2.0", "id": id, "error": error});
        actions.push(ReplayAction::Send(answer.to_string().into_bytes()));
        self.report_divergence(reason, actions);
    }

    fn report_divergence(&mut self, reason: String, actions: &mut Vec<ReplayAction>) {
        self.has_diverged = true;
        actions.push(ReplayAction::Diverged(reason));
    }

    fn handle_answer(&mut self, id: &str, message: &Value, actions: &mut Vec<ReplayAction>) {
        let Some(at) = self.outstanding.remove(id) else {
            return self.report_divergence(
                format!("request {} was answered, and was not made", summary::shorten(id)),
                actions,
            );
        };
        let RecordedMessageKind::Request { method, answer: Some((number, recorded)), .. } =
            &self.own_messages[at].kind
        else {
            return;
        };
        self.received_answers[*number] = true;
        let (method, recorded) = (method.clone(), recorded.clone());
        self.names.learn_pair(&recorded["result"], &message["result"]);
        let describe = |answer: &Value| match answer.get("error") {
            Some(error) => summary::summarise_error(error),
            None => "a result".to_owned(),
        };
        if recorded.get("error").is_some() != message.get("error").is_some() {
            let (now, then) = (describe(message), describe(&recorded));
            self.report_divergence(
                format!("{method} was answered by {now}, in the recording by {then}"),
                actions,
            );
        }
    }

    /// Sends the messages that are due, in order.
    fn send_due(&mut self, actions: &mut Vec<ReplayAction>) {
        while let Some(message) = self.own_messages.get(self.next) {
            let is_done = message.is_sent || message.is_immediate;
            if !is_done {
                if self.describe_wait(message).is_some() {
                    return;
                }
                self.send_message(self.next, actions);
            }
            self.next += 1;
        }
    }

    /// Describes what the peer has to send before a message, if anything.
    fn describe_wait(&self, message: &RecordedMessage) -> Option<String> {
        if let RecordedMessageKind::Answer { to } = &message.kind
            && self.requests[*to].live.is_none()
        {
            return Some(self.requests[*to].method.clone());
        }
        let Prerequisites { requests, answers, notifications, new_notification } = &message.prerequisites;
        if let Some(request) = self.requests[..*requests].iter().find(|request| request.live.is_none()) {
            return Some(request.method.clone());
        }
        if let Some(number) = self.received_answers[..*answers].iter().position(|is_received| !is_received) {
            let is_request = |message: &&RecordedMessage| matches!(&message.kind, RecordedMessageKind::Request { answer: Some((n, _)), .. } if *n == number);
            let method = self.own_messages.iter().find(is_request).map(|message| self.message_name(message));
            return Some(format!("the answer to {}", method.unwrap_or_default()));
        }
        let quiet = *new_notification && self.notification_count == self.notifications_before_send;
        (quiet || self.notification_count < *notifications).then(|| "a notification".to_owned())
    }

    fn send_message(&mut self, at: usize, actions: &mut Vec<ReplayAction>) {
        let recorded = &mut self.own_messages[at];
        recorded.is_sent = true;
        self.notifications_before_send = self.notification_count;
        let mut message = match serde_json::from_slice::<Value>(&recorded.bytes) {
            Ok(message) => message,
            // A line that is not JSON is sent unchanged.
            Err(_) => return actions.push(ReplayAction::Send(recorded.bytes.clone())),
        };
        let mut changed = self.names.apply(&mut message);
        match &recorded.kind {
            RecordedMessageKind::Request { id, .. } => {
                self.outstanding.insert(id.clone(), at);
            }
            RecordedMessageKind::Answer { to } => {
                let RecordedRequest { method, params, live, .. } = &self.requests[*to];
                if let Some(live) = live {
                    changed |= message["id"] != live.id;
                    message["id"] = live.id.clone();
                    if method == "session/request_permission" {
                        changed |=
                            name_mapping::map_option(&mut message["result"]["outcome"], params, &live.params);
                    }
                }
            }
            RecordedMessageKind::Other { .. } => {}
        }
        let bytes = if changed { message.to_string().into_bytes() } else { recorded.bytes.clone() };
        actions.push(ReplayAction::Send(bytes));
    }

    fn message_name(&self, message: &RecordedMessage) -> String {
        match &message.kind {
            RecordedMessageKind::Request { method, .. } | RecordedMessageKind::Other { name: method } => {
                summary::shorten(method)
            }
            RecordedMessageKind::Answer { to } => {
                format!("the answer to {}", summary::shorten(&self.requests[*to].method))
            }
        }
    }
}

/// Returns the played side and the side it talks to. Where the role itself is not recorded, a proxy plays it: it is
/// an agent to a client and a client to an agent.
fn played_sides(entries: &[TraceEntry], role: TraceSide) -> (TraceSide, TraceSide) {
    let own_side = if entries.iter().any(|entry| entry.from == role) { role } else { TraceSide::Proxy };
    let mut receivers = entries.iter().filter(|entry| entry.from == own_side).map(|entry| entry.to);
    let other = if role == TraceSide::Client { TraceSide::Agent } else { TraceSide::Client };
    match (own_side, receivers.find(|to| *to == other)) {
        (_, Some(other)) => (own_side, other),
        (TraceSide::Proxy, None) => (own_side, other),
        (_, None) => (own_side, TraceSide::Proxy),
    }
}
