//! One connection to a server, and the server's processes.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bowline_protocol::terminal::CommandExit;
use bowline_protocol::terminal::environment::command_environment;
use bowline_text::display;
use bowline_workspace::terminals::{ProgramSpec, ProgramStreams, SupervisedProgram, TerminalError};
use rmcp::RoleClient;
use rmcp::model::ProtocolVersion;
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt as _, Peer, RunningService,
};
use rmcp::transport::streamable_http_client::StreamableHttpError;
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio::time::timeout;

use super::acp_transport::AcpTransport;
use super::error::{ConnectError, RetryPolicy, format_error_chain};
use super::guarded_transport::{ConnectionState, GuardedTransport};
use super::handler::{NotificationHandler, SharedHandler};
use super::legacy_sse::{LegacyError, LegacyTransport};
use super::options::McpClientOptions;
use super::output_tail::OutputTail;
use super::spec::TransportSpec;
use super::stdio::StdioTransport;
use super::streamable_http;
use super::transport::{ServerTransport, TransportError};
use crate::http;

/// How long the last output of a server is read after it ended.
const TAIL_TIMEOUT: Duration = Duration::from_millis(200);
/// How long a server that has closed its output may take to exit, so that its exit status can be reported.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a server may take to exit by itself after its input was closed.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(500);
/// The deadline for closing a connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection. Dropping it ends the server's processes.
pub(super) struct ServerConnection {
    running: RunningService<RoleClient, SharedHandler>,
    state: watch::Receiver<ConnectionState>,
    cut: watch::Sender<bool>,
    process: Option<ServerProcess>,
    grace: Duration,
}

impl ServerConnection {
    /// Connects. Dropping the future leaves nothing behind.
    pub(super) async fn open(
        spec: &TransportSpec,
        settings: &McpClientOptions,
        output: &Arc<OutputTail>,
    ) -> Result<Self, ConnectError> {
        let modern = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::LATEST] };
        let (first, second) = match spec {
            // There is no connection that needs a handshake; servers that insist on one get it on the second attempt.
            TransportSpec::Acp { .. } => (modern, ClientLifecycleMode::Initialize),
            // Servers of the latest protocol may not know the handshake. Older servers may hang if they are asked the
            // new way first.
            _ => (ClientLifecycleMode::Initialize, modern),
        };
        match Self::open_with_mode(spec, settings, output, first).await {
            Err(OpenError::Handshake(failure)) => {
                Self::open_with_mode(spec, settings, output, second).await.map_err(|_| failure)
            }
            Err(OpenError::Other(failure)) => Err(failure),
            Ok(connection) => Ok(connection),
        }
    }

    async fn open_with_mode(
        spec: &TransportSpec,
        settings: &McpClientOptions,
        output: &Arc<OutputTail>,
        mode: ClientLifecycleMode,
    ) -> Result<Self, OpenError> {
        let mut process = None;
        let transport = match spec {
            TransportSpec::Stdio { .. } => {
                let (program, ProgramStreams { stdio, stderr }) = start_process(spec, settings).await?;
                bowline_task::spawn(drain_stderr(stderr, Arc::clone(output)));
                process = Some(ServerProcess { companion: program, exit: None });
                ServerTransport::Stdio(StdioTransport::new(stdio, Arc::clone(output)))
            }
            TransportSpec::Http { url, headers } => {
                let client = http_client(settings, url).await?;
                ServerTransport::StreamableHttp(streamable_http::transport(client, url, headers.clone()))
            }
            TransportSpec::Sse { url, headers } => {
                let client = http_client(settings, url).await?;
                let connected = LegacyTransport::connect(client, url.clone(), headers.clone()).await;
                ServerTransport::LegacySse(connected.map_err(|error| match &error {
                    LegacyError::Http(http) => ConnectError {
                        why: format_error_chain(&error),
                        retry: RetryPolicy::if_transient(http.is_transient()),
                    },
                    LegacyError::NoEndpoint | LegacyError::OtherHost(_) => {
                        ConnectError::permanent(format_error_chain(&error))
                    }
                })?)
            }
            TransportSpec::Acp { server } => {
                let Some(mcp_over_acp) = &settings.over_acp else {
                    return Err(ConnectError::permanent(
                        "there is no client that it could be reached through",
                    )
                    .into());
                };
                ServerTransport::Acp(AcpTransport::new(mcp_over_acp.clone(), server.clone()))
            }
        };
        let (running, state, cut) = perform_handshake(transport, mode, process.as_mut()).await?;
        Ok(Self { running, state, cut, process, grace: settings.grace_period })
    }

    pub(super) fn peer(&self) -> Peer<RoleClient> {
        self.running.peer().clone()
    }

    pub(super) fn handler(&self) -> Arc<NotificationHandler> {
        Arc::clone(&self.running.service().0)
    }

    /// Returns whether the server declares tools.
    pub(super) fn has_tools(&self) -> bool {
        self.running.peer().peer_info().is_some_and(|info| info.capabilities.tools.is_some())
    }

    /// Waits until the connection ends, and describes how it ended.
    pub(super) async fn wait_until_ended(&mut self) -> String {
        let Self { state, cut, process, .. } = self;
        let closed = async |state: &mut watch::Receiver<ConnectionState>| {
            state
                .wait_for(|state| *state != ConnectionState::Open)
                .await
                .map_or(ConnectionState::Closed, |state| *state)
        };
        tokio::select! {
            biased;
            exit = wait_for_process_exit(process) => {
                // Other processes may hold its output open. Its own output has arrived by now.
                timeout(TAIL_TIMEOUT, closed(state)).await.map_or_else(drop, drop);
                cut.send_replace(true);
                describe_exit(exit)
            }
            end_state = closed(state) => match (end_state, process.is_some()) {
                (ConnectionState::Flooded, _) => "it asks without reading what it is answered, so it was cut off".to_owned(),
                (_, true) => match timeout(EXIT_TIMEOUT, wait_for_process_exit(process)).await {
                    Ok(exit) => describe_exit(exit),
                    Err(_) => "it closed its output".to_owned(),
                },
                (_, false) => "it closed the connection".to_owned(),
            },
        }
    }

    /// Ends the connection and the server's processes: closes the connection, then asks the server to exit, then kills
    /// it.
    pub(super) async fn close(mut self) {
        drop(self.running.close_with_timeout(CLOSE_TIMEOUT).await);
        if let Some(mut process) = self.process.take() {
            drop(timeout(LEAVE_TIMEOUT.min(self.grace), process.wait_for_exit()).await);
            process.companion.stop().await;
        }
    }

    /// Ends the remaining processes of a server that has ended.
    pub(super) async fn clean_up(mut self) {
        if let Some(process) = self.process.take() {
            process.companion.stop().await;
        }
    }
}

