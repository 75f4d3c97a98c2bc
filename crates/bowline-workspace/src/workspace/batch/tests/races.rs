//! Other programs and failures in the middle of a batch.

use std::io;
use std::sync::{Arc, Mutex};

use super::*;

/// Runs an action before the first call of a kind, once it is armed.
struct ActionAtCall {
    call: DiskCall,
    action: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl DiskFaultInjector for ActionAtCall {
    fn before_call(&self, call: DiskCall, bytes: usize) -> io::Result<usize> {
        let action = if call == self.call { self.action.lock().unwrap().take() } else { None };
        if let Some(action) = action {
            action();
        }
        Ok(bytes)
    }
}

/// Fails every call from a number on, once it is armed.
#[derive(Default)]
struct FailingCalls {
    // The number of calls that succeed; `None` if it is not armed.
    left: Mutex<Option<usize>>,
}

impl DiskFaultInjector for FailingCalls {
    fn before_call(&self, _: DiskCall, bytes: usize) -> io::Result<usize> {
        match &mut *self.left.lock().unwrap() {
            None => Ok(bytes),
            Some(0) => Err(io::ErrorKind::StorageFull.into()),
            Some(left) => {
                *left -= 1;
                Ok(bytes)
            }
        }
    }
}

/// Changes a file before every temporary file is created, once it is armed.
#[derive(Default)]
struct RestlessFile {
    // The file, and how often it was changed.
    armed: Mutex<Option<(PathBuf, usize)>>,
}

impl DiskFaultInjector for RestlessFile {
    fn before_call(&self, call: DiskCall, bytes: usize) -> io::Result<usize> {
        if let (DiskCall::CreateTemp, Some((path, count))) = (call, &mut *self.armed.lock().unwrap()) {
            *count += 1;
            fs::write(path, format!("{count}\n"))?;
        }
        Ok(bytes)
    }
}

#[test]
fn the_file_that_keeps_changing_is_named() {
    let injector = Arc::new(RestlessFile::default());
    let calls = DiskCalls::with_injector(injector.clone());
    let mut project = BatchProject::with_calls(WorkspaceOptions::default(), calls, Resolver::Kernel);
    for name in ["a", "b"] {
        project.run_step(&format!("disk ~/{name} \"{name}\\n\"")).unwrap();
    }
    *injector.armed.lock().unwrap() = Some((project.base.join("project/b"), 0));
    let write =
        r#"batch [{"op":"write","path":"~/a","data":"A\n"},{"op":"write","path":"~/b","data":"B\n"}]"#;
    let error = describe_error(project.run_step(write).unwrap_err());
    expect![[r#"
        ! -32603 ~/b keeps changing, try again {"kind":"internal"}
    "#]]
    .assert_eq(&project.shorten(&error));
    assert_eq!(fs::read_to_string(project.base.join("project/a")).unwrap(), "a\n");
}

/// Runs a script in which another program writes a file in the middle of the first batch.
fn check_race(call: DiskCall, (name, text): (&'static str, &'static str), script: &str, expected: Expect) {
    let injector = Arc::new(ActionAtCall { call, action: Mutex::default() });
    let calls = DiskCalls::with_injector(injector.clone());
    let mut project = BatchProject::with_calls(WorkspaceOptions::default(), calls, Resolver::Kernel);
    let path = project.expand(name);
    let mut shown = String::new();
    for step in script.lines().map(str::trim).filter(|step| !step.is_empty()) {
        if step.starts_with("batch") && !project.base.join("armed").exists() {
            fs::write(project.base.join("armed"), "").unwrap();
            let path = path.clone();
            *injector.action.lock().unwrap() = Some(Box::new(move || fs::write(path, text).unwrap()));
        }
        let answer = project.run_step(step).unwrap_or_else(describe_error);
        shown.push_str(&project.shorten(&answer));
    }
    expected.assert_eq(&shown);
}

#[test]
fn a_change_in_the_middle_is_merged() {
    check_race(
        DiskCall::CreateTemp,
        ("~/a", "one\ntwo\nthree\nfour\nUSER\n"),
        r#"
            disk ~/a "one\ntwo\nthree\nfour\nfive\n"
            disk ~/b "b\n"
            read ~/a
            batch [{"op":"mkdir","path":"~/d"},{"op":"move","from":"~/b","to":"~/d/b"},{"op":"write","path":"~/a","data":"ONE\ntwo\nthree\nfour\nfive\n"}]
            tree
            undo
            tree
        "#,
        expect![[r#"
            "one\ntwo\nthree\nfour\nfive\n"
            mkdir: 0 changes
            move: 2 changes
            write: 1 changes, "ONE\ntwo\nthree\nfour\nUSER\n", merged
            ~/a "ONE\ntwo\nthree\nfour\nUSER\n"
            ~/d/
            ~/d/b "b\n"
            undo: 3 files
            ~/a "one\ntwo\nthree\nfour\nUSER\n"
            ~/b "b\n"
        "#]],
    );
}

#[test]
fn a_change_of_a_moved_file_stops_the_batch() {
    check_race(
        DiskCall::Rename,
        ("~/a", "user\n"),
        r#"
            disk ~/a "one\n"
            disk ~/b "b\n"
            read ~/a
            batch [{"op":"move","from":"~/a","to":"~/c"},{"op":"write","path":"~/b","data":"B\n"}]
            tree
        "#,
        expect![[r#"
            "one\n"
            ! -32602 operation 0: ~/a: the text was changed since this session read it: read it again {"kind":"conflict","index":0,"path":"~/a","etag":"…","reason":"conflict","why":"the text was changed since this session read it: read it again","hunks":[]}
            ~/a "user\n"
            ~/b "b\n"
        "#]],
    );
}

#[test]
fn a_file_that_appears_keeps_its_directory() {
    check_race(
        DiskCall::Remove,
        ("~/old/late", "user\n"),
        r#"
            disk ~/old/a "a\n"
            batch [{"op":"move","from":"~/old","to":"~/new"}]
            tree
            undo
            tree
        "#,
        expect![[r#"
            move: 2 changes
            ~/new/
            ~/new/a "a\n"
            ~/old/
            ~/old/late "user\n"
            undo: 2 files
            ~/old/
            ~/old/a "a\n"
            ~/old/late "user\n"
        "#]],
    );
}

#[test]
fn directories_alone_are_changed_all_or_none() {
    let operations = r#"batch [{"op":"mkdir","path":"~/a/b","parents":true},{"op":"remove","path":"~/x"},{"op":"remove","path":"~/y"}]"#;
    let mut outcomes = Vec::new();
    for calls in 0..30 {
        let injector = Arc::new(FailingCalls::default());
        let gate = DiskCalls::with_injector(injector.clone());
        let mut project = BatchProject::with_calls(WorkspaceOptions::default(), gate, Resolver::Kernel);
        for step in ["mkdir ~/x", "mkdir ~/y"] {
            project.run_step(step).unwrap();
        }
        *injector.left.lock().unwrap() = Some(calls);
        let is_done = project.run_step(operations).is_ok();
        *injector.left.lock().unwrap() = None;
        // The next operation recovers.
        project.run_step(r#"batch [{"op":"write","path":"~/next","data":"x"}]"#).unwrap();
        let tree = project.shorten(&project.describe_tree());
        let expected = if is_done { "~/a/\n~/a/b/\n" } else { "~/x/\n~/y/\n" };
        let next = "~/next \"x\"\n";
        let expected = if is_done { format!("{expected}{next}") } else { format!("{next}{expected}") };
        assert_eq!(tree, expected, "after {calls} calls");
        outcomes.push(is_done);
    }
    assert!(!outcomes[0] && outcomes[29]);
}

/// Records the calls, and fails those of some kinds.
struct CallRecorder {
    calls: Mutex<Vec<DiskCall>>,
    // The number of calls of this kind that succeed first.
    failing: Vec<(DiskCall, usize)>,
}

impl CallRecorder {
    fn count(&self, call: DiskCall) -> usize {
        self.calls.lock().unwrap().iter().filter(|recorded| **recorded == call).count()
    }
}

impl DiskFaultInjector for CallRecorder {
    fn before_call(&self, call: DiskCall, bytes: usize) -> io::Result<usize> {
        let earlier = self.count(call);
        self.calls.lock().unwrap().push(call);
        let fails = self.failing.iter().any(|(kind, after)| *kind == call && earlier >= *after);
        if fails { Err(io::ErrorKind::StorageFull.into()) } else { Ok(bytes) }
    }
}

#[test]
fn a_large_batch_is_durable_before_it_is_visible() {
    const FILES: usize = 200;
    let operations: Vec<_> = (0..FILES)
        .map(|number| json!({"op": "write", "path": format!("~/d/{number}"), "data": format!("{number}\n"), "createParents": true}))
        .collect();
    let operations = Value::from(operations).to_string();
    let write = |scratch: TempDir, failing: &[(DiskCall, usize)]| {
        let recorder = Arc::new(CallRecorder { calls: Mutex::default(), failing: failing.to_vec() });
        let calls = DiskCalls::with_injector(recorder.clone());
        let options = WorkspaceOptions::default();
        let mut project = BatchProject::in_directory(scratch, options, calls, Resolver::Kernel);
        recorder.calls.lock().unwrap().clear();
        let written = project.run_step(&format!("batch {operations}")).is_ok();
        let written_files =
            project.run_step("tree").unwrap().lines().filter(|line| line.contains('"')).count();
        assert_eq!(written_files, if written { FILES } else { 0 });
        // Before the first file gets its name, all have been synced, one way or the other.
        let calls = recorder.calls.lock().unwrap().clone();
        let written_until = calls.iter().rposition(|call| *call == DiskCall::CreateTemp).unwrap();
        let calls = &calls[written_until..];
        let first_rename = calls.iter().position(|call| *call == DiskCall::Rename).unwrap_or(calls.len());
        let before = &calls[..first_rename];
        let synced = before.iter().filter(|call| **call == DiskCall::Sync).count();
        let at_once = before.contains(&DiskCall::SyncFileSystem) && failing.is_empty();
        assert!(synced == FILES || at_once || !written, "{synced} files synced, {calls:?}");
        (written, synced)
    };
    let disk = || TempDir::new().unwrap();
    assert!(write(disk(), &[]).0);
    assert_eq!(write(disk(), &[(DiskCall::SyncFileSystem, 0)]), (true, FILES));
    assert!(!write(disk(), &[(DiskCall::SyncFileSystem, 0), (DiskCall::Sync, FILES / 2)]).0);
    // The files of this file system are in memory.
    if let Ok(memory) = TempDir::new_in("/dev/shm") {
        assert_eq!(write(memory, &[]), (true, FILES));
    }
}
