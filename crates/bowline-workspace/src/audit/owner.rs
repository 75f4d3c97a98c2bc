//! Who writes a log: the caller itself if the log is not contended, otherwise one thread, which writes all entries that wait in
//! one call and then answers for them.
//!
//! An entry that comes alone, as most do, costs no switch between threads. Entries that come together cost one write.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use bowline_state::audit::Entry;
use tokio::sync::oneshot;

use super::Shared;
use super::error::AuditError;
use super::writer::Writer;

/// So many entries wait for the thread; who comes with one more waits until it has taken some.
const MAX_WAITING: usize = 1024;

/// The writer of a log and the thread that shares it. The thread ends when this is dropped.
#[derive(Debug)]
pub(super) struct Owner {
    writer: Arc<Mutex<Writer>>,
    // None only while it is dropped.
    waiting: Option<SyncSender<Append>>,
    thread: Option<JoinHandle<()>>,
    directory: PathBuf,
}

/// An entry, and who waits for its number.
#[derive(Debug)]
pub(super) struct Append {
    pub(super) entry: Entry,
    pub(super) reply: oneshot::Sender<Result<u64, AuditError>>,
}

/// An entry that is about to be in the log.
#[derive(Debug)]
#[must_use = "only `recorded` tells whether the log has it"]
pub struct Pending(State);

#[derive(Debug)]
enum State {
    Done(Result<u64, AuditError>),
    Waiting { reply: oneshot::Receiver<Result<u64, AuditError>>, directory: PathBuf },
}

impl Pending {
    /// Returns the entry's number once the log and its anchor have it.
    ///
    /// # Errors
    /// Fails if the entry is not in the log for certain. Then what it tells of may not be done.
    pub async fn recorded(self) -> Result<u64, AuditError> {
        match self.0 {
            State::Done(outcome) => outcome,
            State::Waiting { reply, directory } => {
                reply.await.unwrap_or(Err(AuditError::Stopped { path: directory }))
            }
        }
    }
}

impl Owner {
    /// Starts the thread.
    pub(super) fn start(writer: Writer, directory: PathBuf) -> io::Result<Self> {
        let writer = Arc::new(Mutex::new(writer));
        let (waiting, received) = sync_channel(MAX_WAITING);
        let its = writer.clone();
        let thread =
            thread::Builder::new().name("audit-log".to_owned()).spawn(move || serve(&its, &received))?;
        Ok(Self { writer, waiting: Some(waiting), thread: Some(thread), directory })
    }

    /// Appends an entry and waits until the anchor has it.
    pub(super) fn append(&self, entry: &Entry) -> Result<u64, AuditError> {
        lock(&self.writer).append(entry)
    }

    /// Appends an entry, or leaves it to the thread if something is being appended.
    pub(super) fn submit(&self, entry: Entry) -> Pending {
        if let Ok(mut writer) = self.writer.try_lock() {
            return Pending(State::Done(writer.append(&entry)));
        }
        let (reply, replied) = oneshot::channel();
        if let Some(waiting) = &self.waiting {
            // If the thread is gone, so is the other end of the reply.
            waiting.send(Append { entry, reply }).unwrap_or_default();
        }
        Pending(State::Waiting { reply: replied, directory: self.directory.clone() })
    }

    /// Returns the files of the log and its anchor.
    pub(super) fn files(&self) -> (Shared, Shared) {
        lock(&self.writer).files()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.waiting = None;
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// A panic in the middle of a write leaves a writer that looks at what is there before the next one.
fn lock(writer: &Mutex<Writer>) -> MutexGuard<'_, Writer> {
    writer.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(writer: &Mutex<Writer>, waiting: &Receiver<Append>) {
    while let Ok(first) = waiting.recv() {
        let mut writer = lock(writer);
        // Those that came while another wrote are taken now.
        append_together(&mut writer, std::iter::once(first).chain(waiting.try_iter()));
    }
}

/// Appends entries together and tells each its number.
pub(super) fn append_together(writer: &mut Writer, appends: impl Iterator<Item = Append>) {
    let (entries, replies): (Vec<Entry>, Vec<_>) = appends.map(|append| (append.entry, append.reply)).unzip();
    let outcomes = writer.append_all(&entries.iter().collect::<Vec<_>>());
    for (reply, outcome) in replies.into_iter().zip(outcomes) {
        // One who is gone needs no answer.
        reply.send(outcome).unwrap_or_default();
    }
}
