//! What a command's terminal holds: the tail of its output as text, and how the command ended.
//!
//! Also what may be asked of one: how long a command and its environment may be, how much output is kept, and whether a
//! `command` is a program or a line for a shell.

use agent_client_protocol_schema::v1::TerminalExitStatus;

use crate::operation::Invocation;

pub mod environment;
pub mod output;
mod signals;

pub use environment::environment;
pub use output::Output;
pub use signals::signal_name;

/// The longest command or argument, in bytes: Linux takes no longer one.
pub const MAX_ARGUMENT: usize = 128 * 1024 - 1;

/// As many arguments a command may have.
pub const MAX_ARGUMENTS: usize = 16 * 1024;

/// As many bytes all arguments of a command may have together.
pub const MAX_ARGUMENT_BYTES: usize = 1024 * 1024;

/// As many variables a command's environment may have.
pub const MAX_VARIABLES: usize = 1024;

/// As many bytes the variables may have together, names and values.
pub const MAX_VARIABLE_BYTES: usize = 512 * 1024;

/// A command as an agent asks for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// The program, or a shell line if there are no arguments.
    pub command: String,
    /// The arguments.
    pub args: Vec<String>,
    /// Variables to set, in the order given.
    pub env: Vec<(String, String)>,
    /// Where to run it; the session's directory if nothing is said.
    pub cwd: Option<String>,
    /// How many bytes of output to keep.
    pub output_limit: Option<u64>,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exit {
    /// It ended by itself, with this code.
    Code(i32),
    /// A signal ended it: its name, as in `SIGKILL`.
    Signal(String),
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "{code}"),
            Self::Signal(name) => f.write_str(name),
        }
    }
}

impl From<&Exit> for TerminalExitStatus {
    /// Exactly one of code and signal is set: some agents take neither for success.
    fn from(exit: &Exit) -> Self {
        match exit {
            Exit::Code(code) => Self::new().exit_code(u32::try_from(*code).unwrap_or(u32::MAX)),
            Exit::Signal(name) => Self::new().signal(name.clone()),
        }
    }
}

/// How much a session's terminals may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How many bytes of output are kept if the request does not say.
    pub output_default: u64,
    /// How many bytes of output are kept at most, whatever the request says.
    pub output_max: u64,
    /// How many terminals a session has at the same time. Of those whose commands have ended and that were not released,
    /// the oldest makes room for a new one.
    pub terminals: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { output_default: 1024 * 1024, output_max: 16 * 1024 * 1024, terminals: 64 }
    }
}

impl Limits {
    /// Returns how many bytes of output to keep.
    #[must_use]
    pub fn output(&self, asked: Option<u64>) -> usize {
        usize::try_from(asked.unwrap_or(self.output_default).min(self.output_max)).unwrap_or(usize::MAX)
    }
}

/// Why a command cannot be run as it is given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadCommand {
    /// There is none.
    #[error("the command is empty: name a program, or give a shell line")]
    Empty,
    /// It holds a NUL, which no program can be given.
    #[error("the command or an argument holds a NUL character: leave it out")]
    Nul,
    /// The command or an argument is too long.
    #[error("the command or an argument has {bytes} bytes, at most {MAX_ARGUMENT} can be passed: use a file")]
    TooLong {
        /// How long.
        bytes: usize,
    },
    /// There are too many arguments, or they are too long together.
    #[error(
        "{count} arguments with {bytes} bytes are too many, the limit is {MAX_ARGUMENTS} with {MAX_ARGUMENT_BYTES} \
         bytes: use a file"
    )]
    TooMany {
        /// How many.
        count: usize,
        /// How long they are together.
        bytes: usize,
    },
}

/// Says how a request's command is run.
///
/// With arguments it is a program, and everything is passed on as it is. Many agents send a whole shell line and no
/// arguments: what only a shell understands goes to a shell.
///
/// # Errors
/// Returns why it cannot be run at all.
pub fn invocation(command: &str, args: &[String]) -> Result<Invocation, BadCommand> {
    if command.trim().is_empty() {
        return Err(BadCommand::Empty);
    }
    let words = || std::iter::once(command).chain(args.iter().map(String::as_str));
    if words().any(|word| word.contains('\0')) {
        return Err(BadCommand::Nul);
    }
    if let Some(long) = words().find(|word| word.len() > MAX_ARGUMENT) {
        return Err(BadCommand::TooLong { bytes: long.len() });
    }
    let bytes = words().map(str::len).sum();
    if args.len() > MAX_ARGUMENTS || bytes > MAX_ARGUMENT_BYTES {
        return Err(BadCommand::TooMany { count: args.len(), bytes });
    }
    if args.is_empty() && is_shell_line(command) {
        return Ok(Invocation::Shell(command.to_owned()));
    }
    Ok(Invocation::Argv(words().map(str::to_owned).collect()))
}

/// Returns whether the text says more than the name of a program.
fn is_shell_line(command: &str) -> bool {
    let special = |character: char| character.is_whitespace() || "|&;<>()$`\\\"'*?=".contains(character);
    command.starts_with(['~', '#']) || command.contains(special)
}

#[cfg(test)]
mod tests;
