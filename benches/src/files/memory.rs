//! The memory growth of single operations, each in a child process of its own, because a peak never goes down.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use bowline_text::lines::LineWindow;
use bowline_workspace::error::FilesError;
use bowline_workspace::workspace::{WatchMode, WorkspaceOptions};

use super::data::{BenchData, GeneratedFile, TextGenerator};
use super::report::MemoryGrowth;
use super::window_reads::WindowPosition;
use super::{BenchProgress, open_session, path_str, scans, writes};

/// The sizes of the written files.
const WRITE_SIZES: [usize; 2] = [256 << 10, 8 << 20];

/// An operation to be measured in a process of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryOperation {
    kind: MemoryOperationKind,
    // A file, or the tree. Its directory is the root.
    path: PathBuf,
    // The journal's directory.
    state: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MemoryOperationKind {
    /// Reads a window at this line, twice.
    Window { line: u32, limit: u32 },
    /// Reads the whole file.
    Whole,
    /// Reads the whole file, which must be refused.
    Refused,
    /// Writes other text of this size.
    Write { bytes: usize },
    /// Scans this many files for the first time.
    Scan { files: usize },
}

impl MemoryOperation {
    /// Parses the output of [`arguments`](Self::arguments).
    pub(super) fn from_arguments(given: impl Iterator<Item = String>) -> Result<Self> {
        let given: Vec<_> = given.collect();
        let [what, path, state] = given.as_slice() else { bail!("--grow is for the program itself") };
        let words: Vec<_> = what.split(' ').collect();
        let what = match words.as_slice() {
            ["window", line, limit] => {
                MemoryOperationKind::Window { line: line.parse()?, limit: limit.parse()? }
            }
            ["whole"] => MemoryOperationKind::Whole,
            ["refused"] => MemoryOperationKind::Refused,
            ["write", bytes] => MemoryOperationKind::Write { bytes: bytes.parse()? },
            ["scan", files] => MemoryOperationKind::Scan { files: files.parse()? },
            _ => bail!("nothing is called {what}"),
        };
        Ok(Self { kind: what, path: path.into(), state: state.into() })
    }

    fn arguments(&self) -> Result<[String; 3]> {
        let what = match self.kind {
            MemoryOperationKind::Window { line, limit } => format!("window {line} {limit}"),
            MemoryOperationKind::Whole => "whole".to_owned(),
            MemoryOperationKind::Refused => "refused".to_owned(),
            MemoryOperationKind::Write { bytes } => format!("write {bytes}"),
            MemoryOperationKind::Scan { files } => format!("scan {files}"),
        };
        Ok([what, path_str(&self.path)?.to_owned(), path_str(&self.state)?.to_owned()])
    }

    /// Runs the operation, and returns the growth of the process's peak memory in KiB.
    ///
    /// # Errors
    /// Fails if the operation fails or has the wrong result.
    pub fn measure_growth_kib(&self) -> Result<u64> {
        let root = match self.kind {
            MemoryOperationKind::Scan { .. } => self.path.as_path(),
            _ => self.path.parent().context("no directory")?,
        };
        let session = open_session(root, &self.state, WorkspaceOptions::default())?;
        let path = path_str(&self.path)?;
        let read = |window| session.read(path, window);
        match self.kind {
            MemoryOperationKind::Window { line, limit } => measure_peak_growth(|| {
                let window = LineWindow { line: Some(line), limit: Some(limit) };
                let (first, again) = (read(window)?, read(window)?);
                ensure!(first.text == again.text, "the second window is another than the first");
                Ok((first, again))
            }),
            MemoryOperationKind::Whole => measure_peak_growth(|| Ok(read(LineWindow::default())?)),
            MemoryOperationKind::Refused => measure_peak_growth(|| match read(LineWindow::default()) {
                Err(FilesError::TooLarge { .. }) => Ok(()),
                other => bail!("the whole file was not refused: {:?}", other.map(|read| read.text.len())),
            }),
            MemoryOperationKind::Write { bytes } => {
                read(LineWindow::default())?;
                let content = TextGenerator::new(2).next_bytes(bytes);
                let origin = session.origin(Some(1), Some("call"));
                measure_peak_growth(|| Ok(session.write(path, &content, &origin)?))
            }
            MemoryOperationKind::Scan { files } => {
                measure_peak_growth(|| scans::first_scan(&session, files, WatchMode::Off))
            }
        }
    }
}

