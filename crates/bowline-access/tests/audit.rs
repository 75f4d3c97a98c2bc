//! Tests of the audit log on disk: verification, concurrent writers, crashes, rotation.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::{env, fs, thread};

use bowline_access::audit::{AuditFilter, AuditLog, AuditOptions, read_entries, verify};
use bowline_policy::audit::{
    AuditAction, AuditAnchor, AuditDecision, AuditEntry, AuditSubject, AuditVerifier, ChainHead,
    DecisionSource, VerificationReport,
};
use bowline_text::hash::ContentHash;
use bowline_text::time::Timestamp;
use expect_test::{Expect, expect};
use tempfile::TempDir;

#[path = "audit/faults.rs"]
mod faults;

/// The environment variable with the log of a child process: a test that finds it set runs as a child of itself.
const CHILD_VARIABLE: &str = "BOWLINE_TEST_AUDIT";

struct AuditFixture {
    root: TempDir,
}

impl AuditFixture {
    fn new() -> Self {
        Self { root: TempDir::new().unwrap() }
    }

    /// Returns a log with `count` entries.
    fn with_entries(count: u64) -> Self {
        let lab = Self::new();
        let log = lab.open();
        (1..=count).for_each(|number| assert_eq!(log.append(&entry(number)).unwrap(), number));
        lab
    }

    fn open(&self) -> AuditLog {
        self.open_with_options(AuditOptions::default())
    }

    fn open_with_options(&self, settings: AuditOptions) -> AuditLog {
        AuditLog::open(&self.directory(), &self.anchor(), settings).unwrap()
    }

    fn directory(&self) -> PathBuf {
        self.root.path().join("log")
    }

    fn anchor(&self) -> PathBuf {
        self.root.path().join("elsewhere/anchor")
    }

    /// Returns the number of the newest entry covered by the anchor.
    fn anchored_seq(&self) -> u64 {
        AuditAnchor::decode(&fs::read(self.anchor()).unwrap()).unwrap().head.seq
    }

    fn log_file(&self, number: u64) -> PathBuf {
        self.directory().join(format!("audit-{number:08}.jsonl"))
    }

    fn verify(&self) -> VerificationReport {
        verify(&self.directory(), &self.anchor()).unwrap()
    }

    /// Edits the lines of the log by hand.
    fn edit_lines(&self, change: impl FnOnce(&mut Vec<String>)) {
        let text = fs::read_to_string(self.log_file(1)).unwrap();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        change(&mut lines);
        fs::write(self.log_file(1), lines.iter().map(|line| format!("{line}\n")).collect::<String>())
            .unwrap();
    }
}

fn entry(number: u64) -> AuditEntry {
    let mut entry = AuditEntry::new(Timestamp(1_700_000_000_000 + number as i64), AuditAction::Write);
    entry.session = Some("s1".to_owned());
    entry.turn = Some(number / 10 + 1);
    entry.subject = AuditSubject::Path { requested: format!("/project/src/{number}.rs"), resolved: None };
    entry.decision = AuditDecision::Allowed;
    entry.decided_by = DecisionSource::Rule("allow write src/**".to_owned());
    entry.after = Some(ContentHash::digest(&number.to_le_bytes()));
    entry
}

/// Returns an entry of an allowed read.
fn read_entry(number: u64) -> AuditEntry {
    AuditEntry { action: AuditAction::Read, after: None, ..entry(number) }
}

fn describe_report(report: &VerificationReport) -> String {
    let mut told = format!("{} entries in {} files, {:?}\n", report.entries, report.files, report.range);
    report.findings.iter().for_each(|finding| told.push_str(&format!("! {finding}\n")));
    report
        .notes
        .iter()
        .for_each(|note| told.push_str(&format!("# {} {}: {}\n", note.position, note.seq, note.text)));
    if report.omitted_findings > 0 {
        told.push_str(&format!("{} more\n", report.omitted_findings));
    }
    told
}

fn check(change: impl FnOnce(&mut Vec<String>), expected: Expect) {
    let lab = AuditFixture::with_entries(8);
    lab.edit_lines(change);
    expected.assert_eq(&describe_report(&lab.verify()));
}

