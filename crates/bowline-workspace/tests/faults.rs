//! Tests in which every call that changes the disk fails, or the process dies there; afterwards each file is old or
//! new, the journal says which, undo works and no stray file is left.
//!
//! One counter covers the calls of the writer and those of SQLite. Each scenario runs once to count them, then once per
//! call for each kind of fault.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say so and stop"
)]

#[path = "faults/fixture.rs"]
mod fixture;
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

use bowline_storage::disk_calls::DiskCall;
use expect_test::{Expect, expect};
use test_support::faulty_sqlite::with_power_loss;

use fixture::{FaultFixture, ReportedOutcome};
use plan::{FaultAction, FaultReason, FaultSchedule, RecordedCall};
use scenarios::{FaultTarget, Scenario};

/// The environment variable with the arguments of the child process that dies: scenario, directory, faults.
const CHILD_VARIABLE: &str = "BOWLINE_FAULTS_CHILD";
const DONE_MESSAGE: &str = "it is done";

/// The maximum number of failures shown.
const MAX_SHOWN_FAILURES: usize = 12;

#[test]
fn a_call_that_fails_changes_nothing_or_everything() {
    check(
        expect![""],
        |_, _, made, call| {
            let mut faults = vec![FaultSchedule::at(call, FaultAction::Fail(FaultReason::Io))];
            let why = if made.changes_the_disk() { FaultReason::Full } else { FaultReason::Io };
            faults.push(FaultSchedule::at(call, FaultAction::FailFromHere(why)));
            if made.is_write() {
                faults.push(
                    FaultSchedule::at(call, FaultAction::Short)
                        .then(call + 1, FaultAction::FailFromHere(FaultReason::Full)),
                );
            }
            // The writer may handle errors differently by kind; SQLite's callers do not. Usually every other call fails in
            // all ways.
            if made.is_from_writer() && (call % 2 == 0 || test_support::is_full_run()) {
                faults.push(FaultSchedule::at(call, FaultAction::Fail(FaultReason::Full)));
                faults.push(FaultSchedule::at(call, FaultAction::FailFromHere(FaultReason::Io)));
                faults.extend(made.is_write().then(|| FaultSchedule::at(call, FaultAction::Short)));
            }
            faults
        },
        fail_in_process,
    );
}

#[test]
fn a_process_that_met_a_failure_goes_on() {
    check(
        expect![""],
        |scenario, _, _, call| match scenario.target {
            FaultTarget::Operation => vec![FaultSchedule::at(call, FaultAction::Fail(FaultReason::Io))],
            FaultTarget::FirstOpening | FaultTarget::Recovery(_) => Vec::new(),
        },
        |scenario, lab, faults| lab.run_and_stay(scenario, faults.clone()),
    );
}

#[test]
fn a_failure_during_rollback_is_recovered() {
    check(
        expect![""],
        |scenario, lab, made, call| {
            if !made.is_from_writer() {
                return Vec::new();
            }
            let failing = FaultSchedule::at(call, FaultAction::Fail(FaultReason::Io));
            let (_, made) = lab.reset().run(scenario, failing.clone(), |_| {});
            let way_back = made.iter().enumerate().skip(call).filter(|(_, made)| made.is_from_writer());
            // Usually every third call fails on the way back, each time others.
            way_back
                .filter(|(at, _)| (at + call) % 3 == 0 || test_support::is_full_run())
                .flat_map(|(at, made)| {
                    let next = at + 1;
                    let dead = failing.clone().then(next, FaultAction::FailFromHere(FaultReason::Io));
                    let torn = failing
                        .clone()
                        .then(next, FaultAction::Short)
                        .then(next + 1, FaultAction::FailFromHere(FaultReason::Io));
                    [Some(dead), made.is_write().then_some(torn)]
                })
                .flatten()
                .collect()
        },
        fail_in_process,
    );
}

#[test]
fn a_killed_process_has_changed_all_or_nothing() {
    check(
        expect![""],
        |_, _, made, call| {
            let mut faults = Vec::new();
            if made.changes_the_disk() {
                faults.push(FaultSchedule::at(call, FaultAction::Kill));
            }
            if made.is_write() {
                faults.push(FaultSchedule::at(call, FaultAction::Short).then(call + 1, FaultAction::Kill));
            }
            faults
        },
        die_in_child,
    );
}

