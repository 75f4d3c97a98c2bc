//! `/undo`: what a session changed, taken back by the engine that made the changes.

use std::path::Path;

use bowline_state::display;
use bowline_state::slash::Undo;
use bowline_state::undo::{Selection, Who};
use bowline_workspace::error::FilesError;
use bowline_workspace::workspace::{Changed, Session, TakenBack};

/// So many files are named; the others are counted.
const MAX_NAMED: usize = 8;

/// Takes back what a session changed, and says what came of it. What was merely found on disk stays: it may be the user's.
///
/// # Errors
/// Returns why something was not taken back.
pub(super) fn undo_turns(session: &Session, undo: &Undo) -> Result<String, FilesError> {
    let workspace = session.workspace();
    let whole =
        Selection { who: Who::Session(session.id().to_owned()), explained: true, ..Selection::default() };
    let selections = match undo {
        Undo::Session => vec![whole],
        Undo::File(name) => {
            let path = Path::new(session.roots().cwd()).join(name);
            let path = path.components().collect::<std::path::PathBuf>();
            vec![Selection { path: Some(path.display().to_string()), ..whole }]
        }
        Undo::Turns(count) => {
            let turns = last_turns(&workspace.changes(&whole)?, *count);
            let of_turn = |turn| Selection { explained: true, ..Selection::turn(session.id(), turn) };
            turns.into_iter().map(of_turn).collect()
        }
    };
    let mut taken = Vec::new();
    for selection in &selections {
        taken.push(workspace.undo(selection)?);
    }
    let nothing = match undo {
        Undo::File(name) => format!("this session has no change of {} in effect", display::line(name, 200)),
        Undo::Session | Undo::Turns(_) => "no turn of this session has a change in effect".to_owned(),
    };
    Ok(describe(&taken, session.roots().cwd())
        .unwrap_or_else(|| format!("there is nothing to undo: {nothing}")))
}

/// Returns the last turns that changed something that is still in effect, the newest first.
fn last_turns(changed: &[Changed], count: u64) -> Vec<u64> {
    let in_effect = changed.iter().filter(|changed| changed.in_effect && changed.change.reverses.is_empty());
    let mut turns: Vec<u64> = in_effect.filter_map(|changed| changed.change.origin.turn).collect();
    turns.sort_unstable_by(|one, other| other.cmp(one));
    turns.dedup();
    turns.truncate(usize::try_from(count).unwrap_or(usize::MAX));
    turns
}

/// Says what was taken back; none if that is nothing.
fn describe(taken: &[TakenBack], cwd: &str) -> Option<String> {
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
    let left = match taken.iter().map(|taken| taken.left.len()).sum::<usize>() {
        0 => String::new(),
        count => format!("; {count} changes of commands could not be, as their text is not known"),
    };
    Some(format!("undone: {shown}{more}{left}; F2 and r redoes it"))
}
