//! Taking back, and doing again.

use std::collections::HashSet;
use std::io::IsTerminal as _;
use std::path::Path;

use bowline_state::audit::{Action, By, Entry, Subject};
use bowline_state::changes::{ChangeId, Reversal, Source};
use bowline_state::undo::{Direction, Resolution, Selection};
use bowline_workspace::audit::AuditLog;
use bowline_workspace::error::FilesError;
use bowline_workspace::roots::RootSpec;
use bowline_workspace::workspace::{Changed, Reversed, Workspace};

use super::leftovers::{self, Leftovers};
use super::report::{Done, Partly, UndoContext, is_conflict, why};
use super::selecting::{Meant, Purpose};
use super::{Conflicts, Taking, UndoOptions, failed, history, nothing_yet, patching};
use crate::ending::Ending;
use crate::records::elsewhere;
use crate::records::here::{Here, Sign};
use crate::records::names::Names;
use crate::records::showing::{note, print, safe, write_stderr};
use bowline_workspace::clock::now;

/// So many directories beside the workspace's own are opened, to take back what was changed there.
const MAX_MORE: usize = 32;

fn purpose(direction: Direction) -> Purpose {
    match direction {
        Direction::Undo => Purpose::Undo,
        Direction::Redo => Purpose::Redo,
    }
}

/// From so many files on a person is told how far it is.
const MANY: usize = 200;

/// Tells a person at a terminal how many of many files are done, on one line that goes when all are.
fn progress(direction: Direction) -> impl Fn(usize, usize) {
    move |done, of| {
        if of < MANY || !std::io::stderr().is_terminal() {
            return;
        }
        if done >= of {
            write_stderr("\r\x1b[K");
        } else if done.is_multiple_of(50) {
            write_stderr(&format!("\r{} {done} of {of} files", direction.participle()));
        }
    }
}

/// How something is taken back.
#[derive(Debug, Clone, Copy)]
pub(super) struct UndoRequest {
    pub(super) direction: Direction,
    pub(super) dry_run: bool,
    pub(super) keep_going: bool,
    pub(super) conflicts: Option<Conflicts>,
    pub(super) json: bool,
}

/// Takes back what is meant, or shows what that would do. What was merely found on disk is left alone unless `found`, or it is
/// named by its number.
pub(super) fn take_back(taking: &Taking, direction: Direction, found: bool) -> Result<(), Ending> {
    let here = Here::find(taking.selectors.cwd(), Sign::Journal)?;
    if !here.known {
        let text = nothing_yet(&here, direction.verb());
        return Err(failed(anyhow::anyhow!("there is nothing to {}: {text}", direction.verb())));
    }
    let workspace = here.open(&[])?;
    let known = history(&workspace)?;
    // What cannot be looked at now is told of when it is taken back.
    let keeps = |changed: &Changed| {
        let change = &changed.change;
        !change.is_pruned() && (change.source != Source::Observed || workspace.keeps(change).unwrap_or(true))
    };
    let names = Names::new(&known, workspace.turn_titles());
    let meant = taking.selectors.meant(&here, &known, &names, purpose(direction), &taking.hunk, &keeps);
    let mut meant = meant.map_err(|ending| with_hint(ending, &here, direction))?;
    meant.selection.explained = !found && meant.selection.change.is_none();
    if let Some(one) = &meant.selection.change
        && let Some(hunks) = &one.hunks
    {
        patching::check(&workspace, one.change, hunks)?;
    }
    let UndoOptions { dry_run, keep_going, conflicts, json } = taking.options;
    perform(&here, workspace, &meant, &known, UndoRequest { direction, dry_run, keep_going, conflicts, json })
}

/// Takes back what is selected, and tells what became of it.
pub(super) fn perform(
    here: &Here,
    workspace: Workspace,
    meant: &Meant,
    known: &[Changed],
    request: UndoRequest,
) -> Result<(), Ending> {
    let direction = request.direction;
    let workspace = reaching(here, workspace, known, &meant.selection)?;
    let context = UndoContext { here, workspace: &workspace, meant, known, request };
    if request.dry_run || request.conflicts == Some(Conflicts::Show) {
        let foresight =
            workspace.foresee(direction, &meant.selection).map_err(|error| context.not_begun(error))?;
        return match request.conflicts {
            Some(_) => context.show_conflicts(&foresight),
            None => context.tell_foresight(foresight),
        };
    }
    let resolution = match request.conflicts {
        Some(Conflicts::Markers) => Resolution::Markers,
        Some(Conflicts::Force) => Resolution::Force,
        Some(Conflicts::Show) | None => Resolution::Refuse,
    };
    let done = match workspace.take_back(direction, &meant.selection, resolution, &progress(direction)) {
        Ok(done) => Done { files: done.files, left: done.left, refused: Vec::new() },
        Err(error @ (FilesError::NothingTo(_) | FilesError::OnlyFound(_))) => {
            return Err(with_hint(context.not_begun(error), here, direction));
        }
        Err(error) if !request.keep_going => return Err(refused(&context, error)),
        Err(_) => one_by_one(&workspace, direction, &meant.selection, resolution)?,
    };
    workspace.tell_kept_texts(|text| note(&text.to_string()));
    record(here, &workspace, &done.files);
    let leftovers = match direction {
        Direction::Undo => leftovers::clear(here, &workspace, &done.files).unwrap_or_default(),
        Direction::Redo => Leftovers::default(),
    };
    context.tell(&done, &leftovers)
}

