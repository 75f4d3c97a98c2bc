//! A recorded wire as one self-contained HTML page.
//!
//! The recording is embedded as data, never as markup; the page's script shows it as text, and the page's content
//! security policy allows no other script and no connection.

use std::fmt::Write as _;

use bowline_protocol::trace::{
    AnswerOutcome, TraceEntry, TraceGap, TraceMessageKind, TraceSequence, TraceStep,
};
use bowline_text::hash::ContentHash;
use serde_json::{Value, json};

const FRAME: &str = include_str!("page/frame.html");
const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = include_str!("page/script.js");

/// The builder of a page.
#[derive(Debug, Default)]
pub(super) struct HtmlPage {
    rows: String,
}

impl HtmlPage {
    /// Adds a message.
    pub(super) fn add(&mut self, entry: &TraceEntry, step: &TraceStep) {
        let (kind, took) = match &step.kind {
            TraceMessageKind::Request { .. } => ("request", None),
            TraceMessageKind::Notification { .. } => ("notification", None),
            TraceMessageKind::Answer { outcome: AnswerOutcome::Result, took_us, .. } => ("answer", *took_us),
            TraceMessageKind::Answer { outcome: AnswerOutcome::Error, took_us, .. } => ("error", *took_us),
            TraceMessageKind::Other => ("other", None),
        };
        self.push(&json!({
            "us": entry.elapsed_us,
            "from": entry.from.as_str(),
            "to": entry.to.as_str(),
            "kind": kind,
            "method": step.kind.method(),
            "id": step.kind.id(),
            "session": step.session,
            "call": step.call,
            "gist": step.summary,
            "took": took,
            "raw": String::from_utf8_lossy(&entry.bytes),
        }));
    }

    /// Adds a gap.
    pub(super) fn add_gap(&mut self, gap: TraceGap) {
        self.push(&json!({"kind": "lost", "gist": super::file::describe_gap(gap)}));
    }

    /// Returns the page.
    pub(super) fn finish(self, name: &str, began: Option<i64>, sequence: &TraceSequence) -> String {
        let calls: Vec<Value> = sequence
            .calls()
            .map(|call| {
                json!({
                    "session": call.session,
                    "id": call.id,
                    "title": call.title,
                    "status": call.status,
                    "first": call.first_last_us.0,
                    "last": call.first_last_us.1,
                    "messages": call.messages,
                })
            })
            .collect();
        let open: Vec<Value> = sequence
            .unanswered()
            .map(|open| json!({"from": open.from.as_str(), "method": open.method, "id": open.id}))
            .collect();
        let about = json!({"name": name, "began": began, "calls": calls, "open": open});
        let data = format!("{{\"about\":{},\"rows\":[{}]}}", escape_json(&about.to_string()), self.rows);
        // No message can contain the nonce: it is a hash of all messages.
        let nonce = ContentHash::digest(data.as_bytes()).to_string();
        let parts = [("NONCE", nonce.as_str()), ("STYLE", STYLE), ("SCRIPT", SCRIPT), ("DATA", &data)];
        fill_template(FRAME, &parts)
    }

    fn push(&mut self, row: &Value) {
        let separator = if self.rows.is_empty() { "" } else { ",\n" };
        // Writing to a string cannot fail.
        _ = write!(self.rows, "{separator}{}", escape_json(&row.to_string()));
    }
}

/// Escapes JSON so that nothing in it ends a script or begins markup.
fn escape_json(json: &str) -> String {
    let mut text = String::with_capacity(json.len() + json.len() / 16);
    for character in json.chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => _ = write!(text, "\\u{:04x}", u32::from(character)),
            other => text.push(other),
        }
    }
    text
}

/// Replaces each name between `{{` and `}}` by its part. Inserted text is not expanded again.
fn fill_template(frame: &str, parts: &[(&str, &str)]) -> String {
    let mut page =
        String::with_capacity(parts.iter().map(|(_, part)| part.len()).sum::<usize>() + frame.len());
    let mut rest = frame;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").unwrap_or((after, ""));
        page += before;
        page += parts.iter().find(|(key, _)| *key == name).map_or("", |(_, part)| part);
        rest = after;
    }
    page + rest
}

#[cfg(test)]
mod tests;
