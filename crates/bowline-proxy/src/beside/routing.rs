//! Sending what an agent changed on disk through the editor: the file is put back, and the editor writes it.
//!
//! Both versions are in the journal before anything is touched. If the editor does not write, the agent's comes back.

use std::sync::Arc;
use std::time::Duration;

use bowline_state::failure::{self, Failure};
use bowline_state::schema::v1::WriteTextFileRequest;
use bowline_state::watching::Found;
use serde_json::value::to_raw_value;

use super::writing::{has, written};
use super::{Line, Shared};
use crate::engine::{EditorWrites, EngineSession};

/// So many changes wait for the agent to be done.
const MAX_WAITING: usize = 64;

/// How long the editor may take to say what it has: nobody waits for this.
const LONG: Duration = Duration::from_secs(60);

/// Changes that were found while a call was open, for when none is.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    // Invariant: at most `MAX_WAITING`. Further ones stay as the agent made them.
    found: Vec<Found>,
}

impl Waiting {
    pub(super) fn add(&mut self, found: &[Found]) {
        let room = MAX_WAITING.saturating_sub(self.found.len());
        self.found.extend(found.iter().take(room).cloned());
    }

    /// Returns what can be sent. A file that was changed more than once since stays as it is: to put it back would take several
    /// undos, and one of them may not be possible.
    pub(super) fn take(&mut self) -> Vec<Found> {
        let found = std::mem::take(&mut self.found);
        let is_alone = |one: &&Found| found.iter().filter(|other| other.path == one.path).count() == 1;
        found.iter().filter(is_alone).cloned().collect()
    }
}

/// Sends changes through the editor, one after the other. What cannot be stays as the agent made it.
pub(super) async fn route(
    session: &Shared,
    engine: &Arc<dyn EngineSession>,
    routes: Option<&Line>,
    found: &[Found],
) {
    let Some(caller) = routes.and_then(Line::caller) else { return };
    for found in found {
        // A file that is gone, or no text, no editor writes.
        let Some(after) = found.after.clone().filter(|after| found.before.as_ref() != Some(after)) else {
            continue;
        };
        let path = engine.place().named(&found.path);
        let request = WriteTextFileRequest::new(session.id.clone(), path.clone(), after.clone());
        let Some(had) = has(caller, &request, LONG).await else { continue };
        // An editor that shows the agent's version already has nothing unsaved.
        let had = if had.as_ref() == Some(&after) { found.before.clone() } else { had };
        let Ok(sent) = to_raw_value(&request) else { continue };
        let Some(again) = engine.puts_back(found.change).await else { continue };
        let write =
            EditorWrites { path, had, wants: after.clone(), has_read: false, call: found.call.clone() };
        let refused = match engine.editor_writes(write).await {
            // The user may take long to look at it; if the editor goes away, this ends.
            Ok(recorded) => {
                written(caller, recorded, &after, &sent).await.err().map(|error| failure::error_text(&error))
            }
            Err(Failure::Conflict { .. }) => {
                Some("the user has typed in the same lines, and not saved".to_owned())
            }
            Err(failure) => Some(failure.to_string()),
        };
        if let Some(why) = refused {
            again(why).await;
        }
    }
}
