//! What an editor does not know, or could not read, is not lost by writing through it.

use bowline_state::mode::Mode;
use bowline_state::schema::v1::Error;
use expect_test::{Expect, expect};
use serde_json::{Value, json};
use test_support::editor::{Offers, Run, Trouble};

use crate::stage::Stage;

fn check(actual: &str, expected: Expect) {
    expected.assert_eq(actual);
}

fn edit(old: &str, new: &str) -> Value {
    json!({ "path": "a", "old_text": old, "new_text": new })
}

fn whole(content: &str) -> Value {
    json!({ "path": "a", "content": content })
}

async fn read(stage: &Stage) -> String {
    stage.call("read_text_file", json!({ "path": "a" })).await
}

/// Changes a file on disk by a command, which the editor does not notice.
async fn run_and_change(stage: &Stage, text: &str) {
    stage.editor.run(Run::ended("", 0));
    stage.call("execute", json!({ "command": "sed -i s/one/ONE/ a" })).await;
    stage.save("a", text);
}

#[tokio::test]
async fn what_was_not_read_is_not_replaced_unless_a_person_sees_it() {
    let mut told = String::new();
    for (mode, offers) in [
        (Mode::AcceptEdits, Offers::ALL),
        (Mode::Full, Offers::ALL),
        (Mode::Full, Offers::NONE),
        (Mode::Ask, Offers::ALL),
    ] {
        let stage = Stage::with(offers, mode, |_| (), None).await;
        stage.put("a", "precious\n");
        stage.save("a", "precious\n");
        told += &format!("{}:\n", mode.id());
        told += &stage.call("write_text_file", whole("new\n")).await;
    }
    check(
        &told,
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
    let stage = Stage::open(Offers::ALL).await;
    stage.put("a", "one\ntwo\nthree\n");
    stage.call("read_text_file", json!({ "path": "a", "limit": 1 })).await;
    let mut told = stage.call("write_text_file", whole("1\n")).await;
    // An empty file holds nothing that could be lost.
    stage.put("a", "");
    told += &stage.call("write_text_file", whole("1\n")).await;
    check(
        &told,
        expect![[r#"
            ! nothing was written: a: this session has read only a part of the text and would change or remove lines 1 to 3, which it has not read: read the rest of the text first, or change only lines that it has read
            = Wrote a (1 line), through the editor.
            You had read only a part of this file; the rest is as it was.
        "#]],
    );
}

#[tokio::test]
async fn an_editor_that_shows_nothing_does_not_replace_unseen() {
    let set = |settings: &mut bowline_agent::settings::Settings| {
        settings.tools = bowline_agent::settings::ToolSet::Dual;
    };
    let offers = Offers { read: false, write: true, terminal: false };
    let stage = Stage::with(offers, Mode::Full, set, None).await;
    let mut told = stage.call("ide_write_file", whole("new\n")).await;
    // It is known what it holds.
    stage.save("a", "new\n");
    told += &stage.call("ide_write_file", whole("newer\n")).await;
    stage.save("a", "the user's\n");
    told += &stage.call("ide_write_file", whole("newest\n")).await;
    check(
        &told,
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
    let stage = Stage::open(Offers::ALL).await;
    std::fs::write(stage.path("a"), b"caf\xe9 one\ntwo\n").unwrap();
    stage.put("a", "caf\u{fffd} one\ntwo\n");
    let mut told = read(&stage).await;
    told += &stage.call("edit_text_file", edit("two", "TWO")).await;
    told += &stage.call("write_text_file", whole("caf\u{fffd}\n")).await;
    // Another editor drops what it cannot read.
    stage.put("a", "caf one\ntwo\n");
    told += &stage.call("edit_text_file", edit("two", "TWO")).await;
    // One that can read it may write it.
    stage.put("a", "café one\ntwo\n");
    told += &stage.call("edit_text_file", edit("two", "TWO")).await;
    check(
        &told,
        expect![[r#"
        = [a: all of it, 2 lines, read through the editor; it is not all text, and the editor could not read the rest]
        caf� one
        two
        ! nothing was written: a is not text that the editor can read, and what it could not read would be lost: change it by a command
        ! nothing was written: a is not text that the editor can read, and what it could not read would be lost: change it by a command
        ! nothing was written: a is not text that the editor can read, and what it could not read would be lost: change it by a command
        = Edited a in 1 place, through the editor.
        Somebody else had changed the file since you last saw it:
        @@ -1,2 +1,2 @@
        -caf� one
        +café one
         two
    "#]],
    );
}

#[tokio::test]
async fn what_a_command_changed_is_not_reverted_by_a_stale_buffer() {
    let stage = Stage::open(Offers::ALL).await;
    stage.save("a", "one\ntwo\nthree\n");
    stage.put("a", "one\ntwo\nthree\n");
    let mut told = read(&stage).await;
    run_and_change(&stage, "ONE\ntwo\nthree\n").await;
    told += &read(&stage).await;
    told += &stage.call("edit_text_file", edit("three", "THREE")).await;
    check(
        &told,
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
        Somebody else had changed the file since you last saw it:
        @@ -1,2 +1,2 @@
        -one
        +ONE
         two

        The file was changed on disk, and the editor had not reloaded it; what was changed there is in it now.
    "#]],
    );
    assert_eq!(stage.get("a"), "ONE\ntwo\nTHREE\n");
    // Its text is the file's again, whether or not it has saved it.
    check(
        &stage.call("edit_text_file", edit("THREE", "3")).await,
        expect![[r#"
        = Edited a in 1 place, through the editor.
    "#]],
    );
    assert_eq!(stage.get("a"), "ONE\ntwo\n3\n");
}

#[tokio::test]
async fn unsaved_text_stays_beside_what_a_command_changed() {
    let stage = Stage::open(Offers::ALL).await;
    stage.save("a", "one\ntwo\nthree\n");
    stage.put("a", "one\ntwo\nthree\nnot saved\n");
    read(&stage).await;
    stage.call("execute", json!({ "command": "make" })).await;
    // The command has not touched it.
    let mut told = stage.call("edit_text_file", edit("three", "3")).await;
    run_and_change(&stage, "ONE\ntwo\nthree\n").await;
    told += &stage.call("edit_text_file", edit("two", "2")).await;
    check(
        &told,
        expect![[r#"
        = Edited a in 1 place, through the editor.
        = Edited a in 1 place, through the editor.
        Somebody else had changed the file since you last saw it:
        @@ -1,2 +1,2 @@
        -one
        +ONE
         two

        The file was changed on disk, and the editor had not reloaded it; what was changed there is in it now.
    "#]],
    );
    check(
        &stage.get("a"),
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
    let stage = Stage::open(Offers::ALL).await;
    stage.save("a", "one\ntwo\n");
    stage.put("a", "one\ntwo\n");
    read(&stage).await;
    run_and_change(&stage, "ONE\ntwo\n").await;
    stage.put("a", "uno\ntwo\n");
    let mut told = stage.call("edit_text_file", edit("two", "2")).await;
    // Nobody has looked at this one before the command ran.
    stage.save("b", "new\n");
    stage.put("b", "old\n");
    told += &stage.call("edit_text_file", json!({ "path": "b", "old_text": "old", "new_text": "x" })).await;
    std::fs::remove_file(stage.path("a")).unwrap();
    told += &stage.call("edit_text_file", edit("two", "2")).await;
    check(
        &told,
        expect![[r#"
        ! nothing was written: a was changed on disk, and the editor has not reloaded it: it has to be saved or reloaded in the editor, or edited by a command
        ! nothing was written: b was changed on disk, and the editor has not reloaded it: it has to be saved or reloaded in the editor, or edited by a command
        ! nothing was written: a was deleted on disk, and the editor still has its text: it has to be saved or closed in the editor
    "#]],
    );
    assert_eq!((stage.get("a"), stage.get("b")), ("uno\ntwo\n".to_owned(), "old\n".to_owned()));
}

#[tokio::test]
async fn where_the_editor_reads_and_the_disk_is_written_both_are_kept() {
    let stage = Stage::open(Offers { read: true, write: false, terminal: false }).await;
    stage.save("a", "one\ntwo\nthree\nfour\n");
    stage.put("a", "one\ntwo\nthree\nfour\n");
    read(&stage).await;
    // Somebody changes the file beside the editor, whose user types as well.
    stage.save("a", "ONE\ntwo\nthree\nfour\n");
    stage.put("a", "one\ntwo\nthree\nFOUR\n");
    check(
        &stage.call("edit_text_file", edit("two", "2")).await,
        expect![[r#"
            = Edited a in 1 place, on the agent's own machine.
            Somebody else had changed the file since you last saw it:
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
        &stage.saved("a"),
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
    let mut told = String::new();
    for (message, is_here) in [
        ("the language server for buffer a was not found", true),
        ("Resource does not exist", true),
        ("ENOENT: no such file or directory, open 'a'", true),
        ("cannot open: No such file or directory (os error 2)", true),
        ("cannot open: No such file or directory (os error 2)", false),
    ] {
        let stage = Stage::open(Offers::ALL).await;
        stage.put("a", "precious\n");
        if is_here {
            stage.save("a", "precious\n");
        }
        let error = Error::new(-32603, message);
        stage.editor.trouble("fs/read_text_file", Trouble::Refuses(error));
        told += &stage.call("write_text_file", whole("new\n")).await;
    }
    check(
        &told,
        expect![[r#"
        ! nothing was written: a cannot be read: the editor says: the language server for buffer a was not found
        ! nothing was written: a cannot be read: the editor says: Resource does not exist
        = Created a (1 line), through the editor.
        ! nothing was written: a cannot be read: the editor says: cannot open: No such file or directory (os error 2)
        = Created a (1 line), through the editor.
    "#]],
    );
}
