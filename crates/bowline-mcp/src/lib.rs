//! MCP: servers of others as tools for an agent.
//!
//! [`client`] connects to servers and calls their tools; [`http`] makes the clients for HTTP that it uses.

pub mod client;
pub mod http;
