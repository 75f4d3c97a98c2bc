//! The conversation as lines on a screen.
//!
//! Only what is in sight is laid out: a place in the conversation is an item and a line of it, and not a number of lines
//! from the start. What was laid out is kept until the item changes or the screen has another width.

mod durations;
mod search;

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use bowline_state::accumulator::{Compaction, Entry, Message, MessageKind, Snapshot, ToolCallView};
use ratatui::text::Line;

use super::entry::{self, Look};
use super::live::{Screen, Terminals};
use durations::Timings;
pub(crate) use search::Direction;

/// So many prompts and remarks of our own are kept; the oldest go.
const MAX_OWN: usize = 2000;

/// So many items of a session before are kept; the oldest go.
const MAX_PAST: usize = 2000;

/// So many items are kept as they were laid out.
const MAX_LAID: usize = 1000;

/// Names an item, as long as the session is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// A message, by its number.
    Message(u64),
    /// A tool call, by its number.
    Call(u64),
    /// A compaction, by its number.
    Compaction(u64),
    /// One of our own, by its number.
    Own(u64),
    /// One of a session before, by its number.
    Past(u64),
}

/// Something in the conversation.
#[derive(Debug, Clone)]
pub(crate) enum Item {
    /// What was said or thought.
    Message(Message),
    /// A tool call.
    Call(ToolCallView),
    /// A compaction.
    Compaction(Compaction),
    /// What the person said here: most agents do not repeat it.
    Prompt(String),
    /// A remark of the program's own.
    Note(Note),
}

/// A remark of the program's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note {
    /// How grave it is.
    pub(crate) tone: Tone,
    /// What it says.
    pub(crate) text: String,
}

/// How grave a remark is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Good to know.
    Quiet,
    /// What a command of the person's own wrote.
    Output,
    /// Something to look at.
    Warning,
    /// Something went wrong.
    Error,
}

// Which things of the agent there were when something of our own was put behind them.
#[derive(Debug, Clone, Copy, Default)]
struct After {
    messages: u64,
    calls: u64,
    compactions: u64,
}

#[derive(Debug)]
struct Own {
    number: u64,
    after: After,
    item: Item,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scroll {
    End,
    At(Key, usize),
}

#[derive(Debug)]
struct Laid {
    print: entry::Print,
    lines: Vec<Line<'static>>,
}

/// Everything that was said and done, as it can be shown.
#[derive(Debug)]
pub(crate) struct Conversation {
    snapshot: Option<Snapshot>,
    // What was shown of a session before, which this one goes on with and cannot tell of.
    past: Vec<Item>,
    own: VecDeque<Own>,
    owned: u64,
    totals: After,
    items: Vec<(Key, Item)>,
    // What the person opened or closed; the rest is as its kind and state have it.
    opened: HashMap<Key, bool>,
    selected: Option<Key>,
    // The line that was found last.
    found: Option<(Key, usize)>,
    scroll: Scroll,
    // Where the first line in sight is, and the size, as it was drawn last.
    top: Option<(Key, usize)>,
    size: (usize, usize),
    laid: HashMap<Key, Laid>,
    timings: Timings,
    terminals: Terminals,
    now: Duration,
    running: bool,
    root: String,
}

impl Default for Conversation {
    fn default() -> Self {
        Self {
            snapshot: None,
            past: Vec::new(),
            own: VecDeque::new(),
            owned: 0,
            totals: After::default(),
            items: Vec::new(),
            opened: HashMap::new(),
            selected: None,
            found: None,
            scroll: Scroll::End,
            top: None,
            size: (80, 20),
            laid: HashMap::new(),
            timings: Timings::default(),
            terminals: Terminals::default(),
            now: Duration::ZERO,
            running: false,
            root: String::new(),
        }
    }
}

impl Conversation {
    /// Returns a conversation in which nothing was said, about the files below a directory.
    pub(crate) fn new(root: String) -> Self {
        Self { root, ..Self::default() }
    }

    /// Takes in the session as it stands.
    pub(crate) fn update(&mut self, snapshot: Snapshot, now: Duration) {
        self.now = now;
        self.timings.update(&snapshot, now, self.running);
        self.snapshot = Some(snapshot);
        self.arrange();
    }

    /// Forgets everything: another session is shown from here on.
    pub(crate) fn clear(&mut self) {
        let root = std::mem::take(&mut self.root);
        *self = Self { root, size: self.size, now: self.now, ..Self::default() };
    }

    /// Goes on with another session below what is shown.
    pub(crate) fn go_on(&mut self) {
        let items = std::mem::take(&mut self.items);
        let skipped = items.len().saturating_sub(MAX_PAST);
        let past = items.into_iter().skip(skipped).map(|(_, item)| item).collect();
        let timings = std::mem::take(&mut self.timings);
        let root = std::mem::take(&mut self.root);
        *self = Self { past, timings, root, size: self.size, now: self.now, ..Self::default() };
        self.arrange();
    }

    /// Says what time it is, and whether a turn goes on.
    pub(crate) fn tick(&mut self, now: Duration, running: bool) {
        if self.running && !running {
            // A call that its agent never ended does not go on for ever.
            self.timings.stop(now);
        }
        (self.now, self.running) = (now, running);
    }

