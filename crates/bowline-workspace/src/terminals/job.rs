//! What a host and the supervisor of a terminal tell each other: one JSON text per line.

use std::path::PathBuf;
use std::time::Duration;

use bowline_state::operation::Invocation;
use bowline_state::terminal::{Exit, signal_name};
use serde::{Deserialize, Serialize};

/// The longest line between the two, in bytes: what a command and its environment may be at most, as JSON.
pub(super) const MAX_LINE: u64 = 16 * 1024 * 1024;

/// What a host says first: whoever reads it is to start a supervisor, and to clean up should that be killed.
pub(super) const KEEP: &str = "keep\n";

/// What asks a supervisor to end the command and everything it started. The end of the channel asks for the same.
pub(super) const KILL: &str = "kill\n";

/// How much a command and everything it starts may take.
///
/// What is none is not limited here. Limits that a process has of itself hold for every process of the command alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimits {
    /// How many processes there may be at the same time. More than these end the command.
    pub processes: Option<u64>,
    /// How many bytes of memory all processes may have in use together. More than these end the command.
    pub memory: Option<u64>,
    /// How many bytes of private memory a process may have: asking for more fails.
    pub memory_each: Option<u64>,
    /// How many files a process may have open.
    pub open_files: Option<u64>,
    /// How many processes the user may have in all, whoever started them.
    pub user_processes: Option<u64>,
}

impl Default for ResourceLimits {
    fn default() -> Self {
        let (memory, memory_each, user_processes) = (None, None, None);
        Self { processes: Some(4096), memory, memory_each, open_files: Some(65_536), user_processes }
    }
}

/// What a command may reach, where the kernel has to keep it in (Linux).
///
/// It may read and run whatever its user can. It may create, write, rename and remove only below `writable`, in a
/// directory for temporary files of its own, and on `/dev/null` and its terminal. Modes, owners and times of other
/// files of its user are not protected by this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// The directories and files that it may change.
    pub writable: Vec<PathBuf>,
    /// Whether it may use the network. If not, it can open no sockets at all but pairs of them.
    pub network: bool,
}

/// The size of a pseudo-terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// How many columns.
    pub columns: u16,
    /// How many rows.
    pub rows: u16,
}

impl Default for Size {
    fn default() -> Self {
        Self { columns: 80, rows: 24 }
    }
}

/// What a supervisor is to run.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Job {
    /// The program and its arguments.
    pub(super) argv: Vec<String>,
    /// The whole environment.
    pub(super) env: Vec<(String, String)>,
    pub(super) pty: Option<Size>,
    /// Whether its standard output is a socket that is its standard input as well.
    pub(super) talks: bool,
    /// Where the command's standard input can be opened, if that is not its output as well. Some programs take a socket that
    /// is both for closed as soon as something comes in.
    pub(super) input: Option<String>,
    pub(super) limits: ResourceLimits,
    pub(super) confinement: Option<Confinement>,
    /// A directory for temporary files that is made for the command, and removed after it.
    pub(super) scratch: Option<PathBuf>,
    pub(super) grace: Duration,
}

/// What a supervisor says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Report {
    /// The command runs, under the supervisor with this process id.
    Started(i32),
    /// It does not, and the supervisor ends.
    Failed(Failed),
    /// The command itself ended; others that it started may run.
    Exited(Ended),
    /// The command took too much, so it is being ended.
    Exceeded(String),
    /// Nothing of it runs any more, and the supervisor ends.
    Gone,
}

/// Why a command was not started.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Failed {
    /// There is no such program, or what it is to be run by.
    NotFound,
    /// It may not be executed.
    Denied,
    /// It cannot be confined.
    Unconfinable(String),
    /// The system refuses.
    System(String),
}

/// How a process ended.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ended {
    Code(i32),
    Signal(i32),
}

impl From<Ended> for Exit {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Code(code) => Self::Code(code),
            Ended::Signal(number) => Self::Signal(signal_name(number)),
        }
    }
}

/// Returns the program and its arguments.
pub(super) fn argv(invocation: &Invocation, shell: &str) -> Vec<String> {
    match invocation {
        Invocation::Argv(argv) => argv.clone(),
        Invocation::Shell(line) => vec![shell.to_owned(), "-c".to_owned(), line.clone()],
    }
}
