//! JSON-RPC messages that the server itself makes, and small changes to those it forwards.

use std::path::{Path, PathBuf};

use bowline_protocol::remote;
use bowline_protocol::schema::v1::RequestId;
use bytes::Bytes;
use memchr::memmem;
use serde_json::{Value, json};

use crate::event::{Event, EventKind};

/// The error code of an unknown session.
pub(crate) const NOT_FOUND: i64 = -32002;
/// The error code of a request that cannot be accepted.
pub(crate) const INVALID_PARAMS: i64 = -32602;
/// The error code of an unknown method.
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
/// The error code of a failure inside of the server or the agent.
pub(crate) const INTERNAL: i64 = -32603;
/// The error code of a server that cannot take more.
pub(crate) const OVERLOADED: i64 = -32001;
/// The longest message of a client that is recorded whole. Pictures in prompts are stored with the updates that show them.
const MAX_RECORDED_BYTES: usize = 64 << 10;
/// The methods whose parameters are recorded. Those of others may be secret.
const RECORDED_METHODS: [&str; 6] = [
    "session/prompt", "session/cancel", "session/set_mode", "session/set_model", "session/set_config_option",
    "$/cancel_request",
];
/// The longest title made from a prompt, in characters.
const MAX_TITLE_CHARS: usize = 80;

/// Returns a response with a result.
pub(crate) fn result(id: &RequestId, result: &Value) -> Bytes {
    json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string().into()
}

/// Returns a response with an error.
pub(crate) fn error(id: &RequestId, code: i64, message: &str) -> Bytes {
    error_value(id, &json!({ "code": code, "message": message }))
}

/// Returns a response with an error that a peer sent.
pub(crate) fn error_value(id: &RequestId, error: &Value) -> Bytes {
    json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string().into()
}

/// Returns a request.
pub(crate) fn request(id: u64, method: &str, params: &Value) -> Bytes {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string().into()
}

/// Returns a notification.
pub(crate) fn notification(method: &str, params: &Value) -> Bytes {
    json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string().into()
}

/// Returns an id as JSON.
pub(crate) fn id_text(id: &RequestId) -> String {
    match id {
        RequestId::Number(number) => number.to_string(),
        RequestId::Null | RequestId::Str(_) => json!(id).to_string(),
    }
}

/// Returns the notification that cancels a request.
pub(crate) fn cancellation(request: &Value) -> Bytes {
    notification("$/cancel_request", &json!({ "requestId": request }))
}

/// Returns a message as one line: a peer may send it with line breaks between its members.
pub(crate) fn one_line(message: Bytes) -> Bytes {
    if memchr::memchr2(b'\n', b'\r', &message).is_none() {
        return message;
    }
    // JSON has no line breaks inside of texts.
    message.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }).collect()
}

/// Returns a line of an agent as it can be sent on: an event stream has no carriage returns inside of a line, and
/// clients accept only UTF-8. Most lines stay as they are.
pub(crate) fn clean_line(line: &Bytes) -> Bytes {
    let line = one_line(line.clone());
    // Much faster than a lossy conversion, which looks at each character.
    if str::from_utf8(&line).is_ok() { line } else { String::from_utf8_lossy(&line).into_owned().into() }
}

/// Returns the answer to a question that no user answered, with the reason, for the audit log.
pub(crate) fn denial(method: &str, params: &Value, why: &str) -> Value {
    let meta = json!({ "bowline": { "unanswered": why } });
    if method != "session/request_permission" {
        return json!({ "action": "cancel", "_meta": meta });
    }
    let options = params["options"].as_array().map_or(&[][..], Vec::as_slice);
    let option = ["reject_once", "reject_always"]
        .iter()
        .find_map(|kind| options.iter().find(|option| option["kind"] == *kind));
    let outcome = match option {
        Some(option) => json!({ "outcome": "selected", "optionId": option["optionId"] }),
        None => json!({ "outcome": "cancelled" }),
    };
    json!({ "outcome": outcome, "_meta": meta })
}

