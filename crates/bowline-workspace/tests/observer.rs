//! Tests of commands that change a project's files outside the engine: the changes are found, attributed and undone.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say so and stop"
)]

use std::fmt::Write as _;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bowline_history::changes::{ChangeOrigin, ChangeSource};
use bowline_history::foreign_files::ForeignFiles;
use bowline_history::observation::RACY_WINDOW_NS;
use bowline_history::undo::{ChangeOwner, ChangeSelection};
use bowline_text::hash::ContentHash;
use bowline_text::lines::LineWindow;
use bowline_text::time::Timestamp;
use bowline_workspace::journal::{Journal, Retention};
use bowline_workspace::list::ListOptions;
use bowline_workspace::observer::ObserverOptions;
use bowline_workspace::roots::{RootSpec, Roots};
use bowline_workspace::search::SearchQuery;
use bowline_workspace::walker::EntryKind;
use bowline_workspace::workspace::{WatchMode, Workspace, WorkspaceOptions, WorkspaceSession};
use expect_test::{Expect, expect};
use tempfile::TempDir;
use test_support::file_clock;
use test_support::fixture::delete_file;

/// A file that changed longer than this before a scan cannot have changed unnoticed after it.
const RACY_WINDOW: Duration = Duration::from_nanos(RACY_WINDOW_NS.cast_unsigned());

/// A project under observation.
struct ObservedProject {
    root: PathBuf,
    workspace: Workspace,
    session: WorkspaceSession,
    _scratch: TempDir,
}

impl ObservedProject {
    fn new(files: &[(&str, &str)], watching: WatchMode) -> Self {
        let scratch = TempDir::new().unwrap();
        let root = scratch.path().canonicalize().unwrap().join("project");
        fs::create_dir(&root).unwrap();
        for (path, text) in files {
            write(&root.join(path), text);
        }
        let workspace = open_workspace(&root, &scratch.path().join("state"), watching);
        let session = workspace.session("s1");
        Self { root, workspace, session, _scratch: scratch }
    }

    fn path(&self, below: &str) -> String {
        self.root.join(below).to_str().unwrap().to_owned()
    }

    fn command_origin(&self, line: &str) -> ChangeOrigin {
        ChangeOrigin { command: Some(line.to_owned()), ..self.session.origin(Some(1), Some("c1")) }
    }

    /// Scans the disk after a command, and describes the changes found.
    fn observe_command(&self, line: &str) -> String {
        let observed = self.workspace.observe(&self.command_origin(line), &mut continue_scan).unwrap();
        let mut lines = Vec::new();
        for changed in self.workspace.changes(&ChangeSelection::default()).unwrap() {
            let change = changed.change;
            if !observed.changes.contains(&change.id) {
                continue;
            }
            let what = match (change.before, change.after) {
                (None, Some(_)) => "created",
                (Some(_), None) => "deleted",
                (Some(before), Some(after)) if before.hash == after.hash => "has another mode",
                _ => "changed",
            };
            assert_eq!(change.source, ChangeSource::Observed);
            let by = change.origin.command.unwrap_or_default();
            let known = change.before.is_none_or(|before| before.hash != ContentHash::UNKNOWN);
            let known = if known { "" } else { ", what was there is not known" };
            let path = change.path.strip_prefix(self.root.to_str().unwrap()).unwrap().to_owned();
            lines.push(format!("{path} {what} by {by}{known}\n"));
        }
        // A scan visits the files in the system's order.
        lines.sort();
        lines.concat()
    }

    fn describe_tree(&self) -> String {
        let mut text = String::new();
        describe_directory(&self.root, &self.root, &mut text);
        text
    }
}

