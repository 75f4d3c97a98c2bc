//! Directories and links that a turn created and that undoing its file changes leaves behind.
//!
//! The journal records files only. Directories that an undo empties are removed if they were created at the time of the
//! undone changes; links and other empty directories of that time are only named, because the turn may not have created
//! them.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bowline_access::audit::{self, AuditFilter};
use bowline_workspace::workspace::{ReversedFile, Workspace};

use super::console::escape_line;
use super::workspace_location::WorkspaceLocation;

/// The maximum number of directory entries scanned for leftovers.
const MAX_SCANNED: usize = 20_000;
/// The maximum number of leftovers listed.
const MAX_LISTED: usize = 10;
/// File timestamps are coarser than the clock.
const FILE_CLOCK_TICK: Duration = Duration::from_millis(20);

/// The directories and links that an undo removed or left behind.
#[derive(Debug, Default)]
pub struct Leftovers {
    /// Empty directories that were removed.
    pub removed: Vec<String>,
    /// Links and empty directories that remain.
    pub remaining: Vec<String>,
}

impl Leftovers {
    /// Formats them for people; empty if there are none.
    pub fn to_text(&self, location: &WorkspaceLocation) -> String {
        let format_paths = |paths: &[String]| {
            let shown: Vec<String> =
                paths.iter().take(MAX_LISTED).map(|path| escape_line(location.relative_name(path))).collect();
            let more = paths.len() - shown.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{}{more}", shown.join(", "))
        };
        let mut text = String::new();
        if !self.removed.is_empty() {
            text.push_str(&format!("removed empty directories: {}\n", format_paths(&self.removed)));
        }
        if !self.remaining.is_empty() {
            text.push_str(&format!(
                "links and empty directories made meanwhile are still there: {}\n",
                format_paths(&self.remaining)
            ));
        }
        text
    }
}

/// The span of time in which the undone changes were made.
#[derive(Debug, Clone, Copy)]
struct TimeSpan {
    start: SystemTime,
    end: SystemTime,
}

impl TimeSpan {
    // Without a known creation time, nothing counts as created in the span.
    fn contains_creation(self, metadata: &Metadata) -> bool {
        self.starts_before_creation(metadata)
            && metadata.created().is_ok_and(|created| created <= self.end + FILE_CLOCK_TICK)
    }

    fn starts_before_creation(self, metadata: &Metadata) -> bool {
        metadata.created().is_ok_and(|created| created + FILE_CLOCK_TICK >= self.start)
    }
}

/// Removes the directories that an undo emptied, and finds what else was created during the undone changes.
pub fn clean_up(
    location: &WorkspaceLocation,
    workspace: &Workspace,
    files: &[ReversedFile],
) -> Option<Leftovers> {
    let mut undone = Vec::new();
    for file in files {
        let reverses = workspace.change(file.change).ok()?.reverses;
        undone.extend(reverses.iter().filter_map(|reversal| workspace.change(reversal.change).ok()));
    }
    let sessions: BTreeSet<&str> =
        undone.iter().filter_map(|change| change.origin.session.as_deref()).collect();
    let mut span: Option<TimeSpan> = None;
    for session in sessions {
        let filter = AuditFilter { session: Some(session.to_owned()), ..AuditFilter::default() };
        for record in audit::read_entries(&location.audit_log_dir(), filter).ok()?.filter_map(Result::ok) {
            let entry = &record.entry;
            let is_related = undone.iter().any(|change| match (change.origin.turn, &change.origin.call) {
                (Some(turn), _) => entry.turn == Some(turn),
                (None, Some(call)) => entry.call.as_ref() == Some(call),
                (None, None) => false,
            });
            if is_related {
                let time = SystemTime::UNIX_EPOCH + Duration::from_millis(entry.at.0.try_into().unwrap_or(0));
                let current = *span.get_or_insert(TimeSpan { start: time, end: time });
                span = Some(TimeSpan { start: current.start.min(time), end: current.end.max(time) });
            }
        }
    }
    let span = span?;
    let mut leftovers = Leftovers::default();
    let mut directories: Vec<&Path> =
        files.iter().flat_map(|file| ancestors_in_workspace(location, &file.path)).collect();
    // Deepest first, so that removing them empties their parents.
    directories.sort_by_key(|directory| std::cmp::Reverse(directory.components().count()));
    directories.dedup();
    for directory in directories {
        // A redo creates directories anew, after the turn. A directory that is not empty stays.
        let is_young = fs::symlink_metadata(directory)
            .is_ok_and(|metadata| metadata.is_dir() && span.starts_before_creation(&metadata));
        if is_young && fs::remove_dir(directory).is_ok() {
            leftovers.removed.push(directory.to_string_lossy().into_owned());
        }
    }
    leftovers.removed.sort();
    leftovers.removed.dedup();
    if undone.iter().any(|change| change.origin.command.is_some()) {
        leftovers.remaining = find_remaining(Path::new(&location.root), span);
    }
    Some(leftovers)
}

/// Returns the parent directories of a file that are inside the workspace.
fn ancestors_in_workspace<'p>(location: &WorkspaceLocation, path: &'p str) -> impl Iterator<Item = &'p Path> {
    let root = PathBuf::from(&location.root);
    Path::new(path)
        .ancestors()
        .skip(1)
        .take_while(move |directory| directory.starts_with(&root) && **directory != *root)
}

/// Returns the links and empty directories that were created in a span of time.
fn find_remaining(root: &Path, span: TimeSpan) -> Vec<String> {
    let mut remaining = Vec::new();
    let mut pending = vec![root.to_owned()];
    let mut scanned = 0;
    while let Some(directory) = pending.pop() {
        // Directories that cannot be listed are skipped: the result is only a hint.
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        let mut is_empty = true;
        for entry in entries.filter_map(Result::ok) {
            is_empty = false;
            scanned += 1;
            if scanned > MAX_SCANNED {
                return Vec::new();
            }
            let path = entry.path();
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            if metadata.is_dir() && entry.file_name() != ".git" {
                pending.push(path);
            } else if metadata.is_symlink() && span.contains_creation(&metadata) {
                remaining.push(path.to_string_lossy().into_owned());
            }
        }
        let is_young =
            || fs::symlink_metadata(&directory).is_ok_and(|metadata| span.contains_creation(&metadata));
        if is_empty && directory != root && is_young() {
            remaining.push(format!("{}/", directory.to_string_lossy()));
        }
    }
    remaining.sort();
    remaining
}
