//! The backlog of a trace: messages to be written, and a count of those that did not fit.

use std::collections::VecDeque;

use super::{TraceEntry, TraceGap};

/// The approximate size of an entry beside its bytes.
const ENTRY_OVERHEAD: usize = 64;

/// The next item to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BacklogItem {
    /// A message.
    Message(TraceEntry),
    /// A gap of this size.
    Gap(TraceGap),
}

/// Messages that wait for the disk, up to a cap. Messages beyond it are counted as gaps in their place.
#[derive(Debug)]
pub struct Backlog {
    // Invariant: no two gaps are adjacent.
    items: VecDeque<BacklogItem>,
    // Invariant: the size of the messages, at most `max_bytes`.
    used_bytes: usize,
    max_bytes: usize,
}

impl Backlog {
    /// Creates an empty backlog that holds about `max_bytes` bytes.
    #[must_use]
    pub fn new(max_bytes: usize) -> Self {
        Self { items: VecDeque::new(), used_bytes: 0, max_bytes }
    }

    /// Returns whether a message of this size fits.
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        self.used_bytes.saturating_add(bytes).saturating_add(ENTRY_OVERHEAD) <= self.max_bytes
    }

    /// Adds a message. One that does not fit is lost, and a shorter one after it may still fit.
    pub fn push(&mut self, entry: TraceEntry) {
        if self.has_room(entry.bytes.len()) {
            self.used_bytes += entry.bytes.len() + ENTRY_OVERHEAD;
            self.items.push_back(BacklogItem::Message(entry));
        } else {
            self.record_loss(entry.bytes.len());
        }
    }

    /// Counts a message of this size as lost. Adjacent losses are merged.
    pub fn record_loss(&mut self, bytes: usize) {
        let gap = TraceGap { messages: 1, bytes: u64::try_from(bytes).unwrap_or(u64::MAX) };
        match self.items.back_mut() {
            Some(BacklogItem::Gap(before)) => *before = before.merge(gap),
            _ => self.items.push_back(BacklogItem::Gap(gap)),
        }
    }

    /// Returns the next item to write and frees its space.
    pub fn pop(&mut self) -> Option<BacklogItem> {
        let item = self.items.pop_front()?;
        if let BacklogItem::Message(entry) = &item {
            self.used_bytes -= entry.bytes.len() + ENTRY_OVERHEAD;
        }
        Some(item)
    }
}
