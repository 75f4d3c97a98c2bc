//! The tail of a command's output, as text.
//!
//! Bytes arrive split anywhere. The output keeps text that can be shown and sent: UTF-8, without the sequences that
//! control a terminal, and with only line feed, carriage return and tab as control characters. How the bytes were
//! split makes no difference. As long as nothing is dropped, earlier text remains a prefix of later text.

mod deferred_bytes;

use std::mem;

use deferred_bytes::DeferredBytes;

/// The tail of a byte stream, as text.
#[derive(Debug, Clone)]
pub struct TerminalOutput {
    limit: usize,
    // Holds up to twice the limit plus slack, so that dropping old text is cheap per byte.
    text: String,
    // The number of bytes of text so far, including dropped ones.
    total_text: u64,
    total_bytes: u64,
    state: State,
    partial: PartialChar,
    deferred: DeferredBytes,
}

/// The position of the stream relative to a control sequence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    /// Outside of a sequence.
    #[default]
    Text,
    /// After ESC.
    Escape,
    /// After ESC and an intermediate byte, as in a choice of character set.
    Intermediate,
    /// In a control sequence, after `ESC [`.
    ControlSequence,
    /// In an operating system command, which BEL also ends.
    OscString,
    /// In any other control string.
    ControlString,
}

/// The first bytes of a character that is not complete yet.
#[derive(Debug, Clone, Copy, Default)]
struct PartialChar {
    bytes: [u8; 4],
    len: usize,
}

/// The first character of some bytes.
enum DecodedPrefix {
    Character(char, usize),
    Invalid(usize),
    Incomplete,
}

// The amount kept beyond twice the limit before old text is dropped, so that a small limit does not move bytes all
// the time.
const SLACK: usize = 16 * 1024;

const ESC: u8 = 0x1b;
const BEL: u8 = 0x07;
const CAN: u8 = 0x18;
const SUB: u8 = 0x1a;