/// Returns an answer to a question with the name of the user who gave it, if it is another one than the session's. What
/// the client itself says about that is removed.
pub(crate) fn note_answerer(answer: &Bytes, by: Option<&String>) -> Bytes {
    if by.is_none() && memmem::find(answer, b"_meta").is_none() && !answer.contains(&b'\\') {
        return answer.clone();
    }
    let Ok(mut message) = serde_json::from_slice::<Value>(answer) else { return answer.clone() };
    let Some(result) = message["result"].as_object_mut() else { return answer.clone() };
    let meta = result.entry("_meta").or_insert_with(|| json!({}));
    if !meta.is_object() {
        *meta = json!({});
    }
    if !meta["bowline"].is_object() {
        meta["bowline"] = json!({});
    }
    if let Some(notes) = meta["bowline"].as_object_mut() {
        notes.remove("unanswered");
        notes.remove("answeredBy");
        notes.extend(by.map(|name| ("answeredBy".to_owned(), json!(name))));
    }
    message.to_string().into()
}

/// Returns what is recorded of a client's request or notification: without its parameters if they are long, or may be
/// secret.
pub(crate) fn record_of(message: &[u8], method: &str, id: Option<&RequestId>) -> Bytes {
    if message.len() <= MAX_RECORDED_BYTES && RECORDED_METHODS.contains(&method) {
        return Bytes::copy_from_slice(message);
    }
    let mut kept = json!({ "jsonrpc": "2.0", "method": method });
    if let Some(id) = id {
        kept["id"] = json!(id);
    }
    kept.to_string().into()
}

/// Returns what is recorded of a client's answer to a question: the decision about a permission, but not what a user filled
/// in.
pub(crate) fn record_of_answer(answer: &[u8], method: &str) -> Bytes {
    let is_short = answer.len() <= MAX_RECORDED_BYTES;
    if is_short && method == "session/request_permission" {
        return Bytes::copy_from_slice(answer);
    }
    let message: Value = serde_json::from_slice(answer).unwrap_or_default();
    let mut kept = json!({ "jsonrpc": "2.0", "id": message["id"] });
    match message.get("error") {
        Some(error) => kept["error"] = json!({ "code": error["code"] }),
        None => {
            kept["result"] = json!({ "action": message["result"]["action"].as_str().filter(|_| is_short) })
        }
    }
    kept.to_string().into()
}

/// Returns the updates that show a prompt to the other clients of a session.
pub(crate) fn prompt_updates(session: &str, params: &Value) -> Vec<Bytes> {
    let blocks = params["prompt"].as_array().map_or(&[][..], Vec::as_slice);
    let update = |content| {
        let update = json!({ "sessionUpdate": "user_message_chunk", "content": content });
        notification("session/update", &json!({ "sessionId": session, "update": update }))
    };
    blocks.iter().map(update).collect()
}

/// An event with which a fork of a session begins.
#[derive(Debug)]
pub(crate) struct InheritedEvent {
    pub(crate) kind: EventKind,
    method: &'static str,
    // Its params without the session, as the rest of a JSON object.
    params: String,
}

impl InheritedEvent {
    /// Returns an event for a fork of its session; `None` if forks do not have it.
    pub(crate) fn from_event(event: &Event) -> Option<Self> {
        let (kind, method) = match event.kind {
            EventKind::Update => (event.kind, "session/update"),
            EventKind::TurnEnd => (event.kind, remote::TURN_ENDED_METHOD),
            _ => return None,
        };
        let mut message: Value = serde_json::from_slice(&event.body).ok()?;
        let params = message["params"].as_object_mut()?;
        params.remove("sessionId");
        let rest = Value::Object(std::mem::take(params)).to_string().split_off(1);
        // Without anything else there is no comma after the session.
        (rest != "}").then_some(Self { kind, method, params: rest })
    }

