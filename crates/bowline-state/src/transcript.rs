//! What is kept of a session, and what is made of it again: the updates that a client was told, for its view; the
//! messages of the conversation, for the model.
//!
//! A client that folds what [`replay`] returns sees what one saw that was there from the start: the same messages, the
//! same tool calls in the state they ended in, the same plan. [`condense`] makes less of the updates before they are kept
//! and changes nothing of that. [`mend`] makes a conversation that was cut off anywhere one that every provider takes.

use std::collections::HashMap;

use agent_client_protocol_schema::MaybeUndefined;
use agent_client_protocol_schema::v1::{
    CompactionId, CompactionStatus, CompactionUpdate, ContentBlock, ContentChunk, SessionUpdate, TextContent,
    ToolCall, ToolCallContent, ToolCallId, ToolCallStatus, ToolCallUpdate,
};
use serde_json::Value;

mod mend;

pub use mend::{INTERRUPTED, LOST_BEGINNING, mend};

/// Says whether an update is part of the session's history. The rest tells of what is so just now: commands, mode,
/// options, usage, title. Whoever loads a session tells that of the present.
#[must_use]
pub fn is_kept(update: &SessionUpdate) -> bool {
    match update {
        SessionUpdate::UserMessageChunk(_)
        | SessionUpdate::AgentMessageChunk(_)
        | SessionUpdate::AgentThoughtChunk(_)
        | SessionUpdate::ToolCall(_)
        | SessionUpdate::ToolCallUpdate(_)
        | SessionUpdate::Plan(_)
        | SessionUpdate::CompactionUpdate(_)
        | SessionUpdate::CompactionSummaryChunk(_) => true,
        // Notices are no history by the protocol's own word. Kinds that are not known here are not sent by us.
        _ => false,
    }
}

/// Makes less of some updates of a session, in the order they were sent: what is no history goes, pieces of one message
/// that follow each other become one, what is told of a call goes where it was first told of, and of the plans of one
/// turn the last is left.
///
/// The updates are such as the protocol allows. They may be any stretch of a session.
#[must_use]
pub fn condense(updates: impl IntoIterator<Item = SessionUpdate>) -> Vec<SessionUpdate> {
    let mut kept = Condensed::default();
    updates.into_iter().filter(is_kept).for_each(|update| kept.push(update));
    kept.updates.into_iter().flatten().collect()
}

