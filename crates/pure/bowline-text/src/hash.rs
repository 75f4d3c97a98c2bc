//! The hash of a file's content.

use std::fmt;
use std::str::FromStr;

use ring::digest::{self, SHA256};

/// The SHA-256 hash of a file's content.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentHash([u8; 32]);

impl ContentHash {
    /// A placeholder for content whose hash is not known. No content has this hash.
    pub const UNKNOWN: Self = Self([0; 32]);

    /// Returns the hash of the given bytes.
    #[must_use]
    pub fn digest(bytes: &[u8]) -> Self {
        Self::from_digest(&digest::digest(&SHA256, bytes))
    }

    fn from_digest(found: &digest::Digest) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(found.as_ref());
        Self(hash)
    }

    /// Returns the raw hash.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Hashes content that arrives in pieces.
#[derive(Clone)]
pub struct ContentHasher(digest::Context);

impl Default for ContentHasher {
    fn default() -> Self {
        Self(digest::Context::new(&SHA256))
    }
}

impl fmt::Debug for ContentHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ContentHasher")
    }
}

impl ContentHasher {
    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the hash of all bytes.
    #[must_use]
    pub fn finish(self) -> ContentHash {
        ContentHash::from_digest(&self.0.finish())
    }
}

impl From<[u8; 32]> for ContentHash {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Formatted by hand for speed: every audit entry contains several hashes.
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
pub struct ParseContentHashError;

impl FromStr for ContentHash {
    type Err = ParseContentHashError;

    fn from_str(text: &str) -> Result<Self, ParseContentHashError> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(ParseContentHashError);
        }
        let digit = |at: usize| (digits[at] as char).to_digit(16).ok_or(ParseContentHashError);
        let mut hash = [0; 32];
        for (at, byte) in hash.iter_mut().enumerate() {
            // Two hexadecimal digits are at most 255.
            *byte = (digit(2 * at)? * 16 + digit(2 * at + 1)?) as u8;
        }
        Ok(Self(hash))
    }
}

#[cfg(test)]
mod tests;
