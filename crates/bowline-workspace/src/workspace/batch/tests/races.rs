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
