//! Appending to a log: under its lock, after comparing it with its anchor.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bowline_policy::audit::{AuditAction, AuditAnchor, AuditDecision, AuditEntry, ChainHead, ChainLink};
use bowline_text::hash::ContentHash;
use bowline_text::time::Timestamp;

use super::discrepancy::AnchorDiscrepancies;
use super::error::{AuditError, io_error};
use super::log_file::{self, AnchorLock, EncodedAnchor, LogFile};
use super::read::LogLines;
use super::{AuditOptions, SharedLogFile};
use bowline_storage::clock::now;
use bowline_storage::disk_calls::DiskCalls;
use bowline_storage::{LockMode, OpenMode, sync_directory};

/// The maximum size of one write, unless a single entry is larger.
const MAX_BATCH_BYTES: usize = 1 << 20;

/// A log opened by one writer.
#[derive(Debug)]
pub(super) struct AuditWriter {
    directory: PathBuf,
    options: AuditOptions,
    calls: DiskCalls,
    anchor: SharedLogFile,
    log: SharedLogFile,
    /// The anchor as this writer left it, or `None` if the log has to be examined first.
    last_anchor: Option<EncodedAnchor>,
}

impl AuditWriter {
    pub(super) fn open(
        directory: &Path,
        anchor: &Path,
        settings: AuditOptions,
        calls: DiskCalls,
    ) -> Result<Self, AuditError> {
        log_file::prepare_directory(directory, &calls)?;
        if let Some(parent) = anchor.parent() {
            log_file::ensure_directory(parent, &calls)?;
        }
        let anchor = Arc::new(LogFile::open(anchor, OpenMode::Overwrite, &calls)?);
        let lock = anchor.lock(LockMode::Exclusive)?;
        let numbers = log_file::list_file_numbers(directory)?;
        if numbers.is_empty() && anchor.length()? == Some(0) {
            anchor.write_anchor(&AuditAnchor::EMPTY.into())?;
        }
        let number = numbers.last().copied().unwrap_or(AuditAnchor::EMPTY.file_number);
        let log =
            Arc::new(LogFile::open(&directory.join(log_file::file_name(number)), OpenMode::Append, &calls)?);
        if numbers.is_empty() {
            sync_directory(directory, &calls)?;
        }
        drop(lock);
        Ok(Self { directory: directory.to_owned(), options: settings, calls, anchor, log, last_anchor: None })
    }

    /// Makes the next write to the log fail.
    #[cfg(test)]
    pub(super) fn break_log(&mut self) {
        self.log = Arc::new(LogFile::open(&self.log.path, OpenMode::Read, &self.calls).expect("it is there"));
    }

    pub(super) fn files(&self) -> (SharedLogFile, SharedLogFile) {
        (Arc::clone(&self.log), Arc::clone(&self.anchor))
    }

    /// Returns whether the next append only writes: it need not examine the log or start a new file.
    pub(super) fn is_ready(&self) -> bool {
        let has_room = |known: &EncodedAnchor| {
            known.anchor.file_bytes.saturating_add(MAX_BATCH_BYTES as u64) <= self.options.max_file_bytes
        };
        self.last_anchor.as_ref().is_some_and(has_room)
    }

    /// Locks the log against other processes.
    pub(super) fn lock(&self) -> Result<AnchorLock, AuditError> {
        self.anchor.lock(LockMode::Exclusive)
    }

    /// Locks the log, or returns `None` if another process holds it.
    pub(super) fn try_lock(&self) -> Result<Option<AnchorLock>, AuditError> {
        self.anchor.try_lock(LockMode::Exclusive)
    }

    /// Appends one entry and returns its number.
    pub(super) fn append(&mut self, entry: &AuditEntry) -> Result<u64, AuditError> {
        let _lock = self.lock()?;
        self.append_first_batch(std::slice::from_ref(entry)).0
    }

    /// Appends entries in as few writes as possible. A failed write fails only its own entries.
    pub(super) fn append_all(
        &mut self,
        _: &AnchorLock,
        entries: &[AuditEntry],
    ) -> Vec<Result<u64, AuditError>> {
        let mut outcomes = Vec::with_capacity(entries.len());
        while let rest @ [_, ..] = &entries[outcomes.len()..] {
            let (first, count) = self.append_first_batch(rest);
            outcomes.extend((0..count as u64).map(|at| first.clone().map(|first| first + at)));
        }
        outcomes
    }

    fn check_anchor_exists(&self) -> Result<(), AuditError> {
        let anchor = &self.anchor;
        let is_gone = anchor.length()?.is_none();
        if is_gone { Err(AuditError::AnchorMissing { path: anchor.path.clone() }) } else { Ok(()) }
    }

