//! The live text output of a turn: the agent's messages and thoughts, its plan, its tool calls.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::path::Path;
use std::time::{Duration, Instant};

use bowline_client::common::console::{OutputStyle, TextStyle};
use bowline_protocol::accumulator::{MessageKind, SessionChange, SessionSnapshot, ToolCallView};
use bowline_protocol::schema::v1::{
    ContentBlock, ContentChunk, NoticeSeverity, PlanEntry, PlanEntryStatus, SessionNotification,
    SessionUpdate, ToolCallContent, ToolCallId, ToolCallStatus, ToolKind,
};
use bowline_text::display;

use super::ansi::{escape_text, format_duration, render_diff};

/// A call that takes longer is reported before it ends.
const SLOW_CALL: Duration = Duration::from_secs(1);
/// The maximum number of calls timed at once, and of finished calls whose printed parts are remembered.
const MAX_CALLS: usize = 4096;
/// The maximum number of printed parts remembered per call.
const MAX_PARTS: usize = 256;
/// The maximum length of a title, in bytes.
const MAX_TITLE: usize = 300;
/// The maximum size of a command's output that is shown: its last lines, and bytes.
const MAX_OUTPUT: (usize, usize) = (12, 4 << 10);

/// Prints a turn.
#[derive(Debug)]
pub(super) struct TurnPrinter {
    style: OutputStyle,
    // The prefix removed from paths.
    cwd: String,
    line_state: LineState,
    open_calls: HashMap<ToolCallId, OpenCall>,
    // The printed parts of finished calls. A late part is printed once, without repeating the whole call.
    printed_parts: HashMap<ToolCallId, HashSet<u64>>,
    // The call that the last line belongs to.
    last_call: Option<ToolCallId>,
    plan: Vec<PlanEntry>,
}

/// A call that has not ended.
#[derive(Debug)]
struct OpenCall {
    started_at: Instant,
    is_printed: bool,
}

/// The state of the last line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineState {
    /// Nothing was printed yet.
    Start,
    /// Within a message or thought; the flag is set while a line is open.
    Message(MessageKind, bool),
    /// After a complete line.
    Line,
}

impl TurnPrinter {
    pub(super) fn new(style: OutputStyle, cwd: &Path) -> Self {
        Self {
            style,
            cwd: format!("{}/", cwd.display()),
            line_state: LineState::Start,
            open_calls: HashMap::new(),
            printed_parts: HashMap::new(),
            last_call: None,
            plan: Vec::new(),
        }
    }

    /// Renders an update. `output` returns a terminal's output.
    pub(super) fn render_update(
        &mut self,
        notification: &SessionNotification,
        change: &SessionChange,
        snapshot: &SessionSnapshot,
        now: Instant,
        output: impl Fn(&str) -> Option<String>,
    ) -> String {
        match (&notification.update, change) {
            (SessionUpdate::AgentMessageChunk(chunk), change) => self.render_message_chunk(
                MessageKind::Agent,
                chunk,
                matches!(change, SessionChange::MessageStarted(_)),
            ),
            (SessionUpdate::AgentThoughtChunk(chunk), change) => self.render_message_chunk(
                MessageKind::Thought,
                chunk,
                matches!(change, SessionChange::MessageStarted(_)),
            ),
            (_, SessionChange::Plan) => self.render_plan(snapshot.plan()),
            (
                _,
                SessionChange::ToolCallAdded(id)
                | SessionChange::ToolCallUpdated(id)
                | SessionChange::ToolCallFinished(id),
            ) => snapshot
                .tool_call(id)
                .map(|call| self.render_tool_call(call, now, output))
                .unwrap_or_default(),
            (SessionUpdate::Notice(notice), _) => {
                let text = match &notice.description {
                    Some(description) => format!("{}: {description}", notice.title),
                    None => notice.title.clone(),
                };
                let text = display::escape_line(&text, 2000);
                let text = match notice.severity {
                    NoticeSeverity::Info => self.style.paint(TextStyle::Faint, &text),
                    _ => self.style.paint(TextStyle::Warning, &text),
                };
                self.render_line(&format!("! {text}"))
            }
            (_, SessionChange::CompactionAdded(_)) => {
                self.render_line(&self.style.paint(TextStyle::Faint, "~ the conversation is being shortened"))
            }
            _ => String::new(),
        }
    }

    /// Reports slow calls.
    pub(super) fn render_slow_calls(&mut self, snapshot: &SessionSnapshot, now: Instant) -> String {
        let slow: Vec<ToolCallId> = self
            .open_calls
            .iter_mut()
            .filter(|(_, call)| !call.is_printed && now.duration_since(call.started_at) >= SLOW_CALL)
            .map(|(id, call)| {
                call.is_printed = true;
                id.clone()
            })
            .collect();
        let mut output = String::new();
        for call in snapshot.tool_calls().filter(|call| slow.contains(&call.id)) {
            output += &self.render_line(&format!("… {}", self.tool_call_title(call)));
        }
        output
    }

