//! The tail of a command's output, as text.
//!
//! Bytes come as they are read, cut anywhere. What is kept is text that can be shown and sent: UTF-8, without the
//! sequences by which a program steers a terminal, and of the control characters only line feed, carriage return and
//! tab. How the bytes were cut makes no difference. As long as nothing is dropped, what was text once stays the
//! beginning of the text.

mod deferred;

use std::mem;

use deferred::Deferred;

/// The last text of a stream of bytes.
#[derive(Debug, Clone)]
pub struct Output {
    limit: usize,
    // Holds up to twice the limit and a bit, so that dropping what is too old costs little per byte.
    text: String,
    // How many bytes of text there were, with those dropped.
    whole: u64,
    bytes: u64,
    state: State,
    partial: Partial,
    deferred: Deferred,
}

/// Where the stream is in a sequence that steers a terminal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    /// In none.
    #[default]
    Text,
    /// After ESC.
    Escape,
    /// After ESC and an intermediate, as in a choice of character set.
    Intermediate,
    /// In a control sequence, after `ESC [`.
    Control,
    /// In an operating system command, which BEL ends too.
    Command,
    /// In any other string.
    String,
}

/// The beginning of a character whose rest has not come.
#[derive(Debug, Clone, Copy, Default)]
struct Partial {
    bytes: [u8; 4],
    len: usize,
}

/// What bytes begin with.
enum Decoded {
    Character(char, usize),
    Invalid(usize),
    Incomplete,
}

// What is kept beyond twice the limit before the oldest is dropped: a small limit should not move bytes all the time.
const SLACK: usize = 16 * 1024;

const ESC: u8 = 0x1b;
const BEL: u8 = 0x07;
const CAN: u8 = 0x18;
const SUB: u8 = 0x1a;

