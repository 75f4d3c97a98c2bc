//! By how much memory a process grows that does one thing: a child each, because a peak never goes down.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use bowline_state::lines::Window;
use bowline_workspace::error::FilesError;
use bowline_workspace::workspace::{Settings, Watching};

use super::data::{Data, Lines, Text};
use super::report::Grown;
use super::windows::Position;
use super::{Progress, scans, session, text, writes};

/// The bytes of the files that are written.
const WRITTEN: [usize; 2] = [256 << 10, 8 << 20];

/// One thing that a process does to be measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    what: What,
    // A file, or the tree. Its directory is the root.
    path: PathBuf,
    // The journal's directory.
    state: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// A window at this line, twice.
    Window { line: u32, limit: u32 },
    /// The whole file.
    Whole,
    /// The whole file, which has to be refused.
    Refused,
    /// Other text of so many bytes.
    Write { bytes: usize },
    /// The first scan of so many files.
    Scan { files: usize },
}

impl Operation {
    /// Reads what [`arguments`](Self::arguments) wrote.
    pub(super) fn from_arguments(given: impl Iterator<Item = String>) -> Result<Self> {
        let given: Vec<_> = given.collect();
        let [what, path, state] = given.as_slice() else { bail!("--grow is for the program itself") };
        let words: Vec<_> = what.split(' ').collect();
        let what = match words.as_slice() {
            ["window", line, limit] => What::Window { line: line.parse()?, limit: limit.parse()? },
            ["whole"] => What::Whole,
            ["refused"] => What::Refused,
            ["write", bytes] => What::Write { bytes: bytes.parse()? },
            ["scan", files] => What::Scan { files: files.parse()? },
            _ => bail!("nothing is called {what}"),
        };
        Ok(Self { what, path: path.into(), state: state.into() })
    }

    fn arguments(&self) -> Result<[String; 3]> {
        let what = match self.what {
            What::Window { line, limit } => format!("window {line} {limit}"),
            What::Whole => "whole".to_owned(),
            What::Refused => "refused".to_owned(),
            What::Write { bytes } => format!("write {bytes}"),
            What::Scan { files } => format!("scan {files}"),
        };
        Ok([what, text(&self.path)?.to_owned(), text(&self.state)?.to_owned()])
    }

    /// Does it, and returns by how many KiB the process's peak lies above what it had before.
    ///
    /// # Errors
    /// Fails if it cannot be done, or not in the way it should.
    pub fn grown_kib(&self) -> Result<u64> {
        let root = match self.what {
            What::Scan { .. } => self.path.as_path(),
            _ => self.path.parent().context("no directory")?,
        };
        let session = session(root, &self.state, Settings::default())?;
        let path = text(&self.path)?;
        let read = |window| session.read(path, window);
        match self.what {
            What::Window { line, limit } => growth(|| {
                let window = Window { line: Some(line), limit: Some(limit) };
                let (first, again) = (read(window)?, read(window)?);
                ensure!(first.text == again.text, "the second window is another than the first");
                Ok((first, again))
            }),
            What::Whole => growth(|| Ok(read(Window::default())?)),
            What::Refused => growth(|| match read(Window::default()) {
                Err(FilesError::TooLarge { .. }) => Ok(()),
                other => bail!("the whole file was not refused: {:?}", other.map(|read| read.text.len())),
            }),
            What::Write { bytes } => {
                read(Window::default())?;
                let content = Text::new(2).of_bytes(bytes);
                let origin = session.origin(Some(1), Some("call"));
                growth(|| Ok(session.write(path, &content, &origin)?))
            }
            What::Scan { files } => growth(|| scans::start(&session, files, Watching::No)),
        }
    }
}

/// Does every operation in a process of its own.
pub(super) fn measure(data: &Data, progress: &mut Progress<'_>) -> Result<Vec<Grown>> {
    let [_, _, readable, large] = &data.wholes;
    let mut grown = Vec::new();
    let mut add = |name: &str, file_mib: u64, what, path: &Path| -> Result<()> {
        progress.tell(&format!("memory: {name}"))?;
        let state = data.scratch.join(format!("grow-{}", grown.len()));
        let mib = in_a_child(&Operation { what, path: path.to_owned(), state })?;
        let is_window = matches!(what, What::Window { .. });
        grown.push(Grown { name: name.to_owned(), file_mib, is_window, mib });
        Ok(())
    };
    let mib = |file: &Lines| file.bytes >> 20;
    for file in [large, &data.huge] {
        let lines = file.count()?;
        for position in Position::ALL {
            let Window { line, limit } = position.window(lines);
            let what = What::Window { line: line.unwrap_or(1), limit: limit.unwrap_or_default() };
            add(&format!("window {}", position.name()), mib(file), what, &file.path)?;
        }
    }
    add("whole read", mib(readable), What::Whole, &readable.path)?;
    add("whole read refused", mib(&data.huge), What::Refused, &data.huge.path)?;
    let written = data.scratch.join("grow.txt");
    for bytes in WRITTEN {
        writes::put(&written, &Text::new(1).of_bytes(bytes))?;
        add(&format!("write {} KiB", bytes >> 10), 0, What::Write { bytes }, &written)?;
    }
    add(
        &format!("first scan, {} files", data.tree_files),
        0,
        What::Scan { files: data.tree_files },
        &data.tree,
    )?;
    Ok(grown)
}

fn in_a_child(operation: &Operation) -> Result<f64> {
    let mut child = Command::new(std::env::current_exe()?);
    child.arg("--grow").args(operation.arguments()?).stderr(Stdio::inherit());
    let output = child.output().context("cannot start another bench-files")?;
    ensure!(output.status.success(), "{operation:?} ended with {}", output.status);
    let kib: u64 = String::from_utf8(output.stdout)?.trim().parse().context("no number came")?;
    Ok(kib as f64 / 1024.0)
}

/// Returns by how many KiB the peak of an act lies above what the process had before.
pub(crate) fn growth<T>(act: impl FnOnce() -> Result<T>) -> Result<u64> {
    // Forgets the peak until now. Where the system does not allow it, the growth comes out too large, not too small.
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
