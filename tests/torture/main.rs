//! A few seconds of `cargo xtask torture`, behind each of Bowline's programs: no line that a user saved is lost.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say so and stop"
)]

#[allow(dead_code, reason = "the end-to-end tests use the rest")]
#[path = "../e2e/programs.rs"]
mod programs;

use std::process::Command;

/// The number of saves of each of the seven programs: enough for some turns, kills and undos.
const SAVES_PER_PROGRAM: &str = "60";

/// Runs one round with every style, and expects every line to be accounted for.
fn check(front: &str, seed: u64) {
    let bowline = programs::build_program("bowline", &["build", "--quiet", "--package", "bowline-cli"]);
    let scratch = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_torture"));
    command.args(["run", "--front", front, "--seed", &seed.to_string(), "--saves", SAVES_PER_PROGRAM]);
    command.arg("--bowline").arg(bowline).arg("--directory").arg(scratch.path());
    let output = programs::run(&mut command);
    assert!(output.status.success(), "{}", programs::transcript(&output));
}

#[test]
fn no_line_is_lost_to_an_agent_on_the_engine() {
    check("engine", 1);
}

#[test]
fn no_line_is_lost_to_an_agent_of_a_host() {
    check("host", 2);
}

#[test]
fn no_line_is_lost_to_a_client_of_the_mcp_server() {
    check("mcp", 3);
}

#[test]
fn no_line_is_lost_to_an_agent_behind_the_proxy() {
    check("proxy", 4);
}

#[test]
fn no_line_is_lost_where_the_proxy_routes_writes_through_the_editor() {
    check("route", 5);
}