    fn set_anchor(&mut self, end: AuditAnchor) -> Result<(), AuditError> {
        self.last_anchor = None;
        let written = EncodedAnchor::from(end);
        self.anchor.write_anchor(&written)?;
        self.last_anchor = Some(written);
        Ok(())
    }

    /// Appends the first entry and the following ones that fit in the same write. Returns the number of the first, and
    /// how many were taken.
    fn append_first_batch(&mut self, entries: &[AuditEntry]) -> (Result<u64, AuditError>, usize) {
        let at = entries.first().map_or_else(now, |entry| entry.at);
        let state = match self.check_anchor_exists().and_then(|()| self.reconcile(at)) {
            Ok(state) => state,
            Err(error) => return (Err(error), entries.len()),
        };
        let first = state.head.seq + 1;
        let (put, count) = self.write_entries(state, entries);
        (put.map(|_| first), count)
    }

    /// Returns the current anchor, after repairing a log that does not match it.
    fn reconcile(&mut self, now: Timestamp) -> Result<AuditAnchor, AuditError> {
        let said = self.anchor.read_anchor(self.last_anchor.as_ref())?;
        if let (Some(said), Some(known)) = (said, &self.last_anchor) {
            if said.file_number != known.anchor.file_number {
                self.log = self.open_file(said.file_number)?;
            }
            if self.log.length()? == Some(said.file_bytes) {
                return Ok(said);
            }
        }
        self.repair(said, now)
    }

    /// Makes the log usable in any state, and records the discrepancies found.
    fn repair(&mut self, said: Option<AuditAnchor>, now: Timestamp) -> Result<AuditAnchor, AuditError> {
        self.last_anchor = None;
        let numbers = log_file::list_file_numbers(&self.directory)?;
        let mut found =
            AnchorDiscrepancies { lacks_anchor: said.is_none(), ..AnchorDiscrepancies::default() };
        let mut state = match said {
            Some(anchor) => anchor,
            None => {
                // Writing a shorter anchor would leave the rest of a longer one.
                self.anchor.truncate(0)?;
                self.rebuild_anchor(&numbers)?
            }
        };
        let start = (state.file_number, state.file_bytes);
        found.is_truncated = !numbers.contains(&start.0) && start.1 > 0;
        for &number in numbers.iter().filter(|&&number| number >= start.0) {
            let from = if number == start.0 { start.1 } else { 0 };
            self.log = self.open_file(number)?;
            state.file_number = number;
            self.adopt_lines(from, &mut state.head, &mut found)?;
        }
        if numbers.last().is_none_or(|&newest| newest < start.0) {
            self.log = self.open_file(start.0)?;
        }
        state.file_bytes = self.log.length()?.unwrap_or(0);
        match found.describe() {
            None => {
                if said == Some(state) {
                    self.last_anchor = Some(state.into());
                } else {
                    self.set_anchor(state)?;
                }
                Ok(state)
            }
            Some(reason) => {
                let mut note = AuditEntry::new(now, AuditAction::Repair);
                note.decision = AuditDecision::Failed;
                note.reason = Some(reason);
                note.before = found.torn_line.map(|(hash, _)| hash);
                note.bytes = found.torn_line.map(|(_, bytes)| bytes);
                self.write_entries(state, &[note]).0
            }
        }
    }

    /// Reads the newest file from an offset, adopts the lines that continue the chain, and completes the last line.
    fn adopt_lines(
        &self,
        from: u64,
        chain: &mut ChainHead,
        found: &mut AnchorDiscrepancies,
    ) -> Result<(), AuditError> {
        let length = self.log.length()?.unwrap_or(0);
        found.is_truncated |= length < from;
        let from = if length < from { self.last_line_start(length)? } else { from };
        let mut lines = LogLines::new(Arc::clone(&self.log), from, length);
        let mut ended = true;
        while let Some(line) = lines.next_line()? {
            ended = line.is_complete;
            match chain.next_head(line.bytes) {
                Some(next) => {
                    *chain = next;
                    found.adopted_lines += 1;
                }
                None if line.is_complete => found.foreign_lines += 1,
                None => found.torn_line = Some((ContentHash::digest(line.bytes), line.bytes.len() as u64)),
            }
        }
        if !ended {
            self.log.append(b"\n")?;
        }
        Ok(())
    }

    /// Returns the start of an incomplete last line.
    fn last_line_start(&self, length: u64) -> Result<u64, AuditError> {
        let mut lines = LogLines::new(Arc::clone(&self.log), 0, length);
        let mut start = 0;
        while let Some(line) = lines.next_line()? {
            if line.is_complete {
                start = line.end;
            }
        }
        Ok(start)
    }

