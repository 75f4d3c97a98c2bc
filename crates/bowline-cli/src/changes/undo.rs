//! Undo and redo.

use std::collections::HashSet;
use std::io::IsTerminal as _;
use std::path::Path;

use bowline_history::changes::{ChangeId, ChangeSource, Reversal};
use bowline_history::undo::{ChangeSelection, ConflictResolution, ReversalDirection};
use bowline_policy::audit::{AuditAction, AuditEntry, AuditSubject, DecisionSource};
use bowline_workspace::audit::AuditLog;
use bowline_workspace::error::FilesError;
use bowline_workspace::roots::RootSpec;
use bowline_workspace::workspace::{ListedChange, ReversedFile, Workspace};

use super::leftovers::{self, Leftovers};
use super::report::{UndoContext, UndoExtent, UndoSummary, describe_error, is_conflict};
use super::selectors::{ResolvedSelection, SelectionPurpose};
use super::{
    ConflictHandling, ReversalArguments, UndoOptions, failed, no_changes_message, patch, read_history,
};
use crate::common::console::{escape_line, print, print_note, write_stderr};
use crate::common::names::SessionNames;
use crate::common::other_workspaces;
use crate::common::workspace_location::{WorkspaceLocation, WorkspaceMarker};
use crate::error::CliError;
use bowline_workspace::clock::now;

/// The maximum number of directories opened beside the workspace's own to revert changes in them.
const MAX_EXTRA_ROOTS: usize = 32;

fn selection_purpose(direction: ReversalDirection) -> SelectionPurpose {
    match direction {
        ReversalDirection::Undo => SelectionPurpose::Undo,
        ReversalDirection::Redo => SelectionPurpose::Redo,
    }
}

/// The minimum number of files for which progress is shown.
const PROGRESS_THRESHOLD: usize = 200;

/// Shows progress on one terminal line, which is cleared at the end.
fn progress_reporter(direction: ReversalDirection) -> impl Fn(usize, usize) {
    move |done, of| {
        if of < PROGRESS_THRESHOLD || !std::io::stderr().is_terminal() {
            return;
        }
        if done >= of {
            write_stderr("\r\x1b[K");
        } else if done.is_multiple_of(50) {
            write_stderr(&format!("\r{} {done} of {of} files", direction.participle()));
        }
    }
}

/// The options of an undo or redo.
#[derive(Debug, Clone, Copy)]
pub(super) struct UndoRequest {
    pub(super) direction: ReversalDirection,
    pub(super) dry_run: bool,
    pub(super) keep_going: bool,
    pub(super) conflicts: Option<ConflictHandling>,
    pub(super) json: bool,
}

/// Reverts the selection, or previews it. Changes that were only observed on disk are left alone unless `found` is set
/// or they are named by id.
pub(super) fn undo_or_redo(
    taking: &ReversalArguments,
    direction: ReversalDirection,
    found: bool,
) -> Result<(), CliError> {
    let here = WorkspaceLocation::find(taking.selectors.cwd(), WorkspaceMarker::Journal)?;
    if !here.has_records {
        let text = no_changes_message(&here, direction.verb());
        return Err(failed(anyhow::anyhow!("there is nothing to {}: {text}", direction.verb())));
    }
    let workspace = here.open(&[])?;
    let known = read_history(&workspace)?;
    // A change that cannot be checked now is reported when it is reverted.
    let keeps = |changed: &ListedChange| {
        let change = &changed.change;
        !change.is_pruned()
            && (change.source != ChangeSource::Observed || workspace.has_change_texts(change).unwrap_or(true))
    };
    let names = SessionNames::new(&known, workspace.turn_titles());
    let meant =
        taking.selectors.resolve(&here, &known, &names, selection_purpose(direction), &taking.hunk, &keeps);
    let mut meant = meant.map_err(|ending| add_other_workspaces(ending, &here, direction))?;
    meant.selection.only_explained = !found && meant.selection.change.is_none();
    if let Some(one) = &meant.selection.change
        && let Some(hunks) = &one.hunks
    {
        patch::check_hunks(&workspace, one.change, hunks)?;
    }
    let UndoOptions { dry_run, keep_going, conflicts, json } = taking.options;
    perform(&here, workspace, &meant, &known, UndoRequest { direction, dry_run, keep_going, conflicts, json })
}

