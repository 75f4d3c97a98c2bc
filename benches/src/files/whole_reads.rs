//! Whole reads against `std::fs::read_to_string`, with both sides holding one text in memory.

use std::cell::RefCell;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use bowline_text::lines::LineWindow;
use bowline_workspace::workspace::{WorkspaceOptions, WorkspaceSession};

use super::comparison::{Comparison, time};
use super::data::BenchData;
use super::{BenchProgress, open_session, path_str};

/// The number of bytes in one measured time, in as many reads as that takes.
const BYTES_PER_ROUND: u64 = 64 << 20;

/// The maximum number of reads in one measured time, for small files.
const MAX_REPEATS: u64 = 500;

/// The number of files read in turn: more than fit into the 64 MiB of texts that a session keeps.
const MANY_FILES: usize = 96;

/// Measures every size, and returns each with its bytes.
pub(super) fn measure(
    data: &BenchData,
    rounds: usize,
    progress: &mut BenchProgress<'_>,
) -> Result<Vec<(u64, Comparison)>> {
    let session = open_wide_session(data, &data.root)?;
    let mut measured = Vec::new();
    for file in &data.whole_files {
        progress.report(&format!("whole reads of {} KiB", file.bytes >> 10))?;
        let repeats = (BYTES_PER_ROUND / file.bytes).clamp(1, MAX_REPEATS) as usize;
        let paths = [path_str(&file.path)?.to_owned()];
        measured.push((file.bytes, compare(&session, &paths, repeats, rounds)?));
    }
    Ok(measured)
}

/// Measures reads of many files of 1 MiB, so that the session must evict texts.
pub(super) fn measure_many(
    data: &BenchData,
    rounds: usize,
    progress: &mut BenchProgress<'_>,
) -> Result<Comparison> {
    progress.report(&format!("whole reads of {MANY_FILES} files"))?;
    let [_, file, ..] = &data.whole_files;
    let root = data.scratch.join("many");
    std::fs::create_dir_all(&root)?;
    let mut paths = Vec::new();
    for number in 0..MANY_FILES {
        let path = root.join(number.to_string());
        std::fs::copy(&file.path, &path)?;
        paths.push(path_str(&path)?.to_owned());
    }
    compare(&open_wide_session(data, &root)?, &paths, MANY_FILES, rounds)
}

fn open_wide_session(data: &BenchData, root: &Path) -> Result<WorkspaceSession> {
    let settings = WorkspaceOptions { max_read_bytes: 128 << 20, ..WorkspaceOptions::default() };
    open_session(root, &data.scratch.join("wholes"), settings)
}

/// Reads the files in turn, with a separate position for each side.
fn compare(
    session: &WorkspaceSession,
    paths: &[String],
    repeats: usize,
    rounds: usize,
) -> Result<Comparison> {
    let read = |path: &str| session.read(path, LineWindow::default()).context("cannot read the file");
    for path in paths {
        let same = *read(path)?.text == std::fs::read_to_string(path)?;
        ensure!(same, "a whole read gives another text");
    }
    let time = |act: &dyn Fn(&str) -> Result<usize>| {
        let mut turn = paths.iter().cycle();
        Ok(time(repeats, || turn.next().map_or(Ok(0), |path| act(path)))?.0)
    };
    let ours = || time(&|path| Ok(read(path)?.text.len()));
    // A server holds a text until it is sent, as a session does, so the next text cannot reuse its memory.
    let in_hand = RefCell::new(String::new());
    let theirs = || {
        time(&|path| {
            let text = std::fs::read_to_string(path)?;
            let length = text.len();
            in_hand.replace(text);
            Ok(length)
        })
    };
    Comparison::measure_alternately(rounds, ours, theirs)
}
