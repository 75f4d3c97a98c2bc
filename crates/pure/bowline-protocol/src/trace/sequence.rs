//! A recorded connection as a sequence of steps: answers matched to requests, their durations, and open requests.

use indexmap::IndexMap;
use serde_json::Value;

use super::{TraceEntry, TraceSide, summary};

/// The kind of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TraceMessageKind {
    /// A request.
    Request {
        /// Its method.
        method: String,
        /// Its id, as JSON text.
        id: String,
    },
    /// A notification.
    Notification {
        /// Its method.
        method: String,
    },
    /// An answer to a request.
    Answer {
        /// The method of the request, if it was recorded.
        method: Option<String>,
        /// The id of the request, as JSON text.
        id: String,
        /// The outcome.
        outcome: AnswerOutcome,
        /// The duration in microseconds, if the request was recorded.
        took_us: Option<u64>,
    },
    /// Not a message of the protocol.
    Other,
}

impl TraceMessageKind {
    /// Returns the method it concerns.
    #[must_use]
    pub fn method(&self) -> Option<&str> {
        match self {
            Self::Request { method, .. } | Self::Notification { method } => Some(method),
            Self::Answer { method, .. } => method.as_deref(),
            Self::Other => None,
        }
    }

    /// Returns its id, as JSON text.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        match self {
            Self::Request { id, .. } | Self::Answer { id, .. } => Some(id),
            Self::Notification { .. } | Self::Other => None,
        }
    }
}

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerOutcome {
    /// A result.
    Result,
    /// An error.
    Error,
}

/// One message, with the context of the earlier ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceStep {
    /// Its kind.
    pub kind: TraceMessageKind,
    /// Its session.
    pub session: Option<String>,
    /// Its tool call.
    pub call: Option<String>,
    /// Its content in a few words, on one line that is safe to show.
    pub summary: String,
}

/// A request that has no answer yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnansweredRequest {
    /// The sender.
    pub from: TraceSide,
    /// The recipient.
    pub to: TraceSide,
    /// Its time, in microseconds since the trace began.
    pub elapsed_us: u64,
    /// Its method.
    pub method: String,
    /// Its id, as JSON text.
    pub id: String,
    /// Its content in a few words.
    pub summary: String,
    pub(super) session: Option<String>,
    pub(super) call: Option<String>,
    pub(super) options: Vec<(String, String)>,
}

/// A tool call, folded from its messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceToolCall {
    /// Its session.
    pub session: Option<String>,
    /// Its id.
    pub id: String,
    /// Its latest title.
    pub title: String,
    /// Its latest status.
    pub status: String,
    /// The times of its first and last message.
    pub first_last_us: (u64, u64),
    /// The number of its messages.
    pub messages: u64,
}

/// Builds the sequence of a recorded connection.
#[derive(Debug, Default)]
pub struct TraceSequence {
    unanswered: IndexMap<(TraceSide, TraceSide, String), UnansweredRequest>,
    calls: IndexMap<(Option<String>, String), TraceToolCall>,
}

impl TraceSequence {
    /// Adds one message.
    pub fn add_entry(&mut self, entry: &TraceEntry) -> TraceStep {
        let Ok(message) = serde_json::from_slice::<Value>(&entry.bytes) else {
            let reason = if entry.bytes.trim_ascii().is_empty() { "an empty line" } else { "no JSON" };
            return other_step(format!(
                "{reason}: {}",
                summary::shorten(&String::from_utf8_lossy(&entry.bytes))
            ));
        };
        let id = message.get("id").map(Value::to_string);
        let step = match (message.get("method").and_then(Value::as_str), id) {
            (Some(method), Some(id)) => self.add_request(entry, method, id, &message["params"]),
            (Some(method), None) => {
                let params = &message["params"];
                let kind = TraceMessageKind::Notification { method: method.to_owned() };
                TraceStep {
                    kind,
                    session: session_id(params),
                    call: tool_call_id(params),
                    summary: summary::summarise_message(method, params),
                }
            }
            (None, Some(id)) if message.get("result").is_some() || message.get("error").is_some() => {
                self.add_answer(entry, id, &message)
            }
            _ => {
                return other_step(format!(
                    "no message of the protocol: {}",
                    summary::shorten(&message.to_string())
                ));
            }
        };
        self.track_call(entry, &step, &message["params"]);
        self.with_call_title(step)
    }

