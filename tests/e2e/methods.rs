//! Every method of both ends, over the pipes of two processes.

use std::sync::{Arc, Mutex};

use bowline_wire::message::methods::SetSessionModelRequest;
use bowline_wire::schema::v1::{
    CompleteElicitationNotification, CreateElicitationRequest, CreateElicitationResponse,
    CreateTerminalRequest, CreateTerminalResponse, Error, ExtNotification, ExtRequest, ExtResponse,
    InitializeRequest, KillTerminalRequest, KillTerminalResponse, ListSessionsRequest, LogoutRequest,
    PromptRequest, ReadTextFileRequest, ReadTextFileResponse, ReleaseTerminalRequest,
    ReleaseTerminalResponse, RequestPermissionRequest, RequestPermissionResponse, SessionNotification,
    TerminalOutputRequest, TerminalOutputResponse, WaitForTerminalExitRequest, WaitForTerminalExitResponse,
    WriteTextFileRequest, WriteTextFileResponse,
};
use bowline_wire::{
    AgentHandle, CallError, Client, ClientContext, ConnectionLimits, ShutdownGrace, spawn_agent,
};
use expect_test::expect;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::Notify;

/// A client that records every request and notification, and responds with fixed values.
#[derive(Default)]
struct RecordingClient {
    log: Mutex<String>,
    updated: Notify,
    extension_received: Notify,
}

impl RecordingClient {
    fn record(&self, what: &str, message: &impl Serialize) {
        let line = format!("  {what} {}\n", serde_json::to_string(message).unwrap());
        self.log.lock().unwrap().push_str(&line);
    }

    /// Records the request and returns the response.
    fn record_request<T: DeserializeOwned>(
        &self,
        what: &str,
        request: &impl Serialize,
        answer: Value,
    ) -> Result<T, Error> {
        self.record(what, request);
        Ok(from_json(answer))
    }

    /// Records the outcome of a call to the agent.
    fn record_call<T: Serialize>(&self, what: &str, outcome: Result<T, CallError>) {
        let outcome = match outcome {
            Ok(answer) => serde_json::to_string(&answer).unwrap(),
            Err(error) => format!("! {error}"),
        };
        self.log.lock().unwrap().push_str(&format!("{what}: {outcome}\n"));
    }
}

fn from_json<T: DeserializeOwned>(json: Value) -> T {
    serde_json::from_value(json).unwrap()
}

fn make_extension<T>(make: impl FnOnce(Arc<serde_json::value::RawValue>) -> T, json: Value) -> T {
    make(serde_json::value::to_raw_value(&json).unwrap().into())
}

impl Client for RecordingClient {
    async fn request_permission(
        &self,
        request: RequestPermissionRequest,
        _: ClientContext,
    ) -> Result<RequestPermissionResponse, Error> {
        self.record_request(
            "request_permission",
            &request,
            json!({"outcome": {"outcome": "selected", "optionId": "no"}}),
        )
    }

    async fn session_update(&self, notification: SessionNotification, _: AgentHandle) {
        self.record("update", &notification.update);
        self.updated.notify_one();
    }

    async fn read_text_file(
        &self,
        request: ReadTextFileRequest,
        _: ClientContext,
    ) -> Result<ReadTextFileResponse, Error> {
        self.record_request("read_text_file", &request, json!({"content": "two\n"}))
    }

    async fn write_text_file(
        &self,
        request: WriteTextFileRequest,
        _: ClientContext,
    ) -> Result<WriteTextFileResponse, Error> {
        self.record_request("write_text_file", &request, json!({}))
    }

    async fn create_terminal(
        &self,
        request: CreateTerminalRequest,
        _: ClientContext,
    ) -> Result<CreateTerminalResponse, Error> {
        self.record_request("create_terminal", &request, json!({"terminalId": "t1"}))
    }

    async fn terminal_output(
        &self,
        request: TerminalOutputRequest,
        _: ClientContext,
    ) -> Result<TerminalOutputResponse, Error> {
        self.record_request("terminal_output", &request, json!({"output": "so far", "truncated": true}))
    }

