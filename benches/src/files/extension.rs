//! The operations of the file extension: a large directory against `readdir`, a batch of writes against single writes,
//! appends to a large file against appends to an empty one, and bytes in base64 against a plain read.

use std::fs;

use anyhow::{Context, Result, anyhow, ensure};
use bowline_policy::paths::Access;
use bowline_protocol::file_extension::{
    BatchFilesRequest, FileLimits, FileOperation, ListDirectoryRequest, ReadFileRequest, ReadParams,
    WriteFileRequest, WriteParams,
};
use bowline_workspace::workspace::{WorkspaceOptions, WorkspaceSession};

use super::comparison::{Comparison, time};
use super::data::BenchData;
use super::{BenchProgress, open_session, path_str};

/// The number of entries of the listed directory.
const ENTRIES: usize = 10_000;

/// The number of files that a batch writes.
const BATCH_FILES: usize = 1000;

/// The number of appends, and the bytes of each.
const APPENDS: usize = 1000;
const APPEND_BYTES: usize = 100;

/// The size of the large file that is appended to.
const APPENDED_FILE_BYTES: usize = 100_000_000;

/// The size of the file that is read in base64.
const BASE64_BYTES: u64 = 64 << 20;

/// The measurements of the file extension.
#[derive(Debug, Default)]
pub struct ExtensionTimes {
    /// A listing with sizes and times, against `readdir` and `stat`.
    pub list: Comparison,
    /// A batch of writes, against as many single writes of ours.
    pub batch: Comparison,
    /// Appends to a large file, against as many of ours to an empty one.
    pub append: Comparison,
    /// A file as base64, in ranges, against a plain read.
    pub base64: Comparison,
}

/// Measures the operations.
pub(super) fn measure(
    data: &BenchData,
    rounds: usize,
    progress: &mut BenchProgress<'_>,
) -> Result<ExtensionTimes> {
    let root = data.scratch.join("extension");
    fs::create_dir_all(&root)?;
    let session = open_session(&root, &data.scratch.join("extension-state"), WorkspaceOptions::default())?;
    progress.report(&format!("a directory of {ENTRIES} entries"))?;
    let list = measure_listing(&session, &root.join("listed"), rounds)?;
    progress.report(&format!("{BATCH_FILES} files at once and one by one"))?;
    let batch = measure_batch(&session, &root.join("written"), rounds)?;
    progress.report(&format!("{APPENDS} appends to a large file and to an empty one"))?;
    // Both in place: an append to a small file writes it anew, so that it would be compared with something slower.
    let in_place = WorkspaceOptions { append_in_place_bytes: 0, ..WorkspaceOptions::default() };
    let appended = root.join("appended");
    fs::create_dir_all(&appended)?;
    let appending = open_session(&appended, &data.scratch.join("append-state"), in_place)?;
    let append = measure_appends(&appending, &appended, rounds)?;
    progress.report("64 MiB in base64")?;
    let base64 = measure_base64(&session, &root.join("bytes"), rounds)?;
    Ok(ExtensionTimes { list, batch, append, base64 })
}

fn measure_listing(
    session: &WorkspaceSession,
    directory: &std::path::Path,
    rounds: usize,
) -> Result<Comparison> {
    fs::create_dir_all(directory)?;
    for number in 0..ENTRIES {
        fs::write(directory.join(format!("file-{number:05}.txt")), "text\n")?;
    }
    let limits = FileLimits { list_entries: ENTRIES as u64, ..FileLimits::DEFAULT };
    let operation = ListDirectoryRequest::new("bench", directory).into_operation(&limits)?;
    let ours = || {
        let (took, page) = time(1, || session.list_page(&operation).map_err(|error| anyhow!("{error}")))?;
        ensure!(page.entries.len() == ENTRIES, "{} entries were listed", page.entries.len());
        Ok(took)
    };
    let theirs = || {
        let read = || -> Result<usize> {
            let mut total = 0;
            for entry in fs::read_dir(directory)? {
                let entry = entry?;
                total += entry.file_name().len() + usize::try_from(entry.metadata()?.len())?;
            }
            Ok(total)
        };
        Ok(time(1, read)?.0)
    };
    Comparison::measure_alternately(rounds, ours, theirs)
}

