//! `bowline changes`, `diff`, `undo` and `redo`: lists what agents changed here and reverts it.

mod list;
pub(crate) mod patch;
mod report;
mod restore;
mod rewind;
mod selectors;
mod undo;

use std::path::PathBuf;

use bowline_history::changes::Change;
use bowline_history::undo::{ChangeOwner, ChangeSelection, ReversalDirection};
use bowline_workspace::workspace::{ListedChange, Workspace};
use clap::{Args, ValueEnum};

use bowline_client::common::console::{OutputStyle, escape_line, print, print_note};
use bowline_client::common::names::SessionNames;
use bowline_client::common::other_workspaces;
use bowline_client::common::pager::print_paged;
use bowline_client::common::workspace_location::{WorkspaceLocation, WorkspaceMarker};
use bowline_client::error::{CliError, failed};
use bowline_storage::clock::now;
pub(crate) use restore::{RestoreArguments, restore};
pub(crate) use rewind::{RewindArguments, rewind};
use selectors::{ResolvedSelection, SelectionPurpose, Selectors};

const CHANGES_EXAMPLES: &str = "\
Each line shows the number of the change, what happened to the file, its name, and the lines added \
and removed. It can end with one of these notes:
  observed               found on disk after a turn or a command; you, another program or another
                         agent may have made it meanwhile
  claimed                reported by an agent
  reverted by hand       the file has its earlier content again
  undone                 listed only with --all, as are changes made by you or other programs
  pruned                 the text was dropped to limit the journal's size: the change cannot be
                         shown or undone
  kept, not in the file  text saved while Bowline replaced the file, which could not be merged:
                         `bowline restore` prints or restores it

--written-only leaves out observed and claimed changes.

Exit status: 0 success, even if there are no changes; 2 wrong usage; 4 no such session.

Examples:
  bowline changes                      list changes by agents that are not undone
  bowline changes --turn               list the changes of the last turn
  bowline changes --hunks --file a.rs  list the hunks in a file, numbered for undo --hunk
  bowline changes --all --json         list everything, one JSON object per line";

/// What to list.
#[derive(Args, Debug)]
#[command(after_help = CHANGES_EXAMPLES)]
pub(crate) struct ChangesArguments {
    #[command(flatten)]
    selectors: Selectors,
    /// Also list undone changes, undos, and changes made by others than agents
    #[arg(long)]
    all: bool,
    /// Show each hunk with its number, for undo --hunk
    #[arg(long)]
    hunks: bool,
    /// List every change of a turn (default: at most 20)
    #[arg(long)]
    full: bool,
    /// Print one JSON object per line
    #[arg(long, conflicts_with = "hunks")]
    json: bool,
}

const DIFF_EXAMPLES: &str = "\
The patch shows the changes to each file that are still in effect. `git apply -R` removes them from \
the files, as undo does; `git apply` adds them to a tree that does not have them. File names are \
relative to the workspace. Binary files are only reported as different. If no change is in effect, \
nothing is printed to stdout.

Exit status: 0 success, even if there is nothing to show; 2 wrong usage; 4 no such session.

Examples:
  bowline diff                         show all changes by agents that are not undone
  bowline diff --turn | git apply -R   revert the last turn without recording it in the journal
  bowline diff --session last --stat   show how much the last session changed
  bowline diff --change 12 --hunk 2    show one hunk of one change";

/// What to show.
#[derive(Args, Debug)]
#[command(after_help = DIFF_EXAMPLES)]
pub(crate) struct DiffArguments {
    #[command(flatten)]
    selectors: Selectors,
    /// Show only these hunks of one change, by number
    ///
    /// Hunks are numbered from 1, as `bowline changes --hunks` shows them.
    #[arg(long, value_name = "N", value_delimiter = ',')]
    hunk: Vec<usize>,
    /// Show the number of changed lines per file instead of the patch
    #[arg(long)]
    stat: bool,
    /// Print one JSON object per line, one for each file
    #[arg(long, conflicts_with = "stat")]
    json: bool,
}

const UNDO_EXAMPLES: &str = "\
Without a selection, undo reverts the newest change that is not undone, with the rest of its turn, \
or of its tool call if there are no turns, as with MCP clients. It does not ask for confirmation.

Your own later edits stay: if a file was edited since, the undo is merged with the edits. If you \
changed the same lines, the file is in conflict and nothing at all is undone, unless --keep-going \
processes the other files or --conflicts says what to do: `show` prints both sides, `markers` writes \
them to the file as git does, and `force` restores the earlier lines. `bowline redo` reverts either. \
Unsaved text in an editor is not seen: undo changes the file on disk, and the editor shows that as \
an external change.

