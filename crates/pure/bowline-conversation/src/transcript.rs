//! Stored sessions and their restoration: the updates for a client's view, and the messages of the conversation for
//! the model.
//!
//! A client that folds the result of [`replay`] sees the same as a client that was connected from the start: the same
//! messages, the same tool calls in their final state, the same plan. [`condense`] reduces the updates before they
//! are stored without changing that. [`repair_conversation`] makes a conversation that was cut off anywhere
//! acceptable to every provider.

use std::collections::HashMap;

use agent_client_protocol_schema::MaybeUndefined;
use agent_client_protocol_schema::v1::{
    CompactionId, CompactionStatus, CompactionUpdate, ContentBlock, ContentChunk, SessionUpdate, TextContent,
    ToolCall, ToolCallContent, ToolCallId, ToolCallStatus, ToolCallUpdate,
};
use serde_json::Value;

mod repair;

pub use repair::{INTERRUPTED_RESULT, LOST_BEGINNING_TEXT, repair_conversation};

/// Returns whether an update is part of the session's history. The others describe the present: commands, mode,
/// options, usage, title. When a session is loaded, these are sent afresh.
#[must_use]
pub fn is_history(update: &SessionUpdate) -> bool {
    match update {
        SessionUpdate::UserMessageChunk(_)
        | SessionUpdate::AgentMessageChunk(_)
        | SessionUpdate::AgentThoughtChunk(_)
        | SessionUpdate::ToolCall(_)
        | SessionUpdate::ToolCallUpdate(_)
        | SessionUpdate::Plan(_)
        | SessionUpdate::CompactionUpdate(_)
        | SessionUpdate::CompactionSummaryChunk(_) => true,
        // The protocol excludes notices from history. Kinds that are not known here are never sent by us.
        _ => false,
    }
}

/// Reduces some updates of a session, given in the order they were sent: updates that are not history are dropped,
/// consecutive chunks of a message are merged, updates of a call are merged into its first one, and only the last
/// plan of each turn is kept.
///
/// The updates have to conform to the protocol. They may be any section of a session.
#[must_use]
pub fn condense(updates: impl IntoIterator<Item = SessionUpdate>) -> Vec<SessionUpdate> {
    let mut kept = CondensedUpdates::default();
    updates.into_iter().for_each(|update| kept.push(update));
    kept.into_updates()
}

/// Returns the updates for a client that loads a session: its whole history, condensed.
///
/// Each tool call is one update with its final state. A call that had not ended has failed, because its program is
/// gone. Terminals are gone too, so a call's terminal is replaced by its raw output, if that is text. An update of a
/// call without a beginning is left out.
#[must_use]
pub fn replay(updates: impl IntoIterator<Item = SessionUpdate>) -> Vec<SessionUpdate> {
    let mut replayed: Vec<SessionUpdate> = Vec::new();
    let mut compactions: HashMap<CompactionId, usize> = HashMap::new();
    for update in condense(updates) {
        let (id, patch) = match update {
            SessionUpdate::ToolCall(call) => {
                replayed.push(SessionUpdate::ToolCall(finish_call(call)));
                continue;
            }
            // Some agents begin with an update; one with a title has all that an announcement needs.
            SessionUpdate::ToolCallUpdate(update) => {
                let call = ToolCall::try_from(update).ok();
                replayed.extend(call.map(|call| SessionUpdate::ToolCall(finish_call(call))));
                continue;
            }
            SessionUpdate::CompactionUpdate(patch) => {
                (patch.compaction_id.clone(), CompactionPatch::Update(patch))
            }
            SessionUpdate::CompactionSummaryChunk(chunk) => {
                (chunk.compaction_id, CompactionPatch::Chunk(chunk.content))
            }
            // The updates between two chunks of a message may have moved elsewhere.
            other => {
                match replayed.last_mut() {
                    Some(last) if is_continuation(last, &other) => append_chunk(last, other),
                    _ => replayed.push(other),
                }
                continue;
            }
        };
        let at = *compactions.entry(id.clone()).or_insert_with(|| {
            let started = CompactionUpdate::new(id, CompactionStatus::default());
            replayed.push(SessionUpdate::CompactionUpdate(started));
            replayed.len() - 1
        });
        if let Some(SessionUpdate::CompactionUpdate(compaction)) = replayed.get_mut(at) {
            patch.apply(compaction);
        }
    }
    for update in &mut replayed {
        if let SessionUpdate::CompactionUpdate(compaction) = update
            && compaction.status == CompactionStatus::InProgress
        {
            compaction.status = CompactionStatus::Failed;
        }
    }
    replayed
}

