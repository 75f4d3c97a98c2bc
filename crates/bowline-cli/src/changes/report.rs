//! Reports of what an undo or a redo did, or would do, for people and programs.

use std::collections::{BTreeSet, HashSet};

use bowline_history::changes::{Change, ChangeId, ChangeSource, FileState};
use bowline_history::undo::{ChangeSelection, ReversalDirection, ReversalError, ReversalErrorReason};
use bowline_text::merge::ConflictHunk;
use bowline_workspace::error::FilesError;
use bowline_workspace::workspace::{ListedChange, ReversedFile, UndoPreview, Workspace};
use serde_json::{Value, json};

use super::selectors::ResolvedSelection;
use super::undo::UndoRequest;
use super::{ConflictHandling, failed, patch};
use bowline_client::common::console::{
    OutputStyle, TextStyle, escape_line, escape_lines, pluralize, print, print_note,
};
use bowline_client::common::leftovers::Leftovers;
use bowline_client::common::pager::print_paged;
use bowline_client::common::workspace_location::WorkspaceLocation;
use bowline_client::error::CliError;

/// The maximum number of reverted files listed, and of files that could not be reverted.
const MAX_LISTED: usize = 20;
/// The note on changes that were only observed on disk.
const MAYBE_YOURS_NOTE: &str =
    "what was found on disk may be your own work, saved meanwhile, or that of another program";
/// The note on observed changes that are left alone.
const NOT_UNDONE_NOTE: &str = "what was merely found changed may be your own work, and stays";

/// The result of an undo or redo.
#[derive(Default)]
pub(super) struct UndoSummary {
    pub(super) files: Vec<ReversedFile>,
    pub(super) unrestorable: Vec<ChangeId>,
    pub(super) refused: Vec<(String, FilesError)>,
}

/// How much of the selection was reverted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UndoExtent {
    Nothing,
    Partial,
}

/// What is reverted, in which workspace, and with which options.
pub(super) struct UndoContext<'a> {
    pub(super) location: &'a WorkspaceLocation,
    pub(super) workspace: &'a Workspace,
    pub(super) resolved: &'a ResolvedSelection,
    pub(super) history: &'a [ListedChange],
    pub(super) request: UndoRequest,
}

