//! Appending to a log: under its lock, after a look at what is there.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bowline_state::audit::{Action, Anchor, Chain, Decision, Entry, Frame};
use bowline_state::changes::{ContentHash, Moment};

use super::error::{AuditError, io_error};
use super::found::Found;
use super::place::{self, Opened, Written};
use super::reading::Lines;
use super::{Settings, Shared, Sync};
use crate::calls::Calls;
use crate::clock::now;
use crate::storage::{OpenMode, Sharing, sync_directory};

/// So many bytes are written at once, unless one entry alone has more.
const MAX_AT_ONCE: usize = 1 << 20;

/// A log as one of its writers has it open.
#[derive(Debug)]
pub(super) struct Writer {
    directory: PathBuf,
    settings: Settings,
    calls: Calls,
    anchor: Shared,
    log: Shared,
    /// The anchor as this writer left it. None if there has to be a closer look first.
    state: Option<Written>,
}

impl Writer {
    pub(super) fn open(
        directory: &Path,
        anchor: &Path,
        settings: Settings,
        calls: Calls,
    ) -> Result<Self, AuditError> {
        place::prepare(directory, &calls)?;
        if let Some(parent) = anchor.parent() {
            place::make(parent, &calls)?;
        }
        let anchor = Arc::new(Opened::open(anchor, OpenMode::Overwrite, &calls)?);
        let lock = anchor.lock(Sharing::Alone)?;
        let numbers = place::numbers(directory)?;
        if numbers.is_empty() && anchor.length()? == Some(0) {
            anchor.write_anchor(&Anchor::EMPTY.into())?;
        }
        let number = numbers.last().copied().unwrap_or(Anchor::EMPTY.file);
        let log = Arc::new(Opened::open(&directory.join(place::name(number)), OpenMode::Append, &calls)?);
        if numbers.is_empty() {
            sync_directory(directory, &calls)?;
        }
        drop(lock);
        Ok(Self { directory: directory.to_owned(), settings, calls, anchor, log, state: None })
    }

    /// Lets the next write to the log fail.
    #[cfg(test)]
    pub(super) fn break_log(&mut self) {
        self.log = Arc::new(Opened::open(&self.log.path, OpenMode::Read, &self.calls).expect("it is there"));
    }

    pub(super) fn files(&self) -> (Shared, Shared) {
        (Arc::clone(&self.log), Arc::clone(&self.anchor))
    }

    /// Appends one entry and returns its number.
    pub(super) fn append(&mut self, entry: &Entry) -> Result<u64, AuditError> {
        let _lock = self.anchor.lock(Sharing::Alone)?;
        self.append_some(&[entry]).0
    }

    /// Appends entries with as few writes as there may be. What fails is what was in the write that failed.
    pub(super) fn append_all(&mut self, entries: &[&Entry]) -> Vec<Result<u64, AuditError>> {
        if entries.is_empty() {
            return Vec::new();
        }
        let _lock = match self.anchor.lock(Sharing::Alone) {
            Ok(lock) => lock,
            Err(error) => return vec![Err(error); entries.len()],
        };
        let mut outcomes = Vec::new();
        while let rest @ [_, ..] = &entries[outcomes.len()..] {
            let (first, count) = self.append_some(rest);
            outcomes.extend((0..count as u64).map(|at| first.clone().map(|first| first + at)));
        }
        outcomes
    }

    fn look_after_anchor(&self) -> Result<(), AuditError> {
        let anchor = &self.anchor;
        let is_gone = anchor.length()?.is_none();
        if is_gone { Err(AuditError::AnchorGone { path: anchor.path.clone() }) } else { Ok(()) }
    }

    fn anchor_at(&mut self, end: Anchor) -> Result<(), AuditError> {
        self.state = None;
        let written = Written::from(end);
        self.anchor.write_anchor(&written)?;
        self.state = Some(written);
        Ok(())
    }

    /// Appends the first of some entries, and those after it that go into the same write. Returns the number of the first,
    /// and how many they are.
    fn append_some(&mut self, entries: &[&Entry]) -> (Result<u64, AuditError>, usize) {
        let at = entries.first().map_or_else(now, |entry| entry.at);
        let state = match self.look_after_anchor().and_then(|()| self.agree(at)) {
            Ok(state) => state,
            Err(error) => return (Err(error), entries.len()),
        };
        let first = state.end.seq + 1;
        let (put, count) = self.put(state, entries);
        (put.map(|_| first), count)
    }

