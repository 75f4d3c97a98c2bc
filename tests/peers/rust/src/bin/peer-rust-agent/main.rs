//! The agent of `tests/peers/README.md` on the official Rust SDK, used as its documentation shows: `Agent.v1()`, typed
//! handlers, `cx.spawn` for a turn, `Stdio`; with `--listen`, `AcpHttpServer`.

mod turn;

use std::collections::HashMap;
use std::future::IntoFuture as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    AgentCapabilities, CancelNotification, Implementation, InitializeRequest, InitializeResponse,
    NewSessionRequest, NewSessionResponse, PromptRequest, SessionId,
};
use agent_client_protocol::{Agent, Client, ConnectTo, Stdio, on_receive_notification, on_receive_request};
use agent_client_protocol_http::AcpHttpServer;
use tokio::net::TcpListener;
use tokio::sync::Notify;

/// The name in `agentInfo` and in the file that the flow writes.
const NAME: &str = "peer-rust";

/// The notifications that `session/cancel` sends to the running turn of each session.
type Cancels = Arc<Mutex<HashMap<SessionId, Arc<Notify>>>>;

// The same runtime as in Bowline's own peers, so that a benchmark compares the SDKs and not two schedulers.
#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("--listen") {
        return listen(arguments.next().as_deref().unwrap_or("0")).await;
    }
    let sessions = Arc::new(AtomicU64::new(0));
    Ok(create_agent(sessions).connect_to(Stdio::new()).await?)
}

/// Serves the agent over HTTP and WebSocket until stdin closes.
async fn listen(port: &str) -> anyhow::Result<()> {
    let sessions = Arc::new(AtomicU64::new(0));
    let server = AcpHttpServer::new(move || create_agent(Arc::clone(&sessions)));
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("{}", listener.local_addr()?);
    let (mut stdin, mut sink) = (tokio::io::stdin(), tokio::io::sink());
    let serving = axum::serve(listener, server.into_router());
    tokio::select! {
        served = serving.into_future() => Ok(served?),
        ended = tokio::io::copy(&mut stdin, &mut sink) => Ok(ended.map(drop)?),
    }
}

/// Creates the agent of one connection.
fn create_agent(sessions: Arc<AtomicU64>) -> impl ConnectTo<Client> {
    let cancels = Cancels::default();
    let cancelled = Arc::clone(&cancels);
    Agent
        .v1()
        .name(NAME)
        .on_receive_request(
            async move |initialize: InitializeRequest, responder, _cx| {
                responder.respond(
                    InitializeResponse::new(initialize.protocol_version)
                        .agent_capabilities(AgentCapabilities::new())
                        .agent_info(Implementation::new(NAME, env!("CARGO_PKG_VERSION"))),
                )
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |_: NewSessionRequest, responder, _cx| {
                let number = sessions.fetch_add(1, Ordering::Relaxed) + 1;
                responder.respond(NewSessionResponse::new(format!("session_{number}")))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |prompt: PromptRequest, responder, cx: ConnectionTo<Client>| {
                let cancel = Arc::new(Notify::new());
                let mut turns = cancels.lock().unwrap_or_else(PoisonError::into_inner);
                turns.insert(prompt.session_id.clone(), Arc::clone(&cancel));
                let connection = cx.clone();
                cx.spawn(async move {
                    responder.respond_with_result(turn::run(&connection, prompt, &cancel).await)
                })
            },
            on_receive_request!(),
        )
        .on_receive_notification(
            async move |cancel: CancelNotification, _cx| {
                let turns = cancelled.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(turn) = turns.get(&cancel.session_id) {
                    turn.notify_one();
                }
                Ok(())
            },
            on_receive_notification!(),
        )
}
