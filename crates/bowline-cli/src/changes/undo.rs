//! Undo and redo.

use std::io::IsTerminal as _;

use bowline_history::changes::{ChangeId, ChangeSource, Reversal};
use bowline_history::undo::{ChangeSelection, ConflictResolution, ReversalDirection};
use bowline_workspace::error::FilesError;
use bowline_workspace::workspace::{ListedChange, Workspace};

use super::report::{UndoContext, UndoExtent, UndoSummary, describe_error, is_conflict};
use super::selectors::{ResolvedSelection, SelectionPurpose};
use super::{
    ConflictHandling, ReversalArguments, UndoOptions, failed, no_changes_message, patch, read_history,
};
use bowline_client::common::console::{escape_line, print, print_note, write_stderr};
use bowline_client::common::leftovers::{self, Leftovers};
use bowline_client::common::names::SessionNames;
use bowline_client::common::other_workspaces;
use bowline_client::common::reversal::{open_affected_roots, record_reversal};
use bowline_client::common::workspace_location::{WorkspaceLocation, WorkspaceMarker};
use bowline_client::error::CliError;

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
    move |done, total| {
        if total < PROGRESS_THRESHOLD || !std::io::stderr().is_terminal() {
            return;
        }
        if done >= total {
            write_stderr("\r\x1b[K");
        } else if done.is_multiple_of(50) {
            write_stderr(&format!("\r{} {done} of {total} files", direction.participle()));
        }
    }
}

/// An undo or redo, with its options.
#[derive(Debug, Clone, Copy)]
pub(super) struct UndoRequest {
    pub(super) direction: ReversalDirection,
    pub(super) options: UndoOptions,
}

/// Reverts the selection, or previews it. Changes that were only observed on disk are left alone unless
/// `include_observed` is set or they are named by id.
pub(super) fn undo_or_redo(
    arguments: &ReversalArguments,
    direction: ReversalDirection,
    include_observed: bool,
) -> Result<(), CliError> {
    let location = WorkspaceLocation::find(arguments.selectors.cwd(), WorkspaceMarker::Journal)?;
    if !location.has_records {
        let text = no_changes_message(&location, direction.verb());
        return Err(failed(anyhow::anyhow!("there is nothing to {}: {text}", direction.verb())));
    }
    let workspace = location.open(&[])?;
    let history = read_history(&workspace)?;
    // A change that cannot be checked now is reported when it is reverted.
    let can_undo = |changed: &ListedChange| {
        let change = &changed.change;
        !change.is_pruned()
            && (change.source != ChangeSource::Observed || workspace.has_change_texts(change).unwrap_or(true))
    };
    let names = SessionNames::new(&history, workspace.turn_titles());
    let resolved = arguments.selectors.resolve(
        &location,
        &history,
        &names,
        selection_purpose(direction),
        &arguments.hunk,
        &can_undo,
    );
    let mut resolved = resolved.map_err(|error| add_other_workspaces(error, &location, direction))?;
    resolved.selection.only_explained = !include_observed && resolved.selection.change.is_none();
    if let Some(reversal) = &resolved.selection.change
        && let Some(hunks) = &reversal.hunks
    {
        patch::check_hunks(&workspace, reversal.change, hunks)?;
    }
    let request = UndoRequest { direction, options: arguments.options };
    perform(&location, workspace, &resolved, &history, request)
}

