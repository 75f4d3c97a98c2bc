//! The server-sent events of a response, with messages that the SDK can read.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io;

use bowline_state::sse::{Decoder, Event};
use futures_util::stream::{BoxStream, StreamExt as _, try_unfold};
use sse_stream::{Error, Sse};

use super::decode::{Decoded, decode, instead};
use super::{MAX_MESSAGE, nesting};

/// Returns an event as the SDK has it. Bytes that are no text are replaced, for the SDK to refuse.
fn to_sdk(event: Event) -> Sse {
    let Event { event, data, id, retry } = event;
    let data = data.map(|data| make_readable(String::from_utf8_lossy(&data).into_owned()));
    Sse { event, data, id, retry }
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
    let state = (response, Decoder::new(MAX_MESSAGE), VecDeque::<Event>::new());
    try_unfold(state, |(mut response, mut decoder, mut ready)| async move {
        loop {
            if let Some(event) = ready.pop_front() {
                return Ok(Some((to_sdk(event), (response, decoder, ready))));
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
