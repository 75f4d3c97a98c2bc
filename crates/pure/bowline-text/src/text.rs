//! Lossless conversion between the bytes of a file and text.
//!
//! A file's [`TextFormat`] holds what its text does not: the encoding, and whether a byte order mark comes first. The
//! mark is never part of the text. [`encode`] restores exactly the bytes that [`decode`] read; bytes for which that
//! is impossible are refused, so that no write can damage content that no read could show. Line endings are part of
//! the text, but they belong to the file: [`fit_line_endings`] gives a text those of its target file.

use std::fmt;

use memchr::memchr;

mod legacy;
mod line_endings;
mod utf16;

pub use legacy::LegacyEncoding;
pub use line_endings::fit_line_endings;

/// The encoding of a file's characters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Encoding {
    /// UTF-8, which includes ASCII.
    #[default]
    Utf8,
    /// UTF-16, little-endian.
    Utf16Le,
    /// UTF-16, big-endian.
    Utf16Be,
    /// An encoding from before Unicode.
    Legacy(LegacyEncoding),
}

impl Encoding {
    /// Returns its name in the WHATWG's Encoding Standard.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Utf8 => "UTF-8",
            Self::Utf16Le => "UTF-16LE",
            Self::Utf16Be => "UTF-16BE",
            Self::Legacy(legacy) => legacy.name(),
        }
    }

    /// Returns the encoding with that name, or with one of the standard's other labels, if text can be written in it.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let encoding = encoding_rs::Encoding::for_label_no_replacement(name.as_bytes())?;
        if encoding == encoding_rs::UTF_8 {
            Some(Self::Utf8)
        } else if encoding == encoding_rs::UTF_16LE {
            Some(Self::Utf16Le)
        } else if encoding == encoding_rs::UTF_16BE {
            Some(Self::Utf16Be)
        } else {
            LegacyEncoding::new(encoding).map(Self::Legacy)
        }
    }

    /// Returns the byte order mark in this encoding. A legacy encoding has none.
    fn byte_order_mark(self) -> &'static [u8] {
        match self {
            Self::Utf8 => b"\xef\xbb\xbf",
            Self::Utf16Le => b"\xff\xfe",
            Self::Utf16Be => b"\xfe\xff",
            Self::Legacy(_) => b"",
        }
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The properties of a text file beside its text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TextFormat {
    /// The encoding.
    pub encoding: Encoding,
    /// Whether a byte order mark comes first. It has no effect in a legacy encoding.
    pub has_bom: bool,
}

impl TextFormat {
    /// Returns the bytes before those of the text: the byte order mark, or nothing.
    #[must_use]
    pub fn byte_order_mark(self) -> &'static [u8] {
        if self.has_bom { self.encoding.byte_order_mark() } else { b"" }
    }
}

/// The text of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodedText {
    /// The text, without a byte order mark.
    pub text: String,
    /// The format that restores the bytes.
    pub format: TextFormat,
}

/// Why bytes are not text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotTextError {
    /// They contain a NUL, which no text has.
    #[error("the content is binary, read it with a command that knows its kind")]
    Binary,
    /// They contradict their byte order mark, or no encoding would restore them exactly.
    #[error(
        "the content is in no encoding that would give its bytes back exactly, convert it to UTF-8 first"
    )]
    NotReversible,
}

/// A character that the file's encoding cannot represent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{character:?} on line {line} cannot be written in {encoding}, leave it out or write it another way")]
pub struct UnencodableError {
    /// The first such character.
    pub character: char,
    /// The line it is on, counted from 1.
    pub line: u64,
    /// The encoding.
    pub encoding: Encoding,
}

/// Decodes the bytes of a whole file.
///
/// A byte order mark is trusted. Without one, bytes with a NUL are binary unless they are plausible UTF-16: of even
/// length and well formed, with NULs only as the high bytes of Latin characters, with no control characters but white
/// space, with at least an eighth of the characters Latin, and with more Latin characters than pairs that look like
/// two ASCII characters, of which one may be a line end if all bytes are ASCII. Other bytes are UTF-8 if they are
/// valid, else in the most likely legacy encoding, if their text in it encodes back to the same bytes and has no
/// control characters but white space, ESC and the end mark of DOS. Bytes that are UTF-8 except for a few errors are
/// in no legacy encoding. Encodings that write other characters in ASCII alone, as ISO-2022-JP does, are read as
/// UTF-8.
///
/// Plain UTF-8 is not copied.
///
/// # Errors
/// Returns why the bytes are not text.
pub fn decode(bytes: Vec<u8>) -> Result<DecodedText, NotTextError> {
    let has_nul = memchr(0, &bytes).is_some();
    decode_scanned(bytes, has_nul)
}

/// Returns the bytes of a whole file as text if [`decode`] would return the same bytes: UTF-8 without a byte order
/// mark.
#[must_use]
pub fn as_plain_utf8(bytes: &[u8]) -> Option<&str> {
    if detect_bom(bytes).is_some() || memchr(0, bytes).is_some() { None } else { str::from_utf8(bytes).ok() }
}

