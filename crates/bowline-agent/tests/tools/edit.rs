//! Writing and editing without losing the user's changes.

use bowline_protocol::rpc_error::RpcError;
use expect_test::{Expect, expect};
use serde_json::json;
use test_support::editor::{EditorCapabilities, EditorFault};

use crate::fixture::ToolboxFixture;

fn check(actual: &str, expected: Expect) {
    expected.assert_eq(actual);
}

#[tokio::test]
async fn a_new_file_is_created() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    check(
        &fixture
            .call_and_log("write_text_file", json!({ "path": "new/a.txt", "content": "one\ntwo\n" }))
            .await,
        expect![[r#"
            > tool_call turn1_1 "Write new/a.txt" Edit Pending @$ROOT/new/a.txt
                input {"path":"$ROOT/new/a.txt","content":"one\ntwo\n"}
            < fs/read_text_file $ROOT/new/a.txt
            > update turn1_1 @$ROOT/new/a.txt:1
                diff $ROOT/new/a.txt nothing -> "one\ntwo\n"
            > update turn1_1 InProgress
            < fs/write_text_file $ROOT/new/a.txt "one\ntwo\n"
            < fs/read_text_file $ROOT/new/a.txt
            > update turn1_1 Completed
                output {"servedBy":"client","outcome":"created","readBack":true,"changedByEditor":false,"lines":2}
            = Created new/a.txt (2 lines), through the editor.
        "#]],
    );
}

#[tokio::test]
async fn an_edit_is_made_on_the_text_as_it_is_now() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    fixture.open_document("a", "one\ntwo\nthree\n");
    fixture.call_tool("read_text_file", json!({ "path": "a" })).await;
    fixture.open_document("a", "ONE\ntwo\nthree\n");
    let edits = json!({ "path": "a", "edits": [{ "old_text": "three", "new_text": "3" }] });
    check(
        &fixture.call_and_log("edit_text_file", edits).await,
        expect![[r#"
            > tool_call turn1_2 "Edit a" Edit Pending @$ROOT/a
                input {"path":"$ROOT/a","edits":[{"old_text":"three","new_text":"3","replace_all":false}]}
            < fs/read_text_file $ROOT/a
            > update turn1_2 @$ROOT/a:3
                diff $ROOT/a "ONE\ntwo\nthree\n" -> "ONE\ntwo\n3\n"
            > update turn1_2 InProgress
            < fs/write_text_file $ROOT/a "ONE\ntwo\n3\n"
            < fs/read_text_file $ROOT/a
            > update turn1_2 Completed
                output {"servedBy":"client","outcome":"replaced","readBack":true,"changedByEditor":false,"lines":3}
            = Edited a in 1 place, through the editor.
            Another program changed the file since you last saw it:
            @@ -1,2 +1,2 @@
            -one
            +ONE
             two
        "#]],
    );
    check(
        &fixture.document("a"),
        expect![[r#"
        ONE
        two
        3
    "#]],
    );
}

#[tokio::test]
async fn an_edit_whose_place_is_not_there_shows_what_is() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    fixture.open_document("a", "fn main() {\n    let x = 1;\n    print(x);\n}\n");
    fixture.call_tool("read_text_file", json!({ "path": "a" })).await;
    fixture.open_document("a", "fn main() {\n    let y = 1;\n    print(y);\n}\n");
    let edit = |old: &str| json!({ "path": "a", "edits": [{ "old_text": old, "new_text": "" }] });
    check(
        &fixture.call_and_log("edit_text_file", edit("    let x = 1;\n    print(x);\n")).await,
        expect![[r#"
            > tool_call turn1_2 "Edit a" Edit Pending @$ROOT/a
                input {"path":"$ROOT/a","edits":[{"old_text":"    let x = 1;\n    print(x);\n","new_text":"","replace_all":false}]}
            < fs/read_text_file $ROOT/a
            > update turn1_2 Failed
                text "nothing was edited in a: old_text of edit 1 is not in the file\nThe most similar place has some of its words, at line 2. The file holds, from line 1:\nfn main() {\n    let y = 1;\n    print(y);\n}\n\nAnother program changed the file since you last saw it:\n@@ -1,4 +1,4 @@\n fn main() {\n-    let x = 1;\n-    print(x);\n+    let y = 1;\n+    print(y);\n }\n"
                output "nothing was edited in a: old_text of edit 1 is not in the file\nThe most similar place has some of its words, at line 2. The file holds, from line 1:\nfn main() {\n    let y = 1;\n    print(y);\n}\n\nAnother program changed the file since you last saw it:\n@@ -1,4 +1,4 @@\n fn main() {\n-    let x = 1;\n-    print(x);\n+    let y = 1;\n+    print(y);\n }\n"
            ! nothing was edited in a: old_text of edit 1 is not in the file
            The most similar place has some of its words, at line 2. The file holds, from line 1:
            fn main() {
                let y = 1;
                print(y);
            }

            Another program changed the file since you last saw it:
            @@ -1,4 +1,4 @@
             fn main() {
            -    let x = 1;
            -    print(x);
            +    let y = 1;
            +    print(y);
             }
        "#]],
    );
    check(
        &fixture.call_tool("edit_text_file", edit("let y = 1;\nprint(y);")).await,
        expect![[r#"
            ! nothing was edited in a: old_text of edit 1 is not in the file
            There is the same text with other blanks at the start or end of its lines, at line 2. The file holds, from line 1:
            fn main() {
                let y = 1;
                print(y);
            }
        "#]],
    );
    check(
        &fixture.call_tool("edit_text_file", edit("1")).await,
        expect![[r#"
            = Edited a in 1 place, through the editor.
        "#]],
    );
    check(
        &fixture.call_tool("edit_text_file", edit("y")).await,
        expect![[r#"
            ! nothing was edited in a: old_text of edit 1 is in the file 2 times, at lines 2, 3: give more of the text around the place, or set replace_all to true if all of them are meant
        "#]],
    );
}

#[tokio::test]
async fn what_the_user_changed_is_merged_and_told() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    fixture.open_document("a", "one\ntwo\nthree\nfour\n");
    fixture.call_tool("read_text_file", json!({ "path": "a" })).await;
    fixture.open_document("a", "one\ntwo\nthree\nfour\nthe user's\n");
    let write = json!({ "path": "a", "content": "1\ntwo\nthree\nfour\n" });
    check(
        &fixture.call_and_log("write_text_file", write).await,
        expect![[r#"
            > tool_call turn1_2 "Write a" Edit Pending @$ROOT/a
                input {"path":"$ROOT/a","content":"1\ntwo\nthree\nfour\n"}
            < fs/read_text_file $ROOT/a
            > update turn1_2 @$ROOT/a:1
                diff $ROOT/a "one\ntwo\nthree\nfour\nthe user's\n" -> "1\ntwo\nthree\nfour\nthe user's\n"
            > update turn1_2 InProgress
            < fs/write_text_file $ROOT/a "1\ntwo\nthree\nfour\nthe user's\n"
            < fs/read_text_file $ROOT/a
            > update turn1_2 Completed
                output {"servedBy":"client","outcome":"merged","readBack":true,"changedByEditor":false,"lines":5}
            = Wrote a (5 lines), through the editor.
            Another program changed the file since you read it; both changes are in it now. What came in:
            @@ -4 +4,2 @@
             four
            +the user's
        "#]],
    );
    // A second write that also lacks the user's line does not remove it.
    let write = json!({ "path": "a", "content": "1\n2\nthree\nfour\n" });
    check(
        &fixture.call_tool("write_text_file", write).await,
        expect![[r#"
            = Wrote a (5 lines), through the editor.
            What others changed in the file is in it still, beside your text.
        "#]],
    );
    check(
        &fixture.document("a"),
        expect![[r#"
        1
        2
        three
        four
        the user's
    "#]],
    );
}

#[tokio::test]
async fn a_conflict_sends_nothing_and_shows_both_sides() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    fixture.open_document("a", "one\ntwo\n");
    fixture.call_tool("read_text_file", json!({ "path": "a" })).await;
    fixture.open_document("a", "uno\ntwo\n");
    check(
        &fixture.call_and_log("write_text_file", json!({ "path": "a", "content": "1\ntwo\n" })).await,
        expect![[r#"
            > tool_call turn1_2 "Write a" Edit Pending @$ROOT/a
                input {"path":"$ROOT/a","content":"1\ntwo\n"}
            < fs/read_text_file $ROOT/a
            > update turn1_2 Failed
                text "nothing was written: a: the text was changed since this session read it, and both changes touch the same lines: read it again\nAt line 1:\n--- you saw\none\n--- the file has now\nuno\n--- you would write\n1\n"
                output "nothing was written: a: the text was changed since this session read it, and both changes touch the same lines: read it again\nAt line 1:\n--- you saw\none\n--- the file has now\nuno\n--- you would write\n1\n"
            ! nothing was written: a: the text was changed since this session read it, and both changes touch the same lines: read it again
            At line 1:
            --- you saw
            one
            --- the file has now
            uno
            --- you would write
            1
        "#]],
    );
    assert_eq!(fixture.document("a"), "uno\ntwo\n");
}

#[tokio::test]
async fn what_the_editor_makes_of_a_write_is_told() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    fixture.editor.set_formatter(|_, text| text.replace("  ", " ").trim_end().to_owned() + "\n");
    fixture.open_document("a", "x = 1\n");
    fixture.call_tool("read_text_file", json!({ "path": "a" })).await;
    check(
        &fixture.call_and_log("write_text_file", json!({ "path": "a", "content": "x  =  2" })).await,
        expect![[r#"
            > tool_call turn1_2 "Write a" Edit Pending @$ROOT/a
                input {"path":"$ROOT/a","content":"x  =  2"}
            < fs/read_text_file $ROOT/a
            > update turn1_2 @$ROOT/a:1
                diff $ROOT/a "x = 1\n" -> "x  =  2"
            > update turn1_2 InProgress
            < fs/write_text_file $ROOT/a "x  =  2"
            < fs/read_text_file $ROOT/a
            > update turn1_2 Completed
                diff $ROOT/a "x = 1\n" -> "x = 2\n"
                output {"servedBy":"client","outcome":"replaced","readBack":true,"changedByEditor":true,"lines":1}
            = Wrote a (1 line), through the editor.
            The file differs from what you sent, because its user or the editor's formatting changed it:
            @@ -1 +1 @@
            -x  =  2
            \ No newline at end of file
            +x = 2
        "#]],
    );
    // The model knows the formatted text now, so its next write is not a merge.
    check(
        &fixture.call_tool("write_text_file", json!({ "path": "a", "content": "x = 3\n" })).await,
        expect![[r#"
            = Wrote a (1 line), through the editor.
        "#]],
    );
}

#[tokio::test]
async fn endings_and_mark_of_a_file_are_kept() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    fixture.open_document("a", "\u{feff}one\r\ntwo\r\n");
    check(
        &fixture.call_tool("read_text_file", json!({ "path": "a" })).await,
        expect![[r#"
            = [a: all of it, 2 lines, read through the editor; its lines end in CRLF, and go on doing so]
            one
            two
        "#]],
    );
    let edits = json!({ "path": "a", "edits": [{ "old_text": "one\ntwo", "new_text": "1\n2\n3" }] });
    fixture.call_tool("edit_text_file", edits).await;
    assert_eq!(fixture.document("a"), "\u{feff}1\r\n2\r\n3\r\n");
    fixture.call_tool("write_text_file", json!({ "path": "a", "content": "a\nb\n" })).await;
    assert_eq!(fixture.document("a"), "\u{feff}a\r\nb\r\n");
}

#[tokio::test]
async fn a_file_that_was_not_read_is_not_replaced() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    fixture.open_document("a", "precious\n");
    check(
        &fixture.call_and_log("write_text_file", json!({ "path": "a", "content": "new\n" })).await,
        expect![[r#"
            > tool_call turn1_1 "Write a" Edit Pending @$ROOT/a
                input {"path":"$ROOT/a","content":"new\n"}
            < fs/read_text_file $ROOT/a
            > update turn1_1 @$ROOT/a:1
                diff $ROOT/a "precious\n" -> "new\n"
            > update turn1_1 Failed
                diff $ROOT/a "precious\n" -> "new\n"
                text "nothing was written: a: you have not read all of the text that would be replaced, or not since this session was loaded: read it first"
                output "nothing was written: a: you have not read all of the text that would be replaced, or not since this session was loaded: read it first"
            ! nothing was written: a: you have not read all of the text that would be replaced, or not since this session was loaded: read it first
        "#]],
    );
}

#[tokio::test]
async fn a_file_that_was_deleted_is_not_brought_back_unseen() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    fixture.open_document("a", "old\n");
    fixture.call_tool("read_text_file", json!({ "path": "a" })).await;
    let error = RpcError::ResourceNotFound { uri: None };
    fixture.editor.queue_fault("fs/read_text_file", EditorFault::Refuse(error.into()));
    check(
        &fixture.call_tool("write_text_file", json!({ "path": "a", "content": "new\n" })).await,
        expect![[r#"
        ! nothing was written: a: the file was deleted since this session read it: read it again, then write it
    "#]],
    );
}

#[tokio::test]
async fn whether_a_write_was_done_is_found_out_or_said_to_be_unknown() {
    let mut out = String::new();
    for fault in [
        EditorFault::Stall,
        EditorFault::StallAfterActing,
        EditorFault::Disconnect,
        EditorFault::DisconnectAfterActing,
    ] {
        let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
        fixture.open_document("a", "old\n");
        fixture.call_tool("read_text_file", json!({ "path": "a" })).await;
        fixture.editor.queue_fault("fs/write_text_file", fault.clone());
        out += &format!("{fault:?}\n");
        out += &fixture.call_tool("write_text_file", json!({ "path": "a", "content": "new\n" })).await;
    }
    check(
        &out,
        expect![[r#"
            Stall
            ! it is not known whether a was written: the editor did not answer fs/write_text_file within 4 s. Read it and compare before you write it again; do not simply repeat the call.
            StallAfterActing
            = Wrote a (1 line), through the editor.
            Disconnect
            ! it is not known whether a was written: the connection to the editor is closed. Read it and compare before you write it again; do not simply repeat the call.
            DisconnectAfterActing
            ! it is not known whether a was written: the connection to the editor is closed. Read it and compare before you write it again; do not simply repeat the call.
        "#]],
    );
}

#[tokio::test]
async fn a_write_that_cannot_be_read_again_says_so() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    fixture.open_document("a", "old\n");
    fixture.call_tool("read_text_file", json!({ "path": "a" })).await;
    let editor = fixture.editor.clone();
    fixture.editor.run_after("fs/write_text_file", move |_| {
        editor.disconnect();
    });
    check(
        &fixture.call_tool("write_text_file", json!({ "path": "a", "content": "new\n" })).await,
        expect![[r#"
            = Wrote a (1 line), through the editor.
            It could not be read again to see what became of it: the connection to the editor is closed.
        "#]],
    );
}

#[tokio::test]
async fn an_editor_that_only_writes_is_given_what_fits_the_disk() {
    let fixture = ToolboxFixture::open(EditorCapabilities { write: true, ..EditorCapabilities::NONE }).await;
    fixture.write_to_disk("a", "on disk\r\n");
    fixture.call_tool("read_text_file", json!({ "path": "a" })).await;
    check(
        &fixture.call_and_log("write_text_file", json!({ "path": "a", "content": "new\n" })).await,
        expect![[r#"
            > tool_call turn1_2 "Write a" Edit Pending @$ROOT/a
                input {"path":"$ROOT/a","content":"new\n"}
            > update turn1_2 @$ROOT/a:1
                diff $ROOT/a "on disk\r\n" -> "new\r\n"
            > update turn1_2 InProgress
            < fs/write_text_file $ROOT/a "new\r\n"
            > update turn1_2 Completed
                output {"servedBy":"client","outcome":"replaced","readBack":false,"changedByEditor":false,"lines":1}
            = Wrote a (1 line), through the editor.
            It could not be read again to see what became of it: the agent's own machine does not have the new text yet.
        "#]],
    );
}

#[tokio::test]
async fn without_an_editor_the_engine_writes_and_keeps_what_was_there() {
    let fixture = ToolboxFixture::open(EditorCapabilities::NONE).await;
    fixture.write_to_disk("a", "one\ntwo\nthree\n");
    fixture.call_tool("read_text_file", json!({ "path": "a" })).await;
    fixture.write_to_disk("a", "one\ntwo\nthree\nfour\n");
    check(
        &fixture.call_and_log("write_text_file", json!({ "path": "a", "content": "1\ntwo\nthree\n" })).await,
        expect![[r#"
            > tool_call turn1_2 "Write a" Edit Pending @$ROOT/a
                input {"path":"$ROOT/a","content":"1\ntwo\nthree\n"}
            > update turn1_2 @$ROOT/a:1
                diff $ROOT/a "one\ntwo\nthree\nfour\n" -> "1\ntwo\nthree\nfour\n"
            > update turn1_2 InProgress
            > update turn1_2 Completed
                output {"servedBy":"local","outcome":"merged","readBack":true,"changedByEditor":false,"lines":4}
            = Wrote a (4 lines), on the agent's own machine.
            Another program changed the file since you read it; both changes are in it now. What came in:
            @@ -3 +3,2 @@
             three
            +four
        "#]],
    );
    assert_eq!(fixture.read_from_disk("a"), "1\ntwo\nthree\nfour\n");
    let engine = fixture.toolbox.runtime().local().await.unwrap();
    let changes = engine.workspace.changes(&Default::default()).unwrap();
    let change = &changes.last().unwrap().change;
    assert_eq!((change.origin.turn, change.origin.call.as_deref()), (Some(1), Some("turn1_2")));
    assert!(fixture.has_journal());
}

#[tokio::test]
async fn writes_to_one_file_go_one_after_the_other() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    fixture.open_document("a", "one\ntwo\nthree\n");
    let edit = |old: &str, new: &str| {
        fixture.tool_use(
            "edit_text_file",
            json!({ "path": "a", "edits": [{ "old_text": old, "new_text": new }] }),
        )
    };
    let (first, second, third) = (edit("one", "1"), edit("two", "2"), edit("three", "3"));
    tokio::join!(fixture.run_call(&first), fixture.run_call(&second), fixture.run_call(&third));
    assert_eq!(fixture.document("a"), "1\n2\n3\n");
}

#[tokio::test]
async fn what_is_bowlines_own_is_out_of_reach() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    // Policy files cannot lie in a project at all; the journal's directory could be reached through a link.
    std::os::unix::fs::symlink(fixture.path("../state"), fixture.path("link")).unwrap();
    std::fs::create_dir_all(fixture.path("../state")).unwrap();
    check(
        &fixture.call_tool("write_text_file", json!({ "path": "link/x", "content": "" })).await,
        expect![[r#"
            ! permission denied: it may not be done here (it lies outside the workspace)
        "#]],
    );
}

#[tokio::test]
async fn where_one_reads_and_another_writes_that_is_said() {
    // The editor does not know of the write on disk.
    let fixture = ToolboxFixture::open(EditorCapabilities { read: true, ..EditorCapabilities::NONE }).await;
    fixture.write_to_disk("a", "one\n");
    fixture.open_document("a", "one\n");
    fixture.call_tool("read_text_file", json!({ "path": "a" })).await;
    check(
        &fixture.call_tool("write_text_file", json!({ "path": "a", "content": "two\n" })).await,
        expect![[r#"
        = Wrote a (1 line), on the agent's own machine.
        It could not be read again to see what became of it: the editor does not have the new text yet.
    "#]],
    );
    assert_eq!(fixture.read_from_disk("a"), "two\n");
}

#[tokio::test]
async fn a_file_that_is_too_large_for_the_engine_is_read_in_windows_and_not_edited() {
    let set =
        |options: &mut bowline_agent::agent_options::AgentOptions| options.workspace.max_read_bytes = 4000;
    let fixture =
        ToolboxFixture::open_with(EditorCapabilities::NONE, bowline_policy::mode::AgentMode::Full, set, None)
            .await;
    fixture.write_to_disk("a", &"line\n".repeat(1000));
    check(
        &fixture.call_tool("read_text_file", json!({ "path": "a", "limit": 2 })).await,
        expect![[r#"
        = [a: lines 1-2, read on the agent's own machine]
        line
        line
        [continue with line=3]
    "#]],
    );
    check(
        &fixture.call_tool("read_text_file", json!({ "path": "a" })).await,
        expect![[r#"
        ! a: the agent's own machine says: these lines of $ROOT/a have more than 4000 bytes: ask for fewer
    "#]],
    );
    let edit = json!({ "path": "a", "old_text": "line", "new_text": "x" });
    check(
        &fixture.call_tool("edit_text_file", edit).await,
        expect![[r#"
        ! nothing was written: a: the agent's own machine says: $ROOT/a has 5000 bytes, a read gives at most 4000: read a window with line and limit: it is too large to be edited so, use a command
    "#]],
    );
}

#[tokio::test]
async fn an_edit_is_understood_in_the_forms_that_weak_models_write() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    let mut out = String::new();
    for edit in [
        json!({ "old_text": "one", "new_text": "1" }),
        json!({ "old_string": "one", "new_string": "1" }),
        json!({ "search": "o", "replace": "0", "replace_all": "true" }),
        json!({ "edits": "[{\"old_text\": \"one\", \"new_text\": \"1\"}]" }),
        json!({ "edits": [{ "old_str": "one", "new_str": "1" }] }),
        json!({ "edits": { "search": "one", "replace": "1" } }),
        json!({ "edits": "s/one/1/" }),
        json!({ "edits": [{ "timeout": "90" }] }),
        json!({ "edits": [] }),
        json!({ "old_text": "one" }),
        json!({}),
    ] {
        fixture.open_document("a", "one\ntwo\n");
        let mut input = edit.clone();
        input["path"] = json!("a");
        let result = fixture.call_tool("edit_text_file", input).await;
        out += &format!("{edit}\n  {result}\n  {:?}\n", fixture.document("a"));
    }
    check(
        &out,
        expect![[r#"
        {"old_text":"one","new_text":"1"}
          = Edited a in 1 place, through the editor.

          "1\ntwo\n"
        {"old_string":"one","new_string":"1"}
          = Edited a in 1 place, through the editor.

          "1\ntwo\n"
        {"search":"o","replace":"0","replace_all":"true"}
          = Edited a in 2 places, through the editor.

          "0ne\ntw0\n"
        {"edits":"[{\"old_text\": \"one\", \"new_text\": \"1\"}]"}
          = Edited a in 1 place, through the editor.

          "1\ntwo\n"
        {"edits":[{"old_str":"one","new_str":"1"}]}
          = Edited a in 1 place, through the editor.

          "1\ntwo\n"
        {"edits":{"search":"one","replace":"1"}}
          = Edited a in 1 place, through the editor.

          "1\ntwo\n"
        {"edits":"s/one/1/"}
          ! `edits` has to be a list of objects, and is a string: give [{"old_text": "…", "new_text": "…"}], or old_text and new_text for a single edit

          "one\ntwo\n"
        {"edits":[{"timeout":"90"}]}
          ! edit 1: `old_text` is missing: give a string

          "one\ntwo\n"
        {"edits":[]}
          ! nothing was edited in a: there are no edits: give at least one

          "one\ntwo\n"
        {"old_text":"one"}
          ! `new_text` is missing: give a string

          "one\ntwo\n"
        {}
          ! `edits` is missing: give a list of objects: give [{"old_text": "…", "new_text": "…"}], or old_text and new_text for a single edit

          "one\ntwo\n"
    "#]],
    );
}
