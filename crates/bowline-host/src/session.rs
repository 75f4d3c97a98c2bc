//! One session of an agent: its files, its terminals, its accumulated updates, and its turns.

mod pending_scans;
mod title;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_history::changes::{ChangeId, ChangeOrigin};
use bowline_policy::audit::{AuditAction, AuditDecision, AuditEntry};
use bowline_policy::grants::GrantHolder;
use bowline_protocol::accumulator::{
    AccumulatorOptions, OtherSessionBehavior, SessionAccumulator, SessionChange, SessionSnapshot,
    SessionViolation,
};
use bowline_protocol::schema::v1::{
    ContentBlock, PromptRequest, PromptResponse, SessionConfigOption, SessionId, SessionModeState,
    SessionNotification, StopReason, TerminalId,
};
use bowline_wire::{AgentHandle, CallError};
use bowline_workspace::terminals::LocalTerminals;
use bowline_workspace::workspace as engine;
use tokio::sync::watch;

use crate::error::HostError;
use crate::front_end::HostEvent;
use crate::host::HostInner;
use crate::operations::file_extension::watch::SessionWatches;
use crate::operations::{self, initial_scan, run_blocking};
use pending_scans::PendingScans;

/// A session. Clones share it. When its connection ends, its commands are killed.
#[derive(Debug, Clone)]
pub struct HostSession {
    pub(crate) inner: Arc<SessionInner>,
    pub(crate) agent: AgentHandle,
}

/// The state of a session.
pub(crate) struct SessionInner {
    pub(crate) id: SessionId,
    pub(crate) host: Arc<HostInner>,
    pub(crate) files: engine::WorkspaceSession,
    pub(crate) terminals: LocalTerminals,
    accumulator: Mutex<SessionAccumulator>,
    turn_status: watch::Sender<TurnStatus>,
    // The commands of the current turn. Invariant: apart from ended ones, at most the limit of terminals.
    turn_commands: Mutex<Vec<(Option<u64>, TerminalId)>>,
    pub(crate) pending_scans: PendingScans,
    // The number of its commands whose changes have not been scanned yet.
    pub(crate) unscanned_commands: Arc<AtomicUsize>,
    pub(crate) watches: SessionWatches,
}

impl std::fmt::Debug for SessionInner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Held").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The status of a session's turns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TurnStatus {
    /// The number of the current or last turn; 0 if there was none.
    number: u64,
    state: TurnState,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum TurnState {
    #[default]
    Idle,
    Running,
    Cancelled,
    /// The prompt's future was dropped, and the agent has yet to be notified.
    Ending,
    /// The session has ended.
    SessionEnded,
}

/// The outcome of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptOutcome {
    /// The turn, counted from 1.
    pub turn: u64,
    /// Why the agent stopped.
    pub stop_reason: StopReason,
    /// Changes found on disk that did not pass through the host.
    pub observed_changes: Vec<ChangeId>,
}

impl SessionInner {
    pub(crate) fn new(id: SessionId, shared: Arc<HostInner>, files: engine::WorkspaceSession) -> Self {
        let terminals = LocalTerminals::new(files.clone(), shared.options.terminals.clone());
        let options = AccumulatorOptions {
            other_session: OtherSessionBehavior::Refuse,
            ..AccumulatorOptions::default()
        };
        Self {
            id,
            host: shared,
            files,
            terminals,
            accumulator: Mutex::new(SessionAccumulator::with_options(options)),
            turn_status: watch::Sender::new(TurnStatus::default()),
            turn_commands: Mutex::default(),
            pending_scans: PendingScans::default(),
            unscanned_commands: Arc::default(),
            watches: SessionWatches::default(),
        }
    }

    /// Continues the turn numbers of an existing session, as far as known.
    pub(crate) fn continue_turns_from(&self, turn: u64) {
        self.turn_status.send_modify(|current| current.number = current.number.max(turn));
    }

    /// Tracks a command, to kill it if its turn is cancelled.
    pub(crate) fn track_command(&self, turn: Option<u64>, terminal: TerminalId) {
        let mut commands = self.turn_commands.lock().unwrap_or_else(PoisonError::into_inner);
        commands.retain(|(command_turn, _)| *command_turn == turn);
        // Commands started outside a turn are not killed with one.
        if turn.is_some() {
            commands.push((turn, terminal));
        }
    }

    /// Kills the commands of a cancelled turn. Their terminals stay, for the agent to read and release.
    pub(crate) async fn kill_turn_commands(&self, turn: u64) {
        // The next turn may have begun, and keeps its commands.
        let commands: Vec<(Option<u64>, TerminalId)> = {
            let mut all = self.turn_commands.lock().unwrap_or_else(PoisonError::into_inner);
            all.extract_if(.., |(command_turn, _)| *command_turn == Some(turn)).collect()
        };
        for (_, terminal) in commands {
            // The command may have ended or been released.
            self.terminals.kill(&terminal).await.ok();
        }
    }

