//! Watches as text: steps in, reported changes out.
//!
//! ```text
//! watch PATH [recursive] [glob=GLOB]    unwatch ID    collect
//! put NAME TEXT    mkdir NAME    mv FROM TO    rm NAME    chmod NAME MODE    link NAME TARGET
//! agent NAME TEXT    other NAME TEXT    process NAME TEXT    batch OPERATIONS    undo
//! type NAME TEXT    save NAME    close NAME
//! read NAME    command start|end    scan SESSION    later
//! ```

use std::cell::Cell;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use bowline_history::changes::ChangeOrigin;
use bowline_history::undo::ChangeSelection;
use bowline_policy::paths::Access;
use bowline_protocol::file_extension::{BatchFilesRequest, WatchFilesRequest};
use bowline_text::lines::LineWindow;
use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;
use crate::workspace::fixture::TestProject;

/// A project with a session that watches, and whose user denies to read files named `secret`.
struct Stage {
    project: TestProject,
    watches: FileWatches,
    is_command_running: Cell<bool>,
}

impl Stage {
    fn new(files: &[(&str, &str)], set: impl FnOnce(&mut WatchOptions)) -> Self {
        let project = TestProject::new(files);
        let mut options = WatchOptions::with_limits(&FileLimits::DEFAULT);
        set(&mut options);
        let watches = FileWatches::new(&project.workspace.session("s"), options).unwrap();
        Self { project, watches, is_command_running: Cell::new(false) }
    }

    fn add(&mut self, path: &str, params: Value) -> Result<WatchId, FileError> {
        let path = self.path(path);
        let mut params = params;
        (params["sessionId"], params["path"]) = (json!("s"), json!(path));
        let request: WatchFilesRequest = serde_json::from_value(params).unwrap();
        let operation = request.into_operation()?;
        let session = self.project.workspace.session("s");
        let admitted = session.admit(operation.path.as_str(), Access::Read)?;
        self.watches.add(WatchTarget::new(&session, &admitted, &operation)?, false)
    }

    fn path(&self, name: &str) -> String {
        self.project.path(name.trim_start_matches('/')).trim_end_matches('/').to_owned()
    }

    fn collect(&mut self) -> String {
        let is_running = &self.is_command_running;
        let context = WatchContext {
            can_read: &|path, _| !path.contains("secret"),
            is_command_running: &|| is_running.get(),
        };
        let reports = self.watches.collect(&context);
        let root = self.project.path("");
        let mut text = String::new();
        for WatchReport { watch_id, changes, overflow } in reports {
            for FileChange { path, kind, by, from } in changes {
                let name = |path: &Path| path.to_str().unwrap().replace(root.trim_end_matches('/'), "");
                let kind = json!(kind).as_str().unwrap().to_owned();
                let by = json!(by).as_str().unwrap().to_owned();
                let from = from.map(|from| format!(" from {}", name(&from))).unwrap_or_default();
                writeln!(text, "  {watch_id}: {kind} {}{from} by {by}", name(&path)).unwrap();
            }
            if overflow {
                writeln!(text, "  {watch_id}: overflow").unwrap();
            }
        }
        text
    }

