//! A stored session as a file.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use bowline_agent::model::replay::recording_from_conversation;
use bowline_agent::store::{SessionMeta, StoredSession};
use bowline_storage::clock::format_iso8601;
use serde_json::{Value, json};

use super::conversation::{ConversationPart, ToolCallOutput, parts, session_facts};
use super::failed;
use bowline_client::common::console::{escape_line, print_note};
use bowline_client::error::CliError;

/// Returns the metadata of a session as JSON.
pub(super) fn meta_to_json(meta: &SessionMeta) -> Value {
    json!({
        "id": meta.id,
        "cwd": meta.cwd.to_string_lossy(),
        "additional": meta.additional_directories.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
        "title": meta.title,
        "created": format_iso8601(meta.created_at),
        "updated": format_iso8601(meta.updated_at),
        "mode": meta.mode.id(),
        "model": meta.model,
        "thinking": meta.thinking,
        "turns": meta.turns,
        "usage": meta.usage,
        "cost": meta.cost,
    })
}

/// Returns a stored session as JSON.
///
/// # Errors
/// Fails if something cannot be written as JSON.
pub(super) fn to_json(stored: &StoredSession) -> Result<String, CliError> {
    let updates = serde_json::to_value(&stored.updates).map_err(failed)?;
    let messages = serde_json::to_value(&stored.messages).map_err(failed)?;
    let output = json!({
        "session": meta_to_json(&stored.meta),
        "updates": updates,
        "messages": messages,
        "dropped": stored.dropped_updates,
    });
    Ok(format!("{output:#}\n"))
}

/// Returns the replies of a session's model.
///
/// # Errors
/// Fails if a reply cannot be written as JSON.
pub(super) fn to_replay(stored: &StoredSession) -> Result<String, CliError> {
    recording_from_conversation(stored.meta.model.as_deref().unwrap_or_default(), &stored.messages)
        .map_err(failed)
}

/// Returns a session as Markdown.
pub(super) fn to_markdown(stored: &StoredSession) -> String {
    let title =
        stored.meta.title.as_deref().map_or_else(|| format!("Session {}", stored.meta.id), escape_line);
    let mut text = format!("# {title}\n\n- session: {}\n", escape_line(&stored.meta.id.0));
    for (name, value) in session_facts(stored).into_iter().filter(|(name, _)| *name != "title") {
        // Writing to a string cannot fail.
        _ = writeln!(text, "- {name}: {value}");
    }
    for part in parts(stored) {
        text.push('\n');
        match part {
            ConversationPart::User(message) => _ = writeln!(text, "## You\n\n{}", message.trim_end()),
            ConversationPart::Agent(message) => _ = writeln!(text, "## Agent\n\n{}", message.trim_end()),
            ConversationPart::Thought(thought) => {
                let quoted: Vec<String> =
                    thought.trim_end().lines().map(|line| format!("> {line}")).collect();
                _ = writeln!(text, "{}", quoted.join("\n"));
            }
            ConversationPart::ToolCall(tool) => {
                let failed = if tool.failed { ", failed" } else { "" };
                _ = writeln!(text, "### {} ({}{failed})", escape_line(&tool.title), escape_line(&tool.kind));
                for output in &tool.output {
                    let (language, body) = match output {
                        ToolCallOutput::Text(content) => ("", content),
                        ToolCallOutput::Diff { patch, .. } => ("diff", patch),
                    };
                    let fence = code_fence(body);
                    _ = writeln!(text, "\n{fence}{language}\n{}\n{fence}", body.trim_end_matches('\n'));
                }
            }
            ConversationPart::Plan(steps) => {
                for (mark, step) in steps {
                    _ = writeln!(text, "- [{}] {}", if mark == 'x' { 'x' } else { ' ' }, escape_line(&step));
                }
            }
            ConversationPart::Compacted => text.push_str("*The conversation was compacted here.*\n"),
        }
    }
    text
}

/// Returns a code fence that the text does not contain.
fn code_fence(text: &str) -> String {
    let longest = text.split(|character| character != '`').map(str::len).max().unwrap_or(0);
    "`".repeat((longest + 1).max(3))
}

/// Writes a new file that only its owner can read.
///
/// # Errors
/// Returns why it cannot be written.
pub(super) fn write_new_file(file: &Path, text: &str) -> Result<(), CliError> {
    let shown = escape_line(&file.to_string_lossy());
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
    print_note(&format!("written to {shown}"));
    Ok(())
}
