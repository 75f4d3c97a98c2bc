//! A session as a client sees it, folded from `session/update` notifications.
//!
//! Agents send deltas; views need the whole state. [`SessionAccumulator`] applies each notification and returns a
//! [`SessionSnapshot`] at any time. Snapshots share structure with their predecessors and successors, so a snapshot
//! after every chunk is cheap: the cost of a chunk does not grow with the history.
//!
//! ```
//! use bowline_protocol::accumulator::SessionAccumulator;
//! use bowline_protocol::schema::v1::{ContentChunk, SessionNotification, SessionUpdate};
//!
//! let mut session = SessionAccumulator::new();
//! for word in ["Hello", ", ", "world"] {
//!     let update = SessionUpdate::AgentMessageChunk(ContentChunk::new(word.into()));
//!     session.apply(&SessionNotification::new("s1", update))?;
//! }
//! let text: Vec<_> = session.snapshot().messages().map(|message| message.text()).collect();
//! assert_eq!(text, ["Hello, world"]);
//! # Ok::<(), bowline_protocol::accumulator::SessionViolation>(())
//! ```

use std::fmt;
use std::sync::Arc;

use agent_client_protocol_schema::v1::{
    CompactionId, SessionConfigOption, SessionId, SessionModeState, SessionNotification, ToolCallId,
    ToolCallStatus,
};

mod bounded_list;
mod compaction;
mod content;
mod persistent_vec;
mod snapshot;
mod state;
mod tool_calls;
mod transcript;

pub use bounded_list::{EvictionStats, ListLimits};
pub use compaction::Compaction;
pub use content::{ContentPiece, StreamedContent};
pub use snapshot::{SessionEvictions, SessionSnapshot, TimelineEntry};
pub use tool_calls::ToolCallView;
pub use transcript::{MessageKind, MessageRef, SessionMessage};

use state::State;

/// The maximum number of subscribers.
pub const MAX_SUBSCRIBERS: usize = 64;

/// Folds the notifications of one session, and follows the client when it switches sessions.
pub struct SessionAccumulator {
    options: AccumulatorOptions,
    state: Arc<State>,
    // Invariant: at most `MAX_SUBSCRIBERS`, in order of subscription.
    subscribers: Vec<(SubscriptionId, SubscriberCallback)>,
    next_subscription_id: u64,
}

type SubscriberCallback = Box<dyn FnMut(&SessionSnapshot, &SessionNotification) + Send>;

/// The options of an accumulator.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AccumulatorOptions {
    /// How to handle a message of another session.
    pub other_session: OtherSessionBehavior,
    /// How much of the session to keep.
    pub limits: AccumulatorLimits,
}

/// How an accumulator handles a message whose session differs from the current one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OtherSessionBehavior {
    /// The client switched sessions: discard the state and follow the new session.
    #[default]
    Follow,
    /// The message was misdirected: return a [`SessionViolation`].
    Refuse,
}

/// How much of a session is kept. Beyond a limit the oldest items are evicted and counted in
/// [`SessionSnapshot::evictions`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccumulatorLimits {
    /// Messages; 10,000 and 64 MiB by default.
    pub messages: ListLimits,
    /// Tool calls; 4,096 and 64 MiB by default.
    pub tool_calls: ListLimits,
    /// Compactions; 64 and 8 MiB by default.
    pub compactions: ListLimits,
    /// Notices; 32 and 256 KiB by default.
    pub notices: ListLimits,
}

impl Default for AccumulatorLimits {
    fn default() -> Self {
        Self {
            messages: ListLimits { items: 10_000, bytes: 64 << 20 },
            tool_calls: ListLimits { items: 4096, bytes: 64 << 20 },
            compactions: ListLimits { items: 64, bytes: 8 << 20 },
            notices: ListLimits { items: 32, bytes: 256 << 10 },
        }
    }
}