fn measure_batch(
    session: &WorkspaceSession,
    directory: &std::path::Path,
    rounds: usize,
) -> Result<Comparison> {
    // New files in each round: ext4 creates files slowly in the minutes after it deleted many, such as replaced ones.
    let new_directory = |side: &str, round: usize| -> Result<std::path::PathBuf> {
        let directory = directory.join(format!("{side}-{round}"));
        fs::create_dir_all(&directory)?;
        Ok(directory)
    };
    let text = |round: usize, number: usize| format!("round {round}\nfile {number}\n");
    let (mut our_round, mut their_round) = (0, 0);
    let ours = || {
        our_round += 1;
        let directory = new_directory("batch", our_round)?;
        let batch = (0..BATCH_FILES).fold(BatchFilesRequest::new("bench"), |batch, number| {
            batch
                .operation(WriteParams::new(directory.join(format!("{number}.txt")), text(our_round, number)))
        });
        let operations = batch.into_operations(&FileLimits::DEFAULT)?;
        let origin = session.origin(Some(1), Some("call"));
        let write = || session.apply_batch(&operations, &origin, None).context("cannot write the files");
        Ok(time(1, write)?.0)
    };
    let theirs = || {
        their_round += 1;
        let directory = new_directory("single", their_round)?;
        let origin = session.origin(Some(1), Some("call"));
        let write = || -> Result<()> {
            for number in 0..BATCH_FILES {
                let path = directory.join(format!("{number}.txt"));
                session.write(path_str(&path)?, &text(their_round, number), &origin)?;
            }
            Ok(())
        };
        Ok(time(1, write)?.0)
    };
    Comparison::measure_alternately(rounds, ours, theirs)
}

fn measure_appends(
    session: &WorkspaceSession,
    directory: &std::path::Path,
    rounds: usize,
) -> Result<Comparison> {
    let line = format!("{:>width$}\n", "line", width = APPEND_BYTES - 1);
    let large = line.repeat(APPENDED_FILE_BYTES / APPEND_BYTES);
    let mut round = 0;
    let mut append = |text: &str| {
        round += 1;
        let path = directory.join(format!("log-{round}"));
        fs::write(&path, text)?;
        // Otherwise the first append would wait for all of it.
        fs::File::open(&path)?.sync_all()?;
        let request = WriteFileRequest::new("bench", WriteParams::new(&path, line.clone()).append());
        let operations = [FileOperation::Write(request.into_operation(&FileLimits::DEFAULT)?)];
        let origin = session.origin(Some(1), Some("call"));
        let append = || session.apply_batch(&operations, &origin, None).context("cannot append");
        let (took, _) = time(1, || (0..APPENDS).try_for_each(|_| append().map(drop)))?;
        let size = fs::metadata(&path)?.len();
        ensure!(size == (text.len() + APPENDS * APPEND_BYTES) as u64, "the file has {size} bytes");
        fs::remove_file(path)?;
        Ok(took)
    };
    let mut sides = Comparison::default();
    for _ in 0..rounds {
        sides.ours.push(append(&large)?);
        sides.theirs.push(append("")?);
    }
    Ok(sides)
}

fn measure_base64(session: &WorkspaceSession, file: &std::path::Path, rounds: usize) -> Result<Comparison> {
    let bytes: Vec<u8> = (0..BASE64_BYTES).map(|at| (at * 31 % 251) as u8).collect();
    fs::write(file, &bytes)?;
    let limits = FileLimits::DEFAULT;
    let ours = || {
        let read = || -> Result<usize> {
            let (mut offset, mut length) = (0, 0);
            while offset < BASE64_BYTES {
                let params = ReadParams::new(file).base64().offset(offset);
                let operation = ReadFileRequest::new("bench", params).into_operation(&limits)?;
                let admitted = session.admit(path_str(file)?, Access::Read)?;
                let part = session.read_range(&admitted, &operation).map_err(|error| anyhow!("{error}"))?;
                length += part.data.map_or(0, |data| data.len());
                offset += limits.read_bytes;
            }
            Ok(length)
        };
        let (took, length) = time(1, read)?;
        ensure!(length as u64 > BASE64_BYTES * 4 / 3, "only {length} characters were read");
        Ok(took)
    };
    let theirs = || Ok(time(1, || Ok(fs::read(file)?))?.0);
    Comparison::measure_alternately(rounds, ours, theirs)
}
