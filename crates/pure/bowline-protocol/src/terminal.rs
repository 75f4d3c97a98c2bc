//! A command's terminal: the tail of its output as text, and its exit.
//!
//! It also holds the limits on requests: the length of a command and its environment, the amount of output kept, and
//! whether a `command` is a program or a shell line.

use agent_client_protocol_schema::v1::TerminalExitStatus;

pub mod environment;
mod invocation;
mod live_output;
pub mod output;
mod signals;

pub use environment::command_environment;
pub use invocation::{Invocation, format_invocation, format_typed_command};
pub use live_output::LiveOutput;
pub use output::TerminalOutput;
pub use signals::signal_name;

/// The maximum length of a command or an argument, in bytes: the limit of Linux.
pub const MAX_ARGUMENT_LEN: usize = 128 * 1024 - 1;

/// The maximum number of arguments of a command.
pub const MAX_ARGUMENTS: usize = 16 * 1024;

/// The maximum total length of a command's arguments, in bytes.
pub const MAX_ARGUMENT_BYTES: usize = 1024 * 1024;

/// The maximum number of variables in a request.
pub const MAX_VARIABLES: usize = 1024;

/// The maximum total length of the variables, names and values, in bytes.
pub const MAX_VARIABLE_BYTES: usize = 512 * 1024;

/// An agent's request for a command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandRequest {
    /// The program, or a shell line if there are no arguments.
    pub command: String,
    /// The arguments.
    pub args: Vec<String>,
    /// Variables to set, in the order given.
    pub env: Vec<(String, String)>,
    /// The working directory; the session's directory if `None`.
    pub cwd: Option<String>,
    /// The number of bytes of output to keep.
    pub output_limit: Option<u64>,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandExit {
    /// It exited with this code.
    Code(i32),
    /// A signal terminated it: its name, such as `SIGKILL`.
    Signal(String),
}

impl std::fmt::Display for CommandExit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "{code}"),
            Self::Signal(name) => f.write_str(name),
        }
    }
}

impl From<&CommandExit> for TerminalExitStatus {
    /// Exactly one of code and signal is set: some agents read neither as success.
    fn from(exit: &CommandExit) -> Self {
        match exit {
            CommandExit::Code(code) => Self::new().exit_code(u32::try_from(*code).unwrap_or(u32::MAX)),
            CommandExit::Signal(name) => Self::new().signal(name.clone()),
        }
    }
}

/// The limits of a session's terminals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalLimits {
    /// The number of bytes of output kept if the request does not specify one.
    pub output_default: u64,
    /// The maximum number of bytes of output kept.
    pub output_max: u64,
    /// The maximum number of terminals of a session. The oldest one whose command has ended and that was not released
    /// is evicted to make room for a new one.
    pub terminals: usize,
}

impl Default for TerminalLimits {
    fn default() -> Self {
        Self { output_default: 1024 * 1024, output_max: 16 * 1024 * 1024, terminals: 64 }
    }
}

impl TerminalLimits {
    /// Returns the number of bytes of output to keep.
    #[must_use]
    pub fn output_limit(&self, requested: Option<u64>) -> usize {
        usize::try_from(requested.unwrap_or(self.output_default).min(self.output_max)).unwrap_or(usize::MAX)
    }
}

/// Why a command cannot be run as requested.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCommandError {
    /// It is empty.
    #[error("the command is empty: name a program, or give a shell line")]
    Empty,
    /// It holds a NUL, which cannot be passed to a program.
    #[error("the command or an argument holds a NUL character: leave it out")]
    ContainsNul,
    /// The command or an argument is too long.
    #[error(
        "the command or an argument has {bytes} bytes, at most {MAX_ARGUMENT_LEN} can be passed: use a file"
    )]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// There are too many arguments, or they are too long together.
    #[error(
        "{count} arguments with {bytes} bytes are too many, the limit is {MAX_ARGUMENTS} with {MAX_ARGUMENT_BYTES} \
         bytes: use a file"
    )]
    TooMany {
        /// The number of arguments.
        count: usize,
        /// Their total length.
        bytes: usize,
    },
}

/// Decides how a request's command is run.
///
/// With arguments it is a program, and everything is passed on unchanged. Many agents send a whole shell line without
/// arguments: text that only a shell understands goes to a shell.
///
/// # Errors
/// Returns why it cannot be run.
pub fn parse_invocation(command: &str, args: &[String]) -> Result<Invocation, InvalidCommandError> {
    if command.trim().is_empty() {
        return Err(InvalidCommandError::Empty);
    }
    let words = || std::iter::once(command).chain(args.iter().map(String::as_str));
    if words().any(|word| word.contains('\0')) {
        return Err(InvalidCommandError::ContainsNul);
    }
    if let Some(long) = words().find(|word| word.len() > MAX_ARGUMENT_LEN) {
        return Err(InvalidCommandError::TooLong { bytes: long.len() });
    }
    let bytes = words().map(str::len).sum();
    if args.len() > MAX_ARGUMENTS || bytes > MAX_ARGUMENT_BYTES {
        return Err(InvalidCommandError::TooMany { count: args.len(), bytes });
    }
    if args.is_empty() && is_shell_line(command) {
        return Ok(Invocation::Shell(command.to_owned()));
    }
    Ok(Invocation::Argv(words().map(str::to_owned).collect()))
}

/// Returns whether the text is more than the name of a program.
fn is_shell_line(command: &str) -> bool {
    let special = |character: char| character.is_whitespace() || "|&;<>()$`\\\"'*?=".contains(character);
    command.starts_with(['~', '#']) || command.contains(special)
}

#[cfg(test)]
mod tests;