    async fn wait_for_terminal_exit(
        &self,
        request: WaitForTerminalExitRequest,
        _: ClientContext,
    ) -> Result<WaitForTerminalExitResponse, Error> {
        self.record_request("wait_for_terminal_exit", &request, json!({"signal": "SIGKILL"}))
    }

    async fn kill_terminal(
        &self,
        request: KillTerminalRequest,
        _: ClientContext,
    ) -> Result<KillTerminalResponse, Error> {
        self.record_request("kill_terminal", &request, json!({}))
    }

    async fn release_terminal(
        &self,
        request: ReleaseTerminalRequest,
        _: ClientContext,
    ) -> Result<ReleaseTerminalResponse, Error> {
        self.record_request("release_terminal", &request, json!({}))
    }

    async fn create_elicitation(
        &self,
        request: CreateElicitationRequest,
        _: ClientContext,
    ) -> Result<CreateElicitationResponse, Error> {
        self.record_request(
            "create_elicitation",
            &request,
            json!({"action": "accept", "content": {"name": "Ada"}}),
        )
    }

    async fn complete_elicitation(&self, notification: CompleteElicitationNotification, _: AgentHandle) {
        self.record("complete_elicitation", &notification);
    }

    async fn ext_request(&self, request: ExtRequest, _: ClientContext) -> Result<ExtResponse, Error> {
        self.record(&request.method, &request.params);
        Ok(make_extension(ExtResponse::new, json!("because")))
    }

    async fn ext_notification(&self, notification: ExtNotification, _: AgentHandle) {
        self.record(&notification.method, &notification.params);
        self.extension_received.notify_one();
    }
}

