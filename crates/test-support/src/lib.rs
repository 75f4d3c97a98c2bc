//! What tests and benchmarks share: an agent and a client that do as they are told, an editor that does as real ones do,
//! an agent with every method, the language in which tests of files are written, a host with an agent and a person in one
//! process, a model that says what a test wants, homes for agents of others, which
//! processes a test has, a disk that fails SQLite when it is told to, and the clock by which files are stamped.

use std::time::Duration;

pub mod agent_homes;
pub mod complete_agent;
pub mod contract;
pub mod editor;
pub mod faulty_sqlite;
pub mod file_clock;
pub mod fixture;
pub mod lab;
pub mod model_server;
pub mod processes;
pub mod scripted_agent;
pub mod scripted_client;

/// How long a test waits for what is certain to come. Only a hang takes so long, however much else the machine does.
pub const PATIENCE: Duration = Duration::from_secs(300);
