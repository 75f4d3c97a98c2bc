//! One item of the conversation as lines.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bowline_protocol::accumulator::{
    ContentPiece, MessageKind, SessionMessage, StreamedContent, ToolCallView,
};
use bowline_protocol::schema::v1::{
    CompactionStatus, ContentBlock, EmbeddedResourceResource, TerminalId, ToolCallContent, ToolCallLocation,
    ToolCallStatus, ToolKind,
};
use bowline_text::diff::{DiffStat, compute_stat};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::widgets::theme;
use super::wrap::{LineBreak, escape_line, escape_prose, truncate_end, wrap_spans};
use super::{diff, markdown};
use crate::panes::conversation::{ConversationItem, NoteLevel};
use crate::terminal::views::TerminalView;

/// The maximum number of bytes of a message that is laid out: its end.
const MAX_TEXT: usize = 256 << 10;

/// The maximum number of lines shown of an item: the first and the last.
const MAX_LINES: usize = 1000;

/// The maximum number of lines shown of one output or diff: the last of an output, the first of a diff.
const MAX_PART_LINES: usize = 400;

/// The number of lines shown of a closed command's output while it runs.
const RUNNING_OUTPUT_LINES: usize = 3;

/// The maximum number of a tool call's locations that are named.
const MAX_LOCATIONS: usize = 20;

/// Options for laying out an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LayoutOptions {
    /// The width in columns.
    pub(crate) width: usize,
    /// Whether it is open.
    pub(crate) is_open: bool,
    /// Whether a blank line precedes it.
    pub(crate) has_gap: bool,
    /// Its duration so far.
    pub(crate) elapsed: Option<Duration>,
}

/// The inputs of an item's layout: items with equal keys look the same.
#[derive(Debug)]
pub(crate) struct LayoutKey {
    options: (usize, bool, bool, Option<String>),
    state: State,
    version: u64,
}

#[derive(Debug)]
enum State {
    Body(u64, u64),
    ToolCall(Box<ToolCallView>),
    Fixed,
}

impl LayoutKey {
    /// Returns the layout key of an item; `version` stands for its terminals.
    pub(crate) fn new(item: &ConversationItem, options: LayoutOptions, version: u64) -> Self {
        let state = match item {
            ConversationItem::Message(message) => {
                State::Body(message.body.bytes(), message.body.truncated_bytes())
            }
            ConversationItem::Compaction(compaction) => State::Body(
                compaction.summary.bytes() + u64::from(compaction.error.is_some()),
                compaction_status_code(&compaction.status),
            ),
            ConversationItem::ToolCall(call) => State::ToolCall(Box::new(call.clone())),
            ConversationItem::Prompt(_) | ConversationItem::Note(_) => State::Fixed,
        };
        Self {
            options: (options.width, options.is_open, options.has_gap, options.elapsed.map(format_elapsed)),
            state,
            version,
        }
    }
}

impl PartialEq for LayoutKey {
    fn eq(&self, other: &Self) -> bool {
        let is_same_state = match (&self.state, &other.state) {
            (State::Body(bytes, truncated), State::Body(other_bytes, other_truncated)) => {
                (bytes, truncated) == (other_bytes, other_truncated)
            }
            (State::ToolCall(call), State::ToolCall(other)) => {
                call.status == other.status
                    && call.cancelled == other.cancelled
                    && call.kind == other.kind
                    && Arc::ptr_eq(&call.title, &other.title)
                    && Arc::ptr_eq(&call.content, &other.content)
                    && Arc::ptr_eq(&call.locations, &other.locations)
                    && call.raw_input.as_ref().map(Arc::as_ptr) == other.raw_input.as_ref().map(Arc::as_ptr)
                    && call.raw_output.as_ref().map(Arc::as_ptr) == other.raw_output.as_ref().map(Arc::as_ptr)
            }
            (State::Fixed, State::Fixed) => true,
            _ => false,
        };
        is_same_state && self.options == other.options && self.version == other.version
    }
}

fn compaction_status_code(status: &CompactionStatus) -> u64 {
    match status {
        CompactionStatus::InProgress => 0,
        CompactionStatus::Completed => 1,
        _ => 2,
    }
}

