//! An entry as a line has it: the order of the fields, what is redacted, where texts are cut.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::{Action, By, Decision, Entry, MAX_ENV_NAMES, MAX_NAME_BYTES, MAX_TEXT_BYTES, Record, Subject};
use crate::changes::{ContentHash, Moment};
use crate::redaction::redact;

const CUT: &str = "…[cut]";
const USUAL_BYTES: usize = 768;

/// The fields of a line but its own hash, in their order.
#[derive(Debug, Serialize, Deserialize)]
struct Wire<'a> {
    seq: u64,
    #[serde(borrow)]
    prev: Cow<'a, str>,
    at: i64,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    session: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    turn: Option<u64>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    call: Option<Cow<'a, str>>,
    #[serde(borrow)]
    operation: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    asked: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    resolved: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    command: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    cwd: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    env: Vec<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    url: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    text: Option<Cow<'a, str>>,
    #[serde(borrow)]
    decision: Cow<'a, str>,
    #[serde(borrow)]
    by: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    reason: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    latency_us: Option<u64>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    before: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    after: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    exit: Option<Cow<'a, str>>,
}

/// Returns the line of an entry up to its own hash: an object that is not closed.
pub(super) fn body(seq: u64, prev: &ContentHash, entry: &Entry) -> String {
    let mut wire = Wire {
        seq,
        prev: prev.to_string().into(),
        at: entry.at.0,
        session: entry.session.as_deref().map(|text| brief(text)),
        turn: entry.turn,
        call: entry.call.as_deref().map(|text| brief(text)),
        operation: brief(entry.action.word()),
        asked: None,
        resolved: None,
        command: None,
        cwd: None,
        env: Vec::new(),
        url: None,
        text: None,
        decision: brief(entry.decision.word()),
        by: by(&entry.by),
        reason: entry.reason.as_deref().map(safe),
        latency_us: entry.latency_us,
        before: entry.before.map(|hash| hash.to_string().into()),
        after: entry.after.map(|hash| hash.to_string().into()),
        bytes: entry.bytes,
        exit: entry.exit.as_deref().map(|text| brief(text)),
    };
    match &entry.subject {
        Subject::None => {}
        Subject::Path { asked, resolved } => {
            wire.asked = Some(cut(asked.into()));
            wire.resolved = resolved.as_deref().map(|text| cut(text.into()));
        }
        Subject::Command { line, cwd, env } => {
            wire.command = Some(safe(line));
            wire.cwd = Some(cut(cwd.into()));
            wire.env = env.iter().take(MAX_ENV_NAMES).map(|name| brief(name)).collect();
            if env.len() > MAX_ENV_NAMES {
                wire.env.push(format!("…[{} more]", env.len() - MAX_ENV_NAMES).into());
            }
        }
        Subject::Url(url) => wire.url = Some(safe(url)),
        Subject::Text(text) => wire.text = Some(safe(text)),
    }
    // Room for the hash that follows, too: most lines are shorter than this.
    let mut line = Vec::with_capacity(USUAL_BYTES);
    // Numbers and texts cannot fail to be written; an empty line would be found by whoever verifies.
    serde_json::to_writer(&mut line, &wire).ok();
    line.pop();
    String::from_utf8(line).unwrap_or_default()
}

pub(super) fn read(line: &[u8]) -> Option<Record> {
    let wire: Wire<'_> = serde_json::from_slice(line).ok()?;
    let own = |text: Option<Cow<'_, str>>| text.map(Cow::into_owned);
    let hash = |text: Option<Cow<'_, str>>| text.and_then(|text| text.parse().ok());
    let subject = if let Some(line) = wire.command {
        let env = wire.env.into_iter().map(Cow::into_owned).collect();
        Subject::Command { line: line.into_owned(), cwd: own(wire.cwd).unwrap_or_default(), env }
    } else if let Some(asked) = wire.asked {
        Subject::Path { asked: asked.into_owned(), resolved: own(wire.resolved) }
    } else if let Some(url) = wire.url {
        Subject::Url(url.into_owned())
    } else if let Some(text) = wire.text {
        Subject::Text(text.into_owned())
    } else {
        Subject::None
    };
    let entry = Entry {
        at: Moment(wire.at),
        session: own(wire.session),
        turn: wire.turn,
        call: own(wire.call),
        action: Action::from(&*wire.operation),
        subject,
        decision: Decision::from(&*wire.decision),
        by: By::read(&wire.by),
        reason: own(wire.reason),
        latency_us: wire.latency_us,
        before: hash(wire.before),
        after: hash(wire.after),
        bytes: wire.bytes,
        exit: own(wire.exit),
    };
    Some(Record { seq: wire.seq, entry })
}

/// Returns who decided. Only the texts of rules, and words that are not known, may have a secret in them.
fn by(by: &By) -> Cow<'_, str> {
    match by {
        By::Rule(_) | By::Other(_) => safe(&by.written()).into_owned().into(),
        By::Preset(_) | By::Person | By::User | By::Client | By::Grant | By::Nobody => cut(by.written()),
    }
}

/// Returns a text without its secrets, cut. The secrets go first: half a secret does not look like one.
fn safe(text: &str) -> Cow<'_, str> {
    cut(redact(text))
}

fn cut(text: Cow<'_, str>) -> Cow<'_, str> {
    within(text, MAX_TEXT_BYTES)
}

/// Returns a name, cut earlier than a text, so that many long ones do not make a line too long.
fn brief(name: &str) -> Cow<'_, str> {
    within(name.into(), MAX_NAME_BYTES)
}

fn within(text: Cow<'_, str>, limit: usize) -> Cow<'_, str> {
    if text.len() <= limit {
        return text;
    }
    let end = text.floor_char_boundary(limit - CUT.len());
    format!("{}{CUT}", &text[..end]).into()
}
