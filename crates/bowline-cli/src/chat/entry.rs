//! One item of the conversation as lines.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bowline_state::accumulator::{Body, Message, MessageKind, Piece, ToolCallView};
use bowline_state::diff::{Stat, stat};
use bowline_state::schema::v1::{
    CompactionStatus, ContentBlock, EmbeddedResourceResource, TerminalId, ToolCallContent, ToolCallLocation,
    ToolCallStatus, ToolKind,
};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::conversation::{Item, Tone};
use super::live::Screen;
use super::parts::theme;
use super::wrap::{Break, cut, prose, safe, wrap};
use super::{diff, markdown};

/// As much of a message's text is laid out, in bytes: its end.
const MAX_TEXT: usize = 256 << 10;

/// As many lines of an item are shown: the first and the last.
const MAX_LINES: usize = 1000;

/// As many lines of one output or diff are shown: the last of an output, the first of a diff.
const MAX_PART: usize = 400;

/// As many lines of what a command writes are in sight while it runs and is not open.
const LAST_LINES: usize = 3;

/// As many places that a call works on are named.
const MAX_PLACES: usize = 20;

/// How an item is to be laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    /// How wide.
    pub(crate) width: usize,
    /// Whether it is open.
    pub(crate) open: bool,
    /// Whether a blank line comes before it.
    pub(crate) gap: bool,
    /// How long it has taken.
    pub(crate) took: Option<Duration>,
}

/// What an item's lines depend on: two that are equal look the same.
#[derive(Debug)]
pub(crate) struct Print {
    look: (usize, bool, bool, Option<String>),
    state: State,
    version: u64,
}

#[derive(Debug)]
enum State {
    Body(u64, u64),
    Call(Box<ToolCallView>),
    Fixed,
}

impl Print {
    /// Returns what the lines of an item depend on; `version` stands for its terminals.
    pub(crate) fn of(item: &Item, look: Look, version: u64) -> Self {
        let state = match item {
            Item::Message(message) => State::Body(message.body.bytes(), message.body.cut()),
            Item::Compaction(it) => {
                State::Body(it.summary.bytes() + u64::from(it.error.is_some()), status(&it.status))
            }
            Item::Call(call) => State::Call(Box::new(call.clone())),
            Item::Prompt(_) | Item::Note(_) => State::Fixed,
        };
        Self { look: (look.width, look.open, look.gap, look.took.map(took)), state, version }
    }
}

