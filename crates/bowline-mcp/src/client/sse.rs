//! The server-sent events of a response, with messages the SDK can read.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io;

use bowline_protocol::sse::{SseDecoder, SseEvent};
use futures_util::stream::{BoxStream, StreamExt as _, try_unfold};
use sse_stream::{Error, Sse};

use super::decode::{DecodedLine, decode, error_answer};
use super::{MAX_MESSAGE, nesting};

/// Converts an event for the SDK. Invalid UTF-8 is replaced, and the SDK refuses the result.
fn to_sdk(event: SseEvent) -> Sse {
    let SseEvent { event, data, id, retry } = event;
    let data = data.map(|data| make_readable(String::from_utf8_lossy(&data).into_owned()));
    Sse { event, data, id, retry }
}

/// Returns a message unchanged, or its usable part if it is nested deeper than the SDK reads.
fn make_readable(data: String) -> String {
    if matches!(nesting::cut_deep_values(data.as_bytes()), Cow::Borrowed(_)) {
        return data;
    }
    let message = match decode(data.as_bytes()) {
        DecodedLine::Message(message) => *message,
        DecodedLine::UnreadableAnswer(id) => {
            error_answer(id, "the answer of the server cannot be read".to_owned())
        }
        DecodedLine::Noise => return data,
    };
    serde_json::to_string(&message).unwrap_or(data)
}

/// Returns the events of a response as they arrive.
pub(super) fn events(response: reqwest::Response) -> BoxStream<'static, Result<Sse, Error>> {
    let state = (response, SseDecoder::new(MAX_MESSAGE), VecDeque::<SseEvent>::new());
    try_unfold(state, |(mut response, mut decoder, mut ready)| async move {
        loop {
            if let Some(event) = ready.pop_front() {
                return Ok(Some((to_sdk(event), (response, decoder, ready))));
            }
            match response.chunk().await {
                Ok(Some(bytes)) => ready = decoder.push(&bytes).map_err(|error| Error::Body(error.into()))?,
                Ok(None) => return Ok(None),
                Err(error) => return Err(Error::Body(io::Error::other(error).into())),
            }
        }
    })
    .boxed()
}

#[cfg(test)]
mod tests;
