//! The agent: tools over files and terminals, turns, models, stored sessions.
//!
//! An editor starts it and talks ACP to it. What the agent does goes through the client where the client can serve it,
//! and else to this machine under the same engine; [`runtime`] decides that, method by method, for each session.

pub mod agent;
pub mod compaction;
pub mod instructions;
pub mod keys;
pub mod model;
pub mod options;
pub mod permission;
pub mod prompting;
pub mod reporter;
pub mod runtime;
pub mod session;
pub mod settings;
pub mod slash;
pub mod store;
pub mod system_prompt;
pub mod tools;
pub mod turn;
