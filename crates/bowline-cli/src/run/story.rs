//! What happens in a turn, told to a person as it happens: what the agent says and thinks, its plan, its tool calls.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::path::Path;
use std::time::{Duration, Instant};

use bowline_state::accumulator::{Change, MessageKind, Snapshot, ToolCallView};
use bowline_state::display;
use bowline_state::schema::v1::{
    ContentBlock, ContentChunk, NoticeSeverity, PlanEntry, PlanEntryStatus, SessionNotification,
    SessionUpdate, ToolCallContent, ToolCallId, ToolCallStatus, ToolKind,
};

use super::paint::{Paint, safe, time};

/// A call that takes longer is told of before it has ended.
const SLOW: Duration = Duration::from_secs(1);
/// So many calls are timed at once, and so many that have ended are known by what was told of them.
const MAX_OPEN: usize = 4096;
/// Of one call, so many parts of what it did are known to be told.
const MAX_PARTS: usize = 256;
/// So much of a title is shown, in bytes.
const MAX_TITLE: usize = 300;
/// So many of the last lines of what a command wrote are shown, and bytes.
const MAX_OUTPUT: (usize, usize) = (12, 4 << 10);

/// Tells a turn.
#[derive(Debug)]
pub(super) struct Story {
    paint: Paint,
    // What paths are shown without.
    cwd: String,
    place: Place,
    open: HashMap<ToolCallId, OpenCall>,
    // The parts that were told of calls that have ended. What comes late is told once, and not the whole call again.
    told: HashMap<ToolCallId, HashSet<u64>>,
    // The call that the last line is of.
    last: Option<ToolCallId>,
    plan: Vec<PlanEntry>,
}

/// A call that has not ended.
#[derive(Debug)]
struct OpenCall {
    since: Instant,
    is_told: bool,
}

/// Where the last line stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Nothing was told yet.
    Start,
    /// In what the agent says or thinks; and whether a line has begun.
    Words(MessageKind, bool),
    /// After a line of its own.
    Line,
}

impl Story {
    pub(super) fn new(paint: Paint, cwd: &Path) -> Self {
        Self {
            paint,
            cwd: format!("{}/", cwd.display()),
            place: Place::Start,
            open: HashMap::new(),
            told: HashMap::new(),
            last: None,
            plan: Vec::new(),
        }
    }

    /// Tells of an update. `output` finds what a terminal shows.
    pub(super) fn update(
        &mut self,
        notification: &SessionNotification,
        change: &Change,
        snapshot: &Snapshot,
        now: Instant,
        output: impl Fn(&str) -> Option<String>,
    ) -> String {
        match (&notification.update, change) {
            (SessionUpdate::AgentMessageChunk(chunk), change) => {
                self.words(MessageKind::Agent, chunk, matches!(change, Change::MessageStarted(_)))
            }
            (SessionUpdate::AgentThoughtChunk(chunk), change) => {
                self.words(MessageKind::Thought, chunk, matches!(change, Change::MessageStarted(_)))
            }
            (_, Change::Plan) => self.plan(snapshot.plan()),
            (_, Change::ToolCallAdded(id) | Change::ToolCallUpdated(id) | Change::ToolCallFinished(id)) => {
                snapshot.tool_call(id).map(|call| self.call(call, now, output)).unwrap_or_default()
            }
            (SessionUpdate::Notice(notice), _) => {
                let text = match &notice.description {
                    Some(description) => format!("{}: {description}", notice.title),
                    None => notice.title.clone(),
                };
                let text = display::line(&text, 2000);
                let text = match notice.severity {
                    NoticeSeverity::Info => self.paint.dim(&text),
                    _ => self.paint.yellow(&text),
                };
                self.line(&format!("! {text}"))
            }
            (_, Change::CompactionAdded(_)) => {
                self.line(&self.paint.dim("~ the conversation is being shortened"))
            }
            _ => String::new(),
        }
    }