    /// Returns the anchor as it should be, once the log is as that says.
    fn agree(&mut self, now: Moment) -> Result<Anchor, AuditError> {
        let said = self.anchor.anchor(self.state.as_ref())?;
        if let (Some(said), Some(known)) = (said, &self.state) {
            if said.file != known.anchor.file {
                self.log = self.file(said.file)?;
            }
            if self.log.length()? == Some(said.bytes) {
                return Ok(said);
            }
        }
        self.settle(said, now)
    }

    /// Makes the log fit to go on with, whatever is there, and notes what was found.
    fn settle(&mut self, said: Option<Anchor>, now: Moment) -> Result<Anchor, AuditError> {
        self.state = None;
        let numbers = place::numbers(&self.directory)?;
        let mut found = Found { unanchored: said.is_none(), ..Found::default() };
        let mut state = match said {
            Some(anchor) => anchor,
            None => {
                // One that is too long would stay so.
                self.anchor.cut(0)?;
                self.rebuilt(&numbers)?
            }
        };
        let start = (state.file, state.bytes);
        found.missing = !numbers.contains(&start.0) && start.1 > 0;
        for &number in numbers.iter().filter(|&&number| number >= start.0) {
            let from = if number == start.0 { start.1 } else { 0 };
            self.log = self.file(number)?;
            state.file = number;
            self.look(from, &mut state.end, &mut found)?;
        }
        if numbers.last().is_none_or(|&newest| newest < start.0) {
            self.log = self.file(start.0)?;
        }
        state.bytes = self.log.length()?.unwrap_or(0);
        match found.told() {
            None => {
                if said == Some(state) {
                    self.state = Some(state.into());
                } else {
                    self.anchor_at(state)?;
                }
                Ok(state)
            }
            Some(reason) => {
                let mut note = Entry::new(now, Action::Repair);
                note.decision = Decision::Failed;
                note.reason = Some(reason);
                note.before = found.scrap.map(|(hash, _)| hash);
                note.bytes = found.scrap.map(|(_, bytes)| bytes);
                self.put(state, &[&note]).0
            }
        }
    }

    /// Looks at what the newest file has from an offset on, takes over what goes on with the chain, and ends its last
    /// line.
    fn look(&self, from: u64, chain: &mut Chain, found: &mut Found) -> Result<(), AuditError> {
        let length = self.log.length()?.unwrap_or(0);
        found.missing |= length < from;
        let from = if length < from { self.last_line(length)? } else { from };
        let mut lines = Lines::new(Arc::clone(&self.log), from, length);
        let mut ended = true;
        while let Some(line) = lines.next_line()? {
            ended = line.ended;
            match chain.after(line.bytes) {
                Some(next) => {
                    *chain = next;
                    found.adopted += 1;
                }
                None if line.ended => found.foreign += 1,
                None => found.scrap = Some((ContentHash::of(line.bytes), line.bytes.len() as u64)),
            }
        }
        if !ended {
            self.log.append(b"\n")?;
        }
        Ok(())
    }

    /// Returns where the last line of the file begins that has no end.
    fn last_line(&self, length: u64) -> Result<u64, AuditError> {
        let mut lines = Lines::new(Arc::clone(&self.log), 0, length);
        let mut start = 0;
        while let Some(line) = lines.next_line()? {
            if line.ended {
                start = line.end;
            }
        }
        Ok(start)
    }

    /// Returns the anchor that the log itself suggests, as far as lines are whole.
    fn rebuilt(&self, numbers: &[u64]) -> Result<Anchor, AuditError> {
        let mut state = Anchor::EMPTY;
        let mut first = None;
        for &number in numbers {
            let log = self.file(number)?;
            let length = log.length()?.unwrap_or(0);
            let mut lines = Lines::new(log, 0, length);
            while let Some(line) = lines.next_line()? {
                let Some(frame) = Frame::read(line.bytes).filter(|frame| frame.whole && line.ended) else {
                    continue;
                };
                first.get_or_insert((frame.seq, frame.prev));
                state.end = Chain { seq: frame.seq, hash: frame.hash };
                (state.file, state.bytes) = (number, line.end);
            }
        }
        if let Some((seq, prev)) = first {
            (state.first, state.first_prev) = (seq, prev);
        }
        Ok(state)
    }

