//! The changes that a command line selects.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use bowline_history::changes::{ChangeId, ChangeSource, Reversal};
use bowline_history::undo::{ChangeOwner, ChangeSelection};
use bowline_workspace::workspace::ListedChange;
use clap::Args;

use super::WorkspaceArguments;
use bowline_client::common::console::{escape_line, pluralize};
use bowline_client::common::names::{MAX_CANDIDATES, SessionNames, find_unique_id};
use bowline_client::common::workspace_location::WorkspaceLocation;
use bowline_client::error::CliError;

/// Which changes are meant: those of which all is true that is said.
#[derive(Args, Debug)]
pub(crate) struct Selectors {
    /// Select one session: its id, a prefix of it, or `last` for the last one here
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Select one turn by its number in the session (without N: the last turn)
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "last")]
    turn: Option<TurnArgument>,
    /// Select one tool call: its id or a prefix of it
    #[arg(long, value_name = "ID", conflicts_with = "turn")]
    call: Option<String>,
    /// Select the changes to one file, or to the files in a directory
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// Select one change by its number in `bowline changes`
    #[arg(long, value_name = "ID", conflicts_with_all = ["session", "turn", "call", "file"])]
    change: Option<i64>,
    /// Select only changes written through Bowline
    ///
    /// Changes found on disk, which may be your own work, are left out.
    #[arg(long, conflicts_with = "change")]
    written_only: bool,
    #[command(flatten)]
    workspace: WorkspaceArguments,
}

/// A turn named on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TurnArgument {
    Last,
    Number(u64),
}

impl FromStr for TurnArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            Ok(number) if number > 0 => Ok(Self::Number(number)),
            Err(_) if text == "last" => Ok(Self::Last),
            _ => Err("turns are counted from 1; `last` is the last one".to_owned()),
        }
    }
}

/// What the selection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SelectionPurpose {
    /// To show it; by default, everything.
    View,
    /// To undo it; by default, the last turn.
    Undo,
    /// To redo it; by default, the last undo.
    Redo,
}

impl SelectionPurpose {
    /// Returns whether a change can be selected for this purpose.
    fn applies_to(self, changed: &ListedChange) -> bool {
        let is_edit = changed.change.reverses.is_empty();
        match self {
            Self::View => is_edit,
            Self::Undo => is_edit && changed.is_in_effect,
            // A change that is partly undone is still in effect.
            Self::Redo => is_edit,
        }
    }
}

/// A resolved selection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ResolvedSelection {
    /// The selection, as the engine takes it.
    pub(crate) selection: ChangeSelection,
    /// The selection in words.
    pub(crate) description: String,
}

impl Selectors {
    pub(crate) fn cwd(&self) -> Option<&Path> {
        self.workspace.cwd.as_deref()
    }

    /// Resolves the arguments to a selection. `can_undo` returns whether a change can be undone; the default selection
    /// skips changes that cannot.
    ///
    /// # Errors
    /// Names what does not exist or is ambiguous.
    pub(crate) fn resolve(
        &self,
        location: &WorkspaceLocation,
        history: &[ListedChange],
        names: &SessionNames,
        purpose: SelectionPurpose,
        hunks: &[usize],
        can_undo: &dyn Fn(&ListedChange) -> bool,
    ) -> Result<ResolvedSelection, CliError> {
        let mut resolved = match self.change {
            Some(id) => select_change(history, ChangeId(id))?,
            None => self.resolve_filters(location, history, names, purpose, can_undo)?,
        };
        if self.written_only {
            resolved.selection.source = Some(ChangeSource::Written);
            resolved.description += ", as far as it was written through Bowline";
        }
        if !hunks.is_empty() {
            resolved = select_hunks(history, purpose, resolved, hunks)?;
        }
        Ok(resolved)
    }

