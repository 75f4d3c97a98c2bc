//! The compactions of one session: points at which the agent replaced its history with a summary.

use std::sync::Arc;

use agent_client_protocol_schema::MaybeUndefined;
use agent_client_protocol_schema::v1::{
    CompactionId, CompactionStatus, CompactionSummaryChunk, CompactionUpdate, Meta,
};

use super::bounded_list::{BoundedList, ItemKey, ListItem};
use super::content::{StreamedContent, json_size};
use super::{IdKind, SessionChange, SessionViolation};

/// The current state of one compaction.
#[derive(Debug, Clone)]
pub struct Compaction {
    /// Its id.
    pub id: CompactionId,
    /// Its progress.
    pub status: CompactionStatus,
    /// The summary that replaced the history.
    pub summary: StreamedContent,
    /// Why it failed.
    pub error: Option<Arc<str>>,
    /// The agent's `_meta`.
    pub meta: Option<Arc<Meta>>,
    pub(super) order: u64,
    // Invariant: the size of all fields except the summary.
    bytes: u64,
}

impl Compaction {
    fn new(id: CompactionId, order: u64) -> Self {
        let mut compaction = Self {
            id,
            status: CompactionStatus::default(),
            summary: StreamedContent::default(),
            error: None,
            meta: None,
            order,
            bytes: 0,
        };
        compaction.update_size();
        compaction
    }

    fn update_size(&mut self) {
        let status = if let CompactionStatus::Other(status) = &self.status { status.len() } else { 0 };
        let error = self.error.as_ref().map_or(0, |error| error.len());
        let meta =
            self.meta.as_deref().map_or(0, |meta| json_size(|writer| serde_json::to_writer(writer, meta)));
        self.bytes = COMPACTION_OVERHEAD_BYTES + (self.id.0.len() + status + error) as u64 + meta;
    }

    fn merge(&mut self, update: &CompactionUpdate) {
        self.status = update.status.clone();
        match &update.summary {
            MaybeUndefined::Undefined => {}
            MaybeUndefined::Null => self.summary = StreamedContent::default(),
            MaybeUndefined::Value(blocks) => self.summary = blocks.iter().collect(),
        }
        match &update.error {
            MaybeUndefined::Undefined => {}
            MaybeUndefined::Null => self.error = None,
            MaybeUndefined::Value(error) => self.error = Some(error.as_str().into()),
        }
        match &update.meta {
            MaybeUndefined::Undefined => {}
            MaybeUndefined::Null => self.meta = None,
            MaybeUndefined::Value(meta) => self.meta = Some(Arc::new(meta.clone())),
        }
        self.update_size();
    }
}

/// The size of a compaction beyond its fields.
const COMPACTION_OVERHEAD_BYTES: u64 = 128;

impl ListItem for Compaction {
    fn key(&self) -> Option<ItemKey> {
        Some(ItemKey { tag: 0, id: self.id.0.clone() })
    }

    fn bytes(&self) -> u64 {
        self.bytes + self.summary.bytes()
    }

    fn shrink(&mut self) {
        self.summary.shrink();
    }
}

/// Applies a `compaction_update`, which starts or changes a compaction.
pub(super) fn apply_update(
    compactions: &mut BoundedList<Compaction>,
    update: &CompactionUpdate,
    order: u64,
) -> Result<SessionChange, SessionViolation> {
    update_or_insert(compactions, &update.compaction_id, order, |compaction| compaction.merge(update))
}

/// Applies a `compaction_summary_chunk`, which starts a compaction or extends its summary.
pub(super) fn apply_summary_chunk(
    compactions: &mut BoundedList<Compaction>,
    chunk: &CompactionSummaryChunk,
    order: u64,
) -> Result<SessionChange, SessionViolation> {
    update_or_insert(compactions, &chunk.compaction_id, order, |compaction| {
        compaction.summary.push(&chunk.content)
    })
}

fn update_or_insert(
    compactions: &mut BoundedList<Compaction>,
    id: &CompactionId,
    order: u64,
    change: impl FnOnce(&mut Compaction),
) -> Result<SessionChange, SessionViolation> {
    if id.0.is_empty() {
        return Err(SessionViolation::EmptyId(IdKind::Compaction));
    }
    if let Some(position) = compactions.find(0, &id.0) {
        compactions.update(position, change);
        return Ok(SessionChange::CompactionUpdated(id.clone()));
    }
    let mut compaction = Compaction::new(id.clone(), order);
    change(&mut compaction);
    compactions.push(compaction);
    Ok(SessionChange::CompactionAdded(id.clone()))
}
