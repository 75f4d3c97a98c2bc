//! Entries that wait for each other are appended together, and each is answered for by itself.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::{fs, io, thread};

use bowline_state::audit::{Action, Subject};
use bowline_state::changes::Moment;
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::owner::{Append, append_together};
use super::*;
use crate::calls::{Call, Gate};

fn entry(number: usize) -> Entry {
    let mut entry = Entry::new(Moment(0), Action::Write);
    entry.subject = Subject::Text(format!("entry {number}"));
    entry
}

struct Lab {
    root: TempDir,
}

impl Lab {
    fn new() -> Self {
        Self { root: TempDir::new().unwrap() }
    }

    fn places(&self) -> (PathBuf, PathBuf) {
        (self.root.path().join("log"), self.root.path().join("anchor"))
    }

    fn open(&self, max_file_bytes: u64) -> AuditLog {
        let settings = Settings { max_file_bytes, ..Settings::default() };
        let (directory, anchor) = self.places();
        AuditLog::open(&directory, &anchor, settings).unwrap()
    }

    fn writer(&self, max_file_bytes: u64) -> Writer {
        let settings = Settings { max_file_bytes, ..Settings::default() };
        let (directory, anchor) = self.places();
        Writer::open(&directory, &anchor, settings, Calls::default()).unwrap()
    }

    fn lines(&self) -> usize {
        let log = self.places().0.join(place::name(1));
        fs::read_to_string(log).unwrap().lines().count()
    }

    /// What verifying finds, and how many files and lines there are.
    fn state(&self) -> (String, usize, usize) {
        let (directory, anchor) = self.places();
        let report = verify(&directory, &anchor).unwrap();
        let found = report.findings.iter().map(|finding| format!("{finding}\n")).collect();
        let files: Vec<_> = fs::read_dir(&directory).unwrap().map(|file| file.unwrap().path()).collect();
        let lines = files.iter().map(|file| fs::read_to_string(file).unwrap().lines().count()).sum();
        (found, files.len(), lines)
    }
}

fn append_all(writer: &mut Writer, count: usize) -> Vec<String> {
    let entries: Vec<Entry> = (0..count).map(entry).collect();
    let outcomes = writer.append_all(&entries.iter().collect::<Vec<_>>());
    let word =
        |outcome: Result<u64, AuditError>| outcome.map_or_else(|_| "no".to_owned(), |seq| seq.to_string());
    outcomes.into_iter().map(word).collect()
}

#[test]
fn entries_of_many_threads_are_numbered_once_each() {
    let lab = Lab::new();
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
    assert_eq!(lab.state(), (String::new(), 1, 100));
}

#[test]
fn entries_that_wait_for_a_writer_are_all_recorded() {
    let lab = Lab::new();
    let entered = Arc::new(Entered::default());
    let (directory, anchor) = lab.places();
    let log =
        AuditLog::open_with(&directory, &anchor, Settings::default(), Calls::gated(entered.clone())).unwrap();
    let log = Arc::new(log);
    entered.hold();
    let first = thread::spawn({
        let log = log.clone();
        move || log.append(&entry(0)).unwrap()
    });
    entered.wait();
    let pending: Vec<_> = (1..=64).map(|number| log.submit(entry(number))).collect();
    assert_eq!(lab.lines(), 0, "the first is still being written");
    entered.release();
    assert_eq!(first.join().unwrap(), 1);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let numbers: Vec<u64> =
        pending.into_iter().map(|pending| runtime.block_on(pending.recorded()).unwrap()).collect();
    assert_eq!(numbers, (2..=65).collect::<Vec<u64>>());
    assert_eq!(lab.state(), (String::new(), 1, 65));
}