    /// Records the start of the session.
    pub(crate) async fn record_start(self: &Arc<Self>) -> Result<(), HostError> {
        let session = self.clone();
        Ok(run_blocking(move || {
            session.host.approvals.record(&session.audit_entry(AuditAction::SessionStart, None))
        })
        .await??)
    }

    pub(crate) fn apply_open_response(
        &self,
        modes: Option<&SessionModeState>,
        options: Option<&[SessionConfigOption]>,
    ) {
        // Only another session's id is a violation here, and this is the session's own id.
        if let Err(violation) = self.accumulator().apply_session_setup(&self.id, modes, options) {
            self.show(HostEvent::Violation { session: Some(&self.id), description: &violation.to_string() });
        }
    }

    /// Applies an update, and shows it.
    pub(crate) fn apply_update(&self, notification: &SessionNotification) {
        let applied: Result<(SessionChange, SessionSnapshot), SessionViolation> = {
            let mut accumulator = self.accumulator();
            accumulator.apply(notification).map(|change| (change, accumulator.snapshot()))
        };
        match applied {
            Ok((change, snapshot)) => {
                self.show(HostEvent::Update { notification, change: &change, snapshot })
            }
            Err(violation) => self
                .show(HostEvent::Violation { session: Some(&self.id), description: &violation.to_string() }),
        }
    }

    pub(crate) fn snapshot(&self) -> SessionSnapshot {
        self.accumulator().snapshot()
    }

    /// Returns the session's name in the journal, in rules and in the audit log: its id, unless another session had
    /// that before.
    pub(crate) fn name(&self) -> &str {
        self.files.id()
    }

    /// Returns the holder of operations started at that status.
    pub(crate) fn holder(&self, turn: TurnStatus) -> GrantHolder {
        let running = matches!(turn.state, TurnState::Running | TurnState::Cancelled | TurnState::Ending);
        GrantHolder { session: self.name().to_owned(), turn: running.then_some(turn.number) }
    }

    /// Returns the current status, which determines the turn of operations started now.
    pub(crate) fn turn_status(&self) -> TurnStatus {
        *self.turn_status.borrow()
    }

    /// Returns whether an operation started at that status is still active: its turn is still running, or, if it was
    /// started outside a turn, the session has not ended.
    pub(crate) fn is_active(&self, start: TurnStatus) -> bool {
        let now = self.turn_status();
        match start.state {
            TurnState::Running => now == start,
            TurnState::Idle => now.state != TurnState::SessionEnded,
            TurnState::Cancelled | TurnState::Ending | TurnState::SessionEnded => false,
        }
    }

    /// Waits until operations started at that status are no longer active.
    pub(crate) async fn wait_until_inactive(&self, start: TurnStatus) {
        let mut turn = self.turn_status.subscribe();
        while self.is_active(start) {
            if turn.changed().await.is_err() {
                // Unreachable in practice: the session owns the sender.
                return;
            }
        }
    }

