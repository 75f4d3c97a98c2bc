//! Growth: a large repository that is opened again and searched, against git and ripgrep, and a journal of many changes.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use bowline_workspace::history::undo::ChangeSelection;
use bowline_workspace::search::SearchQuery;
use bowline_workspace::workspace::{WatchMode, WorkspaceOptions};

use super::comparison::{Comparison, time};
use super::data::BenchData;
use super::report::MemoryGrowth;
use super::{BenchProgress, memory, open_session, path_str, scans};

/// A text that no file has.
const ABSENT_TEXT: &str = "no file of the tree has this text";

/// The number of writes that are measured together.
const MEASURED_WRITES: usize = 100;

/// The size of the measurement.
#[derive(Debug, Clone, Copy)]
pub(super) struct GrowthSize {
    /// The number of files in the repository.
    pub(super) files: usize,
    /// The number of changes in the journal.
    pub(super) changes: usize,
    pub(super) rounds: usize,
}

/// The measurements of growth.
#[derive(Debug, Default)]
pub struct GrowthTimes {
    /// The milliseconds of the first scan of a repository.
    pub first_ms: Vec<f64>,
    /// The scan of the next run, against `git status`.
    pub next: Comparison,
    /// A search without a match, against ripgrep; empty if that is not installed.
    pub search: Comparison,
    /// Writes when the journal has many changes, against the first writes.
    pub late_writes: Comparison,
    /// The milliseconds to undo all these changes.
    pub undo_ms: Vec<f64>,
    /// The memory that the first scan and that of the next run take.
    pub memory: Vec<MemoryGrowth>,
}

/// Measures the growth.
pub(super) fn measure(
    data: &BenchData,
    size: GrowthSize,
    progress: &mut BenchProgress<'_>,
) -> Result<GrowthTimes> {
    let tree = data.prepare_repository(size.files, progress)?;
    let mut growth = GrowthTimes::default();
    let state = data.scratch.join("growth");
    let open = |state: &Path| open_session(&tree, state, WorkspaceOptions::default());
    let has_ripgrep = Command::new("rg").arg("--version").stdout(Stdio::null()).status().is_ok();
    // The first round fills the page cache, and does not count.
    for round in 0..=size.rounds {
        progress.report(&format!("a repository of {} files {round}/{}", size.files, size.rounds))?;
        let (first, _) = scans::first_scan(&open(&state)?, size.files, WatchMode::IfPossible)?;
        let next = Comparison::measure_alternately(
            2,
            || Ok(scans::first_scan(&open(&state)?, size.files, WatchMode::IfPossible)?.0),
            || time_program(&tree, "git", &["status", "--short"]),
        )?;
        let session = open(&state)?;
        let mut search = Comparison::default();
        if has_ripgrep {
            search = Comparison::measure_alternately(
                2,
                || {
                    let (took, found) =
                        time(1, || Ok(session.search(&SearchQuery::literal(ABSENT_TEXT), None)?))?;
                    ensure!(found.files_searched == size.files as u64, "{} searched", found.files_searched);
                    Ok(took)
                },
                || time_program(&tree, "rg", &["--fixed-strings", ABSENT_TEXT]),
            )?;
        }
        drop(session);
        fs::remove_dir_all(&state)?;
        if round > 0 {
            growth.first_ms.push(first);
            growth.next.extend(next);
            growth.search.extend(search);
        }
    }
    growth.memory = memory::measure_scans(&tree, size.files, &state, progress)?;
    progress.report(&format!("{} changes", size.changes))?;
    measure_changes(data, size.changes, &mut growth)?;
    Ok(growth)
}

/// Returns the milliseconds that a program takes. Its status does not matter: ripgrep fails without a match.
fn time_program(directory: &Path, program: &str, arguments: &[impl AsRef<OsStr>]) -> Result<f64> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory).stdin(Stdio::null()).stdout(Stdio::null());
    let (took, _) = time(1, || command.status().with_context(|| format!("cannot run {program}")))?;
    Ok(took)
}

/// Measures writes of small files from the first to the last, and the undo of all of them.
fn measure_changes(data: &BenchData, changes: usize, growth: &mut GrowthTimes) -> Result<()> {
    let root = data.scratch.join("changes");
    fs::create_dir_all(&root)?;
    let session = open_session(&root, &data.scratch.join("changes-state"), WorkspaceOptions::default())?;
    let origin = session.origin(Some(1), Some("call"));
    let write = |number: usize| {
        let path = root.join(format!("file-{number:05}.txt"));
        Ok(session.write(path_str(&path)?, &format!("text {number}\n"), &origin)?)
    };
    let write_all = |numbers: std::ops::Range<usize>| -> Result<f64> {
        let mut numbers = numbers;
        Ok(time(numbers.len(), || write(numbers.next().context("no number")?))?.0)
    };
    let measured = MEASURED_WRITES.min(changes / 2);
    let early = write_all(0..measured)?;
    write_all(measured..changes - measured)?;
    let late = write_all(changes - measured..changes)?;
    growth.late_writes = Comparison { ours: vec![late], theirs: vec![early] };
    let (took, _) = time(1, || Ok(session.workspace().undo(&ChangeSelection::default())?))?;
    ensure!(fs::read_dir(&root)?.next().is_none(), "the undo left files");
    growth.undo_ms.push(took);
    Ok(())
}
