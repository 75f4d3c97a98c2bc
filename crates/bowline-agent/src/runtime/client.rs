//! Files and terminals of the user's machine, served by the client over ACP.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bowline_state::capabilities::ClientMethod;
use bowline_state::failure::Failure;
use bowline_state::lines::{Window, slice};
use bowline_state::quirks::{PeerRole, Quirk, QuirkMode, Workaround};
use bowline_state::schema::v1::{
    CreateTerminalRequest, EnvVariable, KillTerminalRequest, ReadTextFileRequest, ReleaseTerminalRequest,
    SessionId, TerminalExitStatus, TerminalId, TerminalOutputRequest, WaitForTerminalExitRequest,
    WriteTextFileRequest,
};
use bowline_state::terminal::Exit;
use bowline_wire::{CallError, ClientHandle};
use bowline_workspace::files::{Asker, Files, TextRead, TextWritten};
use bowline_workspace::listing::{ListOptions, Listing};
use bowline_workspace::search::{SearchQuery, SearchResult};
use bowline_workspace::terminals::{Asked, Shown, Terminals};
use bowline_workspace::workspace::Served;
use tokio::time::timeout;

use super::Fault;
use crate::settings::{Log, Settings};

/// Runs a call to the client for so long; dropping it tells the client.
async fn bounded<T>(
    method: ClientMethod,
    limit: Duration,
    call: impl Future<Output = Result<T, CallError>>,
) -> Result<T, Fault> {
    let method = method.wire_name();
    match timeout(limit, call).await {
        Ok(answer) => answer.map_err(|error| Fault::of(method, error)),
        Err(_) => Err(Fault::TimedOut { method, after: limit }),
    }
}

/// Returns that something was done, also where the answer says so in a way of its own.
fn done(answer: Result<(), Fault>) -> Result<(), Fault> {
    match answer {
        Err(Fault::Unreadable { .. }) => Ok(()),
        answer => answer,
    }
}

/// How long a client may take for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// If it has only to do it.
    pub answer: Duration,
    /// If it may ask its user first: before it writes a file or starts a command.
    pub review: Duration,
}

/// A person may be asked about anything by a client that decides, and has as much time as for a question of the agent's own.
const PERSONS_TIME: Duration = Duration::from_secs(24 * 60 * 60);

impl Patience {
    /// Returns how long a client is waited for.
    pub(super) fn of(settings: &Settings, client: &ClientHandle) -> Self {
        if client.gate().decides() {
            return Self { answer: PERSONS_TIME, review: PERSONS_TIME };
        }
        Self { answer: settings.client_timeout, review: settings.review_timeout }
    }
}

/// The files of a session, served by its client.
#[derive(Debug, Clone)]
pub struct ClientFiles {
    client: ClientHandle,
    session: SessionId,
    patience: Patience,
    quirks: QuirkMode,
    log: Log,
}

impl ClientFiles {
    /// Returns the files of a session.
    #[must_use]
    pub fn new(client: ClientHandle, session: SessionId, settings: &Settings) -> Self {
        let patience = Patience::of(settings, &client);
        Self { client, session, patience, quirks: settings.quirks, log: settings.log.clone() }
    }

    /// Reads a file, or some lines of it.
    ///
    /// # Errors
    /// Returns why there is no text.
    pub async fn read(&self, path: &str, window: Window) -> Result<Arc<String>, Fault> {
        let request =
            ReadTextFileRequest::new(self.session.clone(), path).line(window.line).limit(window.limit);
        let read = self.client.read_text_file(request);
        let read = bounded(ClientMethod::ReadTextFile, self.patience.answer, read).await;
        let text = read.map_err(|fault| self.understood(fault, path))?.content;
        // A client that gives more lines than it was asked for has taken no notice of the window.
        let asked = window.limit.and_then(|limit| usize::try_from(limit).ok());
        if asked.is_some_and(|limit| text.lines().nth(limit).is_some()) {
            let part = slice(&text, window).map_err(|past| Fault::Said(past.into()))?;
            return Ok(Arc::new(part.to_owned()));
        }
        Ok(Arc::new(text))
    }

    /// Returns what a client means that is known to answer so.
    fn understood(&self, fault: Fault, path: &str) -> Fault {
        let (client, meant) = (self.client.info(), Workaround::MissingFileForNoContent);
        match (&fault, Quirk::find(self.quirks, PeerRole::Client, client, meant)) {
            (Fault::Unreadable { .. }, Some(quirk)) => {
                self.log.line(quirk.log_line(path));
                Fault::no_content()
            }
            _ => fault,
        }
    }

    /// Writes a file.
    ///
    /// # Errors
    /// Returns why it was not written, or that nobody knows.
    pub async fn write(&self, path: &str, content: String) -> Result<(), Fault> {
        let request = WriteTextFileRequest::new(self.session.clone(), path, content);
        let write = self.client.write_text_file(request);
        done(bounded(ClientMethod::WriteTextFile, self.patience.review, write).await.map(drop))
    }
}

impl Files for ClientFiles {
    async fn read(&self, path: &str, window: Window) -> Result<TextRead, Failure> {
        let text = Self::read(self, path, window).await?;
        let whole = (window == Window::default()).then_some(true);
        Ok(TextRead { text, served: Served::Document, whole })
    }

    async fn write(&self, path: &str, content: String, _: &Asker) -> Result<TextWritten, Failure> {
        Self::write(self, path, content).await?;
        Ok(TextWritten::default())
    }

    async fn list(&self, _: &str, _: ListOptions) -> Result<Listing, Failure> {
        Err(Failure::UnknownMethod { method: None })
    }

