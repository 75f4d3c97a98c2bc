//! What an agent asks of another client, as it passes by: whether that may be done is judged here, and it is done there.

use agent_client_protocol_schema::v1::RequestPermissionResponse;

use crate::terminal::Asked;

/// What an agent asks another client for.
#[derive(Debug, Clone)]
pub enum Act {
    /// To read a file.
    Read {
        /// As the agent names it.
        path: String,
    },
    /// To write a file.
    Write {
        /// As the agent names it.
        path: String,
        /// The whole text.
        content: String,
    },
    /// To run a command.
    Run(Asked),
}

/// What rules alone say to a permission request.
#[derive(Debug)]
pub enum Judged {
    /// They decide, and this is the answer.
    Answered(RequestPermissionResponse),
    /// A person decides: the other client asks.
    Ask,
}
