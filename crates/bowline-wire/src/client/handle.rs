//! The handle by which an agent calls the client.

use std::future::Future;
use std::sync::{Arc, OnceLock};

use agent_client_protocol_schema::v1::{
    CompleteElicitationNotification, CreateElicitationRequest, CreateElicitationResponse,
    CreateTerminalRequest, CreateTerminalResponse, ExtNotification, ExtRequest, ExtResponse, Implementation,
    KillTerminalRequest, ReadTextFileRequest, ReleaseTerminalRequest, RequestPermissionRequest, SessionId,
    SessionNotification, TerminalOutputRequest, WaitForTerminalExitRequest, WriteTextFileRequest,
};
use bowline_protocol::builders::IntoSessionUpdate;
use bowline_protocol::capabilities::{CapabilityError, ClientCapabilityGate, ClientMethod};
use bowline_protocol::file_extension::{
    BatchFilesRequest, ListDirectoryRequest, ReadFileRequest, StatFileRequest, UnwatchFilesRequest,
    WatchFilesRequest, WriteFileRequest,
};

use crate::caller::{CallError, Caller};
use crate::message::body::JsonBody;
use crate::message::methods::RpcRequest;
use crate::service::dispatch::{calls, with_gate};

/// The client at the other end. Using a capability that it did not advertise fails before anything is sent.
#[derive(Debug, Clone)]
pub struct ClientHandle {
    inner: Arc<ClientHandleInner>,
}

#[derive(Debug)]
struct ClientHandleInner {
    caller: Caller,
    gate: OnceLock<ClientCapabilityGate>,
    info: OnceLock<Implementation>,
}

impl ClientHandle {
    pub(crate) fn new(caller: Caller) -> Self {
        ClientHandle {
            inner: Arc::new(ClientHandleInner { caller, gate: OnceLock::new(), info: OnceLock::new() }),
        }
    }

    /// Creates a handle to the client of an existing connection, with its advertised capabilities.
    #[must_use]
    pub fn from_caller(caller: Caller, advertised: ClientCapabilityGate) -> Self {
        let client = Self::new(caller);
        client.set_gate(advertised);
        client
    }

    /// Sets the client's advertised capabilities. Returns whether this was the first time.
    pub(crate) fn set_gate(&self, gate: ClientCapabilityGate) -> bool {
        self.inner.gate.set(gate).is_ok()
    }

    pub(crate) fn is_initialized(&self) -> bool {
        self.inner.gate.get().is_some()
    }

    /// Returns the capabilities that the client advertised; none before `initialize`.
    #[must_use]
    pub fn gate(&self) -> ClientCapabilityGate {
        self.inner.gate.get().cloned().unwrap_or_default()
    }

    /// Records the client's name and version.
    pub(crate) fn set_info(&self, info: Option<Implementation>) {
        // They come once, in `initialize`.
        if let Some(info) = info {
            self.inner.info.set(info).ok();
        }
    }

    /// Returns the client's name and version; `None` before `initialize`, or if it gave none.
    #[must_use]
    pub fn info(&self) -> Option<&Implementation> {
        self.inner.info.get()
    }

    /// Checks that the client serves a method.
    ///
    /// # Errors
    /// Returns the missing capability.
    pub fn check(&self, method: ClientMethod) -> Result<(), CapabilityError> {
        with_gate(&self.inner.gate, |gate| gate.check(method))
    }

