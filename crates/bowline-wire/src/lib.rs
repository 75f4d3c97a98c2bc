//! JSON-RPC between two ACP peers.
//!
//! Three layers, each usable by itself:
//! - [`peer::Peer`] is one end of a connection without IO: bytes in, events out.
//! - [`driver::Driver`] runs a peer over any reader and writer on tokio, with a [`service::Service`].
//! - [`Agent`] and [`Client`] are the protocol's two ends as traits; [`run_agent`] and [`spawn_agent`] start them.
//!
//! ```text
//!  pipe ─► LineBuffer ─► split_unchecked ──────► Service ─► handler (Agent or Client)
//!                         │ not the usual form      ▲            │ responds, calls, notifies
//!                         ▼                         │            ▼
//!                      envelope, ─► RequestTracker ─┘        Caller ─► bounded queue ─┐
//!                      salvage                                                        ▼
//!  pipe ◄──────────────────────────── Outbox ◄───────────────────────────── RequestTracker
//! ```
//!
//! - **Order.** Notification handlers run one after the other. Responses to `session/prompt` and `session/load` are
//!   delivered after the notifications that precede them; other responses at once.
//! - **One response.** `RequestTracker` knows every open request of both sides. Responding twice is a `RespondError`
//!   and sends nothing. A handler that panics responds with -32603. A request with an id in use is refused with id
//!   `null`.
//! - **Malformed messages** are answered by their id where `salvage` finds it, and a malformed response fails the call
//!   that waits for it. Errors never quote a message.
//! - **Backpressure.** Limits are in [`limits`]. A notification handler that makes a call while reading is paused on
//!   its account gets `CallError::WouldDeadlock`.
//! - **Large messages.** Bodies move by ownership from the serialiser to `writev`. Their buffers are kept for the next
//!   large message and released after 64 small ones. Pipes are widened to 1 MiB where the system allows it.
//! - **For the proxy:** [`peek`](message::peek) finds id and method of a line without parsing it, and [`canonical`](message::canonical) rewrites a
//!   message so that every parser reads it the same way.

mod agent;
mod caller;
mod child;
mod client;
mod connect;
pub mod driver;
pub mod limits;
pub mod message;
pub mod peer;
pub mod service;
mod stream;

pub use crate::agent::handle::AgentHandle;
pub use crate::client::handle::ClientHandle;
pub use crate::message::envelope::MalformedMessage;
pub use crate::service::context::RequestContext;
pub use crate::stream::head_reader::{HeadReader, StreamHead};
pub use crate::stream::recorder::{Direction, RecordedStream, WireRecorder};
pub use crate::stream::stdio::standard_streams;
pub use crate::stream::tail::StreamTail;
pub use agent::{Agent, AgentContext};
pub use agent_client_protocol_schema as schema;
pub use caller::{CallError, Caller};
pub use child::{AgentExit, AgentProcess, ShutdownGrace, SpawnError, spawn_agent, spawn_agent_recorded};
pub use client::{Client, ClientContext, UnknownUpdate};
pub use connect::{connect_agent, connect_client, connect_client_recorded, run_agent};
pub use limits::ConnectionLimits;
