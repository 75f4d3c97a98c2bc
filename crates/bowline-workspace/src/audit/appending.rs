//! Appending to a log: one owner at a time, who looks at what is there before each entry.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bowline_state::audit::{Action, Anchor, Chain, Decision, Entry, Frame, MAX_LAG, MAX_LINE_BYTES, Record};
use bowline_state::changes::{ContentHash, Moment};

use super::error::{AuditError, io_error};
use super::found::Found;
use super::known::{Anchoring, Known};
use super::place::{self, Locked, Mode, Opened, Sharing, Written};
use super::reading::Lines;
use super::{Settings, Shared, Sync};
use crate::calls::Calls;
use crate::workspace::now;

/// After so many reads in a row at which the log was as this writer left it, nobody else seems to be at work on it, and
/// the lock is kept from one read to the next.
const KEPT_AFTER: u32 = 8;

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
    /// How this writer left the log. None if there has to be a closer look first.
    state: Option<Known>,
    /// The lock, where it is kept between reads. Invariant: only while `state` is known, and the log is as that says as far
    /// as whoever honours the lock is concerned.
    kept: Option<Locked>,
    /// How many reads in a row found the log as it was left.
    in_a_row: u32,
    /// Somebody sees to it that a lock that is kept is given back.
    is_minded: bool,
    /// How many entries were appended at hand, and how many there were when it was last looked whether there are more.
    appended: u64,
    seen: u64,
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
        let anchor = Arc::new(Opened::open(anchor, Mode::Overwrite, &calls)?);
        let lock = anchor.lock(Sharing::Alone)?;
        let numbers = place::numbers(directory)?;
        if numbers.is_empty() && anchor.length()? == Some(0) {
            anchor.write_anchor(&Anchor::EMPTY.into())?;
        }
        let number = numbers.last().copied().unwrap_or(Anchor::EMPTY.file);
        let log = Arc::new(Opened::open(&directory.join(place::name(number)), Mode::Append, &calls)?);
        if numbers.is_empty() {
            place::sync_directory(directory, &calls)?;
        }
        drop(lock);
        Ok(Self {
            directory: directory.to_owned(),
            settings,
            calls,
            anchor,
            log,
            state: None,
            kept: None,
            in_a_row: 0,
            is_minded: false,
            appended: 0,
            seen: 0,
        })
    }

    /// Returns the lock: the one that was kept, or one that has to be waited for. Either way it is not kept any longer.
    fn lock(&mut self) -> Result<Locked, AuditError> {
        self.in_a_row = 0;
        self.kept.take().map_or_else(|| self.anchor.lock(Sharing::Alone), Ok)
    }

    /// Gives back a lock that was kept.
    pub(super) fn let_go(&mut self) {
        self.in_a_row = 0;
        self.kept = None;
    }

    /// Says whether a lock is kept that nobody sees to, and that somebody does from now on.
    pub(super) fn is_to_be_minded(&mut self) -> bool {
        self.kept.is_some() && !std::mem::replace(&mut self.is_minded, true)
    }

    /// Gives back the lock if nothing was appended since this was last asked. Says whether there is nothing left to mind.
    pub(super) fn let_go_if_idle(&mut self) -> bool {
        if std::mem::replace(&mut self.seen, self.appended) != self.appended {
            return false;
        }
        self.let_go();
        self.is_minded = false;
        true
    }

    /// Lets the next write to the log fail.
    #[cfg(test)]
    pub(super) fn break_log(&mut self) {
        self.log = Arc::new(Opened::open(&self.log.path, Mode::Read, &self.calls).expect("it is there"));
    }

    pub(super) fn files(&self) -> (Shared, Shared) {
        (Arc::clone(&self.log), Arc::clone(&self.anchor))
    }

    pub(super) fn append(&mut self, entry: &Entry) -> Result<u64, AuditError> {
        let _lock = self.lock()?;
        self.append_some(&[entry]).0
    }

    /// Appends entries that waited for each other, with as few writes as there may be. What fails is what was in the write
    /// that failed.
    pub(super) fn append_all(&mut self, entries: &[&Entry]) -> Vec<Result<u64, AuditError>> {
        let _lock = match self.lock() {
            Ok(lock) => lock,
            Err(error) => return entries.iter().map(|_| Err(error.again())).collect(),
        };
        let mut outcomes = Vec::new();
        while let rest @ [_, ..] = &entries[outcomes.len()..] {
            let (first, count) = self.append_some(rest);
            outcomes.extend((0..count as u64).map(|at| match &first {
                Ok(first) => Ok(first + at),
                Err(error) => Err(error.again()),
            }));
        }
        outcomes
    }

    /// Appends, if nothing has to be waited for: the log is as this writer left it, and no entry is to be synced.
    pub(super) fn append_at_hand(&mut self, entry: &Entry) -> Option<Result<u64, AuditError>> {
        let known = self.state.as_ref()?;
        // Near the end of a file there may be a new one to begin, which waits for the disk.
        let is_full = known.end.bytes.saturating_add(MAX_LINE_BYTES as u64) > self.settings.max_file_bytes;
        if is_full || self.settings.sync == Sync::Always {
            return None;
        }
        let end = known.end;
        let lock = match self.kept.take() {
            // Nobody can have been here since.
            Some(lock) => lock,
            None => {
                let lock = self.anchor.try_lock()?;
                // Also where the anchor is not written: somebody else may have begun a new file.
                if self.untouched() != Some(end) {
                    self.in_a_row = 0;
                    return None;
                }
                self.in_a_row += 1;
                lock
            }
        };
        let put = self.put(end, &[entry], Anchoring::Later).0.map(|state| state.end.seq);
        self.appended += 1;
        // With each new anchor others have their turn.
        if !self.state.as_ref().is_some_and(Known::lags) {
            self.in_a_row = 0;
        } else if self.in_a_row >= KEPT_AFTER {
            self.kept = Some(lock);
        }
        Some(put)
    }

    /// Returns where the log ends, if it and its anchor are as this writer left them.
    fn untouched(&self) -> Option<Anchor> {
        let known = self.state.as_ref()?;
        let is_as_left = has_length(&self.anchor, Anchor::BYTES as u64)
            && self.anchor.says(&known.anchor).is_ok_and(|says| says)
            && has_length(&self.log, known.end.bytes);
        is_as_left.then_some(known.end)
    }

    /// Lets the anchor know of all there is.
    pub(super) fn catch_up(&mut self) -> Result<(), AuditError> {
        if !self.state.as_ref().is_some_and(Known::lags) {
            return Ok(());
        }
        let _lock = self.lock()?;
        self.look_after_anchor()?;
        let end = self.agree(now())?;
        self.anchor_at(end)
    }

    /// Lets the anchor know of all there is, if nobody has to be waited for.
    pub(super) fn close(&mut self) {
        let Some(end) = self.state.as_ref().filter(|known| known.lags()).map(|known| known.end) else {
            return;
        };
        // Whoever holds the lock, or changed something, finds those reads, and has the anchor know of them.
        if let Some(_lock) = self.kept.take().or_else(|| self.anchor.try_lock())
            && self.untouched() == Some(end)
        {
            self.anchor.write_anchor(&end.into()).ok();
        }
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
        self.state = Some(Known::whole(written));
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
        let (put, count) = self.put(state, entries, Anchoring::Now);
        (put.map(|_| first), count)
    }

    /// Returns the anchor as it should be, once the log is as that says.
    fn agree(&mut self, now: Moment) -> Result<Anchor, AuditError> {
        let said = self.anchor.anchor(self.state.as_ref().map(|known| &known.anchor))?;
        let mut end = said;
        if let (Some(said), Some(known)) = (said, &self.state) {
            // As long as nobody else has written the anchor, this writer knows better than it does.
            let expected = if said == known.anchor.anchor { known.end } else { said };
            if expected.file != known.end.file {
                self.log = self.file(expected.file)?;
            }
            if self.log.length()? == Some(expected.bytes) {
                return Ok(expected);
            }
            end = Some(expected);
        }
        self.settle(said, end, now)
    }

    /// Makes the log fit to go on with, whatever is there, and notes what was found. `end` is where it should end.
    fn settle(
        &mut self,
        said: Option<Anchor>,
        end: Option<Anchor>,
        now: Moment,
    ) -> Result<Anchor, AuditError> {
        self.state = None;
        let numbers = place::numbers(&self.directory)?;
        let mut found = Found { unanchored: said.is_none(), lagged: said != end, ..Found::default() };
        // Up to this number reads may stand after the anchor.
        let free = said.map_or(0, |anchor| anchor.end.seq.saturating_add(MAX_LAG));
        let mut state = match end {
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
            self.look(from, free, &mut state.end, &mut found)?;
        }
        if numbers.last().is_none_or(|&newest| newest < start.0) {
            self.log = self.file(start.0)?;
        }
        state.bytes = self.log.length()?.unwrap_or(0);
        match found.told() {
            None => {
                if said == Some(state) {
                    self.state = Some(Known::whole(state.into()));
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
                self.put(state, &[&note], Anchoring::Now).0
            }
        }
    }

    /// Looks at what the newest file has from an offset on, takes over what goes on with the chain, and ends its last
    /// line.
    fn look(&self, from: u64, free: u64, chain: &mut Chain, found: &mut Found) -> Result<(), AuditError> {
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
                    let may_lag = || Record::read(line.bytes).is_some_and(|record| record.entry.may_lag());
                    if !line.ended || next.seq > free || !may_lag() {
                        found.adopted += 1;
                    }
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
    /// them, unless it may learn of them later. Returns how many they are, too.
    fn put(
        &mut self,
        mut state: Anchor,
        entries: &[&Entry],
        anchoring: Anchoring,
    ) -> (Result<Anchor, AuditError>, usize) {
        // Should anything fail, the next one looks at what is there.
        let known = self.state.take();
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
        let may_lag = anchoring == Anchoring::Later && entries[..count].iter().all(|entry| entry.may_lag());
        let is_close = |known: &Known| known.end.file == state.file && known.may_lag(end.seq);
        let later = known.filter(|known| may_lag && is_close(known));
        let written = self.log.append(lines.as_bytes()).and_then(|()| match later {
            Some(Known { anchor, .. }) => Ok(Known { anchor, end: state }),
            None => {
                let anchor = Written::from(state);
                self.anchor.write_anchor(&anchor).map(|()| Known::whole(anchor))
            }
        });
        let known = match written {
            Ok(known) => known,
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
            self.state = Some(known);
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
        place::sync_directory(&self.directory, &self.calls)?;
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
        Ok(Arc::new(Opened::open(&self.directory.join(place::name(number)), Mode::Append, &self.calls)?))
    }
}

fn has_length(file: &Opened, bytes: u64) -> bool {
    file.length().is_ok_and(|length| length == Some(bytes))
}

#[cfg(test)]
mod tests;
