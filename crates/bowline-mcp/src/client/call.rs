//! One tool call: sent, watched, and cancelled if its caller drops it.

use std::sync::Arc;
use std::time::Duration;

use bowline_text::display;
use bowline_tools::mcp_tools::{McpCallOutput, parse_call_output};
use rmcp::RoleClient;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotification, CancelledNotificationParam,
    ClientNotification, ClientRequest, RequestId, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, ServiceError};
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::connection::http_connect_error;
use super::error::McpError;
use super::handler::NotificationHandler;
use super::options::McpClientOptions;
use super::server::ServerSnapshot;
use super::servers::ServerState;

/// How long a call waits for a server that is restarting.
const RESTART_WAIT: Duration = Duration::from_secs(5);
/// The deadline for sending a cancellation.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest message of a server's error, in bytes.
const MAX_ERROR_MESSAGE: usize = 2000;

/// A handle for calling a server.
#[derive(Clone)]
pub(super) struct ServerLink {
    peer: Peer<RoleClient>,
    handler: Arc<NotificationHandler>,
}

impl ServerLink {
    pub(super) fn new(peer: Peer<RoleClient>, handler: Arc<NotificationHandler>) -> Self {
        Self { peer, handler }
    }

    pub(super) fn peer(&self) -> &Peer<RoleClient> {
        &self.peer
    }

    /// Returns whether both handles belong to the same connection.
    fn is_same_connection(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.handler, &other.handler)
    }
}

/// Calls a tool. Dropping the future cancels the call.
pub(super) async fn call(
    server: &str,
    mut snapshot: watch::Receiver<ServerSnapshot>,
    settings: &McpClientOptions,
    tool: String,
    arguments: Map<String, Value>,
    mut progress: impl FnMut(String),
) -> Result<McpCallOutput, McpError> {
    let link = wait_until_ready(server, &mut snapshot).await?;
    let server_name = || server.to_owned();
    let params = CallToolRequestParams::new(tool).with_arguments(arguments);
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
    let limit = Instant::now() + settings.call_limit;
    let mut idle = Instant::now() + settings.call_timeout;
    let send = link.peer.send_request_with_option(request, PeerRequestOptions::no_options());
    let sent = tokio::select! {
        biased;
        why = wait_until_lost(&mut snapshot, &link) => return Err(McpError::ServerEnded { server: server_name(), why }),
        sent = send => sent,
        () = sleep_until(idle.min(limit)) => {
            return Err(McpError::TimedOut { server: server_name(), after: settings.call_timeout });
        }
    };
    let mut handle = sent.map_err(|error| to_mcp_error(server, &error))?;
    let mut pending = PendingCallGuard { peer: &link.peer, id: Some(handle.id.clone()) };
    let mut watch = link.handler.watch_progress(handle.progress_token.clone());
    let answer = loop {
        tokio::select! {
            biased;
            answer = &mut handle.rx => break answer.unwrap_or(Err(ServiceError::TransportClosed)),
            why = wait_until_lost(&mut snapshot, &link) => {
                pending.id = None;
                return Err(McpError::ServerEnded { server: server_name(), why });
            }
            // Before the progress, which may never stop.
            () = sleep_until(idle.min(limit)) => {
                let after = if idle < limit { settings.call_timeout } else { settings.call_limit };
                return Err(McpError::TimedOut { server: server_name(), after });
            }
            Some(title) = watch.next() => {
                idle = Instant::now() + settings.call_timeout;
                progress(title);
            }
        }
    };
    pending.id = None;
    match answer {
        Ok(ServerResult::InputRequiredResult(_)) => {
            Err(McpError::Unsupported { server: server_name(), what: "a question to the user" })
        }
        Ok(ServerResult::CreateTaskResult(_)) => {
            Err(McpError::Unsupported { server: server_name(), what: "a task in the background" })
        }
        Ok(result) => Ok(parse_call_output(serde_json::to_value(result).unwrap_or_default())),
        // The connection ended, and the owner of the server knows why.
        Err(ServiceError::TransportClosed) => {
            let why = timeout(Duration::from_millis(500), wait_until_lost(&mut snapshot, &link)).await;
            let why = why.unwrap_or_else(|_| "it closed the connection".to_owned());
            Err(McpError::ServerEnded { server: server_name(), why })
        }
        Err(error) => Err(to_mcp_error(server, &error)),
    }
}

/// Waits until a server can be called, and returns its handle.
async fn wait_until_ready(
    server: &str,
    snapshot: &mut watch::Receiver<ServerSnapshot>,
) -> Result<ServerLink, McpError> {
    let settled = |snapshot: &ServerSnapshot| {
        snapshot.link.is_some() || matches!(snapshot.state, ServerState::Failed(_) | ServerState::Stopped)
    };
    drop(timeout(RESTART_WAIT, snapshot.wait_for(settled)).await);
    let snapshot = snapshot.borrow();
    snapshot
        .link
        .clone()
        .ok_or_else(|| McpError::NotReady { server: server.to_owned(), why: snapshot.state.to_string() })
}

/// Waits until the connection is lost or replaced, and returns the reason.
async fn wait_until_lost(snapshot: &mut watch::Receiver<ServerSnapshot>, link: &ServerLink) -> String {
    let other =
        |snapshot: &ServerSnapshot| !snapshot.link.as_ref().is_some_and(|now| now.is_same_connection(link));
    match snapshot.wait_for(other).await {
        Ok(snapshot) => snapshot.state.to_string(),
        Err(_) => ServerState::Stopped.to_string(),
    }
}

fn to_mcp_error(server: &str, error: &ServiceError) -> McpError {
    let server = server.to_owned();
    match error {
        ServiceError::McpError(error) => {
            McpError::Refused { server, message: display::escape_line(&error.message, MAX_ERROR_MESSAGE) }
        }
        ServiceError::TransportSend(error) => {
            McpError::Unreachable { server, why: http_connect_error(&*error.error).why }
        }
        error => McpError::Unreachable { server, why: super::error::format_error_chain(error) },
    }
}

/// An unanswered request. Dropping it cancels the request at the server.
struct PendingCallGuard<'a> {
    peer: &'a Peer<RoleClient>,
    id: Option<RequestId>,
}

impl Drop for PendingCallGuard<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        // Without a runtime the connection is gone as well.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let peer = self.peer.clone();
        let param =
            CancelledNotificationParam::new(Some(id), Some("the answer is no longer needed".to_owned()));
        let cancelled = ClientNotification::CancelledNotification(CancelledNotification::new(param));
        runtime.spawn(async move { drop(timeout(CANCEL_TIMEOUT, peer.send_notification(cancelled)).await) });
    }
}
