//! A recorded wire as one HTML page that needs nothing else.
//!
//! What was recorded is in the page as data, never as markup; the page's script shows it as text, and the page's policy
//! allows no other script and no connection.

use std::fmt::Write as _;

use bowline_state::changes::ContentHash;
use bowline_state::trace::{Entry, Gap, Kind, Outcome, Sequence, Step};
use serde_json::{Value, json};

const FRAME: &str = include_str!("page/frame.html");
const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = include_str!("page/script.js");

/// A page that is being made.
#[derive(Debug, Default)]
pub(super) struct Page {
    rows: String,
}

impl Page {
    /// Adds a message.
    pub(super) fn add(&mut self, entry: &Entry, step: &Step) {
        let (kind, took) = match &step.kind {
            Kind::Request { .. } => ("request", None),
            Kind::Notification { .. } => ("notification", None),
            Kind::Answer { outcome: Outcome::Done, took_us, .. } => ("answer", *took_us),
            Kind::Answer { outcome: Outcome::Failed, took_us, .. } => ("error", *took_us),
            Kind::Other => ("other", None),
        };
        self.push(&json!({
            "us": entry.us,
            "from": entry.from.word(),
            "to": entry.to.word(),
            "kind": kind,
            "method": step.kind.method(),
            "id": step.kind.id(),
            "session": step.session,
            "call": step.call,
            "gist": step.gist,
            "took": took,
            "raw": String::from_utf8_lossy(&entry.bytes),
        }));
    }

    /// Adds what is missing in a place.
    pub(super) fn lost(&mut self, gap: Gap) {
        self.push(&json!({"kind": "lost", "gist": super::file::lost(gap)}));
    }

    /// Returns the page.
    pub(super) fn finish(self, name: &str, began: Option<i64>, sequence: &Sequence) -> String {
        let calls: Vec<Value> = sequence
            .calls()
            .map(|call| {
                json!({
                    "session": call.session,
                    "id": call.id,
                    "title": call.title,
                    "status": call.status,
                    "first": call.us.0,
                    "last": call.us.1,
                    "messages": call.messages,
                })
            })
            .collect();
        let open: Vec<Value> = sequence
            .open()
            .map(|open| json!({"from": open.from.word(), "method": open.method, "id": open.id}))
            .collect();
        let about = json!({"name": name, "began": began, "calls": calls, "open": open});
        let data = format!("{{\"about\":{},\"rows\":[{}]}}", inert(&about.to_string()), self.rows);
        // Nobody can write it into a message: it follows from all of them.
        let nonce = ContentHash::of(data.as_bytes()).to_string();
        let parts = [("NONCE", nonce.as_str()), ("STYLE", STYLE), ("SCRIPT", SCRIPT), ("DATA", &data)];
        filled(FRAME, &parts)
    }

    fn push(&mut self, row: &Value) {
        let comma = if self.rows.is_empty() { "" } else { ",\n" };
        // Writing to a string cannot fail.
        _ = write!(self.rows, "{comma}{}", inert(&row.to_string()));
    }
}

/// Returns JSON that means the same and in which nothing ends a script or begins markup.
fn inert(json: &str) -> String {
    let mut text = String::with_capacity(json.len() + json.len() / 16);
    for character in json.chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => _ = write!(text, "\\u{:04x}", u32::from(character)),
            other => text.push(other),
        }
    }
    text
}

/// Puts each part in place of its name, which stands between `{{` and `}}`. What is put in is not looked at again.
fn filled(frame: &str, parts: &[(&str, &str)]) -> String {
    let mut page =
        String::with_capacity(parts.iter().map(|(_, part)| part.len()).sum::<usize>() + frame.len());
    let mut rest = frame;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").unwrap_or((after, ""));
        page += before;
        page += parts.iter().find(|(known, _)| *known == name).map_or("", |(_, part)| part);
        rest = after;
    }
    page + rest
}

#[cfg(test)]
mod tests;