    /// Tells of calls that take long.
    pub(super) fn tick(&mut self, snapshot: &Snapshot, now: Instant) -> String {
        let slow: Vec<ToolCallId> = self
            .open
            .iter_mut()
            .filter(|(_, call)| !call.is_told && now.duration_since(call.since) >= SLOW)
            .map(|(id, call)| {
                call.is_told = true;
                id.clone()
            })
            .collect();
        let mut told = String::new();
        for call in snapshot.tool_calls().filter(|call| slow.contains(&call.id)) {
            told += &self.line(&format!("… {}", self.head(call)));
        }
        told
    }

    /// Ends what was begun: calls that did not end are told, and the last line.
    pub(super) fn end(&mut self, snapshot: &Snapshot, now: Instant) -> String {
        let mut told = String::new();
        for call in snapshot.tool_calls() {
            if let Some(open) = self.open.remove(&call.id) {
                let end = if call.cancelled { "cancelled" } else { "not finished" };
                let took = time(now.duration_since(open.since));
                let line = format!("{} {} ({end}, {took})", self.paint.yellow("-"), self.head(call));
                told += &self.line(&line);
            }
        }
        if let Place::Words(_, true) = self.place {
            told += "\n";
            self.place = Place::Line;
        }
        told
    }

    /// Ends the line that has begun, because something else is written to the same screen.
    pub(super) fn pause(&mut self) -> String {
        let begun = matches!(self.place, Place::Words(_, true));
        if self.place != Place::Start {
            self.place = Place::Line;
        }
        if begun { "\n".to_owned() } else { String::new() }
    }

    /// Returns a line of its own, behind what came before it.
    pub(super) fn line(&mut self, text: &str) -> String {
        let before = match self.place {
            Place::Start | Place::Line => "",
            Place::Words(_, false) => "\n",
            Place::Words(_, true) => "\n\n",
        };
        (self.place, self.last) = (Place::Line, None);
        format!("{before}{text}\n")
    }

    fn words(&mut self, kind: MessageKind, chunk: &ContentChunk, is_new: bool) -> String {
        let text = match &chunk.content {
            ContentBlock::Text(text) => safe(&text.text),
            ContentBlock::ResourceLink(link) => format!("[{}]", display::line(&link.uri, MAX_TITLE)),
            ContentBlock::Image(_) => "[an image]".to_owned(),
            ContentBlock::Audio(_) => "[a sound]".to_owned(),
            ContentBlock::Resource(_) => "[a file]".to_owned(),
            // What a later protocol has.
            _ => "[something that cannot be shown]".to_owned(),
        };
        if text.is_empty() {
            return text;
        }
        self.last = None;
        let mut told = String::new();
        match self.place {
            Place::Start => {}
            Place::Words(before, begun) if before != kind || is_new => {
                told += if begun { "\n\n" } else { "\n" };
            }
            Place::Words(..) => {}
            Place::Line => told += "\n",
        }
        let goes_on = told.is_empty() && matches!(self.place, Place::Words(_, true));
        self.place = Place::Words(kind, !text.ends_with('\n'));
        if kind == MessageKind::Agent {
            return told + &text;
        }
        for (at, line) in text.split_inclusive('\n').enumerate() {
            let margin = if at == 0 && goes_on { "" } else { "┊ " };
            let (body, end) = line.strip_suffix('\n').map_or((line, ""), |body| (body, "\n"));
            told += &format!("{}{end}", self.paint.dim(&format!("{margin}{body}")));
        }
        told
    }

    fn plan(&mut self, plan: &[PlanEntry]) -> String {
        let same = plan.len() == self.plan.len()
            && plan.iter().zip(&self.plan).all(|(new, old)| new.content == old.content);
        let news: Vec<&PlanEntry> = plan
            .iter()
            .enumerate()
            .filter(|(at, entry)| !same || self.plan[*at].status != entry.status)
            .map(|(_, entry)| entry)
            .collect();
        let mut told =
            if same || plan.is_empty() { String::new() } else { self.line(&self.paint.bold("Plan")) };
        for entry in news {
            let mark = match entry.status {
                PlanEntryStatus::Completed => self.paint.green("☑"),
                PlanEntryStatus::InProgress => self.paint.cyan("▸"),
                // A status of a later protocol is not done yet as far as anybody knows.
                _ => "☐".to_owned(),
            };
            told += &self.line(&format!("  {mark} {}", display::line(&entry.content, MAX_TITLE)));
        }
        self.plan = plan.to_vec();
        told
    }

