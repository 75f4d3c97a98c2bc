//! Merged writes that their agent overwrites.
//!
//! Some agents have the client write a file and also write the same text to the disk themselves, in either order. If
//! the client merged that text with the user's edits, the agent's own copy removes the user's lines again,
//! unintentionally. A file that soon afterwards, within the same turn, holds exactly what its agent sent therefore gets
//! the merged text back. A later identical text may come from a person who removes those lines, and is kept.

use std::collections::HashMap;

use bowline_history::changes::ChangeOrigin;
use bowline_history::observation::KnownFile;
use bowline_policy::paths::Access;
use bowline_text::hash::ContentHash;

use super::apply::{
    ApplyError, ChangeGroup, CurrentFile, FileBytes, NewFile, PlannedChange, apply_changes, read_current,
};
use super::{Workspace, WorkspaceWriter};
use crate::error::FilesError;
use crate::roots::Roots;
use bowline_storage::file_clock;

/// Limits on the merged writes that are remembered, in number and in bytes of text. Files beyond them are not
/// protected.
const MAX_WRITES: usize = 4096;
const MAX_MERGED_BYTES: usize = 64 << 20;

/// How long after a merged write the agent's own copy is expected, in nanoseconds.
const MAX_REPEAT_DELAY_NS: i64 = 10_000_000_000;

/// The merged writes of the current turns.
#[derive(Debug, Default)]
pub(super) struct MergedWrites {
    // Invariant: keyed by canonical path; at most `MAX_WRITES`, with at most `MAX_MERGED_BYTES` of merged text.
    writes: HashMap<String, MergedWrite>,
}

/// The text that an agent sent, and the text that its file gets.
#[derive(Debug, Clone)]
pub(super) struct MergedWrite {
    /// The hashes of the text as it was sent, and as encoded in the file's format.
    pub(super) sent_hashes: [ContentHash; 2],
    /// The merged text.
    pub(super) merged: Vec<u8>,
    /// The origin of the write.
    pub(super) origin: ChangeOrigin,
    /// The time of the write, by the clock that stamps files.
    pub(super) at_ns: i64,
}

impl MergedWrite {
    fn is_same_turn(&self, origin: &ChangeOrigin) -> bool {
        let turn = |origin: &ChangeOrigin| (origin.session.clone(), origin.turn);
        turn(origin) == turn(&self.origin)
    }
}

impl MergedWrites {
    /// Records an agent's write: a merged one, or `None` if there is nothing left to restore.
    pub(super) fn record(&mut self, path: &str, write: Option<MergedWrite>) {
        self.writes.remove(path);
        // Without a session the second write cannot be attributed.
        let Some(write) = write.filter(|write| write.origin.session.is_some()) else { return };
        let is_full = |writes: &HashMap<String, MergedWrite>| {
            let bytes: usize = writes.values().map(|write| write.merged.len()).sum();
            writes.len() >= MAX_WRITES || bytes + write.merged.len() > MAX_MERGED_BYTES
        };
        if is_full(&self.writes) {
            self.writes.retain(|_, earlier| earlier.is_same_turn(&write.origin));
        }
        if !is_full(&self.writes) {
            self.writes.insert(path.to_owned(), write);
        }
    }

    /// Returns whether a text is what the agent of a merged write sent.
    pub(super) fn is_sent_text(&self, path: &str, text: ContentHash) -> bool {
        self.writes.get(path).is_some_and(|write| write.sent_hashes.contains(&text))
    }

    /// Returns the merged text, if the file holds what its agent sent in the same turn and was written soon afterwards.
    pub(super) fn overwritten_text(
        &self,
        path: &str,
        origin: &ChangeOrigin,
        disk: &KnownFile,
    ) -> Option<&[u8]> {
        let hash = disk.hash?;
        let write = self
            .writes
            .get(path)
            .filter(|write| write.is_same_turn(origin) && write.sent_hashes.contains(&hash))?;
        let passed = disk.stamp.ctime_ns.saturating_sub(write.at_ns);
        (passed <= MAX_REPEAT_DELAY_NS).then_some(write.merged.as_slice())
    }

    /// Returns whether a file has a merged write from the same turn.
    fn has_write(&self, path: &str, origin: &ChangeOrigin) -> bool {
        self.writes.get(path).is_some_and(|write| write.is_same_turn(origin))
    }
}

/// Attributes to the agent a text that it wrote to the disk before asking the engine to write the same. Otherwise
/// the text would become part of what the user saves.
pub(super) fn adopt_repeated_write(
    workspace: &Workspace,
    writer: &mut WorkspaceWriter,
    (path, current): (&str, Option<&CurrentFile>),
    content: &str,
    origin: &ChangeOrigin,
) -> Result<(), FilesError> {
    let WorkspaceWriter { journal, observer_state: lookout, .. } = writer;
    if let Some(current) = current.filter(|current| current.bytes == content.as_bytes()) {
        lookout.adopt_write(journal, &workspace.inner.roots, (path, &current.bytes), origin)?;
    }
    Ok(())
}

