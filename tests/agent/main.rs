//! The agent, driven by clients over pipes: what the protocol wants of it, what a user sees, what it survives.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say so and stop"
)]
#![allow(clippy::print_stdout, reason = "a skipped test tells whoever runs it")]

mod conformance;
mod eval;
mod faults;
mod local;
mod models;
mod over_acp;
mod peers;
mod program;
#[allow(dead_code, reason = "the end-to-end tests use the rest")]
#[path = "../e2e/programs.rs"]
mod programs;
mod quirks;
mod sessions;
mod together;
#[allow(dead_code, reason = "the tests of the host use the rest")]
#[path = "../host/peers/visit.rs"]
mod visit;
