//! The host's implementation of ACP's client methods, each for the session it names.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bowline_access::approvals::ApprovalError;
use bowline_policy::audit::{AuditAction, AuditDecision, AuditEntry};
use bowline_protocol::file_extension::{
    BatchFilesRequest, BatchFilesResponse, ListDirectoryRequest, ListDirectoryResponse, ReadFileRequest,
    ReadFileResponse, StatFileRequest, StatFileResponse, UnwatchFilesRequest, UnwatchFilesResponse,
    WatchFilesRequest, WatchFilesResponse, WriteFileRequest, WriteFileResponse,
};
use bowline_protocol::quirks::{PeerRole, Quirk, Workaround};
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::{
    CompleteElicitationNotification, CreateElicitationRequest, CreateElicitationResponse,
    CreateTerminalRequest, CreateTerminalResponse, Error, InitializeResponse, KillTerminalRequest,
    KillTerminalResponse, ReadTextFileRequest, ReadTextFileResponse, ReleaseTerminalRequest,
    ReleaseTerminalResponse, RequestPermissionRequest, RequestPermissionResponse, SessionId,
    SessionNotification, TerminalOutputRequest, TerminalOutputResponse, WaitForTerminalExitRequest,
    WaitForTerminalExitResponse, WriteTextFileRequest, WriteTextFileResponse,
};
use bowline_text::display::quote;
use bowline_wire::peer::RpcViolation;
use bowline_wire::{AgentHandle, Client, ClientContext, UnknownUpdate};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::error::HostError;
use crate::front_end::HostEvent;
use crate::host::HostInner;
use crate::operations::{
    elicitation, file_extension, files, permission, run_blocking, terminals, to_rpc_result,
};
use crate::session::SessionInner;
use bowline_storage::clock::now;

/// How long an agent's message waits for its session to be opened.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// The service of one connection to an agent.
pub(crate) struct ClientService {
    host: Arc<HostInner>,
    sessions: Mutex<HashMap<SessionId, Arc<SessionInner>>>,
    // The number of sessions being opened whose ids are not known yet.
    pending_openings: watch::Sender<usize>,
    agent_name: OnceLock<String>,
    // The quirk that reports a missing file as empty, if it applies to this agent.
    missing_file_quirk: OnceLock<&'static Quirk>,
    // The runtime of its tasks, for callers that drop it outside of one.
    runtime: Handle,
    elicitations: elicitation::Elicitations,
}

impl std::fmt::Debug for ClientService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Face").finish_non_exhaustive()
    }
}

/// Marks a session that is being opened. An agent may name the session before its id is known here.
pub(crate) struct OpeningGuard<'a>(&'a watch::Sender<usize>);

impl Drop for OpeningGuard<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// A registered session. Unless it is committed, dropping this removes and ends the session.
pub(crate) struct SessionRegistration {
    service: Arc<ClientService>,
    session: Option<Arc<SessionInner>>,
}

impl SessionRegistration {
    /// Keeps the session registered.
    pub(crate) fn commit(mut self) {
        self.session = None;
    }
}

impl Drop for SessionRegistration {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            self.service.sessions().remove(&session.id);
            end_in_background(&self.service.runtime, vec![session]);
        }
    }
}

/// Ends sessions on a background task. If the runtime has ended, dropping the sessions kills their commands.
fn end_in_background(runtime: &Handle, sessions: Vec<Arc<SessionInner>>) {
    runtime.spawn(async move {
        for session in sessions {
            session.end().await;
        }
    });
}

impl ClientService {
    pub(crate) fn new(shared: Arc<HostInner>) -> Self {
        Self {
            host: shared,
            sessions: Mutex::default(),
            pending_openings: watch::Sender::new(0),
            agent_name: OnceLock::new(),
            missing_file_quirk: OnceLock::new(),
            runtime: Handle::current(),
            elicitations: elicitation::Elicitations::new(),
        }
    }

