//! A session as it stood at one moment.

use std::sync::Arc;

use agent_client_protocol_schema::v1::{
    AvailableCommand, MessageId, Notice, PlanEntry, SessionConfigOption, SessionId, SessionMode,
    SessionModeId, ToolCallId, UsageUpdate,
};

use super::compaction::Compaction;
use super::shelf::Lost;
use super::state::State;
use super::tool_calls::ToolCallView;
use super::transcript::{Message, MessageKind, MessageRef};

/// A session as it stood when the snapshot was taken. It never changes; a clone is one reference.
#[derive(Debug, Clone)]
pub struct Snapshot(pub(super) Arc<State>);

/// Something that has a place of its own in the course of a session.
#[derive(Debug, Clone, Copy)]
pub enum Entry<'a> {
    /// A message, at the place of its first chunk.
    Message(&'a Message),
    /// A tool call, at the place of its announcement.
    ToolCall(&'a ToolCallView),
    /// A compaction, at the place of its first update.
    Compaction(&'a Compaction),
}

/// An update of a kind that is not known here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown {
    /// Its `sessionUpdate`, or the start of it.
    pub kind: Arc<str>,
    /// The update as JSON, or the start of it.
    pub raw: Arc<str>,
}

/// What a snapshot no longer has, because there was more than [`Limits`](super::Limits) allows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Messages, and what was cut from the front of the oldest.
    pub messages: Lost,
    /// Tool calls.
    pub tool_calls: Lost,
    /// Compactions, and what was cut from the front of the oldest's summary.
    pub compactions: Lost,
}

impl Snapshot {
    /// Returns which session this is, once anything told it.
    #[must_use]
    pub fn session_id(&self) -> Option<&SessionId> {
        self.0.session_id.as_ref()
    }

    /// Returns messages, tool calls and compactions in one list, in the order they began.
    pub fn timeline(&self) -> impl Iterator<Item = Entry<'_>> {
        let mut messages = self.messages().peekable();
        let mut calls = self.tool_calls().peekable();
        let mut compactions = self.compactions().peekable();
        std::iter::from_fn(move || {
            let message = messages.peek().map_or(u64::MAX, |message| message.order);
            let call = calls.peek().map_or(u64::MAX, |call| call.order);
            let compaction = compactions.peek().map_or(u64::MAX, |compaction| compaction.order);
            if message < call && message < compaction {
                messages.next().map(Entry::Message)
            } else if call < compaction {
                calls.next().map(Entry::ToolCall)
            } else {
                compactions.next().map(Entry::Compaction)
            }
        })
    }

    /// Returns the messages in the order they began.
    pub fn messages(&self) -> impl DoubleEndedIterator<Item = &Message> {
        self.0.messages().iter()
    }

    /// Returns the message that a [`Change`](super::Change) names, unless it had to make room for later ones.
    #[must_use]
    pub fn message(&self, message: MessageRef) -> Option<&Message> {
        self.0.messages().get(message.0)
    }

    /// Returns the message of a kind with an id.
    #[must_use]
    pub fn message_with_id(&self, kind: MessageKind, id: &MessageId) -> Option<&Message> {
        let messages = self.0.messages();
        messages.find(kind as u8, &id.0).and_then(|position| messages.get(position))
    }

    /// Returns the tool calls in the order they were announced.
    pub fn tool_calls(&self) -> impl DoubleEndedIterator<Item = &ToolCallView> {
        self.0.tool_calls.iter()
    }

    /// Returns the tool call with an id.
    #[must_use]
    pub fn tool_call(&self, id: &ToolCallId) -> Option<&ToolCallView> {
        self.0.tool_calls.find(0, &id.0).and_then(|position| self.0.tool_calls.get(position))
    }

    /// Returns the compactions in the order they began.
    pub fn compactions(&self) -> impl DoubleEndedIterator<Item = &Compaction> {
        self.0.compactions.iter()
    }

    /// Returns the plan, which is empty until the agent makes one.
    #[must_use]
    pub fn plan(&self) -> &[PlanEntry] {
        &self.0.plan
    }

    /// Returns the commands the user can give.
    #[must_use]
    pub fn commands(&self) -> &[AvailableCommand] {
        &self.0.commands
    }

    /// Returns the modes the agent offers.
    #[must_use]
    pub fn modes(&self) -> &[SessionMode] {
        &self.0.modes
    }

    /// Returns the id of the mode the agent is in. It need not be one of [`modes`](Self::modes): an agent may switch
    /// to one it does not offer.
    #[must_use]
    pub fn current_mode(&self) -> Option<&SessionModeId> {
        self.0.current_mode.as_ref()
    }

    /// Returns the options of the session, with their values.
    #[must_use]
    pub fn config_options(&self) -> &[SessionConfigOption] {
        &self.0.config_options
    }

    /// Returns how full the context is and what the session cost.
    #[must_use]
    pub fn usage(&self) -> Option<&UsageUpdate> {
        self.0.usage.as_deref()
    }

    /// Returns the title of the session.
    #[must_use]
    pub fn title(&self) -> Option<&str> {
        self.0.title.as_deref()
    }

    /// Returns when the session was last active, as the agent wrote it.
    #[must_use]
    pub fn updated_at(&self) -> Option<&str> {
        self.0.updated_at.as_deref()
    }

    /// Returns the latest notices. They are events, no part of the timeline.
    pub fn notices(&self) -> impl DoubleEndedIterator<Item = &Notice> {
        self.0.notices.iter()
    }

    /// Returns how many notices there have been.
    #[must_use]
    pub fn notices_total(&self) -> u64 {
        self.0.notices.total()
    }

    /// Returns the latest updates of unknown kinds.
    pub fn unknown(&self) -> impl DoubleEndedIterator<Item = &Unknown> {
        self.0.unknown.iter()
    }

    /// Returns how many updates of unknown kinds there have been.
    #[must_use]
    pub fn unknown_total(&self) -> u64 {
        self.0.unknown.total()
    }

    /// Returns what is missing from the front of the lists.
    #[must_use]
    pub fn dropped(&self) -> Dropped {
        Dropped {
            messages: self.0.messages().lost(),
            tool_calls: self.0.tool_calls.lost(),
            compactions: self.0.compactions.lost(),
        }
    }
}
