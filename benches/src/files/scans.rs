//! Scans of a large tree: the first, a repeated one, the first after a restart, and one of the changes that a watch
//! reported.

use std::ops::ControlFlow;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use bowline_workspace::observer::ObserverOptions;
use bowline_workspace::workspace::{ObserveReport, WatchMode, WorkspaceOptions, WorkspaceSession};

use super::comparison::time;
use super::data::BenchData;
use super::report::ScanTimes;
use super::{BenchProgress, open_session};

/// The number of files that change before a watched scan.
const CHANGED_FILES: usize = 10;

/// Measures one scan of each kind in every round, with a new journal for each round.
pub(super) fn measure(
    data: &BenchData,
    rounds: usize,
    progress: &mut BenchProgress<'_>,
) -> Result<ScanTimes> {
    let mut scans = ScanTimes::default();
    // The first round fills the page cache, and does not count.
    for round in 0..=rounds {
        progress.report(&format!("scans {round}/{rounds}"))?;
        let state = data.scratch.join(format!("scans-{round}"));
        let open = || open_session(&data.tree, &state, WorkspaceOptions::default());
        let fresh = open()?;
        let (first, _) = first_scan(&fresh, data.tree_files, WatchMode::Off)?;
        let (repeat, found) = time(1, || scan(&fresh))?;
        expect_changes(&found, 0)?;
        drop(fresh);
        let again = open()?;
        let (restart, is_watched) = first_scan(&again, data.tree_files, WatchMode::IfPossible)?;
        change_files(data, round)?;
        let (watched, found) = time(1, || scan(&again))?;
        expect_changes(&found, CHANGED_FILES)?;
        if round > 0 {
            scans.first.push(first);
            scans.repeat.push(repeat);
            scans.restart.push(restart);
            scans.watched.extend(is_watched.then_some(watched));
        }
        drop(again);
        std::fs::remove_dir_all(&state)?;
    }
    Ok(scans)
}

/// Returns the duration of a workspace's first scan, which reads all small texts, and whether the workspace is watched.
pub(super) fn first_scan(
    session: &WorkspaceSession,
    files: usize,
    watching: WatchMode,
) -> Result<(f64, bool)> {
    let options = ObserverOptions::default();
    let go_on = &mut |_| ControlFlow::Continue(());
    let (took, started) =
        time(1, || session.workspace().start_observing(options, watching, go_on).context("cannot observe"))?;
    ensure!(
        started.report.files_seen == files as u64,
        "{} of {files} files were found",
        started.report.files_seen
    );
    Ok((took, watching == WatchMode::IfPossible && started.watcher_error.is_none()))
}

fn scan(session: &WorkspaceSession) -> Result<ObserveReport> {
    let origin = session.origin(Some(1), Some("call"));
    session.workspace().observe(&origin, &mut |_| ControlFlow::Continue(())).context("cannot observe")
}

fn change_files(data: &BenchData, round: usize) -> Result<()> {
    for number in 0..CHANGED_FILES {
        let path = changed_path(data, number);
        let mut content = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        content.truncate(content.find("// changed").unwrap_or(content.len()));
        std::fs::write(&path, format!("{content}// changed in round {round} by {}\n", std::process::id()))?;
    }
    Ok(())
}

/// Returns one of the changed files, which are spread over the tree.
fn changed_path(data: &BenchData, number: usize) -> PathBuf {
    let directories = data.tree_files / 100;
    let directory = directories / CHANGED_FILES * number;
    data.tree.join(format!("package-{:03}/module-{:02}/file-07.rs", directory / 20, directory % 20))
}

fn expect_changes(found: &ObserveReport, changes: usize) -> Result<()> {
    ensure!(found.changes.len() == changes, "{} changes were found, not {changes}", found.changes.len());
    Ok(())
}