impl UndoContext<'_> {
    fn display_name(&self, path: &str) -> String {
        escape_line(self.location.relative_name(path))
    }

    /// Returns an error that explains why nothing can be reverted.
    pub(super) fn nothing_to_do_error(&self, error: FilesError) -> CliError {
        let (direction, description) = (self.request.direction, &self.resolved.description);
        failed(match error {
            FilesError::NothingToUndo(_)
                if direction == ReversalDirection::Redo && self.resolved.selection.limit.is_some() =>
            {
                anyhow::anyhow!("there is nothing to redo: nothing is undone")
            }
            FilesError::NothingToUndo(_) => {
                anyhow::anyhow!("there is nothing to {} of {description}", direction.verb())
            }
            FilesError::OnlyObservedChanges(_) => anyhow::anyhow!(
                "there is nothing to undo of {description} but what was merely found changed and may be your own work: {}; \
                 --found takes it back",
                join_names(&self.skipped_observed_files())
            ),
            other => other.into(),
        })
    }

    /// Returns the files that an undo leaves alone because their changes were only observed.
    fn skipped_observed_files(&self) -> BTreeSet<&str> {
        let selection = &self.resolved.selection;
        let unrestricted = ChangeSelection { only_explained: false, ..selection.clone() };
        let is_skipped = |changed: &&ListedChange| {
            let change = &changed.change;
            let is_edit =
                changed.is_in_effect && change.reverses.is_empty() && change.origin.session.is_some();
            is_edit && selection.only_explained && change.is_unattributed() && unrestricted.matches(change)
        };
        if self.request.direction == ReversalDirection::Redo {
            return BTreeSet::new();
        }
        self.history
            .iter()
            .filter(is_skipped)
            .map(|changed| self.location.relative_name(&changed.change.path))
            .collect()
    }

    /// Prints what would be done.
    pub(super) fn print_preview(&self, preview: UndoPreview) -> Result<(), CliError> {
        let Self { location, workspace, resolved, request: UndoRequest { direction, options }, .. } = *self;
        if options.json {
            return self.print_preview_json(&preview);
        }
        let style = OutputStyle::for_stdout();
        let (mut patches, mut refused) = (String::new(), Vec::new());
        let files = preview.files.len();
        print_note(&format!(
            "{} would be {}, in {}",
            resolved.description,
            direction.participle(),
            pluralize(files, "file", "files")
        ));
        let is_affected = |change: &Change| preview.files.iter().any(|file| file.path == change.path);
        let observed =
            self.history.iter().filter(|changed| changed.is_in_effect).map(|changed| &changed.change);
        let observed = observed
            .filter(|change| change.source == ChangeSource::Observed && resolved.selection.matches(change));
        let observed: BTreeSet<&str> = observed
            .filter(|change| is_affected(change))
            .map(|change| location.relative_name(&change.path))
            .collect();
        if direction == ReversalDirection::Undo && !observed.is_empty() {
            print_note(&format!(
                "{MAYBE_YOURS_NOTE}: {}; --written-only leaves that alone",
                join_names(&observed)
            ));
        }
        let skipped = self.skipped_observed_files();
        if !skipped.is_empty() {
            print_note(&format!("{NOT_UNDONE_NOTE}: {}; --found takes that back, too", join_names(&skipped)));
        }
        for file in preview.files {
            match file.patch {
                Ok(patch) if patch.is_empty() => {
                    print_note(&format!("{} is so already", self.display_name(&file.path)))
                }
                Ok(patch) if style.is_terminal => patches.push_str(&patch::paint_patch(&patch, style)),
                Ok(patch) => patches.push_str(&patch),
                Err(error) => refused.push((file.path, error)),
            }
        }
        print_paged(&patches)?;
        let unrestorable = report_unrestorable(location, workspace, direction, &preview.skipped)?;
        self.report_refused(files, &refused, UndoExtent::Nothing)?;
        unrestorable.map_or(Ok(()), Err)
    }

    fn print_preview_json(&self, preview: &UndoPreview) -> Result<(), CliError> {
        let files = preview.files.iter().map(|file| match &file.patch {
            Ok(patch) => json!({"path": file.path, "changes": change_ids(&file.changes), "patch": patch}),
            Err(error) => {
                let mut refused = refusal_to_json(&file.path, error);
                refused["changes"] = json!(change_ids(&file.changes));
                refused
            }
        });
        let files: Vec<Value> = files.collect();
        let output = json!({
            "command": self.request.direction.verb(),
            "workspace": self.location.root,
            "what": self.resolved.description,
            "dry_run": true,
            "files": files,
            "left": self.unrestorable_to_json(&preview.skipped)?,
            "kept": self.skipped_observed_files(),
        });
        print(&format!("{output}\n"))?;
        let refused = preview.files.iter().filter(|file| file.patch.is_err()).count();
        match (refused, preview.skipped.len()) {
            (0, 0) => Ok(()),
            _ => Err(failed(anyhow::anyhow!("not all could be {}", self.request.direction.participle()))),
        }
    }

    /// Prints both sides of each conflicting hunk.
    pub(super) fn print_conflicts(&self, preview: &UndoPreview) -> Result<(), CliError> {
        let style = OutputStyle::for_stdout();
        let mut text = String::new();
        let refused: Vec<(&str, &FilesError)> =
            preview.files.iter().filter_map(|file| Some((&*file.path, file.patch.as_ref().err()?))).collect();
        if self.request.options.json {
            let conflicts: Vec<Value> =
                refused.iter().map(|(path, error)| refusal_to_json(path, error)).collect();
            let output = json!({"workspace": self.location.root, "what": self.resolved.description, "conflicts": conflicts});
            return print(&format!("{output}\n"));
        }
        for (path, error) in &refused {
            let heading = format!("{}: {}", self.display_name(path), describe_error(error));
            text.push_str(&format!("{}\n", style.paint(TextStyle::Heading, &heading)));
            for hunk in conflict_hunks(error) {
                text.push_str(&format!(
                    "  {}\n",
                    style.paint(TextStyle::Highlight, &format!("line {}", hunk.line))
                ));
                for (side, sign, text_style, label) in [
                    (&hunk.ours, '-', TextStyle::Bad, "now"),
                    (&hunk.theirs, '+', TextStyle::Good, "before the change"),
                ] {
                    text.push_str(&format!("    {label}:\n"));
                    for line in escape_lines(side).lines() {
                        text.push_str(&format!(
                            "    {}\n",
                            style.paint(text_style, &format!("{sign} {line}"))
                        ));
                    }
                }
            }
        }
        if refused.is_empty() {
            text = format!(
                "nothing is in conflict: {} can be {}\n",
                self.resolved.description,
                self.request.direction.participle()
            );
        } else {
            text.push_str(
                "\nrun the same command again with one of these instead:\n\
                 \x20 --conflicts markers   puts both sides into the files, to be edited\n\
                 \x20 --conflicts force     brings back what was before, and drops what is there now\n",
            );
        }
        print_paged(&text)
    }

    /// Names the files that were not reverted, and returns the corresponding error.
    pub(super) fn report_refused(
        &self,
        files: usize,
        refused: &[(String, FilesError)],
        extent: UndoExtent,
    ) -> Result<(), CliError> {
        if refused.is_empty() {
            return Ok(());
        }
        for (path, error) in refused.iter().take(MAX_LISTED) {
            print_note(&format!("{}: {}", self.display_name(path), describe_error(error)));
        }
        if refused.len() > MAX_LISTED {
            print_note(&format!("… and {} more", refused.len() - MAX_LISTED));
        }
        let (verb, participle) = (self.request.direction.verb(), self.request.direction.participle());
        let count = format!("{} of {}", refused.len(), pluralize(files, "file", "files"));
        let is_conflict = refused.iter().any(|(_, error)| is_resolvable(error));
        let hint = if is_conflict && self.request.options.conflicts.is_none() {
            "; --conflicts show tells more, markers or force resolves it"
        } else {
            ""
        };
        Err(failed(match extent {
            UndoExtent::Nothing if files > refused.len() => anyhow::anyhow!(
                "cannot {verb} {count}, so nothing is {participle}: choose fewer, or --keep-going for the others{hint}"
            ),
            UndoExtent::Nothing => anyhow::anyhow!("cannot {verb} {count}, so nothing is {participle}{hint}"),
            UndoExtent::Partial => anyhow::anyhow!("cannot {verb} {count}; they are as they were{hint}"),
        }))
    }

    /// Prints what was done.
    pub(super) fn print_summary(&self, summary: &UndoSummary, leftovers: &Leftovers) -> Result<(), CliError> {
        let Self { location, workspace, resolved, request: UndoRequest { direction, options }, .. } = *self;
        let files = summary.files.len();
        let extent = if files == 0 { UndoExtent::Nothing } else { UndoExtent::Partial };
        if options.json {
            self.print_summary_json(summary, leftovers)?;
            let unrestorable = unrestorable_error(direction, summary.unrestorable.len());
            self.report_refused(files + summary.refused.len(), &summary.refused, extent)?;
            return unrestorable.map_or(Ok(()), Err);
        }
        let mut text = format!(
            "{} {}, in {}\n",
            direction.participle(),
            resolved.description,
            pluralize(files, "file", "files")
        );
        let mut sorted: Vec<(String, &ReversedFile)> =
            summary.files.iter().map(|file| (self.display_name(&file.path), file)).collect();
        sorted.sort_by(|a, b| a.0.cmp(&b.0));
        let listed = sorted.iter().take(MAX_LISTED);
        let width = listed.map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        let unrestorable = self.unrestorable_paths(&summary.unrestorable)?;
        let (mut any_observed, mut any_markers) = (false, false);
        for (index, (name, file)) in sorted.iter().enumerate() {
            let change = workspace.change(file.change).map_err(failed)?;
            let observation = describe_observation(workspace, &change)?;
            any_observed |= observation.is_some();
            any_markers |=
                file.resolved_count > 0 && self.request.options.conflicts == Some(ConflictHandling::Markers);
            if index < MAX_LISTED {
                let observation = observation.map(|note| format!(" ({note})")).unwrap_or_default();
                let result = self.describe_file_result(file, &change, &unrestorable)?;
                text.push_str(&format!("  {name:width$}  {result}{observation}\n"));
            }
        }
        if files > MAX_LISTED {
            text.push_str(&format!("  … and {} more\n", files - MAX_LISTED));
        }
        if files == 0 {
            text.clear();
        } else {
            text.push_str(&leftovers.to_text(location));
        }
        if any_markers {
            text.push_str("edit the files with conflict markers, then save them\n");
        }
        if files > 0 && direction == ReversalDirection::Undo {
            text.push_str("`bowline redo` brings it back\n");
            if any_observed {
                text.push_str(&format!("{MAYBE_YOURS_NOTE}; undo --written-only leaves that alone\n"));
            }
            let skipped = self.skipped_observed_files();
            if !skipped.is_empty() {
                text.push_str(&format!(
                    "{NOT_UNDONE_NOTE}: {}; undo --found takes that back, too\n",
                    join_names(&skipped)
                ));
            }
        }
        print(&text)?;
        let unrestorable = report_unrestorable(location, workspace, direction, &summary.unrestorable)?;
        self.report_refused(files + summary.refused.len(), &summary.refused, extent)?;
        unrestorable.map_or(Ok(()), Err)
    }

    fn print_summary_json(&self, summary: &UndoSummary, leftovers: &Leftovers) -> Result<(), CliError> {
        let unrestorable = self.unrestorable_paths(&summary.unrestorable)?;
        let mut files = Vec::new();
        for file in &summary.files {
            let change = self.workspace.change(file.change).map_err(failed)?;
            files.push(json!({
                "path": file.path,
                "change": file.change.0,
                "reverses": change.reverses.iter().map(|reversal| reversal.change.0).collect::<Vec<_>>(),
                "result": self.describe_file_result(file, &change, &unrestorable)?,
                "found": describe_observation(self.workspace, &change)?.is_some(),
                "conflicts": file.resolved_count,
            }));
        }
        let refused: Vec<Value> =
            summary.refused.iter().map(|(path, error)| refusal_to_json(path, error)).collect();
        let output = json!({
            "command": self.request.direction.verb(),
            "workspace": self.location.root,
            "what": self.resolved.description,
            "dry_run": false,
            "files": files,
            "left": self.unrestorable_to_json(&summary.unrestorable)?,
            "refused": refused,
            "kept": self.skipped_observed_files(),
            "removed_directories": leftovers.removed,
            "remaining": leftovers.remaining,
        });
        print(&format!("{output}\n"))
    }

    fn unrestorable_paths(&self, ids: &[ChangeId]) -> Result<HashSet<String>, CliError> {
        ids.iter().map(|id| Ok(self.workspace.change(*id).map_err(failed)?.path)).collect()
    }

    fn unrestorable_to_json(&self, ids: &[ChangeId]) -> Result<Vec<Value>, CliError> {
        ids.iter()
            .map(|id| {
                let change = self.workspace.change(*id).map_err(failed)?;
                Ok(json!({"change": id.0, "path": change.path, "reason": unrestorable_reason(&change)}))
            })
            .collect()
    }

    /// Describes what a reversal did to a file.
    fn describe_file_result(
        &self,
        file: &ReversedFile,
        change: &Change,
        unrestorable: &HashSet<String>,
    ) -> Result<&'static str, CliError> {
        if unrestorable.contains(file.path.as_str()) {
            return Ok("only in part, see below");
        }
        if !file.is_changed {
            return Ok("was so already");
        }
        let uses_markers = self.request.options.conflicts == Some(ConflictHandling::Markers);
        let mut oldest: Option<Change> = None;
        for reversal in &change.reverses {
            let reversed = self.workspace.change(reversal.change).map_err(failed)?;
            if reversal.hunks.is_some() {
                // The rest of the change stays, so only later changes can have been merged.
                let is_exact =
                    change.before.map(|state| state.hash) == reversed.after.map(|state| state.hash);
                return Ok(match (is_exact, file.resolved_count) {
                    (_, 1..) if uses_markers => "in part, with conflict markers",
                    (_, 1..) => "in part, later edits dropped",
                    (true, _) => "in part",
                    (false, _) => "in part, merged with later edits",
                });
            }
            if oldest.as_ref().is_none_or(|oldest| reversed.id < oldest.id) {
                oldest = Some(reversed);
            }
        }
        let hash = |state: Option<FileState>| state.map(|state| state.hash);
        let is_as_before = oldest.is_some_and(|oldest| hash(oldest.before) == hash(change.after));
        Ok(match (change.before, change.after) {
            (Some(_), Some(_)) if file.resolved_count > 0 && uses_markers => "with conflict markers",
            _ if file.resolved_count > 0 => "forced, later edits dropped",
            (Some(_), None) => "deleted",
            (None, Some(_)) => "there again",
            _ if is_as_before => match self.request.direction {
                ReversalDirection::Undo => "as it was before",
                ReversalDirection::Redo => "as it was before the undo",
            },
            _ => "merged with later edits",
        })
    }
}