/// Adds where there are changes, if there are none here.
fn with_hint(ending: Ending, here: &Here, direction: Direction) -> Ending {
    match (ending, elsewhere::hint(here, direction.verb())) {
        (Ending::Failed(error), Some(hint)) => failed(anyhow::anyhow!("{error:#}\n{hint}")),
        (ending, _) => ending,
    }
}

/// Puts a text that only the journal has into its file.
pub(super) fn restore(here: &Here, workspace: Workspace, id: ChangeId) -> Result<(), Ending> {
    let change = Some(Reversal { change: id, hunks: None });
    let selection = Selection { change, ..Selection::default() };
    let known = history(&workspace)?;
    let workspace = reaching(here, workspace, &known, &selection)?;
    let taken = match workspace.undo(&selection) {
        Ok(taken) => taken,
        Err(FilesError::NothingTo(_)) => {
            return Err(failed(anyhow::anyhow!("text {id} was restored before; --print shows it")));
        }
        Err(error) => {
            let why = why(&error);
            return Err(failed(anyhow::anyhow!("the file stays as it is: {why}; --print shows the text")));
        }
    };
    record(here, &workspace, &taken.files);
    let names: Vec<String> = taken.files.iter().map(|file| safe(here.name(&file.path))).collect();
    print(&format!("restored text {id} to {}; `bowline redo` takes that back\n", names.join(", ")))
}

/// Returns the workspace with the directories beside its own in which something was changed that is meant: a session may
/// have had more than one.
fn reaching(
    here: &Here,
    workspace: Workspace,
    history: &[Changed],
    selection: &Selection,
) -> Result<Workspace, Ending> {
    let root = Path::new(&here.root);
    let mut more = Vec::new();
    let mut known = HashSet::new();
    let meant = history.iter().map(|changed| &changed.change).filter(|change| selection.matches(change));
    for change in meant.filter(|change| !Path::new(&change.path).starts_with(root)) {
        let above = Path::new(&change.path).ancestors().skip(1);
        let directory = above.filter_map(Path::to_str).find(|above| Path::new(above).is_dir());
        if let Some(directory) = directory.filter(|directory| known.insert((*directory).to_owned()))
            && more.len() < MAX_MORE
        {
            more.push(RootSpec::writable(directory));
        }
    }
    if more.is_empty() {
        return Ok(workspace);
    }
    drop(workspace);
    here.open(&more)
}

/// Says why nothing was done: of every file that is in the way, not only of the first.
fn refused(context: &UndoContext<'_>, error: FilesError) -> Ending {
    let Ok(foresight) = context.workspace.foresee(context.request.direction, &context.meant.selection) else {
        return failed(error);
    };
    let files = foresight.files.len();
    let refused = foresight.files.into_iter().filter_map(|file| Some((file.path, file.patch.err()?)));
    // What would have been resolved is not in the way.
    let is_resolved = |error: &FilesError| context.request.conflicts.is_some() && is_conflict(error);
    let refused: Vec<_> = refused.filter(|(_, error)| !is_resolved(error)).collect();
    if context.request.json && !refused.is_empty() {
        let done = Done { refused, ..Done::default() };
        let told = context.tell(&done, &Leftovers::default());
        return told.err().unwrap_or_else(|| failed(error));
    }
    match context.tell_refused(files, &refused, Partly::Nothing) {
        Err(ending) => ending,
        // It would work by now: what was in the way is what is told.
        Ok(()) => failed(error),
    }
}

/// Does the files that can be done.
fn one_by_one(
    workspace: &Workspace,
    direction: Direction,
    selection: &Selection,
    resolution: Resolution,
) -> Result<Done, Ending> {
    let foresight = workspace.foresee(direction, selection).map_err(failed)?;
    let mut done = Done { left: foresight.left, ..Done::default() };
    for file in foresight.files {
        let of_file = Selection { path: Some(file.path.clone()), ..selection.clone() };
        match workspace.take_back(direction, &of_file, resolution, &progress(direction)) {
            Ok(taken) => done.files.extend(taken.files),
            // It was done with the directory that it lies in, which was a file before.
            Err(FilesError::NothingTo(_)) => {}
            Err(error) => done.refused.push((file.path, error)),
        }
    }
    Ok(done)
}

/// Puts what was done into the audit log. That this fails is said, and changes nothing: it was the person who did it.
fn record(here: &Here, workspace: &Workspace, files: &[Reversed]) {
    let append = || -> anyhow::Result<()> {
        let log = AuditLog::open(&here.log(), &here.anchor, Default::default())?;
        for file in files {
            let change = workspace.change(file.change)?;
            let mut entry = Entry::new(now(), Action::Undo);
            entry.by = By::User;
            entry.subject = Subject::Path { asked: change.path, resolved: None };
            (entry.before, entry.after) =
                (change.before.map(|state| state.hash), change.after.map(|state| state.hash));
            log.append(&entry)?;
        }
        log.sync()?;
        Ok(())
    };
    if let Err(error) = append() {
        note(&format!("the audit log does not tell of it: {error:#}"));
    }
}
