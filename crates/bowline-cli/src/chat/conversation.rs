//! The conversation as lines on a screen.
//!
//! Only visible items are laid out: a position in the conversation is an item and a line within it, not a number of
//! lines from the start. Layouts are cached until the item or the width of the screen changes.

mod search;
mod timings;

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use bowline_protocol::accumulator::{
    Compaction, MessageKind, SessionMessage, SessionSnapshot, TimelineEntry, ToolCallView,
};
use ratatui::text::Line;

use super::item_lines::{self, LayoutOptions};
use super::terminals::{TerminalView, TerminalViews};
pub(crate) use search::SearchDirection;
use timings::ToolCallTimings;

/// The maximum number of local prompts and notes kept; the oldest are dropped.
const MAX_LOCAL_ITEMS: usize = 2000;

/// The maximum number of items of a previous session kept; the oldest are dropped.
const MAX_PREVIOUS_ITEMS: usize = 2000;

/// The maximum number of cached layouts.
const MAX_CACHED_LAYOUTS: usize = 1000;

/// Identifies an item while the session is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ConversationItemKey {
    /// A message, by its number.
    Message(u64),
    /// A tool call, by its number.
    ToolCall(u64),
    /// A compaction, by its number.
    Compaction(u64),
    /// A local item, by its number.
    Local(u64),
    /// An item of a previous session, by its number.
    Previous(u64),
}

/// An item of the conversation.
#[derive(Debug, Clone)]
pub(crate) enum ConversationItem {
    /// A message or thought.
    Message(SessionMessage),
    /// A tool call.
    ToolCall(ToolCallView),
    /// A compaction.
    Compaction(Compaction),
    /// A prompt that the user sent here: most agents do not repeat it.
    Prompt(String),
    /// A note of Bowline's own.
    Note(ConversationNote),
}

/// A note of Bowline's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConversationNote {
    /// Its severity.
    pub(crate) level: NoteLevel,
    /// Its text.
    pub(crate) text: String,
}

/// The severity of a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoteLevel {
    /// Information.
    Info,
    /// The output of the user's shell command.
    Output,
    /// A warning.
    Warning,
    /// An error.
    Error,
}

// How many of the agent's items there were when a local item was added after them.
#[derive(Debug, Clone, Copy, Default)]
struct TimelinePosition {
    messages: u64,
    calls: u64,
    compactions: u64,
}

#[derive(Debug)]
struct LocalItem {
    number: u64,
    position: TimelinePosition,
    item: ConversationItem,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScrollPosition {
    End,
    At(ConversationItemKey, usize),
}

#[derive(Debug)]
struct CachedLayout {
    key: item_lines::LayoutKey,
    lines: Vec<Line<'static>>,
}

/// All items of the conversation and their layout.
#[derive(Debug)]
pub(crate) struct Conversation {
    snapshot: Option<SessionSnapshot>,
    // Items of a previous session that this one continues but cannot replay.
    previous_items: Vec<ConversationItem>,
    local_items: VecDeque<LocalItem>,
    local_total: u64,
    timeline_end: TimelinePosition,
    items: Vec<(ConversationItemKey, ConversationItem)>,
    // Items that the user opened or closed; the others follow their kind and state.
    open_overrides: HashMap<ConversationItemKey, bool>,
    selected: Option<ConversationItemKey>,
    // The line of the last search match.
    search_hit: Option<(ConversationItemKey, usize)>,
    scroll: ScrollPosition,
    // The first visible line, and the size, as of the last frame.
    top: Option<(ConversationItemKey, usize)>,
    size: (usize, usize),
    layout_cache: HashMap<ConversationItemKey, CachedLayout>,
    timings: ToolCallTimings,
    terminals: TerminalViews,
    now: Duration,
    is_turn_running: bool,
    root: String,
}

impl Default for Conversation {
    fn default() -> Self {
        Self {
            snapshot: None,
            previous_items: Vec::new(),
            local_items: VecDeque::new(),
            local_total: 0,
            timeline_end: TimelinePosition::default(),
            items: Vec::new(),
            open_overrides: HashMap::new(),
            selected: None,
            search_hit: None,
            scroll: ScrollPosition::End,
            top: None,
            size: (80, 20),
            layout_cache: HashMap::new(),
            timings: ToolCallTimings::default(),
            terminals: TerminalViews::default(),
            now: Duration::ZERO,
            is_turn_running: false,
            root: String::new(),
        }
    }
}

impl Conversation {
    /// Returns an empty conversation about the files below a directory.
    pub(crate) fn new(root: String) -> Self {
        Self { root, ..Self::default() }
    }

