//! The styles of saving programs, and the programs of Bowline through which the agent works.

use clap::ValueEnum;

/// How a program saves a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum SaveStyle {
    /// Overwrites the file from its beginning, then cuts it to its new length
    InPlace,
    /// Empties the file when it opens it, and writes later, in pieces (VS Code, `fs.writeFile`, shell `>`)
    Truncate,
    /// Writes a new file beside it, and renames that over it
    Rename,
    /// Renames the file to a backup, and creates it anew (Vim, Emacs)
    Backup,
    /// Opens the file to append, writes a line and closes it (shell `>>`)
    Append,
    /// Appends through a handle that it opened once (a logger)
    Logger,
    /// Overwrites the file through a handle that it opened once
    Held,
}

impl SaveStyle {
    /// Returns the name on the command line, in the table and in each line that such a program saves.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::InPlace => "in-place",
            Self::Truncate => "truncate",
            Self::Rename => "rename",
            Self::Backup => "backup",
            Self::Append => "append",
            Self::Logger => "logger",
            Self::Held => "held",
        }
    }

    /// Returns the name of the file that a program of this style works on.
    #[must_use]
    pub fn file_name(self) -> String {
        format!("{}.txt", self.name())
    }

    /// Returns the prefix of every line of such a program.
    pub(super) fn line_prefix(self, seed: u64) -> String {
        format!("{}-{seed}-", self.name())
    }

    /// Returns whether the program only adds lines and never reads the file.
    pub(super) fn only_appends(self) -> bool {
        matches!(self, Self::Append | Self::Logger)
    }
}

/// Returns whether a line was written by a saving program, of any style and seed.
pub(super) fn is_user_line(line: &str) -> bool {
    SaveStyle::value_variants()
        .iter()
        .any(|style| line.strip_prefix(style.name()).is_some_and(|rest| rest.starts_with('-')))
}

/// How the agent reaches the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum EntryPoint {
    /// The engine, in a process of its own
    Engine,
    /// `bowline run`, with an agent that reads and writes over ACP
    Host,
    /// `bowline mcp`, with a client that calls its tools
    Mcp,
    /// `bowline proxy`, with an agent that reads and writes through the editor
    Proxy,
    /// `bowline proxy --route-writes`, with an agent that writes to the disk itself
    Route,
}

impl EntryPoint {
    /// Returns the name on the command line and in the table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Host => "host",
            Self::Mcp => "mcp",
            Self::Proxy => "proxy",
            Self::Route => "route",
        }
    }

    /// Returns whether writes come from the editor or the agent itself, which Bowline cannot make atomic. A lock then
    /// excludes the saving programs, so that every loss is Bowline's.
    pub(super) fn needs_lock(self) -> bool {
        matches!(self, Self::Proxy | Self::Route)
    }
}
