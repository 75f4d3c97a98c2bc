//! Items that are recorded in the journal together, up to a limit.

use crate::error::FilesError;

/// A batch is stored once it has this many bytes, or [`MAX_BATCH_ITEMS`] items.
const MAX_BATCH_BYTES: usize = 16 << 20;

/// The maximum number of changes in a batch.
const MAX_BATCH_ITEMS: usize = 256;

/// Items to be stored together.
pub(super) struct Batch<T> {
    items: Vec<T>,
    bytes: usize,
}

impl<T> Default for Batch<T> {
    fn default() -> Self {
        Self { items: Vec::new(), bytes: 0 }
    }
}

impl<T> Batch<T> {
    /// Adds an item, and stores the batch if it is full.
    pub(super) fn add(
        &mut self,
        thing: T,
        bytes: usize,
        store: impl FnOnce(&[T]) -> Result<(), FilesError>,
    ) -> Result<(), FilesError> {
        self.bytes = self.bytes.saturating_add(bytes);
        self.items.push(thing);
        if self.bytes < MAX_BATCH_BYTES && self.items.len() < MAX_BATCH_ITEMS {
            Ok(())
        } else {
            self.flush(store)
        }
    }

    /// Stores the pending items.
    pub(super) fn flush(
        &mut self,
        store: impl FnOnce(&[T]) -> Result<(), FilesError>,
    ) -> Result<(), FilesError> {
        self.bytes = 0;
        let things = std::mem::take(&mut self.items);
        if things.is_empty() { Ok(()) } else { store(&things) }
    }
}
