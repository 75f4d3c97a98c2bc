//! Which changes a command line means.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use bowline_state::changes::{ChangeId, Reversal, Source};
use bowline_state::undo::{Selection, Who};
use bowline_workspace::workspace::Changed;
use clap::Args;

use super::Where;
use crate::ending::Ending;
use crate::records::here::Here;
use crate::records::names::Names;
use crate::records::showing::{count, safe};

/// So many candidates are named where a choice is not clear.
const NAMED: usize = 8;

/// Which changes are meant: those of which all is true that is said.
#[derive(Args, Debug)]
pub(crate) struct Selectors {
    /// What one session did: its id, the beginning of it, or `last` for the one that worked here last
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// What one turn did: its number in the session, or the last one if there is no number
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "last")]
    turn: Option<Turn>,
    /// What one tool call did: its id, or the beginning of it
    #[arg(long, value_name = "ID", conflicts_with = "turn")]
    call: Option<String>,
    /// What was done to one file, or to the files below a directory
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// One change, by the number that `bowline changes` shows
    #[arg(long, value_name = "ID", conflicts_with_all = ["session", "turn", "call", "file"])]
    change: Option<i64>,
    /// Only what was written through Bowline: what was found on disk, and may be your own work, is left alone
    #[arg(long, conflicts_with = "change")]
    written_only: bool,
    #[command(flatten)]
    place: Where,
}

/// A turn that is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Last,
    Number(u64),
}

impl FromStr for Turn {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            Ok(number) if number > 0 => Ok(Self::Number(number)),
            Err(_) if text == "last" => Ok(Self::Last),
            _ => Err("turns are counted from 1; `last` is the last one".to_owned()),
        }
    }
}

/// What is to be done with what is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It is shown: all of it if nothing is said.
    Look,
    /// It is taken back: the last turn if nothing is said.
    Undo,
    /// It comes back: what was undone last if nothing is said.
    Redo,
}

impl Purpose {
    /// Says whether it has to do with a change at all.
    fn takes(self, changed: &Changed) -> bool {
        let is_edit = changed.change.reverses.is_empty();
        match self {
            Self::Look => is_edit,
            Self::Undo => is_edit && changed.in_effect,
            // What was undone in parts is in effect, too.
            Self::Redo => is_edit,
        }
    }
}

/// What is meant.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Meant {
    /// As the engine takes it.
    pub(crate) selection: Selection,
    /// In words.
    pub(crate) words: String,
}

impl Selectors {
    pub(crate) fn cwd(&self) -> Option<&Path> {
        self.place.cwd.as_deref()
    }

    /// Finds out what is meant. `keeps` says whether a change could be taken back: who names nothing means nothing else.
    ///
    /// # Errors
    /// Says what is not there, or not clear.
    pub(crate) fn meant(
        &self,
        here: &Here,
        history: &[Changed],
        names: &Names,
        purpose: Purpose,
        hunks: &[usize],
        keeps: &dyn Fn(&Changed) -> bool,
    ) -> Result<Meant, Ending> {
        let mut meant = match self.change {
            Some(id) => one(history, ChangeId(id))?,
            None => self.some(here, history, names, purpose, keeps)?,
        };
        if self.written_only {
            meant.selection.source = Some(Source::Written);
            meant.words += ", as far as it was written through Bowline";
        }
        if !hunks.is_empty() {
            meant = only(history, purpose, meant, hunks)?;
        }
        Ok(meant)
    }

