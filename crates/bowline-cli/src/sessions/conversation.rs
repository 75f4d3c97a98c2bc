//! A stored conversation as text to read.

use std::fmt::Write as _;
use std::path::Path;

use bowline_agent::store::StoredSession;
use bowline_conversation::transcript;
use bowline_protocol::schema::v1::{
    ContentBlock, EmbeddedResourceResource, PlanEntryStatus, SessionUpdate, ToolCall, ToolCallContent,
    ToolCallStatus,
};
use bowline_text::diff;

use bowline_client::common::console::{OutputStyle, TextStyle, escape_line, escape_lines, pluralize};
use bowline_client::common::times::format_time;

/// The maximum number of lines shown of an output or a thought, unless all are requested.
const MAX_FOLDED_LINES: usize = 6;
/// The number of context lines in a patch, as in git.
const CONTEXT_LINES: usize = 3;

/// One part of a conversation.
pub(super) enum ConversationPart {
    /// The user's message.
    User(String),
    /// The agent's message.
    Agent(String),
    /// The agent's thought.
    Thought(String),
    /// A tool call.
    ToolCall(Box<ToolCallRecord>),
    /// The plan: each step with its status.
    Plan(Vec<(char, String)>),
    /// The conversation was compacted.
    Compacted,
}

/// A tool call and its output.
pub(super) struct ToolCallRecord {
    pub(super) title: String,
    pub(super) kind: String,
    pub(super) failed: bool,
    pub(super) output: Vec<ToolCallOutput>,
}

/// A part of a tool call's output.
pub(super) enum ToolCallOutput {
    /// Text.
    Text(String),
    /// A change of a file.
    Diff {
        /// The file.
        path: String,
        /// The lines added and removed.
        lines: diff::DiffStat,
        /// The patch.
        patch: String,
    },
}

/// Returns the parts of a conversation, in order.
pub(super) fn parts(stored: &StoredSession) -> Vec<ConversationPart> {
    let mut parts: Vec<ConversationPart> = Vec::new();
    for update in transcript::replay(stored.updates.iter().cloned()) {
        let part = match update {
            SessionUpdate::UserMessageChunk(chunk) => {
                ConversationPart::User(describe_content_block(&chunk.content))
            }
            SessionUpdate::AgentMessageChunk(chunk) => {
                ConversationPart::Agent(describe_content_block(&chunk.content))
            }
            SessionUpdate::AgentThoughtChunk(chunk) => {
                ConversationPart::Thought(describe_content_block(&chunk.content))
            }
            SessionUpdate::ToolCall(call) => {
                ConversationPart::ToolCall(Box::new(tool_call_record(&call, &stored.meta.cwd)))
            }
            SessionUpdate::Plan(plan) => ConversationPart::Plan(
                plan.entries
                    .into_iter()
                    .map(|entry| {
                        let mark = match entry.status {
                            PlanEntryStatus::Completed => 'x',
                            PlanEntryStatus::InProgress => '~',
                            // An unknown status counts as pending.
                            _ => ' ',
                        };
                        (mark, entry.content)
                    })
                    .collect(),
            ),
            SessionUpdate::CompactionUpdate(_) => ConversationPart::Compacted,
            // Other updates are not part of the history.
            _ => continue,
        };
        match (parts.last_mut(), part) {
            // Several blocks of a message are joined.
            (Some(ConversationPart::User(text)), ConversationPart::User(more))
            | (Some(ConversationPart::Agent(text)), ConversationPart::Agent(more)) => {
                text.push('\n');
                text.push_str(&more);
            }
            (_, part) => parts.push(part),
        }
    }
    parts
}

fn describe_content_block(content: &ContentBlock) -> String {
    match content {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::ResourceLink(link) => format!("[{}]({})", link.name, link.uri),
        ContentBlock::Resource(resource) => match &resource.resource {
            EmbeddedResourceResource::TextResourceContents(text) => {
                format!("[{}, attached: {}]", text.uri, pluralize(text.text.lines().count(), "line", "lines"))
            }
            EmbeddedResourceResource::BlobResourceContents(blob) => format!("[{}, attached]", blob.uri),
            _ => "[something attached]".to_owned(),
        },
        ContentBlock::Image(image) => format!("[a picture: {}]", image.mime_type),
        ContentBlock::Audio(audio) => format!("[a recording: {}]", audio.mime_type),
        _ => "[something that this version does not know]".to_owned(),
    }
}

fn tool_call_record(call: &ToolCall, cwd: &Path) -> ToolCallRecord {
    let output = call.content.iter().map(|content| match content {
        ToolCallContent::Content(content) => ToolCallOutput::Text(describe_content_block(&content.content)),
        ToolCallContent::Diff(change) => {
            let path = change.path.strip_prefix(cwd).unwrap_or(&change.path).to_string_lossy().into_owned();
            let old = change.old_text.as_deref();
            let side = |text| diff::DiffSide { content: diff::DiffContent::Text(text), mode: 0o644 };
            let file = diff::FileDiff {
                path: path.trim_start_matches('/'),
                before: old.map(side),
                after: Some(side(&change.new_text)),
            };
            let patch = diff::format_unified_diff(&file, CONTEXT_LINES);
            ToolCallOutput::Diff {
                lines: diff::compute_stat(old.unwrap_or_default(), &change.new_text),
                patch,
                path,
            }
        }
        ToolCallContent::Terminal(terminal) => {
            ToolCallOutput::Text(format!("[terminal {}]", terminal.terminal_id.0))
        }
        _ => ToolCallOutput::Text("[something that this version does not know]".to_owned()),
    });
    let kind = serde_json::to_value(call.kind).ok().and_then(|kind| kind.as_str().map(str::to_owned));
    ToolCallRecord {
        title: call.title.clone(),
        kind: kind.unwrap_or_default(),
        failed: call.status == ToolCallStatus::Failed,
        output: output.collect(),
    }
}

