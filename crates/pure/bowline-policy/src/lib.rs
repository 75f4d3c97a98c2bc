//! Operations, rules, shell lines, dangers, grants, questions, redaction and the audit chain, as values.
//!
//! Everything here is a decision: a function from values to values. There is no IO, clock, lock or async in this crate;
//! `crates/pure/clippy.toml` keeps it so.

pub mod audit;
pub mod claims;
pub mod danger;
pub mod grants;
pub mod mode;
pub mod operation;
pub mod own_tools;
pub mod paths;
pub mod policy;
pub mod question;
pub mod redaction;
