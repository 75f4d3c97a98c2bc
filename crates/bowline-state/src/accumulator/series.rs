//! A list whose clones share what they hold, so that a snapshot costs nothing to take.
//!
//! A tree of nodes, each [`WIDTH`] wide, under reference counts. A change copies the nodes on the way to its place
//! and no others, and only where a clone still looks at them.

use std::sync::Arc;

const BITS: u32 = 5;
const WIDTH: u64 = 1 << BITS;

/// A list by position: it grows at the end, loses at the front and changes anywhere. Positions are never reused.
#[derive(Debug)]
pub(super) struct Series<T> {
    root: Arc<Node<T>>,
    // Invariant: every position is below `WIDTH.pow(height + 1)`; a leaf has height 0.
    height: u32,
    // Invariant: `start <= end`; the places before `start` are empty and the subtrees wholly before it are gone.
    start: u64,
    end: u64,
}

#[derive(Debug)]
enum Node<T> {
    Leaf(Vec<Option<T>>),
    Branch(Vec<Option<Arc<Node<T>>>>),
}

impl<T> Default for Series<T> {
    fn default() -> Self {
        Self { root: Arc::new(Node::Leaf(Vec::new())), height: 0, start: 0, end: 0 }
    }
}

impl<T> Clone for Series<T> {
    fn clone(&self) -> Self {
        Self { root: Arc::clone(&self.root), height: self.height, start: self.start, end: self.end }
    }
}

impl<T: Clone> Clone for Node<T> {
    fn clone(&self) -> Self {
        match self {
            Node::Leaf(items) => {
                work::add(items.len());
                Node::Leaf(items.clone())
            }
            Node::Branch(children) => {
                work::add(children.len());
                Node::Branch(children.clone())
            }
        }
    }
}

impl<T: Clone> Series<T> {
    /// Returns how many positions lie between the front and the end.
    pub(super) fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Returns what is at a position.
    pub(super) fn get(&self, position: u64) -> Option<&T> {
        if position >= self.end {
            return None;
        }
        let mut node = &self.root;
        let mut height = self.height;
        loop {
            match node.as_ref() {
                Node::Leaf(items) => return items.get(place(position, 0))?.as_ref(),
                Node::Branch(children) => node = children.get(place(position, height))?.as_ref()?,
            }
            height -= 1;
        }
    }

    /// Returns the place at a position to change it, and makes room where the list does not reach it yet.
    ///
    /// A place before the front may be written and is never seen; nothing here asks for one.
    pub(super) fn entry(&mut self, position: u64) -> &mut Option<T> {
        while position >> (BITS * (self.height + 1)) != 0 {
            let below = std::mem::replace(&mut self.root, Arc::new(Node::Leaf(Vec::new())));
            self.root = Arc::new(Node::Branch(vec![Some(below)]));
            self.height += 1;
        }
        self.end = self.end.max(position + 1);
        entry_under(&mut self.root, self.height, position)
    }

    /// Appends an item and returns its position.
    pub(super) fn push(&mut self, item: T) -> u64 {
        let position = self.end;
        *self.entry(position) = Some(item);
        position
    }

    /// Moves the front on by one, and returns the item that was there with its position.
    pub(super) fn pop_front(&mut self) -> Option<(u64, T)> {
        if self.start == self.end {
            return None;
        }
        let position = self.start;
        let item = self.entry(position).take();
        self.start += 1;
        self.forget_before_start();
        item.map(|item| (position, item))
    }

    /// Returns the items with their positions, oldest first.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &T)> {
        (self.start..self.end).filter_map(|position| self.get(position).map(|item| (position, item)))
    }

    /// Cuts off the largest subtree that `start` has just passed.
    fn forget_before_start(&mut self) {
        let mut passed = 0;
        while passed < self.height && self.start.is_multiple_of(1 << (BITS * (passed + 1))) {
            passed += 1;
        }
        let mut node = &mut self.root;
        for height in (1..=self.height).rev() {
            let Node::Branch(children) = Arc::make_mut(node) else { return };
            let Some(child) = children.get_mut(place(self.start - 1, height)) else { return };
            if height == passed {
                *child = None;
                return;
            }
            let Some(next) = child else { return };
            node = next;
        }
    }
}

fn place(position: u64, height: u32) -> usize {
    ((position >> (BITS * height)) % WIDTH) as usize
}

fn entry_under<T: Clone>(node: &mut Arc<Node<T>>, height: u32, position: u64) -> &mut Option<T> {
    let at = place(position, height);
    match Arc::make_mut(node) {
        Node::Leaf(items) => {
            if items.len() <= at {
                items.resize_with(at + 1, || None);
            }
            &mut items[at]
        }
        Node::Branch(children) => {
            if children.len() <= at {
                children.resize_with(at + 1, || None);
            }
            let empty =
                || Arc::new(if height == 1 { Node::Leaf(Vec::new()) } else { Node::Branch(Vec::new()) });
            entry_under(children[at].get_or_insert_with(empty), height - 1, position)
        }
    }
}

/// Counts what is copied, in tests only: the proof that folding is linear counts work, never time.
pub(super) mod work {
    #[cfg(test)]
    thread_local! {
        static COPIED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }

    /// Adds slots or bytes that a change had to copy.
    #[cfg(test)]
    pub(in super::super) fn add(copied: usize) {
        COPIED.with(|total| total.set(total.get() + copied as u64));
    }

    /// Returns what this thread has copied so far.
    #[cfg(test)]
    pub(in super::super) fn total() -> u64 {
        COPIED.with(std::cell::Cell::get)
    }

    #[cfg(not(test))]
    pub(in super::super) fn add(_copied: usize) {}
}

#[cfg(test)]
mod tests;
