//! The changes of a workspace's files, as the journal keeps them: what was there before, what is there after, who did
//! it and how it was learnt.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

/// The SHA-256 of a file's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentHash([u8; 32]);

impl ContentHash {
    /// Stands for bytes that nobody read, where it is only known that there were some. No bytes are known by it.
    pub const UNKNOWN: Self = Self([0; 32]);

    /// Returns the hash of some bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Returns the hash itself.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<[u8; 32]> for ContentHash {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // By hand, because every entry of an audit log has several.
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 64];
        for (pair, byte) in text.chunks_exact_mut(2).zip(self.0) {
            pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 0xf)]]);
        }
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContentHash({self})")
    }
}

/// The text is not 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a content hash has 64 hexadecimal digits")]
pub struct NotAHash;

impl FromStr for ContentHash {
    type Err = NotAHash;

    fn from_str(text: &str) -> Result<Self, NotAHash> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(NotAHash);
        }
        let digit = |at: usize| (digits[at] as char).to_digit(16).ok_or(NotAHash);
        let mut hash = [0; 32];
        for (at, byte) in hash.iter_mut().enumerate() {
            // Two digits are at most 255.
            *byte = (digit(2 * at)? * 16 + digit(2 * at + 1)?) as u8;
        }
        Ok(Self(hash))
    }
}

/// The place of a change in the journal's order. Later changes have higher numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChangeId(pub i64);

impl fmt::Display for ChangeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A moment: milliseconds since 1970 by the clock of whoever passes it in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Moment(pub i64);

/// Who did something: each part is known or not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The session.
    pub session: Option<String>,
    /// The turn, counted from 1 within the session.
    pub turn: Option<u64>,
    /// The tool call.
    pub call: Option<String>,
    /// The command that ran in a terminal.
    pub command: Option<String>,
}

/// The tool call under which a text is recorded that could only be kept in the journal. A real call has a session.
pub const KEPT_CALL: &str = "kept";

impl Origin {
    /// Returns the origin of a text of the user's that could not be brought into its file, so that only the journal has it.
    #[must_use]
    pub fn kept_text() -> Self {
        Self { call: Some(KEPT_CALL.to_owned()), ..Self::default() }
    }
}

/// How a change was learnt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// It went through Bowline.
    Written,
    /// It was found on disk.
    Observed,
    /// An agent said so.
    Claimed,
}

/// A file as it was before or after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileState {
    /// Its bytes.
    pub hash: ContentHash,
    /// How many they are.
    pub size: u64,
    /// Its permission bits.
    pub mode: u32,
}

/// A change that another one takes back.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reversal {
    /// Which.
    pub change: ChangeId,
    /// Which of its hunks, counted from 0; none means the whole.
    pub hunks: Option<Vec<usize>>,
}

/// One change of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Its place in the journal.
    pub id: ChangeId,
    /// When it was recorded.
    pub at: Moment,
    /// Who did it.
    pub origin: Origin,
    /// How it was learnt.
    pub source: Source,
    /// The file: absolute, with no link on the way.
    pub path: String,
    /// The file before; none if there was none.
    pub before: Option<FileState>,
    /// The file after; none if it was deleted.
    pub after: Option<FileState>,
    /// What it takes back: empty for an edit, edits for an undo, undos for a redo.
    pub reverses: Vec<Reversal>,
}

impl Change {
    /// Says whether the texts of a change that was written were pruned: it is listed, and cannot be undone.
    #[must_use]
    pub fn is_pruned(&self) -> bool {
        let is_forgotten = |state: FileState| state.hash == ContentHash::UNKNOWN;
        self.source == Source::Written && [self.before, self.after].into_iter().flatten().any(is_forgotten)
    }

    /// Says whether it was merely found on disk, and neither a command nor a tool call of the agent explains it: the user may
    /// have made it.
    #[must_use]
    pub fn is_unexplained(&self) -> bool {
        self.source == Source::Observed && self.origin.command.is_none() && self.origin.call.is_none()
    }

    /// Says whether it stands for a text that could not be brought into its file: its `before` is that text, its `after`
    /// what the file held then.
    #[must_use]
    pub fn is_kept_text(&self) -> bool {
        self.origin.session.is_none() && self.origin.call.as_deref() == Some(KEPT_CALL)
    }
}

/// Files that were changed, by how that was learnt: each is in one of the lists, the first that fits, once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sorted {
    /// Through Bowline.
    pub written: Vec<String>,
    /// Found when a command had ended.
    pub by_commands: Vec<String>,
    /// Found otherwise. Whoever did it, the agent or the user, did it past Bowline.
    pub observed: Vec<String>,
}

/// Sorts the files of some changes by how these were learnt. What an agent only said is in none of the lists.
#[must_use]
pub fn sorted<'a>(changes: impl IntoIterator<Item = &'a Change>) -> Sorted {
    let mut sorted = Sorted::default();
    for change in changes {
        let list = match (change.source, &change.origin.command) {
            (Source::Written, _) => &mut sorted.written,
            (Source::Observed, Some(_)) => &mut sorted.by_commands,
            (Source::Observed, None) => &mut sorted.observed,
            (Source::Claimed, _) => continue,
        };
        list.push(change.path.clone());
    }
    let mut seen = HashSet::new();
    for list in [&mut sorted.written, &mut sorted.by_commands, &mut sorted.observed] {
        list.retain(|path| seen.insert(path.clone()));
    }
    sorted
}

#[cfg(test)]
mod tests;
