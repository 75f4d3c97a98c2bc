//! Observation: a tree and steps in, the observer's report out.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use bowline_text::hash::ContentHash;
use expect_test::{Expect, expect};
use proptest::prelude::*;
use test_support::git::commit_and_pack;

use super::*;
use crate::walker::fixture::TestTree;
use bowline_storage::file_clock;

/// Long after every file of a test was written: nothing is racy.
const SETTLED_NOW: i64 = i64::MAX;
/// Before any file was written: everything is racy.
const RACY_NOW: i64 = 0;

struct ObserverFixture {
    tree: TestTree,
    roots: Roots,
    observer: Observer,
    now_ns: i64,
    out: String,
}

impl ObserverFixture {
    fn new(fixture: &str, options: ObserverOptions) -> Self {
        let tree = TestTree::new(fixture);
        let roots = tree.roots(&["/w"]);
        Self { tree, roots, observer: Observer::new(options), now_ns: SETTLED_NOW, out: String::new() }
    }

    fn run_step(&mut self, step: &str) {
        writeln!(self.out, "> {}", step.replace('\0', "\\0")).unwrap();
        let words: Vec<&str> = step.split(' ').collect();
        let path = |at: usize| self.tree.path(words[at]);
        match words[0] {
            "first" | "scan" | "paths" => self.scan(&words),
            "write" => self.tree.write(words[1], words[2..].join(" ").replace("\\n", "\n")),
            "rm" => fs::remove_file(path(1)).unwrap(),
            "rmdir" => fs::remove_dir_all(path(1)).unwrap(),
            "mv" => fs::rename(path(1), path(2)).unwrap(),
            "ln" => std::os::unix::fs::symlink(path(1), path(2)).unwrap(),
            "chmod" => {
                let mode = u32::from_str_radix(words[2], 8).unwrap();
                fs::set_permissions(path(1), fs::Permissions::from_mode(mode)).unwrap();
            }
            // Writes different bytes, and keeps size and time.
            "forge" => {
                let modified = fs::metadata(path(1)).unwrap().modified().unwrap();
                self.tree.write(words[1], words[2..].join(" "));
                fs::File::options().write(true).open(path(1)).unwrap().set_modified(modified).unwrap();
            }
            "fifo" => {
                let mode = rustix::fs::Mode::RUSR;
                let fifo = rustix::fs::FileType::Fifo;
                rustix::fs::mknodat(rustix::fs::CWD, path(1), fifo, mode, 0).unwrap();
            }
            // Records a write as the engine's own.
            "expect" => {
                let name = self.tree.path_text(words[1]);
                let stat = rustix::fs::stat(&name).unwrap();
                let bytes = fs::read(&name).unwrap();
                let hash = ContentHash::digest(&bytes);
                self.observer.record_own_ignore_file(&name, Some(&bytes));
                self.observer.record_own_write(
                    &name,
                    KnownFile::new(file_clock::file_stamp(&stat), Some(hash), RACY_NOW),
                );
            }
            "forget" => self.observer.record_own_deletion(&self.tree.path_text(words[1])),
            "at-once" => self.now_ns = RACY_NOW,
            "later" => self.now_ns = SETTLED_NOW,
            "restart" => {
                let rows: Vec<_> = self.observer.rows().map(|(path, known)| (path, *known)).collect();
                self.observer = Observer::restore_after(&self.observer, rows);
            }
            other => panic!("{other}"),
        }
    }

