//! When the lock is kept between reads, and when it is given back.

use std::fs::{self, File};
use std::path::PathBuf;

use bowline_state::audit::{Action, Entry, MAX_LAG};
use bowline_state::changes::Moment;
use tempfile::TempDir;

use super::*;
use crate::audit::verify;

struct Lab {
    root: TempDir,
    writer: Writer,
}

fn open(root: &TempDir) -> Writer {
    let (directory, anchor) = (root.path().join("log"), root.path().join("anchor"));
    Writer::open(&directory, &anchor, Settings::default(), Calls::default()).unwrap()
}

impl Lab {
    /// A log with one entry, and its writer.
    fn new() -> Self {
        let root = TempDir::new().unwrap();
        let mut writer = open(&root);
        writer.append(&Entry::new(Moment(0), Action::Write)).unwrap();
        Self { root, writer }
    }

    fn read(&mut self, times: u64) {
        for _ in 0..times {
            self.writer.append_at_hand(&Entry::new(Moment(0), Action::Read)).unwrap().unwrap();
        }
    }

    /// Says whether another process would get the lock.
    fn is_free(&self) -> bool {
        File::open(self.root.path().join("anchor")).unwrap().try_lock().is_ok()
    }

    fn log(&self) -> PathBuf {
        self.root.path().join("log").join(place::name(1))
    }

    fn found(&self) -> String {
        let report = verify(&self.root.path().join("log"), &self.root.path().join("anchor")).unwrap();
        report.findings.iter().map(|finding| format!("{finding}\n")).collect()
    }
}

const ENOUGH: u64 = KEPT_AFTER as u64;

#[test]
fn the_lock_is_kept_after_some_reads_in_a_row_until_the_anchor_learns_of_them() {
    let mut lab = Lab::new();
    lab.read(ENOUGH - 1);
    assert!(lab.is_free());
    lab.read(1);
    assert!(!lab.is_free());
    lab.read(MAX_LAG - 1 - ENOUGH);
    assert!(!lab.is_free());
    lab.read(1);
    assert!(lab.is_free(), "with each new anchor others have their turn");
    lab.read(ENOUGH - 1);
    assert!(lab.is_free());
    lab.read(1);
    assert!(!lab.is_free());
}

#[test]
fn whatever_is_no_read_gives_the_lock_back() {
    let mut lab = Lab::new();
    lab.read(ENOUGH);
    lab.writer.append(&Entry::new(Moment(0), Action::Write)).unwrap();
    assert!(lab.is_free());
    lab.read(ENOUGH);
    lab.writer.append_at_hand(&Entry::new(Moment(0), Action::Write)).unwrap().unwrap();
    assert!(lab.is_free());
    lab.read(ENOUGH);
    lab.writer.catch_up().unwrap();
    assert!(lab.is_free());
    lab.read(ENOUGH);
    lab.writer.let_go();
    assert!(lab.is_free());
    lab.read(ENOUGH);
    lab.writer.close();
    assert!(lab.is_free());
    assert_eq!(lab.found(), "");
}

#[test]
fn a_lock_is_minded_once_and_given_back_when_nothing_was_appended_for_a_while() {
    let mut lab = Lab::new();
    assert!(!lab.writer.is_to_be_minded());
    lab.read(ENOUGH);
    assert!(lab.writer.is_to_be_minded());
    assert!(!lab.writer.is_to_be_minded(), "somebody does already");
    assert!(!lab.writer.let_go_if_idle());
    lab.read(1);
    assert!(!lab.writer.let_go_if_idle());
    assert!(!lab.is_free());
    assert!(lab.writer.let_go_if_idle());
    assert!(lab.is_free());
    lab.read(ENOUGH);
    assert!(lab.writer.is_to_be_minded());
}

#[test]
fn one_who_finds_that_others_append_does_not_keep_the_lock() {
    let mut lab = Lab::new();
    let mut other = open(&lab.root);
    for _ in 0..5 {
        lab.read(ENOUGH - 1);
        other.append(&Entry::new(Moment(0), Action::Write)).unwrap();
        assert!(lab.writer.append_at_hand(&Entry::new(Moment(0), Action::Read)).is_none());
        lab.writer.append(&Entry::new(Moment(0), Action::Read)).unwrap();
        assert!(lab.is_free());
    }
    assert_eq!(lab.found(), "");
}

#[test]
fn what_is_cut_off_while_the_lock_is_kept_is_found() {
    let mut lab = Lab::new();
    lab.read(ENOUGH + 2);
    let text = fs::read_to_string(lab.log()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    fs::write(lab.log(), lines[..5].iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    lab.read(2);
    lab.writer.append(&Entry::new(Moment(0), Action::Write)).unwrap();
    let found = lab.found();
    assert!(
        found.contains("audit-00000001.jsonl:6: entries 6 to 11 were removed before this line"),
        "{found}"
    );
}
