//! The engine as an interceptor: it scans the disk at the boundaries of turns and tool calls, applies rules to the
//! agent's requests, and serves what the editor lacks.
//!
//! Messages that none of this concerns pass unchanged. The next interceptor (`EngineInterceptor::new`) sees each
//! message that is not held or answered here.
//!
//! A session of the engine accompanies each session of the editor. Messages do not wait for scans, except a prompt (at
//! most 10 s) and the end of a turn (2 s; only its own answer if other sessions have turns). A change is attributed to
//! the open call that names the file, else to the call the scan was for ([`bowline_history::attribution`]), journalled
//! as observed, and shown as a diff on the call. Content that the agent later sends for the call gets the same diffs,
//! since it would replace them.
//!
//! If the engine cannot be opened, messages pass, except requests that rules should have judged: those are refused.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bowline_history::attribution::{AttributionTracker, CallBoundary, SessionDirectory};
use bowline_protocol::diagnostics::DiagnosticsNotification;
use bowline_protocol::file_extension::FileCapabilities;
use bowline_protocol::quirks::{Quirk, QuirkMode};
use bowline_protocol::relay::{
    self, Method, ProxySide, RelayEvent, RelayedSession, ToolCallMessage, parse_params,
};
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::{ClientCapabilities, SessionId, SessionNotification, TerminalId};
use bowline_wire::Caller;
use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::engine::{Engine, EngineSession};
use crate::interceptor::{
    BoxFuture, Disposition, InterceptDecision, InterceptedMessage, Interceptor, MessageOrder,
};

mod diagnostics;
mod live_output;
mod missing_file;
mod observe;
mod pending_sessions;
pub(crate) mod policy;
mod route_writes;
mod serve;
mod sessions;

use diagnostics::DiagnosticsQueue;
use live_output::OutputFollower;
use missing_file::MissingFiles;
use observe::ScanJob;
use pending_sessions::{DeferredRequest, PendingSessions};
pub(crate) use serve::workspace_unavailable;
pub use sessions::EngineSessions;

/// The most sessions with an engine; requests of further ones pass, or are refused if rules apply.
const MAX_SESSIONS: usize = 256;

/// How long the start of a turn waits for the scan of the disk. Changes are found only against a completed scan.
const TURN_START_SCAN_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the end of a turn waits for the scan. Changes found later are still recorded and shown.
const TURN_END_SCAN_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a message waits for the engine to open.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// The most requests served at once; further ones are refused as busy. Half of all messages that may be held, so that
/// the messages that end them can still arrive.
const MAX_SERVED_REQUESTS: usize = 32;

/// How many slots of a session's job queue are reserved for the start and the end of turns.
const RESERVED_JOB_SLOTS: usize = 8;

/// The most files per session that are remembered as read through the editor.
const MAX_READ_PATHS: usize = 4096;

/// The client name of an editor that is Bowline's own host.
const OWN_CLIENT_NAME: &str = "bowline";

/// What the interceptor does in addition to forwarding messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EngineInterceptorOptions {
    /// Whether rules apply to the agent's requests.
    pub enforce_policy: bool,
    /// Whether methods that the editor lacks are served here.
    pub serve_as_host: bool,
    /// Whether the agent's changes on disk are reverted and sent through the editor.
    pub route_writes: bool,
    /// Whether known faults of agents are worked around.
    pub quirks: QuirkMode,
}

/// The channel for our own updates to the editor. They are sent before any held messages.
pub type EditorUpdateSender = mpsc::Sender<Vec<u8>>;

/// The channel for our own notifications to the agent.
pub type AgentUpdateSender = mpsc::Sender<Vec<u8>>;

/// The caller for our own requests, set once a proxy exists.
#[derive(Debug, Clone, Default)]
pub struct CallerSlot(Arc<OnceLock<Caller>>);

impl CallerSlot {
    /// Sets the caller. Only the first call has an effect.
    pub fn set(&self, caller: Caller) {
        self.0.set(caller).ok();
    }

    /// Returns the caller, if it has been set.
    #[must_use]
    pub fn caller(&self) -> Option<&Caller> {
        self.0.get()
    }
}

