//! The audit log's hash chain: entries, the hash that links each to its predecessor, and verification.
//!
//! A log is JSON lines in one or more files. Each line contains a sequence number (`seq`) and the hash of the previous
//! line (`prev`), and ends with the hash of its own bytes. Changing, removing, adding or moving a line breaks the chain
//! unless every later line is rehashed. Rehashing is detected by the [`AuditAnchor`], the number and hash of the newest
//! line, which is stored elsewhere. An attacker who can also write the anchor can forge a log that verifies: the hashes
//! are not keyed.

mod chain;
mod fold;
mod line_format;
mod report;
mod verify;

use std::borrow::Cow;
use std::fmt;

use crate::operation;
use bowline_protocol::terminal;
use bowline_text::hash::ContentHash;
use bowline_text::time::Timestamp;

pub use chain::{AuditAnchor, ChainHead, ChainLink, ParseAnchorError};
pub use fold::FoldedEntries;
pub use report::{AuditDefect, AuditFinding, LogPosition, RepairNote, VerificationReport};
pub use verify::AuditVerifier;

/// The maximum length of a text, in bytes before JSON escaping. Longer texts are truncated and marked.
pub const MAX_TEXT_BYTES: usize = 4096;
/// The maximum length of the name of a session, a call or a variable.
pub const MAX_NAME_BYTES: usize = 256;
/// The maximum number of environment variable names kept per command.
pub const MAX_ENV_NAMES: usize = 64;
/// The maximum length of a line, with its newline. Sealed lines never exceed it; a longer line is unreadable.
pub const MAX_LINE_BYTES: usize = 256 * 1024;
/// The maximum number of findings reported; the rest are only counted.
pub const MAX_FINDINGS: usize = 100;

/// One requested action, with its decision and its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// When it was decided or carried out.
    pub at: Timestamp,
    /// The remote user for whom the agent works, if a server started it.
    pub principal: Option<String>,
    /// The session.
    pub session: Option<String>,
    /// The turn, counted from 1 within the session.
    pub turn: Option<u64>,
    /// The tool call.
    pub call: Option<String>,
    /// The requested action.
    pub action: AuditAction,
    /// Its subject.
    pub subject: AuditSubject,
    /// The decision or the outcome.
    pub decision: AuditDecision,
    /// The source of the decision.
    pub decided_by: DecisionSource,
    /// The reason, or the error.
    pub reason: Option<String>,
    /// How long it took, in microseconds.
    pub latency_us: Option<u64>,
    /// The content before.
    pub before: Option<ContentHash>,
    /// The content after.
    pub after: Option<ContentHash>,
    /// The number of bytes read, written or output.
    pub bytes: Option<u64>,
    /// The exit code of a command, or the name of the signal that ended it.
    pub exit: Option<String>,
}

impl AuditEntry {
    /// Returns an entry with the decision *allowed*, no decision source and no other fields.
    #[must_use]
    pub fn new(at: Timestamp, action: AuditAction) -> Self {
        Self {
            at,
            principal: None,
            session: None,
            turn: None,
            call: None,
            action,
            subject: AuditSubject::None,
            decision: AuditDecision::Allowed,
            decided_by: DecisionSource::NotDecided,
            reason: None,
            latency_us: None,
            before: None,
            after: None,
            bytes: None,
            exit: None,
        }
    }
}

/// An entry as stored in a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRecord {
    /// Its number.
    pub seq: u64,
    /// Its content. Truncated and redacted texts stay as they were written.
    pub entry: AuditEntry,
}

