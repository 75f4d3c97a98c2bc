//! Every method of both ends, over the pipes of two processes.

use std::sync::{Arc, Mutex};

use bowline_wire::methods::SetSessionModelRequest;
use bowline_wire::schema::v1::{
    CompleteElicitationNotification, CreateElicitationRequest, CreateElicitationResponse,
    CreateTerminalRequest, CreateTerminalResponse, Error, ExtNotification, ExtRequest, ExtResponse,
    InitializeRequest, KillTerminalRequest, KillTerminalResponse, ListSessionsRequest, LogoutRequest,
    PromptRequest, ReadTextFileRequest, ReadTextFileResponse, ReleaseTerminalRequest,
    ReleaseTerminalResponse, RequestPermissionRequest, RequestPermissionResponse, SessionNotification,
    TerminalOutputRequest, TerminalOutputResponse, WaitForTerminalExitRequest, WaitForTerminalExitResponse,
    WriteTextFileRequest, WriteTextFileResponse,
};
use bowline_wire::{AgentHandle, CallError, Client, ClientContext, Grace, Limits, spawn_agent};
use expect_test::expect;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::Notify;

/// Notes everything that it is asked and told, and answers with a fixed value.
#[derive(Default)]
struct Recorder {
    notes: Mutex<String>,
    updated: Notify,
    heard: Notify,
}

impl Recorder {
    fn note(&self, what: &str, message: &impl Serialize) {
        let line = format!("  {what} {}\n", serde_json::to_string(message).unwrap());
        self.notes.lock().unwrap().push_str(&line);
    }

    /// Notes the request and makes the answer.
    fn asked<T: DeserializeOwned>(
        &self,
        what: &str,
        request: &impl Serialize,
        answer: Value,
    ) -> Result<T, Error> {
        self.note(what, request);
        Ok(value(answer))
    }

    /// Notes what a call of the agent came to.
    fn called<T: Serialize>(&self, what: &str, outcome: Result<T, CallError>) {
        let outcome = match outcome {
            Ok(answer) => serde_json::to_string(&answer).unwrap(),
            Err(error) => format!("! {error}"),
        };
        self.notes.lock().unwrap().push_str(&format!("{what}: {outcome}\n"));
    }
}

fn value<T: DeserializeOwned>(json: Value) -> T {
    serde_json::from_value(json).unwrap()
}

fn extension<T>(make: impl FnOnce(Arc<serde_json::value::RawValue>) -> T, json: Value) -> T {
    make(serde_json::value::to_raw_value(&json).unwrap().into())
}

impl Client for Recorder {
    async fn request_permission(
        &self,
        request: RequestPermissionRequest,
        _: ClientContext,
    ) -> Result<RequestPermissionResponse, Error> {
        self.asked(
            "request_permission",
            &request,
            json!({"outcome": {"outcome": "selected", "optionId": "no"}}),
        )
    }

    async fn session_update(&self, notification: SessionNotification, _: AgentHandle) {
        self.note("update", &notification.update);
        self.updated.notify_one();
    }

    async fn read_text_file(
        &self,
        request: ReadTextFileRequest,
        _: ClientContext,
    ) -> Result<ReadTextFileResponse, Error> {
        self.asked("read_text_file", &request, json!({"content": "two\n"}))
    }

    async fn write_text_file(
        &self,
        request: WriteTextFileRequest,
        _: ClientContext,
    ) -> Result<WriteTextFileResponse, Error> {
        self.asked("write_text_file", &request, json!({}))
    }

    async fn create_terminal(
        &self,
        request: CreateTerminalRequest,
        _: ClientContext,
    ) -> Result<CreateTerminalResponse, Error> {
        self.asked("create_terminal", &request, json!({"terminalId": "t1"}))
    }

    async fn terminal_output(
        &self,
        request: TerminalOutputRequest,
        _: ClientContext,
    ) -> Result<TerminalOutputResponse, Error> {
        self.asked("terminal_output", &request, json!({"output": "so far", "truncated": true}))
    }

    async fn wait_for_terminal_exit(
        &self,
        request: WaitForTerminalExitRequest,
        _: ClientContext,
    ) -> Result<WaitForTerminalExitResponse, Error> {
        self.asked("wait_for_terminal_exit", &request, json!({"signal": "SIGKILL"}))
    }

