//! Journalled writes against a plain write that is atomic and durable.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use bowline_state::ledger::Verdict;
use bowline_state::lines::Window;
use bowline_workspace::workspace::Settings;

use super::data::{Data, Text};
use super::sides::{Sides, timed};
use super::{Progress, session, text};

/// The sizes that are written.
const SIZES: [usize; 2] = [16 << 10, 256 << 10];

/// Measures edits of a file one after the other, as an agent makes them: each changes a line of what the last one left.
pub(super) fn measure_edits(
    data: &Data,
    rounds: usize,
    progress: &mut Progress<'_>,
) -> Result<Vec<(u64, Sides)>> {
    let root = data.scratch.join("edited");
    std::fs::create_dir_all(&root)?;
    let session = session(&root, &data.scratch.join("edits"), Settings::default())?;
    let mut measured = Vec::new();
    for size in SIZES {
        progress.tell(&format!("durable edits of {} KiB", size >> 10))?;
        let ours = root.join(format!("ours-{size}"));
        let theirs = root.join(format!("theirs-{size}"));
        let text_of_file = Text::new(size as u64).of_bytes(size);
        put(&ours, &text_of_file)?;
        put(&theirs, &text_of_file)?;
        let path = text(&ours)?;
        session.read(path, Window::default()).context("cannot read the file")?;
        let (mut our_edits, mut their_edits) = (0, 0);
        let our_write = || {
            our_edits += 1;
            let after = format!("edit {our_edits}\n{text_of_file}");
            let origin = session.origin(Some(1), Some("call"));
            let (took, written) =
                timed(1, || session.write(path, &after, &origin).context("cannot write the file"))?;
            ensure!(
                written.verdict == Some(Verdict::Replaced),
                "it came about otherwise: {:?}",
                written.verdict
            );
            Ok(took)
        };
        let their_write = || {
            their_edits += 1;
            let after = format!("edit {their_edits}\n{text_of_file}");
            Ok(timed(1, || plain_write(&root, &theirs, &after))?.0)
        };
        measured.push((size as u64, Sides::by_turns(rounds, our_write, their_write)?));
    }
    Ok(measured)
}

/// Measures every size; each with its bytes.
///
/// Before every write the file has a text that the journal never saw, so that both texts have to be stored.
pub(super) fn measure(data: &Data, rounds: usize, progress: &mut Progress<'_>) -> Result<Vec<(u64, Sides)>> {
    let root = data.scratch.join("written");
    std::fs::create_dir_all(&root)?;
    let session = session(&root, &data.scratch.join("writes"), Settings::default())?;
    let mut measured = Vec::new();
    for size in SIZES {
        progress.tell(&format!("durable writes of {} KiB", size >> 10))?;
        let ours = root.join(format!("ours-{size}"));
        let theirs = root.join(format!("theirs-{size}"));
        let mut our_texts = Text::new(size as u64);
        let mut their_texts = Text::new(size as u64);
        let our_write = || {
            let (before, after) = (our_texts.of_bytes(size), our_texts.of_bytes(size));
            put(&ours, &before)?;
            let path = text(&ours)?;
            session.read(path, Window::default()).context("cannot read the file")?;
            let origin = session.origin(Some(1), Some("call"));
            let (took, written) =
                timed(1, || session.write(path, &after, &origin).context("cannot write the file"))?;
            let replaced = written.verdict == Some(Verdict::Replaced) && written.change.is_some();
            ensure!(replaced, "the write came about otherwise: {:?}", written.verdict);
            Ok(took)
        };
        let their_write = || {
            let (before, after) = (their_texts.of_bytes(size), their_texts.of_bytes(size));
            put(&theirs, &before)?;
            std::fs::read_to_string(&theirs)?;
            Ok(timed(1, || plain_write(&root, &theirs, &after))?.0)
        };
        measured.push((size as u64, Sides::by_turns(rounds, our_write, their_write)?));
    }
    Ok(measured)
}

/// Puts a file on the disk, so that nothing of it is left to be written back later.
pub(super) fn put(path: &Path, content: &str) -> Result<()> {
    let mut file = File::create(path)?;
    file.write_all(content.as_bytes())?;
    Ok(file.sync_all()?)
}

/// Writes a file in one step that outlasts a power cut.
pub(crate) fn plain_write(directory: &Path, path: &Path, content: &str) -> Result<()> {
    let temp = path.with_extension("tmp");
    put(&temp, content)?;
    std::fs::rename(&temp, path)?;
    Ok(File::open(directory)?.sync_all()?)
}
