//! What commands do to a project's files beside the engine: found, told whose it was, and taken back.

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

use bowline_state::changes::{ContentHash, Moment, Origin, Source};
use bowline_state::foreign_files::ForeignFiles;
use bowline_state::lines::Window;
use bowline_state::observation::RACY_WINDOW_NS;
use bowline_state::undo::{Selection, Who};
use bowline_workspace::journal::{Journal, Retention};
use bowline_workspace::listing::ListOptions;
use bowline_workspace::observer::ObserverOptions;
use bowline_workspace::roots::{RootSpec, Roots};
use bowline_workspace::search::SearchQuery;
use bowline_workspace::walker::Kind;
use bowline_workspace::workspace::{Session, Settings, Watching, Workspace};
use expect_test::{Expect, expect};
use tempfile::TempDir;
use test_support::file_clock;

/// A file that changed so long before a look did not change after it.
const RACY_WINDOW: Duration = Duration::from_nanos(RACY_WINDOW_NS.cast_unsigned());

/// A project that is observed.
struct Project {
    root: PathBuf,
    workspace: Workspace,
    session: Session,
    _scratch: TempDir,
}

impl Project {
    fn new(files: &[(&str, &str)], watching: Watching) -> Self {
        let scratch = TempDir::new().unwrap();
        let root = scratch.path().canonicalize().unwrap().join("project");
        fs::create_dir(&root).unwrap();
        for (path, text) in files {
            write(&root.join(path), text);
        }
        let workspace = open(&root, &scratch.path().join("state"), watching);
        let session = workspace.session("s1");
        Self { root, workspace, session, _scratch: scratch }
    }

    fn path(&self, below: &str) -> String {
        self.root.join(below).to_str().unwrap().to_owned()
    }

    fn command(&self, line: &str) -> Origin {
        Origin { command: Some(line.to_owned()), ..self.session.origin(Some(1), Some("c1")) }
    }

    /// Looks at the disk after a command, and says what was found.
    fn found_after(&self, line: &str) -> String {
        let observed = self.workspace.observe(&self.command(line), &mut go_on).unwrap();
        let mut lines = Vec::new();
        for changed in self.workspace.changes(&Selection::default()).unwrap() {
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
            assert_eq!(change.source, Source::Observed);
            let by = change.origin.command.unwrap_or_default();
            let known = change.before.is_none_or(|before| before.hash != ContentHash::UNKNOWN);
            let known = if known { "" } else { ", what was there is not known" };
            let path = change.path.strip_prefix(self.root.to_str().unwrap()).unwrap().to_owned();
            lines.push(format!("{path} {what} by {by}{known}\n"));
        }
        for (from, to) in observed.renamed {
            let name = |path: String| path.strip_prefix(self.root.to_str().unwrap()).unwrap().to_owned();
            lines.push(format!("{} is {} now\n", name(from), name(to)));
        }
        // A scan takes the files as the system gives them.
        lines.sort();
        lines.concat()
    }

    fn tree(&self) -> String {
        let mut text = String::new();
        show(&self.root, &self.root, &mut text);
        text
    }
}

fn open(root: &Path, state: &Path, watching: Watching) -> Workspace {
    let roots = Roots::open(&RootSpec::writable(root.to_str().unwrap()), &[]).unwrap();
    let foreign_files = ForeignFiles::with(&["*.orig"]).unwrap();
    let settings = Settings { foreign_files, ..Settings::default() };
    let workspace = Workspace::open(roots, state, settings).unwrap().workspace;
    let started = workspace.start_observing(ObserverOptions::default(), watching, &mut go_on).unwrap();
    assert!(started.not_watched.is_none(), "{:?}", started.not_watched);
    workspace
}

fn go_on(_: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn show(root: &Path, directory: &Path, text: &mut String) {
    let mut entries: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            show(root, &path, text);
        } else {
            let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            let name = path.strip_prefix(root).unwrap().display();
            writeln!(text, "{name} {mode:o} {:?}", fs::read_to_string(&path).unwrap()).unwrap();
        }
    }
}

