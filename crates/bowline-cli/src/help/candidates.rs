//! Values that a shell completes: the sessions, changes, rules and agents of the current directory.

use bowline_client::common::console::escape_line;
use bowline_client::common::rules::describe_rule;
use bowline_client::common::workspace_location::{WorkspaceLocation, WorkspaceMarker};
use bowline_client::config::Config;
use bowline_client::environment::UserDirs;
use bowline_client::error::CliError;
use bowline_history::changes::Change;
use bowline_workspace::journal;
use bowline_workspace::workspace::TurnTitles;
use clap::{Arg, Command};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};

use crate::{policy, sessions};

/// The maximum number of values offered for one argument, the newest ones.
const MAX_CANDIDATES: usize = 100;

/// The number of changes that sessions are searched in.
const MAX_CHANGES: usize = 10_000;

type Candidates = Result<Vec<CompletionCandidate>, CliError>;

/// Adds the values that arguments can have, to a command and its subcommands.
pub(super) fn add_candidates(command: Command) -> Command {
    let name = command.get_name().to_owned();
    command.mut_args(|argument| add_argument_candidates(&name, argument)).mut_subcommands(add_candidates)
}

fn add_argument_candidates(command: &str, argument: Arg) -> Arg {
    let list: fn() -> Candidates = match (command, argument.get_id().as_str()) {
        ("run" | "chat" | "doctor", "agent") => list_agents,
        ("run" | "chat", "session") | ("show" | "export" | "rename" | "fork" | "delete", "id") => {
            list_stored_sessions
        }
        (_, "session") => list_journal_sessions,
        (_, "change") => list_changes,
        ("forget", "rule") => list_rules,
        _ => return argument,
    };
    // A shell shows nothing in place of an error.
    argument.add(ArgValueCandidates::new(move || list().unwrap_or_default()))
}

/// Returns a value with its description. Names of files and texts of agents are escaped for terminals.
fn candidate(value: impl Into<String>, help: Option<String>) -> CompletionCandidate {
    CompletionCandidate::new(value.into()).help(help.map(|help| escape_line(&help).into()))
}

fn list_agents() -> Candidates {
    let config = Config::read(&UserDirs::from_env()?.config)?;
    let own = candidate("bowline", Some("Bowline's own agent".to_owned()));
    let configured = config.agents.iter().map(|(name, agent)| candidate(name, Some(agent.command.clone())));
    Ok(std::iter::once(own).chain(configured).collect())
}

fn list_stored_sessions() -> Candidates {
    let stored = sessions::list_stored()?;
    let last = (!stored.is_empty()).then(|| candidate("last", Some("the last session here".to_owned())));
    let stored = stored.into_iter().map(|meta| candidate(&*meta.id.0, meta.title));
    Ok(last.into_iter().chain(stored).take(MAX_CANDIDATES).collect())
}

/// Returns the newest changes of the workspace, newest first, and the titles of its turns. The journal is only read: a
/// completion must not repair anything that a command would report.
fn read_history() -> Result<(Vec<Change>, TurnTitles), CliError> {
    let location = WorkspaceLocation::locate(None, WorkspaceMarker::Journal)?;
    let mut changes =
        journal::recent_changes(&location.journal_dir, MAX_CHANGES).map_err(anyhow::Error::from)?;
    changes.reverse();
    Ok((changes, TurnTitles::read(&location.journal_dir)))
}

fn list_journal_sessions() -> Candidates {
    let (changes, titles) = read_history()?;
    let mut seen: Vec<&str> = Vec::new();
    let mut found = Vec::new();
    for Change { origin, .. } in &changes {
        let Some(session) = origin.session.as_deref().filter(|session| !seen.contains(session)) else {
            continue;
        };
        seen.push(session);
        let title = origin.turn.and_then(|turn| titles.get(session, turn));
        found.push(candidate(session, title.map(ToOwned::to_owned)));
    }
    if !found.is_empty() {
        found.insert(0, candidate("last", Some("the last session here".to_owned())));
    }
    found.truncate(MAX_CANDIDATES);
    Ok(found)
}

fn list_changes() -> Candidates {
    let (changes, _) = read_history()?;
    let newest = changes.into_iter().take(MAX_CANDIDATES);
    Ok(newest.map(|change| candidate(change.id.to_string(), Some(change.path))).collect())
}

fn list_rules() -> Candidates {
    let rules = policy::list_rules()?;
    let numbered = rules.iter().enumerate().take(MAX_CANDIDATES);
    Ok(numbered.map(|(index, rule)| candidate((index + 1).to_string(), Some(describe_rule(rule)))).collect())
}
