//! The trace recorder: writes every message between two sides to a file without delaying them.
//!
//! The task that serves the connection only copies each message into a [`Backlog`]; a thread writes. Messages that the
//! backlog or the disk cannot take are counted, and the trace reports each gap where it occurred.

mod writer;

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bowline_protocol::trace::{Backlog, TraceEntry, TraceSide};
use bowline_text::display::quote;
use bowline_wire::{Direction, WireRecorder};

use crate::common::console::print_note;
use crate::error::CliError;
use bowline_storage::clock::now;
use writer::TraceWriter;

/// The maximum size of the backlog, in bytes. Further messages are dropped and counted.
const MAX_BACKLOG_BYTES: usize = 64 << 20;
/// How long the program waits at its end for a slow disk.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);

/// A file that receives every message, with its time and direction.
#[derive(Debug)]
pub struct TraceRecorder {
    shared: Arc<TraceShared>,
    started_at: Instant,
}

/// The recorder of one connection.
#[derive(Debug)]
struct ConnectionRecorder {
    trace: Arc<TraceRecorder>,
    // The role of this program on the connection, and that of its peer.
    sides: (TraceSide, TraceSide),
}

#[derive(Debug)]
struct TraceShared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    backlog: Backlog,
    // No more messages will come.
    is_closed: bool,
    // Everything is written, or cannot be.
    is_flushed: bool,
}

impl TraceRecorder {
    /// Creates the file, readable by its owner only, because it contains prompts and files. A directory of the
    /// workspace is refused: there the file would be attributed to the agent, which could also have planted a link.
    pub fn begin(path: &Path, roots: &[PathBuf]) -> Result<Self, CliError> {
        let shown = quote(&path.display().to_string());
        let write_error =
            |error: io::Error| CliError::Usage(format!("cannot write the trace {shown}: {error}"));
        let directory = path.parent().unwrap_or(Path::new("/")).canonicalize().map_err(write_error)?;
        if roots.iter().any(|root| directory.starts_with(root)) {
            return Err(CliError::Usage(format!(
                "the trace {shown} would lie inside the workspace, among the agent's work: name a file elsewhere"
            )));
        }
        let Some(name) = path.file_name() else {
            return Err(CliError::Usage(format!("cannot write the trace {shown}: name a file")));
        };
        let writer =
            TraceWriter::begin(&directory.join(name), now().0).map_err(|error| match error.kind() {
                ErrorKind::AlreadyExists => CliError::Usage(format!(
                    "{shown} is there and is no trace: name another file, or remove this one"
                )),
                _ => write_error(error),
            })?;
        let state = State { backlog: Backlog::new(MAX_BACKLOG_BYTES), is_closed: false, is_flushed: false };
        let shared = Arc::new(TraceShared { state: Mutex::new(state), changed: Condvar::new() });
        let thread_shared = shared.clone();
        // The thread ends with the program at the latest: a stalled disk may block it for ever.
        std::thread::spawn(move || thread_shared.run_writer(writer, &shown));
        Ok(Self { shared, started_at: Instant::now() })
    }

    /// Returns a recorder for a connection on which this program is `local` and its peer is `remote`.
    pub fn recorder(self: &Arc<Self>, local: TraceSide, remote: TraceSide) -> Arc<dyn WireRecorder> {
        Arc::new(ConnectionRecorder { trace: self.clone(), sides: (local, remote) })
    }

    fn record(&self, from: TraceSide, to: TraceSide, line: &[u8]) {
        let elapsed_us = u64::try_from(self.started_at.elapsed().as_micros()).unwrap_or(u64::MAX);
        let mut state = self.shared.lock_state();
        if state.backlog.has_room(line.len()) {
            state.backlog.push(TraceEntry { elapsed_us, from, to, bytes: line.to_vec() });
        } else {
            state.backlog.record_loss(line.len());
        }
        drop(state);
        self.shared.changed.notify_all();
    }
}

impl Drop for TraceRecorder {
    fn drop(&mut self) {
        let mut state = self.shared.lock_state();
        state.is_closed = true;
        self.shared.changed.notify_all();
        let result = self.shared.changed.wait_timeout_while(state, FLUSH_TIMEOUT, |state| !state.is_flushed);
        if result.is_ok_and(|(state, _)| !state.is_flushed) {
            print_note("the disk does not take the end of the trace: it is cut short");
        }
    }
}

impl WireRecorder for ConnectionRecorder {
    fn record_line(&self, direction: Direction, line: &[u8]) {
        let (local, remote) = self.sides;
        match direction {
            Direction::Sent => self.trace.record(local, remote, line),
            Direction::Received => self.trace.record(remote, local, line),
        }
    }
}

impl TraceShared {
    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the backlog until it is closed.
    fn run_writer(&self, mut writer: TraceWriter, shown: &str) {
        loop {
            let mut state = self.lock_state();
            let item = loop {
                match state.backlog.pop() {
                    Some(item) => break Some(item),
                    None if state.is_closed => break None,
                    None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(state);
            let Some(item) = item else { break };
            writer.write(item);
        }
        if let Some(gap) = writer.finish() {
            let count = crate::common::console::pluralize;
            let messages = count(usize::try_from(gap.messages).unwrap_or(usize::MAX), "message", "messages");
            print_note(&format!("the disk did not take the last {messages} of the trace {shown}"));
        }
        self.lock_state().is_flushed = true;
        self.changed.notify_all();
    }
}

/// Several recorders on the same connection.
pub struct RecorderSet(pub Vec<Arc<dyn WireRecorder>>);

impl WireRecorder for RecorderSet {
    fn record_line(&self, direction: Direction, line: &[u8]) {
        for recorder in &self.0 {
            recorder.record_line(direction, line);
        }
    }
}

#[cfg(test)]
mod tests;
