//! Tests of the output of the commands on records, for people and scripts: names, limits, conflicts, JSON, rewind.

use std::process::Stdio;

use expect_test::expect;
use serde_json::{Value, json};

use crate::fixture::CliFixture;
use crate::screen::Screen;

impl CliFixture {
    /// Has an MCP client write files, each in its own tool call.
    fn write_by_mcp_client(&self, files: &[(&str, &str)]) {
        let client = json!({"protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "client", "version": "1"}});
        let mut child = self
            .command(&["mcp", "--approve", "edits"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
        let mut send =
            |message: Value| std::io::Write::write_all(&mut stdin, format!("{message}\n").as_bytes());
        send(json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": client})).unwrap();
        lines.next().unwrap().unwrap();
        send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).unwrap();
        for (number, (path, text)) in files.iter().enumerate() {
            let call = json!({"name": "write_text_file", "arguments": {"path": path, "content": text}});
            send(json!({"jsonrpc": "2.0", "id": number + 1, "method": "tools/call", "params": call}))
                .unwrap();
            let answer = lines.next().unwrap().unwrap();
            assert!(answer.contains("\"isError\":false"), "{answer}");
        }
        drop(stdin);
        assert!(child.wait().unwrap().success());
    }

    /// Runs the program, and returns its JSON output and its exit status.
    fn run_json(&self, arguments: &[&str]) -> (Value, Option<i32>) {
        let output = self.run_command(self.command(arguments), "");
        let text = String::from_utf8(output.stdout).unwrap();
        let value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        (value, output.status.code())
    }
}

/// Replaces the session names of MCP clients by `$MCP`.
fn normalize_mcp_sessions(text: &str) -> String {
    let words = text.split_inclusive([' ', ')', '\n', ':']);
    let clean = |word: &str| match word.strip_prefix("mcp-") {
        Some(rest) => {
            let end = rest.find(|character: char| !character.is_ascii_digit() && character != '-');
            format!("$MCP{}", end.map_or("", |end| &rest[end..]))
        }
        None => word.to_owned(),
    };
    words.map(clean).collect()
}

#[test]
fn plain_undo_takes_back_what_an_mcp_client_wrote_last() {
    let scene = CliFixture::new();
    scene.run_agent("write a.txt: by a turn\\n");
    scene.write_by_mcp_client(&[("b.txt", "one\n"), ("c.txt", "two\n")]);
    let told = scene.run_all(&[&["undo"], &["undo"], &["undo"], &["undo"], &["redo"]]);
    expect![[r#"
        $ bowline undo
        undone the last tool call (2 of session $MCP), in 1 file
          c.txt  deleted
        `bowline redo` brings it back
        --- 0
        $ bowline undo
        undone the last tool call (1 of session $MCP), in 1 file
          b.txt  deleted
        `bowline redo` brings it back
        --- 0
        $ bowline undo
        undone the last turn (turn 1 of session $SHORT: write a.txt: by a turn\n), in 1 file
          a.txt  deleted
        `bowline redo` brings it back
        --- 0
        $ bowline undo
        --- stderr
        bowline: there is nothing to undo: no change of an agent is in effect here
        --- 1
        $ bowline redo
        redone what was undone last, in 1 file
          a.txt  there again
        --- 0
    "#]]
    .assert_eq(&normalize_mcp_sessions(&told));
    assert!(scene.has_file("a.txt") && !scene.has_file("b.txt") && !scene.has_file("c.txt"));
}

#[test]
fn a_directory_above_or_below_changes_says_where_they_are() {
    let scene = CliFixture::new();
    scene.write_file("sub/x.txt", "x\n");
    scene.run_agent("write a.txt: x\\n");
    let base = scene.base().display().to_string();
    // In a subdirectory with its own journal, in which nothing is left to undo.
    let sub = scene.file_path("sub");
    let told = scene.run_all(&[
        &["changes", "--cwd", &base],
        &["undo", "--cwd", &base],
        &["diff", "--cwd", &base],
        &["run", "--cwd", &sub, "--approve", "all", "--format", "quiet", "write y.txt: y\\n"],
        &["undo", "--cwd", &sub],
        &["undo", "--cwd", &sub],
        &["changes", "--cwd", &sub],
        &["undo", "--cwd", &scene.file_path("")],
    ]);
    expect![[r#"
        $ bowline changes --cwd $BASE
        no agent has changed anything in $BASE yet
        agents changed files in $PROJECT: bowline changes --cwd $PROJECT
        --- 0
        $ bowline undo --cwd $BASE
        --- stderr
        bowline: there is nothing to undo: no agent has changed anything in $BASE yet
        agents changed files in $PROJECT: bowline undo --cwd $PROJECT
        --- 1
        $ bowline diff --cwd $BASE
        --- stderr
        bowline: no agent has changed anything in $BASE yet
        agents changed files in $PROJECT: bowline diff --cwd $PROJECT
        --- 0
        $ bowline run --cwd $PROJECT/sub --approve all --format quiet write y.txt: y\n
        Wrote `y.txt`.
        --- 0
        $ bowline undo --cwd $PROJECT/sub
        undone the last turn (turn 1 of session $SHORT: write y.txt: y\n), in 1 file
          y.txt  deleted
        `bowline redo` brings it back
        --- 0
        $ bowline undo --cwd $PROJECT/sub
        --- stderr
        bowline: there is nothing to undo: no change of an agent is in effect here
        agents changed files in $PROJECT: bowline undo --cwd $PROJECT
        --- 1
        $ bowline changes --cwd $PROJECT/sub
        0 changes; 1 more is undone (--all)
        --- stderr
        bowline: agents changed files in $PROJECT: bowline changes --cwd $PROJECT
        --- 0
        $ bowline undo --cwd $PROJECT/
        undone the last turn (turn 1 of session $SHORT: write a.txt: x\n), in 1 file
          a.txt  deleted
        `bowline redo` brings it back
        --- 0
    "#]]
    .assert_eq(&told);
    assert!(!scene.has_file("a.txt"));
}

#[test]
fn a_long_list_is_cut_and_says_so() {
    let scene = CliFixture::new();
    scene.run_agent("run for i in $(seq 10 40); do echo $i > f$i; done");
    let told = scene.run_all(&[&["changes"], &["undo"]]);
    expect![[r#"
        $ bowline changes
        session $SHORT
          turn 1 · run for i in $(seq 10 40); do echo $i > f$i; done · WHEN (just now)
            $ /bin/sh -c 'for i in $(seq 10 40); do echo $i > f$i; done'  call turn1_1
             1 created  f10 +1  observed
             2 created  f11 +1  observed
             3 created  f12 +1  observed
             4 created  f13 +1  observed
             5 created  f14 +1  observed
             6 created  f15 +1  observed
             7 created  f16 +1  observed
             8 created  f17 +1  observed
             9 created  f18 +1  observed
            10 created  f19 +1  observed
            11 created  f20 +1  observed
            12 created  f21 +1  observed
            13 created  f22 +1  observed
            14 created  f23 +1  observed
            15 created  f24 +1  observed
            16 created  f25 +1  observed
            17 created  f26 +1  observed
            18 created  f27 +1  observed
            19 created  f28 +1  observed
            20 created  f29 +1  observed
            … and 11 more (--full)

        31 changes; bowline undo takes the last turn back, bowline undo --change 31 one change
        --- 0
        $ bowline undo
        undone the last turn (turn 1 of session $SHORT: run for i in $(seq 10 40); do echo $i > f$i; done), in 31 files
          f10  deleted (found on disk after a command)
          f11  deleted (found on disk after a command)
          f12  deleted (found on disk after a command)
          f13  deleted (found on disk after a command)
          f14  deleted (found on disk after a command)
          f15  deleted (found on disk after a command)
          f16  deleted (found on disk after a command)
          f17  deleted (found on disk after a command)
          f18  deleted (found on disk after a command)
          f19  deleted (found on disk after a command)
          f20  deleted (found on disk after a command)
          f21  deleted (found on disk after a command)
          f22  deleted (found on disk after a command)
          f23  deleted (found on disk after a command)
          f24  deleted (found on disk after a command)
          f25  deleted (found on disk after a command)
          f26  deleted (found on disk after a command)
          f27  deleted (found on disk after a command)
          f28  deleted (found on disk after a command)
          f29  deleted (found on disk after a command)
          … and 11 more
        `bowline redo` brings it back
        what was found on disk may be your own work, saved meanwhile, or that of another program; undo --written-only leaves that alone
        --- 0
    "#]].assert_eq(&told);
    let full = scene.run(&["changes", "--full", "--all", "--turn", "1"]);
    assert!(full.contains(" f40 ") && !full.contains("more (--full)"), "{full}");
}

#[tokio::test]
async fn on_a_terminal_lists_go_through_the_pager() {
    let scene = CliFixture::new();
    scene.run_agent("write a.txt: x\\n");
    let pager = [("PAGER", "sed 's/^/[paged] /'")];
    for (arguments, text) in [
        (&["changes"][..], "[paged] session"),
        (&["diff"], "[paged] \u{1b}[1mdiff"),
        (&["undo", "--dry-run"], "[paged] "),
        (&["sessions", "show", "last"], "[paged] session"),
        (&["audit"], "[paged] "),
    ] {
        let mut screen = Screen::start_with(&scene, arguments, &pager);
        assert_eq!(screen.wait_for_exit().await, Some(0));
        let written = String::from_utf8_lossy(&screen.raw_output).replace("\u{1b}[1msession", "session");
        assert!(written.contains(text), "{arguments:?}: {written}");
    }
    // Without a pager, or with one that does not exist, the text is printed directly; so is output to a pipe.
    for pager in ["", "cat", "no-such-pager-anywhere"] {
        let mut screen = Screen::start_with(&scene, &["changes"], &[("PAGER", pager)]);
        assert_eq!(screen.wait_for_exit().await, Some(0));
        assert!(String::from_utf8_lossy(&screen.raw_output).contains("a.txt"), "{pager}");
    }
    let mut command = scene.command(&["changes"]);
    command.env("PAGER", "false").env("TERM", "xterm");
    assert!(scene.describe_output(&scene.run_command(command, "")).contains("a.txt"));
}

#[test]
fn times_are_local_and_titles_are_prompts() {
    let scene = CliFixture::new();
    scene.run_agent("say hello\nwrite a.txt: x\\n");
    let told = |zone: &str| {
        let mut command = scene.command(&["changes"]);
        command.env("TZ", zone);
        let output = scene.run_command(command, "");
        String::from_utf8(output.stdout).unwrap()
    };
    let hour = |text: &str| -> i32 {
        let line = text.lines().find(|line| line.contains("say hello")).unwrap();
        let time = line.split_once("say hello · ").unwrap().1;
        time["2026-01-01 ".len().."2026-01-01 23".len()].parse().unwrap()
    };
    let (west, utc) = (told("<-05>5"), told("UTC0"));
    assert_eq!((hour(&utc) - hour(&west)).rem_euclid(24), 5, "{utc}\n{west}");
}

#[test]
fn a_change_that_was_reverted_by_hand_is_shown_as_such() {
    let scene = CliFixture::new();
    scene.write_file("a.txt", "one\n");
    scene.run_agent("write a.txt: two\\n");
    scene.run_next_turn("write a.txt: three\\n\nwrite b.txt: new\\n");
    scene.write_file("a.txt", "one\n");
    std::fs::remove_file(scene.file_path("b.txt")).unwrap();
    let told = scene.run_all(&[&["changes"]]);
    expect![[r#"
        $ bowline changes
        session $SHORT
          turn 1 · write a.txt: two\n · WHEN (just now)
            1 edited   a.txt +1 −1  call turn1_1, reverted by hand
          turn 2 · write a.txt: three\n · WHEN (just now)
            2 edited   a.txt +1 −1  call turn2_1, reverted by hand
            3 created  b.txt +1  call turn2_2, reverted by hand

        3 changes; bowline undo takes the last turn back, bowline undo --change 3 one change
        --- 0
    "#]]
    .assert_eq(&told);
}

#[test]
fn undo_removes_the_directories_that_it_empties_and_names_links() {
    let scene = CliFixture::new();
    scene.write_file("old/keep.txt", "x\n");
    std::fs::create_dir(scene.file_path("mine")).unwrap();
    scene
        .run_agent("run mkdir -p new/deep empty && echo x > new/deep/f && echo x > mine/f && ln -s old link");
    let told = scene.run_all(&[&["undo"], &["redo"], &["undo"]]);
    expect![[r#"
        $ bowline undo
        undone the last turn (turn 1 of session $SHORT: run mkdir -p new/deep empty && echo x > new/deep/f && echo x…), in 2 files
          mine/f      deleted (found on disk after a command)
          new/deep/f  deleted (found on disk after a command)
        removed empty directories: new, new/deep
        links and empty directories made meanwhile are still there: empty/, link
        `bowline redo` brings it back
        what was found on disk may be your own work, saved meanwhile, or that of another program; undo --written-only leaves that alone
        --- 0
        $ bowline redo
        redone what was undone last, in 2 files
          mine/f      there again
          new/deep/f  there again
        --- 0
        $ bowline undo
        undone the last turn (turn 1 of session $SHORT: run mkdir -p new/deep empty && echo x > new/deep/f && echo x…), in 2 files
          mine/f      deleted (found on disk after a command)
          new/deep/f  deleted (found on disk after a command)
        removed empty directories: new, new/deep
        links and empty directories made meanwhile are still there: empty/, link
        `bowline redo` brings it back
        what was found on disk may be your own work, saved meanwhile, or that of another program; undo --written-only leaves that alone
        --- 0
    "#]].assert_eq(&told);
    assert!(
        !scene.has_file("new") && scene.has_file("empty") && scene.has_file("mine") && scene.has_file("link")
    );
}

#[test]
fn a_conflict_is_shown_marked_or_forced_and_each_can_be_taken_back() {
    let scene = CliFixture::new();
    scene.write_file("a.txt", "one\ntwo\nthree\n");
    scene.run_agent("replace \"two\" with \"2\" in a.txt\nwrite b.txt: b\\n");
    scene.write_file("a.txt", "one\nmine\nthree\n");
    scene.write_file("b.txt", "b, edited\n");
    let mut told = scene.run_all(&[
        &["undo"],
        &["undo", "--conflicts", "show"],
        &["undo", "--conflicts", "show", "--json"],
        &["undo", "--conflicts", "markers"],
        &["undo", "--file", "a.txt", "--conflicts", "markers"],
    ]);
    told += &scene.read_file("a.txt");
    told += &scene.run_all(&[&["redo"], &["undo", "--conflicts", "force"]]);
    told += &scene.read_file("a.txt");
    assert!(!scene.has_file("b.txt"));
    told += &scene.run_all(&[&["redo"]]);
    expect![[r#"
        $ bowline undo
        --- stderr
        bowline: b.txt: change 2: it created the file, which was edited since; delete the file if it is not needed
        bowline: a.txt: change 1: its lines were changed since: conflicting changes in 1 place, first at line 2
        bowline: cannot undo 2 of 2 files, so nothing is undone; --conflicts show tells more, markers or force resolves it
        --- 1
        $ bowline undo --conflicts show
        b.txt: change 2: it created the file, which was edited since; delete the file if it is not needed
        a.txt: change 1: its lines were changed since: conflicting changes in 1 place, first at line 2
          line 2
            now:
            - mine
            before the change:
            + two

        run the same command again with one of these instead:
          --conflicts markers   puts both sides into the files, to be edited
          --conflicts force     brings back what was before, and drops what is there now
        --- 0
        $ bowline undo --conflicts show --json
        {"workspace":"$PROJECT","what":"the last turn (turn 1 of session $SHORT: replace \"two\" with \"2\" in a.txt)","conflicts":[{"path":"$PROJECT/b.txt","reason":"change 2: it created the file, which was edited since; delete the file if it is not needed","places":[]},{"path":"$PROJECT/a.txt","reason":"change 1: its lines were changed since: conflicting changes in 1 place, first at line 2","places":[{"line":2,"now":"mine\n","after":"2\n","before":"two\n"}]}]}
        --- 0
        $ bowline undo --conflicts markers
        --- stderr
        bowline: b.txt: change 2: it created the file, which was edited since; delete the file if it is not needed
        bowline: cannot undo 1 of 2 files, so nothing is undone: choose fewer, or --keep-going for the others
        --- 1
        $ bowline undo --file a.txt --conflicts markers
        undone what agents did to a.txt, in 1 file
          a.txt  with conflict markers
        edit the files with conflict markers, then save them
        `bowline redo` brings it back
        --- 0
        one
        <<<<<<< now
        mine
        ||||||| after the change
        2
        =======
        two
        >>>>>>> before the change
        three
        $ bowline redo
        redone what was undone last, in 1 file
          a.txt  as it was before the undo
        --- 0
        $ bowline undo --conflicts force
        undone the last turn (turn 1 of session $SHORT: replace "two" with "2" in a.txt), in 2 files
          a.txt  forced, later edits dropped
          b.txt  forced, later edits dropped
        `bowline redo` brings it back
        --- 0
        one
        two
        three
        $ bowline redo
        redone what was undone last, in 2 files
          a.txt  as it was before the undo
          b.txt  there again
        --- 0
    "#]].assert_eq(&told);
    assert_eq!(
        (scene.read_file("a.txt").as_str(), scene.read_file("b.txt").as_str()),
        ("one\nmine\nthree\n", "b, edited\n")
    );
}

#[test]
fn changes_that_follow_each_other_are_marked_once() {
    let scene = CliFixture::new();
    scene.write_file("a.txt", "one\ntwo\nthree\n");
    scene.run_agent("replace \"two\" with \"2\" in a.txt");
    scene.run_next_turn("replace \"2\" with \"II\" in a.txt");
    scene.write_file("a.txt", "one\nmine\nthree\n");
    let told = scene.run(&["undo", "--session", "last", "--conflicts", "markers"]);
    assert!(told.contains("with conflict markers"), "{told}");
    expect![[r#"
        one
        <<<<<<< now
        mine
        ||||||| after the change
        II
        =======
        two
        >>>>>>> before the change
        three
    "#]]
    .assert_eq(&scene.read_file("a.txt"));
}

#[test]
fn undo_redo_and_diff_tell_programs_what_they_did() {
    let scene = CliFixture::new();
    scene.write_file("a.txt", "one\n");
    scene.run_agent("write a.txt: two\\n\nwrite b.txt: new\\n");
    let (dry, code) = scene.run_json(&["undo", "--dry-run", "--json"]);
    assert_eq!(
        (code, dry["dry_run"].as_bool(), dry["files"].as_array().unwrap().len()),
        (Some(0), Some(true), 2)
    );
    assert!(dry["files"][0]["patch"].as_str().unwrap().starts_with("diff --git"));
    let (diff, code) = scene.run_json(&["diff", "--json", "--file", "a.txt"]);
    assert_eq!((code, &diff["path"], &diff["added"]), (Some(0), &json!(scene.file_path("a.txt")), &json!(1)));
    let (undone, code) = scene.run_json(&["undo", "--json"]);
    assert_eq!((code, undone["files"].as_array().unwrap().len()), (Some(0), 2));
    let results: Vec<&str> =
        undone["files"].as_array().unwrap().iter().filter_map(|file| file["result"].as_str()).collect();
    assert!(results.contains(&"deleted") && results.contains(&"as it was before"), "{undone}");
    let (redone, code) = scene.run_json(&["redo", "--json"]);
    assert_eq!((code, &redone["command"]), (Some(0), &json!("redo")));
    scene.write_file("a.txt", "mine\n");
    let (refused, code) = scene.run_json(&["undo", "--json"]);
    assert_eq!(code, Some(1));
    assert_eq!(refused["refused"][0]["places"][0]["now"], json!("mine\n"), "{refused}");
}

#[test]
fn rewind_lists_turns_by_prompt_and_goes_back_to_before_one() {
    let scene = CliFixture::new();
    scene.run_agent("write a.txt: one\\n");
    scene.run_next_turn("write a.txt: two\\n");
    scene.run_next_turn("write a.txt: three\\n\nwrite b.txt: b\\n");
    scene.write_file("mine.txt", "mine\n");
    let mut told = scene.run_all(&[
        &["rewind"],
        &["rewind", "99"],
        &["rewind", "2", "--dry-run"],
        &["rewind", "2"],
        &["rewind"],
        &["redo"],
        &["rewind", "1", "--json"],
    ]);
    told += &scene.run_all(&[&["rewind"]]);
    expect![[r#"
        $ bowline rewind
        3  write a.txt: three\n  2 files · just now · session $SHORT
        2  write a.txt: two\n  1 file · just now · session $SHORT
        1  write a.txt: one\n  1 file · just now · session $SHORT
        --- stderr
        bowline: `bowline rewind NUMBER` goes back to before that turn
        --- 0
        $ bowline rewind 99
        --- stderr
        bowline: there is no turn 99 to go back to: `bowline rewind` lists them
        --- 1
        $ bowline rewind 2 --dry-run
        diff --git a/b.txt b/b.txt
        deleted file mode 100644
        --- a/b.txt
        +++ /dev/null
        @@ -1 +0,0 @@
        -b
        diff --git a/a.txt b/a.txt
        --- a/a.txt
        +++ b/a.txt
        @@ -1 +1 @@
        -three
        +one
        --- stderr
        bowline: 2 turns (write a.txt: two\n and what came after it) would be undone, in 2 files
        --- 0
        $ bowline rewind 2
        undone 2 turns (write a.txt: two\n and what came after it), in 2 files
          a.txt  as it was before
          b.txt  deleted
        `bowline redo` brings it back
        --- 0
        $ bowline rewind
        1  write a.txt: one\n  1 file · just now · session $SHORT
        --- stderr
        bowline: `bowline rewind NUMBER` goes back to before that turn
        --- 0
        $ bowline redo
        redone what was undone last, in 2 files
          a.txt  as it was before the undo
          b.txt  there again
        --- 0
        $ bowline rewind 1 --json
        {"command":"undo","workspace":"$PROJECT","what":"3 turns (write a.txt: one\\n and what came after it)","dry_run":false,"files":[{"path":"$PROJECT/b.txt","change":9,"reverses":[4],"result":"deleted","found":false,"conflicts":0},{"path":"$PROJECT/a.txt","change":10,"reverses":[3,2,1],"result":"deleted","found":false,"conflicts":0}],"left":[],"refused":[],"kept":[],"removed_directories":[],"remaining":[]}
        --- 0
        $ bowline rewind
        --- stderr
        bowline: there is nothing to rewind: no change of an agent is in effect here
        --- 1
    "#]].assert_eq(&told);
    assert!(!scene.has_file("a.txt") && !scene.has_file("b.txt") && scene.has_file("mine.txt"));
}

#[test]
fn the_result_of_a_run_is_one_object() {
    let scene = CliFixture::new();
    let (mut result, code) =
        scene.run_json(&["run", "--approve", "edits", "--format", "result", "write a.txt: x\\n"]);
    assert_eq!((code, result["session"].as_str().map(str::len)), (Some(0), Some(32)));
    result["session"] = json!("$SESSION");
    let text = serde_json::to_string_pretty(&result).unwrap();
    expect![[r#"
        {
          "session": "$SESSION",
          "turn": 1,
          "stop_reason": "end_turn",
          "answer": "Wrote `a.txt`.",
          "changes": [
            {
              "path": "$PROJECT/a.txt",
              "result": "created",
              "added": 1,
              "removed": 0,
              "found": null,
              "can_undo": true
            }
          ],
          "undo": "bowline undo",
          "tool_calls": [
            {
              "call": "turn1_1",
              "title": "Write a.txt",
              "failed": false
            }
          ],
          "denials": [],
          "usage": null,
          "exit_status": 0,
          "error": null
        }"#]]
    .assert_eq(&scene.normalize(&text));
    let (denied, code) = scene.run_json(&["run", "--format", "result", "write b.txt: x\\n"]);
    assert_eq!(
        (code, &denied["exit_status"], denied["denials"].as_array().map(Vec::len)),
        (Some(5), &json!(5), Some(1))
    );
    assert!(denied["denials"][0].as_str().unwrap().contains("b.txt"), "{denied}");
}

#[test]
fn strictly_a_run_fails_in_which_nothing_was_done_or_a_tool_failed() {
    let scene = CliFixture::new();
    scene.write_file("a.txt", "x\n");
    let told = scene.run_all(&[
        &["run", "--strict", "--format", "quiet", "say hello"],
        &["run", "--format", "quiet", "say hello"],
        &["run", "--strict", "--format", "quiet", "read a.txt"],
        &["run", "--strict", "--format", "quiet", "read missing.txt"],
    ]);
    expect![[r#"
        $ bowline run --strict --format quiet say hello
        hello
        --- stderr
        bowline: --strict: the agent did nothing
        --- 1
        $ bowline run --format quiet say hello
        hello
        --- 0
        $ bowline run --strict --format quiet read a.txt
        `a.txt`:

        ```txt
        [a.txt: all of it, 1 line, read through the editor]
        x
        ```
        --- 0
        $ bowline run --strict --format quiet read missing.txt
        Reading `missing.txt` did not work:

        ```
        missing.txt does not exist (the editor says so)
        ```
        --- stderr
        bowline: --strict: failed: Read missing.txt
        --- 1
    "#]]
    .assert_eq(&told);
}

#[test]
fn a_timeout_may_be_a_fraction_of_a_second() {
    let scene = CliFixture::new();
    // On a busy machine, the agent has not even started by then.
    let told = scene.run(&["run", "--timeout", "0.2", "--format", "quiet", "wait 60"]);
    assert!(told.ends_with("--- 3\n"), "{told}");
    let told =
        scene.run_all(&[&["run", "--timeout", "0", "say hello"], &["run", "--timeout", "soon", "say hello"]]);
    expect![[r#"
        $ bowline run --timeout 0 say hello
        --- stderr
        bowline: invalid value '0' for '--timeout <SECONDS>': write a number of seconds that leaves some time, such as 600 or 0.5 (see --help)
        --- 2
        $ bowline run --timeout soon say hello
        --- stderr
        bowline: invalid value 'soon' for '--timeout <SECONDS>': write a number of seconds that leaves some time, such as 600 or 0.5 (see --help)
        --- 2
    "#]].assert_eq(&told);
}

#[test]
fn sessions_are_renamed_searched_copied_and_deleted_by_age() {
    let scene = CliFixture::new();
    std::fs::create_dir(scene.base().join("other")).unwrap();
    let other = scene.base().join("other").display().to_string();
    scene.run_agent("say The Parser is slow");
    scene.run_agent("say something else");
    let told = scene.run_all(&[
        &["sessions", "search", "the parser"],
        &["sessions", "search", "nowhere to be found"],
        &["sessions", "rename", "last", "A better title"],
        &["sessions", "rename", "last", " "],
        &["sessions", "list"],
        &["sessions", "fork", "last"],
        &["sessions", "fork", "last", "--cwd", &other],
        &["sessions", "list", "--all"],
        &["run", "--session", "last", "--cwd", &other, "--format", "quiet", "say here"],
        &["sessions", "delete", "--older-than", "1d", "--yes"],
        &["sessions", "delete", "--older-than", "0s"],
        &["sessions", "delete", "--older-than", "0s", "--yes"],
        &["sessions", "list", "--all"],
    ]);
    expect![[r#"
        $ bowline sessions search the parser
        $SHORT  say The Parser is slow  just now
            you: say The Parser is slow
            agent: The Parser is slow
        --- 0
        $ bowline sessions search nowhere to be found
        no session has nowhere to be found (--all looks in every directory)
        --- 0
        $ bowline sessions rename last A better title
        renamed session $SHORT to A better title
        --- 0
        $ bowline sessions rename last  
        --- stderr
        bowline: the title is empty: write one
        --- 2
        $ bowline sessions list
        $SHORT  A better title
            just now · 1 turn · offline
        $SHORT  say The Parser is slow
            just now · 1 turn · offline
        --- 0
        $ bowline sessions fork last
        session $SHORT is a copy of $SHORT; go on with it: bowline run --session $SHORT PROMPT
        --- 0
        $ bowline sessions fork last --cwd $BASE/other
        session $SHORT is a copy of $SHORT; go on with it: bowline run --cwd $BASE/other --session $SHORT PROMPT
        --- 0
        $ bowline sessions list --all
        $SHORT  A better title (copy)
            just now · 1 turn · offline · $BASE/other
        $SHORT  A better title (copy)
            just now · 1 turn · offline · $PROJECT
        $SHORT  A better title
            just now · 1 turn · offline · $PROJECT
        $SHORT  say The Parser is slow
            just now · 1 turn · offline · $PROJECT
        --- 0
        $ bowline run --session last --cwd $BASE/other --format quiet say here
        here
        --- 0
        $ bowline sessions delete --older-than 1d --yes
        no session is that old: nothing was deleted
        --- 0
        $ bowline sessions delete --older-than 0s
        --- stderr
        bowline: the user cannot be asked: delete 3 sessions with --yes
        --- 2
        $ bowline sessions delete --older-than 0s --yes
        deleted 3 sessions
        --- 0
        $ bowline sessions list --all
        $SHORT  A better title (copy)
            just now · 2 turns · offline · $BASE/other
        --- 0
    "#]].assert_eq(&told);
}

#[test]
fn a_session_does_not_move_to_another_directory_by_itself() {
    let scene = CliFixture::new();
    std::fs::create_dir(scene.base().join("other")).unwrap();
    let other = scene.base().join("other").display().to_string();
    scene.run_agent("say hello");
    let (listed, _) = scene.run_json(&["sessions", "--json"]);
    let id = listed["id"].as_str().unwrap();
    let say = ["--format", "quiet", "say here"];
    let mut told = scene.run_all(&[
        &[&["run", "--cwd", &other, "--session", id][..], &say].concat(),
        &[&["run", "--cwd", &other, "--session", &id[..8]][..], &say].concat(),
        &[&["run", "--session", &id[..8]][..], &say].concat(),
    ]);
    told += &scene.run_all(&[&["sessions", "list", "--all"]]);
    expect![[r#"
        $ bowline run --cwd $BASE/other --session $SESSION --format quiet say here
        --- stderr
        bowline: session $SHORT works in another directory: go on with it there (--cwd $PROJECT), or copy it here with `bowline sessions fork $SHORT`
        --- 2
        $ bowline run --cwd $BASE/other --session $SHORT --format quiet say here
        --- stderr
        bowline: session $SHORT works in another directory: go on with it there (--cwd $PROJECT), or copy it here with `bowline sessions fork $SHORT`
        --- 2
        $ bowline run --session $SHORT --format quiet say here
        here
        --- 0
        $ bowline sessions list --all
        $SHORT  say hello
            just now · 2 turns · offline · $PROJECT
        --- 0
    "#]].assert_eq(&told);
}

#[test]
fn a_missing_audit_log_is_reported_and_can_be_replaced() {
    let scene = CliFixture::new();
    scene.run_agent("write a.txt: x\\n");
    let log = scene.journal_dir().join("audit");
    std::fs::remove_dir_all(&log).unwrap();
    let clean = |told: String| {
        let name = scene.journal_dir().file_name().unwrap().to_string_lossy().into_owned();
        told.replace(&name, "$NAME")
    };
    let told = scene.run_all(&[
        &["audit"],
        &["run", "--format", "quiet", "say hello"],
        &["audit", "verify"],
        &["audit", "archive"],
        &["audit", "verify"],
        &["audit"],
        &["audit", "archive", "--json"],
    ]);
    expect![[r#"
        $ bowline audit
        --- stderr
        bowline: the audit log $HOME/.local/state/bowline/workspaces/$NAME/audit is missing, and its anchor knows that it had entries: `bowline audit verify` tells more, `bowline audit archive` begins a new one
        --- 1
        $ bowline run --format quiet say hello
        hello
        --- stderr
        bowline: the audit log $HOME/.local/state/bowline/workspaces/$NAME/audit is missing, and its anchor knows that it had entries: `bowline audit verify` tells more, `bowline audit archive` begins a new one
        --- 0
        $ bowline audit verify
        $HOME/.local/state/bowline/workspaces/$NAME/audit
        not as it was written: 5 entries in 1 file, 9 to 13
          audit-00000001.jsonl:1: entries 1 to 8 were removed from the start, and not by rotation
          audit-00000001.jsonl:1: the log itself tells: the log ended before what its anchor says
        --- stderr
        bowline: the audit log is not as it was written: 1 fault
        --- 1
        $ bowline audit archive
        the audit log is in $HOME/.local/state/bowline/workspaces/$NAME/audit.archived-1, and a new one is begun
        --- 0
        $ bowline audit verify
        $HOME/.local/state/bowline/workspaces/$NAME/audit
        whole: 1 entry in 1 file, 1 to 1
          audit-00000001.jsonl:1: the log itself tells: a new log was begun, the one before is in $HOME/.local/state/bowline/workspaces/$NAME/audit.archived-1
        --- 0
        $ bowline audit
            1 WHEN  allowed   log/repair · by user · a new log was begun, the one before is in $HOME/.local/state/bowline/workspaces/$NAME/audit.archived-1
        --- 0
        $ bowline audit archive --json
        {"archive":"$HOME/.local/state/bowline/workspaces/$NAME/audit.archived-2","log":"$HOME/.local/state/bowline/workspaces/$NAME/audit"}
        --- 0
    "#]].assert_eq(&clean(told));
    assert!(scene.journal_dir().join("audit.archived-1/anchor").exists());
}
