//! Changes as patches.

use std::fmt::Write as _;

use bowline_history::undo::ChangeSelection;
use bowline_workspace::workspace::{FilePatch, Workspace};
use serde_json::json;

use super::failed;
use crate::common::console::{OutputStyle, TextStyle, escape_line, escape_lines, pluralize};
use crate::common::workspace_location::WorkspaceLocation;
use crate::error::CliError;

/// The maximum number of `+` and `-` signs in a file's diffstat.
const MAX_STAT_SIGNS: usize = 40;

/// Returns the patches of the selected changes that are in effect.
///
/// # Errors
/// Names what does not exist, or fails if the journal cannot be read.
pub(crate) fn file_patches(
    workspace: &Workspace,
    selection: &ChangeSelection,
) -> Result<Vec<FilePatch>, CliError> {
    let Some(one) = &selection.change else { return workspace.diff_files(selection).map_err(failed) };
    // A change that is named by its id is shown even if it is undone.
    let change = workspace.change(one.change).map_err(failed)?;
    let patch = match &one.hunks {
        None => workspace.diff_change(one.change).map_err(failed)?,
        Some(hunks) => {
            check_hunks(workspace, one.change, hunks)?;
            workspace.diff_hunks(one.change, hunks).map_err(failed)?
        }
    };
    Ok(if patch.is_empty() { Vec::new() } else { vec![FilePatch { path: change.path, patch }] })
}

/// Checks that a change has these hunks, numbered from 0.
///
/// # Errors
/// Reports how many hunks the change has.
pub(crate) fn check_hunks(
    workspace: &Workspace,
    change: bowline_history::changes::ChangeId,
    hunks: &[usize],
) -> Result<(), CliError> {
    let known = workspace.change_hunks(change).map_err(failed)?.len();
    match hunks.iter().find(|hunk| **hunk >= known) {
        None => Ok(()),
        Some(hunk) => Err(failed(anyhow::anyhow!(
            "change {change} has no hunk {}, it has {}: `bowline changes --hunks` shows them",
            hunk + 1,
            if known == 0 { "none".to_owned() } else { format!("1 to {known}") }
        ))),
    }
}

/// Returns whether a file's patch states only that the file differs.
pub(crate) fn is_binary(patch: &str) -> bool {
    patch.lines().any(|line| line.starts_with("Binary files "))
        && !patch.lines().any(|line| line.starts_with("@@ "))
}

/// Returns how many lines a file's patch adds and removes.
pub(crate) fn count_lines(patch: &str) -> (usize, usize) {
    let body = patch.lines().skip_while(|line| !line.starts_with("@@ "));
    let mut sums = (0, 0);
    for line in body {
        match line.as_bytes().first() {
            Some(b'+') => sums.0 += 1,
            Some(b'-') => sums.1 += 1,
            _ => {}
        }
    }
    sums
}

/// Formats the changes of each file for programs.
pub(crate) fn to_json_lines(files: &[FilePatch]) -> String {
    let object = |file: &FilePatch| {
        let (added, removed) = count_lines(&file.patch);
        let binary = is_binary(&file.patch);
        let object = json!({
            "path": file.path, "binary": binary, "added": added, "removed": removed, "patch": file.patch,
        });
        format!("{object}\n")
    };
    files.iter().map(object).collect()
}

/// Returns a diffstat: how much changed in each file.
pub(crate) fn format_stat(files: &[FilePatch], here: &WorkspaceLocation) -> String {
    let names: Vec<String> = files.iter().map(|file| escape_line(here.relative_name(&file.path))).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let sums: Vec<(usize, usize)> = files.iter().map(|file| count_lines(&file.patch)).collect();
    let most = sums.iter().map(|(added, removed)| added + removed).max().unwrap_or(0);
    let digits = most.to_string().len();
    let mut text = String::new();
    for ((name, (added, removed)), file) in names.iter().zip(&sums).zip(files) {
        let scale = |lines: usize| {
            if most > MAX_STAT_SIGNS { (lines * MAX_STAT_SIGNS).div_ceil(most) } else { lines }
        };
        let what = if is_binary(&file.patch) {
            "binary".to_owned()
        } else {
            format!(
                "{:>digits$} {}{}",
                added + removed,
                "+".repeat(scale(*added)),
                "-".repeat(scale(*removed))
            )
        };
        // Writing to a string cannot fail.
        _ = writeln!(text, " {name:width$} | {}", what.trim_end());
    }
    let (added, removed) = sums.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    _ = writeln!(text, " {} changed, +{added} −{removed}", pluralize(files.len(), "file", "files"));
    text
}

/// Formats a patch for a terminal: coloured, with control sequences neutralised.
pub(crate) fn paint_patch(patch: &str, look: OutputStyle) -> String {
    let mut text = String::new();
    let mut in_head = true;
    for line in patch.split_inclusive('\n') {
        let line = line.strip_suffix('\n').unwrap_or(line);
        let shown = escape_lines(line.strip_suffix('\r').unwrap_or(line));
        in_head = line.starts_with("diff --git ") || (in_head && !line.starts_with("@@ "));
        let painted = match line.as_bytes().first() {
            _ if in_head => look.paint(TextStyle::Heading, &shown),
            Some(b'@') => look.paint(TextStyle::Highlight, &shown),
            Some(b'+') => look.paint(TextStyle::Good, &shown),
            Some(b'-') => look.paint(TextStyle::Bad, &shown),
            _ => shown,
        };
        text.push_str(&painted);
        text.push('\n');
    }
    text
}
