//! A WebSocket: everything of one connection, one message for each text frame.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade, close_code};
use axum::response::Response;
use bowline_protocol::remote::CONNECTION_HEADER;
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use http::request::Parts;
use http::{HeaderValue, StatusCode};

use super::listener::ConnectionSlot;
use super::{Endpoint, Refusal, new_connection_id};
use crate::event::ConnectionId;
use crate::hub::{ConnectError, ConnectionReservation, Hub, MergedStream, ReceiveError, StreamMessage};
use crate::token::Principal;

/// The largest message.
const MAX_MESSAGE_BYTES: usize = 64 << 20;
/// How much is read at a time. Each connection keeps a buffer of that size; the library's usual 128 KiB are not faster.
const READ_BUFFER_BYTES: usize = 16 << 10;
/// How long a client may take to send `initialize`.
const INITIALIZE_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a client is asked whether it is there, and how often it may leave that unanswered. The question waits
/// behind what a slow client has not read yet.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const MAX_UNANSWERED_PINGS: usize = 3;
/// How long a frame may take to be written to a client that does not read. Its sessions go on without it.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) fn upgrade(
    endpoint: &Endpoint,
    principal: Principal,
    parts: &Parts,
    upgrade: WebSocketUpgrade,
) -> Result<Response, Refusal> {
    let connection = new_connection_id()?;
    // It counts for its principal before it is initialized, too.
    let reservation = endpoint.hub.reserve_connection(&principal)?;
    // The listener does not see that the connection is still in use.
    let slot = parts.extensions.get::<ConnectionSlot>().cloned();
    let header = HeaderValue::from_str(&connection)
        .map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    let endpoint = endpoint.clone();
    let upgrade = upgrade.max_message_size(MAX_MESSAGE_BYTES).max_frame_size(MAX_MESSAGE_BYTES);
    let upgrade = upgrade.read_buffer_size(READ_BUFFER_BYTES);
    let mut response = upgrade.on_upgrade(move |socket| async move {
        let (sink, source) = socket.split();
        let mut session = SocketSession { hub: endpoint.hub, connection, sink, source, stream: None };
        if let Err((code, reason)) = session.run(&principal, reservation).await {
            let frame = CloseFrame { code, reason: reason.into() };
            // The client may be gone.
            in_time(session.sink.send(Message::Close(Some(frame)))).await.ok();
        }
        session.hub.disconnect(&session.connection);
        drop(slot);
    });
    response.headers_mut().insert(CONNECTION_HEADER, header);
    Ok(response)
}

/// Why a socket is closed by the server.
type CloseReason = (u16, String);

struct SocketSession {
    hub: Arc<Hub>,
    connection: ConnectionId,
    sink: SplitSink<WebSocket, Message>,
    source: SplitStream<WebSocket>,
    // Open until the socket is closed: the server waits for it when it stops.
    stream: Option<MergedStream>,
}

impl SocketSession {
    async fn run(
        &mut self,
        principal: &Principal,
        reservation: ConnectionReservation,
    ) -> Result<(), CloseReason> {
        let unanswered_pings = AtomicUsize::new(0);
        let Self { hub, connection, sink, source, stream } = self;
        let first = tokio::time::timeout(INITIALIZE_TIMEOUT, receive(source, &unanswered_pings)).await;
        let Ok(Some(first)) = first else {
            return Err((close_code::POLICY, "the first message must be `initialize`".to_owned()));
        };
        // From here on, the hub counts it.
        drop(reservation);
        match hub.connect(principal, &first, true, connection.clone()).await {
            Ok(response) => in_time(sink.send(text_message(response)?)).await?,
            Err(ConnectError::Refused(response)) => {
                in_time(sink.send(text_message(response)?)).await?;
                return Err((close_code::ERROR, "the agent did not start".to_owned()));
            }
            Err(ConnectError::Receive(error)) => return Err(refused(&error)),
        }
        let stream = stream.insert(MergedStream::open(hub, connection).map_err(|error| refused(&error))?);
        // Both at the same time: a client may first write what it has before it reads.
        let read = async {
            while let Some(text) = receive(source, &unanswered_pings).await {
                hub.receive(connection, None, text).map_err(|error| refused(&error))?;
            }
            Ok(())
        };
        let write = write_messages(sink, stream, &unanswered_pings);
        tokio::select! {
            // An answer that has arrived counts before it is missed.
            biased;
            end = read => end,
            end = write => end,
        }
    }
}

/// Sends messages and pings until the stream or the client ends.
async fn write_messages(
    sink: &mut SplitSink<WebSocket, Message>,
    stream: &mut MergedStream,
    unanswered_pings: &AtomicUsize,
) -> Result<(), CloseReason> {
    let mut ping = tokio::time::interval(PING_INTERVAL);
    ping.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            messages = stream.next() => {
                let Some(messages) = messages else {
                    return Err((close_code::AWAY, "the connection ended".to_owned()));
                };
                // They are written together: most are smaller than a packet.
                for StreamMessage { body, .. } in messages {
                    let text = text_message(body)?;
                    in_time(sink.feed(text)).await?;
                }
                in_time(sink.flush()).await?;
            }
            _ = ping.tick() => {
                if unanswered_pings.fetch_add(1, Ordering::Relaxed) >= MAX_UNANSWERED_PINGS {
                    return Err((close_code::AWAY, "the client does not answer".to_owned()));
                }
                in_time(sink.send(Message::Ping(Bytes::new()))).await?;
            }
        }
    }
}

/// Waits for a text frame; `None` at the end. Any frame answers a ping.
async fn receive(source: &mut SplitStream<WebSocket>, unanswered_pings: &AtomicUsize) -> Option<Bytes> {
    loop {
        let frame = source.next().await?.ok()?;
        unanswered_pings.store(0, Ordering::Relaxed);
        match frame {
            Message::Text(text) => return Some(text.into()),
            Message::Close(_) => return None,
            // Binary frames mean nothing here; the library answers pings.
            Message::Binary(_) | Message::Ping(_) | Message::Pong(_) => {}
        }
    }
}

fn text_message(message: Bytes) -> Result<Message, CloseReason> {
    let text = Utf8Bytes::try_from(message);
    text.map(Message::Text).map_err(|_| (close_code::ERROR, "the agent sent invalid text".to_owned()))
}

/// Waits for a write, unless the client does not read for too long.
async fn in_time<E>(write: impl Future<Output = Result<(), E>>) -> Result<(), CloseReason> {
    let mut write = pin!(write);
    // Most messages have room in a buffer, and need no timer.
    let written = match write.as_mut().now_or_never() {
        Some(written) => Ok(written),
        None => tokio::time::timeout(WRITE_TIMEOUT, write).await,
    };
    match written {
        Ok(Ok(())) => Ok(()),
        _ => Err((close_code::AWAY, "the client does not read".to_owned())),
    }
}

fn refused(error: &ReceiveError) -> CloseReason {
    let code = match error {
        ReceiveError::UnknownConnection => close_code::AWAY,
        ReceiveError::Overloaded(_) | ReceiveError::Draining | ReceiveError::Fenced => close_code::AGAIN,
        _ => close_code::POLICY,
    };
    (code, error.to_string())
}
