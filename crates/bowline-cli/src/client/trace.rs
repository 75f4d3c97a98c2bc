//! Writing down every message between two sides, without ever holding them up.
//!
//! Whoever serves the connection only puts a copy of the message into a [`Backlog`]; a thread writes. What the backlog
//! or the disk does not take is counted, and the trace tells it where it is missing.

mod writing;

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bowline_state::failure::quote;
use bowline_state::trace::{Backlog, Entry, Side};
use bowline_wire::{Direction, Tap};

use crate::ending::Ending;
use crate::records::showing::note;
use bowline_workspace::clock::now;
use writing::Writer;

/// So much waits for the disk. What comes on top of it is lost, and counted.
const MAX_WAITING: usize = 64 << 20;
/// How long the end of the program waits for a disk that does not take what is left.
const SETTLE: Duration = Duration::from_secs(10);

/// A file that gets every message, with when and whose it was.
#[derive(Debug)]
pub(crate) struct Trace {
    shared: Arc<Shared>,
    began: Instant,
}

/// One of the connections whose messages are recorded.
#[derive(Debug)]
struct Link {
    trace: Arc<Trace>,
    // Who this program is to the other, and who that is.
    ends: (Side, Side),
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    backlog: Backlog,
    // Nothing comes any more.
    ended: bool,
    // What came is written, or cannot be.
    settled: bool,
}

impl Trace {
    /// Begins a file. It is for its owner alone: prompts and files are in it. In a directory of the workspace it would be
    /// taken for work of the agent, which could also have put a link there.
    pub(crate) fn begin(path: &Path, roots: &[PathBuf]) -> Result<Self, Ending> {
        let shown = quote(&path.display().to_string());
        let cannot = |error: io::Error| Ending::Usage(format!("cannot write the trace {shown}: {error}"));
        let directory = path.parent().unwrap_or(Path::new("/")).canonicalize().map_err(cannot)?;
        if roots.iter().any(|root| directory.starts_with(root)) {
            return Err(Ending::Usage(format!(
                "the trace {shown} would lie inside the workspace, among the agent's work: name a file elsewhere"
            )));
        }
        let Some(name) = path.file_name() else {
            return Err(Ending::Usage(format!("cannot write the trace {shown}: name a file")));
        };
        let writer = Writer::begin(&directory.join(name), now().0).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => Ending::Usage(format!(
                "{shown} is there and is no trace: name another file, or remove this one"
            )),
            _ => cannot(error),
        })?;
        let state = State { backlog: Backlog::new(MAX_WAITING), ended: false, settled: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let its = shared.clone();
        // It ends with the program at the latest: a disk that stands still may keep it for ever.
        std::thread::spawn(move || its.write(writer, &shown));
        Ok(Self { shared, began: Instant::now() })
    }

    /// Returns who records a connection between this program, which is `here` to the other side, and that.
    pub(crate) fn between(self: &Arc<Self>, here: Side, there: Side) -> Arc<dyn Tap> {
        Arc::new(Link { trace: self.clone(), ends: (here, there) })
    }

    fn record(&self, from: Side, to: Side, line: &[u8]) {
        let us = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let mut state = self.shared.state();
        if state.backlog.has_room(line.len()) {
            state.backlog.push(Entry { us, from, to, bytes: line.to_vec() });
        } else {
            state.backlog.lose(line.len());
        }
        drop(state);
        self.shared.changed.notify_all();
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.ended = true;
        self.shared.changed.notify_all();
        let waited = self.shared.changed.wait_timeout_while(state, SETTLE, |state| !state.settled);
        if waited.is_ok_and(|(state, _)| !state.settled) {
            note("the disk does not take the end of the trace: it is cut short");
        }
    }
}

impl Tap for Link {
    fn line(&self, direction: Direction, line: &[u8]) {
        let (here, there) = self.ends;
        match direction {
            Direction::Sent => self.trace.record(here, there, line),
            Direction::Received => self.trace.record(there, here, line),
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what waits until nothing comes any more.
    fn write(&self, mut writer: Writer, shown: &str) {
        loop {
            let mut state = self.state();
            let item = loop {
                match state.backlog.pop() {
                    Some(item) => break Some(item),
                    None if state.ended => break None,
                    None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(state);
            let Some(item) = item else { break };
            writer.write(item);
        }
        if let Some(gap) = writer.finish() {
            let count = crate::records::showing::count;
            let messages = count(usize::try_from(gap.messages).unwrap_or(usize::MAX), "message", "messages");
            note(&format!("the disk did not take the last {messages} of the trace {shown}"));
        }
        self.state().settled = true;
        self.changed.notify_all();
    }
}

/// Several who listen to the same connection.
pub(crate) struct Taps(pub(crate) Vec<Arc<dyn Tap>>);

impl Tap for Taps {
    fn line(&self, direction: Direction, line: &[u8]) {
        for tap in &self.0 {
            tap.line(direction, line);
        }
    }
}

#[cfg(test)]
mod tests;
