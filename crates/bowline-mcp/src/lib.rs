//! MCP on both sides: the servers of others as tools ([`client`]), and a workspace as a server for others ([`server`]).
//!
//! Everything that passes has a bound, and whatever a server or a client does stays between it and us.

pub mod client;
pub mod http;
pub mod server;