/// Formats a session for a terminal.
pub(super) fn to_text(stored: &StoredSession, full: bool, style: OutputStyle) -> String {
    let meta = &stored.meta;
    let mut text =
        format!("{}\n", style.paint(TextStyle::Heading, &format!("session {}", escape_line(&meta.id.0))));
    for (name, value) in session_facts(stored) {
        // Writing to a string cannot fail.
        _ = writeln!(text, "  {name:9} {value}");
    }
    for part in parts(stored) {
        text.push('\n');
        match part {
            ConversationPart::User(message) => write_message(&mut text, "you", &message, style),
            ConversationPart::Agent(message) => write_message(&mut text, "agent", &message, style),
            ConversationPart::Thought(thought) => {
                _ = writeln!(text, "{}", style.paint(TextStyle::Faint, "thought"));
                write_lines(&mut text, &thought, full, "  ", |line| style.paint(TextStyle::Faint, line));
            }
            ConversationPart::ToolCall(tool) => write_tool_call(&mut text, &tool, full, style),
            ConversationPart::Plan(steps) => {
                _ = writeln!(text, "{}", style.paint(TextStyle::Heading, "plan"));
                for (mark, step) in steps {
                    _ = writeln!(text, "  [{mark}] {}", escape_line(&step));
                }
            }
            ConversationPart::Compacted => {
                _ = writeln!(text, "{}", style.paint(TextStyle::Faint, "— compacted —"))
            }
        }
    }
    text
}

/// Returns the metadata of a session, as name and value.
pub(super) fn session_facts(stored: &StoredSession) -> Vec<(&'static str, String)> {
    let meta = &stored.meta;
    let mut facts = Vec::new();
    facts.extend(meta.title.as_deref().map(|title| ("title", escape_line(title))));
    facts.push(("directory", escape_line(&meta.cwd.to_string_lossy())));
    facts
        .extend(meta.additional_directories.iter().map(|more| ("and", escape_line(&more.to_string_lossy()))));
    facts.extend(meta.model.as_deref().map(|model| ("model", escape_line(model))));
    facts.push(("mode", meta.mode.id().to_owned()));
    facts.push(("begun", format_time(meta.created_at)));
    facts.push(("last used", format_time(meta.updated_at)));
    facts.push(("turns", meta.turns.to_string()));
    if meta.usage.input + meta.usage.output > 0 {
        let cost = meta.cost.map_or_else(String::new, |cost| format!(", ${cost:.2}"));
        facts.push(("tokens", format!("{} in, {} out{cost}", meta.usage.input, meta.usage.output)));
    }
    if stored.dropped_updates > 0 {
        facts.push(("not kept", format!("the first {} updates", stored.dropped_updates)));
    }
    facts
}

fn write_message(text: &mut String, speaker: &str, message: &str, style: OutputStyle) {
    _ = writeln!(text, "{}", style.paint(TextStyle::Heading, speaker));
    write_lines(text, message, true, "  ", str::to_owned);
}

fn write_tool_call(text: &mut String, tool: &ToolCallRecord, full: bool, style: OutputStyle) {
    let mark =
        if tool.failed { style.paint(TextStyle::Bad, "✗") } else { style.paint(TextStyle::Good, "✓") };
    let failed = if tool.failed { ", failed" } else { "" };
    let kind = style.paint(TextStyle::Faint, &format!("({}{failed})", escape_line(&tool.kind)));
    _ = writeln!(text, "{mark} {} {kind}", escape_line(&tool.title));
    for output in &tool.output {
        match output {
            ToolCallOutput::Text(content) => {
                write_lines(text, content, full, "    ", |line| style.paint(TextStyle::Faint, line))
            }
            ToolCallOutput::Diff { path, lines: diff::DiffStat { added, removed }, .. } if !full => {
                _ = writeln!(text, "    {} +{added} −{removed}", escape_line(path));
            }
            ToolCallOutput::Diff { patch, .. } => {
                write_lines(text, patch, true, "    ", |line| match line.as_bytes().first() {
                    Some(b'+') => style.paint(TextStyle::Good, line),
                    Some(b'-') => style.paint(TextStyle::Bad, line),
                    _ => line.to_owned(),
                })
            }
        }
    }
}

/// Writes untrusted lines, all or only the first.
fn write_lines(text: &mut String, content: &str, full: bool, indent: &str, paint: impl Fn(&str) -> String) {
    let escaped = escape_lines(content);
    let lines: Vec<&str> = escaped.trim_end_matches('\n').split('\n').collect();
    let count = if full || lines.len() <= MAX_FOLDED_LINES + 1 { lines.len() } else { MAX_FOLDED_LINES };
    for line in &lines[..count] {
        _ = writeln!(text, "{}", format!("{indent}{}", paint(line)).trim_end());
    }
    if count < lines.len() {
        _ = writeln!(text, "{indent}{}", paint(&format!("… {} more lines (--full)", lines.len() - count)));
    }
}
