//! Appending to a log: one owner at a time, who looks at what is there before each entry.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bowline_state::audit::{Action, Anchor, Chain, Decision, Entry, Frame, MAX_LINE_BYTES};
use bowline_state::changes::{ContentHash, Moment};

use super::error::{AuditError, io_error};
use super::place::{self, Mode, Opened, Sharing, Written};
use super::reading::Lines;
use super::{Settings, Shared, Sync};

/// A log as one of its writers has it open.
#[derive(Debug)]
pub(super) struct Writer {
    directory: PathBuf,
    settings: Settings,
    anchor: Shared,
    log: Shared,
    /// What the anchor was when this writer last wrote or read it. None if there has to be a closer look first.
    state: Option<Written>,
}

/// What is on the disk beside what the anchor says.
#[derive(Debug, Default)]
struct Found {
    /// Lines after the anchor that go on with the chain.
    adopted: u64,
    /// Lines after the anchor that do not.
    foreign: u64,
    /// What is left of a line with no end.
    scrap: Option<(ContentHash, u64)>,
    /// The anchor says more than there is.
    missing: bool,
    /// There was no anchor, or none that can be read.
    unanchored: bool,
}

impl Writer {
    pub(super) fn open(directory: &Path, anchor: &Path, settings: Settings) -> Result<Self, AuditError> {
        place::prepare(directory)?;
        if let Some(parent) = anchor.parent() {
            place::make(parent)?;
        }
        let anchor = Arc::new(Opened::open(anchor, Mode::Overwrite)?);
        let lock = anchor.lock(Sharing::Alone)?;
        let numbers = place::numbers(directory)?;
        if numbers.is_empty() && anchor.length()? == Some(0) {
            anchor.write_anchor(&Anchor::EMPTY.into())?;
        }
        let number = numbers.last().copied().unwrap_or(Anchor::EMPTY.file);
        let log = Arc::new(Opened::open(&directory.join(place::name(number)), Mode::Append)?);
        if numbers.is_empty() {
            place::sync_directory(directory)?;
        }
        drop(lock);
        Ok(Self { directory: directory.to_owned(), settings, anchor, log, state: None })
    }

    pub(super) fn files(&self) -> (Shared, Shared) {
        (Arc::clone(&self.log), Arc::clone(&self.anchor))
    }

    pub(super) fn append(&mut self, entry: &Entry) -> Result<u64, AuditError> {
        let anchor = Arc::clone(&self.anchor);
        let _lock = anchor.lock(Sharing::Alone)?;
        self.append_locked(entry)
    }

    /// Appends, if nothing has to be waited for: the log is as this writer left it, and no entry is to be synced.
    pub(super) fn append_at_hand(&mut self, entry: &Entry) -> Option<Result<u64, AuditError>> {
        let known = self.state.as_ref()?;
        // Near the end of a file there may be a new one to begin, which waits for the disk.
        let is_full = known.anchor.bytes.saturating_add(MAX_LINE_BYTES as u64) > self.settings.max_file_bytes;
        if is_full || self.settings.sync == Sync::Always {
            return None;
        }
        let anchor = Arc::clone(&self.anchor);
        let _lock = anchor.try_lock()?;
        Some(self.append_locked(entry))
    }

    fn append_locked(&mut self, entry: &Entry) -> Result<u64, AuditError> {
        let anchor = &self.anchor;
        if anchor.length()?.is_none() {
            return Err(AuditError::AnchorGone { path: anchor.path.clone() });
        }
        let state = self.agree(entry.at)?;
        let state = self.put(state, entry)?;
        Ok(state.end.seq)
    }

    /// Returns the anchor, once the log is as it says.
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
                self.anchor.file.set_len(0).map_err(io_error("empty", &self.anchor.path))?;
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
                let written = Written::from(state);
                if said != Some(state) {
                    self.anchor.write_anchor(&written)?;
                }
                self.state = Some(written);
                Ok(state)
            }
            Some(reason) => {
                let mut note = Entry::new(now, Action::Repair);
                note.decision = Decision::Failed;
                note.reason = Some(reason);
                note.before = found.scrap.map(|(hash, _)| hash);
                note.bytes = found.scrap.map(|(_, bytes)| bytes);
                self.put(state, &note)
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
            write(&self.log, b"\n")?;
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

    /// Writes an entry and the anchor that knows it.
    fn put(&mut self, mut state: Anchor, entry: &Entry) -> Result<Anchor, AuditError> {
        // Should anything fail, the next one looks at what is there.
        self.state = None;
        let mut end = state.end;
        let mut line = end.seal(entry);
        line.push('\n');
        let length = line.len() as u64;
        if state.bytes > 0 && state.bytes.saturating_add(length) > self.settings.max_file_bytes {
            state = self.rotate(state)?;
        }
        let before = state.bytes;
        (state.end, state.bytes) = (end, before + length);
        let known = Written::from(state);
        let written = write(&self.log, line.as_bytes()).and_then(|()| self.anchor.write_anchor(&known));
        if let Err(error) = written {
            // What is not certain to be there should not be there. If this fails too, the next one closes the line.
            drop(self.log.file.set_len(before));
            return Err(error);
        }
        if self.settings.sync == Sync::Always {
            self.log.sync()?;
            self.anchor.sync()?;
        }
        self.state = Some(known);
        Ok(state)
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
            fs::remove_file(&path).map_err(io_error("remove", &path))?;
        }
        place::sync_directory(&self.directory)?;
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
        Ok(Arc::new(Opened::open(&self.directory.join(place::name(number)), Mode::Append)?))
    }
}

impl Found {
    /// Says in words what was found; none if it is as the anchor says.
    fn told(&self) -> Option<String> {
        let mut told = Vec::new();
        if self.unanchored && (self.adopted > 0 || self.foreign > 0 || self.scrap.is_some() || self.missing) {
            told.push("the anchor was missing or unreadable".to_owned());
        } else if self.unanchored {
            told.push("the anchor was missing or unreadable, and was made anew from the log".to_owned());
        }
        if self.missing {
            told.push("the log ended before what its anchor says".to_owned());
        }
        if self.adopted > 0 {
            told.push(format!("{} at the end not in the anchor", entries(self.adopted)));
        }
        if self.foreign > 0 {
            told.push(format!("{} at the end that are not of the log", self.foreign));
        }
        if self.scrap.is_some() {
            told.push("the last line was torn".to_owned());
        }
        (!told.is_empty()).then(|| told.join("; "))
    }
}

fn entries(count: u64) -> String {
    if count == 1 { "1 entry was".to_owned() } else { format!("{count} entries were") }
}

fn write(to: &Opened, bytes: &[u8]) -> Result<(), AuditError> {
    (&to.file).write_all(bytes).map_err(io_error("append to the audit log", &to.path))
}
