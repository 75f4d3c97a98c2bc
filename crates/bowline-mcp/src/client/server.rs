//! The task that owns one server: it connects, lists the tools, notices when the server ends, and restarts it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline_tools::mcp_tools::{self, ListedTool, MAX_SERVER_TOOLS};
use rmcp::RoleClient;
use rmcp::model::{ClientRequest, ListToolsRequest, PaginatedRequestParams};
use rmcp::service::{Peer, ServiceError};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::call::ServerLink;
use super::connection::{ServerConnection, http_connect_error};
use super::error::{ConnectError, RetryPolicy, format_error_chain};
use super::options::McpClientOptions;
use super::output_tail::OutputTail;
use super::restarts::Restarts;
use super::servers::ServerState;
use super::spec::ServerSpec;

/// The most pages of a tool list that are read.
const MAX_PAGES: usize = 64;
/// The delay before a server that failed repeatedly is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(60);
/// The shortest time between two listings, however often a server reports that its tools changed.
const RELIST_INTERVAL: Duration = Duration::from_secs(1);

/// The published state of a server.
#[derive(Clone)]
pub(super) struct ServerSnapshot {
    pub(super) state: ServerState,
    /// Its tools. They are kept while it restarts.
    pub(super) tools: Arc<[ListedTool]>,
    /// How many tools were left out.
    pub(super) left_out: usize,
    /// The names of the omitted tools that are nested too deeply.
    pub(super) too_deep: Arc<[String]>,
    /// The handle for calling it, when it is ready.
    pub(super) link: Option<ServerLink>,
}

impl ServerSnapshot {
    pub(super) fn new() -> Self {
        Self {
            state: ServerState::Starting,
            tools: Arc::default(),
            left_out: 0,
            too_deep: Arc::default(),
            link: None,
        }
    }
}

/// The owner of a server.
pub(super) struct ServerTask {
    pub(super) spec: ServerSpec,
    pub(super) settings: Arc<McpClientOptions>,
    pub(super) output: Arc<OutputTail>,
    pub(super) snapshot: watch::Sender<ServerSnapshot>,
    pub(super) stop: watch::Receiver<bool>,
    /// Notified when a restart is requested.
    pub(super) restart: Arc<Notify>,
}

/// Why a run of a server ended.
enum ServerRunOutcome {
    /// It was stopped.
    Stopped,
    /// A restart was requested.
    Restart,
    /// It did not start, or it ended.
    Failed(ConnectError),
}

impl ServerTask {
    /// Keeps the server running until it is stopped.
    pub(super) async fn run(mut self) {
        let mut restarts = Restarts::default();
        loop {
            let failure = match self.run_connection().await {
                ServerRunOutcome::Stopped => break,
                ServerRunOutcome::Restart => {
                    restarts = Restarts::default();
                    continue;
                }
                ServerRunOutcome::Failed(failure) => failure,
            };
            self.output.push_line(&format!("({})", failure.why));
            let pause =
                if failure.retry == RetryPolicy::Soon { restarts.next_delay(Instant::now()) } else { None };
            let Some(pause) = pause else {
                self.snapshot.send_modify(|snapshot| {
                    *snapshot =
                        ServerSnapshot { state: ServerState::Failed(failure.why), ..ServerSnapshot::new() };
                });
                // A retry helps, for instance, when the network comes back; a permanent failure stays.
                let later = async {
                    match failure.retry {
                        RetryPolicy::Never => std::future::pending().await,
                        RetryPolicy::Later | RetryPolicy::Soon => sleep(RETRY_DELAY).await,
                    }
                };
                tokio::select! {
                    () = wait_until_stopped(&mut self.stop) => break,
                    () = later => continue,
                    () = self.restart.notified() => {
                        restarts = Restarts::default();
                        self.snapshot.send_replace(ServerSnapshot::new());
                        continue;
                    }
                }
            };
            self.snapshot.send_modify(|snapshot| {
                snapshot.link = None;
                snapshot.state = ServerState::Restarting(failure.why);
            });
            tokio::select! {
                () = wait_until_stopped(&mut self.stop) => break,
                () = self.restart.notified() => restarts = Restarts::default(),
                () = sleep(pause) => {}
            }
        }
        self.snapshot.send_replace(ServerSnapshot { state: ServerState::Stopped, ..ServerSnapshot::new() });
    }

