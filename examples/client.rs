//! A small ACP client: it starts an agent, serves it a file, approves its requests, and prints the session updates.
//!
//! Usage: `cargo run --example client -- AGENT [ARGUMENT…]`

use std::io::Write;
use std::sync::Arc;

use bowline_sdk::permission::{ChoiceLifetime, PermissionDecision, choose_outcome};
use bowline_sdk::schema::ProtocolVersion;
use bowline_sdk::schema::v1::{
    ClientCapabilities, Error, FileSystemCapabilities, InitializeRequest, NewSessionRequest, PromptRequest,
    ReadTextFileRequest, ReadTextFileResponse, RequestPermissionRequest, RequestPermissionResponse,
    SessionNotification, WriteTextFileRequest, WriteTextFileResponse,
};
use bowline_sdk::{AgentHandle, Client, ClientContext, ConnectionLimits, ShutdownGrace, spawn_agent};

struct ExampleClient;

impl Client for ExampleClient {
    async fn request_permission(
        &self,
        request: RequestPermissionRequest,
        _: ClientContext,
    ) -> Result<RequestPermissionResponse, Error> {
        let outcome = choose_outcome(&request.options, PermissionDecision::Allow(ChoiceLifetime::Once))
            .map_err(Error::into_internal_error)?;
        Ok(RequestPermissionResponse::new(outcome))
    }

    async fn session_update(&self, notification: SessionNotification, _: AgentHandle) {
        writeln!(std::io::stdout(), "{:?}", notification.update).ok();
    }

    async fn read_text_file(
        &self,
        _: ReadTextFileRequest,
        _: ClientContext,
    ) -> Result<ReadTextFileResponse, Error> {
        Ok(ReadTextFileResponse::new("{ \"version\": \"1.0.0\" }\n"))
    }

    async fn write_text_file(
        &self,
        request: WriteTextFileRequest,
        _: ClientContext,
    ) -> Result<WriteTextFileResponse, Error> {
        writeln!(std::io::stdout(), "{} is now {}", request.path.display(), request.content).ok();
        Ok(WriteTextFileResponse::new())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let mut command =
        tokio::process::Command::new(arguments.next().ok_or("usage: client AGENT [ARGUMENT…]")?);
    command.args(arguments);
    let (agent, process) = spawn_agent(command, Arc::new(ExampleClient), ConnectionLimits::DEFAULT)?;
    let fs = FileSystemCapabilities::new().read_text_file(true).write_text_file(true);
    let request =
        InitializeRequest::new(ProtocolVersion::V1).client_capabilities(ClientCapabilities::new().fs(fs));
    agent.initialize(request).await?;
    let session = agent.new_session(NewSessionRequest::new(std::env::current_dir()?)).await?.session_id;
    let turn = agent.prompt(PromptRequest::new(session, vec!["/project/config.json".into()])).await?;
    writeln!(std::io::stdout(), "{:?}", turn.stop_reason)?;
    process.shutdown(ShutdownGrace::default()).await;
    Ok(())
}