/// Returns whether an item has more to show than its first line.
pub(crate) fn is_expandable(item: &ConversationItem) -> bool {
    match item {
        ConversationItem::Message(message) => message.kind == MessageKind::Thought,
        ConversationItem::ToolCall(_) | ConversationItem::Compaction(_) => true,
        ConversationItem::Prompt(_) | ConversationItem::Note(_) => false,
    }
}

/// Returns whether an item is open unless the user chose otherwise.
pub(crate) fn is_open_by_default(item: &ConversationItem, is_growing: bool) -> bool {
    match item {
        ConversationItem::Message(message) => message.kind != MessageKind::Thought || is_growing,
        ConversationItem::ToolCall(call) => call.status == ToolCallStatus::Failed,
        ConversationItem::Compaction(_) => false,
        ConversationItem::Prompt(_) | ConversationItem::Note(_) => true,
    }
}

/// Returns the terminals that an item shows.
pub(crate) fn terminal_ids(item: &ConversationItem) -> impl Iterator<Item = &TerminalId> {
    let content: &[ToolCallContent] =
        if let ConversationItem::ToolCall(call) = item { &call.content } else { &[] };
    content.iter().filter_map(|content| match content {
        ToolCallContent::Terminal(terminal) => Some(&terminal.terminal_id),
        _ => None,
    })
}

/// Renders an item as lines. Paths below `root` are shown relative to it.
pub(crate) fn render_item(
    item: &ConversationItem,
    options: LayoutOptions,
    terminals: &[Option<&TerminalView>],
    root: &str,
) -> Vec<Line<'static>> {
    let mut lines = match item {
        ConversationItem::Message(message) => render_message(message, options),
        ConversationItem::ToolCall(call) => render_tool_call(call, options, terminals, root),
        ConversationItem::Compaction(compaction) => {
            let state = match compaction.status {
                CompactionStatus::InProgress => "is being shortened",
                CompactionStatus::Completed => "was shortened",
                _ => "could not be shortened",
            };
            let head = format!("{} The history {state}", fold_marker(options.is_open));
            let mut lines = vec![Line::styled(truncate_end(&head, options.width), theme::secondary())];
            if options.is_open {
                let error = compaction.error.as_deref().map(ToString::to_string);
                let (text, _) = body_tail(&compaction.summary);
                lines.extend(render_indented(&error.unwrap_or(text), options.width, theme::secondary()));
            }
            lines
        }
        ConversationItem::Prompt(text) => render_prompt(text, options.width),
        ConversationItem::Note(note) => {
            let style = match note.level {
                NoteLevel::Info => theme::secondary(),
                NoteLevel::Output => Style::new(),
                NoteLevel::Warning => Style::new().fg(Color::Yellow),
                NoteLevel::Error => Style::new().fg(Color::Red),
            };
            let mark = match note.level {
                NoteLevel::Info => "· ",
                NoteLevel::Output => "  ",
                NoteLevel::Warning | NoteLevel::Error => "! ",
            };
            render_text(&note.text, options.width, style, &[Span::styled(mark, style)], escape_line)
        }
    };
    omit_middle_lines(&mut lines);
    if options.has_gap {
        lines.insert(0, Line::default());
    }
    lines
}

/// Omits the middle of very many lines.
fn omit_middle_lines(lines: &mut Vec<Line<'static>>) {
    if lines.len() > MAX_LINES {
        let omitted = lines.len() - MAX_LINES;
        let mark = Line::styled(format!("… {omitted} lines are not shown …"), theme::secondary());
        lines.splice(MAX_LINES / 2..MAX_LINES / 2 + omitted, [mark]);
    }
}

fn fold_marker(is_open: bool) -> &'static str {
    if is_open { "▾" } else { "▸" }
}

/// Formats a duration.
pub(crate) fn format_elapsed(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 if time.as_millis() < 100 => "<0.1s".to_owned(),
        0..10 => format!("{}.{}s", seconds, time.subsec_millis() / 100),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

fn render_prompt(text: &str, width: usize) -> Vec<Line<'static>> {
    let style = Style::new().add_modifier(Modifier::BOLD);
    let mark = Span::styled("❯ ", style.fg(Color::Green));
    render_text(text, width, style, &[mark], escape_prose)
}