impl PartialEq for Print {
    fn eq(&self, other: &Self) -> bool {
        let same = match (&self.state, &other.state) {
            (State::Body(bytes, cut), State::Body(other, its)) => (bytes, cut) == (other, its),
            (State::Call(call), State::Call(other)) => {
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
        same && self.look == other.look && self.version == other.version
    }
}

fn status(status: &CompactionStatus) -> u64 {
    match status {
        CompactionStatus::InProgress => 0,
        CompactionStatus::Completed => 1,
        _ => 2,
    }
}

/// Says whether an item has more to show than its first line.
pub(crate) fn can_open(item: &Item) -> bool {
    match item {
        Item::Message(message) => message.kind == MessageKind::Thought,
        Item::Call(_) | Item::Compaction(_) => true,
        Item::Prompt(_) | Item::Note(_) => false,
    }
}

/// Says whether an item is open if the person has not said.
pub(crate) fn is_open(item: &Item, is_growing: bool) -> bool {
    match item {
        Item::Message(message) => message.kind != MessageKind::Thought || is_growing,
        Item::Call(call) => call.status == ToolCallStatus::Failed,
        Item::Compaction(_) => false,
        Item::Prompt(_) | Item::Note(_) => true,
    }
}

/// Returns the terminals that an item shows.
pub(crate) fn terminals(item: &Item) -> impl Iterator<Item = &TerminalId> {
    let content: &[ToolCallContent] = if let Item::Call(call) = item { &call.content } else { &[] };
    content.iter().filter_map(|content| match content {
        ToolCallContent::Terminal(terminal) => Some(&terminal.terminal_id),
        _ => None,
    })
}

/// Returns an item as lines. Files below `root` are named from there.
pub(crate) fn lines(
    item: &Item,
    look: Look,
    terminals: &[Option<&Screen>],
    root: &str,
) -> Vec<Line<'static>> {
    let mut lines = match item {
        Item::Message(message) => said(message, look),
        Item::Call(call) => called(call, look, terminals, root),
        Item::Compaction(compaction) => {
            let state = match compaction.status {
                CompactionStatus::InProgress => "is being shortened",
                CompactionStatus::Completed => "was shortened",
                _ => "could not be shortened",
            };
            let head = format!("{} The history {state}", fold(look.open));
            let mut lines = vec![Line::styled(cut(&head, look.width), faint())];
            if look.open {
                let why = compaction.error.as_deref().map(ToString::to_string);
                let (text, _) = tail(&compaction.summary);
                lines.extend(indented(&why.unwrap_or(text), look.width, faint()));
            }
            lines
        }
        Item::Prompt(text) => prompt(text, look.width),
        Item::Note(note) => {
            let style = match note.tone {
                Tone::Quiet => faint(),
                Tone::Output => Style::new(),
                Tone::Warning => Style::new().fg(Color::Yellow),
                Tone::Error => Style::new().fg(Color::Red),
            };
            let mark = match note.tone {
                Tone::Quiet => "· ",
                Tone::Output => "  ",
                Tone::Warning | Tone::Error => "! ",
            };
            plain(&note.text, look.width, style, &[Span::styled(mark, style)], safe)
        }
    };
    limit(&mut lines);
    if look.gap {
        lines.insert(0, Line::default());
    }
    lines
}

/// Leaves out what is in the middle of very many lines.
fn limit(lines: &mut Vec<Line<'static>>) {
    if lines.len() > MAX_LINES {
        let left_out = lines.len() - MAX_LINES;
        let mark = Line::styled(format!("… {left_out} lines are not shown …"), faint());
        lines.splice(MAX_LINES / 2..MAX_LINES / 2 + left_out, [mark]);
    }
}

fn faint() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

fn fold(open: bool) -> &'static str {
    if open { "▾" } else { "▸" }
}

/// Returns how long something took.
pub(crate) fn took(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 if time.as_millis() < 100 => "<0.1s".to_owned(),
        0..10 => format!("{}.{}s", seconds, time.subsec_millis() / 100),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

fn prompt(text: &str, width: usize) -> Vec<Line<'static>> {
    let style = Style::new().add_modifier(Modifier::BOLD);
    let mark = Span::styled("❯ ", style.fg(Color::Green));
    plain(text, width, style, &[mark], prose)
}

/// Returns text as `shown` has each line, with a mark before its first line and blanks before the others.
fn plain(
    text: &str,
    width: usize,
    style: Style,
    mark: &[Span<'static>],
    shown: fn(&str) -> String,
) -> Vec<Line<'static>> {
    let blank = [Span::raw(" ".repeat(mark.iter().map(Span::width).sum()))];
    let mut lines = Vec::new();
    for (at, line) in text.trim_end().lines().enumerate().take(MAX_LINES * 2) {
        let first = if at == 0 { mark } else { &blank };
        lines.extend(wrap(&[Span::styled(shown(line), style)], width, Break::Words, first, &blank));
    }
    lines
}

/// Returns text as it is, two columns to the right.
fn indented(text: &str, width: usize, style: Style) -> Vec<Line<'static>> {
    plain(text, width, style, &[Span::raw("  ")], safe)
}

fn said(message: &Message, look: Look) -> Vec<Line<'static>> {
    let (mut text, cut_off) = tail(&message.body);
    if cut_off > 0 {
        text.insert_str(0, &format!("*… {cut_off} bytes before this are not shown*\n\n"));
    }
    match message.kind {
        MessageKind::User => prompt(&text, look.width),
        MessageKind::Agent => markdown::lines(&text, look.width, Style::new()),
        MessageKind::Thought => {
            let style = faint().add_modifier(Modifier::ITALIC);
            let count = text.trim().lines().count();
            let head = match text.trim().lines().next() {
                Some(line) if !look.open && count > 1 => format!("Thought: {line} …"),
                Some(line) if !look.open => format!("Thought: {line}"),
                _ => "Thinking".to_owned(),
            };
            let head = format!("{} {head}", fold(look.open));
            let mut lines = vec![Line::styled(cut(&head, look.width), style)];
            if look.open {
                let inner = markdown::lines(text.trim(), look.width.saturating_sub(2), style);
                lines.extend(inner.into_iter().map(shifted));
            }
            lines
        }
    }
}

