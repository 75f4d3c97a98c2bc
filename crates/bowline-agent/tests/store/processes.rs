//! Several processes that share sessions, some of which are killed.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::{env, io};

use bowline_agent::store::{Durability, SessionStore as _, StoreError};

use super::fixture::{agent_text, agent_texts, new_directory, open_store, session_id, session_meta};

/// A test with this environment variable is a child of another run of itself, using the sessions there.
const CHILD: &str = "BOWLINE_TEST_SESSIONS";

struct OtherProcess {
    process: Child,
    lines: Box<dyn Iterator<Item = String>>,
}

/// Runs the same test in another process, as a child.
fn spawn_other(test: &str, directory: &Path) -> OtherProcess {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "--nocapture", test]).env(CHILD, directory);
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
    // The test harness writes too, and may have begun the line.
    let lines = Box::new(lines.filter_map(|line| Some(line.split_once("> ")?.1.to_owned())));
    OtherProcess { process, lines }
}

impl Drop for OtherProcess {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

fn child_directory() -> Option<PathBuf> {
    env::var_os(CHILD).map(PathBuf::from)
}

/// Waits until the parent kills this process, or exits.
fn wait_for_parent() {
    io::stdin().lines().for_each(drop);
}

#[tokio::test]
async fn a_session_of_another_process_is_busy_until_that_is_killed() {
    if let Some(directory) = child_directory() {
        let lease = open_store(directory).create(session_meta("one", "/work")).await.unwrap();
        lease.append(vec![agent_text("kept")], Durability::Deferred).await.unwrap();
        println!("> {}", std::process::id());
        return wait_for_parent();
    }
    let directory = new_directory();
    let mut child =
        spawn_other("processes::a_session_of_another_process_is_busy_until_that_is_killed", directory.path());
    let process: u32 = child.lines.next().unwrap().parse().unwrap();
    let store = open_store(&directory);
    for result in [store.claim(&session_id("one")).await.map(drop), store.delete(&session_id("one")).await] {
        match result.unwrap_err() {
            StoreError::Busy { id, process: Some(holder) } => {
                assert_eq!((id, holder), (session_id("one"), process))
            }
            error => panic!("{error}"),
        }
    }
    // A claimed session can still be listed, read and forked.
    assert_eq!(agent_texts(&store.read(&session_id("one")).await.unwrap()), ["kept"]);
    drop(store.fork(&session_id("one"), session_meta("two", "/work")).await.unwrap());
    drop(child);
    let (lease, stored) = store.claim(&session_id("one")).await.unwrap();
    assert_eq!(agent_texts(&stored), ["kept"]);
    lease.close().await.unwrap();
    assert_eq!(store.take_notices(), []);
}

/// Killed at any moment: every record it reported as saved is there and in order, and nothing is torn.
#[tokio::test]
async fn what_a_killed_process_was_told_is_saved_is_saved() {
    if let Some(directory) = child_directory() {
        let store = open_store(directory);
        let (lease, stored) = store.claim(&session_id("one")).await.unwrap();
        for number in stored.updates.len().. {
            let durability = if number % 3 == 0 { Durability::Synced } else { Durability::Deferred };
            // Long records take several pages.
            let text = format!("{number} {}", "x".repeat(number % 7 * 1500));
            lease.append(vec![agent_text(text)], durability).await.unwrap();
            println!("> {number}");
            if number % 10 == 0 {
                lease.update_meta(Box::new(move |meta| meta.turns = number as u64)).await.unwrap();
            }
        }
    }
    let directory = new_directory();
    open_store(&directory).create(session_meta("one", "/work")).await.unwrap();
    let mut saved = 0;
    for round in 1..=30 {
        let mut child =
            spawn_other("processes::what_a_killed_process_was_told_is_saved_is_saved", directory.path());
        let numbers: Vec<usize> =
            child.lines.by_ref().take(round % 11 + 1).map(|number| number.parse().unwrap()).collect();
        assert_eq!(numbers.first(), Some(&saved));
        drop(child);
        let store = open_store(&directory);
        let (lease, stored) = store.claim(&session_id("one")).await.unwrap();
        let texts = agent_texts(&stored);
        assert!(texts.len() > *numbers.last().unwrap(), "{} of {numbers:?}", texts.len());
        for (number, text) in texts.iter().enumerate() {
            let expected = format!("{number} {}", "x".repeat(number % 7 * 1500));
            assert!(*text == expected, "record {number}");
        }
        saved = texts.len();
        assert_eq!(store.take_notices(), []);
        lease.close().await.unwrap();
    }
}

#[tokio::test]
async fn processes_that_write_at_once_lose_nothing() {
    const EACH: usize = 40;
    if let Some(directory) = child_directory() {
        let store = open_store(directory);
        let id = format!("of {}", std::process::id());
        let lease = store.create(session_meta(id, "/work")).await.unwrap();
        for number in 0..EACH {
            let durability = if number % 5 == 0 { Durability::Synced } else { Durability::Deferred };
            lease.append(vec![agent_text(number.to_string())], durability).await.unwrap();
        }
        assert_eq!(store.take_notices(), []);
        lease.close().await.unwrap();
        return println!("> done");
    }
    let directory = new_directory();
    let mut children: Vec<_> = (0..3)
        .map(|_| spawn_other("processes::processes_that_write_at_once_lose_nothing", directory.path()))
        .collect();
    let store = open_store(&directory);
    for child in &mut children {
        assert_eq!(child.lines.next().as_deref(), Some("done"));
        let id = format!("of {}", child.process.id()).into();
        let expected: Vec<_> = (0..EACH).map(|number| number.to_string()).collect();
        assert_eq!(agent_texts(&store.read(&id).await.unwrap()), expected);
    }
    assert_eq!(store.take_notices(), []);
}