    /// Returns how many bytes it takes, about.
    pub(crate) fn size(&self) -> usize {
        self.params.len()
    }

    /// Returns its message in the fork.
    pub(crate) fn message(&self, session: &str) -> Bytes {
        let (session, Self { method, params, .. }) = (json!(session), self);
        format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{{"sessionId":{session},{params}}}"#).into()
    }
}

/// Returns a title made from a prompt: its first line of text, shortened.
pub(crate) fn title_of_prompt(params: &Value) -> Option<String> {
    let blocks = params["prompt"].as_array()?;
    let text = blocks.iter().find_map(|block| block["text"].as_str())?;
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    let mut title: String = line.chars().take(MAX_TITLE_CHARS).collect();
    if line.chars().count() > MAX_TITLE_CHARS {
        title.push('…');
    }
    Some(title)
}

/// Applies an update of the agent to what a client is told when it opens the session. Returns whether that changed it.
pub(crate) fn apply_update(setup: &mut Value, update: &Value) -> bool {
    let target = match update["sessionUpdate"].as_str() {
        Some("current_mode_update") => setup
            .get_mut("modes")
            .and_then(|modes| modes.get_mut("currentModeId"))
            .zip(update.get("currentModeId")),
        Some("config_option_update") => setup.get_mut("configOptions").zip(update.get("configOptions")),
        _ => None,
    };
    set_if_different(target)
}

/// Applies a client's successful request to what a client is told when it opens the session. Returns whether that
/// changed it.
pub(crate) fn apply_request(setup: &mut Value, method: &str, params: &Value, result: &Value) -> bool {
    let target = match method {
        "session/set_mode" => {
            setup.get_mut("modes").and_then(|modes| modes.get_mut("currentModeId")).zip(params.get("modeId"))
        }
        "session/set_model" => setup
            .get_mut("models")
            .and_then(|models| models.get_mut("currentModelId"))
            .zip(params.get("modelId")),
        "session/set_config_option" => setup.get_mut("configOptions").zip(result.get("configOptions")),
        _ => None,
    };
    set_if_different(target)
}

fn set_if_different(target: Option<(&mut Value, &Value)>) -> bool {
    match target {
        Some((old, new)) if old != new => {
            new.clone_into(old);
            true
        }
        _ => false,
    }
}

/// Takes the name of the agent that a new session asks for out of its parameters: it is for this server.
pub(crate) fn take_agent(params: &mut Value) -> Option<String> {
    let agent = params.pointer_mut("/_meta/bowline")?.as_object_mut()?.remove("agent")?;
    agent.as_str().filter(|name| !name.is_empty()).map(str::to_owned)
}

/// Why a session's directory is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DirectoryError {
    #[error("cwd must be an absolute path on the server")]
    NotAbsolute,
    #[error("the server cannot use the directory {0}: {1}")]
    Unusable(String, std::io::Error),
    #[error("the directory {0} is outside of what this server offers: {1}")]
    Outside(String, String),
}

/// Checks that a directory exists and lies below a root, links resolved.
pub(crate) fn check_directory(cwd: &str, roots: &[PathBuf]) -> Result<PathBuf, DirectoryError> {
    if !Path::new(cwd).is_absolute() {
        return Err(DirectoryError::NotAbsolute);
    }
    let outside = || {
        let roots: Vec<_> = roots.iter().map(|root| root.display().to_string()).collect();
        DirectoryError::Outside(cwd.to_owned(), roots.join(", "))
    };
    let resolved = match Path::new(cwd).canonicalize() {
        Ok(resolved) => resolved,
        // What exists outside is not revealed.
        Err(_) if !roots.iter().any(|root| Path::new(cwd).starts_with(root)) => return Err(outside()),
        Err(error) => return Err(DirectoryError::Unusable(cwd.to_owned(), error)),
    };
    if roots.iter().any(|root| resolved.starts_with(root)) { Ok(resolved) } else { Err(outside()) }
}

#[cfg(test)]
mod tests;
