//! A bounded list of session items, indexed by id: the oldest are evicted first, and snapshots share the storage.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use super::persistent_vec::{PersistentVec, work};

/// The number of buckets in the id index; with the default [`AccumulatorLimits`](super::AccumulatorLimits) a bucket
/// holds about ten ids.
const BUCKET_COUNT: u64 = 1024;

/// The capacity of a list. Beyond it the oldest items are evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListLimits {
    /// The number of items.
    pub items: u64,
    /// The total size of all items in bytes: their text, plus the JSON of everything else.
    pub bytes: u64,
}

/// The items evicted to stay within [`ListLimits`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EvictionStats {
    /// The number of evicted items.
    pub items: u64,
    /// Their size, plus the bytes truncated from the front of the oldest remaining item.
    pub bytes: u64,
}

/// An item of a [`BoundedList`].
pub(super) trait ListItem: Clone {
    /// Returns the key of the item, if it has an id.
    fn key(&self) -> Option<ItemKey>;

    /// Returns the size that counts towards [`ListLimits::bytes`].
    fn bytes(&self) -> u64;

    /// Drops the oldest part of the item, if it has parts. Called on the oldest item while the list is too large; an
    /// item that does not shrink is evicted whole.
    fn shrink(&mut self) {}
}

/// An id, with a tag that separates kinds whose ids may collide within one list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ItemKey {
    pub(super) tag: u8,
    pub(super) id: Arc<str>,
}

/// The items, in order of arrival.
#[derive(Debug, Clone)]
pub(super) struct BoundedList<T> {
    items: PersistentVec<Arc<T>>,
    index: KeyIndex,
    // Invariant: the sum of `bytes()` over `items`, and within `limits` between calls.
    bytes: u64,
    evicted: EvictionStats,
    limits: ListLimits,
}

impl<T: ListItem> BoundedList<T> {
    pub(super) fn new(limits: ListLimits) -> Self {
        Self {
            items: PersistentVec::default(),
            index: KeyIndex::default(),
            bytes: 0,
            evicted: EvictionStats::default(),
            limits,
        }
    }

    /// Appends an item and returns its position.
    pub(super) fn push(&mut self, item: T) -> u64 {
        self.bytes += item.bytes();
        let key = item.key();
        let position = self.items.push(Arc::new(item));
        if let Some(key) = key {
            self.index.insert(key, position);
        }
        self.enforce_limits();
        position
    }

    /// Changes the item at a position, if it is still present. The change must not touch the item's key.
    pub(super) fn update(&mut self, position: u64, change: impl FnOnce(&mut T)) {
        // `slot_mut` would allocate a slot for a position that is gone.
        if self.items.get(position).is_none() {
            return;
        }
        if let Some(item) = self.items.slot_mut(position) {
            let item = Arc::make_mut(item);
            let before = item.bytes();
            change(item);
            self.bytes = self.bytes - before + item.bytes();
        }
        self.enforce_limits();
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

    pub(super) fn evicted(&self) -> EvictionStats {
        self.evicted
    }

    /// Returns how many items have ever been pushed.
    pub(super) fn total_pushed(&self) -> u64 {
        self.items.len() + self.evicted.items
    }

    fn enforce_limits(&mut self) {
        while self.items.len() > self.limits.items || self.bytes > self.limits.bytes {
            if self.items.len() <= self.limits.items && self.shrink_oldest() {
                continue;
            }
            let Some((_, item)) = self.items.pop_front() else { return };
            if let Some(key) = item.key() {
                self.index.remove(&key);
            }
            self.bytes -= item.bytes();
            self.evicted.bytes += item.bytes();
            self.evicted.items += 1;
        }
    }

    /// Shrinks the oldest item. Returns whether its size changed.
    fn shrink_oldest(&mut self) -> bool {
        let Some((position, _)) = self.items.iter().next() else { return false };
        let Some(item) = self.items.slot_mut(position) else { return false };
        let item = Arc::make_mut(item);
        let before = item.bytes();
        item.shrink();
        let given_up = before - item.bytes();
        self.bytes -= given_up;
        self.evicted.bytes += given_up;
        given_up > 0
    }
}

/// The position of each id. The hash is randomly seeded, so that a peer cannot aim its ids at one bucket.
#[derive(Debug, Clone, Default)]
struct KeyIndex {
    hasher: RandomState,
    buckets: PersistentVec<Arc<Vec<(ItemKey, u64)>>>,
}

impl KeyIndex {
    fn bucket(&self, tag: u8, id: &str) -> u64 {
        self.hasher.hash_one((tag, id)) % BUCKET_COUNT
    }

    fn get(&self, tag: u8, id: &str) -> Option<u64> {
        let bucket = self.buckets.get(self.bucket(tag, id))?;
        bucket.iter().find(|(key, _)| key.tag == tag && *key.id == *id).map(|(_, position)| *position)
    }

    /// Records a position. The key is not in the index yet: [`BoundedList`]'s callers look it up before they push.
    fn insert(&mut self, key: ItemKey, position: u64) {
        let bucket = self.bucket(key.tag, &key.id);
        let bucket = self.buckets.slot_mut(bucket).get_or_insert_default();
        work::add(bucket.len());
        Arc::make_mut(bucket).push((key, position));
    }

    fn remove(&mut self, key: &ItemKey) {
        let bucket = self.bucket(key.tag, &key.id);
        if let Some(bucket) = self.buckets.slot_mut(bucket) {
            work::add(bucket.len());
            Arc::make_mut(bucket).retain(|(other, _)| other != key);
        }
    }
}

#[cfg(test)]
mod tests;
