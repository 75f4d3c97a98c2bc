//! Files and terminals of the user's machine, served by the client over ACP.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bowline_protocol::capabilities::ClientMethod;
use bowline_protocol::file_extension::{DirectoryEntry, FileType, ListDirectoryRequest};
use bowline_protocol::quirks::{PeerRole, Quirk, QuirkMode, Workaround};
use bowline_protocol::schema::v1::{
    CreateTerminalRequest, EnvVariable, KillTerminalRequest, ReadTextFileRequest, ReleaseTerminalRequest,
    SessionId, TerminalExitStatus, TerminalId, TerminalOutputRequest, WaitForTerminalExitRequest,
    WriteTextFileRequest,
};
use bowline_protocol::terminal::CommandExit;
use bowline_text::lines::{LineWindow, slice_lines};
use bowline_wire::{CallError, ClientHandle};
use bowline_workspace::list::{IgnoredFiles, ListEntry, ListOptions, Listing};
use bowline_workspace::terminals::CommandRequest;
use bowline_workspace::walker::EntryKind;
use tokio::time::timeout;

use super::RuntimeError;
use crate::agent_options::{AgentOptions, LogSink};

/// Runs a call to the client with a timeout; dropping the future cancels the request.
pub(super) async fn with_timeout<T>(
    method: ClientMethod,
    limit: Duration,
    call: impl Future<Output = Result<T, CallError>>,
) -> Result<T, RuntimeError> {
    let method = method.wire_name();
    match timeout(limit, call).await {
        Ok(answer) => answer.map_err(|error| RuntimeError::from_call_error(method, error)),
        Err(_) => Err(RuntimeError::TimedOut { method, after: limit }),
    }
}

/// Treats an answer that cannot be parsed as success.
fn accept_unreadable_answer(answer: Result<(), RuntimeError>) -> Result<(), RuntimeError> {
    match answer {
        Err(RuntimeError::InvalidAnswer { .. }) => Ok(()),
        answer => answer,
    }
}

/// The timeouts of requests to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientTimeouts {
    /// For requests that it carries out without asking.
    pub answer: Duration,
    /// For requests that it may show to its user first: writing a file, starting a command.
    pub review: Duration,
}

/// A client that authorizes operations may ask its user about any of them, who gets as long as for the agent's own
/// questions.
const USER_DECISION_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

impl ClientTimeouts {
    /// Returns the timeouts for a client.
    pub(super) fn for_client(options: &AgentOptions, client: &ClientHandle) -> Self {
        if client.gate().authorizes_operations() {
            return Self { answer: USER_DECISION_TIMEOUT, review: USER_DECISION_TIMEOUT };
        }
        Self { answer: options.client_timeout, review: options.review_timeout }
    }
}

/// The files of a session, served by its client.
#[derive(Debug, Clone)]
pub struct ClientFiles {
    pub(super) client: ClientHandle,
    pub(super) session: SessionId,
    pub(super) timeouts: ClientTimeouts,
    quirks: QuirkMode,
    log: LogSink,
}

impl ClientFiles {
    /// Returns the files of a session.
    #[must_use]
    pub fn new(client: ClientHandle, session: SessionId, options: &AgentOptions) -> Self {
        let timeouts = ClientTimeouts::for_client(options, &client);
        Self { client, session, timeouts, quirks: options.quirks, log: options.log.clone() }
    }

    /// Reads a file, or some lines of it.
    ///
    /// # Errors
    /// Fails if the client returns no text.
    pub async fn read(&self, path: &str, window: LineWindow) -> Result<Arc<String>, RuntimeError> {
        let request =
            ReadTextFileRequest::new(self.session.clone(), path).line(window.line).limit(window.limit);
        let read = self.client.read_text_file(request);
        let read = with_timeout(ClientMethod::ReadTextFile, self.timeouts.answer, read).await;
        let text = read.map_err(|error| self.apply_quirk(error, path))?.content;
        // A client that returns more lines than requested has ignored the window.
        let max_lines = window.limit.and_then(|limit| usize::try_from(limit).ok());
        if max_lines.is_some_and(|limit| text.lines().nth(limit).is_some()) {
            let part = slice_lines(&text, window).map_err(|error| RuntimeError::Failed(error.into()))?;
            return Ok(Arc::new(part.to_owned()));
        }
        Ok(Arc::new(text))
    }

    /// Lists a directory, page by page.
    ///
    /// # Errors
    /// Fails if the client does not list it.
    pub async fn list(&self, path: &str, options: ListOptions) -> Result<Listing, RuntimeError> {
        let mut listing = Listing::default();
        let mut cursor = None;
        loop {
            let wanted = options.max_entries.saturating_sub(listing.entries.len() as u64);
            if wanted == 0 {
                listing.truncated = true;
                return Ok(listing);
            }
            let request = ListDirectoryRequest {
                depth: Some(options.depth as u64),
                include_ignored: options.ignored == IgnoredFiles::Show,
                cursor,
                limit: Some(wanted),
                ..ListDirectoryRequest::new(self.session.clone(), path)
            };
            let page = self.client.list_directory(request);
            let page = with_timeout(ClientMethod::ListDirectory, self.timeouts.answer, page).await?;
            listing.truncated |= page.truncated && page.next_cursor.is_none();
            // A page without an entry would be requested for ever.
            let is_last = page.next_cursor.is_none() || page.entries.is_empty();
            listing.entries.extend(page.entries.into_iter().map(to_list_entry));
            if is_last {
                return Ok(listing);
            }
            cursor = page.next_cursor;
        }
    }

