//! A JSON value ready to be put into a message: serialised once, on one line.

use serde::Serialize;
use serde_json::value::RawValue;

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
        let mut json = Vec::with_capacity(256);
        serde_json::to_writer(&mut json, value)?;
        Ok(Body::one_line(json))
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

    /// In JSON a newline byte can only stand between tokens, where a space means the same.
    fn one_line(mut json: Vec<u8>) -> Self {
        let mut from = 0;
        while let Some(at) = memchr::memchr2(b'\n', b'\r', &json[from..]) {
            json[from + at] = b' ';
            from += at + 1;
        }
        Body { json }
    }
}
