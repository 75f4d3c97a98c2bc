//! Tests of batched appends: queued entries are appended together, and each gets its own reply.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::Poll;
use std::time::Duration;
use std::{fs, io, thread};

use bowline_policy::audit::{AuditAction, AuditSubject};
use bowline_text::time::Timestamp;
use futures_util::future::join_all;
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::shared_writer::{AppendRequest, append_batch};
use super::*;
use bowline_storage::disk_calls::{DiskCall, DiskFaultInjector};

fn entry(number: usize) -> AuditEntry {
    let mut entry = AuditEntry::new(Timestamp(0), AuditAction::Write);
    entry.subject = AuditSubject::Text(format!("entry {number}"));
    entry
}

struct AuditLogFixture {
    root: TempDir,
}

impl AuditLogFixture {
    fn new() -> Self {
        Self { root: TempDir::new().unwrap() }
    }

    fn paths(&self) -> (PathBuf, PathBuf) {
        (self.root.path().join("log"), self.root.path().join("anchor"))
    }

    fn open(&self, max_file_bytes: u64) -> AuditLog {
        let settings = AuditOptions { max_file_bytes, ..AuditOptions::default() };
        let (directory, anchor) = self.paths();
        AuditLog::open(&directory, &anchor, settings).unwrap()
    }

    fn open_with(&self, injector: Arc<impl DiskFaultInjector + 'static>, options: AuditOptions) -> AuditLog {
        let (directory, anchor) = self.paths();
        AuditLog::open_with(&directory, &anchor, options, DiskCalls::with_injector(injector)).unwrap()
    }

    fn writer(&self, max_file_bytes: u64) -> AuditWriter {
        let settings = AuditOptions { max_file_bytes, ..AuditOptions::default() };
        let (directory, anchor) = self.paths();
        AuditWriter::open(&directory, &anchor, settings, DiskCalls::default()).unwrap()
    }

    fn line_count(&self) -> usize {
        let log = self.paths().0.join(log_file::file_name(1));
        fs::read_to_string(log).unwrap().lines().count()
    }

    /// Returns the verification result, and the number of files and lines.
    fn summary(&self) -> (String, usize, usize) {
        let (directory, anchor) = self.paths();
        let report = verify(&directory, &anchor).unwrap();
        let found = report.findings.iter().map(|finding| format!("{finding}\n")).collect();
        let files: Vec<_> = fs::read_dir(&directory).unwrap().map(|file| file.unwrap().path()).collect();
        let lines = files.iter().map(|file| fs::read_to_string(file).unwrap().lines().count()).sum();
        (found, files.len(), lines)
    }
}

fn append_entries(writer: &mut AuditWriter, count: usize) -> Vec<String> {
    let entries: Vec<AuditEntry> = (0..count).map(entry).collect();
    let lock = writer.lock().unwrap();
    let outcomes = writer.append_all(&lock, &entries);
    let word =
        |outcome: Result<u64, AuditError>| outcome.map_or_else(|_| "no".to_owned(), |seq| seq.to_string());
    outcomes.into_iter().map(word).collect()
}

#[test]
fn entries_of_many_threads_are_numbered_once_each() {
    let lab = AuditLogFixture::new();
    let log = Arc::new(lab.open(1 << 20));
    let threads: Vec<_> = (0..100)
        .map(|number| {
            let log = log.clone();
            thread::spawn(move || log.append(&entry(number)).unwrap())
        })
        .collect();
    let mut numbers: Vec<u64> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=100).collect::<Vec<u64>>());
    assert_eq!(lab.summary(), (String::new(), 1, 100));
}

#[test]
fn entries_that_wait_for_a_writer_are_all_recorded() {
    let lab = AuditLogFixture::new();
    let entered = Arc::new(WriteBarrier::default());
    let log = Arc::new(lab.open_with(entered.clone(), AuditOptions::default()));
    entered.hold_next();
    let first = thread::spawn({
        let log = log.clone();
        move || log.append(&entry(0)).unwrap()
    });
    entered.wait_until_held();
    let mut waits = pin!(join_all((1..=64).map(|number| log.submit(entry(number)).wait())));
    // Polled again after their yield, they find the log held.
    for _ in 0..2 {
        assert!(block_on(poll_fn(|cx| Poll::Ready(waits.as_mut().poll(cx).is_pending()))));
    }
    assert_eq!(lab.line_count(), 0, "the first is still being written");
    entered.release();
    assert_eq!(first.join().unwrap(), 1);
    let numbers: Vec<u64> = block_on(waits).into_iter().map(Result::unwrap).collect();
    assert_eq!(numbers, (2..=65).collect::<Vec<u64>>());
    assert_eq!(lab.summary(), (String::new(), 1, 65));
}

