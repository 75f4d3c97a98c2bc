//! End-to-end tests: real programs over real pipes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say so and stop"
)]
#![allow(clippy::print_stdout, reason = "a skipped test says so")]

mod demo;
mod examples;
mod methods;
mod peers;
mod programs;
mod readme;
mod web;
