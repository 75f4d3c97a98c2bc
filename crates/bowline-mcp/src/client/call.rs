//! One call of a tool: sent, watched, and cancelled if nobody waits for it any more.

use std::sync::Arc;
use std::time::Duration;

use bowline_state::display;
use bowline_state::mcp_tools::{CallOutput, read_output};
use rmcp::RoleClient;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotification, CancelledNotificationParam,
    ClientNotification, ClientRequest, RequestId, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, ServiceError};
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::connection::unreachable;
use super::error::McpError;
use super::handler::Handler;
use super::server::Snapshot;
use super::servers::State;
use super::settings::Settings;

/// How long a server that is being started anew is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a cancellation may take to be sent.
const CANCEL: Duration = Duration::from_secs(5);
/// The longest message of a server's error, in bytes.
const MAX_MESSAGE: usize = 2000;

/// How a server is called.
#[derive(Clone)]
pub(super) struct Link {
    peer: Peer<RoleClient>,
    handler: Arc<Handler>,
}

impl Link {
    pub(super) fn new(peer: Peer<RoleClient>, handler: Arc<Handler>) -> Self {
        Self { peer, handler }
    }

    pub(super) fn peer(&self) -> &Peer<RoleClient> {
        &self.peer
    }

    /// Returns whether both are the same connection.
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.handler, &other.handler)
    }
}

/// Calls a tool. Dropping it cancels the call.
pub(super) async fn call(
    server: &str,
    mut snapshot: watch::Receiver<Snapshot>,
    settings: &Settings,
    tool: String,
    arguments: Map<String, Value>,
    mut progress: impl FnMut(String),
) -> Result<CallOutput, McpError> {
    let link = ready(server, &mut snapshot).await?;
    let named = || server.to_owned();
    let params = CallToolRequestParams::new(tool).with_arguments(arguments);
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
    let limit = Instant::now() + settings.call_limit;
    let mut idle = Instant::now() + settings.call_timeout;
    let send = link.peer.send_request_with_option(request, PeerRequestOptions::no_options());
    let sent = tokio::select! {
        biased;
        why = lost(&mut snapshot, &link) => return Err(McpError::Gone { server: named(), why }),
        sent = send => sent,
        () = sleep_until(idle.min(limit)) => {
            return Err(McpError::Late { server: named(), after: settings.call_timeout });
        }
    };
    let mut handle = sent.map_err(|why| failed(server, &why))?;
    let mut unanswered = Unanswered { peer: &link.peer, id: Some(handle.id.clone()) };
    let mut watch = link.handler.watch(handle.progress_token.clone());
    let answer = loop {
        tokio::select! {
            biased;
            answer = &mut handle.rx => break answer.unwrap_or(Err(ServiceError::TransportClosed)),
            why = lost(&mut snapshot, &link) => {
                unanswered.id = None;
                return Err(McpError::Gone { server: named(), why });
            }
            // Before the progress, which may come without end.
            () = sleep_until(idle.min(limit)) => {
                let after = if idle < limit { settings.call_timeout } else { settings.call_limit };
                return Err(McpError::Late { server: named(), after });
            }
            Some(title) = watch.next() => {
                idle = Instant::now() + settings.call_timeout;
                progress(title);
            }
        }
    };
    unanswered.id = None;
    match answer {
        Ok(ServerResult::InputRequiredResult(_)) => {
            Err(McpError::Unsupported { server: named(), what: "a question to the user" })
        }
        Ok(ServerResult::CreateTaskResult(_)) => {
            Err(McpError::Unsupported { server: named(), what: "a task in the background" })
        }
        Ok(result) => Ok(read_output(serde_json::to_value(result).unwrap_or_default())),
        // It is the end of the connection, and the owner of the server knows more about it.
        Err(ServiceError::TransportClosed) => {
            let why = timeout(Duration::from_millis(500), lost(&mut snapshot, &link)).await;
            let why = why.unwrap_or_else(|_| "it closed the connection".to_owned());
            Err(McpError::Gone { server: named(), why })
        }
        Err(why) => Err(failed(server, &why)),
    }
}

/// Returns how a server is called, as soon as it can be.
async fn ready(server: &str, snapshot: &mut watch::Receiver<Snapshot>) -> Result<Link, McpError> {
    let settled = |snapshot: &Snapshot| {
        snapshot.link.is_some() || matches!(snapshot.state, State::Failed(_) | State::Stopped)
    };
    drop(timeout(PATIENCE, snapshot.wait_for(settled)).await);
    let snapshot = snapshot.borrow();
    snapshot
        .link
        .clone()
        .ok_or_else(|| McpError::NotReady { server: server.to_owned(), why: snapshot.state.to_string() })
}

/// Waits until the connection is another one, or none, and says why.
async fn lost(snapshot: &mut watch::Receiver<Snapshot>, link: &Link) -> String {
    let other = |snapshot: &Snapshot| !snapshot.link.as_ref().is_some_and(|now| now.is(link));
    match snapshot.wait_for(other).await {
        Ok(snapshot) => snapshot.state.to_string(),
        Err(_) => State::Stopped.to_string(),
    }
}

fn failed(server: &str, why: &ServiceError) -> McpError {
    let server = server.to_owned();
    match why {
        ServiceError::McpError(error) => {
            McpError::Refused { server, message: display::line(&error.message, MAX_MESSAGE) }
        }
        ServiceError::TransportSend(error) => {
            McpError::Unreachable { server, why: unreachable(&*error.error).why }
        }
        why => McpError::Unreachable { server, why: super::error::chain(why) },
    }
}

/// A request that waits for its answer. Dropped before that, the server is told that nobody does.
struct Unanswered<'a> {
    peer: &'a Peer<RoleClient>,
    id: Option<RequestId>,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        // Without a runtime the connection is gone as well.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let peer = self.peer.clone();
        let param = CancelledNotificationParam::new(Some(id), Some("nobody waits for the answer".to_owned()));
        let cancelled = ClientNotification::CancelledNotification(CancelledNotification::new(param));
        runtime.spawn(async move { drop(timeout(CANCEL, peer.send_notification(cancelled)).await) });
    }
}
