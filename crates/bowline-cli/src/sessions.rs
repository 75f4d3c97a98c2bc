//! `bowline sessions`: the stored sessions of Bowline's own agent.

mod conversation;
mod edit;
mod export;
mod search;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use bowline_agent::store::{
    MAX_PAGE_SIZE, SessionMeta, SessionQuery, SessionRetention, SessionStore, SqliteSessionStore, StoreError,
    StoredSession,
};
use bowline_protocol::schema::v1::SessionId;
use clap::{Args, Subcommand, ValueEnum};

use crate::changes::WorkspaceArguments;
use bowline_client::common::console::{
    OutputStyle, TextStyle, escape_line, escape_lines, pluralize, print, print_note,
};
use bowline_client::common::names::find_unique_id;
use bowline_client::common::names::shorten_id;
use bowline_client::common::pager::print_paged;
use bowline_client::common::times::format_age;
use bowline_client::common::workspace_location::resolve_directory;
use bowline_client::environment::UserDirs;
use bowline_client::error::{CliError, failed};
use bowline_storage::clock::now;
use edit::DeleteArguments;

/// What is asked for: sessions are listed if nothing else is.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub(crate) struct SessionsArguments {
    #[command(subcommand)]
    command: Option<SessionsCommand>,
    #[command(flatten)]
    list_arguments: SessionListArguments,
}

/// What to list.
#[derive(Args, Debug)]
struct SessionListArguments {
    /// List the sessions of all directories
    #[arg(long, conflicts_with = "cwd")]
    all: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    workspace: WorkspaceArguments,
}

const EXAMPLES: &str = "\
Without a command, sessions are listed.

Exit status: 0 success, 1 failure, 2 wrong usage, 4 no such session.

Examples:
  bowline sessions                      list sessions of this directory, or the nearest parent's
  bowline sessions show last
  bowline sessions export last --output session.md";

const LIST_EXAMPLES: &str = "\
The most recently used session comes first. The list has the sessions of Bowline's own agent, \
including those started by an editor. Other agents store their own sessions.

Examples:
  bowline sessions list                 list sessions of this directory, or the nearest parent's
  bowline sessions list --all
  bowline sessions list --json | jq -r .id";

const SHOW_EXAMPLES: &str = "\
Examples:
  bowline sessions show last
  bowline sessions show 3f2a            by a prefix of its id
  bowline sessions show 3f2a --full     with full diffs, outputs and thoughts";

const EXPORT_EXAMPLES: &str = "\
A replay file has the model's replies: `bowline agent --model replay:FILE` gives them again to the \
same prompts, without the model.

Examples:
  bowline sessions export last --output session.md
  bowline sessions export 3f2a --format json | jq .messages
  bowline sessions export 3f2a --format replay --output again.jsonl";

const DELETE_EXAMPLES: &str = "\
The session's changes stay in the journal and can still be undone.

Examples:
  bowline sessions delete 3f2a
  bowline sessions delete 3f2a --yes               delete without asking, for scripts
  bowline sessions delete --older-than 30d         delete old sessions of this directory
  bowline sessions delete --older-than 90d --all --yes";

const SEARCH_EXAMPLES: &str = "\
The search covers session titles, prompts, answers and the titles of tool calls.

Examples:
  bowline sessions search 'connection pool'
  bowline sessions search parser --all --json | jq -r .id";

const RENAME_EXAMPLES: &str = "\
A session cannot be renamed while it is open in an agent.

Examples:
  bowline sessions rename last 'Rewrite of the parser'";

const FORK_EXAMPLES: &str = "\
The copy has the whole conversation so far. Files do not change.

Examples:
  bowline sessions fork last
  bowline sessions fork 3f2a --cwd ../other-checkout";