impl TerminalOutput {
    /// Creates an empty output that keeps at most `limit` bytes of text.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            text: String::new(),
            total_text: 0,
            total_bytes: 0,
            state: State::default(),
            partial: PartialChar::default(),
            deferred: DeferredBytes::default(),
        }
    }

    /// Adds bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        if DeferredBytes::may_defer(bytes) {
            return self.push_buffer(&mut bytes.to_vec());
        }
        self.total_bytes += bytes.len() as u64;
        self.process_deferred();
        self.process(bytes);
    }

    /// Adds the bytes of a buffer and empties it. Much output at once is kept with its buffer, without a copy, and the
    /// caller gets another one.
    pub fn push_buffer(&mut self, buffer: &mut Vec<u8>) {
        self.total_bytes += buffer.len() as u64;
        if self.deferred.push(buffer) {
            if self.deferred.drop_beyond(self.limit) {
                self.text.clear();
                self.partial = PartialChar::default();
            }
            if self.deferred.is_full(self.limit) {
                self.process_deferred();
            }
            return;
        }
        self.process_deferred();
        self.process(buffer);
        buffer.clear();
    }

    /// Processes the deferred bytes.
    fn process_deferred(&mut self) {
        for bytes in self.deferred.take() {
            self.process(&bytes);
        }
    }

    fn process(&mut self, bytes: &[u8]) {
        let mut rest = self.complete_partial(bytes);
        while let Some(&byte) = rest.first() {
            let used = match self.state {
                State::Text if is_plain(byte) => {
                    let plain = plain_prefix(rest);
                    // Plain bytes are always ASCII.
                    self.append_text(std::str::from_utf8(&rest[..plain]).unwrap_or_default());
                    plain
                }
                State::Text if is_dropped(byte) => same_prefix(rest),
                // Colours are frequent, and consist mostly of parameter bytes.
                State::ControlSequence if is_parameter(byte) => {
                    rest.iter().position(|byte| !is_parameter(*byte)).unwrap_or(rest.len())
                }
                State::OscString | State::ControlString if !may_end_string(byte) => {
                    rest.iter().position(|byte| may_end_string(*byte)).unwrap_or(rest.len())
                }
                _ if byte.is_ascii() => {
                    self.push_ascii(byte);
                    1
                }
                _ => match decode_char(rest) {
                    DecodedPrefix::Character(character, len) => {
                        self.push_char(character);
                        len
                    }
                    DecodedPrefix::Invalid(len) => {
                        self.push_invalid(byte);
                        len
                    }
                    DecodedPrefix::Incomplete => {
                        self.partial.bytes[..rest.len()].copy_from_slice(rest);
                        self.partial.len = rest.len();
                        rest.len()
                    }
                },
            };
            rest = &rest[used..];
        }
    }

    /// Ends the stream: an incomplete character becomes U+FFFD.
    pub fn finish(&mut self) {
        self.process_deferred();
        if mem::take(&mut self.partial).len > 0 {
            self.push_char(char::REPLACEMENT_CHARACTER);
        }
    }

    /// Returns the tail of the text, at most `limit` bytes.
    #[must_use]
    pub fn text(&mut self) -> &str {
        self.process_deferred();
        &self.text[self.text.ceil_char_boundary(self.text.len().saturating_sub(self.limit))..]
    }

    /// Returns whether there was more text than is kept.
    #[must_use]
    pub fn is_truncated(&mut self) -> bool {
        let kept = self.text().len() as u64;
        self.total_text > kept
    }

    /// Returns the number of bytes received, including those that are not text.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Completes the character that the previous bytes ended inside, and returns the remaining bytes.
    fn complete_partial<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        if self.partial.len == 0 || bytes.is_empty() {
            return bytes;
        }
        let PartialChar { bytes: mut partial, len } = mem::take(&mut self.partial);
        let added = bytes.len().min(partial.len() - len);
        partial[len..len + added].copy_from_slice(&bytes[..added]);
        let used = match decode_char(&partial[..len + added]) {
            DecodedPrefix::Character(character, used) => {
                self.push_char(character);
                used
            }
            DecodedPrefix::Invalid(used) => {
                self.push_invalid(partial[0]);
                used
            }
            DecodedPrefix::Incomplete => {
                self.partial = PartialChar { bytes: partial, len: len + added };
                len + added
            }
        };
        // The partial bytes belong to one character or one invalid sequence, so they are all consumed.
        &bytes[used.saturating_sub(len)..]
    }

    fn push_ascii(&mut self, byte: u8) {
        self.state = match (self.state, byte) {
            (_, ESC) => State::Escape,
            (_, CAN | SUB) => State::Text,
            (State::OscString, BEL) => State::Text,
            (State::OscString | State::ControlString, _) => return,
            // A line break inside a sequence takes effect, and the sequence continues, as on a terminal.
            (_, b'\n' | b'\r' | b'\t') => {
                self.append_text(char::from(byte).encode_utf8(&mut [0; 4]));
                return;
            }
            (_, 0..0x20 | 0x7f) => return,
            (State::Escape, b'[') => State::ControlSequence,
            (State::Escape, b']') => State::OscString,
            (State::Escape, b'P' | b'X' | b'^' | b'_') => State::ControlString,
            (State::Escape | State::Intermediate, 0x20..0x30) => State::Intermediate,
            (State::ControlSequence, parameter) if is_parameter(parameter) => return,
            (State::Escape | State::Intermediate | State::ControlSequence, _) => State::Text,
            (State::Text, _) => {
                self.append_text(char::from(byte).encode_utf8(&mut [0; 4]));
                return;
            }
        };
    }

    /// Processes a character that is not ASCII.
    fn push_char(&mut self, character: char) {
        match (self.state, character) {
            (_, '\u{9c}') => self.state = State::Text,
            (State::OscString | State::ControlString, _) => {}
            (_, '\u{9b}') => self.state = State::ControlSequence,
            (_, '\u{9d}') => self.state = State::OscString,
            (_, '\u{90}' | '\u{98}' | '\u{9e}' | '\u{9f}') => self.state = State::ControlString,
            (_, '\u{80}'..'\u{a0}') => self.state = State::Text,
            // No sequence continues with such a character, so an open one is abandoned.
            (_, character) => {
                self.state = State::Text;
                self.append_text(character.encode_utf8(&mut [0; 4]));
            }
        }
    }

    /// Processes bytes that are not UTF-8.
    ///
    /// A control sequence may begin with a single byte, and ends soon. The other bytes of that kind begin control
    /// strings, which end only at a terminator: these bytes are far more often letters of a legacy encoding, and the
    /// rest of the output would be lost.
    fn push_invalid(&mut self, first: u8) {
        match (self.state, first) {
            (State::OscString | State::ControlString, 0x9c) => self.state = State::Text,
            (State::OscString | State::ControlString, _) => {}
            (_, 0x9b) => self.state = State::ControlSequence,
            _ => self.push_char(char::REPLACEMENT_CHARACTER),
        }
    }

    fn append_text(&mut self, text: &str) {
        self.total_text += text.len() as u64;
        if text.len() >= self.limit {
            self.text.clear();
            self.text.push_str(&text[text.ceil_char_boundary(text.len() - self.limit)..]);
            return;
        }
        self.text.push_str(text);
        if self.text.len() > 2 * self.limit + SLACK {
            let old = self.text.ceil_char_boundary(self.text.len() - self.limit);
            self.text.drain(..old);
        }
    }
}