    /// Returns the anchor derived from the intact, complete lines of the log.
    fn rebuild_anchor(&self, numbers: &[u64]) -> Result<AuditAnchor, AuditError> {
        let mut state = AuditAnchor::EMPTY;
        let mut first = None;
        for &number in numbers {
            let log = self.open_file(number)?;
            let length = log.length()?.unwrap_or(0);
            let mut lines = LogLines::new(log, 0, length);
            while let Some(line) = lines.next_line()? {
                let Some(frame) =
                    ChainLink::parse(line.bytes).filter(|frame| frame.is_intact && line.is_complete)
                else {
                    continue;
                };
                first.get_or_insert((frame.seq, frame.prev));
                state.head = ChainHead { seq: frame.seq, hash: frame.hash };
                (state.file_number, state.file_bytes) = (number, line.end);
            }
        }
        if let Some((seq, prev)) = first {
            (state.first_seq, state.first_prev) = (seq, prev);
        }
        Ok(state)
    }

    /// Writes the first entry, the following ones that fit in the same write and file, and the anchor that covers them.
    /// Also returns how many were taken.
    fn write_entries(
        &mut self,
        mut state: AuditAnchor,
        entries: &[AuditEntry],
    ) -> (Result<AuditAnchor, AuditError>, usize) {
        // After a failure, the next append examines the log.
        self.last_anchor = None;
        let max = self.options.max_file_bytes;
        let mut end = state.head;
        let (mut lines, mut count) = (String::new(), 0);
        for entry in entries {
            let mut next = end;
            let line = next.seal_entry(entry);
            let length = lines.len() + line.len() + 1;
            let is_full = state.file_bytes.saturating_add(length as u64) > max || length > MAX_BATCH_BYTES;
            if count > 0 && is_full {
                break;
            }
            (end, count) = (next, count + 1);
            // A single entry, the usual case, is not copied.
            if lines.is_empty() {
                lines = line
            } else {
                lines.push_str(&line)
            }
            lines.push('\n');
        }
        let length = lines.len() as u64;
        if state.file_bytes > 0 && state.file_bytes.saturating_add(length) > max {
            state = match self.rotate(state) {
                Ok(state) => state,
                Err(error) => return (Err(error), count),
            };
        }
        let before = state.file_bytes;
        (state.head, state.file_bytes) = (end, before + length);
        let written = self.log.append(lines.as_bytes()).and_then(|()| {
            let anchor = EncodedAnchor::from(state);
            self.anchor.write_anchor(&anchor).map(|()| anchor)
        });
        let anchor = match written {
            Ok(anchor) => anchor,
            Err(error) => {
                // An entry that is not certain to be in the log should not be there. If this fails too, the next append
                // completes the line.
                drop(self.log.truncate(before));
                return (Err(error), count);
            }
        };
        self.last_anchor = Some(anchor);
        (Ok(state), count)
    }

    /// Starts a new file, and removes the oldest if there are too many.
    fn rotate(&mut self, mut state: AuditAnchor) -> Result<AuditAnchor, AuditError> {
        self.log.sync()?;
        let next = self.open_file(state.file_number.saturating_add(1))?;
        if next.length()? != Some(0) {
            let why = io::Error::other("it is there already: verify the log, then move the file away");
            return Err(io_error("begin", &next.path)(why));
        }
        self.log = next;
        (state.file_number, state.file_bytes) = (state.file_number + 1, 0);
        let numbers = log_file::list_file_numbers(&self.directory)?;
        let keep = self.options.max_files.max(2);
        let (old, kept) = numbers.split_at(numbers.len().saturating_sub(keep));
        if !old.is_empty() {
            (state.first_seq, state.first_prev) =
                self.first_entry(kept)?.unwrap_or((state.head.seq + 1, state.head.hash));
        }
        // The anchor is written before old files are removed: a file missing without a record in the anchor was removed
        // from outside.
        self.anchor.write_anchor(&state.into())?;
        if !old.is_empty() {
            self.anchor.sync()?;
        }
        for &number in old {
            let path = self.directory.join(log_file::file_name(number));
            log_file::remove_log_file(&path, &self.calls)?;
        }
        sync_directory(&self.directory, &self.calls)?;
        Ok(state)
    }

    /// Returns the number of the first entry in some files, and the hash of the entry before it.
    fn first_entry(&self, numbers: &[u64]) -> Result<Option<(u64, ContentHash)>, AuditError> {
        for &number in numbers {
            let log = self.open_file(number)?;
            let length = log.length()?.unwrap_or(0);
            let mut lines = LogLines::new(log, 0, length);
            while let Some(line) = lines.next_line()? {
                if let Some(frame) = ChainLink::parse(line.bytes).filter(|frame| frame.is_intact) {
                    return Ok(Some((frame.seq, frame.prev)));
                }
            }
        }
        Ok(None)
    }

    fn open_file(&self, number: u64) -> Result<SharedLogFile, AuditError> {
        Ok(Arc::new(LogFile::open(
            &self.directory.join(log_file::file_name(number)),
            OpenMode::Append,
            &self.calls,
        )?))
    }
}
