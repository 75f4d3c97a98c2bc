//! The tools of a session, called as a model would, with an editor that behaves well or badly.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests end where something is not as it should be"
)]

mod batch;
mod commands;
mod dropped_calls;
mod edit;
mod fixture;
mod linked_files;
mod permission;
mod read;
mod stale_editor;
mod tool_sets;
mod turn_record;
