//! An ACP session as plain data.
//!
//! Everything here is a decision: a function from values to values. There is no IO, clock, lock or async in this
//! crate, and its lints keep it so. The protocol's types come from [`agent_client_protocol_schema`].

pub mod accumulator;
pub mod builders;
pub mod capabilities;
pub mod changes;
pub mod diff;
pub mod documents;
pub mod failure;
pub mod ledger;
pub mod lines;
pub mod merge;
pub mod observation;
pub mod paths;
pub mod permission;
pub mod recovery;
pub mod text;
pub mod tracker;
pub mod undo;
pub mod version;

pub use agent_client_protocol_schema as schema;
