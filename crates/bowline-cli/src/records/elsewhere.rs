//! Workspaces above and below a directory in which agents changed something, for those who look in the wrong place.

use std::path::Path;

use bowline_state::undo::{Selection, Who};
use bowline_workspace::workspace::Workspace;

use super::here::{Here, Sign};
use super::showing::safe;

/// So many workspaces are looked into.
const MAX_LOOKED: usize = 16;
/// So many are named.
const MAX_NAMED: usize = 3;

/// Returns the commands that act where changes are, if they are above or below this directory and not in it: each with
/// `--cwd` and the directory. `command` is what was asked for here, such as `undo`.
pub(crate) fn hint(here: &Here, command: &str) -> Option<String> {
    let start = &here.start;
    let mut near: Vec<String> = Workspace::known_roots(&here.places.state);
    near.retain(|root| {
        let path = Path::new(root);
        *root != here.root && path.is_dir() && (path.starts_with(start) || start.starts_with(path))
    });
    // The nearest first.
    near.sort_by_key(|root| Path::new(root).components().count().abs_diff(start.components().count()));
    near.truncate(MAX_LOOKED);
    near.retain(|root| has_changes(Path::new(root)));
    let commands = near.iter().take(MAX_NAMED).map(|root| {
        let word = shlex::try_quote(root).map_or_else(|_| root.clone(), std::borrow::Cow::into_owned);
        format!("bowline {command} --cwd {}", safe(&word))
    });
    let more = near.len().saturating_sub(MAX_NAMED);
    let more = if more > 0 { format!("\n  … and {more} more") } else { String::new() };
    let commands: Vec<String> = commands.collect();
    match commands.as_slice() {
        [] => None,
        [one] => Some(format!("agents changed files in {}: {one}", safe(near.first()?))),
        several => {
            Some(format!("agents changed files in other directories:\n  {}{more}", several.join("\n  ")))
        }
    }
}

fn has_changes(root: &Path) -> bool {
    // What cannot be opened is told of by whoever goes there.
    let Ok(here) = Here::look(Some(root), Sign::Journal) else { return false };
    if Path::new(&here.root) != root || !here.known {
        return false;
    }
    let Ok(workspace) = here.open(&[]) else { return false };
    let of_agents = Selection { who: Who::Agents, ..Selection::default() };
    let changes = workspace.changes(&of_agents).unwrap_or_default();
    changes.iter().any(|changed| changed.in_effect && changed.change.reverses.is_empty())
}