    /// Updates to a snapshot of the session.
    pub(crate) fn update(&mut self, snapshot: SessionSnapshot, now: Duration) {
        self.now = now;
        self.timings.update(&snapshot, now, self.is_turn_running);
        self.snapshot = Some(snapshot);
        self.rebuild_items();
    }

    /// Clears everything: another session is shown from here on.
    pub(crate) fn clear(&mut self) {
        let root = std::mem::take(&mut self.root);
        *self = Self { root, size: self.size, now: self.now, ..Self::default() };
    }

    /// Continues with another session below the current items.
    pub(crate) fn continue_in_new_session(&mut self) {
        let items = std::mem::take(&mut self.items);
        let skipped = items.len().saturating_sub(MAX_PREVIOUS_ITEMS);
        let past = items.into_iter().skip(skipped).map(|(_, item)| item).collect();
        let timings = std::mem::take(&mut self.timings);
        let root = std::mem::take(&mut self.root);
        *self =
            Self { previous_items: past, timings, root, size: self.size, now: self.now, ..Self::default() };
        self.rebuild_items();
    }

    /// Sets the time, and whether a turn is running.
    pub(crate) fn set_time(&mut self, now: Duration, running: bool) {
        if self.is_turn_running && !running {
            // A call that its agent never finished stops counting when the turn ends.
            self.timings.stop(now);
        }
        (self.now, self.is_turn_running) = (now, running);
    }

    /// Adds the user's prompt.
    pub(crate) fn add_prompt(&mut self, text: String) {
        self.add_local_item(ConversationItem::Prompt(text));
        self.scroll = ScrollPosition::End;
    }

    /// Adds a note.
    pub(crate) fn add_note(&mut self, tone: NoteLevel, text: impl Into<String>) {
        self.add_local_item(ConversationItem::Note(ConversationNote { level: tone, text: text.into() }));
    }

    fn add_local_item(&mut self, item: ConversationItem) {
        let after = self.timeline_end;
        self.local_items.push_back(LocalItem { number: self.local_total, position: after, item });
        self.local_total += 1;
        if self.local_items.len() > MAX_LOCAL_ITEMS {
            self.local_items.pop_front();
        }
        self.rebuild_items();
    }

    /// Returns the terminals of the session's commands.
    pub(crate) fn terminals_mut(&mut self) -> &mut TerminalViews {
        &mut self.terminals
    }

    /// Returns whether there is nothing to show.
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns the session's snapshot, if it has sent anything.
    pub(crate) fn snapshot(&self) -> Option<&SessionSnapshot> {
        self.snapshot.as_ref()
    }

    /// Merges the agent's items and the local items into one order.
    fn rebuild_items(&mut self) {
        let mut items: Vec<(ConversationItemKey, ConversationItem)> =
            Vec::with_capacity(self.items.len() + 1);
        items.extend((0..).map(ConversationItemKey::Previous).zip(self.previous_items.iter().cloned()));
        let mut own = self.local_items.iter().peekable();
        let mut at = TimelinePosition::default();
        if let Some(snapshot) = &self.snapshot {
            let dropped = snapshot.evictions();
            at = TimelinePosition {
                messages: dropped.messages.items,
                calls: dropped.tool_calls.items,
                compactions: dropped.compactions.items,
            };
            for entry in snapshot.timeline() {
                let comes_before = |after: TimelinePosition| match entry {
                    TimelineEntry::Message(_) => after.messages <= at.messages,
                    TimelineEntry::ToolCall(_) => after.calls <= at.calls,
                    TimelineEntry::Compaction(_) => after.compactions <= at.compactions,
                };
                while let Some(own) = own.next_if(|own| comes_before(own.position)) {
                    // If an agent does repeat the prompt, it is shown once.
                    let repeated = match (&own.item, entry) {
                        (ConversationItem::Prompt(text), TimelineEntry::Message(message)) => {
                            message.kind == MessageKind::User && message.text().trim() == text.trim()
                        }
                        _ => false,
                    };
                    if !repeated {
                        items.push((ConversationItemKey::Local(own.number), own.item.clone()));
                    }
                }
                let (key, item) = match entry {
                    TimelineEntry::Message(message) => (
                        ConversationItemKey::Message(at.messages),
                        ConversationItem::Message(message.clone()),
                    ),
                    TimelineEntry::ToolCall(call) => {
                        (ConversationItemKey::ToolCall(at.calls), ConversationItem::ToolCall(call.clone()))
                    }
                    TimelineEntry::Compaction(it) => (
                        ConversationItemKey::Compaction(at.compactions),
                        ConversationItem::Compaction(it.clone()),
                    ),
                };
                match key {
                    ConversationItemKey::Message(_) => at.messages += 1,
                    ConversationItemKey::ToolCall(_) => at.calls += 1,
                    _ => at.compactions += 1,
                }
                items.push((key, item));
            }
        }
        items.extend(own.map(|own| (ConversationItemKey::Local(own.number), own.item.clone())));
        (self.items, self.timeline_end) = (items, at);
    }

