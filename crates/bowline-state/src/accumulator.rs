//! A session as a client sees it, folded from `session/update` notifications.
//!
//! An agent sends what changed; a view wants what is. [`SessionAccumulator`] takes in each notification and gives a
//! [`Snapshot`] of the whole at any time. A snapshot shares what it holds with the ones before and after it, so one
//! can be taken after every chunk: the cost of a chunk does not grow with what came before.
//!
//! ```
//! use bowline_state::accumulator::SessionAccumulator;
//! use bowline_state::schema::v1::{ContentChunk, SessionNotification, SessionUpdate};
//!
//! let mut session = SessionAccumulator::new();
//! for word in ["Hello", ", ", "world"] {
//!     let update = SessionUpdate::AgentMessageChunk(ContentChunk::new(word.into()));
//!     session.apply(&SessionNotification::new("s1", update))?;
//! }
//! let text: Vec<_> = session.snapshot().messages().map(|message| message.text()).collect();
//! assert_eq!(text, ["Hello, world"]);
//! # Ok::<(), bowline_state::accumulator::Breach>(())
//! ```

use std::fmt;
use std::sync::Arc;

use agent_client_protocol_schema::v1::{
    CompactionId, SessionConfigOption, SessionId, SessionModeState, SessionNotification, ToolCallId,
    ToolCallStatus,
};

mod body;
mod compaction;
mod series;
mod shelf;
mod snapshot;
mod state;
mod tool_calls;
mod transcript;

pub use body::{Body, Piece};
pub use compaction::Compaction;
pub use shelf::{Cap, Lost};
pub use snapshot::{Dropped, Entry, Snapshot, Unknown};
pub use tool_calls::ToolCallView;
pub use transcript::{Message, MessageKind, MessageRef};

use state::State;

/// At most this many callbacks are told of each notification.
pub const MAX_SUBSCRIBERS: usize = 64;

/// Folds the notifications of one session, and follows the client from one session to the next.
pub struct SessionAccumulator {
    options: Options,
    state: Arc<State>,
    // Invariant: at most `MAX_SUBSCRIBERS`, in the order they came.
    subscribers: Vec<(SubscriptionId, Callback)>,
    next_subscription: u64,
}

type Callback = Box<dyn FnMut(&Snapshot, &SessionNotification) + Send>;

/// How an accumulator behaves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// What a message of another session means.
    pub other_session: OtherSession,
    /// How much is kept.
    pub limits: Limits,
}

/// What a message of another session than the one before means.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OtherSession {
    /// The client has changed the session: everything is forgotten, and the new one is followed.
    #[default]
    Follow,
    /// The message went astray: it is a [`Breach`].
    Refuse,
}

/// How much of a session is kept. When there is more, the oldest goes and is counted in [`Snapshot::dropped`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Messages; 10,000 and 64 MiB by default.
    pub messages: Cap,
    /// Tool calls; 4,096 and 64 MiB by default.
    pub tool_calls: Cap,
    /// Compactions; 64 and 8 MiB by default.
    pub compactions: Cap,
    /// Notices; 32 and 256 KiB by default.
    pub notices: Cap,
    /// Updates of unknown kinds, of which each is cut at 4 KiB; 32 and 256 KiB by default.
    pub unknown: Cap,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            messages: Cap { items: 10_000, bytes: 64 << 20 },
            tool_calls: Cap { items: 4096, bytes: 64 << 20 },
            compactions: Cap { items: 64, bytes: 8 << 20 },
            notices: Cap { items: 32, bytes: 256 << 10 },
            unknown: Cap { items: 32, bytes: 256 << 10 },
        }
    }
}

/// What one message did, so that a view redraws only that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Everything: another session is followed now.
    Session,
    /// A message began, at the end of the messages.
    MessageStarted(MessageRef),
    /// A message grew.
    MessageContinued(MessageRef),
    /// A tool call was announced.
    ToolCallAdded(ToolCallId),
    /// A tool call changed.
    ToolCallUpdated(ToolCallId),
    /// A tool call came to its end.
    ToolCallFinished(ToolCallId),
    /// Nothing: the update was, as far as can be told, of a tool call that had to make room for later ones.
    Forgotten(ToolCallId),
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
    /// A notice came.
    Notice,
    /// A compaction began.
    CompactionAdded(CompactionId),
    /// A compaction changed.
    CompactionUpdated(CompactionId),
    /// An update of an unknown kind came.
    Unknown,
}

/// A message the protocol does not allow. The session is as it was before it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Breach {
    /// An id that must name something is empty.
    #[error("the {0} id is empty")]
    EmptyId(Named),
    /// Another session is followed, and the options say to stay with it.
    #[error("session {named} is not the session {followed} that is followed here")]
    OtherSession {
        /// The session of the accumulator.
        followed: SessionId,
        /// The session of the message.
        named: SessionId,
    },
    /// A call is updated that was not announced, by an update without a title.
    #[error("tool call {0} was updated before it was announced")]
    NotAnnounced(ToolCallId),
    /// A call is announced that there is already.
    #[error("tool call {0} was announced twice")]
    AnnouncedTwice(ToolCallId),
    /// A call that came to its end is said to go on.
    #[error("tool call {id} is already {status:?}, it cannot become {wanted:?}")]
    Finished {
        /// The call.
        id: ToolCallId,
        /// How it ended.
        status: ToolCallStatus,
        /// What it was said to be.
        wanted: ToolCallStatus,
    },
}

