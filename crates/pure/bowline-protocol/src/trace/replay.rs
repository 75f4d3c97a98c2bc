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
        self.own_messages.iter().all(|mine| mine.is_sent || mine.is_immediate)
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
        let left = self.own_messages.iter().filter(|mine| !mine.is_sent).count();
        let Some(first) = self.own_messages.iter().find(|mine| !mine.is_sent) else {
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
        let mut ours: HashMap<String, usize> = HashMap::new();
        let mut theirs: HashMap<String, (usize, usize)> = HashMap::new();
        let (mut answers, mut notes, mut notes_before) = (0, 0, 0);
        let (own, other) = self.sides;
        let is_between = |entry: &&TraceEntry| [(own, other), (other, own)].contains(&(entry.from, entry.to));
        for entry in entries.iter().filter(is_between) {
            let message = serde_json::from_slice::<Value>(&entry.bytes).unwrap_or_default();
            let method = message.get("method").and_then(Value::as_str).map(str::to_owned);
            let id = message.get("id").map(Value::to_string);
            if entry.from != own {
                match (method, id) {
                    (Some(method), Some(id)) => {
                        theirs.insert(id, (self.requests.len(), self.own_messages.len()));
                        let params = message["params"].clone();
                        self.requests.push(RecordedRequest { method, params, answer: None, live: None });
                    }
                    (Some(_), None) => notes += 1,
                    (None, Some(id)) => {
                        if let Some(at) = ours.remove(&id)
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
            let (part, free) = match (method, id) {
                (Some(method), Some(id)) => {
                    ours.insert(id.clone(), self.own_messages.len());
                    (RecordedMessageKind::Request { method, id, answer: None }, false)
                }
                (Some(method), None) => (RecordedMessageKind::Other { name: method }, false),
                (None, Some(id)) => match theirs.remove(&id) {
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
            let needs = match (self.role, &part) {
                _ if free => Prerequisites::default(),
                (TraceSide::Client, RecordedMessageKind::Other { .. }) => Prerequisites {
                    answers,
                    new_notification: notes > notes_before,
                    ..Prerequisites::default()
                },
                (TraceSide::Client, _) => Prerequisites { answers, ..Prerequisites::default() },
                (_, RecordedMessageKind::Answer { .. }) => {
                    Prerequisites { answers, notifications: notes, ..Prerequisites::default() }
                }
                _ => Prerequisites {
                    requests: self.requests.len(),
                    answers,
                    notifications: notes,
                    new_notification: false,
                },
            };
            notes_before = notes;
            if let (Some(cwd), Some(recorded)) = (cwd, message["params"]["cwd"].as_str()) {
                self.names.map_directory(recorded, cwd);
            }
            self.own_messages.push(RecordedMessage {
                bytes: entry.bytes.clone(),
                kind: part,
                prerequisites: needs,
                is_immediate: free,
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
            let met = self.requests.iter().any(|asked| asked.method == method);
            let why = match met {
                true => format!("the recording has no further {}", summary::shorten(method)),
                false => format!("the recording has no {}", summary::shorten(method)),
            };
            return self.refuse_request(&id, why, actions);
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
        let may = |asked: &RecordedRequest| {
            let its = &asked.params["sessionId"];
            let is_of_session = match (its.as_str(), session.as_str()) {
                (Some(its), Some(session)) => {
                    self.names.mapped_name(its).is_none_or(|known| known == session)
                }
                (its, session) => its.is_none() && session.is_none(),
            };
            asked.live.is_none() && asked.method == method && is_of_session
        };
        let open: Vec<usize> =
            self.requests.iter().enumerate().filter(|(_, asked)| may(asked)).map(|(at, _)| at).collect();
        let equal = |at: &&usize| {
            let mut recorded = self.requests[**at].params.clone();
            self.names.apply(&mut recorded);
            recorded == *params
        };
        open.iter().find(equal).or_else(|| open.first()).copied()
    }

    fn refuse_request(&mut self, id: &Value, why: String, actions: &mut Vec<ReplayAction>) {
        let error = json!({"code": NOT_RECORDED, "message": why});
        let answer = json!({"jsonrpc": "2.0", "id": id, "error": error});
        actions.push(ReplayAction::Send(answer.to_string().into_bytes()));
        self.report_divergence(why, actions);
    }

    fn report_divergence(&mut self, why: String, actions: &mut Vec<ReplayAction>) {
        self.has_diverged = true;
        actions.push(ReplayAction::Diverged(why));
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
        let told = |answer: &Value| match answer.get("error") {
            Some(error) => summary::summarise_error(error),
            None => "a result".to_owned(),
        };
        if recorded.get("error").is_some() != message.get("error").is_some() {
            let (now, then) = (told(message), told(&recorded));
            self.report_divergence(
                format!("{method} was answered by {now}, in the recording by {then}"),
                actions,
            );
        }
    }

    /// Sends the messages that are due, in order.
    fn send_due(&mut self, actions: &mut Vec<ReplayAction>) {
        while let Some(mine) = self.own_messages.get(self.next) {
            let is_done = mine.is_sent || mine.is_immediate;
            if !is_done {
                if self.describe_wait(mine).is_some() {
                    return;
                }
                self.send_message(self.next, actions);
            }
            self.next += 1;
        }
    }

    /// Describes what the peer has to send before a message, if anything.
    fn describe_wait(&self, mine: &RecordedMessage) -> Option<String> {
        if let RecordedMessageKind::Answer { to } = &mine.kind
            && self.requests[*to].live.is_none()
        {
            return Some(self.requests[*to].method.clone());
        }
        let Prerequisites {
            requests: asked,
            answers: answered,
            notifications: notified,
            new_notification: stirred,
        } = &mine.prerequisites;
        if let Some(asked) = self.requests[..*asked].iter().find(|asked| asked.live.is_none()) {
            return Some(asked.method.clone());
        }
        if let Some(number) = self.received_answers[..*answered].iter().position(|answered| !answered) {
            let is_it = |mine: &&RecordedMessage| matches!(&mine.kind, RecordedMessageKind::Request { answer: Some((n, _)), .. } if *n == number);
            let method = self.own_messages.iter().find(is_it).map(|mine| self.message_name(mine));
            return Some(format!("the answer to {}", method.unwrap_or_default()));
        }
        let quiet = *stirred && self.notification_count == self.notifications_before_send;
        (quiet || self.notification_count < *notified).then(|| "a notification".to_owned())
    }

    fn send_message(&mut self, at: usize, actions: &mut Vec<ReplayAction>) {
        let mine = &mut self.own_messages[at];
        mine.is_sent = true;
        self.notifications_before_send = self.notification_count;
        let mut message = match serde_json::from_slice::<Value>(&mine.bytes) {
            Ok(message) => message,
            // A line that is not JSON is sent unchanged.
            Err(_) => return actions.push(ReplayAction::Send(mine.bytes.clone())),
        };
        let mut changed = self.names.apply(&mut message);
        match &mine.kind {
            RecordedMessageKind::Request { id, .. } => {
                self.outstanding.insert(id.clone(), at);
            }
            RecordedMessageKind::Answer { to } => {
                let RecordedRequest { method, params, live: real, .. } = &self.requests[*to];
                if let Some(real) = real {
                    changed |= message["id"] != real.id;
                    message["id"] = real.id.clone();
                    if method == "session/request_permission" {
                        changed |=
                            name_mapping::map_option(&mut message["result"]["outcome"], params, &real.params);
                    }
                }
            }
            RecordedMessageKind::Other { .. } => {}
        }
        let bytes = if changed { message.to_string().into_bytes() } else { mine.bytes.clone() };
        actions.push(ReplayAction::Send(bytes));
    }

    fn message_name(&self, mine: &RecordedMessage) -> String {
        match &mine.kind {
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
    let own = if entries.iter().any(|entry| entry.from == role) { role } else { TraceSide::Proxy };
    let mut spoken = entries.iter().filter(|entry| entry.from == own).map(|entry| entry.to);
    let other = if role == TraceSide::Client { TraceSide::Agent } else { TraceSide::Client };
    match (own, spoken.find(|to| *to == other)) {
        (_, Some(other)) => (own, other),
        (TraceSide::Proxy, None) => (own, other),
        (_, None) => (own, TraceSide::Proxy),
    }
}
