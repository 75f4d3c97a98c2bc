//! `bowline sessions`: the stored sessions of Bowline's own agent.

mod conversation;
mod edit;
mod exporting;
mod search;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use bowline_agent::store::{
    ListQuery, MAX_PAGE, Meta, Retention, SessionStore, SqliteSessionStore, StoreError, Stored,
};
use bowline_state::schema::v1::SessionId;
use clap::{Args, Subcommand, ValueEnum};

use crate::changes::{Where, unique};
use crate::ending::Ending;
use crate::places::Places;
use crate::records::here::directory;
use crate::records::names::shortened;
use crate::records::pager::page;
use crate::records::showing::{Ink, Look, count, note, print, safe, safe_lines};
use crate::records::times::ago;
use bowline_workspace::clock::now;
use edit::DeleteArguments;

/// What is asked for: sessions are listed if nothing else is.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub(crate) struct SessionsArguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: ListArguments,
}

/// What to list.
#[derive(Args, Debug)]
struct ListArguments {
    /// Lists the sessions of every directory
    #[arg(long, conflicts_with = "cwd")]
    all: bool,
    /// Prints one JSON object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Where,
}

const EXAMPLES: &str = "\
Without a command, sessions are listed.

Exit status: 0 done, 1 failed, 2 wrong usage, 4 no such session.

Examples:
  bowline sessions                      those of this directory, or of the nearest above it that has some
  bowline sessions show last
  bowline sessions export last --output session.md";

const LIST_EXAMPLES: &str = "\
The last used session comes first. These are the sessions of Bowline's own agent, also those that an editor began; other
agents keep theirs themselves.

Examples:
  bowline sessions list                 those of this directory, or of the nearest above it that has some
  bowline sessions list --all
  bowline sessions list --json | jq -r .id";

const SHOW_EXAMPLES: &str = "\
Examples:
  bowline sessions show last
  bowline sessions show 3f2a            by the beginning of its id
  bowline sessions show 3f2a --full     with whole diffs, outputs and thoughts";

const EXPORT_EXAMPLES: &str = "\
markdown is for people, json has everything that is stored, and replay has the replies of the model, which
`bowline agent --model replay:FILE` gives again to the same prompts without the model.

Examples:
  bowline sessions export last --output session.md
  bowline sessions export 3f2a --format json | jq .messages
  bowline sessions export 3f2a --format replay --output again.jsonl";

const DELETE_EXAMPLES: &str = "\
What the session changed stays in the journal, and can still be undone.

Examples:
  bowline sessions delete 3f2a
  bowline sessions delete 3f2a --yes               without a question, as in a script
  bowline sessions delete --older-than 30d         those of this directory
  bowline sessions delete --older-than 90d --all --yes";

const SEARCH_EXAMPLES: &str = "\
Titles, prompts, answers and the titles of tool calls are looked into.

Examples:
  bowline sessions search 'connection pool'
  bowline sessions search parser --all --json | jq -r .id";

const RENAME_EXAMPLES: &str = "\
A session that is open in an agent cannot be renamed meanwhile.

Examples:
  bowline sessions rename last 'Rewrite of the parser'";

const FORK_EXAMPLES: &str = "\
The copy has all that was said so far. The files stay as they are.

Examples:
  bowline sessions fork last
  bowline sessions fork 3f2a --cwd ../other-checkout";