fn shifted(mut line: Line<'static>) -> Line<'static> {
    line.spans.insert(0, Span::raw("  "));
    line
}

/// Returns the end of a content as text, with how many bytes of it are before that. What is no text is named.
fn tail(body: &Body) -> (String, usize) {
    let (mut pieces, mut bytes, mut before) = (Vec::new(), 0, 0);
    for piece in body.pieces().rev() {
        let text = match piece {
            Piece::Text(text) => text.to_owned(),
            Piece::Block(block) => named(block),
        };
        if bytes > 0 && bytes + text.len() > MAX_TEXT {
            before += text.len();
            continue;
        }
        bytes += text.len();
        pieces.push(text);
    }
    pieces.reverse();
    let mut text = pieces.concat();
    // One piece alone may be too long.
    if text.len() > MAX_TEXT {
        let from = text.ceil_char_boundary(text.len() - MAX_TEXT);
        before += from;
        text = text.split_off(from);
    }
    (text, before)
}

/// Returns a block of content as text.
fn named(block: &ContentBlock) -> String {
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
        // A kind of a later protocol.
        _ => "[content of an unknown kind]".to_owned(),
    }
}

fn called(call: &ToolCallView, look: Look, terminals: &[Option<&Screen>], root: &str) -> Vec<Line<'static>> {
    let (mark, style) = match call.status {
        _ if call.cancelled => ("⊘", Style::new().fg(Color::Yellow)),
        ToolCallStatus::Pending => ("○", faint()),
        ToolCallStatus::InProgress => ("◐", Style::new().fg(Color::Blue)),
        ToolCallStatus::Completed => ("✓", Style::new().fg(Color::Green)),
        ToolCallStatus::Failed => ("✗", Style::new().fg(Color::Red)),
        // A state of a later protocol.
        _ => ("?", faint()),
    };
    let time = look.took.map(took).unwrap_or_default();
    let kind = kind(call.kind);
    let [added, removed] = counts(call)
        .map_or_else(Default::default, |stat| [format!("  +{}", stat.added), format!(" −{}", stat.removed)]);
    let counted = Span::raw(added.as_str()).width() + Span::raw(removed.as_str()).width();
    let left = 4 + kind.len() + 1;
    let room = look.width.saturating_sub(left + time.len() + 1 + counted);
    let title = cut(&call.title.replace('\n', " "), room);
    let padding = room.saturating_sub(Span::raw(title.as_str()).width());
    let head = Line::from(vec![
        Span::styled(format!("{} ", fold(look.open)), faint()),
        Span::styled(format!("{mark} "), style),
        Span::styled(format!("{kind} "), Style::new().fg(Color::Cyan)),
        Span::raw(title),
        Span::styled(added, theme::added()),
        Span::styled(removed, theme::removed()),
        Span::styled(format!("{} {time}", " ".repeat(padding)), faint()),
    ]);
    let mut lines = vec![head];
    if look.open {
        lines.extend(whole(call, room, look.width));
        lines.extend(inside(call, look.width, terminals, root));
    } else if call.status == ToolCallStatus::InProgress && !call.cancelled {
        let last =
            terminals.iter().flatten().next_back().map(|screen| screen.output.lines()).unwrap_or_default();
        let from = last.len().saturating_sub(LAST_LINES);
        for line in &last[from..] {
            lines.extend(wrap(&line.spans, look.width, Break::Anywhere, &bar(), &bar()).into_iter().take(1));
        }
    }
    lines
}

/// Returns how many lines a call changes in all of its files; none if it changes no text.
fn counts(call: &ToolCallView) -> Option<Stat> {
    let diffs = call.content.iter().take(MAX_PLACES).filter_map(|content| match content {
        ToolCallContent::Diff(diff) => Some(stat(diff.old_text.as_deref().unwrap_or(""), &diff.new_text)),
        _ => None,
    });
    diffs.reduce(|sum, stat| Stat { added: sum.added + stat.added, removed: sum.removed + stat.removed })
}

