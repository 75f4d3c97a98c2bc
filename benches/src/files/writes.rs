//! Journalled writes against a plain atomic, durable write.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use bowline_history::ledger::WriteVerdict;
use bowline_text::lines::LineWindow;
use bowline_workspace::workspace::WorkspaceOptions;

use super::comparison::{Comparison, time};
use super::data::{BenchData, TextGenerator};
use super::{BenchProgress, open_session, path_str};

/// The sizes of the written files.
const SIZES: [usize; 2] = [16 << 10, 256 << 10];

/// Measures consecutive edits of a file, as an agent makes them: each changes a line of the previous result.
pub(super) fn measure_edits(
    data: &BenchData,
    rounds: usize,
    progress: &mut BenchProgress<'_>,
) -> Result<Vec<(u64, Comparison)>> {
    let root = data.scratch.join("edited");
    std::fs::create_dir_all(&root)?;
    let session = open_session(&root, &data.scratch.join("edits"), WorkspaceOptions::default())?;
    let mut measured = Vec::new();
    for size in SIZES {
        progress.report(&format!("durable edits of {} KiB", size >> 10))?;
        let ours = root.join(format!("ours-{size}"));
        let theirs = root.join(format!("theirs-{size}"));
        let text_of_file = TextGenerator::new(size as u64).next_bytes(size);
        write_durably(&ours, &text_of_file)?;
        write_durably(&theirs, &text_of_file)?;
        let path = path_str(&ours)?;
        session.read(path, LineWindow::default()).context("cannot read the file")?;
        let (mut our_edits, mut their_edits) = (0, 0);
        let our_write = || {
            our_edits += 1;
            let after = format!("edit {our_edits}\n{text_of_file}");
            let origin = session.origin(Some(1), Some("call"));
            let (took, written) =
                time(1, || session.write(path, &after, &origin).context("cannot write the file"))?;
            ensure!(
                written.verdict == Some(WriteVerdict::Replaced),
                "it came about otherwise: {:?}",
                written.verdict
            );
            Ok(took)
        };
        let their_write = || {
            their_edits += 1;
            let after = format!("edit {their_edits}\n{text_of_file}");
            Ok(time(1, || replace_durably(&root, &theirs, &after))?.0)
        };
        measured.push((size as u64, Comparison::measure_alternately(rounds, our_write, their_write)?));
    }
    Ok(measured)
}

/// Measures every size, and returns each with its bytes.
///
/// Before every write the file has a text that the journal does not have, so that both texts must be stored.
pub(super) fn measure(
    data: &BenchData,
    rounds: usize,
    progress: &mut BenchProgress<'_>,
) -> Result<Vec<(u64, Comparison)>> {
    let root = data.scratch.join("written");
    std::fs::create_dir_all(&root)?;
    let session = open_session(&root, &data.scratch.join("writes"), WorkspaceOptions::default())?;
    let mut measured = Vec::new();
    for size in SIZES {
        progress.report(&format!("durable writes of {} KiB", size >> 10))?;
        let ours = root.join(format!("ours-{size}"));
        let theirs = root.join(format!("theirs-{size}"));
        let mut our_texts = TextGenerator::new(size as u64);
        let mut their_texts = TextGenerator::new(size as u64);
        let our_write = || {
            let (before, after) = (our_texts.next_bytes(size), our_texts.next_bytes(size));
            write_durably(&ours, &before)?;
            let path = path_str(&ours)?;
            session.read(path, LineWindow::default()).context("cannot read the file")?;
            let origin = session.origin(Some(1), Some("call"));
            let (took, written) =
                time(1, || session.write(path, &after, &origin).context("cannot write the file"))?;
            let replaced = written.verdict == Some(WriteVerdict::Replaced) && written.change.is_some();
            ensure!(replaced, "the write came about otherwise: {:?}", written.verdict);
            Ok(took)
        };
        let their_write = || {
            let (before, after) = (their_texts.next_bytes(size), their_texts.next_bytes(size));
            write_durably(&theirs, &before)?;
            std::fs::read_to_string(&theirs)?;
            Ok(time(1, || replace_durably(&root, &theirs, &after))?.0)
        };
        measured.push((size as u64, Comparison::measure_alternately(rounds, our_write, their_write)?));
    }
    Ok(measured)
}

/// Writes a file and syncs it, so that no write-back is left for later.
pub(super) fn write_durably(path: &Path, content: &str) -> Result<()> {
    let mut file = File::create(path)?;
    file.write_all(content.as_bytes())?;
    Ok(file.sync_all()?)
}

/// Replaces a file atomically and durably.
pub(crate) fn replace_durably(directory: &Path, path: &Path, content: &str) -> Result<()> {
    let temp = path.with_extension("tmp");
    write_durably(&temp, content)?;
    std::fs::rename(&temp, path)?;
    Ok(File::open(directory)?.sync_all()?)
}
