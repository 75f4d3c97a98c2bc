//! The chain itself: sealing a line, taking a line apart, and the anchor.

use std::fmt;

use sha2::{Digest, Sha256};

use super::{Entry, wire};
use crate::changes::ContentHash;

/// What is hashed before a line's bytes, so that no hash of anything else is one of a line.
const DOMAIN: &[u8] = b"bowline audit line 1\n";
const HASH_FIELD: &str = r#","hash":""#;
const LINE_END: &str = "\"}";
const HASH_DIGITS: usize = 64;

/// The end of a chain: what the next line follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chain {
    /// The number of the newest line; 0 if there is none.
    pub seq: u64,
    /// The hash of the newest line.
    pub hash: ContentHash,
}

impl Chain {
    /// The chain that has no line yet.
    pub const EMPTY: Self = Self { seq: 0, hash: ContentHash::UNKNOWN };

    /// Returns the line of an entry, with no line end, and goes on to it.
    ///
    /// Secrets in its texts are redacted, and texts longer than [`MAX_TEXT_BYTES`](super::MAX_TEXT_BYTES) are cut.
    pub fn seal(&mut self, entry: &Entry) -> String {
        let seq = self.seq.saturating_add(1);
        let mut line = wire::body(seq, &self.hash, entry);
        *self = Self { seq, hash: hash(line.as_bytes()) };
        line.push_str(HASH_FIELD);
        line.push_str(&self.hash.to_string());
        line.push_str(LINE_END);
        line
    }

    /// Returns the chain as it is after a line, if the line is whole and is the next one.
    #[must_use]
    pub fn after(&self, line: &[u8]) -> Option<Self> {
        let frame = Frame::read(line)?;
        let follows = frame.whole && Some(frame.seq) == self.seq.checked_add(1) && frame.prev == self.hash;
        follows.then_some(Self { seq: frame.seq, hash: frame.hash })
    }
}

/// What ties a line to the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// The line's number.
    pub seq: u64,
    /// The hash of the line before, as this one has it.
    pub prev: ContentHash,
    /// The line's own hash, as it says.
    pub hash: ContentHash,
    /// The hash of its bytes.
    pub computed: ContentHash,
    /// The line is what was sealed: it says the hash of its bytes, in the one way to say it.
    pub whole: bool,
}

impl Frame {
    /// Takes a line apart. Returns none if it has not the form of a line, changed or not.
    #[must_use]
    pub fn read(line: &[u8]) -> Option<Self> {
        let body_end = line.len().checked_sub(HASH_FIELD.len() + HASH_DIGITS + LINE_END.len())?;
        let (body, tail) = line.split_at(body_end);
        let said = tail.strip_prefix(HASH_FIELD.as_bytes())?.strip_suffix(LINE_END.as_bytes())?;
        let said = std::str::from_utf8(said).ok()?;
        let (seq, rest) = digits(body.strip_prefix(br#"{"seq":"#)?)?;
        let prev = rest.strip_prefix(br#","prev":""#)?.get(..HASH_DIGITS)?;
        let prev = std::str::from_utf8(prev).ok()?.parse().ok()?;
        let computed = hash(body);
        let hash = said.parse().ok()?;
        Some(Self { seq, prev, hash, computed, whole: computed.to_string() == said })
    }
}

/// Reads a number that is written in the one way there is.
fn digits(text: &[u8]) -> Option<(u64, &[u8])> {
    let end = text.iter().position(|byte| !byte.is_ascii_digit())?;
    let number = std::str::from_utf8(&text[..end]).ok()?;
    let value: u64 = number.parse().ok()?;
    (value > 0 && !number.starts_with('0')).then_some((value, &text[end..]))
}

fn hash(body: &[u8]) -> ContentHash {
    let digest: [u8; 32] = Sha256::new().chain_update(DOMAIN).chain_update(body).finalize().into();
    digest.into()
}

/// What is kept elsewhere of a log: where it ends and where what is kept of it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Anchor {
    /// The newest line.
    pub end: Chain,
    /// The oldest line that is kept: older ones were dropped by rotation.
    pub first: u64,
    /// The hash of the line before that.
    pub first_prev: ContentHash,
    /// The number of the newest file.
    pub file: u64,
    /// How long that file is.
    pub bytes: u64,
}

/// The text is no anchor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not an anchor of an audit log")]
pub struct NotAnAnchor;

impl Anchor {
    /// The length of every anchor, so that one is written over another.
    pub const BYTES: usize = 384;

    /// The anchor of a log that has no line yet.
    pub const EMPTY: Self =
        Self { end: Chain::EMPTY, first: 1, first_prev: ContentHash::UNKNOWN, file: 1, bytes: 0 };

    /// Returns the anchor as text of [`Self::BYTES`] bytes.
    #[must_use]
    pub fn write(&self) -> String {
        let text = self.to_string();
        format!("{text:<width$}\n", width = Self::BYTES - 1)
    }

    /// Reads an anchor as it is written.
    ///
    /// # Errors
    /// Fails if the text is anything else than what [`write`](Self::write) makes.
    pub fn read(text: &[u8]) -> Result<Self, NotAnAnchor> {
        let found = parse(text).ok_or(NotAnAnchor)?;
        // There is one way to write an anchor, so that no change of it goes unseen.
        if found.write().as_bytes() == text { Ok(found) } else { Err(NotAnAnchor) }
    }
}

impl fmt::Display for Anchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { end, first, first_prev, file, bytes } = self;
        write!(
            f,
            r#"{{"bowline_audit_anchor":1,"seq":{},"hash":"{}","first":{first},"first_prev":"{first_prev}","file":{file},"bytes":{bytes}}}"#,
            end.seq, end.hash
        )
    }
}

fn parse(text: &[u8]) -> Option<Anchor> {
    let value: serde_json::Value = serde_json::from_slice(text).ok()?;
    let number = |key: &str| value.get(key)?.as_u64();
    let hash = |key: &str| value.get(key)?.as_str()?.parse().ok();
    Some(Anchor {
        end: Chain { seq: number("seq")?, hash: hash("hash")? },
        first: number("first")?,
        first_prev: hash("first_prev")?,
        file: number("file")?,
        bytes: number("bytes")?,
    })
}
