//! The client end of ACP over HTTP and WebSocket, which carries messages like an agent's input and output.
//!
//! [`forward`] reads newline-delimited messages from a caller and writes the server's messages back, so whatever can
//! talk to an agent's process can talk to a server; in one process, `tokio::io::duplex` gives both ends. It is one
//! task: it owns the connection, reads the caller and the streams only as fast as it can pass on what it has read, and
//! ends everything when it is dropped.
//!
//! - `client` decides, without IO: what to post, open, resend and answer.
//! - `driver` performs these decisions, on `http` (posts and event streams) or `websocket` (one socket).
//! - [`endpoint`] checks URLs; `cookies`, `backoff`, `refusal` and `message` are the other decisions.

mod backoff;
mod client;
mod cookies;
mod driver;
pub mod endpoint;
mod http;
mod line_reader;
mod message;
mod refusal;
mod tls;
mod transport;
mod websocket;

pub use driver::{RemoteError, RemoteOptions, forward};

/// The largest message in each direction, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 64 << 20;
