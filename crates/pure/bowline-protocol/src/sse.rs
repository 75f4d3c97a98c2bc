//! Server-sent events, decoded from bytes with a bound on the size of an event.

use std::collections::VecDeque;

/// One event. Absent fields are `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// Its type.
    pub event: Option<String>,
    /// Its data, lines joined with line feeds. Servers may send anything, so this need not be UTF-8.
    pub data: Option<Vec<u8>>,
    /// Its id.
    pub id: Option<String>,
    /// The server's reconnection delay, in milliseconds.
    pub retry: Option<u64>,
}

/// Decodes events from bytes as they arrive. Unknown fields are skipped.
#[derive(Debug)]
pub struct SseDecoder {
    limit: usize,
    // Invariant: together with the event's fields at most `limit` bytes.
    line: Vec<u8>,
    event: SseEvent,
    // Whether the last byte was a carriage return, so that a line feed after it does not end another line.
    is_after_carriage_return: bool,
}

/// An event was larger than the decoder allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event has more than {limit} bytes")]
pub struct EventTooLargeError {
    /// The maximum size, in bytes.
    pub limit: usize,
}

impl SseDecoder {
    /// Creates a decoder for events of at most `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit, line: Vec::new(), event: SseEvent::default(), is_after_carriage_return: false }
    }

    /// Adds bytes, and returns the events that they complete.
    ///
    /// # Errors
    /// Fails if an event is larger than the limit. The decoder is unusable afterwards.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<VecDeque<SseEvent>, EventTooLargeError> {
        let mut events = VecDeque::new();
        if !bytes.is_empty() && std::mem::take(&mut self.is_after_carriage_return) {
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = memchr::memchr2(b'\n', b'\r', bytes) {
            self.extend(&bytes[..end])?;
            let returned = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            if returned {
                self.is_after_carriage_return = bytes.is_empty();
                bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
            }
            events.extend(self.end_line());
        }
        self.extend(bytes)?;
        Ok(events)
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), EventTooLargeError> {
        let SseEvent { event, data, id, retry: _ } = &self.event;
        let texts = [event, id].map(|text| text.as_ref().map_or(0, String::len));
        let held = self.line.len() + texts.iter().sum::<usize>() + data.as_ref().map_or(0, Vec::len);
        if held + bytes.len() > self.limit {
            return Err(EventTooLargeError { limit: self.limit });
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    /// Ends a line. An empty line ends the event.
    fn end_line(&mut self) -> Option<SseEvent> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            let is_event = event.data.is_some() || event.id.is_some() || event.retry.is_some();
            return is_event.then_some(event);
        }
        let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&line);
        let (field, value) = match memchr::memchr(b':', line) {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let text = || String::from_utf8_lossy(value).into_owned();
        match field {
            b"data" => match &mut self.event.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                data @ None => *data = Some(value.to_owned()),
            },
            b"event" => self.event.event = Some(text()),
            b"id" => self.event.id = Some(text()),
            b"retry" => self.event.retry = text().parse().ok(),
            // Comments, and fields that later standards may add.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests;
