//! How the bytes of a file become text, and go back without losing one.
//!
//! A file's [`Format`] is what its text does not say: the encoding, and whether a byte order mark comes first. The mark
//! is never part of the text. Text is what [`decode`] returns, and [`encode`] gives its bytes back exactly; bytes of
//! which that cannot be said are refused, so that no write can damage what no read could show. Line endings are part of
//! the text, but they belong to the file: [`fit`] gives a text those of the file it is going to.

use std::fmt;

use memchr::memchr;

mod endings;
mod legacy;
mod utf16;

pub use endings::fit;
pub use legacy::Legacy;

/// How characters are bytes in a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Encoding {
    /// UTF-8, and so ASCII too.
    #[default]
    Utf8,
    /// UTF-16, the low byte first.
    Utf16Le,
    /// UTF-16, the high byte first.
    Utf16Be,
    /// An encoding from before Unicode.
    Legacy(Legacy),
}

impl Encoding {
    /// Returns its name, as the WHATWG's Encoding Standard has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Utf8 => "UTF-8",
            Self::Utf16Le => "UTF-16LE",
            Self::Utf16Be => "UTF-16BE",
            Self::Legacy(legacy) => legacy.name(),
        }
    }

    /// Returns the encoding of that name, which may also be one of the standard's other labels for it, if text can be
    /// written in it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let encoding = encoding_rs::Encoding::for_label_no_replacement(name.as_bytes())?;
        if encoding == encoding_rs::UTF_8 {
            Some(Self::Utf8)
        } else if encoding == encoding_rs::UTF_16LE {
            Some(Self::Utf16Le)
        } else if encoding == encoding_rs::UTF_16BE {
            Some(Self::Utf16Be)
        } else {
            Legacy::new(encoding).map(Self::Legacy)
        }
    }

    /// Returns the byte order mark in this encoding. A legacy encoding has none.
    fn mark(self) -> &'static [u8] {
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

/// What the bytes of a text file hold beside the text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Format {
    /// How its characters are bytes.
    pub encoding: Encoding,
    /// Whether a byte order mark comes first. It means nothing in a legacy encoding.
    pub bom: bool,
}

impl Format {
    /// Returns the bytes that come before those of the text: the byte order mark, or nothing.
    #[must_use]
    pub fn mark(self) -> &'static [u8] {
        if self.bom { self.encoding.mark() } else { b"" }
    }
}

/// A file's bytes as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    /// The text, without a byte order mark.
    pub text: String,
    /// What gives the bytes back.
    pub format: Format,
}

/// Bytes that are not read as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotText {
    /// There is a NUL in them, which no text has.
    #[error("the content is binary, read it with a command that knows its kind")]
    Binary,
    /// They are not what their byte order mark says, or no encoding would give them back exactly.
    #[error(
        "the content is in no encoding that would give its bytes back exactly, convert it to UTF-8 first"
    )]
    Unfaithful,
}

/// A text with a character that the file's encoding cannot keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{character:?} on line {line} cannot be written in {encoding}, leave it out or write it another way")]
pub struct Unencodable {
    /// The first such character.
    pub character: char,
    /// The line it is on, counted from 1.
    pub line: u64,
    /// The encoding that has no place for it.
    pub encoding: Encoding,
}

/// Reads the bytes of a whole file.
///
/// A byte order mark is believed. Without one, bytes with a NUL are binary unless they are plausible UTF-16: of even
/// length and well formed, with NULs only where Latin characters have their high byte, with no control characters but
/// the white ones, at least an eighth of it Latin, and more of it Latin than looks like two characters of ASCII, of which
/// one may be a line end if all bytes are ASCII. Other bytes are UTF-8 if they can be, else in the legacy encoding that they look most like, if their text in it encodes
/// back to the same bytes and has no control characters but white ones, ESC and the end mark of DOS. Bytes that are
/// UTF-8 but for a few errors are in no legacy encoding. What uses ASCII alone to write other characters, as
/// ISO-2022-JP does, is text in UTF-8 as it stands.
///
/// Plain UTF-8 is not copied.
///
/// # Errors
/// Returns why the bytes are not text.
pub fn decode(bytes: Vec<u8>) -> Result<Decoded, NotText> {
    let has_nul = memchr(0, &bytes).is_some();
    decode_scanned(bytes, has_nul)
}

/// Returns the bytes of a whole file as text if [`decode`] would give back the same bytes: UTF-8 with no byte order mark.
#[must_use]
pub fn plain(bytes: &[u8]) -> Option<&str> {
    if bom(bytes).is_some() || memchr(0, bytes).is_some() { None } else { str::from_utf8(bytes).ok() }
}

