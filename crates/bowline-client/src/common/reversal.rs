//! What undo and redo share wherever the user asks for them: the directories they need, and their record.

use std::collections::HashSet;
use std::path::Path;

use bowline_access::audit::AuditLog;
use bowline_history::undo::ChangeSelection;
use bowline_policy::audit::{AuditAction, AuditEntry, AuditSubject, DecisionSource};
use bowline_storage::clock::now;
use bowline_workspace::roots::RootSpec;
use bowline_workspace::workspace::{ListedChange, ReversedFile, Workspace};

use super::console::print_note;
use super::workspace_location::WorkspaceLocation;
use crate::error::CliError;

/// The maximum number of directories opened beside the workspace's own to revert changes in them.
const MAX_EXTRA_ROOTS: usize = 32;

/// Opens the workspace with the additional directories that the selected changes affect: a session may have several
/// roots.
///
/// # Errors
/// As [`WorkspaceLocation::open`].
pub fn open_affected_roots(
    location: &WorkspaceLocation,
    workspace: Workspace,
    history: &[ListedChange],
    selection: &ChangeSelection,
) -> Result<Workspace, CliError> {
    let root = Path::new(&location.root);
    let mut extra_roots = Vec::new();
    let mut seen = HashSet::new();
    let selected = history.iter().map(|changed| &changed.change).filter(|change| selection.matches(change));
    for change in selected.filter(|change| !Path::new(&change.path).starts_with(root)) {
        let ancestors = Path::new(&change.path).ancestors().skip(1);
        let directory = ancestors.filter_map(Path::to_str).find(|path| Path::new(path).is_dir());
        if let Some(directory) = directory.filter(|directory| seen.insert((*directory).to_owned()))
            && extra_roots.len() < MAX_EXTRA_ROOTS
        {
            extra_roots.push(RootSpec::writable(directory));
        }
    }
    if extra_roots.is_empty() {
        return Ok(workspace);
    }
    drop(workspace);
    location.open(&extra_roots)
}

/// Records the reversal in the audit log. A failure is reported and does not fail the command, because the user made
/// the change.
pub fn record_reversal(location: &WorkspaceLocation, workspace: &Workspace, files: &[ReversedFile]) {
    let append = || -> anyhow::Result<()> {
        let log = AuditLog::open(&location.audit_log_dir(), &location.anchor, Default::default())?;
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