/// The updates of a section of a session, [condensed](condense) as they arrive.
#[derive(Debug, Default)]
pub struct CondensedUpdates {
    // An update that a later one replaces leaves a hole.
    updates: Vec<Option<SessionUpdate>>,
    // Invariant: the index in `updates` of each call.
    calls: HashMap<ToolCallId, usize>,
    // The index of this turn's plan.
    plan: Option<usize>,
}

impl CondensedUpdates {
    /// Adds the next update. One that is not history is dropped.
    pub fn push(&mut self, update: SessionUpdate) {
        match update {
            update if !is_history(&update) => {}
            SessionUpdate::ToolCall(call) => self.add_call(call),
            SessionUpdate::ToolCallUpdate(update) => self.update_call(update),
            SessionUpdate::Plan(plan) => {
                if let Some(before) = self.plan.and_then(|at| self.updates.get_mut(at)) {
                    *before = None;
                }
                self.plan = Some(self.updates.len());
                self.updates.push(Some(SessionUpdate::Plan(plan)));
            }
            update => {
                if let SessionUpdate::UserMessageChunk(_) = update {
                    self.plan = None;
                }
                // The last is never a hole: the update that made the hole comes after it.
                match self.updates.last_mut() {
                    Some(Some(last)) if is_continuation(last, &update) => append_chunk(last, update),
                    _ => self.updates.push(Some(update)),
                }
            }
        }
    }

    /// Returns the updates.
    #[must_use]
    pub fn into_updates(self) -> Vec<SessionUpdate> {
        self.updates.into_iter().flatten().collect()
    }

    fn add_call(&mut self, call: ToolCall) {
        let before = self.calls.get(&call.tool_call_id).and_then(|at| self.updates.get_mut(*at));
        match before {
            None => {}
            // Updates before the announcement do not count.
            Some(slot @ Some(SessionUpdate::ToolCallUpdate(_))) => *slot = None,
            Some(_) => return,
        }
        self.calls.insert(call.tool_call_id.clone(), self.updates.len());
        self.updates.push(Some(SessionUpdate::ToolCall(call)));
    }

    fn update_call(&mut self, update: ToolCallUpdate) {
        let known = self.calls.get(&update.tool_call_id).and_then(|at| self.updates.get_mut(*at));
        match known {
            Some(Some(SessionUpdate::ToolCall(call))) => {
                if !would_reopen(call.status, &update) {
                    call.update(update.fields);
                    call.meta = update.meta.or(call.meta.take());
                }
            }
            Some(Some(SessionUpdate::ToolCallUpdate(known))) => {
                if !known.fields.status.is_some_and(|status| would_reopen(status, &update)) {
                    merge_update(known, update);
                }
            }
            _ => {
                self.calls.insert(update.tool_call_id.clone(), self.updates.len());
                self.updates.push(Some(SessionUpdate::ToolCallUpdate(update)));
            }
        }
    }
}

/// Returns whether an update would reopen a finished call, which every client ignores.
fn would_reopen(status: ToolCallStatus, update: &ToolCallUpdate) -> bool {
    is_finished(status) && update.fields.status.is_some_and(|requested| !is_finished(requested))
}

fn is_finished(status: ToolCallStatus) -> bool {
    matches!(status, ToolCallStatus::Completed | ToolCallStatus::Failed)
}

