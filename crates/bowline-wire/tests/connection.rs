//! Agents and clients on real connections in memory: what one side sees when the other lies, stalls, dies or races.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say so and stop"
)]

#[path = "connection/agent_end.rs"]
mod agent_end;
#[path = "connection/client_end.rs"]
mod client_end;
#[path = "connection/file_methods.rs"]
mod file_methods;
#[path = "connection/flow.rs"]
mod flow;
#[path = "connection/probe_agent.rs"]
mod probe_agent;