fn open_workspace(root: &Path, state: &Path, watching: WatchMode) -> Workspace {
    let roots = Roots::open(&RootSpec::writable(root.to_str().unwrap()), &[]).unwrap();
    let foreign_files = ForeignFiles::with_patterns(&["*.orig"]).unwrap();
    let settings = WorkspaceOptions { foreign_files, ..WorkspaceOptions::default() };
    let workspace = Workspace::open(roots, state, settings).unwrap().workspace;
    let started =
        workspace.start_observing(ObserverOptions::default(), watching, &mut continue_scan).unwrap();
    assert!(started.watcher_error.is_none(), "{:?}", started.watcher_error);
    workspace
}

fn continue_scan(_: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn describe_directory(root: &Path, directory: &Path, text: &mut String) {
    let mut entries: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            describe_directory(root, &path, text);
        } else {
            let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            let name = path.strip_prefix(root).unwrap().display();
            writeln!(text, "{name} {mode:o} {:?}", fs::read_to_string(&path).unwrap()).unwrap();
        }
    }
}

/// Simulates `make` in this project.
fn run_command(project: &ObservedProject) {
    fs::write(project.root.join("a.txt"), "one\nTWO\n").unwrap();
    fs::remove_file(project.root.join("gone.txt")).unwrap();
    write(&project.root.join("out/new.txt"), "new\n");
    fs::rename(project.root.join("old-name.txt"), project.root.join("new-name.txt")).unwrap();
    fs::set_permissions(project.root.join("run.sh"), PermissionsExt::from_mode(0o755)).unwrap();
    write(&project.root.join("target/huge.o"), "ignored\n");
}

const FILES: &[(&str, &str)] = &[
    (".gitignore", "target/\n"),
    ("a.txt", "one\ntwo\n"),
    ("gone.txt", "gone\n"),
    ("old-name.txt", "the same\n"),
    ("run.sh", "#!/bin/sh\n"),
    ("same.txt", "same\n"),
];

fn check_command(watching: WatchMode, found: Expect) {
    let project = ObservedProject::new(FILES, watching);
    fs::set_permissions(project.root.join("gone.txt"), PermissionsExt::from_mode(0o640)).unwrap();
    project.observe_command("chmod 640 gone.txt");
    let before = project.describe_tree();
    assert_eq!(project.observe_command("nothing"), "");
    run_command(&project);
    let after = project.describe_tree();
    found.assert_eq(&project.observe_command("make"));
    assert_eq!(project.observe_command("nothing more"), "");

    let turn = ChangeSelection {
        owner: ChangeOwner::Turn { session: "s1".to_owned(), turn: 1 },
        limit: Some(6),
        ..ChangeSelection::default()
    };
    project.session.undo(&turn, &ChangeOrigin::default()).unwrap();
    assert_eq!(project.describe_tree(), before + "target/huge.o 644 \"ignored\\n\"\n", "undone");
    assert_eq!(project.observe_command("undo"), "", "what the engine does itself is not found");
    project.session.redo(&ChangeSelection::default(), &ChangeOrigin::default()).unwrap();
    assert_eq!(project.describe_tree(), after, "redone");
}