#[tokio::test]
async fn every_method_crosses_the_wire_in_both_directions() {
    let client = Arc::new(RecordingClient::default());
    let command = Command::new(env!("CARGO_BIN_EXE_complete-agent"));
    let (agent, process) = spawn_agent(command, Arc::clone(&client), ConnectionLimits::DEFAULT).unwrap();
    let hello: InitializeRequest = from_json(json!({"protocolVersion": 1, "clientCapabilities": {
        "fs": {"readTextFile": true, "writeTextFile": true}, "terminal": true, "elicitation": {"form": {}, "url": {}},
    }}));
    client.record_call("initialize", agent.initialize(hello).await.map(|answer| answer.auth_methods));
    client.record_call("authenticate", agent.authenticate(from_json(json!({"methodId": "key"}))).await);
    client
        .record_call("authenticate otherwise", agent.authenticate(from_json(json!({"methodId": "?"}))).await);
    let new = json!({"cwd": "/p", "mcpServers": [], "additionalDirectories": ["/q"]});
    client.record_call("new", agent.new_session(from_json(new)).await);
    let session = || json!({"sessionId": "s", "cwd": "/p", "mcpServers": []});
    client.record_call("load", agent.load_session(from_json(session())).await);
    client.record_call("resume", agent.resume_session(from_json(session())).await);
    client.record_call("fork", agent.fork_session(from_json(session())).await);
    let first = agent.list_sessions(ListSessionsRequest::new()).await.unwrap();
    let next = ListSessionsRequest::new().cursor(first.next_cursor.clone());
    client.record_call("list", Ok(first));
    client.record_call("list on", agent.list_sessions(next).await);
    client.record_call(
        "set_mode",
        agent.set_session_mode(from_json(json!({"sessionId": "s", "modeId": "full"}))).await,
    );
    let option = json!({"sessionId": "s", "configId": "model", "value": "fast"});
    client.record_call("set_config_option", agent.set_session_config_option(from_json(option)).await);
    let model: SetSessionModelRequest = from_json(json!({"sessionId": "s", "modelId": "slow"}));
    client.record_call("set_model", agent.set_session_model(model).await);
    client.record_call(
        "extension",
        agent.ext_request(make_extension(|raw| ExtRequest::new("_x", raw), json!({"a": [1]}))).await,
    );
    agent
        .ext_notification(make_extension(|raw| ExtNotification::new("_note", raw), json!({"b": 2})))
        .await
        .unwrap();
    client.extension_received.notified().await;
    client.record_call("prompt", agent.prompt(PromptRequest::new("s", vec!["everything".into()])).await);

    let turn = agent.prompt(PromptRequest::new("s", vec![]));
    let cancel = async {
        while !client.log.lock().unwrap().contains("waiting") {
            client.updated.notified().await;
        }
        agent.cancel("s").await
    };
    let (turn, cancelled) = tokio::join!(turn, cancel);
    cancelled.unwrap();
    client.record_call("cancelled", turn);
    client.record_call("close", agent.close_session(from_json(json!({"sessionId": "s"}))).await);
    client.record_call("delete", agent.delete_session(from_json(json!({"sessionId": "s"}))).await);
    client.record_call("logout", agent.logout(LogoutRequest::new()).await);
    client.record_call("shutdown", Ok(process.shutdown(ShutdownGrace::default()).await.to_string()));
    expect![[r#"
        initialize: [{"id":"key","name":"A key"}]
        authenticate: {}
        authenticate otherwise: ! Authentication required
        new: {"sessionId":"new in /p with [\"/q\"]","modes":{"currentModeId":"ask","availableModes":[{"id":"ask","name":"Ask"}]}}
          update {"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"replayed 1"}}
          update {"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"replayed 2"}}
        load: {}
        resume: {}
        fork: {"sessionId":"fork of s"}
        list: {"sessions":[{"sessionId":"one","cwd":"/a"}],"nextCursor":"+/=="}
        list on: {"sessions":[{"sessionId":"+/==","cwd":"/b"}]}
          update {"sessionUpdate":"current_mode_update","currentModeId":"full"}
        set_mode: {}
        set_config_option: {"configOptions":[{"id":"model","name":"Model","type":"select","currentValue":"fast","options":[{"value":"fast","name":"Fast"}]}]}
          update {"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"model slow"}}
        set_model: {}
        extension: {"method":"_x","params":{"a":[1]}}
          _heard {"b":2}
          request_permission {"sessionId":"s","toolCall":{"toolCallId":"t"},"options":[{"optionId":"no","name":"No","kind":"reject_once"}]}
          update {"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"permission: {\"outcome\":{\"outcome\":\"selected\",\"optionId\":\"no\"}}"}}
          read_text_file {"sessionId":"s","path":"/a","line":2,"limit":3}
          update {"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"read: {\"content\":\"two\\n\"}"}}
          write_text_file {"sessionId":"s","path":"/b","content":"text"}
          update {"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"write: {}"}}
          create_terminal {"sessionId":"s","command":"ls","args":["-l"],"cwd":"/","outputByteLimit":9}
          update {"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"create: {\"terminalId\":\"t1\"}"}}
          terminal_output {"sessionId":"s","terminalId":"t1"}
          update {"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"output: {\"output\":\"so far\",\"truncated\":true}"}}
          kill_terminal {"sessionId":"s","terminalId":"t1"}
          update {"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"kill: {}"}}
          wait_for_terminal_exit {"sessionId":"s","terminalId":"t1"}
          update {"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"exit: {\"signal\":\"SIGKILL\"}"}}
          release_terminal {"sessionId":"s","terminalId":"t1"}
          update {"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"release: {}"}}
          create_elicitation {"mode":"form","sessionId":"s","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}},"message":"Name?"}
          update {"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"elicitation: {\"action\":\"accept\",\"content\":{\"name\":\"Ada\"}}"}}
          complete_elicitation {"elicitationId":"e1"}
          _ask {"why":"to see"}
          update {"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"extension: \"because\""}}
          _told [1,2]
        prompt: {"stopReason":"end_turn"}
          update {"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"waiting"}}
          update {"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"cancel"}}
        cancelled: {"stopReason":"cancelled"}
        close: {}
        delete: {}
        logout: {}
        shutdown: "the agent ended: exit status: 0"
    "#]].assert_eq(&client.log.lock().unwrap());
}
