//! A WebSocket: everything of one connection, one message for each text frame.

use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade, close_code};
use axum::response::Response;
use bowline_protocol::remote::CONNECTION_HEADER;
use bytes::Bytes;
use http::{HeaderValue, StatusCode};

use super::{Endpoint, Refusal, new_connection_id};
use crate::event::ConnectionId;
use crate::hub::{ConnectError, MergedStream, ReceiveError, StreamMessage};
use crate::token::Principal;

/// The largest message.
const MAX_MESSAGE_BYTES: usize = 64 << 20;
/// How long a client may take to send `initialize`.
const INITIALIZE_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a silent client is asked whether it is there.
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// How long a frame may take to be written to a client that does not read. Its sessions go on without it.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) fn upgrade(
    endpoint: &Endpoint,
    principal: Principal,
    upgrade: WebSocketUpgrade,
) -> Result<Response, Refusal> {
    let connection = new_connection_id()?;
    let header = HeaderValue::from_str(&connection)
        .map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    let endpoint = endpoint.clone();
    let upgrade = upgrade.max_message_size(MAX_MESSAGE_BYTES).max_frame_size(MAX_MESSAGE_BYTES);
    let mut response = upgrade.on_upgrade(move |socket| async move {
        let mut session = SocketSession { endpoint, connection, socket };
        if let Err((code, reason)) = session.run(&principal).await {
            let frame = CloseFrame { code, reason: reason.into() };
            // The client may be gone.
            tokio::time::timeout(WRITE_TIMEOUT, session.socket.send(Message::Close(Some(frame)))).await.ok();
        }
        session.endpoint.hub.disconnect(&session.connection);
    });
    response.headers_mut().insert(CONNECTION_HEADER, header);
    Ok(response)
}

/// Why a socket is closed by the server.
type CloseReason = (u16, String);

struct SocketSession {
    endpoint: Endpoint,
    connection: ConnectionId,
    socket: WebSocket,
}

impl SocketSession {
    async fn run(&mut self, principal: &Principal) -> Result<(), CloseReason> {
        let first = tokio::time::timeout(INITIALIZE_TIMEOUT, self.receive()).await;
        let Ok(Some(first)) = first else {
            return Err((close_code::POLICY, "the first message must be `initialize`".to_owned()));
        };
        let hub = self.endpoint.hub.clone();
        match hub.connect(principal, &first, true, self.connection.clone()).await {
            Ok(response) => self.send(response).await?,
            Err(ConnectError::Refused(response)) => {
                self.send(response).await?;
                return Err((close_code::ERROR, "the agent did not start".to_owned()));
            }
            Err(ConnectError::Receive(error)) => return Err(refused(&error)),
        }
        let mut stream = MergedStream::open(&hub, &self.connection).map_err(|error| refused(&error))?;
        let mut ping = tokio::time::interval(PING_INTERVAL);
        ping.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut is_alive = true;
        loop {
            tokio::select! {
                messages = stream.next() => {
                    let Some(messages) = messages else {
                        return Err((close_code::AWAY, "the connection ended".to_owned()));
                    };
                    for StreamMessage { body, .. } in messages {
                        self.send(body).await?;
                    }
                }
                frame = self.socket.recv() => {
                    let Some(Ok(frame)) = frame else { return Ok(()) };
                    is_alive = true;
                    let text = match frame {
                        Message::Text(text) => Bytes::from(text),
                        Message::Close(_) => return Ok(()),
                        // Binary frames mean nothing here; the library answers pings.
                        Message::Binary(_) | Message::Ping(_) | Message::Pong(_) => continue,
                    };
                    match hub.receive(&self.connection, None, text) {
                        Ok(()) => {}
                        Err(ReceiveError::UnknownConnection) => {
                            return Err((close_code::AWAY, "the connection ended".to_owned()));
                        }
                        Err(error) => return Err(refused(&error)),
                    }
                }
                _ = ping.tick() => {
                    if !is_alive {
                        return Err((close_code::AWAY, "the client does not answer".to_owned()));
                    }
                    is_alive = false;
                    self.write(Message::Ping(Bytes::new())).await?;
                }
            }
        }
    }

    /// Waits for a text frame; `None` at the end.
    async fn receive(&mut self) -> Option<Bytes> {
        loop {
            match self.socket.recv().await?.ok()? {
                Message::Text(text) => return Some(text.into()),
                Message::Close(_) => return None,
                Message::Binary(_) | Message::Ping(_) | Message::Pong(_) => {}
            }
        }
    }

    async fn send(&mut self, message: Bytes) -> Result<(), CloseReason> {
        let text = Utf8Bytes::try_from(message);
        let text = text.map_err(|_| (close_code::ERROR, "the agent sent invalid text".to_owned()))?;
        self.write(Message::Text(text)).await
    }

    async fn write(&mut self, message: Message) -> Result<(), CloseReason> {
        match tokio::time::timeout(WRITE_TIMEOUT, self.socket.send(message)).await {
            Ok(Ok(())) => Ok(()),
            _ => Err((close_code::AWAY, "the client does not read".to_owned())),
        }
    }
}

fn refused(error: &ReceiveError) -> CloseReason {
    let code = match error {
        ReceiveError::Overloaded(_) | ReceiveError::Draining => close_code::AGAIN,
        _ => close_code::POLICY,
    };
    (code, error.to_string())
}