    fn some(
        &self,
        here: &Here,
        history: &[Changed],
        names: &Names,
        purpose: Purpose,
        keeps: &dyn Fn(&Changed) -> bool,
    ) -> Result<Meant, Ending> {
        let mut edits: Vec<&Changed> = history
            .iter()
            .filter(|changed| purpose.takes(changed) && session_of(changed).is_some())
            .collect();
        let says_nothing =
            self.session.is_none() && self.turn.is_none() && self.call.is_none() && self.file.is_none();
        if says_nothing && purpose == Purpose::Redo {
            let selection = Selection { who: Who::Agents, last: Some(1), ..Selection::default() };
            return Ok(Meant { selection, words: "what was undone last".to_owned() });
        }
        if says_nothing && purpose == Purpose::Undo {
            let any = !edits.is_empty();
            // What can never be taken back does not keep anybody from what was before it.
            let found = edits.iter().rfind(|edit| edit.change.is_unexplained());
            let found = found.map(|edit| safe(here.name(&edit.change.path)));
            while edits.pop_if(|last| !keeps(last)).is_some() {}
            if let (true, Some(name)) = (edits.is_empty(), found) {
                return Err(nothing(&format!(
                    "what is left of what agents changed here was merely found changed, such as {name}, and may be your own work: undo --found takes it back"
                )));
            }
            return match edits.last() {
                Some(newest) => Ok(newest_of(newest, names)),
                None if any => Err(nothing(
                    "what is left of what agents changed here cannot be taken back, its text is not kept: `bowline changes` lists it",
                )),
                None => Err(nothing(NOTHING_IN_EFFECT)),
            };
        }
        // A session is known by all that it did, in effect or not.
        let session = self.session.as_deref().map(|named| session(history, named)).transpose()?;
        let of_session = |changed: &&&Changed| session.is_none() || session_of(changed) == session.as_deref();
        let (who, mut words) = match (self.turn, &self.call) {
            (Some(turn), _) => turn_of(edits.iter().copied().filter(|one| of_session(&one)), turn, names)?,
            (None, Some(call)) => {
                // As a session, a call is known by all that it did.
                let of_agents = history.iter().filter(|changed| changed.change.reverses.is_empty());
                call_of(of_agents.filter(|one| of_session(&one)), call, names)?
            }
            (None, None) => match session {
                Some(session) => {
                    let words = format!("session {}", names.session(&session));
                    (Who::Session(session), words)
                }
                None => (Who::Agents, "what agents changed".to_owned()),
            },
        };
        let path = self.file.as_deref().map(|file| here.file(file)).transpose()?;
        if let Some(path) = &path {
            let name = safe(here.name(path));
            words = match who {
                Who::Agents => format!("what agents did to {name}"),
                _ => format!("{words} in {name}"),
            };
        }
        Ok(Meant { selection: Selection { path, who, ..Selection::default() }, words })
    }
}

fn session_of(changed: &Changed) -> Option<&str> {
    changed.change.origin.session.as_deref()
}

/// What is said if nothing is left to undo.
const NOTHING_IN_EFFECT: &str = "there is nothing to undo: no change of an agent is in effect here";

/// Returns what the newest change belongs to: its turn, or its tool call where there are no turns, as over MCP.
fn newest_of(newest: &Changed, names: &Names) -> Meant {
    let change = &newest.change;
    let session = change.origin.session.clone().unwrap_or_default();
    let (who, words) = match (change.origin.turn, &change.origin.call) {
        (Some(turn), _) => {
            let words = format!("the last turn ({})", names.turn(&session, turn));
            (Who::Turn { session, turn }, words)
        }
        (None, Some(call)) => {
            let words = format!("the last tool call ({} of session {})", safe(call), names.session(&session));
            (Who::Call { session, call: call.clone() }, words)
        }
        (None, None) => {
            let selection = Selection {
                change: Some(Reversal { change: change.id, hunks: None }),
                ..Selection::default()
            };
            return Meant { selection, words: format!("the last change ({})", change.id) };
        }
    };
    Meant { selection: Selection { who, ..Selection::default() }, words }
}

/// Returns one change, by its number.
fn one(history: &[Changed], id: ChangeId) -> Result<Meant, Ending> {
    if !history.iter().any(|changed| changed.change.id == id) {
        return Err(nothing(&format!("there is no change {id} here: `bowline changes --all` lists them")));
    }
    let change = Some(Reversal { change: id, hunks: None });
    Ok(Meant { selection: Selection { change, ..Selection::default() }, words: format!("change {id}") })
}

