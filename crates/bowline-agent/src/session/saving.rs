//! Saving a session while its turns run, and at their ends.

use std::time::Duration;

use bowline_state::failure::Failure;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{Session, Talk};
use crate::reporter::Reporter;
use crate::store::{Durability, Record};

impl Session {
    /// Saves what is not saved yet, beside the turn. While something is being saved already, the rest waits for the next time.
    pub(crate) fn save_soon(&self, talk: &mut Talk, reporter: &Reporter) {
        if talk.saving.as_ref().is_some_and(|saving| !saving.is_finished()) {
            return;
        }
        let records = take_records(talk, reporter);
        let Ok(lease) = self.lease() else { return };
        let (id, log) = (self.id.clone(), self.shared.settings.log.clone());
        talk.saving = Some(tokio::spawn(async move {
            if let Err(error) = lease.append(records, Durability::Soon).await {
                log.line(format!("session {}: not saved: {error}", id.0));
            }
        }));
    }

    /// Saves a turn for good. If that takes longer than there is time, it goes on beside.
    pub(super) async fn save(
        &self,
        talk: &mut Talk,
        reporter: &Reporter,
        briefly: bool,
    ) -> Result<(), Failure> {
        let (before, records) = (talk.saving.take(), take_records(talk, reporter));
        let (turn, total, cost, title) = (talk.turn, talk.total, talk.cost, self.choice().title);
        let lease = self.lease()?;
        let (id, log) = (self.id.clone(), self.shared.settings.log.clone());
        let (tell, told) = oneshot::channel();
        talk.saving = Some(tokio::spawn(async move {
            if let Some(before) = before {
                // It says by itself what went wrong, and what it could not save comes again.
                before.await.unwrap_or_default();
            }
            let known = lease.set_meta(Box::new(move |meta| {
                (meta.turns, meta.usage, meta.cost, meta.title) = (turn, total, cost, title);
            }));
            let saved = match known.await {
                Ok(_) => lease.append(records, Durability::Now).await,
                Err(error) => Err(error),
            };
            if let Err(Err(error)) = tell.send(saved) {
                log.line(format!("session {}: not saved: {error}", id.0));
            }
        }));
        let limit = if briefly { Duration::from_millis(300) } else { Duration::from_secs(30) };
        let not_saved = |why: String| Failure::Internal {
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

fn take_records(talk: &mut Talk, reporter: &Reporter) -> Vec<Record> {
    let mut records: Vec<Record> = reporter.take_unsaved().into_iter().map(Record::Update).collect();
    records.append(&mut talk.unsaved);
    records
}