/// Restores the merged text of a file that its agent overwrote in this turn. Both changes are attributed to the
/// agent.
pub(super) fn restore_merged(
    workspace: &Workspace,
    writer: &mut WorkspaceWriter,
    roots: &Roots,
    path: &str,
    origin: &ChangeOrigin,
) -> Result<(), ApplyError> {
    if writer.observer_state.merged_writes.writes.is_empty() {
        return Ok(());
    }
    // If the path is not writable, the write itself reports it.
    let Ok(admitted) = roots.admit(path, Access::Write) else { return Ok(()) };
    let canonical = admitted.canonical().to_owned();
    if !writer.observer_state.merged_writes.has_write(&canonical, origin) {
        return Ok(());
    }
    let Some(current) = read_current(workspace, roots, &admitted)? else { return Ok(()) };
    let WorkspaceWriter { journal, observer_state: lookout, .. } = &mut *writer;
    let hash = Some(ContentHash::digest(&current.bytes));
    let disk = KnownFile { stamp: file_clock::file_stamp(&current.stat), hash, is_racy: false };
    let Some(merged) = lookout.merged_writes.overwritten_text(&canonical, origin, &disk) else {
        return Ok(());
    };
    let bytes = merged.to_vec();
    lookout.adopt_write(journal, &workspace.inner.roots, (&canonical, &current.bytes), origin)?;
    let new = Some(NewFile { bytes: FileBytes::Owned(bytes), mode: None });
    let change = PlannedChange::replace(admitted, Some(current), new);
    let group = ChangeGroup::single(roots, origin, &change);
    apply_changes(workspace, writer, &group)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use bowline_history::observation::FileStamp;

    use super::*;

    fn origin(session: &str, turn: u64) -> ChangeOrigin {
        ChangeOrigin { session: Some(session.to_owned()), turn: Some(turn), ..ChangeOrigin::default() }
    }

    fn write(origin: ChangeOrigin, merged: &[u8]) -> Option<MergedWrite> {
        let sent = [b"sent\n" as &[u8], b"sent\r\n"].map(ContentHash::digest);
        Some(MergedWrite { sent_hashes: sent, merged: merged.to_owned(), origin, at_ns: 1_000 })
    }

    #[test]
    fn only_what_was_sent_in_the_same_turn_is_brought_back() {
        let mut writes = MergedWrites::default();
        writes.record("/w/a", write(origin("s", 1), b"merged\n"));
        let overwritten_at = |writes: &MergedWrites, of: &ChangeOrigin, text: &str, ctime_ns| {
            let stamp = FileStamp { device: 1, inode: 1, size: 0, mtime_ns: 0, ctime_ns, mode: 0 };
            let disk = KnownFile { stamp, hash: Some(ContentHash::digest(text.as_bytes())), is_racy: false };
            writes.overwritten_text("/w/a", of, &disk).map(<[u8]>::to_vec)
        };
        let overwritten =
            |writes: &MergedWrites, of: &ChangeOrigin, text: &str| overwritten_at(writes, of, text, 1_000);
        for sent in ["sent\n", "sent\r\n"] {
            assert_eq!(overwritten(&writes, &origin("s", 1), sent), Some(b"merged\n".to_vec()));
        }
        assert_eq!(overwritten(&writes, &origin("s", 1), "something else\n"), None);
        let last = 1_000 + MAX_REPEAT_DELAY_NS;
        assert!(overwritten_at(&writes, &origin("s", 1), "sent\n", last).is_some());
        assert_eq!(overwritten_at(&writes, &origin("s", 1), "sent\n", last + 1), None, "a person, perhaps");
        assert_eq!(overwritten(&writes, &origin("s", 2), "sent\n"), None);
        assert_eq!(overwritten(&writes, &origin("t", 1), "sent\n"), None);
        assert_eq!(overwritten(&writes, &ChangeOrigin::default(), "sent\n"), None);
        let sent = ContentHash::digest(b"sent\n");
        assert!(writes.is_sent_text("/w/a", sent) && !writes.is_sent_text("/w/b", sent));
        writes.record("/w/a", None);
        assert_eq!(overwritten(&writes, &origin("s", 1), "sent\n"), None);
        writes.record("/w/a", write(ChangeOrigin::default(), b"merged\n"));
        assert_eq!(overwritten(&writes, &ChangeOrigin::default(), "sent\n"), None);
    }

    #[test]
    fn writes_of_earlier_turns_make_room() {
        let names = |writes: &MergedWrites| writes.writes.keys().cloned().collect::<Vec<_>>();
        let mut writes = MergedWrites::default();
        for number in 0..MAX_WRITES {
            writes.record(&format!("/w/{number}"), write(origin("s", 1), b""));
        }
        writes.record("/w/new", write(origin("s", 2), b"x"));
        assert_eq!(names(&writes), ["/w/new"]);
        let large = vec![b'x'; MAX_MERGED_BYTES];
        writes.record("/w/large", write(origin("s", 3), &large));
        assert_eq!(names(&writes), ["/w/large"]);
        writes.record("/w/more", write(origin("s", 3), b"x"));
        assert_eq!(names(&writes), ["/w/large"]);
    }
}
