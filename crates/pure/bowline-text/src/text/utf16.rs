//! UTF-16: its encoder, and its detection without a byte order mark.

use memchr::memchr;

use super::Encoding;

/// Returns the text, if the bytes are well formed: of even length, with no unpaired surrogate.
pub(super) fn decode(bytes: &[u8], encoding: Encoding) -> Option<String> {
    let order = if encoding == Encoding::Utf16Be { encoding_rs::UTF_16BE } else { encoding_rs::UTF_16LE };
    let text = order.decode_without_bom_handling_and_without_replacement(bytes)?;
    Some(text.into_owned())
}

/// Returns `mark` followed by the bytes of the text.
pub(super) fn encode(text: &str, encoding: Encoding, mark: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(mark.len() + 2 * text.len());
    bytes.extend_from_slice(mark);
    for unit in text.encode_utf16() {
        let pair = if encoding == Encoding::Utf16Be { unit.to_be_bytes() } else { unit.to_le_bytes() };
        bytes.extend_from_slice(&pair);
    }
    bytes
}

/// Returns the byte order of plausible UTF-16 without a byte order mark. [`super::decode`] states the rules; it calls
/// this only for bytes with a NUL, without which there is no evidence.
pub(super) fn guess_encoding(bytes: &[u8]) -> Option<Encoding> {
    let (pairs, []) = bytes.as_chunks::<2>() else { return None };
    let encoding = if memchr(0, bytes)? % 2 == 0 { Encoding::Utf16Be } else { Encoding::Utf16Le };
    // Where all bytes are NUL or plain ASCII, a pair with a line end in it is as likely two ASCII characters. A tab
    // as the high byte belongs to Devanagari, whose short words have no other such bytes.
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
            // NUL-terminated strings have many of these; Latin, Greek or Cyrillic texts have few.
            (0x20..=0x7e, 0x20..=0x7e) => like_ascii += 1,
            _ if is_ascii && high != b'\t' => like_ascii += 1,
            _ => {}
        }
    }
    let plausible = latin > like_ascii && latin * 8 >= pairs.len();
    (plausible && decode(bytes, encoding).is_some()).then_some(encoding)
}

/// Returns whether a file that starts with these bytes is plausible UTF-16. They may end within a character.
pub(super) fn is_plausible_start(head: &[u8]) -> bool {
    let even_len = head.len() - head.len() % 2;
    guess_encoding(&head[..even_len])
        .or_else(|| guess_encoding(&head[..even_len.saturating_sub(2)]))
        .is_some()
}
