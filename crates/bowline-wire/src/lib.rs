//! JSON-RPC between two ACP peers.
//!
//! Three layers, each usable by itself:
//! - [`peer::Peer`] is one end of a connection without IO: bytes in, events out.
//! - [`driver::Driver`] runs a peer over any reader and writer on tokio, with a [`service::Service`].
//! - [`Agent`] and [`Client`] are the protocol's two ends as traits; [`run_agent`] and [`spawn_agent`] start them.

mod agent;
mod agent_handle;
pub mod body;
mod caller;
pub mod canonical;
mod child;
mod client;
mod client_handle;
mod connect;
mod context;
mod dispatch;
pub mod driver;
mod eager;
mod envelope;
mod exchange;
mod framing;
mod head_reader;
mod lane;
mod last_words;
pub mod limits;
pub mod methods;
mod outbox;
pub mod peek;
pub mod peer;
mod salvage;
pub mod service;
mod stdio;
mod tap;

pub use agent::{Agent, AgentContext};
pub use agent_client_protocol_schema as schema;
pub use agent_handle::AgentHandle;
pub use caller::{CallError, Caller};
pub use child::{AgentExit, AgentProcess, Grace, SpawnError, spawn_agent, spawn_agent_tapped};
pub use client::{Client, ClientContext, UnknownUpdate};
pub use client_handle::ClientHandle;
pub use connect::{connect_agent, connect_client, connect_client_tapped, run_agent};
pub use context::Context;
pub use envelope::Malformed;
pub use head_reader::{HeadReader, StreamHead};
pub use last_words::LastWords;
pub use limits::Limits;
pub use stdio::streams as standard_streams;
pub use tap::{Direction, Tap, Tapped};