    /// Adds what the person said.
    pub(crate) fn prompt(&mut self, text: String) {
        self.add(Item::Prompt(text));
        self.scroll = Scroll::End;
    }

    /// Adds a remark.
    pub(crate) fn note(&mut self, tone: Tone, text: impl Into<String>) {
        self.add(Item::Note(Note { tone, text: text.into() }));
    }

    fn add(&mut self, item: Item) {
        let after = self.totals;
        self.own.push_back(Own { number: self.owned, after, item });
        self.owned += 1;
        if self.own.len() > MAX_OWN {
            self.own.pop_front();
        }
        self.arrange();
    }

    /// Returns the commands that were started.
    pub(crate) fn terminals(&mut self) -> &mut Terminals {
        &mut self.terminals
    }

    /// Says whether there is nothing to show.
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns the session, if it has said anything.
    pub(crate) fn snapshot(&self) -> Option<&Snapshot> {
        self.snapshot.as_ref()
    }

    /// Puts what the agent sent and what is our own in one order.
    fn arrange(&mut self) {
        let mut items: Vec<(Key, Item)> = Vec::with_capacity(self.items.len() + 1);
        items.extend((0..).map(Key::Past).zip(self.past.iter().cloned()));
        let mut own = self.own.iter().peekable();
        let mut at = After::default();
        if let Some(snapshot) = &self.snapshot {
            let dropped = snapshot.dropped();
            at = After {
                messages: dropped.messages.items,
                calls: dropped.tool_calls.items,
                compactions: dropped.compactions.items,
            };
            for entry in snapshot.timeline() {
                let comes_before = |after: After| match entry {
                    Entry::Message(_) => after.messages <= at.messages,
                    Entry::ToolCall(_) => after.calls <= at.calls,
                    Entry::Compaction(_) => after.compactions <= at.compactions,
                };
                while let Some(own) = own.next_if(|own| comes_before(own.after)) {
                    // An agent that does repeat the prompt has it shown once.
                    let repeated = match (&own.item, entry) {
                        (Item::Prompt(text), Entry::Message(message)) => {
                            message.kind == MessageKind::User && message.text().trim() == text.trim()
                        }
                        _ => false,
                    };
                    if !repeated {
                        items.push((Key::Own(own.number), own.item.clone()));
                    }
                }
                let (key, item) = match entry {
                    Entry::Message(message) => (Key::Message(at.messages), Item::Message(message.clone())),
                    Entry::ToolCall(call) => (Key::Call(at.calls), Item::Call(call.clone())),
                    Entry::Compaction(it) => (Key::Compaction(at.compactions), Item::Compaction(it.clone())),
                };
                match key {
                    Key::Message(_) => at.messages += 1,
                    Key::Call(_) => at.calls += 1,
                    _ => at.compactions += 1,
                }
                items.push((key, item));
            }
        }
        items.extend(own.map(|own| (Key::Own(own.number), own.item.clone())));
        (self.items, self.totals) = (items, at);
    }

    fn is_open(&self, at: usize) -> bool {
        let Some((key, item)) = self.items.get(at) else { return false };
        if let Some(open) = self.opened.get(key) {
            return *open;
        }
        let is_last = at + 1 == self.items.len();
        entry::is_open(item, is_last && self.running)
    }

    /// Lays out an item if that has not been done, and returns its lines. A blank line comes before what does not
    /// belong to what is above.
    fn lay(&mut self, at: usize) -> &[Line<'static>] {
        let Some((key, item)) = self.items.get(at) else { return &[] };
        let key = *key;
        let before = at.checked_sub(1).and_then(|before| self.items.get(before));
        let both_calls = matches!((before, item), (Some((_, Item::Call(_))), Item::Call(_)));
        let took = match item {
            Item::Call(call) => self.timings.took(&call.id, self.now),
            _ => None,
        };
        let look =
            Look { width: self.size.0, open: self.is_open(at), gap: before.is_some() && !both_calls, took };
        let shown = entry::terminals(item).map(|id| self.terminals.get(id));
        let shown: Vec<Option<&Screen>> = shown.collect();
        let version = shown.iter().flatten().map(|screen| screen.version() + 1).sum();
        let print = entry::Print::of(item, look, version);
        let is_laid = self.laid.get(&key).is_some_and(|laid| laid.print == print);
        if !is_laid {
            let lines = entry::lines(item, look, &shown, &self.root);
            self.laid.insert(key, Laid { print, lines });
        }
        self.laid.get(&key).map_or(&[], |laid| &laid.lines)
    }

    fn position(&self, key: Key) -> Option<usize> {
        self.items.iter().position(|(known, _)| *known == key)
    }

