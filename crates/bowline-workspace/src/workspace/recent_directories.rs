//! The directories that sessions created and removed most recently. The journal records files only.

use std::collections::VecDeque;

use bowline_history::changes::ChangeOrigin;

/// The directories that were created and removed most recently, and the sessions that did it.
#[derive(Debug, Default)]
pub(super) struct RecentDirectories {
    // Invariant: at most `MAX_RECENT_DIRECTORIES`, numbered in a row, the last one with `last_number`.
    records: VecDeque<(String, Option<String>)>,
    last_number: u64,
}

/// How many directories are remembered; of others, the author is found by their files.
const MAX_RECENT_DIRECTORIES: usize = 1024;

impl RecentDirectories {
    /// Records directories that are about to be created or removed.
    pub(super) fn record<'p>(&mut self, paths: impl Iterator<Item = &'p str>, origin: &ChangeOrigin) {
        for path in paths {
            self.records.push_back((path.to_owned(), origin.session.clone()));
            self.last_number += 1;
        }
        let excess = self.records.len().saturating_sub(MAX_RECENT_DIRECTORIES);
        self.records.drain(..excess);
    }

    /// Returns the number of the newest record.
    pub(super) fn last_number(&self) -> u64 {
        self.last_number
    }

    /// Returns the session of the newest record of a path after a record number.
    pub(super) fn find(&self, path: &str, after: u64) -> Option<Option<&str>> {
        let new = usize::try_from(self.last_number - after).unwrap_or(usize::MAX);
        let mut records = self.records.iter().rev().take(new);
        records.find(|(recorded, _)| recorded == path).map(|(_, session)| session.as_deref())
    }
}
