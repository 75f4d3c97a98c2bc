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
    let heard = Box::new(lines.filter_map(|line| Some(line.split_once("> ")?.1.to_owned())));
    OtherProcess { process, lines: heard }
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
        let held = open_store(directory).create(session_meta("one", "/work")).await.unwrap();
        held.append(vec![agent_text("kept")], Durability::Deferred).await.unwrap();
        println!("> {}", std::process::id());
        return wait_for_parent();
    }
    let directory = new_directory();
    let mut other =
        spawn_other("processes::a_session_of_another_process_is_busy_until_that_is_killed", directory.path());
    let process: u32 = other.lines.next().unwrap().parse().unwrap();
    let here = open_store(&directory);
    for refused in [here.claim(&session_id("one")).await.map(drop), here.delete(&session_id("one")).await] {
        match refused.unwrap_err() {
            StoreError::Busy { id, process: Some(by) } => assert_eq!((id, by), (session_id("one"), process)),
            other => panic!("{other}"),
        }
    }
    // A claimed session can still be listed, read and forked.
    assert_eq!(agent_texts(&here.read(&session_id("one")).await.unwrap()), ["kept"]);
    drop(here.fork(&session_id("one"), session_meta("two", "/work")).await.unwrap());
    drop(other);
    let (held, stored) = here.claim(&session_id("one")).await.unwrap();
    assert_eq!(agent_texts(&stored), ["kept"]);
    held.close().await.unwrap();
    assert_eq!(here.take_notices(), []);
}

/// Killed at any moment: every record it reported as saved is there and in order, and nothing is torn.
#[tokio::test]
async fn what_a_killed_process_was_told_is_saved_is_saved() {
    if let Some(directory) = child_directory() {
        let store = open_store(directory);
        let (held, stored) = store.claim(&session_id("one")).await.unwrap();
        for number in stored.updates.len().. {
            let durability = if number % 3 == 0 { Durability::Synced } else { Durability::Deferred };
            // Long records take several pages.
            let text = format!("{number} {}", "x".repeat(number % 7 * 1500));
            held.append(vec![agent_text(text)], durability).await.unwrap();
            println!("> {number}");
            if number % 10 == 0 {
                held.update_meta(Box::new(move |meta| meta.turns = number as u64)).await.unwrap();
            }
        }
    }
    let directory = new_directory();
    open_store(&directory).create(session_meta("one", "/work")).await.unwrap();
    let mut before = 0;
    for round in 1..=30 {
        let mut other =
            spawn_other("processes::what_a_killed_process_was_told_is_saved_is_saved", directory.path());
        let heard: Vec<usize> =
            other.lines.by_ref().take(round % 11 + 1).map(|number| number.parse().unwrap()).collect();
        assert_eq!(heard.first(), Some(&before));
        drop(other);
        let here = open_store(&directory);
        let (held, stored) = here.claim(&session_id("one")).await.unwrap();
        let found = agent_texts(&stored);
        assert!(found.len() > *heard.last().unwrap(), "{} of {heard:?}", found.len());
        for (number, text) in found.iter().enumerate() {
            let expected = format!("{number} {}", "x".repeat(number % 7 * 1500));
            assert!(*text == expected, "record {number}");
        }
        before = found.len();
        assert_eq!(here.take_notices(), []);
        held.close().await.unwrap();
    }
}

#[tokio::test]
async fn processes_that_write_at_once_lose_nothing() {
    const EACH: usize = 40;
    if let Some(directory) = child_directory() {
        let store = open_store(directory);
        let id = format!("of {}", std::process::id());
        let held = store.create(session_meta(id, "/work")).await.unwrap();
        for number in 0..EACH {
            let durability = if number % 5 == 0 { Durability::Synced } else { Durability::Deferred };
            held.append(vec![agent_text(number.to_string())], durability).await.unwrap();
        }
        assert_eq!(store.take_notices(), []);
        held.close().await.unwrap();
        return println!("> done");
    }
    let directory = new_directory();
    let mut others: Vec<_> = (0..3)
        .map(|_| spawn_other("processes::processes_that_write_at_once_lose_nothing", directory.path()))
        .collect();
    let here = open_store(&directory);
    for other in &mut others {
        assert_eq!(other.lines.next().as_deref(), Some("done"));
        let id = format!("of {}", other.process.id()).into();
        let expected: Vec<_> = (0..EACH).map(|number| number.to_string()).collect();
        assert_eq!(agent_texts(&here.read(&id).await.unwrap()), expected);
    }
    assert_eq!(here.take_notices(), []);
}
