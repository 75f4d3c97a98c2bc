//! What an agent can ask of its client, answered: one method each, for the session it names.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bowline_state::audit::{Action, Decision, Entry};
use bowline_state::failure::{Failure, quote};
use bowline_state::quirks::{PeerRole, Quirk, Workaround};
use bowline_state::schema::v1::{
    CompleteElicitationNotification, CreateElicitationRequest, CreateElicitationResponse,
    CreateTerminalRequest, CreateTerminalResponse, Error, InitializeResponse, KillTerminalRequest,
    KillTerminalResponse, ReadTextFileRequest, ReadTextFileResponse, ReleaseTerminalRequest,
    ReleaseTerminalResponse, RequestPermissionRequest, RequestPermissionResponse, SessionId,
    SessionNotification, TerminalOutputRequest, TerminalOutputResponse, WaitForTerminalExitRequest,
    WaitForTerminalExitResponse, WriteTextFileRequest, WriteTextFileResponse,
};
use bowline_wire::peer::Breach;
use bowline_wire::{AgentHandle, Client, ClientContext, UnknownUpdate};
use bowline_workspace::approvals::Refused;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::error::HostError;
use crate::front_end::Event;
use crate::host::Shared;
use crate::operations::{answer, blocking, elicitation, files, permission, terminals};
use crate::session::Held;
use bowline_workspace::clock::now;

/// How long an agent's message waits for its session to be opened.
const PATIENCE: Duration = Duration::from_secs(5);

/// The host as one agent sees it.
pub(crate) struct Face {
    shared: Arc<Shared>,
    sessions: Mutex<HashMap<SessionId, Arc<Held>>>,
    // How many sessions are being opened whose ids are not known yet.
    opening: watch::Sender<usize>,
    agent_name: OnceLock<String>,
    // By which it is told that a missing file is empty.
    missing_file: OnceLock<&'static Quirk>,
    // Where its tasks run, for whoever lets go of it elsewhere.
    runtime: Handle,
    elicitations: elicitation::Elicitations,
}

impl std::fmt::Debug for Face {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Face").finish_non_exhaustive()
    }
}

/// A session is being opened. An agent may name it before its id is known here.
pub(crate) struct Opening<'a>(&'a watch::Sender<usize>);

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|opening| *opening -= 1);
    }
}

/// A session that is served, and is not any more if its opening is given up.
pub(crate) struct Added {
    face: Arc<Face>,
    held: Option<Arc<Held>>,
}

impl Added {
    /// The session is open.
    pub(crate) fn keep(mut self) {
        self.held = None;
    }
}

impl Drop for Added {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            self.face.sessions().remove(&held.id);
            abandon(&self.face.runtime, vec![held]);
        }
    }
}

/// Ends sessions without waiting for it. Where there is no runtime any more, letting go of them kills their commands.
fn abandon(runtime: &Handle, sessions: Vec<Arc<Held>>) {
    runtime.spawn(async move {
        for held in sessions {
            held.end().await;
        }
    });
}

