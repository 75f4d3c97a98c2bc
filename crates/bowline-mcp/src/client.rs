//! MCP servers as tools.
//!
//! [`Servers`] connects to all servers of a session in the background, keeps each running, and calls their tools. Every
//! server has a task that owns it: it connects, lists the tools, notices the end and starts it anew. What a server can
//! make grow has a cap; what it can delay has a deadline; what it says is cleaned by
//! [`mcp_tools`](bowline_state::mcp_tools).

mod call;
mod connection;
mod decode;
mod error;
mod guard;
mod handler;
mod legacy;
mod nesting;
mod over_acp;
mod restarts;
mod ring;
mod server;
mod servers;
mod settings;
mod spec;
mod sse;
mod stdio;
mod streamable;

pub use error::McpError;
pub use over_acp::{OverAcp, Told};
pub use servers::{MAX_SERVERS, McpTool, ServerStatus, Servers, State, WorkspaceServer};
pub use settings::Settings;
pub use spec::{Reach, ServerSpec, SpecError};

/// The longest message that is taken from a server, in bytes.
pub const MAX_MESSAGE: usize = 16 * 1024 * 1024;
