//! Reading a log: verifying it, and listing its entries.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use bowline_policy::audit::{AuditRecord, AuditVerifier, MAX_LINE_BYTES, VerificationReport};

use super::SharedLogFile;
use super::error::AuditError;
use super::log_file::{self, LogFile};
use bowline_storage::disk_calls::DiskCalls;
use bowline_storage::{LockMode, OpenMode};

/// The number of bytes read at a time.
const CHUNK_BYTES: usize = 64 * 1024;

/// Verifies a log. Writers are blocked only while its files are opened; entries appended later are not verified.
///
/// # Errors
/// Fails if a file cannot be read. A missing log without an anchor counts as empty.
pub fn verify(directory: &Path, anchor: &Path) -> Result<VerificationReport, AuditError> {
    let anchor = match anchor.symlink_metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        _ => Some(Arc::new(LogFile::open(anchor, OpenMode::Read, &DiskCalls::default())?)),
    };
    let lock = anchor.as_ref().map(|anchor| anchor.lock(LockMode::Shared)).transpose()?;
    let said = anchor.as_ref().map(|anchor| anchor.read_anchor(None)).transpose()?.flatten();
    let files = open_log_files(directory)?;
    drop(lock);
    let mut verifier = AuditVerifier::new(said);
    for (number, file, length) in files {
        verifier.start_file(&log_file::file_name(number));
        let mut lines = LogLines::new(file, 0, length);
        while let Some(line) = lines.next_line()? {
            verifier.verify_line(line.bytes, line.is_complete);
        }
    }
    Ok(verifier.finish())
}

/// A filter of entries. An entry must match all given fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// The session.
    pub session: Option<String>,
    /// The operation, or its prefix before a `/`: `fs` matches all file operations.
    pub operation: Option<String>,
    /// The maximum number of entries, counted from the newest. They are held in memory.
    pub newest: Option<usize>,
}

impl AuditFilter {
    fn matches(&self, record: &AuditRecord) -> bool {
        let word = record.entry.action.as_str();
        let of_kind = |kind: &String| {
            word == kind || word.strip_prefix(kind.as_str()).is_some_and(|rest| rest.starts_with('/'))
        };
        self.session.as_ref().is_none_or(|session| record.entry.session.as_ref() == Some(session))
            && self.operation.as_ref().is_none_or(of_kind)
    }
}

/// Returns entries in order. Invalid lines are skipped; [`verify`] reports them.
///
/// # Errors
/// Fails if the directory or a file cannot be read.
pub fn read_entries(directory: &Path, filter: AuditFilter) -> Result<AuditEntries, AuditError> {
    let files = open_log_files(directory)?.into_iter();
    let newest = filter.newest;
    let mut all = AuditEntries { files: files.collect(), lines: None, newest: VecDeque::new(), filter };
    let Some(newest) = newest else { return Ok(all) };
    let mut kept = VecDeque::new();
    while let Some(record) = all.read()? {
        if kept.len() == newest {
            kept.pop_front();
        }
        if newest > 0 {
            kept.push_back(record);
        }
    }
    all.newest = kept;
    Ok(all)
}

/// The entries of a log, read lazily.
#[derive(Debug)]
pub struct AuditEntries {
    files: VecDeque<(u64, SharedLogFile, u64)>,
    lines: Option<LogLines>,
    newest: VecDeque<AuditRecord>,
    filter: AuditFilter,
}

impl AuditEntries {
    fn read(&mut self) -> Result<Option<AuditRecord>, AuditError> {
        loop {
            let Some(lines) = &mut self.lines else {
                let Some((_, file, length)) = self.files.pop_front() else { return Ok(None) };
                self.lines = Some(LogLines::new(file, 0, length));
                continue;
            };
            match lines.next_line()? {
                Some(line) => {
                    if let Some(record) =
                        AuditRecord::parse(line.bytes).filter(|record| self.filter.matches(record))
                    {
                        return Ok(Some(record));
                    }
                }
                None => self.lines = None,
            }
        }
    }
}

