//! Archiving an audit log and starting a new one.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use bowline_access::audit::AuditLog;
use bowline_policy::audit::{AuditAction, AuditEntry, DecisionSource};
use bowline_workspace::journal;
use clap::Args;
use serde_json::json;

use super::{failed, no_log_message};
use crate::changes::WorkspaceArguments;
use bowline_client::common::console::{escape_line, print, print_note};
use bowline_client::common::workspace_location::{WorkspaceLocation, WorkspaceMarker};
use bowline_client::error::CliError;
use bowline_storage::clock::now;

pub(super) const EXAMPLES: &str = "\
The log and its anchor are moved unchanged to a numbered directory beside the log. The first entry \
of the new log names that directory. No agent may be running in this workspace.

Exit status: 0 success, 1 failure or an agent is running, 2 wrong usage.

Examples:
  bowline audit archive
  bowline audit archive --json | jq -r .archive";

/// The maximum number of archives of one log; each has its own number.
const MAX_ARCHIVES: u32 = 10_000;

/// Which log.
#[derive(Args, Debug)]
pub(super) struct ArchiveArguments {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    workspace: WorkspaceArguments,
}

/// Archives the log.
pub(super) fn archive_log(arguments: &ArchiveArguments) -> Result<(), CliError> {
    let location = WorkspaceLocation::find(arguments.workspace.cwd.as_deref(), WorkspaceMarker::AuditLog)?;
    if !location.has_records {
        print_note(&no_log_message(&location));
        return Ok(());
    }
    if journal::is_in_use(&location.journal_dir).map_err(failed)? {
        let message = "an agent is at work here, and writes to the log: end it first";
        return Err(failed(anyhow::anyhow!(message)));
    }
    let target =
        unused_archive_path(&location.journal_dir).context("there are too many archives: remove some")?;
    move_to_archive(&location, &target).with_context(|| format!("cannot archive to {}", target.display()))?;
    let log =
        AuditLog::open(&location.audit_log_dir(), &location.anchor, Default::default()).map_err(failed)?;
    let mut entry = AuditEntry::new(now(), AuditAction::Repair);
    entry.decided_by = DecisionSource::User;
    entry.reason = Some(format!("a new log was begun, the one before is in {}", target.display()));
    log.append(&entry).map_err(failed)?;
    log.sync().map_err(failed)?;
    let shown = target.to_string_lossy();
    if arguments.json {
        return print(&format!("{}\n", json!({"archive": shown, "log": location.audit_log_dir()})));
    }
    print(&format!("the audit log is in {}, and a new one is begun\n", escape_line(&shown)))
}

fn unused_archive_path(directory: &Path) -> Option<PathBuf> {
    let name = |number: u32| directory.join(format!("audit.archived-{number}"));
    (1..=MAX_ARCHIVES).map(name).find(|name| fs::symlink_metadata(name).is_err())
}

/// Moves the log and its anchor. If the log is missing, only the anchor is moved.
fn move_to_archive(location: &WorkspaceLocation, target: &Path) -> anyhow::Result<()> {
    let log = location.audit_log_dir();
    if fs::symlink_metadata(&log).is_ok() {
        fs::rename(&log, target)?;
    } else {
        fs::create_dir(target)?;
    }
    if location.anchor.exists() {
        // The anchor may be on another file system, so it is copied instead of renamed.
        fs::copy(&location.anchor, target.join("anchor"))?;
        fs::remove_file(&location.anchor)?;
    }
    Ok(())
}
