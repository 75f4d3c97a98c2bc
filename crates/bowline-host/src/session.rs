//! One session of an agent: its files, its terminals, what it has said so far, and its turns.

mod followed;
mod title;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_state::accumulator::{Breach, Change, Options, OtherSession, SessionAccumulator, Snapshot};
use bowline_state::audit::{Action, Decision, Entry};
use bowline_state::changes::{ChangeId, Origin};
use bowline_state::grants::Holder;
use bowline_state::schema::v1::{
    ContentBlock, PromptRequest, PromptResponse, SessionConfigOption, SessionId, SessionModeState,
    SessionNotification, StopReason, TerminalId,
};
use bowline_wire::{AgentHandle, CallError};
use bowline_workspace::terminals::LocalTerminals;
use bowline_workspace::workspace as engine;
use tokio::sync::watch;

use crate::error::HostError;
use crate::front_end::Event;
use crate::host::Shared;
use crate::operations::{self, blocking, first_look};
use followed::Followed;

/// A session. Clones are the same one. When its connection ends, its commands are killed.
#[derive(Debug, Clone)]
pub struct Session {
    pub(crate) held: Arc<Held>,
    pub(crate) agent: AgentHandle,
}

/// What a session has.
pub(crate) struct Held {
    pub(crate) id: SessionId,
    pub(crate) shared: Arc<Shared>,
    pub(crate) files: engine::Session,
    pub(crate) terminals: LocalTerminals,
    accumulator: Mutex<SessionAccumulator>,
    turn: watch::Sender<Turn>,
    // The commands of the turn that is going on. Invariant: at most as many as there may be terminals, but for ended ones.
    commands: Mutex<Vec<(Option<u64>, TerminalId)>>,
    pub(crate) followed: Followed,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Held").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Where a session is in its turns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Turn {
    /// The number of the turn that is or was last; 0 if there was none.
    number: u64,
    state: TurnState,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum TurnState {
    #[default]
    Idle,
    Running,
    Cancelled,
    /// Nobody waits for it any more, and the agent has still to be told.
    Ending,
    /// The session is over.
    Over,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnEnd {
    /// The turn, counted from 1.
    pub turn: u64,
    /// Why the agent stopped.
    pub stop: StopReason,
    /// What was found on disk that did not pass through the host.
    pub observed: Vec<ChangeId>,
}

impl Held {
    pub(crate) fn new(id: SessionId, shared: Arc<Shared>, files: engine::Session) -> Self {
        let terminals = LocalTerminals::new(files.clone(), shared.settings.terminals.clone());
        let options = Options { other_session: OtherSession::Refuse, ..Options::default() };
        Self {
            id,
            shared,
            files,
            terminals,
            accumulator: Mutex::new(SessionAccumulator::with_options(options)),
            turn: watch::Sender::new(Turn::default()),
            commands: Mutex::default(),
            followed: Followed::default(),
        }
    }

    /// Goes on counting where a session of before had come to, as far as anybody knows.
    pub(crate) fn count_from(&self, turn: u64) {
        self.turn.send_modify(|current| current.number = current.number.max(turn));
    }

    /// Notes a command, to end it with the turn that it was started in if that is cancelled.
    pub(crate) fn runs(&self, turn: Option<u64>, terminal: TerminalId) {
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        commands.retain(|(its, _)| *its == turn);
        // What was started outside of a turn no turn ends.
        if turn.is_some() {
            commands.push((turn, terminal));
        }
    }

    /// Kills the commands of a turn that was cancelled. Their terminals stay, for the agent to look at and to release.
    pub(crate) async fn kill_commands(&self, turn: u64) {
        // The next turn may have begun, and keeps its own.
        let commands: Vec<(Option<u64>, TerminalId)> = {
            let mut all = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
            all.extract_if(.., |(its, _)| *its == Some(turn)).collect()
        };
        for (_, terminal) in commands {
            // It may have ended or been released.
            self.terminals.kill(&terminal).await.ok();
        }
    }

    /// Records that the session begins.
    pub(crate) async fn started(self: &Arc<Self>) -> Result<(), HostError> {
        let held = self.clone();
        Ok(blocking(move || held.shared.approvals.record(&held.entry(Action::SessionStart, None))).await??)
    }

    pub(crate) fn opened(&self, modes: Option<&SessionModeState>, options: Option<&[SessionConfigOption]>) {
        // A breach here would be of another session, and the id is this one's own.
        if let Err(breach) = self.accumulator().opened(&self.id, modes, options) {
            self.show(Event::Breach { session: Some(&self.id), what: &breach.to_string() });
        }
    }

    /// Takes in an update, and shows it.
    pub(crate) fn update(&self, notification: &SessionNotification) {
        let applied: Result<(Change, Snapshot), Breach> = {
            let mut accumulator = self.accumulator();
            accumulator.apply(notification).map(|change| (change, accumulator.snapshot()))
        };
        match applied {
            Ok((change, snapshot)) => self.show(Event::Update { notification, change: &change, snapshot }),
            Err(breach) => self.show(Event::Breach { session: Some(&self.id), what: &breach.to_string() }),
        }
    }

    /// Keeps an update of a kind that is not known here.
    pub(crate) fn unknown_update(&self, kind: &str, raw: &str) {
        self.accumulator().unknown(kind, raw);
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.accumulator().snapshot()
    }

    /// Returns the name that journal, rules and log know the session by: its id, unless another session had that before.
    pub(crate) fn name(&self) -> &str {
        self.files.id()
    }

    /// Returns whose operations are those that were begun then.
    pub(crate) fn holder(&self, turn: Turn) -> Holder {
        let running = matches!(turn.state, TurnState::Running | TurnState::Cancelled | TurnState::Ending);
        Holder { session: self.name().to_owned(), turn: running.then_some(turn.number) }
    }

    /// Returns where the session is in its turns: what is begun now belongs to it.
    pub(crate) fn now(&self) -> Turn {
        *self.turn.borrow()
    }

    /// Says whether what was begun then is still wanted: its turn goes on, or, if it was begun outside of one, the session.
    pub(crate) fn is_wanted(&self, begun: Turn) -> bool {
        let now = self.now();
        match begun.state {
            TurnState::Running => now == begun,
            TurnState::Idle => now.state != TurnState::Over,
            TurnState::Cancelled | TurnState::Ending | TurnState::Over => false,
        }
    }

    /// Waits until what was begun then is not wanted any more.
    pub(crate) async fn unwanted(&self, begun: Turn) {
        let mut turn = self.turn.subscribe();
        while self.is_wanted(begun) {
            if turn.changed().await.is_err() {
                // The sender is part of the session itself.
                return;
            }
        }
    }

    /// Waits until the session is over.
    async fn over(&self) {
        let mut turn = self.turn.subscribe();
        turn.wait_for(|turn| turn.state == TurnState::Over).await.ok();
    }

    pub(crate) fn show(&self, event: Event<'_>) {
        self.shared.front_end.show(event);
    }

    fn accumulator(&self) -> MutexGuard<'_, SessionAccumulator> {
        self.accumulator.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn entry(&self, action: Action, turn: Option<u64>) -> Entry {
        let mut entry = Entry::new(bowline_workspace::clock::now(), action);
        (entry.session, entry.turn) = (Some(self.name().to_owned()), turn);
        entry
    }

    /// Looks for changes on disk. That this fails is told, and keeps nobody from working.
    pub(crate) async fn look(&self, origin: Origin) -> Vec<ChangeId> {
        operations::observe(&self.shared, origin).await.unwrap_or_else(|error| {
            self.show(Event::Notice { text: &error.to_string() });
            Vec::new()
        })
    }

    pub(crate) fn begin_turn(&self) -> Result<u64, HostError> {
        let mut begun = None;
        self.turn.send_if_modified(|turn| {
            if turn.state != TurnState::Idle {
                return false;
            }
            *turn = Turn { number: turn.number + 1, state: TurnState::Running };
            begun = Some(turn.number);
            true
        });
        let begun = begun.ok_or_else(|| match self.now().state {
            TurnState::Over => HostError::Ended,
            _ => HostError::Busy,
        })?;
        // What was said between turns is not the beginning of what is said in this one.
        self.accumulator().turn_boundary();
        // What was approved between turns, and not used, is void.
        self.shared.approvals.end_turn(&Holder { session: self.name().to_owned(), turn: None });
        Ok(begun)
    }

    /// Ends the turn: what was approved for it is void, what it changed is looked for, and the log is made durable.
    pub(crate) async fn end_turn(
        self: &Arc<Self>,
        turn: u64,
        stop: Option<StopReason>,
    ) -> Result<Vec<ChangeId>, HostError> {
        let holder = Holder { session: self.name().to_owned(), turn: Some(turn) };
        let origin = self.files.origin(Some(turn), None);
        self.turn.send_modify(|current| {
            if current.number == turn && current.state != TurnState::Over {
                current.state = TurnState::Idle;
            }
        });
        self.shared.approvals.end_turn(&holder);
        self.accumulator().turn_boundary();
        self.followed.settle(&self.terminals).await;
        let observed = if self.shared.is_by_user() {
            self.look(Origin::default()).await;
            Vec::new()
        } else {
            self.look(origin).await
        };
        let mut entry = self.entry(Action::TurnEnd, Some(turn));
        entry.reason = stop.map(|stop| format!("{stop:?}"));
        if stop == Some(StopReason::Cancelled) {
            entry.decision = Decision::Cancelled;
        }
        let shared = self.shared.clone();
        let recorded = blocking(move || {
            shared.approvals.record(&entry)?;
            Ok::<_, HostError>(shared.approvals.audit().sync()?)
        });
        let recorded = recorded.await.and_then(|recorded| recorded);
        // It has ended, also if that cannot be recorded.
        self.show(Event::TurnEnded { session: &self.id, turn, stop, observed: &observed });
        recorded.map(|()| observed)
    }

    /// Cancels the turn that is going on, if there is one: every question of it is withdrawn. Returns its number.
    pub(crate) fn cancel_turn(&self) -> Option<u64> {
        let mut number = None;
        self.turn.send_if_modified(|turn| {
            let running = turn.state == TurnState::Running;
            if running {
                turn.state = TurnState::Cancelled;
                number = Some(turn.number);
            }
            running
        });
        if number.is_some() {
            self.accumulator().cancel_open_calls();
            self.shared.approvals.end_turn(&self.holder(self.now()));
        }
        number
    }

    /// Ends the session: commands are killed, what waits is cancelled, what it saw is forgotten.
    pub(crate) async fn end(self: &Arc<Self>) {
        let was_over = self.turn.send_replace(Turn { number: u64::MAX, state: TurnState::Over });
        if was_over.state == TurnState::Over {
            return;
        }
        self.terminals.release_all().await;
        self.shared.approvals.end_session(self.name());
        self.shared.free_name(self.name());
        let held = self.clone();
        let recorded = blocking(move || {
            held.files.end();
            held.shared.approvals.record(&held.entry(Action::SessionEnd, None))
        });
        if let Ok(Err(error)) = recorded.await {
            self.show(Event::Notice { text: &error.to_string() });
        }
        self.show(Event::SessionEnded { session: &self.id });
    }
}

impl Session {
    /// Returns its id.
    #[must_use]
    pub fn id(&self) -> &SessionId {
        &self.held.id
    }

    /// Returns the name that journal, rules and log know it by: its id, unless another session had that before.
    #[must_use]
    pub fn name(&self) -> &str {
        self.held.name()
    }

    /// Returns what the agent has said so far.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.held.snapshot()
    }

    /// Returns the session's view of the files, to undo by session, for one.
    #[must_use]
    pub fn files(&self) -> &engine::Session {
        &self.held.files
    }

    /// Returns the session's terminals, to watch their output.
    #[must_use]
    pub fn terminals(&self) -> &LocalTerminals {
        &self.held.terminals
    }

    /// Returns the agent, for modes, models and whatever else it can do.
    #[must_use]
    pub fn agent(&self) -> &AgentHandle {
        &self.agent
    }

    /// Sends a prompt, and serves the agent until its turn ends.
    ///
    /// # Errors
    /// Fails if another turn is going on, if the agent fails, or if what it did cannot be recorded.
    pub async fn prompt(&self, prompt: Vec<ContentBlock>) -> Result<TurnEnd, HostError> {
        let held = &self.held;
        held.turn.subscribe().wait_for(|turn| turn.state != TurnState::Ending).await.ok();
        operations::verify_roots(held.files.roots())?;
        let turn = held.begin_turn()?;
        let begun = held.now();
        let guard = EndTurn { session: Some(self.clone()), turn, _counted: Counted::new(&held.shared) };
        first_look::before_turn(&held.shared).await?;
        // What changed between turns is nobody's; what changes beside other turns may be theirs.
        if held.shared.turns.load(Ordering::Relaxed) == 1 {
            held.look(Origin::default()).await;
        }
        let entry = held.entry(Action::TurnStart, Some(turn));
        let shared = held.shared.clone();
        blocking(move || shared.approvals.record(&entry)).await??;
        held.title_turn(turn, &prompt);
        held.show(Event::TurnStarted { session: &held.id, turn });
        if !held.is_wanted(begun) {
            // Nobody needs to be told of a prompt that was not sent.
            guard.disarm();
            let observed = held.end_turn(turn, Some(StopReason::Cancelled)).await?;
            return Ok(TurnEnd { turn, stop: StopReason::Cancelled, observed });
        }
        let answer = self.ask(begun, prompt).await?;
        let stop = answer.as_ref().ok().map(|answer| answer.stop_reason);
        guard.disarm();
        let observed = held.end_turn(turn, stop).await?;
        let answer = answer?;
        Ok(TurnEnd { turn, stop: answer.stop_reason, observed })
    }

    /// Sends the prompt, and what cancels it after it, so that an agent never hears of the second first.
    async fn ask(
        &self,
        begun: Turn,
        prompt: Vec<ContentBlock>,
    ) -> Result<Result<PromptResponse, CallError>, HostError> {
        let held = &self.held;
        let answer = self.agent.prompt(PromptRequest::new(held.id.clone(), prompt));
        tokio::pin!(answer);
        let mut is_told = false;
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => return Ok(answer),
                () = held.over() => return Err(HostError::Ended),
                () = held.unwanted(begun), if !is_told => {
                    is_told = true;
                    // If the agent is gone, the prompt says so.
                    self.agent.cancel(held.id.clone()).await.ok();
                    held.kill_commands(begun.number).await;
                }
            }
        }
    }

    /// Sends a prompt that is nothing but text.
    ///
    /// # Errors
    /// As [`Session::prompt`].
    pub async fn prompt_text(&self, text: impl Into<String>) -> Result<TurnEnd, HostError> {
        self.prompt(vec![ContentBlock::from(text.into())]).await
    }

    /// Cancels the turn that is going on: every question of it is withdrawn, its commands are killed, and the agent is told.
    /// The prompt ends when the agent answers it.
    pub fn cancel(&self) {
        self.held.cancel_turn();
    }
}

