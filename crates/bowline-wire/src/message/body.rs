//! A JSON value ready to be put into a message: serialised once, on a single line.

use std::cell::RefCell;

use serde::Serialize;
use serde_json::value::RawValue;

/// The minimum size, in bytes, of a text that is moved from owner to owner instead of copied.
pub(crate) const LARGE_BODY: usize = 16 << 10;

/// The largest buffer that a thread keeps for its next message.
const MAX_SCRATCH_CAPACITY: usize = 64 << 20;

/// The number of consecutive small messages after which a thread releases its buffer.
const SMALL_BODIES_BEFORE_SHRINK: u32 = 64;

/// The text of a JSON value without line breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonBody {
    // Invariant: valid JSON in UTF-8, with no newline byte.
    json: Vec<u8>,
}

impl JsonBody {
    /// Serialises a value.
    ///
    /// # Errors
    /// Fails if the value cannot be represented in JSON, such as a map whose keys are not strings.
    pub fn from_value<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        let json = ScratchBuffer::serialize_with(|json| serde_json::to_writer(json, value))?;
        // Compact JSON has line breaks only where a value contains raw JSON text.
        let has_break = memchr::memchr2(b'\n', b'\r', &json).is_some();
        Ok(if has_break { JsonBody::from_multiline_bytes(json) } else { JsonBody { json } })
    }

    /// Converts JSON text. Line breaks between its tokens become spaces.
    #[must_use]
    pub fn from_raw(json: &RawValue) -> Self {
        JsonBody::from_multiline_bytes(json.get().as_bytes().to_vec())
    }

    /// Returns the value `{}`.
    #[must_use]
    pub fn empty_object() -> Self {
        JsonBody { json: b"{}".to_vec() }
    }

    /// Returns the text.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.json
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.json
    }

    /// Replaces line breaks by spaces: in JSON they can only stand between tokens, where a space means the same.
    fn from_multiline_bytes(mut json: Vec<u8>) -> Self {
        let mut from = 0;
        while let Some(at) = memchr::memchr2(b'\n', b'\r', &json[from..]) {
            json[from + at] = b' ';
            from += at + 1;
        }
        JsonBody { json }
    }
}

/// Returns the buffer of a large written text, for reuse by the next one.
pub(crate) fn recycle_buffer(mut json: Vec<u8>) {
    if json.capacity() <= MAX_SCRATCH_CAPACITY {
        json.clear();
        SCRATCH.with_borrow_mut(|scratch| {
            if scratch.buffer.capacity() < json.capacity() {
                scratch.buffer = json;
                scratch.small_body_count = 0;
            }
        });
    }
}

thread_local! {
    static SCRATCH: RefCell<ScratchBuffer> = RefCell::default();
}

/// A thread's buffer for the message that it serialises. Allocating fresh memory for every large message costs more
/// than serialising it.
#[derive(Default)]
struct ScratchBuffer {
    buffer: Vec<u8>,
    small_body_count: u32,
}

impl ScratchBuffer {
    fn serialize_with<E>(write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<Vec<u8>, E> {
        // The value's own code runs in between and may serialise messages too, so the buffer is taken out meanwhile.
        let mut buffer = SCRATCH.with_borrow_mut(|scratch| std::mem::take(&mut scratch.buffer));
        buffer.clear();
        write(&mut buffer)?;
        if buffer.len() >= LARGE_BODY {
            return Ok(buffer);
        }
        let text = buffer.as_slice().to_vec();
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.small_body_count = scratch.small_body_count.saturating_add(1);
            if buffer.capacity() <= 2 * LARGE_BODY || scratch.small_body_count < SMALL_BODIES_BEFORE_SHRINK {
                scratch.buffer = buffer;
            }
        });
        Ok(text)
    }
}
