//! Directories and links that a turn made and that an undo of its files leaves behind.
//!
//! The journal knows files. Directories that an undo empties are removed if they are as young as what was undone; links and
//! other empty directories of that time are named, because the turn may not have made them.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bowline_workspace::audit::{self, Filter};
use bowline_workspace::workspace::{Reversed, Workspace};

use crate::records::here::Here;
use crate::records::showing::safe;

/// So many entries of directories are looked at for what remains.
const MAX_LOOKED: usize = 20_000;
/// So many that remain are named.
const MAX_NAMED: usize = 10;
/// Clocks of files tick slower than others.
const TICK: Duration = Duration::from_millis(20);

/// What became of directories and links.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    /// Directories that were empty, and are gone.
    pub(super) removed: Vec<String>,
    /// Links and empty directories that are still there.
    pub(super) remaining: Vec<String>,
}

impl Leftovers {
    pub(super) fn text(&self, here: &Here) -> String {
        let named = |paths: &[String]| {
            let shown: Vec<String> = paths.iter().take(MAX_NAMED).map(|path| safe(here.name(path))).collect();
            let more = paths.len() - shown.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{}{more}", shown.join(", "))
        };
        let mut text = String::new();
        if !self.removed.is_empty() {
            text.push_str(&format!("removed empty directories: {}\n", named(&self.removed)));
        }
        if !self.remaining.is_empty() {
            text.push_str(&format!(
                "links and empty directories made meanwhile are still there: {}\n",
                named(&self.remaining)
            ));
        }
        text
    }
}

/// When something was made.
#[derive(Debug, Clone, Copy)]
struct Span {
    start: SystemTime,
    end: SystemTime,
}

impl Span {
    // Where birth is not known, nothing is as young as that.
    fn has(self, found: &Metadata) -> bool {
        self.is_before(found) && found.created().is_ok_and(|born| born <= self.end + TICK)
    }

    fn is_before(self, found: &Metadata) -> bool {
        found.created().is_ok_and(|born| born + TICK >= self.start)
    }
}

/// Removes the directories that an undo emptied, and finds what else was made while the undone changes were.
pub(super) fn clear(here: &Here, workspace: &Workspace, files: &[Reversed]) -> Option<Leftovers> {
    let mut undone = Vec::new();
    for file in files {
        let reverses = workspace.change(file.change).ok()?.reverses;
        undone.extend(reverses.iter().filter_map(|reversal| workspace.change(reversal.change).ok()));
    }
    let sessions: BTreeSet<&str> =
        undone.iter().filter_map(|change| change.origin.session.as_deref()).collect();
    let mut span: Option<Span> = None;
    for session in sessions {
        let filter = Filter { session: Some(session.to_owned()), ..Filter::default() };
        for record in audit::entries(&here.log(), filter).ok()?.filter_map(Result::ok) {
            let entry = &record.entry;
            let is_its = undone.iter().any(|change| match (change.origin.turn, &change.origin.call) {
                (Some(turn), _) => entry.turn == Some(turn),
                (None, Some(call)) => entry.call.as_ref() == Some(call),
                (None, None) => false,
            });
            if is_its {
                let at = SystemTime::UNIX_EPOCH + Duration::from_millis(entry.at.0.try_into().unwrap_or(0));
                let known = *span.get_or_insert(Span { start: at, end: at });
                span = Some(Span { start: known.start.min(at), end: known.end.max(at) });
            }
        }
    }
    let span = span?;
    let mut leftovers = Leftovers::default();
    let mut directories: Vec<&Path> = files.iter().flat_map(|file| above(here, &file.path)).collect();
    // The deepest first, so that those above are empty in their turn.
    directories.sort_by_key(|directory| std::cmp::Reverse(directory.components().count()));
    directories.dedup();
    for directory in directories {
        // A redo makes directories anew, after the turn. One that is not empty stays.
        let is_young =
            fs::symlink_metadata(directory).is_ok_and(|found| found.is_dir() && span.is_before(&found));
        if is_young && fs::remove_dir(directory).is_ok() {
            leftovers.removed.push(directory.to_string_lossy().into_owned());
        }
    }
    leftovers.removed.sort();
    leftovers.removed.dedup();
    if undone.iter().any(|change| change.origin.command.is_some()) {
        leftovers.remaining = remaining(Path::new(&here.root), span);
    }
    Some(leftovers)
}

/// Returns the directories above a file, as far as they are in the workspace.
fn above<'p>(here: &Here, path: &'p str) -> impl Iterator<Item = &'p Path> {
    let root = PathBuf::from(&here.root);
    Path::new(path).ancestors().skip(1).take_while(move |above| above.starts_with(&root) && **above != *root)
}

/// Returns the links and empty directories that were made in a span of time.
fn remaining(root: &Path, span: Span) -> Vec<String> {
    let mut found = Vec::new();
    let mut waiting = vec![root.to_owned()];
    let mut looked = 0;
    while let Some(directory) = waiting.pop() {
        // What cannot be listed is passed over: this is a hint.
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        let mut is_empty = true;
        for entry in entries.filter_map(Result::ok) {
            is_empty = false;
            looked += 1;
            if looked > MAX_LOOKED {
                return Vec::new();
            }
            let path = entry.path();
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            if metadata.is_dir() && entry.file_name() != ".git" {
                waiting.push(path);
            } else if metadata.is_symlink() && span.has(&metadata) {
                found.push(path.to_string_lossy().into_owned());
            }
        }
        let is_young = || fs::symlink_metadata(&directory).is_ok_and(|metadata| span.has(&metadata));
        if is_empty && directory != root && is_young() {
            found.push(format!("{}/", directory.to_string_lossy()));
        }
    }
    found.sort();
    found
}