/// What an id is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    /// A session.
    Session,
    /// A tool call.
    ToolCall,
    /// A compaction.
    Compaction,
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Named::Session => "session",
            Named::ToolCall => "tool call",
            Named::Compaction => "compaction",
        })
    }
}

/// Names a callback, to end its subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubscriptionId(u64);

/// There are [`MAX_SUBSCRIBERS`] already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there are already {MAX_SUBSCRIBERS} subscribers")]
pub struct TooManySubscribers;

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
    /// Returns an accumulator that has seen nothing, with the default [`Options`].
    #[must_use]
    pub fn new() -> Self {
        Self::with_options(Options::default())
    }

    /// Returns an accumulator that has seen nothing.
    #[must_use]
    pub fn with_options(options: Options) -> Self {
        let state = Arc::new(State::new(None, &options.limits));
        Self { options, state, subscribers: Vec::new(), next_subscription: 0 }
    }

    /// Takes in one notification, and tells the subscribers.
    ///
    /// `session/load` replays the session: [`reset`](Self::reset) before it, or everything is there twice.
    ///
    /// # Errors
    /// Returns the [`Breach`] if the protocol does not allow the message. Nothing has changed then, and no subscriber
    /// was told.
    pub fn apply(&mut self, notification: &SessionNotification) -> Result<Change, Breach> {
        let change =
            self.change_session(&notification.session_id, |state| state.fold(&notification.update))?;
        if !self.subscribers.is_empty() {
            let snapshot = self.snapshot();
            for (_, callback) in &mut self.subscribers {
                callback(&snapshot, notification);
            }
        }
        Ok(change)
    }

    /// Takes over what the answer to `session/new`, `session/load` or `session/resume` tells of modes and options.
    /// What it does not tell stays as it is. Subscribers hear of notifications only, and so not of this.
    ///
    /// # Errors
    /// Returns a [`Breach`] if the session is not the one followed and the options say to stay with that, or if its
    /// id is empty.
    pub fn opened(
        &mut self,
        session_id: &SessionId,
        modes: Option<&SessionModeState>,
        config_options: Option<&[SessionConfigOption]>,
    ) -> Result<(), Breach> {
        self.change_session(session_id, |state| {
            if let Some(modes) = modes {
                state.modes = modes.available_modes.as_slice().into();
                state.current_mode = Some(modes.current_mode_id.clone());
            }
            if let Some(config_options) = config_options {
                state.config_options = config_options.into();
            }
            Ok(Change::Mode)
        })?;
        Ok(())
    }

    /// Keeps an update of a kind that the schema does not know, as a newer agent may send.
    pub fn unknown(&mut self, kind: &str, raw: &str) -> Change {
        Arc::make_mut(&mut self.state).keep_unknown(kind, raw)
    }

    /// Ends the message that is being written: a chunk without an id then begins another. Called where a turn begins,
    /// because most agents do not repeat the user's prompt, which would come between.
    pub fn turn_boundary(&mut self) {
        Arc::make_mut(&mut self.state).transcript.close();
    }

    /// Marks every tool call that has not finished as cancelled: a client does so when it cancels the turn. What the agent
    /// says of them later still counts.
    pub fn cancel_open_calls(&mut self) {
        tool_calls::cancel(&mut Arc::make_mut(&mut self.state).tool_calls);
    }

    /// Returns the session as it stands. What comes later does not change it.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(Arc::clone(&self.state))
    }

    /// Calls `callback` with the new snapshot after each notification that was taken in.
    ///
    /// # Errors
    /// Returns [`TooManySubscribers`] if there are [`MAX_SUBSCRIBERS`] already.
    pub fn subscribe(
        &mut self,
        callback: impl FnMut(&Snapshot, &SessionNotification) + Send + 'static,
    ) -> Result<SubscriptionId, TooManySubscribers> {
        if self.subscribers.len() >= MAX_SUBSCRIBERS {
            return Err(TooManySubscribers);
        }
        let id = SubscriptionId(self.next_subscription);
        self.next_subscription += 1;
        self.subscribers.push((id, Box::new(callback)));
        Ok(id)
    }

    /// Ends a subscription, and says whether there was one.
    pub fn unsubscribe(&mut self, id: SubscriptionId) -> bool {
        let before = self.subscribers.len();
        self.subscribers.retain(|(other, _)| *other != id);
        self.subscribers.len() < before
    }

    /// Forgets the session. The subscribers stay.
    pub fn reset(&mut self) {
        self.state = Arc::new(State::new(None, &self.options.limits));
    }

    /// Changes the state of a session, which may be another than before. A breach in the first message of another
    /// session leaves the one before in place.
    fn change_session(
        &mut self,
        named: &SessionId,
        change: impl FnOnce(&mut State) -> Result<Change, Breach>,
    ) -> Result<Change, Breach> {
        if named.0.is_empty() {
            return Err(Breach::EmptyId(Named::Session));
        }
        match &self.state.session_id {
            Some(followed) if followed != named => {
                if self.options.other_session == OtherSession::Refuse {
                    return Err(Breach::OtherSession { followed: followed.clone(), named: named.clone() });
                }
                let mut state = State::new(Some(named.clone()), &self.options.limits);
                change(&mut state)?;
                self.state = Arc::new(state);
                Ok(Change::Session)
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
