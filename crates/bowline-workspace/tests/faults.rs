//! Every call that changes the disk fails, or the process dies there; afterwards each file is old or new, the journal
//! says which, undo works and nothing is left lying about.
//!
//! One count runs through the calls of the writer and those of SQLite. Each scenario is run once to learn how many there
//! are, then once for each with each kind of fault.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say so and stop"
)]

#[path = "faults/lab.rs"]
mod lab;
#[path = "faults/plan.rs"]
mod plan;
#[path = "faults/scenarios.rs"]
mod scenarios;

use std::env;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use bowline_workspace::calls::Call;
use expect_test::{Expect, expect};
use test_support::faulty_sqlite::losing_power;

use lab::{Lab, Told};
use plan::{Action, Faults, Made, Why};
use scenarios::{Scenario, Target};

/// What the process that is to die is told: scenario, directory, faults.
const CHILD: &str = "BOWLINE_FAULTS_CHILD";
const DONE: &str = "it is done";

/// At most so many failures are shown.
const SHOWN: usize = 12;

#[test]
fn a_call_that_fails_changes_nothing_or_everything() {
    check(
        expect![""],
        |_, _, made, call| {
            let mut faults = vec![Faults::at(call, Action::Fail(Why::Io))];
            let why = if made.changes_the_disk() { Why::Full } else { Why::Io };
            faults.push(Faults::at(call, Action::FailOn(why)));
            if made.is_write() {
                faults.push(Faults::at(call, Action::Short).then(call + 1, Action::FailOn(Why::Full)));
            }
            // What the writer does on an error may depend on which; SQLite's callers do not ask.
            if made.is_writers() {
                faults.push(Faults::at(call, Action::Fail(Why::Full)));
                faults.push(Faults::at(call, Action::FailOn(Why::Io)));
                faults.extend(made.is_write().then(|| Faults::at(call, Action::Short)));
            }
            faults
        },
        fail_here,
    );
}

#[test]
fn a_process_that_met_a_failure_goes_on() {
    check(
        expect![""],
        |scenario, _, _, call| match scenario.target {
            Target::Operation => vec![Faults::at(call, Action::Fail(Why::Io))],
            Target::FirstOpening | Target::Recovery(_) => Vec::new(),
        },
        |scenario, lab, faults| lab.run_and_stay(scenario, faults.clone()),
    );
}

#[test]
fn dying_on_the_way_back_is_no_worse() {
    check(
        expect![""],
        |scenario, lab, made, call| {
            if !made.is_writers() {
                return Vec::new();
            }
            let failing = Faults::at(call, Action::Fail(Why::Io));
            let (_, made) = lab.reset().run(scenario, failing.clone(), |_| {});
            let way_back = made.iter().enumerate().skip(call).filter(|(_, made)| made.is_writers());
            way_back
                .flat_map(|(at, made)| {
                    let next = at + 1;
                    let dead = failing.clone().then(next, Action::FailOn(Why::Io));
                    let torn =
                        failing.clone().then(next, Action::Short).then(next + 1, Action::FailOn(Why::Io));
                    [Some(dead), made.is_write().then_some(torn)]
                })
                .flatten()
                .collect()
        },
        fail_here,
    );
}

#[test]
fn a_process_that_dies_has_done_it_or_not() {
    check(
        expect![""],
        |_, _, made, call| {
            let mut faults = Vec::new();
            if made.changes_the_disk() {
                faults.push(Faults::at(call, Action::Kill));
            }
            if made.is_write() {
                faults.push(Faults::at(call, Action::Short).then(call + 1, Action::Kill));
            }
            faults
        },
        die_there,
    );
}

#[test]
fn what_a_user_writes_before_it_is_put_right_stays() {
    check(
        expect![""],
        |_, _, made, call| {
            let fails = made.is_writers().then(|| Faults::at(call, Action::FailOn(Why::Io)));
            let torn = made
                .is_write()
                .then(|| Faults::at(call, Action::Short).then(call + 1, Action::FailOn(Why::Io)));
            fails.into_iter().chain(torn.filter(|_| made.is_writers())).collect()
        },
        |scenario, lab, faults| {
            lab.run(scenario, faults.clone(), |_| {});
            lab.verify_user_first(scenario)
        },
    );
}