#[test]
fn each_is_told_the_number_of_its_own_entry() {
    let lab = Lab::new();
    let writes = Arc::new(Writes::default());
    let (directory, anchor) = lab.places();
    let calls = Calls::gated(writes.clone());
    let mut writer = Writer::open(&directory, &anchor, Settings::default(), calls).unwrap();
    let (requests, replies): (Vec<_>, Vec<_>) = (0..3)
        .map(|number| {
            let (reply, replied) = oneshot::channel();
            (Append { entry: entry(number), reply }, replied)
        })
        .unzip();
    writes.0.store(0, Ordering::Relaxed);
    append_together(&mut writer, requests.into_iter());
    assert_eq!(writes.0.load(Ordering::Relaxed), 2, "one write to the log, and one to the anchor");
    let numbers: Vec<u64> =
        replies.into_iter().map(|reply| reply.blocking_recv().unwrap().unwrap()).collect();
    assert_eq!(numbers, [1, 2, 3]);
    let log = fs::read_to_string(lab.places().0.join(place::name(1))).unwrap();
    let texts: Vec<bool> =
        log.lines().enumerate().map(|(at, line)| line.contains(&format!("\"entry {at}\""))).collect();
    assert_eq!(texts, [true; 3]);
}

/// Holds the next write back until it is released.
#[derive(Default)]
struct Entered {
    state: Mutex<Held>,
    changed: Condvar,
}

#[derive(Default, PartialEq, Clone, Copy)]
enum Held {
    #[default]
    No,
    Next,
    Inside,
}

impl Entered {
    fn hold(&self) {
        *self.state.lock().unwrap() = Held::Next;
    }

    fn wait(&self) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| *state != Held::Inside).unwrap());
    }

    fn release(&self) {
        *self.state.lock().unwrap() = Held::No;
        self.changed.notify_all();
    }
}

impl Gate for Entered {
    fn pass(&self, call: Call, bytes: usize) -> io::Result<usize> {
        let mut state = self.state.lock().unwrap();
        if call == Call::Write && *state == Held::Next {
            *state = Held::Inside;
            self.changed.notify_all();
            drop(self.changed.wait_while(state, |state| *state == Held::Inside).unwrap());
        }
        Ok(bytes)
    }
}

/// Counts writes.
#[derive(Default)]
struct Writes(AtomicUsize);

impl Gate for Writes {
    fn pass(&self, call: Call, bytes: usize) -> io::Result<usize> {
        if call == Call::Write {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        Ok(bytes)
    }
}

#[test]
fn a_group_goes_on_in_the_next_file() {
    let lab = Lab::new();
    let mut writer = lab.writer(2000);
    let first = append_all(&mut writer, 20);
    assert_eq!(first, (1..=20).map(|seq| seq.to_string()).collect::<Vec<_>>());
    let (found, files, lines) = lab.state();
    assert_eq!((found.as_str(), lines), ("", 20));
    assert!(files > 2, "{files}");
    assert_eq!(append_all(&mut writer, 3), ["21", "22", "23"]);
    assert_eq!(lab.state().0, "");
}

#[test]
fn several_logs_append_groups_to_one_chain() {
    let lab = Lab::new();
    let (mut one, mut other) = (lab.writer(4000), lab.writer(4000));
    assert_eq!(append_all(&mut one, 3), ["1", "2", "3"]);
    assert_eq!(append_all(&mut other, 9), ["4", "5", "6", "7", "8", "9", "10", "11", "12"]);
    assert_eq!(append_all(&mut one, 2), ["13", "14"]);
    assert_eq!(lab.state().0, "");
}

#[test]
fn a_write_that_fails_fails_what_was_in_it_and_nothing_else() {
    let lab = Lab::new();
    // Of some 300 bytes each, so that a few go into a file.
    let mut writer = lab.writer(2000);
    assert_eq!(append_all(&mut writer, 1), ["1"]);
    writer.break_log();
    let outcomes = append_all(&mut writer, 10);
    let failed = outcomes.iter().take_while(|outcome| *outcome == "no").count();
    assert!((1..10).contains(&failed), "{outcomes:?}");
    let rest: Vec<String> = (2..12 - failed).map(|seq| seq.to_string()).collect();
    assert_eq!(outcomes[failed..], rest, "the numbers go on where they were");
    assert_eq!(lab.state().0, "");
}
