//! What an agent wants done, as rules judge it and as a person is asked about it.

use crate::paths::{Access, Protection};

/// What is done to a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A file's text is read, or a directory's names.
    Read,
    /// A file is created or changed.
    Write,
    /// A file is removed.
    Delete,
    /// A command is run.
    Execute,
    /// Something is fetched from the network.
    Fetch,
}

impl Kind {
    /// Every kind, in the order that help and settings list them.
    pub const ALL: [Self; 5] = [Self::Read, Self::Write, Self::Delete, Self::Execute, Self::Fetch];

    /// Returns the word for it, as settings and logs have it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Delete => "delete",
            Self::Execute => "execute",
            Self::Fetch => "fetch",
        }
    }
}

/// One thing that an agent wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// What is done.
    pub kind: Kind,
    /// To what.
    pub target: Target,
}

/// What an operation is done to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A file or directory in a root.
    File {
        /// As the agent names it.
        asked: String,
        /// Its own name, with no link on the way.
        resolved: String,
        /// Why a person should be asked first, whatever the name is.
        protection: Option<Protection>,
    },
    /// A file that lies outside every root, or cannot be looked at: only its name is known.
    Elsewhere {
        /// As the agent names it.
        asked: String,
    },
    /// A command.
    Command(Command),
    /// An address.
    Url(String),
    /// Something that the agent does by itself and describes in its own words.
    Described(String),
}

/// A command to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The program with its arguments, or a line for a shell.
    pub invocation: Invocation,
    /// Where it runs: the directory's own name.
    pub cwd: String,
    /// What it finds in its environment beside what every command does, in the order given.
    pub env: Vec<(String, String)>,
    /// Where the files and directories lead that its shell opens or changes to, as [`targets`](crate::policy::targets) names
    /// them. What is not here is taken for something that nobody looked at. It is no part of what the command is.
    pub reaches: Vec<Reached>,
}

/// A file or directory that a shell line names, looked at before the line is judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reached {
    /// Its absolute name, as the text has it.
    pub asked: String,
    /// What for.
    pub access: Access,
    /// Where it leads.
    pub leads: Leads,
}

/// Where a name leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leads {
    /// Into a root.
    Inside {
        /// The file's own name, with no link on the way.
        resolved: String,
        /// Why a person should be asked first, whatever the name is.
        protection: Option<Protection>,
    },
    /// Into a root that may only be read, while it would be written.
    ReadOnly,
    /// Out of every root, or nobody can say.
    Elsewhere,
}

/// How a command is given.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Invocation {
    /// A program and its arguments, passed on as they are. Never empty.
    Argv(Vec<String>),
    /// A line that a shell reads.
    Shell(String),
}
