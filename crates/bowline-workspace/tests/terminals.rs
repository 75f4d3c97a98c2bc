//! Terminals with real processes, among them such that do not want to end.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say so and stop"
)]

#[path = "terminals/confined.rs"]
mod confined;
#[path = "terminals/ends.rs"]
mod ends;
#[path = "terminals/lab.rs"]
mod lab;
#[path = "terminals/protocol.rs"]
mod protocol;
#[path = "terminals/pty.rs"]
mod pty;
#[path = "terminals/torture.rs"]
mod torture;
