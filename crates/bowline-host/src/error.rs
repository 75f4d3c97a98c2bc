//! Why a host could not do what its owner asked.

use std::path::PathBuf;
use std::sync::Arc;

use bowline_state::failure::quote;
use bowline_wire::{AgentExit, CallError, SpawnError};
use bowline_workspace::audit::AuditError;
use bowline_workspace::error::FilesError;
use bowline_workspace::policy::PolicyError;
use bowline_workspace::roots::RootError;
use bowline_workspace::terminals::TerminalError;

/// Why a host could not do what its owner asked.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A directory of the workspace cannot be used.
    #[error(transparent)]
    Roots(#[from] RootError),
    /// The workspace cannot be used.
    #[error(transparent)]
    Workspace(#[from] FilesError),
    /// The first look at the project's files failed.
    #[error(transparent)]
    FirstLook(Arc<FilesError>),
    /// The user's rules cannot be used.
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
    /// The agent did not do it.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The agent was started, and the two did not come to terms.
    #[error("{why}; {exit}")]
    NotMet {
        /// Why not.
        why: CallError,
        /// How the agent ended.
        exit: Box<AgentExit>,
    },
    /// The agent did not answer `initialize` in the time that it had.
    #[error("the agent did not answer within {seconds} s: is it one that speaks ACP?{}", .exit.as_ref().map_or(String::new(), |exit| format!(" {exit}")))]
    Silent {
        /// How long it had.
        seconds: u64,
        /// How it was ended, if the host had started it.
        exit: Option<Box<AgentExit>>,
    },
    /// The agent offers no such way to log in.
    #[error("the agent does not offer to log in by {}: use one of those that it offers", quote(.0))]
    NotOffered(String),
    /// To log in that way the user has to run a program.
    #[error("to log in by {} is for the user, in a terminal: run the agent's program for it, then connect again", quote(.0))]
    TerminalLogin(String),
    /// There is a turn already.
    #[error("the session is busy with another turn: wait for it, or cancel it")]
    Busy,
    /// The session is over.
    #[error("the session has ended: open another one")]
    Ended,
    /// What is the user's own lies where agents and their commands can change it.
    #[error("{} lies inside the workspace: keep Bowline's own files outside of it", quote(&.0.display().to_string()))]
    InsideWorkspace(PathBuf),
    /// No message of the protocol can name the directory.
    #[error("{} is not named in UTF-8, so no agent can work there: rename it", quote(&.0.to_string_lossy()))]
    NotUtf8(PathBuf),
    /// A session of that id is open on this connection.
    #[error("a session of that id is open already: close it first")]
    SessionTwice,
    /// Something of the host itself ended early.
    #[error("the host failed: {0}")]
    Internal(String),
}
