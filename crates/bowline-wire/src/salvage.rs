//! The id in a message that cannot be read, so that it can still be answered.
//!
//! The text may be cut off, hold bytes that are no UTF-8, or be broken anywhere. What is found before the first
//! thing that makes no sense is what counts.

use agent_client_protocol_schema::v1::RequestId;

use crate::limits::MAX_ID;

/// What could be made out of a broken message.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Salvaged {
    /// The id at the top level, if there is one that can be answered.
    pub(crate) id: Option<RequestId>,
    /// Whether it has a `result` or an `error` and no `method`: then it is nothing to answer.
    pub(crate) is_response: bool,
}

/// Finds what it can in `bytes`.
pub(crate) fn salvage(bytes: &[u8]) -> Salvaged {
    let mut text = Cursor::new(bytes);
    let mut found = Salvaged::default();
    let mut method = false;
    let mut outcome = false;
    if text.take(b'{').is_some() {
        while let Some(key) = text.string() {
            if text.take(b':').is_none() {
                break;
            }
            let value = text.value();
            match key {
                b"id" => found.id = value.and_then(id),
                b"method" => method = true,
                b"result" | b"error" => outcome = true,
                _ => {}
            }
            if value.is_none() || text.take(b',').is_none() {
                break;
            }
        }
    }
    found.is_response = outcome && !method;
    found
}

fn id(value: &[u8]) -> Option<RequestId> {
    let text = str::from_utf8(value).ok()?;
    match serde_json::from_str(text).ok()? {
        RequestId::Null => None,
        RequestId::Str(text) if text.len() > MAX_ID => None,
        id => Some(id),
    }
}

/// A place in a text that may be broken.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    fn peek(&mut self) -> Option<u8> {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        self.bytes.get(self.at).copied()
    }

    pub(crate) fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// Takes a string and returns what is between its quotes.
    pub(crate) fn string(&mut self) -> Option<&'a [u8]> {
        self.take(b'"')?;
        let start = self.at;
        loop {
            self.at += memchr::memchr2(b'"', b'\\', self.bytes.get(self.at..)?)?;
            if self.bytes[self.at] == b'"' {
                self.at += 1;
                return Some(&self.bytes[start..self.at - 1]);
            }
            self.at += 2;
        }
    }

    /// Takes a value and returns its bytes. The brackets in it are only counted.
    pub(crate) fn value(&mut self) -> Option<&'a [u8]> {
        self.peek()?;
        let start = self.at;
        let mut depth = 0_usize;
        loop {
            match self.peek()? {
                b'"' => {
                    self.string()?;
                }
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' if depth > 0 => {
                    depth -= 1;
                    self.at += 1;
                }
                b',' | b':' if depth > 0 => self.at += 1,
                byte if byte.is_ascii_alphanumeric() || b"+-.".contains(&byte) => {
                    while self
                        .bytes
                        .get(self.at)
                        .is_some_and(|b| b.is_ascii_alphanumeric() || b"+-.".contains(b))
                    {
                        self.at += 1;
                    }
                    // What nothing follows may have been cut off: 12 may be the start of 123.
                    self.bytes.get(self.at)?;
                }
                _ => return None,
            }
            if depth == 0 {
                return Some(&self.bytes[start..self.at]);
            }
        }
    }
}

#[cfg(test)]
mod tests;
