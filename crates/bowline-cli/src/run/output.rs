//! The output of a run: one queue for stdout and stderr, so that their order is kept, and a slow or stalled reader
//! delays neither signals nor time limits.

use std::collections::VecDeque;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bowline_wire::{Direction, WireRecorder};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::{oneshot, watch};

/// The maximum number of bytes queued for a reader. The queue must never block signals and time limits, so exceeding it
/// closes stdout and ends the run.
const MAX_QUEUED: usize = 64 << 20;

/// Erases a line of the terminal.
const ERASE_LINE: &str = "\r\x1b[K";

/// Why stdout is closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StdoutError {
    /// The reader has closed it.
    ReaderGone,
    /// The reader is too slow, and the queue is full.
    ReaderTooSlow,
    /// It cannot be written.
    WriteFailed(String),
}

/// An output stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutputStream {
    Stdout,
    Stderr,
}

/// The output of a run. Clones share one queue.
#[derive(Debug, Clone)]
pub(super) struct RunOutput {
    queue: Arc<StdioQueue>,
}

/// The thread that writes.
#[derive(Debug)]
pub(super) struct OutputThread {
    queue: Arc<StdioQueue>,
    finished: oneshot::Receiver<()>,
}

#[derive(Debug)]
struct StdioQueue {
    pieces: Mutex<QueuedOutput>,
    changed: Condvar,
    // Why stdout is closed, once it is.
    stdout_error: watch::Sender<Option<StdoutError>>,
}

#[derive(Debug, Default)]
struct QueuedOutput {
    waiting: VecDeque<(OutputStream, Vec<u8>)>,
    // Invariant: the number of queued bytes; exceeds `MAX_QUEUED` by at most one piece of stdout and the bytes for
    // stderr.
    bytes: usize,
    // Whether the terminal's current line shows progress.
    has_progress_line: bool,
    // No more output will come.
    is_closed: bool,
}

impl QueuedOutput {
    fn add(&mut self, stream: OutputStream, bytes: Vec<u8>) {
        self.bytes += bytes.len();
        self.waiting.push_back((stream, bytes));
    }

    fn erase_progress(&mut self) {
        if std::mem::take(&mut self.has_progress_line) {
            self.add(OutputStream::Stderr, ERASE_LINE.into());
        }
    }
}

impl RunOutput {
    /// Starts the writer thread.
    pub(super) fn start() -> (Self, OutputThread) {
        let queue = Arc::new(StdioQueue {
            pieces: Mutex::default(),
            changed: Condvar::new(),
            stdout_error: watch::Sender::new(None),
        });
        let writer_queue = queue.clone();
        let (finished_sender, finished) = oneshot::channel();
        // The thread ends with the program at the latest: a stalled reader may block it for ever.
        std::thread::spawn(move || {
            writer_queue.run_writer();
            finished_sender.send(()).ok();
        });
        (Self { queue: queue.clone() }, OutputThread { queue, finished })
    }

    /// Writes to stdout.
    pub(super) fn write_stdout(&self, text: impl Into<Vec<u8>>) {
        self.queue.push(OutputStream::Stdout, text.into());
    }

    /// Writes to stderr.
    pub(super) fn write_stderr(&self, text: impl Into<Vec<u8>>) {
        self.queue.push(OutputStream::Stderr, text.into());
    }

    /// Shows progress on one line of the terminal, which the next output overwrites; without a terminal, nothing.
    pub(super) fn show_progress(&self, line: Option<String>) {
        if io::stderr().is_terminal() {
            let mut pieces = self.queue.lock_pieces();
            pieces.erase_progress();
            if let Some(line) = line {
                pieces.add(OutputStream::Stderr, line.into_bytes());
                pieces.has_progress_line = true;
            }
            drop(pieces);
            self.queue.changed.notify_all();
        }
    }

    /// Waits until stdout is closed.
    pub(super) async fn stdout_closed(&self) {
        // `self` holds the sender, so this cannot fail.
        self.queue.stdout_error.subscribe().wait_for(Option::is_some).await.ok();
    }

