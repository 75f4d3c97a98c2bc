//! MCP on both sides: external servers as tools ([`client`]), and a workspace as a server ([`server`]).
//!
//! Everything a server or a client can make grow has a limit, and a fault of one affects no other. The texts and
//! decisions of tools are in `bowline-tools`, shared by the bundled agent and this server.

pub mod client;
pub mod http;
pub mod server;
