//! Tests of a client against an agent that sends arbitrary lines.

use std::sync::Arc;

use bowline_wire::schema::ProtocolVersion;
use bowline_wire::schema::v1::{
    ClientCapabilities, Error, ExtNotification, FileSystemCapabilities, InitializeRequest,
    LoadSessionRequest, NewSessionRequest, PromptRequest, ReadTextFileRequest, ReadTextFileResponse,
    RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse, SessionNotification,
};
use bowline_wire::{
    AgentHandle, CallError, Client, ClientContext, ConnectionLimits, UnknownUpdate, connect_client,
};
use expect_test::{Expect, expect};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};
use tokio::sync::mpsc;

/// A client that records its notifications.
struct NotingClient(mpsc::UnboundedSender<String>);

impl NotingClient {
    fn note(&self, text: String) {
        self.0.send(text).expect("the notes are read");
    }
}

impl Client for NotingClient {
    async fn request_permission(
        &self,
        _: RequestPermissionRequest,
        _: ClientContext,
    ) -> Result<RequestPermissionResponse, Error> {
        Ok(RequestPermissionResponse::new(RequestPermissionOutcome::Cancelled))
    }

    async fn session_update(&self, notification: SessionNotification, _: AgentHandle) {
        self.note(format!("update {}", serde_json::to_string(&notification.update).expect("JSON")));
    }

    async fn unknown_update(&self, update: UnknownUpdate, _: AgentHandle) {
        self.note(format!("unknown {:?} {:?} {}", update.session_id, update.kind, update.params));
    }

    async fn read_text_file(
        &self,
        request: ReadTextFileRequest,
        _: ClientContext,
    ) -> Result<ReadTextFileResponse, Error> {
        Ok(ReadTextFileResponse::new(format!("text of {}", request.path.display())))
    }

    async fn ext_notification(&self, notification: ExtNotification, _: AgentHandle) {
        self.note(format!("extension {} {}", notification.method, notification.params));
    }

    fn on_violation(&self, violation: bowline_wire::peer::RpcViolation) {
        self.note(format!("breach {violation}"));
    }
}

struct AgentScript {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
    agent: AgentHandle,
    notes: mpsc::UnboundedReceiver<String>,
}

impl AgentScript {
    fn new() -> Self {
        let (client_stream, agent_stream) = tokio::io::duplex(1 << 16);
        let (reader, writer) = tokio::io::split(client_stream);
        let (sender, notes) = mpsc::unbounded_channel();
        let (agent, serving) =
            connect_client(Arc::new(NotingClient(sender)), reader, writer, ConnectionLimits::DEFAULT);
        tokio::spawn(serving);
        let (reader, writer) = tokio::io::split(agent_stream);
        AgentScript { lines: BufReader::new(reader).lines(), writer, agent, notes }
    }

    async fn send(&mut self, line: &str) {
        self.writer.write_all(format!("{line}\n").as_bytes()).await.expect("the client reads");
    }

    async fn receive(&mut self) -> String {
        self.lines.next_line().await.expect("text").unwrap_or_else(|| "(closed)".to_owned())
    }

