//! Tests of every tool over a pipe: the text that a model reads.

use expect_test::{Expect, expect};
use serde_json::json;

use crate::harness::McpTestProject;

/// Calls tools one after the other, and compares the whole text that a model reads.
async fn check(options: &[&str], calls: &[(&str, serde_json::Value)], expected: Expect) {
    let scene = McpTestProject::new();
    let mut program = scene.start(options).await;
    let mut text = String::new();
    for (name, arguments) in calls {
        text.push_str(&format!("> {name} {arguments}\n"));
        text.push_str(program.call_tool(name, arguments.clone()).await.trim_end());
        text.push('\n');
    }
    assert_eq!(program.close().await, Some(0));
    expected.assert_eq(&scene.normalize(&text));
}

#[tokio::test]
async fn files_are_read_written_and_edited() {
    check(
        &["--approve", "edits"],
        &[
            ("read_text_file", json!({ "path": "a.txt", "line": 2, "limit": 1 })),
            ("write_text_file", json!({ "path": "a.txt", "content": "blind\n" })),
            ("read_text_file", json!({ "path": "a.txt" })),
            ("write_text_file", json!({ "path": "a.txt", "content": "one\ntwo\n3\n" })),
            (
                "edit_text_file",
                json!({ "path": "a.txt", "edits": [
                { "old_text": "one", "new_text": "1" },
                { "old_text": "missing", "new_text": "2" },
            ] }),
            ),
            (
                "edit_text_file",
                json!({ "path": "a.txt", "edits": [
                { "old_text": "one", "new_text": "1" },
                { "old_text": "two", "new_text": "2" },
            ] }),
            ),
            ("write_text_file", json!({ "path": "sub/new.txt", "content": "new\n" })),
            ("list_directory", json!({ "depth": 2 })),
            ("search_text", json!({ "pattern": "^[0-9]$", "regex": true })),
        ],
        expect![[r#"
            > read_text_file {"path":"a.txt","line":2,"limit":1}
            [a.txt: lines 2-2 of 3]
            two
            [continue with line=3]
            > write_text_file {"path":"a.txt","content":"blind\n"}
            ! nothing was written: a.txt: this session has read only a part of the text and would change or remove lines 1 to 3, which it has not read: read the rest of the text first, or change only lines that it has read
            > read_text_file {"path":"a.txt"}
            [a.txt: all of it, 3 lines]
            one
            two
            three
            > write_text_file {"path":"a.txt","content":"one\ntwo\n3\n"}
            Wrote a.txt (3 lines).
            > edit_text_file {"path":"a.txt","edits":[{"old_text":"one","new_text":"1"},{"old_text":"missing","new_text":"2"}]}
            ! nothing was edited in a.txt: old_text of edit 2 is not in the file
            > edit_text_file {"path":"a.txt","edits":[{"old_text":"one","new_text":"1"},{"old_text":"two","new_text":"2"}]}
            Edited a.txt in 2 places.
            > write_text_file {"path":"sub/new.txt","content":"new\n"}
            Created sub/new.txt (1 line).
            > list_directory {"depth":2}
            [.: 4 names; what ignore rules hide is left out]
            .env (9 bytes)
            a.txt (6 bytes)
            sub/
            sub/new.txt (4 bytes)
            > search_text {"pattern":"^[0-9]$","regex":true}
            [3 matching lines; 2 files searched; 1 protected file left out]
            a.txt
              1: 1
              2: 2
              3: 3
        "#]],
    )
    .await;
}

#[tokio::test]
async fn several_files_are_changed_with_rules_for_each() {
    let write = |path: &str| json!({ "path": path, "content": "new\n" });
    check(
        &["--approve", "edits"],
        &[
            ("write_files", json!({ "files": [write("b.txt"), write("sub/c.txt")] })),
            ("write_files", json!({ "files": [write("d.txt"), write(".env")] })),
            ("append_file", json!({ "path": "b.txt", "content": "more\n" })),
            ("move_file", json!({ "from": "b.txt", "to": "d.txt" })),
            ("move_file", json!({ "from": "d.txt", "to": ".env", "overwrite": true })),
            ("delete_file", json!({ "path": "d.txt" })),
            ("delete_file", json!({ "path": "/etc/passwd" })),
            ("stat_file", json!({ "path": ".env" })),
            ("list_directory", json!({})),
        ],
        expect![[r#"
            > write_files {"files":[{"path":"b.txt","content":"new\n"},{"path":"sub/c.txt","content":"new\n"}]}
            2 files:
            - Created b.txt (1 line)
            - Created sub/c.txt (1 line)
            > write_files {"files":[{"path":"d.txt","content":"new\n"},{"path":".env","content":"new\n"}]}
            ! nothing was written: .env: denied: no rule allows it, and the user cannot be asked. The user can allow it by a rule: `bowline policy allow read .env`.
            > append_file {"path":"b.txt","content":"more\n"}
            Appended 1 line to b.txt.
            > move_file {"from":"b.txt","to":"d.txt"}
            ! nothing was changed: the files: denied: no rule allows it, and the user cannot be asked. The user can allow it by starting the server with `bowline mcp --approve all`, or by a rule: `bowline policy allow delete b.txt`.
            > move_file {"from":"d.txt","to":".env","overwrite":true}
            ! nothing was changed: d.txt does not exist: list the directory to see what is there
            > delete_file {"path":"d.txt"}
            ! nothing was changed: d.txt does not exist: list the directory to see what is there
            > delete_file {"path":"/etc/passwd"}
            ! nothing was changed: /etc/passwd is outside the directories of this session
            > stat_file {"path":".env"}
            ! .env: denied: no rule allows it, and the user cannot be asked. The user can allow it by a rule: `bowline policy allow read .env`.
            > list_directory {}
            [.: 4 names; what ignore rules hide is left out]
            .env (9 bytes)
            a.txt (14 bytes)
            b.txt (9 bytes)
            sub/
        "#]],
    )
    .await;
}

#[tokio::test]
async fn what_is_wrong_with_a_call_is_told_with_what_to_do() {
    check(
        &["--approve", "edits"],
        &[
            ("read_text_file", json!({})),
            ("read_text_file", json!({ "path": 7 })),
            ("read_text_file", json!({ "path": "missing.txt" })),
            ("read_text_file", json!({ "path": "a.txt", "line": 9 })),
            ("read_text_file", json!({ "path": "../outside" })),
            ("read_text_file", json!({ "path": "/etc/passwd" })),
            ("read_text_file", json!({ "path": ".env" })),
            ("write_text_file", json!({ "path": ".env", "content": "" })),
            ("edit_text_file", json!({ "path": "a.txt", "edits": [] })),
            ("search_text", json!({ "pattern": "(", "regex": true })),
            ("search_text", json!({ "pattern": "SECRET" })),
            ("list_directory", json!({ "path": "a.txt" })),
            ("execute", json!({ "command": "echo hi" })),
            ("terminal_output", json!({ "id": "bg9" })),
            ("no_such_tool", json!({})),
        ],
        expect![[r#"
            > read_text_file {}
            ! `path` is missing: give a string
            > read_text_file {"path":7}
            ! `path` has to be a string, and is a number
            > read_text_file {"path":"missing.txt"}
            ! missing.txt does not exist: list the directory to see what is there
            > read_text_file {"path":"a.txt","line":9}
            ! a.txt has 3 lines: line 9 is past the end
            > read_text_file {"path":"../outside"}
            ! $BASE/outside is outside the workspace: only its own directories can be used
            > read_text_file {"path":"/etc/passwd"}
            ! /etc/passwd is outside the workspace: only its own directories can be used
            > read_text_file {"path":".env"}
            ! .env: denied: no rule allows it, and the user cannot be asked. The user can allow it by a rule: `bowline policy allow read .env`.
            > write_text_file {"path":".env","content":""}
            ! nothing was written: .env: denied: no rule allows it, and the user cannot be asked. The user can allow it by a rule: `bowline policy allow read .env`.
            > edit_text_file {"path":"a.txt","edits":[]}
            ! nothing was edited in a.txt: there are no edits: give at least one
            > search_text {"pattern":"(","regex":true}
            ! the pattern cannot be searched for: regex parse error:
                (?:()
                ^
            error: unclosed group
            > search_text {"pattern":"SECRET"}
            [0 matching lines; 1 file searched; 1 protected file left out]
            > list_directory {"path":"a.txt"}
            ! a.txt: $PROJECT/a.txt is not a directory
            > execute {"command":"echo hi"}
            ! not started: `echo hi`: denied: no rule allows it, and the user cannot be asked. The user can allow it by starting the server with `bowline mcp --approve all`, or by a rule: `bowline policy allow execute --exact echo hi`.
            > terminal_output {"id":"bg9"}
            ! no command runs in the background as "bg9": none runs
            > no_such_tool {}
            !! -32602 no_such_tool is no tool of this server: the tools are read_text_file, write_text_file, edit_text_file, write_files, append_file, delete_file, move_file, list_directory, stat_file, search_text, execute, terminal_output, kill_terminal
        "#]],
    )
    .await;
}

#[tokio::test]
async fn advice_is_only_what_would_help() {
    let scene = McpTestProject::new();
    let rules = "[[rules]]\neffect = \"ask\"\nkinds = [\"write\"]\npath = \"asked.txt\"\n\
                 [[rules]]\neffect = \"deny\"\nkinds = [\"write\"]\npath = \"denied.txt\"\n";
    let policy = scene.base().join("rules.toml");
    std::fs::write(&policy, rules).unwrap();
    let policy = policy.display().to_string();
    let mut text = String::new();
    for options in [&["--policy", &policy][..], &["--approve", "all"]] {
        let mut program = scene.start(options).await;
        for path in ["asked.txt", "denied.txt", ".git/config", "new.txt"] {
            let written = program.call_tool("write_text_file", json!({ "path": path, "content": "" })).await;
            text += &format!("{written}\n");
        }
        text += &format!("{}\n", program.call_tool("execute", json!({ "command": "true" })).await);
        assert_eq!(program.close().await, Some(0));
    }
    expect![[r#"
        ! nothing was written: asked.txt: denied: a rule of the user's says to ask, and the user cannot be asked
        ! nothing was written: denied.txt: denied: a rule of the user's denies it
        ! nothing was written: .git/config: denied: no rule allows it, and the user cannot be asked. The user can allow it by a rule in $BASE/rules.toml.
        ! nothing was written: new.txt: denied: no rule allows it, and the user cannot be asked. The user can allow it by starting the server with `bowline mcp --approve edits`, or by a rule in $BASE/rules.toml.
        ! not started: `true`: denied: no rule allows it, and the user cannot be asked. The user can allow it by starting the server with `bowline mcp --approve all`, or by a rule in $BASE/rules.toml.
        Created asked.txt (0 lines).
        Created denied.txt (0 lines).
        ! nothing was written: .git/config: denied: no rule allows it, and the user cannot be asked. The user can allow it by a rule: `bowline policy allow write .git/config`.
        Created new.txt (0 lines).
        [`true` ended with exit code 0, T s]

    "#]].assert_eq(&scene.normalize(&text));
}

#[tokio::test]
async fn numbers_places_and_patterns_that_make_no_sense_are_told_by_name() {
    check(
        &["--approve", "all"],
        &[
            ("read_text_file", json!({ "path": "a.txt", "line": -1 })),
            ("read_text_file", json!({ "path": "a.txt", "limit": 1e30 })),
            ("read_text_file", json!({ "path": "" })),
            ("read_text_file", json!({ "path": "a\0b" })),
            ("search_text", json!({ "pattern": "one", "path": "nowhere" })),
            ("search_text", json!({ "pattern": "one\ntwo" })),
            ("execute", json!({ "command": "echo hi", "cwd": "nowhere" })),
            ("execute", json!({ "command": "echo hi", "cwd": ".." })),
            ("execute", json!({ "command": "echo hi", "cwd": "a.txt" })),
            ("execute", json!({ "command": "echo hi", "timeout_seconds": -5 })),
        ],
        expect![[r#"
            > read_text_file {"path":"a.txt","line":-1}
            ! `line` has to be a whole number from 0 to 4294967295, and is -1
            > read_text_file {"path":"a.txt","limit":1e+30}
            ! `limit` has to be a whole number from 0 to 4294967295, and is 1e+30
            > read_text_file {"path":""}
            ! the path is empty, send an absolute path
            > read_text_file {"path":"a\u0000b"}
            ! the path "a\0b" has a NUL character
            > search_text {"pattern":"one","path":"nowhere"}
            ! nowhere does not exist: list the directory to see what is there
            > search_text {"pattern":"one\ntwo"}
            ! `pattern` has to be within a line: search for one line of it
            > execute {"command":"echo hi","cwd":"nowhere"}
            ! not started: nowhere does not exist: list the directory to see what is there
            > execute {"command":"echo hi","cwd":".."}
            ! not started: $BASE is outside the workspace: only its own directories can be used
            > execute {"command":"echo hi","cwd":"a.txt"}
            ! not started: `echo hi`: a name on the way to $PROJECT/a.txt is not a directory
            > execute {"command":"echo hi","timeout_seconds":-5}
            ! `timeout_seconds` has to be a whole number from 0 to 4294967295, and is -5
        "#]],
    )
    .await;
}

#[tokio::test]
async fn what_no_rule_allows_is_denied_with_what_would_allow_it() {
    check(
        &[],
        &[
            ("read_text_file", json!({ "path": "a.txt" })),
            ("write_text_file", json!({ "path": "b.txt", "content": "" })),
            ("execute", json!({ "command": "echo hi" })),
        ],
        expect![[r#"
            > read_text_file {"path":"a.txt"}
            [a.txt: all of it, 3 lines]
            one
            two
            three
            > write_text_file {"path":"b.txt","content":""}
            ! nothing was written: b.txt: denied: no rule allows it, and the user cannot be asked. The user can allow it by starting the server with `bowline mcp --approve edits`, or by a rule: `bowline policy allow write b.txt`.
            > execute {"command":"echo hi"}
            ! not started: `echo hi`: denied: no rule allows it, and the user cannot be asked. The user can allow it by starting the server with `bowline mcp --approve all`, or by a rule: `bowline policy allow execute --exact echo hi`.
        "#]],
    )
    .await;
}

#[tokio::test]
async fn what_is_not_offered_is_not_there() {
    check(
        &["--read-only", "--approve", "all"],
        &[
            ("read_text_file", json!({ "path": "a.txt" })),
            ("write_text_file", json!({ "path": "b.txt", "content": "" })),
            ("execute", json!({ "command": "echo hi" })),
        ],
        expect![[r#"
            > read_text_file {"path":"a.txt"}
            [a.txt: all of it, 3 lines]
            one
            two
            three
            > write_text_file {"path":"b.txt","content":""}
            !! -32602 write_text_file is not offered here: the tools are read_text_file, list_directory, stat_file, search_text
            > execute {"command":"echo hi"}
            !! -32602 execute is not offered here: the tools are read_text_file, list_directory, stat_file, search_text
        "#]],
    )
    .await;
}

#[tokio::test]
async fn commands_run_to_their_end_or_in_the_background() {
    check(
        &["--approve", "all"],
        &[
            ("execute", json!({ "command": "echo out; echo err >&2; exit 3" })),
            ("execute", json!({ "command": "printf", "args": ["%s|", "a b", "$HOME"] })),
            ("execute", json!({ "command": "echo begun; sleep 1000", "timeout_seconds": 1 })),
            ("execute", json!({ "command": "no-such-program-here", "args": ["x"] })),
            ("execute", json!({ "command": "echo $X", "env": { "X": "set" }, "cwd": "." })),
            ("execute", json!({ "command": "echo end", "background": true })),
            ("terminal_output", json!({ "id": "bg1", "wait_seconds": 20 })),
            ("execute", json!({ "command": "sleep 1000", "background": true })),
            ("terminal_output", json!({ "id": "bg2" })),
            ("kill_terminal", json!({ "id": "bg2" })),
            ("kill_terminal", json!({ "id": "bg2" })),
        ],
        expect![[r#"
            > execute {"command":"echo out; echo err >&2; exit 3"}
            [`echo out; echo err >&2; exit 3` failed with exit code 3, T s]
            out
            err
            > execute {"command":"printf","args":["%s|","a b","$HOME"]}
            [`printf '%s|' 'a b' '$HOME'` ended with exit code 0, T s]
            a b|$HOME|
            > execute {"command":"echo begun; sleep 1000","timeout_seconds":1}
            ! [`echo begun; sleep 1000` was ended because it took longer than 1 s; this is its output so far, T s]
            begun
            > execute {"command":"no-such-program-here","args":["x"]}
            ! not started: `no-such-program-here x`: there is no program no-such-program-here: check its name and PATH, and put its arguments into args
            > execute {"command":"echo $X","env":{"X":"set"},"cwd":"."}
            [`echo $X` ended with exit code 0, T s]
            set
            > execute {"command":"echo end","background":true}
            `echo end` runs in the background as bg1. Look at its output with terminal_output, end it with kill_terminal.
            > terminal_output {"id":"bg1","wait_seconds":20}
            [bg1 (`echo end`) ended with exit code 0; new output:]
            end
            > execute {"command":"sleep 1000","background":true}
            `sleep 1000` runs in the background as bg2. Look at its output with terminal_output, end it with kill_terminal.
            > terminal_output {"id":"bg2"}
            [bg2 (`sleep 1000`) is running; new output:]
            > kill_terminal {"id":"bg2"}
            [bg2 (`sleep 1000`) was ended; new output:]
            > kill_terminal {"id":"bg2"}
            ! no command runs in the background as "bg2": none runs
        "#]],
    )
    .await;
}

#[tokio::test]
async fn what_the_user_does_meanwhile_is_merged_or_told() {
    let scene = McpTestProject::new();
    let mut program = scene.start(&["--approve", "edits"]).await;
    program.call_tool("read_text_file", json!({ "path": "a.txt" })).await;
    scene.write_file("a.txt", "ONE\ntwo\nthree\n");
    let merged = program
        .call_tool("write_text_file", json!({ "path": "a.txt", "content": "one\ntwo\nTHREE\n" }))
        .await;
    expect![[r#"
        Wrote a.txt (3 lines).
        Another program changed the file since you read it; both changes are in it now. What came in:
        @@ -1,2 +1,2 @@
        -one
        +ONE
         two
    "#]]
    .assert_eq(&merged);
    assert_eq!(scene.read_file("a.txt"), "ONE\ntwo\nTHREE\n");
    scene.write_file("a.txt", "ONE\ntwo\nthree again\n");
    let refused =
        program.call_tool("write_text_file", json!({ "path": "a.txt", "content": "one\ntwo\n3\n" })).await;
    expect![[r#"
        ! nothing was written: a.txt: the text was changed since this session read it, and both changes touch the same lines: read it again
        At line 3:
        --- you saw
        THREE
        --- the file has now
        three again
        --- you would write
        3
    "#]].assert_eq(&refused);
    assert_eq!(scene.read_file("a.txt"), "ONE\ntwo\nthree again\n");
}

#[tokio::test]
async fn unsaved_text_is_read_searched_and_told_of() {
    let scene = McpTestProject::new();
    let shown = scene.base().join("shown");
    std::fs::write(&shown, "one\nUNSAVED\nthree\n").unwrap();
    let open = format!("a.txt={}", shown.display());
    let mut program = scene.start(&["--approve", "edits", "--open", &open]).await;
    let mut text = program.call_tool("read_text_file", json!({ "path": "a.txt" })).await;
    text += &program.call_tool("search_text", json!({ "pattern": "unsaved" })).await;
    let listed = program.request("resources/list", json!({})).await;
    let uri =
        program.wait_for_answer(listed).await["result"]["resources"][2]["uri"].as_str().unwrap().to_owned();
    assert_eq!(uri, format!("file://{}", scene.path("a.txt")));
    for uri in [uri.as_str(), "bowline://changes"] {
        let subscribed = program.request("resources/subscribe", json!({ "uri": uri })).await;
        assert!(program.wait_for_answer(subscribed).await.get("error").is_none());
    }
    let edit = json!({ "path": "a.txt", "old_text": "three", "new_text": "3" });
    text += &program.call_tool("edit_text_file", edit).await;
    let mut told: Vec<String> = Vec::new();
    let updated =
        |message: &serde_json::Value| message["params"]["uri"].as_str().map(|uri| scene.normalize(uri));
    told.extend(program.notifications.iter().filter_map(updated));
    while told.len() < 2 {
        let message = program.next_message().await.unwrap();
        told.extend(updated(&message));
    }
    told.sort();
    let read = program.request("resources/read", json!({ "uri": uri })).await;
    let read =
        program.wait_for_answer(read).await["result"]["contents"][0]["text"].as_str().unwrap().to_owned();
    let patch = program.request("resources/read", json!({ "uri": "bowline://changes" })).await;
    let patch =
        program.wait_for_answer(patch).await["result"]["contents"][0]["text"].as_str().unwrap().to_owned();
    expect![[r#"
        [a.txt: all of it, 3 lines; as the editor has it, unsaved changes included]
        one
        UNSAVED
        three
        [1 matching line; 1 file searched; 1 protected file left out]
        a.txt
          2: UNSAVED
        Edited a.txt in 1 place.
        ["bowline://changes", "file://$PROJECT/a.txt"]
        one
        UNSAVED
        3
        diff --git a/a.txt b/a.txt
        --- a/a.txt
        +++ b/a.txt
        @@ -1,3 +1,3 @@
         one
         UNSAVED
        -three
        +3
    "#]]
    .assert_eq(&format!("{text}\n{told:?}\n{read}{patch}"));
}