#[derive(Subcommand, Debug)]
enum SessionsCommand {
    /// List sessions, as `bowline sessions` alone does
    #[command(after_help = LIST_EXAMPLES)]
    List(SessionListArguments),
    /// Show a session's prompts, answers and tool calls
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        #[command(flatten)]
        session: SessionArgument,
        /// Show diffs, outputs and thoughts in full
        #[arg(long)]
        full: bool,
        /// Print all stored data, as `export --format json` does
        #[arg(long, conflicts_with = "full")]
        json: bool,
    },
    /// Write a session to stdout or a file
    #[command(after_help = EXPORT_EXAMPLES)]
    Export {
        #[command(flatten)]
        session: SessionArgument,
        /// The output format
        #[arg(long, value_enum, default_value_t = ExportFormat::Markdown)]
        format: ExportFormat,
        /// The file to create, readable by you only; it must not exist yet
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// List the sessions that contain a text
    #[command(after_help = SEARCH_EXAMPLES)]
    Search {
        /// The text to search for, ignoring case
        #[arg(value_name = "TEXT")]
        text: String,
        /// Search the sessions of all directories
        #[arg(long, conflicts_with = "cwd")]
        all: bool,
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        workspace: WorkspaceArguments,
    },
    /// Change the title of a session
    #[command(after_help = RENAME_EXAMPLES)]
    Rename {
        /// The session: its id, a prefix of it, or `last` for the last one used here
        #[arg(value_name = "ID")]
        id: String,
        /// The new title
        #[arg(value_name = "TITLE")]
        title: String,
        #[command(flatten)]
        workspace: WorkspaceArguments,
    },
    /// Copy a session, to continue in another direction or directory
    #[command(after_help = FORK_EXAMPLES)]
    Fork {
        /// The session: its id, a prefix of it, or `last` for the last one used here
        #[arg(value_name = "ID")]
        id: String,
        /// The directory of the copy (default: the current directory)
        #[arg(long, value_name = "DIR")]
        cwd: Option<PathBuf>,
    },
    /// Delete one session, or all sessions unused for some time
    #[command(after_help = DELETE_EXAMPLES)]
    Delete(DeleteArguments),
}

/// A session that is named.
#[derive(Args, Debug)]
struct SessionArgument {
    /// The session: its id, a prefix of it, or `last` for the last one used here
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    workspace: WorkspaceArguments,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ExportFormat {
    /// Readable text
    Markdown,
    /// All stored data
    Json,
    /// The model's replies, for playback
    Replay,
}

/// Runs the command.
pub(crate) async fn run(arguments: SessionsArguments) -> Result<(), CliError> {
    let dirs = UserDirs::from_env()?;
    let sessions = StoredSessions::new(&dirs)?;
    let result = match arguments.command.unwrap_or(SessionsCommand::List(arguments.list_arguments)) {
        SessionsCommand::List(SessionListArguments { all, json, workspace }) => {
            list_sessions(&sessions, all, json, &workspace).await
        }
        SessionsCommand::Show { session, json: true, .. } => {
            print(&export::to_json(&sessions.read(&session).await?)?)
        }
        SessionsCommand::Show { session, full, .. } => {
            let stored = sessions.read(&session).await?;
            print_paged(&conversation::to_text(&stored, full, OutputStyle::for_stdout()))
        }
        SessionsCommand::Export { session, format, output } => {
            let stored = sessions.read(&session).await?;
            let text = match format {
                ExportFormat::Markdown => export::to_markdown(&stored),
                ExportFormat::Json => export::to_json(&stored)?,
                ExportFormat::Replay => export::to_replay(&stored)?,
            };
            match output {
                Some(file) => export::write_new_file(&file, &text),
                None if OutputStyle::for_stdout().is_terminal => print(&escape_lines(&text)),
                None => print(&text),
            }
        }
        SessionsCommand::Search { text, all, json, workspace } => {
            search::search(&sessions, &text, all, json, &workspace).await
        }
        SessionsCommand::Rename { id, title, workspace } => {
            edit::rename(&sessions, &SessionArgument { id, workspace }, title).await
        }
        SessionsCommand::Fork { id, cwd } => {
            edit::fork(
                &sessions,
                &SessionArgument { id, workspace: WorkspaceArguments { cwd: None } },
                cwd.as_deref(),
            )
            .await
        }
        SessionsCommand::Delete(arguments) => edit::delete(&sessions, arguments).await,
    };
    sessions.print_notices();
    result
}

/// The stored sessions, if there are any: reading them creates nothing.
struct StoredSessions {
    store: Option<SqliteSessionStore>,
}

impl StoredSessions {
    fn new(dirs: &UserDirs) -> Result<Self, CliError> {
        let state = &dirs.state;
        let exists = SqliteSessionStore::exists(state).map_err(failed)?;
        Ok(Self { store: exists.then(|| SqliteSessionStore::new(state, SessionRetention::default())) })
    }

    fn print_notices(&self) {
        for notice in self.store.iter().flat_map(SessionStore::take_notices) {
            print_note(&notice.to_string());
        }
    }

    /// Returns all sessions, most recently used first.
    async fn list_all(&self) -> Result<Vec<SessionMeta>, CliError> {
        let mut sessions = Vec::new();
        let Some(store) = &self.store else { return Ok(sessions) };
        let mut cursor = None;
        loop {
            let page = store
                .list(SessionQuery { cwd: None, cursor, page_size: MAX_PAGE_SIZE })
                .await
                .map_err(failed)?;
            sessions.extend(page.sessions);
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(sessions);
            }
        }
    }

