//! A one-line summary of a turn's changes.

use std::collections::BTreeMap;

use bowline_history::changes::{Change, ChangeSource, FileState};
use bowline_history::undo::ChangeSelection;
use bowline_text::diff::compute_stat;
use bowline_workspace::workspace::Workspace;

use crate::panes::changes::is_possibly_users;

/// The maximum number of files named; the others are counted.
const MAX_NAMED: usize = 4;

/// A file that a turn changed: its first and its last change.
struct ChangedFile {
    first: Change,
    last: Change,
}

/// Describes a turn's changes; `None` if there are none. Files that the user may have changed meanwhile are counted
/// separately.
pub(super) fn describe_turn(workspace: &Workspace, session: &str, turn: u64) -> Option<String> {
    // A failure to list changes is reported where the user asks for them.
    let changes = workspace.changes(&ChangeSelection::turn(session, turn)).ok()?;
    let mut files: BTreeMap<String, ChangedFile> = BTreeMap::new();
    let mut others: Vec<String> = Vec::new();
    for change in changes.into_iter().filter(|listed| listed.is_in_effect).map(|listed| listed.change) {
        if is_possibly_users(&change) {
            others.push(change.path);
            continue;
        }
        let file = ChangedFile { first: change.clone(), last: change.clone() };
        files.entry(change.path.clone()).and_modify(|file| file.last = change).or_insert(file);
    }
    files.retain(|_, file| {
        content_identity(file.first.before.as_ref()) != content_identity(file.last.after.as_ref())
    });
    others.retain(|path| !files.contains_key(path));
    others.sort_unstable();
    others.dedup();
    let prefix = format!("{}/", workspace.roots().cwd());
    let named_files = files.iter().take(MAX_NAMED).map(|(path, file)| {
        let name = path.strip_prefix(&prefix).unwrap_or(path);
        format!("{name}{}", describe_file(workspace, file))
    });
    let names = named_files.collect::<Vec<_>>().join(", ");
    let more = match files.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let others_note = match (files.len(), others.len()) {
        (_, 0) => String::new(),
        (_, 1) => "1 other file changed meanwhile and may be yours".to_owned(),
        (_, count) => format!("{count} other files changed meanwhile and may be yours"),
    };
    match (files.len(), others_note.as_str()) {
        (0, "") => None,
        (0, others_note) => Some(format!("{others_note} · F2, a")),
        (count, others_note) => {
            let count = if count == 1 { "1 file".to_owned() } else { format!("{count} files") };
            let others_note = if others_note.is_empty() { String::new() } else { format!("; {others_note}") };
            Some(format!("Changed {count}: {names}{more}{others_note} · F2 shows, /undo takes back"))
        }
    }
}

fn content_identity(state: Option<&FileState>) -> Option<(bowline_text::hash::ContentHash, u32)> {
    state.map(|state| (state.hash, state.mode))
}

/// Describes how many lines of a file changed, or how it changed otherwise.
fn describe_file(workspace: &Workspace, ChangedFile { first, last }: &ChangedFile) -> String {
    let texts = workspace.change_texts(first.id).ok().zip(workspace.change_texts(last.id).ok());
    let known = texts.filter(|((before, _), (_, after))| {
        before.is_some() == first.before.is_some() && after.is_some() == last.after.is_some()
    });
    let counts = known.map(|((before, _), (_, after))| {
        let stat = compute_stat(&before.unwrap_or_default(), &after.unwrap_or_default());
        format!(" +{} −{}", stat.added, stat.removed)
    });
    let kind = match (&first.before, &last.after, last.source) {
        (None, _, ChangeSource::Observed) => " (new, by a command)",
        (_, None, ChangeSource::Observed) => " (deleted by a command)",
        (_, _, ChangeSource::Observed) => " (by a command)",
        (None, ..) => " (new)",
        (_, None, _) => " (deleted)",
        _ => "",
    };
    format!("{}{kind}", counts.unwrap_or_default())
}
