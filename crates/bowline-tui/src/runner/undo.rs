//! `/undo`: undoes a session's changes through the engine that made them.

use std::path::Path;

use bowline_conversation::slash_command::UndoTarget;
use bowline_history::undo::{ChangeOwner, ChangeSelection};
use bowline_text::display;
use bowline_workspace::error::FilesError;
use bowline_workspace::workspace::{ListedChange, UndoOutcome, WorkspaceSession};

/// The maximum number of files named; the others are counted.
const MAX_NAMED: usize = 8;

/// Undoes a session's changes, and describes the result. Changes that were only observed on disk stay: they may be the
/// user's.
///
/// # Errors
/// Returns why something was not undone.
pub(super) fn undo_turns(session: &WorkspaceSession, target: &UndoTarget) -> Result<String, FilesError> {
    let workspace = session.workspace();
    let session_selection = ChangeSelection {
        owner: ChangeOwner::Session(session.id().to_owned()),
        only_explained: true,
        ..ChangeSelection::default()
    };
    let selections = match target {
        UndoTarget::Session => vec![session_selection],
        UndoTarget::File(name) => {
            let path = Path::new(session.roots().cwd()).join(name);
            let path = path.components().collect::<std::path::PathBuf>();
            vec![ChangeSelection { path: Some(path.display().to_string()), ..session_selection }]
        }
        UndoTarget::Turns(count) => {
            let turns = last_turns(&workspace.changes(&session_selection)?, *count);
            let turn_selection =
                |turn| ChangeSelection { only_explained: true, ..ChangeSelection::turn(session.id(), turn) };
            turns.into_iter().map(turn_selection).collect()
        }
    };
    let mut outcomes = Vec::new();
    for selection in &selections {
        outcomes.push(workspace.undo(selection)?);
    }
    let reason = match target {
        UndoTarget::File(name) => {
            format!("this session has no change of {} in effect", display::escape_line(name, 200))
        }
        UndoTarget::Session | UndoTarget::Turns(_) => {
            "no turn of this session has a change in effect".to_owned()
        }
    };
    Ok(describe_undone(&outcomes, session.roots().cwd())
        .unwrap_or_else(|| format!("there is nothing to undo: {reason}")))
}

/// Returns the last turns with changes that are still in effect, newest first.
fn last_turns(changes: &[ListedChange], count: u64) -> Vec<u64> {
    let in_effect = changes.iter().filter(|listed| listed.is_in_effect && listed.change.reverses.is_empty());
    let mut turns: Vec<u64> = in_effect.filter_map(|listed| listed.change.origin.turn).collect();
    turns.sort_unstable_by(|left, right| right.cmp(left));
    turns.dedup();
    turns.truncate(usize::try_from(count).unwrap_or(usize::MAX));
    turns
}

/// Describes what was undone; `None` if nothing was.
fn describe_undone(outcomes: &[UndoOutcome], cwd: &str) -> Option<String> {
    let mut names: Vec<&str> = Vec::new();
    for file in outcomes.iter().flat_map(|outcome| &outcome.files) {
        let relative = file.path.strip_prefix(cwd).and_then(|rest| rest.strip_prefix('/'));
        let name = relative.unwrap_or(&file.path);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.is_empty() {
        return None;
    }
    let more = match names.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let listed = names.iter().take(MAX_NAMED).copied().collect::<Vec<_>>().join(", ");
    let skipped_note = match outcomes.iter().map(|outcome| outcome.skipped.len()).sum::<usize>() {
        0 => String::new(),
        count => format!("; {count} changes of commands could not be, as their text is not known"),
    };
    Some(format!("undone: {listed}{more}{skipped_note}; F2 and r redoes it"))
}
