//! Scans of a large tree: the first, one that knows it, the first of the next run, and one that was told where to look.

use std::ops::ControlFlow;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use bowline_workspace::observer::ObserverOptions;
use bowline_workspace::workspace::{Observed, Session, Settings, Watching};

use super::data::Data;
use super::report::Scans;
use super::sides::timed;
use super::{Progress, session};

/// How many files change before a watched scan.
const CHANGED: usize = 10;

/// Measures one of each kind in every round, with a journal that is new in every round.
pub(super) fn measure(data: &Data, rounds: usize, progress: &mut Progress<'_>) -> Result<Scans> {
    let mut scans = Scans::default();
    // The first round brings the tree into memory, and does not count.
    for round in 0..=rounds {
        progress.tell(&format!("scans {round}/{rounds}"))?;
        let state = data.scratch.join(format!("scans-{round}"));
        let open = || session(&data.tree, &state, Settings::default());
        let fresh = open()?;
        let (first, _) = start(&fresh, data.tree_files, Watching::No)?;
        let (repeat, found) = timed(1, || look(&fresh))?;
        expect(&found, 0)?;
        drop(fresh);
        let again = open()?;
        let (restart, is_watched) = start(&again, data.tree_files, Watching::IfPossible)?;
        change(data, round)?;
        let (watched, found) = timed(1, || look(&again))?;
        expect(&found, CHANGED)?;
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

/// Returns what the first scan of a workspace takes, for which all small texts are read, and whether it is watched.
pub(super) fn start(session: &Session, files: usize, watching: Watching) -> Result<(f64, bool)> {
    let options = ObserverOptions::default();
    let go_on = &mut |_| ControlFlow::Continue(());
    let (took, started) =
        timed(1, || session.workspace().start_observing(options, watching, go_on).context("cannot observe"))?;
    ensure!(started.report.files == files as u64, "{} of {files} files were found", started.report.files);
    Ok((took, watching == Watching::IfPossible && started.not_watched.is_none()))
}

fn look(session: &Session) -> Result<Observed> {
    let origin = session.origin(Some(1), Some("call"));
    session.workspace().observe(&origin, &mut |_| ControlFlow::Continue(())).context("cannot observe")
}

fn change(data: &Data, round: usize) -> Result<()> {
    for number in 0..CHANGED {
        let path = changed(data, number);
        let mut content = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        content.truncate(content.find("// changed").unwrap_or(content.len()));
        std::fs::write(&path, format!("{content}// changed in round {round} by {}\n", std::process::id()))?;
    }
    Ok(())
}

/// Returns one of the files that are changed, spread over the tree.
fn changed(data: &Data, number: usize) -> PathBuf {
    let directories = data.tree_files / 100;
    let directory = directories / CHANGED * number;
    data.tree.join(format!("package-{:03}/module-{:02}/file-07.rs", directory / 20, directory % 20))
}

fn expect(found: &Observed, changes: usize) -> Result<()> {
    ensure!(found.changes.len() == changes, "{} changes were found, not {changes}", found.changes.len());
    Ok(())
}
