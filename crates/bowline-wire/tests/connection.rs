//! Agents and clients on real connections in memory: what one side sees when the other lies, stalls, dies or races.

#[path = "connection/agent_end.rs"]
mod agent_end;
#[path = "connection/client_end.rs"]
mod client_end;
#[path = "connection/flow.rs"]
mod flow;
#[path = "connection/probe.rs"]
mod probe;
