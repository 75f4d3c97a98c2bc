//! Fault injection: each call of SQLite fails, or the process ends there. Records reported as saved are saved, nothing
//! is torn, and the store continues when the disk does.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::{Arc, Mutex};

use bowline_conversation::conversation::{ConversationMessage, MessageRole};
use bowline_protocol::schema::v1::{ContentBlock, ContentChunk};
use tempfile::TempDir;
use test_support::faulty_sqlite::{self, SqliteCall, SqliteFault, SqliteGate, with_power_loss};

use super::claim::SessionClaim;
use super::database::{NoticeQueue, SessionDatabase};
use super::*;

/// The child process's parameters: the directory, and the call at which to end.
const CHILD: &str = "BOWLINE_TEST_SESSIONS_END";

/// A fault injected at a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InjectedFault {
    /// The call fails.
    Fail(SqliteFault),
    /// The call and all later ones fail.
    FailFromHere(SqliteFault),
    /// The call is half done, and all later ones fail.
    Tear,
    /// The process ends.
    End,
}

/// Counts calls from 1 and injects a fault at one of them.
struct FaultInjector {
    fault_at: usize,
    fault: InjectedFault,
    calls: Mutex<Vec<SqliteCall>>,
}

impl FaultInjector {
    fn new(fault_at: usize, fault: InjectedFault) -> Arc<Self> {
        Arc::new(Self { fault_at, fault, calls: Mutex::default() })
    }
}

impl SqliteGate for FaultInjector {
    fn check_call(&self, call: SqliteCall, bytes: usize) -> Result<usize, SqliteFault> {
        let mut calls = self.calls.lock().unwrap();
        calls.push(call);
        match (self.fault, calls.len()) {
            (InjectedFault::Fail(fault), count) if count == self.fault_at => Err(fault),
            (InjectedFault::FailFromHere(fault), count) if count >= self.fault_at => Err(fault),
            (InjectedFault::Tear, count) if count == self.fault_at => Ok(bytes.div_ceil(2)),
            (InjectedFault::Tear, count) if count > self.fault_at => Err(SqliteFault::Full),
            // Equivalent to a kill: nothing runs after this.
            (InjectedFault::End, count) if count == self.fault_at => process::abort(),
            _ => Ok(bytes),
        }
    }
}

/// The number of steps, which create, append to, change, fork and remove a few sessions.
const STEPS: usize = 12;

/// A run of the steps on one database.
struct StoreRun {
    database: SessionDatabase,
    notices: NoticeQueue,
    claims: BTreeMap<&'static str, SessionClaim>,
}

impl StoreRun {
    fn new(directory: &Path) -> Self {
        let notices = NoticeQueue::default();
        let database =
            SessionDatabase::new(directory.to_owned(), SessionRetention::default(), Arc::clone(&notices));
        Self { database, notices, claims: BTreeMap::new() }
    }

    fn run_step(&mut self, step: usize) -> Result<(), StoreError> {
        let text = |text: &str| {
            let chunk = ContentChunk::new(ContentBlock::from(text.to_owned()));
            vec![
                SessionRecord::Update(SessionUpdate::UserMessageChunk(chunk)),
                SessionRecord::Message(ConversationMessage::from_text(MessageRole::User, text)),
            ]
        };
        let long = |letter: &str| letter.repeat(2000);
        let Self { database, claims, .. } = self;
        let mut append = |id: &str, records, durability| match claims.get(id) {
            Some(claim) => database.append(claim, records, durability),
            None => Err(StoreError::Stopped),
        };
        match step {
            1 => append("a", text("one"), Durability::Deferred),
            2 => append("a", text(&long("two")), Durability::Synced),
            4 => append("b", text("of b"), Durability::Synced),
            5 => append(
                "a",
                vec![SessionRecord::Compacted(vec![ConversationMessage::from_text(
                    MessageRole::User,
                    "short",
                )])],
                Durability::Deferred,
            ),
            8 => append("c", text(&long("of c")), Durability::Deferred),
            11 => append("a", text("three"), Durability::Synced),
            0 | 3 => {
                let id = if step == 0 { "a" } else { "b" };
                let claim = database.create(SessionMeta::new(SessionId::from(id), "/w".into()))?;
                claims.insert(id, claim);
                Ok(())
            }
            6 => match claims.get("b") {
                Some(claim) => {
                    database.update_meta(claim, |meta| meta.title = Some("title".into())).map(drop)
                }
                None => Err(StoreError::Stopped),
            },
            7 => {
                let meta = SessionMeta::new(SessionId::from("c"), "/w".into());
                let (claim, _) = database.fork(&SessionId::from("a"), meta)?;
                claims.insert("c", claim);
                Ok(())
            }
            9 => {
                claims.remove("b");
                database.delete(&SessionId::from("b"))
            }
            _ => database.list(&SessionQuery { page_size: 9, ..SessionQuery::default() }).map(drop),
        }
    }
}

