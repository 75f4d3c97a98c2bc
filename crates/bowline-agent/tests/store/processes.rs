//! Several processes with the same sessions, some of which are killed.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::{env, io};

use bowline_agent::store::{Durability, SessionStore as _, StoreError};

use super::fixture::{at, directory, meta, said, store, texts};

/// A test that finds this in its environment is a child of another run of itself, with the sessions there.
const CHILD: &str = "BOWLINE_TEST_SESSIONS";

struct Other {
    process: Child,
    heard: Box<dyn Iterator<Item = String>>,
}

/// Runs the same test in another process, which sees itself as a child.
fn other(test: &str, directory: &Path) -> Other {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "--nocapture", test]).env(CHILD, directory);
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
    // The harness writes too, and may have begun the line.
    let heard = Box::new(lines.filter_map(|line| Some(line.split_once("> ")?.1.to_owned())));
    Other { process, heard }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

fn child() -> Option<PathBuf> {
    env::var_os(CHILD).map(PathBuf::from)
}

/// Waits until the parent ends this process, or is gone.
fn stay() {
    io::stdin().lines().for_each(drop);
}

#[tokio::test]
async fn a_session_of_another_process_is_busy_until_that_is_killed() {
    if let Some(directory) = child() {
        let held = store(directory).create(meta("one", "/work")).await.unwrap();
        held.append(vec![said("kept")], Durability::Soon).await.unwrap();
        println!("> {}", std::process::id());
        return stay();
    }
    let directory = directory();
    let mut other =
        other("processes::a_session_of_another_process_is_busy_until_that_is_killed", directory.path());
    let process: u32 = other.heard.next().unwrap().parse().unwrap();
    let here = store(&directory);
    for refused in [here.claim(&at("one")).await.map(drop), here.delete(&at("one")).await] {
        match refused.unwrap_err() {
            StoreError::Busy { id, process: Some(by) } => assert_eq!((id, by), (at("one"), process)),
            other => panic!("{other}"),
        }
    }
    // It can be listed, read and forked all the same.
    assert_eq!(texts(&here.read(&at("one")).await.unwrap()), ["kept"]);
    drop(here.fork(&at("one"), meta("two", "/work")).await.unwrap());
    drop(other);
    let (held, stored) = here.claim(&at("one")).await.unwrap();
    assert_eq!(texts(&stored), ["kept"]);
    held.close().await.unwrap();
    assert_eq!(here.take_notices(), []);
}

/// Killed at any moment: everything that it said it had saved is there and in order, and nothing is torn.
#[tokio::test]
async fn what_a_killed_process_was_told_is_saved_is_saved() {
    if let Some(directory) = child() {
        let store = store(directory);
        let (held, stored) = store.claim(&at("one")).await.unwrap();
        for number in stored.updates.len().. {
            let durability = if number % 3 == 0 { Durability::Now } else { Durability::Soon };
            // Long ones take several pages.
            let text = format!("{number} {}", "x".repeat(number % 7 * 1500));
            held.append(vec![said(text)], durability).await.unwrap();
            println!("> {number}");
            if number % 10 == 0 {
                held.set_meta(Box::new(move |meta| meta.turns = number as u64)).await.unwrap();
            }
        }
    }
    let directory = directory();
    store(&directory).create(meta("one", "/work")).await.unwrap();
    let mut before = 0;
    for round in 1..=30 {
        let mut other =
            other("processes::what_a_killed_process_was_told_is_saved_is_saved", directory.path());
        let heard: Vec<usize> =
            other.heard.by_ref().take(round % 11 + 1).map(|number| number.parse().unwrap()).collect();
        assert_eq!(heard.first(), Some(&before));
        drop(other);
        let here = store(&directory);
        let (held, stored) = here.claim(&at("one")).await.unwrap();
        let found = texts(&stored);
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
    if let Some(directory) = child() {
        let store = store(directory);
        let id = format!("of {}", std::process::id());
        let held = store.create(meta(id, "/work")).await.unwrap();
        for number in 0..EACH {
            let durability = if number % 5 == 0 { Durability::Now } else { Durability::Soon };
            held.append(vec![said(number.to_string())], durability).await.unwrap();
        }
        assert_eq!(store.take_notices(), []);
        held.close().await.unwrap();
        return println!("> done");
    }
    let directory = directory();
    let mut others: Vec<_> = (0..3)
        .map(|_| other("processes::processes_that_write_at_once_lose_nothing", directory.path()))
        .collect();
    let here = store(&directory);
    for other in &mut others {
        assert_eq!(other.heard.next().as_deref(), Some("done"));
        let id = format!("of {}", other.process.id()).into();
        let expected: Vec<_> = (0..EACH).map(|number| number.to_string()).collect();
        assert_eq!(texts(&here.read(&id).await.unwrap()), expected);
    }
    assert_eq!(here.take_notices(), []);
}
