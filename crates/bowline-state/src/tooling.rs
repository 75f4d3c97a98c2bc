//! What tools that a model calls say and decide, whoever offers them: Bowline's agent, or an MCP server.

pub mod deciding;
pub mod input;
pub mod output;
pub mod schema;
pub mod telling;
pub mod view;