#[test]
fn entries_that_are_awaited_together_are_one_write() {
    let lab = AuditLogFixture::new();
    let writes = Arc::new(WriteCounter::default());
    let log = lab.open_with(writes.clone(), AuditOptions::default());
    log.append(&entry(0)).unwrap();
    writes.0.store(0, Ordering::Relaxed);
    let numbers = block_on(join_all((1..=5).map(|number| log.submit(entry(number)).wait())));
    assert_eq!(numbers.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [2, 3, 4, 5, 6]);
    assert_eq!(writes.0.load(Ordering::Relaxed), 2, "one write to the log, and one to the anchor");
    assert_eq!(lab.summary(), (String::new(), 1, 6));
}

#[test]
fn an_entry_that_is_not_awaited_is_written() {
    let lab = AuditLogFixture::new();
    let entered = Arc::new(WriteBarrier::default());
    let log = lab.open_with(entered.clone(), AuditOptions::default());
    log.append(&entry(0)).unwrap();
    entered.hold_next();
    drop(log.submit(entry(1)));
    entered.wait_until_held();
    entered.release();
    assert_eq!(block_on(log.submit(entry(2)).wait()).unwrap(), 3);
    assert_eq!(lab.summary(), (String::new(), 1, 3));
}

#[test]
fn more_entries_than_the_queue_holds_are_all_recorded() {
    let lab = AuditLogFixture::new();
    let log = lab.open(1 << 20);
    let waits: Vec<_> = (0..1500).map(|number| log.submit(entry(number)).wait()).collect();
    let numbers: Vec<u64> = block_on(join_all(waits)).into_iter().map(Result::unwrap).collect();
    assert_eq!(numbers, (1..=1500).collect::<Vec<u64>>());
    assert_eq!(lab.summary(), (String::new(), 1, 1500));
}

#[test]
fn only_a_write_that_does_not_block_is_made_by_the_task() {
    let usual = AuditOptions::default();
    let slow = Duration::ZERO;
    for (case, options, max_direct_write, expected) in [
        // The first append examines the log.
        ("usual", usual, Duration::MAX, ["audit-log", "task", "task"]),
        ("slow", usual, slow, ["audit-log"; 3]),
        ("rotated", AuditOptions { max_file_bytes: 900, ..usual }, Duration::MAX, ["audit-log"; 3]),
    ] {
        let lab = AuditLogFixture::new();
        let threads = Arc::new(WriterThreads::default());
        let (directory, anchor) = lab.paths();
        let calls = DiskCalls::with_injector(threads.clone());
        let writer = AuditWriter::open(&directory, &anchor, options, calls).unwrap();
        let writer = SharedWriter::start(writer, directory.clone(), max_direct_write).unwrap();
        let log = AuditLog { writer: Arc::new(writer), directory, anchor, principal: None };
        let names: Vec<String> = (0..3)
            .map(|number| {
                let task = || block_on(log.submit(entry(number)).wait()).unwrap();
                thread::scope(|scope| {
                    let task = thread::Builder::new().name("task".to_owned()).spawn_scoped(scope, task);
                    task.unwrap().join().unwrap();
                });
                threads.0.lock().unwrap().clone()
            })
            .collect();
        assert_eq!(names, expected, "{case}");
        assert_eq!(lab.summary().0, "", "{case}");
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

#[test]
fn each_is_told_the_number_of_its_own_entry() {
    let lab = AuditLogFixture::new();
    let writes = Arc::new(WriteCounter::default());
    let (directory, anchor) = lab.paths();
    let calls = DiskCalls::with_injector(writes.clone());
    let mut writer = AuditWriter::open(&directory, &anchor, AuditOptions::default(), calls).unwrap();
    let (requests, replies): (Vec<_>, Vec<_>) = (0..3)
        .map(|number| {
            let (reply, replied) = oneshot::channel();
            (AppendRequest { entry: entry(number), reply }, replied)
        })
        .unzip();
    writes.0.store(0, Ordering::Relaxed);
    let lock = writer.lock().unwrap();
    append_batch(&mut writer, &lock, requests.into_iter());
    assert_eq!(writes.0.load(Ordering::Relaxed), 2, "one write to the log, and one to the anchor");
    let numbers: Vec<u64> =
        replies.into_iter().map(|reply| reply.blocking_recv().unwrap().unwrap()).collect();
    assert_eq!(numbers, [1, 2, 3]);
    let log = fs::read_to_string(lab.paths().0.join(log_file::file_name(1))).unwrap();
    let texts: Vec<bool> =
        log.lines().enumerate().map(|(at, line)| line.contains(&format!("\"entry {at}\""))).collect();
    assert_eq!(texts, [true; 3]);
}

/// Blocks the next write until it is released.
#[derive(Default)]
struct WriteBarrier {
    state: Mutex<BarrierState>,
    changed: Condvar,
}

#[derive(Default, PartialEq, Clone, Copy)]
enum BarrierState {
    #[default]
    Open,
    HoldNext,
    Holding,
}

impl WriteBarrier {
    fn hold_next(&self) {
        *self.state.lock().unwrap() = BarrierState::HoldNext;
    }

    fn wait_until_held(&self) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| *state != BarrierState::Holding).unwrap());
    }

    fn release(&self) {
        *self.state.lock().unwrap() = BarrierState::Open;
        self.changed.notify_all();
    }
}

