//! ACP as values: accumulator, tracker, permission requests, capabilities, errors, file extension, relay,
//! remote connections, recordings.
//!
//! Everything here is a decision: a function from values to values. There is no IO, clock, lock or async in this crate;
//! `crates/pure/clippy.toml` keeps it so.

pub mod accumulator;
pub mod builders;
pub mod capabilities;
pub mod diagnostics;
pub mod elicitation;
pub mod file_extension;
pub mod json_object;
pub mod message_id;
pub mod permission;
pub mod quirks;
pub mod relay;
pub mod remote;
pub mod rpc_error;
pub mod sse;
pub mod terminal;
pub mod trace;
pub mod tracker;

pub use agent_client_protocol_schema as schema;
