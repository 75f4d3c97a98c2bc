//! What tests and benchmarks share: an agent and a client that do as they are told.

pub mod contract;
pub mod scripted_agent;
pub mod scripted_client;
