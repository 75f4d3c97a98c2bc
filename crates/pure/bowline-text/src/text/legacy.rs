//! Legacy encodings: detection, and lossless conversion in both directions.

use std::fmt;

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::EncoderResult;

/// The maximum number of bytes that detection examines, from shortly before the first that is not ASCII. The result
/// is then verified against all bytes.
const MAX_DETECTION_BYTES: usize = 256 * 1024;
/// The number of ASCII bytes before the first other byte that detection sees: the adjacent letters distinguish
/// languages.
const DETECTION_CONTEXT: usize = 256;

/// A legacy encoding that text can be written in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LegacyEncoding(
    // Invariant: not a Unicode encoding, and encodes to itself.
    &'static encoding_rs::Encoding,
);

impl LegacyEncoding {
    /// Returns the encoding if it is a stateless legacy one: in ISO-2022-JP, the meaning of an ASCII byte depends on
    /// the text before it.
    pub(super) fn new(encoding: &'static encoding_rs::Encoding) -> Option<Self> {
        let has_encoder = encoding.output_encoding() == encoding && encoding != encoding_rs::UTF_8;
        (has_encoder && encoding != encoding_rs::ISO_2022_JP).then_some(Self(encoding))
    }

    /// Returns its name in the WHATWG's Encoding Standard.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0.name()
    }

    /// Returns the text, if it encodes to exactly these bytes.
    pub(super) fn decode(self, bytes: &[u8]) -> Option<String> {
        let text = self.0.decode_without_bom_handling_and_without_replacement(bytes)?;
        let same = self.encode_loosely(&text).is_ok_and(|again| again == bytes);
        same.then(|| text.into_owned())
    }

    /// Returns the bytes that decode to exactly this text, or the offset of the first character that has none.
    pub(super) fn encode(self, text: &str) -> Result<Vec<u8>, usize> {
        let bytes = match self.encode_loosely(text) {
            Ok(bytes) => bytes,
            // Before the character that cannot be encoded there may be one that does not survive a round trip.
            Err(at) => return Err(self.encode(&text[..at]).err().unwrap_or(at)),
        };
        let again = self.0.decode_without_bom_handling_and_without_replacement(&bytes).unwrap_or_default();
        if again == text {
            return Ok(bytes);
        }
        let mut again = again.chars();
        let differs = text.char_indices().find(|(_, character)| again.next() != Some(*character));
        Err(differs.map_or(0, |(at, _)| at))
    }

    /// Returns the bytes of the text, in which a character may have become a similar one: the Yen sign is a backslash
    /// in Shift-JIS.
    fn encode_loosely(self, text: &str) -> Result<Vec<u8>, usize> {
        let mut encoder = self.0.new_encoder();
        let mut bytes = Vec::with_capacity(text.len() + 16);
        let mut read = 0;
        loop {
            let (result, consumed) =
                encoder.encode_from_utf8_to_vec_without_replacement(&text[read..], &mut bytes, true);
            read += consumed;
            match result {
                EncoderResult::InputEmpty => return Ok(bytes),
                EncoderResult::OutputFull => bytes.reserve(2 * (text.len() - read) + 16),
                EncoderResult::Unmappable(character) => return Err(read - character.len_utf8()),
            }
        }
    }
}

impl fmt::Debug for LegacyEncoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Returns the text of bytes that are not UTF-8, and their encoding, if it restores the bytes.
pub(super) fn detect(bytes: &[u8]) -> Option<(String, LegacyEncoding)> {
    if is_damaged_utf8(bytes) {
        return None;
    }
    let guess = guess_encoding(bytes)?;
    let found = guess.decode(bytes).map(|text| (text, guess)).or_else(|| {
        // The detector reports GBK for GB18030 as well.
        let larger = LegacyEncoding(encoding_rs::GB18030);
        let text = if guess.0 == encoding_rs::GBK { larger.decode(bytes) } else { None };
        text.map(|text| (text, larger))
    });
    found.filter(|(text, _)| !text.chars().any(is_foreign_to_text))
}

fn guess_encoding(bytes: &[u8]) -> Option<LegacyEncoding> {
    let first = bytes.iter().position(|byte| !byte.is_ascii())?;
    // Everything before the first is ASCII, so this does not split a character.
    let rest = &bytes[first.saturating_sub(DETECTION_CONTEXT)..];
    let looked_at = &rest[..rest.len().min(MAX_DETECTION_BYTES)];
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    detector.feed(looked_at, looked_at.len() == rest.len());
    LegacyEncoding::new(detector.guess(None, Utf8Detection::Deny))
}

/// Returns whether most of the non-ASCII bytes are well-formed UTF-8. That hardly happens by chance, and in a legacy
/// encoding the text would be garbage that a write would mix with the real content.
fn is_damaged_utf8(bytes: &[u8]) -> bool {
    let (mut valid, mut invalid) = (0, 0);
    for chunk in bytes.utf8_chunks() {
        valid += chunk.valid().chars().filter(|character| !character.is_ascii()).count();
        invalid += usize::from(!chunk.invalid().is_empty());
    }
    valid > invalid
}

/// Returns whether the character indicates that the bytes are not text: a control character other than white space,
/// the ESC that colours a log, the end mark of DOS and the newline of EBCDIC.
fn is_foreign_to_text(character: char) -> bool {
    character.is_control()
        && !matches!(character, '\t' | '\n' | '\r' | '\u{c}' | '\u{1a}' | '\u{1b}' | '\u{85}')
}
