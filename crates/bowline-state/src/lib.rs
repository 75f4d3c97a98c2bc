//! An ACP session as plain data.
//!
//! Everything here is a decision: a function from values to values. There is no IO, clock, lock or async in this
//! crate, and its lints keep it so. The protocol's types come from [`agent_client_protocol_schema`].

pub mod accumulator;
pub mod audit;
pub mod builders;
pub mod call_assembler;
pub mod capabilities;
pub mod changes;
pub mod claims;
pub mod compaction;
pub mod conversation;
pub mod danger;
pub mod diagnostics;
pub mod diff;
pub mod display;
pub mod documents;
pub mod edits;
pub mod elicitation;
pub mod failure;
pub mod fenced;
pub mod foreign_files;
pub mod grants;
pub mod ledger;
pub mod lines;
pub mod mcp_tools;
pub mod merge;
pub mod mode;
pub mod observation;
pub mod offline;
pub mod operation;
pub mod passing;
pub mod paths;
pub mod permission;
pub mod policy;
pub mod question;
pub mod quirks;
pub mod recovery;
pub mod redaction;
pub mod relay;
pub mod retry;
pub mod slash;
pub mod sse;
pub mod terminal;
pub mod text;
pub mod tooling;
pub mod trace;
pub mod tracker;
pub mod transcript;
pub mod turn;
pub mod undo;
pub mod unsaved;
pub mod version;
pub mod watching;

pub use agent_client_protocol_schema as schema;
