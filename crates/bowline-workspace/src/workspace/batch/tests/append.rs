//! Appending to files in place. Here every file is large enough for it.

use std::io::{self, Write as _};
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Mutex};

use bowline_text::hash::ContentHash;
use proptest::prelude::*;

use super::*;
use crate::observer::ObserverOptions;
use crate::workspace::WatchMode;

fn in_place() -> WorkspaceOptions {
    WorkspaceOptions { append_in_place_bytes: 1, ..WorkspaceOptions::default() }
}

fn check_in_place(script: &str, expected: Expect) {
    expected.assert_eq(&run(in_place(), script));
}

impl BatchProject {
    fn append(&mut self, name: &str, data: &str) {
        let operation = json!([{"op": "write", "path": name, "data": data, "mode": "append"}]);
        self.run_step(&format!("batch {operation}")).unwrap();
    }
}

#[test]
fn an_append_is_undone_and_redone_at_the_end() {
    check_in_place(
        r#"
            disk ~/log "one\n"
            preview [{"op":"write","path":"~/log","data":"two\n","mode":"append"}]
            agreed [{"op":"write","path":"~/log","data":"two\n","mode":"append"}]
            batch [{"op":"write","path":"~/log","data":"AP8=","encoding":"base64","mode":"append"}]
            undo
            tree
            batch [{"op":"write","path":"~/log","data":"three\n","mode":"append"}]
            undo
            undo
            redo
            tree
            changes
        "#,
        expect![[r#"
            0 ~/log: 4 bytes, added None -> 8 bytes, added Some("two\n")
            write: 1 changes, not text
            write: 1 changes, not text
            undo: 1 files
            ~/log "one\ntwo\n"
            write: 1 changes, not text
            undo: 1 files
            ! there is nothing to undo here
            redo: 1 files
            ~/log "one\ntwo\nthree\n"
            batch 1 changes ~/log
            batch 2 changes ~/log, not in effect
            user changes ~/log
            batch 3 changes ~/log
            user changes ~/log, not in effect
            user changes ~/log
        "#]],
    );
}

#[test]
fn an_append_is_undone_beneath_later_text() {
    check_in_place(
        r#"
            disk ~/log "one\n"
            batch [{"op":"write","path":"~/log","data":"agent\n","mode":"append"}]
            disk ~/log "one\nagent\nuser\n"
            undo
            tree
            redo
            tree
            disk ~/log "ONE\n"
            batch [{"op":"write","path":"~/log","data":"agent\n","mode":"append"}]
            disk ~/log "1\nagent\n"
            undo
            tree
            redo
            tree
            disk ~/log "1\nagent\nuser\n"
            undo
            disk ~/log "ONE\nAGENT\n"
            undo
            tree
            rm ~/log
            undo
        "#,
        expect![[r#"
            write: 1 changes, not text
            undo: 1 files
            ~/log "one\nuser\n"
            redo: 1 files
            ~/log "one\nagent\nuser\n"
            write: 1 changes, not text
            undo: 1 files
            ~/log "1\n"
            redo: 1 files
            ~/log "1\nagent\n"
            ! cannot take back change 4 of ~/log: it appended to the file, whose other text was changed since: remove what it appended by hand
            ! cannot take back change 4 of ~/log: its lines were changed since: conflicting changes in 1 place, first at line 2
            ~/log "ONE\nAGENT\n"
            ! cannot take back change 4 of ~/log: the file was deleted since, restore it first
        "#]],
    );
}

#[test]
fn what_cannot_be_appended_in_place_is_written_anew() {
    check_in_place(
        r#"
            bytes ~/latin 65 e4 0a
            batch [{"op":"write","path":"~/latin","data":"ö\n","mode":"append"}]
            bytes ~/utf16 ff fe 65 00 0a 00
            batch [{"op":"write","path":"~/utf16","data":"ö\n","mode":"append"}]
            batch [{"op":"write","path":"~/utf16","data":"eAA=","encoding":"base64","mode":"append"}]
            disk ~/crlf "one\r\n"
            batch [{"op":"write","path":"~/crlf","data":"two\n","mode":"append"}]
            disk ~/marked "\ufeffone\n"
            batch [{"op":"write","path":"~/marked","data":"two\n","mode":"append"}]
            disk ~/open "one\n"
            open ~/open
            type ~/open "typed\none\n"
            batch [{"op":"write","path":"~/open","data":"two\n","mode":"append"}]
            events
            disk ~/.gitignore "*.o\n"
            batch [{"op":"write","path":"~/.gitignore","data":"*.so\n","mode":"append"}]
            disk ~/suid "x\n"
            mode ~/suid 4755
            batch [{"op":"write","path":"~/suid","data":"y\n","mode":"append"}]
            batch [{"op":"write","path":"~/new","data":"new\n","mode":"append"}]
            batch [{"op":"write","path":"~/new","data":"","mode":"append"}]
            disk ~/dir/file "x"
            batch [{"op":"write","path":"~/dir","data":"x","mode":"append"}]
            disk ~/once "x"
            hardlink ~/twice ~/once
            batch [{"op":"write","path":"~/once","data":"x","mode":"append"}]
            disk ~/fixed "x"
            mode ~/fixed 444
            batch [{"op":"write","path":"~/fixed","data":"x","mode":"append"}]
            batch [{"op":"write","path":"~/new","data":"x","mode":"append"},{"op":"write","path":"~/crlf","data":"x","mode":"append"}]
            tree
        "#,
        expect![[r#"
            write: 1 changes, "eä\nö\n"
            write: 1 changes, "e\nö\n"
            write: 1 changes, "e\nö\nx"
            write: 1 changes, not text
            write: 1 changes, not text
            write: 1 changes, "typed\none\ntwo\n", merged
            ~/open shows "typed\none\ntwo\n"
            write: 1 changes, "*.o\n*.so\n"
            write: 1 changes, "x\ny\n", the file had setuid or setgid, which the write removed
            write: 1 changes, "new\n"
            write: 0 changes, not text
            ! -32602 operation 0: ~/dir is not a file {"kind":"notFile","index":0,"path":"~/dir"}
            ! -32030 operation 0: permission denied: ~/once has 2 names (hard links): writing it would change all of them: break the links first, or use a command {"kind":"permissionDenied","index":0,"why":"~/once has 2 names (hard links): writing it would change all of them: break the links first, or use a command"}
            ! -32030 operation 0: permission denied: ~/fixed is read-only: make it writable first {"kind":"permissionDenied","index":0,"why":"~/fixed is read-only: make it writable first"}
            write: 1 changes, "new\nx"
            write: 1 changes, "one\r\ntwo\r\nx"
            ~/.gitignore "*.o\n*.so\n"
            ~/crlf "one\r\ntwo\r\nx"
            ~/dir/
            ~/dir/file "x"
            ~/fixed 444 "x"
            ~/latin [65, e4, a, f6, a]
            ~/marked "\u{feff}one\ntwo\n"
            ~/new "new\nx"
            ~/once "x"
            ~/open "typed\none\ntwo\n"
            ~/suid 755 "x\ny\n"
            ~/twice "x"
            ~/utf16 [ff, fe, 65, 0, a, 0, f6, 0, a, 0, 78, 0]
        "#]],
    );
}

#[test]
fn a_file_beyond_the_limit_of_writes_can_be_appended_to() {
    let small = WorkspaceOptions { max_write_bytes: 8, ..in_place() };
    let shown = run(
        small,
        r#"
            disk ~/log "a long line\n"
            batch [{"op":"write","path":"~/log","data":"short\n","mode":"append"}]
            batch [{"op":"write","path":"~/log","data":"too long\n","mode":"append"}]
            batch [{"op":"write","path":"~/log","data":"x","mode":"insert","position":0}]
            undo
            redo
            tree
            disk ~/log "another long line\nshort\n"
            undo
            tree
        "#,
    );
    expect![[r#"
        write: 1 changes, not text
        ! -32602 operation 0: ~/log has 9 bytes, the limit is 8 {"kind":"tooLarge","index":0,"path":"~/log","bytes":9,"limit":8}
        ! -32602 operation 0: ~/log has 18 bytes, the limit is 8 {"kind":"tooLarge","index":0,"path":"~/log","bytes":18,"limit":8}
        undo: 1 files
        redo: 1 files
        ~/log "a long line\nshort\n"
        undo: 1 files
        ~/log "another long line\n"
    "#]].assert_eq(&shown);
}

#[test]
fn a_large_file_keeps_its_inode_and_a_small_one_its_texts() {
    let mut project =
        BatchProject::new(WorkspaceOptions { append_in_place_bytes: 4, ..WorkspaceOptions::default() });
    for (name, text, is_in_place) in [("~/large", "1234", true), ("~/small", "123", false)] {
        let path = project.expand(name);
        fs::write(&path, text).unwrap();
        let inode = fs::metadata(&path).unwrap().ino();
        project.append(name, "\n");
        assert_eq!(fs::metadata(&path).unwrap().ino() == inode, is_in_place, "{name}");
        let last = project.workspace.changes(&ChangeSelection::default()).unwrap().pop().unwrap().change;
        let journal = &project.workspace.writer().journal;
        assert_eq!(journal.tail(last.id).unwrap(), is_in_place.then(|| b"\n".to_vec()), "{name}");
        let after = last.after.unwrap();
        assert_eq!(after.hash, ContentHash::digest(format!("{text}\n").as_bytes()), "{name}");
        assert_eq!(journal.has_content(&after.hash).unwrap(), !is_in_place, "{name}");
    }
}

#[test]
fn appends_are_shown_as_the_lines_that_they_add() {
    let mut project = BatchProject::new(in_place());
    project.run_step(r#"disk ~/log "one\n""#).unwrap();
    project.append("~/log", "two\n");
    project.append("~/log", "three\n");
    let workspace = &project.workspace;
    let changes = workspace.changes(&ChangeSelection::default()).unwrap();
    let (last, selection) = (changes.last().unwrap().change.clone(), ChangeSelection::default());
    let preview = workspace.preview_undo(bowline_history::undo::ReversalDirection::Undo, &selection).unwrap();
    let shown = [
        workspace.diff(&selection).unwrap(),
        workspace.diff_change(last.id).unwrap(),
        format!("{:?}\n", workspace.change_texts(last.id).unwrap()),
        format!("{:?}\n", workspace.has_change_texts(&last).unwrap()),
        preview.files.into_iter().map(|file| file.patch.unwrap()).collect(),
    ];
    expect![[r#"
        diff --git a/log b/log
        --- a/log
        +++ b/log
        @@ -1 +1,3 @@
         one
        +two
        +three
        ---
        diff --git a/log b/log
        --- a/log
        +++ b/log
        @@ -1,2 +1,3 @@
         one
         two
        +three
        ---
        (Some(""), Some("three\n"))
        ---
        true
        ---
        diff --git a/log b/log
        --- a/log
        +++ b/log
        @@ -1,3 +1 @@
         one
        -two
        -three
    "#]]
    .assert_eq(&shown.join("---\n"));
}

#[test]
fn an_append_is_shown_with_the_lines_before_it() {
    let mut project = BatchProject::new(in_place());
    let lines: String = (1..=100_000).map(|number| format!("line {number}\n")).collect();
    let path = project.expand("~/log");
    fs::write(&path, format!("{lines}unfinished")).unwrap();
    project.append("~/log", " and finished\n");
    let (workspace, selection) = (&project.workspace, ChangeSelection::default());
    let patch = workspace.diff(&selection).unwrap();
    expect![[r#"
        diff --git a/log b/log
        --- a/log
        +++ b/log
        @@ -99999,3 +99999,3 @@
         line 99999
         line 100000
        -unfinished
        \ No newline at end of file
        +unfinished and finished
    "#]]
    .assert_eq(&patch);
    fs::write(&path, "another text\n").unwrap();
    expect![[r#"
        diff --git a/log b/log
        --- a/log
        +++ b/log
        @@ -0,0 +1 @@
        + and finished
    "#]]
    .assert_eq(&workspace.diff(&selection).unwrap());
}

#[test]
fn a_session_knows_what_it_appended() {
    check_in_place(
        r#"
            disk ~/log "one\n"
            read ~/log
            batch [{"op":"write","path":"~/log","data":"two\n","mode":"append"}]
            batch [{"op":"write","path":"~/log","data":"ONE\ntwo\n"}]
            disk ~/log "ONE\ntwo\nuser\n"
            batch [{"op":"write","path":"~/log","data":"three\n","mode":"append"}]
            batch [{"op":"write","path":"~/log","data":"1\ntwo\nthree\n"}]
            tree
        "#,
        expect![[r#"
            "one\n"
            write: 1 changes, not text
            write: 1 changes, "ONE\ntwo\n"
            write: 1 changes, not text, merged
            write: 1 changes, "1\ntwo\nuser\nthree\n", merged
            ~/log "1\ntwo\nuser\nthree\n"
        "#]],
    );
}

#[test]
fn scans_attribute_only_the_bytes_of_others_to_others() {
    let mut project = BatchProject::new(in_place());
    let path = project.expand("~/log");
    fs::write(&path, "one\n").unwrap();
    let mut ignore_progress = |_| ControlFlow::Continue(());
    project
        .workspace
        .start_observing(ObserverOptions::default(), WatchMode::Off, &mut ignore_progress)
        .unwrap();
    let observe = |project: &BatchProject| {
        let origin = Default::default();
        project.workspace.observe(&origin, &mut |_| ControlFlow::Continue(())).unwrap().changes.len()
    };
    project.append("~/log", "two\n");
    assert_eq!(observe(&project), 0);
    project.append("~/log", "three\n");
    project.reverse("undo");
    project.reverse("redo");
    assert_eq!(observe(&project), 0);
    project.append("~/log", "four\n");
    fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"user\n").unwrap();
    assert_eq!(observe(&project), 1);
    assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntwo\nthree\nfour\nuser\n");
}

/// A program that opens a file as soon as the engine does, and appends to it at the next call.
#[derive(Default)]
struct AppendingProgram {
    // The file, once it is armed.
    path: Mutex<Option<String>>,
    handle: Mutex<Option<fs::File>>,
}

impl DiskFaultInjector for AppendingProgram {
    fn before_call(&self, call: DiskCall, bytes: usize) -> io::Result<usize> {
        let mut handle = self.handle.lock().unwrap();
        if let Some(mut opened) = handle.take() {
            opened.write_all(b"user\n")?;
        } else if call == DiskCall::OpenInPlace
            && let Some(path) = self.path.lock().unwrap().take()
        {
            *handle = Some(fs::OpenOptions::new().append(true).open(path)?);
        }
        Ok(bytes)
    }
}

#[test]
fn a_line_that_arrives_right_before_the_cut_is_kept() {
    let program = Arc::new(AppendingProgram::default());
    let calls = DiskCalls::with_injector(program.clone());
    let mut project = BatchProject::with_calls(in_place(), calls, Resolver::Kernel);
    let path = project.expand("~/log");
    fs::write(&path, "one\n").unwrap();
    project.append("~/log", "agent\n");
    *program.path.lock().unwrap() = Some(path.clone());
    assert_eq!(project.reverse("undo"), "undo: 1 files\n");
    assert_eq!(fs::read_to_string(&path).unwrap(), "one\nuser\n");
}

#[test]
fn a_line_that_arrives_right_before_an_append_is_kept() {
    let program = Arc::new(AppendingProgram::default());
    let calls = DiskCalls::with_injector(program.clone());
    let mut project = BatchProject::with_calls(in_place(), calls, Resolver::Kernel);
    let path = project.expand("~/log");
    fs::write(&path, "one\n").unwrap();
    *program.path.lock().unwrap() = Some(path.clone());
    // Not as a step, which compares the etag: it is that of the file without the other line.
    let operation = r#"[{"op":"write","path":"~/log","data":"agent\n","mode":"append"}]"#;
    let (operations, origin) =
        (project.operations(operation).unwrap(), project.session.origin(Some(1), None));
    project.session.apply_batch(&operations, &origin, None).unwrap();
    project.turn = 1;
    assert_eq!(fs::read_to_string(&path).unwrap(), "one\nuser\nagent\n");
    assert_eq!(project.reverse("undo"), "undo: 1 files\n");
    assert_eq!(fs::read_to_string(&path).unwrap(), "one\nuser\n");
    assert_eq!(project.reverse("redo"), "redo: 1 files\n");
    assert_eq!(fs::read_to_string(&path).unwrap(), "one\nuser\nagent\n");
}

/// A step of the agent, or of the user, who knows nothing of Bowline.
#[derive(Debug, Clone, Copy)]
enum LogStep {
    Append,
    // The last turns, so that undo and redo often find something.
    Undo(u64),
    Redo(u64),
    UserAppend,
    UserPrepend,
    UserReplacesHead,
}

fn any_log_step() -> impl Strategy<Value = LogStep> {
    prop_oneof![
        4 => Just(LogStep::Append),
        3 => (0..3_u64).prop_map(LogStep::Undo),
        2 => (0..3_u64).prop_map(LogStep::Redo),
        1 => Just(LogStep::UserAppend),
        1 => Just(LogStep::UserPrepend),
        1 => Just(LogStep::UserReplacesHead),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_line_of_a_log_is_lost_or_torn(steps in proptest::collection::vec(any_log_step(), 1..24)) {
        let mut project = BatchProject::new(in_place());
        let path = project.expand("~/log");
        let read = || fs::read_to_string(&path).unwrap();
        fs::write(&path, "user first\n").unwrap();
        let mut user_lines = vec!["user first".to_owned()];
        for (number, step) in steps.into_iter().enumerate() {
            let line = format!("user {number:02}");
            let old = read();
            let origin = project.session.origin(None, None);
            let turn = |back: u64| ChangeSelection::turn("s", project.turn.saturating_sub(back));
            match step {
                LogStep::Append => {
                    project.append("~/log", &format!("agent {number:02}\n"));
                    prop_assert_eq!(read(), format!("{old}agent {number:02}\n"));
                }
                LogStep::Undo(back) => drop(project.session.undo(&turn(back), &origin)),
                LogStep::Redo(back) => drop(project.session.redo(&turn(back), &origin)),
                LogStep::UserAppend => fs::write(&path, format!("{old}{line}\n")).unwrap(),
                LogStep::UserPrepend => fs::write(&path, format!("{line}\n{old}")).unwrap(),
                LogStep::UserReplacesHead => {
                    let (head, rest) = old.split_once('\n').unwrap();
                    fs::write(&path, format!("{line}\n{rest}")).unwrap();
                    user_lines.retain(|line| line != head);
                }
            }
            if matches!(step, LogStep::UserAppend | LogStep::UserPrepend | LogStep::UserReplacesHead) {
                user_lines.push(line);
            }
            let text = read();
            let mut found: Vec<&str> = text.lines().collect();
            found.sort_unstable();
            prop_assert!(found.windows(2).all(|two| two[0] != two[1]), "a line is there twice: {text:?}");
            let users: Vec<_> = found.iter().filter(|line| line.starts_with("user ")).copied().collect();
            user_lines.sort();
            prop_assert_eq!(users, user_lines.clone(), "after {:?}", step);
            let is_whole = |line: &&str| line.starts_with("agent ") && line.len() == "agent 00".len();
            prop_assert!(found.iter().filter(|line| !line.starts_with("user ")).all(is_whole), "{text:?}");
        }
    }
}