    fn resolve_filters(
        &self,
        location: &WorkspaceLocation,
        history: &[ListedChange],
        names: &SessionNames,
        purpose: SelectionPurpose,
        can_undo: &dyn Fn(&ListedChange) -> bool,
    ) -> Result<ResolvedSelection, CliError> {
        let mut edits: Vec<&ListedChange> = history
            .iter()
            .filter(|changed| purpose.applies_to(changed) && session_id(changed).is_some())
            .collect();
        let is_unspecified =
            self.session.is_none() && self.turn.is_none() && self.call.is_none() && self.file.is_none();
        if is_unspecified && purpose == SelectionPurpose::Redo {
            let selection =
                ChangeSelection { owner: ChangeOwner::Agents, limit: Some(1), ..ChangeSelection::default() };
            return Ok(ResolvedSelection { selection, description: "what was undone last".to_owned() });
        }
        if is_unspecified && purpose == SelectionPurpose::Undo {
            let had_edits = !edits.is_empty();
            // A change that can never be undone does not block the ones before it.
            let observed = edits.iter().rfind(|edit| edit.change.is_unattributed());
            let observed = observed.map(|edit| escape_line(location.relative_name(&edit.change.path)));
            while edits.pop_if(|last| !can_undo(last)).is_some() {}
            if let (true, Some(name)) = (edits.is_empty(), observed) {
                return Err(selection_error(&format!(
                    "what is left of what agents changed here was merely found changed, such as {name}, and may be your own work: undo --found takes it back"
                )));
            }
            return match edits.last() {
                Some(newest) => Ok(select_newest(newest, names)),
                None if had_edits => Err(selection_error(
                    "what is left of what agents changed here cannot be taken back, its text is not kept: `bowline changes` lists it",
                )),
                None => Err(selection_error(NOTHING_IN_EFFECT)),
            };
        }
        // A session is identified by all its changes, in effect or not.
        let session = self.session.as_deref().map(|id| resolve_session(history, id)).transpose()?;
        let in_session =
            |changed: &&&ListedChange| session.is_none() || session_id(changed) == session.as_deref();
        let (owner, mut description) = match (self.turn, &self.call) {
            (Some(turn), _) => {
                resolve_turn(edits.iter().copied().filter(|changed| in_session(&changed)), turn, names)?
            }
            (None, Some(call)) => {
                // Like a session, a tool call is identified by all its changes.
                let all_edits = history.iter().filter(|changed| changed.change.reverses.is_empty());
                resolve_tool_call(all_edits.filter(|changed| in_session(&changed)), call, names)?
            }
            (None, None) => match session {
                Some(session) => {
                    let description = format!("session {}", names.session(&session));
                    (ChangeOwner::Session(session), description)
                }
                None => (ChangeOwner::Agents, "what agents changed".to_owned()),
            },
        };
        let path = self.file.as_deref().map(|file| location.absolute_path(file)).transpose()?;
        if let Some(path) = &path {
            let name = escape_line(location.relative_name(path));
            description = match owner {
                ChangeOwner::Agents => format!("what agents did to {name}"),
                _ => format!("{description} in {name}"),
            };
        }
        Ok(ResolvedSelection {
            selection: ChangeSelection { path, owner, ..ChangeSelection::default() },
            description,
        })
    }
}

fn session_id(changed: &ListedChange) -> Option<&str> {
    changed.change.origin.session.as_deref()
}

/// The message when there is nothing left to undo.
const NOTHING_IN_EFFECT: &str = "there is nothing to undo: no change of an agent is in effect here";

/// Selects the turn of the newest change, or its tool call where there are no turns, as over MCP.
fn select_newest(newest: &ListedChange, names: &SessionNames) -> ResolvedSelection {
    let change = &newest.change;
    let session = change.origin.session.clone().unwrap_or_default();
    let (owner, description) = match (change.origin.turn, &change.origin.call) {
        (Some(turn), _) => {
            let description = format!("the last turn ({})", names.turn(&session, turn));
            (ChangeOwner::Turn { session, turn }, description)
        }
        (None, Some(call)) => {
            let description =
                format!("the last tool call ({} of session {})", escape_line(call), names.session(&session));
            (ChangeOwner::Call { session, call: call.clone() }, description)
        }
        (None, None) => {
            let selection = ChangeSelection {
                change: Some(Reversal { change: change.id, hunks: None }),
                ..ChangeSelection::default()
            };
            return ResolvedSelection { selection, description: format!("the last change ({})", change.id) };
        }
    };
    ResolvedSelection { selection: ChangeSelection { owner, ..ChangeSelection::default() }, description }
}

/// Selects one change by its id.
fn select_change(history: &[ListedChange], id: ChangeId) -> Result<ResolvedSelection, CliError> {
    if !history.iter().any(|changed| changed.change.id == id) {
        return Err(selection_error(&format!(
            "there is no change {id} here: `bowline changes --all` lists them"
        )));
    }
    let change = Some(Reversal { change: id, hunks: None });
    Ok(ResolvedSelection {
        selection: ChangeSelection { change, ..ChangeSelection::default() },
        description: format!("change {id}"),
    })
}

