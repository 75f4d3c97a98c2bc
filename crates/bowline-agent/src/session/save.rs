//! Saving a session during and at the end of its turns.

use std::time::Duration;

use bowline_protocol::rpc_error::RpcError;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{AgentSession, SessionConversation};
use crate::reporter::Reporter;
use crate::store::{Durability, SessionRecord};

impl AgentSession {
    /// Saves unsaved records concurrently with the turn. While a save is running, new records wait for the next one.
    pub(crate) fn save_in_background(&self, talk: &mut SessionConversation, reporter: &Reporter) {
        if talk.save_task.as_ref().is_some_and(|saving| !saving.is_finished()) {
            return;
        }
        let records = take_records(talk, reporter);
        let Ok(lease) = self.lease() else { return };
        let (id, log) = (self.id.clone(), self.resources.options.log.clone());
        talk.save_task = Some(tokio::spawn(async move {
            if let Err(error) = lease.append(records, Durability::Deferred).await {
                log.write_line(format!("session {}: not saved: {error}", id.0));
            }
        }));
    }

    /// Saves a turn durably. A save that exceeds the time limit continues in the background.
    pub(super) async fn save_turn(
        &self,
        talk: &mut SessionConversation,
        reporter: &Reporter,
        briefly: bool,
    ) -> Result<(), RpcError> {
        let (before, records) = (talk.save_task.take(), take_records(talk, reporter));
        let (turn, total, cost, title) = (talk.turn, talk.total_usage, talk.cost, self.config().title);
        let lease = self.lease()?;
        let (id, log) = (self.id.clone(), self.resources.options.log.clone());
        let (tell, told) = oneshot::channel();
        talk.save_task = Some(tokio::spawn(async move {
            if let Some(before) = before {
                // It logs its own failure, and records that it could not save are retried.
                before.await.unwrap_or_default();
            }
            let known = lease.update_meta(Box::new(move |meta| {
                (meta.turns, meta.usage, meta.cost, meta.title) = (turn, total, cost, title);
            }));
            let saved = match known.await {
                Ok(_) => lease.append(records, Durability::Synced).await,
                Err(error) => Err(error),
            };
            if let Err(Err(error)) = tell.send(saved) {
                log.write_line(format!("session {}: not saved: {error}", id.0));
            }
        }));
        let limit = if briefly { Duration::from_millis(300) } else { Duration::from_secs(30) };
        let not_saved = |why: String| RpcError::Internal {
            reason: format!("the session could not be saved ({why}); what the turn did stands"),
        };
        match timeout(limit, told).await {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(error))) => Err(not_saved(error.to_string())),
            Ok(Err(ended)) => Err(not_saved(ended.to_string())),
            Err(_) => Err(not_saved("the disk does not answer".to_owned())),
        }
    }
}

fn take_records(talk: &mut SessionConversation, reporter: &Reporter) -> Vec<SessionRecord> {
    let mut records: Vec<SessionRecord> =
        reporter.take_unsaved().into_iter().map(SessionRecord::Update).collect();
    records.append(&mut talk.unsaved_records);
    records
}
