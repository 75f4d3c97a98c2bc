//! An agent that writes past the host: what was only found on disk is named apart, and can be left alone.

use super::others::{agent, stops};
use super::scene;
use crate::program::Scene;
use expect_test::expect;

/// Returns an agent that writes one file through the host, and two by itself.
fn writes_past(scene: &Scene) -> String {
    let params = format!(r#"{{"sessionId":"s1","path":"{}","content":"asked\n"}}"#, scene.path("asked.txt"));
    let request = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"fs/write_text_file","params":{params}}}"#);
    let turn = [
        "read -r line",
        &format!("printf '%s\\n' '{request}'"),
        "read -r line",
        &format!("echo own > '{}'", scene.path("own.txt")),
        &format!("echo three >> '{}'", scene.path("a.txt")),
        &stops("end_turn"),
    ];
    agent(scene, &turn.join("\n"))
}

#[test]
fn what_was_found_on_disk_is_told_apart_and_can_be_left_alone() {
    let scene = scene();
    let agent = writes_past(&scene);
    let mut told = scene.run(&["run", "--agent", &agent, "--approve", "edits", "go"]);
    for arguments in [
        &["diff", "--stat", "--written-only"][..],
        &["undo", "--dry-run"],
        &["undo", "--written-only"],
        &["undo", "--written-only"],
        &["redo", "--written-only"],
        &["undo"],
    ] {
        told += &format!("$ bowline {}\n{}", arguments.join(" "), scene.run(arguments));
    }
    expect![[r#"

        Changed 3 files:
          a.txt  +1 −0 (found on disk)
          asked.txt  +1 −0 (new)
          own.txt  +1 −0 (new) (found on disk)
        To take it back: bowline undo --session $SESSION --turn 1
        What was found may be your own work, saved meanwhile: --written-only leaves that alone
        --- 0
        $ bowline diff --stat --written-only
         asked.txt | 1 +
         1 file changed, +1 −0
        --- 0
        $ bowline undo --dry-run
        diff --git a/own.txt b/own.txt
        deleted file mode 100644
        --- a/own.txt
        +++ /dev/null
        @@ -1 +0,0 @@
        -own
        diff --git a/a.txt b/a.txt
        --- a/a.txt
        +++ b/a.txt
        @@ -1,3 +1,2 @@
         one
         two
        -three
        diff --git a/asked.txt b/asked.txt
        deleted file mode 100644
        --- a/asked.txt
        +++ /dev/null
        @@ -1 +0,0 @@
        -asked
        --- stderr
        bowline: the last turn (turn 1 of session s1) would be undone, in 3 files
        bowline: what was found on disk may be your own work, saved meanwhile, or that of another program: a.txt, own.txt; --written-only leaves that alone
        --- 0
        $ bowline undo --written-only
        undone the last turn (turn 1 of session s1), as far as it was written through Bowline, in 1 file
          asked.txt  deleted
        `bowline redo` brings it back
        --- 0
        $ bowline undo --written-only
        --- stderr
        bowline: there is nothing to undo of the last turn (turn 1 of session s1), as far as it was written through Bowline
        --- 1
        $ bowline redo --written-only
        redone what was undone last, as far as it was written through Bowline, in 1 file
          asked.txt  there again
        --- 0
        $ bowline undo
        undone the last turn (turn 1 of session s1), in 3 files
          own.txt    deleted (found on disk after the turn)
          a.txt      as it was before (found on disk after the turn)
          asked.txt  deleted
        `bowline redo` brings it back
        what was found on disk may be your own work, saved meanwhile, or that of another program; undo --written-only leaves that alone
        --- 0
    "#]].assert_eq(&told);
    assert_eq!(scene.get("a.txt"), "one\ntwo\n");
    assert!(!scene.has("own.txt") && !scene.has("asked.txt"));
}