    /// Waits until the session has ended, without keeping it.
    pub(crate) fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut turn = self.turn_status.subscribe();
        async move { drop(turn.wait_for(|turn| turn.state == TurnState::SessionEnded).await) }
    }

    pub(crate) fn show(&self, event: HostEvent<'_>) {
        self.host.front_end.show(event);
    }

    fn accumulator(&self) -> MutexGuard<'_, SessionAccumulator> {
        self.accumulator.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn audit_entry(&self, action: AuditAction, turn: Option<u64>) -> AuditEntry {
        let mut entry = AuditEntry::new(bowline_storage::clock::now(), action);
        (entry.session, entry.turn) = (Some(self.name().to_owned()), turn);
        entry
    }

    /// Scans for changes on disk. A failure is shown as a notice, and does not stop the session.
    pub(crate) async fn scan_changes(&self, origin: ChangeOrigin) -> Vec<ChangeId> {
        operations::scan_changes(&self.host, origin).await.unwrap_or_else(|error| {
            self.show(HostEvent::Notice { text: &error.to_string() });
            Vec::new()
        })
    }

    pub(crate) fn begin_turn(&self) -> Result<u64, HostError> {
        let mut number = None;
        self.turn_status.send_if_modified(|turn| {
            if turn.state != TurnState::Idle {
                return false;
            }
            *turn = TurnStatus { number: turn.number + 1, state: TurnState::Running };
            number = Some(turn.number);
            true
        });
        let number = number.ok_or_else(|| match self.turn_status().state {
            TurnState::SessionEnded => HostError::SessionEnded,
            _ => HostError::TurnInProgress,
        })?;
        // Updates between turns are not part of this one.
        self.accumulator().mark_turn_boundary();
        // Unused grants from between turns expire.
        self.host.approvals.end_turn(&GrantHolder { session: self.name().to_owned(), turn: None });
        Ok(number)
    }

    /// Ends the turn: its grants expire, its changes are scanned, and the audit log is synced.
    pub(crate) async fn end_turn(
        self: &Arc<Self>,
        turn: u64,
        stop: Option<StopReason>,
    ) -> Result<Vec<ChangeId>, HostError> {
        let holder = GrantHolder { session: self.name().to_owned(), turn: Some(turn) };
        let origin = self.files.origin(Some(turn), None);
        self.turn_status.send_modify(|current| {
            if current.number == turn && current.state != TurnState::SessionEnded {
                current.state = TurnState::Idle;
            }
        });
        self.host.approvals.end_turn(&holder);
        self.accumulator().mark_turn_boundary();
        self.pending_scans.wait_for_ended(&self.terminals).await;
        let observed = if self.host.attributes_changes_to_user() {
            self.scan_changes(ChangeOrigin::default()).await;
            Vec::new()
        } else {
            self.scan_changes(origin).await
        };
        let mut entry = self.audit_entry(AuditAction::TurnEnd, Some(turn));
        entry.reason = stop.map(|stop| format!("{stop:?}"));
        if stop == Some(StopReason::Cancelled) {
            entry.decision = AuditDecision::Cancelled;
        }
        let shared = self.host.clone();
        let recorded = run_blocking(move || {
            shared.approvals.record(&entry)?;
            Ok::<_, HostError>(shared.approvals.audit().sync()?)
        });
        let recorded = recorded.await.and_then(|recorded| recorded);
        // The turn has ended, even if that cannot be recorded.
        self.show(HostEvent::TurnEnded { session: &self.id, turn, stop, observed: &observed });
        recorded.map(|()| observed)
    }

    /// Cancels the turn in progress, if any, and withdraws its questions. Returns its number.
    pub(crate) fn cancel_turn(&self) -> Option<u64> {
        let mut number = None;
        self.turn_status.send_if_modified(|turn| {
            let running = turn.state == TurnState::Running;
            if running {
                turn.state = TurnState::Cancelled;
                number = Some(turn.number);
            }
            running
        });
        if number.is_some() {
            self.accumulator().cancel_open_tool_calls();
            self.host.approvals.end_turn(&self.holder(self.turn_status()));
        }
        number
    }

    /// Ends the session: commands are killed, pending operations are cancelled, and its read state is dropped.
    pub(crate) async fn end(self: &Arc<Self>) {
        let previous =
            self.turn_status.send_replace(TurnStatus { number: u64::MAX, state: TurnState::SessionEnded });
        if previous.state == TurnState::SessionEnded {
            return;
        }
        self.watches.join().await;
        self.terminals.release_all().await;
        self.host.approvals.end_session(self.name());
        self.host.release_name(self.name());
        let session = self.clone();
        let recorded = run_blocking(move || {
            session.files.end();
            session.host.approvals.record(&session.audit_entry(AuditAction::SessionEnd, None))
        });
        if let Ok(Err(error)) = recorded.await {
            self.show(HostEvent::Notice { text: &error.to_string() });
        }
        self.show(HostEvent::SessionEnded { session: &self.id });
    }
}

impl HostSession {
    /// Returns the session's id.
    #[must_use]
    pub fn id(&self) -> &SessionId {
        &self.inner.id
    }

    /// Returns the session's name in the journal, in rules and in the audit log: its id, unless another session had
    /// that before.
    #[must_use]
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// Returns a snapshot of the session, folded from the agent's updates.
    #[must_use]
    pub fn snapshot(&self) -> SessionSnapshot {
        self.inner.snapshot()
    }

    /// Returns the session's files, for example to undo by session.
    #[must_use]
    pub fn files(&self) -> &engine::WorkspaceSession {
        &self.inner.files
    }

    /// Returns the session's terminals, to follow their output.
    #[must_use]
    pub fn terminals(&self) -> &LocalTerminals {
        &self.inner.terminals
    }

    /// Returns the agent, for modes, models and other methods.
    #[must_use]
    pub fn agent(&self) -> &AgentHandle {
        &self.agent
    }

