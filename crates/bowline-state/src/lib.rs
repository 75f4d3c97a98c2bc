//! An ACP session as plain data.
//!
//! Everything here is a decision: a function from values to values. There is no IO, clock, lock or async in this
//! crate, and its lints keep it so. The protocol's types come from [`agent_client_protocol_schema`].

pub mod accumulator;
pub mod builders;
pub mod capabilities;
pub mod failure;
pub mod lines;
pub mod paths;
pub mod permission;
pub mod tracker;
pub mod version;

pub use agent_client_protocol_schema as schema;