/// The processes of a server.
struct ServerProcess {
    companion: SupervisedProgram,
    // How the server itself ended, once that is known.
    exit: Option<Option<CommandExit>>,
}

impl ServerProcess {
    /// Waits until the server itself has ended, and returns how. May be called repeatedly.
    async fn wait_for_exit(&mut self) -> Option<CommandExit> {
        if self.exit.is_none() {
            self.exit = Some(self.companion.wait().await);
        }
        self.exit.clone().flatten()
    }
}

/// Why a connection could not be opened.
enum OpenError {
    /// The server answered the handshake with an error.
    Handshake(ConnectError),
    Other(ConnectError),
}

impl From<ConnectError> for OpenError {
    fn from(failure: ConnectError) -> Self {
        Self::Other(failure)
    }
}

type ServedConnection =
    (RunningService<RoleClient, SharedHandler>, watch::Receiver<ConnectionState>, watch::Sender<bool>);

async fn perform_handshake(
    transport: ServerTransport,
    mode: ClientLifecycleMode,
    process: Option<&mut ServerProcess>,
) -> Result<ServedConnection, OpenError> {
    let (state_sender, state) = watch::channel(ConnectionState::Open);
    let (cut, cut_receiver) = watch::channel(false);
    let guarded = GuardedTransport::new(transport, state_sender, cut_receiver);
    let error = match SharedHandler::default().serve_with_lifecycle(guarded, mode).await {
        Ok(running) => return Ok((running, state, cut)),
        Err(error) => error,
    };
    match (&error, process) {
        (ClientInitializeError::JsonRpcError(error), _) => {
            let message = display::escape_line(&error.message, 300);
            Err(OpenError::Handshake(ConnectError::permanent(format!("it refuses the handshake: {message}"))))
        }
        (ClientInitializeError::NoCompatibleProtocolVersion { .. }, _) => {
            let message = display::escape_line(&error.to_string(), 300);
            Err(OpenError::Handshake(ConnectError::permanent(format!(
                "it does not speak MCP as expected: {message}"
            ))))
        }
        (ClientInitializeError::TransportError { error, .. }, None) => {
            Err(http_connect_error(&*error.error).into())
        }
        // A program that has ended causes a write error or a closed connection; its exit status says more.
        (
            ClientInitializeError::TransportError { .. } | ClientInitializeError::ConnectionClosed(_),
            Some(process),
        ) => {
            let exit = timeout(EXIT_TIMEOUT, process.wait_for_exit())
                .await
                .map_or_else(|_| "it closed its output".to_owned(), describe_exit);
            Err(ConnectError::transient(format!("{exit} before it was ready")).into())
        }
        (ClientInitializeError::ConnectionClosed(_), None) => {
            Err(ConnectError::transient("it closed the connection before it was ready").into())
        }
        _ => Err(ConnectError::permanent(format!(
            "it does not speak MCP as expected: {}",
            format_error_chain(&error)
        ))
        .into()),
    }
}

