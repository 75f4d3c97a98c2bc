//! The terminals of a session, whoever serves them.

use std::future::Future;
use std::time::Duration;

use bowline_state::schema::v1::TerminalId;
use bowline_state::terminal::Output as Cleaned;
use bowline_workspace::terminals::{Asked, LocalTerminals, Terminals};

use super::{ClientTerminals, Ending, Fault, Server};

/// So many bytes of a terminal's output are taken from whoever serves it.
const MAX_OUTPUT: usize = 4 << 20;

/// The terminals of a session.
#[derive(Debug, Clone)]
pub enum Commands {
    /// The client's.
    Client(ClientTerminals),
    /// This machine's.
    Local(LocalTerminals),
}

/// What a terminal shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// The text, without what steers a terminal.
    pub text: String,
    /// Whether some of it is missing.
    pub truncated: bool,
    /// How the command ended, if it did.
    pub ending: Option<Ending>,
}

impl Commands {
    /// Returns who serves them.
    #[must_use]
    pub fn by(&self) -> Server {
        match self {
            Self::Client(_) => Server::Client,
            Self::Local(_) => Server::Local,
        }
    }

    /// Returns how long whoever serves them may take to run a command, if that is limited.
    #[must_use]
    pub fn limit(&self) -> Option<Duration> {
        match self {
            Self::Client(terminals) => Some(terminals.limit()),
            Self::Local(_) => None,
        }
    }

    /// Runs a command, and returns as soon as it runs. Once `given_up` is done nobody wants it any more; a terminal that is
    /// there all the same is still returned, to be given up.
    ///
    /// # Errors
    /// Returns why it does not run, or that nobody knows.
    pub async fn create(
        &self,
        asked: Asked,
        given_up: impl Future<Output = ()>,
    ) -> Result<TerminalId, Fault> {
        match self {
            Self::Client(terminals) => terminals.create(asked, given_up).await,
            Self::Local(terminals) => Ok(Terminals::create(terminals, asked).await?),
        }
    }

    /// Returns the output so far.
    ///
    /// # Errors
    /// Returns why there is none.
    pub async fn output(&self, id: &TerminalId) -> Result<Output, Fault> {
        match self {
            Self::Client(terminals) => {
                let (text, truncated, ending) = terminals.output(id).await?;
                let mut cleaned = Cleaned::new(MAX_OUTPUT);
                cleaned.push(text.as_bytes());
                cleaned.finish();
                let truncated = truncated || cleaned.truncated();
                Ok(Output { text: cleaned.text().to_owned(), truncated, ending })
            }
            Self::Local(terminals) => {
                let shown = Terminals::output(terminals, id).await?;
                let ending = shown.exit.map(Ending::Known);
                Ok(Output { text: shown.text, truncated: shown.truncated, ending })
            }
        }
    }

    /// Waits for the command to end, as long as it takes.
    ///
    /// # Errors
    /// Returns why nobody can say when it does.
    pub async fn wait(&self, id: &TerminalId) -> Result<Ending, Fault> {
        match self {
            Self::Client(terminals) => terminals.wait(id).await,
            Self::Local(terminals) => Ok(Ending::Known(Terminals::wait(terminals, id).await?)),
        }
    }

    /// Ends the command. Its output stays.
    ///
    /// # Errors
    /// Returns why it was not ended.
    pub async fn kill(&self, id: &TerminalId) -> Result<(), Fault> {
        match self {
            Self::Client(terminals) => terminals.kill(id).await,
            Self::Local(terminals) => Ok(Terminals::kill(terminals, id).await?),
        }
    }

    /// Ends the command and gives the terminal up.
    ///
    /// # Errors
    /// Returns why it was not given up.
    pub async fn release(&self, id: &TerminalId) -> Result<(), Fault> {
        match self {
            Self::Client(terminals) => terminals.release(id).await,
            Self::Local(terminals) => Ok(Terminals::release(terminals, id).await?),
        }
    }
}
