//! Operations that an agent asks another client for: evaluated here, performed there.

use agent_client_protocol_schema::v1::RequestPermissionResponse;

use crate::file_extension::FileOperation;
use crate::terminal::CommandRequest;

/// An operation that an agent asks another client for.
#[derive(Debug, Clone)]
pub enum RelayedOperation {
    /// Reads a file.
    Read {
        /// The agent's name for it.
        path: String,
    },
    /// Writes a file.
    Write {
        /// The agent's name for it.
        path: String,
        /// The whole text.
        content: String,
    },
    /// Reads and changes files by the file extension, all or none.
    Files(Vec<FileOperation>),
    /// Runs a command.
    Run(CommandRequest),
}

/// The decision of rules alone on a permission request.
#[derive(Debug)]
pub enum PermissionRuling {
    /// The rules decide, and this is the answer.
    Decided(RequestPermissionResponse),
    /// A person decides: the other client asks.
    AskUser,
}
