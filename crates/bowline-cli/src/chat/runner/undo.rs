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
pub(super) fn undo_turns(session: &WorkspaceSession, undo: &UndoTarget) -> Result<String, FilesError> {
    let workspace = session.workspace();
    let whole = ChangeSelection {
        owner: ChangeOwner::Session(session.id().to_owned()),
        only_explained: true,
        ..ChangeSelection::default()
    };
    let selections = match undo {
        UndoTarget::Session => vec![whole],
        UndoTarget::File(name) => {
            let path = Path::new(session.roots().cwd()).join(name);
            let path = path.components().collect::<std::path::PathBuf>();
            vec![ChangeSelection { path: Some(path.display().to_string()), ..whole }]
        }
        UndoTarget::Turns(count) => {
            let turns = last_turns(&workspace.changes(&whole)?, *count);
            let of_turn =
                |turn| ChangeSelection { only_explained: true, ..ChangeSelection::turn(session.id(), turn) };
            turns.into_iter().map(of_turn).collect()
        }
    };
    let mut taken = Vec::new();
    for selection in &selections {
        taken.push(workspace.undo(selection)?);
    }
    let nothing = match undo {
        UndoTarget::File(name) => {
            format!("this session has no change of {} in effect", display::escape_line(name, 200))
        }
        UndoTarget::Session | UndoTarget::Turns(_) => {
            "no turn of this session has a change in effect".to_owned()
        }
    };
    Ok(describe_undone(&taken, session.roots().cwd())
        .unwrap_or_else(|| format!("there is nothing to undo: {nothing}")))
}

/// Returns the last turns with changes that are still in effect, newest first.
fn last_turns(changed: &[ListedChange], count: u64) -> Vec<u64> {
    let in_effect =
        changed.iter().filter(|changed| changed.is_in_effect && changed.change.reverses.is_empty());
    let mut turns: Vec<u64> = in_effect.filter_map(|changed| changed.change.origin.turn).collect();
    turns.sort_unstable_by(|one, other| other.cmp(one));
    turns.dedup();
    turns.truncate(usize::try_from(count).unwrap_or(usize::MAX));
    turns
}

/// Describes what was undone; `None` if nothing was.
fn describe_undone(taken: &[UndoOutcome], cwd: &str) -> Option<String> {
    let mut names: Vec<&str> = Vec::new();
    for file in taken.iter().flat_map(|taken| &taken.files) {
        let below = file.path.strip_prefix(cwd).and_then(|rest| rest.strip_prefix('/'));
        let name = below.unwrap_or(&file.path);
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
    let shown = names.iter().take(MAX_NAMED).copied().collect::<Vec<_>>().join(", ");
    let left = match taken.iter().map(|taken| taken.skipped.len()).sum::<usize>() {
        0 => String::new(),
        count => format!("; {count} changes of commands could not be, as their text is not known"),
    };
    Some(format!("undone: {shown}{more}{left}; F2 and r redoes it"))
}
