//! `bowline changes`, `diff`, `undo` and `redo`: what agents changed here, and taking it back.

mod leftovers;
mod listing;
pub(crate) mod patching;
mod report;
mod restore;
mod rewind;
mod selecting;
mod undoing;

use std::path::PathBuf;

use bowline_state::changes::Change;
use bowline_state::undo::{Direction, Selection, Who};
use bowline_workspace::workspace::{Changed, Workspace};
use clap::{Args, ValueEnum};

use crate::ending::Ending;
use crate::records::elsewhere;
use crate::records::here::{Here, Sign};
use crate::records::names::Names;
use crate::records::pager::page;
use crate::records::showing::{Look, note, print, safe};
use bowline_workspace::clock::now;
pub(crate) use restore::{RestoreArguments, restore};
pub(crate) use rewind::{RewindArguments, rewind};
pub(crate) use selecting::unique;
use selecting::{Meant, Purpose, Selectors};

const CHANGES_EXAMPLES: &str = "\
What the columns say: the number of the change, what became of the file, its name, lines added and removed. Then how it was
learnt, where it did not go through Bowline: `observed` was found on disk after a turn or a command, and may have been done
by you, or by another program or agent, while that went on; `claimed` is what an agent said. --written-only leaves both out.
`reverted by hand` says that the file is what it was before. `undone` changes are listed with --all, and so is what you or other programs changed beside the agents. The text of a
`pruned` change was dropped to keep the journal within its limits: it cannot be undone or shown. `kept, not in the file` is text
that was saved while Bowline replaced the file and could not be merged into it: `bowline restore` prints it or puts it back.

Exit status: 0, also if there are none; 2 for wrong usage; 4 if there is no such session.

Examples:
  bowline changes                      what agents changed here and is not undone
  bowline changes --turn               what the last turn changed
  bowline changes --hunks --file a.rs  each place in a file, with its number for undo --hunk
  bowline changes --all --json         everything, one JSON object a line";

/// What to list.
#[derive(Args, Debug)]
#[command(after_help = CHANGES_EXAMPLES)]
pub(crate) struct ChangesArguments {
    #[command(flatten)]
    selectors: Selectors,
    /// Lists also what was undone, the undos themselves, and what was changed beside the agents
    #[arg(long)]
    all: bool,
    /// Shows each place that was changed, with the number that undo --hunk takes
    #[arg(long)]
    hunks: bool,
    /// Lists every change of a turn, however many there are
    #[arg(long)]
    full: bool,
    /// Prints one JSON object a line
    #[arg(long, conflicts_with = "hunks")]
    json: bool,
}

const DIFF_EXAMPLES: &str = "\
The patch shows what the changes made of each file that is still in effect. `git apply -R` takes it out of the files, as
undo does; `git apply` puts it into a tree that does not have it. Names in it are relative to the workspace. Binary files are
only said to differ. Nothing is printed to stdout if nothing is in effect.

Exit status: 0, also if there is nothing to show; 2 for wrong usage; 4 if there is no such session.

Examples:
  bowline diff                           all that agents changed and is not undone
  bowline diff --turn | git apply -R     takes the last turn back without the journal knowing
  bowline diff --session last --stat     how much the last session changed
  bowline diff --change 12 --hunk 2      one place of one change";

/// What to show.
#[derive(Args, Debug)]
#[command(after_help = DIFF_EXAMPLES)]
pub(crate) struct DiffArguments {
    #[command(flatten)]
    selectors: Selectors,
    /// Shows these places of one change alone, counted from 1 as `bowline changes --hunks` does
    #[arg(long, value_name = "N", value_delimiter = ',')]
    hunk: Vec<usize>,
    /// Shows how many lines changed in each file in place of the patch
    #[arg(long)]
    stat: bool,
    /// Prints one JSON object a line, one for each file
    #[arg(long, conflicts_with = "stat")]
    json: bool,
}

const UNDO_EXAMPLES: &str = "\
Without a choice, the newest change that is not undone is taken back, with the rest of its turn, or of its tool call where
there are no turns, as with what MCP clients did. Nothing is asked.

