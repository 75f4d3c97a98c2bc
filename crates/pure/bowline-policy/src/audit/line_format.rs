//! The line format of an entry: field order, redaction and truncation.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::{
    AuditAction, AuditDecision, AuditEntry, AuditRecord, AuditSubject, DecisionSource, MAX_ENV_NAMES,
    MAX_NAME_BYTES, MAX_TEXT_BYTES,
};
use crate::redaction::redact;
use bowline_text::hash::ContentHash;
use bowline_text::time::Timestamp;

const TRUNCATION_MARK: &str = "…[cut]";
const TYPICAL_LINE_BYTES: usize = 768;

/// The fields of a line except its own hash, in order.
#[derive(Debug, Serialize, Deserialize)]
struct AuditLine<'a> {
    seq: u64,
    #[serde(borrow)]
    prev: Cow<'a, str>,
    at: i64,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    principal: Option<Cow<'a, str>>,
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

/// Returns the line of an entry up to its own hash: an unclosed JSON object.
pub(super) fn encode_body(seq: u64, prev: &ContentHash, entry: &AuditEntry) -> String {
    let mut wire = AuditLine {
        seq,
        prev: prev.to_string().into(),
        at: entry.at.0,
        principal: entry.principal.as_deref().map(|text| truncate_name(text)),
        session: entry.session.as_deref().map(|text| truncate_name(text)),
        turn: entry.turn,
        call: entry.call.as_deref().map(|text| truncate_name(text)),
        operation: truncate_name(entry.action.as_str()),
        asked: None,
        resolved: None,
        command: None,
        cwd: None,
        env: Vec::new(),
        url: None,
        text: None,
        decision: truncate_name(entry.decision.as_str()),
        by: encode_decision_source(&entry.decided_by),
        reason: entry.reason.as_deref().map(redact_and_truncate),
        latency_us: entry.latency_us,
        before: entry.before.map(|hash| hash.to_string().into()),
        after: entry.after.map(|hash| hash.to_string().into()),
        bytes: entry.bytes,
        exit: entry.exit.as_deref().map(|text| truncate_name(text)),
    };
    match &entry.subject {
        AuditSubject::None => {}
        AuditSubject::Path { requested, resolved } => {
            wire.asked = Some(truncate_text(requested.into()));
            wire.resolved = resolved.as_deref().map(|text| truncate_text(text.into()));
        }
        AuditSubject::Command { line, cwd, env } => {
            wire.command = Some(redact_and_truncate(line));
            wire.cwd = Some(truncate_text(cwd.into()));
            wire.env = env.iter().take(MAX_ENV_NAMES).map(|name| truncate_name(name)).collect();
            if env.len() > MAX_ENV_NAMES {
                wire.env.push(format!("…[{} more]", env.len() - MAX_ENV_NAMES).into());
            }
        }
        AuditSubject::Url(url) => wire.url = Some(redact_and_truncate(url)),
        AuditSubject::Text(text) => wire.text = Some(redact_and_truncate(text)),
    }
    // Includes room for the hash; most lines are shorter than this.
    let mut line = Vec::with_capacity(TYPICAL_LINE_BYTES);
    // Serialising numbers and texts cannot fail; verification would report an empty line.
    serde_json::to_writer(&mut line, &wire).ok();
    line.pop();
    String::from_utf8(line).unwrap_or_default()
}

pub(super) fn decode_line(line: &[u8]) -> Option<AuditRecord> {
    let wire: AuditLine<'_> = serde_json::from_slice(line).ok()?;
    let owned = |text: Option<Cow<'_, str>>| text.map(Cow::into_owned);
    let hash = |text: Option<Cow<'_, str>>| text.and_then(|text| text.parse().ok());
    let subject = if let Some(line) = wire.command {
        let env = wire.env.into_iter().map(Cow::into_owned).collect();
        AuditSubject::Command { line: line.into_owned(), cwd: owned(wire.cwd).unwrap_or_default(), env }
    } else if let Some(requested) = wire.asked {
        AuditSubject::Path { requested: requested.into_owned(), resolved: owned(wire.resolved) }
    } else if let Some(url) = wire.url {
        AuditSubject::Url(url.into_owned())
    } else if let Some(text) = wire.text {
        AuditSubject::Text(text.into_owned())
    } else {
        AuditSubject::None
    };
    let entry = AuditEntry {
        at: Timestamp(wire.at),
        principal: owned(wire.principal),
        session: owned(wire.session),
        turn: wire.turn,
        call: owned(wire.call),
        action: AuditAction::from(&*wire.operation),
        subject,
        decision: AuditDecision::from(&*wire.decision),
        decided_by: DecisionSource::parse(&wire.by),
        reason: owned(wire.reason),
        latency_us: wire.latency_us,
        before: hash(wire.before),
        after: hash(wire.after),
        bytes: wire.bytes,
        exit: owned(wire.exit),
    };
    Some(AuditRecord { seq: wire.seq, entry })
}

/// Returns the encoded source of a decision. Only rule texts, names and unknown words may contain a secret.
fn encode_decision_source(source: &DecisionSource) -> Cow<'_, str> {
    match source {
        DecisionSource::Rule(_) | DecisionSource::Principal(_) | DecisionSource::Other(_) => {
            redact_and_truncate(&source.to_text()).into_owned().into()
        }
        DecisionSource::Preset(_)
        | DecisionSource::Person
        | DecisionSource::User
        | DecisionSource::Client
        | DecisionSource::Grant
        | DecisionSource::NotDecided => truncate_text(source.to_text()),
    }
}

/// Returns a redacted and truncated text. Redaction comes first: half a secret does not look like one.
fn redact_and_truncate(text: &str) -> Cow<'_, str> {
    truncate_text(redact(text))
}

fn truncate_text(text: Cow<'_, str>) -> Cow<'_, str> {
    truncate(text, MAX_TEXT_BYTES)
}

/// Returns a truncated name. The limit is lower than for texts, so that many long names do not make a line too long.
fn truncate_name(name: &str) -> Cow<'_, str> {
    truncate(name.into(), MAX_NAME_BYTES)
}

fn truncate(text: Cow<'_, str>, limit: usize) -> Cow<'_, str> {
    if text.len() <= limit {
        return text;
    }
    let end = text.floor_char_boundary(limit - TRUNCATION_MARK.len());
    format!("{}{TRUNCATION_MARK}", &text[..end]).into()
}