/// Renders text, escaping each line with `escape`, with a mark before its first line and spaces before the others.
fn render_text(
    text: &str,
    width: usize,
    style: Style,
    mark: &[Span<'static>],
    escape: fn(&str) -> String,
) -> Vec<Line<'static>> {
    let indent = [Span::raw(" ".repeat(mark.iter().map(Span::width).sum()))];
    let mut lines = Vec::new();
    for (index, line) in text.trim_end().lines().enumerate().take(MAX_LINES * 2) {
        let first = if index == 0 { mark } else { &indent };
        lines.extend(wrap_spans(
            &[Span::styled(escape(line), style)],
            width,
            LineBreak::Words,
            first,
            &indent,
        ));
    }
    lines
}

/// Renders text verbatim, indented by two columns.
fn render_indented(text: &str, width: usize, style: Style) -> Vec<Line<'static>> {
    render_text(text, width, style, &[Span::raw("  ")], escape_line)
}

fn render_message(message: &SessionMessage, options: LayoutOptions) -> Vec<Line<'static>> {
    let (mut text, hidden_bytes) = body_tail(&message.body);
    if hidden_bytes > 0 {
        text.insert_str(0, &format!("*… {hidden_bytes} bytes before this are not shown*\n\n"));
    }
    match message.kind {
        MessageKind::User => render_prompt(&text, options.width),
        MessageKind::Agent => markdown::render_markdown(&text, options.width, Style::new()),
        MessageKind::Thought => {
            let style = theme::secondary().add_modifier(Modifier::ITALIC);
            let count = text.trim().lines().count();
            let head = match text.trim().lines().next() {
                Some(line) if !options.is_open && count > 1 => format!("Thought: {line} …"),
                Some(line) if !options.is_open => format!("Thought: {line}"),
                _ => "Thinking".to_owned(),
            };
            let head = format!("{} {head}", fold_marker(options.is_open));
            let mut lines = vec![Line::styled(truncate_end(&head, options.width), style)];
            if options.is_open {
                let inner = markdown::render_markdown(text.trim(), options.width.saturating_sub(2), style);
                lines.extend(inner.into_iter().map(indent_line));
            }
            lines
        }
    }
}

fn indent_line(mut line: Line<'static>) -> Line<'static> {
    line.spans.insert(0, Span::raw("  "));
    line
}

/// Returns the end of a content as text, and the number of bytes before it. Content that is not text is named.
fn body_tail(body: &StreamedContent) -> (String, usize) {
    let (mut pieces, mut bytes, mut skipped_bytes) = (Vec::new(), 0, 0);
    for piece in body.pieces().rev() {
        let text = match piece {
            ContentPiece::Text(text) => text.to_owned(),
            ContentPiece::Block(block) => describe_block(block),
        };
        if bytes > 0 && bytes + text.len() > MAX_TEXT {
            skipped_bytes += text.len();
            continue;
        }
        bytes += text.len();
        pieces.push(text);
    }
    pieces.reverse();
    let mut text = pieces.concat();
    // A single block may be too long by itself.
    if text.len() > MAX_TEXT {
        let tail_start = text.ceil_char_boundary(text.len() - MAX_TEXT);
        skipped_bytes += tail_start;
        text = text.split_off(tail_start);
    }
    (text, skipped_bytes)
}

/// Describes a content block as text.
fn describe_block(block: &ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => format!("[image, {}]", image.mime_type),
        ContentBlock::Audio(audio) => format!("[audio, {}]", audio.mime_type),
        ContentBlock::ResourceLink(link) => format!("[{}]({})", link.name, link.uri),
        ContentBlock::Resource(resource) => match &resource.resource {
            EmbeddedResourceResource::TextResourceContents(text) => format!("[attached: {}]", text.uri),
            EmbeddedResourceResource::BlobResourceContents(blob) => format!("[attached: {}]", blob.uri),
            _ => "[attached]".to_owned(),
        },
        // A kind of a later protocol version.
        _ => "[content of an unknown kind]".to_owned(),
    }
}

