//! Merged writes that their agent overwrites.
//!
//! Some agents have the client write a file and also write the same text to the disk themselves, in either order. Where the
//! client has merged that text with what the user typed, the agent's own copy removes the user's lines again, although
//! no user asked for that. So a file that soon after holds exactly what its agent sent gets the merged text back, within the
//! same turn. What comes later may be a person who removes these lines, and stays.

use std::collections::HashMap;

use bowline_state::changes::{ContentHash, Origin};
use bowline_state::observation::Known;
use bowline_state::paths::Access;

use super::applying::{Bytes, Current, Effect, Group, NewFile, NotApplied, Telling};
use super::{Workspace, Writer};
use crate::clock::now;
use crate::error::FilesError;
use crate::roots::Roots;
use crate::walker;

/// So many merged writes are remembered, with so many bytes of text; files beyond that are not protected.
const MAX_WRITES: usize = 4096;
const MAX_BYTES: usize = 64 << 20;

/// How long after a merged write the agent's own copy is expected, in nanoseconds.
const SOON_NS: i64 = 10_000_000_000;

/// The merged writes of the turns that go on.
#[derive(Debug, Default)]
pub(super) struct MergedWrites {
    // Invariant: keyed by canonical path; at most `MAX_WRITES`, with at most `MAX_BYTES` of merged text.
    writes: HashMap<String, MergedWrite>,
}

/// What an agent sent, and what its file gets.
#[derive(Debug, Clone)]
pub(super) struct MergedWrite {
    /// The text as it was sent, and as it would be in the file's format.
    pub(super) sent: [ContentHash; 2],
    /// What was made of it.
    pub(super) merged: Vec<u8>,
    /// Whose write it is.
    pub(super) origin: Origin,
    /// When it was, by the clock of file stamps.
    pub(super) at_ns: i64,
}

impl MergedWrite {
    fn is_of(&self, origin: &Origin) -> bool {
        let turn = |origin: &Origin| (origin.session.clone(), origin.turn);
        turn(origin) == turn(&self.origin)
    }
}

impl MergedWrites {
    /// Notes a write of an agent: whether it was merged, or there is nothing to bring back any more.
    pub(super) fn note(&mut self, path: &str, write: Option<MergedWrite>) {
        self.writes.remove(path);
        // Without a session it is not known whose the second write is.
        let Some(write) = write.filter(|write| write.origin.session.is_some()) else { return };
        let is_full = |writes: &HashMap<String, MergedWrite>| {
            let bytes: usize = writes.values().map(|write| write.merged.len()).sum();
            writes.len() >= MAX_WRITES || bytes + write.merged.len() > MAX_BYTES
        };
        if is_full(&self.writes) {
            self.writes.retain(|_, earlier| earlier.is_of(&write.origin));
        }
        if !is_full(&self.writes) {
            self.writes.insert(path.to_owned(), write);
        }
    }

    /// Says whether a text of a file is what the agent of a merged write has sent.
    pub(super) fn is_sent(&self, path: &str, text: ContentHash) -> bool {
        self.writes.get(path).is_some_and(|write| write.sent.contains(&text))
    }

    /// Returns the merged text, if a file holds what its agent has sent in the same turn, since a moment soon after.
    pub(super) fn overwritten(&self, path: &str, origin: &Origin, disk: &Known) -> Option<&[u8]> {
        let hash = disk.hash?;
        let write =
            self.writes.get(path).filter(|write| write.is_of(origin) && write.sent.contains(&hash))?;
        let passed = disk.stamp.ctime_ns.saturating_sub(write.at_ns);
        (passed <= SOON_NS).then_some(write.merged.as_slice())
    }

    /// Says whether a file has a merged write of the same turn.
    fn covers(&self, path: &str, origin: &Origin) -> bool {
        self.writes.get(path).is_some_and(|write| write.is_of(origin))
    }
}

impl Workspace {
    /// Records as the agent's what it has written to the disk before it has the engine write the same text. Else it would be
    /// part of what the user saves.
    pub(super) fn adopt_repeated(
        &self,
        writer: &mut Writer,
        (path, current): (&str, Option<&Current>),
        content: &str,
        origin: &Origin,
    ) -> Result<(), FilesError> {
        let Writer { journal, lookout, .. } = writer;
        if let Some(current) = current.filter(|current| current.bytes == content.as_bytes()) {
            lookout.adopt(journal, &self.inner.roots, (path, &current.bytes), origin)?;
        }
        Ok(())
    }

