//! The chain of the audit log: entries, the hash that ties each to the one before, and what verifying finds.
//!
//! A log is JSON lines in one or several files. Each line has the next number (`seq`), the hash of the line before
//! (`prev`), and ends in the hash of its own bytes. Who changes, removes, adds or moves a line breaks the chain, unless
//! all that follows is hashed anew. That is found by the [`Anchor`], the number and hash of the newest line, which is
//! kept elsewhere. Who can write the anchor too can make a log that verifies; nothing here is keyed.

mod chain;
mod report;
mod verify;
mod wire;

use std::borrow::Cow;
use std::fmt;

use crate::changes::{ContentHash, Moment};
use crate::{display, operation};

pub use chain::{Anchor, Chain, Frame, NotAnAnchor};
pub use report::{Fault, Finding, Note, Place, Report};
pub use verify::Verifier;

/// The longest text of an entry, in bytes before JSON escapes it. Longer ones are cut and marked.
pub const MAX_TEXT_BYTES: usize = 4096;
/// The longest name of a session, a call or a variable.
pub const MAX_NAME_BYTES: usize = 256;
/// So many names of environment variables of a command are kept.
pub const MAX_ENV_NAMES: usize = 64;
/// The longest line, with its end. None that is sealed is longer; one that is read and longer is unreadable.
pub const MAX_LINE_BYTES: usize = 256 * 1024;
/// So many findings are reported; more are counted.
pub const MAX_FINDINGS: usize = 100;

/// One thing that was asked for, with what was decided and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// When it was decided or done.
    pub at: Moment,
    /// The session.
    pub session: Option<String>,
    /// The turn, counted from 1 within the session.
    pub turn: Option<u64>,
    /// The tool call.
    pub call: Option<String>,
    /// What was asked for.
    pub action: Action,
    /// To what.
    pub subject: Subject,
    /// What was decided, or became of it.
    pub decision: Decision,
    /// By whom.
    pub by: By,
    /// Why, or what went wrong.
    pub reason: Option<String>,
    /// How long it took, in microseconds.
    pub latency_us: Option<u64>,
    /// The content before.
    pub before: Option<ContentHash>,
    /// The content after.
    pub after: Option<ContentHash>,
    /// How many bytes were read, written or put out.
    pub bytes: Option<u64>,
    /// How a command ended: its code or the name of a signal.
    pub exit: Option<String>,
}

impl Entry {
    /// Returns an entry that was allowed by nobody in particular, with nothing else known.
    #[must_use]
    pub fn new(at: Moment, action: Action) -> Self {
        Self {
            at,
            session: None,
            turn: None,
            call: None,
            action,
            subject: Subject::None,
            decision: Decision::Allowed,
            by: By::Nobody,
            reason: None,
            latency_us: None,
            before: None,
            after: None,
            bytes: None,
            exit: None,
        }
    }
}

/// An entry as it stands in a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its number.
    pub seq: u64,
    /// What it says. Texts that were cut or redacted are as they were written.
    pub entry: Entry,
}

impl Record {
    /// Reads a line. Whether it is the line that was written is for the [`Verifier`] to say. Fields of later versions
    /// are passed over.
    #[must_use]
    pub fn read(line: &[u8]) -> Option<Self> {
        wire::read(line)
    }
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$each:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$each])* $variant,)*
            /// One that a later version wrote.
            Other(String),
        }

        impl $name {
            /// Returns the word for it in the log.
            #[must_use]
            pub fn word(&self) -> &str {
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
                f.write_str(self.word())
            }
        }
    };
}