/// Describes why a file was not reverted; the caller adds its name.
pub(super) fn describe_error(error: &FilesError) -> String {
    match error {
        FilesError::CannotReverse(refused) => format!("change {}: {}", refused.change, refused.reason),
        FilesError::TooLarge { size, cap, .. } => {
            format!("it has {size} bytes, and at most {cap} are taken back")
        }
        other => other.to_string(),
    }
}

/// Returns whether the user can choose how to resolve the error.
fn is_resolvable(error: &FilesError) -> bool {
    let FilesError::CannotReverse(ReversalError { reason, .. }) = error else { return false };
    !matches!(
        reason,
        ReversalErrorReason::ContentUnavailable
            | ReversalErrorReason::Pruned
            | ReversalErrorReason::NoSuchHunk(_)
    )
}

/// Returns whether the same lines were changed since.
pub(super) fn is_conflict(error: &FilesError) -> bool {
    matches!(error, FilesError::CannotReverse(ReversalError { reason: ReversalErrorReason::Conflict(_), .. }))
}

fn conflict_hunks(error: &FilesError) -> &[ConflictHunk] {
    match error {
        FilesError::CannotReverse(ReversalError {
            reason: ReversalErrorReason::Conflict(conflict), ..
        }) => &conflict.hunks,
        _ => &[],
    }
}

