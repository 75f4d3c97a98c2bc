//! Tests of the audit log on a failing disk: failures at every call that changes it, and in the middle of a write.

use std::io;
use std::sync::{Arc, Mutex};

use bowline_access::audit::{AuditFilter, AuditLog, AuditOptions, read_entries};
use bowline_policy::audit::AuditSubject;
use bowline_storage::disk_calls::{DiskCall, DiskCalls, DiskFaultInjector};
use expect_test::expect;

use super::{AuditFixture, describe_report, entry};

/// How a disk fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DiskFailure {
    /// One call fails.
    Once,
    /// One call and all that follow fail.
    Lasting,
    /// A write takes only half of its bytes, and the next call fails.
    ShortWrite,
    /// A write takes only half of its bytes, and all calls that follow fail.
    LastingShortWrite,
}

const FAILURES: [DiskFailure; 4] =
    [DiskFailure::Once, DiskFailure::Lasting, DiskFailure::ShortWrite, DiskFailure::LastingShortWrite];

/// A disk that fails at a call, and records all calls.
#[derive(Default)]
struct FailingDisk(Mutex<FailingDiskState>);

#[derive(Default)]
struct FailingDiskState {
    calls: Vec<DiskCall>,
    failure: Option<(usize, DiskFailure)>,
}

impl FailingDisk {
    fn fail(&self, after: usize, failure: DiskFailure) {
        let mut plan = self.0.lock().unwrap();
        plan.failure = Some((plan.calls.len() + after, failure));
    }

    fn repair(&self) {
        self.0.lock().unwrap().failure = None;
    }

    /// Returns the calls since the last time.
    fn take_calls(&self) -> String {
        let calls = std::mem::take(&mut self.0.lock().unwrap().calls);
        calls.iter().map(|call| format!("{call:?}")).collect::<Vec<_>>().join(" ")
    }
}

impl DiskFaultInjector for FailingDisk {
    fn before_call(&self, call: DiskCall, bytes: usize) -> io::Result<usize> {
        let mut plan = self.0.lock().unwrap();
        let at = plan.calls.len();
        plan.calls.push(call);
        let Some((first, failure)) = plan.failure else { return Ok(bytes) };
        let fails = match failure {
            DiskFailure::Once => at == first,
            DiskFailure::Lasting => at >= first,
            DiskFailure::ShortWrite => at == first + 1,
            DiskFailure::LastingShortWrite => at > first,
        };
        let is_short =
            at == first && matches!(failure, DiskFailure::ShortWrite | DiskFailure::LastingShortWrite);
        match (fails, is_short) {
            (true, _) => Err(io::Error::from_raw_os_error(5)),
            (false, true) => Ok(bytes / 2),
            (false, false) => Ok(bytes),
        }
    }
}

fn open(lab: &AuditFixture, disk: &Arc<FailingDisk>, settings: AuditOptions) -> Result<AuditLog, String> {
    let calls = DiskCalls::with_injector(disk.clone());
    AuditLog::open_with(&lab.directory(), &lab.anchor(), settings, calls).map_err(|error| error.to_string())
}

/// Uses a log on a disk that fails at a call and is then repaired. Returns whether the disk was used up to that call.
fn check(settings: AuditOptions, at: usize, failure: DiskFailure) -> bool {
    let lab = AuditFixture::new();
    let disk = Arc::new(FailingDisk::default());
    disk.fail(at, failure);
    let log = open(&lab, &disk, settings).unwrap_or_else(|_| {
        disk.repair();
        open(&lab, &disk, settings).unwrap()
    });
    let mut acknowledged = Vec::new();
    for number in 1..=9 {
        match log.append(&entry(number)) {
            Ok(seq) => acknowledged.push((seq, number)),
            Err(_) => disk.repair(),
        }
        if number % 5 == 0 && log.sync().is_err() {
            disk.repair();
        }
    }
    let is_reached = disk.0.lock().unwrap().calls.len() > at;
    disk.repair();
    acknowledged.push((log.append(&entry(10)).unwrap(), 10));
    drop(log);
    let log = open(&lab, &disk, settings).unwrap();
    acknowledged.push((log.append(&entry(11)).unwrap(), 11));

    let case = format!("{failure:?} at {at}");
    let report = log.verify().unwrap();
    assert!(report.is_intact(), "{case}: {}", describe_report(&report));
    let kept: Vec<(u64, AuditSubject)> = read_entries(&lab.directory(), AuditFilter::default())
        .unwrap()
        .map(|record| record.map(|record| (record.seq, record.entry.subject)).unwrap())
        .collect();
    let oldest = kept.first().map_or(0, |(seq, _)| *seq);
    for (seq, number) in acknowledged.into_iter().filter(|(seq, _)| *seq >= oldest) {
        let is_kept = kept.contains(&(seq, entry(number).subject));
        assert!(is_kept, "{case}: {number} was acknowledged as entry {seq}");
    }
    is_reached
}

