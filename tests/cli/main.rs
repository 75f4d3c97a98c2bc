//! End-to-end tests of the commands of the `bowline` binary.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should say where")]

mod audit;
mod changes;
mod chat;
mod completions;
mod doctor;
mod endings;
mod levels;
mod login;
mod peers;
mod policy;
mod program;
#[allow(dead_code, reason = "the end-to-end tests use the rest")]
#[path = "../e2e/programs.rs"]
mod programs;
mod records;
mod run;
mod screen;
mod sessions;
mod setup;
mod signals;
mod trace;
mod usage;