    /// Records the agent's name and quirks.
    pub(crate) fn set_agent_info(&self, initialized: &InitializeResponse) {
        let (mode, agent) = (self.host.options.quirk_mode, initialized.agent_info.as_ref());
        let quirk = Quirk::find(mode, PeerRole::Agent, agent, Workaround::EmptyTextForMissingFile);
        if let Some(quirk) = quirk {
            self.missing_file_quirk.get_or_init(|| quirk);
        }
        if let Some(info) = &initialized.agent_info {
            let name = info.title.clone().unwrap_or_else(|| info.name.clone());
            // Only the first name counts.
            self.agent_name.get_or_init(|| name);
        }
    }

    pub(crate) fn begin_opening(&self) -> OpeningGuard<'_> {
        self.pending_openings.send_modify(|count| *count += 1);
        OpeningGuard(&self.pending_openings)
    }

    /// Registers a session after recording its start. Messages that wait for it are woken when its opening is complete.
    pub(crate) async fn add_session(
        self: &Arc<Self>,
        session: Arc<SessionInner>,
    ) -> Result<SessionRegistration, HostError> {
        if let Err(error) = session.record_start().await {
            session.host.release_name(session.name());
            return Err(error);
        }
        {
            let mut sessions = self.sessions();
            if sessions.contains_key(&session.id) {
                session.host.release_name(session.name());
                return Err(HostError::DuplicateSession);
            }
            // Shown before its first update can arrive.
            session.show(HostEvent::SessionOpened { session: &session.id, name: session.name() });
            sessions.insert(session.id.clone(), session.clone());
        }
        Ok(SessionRegistration { service: self.clone(), session: Some(session) })
    }

    pub(crate) async fn remove_session(&self, id: &SessionId) {
        let session = self.sessions().remove(id);
        if let Some(session) = session {
            session.end().await;
        }
    }

    /// Ends every session.
    pub(crate) async fn end_sessions(&self) {
        let all: Vec<Arc<SessionInner>> = self.sessions().drain().map(|(_, session)| session).collect();
        for session in all {
            session.end().await;
        }
    }

    /// Ends every session in the background.
    pub(crate) fn abandon_sessions(&self) {
        let all: Vec<Arc<SessionInner>> = self.sessions().drain().map(|(_, session)| session).collect();
        end_in_background(&self.runtime, all);
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<SessionInner>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find_session(&self, id: &SessionId) -> Option<Arc<SessionInner>> {
        self.sessions().get(id).cloned()
    }

    /// Returns a session of this connection, waiting briefly for one that is being opened: the agent may be blocked on
    /// this message before it reports the session as open.
    async fn wait_for_session(&self, id: &SessionId) -> Result<Arc<SessionInner>, RpcError> {
        // An open session, the usual case, needs no timer.
        if let Some(session) = self.find_session(id) {
            return Ok(session);
        }
        let unknown = || RpcError::SessionNotFound { session_id: id.clone() };
        timeout(OPEN_TIMEOUT, self.wait_until_opened(id)).await.unwrap_or_else(|_| Err(unknown()))
    }

    async fn wait_until_opened(&self, id: &SessionId) -> Result<Arc<SessionInner>, RpcError> {
        if let Some(session) = self.find_session(id) {
            return Ok(session);
        }
        let mut openings = self.pending_openings.subscribe();
        while *openings.borrow_and_update() > 0 {
            if openings.changed().await.is_err() {
                break;
            }
            if let Some(session) = self.find_session(id) {
                return Ok(session);
            }
        }
        self.find_session(id).ok_or_else(|| RpcError::SessionNotFound { session_id: id.clone() })
    }

    async fn serve_request<T, E, F>(
        &self,
        action: AuditAction,
        id: &SessionId,
        f: impl FnOnce(Arc<SessionInner>) -> F,
    ) -> Result<T, Error>
    where
        E: From<RpcError> + Into<Error>,
        F: Future<Output = Result<T, E>>,
    {
        match self.wait_for_session(id).await {
            Ok(session) => f(session).await.map_err(Into::into),
            Err(failure) => {
                // Refusals are recorded, too, even for unknown sessions.
                let mut entry = AuditEntry::new(now(), action);
                (entry.session, entry.decision) = (Some(id.0.to_string()), AuditDecision::Denied);
                entry.reason = Some(failure.to_string());
                let shared = self.host.clone();
                match run_blocking(move || shared.approvals.record(&entry)).await {
                    Ok(Ok(())) => Err(E::from(failure).into()),
                    _ => Err(E::from(ApprovalError::Unrecorded.into()).into()),
                }
            }
        }
    }

    fn agent_name(&self) -> Option<String> {
        self.agent_name.get().cloned()
    }
}