/// Returns a call's title and the command that it runs, whole, where its line has no room for them.
fn whole(call: &ToolCallView, room: usize, width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if call.title.contains('\n') || Span::raw(safe(&call.title)).width() > room {
        lines.extend(indented(&call.title, width, Style::new().add_modifier(Modifier::BOLD)));
    }
    let command = call.raw_input.as_deref().and_then(|input| input.get("command")?.as_str());
    if let Some(command) = command.filter(|command| !call.title.contains(command)) {
        lines.extend(indented(&format!("$ {command}"), width, Style::new().add_modifier(Modifier::BOLD)));
    }
    lines
}

fn kind(kind: ToolKind) -> &'static str {
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
        // Whatever else an agent has.
        _ => "tool  ",
    }
}

/// Returns what a call shows when it is open.
fn inside(
    call: &ToolCallView,
    width: usize,
    terminals: &[Option<&Screen>],
    root: &str,
) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let mut terminals = terminals.iter();
    for content in call.content.iter() {
        match content {
            ToolCallContent::Content(content) => {
                lines.extend(indented(&named(&content.content), width, Style::new()));
            }
            ToolCallContent::Diff(diff) => {
                lines.extend(changed(
                    &below(&diff.path, root),
                    diff.old_text.as_deref(),
                    &diff.new_text,
                    width,
                ));
            }
            ToolCallContent::Terminal(_) => match terminals.next().copied().flatten() {
                Some(screen) => {
                    let mut shown = screen.output.lines();
                    let hidden = shown.len().saturating_sub(MAX_PART);
                    shown.drain(..hidden);
                    for line in shown {
                        lines.extend(wrap(&line.spans, width, Break::Anywhere, &bar(), &bar()));
                    }
                    let end = match &screen.exit {
                        Some(exit) => format!("  ended: {exit}"),
                        None => "  running …".to_owned(),
                    };
                    lines.push(Line::styled(cut(&end, width), faint()));
                }
                None => lines.push(Line::styled(cut("  (its terminal is gone)", width), faint())),
            },
            // A kind of a later protocol.
            _ => lines.push(Line::styled(cut("  (content of an unknown kind)", width), faint())),
        }
        if lines.len() > 2 * MAX_LINES {
            break;
        }
    }
    if lines.is_empty() {
        match call.raw_output.as_deref() {
            Some(serde_json::Value::String(text)) => lines.extend(indented(text, width, Style::new())),
            Some(value) => {
                let text = serde_json::to_string_pretty(value).unwrap_or_default();
                lines.extend(indented(&text, width, Style::new()));
            }
            None => lines.push(Line::styled(cut("  nothing to show", width), faint())),
        }
    }
    let shown = |location: &&ToolCallLocation| {
        let has = |content: &ToolCallContent| matches!(content, ToolCallContent::Diff(diff) if diff.path == location.path);
        !call.content.iter().take(MAX_PLACES).any(has)
    };
    for location in call.locations.iter().take(MAX_PLACES).filter(shown) {
        let line = location.line.map(|line| format!(":{line}")).unwrap_or_default();
        let text = format!("  at {}{line}", below(&location.path, root));
        lines.push(Line::styled(cut(&text, width), faint()));
    }
    lines
}

/// Returns a file's name from the root on, if it lies below it.
fn below(path: &Path, root: &str) -> String {
    let way = path.strip_prefix(root).ok().filter(|way| !root.is_empty() && !way.as_os_str().is_empty());
    way.unwrap_or(path).to_string_lossy().into_owned()
}

fn bar() -> [Span<'static>; 1] {
    [Span::styled("  │ ", faint())]
}

/// Returns a change as a diff under the name of its file.
fn changed(path: &str, before: Option<&str>, after: &str, width: usize) -> Vec<Line<'static>> {
    let stat = stat(before.unwrap_or(""), after);
    let head = format!("  {path}  +{} −{}", stat.added, stat.removed);
    let mut lines = vec![Line::styled(cut(&head, width), Style::new().add_modifier(Modifier::BOLD))];
    let room = u16::try_from(width.saturating_sub(2)).unwrap_or(u16::MAX);
    let drawn = diff::lines(before, Some(after), room, diff::Layout::Unified);
    let hidden = drawn.len().saturating_sub(MAX_PART);
    lines.extend(drawn.into_iter().take(MAX_PART).map(shifted));
    if hidden > 0 {
        lines.push(Line::styled(cut(&format!("  … {hidden} more lines"), width), faint()));
    }
    lines
}