/// An interceptor that runs an engine alongside the message stream.
pub struct EngineInterceptor {
    engine: Arc<dyn Engine>,
    options: EngineInterceptorOptions,
    caller: CallerSlot,
    editor_updates: EditorUpdateSender,
    agent_updates: AgentUpdateSender,
    next: Box<dyn Interceptor>,
    editor_capabilities: EditorCapabilities,
    // The quirk by which the agent gets empty text for a missing file, if it applies.
    missing_file_quirk: Option<&'static Quirk>,
    // Invariant: at most `MAX_SESSIONS`, and `engine_sessions` has the same entries.
    sessions: HashMap<SessionId, InterceptedSession>,
    engine_sessions: EngineSessions,
    pending_sessions: PendingSessions,
    // The permits for requests that are served here and may take long.
    serve_permits: Arc<Semaphore>,
    output_follower: OutputFollower,
}

/// The capabilities of the editor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct EditorCapabilities {
    can_read: bool,
    can_write: bool,
    has_terminals: bool,
    // The methods of the file extension that it serves.
    file_extension: FileCapabilities,
    // The editor displays the output of an agent's terminals as it comes.
    displays_output: bool,
    // The editor is Bowline itself, which records its writes in the same journal.
    keeps_journal: bool,
}

impl EditorCapabilities {
    fn new(capabilities: &ClientCapabilities, name: Option<&str>) -> Self {
        let ClientCapabilities { fs, terminal, .. } = capabilities;
        let records = name == Some(OWN_CLIENT_NAME);
        let extension = capabilities.meta.as_ref().map(FileCapabilities::from_meta).unwrap_or_default();
        Self {
            can_read: fs.read_text_file,
            can_write: fs.write_text_file,
            has_terminals: *terminal,
            file_extension: extension,
            displays_output: capabilities
                .meta
                .as_ref()
                .is_some_and(|meta| meta.get("terminal_output") == Some(&true.into())),
            keeps_journal: records,
        }
    }

    /// Returns whether it has files of its own, with or without the file extension. Unsaved text would be missing in files
    /// that are served here.
    fn has_files(self) -> bool {
        self.can_read || self.can_write || self.file_extension != FileCapabilities::default()
    }

    fn supports(self, method: Method) -> bool {
        match method {
            Method::Read => self.can_read,
            Method::Write => self.can_write,
            Method::CreateTerminal | Method::Terminal => self.has_terminals,
            Method::FileExtension => self.has_files(),
            _ => true,
        }
    }
}

/// A session whose messages are intercepted.
struct InterceptedSession {
    context: Arc<SessionContext>,
    jobs: mpsc::Sender<ScanJob>,
    // The number of open prompts: the turn continues until the last one is answered.
    open_prompts: usize,
    // The files that the agent has read through the editor. Invariant: at most `MAX_READ_PATHS`.
    read_paths: HashSet<String>,
    // The terminals whose output is sent to the editor while they run.
    followed_terminals: HashSet<TerminalId>,
}

/// The state shared by a session's scanner, its interceptor, and the server that is added to the session.
pub(crate) struct SessionContext {
    id: SessionId,
    engine: watch::Receiver<EngineSessionState>,
    // Locked only briefly, and never across an await.
    attribution: Mutex<AttributionTracker>,
    // Likewise.
    diagnostics: Mutex<DiagnosticsQueue>,
    // Likewise.
    missing_files: Mutex<MissingFiles>,
    // Whether the editor journals its own writes.
    editor_keeps_journal: bool,
}

/// The state of the engine's session.
#[derive(Clone)]
enum EngineSessionState {
    Opening,
    Failed,
    Open(Arc<dyn EngineSession>),
}

impl SessionContext {
    fn attribution(&self) -> MutexGuard<'_, AttributionTracker> {
        self.attribution.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn missing_files(&self) -> MutexGuard<'_, MissingFiles> {
        self.missing_files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the open tool call of the agent that names a file.
    pub(crate) fn open_call_naming(&self, path: &str) -> Option<String> {
        self.attribution().open_call_naming(path)
    }