impl Iterator for AuditEntries {
    type Item = Result<AuditRecord, AuditError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.newest.pop_front() {
            Some(record) => Some(Ok(record)),
            None => self.read().transpose(),
        }
    }
}

fn open_log_files(directory: &Path) -> Result<Vec<(u64, SharedLogFile, u64)>, AuditError> {
    let mut files = Vec::new();
    for number in log_file::list_file_numbers(directory)? {
        let file = LogFile::open(
            &directory.join(log_file::file_name(number)),
            OpenMode::Read,
            &DiskCalls::default(),
        )?;
        let length = file.length()?.unwrap_or(0);
        files.push((number, Arc::new(file), length));
    }
    Ok(files)
}

/// The lines of a part of a file, read in chunks.
#[derive(Debug)]
pub(super) struct LogLines {
    file: SharedLogFile,
    /// Where the next chunk begins.
    offset: u64,
    /// Where the part ends.
    length: u64,
    /// Bytes read and not yet returned begin at `start`.
    buffer: Vec<u8>,
    start: usize,
}

/// One line.
#[derive(Debug)]
pub(super) struct LogLine<'a> {
    /// The bytes without the line end, cut to one more than the longest valid line.
    pub(super) bytes: &'a [u8],
    /// The line has a line end.
    pub(super) is_complete: bool,
    /// The offset of the next line.
    pub(super) end: u64,
}

impl LogLines {
    pub(super) fn new(file: SharedLogFile, from: u64, length: u64) -> Self {
        Self { file, offset: from, length, buffer: Vec::new(), start: 0 }
    }

    pub(super) fn next_line(&mut self) -> Result<Option<LogLine<'_>>, AuditError> {
        let mut searched = 0;
        // The start of a line that is too long; the rest of it is skipped.
        let mut skipped: Option<Vec<u8>> = None;
        loop {
            let rest = &self.buffer[self.start..];
            if let Some(at) = memchr::memchr(b'\n', &rest[searched..]).map(|at| searched + at) {
                let range = self.start..self.start + at;
                self.start += at + 1;
                let end = self.offset - (self.buffer.len() - self.start) as u64;
                if let Some(line) = skipped {
                    self.buffer.splice(..self.start, line);
                    self.start = MAX_LINE_BYTES + 1;
                    return Ok(Some(LogLine { bytes: &self.buffer[..self.start], is_complete: true, end }));
                }
                return Ok(Some(LogLine { bytes: &self.buffer[range], is_complete: true, end }));
            }
            searched = rest.len();
            if searched > MAX_LINE_BYTES {
                skipped.get_or_insert_with(|| rest[..=MAX_LINE_BYTES].to_vec());
                self.start = self.buffer.len();
                searched = 0;
            }
            if !self.read_chunk()? {
                let range = self.start..self.buffer.len();
                self.start = self.buffer.len();
                if let Some(line) = skipped {
                    self.buffer = line;
                    self.start = self.buffer.len();
                    return Ok(Some(LogLine { bytes: &self.buffer, is_complete: false, end: self.offset }));
                }
                let end = self.offset;
                let bytes = &self.buffer[range];
                return Ok((!bytes.is_empty()).then_some(LogLine { bytes, is_complete: false, end }));
            }
        }
    }

    /// Reads the next chunk. Returns `false` at the end.
    fn read_chunk(&mut self) -> Result<bool, AuditError> {
        let left =
            usize::try_from(self.length.saturating_sub(self.offset)).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        self.buffer.drain(..self.start);
        self.start = 0;
        let kept = self.buffer.len();
        self.buffer.resize(kept + left, 0);
        let count = self.file.read_at(&mut self.buffer[kept..], self.offset)?;
        self.buffer.truncate(kept + count);
        self.offset += count as u64;
        Ok(count > 0)
    }
}
