//! The client, as an agent sees it.

use std::future::Future;
use std::sync::{Arc, OnceLock};

use agent_client_protocol_schema::v1::{
    CompleteElicitationNotification, CreateElicitationRequest, CreateElicitationResponse,
    CreateTerminalRequest, CreateTerminalResponse, ExtNotification, ExtRequest, ExtResponse, Implementation,
    KillTerminalRequest, KillTerminalResponse, ReadTextFileRequest, ReadTextFileResponse,
    ReleaseTerminalRequest, ReleaseTerminalResponse, RequestPermissionRequest, RequestPermissionResponse,
    SessionId, SessionNotification, TerminalOutputRequest, TerminalOutputResponse,
    WaitForTerminalExitRequest, WaitForTerminalExitResponse, WriteTextFileRequest, WriteTextFileResponse,
};
use bowline_state::builders::IntoSessionUpdate;
use bowline_state::capabilities::{ClientGate, ClientMethod, NotAdvertised};

use crate::body::Body;
use crate::caller::{CallError, Caller};

/// The client at the other end. What it did not advertise is an error before anything is sent.
#[derive(Debug, Clone)]
pub struct ClientHandle {
    end: Arc<ClientEnd>,
}

#[derive(Debug)]
struct ClientEnd {
    caller: Caller,
    gate: OnceLock<ClientGate>,
    info: OnceLock<Implementation>,
}

impl ClientHandle {
    pub(crate) fn new(caller: Caller) -> Self {
        ClientHandle { end: Arc::new(ClientEnd { caller, gate: OnceLock::new(), info: OnceLock::new() }) }
    }

    /// Returns a client at the other end of a connection that somebody else began, with what it advertised.
    #[must_use]
    pub fn over(caller: Caller, advertised: ClientGate) -> Self {
        let client = Self::new(caller);
        client.open(advertised);
        client
    }

    /// Opens what the client advertised. Returns whether this was the first time.
    pub(crate) fn open(&self, gate: ClientGate) -> bool {
        self.end.gate.set(gate).is_ok()
    }

    pub(crate) fn is_open(&self) -> bool {
        self.end.gate.get().is_some()
    }

    /// What the client advertised; nothing before `initialize`.
    #[must_use]
    pub fn gate(&self) -> ClientGate {
        self.end.gate.get().cloned().unwrap_or_default()
    }

    /// Notes how the client calls itself.
    pub(crate) fn meet(&self, info: Option<Implementation>) {
        // It says so once, in `initialize`.
        if let Some(info) = info {
            self.end.info.set(info).ok();
        }
    }

    /// How the client calls itself; none before `initialize`, or if it does not say.
    #[must_use]
    pub fn info(&self) -> Option<&Implementation> {
        self.end.info.get()
    }

    /// Checks that the client serves a method.
    ///
    /// # Errors
    /// Returns the capability that is missing.
    pub fn check(&self, method: ClientMethod) -> Result<(), NotAdvertised> {
        match self.end.gate.get() {
            Some(gate) => gate.check(method),
            None => ClientGate::default().check(method),
        }
    }

