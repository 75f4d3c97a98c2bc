//! Shared support for tests and benchmarks: a scripted agent and a scripted client, a fake editor, an agent with every
//! method, the script language of file tests, a host with an agent and a user in one process, a scripted model server,
//! a scripted HTTP server, servers of ACP in processes of their own, a PostgreSQL server, certificates, homes for third-party agents,
//! the processes of a test, SQLite on a faulty file system, the clock of file timestamps, git, and waits for conditions.

use std::time::Duration;

pub mod agent_homes;
pub mod background_runtime;
pub mod certificate;
pub mod complete_agent;
pub mod contract;
pub mod editor;
pub mod faulty_sqlite;
pub mod file_clock;
pub mod fixture;
pub mod git;
pub mod host_harness;
pub mod model_server;
pub mod own_server;
pub mod peer_server;
pub mod postgres;
pub mod processes;
pub mod scripted_agent;
pub mod scripted_client;
pub mod scripted_http;
pub mod wait;

/// Returns whether tests run at full length, as with `cargo xtask test --full`. Usually, long ones run a sample.
#[must_use]
pub fn is_full_run() -> bool {
    std::env::var_os("BOWLINE_FULL").is_some()
}

/// How long a test waits for an event that is certain to come. Only a hang takes this long, even on a busy machine.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(300);
