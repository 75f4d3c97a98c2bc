//! The client of `tests/peers/README.md` on the official Rust SDK, used as its documentation shows:
//! `Client.v1()`, typed handlers, `AcpAgent` for a process, `HttpClient` for a server.

mod files;
mod log;
mod terminals;

use std::io::Write;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    CancelNotification, ClientCapabilities, CreateTerminalRequest, CreateTerminalResponse,
    FileSystemCapabilities, InitializeRequest, KillTerminalRequest, KillTerminalResponse, NewSessionRequest,
    PermissionOptionKind, PromptRequest, ReadTextFileRequest, ReadTextFileResponse, ReleaseTerminalRequest,
    ReleaseTerminalResponse, RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse,
    SelectedPermissionOutcome, SessionId, SessionNotification, TerminalOutputRequest,
    WaitForTerminalExitRequest, WaitForTerminalExitResponse, WriteTextFileRequest, WriteTextFileResponse,
};
use agent_client_protocol::{
    AcpAgent, Agent, Client, DynConnectTo, Result, on_receive_notification, on_receive_request,
};
use agent_client_protocol_http::HttpClient;
use anyhow::Context;
use futures::future::{Either, select};
use reqwest::header::{AUTHORIZATION, HeaderMap};
use serde::Deserialize;
use serde_json::{Value, json};

use files::Files;
use log::Log;
use terminals::Terminals;

/// One step of the plan.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Step {
    prompt: Value,
    #[serde(default)]
    cancel_on_first_chunk: bool,
}

struct Arguments {
    approve: PermissionOptionKind,
    plan: Vec<Step>,
    agent: Vec<String>,
}

