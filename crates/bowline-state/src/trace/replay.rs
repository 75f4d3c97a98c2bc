//! Playing one side of a recorded wire to a real peer.
//!
//! The peer is another one than the recorded, so its requests are told by method and session, then by what they carry,
//! then by their order. What the recorded side said comes in its order, once the peer said what came before it: an
//! agent waits for requests, answers and notifications, a client for answers. An answer that the recorded side gave at
//! once is given at once. Ids of requests, sessions and terminals, and the working directory, become those of the peer.

mod fitting;

use std::collections::HashMap;

use serde_json::{Value, json};

use super::{Entry, Side, gist};
use fitting::Fitting;

/// The code of the answer to a request that the recording does not have.
const NOT_RECORDED: i32 = -32603;

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Say this, and a newline.
    Send(Vec<u8>),
    /// Tell the person that the peer does not do what the recorded one did.
    Diverged(String),
}

/// Plays a side of a recording.
#[derive(Debug)]
pub struct Player {
    // How to play: as an agent, or as a client.
    role: Side,
    // Who says what is played, and to whom.
    sides: (Side, Side),
    mine: Vec<Mine>,
    // Invariant: everything before it was sent, or is an answer that waits for nothing but its request.
    next: usize,
    asked: Vec<Asked>,
    // Whether the peer gave the answers of the recording, in the order the recording has them.
    answered: Vec<bool>,
    // What we asked and the peer has not answered: by id, which of `mine`.
    outstanding: HashMap<String, usize>,
    // How many notifications the peer sent, and how many of them before we last said something.
    notified: usize,
    notified_before: usize,
    fitting: Fitting,
    diverged: bool,
}

/// A message of the side that is played.
#[derive(Debug)]
struct Mine {
    bytes: Vec<u8>,
    part: Part,
    needs: Needs,
    // Whether it is an answer that waits for nothing but its request.
    free: bool,
    sent: bool,
}

#[derive(Debug)]
enum Part {
    /// The method, the id, and how the peer answered: which of its answers, and what it said.
    Request { method: String, id: String, answer: Option<(usize, Value)> },
    /// To which of `asked`.
    Answer { to: usize },
    /// A notification, or what is no message at all.
    Said { what: String },
}

/// What the peer has to have said before a message.
#[derive(Debug, Default)]
struct Needs {
    /// So many of its requests.
    asked: usize,
    /// So many answers.
    answered: usize,
    /// So many notifications.
    notified: usize,
    /// A notification since we last said something.
    stirred: bool,
}

/// A request of the recorded peer.
#[derive(Debug)]
struct Asked {
    method: String,
    params: Value,
    // Which of `mine` answers it.
    answer: Option<usize>,
    // The same request of the real peer.
    real: Option<Real>,
}

#[derive(Debug)]
struct Real {
    id: Value,
    params: Value,
}

impl Player {
    /// Takes a recording, and the side of it that is to be played. In place of the recorded working directory a client
    /// names `cwd`, if there is one.
    #[must_use]
    pub fn new(entries: &[Entry], role: Side, cwd: Option<&str>) -> Self {
        let mut player = Self {
            role,
            sides: sides(entries, role),
            mine: Vec::new(),
            next: 0,
            asked: Vec::new(),
            answered: Vec::new(),
            outstanding: HashMap::new(),
            notified: 0,
            notified_before: 0,
            fitting: Fitting::default(),
            diverged: false,
        };
        player.learn(entries, cwd);
        player
    }

    /// Returns how many messages the recording has for this side.
    #[must_use]
    pub fn messages(&self) -> usize {
        self.mine.len()
    }

    /// Returns what is to be said before the peer says anything.
    pub fn begin(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        self.play(&mut actions);
        actions
    }

