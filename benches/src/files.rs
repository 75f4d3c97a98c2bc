//! The files benchmark: the workspace engine against the plain file access of other programs, on the same bytes and a
//! real disk, in one run.

mod comparison;
pub(crate) mod data;
mod diff_merge;
mod extension;
mod growth;
pub(crate) mod memory;
mod options;
pub(crate) mod report;
mod scans;
mod whole_reads;
mod window_reads;
pub(crate) mod writes;

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use bowline_workspace::roots::{RootSpec, Roots};
use bowline_workspace::workspace::{Workspace, WorkspaceOptions, WorkspaceSession};

use crate::wire::machine::CpuUsage;
use data::BenchData;
use growth::GrowthSize;

pub use comparison::Comparison;
pub use extension::ExtensionTimes;
pub use growth::GrowthTimes;
pub use memory::MemoryOperation;
pub use options::{FilesBenchCommand, FilesBenchOptions, FilesBenchPart};
pub use report::{FilesBenchReport, FilesMeasurements, MemoryGrowth, ScanTimes};
pub use window_reads::{WindowPosition, WindowTimes};

/// The size of a run.
#[derive(Debug, Clone, Copy)]
struct FilesBenchSize {
    /// The size of the file that windows are read from.
    huge_bytes: u64,
    /// The number of files in the scanned tree.
    tree_files: usize,
    window_rounds: usize,
    whole_rounds: usize,
    write_rounds: usize,
    text_rounds: usize,
    extension_rounds: usize,
    scan_rounds: usize,
    growth: GrowthSize,
}

const FULL: FilesBenchSize = FilesBenchSize {
    huge_bytes: 1 << 30,
    tree_files: 100_000,
    window_rounds: 7,
    whole_rounds: 31,
    write_rounds: 41,
    text_rounds: 7,
    extension_rounds: 7,
    scan_rounds: 5,
    growth: GrowthSize { files: 200_000, changes: 20_000, rounds: 3 },
};

const QUICK: FilesBenchSize = FilesBenchSize {
    huge_bytes: 256 << 20,
    tree_files: 20_000,
    window_rounds: 3,
    whole_rounds: 9,
    write_rounds: 15,
    text_rounds: 3,
    extension_rounds: 3,
    scan_rounds: 3,
    growth: GrowthSize { files: 20_000, changes: 2_000, rounds: 2 },
};

/// Reports progress, with the elapsed time.
pub(crate) struct BenchProgress<'p> {
    pub(crate) started: Instant,
    pub(crate) output: &'p mut dyn Write,
}

impl BenchProgress<'_> {
    pub(crate) fn report(&mut self, text: &str) -> Result<()> {
        let seconds = self.started.elapsed().as_secs_f64();
        writeln!(self.output, "{seconds:5.1} s  {text}").context("cannot say what goes on")
    }
}

/// Measures everything and returns the report; writes messages to `progress`.
///
/// # Errors
/// Fails if the disk lacks space for the data, if an operation fails, and if the engine's text differs from that of a
/// plain read.
pub fn run(options: &FilesBenchOptions, progress: &mut dyn Write) -> Result<FilesBenchReport> {
    let extent = if options.quick { QUICK } else { FULL };
    let mut progress = BenchProgress { started: Instant::now(), output: progress };
    if let Some(part) = options.only {
        let data = BenchData::prepare(&options.data, 0, 1, &mut progress)?;
        let usage = CpuUsage::now()?;
        let mut measured = FilesMeasurements::default();
        match part {
            FilesBenchPart::Extension => {
                measured.extension = extension::measure(&data, extent.extension_rounds, &mut progress)?;
            }
            FilesBenchPart::Growth => measured.growth = growth::measure(&data, extent.growth, &mut progress)?,
        }
        measured.other_cores = usage.other_cores_since()?;
        return Ok(FilesBenchReport::new(measured));
    }
    let data = BenchData::prepare(&options.data, extent.huge_bytes, extent.tree_files, &mut progress)?;
    let usage = CpuUsage::now()?;
    let progress = &mut progress;
    let windows = window_reads::measure(&data, extent.window_rounds, progress)?;
    let wholes = whole_reads::measure(&data, extent.whole_rounds, progress)?;
    let many = whole_reads::measure_many(&data, extent.whole_rounds, progress)?;
    let edits = writes::measure_edits(&data, extent.write_rounds, progress)?;
    let writes = writes::measure(&data, extent.write_rounds, progress)?;
    let (diff_ms, merge_ms) = diff_merge::measure(extent.text_rounds, progress)?;
    let extension = extension::measure(&data, extent.extension_rounds, progress)?;
    let scans = scans::measure(&data, extent.scan_rounds, progress)?;
    let grown = memory::measure(&data, progress)?;
    let growth = growth::measure(&data, extent.growth, progress)?;
    let others = usage.other_cores_since()?;
    progress.report("done")?;
    let measured = FilesMeasurements {
        windows,
        whole_reads: wholes,
        many_reads: many,
        edits,
        writes,
        diff_ms,
        merge_ms,
        extension,
        scans,
        memory_growths: grown,
        growth,
        other_cores: others,
    };
    Ok(FilesBenchReport::new(measured))
}

/// Opens a new workspace, and a session in it.
fn open_session(root: &Path, state: &Path, settings: WorkspaceOptions) -> Result<WorkspaceSession> {
    let root = path_str(root)?;
    let roots = Roots::open(&RootSpec::writable(root), &[]).with_context(|| format!("cannot open {root}"))?;
    let opened = Workspace::open(roots, state, settings).context("cannot open the workspace")?;
    Ok(opened.workspace.session("bench"))
}

fn path_str(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}