    /// Sends a prompt, and serves the agent until its turn ends.
    ///
    /// # Errors
    /// Fails if another turn is in progress, if the agent fails, or if the turn cannot be recorded.
    pub async fn prompt(&self, prompt: Vec<ContentBlock>) -> Result<PromptOutcome, HostError> {
        let session = &self.inner;
        session.turn_status.subscribe().wait_for(|turn| turn.state != TurnState::Ending).await.ok();
        operations::verify_roots(session.files.roots())?;
        let turn = session.begin_turn()?;
        let start = session.turn_status();
        let guard = TurnGuard {
            session: Some(self.clone()),
            turn,
            _active_turn: ActiveTurnGuard::new(&session.host),
        };
        initial_scan::prepare_turn(&session.host).await?;
        // Changes between turns are attributed to no one; changes during other turns may be theirs.
        if session.host.active_turns.load(Ordering::Relaxed) == 1 {
            session.scan_changes(ChangeOrigin::default()).await;
        }
        let entry = session.audit_entry(AuditAction::TurnStart, Some(turn));
        let shared = session.host.clone();
        run_blocking(move || shared.approvals.record(&entry)).await??;
        session.record_turn_title(turn, &prompt);
        session.show(HostEvent::TurnStarted { session: &session.id, turn });
        if !session.is_active(start) {
            // The prompt was not sent, so the agent needs no cancellation.
            guard.disarm();
            let observed = session.end_turn(turn, Some(StopReason::Cancelled)).await?;
            return Ok(PromptOutcome {
                turn,
                stop_reason: StopReason::Cancelled,
                observed_changes: observed,
            });
        }
        let answer = self.send_prompt(start, prompt).await?;
        let stop = answer.as_ref().ok().map(|answer| answer.stop_reason);
        tokio::select! {
            () = initial_scan::finish_turn(&session.host) => {}
            () = session.wait_until_inactive(start) => {}
        }
        guard.disarm();
        let observed = session.end_turn(turn, stop).await?;
        let answer = answer?;
        Ok(PromptOutcome { turn, stop_reason: answer.stop_reason, observed_changes: observed })
    }

    /// Sends the prompt, and a cancellation only after it, so that an agent never receives them in the wrong order.
    async fn send_prompt(
        &self,
        start: TurnStatus,
        prompt: Vec<ContentBlock>,
    ) -> Result<Result<PromptResponse, CallError>, HostError> {
        let session = &self.inner;
        let answer = self.agent.prompt(PromptRequest::new(session.id.clone(), prompt));
        tokio::pin!(answer);
        let mut is_cancelled = false;
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => return Ok(answer),
                () = session.ended() => return Err(HostError::SessionEnded),
                () = session.wait_until_inactive(start), if !is_cancelled => {
                    is_cancelled = true;
                    // If the agent is gone, the prompt's own error reports it.
                    self.agent.cancel(session.id.clone()).await.ok();
                    session.kill_turn_commands(start.number).await;
                }
            }
        }
    }

    /// Sends a prompt that consists of text.
    ///
    /// # Errors
    /// Fails as [`HostSession::prompt`] does.
    pub async fn prompt_text(&self, text: impl Into<String>) -> Result<PromptOutcome, HostError> {
        self.prompt(vec![ContentBlock::from(text.into())]).await
    }

    /// Cancels the turn in progress: its questions are withdrawn, its commands are killed, and the agent is notified.
    /// The prompt returns when the agent answers it.
    pub fn cancel(&self) {
        self.inner.cancel_turn();
    }
}

/// Counts a turn while it is in progress.
pub(crate) struct ActiveTurnGuard(Arc<HostInner>);

impl std::fmt::Debug for ActiveTurnGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Counted").finish_non_exhaustive()
    }
}

impl ActiveTurnGuard {
    pub(crate) fn new(shared: &Arc<HostInner>) -> Self {
        shared.active_turns.fetch_add(1, Ordering::Relaxed);
        Self(shared.clone())
    }
}

impl Drop for ActiveTurnGuard {
    fn drop(&mut self) {
        self.0.active_turns.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Cancels and ends a turn when the future of its prompt is dropped.
struct TurnGuard {
    session: Option<HostSession>,
    turn: u64,
    _active_turn: ActiveTurnGuard,
}

impl TurnGuard {
    fn disarm(mut self) {
        self.session = None;
    }
}

impl Drop for TurnGuard {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        let (inner, turn) = (session.inner.clone(), self.turn);
        let holder = GrantHolder { session: inner.name().to_owned(), turn: Some(turn) };
        inner.host.approvals.end_turn(&holder);
        let runtime = tokio::runtime::Handle::try_current();
        let state = if runtime.is_ok() { TurnState::Ending } else { TurnState::Idle };
        inner.turn_status.send_modify(|current| {
            if current.number == turn && current.state != TurnState::SessionEnded {
                current.state = state;
            }
        });
        inner.accumulator().cancel_open_tool_calls();
        // The next prompt waits until the agent is notified, so that the agent does not cancel that one.
        if let Ok(runtime) = runtime {
            runtime.spawn(async move {
                session.agent.cancel(inner.id.clone()).await.ok();
                inner.kill_turn_commands(turn).await;
                inner
                    .end_turn(turn, None)
                    .await
                    .map_err(|error| inner.show(HostEvent::Notice { text: &error.to_string() }))
            });
        }
    }
}
