//! Operations that an agent requests, as the policy evaluates them and as a person is asked about them.

use crate::paths::{Access, Protection};
use bowline_protocol::terminal::Invocation;

/// The kind of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OperationKind {
    /// A file or a directory is read.
    Read,
    /// A file is created or changed.
    Write,
    /// A file is deleted.
    Delete,
    /// A command is run.
    Execute,
    /// A resource is fetched from the network.
    Fetch,
}

impl OperationKind {
    /// Every kind, in the order that help and settings list them.
    pub const ALL: [Self; 5] = [Self::Read, Self::Write, Self::Delete, Self::Execute, Self::Fetch];

    /// Returns its name in settings and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Delete => "delete",
            Self::Execute => "execute",
            Self::Fetch => "fetch",
        }
    }
}

/// One operation that an agent requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Its kind.
    pub kind: OperationKind,
    /// Its target.
    pub target: OperationTarget,
}

/// The target of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperationTarget {
    /// A file or directory in a root.
    File {
        /// The path in the agent's request.
        requested: String,
        /// The canonical path, without symbolic links.
        resolved: String,
        /// Why a person must be asked first, regardless of the requested name.
        protection: Option<Protection>,
    },
    /// A file outside every root, or one that cannot be examined: only its name is known.
    OutsideRoots {
        /// The path in the agent's request.
        requested: String,
    },
    /// A command.
    Command(CommandSpec),
    /// A URL.
    Url(String),
    /// An action that the agent performs itself, in its own words.
    Described(String),
}

/// A command to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandSpec {
    /// The program with its arguments, or a shell command line.
    pub invocation: Invocation,
    /// The canonical path of its working directory.
    pub cwd: String,
    /// Its additional environment variables, in the given order.
    pub env: Vec<(String, String)>,
    /// The resolved files and directories that its shell opens or changes to, as listed by
    /// [`file_targets`](crate::policy::file_targets). A path missing here counts as not examined. They are not part of
    /// the command's identity.
    pub named_paths: Vec<NamedPath>,
}

/// A file or directory named in a shell line, resolved before the line is evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedPath {
    /// Its absolute path, as in the text.
    pub requested: String,
    /// The access.
    pub access: Access,
    /// Where it leads.
    pub resolution: PathResolution,
}

/// Where a path leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathResolution {
    /// Into a root.
    InsideRoot {
        /// The canonical path of the file, without symbolic links.
        resolved: String,
        /// Why a person must be asked first, regardless of the requested name.
        protection: Option<Protection>,
    },
    /// Into a read-only root, although the access is a write.
    ReadOnlyRoot,
    /// Out of every root, or it cannot be determined.
    OutsideRoots,
}
