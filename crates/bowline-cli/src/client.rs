//! What `run` and `chat` share: a workspace that is opened, and an agent that it is served to.

pub(crate) mod agents;
mod approved;
pub(crate) mod arguments;
pub(crate) mod config;
mod last;
pub(crate) mod launch;
pub(crate) mod login;
pub(crate) mod options;
pub(crate) mod prompt;
pub(crate) mod reopen;
mod setting;
pub(crate) mod trace;

pub(crate) use approved::{ApprovedChanges, Difference};
pub(crate) use arguments::ClientArguments;
pub(crate) use launch::{Client, Launch};
pub(crate) use options::{level, preset};