/// Returns what a client is told that loads a session: all of it, shortly.
///
/// Each tool call is one update that says how it ended. One that had not ended has failed: its program is gone. Terminals
/// are gone too, so what a call showed of one is replaced by its raw output, if that is text. An update of a call whose
/// beginning is not there is left out.
#[must_use]
pub fn replay(updates: impl IntoIterator<Item = SessionUpdate>) -> Vec<SessionUpdate> {
    let mut replayed: Vec<SessionUpdate> = Vec::new();
    let mut compactions: HashMap<CompactionId, usize> = HashMap::new();
    for update in condense(updates) {
        let (id, patch) = match update {
            SessionUpdate::ToolCall(call) => {
                replayed.push(SessionUpdate::ToolCall(over(call)));
                continue;
            }
            // Some agents begin with an update; one with a title says all that an announcement must.
            SessionUpdate::ToolCallUpdate(update) => {
                let call = ToolCall::try_from(update).ok();
                replayed.extend(call.map(|call| SessionUpdate::ToolCall(over(call))));
                continue;
            }
            SessionUpdate::CompactionUpdate(patch) => (patch.compaction_id.clone(), Patch::Update(patch)),
            SessionUpdate::CompactionSummaryChunk(chunk) => {
                (chunk.compaction_id, Patch::Chunk(chunk.content))
            }
            // What was between two pieces of a message may have gone elsewhere.
            other => {
                match replayed.last_mut() {
                    Some(last) if continues(last, &other) => add(last, other),
                    _ => replayed.push(other),
                }
                continue;
            }
        };
        let at = *compactions.entry(id.clone()).or_insert_with(|| {
            let begun = CompactionUpdate::new(id, CompactionStatus::default());
            replayed.push(SessionUpdate::CompactionUpdate(begun));
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

/// Updates that became fewer.
#[derive(Default)]
struct Condensed {
    // What something later replaces leaves a hole.
    updates: Vec<Option<SessionUpdate>>,
    // Invariant: where in `updates` what is told of each call is.
    calls: HashMap<ToolCallId, usize>,
    // Where the plan of this turn is.
    plan: Option<usize>,
}

impl Condensed {
    fn push(&mut self, update: SessionUpdate) {
        match update {
            SessionUpdate::ToolCall(call) => self.announce(call),
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
                // The last is never a hole: what made one is behind it.
                match self.updates.last_mut() {
                    Some(Some(last)) if continues(last, &update) => add(last, update),
                    _ => self.updates.push(Some(update)),
                }
            }
        }
    }

    fn announce(&mut self, call: ToolCall) {
        let before = self.calls.get(&call.tool_call_id).and_then(|at| self.updates.get_mut(*at));
        match before {
            None => {}
            // What was told of it before it was announced counted for nothing.
            Some(told @ Some(SessionUpdate::ToolCallUpdate(_))) => *told = None,
            Some(_) => return,
        }
        self.calls.insert(call.tool_call_id.clone(), self.updates.len());
        self.updates.push(Some(SessionUpdate::ToolCall(call)));
    }

    fn update_call(&mut self, update: ToolCallUpdate) {
        let known = self.calls.get(&update.tool_call_id).and_then(|at| self.updates.get_mut(*at));
        match known {
            Some(Some(SessionUpdate::ToolCall(call))) => {
                if !reopens(call.status, &update) {
                    call.update(update.fields);
                    call.meta = update.meta.or(call.meta.take());
                }
            }
            Some(Some(SessionUpdate::ToolCallUpdate(known))) => {
                if !known.fields.status.is_some_and(|status| reopens(status, &update)) {
                    merge(known, update);
                }
            }
            _ => {
                self.calls.insert(update.tool_call_id.clone(), self.updates.len());
                self.updates.push(Some(SessionUpdate::ToolCallUpdate(update)));
            }
        }
    }
}

/// Says whether an update wants a call that is over to go on, which nobody takes in.
fn reopens(status: ToolCallStatus, update: &ToolCallUpdate) -> bool {
    is_over(status) && update.fields.status.is_some_and(|wanted| !is_over(wanted))
}

fn is_over(status: ToolCallStatus) -> bool {
    matches!(status, ToolCallStatus::Completed | ToolCallStatus::Failed)
}

/// Puts what a later update says on top of an earlier one.
fn merge(known: &mut ToolCallUpdate, later: ToolCallUpdate) {
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

/// Says whether a chunk is more of the text that the last one has.
fn continues(last: &SessionUpdate, next: &SessionUpdate) -> bool {
    let same_kind = std::mem::discriminant(last) == std::mem::discriminant(next);
    match (plain(last), plain(next)) {
        (Some((last, _)), Some((next, _))) => same_kind && last.message_id == next.message_id,
        _ => false,
    }
}

fn add(last: &mut SessionUpdate, next: SessionUpdate) {
    if let Some((_, more)) = plain(&next)
        && let SessionUpdate::UserMessageChunk(chunk)
        | SessionUpdate::AgentMessageChunk(chunk)
        | SessionUpdate::AgentThoughtChunk(chunk) = last
        && let ContentBlock::Text(text) = &mut chunk.content
    {
        text.text.push_str(more);
    }
}

/// Returns a chunk and its text if that is all it says.
fn plain(update: &SessionUpdate) -> Option<(&ContentChunk, &str)> {
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

/// Returns a call as it is when nobody works on it any more.
fn over(mut call: ToolCall) -> ToolCall {
    if !is_over(call.status) {
        call.status = ToolCallStatus::Failed;
    }
    let is_terminal = |content: &ToolCallContent| matches!(content, ToolCallContent::Terminal(_));
    if call.content.iter().any(is_terminal) {
        call.content.retain(|content| !is_terminal(content));
        let output = call.raw_output.as_ref().and_then(text_of);
        call.content.extend(output.map(|text| ToolCallContent::from(text.to_owned())));
    }
    call
}

/// Returns the text of a tool's raw output, if it is text or says which of it is.
fn text_of(output: &Value) -> Option<&str> {
    let text = output.as_str().or_else(|| output.get("output")?.as_str())?;
    (!text.is_empty()).then_some(text)
}

/// What is told of a compaction.
enum Patch {
    Update(CompactionUpdate),
    Chunk(ContentBlock),
}

impl Patch {
    fn apply(self, compaction: &mut CompactionUpdate) {
        match self {
            Patch::Update(patch) => {
                compaction.status = patch.status;
                replace(&mut compaction.summary, patch.summary);
                replace(&mut compaction.error, patch.error);
                replace(&mut compaction.meta, patch.meta);
            }
            Patch::Chunk(block) => match &mut compaction.summary {
                MaybeUndefined::Value(blocks) => blocks.push(block),
                none => *none = MaybeUndefined::Value(vec![block]),
            },
        }
    }
}

fn replace<T>(kept: &mut MaybeUndefined<T>, told: MaybeUndefined<T>) {
    if !told.is_undefined() {
        *kept = told;
    }
}

#[cfg(test)]
mod tests;