    /// Ends the output: reports unfinished calls, and ends the last line.
    pub(super) fn finish(&mut self, snapshot: &SessionSnapshot, now: Instant) -> String {
        let mut output = String::new();
        for call in snapshot.tool_calls() {
            if let Some(open) = self.open_calls.remove(&call.id) {
                let status = if call.cancelled { "cancelled" } else { "not finished" };
                let elapsed = format_duration(now.duration_since(open.started_at));
                let line = format!(
                    "{} {} ({status}, {elapsed})",
                    self.style.paint(TextStyle::Warning, "-"),
                    self.tool_call_title(call)
                );
                output += &self.render_line(&line);
            }
        }
        if let LineState::Message(_, true) = self.line_state {
            output += "\n";
            self.line_state = LineState::Line;
        }
        output
    }

    /// Returns whether the agent has begun a line.
    pub(super) fn is_line_open(&self) -> bool {
        matches!(self.line_state, LineState::Message(_, true))
    }

    /// Ends an open line, because other output goes to the same screen.
    pub(super) fn break_line(&mut self) -> String {
        let is_line_open = self.is_line_open();
        if self.line_state != LineState::Start {
            self.line_state = LineState::Line;
        }
        if is_line_open { "\n".to_owned() } else { String::new() }
    }

    /// Returns a complete line, separated from the output before it.
    pub(super) fn render_line(&mut self, text: &str) -> String {
        let separator = match self.line_state {
            LineState::Start | LineState::Line => "",
            LineState::Message(_, false) => "\n",
            LineState::Message(_, true) => "\n\n",
        };
        (self.line_state, self.last_call) = (LineState::Line, None);
        format!("{separator}{text}\n")
    }

    fn render_message_chunk(&mut self, kind: MessageKind, chunk: &ContentChunk, is_new: bool) -> String {
        let text = match &chunk.content {
            ContentBlock::Text(text) => escape_text(&text.text),
            ContentBlock::ResourceLink(link) => format!("[{}]", display::escape_line(&link.uri, MAX_TITLE)),
            ContentBlock::Image(_) => "[an image]".to_owned(),
            ContentBlock::Audio(_) => "[a sound]".to_owned(),
            ContentBlock::Resource(_) => "[a file]".to_owned(),
            // A kind of a later protocol version.
            _ => "[something that cannot be shown]".to_owned(),
        };
        if text.is_empty() {
            return text;
        }
        self.last_call = None;
        let mut output = String::new();
        match self.line_state {
            LineState::Start => {}
            LineState::Message(previous, is_line_open) if previous != kind || is_new => {
                output += if is_line_open { "\n\n" } else { "\n" };
            }
            LineState::Message(..) => {}
            LineState::Line => output += "\n",
        }
        let continues_line = output.is_empty() && matches!(self.line_state, LineState::Message(_, true));
        self.line_state = LineState::Message(kind, !text.ends_with('\n'));
        if kind == MessageKind::Agent {
            return output + &text;
        }
        for (index, line) in text.split_inclusive('\n').enumerate() {
            let margin = if index == 0 && continues_line { "" } else { "┊ " };
            let (body, end) = line.strip_suffix('\n').map_or((line, ""), |body| (body, "\n"));
            output += &format!("{}{end}", self.style.paint(TextStyle::Faint, &format!("{margin}{body}")));
        }
        output
    }

    fn render_plan(&mut self, plan: &[PlanEntry]) -> String {
        let has_same_entries = plan.len() == self.plan.len()
            && plan.iter().zip(&self.plan).all(|(new, old)| new.content == old.content);
        let changed: Vec<&PlanEntry> = plan
            .iter()
            .enumerate()
            .filter(|(index, entry)| !has_same_entries || self.plan[*index].status != entry.status)
            .map(|(_, entry)| entry)
            .collect();
        let mut output = if has_same_entries || plan.is_empty() {
            String::new()
        } else {
            self.render_line(&self.style.paint(TextStyle::Heading, "Plan"))
        };
        for entry in changed {
            let mark = match entry.status {
                PlanEntryStatus::Completed => self.style.paint(TextStyle::Good, "☑"),
                PlanEntryStatus::InProgress => self.style.paint(TextStyle::Highlight, "▸"),
                // A status of a later protocol version counts as not done.
                _ => "☐".to_owned(),
            };
            output +=
                &self.render_line(&format!("  {mark} {}", display::escape_line(&entry.content, MAX_TITLE)));
        }
        self.plan = plan.to_vec();
        output
    }