#[derive(Subcommand, Debug)]
enum Command {
    /// Lists sessions, as `bowline sessions` alone does
    #[command(after_help = LIST_EXAMPLES)]
    List(ListArguments),
    /// Shows a conversation: prompts, answers, and what tools did
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        #[command(flatten)]
        session: Named,
        /// Shows diffs, outputs and thoughts whole
        #[arg(long)]
        full: bool,
        /// Prints everything that is stored, as `export --format json` does
        #[arg(long, conflicts_with = "full")]
        json: bool,
    },
    /// Writes a session to stdout or a file
    #[command(after_help = EXPORT_EXAMPLES)]
    Export {
        #[command(flatten)]
        session: Named,
        /// In which form
        #[arg(long, value_enum, default_value_t = Format::Markdown)]
        format: Format,
        /// The file to write, which only you can read; it may not be there yet
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Lists the sessions in which a text was said or done
    #[command(after_help = SEARCH_EXAMPLES)]
    Search {
        /// The text; large and small letters are the same
        #[arg(value_name = "TEXT")]
        text: String,
        /// Looks into the sessions of every directory
        #[arg(long, conflicts_with = "cwd")]
        all: bool,
        /// Prints one JSON object a line
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        place: Where,
    },
    /// Gives a session another title
    #[command(after_help = RENAME_EXAMPLES)]
    Rename {
        /// The session's id, the beginning of it, or `last` for the one that was used here last
        #[arg(value_name = "ID")]
        id: String,
        /// The title
        #[arg(value_name = "TITLE")]
        title: String,
        #[command(flatten)]
        place: Where,
    },
    /// Copies a session, to go on from there in another direction or directory
    #[command(after_help = FORK_EXAMPLES)]
    Fork {
        /// The session's id, the beginning of it, or `last` for the one that was used here last
        #[arg(value_name = "ID")]
        id: String,
        /// The directory of the copy, if it is not the current one
        #[arg(long, value_name = "DIR")]
        cwd: Option<PathBuf>,
    },
    /// Removes a session, or those that were not used for long
    #[command(after_help = DELETE_EXAMPLES)]
    Delete(DeleteArguments),
}

/// A session that is named.
#[derive(Args, Debug)]
struct Named {
    /// The session's id, the beginning of it, or `last` for the one that was used here last
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    place: Where,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Markdown,
    /// Everything that is stored
    Json,
    /// The replies of the model, to be played back
    Replay,
}

/// Does it.
pub(crate) async fn run(arguments: SessionsArguments) -> Result<(), Ending> {
    let places = Places::of_user()?;
    let sessions = Sessions::new(&places)?;
    let done = match arguments.command.unwrap_or(Command::List(arguments.list)) {
        Command::List(ListArguments { all, json, place }) => list(&sessions, all, json, &place).await,
        Command::Show { session, json: true, .. } => {
            print(&exporting::json(&sessions.read(&session).await?)?)
        }
        Command::Show { session, full, .. } => {
            let stored = sessions.read(&session).await?;
            page(&conversation::text(&stored, full, Look::of_stdout()))
        }
        Command::Export { session, format, output } => {
            let stored = sessions.read(&session).await?;
            let text = match format {
                Format::Markdown => exporting::markdown(&stored),
                Format::Json => exporting::json(&stored)?,
                Format::Replay => exporting::replay(&stored)?,
            };
            match output {
                Some(file) => exporting::write(&file, &text),
                None if Look::of_stdout().terminal => print(&safe_lines(&text)),
                None => print(&text),
            }
        }
        Command::Search { text, all, json, place } => {
            search::search(&sessions, &text, all, json, &place).await
        }
        Command::Rename { id, title, place } => edit::rename(&sessions, &Named { id, place }, title).await,
        Command::Fork { id, cwd } => {
            edit::fork(&sessions, &Named { id, place: Where { cwd: None } }, cwd.as_deref()).await
        }
        Command::Delete(arguments) => edit::delete(&sessions, arguments).await,
    };
    sessions.tell_notices();
    done
}

/// The stored sessions, if there are any: looking at them makes nothing.
struct Sessions {
    store: Option<SqliteSessionStore>,
}

impl Sessions {
    fn new(places: &Places) -> Result<Self, Ending> {
        let state = &places.state;
        let exists = SqliteSessionStore::exists(state).map_err(failed)?;
        Ok(Self { store: exists.then(|| SqliteSessionStore::new(state, Retention::default())) })
    }

    fn tell_notices(&self) {
        for notice in self.store.iter().flat_map(SessionStore::take_notices) {
            note(&notice.to_string());
        }
    }

    /// Returns all sessions, the last used first.
    async fn all(&self) -> Result<Vec<Meta>, Ending> {
        let mut all = Vec::new();
        let Some(store) = &self.store else { return Ok(all) };
        let mut cursor = None;
        loop {
            let page = store.list(ListQuery { cwd: None, cursor, page: MAX_PAGE }).await.map_err(failed)?;
            all.extend(page.sessions);
            cursor = page.next;
            if cursor.is_none() {
                return Ok(all);
            }
        }
    }

