//! Host tests: agents drive the host over a connection, and the tests check permissions, questions to the user, and
//! cleanup.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say so and stop"
)]

mod approvals;
mod attacks;
mod audit_log;
mod cancel;
mod commands;
mod elicitation;
mod file_extension;
mod file_watches;
mod files;
mod host_fixture;
mod journal;
mod peers;
mod permissions;
mod policies;
mod quirks;
mod redirections;
mod repositories;
mod session_agent;
mod session_messages;
mod sessions;

/// The program that supervises the commands of terminals.
const SUPERVISOR: &str = env!("CARGO_BIN_EXE_supervisor");
