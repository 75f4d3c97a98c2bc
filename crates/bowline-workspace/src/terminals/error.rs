//! Why a terminal did not do what it was asked, and what a peer is told of it.

use bowline_state::failure::{BUSY_CODE, Failure, quote};
use bowline_state::schema::v1::TerminalId;
use bowline_state::terminal::BadCommand;
use bowline_state::terminal::environment::BadVariable;
use serde_json::json;

use super::job::Failed;
use crate::error::FilesError;

/// Why an operation on a terminal failed.
#[derive(Debug, thiserror::Error)]
pub enum TerminalError {
    /// There is no such terminal.
    #[error("there is no terminal {}: it was released, or never created", quote(&.0.0))]
    Unknown(TerminalId),
    /// The session has ended, and its terminals with it.
    #[error("the session has ended: it runs no more commands")]
    Ended,
    /// There are as many terminals as there may be.
    #[error("there are {limit} terminals, which is the limit: release those that are not needed")]
    TooMany {
        /// How many there may be.
        limit: usize,
    },
    /// The command is none.
    #[error(transparent)]
    Command(#[from] BadCommand),
    /// The environment is none.
    #[error(transparent)]
    Variable(#[from] BadVariable),
    /// The directory is not for this session.
    #[error(transparent)]
    Directory(#[from] FilesError),
    /// The directory was removed.
    #[error("the directory {} was removed: name one that is there", quote(.0))]
    DirectoryRemoved(String),
    /// There is no such program.
    #[error("there is no program {}: check its name and PATH, and put its arguments into args", quote(.0))]
    NoProgram(String),
    /// The program may not be executed.
    #[error("{} cannot be executed: it is no program, or may not be run", quote(.0))]
    NotExecutable(String),
    /// The command cannot be confined as it has to be, so it does not run.
    #[error("the command was not run because it cannot be confined: {0}")]
    Unconfinable(String),
    /// The system refuses to run the program.
    #[error("{} cannot be run: {why}", quote(.program))]
    System {
        /// The program.
        program: String,
        /// What the system says.
        why: String,
    },
    /// The supervisor does not work.
    #[error("the supervisor of the command cannot be used: {0}")]
    Supervisor(String),
}

impl TerminalError {
    pub(super) fn not_started(program: &str, failed: Failed) -> Self {
        let program = program.to_owned();
        match failed {
            Failed::NotFound => Self::NoProgram(program),
            Failed::Denied => Self::NotExecutable(program),
            Failed::Unconfinable(why) => Self::Unconfinable(why),
            Failed::System(why) => Self::System { program, why },
        }
    }
}

impl From<TerminalError> for Failure {
    fn from(error: TerminalError) -> Self {
        let text = error.to_string();
        match error {
            TerminalError::Unknown(id) => Self::ResourceNotFound { uri: Some(id.to_string()) },
            TerminalError::TooMany { limit } => {
                Self::Other { code: BUSY_CODE, message: text, data: Some(json!({ "limit": limit })) }
            }
            TerminalError::Directory(why) => why.into(),
            TerminalError::Ended => Self::Cancelled,
            TerminalError::Command(_)
            | TerminalError::Variable(_)
            | TerminalError::DirectoryRemoved(_)
            | TerminalError::NoProgram(_)
            | TerminalError::NotExecutable(_) => Self::InvalidParams { reason: text },
            TerminalError::Unconfinable(_) | TerminalError::System { .. } | TerminalError::Supervisor(_) => {
                Self::Internal { reason: text }
            }
        }
    }
}
