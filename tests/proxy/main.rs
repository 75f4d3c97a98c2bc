//! Tests of `bowline proxy`, the real program, between editors and agents that know nothing of it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say so and stop"
)]

mod engine;
#[allow(dead_code, reason = "the tests of the commands use the rest")]
#[path = "../cli/fixture.rs"]
mod fixture;
mod inject;
mod injected_server;
mod passthrough;
mod peers;
mod permission;
#[allow(dead_code, reason = "the end-to-end tests use the rest")]
#[path = "../e2e/programs.rs"]
mod programs;
mod route_writes;
