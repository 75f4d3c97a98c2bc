//! The host, driven by agents over a connection: what they may do, what a person is asked, what stays behind.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say so and stop"
)]

mod approving;
mod attacks;
mod cancel;
mod commands;
mod eliciting;
mod files;
mod journal;
mod logging;
mod peers;
mod permissions;
mod player;
mod policies;
mod quirks;
mod redirecting;
mod repositories;
mod sessions;
mod stage;
mod talking;

/// The program that owns the commands of terminals.
const SUPERVISOR: &str = env!("CARGO_BIN_EXE_supervisor");
