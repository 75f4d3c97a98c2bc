//! The server over real connections, with a scripted agent.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod access;
mod activity;
mod attacks;
mod checker;
mod checker_faults;
mod client;
mod follower;
mod records;
mod servers;
mod sessions;
mod support;
mod tls;
mod transport;