impl StoreRun {
    /// Retries a failed step. Unsaved records wait in memory, and an empty append writes them.
    fn retry_step(&mut self, step: usize) -> Result<(), StoreError> {
        if let 1 | 2 | 4 | 5 | 8 | 11 = step {
            let Self { database, claims, .. } = self;
            return claims
                .values()
                .try_for_each(|claim| database.append(claim, Vec::new(), Durability::Synced));
        }
        match self.run_step(step) {
            // The step was done, and only its end failed.
            Err(StoreError::Exists(id)) => {
                let (claim, _) = self.database.claim(id)?;
                self.claims.insert(["a", "b", "c"][step / 3], claim);
                Ok(())
            }
            other => other,
        }
    }
}

/// Describes all stored sessions, as a new process finds them.
fn describe_stored(directory: &Path) -> Result<String, String> {
    let mut run = StoreRun::new(directory);
    let page = run.database.list(&SessionQuery { page_size: 9, ..SessionQuery::default() });
    let page = page.map_err(|error| format!("it cannot be listed: {error}"))?;
    let mut out = Vec::new();
    for meta in page.sessions {
        let stored = run.database.claim(meta.id).map_err(|error| format!("it cannot be read: {error}"))?.1;
        let first = |text: &str| text.chars().take(4).collect::<String>();
        let mut line = format!("{} {:?}:", stored.meta.id, stored.meta.title);
        for update in &stored.updates {
            let SessionUpdate::UserMessageChunk(ContentChunk { content: ContentBlock::Text(text), .. }) =
                update
            else {
                return Err(format!("unexpected update {update:?}"));
            };
            line.push_str(&format!(" {}", first(&text.text)));
        }
        line.push_str(&format!(" / {} messages", stored.messages.len()));
        out.push(line);
    }
    out.sort();
    let notices = run.notices.lock().unwrap();
    if notices.is_empty() { Ok(out.join("\n")) } else { Err(format!("{notices:?}")) }
}

fn directory() -> TempDir {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap()
}

/// Returns the expected content after each number of steps.
fn expected_states() -> Vec<String> {
    let directory = directory();
    let mut run = StoreRun::new(directory.path());
    let mut states = vec![String::new()];
    for step in 0..STEPS {
        run.run_step(step).unwrap();
        // Describing the store claims the sessions, so they must be free.
        run.claims.clear();
        states.push(describe_stored(directory.path()).unwrap());
        for id in ["a", "b", "c"] {
            if let Ok((claim, _)) = run.database.claim(SessionId::from(id)) {
                run.claims.insert(id, claim);
            }
        }
    }
    states
}

/// Records the calls of all steps.
fn record_calls() -> Vec<SqliteCall> {
    faulty_sqlite::install();
    let directory = directory();
    let injector = FaultInjector::new(0, InjectedFault::End);
    faulty_sqlite::with_gate(injector.clone(), || {
        let mut run = StoreRun::new(directory.path());
        (0..STEPS).for_each(|step| run.run_step(step).unwrap());
    });
    let calls = injector.calls.lock().unwrap();
    calls.clone()
}

/// Checks that the stored content is that after `steps` steps, or after one more.
fn check_stored(stored: Result<String, String>, steps: usize, expected: &[String]) -> Result<(), String> {
    let stored = stored?;
    if expected[steps] == stored || expected.get(steps + 1) == Some(&stored) {
        return Ok(());
    }
    Err(format!("after {steps} steps there is\n{stored}\nand should be\n{}", expected[steps]))
}

/// The disk fails permanently: everything reported as saved is there, and the next step is not torn.
#[test]
fn saved_records_survive_a_failing_disk() {
    let (expected, calls) = (expected_states(), record_calls());
    for (index, call) in (1..).zip(&calls) {
        let actions: &[InjectedFault] = match call {
            SqliteCall::Write => &[InjectedFault::FailFromHere(SqliteFault::Full), InjectedFault::Tear],
            SqliteCall::Sync => &[
                InjectedFault::FailFromHere(SqliteFault::Full),
                InjectedFault::FailFromHere(SqliteFault::Io),
            ],
            _ => &[InjectedFault::FailFromHere(SqliteFault::Io)],
        };
        for &action in actions {
            let directory = directory();
            let steps = faulty_sqlite::with_gate(FaultInjector::new(index, action), || {
                let mut run = StoreRun::new(directory.path());
                (0..STEPS).take_while(|step| run.run_step(*step).is_ok()).count()
            });
            let result = check_stored(describe_stored(directory.path()), steps, &expected);
            assert_eq!(result, Ok(()), "call {index} {call:?} {action:?}");
        }
    }
}

