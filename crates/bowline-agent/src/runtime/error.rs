//! The errors of a runtime, distinguished by how callers can react.

use std::time::Duration;

use bowline_protocol::capabilities::CapabilityError;
use bowline_protocol::rpc_error::missing_file::{self, PhrasePosition};
use bowline_protocol::rpc_error::{self, RpcError};
use bowline_wire::CallError;

use super::Backend;

/// Why a runtime operation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeError {
    /// The backend answered with an error.
    #[error(transparent)]
    Failed(#[from] RpcError),
    /// The connection to the client is closed. The outcome of the operation is unknown.
    #[error("the connection to the editor is closed")]
    Disconnected,
    /// The client did not answer. The outcome of the operation is unknown.
    #[error("the editor did not answer {method} within {} s", .after.as_secs_f32())]
    TimedOut {
        /// The request's method.
        method: &'static str,
        /// The timeout.
        after: Duration,
    },
    /// The answer is invalid. The outcome of the operation is unknown.
    #[error("the editor's answer to {method} cannot be understood: {why}")]
    InvalidAnswer {
        /// The request's method.
        method: &'static str,
        /// What is wrong with the answer.
        why: String,
    },
    /// The engine of this machine cannot be used.
    #[error("files and commands of this machine cannot be used: {0}")]
    EngineUnavailable(String),
}

/// How certain it is that a file does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileAbsence {
    /// It does not exist.
    Certain,
    /// It seems not to exist: another source has to confirm it.
    Possible,
    /// The error has another cause.
    NotIndicated,
}

impl RuntimeError {
    /// Converts the error of a call to the client.
    #[must_use]
    pub fn from_call_error(method: &'static str, error: CallError) -> Self {
        match error {
            CallError::ErrorResponse(error) => Self::Failed(match RpcError::from_error(&error) {
                // An agent cannot log in to a client; many use -32000 for any error.
                RpcError::AuthRequired { .. } => {
                    RpcError::Internal { reason: rpc_error::describe_error(&error) }
                }
                failure => failure,
            }),
            CallError::NotAdvertised(missing) => Self::Failed(missing.into()),
            CallError::Closed => Self::Disconnected,
            CallError::Unreadable { reason, .. } => Self::InvalidAnswer { method, why: reason },
            error @ (CallError::UnsupportedVersion(_)
            | CallError::NotSent(_)
            | CallError::InvalidParams(_)
            | CallError::WouldDeadlock) => Self::Failed(RpcError::Internal { reason: error.to_string() }),
        }
    }

    /// Returns the error for an answer without content, from a client that sends it for every file it cannot open. The
    /// file may not exist, which the disk has to confirm ([`FileAbsence::Possible`]).
    #[must_use]
    pub fn no_content() -> Self {
        let reason = "the answer has no content: no such file, or the editor cannot open it".to_owned();
        Self::Failed(RpcError::Internal { reason })
    }

    /// Returns whether the operation may have been carried out all the same.
    #[must_use]
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(self, Self::Disconnected | Self::TimedOut { .. } | Self::InvalidAnswer { .. })
    }

    /// Returns whether the file does not exist, for callers that only read. Clients report it in many ways.
    #[must_use]
    pub fn is_file_missing(&self) -> bool {
        matches!(self, Self::Failed(RpcError::ResourceNotFound { .. }))
            || self.message().is_some_and(missing_file::mentions_missing_file)
    }

    /// Returns how certain it is that no file exists at a path, for callers that would create it: the error may be
    /// about another file.
    #[must_use]
    pub fn file_absence(&self, path: &str) -> FileAbsence {
        if let Self::Failed(RpcError::ResourceNotFound { .. }) = self {
            return FileAbsence::Certain;
        }
        let Some(text) = self.message() else { return FileAbsence::NotIndicated };
        match missing_file::system_phrase_position(text) {
            Some(PhrasePosition::Start) => FileAbsence::Certain,
            Some(PhrasePosition::Within) if text.contains(path) => FileAbsence::Certain,
            Some(PhrasePosition::Within) => FileAbsence::Possible,
            None => FileAbsence::NotIndicated,
        }
    }

    /// Returns the backend's own message, if it sent one.
    fn message(&self) -> Option<&str> {
        match self {
            Self::Failed(RpcError::Internal { reason } | RpcError::InvalidParams { reason }) => Some(reason),
            Self::Failed(RpcError::Other { message, .. }) => Some(message),
            _ => None,
        }
    }

    /// Describes the error for the model: the problem, and the backend.
    #[must_use]
    pub fn describe_for_model(&self, backend: Backend, subject: &str) -> String {
        let backend_name = backend.display_name();
        match self {
            error if error.is_file_missing() => format!("{subject} does not exist ({backend_name} says so)"),
            Self::Failed(RpcError::OutsideRoots { .. }) => {
                format!("{subject} is outside the directories of this session ({backend_name} says so)")
            }
            Self::Failed(RpcError::Denied { reason }) => format!("{subject}: permission denied: {reason}"),
            Self::Failed(RpcError::UnknownMethod { .. } | RpcError::NotAdvertised { .. }) => {
                format!("{subject}: {backend_name} cannot do this: {self}")
            }
            Self::Failed(RpcError::Cancelled) => format!("{subject}: {backend_name} cancelled it"),
            Self::Failed(failure) => format!("{subject}: {backend_name} says: {failure}"),
            error => format!("{subject}: {error}"),
        }
    }
}

impl From<CapabilityError> for RuntimeError {
    fn from(missing: CapabilityError) -> Self {
        Self::Failed(missing.into())
    }
}

impl From<RuntimeError> for RpcError {
    fn from(error: RuntimeError) -> Self {
        match error {
            RuntimeError::Failed(failure) => failure,
            error => Self::Internal { reason: error.to_string() },
        }
    }
}