/// Selects some hunks of the one selected change.
fn select_hunks(
    history: &[ListedChange],
    purpose: SelectionPurpose,
    resolved: ResolvedSelection,
    hunks: &[usize],
) -> Result<ResolvedSelection, CliError> {
    let is_candidate =
        |changed: &&ListedChange| purpose.applies_to(changed) && resolved.selection.matches(&changed.change);
    let candidates: Vec<ChangeId> =
        history.iter().filter(is_candidate).map(|changed| changed.change.id).collect();
    let [change] = candidates.as_slice() else {
        let flags: Vec<String> =
            candidates.iter().rev().take(MAX_CANDIDATES).map(|id| format!("--change {id}")).collect();
        return Err(match candidates.len() {
            0 => selection_error("there is no such change here: `bowline changes` lists them"),
            number => CliError::Usage(format!(
                "--hunk is of one change, and {} fit: say which, as with {}",
                number,
                flags.join(" or ")
            )),
        });
    };
    if hunks.contains(&0) {
        return Err(CliError::Usage(
            "hunks are counted from 1, as `bowline changes --hunks` shows them".to_owned(),
        ));
    }
    let numbers: Vec<String> = hunks.iter().map(ToString::to_string).collect();
    let description = format!(
        "{} {} of change {change}",
        if hunks.len() == 1 { "hunk" } else { "hunks" },
        numbers.join(", ")
    );
    let hunks = Some(hunks.iter().map(|hunk| hunk - 1).collect());
    let selection =
        ChangeSelection { change: Some(Reversal { change: *change, hunks }), ..ChangeSelection::default() };
    Ok(ResolvedSelection { selection, description })
}

/// Returns the session that a text names: by its id, by a prefix of its id, or as the last.
fn resolve_session(history: &[ListedChange], id: &str) -> Result<String, CliError> {
    let mut sessions: Vec<&str> = Vec::new();
    for session in history.iter().rev().filter_map(session_id) {
        if !sessions.contains(&session) {
            sessions.push(session);
        }
    }
    let missing = || {
        let subject = if id == "last" {
            "no session has".to_owned()
        } else {
            format!("no session {} has", escape_line(id))
        };
        CliError::NoSession(format!(
            "{subject} changed anything here: `bowline changes --all` tells which did"
        ))
    };
    if id == "last" {
        return sessions.first().map(|session| (*session).to_owned()).ok_or_else(missing);
    }
    find_unique_id(&sessions, id, "session")?.map(str::to_owned).ok_or_else(missing)
}

/// Returns a turn of the most recently active session.
fn resolve_turn<'h>(
    edits: impl Iterator<Item = &'h ListedChange>,
    turn: TurnArgument,
    names: &SessionNames,
) -> Result<(ChangeOwner, String), CliError> {
    let turns = edits.filter_map(|changed| Some((session_id(changed)?, changed.change.origin.turn?)));
    let turns: Vec<(&str, u64)> = turns.collect();
    let Some(&(session, newest)) = turns.last() else {
        return Err(selection_error("no turn of an agent changed anything here that is in effect"));
    };
    let turn = match turn {
        TurnArgument::Last => newest,
        TurnArgument::Number(number) if turns.contains(&(session, number)) => number,
        TurnArgument::Number(number) => {
            return Err(selection_error(&format!(
                "turn {number} of session {} changed nothing here that is in effect: `bowline changes --all` tells which did, --session chooses another",
                names.session(session)
            )));
        }
    };
    let description = names.turn(session, turn);
    Ok((ChangeOwner::Turn { session: session.to_owned(), turn }, description))
}

/// Returns a tool call of any session.
fn resolve_tool_call<'h>(
    edits: impl Iterator<Item = &'h ListedChange>,
    id: &str,
    names: &SessionNames,
) -> Result<(ChangeOwner, String), CliError> {
    let mut calls: Vec<(&str, &str)> = Vec::new();
    for changed in edits {
        if let (Some(session), Some(call)) = (session_id(changed), changed.change.origin.call.as_deref())
            && !calls.contains(&(session, call))
        {
            calls.push((session, call));
        }
    }
    let mut ids: Vec<&str> = calls.iter().map(|(_, call)| *call).collect();
    ids.sort_unstable();
    ids.dedup();
    let Some(call) = find_unique_id(&ids, id, "tool call")? else {
        return Err(selection_error(&format!("no tool call {} changed anything here", escape_line(id))));
    };
    let sessions: Vec<&str> =
        calls.iter().filter(|entry| entry.1 == call).map(|(session, _)| *session).collect();
    let [session] = sessions.as_slice() else {
        return Err(CliError::Usage(format!(
            "{} have a tool call {}: say which with --session",
            pluralize(sessions.len(), "session", "sessions"),
            escape_line(call)
        )));
    };
    let description = format!("tool call {} of session {}", escape_line(call), names.session(session));
    Ok((ChangeOwner::Call { session: (*session).to_owned(), call: call.to_owned() }, description))
}

fn selection_error(text: &str) -> CliError {
    CliError::Failed(anyhow::anyhow!("{text}"))
}
