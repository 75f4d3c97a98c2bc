//! Tests of several owners of one journal, some of which are killed.

use std::io::{BufRead as _, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;
use std::{env, fs};

use bowline_history::changes::{ChangeId, ChangeOrigin, ChangeOutcome};
use bowline_text::hash::ContentHash;
use bowline_text::time::Timestamp;
use bowline_workspace::journal::{ChangeFilter, Journal};
use expect_test::expect;
use tempfile::TempDir;

use super::fixture::{draft, history, open_journal, redact_directory};

/// The environment variable with the journal of a child process: a test that finds it set runs as a child of itself.
const CHILD_VARIABLE: &str = "BOWLINE_TEST_JOURNAL";

/// Another process that runs the same test as a child. It is killed on drop.
struct ChildProcess {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl ChildProcess {
    fn start(test: &str, directory: &Path) -> Self {
        let mut process = Command::new(env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(CHILD_VARIABLE, directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    /// Waits for its next message, skipping the output of the test harness. Returns `None` at the end.
    fn next_message(&mut self) -> Option<String> {
        // The harness has already written the start of the line.
        let said = |line: String| line.split_once("> ").map(|(_, said)| said.to_owned());
        self.lines.by_ref().find_map(|line| said(line.unwrap()))
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

fn child_directory() -> Option<PathBuf> {
    env::var_os(CHILD_VARIABLE).map(PathBuf::from)
}

fn print_message(text: impl std::fmt::Display) {
    println!("> {text}");
}

/// Blocks until the parent is gone or kills this process.
fn wait_for_parent() {
    std::io::stdin().lines().for_each(drop);
}

fn begin_change(journal: &mut Journal, path: &str, text: &str) -> ChangeId {
    journal
        .begin(&[draft(&ChangeOrigin::default(), path, None, Some(text.as_bytes()))], Timestamp(1))
        .unwrap()[0]
}

#[test]
fn a_second_owner_sees_what_the_first_did() {
    let directory = TempDir::new().unwrap();
    let (mut first, _) = open_journal(directory.path());
    let (mut second, notices) = open_journal(directory.path());
    assert_eq!(notices, []);
    let one = begin_change(&mut first, "/a", "one");
    let two = begin_change(&mut second, "/b", "two");
    second.settle(&[(one, ChangeOutcome::Done)]).unwrap();
    first.settle(&[(two, ChangeOutcome::Unknown)]).unwrap();
    expect![[r#"
        1 /a one Done
        2 /b two Unknown
    "#]]
    .assert_eq(&history(&first));
    assert_eq!(history(&second), history(&first));
}

#[test]
fn one_owner_at_a_time_has_the_lock() {
    let directory = TempDir::new().unwrap();
    let (first, _) = open_journal(directory.path());
    let (second, _) = open_journal(directory.path());
    let lock = first.lock().unwrap();
    let refused = second.lock_with_timeout(Duration::from_millis(5)).unwrap_err();
    expect!["another Bowline holds $DIR/lock: wait for it or end it"]
        .assert_eq(&redact_directory(directory.path(), refused));
    assert!(first.lock_with_timeout(Duration::ZERO).is_err());
    // A waiting owner gets the lock when it is released.
    thread::scope(|scope| {
        let waiting = scope.spawn(move || second.lock().map(drop));
        drop(lock);
        waiting.join().unwrap().unwrap();
    });
    drop(first.lock_with_timeout(Duration::ZERO).unwrap());
}

#[test]
fn a_journal_that_was_set_aside_is_not_written_by_those_who_have_it_open() {
    let directory = TempDir::new().unwrap();
    let (mut first, _) = open_journal(directory.path());
    begin_change(&mut first, "/a", "one");
    rusqlite::Connection::open(first.path()).unwrap().execute_batch("PRAGMA user_version = 7").unwrap();
    let (second, notices) = open_journal(directory.path());
    assert_eq!(notices.len(), 1);
    let refused = first.settle(&[(ChangeId(1), ChangeOutcome::Done)]).unwrap_err();
    expect!["the journal $DIR/journal.sqlite was moved or removed while it was in use: open it again"]
        .assert_eq(&redact_directory(directory.path(), refused));
    assert_eq!(second.pending_changes().unwrap(), []);
}

#[test]
fn an_intent_of_a_killed_process_is_pending_and_its_lock_is_free() {
    if let Some(directory) = child_directory() {
        let (mut journal, _) = open_journal(&directory);
        let _lock = journal.lock().unwrap();
        let done = begin_change(&mut journal, "/a", "one");
        journal.settle(&[(done, ChangeOutcome::Done)]).unwrap();
        print_message(begin_change(&mut journal, "/a", "two"));
        return wait_for_parent();
    }
    let directory = TempDir::new().unwrap();
    let (journal, _) = open_journal(directory.path());
    let mut other = ChildProcess::start(
        "crash::an_intent_of_a_killed_process_is_pending_and_its_lock_is_free",
        directory.path(),
    );
    assert_eq!(other.next_message().as_deref(), Some("2"));
    assert!(journal.lock_with_timeout(Duration::ZERO).is_err());
    other.kill();
    let lock = journal.lock_with_timeout(Duration::ZERO).unwrap();
    drop((lock, journal));

    let (journal, notices) = open_journal(directory.path());
    assert_eq!(notices, []);
    assert_eq!(history(&journal), "1 /a one Done\n");
    let pending = journal.pending_changes().unwrap();
    assert_eq!((pending.len(), pending[0].change.id), (1, ChangeId(2)));
    assert_eq!(journal.content(&pending[0].change.after.unwrap().hash).unwrap().unwrap(), b"two");
}

/// Killed anywhere between two statements: everything that the process reported as done is recorded, and intact.
#[test]
fn what_a_killed_process_was_told_is_recorded_is_recorded() {
    if let Some(directory) = child_directory() {
        let (mut journal, _) = open_journal(&directory);
        for n in 1.. {
            let lock = journal.lock().unwrap();
            let id = begin_change(&mut journal, "/a", &format!("text {n}"));
            print_message(format_args!("begun {id}"));
            journal.settle(&[(id, ChangeOutcome::Done)]).unwrap();
            print_message(format_args!("settled {id}"));
            drop(lock);
            if n % 10 == 0 {
                journal.prune(Timestamp(1)).unwrap();
            }
        }
    }
    let directory = TempDir::new().unwrap();
    for round in 1..=8 {
        let mut other = ChildProcess::start(
            "crash::what_a_killed_process_was_told_is_recorded_is_recorded",
            directory.path(),
        );
        let heard: Vec<_> = (0..round * 7).map_while(|_| other.next_message()).collect();
        assert_eq!(heard.len(), round * 7);
        other.kill();
        let (mut journal, notices) = open_journal(directory.path());
        assert_eq!(notices, []);
        let pending: Vec<_> = journal.pending_changes().unwrap().iter().map(|one| one.change.id).collect();
        assert!(pending.len() <= 1);
        for (what, id) in heard.iter().map(|line| line.split_once(' ').unwrap()) {
            let entry = journal.change(ChangeId(id.parse().unwrap())).unwrap().unwrap();
            assert!(what == "begun" || entry.outcome == Some(ChangeOutcome::Done), "{what} {id}");
        }
        for entry in journal.changes(&ChangeFilter::default()).unwrap() {
            assert!(journal.content(&entry.change.after.unwrap().hash).unwrap().is_some());
        }
        journal
            .settle(&pending.into_iter().map(|id| (id, ChangeOutcome::Abandoned)).collect::<Vec<_>>())
            .unwrap();
    }
}

/// A crash of the machine: the unsynced part of the WAL may be missing from any byte on. Intents are there
/// nevertheless, and settled changes are settled or pending again.
#[test]
fn an_intent_outlasts_the_log_behind_it() {
    let directory = TempDir::new().unwrap();
    let (mut journal, _) = open_journal(directory.path());
    let log = directory.path().join("journal.sqlite-wal");
    let length = || fs::metadata(&log).unwrap().len();
    let first = begin_change(&mut journal, "/a", "one");
    journal.settle(&[(first, ChangeOutcome::Done)]).unwrap();
    let before = length();
    let second = begin_change(&mut journal, "/a", "two");
    let begun = length();
    journal.settle(&[(second, ChangeOutcome::Done)]).unwrap();
    assert!(before < begun && begun < length());

    for kept in (before..length()).step_by(1021).chain([begun, length()]) {
        let crashed = TempDir::new().unwrap();
        fs::copy(journal.path(), crashed.path().join("journal.sqlite")).unwrap();
        fs::write(crashed.path().join("journal.sqlite-wal"), &fs::read(&log).unwrap()[..kept as usize])
            .unwrap();
        let (found, notices) = open_journal(crashed.path());
        assert_eq!(notices, []);
        let outcome = |id| found.change(id).unwrap().map(|entry| entry.outcome);
        assert_eq!(outcome(first), Some(Some(ChangeOutcome::Done)));
        match outcome(second) {
            None => assert!(kept < begun),
            Some(None) => assert!(kept >= begun && kept < length()),
            Some(settled) => assert_eq!((settled, kept), (Some(ChangeOutcome::Done), length())),
        }
    }
}

#[test]
fn processes_that_write_at_once_lose_nothing() {
    const EACH: usize = 25;
    if let Some(directory) = child_directory() {
        let (mut journal, _) = open_journal(&directory);
        let path = format!("/{}", std::process::id());
        for n in 0..EACH {
            let _lock = journal.lock().unwrap();
            assert_eq!(journal.pending_changes().unwrap(), []);
            let id = begin_change(&mut journal, &path, &format!("{n}"));
            journal.settle(&[(id, ChangeOutcome::Done)]).unwrap();
            if n % 8 == 0 {
                journal.prune(Timestamp(1)).unwrap();
            }
        }
        return print_message("done");
    }
    let directory = TempDir::new().unwrap();
    let mut others: Vec<_> = (0..3)
        .map(|_| ChildProcess::start("crash::processes_that_write_at_once_lose_nothing", directory.path()))
        .collect();
    for other in &mut others {
        assert_eq!(other.next_message().as_deref(), Some("done"));
    }
    let (journal, notices) = open_journal(directory.path());
    assert_eq!(notices, []);
    for other in &others {
        let path = format!("/{}", other.process.id());
        let changes =
            journal.changes(&ChangeFilter { path: Some(&path), ..ChangeFilter::default() }).unwrap();
        let text = |hash: &ContentHash| String::from_utf8(journal.content(hash).unwrap().unwrap()).unwrap();
        let texts: Vec<_> = changes.iter().map(|entry| text(&entry.change.after.unwrap().hash)).collect();
        assert_eq!(texts, (0..EACH).map(|n| n.to_string()).collect::<Vec<_>>());
    }
}
