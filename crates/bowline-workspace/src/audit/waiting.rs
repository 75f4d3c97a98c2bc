//! Entries that wait to be appended: whoever gets to the writer first appends them all.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_state::audit::Entry;

use super::error::AuditError;

/// So many entries are appended together.
const MAX_TOGETHER: usize = 64;

/// The entries of those who wait for the writer. Each of them is a thread, so there are no more than threads.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    queue: Mutex<Vec<Arc<Place>>>,
}

/// An entry on its way.
#[derive(Debug)]
pub(super) struct Place {
    entry: Entry,
    outcome: Mutex<Option<Result<u64, AuditError>>>,
}

impl Waiting {
    /// Adds an entry. Its owner then waits for the writer, and calls [`Waiting::serve`].
    pub(super) fn add(&self, entry: &Entry) -> Arc<Place> {
        let place = Arc::new(Place { entry: entry.clone(), outcome: Mutex::default() });
        self.queue().push(place.clone());
        place
    }

    /// Returns what became of an entry. Unless somebody else has appended it already, it is appended now, with all others
    /// that wait. The caller has the writer.
    pub(super) fn serve(
        &self,
        place: &Place,
        mut append: impl FnMut(&[&Entry]) -> Vec<Result<u64, AuditError>>,
    ) -> Result<u64, AuditError> {
        loop {
            if let Some(outcome) = hold(&place.outcome).take() {
                return outcome;
            }
            let together: Vec<Arc<Place>> = {
                let mut queue = self.queue();
                let count = queue.len().min(MAX_TOGETHER);
                queue.drain(..count).collect()
            };
            let entries: Vec<&Entry> = together.iter().map(|place| &place.entry).collect();
            // A place is in the queue until it has its outcome, so this ends.
            for (place, outcome) in together.iter().zip(append(&entries)) {
                *hold(&place.outcome) = Some(outcome);
            }
        }
    }

    /// Returns how many wait.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.queue().len()
    }

    fn queue(&self) -> MutexGuard<'_, Vec<Arc<Place>>> {
        hold(&self.queue)
    }
}

fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that is done under these locks can be left half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