/// One call fails, and the program continues: unsaved records are saved with the next append.
#[test]
fn a_disk_that_works_again_is_used_again() {
    let (expected, calls) = (expected_states(), record_calls());
    for (index, call) in (1..).zip(&calls) {
        let fault = if *call == SqliteCall::Write { SqliteFault::Full } else { SqliteFault::Io };
        let directory = directory();
        let run = faulty_sqlite::with_gate(FaultInjector::new(index, InjectedFault::Fail(fault)), || {
            let mut run = StoreRun::new(directory.path());
            for step in 0..STEPS {
                let Err(error) = run.run_step(step) else { continue };
                let retry = run.retry_step(step);
                assert!(retry.is_ok(), "call {index} {call:?}: {error}, then {retry:?}");
            }
            run
        });
        // A notice that pruning failed is acceptable.
        let is_set_aside = |notice: &StoreNotice| matches!(notice, StoreNotice::SetAside { .. });
        assert!(!run.notices.lock().unwrap().iter().any(is_set_aside), "call {index} {call:?}");
        drop(run);
        assert_eq!(describe_stored(directory.path()), Ok(expected[STEPS].clone()), "call {index} {call:?}");
    }
}

/// The process ends at a call: the same holds, and its sessions are unlocked.
#[test]
fn saved_records_survive_the_end_of_the_process() {
    if let Some(arguments) = env::var_os(CHILD) {
        let arguments = arguments.into_string().unwrap();
        let (index, directory) = arguments.split_once(' ').unwrap();
        let directory = PathBuf::from(directory);
        faulty_sqlite::install();
        faulty_sqlite::with_gate(FaultInjector::new(index.parse().unwrap(), InjectedFault::End), || {
            let mut run = StoreRun::new(&directory);
            for step in 0..STEPS {
                run.run_step(step).unwrap();
                std::fs::write(directory.join("done"), [step as u8 + 1]).unwrap();
            }
        });
        return;
    }
    let (expected, calls) = (expected_states(), record_calls());
    // Ending before a read is the same as ending after the previous call.
    let mutating = (1..).zip(&calls).filter(|(_, call)| **call != SqliteCall::Read);
    for (index, call) in mutating {
        let directory = directory();
        let mut child = Command::new(env::current_exe().unwrap());
        child.args(["--exact", "store::tests::saved_records_survive_the_end_of_the_process"]);
        let output = child.env(CHILD, format!("{index} {}", directory.path().display())).output().unwrap();
        assert!(!output.status.success(), "call {index} {call:?} was not made");
        let steps = std::fs::read(directory.path().join("done")).map_or(0, |bytes| usize::from(bytes[0]));
        assert_eq!(
            check_stored(describe_stored(directory.path()), steps, &expected),
            Ok(()),
            "call {index} {call:?}"
        );
    }
}

/// Even if the clock shows the same time for both.
#[test]
fn an_append_of_nothing_makes_durable_what_came_before() {
    faulty_sqlite::install();
    let directory = directory();
    let mut run = StoreRun::new(directory.path());
    run.run_step(0).unwrap();
    for number in 0..100 {
        run.run_step(1).unwrap();
        run.database.append(&run.claims["a"], Vec::new(), Durability::Synced).unwrap();
        let unsynced = faulty_sqlite::unsynced_files();
        let files = unsynced.iter().filter(|file| file.starts_with(directory.path()));
        assert_eq!(files.count(), 0, "after {number}");
    }
}

/// The machine stops at a call: everything appended as durable is there, and everything before it.
#[test]
fn durable_records_survive_a_power_loss() {
    let (expected, calls) = (expected_states(), record_calls());
    // The steps that append with `Durability::Synced`.
    let durable = |steps: usize| [12, 10, 5, 3].into_iter().find(|step| *step <= steps).unwrap_or(0);
    for (index, call) in (1..).zip(&calls).filter(|(_, call)| **call != SqliteCall::Read) {
        let directory = directory();
        let steps = with_power_loss(|| {
            faulty_sqlite::with_gate(
                FaultInjector::new(index, InjectedFault::FailFromHere(SqliteFault::Io)),
                || {
                    let mut run = StoreRun::new(directory.path());
                    (0..STEPS).take_while(|step| run.run_step(*step).is_ok()).count()
                },
            )
        })
        .unwrap();
        let stored = describe_stored(directory.path()).unwrap();
        let allowed = &expected[durable(steps)..=(steps + 1).min(STEPS)];
        assert!(allowed.contains(&stored), "call {index} {call:?}, {steps} steps:\n{stored}");
    }
}
