//! Errors of tool calls and of connections.

use std::time::Duration;

/// Why a tool call failed. The text is for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum McpError {
    /// There is no such tool.
    #[error("there is no MCP tool {0:?}: it may have gone with its server")]
    UnknownTool(String),
    /// The server is not running.
    #[error("the MCP server {server:?} cannot be used: {why}")]
    NotReady {
        /// The server.
        server: String,
        /// The server's state.
        why: String,
    },
    /// The server ended during the call.
    #[error("the MCP server {server:?} ended during the call, what it did is not known: {why}")]
    ServerEnded {
        /// The server.
        server: String,
        /// How it ended.
        why: String,
    },
    /// The server answered with an error.
    #[error("the MCP server {server:?} refuses the call: {message}")]
    Refused {
        /// The server.
        server: String,
        /// The server's message.
        message: String,
    },
    /// The server is unreachable, or the peer does not speak MCP.
    #[error(
        "the call of the MCP server {server:?} failed, and may have been carried out all the same: {why}"
    )]
    Unreachable {
        /// The server.
        server: String,
        /// The cause.
        why: String,
    },
    /// The call exceeded its deadline.
    #[error("the MCP server {server:?} did not answer within {after:?}, so the call was cancelled")]
    TimedOut {
        /// The server.
        server: String,
        /// The deadline.
        after: Duration,
    },
    /// The server answered with something that is not supported.
    #[error("the MCP server {server:?} answers with {what}, which is not supported")]
    Unsupported {
        /// The server.
        server: String,
        /// The unsupported answer.
        what: &'static str,
    },
}

/// Why a connection could not be opened, or was lost.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub(super) struct ConnectError {
    pub(super) why: String,
    /// Whether and when to retry.
    pub(super) retry: RetryPolicy,
}

impl ConnectError {
    /// Returns a permanent failure.
    pub(super) fn permanent(why: impl Into<String>) -> Self {
        Self { why: why.into(), retry: RetryPolicy::Never }
    }

    /// Returns a failure that took so long that it is retried only after a while.
    pub(super) fn slow(why: impl Into<String>) -> Self {
        Self { why: why.into(), retry: RetryPolicy::Later }
    }

    /// Returns a transient failure.
    pub(super) fn transient(why: impl Into<String>) -> Self {
        Self { why: why.into(), retry: RetryPolicy::Soon }
    }
}

/// Returns an error with all its sources; a text that already occurred is not repeated.
pub(super) fn format_error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        source = error.source();
    }
    bowline_text::display::escape_line(&text, 600)
}

/// Whether and when to retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RetryPolicy {
    /// Never.
    Never,
    /// After a while.
    Later,
    /// Soon, and if that fails too, after a while.
    Soon,
}

impl RetryPolicy {
    /// Returns the policy for a failure that is transient, or not.
    pub(super) fn if_transient(is_transient: bool) -> Self {
        if is_transient { Self::Soon } else { Self::Never }
    }
}
