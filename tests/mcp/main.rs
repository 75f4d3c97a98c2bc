//! Tests of `bowline mcp`, the real program, driven by clients: what a model and its user see, and what the server
//! survives.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say so and stop"
)]
#![allow(clippy::print_stdout, reason = "a skipped test says so")]

mod conformance;
mod faults;
mod harness;
mod http;
mod peers;
#[allow(dead_code, reason = "the end-to-end tests use the rest")]
#[path = "../e2e/programs.rs"]
mod programs;
mod tools;
