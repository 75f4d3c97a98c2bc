//! A stored conversation as text to read.

use std::fmt::Write as _;
use std::path::Path;

use bowline_agent::store::Stored;
use bowline_state::diff;
use bowline_state::schema::v1::{
    ContentBlock, EmbeddedResourceResource, PlanEntryStatus, SessionUpdate, ToolCall, ToolCallContent,
    ToolCallStatus,
};
use bowline_state::transcript;

use crate::records::showing::{Ink, Look, count, safe, safe_lines};
use crate::records::times::at;

/// So many lines of an output or a thought are shown, unless all are.
const FOLDED: usize = 6;
/// How many lines a patch shows around a change, as git does.
const CONTEXT: usize = 3;

/// One part of a conversation.
pub(super) enum Part {
    /// What the user said.
    User(String),
    /// What the agent said.
    Agent(String),
    /// What it thought.
    Thought(String),
    /// What it did.
    Tool(Box<Tool>),
    /// What it planned: each step with how far it is.
    Plan(Vec<(char, String)>),
    /// The conversation was compacted.
    Compacted,
}

/// What a tool did.
pub(super) struct Tool {
    pub(super) title: String,
    pub(super) kind: String,
    pub(super) failed: bool,
    pub(super) shown: Vec<Shown>,
}

/// What a tool call shows.
pub(super) enum Shown {
    /// Text.
    Text(String),
    /// A change of a file.
    Diff {
        /// The file.
        path: String,
        /// The lines added and removed.
        lines: diff::Stat,
        /// As a patch.
        patch: String,
    },
}

/// Returns the parts of a conversation, in order.
pub(super) fn parts(stored: &Stored) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for update in transcript::replay(stored.updates.iter().cloned()) {
        let part = match update {
            SessionUpdate::UserMessageChunk(chunk) => Part::User(block(&chunk.content)),
            SessionUpdate::AgentMessageChunk(chunk) => Part::Agent(block(&chunk.content)),
            SessionUpdate::AgentThoughtChunk(chunk) => Part::Thought(block(&chunk.content)),
            SessionUpdate::ToolCall(call) => Part::Tool(Box::new(tool(&call, &stored.meta.cwd))),
            SessionUpdate::Plan(plan) => Part::Plan(
                plan.entries
                    .into_iter()
                    .map(|entry| {
                        let mark = match entry.status {
                            PlanEntryStatus::Completed => 'x',
                            PlanEntryStatus::InProgress => '~',
                            // What is not known here has not begun.
                            _ => ' ',
                        };
                        (mark, entry.content)
                    })
                    .collect(),
            ),
            SessionUpdate::CompactionUpdate(_) => Part::Compacted,
            // The rest is no history.
            _ => continue,
        };
        match (parts.last_mut(), part) {
            // A message of several blocks is one.
            (Some(Part::User(text)), Part::User(more)) | (Some(Part::Agent(text)), Part::Agent(more)) => {
                text.push('\n');
                text.push_str(&more);
            }
            (_, part) => parts.push(part),
        }
    }
    parts
}

fn block(content: &ContentBlock) -> String {
    match content {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::ResourceLink(link) => format!("[{}]({})", link.name, link.uri),
        ContentBlock::Resource(resource) => match &resource.resource {
            EmbeddedResourceResource::TextResourceContents(text) => {
                format!("[{}, attached: {}]", text.uri, count(text.text.lines().count(), "line", "lines"))
            }
            EmbeddedResourceResource::BlobResourceContents(blob) => format!("[{}, attached]", blob.uri),
            _ => "[something attached]".to_owned(),
        },
        ContentBlock::Image(image) => format!("[a picture: {}]", image.mime_type),
        ContentBlock::Audio(audio) => format!("[a recording: {}]", audio.mime_type),
        _ => "[something that this version does not know]".to_owned(),
    }
}

fn tool(call: &ToolCall, cwd: &Path) -> Tool {
    let shown = call.content.iter().map(|content| match content {
        ToolCallContent::Content(content) => Shown::Text(block(&content.content)),
        ToolCallContent::Diff(change) => {
            let path = change.path.strip_prefix(cwd).unwrap_or(&change.path).to_string_lossy().into_owned();
            let old = change.old_text.as_deref();
            let side = |text| diff::Side { body: diff::Body::Text(text), mode: 0o644 };
            let file = diff::FileDiff {
                path: path.trim_start_matches('/'),
                before: old.map(side),
                after: Some(side(&change.new_text)),
            };
            let patch = diff::unified(&file, CONTEXT);
            Shown::Diff { lines: diff::stat(old.unwrap_or_default(), &change.new_text), patch, path }
        }
        ToolCallContent::Terminal(terminal) => Shown::Text(format!("[terminal {}]", terminal.terminal_id.0)),
        _ => Shown::Text("[something that this version does not know]".to_owned()),
    });
    let kind = serde_json::to_value(call.kind).ok().and_then(|kind| kind.as_str().map(str::to_owned));
    Tool {
        title: call.title.clone(),
        kind: kind.unwrap_or_default(),
        failed: call.status == ToolCallStatus::Failed,
        shown: shown.collect(),
    }
}

