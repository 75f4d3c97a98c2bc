//! Sending what an agent changed on disk through the editor: the file is put back, and the editor writes it.
//!
//! Both versions are in the journal before anything is touched. If the editor does not write, the agent's comes back.

use std::sync::Arc;

use bowline_state::schema::v1::WriteTextFileRequest;
use bowline_state::watching::Found;
use serde_json::value::to_raw_value;

use super::writing::{has, written};
use super::{Line, Shared};
use crate::engine::{EditorWrites, EngineSession};

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
        let Some(had) = has(caller, &request).await else { continue };
        // An editor that shows the agent's version already has nothing unsaved.
        let had = if had.as_ref() == Some(&after) { found.before.clone() } else { had };
        let Ok(sent) = to_raw_value(&request) else { continue };
        let Some(again) = engine.puts_back(found.change).await else { continue };
        let write =
            EditorWrites { path, had, wants: after.clone(), has_read: false, call: found.call.clone() };
        let is_written = match engine.editor_writes(write).await {
            // The user may take long to look at it; if the editor goes away, this ends.
            Ok(recorded) => written(caller, recorded, &after, &sent).await.is_ok(),
            Err(_) => false,
        };
        if !is_written {
            again.await;
        }
    }
}
