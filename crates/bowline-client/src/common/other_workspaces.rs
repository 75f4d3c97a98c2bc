//! Workspaces with changes above and below a directory, as a hint for users in the wrong directory.

use std::path::Path;

use bowline_history::undo::{ChangeOwner, ChangeSelection};
use bowline_workspace::workspace::Workspace;

use super::console::escape_line;
use super::workspace_location::{WorkspaceLocation, WorkspaceMarker};

/// The maximum number of workspaces opened.
const MAX_OPENED: usize = 16;
/// The maximum number of workspaces named.
const MAX_LISTED: usize = 3;

/// If changes are above or below this directory and not in it, returns the commands that act there: `command` (such as
/// `undo`) with `--cwd` and the directory.
pub fn other_workspaces_hint(location: &WorkspaceLocation, command: &str) -> Option<String> {
    let start = &location.start_dir;
    let mut candidates: Vec<String> = Workspace::known_roots(&location.dirs.state);
    candidates.retain(|root| {
        let path = Path::new(root);
        *root != location.root && path.is_dir() && (path.starts_with(start) || start.starts_with(path))
    });
    // Nearest first.
    candidates.sort_by_key(|root| Path::new(root).components().count().abs_diff(start.components().count()));
    candidates.truncate(MAX_OPENED);
    candidates.retain(|root| has_changes(Path::new(root)));
    let commands = candidates.iter().take(MAX_LISTED).map(|root| {
        let word = shlex::try_quote(root).map_or_else(|_| root.clone(), std::borrow::Cow::into_owned);
        format!("bowline {command} --cwd {}", escape_line(&word))
    });
    let more = candidates.len().saturating_sub(MAX_LISTED);
    let more = if more > 0 { format!("\n  … and {more} more") } else { String::new() };
    let commands: Vec<String> = commands.collect();
    match commands.as_slice() {
        [] => None,
        [only] => Some(format!("agents changed files in {}: {only}", escape_line(candidates.first()?))),
        several => {
            Some(format!("agents changed files in other directories:\n  {}{more}", several.join("\n  ")))
        }
    }
}

fn has_changes(root: &Path) -> bool {
    // A workspace that cannot be opened is reported when the user goes there.
    let Ok(location) = WorkspaceLocation::locate(Some(root), WorkspaceMarker::Journal) else { return false };
    if Path::new(&location.root) != root || !location.has_records {
        return false;
    }
    let Ok(workspace) = location.open(&[]) else { return false };
    let selection = ChangeSelection { owner: ChangeOwner::Agents, ..ChangeSelection::default() };
    let changes = workspace.changes(&selection).unwrap_or_default();
    changes.iter().any(|changed| changed.is_in_effect && changed.change.reverses.is_empty())
}