    /// Returns the engine that journals the editor's writes, or `None` if there is no engine or the editor journals
    /// them itself.
    pub(crate) async fn journalling_engine(&self) -> Option<Arc<dyn EngineSession>> {
        if self.editor_keeps_journal { None } else { self.engine().await }
    }

    /// Returns the engine's session, or `None` if it failed to open or takes too long.
    pub(crate) async fn engine(&self) -> Option<Arc<dyn EngineSession>> {
        let mut engine = self.engine.clone();
        let opened = engine.wait_for(|state| !matches!(state, EngineSessionState::Opening));
        match &*timeout(OPEN_TIMEOUT, opened).await.ok()?.ok()? {
            EngineSessionState::Open(session) => Some(session.clone()),
            EngineSessionState::Opening | EngineSessionState::Failed => None,
        }
    }
}

impl EngineInterceptor {
    /// Creates an interceptor. The sessions are registered in `engine_sessions`, updates are sent to `editor_updates` and
    /// `agent_updates`, and
    /// `next` intercepts the messages after this one.
    pub fn new(
        engine: Arc<dyn Engine>,
        engine_sessions: EngineSessions,
        (caller, editor_updates, agent_updates): (CallerSlot, EditorUpdateSender, AgentUpdateSender),
        next: impl Interceptor + 'static,
    ) -> Self {
        Self {
            engine,
            options: engine_sessions.options,
            caller,
            output_follower: OutputFollower::new(editor_updates.clone()),
            editor_updates,
            agent_updates,
            next: Box::new(next),
            editor_capabilities: EditorCapabilities::default(),
            missing_file_quirk: None,
            sessions: HashMap::new(),
            engine_sessions,
            pending_sessions: PendingSessions::default(),
            serve_permits: Arc::new(Semaphore::new(MAX_SERVED_REQUESTS)),
        }
    }

    fn open_session(&mut self, opened: &RelayedSession) {
        if self.sessions.len() >= MAX_SESSIONS || self.sessions.contains_key(&opened.session) {
            return;
        }
        let (state_sender, engine) = watch::channel(EngineSessionState::Opening);
        let directory = opened.opening.cwd.to_string_lossy().into_owned();
        let directory = SessionDirectory { editor_path: directory.clone(), canonical_path: directory };
        let attribution = Mutex::new(AttributionTracker::new(&opened.session, directory));
        let (id, diagnostics, missing) = (opened.session.clone(), Mutex::default(), Mutex::default());
        let records = self.editor_capabilities.keeps_journal;
        let shared = Arc::new(SessionContext {
            id,
            engine,
            attribution,
            diagnostics,
            missing_files: missing,
            editor_keeps_journal: records,
        });
        self.engine_sessions.insert(&shared);
        let (opening, context) = (self.engine.open_session(opened), shared.clone());
        bowline_task::spawn(async move {
            let opened = opening.await;
            if let Some(session) = &opened {
                context.attribution().set_directory(session.directory());
            }
            // Waiting tasks hold the receivers.
            state_sender.send_replace(opened.map_or(EngineSessionState::Failed, EngineSessionState::Open));
        });
        let EditorCapabilities { can_read: read, can_write: write, .. } = self.editor_capabilities;
        let routes = (self.options.route_writes && read && write).then(|| self.caller.clone());
        let jobs = observe::spawn_scanner(shared.clone(), self.editor_updates.clone(), routes);
        let session = InterceptedSession {
            context: shared,
            jobs,
            open_prompts: 0,
            read_paths: HashSet::new(),
            followed_terminals: HashSet::new(),
        };
        self.sessions.insert(opened.session.clone(), session);
    }

    /// Defers a request that rules apply to if its session is still opening.
    fn defer_if_pending(&mut self, message: &InterceptedMessage<'_>) -> Option<InterceptDecision> {
        let session = match message.fact {
            RelayEvent::PermissionRequested(session, _) => session,
            RelayEvent::AgentRequest(method, Some(session), _) if method.needs_policy() => session,
            _ => return None,
        };
        let must_wait =
            self.options.enforce_policy && message.from == ProxySide::Agent && self.is_opening(session);
        must_wait.then(|| self.pending_sessions.defer(session, message))
    }

