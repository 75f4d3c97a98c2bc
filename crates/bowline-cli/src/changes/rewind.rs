//! `bowline rewind`: lists agents' turns by their prompts, and goes back to before one of them.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use bowline_history::changes::ChangeId;
use bowline_history::undo::{ChangeOwner, ChangeSelection, ReversalDirection};
use bowline_storage::clock::format_iso8601;
use bowline_text::time::Timestamp;
use bowline_workspace::workspace::ListedChange;
use clap::Args;
use serde_json::json;

use super::selectors::ResolvedSelection;
use super::undo::{UndoRequest, perform};
use super::{UndoOptions, WorkspaceArguments, failed, no_changes_message, read_history};
use bowline_client::common::console::{OutputStyle, TextStyle, escape_line, pluralize, print, print_note};
use bowline_client::common::names::SessionNames;
use bowline_client::common::pager::print_paged;
use bowline_client::common::times::format_age;
use bowline_client::common::workspace_location::{WorkspaceLocation, WorkspaceMarker};
use bowline_client::error::CliError;
use bowline_storage::clock::now;

/// The maximum number of turns listed, unless all are requested.
const MAX_LISTED: usize = 20;

const EXAMPLES: &str = "\
Without a number, rewind lists the turns that changed files and are not undone, newest first. With a \
number, it undoes that turn and every later change by agents, as one undo. Your own edits stay, and \
`bowline redo` reverts the rewind. The agent's conversation does not change: the agent does not know \
that the files were reverted.

Exit status: 0 everything was undone, 1 nothing or only a part was undone, 2 wrong usage.

Examples:
  bowline rewind                list the turns with their numbers
  bowline rewind 12 --dry-run   show the patch that would be applied
  bowline rewind 12             go back to before turn 12";

/// How far back.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RewindArguments {
    /// Go back to before this turn, by its number in the list
    #[arg(value_name = "NUMBER")]
    turn: Option<i64>,
    /// Also undo changes merely found on disk, which may be your own work
    #[arg(long)]
    found: bool,
    /// List every turn (default: at most 20)
    #[arg(long, conflicts_with = "turn")]
    full: bool,
    #[command(flatten)]
    options: UndoOptions,
    #[command(flatten)]
    workspace: WorkspaceArguments,
}

/// One step of an agent: a turn, or a tool call where there are no turns.
struct RewindStep {
    // Its first change that is in effect.
    first: ChangeId,
    last: ChangeId,
    at: Timestamp,
    session: String,
    turn: Option<u64>,
    call: Option<String>,
    files: BTreeSet<String>,
}

impl RewindStep {
    fn title(&self, names: &SessionNames) -> String {
        let title = self.turn.and_then(|turn| names.title(&self.session, turn));
        title.unwrap_or_else(|| match (self.turn, &self.call) {
            (Some(turn), _) => format!("turn {turn}"),
            (None, Some(call)) => format!("tool call {}", escape_line(call)),
            (None, None) => "outside of turns".to_owned(),
        })
    }
}

/// Lists turns, or goes back to before one of them.
pub(crate) fn rewind(arguments: &RewindArguments) -> Result<(), CliError> {
    let location = WorkspaceLocation::find(arguments.workspace.cwd.as_deref(), WorkspaceMarker::Journal)?;
    let nothing_to_rewind =
        || failed(anyhow::anyhow!("there is nothing to rewind: {}", no_changes_message(&location, "rewind")));
    if !location.has_records {
        return Err(nothing_to_rewind());
    }
    let workspace = location.open(&[])?;
    let history = read_history(&workspace)?;
    let names = SessionNames::new(&history, workspace.turn_titles());
    let steps = rewind_steps(&history);
    if steps.is_empty() {
        let message = "there is nothing to rewind: no change of an agent is in effect here";
        return Err(failed(anyhow::anyhow!(message)));
    }
    let Some(number) = arguments.turn else {
        return if arguments.options.json {
            print(&steps_to_json_lines(&steps, &names))
        } else {
            print_steps(&steps, &names, arguments.full)
        };
    };
    let contains_number = |step: &&RewindStep| (step.first.0..=step.last.0).contains(&number);
    let Some(step) = steps.iter().find(|step| step.first.0 == number).or(steps.iter().find(contains_number))
    else {
        let message = format!("there is no turn {number} to go back to: `bowline rewind` lists them");
        return Err(failed(anyhow::anyhow!(message)));
    };
    let selection = ChangeSelection {
        owner: ChangeOwner::Agents,
        since: Some(step.first),
        only_explained: !arguments.found,
        ..ChangeSelection::default()
    };
    let undone = steps.iter().filter(|other| other.last >= step.first).count();
    let suffix = if undone == 1 { "" } else { " and what came after it" };
    let description = format!("{} ({}{suffix})", pluralize(undone, "turn", "turns"), step.title(&names));
    let request = UndoRequest { direction: ReversalDirection::Undo, options: arguments.options };
    perform(&location, workspace, &ResolvedSelection { selection, description }, &history, request)
}

/// Returns the agents' steps that are in effect, newest first.
fn rewind_steps(history: &[ListedChange]) -> Vec<RewindStep> {
    let mut steps: Vec<RewindStep> = Vec::new();
    let is_edit = |changed: &&ListedChange| changed.is_in_effect && changed.change.reverses.is_empty();
    for change in history.iter().filter(is_edit).map(|changed| &changed.change) {
        let Some(session) = change.origin.session.clone() else { continue };
        let turn = change.origin.turn;
        let call = change.origin.call.clone().filter(|_| turn.is_none());
        let is_same_step =
            |step: &&mut RewindStep| step.session == session && step.turn == turn && step.call == call;
        match steps.iter_mut().rev().find(is_same_step) {
            Some(step) => {
                (step.last, step.at) = (change.id, change.at);
                step.files.insert(change.path.clone());
            }
            None => {
                let files = BTreeSet::from([change.path.clone()]);
                let (first, last, at) = (change.id, change.id, change.at);
                steps.push(RewindStep { first, last, at, session, turn, call, files });
            }
        }
    }
    steps.reverse();
    steps
}

fn print_steps(steps: &[RewindStep], names: &SessionNames, full: bool) -> Result<(), CliError> {
    let (style, now) = (OutputStyle::for_stdout(), now());
    let mut text = String::new();
    let listed = if full { steps.len() } else { MAX_LISTED };
    let digits = steps.first().map_or(0, |step| step.first.to_string().len());
    for step in steps.iter().take(listed) {
        let files = pluralize(step.files.len(), "file", "files");
        let more =
            format!("{files} · {} · session {}", format_age(step.at, now), names.session(&step.session));
        // Writing to a string cannot fail.
        _ = writeln!(
            text,
            "{:>digits$}  {}  {}",
            step.first.0,
            style.paint(TextStyle::Heading, &step.title(names)),
            style.paint(TextStyle::Faint, &more)
        );
    }
    let more = steps.len().saturating_sub(listed);
    if more > 0 {
        _ = writeln!(text, "… and {more} more (--full)");
    }
    print_paged(&text)?;
    print_note("`bowline rewind NUMBER` goes back to before that turn");
    Ok(())
}

fn steps_to_json_lines(steps: &[RewindStep], names: &SessionNames) -> String {
    let object = |step: &RewindStep| {
        let object = json!({
            "number": step.first.0,
            "title": step.turn.and_then(|turn| names.title(&step.session, turn)),
            "session": step.session,
            "turn": step.turn,
            "call": step.call,
            "at": format_iso8601(step.at),
            "files": step.files,
        });
        format!("{object}\n")
    };
    steps.iter().map(object).collect()
}
