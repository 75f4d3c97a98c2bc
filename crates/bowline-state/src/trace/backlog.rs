//! What waits to be written to a trace, and what did not fit.

use std::collections::VecDeque;

use super::{Entry, Gap};

/// What an entry takes beside its bytes, about.
const ENTRY: usize = 64;

/// What is to be written next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A message.
    Message(Entry),
    /// So much is missing here.
    Lost(Gap),
}

/// Messages that wait for the disk, up to a cap. What is over it is counted where it is missing.
#[derive(Debug)]
pub struct Backlog {
    // Invariant: no two losses stand beside each other.
    items: VecDeque<Item>,
    // Invariant: what the messages take, at most `cap`.
    taken: usize,
    cap: usize,
}

impl Backlog {
    /// Returns an empty one that holds about `cap` bytes.
    #[must_use]
    pub fn new(cap: usize) -> Self {
        Self { items: VecDeque::new(), taken: 0, cap }
    }

    /// Says whether a message of so many bytes fits.
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        self.taken.saturating_add(bytes).saturating_add(ENTRY) <= self.cap
    }

    /// Takes a message. One that does not fit is lost, and a shorter one after it may still fit.
    pub fn push(&mut self, entry: Entry) {
        if self.has_room(entry.bytes.len()) {
            self.taken += entry.bytes.len() + ENTRY;
            self.items.push_back(Item::Message(entry));
        } else {
            self.lose(entry.bytes.len());
        }
    }

    /// Counts a message of so many bytes as lost. Losses with nothing between them are one.
    pub fn lose(&mut self, bytes: usize) {
        let gap = Gap { messages: 1, bytes: u64::try_from(bytes).unwrap_or(u64::MAX) };
        match self.items.back_mut() {
            Some(Item::Lost(before)) => *before = before.and(gap),
            _ => self.items.push_back(Item::Lost(gap)),
        }
    }

    /// Returns what is to be written next, and its room is free again.
    pub fn pop(&mut self) -> Option<Item> {
        let item = self.items.pop_front()?;
        if let Item::Message(entry) = &item {
            self.taken -= entry.bytes.len() + ENTRY;
        }
        Some(item)
    }
}
