//! Benchmarks of the wire (with the hand-written floor that it is measured against), files, the host, the agent, the
//! proxy and the server; and the evaluation of an agent with a model.

pub mod agent;
pub mod eval;
pub mod files;
pub mod floor;
pub mod host;
pub mod proxy;
pub mod serve;
pub mod wire;
