//! The client side that `run` and `chat` share: an open workspace, and the agent it is served to.

pub(crate) mod agents;
mod approved_changes;
pub(crate) mod arguments;
pub(crate) mod config;
mod last_sessions;
pub(crate) mod launch;
pub(crate) mod login;
pub(crate) mod options;
pub(crate) mod prompt;
pub(crate) mod reopen;
mod session_config;
pub(crate) mod trace;

pub(crate) use approved_changes::{ApprovalDifference, ApprovedChanges};
pub(crate) use arguments::ClientArguments;
pub(crate) use launch::{AgentLauncher, LaunchedAgent};
pub(crate) use options::{approval_preset, requested_preset};
