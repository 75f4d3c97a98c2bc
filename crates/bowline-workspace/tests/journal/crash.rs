//! Several owners of one journal, some of which are killed.

use std::io::{BufRead as _, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;
use std::{env, fs};

use bowline_state::changes::{ChangeId, ContentHash, Moment, Origin};
use bowline_workspace::journal::{Filter, Journal, Outcome};
use expect_test::expect;
use tempfile::TempDir;

use super::fixture::{draft, history, open, without};

/// Where the journal of a child is: a test that finds it is the child of another run of itself.
const CHILD: &str = "BOWLINE_TEST_JOURNAL";

/// Another process that runs the same test as a child. It is killed when dropped.
struct Other {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Other {
    fn start(test: &str, directory: &Path) -> Self {
        let mut process = Command::new(env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(CHILD, directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    /// Waits for the next thing it says, and not for what the test harness says. None if it said all.
    fn said(&mut self) -> Option<String> {
        // The harness has begun the line when the test writes to it.
        let said = |line: String| line.split_once("> ").map(|(_, said)| said.to_owned());
        self.lines.by_ref().find_map(|line| said(line.unwrap()))
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.kill();
    }
}

fn child() -> Option<PathBuf> {
    env::var_os(CHILD).map(PathBuf::from)
}

fn say(text: impl std::fmt::Display) {
    println!("> {text}");
}

/// Stays until the parent is gone or kills it.
fn stay() {
    std::io::stdin().lines().for_each(drop);
}

fn begin(journal: &mut Journal, path: &str, text: &str) -> ChangeId {
    journal.begin(&[draft(&Origin::default(), path, None, Some(text.as_bytes()))], Moment(1)).unwrap()[0]
}

#[test]
fn a_second_owner_sees_what_the_first_did() {
    let directory = TempDir::new().unwrap();
    let (mut first, _) = open(directory.path());
    let (mut second, notices) = open(directory.path());
    assert_eq!(notices, []);
    let one = begin(&mut first, "/a", "one");
    let two = begin(&mut second, "/b", "two");
    second.settle(&[(one, Outcome::Done)]).unwrap();
    first.settle(&[(two, Outcome::Unknown)]).unwrap();
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
    let (first, _) = open(directory.path());
    let (second, _) = open(directory.path());
    let lock = first.lock().unwrap();
    let refused = second.lock_within(Duration::from_millis(5)).unwrap_err();
    expect!["another Bowline holds $DIR/lock: wait for it or end it"]
        .assert_eq(&without(directory.path(), refused));
    assert!(first.lock_within(Duration::ZERO).is_err());
    // Who waits gets it when it is given back.
    thread::scope(|scope| {
        let waiting = scope.spawn(move || second.lock().map(drop));
        drop(lock);
        waiting.join().unwrap().unwrap();
    });
    drop(first.lock_within(Duration::ZERO).unwrap());
}

#[test]
fn a_journal_that_was_set_aside_is_not_written_by_those_who_have_it_open() {
    let directory = TempDir::new().unwrap();
    let (mut first, _) = open(directory.path());
    begin(&mut first, "/a", "one");
    rusqlite::Connection::open(first.path()).unwrap().execute_batch("PRAGMA user_version = 7").unwrap();
    let (second, notices) = open(directory.path());
    assert_eq!(notices.len(), 1);
    let refused = first.settle(&[(ChangeId(1), Outcome::Done)]).unwrap_err();
    expect!["the journal $DIR/journal.sqlite was moved or removed while it was in use: open it again"]
        .assert_eq(&without(directory.path(), refused));
    assert_eq!(second.pending().unwrap(), []);
}

#[test]
fn an_intent_of_a_killed_process_is_pending_and_its_lock_is_free() {
    if let Some(directory) = child() {
        let (mut journal, _) = open(&directory);
        let _lock = journal.lock().unwrap();
        let done = begin(&mut journal, "/a", "one");
        journal.settle(&[(done, Outcome::Done)]).unwrap();
        say(begin(&mut journal, "/a", "two"));
        return stay();
    }
    let directory = TempDir::new().unwrap();
    let (journal, _) = open(directory.path());
    let mut other = Other::start(
        "crash::an_intent_of_a_killed_process_is_pending_and_its_lock_is_free",
        directory.path(),
    );
    assert_eq!(other.said().as_deref(), Some("2"));
    assert!(journal.lock_within(Duration::ZERO).is_err());
    other.kill();
    let lock = journal.lock_within(Duration::ZERO).unwrap();
    drop((lock, journal));

    let (journal, notices) = open(directory.path());
    assert_eq!(notices, []);
    assert_eq!(history(&journal), "1 /a one Done\n");
    let pending = journal.pending().unwrap();
    assert_eq!((pending.len(), pending[0].change.id), (1, ChangeId(2)));
    assert_eq!(journal.blob(&pending[0].change.after.unwrap().hash).unwrap().unwrap(), b"two");
}

/// Killed anywhere between two statements: what it said it had done is there, and whole.
#[test]
fn what_a_killed_process_was_told_is_recorded_is_recorded() {
    if let Some(directory) = child() {
        let (mut journal, _) = open(&directory);
        for n in 1.. {
            let lock = journal.lock().unwrap();
            let id = begin(&mut journal, "/a", &format!("text {n}"));
            say(format_args!("begun {id}"));
            journal.settle(&[(id, Outcome::Done)]).unwrap();
            say(format_args!("settled {id}"));
            drop(lock);
            if n % 10 == 0 {
                journal.prune(Moment(1)).unwrap();
            }
        }
    }
    let directory = TempDir::new().unwrap();
    for round in 1..=8 {
        let mut other =
            Other::start("crash::what_a_killed_process_was_told_is_recorded_is_recorded", directory.path());
        let heard: Vec<_> = (0..round * 7).map_while(|_| other.said()).collect();
        assert_eq!(heard.len(), round * 7);
        other.kill();
        let (mut journal, notices) = open(directory.path());
        assert_eq!(notices, []);
        let pending: Vec<_> = journal.pending().unwrap().iter().map(|one| one.change.id).collect();
        assert!(pending.len() <= 1);
        for (what, id) in heard.iter().map(|line| line.split_once(' ').unwrap()) {
            let entry = journal.change(ChangeId(id.parse().unwrap())).unwrap().unwrap();
            assert!(what == "begun" || entry.outcome == Some(Outcome::Done), "{what} {id}");
        }
        for entry in journal.changes(&Filter::default()).unwrap() {
            assert!(journal.blob(&entry.change.after.unwrap().hash).unwrap().is_some());
        }
        journal.settle(&pending.into_iter().map(|id| (id, Outcome::Abandoned)).collect::<Vec<_>>()).unwrap();
    }
}

/// A crash of the machine: of the log, what was not synced may be missing from any byte on. What was begun is there all
/// the same, and what was settled is settled or pending again.
#[test]
fn an_intent_outlasts_the_log_behind_it() {
    let directory = TempDir::new().unwrap();
    let (mut journal, _) = open(directory.path());
    let log = directory.path().join("journal.sqlite-wal");
    let length = || fs::metadata(&log).unwrap().len();
    let first = begin(&mut journal, "/a", "one");
    journal.settle(&[(first, Outcome::Done)]).unwrap();
    let before = length();
    let second = begin(&mut journal, "/a", "two");
    let begun = length();
    journal.settle(&[(second, Outcome::Done)]).unwrap();
    assert!(before < begun && begun < length());

    for kept in (before..length()).step_by(1021).chain([begun, length()]) {
        let crashed = TempDir::new().unwrap();
        fs::copy(journal.path(), crashed.path().join("journal.sqlite")).unwrap();
        fs::write(crashed.path().join("journal.sqlite-wal"), &fs::read(&log).unwrap()[..kept as usize])
            .unwrap();
        let (found, notices) = open(crashed.path());
        assert_eq!(notices, []);
        let outcome = |id| found.change(id).unwrap().map(|entry| entry.outcome);
        assert_eq!(outcome(first), Some(Some(Outcome::Done)));
        match outcome(second) {
            None => assert!(kept < begun),
            Some(None) => assert!(kept >= begun && kept < length()),
            Some(settled) => assert_eq!((settled, kept), (Some(Outcome::Done), length())),
        }
    }
}

#[test]
fn processes_that_write_at_once_lose_nothing() {
    const EACH: usize = 25;
    if let Some(directory) = child() {
        let (mut journal, _) = open(&directory);
        let path = format!("/{}", std::process::id());
        for n in 0..EACH {
            let _lock = journal.lock().unwrap();
            assert_eq!(journal.pending().unwrap(), []);
            let id = begin(&mut journal, &path, &format!("{n}"));
            journal.settle(&[(id, Outcome::Done)]).unwrap();
            if n % 8 == 0 {
                journal.prune(Moment(1)).unwrap();
            }
        }
        return say("done");
    }
    let directory = TempDir::new().unwrap();
    let mut others: Vec<_> = (0..3)
        .map(|_| Other::start("crash::processes_that_write_at_once_lose_nothing", directory.path()))
        .collect();
    for other in &mut others {
        assert_eq!(other.said().as_deref(), Some("done"));
    }
    let (journal, notices) = open(directory.path());
    assert_eq!(notices, []);
    for other in &others {
        let path = format!("/{}", other.process.id());
        let changes = journal.changes(&Filter { path: Some(&path), ..Filter::default() }).unwrap();
        let text = |hash: &ContentHash| String::from_utf8(journal.blob(hash).unwrap().unwrap()).unwrap();
        let texts: Vec<_> = changes.iter().map(|entry| text(&entry.change.after.unwrap().hash)).collect();
        assert_eq!(texts, (0..EACH).map(|n| n.to_string()).collect::<Vec<_>>());
    }
}