impl Output {
    /// Returns the output of a command that has said nothing yet. At most `limit` bytes of text will be kept.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            text: String::new(),
            whole: 0,
            bytes: 0,
            state: State::default(),
            partial: Partial::default(),
            deferred: Deferred::default(),
        }
    }

    /// Takes in the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        if self.deferred.push(bytes) {
            if self.deferred.drop_beyond(self.limit) {
                self.text.clear();
                self.partial = Partial::default();
            }
            if self.deferred.is_full(self.limit) {
                self.read_deferred();
            }
            return;
        }
        self.read_deferred();
        self.read(bytes);
    }

    /// Reads what was not read when it came.
    fn read_deferred(&mut self) {
        for bytes in self.deferred.take() {
            self.read(&bytes);
        }
    }

    fn read(&mut self, bytes: &[u8]) {
        let mut rest = self.complete(bytes);
        while let Some(&byte) = rest.first() {
            let used = match self.state {
                State::Text if is_plain(byte) => {
                    let plain = plain_prefix(rest);
                    // Nothing but ASCII is plain.
                    self.keep(std::str::from_utf8(&rest[..plain]).unwrap_or_default());
                    plain
                }
                State::Text if is_dropped(byte) => same_prefix(rest),
                // Colours come by the thousand, and most of each are numbers.
                State::Control if is_parameter(byte) => {
                    rest.iter().position(|byte| !is_parameter(*byte)).unwrap_or(rest.len())
                }
                State::Command | State::String if !may_end_string(byte) => {
                    rest.iter().position(|byte| may_end_string(*byte)).unwrap_or(rest.len())
                }
                _ if byte.is_ascii() => {
                    self.ascii(byte);
                    1
                }
                _ => match decode(rest) {
                    Decoded::Character(character, len) => {
                        self.character(character);
                        len
                    }
                    Decoded::Invalid(len) => {
                        self.invalid(byte);
                        len
                    }
                    Decoded::Incomplete => {
                        self.partial.bytes[..rest.len()].copy_from_slice(rest);
                        self.partial.len = rest.len();
                        rest.len()
                    }
                },
            };
            rest = &rest[used..];
        }
    }

    /// Says that nothing more comes: a character whose rest is missing becomes U+FFFD.
    pub fn finish(&mut self) {
        self.read_deferred();
        if mem::take(&mut self.partial).len > 0 {
            self.character(char::REPLACEMENT_CHARACTER);
        }
    }

    /// Returns the last text, at most as many bytes as the limit.
    #[must_use]
    pub fn text(&mut self) -> &str {
        self.read_deferred();
        &self.text[self.text.ceil_char_boundary(self.text.len().saturating_sub(self.limit))..]
    }

    /// Returns whether there was more text than is kept.
    #[must_use]
    pub fn truncated(&mut self) -> bool {
        let kept = self.text().len() as u64;
        self.whole > kept
    }

    /// Returns how many bytes came, of which some are no text.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Finishes the character that the last bytes ended in the middle of, and returns what is left.
    fn complete<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        if self.partial.len == 0 || bytes.is_empty() {
            return bytes;
        }
        let Partial { bytes: mut begun, len } = mem::take(&mut self.partial);
        let more = bytes.len().min(begun.len() - len);
        begun[len..len + more].copy_from_slice(&bytes[..more]);
        let used = match decode(&begun[..len + more]) {
            Decoded::Character(character, used) => {
                self.character(character);
                used
            }
            Decoded::Invalid(used) => {
                self.invalid(begun[0]);
                used
            }
            Decoded::Incomplete => {
                self.partial = Partial { bytes: begun, len: len + more };
                len + more
            }
        };
        // What was begun is part of a character or of what is invalid, so none of it comes again.
        &bytes[used.saturating_sub(len)..]
    }

    fn ascii(&mut self, byte: u8) {
        self.state = match (self.state, byte) {
            (_, ESC) => State::Escape,
            (_, CAN | SUB) => State::Text,
            (State::Command, BEL) => State::Text,
            (State::Command | State::String, _) => return,
            // A line may end in the middle of a sequence; a terminal obeys and goes on with the sequence.
            (_, b'\n' | b'\r' | b'\t') => {
                self.keep(char::from(byte).encode_utf8(&mut [0; 4]));
                return;
            }
            (_, 0..0x20 | 0x7f) => return,
            (State::Escape, b'[') => State::Control,
            (State::Escape, b']') => State::Command,
            (State::Escape, b'P' | b'X' | b'^' | b'_') => State::String,
            (State::Escape | State::Intermediate, 0x20..0x30) => State::Intermediate,
            (State::Control, parameter) if is_parameter(parameter) => return,
            (State::Escape | State::Intermediate | State::Control, _) => State::Text,
            (State::Text, _) => {
                self.keep(char::from(byte).encode_utf8(&mut [0; 4]));
                return;
            }
        };
    }

    /// Takes in a character that is not ASCII.
    fn character(&mut self, character: char) {
        match (self.state, character) {
            (_, '\u{9c}') => self.state = State::Text,
            (State::Command | State::String, _) => {}
            (_, '\u{9b}') => self.state = State::Control,
            (_, '\u{9d}') => self.state = State::Command,
            (_, '\u{90}' | '\u{98}' | '\u{9e}' | '\u{9f}') => self.state = State::String,
            (_, '\u{80}'..'\u{a0}') => self.state = State::Text,
            // No sequence goes on with such a character: what was begun is none.
            (_, character) => {
                self.state = State::Text;
                self.keep(character.encode_utf8(&mut [0; 4]));
            }
        }
    }

    /// Takes in bytes that are no UTF-8.
    ///
    /// A control sequence may begin with a single byte; it ends soon. The other bytes of that kind begin strings, which
    /// end only when they say so: they are far more often letters of a legacy encoding, and the rest of the output
    /// would be lost.
    fn invalid(&mut self, first: u8) {
        match (self.state, first) {
            (State::Command | State::String, 0x9c) => self.state = State::Text,
            (State::Command | State::String, _) => {}
            (_, 0x9b) => self.state = State::Control,
            _ => self.character(char::REPLACEMENT_CHARACTER),
        }
    }

    fn keep(&mut self, text: &str) {
        self.whole += text.len() as u64;
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

/// Returns what the bytes begin with, of which the first is not ASCII.
fn decode(bytes: &[u8]) -> Decoded {
    let window = &bytes[..bytes.len().min(4)];
    let (valid, invalid) = match std::str::from_utf8(window) {
        Ok(text) => (text, None),
        Err(error) => {
            let valid = std::str::from_utf8(&window[..error.valid_up_to()]).unwrap_or_default();
            (valid, error.error_len())
        }
    };
    match (valid.chars().next(), invalid) {
        (Some(character), _) => Decoded::Character(character, character.len_utf8()),
        (None, Some(len)) => Decoded::Invalid(len),
        (None, None) => Decoded::Incomplete,
    }
}

/// Returns whether the byte may be the end of a string, or the beginning of its end.
fn may_end_string(byte: u8) -> bool {
    matches!(byte, ESC | BEL | CAN | SUB) || !byte.is_ascii()
}

/// Returns whether a control sequence goes on after the byte, which has no meaning of its own.
fn is_parameter(byte: u8) -> bool {
    matches!(byte, 0x20..0x40)
}

/// Returns whether the byte means nothing outside of sequences.
fn is_dropped(byte: u8) -> bool {
    !is_plain(byte) && byte.is_ascii() && byte != ESC
}

/// Returns whether the byte is text as it is.
fn is_plain(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r' | b'\t' | 0x20..0x7f)
}

/// Returns how many bytes at the beginning are text as they are: most output is nothing else.
fn plain_prefix(bytes: &[u8]) -> usize {
    let mut even = 0;
    for block in bytes.as_chunks::<32>().0 {
        let mut odd = 0;
        for word in block.as_chunks::<8>().0 {
            odd |= odd_bytes(u64::from_le_bytes(*word));
        }
        if odd != 0 {
            break;
        }
        even += block.len();
    }
    for word in bytes[even..].as_chunks::<8>().0 {
        let odd = odd_bytes(u64::from_le_bytes(*word));
        if odd != 0 {
            // The first byte is the lowest, and its highest bit says it.
            return even + odd.trailing_zeros() as usize / 8;
        }
        even += word.len();
    }
    even + bytes[even..].iter().take_while(|byte| is_plain(**byte)).count()
}

/// Returns how many bytes at the beginning are the same. What is dropped comes in runs, if it comes in masses.
fn same_prefix(bytes: &[u8]) -> usize {
    let Some(first) = bytes.first() else { return 0 };
    let block = [*first; 256];
    let same = bytes.as_chunks().0.iter().take_while(|next| **next == block).count() * block.len();
    same + bytes[same..].iter().take_while(|byte| *byte == first).count()
}

/// Looks at eight bytes at a time: in the word returned the highest bit of every byte says whether that byte of `word` is
/// not plain.
///
/// No sum carries into the next byte, because none of the summands has the highest bit of a byte.
const fn odd_bytes(word: u64) -> u64 {
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
