//! The state behind a snapshot, and how one update changes it.

use std::sync::Arc;

use agent_client_protocol_schema::MaybeUndefined;
use agent_client_protocol_schema::v1::{
    AvailableCommand, Notice, PlanEntry, SessionConfigOption, SessionId, SessionInfoUpdate, SessionMode,
    SessionModeId, SessionUpdate, UsageUpdate,
};

use super::bounded_list::{BoundedList, ItemKey, ListItem};
use super::compaction::{self, Compaction};
use super::content::json_size;
use super::tool_calls::{self, ToolCallView};
use super::transcript::{MessageKind, SessionMessage, Transcript};
use super::{AccumulatorLimits, SessionChange, SessionViolation};

/// The whole state of a session. Clones share its storage.
///
/// The plan, commands, modes, options and usage are replaced whole, so each is bounded by the size of one message.
#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) session_id: Option<SessionId>,
    pub(super) transcript: Transcript,
    pub(super) tool_calls: BoundedList<ToolCallView>,
    pub(super) compactions: BoundedList<Compaction>,
    pub(super) notices: BoundedList<Notice>,
    pub(super) plan: Arc<[PlanEntry]>,
    pub(super) commands: Arc<[AvailableCommand]>,
    pub(super) modes: Arc<[SessionMode]>,
    pub(super) current_mode: Option<SessionModeId>,
    pub(super) config_options: Arc<[SessionConfigOption]>,
    pub(super) usage: Option<Arc<UsageUpdate>>,
    pub(super) title: Option<Arc<str>>,
    pub(super) updated_at: Option<Arc<str>>,
    // The timeline position of the next item.
    next_order: u64,
}

impl State {
    pub(super) fn new(session_id: Option<SessionId>, limits: &AccumulatorLimits) -> Self {
        Self {
            session_id,
            transcript: Transcript::new(BoundedList::new(limits.messages)),
            tool_calls: BoundedList::new(limits.tool_calls),
            compactions: BoundedList::new(limits.compactions),
            notices: BoundedList::new(limits.notices),
            plan: Arc::from([]),
            commands: Arc::from([]),
            modes: Arc::from([]),
            current_mode: None,
            config_options: Arc::from([]),
            usage: None,
            title: None,
            updated_at: None,
            next_order: 0,
        }
    }

    /// Applies one update. A violation leaves the state unchanged.
    pub(super) fn fold(&mut self, update: &SessionUpdate) -> Result<SessionChange, SessionViolation> {
        let order = self.next_order;
        let change = match update {
            SessionUpdate::UserMessageChunk(chunk) => {
                self.transcript.push_chunk(MessageKind::User, chunk, order)
            }
            SessionUpdate::AgentMessageChunk(chunk) => {
                self.transcript.push_chunk(MessageKind::Agent, chunk, order)
            }
            SessionUpdate::AgentThoughtChunk(chunk) => {
                self.transcript.push_chunk(MessageKind::Thought, chunk, order)
            }
            SessionUpdate::ToolCall(call) => tool_calls::apply_tool_call(&mut self.tool_calls, call, order)?,
            SessionUpdate::ToolCallUpdate(update) => {
                tool_calls::apply_tool_call_update(&mut self.tool_calls, update, order)?
            }
            SessionUpdate::Plan(plan) => {
                self.plan = plan.entries.as_slice().into();
                SessionChange::Plan
            }
            SessionUpdate::AvailableCommandsUpdate(update) => {
                self.commands = update.available_commands.as_slice().into();
                SessionChange::Commands
            }
            SessionUpdate::CurrentModeUpdate(update) => {
                self.current_mode = Some(update.current_mode_id.clone());
                SessionChange::Mode
            }
            SessionUpdate::ConfigOptionUpdate(update) => {
                self.config_options = update.config_options.as_slice().into();
                SessionChange::ConfigOptions
            }
            SessionUpdate::SessionInfoUpdate(info) => self.apply_info(info),
            SessionUpdate::UsageUpdate(usage) => {
                self.usage = Some(Arc::new(usage.clone()));
                SessionChange::Usage
            }
            SessionUpdate::Notice(notice) => {
                self.notices.push(notice.clone());
                SessionChange::Notice
            }
            SessionUpdate::CompactionUpdate(update) => {
                compaction::apply_update(&mut self.compactions, update, order)?
            }
            SessionUpdate::CompactionSummaryChunk(chunk) => {
                compaction::apply_summary_chunk(&mut self.compactions, chunk, order)?
            }
            // The schema may know more kinds than this build handles.
            _ => SessionChange::UnknownUpdate,
        };
        // An item with its own timeline position separates the chunks of a message.
        if let SessionChange::ToolCallAdded(_) | SessionChange::CompactionAdded(_) = change {
            self.transcript.close_message();
        }
        self.next_order += 1;
        Ok(change)
    }

    fn apply_info(&mut self, info: &SessionInfoUpdate) -> SessionChange {
        for (field, update) in [(&mut self.title, &info.title), (&mut self.updated_at, &info.updated_at)] {
            match update {
                MaybeUndefined::Undefined => {}
                MaybeUndefined::Null => *field = None,
                MaybeUndefined::Value(text) => *field = Some(text.as_str().into()),
            }
        }
        SessionChange::Info
    }

    pub(super) fn messages(&self) -> &BoundedList<SessionMessage> {
        &self.transcript.messages
    }
}

impl ListItem for Notice {
    fn key(&self) -> Option<ItemKey> {
        None
    }

    fn bytes(&self) -> u64 {
        json_size(|writer| serde_json::to_writer(writer, self))
    }
}
