//! The changes that a command line selects.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use bowline_history::changes::{ChangeId, ChangeSource, Reversal};
use bowline_history::undo::{ChangeOwner, ChangeSelection};
use bowline_workspace::workspace::ListedChange;
use clap::Args;

use super::WorkspaceArguments;
use crate::common::console::{escape_line, pluralize};
use crate::common::names::SessionNames;
use crate::common::workspace_location::WorkspaceLocation;
use crate::error::CliError;

/// The maximum number of candidates named when a choice is ambiguous.
const MAX_CANDIDATES: usize = 8;

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

    /// Resolves the arguments to a selection. `keeps` returns whether a change can be undone; the default selection
    /// skips changes that cannot.
    ///
    /// # Errors
    /// Names what does not exist or is ambiguous.
    pub(crate) fn resolve(
        &self,
        here: &WorkspaceLocation,
        history: &[ListedChange],
        names: &SessionNames,
        purpose: SelectionPurpose,
        hunks: &[usize],
        keeps: &dyn Fn(&ListedChange) -> bool,
    ) -> Result<ResolvedSelection, CliError> {
        let mut meant = match self.change {
            Some(id) => select_change(history, ChangeId(id))?,
            None => self.resolve_filters(here, history, names, purpose, keeps)?,
        };
        if self.written_only {
            meant.selection.source = Some(ChangeSource::Written);
            meant.description += ", as far as it was written through Bowline";
        }
        if !hunks.is_empty() {
            meant = select_hunks(history, purpose, meant, hunks)?;
        }
        Ok(meant)
    }

    fn resolve_filters(
        &self,
        here: &WorkspaceLocation,
        history: &[ListedChange],
        names: &SessionNames,
        purpose: SelectionPurpose,
        keeps: &dyn Fn(&ListedChange) -> bool,
    ) -> Result<ResolvedSelection, CliError> {
        let mut edits: Vec<&ListedChange> = history
            .iter()
            .filter(|changed| purpose.applies_to(changed) && session_id(changed).is_some())
            .collect();
        let says_nothing =
            self.session.is_none() && self.turn.is_none() && self.call.is_none() && self.file.is_none();
        if says_nothing && purpose == SelectionPurpose::Redo {
            let selection =
                ChangeSelection { owner: ChangeOwner::Agents, limit: Some(1), ..ChangeSelection::default() };
            return Ok(ResolvedSelection { selection, description: "what was undone last".to_owned() });
        }
        if says_nothing && purpose == SelectionPurpose::Undo {
            let any = !edits.is_empty();
            // A change that can never be undone does not block the ones before it.
            let found = edits.iter().rfind(|edit| edit.change.is_unattributed());
            let found = found.map(|edit| escape_line(here.relative_name(&edit.change.path)));
            while edits.pop_if(|last| !keeps(last)).is_some() {}
            if let (true, Some(name)) = (edits.is_empty(), found) {
                return Err(selection_error(&format!(
                    "what is left of what agents changed here was merely found changed, such as {name}, and may be your own work: undo --found takes it back"
                )));
            }
            return match edits.last() {
                Some(newest) => Ok(select_newest(newest, names)),
                None if any => Err(selection_error(
                    "what is left of what agents changed here cannot be taken back, its text is not kept: `bowline changes` lists it",
                )),
                None => Err(selection_error(NOTHING_IN_EFFECT)),
            };
        }
        // A session is identified by all its changes, in effect or not.
        let session = self.session.as_deref().map(|named| resolve_session(history, named)).transpose()?;
        let of_session =
            |changed: &&&ListedChange| session.is_none() || session_id(changed) == session.as_deref();
        let (who, mut words) = match (self.turn, &self.call) {
            (Some(turn), _) => {
                resolve_turn(edits.iter().copied().filter(|one| of_session(&one)), turn, names)?
            }
            (None, Some(call)) => {
                // Like a session, a tool call is identified by all its changes.
                let of_agents = history.iter().filter(|changed| changed.change.reverses.is_empty());
                resolve_tool_call(of_agents.filter(|one| of_session(&one)), call, names)?
            }
            (None, None) => match session {
                Some(session) => {
                    let words = format!("session {}", names.session(&session));
                    (ChangeOwner::Session(session), words)
                }
                None => (ChangeOwner::Agents, "what agents changed".to_owned()),
            },
        };
        let path = self.file.as_deref().map(|file| here.absolute_path(file)).transpose()?;
        if let Some(path) = &path {
            let name = escape_line(here.relative_name(path));
            words = match who {
                ChangeOwner::Agents => format!("what agents did to {name}"),
                _ => format!("{words} in {name}"),
            };
        }
        Ok(ResolvedSelection {
            selection: ChangeSelection { path, owner: who, ..ChangeSelection::default() },
            description: words,
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
    let (who, words) = match (change.origin.turn, &change.origin.call) {
        (Some(turn), _) => {
            let words = format!("the last turn ({})", names.turn(&session, turn));
            (ChangeOwner::Turn { session, turn }, words)
        }
        (None, Some(call)) => {
            let words =
                format!("the last tool call ({} of session {})", escape_line(call), names.session(&session));
            (ChangeOwner::Call { session, call: call.clone() }, words)
        }
        (None, None) => {
            let selection = ChangeSelection {
                change: Some(Reversal { change: change.id, hunks: None }),
                ..ChangeSelection::default()
            };
            return ResolvedSelection { selection, description: format!("the last change ({})", change.id) };
        }
    };
    ResolvedSelection {
        selection: ChangeSelection { owner: who, ..ChangeSelection::default() },
        description: words,
    }
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
    meant: ResolvedSelection,
    hunks: &[usize],
) -> Result<ResolvedSelection, CliError> {
    let fits =
        |changed: &&ListedChange| purpose.applies_to(changed) && meant.selection.matches(&changed.change);
    let fitting: Vec<ChangeId> = history.iter().filter(fits).map(|changed| changed.change.id).collect();
    let [change] = fitting.as_slice() else {
        let named: Vec<String> =
            fitting.iter().rev().take(MAX_CANDIDATES).map(|id| format!("--change {id}")).collect();
        return Err(match fitting.len() {
            0 => selection_error("there is no such change here: `bowline changes` lists them"),
            number => CliError::Usage(format!(
                "--hunk is of one change, and {} fit: say which, as with {}",
                number,
                named.join(" or ")
            )),
        });
    };
    if hunks.contains(&0) {
        return Err(CliError::Usage(
            "hunks are counted from 1, as `bowline changes --hunks` shows them".to_owned(),
        ));
    }
    let shown: Vec<String> = hunks.iter().map(ToString::to_string).collect();
    let words = format!(
        "{} {} of change {change}",
        if hunks.len() == 1 { "hunk" } else { "hunks" },
        shown.join(", ")
    );
    let hunks = Some(hunks.iter().map(|hunk| hunk - 1).collect());
    let selection =
        ChangeSelection { change: Some(Reversal { change: *change, hunks }), ..ChangeSelection::default() };
    Ok(ResolvedSelection { selection, description: words })
}

/// Returns the session that a text names: by its id, by a prefix of its id, or as the last.
fn resolve_session(history: &[ListedChange], named: &str) -> Result<String, CliError> {
    let mut known: Vec<&str> = Vec::new();
    for session in history.iter().rev().filter_map(session_id) {
        if !known.contains(&session) {
            known.push(session);
        }
    }
    let missing = || {
        let named = if named == "last" {
            "no session has".to_owned()
        } else {
            format!("no session {} has", escape_line(named))
        };
        CliError::NoSession(format!("{named} changed anything here: `bowline changes --all` tells which did"))
    };
    if named == "last" {
        return known.first().map(|session| (*session).to_owned()).ok_or_else(missing);
    }
    find_unique_id(&known, named, "session")?.map(str::to_owned).ok_or_else(missing)
}

/// Returns the id that matches exactly, or the only one with this prefix.
pub(crate) fn find_unique_id<'k>(
    known: &[&'k str],
    named: &str,
    what: &str,
) -> Result<Option<&'k str>, CliError> {
    if named.is_empty() {
        // Usually an unset variable in a script.
        return Err(CliError::Usage(format!("the {what} id is empty: write one, or leave the option out")));
    }
    if let Some(exact) = known.iter().find(|known| **known == named) {
        return Ok(Some(exact));
    }
    let begins = |known: &&str| known.starts_with(named);
    let fitting: Vec<&str> = known.iter().copied().filter(begins).collect();
    match fitting.as_slice() {
        [] => Ok(None),
        [only] => Ok(Some(only)),
        several => {
            let shown: Vec<String> =
                several.iter().take(MAX_CANDIDATES).map(|one| escape_line(one)).collect();
            let more = several.len() - shown.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            Err(CliError::Usage(format!(
                "{} {what} ids begin with {}: {}{more}; write more of it",
                several.len(),
                escape_line(named),
                shown.join(", ")
            )))
        }
    }
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
    let words = names.turn(session, turn);
    Ok((ChangeOwner::Turn { session: session.to_owned(), turn }, words))
}

/// Returns a tool call of any session.
fn resolve_tool_call<'h>(
    edits: impl Iterator<Item = &'h ListedChange>,
    named: &str,
    names: &SessionNames,
) -> Result<(ChangeOwner, String), CliError> {
    let mut known: Vec<(&str, &str)> = Vec::new();
    for changed in edits {
        if let (Some(session), Some(call)) = (session_id(changed), changed.change.origin.call.as_deref())
            && !known.contains(&(session, call))
        {
            known.push((session, call));
        }
    }
    let mut ids: Vec<&str> = known.iter().map(|(_, call)| *call).collect();
    ids.sort_unstable();
    ids.dedup();
    let Some(call) = find_unique_id(&ids, named, "tool call")? else {
        return Err(selection_error(&format!("no tool call {} changed anything here", escape_line(named))));
    };
    let sessions: Vec<&str> =
        known.iter().filter(|known| known.1 == call).map(|(session, _)| *session).collect();
    let [session] = sessions.as_slice() else {
        return Err(CliError::Usage(format!(
            "{} have a tool call {}: say which with --session",
            pluralize(sessions.len(), "session", "sessions"),
            escape_line(call)
        )));
    };
    let words = format!("tool call {} of session {}", escape_line(call), names.session(session));
    Ok((ChangeOwner::Call { session: (*session).to_owned(), call: call.to_owned() }, words))
}

fn selection_error(text: &str) -> CliError {
    CliError::Failed(anyhow::anyhow!("{text}"))
}