    async fn kill_terminal(
        &self,
        request: KillTerminalRequest,
        _: ClientContext,
    ) -> Result<KillTerminalResponse, Error> {
        self.asked("kill_terminal", &request, json!({}))
    }

    async fn release_terminal(
        &self,
        request: ReleaseTerminalRequest,
        _: ClientContext,
    ) -> Result<ReleaseTerminalResponse, Error> {
        self.asked("release_terminal", &request, json!({}))
    }

    async fn create_elicitation(
        &self,
        request: CreateElicitationRequest,
        _: ClientContext,
    ) -> Result<CreateElicitationResponse, Error> {
        self.asked("create_elicitation", &request, json!({"action": "accept", "content": {"name": "Ada"}}))
    }

    async fn complete_elicitation(&self, notification: CompleteElicitationNotification, _: AgentHandle) {
        self.note("complete_elicitation", &notification);
    }

    async fn ext_request(&self, request: ExtRequest, _: ClientContext) -> Result<ExtResponse, Error> {
        self.note(&request.method, &request.params);
        Ok(extension(ExtResponse::new, json!("because")))
    }

    async fn ext_notification(&self, notification: ExtNotification, _: AgentHandle) {
        self.note(&notification.method, &notification.params);
        self.heard.notify_one();
    }
}

#[tokio::test]
async fn every_method_crosses_the_wire_in_both_directions() {
    let client = Arc::new(Recorder::default());
    let command = Command::new(env!("CARGO_BIN_EXE_complete-agent"));
    let (agent, process) = spawn_agent(command, Arc::clone(&client), Limits::DEFAULT).unwrap();
    let hello: InitializeRequest = value(json!({"protocolVersion": 1, "clientCapabilities": {
        "fs": {"readTextFile": true, "writeTextFile": true}, "terminal": true, "elicitation": {"form": {}, "url": {}},
    }}));
    client.called("initialize", agent.initialize(hello).await.map(|answer| answer.auth_methods));
    client.called("authenticate", agent.authenticate(value(json!({"methodId": "key"}))).await);
    client.called("authenticate otherwise", agent.authenticate(value(json!({"methodId": "?"}))).await);
    let new = json!({"cwd": "/p", "mcpServers": [], "additionalDirectories": ["/q"]});
    client.called("new", agent.new_session(value(new)).await);
    let session = || json!({"sessionId": "s", "cwd": "/p", "mcpServers": []});
    client.called("load", agent.load_session(value(session())).await);
    client.called("resume", agent.resume_session(value(session())).await);
    client.called("fork", agent.fork_session(value(session())).await);
    let first = agent.list_sessions(ListSessionsRequest::new()).await.unwrap();
    let next = ListSessionsRequest::new().cursor(first.next_cursor.clone());
    client.called("list", Ok(first));
    client.called("list on", agent.list_sessions(next).await);
    client
        .called("set_mode", agent.set_session_mode(value(json!({"sessionId": "s", "modeId": "full"}))).await);
    let option = json!({"sessionId": "s", "configId": "model", "value": "fast"});
    client.called("set_config_option", agent.set_session_config_option(value(option)).await);
    let model: SetSessionModelRequest = value(json!({"sessionId": "s", "modelId": "slow"}));
    client.called("set_model", agent.set_session_model(model).await);
    client.called(
        "extension",
        agent.ext_request(extension(|raw| ExtRequest::new("_x", raw), json!({"a": [1]}))).await,
    );
    agent
        .ext_notification(extension(|raw| ExtNotification::new("_note", raw), json!({"b": 2})))
        .await
        .unwrap();
    client.heard.notified().await;
    client.called("prompt", agent.prompt(PromptRequest::new("s", vec!["everything".into()])).await);

    let turn = agent.prompt(PromptRequest::new("s", vec![]));
    let cancel = async {
        while !client.notes.lock().unwrap().contains("waiting") {
            client.updated.notified().await;
        }
        agent.cancel("s").await
    };
    let (turn, cancelled) = tokio::join!(turn, cancel);
    cancelled.unwrap();
    client.called("cancelled", turn);
    client.called("close", agent.close_session(value(json!({"sessionId": "s"}))).await);
    client.called("delete", agent.delete_session(value(json!({"sessionId": "s"}))).await);
    client.called("logout", agent.logout(LogoutRequest::new()).await);
    client.called("shutdown", Ok(process.shutdown(Grace::default()).await.to_string()));
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
    "#]].assert_eq(&client.notes.lock().unwrap());
}
