//! The texts and decisions of tools that a model calls, shared by Bowline's agent and its MCP server.

pub mod describe;
pub mod input;
pub mod output;
pub mod schema;
pub mod view;
pub mod write;