    fn is_open(&self, at: usize) -> bool {
        let Some((key, item)) = self.items.get(at) else { return false };
        if let Some(open) = self.open_overrides.get(key) {
            return *open;
        }
        let is_last = at + 1 == self.items.len();
        item_lines::is_open_by_default(item, is_last && self.is_turn_running)
    }

    /// Lays out an item unless its layout is cached, and returns its lines. A blank line separates it from an unrelated
    /// item above.
    fn layout_item(&mut self, at: usize) -> &[Line<'static>] {
        let Some((key, item)) = self.items.get(at) else { return &[] };
        let key = *key;
        let before = at.checked_sub(1).and_then(|before| self.items.get(before));
        let both_calls = matches!(
            (before, item),
            (Some((_, ConversationItem::ToolCall(_))), ConversationItem::ToolCall(_))
        );
        let took = match item {
            ConversationItem::ToolCall(call) => self.timings.elapsed(&call.id, self.now),
            _ => None,
        };
        let look = LayoutOptions {
            width: self.size.0,
            is_open: self.is_open(at),
            has_gap: before.is_some() && !both_calls,
            elapsed: took,
        };
        let shown = item_lines::terminal_ids(item).map(|id| self.terminals.get(id));
        let shown: Vec<Option<&TerminalView>> = shown.collect();
        let version = shown.iter().flatten().map(|screen| screen.version() + 1).sum();
        let print = item_lines::LayoutKey::new(item, look, version);
        let is_laid = self.layout_cache.get(&key).is_some_and(|laid| laid.key == print);
        if !is_laid {
            let lines = item_lines::render_item(item, look, &shown, &self.root);
            self.layout_cache.insert(key, CachedLayout { key: print, lines });
        }
        self.layout_cache.get(&key).map_or(&[], |laid| &laid.lines)
    }

    fn index_of(&self, key: ConversationItemKey) -> Option<usize> {
        self.items.iter().position(|(known, _)| *known == key)
    }

