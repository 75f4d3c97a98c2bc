//! Things that are recorded in the journal together, a bounded number at a time.

use crate::error::FilesError;

/// Changes are recorded together until they have this many bytes, or are [`MAX_BATCH`].
const BATCH_BYTES: usize = 16 << 20;

/// So many changes are recorded together at most.
const MAX_BATCH: usize = 256;

/// Things that are stored together.
pub(super) struct Batch<T> {
    things: Vec<T>,
    bytes: usize,
}

impl<T> Default for Batch<T> {
    fn default() -> Self {
        Self { things: Vec::new(), bytes: 0 }
    }
}

impl<T> Batch<T> {
    /// Takes one more, and stores all that wait if they are enough.
    pub(super) fn add(
        &mut self,
        thing: T,
        bytes: usize,
        store: impl FnOnce(&[T]) -> Result<(), FilesError>,
    ) -> Result<(), FilesError> {
        self.bytes += bytes;
        self.things.push(thing);
        if self.bytes < BATCH_BYTES && self.things.len() < MAX_BATCH { Ok(()) } else { self.flush(store) }
    }

    /// Stores all that wait.
    pub(super) fn flush(
        &mut self,
        store: impl FnOnce(&[T]) -> Result<(), FilesError>,
    ) -> Result<(), FilesError> {
        self.bytes = 0;
        let things = std::mem::take(&mut self.things);
        if things.is_empty() { Ok(()) } else { store(&things) }
    }
}
