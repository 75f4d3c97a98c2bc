//! The state behind a snapshot, and how one update changes it.

use std::sync::Arc;

use agent_client_protocol_schema::MaybeUndefined;
use agent_client_protocol_schema::v1::{
    AvailableCommand, Notice, PlanEntry, SessionConfigOption, SessionId, SessionInfoUpdate, SessionMode,
    SessionModeId, SessionUpdate, UsageUpdate,
};

use super::body::json_size;
use super::compaction::{self, Compaction};
use super::shelf::{Item, Key, Shelf};
use super::snapshot::Unknown;
use super::tool_calls::{self, ToolCallView};
use super::transcript::{Message, MessageKind, Transcript};
use super::{Breach, Change, Limits};

/// The kind of an update that was not read by this build is kept up to this many bytes.
const MAX_UNKNOWN_KIND: usize = 128;
/// An update of an unknown kind is kept up to this many bytes.
const MAX_UNKNOWN_RAW: usize = 4096;

/// Everything known of a session. A clone shares all of it.
///
/// The plan, commands, modes, options and usage are replaced whole, so they hold no more than one message brought.
#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) session_id: Option<SessionId>,
    pub(super) transcript: Transcript,
    pub(super) tool_calls: Shelf<ToolCallView>,
    pub(super) compactions: Shelf<Compaction>,
    pub(super) notices: Shelf<Notice>,
    pub(super) unknown: Shelf<Unknown>,
    pub(super) plan: Arc<[PlanEntry]>,
    pub(super) commands: Arc<[AvailableCommand]>,
    pub(super) modes: Arc<[SessionMode]>,
    pub(super) current_mode: Option<SessionModeId>,
    pub(super) config_options: Arc<[SessionConfigOption]>,
    pub(super) usage: Option<Arc<UsageUpdate>>,
    pub(super) title: Option<Arc<str>>,
    pub(super) updated_at: Option<Arc<str>>,
    // The place in the timeline of the next thing that takes one.
    order: u64,
}

impl State {
    pub(super) fn new(session_id: Option<SessionId>, limits: &Limits) -> Self {
        Self {
            session_id,
            transcript: Transcript::new(Shelf::new(limits.messages)),
            tool_calls: Shelf::new(limits.tool_calls),
            compactions: Shelf::new(limits.compactions),
            notices: Shelf::new(limits.notices),
            unknown: Shelf::new(limits.unknown),
            plan: Arc::from([]),
            commands: Arc::from([]),
            modes: Arc::from([]),
            current_mode: None,
            config_options: Arc::from([]),
            usage: None,
            title: None,
            updated_at: None,
            order: 0,
        }
    }

    /// Takes in one update. On a breach nothing has changed.
    pub(super) fn fold(&mut self, update: &SessionUpdate) -> Result<Change, Breach> {
        let order = self.order;
        let change = match update {
            SessionUpdate::UserMessageChunk(chunk) => self.transcript.push(MessageKind::User, chunk, order),
            SessionUpdate::AgentMessageChunk(chunk) => self.transcript.push(MessageKind::Agent, chunk, order),
            SessionUpdate::AgentThoughtChunk(chunk) => {
                self.transcript.push(MessageKind::Thought, chunk, order)
            }
            SessionUpdate::ToolCall(call) => tool_calls::announce(&mut self.tool_calls, call, order)?,
            SessionUpdate::ToolCallUpdate(update) => tool_calls::update(&mut self.tool_calls, update, order)?,
            SessionUpdate::Plan(plan) => {
                self.plan = plan.entries.as_slice().into();
                Change::Plan
            }
            SessionUpdate::AvailableCommandsUpdate(update) => {
                self.commands = update.available_commands.as_slice().into();
                Change::Commands
            }
            SessionUpdate::CurrentModeUpdate(update) => {
                self.current_mode = Some(update.current_mode_id.clone());
                Change::Mode
            }
            SessionUpdate::ConfigOptionUpdate(update) => {
                self.config_options = update.config_options.as_slice().into();
                Change::ConfigOptions
            }
            SessionUpdate::SessionInfoUpdate(info) => self.inform(info),
            SessionUpdate::UsageUpdate(usage) => {
                self.usage = Some(Arc::new(usage.clone()));
                Change::Usage
            }
            SessionUpdate::Notice(notice) => {
                self.notices.push(notice.clone());
                Change::Notice
            }
            SessionUpdate::CompactionUpdate(update) => {
                compaction::update(&mut self.compactions, update, order)?
            }
            SessionUpdate::CompactionSummaryChunk(chunk) => {
                compaction::append(&mut self.compactions, chunk, order)?
            }
            // The schema knows more kinds than this build was written for: they are kept like those of a newer peer.
            update => self.keep_unlisted(update),
        };
        // Whatever takes a place of its own in the timeline comes between the chunks of a message.
        if let Change::ToolCallAdded(_) | Change::CompactionAdded(_) = change {
            self.transcript.close();
        }
        self.order += 1;
        Ok(change)
    }

    /// Keeps an update whose kind is not known here, shortened if it is long.
    pub(super) fn keep_unknown(&mut self, kind: &str, raw: &str) -> Change {
        self.unknown.push(Unknown {
            kind: kind[..kind.floor_char_boundary(MAX_UNKNOWN_KIND)].into(),
            raw: raw[..raw.floor_char_boundary(MAX_UNKNOWN_RAW)].into(),
        });
        Change::Unknown
    }

    pub(super) fn keep_unlisted(&mut self, update: &SessionUpdate) -> Change {
        let raw = serde_json::to_value(update).unwrap_or_default();
        let kind = raw.get("sessionUpdate").and_then(|kind| kind.as_str()).unwrap_or_default();
        self.keep_unknown(kind, &raw.to_string())
    }

    fn inform(&mut self, info: &SessionInfoUpdate) -> Change {
        for (kept, told) in [(&mut self.title, &info.title), (&mut self.updated_at, &info.updated_at)] {
            match told {
                MaybeUndefined::Undefined => {}
                MaybeUndefined::Null => *kept = None,
                MaybeUndefined::Value(text) => *kept = Some(text.as_str().into()),
            }
        }
        Change::Info
    }

    pub(super) fn messages(&self) -> &Shelf<Message> {
        &self.transcript.messages
    }
}

impl Item for Notice {
    fn key(&self) -> Option<Key> {
        None
    }

    fn bytes(&self) -> u64 {
        json_size(|to| serde_json::to_writer(to, self))
    }
}

impl Item for Unknown {
    fn key(&self) -> Option<Key> {
        None
    }

    fn bytes(&self) -> u64 {
        (self.kind.len() + self.raw.len()) as u64
    }
}