impl DiskFaultInjector for WriteBarrier {
    fn before_call(&self, call: DiskCall, bytes: usize) -> io::Result<usize> {
        let mut state = self.state.lock().unwrap();
        if call == DiskCall::Write && *state == BarrierState::HoldNext {
            *state = BarrierState::Holding;
            self.changed.notify_all();
            drop(self.changed.wait_while(state, |state| *state == BarrierState::Holding).unwrap());
        }
        Ok(bytes)
    }
}

/// The name of the thread that wrote last.
#[derive(Default)]
struct WriterThreads(Mutex<String>);

impl DiskFaultInjector for WriterThreads {
    fn before_call(&self, call: DiskCall, bytes: usize) -> io::Result<usize> {
        if call == DiskCall::Write {
            *self.0.lock().unwrap() = thread::current().name().unwrap_or_default().to_owned();
        }
        Ok(bytes)
    }
}

/// Counts writes.
#[derive(Default)]
struct WriteCounter(AtomicUsize);

impl DiskFaultInjector for WriteCounter {
    fn before_call(&self, call: DiskCall, bytes: usize) -> io::Result<usize> {
        if call == DiskCall::Write {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        Ok(bytes)
    }
}

#[test]
fn a_group_goes_on_in_the_next_file() {
    let lab = AuditLogFixture::new();
    let mut writer = lab.writer(2000);
    let first = append_entries(&mut writer, 20);
    assert_eq!(first, (1..=20).map(|seq| seq.to_string()).collect::<Vec<_>>());
    let (found, files, lines) = lab.summary();
    assert_eq!((found.as_str(), lines), ("", 20));
    assert!(files > 2, "{files}");
    assert_eq!(append_entries(&mut writer, 3), ["21", "22", "23"]);
    assert_eq!(lab.summary().0, "");
}

#[test]
fn several_logs_append_groups_to_one_chain() {
    let lab = AuditLogFixture::new();
    let (mut one, mut other) = (lab.writer(4000), lab.writer(4000));
    assert_eq!(append_entries(&mut one, 3), ["1", "2", "3"]);
    assert_eq!(append_entries(&mut other, 9), ["4", "5", "6", "7", "8", "9", "10", "11", "12"]);
    assert_eq!(append_entries(&mut one, 2), ["13", "14"]);
    assert_eq!(lab.summary().0, "");
}

#[test]
fn a_write_that_fails_fails_what_was_in_it_and_nothing_else() {
    let lab = AuditLogFixture::new();
    // Entries of about 300 bytes, so that a few fit in a file.
    let mut writer = lab.writer(2000);
    assert_eq!(append_entries(&mut writer, 1), ["1"]);
    writer.break_log();
    let outcomes = append_entries(&mut writer, 10);
    let failed = outcomes.iter().take_while(|outcome| *outcome == "no").count();
    assert!((1..10).contains(&failed), "{outcomes:?}");
    let rest: Vec<String> = (2..12 - failed).map(|seq| seq.to_string()).collect();
    assert_eq!(outcomes[failed..], rest, "the numbers go on where they were");
    assert_eq!(lab.summary().0, "");
}
