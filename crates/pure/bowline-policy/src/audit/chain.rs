//! The hash chain: sealing lines, parsing lines, and the anchor.

use std::fmt;

use super::{AuditEntry, line_format};
use bowline_text::hash::{ContentHash, ContentHasher};

/// The prefix hashed before a line's bytes, so that a hash of other data never matches a line.
const HASH_DOMAIN: &[u8] = b"bowline audit line 1\n";
const HASH_FIELD: &str = r#","hash":""#;
const LINE_SUFFIX: &str = "\"}";
const HASH_DIGITS: usize = 64;

/// The end of a chain, which the next line extends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainHead {
    /// The number of the newest line; 0 if the chain is empty.
    pub seq: u64,
    /// The hash of the newest line.
    pub hash: ContentHash,
}

impl ChainHead {
    /// The empty chain.
    pub const EMPTY: Self = Self { seq: 0, hash: ContentHash::UNKNOWN };

    /// Returns the sealed line of an entry, without a newline, and advances the head to it.
    ///
    /// Secrets in its texts are redacted, and texts longer than [`MAX_TEXT_BYTES`](super::MAX_TEXT_BYTES) are
    /// truncated.
    pub fn seal_entry(&mut self, entry: &AuditEntry) -> String {
        let seq = self.seq.saturating_add(1);
        let mut line = line_format::encode_body(seq, &self.hash, entry);
        *self = Self { seq, hash: hash_line(line.as_bytes()) };
        line.push_str(HASH_FIELD);
        line.push_str(&self.hash.to_string());
        line.push_str(LINE_SUFFIX);
        line
    }

    /// Returns the head after a line, if the line is intact and is the next one.
    #[must_use]
    pub fn next_head(&self, line: &[u8]) -> Option<Self> {
        let frame = ChainLink::parse(line)?;
        let follows =
            frame.is_intact && Some(frame.seq) == self.seq.checked_add(1) && frame.prev == self.hash;
        follows.then_some(Self { seq: frame.seq, hash: frame.hash })
    }
}

/// The fields that link a line to its neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainLink {
    /// The line's number.
    pub seq: u64,
    /// The hash of the previous line, as recorded in this one.
    pub prev: ContentHash,
    /// The line's recorded hash.
    pub hash: ContentHash,
    /// The computed hash of its bytes.
    pub computed_hash: ContentHash,
    /// Whether the line is as sealed: its recorded hash matches its bytes, in canonical form.
    pub is_intact: bool,
}

impl ChainLink {
    /// Parses a line. Returns `None` if it lacks the form of an entry, altered or not.
    #[must_use]
    pub fn parse(line: &[u8]) -> Option<Self> {
        let body_end = line.len().checked_sub(HASH_FIELD.len() + HASH_DIGITS + LINE_SUFFIX.len())?;
        let (body, tail) = line.split_at(body_end);
        let stored = tail.strip_prefix(HASH_FIELD.as_bytes())?.strip_suffix(LINE_SUFFIX.as_bytes())?;
        let stored = std::str::from_utf8(stored).ok()?;
        let (seq, rest) = parse_number(body.strip_prefix(br#"{"seq":"#)?)?;
        let prev = rest.strip_prefix(br#","prev":""#)?.get(..HASH_DIGITS)?;
        let prev = std::str::from_utf8(prev).ok()?.parse().ok()?;
        let computed_hash = hash_line(body);
        let hash = stored.parse().ok()?;
        Some(Self { seq, prev, hash, computed_hash, is_intact: computed_hash.to_string() == stored })
    }
}

/// Parses a number in canonical form.
fn parse_number(text: &[u8]) -> Option<(u64, &[u8])> {
    let end = text.iter().position(|byte| !byte.is_ascii_digit())?;
    let number = std::str::from_utf8(&text[..end]).ok()?;
    let value: u64 = number.parse().ok()?;
    (value > 0 && !number.starts_with('0')).then_some((value, &text[end..]))
}

fn hash_line(body: &[u8]) -> ContentHash {
    let mut hasher = ContentHasher::default();
    hasher.update(HASH_DOMAIN);
    hasher.update(body);
    hasher.finish()
}

/// The part of a log's state that is stored elsewhere: where the log ends and where its retained part begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditAnchor {
    /// The newest line.
    pub head: ChainHead,
    /// The number of the oldest retained line; rotation dropped the older ones.
    pub first_seq: u64,
    /// The hash of the line before the oldest retained one.
    pub first_prev: ContentHash,
    /// The number of the newest file.
    pub file_number: u64,
    /// The length of that file in bytes.
    pub file_bytes: u64,
}

/// The text is not an anchor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not an anchor of an audit log")]
pub struct ParseAnchorError;

impl AuditAnchor {
    /// The length of every encoded anchor, so that one can overwrite another in place.
    pub const ENCODED_LEN: usize = 384;

    /// The anchor of an empty log.
    pub const EMPTY: Self = Self {
        head: ChainHead::EMPTY,
        first_seq: 1,
        first_prev: ContentHash::UNKNOWN,
        file_number: 1,
        file_bytes: 0,
    };

    /// Returns the anchor as text of [`Self::ENCODED_LEN`] bytes.
    #[must_use]
    pub fn encode(&self) -> String {
        let text = self.to_string();
        format!("{text:<width$}\n", width = Self::ENCODED_LEN - 1)
    }

    /// Parses an encoded anchor.
    ///
    /// # Errors
    /// Fails if the text is not exactly an output of [`encode`](Self::encode).
    pub fn decode(text: &[u8]) -> Result<Self, ParseAnchorError> {
        let found = parse_anchor(text).ok_or(ParseAnchorError)?;
        // An anchor has only one encoding, so every change of it is detected.
        if found.encode().as_bytes() == text { Ok(found) } else { Err(ParseAnchorError) }
    }
}

impl fmt::Display for AuditAnchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { head: end, first_seq: first, first_prev, file_number: file, file_bytes: bytes } = self;
        write!(
            f,
            r#"{{"bowline_audit_anchor":1,"seq":{},"hash":"{}","first":{first},"first_prev":"{first_prev}","file":{file},"bytes":{bytes}}}"#,
            end.seq, end.hash
        )
    }
}

fn parse_anchor(text: &[u8]) -> Option<AuditAnchor> {
    let value: serde_json::Value = serde_json::from_slice(text).ok()?;
    let number = |key: &str| value.get(key)?.as_u64();
    let hash = |key: &str| value.get(key)?.as_str()?.parse().ok();
    Some(AuditAnchor {
        head: ChainHead { seq: number("seq")?, hash: hash("hash")? },
        first_seq: number("first")?,
        first_prev: hash("first_prev")?,
        file_number: number("file")?,
        file_bytes: number("bytes")?,
    })
}
