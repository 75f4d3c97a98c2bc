//! Whole reads against `std::fs::read_to_string`, with one text in hand on either side.

use std::cell::RefCell;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use bowline_state::lines::Window;
use bowline_workspace::workspace::{Session, Settings};

use super::data::Data;
use super::sides::{Sides, timed};
use super::{Progress, session, text};

/// One measured time is of about so many bytes, in as many reads as that takes.
const BYTES_A_ROUND: u64 = 64 << 20;

/// More reads than this are not needed for one time, however small the file.
const MOST_REPEATS: u64 = 500;

/// How many different files are read in turn: more than a session holds the texts of, which are 64 MiB.
const MANY: usize = 96;

/// Measures every size; each with its bytes.
pub(super) fn measure(data: &Data, rounds: usize, progress: &mut Progress<'_>) -> Result<Vec<(u64, Sides)>> {
    let session = open(data, &data.root)?;
    let mut measured = Vec::new();
    for file in &data.wholes {
        progress.tell(&format!("whole reads of {} KiB", file.bytes >> 10))?;
        let repeats = (BYTES_A_ROUND / file.bytes).clamp(1, MOST_REPEATS) as usize;
        let paths = [text(&file.path)?.to_owned()];
        measured.push((file.bytes, compare(&session, &paths, repeats, rounds)?));
    }
    Ok(measured)
}

/// Measures reads of many files of 1 MiB, so that the session has to let go of texts that it saw.
pub(super) fn measure_many(data: &Data, rounds: usize, progress: &mut Progress<'_>) -> Result<Sides> {
    progress.tell(&format!("whole reads of {MANY} files"))?;
    let [_, file, ..] = &data.wholes;
    let root = data.scratch.join("many");
    std::fs::create_dir_all(&root)?;
    let mut paths = Vec::new();
    for number in 0..MANY {
        let path = root.join(number.to_string());
        std::fs::copy(&file.path, &path)?;
        paths.push(text(&path)?.to_owned());
    }
    compare(&open(data, &root)?, &paths, MANY, rounds)
}

fn open(data: &Data, root: &Path) -> Result<Session> {
    let settings = Settings { max_read: 128 << 20, ..Settings::default() };
    session(root, &data.scratch.join("wholes"), settings)
}

/// Reads the files in turn, each side on its own way through them.
fn compare(session: &Session, paths: &[String], repeats: usize, rounds: usize) -> Result<Sides> {
    let read = |path: &str| session.read(path, Window::default()).context("cannot read the file");
    for path in paths {
        let same = *read(path)?.text == std::fs::read_to_string(path)?;
        ensure!(same, "a whole read gives another text");
    }
    let time = |act: &dyn Fn(&str) -> Result<usize>| {
        let mut turn = paths.iter().cycle();
        Ok(timed(repeats, || turn.next().map_or(Ok(0), |path| act(path)))?.0)
    };
    let ours = || time(&|path| Ok(read(path)?.text.len()));
    // Who serves files has a text in hand until it is sent, as a session has: the next one does not get its memory.
    let in_hand = RefCell::new(String::new());
    let theirs = || {
        time(&|path| {
            let text = std::fs::read_to_string(path)?;
            let length = text.len();
            in_hand.replace(text);
            Ok(length)
        })
    };
    Sides::by_turns(rounds, ours, theirs)
}
