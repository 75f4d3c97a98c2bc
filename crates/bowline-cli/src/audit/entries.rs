//! Entries of an audit log, one a line.

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

use bowline_state::audit::{Decision, Entry, Record, Report, Subject};
use bowline_state::changes::Moment;
use bowline_workspace::audit::Entries;
use bowline_workspace::clock::iso8601;
use serde_json::{Value, json};

use super::fold::Folded;
use super::{ShowArguments, failed};
use crate::ending::Ending;
use crate::records::here::Here;
use crate::records::names::shortened;
use crate::records::showing::{Ink, Look, count, safe, written};
use crate::records::times::{at, read, took};
use bowline_workspace::clock::now;

/// Which entries are wanted, and how.
pub(super) struct Wanted<'a> {
    arguments: &'a ShowArguments,
    since: Option<Moment>,
}

impl<'a> Wanted<'a> {
    /// Reads what is wanted.
    ///
    /// # Errors
    /// Says what cannot be read.
    pub(super) fn of(arguments: &'a ShowArguments) -> Result<Self, Ending> {
        let since = arguments.since.as_deref().map(|text| read(text, now(), -1)).transpose()?;
        Ok(Self { arguments, since })
    }

    fn takes(&self, entry: &Entry) -> bool {
        let wanted = self.arguments;
        let begins =
            |id: &String| entry.session.as_ref().is_some_and(|session| session.starts_with(id.as_str()));
        let names = |text: &String| match &entry.subject {
            Subject::None => false,
            Subject::Path { asked, resolved } => {
                asked.contains(text.as_str())
                    || resolved.as_ref().is_some_and(|own| own.contains(text.as_str()))
            }
            Subject::Command { line: text_of, .. } | Subject::Url(text_of) | Subject::Text(text_of) => {
                text_of.contains(text.as_str())
            }
        };
        wanted.session.as_ref().is_none_or(begins)
            && wanted.turn.is_none_or(|turn| entry.turn == Some(turn))
            && wanted.path.as_ref().is_none_or(names)
            && self.since.is_none_or(|since| entry.at >= since)
            && (!wanted.denied || entry.decision == Decision::Denied)
    }

