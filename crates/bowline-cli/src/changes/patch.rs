//! Changes as patches.

use std::fmt::Write as _;

use bowline_history::undo::ChangeSelection;
use bowline_workspace::workspace::{FilePatch, Workspace};
use serde_json::json;

use super::failed;
use bowline_client::common::console::{OutputStyle, TextStyle, escape_line, escape_lines, pluralize};
use bowline_client::common::workspace_location::WorkspaceLocation;
use bowline_client::error::CliError;

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
    let Some(reversal) = &selection.change else { return workspace.diff_files(selection).map_err(failed) };
    // A change that is named by its id is shown even if it is undone.
    let change = workspace.change(reversal.change).map_err(failed)?;
    let patch = match &reversal.hunks {
        None => workspace.diff_change(reversal.change).map_err(failed)?,
        Some(hunks) => {
            check_hunks(workspace, reversal.change, hunks)?;
            workspace.diff_hunks(reversal.change, hunks).map_err(failed)?
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
    let count = workspace.change_hunks(change).map_err(failed)?.len();
    match hunks.iter().find(|hunk| **hunk >= count) {
        None => Ok(()),
        Some(hunk) => Err(failed(anyhow::anyhow!(
            "change {change} has no hunk {}, it has {}: `bowline changes --hunks` shows them",
            hunk + 1,
            if count == 0 { "none".to_owned() } else { format!("1 to {count}") }
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
pub(crate) fn format_stat(files: &[FilePatch], location: &WorkspaceLocation) -> String {
    let names: Vec<String> =
        files.iter().map(|file| escape_line(location.relative_name(&file.path))).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let sums: Vec<(usize, usize)> = files.iter().map(|file| count_lines(&file.patch)).collect();
    let max_changed = sums.iter().map(|(added, removed)| added + removed).max().unwrap_or(0);
    let digits = max_changed.to_string().len();
    let mut text = String::new();
    for ((name, (added, removed)), file) in names.iter().zip(&sums).zip(files) {
        let scale = |lines: usize| {
            if max_changed > MAX_STAT_SIGNS { (lines * MAX_STAT_SIGNS).div_ceil(max_changed) } else { lines }
        };
        let stat = if is_binary(&file.patch) {
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
        _ = writeln!(text, " {name:width$} | {}", stat.trim_end());
    }
    let (added, removed) = sums.iter().fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
    _ = writeln!(text, " {} changed, +{added} −{removed}", pluralize(files.len(), "file", "files"));
    text
}

/// Formats a patch for a terminal: coloured, with control sequences neutralised.
pub(crate) fn paint_patch(patch: &str, style: OutputStyle) -> String {
    let mut text = String::new();
    let mut in_header = true;
    for line in patch.split_inclusive('\n') {
        let line = line.strip_suffix('\n').unwrap_or(line);
        let escaped = escape_lines(line.strip_suffix('\r').unwrap_or(line));
        in_header = line.starts_with("diff --git ") || (in_header && !line.starts_with("@@ "));
        let painted = match line.as_bytes().first() {
            _ if in_header => style.paint(TextStyle::Heading, &escaped),
            Some(b'@') => style.paint(TextStyle::Highlight, &escaped),
            Some(b'+') => style.paint(TextStyle::Good, &escaped),
            Some(b'-') => style.paint(TextStyle::Bad, &escaped),
            _ => escaped,
        };
        text.push_str(&painted);
        text.push('\n');
    }
    text
}
