//! Why a runtime did not do what it was asked, told apart by what can be done about it.

use std::time::Duration;

use bowline_state::capabilities::NotAdvertised;
use bowline_state::failure::missing_file::{self, Position};
use bowline_state::failure::{self, Failure};
use bowline_wire::CallError;

use super::Server;

/// Why a runtime did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Whoever serves it says why.
    #[error(transparent)]
    Said(#[from] Failure),
    /// The client is gone. What it was doing may have been done or not.
    #[error("the connection to the editor is closed")]
    Gone,
    /// The client did not answer. What it was doing may have been done or not.
    #[error("the editor did not answer {method} within {} s", .after.as_secs_f32())]
    TimedOut {
        /// What it was asked.
        method: &'static str,
        /// How long it was waited for.
        after: Duration,
    },
    /// The answer makes no sense. What was asked may have been done or not.
    #[error("the editor's answer to {method} cannot be understood: {why}")]
    Unreadable {
        /// What it was asked.
        method: &'static str,
        /// What is wrong with the answer.
        why: String,
    },
    /// The engine of this machine cannot be used.
    #[error("files and commands of this machine cannot be used: {0}")]
    Unusable(String),
}

/// How sure it is that there is no file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// There is none.
    Surely,
    /// It sounds so: somebody else has to say the same.
    Perhaps,
    /// Something else is the matter.
    No,
}

impl Fault {
    /// Returns why a call to the client has no result.
    #[must_use]
    pub fn of(method: &'static str, error: CallError) -> Self {
        match error {
            CallError::Refused(error) => Self::Said(match Failure::from_error(&error) {
                // A client has nothing that an agent could log in to; many say -32000 of anything.
                Failure::AuthRequired { .. } => Failure::Internal { reason: failure::error_text(&error) },
                failure => failure,
            }),
            CallError::NotAdvertised(missing) => Self::Said(missing.into()),
            CallError::Closed => Self::Gone,
            CallError::Unreadable { reason, .. } => Self::Unreadable { method, why: reason },
            error @ (CallError::Version(_)
            | CallError::NotSent(_)
            | CallError::Params(_)
            | CallError::Jammed) => Self::Said(Failure::Internal { reason: error.to_string() }),
        }
    }

    /// Returns what an answer without content means, by a client that gives it wherever it cannot open a file: that there may
    /// be no file, which the disk has to confirm ([`Missing::Perhaps`]).
    #[must_use]
    pub fn no_content() -> Self {
        let reason = "the answer has no content: no such file, or the editor cannot open it".to_owned();
        Self::Said(Failure::Internal { reason })
    }

    /// Says whether what was asked may have been done all the same.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Gone | Self::TimedOut { .. } | Self::Unreadable { .. })
    }

    /// Says whether there is no such file, for whoever only wanted to know it. Clients have many ways to say it.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Said(Failure::ResourceNotFound { .. }))
            || self.text().is_some_and(missing_file::says_missing)
    }

    /// Says how sure it is that there is no file at a path, for whoever would create it: something else may be what was not
    /// found.
    #[must_use]
    pub fn missing(&self, path: &str) -> Missing {
        if let Self::Said(Failure::ResourceNotFound { .. }) = self {
            return Missing::Surely;
        }
        let Some(text) = self.text() else { return Missing::No };
        match missing_file::system_phrase_position(text) {
            Some(Position::Start) => Missing::Surely,
            Some(Position::Within) if text.contains(path) => Missing::Surely,
            Some(Position::Within) => Missing::Perhaps,
            None => Missing::No,
        }
    }

    /// Returns what was said in words of one's own.
    fn text(&self) -> Option<&str> {
        match self {
            Self::Said(Failure::Internal { reason } | Failure::InvalidParams { reason }) => Some(reason),
            Self::Said(Failure::Other { message, .. }) => Some(message),
            _ => None,
        }
    }

    /// Returns what a model is told: what is the matter, and with whom.
    #[must_use]
    pub fn told(&self, by: Server, subject: &str) -> String {
        let who = by.name();
        match self {
            fault if fault.is_missing() => format!("{subject} does not exist ({who} says so)"),
            Self::Said(Failure::OutsideRoots { .. }) => {
                format!("{subject} is outside the directories of this session ({who} says so)")
            }
            Self::Said(Failure::Denied { why }) => format!("{subject}: permission denied: {why}"),
            Self::Said(Failure::UnknownMethod { .. } | Failure::NotAdvertised { .. }) => {
                format!("{subject}: {who} cannot do this: {self}")
            }
            Self::Said(Failure::Cancelled) => format!("{subject}: {who} cancelled it"),
            Self::Said(failure) => format!("{subject}: {who} says: {failure}"),
            fault => format!("{subject}: {fault}"),
        }
    }
}

impl From<NotAdvertised> for Fault {
    fn from(missing: NotAdvertised) -> Self {
        Self::Said(missing.into())
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Said(failure) => failure,
            fault => Self::Internal { reason: fault.to_string() },
        }
    }
}
