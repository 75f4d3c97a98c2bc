//! File content in messages: its encoding, its etag, and ranges of its bytes.

use std::fmt;
use std::ops::Range;

use base64::Engine;
use base64::engine::general_purpose;
use bowline_text::hash::ContentHash;
use serde::{Deserialize, Serialize};

use super::error::FileError;

/// How content is written in a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum DataEncoding {
    /// As text, whatever the encoding of the file is.
    #[default]
    #[serde(rename = "utf-8", alias = "utf8")]
    Utf8,
    /// As bytes in base64: the standard alphabet, with padding and without line breaks.
    #[serde(rename = "base64")]
    Base64,
}

/// The content of a file, or a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileData {
    /// Text. A client writes it in the encoding and with the line endings of the file.
    Text(String),
    /// The bytes as they are.
    Bytes(Vec<u8>),
}

impl FileData {
    /// Decodes content from a message.
    ///
    /// # Errors
    /// Fails with [`FileError::InvalidEncoding`] if it is not base64 and should be.
    pub fn decode(data: String, encoding: DataEncoding) -> Result<Self, FileError> {
        match encoding {
            DataEncoding::Utf8 => Ok(Self::Text(data)),
            DataEncoding::Base64 => base64_codec().decode(&data).map(Self::Bytes).map_err(|error| {
                let position = match error {
                    base64::DecodeError::InvalidByte(position, _) => Some(position),
                    base64::DecodeError::InvalidLastSymbol { offset, .. } => Some(offset),
                    _ => None,
                };
                FileError::InvalidEncoding { position: position.map(|position| position as u64) }
            }),
        }
    }

    /// Encodes the content for a message.
    #[must_use]
    pub fn into_encoded(self) -> (String, DataEncoding) {
        match self {
            Self::Text(text) => (text, DataEncoding::Utf8),
            Self::Bytes(bytes) => (base64_codec().encode(bytes), DataEncoding::Base64),
        }
    }

    /// Returns how the content is written in a message.
    #[must_use]
    pub fn encoding(&self) -> DataEncoding {
        match self {
            Self::Text(_) => DataEncoding::Utf8,
            Self::Bytes(_) => DataEncoding::Base64,
        }
    }

    /// Returns the content as bytes; text as UTF-8.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }

    /// Returns its length in bytes; of text, as UTF-8.
    #[must_use]
    pub fn byte_len(&self) -> u64 {
        self.as_bytes().len() as u64
    }
}

impl From<String> for FileData {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for FileData {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<Vec<u8>> for FileData {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

/// Names the state of a file. Etags are compared and otherwise opaque: a peer may use any text.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Etag(String);

/// The start of the etags made here.
const ETAG_PREFIX: &str = "sha256:";

impl Etag {
    /// Returns the etag of a text file with this text, in UTF-8, or of another file with these bytes.
    #[must_use]
    pub fn digest(content: &[u8]) -> Self {
        ContentHash::digest(content).into()
    }

    /// Returns the hash in an etag of the form that is made here.
    #[must_use]
    pub fn content_hash(&self) -> Option<ContentHash> {
        self.0.strip_prefix(ETAG_PREFIX)?.parse().ok()
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<ContentHash> for Etag {
    fn from(hash: ContentHash) -> Self {
        Self(format!("{ETAG_PREFIX}{hash}"))
    }
}

impl From<String> for Etag {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Etag {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Display for Etag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Etag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Etag({})", self.0)
    }
}

/// The bytes that a read asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    /// The first byte.
    pub offset: u64,
    /// The maximum number of bytes, at least 1.
    pub limit: u64,
}

/// A part of a file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileWindow<T> {
    /// The content.
    pub data: T,
    /// Whether content follows.
    pub is_truncated: bool,
}

/// The number of bytes after the range that [`ByteRange::cut_text`] may need: a character has at most four.
pub const TEXT_LOOKAHEAD: u64 = 3;

impl ByteRange {
    /// Returns the part of the range that lies in content of `size` bytes.
    ///
    /// # Errors
    /// Fails with [`FileError::OutOfRange`] if the range starts past the end. One that starts at the end is empty.
    pub fn clamp_to(self, size: u64) -> Result<Range<u64>, FileError> {
        if self.offset > size {
            return Err(FileError::OutOfRange { position: self.offset, size });
        }
        Ok(self.offset..self.offset.saturating_add(self.limit).min(size))
    }