    /// Hears a line of the peer, without its newline.
    pub fn hear(&mut self, line: &[u8]) -> Vec<Action> {
        let mut actions = Vec::new();
        match serde_json::from_slice::<Value>(line) {
            Ok(Value::Array(batch)) => {
                batch.into_iter().for_each(|message| self.hear_one(message, &mut actions))
            }
            Ok(message) => self.hear_one(message, &mut actions),
            // What a peer writes between its messages is none of ours.
            Err(_) => {}
        }
        self.play(&mut actions);
        actions
    }

    /// Says whether there is nothing more to say or to wait for, but what the peer may still ask: what it was asked is
    /// answered where the recording has an answer.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.mine.iter().all(|mine| mine.sent || mine.free) && self.answered.iter().all(|answered| *answered)
    }

    /// Says whether the peer did something that the recording does not have.
    #[must_use]
    pub fn has_diverged(&self) -> bool {
        self.diverged
    }

    /// Says what was not played, and what it waits for.
    #[must_use]
    pub fn left(&self) -> Option<String> {
        let left = self.mine.iter().filter(|mine| !mine.sent).count();
        let Some(first) = self.mine.iter().find(|mine| !mine.sent) else {
            let open = self.outstanding.values().min().map(|at| self.name(&self.mine[*at]));
            return (!self.is_over()).then(|| format!("there was no answer to {}", open.unwrap_or_default()));
        };
        let messages = if left == 1 { "message was" } else { "messages were" };
        let waits = self.waits_for(first).unwrap_or_else(|| "what is before it".to_owned());
        Some(format!("{left} {messages} not played: the next, {}, waits for {waits}", self.name(first)))
    }

    /// Reads what the recording has for this side, and what the other said before each of it.
    fn learn(&mut self, entries: &[Entry], cwd: Option<&str>) {
        // By id: which of `mine`, which of `asked`, and how many messages of ours there were when it was asked.
        let mut ours: HashMap<String, usize> = HashMap::new();
        let mut theirs: HashMap<String, (usize, usize)> = HashMap::new();
        let (mut answers, mut notes, mut notes_before) = (0, 0, 0);
        let (own, other) = self.sides;
        let is_between = |entry: &&Entry| [(own, other), (other, own)].contains(&(entry.from, entry.to));
        for entry in entries.iter().filter(is_between) {
            let message = serde_json::from_slice::<Value>(&entry.bytes).unwrap_or_default();
            let method = message.get("method").and_then(Value::as_str).map(str::to_owned);
            let id = message.get("id").map(Value::to_string);
            if entry.from != own {
                match (method, id) {
                    (Some(method), Some(id)) => {
                        theirs.insert(id, (self.asked.len(), self.mine.len()));
                        let params = message["params"].clone();
                        self.asked.push(Asked { method, params, answer: None, real: None });
                    }
                    (Some(_), None) => notes += 1,
                    (None, Some(id)) => {
                        if let Some(at) = ours.remove(&id)
                            && let Part::Request { answer, .. } = &mut self.mine[at].part
                        {
                            *answer = Some((answers, message));
                            self.answered.push(false);
                            answers += 1;
                        }
                    }
                    (None, None) => {}
                }
                continue;
            }
            let at_once = |before: usize| before == self.mine.len();
            let (part, free) = match (method, id) {
                (Some(method), Some(id)) => {
                    ours.insert(id.clone(), self.mine.len());
                    (Part::Request { method, id, answer: None }, false)
                }
                (Some(method), None) => (Part::Said { what: method }, false),
                (None, Some(id)) => match theirs.remove(&id) {
                    Some((to, before)) => {
                        self.asked[to].answer = Some(self.mine.len());
                        (Part::Answer { to }, at_once(before) || self.role == Side::Client)
                    }
                    // It answers nothing that was recorded, so it cannot be told when it is due.
                    None => continue,
                },
                (None, None) => {
                    (Part::Said { what: gist::short(&String::from_utf8_lossy(&entry.bytes)) }, false)
                }
            };
            let needs = match (self.role, &part) {
                _ if free => Needs::default(),
                (Side::Client, Part::Said { .. }) => {
                    Needs { answered: answers, stirred: notes > notes_before, ..Needs::default() }
                }
                (Side::Client, _) => Needs { answered: answers, ..Needs::default() },
                (_, Part::Answer { .. }) => Needs { answered: answers, notified: notes, ..Needs::default() },
                _ => Needs { asked: self.asked.len(), answered: answers, notified: notes, stirred: false },
            };
            notes_before = notes;
            if let (Some(cwd), Some(recorded)) = (cwd, message["params"]["cwd"].as_str()) {
                self.fitting.directory(recorded, cwd);
            }
            self.mine.push(Mine { bytes: entry.bytes.clone(), part, needs, free, sent: false });
        }
    }

    fn hear_one(&mut self, message: Value, actions: &mut Vec<Action>) {
        let method = message.get("method").and_then(Value::as_str);
        match (method, message.get("id")) {
            (Some(method), Some(id)) => self.asked(method, id.clone(), &message["params"], actions),
            (Some(_), None) => self.notified += 1,
            (None, Some(id)) => self.answered(&id.to_string(), &message, actions),
            (None, None) => {}
        }
    }

    fn asked(&mut self, method: &str, id: Value, params: &Value, actions: &mut Vec<Action>) {
        let Some(at) = self.recorded(method, params) else {
            let met = self.asked.iter().any(|asked| asked.method == method);
            let why = match met {
                true => format!("the recording has no further {}", gist::short(method)),
                false => format!("the recording has no {}", gist::short(method)),
            };
            return self.refuse(&id, why, actions);
        };
        self.fitting.pair(&self.asked[at].params, params);
        self.asked[at].real = Some(Real { id: id.clone(), params: params.clone() });
        match self.asked[at].answer {
            Some(answer) if self.mine[answer].free => self.send(answer, actions),
            Some(_) => {}
            None => {
                self.refuse(&id, format!("the recording has no answer to {}", gist::short(method)), actions);
            }
        }
    }

    /// Returns which request of the recording is meant: the first that is equal, or the first of its session.
    fn recorded(&self, method: &str, params: &Value) -> Option<usize> {
        let session = &params["sessionId"];
        let may = |asked: &Asked| {
            let its = &asked.params["sessionId"];
            let is_of_session = match (its.as_str(), session.as_str()) {
                (Some(its), Some(session)) => self.fitting.known(its).is_none_or(|known| known == session),
                (its, session) => its.is_none() && session.is_none(),
            };
            asked.real.is_none() && asked.method == method && is_of_session
        };
        let open: Vec<usize> =
            self.asked.iter().enumerate().filter(|(_, asked)| may(asked)).map(|(at, _)| at).collect();
        let equal = |at: &&usize| {
            let mut recorded = self.asked[**at].params.clone();
            self.fitting.fit(&mut recorded);
            recorded == *params
        };
        open.iter().find(equal).or_else(|| open.first()).copied()
    }

    fn refuse(&mut self, id: &Value, why: String, actions: &mut Vec<Action>) {
        let error = json!({"code": NOT_RECORDED, "message": why});
        let answer = json!({"jsonrpc": "2.0", "id": id, "error": error});
        actions.push(Action::Send(answer.to_string().into_bytes()));
        self.diverge(why, actions);
    }

    fn diverge(&mut self, why: String, actions: &mut Vec<Action>) {
        self.diverged = true;
        actions.push(Action::Diverged(why));
    }

    fn answered(&mut self, id: &str, message: &Value, actions: &mut Vec<Action>) {
        let Some(at) = self.outstanding.remove(id) else {
            return self
                .diverge(format!("request {} was answered, and was not made", gist::short(id)), actions);
        };
        let Part::Request { method, answer: Some((number, recorded)), .. } = &self.mine[at].part else {
            return;
        };
        self.answered[*number] = true;
        let (method, recorded) = (method.clone(), recorded.clone());
        self.fitting.pair(&recorded["result"], &message["result"]);
        let told = |answer: &Value| match answer.get("error") {
            Some(error) => gist::error(error),
            None => "a result".to_owned(),
        };
        if recorded.get("error").is_some() != message.get("error").is_some() {
            let (now, then) = (told(message), told(&recorded));
            self.diverge(format!("{method} was answered by {now}, in the recording by {then}"), actions);
        }
    }

    /// Says what is due, in order.
    fn play(&mut self, actions: &mut Vec<Action>) {
        while let Some(mine) = self.mine.get(self.next) {
            let is_done = mine.sent || mine.free;
            if !is_done {
                if self.waits_for(mine).is_some() {
                    return;
                }
                self.send(self.next, actions);
            }
            self.next += 1;
        }
    }

    /// Returns what the peer has to say before a message, if anything.
    fn waits_for(&self, mine: &Mine) -> Option<String> {
        if let Part::Answer { to } = &mine.part
            && self.asked[*to].real.is_none()
        {
            return Some(self.asked[*to].method.clone());
        }
        let Needs { asked, answered, notified, stirred } = &mine.needs;
        if let Some(asked) = self.asked[..*asked].iter().find(|asked| asked.real.is_none()) {
            return Some(asked.method.clone());
        }
        if let Some(number) = self.answered[..*answered].iter().position(|answered| !answered) {
            let is_it = |mine: &&Mine| matches!(&mine.part, Part::Request { answer: Some((n, _)), .. } if *n == number);
            let method = self.mine.iter().find(is_it).map(|mine| self.name(mine));
            return Some(format!("the answer to {}", method.unwrap_or_default()));
        }
        let quiet = *stirred && self.notified == self.notified_before;
        (quiet || self.notified < *notified).then(|| "a notification".to_owned())
    }

    fn send(&mut self, at: usize, actions: &mut Vec<Action>) {
        let mine = &mut self.mine[at];
        mine.sent = true;
        self.notified_before = self.notified;
        let mut message = match serde_json::from_slice::<Value>(&mine.bytes) {
            Ok(message) => message,
            // What was no message then is none now.
            Err(_) => return actions.push(Action::Send(mine.bytes.clone())),
        };
        let mut changed = self.fitting.fit(&mut message);
        match &mine.part {
            Part::Request { id, .. } => {
                self.outstanding.insert(id.clone(), at);
            }
            Part::Answer { to } => {
                let Asked { method, params, real, .. } = &self.asked[*to];
                if let Some(real) = real {
                    changed |= message["id"] != real.id;
                    message["id"] = real.id.clone();
                    if method == "session/request_permission" {
                        changed |= fitting::choice(&mut message["result"]["outcome"], params, &real.params);
                    }
                }
            }
            Part::Said { .. } => {}
        }
        let bytes = if changed { message.to_string().into_bytes() } else { mine.bytes.clone() };
        actions.push(Action::Send(bytes));
    }

    fn name(&self, mine: &Mine) -> String {
        match &mine.part {
            Part::Request { method, .. } | Part::Said { what: method } => gist::short(method),
            Part::Answer { to } => format!("the answer to {}", gist::short(&self.asked[*to].method)),
        }
    }
}

/// Returns whose part is played, and to whom it speaks: a proxy is the agent of a client and the client of an agent, where
/// nobody else is.
fn sides(entries: &[Entry], role: Side) -> (Side, Side) {
    let own = if entries.iter().any(|entry| entry.from == role) { role } else { Side::Proxy };
    let mut spoken = entries.iter().filter(|entry| entry.from == own).map(|entry| entry.to);
    let other = if role == Side::Client { Side::Agent } else { Side::Client };
    match (own, spoken.find(|to| *to == other)) {
        (_, Some(other)) => (own, other),
        (Side::Proxy, None) => (own, other),
        (_, None) => (own, Side::Proxy),
    }
}