    fn scan(&mut self, words: &[&str]) {
        // The file system determines the order in which a directory is read.
        let (mut events, mut handed_on) = (Vec::new(), Vec::new());
        let mut sink = |event: ScanEvent<'_>| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            events.push(match event {
                ScanEvent::Directory(_) => return ControlFlow::Continue(()),
                ScanEvent::Progress(files) => format!("… {files}\n"),
                ScanEvent::Content { path, known, bytes } => {
                    assert_eq!(known.hash, Some(ContentHash::digest(&bytes)));
                    handed_on.push((path.to_owned(), *known));
                    format!("{path} has {:?}\n", text(&bytes))
                }
                ScanEvent::GitContent { path, .. } => format!("git has {path}\n"),
                ScanEvent::Change(ScannedChange { path, kind: what, before, after }, bytes) => {
                    let before = match before.map(|known| known.hash.is_some()) {
                        None => "",
                        Some(true) => ", before known",
                        Some(false) => ", before unknown",
                    };
                    let bytes = bytes.map(|bytes| {
                        assert_eq!(after.unwrap().hash, Some(ContentHash::digest(&bytes)));
                        format!(": {:?}", text(&bytes))
                    });
                    format!("{path} {what:?}{before}{}\n", bytes.unwrap_or_default())
                }
            });
            ControlFlow::Continue(())
        };
        let paths: Vec<String> = words[1..].iter().map(|name| self.tree.path_text(name)).collect();
        let known: BTreeMap<String, KnownFile> =
            self.observer.rows().map(|(path, known)| (path, *known)).collect();
        let mut found = match words[0] {
            "first" => self.observer.first_scan(&self.roots, &GitObjects::default(), self.now_ns, &mut sink),
            "scan" => self.observer.scan(&self.roots, self.now_ns, &mut sink),
            _ => self.observer.scan_paths(&self.roots, &paths, self.now_ns, &mut sink),
        };
        self.observer.conclude_scan(found.end.take());
        // After a scan at the end of time nothing could be newer.
        self.observer.last_scan_ns = Some(RACY_NOW);
        events.sort_unstable();
        let mut out = events.concat();
        let ScanReport { files_seen: files, files_read: read, files_unreadable: unclear, .. } = found.report;
        // The entries of a first scan are handed on with their bytes.
        if words[0] == "first" {
            found.upsert.extend(handed_on);
        }
        writeln!(out, "{files} files, {read} read, {} stored", found.upsert.len()).unwrap();
        if unclear > 0 {
            writeln!(out, "{unclear} unclear").unwrap();
        }
        // The returned rows are sufficient to keep a store up to date.
        let mut stored = known;
        stored.extend(found.upsert);
        stored.retain(|path, _| !found.remove.contains(path));
        let known: BTreeMap<String, KnownFile> =
            self.observer.rows().map(|(path, known)| (path, *known)).collect();
        assert_eq!(stored, known);
        self.out += &self.tree.without_base(&out);
        if self.now_ns == SETTLED_NOW {
            self.tree.wait_for_clock_tick();
        }
    }
}

fn check_with(options: ObserverOptions, fixture: &str, steps: &str, expected: Expect) {
    let mut bench = ObserverFixture::new(fixture, options);
    steps.trim().lines().for_each(|step| bench.run_step(step));
    expected.assert_eq(&bench.out);
}

fn check(fixture: &str, steps: &str, expected: Expect) {
    check_with(ObserverOptions::default(), fixture, steps, expected);
}

