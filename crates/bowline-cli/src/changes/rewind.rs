//! `bowline rewind`: the turns of agents by what they were asked to do, and going back to before one.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use bowline_state::changes::{ChangeId, Moment};
use bowline_state::undo::{Direction, Selection, Who};
use bowline_workspace::clock::iso8601;
use bowline_workspace::workspace::Changed;
use clap::Args;
use serde_json::json;

use super::selecting::Meant;
use super::undoing::{UndoRequest, perform};
use super::{UndoOptions, Where, failed, history, nothing_yet};
use crate::ending::Ending;
use crate::records::here::{Here, Sign};
use crate::records::names::Names;
use crate::records::pager::page;
use crate::records::showing::{Ink, Look, count, note, print, safe};
use crate::records::times::ago;
use bowline_workspace::clock::now;

/// So many turns are listed, unless all are wanted.
const MAX_LISTED: usize = 20;

const EXAMPLES: &str = "\
Without a number, the turns that changed something and are not undone are listed, the newest first. With one, that turn is
undone and everything that agents did after it, as one undo: your own edits stay, and `bowline redo` brings all of it back. The
conversation of the agent is not changed: it does not know that its files went back.

Exit status: 0 if all was taken back, 1 if nothing or not all of it could be; 2 for wrong usage.

Examples:
  bowline rewind                lists the turns, each with its number
  bowline rewind 12 --dry-run   the patch that would be applied
  bowline rewind 12             goes back to before the turn with the number 12";

/// How far back.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RewindArguments {
    /// The turn to go back to before, by its number in the list
    #[arg(value_name = "NUMBER")]
    turn: Option<i64>,
    /// Takes back also files that were merely found changed, and that may be your own work
    #[arg(long)]
    found: bool,
    /// Lists every turn, however many there are
    #[arg(long, conflicts_with = "turn")]
    full: bool,
    #[command(flatten)]
    options: UndoOptions,
    #[command(flatten)]
    place: Where,
}

/// What an agent did at once: a turn, or a tool call where there are no turns.
struct Step {
    // The first change of it that is in effect.
    first: ChangeId,
    last: ChangeId,
    at: Moment,
    session: String,
    turn: Option<u64>,
    call: Option<String>,
    files: BTreeSet<String>,
}

impl Step {
    fn title(&self, names: &Names) -> String {
        let title = self.turn.and_then(|turn| names.title(&self.session, turn));
        title.unwrap_or_else(|| match (self.turn, &self.call) {
            (Some(turn), _) => format!("turn {turn}"),
            (None, Some(call)) => format!("tool call {}", safe(call)),
            (None, None) => "outside of turns".to_owned(),
        })
    }
}

/// Lists turns, or goes back to before one.
pub(crate) fn rewind(arguments: &RewindArguments) -> Result<(), Ending> {
    let here = Here::find(arguments.place.cwd.as_deref(), Sign::Journal)?;
    let nothing = || failed(anyhow::anyhow!("there is nothing to rewind: {}", nothing_yet(&here, "rewind")));
    if !here.known {
        return Err(nothing());
    }
    let workspace = here.open(&[])?;
    let known = history(&workspace)?;
    let names = Names::new(&known, workspace.turn_titles());
    let steps = steps(&known);
    if steps.is_empty() {
        let why = "there is nothing to rewind: no change of an agent is in effect here";
        return Err(failed(anyhow::anyhow!(why)));
    }
    let UndoOptions { dry_run, keep_going, conflicts, json } = arguments.options;
    let Some(number) = arguments.turn else {
        return if json { print(&objects(&steps, &names)) } else { list(&steps, &names, arguments.full) };
    };
    let is_meant = |step: &&Step| (step.first.0..=step.last.0).contains(&number);
    let Some(step) = steps.iter().find(|step| step.first.0 == number).or(steps.iter().find(is_meant)) else {
        let why = format!("there is no turn {number} to go back to: `bowline rewind` lists them");
        return Err(failed(anyhow::anyhow!(why)));
    };
    let selection = Selection {
        who: Who::Agents,
        since: Some(step.first),
        explained: !arguments.found,
        ..Selection::default()
    };
    let undone = steps.iter().filter(|other| other.last >= step.first).count();
    let on = if undone == 1 { "" } else { " and what came after it" };
    let words = format!("{} ({}{on})", count(undone, "turn", "turns"), step.title(&names));
    let request = UndoRequest { direction: Direction::Undo, dry_run, keep_going, conflicts, json };
    perform(&here, workspace, &Meant { selection, words }, &known, request)
}

/// Returns what agents did and is in effect, the newest first.
fn steps(history: &[Changed]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let is_edit = |changed: &&Changed| changed.in_effect && changed.change.reverses.is_empty();
    for change in history.iter().filter(is_edit).map(|changed| &changed.change) {
        let Some(session) = change.origin.session.clone() else { continue };
        let turn = change.origin.turn;
        let call = change.origin.call.clone().filter(|_| turn.is_none());
        let same = |step: &&mut Step| step.session == session && step.turn == turn && step.call == call;
        match steps.iter_mut().rev().find(same) {
            Some(step) => {
                (step.last, step.at) = (change.id, change.at);
                step.files.insert(change.path.clone());
            }
            None => {
                let files = BTreeSet::from([change.path.clone()]);
                let (first, last, at) = (change.id, change.id, change.at);
                steps.push(Step { first, last, at, session, turn, call, files });
            }
        }
    }
    steps.reverse();
    steps
}

fn list(steps: &[Step], names: &Names, full: bool) -> Result<(), Ending> {
    let (look, now) = (Look::of_stdout(), now());
    let mut text = String::new();
    let listed = if full { steps.len() } else { MAX_LISTED };
    let digits = steps.first().map_or(0, |step| step.first.to_string().len());
    for step in steps.iter().take(listed) {
        let files = count(step.files.len(), "file", "files");
        let more = format!("{files} · {} · session {}", ago(step.at, now), names.session(&step.session));
        // Writing to a string cannot fail.
        _ = writeln!(
            text,
            "{:>digits$}  {}  {}",
            step.first.0,
            look.paint(Ink::Head, &step.title(names)),
            look.paint(Ink::Faint, &more)
        );
    }
    let more = steps.len().saturating_sub(listed);
    if more > 0 {
        _ = writeln!(text, "… and {more} more (--full)");
    }
    page(&text)?;
    note("`bowline rewind NUMBER` goes back to before that turn");
    Ok(())
}

fn objects(steps: &[Step], names: &Names) -> String {
    let object = |step: &Step| {
        let object = json!({
            "number": step.first.0,
            "title": step.turn.and_then(|turn| names.title(&step.session, turn)),
            "session": step.session,
            "turn": step.turn,
            "call": step.call,
            "at": iso8601(step.at),
            "files": step.files,
        });
        format!("{object}\n")
    };
    steps.iter().map(object).collect()
}