    fn call(&mut self, call: &ToolCallView, now: Instant, output: impl Fn(&str) -> Option<String>) -> String {
        if !call.is_finished() {
            if self.open.len() < MAX_OPEN {
                self.open.entry(call.id.clone()).or_insert(OpenCall { since: now, is_told: false });
            }
            return String::new();
        }
        let before = self.told.remove(&call.id);
        let is_new = before.is_none();
        let mut known = before.unwrap_or_default();
        let mut parts = String::new();
        for (at, content) in call.content.iter().enumerate() {
            let part = self.part(call, content, &output);
            // What a command showed may have gone on meanwhile; it is told once all the same.
            let key = match content {
                ToolCallContent::Terminal(terminal) => key(&terminal.terminal_id),
                // Two files may have been changed in the same way.
                ToolCallContent::Diff(diff) => key(&(&diff.path, &part)),
                _ => key(&(at, &part)),
            };
            if known.len() < MAX_PARTS && known.insert(key) {
                parts += &part;
            }
        }
        if self.told.len() < MAX_OPEN {
            self.told.insert(call.id.clone(), known);
        }
        let head = if is_new {
            let since = self.open.remove(&call.id).map_or(now, |open| open.since);
            let failed = call.status == ToolCallStatus::Failed;
            let mark = if failed { self.paint.red("✗") } else { self.paint.green("✓") };
            let took = self.paint.dim(&format!("({})", time(now.duration_since(since))));
            self.line(&format!("{mark} {} {took}", self.head(call)))
        } else if parts.is_empty() {
            return String::new();
        } else if self.last.as_ref() == Some(&call.id) {
            String::new()
        } else {
            self.line(&format!("  {}, later:", self.head(call)))
        };
        self.last = Some(call.id.clone());
        head + &parts
    }

    /// Returns what is shown of one part of what a call did.
    fn part(
        &self,
        call: &ToolCallView,
        content: &ToolCallContent,
        output: &impl Fn(&str) -> Option<String>,
    ) -> String {
        let failed = call.status == ToolCallStatus::Failed;
        match content {
            ToolCallContent::Diff(diff) if !failed => {
                self.paint.diff(diff.old_text.as_deref(), &diff.new_text)
            }
            ToolCallContent::Terminal(terminal) => {
                output(&terminal.terminal_id.0).map(|text| self.output(&text)).unwrap_or_default()
            }
            // What was read or found is for the agent; why something failed, and what a command said, is not.
            ToolCallContent::Content(content) if failed || call.kind == ToolKind::Execute => {
                match &content.content {
                    ContentBlock::Text(text) => self.output(&text.text),
                    _ => String::new(),
                }
            }
            _ => String::new(),
        }
    }

    fn output(&self, text: &str) -> String {
        // Fences are for whoever renders them.
        let lines: Vec<&str> = text.trim_end().lines().filter(|line| !line.starts_with("```")).collect();
        let cut = lines.len().saturating_sub(MAX_OUTPUT.0);
        let mut told = String::new();
        if cut > 0 {
            told += &format!("    {}\n", self.paint.dim(&format!("… {cut} lines before")));
        }
        let block = display::block(&lines[cut..].join("\n"), MAX_OUTPUT.0, MAX_OUTPUT.1);
        told.extend(
            block
                .text
                .lines()
                .map(|line| format!("    {}", self.paint.dim(line)).trim_end().to_owned() + "\n"),
        );
        told
    }

    /// Returns what a call is, on one line.
    fn head(&self, call: &ToolCallView) -> String {
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
            // Of a kind that has no name here either.
            _ => "tool",
        };
        let title = display::line(&call.title.replace(&self.cwd, ""), MAX_TITLE);
        format!("{kind}: {}", self.paint.bold(&title))
    }
}

fn key(part: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    part.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
