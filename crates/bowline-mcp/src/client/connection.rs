//! One connection to a server: made, watched and ended, with the server's processes.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bowline_state::display;
use bowline_state::terminal::Exit;
use bowline_state::terminal::environment::environment;
use bowline_workspace::terminals::{Companion, Program, Streams, TerminalError};
use rmcp::RoleClient;
use rmcp::model::ProtocolVersion;
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt as _, Peer, RunningService,
};
use rmcp::transport::Transport;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio::time::timeout;

use super::error::{Again, Failure, chain};
use super::guard::{Guard, Line};
use super::handler::{Handler, Shared};
use super::legacy::{Legacy, LegacyError};
use super::over_acp::Channel;
use super::ring::Ring;
use super::settings::Settings;
use super::spec::Reach;
use super::stdio::Stdio;
use super::streamable::{self, HttpError};
use crate::http;

/// How long what a server said last is read after it ended.
const TAIL: Duration = Duration::from_millis(200);
/// How long a server that has closed its output may take to end, so that how it ended can be told.
const EXIT: Duration = Duration::from_secs(2);
/// How long a server may take to end by itself when its input has ended.
const LEAVE: Duration = Duration::from_millis(500);
/// How long the end of a connection may take to be told.
const CLOSE: Duration = Duration::from_secs(2);
/// The longest name or version that is shown, in bytes.
const MAX_SHOWN: usize = 80;

/// A connection. Dropping it ends the server's processes.
pub(super) struct Connection {
    running: RunningService<RoleClient, Shared>,
    line: watch::Receiver<Line>,
    cut: watch::Sender<bool>,
    process: Option<Process>,
    grace: Duration,
}

