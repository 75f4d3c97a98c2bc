//! Why a call of a server's tool came to nothing.

use std::time::Duration;

/// Why a call of a server's tool came to nothing. The text is for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum McpError {
    /// There is no such tool.
    #[error("there is no MCP tool {0:?}: it may have gone with its server")]
    UnknownTool(String),
    /// The server does not run.
    #[error("the MCP server {server:?} cannot be used: {why}")]
    NotReady {
        /// The server.
        server: String,
        /// How it is.
        why: String,
    },
    /// The server ended while it was called.
    #[error("the MCP server {server:?} ended during the call, what it did is not known: {why}")]
    Gone {
        /// The server.
        server: String,
        /// How.
        why: String,
    },
    /// The server answers with an error.
    #[error("the MCP server {server:?} refuses the call: {message}")]
    Refused {
        /// The server.
        server: String,
        /// What it says.
        message: String,
    },
    /// The server cannot be reached, or what answers is no server.
    #[error(
        "the call of the MCP server {server:?} failed, and may have been carried out all the same: {why}"
    )]
    Unreachable {
        /// The server.
        server: String,
        /// What stands in the way.
        why: String,
    },
    /// It took too long.
    #[error("the MCP server {server:?} did not answer within {after:?}, so the call was cancelled")]
    Late {
        /// The server.
        server: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// The server wants something that is not supported.
    #[error("the MCP server {server:?} answers with {what}, which is not supported")]
    Unsupported {
        /// The server.
        server: String,
        /// What it wants.
        what: &'static str,
    },
}

/// Why a server could not be connected to, or is no longer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub(super) struct Failure {
    pub(super) why: String,
    /// Whether it is worth trying again.
    pub(super) again: Again,
}

impl Failure {
    /// Returns a failure that will not mend itself.
    pub(super) fn lasting(why: impl Into<String>) -> Self {
        Self { why: why.into(), again: Again::Never }
    }

    /// Returns a failure that took so long that it is not tried again but after a while.
    pub(super) fn slow(why: impl Into<String>) -> Self {
        Self { why: why.into(), again: Again::Later }
    }

    /// Returns a failure that may not happen again.
    pub(super) fn passing(why: impl Into<String>) -> Self {
        Self { why: why.into(), again: Again::Soon }
    }
}

/// Returns what an error says with all that is behind it, each thing once.
pub(super) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    bowline_state::display::line(&text, 600)
}

/// Whether it is worth trying again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    /// No.
    Never,
    /// After a while.
    Later,
    /// Soon, and if that does not help, after a while.
    Soon,
}

impl Again {
    /// Returns what becomes of something that may pass, or not.
    pub(super) fn if_passing(passes: bool) -> Self {
        if passes { Self::Soon } else { Self::Never }
    }
}