impl Client for ClientService {
    async fn request_permission(
        &self,
        request: RequestPermissionRequest,
        cx: ClientContext,
    ) -> Result<RequestPermissionResponse, Error> {
        let id = request.session_id.clone();
        self.serve_request(AuditAction::Permission, &id, |session| {
            permission::handle_request(session, self.agent_name(), request, cx)
        })
        .await
    }

    async fn session_update(&self, notification: SessionNotification, _: AgentHandle) {
        match self.wait_for_session(&notification.session_id).await {
            Ok(session) => session.apply_update(&notification),
            Err(unknown) => self.host.front_end.show(HostEvent::Violation {
                session: Some(&notification.session_id),
                description: &unknown.to_string(),
            }),
        }
    }

    async fn unknown_update(&self, update: UnknownUpdate, _: AgentHandle) {
        let kind = update.kind.as_deref().unwrap_or_default();
        let description = format!("an update of the kind {} cannot be read", quote(kind));
        self.host
            .front_end
            .show(HostEvent::Violation { session: update.session_id.as_ref(), description: &description });
    }

    async fn read_text_file(
        &self,
        request: ReadTextFileRequest,
        cx: ClientContext,
    ) -> Result<ReadTextFileResponse, Error> {
        let id = request.session_id.clone();
        let quirk = self.missing_file_quirk.get().copied();
        self.serve_request(AuditAction::Read, &id, |session| {
            files::read(session, self.agent_name(), quirk, request, cx)
        })
        .await
    }

    async fn write_text_file(
        &self,
        request: WriteTextFileRequest,
        cx: ClientContext,
    ) -> Result<WriteTextFileResponse, Error> {
        let id = request.session_id.clone();
        self.serve_request(AuditAction::Write, &id, |session| {
            files::write(session, self.agent_name(), request, cx)
        })
        .await
    }

    async fn list_directory(
        &self,
        request: ListDirectoryRequest,
        cx: ClientContext,
    ) -> Result<ListDirectoryResponse, Error> {
        let id = request.session_id.clone();
        self.serve_request(AuditAction::Read, &id, |session| {
            file_extension::list(session, self.agent_name(), request, cx)
        })
        .await
    }

    async fn stat_file(
        &self,
        request: StatFileRequest,
        cx: ClientContext,
    ) -> Result<StatFileResponse, Error> {
        let id = request.session_id.clone();
        self.serve_request(AuditAction::Read, &id, |session| {
            file_extension::stat(session, self.agent_name(), request, cx)
        })
        .await
    }

    async fn read_file(
        &self,
        request: ReadFileRequest,
        cx: ClientContext,
    ) -> Result<ReadFileResponse, Error> {
        let id = request.session_id.clone();
        self.serve_request(AuditAction::Read, &id, |session| {
            file_extension::read(session, self.agent_name(), request, cx)
        })
        .await
    }

    async fn write_file(
        &self,
        request: WriteFileRequest,
        cx: ClientContext,
    ) -> Result<WriteFileResponse, Error> {
        let id = request.session_id.clone();
        self.serve_request(AuditAction::Write, &id, |session| {
            file_extension::batch::write(session, self.agent_name(), request, cx)
        })
        .await
    }