/// Reverts the selection and reports the result.
pub(super) fn perform(
    here: &WorkspaceLocation,
    workspace: Workspace,
    meant: &ResolvedSelection,
    known: &[ListedChange],
    request: UndoRequest,
) -> Result<(), CliError> {
    let direction = request.direction;
    let workspace = open_affected_roots(here, workspace, known, &meant.selection)?;
    let context =
        UndoContext { location: here, workspace: &workspace, resolved: meant, history: known, request };
    if request.dry_run || request.conflicts == Some(ConflictHandling::Show) {
        let foresight = workspace
            .preview_undo(direction, &meant.selection)
            .map_err(|error| context.nothing_to_do_error(error))?;
        return match request.conflicts {
            Some(_) => context.print_conflicts(&foresight),
            None => context.print_preview(foresight),
        };
    }
    let resolution = match request.conflicts {
        Some(ConflictHandling::Markers) => ConflictResolution::Markers,
        Some(ConflictHandling::Force) => ConflictResolution::Force,
        Some(ConflictHandling::Show) | None => ConflictResolution::Refuse,
    };
    let done = match workspace.undo_or_redo(
        direction,
        &meant.selection,
        resolution,
        &progress_reporter(direction),
    ) {
        Ok(done) => UndoSummary { files: done.files, unrestorable: done.skipped, refused: Vec::new() },
        Err(error @ (FilesError::NothingToUndo(_) | FilesError::OnlyObservedChanges(_))) => {
            return Err(add_other_workspaces(context.nothing_to_do_error(error), here, direction));
        }
        Err(error) if !request.keep_going => return Err(explain_refusal(&context, error)),
        Err(_) => reverse_file_by_file(&workspace, direction, &meant.selection, resolution)?,
    };
    workspace.report_kept_texts(|text| print_note(&text.to_string()));
    record_in_audit_log(here, &workspace, &done.files);
    let leftovers = match direction {
        ReversalDirection::Undo => leftovers::clean_up(here, &workspace, &done.files).unwrap_or_default(),
        ReversalDirection::Redo => Leftovers::default(),
    };
    context.print_summary(&done, &leftovers)
}

/// Adds the names of workspaces that have changes, if this one has none.
fn add_other_workspaces(
    ending: CliError,
    here: &WorkspaceLocation,
    direction: ReversalDirection,
) -> CliError {
    match (ending, other_workspaces::other_workspaces_hint(here, direction.verb())) {
        (CliError::Failed(error), Some(hint)) => failed(anyhow::anyhow!("{error:#}\n{hint}")),
        (ending, _) => ending,
    }
}

/// Writes a text that only the journal has back to its file.
pub(super) fn restore_text(
    here: &WorkspaceLocation,
    workspace: Workspace,
    id: ChangeId,
) -> Result<(), CliError> {
    let change = Some(Reversal { change: id, hunks: None });
    let selection = ChangeSelection { change, ..ChangeSelection::default() };
    let known = read_history(&workspace)?;
    let workspace = open_affected_roots(here, workspace, &known, &selection)?;
    let taken = match workspace.undo(&selection) {
        Ok(taken) => taken,
        Err(FilesError::NothingToUndo(_)) => {
            return Err(failed(anyhow::anyhow!("text {id} was restored before; --print shows it")));
        }
        Err(error) => {
            let why = describe_error(&error);
            return Err(failed(anyhow::anyhow!("the file stays as it is: {why}; --print shows the text")));
        }
    };
    record_in_audit_log(here, &workspace, &taken.files);
    let names: Vec<String> =
        taken.files.iter().map(|file| escape_line(here.relative_name(&file.path))).collect();
    print(&format!("restored text {id} to {}; `bowline redo` takes that back\n", names.join(", ")))
}

