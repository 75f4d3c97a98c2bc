//! A snapshot of a session at one moment.

use std::sync::Arc;

use agent_client_protocol_schema::v1::{
    AvailableCommand, MessageId, Notice, PlanEntry, SessionConfigOption, SessionId, SessionMode,
    SessionModeId, ToolCallId, UsageUpdate,
};

use super::bounded_list::EvictionStats;
use super::compaction::Compaction;
use super::state::State;
use super::tool_calls::ToolCallView;
use super::transcript::{MessageKind, MessageRef, SessionMessage};

/// The state of a session when the snapshot was taken. Immutable; cloning copies one reference.
#[derive(Debug, Clone)]
pub struct SessionSnapshot(pub(super) Arc<State>);

/// An item with its own position in the timeline of a session.
#[derive(Debug, Clone, Copy)]
pub enum TimelineEntry<'a> {
    /// A message, positioned at its first chunk.
    Message(&'a SessionMessage),
    /// A tool call, positioned at its announcement.
    ToolCall(&'a ToolCallView),
    /// A compaction, positioned at its first update.
    Compaction(&'a Compaction),
}

/// The items that a snapshot lacks because they exceeded [`AccumulatorLimits`](super::AccumulatorLimits).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionEvictions {
    /// Messages, and the bytes truncated from the front of the oldest.
    pub messages: EvictionStats,
    /// Tool calls.
    pub tool_calls: EvictionStats,
    /// Compactions, and the bytes truncated from the front of the oldest summary.
    pub compactions: EvictionStats,
}

impl SessionSnapshot {
    /// Returns the id of the session, once a message has named it.
    #[must_use]
    pub fn session_id(&self) -> Option<&SessionId> {
        self.0.session_id.as_ref()
    }

    /// Returns messages, tool calls and compactions in one list, in the order they began.
    pub fn timeline(&self) -> impl Iterator<Item = TimelineEntry<'_>> {
        let mut messages = self.messages().peekable();
        let mut calls = self.tool_calls().peekable();
        let mut compactions = self.compactions().peekable();
        std::iter::from_fn(move || {
            let message = messages.peek().map_or(u64::MAX, |message| message.order);
            let call = calls.peek().map_or(u64::MAX, |call| call.order);
            let compaction = compactions.peek().map_or(u64::MAX, |compaction| compaction.order);
            if message < call && message < compaction {
                messages.next().map(TimelineEntry::Message)
            } else if call < compaction {
                calls.next().map(TimelineEntry::ToolCall)
            } else {
                compactions.next().map(TimelineEntry::Compaction)
            }
        })
    }

    /// Returns the messages in the order they began.
    pub fn messages(&self) -> impl DoubleEndedIterator<Item = &SessionMessage> {
        self.0.messages().iter()
    }

    /// Returns the message that a [`SessionChange`](super::SessionChange) names, unless it has been evicted.
    #[must_use]
    pub fn message(&self, message: MessageRef) -> Option<&SessionMessage> {
        self.0.messages().get(message.0)
    }

    /// Returns the message with the given kind and id.
    #[must_use]
    pub fn message_with_id(&self, kind: MessageKind, id: &MessageId) -> Option<&SessionMessage> {
        let messages = self.0.messages();
        messages.find(kind as u8, &id.0).and_then(|position| messages.get(position))
    }

    /// Returns the tool calls in the order they were announced.
    pub fn tool_calls(&self) -> impl DoubleEndedIterator<Item = &ToolCallView> {
        self.0.tool_calls.iter()
    }

    /// Returns the tool call with the given id.
    #[must_use]
    pub fn tool_call(&self, id: &ToolCallId) -> Option<&ToolCallView> {
        self.0.tool_calls.find(0, &id.0).and_then(|position| self.0.tool_calls.get(position))
    }

    /// Returns the compactions in the order they began.
    pub fn compactions(&self) -> impl DoubleEndedIterator<Item = &Compaction> {
        self.0.compactions.iter()
    }

    /// Returns the plan; empty until the agent sends one.
    #[must_use]
    pub fn plan(&self) -> &[PlanEntry] {
        &self.0.plan
    }

    /// Returns the commands available to the user.
    #[must_use]
    pub fn commands(&self) -> &[AvailableCommand] {
        &self.0.commands
    }

    /// Returns the modes the agent offers.
    #[must_use]
    pub fn modes(&self) -> &[SessionMode] {
        &self.0.modes
    }

    /// Returns the id of the current mode. It need not be one of [`modes`](Self::modes): an agent may switch to a mode
    /// that it does not offer.
    #[must_use]
    pub fn current_mode(&self) -> Option<&SessionModeId> {
        self.0.current_mode.as_ref()
    }

    /// Returns the options of the session, with their values.
    #[must_use]
    pub fn config_options(&self) -> &[SessionConfigOption] {
        &self.0.config_options
    }

    /// Returns the context usage and the cost of the session.
    #[must_use]
    pub fn usage(&self) -> Option<&UsageUpdate> {
        self.0.usage.as_deref()
    }

    /// Returns the title of the session.
    #[must_use]
    pub fn title(&self) -> Option<&str> {
        self.0.title.as_deref()
    }

    /// Returns the time of the last activity, as the agent formatted it.
    #[must_use]
    pub fn updated_at(&self) -> Option<&str> {
        self.0.updated_at.as_deref()
    }

    /// Returns the latest notices. They are events and not part of the timeline.
    pub fn notices(&self) -> impl DoubleEndedIterator<Item = &Notice> {
        self.0.notices.iter()
    }

    /// Returns how many notices have arrived.
    #[must_use]
    pub fn notice_count(&self) -> u64 {
        self.0.notices.total_pushed()
    }

    /// Returns what has been evicted from the front of the lists.
    #[must_use]
    pub fn evictions(&self) -> SessionEvictions {
        SessionEvictions {
            messages: self.0.messages().evicted(),
            tool_calls: self.0.tool_calls.evicted(),
            compactions: self.0.compactions.evicted(),
        }
    }
}
