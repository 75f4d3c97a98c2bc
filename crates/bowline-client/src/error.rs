//! The errors of commands: one line for a person, one exit code for a script.

use std::process::ExitCode;

use crate::common::console::{escape_lines, write_stderr};
use crate::login::LoginRequired;

/// Why a command failed.
#[derive(Debug)]
pub enum CliError {
    /// Something failed: 1.
    Failed(anyhow::Error),
    /// The agent requires a login first: 1.
    LoginRequired(Box<LoginRequired>),
    /// The command line is invalid: 2.
    Usage(String),
    /// A time limit was exceeded: 3.
    TimedOut(String),
    /// The session does not exist: 4.
    NoSession(String),
    /// The agent's request was denied, which ended the turn: 5.
    Denied(String),
    /// The user interrupted it: 130.
    Interrupted,
    /// A signal of this number ended it: 128 plus the number, such as 143 for SIGTERM.
    Terminated(u8),
}

impl CliError {
    /// Returns the exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_) | Self::LoginRequired(_) => 1,
            Self::Usage(_) => 2,
            Self::TimedOut(_) => 3,
            Self::NoSession(_) => 4,
            Self::Denied(_) => 5,
            Self::Interrupted => 130,
            Self::Terminated(signal) => 128 + signal,
        }
    }

    /// Prints the error on stderr, and returns the exit code.
    pub fn report(&self) -> ExitCode {
        write_stderr(&format!("bowline: {}\n", self.message()));
        ExitCode::from(self.exit_code())
    }

    /// Returns the message. File names and agents' texts in it are escaped for terminals.
    fn message(&self) -> String {
        let text = match self {
            Self::Failed(error) => format!("{error:#}"),
            Self::LoginRequired(login) => login.to_string(),
            Self::Usage(text) | Self::TimedOut(text) | Self::NoSession(text) | Self::Denied(text) => {
                text.clone()
            }
            Self::Interrupted => "interrupted".to_owned(),
            Self::Terminated(_) => "terminated".to_owned(),
        };
        escape_lines(&text).trim_end().to_owned()
    }
}

impl std::fmt::Display for CliError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message())
    }
}

/// Returns the error of a command that failed.
pub fn failed(error: impl Into<anyhow::Error>) -> CliError {
    CliError::Failed(error.into())
}

impl From<anyhow::Error> for CliError {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_ending_steers_a_terminal() {
        let text = "a\u{1b}[31m\u{7}b\n  c";
        let errors = [
            CliError::Failed(anyhow::anyhow!("{text}")),
            CliError::Usage(text.to_owned()),
            CliError::TimedOut(text.to_owned()),
            CliError::NoSession(text.to_owned()),
            CliError::Denied(text.to_owned()),
        ];
        for error in errors {
            assert_eq!(error.message(), "a\\u{1b}[31m\\u{7}b\n  c");
        }
    }
}