Changes made by a command are found by scanning the disk after it. Files that you or another program \
saved while it ran are found and undone too: --dry-run names them, and --written-only leaves them \
alone. Files that changed during a turn without a command or tool call to explain it may be your own \
work, or that of an agent that writes directly to disk. They are named and stay, unless you add \
--found. `bowline changes` marks all of these as `observed`.

Changes that cannot be undone are named and stay: files that were too large or too many to copy \
before a command, and `pruned` changes. Directories that the undo empties are removed if they are as \
recent as the undone changes; links and other empty directories of that time are named and stay. If \
Bowline was killed before a command ended, the changes by that command are unknown.

Exit status: 0 everything was undone, 1 nothing or only a part was undone, 4 no such session.

Examples:
  bowline undo --dry-run          show the patch that would be applied
  bowline undo                    undo the newest change, with its turn
  bowline undo --turn 3           undo the third turn of the last session here
  bowline undo --file src/lib.rs  undo the changes by agents to one file
  bowline undo --found            undo the last turn, with unexplained changes found on disk
  bowline undo --written-only     undo the last turn, without changes found on disk
  bowline undo --change 12 --hunk 2
  bowline undo --conflicts show   show both sides of each conflict
  bowline undo --json | jq -r '.files[].path'
  bowline rewind                  list turns by their prompts, to go back to before one
  bowline redo                    redo the last undo";

/// What to take back.
#[derive(Args, Debug)]
#[command(after_help = UNDO_EXAMPLES)]
pub(crate) struct UndoArguments {
    #[command(flatten)]
    reversal: ReversalArguments,
    /// Also undo changes merely found on disk, which may be your own work
    #[arg(long, conflicts_with = "written_only")]
    found: bool,
}

const REDO_EXAMPLES: &str = "\
Without a selection, the last undo is redone. An undo can only be redone as a whole: select the same \
changes as for the undo, or more.

Exit status: 0 everything was redone, 1 nothing or only a part was redone, 4 no such session.

Examples:
  bowline redo
  bowline redo --session last
  bowline redo --dry-run";

/// What to do again.
#[derive(Args, Debug)]
#[command(after_help = REDO_EXAMPLES)]
pub(crate) struct RedoArguments {
    #[command(flatten)]
    reversal: ReversalArguments,
}

/// What is taken back, and how.
#[derive(Args, Debug)]
struct ReversalArguments {
    #[command(flatten)]
    selectors: Selectors,
    /// Select only these hunks of one change, by number
    ///
    /// Hunks are numbered from 1, as `bowline changes --hunks` shows them. Can be repeated.
    #[arg(long, value_name = "N", value_delimiter = ',')]
    hunk: Vec<usize>,
    #[command(flatten)]
    options: UndoOptions,
}