impl Face {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            sessions: Mutex::default(),
            opening: watch::Sender::new(0),
            agent_name: OnceLock::new(),
            missing_file: OnceLock::new(),
            runtime: Handle::current(),
            elicitations: elicitation::Elicitations::new(),
        }
    }

    /// Notes how the agent calls itself.
    pub(crate) fn met(&self, initialized: &InitializeResponse) {
        let (mode, agent) = (self.shared.settings.quirks, initialized.agent_info.as_ref());
        let quirk = Quirk::find(mode, PeerRole::Agent, agent, Workaround::EmptyTextForMissingFile);
        if let Some(quirk) = quirk {
            self.missing_file.get_or_init(|| quirk);
        }
        if let Some(info) = &initialized.agent_info {
            let name = info.title.clone().unwrap_or_else(|| info.name.clone());
            // It is told once.
            self.agent_name.get_or_init(|| name);
        }
    }

    pub(crate) fn opening(&self) -> Opening<'_> {
        self.opening.send_modify(|opening| *opening += 1);
        Opening(&self.opening)
    }

    /// Adds a session, once it is recorded. What waits for it is woken when its opening is done.
    pub(crate) async fn add(self: &Arc<Self>, held: Arc<Held>) -> Result<Added, HostError> {
        if let Err(error) = held.started().await {
            held.shared.free_name(held.name());
            return Err(error);
        }
        {
            let mut sessions = self.sessions();
            if sessions.contains_key(&held.id) {
                held.shared.free_name(held.name());
                return Err(HostError::SessionTwice);
            }
            // Before the first of its updates can come.
            held.show(Event::SessionOpened { session: &held.id, name: held.name() });
            sessions.insert(held.id.clone(), held.clone());
        }
        Ok(Added { face: self.clone(), held: Some(held) })
    }

    pub(crate) async fn remove(&self, id: &SessionId) {
        let held = self.sessions().remove(id);
        if let Some(held) = held {
            held.end().await;
        }
    }

    /// Ends every session.
    pub(crate) async fn end(&self) {
        let all: Vec<Arc<Held>> = self.sessions().drain().map(|(_, held)| held).collect();
        for held in all {
            held.end().await;
        }
    }

    /// Ends every session without waiting for it.
    pub(crate) fn abandon(&self) {
        let all: Vec<Arc<Held>> = self.sessions().drain().map(|(_, held)| held).collect();
        abandon(&self.runtime, all);
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Held>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self, id: &SessionId) -> Option<Arc<Held>> {
        self.sessions().get(id).cloned()
    }

    /// Returns a session of this connection. One that is being opened is waited for, but not for long: the agent may wait
    /// for this before it says that the session is open.
    async fn session(&self, id: &SessionId) -> Result<Arc<Held>, Failure> {
        // Most often it is open, and nobody has to look at a clock.
        if let Some(held) = self.known(id) {
            return Ok(held);
        }
        let unknown = || Failure::SessionNotFound { session_id: id.clone() };
        timeout(PATIENCE, self.opened(id)).await.unwrap_or_else(|_| Err(unknown()))
    }

    async fn opened(&self, id: &SessionId) -> Result<Arc<Held>, Failure> {
        if let Some(held) = self.known(id) {
            return Ok(held);
        }
        let mut opening = self.opening.subscribe();
        while *opening.borrow_and_update() > 0 {
            if opening.changed().await.is_err() {
                break;
            }
            if let Some(held) = self.known(id) {
                return Ok(held);
            }
        }
        self.known(id).ok_or_else(|| Failure::SessionNotFound { session_id: id.clone() })
    }

    async fn serve<T, F>(
        &self,
        action: Action,
        id: &SessionId,
        act: impl FnOnce(Arc<Held>) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        match self.session(id).await {
            Ok(held) => answer(act(held).await),
            Err(failure) => {
                // What is refused is recorded, whoever asked.
                let mut entry = Entry::new(now(), action);
                (entry.session, entry.decision) = (Some(id.0.to_string()), Decision::Denied);
                entry.reason = Some(failure.to_string());
                let shared = self.shared.clone();
                match blocking(move || shared.approvals.record(&entry)).await {
                    Ok(Ok(())) => answer(Err(failure)),
                    _ => answer(Err(Refused::Unrecorded.into())),
                }
            }
        }
    }

    fn agent_name(&self) -> Option<String> {
        self.agent_name.get().cloned()
    }
}

impl Client for Face {
    async fn request_permission(
        &self,
        request: RequestPermissionRequest,
        cx: ClientContext,
    ) -> Result<RequestPermissionResponse, Error> {
        let id = request.session_id.clone();
        self.serve(Action::Permission, &id, |held| permission::request(held, self.agent_name(), request, cx))
            .await
    }

    async fn session_update(&self, notification: SessionNotification, _: AgentHandle) {
        match self.session(&notification.session_id).await {
            Ok(held) => held.update(&notification),
            Err(unknown) => self
                .shared
                .front_end
                .show(Event::Breach { session: Some(&notification.session_id), what: &unknown.to_string() }),
        }
    }