/// Returns why a server is unreachable over HTTP.
pub(super) fn http_connect_error(error: &(dyn std::error::Error + Send + Sync + 'static)) -> ConnectError {
    match error.downcast_ref() {
        Some(TransportError::StreamableHttp(StreamableHttpError::Client(http))) => ConnectError {
            why: format_error_chain(http),
            retry: RetryPolicy::if_transient(http.is_transient()),
        },
        _ => ConnectError::transient(format_error_chain(error)),
    }
}

async fn http_client(
    settings: &McpClientOptions,
    url: &reqwest::Url,
) -> Result<reqwest::Client, ConnectError> {
    let settings = settings.http.clone();
    let scheme = if url.scheme() == "http" { http::HttpScheme::Http } else { http::HttpScheme::Https };
    // Blocking, because the system's certificates are read from disk.
    let built = bowline_task::spawn_blocking(move || http::build_client(&settings, scheme)).await;
    match built {
        Ok(Ok(client)) => Ok(client),
        Ok(Err(error)) => Err(ConnectError::permanent(format_error_chain(&error))),
        Err(_) => Err(ConnectError::transient("the HTTP client was not made")),
    }
}

async fn start_process(
    spec: &TransportSpec,
    settings: &McpClientOptions,
) -> Result<(SupervisedProgram, ProgramStreams), ConnectError> {
    let TransportSpec::Stdio { command, args, env, cwd } = spec else {
        return Err(ConnectError::permanent("it is no program"));
    };
    let env = command_environment(&settings.inherited_env, env);
    let env = env.map_err(|error| ConnectError::permanent(format_error_chain(&error)))?;
    let argv = [command].into_iter().chain(args).cloned().collect();
    let directory = cwd.clone().unwrap_or_else(|| settings.directory.clone());
    let program = ProgramSpec {
        argv,
        env,
        directory,
        resource_limits: settings.resources,
        grace_period: settings.grace_period,
    };
    SupervisedProgram::start(&settings.supervisor, program).await.map_err(|error| match error {
        TerminalError::Supervisor(_) | TerminalError::System { .. } => {
            ConnectError::transient(format_error_chain(&error))
        }
        error => ConnectError::permanent(format_error_chain(&error)),
    })
}

/// Drains a server's standard error, so that the server never blocks on it.
async fn drain_stderr(stderr: pipe::Receiver, output: Arc<OutputTail>) {
    let mut buffer = vec![0; 64 * 1024];
    while stderr.readable().await.is_ok() {
        match stderr.try_read(&mut buffer) {
            Ok(0) => return,
            Ok(read) => output.push(&buffer[..read]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
        tokio::task::consume_budget().await;
    }
}

async fn wait_for_process_exit(process: &mut Option<ServerProcess>) -> Option<CommandExit> {
    match process {
        Some(process) => process.wait_for_exit().await,
        None => pending().await,
    }
}

fn describe_exit(exit: Option<CommandExit>) -> String {
    match exit {
        Some(CommandExit::Code(code)) => format!("it ended with code {code}"),
        Some(CommandExit::Signal(signal)) => format!("it was ended by {signal}"),
        None => "it was ended".to_owned(),
    }
}
