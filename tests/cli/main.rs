//! End-to-end tests of the commands of the `bowline` binary.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should say where")]

mod approval_levels;
mod audit;
mod change_output;
mod changes;
mod chat;
mod completions;
mod connect;
mod doctor;
mod exit_codes;
mod fixture;
mod login;
mod man;
mod peers;
mod picture;
mod policy;
#[allow(dead_code, reason = "the end-to-end tests use the rest")]
#[path = "../e2e/programs.rs"]
mod programs;
mod run;
mod screen;
mod serve;
mod serve_options;
mod sessions;
mod setup;
mod signals;
mod trace;
mod usage;
mod web;