    /// Judges the deferred requests whose session is now open, and refuses those whose session failed to open: one at a
    /// time, in order of arrival.
    fn judge_deferred(&mut self) {
        let mut turns = Vec::new();
        for request in std::mem::take(&mut self.pending_sessions.deferred) {
            if self.is_opening(&request.session) {
                self.pending_sessions.deferred.push(request);
                continue;
            }
            let DeferredRequest { session, fact, id, line, decision, done } = request;
            if decision.is_closed() {
                continue;
            }
            let decided = if self.sessions.contains_key(&session) {
                self.intercept(InterceptedMessage {
                    from: ProxySide::Agent,
                    fact: &fact,
                    id: id.as_ref(),
                    line: &line,
                })
            } else {
                self.refuse_unjudged(Some(&session))
            };
            let (begin, turn) = oneshot::channel();
            // If the receiver is gone, the request has been answered.
            decision.send((decided, turn)).unwrap_or_default();
            turns.push((begin, done));
        }
        if turns.is_empty() {
            return;
        }
        bowline_task::spawn(async move {
            for (begin, done) in turns {
                begin.send(()).unwrap_or_default();
                done.await.unwrap_or_default();
            }
        });
    }

    fn is_opening(&self, session: &SessionId) -> bool {
        !self.sessions.contains_key(session) && self.pending_sessions.may_be_pending(session)
    }

    fn begin_turn(&mut self, id: &SessionId, message: &InterceptedMessage<'_>) -> Option<InterceptDecision> {
        let session = self.sessions.get_mut(id)?;
        session.open_prompts += 1;
        if session.open_prompts > 1 {
            return None;
        }
        let (done, started) = oneshot::channel();
        let prompt = relay::prompt_text(message.line);
        session.jobs.try_send(ScanJob::TurnStart { prompt, done }).ok()?;
        let disposition = self.next_disposition(message);
        // Neither the user's next message nor a cancellation may overtake it.
        Some(InterceptDecision::Later(
            MessageOrder::Keep,
            Box::pin(async move {
                timeout(TURN_START_SCAN_TIMEOUT, started).await.map_or_else(drop, drop);
                disposition.await
            }),
        ))
    }

    fn end_turn(&mut self, id: &SessionId, message: &InterceptedMessage<'_>) -> Option<InterceptDecision> {
        let session = self.sessions.get_mut(id)?;
        session.open_prompts = session.open_prompts.checked_sub(1)?;
        if session.open_prompts > 0 {
            return None;
        }
        let (done, ended) = oneshot::channel();
        session.jobs.try_send(ScanJob::TurnEnd(done)).ok()?;
        let is_alone = self.sessions.values().all(|session| session.open_prompts == 0);
        // The agent's messages in other sessions do not wait for this session's scan.
        let order = if is_alone { MessageOrder::Keep } else { MessageOrder::Overtake };
        let disposition = self.next_disposition(message);
        Some(InterceptDecision::Later(
            order,
            Box::pin(async move {
                timeout(TURN_END_SCAN_TIMEOUT, ended).await.map_or_else(drop, drop);
                disposition.await
            }),
        ))
    }