/// Returns a session to read in a terminal.
pub(super) fn text(stored: &Stored, full: bool, look: Look) -> String {
    let meta = &stored.meta;
    let mut text = format!("{}\n", look.paint(Ink::Head, &format!("session {}", safe(&meta.id.0))));
    for (name, value) in facts(stored) {
        // Writing to a string cannot fail.
        _ = writeln!(text, "  {name:9} {value}");
    }
    for part in parts(stored) {
        text.push('\n');
        match part {
            Part::User(said) => said_by(&mut text, "you", &said, look),
            Part::Agent(said) => said_by(&mut text, "agent", &said, look),
            Part::Thought(thought) => {
                _ = writeln!(text, "{}", look.paint(Ink::Faint, "thought"));
                lines(&mut text, &thought, full, "  ", |line| look.paint(Ink::Faint, line));
            }
            Part::Tool(tool) => told(&mut text, &tool, full, look),
            Part::Plan(steps) => {
                _ = writeln!(text, "{}", look.paint(Ink::Head, "plan"));
                for (mark, step) in steps {
                    _ = writeln!(text, "  [{mark}] {}", safe(&step));
                }
            }
            Part::Compacted => _ = writeln!(text, "{}", look.paint(Ink::Faint, "— compacted —")),
        }
    }
    text
}

/// Returns what is known of a session, each with its name.
pub(super) fn facts(stored: &Stored) -> Vec<(&'static str, String)> {
    let meta = &stored.meta;
    let mut facts = Vec::new();
    facts.extend(meta.title.as_deref().map(|title| ("title", safe(title))));
    facts.push(("directory", safe(&meta.cwd.to_string_lossy())));
    facts.extend(meta.additional.iter().map(|more| ("and", safe(&more.to_string_lossy()))));
    facts.extend(meta.model.as_deref().map(|model| ("model", safe(model))));
    facts.push(("mode", meta.mode.id().to_owned()));
    facts.push(("begun", at(meta.created)));
    facts.push(("last used", at(meta.updated)));
    facts.push(("turns", meta.turns.to_string()));
    if meta.usage.input + meta.usage.output > 0 {
        let cost = meta.cost.map_or_else(String::new, |cost| format!(", ${cost:.2}"));
        facts.push(("tokens", format!("{} in, {} out{cost}", meta.usage.input, meta.usage.output)));
    }
    if stored.dropped > 0 {
        facts.push(("not kept", format!("the first {} updates", stored.dropped)));
    }
    facts
}

fn said_by(text: &mut String, who: &str, said: &str, look: Look) {
    _ = writeln!(text, "{}", look.paint(Ink::Head, who));
    lines(text, said, true, "  ", str::to_owned);
}

fn told(text: &mut String, tool: &Tool, full: bool, look: Look) {
    let mark = if tool.failed { look.paint(Ink::Bad, "✗") } else { look.paint(Ink::Good, "✓") };
    let failed = if tool.failed { ", failed" } else { "" };
    let kind = look.paint(Ink::Faint, &format!("({}{failed})", safe(&tool.kind)));
    _ = writeln!(text, "{mark} {} {kind}", safe(&tool.title));
    for shown in &tool.shown {
        match shown {
            Shown::Text(said) => lines(text, said, full, "    ", |line| look.paint(Ink::Faint, line)),
            Shown::Diff { path, lines: diff::Stat { added, removed }, .. } if !full => {
                _ = writeln!(text, "    {} +{added} −{removed}", safe(path));
            }
            Shown::Diff { patch, .. } => {
                lines(text, patch, true, "    ", |line| match line.as_bytes().first() {
                    Some(b'+') => look.paint(Ink::Good, line),
                    Some(b'-') => look.paint(Ink::Bad, line),
                    _ => line.to_owned(),
                })
            }
        }
    }
}

/// Writes lines of others, all or the first.
fn lines(text: &mut String, said: &str, full: bool, indent: &str, paint: impl Fn(&str) -> String) {
    let safe = safe_lines(said);
    let all: Vec<&str> = safe.trim_end_matches('\n').split('\n').collect();
    let shown = if full || all.len() <= FOLDED + 1 { all.len() } else { FOLDED };
    for line in &all[..shown] {
        _ = writeln!(text, "{}", format!("{indent}{}", paint(line)).trim_end());
    }
    if shown < all.len() {
        _ = writeln!(text, "{indent}{}", paint(&format!("… {} more lines (--full)", all.len() - shown)));
    }
}
