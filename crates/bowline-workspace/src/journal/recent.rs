//! The contents that were recorded last, with their hashes: what is edited again and again is hashed once.

use bowline_state::changes::ContentHash;

/// So many contents are remembered.
const CONTENTS: usize = 4;
/// A larger content is not: it would take memory for as long as the journal is open.
const MAX_BYTES: usize = 1 << 20;

/// A few contents with their hashes, the last one at the end.
#[derive(Debug, Default)]
pub(super) struct Recent {
    // Invariant: at most `CONTENTS`, each of at most `MAX_BYTES`, and each hash is that of its bytes.
    contents: Vec<(ContentHash, Vec<u8>)>,
}

impl Recent {
    /// Returns the hashes of a file before and after a change, and remembers what it is after: that is what it will be
    /// before the next one.
    pub(super) fn hashes(
        &mut self,
        before: Option<&[u8]>,
        after: Option<&[u8]>,
    ) -> (Option<ContentHash>, Option<ContentHash>) {
        let known = before.and_then(|before| self.contents.iter().position(|(_, bytes)| bytes == before));
        let known = known.map(|at| self.contents.remove(at));
        let before =
            before.map(|before| known.as_ref().map_or_else(|| ContentHash::of(before), |(hash, _)| *hash));
        let Some(after) = after else {
            self.contents.extend(known);
            return (before, None);
        };
        let hash = ContentHash::of(after);
        if after.len() <= MAX_BYTES {
            // Who is forgotten leaves its memory.
            let full = self.contents.len() == CONTENTS;
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