impl Connection {
    /// Connects. Dropped, it leaves nothing behind.
    pub(super) async fn open(reach: &Reach, settings: &Settings, ring: &Arc<Ring>) -> Result<Self, Failure> {
        let modern = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::LATEST] };
        let (first, second) = match reach {
            // There is no connection to shake hands on; servers that want it all the same are asked then.
            Reach::Acp { .. } => (modern, ClientLifecycleMode::Initialize),
            // Servers of the latest protocol may not know the handshake. Asking older ones the new way first would make
            // some of them hang.
            _ => (ClientLifecycleMode::Initialize, modern),
        };
        match Self::open_as(reach, settings, ring, first).await {
            Err(Refused::Handshake(failure)) => {
                Self::open_as(reach, settings, ring, second).await.map_err(|_| failure)
            }
            Err(Refused::Otherwise(failure)) => Err(failure),
            Ok(connection) => Ok(connection),
        }
    }

    async fn open_as(
        reach: &Reach,
        settings: &Settings,
        ring: &Arc<Ring>,
        mode: ClientLifecycleMode,
    ) -> Result<Self, Refused> {
        let grace = settings.grace;
        match reach {
            Reach::Stdio { .. } => {
                let (process, Streams { talk, errors }) = start(reach, settings).await?;
                tokio::spawn(drain(errors, Arc::clone(ring)));
                let mut process = Process { companion: process, exit: None };
                let served = serve(Stdio::new(talk, Arc::clone(ring)), mode, Some(&mut process)).await;
                let (running, line, cut) = served?;
                Ok(Self { running, line, cut, process: Some(process), grace })
            }
            Reach::Http { url, headers } => {
                let transport = streamable::transport(client(settings, url).await?, url, headers.clone());
                let (running, line, cut) = serve(transport, mode, None).await?;
                Ok(Self { running, line, cut, process: None, grace })
            }
            Reach::Sse { url, headers } => {
                let client = client(settings, url).await?;
                let connected = Legacy::connect(client, url.clone(), headers.clone()).await;
                let transport = connected.map_err(|why| match &why {
                    LegacyError::Http(http) => {
                        Failure { why: chain(&why), again: Again::if_passing(http.may_pass()) }
                    }
                    LegacyError::NoEndpoint | LegacyError::Elsewhere(_) => Failure::lasting(chain(&why)),
                })?;
                let (running, line, cut) = serve(transport, mode, None).await?;
                Ok(Self { running, line, cut, process: None, grace })
            }
            Reach::Acp { server } => {
                let Some(over) = &settings.over_acp else {
                    return Err(
                        Failure::lasting("there is no client that it could be reached through").into()
                    );
                };
                let transport = Channel::new(over.clone(), server.clone());
                let (running, line, cut) = serve(transport, mode, None).await?;
                Ok(Self { running, line, cut, process: None, grace })
            }
        }
    }

    pub(super) fn peer(&self) -> Peer<RoleClient> {
        self.running.peer().clone()
    }

    pub(super) fn handler(&self) -> Arc<Handler> {
        Arc::clone(&self.running.service().0)
    }

    /// Returns whether the server says that it has tools.
    pub(super) fn has_tools(&self) -> bool {
        self.running.peer().peer_info().is_some_and(|info| info.capabilities.tools.is_some())
    }

    /// Returns what the server calls itself, with its version.
    pub(super) fn version(&self) -> Option<String> {
        let info = self.running.peer().peer_info()?;
        let server = info.server_info.as_ref()?;
        let shown = |text: &str| display::line(text, MAX_SHOWN);
        let named = format!("{} {}", shown(&server.name), shown(&server.version));
        Some(format!("{} (MCP {})", named.trim(), info.protocol_version))
    }

    /// Waits until the connection ends, and says how it did.
    pub(super) async fn ended(&mut self) -> String {
        let Self { line, cut, process, .. } = self;
        let closed = async |line: &mut watch::Receiver<Line>| {
            line.wait_for(|line| *line != Line::Open).await.map_or(Line::Closed, |line| *line)
        };
        tokio::select! {
            biased;
            exit = exit(process) => {
                // Others may hold its output open. What it said itself is there by now.
                timeout(TAIL, closed(line)).await.map_or_else(drop, drop);
                cut.send_replace(true);
                said_of(exit)
            }
            how = closed(line) => match (how, process.is_some()) {
                (Line::Flooded, _) => "it asks without reading what it is answered, so it was cut off".to_owned(),
                (_, true) => match timeout(EXIT, exit(process)).await {
                    Ok(exit) => said_of(exit),
                    Err(_) => "it closed its output".to_owned(),
                },
                (_, false) => "it closed the connection".to_owned(),
            },
        }
    }

    /// Ends the connection and the server's processes: it is told first, asked then, and killed at last.
    pub(super) async fn close(mut self) {
        drop(self.running.close_with_timeout(CLOSE).await);
        if let Some(mut process) = self.process.take() {
            drop(timeout(LEAVE.min(self.grace), process.exited()).await);
            process.companion.end().await;
        }
    }

    /// Ends what is left of a server that has ended.
    pub(super) async fn clean_up(mut self) {
        if let Some(process) = self.process.take() {
            process.companion.end().await;
        }
    }
}

/// The processes of a server.
struct Process {
    companion: Companion,
    // How the server itself ended, when that is known.
    exit: Option<Option<Exit>>,
}

impl Process {
    /// Waits until the server itself has ended, and says how, as often as it is asked.
    async fn exited(&mut self) -> Option<Exit> {
        if self.exit.is_none() {
            self.exit = Some(self.companion.ended().await);
        }
        self.exit.clone().flatten()
    }
}

/// Why there is no connection.
enum Refused {
    /// The server answered the handshake with an error.
    Handshake(Failure),
    Otherwise(Failure),
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self::Otherwise(failure)
    }
}

type Served = (RunningService<RoleClient, Shared>, watch::Receiver<Line>, watch::Sender<bool>);

