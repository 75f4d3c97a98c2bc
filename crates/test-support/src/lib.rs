//! What tests and benchmarks share: an agent and a client that do as they are told, and an agent with every method.

pub mod complete_agent;
pub mod contract;
pub mod scripted_agent;
pub mod scripted_client;