    /// Finds the named session.
    async fn find(&self, argument: &SessionArgument) -> Result<SessionMeta, CliError> {
        let sessions = self.list_all().await?;
        if argument.id == "last" {
            let start = resolve_directory(argument.workspace.cwd.as_deref())?;
            let nearest = nearest_directory(&sessions, &start);
            let last = sessions.into_iter().find(|meta| Some(&meta.cwd) == nearest.as_ref());
            return last.ok_or_else(|| {
                let shown = escape_line(&start.to_string_lossy());
                CliError::NoSession(format!(
                    "there is no session in {shown}: `bowline sessions list --all` lists the others"
                ))
            });
        }
        let ids: Vec<&str> = sessions.iter().map(|meta| &*meta.id.0).collect();
        let id = find_unique_id(&ids, &argument.id, "session")?.map(str::to_owned);
        let meta = sessions.into_iter().find(|meta| Some(&*meta.id.0) == id.as_deref());
        meta.ok_or_else(|| {
            let shown = escape_line(&argument.id);
            CliError::NoSession(format!(
                "there is no session {shown}: `bowline sessions list --all` lists them"
            ))
        })
    }

    async fn read(&self, argument: &SessionArgument) -> Result<StoredSession, CliError> {
        let id = self.find(argument).await?.id;
        self.store()?.read(&id).await.map_err(|error| session_error(error, &id))
    }

    fn store(&self) -> Result<&dyn SessionStore, CliError> {
        let store = self.store.as_ref().map(|store| store as &dyn SessionStore);
        store.ok_or_else(|| CliError::NoSession("there is no session yet".to_owned()))
    }
}

/// Returns the stored sessions of all directories, most recently used first. Notices stay with the store.
pub(crate) fn list_stored() -> Result<Vec<SessionMeta>, CliError> {
    let sessions = StoredSessions::new(&UserDirs::from_env()?)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(failed)?.block_on(sessions.list_all())
}

/// Returns the shortest distinguishable prefix of a session's id.
fn short_id(id: &SessionId, sessions: &[SessionMeta]) -> String {
    escape_line(shorten_id(&id.0, sessions.iter().map(|meta| &*meta.id.0)))
}

/// Returns the current directory, or its nearest parent, that has sessions.
fn nearest_directory(sessions: &[SessionMeta], start: &Path) -> Option<PathBuf> {
    let has_sessions = |directory: &&Path| sessions.iter().any(|meta| meta.cwd == **directory);
    start.ancestors().find(has_sessions).map(Path::to_owned)
}

/// Returns the error for a session that was just removed, or another store error.
fn session_error(error: StoreError, id: &SessionId) -> CliError {
    match error {
        StoreError::NotFound(_) => {
            CliError::NoSession(format!("there is no session {} any more", escape_line(&id.0)))
        }
        other => failed(other),
    }
}

async fn list_sessions(
    sessions: &StoredSessions,
    all: bool,
    json: bool,
    workspace: &WorkspaceArguments,
) -> Result<(), CliError> {
    let all_sessions = sessions.list_all().await?;
    let others = all_sessions.len();
    let mut listed = all_sessions.clone();
    let start = resolve_directory(workspace.cwd.as_deref())?;
    let nearest = nearest_directory(&listed, &start);
    if !all {
        listed.retain(|meta| Some(&meta.cwd) == nearest.as_ref());
        if let Some(directory) = nearest.as_ref().filter(|nearest| **nearest != start) {
            print_note(&format!("in {}", escape_line(&directory.to_string_lossy())));
        }
    }
    if json {
        let lines = listed.iter().map(|meta| format!("{}\n", export::meta_to_json(meta)));
        return print(&lines.collect::<String>());
    }
    if listed.is_empty() {
        let more = match others {
            0 => String::new(),
            others => format!("; {} elsewhere (--all)", others),
        };
        let suffix =
            if all { String::new() } else { format!(" in {}", escape_line(&start.to_string_lossy())) };
        return print(&format!("no sessions{suffix}{more}\n"));
    }
    print_paged(&format_table(&listed, &all_sessions, all, OutputStyle::for_stdout()))
}

fn format_table(
    listed: &[SessionMeta],
    all_sessions: &[SessionMeta],
    with_directory: bool,
    style: OutputStyle,
) -> String {
    let mut text = String::new();
    for meta in listed {
        let title = meta.title.as_deref().map_or_else(|| "(no title)".to_owned(), escape_line);
        let turns = pluralize(usize::try_from(meta.turns).unwrap_or(usize::MAX), "turn", "turns");
        let mut details = vec![format_age(meta.updated_at, now()), turns];
        details.extend(meta.model.as_deref().map(escape_line));
        if with_directory {
            details.push(escape_line(&meta.cwd.to_string_lossy()));
        }
        // Writing to a string cannot fail.
        _ = writeln!(text, "{}  {title}", style.paint(TextStyle::Heading, &short_id(&meta.id, all_sessions)));
        _ = writeln!(text, "    {}", style.paint(TextStyle::Faint, &details.join(" · ")));
    }
    text
}
