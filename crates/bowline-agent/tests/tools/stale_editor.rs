//! Writes through an editor with stale or lossy text, which must not lose data.

use bowline_policy::mode::AgentMode;
use bowline_protocol::schema::v1::Error;
use expect_test::{Expect, expect};
use serde_json::{Value, json};
use test_support::editor::{EditorCapabilities, EditorFault, FakeCommand};

use crate::fixture::ToolboxFixture;

fn check(actual: &str, expected: Expect) {
    expected.assert_eq(actual);
}

fn edit_input(old: &str, new: &str) -> Value {
    json!({ "path": "a", "old_text": old, "new_text": new })
}

fn write_input(content: &str) -> Value {
    json!({ "path": "a", "content": content })
}

async fn read_file(fixture: &ToolboxFixture) -> String {
    fixture.call_tool("read_text_file", json!({ "path": "a" })).await
}

/// Changes a file on disk with a command, unnoticed by the editor.
async fn change_by_command(fixture: &ToolboxFixture, text: &str) {
    fixture.editor.queue_command(FakeCommand::exited("", 0));
    fixture.call_tool("execute", json!({ "command": "sed -i s/one/ONE/ a" })).await;
    fixture.write_to_disk("a", text);
}

#[tokio::test]
async fn what_was_not_read_is_not_replaced_unless_a_person_sees_it() {
    let mut out = String::new();
    for (mode, capabilities) in [
        (AgentMode::AcceptEdits, EditorCapabilities::ALL),
        (AgentMode::Full, EditorCapabilities::ALL),
        (AgentMode::Full, EditorCapabilities::NONE),
        (AgentMode::Ask, EditorCapabilities::ALL),
    ] {
        let fixture = ToolboxFixture::open_with(capabilities, mode, |_| (), None).await;
        fixture.open_document("a", "precious\n");
        fixture.write_to_disk("a", "precious\n");
        out += &format!("{}:\n", mode.id());
        out += &fixture.call_tool("write_text_file", write_input("new\n")).await;
    }
    check(
        &out,
        expect![[r#"
        accept-edits:
        ! nothing was written: a: you have not read all of the text that would be replaced, or not since this session was loaded: read it first
        full:
        ! nothing was written: a: you have not read all of the text that would be replaced, or not since this session was loaded: read it first
        full:
        ! nothing was written: a: you have not read all of the text that would be replaced, or not since this session was loaded: read it first
        ask:
        = Wrote a (1 line), through the editor.
        You had not read this file; other text was in it and has been replaced.
    "#]],
    );
}

#[tokio::test]
async fn what_was_read_in_part_is_not_replaced() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    fixture.open_document("a", "one\ntwo\nthree\n");
    fixture.call_tool("read_text_file", json!({ "path": "a", "limit": 1 })).await;
    let mut out = fixture.call_tool("write_text_file", write_input("1\n")).await;
    // An empty file has nothing to lose.
    fixture.open_document("a", "");
    out += &fixture.call_tool("write_text_file", write_input("1\n")).await;
    check(
        &out,
        expect![[r#"
            ! nothing was written: a: this session has read only a part of the text and would change or remove lines 1 to 3, which it has not read: read the rest of the text first, or change only lines that it has read
            = Wrote a (1 line), through the editor.
            You had read only a part of this file; the rest is as it was.
        "#]],
    );
}

#[tokio::test]
async fn an_editor_that_shows_nothing_does_not_replace_unseen() {
    let set = |options: &mut bowline_agent::agent_options::AgentOptions| {
        options.tool_set = bowline_agent::agent_options::ToolSet::Dual;
    };
    let capabilities = EditorCapabilities { write: true, ..EditorCapabilities::NONE };
    let fixture = ToolboxFixture::open_with(capabilities, AgentMode::Full, set, None).await;
    let mut out = fixture.call_tool("ide_write_file", write_input("new\n")).await;
    // The disk has the text that the model wrote.
    fixture.write_to_disk("a", "new\n");
    out += &fixture.call_tool("ide_write_file", write_input("newer\n")).await;
    fixture.write_to_disk("a", "the user's\n");
    out += &fixture.call_tool("ide_write_file", write_input("newest\n")).await;
    check(
        &out,
        expect![[r#"
        = Wrote a (1 line), through the editor.
        It could not be read again to see what became of it: the editor does not offer reading.
        = Wrote a (1 line), through the editor.
        It could not be read again to see what became of it: the editor does not offer reading.
        ! nothing was written: a: the editor does not show what is in it now, which would be replaced: ask the user for the mode that asks before edits
    "#]],
    );
}

#[tokio::test]
async fn text_that_the_editor_could_not_read_is_not_written_back() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    std::fs::write(fixture.path("a"), b"caf\xe9 one\ntwo\n").unwrap();
    fixture.open_document("a", "caf\u{fffd} one\ntwo\n");
    let mut out = read_file(&fixture).await;
    out += &fixture.call_tool("edit_text_file", edit_input("two", "TWO")).await;
    out += &fixture.call_tool("write_text_file", write_input("caf\u{fffd}\n")).await;
    // Another editor drops undecodable bytes.
    fixture.open_document("a", "caf one\ntwo\n");
    out += &fixture.call_tool("edit_text_file", edit_input("two", "TWO")).await;
    // An editor that can decode the file may write it.
    fixture.open_document("a", "café one\ntwo\n");
    out += &fixture.call_tool("edit_text_file", edit_input("two", "TWO")).await;
    check(
        &out,
        expect![[r#"
        = [a: all of it, 2 lines, read through the editor; it is not all text, and the editor could not read the rest]
        caf� one
        two
        ! nothing was written: a is not text that the editor can read, and what it could not read would be lost: change it by a command
        ! nothing was written: a is not text that the editor can read, and what it could not read would be lost: change it by a command
        ! nothing was written: a is not text that the editor can read, and what it could not read would be lost: change it by a command
        = Edited a in 1 place, through the editor.
        Another program changed the file since you last saw it:
        @@ -1,2 +1,2 @@
        -caf� one
        +café one
         two
    "#]],
    );
}

#[tokio::test]
async fn what_a_command_changed_is_not_reverted_by_a_stale_buffer() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    fixture.write_to_disk("a", "one\ntwo\nthree\n");
    fixture.open_document("a", "one\ntwo\nthree\n");
    let mut out = read_file(&fixture).await;
    change_by_command(&fixture, "ONE\ntwo\nthree\n").await;
    out += &read_file(&fixture).await;
    out += &fixture.call_tool("edit_text_file", edit_input("three", "THREE")).await;
    check(
        &out,
        expect![[r#"
        = [a: all of it, 3 lines, read through the editor]
        one
        two
        three
        = [a: all of it, 3 lines, read through the editor; it was changed on disk, and the editor has not reloaded it]
        one
        two
        three
        = Edited a in 1 place, through the editor.
        Another program changed the file since you last saw it:
        @@ -1,2 +1,2 @@
        -one
        +ONE
         two

        The file was changed on disk, and the editor had not reloaded it; what was changed there is in it now.
    "#]],
    );
    assert_eq!(fixture.document("a"), "ONE\ntwo\nTHREE\n");
    // The editor's text is the file's again, saved or not.
    check(
        &fixture.call_tool("edit_text_file", edit_input("THREE", "3")).await,
        expect![[r#"
        = Edited a in 1 place, through the editor.
    "#]],
    );
    assert_eq!(fixture.document("a"), "ONE\ntwo\n3\n");
}

#[tokio::test]
async fn unsaved_text_stays_beside_what_a_command_changed() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    fixture.write_to_disk("a", "one\ntwo\nthree\n");
    fixture.open_document("a", "one\ntwo\nthree\nnot saved\n");
    read_file(&fixture).await;
    fixture.call_tool("execute", json!({ "command": "make" })).await;
    // The command has not changed the file.
    let mut out = fixture.call_tool("edit_text_file", edit_input("three", "3")).await;
    change_by_command(&fixture, "ONE\ntwo\nthree\n").await;
    out += &fixture.call_tool("edit_text_file", edit_input("two", "2")).await;
    check(
        &out,
        expect![[r#"
        = Edited a in 1 place, through the editor.
        = Edited a in 1 place, through the editor.
        Another program changed the file since you last saw it:
        @@ -1,2 +1,2 @@
        -one
        +ONE
         two

        The file was changed on disk, and the editor had not reloaded it; what was changed there is in it now.
    "#]],
    );
    check(
        &fixture.document("a"),
        expect![[r#"
        ONE
        2
        3
        not saved
    "#]],
    );
}

#[tokio::test]
async fn what_cannot_be_merged_with_a_stale_buffer_is_refused() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    fixture.write_to_disk("a", "one\ntwo\n");
    fixture.open_document("a", "one\ntwo\n");
    read_file(&fixture).await;
    change_by_command(&fixture, "ONE\ntwo\n").await;
    fixture.open_document("a", "uno\ntwo\n");
    let mut out = fixture.call_tool("edit_text_file", edit_input("two", "2")).await;
    // This file was not compared before the command ran.
    fixture.write_to_disk("b", "new\n");
    fixture.open_document("b", "old\n");
    out += &fixture
        .call_tool("edit_text_file", json!({ "path": "b", "old_text": "old", "new_text": "x" }))
        .await;
    std::fs::remove_file(fixture.path("a")).unwrap();
    out += &fixture.call_tool("edit_text_file", edit_input("two", "2")).await;
    check(
        &out,
        expect![[r#"
        ! nothing was written: a was changed on disk, and the editor has not reloaded it: it has to be saved or reloaded in the editor, or edited by a command
        ! nothing was written: b was changed on disk, and the editor has not reloaded it: it has to be saved or reloaded in the editor, or edited by a command
        ! nothing was written: a was deleted on disk, and the editor still has its text: it has to be saved or closed in the editor
    "#]],
    );
    assert_eq!((fixture.document("a"), fixture.document("b")), ("uno\ntwo\n".to_owned(), "old\n".to_owned()));
}

#[tokio::test]
async fn where_the_editor_reads_and_the_disk_is_written_both_are_kept() {
    let fixture = ToolboxFixture::open(EditorCapabilities { read: true, ..EditorCapabilities::NONE }).await;
    fixture.write_to_disk("a", "one\ntwo\nthree\nfour\n");
    fixture.open_document("a", "one\ntwo\nthree\nfour\n");
    read_file(&fixture).await;
    // Another program changes the file, while the editor's user types.
    fixture.write_to_disk("a", "ONE\ntwo\nthree\nfour\n");
    fixture.open_document("a", "one\ntwo\nthree\nFOUR\n");
    check(
        &fixture.call_tool("edit_text_file", edit_input("two", "2")).await,
        expect![[r#"
            = Edited a in 1 place, on the agent's own machine.
            Another program changed the file since you last saw it:
            @@ -1,4 +1,4 @@
            -one
            +ONE
             two
             three
            -four
            +FOUR

            The file was changed on disk, and the editor had not reloaded it; what was changed there is in it now.
            It could not be read again to see what became of it: the editor does not have the new text yet.
        "#]],
    );
    check(
        &fixture.read_from_disk("a"),
        expect![[r#"
        ONE
        2
        three
        FOUR
    "#]],
    );
}

#[tokio::test]
async fn only_a_missing_file_is_created() {
    let mut out = String::new();
    for (message, is_on_disk) in [
        ("the language server for buffer a was not found", true),
        ("Resource does not exist", true),
        ("ENOENT: no such file or directory, open 'a'", true),
        ("cannot open: No such file or directory (os error 2)", true),
        ("cannot open: No such file or directory (os error 2)", false),
    ] {
        let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
        fixture.open_document("a", "precious\n");
        if is_on_disk {
            fixture.write_to_disk("a", "precious\n");
        }
        let error = Error::new(-32603, message);
        fixture.editor.queue_fault("fs/read_text_file", EditorFault::Refuse(error));
        out += &fixture.call_tool("write_text_file", write_input("new\n")).await;
    }
    check(
        &out,
        expect![[r#"
        ! nothing was written: a cannot be read: the editor says: the language server for buffer a was not found
        ! nothing was written: a cannot be read: the editor says: Resource does not exist
        = Created a (1 line), through the editor.
        ! nothing was written: a cannot be read: the editor says: cannot open: No such file or directory (os error 2)
        = Created a (1 line), through the editor.
    "#]],
    );
}
