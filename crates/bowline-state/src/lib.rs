//! Every decision of Bowline, as plain data and functions.
//!
//! A decision is a function from values to values. There is no IO, clock, lock or async code in this crate, and its
//! lints keep it so. The protocol's types come from [`agent_client_protocol_schema`].
//!
//! | for | modules |
//! |---|---|
//! | both ends | `capabilities` (what may be called), `permission`, `rpc_error`, `version`, `quirks` |
//! | an agent's end | `tracker`, `builders` |
//! | a client's end | `accumulator` (updates folded into snapshots that share structure), `elicitation`, `display` |
//! | the engine | `text`, `lines`, `diff`, `merge`, `ledger`, `documents`, `unsaved_text`, `changes` |
//! | undo and crashes | `undo`, `recovery` |
//! | scans | `observation`, `foreign_files`, `attribution`, `diagnostics` |
//! | approvals | `operation`, `paths`, `policy`, `claims`, `grants`, `question`, `danger`, `audit`, `redaction` |
//! | terminals | `terminal` |
//! | the proxy | `relay`, `relayed_operation` |
//! | the agent | `turn`, `conversation`, `mode`, `compaction`, `transcript`, `slash_command`, `offline_commands` |
//! | models | `retry`, `sse`, `tool_call_assembler`, `text_tool_calls` |
//! | tools | `tools`, `edits`, `mcp_tools` |
//! | recorded wires | `trace` |

pub mod accumulator;
pub mod attribution;
pub mod audit;
pub mod builders;
pub mod capabilities;
pub mod changes;
pub mod claims;
pub mod compaction;
pub mod conversation;
pub mod danger;
pub mod diagnostics;
pub mod diff;
pub mod display;
pub mod documents;
pub mod edits;
pub mod elicitation;
pub mod foreign_files;
pub mod grants;
pub mod hash;
pub mod ledger;
pub mod lines;
pub mod mcp_tools;
pub mod merge;
pub mod mode;
pub mod observation;
pub mod offline_commands;
pub mod operation;
pub mod own_tools;
pub mod paths;
pub mod permission;
pub mod policy;
pub mod question;
pub mod quirks;
pub mod recovery;
pub mod redaction;
pub mod relay;
pub mod relayed_operation;
pub mod retry;
pub mod rpc_error;
pub mod slash_command;
pub mod sse;
pub mod terminal;
pub mod text;
pub mod text_tool_calls;
pub mod time;
pub mod tool_call_assembler;
pub mod tools;
pub mod trace;
pub mod tracker;
pub mod transcript;
pub mod turn;
pub mod undo;
pub mod unsaved_text;
pub mod version;

pub use agent_client_protocol_schema as schema;