/// Reverts the selection and reports the result.
pub(super) fn perform(
    location: &WorkspaceLocation,
    workspace: Workspace,
    resolved: &ResolvedSelection,
    history: &[ListedChange],
    request: UndoRequest,
) -> Result<(), CliError> {
    let UndoRequest { direction, options } = request;
    let workspace = open_affected_roots(location, workspace, history, &resolved.selection)?;
    let context = UndoContext { location, workspace: &workspace, resolved, history, request };
    if options.dry_run || options.conflicts == Some(ConflictHandling::Show) {
        let preview = workspace
            .preview_undo(direction, &resolved.selection)
            .map_err(|error| context.nothing_to_do_error(error))?;
        return match options.conflicts {
            Some(_) => context.print_conflicts(&preview),
            None => context.print_preview(preview),
        };
    }
    let resolution = match options.conflicts {
        Some(ConflictHandling::Markers) => ConflictResolution::Markers,
        Some(ConflictHandling::Force) => ConflictResolution::Force,
        Some(ConflictHandling::Show) | None => ConflictResolution::Refuse,
    };
    let summary = match workspace.undo_or_redo(
        direction,
        &resolved.selection,
        resolution,
        &progress_reporter(direction),
    ) {
        Ok(outcome) => {
            UndoSummary { files: outcome.files, unrestorable: outcome.skipped, refused: Vec::new() }
        }
        Err(error @ (FilesError::NothingToUndo(_) | FilesError::OnlyObservedChanges(_))) => {
            return Err(add_other_workspaces(context.nothing_to_do_error(error), location, direction));
        }
        Err(error) if !options.keep_going => return Err(explain_refusal(&context, error)),
        Err(_) => reverse_file_by_file(&workspace, direction, &resolved.selection, resolution)?,
    };
    workspace.report_kept_texts(|text| print_note(&text.to_string()));
    record_reversal(location, &workspace, &summary.files);
    let leftovers = match direction {
        ReversalDirection::Undo => {
            leftovers::clean_up(location, &workspace, &summary.files).unwrap_or_default()
        }
        ReversalDirection::Redo => Leftovers::default(),
    };
    context.print_summary(&summary, &leftovers)
}

/// Adds the names of workspaces that have changes, if this one has none.
fn add_other_workspaces(
    error: CliError,
    location: &WorkspaceLocation,
    direction: ReversalDirection,
) -> CliError {
    match (error, other_workspaces::other_workspaces_hint(location, direction.verb())) {
        (CliError::Failed(error), Some(hint)) => failed(anyhow::anyhow!("{error:#}\n{hint}")),
        (error, _) => error,
    }
}

/// Writes a text that only the journal has back to its file.
pub(super) fn restore_text(
    location: &WorkspaceLocation,
    workspace: Workspace,
    id: ChangeId,
) -> Result<(), CliError> {
    let change = Some(Reversal { change: id, hunks: None });
    let selection = ChangeSelection { change, ..ChangeSelection::default() };
    let history = read_history(&workspace)?;
    let workspace = open_affected_roots(location, workspace, &history, &selection)?;
    let outcome = match workspace.undo(&selection) {
        Ok(outcome) => outcome,
        Err(FilesError::NothingToUndo(_)) => {
            return Err(failed(anyhow::anyhow!("text {id} was restored before; --print shows it")));
        }
        Err(error) => {
            let reason = describe_error(&error);
            return Err(failed(anyhow::anyhow!("the file stays as it is: {reason}; --print shows the text")));
        }
    };
    record_reversal(location, &workspace, &outcome.files);
    let names: Vec<String> =
        outcome.files.iter().map(|file| escape_line(location.relative_name(&file.path))).collect();
    print(&format!("restored text {id} to {}; `bowline redo` takes that back\n", names.join(", ")))
}

/// Explains why nothing was done, naming every file that blocks the reversal, not only the first.
fn explain_refusal(context: &UndoContext<'_>, error: FilesError) -> CliError {
    let Ok(preview) = context.workspace.preview_undo(context.request.direction, &context.resolved.selection)
    else {
        return failed(error);
    };
    let files = preview.files.len();
    let refused = preview.files.into_iter().filter_map(|file| Some((file.path, file.patch.err()?)));
    // A conflict that the options resolve does not block the reversal.
    let is_resolved = |error: &FilesError| context.request.options.conflicts.is_some() && is_conflict(error);
    let refused: Vec<_> = refused.filter(|(_, error)| !is_resolved(error)).collect();
    if context.request.options.json && !refused.is_empty() {
        let summary = UndoSummary { refused, ..UndoSummary::default() };
        let result = context.print_summary(&summary, &Leftovers::default());
        return result.err().unwrap_or_else(|| failed(error));
    }
    match context.report_refused(files, &refused, UndoExtent::Nothing) {
        Err(refusal) => refusal,
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
    let preview = workspace.preview_undo(direction, selection).map_err(failed)?;
    let mut summary = UndoSummary { unrestorable: preview.skipped, ..UndoSummary::default() };
    for file in preview.files {
        let file_selection = ChangeSelection { path: Some(file.path.clone()), ..selection.clone() };
        match workspace.undo_or_redo(direction, &file_selection, resolution, &progress_reporter(direction)) {
            Ok(outcome) => summary.files.extend(outcome.files),
            // It was reverted along with its parent directory, which was a file before.
            Err(FilesError::NothingToUndo(_)) => {}
            Err(error) => summary.refused.push((file.path, error)),
        }
    }
    Ok(summary)
}
