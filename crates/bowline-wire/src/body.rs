//! A JSON value ready to be put into a message: serialised once, on one line.

use std::cell::RefCell;

use serde::Serialize;
use serde_json::value::RawValue;

/// A text at least this long is moved from one owner to the next instead of being copied.
pub(crate) const LARGE: usize = 16 << 10;

/// The largest buffer that a thread keeps for its next message.
const MAX_KEPT: usize = 64 << 20;

/// After so many messages that were not large, a thread gives the memory of its buffer back.
const SMALL_IN_A_ROW: u32 = 64;

/// The text of a JSON value without line breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body {
    // Invariant: valid JSON in UTF-8, with no newline byte.
    json: Vec<u8>,
}

impl Body {
    /// Serialises a value.
    ///
    /// # Errors
    /// Fails where the value cannot be JSON, such as a map whose keys are not strings.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        let json = Scratch::write(|json| serde_json::to_writer(json, value))?;
        // Compact JSON has line breaks only where a value brought its own text.
        let has_break = memchr::memchr2(b'\n', b'\r', &json).is_some();
        Ok(if has_break { Body::one_line(json) } else { Body { json } })
    }

    /// Takes JSON text over. Line breaks between its tokens become spaces.
    #[must_use]
    pub fn raw(json: &RawValue) -> Self {
        Body::one_line(json.get().as_bytes().to_vec())
    }

    /// The value `{}`.
    #[must_use]
    pub fn empty_object() -> Self {
        Body { json: b"{}".to_vec() }
    }

    /// Returns the text.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.json
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.json
    }

    /// In JSON a line break can only stand between tokens, where a space means the same.
    fn one_line(mut json: Vec<u8>) -> Self {
        let mut from = 0;
        while let Some(at) = memchr::memchr2(b'\n', b'\r', &json[from..]) {
            json[from + at] = b' ';
            from += at + 1;
        }
        Body { json }
    }
}

/// Gives the memory of a large text that was written back, for the next one.
pub(crate) fn recycle(mut json: Vec<u8>) {
    if json.capacity() <= MAX_KEPT {
        json.clear();
        SCRATCH.with_borrow_mut(|scratch| {
            if scratch.buffer.capacity() < json.capacity() {
                scratch.buffer = json;
                scratch.small_in_a_row = 0;
            }
        });
    }
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// A thread's buffer for the message that it writes. To ask the system for fresh memory for every large message costs
/// more than to write it.
#[derive(Default)]
struct Scratch {
    buffer: Vec<u8>,
    small_in_a_row: u32,
}

impl Scratch {
    fn write<E>(write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<Vec<u8>, E> {
        // The value's own code runs in between and may write messages too, so the buffer is taken out meanwhile.
        let mut buffer = SCRATCH.with_borrow_mut(|scratch| std::mem::take(&mut scratch.buffer));
        buffer.clear();
        write(&mut buffer)?;
        if buffer.len() >= LARGE {
            return Ok(buffer);
        }
        let text = buffer.as_slice().to_vec();
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.small_in_a_row = scratch.small_in_a_row.saturating_add(1);
            if buffer.capacity() <= 2 * LARGE || scratch.small_in_a_row < SMALL_IN_A_ROW {
                scratch.buffer = buffer;
            }
        });
        Ok(text)
    }
}
