//! Entries of an audit log, one per line.

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

use bowline_policy::audit::{AuditDecision, AuditEntry, AuditRecord, AuditSubject, VerificationReport};
use bowline_text::time::Timestamp;
use bowline_workspace::audit::AuditEntries;
use bowline_workspace::clock::format_iso8601;
use serde_json::{Value, json};

use super::fold::FoldedEntries;
use super::{AuditShowArguments, failed};
use crate::common::console::{OutputStyle, TextStyle, escape_line, ignore_broken_pipe, pluralize};
use crate::common::names::shorten_id;
use crate::common::times::{format_duration, format_time, parse_time};
use crate::common::workspace_location::WorkspaceLocation;
use crate::error::CliError;
use bowline_workspace::clock::now;

/// Which entries to show, and in which format.
pub(super) struct EntryQuery<'a> {
    arguments: &'a AuditShowArguments,
    since: Option<Timestamp>,
}

impl<'a> EntryQuery<'a> {
    /// Reads the query from the arguments.
    ///
    /// # Errors
    /// Names the argument that cannot be parsed.
    pub(super) fn from_arguments(arguments: &'a AuditShowArguments) -> Result<Self, CliError> {
        let since = arguments.since.as_deref().map(|text| parse_time(text, now(), -1)).transpose()?;
        Ok(Self { arguments, since })
    }

    fn matches(&self, entry: &AuditEntry) -> bool {
        let wanted = self.arguments;
        let begins =
            |id: &String| entry.session.as_ref().is_some_and(|session| session.starts_with(id.as_str()));
        let names = |text: &String| match &entry.subject {
            AuditSubject::None => false,
            AuditSubject::Path { requested: asked, resolved } => {
                asked.contains(text.as_str())
                    || resolved.as_ref().is_some_and(|own| own.contains(text.as_str()))
            }
            AuditSubject::Command { line: text_of, .. }
            | AuditSubject::Url(text_of)
            | AuditSubject::Text(text_of) => text_of.contains(text.as_str()),
        };
        wanted.session.as_ref().is_none_or(begins)
            && wanted.turn.is_none_or(|turn| entry.turn == Some(turn))
            && wanted.path.as_ref().is_none_or(names)
            && self.since.is_none_or(|since| entry.at >= since)
            && (!wanted.denied || entry.decision == AuditDecision::Denied)
    }

    /// Writes matching entries as they are read.
    ///
    /// # Errors
    /// Fails if the log cannot be read or the entries cannot be written.
    pub(super) fn write_entries(
        &self,
        entries: AuditEntries,
        folded: &FoldedEntries,
        here: &WorkspaceLocation,
        look: OutputStyle,
        out: &mut dyn Write,
    ) -> Result<(), CliError> {
        let line = |record: &AuditRecord| match self.arguments.json {
            true => format!("{}\n", entry_to_json(record)),
            false => format!("{}\n", format_entry(record, here, look)),
        };
        let is_wanted = |record: &AuditRecord| self.matches(&record.entry) && !folded.is_hidden(record);
        let wanted = entries.filter(|record| record.as_ref().map_or(true, is_wanted));
        let mut kept = std::collections::VecDeque::new();
        for record in wanted {
            let text = line(&record.map_err(failed)?);
            let Some(last) = self.arguments.last else {
                if let Err(error) = out.write_all(text.as_bytes()) {
                    return ignore_broken_pipe(Err(error));
                }
                continue;
            };
            kept.push_back(text);
            if kept.len() > last {
                kept.pop_front();
            }
        }
        for text in kept {
            if let Err(error) = out.write_all(text.as_bytes()) {
                return ignore_broken_pipe(Err(error));
            }
        }
        Ok(())
    }
}