    fn render_tool_call(
        &mut self,
        call: &ToolCallView,
        now: Instant,
        output: impl Fn(&str) -> Option<String>,
    ) -> String {
        if !call.is_finished() {
            if self.open_calls.len() < MAX_CALLS {
                self.open_calls
                    .entry(call.id.clone())
                    .or_insert(OpenCall { started_at: now, is_printed: false });
            }
            return String::new();
        }
        let previous = self.printed_parts.remove(&call.id);
        let is_new = previous.is_none();
        let mut printed = previous.unwrap_or_default();
        let mut parts = String::new();
        for (index, content) in call.content.iter().enumerate() {
            let part = self.render_content(call, content, &output);
            // A terminal's output may have grown meanwhile; it is printed only once all the same.
            let key = match content {
                ToolCallContent::Terminal(terminal) => hash_part(&terminal.terminal_id),
                // Two files may have the same change.
                ToolCallContent::Diff(diff) => hash_part(&(&diff.path, &part)),
                _ => hash_part(&(index, &part)),
            };
            if printed.len() < MAX_PARTS && printed.insert(key) {
                parts += &part;
            }
        }
        if self.printed_parts.len() < MAX_CALLS {
            self.printed_parts.insert(call.id.clone(), printed);
        }
        let header = if is_new {
            let since = self.open_calls.remove(&call.id).map_or(now, |open| open.started_at);
            let failed = call.status == ToolCallStatus::Failed;
            let mark = if failed {
                self.style.paint(TextStyle::Bad, "✗")
            } else {
                self.style.paint(TextStyle::Good, "✓")
            };
            let elapsed = self
                .style
                .paint(TextStyle::Faint, &format!("({})", format_duration(now.duration_since(since))));
            self.render_line(&format!("{mark} {} {elapsed}", self.tool_call_title(call)))
        } else if parts.is_empty() {
            return String::new();
        } else if self.last_call.as_ref() == Some(&call.id) {
            String::new()
        } else {
            self.render_line(&format!("  {}, later:", self.tool_call_title(call)))
        };
        self.last_call = Some(call.id.clone());
        header + &parts
    }

    /// Renders one part of a call's content.
    fn render_content(
        &self,
        call: &ToolCallView,
        content: &ToolCallContent,
        output: &impl Fn(&str) -> Option<String>,
    ) -> String {
        let failed = call.status == ToolCallStatus::Failed;
        match content {
            ToolCallContent::Diff(diff) if !failed => {
                render_diff(self.style, diff.old_text.as_deref(), &diff.new_text)
            }
            ToolCallContent::Terminal(terminal) => {
                output(&terminal.terminal_id.0).map(|text| self.render_output(&text)).unwrap_or_default()
            }
            // Content that was read or found is for the agent; errors and command output are for the user.
            ToolCallContent::Content(content) if failed || call.kind == ToolKind::Execute => {
                match &content.content {
                    ContentBlock::Text(text) => self.render_output(&text.text),
                    _ => String::new(),
                }
            }
            _ => String::new(),
        }
    }

    fn render_output(&self, text: &str) -> String {
        // Code fences are for Markdown renderers.
        let lines: Vec<&str> = text.trim_end().lines().filter(|line| !line.starts_with("```")).collect();
        let omitted = lines.len().saturating_sub(MAX_OUTPUT.0);
        let mut output = String::new();
        if omitted > 0 {
            output += &format!(
                "    {}\n",
                self.style.paint(TextStyle::Faint, &format!("… {omitted} lines before"))
            );
        }
        let block = display::escape_block(&lines[omitted..].join("\n"), MAX_OUTPUT.0, MAX_OUTPUT.1);
        output.extend(block.text.lines().map(|line| {
            format!("    {}", self.style.paint(TextStyle::Faint, line)).trim_end().to_owned() + "\n"
        }));
        output
    }

    /// Describes a call on one line.
    fn tool_call_title(&self, call: &ToolCallView) -> String {
        let kind = match call.kind {
            ToolKind::Read => "read",
            ToolKind::Edit => "edit",
            ToolKind::Delete => "delete",
            ToolKind::Move => "move",
            ToolKind::Search => "search",
            ToolKind::Execute => "run",
            ToolKind::Think => "think",
            ToolKind::Fetch => "fetch",
            ToolKind::SwitchMode => "mode",
            // A kind without a name here.
            _ => "tool",
        };
        let title = display::escape_line(&call.title.replace(&self.cwd, ""), MAX_TITLE);
        format!("{kind}: {}", self.style.paint(TextStyle::Heading, &title))
    }
}

fn hash_part(part: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    part.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