    /// Connects, and keeps the connection until it ends.
    async fn run_connection(&mut self) -> ServerRunOutcome {
        let Self { spec, settings, output, snapshot, stop, restart } = self;
        let open = async {
            let connection = ServerConnection::open(&spec.transport, settings, output).await?;
            let listing = list_tools(&connection).await.map_err(|error| listing_error(&error))?;
            Ok((connection, listing))
        };
        let opened = tokio::select! {
            biased;
            () = wait_until_stopped(stop) => return ServerRunOutcome::Stopped,
            opened = timeout(settings.start_timeout, open) => opened,
        };
        let (mut connection, mut listing) = match opened {
            Ok(Ok(opened)) => opened,
            Ok(Err(failure)) => return ServerRunOutcome::Failed(failure),
            Err(_) => {
                let seconds = settings.start_timeout.as_secs();
                return ServerRunOutcome::Failed(ConnectError::slow(format!(
                    "it was not ready within {seconds} seconds"
                )));
            }
        };
        let handler = connection.handler();
        let link = ServerLink::new(connection.peer(), Arc::clone(&handler));
        loop {
            snapshot.send_replace(ServerSnapshot {
                state: ServerState::Ready,
                tools: listing.tools.into(),
                left_out: listing.left_out,
                too_deep: listing.too_deep.into(),
                link: Some(link.clone()),
            });
            let changed = async {
                sleep(RELIST_INTERVAL).await;
                loop {
                    handler.tools_changed.notified().await;
                    match timeout(settings.start_timeout, list_tool_pages(link.peer())).await {
                        Ok(Ok(listing)) => return listing,
                        Ok(Err(error)) => output.push_line(&format!(
                            "(its tools changed, but were not listed: {})",
                            format_error_chain(&error)
                        )),
                        Err(_) => output.push_line("(its tools changed, but it did not list them)"),
                    }
                    sleep(RELIST_INTERVAL).await;
                }
            };
            let ended = tokio::select! {
                biased;
                () = wait_until_stopped(stop) => Err(ServerRunOutcome::Stopped),
                () = restart.notified() => Err(ServerRunOutcome::Restart),
                reason = connection.wait_until_ended() => Ok(reason),
                changed = changed => {
                    listing = changed;
                    continue;
                }
            };
            let reason = match ended {
                Ok(reason) => reason,
                Err(ended) => {
                    // From here on the server cannot be called.
                    let state = if matches!(ended, ServerRunOutcome::Restart) {
                        ServerState::Starting
                    } else {
                        ServerState::Stopped
                    };
                    snapshot.send_modify(|snapshot| (snapshot.link, snapshot.state) = (None, state));
                    connection.close().await;
                    return ended;
                }
            };
            // Pending calls learn of the end before the remains of the server are cleaned up.
            snapshot.send_modify(|snapshot| {
                snapshot.link = None;
                snapshot.state = ServerState::Restarting(reason.clone());
            });
            connection.clean_up().await;
            return ServerRunOutcome::Failed(ConnectError::transient(reason));
        }
    }
}

async fn wait_until_stopped(stop: &mut watch::Receiver<bool>) {
    // A dropped sender means stop, too.
    drop(stop.wait_for(|stop| *stop).await);
}

/// The tools of a server.
#[derive(Default)]
struct ToolListing {
    tools: Vec<ListedTool>,
    left_out: usize,
    // Invariant: at most `MAX_SERVER_TOOLS`.
    too_deep: Vec<String>,
}

async fn list_tools(connection: &ServerConnection) -> Result<ToolListing, ServiceError> {
    if connection.has_tools() {
        list_tool_pages(&connection.peer()).await
    } else {
        Ok(ToolListing::default())
    }
}

/// Lists the tools of a server, page by page.
async fn list_tool_pages(peer: &Peer<RoleClient>) -> Result<ToolListing, ServiceError> {
    let mut listing = ToolListing::default();
    let mut names = HashSet::new();
    let mut cursor = None;
    for _ in 0..MAX_PAGES {
        let params = cursor.take().map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
        let request = ListToolsRequest { method: Default::default(), params, extensions: Default::default() };
        let result = peer.send_request(ClientRequest::ListToolsRequest(request)).await?;
        // Reads the raw value, regardless of how the SDK typed it: one unreadable tool must not cost the others.
        let page = serde_json::to_value(&result).unwrap_or_default();
        let page = mcp_tools::parse_tool_page(&page);
        listing.left_out += page.unusable_count;
        listing.too_deep.extend(page.too_deep);
        listing.too_deep.truncate(MAX_SERVER_TOOLS);
        for tool in page.tools {
            if listing.tools.len() < MAX_SERVER_TOOLS && names.insert(tool.name.clone()) {
                listing.tools.push(tool);
            } else {
                listing.left_out += 1;
            }
        }
        cursor = page.next_cursor;
        if cursor.is_none() || listing.tools.len() == MAX_SERVER_TOOLS {
            break;
        }
    }
    Ok(listing)
}

fn listing_error(error: &ServiceError) -> ConnectError {
    match error {
        ServiceError::TransportSend(error) => http_connect_error(&*error.error),
        ServiceError::TransportClosed => ConnectError::transient("it ended before it had listed its tools"),
        error => {
            ConnectError::permanent(format!("it does not list its tools: {}", format_error_chain(error)))
        }
    }
}
