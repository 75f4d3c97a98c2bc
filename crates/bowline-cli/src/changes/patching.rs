//! Changes as patches.

use std::fmt::Write as _;

use bowline_state::undo::Selection;
use bowline_workspace::workspace::{FilePatch, Workspace};
use serde_json::json;

use super::failed;
use crate::ending::Ending;
use crate::records::here::Here;
use crate::records::showing::{Ink, Look, count, safe, safe_lines};

/// So many signs at most show how much of a file changed.
const SIGNS: usize = 40;

/// Returns the patches of what is meant, and in effect.
///
/// # Errors
/// Says what is not there, or that the journal cannot be read.
pub(crate) fn files(workspace: &Workspace, selection: &Selection) -> Result<Vec<FilePatch>, Ending> {
    let Some(one) = &selection.change else { return workspace.diff_files(selection).map_err(failed) };
    // Who names a change wants to see it, also if it is undone.
    let change = workspace.change(one.change).map_err(failed)?;
    let patch = match &one.hunks {
        None => workspace.diff_change(one.change).map_err(failed)?,
        Some(hunks) => {
            check(workspace, one.change, hunks)?;
            workspace.diff_hunks(one.change, hunks).map_err(failed)?
        }
    };
    Ok(if patch.is_empty() { Vec::new() } else { vec![FilePatch { path: change.path, patch }] })
}

/// Makes sure that a change has these hunks, counted from 0.
///
/// # Errors
/// Says how many it has.
pub(crate) fn check(
    workspace: &Workspace,
    change: bowline_state::changes::ChangeId,
    hunks: &[usize],
) -> Result<(), Ending> {
    let known = workspace.hunks(change).map_err(failed)?.len();
    match hunks.iter().find(|hunk| **hunk >= known) {
        None => Ok(()),
        Some(hunk) => Err(failed(anyhow::anyhow!(
            "change {change} has no hunk {}, it has {}: `bowline changes --hunks` shows them",
            hunk + 1,
            if known == 0 { "none".to_owned() } else { format!("1 to {known}") }
        ))),
    }
}

/// Says whether the patch of a file only tells that it differs.
pub(crate) fn is_binary(patch: &str) -> bool {
    patch.lines().any(|line| line.starts_with("Binary files "))
        && !patch.lines().any(|line| line.starts_with("@@ "))
}

/// Returns how many lines the patch of one file adds and removes.
pub(crate) fn lines(patch: &str) -> (usize, usize) {
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

/// Returns what changed in each file, for programs.
pub(crate) fn objects(files: &[FilePatch]) -> String {
    let object = |file: &FilePatch| {
        let (added, removed) = lines(&file.patch);
        let binary = is_binary(&file.patch);
        let object = json!({
            "path": file.path, "binary": binary, "added": added, "removed": removed, "patch": file.patch,
        });
        format!("{object}\n")
    };
    files.iter().map(object).collect()
}

/// Returns how much changed in each file.
pub(crate) fn stat(files: &[FilePatch], here: &Here) -> String {
    let names: Vec<String> = files.iter().map(|file| safe(here.name(&file.path))).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let sums: Vec<(usize, usize)> = files.iter().map(|file| lines(&file.patch)).collect();
    let most = sums.iter().map(|(added, removed)| added + removed).max().unwrap_or(0);
    let digits = most.to_string().len();
    let mut text = String::new();
    for ((name, (added, removed)), file) in names.iter().zip(&sums).zip(files) {
        let scale = |lines: usize| if most > SIGNS { (lines * SIGNS).div_ceil(most) } else { lines };
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
    _ = writeln!(text, " {} changed, +{added} −{removed}", count(files.len(), "file", "files"));
    text
}

/// Returns a patch as a terminal shows it: in colour, and unable to steer it.
pub(crate) fn painted(patch: &str, look: Look) -> String {
    let mut text = String::new();
    let mut in_head = true;
    for line in patch.split_inclusive('\n') {
        let line = line.strip_suffix('\n').unwrap_or(line);
        let shown = safe_lines(line.strip_suffix('\r').unwrap_or(line));
        in_head = line.starts_with("diff --git ") || (in_head && !line.starts_with("@@ "));
        let painted = match line.as_bytes().first() {
            _ if in_head => look.paint(Ink::Head, &shown),
            Some(b'@') => look.paint(Ink::Mark, &shown),
            Some(b'+') => look.paint(Ink::Good, &shown),
            Some(b'-') => look.paint(Ink::Bad, &shown),
            _ => shown,
        };
        text.push_str(&painted);
        text.push('\n');
    }
    text
}
