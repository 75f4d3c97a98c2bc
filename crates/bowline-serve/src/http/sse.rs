//! Event streams as response bodies.

use std::time::Duration;

use axum::body::{Body, Bytes};
use bytes::BytesMut;
use futures_util::stream::unfold;

use super::BodyItem;
use crate::hub::{ConnectionStream, SessionStream, StreamMessage};

/// How often a stream without messages shows that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub(super) fn connection_body(stream: ConnectionStream) -> Body {
    Body::from_stream(unfold(stream, |mut stream| async move {
        let next = tokio::time::timeout(KEEP_ALIVE, stream.next()).await;
        Some((encode(next.ok())?, stream))
    }))
}

pub(super) fn session_body(stream: SessionStream) -> Body {
    Body::from_stream(unfold(stream, |mut stream| async move {
        let next = tokio::time::timeout(KEEP_ALIVE, stream.next()).await;
        Some((encode(next.ok())?, stream))
    }))
}

/// Encodes messages as events, or a comment if none came in time; `None` at the end.
fn encode(next: Option<Option<Vec<StreamMessage>>>) -> Option<BodyItem> {
    let Some(messages) = next else { return Some(Ok(Bytes::from_static(b": keep-alive\n\n"))) };
    let messages = messages?;
    let mut text = BytesMut::with_capacity(messages.iter().map(|message| message.body.len() + 40).sum());
    for StreamMessage { id, body } in messages {
        if let Some(id) = id {
            text.extend_from_slice(format!("id: {id}\n").as_bytes());
        }
        text.extend_from_slice(b"data: ");
        text.extend_from_slice(&body);
        text.extend_from_slice(b"\n\n");
    }
    Some(Ok(text.freeze()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_become_events() {
        let message =
            |id, body: &'static str| StreamMessage { id, body: Bytes::from_static(body.as_bytes()) };
        let events = encode(Some(Some(vec![message(Some(7), "{}"), message(None, "[]")]))).unwrap().unwrap();
        assert_eq!(events, "id: 7\ndata: {}\n\ndata: []\n\n");
        assert_eq!(encode(None).unwrap().unwrap(), ": keep-alive\n\n");
        assert!(encode(Some(None)).is_none());
    }
}
