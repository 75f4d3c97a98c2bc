//! Errors of the host.

use std::path::PathBuf;
use std::sync::Arc;

use bowline_access::audit::AuditError;
use bowline_access::policy::PolicyError;
use bowline_text::display::quote;
use bowline_wire::{AgentExit, CallError, SpawnError};
use bowline_workspace::error::FilesError;
use bowline_workspace::roots::RootError;
use bowline_workspace::terminals::TerminalError;

/// Why an operation of the host failed.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A directory of the workspace cannot be used.
    #[error(transparent)]
    Roots(#[from] RootError),
    /// The workspace cannot be used.
    #[error(transparent)]
    Workspace(#[from] FilesError),
    /// The initial scan of the project's files failed.
    #[error(transparent)]
    InitialScan(Arc<FilesError>),
    /// The user's policy cannot be used.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The audit log cannot be used.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// The agent cannot be started.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// The agent cannot be started under a supervisor.
    #[error("cannot start the agent: {0}")]
    Supervise(#[from] TerminalError),
    /// A call to the agent failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The agent was started, but the handshake failed.
    #[error("{why}; {exit}")]
    HandshakeFailed {
        /// The failed call.
        why: CallError,
        /// How the agent ended.
        exit: Box<AgentExit>,
    },
    /// The agent did not answer `initialize` before the timeout.
    #[error("the agent did not answer within {seconds} s: does it speak ACP?{}", .exit.as_ref().map_or(String::new(), |exit| format!(" {exit}")))]
    InitializeTimeout {
        /// The timeout in seconds.
        seconds: u64,
        /// How it ended, if the host had started it.
        exit: Option<Box<AgentExit>>,
    },
    /// The agent does not offer this login method.
    #[error("the agent does not offer to log in by {}: use one of those that it offers", quote(.0))]
    AuthMethodNotOffered(String),
    /// This login method requires the user to run a program.
    #[error("to log in by {} is for the user, in a terminal: run the agent's program for it, then connect again", quote(.0))]
    TerminalLoginRequired(String),
    /// Another turn is in progress.
    #[error("the session is busy with another turn: wait for it, or cancel it")]
    TurnInProgress,
    /// The session has ended.
    #[error("the session has ended: open another one")]
    SessionEnded,
    /// A private file of the user is inside the workspace, where agents and their commands can change it.
    #[error("{} lies inside the workspace: keep Bowline's own files outside of it", quote(&.0.display().to_string()))]
    InsideWorkspace(PathBuf),
    /// The directory's path is not UTF-8, so no message can name it.
    #[error("{} is not named in UTF-8, so no agent can work there: rename it", quote(&.0.to_string_lossy()))]
    NotUtf8(PathBuf),
    /// A session with this id is already open on the connection.
    #[error("a session of that id is open already: close it first")]
    DuplicateSession,
    /// A part of the host failed.
    #[error("the host failed: {0}")]
    Internal(String),
}
