//! Reading a log: verifying it, and listing its entries.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use bowline_state::audit::{MAX_LINE_BYTES, Record, Report, Verifier};

use super::Shared;
use super::error::AuditError;
use super::place::{self, Opened};
use crate::calls::Calls;
use crate::storage::{OpenMode, Sharing};

/// How much is read at a time.
const CHUNK: usize = 64 * 1024;

/// Verifies a log. Those who append wait only until its files are open, and what they append then is not looked at.
///
/// # Errors
/// Fails if a file cannot be read. A log that is not there, with no anchor, is an empty one.
pub fn verify(directory: &Path, anchor: &Path) -> Result<Report, AuditError> {
    let anchor = match anchor.symlink_metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        _ => Some(Arc::new(Opened::open(anchor, OpenMode::Read, &Calls::default())?)),
    };
    let lock = anchor.as_ref().map(|anchor| anchor.lock(Sharing::Shared)).transpose()?;
    let said = anchor.as_ref().map(|anchor| anchor.anchor(None)).transpose()?.flatten();
    let files = open_all(directory)?;
    drop(lock);
    let mut verifier = Verifier::new(said);
    for (number, file, length) in files {
        verifier.file(&place::name(number));
        let mut lines = Lines::new(file, 0, length);
        while let Some(line) = lines.next_line()? {
            verifier.line(line.bytes, line.ended);
        }
    }
    Ok(verifier.finish())
}

/// Which entries to list: those that fit everything that is given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Of this session.
    pub session: Option<String>,
    /// Whose operation is this, or begins with it and a `/`: `fs` are all of files.
    pub operation: Option<String>,
    /// At most so many: the newest of them. They are held in memory.
    pub newest: Option<usize>,
}

impl Filter {
    fn fits(&self, record: &Record) -> bool {
        let word = record.entry.action.word();
        let of_kind = |kind: &String| {
            word == kind || word.strip_prefix(kind.as_str()).is_some_and(|rest| rest.starts_with('/'))
        };
        self.session.as_ref().is_none_or(|session| record.entry.session.as_ref() == Some(session))
            && self.operation.as_ref().is_none_or(of_kind)
    }
}

/// Returns entries in order. Lines that are none are passed over: [`verify`] tells of them.
///
/// # Errors
/// Fails if the directory or a file cannot be read.
pub fn entries(directory: &Path, filter: Filter) -> Result<Entries, AuditError> {
    let files = open_all(directory)?.into_iter();
    let newest = filter.newest;
    let mut all = Entries { files: files.collect(), lines: None, kept: VecDeque::new(), filter };
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
    all.kept = kept;
    Ok(all)
}

/// The entries of a log, read as they are asked for.
#[derive(Debug)]
pub struct Entries {
    files: VecDeque<(u64, Shared, u64)>,
    lines: Option<Lines>,
    kept: VecDeque<Record>,
    filter: Filter,
}

impl Entries {
    fn read(&mut self) -> Result<Option<Record>, AuditError> {
        loop {
            let Some(lines) = &mut self.lines else {
                let Some((_, file, length)) = self.files.pop_front() else { return Ok(None) };
                self.lines = Some(Lines::new(file, 0, length));
                continue;
            };
            match lines.next_line()? {
                Some(line) => {
                    if let Some(record) = Record::read(line.bytes).filter(|record| self.filter.fits(record)) {
                        return Ok(Some(record));
                    }
                }
                None => self.lines = None,
            }
        }
    }
}

impl Iterator for Entries {
    type Item = Result<Record, AuditError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.kept.pop_front() {
            Some(record) => Some(Ok(record)),
            None => self.read().transpose(),
        }
    }
}

fn open_all(directory: &Path) -> Result<Vec<(u64, Shared, u64)>, AuditError> {
    let mut files = Vec::new();
    for number in place::numbers(directory)? {
        let file = Opened::open(&directory.join(place::name(number)), OpenMode::Read, &Calls::default())?;
        let length = file.length()?.unwrap_or(0);
        files.push((number, Arc::new(file), length));
    }
    Ok(files)
}

/// The lines of a part of a file, read in chunks.
#[derive(Debug)]
pub(super) struct Lines {
    file: Shared,
    /// Where the next chunk begins.
    offset: u64,
    /// Where the part ends.
    length: u64,
    /// What was read and not yet given out begins at `start`.
    buffer: Vec<u8>,
    start: usize,
}

/// One line.
#[derive(Debug)]
pub(super) struct Line<'a> {
    /// Its bytes without the end; no more than one past the longest line.
    pub(super) bytes: &'a [u8],
    /// It has an end.
    pub(super) ended: bool,
    /// Where the next one begins.
    pub(super) end: u64,
}

impl Lines {
    pub(super) fn new(file: Shared, from: u64, length: u64) -> Self {
        Self { file, offset: from, length, buffer: Vec::new(), start: 0 }
    }

    pub(super) fn next_line(&mut self) -> Result<Option<Line<'_>>, AuditError> {
        let mut searched = 0;
        // What is left of a line that is too long, beside its start.
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
                    return Ok(Some(Line { bytes: &self.buffer[..self.start], ended: true, end }));
                }
                return Ok(Some(Line { bytes: &self.buffer[range], ended: true, end }));
            }
            searched = rest.len();
            if searched > MAX_LINE_BYTES {
                skipped.get_or_insert_with(|| rest[..=MAX_LINE_BYTES].to_vec());
                self.start = self.buffer.len();
                searched = 0;
            }
            if !self.fill()? {
                let range = self.start..self.buffer.len();
                self.start = self.buffer.len();
                if let Some(line) = skipped {
                    self.buffer = line;
                    self.start = self.buffer.len();
                    return Ok(Some(Line { bytes: &self.buffer, ended: false, end: self.offset }));
                }
                let end = self.offset;
                let bytes = &self.buffer[range];
                return Ok((!bytes.is_empty()).then_some(Line { bytes, ended: false, end }));
            }
        }
    }

    /// Reads the next chunk, and says whether there was one.
    fn fill(&mut self) -> Result<bool, AuditError> {
        let left = usize::try_from(self.length.saturating_sub(self.offset)).unwrap_or(CHUNK).min(CHUNK);
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