#[test]
fn user_writes_before_recovery_are_kept() {
    check(
        expect![""],
        |_, _, made, call| {
            let fails = made
                .is_from_writer()
                .then(|| FaultSchedule::at(call, FaultAction::FailFromHere(FaultReason::Io)));
            let torn = made.is_write().then(|| {
                FaultSchedule::at(call, FaultAction::Short)
                    .then(call + 1, FaultAction::FailFromHere(FaultReason::Io))
            });
            fails.into_iter().chain(torn.filter(|_| made.is_from_writer())).collect()
        },
        |scenario, lab, faults| {
            lab.run(scenario, faults.clone(), |_| {});
            lab.verify_user_first(scenario)
        },
    );
}

/// Only the journal loses unsynced data here, not the files: a file changed before its intent is durable is the worst
/// case.
#[test]
fn a_power_loss_keeps_the_durable_journal_entries() {
    check(
        expect![""],
        |_, _, made, call| {
            let fails = made
                .changes_the_disk()
                .then(|| FaultSchedule::at(call, FaultAction::FailFromHere(FaultReason::Io)));
            fails.into_iter().collect()
        },
        |scenario, lab, faults| {
            with_power_loss(|| lab.run(scenario, faults.clone(), |_| {}))
                .map_err(|error| format!("the power cannot fail: {error}"))
                .and_then(|(told, _)| lab.verify(scenario, told))
        },
    );
}

