//! What the commands share: the client side of `run` and `chat`, the user's directories, errors and output.
//!
//! - [`launch`] opens a workspace, starts an agent for it and opens a session; [`reopen`] finds an earlier one.
//! - [`arguments`], [`config`], [`environment`] and [`agents`] say what the user asked for.
//! - [`common`] formats output and finds a workspace's records; [`error`] ends a command with a line and a code.

pub mod agents;
mod approved_changes;
pub mod arguments;
pub mod common;
pub mod config;
pub mod environment;
pub mod error;
pub mod launch;
pub mod login;
pub mod prompt;
pub mod reopen;
pub mod trace;

pub use crate::approved_changes::{ApprovalDifference, ApprovedChanges};
pub use crate::arguments::ClientArguments;
pub use crate::arguments::options::{approval_preset, requested_preset};
pub use crate::launch::{AgentLauncher, LaunchedAgent};
