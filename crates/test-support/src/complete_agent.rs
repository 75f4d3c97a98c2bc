//! An agent that implements every method of the protocol: each reports in its response, or in an update, that it was
//! called.

use bowline_wire::message::methods::{SetSessionModelRequest, SetSessionModelResponse};
use bowline_wire::schema::v1::{
    AuthenticateRequest, AuthenticateResponse, CancelNotification, CloseSessionRequest, CloseSessionResponse,
    CompleteElicitationNotification, ContentChunk, DeleteSessionRequest, DeleteSessionResponse, Error,
    ExtNotification, ExtRequest, ExtResponse, ForkSessionRequest, ForkSessionResponse, InitializeRequest,
    InitializeResponse, ListSessionsRequest, ListSessionsResponse, LoadSessionRequest, LoadSessionResponse,
    LogoutRequest, LogoutResponse, NewSessionRequest, NewSessionResponse, PromptRequest, PromptResponse,
    ResumeSessionRequest, ResumeSessionResponse, SessionId, SessionUpdate, SetSessionConfigOptionRequest,
    SetSessionConfigOptionResponse, SetSessionModeRequest, SetSessionModeResponse, StopReason,
};
use bowline_wire::{Agent, AgentContext, CallError, ClientHandle, run_agent};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Serves the client on stdin and stdout until it disconnects.
///
/// # Errors
/// Fails on an error of stdin or stdout.
pub fn run() -> std::io::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run_agent(CompleteAgent))
}

struct CompleteAgent;

/// Deserialises a protocol value from JSON.
fn from_json<T: DeserializeOwned>(json: Value) -> Result<T, Error> {
    T::deserialize(json).map_err(Error::into_internal_error)
}

async fn send_text(client: &ClientHandle, session: &SessionId, text: String) -> Result<(), CallError> {
    let chunk = SessionUpdate::AgentMessageChunk(ContentChunk::new(text.into()));
    client.update(session.clone(), chunk).await
}

/// Sends the outcome of a client call as an update.
async fn send_outcome<T: Serialize>(
    client: &ClientHandle,
    session: &SessionId,
    label: &str,
    outcome: Result<T, CallError>,
) -> Result<(), CallError> {
    let outcome = match outcome {
        Ok(answer) => json!(answer).to_string(),
        Err(error) => format!("! {error}"),
    };
    send_text(client, session, format!("{label}: {outcome}")).await
}

impl Agent for CompleteAgent {
    async fn initialize(&self, _: InitializeRequest, _: AgentContext) -> Result<InitializeResponse, Error> {
        from_json(json!({
            "protocolVersion": 1,
            "agentCapabilities": {
                "loadSession": true,
                "promptCapabilities": {"image": true, "audio": true, "embeddedContext": true},
                "mcpCapabilities": {"http": true, "sse": true},
                "sessionCapabilities": {
                    "list": {}, "delete": {}, "fork": {}, "resume": {}, "close": {}, "additionalDirectories": {},
                },
                "auth": {"logout": {}},
            },
            "authMethods": [{"id": "key", "name": "A key"}],
        }))
    }

    async fn authenticate(
        &self,
        request: AuthenticateRequest,
        _: AgentContext,
    ) -> Result<AuthenticateResponse, Error> {
        match &*request.method_id.0 {
            "key" => Ok(AuthenticateResponse::new()),
            _ => Err(Error::auth_required()),
        }
    }

    async fn logout(&self, _: LogoutRequest, _: AgentContext) -> Result<LogoutResponse, Error> {
        Ok(LogoutResponse::new())
    }

    async fn new_session(
        &self,
        request: NewSessionRequest,
        _: AgentContext,
    ) -> Result<NewSessionResponse, Error> {
        from_json(json!({
            "sessionId": format!("new in {} with {:?}", request.cwd.display(), request.additional_directories),
            "modes": {"currentModeId": "ask", "availableModes": [{"id": "ask", "name": "Ask"}]},
        }))
    }

    async fn load_session(
        &self,
        request: LoadSessionRequest,
        cx: AgentContext,
    ) -> Result<LoadSessionResponse, Error> {
        send_text(cx.client(), &request.session_id, "replayed 1".to_owned()).await?;
        send_text(cx.client(), &request.session_id, "replayed 2".to_owned()).await?;
        Ok(LoadSessionResponse::new())
    }

    async fn resume_session(
        &self,
        _: ResumeSessionRequest,
        _: AgentContext,
    ) -> Result<ResumeSessionResponse, Error> {
        Ok(ResumeSessionResponse::new())
    }

    async fn list_sessions(
        &self,
        request: ListSessionsRequest,
        _: AgentContext,
    ) -> Result<ListSessionsResponse, Error> {
        match request.cursor {
            None => from_json(json!({"sessions": [{"sessionId": "one", "cwd": "/a"}], "nextCursor": "+/=="})),
            Some(cursor) => from_json(json!({"sessions": [{"sessionId": cursor, "cwd": "/b"}]})),
        }
    }

