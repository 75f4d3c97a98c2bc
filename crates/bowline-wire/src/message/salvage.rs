//! Salvage of the id from a malformed message, so that it can still be answered.
//!
//! The text may be truncated, contain bytes that are not UTF-8, or be broken anywhere. Only the part before the first
//! error counts.

use agent_client_protocol_schema::v1::RequestId;

use crate::limits::MAX_ID;

/// The salvaged parts of a malformed message.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SalvagedMessage {
    /// The id at the top level, if it can be answered.
    pub(crate) id: Option<RequestId>,
    /// Whether it has a `result` or an `error` and no `method`: then it must not be answered.
    pub(crate) is_response: bool,
}

/// Salvages what it can from `bytes`.
pub(crate) fn salvage(bytes: &[u8]) -> SalvagedMessage {
    let mut text = JsonCursor::new(bytes);
    let mut found = SalvagedMessage::default();
    let mut method = false;
    let mut outcome = false;
    if text.take_byte(b'{').is_some() {
        while let Some(key) = text.take_string() {
            if text.take_byte(b':').is_none() {
                break;
            }
            let value = text.take_value();
            match key {
                b"id" => found.id = value.and_then(parse_id),
                b"method" => method = true,
                b"result" | b"error" => outcome = true,
                _ => {}
            }
            if value.is_none() || text.take_byte(b',').is_none() {
                break;
            }
        }
    }
    found.is_response = outcome && !method;
    found
}

fn parse_id(value: &[u8]) -> Option<RequestId> {
    let text = str::from_utf8(value).ok()?;
    match serde_json::from_str(text).ok()? {
        RequestId::Null => None,
        RequestId::Str(text) if text.len() > MAX_ID => None,
        id => Some(id),
    }
}

/// A position in a text that may be malformed.
pub(crate) struct JsonCursor<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> JsonCursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    fn peek_byte(&mut self) -> Option<u8> {
        while self.bytes.get(self.position).is_some_and(u8::is_ascii_whitespace) {
            self.position += 1;
        }
        self.bytes.get(self.position).copied()
    }

    pub(crate) fn take_byte(&mut self, byte: u8) -> Option<()> {
        (self.peek_byte()? == byte).then(|| self.position += 1)
    }

    /// Takes a string and returns the bytes between its quotes.
    pub(crate) fn take_string(&mut self) -> Option<&'a [u8]> {
        self.take_byte(b'"')?;
        let start = self.position;
        loop {
            self.position += memchr::memchr2(b'"', b'\\', self.bytes.get(self.position..)?)?;
            if self.bytes[self.position] == b'"' {
                self.position += 1;
                return Some(&self.bytes[start..self.position - 1]);
            }
            self.position += 2;
        }
    }

    /// Takes a value and returns its bytes. Brackets in it are only counted.
    pub(crate) fn take_value(&mut self) -> Option<&'a [u8]> {
        self.peek_byte()?;
        let start = self.position;
        let mut depth = 0_usize;
        loop {
            match self.peek_byte()? {
                b'"' => {
                    self.take_string()?;
                }
                b'{' | b'[' => {
                    depth += 1;
                    self.position += 1;
                }
                b'}' | b']' if depth > 0 => {
                    depth -= 1;
                    self.position += 1;
                }
                b',' | b':' if depth > 0 => self.position += 1,
                byte if byte.is_ascii_alphanumeric() || b"+-.".contains(&byte) => {
                    while self
                        .bytes
                        .get(self.position)
                        .is_some_and(|b| b.is_ascii_alphanumeric() || b"+-.".contains(b))
                    {
                        self.position += 1;
                    }
                    // A number at the end may be truncated: 12 may be the start of 123.
                    self.bytes.get(self.position)?;
                }
                _ => return None,
            }
            if depth == 0 {
                return Some(&self.bytes[start..self.position]);
            }
        }
    }
}

#[cfg(test)]
mod tests;
