//! One task that carries messages between a caller and a server: it performs what [`Client`] decides.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use bytes::BytesMut;
use futures_util::future::{BoxFuture, OptionFuture};
use futures_util::stream::{AbortHandle, BoxStream, SelectAll, abortable};
use futures_util::{StreamExt as _, stream};
use reqwest::header::HeaderValue;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, timeout};

use crate::MAX_MESSAGE_BYTES;
use crate::client::{Action, Client, ClientOptions, PostOutcome, StreamKey};
use crate::endpoint::{Carrier, Endpoint};
use crate::http::HttpTransport;
use crate::line_reader::{Line, LineReader};
use crate::transport::{StreamEvent, Transport};
use crate::websocket::WebSocketTransport;

/// The size of what waits to be written to the caller from which nothing more is read from the server, in bytes. One
/// message may exceed it.
const OUTPUT_HIGH_WATER: usize = 256 << 10;

/// How long a caller may take what is left at the end.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// How to connect.
#[derive(Clone)]
pub struct RemoteOptions {
    /// The server.
    pub endpoint: Endpoint,
    /// The token that it requires.
    pub token: Option<String>,
    /// How long to try to reach it again after the connection was lost.
    pub reconnect_for: Duration,
}

impl RemoteOptions {
    /// How long to try by default.
    pub const RECONNECT_FOR: Duration = Duration::from_secs(300);
}

// The token is a secret.
impl std::fmt::Debug for RemoteOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { endpoint, token, reconnect_for } = self;
        f.debug_struct("RemoteOptions")
            .field("endpoint", endpoint)
            .field("has_token", &token.is_some())
            .field("reconnect_for", reconnect_for)
            .finish()
    }
}

