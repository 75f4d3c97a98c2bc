//! A cache of recently recorded contents and their hashes, so that a file that is edited repeatedly is hashed once.

use bowline_text::hash::ContentHash;

/// How many contents are cached.
const MAX_CONTENTS: usize = 4;
/// Larger contents are not cached: they would occupy memory for as long as the journal is open.
const MAX_REMEMBERED_BYTES: usize = 1 << 20;

/// A few contents with their hashes, the most recent last.
#[derive(Debug, Default)]
pub(super) struct RecentHashes {
    // Invariant: at most `MAX_CONTENTS`, each of at most `MAX_REMEMBERED_BYTES`, and each hash is that of its bytes.
    contents: Vec<(ContentHash, Vec<u8>)>,
}

impl RecentHashes {
    /// Returns the hashes of a file before and after a change, and caches the content after it, which will be the
    /// content before the next change.
    pub(super) fn hashes(
        &mut self,
        before: Option<&[u8]>,
        after: Option<&[u8]>,
    ) -> (Option<ContentHash>, Option<ContentHash>) {
        let known = before.and_then(|before| self.contents.iter().position(|(_, bytes)| bytes == before));
        let known = known.map(|at| self.contents.remove(at));
        let before = before
            .map(|before| known.as_ref().map_or_else(|| ContentHash::digest(before), |(hash, _)| *hash));
        let Some(after) = after else {
            self.contents.extend(known);
            return (before, None);
        };
        let hash = ContentHash::digest(after);
        if after.len() <= MAX_REMEMBERED_BYTES {
            // Reuses the buffer of the evicted entry.
            let full = self.contents.len() == MAX_CONTENTS;
            let forgotten = known.or_else(|| full.then(|| self.contents.remove(0)));
            let mut bytes = forgotten.map(|(_, bytes)| bytes).unwrap_or_default();
            bytes.clear();
            bytes.extend_from_slice(after);
            self.contents.push((hash, bytes));
        }
        (before, Some(hash))
    }
}

#[cfg(test)]
mod tests;
