//! Tests of changes that were not written through the host: an agent's own writes are reported separately and can be
//! left alone; the user's remain the user's.

use super::fixture;
use super::permission::{InteractiveRun, PERMISSION_PROMPT};
use super::scripted_agents::{script_stop, scripted_agent};
use crate::changes::normalize_times;
use crate::fixture::CliFixture;
use expect_test::expect;

/// Returns an agent that writes one file through the host, and two directly.
fn direct_writer_agent(scene: &CliFixture) -> String {
    let params =
        format!(r#"{{"sessionId":"s1","path":"{}","content":"asked\n"}}"#, scene.file_path("asked.txt"));
    let request = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"fs/write_text_file","params":{params}}}"#);
    let turn = [
        "read -r line",
        &format!("printf '%s\\n' '{request}'"),
        "read -r line",
        &format!("echo own > '{}'", scene.file_path("own.txt")),
        &format!("echo three >> '{}'", scene.file_path("a.txt")),
        &script_stop("end_turn"),
    ];
    scripted_agent(scene, &turn.join("\n"))
}

#[test]
fn what_was_found_on_disk_is_told_apart_and_can_be_left_alone() {
    let scene = fixture();
    let agent = direct_writer_agent(&scene);
    let mut told = scene.run(&["run", "--agent", &agent, "--approve", "edits", "go"]);
    for arguments in [
        &["diff", "--stat", "--written-only"][..],
        &["undo", "--dry-run"],
        &["undo", "--written-only"],
        &["undo", "--written-only"],
        &["redo", "--written-only"],
        &["undo"],
        &["undo", "--found"],
    ] {
        told += &format!("$ bowline {}\n{}", arguments.join(" "), scene.run(arguments));
    }
    expect![[r#"

        Changed 3 files:
          a.txt  +1 −0 (found on disk)
          asked.txt  +1 −0 (new)
          own.txt  +1 −0 (new) (found on disk)
        To undo: bowline undo
        What was found may be your own work, saved meanwhile: it stays, unless you add --found
        --- 0
        $ bowline diff --stat --written-only
         asked.txt | 1 +
         1 file changed, +1 −0
        --- 0
        $ bowline undo --dry-run
        diff --git a/asked.txt b/asked.txt
        deleted file mode 100644
        --- a/asked.txt
        +++ /dev/null
        @@ -1 +0,0 @@
        -asked
        --- stderr
        bowline: the last turn (turn 1 of session s1: go) would be undone, in 1 file
        bowline: what was merely found changed may be your own work, and stays: a.txt, own.txt; --found takes that back, too
        --- 0
        $ bowline undo --written-only
        undone the last turn (turn 1 of session s1: go), as far as it was written through Bowline, in 1 file
          asked.txt  deleted
        `bowline redo` brings it back
        --- 0
        $ bowline undo --written-only
        --- stderr
        bowline: there is nothing to undo of the last turn (turn 1 of session s1: go), as far as it was written through Bowline
        --- 1
        $ bowline redo --written-only
        redone what was undone last, as far as it was written through Bowline, in 1 file
          asked.txt  there again
        --- 0
        $ bowline undo
        undone the last turn (turn 1 of session s1: go), in 1 file
          asked.txt  deleted
        `bowline redo` brings it back
        what was merely found changed may be your own work, and stays: a.txt, own.txt; undo --found takes that back, too
        --- 0
        $ bowline undo --found
        undone the last turn (turn 1 of session s1: go), in 2 files
          a.txt    as it was before (found on disk after the turn)
          own.txt  deleted (found on disk after the turn)
        `bowline redo` brings it back
        what was found on disk may be your own work, saved meanwhile, or that of another program; undo --written-only leaves that alone
        --- 0
    "#]].assert_eq(&told);
    assert_eq!(scene.read_file("a.txt"), "one\ntwo\n");
    assert!(!scene.has_file("own.txt") && !scene.has_file("asked.txt"));
}

#[tokio::test]
async fn what_the_user_saves_during_a_turn_is_not_the_agents() {
    let scene = fixture();
    scene.write_file("f", "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
    let prompt = "replace \"2\" with \"two\" in f\nwrite g: new\\n\nreplace \"8\" with \"eight\" in f";
    let mut seat = InteractiveRun::start(&scene, &["run", prompt]);
    seat.wait_for_text(PERMISSION_PROMPT).await;
    seat.type_text("y\n").await;
    seat.wait_for_text(PERMISSION_PROMPT).await;
    // While the question waits, the user edits the agent's file and another one.
    scene.write_file("f", "1\ntwo\n3\n4\nFIVE\n6\n7\n8\n9\n");
    scene.write_file("a.txt", "mine\n");
    scene.write_file("mine", "mine\n");
    seat.type_text("y\n").await;
    seat.wait_for_text(PERMISSION_PROMPT).await;
    seat.type_text("y\n").await;
    let mut told = scene.normalize(&seat.wait_for_exit().await);
    told += &scene.run_all(&[&["changes"], &["diff"], &["undo"], &["changes", "--all"]]);
    expect![[r#"
        y
        ✓ edit: Edit f (TIME)
            @@ -5,5 +5,5 @@
             FIVE
             6
             7
            -8
            +eight
             9

        Changed `f`.

        Changed 2 files:
          f  +2 −2
          g  +1 −0 (new)
        To undo: bowline undo
        --- Some(0)
        $ bowline changes
        session $SHORT
          turn 1 · replace "2" with "two" in f · WHEN (just now)
            1 edited   f +1 −1  call turn1_1
            2 created  g +1  call turn1_2
            3 edited   f +1 −1  call turn1_3

        3 changes; bowline undo takes the last turn back, bowline undo --change 3 one change
        --- 0
        $ bowline diff
        diff --git a/f b/f
        --- a/f
        +++ b/f
        @@ -1,9 +1,9 @@
         1
        -2
        +two
         3
         4
         FIVE
         6
         7
        -8
        +eight
         9
        diff --git a/g b/g
        new file mode 100644
        --- /dev/null
        +++ b/g
        @@ -0,0 +1 @@
        +new
        --- 0
        $ bowline undo
        undone the last turn (turn 1 of session $SHORT: replace "2" with "two" in f), in 2 files
          f  merged with later edits
          g  deleted
        `bowline redo` brings it back
        --- 0
        $ bowline changes --all
        session $SHORT
          turn 1 · replace "2" with "two" in f · WHEN (just now)
            1 edited   f +1 −1  call turn1_1, undone
            2 created  g +1  call turn1_2, undone
            3 edited   f +1 −1  call turn1_3, undone

        beside the agents: you, or other programs
            4 edited   a.txt +1 −2  observed  WHEN
            5 created  mine  +1  observed  WHEN

        undone and redone with bowline
            6 edited   f +2 −2  takes back 3, 1  WHEN
            7 deleted  g −1  takes back 2  WHEN

        7 changes; bowline undo takes the last turn back, bowline undo --change 5 one change
        --- 0
    "#]]
    .assert_eq(&normalize_times(&told));
    assert_eq!(scene.read_file("f"), "1\n2\n3\n4\nFIVE\n6\n7\n8\n9\n");
    assert_eq!(
        (scene.read_file("a.txt"), scene.read_file("mine")),
        ("mine\n".to_owned(), "mine\n".to_owned())
    );
    assert!(!scene.has_file("g"));
}

#[test]
fn what_was_not_kept_is_said_not_to_come_back() {
    let scene = fixture();
    std::fs::write(scene.project().join("large"), vec![b'x'; 2 << 20]).unwrap();
    expect![[r#"
        ✓ run: Run rm large; echo x > new (TIME)

        `rm large; echo x > new`:

        ```
        [`rm large; echo x > new` ended with exit code 0, through the editor, TIME]
        ```

        Changed 2 files:
          large  too large or too many to be kept, cannot be taken back (deleted) (after a command)
          new  +1 −0 (new) (after a command)
        To undo: bowline undo
        --- 0
    "#]]
    .assert_eq(&scene.run(&["run", "--approve", "all", "run rm large; echo x > new"]));
}

#[tokio::test]
async fn the_first_scan_of_a_large_project_shows_its_progress() {
    let scene = fixture();
    for number in 0..1100 {
        scene.write_file(&format!("many/{number}"), "text\n");
    }
    let agent = scripted_agent(&scene, &format!("read -r line\n{}", script_stop("end_turn")));
    let mut terminal = InteractiveRun::start(&scene, &["run", "--agent", &agent, "go"]);
    terminal.wait_for_text("looking at the project's files: 1024\u{1b}[K").await;
    let output = terminal.wait_for_exit().await;
    assert!(output.ends_with("--- Some(0)\n"), "{output}");
}
