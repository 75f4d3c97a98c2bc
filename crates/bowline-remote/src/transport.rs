//! What the driver needs of a transport: HTTP or a WebSocket.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;

use crate::client::{Post, PostOutcome, StreamEnd, StreamKey};
use crate::http::HttpTransport;
use crate::websocket::WebSocketTransport;

/// An event of a stream.
#[derive(Debug)]
pub(crate) enum StreamEvent {
    /// It is open.
    Open,
    /// The server has neither opened nor refused it for some time: it may wait for the first event.
    AssumedOpen,
    /// It has sent something.
    Event { id: Option<String>, data: Option<Bytes> },
    /// It has ended.
    End(StreamEnd),
}

/// How messages are carried.
pub(crate) enum Transport {
    Http(HttpTransport),
    WebSocket(WebSocketTransport),
}

impl Transport {
    /// Posts a message.
    pub(crate) fn post(&self, post: Post) -> BoxFuture<'_, PostOutcome> {
        match self {
            Self::Http(http) => Box::pin(http.post(post)),
            Self::WebSocket(socket) => Box::pin(socket.send(post)),
        }
    }

    /// Opens a stream. Its last event is [`StreamEvent::End`].
    pub(crate) fn open_stream(
        &self,
        key: &StreamKey,
        connection: &str,
        last_event_id: Option<&str>,
    ) -> BoxStream<'_, StreamEvent> {
        match self {
            Self::Http(http) => Box::pin(http.open_stream(key, connection, last_event_id)),
            Self::WebSocket(socket) => Box::pin(socket.receive()),
        }
    }

    /// Ends a connection, as far as the server takes part.
    pub(crate) async fn close(&self, connection: &str) {
        match self {
            Self::Http(http) => http.delete(connection).await,
            Self::WebSocket(socket) => socket.close().await,
        }
    }
}
