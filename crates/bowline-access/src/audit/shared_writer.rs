//! The shared writer of a log: a caller writes directly if the log is uncontended; otherwise one thread writes all
//! queued entries in one call and then replies to each caller.
//!
//! A single entry, the usual case, costs no thread switch. Concurrent entries cost one write.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use bowline_policy::audit::AuditEntry;
use tokio::sync::oneshot;

use super::SharedLogFile;
use super::error::AuditError;
use super::writer::AuditWriter;

/// The maximum number of entries queued for the thread; further callers block until it has taken some.
const MAX_QUEUED_ENTRIES: usize = 1024;

/// The writer of a log and the thread that shares it. The thread ends on drop.
#[derive(Debug)]
pub(super) struct SharedWriter {
    writer: Arc<Mutex<AuditWriter>>,
    // `None` only during drop.
    queue: Option<SyncSender<AppendRequest>>,
    thread: Option<JoinHandle<()>>,
    directory: PathBuf,
}

/// An entry, and the channel for its number.
#[derive(Debug)]
pub(super) struct AppendRequest {
    pub(super) entry: AuditEntry,
    pub(super) reply: oneshot::Sender<Result<u64, AuditError>>,
}

/// An entry being appended.
#[derive(Debug)]
#[must_use = "only `recorded` tells whether the log has it"]
pub struct PendingAppend(State);

#[derive(Debug)]
enum State {
    Appended(Result<u64, AuditError>),
    Queued { reply: oneshot::Receiver<Result<u64, AuditError>>, directory: PathBuf },
}

impl PendingAppend {
    /// Returns the entry's number once the log and its anchor have it.
    ///
    /// # Errors
    /// Fails if the entry is not certain to be in the log. The operation it records must not be carried out then.
    pub async fn wait(self) -> Result<u64, AuditError> {
        match self.0 {
            State::Appended(outcome) => outcome,
            State::Queued { reply, directory } => {
                reply.await.unwrap_or(Err(AuditError::Stopped { path: directory }))
            }
        }
    }
}

impl SharedWriter {
    /// Starts the writer thread.
    pub(super) fn start(writer: AuditWriter, directory: PathBuf) -> io::Result<Self> {
        let writer = Arc::new(Mutex::new(writer));
        let (waiting, received) = sync_channel(MAX_QUEUED_ENTRIES);
        let its = writer.clone();
        let thread =
            thread::Builder::new().name("audit-log".to_owned()).spawn(move || run_writer(&its, &received))?;
        Ok(Self { writer, queue: Some(waiting), thread: Some(thread), directory })
    }

    /// Appends an entry and waits until the anchor has it.
    pub(super) fn append(&self, entry: &AuditEntry) -> Result<u64, AuditError> {
        lock(&self.writer).append(entry)
    }

    /// Appends an entry, or queues it for the thread if the log is contended.
    pub(super) fn submit(&self, entry: AuditEntry) -> PendingAppend {
        if let Ok(mut writer) = self.writer.try_lock() {
            return PendingAppend(State::Appended(writer.append(&entry)));
        }
        let (reply, replied) = oneshot::channel();
        if let Some(waiting) = &self.queue {
            // If the thread has ended, the reply's sender is dropped, too.
            waiting.send(AppendRequest { entry, reply }).unwrap_or_default();
        }
        PendingAppend(State::Queued { reply: replied, directory: self.directory.clone() })
    }

    /// Returns the files of the log and its anchor.
    pub(super) fn files(&self) -> (SharedLogFile, SharedLogFile) {
        lock(&self.writer).files()
    }
}

impl Drop for SharedWriter {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// Locks the writer. A poisoned lock is fine: after a panic during a write, the next append examines the log first.
fn lock(writer: &Mutex<AuditWriter>) -> MutexGuard<'_, AuditWriter> {
    writer.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run_writer(writer: &Mutex<AuditWriter>, waiting: &Receiver<AppendRequest>) {
    while let Ok(first) = waiting.recv() {
        let mut writer = lock(writer);
        // Includes the entries that were queued while another caller wrote.
        append_batch(&mut writer, std::iter::once(first).chain(waiting.try_iter()));
    }
}

/// Appends entries together and replies to each with its number.
pub(super) fn append_batch(writer: &mut AuditWriter, appends: impl Iterator<Item = AppendRequest>) {
    let (entries, replies): (Vec<AuditEntry>, Vec<_>) =
        appends.map(|append| (append.entry, append.reply)).unzip();
    let outcomes = writer.append_all(&entries.iter().collect::<Vec<_>>());
    for (reply, outcome) in replies.into_iter().zip(outcomes) {
        // A caller that has gone away needs no reply.
        reply.send(outcome).unwrap_or_default();
    }
}