    /// Returns why stdout is closed, if it is.
    pub(super) fn stdout_error(&self) -> Option<StdoutError> {
        self.queue.stdout_error.borrow().clone()
    }

    /// Checks whether stdout still has a reader: without a write, a closed pipe goes unnoticed.
    pub(super) fn check_reader(&self) {
        let stdout = io::stdout();
        let mut fds = [PollFd::new(&stdout, PollFlags::empty())];
        let no_wait = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut fds, Some(&no_wait)).is_ok() && fds[0].revents().contains(PollFlags::ERR) {
            self.queue.close_stdout(StdoutError::ReaderGone);
        }
    }
}

impl OutputThread {
    /// Waits until everything is written. Later output is dropped.
    pub(super) async fn finish(self) {
        self.queue.close();
        self.finished.await.ok();
    }
}

impl StdioQueue {
    fn lock_pieces(&self) -> MutexGuard<'_, QueuedOutput> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, stream: OutputStream, bytes: Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let mut pieces = self.lock_pieces();
        if stream == OutputStream::Stdout
            && (self.stdout_error.borrow().is_some() || pieces.bytes > MAX_QUEUED)
        {
            drop(pieces);
            return self.close_stdout(StdoutError::ReaderTooSlow);
        }
        pieces.erase_progress();
        pieces.add(stream, bytes);
        drop(pieces);
        self.changed.notify_all();
    }

    fn close(&self) {
        let mut pieces = self.lock_pieces();
        pieces.erase_progress();
        pieces.is_closed = true;
        drop(pieces);
        self.changed.notify_all();
    }

    /// Closes stdout. The first reason is kept.
    fn close_stdout(&self, error: StdoutError) {
        self.stdout_error.send_if_modified(|current| {
            let is_first = current.is_none();
            current.get_or_insert(error);
            is_first
        });
    }

    /// Returns whether stdout cannot be written at all. A reader that is only slow still gets the queued output.
    fn has_failed(&self) -> bool {
        matches!(*self.stdout_error.borrow(), Some(StdoutError::ReaderGone | StdoutError::WriteFailed(_)))
    }

    /// Writes until the queue is closed and empty.
    fn run_writer(&self) {
        loop {
            let mut pieces = self.lock_pieces();
            let (stream, bytes) = loop {
                if let Some(piece) = pieces.waiting.pop_front() {
                    break piece;
                }
                if pieces.is_closed {
                    return;
                }
                pieces = self.changed.wait(pieces).unwrap_or_else(PoisonError::into_inner);
            };
            pieces.bytes -= bytes.len();
            drop(pieces);
            self.changed.notify_all();
            match stream {
                OutputStream::Stdout if self.has_failed() => {}
                OutputStream::Stdout => {
                    let mut stdout = io::stdout().lock();
                    match stdout.write_all(&bytes).and_then(|()| stdout.flush()) {
                        Ok(()) => {}
                        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                            self.close_stdout(StdoutError::ReaderGone);
                        }
                        Err(error) => self.close_stdout(StdoutError::WriteFailed(error.to_string())),
                    }
                }
                // A failure on stderr cannot be reported anywhere else.
                OutputStream::Stderr => io::stderr().write_all(&bytes).unwrap_or_default(),
            }
        }
    }
}

/// Prints every protocol message as sent. Lines of an agent that are not messages are left out, because programs read
/// this output.
#[derive(Debug)]
pub(super) struct MessagePrinter(pub(super) RunOutput);

impl WireRecorder for MessagePrinter {
    fn record_line(&self, _: Direction, line: &[u8]) {
        let is_object = line.trim_ascii_start().starts_with(b"{");
        if is_object && serde_json::from_slice::<serde::de::IgnoredAny>(line).is_ok() {
            self.0.write_stdout([line.trim_ascii(), b"\n"].concat());
        }
    }
}
