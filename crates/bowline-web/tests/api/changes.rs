//! Changes, undo and redo.

use bowline_serve::token::Role;
use expect_test::{Expect, expect};
use serde_json::{Value, json};

use crate::support::{Answer, Server};

/// Formats the changes of a session.
fn list(answer: &Answer) -> String {
    let body = answer.json();
    let mut text = String::new();
    let file = |file: &Value| {
        let mut text = format!(
            "  {} {} {} {} +{} -{}{}\n",
            file["changeId"],
            file["change"].as_str().unwrap(),
            file["by"].as_str().unwrap(),
            file["path"].as_str().unwrap(),
            file["added"],
            file["removed"],
            if file["undone"] == true { " undone" } else { "" }
        );
        for hunk in file["hunks"].as_array().unwrap() {
            let undone = if hunk["undone"] == true { " undone" } else { "" };
            text += &format!("    hunk {}{undone}\n", hunk["id"]);
            for line in hunk["lines"].as_array().unwrap() {
                let parts = line["parts"].as_array().unwrap().iter();
                let content: String = parts.map(|part| part["text"].as_str().unwrap()).collect();
                text += &format!("      {}{content}\n", line["kind"].as_str().unwrap());
            }
        }
        text
    };
    for turn in body["turns"].as_array().unwrap() {
        text += &format!("turn {}\n", turn["id"]);
        text.extend(turn["files"].as_array().unwrap().iter().map(file));
    }
    for found in body["foundOnDisk"].as_array().unwrap() {
        text += &format!("found\n{}", file(found));
    }
    text
}

async fn check_changes(server: &Server, token: &str, expected: Expect) {
    expected.assert_eq(&list(&server.get(token, "/api/sessions/s1/changes").await));
}