#[test]
fn command_changes_are_found_by_a_scan_and_undone() {
    check_command(
        WatchMode::Off,
        expect![[r#"
            /a.txt changed by make
            /gone.txt deleted by make
            /new-name.txt created by make
            /old-name.txt deleted by make
            /out/new.txt created by make
            /run.sh has another mode by make
        "#]],
    );
}

#[test]
fn command_changes_are_found_by_a_watch_and_undone() {
    check_command(
        WatchMode::IfPossible,
        expect![[r#"
            /a.txt changed by make
            /gone.txt deleted by make
            /new-name.txt created by make
            /old-name.txt deleted by make
            /out/new.txt created by make
            /run.sh has another mode by make
        "#]],
    );
}

/// A command's changes cannot hide behind ignore rules that it wrote itself, and all of them can be undone.
#[test]
fn rules_that_a_command_writes_do_not_hide_what_it_did() {
    for watching in [WatchMode::Off, WatchMode::IfPossible] {
        let project = ObservedProject::new(
            &[(".gitignore", "target\n"), ("target/old", "mine\n"), ("a", "a\n")],
            watching,
        );
        write(&project.root.join(".gitignore"), "target\nhidden\n");
        write(&project.root.join("hidden/by-itself"), "here\n");
        write(&project.root.join("new/.gitignore"), "*\n");
        write(&project.root.join("new/too"), "here\n");
        write(&project.root.join("target/new"), "built\n");
        expect![[r#"
            /.gitignore changed by make
            /hidden/by-itself created by make
            /new/.gitignore created by make
            /new/too created by make
        "#]]
        .assert_eq(&project.observe_command("make"));
        project.workspace.undo(&ChangeSelection::turn("s1", 1)).unwrap();
        let left = project.describe_tree();
        assert!(!left.contains("here") && left.contains("built") && left.contains("mine"), "{left}");
    }
}

/// Files that other programs keep in a project, changed outside the engine in every way, are neither listed nor undone.
fn check_foreign(watching: WatchMode) {
    let project = ObservedProject::new(
        &[
            ("a.txt", "a\n"),
            ("old.txt~", "backup\n"),
            (".agent-shell/transcripts/1.md", "hello\n"),
            (".fast-agent/agent-cards/card.md", "card\n"),
        ],
        watching,
    );
    // As left by fast-agent 0.10.46, agent-shell, Vim and Emacs.
    write(&project.root.join(".fast-agent/sessions/2611171007/session.json"), "{}\n");
    write(&project.root.join(".fast-agent/agent-cards/card.md"), "another card\n");
    write(&project.root.join(".agent-shell/transcripts/1.md"), "hello, again\n");
    for name in [".a.txt.swp", "4913", "a.txt~", ".#a.txt", "#a.txt#", "notes/plan.orig"] {
        write(&project.root.join(name), "theirs\n");
    }
    fs::remove_file(project.root.join("old.txt~")).unwrap();
    write(&project.root.join("a.txt"), "changed\n");
    expect![[r#"
        /.fast-agent/agent-cards/card.md changed by sed
        /a.txt changed by sed
    "#]]
    .assert_eq(&project.observe_command("sed"));
    // A write through the engine is recorded regardless of the file's name; a later change outside the engine is not.
    project.session.write(&project.path("b.txt~"), "mine\n", &ChangeOrigin::default()).unwrap();
    write(&project.root.join("4913"), "theirs, again\n");
    assert_eq!(project.observe_command("sed again"), "");
    project
        .workspace
        .undo(&ChangeSelection { owner: ChangeOwner::Anyone, ..ChangeSelection::default() })
        .unwrap();
    expect![[r##"
        #a.txt# 644 "theirs\n"
        .#a.txt 644 "theirs\n"
        .a.txt.swp 644 "theirs\n"
        .agent-shell/transcripts/1.md 644 "hello, again\n"
        .fast-agent/agent-cards/card.md 644 "card\n"
        .fast-agent/sessions/2611171007/session.json 644 "{}\n"
        4913 644 "theirs, again\n"
        a.txt 644 "a\n"
        a.txt~ 644 "theirs\n"
        notes/plan.orig 644 "theirs\n"
    "##]]
    .assert_eq(&project.describe_tree());
}

#[test]
fn other_programs_files_are_not_found_by_a_scan() {
    check_foreign(WatchMode::Off);
}

#[test]
fn other_programs_files_are_not_found_by_a_watch() {
    check_foreign(WatchMode::IfPossible);
}

#[test]
fn the_agents_own_writes_are_not_found() {
    let project = ObservedProject::new(&[("a.txt", "one\n")], WatchMode::Off);
    let origin = project.session.origin(Some(1), None);
    project.session.read(&project.path("a.txt"), LineWindow::default()).unwrap();
    project.session.write(&project.path("a.txt"), "two\n", &origin).unwrap();
    project.session.write(&project.path("b/c.txt"), "new\n", &origin).unwrap();
    delete_file(&project.session, &project.path("a.txt"), &origin).unwrap();
    assert_eq!(project.observe_command("make"), "");
}

/// Some agents write to the disk and then have the client write the same text.
#[test]
fn an_unseen_change_is_attributed_to_an_identical_write() {
    for watching in [WatchMode::Off, WatchMode::IfPossible] {
        let files =
            &[("a.txt", "one\n"), ("c.txt", "one\n"), (".gitignore", "target\n"), ("target/t", "one\n")];
        let project = ObservedProject::new(files, watching);
        let origin = project.session.origin(Some(1), Some("c1"));
        let mut told = String::new();
        for name in ["a.txt", "new/b.txt", "c.txt", "target/t", ".gitignore"] {
            write(&project.root.join(name), "two\n");
            project.session.read(&project.path(name), LineWindow::default()).unwrap();
            let text = if name == "c.txt" { "three\n" } else { "two\n" };
            let written = project.session.write(&project.path(name), text, &origin).unwrap();
            writeln!(told, "{name} {:?}", written.verdict).unwrap();
            let again = project.session.write(&project.path(name), text, &origin).unwrap();
            assert_eq!((again.change, again.verdict), (None, None), "{name}: there is nothing left to write");
        }
        for changed in project.workspace.changes(&ChangeSelection::default()).unwrap() {
            let change = changed.change;
            let path = change.path.strip_prefix(project.root.to_str().unwrap()).unwrap().to_owned();
            writeln!(told, "{path} {:?} by {:?}", change.source, change.origin.call).unwrap();
        }
        told += &project.observe_command("make");
        expect![[r#"
            a.txt Some(Replaced)
            new/b.txt None
            c.txt Some(Replaced)
            target/t None
            .gitignore None
            /a.txt Written by Some("c1")
            /c.txt Written by Some("c1")
            /.gitignore changed by make
            /new/b.txt created by make
        "#]]
        .assert_eq(&told);
        project.workspace.undo(&ChangeSelection::turn("s1", 1)).unwrap();
        told = project.describe_tree();
        expect![[r#"
            .gitignore 644 "target\n"
            a.txt 644 "one\n"
            c.txt 644 "two\n"
            target/t 644 "two\n"
        "#]]
        .assert_eq(&told);
    }
}

/// Examining the one file that an agent writes does not cover others: files that a command created long before, or hid
/// by its own ignore rules, are found by the next scan.
#[test]
fn what_a_command_created_before_an_agents_write_is_found_after_it() {
    for watching in [WatchMode::Off, WatchMode::IfPossible] {
        let project = ObservedProject::new(&[("a.txt", "one\n"), ("d/c.txt", "one\n")], watching);
        write(&project.root.join("new/b.txt"), "new\n");
        write(&project.root.join("d/.gitignore"), "hidden\n");
        write(&project.root.join("d/hidden"), "new\n");
        file_clock::wait_past(RACY_WINDOW);
        let origin = project.session.origin(Some(1), Some("c1"));
        for name in ["a.txt", "d/c.txt"] {
            write(&project.root.join(name), "two\n");
            project.session.write(&project.path(name), "two\n", &origin).unwrap().change.unwrap();
        }
        expect![[r#"
            /d/.gitignore created by make
            /d/hidden created by make
            /new/b.txt created by make
        "#]]
        .assert_eq(&project.observe_command("make"));
        project.workspace.undo(&ChangeSelection::turn("s1", 1)).unwrap();
        expect![[r#"
            a.txt 644 "one\n"
            d/c.txt 644 "one\n"
        "#]]
        .assert_eq(&project.describe_tree());
    }
}

#[test]
fn a_directory_that_a_command_moved_is_found_and_moved_back() {
    for watching in [WatchMode::Off, WatchMode::IfPossible] {
        let project = ObservedProject::new(&[("src/a.txt", "one\n"), ("src/deep/b.txt", "two\n")], watching);
        let before = project.describe_tree();
        file_clock::wait_past(RACY_WINDOW);
        assert_eq!(project.observe_command("nothing"), "");
        fs::rename(project.root.join("src"), project.root.join("lib")).unwrap();
        expect![[r#"
            /lib/a.txt created by mv
            /lib/deep/b.txt created by mv
            /src/a.txt deleted by mv
            /src/deep/b.txt deleted by mv
        "#]]
        .assert_eq(&project.observe_command("mv"));
        project.workspace.undo(&ChangeSelection::turn("s1", 1)).unwrap();
        assert_eq!(project.describe_tree(), before);
    }
}

/// Undoing that would delete a file that was the user's all along.
#[test]
fn an_identical_write_to_an_unscanned_file_is_no_change() {
    let project = ObservedProject::new(&[], WatchMode::Off);
    let beside = project.root.with_file_name("beside");
    write(&beside.join("mine"), "mine\n");
    let own = RootSpec::writable(project.root.to_str().unwrap());
    let roots = Roots::open(&own, &[RootSpec::writable(beside.to_str().unwrap())]).unwrap();
    let session = project.workspace.session_with_roots("s2", roots);
    let path = beside.join("mine").to_str().unwrap().to_owned();
    let written = session.write(&path, "mine\n", &session.origin(Some(1), None)).unwrap();
    assert_eq!(written.change, None);
    assert_eq!(project.workspace.changes(&ChangeSelection::default()).unwrap(), []);
}

#[test]
fn writes_of_another_bowline_are_explained_by_the_journal() {
    let project = ObservedProject::new(&[("a.txt", "one\n"), ("b.txt", "one\n")], WatchMode::Off);
    let state = project.root.with_file_name("state");
    let other = open_workspace(&project.root, &state, WatchMode::Off).session("s2");
    other.write(&project.path("a.txt"), "two\n", &other.origin(Some(1), None)).unwrap();
    fs::write(project.root.join("b.txt"), "two\n").unwrap();
    expect![[r#"
        /b.txt changed by make
    "#]]
    .assert_eq(&project.observe_command("make"));
}

#[test]
fn changes_while_not_observing_are_learned_but_not_recorded() {
    let project = ObservedProject::new(&[("a.txt", "one\n")], WatchMode::Off);
    let state = project.root.with_file_name("state");
    let (root, path) = (project.root.clone(), project.path("a.txt"));
    drop((project.workspace, project.session));
    fs::write(&path, "the user's\n").unwrap();
    let workspace = open_workspace(&root, &state, WatchMode::Off);
    assert_eq!(workspace.changes(&ChangeSelection::default()).unwrap(), []);
    fs::write(&path, "the command's\n").unwrap();
    let session = workspace.session("s1");
    workspace.observe(&session.origin(Some(1), None), &mut continue_scan).unwrap();
    session.undo(&ChangeSelection::default(), &ChangeOrigin::default()).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "the user's\n");
}

#[test]
fn secret_files_are_never_copied() {
    let project = ObservedProject::new(&[(".env", "KEY=1\n"), ("a.txt", "one\n")], WatchMode::Off);
    fs::write(project.root.join(".env"), "KEY=2\n").unwrap();
    write(&project.root.join("sub/.env"), "KEY=3\n");
    fs::write(project.root.join("a.txt"), "two\n").unwrap();
    expect![[r#"
        /.env changed by make
        /a.txt changed by make
        /sub/.env created by make
    "#]]
    .assert_eq(&project.observe_command("make"));
    let state = project.root.parent().unwrap().join("state");
    let (journal, _) = Journal::open(&state, Retention::default(), Timestamp(0)).unwrap();
    let is_kept = |text: &str| journal.has_content(&ContentHash::digest(text.as_bytes())).unwrap();
    let kept: Vec<bool> = ["one\n", "two\n", "KEY=1\n", "KEY=2\n", "KEY=3\n"].map(is_kept).into();
    assert_eq!(kept, [true, true, false, false, false], "neither at the first look nor after a command");
    let secret = ChangeSelection { path: Some(project.path(".env")), ..ChangeSelection::default() };
    let undone = project.session.undo(&secret, &ChangeOrigin::default()).unwrap_err();
    let shown = undone.to_string().replace(project.root.to_str().unwrap(), "$ROOT");
    expect!["cannot take back change 1 of $ROOT/.env: its text is not kept"].assert_eq(&shown);
}

#[test]
fn a_scan_that_is_stopped_says_so_and_can_be_taken_up_again() {
    for watching in [WatchMode::Off, WatchMode::IfPossible] {
        let project = ObservedProject::new(&[], watching);
        for at in 0..1200 {
            fs::write(project.root.join(format!("{at}.txt")), "x").unwrap();
        }
        let stopped = project
            .workspace
            .observe(&project.command_origin("make"), &mut |_| ControlFlow::Break(()))
            .unwrap();
        assert!(stopped.report.stopped && stopped.changes.len() < 1200);
        let rest = project.workspace.observe(&project.command_origin("make"), &mut continue_scan).unwrap();
        assert_eq!(stopped.changes.len() + rest.changes.len(), 1200, "{watching:?}");
    }
}

/// Files that the first scan did not reach existed before any command: undo must not delete them.
#[test]
fn files_missed_by_a_stopped_first_scan_are_not_reported_as_created() {
    let project = ObservedProject::new(&[], WatchMode::Off);
    for at in 0..1200 {
        fs::write(project.root.join(format!("{at}.txt")), "x").unwrap();
    }
    for watching in [WatchMode::Off, WatchMode::IfPossible] {
        let state = project.root.with_file_name(format!("{watching:?}"));
        let roots = Roots::open(&RootSpec::writable(project.root.to_str().unwrap()), &[]).unwrap();
        let workspace = Workspace::open(roots, &state, WorkspaceOptions::default()).unwrap().workspace;
        let options = ObserverOptions::default();
        let started = workspace.start_observing(options, watching, &mut |_| ControlFlow::Break(())).unwrap();
        assert!(started.report.stopped);
        let look = || workspace.observe(&ChangeOrigin::default(), &mut continue_scan).unwrap().changes.len();
        assert_eq!(look(), 0, "{watching:?}");
        let text = format!("{watching:?}");
        (0..1200).for_each(|at| fs::write(project.root.join(format!("{at}.txt")), &text).unwrap());
        assert_eq!(look(), 1200, "{watching:?}");
        let changes = workspace.changes(&ChangeSelection::default()).unwrap();
        assert!(changes.iter().all(|changed| changed.change.before.is_some()), "{watching:?}");
    }
}

#[test]
fn unsaved_text_is_listed_and_searched() {
    let project = ObservedProject::new(&[("a.txt", "needle\n"), ("b/c.txt", "needle\n")], WatchMode::Off);
    for (path, text) in [("a.txt", "hay\n"), ("b/new.txt", "a needle, typed\n")] {
        let opened = project.workspace.open_document(&project.path(path)).unwrap();
        project.workspace.change_document(&opened.path, text.to_owned(), opened.revision).unwrap();
    }
    let mut shown = String::new();
    let list = ListOptions { depth: 2, ..ListOptions::default() };
    for entry in project.session.list(&project.path(""), &list).unwrap().entries {
        let size = if entry.kind == EntryKind::File { entry.size } else { 0 };
        writeln!(shown, "{:?} {} {size}", entry.kind, entry.path).unwrap();
    }
    for found in project.session.search(&SearchQuery::literal("needle"), None).unwrap().matches {
        let path = found.path.strip_prefix(project.root.to_str().unwrap()).unwrap();
        writeln!(shown, "{path}:{}: {}", found.line, found.text).unwrap();
    }
    let below = project.path("b");
    let count = project.session.search(&SearchQuery::literal("needle"), Some(&below)).unwrap().matches.len();
    writeln!(shown, "{count} below b").unwrap();
    expect![[r#"
        File a.txt 4
        Directory b 0
        File b/c.txt 7
        File b/new.txt 16
        /b/c.txt:1: needle
        /b/new.txt:1: a needle, typed
        2 below b
    "#]]
    .assert_eq(&shown);
}