/// What is done with what is taken back, and how it is told.
#[derive(Args, Debug, Clone, Copy)]
pub(crate) struct UndoOptions {
    /// Show the patch that would be applied, without applying it
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Process the other files if some are in conflict
    #[arg(long)]
    keep_going: bool,
    /// How to handle conflicts: lines that were changed again later
    ///
    /// Without this option, a conflict stops the command before it changes anything.
    #[arg(long, value_enum, value_name = "WHAT", conflicts_with = "dry_run")]
    conflicts: Option<ConflictHandling>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What to do where the same lines were changed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ConflictHandling {
    /// Show both sides and change nothing
    Show,
    /// Write both sides to the file, between <<<<<<< and >>>>>>>
    Markers,
    /// Replace the current lines with the earlier ones; redo reverts this
    Force,
}

/// Where to look.
#[derive(Args, Debug)]
pub(crate) struct WorkspaceArguments {
    /// The workspace directory, or one inside it (default: the current directory)
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
}

/// Lists changes.
pub(crate) fn list(arguments: &ChangesArguments) -> Result<(), CliError> {
    let location = WorkspaceLocation::find(arguments.selectors.cwd(), WorkspaceMarker::Journal)?;
    if !location.has_records {
        let text = no_changes_message(&location, "changes");
        if arguments.json {
            print_note(&text);
            return Ok(());
        }
        return print(&format!("{text}\n"));
    }
    let workspace = location.open(&[])?;
    let history = read_history(&workspace)?;
    let names = SessionNames::new(&history, workspace.turn_titles());
    let resolved =
        arguments.selectors.resolve(&location, &history, &names, SelectionPurpose::View, &[], &|_| true)?;
    if history.is_empty() && !arguments.json {
        return print(&format!("{}\n", no_changes_message(&location, "changes")));
    }
    let mut selection = resolved.selection;
    if arguments.all && selection.owner == ChangeOwner::Agents {
        selection.owner = ChangeOwner::Anyone;
    }
    let includes_kept_texts =
        selection == ChangeSelection { owner: ChangeOwner::Agents, ..ChangeSelection::default() };
    let list = list::ChangeList::load(&workspace, &history, &selection, arguments.all, includes_kept_texts)?;
    if arguments.json {
        return print(&list.to_json_lines(&workspace, &location)?);
    }
    if list.is_empty()
        && let Some(hint) = other_workspaces::other_workspaces_hint(&location, "changes")
    {
        print_note(&hint);
    }
    let options = list::ChangeListOptions {
        show_hunks: arguments.hunks,
        is_full: arguments.full,
        style: OutputStyle::for_stdout(),
        now: now(),
    };
    print_paged(&list.to_text(&workspace, &location, &names, options)?)
}

/// Shows changes.
pub(crate) fn diff(arguments: &DiffArguments) -> Result<(), CliError> {
    let location = WorkspaceLocation::find(arguments.selectors.cwd(), WorkspaceMarker::Journal)?;
    if !location.has_records {
        print_note(&no_changes_message(&location, "diff"));
        return Ok(());
    }
    let workspace = location.open(&[])?;
    let history = read_history(&workspace)?;
    let names = SessionNames::new(&history, workspace.turn_titles());
    let ResolvedSelection { selection, description } = arguments.selectors.resolve(
        &location,
        &history,
        &names,
        SelectionPurpose::View,
        &arguments.hunk,
        &|_| true,
    )?;
    let files = patch::file_patches(&workspace, &selection)?;
    report_pruned(&location, &history, &selection);
    if files.is_empty() {
        print_note(&match history.iter().any(|changed| changed.change.origin.session.is_some()) {
            true => format!(
                "there is nothing to show of {description}: it is undone, or left the files as they were (bowline changes --all)"
            ),
            false => no_changes_message(&location, "diff"),
        });
        return Ok(());
    }
    let style = OutputStyle::for_stdout();
    if arguments.stat {
        return print_paged(&patch::format_stat(&files, &location));
    }
    if arguments.json {
        return print(&patch::to_json_lines(&files));
    }
    for file in files.iter().filter(|file| patch::is_binary(&file.patch)) {
        print_note(&format!(
            "{} is not text: git cannot apply its part of the patch",
            escape_line(location.relative_name(&file.path))
        ));
    }
    let patch: String = files.into_iter().map(|file| file.patch).collect();
    if style.is_terminal { print_paged(&patch::paint_patch(&patch, style)) } else { print(&patch) }
}

/// Undoes changes.
pub(crate) fn undo(arguments: &UndoArguments) -> Result<(), CliError> {
    undo::undo_or_redo(&arguments.reversal, ReversalDirection::Undo, arguments.found)
}

/// Redoes changes.
pub(crate) fn redo(arguments: &RedoArguments) -> Result<(), CliError> {
    undo::undo_or_redo(&arguments.reversal, ReversalDirection::Redo, true)
}

/// Names the selected changes that no patch can show.
fn report_pruned(location: &WorkspaceLocation, history: &[ListedChange], selection: &ChangeSelection) {
    let is_selected = |changed: &&ListedChange| changed.is_in_effect && selection.matches(&changed.change);
    for changed in history.iter().filter(is_selected).filter(|changed| changed.change.is_pruned()) {
        let Change { id, path, .. } = &changed.change;
        print_note(&format!(
            "{}: change {id} is pruned, its text is no longer in the journal",
            escape_line(location.relative_name(path))
        ));
    }
}

/// Returns every change in the journal, oldest first.
fn read_history(workspace: &Workspace) -> Result<Vec<ListedChange>, CliError> {
    workspace.changes(&ChangeSelection::default()).map_err(failed)
}

/// Returns a message that there are no changes here, and where there are some.
fn no_changes_message(location: &WorkspaceLocation, command: &str) -> String {
    let hint = other_workspaces::other_workspaces_hint(location, command)
        .map(|hint| format!("\n{hint}"))
        .unwrap_or_default();
    format!("no agent has changed anything in {} yet{hint}", escape_line(&location.root))
}