    /// Finds the session that is named.
    async fn find(&self, named: &Named) -> Result<Meta, Ending> {
        let all = self.all().await?;
        if named.id == "last" {
            let start = directory(named.place.cwd.as_deref())?;
            let nearest = nearest(&all, &start);
            let last = all.into_iter().find(|meta| Some(&meta.cwd) == nearest.as_ref());
            return last.ok_or_else(|| {
                let shown = safe(&start.to_string_lossy());
                Ending::NoSession(format!(
                    "there is no session in {shown}: `bowline sessions list --all` lists the others"
                ))
            });
        }
        let ids: Vec<&str> = all.iter().map(|meta| &*meta.id.0).collect();
        let found = unique(&ids, &named.id, "session")?.map(str::to_owned);
        let meta = all.into_iter().find(|meta| Some(&*meta.id.0) == found.as_deref());
        meta.ok_or_else(|| {
            let shown = safe(&named.id);
            Ending::NoSession(format!(
                "there is no session {shown}: `bowline sessions list --all` lists them"
            ))
        })
    }

    async fn read(&self, named: &Named) -> Result<Stored, Ending> {
        let id = self.find(named).await?.id;
        self.store()?.read(&id).await.map_err(|error| gone(error, &id))
    }

    fn store(&self) -> Result<&dyn SessionStore, Ending> {
        let store = self.store.as_ref().map(|store| store as &dyn SessionStore);
        store.ok_or_else(|| Ending::NoSession("there is no session yet".to_owned()))
    }
}

/// Returns a session's id, as short as it can be told from others.
fn short(id: &SessionId, known: &[Meta]) -> String {
    safe(shortened(&id.0, known.iter().map(|meta| &*meta.id.0)))
}

/// Returns the directory that is meant: this one, or the nearest above it that has sessions.
fn nearest(all: &[Meta], start: &Path) -> Option<PathBuf> {
    let has_some = |directory: &&Path| all.iter().any(|meta| meta.cwd == **directory);
    start.ancestors().find(has_some).map(Path::to_owned)
}

/// Says that a session is gone that was there a moment ago, or what else is wrong.
fn gone(error: StoreError, id: &SessionId) -> Ending {
    match error {
        StoreError::NotFound(_) => Ending::NoSession(format!("there is no session {} any more", safe(&id.0))),
        other => failed(other),
    }
}

async fn list(sessions: &Sessions, all: bool, json: bool, place: &Where) -> Result<(), Ending> {
    let known = sessions.all().await?;
    let others = known.len();
    let mut shown = known.clone();
    let start = directory(place.cwd.as_deref())?;
    let nearest = nearest(&shown, &start);
    if !all {
        shown.retain(|meta| Some(&meta.cwd) == nearest.as_ref());
        if let Some(other) = nearest.as_ref().filter(|nearest| **nearest != start) {
            note(&format!("in {}", safe(&other.to_string_lossy())));
        }
    }
    if json {
        let lines = shown.iter().map(|meta| format!("{}\n", exporting::meta(meta)));
        return print(&lines.collect::<String>());
    }
    if shown.is_empty() {
        let more = match others {
            0 => String::new(),
            others => format!("; {} elsewhere (--all)", others),
        };
        let place = if all { String::new() } else { format!(" in {}", safe(&start.to_string_lossy())) };
        return print(&format!("no sessions{place}{more}\n"));
    }
    page(&table(&shown, &known, all, Look::of_stdout()))
}

fn table(shown: &[Meta], known: &[Meta], with_directory: bool, look: Look) -> String {
    let mut text = String::new();
    for meta in shown {
        let title = meta.title.as_deref().map_or_else(|| "(no title)".to_owned(), safe);
        let turns = count(usize::try_from(meta.turns).unwrap_or(usize::MAX), "turn", "turns");
        let mut more = vec![ago(meta.updated, now()), turns];
        more.extend(meta.model.as_deref().map(safe));
        if with_directory {
            more.push(safe(&meta.cwd.to_string_lossy()));
        }
        // Writing to a string cannot fail.
        _ = writeln!(text, "{}  {title}", look.paint(Ink::Head, &short(&meta.id, known)));
        _ = writeln!(text, "    {}", look.paint(Ink::Faint, &more.join(" · ")));
    }
    text
}

fn failed(error: impl Into<anyhow::Error>) -> Ending {
    Ending::Failed(error.into())
}
