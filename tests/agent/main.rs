//! The agent, driven by clients over pipes: protocol conformance, the user's view, and faults.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say so and stop"
)]
#![allow(clippy::print_stdout, reason = "a skipped test says so")]

#[allow(dead_code, reason = "the tests of the host use the rest")]
#[path = "../host/peers/agent_run.rs"]
mod agent_run;
mod conformance;
mod eval;
mod faults;
mod host_and_agent;
mod local_commands;
mod mcp_over_acp;
mod models;
mod peers;
mod program;
#[allow(dead_code, reason = "the end-to-end tests use the rest")]
#[path = "../e2e/programs.rs"]
mod programs;
mod quirks;
mod sessions;
