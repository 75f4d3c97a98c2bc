//! A small ACP agent: it reads a file through the client, bumps the version in it, asks the user, and writes it back.
//!
//! The prompt names the file. To run it with the example client, build both with `cargo build --examples`, then run
//! `cargo run --example client -- target/debug/examples/agent`.

use bowline_sdk::builders::start_edit;
use bowline_sdk::permission::{PermissionBroker, PermissionRequestDetails, PermissionVerdict};
use bowline_sdk::schema::v1::{
    ContentBlock, Error, InitializeRequest, InitializeResponse, NewSessionRequest, NewSessionResponse,
    PromptRequest, PromptResponse, ReadTextFileRequest, StopReason, WriteTextFileRequest,
};
use bowline_sdk::tracker::ToolCallTracker;
use bowline_sdk::{Agent, AgentContext, run_agent};

struct VersionBumper;

impl Agent for VersionBumper {
    async fn initialize(
        &self,
        request: InitializeRequest,
        _: AgentContext,
    ) -> Result<InitializeResponse, Error> {
        Ok(InitializeResponse::new(request.protocol_version))
    }

    async fn new_session(&self, _: NewSessionRequest, cx: AgentContext) -> Result<NewSessionResponse, Error> {
        Ok(NewSessionResponse::new(format!("session-{}", cx.request_id())))
    }

    async fn prompt(&self, request: PromptRequest, cx: AgentContext) -> Result<PromptResponse, Error> {
        let (client, session) = (cx.client(), request.session_id);
        let Some(ContentBlock::Text(path)) = request.prompt.into_iter().next() else {
            return Err(Error::invalid_params());
        };
        let old = client.read_text_file(ReadTextFileRequest::new(session.clone(), &path.text)).await?.content;
        let new = old.replace("1.0.0", "2.0.0");

        let mut calls = ToolCallTracker::new();
        let edit = calls.start("bump", |id| start_edit(id, "Bump the version", &path.text, new.clone()));
        client.update(session.clone(), edit.map_err(Error::into_internal_error)?).await?;
        let broker = PermissionBroker::new(session.clone());
        let permission_request = broker
            .build_request_for(&calls, "bump", PermissionRequestDetails::default())
            .map_err(Error::into_internal_error)?;
        let answer = client.request_permission(permission_request.clone()).await?;
        let verdict = PermissionVerdict::from_outcome(&permission_request.options, &answer.outcome)
            .map_err(Error::into_internal_error)?;

        let end = if verdict.is_approved() {
            client.write_text_file(WriteTextFileRequest::new(session.clone(), &path.text, new)).await?;
            calls.complete("bump")
        } else {
            calls.fail("bump")
        };
        client.update(session, end.map_err(Error::into_internal_error)?).await?;
        Ok(PromptResponse::new(StopReason::EndTurn))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    run_agent(VersionBumper).await
}