/// Runs every operation in a process of its own.
pub(super) fn measure(data: &BenchData, progress: &mut BenchProgress<'_>) -> Result<Vec<MemoryGrowth>> {
    let [_, _, readable, large] = &data.whole_files;
    let mut grown = Vec::new();
    let mut add = |name: &str, file_mib: u64, what, path: &Path| -> Result<()> {
        progress.report(&format!("memory: {name}"))?;
        let state = data.scratch.join(format!("grow-{}", grown.len()));
        let mib = run_in_child(&MemoryOperation { kind: what, path: path.to_owned(), state })?;
        let is_window = matches!(what, MemoryOperationKind::Window { .. });
        grown.push(MemoryGrowth { name: name.to_owned(), file_mib, is_window, mib });
        Ok(())
    };
    let mib = |file: &GeneratedFile| file.bytes >> 20;
    for file in [large, &data.huge_file] {
        let lines = file.count_lines()?;
        for position in WindowPosition::ALL {
            let LineWindow { line, limit } = position.window(lines);
            let what =
                MemoryOperationKind::Window { line: line.unwrap_or(1), limit: limit.unwrap_or_default() };
            add(&format!("window {}", position.name()), mib(file), what, &file.path)?;
        }
    }
    add("whole read", mib(readable), MemoryOperationKind::Whole, &readable.path)?;
    add("whole read refused", mib(&data.huge_file), MemoryOperationKind::Refused, &data.huge_file.path)?;
    let written = data.scratch.join("grow.txt");
    for bytes in WRITE_SIZES {
        writes::write_durably(&written, &TextGenerator::new(1).next_bytes(bytes))?;
        add(&format!("write {} KiB", bytes >> 10), 0, MemoryOperationKind::Write { bytes }, &written)?;
    }
    add(
        &format!("first scan, {} files", data.tree_files),
        0,
        MemoryOperationKind::Scan { files: data.tree_files },
        &data.tree,
    )?;
    Ok(grown)
}

/// Measures the first scan of a tree, and that of the next run.
pub(super) fn measure_scans(
    tree: &Path,
    files: usize,
    state: &Path,
    progress: &mut BenchProgress<'_>,
) -> Result<Vec<MemoryGrowth>> {
    let scan = |name: &str| -> Result<MemoryGrowth> {
        let kind = MemoryOperationKind::Scan { files };
        let mib = run_in_child(&MemoryOperation { kind, path: tree.to_owned(), state: state.to_owned() })?;
        let name = format!("{name}, repository of {files} files");
        Ok(MemoryGrowth { name, file_mib: 0, is_window: false, mib })
    };
    progress.report("memory: scans of the repository")?;
    let grown = vec![scan("first scan")?, scan("scan of the next run")?];
    std::fs::remove_dir_all(state)?;
    Ok(grown)
}

fn run_in_child(operation: &MemoryOperation) -> Result<f64> {
    let mut child = Command::new(std::env::current_exe()?);
    child.arg("--grow").args(operation.arguments()?).stderr(Stdio::inherit());
    let output = child.output().context("cannot start another bench-files")?;
    ensure!(output.status.success(), "{operation:?} ended with {}", output.status);
    let kib: u64 = String::from_utf8(output.stdout)?.trim().parse().context("no number came")?;
    Ok(kib as f64 / 1024.0)
}

/// Returns how far the peak memory during an action exceeds the memory before it, in KiB.
pub(crate) fn measure_peak_growth<T>(act: impl FnOnce() -> Result<T>) -> Result<u64> {
    // Resets the peak. Where the system does not permit that, the growth comes out too large, never too small.
    std::fs::write("/proc/self/clear_refs", "5").ok();
    let before = status_kib("VmRSS:")?;
    let result = act()?;
    let peak = status_kib("VmHWM:")?;
    drop(result);
    Ok(peak.saturating_sub(before))
}

fn status_kib(name: &str) -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").context("cannot read /proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok());
    kib.with_context(|| format!("no {name} in /proc/self/status"))
}