Your own later edits stay: a file that was edited since is merged. Where you changed the same lines the file is in conflict,
and then nothing at all is taken back, unless --keep-going says to do the other files, or --conflicts what to do: `show` prints
both sides, `markers` puts them into the file as git does, `force` brings back what was before. `bowline redo` takes either back. What an editor has open and not saved
is not seen: the undo is made on disk, and the editor shows it as a change of the file.

What a command did is found by looking at the disk after it. What you, or another program, saved while it ran is found with it
and taken back with it: --dry-run names such files, and --written-only leaves them alone. Files that were found changed during a
turn and that no command or tool call explains may be your own work, or that of an agent that writes to the disk by itself:
they are named and stay, unless you add --found. All of these are marked `observed` in `bowline changes`. What cannot be taken
back is named, and stays: files that were too large, or too many, to be kept before a command, and `pruned` changes.
Directories that the undo empties are removed if they are as young as what is undone; links and other empty directories of that
time are named and stay. What a command did is not known if Bowline was killed before it ended.

Exit status: 0 if all was taken back, 1 if nothing or not all of it could be, 4 if there is no such session.

Examples:
  bowline undo --dry-run          the patch that would be applied
  bowline undo                    the newest change, with its turn
  bowline undo --turn 3           the third turn of the session that worked here last
  bowline undo --file src/lib.rs  what agents did to one file
  bowline undo --found            the last turn, with what was found changed on disk and nothing explains
  bowline undo --written-only     the last turn, but for what was only found on disk
  bowline undo --change 12 --hunk 2
  bowline undo --conflicts show   both sides of what was changed since
  bowline undo --json | jq -r '.files[].path'
  bowline rewind                  the turns by their prompts, and going back to before one
  bowline redo                    what was undone last";

/// What to take back.
#[derive(Args, Debug)]
#[command(after_help = UNDO_EXAMPLES)]
pub(crate) struct UndoArguments {
    #[command(flatten)]
    taking: Taking,
    /// Takes back also files that were merely found changed, and that may be your own work
    #[arg(long, conflicts_with = "written_only")]
    found: bool,
}

const REDO_EXAMPLES: &str = "\
Without a choice, what was undone last comes back. An undo comes back as a whole: choose what you chose for it, or more.

Exit status: 0 if all came back, 1 if nothing or not all of it could, 4 if there is no such session.

Examples:
  bowline redo
  bowline redo --session last
  bowline redo --dry-run";

/// What to do again.
#[derive(Args, Debug)]
#[command(after_help = REDO_EXAMPLES)]
pub(crate) struct RedoArguments {
    #[command(flatten)]
    taking: Taking,
}

/// What is taken back, and how.
#[derive(Args, Debug)]
struct Taking {
    #[command(flatten)]
    selectors: Selectors,
    /// Only these places of one change, counted from 1 as `bowline changes --hunks` does; may be given several times
    #[arg(long, value_name = "N", value_delimiter = ',')]
    hunk: Vec<usize>,
    #[command(flatten)]
    options: UndoOptions,
}

/// What is done with what is taken back, and how it is told.
#[derive(Args, Debug, Clone, Copy)]
pub(crate) struct UndoOptions {
    /// Shows the patch that would be applied, and changes nothing
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Does the files that can be done where others are in conflict
    #[arg(long)]
    keep_going: bool,
    /// What to do where the same lines were changed since; without it, nothing is taken back then
    #[arg(long, value_enum, value_name = "WHAT", conflicts_with = "dry_run")]
    conflicts: Option<Conflicts>,
    /// Prints one JSON object
    #[arg(long)]
    json: bool,
}

/// What to do where the same lines were changed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Conflicts {
    /// Shows both sides, and changes nothing
    Show,
    /// Puts both sides into the file, between <<<<<<< and >>>>>>>
    Markers,
    /// Brings back what was there before, in place of what is there now; redo takes that back
    Force,
}

/// Where to look.
#[derive(Args, Debug)]
pub(crate) struct Where {
    /// The directory of the workspace, or one in it
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
}