fn render_tool_call(
    call: &ToolCallView,
    options: LayoutOptions,
    terminals: &[Option<&TerminalView>],
    root: &str,
) -> Vec<Line<'static>> {
    let (mark, style) = match call.status {
        _ if call.cancelled => ("⊘", Style::new().fg(Color::Yellow)),
        ToolCallStatus::Pending => ("○", theme::secondary()),
        ToolCallStatus::InProgress => ("◐", Style::new().fg(Color::Blue)),
        ToolCallStatus::Completed => ("✓", Style::new().fg(Color::Green)),
        ToolCallStatus::Failed => ("✗", Style::new().fg(Color::Red)),
        // A state of a later protocol version.
        _ => ("?", theme::secondary()),
    };
    let time = options.elapsed.map(format_elapsed).unwrap_or_default();
    let kind = kind_label(call.kind);
    let [added, removed] = diff_stat(call)
        .map_or_else(Default::default, |stat| [format!("  +{}", stat.added), format!(" −{}", stat.removed)]);
    let stat_width = Span::raw(added.as_str()).width() + Span::raw(removed.as_str()).width();
    let prefix_width = 4 + kind.len() + 1;
    let room = options.width.saturating_sub(prefix_width + time.len() + 1 + stat_width);
    let title = truncate_end(&call.title.replace('\n', " "), room);
    let padding = room.saturating_sub(Span::raw(title.as_str()).width());
    let head = Line::from(vec![
        Span::styled(format!("{} ", fold_marker(options.is_open)), theme::secondary()),
        Span::styled(format!("{mark} "), style),
        Span::styled(format!("{kind} "), Style::new().fg(Color::Cyan)),
        Span::raw(title),
        Span::styled(added, theme::added()),
        Span::styled(removed, theme::removed()),
        Span::styled(format!("{} {time}", " ".repeat(padding)), theme::secondary()),
    ]);
    let mut lines = vec![head];
    if options.is_open {
        lines.extend(render_full_title(call, room, options.width));
        lines.extend(render_tool_call_content(call, options.width, terminals, root));
    } else if call.status == ToolCallStatus::InProgress && !call.cancelled {
        let last = terminals
            .iter()
            .flatten()
            .next_back()
            .map(|terminal| terminal.output.lines())
            .unwrap_or_default();
        let from = last.len().saturating_sub(RUNNING_OUTPUT_LINES);
        for line in &last[from..] {
            lines.extend(
                wrap_spans(&line.spans, options.width, LineBreak::Anywhere, &bar_prefix(), &bar_prefix())
                    .into_iter()
                    .take(1),
            );
        }
    }
    lines
}

/// Returns how many lines a call changes in all its files; `None` if it changes no text.
fn diff_stat(call: &ToolCallView) -> Option<DiffStat> {
    let diffs = call.content.iter().take(MAX_LOCATIONS).filter_map(|content| match content {
        ToolCallContent::Diff(diff) => {
            Some(compute_stat(diff.old_text.as_deref().unwrap_or(""), &diff.new_text))
        }
        _ => None,
    });
    diffs.reduce(|sum, stat| DiffStat { added: sum.added + stat.added, removed: sum.removed + stat.removed })
}

/// Returns a call's full title and command, where its line has no room for them.
fn render_full_title(call: &ToolCallView, room: usize, width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if call.title.contains('\n') || Span::raw(escape_line(&call.title)).width() > room {
        lines.extend(render_indented(&call.title, width, Style::new().add_modifier(Modifier::BOLD)));
    }
    let command = call.raw_input.as_deref().and_then(|input| input.get("command")?.as_str());
    if let Some(command) = command.filter(|command| !call.title.contains(command)) {
        lines.extend(render_indented(
            &format!("$ {command}"),
            width,
            Style::new().add_modifier(Modifier::BOLD),
        ));
    }
    lines
}

fn kind_label(kind: ToolKind) -> &'static str {
    match kind {
        ToolKind::Read => "read  ",
        ToolKind::Edit => "edit  ",
        ToolKind::Delete => "delete",
        ToolKind::Move => "move  ",
        ToolKind::Search => "search",
        ToolKind::Execute => "run   ",
        ToolKind::Think => "think ",
        ToolKind::Fetch => "fetch ",
        ToolKind::SwitchMode => "mode  ",
        // Any other kind.
        _ => "tool  ",
    }
}