/// Opens the workspace with the additional directories that the selected changes affect: a session may have several
/// roots.
fn open_affected_roots(
    here: &WorkspaceLocation,
    workspace: Workspace,
    history: &[ListedChange],
    selection: &ChangeSelection,
) -> Result<Workspace, CliError> {
    let root = Path::new(&here.root);
    let mut more = Vec::new();
    let mut known = HashSet::new();
    let meant = history.iter().map(|changed| &changed.change).filter(|change| selection.matches(change));
    for change in meant.filter(|change| !Path::new(&change.path).starts_with(root)) {
        let above = Path::new(&change.path).ancestors().skip(1);
        let directory = above.filter_map(Path::to_str).find(|above| Path::new(above).is_dir());
        if let Some(directory) = directory.filter(|directory| known.insert((*directory).to_owned()))
            && more.len() < MAX_EXTRA_ROOTS
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

/// Explains why nothing was done, naming every file that blocks the reversal, not only the first.
fn explain_refusal(context: &UndoContext<'_>, error: FilesError) -> CliError {
    let Ok(foresight) =
        context.workspace.preview_undo(context.request.direction, &context.resolved.selection)
    else {
        return failed(error);
    };
    let files = foresight.files.len();
    let refused = foresight.files.into_iter().filter_map(|file| Some((file.path, file.patch.err()?)));
    // A conflict that the options resolve does not block the reversal.
    let is_resolved = |error: &FilesError| context.request.conflicts.is_some() && is_conflict(error);
    let refused: Vec<_> = refused.filter(|(_, error)| !is_resolved(error)).collect();
    if context.request.json && !refused.is_empty() {
        let done = UndoSummary { refused, ..UndoSummary::default() };
        let told = context.print_summary(&done, &Leftovers::default());
        return told.err().unwrap_or_else(|| failed(error));
    }
    match context.report_refused(files, &refused, UndoExtent::Nothing) {
        Err(ending) => ending,
        // The reversal would succeed by now, so the original error is reported.
        Ok(()) => failed(error),
    }
}

/// Reverts the files that can be reverted.
fn reverse_file_by_file(
    workspace: &Workspace,
    direction: ReversalDirection,
    selection: &ChangeSelection,
    resolution: ConflictResolution,
) -> Result<UndoSummary, CliError> {
    let foresight = workspace.preview_undo(direction, selection).map_err(failed)?;
    let mut done = UndoSummary { unrestorable: foresight.skipped, ..UndoSummary::default() };
    for file in foresight.files {
        let of_file = ChangeSelection { path: Some(file.path.clone()), ..selection.clone() };
        match workspace.undo_or_redo(direction, &of_file, resolution, &progress_reporter(direction)) {
            Ok(taken) => done.files.extend(taken.files),
            // It was reverted along with its parent directory, which was a file before.
            Err(FilesError::NothingToUndo(_)) => {}
            Err(error) => done.refused.push((file.path, error)),
        }
    }
    Ok(done)
}

/// Records the reversal in the audit log. A failure is reported and does not fail the command, because the user made
/// the change.
fn record_in_audit_log(here: &WorkspaceLocation, workspace: &Workspace, files: &[ReversedFile]) {
    let append = || -> anyhow::Result<()> {
        let log = AuditLog::open(&here.audit_log_dir(), &here.anchor, Default::default())?;
        for file in files {
            let change = workspace.change(file.change)?;
            let mut entry = AuditEntry::new(now(), AuditAction::Undo);
            entry.decided_by = DecisionSource::User;
            entry.subject = AuditSubject::Path { requested: change.path, resolved: None };
            (entry.before, entry.after) =
                (change.before.map(|state| state.hash), change.after.map(|state| state.hash));
            log.append(&entry)?;
        }
        log.sync()?;
        Ok(())
    };
    if let Err(error) = append() {
        print_note(&format!("the audit log does not tell of it: {error:#}"));
    }
}