#[test]
fn a_disk_that_fails_costs_no_acknowledged_entry_and_glues_no_lines() {
    // Small enough to rotate, and to remove the oldest files.
    let settings = AuditOptions { max_file_bytes: 1200, max_files: 2 };
    for failure in FAILURES {
        let calls = (0..).take_while(|&at| check(settings, at, failure)).count();
        assert!(calls > 25, "{calls} calls");
    }
}

#[test]
fn the_rest_of_a_short_write_is_cut_off_or_else_closed_by_the_next_entry() {
    let lab = AuditFixture::with_entries(2);
    let disk = Arc::new(FailingDisk::default());
    let log = open(&lab, &disk, AuditOptions::default()).unwrap();
    log.append(&entry(3)).unwrap();
    let before = std::fs::read(lab.log_file(1)).unwrap();
    disk.fail(0, DiskFailure::ShortWrite);
    log.append(&entry(4)).unwrap_err();
    assert_eq!(std::fs::read(lab.log_file(1)).unwrap(), before, "the half of the line is cut off");
    // After a failure, the file is reopened.
    disk.fail(1, DiskFailure::LastingShortWrite);
    log.append(&entry(5)).unwrap_err();
    let left = std::fs::read(lab.log_file(1)).unwrap();
    assert!(left.starts_with(&before) && left.len() > before.len() && !left.ends_with(b"\n"));
    disk.repair();
    log.append(&entry(6)).unwrap();
    expect![[r#"
        5 entries in 1 files, Some((1, 5))
        # audit-00000001.jsonl:5 4: the last line was torn
    "#]]
    .assert_eq(&describe_report(&log.verify().unwrap()));
    let text = std::fs::read_to_string(lab.log_file(1)).unwrap();
    let lines: Vec<usize> = text.lines().map(|line| line.matches("{\"seq\":").count()).collect();
    assert_eq!(lines, [1; 6], "{text}");
}

/// The calls of each step. A missing sync, or a sync of the anchor before the log, fails here.
#[test]
fn entries_are_synced_when_the_turn_ends() {
    let lab = AuditFixture::new();
    let disk = Arc::new(FailingDisk::default());
    let log = open(&lab, &disk, AuditOptions { max_file_bytes: 600, max_files: 2 }).unwrap();
    let mut told = format!("open: {}\n", disk.take_calls());
    for number in 1..=3 {
        log.append(&entry(number)).unwrap();
        told += &format!("append: {}\n", disk.take_calls());
    }
    log.sync().unwrap();
    told += &format!("sync: {}\n", disk.take_calls());
    expect![[r#"
        open: CreateDirectory CreateDirectory OpenInPlace Write OpenInPlace SyncDirectory
        append: OpenInPlace Write Write
        append: Sync OpenInPlace Write SyncDirectory Write Write
        append: Sync OpenInPlace OpenInPlace Write Sync Remove SyncDirectory Write Write
        sync: Sync Sync
    "#]]
    .assert_eq(&told);
}

#[test]
fn a_sync_that_fails_is_an_error() {
    let lab = AuditFixture::with_entries(1);
    let disk = Arc::new(FailingDisk::default());
    let log = open(&lab, &disk, AuditOptions::default()).unwrap();
    log.append(&entry(2)).unwrap();
    disk.take_calls();
    // The log is synced, and then its anchor.
    for at in [0, 1] {
        disk.fail(at, DiskFailure::Once);
        let refused = log.sync().unwrap_err().to_string();
        assert!(refused.starts_with("cannot sync "), "{refused}");
        disk.repair();
    }
    log.sync().unwrap();
}
