//! Changing several files at once, appending, deleting and moving: by the editor's file extension, or on this machine.

use std::os::unix::fs::MetadataExt as _;

use bowline_agent::tools::ToolCallOutcome;
use bowline_conversation::slash_command::UndoTarget;
use bowline_policy::mode::AgentMode;
use bowline_protocol::schema::v1::PermissionOptionKind;
use expect_test::{Expect, expect};
use serde_json::{Value, json};
use test_support::editor::{EditorCapabilities, EditorFault, UserAnswer};

use crate::fixture::ToolboxFixture;

const BATCH: EditorCapabilities = EditorCapabilities { batch: true, ..EditorCapabilities::ALL };

fn check(actual: &str, expected: Expect) {
    expected.assert_eq(actual);
}

fn files(files: &[(&str, &str)]) -> Value {
    let files: Vec<Value> =
        files.iter().map(|(path, content)| json!({ "path": path, "content": content })).collect();
    json!({ "files": files })
}

async fn open_asking(capabilities: EditorCapabilities) -> ToolboxFixture {
    ToolboxFixture::open_with(capabilities, AgentMode::Ask, |_| (), None).await
}

#[tokio::test]
async fn several_files_are_written_with_one_question() {
    let fixture = open_asking(EditorCapabilities::NONE).await;
    fixture.write_to_disk("a", "one\ntwo\n");
    fixture.call_tool("read_text_file", json!({ "path": "a" })).await;
    check(
        &fixture.call_and_log("write_files", files(&[("a", "1\ntwo\n"), ("new/b", "b\n")])).await,
        expect![[r#"
            > tool_call turn1_2 "Write 2 files" Edit Pending @$ROOT/a @$ROOT/new/b
                input {"files":[{"path":"$ROOT/a","content":"1\ntwo\n"},{"path":"$ROOT/new/b","content":"b\n"}]}
            > update turn1_2 @$ROOT/a:1 @$ROOT/new/b:1
                diff $ROOT/a "one\ntwo\n" -> "1\ntwo\n"
                diff $ROOT/new/b nothing -> "b\n"
            < session/request_permission turn1_2 "Write 2 files"
                diff $ROOT/a "one\ntwo\n" -> "1\ntwo\n"
                diff $ROOT/new/b nothing -> "b\n"
                allow_once: Allow once
                reject_once: Reject
            > update turn1_2 InProgress
            > update turn1_2 Completed
                output {"servedBy":"local","operations":2}
            = 2 files, on the agent's own machine:
            - Wrote a (2 lines)
            - Created new/b (1 line)
        "#]],
    );
    check(
        &fixture.audit_text().await,
        expect![[r#"
        fs/read allowed by preset: ask
        fs/write allowed by client (begins)
        fs/write allowed by client
        fs/write allowed by client
    "#]],
    );
    assert_eq!(
        (fixture.read_from_disk("a"), fixture.read_from_disk("new/b")),
        ("1\ntwo\n".into(), "b\n".into())
    );
}

#[tokio::test]
async fn several_files_are_undone_as_a_whole() {
    let fixture = ToolboxFixture::open(EditorCapabilities::NONE).await;
    fixture.write_to_disk("a", "one\n");
    fixture.call_tool("read_text_file", json!({ "path": "a" })).await;
    fixture.call_tool("write_files", files(&[("a", "1\n"), ("b", "b\n")])).await;
    fixture.call_tool("delete_file", json!({ "path": "b" })).await;
    fixture.call_tool("move_file", json!({ "from": "a", "to": "c" })).await;
    let undone = fixture.toolbox.undo(2, UndoTarget::Turns(1)).await.unwrap();
    check(
        &undone,
        expect![[r#"
        - a is as it was before
        - c is as it was before
        - b was as before already
    "#]],
    );
    let names = |name: &str| std::fs::exists(fixture.path(name)).unwrap();
    assert_eq!((fixture.read_from_disk("a"), names("b"), names("c")), ("one\n".into(), false, false));
}

#[tokio::test]
async fn a_refused_batch_changes_nothing() {
    let mut out = String::new();
    for capabilities in [EditorCapabilities::NONE, BATCH] {
        let fixture = open_asking(capabilities).await;
        fixture.write_to_disk("a", "one\n");
        fixture.open_document("a", "one\n");
        fixture.editor.queue_answer(UserAnswer::OptionKind(PermissionOptionKind::RejectOnce));
        out += &fixture.call_tool("write_files", files(&[("a", "1\n"), ("b", "b\n")])).await;
        fixture.editor.queue_answer(UserAnswer::Cancelled);
        let call = fixture.tool_use("delete_file", json!({ "path": "a" }));
        assert_eq!(fixture.toolbox.run_call(&call, &fixture.cx).await, ToolCallOutcome::Cancelled);
        assert_eq!((fixture.read_from_disk("a"), fixture.document("a")), ("one\n".into(), "one\n".into()));
        assert!(!std::fs::exists(fixture.path("b")).unwrap());
    }
    check(
        &out,
        expect![[r#"
        ! permission denied: the user said no; do something else, or ask what to do instead
        ! permission denied: the user said no; do something else, or ask what to do instead
    "#]],
    );
}

#[tokio::test]
async fn a_large_file_is_appended_to_without_being_read() {
    let fixture = open_asking(BATCH).await;
    fixture.open_document("log", &"a line\n".repeat(200_000));
    check(
        &fixture.call_and_log("append_file", json!({ "path": "log", "content": "one more\n" })).await,
        expect![[r#"
            > tool_call turn1_1 "Append to log" Edit Pending @$ROOT/log
                input {"path":"$ROOT/log","content":"one more\n"}
            < _bowline/fs/stat $ROOT/log
            > update turn1_1
                diff $ROOT/log "" -> "one more\n"
            < session/request_permission turn1_1 "Append to log"
                diff $ROOT/log "" -> "one more\n"
                allow_once: Allow once
                allow_session: Allow edits of the file log, in this session
                allow_always: Always allow edits of the file log
                reject_once: Reject
                reject_always: Always reject edits of the file log
            < _bowline/fs/stat $ROOT/log
            > update turn1_1 InProgress
            < _bowline/fs/batch write $ROOT/log "one more\n" append
            > update turn1_1 Completed
                output {"servedBy":"client","operations":1}
            = Appended 1 line to log, through the editor.
        "#]],
    );
    let text = fixture.document("log");
    assert_eq!((text.len(), text.ends_with("a line\none more\n")), (200_000 * 7 + 9, true));
}

#[tokio::test]
async fn a_large_file_of_this_machine_is_appended_to_in_place() {
    let fixture = open_asking(EditorCapabilities::NONE).await;
    fixture.write_to_disk("log", &"a line\n".repeat(200_000));
    let inode = || std::fs::metadata(fixture.path("log")).unwrap().ino();
    let before = inode();
    let mut out =
        fixture.call_and_log("append_file", json!({ "path": "log", "content": "one more\n" })).await;
    let text = fixture.read_from_disk("log");
    assert_eq!((text.len(), text.ends_with("a line\none more\n")), (200_000 * 7 + 9, true));
    assert_eq!(inode(), before);
    out += &fixture.audit_text().await;
    out += &fixture.toolbox.undo(2, UndoTarget::Turns(1)).await.unwrap();
    assert_eq!(fixture.read_from_disk("log").len(), 200_000 * 7);
    check(
        &out,
        expect![[r#"
        > tool_call turn1_1 "Append to log" Edit Pending @$ROOT/log
            input {"path":"$ROOT/log","content":"one more\n"}
        > update turn1_1
            diff $ROOT/log "" -> "one more\n"
        < session/request_permission turn1_1 "Append to log"
            diff $ROOT/log "" -> "one more\n"
            allow_once: Allow once
            allow_session: Allow edits of the file log, in this session
            allow_always: Always allow edits of the file log
            reject_once: Reject
            reject_always: Always reject edits of the file log
        > update turn1_1 InProgress
        > update turn1_1 Completed
            output {"servedBy":"local","operations":1}
        = Appended 1 line to log, on the agent's own machine.
        fs/write allowed by client (begins)
        fs/write allowed by client
        - log is as it was before
    "#]],
    );
}

#[tokio::test]
async fn the_editors_extension_is_used_where_it_is_offered() {
    let fixture = open_asking(BATCH).await;
    fixture.write_to_disk("a", "not the editor's\n");
    fixture.open_document("a", "one\ntwo");
    fixture.call_tool("read_text_file", json!({ "path": "a" })).await;
    check(
        &fixture.call_and_log("write_files", files(&[("a", "1\ntwo"), ("b", "b\n")])).await,
        expect![[r#"
        > tool_call turn1_2 "Write 2 files" Edit Pending @$ROOT/a @$ROOT/b
            input {"files":[{"path":"$ROOT/a","content":"1\ntwo"},{"path":"$ROOT/b","content":"b\n"}]}
        < _bowline/fs/batch read $ROOT/a
        < _bowline/fs/batch read $ROOT/b
        > update turn1_2 @$ROOT/a:1 @$ROOT/b:1
            diff $ROOT/a "one\ntwo" -> "1\ntwo"
            diff $ROOT/b nothing -> "b\n"
        < session/request_permission turn1_2 "Write 2 files"
            diff $ROOT/a "one\ntwo" -> "1\ntwo"
            diff $ROOT/b nothing -> "b\n"
            allow_once: Allow once
            reject_once: Reject
        < _bowline/fs/batch read $ROOT/a
        < _bowline/fs/batch read $ROOT/b
        > update turn1_2 InProgress
        < _bowline/fs/batch write $ROOT/a "1\ntwo" truncate if unchanged, write $ROOT/b "b\n" truncate if missing
        > update turn1_2 Completed
            output {"servedBy":"client","operations":2}
        = 2 files, through the editor:
        - Wrote a (2 lines)
        - Created b (1 line)
    "#]],
    );
    check(
        &fixture.call_and_log("append_file", json!({ "path": "a", "content": "\nthree\n" })).await,
        expect![[r#"
            > tool_call turn1_3 "Append to a" Edit Pending @$ROOT/a
                input {"path":"$ROOT/a","content":"\nthree\n"}
            < _bowline/fs/stat $ROOT/a
            < _bowline/fs/batch read $ROOT/a
            > update turn1_3 @$ROOT/a:2
                diff $ROOT/a "1\ntwo" -> "1\ntwo\nthree\n"
            < session/request_permission turn1_3 "Append to a"
                diff $ROOT/a "1\ntwo" -> "1\ntwo\nthree\n"
                allow_once: Allow once
                allow_session: Allow edits of the file a, in this session
                allow_always: Always allow edits of the file a
                reject_once: Reject
                reject_always: Always reject edits of the file a
            < _bowline/fs/stat $ROOT/a
            < _bowline/fs/batch read $ROOT/a
            > update turn1_3 InProgress
            < _bowline/fs/batch write $ROOT/a "\nthree\n" append if unchanged
            > update turn1_3 Completed
                output {"servedBy":"client","operations":1}
            = Appended 2 lines to a, through the editor.
        "#]],
    );
    check(
        &fixture.call_and_log("move_file", json!({ "from": "a", "to": "b", "overwrite": true })).await,
        expect![[r#"
            > tool_call turn1_4 "Move a to b" Move Pending @$ROOT/a @$ROOT/b
                input {"from":"$ROOT/a","to":"$ROOT/b","overwrite":true}
            < _bowline/fs/batch read $ROOT/a
            < _bowline/fs/batch read $ROOT/b
            > update turn1_4
                text "Move `a` to `b`, which is replaced"
                diff $ROOT/b "b\n" -> "1\ntwo\nthree\n"
            < session/request_permission turn1_4 "Move a to b"
                text "Move `a` to `b`, which is replaced"
                diff $ROOT/b "b\n" -> "1\ntwo\nthree\n"
                allow_once: Allow once
                reject_once: Reject
            < _bowline/fs/batch read $ROOT/a
            < _bowline/fs/batch read $ROOT/b
            > update turn1_4 InProgress
            < _bowline/fs/batch move $ROOT/a to $ROOT/b
            > update turn1_4 Completed
                output {"servedBy":"client","operations":1}
            = Moved a to b, through the editor.
        "#]],
    );
    check(
        &fixture.call_and_log("stat_file", json!({ "path": "b" })).await,
        expect![[r#"
        > tool_call turn1_5 "Look at b" Read Pending @$ROOT/b
            input {"path":"$ROOT/b"}
        > update turn1_5 InProgress
        < _bowline/fs/stat $ROOT/b
        > update turn1_5 Completed
            text "b is a file of 12 bytes, text in UTF-8, with unsaved text, which counts."
            output {"servedBy":"client","size":12}
        = b is a file of 12 bytes, text in UTF-8, with unsaved text, which counts.
    "#]],
    );
    check(
        &fixture.call_and_log("delete_file", json!({ "path": "b" })).await,
        expect![[r#"
            > tool_call turn1_6 "Delete b" Delete Pending @$ROOT/b
                input {"path":"$ROOT/b","recursive":false}
            < _bowline/fs/batch read $ROOT/b
            > update turn1_6
                diff $ROOT/b "1\ntwo\nthree\n" -> ""
            < session/request_permission turn1_6 "Delete b"
                diff $ROOT/b "1\ntwo\nthree\n" -> ""
                text "Careful: deletes $ROOT/b"
                allow_once: Allow once
                allow_session: Allow deleting the file b, in this session
                allow_always: Always allow deleting the file b
                reject_once: Reject
                reject_always: Always reject deleting the file b
            < _bowline/fs/batch read $ROOT/b
            > update turn1_6 InProgress
            < _bowline/fs/batch remove $ROOT/b
            > update turn1_6 Completed
                output {"servedBy":"client","operations":1}
            = Deleted b, through the editor.
        "#]],
    );
    check(
        &fixture.toolbox.runtime().describe().join("\n"),
        expect![[r#"
        reading files: the editor (it advertises fs.readTextFile)
        writing files: the editor (it advertises fs.writeTextFile)
        commands: the editor (it advertises terminal)
        listing and searching: the agent's own machine (the protocol has no such method)
        file metadata: the editor (it advertises _bowline/fs/stat)
        moving, deleting, writing several files: the editor (it advertises _bowline/fs/batch)"#]],
    );
    assert_eq!(fixture.read_from_disk("a"), "not the editor's\n");
    assert!(!fixture.has_journal());
}

#[tokio::test]
async fn the_model_knows_a_file_by_its_new_path() {
    let mut out = String::new();
    for capabilities in [EditorCapabilities::NONE, BATCH] {
        let fixture = ToolboxFixture::open(capabilities).await;
        fixture.write_to_disk("a", "one\n");
        fixture.open_document("a", "one\n");
        fixture.call_tool("read_text_file", json!({ "path": "a" })).await;
        out += &fixture.call_tool("move_file", json!({ "from": "a", "to": "b" })).await;
        // Not refused as unread.
        out += &fixture.call_tool("write_files", files(&[("b", "two\n")])).await;
        out += &fixture.call_tool("write_files", files(&[("b", "two\n")])).await;
    }
    check(
        &out,
        expect![[r#"
        = Moved a to b, on the agent's own machine.
        = Wrote b (1 line), on the agent's own machine.
        = b holds this text already; nothing was written.
        = Moved a to b, through the editor.
        = Wrote b (1 line), through the editor.
        = b holds this text already; nothing was written.
    "#]],
    );
}

#[tokio::test]
async fn a_file_that_changes_meanwhile_is_decided_again() {
    let fixture = ToolboxFixture::open(BATCH).await;
    fixture.open_document("a", "one\ntwo\nthree\n");
    let path = fixture.path("a");
    fixture.call_tool("read_text_file", json!({ "path": "a" })).await;
    fixture.editor.run_after("_bowline/fs/batch", move |documents| {
        documents.insert(path, "one\ntwo\nTHREE\n".to_owned());
    });
    let mut out = fixture.call_tool("write_files", files(&[("a", "1\ntwo\nthree\n")])).await;
    // Both changed the same line.
    let path = fixture.path("a");
    fixture.editor.run_after("_bowline/fs/batch", move |documents| {
        documents.insert(path, "eins\ntwo\nTHREE\n".to_owned());
    });
    out += &fixture.call_tool("write_files", files(&[("a", "uno\ntwo\nthree\n"), ("b", "b\n")])).await;
    check(
        &out,
        expect![[r#"
        = Wrote a (3 lines), through the editor.
        Another program changed the file since you read it; both changes are in it now. What came in:
        @@ -2,2 +2,2 @@
         two
        -three
        +THREE
        ! nothing was written: a: the text was changed since this session read it, and both changes touch the same lines: read it again
        At line 1:
        --- you saw
        1
        --- the file has now
        eins
        --- you would write
        uno
    "#]],
    );
    assert_eq!((fixture.document("a"), fixture.document("b")), ("eins\ntwo\nTHREE\n".into(), String::new()));
}

#[tokio::test]
async fn what_the_user_approved_is_what_happens() {
    let mut out = String::new();
    for capabilities in [EditorCapabilities::ALL, BATCH] {
        let fixture = open_asking(capabilities).await;
        fixture.write_to_disk("a", "one\n");
        fixture.open_document("a", "one\n");
        fixture.call_tool("read_text_file", json!({ "path": "a" })).await;
        // The user types while the question is open.
        let path = fixture.path("a");
        fixture.editor.run_after("session/request_permission", move |documents| {
            documents.insert(path, "mine\n".to_owned());
        });
        out += &fixture.call_tool("delete_file", json!({ "path": "a" })).await;
        assert_eq!((fixture.read_from_disk("a"), fixture.document("a")), ("one\n".into(), "mine\n".into()));
    }
    check(
        &out,
        expect![[r#"
        ! nothing was changed: a has unsaved text in the editor, or the editor cannot show its text: the user has to save it first
        ! nothing was changed: a was changed since you read it: read it again first
    "#]],
    );
}

#[tokio::test]
async fn a_text_that_changed_since_it_was_read_is_not_deleted() {
    let mut out = String::new();
    for capabilities in [EditorCapabilities::NONE, BATCH] {
        let fixture = ToolboxFixture::open(capabilities).await;
        for name in ["a", "b"] {
            fixture.write_to_disk(name, "one\n");
            fixture.open_document(name, "one\n");
            fixture.call_tool("read_text_file", json!({ "path": name })).await;
        }
        fixture.write_to_disk("a", "mine\n");
        fixture.open_document("a", "mine\n");
        out += &fixture.call_tool("delete_file", json!({ "path": "a" })).await;
        out += &fixture.call_tool("move_file", json!({ "from": "b", "to": "a", "overwrite": true })).await;
        out += &fixture.call_tool("move_file", json!({ "from": "a", "to": "c" })).await;
    }
    check(
        &out,
        expect![[r#"
        ! nothing was changed: a: the text was changed since this session read it: read it again
        ! nothing was changed: a: the text was changed since this session read it: read it again
        ! nothing was changed: a: the text was changed since this session read it: read it again
        ! nothing was changed: a was changed since you read it: read it again first
        ! nothing was changed: a was changed since you read it: read it again first
        = Moved a to c, through the editor.
    "#]],
    );
}

#[tokio::test]
async fn the_editors_formatting_is_told() {
    let fixture = ToolboxFixture::open(BATCH).await;
    fixture.editor.set_formatter(|_, text| text.to_uppercase());
    check(
        &fixture.call_tool("write_files", files(&[("a", "one\n"), ("b", "TWO\n")])).await,
        expect![[r#"
        = 2 files, through the editor:
        - Created a (1 line)
        The file differs from what you sent, because its user or the editor's formatting changed it:
        @@ -1 +1 @@
        -one
        +ONE

        - Created b (1 line)
    "#]],
    );
}

#[tokio::test]
async fn unread_text_is_not_replaced_without_a_person() {
    let mut out = String::new();
    for capabilities in [EditorCapabilities::NONE, BATCH] {
        let fixture = ToolboxFixture::open(capabilities).await;
        fixture.write_to_disk("a", "one\n");
        fixture.open_document("a", "one\n");
        out += &fixture.call_tool("write_files", files(&[("a", "1\n"), ("b", "b\n")])).await;
        // Appending replaces nothing.
        out += &fixture.call_tool("append_file", json!({ "path": "a", "content": "two\n" })).await;
    }
    check(
        &out,
        expect![[r#"
        ! nothing was written: a: you have not read all of the text that would be replaced, or not since this session was loaded: read it first
        = Appended 1 line to a, on the agent's own machine.
        ! nothing was written: a: you have not read all of the text that would be replaced, or not since this session was loaded: read it first
        = Appended 1 line to a, through the editor.
    "#]],
    );
}

#[tokio::test]
async fn unsaved_text_of_an_editor_without_the_extension_is_kept() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    for name in ["a", "dir/b", "saved"] {
        fixture.write_to_disk(name, "saved\n");
        fixture.open_document(name, "saved\n");
    }
    fixture.open_document("a", "unsaved\n");
    fixture.open_document("dir/b", "unsaved\n");
    fixture.open_document("new", "never saved\n");
    // The project is known to be on this machine.
    fixture.call_tool("read_text_file", json!({ "path": "saved" })).await;
    let mut out = fixture.call_tool("delete_file", json!({ "path": "a" })).await;
    out += &fixture.call_tool("move_file", json!({ "from": "a", "to": "c" })).await;
    out += &fixture.call_tool("move_file", json!({ "from": "saved", "to": "a", "overwrite": true })).await;
    out += &fixture.call_tool("move_file", json!({ "from": "saved", "to": "new" })).await;
    out += &fixture.call_tool("delete_file", json!({ "path": "dir", "recursive": true })).await;
    out += &fixture.call_tool("write_files", files(&[("saved", "2\n"), ("a", "1\n")])).await;
    fixture.editor.queue_fault("fs/read_text_file", EditorFault::Stall);
    out += &fixture.call_tool("delete_file", json!({ "path": "saved" })).await;
    out += &fixture.call_tool("delete_file", json!({ "path": "saved" })).await;
    // Through the editor, into its text.
    out += &fixture.call_tool("append_file", json!({ "path": "a", "content": "more\n" })).await;
    check(
        &out,
        expect![[r#"
        ! nothing was changed: a has unsaved text in the editor, or the editor cannot show its text: the user has to save it first
        ! nothing was changed: a has unsaved text in the editor, or the editor cannot show its text: the user has to save it first
        ! nothing was changed: a has unsaved text in the editor, or the editor cannot show its text: the user has to save it first
        ! nothing was changed: new has unsaved text in the editor, or the editor cannot show its text: the user has to save it first
        ! nothing was changed: dir/b has unsaved text in the editor, or the editor cannot show its text: the user has to save it first
        ! nothing was changed: a has unsaved text in the editor, or the editor cannot show its text: the user has to save it first
        ! nothing was changed: saved has unsaved text in the editor, or the editor cannot show its text: the user has to save it first
        = Deleted saved, on the agent's own machine.
        = Appended 1 line to a, through the editor.
    "#]],
    );
    assert_eq!(
        (fixture.read_from_disk("a"), fixture.document("a")),
        ("saved\n".into(), "unsaved\nmore\n".into())
    );
    check(
        &fixture.toolbox.undo(2, UndoTarget::Session).await.unwrap(),
        expect![[r#"
        - saved is as it was before

        The editor takes back by itself what was written through it.
    "#]],
    );
    assert_eq!(fixture.read_from_disk("saved"), "saved\n");
}

#[tokio::test]
async fn another_machines_files_are_not_changed() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    fixture.write_to_disk("other", "not the user's\n");
    fixture.open_document("a", "far away\n");
    fixture.call_tool("read_text_file", json!({ "path": "a" })).await;
    let mut out = fixture.call_tool("delete_file", json!({ "path": "other" })).await;
    out += &fixture.call_tool("stat_file", json!({ "path": "other" })).await;
    check(
        &out,
        expect![[r#"
        ! only files of the agent's own machine can be changed so, and a is not on it, which the editor has: the project is on another machine. (If that file is only not saved yet, read another one and try again.)
        ! only files of the agent's own machine can be described, and a is not on it, which the editor has: the project is on another machine. (If that file is only not saved yet, read another one and try again.)
    "#]],
    );
}

#[tokio::test]
async fn directories_are_moved_and_deleted_whole() {
    let fixture = ToolboxFixture::open(EditorCapabilities::NONE).await;
    for name in ["src/a", "src/deep/b", "empty/x"] {
        fixture.write_to_disk(name, "text\n");
    }
    std::fs::write(fixture.path("src/c.bin"), [0, 159, 146, 150]).unwrap();
    std::fs::remove_file(fixture.path("empty/x")).unwrap();
    let mut out = String::new();
    for (name, input) in [
        ("delete_file", json!({ "path": "src" })),
        ("delete_file", json!({ "path": "empty" })),
        ("move_file", json!({ "from": "src", "to": "lib" })),
        ("move_file", json!({ "from": "lib", "to": "lib/inside" })),
        ("delete_file", json!({ "path": "lib/c.bin" })),
        ("delete_file", json!({ "path": "lib", "recursive": true })),
    ] {
        out += &fixture.call_tool(name, input).await;
    }
    check(
        &out,
        expect![[r#"
            ! nothing was changed: src is not empty: set `recursive` to delete all that is in it
            = Deleted empty, on the agent's own machine.
            = Moved src to lib with 3 files, on the agent's own machine.
            ! nothing was changed: lib and lib/inside are the same, or one contains the other
            = Deleted lib/c.bin, on the agent's own machine.
            = Deleted lib with 2 files, on the agent's own machine.
        "#]],
    );
}

#[tokio::test]
async fn bad_input_is_answered() {
    let fixture = ToolboxFixture::open(EditorCapabilities::NONE).await;
    fixture.write_to_disk("a", "one\n");
    fixture.write_to_disk("b", "two\n");
    std::fs::write(fixture.path("c.bin"), [0, 159, 146, 150]).unwrap();
    let many: Vec<(String, &str)> = (0..101).map(|index| (format!("f{index}"), "")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    let mut out = String::new();
    for (name, input) in [
        ("write_files", json!({})),
        ("write_files", json!({ "files": [] })),
        ("write_files", json!({ "files": [{ "path": "a" }] })),
        ("write_files", files(&many)),
        ("write_files", files(&[("a", "x"), ("./a", "y")])),
        ("write_files", files(&[("new", "x"), ("new/below", "y")])),
        ("write_files", files(&[("new", "x"), ("c.bin", "y")])),
        ("write_files", files(&[("new", "x"), ("../out", "y")])),
        ("append_file", json!({ "path": "a" })),
        ("append_file", json!({ "path": "c.bin", "content": "x" })),
        ("delete_file", json!({ "path": "nowhere" })),
        ("delete_file", json!({ "path": ".." })),
        ("move_file", json!({ "from": "a" })),
        ("move_file", json!({ "from": "nowhere", "to": "c" })),
        ("move_file", json!({ "from": "a", "to": "b" })),
        ("move_file", json!({ "from": "a", "to": "no/such/c" })),
        ("move_file", json!({ "from": "a", "to": "a" })),
        ("stat_file", json!({ "path": "nowhere" })),
    ] {
        out += &fixture.call_tool(name, input).await;
    }
    check(
        &out,
        expect![[r#"
            ! `files` is missing: give a list of objects
            ! `files` is empty: give at least one file
            ! file 1: `content` is missing: give a string
            ! `files` has 101 files, and a call writes at most 100: make several calls
            ! file 2: a is given twice
            ! nothing was changed: new/below and file 1 cannot both be written
            ! nothing was written: c.bin: the agent's own machine says: $ROOT/c.bin cannot be read as text: the content is binary, read it with a command that knows its kind
            ! nothing was written: $BASE/out is outside the directories of this session (the agent's own machine says so)
            ! `content` is missing: give a string
            ! nothing was written: c.bin: the agent's own machine says: $ROOT/c.bin cannot be read as text: the content is binary, read it with a command that knows its kind
            ! nothing was changed: nowhere does not exist: list the directory to see what is there
            ! nothing was changed: $BASE is outside the directories of this session
            ! `to` is missing: give a string
            ! nothing was changed: nowhere does not exist: list the directory to see what is there
            ! nothing was changed: b exists already: replace it with `overwrite`, or choose another path
            ! nothing was changed: no/such does not exist: list the directory to see what is there
            ! nothing was changed: a and a are the same, or one contains the other
            ! nowhere does not exist (the agent's own machine says so)
        "#]],
    );
    assert!(!std::fs::exists(fixture.path("new")).unwrap());
}

#[tokio::test]
async fn an_editor_that_dies_leaves_the_outcome_open() {
    let fixture = ToolboxFixture::open(BATCH).await;
    fixture.open_document("a", "one\n");
    // The first batch reads the file.
    fixture.editor.queue_fault("_bowline/fs/batch", EditorFault::Serve);
    fixture.editor.queue_fault("_bowline/fs/batch", EditorFault::DisconnectAfterActing);
    check(
        &fixture.call_tool("delete_file", json!({ "path": "a" })).await,
        expect![[r#"
        ! it is not known whether the files were changed: the connection to the editor is closed. Look at them before you go on; do not simply repeat the call.
    "#]],
    );
    assert_eq!(fixture.document("a"), "");
}

#[tokio::test]
async fn a_mode_without_changes_offers_only_metadata() {
    let fixture =
        ToolboxFixture::open_with(EditorCapabilities::NONE, AgentMode::ReadOnly, |_| (), None).await;
    fixture.write_to_disk("a", "one\n");
    let mut out = String::new();
    for (name, input) in [
        ("write_files", files(&[("a", "x")])),
        ("append_file", json!({ "path": "a", "content": "x" })),
        ("delete_file", json!({ "path": "a" })),
        ("move_file", json!({ "from": "a", "to": "b" })),
    ] {
        out += &fixture.call_tool(name, input).await;
    }
    check(
        &out,
        expect![[r#"
        ! write_files changes or runs something, which the mode read-only does not allow
        ! append_file changes or runs something, which the mode read-only does not allow
        ! delete_file changes or runs something, which the mode read-only does not allow
        ! move_file changes or runs something, which the mode read-only does not allow
    "#]],
    );
    let stat = fixture.call_tool("stat_file", json!({ "path": "a" })).await;
    assert!(stat.starts_with("= a is a file of 4 bytes, text in UTF-8, mode "), "{stat}");
    assert_eq!(fixture.read_from_disk("a"), "one\n");
}

#[tokio::test]
async fn rules_hold_for_every_file() {
    let fixture = ToolboxFixture::open(EditorCapabilities::NONE).await;
    fixture.write_rules("[[rules]]\neffect = \"deny\"\nkinds = [\"delete\", \"write\"]\npath = \"kept\"\n");
    fixture.write_to_disk("kept", "one\n");
    fixture.call_tool("read_text_file", json!({ "path": "kept" })).await;
    let mut out = String::new();
    for (name, input) in [
        ("write_files", files(&[("b", "b\n"), ("kept", "x\n")])),
        ("delete_file", json!({ "path": "kept" })),
        ("move_file", json!({ "from": "kept", "to": "b" })),
    ] {
        out += &fixture.call_tool(name, input).await;
    }
    check(
        &out,
        expect![[r#"
        ! permission denied: a rule of the user's denies it
        ! permission denied: a rule of the user's denies it
        ! permission denied: a rule of the user's denies it
    "#]],
    );
    assert!(!std::fs::exists(fixture.path("b")).unwrap());
    // Protected names are asked about even in the mode that asks about nothing else.
    let log = fixture.call_and_log("write_files", files(&[("b", "b\n"), (".env", "KEY=1\n")])).await;
    assert!(log.contains("session/request_permission"), "{log}");
}