/// Decodes the first character of bytes whose first byte is not ASCII.
fn decode_char(bytes: &[u8]) -> DecodedPrefix {
    let window = &bytes[..bytes.len().min(4)];
    let (valid, invalid) = match std::str::from_utf8(window) {
        Ok(text) => (text, None),
        Err(error) => {
            let valid = std::str::from_utf8(&window[..error.valid_up_to()]).unwrap_or_default();
            (valid, error.error_len())
        }
    };
    match (valid.chars().next(), invalid) {
        (Some(character), _) => DecodedPrefix::Character(character, character.len_utf8()),
        (None, Some(len)) => DecodedPrefix::Invalid(len),
        (None, None) => DecodedPrefix::Incomplete,
    }
}

/// Returns whether the byte may end a control string, or begin its terminator.
fn may_end_string(byte: u8) -> bool {
    matches!(byte, ESC | BEL | CAN | SUB) || !byte.is_ascii()
}

/// Returns whether the byte continues a control sequence.
fn is_parameter(byte: u8) -> bool {
    matches!(byte, 0x20..0x40)
}

/// Returns whether the byte is dropped outside of sequences.
fn is_dropped(byte: u8) -> bool {
    !is_plain(byte) && byte.is_ascii() && byte != ESC
}

/// Returns whether the byte is kept as text.
fn is_plain(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r' | b'\t' | 0x20..0x7f)
}

/// Returns the length of the plain text at the beginning: most output is nothing else.
fn plain_prefix(bytes: &[u8]) -> usize {
    let mut len = 0;
    for block in bytes.as_chunks::<32>().0 {
        let mut non_plain = 0;
        for word in block.as_chunks::<8>().0 {
            non_plain |= non_plain_bytes(u64::from_le_bytes(*word));
        }
        if non_plain != 0 {
            break;
        }
        len += block.len();
    }
    for word in bytes[len..].as_chunks::<8>().0 {
        let non_plain = non_plain_bytes(u64::from_le_bytes(*word));
        if non_plain != 0 {
            // The first byte is the lowest, and its highest bit marks it.
            return len + non_plain.trailing_zeros() as usize / 8;
        }
        len += word.len();
    }
    len + bytes[len..].iter().take_while(|byte| is_plain(**byte)).count()
}

/// Returns the length of the run of equal bytes at the beginning. Large amounts of dropped bytes come in runs.
fn same_prefix(bytes: &[u8]) -> usize {
    let Some(first) = bytes.first() else { return 0 };
    let block = [*first; 256];
    let same = bytes.as_chunks().0.iter().take_while(|next| **next == block).count() * block.len();
    same + bytes[same..].iter().take_while(|byte| *byte == first).count()
}

/// Checks eight bytes at a time: in the returned word the highest bit of each byte is set if that byte of `word` is
/// not plain.
///
/// No sum carries into the next byte, because no summand has the highest bit of a byte set.
const fn non_plain_bytes(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const LOW: u64 = 0x7f * ONES;
    let low = word & LOW;
    let at_least_space = low + (0x80 - 0x20) * ONES;
    let not_tab = (low ^ (0x09 * ONES)) + LOW;
    let not_line_feed = (low ^ (0x0a * ONES)) + LOW;
    let not_return = (low ^ (0x0d * ONES)) + LOW;
    let not_delete = (low ^ (0x7f * ONES)) + LOW;
    ((!at_least_space & not_tab & not_line_feed & not_return) | !not_delete | word) & !LOW
}

#[cfg(test)]
mod tests;