    /// Returns the visible lines, with the position of the selected item's first line among them.
    pub(crate) fn visible_lines(
        &mut self,
        width: usize,
        height: usize,
    ) -> (Vec<Line<'static>>, Option<usize>) {
        self.terminals.resize(width);
        self.size = (width, height);
        let mut lines: VecDeque<(usize, usize, Line<'static>)> = VecDeque::new();
        if let ScrollPosition::At(key, line) = self.scroll {
            match self.index_of(key) {
                Some(start) => {
                    let mut at = start;
                    while lines.len() < height && at < self.items.len() {
                        let from = if at == start { line } else { 0 };
                        let room = height - lines.len();
                        let laid = self.layout_item(at).iter().cloned().enumerate().skip(from).take(room);
                        lines.extend(laid.map(|(number, line)| (at, number, line)));
                        at += 1;
                    }
                    if lines.len() < height {
                        self.scroll = ScrollPosition::End;
                    }
                }
                None => self.scroll = ScrollPosition::End,
            }
        }
        if self.scroll == ScrollPosition::End {
            lines.clear();
            let mut at = self.items.len();
            while lines.len() < height && at > 0 {
                at -= 1;
                let room = height - lines.len();
                let laid = self.layout_item(at);
                let skipped = laid.len().saturating_sub(room);
                for (number, line) in laid.iter().cloned().enumerate().skip(skipped).rev() {
                    lines.push_front((at, number, line));
                }
            }
        }
        self.top = lines.front().and_then(|(at, line, _)| Some((self.items.get(*at)?.0, *line)));
        let in_sight: HashSet<ConversationItemKey> =
            lines.iter().filter_map(|(at, ..)| Some(self.items.get(*at)?.0)).collect();
        if self.layout_cache.len() > MAX_CACHED_LAYOUTS {
            self.layout_cache.retain(|key, _| in_sight.contains(key));
        }
        let selected = self.selected.and_then(|key| self.index_of(key));
        let mark = selected.and_then(|selected| {
            // Its first line comes after the blank line.
            let gap = self.layout_item(selected).first().is_some_and(|line| line.width() == 0);
            lines.iter().position(|(at, line, _)| *at == selected && *line == usize::from(gap))
        });
        let found = self.search_hit.and_then(|(key, line)| Some((self.index_of(key)?, line)));
        let found = found.and_then(|place| lines.iter().position(|(at, line, _)| (*at, *line) == place));
        (lines.into_iter().map(|(_, _, line)| line).collect(), found.or(mark))
    }

    /// Returns whether the end is visible.
    pub(crate) fn is_following(&self) -> bool {
        self.scroll == ScrollPosition::End
    }

    /// Scrolls by some lines; negative is up.
    pub(crate) fn scroll(&mut self, by: isize) {
        let Some((key, mut line)) = self.top else { return };
        let Some(mut at) = self.index_of(key) else { return };
        let mut left = by.unsigned_abs();
        if by < 0 {
            while left > line && at > 0 {
                left -= line;
                at -= 1;
                line = self.layout_item(at).len();
            }
            line = line.saturating_sub(left);
        } else {
            if self.is_following() {
                return;
            }
            while at < self.items.len() {
                let rest = self.layout_item(at).len().saturating_sub(line);
                if left < rest {
                    break;
                }
                left -= rest;
                (at, line) = (at + 1, 0);
            }
            line += left;
        }
        self.scroll = match self.items.get(at) {
            Some((key, _)) => {
                // The next key may come before the next frame.
                self.top = Some((*key, line));
                ScrollPosition::At(*key, line)
            }
            None => ScrollPosition::End,
        };
    }

    /// Scrolls by screens; negative is up.
    pub(crate) fn scroll_page(&mut self, by: isize) {
        let page = isize::try_from(self.size.1.saturating_sub(2).max(1)).unwrap_or(1);
        self.scroll(by.saturating_mul(page));
    }

    /// Scrolls to the first line.
    pub(crate) fn scroll_to_start(&mut self) {
        if let Some((key, _)) = self.items.first() {
            self.scroll = ScrollPosition::At(*key, 0);
        }
    }

    /// Scrolls to the end, and follows it.
    pub(crate) fn scroll_to_end(&mut self) {
        self.scroll = ScrollPosition::End;
    }

    /// Selects the next or previous item that can be opened, or the last one if none is selected. Returns whether there
    /// is one.
    pub(crate) fn move_selection(&mut self, forward: bool) -> bool {
        let can = |at: &usize| self.items.get(*at).is_some_and(|(_, item)| item_lines::is_expandable(item));
        let found = match self.selected.and_then(|key| self.index_of(key)) {
            None => (0..self.items.len()).rev().find(can),
            Some(at) if forward => (at + 1..self.items.len()).find(can).or(Some(at)),
            Some(at) => (0..at).rev().find(can).or(Some(at)),
        };
        let Some(at) = found else { return false };
        self.selected = self.items.get(at).map(|(key, _)| *key);
        self.scroll_into_view(at);
        true
    }

    /// Clears the selection.
    pub(crate) fn deselect(&mut self) {
        self.selected = None;
    }

    /// Opens the selected item, or closes it.
    pub(crate) fn toggle_selected(&mut self) {
        let Some(key) = self.selected else { return };
        let Some(at) = self.index_of(key) else { return };
        let open = !self.is_open(at);
        self.open_overrides.insert(key, open);
        self.scroll_into_view(at);
    }

    fn scroll_into_view(&mut self, at: usize) {
        let (width, height) = self.size;
        let (_, mark) = self.visible_lines(width, height);
        if mark.is_some() {
            // The lines below it should be visible too, if they are few.
            return;
        }
        if let Some((key, _)) = self.items.get(at) {
            self.scroll = ScrollPosition::At(*key, 0);
            self.top = Some((*key, 0));
            self.scroll(-isize::try_from(height / 3).unwrap_or(0));
        }
    }
}

#[cfg(test)]
mod tests;
