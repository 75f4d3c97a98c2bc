//! A bounded list of what a session holds: found by id, oldest out first, shared with every snapshot.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use super::series::{Series, work};

/// How many buckets the ids of a shelf are spread over; with the default [`Limits`](super::Limits) a bucket holds
/// about ten.
const BUCKETS: u64 = 1024;

/// What a shelf may hold. What comes on top drives the oldest out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cap {
    /// The number of items.
    pub items: u64,
    /// The size of all items together, in bytes: of their text, and of the JSON of what is not text.
    pub bytes: u64,
}

/// What has been driven out by a [`Cap`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lost {
    /// The number of items that are gone.
    pub items: u64,
    /// Their size, and that of what was cut from the front of the oldest item that is still there.
    pub bytes: u64,
}

/// Something a shelf can hold.
pub(super) trait Item: Clone {
    /// Returns what the item is found by, if it has an id.
    fn key(&self) -> Option<Key>;

    /// Returns how much the item counts against [`Cap::bytes`].
    fn bytes(&self) -> u64;

    /// Gives up the oldest part of the item, where it has parts. Called for the oldest item while all together are
    /// too large; an item that stays as it is goes as a whole.
    fn shrink(&mut self) {}
}

/// An id, and a tag where one shelf holds several kinds of thing whose ids may be equal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) tag: u8,
    pub(super) id: Arc<str>,
}

/// The items, in the order they came.
#[derive(Debug, Clone)]
pub(super) struct Shelf<T> {
    items: Series<Arc<T>>,
    index: Index,
    // Invariant: the sum of `bytes()` over `items`, and within `cap` between calls.
    bytes: u64,
    lost: Lost,
    cap: Cap,
}

impl<T: Item> Shelf<T> {
    pub(super) fn new(cap: Cap) -> Self {
        Self { items: Series::default(), index: Index::default(), bytes: 0, lost: Lost::default(), cap }
    }

    /// Puts an item at the end and returns its position.
    pub(super) fn push(&mut self, item: T) -> u64 {
        self.bytes += item.bytes();
        let key = item.key();
        let position = self.items.push(Arc::new(item));
        if let Some(key) = key {
            self.index.insert(key, position);
        }
        self.trim();
        position
    }

    /// Changes the item at a position, if it is still there. The change must not touch the item's key.
    pub(super) fn update(&mut self, position: u64, change: impl FnOnce(&mut T)) {
        // Asking first keeps a position that is gone from making room for itself.
        if self.items.get(position).is_none() {
            return;
        }
        if let Some(item) = self.items.entry(position) {
            let item = Arc::make_mut(item);
            let before = item.bytes();
            change(item);
            self.bytes = self.bytes - before + item.bytes();
        }
        self.trim();
    }

    pub(super) fn find(&self, tag: u8, id: &str) -> Option<u64> {
        self.index.get(tag, id)
    }

    pub(super) fn get(&self, position: u64) -> Option<&T> {
        self.items.get(position).map(Arc::as_ref)
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.items.iter().map(|(_, item)| item.as_ref())
    }

    pub(super) fn lost(&self) -> Lost {
        self.lost
    }

    /// Returns how many items there have ever been.
    pub(super) fn total(&self) -> u64 {
        self.items.len() + self.lost.items
    }

    fn trim(&mut self) {
        while self.items.len() > self.cap.items || self.bytes > self.cap.bytes {
            if self.items.len() <= self.cap.items && self.shrink_oldest() {
                continue;
            }
            let Some((_, item)) = self.items.pop_front() else { return };
            if let Some(key) = item.key() {
                self.index.remove(&key);
            }
            self.bytes -= item.bytes();
            self.lost.bytes += item.bytes();
            self.lost.items += 1;
        }
    }

    /// Shrinks the oldest item, and says whether that made a difference.
    fn shrink_oldest(&mut self) -> bool {
        let Some((position, _)) = self.items.iter().next() else { return false };
        let Some(item) = self.items.entry(position) else { return false };
        let item = Arc::make_mut(item);
        let before = item.bytes();
        item.shrink();
        let given_up = before - item.bytes();
        self.bytes -= given_up;
        self.lost.bytes += given_up;
        given_up > 0
    }
}

/// Where each id stands. The hash is seeded at random, so that a peer cannot aim its ids at one bucket.
#[derive(Debug, Clone, Default)]
struct Index {
    seed: RandomState,
    buckets: Series<Arc<Vec<(Key, u64)>>>,
}

impl Index {
    fn bucket(&self, tag: u8, id: &str) -> u64 {
        self.seed.hash_one((tag, id)) % BUCKETS
    }

    fn get(&self, tag: u8, id: &str) -> Option<u64> {
        let bucket = self.buckets.get(self.bucket(tag, id))?;
        bucket.iter().find(|(key, _)| key.tag == tag && *key.id == *id).map(|(_, position)| *position)
    }

    /// Notes a position. The key is not in the index: [`Shelf`]'s callers look before they push.
    fn insert(&mut self, key: Key, position: u64) {
        let bucket = self.bucket(key.tag, &key.id);
        let bucket = self.buckets.entry(bucket).get_or_insert_default();
        work::add(bucket.len());
        Arc::make_mut(bucket).push((key, position));
    }

    fn remove(&mut self, key: &Key) {
        let bucket = self.bucket(key.tag, &key.id);
        if let Some(bucket) = self.buckets.entry(bucket) {
            work::add(bucket.len());
            Arc::make_mut(bucket).retain(|(other, _)| other != key);
        }
    }
}

#[cfg(test)]
mod tests;
