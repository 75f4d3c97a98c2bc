//! The compactions of one session: where the agent replaced its history by a summary.

use std::sync::Arc;

use agent_client_protocol_schema::MaybeUndefined;
use agent_client_protocol_schema::v1::{
    CompactionId, CompactionStatus, CompactionSummaryChunk, CompactionUpdate, Meta,
};

use super::body::{Body, json_size};
use super::shelf::{Item, Key, Shelf};
use super::{Breach, Change, Named};

/// One compaction as it stands.
#[derive(Debug, Clone)]
pub struct Compaction {
    /// Its id.
    pub id: CompactionId,
    /// How far it is.
    pub status: CompactionStatus,
    /// What the history was replaced by.
    pub summary: Body,
    /// Why it failed.
    pub error: Option<Arc<str>>,
    /// What the agent attached to it.
    pub meta: Option<Arc<Meta>>,
    pub(super) order: u64,
    // Invariant: the size of everything but the summary.
    bytes: u64,
}

impl Compaction {
    fn started(id: CompactionId, order: u64) -> Self {
        let mut compaction = Self {
            id,
            status: CompactionStatus::default(),
            summary: Body::default(),
            error: None,
            meta: None,
            order,
            bytes: 0,
        };
        compaction.weigh();
        compaction
    }

    fn weigh(&mut self) {
        let status = if let CompactionStatus::Other(status) = &self.status { status.len() } else { 0 };
        let error = self.error.as_ref().map_or(0, |error| error.len());
        let meta = self.meta.as_deref().map_or(0, |meta| json_size(|to| serde_json::to_writer(to, meta)));
        self.bytes = COMPACTION_BYTES + (self.id.0.len() + status + error) as u64 + meta;
    }

    fn merge(&mut self, update: &CompactionUpdate) {
        self.status = update.status.clone();
        match &update.summary {
            MaybeUndefined::Undefined => {}
            MaybeUndefined::Null => self.summary = Body::default(),
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
        self.weigh();
    }
}

/// What a compaction counts beside its fields.
const COMPACTION_BYTES: u64 = 128;

impl Item for Compaction {
    fn key(&self) -> Option<Key> {
        Some(Key { tag: 0, id: self.id.0.clone() })
    }

    fn bytes(&self) -> u64 {
        self.bytes + self.summary.bytes()
    }

    fn shrink(&mut self) {
        self.summary.shrink();
    }
}

/// Takes in a `compaction_update`, which starts a compaction or changes one.
pub(super) fn update(
    compactions: &mut Shelf<Compaction>,
    update: &CompactionUpdate,
    order: u64,
) -> Result<Change, Breach> {
    change(compactions, &update.compaction_id, order, |compaction| compaction.merge(update))
}

/// Takes in a `compaction_summary_chunk`, which starts a compaction or lengthens its summary.
pub(super) fn append(
    compactions: &mut Shelf<Compaction>,
    chunk: &CompactionSummaryChunk,
    order: u64,
) -> Result<Change, Breach> {
    change(compactions, &chunk.compaction_id, order, |compaction| compaction.summary.push(&chunk.content))
}

fn change(
    compactions: &mut Shelf<Compaction>,
    id: &CompactionId,
    order: u64,
    change: impl FnOnce(&mut Compaction),
) -> Result<Change, Breach> {
    if id.0.is_empty() {
        return Err(Breach::EmptyId(Named::Compaction));
    }
    if let Some(position) = compactions.find(0, &id.0) {
        compactions.update(position, change);
        return Ok(Change::CompactionUpdated(id.clone()));
    }
    let mut compaction = Compaction::started(id.clone(), order);
    change(&mut compaction);
    compactions.push(compaction);
    Ok(Change::CompactionAdded(id.clone()))
}