    async fn unknown_update(&self, update: UnknownUpdate, _: AgentHandle) {
        let kind = update.kind.as_deref().unwrap_or_default();
        if let Some(id) = &update.session_id
            && let Ok(held) = self.session(id).await
        {
            held.unknown_update(kind, &update.params);
        }
        let what = format!("an update of the kind {} cannot be read", quote(kind));
        self.shared.front_end.show(Event::Breach { session: update.session_id.as_ref(), what: &what });
    }

    async fn read_text_file(
        &self,
        request: ReadTextFileRequest,
        cx: ClientContext,
    ) -> Result<ReadTextFileResponse, Error> {
        let id = request.session_id.clone();
        let quirk = self.missing_file.get().copied();
        self.serve(Action::Read, &id, |held| files::read(held, self.agent_name(), quirk, request, cx)).await
    }

    async fn write_text_file(
        &self,
        request: WriteTextFileRequest,
        cx: ClientContext,
    ) -> Result<WriteTextFileResponse, Error> {
        let id = request.session_id.clone();
        self.serve(Action::Write, &id, |held| files::write(held, self.agent_name(), request, cx)).await
    }

    async fn create_terminal(
        &self,
        request: CreateTerminalRequest,
        cx: ClientContext,
    ) -> Result<CreateTerminalResponse, Error> {
        let id = request.session_id.clone();
        self.serve(Action::TerminalCreate, &id, |held| {
            terminals::create(held, self.agent_name(), request, cx)
        })
        .await
    }

    async fn terminal_output(
        &self,
        request: TerminalOutputRequest,
        _: ClientContext,
    ) -> Result<TerminalOutputResponse, Error> {
        let id = request.session_id.clone();
        self.serve(Action::Other("terminal/output".to_owned()), &id, |held| terminals::output(held, request))
            .await
    }

    async fn wait_for_terminal_exit(
        &self,
        request: WaitForTerminalExitRequest,
        cx: ClientContext,
    ) -> Result<WaitForTerminalExitResponse, Error> {
        let id = request.session_id.clone();
        self.serve(Action::Other("terminal/wait_for_exit".to_owned()), &id, |held| {
            terminals::wait(held, request, cx)
        })
        .await
    }

    async fn kill_terminal(
        &self,
        request: KillTerminalRequest,
        _: ClientContext,
    ) -> Result<KillTerminalResponse, Error> {
        let id = request.session_id.clone();
        self.serve(Action::TerminalKill, &id, |held| terminals::kill(held, request)).await
    }

    async fn release_terminal(
        &self,
        request: ReleaseTerminalRequest,
        _: ClientContext,
    ) -> Result<ReleaseTerminalResponse, Error> {
        let id = request.session_id.clone();
        self.serve(Action::TerminalRelease, &id, |held| terminals::release(held, request)).await
    }

    async fn create_elicitation(
        &self,
        request: CreateElicitationRequest,
        cx: ClientContext,
    ) -> Result<CreateElicitationResponse, Error> {
        let held = match elicitation::session(&request) {
            Some(id) => match self.session(&id).await {
                Ok(held) => Some(held),
                Err(failure) => return answer(Err(failure)),
            },
            None => None,
        };
        answer(
            elicitation::create(&self.shared, &self.elicitations, held, self.agent_name(), request, cx).await,
        )
    }

    async fn complete_elicitation(&self, notification: CompleteElicitationNotification, _: AgentHandle) {
        // Of a page that nobody waits for there is nothing to tell.
        if self.elicitations.complete(&notification.elicitation_id) {
            self.shared.front_end.show(Event::ElicitationCompleted { id: &notification.elicitation_id });
        }
    }

    fn breach(&self, breach: Breach) {
        self.shared.front_end.show(Event::Breach { session: None, what: &breach.to_string() });
    }
}
