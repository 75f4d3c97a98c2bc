//! How the program ends when something did not work: one line for a person, one number for a script.

use std::process::ExitCode;

use crate::client::login::LoginRequired;
use crate::records::showing::{safe_lines, write_stderr};

/// Why a command did not do what it was told.
#[derive(Debug)]
pub(crate) enum Ending {
    /// Something failed: 1.
    Failed(anyhow::Error),
    /// The agent wants its user to log in first: 1.
    LoginRequired(Box<LoginRequired>),
    /// The command line says something that makes no sense: 2.
    Usage(String),
    /// It took longer than was allowed: 3.
    TimedOut(String),
    /// There is no such session: 4.
    NoSession(String),
    /// What the agent wanted to do was denied, and that was the end of it: 5.
    Denied(String),
    /// The person stopped it: 130.
    Interrupted,
    /// A signal of this number ended it: 128 and that, as 143 for SIGTERM.
    Terminated(u8),
}

impl Ending {
    /// Returns the number that the program ends with.
    pub(crate) fn code(&self) -> u8 {
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

    /// Says on stderr why, and returns how to end.
    pub(crate) fn exit(&self) -> ExitCode {
        write_stderr(&format!("bowline: {}\n", self.told()));
        ExitCode::from(self.code())
    }

    /// Returns what is said of it. Names of files and words of agents may be anywhere in it, and none can steer a terminal.
    fn told(&self) -> String {
        let text = match self {
            Self::Failed(error) => format!("{error:#}"),
            Self::LoginRequired(wanted) => wanted.to_string(),
            Self::Usage(text) | Self::TimedOut(text) | Self::NoSession(text) | Self::Denied(text) => {
                text.clone()
            }
            Self::Interrupted => "interrupted".to_owned(),
            Self::Terminated(_) => "terminated".to_owned(),
        };
        safe_lines(&text).trim_end().to_owned()
    }
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.told())
    }
}

impl From<anyhow::Error> for Ending {
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
        let endings = [
            Ending::Failed(anyhow::anyhow!("{text}")),
            Ending::Usage(text.to_owned()),
            Ending::TimedOut(text.to_owned()),
            Ending::NoSession(text.to_owned()),
            Ending::Denied(text.to_owned()),
        ];
        for ending in endings {
            assert_eq!(ending.told(), "a\\u{1b}[31m\\u{7}b\n  c");
        }
    }
}