/// Returns some hunks of the one change that is meant.
fn only(history: &[Changed], purpose: Purpose, meant: Meant, hunks: &[usize]) -> Result<Meant, Ending> {
    let fits = |changed: &&Changed| purpose.takes(changed) && meant.selection.matches(&changed.change);
    let fitting: Vec<ChangeId> = history.iter().filter(fits).map(|changed| changed.change.id).collect();
    let [change] = fitting.as_slice() else {
        let named: Vec<String> =
            fitting.iter().rev().take(NAMED).map(|id| format!("--change {id}")).collect();
        return Err(match fitting.len() {
            0 => nothing("there is no such change here: `bowline changes` lists them"),
            number => Ending::Usage(format!(
                "--hunk is of one change, and {} fit: say which, as with {}",
                number,
                named.join(" or ")
            )),
        });
    };
    if hunks.contains(&0) {
        return Err(Ending::Usage(
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
    let selection = Selection { change: Some(Reversal { change: *change, hunks }), ..Selection::default() };
    Ok(Meant { selection, words })
}

/// Returns the session that a text names: by its id, by the beginning of it, or as the last.
fn session(history: &[Changed], named: &str) -> Result<String, Ending> {
    let mut known: Vec<&str> = Vec::new();
    for session in history.iter().rev().filter_map(session_of) {
        if !known.contains(&session) {
            known.push(session);
        }
    }
    let missing = || {
        let named = if named == "last" {
            "no session has".to_owned()
        } else {
            format!("no session {} has", safe(named))
        };
        Ending::NoSession(format!("{named} changed anything here: `bowline changes --all` tells which did"))
    };
    if named == "last" {
        return known.first().map(|session| (*session).to_owned()).ok_or_else(missing);
    }
    unique(&known, named, "session")?.map(str::to_owned).ok_or_else(missing)
}

/// Returns what is named exactly, or the only one that begins so.
pub(crate) fn unique<'k>(known: &[&'k str], named: &str, what: &str) -> Result<Option<&'k str>, Ending> {
    if named.is_empty() {
        // Most often a variable of a script that is not set.
        return Err(Ending::Usage(format!("the {what} id is empty: write one, or leave the option out")));
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
            let shown: Vec<String> = several.iter().take(NAMED).map(|one| safe(one)).collect();
            let more = several.len() - shown.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            Err(Ending::Usage(format!(
                "{} {what} ids begin with {}: {}{more}; write more of it",
                several.len(),
                safe(named),
                shown.join(", ")
            )))
        }
    }
}

/// Returns a turn of the session that did something last.
fn turn_of<'h>(
    edits: impl Iterator<Item = &'h Changed>,
    turn: Turn,
    names: &Names,
) -> Result<(Who, String), Ending> {
    let turns = edits.filter_map(|changed| Some((session_of(changed)?, changed.change.origin.turn?)));
    let turns: Vec<(&str, u64)> = turns.collect();
    let Some(&(session, newest)) = turns.last() else {
        return Err(nothing("no turn of an agent changed anything here that is in effect"));
    };
    let turn = match turn {
        Turn::Last => newest,
        Turn::Number(number) if turns.contains(&(session, number)) => number,
        Turn::Number(number) => {
            return Err(nothing(&format!(
                "turn {number} of session {} changed nothing here that is in effect: `bowline changes --all` tells which did, --session chooses another",
                names.session(session)
            )));
        }
    };
    let words = names.turn(session, turn);
    Ok((Who::Turn { session: session.to_owned(), turn }, words))
}

/// Returns a tool call, of whatever session it is.
fn call_of<'h>(
    edits: impl Iterator<Item = &'h Changed>,
    named: &str,
    names: &Names,
) -> Result<(Who, String), Ending> {
    let mut known: Vec<(&str, &str)> = Vec::new();
    for changed in edits {
        if let (Some(session), Some(call)) = (session_of(changed), changed.change.origin.call.as_deref())
            && !known.contains(&(session, call))
        {
            known.push((session, call));
        }
    }
    let mut ids: Vec<&str> = known.iter().map(|(_, call)| *call).collect();
    ids.sort_unstable();
    ids.dedup();
    let Some(call) = unique(&ids, named, "tool call")? else {
        return Err(nothing(&format!("no tool call {} changed anything here", safe(named))));
    };
    let sessions: Vec<&str> =
        known.iter().filter(|known| known.1 == call).map(|(session, _)| *session).collect();
    let [session] = sessions.as_slice() else {
        return Err(Ending::Usage(format!(
            "{} have a tool call {}: say which with --session",
            count(sessions.len(), "session", "sessions"),
            safe(call)
        )));
    };
    let words = format!("tool call {} of session {}", safe(call), names.session(session));
    Ok((Who::Call { session: (*session).to_owned(), call: call.to_owned() }, words))
}

fn nothing(text: &str) -> Ending {
    Ending::Failed(anyhow::anyhow!("{text}"))
}