async fn serve<T: Transport<RoleClient> + 'static>(
    transport: T,
    mode: ClientLifecycleMode,
    process: Option<&mut Process>,
) -> Result<Served, Refused> {
    let (line_sender, line) = watch::channel(Line::Open);
    let (cut, cut_receiver) = watch::channel(false);
    let guarded = Guard::new(transport, line_sender, cut_receiver);
    let why = match Shared::default().serve_with_lifecycle(guarded, mode).await {
        Ok(running) => return Ok((running, line, cut)),
        Err(why) => why,
    };
    match (&why, process) {
        (ClientInitializeError::JsonRpcError(error), _) => {
            let message = display::line(&error.message, 300);
            Err(Refused::Handshake(Failure::lasting(format!("it refuses the handshake: {message}"))))
        }
        (ClientInitializeError::NoCompatibleProtocolVersion { .. }, _) => {
            let message = display::line(&why.to_string(), 300);
            Err(Refused::Handshake(Failure::lasting(format!("it does not speak MCP as expected: {message}"))))
        }
        (ClientInitializeError::TransportError { error, .. }, None) => Err(unreachable(&*error.error).into()),
        // A program that has ended takes its input along, or does not say why.
        (
            ClientInitializeError::TransportError { .. } | ClientInitializeError::ConnectionClosed(_),
            Some(process),
        ) => {
            let how = timeout(EXIT, process.exited())
                .await
                .map_or_else(|_| "it closed its output".to_owned(), said_of);
            Err(Failure::passing(format!("{how} before it was ready")).into())
        }
        (ClientInitializeError::ConnectionClosed(_), None) => {
            Err(Failure::passing("it closed the connection before it was ready").into())
        }
        _ => Err(Failure::lasting(format!("it does not speak MCP as expected: {}", chain(&why))).into()),
    }
}

/// Returns why a server cannot be reached over HTTP.
pub(super) fn unreachable(error: &(dyn std::error::Error + Send + Sync + 'static)) -> Failure {
    match error.downcast_ref::<StreamableHttpError<HttpError>>() {
        Some(StreamableHttpError::Client(http)) => {
            Failure { why: chain(http), again: Again::if_passing(http.may_pass()) }
        }
        _ => Failure::passing(chain(error)),
    }
}

async fn client(settings: &Settings, url: &reqwest::Url) -> Result<reqwest::Client, Failure> {
    let settings = settings.http.clone();
    let reaches = if url.scheme() == "http" { http::Reaches::Plain } else { http::Reaches::Secure };
    // The certificates of the system are read.
    let made = tokio::task::spawn_blocking(move || http::client(&settings, reaches)).await;
    match made {
        Ok(Ok(client)) => Ok(client),
        Ok(Err(why)) => Err(Failure::lasting(chain(&why))),
        Err(_) => Err(Failure::passing("the HTTP client was not made")),
    }
}

async fn start(reach: &Reach, settings: &Settings) -> Result<(Companion, Streams), Failure> {
    let Reach::Stdio { command, args, env, cwd } = reach else {
        return Err(Failure::lasting("it is no program"));
    };
    let env = environment(&settings.inherited, &settings.allows, env);
    let env = env.map_err(|why| Failure::lasting(chain(&why)))?;
    let argv = [command].into_iter().chain(args).cloned().collect();
    let directory = cwd.clone().unwrap_or_else(|| settings.directory.clone());
    let program = Program { argv, env, directory, resources: settings.resources, grace: settings.grace };
    Companion::start(&settings.supervisor, program).await.map_err(|why| match why {
        TerminalError::Supervisor(_) | TerminalError::System { .. } => Failure::passing(chain(&why)),
        why => Failure::lasting(chain(&why)),
    })
}

/// Reads what a server says on its standard error, so that it never has to wait with it.
async fn drain(errors: pipe::Receiver, ring: Arc<Ring>) {
    let mut buffer = vec![0; 64 * 1024];
    while errors.readable().await.is_ok() {
        match errors.try_read(&mut buffer) {
            Ok(0) => return,
            Ok(read) => ring.push(&buffer[..read]),
            Err(why) if why.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
        tokio::task::consume_budget().await;
    }
}

async fn exit(process: &mut Option<Process>) -> Option<Exit> {
    match process {
        Some(process) => process.exited().await,
        None => pending().await,
    }
}

fn said_of(exit: Option<Exit>) -> String {
    match exit {
        Some(Exit::Code(code)) => format!("it ended with code {code}"),
        Some(Exit::Signal(signal)) => format!("it was ended by {signal}"),
        None => "it was ended".to_owned(),
    }
}
