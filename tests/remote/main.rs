//! Tests of the client of remote agents, against servers that we did not write and against a faulty network.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say so and stop"
)]

mod caller;
#[path = "../../crates/bowline-serve/tests/serve/checker.rs"]
mod checker;
#[allow(dead_code, reason = "the server's own tests use the rest")]
#[path = "../../crates/bowline-serve/tests/serve/client.rs"]
mod client;
mod faults;
#[allow(dead_code, reason = "the server's own tests use the rest")]
#[path = "../../crates/bowline-serve/tests/serve/follower.rs"]
mod follower;
mod histories;
mod own_server;
mod peer_differences;
#[allow(dead_code, reason = "the end-to-end tests use the rest")]
#[path = "../e2e/programs.rs"]
mod programs;
mod qwen;
mod servers;
mod tls;
mod typescript;
