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

use crate::terminal::views::{TerminalView, TerminalViews};
use crate::view::item_lines::{self, LayoutOptions};
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
        let previous_items = items.into_iter().skip(skipped).map(|(_, item)| item).collect();
        let timings = std::mem::take(&mut self.timings);
        let root = std::mem::take(&mut self.root);
        *self = Self { previous_items, timings, root, size: self.size, now: self.now, ..Self::default() };
        self.rebuild_items();
    }

    /// Sets the time, and whether a turn is running.
    pub(crate) fn set_time(&mut self, now: Duration, is_turn_running: bool) {
        if self.is_turn_running && !is_turn_running {
            // A call that its agent never finished stops counting when the turn ends.
            self.timings.stop(now);
        }
        (self.now, self.is_turn_running) = (now, is_turn_running);
    }

    /// Adds the user's prompt.
    pub(crate) fn add_prompt(&mut self, text: String) {
        self.add_local_item(ConversationItem::Prompt(text));
        self.scroll = ScrollPosition::End;
    }

    /// Adds a note.
    pub(crate) fn add_note(&mut self, level: NoteLevel, text: impl Into<String>) {
        self.add_local_item(ConversationItem::Note(ConversationNote { level, text: text.into() }));
    }

    fn add_local_item(&mut self, item: ConversationItem) {
        let position = self.timeline_end;
        self.local_items.push_back(LocalItem { number: self.local_total, position, item });
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
        let mut local_items = self.local_items.iter().peekable();
        let mut position = TimelinePosition::default();
        if let Some(snapshot) = &self.snapshot {
            let evicted = snapshot.evictions();
            position = TimelinePosition {
                messages: evicted.messages.items,
                calls: evicted.tool_calls.items,
                compactions: evicted.compactions.items,
            };
            for entry in snapshot.timeline() {
                let comes_before = |local: TimelinePosition| match entry {
                    TimelineEntry::Message(_) => local.messages <= position.messages,
                    TimelineEntry::ToolCall(_) => local.calls <= position.calls,
                    TimelineEntry::Compaction(_) => local.compactions <= position.compactions,
                };
                while let Some(local) = local_items.next_if(|local| comes_before(local.position)) {
                    // If an agent does repeat the prompt, it is shown once.
                    let repeated = match (&local.item, entry) {
                        (ConversationItem::Prompt(text), TimelineEntry::Message(message)) => {
                            message.kind == MessageKind::User && message.text().trim() == text.trim()
                        }
                        _ => false,
                    };
                    if !repeated {
                        items.push((ConversationItemKey::Local(local.number), local.item.clone()));
                    }
                }
                let (key, item) = match entry {
                    TimelineEntry::Message(message) => (
                        ConversationItemKey::Message(position.messages),
                        ConversationItem::Message(message.clone()),
                    ),
                    TimelineEntry::ToolCall(call) => (
                        ConversationItemKey::ToolCall(position.calls),
                        ConversationItem::ToolCall(call.clone()),
                    ),
                    TimelineEntry::Compaction(compaction) => (
                        ConversationItemKey::Compaction(position.compactions),
                        ConversationItem::Compaction(compaction.clone()),
                    ),
                };
                match key {
                    ConversationItemKey::Message(_) => position.messages += 1,
                    ConversationItemKey::ToolCall(_) => position.calls += 1,
                    _ => position.compactions += 1,
                }
                items.push((key, item));
            }
        }
        items.extend(local_items.map(|local| (ConversationItemKey::Local(local.number), local.item.clone())));
        (self.items, self.timeline_end) = (items, position);
    }

    fn is_open(&self, index: usize) -> bool {
        let Some((key, item)) = self.items.get(index) else { return false };
        if let Some(open) = self.open_overrides.get(key) {
            return *open;
        }
        let is_last = index + 1 == self.items.len();
        item_lines::is_open_by_default(item, is_last && self.is_turn_running)
    }

    /// Lays out an item unless its layout is cached, and returns its lines. A blank line separates it from an unrelated
    /// item above.
    fn layout_item(&mut self, index: usize) -> &[Line<'static>] {
        let Some((key, item)) = self.items.get(index) else { return &[] };
        let key = *key;
        let previous = index.checked_sub(1).and_then(|previous| self.items.get(previous));
        let both_calls = matches!(
            (previous, item),
            (Some((_, ConversationItem::ToolCall(_))), ConversationItem::ToolCall(_))
        );
        let elapsed = match item {
            ConversationItem::ToolCall(call) => self.timings.elapsed(&call.id, self.now),
            _ => None,
        };
        let options = LayoutOptions {
            width: self.size.0,
            is_open: self.is_open(index),
            has_gap: previous.is_some() && !both_calls,
            elapsed,
        };
        let terminals = item_lines::terminal_ids(item).map(|id| self.terminals.get(id));
        let terminals: Vec<Option<&TerminalView>> = terminals.collect();
        let version = terminals.iter().flatten().map(|terminal| terminal.version() + 1).sum();
        let layout_key = item_lines::LayoutKey::new(item, options, version);
        let is_cached = self.layout_cache.get(&key).is_some_and(|cached| cached.key == layout_key);
        if !is_cached {
            let lines = item_lines::render_item(item, options, &terminals, &self.root);
            self.layout_cache.insert(key, CachedLayout { key: layout_key, lines });
        }
        self.layout_cache.get(&key).map_or(&[], |cached| &cached.lines)
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
                    let mut index = start;
                    while lines.len() < height && index < self.items.len() {
                        let from = if index == start { line } else { 0 };
                        let room = height - lines.len();
                        let rendered =
                            self.layout_item(index).iter().cloned().enumerate().skip(from).take(room);
                        lines.extend(rendered.map(|(number, line)| (index, number, line)));
                        index += 1;
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
            let mut index = self.items.len();
            while lines.len() < height && index > 0 {
                index -= 1;
                let room = height - lines.len();
                let rendered = self.layout_item(index);
                let skipped = rendered.len().saturating_sub(room);
                for (number, line) in rendered.iter().cloned().enumerate().skip(skipped).rev() {
                    lines.push_front((index, number, line));
                }
            }
        }
        self.top = lines.front().and_then(|(index, line, _)| Some((self.items.get(*index)?.0, *line)));
        let visible: HashSet<ConversationItemKey> =
            lines.iter().filter_map(|(index, ..)| Some(self.items.get(*index)?.0)).collect();
        if self.layout_cache.len() > MAX_CACHED_LAYOUTS {
            self.layout_cache.retain(|key, _| visible.contains(key));
        }
        let selected = self.selected.and_then(|key| self.index_of(key));
        let selected_row = selected.and_then(|selected| {
            // Its first line comes after the blank line.
            let gap = self.layout_item(selected).first().is_some_and(|line| line.width() == 0);
            lines.iter().position(|(index, line, _)| *index == selected && *line == usize::from(gap))
        });
        let match_row = self.search_hit.and_then(|(key, line)| Some((self.index_of(key)?, line)));
        let match_row = match_row
            .and_then(|position| lines.iter().position(|(index, line, _)| (*index, *line) == position));
        (lines.into_iter().map(|(_, _, line)| line).collect(), match_row.or(selected_row))
    }

    /// Returns whether the end is visible.
    pub(crate) fn is_following(&self) -> bool {
        self.scroll == ScrollPosition::End
    }

    /// Scrolls by some lines; negative is up.
    pub(crate) fn scroll(&mut self, delta: isize) {
        let Some((key, mut line)) = self.top else { return };
        let Some(mut index) = self.index_of(key) else { return };
        let mut remaining = delta.unsigned_abs();
        if delta < 0 {
            while remaining > line && index > 0 {
                remaining -= line;
                index -= 1;
                line = self.layout_item(index).len();
            }
            line = line.saturating_sub(remaining);
        } else {
            if self.is_following() {
                return;
            }
            while index < self.items.len() {
                let rest = self.layout_item(index).len().saturating_sub(line);
                if remaining < rest {
                    break;
                }
                remaining -= rest;
                (index, line) = (index + 1, 0);
            }
            line += remaining;
        }
        self.scroll = match self.items.get(index) {
            Some((key, _)) => {
                // The next key may come before the next frame.
                self.top = Some((*key, line));
                ScrollPosition::At(*key, line)
            }
            None => ScrollPosition::End,
        };
    }

    /// Scrolls by screens; negative is up.
    pub(crate) fn scroll_page(&mut self, pages: isize) {
        let page = isize::try_from(self.size.1.saturating_sub(2).max(1)).unwrap_or(1);
        self.scroll(pages.saturating_mul(page));
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
        let is_expandable =
            |index: &usize| self.items.get(*index).is_some_and(|(_, item)| item_lines::is_expandable(item));
        let target = match self.selected.and_then(|key| self.index_of(key)) {
            None => (0..self.items.len()).rev().find(is_expandable),
            Some(index) if forward => (index + 1..self.items.len()).find(is_expandable).or(Some(index)),
            Some(index) => (0..index).rev().find(is_expandable).or(Some(index)),
        };
        let Some(index) = target else { return false };
        self.selected = self.items.get(index).map(|(key, _)| *key);
        self.scroll_into_view(index);
        true
    }

    /// Clears the selection.
    pub(crate) fn deselect(&mut self) {
        self.selected = None;
    }

    /// Opens the selected item, or closes it.
    pub(crate) fn toggle_selected(&mut self) {
        let Some(key) = self.selected else { return };
        let Some(index) = self.index_of(key) else { return };
        let open = !self.is_open(index);
        self.open_overrides.insert(key, open);
        self.scroll_into_view(index);
    }

    fn scroll_into_view(&mut self, index: usize) {
        let (width, height) = self.size;
        let (_, selected_row) = self.visible_lines(width, height);
        if selected_row.is_some() {
            // The lines below it should be visible too, if they are few.
            return;
        }
        if let Some((key, _)) = self.items.get(index) {
            self.scroll = ScrollPosition::At(*key, 0);
            self.top = Some((*key, 0));
            self.scroll(-isize::try_from(height / 3).unwrap_or(0));
        }
    }
}

#[cfg(test)]
mod tests;
