//! What a session asks of its tools beside calls: what is known of files, and taking back what was changed.

use std::fmt::Write as _;
use std::sync::Arc;

use bowline_state::failure::Failure;
use bowline_state::slash::Undo;
use bowline_state::tooling::view::version;
use bowline_state::undo::{Selection, Who};
use bowline_workspace::workspace::TakenBack;
use tokio::task::spawn_blocking;

use super::Toolbox;
use crate::runtime::Server;

/// A summary of a conversation names at most so many files.
const MAX_NAMED: usize = 200;

impl Toolbox {
    /// Notes that the model was shown all of a file.
    pub fn saw(&self, path: &str, text: Arc<String>) {
        let version = version(&text);
        self.inner.ledger().saw(path, text, version);
    }

    /// Returns which files the model has seen or written, for a summary of the conversation: their texts go with it.
    #[must_use]
    pub fn known_files(&self) -> String {
        let ledger = self.inner.ledger();
        let mut text = String::new();
        for path in ledger.paths().take(MAX_NAMED) {
            // Writing to a string cannot fail.
            writeln!(text, "- {}", self.runtimes().shown(path)).unwrap_or_default();
        }
        text
    }

    /// Says whether changes can be taken back here: those that the client made are in its hands.
    #[must_use]
    pub fn can_undo(&self) -> bool {
        self.runtimes().choice().write == Server::Local
    }

    /// Takes back what the session changed, and says what came of it. `turn` is the number of the turn that asks.
    ///
    /// # Errors
    /// Returns why nothing was taken back.
    pub async fn undo(&self, turn: u64, undo: Undo) -> Result<String, Failure> {
        let mode = self.permissions().mode();
        if !mode.may_change() {
            return Err(Failure::Denied { why: format!("the mode {} does not allow it", mode.id()) });
        }
        if !self.can_undo() {
            let reason =
                "the editor made the changes, so it has to take them back: use its own undo".to_owned();
            return Err(Failure::InvalidRequest { reason });
        }
        let name = self.runtimes().session().0.to_string();
        let engine = self.runtimes().engine().await?;
        let (workspace, session) = (engine.workspace.clone(), engine.files.session().clone());
        let who = Who::Session(name.clone());
        let path = match &undo {
            Undo::File(file) => Some(self.runtimes().resolve(file)?.as_str().to_owned()),
            Undo::Turns(_) | Undo::Session => None,
        };
        let taking = spawn_blocking(move || {
            let selections = match undo {
                Undo::Session | Undo::File(_) => vec![Selection { path, who, ..Selection::default() }],
                Undo::Turns(count) => {
                    let changed = workspace.changes(&Selection { who, ..Selection::default() })?;
                    let mut turns: Vec<u64> = changed
                        .iter()
                        // What took back others is no change of its own: the next one takes back what was before.
                        .filter(|changed| changed.in_effect && changed.change.reverses.is_empty())
                        .filter_map(|changed| changed.change.origin.turn)
                        .collect();
                    turns.sort_unstable();
                    turns.dedup();
                    let last = turns.into_iter().rev().take(usize::try_from(count).unwrap_or(usize::MAX));
                    last.map(|turn| Selection::turn(&name, turn)).collect()
                }
            };
            let origin = session.origin(Some(turn), None);
            selections.iter().map(|selection| session.undo(selection, &origin)).collect::<Result<Vec<_>, _>>()
        });
        let taken = taking.await.map_err(|ended| Failure::Internal { reason: ended.to_string() })?;
        Ok(self.told(&taken?))
    }

    fn told(&self, taken: &[TakenBack]) -> String {
        let files = taken.iter().flat_map(|taken| &taken.files);
        let mut text = String::new();
        for file in files {
            let how = if file.changed { "is as it was before" } else { "was as before already" };
            writeln!(text, "- {} {how}", self.runtimes().shown(&file.path)).unwrap_or_default();
        }
        if text.is_empty() {
            return "There is nothing to take back.".to_owned();
        }
        let left: usize = taken.iter().map(|taken| taken.left.len()).sum();
        if left > 0 {
            let cannot = "changes of commands cannot be taken back: what was there before is not known";
            writeln!(text, "\n{left} {cannot}.").unwrap_or_default();
        }
        text
    }
}