    /// Translates an error of a client with a known quirk.
    fn apply_quirk(&self, error: RuntimeError, path: &str) -> RuntimeError {
        let (client, workaround) = (self.client.info(), Workaround::MissingFileForNoContent);
        match (&error, Quirk::find(self.quirks, PeerRole::Client, client, workaround)) {
            (RuntimeError::InvalidAnswer { .. }, Some(quirk)) => {
                self.log.write_line(quirk.log_line(path));
                RuntimeError::no_content()
            }
            _ => error,
        }
    }

    /// Writes a file.
    ///
    /// # Errors
    /// Fails if the file was not written, or if the outcome is unknown.
    pub async fn write(&self, path: &str, content: String) -> Result<(), RuntimeError> {
        let request = WriteTextFileRequest::new(self.session.clone(), path, content);
        let write = self.client.write_text_file(request);
        accept_unreadable_answer(
            with_timeout(ClientMethod::WriteTextFile, self.timeouts.review, write).await.map(drop),
        )
    }
}

fn to_list_entry(entry: DirectoryEntry) -> ListEntry {
    ListEntry {
        path: entry.name,
        kind: match entry.file_type {
            FileType::File => EntryKind::File,
            FileType::Directory => EntryKind::Directory,
            FileType::Symlink => EntryKind::Link,
            FileType::Other => EntryKind::Other,
        },
        size: entry.size.unwrap_or(0),
        mtime_ns: entry.modified_at_ms.unwrap_or(0).saturating_mul(1_000_000),
    }
}

/// The terminals of a session, served by its client.
#[derive(Debug, Clone)]
pub struct ClientTerminals {
    client: ClientHandle,
    session: SessionId,
    timeouts: ClientTimeouts,
}

impl ClientTerminals {
    /// Returns the terminals of a session; `timeouts` limits each request except waiting.
    #[must_use]
    pub fn new(client: ClientHandle, session: SessionId, timeouts: ClientTimeouts) -> Self {
        Self { client, session, timeouts }
    }

    /// Returns the timeout for starting a command.
    #[must_use]
    pub fn create_timeout(&self) -> Duration {
        self.timeouts.review
    }

    /// Runs a command exactly as given. Waits as long as the client takes. Once `cancelled` resolves, the request is
    /// cancelled; if the client created a terminal all the same, it is still returned.
    ///
    /// # Errors
    /// Fails if the command does not run, or if the outcome is unknown.
    pub async fn create(
        &self,
        request: CommandRequest,
        cancelled: impl Future<Output = ()>,
    ) -> Result<TerminalId, RuntimeError> {
        let env = request.env.into_iter().map(|(name, value)| EnvVariable::new(name, value)).collect();
        let wire_request = CreateTerminalRequest::new(self.session.clone(), request.command)
            .args(request.args)
            .env(env)
            .cwd(request.cwd.map(Into::into))
            .output_byte_limit(request.output_limit);
        let created = self.client.create_terminal_until(wire_request, cancelled).await;
        let created = created
            .map_err(|error| RuntimeError::from_call_error(ClientMethod::CreateTerminal.wire_name(), error));
        Ok(created?.terminal_id)
    }

    /// Returns the output so far; the client may omit how the command ended.
    ///
    /// # Errors
    /// Fails if the client returns no output.
    pub async fn output(&self, id: &TerminalId) -> Result<(String, bool, Option<CommandEnd>), RuntimeError> {
        let request = TerminalOutputRequest::new(self.session.clone(), id.clone());
        let output = self.client.terminal_output(request);
        let response = with_timeout(ClientMethod::TerminalOutput, self.timeouts.answer, output).await?;
        Ok((response.output, response.truncated, response.exit_status.as_ref().map(CommandEnd::from_status)))
    }

    /// Waits for the command to end, without a timeout.
    ///
    /// # Errors
    /// Fails if the client cannot wait for it.
    pub async fn wait(&self, id: &TerminalId) -> Result<CommandEnd, RuntimeError> {
        let request = WaitForTerminalExitRequest::new(self.session.clone(), id.clone());
        let method = ClientMethod::WaitForTerminalExit.wire_name();
        let response = self.client.wait_for_terminal_exit(request).await;
        Ok(CommandEnd::from_status(
            &response.map_err(|error| RuntimeError::from_call_error(method, error))?.exit_status,
        ))
    }

    /// Kills the command. Its output stays.
    ///
    /// # Errors
    /// Fails if it was not killed.
    pub async fn kill(&self, id: &TerminalId) -> Result<(), RuntimeError> {
        let request = KillTerminalRequest::new(self.session.clone(), id.clone());
        let kill = self.client.kill_terminal(request);
        accept_unreadable_answer(
            with_timeout(ClientMethod::KillTerminal, self.timeouts.answer, kill).await.map(drop),
        )
    }

    /// Kills the command and releases the terminal.
    ///
    /// # Errors
    /// Fails if it was not released.
    pub async fn release(&self, id: &TerminalId) -> Result<(), RuntimeError> {
        let request = ReleaseTerminalRequest::new(self.session.clone(), id.clone());
        let release = self.client.release_terminal(request);
        accept_unreadable_answer(
            with_timeout(ClientMethod::ReleaseTerminal, self.timeouts.answer, release).await.map(drop),
        )
    }
}

/// How a command ended, as far as its backend reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandEnd {
    /// It exited, or a signal ended it.
    Known(CommandExit),
    /// It ended, but its exit status was not reported.
    Unknown,
}

impl CommandEnd {
    fn from_status(status: &TerminalExitStatus) -> Self {
        match (&status.signal, status.exit_code) {
            (Some(signal), _) => Self::Known(CommandExit::Signal(signal.clone())),
            (None, Some(code)) => Self::Known(CommandExit::Code(i32::try_from(code).unwrap_or(-1))),
            (None, None) => Self::Unknown,
        }
    }
}
