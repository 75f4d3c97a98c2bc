//! Queries of a conversation: sessions, changes, and descriptions of failures.

use std::path::PathBuf;
use std::time::Duration;

use bowline_history::undo::ChangeSelection;
use bowline_host::HostSession;
use bowline_protocol::schema::v1::SessionInfo;
use bowline_workspace::workspace::{ListedChange, UndoOutcome, Workspace};

use crate::panes::changes::{ChangeEntry, RecentChanges, is_possibly_users, select_newest};
use bowline_client::common::names::SessionNames;
use bowline_client::common::times::format_age_of;
use bowline_client::reopen;
use bowline_storage::clock::now;

/// The maximum number of sessions listed.
const MAX_SESSIONS: usize = 500;

/// The maximum number of newest edits shown.
const MAX_CHANGES: usize = 500;

/// The maximum total size of the texts of listed changes, in bytes; older changes are shown by name only.
const MAX_CHANGE_BYTES: usize = 32 << 20;

/// Returns the agent's sessions in a directory, newest first, with their ages in words.
pub(super) async fn list_sessions(session: &HostSession, cwd: PathBuf) -> Result<Vec<SessionInfo>, String> {
    let listed = reopen::list_sessions(session.agent(), Some(&cwd.to_string_lossy()), MAX_SESSIONS).await;
    let mut sessions = listed.map_err(|error| error.to_string())?;
    sessions.sort_by(|left, right| right.updated_at.cmp(&left.updated_at));
    let now = now();
    for info in &mut sessions {
        // For display only.
        info.updated_at = info.updated_at.take().map(|text| format_age_of(&text, now));
    }
    Ok(sessions)
}

/// Returns the newest edits of a workspace, with their texts.
pub(super) fn list_changes(workspace: &Workspace) -> Result<RecentChanges, String> {
    let changes = workspace.changes(&ChangeSelection::default()).map_err(|error| error.to_string())?;
    let (changes, older_counts) = select_newest(changes, MAX_CHANGES);
    let mut room = MAX_CHANGE_BYTES;
    let names = SessionNames::new(&changes, workspace.turn_titles());
    let entry = |record: ListedChange| {
        let origin = &record.change.origin;
        let title = origin.session.as_ref().zip(origin.turn).and_then(|(id, turn)| names.title(id, turn));
        ChangeEntry { record, before: None, after: None, title }
    };
    let mut entries: Vec<ChangeEntry> = changes.into_iter().map(entry).collect();
    // Agents' changes are viewed first, so they get their texts first.
    let mut order: Vec<usize> = (0..entries.len()).rev().collect();
    order.sort_by_key(|index| is_possibly_users(&entries[*index].record.change));
    for index in order {
        let ChangeEntry { record, before, after, .. } = &mut entries[index];
        // An undo is shown by the changes it reverted, so its own texts are not needed.
        if room > 0 && record.change.reverses.is_empty() {
            (*before, *after) =
                workspace.change_texts(record.change.id).map_err(|error| error.to_string())?;
        }
        let bytes = [&before, &after].into_iter().filter_map(|text| text.as_ref().map(String::len)).sum();
        room = room.saturating_sub(bytes);
    }
    Ok(RecentChanges { entries, older_counts })
}

/// Describes the result of an undo or a redo.
pub(super) fn describe_undo(verb: &str, outcome: &UndoOutcome) -> String {
    let changed_count = outcome.files.iter().filter(|file| file.is_changed).count();
    let skipped_note = match outcome.skipped.len() {
        0 => String::new(),
        count => format!("; {count} could not be, as their text is not known"),
    };
    match changed_count {
        1 => format!("{verb} in 1 file{skipped_note}"),
        count => format!("{verb} in {count} files{skipped_note}"),
    }
}

/// Describes that an agent did not answer in time.
pub(super) fn describe_timeout(action: &str, timeout: Duration) -> String {
    format!("the agent did not {action} within {} s", timeout.as_secs())
}
