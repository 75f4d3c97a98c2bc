//! Putting an audit log aside, and beginning a new one.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use bowline_state::audit::{Action, By, Entry};
use bowline_workspace::audit::AuditLog;
use bowline_workspace::journal;
use clap::Args;
use serde_json::json;

use super::{failed, nothing_yet};
use crate::changes::Where;
use crate::ending::Ending;
use crate::records::here::{Here, Sign};
use crate::records::showing::{note, print, safe};
use bowline_workspace::clock::now;

pub(super) const EXAMPLES: &str = "\
The log and its anchor go to a directory beside the log, named by a number, as they are. The first entry of the new log says
where. No agent may be at work here meanwhile.

Exit status: 0 done; 1 if it cannot be done, or an agent is at work; 2 wrong usage.

Examples:
  bowline audit archive
  bowline audit archive --json | jq -r .archive";

/// So many archives of one log are kept apart by their numbers.
const MAX_ARCHIVES: u32 = 10_000;

/// Which log.
#[derive(Args, Debug)]
pub(super) struct ArchiveArguments {
    /// Prints one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Where,
}

/// Puts the log aside.
pub(super) fn archive(arguments: &ArchiveArguments) -> Result<(), Ending> {
    let here = Here::find(arguments.place.cwd.as_deref(), Sign::Log)?;
    if !here.known {
        note(&nothing_yet(&here));
        return Ok(());
    }
    if journal::is_in_use(&here.directory).map_err(failed)? {
        let why = "an agent is at work here, and writes to the log: end it first";
        return Err(failed(anyhow::anyhow!(why)));
    }
    let target = free_name(&here.directory).context("there are too many archives: remove some")?;
    move_aside(&here, &target).with_context(|| format!("cannot archive to {}", target.display()))?;
    let log = AuditLog::open(&here.log(), &here.anchor, Default::default()).map_err(failed)?;
    let mut entry = Entry::new(now(), Action::Repair);
    entry.by = By::User;
    entry.reason = Some(format!("a new log was begun, the one before is in {}", target.display()));
    log.append(&entry).map_err(failed)?;
    log.sync().map_err(failed)?;
    let shown = target.to_string_lossy();
    if arguments.json {
        return print(&format!("{}\n", json!({"archive": shown, "log": here.log()})));
    }
    print(&format!("the audit log is in {}, and a new one is begun\n", safe(&shown)))
}

fn free_name(directory: &Path) -> Option<PathBuf> {
    let name = |number: u32| directory.join(format!("audit.archived-{number}"));
    (1..=MAX_ARCHIVES).map(name).find(|name| fs::symlink_metadata(name).is_err())
}

/// Moves the log and its anchor. If the log is gone, there is the anchor alone.
fn move_aside(here: &Here, target: &Path) -> anyhow::Result<()> {
    let log = here.log();
    if fs::symlink_metadata(&log).is_ok() {
        fs::rename(&log, target)?;
    } else {
        fs::create_dir(target)?;
    }
    if here.anchor.exists() {
        // It may lie on another file system.
        fs::copy(&here.anchor, target.join("anchor"))?;
        fs::remove_file(&here.anchor)?;
    }
    Ok(())
}
