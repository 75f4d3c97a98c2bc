//! Routing of the agent's changes on disk through the editor: the file is reverted, and the editor writes the change.
//!
//! Both versions are in the journal before anything is touched. If the editor does not write, the agent's version is
//! restored. Routing waits until no tool call is open; a file that was found changed twice meanwhile stays as it is.

use std::sync::Arc;
use std::time::Duration;

use bowline_history::attribution::AttributedChange;
use bowline_protocol::rpc_error::{self, RpcError};
use bowline_protocol::schema::v1::WriteTextFileRequest;
use serde_json::value::to_raw_value;

use super::serve::{read_from_editor, write_through_editor};
use super::{CallerSlot, SessionContext};
use crate::engine::{EditorWriteRequest, EngineSession};

/// The most changes that wait until the agent is idle.
const MAX_QUEUED_CHANGES: usize = 64;

/// The editor's deadline for returning its text: the agent does not wait for this.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// The changes found while a tool call was open, queued until none is.
#[derive(Debug, Default)]
pub(super) struct ChangeQueue {
    // Invariant: at most `MAX_QUEUED_CHANGES`. Further ones stay as the agent made them.
    changes: Vec<AttributedChange>,
}

impl ChangeQueue {
    pub(super) fn add(&mut self, found: &[AttributedChange]) {
        let available = MAX_QUEUED_CHANGES.saturating_sub(self.changes.len());
        self.changes.extend(found.iter().take(available).cloned());
    }

    /// Returns the changes that can be routed. A file that was changed more than once stays as it is: reverting it
    /// would take several undos, and one of them may fail.
    pub(super) fn take(&mut self) -> Vec<AttributedChange> {
        let found = std::mem::take(&mut self.changes);
        let is_alone =
            |change: &&AttributedChange| found.iter().filter(|other| other.path == change.path).count() == 1;
        found.iter().filter(is_alone).cloned().collect()
    }
}

/// Routes changes through the editor, one at a time. A change that cannot be routed stays as the agent made it.
pub(super) async fn route_changes(
    session: &SessionContext,
    engine: &Arc<dyn EngineSession>,
    routes: Option<&CallerSlot>,
    found: &[AttributedChange],
) {
    let Some(caller) = routes.and_then(CallerSlot::caller) else { return };
    for found in found {
        // An editor cannot write a deleted or non-text file.
        let Some(after) = found.after.clone().filter(|after| found.before.as_ref() != Some(after)) else {
            continue;
        };
        let path = engine.directory().to_editor_path(&found.path);
        let request = WriteTextFileRequest::new(session.id.clone(), path.clone(), after.clone());
        let Some(editor_text) = read_from_editor(caller, &request, READ_TIMEOUT).await else { continue };
        // An editor that already shows the agent's version has no unsaved text.
        let editor_text =
            if editor_text.as_ref() == Some(&after) { found.before.clone() } else { editor_text };
        let Ok(params) = to_raw_value(&request) else { continue };
        let Some(redo) = engine.revert_change(found.change).await else { continue };
        let write = EditorWriteRequest {
            path,
            editor_text,
            new_text: after.clone(),
            agent_has_read: false,
            call: found.call.clone(),
        };
        let refusal = match engine.journal_editor_write(write).await {
            // The user may take long to review it; if the editor disconnects, the call ends.
            Ok(journalled) => write_through_editor(caller, journalled, &after, &params)
                .await
                .err()
                .map(|error| rpc_error::describe_error(&error)),
            Err(RpcError::Conflict { .. }) => {
                Some("the user has typed in the same lines, and not saved".to_owned())
            }
            Err(failure) => Some(failure.to_string()),
        };
        if let Some(reason) = refusal {
            redo(reason).await;
        }
    }
}