    /// Writes them as they are read.
    ///
    /// # Errors
    /// Fails if the log cannot be read or they cannot be written.
    pub(super) fn write(
        &self,
        entries: Entries,
        folded: &Folded,
        here: &Here,
        look: Look,
        out: &mut dyn Write,
    ) -> Result<(), Ending> {
        let line = |record: &Record| match self.arguments.json {
            true => format!("{}\n", object(record)),
            false => format!("{}\n", line(record, here, look)),
        };
        let is_wanted = |record: &Record| self.takes(&record.entry) && !folded.hides(record);
        let wanted = entries.filter(|record| record.as_ref().map_or(true, is_wanted));
        let mut kept = std::collections::VecDeque::new();
        for record in wanted {
            let text = line(&record.map_err(failed)?);
            let Some(last) = self.arguments.last else {
                if let Err(error) = out.write_all(text.as_bytes()) {
                    return written(Err(error));
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
                return written(Err(error));
            }
        }
        Ok(())
    }
}

/// Returns an entry for people.
fn line(record: &Record, here: &Here, look: Look) -> String {
    let entry = &record.entry;
    let ink = match entry.decision {
        Decision::Allowed => Ink::Good,
        Decision::Denied | Decision::Failed => Ink::Bad,
        // What a later version decided is to be looked at, too.
        Decision::Cancelled | Decision::Other(_) => Ink::Mark,
    };
    let decision = look.paint(ink, &format!("{:9}", safe(entry.decision.word())));
    let mut text = format!("{:>5} {}  {decision} {}", record.seq, at(entry.at), safe(entry.action.word()));
    // Writing to a string cannot fail.
    match &entry.subject {
        Subject::None => {}
        Subject::Path { asked, resolved } => {
            _ = write!(text, " {}", safe(here.name(asked)));
            if let Some(own) = resolved {
                _ = write!(text, " → {}", safe(here.name(own)));
            }
        }
        Subject::Command { line, cwd, env } => {
            _ = write!(text, " `{}`", safe(line));
            if *cwd != here.root {
                _ = write!(text, " in {}", safe(here.name(cwd)));
            }
            if !env.is_empty() {
                _ = write!(text, " with {}", safe(&env.join(", ")));
            }
        }
        Subject::Url(what) | Subject::Text(what) => _ = write!(text, " {}", safe(what)),
    }
    let mut more = Vec::new();
    match entry.by.to_string().as_str() {
        "nobody" => {}
        by => more.push(format!("by {}", safe(by))),
    }
    more.extend(entry.latency_us.map(took));
    more.extend(
        entry.bytes.map(|bytes| count(usize::try_from(bytes).unwrap_or(usize::MAX), "byte", "bytes")),
    );
    more.extend(entry.exit.as_ref().map(|exit| format!("exit {}", safe(exit))));
    more.extend(entry.reason.as_ref().map(|reason| safe(reason)));
    if !more.is_empty() {
        _ = write!(text, " · {}", more.join(" · "));
    }
    let mut whose = Vec::new();
    whose.extend(
        entry
            .session
            .as_ref()
            .map(|session| format!("session {}", safe(shortened(session, std::iter::empty())))),
    );
    whose.extend(entry.turn.map(|turn| format!("turn {turn}")));
    whose.extend(entry.call.as_ref().map(|call| format!("call {}", safe(call))));
    if !whose.is_empty() {
        _ = write!(text, " {}", look.paint(Ink::Faint, &format!("({})", whose.join(", "))));
    }
    text
}

/// Returns an entry for programs.
fn object(record: &Record) -> Value {
    let entry = &record.entry;
    let subject = match &entry.subject {
        Subject::None => Value::Null,
        Subject::Path { asked, resolved } => json!({"path": asked, "resolved": resolved}),
        Subject::Command { line, cwd, env } => json!({"command": line, "cwd": cwd, "env": env}),
        Subject::Url(url) => json!({"url": url}),
        Subject::Text(text) => json!({"text": text}),
    };
    json!({
        "entry": record.seq,
        "at": iso8601(entry.at),
        "session": entry.session,
        "turn": entry.turn,
        "call": entry.call,
        "kind": entry.action.word(),
        "subject": subject,
        "decision": entry.decision.word(),
        "by": entry.by.to_string(),
        "reason": entry.reason,
        "latency_us": entry.latency_us,
        "before": entry.before.map(|hash| hash.to_string()),
        "after": entry.after.map(|hash| hash.to_string()),
        "bytes": entry.bytes,
        "exit": entry.exit,
    })
}

/// Returns what verifying found.
pub(super) fn verified(report: &Report, log: &Path, look: Look) -> String {
    let entries = count(usize::try_from(report.entries).unwrap_or(usize::MAX), "entry", "entries");
    let files = count(usize::try_from(report.files).unwrap_or(usize::MAX), "file", "files");
    let range = report.range.map_or_else(String::new, |(first, last)| format!(", {first} to {last}"));
    let whole = match (report.is_intact(), report.is_unharmed()) {
        (true, _) => look.paint(Ink::Good, "whole"),
        (false, true) => look.paint(Ink::Good, "whole but for what a crash left"),
        (false, false) => look.paint(Ink::Bad, "not as it was written"),
    };
    let mut text = format!("{}\n{whole}: {entries} in {files}{range}\n", safe(&log.to_string_lossy()));
    for finding in &report.findings {
        _ = writeln!(text, "  {}", safe(&finding.to_string()));
    }
    if report.more > 0 {
        _ = writeln!(text, "  and {} more", report.more);
    }
    for note in &report.notes {
        _ = writeln!(text, "  {}: the log itself tells: {}", note.place, safe(&note.text));
    }
    text
}