    async fn fork_session(
        &self,
        request: ForkSessionRequest,
        _: AgentContext,
    ) -> Result<ForkSessionResponse, Error> {
        Ok(ForkSessionResponse::new(format!("fork of {}", request.session_id)))
    }

    async fn close_session(
        &self,
        _: CloseSessionRequest,
        _: AgentContext,
    ) -> Result<CloseSessionResponse, Error> {
        Ok(CloseSessionResponse::new())
    }

    async fn delete_session(
        &self,
        _: DeleteSessionRequest,
        _: AgentContext,
    ) -> Result<DeleteSessionResponse, Error> {
        Ok(DeleteSessionResponse::new())
    }

    async fn set_session_mode(
        &self,
        request: SetSessionModeRequest,
        cx: AgentContext,
    ) -> Result<SetSessionModeResponse, Error> {
        let update = json!({"sessionUpdate": "current_mode_update", "currentModeId": request.mode_id});
        cx.client().update(request.session_id, from_json::<SessionUpdate>(update)?).await?;
        Ok(SetSessionModeResponse::new())
    }

    async fn set_session_config_option(
        &self,
        request: SetSessionConfigOptionRequest,
        _: AgentContext,
    ) -> Result<SetSessionConfigOptionResponse, Error> {
        from_json(json!({"configOptions": [{
            "id": request.config_id, "name": "Model", "type": "select", "currentValue": "fast",
            "options": [{"value": "fast", "name": "Fast"}],
        }]}))
    }

    async fn set_session_model(
        &self,
        request: SetSessionModelRequest,
        cx: AgentContext,
    ) -> Result<SetSessionModelResponse, Error> {
        send_text(cx.client(), &request.session_id, format!("model {}", request.model_id)).await?;
        Ok(SetSessionModelResponse {})
    }

    async fn prompt(&self, request: PromptRequest, cx: AgentContext) -> Result<PromptResponse, Error> {
        let (client, session) = (cx.client(), &request.session_id);
        if request.prompt.is_empty() {
            send_text(client, session, "waiting".to_owned()).await?;
            cx.cancelled().await;
            return Ok(PromptResponse::new(StopReason::Cancelled));
        }
        let ask = json!({
            "sessionId": session,
            "toolCall": {"toolCallId": "t"},
            "options": [{"optionId": "no", "name": "No", "kind": "reject_once"}],
        });
        send_outcome(client, session, "permission", client.request_permission(from_json(ask)?).await).await?;
        let read = json!({"sessionId": session, "path": "/a", "line": 2, "limit": 3});
        send_outcome(client, session, "read", client.read_text_file(from_json(read)?).await).await?;
        let write = json!({"sessionId": session, "path": "/b", "content": "text"});
        send_outcome(client, session, "write", client.write_text_file(from_json(write)?).await).await?;
        let create =
            json!({"sessionId": session, "command": "ls", "args": ["-l"], "cwd": "/", "outputByteLimit": 9});
        send_outcome(client, session, "create", client.create_terminal(from_json(create)?).await).await?;
        let terminal = || json!({"sessionId": session, "terminalId": "t1"});
        send_outcome(client, session, "output", client.terminal_output(from_json(terminal())?).await).await?;
        send_outcome(client, session, "kill", client.kill_terminal(from_json(terminal())?).await).await?;
        send_outcome(client, session, "exit", client.wait_for_terminal_exit(from_json(terminal())?).await)
            .await?;
        send_outcome(client, session, "release", client.release_terminal(from_json(terminal())?).await)
            .await?;
        let form = json!({
            "sessionId": session, "mode": "form", "message": "Name?",
            "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
        });
        send_outcome(client, session, "elicitation", client.create_elicitation(from_json(form)?).await)
            .await?;
        client.complete_elicitation(CompleteElicitationNotification::new("e1")).await?;
        let ext = ExtRequest::new("_ask", to_raw_value(json!({"why": "to see"}))?.into());
        send_outcome(client, session, "extension", client.ext_request(ext).await).await?;
        client.ext_notification(ExtNotification::new("_told", to_raw_value(json!([1, 2]))?.into())).await?;
        Ok(PromptResponse::new(StopReason::EndTurn))
    }

    async fn cancel(&self, notification: CancelNotification, client: ClientHandle) {
        send_text(&client, &notification.session_id, "cancel".to_owned()).await.ok();
    }

    async fn ext_request(&self, request: ExtRequest, _: AgentContext) -> Result<ExtResponse, Error> {
        Ok(ExtResponse::new(
            to_raw_value(json!({"method": &*request.method, "params": request.params}))?.into(),
        ))
    }

    async fn ext_notification(&self, notification: ExtNotification, client: ClientHandle) {
        client.ext_notification(ExtNotification::new("_heard", notification.params)).await.ok();
    }
}

fn to_raw_value(json: Value) -> Result<Box<serde_json::value::RawValue>, Error> {
    serde_json::value::to_raw_value(&json).map_err(Error::into_internal_error)
}
