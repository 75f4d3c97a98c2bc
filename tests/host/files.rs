//! Files that an agent reads and writes through the host.

use std::sync::{Arc, Mutex};

use bowline_history::undo::ChangeSelection;
use bowline_host::{HostCapabilities, SessionOptions};
use bowline_policy::policy::Preset;
use bowline_wire::schema::v1::{
    AgentCapabilities, Error, InitializeRequest, InitializeResponse, NewSessionRequest, NewSessionResponse,
    PromptRequest, PromptResponse, StopReason,
};
use bowline_wire::{Agent, AgentContext};
use expect_test::expect;
use serde_json::json;

use super::host_fixture::{HostFixture, check};

fn full_fixture() -> HostFixture {
    HostFixture::with_options(|settings| settings.preset = Some(Preset::Full))
}

#[tokio::test]
async fn reads_answer_as_agents_expect() {
    let stage = full_fixture().with_file("a.txt", "1\n2\n3\n4").with_file("dir/b", "b");
    std::fs::write(stage.lab.base().join("secret"), "s").unwrap();
    check(
        &stage,
        r#"
        read missing
        read missing/deep
        read a.txt
        read a.txt 2 2
        read a.txt 4 10
        read a.txt 0 1
        read a.txt 9
        read a.txt 1 0
        read dir
        read dir/../a.txt
        read $ROOT/../secret
        read missing/../../secret
        read /etc/passwd
        link inside $ROOT/a.txt
        read inside 1 1
        link out $BASE/secret
        read out
        write out gone
        link dangling $BASE/new
        write dangling x
        write new/deep/file.txt text\n
        read new/deep/file.txt
        call fs/read_text_file {"path":"a.txt"}
        call fs/read_text_file {"path":"~/a.txt"}
        call fs/read_text_file {"path":""}
        call fs/read_text_file {"path":"$ROOT/a.txt","line":null,"limit":null}
        call fs/read_text_file {"path":"$ROOT/a.txt","line":-1}
        call fs/write_text_file {"path":"a.txt","content":"x"}
        call fs/write_text_file {"path":"$ROOT/a.txt"}
        "#,
        expect![[r#"
            > read missing
            ! -32002 Resource not found: $ROOT/missing {"uri":"$ROOT/missing"}
            > read missing/deep
            ! -32002 Resource not found: $ROOT/missing/deep {"uri":"$ROOT/missing/deep"}
            > read a.txt
            "1\n2\n3\n4"
            > read a.txt 2 2
            "2\n3\n"
            > read a.txt 4 10
            "4"
            > read a.txt 0 1
            "1\n"
            > read a.txt 9
            ! -32602 the read starts past the end: the file has 4 lines {"reason":"past_end","lines":4}
            > read a.txt 1 0
            ""
            > read dir
            ! -32602 $ROOT/dir is a directory: list it, or name a file in it
            > read dir/../a.txt
            "1\n2\n3\n4"
            > read $ROOT/../secret
            ! -32602 $ROOT/../secret is outside the session's directories {"reason":"outside","path":"$ROOT/../secret"}
            > read missing/../../secret
            ! -32602 $ROOT/missing/../../secret is outside the session's directories {"reason":"outside","path":"$ROOT/missing/../../secret"}
            > read /etc/passwd
            ! -32602 /etc/passwd is outside the session's directories {"reason":"outside","path":"/etc/passwd"}
            > link inside $ROOT/a.txt
            > read inside 1 1
            "1\n"
            > link out $BASE/secret
            > read out
            ! -32602 $ROOT/out is outside the session's directories {"reason":"outside","path":"$ROOT/out"}
            > write out gone
            ! -32602 $ROOT/out is outside the session's directories {"reason":"outside","path":"$ROOT/out"}
            > link dangling $BASE/new
            > write dangling x
            ! -32602 $ROOT/dangling is outside the session's directories {"reason":"outside","path":"$ROOT/dangling"}
            > write new/deep/file.txt text\n
            ok
            > read new/deep/file.txt
            "text\n"
            > call fs/read_text_file {"path":"a.txt"}
            ! -32602 a.txt is a relative path, send an absolute path {"reason":"relative","path":"a.txt"}
            > call fs/read_text_file {"path":"~/a.txt"}
            ! -32602 ~/a.txt is a relative path, send an absolute path {"reason":"relative","path":"~/a.txt"}
            > call fs/read_text_file {"path":""}
            ! -32602 the path is empty, send an absolute path
            > call fs/read_text_file {"path":"$ROOT/a.txt","line":null,"limit":null}
            {"content":"1\n2\n3\n4"}
            > call fs/read_text_file {"path":"$ROOT/a.txt","line":-1}
            ! -32602 the params of fs/read_text_file are wrong: expected u32 at column 49
            > call fs/write_text_file {"path":"a.txt","content":"x"}
            ! -32602 a.txt is a relative path, send an absolute path {"reason":"relative","path":"a.txt"}
            > call fs/write_text_file {"path":"$ROOT/a.txt"}
            ! -32602 the params of fs/write_text_file are wrong: missing field `content` before column 57
        "#]],
    )
    .await;
    assert_eq!(std::fs::read_to_string(stage.lab.base().join("secret")).unwrap(), "s");
    assert!(!stage.lab.base().join("new").exists());
}

#[tokio::test]
async fn unsaved_text_is_read_and_a_write_saves_the_document() {
    let stage = full_fixture().with_file("a.txt", "disk\n");
    let workspace = stage.lab.host.workspace().clone();
    let path = stage.lab.path("a.txt");
    let document = workspace.open_document(&path).unwrap();
    workspace.change_document(&path, "unsaved\n".to_owned(), document.revision).unwrap();
    check(
        &stage,
        r#"
        read a.txt
        write a.txt unsaved\nagent\n
        read a.txt
        "#,
        expect![[r#"
            > read a.txt
            "unsaved\n"
            > write a.txt unsaved\nagent\n
            ok
            > read a.txt
            "unsaved\nagent\n"
        "#]],
    )
    .await;
    let document = workspace.document(&path).unwrap().unwrap();
    assert_eq!((document.text.as_str(), document.is_dirty), ("unsaved\nagent\n", false));
    assert_eq!(stage.lab.read_file("a.txt").unwrap(), "unsaved\nagent\n");
}

/// Opens `a.txt` with an unsaved line, runs an agent's turns, and returns the final texts of the file and the document.
async fn play_with_unsaved_text(stage: &HostFixture, turns: &[&str]) -> (String, String) {
    let (workspace, path) = (stage.lab.host.workspace(), stage.lab.path("a.txt"));
    let document = workspace.open_document(&path).unwrap();
    let text = format!("{}unsaved\n", document.text);
    workspace.change_document(&path, text, document.revision).unwrap();
    stage.play_turns(turns).await;
    (stage.lab.read_file("a.txt").unwrap(), workspace.document(&path).unwrap().unwrap().text.to_string())
}

/// opencode asks the client to write its edit, and also writes the same text to the disk itself, in either order.
#[tokio::test]
async fn unsaved_text_survives_an_agent_that_also_writes_the_disk() {
    for script in [
        "write a.txt ONE\\ntwo\\nthree\\n\nput a.txt ONE\\ntwo\\nthree\\n",
        "put a.txt ONE\\ntwo\\nthree\\n\nwrite a.txt ONE\\ntwo\\nthree\\n",
        "write a.txt 1\\ntwo\\nthree\\n\nput a.txt 1\\ntwo\\nthree\\n\n\
         write a.txt ONE\\ntwo\\nthree\\n\nput a.txt ONE\\ntwo\\nthree\\n",
    ] {
        let stage = full_fixture().with_file("a.txt", "one\ntwo\nthree\n");
        let (file, document) = play_with_unsaved_text(&stage, &[script]).await;
        assert_eq!(
            (file.as_str(), document.as_str()),
            ("ONE\ntwo\nthree\nunsaved\n", file.as_str()),
            "{script}"
        );
        let workspace = stage.lab.host.workspace();
        workspace.undo(&ChangeSelection::turn("s1", 1)).unwrap();
        assert_eq!(stage.lab.read_file("a.txt").unwrap(), "one\ntwo\nthree\nunsaved\n", "{script}");
    }
}

#[tokio::test]
async fn what_the_user_writes_after_a_merged_write_stays() {
    let stage = full_fixture().with_file("a.txt", "one\ntwo\nthree\n");
    let turn = "write a.txt ONE\\ntwo\\nthree\\n";
    let (file, _) = play_with_unsaved_text(&stage, &[turn]).await;
    assert_eq!(file, "ONE\ntwo\nthree\nunsaved\n");
    stage.lab.write_file("a.txt", "ONE\ntwo\nthree\n").unwrap();
    stage.play_turns(&["read a.txt"]).await;
    assert_eq!(stage.lab.read_file("a.txt").unwrap(), "ONE\ntwo\nthree\n");
}

#[tokio::test]
async fn what_the_user_changed_since_the_agent_read_is_merged_or_refused() {
    let stage = full_fixture().with_file("a.txt", "1\n2\n3\n4\n5\n");
    check(
        &stage,
        r#"
        read a.txt
        put a.txt 1\n2\n3\n4\nfive\n
        write a.txt one\n2\n3\n4\n5\n
        read a.txt
        put a.txt mine\n2\n3\n4\nfive\n
        write a.txt agents\n2\n3\n4\nfive\n
        "#,
        expect![[r#"
            > read a.txt
            "1\n2\n3\n4\n5\n"
            > put a.txt 1\n2\n3\n4\nfive\n
            > write a.txt one\n2\n3\n4\n5\n
            ok
            > read a.txt
            "one\n2\n3\n4\nfive\n"
            > put a.txt mine\n2\n3\n4\nfive\n
            > write a.txt agents\n2\n3\n4\nfive\n
            ! -32602 $ROOT/a.txt: the text was changed since this session read it, and both changes touch the same lines: read it again {"reason":"conflict","path":"$ROOT/a.txt","why":"the text was changed since this session read it, and both changes touch the same lines: read it again","hunks":[{"line":1,"base":"one\n","ours":"mine\n","theirs":"agents\n"}]}
        "#]],
    )
    .await;
    assert_eq!(stage.lab.read_file("a.txt").unwrap(), "mine\n2\n3\n4\nfive\n");
}

#[tokio::test]
async fn sessions_cannot_be_guessed_and_closed_ones_are_gone() {
    let stage = full_fixture().with_file("a.txt", "a");
    let closed = r#"
        call fs/read_text_file {"path":"$ROOT/a.txt","sessionId":"s2"}
        call fs/write_text_file {"path":"$ROOT/a.txt","content":"x","sessionId":"s2"}
        call terminal/create {"command":"true","sessionId":"s2"}
        call session/request_permission {"toolCall":{"toolCallId":"c1"},"options":[],"sessionId":"s2"}
        "#;
    let act = stage.custom_turn(|actor| async move {
        let terminal = actor.create_terminal(json!({"command": "sleep 1000"})).await.unwrap();
        for session in ["s2", "s9", ""] {
            for (method, params) in [
                ("fs/read_text_file", json!({"path": "$ROOT/a.txt", "sessionId": session})),
                ("fs/write_text_file", json!({"path": "$ROOT/a.txt", "content": "x", "sessionId": session})),
                ("terminal/create", json!({"command": "true", "sessionId": session})),
                ("terminal/output", json!({"terminalId": terminal, "sessionId": session})),
                ("terminal/wait_for_exit", json!({"terminalId": terminal, "sessionId": session})),
                ("terminal/kill", json!({"terminalId": terminal, "sessionId": session})),
                ("terminal/release", json!({"terminalId": terminal, "sessionId": session})),
            ] {
                // The second session exists; only the terminals belong to the first one.
                if session == "s2" && !params.to_string().contains("terminalId") {
                    continue;
                }
                let answer = actor.call_text(method, params).await;
                actor.record(&format!("{session} {method}: {}", answer.replace(&terminal, "$T")));
            }
        }
        StopReason::EndTurn
    });
    let (connection, session) = stage.open_session(vec![act, stage.scripted_turn(closed)]).await;
    let other = connection.new_session(SessionOptions::default()).await.unwrap();
    session.prompt_text("go").await.unwrap();
    connection.close_session(&other).await.unwrap();
    other.prompt_text("go").await.unwrap_err();
    session.prompt_text("go").await.unwrap();
    connection.close_session(&session).await.unwrap();
    assert_eq!(stage.lab.read_file("a.txt").unwrap(), "a");
    expect![[r#"
        s2 terminal/output: ! -32002 Resource not found: $T {"uri":"$T"}
        s2 terminal/wait_for_exit: ! -32002 Resource not found: $T {"uri":"$T"}
        s2 terminal/kill: ! -32002 Resource not found: $T {"uri":"$T"}
        s2 terminal/release: ! -32002 Resource not found: $T {"uri":"$T"}
        s9 fs/read_text_file: ! -32002 Resource not found: session s9 {"sessionId":"s9"}
        s9 fs/write_text_file: ! -32002 Resource not found: session s9 {"sessionId":"s9"}
        s9 terminal/create: ! -32002 Resource not found: session s9 {"sessionId":"s9"}
        s9 terminal/output: ! -32002 Resource not found: session s9 {"sessionId":"s9"}
        s9 terminal/wait_for_exit: ! -32002 Resource not found: session s9 {"sessionId":"s9"}
        s9 terminal/kill: ! -32002 Resource not found: session s9 {"sessionId":"s9"}
        s9 terminal/release: ! -32002 Resource not found: session s9 {"sessionId":"s9"}
         fs/read_text_file: ! -32002 Resource not found: session  {"sessionId":""}
         fs/write_text_file: ! -32002 Resource not found: session  {"sessionId":""}
         terminal/create: ! -32002 Resource not found: session  {"sessionId":""}
         terminal/output: ! -32002 Resource not found: session  {"sessionId":""}
         terminal/wait_for_exit: ! -32002 Resource not found: session  {"sessionId":""}
         terminal/kill: ! -32002 Resource not found: session  {"sessionId":""}
         terminal/release: ! -32002 Resource not found: session  {"sessionId":""}
        > call fs/read_text_file {"path":"$ROOT/a.txt","sessionId":"s2"}
        ! -32002 Resource not found: session s2 {"sessionId":"s2"}
        > call fs/write_text_file {"path":"$ROOT/a.txt","content":"x","sessionId":"s2"}
        ! -32002 Resource not found: session s2 {"sessionId":"s2"}
        > call terminal/create {"command":"true","sessionId":"s2"}
        ! -32002 Resource not found: session s2 {"sessionId":"s2"}
        > call session/request_permission {"toolCall":{"toolCallId":"c1"},"options":[],"sessionId":"s2"}
        ! -32002 Resource not found: session s2 {"sessionId":"s2"}
    "#]]
    .assert_eq(&stage.take_text());
}

#[tokio::test]
async fn what_is_not_offered_is_not_served() {
    let mut text = String::new();
    let all = HostCapabilities::default();
    for (name, offer) in [
        ("all", all),
        ("no fs", HostCapabilities { read: false, write: false, ..all }),
        ("read only", HostCapabilities { write: false, ..all }),
        ("no terminal", HostCapabilities { terminal: false, ..all }),
        ("no elicitation", HostCapabilities { elicitation: false, ..all }),
    ] {
        let stage = HostFixture::with_options(|settings| {
            (settings.capabilities, settings.preset) = (offer, Some(Preset::Full))
        });
        let stage = stage.with_file("a.txt", "a");
        let greeted = Arc::new(Mutex::new(None));
        let connection = stage.lab.connect_agent(InitializeProbe(greeted.clone())).await.unwrap();
        let request = greeted.lock().unwrap().take().unwrap();
        text += &format!("{name}: {}\n", json!(request.client_capabilities));
        drop(connection);
        let answers = stage
            .play_custom_turn(|actor| async move {
                for (method, params) in [
                    ("fs/read_text_file", json!({"path": "$ROOT/a.txt"})),
                    ("fs/write_text_file", json!({"path": "$ROOT/a.txt", "content": "b"})),
                    ("terminal/create", json!({"command": "true"})),
                    ("terminal/output", json!({"terminalId": "x"})),
                    ("elicitation/create", json!({"mode": "form", "message": "m", "requestedSchema": {"type": "object", "properties": {}}})),
                ] {
                    let answer = actor.call(method, params).await;
                    let code = answer.map_or_else(|error| i32::from(error.code).to_string(), |_| "ok".to_owned());
                    actor.record(&format!("  {method}: {code}"));
                }
                StopReason::EndTurn
            })
            .await;
        text += &answers;
    }
    expect![[r#"
        all: {"fs":{"readTextFile":true,"writeTextFile":true},"terminal":true,"session":{"compaction":{},"configOptions":{"boolean":{}},"notices":{}},"auth":{"terminal":false},"elicitation":{"form":{},"url":{}},"_meta":{"bowline":{"decides":true,"version":1,"fs":{"list":{"maxEntries":2000},"stat":{},"read":{"maxBytes":16777216},"write":{"maxBytes":33554432},"batch":{"maxOperations":1000,"maxBytes":33554432},"watch":{"maxWatches":64,"maxChanges":256}}}}}
          fs/read_text_file: ok
          fs/write_text_file: ok
          terminal/create: ok
          terminal/output: -32002
          elicitation/create: ok
        no fs: {"fs":{"readTextFile":false,"writeTextFile":false},"terminal":true,"session":{"compaction":{},"configOptions":{"boolean":{}},"notices":{}},"auth":{"terminal":false},"elicitation":{"form":{},"url":{}},"_meta":{"bowline":{"decides":true}}}
          fs/read_text_file: -32601
          fs/write_text_file: -32601
          terminal/create: ok
          terminal/output: -32002
          elicitation/create: ok
        read only: {"fs":{"readTextFile":true,"writeTextFile":false},"terminal":true,"session":{"compaction":{},"configOptions":{"boolean":{}},"notices":{}},"auth":{"terminal":false},"elicitation":{"form":{},"url":{}},"_meta":{"bowline":{"decides":true,"version":1,"fs":{"list":{"maxEntries":2000},"stat":{},"read":{"maxBytes":16777216},"watch":{"maxWatches":64,"maxChanges":256}}}}}
          fs/read_text_file: ok
          fs/write_text_file: -32601
          terminal/create: ok
          terminal/output: -32002
          elicitation/create: ok
        no terminal: {"fs":{"readTextFile":true,"writeTextFile":true},"terminal":false,"session":{"compaction":{},"configOptions":{"boolean":{}},"notices":{}},"auth":{"terminal":false},"elicitation":{"form":{},"url":{}},"_meta":{"bowline":{"decides":true,"version":1,"fs":{"list":{"maxEntries":2000},"stat":{},"read":{"maxBytes":16777216},"write":{"maxBytes":33554432},"batch":{"maxOperations":1000,"maxBytes":33554432},"watch":{"maxWatches":64,"maxChanges":256}}}}}
          fs/read_text_file: ok
          fs/write_text_file: ok
          terminal/create: -32601
          terminal/output: -32601
          elicitation/create: ok
        no elicitation: {"fs":{"readTextFile":true,"writeTextFile":true},"terminal":true,"session":{"compaction":{},"configOptions":{"boolean":{}},"notices":{}},"auth":{"terminal":false},"_meta":{"bowline":{"decides":true,"version":1,"fs":{"list":{"maxEntries":2000},"stat":{},"read":{"maxBytes":16777216},"write":{"maxBytes":33554432},"batch":{"maxOperations":1000,"maxBytes":33554432},"watch":{"maxWatches":64,"maxChanges":256}}}}}
          fs/read_text_file: ok
          fs/write_text_file: ok
          terminal/create: ok
          terminal/output: -32002
          elicitation/create: -32602
    "#]].assert_eq(&text);
}

#[tokio::test]
async fn requests_are_served_while_others_wait() {
    let stage = HostFixture::new().with_file("a.txt", "a");
    stage.lab.write_rules("[[rules]]\neffect = \"allow\"\ncommand = \"sleep\"\n").unwrap();
    stage.lab.user.answer_with_async(|_| Box::pin(std::future::pending()));
    let desk = stage.lab.user.clone();
    let text = stage
        .play_custom_turn(move |actor| async move {
            let terminal = actor.create_terminal(json!({"command": "sleep 1000"})).await.unwrap();
            let waiting = actor.call_text("terminal/wait_for_exit", json!({"terminalId": terminal}));
            let writing =
                actor.call_text("fs/write_text_file", json!({"path": "$ROOT/a.txt", "content": "x"}));
            let rest = async {
                desk.wait_until(|asked, _| asked.len() == 1).await;
                actor.play_script("read a.txt").await;
            };
            tokio::select! {
                answer = waiting => panic!("{answer}"),
                answer = writing => panic!("{answer}"),
                () = rest => {}
            }
            StopReason::EndTurn
        })
        .await;
    expect![[r#"
        > read a.txt
        "a"
    "#]]
    .assert_eq(&text);
}

#[tokio::test]
async fn a_read_that_waits_for_the_log_holds_nothing_up() {
    let stage = full_fixture().with_file("a.txt", "a");
    let ((_, anchor), desk) = (stage.lab.audit_paths(), stage.lab.user.clone());
    let text = stage
        .play_custom_turn(move |actor| async move {
            actor.play_script("read a.txt\nread a.txt").await;
            // As another process does that appends to the same log.
            let held = std::fs::File::open(anchor).unwrap();
            held.lock().unwrap();
            let reading = actor.call_text("fs/read_text_file", json!({"path": "$ROOT/a.txt"}));
            let rest = async {
                let content = json!({"type": "text", "text": "still here"});
                let update = json!({"sessionUpdate": "agent_message_chunk", "content": content});
                actor.notify("session/update", json!({"update": update})).await;
                desk.wait_until(|_, shown| shown.iter().any(|event| event.contains("still here"))).await;
                actor.record("still here");
                held.unlock().unwrap();
            };
            let (answer, ()) = tokio::join!(reading, rest);
            actor.record(&answer);
            StopReason::EndTurn
        })
        .await;
    expect![[r#"
        > read a.txt
        "a"
        > read a.txt
        "a"
        still here
        {"content":"a"}
    "#]]
    .assert_eq(&text);
    let reads = stage
        .audit_table()
        .lines()
        .filter(|line| line.starts_with("fs/read $ROOT/a.txt turn 1: allowed"))
        .count();
    assert_eq!(reads, 3, "{}", stage.audit_table());
}

/// An agent that records its `initialize` request.
struct InitializeProbe(Arc<Mutex<Option<InitializeRequest>>>);

impl Agent for InitializeProbe {
    async fn initialize(
        &self,
        request: InitializeRequest,
        _: AgentContext,
    ) -> Result<InitializeResponse, Error> {
        let version = request.protocol_version;
        *self.0.lock().unwrap() = Some(request);
        Ok(InitializeResponse::new(version).agent_capabilities(AgentCapabilities::new()))
    }

    async fn new_session(&self, _: NewSessionRequest, _: AgentContext) -> Result<NewSessionResponse, Error> {
        Ok(NewSessionResponse::new("s1"))
    }

    async fn prompt(&self, _: PromptRequest, _: AgentContext) -> Result<PromptResponse, Error> {
        Ok(PromptResponse::new(StopReason::EndTurn))
    }
}