/// Data loss in the files at a power cut cannot be simulated here. The order of calls prevents it: the intent is synced
/// before a file is touched, bytes are synced before they get their name, and the name before the old file is removed.
#[test]
fn disk_calls_are_synced_in_order() {
    let mut order = String::new();
    for scenario in
        scenarios::all_scenarios().into_iter().filter(|scenario| scenario.target == FaultTarget::Operation)
    {
        let lab = FaultFixture::new(&scenario);
        let (_, mut made) = lab.run(&scenario, FaultSchedule::default(), |_| {});
        // Not every file system has attributes.
        made.retain(|made| made.changes_the_disk() && *made != RecordedCall::Writer(DiskCall::SetAttribute));
        made.dedup();
        order.push_str(scenario.name);
        for run in made.chunk_by(|one, next| one.is_from_writer() == next.is_from_writer()) {
            let calls: Vec<_> = run.iter().map(ToString::to_string).collect();
            let who = if run[0].is_from_writer() { "files" } else { "journal" };
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
        batch
          files: Rename CreateDirectory SyncDirectory CreateDirectory SyncDirectory CreateDirectory SyncDirectory CreateDirectory SyncDirectory
          journal: Write Sync Write Sync
          files: CreateTemp Write SetMode CreateTemp Write SetMode CreateTemp Write Sync Exchange Rename SyncDirectory CreateDirectory Rename
          journal: Write
          files: Remove Rename
          journal: Sync Write Truncate Sync Delete
        batch synced at once
          files: Rename CreateDirectory SyncDirectory CreateDirectory SyncDirectory CreateDirectory SyncDirectory CreateDirectory SyncDirectory
          journal: Write Sync Write Sync
          files: CreateTemp Write SetMode CreateTemp Write SetMode CreateTemp Write SyncFileSystem Exchange Rename SyncDirectory CreateDirectory Rename
          journal: Write
          files: Remove Rename
          journal: Sync Write Truncate Sync Delete
        batch of directories
          files: Rename CreateDirectory SyncDirectory CreateDirectory SyncDirectory Remove
          journal: Write Sync Write Sync
          files: Rename
          journal: Sync Write Truncate Sync Delete
        batch of copies, bytes and inserted text
          journal: Write Sync Write Sync
          files: CreateTemp Write SetMode CreateTemp Write SetMode CreateTemp Write SetMode CreateTemp Write SetMode Sync Exchange Rename Exchange Rename SyncDirectory CreateDirectory Rename
          journal: Write Sync Write Truncate Sync Delete
        undo a move between two edits
          journal: Write Sync Write Sync
          files: CreateTemp Write SetMode Sync Rename SyncDirectory Rename
          journal: Write Sync Write Truncate Sync Delete
        append
          journal: Write Sync Write Sync
          files: OpenInPlace Write Sync
          journal: Write Sync Write Truncate Sync Delete
        undo an append
          journal: Write Sync Write Sync
          files: OpenInPlace Truncate Sync
          journal: Write Sync Write Truncate Sync Delete
        undo an append and a write
          journal: Write Sync Write Sync
          files: Rename OpenInPlace Truncate Sync SyncDirectory CreateDirectory Rename
          journal: Write Sync Write Truncate Sync Delete
    "#]].assert_eq(&order);
}

/// The child process that dies: this test, run alone by [`die_in_child`]. Run as an ordinary test, it does nothing.
#[test]
fn child_entry() {
    let Ok(told) = env::var(CHILD_VARIABLE) else { return };
    let mut told = told.split('\n');
    let mut next = || told.next().expect("there are three lines");
    let (name, directory, faults) = (next(), next(), next());
    let scenario =
        scenarios::all_scenarios().into_iter().find(|scenario| scenario.name == name).expect("it is known");
    let lab = FaultFixture::in_directory(PathBuf::from(directory));
    lab.run(&scenario, faults.parse().expect("they were printed"), |told| {
        if told == ReportedOutcome::Done {
            // The test harness captures `print!`.
            std::io::stdout().write_all(DONE_MESSAGE.as_bytes()).expect("stdout is open");
            std::io::stdout().flush().expect("stdout is open");
        }
    });
}

/// Runs every scenario with every requested fault, and compares the broken promises.
fn check(
    expected: Expect,
    faults: impl Fn(&Scenario, &FaultFixture, RecordedCall, usize) -> Vec<FaultSchedule> + Sync,
    attempt: impl Fn(&Scenario, &FaultFixture, &FaultSchedule) -> Result<(), String> + Sync,
) {
    let mut tries = Vec::new();
    for (index, scenario) in scenarios::all_scenarios().into_iter().enumerate() {
        let lab = FaultFixture::new(&scenario);
        let (_, calls) = lab.run(&scenario, FaultSchedule::default(), |_| {});
        assert!(!calls.is_empty(), "{} makes no calls", scenario.name);
        for (at, made) in calls.iter().enumerate() {
            // SQLite's own tests cover its calls as well: usually every fifth one fails, each time in other scenarios.
            if !made.is_from_writer() && (at + index) % 5 != 0 && !test_support::is_full_run() {
                continue;
            }
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
                let mut laid_out: Option<(&str, FaultFixture)> = None;
                while let Some((scenario, made, faults)) = tries.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (_, lab) = match laid_out.take() {
                        Some((name, lab)) if name == scenario.name => laid_out.insert((name, lab)),
                        _ => laid_out.insert((scenario.name, FaultFixture::new(scenario))),
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
    let more = failures.len().saturating_sub(MAX_SHOWN_FAILURES);
    failures.truncate(MAX_SHOWN_FAILURES);
    if more > 0 {
        failures.push(format!("and {more} more of {}\n", tries.len()));
    }
    expected.assert_eq(&failures.concat());
}

fn fail_in_process(scenario: &Scenario, lab: &FaultFixture, faults: &FaultSchedule) -> Result<(), String> {
    let (told, made) = lab.run(scenario, faults.clone(), |_| {});
    if faults.0.iter().any(|(call, _)| *call > made.len()) {
        return Err(format!("only {} calls were made", made.len()));
    }
    lab.verify(scenario, told)
}

fn die_in_child(scenario: &Scenario, lab: &FaultFixture, faults: &FaultSchedule) -> Result<(), String> {
    let output = Command::new(env::current_exe().map_err(|error| error.to_string())?)
        .args(["--exact", "child_entry", "--nocapture", "--test-threads=1"])
        .env(CHILD_VARIABLE, format!("{}\n{}\n{faults}", scenario.name, lab.directory().display()))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.signal() != Some(9) {
        return Err(format!("it was to die and did not: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let done = String::from_utf8_lossy(&output.stdout).contains(DONE_MESSAGE);
    lab.verify(scenario, if done { ReportedOutcome::Done } else { ReportedOutcome::Unknown })
}
