//! What a run writes: one queue for stdout and stderr, so that their order is that of what happened, and so that a reader
//! who takes time, or stands still, does not keep signals and time limits waiting.

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bowline_wire::{Direction, Tap};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::{oneshot, watch};

/// So many bytes wait for a reader. Nobody may be kept waiting who has signals and time limits to look at, so what is
/// beyond this is not written, and that is the end of the run.
const MAX_QUEUED: usize = 64 << 20;

/// Why stdout is written no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unwritten {
    /// Nobody reads it any more.
    Unread,
    /// It is read more slowly than the agent speaks, and more waits than may.
    Behind,
    /// It cannot be written.
    Failed(String),
}

/// Which stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum To {
    Stdout,
    Stderr,
}

/// Where a run writes to. Clones write to the same.
#[derive(Debug, Clone)]
pub(super) struct Output {
    queue: Arc<Queue>,
}

/// The thread that writes.
#[derive(Debug)]
pub(super) struct Writing {
    queue: Arc<Queue>,
    ended: oneshot::Receiver<()>,
}

#[derive(Debug)]
struct Queue {
    pieces: Mutex<Pieces>,
    changed: Condvar,
    // Why stdout is written no more, once that is so.
    unwritten: watch::Sender<Option<Unwritten>>,
}

#[derive(Debug, Default)]
struct Pieces {
    waiting: VecDeque<(To, Vec<u8>)>,
    // Invariant: how many bytes wait; more than `MAX_QUEUED` by one piece of stdout and what goes to stderr at most.
    bytes: usize,
    // Nothing comes any more.
    ended: bool,
}

impl Output {
    /// Begins to write.
    pub(super) fn begin() -> (Self, Writing) {
        let queue = Arc::new(Queue {
            pieces: Mutex::default(),
            changed: Condvar::new(),
            unwritten: watch::Sender::new(None),
        });
        let its = queue.clone();
        let (done, ended) = oneshot::channel();
        // It ends with the program at the latest: a reader who stands still may keep it for ever.
        std::thread::spawn(move || {
            its.write();
            done.send(()).ok();
        });
        (Self { queue: queue.clone() }, Writing { queue, ended })
    }

    /// Writes to stdout.
    pub(super) fn out(&self, text: impl Into<Vec<u8>>) {
        self.queue.push(To::Stdout, text.into());
    }

    /// Writes to stderr.
    pub(super) fn err(&self, text: impl Into<Vec<u8>>) {
        self.queue.push(To::Stderr, text.into());
    }

    /// Waits until stdout is written no more.
    pub(super) async fn closed(&self) {
        // We have the sender ourselves.
        self.queue.unwritten.subscribe().wait_for(Option::is_some).await.ok();
    }

    /// Returns why stdout is written no more, if that is so.
    pub(super) fn unwritten(&self) -> Option<Unwritten> {
        self.queue.unwritten.borrow().clone()
    }

    /// Looks whether somebody still reads stdout: while nothing is written, nobody is told.
    pub(super) fn look(&self) {
        let stdout = io::stdout();
        let mut looked = [PollFd::new(&stdout, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut looked, Some(&now)).is_ok() && looked[0].revents().contains(PollFlags::ERR) {
            self.queue.give_up(Unwritten::Unread);
        }
    }
}

impl Writing {
    /// Waits until all is written. What comes later is not.
    pub(super) async fn finish(self) {
        self.queue.pieces().ended = true;
        self.queue.changed.notify_all();
        self.ended.await.ok();
    }
}

impl Queue {
    fn pieces(&self) -> MutexGuard<'_, Pieces> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, to: To, bytes: Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let mut pieces = self.pieces();
        if to == To::Stdout && (self.unwritten.borrow().is_some() || pieces.bytes > MAX_QUEUED) {
            drop(pieces);
            return self.give_up(Unwritten::Behind);
        }
        pieces.bytes += bytes.len();
        pieces.waiting.push_back((to, bytes));
        drop(pieces);
        self.changed.notify_all();
    }

    /// Writes no more to stdout. What is known of it first is why.
    fn give_up(&self, why: Unwritten) {
        self.unwritten.send_if_modified(|known| {
            let is_first = known.is_none();
            known.get_or_insert(why);
            is_first
        });
    }

    /// Says whether nothing can be written to stdout. Who is only behind gets what waits.
    fn has_failed(&self) -> bool {
        matches!(*self.unwritten.borrow(), Some(Unwritten::Unread | Unwritten::Failed(_)))
    }

    /// Writes until nothing comes any more.
    fn write(&self) {
        loop {
            let mut pieces = self.pieces();
            let (to, bytes) = loop {
                if let Some(piece) = pieces.waiting.pop_front() {
                    break piece;
                }
                if pieces.ended {
                    return;
                }
                pieces = self.changed.wait(pieces).unwrap_or_else(PoisonError::into_inner);
            };
            pieces.bytes -= bytes.len();
            drop(pieces);
            self.changed.notify_all();
            match to {
                To::Stdout if self.has_failed() => {}
                To::Stdout => {
                    let mut stdout = io::stdout().lock();
                    match stdout.write_all(&bytes).and_then(|()| stdout.flush()) {
                        Ok(()) => {}
                        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                            self.give_up(Unwritten::Unread);
                        }
                        Err(error) => self.give_up(Unwritten::Failed(error.to_string())),
                    }
                }
                // If that does not work, there is nowhere else to say it.
                To::Stderr => io::stderr().write_all(&bytes).unwrap_or_default(),
            }
        }
    }
}

/// Prints every message of the protocol as it was sent. What an agent writes that is no message is left out: programs
/// read this.
#[derive(Debug)]
pub(super) struct Messages(pub(super) Output);

impl Tap for Messages {
    fn line(&self, _: Direction, line: &[u8]) {
        let is_object = line.trim_ascii_start().starts_with(b"{");
        if is_object && serde_json::from_slice::<serde::de::IgnoredAny>(line).is_ok() {
            self.0.out([line.trim_ascii(), b"\n"].concat());
        }
    }
}
