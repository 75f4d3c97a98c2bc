//! The terminals of a session, from any backend.

use std::future::Future;
use std::time::Duration;

use bowline_protocol::schema::v1::TerminalId;
use bowline_protocol::terminal::TerminalOutput as Cleaned;
use bowline_workspace::terminals::{CommandRequest, LocalTerminals, TerminalBackend};

use super::{Backend, ClientTerminals, CommandEnd, RuntimeError};

/// The most bytes of output accepted from a backend's terminal.
const MAX_OUTPUT_BYTES: usize = 4 << 20;

/// The terminals of a session.
#[derive(Debug, Clone)]
pub enum RuntimeTerminals {
    /// The client's.
    Client(ClientTerminals),
    /// This machine's.
    Local(LocalTerminals),
}

/// The output of a terminal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuntimeTerminalOutput {
    /// The text, without control sequences.
    pub text: String,
    /// Whether the output was truncated.
    pub truncated: bool,
    /// How the command ended, if it has.
    pub end: Option<CommandEnd>,
}

impl RuntimeTerminals {
    /// Returns their backend.
    #[must_use]
    pub fn backend(&self) -> Backend {
        match self {
            Self::Client(_) => Backend::Client,
            Self::Local(_) => Backend::Local,
        }
    }

    /// Returns the backend's time limit for starting a command, if it has one.
    #[must_use]
    pub fn create_timeout(&self) -> Option<Duration> {
        match self {
            Self::Client(terminals) => Some(terminals.create_timeout()),
            Self::Local(_) => None,
        }
    }

    /// Starts a command. Once `cancelled` resolves, the terminal is no longer wanted; if it was created all the same,
    /// it is still returned, to be released.
    ///
    /// # Errors
    /// Fails if the command does not run, or if the outcome is unknown.
    pub async fn create(
        &self,
        request: CommandRequest,
        cancelled: impl Future<Output = ()>,
    ) -> Result<TerminalId, RuntimeError> {
        match self {
            Self::Client(terminals) => terminals.create(request, cancelled).await,
            Self::Local(terminals) => Ok(TerminalBackend::create(terminals, request).await?),
        }
    }

    /// Returns the output so far.
    ///
    /// # Errors
    /// Fails if the backend returns no output.
    pub async fn output(&self, id: &TerminalId) -> Result<RuntimeTerminalOutput, RuntimeError> {
        match self {
            Self::Client(terminals) => {
                let (text, truncated, end) = terminals.output(id).await?;
                let mut cleaned = Cleaned::new(MAX_OUTPUT_BYTES);
                cleaned.push(text.as_bytes());
                cleaned.finish();
                let truncated = truncated || cleaned.is_truncated();
                Ok(RuntimeTerminalOutput { text: cleaned.text().to_owned(), truncated, end })
            }
            Self::Local(terminals) => {
                let snapshot = TerminalBackend::output(terminals, id).await?;
                let end = snapshot.exit.map(CommandEnd::Known);
                Ok(RuntimeTerminalOutput { text: snapshot.text, truncated: snapshot.truncated, end })
            }
        }
    }

    /// Waits for the command to end, without a timeout.
    ///
    /// # Errors
    /// Fails if the backend cannot wait for it.
    pub async fn wait(&self, id: &TerminalId) -> Result<CommandEnd, RuntimeError> {
        match self {
            Self::Client(terminals) => terminals.wait(id).await,
            Self::Local(terminals) => Ok(CommandEnd::Known(TerminalBackend::wait(terminals, id).await?)),
        }
    }

    /// Kills the command. Its output stays.
    ///
    /// # Errors
    /// Fails if it was not killed.
    pub async fn kill(&self, id: &TerminalId) -> Result<(), RuntimeError> {
        match self {
            Self::Client(terminals) => terminals.kill(id).await,
            Self::Local(terminals) => Ok(TerminalBackend::kill(terminals, id).await?),
        }
    }

    /// Kills the command and releases the terminal.
    ///
    /// # Errors
    /// Fails if it was not released.
    pub async fn release(&self, id: &TerminalId) -> Result<(), RuntimeError> {
        match self {
            Self::Client(terminals) => terminals.release(id).await,
            Self::Local(terminals) => Ok(TerminalBackend::release(terminals, id).await?),
        }
    }
}
