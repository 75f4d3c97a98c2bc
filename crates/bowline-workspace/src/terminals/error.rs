//! Errors of terminals, and their JSON-RPC form for peers.

use bowline_protocol::rpc_error::{BUSY_CODE, RpcError};
use bowline_protocol::schema::v1::TerminalId;
use bowline_protocol::terminal::InvalidCommandError;
use bowline_protocol::terminal::environment::InvalidVariableError;
use bowline_text::display::quote;
use serde_json::json;

use super::protocol::StartError;
use crate::error::FilesError;

/// Why an operation on a terminal failed.
#[derive(Debug, thiserror::Error)]
pub enum TerminalError {
    /// The terminal does not exist.
    #[error("there is no terminal {}: it was released, or never created", quote(&.0.0))]
    UnknownTerminal(TerminalId),
    /// The session has ended, and its terminals with it.
    #[error("the session has ended: it runs no more commands")]
    SessionEnded,
    /// The limit of terminals is reached.
    #[error("there are {limit} terminals, which is the limit: release those that are not needed")]
    TooMany {
        /// The limit.
        limit: usize,
    },
    /// The command is invalid.
    #[error(transparent)]
    Command(#[from] InvalidCommandError),
    /// The environment is invalid.
    #[error(transparent)]
    Variable(#[from] InvalidVariableError),
    /// The session's roots do not admit the directory.
    #[error(transparent)]
    Directory(#[from] FilesError),
    /// The directory was removed.
    #[error("the directory {} was removed: name one that is there", quote(.0))]
    DirectoryRemoved(String),
    /// The program does not exist.
    #[error("there is no program {}: check its name and PATH, and put its arguments into args", quote(.0))]
    ProgramNotFound(String),
    /// The program is not executable.
    #[error("{} cannot be executed: it is no program, or may not be run", quote(.0))]
    NotExecutable(String),
    /// The command cannot be confined as required, so it does not run.
    #[error("the command was not run because it cannot be confined: {0}")]
    Unconfinable(String),
    /// The system failed to run the program.
    #[error("{} cannot be run: {why}", quote(.program))]
    System {
        /// The program.
        program: String,
        /// The system's error.
        why: String,
    },
    /// The supervisor does not work.
    #[error("the supervisor of the command cannot be used: {0}")]
    Supervisor(String),
}

impl TerminalError {
    pub(super) fn from_start_error(program: &str, failed: StartError) -> Self {
        let program = program.to_owned();
        match failed {
            StartError::NotFound => Self::ProgramNotFound(program),
            StartError::Denied => Self::NotExecutable(program),
            StartError::Unconfinable(why) => Self::Unconfinable(why),
            StartError::System(why) => Self::System { program, why },
        }
    }
}

impl From<TerminalError> for RpcError {
    fn from(error: TerminalError) -> Self {
        let text = error.to_string();
        match error {
            TerminalError::UnknownTerminal(id) => Self::ResourceNotFound { uri: Some(id.to_string()) },
            TerminalError::TooMany { limit } => {
                Self::Other { code: BUSY_CODE, message: text, data: Some(json!({ "limit": limit })) }
            }
            TerminalError::Directory(why) => why.into(),
            TerminalError::SessionEnded => Self::Cancelled,
            TerminalError::Command(_)
            | TerminalError::Variable(_)
            | TerminalError::DirectoryRemoved(_)
            | TerminalError::ProgramNotFound(_)
            | TerminalError::NotExecutable(_) => Self::InvalidParams { reason: text },
            TerminalError::Unconfinable(_) | TerminalError::System { .. } | TerminalError::Supervisor(_) => {
                Self::Internal { reason: text }
            }
        }
    }
}
