//! Decisions about files and their history: documents, ledger, changes, undo, recovery, attribution, watches.
//!
//! Everything here is a decision: a function from values to values. There is no IO, clock, lock or async in this crate;
//! `crates/pure/clippy.toml` keeps it so.

pub mod attribution;
pub mod changes;
pub mod documents;
pub mod foreign_files;
pub mod ledger;
pub mod observation;
pub mod recovery;
pub mod undo;
pub mod watch;
