//! A server of remote sessions: ACP over HTTP and WebSocket for any stdio agent.
//!
//! ```text
//!  client ◄─ HTTP, SSE, WebSocket ─► http ─► Hub ─► agent (stdio), one for each principal and kind of client
//!                                     ▲       │
//!                                     └─ EventLog ◄─ events ─► ServerStore
//! ```
//!
//! - [`Hub`] connects clients, sessions and agents. A session belongs to a principal, outlives its connections, and can
//!   have several clients at once.
//! - [`log::EventLog`] numbers everything that clients are sent about a session, stores it, and then publishes it. A
//!   client continues after the last number it has seen. What clients send is stored among it, as a record.
//! - [`store::ServerStore`] keeps sessions, events and tokens.
//! - [`http::serve`] is the endpoint: access, limits, streams.
//!
//! How agents are started is up to the program: [`AgentLauncher`].

pub mod event;
pub mod http;
mod hub;
pub mod log;
pub mod metrics;
pub mod store;
pub mod token;

pub use hub::{
    AgentLauncher, AgentStreams, ConnectError, ConnectionReservation, ConnectionStream, Hub, HubEvent,
    HubOptions, MergedStream, ReceiveError, SessionActivity, SessionState, SessionStream, StreamMessage,
};
