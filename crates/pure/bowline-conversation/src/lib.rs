//! The conversation of an agent: turns, compaction, transcripts, tool calls, slash commands.
//!
//! Everything here is a decision: a function from values to values. There is no IO, clock, lock or async in this crate;
//! `crates/pure/clippy.toml` keeps it so.

pub mod compaction;
pub mod conversation;
mod json_repair;
pub mod offline_commands;
pub mod retry;
pub mod slash_command;
pub mod text_tool_calls;
pub mod tool_call_assembler;
pub mod transcript;
pub mod turn;
