//! The MCP client: the tools of a session's MCP servers.
//!
//! [`McpServers`] connects to all servers of a session in the background, keeps them running, and calls their tools.
//! Each server is owned by one task, which connects, lists the tools, notices when the server ends and restarts it.
//! Everything a server can make grow has a cap, everything it can delay has a deadline, and its text is sanitised by
//! [`mcp_tools`](bowline_tools::mcp_tools).
//!
//! Server programs run under a supervisor, as commands do. A tool whose schema is nested deeper than 64 levels is left
//! out, and its name is reported to the user.

mod acp_transport;
mod call;
mod connection;
mod decode;
mod error;
mod guarded_transport;
mod handler;
mod legacy_sse;
mod nesting;
mod options;
mod output_tail;
mod restarts;
mod server;
mod servers;
mod spec;
mod sse;
mod stdio;
mod streamable_http;
mod transport;

pub use acp_transport::{McpNotificationRouter, McpOverAcp};
pub use error::McpError;
pub use options::McpClientOptions;
pub use servers::{MAX_SERVERS, McpServers, McpTool, ServerState, ServerStatus, WorkspaceServer};
pub use spec::{ServerSpec, ServerSpecError, TransportSpec};

/// The longest message accepted from a server, in bytes.
pub const MAX_MESSAGE: usize = 16 * 1024 * 1024;
