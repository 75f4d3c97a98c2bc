//! Every call that SQLite makes fails, or the process ends there: what was told to be saved is saved, nothing is torn, and
//! it goes on when the disk does.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::{Arc, Mutex};

use bowline_state::conversation::{Message, Role};
use bowline_state::schema::v1::{ContentBlock, ContentChunk};
use tempfile::TempDir;
use test_support::faulty_sqlite::{self, SqliteCall, SqliteFault, SqliteGate, losing_power};

use super::claim::Claim;
use super::database::{Notices, SessionDatabase};
use super::*;

/// What the process that is to end is told: the directory, and at which call.
const CHILD: &str = "BOWLINE_TEST_SESSIONS_END";

/// What happens at a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    /// It fails.
    Fail(SqliteFault),
    /// It fails, and so do all after it.
    FailOn(SqliteFault),
    /// Half of it is done, and all after it fail.
    Tear,
    /// The process ends.
    End,
}

/// Counts calls from 1 and knows what happens at one of them.
struct Fate {
    at: usize,
    action: Action,
    made: Mutex<Vec<SqliteCall>>,
}

impl Fate {
    fn new(at: usize, action: Action) -> Arc<Self> {
        Arc::new(Self { at, action, made: Mutex::default() })
    }
}

impl SqliteGate for Fate {
    fn pass(&self, call: SqliteCall, bytes: usize) -> Result<usize, SqliteFault> {
        let mut made = self.made.lock().unwrap();
        made.push(call);
        match (self.action, made.len()) {
            (Action::Fail(fault), now) if now == self.at => Err(fault),
            (Action::FailOn(fault), now) if now >= self.at => Err(fault),
            (Action::Tear, now) if now == self.at => Ok(bytes.div_ceil(2)),
            (Action::Tear, now) if now > self.at => Err(SqliteFault::Full),
            // As good as a kill: nothing is done after this.
            (Action::End, now) if now == self.at => process::abort(),
            _ => Ok(bytes),
        }
    }
}

/// What is done: a few sessions are made, appended to, changed, forked and removed.
const STEPS: usize = 12;

/// The sessions as somebody sees them who goes through the steps.
struct Run {
    database: SessionDatabase,
    notices: Notices,
    claims: BTreeMap<&'static str, Claim>,
}

impl Run {
    fn new(directory: &Path) -> Self {
        let notices = Notices::default();
        let database = SessionDatabase::new(directory.to_owned(), Retention::default(), Arc::clone(&notices));
        Self { database, notices, claims: BTreeMap::new() }
    }

    fn step(&mut self, step: usize) -> Result<(), StoreError> {
        let text = |text: &str| {
            let chunk = ContentChunk::new(ContentBlock::from(text.to_owned()));
            vec![
                Record::Update(SessionUpdate::UserMessageChunk(chunk)),
                Record::Message(Message::text(Role::User, text)),
            ]
        };
        let long = |letter: &str| letter.repeat(2000);
        let Self { database, claims, .. } = self;
        let mut append = |id: &str, records, durability| match claims.get(id) {
            Some(claim) => database.append(claim, records, durability),
            None => Err(StoreError::Stopped),
        };
        match step {
            1 => append("a", text("one"), Durability::Soon),
            2 => append("a", text(&long("two")), Durability::Now),
            4 => append("b", text("of b"), Durability::Now),
            5 => append(
                "a",
                vec![Record::Compacted(vec![Message::text(Role::User, "short")])],
                Durability::Soon,
            ),
            8 => append("c", text(&long("of c")), Durability::Soon),
            11 => append("a", text("three"), Durability::Now),
            0 | 3 => {
                let id = if step == 0 { "a" } else { "b" };
                let claim = database.create(Meta::new(SessionId::from(id), "/w".into()))?;
                claims.insert(id, claim);
                Ok(())
            }
            6 => match claims.get("b") {
                Some(claim) => database.change(claim, |meta| meta.title = Some("title".into())).map(drop),
                None => Err(StoreError::Stopped),
            },
            7 => {
                let meta = Meta::new(SessionId::from("c"), "/w".into());
                let (claim, _) = database.fork(&SessionId::from("a"), meta)?;
                claims.insert("c", claim);
                Ok(())
            }
            9 => {
                claims.remove("b");
                database.delete(&SessionId::from("b"))
            }
            _ => database.list(&ListQuery { page: 9, ..ListQuery::default() }).map(drop),
        }
    }
}