/// Counts a turn as long as it goes on.
pub(crate) struct Counted(Arc<Shared>);

impl std::fmt::Debug for Counted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Counted").finish_non_exhaustive()
    }
}

impl Counted {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        shared.turns.fetch_add(1, Ordering::Relaxed);
        Self(shared.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.turns.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Cancels and ends a turn whose prompt nobody waits for any more.
struct EndTurn {
    session: Option<Session>,
    turn: u64,
    _counted: Counted,
}

impl EndTurn {
    fn disarm(mut self) {
        self.session = None;
    }
}

impl Drop for EndTurn {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        let (held, turn) = (session.held.clone(), self.turn);
        let holder = Holder { session: held.name().to_owned(), turn: Some(turn) };
        held.shared.approvals.end_turn(&holder);
        let runtime = tokio::runtime::Handle::try_current();
        let state = if runtime.is_ok() { TurnState::Ending } else { TurnState::Idle };
        held.turn.send_modify(|current| {
            if current.number == turn && current.state != TurnState::Over {
                current.state = state;
            }
        });
        held.accumulator().cancel_open_calls();
        // The next prompt waits until this is said, so that it is not what the agent takes for cancelled.
        if let Ok(runtime) = runtime {
            runtime.spawn(async move {
                session.agent.cancel(held.id.clone()).await.ok();
                held.kill_commands(turn).await;
                held.end_turn(turn, None)
                    .await
                    .map_err(|error| held.show(Event::Notice { text: &error.to_string() }))
            });
        }
    }
}
