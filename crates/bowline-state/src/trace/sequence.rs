//! A recorded wire as a sequence: which answer belongs to which request, how long it took, and what is still open.

use indexmap::IndexMap;
use serde_json::Value;

use super::{Entry, Side, gist};

/// What a message is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Wants an answer.
    Request {
        /// What is asked for.
        method: String,
        /// Its id, as JSON has it.
        id: String,
    },
    /// Wants none.
    Notification {
        /// What is told.
        method: String,
    },
    /// Answers a request.
    Answer {
        /// The method of the request, if that was recorded.
        method: Option<String>,
        /// The id of the request, as JSON has it.
        id: String,
        /// How it was answered.
        outcome: Outcome,
        /// How long that took in microseconds, if the request was recorded.
        took_us: Option<u64>,
    },
    /// No message of the protocol.
    Other,
}

impl Kind {
    /// Returns the method that it is about.
    #[must_use]
    pub fn method(&self) -> Option<&str> {
        match self {
            Self::Request { method, .. } | Self::Notification { method } => Some(method),
            Self::Answer { method, .. } => method.as_deref(),
            Self::Other => None,
        }
    }

    /// Returns its id, as JSON has it.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        match self {
            Self::Request { id, .. } | Self::Answer { id, .. } => Some(id),
            Self::Notification { .. } | Self::Other => None,
        }
    }
}

/// How a request was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// With a result.
    Done,
    /// With an error.
    Failed,
}

/// One message, with what is known of it from those before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What it is.
    pub kind: Kind,
    /// The session that it belongs to.
    pub session: Option<String>,
    /// The tool call that it belongs to.
    pub call: Option<String>,
    /// What it says, in a few words on one line that is safe to show.
    pub gist: String,
}

/// A request that has no answer yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    /// Who asked.
    pub from: Side,
    /// Who was asked.
    pub to: Side,
    /// When, in microseconds since the trace began.
    pub us: u64,
    /// Its method.
    pub method: String,
    /// Its id, as JSON has it.
    pub id: String,
    /// What it said.
    pub gist: String,
    pub(super) session: Option<String>,
    pub(super) call: Option<String>,
    pub(super) options: Vec<(String, String)>,
}

/// A tool call, folded from what was said of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Its session.
    pub session: Option<String>,
    /// Its id.
    pub id: String,
    /// What it is called, as it was said last.
    pub title: String,
    /// How it stands, as it was said last.
    pub status: String,
    /// When it was first and last spoken of.
    pub us: (u64, u64),
    /// In how many messages.
    pub messages: u64,
}

/// Follows a recorded wire.
#[derive(Debug, Default)]
pub struct Sequence {
    open: IndexMap<(Side, Side, String), Open>,
    calls: IndexMap<(Option<String>, String), Call>,
}

impl Sequence {
    /// Follows one message.
    pub fn step(&mut self, entry: &Entry) -> Step {
        let Ok(message) = serde_json::from_slice::<Value>(&entry.bytes) else {
            let why = if entry.bytes.trim_ascii().is_empty() { "an empty line" } else { "no JSON" };
            return other(format!("{why}: {}", gist::short(&String::from_utf8_lossy(&entry.bytes))));
        };
        let id = message.get("id").map(Value::to_string);
        let step = match (message.get("method").and_then(Value::as_str), id) {
            (Some(method), Some(id)) => self.request(entry, method, id, &message["params"]),
            (Some(method), None) => {
                let params = &message["params"];
                let kind = Kind::Notification { method: method.to_owned() };
                Step { kind, session: session(params), call: call(params), gist: gist::said(method, params) }
            }
            (None, Some(id)) if message.get("result").is_some() || message.get("error").is_some() => {
                self.answer(entry, id, &message)
            }
            _ => return other(format!("no message of the protocol: {}", gist::short(&message.to_string()))),
        };
        self.follow_call(entry, &step, &message["params"]);
        self.named(step)
    }

    /// Returns the requests that were not answered, in the order they were made.
    pub fn open(&self) -> impl Iterator<Item = &Open> {
        self.open.values()
    }

    /// Returns the tool calls, in the order they were announced.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.calls.values()
    }

    fn request(&mut self, entry: &Entry, method: &str, id: String, params: &Value) -> Step {
        let open = Open {
            from: entry.from,
            to: entry.to,
            us: entry.us,
            method: method.to_owned(),
            id: id.clone(),
            gist: gist::said(method, params),
            session: session(params),
            call: call(params),
            options: gist::options(params),
        };
        let (session, call, gist) = (open.session.clone(), open.call.clone(), open.gist.clone());
        self.open.insert((entry.from, entry.to, id.clone()), open);
        Step { kind: Kind::Request { method: method.to_owned(), id }, session, call, gist }
    }

    fn answer(&mut self, entry: &Entry, id: String, message: &Value) -> Step {
        let asked = self.open.shift_remove(&(entry.to, entry.from, id.clone()));
        let method = asked.as_ref().map(|asked| asked.method.clone());
        let (outcome, gist) = match message.get("error") {
            Some(error) => (Outcome::Failed, gist::error(error)),
            None => {
                let options = asked.as_ref().map_or(&[][..], |asked| &asked.options);
                let method = method.as_deref().unwrap_or_default();
                (Outcome::Done, gist::answered(method, &message["result"], options))
            }
        };
        let took_us = asked.as_ref().map(|asked| entry.us.saturating_sub(asked.us));
        let (its_session, call) = asked.map_or((None, None), |asked| (asked.session, asked.call));
        let session = its_session.or_else(|| session(&message["result"]));
        Step { kind: Kind::Answer { method, id, outcome, took_us }, session, call, gist }
    }

    /// Puts the title of a tool call in place of its id, where a message names only that.
    fn named(&self, mut step: Step) -> Step {
        let Some(id) = &step.call else { return step };
        let known = self.calls.get(&(step.session.clone(), id.clone())).filter(|call| !call.title.is_empty());
        if let Some(rest) = step.gist.strip_prefix(&gist::short(id))
            && let Some(call) = known
        {
            step.gist = format!("{}{rest}", call.title);
        }
        step
    }

    fn follow_call(&mut self, entry: &Entry, step: &Step, params: &Value) {
        let Some(id) = &step.call else { return };
        let call = self.calls.entry((step.session.clone(), id.clone())).or_insert_with(|| Call {
            session: step.session.clone(),
            id: id.clone(),
            title: String::new(),
            status: String::new(),
            us: (entry.us, entry.us),
            messages: 0,
        });
        call.us.1 = entry.us;
        call.messages += 1;
        let of = match step.kind.method() {
            Some("session/update") => &params["update"],
            Some("session/request_permission") => &params["toolCall"],
            _ => return,
        };
        if let Some(title) = of["title"].as_str() {
            call.title = gist::short(title);
        }
        if let Some(status) = of["status"].as_str() {
            call.status = gist::short(status);
        }
    }
}

fn other(gist: String) -> Step {
    Step { kind: Kind::Other, session: None, call: None, gist }
}

/// Returns the session that params or a result name.
fn session(params: &Value) -> Option<String> {
    params["sessionId"].as_str().map(str::to_owned)
}

/// Returns the tool call that params are about.
fn call(params: &Value) -> Option<String> {
    let named = [&params["update"], &params["toolCall"], params];
    named.iter().find_map(|value| value["toolCallId"].as_str()).map(str::to_owned)
}
