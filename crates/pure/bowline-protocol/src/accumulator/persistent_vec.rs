//! A persistent list: clones share its storage, so a snapshot is free.
//!
//! A tree of reference-counted nodes, each [`NODE_WIDTH`] wide. A change copies only the nodes on the path to its slot,
//! and only those that a clone still references.

use std::sync::Arc;

const BITS_PER_LEVEL: u32 = 5;
const NODE_WIDTH: u64 = 1 << BITS_PER_LEVEL;

/// A list indexed by position: it grows at the end, shrinks at the front and changes anywhere. Positions are never
/// reused.
#[derive(Debug)]
pub(super) struct PersistentVec<T> {
    root: Arc<VecNode<T>>,
    // Invariant: every position is below `NODE_WIDTH.pow(height + 1)`; a leaf has height 0.
    height: u32,
    // Invariant: `start <= end`; the slots before `start` are empty and the subtrees wholly before it are gone.
    start: u64,
    end: u64,
}

#[derive(Debug)]
enum VecNode<T> {
    Leaf(Vec<Option<T>>),
    Branch(Vec<Option<Arc<VecNode<T>>>>),
}

impl<T> Default for PersistentVec<T> {
    fn default() -> Self {
        Self { root: Arc::new(VecNode::Leaf(Vec::new())), height: 0, start: 0, end: 0 }
    }
}

impl<T> Clone for PersistentVec<T> {
    fn clone(&self) -> Self {
        Self { root: Arc::clone(&self.root), height: self.height, start: self.start, end: self.end }
    }
}

impl<T: Clone> Clone for VecNode<T> {
    fn clone(&self) -> Self {
        match self {
            VecNode::Leaf(items) => {
                work::add(items.len());
                VecNode::Leaf(items.clone())
            }
            VecNode::Branch(children) => {
                work::add(children.len());
                VecNode::Branch(children.clone())
            }
        }
    }
}

impl<T: Clone> PersistentVec<T> {
    /// Returns the number of positions between the front and the end.
    pub(super) fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Returns the item at a position.
    pub(super) fn get(&self, position: u64) -> Option<&T> {
        if position >= self.end {
            return None;
        }
        let mut node = &self.root;
        let mut height = self.height;
        loop {
            match node.as_ref() {
                VecNode::Leaf(items) => return items.get(slot_index(position, 0))?.as_ref(),
                VecNode::Branch(children) => node = children.get(slot_index(position, height))?.as_ref()?,
            }
            height -= 1;
        }
    }

    /// Returns the slot at a position for writing, and extends the list to reach it.
    ///
    /// A slot before the front may be written but is never read; no caller asks for one.
    pub(super) fn slot_mut(&mut self, position: u64) -> &mut Option<T> {
        while position >> (BITS_PER_LEVEL * (self.height + 1)) != 0 {
            let below = std::mem::replace(&mut self.root, Arc::new(VecNode::Leaf(Vec::new())));
            self.root = Arc::new(VecNode::Branch(vec![Some(below)]));
            self.height += 1;
        }
        self.end = self.end.max(position + 1);
        slot_mut_under(&mut self.root, self.height, position)
    }

    /// Appends an item and returns its position.
    pub(super) fn push(&mut self, item: T) -> u64 {
        let position = self.end;
        *self.slot_mut(position) = Some(item);
        position
    }

    /// Advances the front by one, and returns the item that was there with its position.
    pub(super) fn pop_front(&mut self) -> Option<(u64, T)> {
        if self.start == self.end {
            return None;
        }
        let position = self.start;
        let item = self.slot_mut(position).take();
        self.start += 1;
        self.prune_before_start();
        item.map(|item| (position, item))
    }

    /// Returns the items with their positions, oldest first.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &T)> {
        (self.start..self.end).filter_map(|position| self.get(position).map(|item| (position, item)))
    }

    /// Drops the largest subtree that `start` has just passed.
    fn prune_before_start(&mut self) {
        let mut passed = 0;
        while passed < self.height && self.start.is_multiple_of(1 << (BITS_PER_LEVEL * (passed + 1))) {
            passed += 1;
        }
        let mut node = &mut self.root;
        for height in (1..=self.height).rev() {
            let VecNode::Branch(children) = Arc::make_mut(node) else { return };
            let Some(child) = children.get_mut(slot_index(self.start - 1, height)) else { return };
            if height == passed {
                *child = None;
                return;
            }
            let Some(next) = child else { return };
            node = next;
        }
    }
}

fn slot_index(position: u64, height: u32) -> usize {
    ((position >> (BITS_PER_LEVEL * height)) % NODE_WIDTH) as usize
}

fn slot_mut_under<T: Clone>(node: &mut Arc<VecNode<T>>, height: u32, position: u64) -> &mut Option<T> {
    let at = slot_index(position, height);
    match Arc::make_mut(node) {
        VecNode::Leaf(items) => {
            if items.len() <= at {
                items.resize_with(at + 1, || None);
            }
            &mut items[at]
        }
        VecNode::Branch(children) => {
            if children.len() <= at {
                children.resize_with(at + 1, || None);
            }
            let empty = || {
                Arc::new(if height == 1 { VecNode::Leaf(Vec::new()) } else { VecNode::Branch(Vec::new()) })
            };
            slot_mut_under(children[at].get_or_insert_with(empty), height - 1, position)
        }
    }
}

/// Counts copied slots and bytes, in tests only: the proof that folding is linear measures work, not time.
pub(super) mod work {
    #[cfg(test)]
    thread_local! {
        static COPIED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }

    /// Adds slots or bytes that a change copied.
    #[cfg(test)]
    pub(in super::super) fn add(copied: usize) {
        COPIED.with(|total| total.set(total.get() + copied as u64));
    }

    /// Returns the amount that this thread has copied so far.
    #[cfg(test)]
    pub(in super::super) fn total() -> u64 {
        COPIED.with(std::cell::Cell::get)
    }

    #[cfg(not(test))]
    pub(in super::super) fn add(_copied: usize) {}
}

#[cfg(test)]
mod tests;
