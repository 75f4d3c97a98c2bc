//! The thread that owns a log: it writes all entries that wait, in one call, and then answers for them.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use bowline_state::audit::Entry;

use super::Shared;
use super::error::AuditError;
use super::writer::Writer;

/// So many requests wait for the thread; who comes with one more waits until it has taken some.
const MAX_WAITING: usize = 1024;

/// A handle on the thread, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Owner {
    // None only while it is dropped.
    requests: Option<SyncSender<Request>>,
    thread: Option<JoinHandle<()>>,
    directory: PathBuf,
}

/// What the thread is asked for.
#[derive(Debug)]
pub(super) enum Request {
    Append(Box<Append>),
    /// For the files of the log and its anchor.
    Files(SyncSender<(Shared, Shared)>),
}

/// An entry, and who waits for its number.
#[derive(Debug)]
pub(super) struct Append {
    pub(super) entry: Entry,
    pub(super) reply: SyncSender<Result<u64, AuditError>>,
}

impl Owner {
    /// Starts the thread.
    pub(super) fn start(writer: Writer, directory: PathBuf) -> io::Result<Self> {
        let (requests, received) = sync_channel(MAX_WAITING);
        let thread =
            thread::Builder::new().name("audit-log".to_owned()).spawn(move || serve(writer, &received))?;
        Ok(Self { requests: Some(requests), thread: Some(thread), directory })
    }

    /// Appends an entry and waits until the anchor has it.
    pub(super) fn append(&self, entry: &Entry) -> Result<u64, AuditError> {
        self.ask(|reply| Request::Append(Box::new(Append { entry: entry.clone(), reply })))?
    }

    /// Returns the files of the log and its anchor.
    pub(super) fn files(&self) -> Result<(Shared, Shared), AuditError> {
        self.ask(Request::Files)
    }

    fn ask<T>(&self, request: impl FnOnce(SyncSender<T>) -> Request) -> Result<T, AuditError> {
        let (reply, replied) = sync_channel(1);
        let sent = self.requests.as_ref().and_then(|requests| requests.send(request(reply)).ok());
        let answer = sent.and_then(|()| replied.recv().ok());
        answer.ok_or_else(|| AuditError::Stopped { path: self.directory.clone() })
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

fn serve(mut writer: Writer, requests: &Receiver<Request>) {
    while let Ok(request) = requests.recv() {
        serve_all(&mut writer, std::iter::once(request).chain(requests.try_iter()));
    }
}

/// Serves requests: all entries are appended together.
pub(super) fn serve_all(writer: &mut Writer, requests: impl Iterator<Item = Request>) {
    let mut appends = Vec::new();
    for request in requests {
        match request {
            Request::Append(append) => appends.push(append),
            // One who is gone needs no answer.
            Request::Files(reply) => reply.send(writer.files()).unwrap_or_default(),
        }
    }
    let entries: Vec<&Entry> = appends.iter().map(|append| &append.entry).collect();
    let outcomes = writer.append_all(&entries);
    for (append, outcome) in appends.iter().zip(outcomes) {
        append.reply.send(outcome).unwrap_or_default();
    }
}
