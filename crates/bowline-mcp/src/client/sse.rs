//! Server-sent events, taken apart with a bound on their size.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io;

use futures_util::stream::{BoxStream, StreamExt as _, try_unfold};
use sse_stream::{Error, Sse};

use super::decode::{Decoded, decode, instead};
use super::{MAX_MESSAGE, nesting};

/// Takes events out of bytes as they come. What is not understood is skipped.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    // Invariant: with the event's parts at most `MAX_MESSAGE` bytes.
    line: Vec<u8>,
    event: Sse,
    // Whether the last byte was a carriage return, so that a line feed after it ends no other line.
    after_return: bool,
}

/// An event was larger than [`MAX_MESSAGE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server sent an event of more than {MAX_MESSAGE} bytes")]
pub(super) struct TooLarge;

impl Decoder {
    /// Takes bytes, and returns the events that are complete by them.
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Result<VecDeque<Sse>, TooLarge> {
        let mut events = VecDeque::new();
        if std::mem::take(&mut self.after_return) && bytes.first() == Some(&b'\n') {
            bytes = &bytes[1..];
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.extend(&bytes[..end])?;
            let returned = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            if returned {
                match bytes.first() {
                    Some(b'\n') => bytes = &bytes[1..],
                    Some(_) => {}
                    None => self.after_return = true,
                }
            }
            events.extend(self.end_line());
        }
        self.extend(bytes)?;
        Ok(events)
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), TooLarge> {
        let held = self.line.len()
            + [&self.event.data, &self.event.event, &self.event.id]
                .map(|part| part.as_ref().map_or(0, String::len))
                .iter()
                .sum::<usize>();
        if held + bytes.len() > MAX_MESSAGE {
            return Err(TooLarge);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    /// Ends a line. An empty one ends the event.
    fn end_line(&mut self) -> Option<Sse> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            let is_one = event.data.is_some() || event.id.is_some() || event.retry.is_some();
            return is_one.then_some(event);
        }
        let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&line);
        let line = String::from_utf8_lossy(line);
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => match &mut self.event.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                data @ None => *data = Some(value.to_owned()),
            },
            "event" => self.event.event = Some(value.to_owned()),
            "id" => self.event.id = Some(value.to_owned()),
            "retry" => self.event.retry = value.parse().ok(),
            // Comments, and what later standards may add.
            _ => {}
        }
        None
    }
}

/// Returns a message as it is; one that is nested deeper than the SDK reads, as far as it can be used.
fn make_readable(data: String) -> String {
    if matches!(nesting::cut(data.as_bytes()), Cow::Borrowed(_)) {
        return data;
    }
    let message = match decode(data.as_bytes()) {
        Decoded::Message(message) => *message,
        Decoded::Broken(id) => instead(id, "the answer of the server cannot be read".to_owned()),
        Decoded::Noise => return data,
    };
    serde_json::to_string(&message).unwrap_or(data)
}

/// Returns the events of a response as they come.
pub(super) fn events(response: reqwest::Response) -> BoxStream<'static, Result<Sse, Error>> {
    let state = (response, Decoder::default(), VecDeque::<Sse>::new());
    try_unfold(state, |(mut response, mut decoder, mut ready)| async move {
        loop {
            if let Some(mut event) = ready.pop_front() {
                event.data = event.data.map(make_readable);
                return Ok(Some((event, (response, decoder, ready))));
            }
            match response.chunk().await {
                Ok(Some(bytes)) => ready = decoder.push(&bytes).map_err(|why| Error::Body(why.into()))?,
                Ok(None) => return Ok(None),
                Err(why) => return Err(Error::Body(io::Error::other(why).into())),
            }
        }
    })
    .boxed()
}

#[cfg(test)]
mod tests;