    async fn search(&self, _: SearchQuery, _: Option<String>) -> Result<SearchResult, Failure> {
        Err(Failure::UnknownMethod { method: None })
    }
}

/// The terminals of a session, served by its client.
#[derive(Debug, Clone)]
pub struct ClientTerminals {
    client: ClientHandle,
    session: SessionId,
    patience: Patience,
}

impl ClientTerminals {
    /// Returns the terminals of a session; the client may take so long for each request but waiting.
    #[must_use]
    pub fn new(client: ClientHandle, session: SessionId, patience: Patience) -> Self {
        Self { client, session, patience }
    }

    /// Returns how long the client may take to start a command.
    #[must_use]
    pub fn limit(&self) -> Duration {
        self.patience.review
    }

    /// Runs a command, as it is asked for: nothing is added or taken apart. However long the client takes, it is waited
    /// for; once `given_up` is done it is told that nobody wants the terminal, which is still returned if it made one.
    ///
    /// # Errors
    /// Returns why it does not run, or that nobody knows.
    pub async fn create(
        &self,
        asked: Asked,
        given_up: impl Future<Output = ()>,
    ) -> Result<TerminalId, Fault> {
        let env = asked.env.into_iter().map(|(name, value)| EnvVariable::new(name, value)).collect();
        let request = CreateTerminalRequest::new(self.session.clone(), asked.command)
            .args(asked.args)
            .env(env)
            .cwd(asked.cwd.map(Into::into))
            .output_byte_limit(asked.output_limit);
        let created = self.client.create_terminal_until(request, given_up).await;
        let created = created.map_err(|error| Fault::of(ClientMethod::CreateTerminal.wire_name(), error));
        Ok(created?.terminal_id)
    }

    /// Returns the output so far; how the command ended may be left open by the client.
    ///
    /// # Errors
    /// Returns why there is none.
    pub async fn output(&self, id: &TerminalId) -> Result<(String, bool, Option<Ending>), Fault> {
        let request = TerminalOutputRequest::new(self.session.clone(), id.clone());
        let output = self.client.terminal_output(request);
        let shown = bounded(ClientMethod::TerminalOutput, self.patience.answer, output).await?;
        Ok((shown.output, shown.truncated, shown.exit_status.as_ref().map(Ending::of)))
    }

    /// Waits for the command to end, as long as it takes.
    ///
    /// # Errors
    /// Returns why nobody can say when it does.
    pub async fn wait(&self, id: &TerminalId) -> Result<Ending, Fault> {
        let request = WaitForTerminalExitRequest::new(self.session.clone(), id.clone());
        let method = ClientMethod::WaitForTerminalExit.wire_name();
        let waited = self.client.wait_for_terminal_exit(request).await;
        Ok(Ending::of(&waited.map_err(|error| Fault::of(method, error))?.exit_status))
    }

    /// Ends the command. Its output stays.
    ///
    /// # Errors
    /// Returns why it was not ended.
    pub async fn kill(&self, id: &TerminalId) -> Result<(), Fault> {
        let request = KillTerminalRequest::new(self.session.clone(), id.clone());
        let kill = self.client.kill_terminal(request);
        done(bounded(ClientMethod::KillTerminal, self.patience.answer, kill).await.map(drop))
    }

    /// Ends the command and gives the terminal up.
    ///
    /// # Errors
    /// Returns why it was not given up.
    pub async fn release(&self, id: &TerminalId) -> Result<(), Fault> {
        let request = ReleaseTerminalRequest::new(self.session.clone(), id.clone());
        let release = self.client.release_terminal(request);
        done(bounded(ClientMethod::ReleaseTerminal, self.patience.answer, release).await.map(drop))
    }
}

/// How a command ended, as far as whoever ran it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// By itself, or by a signal.
    Known(Exit),
    /// It ended, and nobody says how.
    Unknown,
}

impl Ending {
    fn of(status: &TerminalExitStatus) -> Self {
        match (&status.signal, status.exit_code) {
            (Some(signal), _) => Self::Known(Exit::Signal(signal.clone())),
            (None, Some(code)) => Self::Known(Exit::Code(i32::try_from(code).unwrap_or(-1))),
            (None, None) => Self::Unknown,
        }
    }

    fn known(self) -> Result<Exit, Failure> {
        match self {
            Self::Known(exit) => Ok(exit),
            Self::Unknown => {
                Err(Failure::Internal { reason: "the editor does not say how the command ended".to_owned() })
            }
        }
    }
}

impl Terminals for ClientTerminals {
    async fn create(&self, asked: Asked) -> Result<TerminalId, Failure> {
        let create = Self::create(self, asked, std::future::pending());
        let method = ClientMethod::CreateTerminal.wire_name();
        let after = self.patience.review;
        let created = timeout(after, create).await;
        Ok(created.unwrap_or(Err(Fault::TimedOut { method, after }))?)
    }

    async fn output(&self, id: &TerminalId) -> Result<Shown, Failure> {
        let (text, truncated, ending) = Self::output(self, id).await?;
        Ok(Shown { text, truncated, exit: ending.map(Ending::known).transpose()? })
    }

    async fn wait(&self, id: &TerminalId) -> Result<Exit, Failure> {
        Self::wait(self, id).await?.known()
    }

    async fn kill(&self, id: &TerminalId) -> Result<(), Failure> {
        Ok(Self::kill(self, id).await?)
    }

    async fn release(&self, id: &TerminalId) -> Result<(), Failure> {
        Ok(Self::release(self, id).await?)
    }
}