#[tokio::test]
async fn changes_are_undone_by_turn_file_and_hunk() {
    let server = Server::start().await;
    let me = server.token("me", Role::User).await;
    server.session("s1", "me", "work", 1).await;
    server.session("s2", "me", "other work", 1).await;
    assert_eq!(
        server.get(&me, "/api/sessions/s1/changes").await.json(),
        json!({ "turns": [], "foundOnDisk": [], "omitted": 0 })
    );
    server.write("a.txt", "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
    server.write_as_agent("s1", 1, "a.txt", "one\n2\n3\n4\n5\n6\n7\n8\nnine\n");
    server.write_as_agent("s1", 2, "b.txt", "b\n");
    server.write_as_agent("s1", 2, "c.txt", "c\n");
    server.write_as_agent("s2", 1, "d.txt", "d\n");
    check_changes(
        &server,
        &me,
        expect![[r#"
        turn 2
          2 created agent b.txt +1 -0
            hunk "2:0"
              +b
          3 created agent c.txt +1 -0
            hunk "3:0"
              +c
        turn 1
          1 modified agent a.txt +2 -2
            hunk "1:0"
              -1
              +one
               2
               3
               4
            hunk "1:1"
               6
               7
               8
              -9
              +nine
    "#]],
    )
    .await;
    let patch = server.get(&me, "/api/sessions/s1/patch?turn=2").await;
    assert_eq!(patch.headers["content-disposition"], "attachment; filename=\"bowline.patch\"");
    expect![[r#"
        diff --git a/b.txt b/b.txt
        new file mode 100644
        --- /dev/null
        +++ b/b.txt
        @@ -0,0 +1 @@
        +b
        diff --git a/c.txt b/c.txt
        new file mode 100644
        --- /dev/null
        +++ b/c.txt
        @@ -0,0 +1 @@
        +c
    "#]]
    .assert_eq(&patch.text());

    let undo = async |body: Value| server.post(&me, "/api/sessions/s1/undo", &body).await;
    assert_eq!(undo(json!({ "hunk": "1:1" })).await.json()["changed"], json!(["a.txt"]));
    assert_eq!(server.file("a.txt"), "one\n2\n3\n4\n5\n6\n7\n8\n9\n");
    assert_eq!(undo(json!({ "turn": 2, "path": "b.txt" })).await.json()["changed"], json!(["b.txt"]));
    assert_eq!((server.file("b.txt").as_str(), server.file("c.txt").as_str()), ("entity not found", "c\n"));
    check_changes(
        &server,
        &me,
        expect![[r#"
        turn 2
          2 created agent b.txt +1 -0 undone
            hunk "2:0" undone
              +b
          3 created agent c.txt +1 -0
            hunk "3:0"
              +c
        turn 1
          1 modified agent a.txt +2 -2
            hunk "1:0"
              -1
              +one
               2
               3
               4
            hunk "1:1" undone
               6
               7
               8
              -9
              +nine
    "#]],
    )
    .await;
    assert_eq!(undo(json!({ "turn": 2 })).await.json()["changed"], json!(["c.txt"]));
    assert_eq!(undo(json!({ "turn": 2 })).await.status, 409);
    let redone = server.post(&me, "/api/sessions/s1/redo", &json!({ "turn": 2 })).await.json();
    assert_eq!(redone["changed"].as_array().unwrap().len(), 2, "{redone}");
    assert_eq!((server.file("b.txt").as_str(), server.file("c.txt").as_str()), ("b\n", "c\n"));
    let redone = server.post(&me, "/api/sessions/s1/redo", &json!({ "hunk": "1:1" })).await.json();
    assert_eq!(redone["changed"], json!(["a.txt"]));
    assert_eq!(server.file("a.txt"), "one\n2\n3\n4\n5\n6\n7\n8\nnine\n");
    // All of the session, and nothing of another.
    undo(json!({})).await;
    assert_eq!((server.file("c.txt").as_str(), server.file("d.txt").as_str()), ("entity not found", "d\n"));
    let redo = async |body: Value| server.post(&me, "/api/sessions/s1/redo", &body).await.json();
    assert_eq!(redo(json!({ "change": 2 })).await["changed"], json!(["b.txt"]));
    assert_eq!((server.file("b.txt").as_str(), server.file("c.txt").as_str()), ("b\n", "entity not found"));
    assert_eq!(redo(json!({})).await["changed"].as_array().unwrap().len(), 2);
    assert_eq!(server.file("c.txt"), "c\n");
    // The audit log has each of them.
    let own = server.token("boss", Role::Admin).await;
    let entries = server.get(&own, "/api/audit").await.json();
    let undos = entries["entries"].as_array().unwrap().iter().filter(|entry| entry["operation"] == "undo");
    assert_eq!(undos.count(), 12);
}

#[tokio::test]
async fn a_conflict_shows_both_sides_and_changes_nothing() {
    let server = Server::start().await;
    let me = server.token("me", Role::User).await;
    server.session("s1", "me", "work", 1).await;
    server.write("a.txt", "one\ntwo\nthree\n");
    server.write_as_agent("s1", 1, "a.txt", "one\nTWO\nthree\n");
    server.write_as_agent("s1", 1, "b.txt", "b\n");
    server.write("a.txt", "one\nzwei\nthree\n");
    let undo = async |body: Value| server.post(&me, "/api/sessions/s1/undo", &body).await.json();
    expect![[r#"
        {
          "changed": [],
          "conflicts": [
            {
              "path": "a.txt",
              "reason": "the same lines were changed since",
              "line": 2,
              "ours": "zwei\n",
              "theirs": "two\n",
              "base": "TWO\n"
            }
          ]
        }"#]]
    .assert_eq(&serde_json::to_string_pretty(&undo(json!({})).await).unwrap());
    assert_eq!((server.file("a.txt").as_str(), server.file("b.txt").as_str()), ("one\nzwei\nthree\n", "b\n"));
    let forced = undo(json!({ "path": "a.txt", "conflicts": "force" })).await;
    assert_eq!((&forced["changed"], server.file("a.txt").as_str()), (&json!(["a.txt"]), "one\ntwo\nthree\n"));
}

#[tokio::test]
async fn only_changes_of_the_session_can_be_named() {
    let server = Server::start().await;
    let me = server.token("me", Role::User).await;
    server.session("s1", "me", "work", 1).await;
    server.session("s2", "other", "work", 1).await;
    server.write_as_agent("s2", 1, "a.txt", "theirs\n");
    let mut shown = String::new();
    for body in [
        json!({ "change": 1 }),
        json!({ "hunk": "1:0" }),
        json!({ "change": 99 }),
        json!({ "hunk": "x" }),
        json!({ "path": "/etc/passwd" }),
        json!({ "path": "a/../../x" }),
        json!({ "path": "" }),
        json!({ "turn": 1 }),
        json!({ "session": "s2" }),
        json!({ "conflicts": "delete" }),
    ] {
        let answer = server.post(&me, "/api/sessions/s1/undo", &body).await;
        shown += &format!("{body} {}\n", answer.refusal());
    }
    expect![[r#"
        {"change":1} 404 there is no change 1 in this session
        {"hunk":"1:0"} 404 there is no change 1 in this session
        {"change":99} 404 there is no change 99 in this session
        {"hunk":"x"} 400 a hunk is named by its change and its number: 12:0
        {"path":"/etc/passwd"} 400 the path is not below the session's directory
        {"path":"a/../../x"} 400 the path is not below the session's directory
        {"path":""} 400 the path is not below the session's directory
        {"turn":1} 409 there is nothing to undo here
        {"session":"s2"} 400 unknown field `session`, expected one of `turn`, `path`, `change`, `hunk`, `conflicts` at line 1 column 10
        {"conflicts":"delete"} 400 unknown variant `delete`, expected `markers` or `force` at line 1 column 21
    "#]].assert_eq(&shown);
    assert_eq!(server.file("a.txt"), "theirs\n");
}

#[tokio::test]
async fn a_directory_that_became_a_link_is_refused() {
    let server = Server::start().await;
    let me = server.token("me", Role::User).await;
    server.session("s1", "me", "work", 1).await;
    let elsewhere = server.place.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::fs::write(elsewhere.join("private.txt"), "x").unwrap();
    std::fs::remove_dir(&server.project).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &server.project).unwrap();
    for path in ["changes", "files", "patch"] {
        let answer = server.get(&me, &format!("/api/sessions/s1/{path}")).await;
        assert_eq!(
            answer.refusal(),
            "403 the session's directory is not below the directories of this server",
            "{path}"
        );
    }
}
