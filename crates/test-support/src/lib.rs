//! What tests and benchmarks share: an agent and a client that do as they are told, an agent with every method, the
//! language in which tests of files are written, and a disk that fails SQLite when it is told to.

pub mod complete_agent;
pub mod contract;
pub mod faulty_sqlite;
pub mod fixture;
pub mod scripted_agent;
pub mod scripted_client;
