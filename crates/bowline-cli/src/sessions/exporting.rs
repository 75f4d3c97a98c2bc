//! A stored session as a file.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use bowline_agent::model::replay::recording;
use bowline_agent::store::{Meta, Stored};
use bowline_workspace::clock::iso8601;
use serde_json::{Value, json};

use super::conversation::{Part, Shown, facts, parts};
use super::failed;
use crate::ending::Ending;
use crate::records::showing::{note, safe};

/// Returns what is known of a session, for programs.
pub(super) fn meta(meta: &Meta) -> Value {
    json!({
        "id": meta.id,
        "cwd": meta.cwd.to_string_lossy(),
        "additional": meta.additional.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
        "title": meta.title,
        "created": iso8601(meta.created),
        "updated": iso8601(meta.updated),
        "mode": meta.mode.id(),
        "model": meta.model,
        "thinking": meta.thinking,
        "turns": meta.turns,
        "usage": meta.usage,
        "cost": meta.cost,
    })
}

/// Returns everything that is stored of a session.
///
/// # Errors
/// Fails if something cannot be written as JSON.
pub(super) fn json(stored: &Stored) -> Result<String, Ending> {
    let updates = serde_json::to_value(&stored.updates).map_err(failed)?;
    let messages = serde_json::to_value(&stored.messages).map_err(failed)?;
    let all = json!({
        "session": meta(&stored.meta),
        "updates": updates,
        "messages": messages,
        "dropped": stored.dropped,
    });
    Ok(format!("{all:#}\n"))
}

/// Returns the replies of a session's model.
///
/// # Errors
/// Fails if a reply cannot be written as JSON.
pub(super) fn replay(stored: &Stored) -> Result<String, Ending> {
    recording(stored.meta.model.as_deref().unwrap_or_default(), &stored.messages).map_err(failed)
}

/// Returns a session as Markdown.
pub(super) fn markdown(stored: &Stored) -> String {
    let title = stored.meta.title.as_deref().map_or_else(|| format!("Session {}", stored.meta.id), safe);
    let mut text = format!("# {title}\n\n- session: {}\n", safe(&stored.meta.id.0));
    for (name, value) in facts(stored).into_iter().filter(|(name, _)| *name != "title") {
        // Writing to a string cannot fail.
        _ = writeln!(text, "- {name}: {value}");
    }
    for part in parts(stored) {
        text.push('\n');
        match part {
            Part::User(said) => _ = writeln!(text, "## You\n\n{}", said.trim_end()),
            Part::Agent(said) => _ = writeln!(text, "## Agent\n\n{}", said.trim_end()),
            Part::Thought(thought) => {
                let quoted: Vec<String> =
                    thought.trim_end().lines().map(|line| format!("> {line}")).collect();
                _ = writeln!(text, "{}", quoted.join("\n"));
            }
            Part::Tool(tool) => {
                let failed = if tool.failed { ", failed" } else { "" };
                _ = writeln!(text, "### {} ({}{failed})", safe(&tool.title), safe(&tool.kind));
                for shown in &tool.shown {
                    let (language, body) = match shown {
                        Shown::Text(said) => ("", said),
                        Shown::Diff { patch, .. } => ("diff", patch),
                    };
                    let fence = fence(body);
                    _ = writeln!(text, "\n{fence}{language}\n{}\n{fence}", body.trim_end_matches('\n'));
                }
            }
            Part::Plan(steps) => {
                for (mark, step) in steps {
                    _ = writeln!(text, "- [{}] {}", if mark == 'x' { 'x' } else { ' ' }, safe(&step));
                }
            }
            Part::Compacted => text.push_str("*The conversation was compacted here.*\n"),
        }
    }
    text
}

/// Returns a fence that a text does not close.
fn fence(text: &str) -> String {
    let longest = text.split(|character| character != '`').map(str::len).max().unwrap_or(0);
    "`".repeat((longest + 1).max(3))
}

/// Writes a new file that only its owner can read.
///
/// # Errors
/// Returns why it cannot be written.
pub(super) fn write(file: &Path, text: &str) -> Result<(), Ending> {
    let shown = safe(&file.to_string_lossy());
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    let mut opened = match opened {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            return Err(failed(anyhow::anyhow!(
                "{shown} is there already: choose another name, or remove it"
            )));
        }
        opened => opened.with_context(|| format!("cannot write {shown}"))?,
    };
    opened.write_all(text.as_bytes()).with_context(|| format!("cannot write {shown}"))?;
    note(&format!("written to {shown}"));
    Ok(())
}