/// Of the files themselves nothing is lost here: a file that is changed while the intent is not durable is the worst.
#[test]
fn power_that_fails_takes_nothing_that_was_relied_on() {
    check(
        expect![""],
        |_, _, made, call| {
            let fails = made.changes_the_disk().then(|| Faults::at(call, Action::FailOn(Why::Io)));
            fails.into_iter().collect()
        },
        |scenario, lab, faults| {
            losing_power(|| lab.run(scenario, faults.clone(), |_| {}))
                .map_err(|error| format!("the power cannot fail: {error}"))
                .and_then(|(told, _)| lab.verify(scenario, told))
        },
    );
}

/// What the files lose with the power cannot be tried here. What stands against it is the order: the intent is synced before a file
/// is touched, bytes are synced before they get their name, the name before the old file goes.
#[test]
fn what_is_relied_on_is_durable_before() {
    let mut order = String::new();
    for scenario in scenarios::all().into_iter().filter(|scenario| scenario.target == Target::Operation) {
        let lab = Lab::new(&scenario);
        let (_, mut made) = lab.run(&scenario, Faults::default(), |_| {});
        // Not every file system has attributes.
        made.retain(|made| made.changes_the_disk() && *made != Made::Writer(Call::SetAttribute));
        made.dedup();
        order.push_str(scenario.name);
        for run in made.chunk_by(|one, next| one.is_writers() == next.is_writers()) {
            let calls: Vec<_> = run.iter().map(ToString::to_string).collect();
            let who = if run[0].is_writers() { "files" } else { "journal" };
            order.push_str(&format!("\n  {who}: {}", calls.join(" ")));
        }
        order.push('\n');
    }
    expect![[r#"
        replace
          journal: Write Sync Write Sync
          files: CreateTemp Write SetMode Sync Exchange SyncDirectory CreateDirectory Rename
          journal: Write Sync Write Truncate Sync Delete
        edit a long text
          journal: Write Sync Write Sync
          files: CreateTemp Write SetMode Sync Exchange SyncDirectory CreateDirectory Rename
          journal: Write Sync Write Truncate Sync Delete
        create in new directories
          journal: Write Sync Write Sync
          files: CreateDirectory SyncDirectory CreateDirectory SyncDirectory CreateTemp Write Sync Rename SyncDirectory
          journal: Write Sync Write Truncate Sync Delete
        merge
          journal: Write Sync Write Sync
          files: CreateTemp Write SetMode Sync Exchange SyncDirectory CreateDirectory Rename
          journal: Write Sync Write Truncate Sync Delete
        grow in place
          journal: Write Sync Write Sync
          files: OpenInPlace Write Sync
          journal: Write Sync Write Truncate Sync Delete
        shrink in place
          journal: Write Sync Write Sync
          files: OpenInPlace Write Truncate Sync
          journal: Write Sync Write Truncate Sync Delete
        delete
          journal: Write Sync Write Sync
          files: Rename SyncDirectory CreateDirectory Rename
          journal: Write Sync Write Truncate Sync Delete
        undo a turn
          journal: Write Sync Write Sync
          files: CreateTemp Write SetMode CreateTemp Write SetMode Sync Rename Exchange SyncDirectory Rename
          journal: Write Sync Write Truncate Sync Delete
        redo a turn
          journal: Write Sync Write Sync
          files: CreateTemp Write SetMode CreateTemp Write SetMode Sync Exchange Rename SyncDirectory Rename
          journal: Write Sync Write Truncate Sync Delete
        undo where a file became a directory
          journal: Write Sync Write Sync
          files: Rename SyncDirectory Rename
          journal: Write
          files: Remove
          journal: Write Sync
          files: CreateTemp Write SetMode CreateTemp Write SetMode Sync Rename Exchange SyncDirectory Rename
          journal: Write Sync Write Truncate Sync Delete
        undo where a directory became a file
          journal: Write Sync Write Sync
          files: Rename SyncDirectory Rename
          journal: Write Sync
          files: CreateDirectory SyncDirectory CreateTemp Write SetMode CreateDirectory SyncDirectory CreateTemp Write SetMode Sync Rename SyncDirectory
          journal: Write Sync Write Truncate Sync Delete
        save a document
          journal: Write Sync Write Sync
          files: CreateTemp Write SetMode Sync Exchange SyncDirectory CreateDirectory Rename
          journal: Write Sync Write Truncate Sync Delete
    "#]].assert_eq(&order);
}

/// Is the process that dies: it is this test, run alone by [`die_there`]. As a test among others it has nothing to do.
#[test]
fn child_entry() {
    let Ok(told) = env::var(CHILD) else { return };
    let mut told = told.split('\n');
    let mut next = || told.next().expect("there are three lines");
    let (name, directory, faults) = (next(), next(), next());
    let scenario = scenarios::all().into_iter().find(|scenario| scenario.name == name).expect("it is known");
    let lab = Lab::at(PathBuf::from(directory));
    lab.run(&scenario, faults.parse().expect("they were printed"), |told| {
        if told == Told::Done {
            // The harness keeps what is printed otherwise.
            std::io::stdout().write_all(DONE.as_bytes()).expect("somebody listens");
            std::io::stdout().flush().expect("somebody listens");
        }
    });
}

/// Tries every scenario with every fault that is asked for, and compares what was not as promised.
fn check(
    expected: Expect,
    faults: impl Fn(&Scenario, &Lab, Made, usize) -> Vec<Faults> + Sync,
    attempt: impl Fn(&Scenario, &Lab, &Faults) -> Result<(), String> + Sync,
) {
    let mut tries = Vec::new();
    for scenario in scenarios::all() {
        let lab = Lab::new(&scenario);
        let (_, calls) = lab.run(&scenario, Faults::default(), |_| {});
        assert!(!calls.is_empty(), "{} makes no calls", scenario.name);
        for (at, made) in calls.iter().enumerate() {
            tries.extend(
                faults(&scenario, &lab, *made, at + 1).into_iter().map(|faults| (scenario, *made, faults)),
            );
        }
    }
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                let mut laid_out: Option<(&str, Lab)> = None;
                while let Some((scenario, made, faults)) = tries.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (_, lab) = match laid_out.take() {
                        Some((name, lab)) if name == scenario.name => laid_out.insert((name, lab)),
                        _ => laid_out.insert((scenario.name, Lab::new(scenario))),
                    };
                    if let Err(why) = attempt(scenario, lab.reset(), faults) {
                        let line = format!("{}, call {faults} {made:?}: {why}\n", scenario.name);
                        failures.lock().unwrap_or_else(PoisonError::into_inner).push(line);
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    let more = failures.len().saturating_sub(SHOWN);
    failures.truncate(SHOWN);
    if more > 0 {
        failures.push(format!("and {more} more of {}\n", tries.len()));
    }
    expected.assert_eq(&failures.concat());
}

fn fail_here(scenario: &Scenario, lab: &Lab, faults: &Faults) -> Result<(), String> {
    let (told, made) = lab.run(scenario, faults.clone(), |_| {});
    if faults.0.iter().any(|(call, _)| *call > made.len()) {
        return Err(format!("only {} calls were made", made.len()));
    }
    lab.verify(scenario, told)
}

fn die_there(scenario: &Scenario, lab: &Lab, faults: &Faults) -> Result<(), String> {
    let output = Command::new(env::current_exe().map_err(|error| error.to_string())?)
        .args(["--exact", "child_entry", "--nocapture", "--test-threads=1"])
        .env(CHILD, format!("{}\n{}\n{faults}", scenario.name, lab.directory().display()))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.signal() != Some(9) {
        return Err(format!("it was to die and did not: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let done = String::from_utf8_lossy(&output.stdout).contains(DONE);
    lab.verify(scenario, if done { Told::Done } else { Told::Nothing })
}