/// The effect of one message, so that a view redraws only the affected part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionChange {
    /// Everything: the accumulator follows another session now.
    Switched,
    /// A message began at the end of the list.
    MessageStarted(MessageRef),
    /// A message grew.
    MessageContinued(MessageRef),
    /// A tool call was announced.
    ToolCallAdded(ToolCallId),
    /// A tool call changed.
    ToolCallUpdated(ToolCallId),
    /// A tool call finished.
    ToolCallFinished(ToolCallId),
    /// Nothing: the update most likely concerned a tool call that has been evicted.
    ToolCallEvicted(ToolCallId),
    /// The plan was replaced.
    Plan,
    /// The commands were replaced.
    Commands,
    /// The mode changed.
    Mode,
    /// The options were replaced.
    ConfigOptions,
    /// The title or the time of the last activity changed.
    Info,
    /// The usage was replaced.
    Usage,
    /// A notice arrived.
    Notice,
    /// A compaction began.
    CompactionAdded(CompactionId),
    /// A compaction changed.
    CompactionUpdated(CompactionId),
    /// Nothing: the update is of a kind that is not known here.
    UnknownUpdate,
}

/// A message that violates the protocol. It leaves the session unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionViolation {
    /// A required id is empty.
    #[error("the {0} id is empty")]
    EmptyId(IdKind),
    /// The message belongs to another session, and the options refuse to switch.
    #[error("session {received} is not the session {current} that is followed here")]
    OtherSession {
        /// The session of the accumulator.
        current: SessionId,
        /// The session of the message.
        received: SessionId,
    },
    /// An update without a title named a call that was never announced.
    #[error("tool call {0} was updated before it was announced")]
    NotAnnounced(ToolCallId),
    /// A call was announced twice.
    #[error("tool call {0} was announced twice")]
    AnnouncedTwice(ToolCallId),
    /// An update moves a finished call to another status.
    #[error("tool call {id} is already {status:?}, it cannot become {requested:?}")]
    AlreadyFinished {
        /// The call.
        id: ToolCallId,
        /// Its final status.
        status: ToolCallStatus,
        /// The status in the update.
        requested: ToolCallStatus,
    },
}

/// The kind of object that an id names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdKind {
    /// A session.
    Session,
    /// A tool call.
    ToolCall,
    /// A compaction.
    Compaction,
}

impl fmt::Display for IdKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IdKind::Session => "session",
            IdKind::ToolCall => "tool call",
            IdKind::Compaction => "compaction",
        })
    }
}

/// Identifies a subscription, to end it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubscriptionId(u64);

/// The accumulator already has [`MAX_SUBSCRIBERS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there are already {MAX_SUBSCRIBERS} subscribers")]
pub struct TooManySubscribersError;

impl Default for SessionAccumulator {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for SessionAccumulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionAccumulator")
            .field("options", &self.options)
            .field("state", &self.state)
            .field("subscribers", &self.subscribers.len())
            .finish()
    }
}

impl SessionAccumulator {
    /// Returns an empty accumulator with the default [`AccumulatorOptions`].
    #[must_use]
    pub fn new() -> Self {
        Self::with_options(AccumulatorOptions::default())
    }

    /// Returns an empty accumulator.
    #[must_use]
    pub fn with_options(options: AccumulatorOptions) -> Self {
        let state = Arc::new(State::new(None, &options.limits));
        Self { options, state, subscribers: Vec::new(), next_subscription_id: 0 }
    }

    /// Applies one notification and calls the subscribers.
    ///
    /// `session/load` replays the session: call [`reset`](Self::reset) first, or every item appears twice.
    ///
    /// # Errors
    /// Returns a [`SessionViolation`] if the message violates the protocol. The state is unchanged then, and no
    /// subscriber is called.
    pub fn apply(&mut self, notification: &SessionNotification) -> Result<SessionChange, SessionViolation> {
        let change =
            self.update_session(&notification.session_id, |state| state.fold(&notification.update))?;
        if !self.subscribers.is_empty() {
            let snapshot = self.snapshot();
            for (_, callback) in &mut self.subscribers {
                callback(&snapshot, notification);
            }
        }
        Ok(change)
    }

