//! The agent of `tests/peers/README.md` on the official Rust SDK, used as its documentation shows: `Agent.v1()`, typed
//! handlers, `cx.spawn` for a turn, `Stdio`.

mod turn;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    AgentCapabilities, CancelNotification, Implementation, InitializeRequest, InitializeResponse,
    NewSessionRequest, NewSessionResponse, PromptRequest, SessionId,
};
use agent_client_protocol::{Agent, Client, Result, Stdio, on_receive_notification, on_receive_request};
use tokio::sync::Notify;

/// The name in `agentInfo` and in the file that the flow writes.
const NAME: &str = "peer-rust";

/// The notifications that `session/cancel` sends to the running turn of each session.
type Cancels = Arc<Mutex<HashMap<SessionId, Arc<Notify>>>>;

// The same runtime as in Bowline's own peers, so that a benchmark compares the SDKs and not two schedulers.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let sessions = Arc::new(AtomicU64::new(0));
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
        .connect_to(Stdio::new())
        .await
}