#[test]
fn the_first_scan_learns_and_the_next_finds_what_changed() {
    check(
        "
//- /w/a
one
//- /w/b
two
//- /w/c
three
",
        "
first
scan
write /w/a ONE
rm /w/b
chmod /w/c 600
write /w/d new
scan
scan
",
        expect![[r#"
            > first
            /w/a has "one\n"
            /w/b has "two\n"
            /w/c has "three\n"
            3 files, 3 read, 3 stored
            > scan
            3 files, 0 read, 0 stored
            > write /w/a ONE
            > rm /w/b
            > chmod /w/c 600
            > write /w/d new
            > scan
            /w/a Modified, before known: "ONE"
            /w/b Deleted, before known
            /w/c Mode, before known: "three\n"
            /w/d Created: "new"
            3 files, 3 read, 3 stored
            > scan
            3 files, 0 read, 0 stored
        "#]],
    );
}

#[test]
fn what_was_written_just_before_a_scan_is_read_again() {
    check(
        "
//- /w/a
one
//- /w/b
two
",
        "
at-once
first
scan
forge /w/a ONE.
later
scan
scan
",
        expect![[r#"
            > at-once
            > first
            /w/a has "one\n"
            /w/b has "two\n"
            2 files, 2 read, 2 stored
            > scan
            2 files, 2 read, 2 stored
            > forge /w/a ONE.
            > later
            > scan
            /w/a Modified, before known: "ONE."
            2 files, 2 read, 2 stored
            > scan
            2 files, 0 read, 0 stored
        "#]],
    );
}

#[test]
fn changes_with_a_forged_time_are_found() {
    check(
        "
//- /w/a
one
",
        "
first
forge /w/a ONE.
scan
",
        expect![[r#"
            > first
            /w/a has "one\n"
            1 files, 1 read, 1 stored
            > forge /w/a ONE.
            > scan
            /w/a Modified, before known: "ONE."
            1 files, 1 read, 1 stored
        "#]],
    );
}

#[test]
fn engine_writes_are_not_reported() {
    check(
        "
//- /w/a
one
//- /w/b
two
",
        "
first
write /w/a by the engine
expect /w/a
write /w/new by the engine
expect /w/new
rm /w/b
forget /w/b
scan
write /w/a by another program
scan
",
        expect![[r#"
            > first
            /w/a has "one\n"
            /w/b has "two\n"
            2 files, 2 read, 2 stored
            > write /w/a by the engine
            > expect /w/a
            > write /w/new by the engine
            > expect /w/new
            > rm /w/b
            > forget /w/b
            > scan
            2 files, 2 read, 2 stored
            > write /w/a by another program
            > scan
            /w/a Modified, before known: "by another program"
            2 files, 1 read, 1 stored
        "#]],
    );
}

#[test]
fn a_rename_is_a_deletion_and_a_creation_that_belong_together() {
    check(
        "
//- /w/a
one
//- /w/dir/b
two
//- /w/dir/c
three
",
        "
first
mv /w/a /w/z
mv /w/dir /w/dur
write /w/dur/c changed as well
scan
",
        expect![[r#"
            > first
            /w/a has "one\n"
            /w/dir/b has "two\n"
            /w/dir/c has "three\n"
            3 files, 3 read, 3 stored
            > mv /w/a /w/z
            > mv /w/dir /w/dur
            > write /w/dur/c changed as well
            > scan
            /w/a Deleted, before known
            /w/dir/b Deleted, before known
            /w/dir/c Deleted, before known
            /w/dur/b Created: "two\n"
            /w/dur/c Created: "changed as well"
            /w/z Created: "one\n"
            3 files, 3 read, 3 stored
        "#]],
    );
}

#[test]
fn rules_keep_files_from_becoming_known_but_hide_no_known_ones() {
    check(
        "
//- /w/.gitignore
target
//- /w/target/x
//- /w/src/a
one
//- /w/src/b
two
",
        "
first
write /w/target/x changed
write /w/.gitignore *
write /w/src/a changed
write /w/src/new hidden
rm /w/src/b
scan
write /w/src/b again
scan
write /w/.gitignore
paths /w/.gitignore
",
        expect![[r#"
            > first
            /w/.gitignore has "target\n"
            /w/src/a has "one\n"
            /w/src/b has "two\n"
            3 files, 3 read, 3 stored
            > write /w/target/x changed
            > write /w/.gitignore *
            > write /w/src/a changed
            > write /w/src/new hidden
            > rm /w/src/b
            > scan
            /w/.gitignore Modified, before known: "*"
            /w/src/a Modified, before known: "changed"
            /w/src/b Deleted, before known
            /w/src/new Created: "hidden"
            3 files, 3 read, 3 stored
            > write /w/src/b again
            > scan
            3 files, 0 read, 0 stored
            > write /w/.gitignore
            > paths /w/.gitignore
            /w/.gitignore Modified, before known: ""
            /w/src/b has "again"
            /w/target/x has "changed"
            5 files, 3 read, 3 stored
        "#]],
    );
}

/// Files that are visible when a command begins are found, even if it adds rules that hide them; files that are hidden
/// then are not reported as created.
#[test]
fn rules_added_by_a_command_hide_none_of_its_files() {
    check(
        "
//- /w/.gitignore
target
//- /w/.git/info/exclude
excluded
//- /w/target/kept
mine
//- /w/src/a
one
",
        r"
first
write /w/.gitignore target\nsecret*
write /w/secret.txt one
write /w/.venv/.gitignore *
write /w/.venv/bin/python two
write /w/src/.ignore b
write /w/src/b three
write /w/.git/info/exclude excluded\nmine
write /w/mine four
write /w/excluded five
scan
write /w/secret.new six
write /w/.venv/bin/pip seven
write /w/secret.txt eight
scan
write /w/.gitignore
write /w/target/kept changed
write /w/target/new nine
paths /w/.gitignore
rmdir /w/.venv
paths /w/.venv
write /w/.venv/other ten
paths /w/.venv
write /w/rules/.gitignore *
write /w/rules/x eleven
paths /w/rules/x /w/rules/.gitignore
",
        expect![[r#"
            > first
            /w/.gitignore has "target\n"
            /w/src/a has "one\n"
            2 files, 2 read, 2 stored
            > write /w/.gitignore target\nsecret*
            > write /w/secret.txt one
            > write /w/.venv/.gitignore *
            > write /w/.venv/bin/python two
            > write /w/src/.ignore b
            > write /w/src/b three
            > write /w/.git/info/exclude excluded\nmine
            > write /w/mine four
            > write /w/excluded five
            > scan
            /w/.gitignore Modified, before known: "target\nsecret*"
            /w/.venv/.gitignore Created: "*"
            /w/.venv/bin/python Created: "two"
            /w/mine Created: "four"
            /w/secret.txt Created: "one"
            /w/src/.ignore Created: "b"
            /w/src/b Created: "three"
            8 files, 7 read, 7 stored
            > write /w/secret.new six
            > write /w/.venv/bin/pip seven
            > write /w/secret.txt eight
            > scan
            /w/secret.txt Modified, before known: "eight"
            8 files, 1 read, 1 stored
            > write /w/.gitignore
            > write /w/target/kept changed
            > write /w/target/new nine
            > paths /w/.gitignore
            /w/.gitignore Modified, before known: ""
            /w/secret.new has "six"
            /w/target/kept has "changed"
            /w/target/new has "nine"
            11 files, 4 read, 4 stored
            > rmdir /w/.venv
            > paths /w/.venv
            /w/.venv/.gitignore Deleted, before known
            /w/.venv/bin/python Deleted, before known
            0 files, 0 read, 0 stored
            > write /w/.venv/other ten
            > paths /w/.venv
            /w/.venv/other Created: "ten"
            1 files, 1 read, 1 stored
            > write /w/rules/.gitignore *
            > write /w/rules/x eleven
            > paths /w/rules/x /w/rules/.gitignore
            /w/rules/.gitignore Created: "*"
            /w/rules/x Created: "eleven"
            2 files, 2 read, 2 stored
        "#]],
    );
}

#[test]
fn rules_that_the_engine_wrote_hold_for_what_comes_next() {
    check(
        "
//- /w/a
",
        "
first
write /w/.gitignore out
expect /w/.gitignore
write /w/out/x one
write /w/b two
scan
",
        expect![[r#"
            > first
            /w/a has ""
            1 files, 1 read, 1 stored
            > write /w/.gitignore out
            > expect /w/.gitignore
            > write /w/out/x one
            > write /w/b two
            > scan
            /w/b Created: "two"
            3 files, 2 read, 2 stored
        "#]],
    );
}

#[test]
fn paths_that_are_no_longer_files_count_as_deleted() {
    check(
        "
//- /w/a
one
//- /w/b
two
//- /w/dir/c
three
//- /w/dir/d
four
//- /o/c
outside
//- /o/d
four
",
        "
first
rm /w/a
fifo /w/a
rm /w/b
write /w/b/inside directory
rmdir /w/dir
ln /o /w/dir
scan
",
        expect![[r#"
            > first
            /w/a has "one\n"
            /w/b has "two\n"
            /w/dir/c has "three\n"
            /w/dir/d has "four\n"
            4 files, 4 read, 4 stored
            > rm /w/a
            > fifo /w/a
            > rm /w/b
            > write /w/b/inside directory
            > rmdir /w/dir
            > ln /o /w/dir
            > scan
            /w/a Deleted, before known
            /w/b Deleted, before known
            /w/b/inside Created: "directory"
            /w/dir/c Deleted, before known
            /w/dir/d Deleted, before known
            1 files, 1 read, 1 stored
        "#]],
    );
}

#[test]
fn paths_may_be_files_directories_gone_or_elsewhere() {
    check(
        "
//- /w/.gitignore
*.log
target
//- /w/a
one
//- /w/dir/b
two
//- /w/dir/sub/c
three
//- /w/dir-like/d
four
//- /o/e
five
",
        "
first
write /w/a changed
write /w/dir/sub/c changed
write /w/dir/x.log hidden
write /w/target/y hidden
write /w/dir-like/d changed
rm /w/dir/b
write /o/e changed
paths /w/none /w/dir/x.log /w/target/y /w/target /o/e /o
paths /w/a
paths /w/dir/sub /w/dir /w/dir/b
rmdir /w/dir-like
paths /w/dir-like/d
paths /w/dir-like
write /w/fresh/deep/f new
paths /w/fresh
scan
",
        expect![[r#"
            > first
            /w/.gitignore has "*.log\ntarget\n"
            /w/a has "one\n"
            /w/dir-like/d has "four\n"
            /w/dir/b has "two\n"
            /w/dir/sub/c has "three\n"
            5 files, 5 read, 5 stored
            > write /w/a changed
            > write /w/dir/sub/c changed
            > write /w/dir/x.log hidden
            > write /w/target/y hidden
            > write /w/dir-like/d changed
            > rm /w/dir/b
            > write /o/e changed
            > paths /w/none /w/dir/x.log /w/target/y /w/target /o/e /o
            0 files, 0 read, 0 stored
            > paths /w/a
            /w/a Modified, before known: "changed"
            1 files, 1 read, 1 stored
            > paths /w/dir/sub /w/dir /w/dir/b
            /w/dir/b Deleted, before known
            /w/dir/sub/c Modified, before known: "changed"
            1 files, 1 read, 1 stored
            > rmdir /w/dir-like
            > paths /w/dir-like/d
            /w/dir-like/d Deleted, before known
            0 files, 0 read, 0 stored
            > paths /w/dir-like
            0 files, 0 read, 0 stored
            > write /w/fresh/deep/f new
            > paths /w/fresh
            /w/fresh/deep/f Created: "new"
            1 files, 1 read, 1 stored
            > scan
            4 files, 0 read, 0 stored
        "#]],
    );
}

#[test]
fn a_restored_observer_continues() {
    check(
        "
//- /w/a
one
//- /w/b
two
",
        "
first
restart
write /w/a changed
rm /w/b
write /w/c new
scan
restart
scan
",
        expect![[r#"
            > first
            /w/a has "one\n"
            /w/b has "two\n"
            2 files, 2 read, 2 stored
            > restart
            > write /w/a changed
            > rm /w/b
            > write /w/c new
            > scan
            /w/a Modified, before known: "changed"
            /w/b Deleted, before known
            /w/c Created: "new"
            2 files, 2 read, 2 stored
            > restart
            > scan
            2 files, 0 read, 0 stored
        "#]],
    );
}

#[test]
fn budgets_limit_the_reported_content() {
    let options = ObserverOptions {
        max_kept_file_bytes: 10,
        max_kept_total_bytes: 14,
        max_content_bytes: 20,
        max_hashed_bytes: 30,
        ..ObserverOptions::default()
    };
    check_with(
        options,
        "
//- /w/1
12345678
//- /w/binary\n\0\0
//- /w/large
0123456789abcdef
",
        "
first
write /w/1 this is more than 20 bytes
write /w/binary \0text
write /w/large this is more than 30 bytes, so it is not read
scan
chmod /w/large 600
scan
write /w/large this is more than 30 bytes, so it is NOT read
scan
",
        expect![[r#"
            > first
            /w/1 has "12345678\n"
            /w/binary has "\0\0\n"
            3 files, 2 read, 3 stored
            > write /w/1 this is more than 20 bytes
            > write /w/binary \0text
            > write /w/large this is more than 30 bytes, so it is not read
            > scan
            /w/1 Modified, before known
            /w/binary Modified, before known: "\0text"
            /w/large Modified, before unknown
            3 files, 3 read, 3 stored
            > chmod /w/large 600
            > scan
            /w/large Mode, before unknown
            3 files, 1 read, 1 stored
            > write /w/large this is more than 30 bytes, so it is NOT read
            > scan
            /w/large Modified, before unknown
            3 files, 1 read, 1 stored
        "#]],
    );
}

#[test]
fn the_first_scan_keeps_small_texts_while_there_is_room() {
    let options =
        ObserverOptions { max_kept_file_bytes: 4, max_kept_total_bytes: 8, ..ObserverOptions::default() };
    let tree = TestTree::new("");
    for at in 0..5 {
        tree.write(&format!("/w/{at}"), "1234");
    }
    tree.write("/w/long", "12345");
    let (mut kept, mut observer) = (0, Observer::new(options));
    observer.first_scan(&tree.roots(&["/w"]), &GitObjects::default(), SETTLED_NOW, &mut |event| {
        if let ScanEvent::Content { bytes, .. } = event {
            kept += bytes.len();
        }
        ControlFlow::Continue(())
    });
    assert_eq!(kept, 8);
    assert_eq!(observer.rows().filter(|(_, known)| known.hash.is_some()).count(), 2);
    assert_eq!(observer.rows().count(), 6);
}

#[test]
fn texts_that_git_has_take_no_room_but_are_read_up_to_a_limit() {
    let tree = TestTree::new("");
    for at in 0..5 {
        tree.write(&format!("/w/{at}"), format!("committed {at}"));
    }
    commit_and_pack(&tree.path("/w"));
    tree.write("/w/new", "not committed");
    let roots = tree.roots(&["/w"]);
    let mut out = String::new();
    // 11 bytes each, and 13.
    for (max_kept_total_bytes, max_read_total_bytes) in [(13, 1000), (12, 1000), (13, 46)] {
        let options =
            ObserverOptions { max_kept_total_bytes, max_read_total_bytes, ..ObserverOptions::default() };
        let (mut kept, mut left) = (0, 0);
        let mut observer = Observer::new(options);
        observer.first_scan(&roots, &GitObjects::open(&roots), SETTLED_NOW, &mut |event| {
            kept += usize::from(matches!(event, ScanEvent::Content { .. }));
            left += usize::from(matches!(event, ScanEvent::GitContent { .. }));
            ControlFlow::Continue(())
        });
        let hashed = observer.rows().filter(|(_, known)| known.hash.is_some()).count();
        writeln!(out, "{kept} kept, {left} left to git, {hashed} of {} read", observer.rows().count())
            .unwrap();
    }
    let mut lines = out.lines();
    assert_eq!(lines.next(), Some("1 kept, 5 left to git, 6 of 6 read"));
    assert_eq!(lines.next(), Some("0 kept, 5 left to git, 6 of 6 read"));
    // Which ones are read depends on the file system's order.
    assert!(lines.next().is_some_and(|line| line.ends_with("4 of 6 read")), "{out}");
}

#[test]
fn a_first_scan_reports_progress_and_can_be_resumed() {
    let tree = TestTree::new("");
    let roots = tree.roots(&["/w"]);
    for at in 0..2100 {
        tree.write(&format!("/w/{}/{at}", at % 7), "x");
    }
    let mut observer = Observer::new(ObserverOptions::default());
    let mut told = Vec::new();
    let found = observer.first_scan(&roots, &GitObjects::default(), SETTLED_NOW, &mut |event| match event {
        ScanEvent::Progress(files) => {
            told.push(files);
            if files == 2048 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
        _ => ControlFlow::Continue(()),
    });
    assert_eq!((told, found.report.stopped, found.changes.len()), (vec![1024, 2048], true, 0));
    let known = observer.rows().count();
    let found =
        observer.first_scan(&roots, &GitObjects::default(), SETTLED_NOW, &mut |_| ControlFlow::Continue(()));
    assert_eq!((found.report.stopped, found.changes.len()), (false, 0));
    assert_eq!((known, observer.rows().count()), (2047, 2100));
}

#[test]
fn an_incomplete_scan_reports_no_deletions() {
    let tree = TestTree::new("");
    let roots = tree.roots(&["/w"]);
    for at in 0..50 {
        tree.write(&format!("/w/{at}"), "x");
    }
    let rows = {
        let mut observer = Observer::new(ObserverOptions::default());
        observer.first_scan(&roots, &GitObjects::default(), SETTLED_NOW, &mut |_| ControlFlow::Continue(()));
        observer.rows().map(|(path, known)| (path, *known)).collect::<Vec<_>>()
    };
    let few = ObserverOptions { max_entries: 10, ..ObserverOptions::default() };
    let mut observer = Observer::restore(few, rows.clone());
    let found = observer.scan(&roots, SETTLED_NOW, &mut |_| ControlFlow::Continue(()));
    assert!(found.report.walk.truncated);
    assert_eq!((found.changes, found.report.files_seen), (Vec::new(), 50));

    let mut observer = Observer::restore(ObserverOptions::default(), rows);
    observer.last_scan_ns = Some(RACY_NOW);
    tree.write("/w/new", "");
    let found = observer.scan(&roots, SETTLED_NOW, &mut |event| match event {
        ScanEvent::Change(..) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    assert_eq!((found.changes.len(), found.report.stopped), (1, true));
}

#[test]
fn files_no_longer_ignored_are_not_reported_as_created() {
    let tree = TestTree::new("//- /w/.gitignore\nnotes/\n//- /w/notes/precious\nkeep me\n//- /w/a\n");
    let roots = tree.roots(&["/w"]);
    let mut observer = Observer::new(ObserverOptions::default());
    let go_on = &mut |_: ScanEvent<'_>| ControlFlow::Continue(());
    observer.first_scan(&roots, &GitObjects::default(), SETTLED_NOW, go_on);
    // The rule that hid it is gone.
    tree.write("/w/.gitignore", "");
    tree.wait_for_clock_tick();
    let found = observer.scan(&roots, SETTLED_NOW, go_on);
    let paths: Vec<&str> = found.changes.iter().map(|seen| seen.path.as_str()).collect();
    assert_eq!(paths, [tree.path_text("/w/.gitignore")]);
    assert!(observer.known(&tree.path_text("/w/notes/precious")).is_some());
    // A stopped first scan did not see everything, so the next one learns, too.
    let mut observer = Observer::new(ObserverOptions::default());
    let stopped =
        observer.first_scan(&roots, &GitObjects::default(), RACY_NOW, &mut |_| ControlFlow::Break(()));
    assert!(stopped.report.stopped);
    let second = observer.scan(&roots, RACY_NOW, go_on);
    assert_eq!(second.changes, []);
    observer.conclude_scan(second.end);
    tree.write("/w/new", "");
    assert_eq!(observer.scan(&roots, RACY_NOW, go_on).changes.len(), 1);
}

/// The files of a moved directory keep their times, which therefore do not show that they are new at their path.
#[test]
fn files_that_are_moved_with_their_directory_are_found() {
    let tree = TestTree::new("//- /w/m/a\none\n//- /w/m/d/b\ntwo\n//- /w/m/linked\nx\n//- /w/z\n");
    let roots = tree.roots(&["/w"]);
    fs::hard_link(tree.path("/w/m/linked"), tree.path("/w/other-name")).unwrap();
    let mut observer = Observer::new(ObserverOptions::default());
    let go_on = &mut |_: ScanEvent<'_>| ControlFlow::Continue(());
    observer.first_scan(&roots, &GitObjects::default(), SETTLED_NOW, go_on);
    let mut told = String::new();
    for (from, to) in [("/w/m", "/w/n"), ("/w/n", "/w/b"), ("/w/b", "/w/y")] {
        fs::rename(tree.path(from), tree.path(to)).unwrap();
        let mut found = if from == "/w/m" {
            observer.scan(&roots, SETTLED_NOW, go_on)
        } else {
            observer.scan_paths(&roots, &[tree.path_text(from), tree.path_text(to)], SETTLED_NOW, go_on)
        };
        found.changes.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        for change in &found.changes {
            writeln!(told, "{:?} {}", change.kind, change.path).unwrap();
        }
        observer.conclude_scan(found.end);
    }
    expect![[r#"
        Deleted /w/m/a
        Deleted /w/m/d/b
        Deleted /w/m/linked
        Created /w/n/a
        Created /w/n/d/b
        Created /w/n/linked
        Created /w/b/a
        Created /w/b/d/b
        Created /w/b/linked
        Deleted /w/n/a
        Deleted /w/n/d/b
        Deleted /w/n/linked
        Deleted /w/b/a
        Deleted /w/b/d/b
        Deleted /w/b/linked
        Created /w/y/a
        Created /w/y/d/b
        Created /w/y/linked
    "#]]
    .assert_eq(&tree.without_base(&told));
}

#[test]
fn paths_that_lie_below_others_are_scanned_once() {
    let paths =
        ["/w/b", "/w/a-b", "/w/a/c", "/w/a", "/w/a", "/w/a/.ignore", "/w/d/.gitignore", "/w/d/x/.gitignore"];
    assert_eq!(outermost_paths(paths.into_iter()), ["/w/a", "/w/a-b", "/w/b", "/w/d"]);
}

#[derive(Debug, Clone)]
enum ObserverStep {
    Write(u8, u8),
    Remove(u8),
    Rename(u8, u8),
    Scan,
    Paths,
}

fn steps() -> impl Strategy<Value = Vec<ObserverStep>> {
    let step = prop_oneof![
        4 => (0..6u8, 0..3u8).prop_map(|(at, text)| ObserverStep::Write(at, text)),
        2 => (0..6u8).prop_map(ObserverStep::Remove),
        2 => (0..6u8, 0..6u8).prop_map(|(from, to)| ObserverStep::Rename(from, to)),
        2 => Just(ObserverStep::Scan),
        1 => Just(ObserverStep::Paths),
    ];
    prop::collection::vec(step, 1..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    // Replaying the handed-on events yields the bytes on disk.
    #[test]
    fn replayed_events_give_the_bytes_on_disk(steps in steps()) {
        let tree = TestTree::new("//- /w/0/f\n0");
        let roots = tree.roots(&["/w"]);
        let names: Vec<String> = ["/w/0/f", "/w/0/g", "/w/1/f", "/w/h", "/w/1/2/f", "/w/i"].map(str::to_owned).to_vec();
        let mut observer = Observer::new(ObserverOptions::default());
        let mut replayed: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let replay = |replayed: &mut BTreeMap<String, Vec<u8>>, event: ScanEvent<'_>| {
            match event {
                ScanEvent::Progress(_) | ScanEvent::Directory(_) | ScanEvent::GitContent { .. } => {}
                ScanEvent::Content { path, bytes, .. } => drop(replayed.insert(path.to_owned(), bytes)),
                ScanEvent::Change(seen, bytes) => {
                    let old = replayed.get(&seen.path).map(|bytes| ContentHash::digest(bytes));
                    assert_eq!(seen.before.map(|known| known.hash), old.map(Some), "{seen:?}");
                    match bytes {
                        Some(bytes) => drop(replayed.insert(seen.path.clone(), bytes)),
                        None => drop(replayed.remove(&seen.path)),
                    }
                }
            }
            ControlFlow::Continue(())
        };
        observer.first_scan(&roots, &GitObjects::default(), RACY_NOW, &mut |event| replay(&mut replayed, event));
        let mut dirty = Vec::new();
        let everything = [ObserverStep::Paths, ObserverStep::Scan];
        for step in steps.iter().chain(&everything) {
            match step {
                ObserverStep::Write(at, text) => {
                    tree.write(&names[usize::from(*at)], [*text]);
                    dirty.push(tree.path_text(&names[usize::from(*at)]));
                }
                // A missing file cannot be removed or renamed, which is fine.
                ObserverStep::Remove(at) => {
                    let path = tree.path_text(&names[usize::from(*at)]);
                    fs::remove_file(&path).unwrap_or_default();
                    dirty.push(path);
                }
                ObserverStep::Rename(from, to) => {
                    let [from, to] = [from, to].map(|at| tree.path_text(&names[usize::from(*at)]));
                    fs::rename(&from, &to).unwrap_or_default();
                    dirty.extend([from, to]);
                }
                ObserverStep::Scan => {
                    observer.scan(&roots, RACY_NOW, &mut |event| replay(&mut replayed, event));
                    dirty.clear();
                }
                ObserverStep::Paths => {
                    let paths = std::mem::take(&mut dirty);
                    observer.scan_paths(&roots, &paths, RACY_NOW, &mut |event| replay(&mut replayed, event));
                }
            }
            if matches!(step, ObserverStep::Scan | ObserverStep::Paths) {
                for name in &names {
                    let path = tree.path_text(name);
                    let there = fs::read(&path).ok();
                    prop_assert_eq!(there.as_ref(), replayed.get(&path), "{}", path);
                }
            }
        }
    }
}