    /// Applies the modes and options from the response to `session/new`, `session/load` or `session/resume`. Absent
    /// fields leave the state unchanged. Subscribers are not called: they receive notifications only.
    ///
    /// # Errors
    /// Returns a [`SessionViolation`] if the session is not the current one and the options refuse to switch, or if its
    /// id is empty.
    pub fn apply_session_setup(
        &mut self,
        session_id: &SessionId,
        modes: Option<&SessionModeState>,
        config_options: Option<&[SessionConfigOption]>,
    ) -> Result<(), SessionViolation> {
        self.update_session(session_id, |state| {
            if let Some(modes) = modes {
                state.modes = modes.available_modes.as_slice().into();
                state.current_mode = Some(modes.current_mode_id.clone());
            }
            if let Some(config_options) = config_options {
                state.config_options = config_options.into();
            }
            Ok(SessionChange::Mode)
        })?;
        Ok(())
    }

    /// Closes the current message, so that the next chunk without an id starts a new one. Call this at the start of a
    /// turn: most agents do not echo the user's prompt, which would otherwise separate the messages.
    pub fn mark_turn_boundary(&mut self) {
        Arc::make_mut(&mut self.state).transcript.close_message();
    }

    /// Marks every unfinished tool call as cancelled; a client does so when it cancels the turn. Later updates from the
    /// agent still apply.
    pub fn cancel_open_tool_calls(&mut self) {
        tool_calls::cancel_open_calls(&mut Arc::make_mut(&mut self.state).tool_calls);
    }

    /// Returns the current state of the session. Later messages do not change it.
    #[must_use]
    pub fn snapshot(&self) -> SessionSnapshot {
        SessionSnapshot(Arc::clone(&self.state))
    }

    /// Calls `callback` with the new snapshot after each applied notification.
    ///
    /// # Errors
    /// Returns [`TooManySubscribersError`] if there are [`MAX_SUBSCRIBERS`] already.
    pub fn subscribe(
        &mut self,
        callback: impl FnMut(&SessionSnapshot, &SessionNotification) + Send + 'static,
    ) -> Result<SubscriptionId, TooManySubscribersError> {
        if self.subscribers.len() >= MAX_SUBSCRIBERS {
            return Err(TooManySubscribersError);
        }
        let id = SubscriptionId(self.next_subscription_id);
        self.next_subscription_id += 1;
        self.subscribers.push((id, Box::new(callback)));
        Ok(id)
    }

    /// Ends a subscription. Returns whether it existed.
    pub fn unsubscribe(&mut self, id: SubscriptionId) -> bool {
        let before = self.subscribers.len();
        self.subscribers.retain(|(other, _)| *other != id);
        self.subscribers.len() < before
    }

    /// Discards the session state. Subscriptions remain.
    pub fn reset(&mut self) {
        self.state = Arc::new(State::new(None, &self.options.limits));
    }

    /// Changes the state of a session, which may differ from the current one. A violation in the first message of
    /// another session leaves the current state in place.
    fn update_session(
        &mut self,
        named: &SessionId,
        change: impl FnOnce(&mut State) -> Result<SessionChange, SessionViolation>,
    ) -> Result<SessionChange, SessionViolation> {
        if named.0.is_empty() {
            return Err(SessionViolation::EmptyId(IdKind::Session));
        }
        match &self.state.session_id {
            Some(followed) if followed != named => {
                if self.options.other_session == OtherSessionBehavior::Refuse {
                    return Err(SessionViolation::OtherSession {
                        current: followed.clone(),
                        received: named.clone(),
                    });
                }
                let mut state = State::new(Some(named.clone()), &self.options.limits);
                change(&mut state)?;
                self.state = Arc::new(state);
                Ok(SessionChange::Switched)
            }
            _ => {
                let state = Arc::make_mut(&mut self.state);
                let done = change(state)?;
                state.session_id = Some(named.clone());
                Ok(done)
            }
        }
    }
}

#[cfg(test)]
mod tests;
