//! Reading, listing and searching.

use std::fmt::Write as _;

use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::Error;
use expect_test::{Expect, expect};
use serde_json::json;
use test_support::editor::{EditorCapabilities, EditorFault};

use crate::fixture::ToolboxFixture;

fn check(actual: &str, expected: Expect) {
    expected.assert_eq(actual);
}

#[tokio::test]
async fn a_file_is_read_from_the_editor_with_its_unsaved_text() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    fixture.write_to_disk("src/a.rs", "on disk\n");
    fixture.open_document("src/a.rs", "unsaved\n");
    check(
        &fixture.call_and_log("read_text_file", json!({ "path": "src/a.rs" })).await,
        expect![[r#"
            > tool_call turn1_1 "Read src/a.rs" Read Pending @$ROOT/src/a.rs
                input {"path":"$ROOT/src/a.rs"}
            > update turn1_1 InProgress
            < fs/read_text_file $ROOT/src/a.rs
            > update turn1_1 Completed
                text "unsaved\n"
                output {"servedBy":"client","firstLine":1,"lines":1,"totalLines":1}
            = [src/a.rs: all of it, 1 line, read through the editor]
            unsaved
        "#]],
    );
    assert!(!fixture.has_journal(), "a session that the client serves opens no journal");
}

#[tokio::test]
async fn without_an_editor_that_reads_the_disk_is_read() {
    let fixture = ToolboxFixture::open(EditorCapabilities::NONE).await;
    fixture.write_to_disk("a.txt", "on disk\r\n");
    check(
        &fixture.call_and_log("read_text_file", json!({ "path": "./a.txt" })).await,
        expect![[r#"
            > tool_call turn1_1 "Read a.txt" Read Pending @$ROOT/a.txt
                input {"path":"$ROOT/a.txt"}
            > update turn1_1 InProgress
            > update turn1_1 Completed
                text "on disk\n"
                output {"servedBy":"local","firstLine":1,"lines":1,"totalLines":1}
            = [a.txt: all of it, 1 line, read on the agent's own machine; its lines end in CRLF, and go on doing so]
            on disk
        "#]],
    );
}

#[tokio::test]
async fn a_large_file_is_shown_in_windows() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    let lines = (1..=2500).fold(String::new(), |mut text, line| {
        writeln!(text, "line {line}").unwrap();
        text
    });
    fixture.open_document("long", &lines);
    let first = fixture.call_tool("read_text_file", json!({ "path": "long" })).await;
    let first_and_last = |text: &str| {
        let lines: Vec<&str> = text.lines().collect();
        format!("{}\n{}\n…\n{}\n{}\n", lines[0], lines[1], lines[lines.len() - 2], lines[lines.len() - 1])
    };
    check(
        &first_and_last(&first),
        expect![[r#"
        = [long: lines 1-2000 of 2500, read through the editor]
        line 1
        …
        line 2000
        [continue with line=2001]
    "#]],
    );
    let second = fixture.call_tool("read_text_file", json!({ "path": "long", "line": 2001 })).await;
    check(
        &first_and_last(&second),
        expect![[r#"
        = [long: lines 2001-2500 of 2500, read through the editor]
        line 2001
        …
        line 2499
        line 2500
    "#]],
    );
    let past_end = fixture.call_tool("read_text_file", json!({ "path": "long", "line": 3000 })).await;
    check(
        &past_end,
        expect![[r#"
        ! long has 2500 lines: line 3000 is past the end
    "#]],
    );
    // The model has seen all of it, in two parts, so it may replace it.
    let written = fixture.call_tool("write_text_file", json!({ "path": "long", "content": "short\n" })).await;
    check(
        &written,
        expect![[r#"
            = Wrote long (1 line), through the editor.
        "#]],
    );
}

#[tokio::test]
async fn a_window_of_a_file_that_was_not_read_whole_is_asked_of_the_editor() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    fixture.open_document("a", "1\n2\n3\n4\n5\n");
    check(
        &fixture.call_and_log("read_text_file", json!({ "path": "a", "line": "2", "limit": 2.0 })).await,
        expect![[r#"
            > tool_call turn1_1 "Read a, lines 2-3" Read Pending @$ROOT/a:2
                input {"path":"$ROOT/a","line":2,"limit":2}
            > update turn1_1 InProgress
            < fs/read_text_file $ROOT/a line=2 limit=2
            > update turn1_1 Completed
                text "2\n3\n"
                output {"servedBy":"client","firstLine":2,"lines":2,"totalLines":null}
            = [a: lines 2-3, read through the editor]
            2
            3
            [continue with line=4]
        "#]],
    );
}

#[tokio::test]
async fn a_line_that_is_too_long_is_cut_and_that_is_said() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    fixture.open_document("a", &format!("{}\nend\n", "x".repeat(70_000)));
    let output = fixture.call_tool("read_text_file", json!({ "path": "a" })).await;
    check(
        &format!("{} … {}", &output[..90], &output[output.len() - 30..]),
        expect![[r#"
        = [a: lines 1-1 of 2, read through the editor; a line is longer than can be shown and is c … xxxxxx
        [continue with line=2]
    "#]],
    );
}

#[tokio::test]
async fn what_a_client_says_is_told_apart() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    let mut out = String::new();
    let path = || fixture.path("a");
    let refuse = |failure: RpcError| EditorFault::Refuse(failure.into());
    let node = Error::new(-32603, "Internal error".to_owned())
        .data(json!({ "details": "ENOENT: no such file or directory, open '/x'" }));
    for fault in [
        refuse(RpcError::ResourceNotFound { uri: Some(path()) }),
        EditorFault::Refuse(node),
        refuse(RpcError::OutsideRoots { path: path() }),
        refuse(RpcError::Denied { reason: "the user said no".to_owned() }),
        refuse(RpcError::UnknownMethod { method: None }),
        refuse(RpcError::NotText { path: path(), reason: "it is binary".to_owned() }),
        EditorFault::Refuse(Error::new(-32000, "disk on fire".to_owned())),
        EditorFault::Stall,
        EditorFault::Disconnect,
    ] {
        fixture.editor.queue_fault("fs/read_text_file", fault);
        out += &fixture.call_tool("read_text_file", json!({ "path": "a" })).await;
    }
    check(
        &out,
        expect![[r#"
            ! a does not exist (the editor says so)
            ! a does not exist (the editor says so)
            ! a is outside the directories of this session (the editor says so)
            ! a: permission denied: the user said no
            ! a: the editor cannot do this: method not found
            ! a: the editor says: $ROOT/a cannot be read as text: it is binary
            ! a: the editor says: disk on fire
            ! a: the editor did not answer fs/read_text_file within 2 s
            ! a: the connection to the editor is closed
        "#]],
    );
}

#[tokio::test]
async fn a_read_that_is_given_up_is_cancelled_at_the_client() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    fixture.editor.queue_fault("fs/read_text_file", EditorFault::Stall);
    fixture.call_tool("read_text_file", json!({ "path": "a" })).await;
    fixture.editor.wait_for_log("$/cancel_request for fs/read_text_file").await;
}

#[tokio::test]
async fn wrong_input_is_told_clearly() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    let mut out = String::new();
    for input in [
        json!({}),
        json!({ "path": 7 }),
        json!({ "path": "" }),
        json!({ "path": "~/.ssh/id_rsa" }),
        json!({ "path": "file:///etc/passwd" }),
        json!({ "path": "../../../../../../../../.." }),
        json!({ "path": "a", "line": "many" }),
        json!({ "path": "a", "line": -1 }),
        json!(["a"]),
    ] {
        out += &fixture.call_tool("read_text_file", input).await;
    }
    check(
        &out,
        expect![[r#"
        ! `path` is missing: give a string
        ! `path` has to be a string, and is a number
        ! the path is empty, send an absolute path
        ! ~/.ssh/id_rsa starts with ~, send an absolute path: ~ is not expanded here
        ! file:///etc/passwd is a URL, send an absolute path: give the path alone
        ! $ROOT/../../../../../../../../.. is outside the session's directories
        ! `line` has to be a whole number from 0 on, and is a string
        ! `line` has to be a whole number from 0 to 4294967295, and is -1
        ! the input has to be a JSON object, and is a list: call the tool again
    "#]],
    );
}

#[tokio::test]
async fn a_directory_is_listed() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    fixture.write_to_disk("src/a.rs", "a\n");
    fixture.write_to_disk("src/deep/b.rs", "b\n");
    fixture.write_to_disk("README.md", "read me\n");
    check(
        &fixture.call_and_log("list_directory", json!({})).await,
        expect![[r#"
            > tool_call turn1_1 "List ." Read Pending @$ROOT
                input {"path":"$ROOT","depth":1}
            > update turn1_1 InProgress
            > update turn1_1 Completed
                text "[.: 2 names, on the agent's own machine; what ignore rules hide is left out]\nREADME.md (8 bytes)\nsrc/\n"
                output {"servedBy":"local","entries":2}
            = [.: 2 names, on the agent's own machine; what ignore rules hide is left out]
            README.md (8 bytes)
            src/
        "#]],
    );
    check(
        &fixture.call_tool("list_directory", json!({ "path": "src", "depth": 2 })).await,
        expect![[r#"
            = [src: 3 names, on the agent's own machine; what ignore rules hide is left out]
            a.rs (2 bytes)
            deep/
            deep/b.rs (2 bytes)
        "#]],
    );
    check(
        &fixture.call_tool("list_directory", json!({ "path": "nowhere" })).await,
        expect![[r#"
        ! nowhere does not exist (the agent's own machine says so)
    "#]],
    );
}

#[tokio::test]
async fn a_search_sees_unsaved_text_that_was_read() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    fixture.write_to_disk("src/a.rs", "let old = 1;\n");
    fixture.write_to_disk("src/b.rs", "let old = 2;\n");
    fixture.open_document("src/a.rs", "let newer = 1;\n");
    fixture.open_document("src/b.rs", "let old = 2;\n");
    fixture.call_tool("read_text_file", json!({ "path": "src/a.rs" })).await;
    // The user continues typing after the read.
    fixture.open_document("src/a.rs", "let newest = 1;\n");
    check(
        &fixture.call_and_log("search_text", json!({ "pattern": "let \\w+", "regex": true })).await,
        expect![[r#"
            > tool_call turn1_2 "Search for let \\w+ in ." Search Pending @$ROOT
                input {"pattern":"let \\w+","path":"$ROOT","regex":true,"case_sensitive":false}
            > update turn1_2 InProgress
            < fs/read_text_file $ROOT/src/a.rs
            > update turn1_2 Completed @$ROOT/src/a.rs:1 @$ROOT/src/b.rs:1
                text "[2 matching lines; 2 files searched on the agent's own machine; of 1 file that were read through the editor, its text counts]\nsrc/a.rs (as the editor has it)\n  1: let newest = 1;\nsrc/b.rs\n  1: let old = 2;\n"
                output {"servedBy":"local","matches":2,"filesSearched":2,"filesOfTheEditor":1,"truncated":false}
            = [2 matching lines; 2 files searched on the agent's own machine; of 1 file that were read through the editor, its text counts]
            src/a.rs (as the editor has it)
              1: let newest = 1;
            src/b.rs
              1: let old = 2;
        "#]],
    );
    check(
        &fixture.call_tool("search_text", json!({ "pattern": "(", "regex": true })).await,
        expect![[r#"
            ! the pattern cannot be searched for: regex parse error:
                (?:()
                ^
            error: unclosed group
        "#]],
    );
    check(
        &fixture.call_tool("search_text", json!({ "pattern": "old", "glob": "*.md" })).await,
        expect![[r#"
            = [0 matching lines; 0 files searched on the agent's own machine; of 1 file that were read through the editor, its text counts]
        "#]],
    );
}

#[tokio::test]
async fn a_project_on_another_machine_is_read_but_not_searched() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    std::fs::remove_dir_all(fixture.path("")).unwrap();
    fixture.open_document("a", "far away\n");
    check(
        &fixture.call_tool("read_text_file", json!({ "path": "a" })).await,
        expect![[r#"
            = [a: all of it, 1 line, read through the editor]
            far away
        "#]],
    );
    check(
        &fixture.call_tool("search_text", json!({ "pattern": "far" })).await,
        expect![[r#"
            ! .: files and commands of this machine cannot be used: cannot open the directory $ROOT: No such file or directory (os error 2)
        "#]],
    );
}

#[tokio::test]
async fn a_line_past_the_end_is_no_empty_file() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    fixture.editor.return_empty_past_end();
    fixture.open_document("a", "one\ntwo\n");
    fixture.open_document("empty", "");
    let mut out = String::new();
    for input in [json!({ "path": "a", "line": 500, "limit": 10 }), json!({ "path": "empty" })] {
        out += &fixture.call_tool("read_text_file", input).await;
    }
    check(
        &out,
        expect![[r#"
            ! a has no line 500: that is past the end
            = [empty: empty, read through the editor]
        "#]],
    );
}

#[tokio::test]
async fn another_project_is_not_taken_for_the_editors() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    // A directory of the same name exists here, with other content.
    fixture.write_to_disk("other.rs", "not the user's\n");
    fixture.open_document("a", "far away\n");
    fixture.open_document("b", "at hand\n");
    fixture.call_tool("write_text_file", json!({ "path": "new", "content": "not saved yet\n" })).await;
    let mut out = fixture.call_tool("list_directory", json!({})).await;
    fixture.call_tool("read_text_file", json!({ "path": "a" })).await;
    out += &fixture.call_tool("list_directory", json!({})).await;
    out += &fixture.call_tool("search_text", json!({ "pattern": "not" })).await;
    // The file was only unsaved.
    fixture.write_to_disk("b", "at hand\n");
    fixture.call_tool("read_text_file", json!({ "path": "b" })).await;
    out += &fixture.call_tool("search_text", json!({ "pattern": "hand" })).await;
    check(
        &out,
        expect![[r#"
        = [.: 1 name, on the agent's own machine; what ignore rules hide is left out]
        other.rs (15 bytes)
        ! only files of the agent's own machine can be listed and searched, and a is not on it, which the editor has: the project is on another machine. (If that file is only not saved yet, read another one and try again.)
        ! only files of the agent's own machine can be listed and searched, and a is not on it, which the editor has: the project is on another machine. (If that file is only not saved yet, read another one and try again.)
        = [1 matching line; 4 files searched on the agent's own machine; of 3 files that were read through the editor, its text counts]
        b (as the editor has it)
          1: at hand
    "#]],
    );
}

#[tokio::test]
async fn an_editor_that_lists_directories_is_asked_for_them() {
    let capabilities = EditorCapabilities { list: true, ..EditorCapabilities::ALL };
    let fixture = ToolboxFixture::open(capabilities).await;
    fixture.write_to_disk("other.rs", "not the user's\n");
    for name in ["a", "b", "c"] {
        fixture.open_document(name, "far away\n");
    }
    fixture.call_tool("read_text_file", json!({ "path": "a" })).await;
    check(
        &fixture.call_and_log("list_directory", json!({})).await,
        expect![[r#"
        > tool_call turn1_2 "List ." Read Pending @$ROOT
            input {"path":"$ROOT","depth":1}
        > update turn1_2 InProgress
        < _bowline/fs/list $ROOT
        < _bowline/fs/list $ROOT after b
        > update turn1_2 Completed
            text "[.: 3 names, through the editor; what ignore rules hide is left out]\na (9 bytes)\nb (9 bytes)\nc (9 bytes)\n"
            output {"servedBy":"client","entries":3}
        = [.: 3 names, through the editor; what ignore rules hide is left out]
        a (9 bytes)
        b (9 bytes)
        c (9 bytes)
    "#]],
    );
}

#[tokio::test]
async fn a_file_that_is_not_there_may_be_meant_elsewhere() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    fixture.write_to_disk("docs/notes.md", "# Notes\n");
    check(
        &fixture.call_tool("read_text_file", json!({ "path": "project/notes.md" })).await,
        expect![[r#"
            ! project/notes.md does not exist (the editor says so); there is docs/notes.md
        "#]],
    );
}