/// Decodes the bytes of a whole file as [`decode`] does, given whether they contain a NUL: scanning bytes right after
/// they were read is much faster than after the whole file was read.
///
/// # Errors
/// Fails as [`decode`] does.
pub fn decode_scanned(bytes: Vec<u8>, has_nul: bool) -> Result<DecodedText, NotTextError> {
    if let Some(format) = detect_bom(&bytes) {
        return Ok(DecodedText { text: decode_as(bytes, format)?, format });
    }
    if has_nul {
        let format = TextFormat {
            encoding: utf16::guess_encoding(&bytes).ok_or(NotTextError::Binary)?,
            has_bom: false,
        };
        return Ok(DecodedText { text: decode_as(bytes, format)?, format });
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(DecodedText { text, format: TextFormat::default() }),
        Err(error) => {
            let (text, legacy) = legacy::detect(error.as_bytes()).ok_or(NotTextError::NotReversible)?;
            Ok(DecodedText {
                text,
                format: TextFormat { encoding: Encoding::Legacy(legacy), has_bom: false },
            })
        }
    }
}

/// Decodes bytes of a known format, such as those made by [`encode`].
///
/// # Errors
/// Returns [`NotTextError::Binary`] if the text contains a NUL, and [`NotTextError::NotReversible`] if the bytes are
/// not in this format.
pub fn decode_as(mut bytes: Vec<u8>, format: TextFormat) -> Result<String, NotTextError> {
    let mark = format.byte_order_mark();
    if !bytes.starts_with(mark) {
        return Err(NotTextError::NotReversible);
    }
    match format.encoding {
        Encoding::Utf8 => {
            bytes.drain(..mark.len());
            decode_window(bytes)
        }
        Encoding::Utf16Le | Encoding::Utf16Be => reject_nul(
            utf16::decode(&bytes[mark.len()..], format.encoding).ok_or(NotTextError::NotReversible)?,
        ),
        Encoding::Legacy(legacy) => reject_nul(legacy.decode(&bytes).ok_or(NotTextError::NotReversible)?),
    }
}

/// Decodes a part of a UTF-8 file that starts and ends at character boundaries, after the byte order mark.
///
/// # Errors
/// Returns [`NotTextError::Binary`] if it contains a NUL, and [`NotTextError::NotReversible`] if it is not UTF-8; the
/// whole file may still be text in another encoding.
pub fn decode_window(bytes: Vec<u8>) -> Result<String, NotTextError> {
    if memchr(0, &bytes).is_some() {
        return Err(NotTextError::Binary);
    }
    String::from_utf8(bytes).map_err(|_| NotTextError::NotReversible)
}

/// Returns the bytes of a text.
///
/// The format decides on the byte order mark: a U+FEFF at the start of the text is an additional character.
///
/// # Errors
/// Returns the first character that would not survive a round trip: one that the encoding lacks, or a NUL, which
/// would make the file binary.
pub fn encode(text: &str, format: TextFormat) -> Result<Vec<u8>, UnencodableError> {
    let encoding = format.encoding;
    let nul = memchr(0, text.as_bytes());
    // The text before a NUL has to be checked first where it can fail too.
    if let Encoding::Legacy(legacy) = encoding {
        let bytes = legacy.encode(&text[..nul.unwrap_or(text.len())]);
        let bytes = bytes.map_err(|at| unencodable_error(text, at, encoding))?;
        return nul.map_or(Ok(bytes), |at| Err(unencodable_error(text, at, encoding)));
    }
    if let Some(at) = nul {
        return Err(unencodable_error(text, at, encoding));
    }
    let mark = format.byte_order_mark();
    if encoding == Encoding::Utf8 {
        Ok([mark, text.as_bytes()].concat())
    } else {
        Ok(utf16::encode(text, encoding, mark))
    }
}

/// Returns the format that a byte order mark at the start of a file indicates, if there is one.
#[must_use]
pub fn detect_bom(head: &[u8]) -> Option<TextFormat> {
    [Encoding::Utf8, Encoding::Utf16Le, Encoding::Utf16Be]
        .into_iter()
        .find(|encoding| head.starts_with(encoding.byte_order_mark()))
        .map(|encoding| TextFormat { encoding, has_bom: true })
}

/// Returns whether a file that starts with these bytes looks binary.
#[must_use]
pub fn looks_binary(head: &[u8]) -> bool {
    match detect_bom(head) {
        Some(TextFormat { encoding: Encoding::Utf16Le | Encoding::Utf16Be, .. }) => false,
        Some(_) => memchr(0, head).is_some(),
        None => memchr(0, head).is_some() && !utf16::is_plausible_start(head),
    }
}

fn reject_nul(text: String) -> Result<String, NotTextError> {
    if memchr(0, text.as_bytes()).is_some() { Err(NotTextError::Binary) } else { Ok(text) }
}

/// Returns the error for the character at this offset.
fn unencodable_error(text: &str, at: usize, encoding: Encoding) -> UnencodableError {
    let line = 1 + memchr::memchr_iter(b'\n', &text.as_bytes()[..at]).count() as u64;
    UnencodableError { character: text[at..].chars().next().unwrap_or_default(), line, encoding }
}

#[cfg(test)]
mod tests;