fn refusal_to_json(path: &str, error: &FilesError) -> Value {
    let conflicts = conflict_hunks(error)
        .iter()
        .map(|hunk| json!({"line": hunk.line, "now": hunk.ours, "after": hunk.base, "before": hunk.theirs}));
    json!({"path": path, "reason": describe_error(error), "places": conflicts.collect::<Vec<_>>()})
}

fn change_ids(changes: &[ChangeId]) -> Vec<i64> {
    changes.iter().map(|id| id.0).collect()
}

/// Joins some file names, and adds how many more there are.
fn join_names(names: &BTreeSet<&str>) -> String {
    let shown: Vec<String> = names.iter().take(MAX_LISTED).map(|name| escape_line(name)).collect();
    let more = names.len() - shown.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

/// Names the files that are left unchanged; if there are any, returns that the reversal is incomplete.
fn report_unrestorable(
    location: &WorkspaceLocation,
    workspace: &Workspace,
    direction: ReversalDirection,
    ids: &[ChangeId],
) -> Result<Option<CliError>, CliError> {
    for id in ids.iter().take(MAX_LISTED) {
        let change = workspace.change(*id).map_err(failed)?;
        let (name, reason) =
            (escape_line(location.relative_name(&change.path)), unrestorable_reason(&change));
        print_note(&format!("{name}: change {id} was found on disk, and {reason}"));
    }
    if ids.len() > MAX_LISTED {
        print_note(&format!("… and {} more", ids.len() - MAX_LISTED));
    }
    Ok(unrestorable_error(direction, ids.len()))
}

fn unrestorable_reason(change: &Change) -> &'static str {
    match change.before {
        Some(_) => "what was there before is not known",
        None => "what was made is not kept, so it is not removed",
    }
}

fn unrestorable_error(direction: ReversalDirection, number: usize) -> Option<CliError> {
    let count = pluralize(number, "change is left as it was found", "changes are left as they were found");
    (number > 0).then(|| failed(anyhow::anyhow!("not all could be {}: {count}", direction.participle())))
}

/// Describes how the reverted change was observed on disk, if it was: another program may have made it.
fn describe_observation(workspace: &Workspace, change: &Change) -> Result<Option<&'static str>, CliError> {
    for reversal in &change.reverses {
        let reversed = workspace.change(reversal.change).map_err(failed)?;
        if reversed.source == ChangeSource::Observed {
            return Ok(Some(match reversed.origin.command {
                Some(_) => "found on disk after a command",
                None => "found on disk after the turn",
            }));
        }
    }
    Ok(None)
}