words! {
    /// What was asked for.
    Action {
        /// A file was read.
        Read = "fs/read",
        /// A file was written.
        Write = "fs/write",
        /// A file was removed.
        Delete = "fs/delete",
        /// Something was fetched.
        Fetch = "fetch",
        /// A command was started.
        TerminalCreate = "terminal/create",
        /// A command was killed.
        TerminalKill = "terminal/kill",
        /// A terminal was given up.
        TerminalRelease = "terminal/release",
        /// A command ended.
        TerminalExit = "terminal/exit",
        /// An agent asked for permission.
        Permission = "permission",
        /// An agent asked the person something.
        Elicitation = "elicitation",
        /// Changes were taken back.
        Undo = "undo",
        /// A change was found on disk.
        Observed = "observed",
        /// A session began.
        SessionStart = "session/start",
        /// A session ended.
        SessionEnd = "session/end",
        /// A turn began.
        TurnStart = "turn/start",
        /// A turn ended.
        TurnEnd = "turn/end",
        /// The log was found in another state than it was left in, and goes on.
        Repair = "log/repair",
    }
}

words! {
    /// What was decided, or became of it.
    Decision {
        /// It may be done.
        Allowed = "allowed",
        /// It may not.
        Denied = "denied",
        /// It was given up before it was decided or done.
        Cancelled = "cancelled",
        /// It was allowed and did not work.
        Failed = "failed",
    }
}

/// Who decided.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum By {
    /// A rule, in its own text.
    Rule(String),
    /// A preset, by its name.
    Preset(String),
    /// A person, by a key that was pressed or a button.
    Person,
    /// The user, by a command or a prompt: there was nothing to approve, and it may have been a script.
    User,
    /// The client that an agent asked; whether a person answered, the client knows.
    Client,
    /// An approval that was given before.
    Grant,
    /// Nobody was there to decide, or there was nothing to decide.
    Nobody,
    /// One that a later version wrote.
    Other(String),
}

impl By {
    fn written(&self) -> Cow<'_, str> {
        match self {
            By::Rule(text) => format!("rule: {text}").into(),
            By::Preset(name) => format!("preset: {name}").into(),
            By::Person => "person".into(),
            By::User => "user".into(),
            By::Client => "client".into(),
            By::Grant => "grant".into(),
            By::Nobody => "nobody".into(),
            By::Other(text) => text.as_str().into(),
        }
    }

    fn read(text: &str) -> Self {
        match text {
            "person" => Self::Person,
            "user" => Self::User,
            "client" => Self::Client,
            "grant" => Self::Grant,
            "nobody" => Self::Nobody,
            other => match other.split_once(": ") {
                Some(("rule", text)) => Self::Rule(text.to_owned()),
                Some(("preset", name)) => Self::Preset(name.to_owned()),
                _ => Self::Other(other.to_owned()),
            },
        }
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written())
    }
}

/// What something was done to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Subject {
    /// Nothing that has a name.
    None,
    /// A file.
    Path {
        /// As the agent names it.
        asked: String,
        /// Its own name, if that is another.
        resolved: Option<String>,
    },
    /// A command.
    Command {
        /// The program with its arguments, quoted where needed, or the line for a shell.
        line: String,
        /// Where it runs.
        cwd: String,
        /// The names of what it finds in its environment beside what every command does; never the values.
        env: Vec<String>,
    },
    /// An address.
    Url(String),
    /// Something else, in words.
    Text(String),
}

impl From<&operation::Target> for Subject {
    fn from(target: &operation::Target) -> Self {
        match target {
            operation::Target::File { asked, resolved, .. } => {
                Self::Path { asked: asked.clone(), resolved: (resolved != asked).then(|| resolved.clone()) }
            }
            operation::Target::Elsewhere { asked } => Self::Path { asked: asked.clone(), resolved: None },
            operation::Target::Command(command) => Self::Command {
                line: display::invocation(&command.invocation).into_owned(),
                cwd: command.cwd.clone(),
                env: command.env.iter().map(|(name, _)| name.clone()).collect(),
            },
            operation::Target::Url(url) => Self::Url(url.clone()),
            operation::Target::Described(text) => Self::Text(text.clone()),
        }
    }
}

#[cfg(test)]
mod tests;
