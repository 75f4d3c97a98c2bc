//! Entries of an audit log, one per line.

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

use bowline_access::audit::AuditEntries;
use bowline_policy::audit::{AuditDecision, AuditEntry, AuditRecord, AuditSubject, VerificationReport};
use bowline_storage::clock::format_iso8601;
use bowline_text::time::Timestamp;
use serde_json::{Value, json};

use super::fold::FoldedEntries;
use super::{AuditShowArguments, failed};
use bowline_client::common::console::{OutputStyle, TextStyle, escape_line, ignore_broken_pipe, pluralize};
use bowline_client::common::names::shorten_id;
use bowline_client::common::times::{format_duration, format_time, parse_time};
use bowline_client::common::workspace_location::WorkspaceLocation;
use bowline_client::error::CliError;
use bowline_storage::clock::now;

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
        let arguments = self.arguments;
        let matches_session =
            |id: &String| entry.session.as_ref().is_some_and(|session| session.starts_with(id.as_str()));
        let matches_path = |text: &String| match &entry.subject {
            AuditSubject::None => false,
            AuditSubject::Path { requested, resolved } => {
                requested.contains(text.as_str())
                    || resolved.as_ref().is_some_and(|path| path.contains(text.as_str()))
            }
            AuditSubject::Command { line: subject, .. }
            | AuditSubject::Url(subject)
            | AuditSubject::Text(subject) => subject.contains(text.as_str()),
        };
        arguments.session.as_ref().is_none_or(matches_session)
            && arguments.turn.is_none_or(|turn| entry.turn == Some(turn))
            && arguments.path.as_ref().is_none_or(matches_path)
            && self.since.is_none_or(|since| entry.at >= since)
            && (!arguments.denied || entry.decision == AuditDecision::Denied)
    }

    /// Writes matching entries as they are read.
    ///
    /// # Errors
    /// Fails if the log cannot be read or the entries cannot be written.
    pub(super) fn write_entries(
        &self,
        entries: AuditEntries,
        folded: &FoldedEntries,
        location: &WorkspaceLocation,
        style: OutputStyle,
        out: &mut dyn Write,
    ) -> Result<(), CliError> {
        let line = |record: &AuditRecord| match self.arguments.json {
            true => format!("{}\n", entry_to_json(record)),
            false => format!("{}\n", format_entry(record, location, style)),
        };
        let is_shown = |record: &AuditRecord| self.matches(&record.entry) && !folded.is_hidden(record);
        let matching = entries.filter(|record| record.as_ref().map_or(true, is_shown));
        let mut tail = std::collections::VecDeque::new();
        for record in matching {
            let text = line(&record.map_err(failed)?);
            let Some(last) = self.arguments.last else {
                if let Err(error) = out.write_all(text.as_bytes()) {
                    return ignore_broken_pipe(Err(error));
                }
                continue;
            };
            tail.push_back(text);
            if tail.len() > last {
                tail.pop_front();
            }
        }
        for text in tail {
            if let Err(error) = out.write_all(text.as_bytes()) {
                return ignore_broken_pipe(Err(error));
            }
        }
        Ok(())
    }
}

/// Formats an entry for people.
fn format_entry(record: &AuditRecord, location: &WorkspaceLocation, style: OutputStyle) -> String {
    let entry = &record.entry;
    let text_style = match entry.decision {
        AuditDecision::Allowed => TextStyle::Good,
        AuditDecision::Denied | AuditDecision::Failed => TextStyle::Bad,
        // Decisions made by a later version are highlighted, too.
        AuditDecision::Cancelled | AuditDecision::Other(_) => TextStyle::Highlight,
    };
    let decision = style.paint(text_style, &format!("{:9}", escape_line(entry.decision.as_str())));
    let mut text = format!(
        "{:>5} {}  {decision} {}",
        record.seq,
        format_time(entry.at),
        escape_line(entry.action.as_str())
    );
    // Writing to a string cannot fail.
    match &entry.subject {
        AuditSubject::None => {}
        AuditSubject::Path { requested, resolved } => {
            _ = write!(text, " {}", escape_line(location.relative_name(requested)));
            if let Some(resolved) = resolved {
                _ = write!(text, " → {}", escape_line(location.relative_name(resolved)));
            }
        }
        AuditSubject::Command { line, cwd, env } => {
            _ = write!(text, " `{}`", escape_line(line));
            if *cwd != location.root {
                _ = write!(text, " in {}", escape_line(location.relative_name(cwd)));
            }
            if !env.is_empty() {
                _ = write!(text, " with {}", escape_line(&env.join(", ")));
            }
        }
        AuditSubject::Url(subject) | AuditSubject::Text(subject) => {
            _ = write!(text, " {}", escape_line(subject))
        }
    }
    let mut details = Vec::new();
    match entry.decided_by.to_string().as_str() {
        "nobody" => {}
        by => details.push(format!("by {}", escape_line(by))),
    }
    details.extend(entry.latency_us.map(format_duration));
    details.extend(
        entry.bytes.map(|bytes| pluralize(usize::try_from(bytes).unwrap_or(usize::MAX), "byte", "bytes")),
    );
    details.extend(entry.exit.as_ref().map(|exit| format!("exit {}", escape_line(exit))));
    details.extend(entry.reason.as_ref().map(|reason| escape_line(reason)));
    if !details.is_empty() {
        _ = write!(text, " · {}", details.join(" · "));
    }
    let mut ids = Vec::new();
    ids.extend(entry.principal.as_ref().map(|name| format!("for {}", escape_line(name))));
    ids.extend(
        entry
            .session
            .as_ref()
            .map(|session| format!("session {}", escape_line(shorten_id(session, std::iter::empty())))),
    );
    ids.extend(entry.turn.map(|turn| format!("turn {turn}")));
    ids.extend(entry.call.as_ref().map(|call| format!("call {}", escape_line(call))));
    if !ids.is_empty() {
        _ = write!(text, " {}", style.paint(TextStyle::Faint, &format!("({})", ids.join(", "))));
    }
    text
}

/// Formats an entry for programs.
fn entry_to_json(record: &AuditRecord) -> Value {
    let entry = &record.entry;
    let subject = match &entry.subject {
        AuditSubject::None => Value::Null,
        AuditSubject::Path { requested, resolved } => json!({"path": requested, "resolved": resolved}),
        AuditSubject::Command { line, cwd, env } => json!({"command": line, "cwd": cwd, "env": env}),
        AuditSubject::Url(url) => json!({"url": url}),
        AuditSubject::Text(text) => json!({"text": text}),
    };
    json!({
        "entry": record.seq,
        "at": format_iso8601(entry.at),
        "principal": entry.principal,
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
pub(super) fn format_verification(report: &VerificationReport, log: &Path, style: OutputStyle) -> String {
    let entries = pluralize(usize::try_from(report.entries).unwrap_or(usize::MAX), "entry", "entries");
    let files = pluralize(usize::try_from(report.files).unwrap_or(usize::MAX), "file", "files");
    let range = report.range.map_or_else(String::new, |(first, last)| format!(", {first} to {last}"));
    let verdict = match (report.is_intact(), report.has_only_crash_artifacts()) {
        (true, _) => style.paint(TextStyle::Good, "whole"),
        (false, true) => style.paint(TextStyle::Good, "whole but for what a crash left"),
        (false, false) => style.paint(TextStyle::Bad, "not as it was written"),
    };
    let mut text =
        format!("{}\n{verdict}: {entries} in {files}{range}\n", escape_line(&log.to_string_lossy()));
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