impl Run {
    /// Tries a step again that failed. Records wait by themselves, and go in with nothing more.
    fn again(&mut self, step: usize) -> Result<(), StoreError> {
        if let 1 | 2 | 4 | 5 | 8 | 11 = step {
            let Self { database, claims, .. } = self;
            return claims.values().try_for_each(|claim| database.append(claim, Vec::new(), Durability::Now));
        }
        match self.step(step) {
            // It was done, and only its end failed.
            Err(StoreError::Exists(id)) => {
                let (claim, _) = self.database.claim(id)?;
                self.claims.insert(["a", "b", "c"][step / 3], claim);
                Ok(())
            }
            other => other,
        }
    }
}

/// Shows all that is kept, as a process finds it that starts now.
fn kept(directory: &Path) -> Result<String, String> {
    let mut run = Run::new(directory);
    let page = run.database.list(&ListQuery { page: 9, ..ListQuery::default() });
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
                return Err(format!("nobody said {update:?}"));
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

/// What is kept after each number of steps.
fn expected() -> Vec<String> {
    let directory = directory();
    let mut run = Run::new(directory.path());
    let mut states = vec![String::new()];
    for step in 0..STEPS {
        run.step(step).unwrap();
        // One who looks has to have the sessions.
        run.claims.clear();
        states.push(kept(directory.path()).unwrap());
        for id in ["a", "b", "c"] {
            if let Ok((claim, _)) = run.database.claim(SessionId::from(id)) {
                run.claims.insert(id, claim);
            }
        }
    }
    states
}

/// Counts the calls of all steps.
fn calls() -> Vec<SqliteCall> {
    faulty_sqlite::install();
    let directory = directory();
    let fate = Fate::new(0, Action::End);
    faulty_sqlite::gated(fate.clone(), || {
        let mut run = Run::new(directory.path());
        (0..STEPS).for_each(|step| run.step(step).unwrap());
    });
    let made = fate.made.lock().unwrap();
    made.clone()
}

/// Says whether what is kept is what was there after so many steps, or after one more.
fn judge(found: Result<String, String>, done: usize, expected: &[String]) -> Result<(), String> {
    let found = found?;
    if expected[done] == found || expected.get(done + 1) == Some(&found) {
        return Ok(());
    }
    Err(format!("after {done} steps there is\n{found}\nand should be\n{}", expected[done]))
}

/// The disk fails for good: what was told is there, and no half of what came next.
#[test]
fn what_was_told_to_be_saved_is_there_whatever_fails() {
    let (expected, calls) = (expected(), calls());
    for (at, call) in (1..).zip(&calls) {
        let actions: &[Action] = match call {
            SqliteCall::Write => &[Action::FailOn(SqliteFault::Full), Action::Tear],
            SqliteCall::Sync => &[Action::FailOn(SqliteFault::Full), Action::FailOn(SqliteFault::Io)],
            _ => &[Action::FailOn(SqliteFault::Io)],
        };
        for &action in actions {
            let directory = directory();
            let done = faulty_sqlite::gated(Fate::new(at, action), || {
                let mut run = Run::new(directory.path());
                (0..STEPS).take_while(|step| run.step(*step).is_ok()).count()
            });
            let judged = judge(kept(directory.path()), done, &expected);
            assert_eq!(judged, Ok(()), "call {at} {call:?} {action:?}");
        }
    }
}

/// One call fails, and the program goes on: what could not be saved is saved with what comes next.
#[test]
fn a_disk_that_works_again_is_used_again() {
    let (expected, calls) = (expected(), calls());
    for (at, call) in (1..).zip(&calls) {
        let fault = if *call == SqliteCall::Write { SqliteFault::Full } else { SqliteFault::Io };
        let directory = directory();
        let run = faulty_sqlite::gated(Fate::new(at, Action::Fail(fault)), || {
            let mut run = Run::new(directory.path());
            for step in 0..STEPS {
                let Err(error) = run.step(step) else { continue };
                let again = run.again(step);
                assert!(again.is_ok(), "call {at} {call:?}: {error}, then {again:?}");
            }
            run
        });
        // That old sessions could not be looked for may be told.
        let aside = |notice: &Notice| matches!(notice, Notice::SetAside { .. });
        assert!(!run.notices.lock().unwrap().iter().any(aside), "call {at} {call:?}");
        drop(run);
        assert_eq!(kept(directory.path()), Ok(expected[STEPS].clone()), "call {at} {call:?}");
    }
}

/// The process ends at a call: the same holds, and its sessions are free.
#[test]
fn a_process_that_ends_anywhere_has_saved_what_it_said() {
    if let Some(told) = env::var_os(CHILD) {
        let told = told.into_string().unwrap();
        let (at, directory) = told.split_once(' ').unwrap();
        let directory = PathBuf::from(directory);
        faulty_sqlite::install();
        faulty_sqlite::gated(Fate::new(at.parse().unwrap(), Action::End), || {
            let mut run = Run::new(&directory);
            for step in 0..STEPS {
                run.step(step).unwrap();
                std::fs::write(directory.join("done"), [step as u8 + 1]).unwrap();
            }
        });
        return;
    }
    let (expected, calls) = (expected(), calls());
    // To end before a call that only reads is to end after the one before it.
    let changing = (1..).zip(&calls).filter(|(_, call)| **call != SqliteCall::Read);
    for (at, call) in changing {
        let directory = directory();
        let mut child = Command::new(env::current_exe().unwrap());
        child.args(["--exact", "store::tests::a_process_that_ends_anywhere_has_saved_what_it_said"]);
        let output = child.env(CHILD, format!("{at} {}", directory.path().display())).output().unwrap();
        assert!(!output.status.success(), "call {at} {call:?} was not made");
        let done = std::fs::read(directory.path().join("done")).map_or(0, |done| usize::from(done[0]));
        assert_eq!(judge(kept(directory.path()), done, &expected), Ok(()), "call {at} {call:?}");
    }
}

/// Also if the clock tells the same time for both.
#[test]
fn an_append_of_nothing_makes_durable_what_came_before() {
    faulty_sqlite::install();
    let directory = directory();
    let mut run = Run::new(directory.path());
    run.step(0).unwrap();
    for number in 0..100 {
        run.step(1).unwrap();
        run.database.append(&run.claims["a"], Vec::new(), Durability::Now).unwrap();
        let unsynced = faulty_sqlite::unsynced_files();
        let own = unsynced.iter().filter(|file| file.starts_with(directory.path()));
        assert_eq!(own.count(), 0, "after {number}");
    }
}

/// The machine stops at a call: what was told to be durable is there, and what came before it.
#[test]
fn what_was_told_to_be_durable_outlasts_the_machine() {
    let (expected, calls) = (expected(), calls());
    // Those that are appended to be durable now.
    let durable = |done: usize| [12, 10, 5, 3].into_iter().find(|step| *step <= done).unwrap_or(0);
    for (at, call) in (1..).zip(&calls).filter(|(_, call)| **call != SqliteCall::Read) {
        let directory = directory();
        let done = losing_power(|| {
            faulty_sqlite::gated(Fate::new(at, Action::FailOn(SqliteFault::Io)), || {
                let mut run = Run::new(directory.path());
                (0..STEPS).take_while(|step| run.step(*step).is_ok()).count()
            })
        })
        .unwrap();
        let found = kept(directory.path()).unwrap();
        let allowed = &expected[durable(done)..=(done + 1).min(STEPS)];
        assert!(allowed.contains(&found), "call {at} {call:?}, {done} steps:\n{found}");
    }
}
