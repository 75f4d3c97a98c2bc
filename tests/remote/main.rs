//! Tests of the client of remote agents, against servers that we did not write and against a faulty network.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say so and stop"
)]

mod caller;
mod faults;
mod peer_differences;
mod typescript;