    /// Returns the connection itself, for messages that the protocol does not define.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        &self.inner.caller
    }

    /// Reports progress on a session. Waits while the client is slow to read.
    ///
    /// # Errors
    /// Fails if the client did not advertise this kind of update, or is gone.
    pub async fn update(
        &self,
        session_id: impl Into<SessionId>,
        update: impl IntoSessionUpdate,
    ) -> Result<(), CallError> {
        self.notify_session(&SessionNotification::new(session_id, update.into_session_update())).await
    }

    /// Sends a `session/update` as it is.
    ///
    /// # Errors
    /// Fails if the client did not advertise this kind of update, or is gone.
    pub async fn notify_session(&self, notification: &SessionNotification) -> Result<(), CallError> {
        with_gate(&self.inner.gate, |gate| gate.check_update(&notification.update))?;
        self.inner.caller.notify(notification).await
    }

    calls! {
        "Returns a [`CallError`] if the call fails.";
        /// Asks the user for permission. No error is an approval.
        request_permission(RequestPermissionRequest), ClientMethod::RequestPermission;
        /// Reads a text file, including unsaved changes in the editor.
        read_text_file(ReadTextFileRequest), ClientMethod::ReadTextFile;
        /// Writes a text file through the editor.
        write_text_file(WriteTextFileRequest), ClientMethod::WriteTextFile;
        /// Starts a command in a terminal of the user.
        create_terminal(CreateTerminalRequest), ClientMethod::CreateTerminal;
        /// Returns the output of a terminal so far.
        terminal_output(TerminalOutputRequest), ClientMethod::TerminalOutput;
        /// Waits until the command of a terminal ends.
        wait_for_terminal_exit(WaitForTerminalExitRequest), ClientMethod::WaitForTerminalExit;
        /// Kills the command of a terminal. The terminal stays.
        kill_terminal(KillTerminalRequest), ClientMethod::KillTerminal;
        /// Releases a terminal.
        release_terminal(ReleaseTerminalRequest), ClientMethod::ReleaseTerminal;
    }

    /// Starts a command. When `abandoned` completes first, the request is cancelled, but a terminal that the client
    /// created anyway is returned, so that it can be released.
    ///
    /// # Errors
    /// Fails if the client did not advertise terminals, or with another [`CallError`].
    pub async fn create_terminal_until(
        &self,
        request: CreateTerminalRequest,
        abandoned: impl Future<Output = ()>,
    ) -> Result<CreateTerminalResponse, CallError> {
        self.check(ClientMethod::CreateTerminal)?;
        self.inner.caller.call_until(&request, abandoned).await
    }

    /// Asks the user to fill in a form or to visit a page.
    ///
    /// # Errors
    /// Returns a [`CallError`] if the call fails.
    pub async fn create_elicitation(
        &self,
        request: CreateElicitationRequest,
    ) -> Result<CreateElicitationResponse, CallError> {
        self.gate().check_elicitation(&request.mode)?;
        self.inner.caller.call(&request).await
    }

    /// Reports that an elicitation by URL has ended.
    ///
    /// # Errors
    /// Fails if the client did not advertise it, or is gone.
    pub async fn complete_elicitation(
        &self,
        notification: CompleteElicitationNotification,
    ) -> Result<(), CallError> {
        self.check(ClientMethod::CompleteElicitation)?;
        self.inner.caller.notify(&notification).await
    }

    calls! {
        "Returns a [`CallError`] if the call fails; its [`CallError::file_error`], or [`CallError::batch_error`] for a batch, has the client's reason.";
        /// Lists a directory. This and the following six methods are the file extension `_bowline/fs`.
        list_directory(ListDirectoryRequest), ClientMethod::ListDirectory;
        /// Returns the metadata of a path.
        stat_file(StatFileRequest), ClientMethod::StatFile;
        /// Reads a file as text or bytes, including unsaved changes in the editor.
        read_file(ReadFileRequest), ClientMethod::ReadFile;
        /// Writes a file, or a part of it, as text or bytes.
        write_file(WriteFileRequest), ClientMethod::WriteFile;
        /// Runs several file operations, all or none.
        batch_files(BatchFilesRequest), ClientMethod::BatchFiles;
        /// Starts to watch a file or directory. The first changes may arrive before this returns.
        watch_files(WatchFilesRequest), ClientMethod::WatchFiles;
        /// Ends a watch. Its changes are handled before this returns.
        unwatch_files(UnwatchFilesRequest), ClientMethod::UnwatchFiles;
    }

    /// Calls another extension method.
    ///
    /// # Errors
    /// Returns a [`CallError`] if the call fails.
    pub async fn ext_request(&self, request: ExtRequest) -> Result<ExtResponse, CallError> {
        call_extension(&self.inner.caller, request).await
    }

    /// Sends an extension notification.
    ///
    /// # Errors
    /// Fails when the client is gone.
    pub async fn ext_notification(&self, notification: ExtNotification) -> Result<(), CallError> {
        notify_extension(&self.inner.caller, notification).await
    }
}

pub(crate) async fn call_extension(caller: &Caller, request: ExtRequest) -> Result<ExtResponse, CallError> {
    let answer = caller.call_raw(request.method.to_string(), JsonBody::from_raw(&request.params)).await?;
    Ok(ExtResponse::new(answer.into()))
}

pub(crate) async fn notify_extension(
    caller: &Caller,
    notification: ExtNotification,
) -> Result<(), CallError> {
    caller.notify_raw(notification.method.to_string(), JsonBody::from_raw(&notification.params)).await
}
