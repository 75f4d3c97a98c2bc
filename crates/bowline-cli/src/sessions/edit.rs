//! Renaming, copying and deleting stored sessions.

use std::io::{self, IsTerminal as _};
use std::path::Path;

use bowline_agent::store::{SessionMeta, new_session_id};
use bowline_protocol::schema::v1::SessionId;
use clap::Args;

use super::{SessionArgument, StoredSessions, failed, nearest_directory, session_error, short_id};
use crate::changes::WorkspaceArguments;
use bowline_client::common::console::{escape_line, pluralize, print};
use bowline_client::common::times::parse_time;
use bowline_client::common::workspace_location::resolve_directory;
use bowline_client::error::CliError;
use bowline_storage::clock::now;

/// The maximum number of sessions named before they are deleted.
const MAX_NAMED: usize = 10;

/// Which sessions to delete.
#[derive(Args, Debug)]
pub(super) struct DeleteArguments {
    /// The session: its id, a prefix of it, or `last` for the last one used here
    #[arg(value_name = "ID", required_unless_present = "older_than")]
    id: Option<String>,
    /// Delete sessions last used before a date or longer ago than a time span
    ///
    /// For example, 2027-01-31 or 30d.
    #[arg(long, value_name = "TIME", conflicts_with = "id")]
    older_than: Option<String>,
    /// Delete sessions of all directories, not only this one
    #[arg(long, requires = "older_than", conflicts_with = "cwd")]
    all: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    workspace: WorkspaceArguments,
}

/// Deletes one session, or old ones.
pub(super) async fn delete(sessions: &StoredSessions, arguments: DeleteArguments) -> Result<(), CliError> {
    let all_sessions = sessions.list_all().await?;
    let DeleteArguments { id, older_than, all: everywhere, yes, workspace } = arguments;
    let selected = match (id, older_than) {
        (Some(id), _) => vec![sessions.find(&SessionArgument { id, workspace }).await?],
        (None, older_than) => {
            let before = parse_time(older_than.as_deref().unwrap_or_default(), now(), -1)?;
            let start = resolve_directory(workspace.cwd.as_deref())?;
            let nearest = nearest_directory(&all_sessions, &start);
            let is_in_scope = |meta: &SessionMeta| everywhere || Some(&meta.cwd) == nearest.as_ref();
            all_sessions
                .iter()
                .filter(|meta| meta.updated_at < before && is_in_scope(meta))
                .cloned()
                .collect()
        }
    };
    if selected.is_empty() {
        return print("no session is that old: nothing was deleted\n");
    }
    let description = match selected.as_slice() {
        [meta] => {
            let title = meta.title.as_deref().map(|title| format!(" ({})", escape_line(title)));
            format!("session {}{}", short_id(&meta.id, &all_sessions), title.unwrap_or_default())
        }
        several => pluralize(several.len(), "session", "sessions"),
    };
    if !yes && !confirm(&description, &selected, &all_sessions)? {
        return print("nothing was deleted\n");
    }
    for meta in &selected {
        sessions.store()?.delete(&meta.id).await.map_err(|error| session_error(error, &meta.id))?;
    }
    print(&format!("deleted {description}\n"))
}

fn confirm(
    description: &str,
    selected: &[SessionMeta],
    all_sessions: &[SessionMeta],
) -> Result<bool, CliError> {
    if !io::stdin().is_terminal() {
        return Err(CliError::Usage(format!("the user cannot be asked: delete {description} with --yes")));
    }
    if selected.len() > 1 {
        let mut text = String::new();
        for meta in selected.iter().take(MAX_NAMED) {
            let title = meta.title.as_deref().map_or_else(|| "(no title)".to_owned(), escape_line);
            text += &format!("  {}  {title}\n", short_id(&meta.id, all_sessions));
        }
        if selected.len() > MAX_NAMED {
            text += &format!("  … and {} more\n", selected.len() - MAX_NAMED);
        }
        print(&text)?;
    }
    print(&format!("delete {description}? [y/N] "))?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).map_err(failed)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Changes a session's title.
pub(super) async fn rename(
    sessions: &StoredSessions,
    argument: &SessionArgument,
    title: String,
) -> Result<(), CliError> {
    if title.trim().is_empty() {
        return Err(CliError::Usage("the title is empty: write one".to_owned()));
    }
    let meta = sessions.find(argument).await?;
    let (lease, _) =
        sessions.store()?.claim(&meta.id).await.map_err(|error| session_error(error, &meta.id))?;
    let renamed = lease.update_meta(Box::new(move |meta| meta.title = Some(title))).await.map_err(failed)?;
    lease.close().await.map_err(failed)?;
    let all_sessions = sessions.list_all().await?;
    let title = renamed.title.unwrap_or_default();
    print(&format!("renamed session {} to {}\n", short_id(&meta.id, &all_sessions), escape_line(&title)))
}

/// Copies a session, to continue it differently or in another directory.
pub(super) async fn fork(
    sessions: &StoredSessions,
    argument: &SessionArgument,
    target: Option<&Path>,
) -> Result<(), CliError> {
    let source = sessions.find(argument).await?;
    let id: SessionId = new_session_id();
    let cwd = resolve_directory(target)?;
    let title = source.title.as_ref().map(|title| format!("{} (copy)", title.trim_end_matches(" (copy)")));
    let meta = SessionMeta {
        id: id.clone(),
        cwd: cwd.clone(),
        created_at: now(),
        updated_at: now(),
        title,
        ..source.clone()
    };
    let (lease, _) =
        sessions.store()?.fork(&source.id, meta).await.map_err(|error| session_error(error, &source.id))?;
    lease.close().await.map_err(failed)?;
    let all_sessions = sessions.list_all().await?;
    let (source, new) = (short_id(&source.id, &all_sessions), short_id(&id, &all_sessions));
    let is_current = resolve_directory(None).is_ok_and(|current| current == cwd);
    let cwd_option = if is_current {
        String::new()
    } else {
        let word = cwd.to_string_lossy().into_owned();
        let quoted = shlex::try_quote(&word).map_or_else(|_| word.clone(), std::borrow::Cow::into_owned);
        format!(" --cwd {}", escape_line(&quoted))
    };
    print(&format!(
        "session {new} is a copy of {source}; go on with it: bowline run{cwd_option} --session {new} PROMPT\n"
    ))
}