/// Formats an entry for people.
fn format_entry(record: &AuditRecord, here: &WorkspaceLocation, look: OutputStyle) -> String {
    let entry = &record.entry;
    let ink = match entry.decision {
        AuditDecision::Allowed => TextStyle::Good,
        AuditDecision::Denied | AuditDecision::Failed => TextStyle::Bad,
        // Decisions made by a later version are highlighted, too.
        AuditDecision::Cancelled | AuditDecision::Other(_) => TextStyle::Highlight,
    };
    let decision = look.paint(ink, &format!("{:9}", escape_line(entry.decision.as_str())));
    let mut text = format!(
        "{:>5} {}  {decision} {}",
        record.seq,
        format_time(entry.at),
        escape_line(entry.action.as_str())
    );
    // Writing to a string cannot fail.
    match &entry.subject {
        AuditSubject::None => {}
        AuditSubject::Path { requested: asked, resolved } => {
            _ = write!(text, " {}", escape_line(here.relative_name(asked)));
            if let Some(own) = resolved {
                _ = write!(text, " → {}", escape_line(here.relative_name(own)));
            }
        }
        AuditSubject::Command { line, cwd, env } => {
            _ = write!(text, " `{}`", escape_line(line));
            if *cwd != here.root {
                _ = write!(text, " in {}", escape_line(here.relative_name(cwd)));
            }
            if !env.is_empty() {
                _ = write!(text, " with {}", escape_line(&env.join(", ")));
            }
        }
        AuditSubject::Url(what) | AuditSubject::Text(what) => _ = write!(text, " {}", escape_line(what)),
    }
    let mut more = Vec::new();
    match entry.decided_by.to_string().as_str() {
        "nobody" => {}
        by => more.push(format!("by {}", escape_line(by))),
    }
    more.extend(entry.latency_us.map(format_duration));
    more.extend(
        entry.bytes.map(|bytes| pluralize(usize::try_from(bytes).unwrap_or(usize::MAX), "byte", "bytes")),
    );
    more.extend(entry.exit.as_ref().map(|exit| format!("exit {}", escape_line(exit))));
    more.extend(entry.reason.as_ref().map(|reason| escape_line(reason)));
    if !more.is_empty() {
        _ = write!(text, " · {}", more.join(" · "));
    }
    let mut whose = Vec::new();
    whose.extend(
        entry
            .session
            .as_ref()
            .map(|session| format!("session {}", escape_line(shorten_id(session, std::iter::empty())))),
    );
    whose.extend(entry.turn.map(|turn| format!("turn {turn}")));
    whose.extend(entry.call.as_ref().map(|call| format!("call {}", escape_line(call))));
    if !whose.is_empty() {
        _ = write!(text, " {}", look.paint(TextStyle::Faint, &format!("({})", whose.join(", "))));
    }
    text
}

/// Formats an entry for programs.
fn entry_to_json(record: &AuditRecord) -> Value {
    let entry = &record.entry;
    let subject = match &entry.subject {
        AuditSubject::None => Value::Null,
        AuditSubject::Path { requested: asked, resolved } => json!({"path": asked, "resolved": resolved}),
        AuditSubject::Command { line, cwd, env } => json!({"command": line, "cwd": cwd, "env": env}),
        AuditSubject::Url(url) => json!({"url": url}),
        AuditSubject::Text(text) => json!({"text": text}),
    };
    json!({
        "entry": record.seq,
        "at": format_iso8601(entry.at),
        "session": entry.session,
        "turn": entry.turn,
        "call": entry.call,
        "kind": entry.action.as_str(),
        "subject": subject,
        "decision": entry.decision.as_str(),
        "by": entry.decided_by.to_string(),
        "reason": entry.reason,
        "latency_us": entry.latency_us,
        "before": entry.before.map(|hash| hash.to_string()),
        "after": entry.after.map(|hash| hash.to_string()),
        "bytes": entry.bytes,
        "exit": entry.exit,
    })
}

/// Formats the result of a verification.
pub(super) fn format_verification(report: &VerificationReport, log: &Path, look: OutputStyle) -> String {
    let entries = pluralize(usize::try_from(report.entries).unwrap_or(usize::MAX), "entry", "entries");
    let files = pluralize(usize::try_from(report.files).unwrap_or(usize::MAX), "file", "files");
    let range = report.range.map_or_else(String::new, |(first, last)| format!(", {first} to {last}"));
    let whole = match (report.is_intact(), report.has_only_crash_artifacts()) {
        (true, _) => look.paint(TextStyle::Good, "whole"),
        (false, true) => look.paint(TextStyle::Good, "whole but for what a crash left"),
        (false, false) => look.paint(TextStyle::Bad, "not as it was written"),
    };
    let mut text = format!("{}\n{whole}: {entries} in {files}{range}\n", escape_line(&log.to_string_lossy()));
    for finding in &report.findings {
        _ = writeln!(text, "  {}", escape_line(&finding.to_string()));
    }
    if report.omitted_findings > 0 {
        _ = writeln!(text, "  and {} more", report.omitted_findings);
    }
    for note in &report.notes {
        _ = writeln!(text, "  {}: the log itself tells: {}", note.position, escape_line(&note.text));
    }
    text
}
