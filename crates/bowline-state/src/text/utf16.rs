//! UTF-16: its encoder, and how it is told from binary where no byte order mark says so.

use memchr::memchr;

use super::Encoding;

/// Returns the text, if the bytes are well formed: of even length, with no half of a surrogate pair.
pub(super) fn decode(bytes: &[u8], encoding: Encoding) -> Option<String> {
    let order = if encoding == Encoding::Utf16Be { encoding_rs::UTF_16BE } else { encoding_rs::UTF_16LE };
    let text = order.decode_without_bom_handling_and_without_replacement(bytes)?;
    Some(text.into_owned())
}

/// Returns the bytes of the text after those of `mark`.
pub(super) fn encode(text: &str, encoding: Encoding, mark: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(mark.len() + 2 * text.len());
    bytes.extend_from_slice(mark);
    for unit in text.encode_utf16() {
        let pair = if encoding == Encoding::Utf16Be { unit.to_be_bytes() } else { unit.to_le_bytes() };
        bytes.extend_from_slice(&pair);
    }
    bytes
}

/// Returns which UTF-16 the bytes are, if they are plausible without a byte order mark. [`super::decode`] states the
/// rules; it asks only about bytes with a NUL in them, and without one there is nothing to go by.
pub(super) fn guess(bytes: &[u8]) -> Option<Encoding> {
    let (pairs, []) = bytes.as_chunks::<2>() else { return None };
    let encoding = if memchr(0, bytes)? % 2 == 0 { Encoding::Utf16Be } else { Encoding::Utf16Le };
    // Where all bytes are NUL or plain ASCII, a pair that ends or begins with a line end is as likely two characters of it. A
    // tab as the high byte is that of Devanagari, which has no other such bytes in its short words.
    let is_white = |byte: u8| matches!(byte, b'\t' | b'\n' | b'\r');
    let is_ascii = bytes.iter().all(|&byte| matches!(byte, 0 | 0x20..=0x7e) || is_white(byte));
    let mut latin = 0;
    let mut like_ascii = 0;
    for &[first, second] in pairs {
        let (high, low) = if encoding == Encoding::Utf16Be { (first, second) } else { (second, first) };
        match (high, low) {
            (_, 0) => return None,
            (0, b'\t' | b'\n' | b'\r' | 0x0c | 0x20..=0x7e | 0xa0..) => latin += 1,
            (0, _) => return None,
            // Strings that each end in a NUL have these in plenty, and Latin, Greek or Cyrillic texts have few.
            (0x20..=0x7e, 0x20..=0x7e) => like_ascii += 1,
            _ if is_ascii && high != b'\t' => like_ascii += 1,
            _ => {}
        }
    }
    let plausible = latin > like_ascii && latin * 8 >= pairs.len();
    (plausible && decode(bytes, encoding).is_some()).then_some(encoding)
}

/// Returns whether a file that starts with these bytes is plausible UTF-16. They may end within a character.
pub(super) fn starts(head: &[u8]) -> bool {
    let whole = head.len() - head.len() % 2;
    guess(&head[..whole]).or_else(|| guess(&head[..whole.saturating_sub(2)])).is_some()
}
