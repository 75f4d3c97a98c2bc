//! The benchmarks: of the wire, with the hand-written floor that it is measured against, of files, of the host, of the
//! agent, of the proxy; and tasks for an agent with a model.

pub mod agent;
pub mod bench;
pub mod eval;
pub mod files;
pub mod floor;
pub mod host;
pub mod proxy;