/// Merges a later update into an earlier one.
fn merge_update(known: &mut ToolCallUpdate, later: ToolCallUpdate) {
    let (fields, later_fields) = (&mut known.fields, later.fields);
    fields.kind = later_fields.kind.or(fields.kind);
    fields.status = later_fields.status.or(fields.status);
    fields.title = later_fields.title.or(fields.title.take());
    fields.name = later_fields.name.or(fields.name.take());
    fields.content = later_fields.content.or(fields.content.take());
    fields.locations = later_fields.locations.or(fields.locations.take());
    fields.raw_input = later_fields.raw_input.or(fields.raw_input.take());
    fields.raw_output = later_fields.raw_output.or(fields.raw_output.take());
    known.meta = later.meta.or(known.meta.take());
}

/// Returns whether a chunk continues the text of the last one.
fn is_continuation(last: &SessionUpdate, next: &SessionUpdate) -> bool {
    let same_kind = std::mem::discriminant(last) == std::mem::discriminant(next);
    match (plain_text_chunk(last), plain_text_chunk(next)) {
        (Some((last, _)), Some((next, _))) => same_kind && last.message_id == next.message_id,
        _ => false,
    }
}

fn append_chunk(last: &mut SessionUpdate, next: SessionUpdate) {
    if let Some((_, more)) = plain_text_chunk(&next)
        && let SessionUpdate::UserMessageChunk(chunk)
        | SessionUpdate::AgentMessageChunk(chunk)
        | SessionUpdate::AgentThoughtChunk(chunk) = last
        && let ContentBlock::Text(text) = &mut chunk.content
    {
        text.text.push_str(more);
    }
}

/// Returns a chunk and its text, if it has nothing else.
fn plain_text_chunk(update: &SessionUpdate) -> Option<(&ContentChunk, &str)> {
    match update {
        SessionUpdate::UserMessageChunk(chunk)
        | SessionUpdate::AgentMessageChunk(chunk)
        | SessionUpdate::AgentThoughtChunk(chunk) => match &chunk.content {
            ContentBlock::Text(TextContent { text, annotations: None, meta: None, .. })
                if chunk.meta.is_none() =>
            {
                Some((chunk, text))
            }
            _ => None,
        },
        _ => None,
    }
}

/// Returns a call in its final state, given that its program is gone.
fn finish_call(mut call: ToolCall) -> ToolCall {
    if !is_finished(call.status) {
        call.status = ToolCallStatus::Failed;
    }
    let is_terminal = |content: &ToolCallContent| matches!(content, ToolCallContent::Terminal(_));
    if call.content.iter().any(is_terminal) {
        call.content.retain(|content| !is_terminal(content));
        let output = call.raw_output.as_ref().and_then(output_text);
        call.content.extend(output.map(|text| ToolCallContent::from(text.to_owned())));
    }
    call
}

/// Returns the text of a tool's raw output: the output itself, or its `output` field.
fn output_text(output: &Value) -> Option<&str> {
    let text = output.as_str().or_else(|| output.get("output")?.as_str())?;
    (!text.is_empty()).then_some(text)
}

/// A part of a compaction's state.
enum CompactionPatch {
    Update(CompactionUpdate),
    Chunk(ContentBlock),
}

impl CompactionPatch {
    fn apply(self, compaction: &mut CompactionUpdate) {
        match self {
            CompactionPatch::Update(patch) => {
                compaction.status = patch.status;
                replace_if_defined(&mut compaction.summary, patch.summary);
                replace_if_defined(&mut compaction.error, patch.error);
                replace_if_defined(&mut compaction.meta, patch.meta);
            }
            CompactionPatch::Chunk(block) => match &mut compaction.summary {
                MaybeUndefined::Value(blocks) => blocks.push(block),
                none => *none = MaybeUndefined::Value(vec![block]),
            },
        }
    }
}

fn replace_if_defined<T>(field: &mut MaybeUndefined<T>, update: MaybeUndefined<T>) {
    if !update.is_undefined() {
        *field = update;
    }
}

#[cfg(test)]
mod tests;
