//! The shared writer of a log: requests queue up, and its owner writes all of them in one call, anchors them, and then
//! replies to each caller.
//!
//! The task or thread that holds the lock is the owner. A task that awaits its entry lets the other tasks of its runtime
//! add theirs first, and then writes for all of them, which costs no thread switch. A write that may block is left to a
//! thread: if the log is contended, has to be examined or rotated, or was slow the last time.

use std::future::poll_fn;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bowline_policy::audit::AuditEntry;
use tokio::sync::oneshot;

use super::SharedLogFile;
use super::error::AuditError;
use super::log_file::AnchorLock;
use super::writer::AuditWriter;

/// The maximum number of queued entries; the next caller writes them first.
const MAX_QUEUED_ENTRIES: usize = 1024;

/// A write that takes longer than this shows that the disk is slow: the next one is left to the thread.
pub(super) const MAX_DIRECT_WRITE: Duration = Duration::from_millis(1);

/// The writer of a log, its queue, and its thread, which ends on drop.
#[derive(Debug)]
pub(super) struct SharedWriter {
    state: Arc<WriterState>,
    queue: SyncSender<AppendRequest>,
    // `None` only during drop.
    thread: Option<JoinHandle<()>>,
    directory: PathBuf,
}

#[derive(Debug)]
struct WriterState {
    owner: Mutex<LogOwner>,
    is_closing: AtomicBool,
}

/// The state that only the holder of the lock may use.
#[derive(Debug)]
struct LogOwner {
    writer: AuditWriter,
    requests: Receiver<AppendRequest>,
    // Usually `MAX_DIRECT_WRITE`.
    max_direct_write: Duration,
    // Whether the last write took longer than that.
    is_slow: bool,
}

/// An entry, and the channel for its number.
#[derive(Debug)]
pub(super) struct AppendRequest {
    pub(super) entry: AuditEntry,
    pub(super) reply: oneshot::Sender<Result<u64, AuditError>>,
}

/// An entry being appended. It is appended even if this is dropped.
#[derive(Debug)]
#[must_use = "only `wait` tells whether the log has it"]
pub struct PendingAppend {
    reply: oneshot::Receiver<Result<u64, AuditError>>,
    writer: Arc<SharedWriter>,
    is_settled: bool,
}

impl PendingAppend {
    /// Returns the entry's number once the log and its anchor have it.
    ///
    /// # Errors
    /// Fails if the entry is not certain to be in the log. The operation it records must not be carried out then.
    pub async fn wait(mut self) -> Result<u64, AuditError> {
        yield_once().await;
        if self.reply.is_empty() {
            self.writer.write_queued();
        }
        let outcome = (&mut self.reply).await;
        self.is_settled = true;
        outcome.unwrap_or_else(|_| Err(AuditError::Stopped { path: self.writer.directory.clone() }))
    }
}

/// Lets the requests that arrived at the same time run first, so that their entries are queued, too.
async fn yield_once() {
    let mut has_yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl Drop for PendingAppend {
    fn drop(&mut self) {
        if !self.is_settled {
            self.writer.wake_thread();
        }
    }
}

impl SharedWriter {
    /// Starts the writer thread.
    pub(super) fn start(
        writer: AuditWriter,
        directory: PathBuf,
        max_direct_write: Duration,
    ) -> io::Result<Self> {
        let (queue, requests) = sync_channel(MAX_QUEUED_ENTRIES);
        let owner = Mutex::new(LogOwner { writer, requests, max_direct_write, is_slow: false });
        let state = Arc::new(WriterState { owner, is_closing: AtomicBool::new(false) });
        let its = state.clone();
        let thread = thread::Builder::new().name("audit-log".to_owned()).spawn(move || its.run())?;
        Ok(Self { state, queue, thread: Some(thread), directory })
    }

    /// Appends an entry and waits until the anchor has it.
    pub(super) fn append(&self, entry: &AuditEntry) -> Result<u64, AuditError> {
        self.state.lock().writer.append(entry)
    }

    /// Queues an entry.
    pub(super) fn submit(self: &Arc<Self>, entry: AuditEntry) -> PendingAppend {
        let (reply, replied) = oneshot::channel();
        let mut request = AppendRequest { entry, reply };
        // If the queue were closed, the reply's sender would be dropped, too.
        while let Err(TrySendError::Full(returned)) = self.queue.try_send(request) {
            self.state.lock().write_requests();
            request = returned;
        }
        PendingAppend { reply: replied, writer: self.clone(), is_settled: false }
    }

    /// Returns the files of the log and its anchor.
    pub(super) fn files(&self) -> (SharedLogFile, SharedLogFile) {
        self.state.lock().writer.files()
    }

    /// Writes the queued entries, or leaves them to the thread if that may block.
    fn write_queued(&self) {
        let is_done = self.state.owner.try_lock().is_ok_and(|mut owner| owner.try_write_requests());
        if !is_done {
            self.wake_thread();
        }
    }

    fn wake_thread(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for SharedWriter {
    fn drop(&mut self) {
        self.state.is_closing.store(true, Ordering::Release);
        self.wake_thread();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

impl WriterState {
    /// Locks the writer. A poisoned lock is fine: after a panic during a write, the next append examines the log first.
    fn lock(&self) -> MutexGuard<'_, LogOwner> {
        self.owner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what is queued each time the thread is woken.
    fn run(&self) {
        loop {
            thread::park();
            let is_closing = self.is_closing.load(Ordering::Acquire);
            self.lock().write_requests();
            if is_closing {
                return;
            }
        }
    }
}

impl LogOwner {
    /// Appends all queued entries.
    fn write_requests(&mut self) {
        let Ok(first) = self.requests.try_recv() else { return };
        match self.writer.lock() {
            Ok(lock) => self.write_locked(&lock, Some(first)),
            // A caller that has gone away needs no reply.
            Err(error) => std::iter::once(first).chain(self.requests.try_iter()).for_each(|request| {
                request.reply.send(Err(error.clone())).unwrap_or_default();
            }),
        }
    }

    /// Appends all queued entries, unless that may block. Returns whether it did.
    fn try_write_requests(&mut self) -> bool {
        if self.is_slow || !self.writer.is_ready() {
            return false;
        }
        let Ok(Some(lock)) = self.writer.try_lock() else { return false };
        self.write_locked(&lock, None);
        true
    }

    fn write_locked(&mut self, lock: &AnchorLock, first: Option<AppendRequest>) {
        let began = Instant::now();
        append_batch(&mut self.writer, lock, first.into_iter().chain(self.requests.try_iter()));
        self.is_slow = began.elapsed() > self.max_direct_write;
    }
}

/// Appends entries together and replies to each with its number.
pub(super) fn append_batch(
    writer: &mut AuditWriter,
    lock: &AnchorLock,
    requests: impl Iterator<Item = AppendRequest>,
) {
    let (entries, replies): (Vec<AuditEntry>, Vec<_>) =
        requests.map(|request| (request.entry, request.reply)).unzip();
    let outcomes = writer.append_all(lock, &entries);
    for (reply, outcome) in replies.into_iter().zip(outcomes) {
        // A caller that has gone away needs no reply.
        reply.send(outcome).unwrap_or_default();
    }
}