    /// Returns the unanswered requests, in the order they were made.
    pub fn unanswered(&self) -> impl Iterator<Item = &UnansweredRequest> {
        self.unanswered.values()
    }

    /// Returns the tool calls, in the order they were announced.
    pub fn calls(&self) -> impl Iterator<Item = &TraceToolCall> {
        self.calls.values()
    }

    fn add_request(&mut self, entry: &TraceEntry, method: &str, id: String, params: &Value) -> TraceStep {
        let open = UnansweredRequest {
            from: entry.from,
            to: entry.to,
            elapsed_us: entry.elapsed_us,
            method: method.to_owned(),
            id: id.clone(),
            summary: summary::summarise_message(method, params),
            session: session_id(params),
            call: tool_call_id(params),
            options: summary::permission_options(params),
        };
        let (session, call, summary) = (open.session.clone(), open.call.clone(), open.summary.clone());
        self.unanswered.insert((entry.from, entry.to, id.clone()), open);
        TraceStep {
            kind: TraceMessageKind::Request { method: method.to_owned(), id },
            session,
            call,
            summary,
        }
    }

    fn add_answer(&mut self, entry: &TraceEntry, id: String, message: &Value) -> TraceStep {
        let request = self.unanswered.shift_remove(&(entry.to, entry.from, id.clone()));
        let method = request.as_ref().map(|request| request.method.clone());
        let (outcome, summary) = match message.get("error") {
            Some(error) => (AnswerOutcome::Error, summary::summarise_error(error)),
            None => {
                let options = request.as_ref().map_or(&[][..], |request| &request.options);
                let method = method.as_deref().unwrap_or_default();
                (AnswerOutcome::Result, summary::summarise_answer(method, &message["result"], options))
            }
        };
        let took_us = request.as_ref().map(|request| entry.elapsed_us.saturating_sub(request.elapsed_us));
        let (request_session, call) = request.map_or((None, None), |request| (request.session, request.call));
        let session = request_session.or_else(|| session_id(&message["result"]));
        TraceStep { kind: TraceMessageKind::Answer { method, id, outcome, took_us }, session, call, summary }
    }

    /// Replaces the id of a tool call with its title, where a message names only the id.
    fn with_call_title(&self, mut step: TraceStep) -> TraceStep {
        let Some(id) = &step.call else { return step };
        let known = self.calls.get(&(step.session.clone(), id.clone())).filter(|call| !call.title.is_empty());
        if let Some(rest) = step.summary.strip_prefix(&summary::shorten(id))
            && let Some(call) = known
        {
            step.summary = format!("{}{rest}", call.title);
        }
        step
    }

    fn track_call(&mut self, entry: &TraceEntry, step: &TraceStep, params: &Value) {
        let Some(id) = &step.call else { return };
        let call = self.calls.entry((step.session.clone(), id.clone())).or_insert_with(|| TraceToolCall {
            session: step.session.clone(),
            id: id.clone(),
            title: String::new(),
            status: String::new(),
            first_last_us: (entry.elapsed_us, entry.elapsed_us),
            messages: 0,
        });
        call.first_last_us.1 = entry.elapsed_us;
        call.messages += 1;
        let fields = match step.kind.method() {
            Some("session/update") => &params["update"],
            Some("session/request_permission") => &params["toolCall"],
            _ => return,
        };
        if let Some(title) = fields["title"].as_str() {
            call.title = summary::shorten(title);
        }
        if let Some(status) = fields["status"].as_str() {
            call.status = summary::shorten(status);
        }
    }
}

fn other_step(summary: String) -> TraceStep {
    TraceStep { kind: TraceMessageKind::Other, session: None, call: None, summary }
}

/// Returns the session named in params or a result.
fn session_id(params: &Value) -> Option<String> {
    params["sessionId"].as_str().map(str::to_owned)
}

/// Returns the tool call named in params.
fn tool_call_id(params: &Value) -> Option<String> {
    let named = [&params["update"], &params["toolCall"], params];
    named.iter().find_map(|value| value["toolCallId"].as_str()).map(str::to_owned)
}
