//! The benchmark of files: the workspace engine against what peers do with the same bytes, on a real disk, in one run.

pub(crate) mod data;
pub(crate) mod memory;
mod options;
pub(crate) mod report;
mod scans;
mod sides;
mod texts;
mod wholes;
mod windows;
pub(crate) mod writes;

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use bowline_workspace::roots::{RootSpec, Roots};
use bowline_workspace::workspace::{Session, Settings, Workspace};

use crate::bench::machine::Usage;
use data::Data;

pub use memory::Operation;
pub use options::{Options, Task};
pub use report::{Grown, Measured, Report, Scans};
pub use sides::Sides;
pub use windows::{Position, Spot};

/// How much a run does.
#[derive(Debug, Clone, Copy)]
struct Extent {
    /// The bytes of the file that windows are read from.
    huge: u64,
    /// How many files the scanned tree has.
    tree: usize,
    window_rounds: usize,
    whole_rounds: usize,
    write_rounds: usize,
    text_rounds: usize,
    scan_rounds: usize,
}

const FULL: Extent = Extent {
    huge: 1 << 30,
    tree: 100_000,
    window_rounds: 7,
    whole_rounds: 31,
    write_rounds: 41,
    text_rounds: 7,
    scan_rounds: 5,
};

const QUICK: Extent = Extent {
    huge: 256 << 20,
    tree: 20_000,
    window_rounds: 3,
    whole_rounds: 9,
    write_rounds: 15,
    text_rounds: 3,
    scan_rounds: 3,
};

/// Says what goes on, and when.
pub(crate) struct Progress<'p> {
    pub(crate) begun: Instant,
    pub(crate) to: &'p mut dyn Write,
}

impl Progress<'_> {
    pub(crate) fn tell(&mut self, text: &str) -> Result<()> {
        let seconds = self.begun.elapsed().as_secs_f64();
        writeln!(self.to, "{seconds:5.1} s  {text}").context("cannot say what goes on")
    }
}

/// Measures everything and reports; `progress` is told what goes on.
///
/// # Errors
/// Fails if there is no room for the data, if something cannot be done, and if the engine gives another text than a
/// plain read does.
pub fn run(options: &Options, progress: &mut dyn Write) -> Result<Report> {
    let extent = if options.quick { QUICK } else { FULL };
    let mut progress = Progress { begun: Instant::now(), to: progress };
    let data = Data::prepare(&options.data, extent.huge, extent.tree, &mut progress)?;
    let usage = Usage::now()?;
    let progress = &mut progress;
    let windows = windows::measure(&data, extent.window_rounds, progress)?;
    let wholes = wholes::measure(&data, extent.whole_rounds, progress)?;
    let many = wholes::measure_many(&data, extent.whole_rounds, progress)?;
    let edits = writes::measure_edits(&data, extent.write_rounds, progress)?;
    let writes = writes::measure(&data, extent.write_rounds, progress)?;
    let (diff_ms, merge_ms) = texts::measure(extent.text_rounds, progress)?;
    let scans = scans::measure(&data, extent.scan_rounds, progress)?;
    let grown = memory::measure(&data, progress)?;
    let others = usage.others_since()?;
    progress.tell("done")?;
    let measured = Measured { windows, wholes, many, edits, writes, diff_ms, merge_ms, scans, grown, others };
    Ok(Report::new(measured))
}

/// Opens a workspace of which nothing is known yet, and a session in it.
fn session(root: &Path, state: &Path, settings: Settings) -> Result<Session> {
    let root = text(root)?;
    let roots = Roots::open(&RootSpec::writable(root), &[]).with_context(|| format!("cannot open {root}"))?;
    let opened = Workspace::open(roots, state, settings).context("cannot open the workspace")?;
    Ok(opened.workspace.session("bench"))
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}