/// Reads the bytes of a whole file as [`decode`] does, where somebody has already looked whether there is a NUL in them:
/// bytes that were just read are looked at much faster than after all others were read.
///
/// # Errors
/// As [`decode`].
pub fn decode_scanned(bytes: Vec<u8>, has_nul: bool) -> Result<Decoded, NotText> {
    if let Some(format) = bom(&bytes) {
        return Ok(Decoded { text: decode_as(bytes, format)?, format });
    }
    if has_nul {
        let format = Format { encoding: utf16::guess(&bytes).ok_or(NotText::Binary)?, bom: false };
        return Ok(Decoded { text: decode_as(bytes, format)?, format });
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Decoded { text, format: Format::default() }),
        Err(error) => {
            let (text, legacy) = legacy::detect(error.as_bytes()).ok_or(NotText::Unfaithful)?;
            Ok(Decoded { text, format: Format { encoding: Encoding::Legacy(legacy), bom: false } })
        }
    }
}

/// Reads bytes whose format is known, as those that [`encode`] made.
///
/// # Errors
/// Returns [`NotText::Binary`] if there is a NUL in the text, and [`NotText::Unfaithful`] if the bytes are not in this
/// format.
pub fn decode_as(mut bytes: Vec<u8>, format: Format) -> Result<String, NotText> {
    let mark = format.mark();
    if !bytes.starts_with(mark) {
        return Err(NotText::Unfaithful);
    }
    match format.encoding {
        Encoding::Utf8 => {
            bytes.drain(..mark.len());
            decode_window(bytes)
        }
        Encoding::Utf16Le | Encoding::Utf16Be => {
            without_nul(utf16::decode(&bytes[mark.len()..], format.encoding).ok_or(NotText::Unfaithful)?)
        }
        Encoding::Legacy(legacy) => without_nul(legacy.decode(&bytes).ok_or(NotText::Unfaithful)?),
    }
}

/// Reads a part of a UTF-8 file that starts and ends between two characters, after the byte order mark.
///
/// # Errors
/// Returns [`NotText::Binary`] if there is a NUL in it, and [`NotText::Unfaithful`] if it is not UTF-8; the whole file
/// may still be text in another encoding.
pub fn decode_window(bytes: Vec<u8>) -> Result<String, NotText> {
    if memchr(0, &bytes).is_some() {
        return Err(NotText::Binary);
    }
    String::from_utf8(bytes).map_err(|_| NotText::Unfaithful)
}

/// Returns the bytes of a text.
///
/// The byte order mark is the format's: a U+FEFF that the text starts with is one more character.
///
/// # Errors
/// Returns the first character that would not come back from the bytes: one that the encoding has not, or a NUL,
/// which would make the file binary.
pub fn encode(text: &str, format: Format) -> Result<Vec<u8>, Unencodable> {
    let encoding = format.encoding;
    let nul = memchr(0, text.as_bytes());
    // What comes before a NUL has to be looked at first where it can fail too.
    if let Encoding::Legacy(legacy) = encoding {
        let bytes = legacy.encode(&text[..nul.unwrap_or(text.len())]);
        let bytes = bytes.map_err(|at| unencodable(text, at, encoding))?;
        return nul.map_or(Ok(bytes), |at| Err(unencodable(text, at, encoding)));
    }
    if let Some(at) = nul {
        return Err(unencodable(text, at, encoding));
    }
    let mark = format.mark();
    if encoding == Encoding::Utf8 {
        Ok([mark, text.as_bytes()].concat())
    } else {
        Ok(utf16::encode(text, encoding, mark))
    }
}

/// Returns the format that a byte order mark at the start of a file stands for, if there is one.
#[must_use]
pub fn bom(head: &[u8]) -> Option<Format> {
    [Encoding::Utf8, Encoding::Utf16Le, Encoding::Utf16Be]
        .into_iter()
        .find(|encoding| head.starts_with(encoding.mark()))
        .map(|encoding| Format { encoding, bom: true })
}

/// Returns whether a file that starts with these bytes is binary, as far as they can tell.
#[must_use]
pub fn looks_binary(head: &[u8]) -> bool {
    match bom(head) {
        Some(Format { encoding: Encoding::Utf16Le | Encoding::Utf16Be, .. }) => false,
        Some(_) => memchr(0, head).is_some(),
        None => memchr(0, head).is_some() && !utf16::starts(head),
    }
}

/// Returns whether a file that starts with these bytes may be read in windows, because they are UTF-8 as far as they
/// go. A file of another encoding has to be read whole.
#[must_use]
pub fn streams(head: &[u8]) -> bool {
    let utf8 = match std::str::from_utf8(head) {
        Ok(_) => true,
        // The last character may go on after the head.
        Err(error) => error.error_len().is_none(),
    };
    utf8 && memchr(0, head).is_none()
}

fn without_nul(text: String) -> Result<String, NotText> {
    if memchr(0, text.as_bytes()).is_some() { Err(NotText::Binary) } else { Ok(text) }
}

/// Returns the error about the character at that place.
fn unencodable(text: &str, at: usize, encoding: Encoding) -> Unencodable {
    let line = 1 + memchr::memchr_iter(b'\n', &text.as_bytes()[..at]).count() as u64;
    Unencodable { character: text[at..].chars().next().unwrap_or_default(), line, encoding }
}

#[cfg(test)]
mod tests;