    /// The connection itself, for messages that the protocol does not define.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        &self.end.caller
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
        match self.end.gate.get() {
            Some(gate) => gate.check_update(&notification.update)?,
            None => ClientGate::default().check_update(&notification.update)?,
        }
        self.end.caller.notify(notification).await
    }

    /// Asks the user for permission.
    ///
    /// # Errors
    /// Fails as [`CallError`] says. No error is an approval.
    pub async fn request_permission(
        &self,
        request: RequestPermissionRequest,
    ) -> Result<RequestPermissionResponse, CallError> {
        self.check(ClientMethod::RequestPermission)?;
        self.end.caller.call(&request).await
    }

    /// Reads a text file, with what is unsaved in the editor.
    ///
    /// # Errors
    /// Fails as [`CallError`] says.
    pub async fn read_text_file(
        &self,
        request: ReadTextFileRequest,
    ) -> Result<ReadTextFileResponse, CallError> {
        self.check(ClientMethod::ReadTextFile)?;
        self.end.caller.call(&request).await
    }

    /// Writes a text file through the editor.
    ///
    /// # Errors
    /// Fails as [`CallError`] says.
    pub async fn write_text_file(
        &self,
        request: WriteTextFileRequest,
    ) -> Result<WriteTextFileResponse, CallError> {
        self.check(ClientMethod::WriteTextFile)?;
        self.end.caller.call(&request).await
    }

    /// Starts a command in a terminal of the user.
    ///
    /// # Errors
    /// Fails as [`CallError`] says.
    pub async fn create_terminal(
        &self,
        request: CreateTerminalRequest,
    ) -> Result<CreateTerminalResponse, CallError> {
        self.check(ClientMethod::CreateTerminal)?;
        self.end.caller.call(&request).await
    }

    /// Runs a command; once `given_up` is done, the client is told so, and a terminal that it has made all the same is still
    /// returned, to be given up.
    ///
    /// # Errors
    /// Fails if the client did not advertise terminals, or as [`CallError`] says.
    pub async fn create_terminal_until(
        &self,
        request: CreateTerminalRequest,
        given_up: impl Future<Output = ()>,
    ) -> Result<CreateTerminalResponse, CallError> {
        self.check(ClientMethod::CreateTerminal)?;
        self.end.caller.call_until(&request, given_up).await
    }

    /// Returns what a terminal has put out so far.
    ///
    /// # Errors
    /// Fails as [`CallError`] says.
    pub async fn terminal_output(
        &self,
        request: TerminalOutputRequest,
    ) -> Result<TerminalOutputResponse, CallError> {
        self.check(ClientMethod::TerminalOutput)?;
        self.end.caller.call(&request).await
    }

    /// Waits until the command of a terminal ends.
    ///
    /// # Errors
    /// Fails as [`CallError`] says.
    pub async fn wait_for_terminal_exit(
        &self,
        request: WaitForTerminalExitRequest,
    ) -> Result<WaitForTerminalExitResponse, CallError> {
        self.check(ClientMethod::WaitForTerminalExit)?;
        self.end.caller.call(&request).await
    }

    /// Kills the command of a terminal. The terminal stays.
    ///
    /// # Errors
    /// Fails as [`CallError`] says.
    pub async fn kill_terminal(
        &self,
        request: KillTerminalRequest,
    ) -> Result<KillTerminalResponse, CallError> {
        self.check(ClientMethod::KillTerminal)?;
        self.end.caller.call(&request).await
    }

    /// Gives a terminal up.
    ///
    /// # Errors
    /// Fails as [`CallError`] says.
    pub async fn release_terminal(
        &self,
        request: ReleaseTerminalRequest,
    ) -> Result<ReleaseTerminalResponse, CallError> {
        self.check(ClientMethod::ReleaseTerminal)?;
        self.end.caller.call(&request).await
    }

    /// Asks the user to fill in a form or to visit a page.
    ///
    /// # Errors
    /// Fails as [`CallError`] says.
    pub async fn create_elicitation(
        &self,
        request: CreateElicitationRequest,
    ) -> Result<CreateElicitationResponse, CallError> {
        self.gate().check_elicitation(&request.mode)?;
        self.end.caller.call(&request).await
    }

    /// Tells that an elicitation by URL has ended.
    ///
    /// # Errors
    /// Fails if the client did not advertise it, or is gone.
    pub async fn complete_elicitation(
        &self,
        notification: CompleteElicitationNotification,
    ) -> Result<(), CallError> {
        self.check(ClientMethod::CompleteElicitation)?;
        self.end.caller.notify(&notification).await
    }

    /// Calls an extension method.
    ///
    /// # Errors
    /// Fails as [`CallError`] says.
    pub async fn ext_request(&self, request: ExtRequest) -> Result<ExtResponse, CallError> {
        extension_call(&self.end.caller, request).await
    }

    /// Sends an extension notification.
    ///
    /// # Errors
    /// Fails when the client is gone.
    pub async fn ext_notification(&self, notification: ExtNotification) -> Result<(), CallError> {
        extension_notify(&self.end.caller, notification).await
    }
}

pub(crate) async fn extension_call(caller: &Caller, request: ExtRequest) -> Result<ExtResponse, CallError> {
    let answer = caller.call_raw(request.method.to_string(), Body::raw(&request.params)).await?;
    Ok(ExtResponse::new(answer.into()))
}

pub(crate) async fn extension_notify(
    caller: &Caller,
    notification: ExtNotification,
) -> Result<(), CallError> {
    caller.notify_raw(notification.method.to_string(), Body::raw(&notification.params)).await
}
