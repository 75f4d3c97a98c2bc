//! Undo, and the record of files that the model has seen.

use std::fmt::Write as _;
use std::sync::Arc;

use bowline_conversation::slash_command::UndoTarget;
use bowline_history::undo::{ChangeOwner, ChangeSelection};
use bowline_protocol::rpc_error::RpcError;
use bowline_task::spawn_blocking;
use bowline_tools::tools::view::text_version;
use bowline_workspace::workspace::UndoOutcome;

use super::Toolbox;
use crate::runtime::Backend;

/// The most files named in a summary of a conversation.
const MAX_LISTED_FILES: usize = 200;

impl Toolbox {
    /// Records that the model was shown a whole file.
    pub fn record_shown_file(&self, path: &str, text: Arc<String>) {
        let version = text_version(&text);
        self.inner.ledger().record_read(path, text, version);
    }

    /// Lists the files that the model has seen or written, for a summary of the conversation, which drops their texts.
    #[must_use]
    pub fn list_known_files(&self) -> String {
        let ledger = self.inner.ledger();
        let mut text = String::new();
        for path in ledger.paths().take(MAX_LISTED_FILES) {
            // Writing to a string cannot fail.
            writeln!(text, "- {}", self.runtime().display_path(path)).unwrap_or_default();
        }
        text
    }

    /// Returns whether changes can be undone here: the client is responsible for its own.
    #[must_use]
    pub fn can_undo(&self) -> bool {
        let choice = self.runtime().backend_choice();
        choice.write == Backend::Local || self.is_undo_partial()
    }

    /// Returns whether an editor writes single files, so that only batches can be undone here.
    fn is_undo_partial(&self) -> bool {
        let choice = self.runtime().backend_choice();
        (choice.write, choice.batch) == (Backend::Client, Backend::Local)
    }

    /// Undoes changes of the session, and describes the result. `turn` is the number of the requesting turn.
    ///
    /// # Errors
    /// Fails if nothing was undone.
    pub async fn undo(&self, turn: u64, undo: UndoTarget) -> Result<String, RpcError> {
        let mode = self.permissions().mode();
        if !mode.can_change() {
            return Err(RpcError::Denied { reason: format!("the mode {} does not allow it", mode.id()) });
        }
        if !self.can_undo() {
            let reason =
                "the editor made the changes, so it has to take them back: use its own undo".to_owned();
            return Err(RpcError::InvalidRequest { reason });
        }
        let name = self.runtime().session().0.to_string();
        let engine = self.runtime().local().await?;
        let (workspace, session) = (engine.workspace.clone(), engine.files.session().clone());
        let owner = ChangeOwner::Session(name.clone());
        let path = match &undo {
            UndoTarget::File(file) => Some(self.runtime().resolve_path(file)?.as_str().to_owned()),
            UndoTarget::Turns(_) | UndoTarget::Session => None,
        };
        let task = spawn_blocking(move || {
            let selections = match undo {
                UndoTarget::Session | UndoTarget::File(_) => {
                    vec![ChangeSelection { path, owner, ..ChangeSelection::default() }]
                }
                UndoTarget::Turns(count) => {
                    let changes =
                        workspace.changes(&ChangeSelection { owner, ..ChangeSelection::default() })?;
                    let mut turns: Vec<u64> = changes
                        .iter()
                        // An undo is not a change of its own: the next undo reverses the change before it.
                        .filter(|entry| entry.is_in_effect && entry.change.reverses.is_empty())
                        .filter_map(|entry| entry.change.origin.turn)
                        .collect();
                    turns.sort_unstable();
                    turns.dedup();
                    let last = turns.into_iter().rev().take(usize::try_from(count).unwrap_or(usize::MAX));
                    last.map(|turn| ChangeSelection::turn(&name, turn)).collect()
                }
            };
            let origin = session.origin(Some(turn), None);
            selections.iter().map(|selection| session.undo(selection, &origin)).collect::<Result<Vec<_>, _>>()
        });
        let outcomes = task.await.map_err(|error| RpcError::Internal { reason: error.to_string() })?;
        let mut text = self.describe_undo(&outcomes?);
        if self.is_undo_partial() {
            text.push_str("\nThe editor takes back by itself what was written through it.\n");
        }
        Ok(text)
    }

    fn describe_undo(&self, outcomes: &[UndoOutcome]) -> String {
        let files = outcomes.iter().flat_map(|outcome| &outcome.files);
        let mut text = String::new();
        for file in files {
            let state = if file.is_changed { "is as it was before" } else { "was as before already" };
            writeln!(text, "- {} {state}", self.runtime().display_path(&file.path)).unwrap_or_default();
        }
        if text.is_empty() {
            return "There is nothing to take back.".to_owned();
        }
        let skipped: usize = outcomes.iter().map(|outcome| outcome.skipped.len()).sum();
        if skipped > 0 {
            let cannot = "changes of commands cannot be taken back: what was there before is not known";
            writeln!(text, "\n{skipped} {cannot}.").unwrap_or_default();
        }
        text
    }
}