    async fn batch_files(
        &self,
        request: BatchFilesRequest,
        cx: ClientContext,
    ) -> Result<BatchFilesResponse, Error> {
        let id = request.session_id.clone();
        self.serve_request(AuditAction::Write, &id, |session| {
            file_extension::batch::batch(session, self.agent_name(), request, cx)
        })
        .await
    }

    async fn watch_files(
        &self,
        request: WatchFilesRequest,
        cx: ClientContext,
    ) -> Result<WatchFilesResponse, Error> {
        let id = request.session_id.clone();
        self.serve_request(AuditAction::Read, &id, |session| {
            file_extension::watch::watch(session, self.agent_name(), request, cx)
        })
        .await
    }

    async fn unwatch_files(
        &self,
        request: UnwatchFilesRequest,
        _: ClientContext,
    ) -> Result<UnwatchFilesResponse, Error> {
        let id = request.session_id.clone();
        self.serve_request(AuditAction::Read, &id, |session| file_extension::watch::unwatch(session, request))
            .await
    }

    async fn create_terminal(
        &self,
        request: CreateTerminalRequest,
        cx: ClientContext,
    ) -> Result<CreateTerminalResponse, Error> {
        let id = request.session_id.clone();
        self.serve_request(AuditAction::TerminalCreate, &id, |session| {
            terminals::create(session, self.agent_name(), request, cx)
        })
        .await
    }

    async fn terminal_output(
        &self,
        request: TerminalOutputRequest,
        _: ClientContext,
    ) -> Result<TerminalOutputResponse, Error> {
        let id = request.session_id.clone();
        self.serve_request(AuditAction::Other("terminal/output".to_owned()), &id, |session| {
            terminals::output(session, request)
        })
        .await
    }

    async fn wait_for_terminal_exit(
        &self,
        request: WaitForTerminalExitRequest,
        cx: ClientContext,
    ) -> Result<WaitForTerminalExitResponse, Error> {
        let id = request.session_id.clone();
        self.serve_request(AuditAction::Other("terminal/wait_for_exit".to_owned()), &id, |session| {
            terminals::wait(session, request, cx)
        })
        .await
    }

    async fn kill_terminal(
        &self,
        request: KillTerminalRequest,
        _: ClientContext,
    ) -> Result<KillTerminalResponse, Error> {
        let id = request.session_id.clone();
        self.serve_request(AuditAction::TerminalKill, &id, |session| terminals::kill(session, request)).await
    }

    async fn release_terminal(
        &self,
        request: ReleaseTerminalRequest,
        _: ClientContext,
    ) -> Result<ReleaseTerminalResponse, Error> {
        let id = request.session_id.clone();
        self.serve_request(AuditAction::TerminalRelease, &id, |session| terminals::release(session, request))
            .await
    }

    async fn create_elicitation(
        &self,
        request: CreateElicitationRequest,
        cx: ClientContext,
    ) -> Result<CreateElicitationResponse, Error> {
        let session = match elicitation::scoped_session(&request) {
            Some(id) => match self.wait_for_session(&id).await {
                Ok(session) => Some(session),
                Err(failure) => return to_rpc_result(Err(failure)),
            },
            None => None,
        };
        to_rpc_result(
            elicitation::create(&self.host, &self.elicitations, session, self.agent_name(), request, cx)
                .await,
        )
    }

    async fn complete_elicitation(&self, notification: CompleteElicitationNotification, _: AgentHandle) {
        // Pages that are not pending are ignored.
        if self.elicitations.complete_page(&notification.elicitation_id) {
            self.host.front_end.show(HostEvent::ElicitationCompleted { id: &notification.elicitation_id });
        }
    }

    fn on_violation(&self, violation: RpcViolation) {
        self.host.front_end.show(HostEvent::Violation { session: None, description: &violation.to_string() });
    }
}