    fn play(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        let text = || words[2..].join(" ").replace("\\n", "\n");
        let path = |at: usize| self.path(words[at]);
        let workspace = self.project.workspace.clone();
        let write = |session: &str| {
            let session = workspace.session(session);
            session.write(&path(1), &text(), &session.origin(Some(1), None)).unwrap();
        };
        match words[0] {
            "watch" => {
                let mut params = json!({});
                for word in &words[2..] {
                    match word.split_once('=') {
                        None => params["recursive"] = json!(true),
                        Some((_, glob)) => params["glob"] = json!(glob),
                    }
                }
                return match self.add(words[1], params) {
                    Ok(id) => format!("  {id}\n"),
                    Err(error) => {
                        let root = self.project.path("");
                        let text = error.to_string().replace(root.trim_end_matches('/'), "");
                        format!("  ! {:?}: {text}\n", error.kind())
                    }
                };
            }
            "unwatch" => {
                let removed = self.watches.remove(&words[1].into());
                return removed.err().map(|error| format!("  ! {error}\n")).unwrap_or_default();
            }
            "collect" => return self.collect(),
            "put" => fs::write(path(1), text()).unwrap(),
            "mkdir" => fs::create_dir_all(path(1)).unwrap(),
            "mv" => fs::rename(path(1), path(2)).unwrap(),
            "rm" if fs::metadata(path(1)).unwrap().is_dir() => fs::remove_dir_all(path(1)).unwrap(),
            "rm" => fs::remove_file(path(1)).unwrap(),
            "chmod" => {
                let mode = u32::from_str_radix(words[2], 8).unwrap();
                fs::set_permissions(path(1), fs::Permissions::from_mode(mode)).unwrap();
            }
            "link" => symlink(words[2], path(1)).unwrap(),
            "agent" => write("s"),
            "read" => drop(workspace.session("s").read(&path(1), LineWindow::default()).unwrap()),
            // As if everything so far had happened long ago.
            "later" => self.watches.last_collect_ns = i64::MAX,
            "other" => write("t"),
            "process" => {
                let session = self.project.open_again().session("t");
                session.write(&path(1), &text(), &session.origin(Some(1), None)).unwrap();
            }
            "batch" => {
                let root = self.project.path("");
                let operations = words[1..].join(" ").replace("$ROOT", root.trim_end_matches('/'));
                let params = format!(r#"{{"sessionId":"s","operations":{operations}}}"#);
                let request: BatchFilesRequest = serde_json::from_str(&params).unwrap();
                let operations = request.into_operations(&FileLimits::DEFAULT).unwrap();
                let session = workspace.session("s");
                session.apply_batch(&operations, &session.origin(Some(2), None), None).unwrap();
            }
            "undo" => {
                let session = workspace.session("s");
                session.undo(&ChangeSelection::turn("s", 2), &session.origin(Some(3), None)).unwrap();
            }
            "type" => {
                let path = path(1);
                let revision = workspace.open_document(&path).unwrap().revision;
                workspace.change_document(&path, text(), revision).unwrap();
            }
            "save" => drop(workspace.save_document(&path(1)).unwrap()),
            "close" => workspace.close_document(&path(1)).unwrap(),
            "command" => self.is_command_running.set(words[1] == "start"),
            "scan" => {
                let command = Some("make".to_owned());
                let origin = ChangeOrigin { command, ..workspace.session(words[1]).origin(Some(1), None) };
                self.project.observe(&origin);
            }
            other => panic!("{other}"),
        }
        String::new()
    }

    fn check(&mut self, steps: &str, expected: Expect) {
        let mut log = String::new();
        for step in steps.trim().lines() {
            let answer = self.play(step);
            writeln!(log, "> {step}").unwrap();
            log.push_str(&answer);
        }
        expected.assert_eq(&log);
    }
}

fn check(files: &[(&str, &str)], steps: &str, expected: Expect) {
    Stage::new(files, |_| {}).check(steps, expected);
}

const FILES: &[(&str, &str)] = &[("a", "one\n"), ("b", "two\n"), (".gitignore", "*.log\nbuild\n")];

#[test]
fn a_directory_reports_its_entries_once() {
    check(
        FILES,
        "
watch /
collect
put a changed
put a changed again
put new text
mkdir dir
put dir/deep text
put gone text
rm gone
rm b
collect
collect
put dir/deep more
collect
chmod a 600
collect
put x.log ignored
collect
",
        expect![[r#"
            > watch /
              w1
            > collect
            > put a changed
            > put a changed again
            > put new text
            > mkdir dir
            > put dir/deep text
            > put gone text
            > rm gone
            > rm b
            > collect
              w1: modified /a by user
              w1: removed /b by user
              w1: created /dir by user
              w1: created /new by user
            > collect
            > put dir/deep more
            > collect
            > chmod a 600
            > collect
              w1: other /a by user
            > put x.log ignored
            > collect
        "#]],
    );
}

#[test]
fn everything_below_a_directory_is_reported() {
    check(
        FILES,
        "
mkdir src/deep
put src/deep/x 1
watch /src recursive
put src/deep/x 2
put a outside
mkdir src/new/er
put src/new/er/y 1
collect
put src/new/er/y 2
put src/new/er/z 1
collect
mv src/new src/newer
collect
put src/newer/er/y 3
collect
mv src/newer outside
put outside/er/y 4
collect
rm src
collect
mkdir src
put src/again 1
collect
",
        expect![[r#"
            > mkdir src/deep
            > put src/deep/x 1
            > watch /src recursive
              w1
            > put src/deep/x 2
            > put a outside
            > mkdir src/new/er
            > put src/new/er/y 1
            > collect
              w1: modified /src/deep/x by user
              w1: created /src/new by user
              w1: created /src/new/er by user
              w1: created /src/new/er/y by user
            > put src/new/er/y 2
            > put src/new/er/z 1
            > collect
              w1: modified /src/new/er/y by user
              w1: created /src/new/er/z by user
            > mv src/new src/newer
            > collect
              w1: renamed /src/newer from /src/new by user
              w1: renamed /src/newer/er from /src/new/er by user
              w1: renamed /src/newer/er/y from /src/new/er/y by user
              w1: renamed /src/newer/er/z from /src/new/er/z by user
            > put src/newer/er/y 3
            > collect
              w1: modified /src/newer/er/y by user
            > mv src/newer outside
            > put outside/er/y 4
            > collect
              w1: removed /src/newer by user
              w1: removed /src/newer/er by user
              w1: removed /src/newer/er/y by user
              w1: removed /src/newer/er/z by user
            > rm src
            > collect
              w1: removed /src by user
              w1: removed /src/deep by user
              w1: removed /src/deep/x by user
            > mkdir src
            > put src/again 1
            > collect
              w1: created /src by user
              w1: created /src/again by user
        "#]],
    );
}

#[test]
fn globs_select_and_a_rename_across_their_border_is_no_rename() {
    check(
        FILES,
        "
mkdir src/deep
watch / recursive glob=*.rs
watch / recursive glob=src/*.rs
put src/a.rs 1
put src/deep/b.rs 1
put src/c.txt 1
collect
mv src/a.rs src/renamed.rs
mv src/deep/b.rs src/b.rs
mv src/c.txt src/c.rs
collect
mv src/c.rs src/c.txt
collect
",
        expect![[r#"
            > mkdir src/deep
            > watch / recursive glob=*.rs
              w1
            > watch / recursive glob=src/*.rs
              w2
            > put src/a.rs 1
            > put src/deep/b.rs 1
            > put src/c.txt 1
            > collect
              w1: created /src/a.rs by user
              w1: created /src/deep/b.rs by user
              w2: created /src/a.rs by user
            > mv src/a.rs src/renamed.rs
            > mv src/deep/b.rs src/b.rs
            > mv src/c.txt src/c.rs
            > collect
              w1: renamed /src/b.rs from /src/deep/b.rs by user
              w1: created /src/c.rs by user
              w1: renamed /src/renamed.rs from /src/a.rs by user
              w2: created /src/b.rs by user
              w2: created /src/c.rs by user
              w2: renamed /src/renamed.rs from /src/a.rs by user
            > mv src/c.rs src/c.txt
            > collect
              w1: removed /src/c.rs by user
              w2: removed /src/c.rs by user
        "#]],
    );
}

#[test]
fn a_file_is_watched_through_replacement_and_removal() {
    check(
        FILES,
        "
watch /a
put b other
put a 1
collect
put temp 2
mv temp a
collect
rm a
collect
put a 3
collect
watch /missing
watch /a/below
watch /build
",
        expect![[r#"
            > watch /a
              w1
            > put b other
            > put a 1
            > collect
              w1: modified /a by user
            > put temp 2
            > mv temp a
            > collect
              w1: modified /a by user
            > rm a
            > collect
              w1: removed /a by user
            > put a 3
            > collect
              w1: created /a by user
            > watch /missing
              ! NotFound: /missing does not exist
            > watch /a/below
              ! NotDirectory: /a/below is not a directory
            > watch /build
              ! NotFound: /build does not exist
        "#]],
    );
}

#[test]
fn the_author_is_known() {
    check(
        FILES,
        r#"
watch / recursive
agent a agent
other b other
put user user
collect
put a agent twice
collect
put a agent
collect
agent a agent
agent a agent once more
put a user came later
collect
command start
put c command
agent d agent
collect
command end
put c user
collect
put e late
scan s
put f late
scan t
collect
process g another process
collect
"#,
        expect![[r#"
            > watch / recursive
              w1
            > agent a agent
            > other b other
            > put user user
            > collect
              w1: modified /a by agent
              w1: modified /b by session
              w1: created /user by user
            > put a agent twice
            > collect
              w1: modified /a by user
            > put a agent
            > collect
              w1: modified /a by user
            > agent a agent
            > agent a agent once more
            > put a user came later
            > collect
              w1: modified /a by user
            > command start
            > put c command
            > agent d agent
            > collect
              w1: created /c by command
              w1: created /d by agent
            > command end
            > put c user
            > collect
              w1: modified /c by user
            > put e late
            > scan s
            > put f late
            > scan t
            > collect
              w1: created /e by command
              w1: created /f by session
            > process g another process
            > collect
              w1: created /g by session
        "#]],
    );
}

#[test]
fn batches_and_undo_are_the_agents() {
    check(
        FILES,
        r#"
watch / recursive
batch [{"op":"mkdir","path":"$ROOT/empty"},{"op":"mkdir","path":"$ROOT/docs"},{"op":"move","from":"$ROOT/a","to":"$ROOT/docs/a"},{"op":"remove","path":"$ROOT/b"}]
collect
undo
collect
mkdir empty
collect
rm empty
batch [{"op":"mkdir","path":"$ROOT/bare"}]
collect
"#,
        expect![[r#"
            > watch / recursive
              w1
            > batch [{"op":"mkdir","path":"$ROOT/empty"},{"op":"mkdir","path":"$ROOT/docs"},{"op":"move","from":"$ROOT/a","to":"$ROOT/docs/a"},{"op":"remove","path":"$ROOT/b"}]
            > collect
              w1: removed /b by agent
              w1: created /docs by agent
              w1: renamed /docs/a from /a by agent
              w1: created /empty by agent
            > undo
            > collect
              w1: renamed /a from /docs/a by agent
              w1: created /b by agent
              w1: removed /docs by agent
              w1: removed /empty by agent
            > mkdir empty
            > collect
              w1: created /empty by user
            > rm empty
            > batch [{"op":"mkdir","path":"$ROOT/bare"}]
            > collect
              w1: created /bare by agent
              w1: removed /empty by user
        "#]],
    );
}

#[test]
fn unsaved_text_is_reported() {
    check(
        FILES,
        "
put build unseen
watch / recursive
watch /b
type a typed
collect
collect
type a typed more
type b typed
collect
save a
collect
close b
collect
type new never saved
collect
watch /new
type new still not saved
collect
save new
collect
close new
collect
type other never saved
collect
close other
collect
type build hidden
collect
type a typed
collect
read a
agent a agent
collect
",
        expect![[r#"
            > put build unseen
            > watch / recursive
              w1
            > watch /b
              w2
            > type a typed
            > collect
              w1: modified /a by user
            > collect
            > type a typed more
            > type b typed
            > collect
              w1: modified /a by user
              w1: modified /b by user
              w2: modified /b by user
            > save a
            > collect
              w1: modified /a by user
            > close b
            > collect
              w1: modified /b by user
              w2: modified /b by user
            > type new never saved
            > collect
              w1: created /new by user
            > watch /new
              w3
            > type new still not saved
            > collect
              w1: modified /new by user
              w3: modified /new by user
            > save new
            > collect
              w1: modified /new by user
              w3: modified /new by user
            > close new
            > collect
            > type other never saved
            > collect
              w1: created /other by user
            > close other
            > collect
              w1: removed /other by user
            > type build hidden
            > collect
            > type a typed
            > collect
              w1: modified /a by user
            > read a
            > agent a agent
            > collect
              w1: modified /a by agent
        "#]],
    );
}

#[test]
fn what_the_session_may_not_read_is_not_reported() {
    check(
        &[("a", "1"), ("secret", "1")],
        "
watch / recursive
put secret 2
mkdir secrets
put secrets/x 1
link out /etc/passwd
link in a
mv a secret-a
collect
mv secret-a a
collect
rm secrets
rm in
collect
",
        expect![[r#"
            > watch / recursive
              w1
            > put secret 2
            > mkdir secrets
            > put secrets/x 1
            > link out /etc/passwd
            > link in a
            > mv a secret-a
            > collect
              w1: removed /a by user
            > mv secret-a a
            > collect
              w1: created /a by user
            > rm secrets
            > rm in
            > collect
        "#]],
    );
}

#[test]
fn an_ignored_path_can_be_watched_and_changed_rules_report_nothing() {
    check(
        FILES,
        "
mkdir build/deep
put build/deep/x 1
put build/y.log 1
put old.log 1
watch /build recursive
watch / recursive
put build/deep/x 2
put build/deep/z 1
put build/y.log 2
collect
later
put .gitignore a
collect
put a 2
put old.log 2
collect
",
        expect![[r#"
            > mkdir build/deep
            > put build/deep/x 1
            > put build/y.log 1
            > put old.log 1
            > watch /build recursive
              w1
            > watch / recursive
              w2
            > put build/deep/x 2
            > put build/deep/z 1
            > put build/y.log 2
            > collect
              w1: modified /build/deep/x by user
              w1: created /build/deep/z by user
            > later
            > put .gitignore a
            > collect
              w2: modified /.gitignore by user
            > put a 2
            > put old.log 2
            > collect
              w2: modified /old.log by user
        "#]],
    );
}

#[test]
fn watches_end_and_are_limited() {
    let mut stage = Stage::new(FILES, |options| {
        (options.max_watches, options.max_directories, options.max_entries) = (3, 5, 12);
    });
    stage.check(
        "
watch / recursive
watch /
watch /a
watch /b
unwatch w1
unwatch w1
unwatch w9
unwatch x
put a 2
collect
unwatch w2
unwatch w3
put a 3
collect
mkdir many/1
mkdir many/2
mkdir many/3
watch / recursive
mkdir many/4
watch / recursive
unwatch w4
watch / recursive
rm many
mkdir few
watch /few
put few/1 1
put few/2 1
collect
watch / recursive
put few/3 1
put few/4 1
put few/5 1
put few/6 1
put few/7 1
watch / recursive
collect
",
        expect![[r#"
            > watch / recursive
              w1
            > watch /
              w2
            > watch /a
              w3
            > watch /b
              ! TooMany: too many watches, the limit is 3
            > unwatch w1
            > unwatch w1
              ! no watch w1
            > unwatch w9
              ! no watch w9
            > unwatch x
              ! no watch x
            > put a 2
            > collect
              w2: modified /a by user
              w3: modified /a by user
            > unwatch w2
            > unwatch w3
            > put a 3
            > collect
            > mkdir many/1
            > mkdir many/2
            > mkdir many/3
            > watch / recursive
              w4
            > mkdir many/4
            > watch / recursive
              ! TooMany: too many directories, the limit is 5
            > unwatch w4
            > watch / recursive
              ! TooMany: too many directories, the limit is 5
            > rm many
            > mkdir few
            > watch /few
              w5
            > put few/1 1
            > put few/2 1
            > collect
              w5: created /few/1 by user
              w5: created /few/2 by user
            > watch / recursive
              w6
            > put few/3 1
            > put few/4 1
            > put few/5 1
            > put few/6 1
            > put few/7 1
            > watch / recursive
              ! TooMany: too many files, the limit is 12
            > collect
              w5: created /few/3 by user
              w5: created /few/4 by user
              w5: created /few/5 by user
              w5: created /few/6 by user
              w5: created /few/7 by user
              w6: created /few/3 by user
              w6: created /few/4 by user
              w6: created /few/5 by user
              w6: created /few/6 by user
              w6: created /few/7 by user
        "#]],
    );
}

#[test]
fn reports_are_pages_and_changes_beyond_the_limit_are_left_out() {
    let mut stage = Stage::new(FILES, |options| (options.max_changes, options.max_pending_changes) = (2, 5));
    stage.check(
        "
watch /
put 1 1
put 2 1
put 3 1
collect
put 4 1
put 5 1
put 6 1
put 7 1
put 8 1
put 9 1
collect
put 9 2
collect
",
        expect![[r#"
            > watch /
              w1
            > put 1 1
            > put 2 1
            > put 3 1
            > collect
              w1: created /1 by user
              w1: created /2 by user
              w1: created /3 by user
            > put 4 1
            > put 5 1
            > put 6 1
            > put 7 1
            > put 8 1
            > put 9 1
            > collect
              w1: created /4 by user
              w1: created /5 by user
              w1: created /6 by user
              w1: created /7 by user
              w1: created /8 by user
              w1: overflow
            > put 9 2
            > collect
              w1: modified /9 by user
        "#]],
    );
}

#[test]
fn a_tree_that_outgrows_the_limits_is_reported_as_incomplete() {
    let mut stage = Stage::new(FILES, |options| options.max_directories = 3);
    stage.check(
        "
watch / recursive
mkdir 1/2/3/4
collect
put a 2
collect
",
        expect![[r#"
            > watch / recursive
              w1
            > mkdir 1/2/3/4
            > collect
              w1: overflow
            > put a 2
            > collect
              w1: modified /a by user
              w1: overflow
        "#]],
    );
}

#[test]
fn a_path_is_reported_as_it_was_requested() {
    let mut stage = Stage::new(FILES, |_| {});
    stage.check(
        "
mkdir real
link alias real
watch /alias recursive
put real/x 1
collect
mv real/x real/y
collect
",
        expect![[r#"
            > mkdir real
            > link alias real
            > watch /alias recursive
              w1
            > put real/x 1
            > collect
              w1: created /alias/x by user
            > mv real/x real/y
            > collect
              w1: renamed /alias/y from /alias/x by user
        "#]],
    );
}

#[tokio::test]
async fn the_signal_fires_for_files_and_documents() {
    let mut stage = Stage::new(FILES, |_| {});
    stage.add("/", json!({"recursive": true})).unwrap();
    let mut signal = stage.watches.signal().unwrap();
    for step in ["put a 2", "type b typed", "put c 1", "close b"] {
        stage.play(step);
        tokio::time::timeout(test_support::TEST_TIMEOUT, signal.wait()).await.unwrap();
        assert!(!stage.collect().is_empty(), "{step}");
    }
}
