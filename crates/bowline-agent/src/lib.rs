//! The agent: tools over files and terminals, turns, models, stored sessions.
//!
//! An editor starts it and talks ACP to it.
//!
//! ```text
//!  session/prompt ─► prompt ─► TurnMachine ─► Model ─► Reporter ─► client
//!                    (links,    │    ▲        reply     (updates, also kept for the record)
//!                    read by    ▼    │ results
//!                    backend)  Toolbox ─► Permissions ─► SessionRuntime ─► client, its workspace server,
//!                                                                          or this machine's engine
//! ```
//!
//! - [`runtime`] decides which backend serves reads, writes and terminals: the client if it advertised them, else one
//!   of the client's workspace servers, else this machine's engine, opened on first use. A failing backend has no
//!   fallback.
//! - [`tools`] read the current text before a change, from the backend that serves it, compare it with what the model
//!   has seen (the ledger and merge of the engine), and read the file again afterwards, because editors format and
//!   merge.
//! - [`permission`] uses the same approvals as the host: the user's rules, the audit log, and the user, asked over
//!   `session/request_permission`. A mode is a preset. An approval of an MCP tool holds for its description and schema.
//! - [`model`]: a request in, a stream of events out, an end or an error. A stream without an end was cut short.
//! - [`turn`] awaits nothing without also awaiting cancellation. Dropping a call cancels it on the wire;
//!   [`Toolbox::clean_up`](tools::Toolbox::clean_up) ends the commands of dropped calls.
//! - [`store`] keeps the updates sent to the client and the model's conversation as two lists of records. Loading
//!   replays the first and repairs the second. A turn is saved before it is answered.
//! - [`compaction`](turn::compaction) measures the conversation before each request, with estimates calibrated by the token counts of
//!   providers. It truncates old outputs first; then the model summarises the older part, or it is listed mechanically.
//! - Prompts of one session queue, at most eight. A turn waits up to 15 seconds for MCP servers that are starting.

pub mod agent;
pub mod agent_options;
pub mod model;
pub mod permission;
pub mod prompt;
pub mod reporter;
pub mod runtime;
pub mod session;
pub mod store;
pub mod tools;
pub mod turn;