    /// Answers the client's `initialize`.
    async fn initialize(&mut self, answer: &str) -> Result<(), CallError> {
        let agent = self.agent.clone();
        let fs = FileSystemCapabilities::new().read_text_file(true);
        let request =
            InitializeRequest::new(ProtocolVersion::V0).client_capabilities(ClientCapabilities::new().fs(fs));
        let call = tokio::spawn(async move { agent.initialize(request).await.map(drop) });
        let request = self.receive().await;
        assert!(
            request.contains(r#""id":0,"method":"initialize","params":{"protocolVersion":1,"#),
            "{request}"
        );
        self.send(&format!(r#"{{"jsonrpc":"2.0","id":0,"result":{answer}}}"#)).await;
        call.await.expect("no panic")
    }
}

/// Plays an agent: `>` sends a line, `<` prints a line of the client, `?` prints a record of it.
async fn check(script: &str, expected: Expect) {
    let mut wire = AgentScript::new();
    wire.initialize(r#"{"protocolVersion":1}"#).await.expect("initialized");
    let mut output = String::new();
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match line.strip_prefix("> ") {
            Some(text) => wire.send(text).await,
            None if line == "<" => output += &format!("{}\n", wire.receive().await),
            None => output += &format!("{}\n", wire.notes.recv().await.expect("a note")),
        }
    }
    expected.assert_eq(&output);
}

#[tokio::test]
async fn updates_of_a_newer_protocol_are_handed_on_as_they_came() {
    check(
        r#"
        > {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"hologram","depth":3}}}
        ?
        > {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"smell","of":"roses"}}}}
        ?
        > {"jsonrpc":"2.0","method":"session/update","params":"nonsense"}
        ?
        > {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"t","title":"T","status":"pondering","new":1}}}
        ?
        > {"jsonrpc":"2.0","method":"_seen","params":{"kept": "as it is"}}
        ?
        "#,
        expect![[r#"
            unknown Some(SessionId("s")) Some("hologram") {"sessionId":"s","update":{"sessionUpdate":"hologram","depth":3}}
            unknown Some(SessionId("s")) Some("agent_message_chunk") {"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"smell","of":"roses"}}}
            unknown None None "nonsense"
            update {"sessionUpdate":"tool_call","toolCallId":"t","title":"T"}
            extension _seen {"kept": "as it is"}
        "#]],
    )
    .await;
}

#[tokio::test]
async fn unadvertised_and_unknown_methods_are_refused() {
    check(
        r#"
        > {"jsonrpc":"2.0","id":1,"method":"fs/write_text_file","params":{"sessionId":"s","path":"/a","content":""}}
        <
        > {"jsonrpc":"2.0","id":2,"method":"terminal/create","params":{"sessionId":"s","command":"ls"}}
        <
        > {"jsonrpc":"2.0","id":3,"method":"elicitation/create","params":{"sessionId":"s","mode":"form","message":"m","requestedSchema":{"type":"object","properties":{}}}}
        <
        > {"jsonrpc":"2.0","id":4,"method":"craft/drainMidTurnQueue","params":{}}
        <
        > {"jsonrpc":"2.0","id":5,"method":"fs/read_text_file","params":{"sessionId":"s","path":"/a"}}
        <
        "#,
        expect![[r#"
            {"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"fs/write_text_file needs clientCapabilities.fs.writeTextFile, which was not advertised","data":{"method":"fs/write_text_file","capability":"clientCapabilities.fs.writeTextFile"}}}
            {"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"terminal/create needs clientCapabilities.terminal, which was not advertised","data":{"method":"terminal/create","capability":"clientCapabilities.terminal"}}}
            {"jsonrpc":"2.0","id":3,"error":{"code":-32602,"message":"elicitation/create needs clientCapabilities.elicitation.form, which was not advertised"}}
            {"jsonrpc":"2.0","id":4,"error":{"code":-32601,"message":"Method not found: craft/drainMidTurnQueue","data":{"method":"craft/drainMidTurnQueue"}}}
            {"jsonrpc":"2.0","id":5,"result":{"content":"text of /a"}}
        "#]],
    )
    .await;
}

#[tokio::test]
async fn breaches_are_reported_and_answered_without_an_echo() {
    check(
        r#"
        > {"jsonrpc":"2.0","id":9,"result":"late"}
        ?
        > {"secret":"token-1234"
        ?
        <
        "#,
        expect![[r#"
            breach an answer came for the id 9, which no request waits for
            breach the message is not valid JSON
            {"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"the message is not valid JSON"}}
        "#]],
    )
    .await;
}

#[tokio::test]
async fn an_agent_of_another_version_is_left() {
    let mut wire = AgentScript::new();
    let error = wire.initialize(r#"{"protocolVersion":99}"#).await.expect_err("an unknown version");
    assert!(matches!(error, CallError::UnsupportedVersion(_)), "{error:?}");
    assert_eq!(wire.receive().await, "(closed)");
    wire.agent.caller().closed().await;
}

#[tokio::test]
async fn unadvertised_methods_are_not_called() {
    let mut wire = AgentScript::new();
    let early = wire.agent.new_session(NewSessionRequest::new("/")).await.expect_err("too early");
    assert!(matches!(early, CallError::NotAdvertised(_)), "{early:?}");
    wire.initialize(r#"{"protocolVersion":1}"#).await.expect("initialized");
    let load = wire.agent.load_session(LoadSessionRequest::new("s", "/")).await.expect_err("not advertised");
    expect!["session/load needs agentCapabilities.loadSession, which was not advertised"]
        .assert_eq(&load.to_string());
}

/// Sends a prompt and answers it with `answer`, which is complete except for the id.
async fn prompt_with_answer(answer: &str) -> String {
    let mut wire = AgentScript::new();
    wire.initialize(r#"{"protocolVersion":1}"#).await.expect("initialized");
    let agent = wire.agent.clone();
    let turn = tokio::spawn(async move { agent.prompt(PromptRequest::new("s", vec!["hi".into()])).await });
    wire.receive().await;
    wire.send(answer).await;
    match turn.await.expect("no panic") {
        Ok(response) => format!("{:?}", response.stop_reason),
        Err(error @ CallError::Unreadable { .. }) => format!("unreadable: {error}"),
        Err(error) => format!("{error:?}"),
    }
}

#[tokio::test]
async fn every_kind_of_answer_reaches_the_caller() {
    let mut output = String::new();
    for answer in [
        r#"{"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn","extra":1}}"#,
        r#"{"jsonrpc":"2.0","id":"1","result":{"stopReason":"refusal"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"stopReason":"tired of token-1234"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":null}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"log in"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":"just a text"}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}"#,
    ] {
        output += &format!("{}\n", prompt_with_answer(answer).await);
    }
    expect![[r#"
        EndTurn
        Refusal
        unreadable: the answer to session/prompt cannot be read: expected one of `end_turn`, `max_tokens`, `max_turn_requests`, `refusal`, `cancelled` at column 35
        unreadable: the answer to session/prompt cannot be read: missing field `stopReason` before column 2
        ErrorResponse(Error { code: -32000: Authentication required, message: "log in", data: None })
        ErrorResponse(Error { code: -32603: Internal error, message: "the peer's error cannot be read", data: None })
        ErrorResponse(Error { code: -32603: Internal error, message: "the answer cannot be read: the message is not valid JSON", data: None })
    "#]].assert_eq(&output);
}

#[tokio::test]
async fn an_agent_that_dies_fails_the_calls_that_wait_and_all_later_ones() {
    let mut wire = AgentScript::new();
    wire.initialize(r#"{"protocolVersion":1}"#).await.expect("initialized");
    let agent = wire.agent.clone();
    let turn = tokio::spawn(async move { agent.prompt(PromptRequest::new("s", vec!["hi".into()])).await });
    wire.receive().await;
    let AgentScript { lines, writer, agent, .. } = wire;
    drop((lines, writer));
    assert!(matches!(turn.await.expect("no panic"), Err(CallError::Closed)));
    assert!(matches!(agent.cancel("s").await, Err(CallError::Closed)));
    assert!(matches!(agent.new_session(NewSessionRequest::new("/")).await, Err(CallError::Closed)));
}

#[tokio::test]
async fn a_call_that_is_dropped_tells_the_agent_and_its_late_answer_is_no_breach() {
    let mut wire = AgentScript::new();
    wire.initialize(r#"{"protocolVersion":1}"#).await.expect("initialized");
    let agent = wire.agent.clone();
    let turn = tokio::spawn(async move { agent.prompt(PromptRequest::new("s", vec!["hi".into()])).await });
    wire.receive().await;
    turn.abort();
    expect![[r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}"#]]
        .assert_eq(&wire.receive().await);
    wire.send(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32800,"message":"cancelled"}}"#).await;
    wire.send(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).await;
    expect!["breach an answer came for the id 1, which no request waits for"]
        .assert_eq(&wire.notes.recv().await.expect("a note"));
}

#[tokio::test]
async fn a_call_that_is_given_up_tells_the_agent_and_still_takes_its_answer() {
    let mut wire = AgentScript::new();
    wire.initialize(r#"{"protocolVersion":1}"#).await.expect("initialized");
    let (agent, (guard, guard_dropped)) = (wire.agent.clone(), tokio::sync::oneshot::channel::<()>());
    let turn = tokio::spawn(async move {
        let request = PromptRequest::new("s", vec!["hi".into()]);
        agent.caller().call_until(&request, async { guard_dropped.await.unwrap_or_default() }).await
    });
    wire.receive().await;
    drop(guard);
    expect![[r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}"#]]
        .assert_eq(&wire.receive().await);
    wire.send(r#"{"jsonrpc":"2.0","id":1,"result":{"stopReason":"refusal"}}"#).await;
    let answer = turn.await.expect("no panic").expect("an answer");
    expect!["Refusal"].assert_eq(&format!("{:?}", answer.stop_reason));
}
