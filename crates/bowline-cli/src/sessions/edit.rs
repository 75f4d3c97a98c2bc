//! Renaming, copying and deleting stored sessions.

use std::io::{self, IsTerminal as _};
use std::path::Path;

use bowline_agent::store::{Meta, new_session_id};
use bowline_state::schema::v1::SessionId;
use clap::Args;

use super::{Named, Sessions, failed, gone, nearest, short};
use crate::changes::Where;
use crate::ending::Ending;
use crate::records::here::directory;
use crate::records::showing::{count, print, safe};
use crate::records::times::read;
use bowline_workspace::clock::now;

/// So many sessions are named before they are deleted.
const MAX_NAMED: usize = 10;

/// Which sessions to delete.
#[derive(Args, Debug)]
pub(super) struct DeleteArguments {
    /// The session's id, the beginning of it, or `last` for the one that was used here last
    #[arg(value_name = "ID", required_unless_present = "older_than")]
    id: Option<String>,
    /// Sessions that were last used before a date, such as 2027-01-31, or longer ago than a span, such as 30d
    #[arg(long, value_name = "TIME", conflicts_with = "id")]
    older_than: Option<String>,
    /// Sessions of every directory, not only of this one
    #[arg(long, requires = "older_than", conflicts_with = "cwd")]
    all: bool,
    /// Does not ask
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    place: Where,
}

/// Deletes one session, or those that are old.
pub(super) async fn delete(sessions: &Sessions, arguments: DeleteArguments) -> Result<(), Ending> {
    let all = sessions.all().await?;
    let DeleteArguments { id, older_than, all: everywhere, yes, place } = arguments;
    let doomed = match (id, older_than) {
        (Some(id), _) => vec![sessions.find(&Named { id, place }).await?],
        (None, older_than) => {
            let before = read(older_than.as_deref().unwrap_or_default(), now(), -1)?;
            let start = directory(place.cwd.as_deref())?;
            let nearest = nearest(&all, &start);
            let is_here = |meta: &Meta| everywhere || Some(&meta.cwd) == nearest.as_ref();
            all.iter().filter(|meta| meta.updated < before && is_here(meta)).cloned().collect()
        }
    };
    if doomed.is_empty() {
        return print("no session is that old: nothing was deleted\n");
    }
    let what = match doomed.as_slice() {
        [one] => {
            let title = one.title.as_deref().map(|title| format!(" ({})", safe(title)));
            format!("session {}{}", short(&one.id, &all), title.unwrap_or_default())
        }
        several => count(several.len(), "session", "sessions"),
    };
    if !yes && !confirm(&what, &doomed, &all)? {
        return print("nothing was deleted\n");
    }
    for meta in &doomed {
        sessions.store()?.delete(&meta.id).await.map_err(|error| gone(error, &meta.id))?;
    }
    print(&format!("deleted {what}\n"))
}

fn confirm(what: &str, doomed: &[Meta], all: &[Meta]) -> Result<bool, Ending> {
    if !io::stdin().is_terminal() {
        return Err(Ending::Usage(format!("nobody is there to ask: delete {what} with --yes")));
    }
    if doomed.len() > 1 {
        let mut text = String::new();
        for meta in doomed.iter().take(MAX_NAMED) {
            let title = meta.title.as_deref().map_or_else(|| "(no title)".to_owned(), safe);
            text += &format!("  {}  {title}\n", short(&meta.id, all));
        }
        if doomed.len() > MAX_NAMED {
            text += &format!("  … and {} more\n", doomed.len() - MAX_NAMED);
        }
        print(&text)?;
    }
    print(&format!("delete {what}? [y/N] "))?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).map_err(failed)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Gives a session another title.
pub(super) async fn rename(sessions: &Sessions, named: &Named, title: String) -> Result<(), Ending> {
    if title.trim().is_empty() {
        return Err(Ending::Usage("the title is empty: write one".to_owned()));
    }
    let meta = sessions.find(named).await?;
    let (lease, _) = sessions.store()?.claim(&meta.id).await.map_err(|error| gone(error, &meta.id))?;
    let renamed = lease.set_meta(Box::new(move |meta| meta.title = Some(title))).await.map_err(failed)?;
    lease.close().await.map_err(failed)?;
    let all = sessions.all().await?;
    let title = renamed.title.unwrap_or_default();
    print(&format!("renamed session {} to {}\n", short(&meta.id, &all), safe(&title)))
}

/// Copies a session, to go on from there in another direction, or in another directory.
pub(super) async fn fork(sessions: &Sessions, named: &Named, into: Option<&Path>) -> Result<(), Ending> {
    let from = sessions.find(named).await?;
    let id: SessionId = new_session_id();
    let cwd = directory(into)?;
    let title = from.title.as_ref().map(|title| format!("{} (copy)", title.trim_end_matches(" (copy)")));
    let meta =
        Meta { id: id.clone(), cwd: cwd.clone(), created: now(), updated: now(), title, ..from.clone() };
    let (lease, _) = sessions.store()?.fork(&from.id, meta).await.map_err(|error| gone(error, &from.id))?;
    lease.close().await.map_err(failed)?;
    let all = sessions.all().await?;
    let (from, new) = (short(&from.id, &all), short(&id, &all));
    let here = directory(None).is_ok_and(|here| here == cwd);
    let place = if here {
        String::new()
    } else {
        let word = cwd.to_string_lossy().into_owned();
        let quoted = shlex::try_quote(&word).map_or_else(|_| word.clone(), std::borrow::Cow::into_owned);
        format!(" --cwd {}", safe(&quoted))
    };
    print(&format!(
        "session {new} is a copy of {from}; go on with it: bowline run{place} --session {new} PROMPT\n"
    ))
}
