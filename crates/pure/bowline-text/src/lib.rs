//! Text as values: encodings, line windows, diff, merge, edits, escaping for display.
//!
//! Everything here is a decision: a function from values to values. There is no IO, clock, lock or async in this crate;
//! `crates/pure/clippy.toml` keeps it so.

pub mod diff;
pub mod display;
pub mod edits;
pub mod hash;
pub mod lines;
pub mod merge;
pub mod text;
pub mod time;
pub mod unsaved_text;