#[test]
fn an_untouched_log_verifies() {
    check(
        |_| {},
        expect![[r#"
        8 entries in 1 files, Some((1, 8))
    "#]],
    );
    assert!(AuditFixture::new().verify().is_intact());
}

#[test]
fn a_line_that_was_edited_is_found() {
    check(
        |lines| lines[3] = lines[3].replace("allowed", "denied"),
        expect![[r#"
        7 entries in 1 files, Some((1, 8))
        ! audit-00000001.jsonl:4: entry 4 was changed
    "#]],
    );
    check(
        |lines| lines[3] = lines[3].replace("\"seq\":4", "\"seq\":7"),
        expect![[r#"
        7 entries in 1 files, Some((1, 8))
        ! audit-00000001.jsonl:4: entry 4 was changed
    "#]],
    );
    check(
        |lines| lines[3].clear(),
        expect![[r#"
        7 entries in 1 files, Some((1, 8))
        ! audit-00000001.jsonl:4: the line is not an entry: it was overwritten or put in
    "#]],
    );
    check(
        |lines| lines[7] = lines[7].replace("allowed", "denied"),
        expect![[r#"
        7 entries in 1 files, Some((1, 8))
        ! audit-00000001.jsonl:8: entry 8 was changed
    "#]],
    );
    check(
        |lines| lines[0] = lines[0].replace("allowed", "denied"),
        expect![[r#"
        7 entries in 1 files, Some((1, 8))
        ! audit-00000001.jsonl:1: entry 1 was changed
    "#]],
    );
}

#[test]
fn lines_that_were_removed_are_found() {
    check(
        |lines| drop(lines.remove(3)),
        expect![[r#"
        7 entries in 1 files, Some((1, 8))
        ! audit-00000001.jsonl:4: entry 4 was removed before this line
    "#]],
    );
    check(
        |lines| drop(lines.drain(2..5)),
        expect![[r#"
        5 entries in 1 files, Some((1, 8))
        ! audit-00000001.jsonl:3: entries 3 to 5 were removed before this line
    "#]],
    );
    check(
        |lines| drop(lines.remove(0)),
        expect![[r#"
        7 entries in 1 files, Some((2, 8))
        ! audit-00000001.jsonl:1: entry 1 was removed from the start, and not by rotation
    "#]],
    );
    check(
        |lines| lines.truncate(5),
        expect![[r#"
        5 entries in 1 files, Some((1, 5))
        ! audit-00000001.jsonl:5: entries 6 to 8 were cut off the end, which the anchor knows
    "#]],
    );
    check(
        Vec::clear,
        expect![[r#"
        0 entries in 1 files, None
        ! entries 1 to 8 were cut off the end, which the anchor knows
    "#]],
    );
}

#[test]
fn lines_that_were_moved_copied_or_put_in_are_found() {
    check(
        |lines| lines.swap(2, 3),
        expect![[r#"
        8 entries in 1 files, Some((1, 8))
        ! audit-00000001.jsonl:4: entry 3 was moved: it stands after entry 4
    "#]],
    );
    check(
        |lines| lines.swap(1, 5),
        expect![[r#"
        8 entries in 1 files, Some((1, 8))
        ! audit-00000001.jsonl:3: entry 3 was moved: it stands after entry 6
        ! audit-00000001.jsonl:6: entry 2 was moved: it stands after entry 5
    "#]],
    );
    check(
        |lines| lines.insert(5, lines[2].clone()),
        expect![[r#"
        9 entries in 1 files, Some((1, 8))
        ! audit-00000001.jsonl:6: entry 3 is there a second time
    "#]],
    );
    check(
        |lines| lines.insert(5, "{\"seq\":6}".to_owned()),
        expect![[r#"
        8 entries in 1 files, Some((1, 8))
        ! audit-00000001.jsonl:6: the line is not an entry: it was overwritten or put in
    "#]],
    );
    check(
        |lines| {
            let mut chain = chain_to(lines, 4);
            lines.insert(4, chain.seal_entry(&entry(99)));
        },
        expect![[r#"
            9 entries in 1 files, Some((1, 8))
            ! audit-00000001.jsonl:6: there are two entries 5 that differ: one was put in
            ! audit-00000001.jsonl:7: entry 6 does not belong to the entry before it: one of them was replaced
        "#]],
    );
    check(
        |lines| {
            let mut chain = chain_to(lines, 8);
            lines.push(chain.seal_entry(&entry(99)));
        },
        expect![[r#"
            9 entries in 1 files, Some((1, 9))
            ! audit-00000001.jsonl:9: entry 9 was written after the anchor: a crash leaves one
        "#]],
    );
}

/// Returns the chain after `count` lines.
fn chain_to(lines: &[String], count: usize) -> ChainHead {
    lines[..count].iter().fold(ChainHead::EMPTY, |chain, line| chain.next_head(line.as_bytes()).unwrap())
}

#[test]
fn a_log_that_was_hashed_anew_is_found() {
    let forged = |lines: &mut Vec<String>, from: usize| {
        let mut chain = chain_to(lines, from);
        for (number, line) in (100..).zip(&mut lines[from..]) {
            *line = chain.seal_entry(&entry(number));
        }
    };
    check(
        |lines| forged(lines, 0),
        expect![[r#"
        8 entries in 1 files, Some((1, 8))
        ! audit-00000001.jsonl:8: entry 8 is not the one in the anchor: the log was replaced or written anew
    "#]],
    );
    check(
        |lines| forged(lines, 7),
        expect![[r#"
        8 entries in 1 files, Some((1, 8))
        ! audit-00000001.jsonl:8: entry 8 is not the one in the anchor: the log was replaced or written anew
    "#]],
    );
    // Shorter, and longer.
    check(
        |lines| {
            lines.truncate(6);
            forged(lines, 0);
        },
        expect![[r#"
            6 entries in 1 files, Some((1, 6))
            ! audit-00000001.jsonl:6: entries 7 to 8 were cut off the end, which the anchor knows
        "#]],
    );
    check(
        |lines| {
            lines.extend(lines.clone());
            forged(lines, 0);
        },
        expect![[r#"
            16 entries in 1 files, Some((1, 16))
            ! audit-00000001.jsonl:8: entry 8 is not the one in the anchor: the log was replaced or written anew
            ! audit-00000001.jsonl:16: entries 9 to 16 were written after the anchor: a crash of the machine may leave some, a hand any
        "#]],
    );
}

#[test]
fn a_log_that_goes_on_after_it_was_changed_does_not_hide_it() {
    let lab = AuditFixture::with_entries(8);
    lab.edit_lines(|lines| lines.truncate(5));
    assert_eq!(lab.open().append(&entry(9)).unwrap(), 10);
    expect![[r#"
        7 entries in 1 files, Some((1, 10))
        ! audit-00000001.jsonl:6: entries 6 to 8 were removed before this line
        # audit-00000001.jsonl:6 9: the log ended before what its anchor says
    "#]]
    .assert_eq(&describe_report(&lab.verify()));

    let lab = AuditFixture::with_entries(8);
    fs::remove_file(lab.log_file(1)).unwrap();
    lab.open().append(&entry(9)).unwrap();
    expect![[r#"
        2 entries in 1 files, Some((9, 10))
        ! audit-00000001.jsonl:1: entries 1 to 8 were removed from the start, and not by rotation
        # audit-00000001.jsonl:1 9: the log ended before what its anchor says
    "#]]
    .assert_eq(&describe_report(&lab.verify()));

    let lab = AuditFixture::with_entries(8);
    fs::remove_file(lab.anchor()).unwrap();
    expect![[r#"
        8 entries in 1 files, Some((1, 8))
        ! audit-00000001.jsonl:8: the anchor is missing or unreadable: whether the end was cut off or all was written anew cannot be told
    "#]].assert_eq(&describe_report(&lab.verify()));
    lab.open().append(&entry(9)).unwrap();
    expect![[r#"
        10 entries in 1 files, Some((1, 10))
        # audit-00000001.jsonl:9 9: the anchor was missing or unreadable, and was made anew from the log
    "#]]
    .assert_eq(&describe_report(&lab.verify()));

    let lab = AuditFixture::with_entries(8);
    let log = lab.open();
    log.append(&entry(9)).unwrap();
    fs::remove_file(lab.anchor()).unwrap();
    let refused = log.append(&entry(10)).unwrap_err().to_string();
    assert!(
        refused.contains("was moved or removed while the audit log was in use: open the log again"),
        "{refused}"
    );
}

/// Returns the bytes of a log of short entries, and a function that verifies other bytes in their place.
fn small_log(count: i64) -> (Vec<u8>, impl Fn(&[u8]) -> VerificationReport) {
    let lab = AuditFixture::new();
    let log = lab.open();
    for number in 1..=count {
        log.append(&AuditEntry::new(Timestamp(number), AuditAction::Read)).unwrap();
    }
    let anchor = AuditAnchor::decode(&fs::read(lab.anchor()).unwrap()).unwrap();
    let verdict = move |log: &[u8]| {
        let mut verifier = AuditVerifier::new(Some(anchor));
        verifier.start_file("log");
        for line in log.split_inclusive(|&byte| byte == b'\n') {
            match line.strip_suffix(b"\n") {
                Some(line) => verifier.verify_line(line, true),
                None => verifier.verify_line(line, false),
            }
        }
        verifier.finish()
    };
    (fs::read(lab.log_file(1)).unwrap(), verdict)
}

#[test]
fn any_change_of_any_byte_and_any_cut_is_found() {
    let (whole, verdict) = small_log(16);
    assert!(verdict(&whole).is_intact());
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << (at % 8);
        assert!(!verdict(&flipped).is_intact(), "byte {at}");
        assert!(!verdict(&whole[..at]).is_intact(), "cut at {at}");
    }
}

#[test]
fn any_line_that_is_removed_copied_or_moved_is_found() {
    let (whole, verdict) = small_log(50);
    let lines: Vec<&[u8]> = whole.split_inclusive(|&byte| byte == b'\n').collect();
    for first in 0..lines.len() {
        let mut without = lines.clone();
        without.remove(first);
        assert!(!verdict(&without.concat()).has_only_crash_artifacts(), "without line {first}");
        for second in first + 1..lines.len() {
            let mut swapped = lines.clone();
            swapped.swap(first, second);
            assert!(
                !verdict(&swapped.concat()).has_only_crash_artifacts(),
                "lines {first} and {second} swapped"
            );
            let mut copied = lines.clone();
            copied.insert(second, lines[first]);
            assert!(!verdict(&copied.concat()).has_only_crash_artifacts(), "line {first} copied to {second}");
        }
    }
}

#[test]
fn a_torn_line_is_told_from_one_that_was_cut_and_closed_by_the_next_entry() {
    let lab = AuditFixture::with_entries(3);
    let whole = fs::read_to_string(lab.log_file(1)).unwrap();
    fs::write(lab.log_file(1), format!("{whole}{{\"seq\":4,\"prev\":\"12")).unwrap();
    assert!(lab.verify().has_only_crash_artifacts());
    expect![[r#"
        3 entries in 1 files, Some((1, 3))
        ! audit-00000001.jsonl:4: the last line is torn: a crash leaves it so; had it been cut by hand, its entry would be in the anchor
    "#]].assert_eq(&describe_report(&lab.verify()));
    lab.open().append(&entry(4)).unwrap();
    expect![[r#"
        5 entries in 1 files, Some((1, 5))
        # audit-00000001.jsonl:5 4: the last line was torn
    "#]]
    .assert_eq(&describe_report(&lab.verify()));
    // The rest of the torn line may not change either.
    let text = fs::read_to_string(lab.log_file(1)).unwrap();
    fs::write(lab.log_file(1), text.replace("\"prev\":\"12\n", "\"prev\":\"13\n")).unwrap();
    expect![[r#"
        5 entries in 1 files, Some((1, 5))
        ! audit-00000001.jsonl:4: the line is not an entry: it was overwritten or put in
        # audit-00000001.jsonl:5 4: the last line was torn
    "#]]
    .assert_eq(&describe_report(&lab.verify()));

    // A line that lacks only its line end is adopted.
    let lab = AuditFixture::with_entries(3);
    fs::write(lab.log_file(1), whole.trim_end()).unwrap();
    expect![[r#"
        3 entries in 1 files, Some((1, 3))
        ! audit-00000001.jsonl:3: the last line is torn: its entry is whole, only the line end is missing
    "#]]
    .assert_eq(&describe_report(&lab.verify()));
    lab.open().append(&entry(4)).unwrap();
    expect![[r#"
        5 entries in 1 files, Some((1, 5))
        # audit-00000001.jsonl:4 4: the log ended before what its anchor says; the last line was torn
    "#]]
    .assert_eq(&describe_report(&lab.verify()));
}

#[test]
fn the_oldest_files_go_and_nothing_else_may() {
    let lab = AuditFixture::new();
    let log = lab.open_with_options(AuditOptions { max_file_bytes: 2000, max_files: 3 });
    (1..=40).for_each(|number| assert_eq!(log.append(&entry(number)).unwrap(), number));
    log.sync().unwrap();
    let report = lab.verify();
    assert!(report.is_intact(), "{}", describe_report(&report));
    assert_eq!(report.files, 3);
    let (first, last) = report.range.unwrap();
    assert!(first > 20 && last == 40, "{first} to {last}");
    let mut files: Vec<PathBuf> =
        fs::read_dir(lab.directory()).unwrap().map(|it| it.unwrap().path()).collect();
    files.sort();
    assert!(files.iter().all(|file| fs::metadata(file).unwrap().len() <= 2000));
    fs::remove_file(&files[0]).unwrap();
    let faults: Vec<String> =
        lab.verify().findings.iter().map(|finding| finding.defect.to_string()).collect();
    assert!(faults[0].contains("removed from the start, and not by rotation"), "{faults:?}");
    fs::remove_file(&files[2]).unwrap();
    let faults: Vec<String> =
        lab.verify().findings.iter().map(|finding| finding.defect.to_string()).collect();
    assert!(faults[1].contains("cut off the end"), "{faults:?}");
}

#[test]
fn log_and_anchor_are_private_and_no_links() {
    let lab = AuditFixture::with_entries(1);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&lab.directory()), 0o700);
    assert_eq!(mode(&lab.log_file(1)), 0o600);
    assert_eq!(mode(&lab.anchor()), 0o600);
    let refused = |directory: &Path, anchor: &Path| {
        let error = AuditLog::open(directory, anchor, AuditOptions::default()).unwrap_err().to_string();
        error.replace(lab.root.path().to_str().unwrap(), "$ROOT")
    };
    let link = lab.root.path().join("link");
    symlink(lab.directory(), &link).unwrap();
    let anchor_link = lab.root.path().join("anchor-link");
    symlink(lab.anchor(), &anchor_link).unwrap();
    let told = [
        refused(&link, &lab.anchor()),
        refused(&lab.directory(), &anchor_link),
        refused(&lab.log_file(1), &lab.anchor()),
        refused(&lab.directory(), &lab.directory()),
    ];
    expect![[r#"
        $ROOT/link is a link or no plain directory: remove it, or keep the audit log elsewhere
        $ROOT/anchor-link is a link or no plain file: remove it, or keep the audit log elsewhere
        $ROOT/log/audit-00000001.jsonl is a link or no plain directory: remove it, or keep the audit log elsewhere
        cannot open $ROOT/log, and nothing may be done that is not logged: Is a directory (os error 21)"#]].assert_eq(&told.join("\n"));
}

#[test]
fn entries_are_listed_by_session_kind_and_age() {
    let lab = AuditFixture::new();
    let log = lab.open();
    for (number, (session, action)) in [
        ("a", AuditAction::Read),
        ("b", AuditAction::Write),
        ("a", AuditAction::TerminalCreate),
        ("a", AuditAction::Write),
    ]
    .into_iter()
    .enumerate()
    {
        let mut entry = entry(number as u64);
        (entry.session, entry.action) = (Some(session.to_owned()), action);
        log.append(&entry).unwrap();
    }
    let list = |session: Option<&str>, operation: Option<&str>, newest: Option<usize>| {
        let filter =
            AuditFilter { session: session.map(Into::into), operation: operation.map(Into::into), newest };
        let seqs: Vec<u64> =
            read_entries(&lab.directory(), filter).unwrap().map(|record| record.unwrap().seq).collect();
        seqs
    };
    assert_eq!(list(None, None, None), [1, 2, 3, 4]);
    assert_eq!(list(Some("a"), None, None), [1, 3, 4]);
    assert_eq!(list(None, Some("fs"), None), [1, 2, 4]);
    assert_eq!(list(None, Some("fs/write"), Some(1)), [4]);
    assert_eq!(list(Some("a"), None, Some(2)), [3, 4]);
    assert_eq!(list(None, None, Some(0)), Vec::<u64>::new());
}

#[test]
fn the_anchor_knows_every_entry_that_was_answered_for() {
    let lab = AuditFixture::new();
    let log = lab.open();
    for number in 1..=20 {
        let entry = if number % 3 == 0 { entry(number) } else { read_entry(number) };
        assert_eq!(log.append(&entry).unwrap(), number);
        assert_eq!(lab.anchored_seq(), number);
    }
    // Removing the newest entry or adding one is detected.
    lab.edit_lines(|lines| drop(lines.pop()));
    expect![[r#"
        19 entries in 1 files, Some((1, 19))
        ! audit-00000001.jsonl:19: entry 20 was cut off the end, which the anchor knows
    "#]]
    .assert_eq(&describe_report(&lab.verify()));
    lab.edit_lines(|lines| {
        let mut chain = chain_to(lines, 19);
        (20..22).for_each(|number| lines.push(chain.seal_entry(&read_entry(number))));
    });
    expect![[r#"
        21 entries in 1 files, Some((1, 21))
        ! audit-00000001.jsonl:21: entry 21 was written after the anchor: a crash leaves one
    "#]]
    .assert_eq(&describe_report(&lab.verify()));
}

#[test]
fn two_logs_at_once_know_of_each_others_reads() {
    let lab = AuditFixture::new();
    let settings = AuditOptions { max_file_bytes: 8 << 10, max_files: 100 };
    let logs = [lab.open_with_options(settings), lab.open()];
    for number in 0..200 {
        let log = &logs[usize::from(number % 7 < 3)];
        let entry = if number % 5 == 0 { entry(number) } else { read_entry(number) };
        assert_eq!(log.append(&entry).unwrap(), number + 1);
    }
    let report = lab.verify();
    assert!(report.is_intact() && report.notes.is_empty(), "{}", describe_report(&report));
    assert_eq!(report.entries, 200);
}

/// Starts this test again as a child process that appends to the log.
fn spawn_child(test: &str, lab: &AuditFixture) -> std::process::Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD_VARIABLE, lab.root.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn open_as_child(max_files: usize) -> Option<AuditLog> {
    let root = PathBuf::from(env::var_os(CHILD_VARIABLE)?);
    let settings = AuditOptions { max_file_bytes: 64 << 10, max_files };
    Some(AuditLog::open(&root.join("log"), &root.join("elsewhere/anchor"), settings).unwrap())
}

fn append_from_threads(log: AuditLog) {
    let log = Arc::new(log);
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let log = Arc::clone(&log);
            thread::spawn(move || {
                for number in 0..100 {
                    let number = thread * 1000 + number;
                    let entry = if number % 30 == 0 { entry(number) } else { read_entry(number) };
                    log.append(&entry).unwrap();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn threads_and_processes_append_to_one_chain() {
    if let Some(log) = open_as_child(100) {
        return append_from_threads(log);
    }
    let lab = AuditFixture::new();
    let settings = AuditOptions { max_file_bytes: 64 << 10, max_files: 100 };
    let mut children = [(); 2].map(|()| spawn_child("threads_and_processes_append_to_one_chain", &lab));
    append_from_threads(lab.open_with_options(settings));
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    let report = lab.verify();
    assert!(report.is_intact() && report.notes.is_empty(), "{}", describe_report(&report));
    assert_eq!(report.entries, 1200);
    assert!(report.files > 3);
}

#[test]
fn a_writer_that_is_killed_leaves_a_log_that_is_whole() {
    if let Some(log) = open_as_child(4) {
        for number in 1.. {
            let entry = if number % 30 == 0 { entry(number) } else { read_entry(number) };
            log.append(&entry).unwrap();
            println!("> appended");
        }
    }
    let lab = AuditFixture::new();
    for round in 0..8 {
        let mut child = spawn_child("a_writer_that_is_killed_leaves_a_log_that_is_whole", &lab);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut appended = lines.filter(|line| line.as_ref().unwrap().contains("> appended"));
        assert!(appended.nth(20 + round * 7).is_some(), "the writer is gone");
        child.kill().unwrap();
        child.wait().unwrap();
        let report = lab.verify();
        assert!(report.has_only_crash_artifacts(), "{}", describe_report(&report));
    }
    lab.open().append(&entry(0)).unwrap();
    let report = lab.verify();
    assert!(report.is_intact(), "{}", describe_report(&report));
}