    /// Returns the lines in sight, with where the selected item's own line is among them.
    pub(crate) fn visible(&mut self, width: usize, height: usize) -> (Vec<Line<'static>>, Option<usize>) {
        self.terminals.fit(width);
        self.size = (width, height);
        let mut lines: VecDeque<(usize, usize, Line<'static>)> = VecDeque::new();
        if let Scroll::At(key, line) = self.scroll {
            match self.position(key) {
                Some(start) => {
                    let mut at = start;
                    while lines.len() < height && at < self.items.len() {
                        let from = if at == start { line } else { 0 };
                        let room = height - lines.len();
                        let laid = self.lay(at).iter().cloned().enumerate().skip(from).take(room);
                        lines.extend(laid.map(|(number, line)| (at, number, line)));
                        at += 1;
                    }
                    if lines.len() < height {
                        self.scroll = Scroll::End;
                    }
                }
                None => self.scroll = Scroll::End,
            }
        }
        if self.scroll == Scroll::End {
            lines.clear();
            let mut at = self.items.len();
            while lines.len() < height && at > 0 {
                at -= 1;
                let room = height - lines.len();
                let laid = self.lay(at);
                let skipped = laid.len().saturating_sub(room);
                for (number, line) in laid.iter().cloned().enumerate().skip(skipped).rev() {
                    lines.push_front((at, number, line));
                }
            }
        }
        self.top = lines.front().and_then(|(at, line, _)| Some((self.items.get(*at)?.0, *line)));
        let in_sight: HashSet<Key> =
            lines.iter().filter_map(|(at, ..)| Some(self.items.get(*at)?.0)).collect();
        if self.laid.len() > MAX_LAID {
            self.laid.retain(|key, _| in_sight.contains(key));
        }
        let selected = self.selected.and_then(|key| self.position(key));
        let mark = selected.and_then(|selected| {
            // Its own line is the one behind the gap.
            let gap = self.lay(selected).first().is_some_and(|line| line.width() == 0);
            lines.iter().position(|(at, line, _)| *at == selected && *line == usize::from(gap))
        });
        let found = self.found.and_then(|(key, line)| Some((self.position(key)?, line)));
        let found = found.and_then(|place| lines.iter().position(|(at, line, _)| (*at, *line) == place));
        (lines.into_iter().map(|(_, _, line)| line).collect(), found.or(mark))
    }

    /// Says whether the end is in sight.
    pub(crate) fn follows(&self) -> bool {
        self.scroll == Scroll::End
    }

    /// Moves by some lines: up if they are negative.
    pub(crate) fn scroll(&mut self, by: isize) {
        let Some((key, mut line)) = self.top else { return };
        let Some(mut at) = self.position(key) else { return };
        let mut left = by.unsigned_abs();
        if by < 0 {
            while left > line && at > 0 {
                left -= line;
                at -= 1;
                line = self.lay(at).len();
            }
            line = line.saturating_sub(left);
        } else {
            if self.follows() {
                return;
            }
            while at < self.items.len() {
                let rest = self.lay(at).len().saturating_sub(line);
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
                // The next key may come before the next drawing.
                self.top = Some((*key, line));
                Scroll::At(*key, line)
            }
            None => Scroll::End,
        };
    }

    /// Moves by screens: up if they are negative.
    pub(crate) fn scroll_page(&mut self, by: isize) {
        let page = isize::try_from(self.size.1.saturating_sub(2).max(1)).unwrap_or(1);
        self.scroll(by.saturating_mul(page));
    }

    /// Goes to the first line.
    pub(crate) fn go_to_start(&mut self) {
        if let Some((key, _)) = self.items.first() {
            self.scroll = Scroll::At(*key, 0);
        }
    }

    /// Goes to the end, and stays there.
    pub(crate) fn go_to_end(&mut self) {
        self.scroll = Scroll::End;
    }

    /// Selects the next item that can be opened, or the one before; the last, if there is none yet. Returns whether
    /// there is one.
    pub(crate) fn select(&mut self, forward: bool) -> bool {
        let can = |at: &usize| self.items.get(*at).is_some_and(|(_, item)| entry::can_open(item));
        let found = match self.selected.and_then(|key| self.position(key)) {
            None => (0..self.items.len()).rev().find(can),
            Some(at) if forward => (at + 1..self.items.len()).find(can).or(Some(at)),
            Some(at) => (0..at).rev().find(can).or(Some(at)),
        };
        let Some(at) = found else { return false };
        self.selected = self.items.get(at).map(|(key, _)| *key);
        self.bring_in_sight(at);
        true
    }

    /// Selects nothing.
    pub(crate) fn deselect(&mut self) {
        self.selected = None;
    }

    /// Opens the selected item, or closes it.
    pub(crate) fn toggle(&mut self) {
        let Some(key) = self.selected else { return };
        let Some(at) = self.position(key) else { return };
        let open = !self.is_open(at);
        self.opened.insert(key, open);
        self.bring_in_sight(at);
    }

    fn bring_in_sight(&mut self, at: usize) {
        let (width, height) = self.size;
        let (_, mark) = self.visible(width, height);
        if mark.is_some() {
            // Also the lines below it should be in sight, if they are not many.
            return;
        }
        if let Some((key, _)) = self.items.get(at) {
            self.scroll = Scroll::At(*key, 0);
            self.top = Some((*key, 0));
            self.scroll(-isize::try_from(height / 3).unwrap_or(0));
        }
    }
}

#[cfg(test)]
mod tests;