/// Lists changes.
pub(crate) fn list(arguments: &ChangesArguments) -> Result<(), Ending> {
    let here = Here::find(arguments.selectors.cwd(), Sign::Journal)?;
    if !here.known {
        let text = nothing_yet(&here, "changes");
        if arguments.json {
            note(&text);
            return Ok(());
        }
        return print(&format!("{text}\n"));
    }
    let workspace = here.open(&[])?;
    let history = history(&workspace)?;
    let names = Names::new(&history, workspace.turn_titles());
    let meant = arguments.selectors.meant(&here, &history, &names, Purpose::Look, &[], &|_| true)?;
    if history.is_empty() && !arguments.json {
        return print(&format!("{}\n", nothing_yet(&here, "changes")));
    }
    let mut selection = meant.selection;
    if arguments.all && selection.who == Who::Agents {
        selection.who = Who::Anyone;
    }
    let kept = selection == Selection { who: Who::Agents, ..Selection::default() };
    let list = listing::List::of(&workspace, &history, &selection, arguments.all, kept)?;
    if arguments.json {
        return print(&list.json(&workspace, &here)?);
    }
    if list.is_empty()
        && let Some(hint) = elsewhere::hint(&here, "changes")
    {
        note(&hint);
    }
    let options = listing::ListOptions {
        hunks: arguments.hunks,
        full: arguments.full,
        look: Look::of_stdout(),
        now: now(),
    };
    page(&list.text(&workspace, &here, &names, options)?)
}

/// Shows changes.
pub(crate) fn diff(arguments: &DiffArguments) -> Result<(), Ending> {
    let here = Here::find(arguments.selectors.cwd(), Sign::Journal)?;
    if !here.known {
        note(&nothing_yet(&here, "diff"));
        return Ok(());
    }
    let workspace = here.open(&[])?;
    let history = history(&workspace)?;
    let names = Names::new(&history, workspace.turn_titles());
    let Meant { selection, words } =
        arguments.selectors.meant(&here, &history, &names, Purpose::Look, &arguments.hunk, &|_| true)?;
    let files = patching::files(&workspace, &selection)?;
    tell_pruned(&here, &history, &selection);
    if files.is_empty() {
        note(&match history.iter().any(|changed| changed.change.origin.session.is_some()) {
            true => format!(
                "there is nothing to show of {words}: it is undone, or left the files as they were (bowline changes --all)"
            ),
            false => nothing_yet(&here, "diff"),
        });
        return Ok(());
    }
    let look = Look::of_stdout();
    if arguments.stat {
        return page(&patching::stat(&files, &here));
    }
    if arguments.json {
        return print(&patching::objects(&files));
    }
    for file in files.iter().filter(|file| patching::is_binary(&file.patch)) {
        note(&format!("{} is not text: git cannot apply its part of the patch", safe(here.name(&file.path))));
    }
    let patch: String = files.into_iter().map(|file| file.patch).collect();
    if look.terminal { page(&patching::painted(&patch, look)) } else { print(&patch) }
}

/// Takes changes back.
pub(crate) fn undo(arguments: &UndoArguments) -> Result<(), Ending> {
    undoing::take_back(&arguments.taking, Direction::Undo, arguments.found)
}

/// Does changes again.
pub(crate) fn redo(arguments: &RedoArguments) -> Result<(), Ending> {
    undoing::take_back(&arguments.taking, Direction::Redo, true)
}

/// Names the changes that are meant and that no patch can show.
fn tell_pruned(here: &Here, history: &[Changed], selection: &Selection) {
    let is_meant = |changed: &&Changed| changed.in_effect && selection.matches(&changed.change);
    for changed in history.iter().filter(is_meant).filter(|changed| changed.change.is_pruned()) {
        let Change { id, path, .. } = &changed.change;
        note(&format!(
            "{}: change {id} is pruned, its text is no longer in the journal",
            safe(here.name(path))
        ));
    }
}

/// Returns everything that the journal knows, oldest first.
fn history(workspace: &Workspace) -> Result<Vec<Changed>, Ending> {
    workspace.changes(&Selection::default()).map_err(failed)
}

/// Says that there is nothing here, and where there is something.
fn nothing_yet(here: &Here, command: &str) -> String {
    let hint = elsewhere::hint(here, command).map(|hint| format!("\n{hint}")).unwrap_or_default();
    format!("no agent has changed anything in {} yet{hint}", safe(&here.root))
}

fn failed(error: impl Into<anyhow::Error>) -> Ending {
    Ending::Failed(error.into())
}