    /// Passes a held message to the next interceptor, and returns its disposition.
    fn next_disposition(&mut self, message: &InterceptedMessage<'_>) -> BoxFuture<'static, Disposition> {
        match self.next.intercept(*message) {
            InterceptDecision::Now(disposition) => Box::pin(std::future::ready(disposition)),
            InterceptDecision::Later(_, disposition) => disposition,
        }
    }

    /// Records the agent's update of a tool call. Returns a replacement for the message if it would remove the diffs
    /// that were shown on the call.
    fn update_tool_call(&mut self, message: &ToolCallMessage, line: &Bytes) -> Option<Vec<u8>> {
        let session = self.sessions.get_mut(&message.session)?;
        let notification = parse_params::<SessionNotification>(line)?;
        let mut attribution = session.context.attribution();
        let boundary = attribution.update(&message.call, &notification);
        let rewritten = attribution.with_shown_diffs(&message.call, line);
        drop(attribution);
        // If the queue is full, one of the queued scans finds the change.
        if boundary != CallBoundary::Within && session.jobs.capacity() > RESERVED_JOB_SLOTS {
            drop(session.jobs.try_send(ScanJob::ToolCall(message.call.clone())));
        }
        let EditorCapabilities { displays_output, has_terminals, .. } = self.editor_capabilities;
        if self.options.serve_as_host && displays_output && !has_terminals {
            let followed = &mut session.followed_terminals;
            self.output_follower.follow_terminals(&session.context, followed, &notification.update);
        }
        rewritten
    }

    /// Forwards diagnostics to the session that they name, or to all sessions.
    fn forward_diagnostics(&self, notification: &DiagnosticsNotification) {
        let is_addressed = |id| notification.session_id.as_ref().is_none_or(|named| named == id);
        for (_, session) in self.sessions.iter().filter(|(id, _)| is_addressed(*id)) {
            session.context.queue_diagnostics(notification);
        }
    }

    fn close_session(&mut self, id: &SessionId) {
        self.engine_sessions.remove(id);
        if let Some(session) = self.sessions.remove(id) {
            bowline_task::spawn(async move {
                if let Some(engine) = session.context.engine().await {
                    engine.end_session().await;
                }
            });
        }
    }
}

impl Interceptor for EngineInterceptor {
    fn intercept(&mut self, message: InterceptedMessage<'_>) -> InterceptDecision {
        let InterceptedMessage { from, fact, id, line } = message;
        let message = &message;
        if let Some(deferred) = self.defer_if_pending(message) {
            return deferred;
        }
        let decision = match fact {
            RelayEvent::Initialize(capabilities) => return self.handle_initialize(capabilities, message),
            RelayEvent::Initialized(_) if from == ProxySide::Agent => {
                self.record_agent_info(line);
                None
            }
            RelayEvent::SessionOpening(opening) if from == ProxySide::Editor => {
                self.engine.prepare(opening);
                self.pending_sessions.add(opening);
                None
            }
            RelayEvent::SessionOpened(RelayedSession { opening, .. })
            | RelayEvent::SessionNotOpened(opening)
                if from == ProxySide::Agent =>
            {
                self.pending_sessions.remove(opening);
                if let RelayEvent::SessionOpened(opened) = fact {
                    self.open_session(opened);
                }
                let decision = self.next.intercept(*message);
                self.judge_deferred();
                return decision;
            }
            RelayEvent::TurnStarted(session) if from == ProxySide::Editor => {
                self.begin_turn(session, message)
            }
            RelayEvent::TurnEnded(session) if from == ProxySide::Agent => self.end_turn(session, message),
            RelayEvent::ToolCall(call) if from == ProxySide::Agent => {
                let rewritten = self.update_tool_call(call, line);
                return match self.next.intercept(*message) {
                    InterceptDecision::Now(Disposition::Pass) => rewritten
                        .map_or(InterceptDecision::PASS, |rewritten| {
                            InterceptDecision::Now(Disposition::Replace(vec![rewritten]))
                        }),
                    decision => decision,
                };
            }
            RelayEvent::PermissionRequested(session, _) if from == ProxySide::Agent => {
                self.judge_permission_request(session, message)
            }
            RelayEvent::PermissionAnswered(session, call) if from == ProxySide::Editor => {
                self.record_permission_outcome(session, call, message)
            }
            RelayEvent::AgentRequest(method, session, read) if from == ProxySide::Agent && id.is_some() => {
                self.judge_client_request(*method, session.as_ref(), read.as_ref(), line)
            }
            RelayEvent::TurnCancelled(session) => {
                self.cancel_turn(session);
                None
            }
            RelayEvent::SessionClosed(_, session) => {
                self.close_session(session);
                None
            }
            RelayEvent::DiagnosticsShared(notification) if from == ProxySide::Editor => {
                self.forward_diagnostics(notification);
                None
            }
            _ => None,
        };
        decision.unwrap_or_else(|| self.next.intercept(*message))
    }
}

/// Returns the error for a request that the rules cannot judge.
pub(crate) fn policy_unavailable() -> RpcError {
    let reason =
        "rules are to be applied, and the proxy has none for this session: its stderr says why".to_owned();
    RpcError::Denied { reason }
}

#[cfg(test)]
mod tests;
