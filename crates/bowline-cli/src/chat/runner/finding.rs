//! What a conversation wants to know: which sessions there are, what was changed, and why something failed.

use std::path::PathBuf;
use std::time::Duration;

use bowline_host::Session;
use bowline_state::schema::v1::{ListSessionsRequest, SessionInfo};
use bowline_state::undo::Selection;
use bowline_workspace::workspace::{Changed, TakenBack, Workspace};

use crate::chat::changes::{Entry, Listed, may_be_users, newest};
use crate::ending::Ending;
use crate::records::names::Names;
use crate::records::times::written_ago;
use bowline_workspace::clock::now;

/// So many pages of sessions are looked through.
const MAX_PAGES: usize = 50;

/// So many sessions are listed.
const MAX_SESSIONS: usize = 500;

/// So many of the newest edits are shown.
const MAX_CHANGES: usize = 500;

/// The texts of the changes that are shown have at most so many bytes in all; of older ones only the names are shown.
const MAX_CHANGE_BYTES: usize = 32 << 20;

/// Returns the sessions of a directory that an agent tells of, the newest first, with when they were used in words.
pub(super) async fn list_sessions(session: &Session, cwd: PathBuf) -> Result<Vec<SessionInfo>, String> {
    let mut found: Vec<SessionInfo> = Vec::new();
    let mut cursor = None;
    for _ in 0..MAX_PAGES {
        let request = ListSessionsRequest::new().cwd(cwd.clone()).cursor(cursor.clone());
        let page = session.agent().list_sessions(request).await.map_err(|error| error.to_string())?;
        // Not every agent takes the directory into account.
        found.extend(page.sessions.into_iter().filter(|info| info.cwd == cwd));
        if found.len() >= MAX_SESSIONS || page.next_cursor.is_none() || page.next_cursor == cursor {
            break;
        }
        cursor = page.next_cursor;
    }
    found.truncate(MAX_SESSIONS);
    found.sort_by(|one, other| other.updated_at.cmp(&one.updated_at));
    let now = now();
    for info in &mut found {
        // For the person who chooses one; nobody else reads it.
        info.updated_at = info.updated_at.take().map(|text| written_ago(&text, now));
    }
    Ok(found)
}

/// Returns the newest edits of a workspace, with their texts.
pub(super) fn changes(workspace: &Workspace) -> Result<Listed, String> {
    let changed = workspace.changes(&Selection::default()).map_err(|error| error.to_string())?;
    let (changed, older) = newest(changed, MAX_CHANGES);
    let mut room = MAX_CHANGE_BYTES;
    let names = Names::new(&changed, workspace.turn_titles());
    let entry = |changed: Changed| {
        let origin = &changed.change.origin;
        let title = origin.session.as_ref().zip(origin.turn).and_then(|(id, turn)| names.title(id, turn));
        Entry { changed, before: None, after: None, title }
    };
    let mut entries: Vec<Entry> = changed.into_iter().map(entry).collect();
    // Agents' changes are what is looked at first.
    let mut order: Vec<usize> = (0..entries.len()).rev().collect();
    order.sort_by_key(|at| may_be_users(&entries[*at].changed.change));
    for at in order {
        let Entry { changed, before, after, .. } = &mut entries[at];
        // Of an undo only what it took back is shown.
        if room > 0 && changed.change.reverses.is_empty() {
            (*before, *after) = workspace.texts(changed.change.id).map_err(|error| error.to_string())?;
        }
        let bytes = [&before, &after].into_iter().filter_map(|text| text.as_ref().map(String::len)).sum();
        room = room.saturating_sub(bytes);
    }
    Ok(Listed { entries, older })
}

/// Says what came of an undo or a redo.
pub(super) fn taken_back(what: &str, done: &TakenBack) -> String {
    let changed = done.files.iter().filter(|file| file.changed).count();
    let left = match done.left.len() {
        0 => String::new(),
        count => format!("; {count} could not be, as their text is not known"),
    };
    match changed {
        1 => format!("{what} in 1 file{left}"),
        count => format!("{what} in {count} files{left}"),
    }
}

/// Says that an agent did not answer in time.
pub(super) fn silent(what: &str, time: Duration) -> String {
    format!("the agent did not {what} within {} s", time.as_secs())
}

/// Returns why something could not be had, in words.
pub(super) fn why(ending: &Ending) -> String {
    match ending {
        Ending::Failed(error) => format!("{error:#}"),
        Ending::Usage(text) | Ending::TimedOut(text) | Ending::NoSession(text) | Ending::Denied(text) => {
            text.clone()
        }
        Ending::LoginRequired(_) | Ending::Interrupted | Ending::Terminated(_) => ending.to_string(),
    }
}