// The same runtime as in Bowline's own peers, so that a benchmark compares the SDKs and not two schedulers.
#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let Arguments { approve, plan, agent } = arguments(std::env::args().skip(1))?;
    let cwd = std::env::current_dir().context("cannot find the working directory")?;
    let log = Arc::new(Log::default());
    let updates = Arc::clone(&log);
    let files = Files::default();
    let terminals = Arc::new(Terminals::default());
    let [created, asked, killed, waited, released] = std::array::from_fn(|_| Arc::clone(&terminals));

    Client
        .v1()
        .name("peer-rust")
        .on_receive_notification(
            async move |notification: SessionNotification, _cx| {
                updates.record(notification.update);
                Ok(())
            },
            on_receive_notification!(),
        )
        .on_receive_request(
            async move |read: ReadTextFileRequest, responder, _cx| {
                responder.respond_with_result(files.read(&read).map(ReadTextFileResponse::new))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |write: WriteTextFileRequest, responder, _cx| match std::fs::write(
                &write.path,
                &write.content,
            ) {
                Ok(()) => responder.respond(WriteTextFileResponse::new()),
                Err(error) => responder.respond_with_internal_error(error),
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |ask: RequestPermissionRequest, responder, _cx| {
                let chosen = ask.options.into_iter().find(|option| option.kind == approve);
                responder.respond(RequestPermissionResponse::new(chosen.map_or(
                    RequestPermissionOutcome::Cancelled,
                    |option| {
                        RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(option.option_id))
                    },
                )))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |create: CreateTerminalRequest, responder, _cx| {
                responder.respond_with_result(created.create(&create).map(CreateTerminalResponse::new))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |output: TerminalOutputRequest, responder, _cx| {
                responder
                    .respond_with_result(asked.get(&output.terminal_id).map(|terminal| terminal.output()))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |kill: KillTerminalRequest, responder, _cx| {
                responder.respond_with_result(killed.get(&kill.terminal_id).map(|terminal| {
                    terminal.kill();
                    KillTerminalResponse::new()
                }))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |wait: WaitForTerminalExitRequest, responder, cx: ConnectionTo<Agent>| {
                // Waiting here would block the dispatch loop, and with it the `terminal/kill` that ends the wait.
                match waited.get(&wait.terminal_id) {
                    Ok(terminal) => cx.spawn(async move {
                        responder.respond_with_result(
                            terminal.exited().await.map(WaitForTerminalExitResponse::new),
                        )
                    }),
                    Err(error) => responder.respond_with_error(error),
                }
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |release: ReleaseTerminalRequest, responder, _cx| {
                responder.respond_with_result(
                    released.release(&release.terminal_id).map(|()| ReleaseTerminalResponse::new()),
                )
            },
            on_receive_request!(),
        )
        .connect_with(transport(agent)?, async move |cx: ConnectionTo<Agent>| {
            let initialize = InitializeRequest::new(ProtocolVersion::V1).client_capabilities(
                ClientCapabilities::new()
                    .fs(FileSystemCapabilities::new().read_text_file(true).write_text_file(true))
                    .terminal(true),
            );
            let answer = cx.send_request(initialize).block_task().await?;
            let name = answer.agent_info.map(|info| info.name);
            print(&json!({"agent": name, "protocolVersion": answer.protocol_version}))?;
            let session = cx.send_request(NewSessionRequest::new(cwd)).block_task().await?.session_id;
            for step in plan {
                print(&take(&cx, &session, &log, step).await?)?;
            }
            Ok(())
        })
        .await?;
    Ok(())
}

/// Returns the connection to an agent: a command, or the URL of a server, with the token in `BOWLINE_TOKEN`.
fn transport(agent: Vec<String>) -> anyhow::Result<DynConnectTo<Client>> {
    let url = agent.first().filter(|word| word.starts_with("http://") || word.starts_with("ws://"));
    let Some(url) = url else { return Ok(DynConnectTo::new(AcpAgent::from_args(agent)?)) };
    let mut headers = HeaderMap::new();
    if let Ok(token) = std::env::var("BOWLINE_TOKEN") {
        headers.insert(AUTHORIZATION, format!("Bearer {token}").parse()?);
    }
    let client = HttpClient::builder(url).configure_http(|http| http.no_proxy().default_headers(headers));
    Ok(DynConnectTo::new(client.build()?))
}

/// Runs one step and returns its line.
async fn take(cx: &ConnectionTo<Agent>, session: &SessionId, log: &Log, step: Step) -> Result<Value> {
    log.clear();
    let prompt = PromptRequest::new(session.clone(), vec![step.prompt.to_string().into()]);
    let start = Instant::now();
    let answer = pin!(cx.send_request(prompt).block_task());
    let answer = if step.cancel_on_first_chunk {
        match select(pin!(log.first_chunk()), answer).await {
            Either::Left(((), answer)) => {
                cx.send_notification(CancelNotification::new(session.clone()))?;
                answer.await?
            }
            // A response before any chunk leaves nothing to cancel.
            Either::Right((answer, _)) => answer?,
        }
    } else {
        answer.await?
    };
    Ok(log.line(answer.stop_reason, start.elapsed()))
}

fn print(line: &Value) -> Result<()> {
    writeln!(std::io::stdout().lock(), "{line}").map_err(agent_client_protocol::Error::into_internal_error)
}

fn arguments(mut given: impl Iterator<Item = String>) -> anyhow::Result<Arguments> {
    let (mut approve, mut plan) = (PermissionOptionKind::AllowOnce, None);
    while let Some(name) = given.next() {
        if name == "--" {
            break;
        }
        let value = given.next().with_context(|| format!("{name} needs a value"))?;
        match (name.as_str(), value.as_str()) {
            ("--approve", "allow") => approve = PermissionOptionKind::AllowOnce,
            ("--approve", "reject") => approve = PermissionOptionKind::RejectOnce,
            ("--plan", json) => plan = Some(serde_json::from_str(json).context("cannot read the plan")?),
            _ => anyhow::bail!("unknown argument {name} {value}"),
        }
    }
    Ok(Arguments { approve, plan: plan.context("--plan is missing")?, agent: given.collect() })
}