/// Returns the lines of an open call.
fn render_tool_call_content(
    call: &ToolCallView,
    width: usize,
    terminals: &[Option<&TerminalView>],
    root: &str,
) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let mut terminals = terminals.iter();
    for content in call.content.iter() {
        match content {
            ToolCallContent::Content(content) => {
                lines.extend(render_indented(&describe_block(&content.content), width, Style::new()));
            }
            ToolCallContent::Diff(diff) => {
                lines.extend(render_file_diff(
                    &relative_path(&diff.path, root),
                    diff.old_text.as_deref(),
                    &diff.new_text,
                    width,
                ));
            }
            ToolCallContent::Terminal(_) => match terminals.next().copied().flatten() {
                Some(terminal) => {
                    let mut output = terminal.output.lines();
                    let hidden = output.len().saturating_sub(MAX_PART_LINES);
                    output.drain(..hidden);
                    for line in output {
                        lines.extend(wrap_spans(
                            &line.spans,
                            width,
                            LineBreak::Anywhere,
                            &bar_prefix(),
                            &bar_prefix(),
                        ));
                    }
                    let status = match &terminal.exit {
                        Some(exit) => format!("  ended: {exit}"),
                        None => "  running …".to_owned(),
                    };
                    lines.push(Line::styled(truncate_end(&status, width), theme::secondary()));
                }
                None => lines
                    .push(Line::styled(truncate_end("  (its terminal is gone)", width), theme::secondary())),
            },
            // A kind of a later protocol version.
            _ => lines.push(Line::styled(
                truncate_end("  (content of an unknown kind)", width),
                theme::secondary(),
            )),
        }
        if lines.len() > 2 * MAX_LINES {
            break;
        }
    }
    if lines.is_empty() {
        match call.raw_output.as_deref() {
            Some(serde_json::Value::String(text)) => lines.extend(render_indented(text, width, Style::new())),
            Some(value) => {
                let text = serde_json::to_string_pretty(value).unwrap_or_default();
                lines.extend(render_indented(&text, width, Style::new()));
            }
            None => lines.push(Line::styled(truncate_end("  nothing to show", width), theme::secondary())),
        }
    }
    let has_no_diff = |location: &&ToolCallLocation| {
        let is_diff = |content: &ToolCallContent| matches!(content, ToolCallContent::Diff(diff) if diff.path == location.path);
        !call.content.iter().take(MAX_LOCATIONS).any(is_diff)
    };
    for location in call.locations.iter().take(MAX_LOCATIONS).filter(has_no_diff) {
        let line = location.line.map(|line| format!(":{line}")).unwrap_or_default();
        let text = format!("  at {}{line}", relative_path(&location.path, root));
        lines.push(Line::styled(truncate_end(&text, width), theme::secondary()));
    }
    lines
}

/// Returns a path relative to the root, if it is below it.
fn relative_path(path: &Path, root: &str) -> String {
    let relative =
        path.strip_prefix(root).ok().filter(|relative| !root.is_empty() && !relative.as_os_str().is_empty());
    relative.unwrap_or(path).to_string_lossy().into_owned()
}

fn bar_prefix() -> [Span<'static>; 1] {
    [Span::styled("  │ ", theme::secondary())]
}

/// Renders a change as a diff under the name of its file.
fn render_file_diff(path: &str, before: Option<&str>, after: &str, width: usize) -> Vec<Line<'static>> {
    let stat = compute_stat(before.unwrap_or(""), after);
    let header = format!("  {path}  +{} −{}", stat.added, stat.removed);
    let mut lines =
        vec![Line::styled(truncate_end(&header, width), Style::new().add_modifier(Modifier::BOLD))];
    let room = u16::try_from(width.saturating_sub(2)).unwrap_or(u16::MAX);
    let diff_lines = diff::render_diff_lines(before, Some(after), room, diff::DiffLayout::Unified);
    let hidden = diff_lines.len().saturating_sub(MAX_PART_LINES);
    lines.extend(diff_lines.into_iter().take(MAX_PART_LINES).map(indent_line));
    if hidden > 0 {
        lines
            .push(Line::styled(truncate_end(&format!("  … {hidden} more lines"), width), theme::secondary()));
    }
    lines
}