    /// Returns the range of some bytes.
    ///
    /// # Errors
    /// Fails with [`FileError::OutOfRange`] if the range starts past the end.
    pub fn slice_bytes(self, bytes: &[u8]) -> Result<FileWindow<&[u8]>, FileError> {
        let range = self.clamp_to(bytes.len() as u64)?;
        let (start, end) = (to_index(range.start), to_index(range.end));
        Ok(FileWindow { data: &bytes[start..end], is_truncated: end < bytes.len() })
    }

    /// Returns the range of a text, which ends between two characters.
    ///
    /// # Errors
    /// Fails if the range starts past the end or inside a character.
    pub fn slice_text(self, text: &str) -> Result<FileWindow<&str>, FileError> {
        let range = self.clamp_to(text.len() as u64)?;
        let start = to_index(range.start);
        if !text.is_char_boundary(start) {
            return Err(FileError::InsideCharacter { position: self.offset });
        }
        let rest = &text[start..];
        let end = cut_end(rest.as_bytes(), self.limit);
        Ok(FileWindow { data: &rest[..end], is_truncated: end < rest.len() })
    }

    /// Returns the range of a text of which only `rest` was read: the bytes from the offset on, at least `limit` and
    /// [`TEXT_LOOKAHEAD`] of them unless the text ends before. `size` is the size of the whole text.
    ///
    /// # Errors
    /// Fails with [`FileError::InsideCharacter`] if the range starts inside a character, and with
    /// [`FileError::NotText`] for `path` if the bytes are not UTF-8.
    pub fn cut_text<'a>(
        self,
        rest: &'a [u8],
        size: u64,
        path: &str,
    ) -> Result<FileWindow<&'a str>, FileError> {
        if self.offset > 0 && rest.first().is_some_and(|byte| is_continuation(*byte)) {
            return Err(FileError::InsideCharacter { position: self.offset });
        }
        let end = cut_end(rest, self.limit);
        let data = std::str::from_utf8(&rest[..end]).map_err(|_| FileError::NotText {
            path: path.to_owned(),
            reason: "it is not UTF-8".to_owned(),
        })?;
        Ok(FileWindow { data, is_truncated: self.offset.saturating_add(end as u64) < size })
    }
}

/// Checks the position of an insertion into a text, and returns it as an index.
///
/// # Errors
/// Fails if the position is past the end or inside a character.
pub fn check_text_position(position: u64, text: &str) -> Result<usize, FileError> {
    let index = to_index(check_position(position, text.len() as u64)?);
    if text.is_char_boundary(index) { Ok(index) } else { Err(FileError::InsideCharacter { position }) }
}

/// Checks the position of an insertion into content of `size` bytes.
///
/// # Errors
/// Fails with [`FileError::OutOfRange`] if the position is past the end.
pub fn check_position(position: u64, size: u64) -> Result<u64, FileError> {
    if position <= size { Ok(position) } else { Err(FileError::OutOfRange { position, size }) }
}

/// Returns the largest end within `limit` that is between two characters. If not even the first character fits, it is
/// taken whole: a caller that continues at the end of each answer always proceeds.
fn cut_end(bytes: &[u8], limit: u64) -> usize {
    let mut end = to_index(limit).min(bytes.len());
    while end < bytes.len() && end > 0 && is_continuation(bytes[end]) {
        end -= 1;
    }
    if end == 0 && !bytes.is_empty() {
        end = 1 + bytes[1..].iter().take(3).take_while(|byte| is_continuation(**byte)).count();
    }
    end
}

fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// Converts a position that was compared with the length of something in memory.
fn to_index(position: u64) -> usize {
    usize::try_from(position).unwrap_or(usize::MAX)
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn base64_codec() -> impl Engine {
    base64::engine::Simd::standard(general_purpose::PAD)
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn base64_codec() -> impl Engine {
    general_purpose::STANDARD
}
