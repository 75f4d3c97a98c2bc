//! Other messages of an agent: updates, forms, and methods that no client knows.

use std::sync::Arc;

use bowline_host::SessionOptions;
use bowline_wire::message::body::JsonBody;
use bowline_wire::schema::v1::{
    AgentCapabilities, ElicitationAcceptAction, ElicitationAction, Error, InitializeRequest,
    InitializeResponse, NewSessionRequest, NewSessionResponse, PromptRequest, PromptResponse, StopReason,
};
use bowline_wire::{Agent, AgentContext};
use expect_test::expect;
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};

use super::host_fixture::{HostFixture, check};

fn form_request() -> Value {
    json!({
        "mode": "form", "message": "Who are you?",
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
    })
}

#[tokio::test]
async fn form_answers_reach_the_agent() {
    let mut text = String::new();
    for action in ["accept", "decline", "cancel", "no user"] {
        let stage = HostFixture::new();
        if action != "no user" {
            stage.lab.user.fill_forms_with(move |request| {
                assert_eq!(request.message, "Who are you?");
                match action {
                    "accept" => {
                        let content = [("name".to_owned(), "Ada".into())].into_iter().collect();
                        ElicitationAction::Accept(ElicitationAcceptAction::new().content(Some(content)))
                    }
                    "decline" => ElicitationAction::Decline,
                    _ => ElicitationAction::Cancel,
                }
            });
        }
        let answer = stage
            .play_custom_turn(|actor| async move {
                actor.record(&actor.call_text("elicitation/create", form_request()).await);
                StopReason::EndTurn
            })
            .await;
        text += &format!("{action}: {answer}");
    }
    expect![[r#"
        accept: {"action":"accept","content":{"name":"Ada"}}
        decline: {"action":"decline"}
        cancel: {"action":"cancel"}
        no user: {"action":"cancel"}
    "#]]
    .assert_eq(&text);
}

#[tokio::test]
async fn forms_of_no_known_mode_or_session_are_refused() {
    check(
        &HostFixture::new(),
        r#"
        call elicitation/create {"mode":"telepathy","message":"m"}
        call elicitation/create {"message":"m"}
        call elicitation/create {"sessionId":"s9","mode":"form","message":"m","requestedSchema":{"type":"object","properties":{}}}
        call elicitation/create {"mode":"url","message":"m","url":"https://example.org/","elicitationId":"e1"}
        "#,
        expect![[r#"
            > call elicitation/create {"mode":"telepathy","message":"m"}
            ! -32602 an elicitation of another mode is not known here
            > call elicitation/create {"message":"m"}
            ! -32602 the params of elicitation/create are wrong: not as the schema has it at column 32
            > call elicitation/create {"sessionId":"s9","mode":"form","message":"m","requestedSchema":{"type":"object","properties":{}}}
            ! -32002 Resource not found: session s9 {"sessionId":"s9"}
            > call elicitation/create {"mode":"url","message":"m","url":"https://example.org/","elicitationId":"e1"}
            {"action":"cancel"}
        "#]],
    )
    .await;
}

#[tokio::test]
async fn only_an_accepted_page_can_be_completed() {
    let stage = HostFixture::new();
    stage.lab.user.fill_forms_with(|request| match request.message.as_str() {
        "yes" => ElicitationAction::Accept(ElicitationAcceptAction::new()),
        _ => ElicitationAction::Decline,
    });
    stage
        .play_custom_turn(|actor| async move {
            for (id, message) in [("e1", "yes"), ("e2", "no")] {
                let page = json!({"mode": "url", "message": message, "url": "https://example.org/", "elicitationId": id});
                actor.call("elicitation/create", page).await.unwrap();
            }
            for id in ["e1", "e1", "e2", "e3"] {
                actor.notify("elicitation/complete", json!({"elicitationId": id})).await;
            }
            StopReason::EndTurn
        })
        .await;
    let done: Vec<String> =
        { stage.lab.user.events().into_iter() }.filter(|event| event.starts_with("Elicitation")).collect();
    expect![[r#"ElicitationCompleted { id: ElicitationId("e1") }"#]].assert_eq(&done.join("\n"));
}

#[tokio::test]
async fn a_cancelled_turn_cancels_its_forms() {
    let stage = HostFixture::new();
    let (connection, session) = stage
        .open_session(vec![stage.custom_turn(|actor| async move {
            actor.turn.cx.cancelled().await;
            actor.record(&actor.call_text("elicitation/create", form_request()).await);
            StopReason::Cancelled
        })])
        .await;
    stage.lab.user.fill_forms_with(|_| ElicitationAction::Decline);
    let desk = stage.lab.user.clone();
    let cancel = async {
        desk.wait_until(|_, shown| shown.iter().any(|event| event.starts_with("TurnStarted"))).await;
        session.cancel();
    };
    let (end, ()) = tokio::join!(session.prompt_text("go"), cancel);
    end.unwrap();
    connection.close_session(&session).await.unwrap();
    expect![[r#"
        {"action":"cancel"}
    "#]]
    .assert_eq(&stage.take_text());
}

#[tokio::test]
async fn unknown_methods_are_refused_or_ignored() {
    let stage = HostFixture::new().with_file("a.txt", "a");
    let text = stage
        .play_custom_turn(|actor| async move {
            for method in ["fs/delete_file", "craft/drain", "_vendor/thing", "session/prompt", "terminal/resize"] {
                actor.record(&format!("{method}: {}", actor.call_text(method, json!({})).await));
            }
            for (method, params) in [
                ("elicitation/complete", json!({"elicitationId": "unknown"})),
                ("qwen/notify/something", json!({"x": 1})),
                ("_vendor/event", json!({})),
                ("session/update", json!({"update": {"sessionUpdate": "from_the_future", "x": 1}})),
                ("session/update", json!({"sessionId": "s9", "update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "lost"}}})),
                ("session/update", json!({"update": "no object"})),
                ("session/update", json!({"update": {"sessionUpdate": "tool_call_update", "toolCallId": "never", "status": "completed"}})),
                ("session/update", json!({"update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "heard"}}})),
            ] {
                actor.notify(method, params).await;
            }
            actor.play_script("read a.txt").await;
            StopReason::EndTurn
        })
        .await;
    expect![[r#"
        fs/delete_file: ! -32601 Method not found: fs/delete_file {"method":"fs/delete_file"}
        craft/drain: ! -32601 Method not found: craft/drain {"method":"craft/drain"}
        _vendor/thing: ! -32601 Method not found: _vendor/thing {"method":"_vendor/thing"}
        session/prompt: ! -32601 Method not found: session/prompt {"method":"session/prompt"}
        terminal/resize: ! -32601 Method not found: terminal/resize {"method":"terminal/resize"}
        > read a.txt
        "a"
    "#]]
    .assert_eq(&text);
    let told: Vec<String> = { stage.lab.user.events().into_iter() }
        .filter(|event| !event.starts_with("Turn") && !event.starts_with("Session"))
        .map(|event| event.split(", snapshot").next().unwrap().to_owned())
        .collect();
    expect![[r#"
        Violation { session: Some(SessionId("s1")), description: "an update of the kind from_the_future cannot be read" }
        Violation { session: Some(SessionId("s9")), description: "session not found: s9" }
        Violation { session: Some(SessionId("s1")), description: "an update of the kind  cannot be read" }
        Violation { session: Some(SessionId("s1")), description: "tool call never was updated before it was announced" }
        Update { notification: SessionNotification { session_id: SessionId("s1"), update: AgentMessageChunk(ContentChunk { content: Text(TextContent { annotations: None, text: "heard", meta: None }), message_id: None, meta: None }), meta: None }, change: MessageStarted(MessageRef(0))"#]].assert_eq(&told.join("\n"));
}

/// An agent that sends updates of a session before it has returned the session's id.
struct EarlyUpdateAgent;

impl Agent for EarlyUpdateAgent {
    async fn initialize(
        &self,
        request: InitializeRequest,
        _: AgentContext,
    ) -> Result<InitializeResponse, Error> {
        Ok(InitializeResponse::new(request.protocol_version).agent_capabilities(AgentCapabilities::new()))
    }

    async fn new_session(&self, _: NewSessionRequest, cx: AgentContext) -> Result<NewSessionResponse, Error> {
        let update = json!({
            "sessionId": "s1",
            "update": {"sessionUpdate": "available_commands_update", "availableCommands": [{"name": "early", "description": "d"}]},
        });
        let other = json!({
            "sessionId": "s7",
            "update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "lost"}},
        });
        for params in [update, other] {
            cx.client().caller().notify_raw("session/update", JsonBody::from_value(&params).unwrap()).await?;
        }
        Ok(NewSessionResponse::new("s1"))
    }

    async fn prompt(&self, _: PromptRequest, _: AgentContext) -> Result<PromptResponse, Error> {
        Ok(PromptResponse::new(StopReason::EndTurn))
    }
}

#[tokio::test]
async fn updates_that_come_before_their_sessions_id_are_kept_for_it() {
    let stage = HostFixture::new();
    let connection = stage.lab.connect_agent(EarlyUpdateAgent).await.unwrap();
    let session = connection.new_session(SessionOptions::default()).await.unwrap();
    let desk = stage.lab.user.clone();
    desk.wait_until(|_, shown| shown.iter().any(|event| event.starts_with("Violation"))).await;
    let told: Vec<String> = desk.events().iter().map(|event| event.chars().take(60).collect()).collect();
    expect![[r#"
        SessionOpened { session: SessionId("s1"), name: "s1" }
        Update { notification: SessionNotification { session_id: Ses
        Violation { session: Some(SessionId("s7")), description: "se"#]]
    .assert_eq(&told.join("\n"));
    connection.close_session(&session).await.unwrap();
}

/// An agent that gives every session the same id.
struct DuplicateIdAgent;

impl Agent for DuplicateIdAgent {
    async fn initialize(
        &self,
        request: InitializeRequest,
        _: AgentContext,
    ) -> Result<InitializeResponse, Error> {
        Ok(InitializeResponse::new(request.protocol_version))
    }

    async fn new_session(&self, _: NewSessionRequest, _: AgentContext) -> Result<NewSessionResponse, Error> {
        Ok(NewSessionResponse::new("same"))
    }

    async fn prompt(&self, _: PromptRequest, _: AgentContext) -> Result<PromptResponse, Error> {
        Ok(PromptResponse::new(StopReason::EndTurn))
    }
}

#[tokio::test]
async fn two_sessions_cannot_have_one_id() {
    let stage = HostFixture::new();
    let connection = Arc::new(stage.lab.connect_agent(DuplicateIdAgent).await.unwrap());
    let first = connection.new_session(SessionOptions::default()).await.unwrap();
    let refused = connection.new_session(SessionOptions::default()).await.unwrap_err();
    expect!["a session of that id is open already: close it first"].assert_eq(&refused.to_string());
    first.prompt_text("go").await.unwrap();
    connection.close_session(&first).await.unwrap();
}

/// Reads lines until one satisfies a condition.
async fn read_until(lines: &mut Lines<impl AsyncBufRead + Unpin>, is_it: impl Fn(&Value) -> bool) -> Value {
    loop {
        let line = lines.next_line().await.unwrap().expect("the host closed the connection");
        let message = serde_json::from_str(&line).unwrap();
        if is_it(&message) {
            return message;
        }
    }
}

#[tokio::test]
async fn a_request_that_is_cancelled_by_its_id_is_answered_so_once() {
    let stage = HostFixture::new().with_file("a.txt", "a");
    stage.lab.user.answer_with_async(|_| Box::pin(std::future::pending()));
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let (path, desk) = (stage.lab.path("a.txt"), stage.lab.user.clone());
    let agent = async move {
        let (reader, mut writer) = tokio::io::split(theirs);
        let mut lines = BufReader::new(reader).lines();
        let mut seen = Vec::new();
        for (method, result) in [
            ("initialize", json!({"protocolVersion": 1})),
            ("session/new", json!({"sessionId": "s1"})),
            ("session/prompt", Value::Null),
        ] {
            let request = read_until(&mut lines, |message| message["method"] == method).await;
            let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
            if !result.is_null() {
                writer.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
                continue;
            }
            let ask = json!({
                "jsonrpc": "2.0", "id": "p", "method": "session/request_permission",
                "params": {"sessionId": "s1", "toolCall": {"toolCallId": "c1"}, "options": []},
            });
            let write = json!({
                "jsonrpc": "2.0", "id": "w", "method": "fs/write_text_file",
                "params": {"sessionId": "s1", "path": path, "content": "b"},
            });
            writer.write_all(format!("{ask}\n{write}\n").as_bytes()).await.unwrap();
            desk.wait_until(|asked, _| asked.len() == 2).await;
            for id in ["p", "w", "w", "unknown"] {
                let cancel =
                    json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": id}});
                writer.write_all(format!("{cancel}\n").as_bytes()).await.unwrap();
            }
            for _ in 0..2 {
                seen.push(read_until(&mut lines, |message| message.get("error").is_some()).await.to_string());
            }
            let read = json!({
                "jsonrpc": "2.0", "id": "r", "method": "fs/read_text_file",
                "params": {"sessionId": "s1", "path": path},
            });
            writer.write_all(format!("{read}\n").as_bytes()).await.unwrap();
            seen.push(read_until(&mut lines, |_| true).await.to_string());
            let end = json!({"jsonrpc": "2.0", "id": request["id"], "result": {"stopReason": "end_turn"}});
            writer.write_all(format!("{end}\n").as_bytes()).await.unwrap();
        }
        seen.sort_unstable();
        seen.join("\n")
    };
    let host = async {
        let (reader, writer) = tokio::io::split(ours);
        let connection = stage.lab.host.connect(reader, writer).await.unwrap();
        let session = connection.new_session(SessionOptions::default()).await.unwrap();
        session.prompt_text("go").await.unwrap();
        connection.close_session(&session).await.unwrap();
        connection
    };
    let (seen, _connection) = tokio::join!(agent, host);
    expect![[r#"
        {"jsonrpc":"2.0","id":"p","error":{"code":-32800,"message":"Request cancelled"}}
        {"jsonrpc":"2.0","id":"r","result":{"content":"a"}}
        {"jsonrpc":"2.0","id":"w","error":{"code":-32800,"message":"Request cancelled"}}"#]]
    .assert_eq(&seen);
    assert_eq!(stage.lab.read_file("a.txt").unwrap(), "a");
}