/// Why messages are no longer carried.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The token is no text for a header.
    #[error("the token contains characters that cannot be sent: give the token alone, on one line")]
    Token,
    /// Certificates cannot be checked.
    #[error(
        "the certificates of this system cannot be used: {0}; install ca-certificates or set SSL_CERT_FILE"
    )]
    Certificates(#[from] rustls::Error),
    /// No HTTP client can be made.
    #[error("cannot make an HTTP client: {0}")]
    Client(String),
    /// The caller's end failed.
    #[error("the connection to the caller failed: {0}")]
    Caller(#[from] std::io::Error),
    /// The server cannot be used any more. The text names it and the reason.
    #[error("{0}")]
    Server(String),
}

/// Carries messages between a caller and a server until either ends, or until `stop` is ready. Problems that the caller
/// cannot see go to `report`.
///
/// # Errors
/// Fails if the server is lost for good; every open request was answered with the reason then.
pub async fn forward<R, W>(
    options: RemoteOptions,
    input: R,
    mut output: W,
    stop: impl Future<Output = ()>,
    mut report: impl FnMut(&str),
) -> Result<(), RemoteError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let RemoteOptions { endpoint, token, reconnect_for } = options;
    let token = token.map(|token| bearer(&token)).transpose()?;
    let carrier = endpoint.carrier();
    let mut client = Client::new(ClientOptions {
        url: endpoint.to_string(),
        reconnect_for,
        has_session_streams: carrier == Carrier::Http,
        seed: RandomState::new().hash_one(0),
    });
    let transport = match carrier {
        Carrier::Http => Transport::Http(HttpTransport::new(endpoint, token)?),
        Carrier::WebSocket => Transport::WebSocket(WebSocketTransport::new(endpoint, token)?),
    };
    let started = Instant::now();
    tokio::pin!(stop);
    let mut is_stopped = false;
    let mut caller_error = None;
    let mut lines = LineReader::new(input, MAX_MESSAGE_BYTES);
    let mut outbox = Outbox::default();
    let mut post: Option<BoxFuture<'_, PostOutcome>> = None;
    let mut streams: SelectAll<BoxStream<'_, (StreamKey, StreamEvent)>> = SelectAll::new();
    let mut handles: BTreeMap<StreamKey, AbortHandle> = BTreeMap::new();
    // Without a stream that never ends, an empty set would be polled in vain.
    streams.push(stream::pending().boxed());
    let ended = loop {
        let mut ended = None;
        while let Some(action) = client.next_action() {
            match action {
                Action::Deliver(line) => outbox.push(&line),
                Action::Post(message) => post = Some(transport.post(message)),
                Action::OpenStream { key, connection, last_event_id } => {
                    let events = transport.open_stream(&key, &connection, last_event_id.as_deref());
                    let (events, handle) = abortable(events);
                    if let Some(old) = handles.insert(key.clone(), handle) {
                        old.abort();
                    }
                    streams.push(events.map(move |event| (key.clone(), event)).boxed());
                }
                Action::CloseStream(key) => {
                    if let Some(handle) = handles.remove(&key) {
                        handle.abort();
                    }
                }
                Action::Report(text) => report(&text),
                Action::End { connection, reason } => ended = Some((connection, reason)),
            }
        }
        if let Some(ended) = ended {
            break ended;
        }
        let timer = client.next_timer().map(|at| tokio::time::sleep_until(started + at));
        let has_room = outbox.bytes.len() < OUTPUT_HIGH_WATER;
        tokio::select! {
            written = outbox.write(&mut output), if !outbox.is_empty() => if let Err(error) = written {
                caller_error = Some(error);
                client.on_caller_lost();
            },
            Some(outcome) = OptionFuture::from(post.as_mut()) => {
                post = None;
                client.on_post(started.elapsed(), outcome);
            }
            Some((key, event)) = streams.next(), if has_room => {
                let now = started.elapsed();
                match event {
                    StreamEvent::Open => client.on_stream_open(now, &key, true),
                    StreamEvent::AssumedOpen => client.on_stream_open(now, &key, false),
                    StreamEvent::Event { id, data } => client.on_event(now, &key, id, data),
                    StreamEvent::End(end) => {
                        handles.remove(&key);
                        client.on_stream_end(now, &key, end);
                    }
                }
            }
            line = lines.next(), if has_room && client.accepts_input() => match line {
                Ok(Line::Whole(line)) => client.on_line(started.elapsed(), line),
                Ok(Line::TooLong) => client.on_long_line(MAX_MESSAGE_BYTES),
                Ok(Line::End) => client.on_input_end(started.elapsed()),
                Err(error) => {
                    caller_error = Some(error);
                    client.on_caller_lost();
                }
            },
            () = &mut stop, if !is_stopped => {
                is_stopped = true;
                client.on_input_end(started.elapsed());
            }
            Some(()) = OptionFuture::from(timer) => client.on_timer(started.elapsed()),
        }
    };
    let (connection, reason) = ended;
    drop((post, streams));
    if caller_error.is_none() {
        // What the server sent is still delivered, if the caller takes it.
        let flushed = timeout(FLUSH_TIMEOUT, outbox.flush(&mut output)).await;
        caller_error = flushed.unwrap_or(Ok(())).err();
    }
    if let Some(connection) = connection {
        transport.close(&connection).await;
    }
    match (reason, caller_error) {
        (Some(reason), _) => Err(RemoteError::Server(reason)),
        (None, Some(error)) => Err(RemoteError::Caller(error)),
        (None, None) => Ok(()),
    }
}

/// Returns the value of the `Authorization` header.
fn bearer(token: &str) -> Result<HeaderValue, RemoteError> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| RemoteError::Token)?;
    value.set_sensitive(true);
    Ok(value)
}

/// Lines that wait to be written to the caller, in as few writes as possible.
#[derive(Debug, Default)]
struct Outbox {
    bytes: BytesMut,
}

impl Outbox {
    fn push(&mut self, line: &[u8]) {
        self.bytes.reserve(line.len() + 1);
        self.bytes.extend_from_slice(line);
        self.bytes.extend_from_slice(b"\n");
    }

    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Writes everything, and ends the output.
    async fn flush(&mut self, output: &mut (impl AsyncWrite + Unpin)) -> std::io::Result<()> {
        while !self.is_empty() {
            self.write(output).await?;
        }
        output.shutdown().await
    }

    /// Writes a part. Nothing is lost if this is dropped before it returns.
    async fn write(&mut self, output: &mut (impl AsyncWrite + Unpin)) -> std::io::Result<()> {
        if !self.is_empty() && output.write_buf(&mut self.bytes).await? == 0 {
            return Err(std::io::ErrorKind::WriteZero.into());
        }
        if self.is_empty() {
            // The memory of a long message is not kept.
            self.bytes = BytesMut::new();
            output.flush().await?;
        }
        Ok(())
    }
}
