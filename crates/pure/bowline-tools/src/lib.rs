//! The workspace tools of agent and MCP server: inputs, schemas, descriptions.
//!
//! Everything here is a decision: a function from values to values. There is no IO, clock, lock or async in this crate;
//! `crates/pure/clippy.toml` keeps it so.

pub mod mcp_tools;
pub mod tools;