/// What `make` in this project does.
fn run_command(project: &Project) {
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

fn check_command(watching: Watching, found: Expect) {
    let project = Project::new(FILES, watching);
    fs::set_permissions(project.root.join("gone.txt"), PermissionsExt::from_mode(0o640)).unwrap();
    project.found_after("chmod 640 gone.txt");
    let before = project.tree();
    assert_eq!(project.found_after("nothing"), "");
    run_command(&project);
    let after = project.tree();
    found.assert_eq(&project.found_after("make"));
    assert_eq!(project.found_after("nothing more"), "");

    let turn = Selection {
        who: Who::Turn { session: "s1".to_owned(), turn: 1 },
        last: Some(6),
        ..Selection::default()
    };
    project.session.undo(&turn, &Origin::default()).unwrap();
    assert_eq!(project.tree(), before + "target/huge.o 644 \"ignored\\n\"\n", "undone");
    assert_eq!(project.found_after("undo"), "", "what the engine does itself is not found");
    project.session.redo(&Selection::default(), &Origin::default()).unwrap();
    assert_eq!(project.tree(), after, "redone");
}

#[test]
fn what_a_command_did_is_found_by_a_scan_and_undone() {
    check_command(
        Watching::No,
        expect![[r#"
            /a.txt changed by make
            /gone.txt deleted by make
            /new-name.txt created by make
            /old-name.txt deleted by make
            /old-name.txt is /new-name.txt now
            /out/new.txt created by make
            /run.sh has another mode by make
        "#]],
    );
}

#[test]
fn what_a_command_did_is_found_by_a_watch_and_undone() {
    check_command(
        Watching::IfPossible,
        expect![[r#"
            /a.txt changed by make
            /gone.txt deleted by make
            /new-name.txt created by make
            /old-name.txt deleted by make
            /old-name.txt is /new-name.txt now
            /out/new.txt created by make
            /run.sh has another mode by make
        "#]],
    );
}

/// Nothing that a command did hides behind rules that it wrote itself, and all of it can be taken back.
#[test]
fn rules_that_a_command_writes_do_not_hide_what_it_did() {
    for watching in [Watching::No, Watching::IfPossible] {
        let project =
            Project::new(&[(".gitignore", "target\n"), ("target/old", "mine\n"), ("a", "a\n")], watching);
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
        .assert_eq(&project.found_after("make"));
        project.workspace.undo(&Selection::turn("s1", 1)).unwrap();
        let left = project.tree();
        assert!(!left.contains("here") && left.contains("built") && left.contains("mine"), "{left}");
    }
}

/// Files that other programs keep in a project, changed beside the engine in every way, are neither listed nor undone.
fn check_foreign(watching: Watching) {
    let project = Project::new(
        &[
            ("a.txt", "a\n"),
            ("old.txt~", "backup\n"),
            (".agent-shell/transcripts/1.md", "hello\n"),
            (".fast-agent/agent-cards/card.md", "card\n"),
        ],
        watching,
    );
    // As fast-agent 0.10.46, agent-shell, Vim and Emacs leave them.
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
    .assert_eq(&project.found_after("sed"));
    // What goes through the engine is recorded, whatever it is called, and a later change beside it is not.
    project.session.write(&project.path("b.txt~"), "mine\n", &Origin::default()).unwrap();
    write(&project.root.join("4913"), "theirs, again\n");
    assert_eq!(project.found_after("sed again"), "");
    project.workspace.undo(&Selection { who: Who::Anyone, ..Selection::default() }).unwrap();
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
    .assert_eq(&project.tree());
}

#[test]
fn other_programs_files_are_not_found_by_a_scan() {
    check_foreign(Watching::No);
}

#[test]
fn other_programs_files_are_not_found_by_a_watch() {
    check_foreign(Watching::IfPossible);
}

#[test]
fn the_agents_own_writes_are_not_found() {
    let project = Project::new(&[("a.txt", "one\n")], Watching::No);
    let origin = project.session.origin(Some(1), None);
    project.session.read(&project.path("a.txt"), Window::default()).unwrap();
    project.session.write(&project.path("a.txt"), "two\n", &origin).unwrap();
    project.session.write(&project.path("b/c.txt"), "new\n", &origin).unwrap();
    project.session.delete(&project.path("a.txt"), &origin).unwrap();
    assert_eq!(project.found_after("make"), "");
}

/// Some agents write to the disk and then have the client write the same.
#[test]
fn what_lies_on_disk_unseen_is_the_write_of_who_writes_the_same() {
    for watching in [Watching::No, Watching::IfPossible] {
        let files =
            &[("a.txt", "one\n"), ("c.txt", "one\n"), (".gitignore", "target\n"), ("target/t", "one\n")];
        let project = Project::new(files, watching);
        let origin = project.session.origin(Some(1), Some("c1"));
        let mut told = String::new();
        for name in ["a.txt", "new/b.txt", "c.txt", "target/t", ".gitignore"] {
            write(&project.root.join(name), "two\n");
            project.session.read(&project.path(name), Window::default()).unwrap();
            let text = if name == "c.txt" { "three\n" } else { "two\n" };
            let written = project.session.write(&project.path(name), text, &origin).unwrap();
            writeln!(told, "{name} {:?}", written.verdict).unwrap();
            let again = project.session.write(&project.path(name), text, &origin).unwrap();
            assert_eq!((again.change, again.verdict), (None, None), "{name}: there is nothing left to write");
        }
        for changed in project.workspace.changes(&Selection::default()).unwrap() {
            let change = changed.change;
            let path = change.path.strip_prefix(project.root.to_str().unwrap()).unwrap().to_owned();
            writeln!(told, "{path} {:?} by {:?}", change.source, change.origin.call).unwrap();
        }
        told += &project.found_after("make");
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
        project.workspace.undo(&Selection::turn("s1", 1)).unwrap();
        told = project.tree();
        expect![[r#"
            .gitignore 644 "target\n"
            a.txt 644 "one\n"
            c.txt 644 "two\n"
            target/t 644 "two\n"
        "#]]
        .assert_eq(&told);
    }
}

/// A look at the one file that an agent writes says nothing of the others: what a command created long before it, or hid
/// by rules of its own, is found by the look that follows.
#[test]
fn what_a_command_created_before_an_agents_write_is_found_after_it() {
    for watching in [Watching::No, Watching::IfPossible] {
        let project = Project::new(&[("a.txt", "one\n"), ("d/c.txt", "one\n")], watching);
        write(&project.root.join("new/b.txt"), "new\n");
        write(&project.root.join("d/.gitignore"), "hidden\n");
        write(&project.root.join("d/hidden"), "new\n");
        file_clock::pass(RACY_WINDOW);
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
        .assert_eq(&project.found_after("make"));
        project.workspace.undo(&Selection::turn("s1", 1)).unwrap();
        expect![[r#"
            a.txt 644 "one\n"
            d/c.txt 644 "one\n"
        "#]]
        .assert_eq(&project.tree());
    }
}

#[test]
fn a_directory_that_a_command_moved_is_found_and_moved_back() {
    for watching in [Watching::No, Watching::IfPossible] {
        let project = Project::new(&[("src/a.txt", "one\n"), ("src/deep/b.txt", "two\n")], watching);
        let before = project.tree();
        file_clock::pass(RACY_WINDOW);
        assert_eq!(project.found_after("nothing"), "");
        fs::rename(project.root.join("src"), project.root.join("lib")).unwrap();
        expect![[r#"
            /lib/a.txt created by mv
            /lib/deep/b.txt created by mv
            /src/a.txt deleted by mv
            /src/a.txt is /lib/a.txt now
            /src/deep/b.txt deleted by mv
            /src/deep/b.txt is /lib/deep/b.txt now
        "#]]
        .assert_eq(&project.found_after("mv"));
        project.workspace.undo(&Selection::turn("s1", 1)).unwrap();
        assert_eq!(project.tree(), before);
    }
}

/// To take that back would be to delete a file that was the user's all along.
#[test]
fn what_was_never_looked_at_is_not_made_by_who_writes_the_same() {
    let project = Project::new(&[], Watching::No);
    let beside = project.root.with_file_name("beside");
    write(&beside.join("mine"), "mine\n");
    let own = RootSpec::writable(project.root.to_str().unwrap());
    let roots = Roots::open(&own, &[RootSpec::writable(beside.to_str().unwrap())]).unwrap();
    let session = project.workspace.session_within("s2", roots);
    let path = beside.join("mine").to_str().unwrap().to_owned();
    let written = session.write(&path, "mine\n", &session.origin(Some(1), None)).unwrap();
    assert_eq!(written.change, None);
    assert_eq!(project.workspace.changes(&Selection::default()).unwrap(), []);
}

#[test]
fn what_another_bowline_wrote_is_explained_by_the_journal() {
    let project = Project::new(&[("a.txt", "one\n"), ("b.txt", "one\n")], Watching::No);
    let state = project.root.with_file_name("state");
    let other = open(&project.root, &state, Watching::No).session("s2");
    other.write(&project.path("a.txt"), "two\n", &other.origin(Some(1), None)).unwrap();
    fs::write(project.root.join("b.txt"), "two\n").unwrap();
    expect![[r#"
        /b.txt changed by make
    "#]]
    .assert_eq(&project.found_after("make"));
}

#[test]
fn what_changed_while_nobody_looked_is_learnt_and_not_recorded() {
    let project = Project::new(&[("a.txt", "one\n")], Watching::No);
    let state = project.root.with_file_name("state");
    let (root, path) = (project.root.clone(), project.path("a.txt"));
    drop((project.workspace, project.session));
    fs::write(&path, "the user's\n").unwrap();
    let workspace = open(&root, &state, Watching::No);
    assert_eq!(workspace.changes(&Selection::default()).unwrap(), []);
    fs::write(&path, "the command's\n").unwrap();
    let session = workspace.session("s1");
    workspace.observe(&session.origin(Some(1), None), &mut go_on).unwrap();
    session.undo(&Selection::default(), &Origin::default()).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "the user's\n");
}

#[test]
fn of_secrets_no_copy_is_made() {
    let project = Project::new(&[(".env", "KEY=1\n"), ("a.txt", "one\n")], Watching::No);
    fs::write(project.root.join(".env"), "KEY=2\n").unwrap();
    write(&project.root.join("sub/.env"), "KEY=3\n");
    fs::write(project.root.join("a.txt"), "two\n").unwrap();
    expect![[r#"
        /.env changed by make
        /a.txt changed by make
        /sub/.env created by make
    "#]]
    .assert_eq(&project.found_after("make"));
    let state = project.root.parent().unwrap().join("state");
    let (journal, _) = Journal::open(&state, Retention::default(), Moment(0)).unwrap();
    let is_kept = |text: &str| journal.has(&ContentHash::of(text.as_bytes())).unwrap();
    let kept: Vec<bool> = ["one\n", "two\n", "KEY=1\n", "KEY=2\n", "KEY=3\n"].map(is_kept).into();
    assert_eq!(kept, [true, true, false, false, false], "neither at the first look nor after a command");
    let secret = Selection { path: Some(project.path(".env")), ..Selection::default() };
    let undone = project.session.undo(&secret, &Origin::default()).unwrap_err();
    let shown = undone.to_string().replace(project.root.to_str().unwrap(), "$ROOT");
    expect!["cannot take back change 1 of $ROOT/.env: its text is not kept"].assert_eq(&shown);
}

#[test]
fn a_scan_that_is_stopped_says_so_and_can_be_taken_up_again() {
    for watching in [Watching::No, Watching::IfPossible] {
        let project = Project::new(&[], watching);
        for at in 0..1200 {
            fs::write(project.root.join(format!("{at}.txt")), "x").unwrap();
        }
        let stopped =
            project.workspace.observe(&project.command("make"), &mut |_| ControlFlow::Break(())).unwrap();
        assert!(stopped.report.stopped && stopped.changes.len() < 1200);
        let rest = project.workspace.observe(&project.command("make"), &mut go_on).unwrap();
        assert_eq!(stopped.changes.len() + rest.changes.len(), 1200, "{watching:?}");
    }
}

/// Files that the first scan did not come to were there before any command: undo may not delete them.
#[test]
fn what_a_stopped_first_scan_did_not_learn_is_not_created_by_a_later_change() {
    let project = Project::new(&[], Watching::No);
    for at in 0..1200 {
        fs::write(project.root.join(format!("{at}.txt")), "x").unwrap();
    }
    for watching in [Watching::No, Watching::IfPossible] {
        let state = project.root.with_file_name(format!("{watching:?}"));
        let roots = Roots::open(&RootSpec::writable(project.root.to_str().unwrap()), &[]).unwrap();
        let workspace = Workspace::open(roots, &state, Settings::default()).unwrap().workspace;
        let options = ObserverOptions::default();
        let started = workspace.start_observing(options, watching, &mut |_| ControlFlow::Break(())).unwrap();
        assert!(started.report.stopped);
        let look = || workspace.observe(&Origin::default(), &mut go_on).unwrap().changes.len();
        assert_eq!(look(), 0, "{watching:?}");
        let text = format!("{watching:?}");
        (0..1200).for_each(|at| fs::write(project.root.join(format!("{at}.txt")), &text).unwrap());
        assert_eq!(look(), 1200, "{watching:?}");
        let changes = workspace.changes(&Selection::default()).unwrap();
        assert!(changes.iter().all(|changed| changed.change.before.is_some()), "{watching:?}");
    }
}

#[test]
fn unsaved_text_is_listed_and_searched() {
    let project = Project::new(&[("a.txt", "needle\n"), ("b/c.txt", "needle\n")], Watching::No);
    for (path, text) in [("a.txt", "hay\n"), ("b/new.txt", "a needle, typed\n")] {
        let opened = project.workspace.open_document(&project.path(path)).unwrap();
        project.workspace.change_document(&opened.path, text.to_owned(), opened.revision).unwrap();
    }
    let mut shown = String::new();
    let list = ListOptions { depth: 2, ..ListOptions::default() };
    for entry in project.session.list(&project.path(""), &list).unwrap().entries {
        let size = if entry.kind == Kind::File { entry.size } else { 0 };
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