    /// Brings back the merged text of a file that its agent has overwritten in this turn. Both changes are recorded as the
    /// agent's.
    pub(super) fn restore_merged(
        &self,
        writer: &mut Writer,
        roots: &Roots,
        path: &str,
        origin: &Origin,
    ) -> Result<(), NotApplied> {
        // A path that is not for writing is refused by the write itself.
        let Ok(admitted) = roots.admit(path, Access::Write) else { return Ok(()) };
        let canonical = admitted.canonical().to_owned();
        if !writer.lookout.merged.covers(&canonical, origin) {
            return Ok(());
        }
        let Some(current) = self.load(roots, &admitted)? else { return Ok(()) };
        let Writer { journal, lookout, .. } = &mut *writer;
        let hash = Some(ContentHash::of(&current.bytes));
        let disk = Known { stamp: walker::stamp(&current.stat), hash, racy: false };
        let Some(merged) = lookout.merged.overwritten(&canonical, origin, &disk) else { return Ok(()) };
        let bytes = merged.to_vec();
        lookout.adopt(journal, &self.inner.roots, (&canonical, &current.bytes), origin)?;
        let new = Some(NewFile { bytes: Bytes::Own(bytes), mode: None });
        let effect = Effect { admitted, current: Some(current), new, reverses: Vec::new() };
        let group = Group { roots, origin, effects: &[effect], at: now(), tell: Telling(None) };
        self.apply(writer, &group)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bowline_state::observation::Stamp;

    use super::*;

    fn origin(session: &str, turn: u64) -> Origin {
        Origin { session: Some(session.to_owned()), turn: Some(turn), ..Origin::default() }
    }

    fn write(origin: Origin, merged: &[u8]) -> Option<MergedWrite> {
        let sent = [b"sent\n" as &[u8], b"sent\r\n"].map(ContentHash::of);
        Some(MergedWrite { sent, merged: merged.to_owned(), origin, at_ns: 1_000 })
    }

    #[test]
    fn only_what_was_sent_in_the_same_turn_is_brought_back() {
        let mut writes = MergedWrites::default();
        writes.note("/w/a", write(origin("s", 1), b"merged\n"));
        let overwritten_at = |writes: &MergedWrites, of: &Origin, text: &str, ctime_ns| {
            let stamp = Stamp { device: 1, inode: 1, size: 0, mtime_ns: 0, ctime_ns, mode: 0 };
            let disk = Known { stamp, hash: Some(ContentHash::of(text.as_bytes())), racy: false };
            writes.overwritten("/w/a", of, &disk).map(<[u8]>::to_vec)
        };
        let overwritten =
            |writes: &MergedWrites, of: &Origin, text: &str| overwritten_at(writes, of, text, 1_000);
        for sent in ["sent\n", "sent\r\n"] {
            assert_eq!(overwritten(&writes, &origin("s", 1), sent), Some(b"merged\n".to_vec()));
        }
        assert_eq!(overwritten(&writes, &origin("s", 1), "something else\n"), None);
        let last = 1_000 + SOON_NS;
        assert!(overwritten_at(&writes, &origin("s", 1), "sent\n", last).is_some());
        assert_eq!(overwritten_at(&writes, &origin("s", 1), "sent\n", last + 1), None, "a person, perhaps");
        assert_eq!(overwritten(&writes, &origin("s", 2), "sent\n"), None);
        assert_eq!(overwritten(&writes, &origin("t", 1), "sent\n"), None);
        assert_eq!(overwritten(&writes, &Origin::default(), "sent\n"), None);
        let sent = ContentHash::of(b"sent\n");
        assert!(writes.is_sent("/w/a", sent) && !writes.is_sent("/w/b", sent));
        writes.note("/w/a", None);
        assert_eq!(overwritten(&writes, &origin("s", 1), "sent\n"), None);
        writes.note("/w/a", write(Origin::default(), b"merged\n"));
        assert_eq!(overwritten(&writes, &Origin::default(), "sent\n"), None);
    }

    #[test]
    fn writes_of_earlier_turns_make_room() {
        let names = |writes: &MergedWrites| writes.writes.keys().cloned().collect::<Vec<_>>();
        let mut writes = MergedWrites::default();
        for number in 0..MAX_WRITES {
            writes.note(&format!("/w/{number}"), write(origin("s", 1), b""));
        }
        writes.note("/w/new", write(origin("s", 2), b"x"));
        assert_eq!(names(&writes), ["/w/new"]);
        let large = vec![b'x'; MAX_BYTES];
        writes.note("/w/large", write(origin("s", 3), &large));
        assert_eq!(names(&writes), ["/w/large"]);
        writes.note("/w/more", write(origin("s", 3), b"x"));
        assert_eq!(names(&writes), ["/w/large"]);
    }
}