    /// Writes the first of some entries, and those after it that fit into the same write and file, and the anchor that knows
    /// them. Returns how many they are, too.
    fn put(&mut self, mut state: Anchor, entries: &[&Entry]) -> (Result<Anchor, AuditError>, usize) {
        // Should anything fail, the next one looks at what is there.
        self.state = None;
        let max = self.settings.max_file_bytes;
        let mut end = state.end;
        let (mut lines, mut count) = (String::new(), 0);
        for entry in entries {
            let mut next = end;
            let line = next.seal(entry);
            let length = lines.len() + line.len() + 1;
            let is_full = state.bytes.saturating_add(length as u64) > max || length > MAX_AT_ONCE;
            if count > 0 && is_full {
                break;
            }
            (end, count) = (next, count + 1);
            // Most are alone, and not copied.
            if lines.is_empty() {
                lines = line
            } else {
                lines.push_str(&line)
            }
            lines.push('\n');
        }
        let length = lines.len() as u64;
        if state.bytes > 0 && state.bytes.saturating_add(length) > max {
            state = match self.rotate(state) {
                Ok(state) => state,
                Err(error) => return (Err(error), count),
            };
        }
        let before = state.bytes;
        (state.end, state.bytes) = (end, before + length);
        let written = self.log.append(lines.as_bytes()).and_then(|()| {
            let anchor = Written::from(state);
            self.anchor.write_anchor(&anchor).map(|()| anchor)
        });
        let anchor = match written {
            Ok(anchor) => anchor,
            Err(error) => {
                // What is not certain to be there should not be there. If this fails too, the next one closes the line.
                drop(self.log.cut(before));
                return (Err(error), count);
            }
        };
        let synced = match self.settings.sync {
            Sync::Always => self.log.sync().and_then(|()| self.anchor.sync()),
            Sync::AtTurnEnd => Ok(()),
        };
        let put = synced.map(|()| {
            self.state = Some(anchor);
            state
        });
        (put, count)
    }

    /// Begins a new file, and drops the oldest if there are too many.
    fn rotate(&mut self, mut state: Anchor) -> Result<Anchor, AuditError> {
        self.log.sync()?;
        let next = self.file(state.file.saturating_add(1))?;
        if next.length()? != Some(0) {
            let why = io::Error::other("it is there already: verify the log, then move the file away");
            return Err(io_error("begin", &next.path)(why));
        }
        self.log = next;
        (state.file, state.bytes) = (state.file + 1, 0);
        let numbers = place::numbers(&self.directory)?;
        let keep = self.settings.max_files.max(2);
        let (old, kept) = numbers.split_at(numbers.len().saturating_sub(keep));
        if !old.is_empty() {
            (state.first, state.first_prev) =
                self.first(kept)?.unwrap_or((state.end.seq + 1, state.end.hash));
        }
        // Only then may they go: what is missing without the anchor's word was removed by somebody else.
        self.anchor.write_anchor(&state.into())?;
        if !old.is_empty() {
            self.anchor.sync()?;
        }
        for &number in old {
            let path = self.directory.join(place::name(number));
            place::remove(&path, &self.calls)?;
        }
        sync_directory(&self.directory, &self.calls)?;
        Ok(state)
    }

    /// Returns the first entry of some files, with the hash of the one before it.
    fn first(&self, numbers: &[u64]) -> Result<Option<(u64, ContentHash)>, AuditError> {
        for &number in numbers {
            let log = self.file(number)?;
            let length = log.length()?.unwrap_or(0);
            let mut lines = Lines::new(log, 0, length);
            while let Some(line) = lines.next_line()? {
                if let Some(frame) = Frame::read(line.bytes).filter(|frame| frame.whole) {
                    return Ok(Some((frame.seq, frame.prev)));
                }
            }
        }
        Ok(None)
    }

    fn file(&self, number: u64) -> Result<Shared, AuditError> {
        Ok(Arc::new(Opened::open(&self.directory.join(place::name(number)), OpenMode::Append, &self.calls)?))
    }
}