impl AuditRecord {
    /// Parses a line without verifying it; that is the task of the [`AuditVerifier`]. Unknown fields of later versions
    /// are ignored.
    #[must_use]
    pub fn parse(line: &[u8]) -> Option<Self> {
        line_format::decode_line(line)
    }
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$each:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$each])* $variant,)*
            /// A value written by a later version.
            Other(String),
        }

        impl $name {
            /// Returns its word in the log.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $word,)*
                    Self::Other(word) => word,
                }
            }
        }

        impl From<&str> for $name {
            fn from(word: &str) -> Self {
                match word {
                    $($word => Self::$variant,)*
                    other => Self::Other(other.to_owned()),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// The requested action.
    AuditAction {
        /// A file was read.
        Read = "fs/read",
        /// A file was written.
        Write = "fs/write",
        /// A file was removed.
        Delete = "fs/delete",
        /// A resource was fetched.
        Fetch = "fetch",
        /// A command was started.
        TerminalCreate = "terminal/create",
        /// A command was killed.
        TerminalKill = "terminal/kill",
        /// A terminal was released.
        TerminalRelease = "terminal/release",
        /// A command ended.
        TerminalExit = "terminal/exit",
        /// An agent asked for permission.
        Permission = "permission",
        /// An agent asked the user a question.
        Elicitation = "elicitation",
        /// Changes were undone.
        Undo = "undo",
        /// A change was observed on disk.
        Observed = "observed",
        /// A session began.
        SessionStart = "session/start",
        /// A session ended.
        SessionEnd = "session/end",
        /// A turn began.
        TurnStart = "turn/start",
        /// A turn ended.
        TurnEnd = "turn/end",
        /// The log was found in an unexpected state and continued.
        Repair = "log/repair",
    }
}

words! {
    /// The decision or the outcome.
    AuditDecision {
        /// The action was allowed.
        Allowed = "allowed",
        /// The action was denied.
        Denied = "denied",
        /// The action was cancelled before it was decided or carried out.
        Cancelled = "cancelled",
        /// The action was allowed and failed.
        Failed = "failed",
    }
}

/// The source of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DecisionSource {
    /// A rule, as its source text.
    Rule(String),
    /// A preset, by name.
    Preset(String),
    /// A person, by a key press or a button.
    Person,
    /// The user, through a command or a prompt: no approval was needed, and it may have been a script.
    User,
    /// The client that the agent asked; only the client knows whether a person answered.
    Client,
    /// A user of a server, by name, in a session of another one.
    Principal(String),
    /// An earlier approval.
    Grant,
    /// No decision was needed, or there was no approver to make it. Stored as `nobody`.
    NotDecided,
    /// A source written by a later version.
    Other(String),
}

impl DecisionSource {
    fn to_text(&self) -> Cow<'_, str> {
        match self {
            DecisionSource::Rule(text) => format!("rule: {text}").into(),
            DecisionSource::Preset(name) => format!("preset: {name}").into(),
            DecisionSource::Person => "person".into(),
            DecisionSource::User => "user".into(),
            DecisionSource::Client => "client".into(),
            DecisionSource::Principal(name) => format!("principal: {name}").into(),
            DecisionSource::Grant => "grant".into(),
            DecisionSource::NotDecided => "nobody".into(),
            DecisionSource::Other(text) => text.as_str().into(),
        }
    }

    fn parse(text: &str) -> Self {
        match text {
            "person" => Self::Person,
            "user" => Self::User,
            "client" => Self::Client,
            "grant" => Self::Grant,
            "nobody" => Self::NotDecided,
            other => match other.split_once(": ") {
                Some(("rule", text)) => Self::Rule(text.to_owned()),
                Some(("preset", name)) => Self::Preset(name.to_owned()),
                Some(("principal", name)) => Self::Principal(name.to_owned()),
                _ => Self::Other(other.to_owned()),
            },
        }
    }
}

impl fmt::Display for DecisionSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text())
    }
}

/// The subject of an action.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AuditSubject {
    /// None.
    None,
    /// A file.
    Path {
        /// The path in the agent's request.
        requested: String,
        /// The resolved path, if it differs.
        resolved: Option<String>,
    },
    /// A command.
    Command {
        /// The program with its arguments, quoted where needed, or the shell command line.
        line: String,
        /// Its working directory.
        cwd: String,
        /// The names of its additional environment variables; never their values.
        env: Vec<String>,
    },
    /// A URL.
    Url(String),
    /// Anything else, as text.
    Text(String),
}

impl From<&operation::OperationTarget> for AuditSubject {
    fn from(target: &operation::OperationTarget) -> Self {
        match target {
            operation::OperationTarget::File { requested, resolved, .. } => Self::Path {
                requested: requested.clone(),
                resolved: (resolved != requested).then(|| resolved.clone()),
            },
            operation::OperationTarget::OutsideRoots { requested } => {
                Self::Path { requested: requested.clone(), resolved: None }
            }
            operation::OperationTarget::Command(command) => Self::Command {
                line: terminal::format_invocation(&command.invocation).into_owned(),
                cwd: command.cwd.clone(),
                env: command.env.iter().map(|(name, _)| name.clone()).collect(),
            },
            operation::OperationTarget::Url(url) => Self::Url(url.clone()),
            operation::OperationTarget::Described(text) => Self::Text(text.clone()),
        }
    }
}

#[cfg(test)]
mod tests;
